"""Any GPflow likelihood as a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Exponential, Likelihood, MultiClass, Poisson, Softmax
from gpflow.utilities import deepcopy
from numpy.random import Generator

from ... import likelihoods
from ...likelihoods import conditional_distribution
from ...likelihoods.base import checked_observations, unwrapped
from . import encoding
from .base import Family, Levels, Pair, Response, first, tensors
from .encoding import Observed

_DISCRETE = (
    gpflow.likelihoods.Bernoulli,
    gpflow.likelihoods.MultiClass,
    gpflow.likelihoods.Ordinal,
    gpflow.likelihoods.Poisson,
    gpflow.likelihoods.Softmax,
    likelihoods.Binomial,
    likelihoods.NegativeBinomial,
    likelihoods.Ordered,
)
_DRAWS, _SEED = 999, (19, 96)
"""Number and seed of the draws from a distribution that has no distribution function."""


@dataclass(frozen=True)
class Custom(Family, listed=False):
    """
    A likelihood of the user's, of a response of one column, which is copied and so never changed.

    Deviances are against the predictor under which each response is most likely, where there is
    one predictor a row. Responses are drawn, and quantile residuals made, of likelihoods that have
    a method ``conditional_distribution(F)``, a distribution of TensorFlow Probability's, and of
    GPflow's Bernoulli, Exponential and Poisson. A file holds the likelihood's class by name and its
    parameters; ``GAM.load(path, likelihood=...)`` gives the likelihood.

    :param base: the likelihood.
    """

    name: ClassVar[str] = "custom"
    base: Likelihood

    def to_json(self) -> dict[str, Any]:
        raise ValueError(
            f"family 'custom' ({type(self.base).__name__}) cannot be saved; take a named family."
        )

    def __repr__(self) -> str:
        return f"Custom({self.class_name})"

    @property
    def class_name(self) -> str:
        """Name of the likelihood's class, with its module."""
        return f"{type(self.base).__module__}.{type(self.base).__qualname__}"

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """As far as GPflow's own likelihoods go."""
        return isinstance(self.base, _DISCRETE)

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        return not isinstance(self.base, (MultiClass, Softmax))

    @property
    def heavy_tailed(self) -> bool:
        return getattr(self.base, "invlink", None) is tf.exp

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        Y = encoding.numbers(y, name, self.name)[:, None]
        checked_observations(tf.constant(Y, dtype=tf.float64), self.base, name)
        return Response(Y, None)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return deepcopy(self.base)

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        number = int(self.base.latent_dim or 1)
        return ("",) if number == 1 else tuple(str(i) for i in range(number))

    def for_parameters(self, names: Sequence[str]) -> tuple[Family, tuple[str, ...]]:
        predictors = self.predictor_names()
        if len(predictors) == 1:
            return super().for_parameters(names)
        for name in map(str, names):
            if name not in predictors:
                raise ValueError(
                    f"terms: {type(self.base).__name__} has no parameter {name!r}; call its "
                    f"predictors {', '.join(map(repr, predictors))}."
                )
        return self, tuple(map(str, names))

    def parameter_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return self.predictor_names()

    def axes(self, response: str) -> tuple[str, ...]:
        names = self.predictor_names()
        # classes have a predictor each; of others nothing is known
        alike = len(names) == 1 or not self.ordered
        return () if alike else tuple(f"predictor {name}" for name in names)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray | None:
        """None with several predictors, or where a response has no likeliest one."""
        return None if self.num_predictors() > 1 else super().deviance(likelihood, Y, F)

    @property
    def overdispersed(self) -> str:  # type: ignore[override]
        if isinstance(self.base, Exponential):
            return "take family='gamma'"
        return "take family='negative_binomial'" if isinstance(self.base, Poisson) else ""

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair | None:
        """Squared Pearson residuals and variances, for GPflow's Exponential and Poisson only."""
        if not isinstance(self.base, (Exponential, Poisson)):
            return None
        base, (X, F) = unwrapped(likelihood), tensors(F)
        mean = first(np.asarray(base.conditional_mean(X, F)))
        variance = first(np.asarray(base.conditional_variance(X, F)))
        kurtosis = 6.0 if isinstance(self.base, Exponential) else 1.0 / np.maximum(mean, 1e-300)
        square = np.square(first(Y) - mean) / np.maximum(variance, 1e-300)
        return square, np.broadcast_to(2.0 + kurtosis, square.shape)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair | None:
        """By the likelihood's distribution, or from draws of that where it has no such function."""
        known = conditional_distribution(unwrapped(likelihood), tensors(F)[1])
        if known is None or not self.ordered:
            return None
        y = tf.constant(np.asarray(Y, dtype=np.float64)[:, :1])
        try:
            at_most = first(np.asarray(known.cdf(y)))
            if not self.discrete:
                return at_most, at_most
            return first(np.asarray(known.cdf(y - 1.0))), at_most
        except NotImplementedError:
            draws = np.asarray(known.sample(_DRAWS, seed=_SEED), dtype=np.float64)
        less, same = (draws < y.numpy()).sum(axis=0), (draws == y.numpy()).sum(axis=0)
        # the response is one more draw, at an even place among those that it is equal to
        return first(less / (_DRAWS + 1.0)), first((less + same + 1.0) / (_DRAWS + 1.0))

    def _draw(self, likelihood: Likelihood, F: AnyNDArray, rng: Generator) -> AnyNDArray:
        known = conditional_distribution(unwrapped(likelihood), tensors(F)[1])
        if known is None:
            raise ValueError(
                f"family 'custom' ({type(self.base).__name__}) has no sampler: give the likelihood "
                "a method conditional_distribution(F), of predictors [..., L], that returns a "
                "distribution of tensorflow_probability, or take a named family."
            )
        seed = rng.integers(2**31, size=2)
        return first(np.asarray(known.sample(seed=tf.constant(seed, tf.int32))))
