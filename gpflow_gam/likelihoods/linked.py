"""Likelihoods that have one link of their own, with another."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import QuadratureLikelihood, ScalarLikelihood
from gpflow.quadrature import NDiagGHQuadrature

from .heteroskedastic import Heteroskedastic
from .location_scale import LocationScale
from .mean_link import LEAST_FIRST, OF_MEAN, REACH, MeanLink
from .quadrature import GaussHermite
from .tweedie import Tweedie
from .two_predictors import NODES
from .unit import fixed_unit

_SURE = 1e-3
"""The deviation of predictors where a fit starts, against that of the mean, under "inverse"."""


class Linked(MeanLink, ScalarLikelihood):
    """
    ``base`` with the mean ``mu = g^-1(f)`` (McCullagh & Nelder 1989, section 2.2.4).

    The mean is positive at every predictor, see :class:`~gpflow_gam.likelihoods.MeanLink`.

    :param base: a scalar likelihood whose predictor is its mean (GPflow's Gaussian and StudentT),
        or the logarithm of that.
    :param link: "log", "identity", "inverse" or "sqrt".
    :param mean: of all responses, positive.
    :raises ValueError: another link, or a mean that no positive response has.
    """

    def __init__(self, base: ScalarLikelihood, link: str, mean: float = 1.0, **kwargs: Any) -> None:
        kwargs.setdefault("quadrature", GaussHermite())
        super().__init__(**kwargs)
        self._put(base, link, mean)

    def first_predictors(
        self, Y: AnyNDArray, constant: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        found, var = super().first_predictors(Y, constant)
        if self.link == "inverse" and isinstance(self.base, OF_MEAN):
            # several optima: which one is found, noise decides where predictors are less sure
            mean = 1.0 / (REACH * float(self.unit.numpy()))
            found = 1.0 / np.maximum(Y, LEAST_FIRST * mean)
            var = np.full_like(found, (_SURE / mean) ** 2)
        return found, var

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base._scalar_log_prob(X, self._own(F), Y)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        base = self.base
        if not isinstance(base, Tweedie):
            return super()._variational_expectations(X, Fmu, Fvar, Y)
        # whose series, most of the work, does not depend on the mean
        whole, exponent = base.parts(Y)
        mean = self.quadrature(lambda F: exponent(self.log_mean(F)), Fmu, Fvar)
        return tf.reduce_sum(whole + mean, axis=-1)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, self._own(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, self._own(F))


class LinkedLocationScale(MeanLink, QuadratureLikelihood):
    """
    ``base``, of two predictors, with the mean ``mu = g^-1(s f)``; its scale stays as it is.

    The mean is positive at every predictor, see :class:`~gpflow_gam.likelihoods.MeanLink`.
    Expectations are by quadrature over both predictors.

    :param base: a likelihood of a mean, or its logarithm, and the logarithm of a scale.
    :param link: "log", "identity", "inverse" or "sqrt".
    :param mean: of all responses, positive.
    :param size: s, fixed: one prior serves both predictors, so f is measured in a unit in which it
        is about as large as the logarithm of the scale.
    :raises ValueError: another link, or a mean that no positive response has.
    """

    mean_of_first: ClassVar[bool] = True
    """The mean of the response is a monotone function of the first predictor alone."""

    def __init__(
        self,
        base: LocationScale | Heteroskedastic,
        link: str,
        mean: float = 1.0,
        size: TensorType = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("quadrature", NDiagGHQuadrature(2, NODES))
        super().__init__(input_dim=None, latent_dim=2, observation_dim=1, **kwargs)
        self._put(base, link, mean)
        self.size = fixed_unit(size)

    @property
    def _quadrature_dim(self) -> int:
        return 2

    def log_mean(self, F: TensorType) -> tf.Tensor:
        F = tf.convert_to_tensor(F)
        return super().log_mean(tf.cast(self.size, F.dtype) * F)

    @property
    def measure(self) -> float:
        return float(self.size.numpy())

    def _both(self, F: TensorType) -> tf.Tensor:
        """What ``base`` calls its predictors."""
        return tf.concat([self._own(F[..., :1]), F[..., 1:]], axis=-1)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base._log_prob(X, self._both(F), Y)

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_mean(X, self._both(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base._conditional_variance(X, self._both(F))
