"""A fitted GAM: the model, its posterior and what is needed to talk about them by name."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType

from ...held import held
from ...kernels import AdditiveKernel
from ...kernels.functional import parameters_of, with_values
from ...likelihoods import checked_observations, constant_predictor, unwrapped
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import FitResult, Solution, present_solution, whitened_of
from ...posteriors import (
    ActionPosterior,
    InducingMoments,
    ShapedMoments,
    ShapedPosterior,
    SparseAdditivePosterior,
)
from ...statistics import ColumnBins, GaussianPosterior
from ...statistics.parallel import each
from ..components import Component, shaped_term
from ..frames import Key, Table, filled
from .build import Model
from .deviance import Discrepancies, Pearson, discrepancies, discrepancies_of_rows, pearson
from .rows import make_rows
from .specification import Specification
from .sums import Parts, solution_from_parts
from .whole import Whole

BLOCK = 10_000
"""Rows predicted at a time."""
_CACHED = 5000
"""Rows whose features a thread holds: they stay in its core's cache."""


def _snapshot(model: Model) -> Model:
    """A model of the same kernel and q, with all other parts of its own."""
    if isinstance(model, IterNCGP):  # whose posterior keeps what it is of
        return model
    own = copy.copy(model)
    own.likelihood, own.mean_function = held(model.likelihood), held(model.mean_function)
    own.inducing_variable = held(model.inducing_variable)
    return own


@dataclasses.dataclass(frozen=True, eq=False)
class FittedGAM:
    """
    The outcome of a fit, for effects, summaries and plots to read.

    :param spec: what was fitted.
    :param model: the GPflow model, trained. The fit keeps its kernel's values (:attr:`solution`),
        and copies of its other parts: who changes or replaces parts of the model
        later changes no prediction.
    :param X: the data as encoded, [N, D]; an even sample of the rows, [n, D], where there are
        more than are kept.
    :param Y: the response as encoded, [N, K] or [n, K].
    :param result: how the optimisation ended.
    :param dropped: rows left out for missing values.
    :param whole: all rows, where X and Y are a sample of them.
    :param stored: the solution as a file holds it.
    """

    spec: Specification
    model: Model
    X: AnyNDArray
    Y: AnyNDArray
    result: FitResult
    dropped: int = 0
    _solution: Solution | None = None
    whole: Whole | None = None
    stored: Parts | None = None

    trained: Model = dataclasses.field(init=False)
    """The model that was given, which is the user's to change."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "trained", self.model)
        object.__setattr__(self, "model", _snapshot(self.model))

    @property
    def number(self) -> int:
        """N, all rows of the fit."""
        return len(self.X) if self.whole is None else self.whole.number

    @property
    def has_data(self) -> bool:
        """Whether X and Y are there, as they are not after ``save(data=False)``."""
        return True

    @functools.cached_property
    def solution(self) -> Solution | None:
        """
        What the fit came to as sums over rows; None for engines and families of q that have none.

        Made of what a file holds, or from the model's parameters where the fit did not leave it.
        """
        if self._solution is not None:
            return self._solution
        if self.spec.variational not in ("exact", "sites"):
            return None
        model = self.model
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        if self.whole is not None:
            rows = self.whole.rows(self.spec, model.kernel, self.X)
        else:
            mean = np.asarray(model.mean_function(self.X))
            bins = ColumnBins(self.X, levels=self.spec.encoder.places("level"))
            rows = make_rows(
                self.spec.components, model.kernel, bins, self.Y, mean, fine=self.spec.fine
            )
        if self.stored is not None:
            return solution_from_parts(self.stored, model, rows)
        return present_solution(model, rows, self.spec.variational == "exact")

    @functools.cached_property
    def free_moments(self) -> InducingMoments | None:
        """
        Moments of the inducing values before shapes; None without :attr:`solution`.

        Without a term that has a shape they are those of the posterior.
        """
        solution = self.solution
        if solution is None:
            return None
        q, model = solution.q, self.model
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        return InducingMoments(
            model.kernel,
            model.inducing_variable,
            q.mean,
            q.covariance,
            values=solution.values,
            roots=q.roots,
        )

    @functools.cached_property
    def shaped(self) -> ShapedMoments | None:
        """Moments of the inducing values with the shapes of terms; None where none has one."""
        if not shaped_term(self.spec.components):
            return None
        assert self.free_moments is not None  # who asks for shapes has a solution
        return ShapedMoments(self.free_moments)

    @functools.cached_property
    def q(self) -> GaussianPosterior:
        """
        The posterior over whitened inducing values, in which terms have their shapes.

        The solution's own is that of functions of any shape.
        """
        assert self.solution is not None
        if self.shaped is None:
            return self.solution.q
        mean, sizes = self.shaped.mean, self.shaped.inducing_variable.sizes
        # the prior's, where a component does not enter
        enters = np.repeat(self.shaped.entering(), sizes, axis=0)
        covariance = self.shaped.covariance + np.stack([np.diag(1.0 - e) for e in enters.T])
        inverse = np.linalg.inv(covariance)
        return GaussianPosterior(
            mean,
            covariance,
            np.linalg.slogdet(covariance)[1],
            inverse - np.eye(len(mean)),
            np.einsum("lpq,ql->pl", inverse, mean),
            self.solution.q.roots,
        )

    @functools.cached_property
    def posterior(self) -> SparseAdditivePosterior | ActionPosterior:
        """
        The posterior over the components, cached at the fitted parameters.

        They are values of its own: who changes the model later, before or after the first
        prediction, changes neither predictions nor effects.
        """
        model, solution = self.model, self.solution
        if solution is None:
            return model.posterior()
        own = model.kernel
        values = [tf.constant(solution.values(p)) for p in parameters_of(own)]
        kernel = with_values(own, values)
        assert isinstance(kernel, AdditiveKernel)
        given = (
            kernel,
            model.inducing_variable,
            whitened_of(self.q, model.blocks),
            model.num_latent_gps,
            model.mean_function,
        )
        cached = PrecomputeCacheType.TENSOR
        if self.shaped is None:
            return SparseAdditivePosterior(*given, precompute_cache=cached)
        return ShapedPosterior(*given, moments=self.shaped, precompute_cache=cached)

    def value(self, parameter: Parameter) -> AnyNDArray:
        """
        The fitted value of a parameter of the kernel.

        :param parameter: of the model's kernel.
        :return: of the parameter's shape.
        """
        if self.solution is not None:
            return self.solution.values(parameter)
        return np.asarray(parameter)

    def marginal(self, column: int) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Values of a column of X, or what stands for them, and the weight of rows at each.

        :param column: its place in X.
        """
        if self.whole is None:
            return self.X[:, column], self.weights
        return self.whole.marginals[column]

    def mean_offset(self) -> AnyNDArray:
        """The known part of the predictor, [L], offsets at their mean."""
        if self.whole is None:
            mean = np.asarray(self.model.mean_function(self.X))
            return np.asarray(np.average(mean, axis=0, weights=self.weights))
        known = self.whole.mean(self.spec)
        total = np.sum([w @ known[at] for at, w in self.whole.weights()], axis=0)
        return np.asarray(total / sum(float(w.sum()) for _, w in self.whole.weights()))

    @property
    def weights(self) -> AnyNDArray:
        """
        Prior weights of the rows of X; ones without.

        :return: [N].
        """
        if self.spec.weights is None:
            return np.ones(len(self.X))
        weights: AnyNDArray = self.X[:, self.spec.place(self.spec.weights)]
        return weights

    @property
    def likelihood(self) -> Likelihood:
        """The fitted likelihood, without weights."""
        return unwrapped(self.model.likelihood)

    @functools.cached_property
    def units(self) -> tuple[AnyNDArray, AnyNDArray]:
        """Factors and shifts, [L] or [1]: the model's predictors in the response's unit."""
        return self.spec.family.units(self.model.likelihood)

    def constant_of(self, component: Component) -> AnyNDArray:
        """
        What is to be added to a component of the predictor's constant, in the response's unit, [L].

        Zero but for the intercept, and for the means of levels that are there in its place.

        :param component: of this fit.
        """
        factor, shift = self.units
        constant = shift + factor * np.array(self.spec.constant)
        own = self.spec.has_constant([component.name])
        return np.asarray(np.where(own, constant, 0.0))

    @property
    def num_predictors(self) -> int:
        """L."""
        return len(self.spec.constant)

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
        read = list(dict.fromkeys(name for name, kind in every if (name, kind) in keys))
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

    @property
    def own_moments(self) -> InducingMoments | None:
        """Those of the components, where the fit knows them without being asked for q."""
        return self.free_moments if self.shaped is None else self.shaped

    def predict_sum(self, X: AnyNDArray, names: Collection[str]) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean and variance of the sum of some components, [N, L] each; m(x) is left out.

        :param X: encoded rows, [N, D].
        :param names: of the components.
        """
        chosen = np.flatnonzero([name in names for name in self.spec.names])
        posterior, parts = self.posterior, []
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
        return mean, np.maximum(var, 0.0)  # rounding

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
