"""Log-likelihoods over a dispersion: what is known of a response is its mean and its variance."""

from __future__ import annotations

from typing import NoReturn

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.quadrature import GaussianQuadrature, NDiagGHQuadrature
from gpflow.utilities import positive


class Quasi(Likelihood):
    """
    ``log p(y | f) / dispersion``: the quasi-likelihood of a variance ``dispersion V(mu)``.

    V is that of ``base`` (Wedderburn 1974). No distribution of y has it as its logarithm, so there
    are no densities; and how it depends on the dispersion says nothing of that, which is fixed
    here.

    :param base: a likelihood of one observation.
    :param dispersion: positive, not trainable.
    """

    def __init__(self, base: Likelihood, dispersion: float = 1.0) -> None:
        super().__init__(None, base.latent_dim, base.observation_dim)
        self.base = base
        transform = positive(lower=0.0, base="exp")
        self.dispersion = Parameter(dispersion, transform=transform, trainable=False)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base.log_prob(X, F, Y) / self.dispersion

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.base.variational_expectations(X, Fmu, Fvar, Y) / self.dispersion

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.dispersion * self.base.conditional_variance(X, F)

    @inherit_check_shapes
    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean, variance = self.base.predict_mean_and_var(X, Fmu, Fvar)
        rule: GaussianQuadrature = NDiagGHQuadrature(int(self.latent_dim or 1), 20)
        own = rule(lambda F: self.base.conditional_variance(X, F), Fmu, Fvar)
        return mean, variance + (self.dispersion - 1.0) * own

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> NoReturn:
        raise ValueError(
            "a quasi-likelihood (how a variance goes with a mean, or the loss of a quantile) is no "
            "distribution: there are no densities, and so no loo(), log_density(), AIC or "
            "compare(); take a family that is one, such as 'negative_binomial' for counts."
        )
