"""A bound of layers that keep distances."""

from __future__ import annotations

import keras
import tensorflow as tf

from ..errors import check_positive


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
    :raises ValueError: ``bound`` is not positive and finite.
    """

    def __init__(self, bound: float = 0.95) -> None:
        check_positive("bound", bound)
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
