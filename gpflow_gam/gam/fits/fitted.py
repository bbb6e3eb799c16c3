"""A fitted GAM: the model, its posterior and what is needed to talk about them by name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...likelihoods import checked_observations, constant_predictor, unwrapped
from ...optimizers import FitResult
from ...posteriors import ActionPosterior, SparseAdditivePosterior
from ..components import Component
from ..frames import Key, Table, filled
from .build import Model
from .specification import Specification

BLOCK = 10_000
"""Rows predicted at a time."""


@dataclasses.dataclass(frozen=True, eq=False)
class FittedGAM:
    """
    The outcome of a fit, for effects, summaries and plots to read.

    :param spec: what was fitted.
    :param model: the GPflow model, trained.
    :param X: the data as encoded, [N, D].
    :param Y: the response as encoded, [N, K].
    :param result: how the optimisation ended.
    :param dropped: rows left out for missing values.
    """

    spec: Specification
    model: Model
    X: AnyNDArray
    Y: AnyNDArray
    result: FitResult
    dropped: int = 0

    @functools.cached_property
    def posterior(self) -> SparseAdditivePosterior | ActionPosterior:
        """The posterior over the components, cached at the fitted parameters."""
        return self.model.posterior()

    @property
    def weights(self) -> AnyNDArray:
        """Prior weights [N]; ones without."""
        if self.spec.weights is None:
            return np.ones(len(self.X))
        weights: AnyNDArray = self.X[:, self.spec.place(self.spec.weights)]
        return weights

    @property
    def likelihood(self) -> Likelihood:
        """The fitted likelihood, without weights."""
        return unwrapped(self.model.likelihood)

    @property
    def num_predictors(self) -> int:
        """L."""
        return len(self.spec.constant)

    def encode(self, data: Any, names: set[str] | None = None, offset: bool = True) -> AnyNDArray:
        """
        New rows as X [N, D].

        :param names: the components wanted; all by default. Columns of others need not be there.
        :param offset: whether offsets are needed.
        :raises ValueError: naming the column and what is wrong with it.
        """
        spec = self.spec
        wanted = spec.names if names is None else tuple(names)
        keys: set[Key] = set()
        every = list(spec.encoder.columns)
        for name in wanted:
            keys |= {every[i] for i in spec.component(name).columns}
        if offset:
            keys |= {(c, "number") for c in spec.offset}
        table = filled(Table(data), spec.fills)
        holes = {
            name: int(table.missing(name).sum()) for name, _ in keys if table.missing(name).any()
        }
        if holes:
            raise ValueError(
                "new data has missing values: "
                + ", ".join(f"{count} in {name!r}" for name, count in holes.items())
                + "; fill them in or leave those rows out."
            )
        return spec.encoder.encode(table, keys)

    def blocks(self, X: AnyNDArray) -> Iterator[AnyNDArray]:
        """X in blocks of rows; one empty block where there are none."""
        for start in range(0, max(len(X), 1), BLOCK):
            yield X[start : start + BLOCK]

    def predict_link(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance of the predictors, [N, L] each."""
        return self._in_blocks(X, self.posterior.predict_f)

    def predict_components(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance of the components, [N, C, L] each."""
        mean, var = self._in_blocks(X, self.posterior.predict_components)
        if self.num_predictors == 1:
            return mean[..., None], var[..., None]
        return mean, var

    def sample_component(
        self, component: Component, X: AnyNDArray, num_samples: int, seed: int
    ) -> AnyNDArray:
        """Joint draws of one component at few points, [S, N, L]."""
        index = self.spec.names.index(component.name)
        draws = self.posterior.sample_components(tf.constant(X), num_samples, seed=seed)
        one: AnyNDArray = draws.numpy()[:, :, index]
        return one if self.num_predictors > 1 else one[..., None]

    def _in_blocks(
        self, X: AnyNDArray, predict: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        parts = [predict(tf.constant(block)) for block in self.blocks(X)]
        mean, var = (np.concatenate([np.asarray(p) for p in part]) for part in zip(*parts))
        return mean, np.maximum(var, 0.0)  # rounding

    def deviance(self) -> tuple[float, float] | None:
        """
        The deviance at the posterior mean and the null model's; None where the family has none.
        """
        family, likelihood = self.spec.family, self.model.likelihood
        F, _ = self.predict_link(self.X)
        offset = self.model.mean_function(self.X) - np.array(self.spec.constant)
        null = constant_predictor(
            likelihood,
            self.X,
            checked_observations(self.Y, likelihood),
            offset,
            self.num_predictors,
        )
        own = family.deviance(likelihood, self.Y, F)
        least = family.deviance(likelihood, self.Y, np.asarray(offset + null))
        if own is None or least is None:
            return None
        w = self.weights
        return float(np.sum(w * own)), float(np.sum(w * least))
