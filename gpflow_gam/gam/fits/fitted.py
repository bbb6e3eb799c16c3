"""A fitted GAM: what it says of rows by their columns' names, and of its own rows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...likelihoods import checked_observations, constant_predictor
from ...models import IterNCGP
from ...posteriors import ActionPosterior
from ...threads import each
from ..frames import Key, Table, filled
from ..terms import variables_of
from .deviance import (
    Discrepancies,
    Pearson,
    discrepancies,
    discrepancies_of_rows,
    null_constant,
    pearson,
)
from .outcome import Outcome

BLOCK = 10_000
"""Rows predicted at a time."""
_CACHED = 5000
"""Rows whose features a thread holds: they stay in its core's cache."""


@dataclasses.dataclass(frozen=True, eq=False)
class FittedGAM(Outcome):
    """
    The outcome of a fit, for effects, summaries and plots to read.

    Its arguments are those of :class:`Outcome`.
    """

    def encode(
        self, data: Any, names: Collection[str] | None = None, offset: bool = True
    ) -> AnyNDArray:
        """
        New rows as X [N, D].

        :param data: a table of any kind that fits take.
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
        if spec.design is not None and {name for name, _ in keys} & set(spec.design.made):
            table = spec.design.extended(table)
        read = variables_of(name for name, kind in every if (name, kind) in keys)
        holes = {name: int(table.missing(name).sum()) for name in read if table.missing(name).any()}
        if holes:
            raise ValueError(
                "new data has missing values: "
                + ", ".join(f"{count} in {name!r}" for name, count in holes.items())
                + "; fill them in or leave those rows out."
            )
        return spec.encoder.encode(table, keys)

    def blocks(self, X: AnyNDArray) -> Iterator[AnyNDArray]:
        """
        X in blocks of rows; one empty block where there are none.

        :param X: [N, D].
        """
        for start in range(0, max(len(X), 1), BLOCK):
            yield X[start : start + BLOCK]

    def predict_link(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean and variance of the predictors, [N, L] each.

        :param X: encoded rows, [N, D].
        """
        return self._in_blocks(X, self.posterior.predict_f)

    def predict_joint(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean [N, L] and variance [N, L] of the predictors, of which a response is predicted; where
        they are correlated a posteriori their covariances [N, L, L].

        :param X: encoded rows, [N, D].
        """
        posterior = self.posterior
        joint = posterior.couples_outputs
        return self._in_blocks(X, lambda x: posterior.predict_f(x, full_output_cov=joint))

    @functools.cached_property
    def predictive_share(self) -> float:
        """Which share of the predictor's variance predictions of classes count; else 1."""
        model = self.model
        return model.predictive_share() if isinstance(model, IterNCGP) else 1.0

    def predict_components(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean and variance of the components, [N, C, L] each.

        :param X: encoded rows, [N, D].
        """
        mean, var = self._in_blocks(X, self.posterior.predict_components)
        if self.num_predictors == 1:
            return mean[..., None], var[..., None]
        return mean, var

    def component_means(self, X: AnyNDArray, names: Sequence[str]) -> AnyNDArray:
        """
        Means of some components alone, [N, C, L], for far less than with their variances.

        :param X: encoded rows, [N, D].
        :param names: the C components wanted, in that order.
        """
        moments = self.own_moments
        if moments is None:
            chosen = [self.spec.names.index(name) for name in names]
            return self.predict_components(X)[0][:, chosen]
        found = np.empty((len(X), len(names), self.num_predictors))

        def evaluate(start: int) -> None:
            rows = slice(start, start + _CACHED)
            for c, name in enumerate(names):
                phi = moments.features(name, X[rows])
                found[rows, c] = phi.T @ moments.mean[moments.block(name)]

        each(evaluate, range(0, len(X), _CACHED))
        return found

    def sum_means(self, X: AnyNDArray, names: Sequence[str]) -> AnyNDArray:
        """
        Means of the sum of some components alone, [N, L]; m(x) is left out.

        :param X: encoded rows, [N, D].
        :param names: of the components.
        """
        parts = [
            self.component_means(X[start : start + BLOCK], names).sum(axis=1)
            for start in range(0, max(len(X), 1), BLOCK)
        ]
        return np.concatenate(parts)

    def predict_sum(self, X: AnyNDArray, names: Collection[str]) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean and variance of the sum of some components, as of :meth:`predict_joint`; m(x) is left
        out.

        :param X: encoded rows, [N, D].
        :param names: of the components.
        """
        chosen = np.flatnonzero([name in names for name in self.spec.names])
        posterior, parts = self.posterior, []
        if posterior.couples_outputs:
            assert isinstance(posterior, ActionPosterior)
            return self._in_blocks(X, lambda x: posterior.predict_sum(x, chosen.tolist()))
        # covariances of all components are held for so many rows
        step = max(1, BLOCK // len(self.spec.names))
        for start in range(0, max(len(X), 1), step):
            block = tf.constant(X[start : start + step])
            mean = np.asarray(posterior.predict_components(block)[0])
            cov = np.asarray(posterior.predict_component_covariance(block))
            var = cov[:, chosen][:, :, chosen].sum(axis=(1, 2))
            parts.append((mean[:, chosen].sum(axis=1), var))
        mean, var = (np.concatenate(part) for part in zip(*parts))
        if self.num_predictors == 1:
            mean, var = mean[:, None], var[:, None]
        return mean, np.maximum(var, 0.0)  # rounding

    def _in_blocks(
        self, X: AnyNDArray, predict: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        parts = [predict(tf.constant(block)) for block in self.blocks(X)]
        mean, var = (np.concatenate([np.asarray(p) for p in part]) for part in zip(*parts))
        return mean, np.maximum(var, 0.0) if var.ndim == mean.ndim else var  # rounding

    def discrepancies(self) -> Discrepancies:
        """
        Deviances and Pearson's statistic: one pass over the rows.

        No cached property, whose lock Python 3.11 shares among all fits: threads that sum over
        each other's rows in it would wait for each other for ever.
        """
        if self.whole is not None and self.solution is not None:
            return discrepancies_of_rows(self.spec, self.model.likelihood, self.solution, self.q)
        likelihood, solution = self.model.likelihood, self.solution
        if solution is None:
            F = self.predict_link(self.X)[0]
        else:
            F = solution.rows.means(solution.values, self.q)
        offset = self.model.mean_function(self.X) - np.array(self.spec.constant)
        Y = checked_observations(self.Y, likelihood)
        family = self.spec.family
        # of a baseline that was learnt the constant is no closed form
        null = None if family.own_constant else family.null(self.Y, offset[:, 0], self.weights)
        if null is None:
            null = constant_predictor(likelihood, self.X, Y, offset, self.num_predictors)
            if solution is not None:
                begin, constant = np.asarray(null)[0], np.array(self.spec.constant)
                null = null_constant(likelihood, solution.rows, constant, begin)
        null = np.asarray(offset + null)
        return discrepancies(self.spec.family, likelihood, self.Y, F, null, self.weights)

    def deviance(self) -> tuple[float, float] | None:
        """
        The deviance at the posterior mean and the null model's; None where the family has none.
        """
        return self.discrepancies().deviance

    def sample_pearson(self, number: int) -> Pearson | None:
        """
        Pearson's statistic of at most so many rows, evenly spread over those of X.

        :param number: of rows, at most.
        """
        at_zero = np.zeros((1, self.num_predictors))
        if self.spec.family.pearson(self.likelihood, self.Y[:1], at_zero) is None:
            return None
        which, F = self.sample_means(number)
        weights = self.weights[which]
        return pearson(self.spec.family, self.model.likelihood, self.Y[which], F, weights)

    def even_rows(self, limit: int) -> AnyNDArray:
        """
        Indices [n] of rows of X, evenly spread over those that count: all of them, or so many.

        :param limit: how many, at most.
        """
        counted = np.flatnonzero(self.weights > 0.0)
        which = np.linspace(0, len(counted) - 1, min(len(counted), limit))
        return np.asarray(counted[np.unique(which.astype(int))])

    def sample_means(self, number: int) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Some rows of X, [n], and the posterior means of their predictors, [n, L].

        :param number: of rows, at most; they are evenly spread.
        """
        which = np.unique(np.linspace(0, len(self.X) - 1, min(number, len(self.X))).astype(int))
        X, solution = self.X[which], self.solution
        if solution is None:
            return which, self.predict_link(X)[0]
        own = which if self.whole is None else self.whole.indices[which]
        return which, solution.rows.subset(own).means(solution.values, self.q)
