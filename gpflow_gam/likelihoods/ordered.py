"""Ordered classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import QuadratureLikelihood, ScalarLikelihood
from gpflow.utilities import positive

from .links import SYMMETRIC, log_failure, log_probability, probability

ORDERED_LINKS = ("probit", "logit", "cloglog", "cauchit")
_SMALLEST = 1e-6
_FAR = 80.0
"""Predictor above which ``exp(-exp(x))`` is zero, and below which ``exp(x)`` is not infinite."""


def checked_ordered_link(link: str) -> str:
    """
    The link, once it is known.

    :raises ValueError: none that ordered classes have.
    """
    if link not in ORDERED_LINKS:
        raise ValueError(f"link must be one of {', '.join(ORDERED_LINKS)}; got {link!r}.")
    return link


class Ordered(ScalarLikelihood):
    """
    ``P(y <= k | f) = G(c_k - f)`` for labels 0 to K - 1 (McCullagh 1980).

    G is the inverse of the link: the normal distribution function by default. Under "logit" odds
    are proportional, under "cloglog" hazards. The first cutpoint is 0 and the noise has scale 1,
    because the predictor has an intercept and a scale of its own; the others are trained through
    their distances. Unlike GPflow's ``Ordinal`` log-probabilities keep their digits, and their
    gradients, far from the cutpoints.

    :param num_classes: K, at least 2.
    :param increments: distances [K - 2] of neighbouring cutpoints; 1 each by default.
    :param link: "probit", "logit", "cloglog" or "cauchit".
    :raises ValueError: fewer than two classes, another number of increments, or another link.
    """

    def __init__(
        self,
        num_classes: int,
        increments: TensorType | None = None,
        link: str = "probit",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.link = checked_ordered_link(link)
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2; got {num_classes}.")
        if increments is None:
            increments = np.ones(num_classes - 2)
        if np.shape(increments) != (num_classes - 2,):
            raise ValueError(
                f"increments must be [{num_classes - 2}], two fewer than the classes; got shape "
                f"{np.shape(increments)}."
            )
        self.num_classes = num_classes
        self.increments: Parameter | None = None
        if num_classes > 2:  # optimisers take no empty parameter
            self.increments = Parameter(increments, transform=positive(lower=_SMALLEST))

    @check_shapes("return: [K]")
    def _cutpoints(self, dtype: tf.DType) -> tf.Tensor:
        first = tf.zeros([1], dtype=dtype)
        if self.increments is None:
            return first
        return tf.concat([first, tf.cumsum(tf.convert_to_tensor(self.increments))], axis=0)

    @property
    def cutpoints(self) -> tf.Tensor:
        """c_0 = 0 < c_1 < ..., [K - 1]."""
        dtype = tf.float64 if self.increments is None else self.increments.dtype
        return self._cutpoints(dtype)

    def _log_mass(self, F: tf.Tensor, Y: tf.Tensor, scale: tf.Tensor | float) -> tf.Tensor:
        """Log P(y) where the noise has the given standard deviation; shapes broadcast."""
        label, cut = tf.cast(Y, tf.int32), self._cutpoints(F.dtype)
        # the outer classes have no bound on one side; finite ones keep gradients free of NaN
        bounds = tf.concat([cut[:1] - 1.0, cut, cut[-1:] + 1.0], axis=0)
        lower = (tf.gather(bounds, label) - F) / scale
        upper = (tf.gather(bounds, label + 1) - F) / scale
        inner = self._log_between(lower, upper)
        below, above = log_probability(self.link, upper), log_failure(self.link, lower)
        outer = tf.where(tf.equal(label, 0), below, above)
        is_outer = tf.equal(label, 0) | tf.equal(label, self.num_classes - 1)
        return tf.where(is_outer, outer, inner)

    def _log_between(self, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
        """Log of G(upper) - G(lower)."""
        if self.link not in SYMMETRIC:  # of cloglog the upper tail is exp(-exp(x))
            most = tf.constant(_FAR, lower.dtype)
            high, low = (log_failure(self.link, tf.minimum(x, most)) for x in (lower, upper))
        else:  # differences of G keep their digits in the lower tail only
            flip = lower > 0.0
            low, high = tf.where(flip, -upper, lower), tf.where(flip, -lower, upper)
            low, high = log_probability(self.link, low), log_probability(self.link, high)
        return high + tf.math.log(-tf.math.expm1(low - high))

    def _probabilities(self, F: tf.Tensor, scale: tf.Tensor | float) -> tf.Tensor:
        labels = tf.range(self.num_classes)
        wide = scale if isinstance(scale, float) else scale[..., None]
        return tf.exp(self._log_mass(F[..., None], labels, wide))

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_mass(tf.convert_to_tensor(F), Y, 1.0)

    def _moments(self, F: TensorType, scale: tf.Tensor | float) -> MeanAndVariance:
        F = tf.convert_to_tensor(F)
        p, labels = self._probabilities(F, scale), tf.range(self.num_classes, dtype=F.dtype)
        mean = tf.reduce_sum(p * labels, axis=-1)
        return mean, tf.reduce_sum(p * tf.square(labels - mean[..., None]), axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, 1.0)[0]

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(F, 1.0)[1]

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        if self.link != "probit":
            return QuadratureLikelihood._predict_mean_and_var(self, X, Fmu, Fvar)
        return self._moments(Fmu, tf.sqrt(1.0 + Fvar))

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        if self.link != "probit":
            return QuadratureLikelihood._predict_log_density(self, X, Fmu, Fvar, Y)
        mass = self._log_mass(tf.convert_to_tensor(Fmu), Y, tf.sqrt(1.0 + Fvar))
        return tf.reduce_sum(mass, axis=-1)

    @check_shapes("F: [batch..., L]", "return: [batch..., L, K]")
    def cumulative(self, F: TensorType) -> tf.Tensor:
        """
        P(y <= k | f) for every label, the last 1.

        :param F: predictors, [..., L].
        :return: [..., L, K].
        """
        F = tf.convert_to_tensor(F)[..., None]
        below = probability(self.link, self._cutpoints(F.dtype) - F)
        return tf.concat([below, tf.ones_like(F)], axis=-1)
