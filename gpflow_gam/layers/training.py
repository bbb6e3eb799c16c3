"""Training of networks with heads: refits, bounded layers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.utilities import parameter_dict

from .additive_gp import AdditiveGP


@keras.saving.register_keras_serializable(package="gpflow_gam")
class SpectralBound(keras.constraints.Constraint):
    """
    Holds the largest singular value of a layer's kernel below a bound (Miyato et al. 2018,
    "Spectral Normalization for Generative Adversarial Networks"), exactly and after every step.

    Used as ``Dense(64, kernel_constraint=SpectralBound(0.95))``. A residual block ``x + g(x)``
    whose g has a Lipschitz constant c < 1 keeps distances within ``1 - c`` and ``1 + c`` times
    what they were, so that inputs that differ do not get features that agree, and a Gaussian
    process on those features knows what is far from its data (Liu et al. 2020, "Simple and
    Principled Uncertainty Estimation with Deterministic Deep Learning via Distance Awareness",
    proposition 1). A kernel within the bound stays as it is.

    :param bound: of a Dense layer's kernel [D, units]; of a convolution's [h, w, channels,
        filters] as a matrix of h w channels rows, where the convolution's own norm is at most
        ``sqrt(h w)`` times as large (Tsuzuku et al. 2018).
    :raises ValueError: ``bound`` is no positive number.
    """

    def __init__(self, bound: float = 0.95) -> None:
        if isinstance(bound, bool) or not (np.isfinite(bound) and bound > 0.0):
            raise ValueError(f"bound must be a positive number; got {bound!r}.")
        self.bound = float(bound)

    def __call__(self, w: tf.Tensor) -> tf.Tensor:
        w = tf.convert_to_tensor(w)
        matrix = tf.reshape(w, [-1, w.shape[-1]])
        if matrix.shape[0] is not None and matrix.shape[0] < matrix.shape[1]:
            matrix = tf.transpose(matrix)
        gram = tf.matmul(matrix, matrix, transpose_a=True)
        largest = tf.sqrt(tf.maximum(tf.reduce_max(tf.linalg.eigvalsh(gram)), 0.0))
        return w * (self.bound / tf.maximum(largest, self.bound))

    def get_config(self) -> dict[str, float]:
        return {"bound": self.bound}


def refit(
    head: AdditiveGP,
    features: Any,
    y: Any,
    *,
    epochs: int = 10,
    batch_size: int = 128,
    learning_rate: float = 0.01,
    sample_weight: Any = None,
    **options: Any,
) -> keras.callbacks.History:
    """
    Train a head on features of a trained network: scaling, inducing inputs, kernels and q(U).

    For smooths of many features at once, whose inducing inputs must lie where the features do,
    which is known once the network is trained: :meth:`AdditiveGP.adapt` puts them there, and
    training goes on from it. The network is not asked, so that this costs a fraction of its
    training.

    :param head: to train, in no compiled model yet or in one that is compiled again.
    :param features: of all training rows, [N, F], such as a network's ``predict``.
    :param y: responses [N] or [N, K].
    :param epochs: passes over the rows.
    :param batch_size: rows a step.
    :param learning_rate: Adam's, of all that natural gradients do not move.
    :param sample_weight: how often each row counts, [N]; once by default.
    :param options: of ``keras.Model.fit``: ``callbacks``, ``validation_data``, ``verbose``, ...
    :return: Keras's record of losses.
    :raises ValueError: the head is held fixed; its ``num_data`` is not N; another number of
        weights; bad features or responses, see :meth:`AdditiveGP.adapt`.
    """
    features = np.asarray(features)
    if not head.trainable:
        raise ValueError(f"{head.name} is held fixed; set head.trainable = True before a refit.")
    if len(features) != head.num_data:
        raise ValueError(
            f"features has {len(features)} rows where {head.name} was told num_data="
            f"{head.num_data}; a refit takes all training rows."
        )
    if sample_weight is not None and np.shape(sample_weight) != (len(features),):
        raise ValueError(
            f"sample_weight must be [{len(features)}], one a row of features; got shape "
            f"{np.shape(sample_weight)}."
        )
    if not np.asarray(head._starts):  # never trained: of features that stay, as a GAM begins
        with head._precision():
            fresh = parameter_dict(head.specification.build_kernel(head.structure))
        for path, parameter in head.parameters.items():
            if path.startswith("kernel."):
                parameter.assign(fresh[path.removeprefix("kernel")])
    head.adapt(features, y)
    inputs = keras.Input(features.shape[1:], dtype=head.compute_dtype)
    model = keras.Model(inputs, head(inputs))
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), loss=head.loss)
    rows = _batches(head.compute_dtype, batch_size, features, y, sample_weight)
    settings = {"verbose": 0, "shuffle": False, **options}  # rows come shuffled
    normalization = head.normalization
    if normalization == "running":  # of all rows, and so as it shall be
        head.normalization = "adapt"
    try:
        return model.fit(rows, epochs=epochs, **settings)
    finally:
        head.normalization = normalization


def _batches(dtype: str, batch_size: int, *columns: Any) -> tf.data.Dataset:
    """Shuffled rows as the head computes: of arrays Keras would keep single precision."""
    tensors = [tf.constant(np.asarray(c), dtype) for c in columns if c is not None]
    number = len(tensors[0])
    shuffled = tf.data.Dataset.range(number).shuffle(number).batch(batch_size)
    return shuffled.map(lambda at: tuple(tf.gather(c, at) for c in tensors))
