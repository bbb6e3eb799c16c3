"""Training of networks with heads: natural gradients, refits, bounded layers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..variational import OptimalPrecision
from .additive_gp import AdditiveGP
from .losses import features_of


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


@keras.saving.register_keras_serializable(package="gpflow_gam")
class NaturalGradientModel(keras.Model):
    """
    A :class:`keras.Model` whose ``fit`` moves q(U) of its heads by natural gradients.

    Heads with ``variational="sites"`` take a step of their :attr:`AdditiveGP.rho` towards the
    optimum for each batch (Khan & Lin 2017; see :class:`~gpflow_gam.optimizers.NaturalGradient`);
    the compiled optimiser moves everything else: network, kernels, likelihood. Both see the same
    forward pass. Used as :class:`keras.Model` is: with inputs and outputs, or subclassed.

    A head that is held fixed (``trainable = False``, or ``"variational"`` in its ``frozen``) keeps
    its q. One device only, and no sample weights.
    """

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if sample_weight is not None:
            raise ValueError(
                "NaturalGradientModel takes no sample_weight; fit a keras.Model with them."
            )
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "NaturalGradientModel trains on one device; under a distribution strategy use a "
                "keras.Model with variational='block'."
            )
        heads = [
            layer
            for layer in self._flatten_layers()
            if isinstance(layer, AdditiveGP)
            and isinstance(layer.model.variational, OptimalPrecision)
        ]
        if not heads:
            raise ValueError(
                "NaturalGradientModel found no AdditiveGP with variational='sites' to move; make "
                "one, or fit a keras.Model."
            )
        if not any(head.has_moving_sites for head in heads):
            return super().train_step(data)  # type: ignore[no-any-return]
        targets = keras.tree.flatten(y)
        if len(heads) > 1 or len(targets) > 1:
            raise ValueError(
                f"NaturalGradientModel takes one head and one target; got {len(heads)} and "
                f"{len(targets)}."
            )
        head = heads[0]
        with tf.GradientTape() as tape, head.stepping():
            y_pred = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=y_pred, training=True)
            scaled = self.optimizer.scale_loss(loss)
        outputs = [features_of(output, head) for output in keras.tree.flatten(y_pred)]
        features = [f for f in outputs if f is not None]
        if len(features) != 1:
            raise ValueError(
                f"{self.name} must return what {head.name} returns, once, for natural gradients to "
                f"know what it is called with; {len(features)} of its {len(outputs)} outputs are."
            )
        weights = self.trainable_weights
        gradients = tape.gradient(scaled, weights)
        head.natural_gradient_step(features[0], targets[0])
        self.optimizer.apply_gradients(zip(gradients, weights))
        self._loss_tracker.update_state(loss, sample_weight=tf.shape(targets[0])[0])
        results: dict[str, Any] = self.compute_metrics(x, y, y_pred)
        return results


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
    training goes on from it, by natural gradients where the head has ``variational="sites"``. The
    network is not asked, so that this costs a fraction of its training.

    :param head: to train, in no compiled model yet or in one that is compiled again.
    :param features: of all training rows, [N, F], such as a network's ``predict``.
    :param y: responses [N] or [N, K].
    :param epochs: passes over the rows.
    :param batch_size: rows a step.
    :param learning_rate: Adam's, of all that natural gradients do not move.
    :param sample_weight: how often each row counts, [N]; once by default. Not by natural
        gradients.
    :param options: of ``keras.Model.fit``: ``callbacks``, ``validation_data``, ``verbose``, ...
    :return: Keras's record of losses.
    :raises ValueError: the head is held fixed; its ``num_data`` is not N; another number of
        weights, or weights for natural gradients; bad features or responses, see
        :meth:`AdditiveGP.adapt`.
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
    head.adapt(features, y)
    inputs = keras.Input(features.shape[1:], dtype=head.compute_dtype)
    kind = NaturalGradientModel if head.has_moving_sites else keras.Model
    model = kind(inputs, head(inputs))
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
