"""Parts that likelihoods share: quadrature, weights, and dispersions that may have predictors."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, Parameter, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood, ScalarLikelihood
from gpflow.quadrature import GaussianQuadrature, NDiagGHQuadrature
from gpflow.utilities import positive
from numpy.polynomial.hermite import hermgauss

NODES = 12
"""Number of quadrature nodes for each of two predictors."""


class GaussHermite(NDiagGHQuadrature):
    """GPflow's rule in one dimension, made without TensorFlow, whose first use is slow."""

    def __init__(self, number: int = 20) -> None:
        points, weights = hermgauss(number)  # type: ignore[no-untyped-call]
        self.dim, self.n_gh, self.n_gh_total = 1, number, number
        self.Z = (np.sqrt(2.0) * points[:, None]).astype(default_float())
        self.dZ = (weights[:, None] / np.sqrt(np.pi)).astype(default_float())


class GaussHermitePlane(NDiagGHQuadrature):
    """The rule in two dimensions, with its own number of points in each."""

    def __init__(self, first: int, second: int) -> None:
        lines = GaussHermite(first), GaussHermite(second)
        self.dim, self.n_gh, self.n_gh_total = 2, first, first * second
        self.Z = np.concatenate(
            [np.repeat(lines[0].Z, second, axis=0), np.tile(lines[1].Z, (first, 1))], axis=1
        )
        self.dZ = np.outer(lines[0].dZ, lines[1].dZ).reshape(-1, 1)


def fixed_unit(unit: TensorType) -> Parameter:
    """A positive number that is saved with a model and never trained."""
    return Parameter(unit, transform=positive(lower=0.0, base="exp"), trainable=False)


class Dispersed(ScalarLikelihood, abc.ABC):
    """``y ~ p(y | f, g)``: f sets the mean, by a link, and g is the logarithm of a dispersion."""

    # g is a parameter, or a second predictor if varying (Rigby & Stasinopoulos 2005).

    mean_of_first: ClassVar[bool] = True
    """True if the mean of the response is a monotone function of the first predictor alone."""
    scale_nodes: ClassVar[int] = 20
    """Nodes of quadrature over g, where the expectation over f is in closed form."""

    def __init__(self, varying: bool = False, **kwargs: Any) -> None:
        if varying:
            kwargs.setdefault("quadrature", NDiagGHQuadrature(2, NODES))
        super().__init__(**kwargs)
        self.varying = varying
        if varying:
            self.latent_dim, self.observation_dim = 2, 1
            self._scale_rule = GaussHermite(self.scale_nodes)

    def _log_dispersion(self) -> tf.Tensor:
        """The parameter, as a second predictor would have it."""
        raise NotImplementedError

    def split(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """f [..., P] and g, which broadcasts, at predictors ``F``."""
        F = tf.convert_to_tensor(F)
        return (F[..., :1], F[..., 1:]) if self.varying else (F, self._log_dispersion())

    @abc.abstractmethod
    def _log_density(self, f: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Log p(y | f, g)."""

    @abc.abstractmethod
    def _moments(self, f: tf.Tensor, g: tf.Tensor) -> MeanAndVariance:
        """Mean and variance of y."""

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._log_density(*self.split(F), Y)

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(*self.split(F))[0]

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self._moments(*self.split(F))[1]

    def _over_dispersion(
        self, function: Callable[..., tf.Tensor], Fmu: TensorType, Fvar: TensorType
    ) -> tf.Tensor:
        """E[function(mean of f, variance of f, g)] over g: a function that has averaged over f."""
        if not self.varying:
            return function(Fmu, Fvar, self.split(Fmu)[1])
        f, var = Fmu[..., :1], Fvar[..., :1]
        return self._scale_rule(lambda g: function(f, var, g), Fmu[..., 1:], Fvar[..., 1:])


class LocationScale(Dispersed):
    """A location ``u f`` and a scale ``u exp(g)``, u the fixed ``unit`` of a varying scale."""

    # One prior serves both predictors, so f is measured in a unit in which it is about as large as
    # g.

    def __init__(
        self,
        scale: TensorType = 1.0,
        unit: TensorType = 1.0,
        floor: float = 0.0,
        varying: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(varying, **kwargs)
        if varying:
            self.unit = fixed_unit(unit)
        else:  # moved by factors, whatever the response's unit
            self.scale = Parameter(scale, transform=positive(lower=floor, base="exp"))

    def split(self, F: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Location and scale at predictors ``F``, in the response's unit."""
        F = tf.convert_to_tensor(F)
        if not self.varying:
            return F, tf.convert_to_tensor(self.scale)
        unit = tf.convert_to_tensor(self.unit)
        return unit * F[..., :1], unit * tf.exp(F[..., 1:])

    def _over_scale(
        self, function: Callable[..., tf.Tensor], Fmu: TensorType, Fvar: TensorType
    ) -> tf.Tensor:
        """E[function(mean of location, its variance, scale)] over the scale."""
        if not self.varying:
            return function(Fmu, Fvar, tf.convert_to_tensor(self.scale))
        unit = tf.convert_to_tensor(self.unit)

        def in_unit(f: tf.Tensor, var: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            return function(unit * f, tf.square(unit) * var, unit * tf.exp(g))

        return self._over_dispersion(in_unit, Fmu, Fvar)


class _Wrapper(Likelihood):
    """A likelihood of the means and variances of another one."""

    def __init__(self, base: Likelihood) -> None:
        super().__init__(None, base.latent_dim, base.observation_dim)
        self.base = base

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_mean(X, F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.base.conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return self.base.predict_mean_and_var(X, Fmu, Fvar)


class Weighted(_Wrapper):
    """``base`` whose log-densities are multiplied by a column of X: how often each row counts."""

    def __init__(self, base: Likelihood, column: int) -> None:
        super().__init__(base)
        self.column = column

    def weights(self, X: TensorType) -> tf.Tensor:
        """The weights [...] of inputs X [..., D]."""
        X = tf.convert_to_tensor(X)
        if X.shape[-1] is not None and X.shape[-1] <= self.column:
            raise ValueError(
                f"X has {X.shape[-1]} columns, but the weights are in column {self.column}."
            )
        return X[..., self.column]

    def _times(self, method: Any, X: TensorType, predictor: Any, Y: TensorType) -> tf.Tensor:
        w = self.weights(X)
        # a row that does not count is moved to 0: 0 times an overflow, or its gradient, is NaN
        counts = tf.not_equal(w, 0.0)
        safe = [tf.where(counts[..., None], p, tf.zeros_like(p)) for p in predictor]
        if len(safe) == 2:
            safe[1] = tf.where(counts[..., None], predictor[1], tf.ones_like(predictor[1]))
        return w * method(X, *safe, Y)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self._times(self.base.log_prob, X, [F], Y)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._times(self.base.variational_expectations, X, [Fmu, Fvar], Y)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._times(self.base.predict_log_density, X, [Fmu, Fvar], Y)


class Quasi(_Wrapper):
    """``log p(y | f) / dispersion`` of ``base``: no density (Wedderburn 1974)."""

    def __init__(self, base: Likelihood, dispersion: float = 1.0) -> None:
        super().__init__(base)
        self.dispersion = fixed_unit(dispersion)

    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.base.log_prob(X, F, Y) / self.dispersion

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self.base.variational_expectations(X, Fmu, Fvar, Y) / self.dispersion

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.dispersion * self.base.conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        mean, variance = self.base.predict_mean_and_var(X, Fmu, Fvar)
        rule: GaussianQuadrature = NDiagGHQuadrature(int(self.latent_dim or 1), 20)
        within = rule(lambda F: self.base.conditional_variance(X, F), Fmu, Fvar)
        return mean, variance + (self.dispersion - 1.0) * within

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> NoReturn:
        raise ValueError(
            "a quasi-likelihood (how a variance goes with a mean, or the loss of a quantile) is no "
            "distribution: there are no densities, and so no loo(), log_density(), AIC or "
            "compare(); take a family that is one, such as 'negative_binomial' for counts."
        )


def unwrapped(likelihood: Likelihood) -> Likelihood:
    """The likelihood of one observation: ``likelihood`` without its weights."""
    return likelihood.base if isinstance(likelihood, Weighted) else likelihood


def is_scalar(likelihood: Likelihood) -> bool:
    """True if each predictor has its own column of Y."""
    likelihood = unwrapped(likelihood)
    return isinstance(likelihood, ScalarLikelihood) and likelihood.latent_dim is None
