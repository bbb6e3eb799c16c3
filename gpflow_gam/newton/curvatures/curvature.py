"""A log-likelihood expanded to second order at a point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from .precisions import Precision

_TOLERANCE = 1e-6
"""
How negative a curvature may be, against the largest and the squared gradients, which are in the
same unit, and still be rounding.
"""


@dataclass(frozen=True)
class Curvature:
    """``log p(y_n | f_n)``, its gradient and its negative Hessian."""

    log_prob: tf.Tensor
    """[N]."""

    gradient: tf.Tensor
    """g = d log p / d f, [Q, N]."""

    precision: Precision
    """W = - d^2 log p / d f^2."""

    def cast(self, dtype: tf.DType) -> Curvature:
        """
        The same in another precision.

        :param dtype: floating.
        """
        if self.gradient.dtype == dtype:
            return self
        log_prob, gradient, W = (
            tf.cast(t, dtype) for t in (self.log_prob, self.gradient, self.precision.tensor)
        )
        return Curvature(log_prob, gradient, type(self.precision)(W))


def checked_curvature(found: Curvature, likelihood: Likelihood) -> Curvature:
    """
    ``found``, once it is known to be finite and concave.

    :param found: of a likelihood at some f.
    :param likelihood: named in messages.
    :raises ValueError: a value that is not finite, or a point where log p is not concave in f.
    """
    name = type(likelihood).__name__
    smallest = found.precision.smallest().numpy()
    finite = np.isfinite(found.log_prob.numpy()) & np.isfinite(smallest)
    finite &= np.all(np.isfinite(found.gradient.numpy()), axis=0)
    if not np.all(finite):
        row = int(np.argmin(finite))
        raise ValueError(
            f"likelihood {name} has no finite value, gradient and curvature at row {row} of the "
            "data, where the fit has come; check Y there, and the scale of the mean function."
        )
    sizes = found.precision.tensor, tf.square(found.gradient)
    scale = max(float(np.max(np.abs(size), initial=0.0)) for size in sizes)
    if np.min(smallest, initial=0.0) < -_TOLERANCE * scale:
        row = int(np.argmin(smallest))
        raise ValueError(
            f"likelihood {name} is not log-concave where the fit has come: at row {row} the second "
            f"derivative of log p(y | f) is {-smallest[row]:.3g}. Newton's method needs one that "
            "is log-concave; use a variational model (AdditiveSVGP) for this one."
        )
    return found
