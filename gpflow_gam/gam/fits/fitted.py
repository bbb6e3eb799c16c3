"""A fitted GAM: the model, its posterior, and what it says of rows by their columns' names."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.posteriors import PrecomputeCacheType
from scipy.special import ndtr

from ...bijectors import frozen_copy
from ...errors import ExtrapolationWarning, HeavyTailWarning, check_count, warn_caller
from ...kernels import AdditiveKernel
from ...kernels.correlation import Values, parameters_of, with_values
from ...likelihoods import Weighted
from ...likelihoods.base import checked_observations, unwrapped
from ...likelihoods.expectations import constant_predictor
from ...likelihoods.predictive import summarised_response
from ...likelihoods.times import entry, starts
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import (
    FitResult,
    Solution,
    present_solution,
    solution_of_sums,
)
from ...optimizers.binned.cavities import between_predictors
from ...optimizers.binned.evidence import GaussianPosterior, PseudoData
from ...optimizers.binned.passes import Rows
from ...optimizers.binned.solution import Centre, Chains, Drawn, GaussianSums
from ...optimizers.laplace import with_centre
from ...posteriors import ActionPosterior
from ...posteriors.base import SparseAdditivePosterior
from ...posteriors.inducing import InducingMoments, ShapedMoments, ShapedPosterior, shaped_values
from ...threads import check_process, each, one_blas_thread
from ...variational import DenseGaussian
from ..components.kernels import build_inducing
from ..components.plan import Component, Margin, shaped_term
from ..families import Family
from ..frames.encoding import Key, NumericColumn, check_complete, filled
from ..frames.table import Table
from ..terms.base import variables_of
from ..terms.smooth import KINDS, has_line
from .data import CodedData, Communication, Data, Discrepancies, MissingRows, Pearson
from .specification import Model, Specification

BLOCK = 10_000  # rows predicted at a time
_CACHED = 5000  # rows whose features a thread holds: they stay in its core's cache
Parts = tuple[dict[str, Any], dict[str, AnyNDArray]]  # A header that JSON can hold, and arrays
_STEPS, _HALVINGS, _GAIN = 50, 40, 1e-6  # of Newton's method; nats a step must promise
_Q = ("mean", "covariance", "log_det", "precision", "shift")
_CENTRE = ("absolute", "signed", "optimum")


def _snapshot(model: Model) -> Model:
    """A model of the same kernel and q, with all other parts as threads may read them."""
    if isinstance(model, IterNCGP):  # whose posterior keeps what it is of
        return model
    copied = copy.copy(model)
    copied.likelihood = frozen_copy(model.likelihood)
    copied.mean_function = frozen_copy(model.mean_function)
    copied.inducing_variable = frozen_copy(model.inducing_variable)
    return copied


@dataclasses.dataclass(frozen=True, eq=False)
class FittedGAM:
    """The outcome of a fit, for effects, summaries and plots to read."""

    spec: Specification  # what was fitted
    model: Model  # as it was fitted: nobody changes it
    data: Data  # the rows
    result: FitResult  # how the optimisation ended
    dropped: int = 0  # rows left out for missing values
    _solution: Solution | None = None
    stored: Parts | None = None  # the solution as a file holds it
    users_copy: Model | None = None  # which may have been changed

    warned: set[Any] = dataclasses.field(default_factory=set, init=False)
    """The columns of X far outside of which predictions were, and ``"tails"``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", _snapshot(self.model))

    @property
    def users_model(self) -> Model:
        """The user's copy of the model: what becomes of it changes no answer, but later fits."""
        if self.users_copy is not None:
            return self.users_copy
        users, model = frozen_copy(self.model), self.model
        if isinstance(model, IterNCGP):  # whose copies cannot resume its fit
            users, model = model, users
            for name in set(vars(self)) - {field.name for field in dataclasses.fields(self)}:
                del vars(self)[name]  # read off what is the user's from now on
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "users_copy", users)
        return users

    # --- the data -------------------------------------------------------------------------------

    @property
    def X(self) -> AnyNDArray:
        """Rows as encoded, [N, D]; an even sample of them, [n, D], where there are many."""
        return self.data.X

    @property
    def Y(self) -> AnyNDArray:
        """The response of the rows of X as encoded, [N, K] or [n, K]."""
        return self.data.Y

    @property
    def number(self) -> int:
        """N, all rows of the fit."""
        return self.data.number

    @property
    def communication(self) -> Communication | None:
        return self.data.communication

    # --- the posterior --------------------------------------------------------------------------

    @functools.cached_property
    def solution(self) -> Solution | None:
        """The solution as sums over rows; None for engines and families of q that have none."""
        if self._solution is not None:
            return self._solution
        if self.spec.variational not in ("exact", "sites"):
            return None
        model = self.model
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        rows = self.data.rows(self.spec, model)
        if self.stored is not None:
            return solution_from_parts(self.stored, model, rows)
        return present_solution(model, rows, self.spec.variational == "exact")

    @property
    def criterion(self) -> str:
        """What chose hyperparameters, as ``GAM.fit`` names it."""
        return "elbo" if self.solution is None or self.solution.hessian is None else "ncv"

    @functools.cached_property
    def free_moments(self) -> InducingMoments | None:
        """Moments of the inducing values before shapes; None without :attr:`solution`."""
        solution = self.solution
        if solution is None:
            return None
        return self._moments_at(solution.q, solution.values)

    def _moments_at(self, q: GaussianPosterior, values: Values) -> InducingMoments:
        assert isinstance(self.model, (AdditiveSGPR, AdditiveSVGP))
        given = self.model.kernel, self.model.inducing_variable, q.mean, q.covariance
        return InducingMoments(*given, values=values, roots=q.roots)

    @functools.cached_property
    def shaped(self) -> ShapedMoments | None:
        """Moments of the inducing values with the shapes of terms; None where none has one."""
        if not shaped_term(self.spec.components):
            return None
        assert self.free_moments is not None  # who asks for shapes has a solution
        return ShapedMoments(self.free_moments)

    @functools.cached_property
    def _without_shapes(self) -> InducingMoments | None:
        """Moments before shapes, at the hyperparameters that are best without them."""
        solution = self.solution
        if solution is None or solution.unshaped is None:
            return self.free_moments
        return self._moments_at(*solution.at(solution.unshaped))

    def shape_tail(self, name: str, output: int) -> float:
        """P value of a component's shape: how often noise deviates as far as the free estimate."""
        assert self._without_shapes is not None  # who asks for shapes has a solution
        place = self.model.kernel.names.index(name)
        return shaped_values(self._without_shapes).p_value(place, output)

    @property
    def known_moments(self) -> InducingMoments | None:
        """Those of the components, where the fit knows them without being asked for q."""
        return self.free_moments if self.shaped is None else self.shaped

    @functools.cached_property
    def moments(self) -> InducingMoments:
        """Moments of the inducing values at the fitted hyperparameters."""
        if self.known_moments is not None:
            return self.known_moments
        inducing = None
        if isinstance(self.model, IterNCGP):
            kernel, width = self.model.kernel, self.spec.encoder.width
            inducing = build_inducing(self.spec.components, kernel, width)
        return InducingMoments.of(self.posterior, inducing, counted=True)

    @functools.cached_property
    def q(self) -> GaussianPosterior:
        """The posterior over whitened inducing values, in which terms have their shapes."""
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
        """The posterior over the components, cached at the fitted parameters: values of its own."""
        with tf.init_scope():  # it is kept: no tensor of a function that first asks for it
            return self._posterior()

    def _posterior(self) -> SparseAdditivePosterior | ActionPosterior:
        model, solution = self.model, self.solution
        if solution is None:
            return model.posterior()
        values = [tf.constant(solution.values(p)) for p in parameters_of(model.kernel)]
        kernel = with_values(model.kernel, values)
        assert isinstance(kernel, AdditiveKernel)
        q, layout = self.q, model.blocks.layout
        order = layout.order
        root = tf.constant(np.linalg.cholesky(q.covariance[:, order][:, :, order]))
        mean, log_det = tf.constant(q.mean[order]), tf.constant(q.log_det)
        whitened = DenseGaussian(layout, mean, log_det, root)
        of = model.inducing_variable, lambda _: whitened, model.num_latent_gps, model.mean_function
        options: dict[str, Any] = {"precompute_cache": PrecomputeCacheType.TENSOR}
        if self.shaped is None:
            return SparseAdditivePosterior(kernel, *of, **options)
        return ShapedPosterior(kernel, *of, moments=self.shaped.projected, **options)

    def value(self, parameter: Parameter) -> AnyNDArray:
        """The fitted value of a parameter of the kernel."""
        if self.solution is not None:
            return self.solution.values(parameter)
        return np.asarray(parameter)

    def marginal(self, column: int) -> tuple[AnyNDArray, AnyNDArray]:
        """Values of a column of X, or what stands for them, and the weight of rows at each."""
        return self.data.marginal(column)

    def mean_offset(self) -> AnyNDArray:
        """The known part of the predictor, [L], offsets at their mean."""
        data = self.data
        if data.offset is not None:
            return data.offset
        if not isinstance(data, CodedData):
            mean = np.asarray(self.model.mean_function(self.X))
            return np.asarray(np.average(mean, axis=0, weights=self.weights))
        known = data.mean(self.spec)
        sums = np.zeros(self.num_predictors)
        sums += np.sum([w @ known[at] for at, w in data.weights()], axis=0)  # of blocks, or none
        mass = sum(float(w.sum()) for _, w in data.weights())
        total, mass = data.columns.communicator.total([sums, mass])
        return total / mass

    def starts(self) -> AnyNDArray | None:
        """When rows of family ``"cox"`` enter; None in files that lack it."""
        data = self.data
        if data.starts is not None or not data.available:
            return data.starts
        parts = data.columns.communicator.gathered(starts(entry(data.responses[:])))
        return starts(*map(np.concatenate, zip(*parts)))[0]

    def reach(self) -> AnyNDArray:
        """The least and the greatest response, of a censored one both ends counted."""
        data = self.data
        if data.reach is not None:
            return data.reach
        Y = data.responses[:][:, :2]
        parts = data.columns.communicator.gathered((np.min(Y), np.max(Y)))
        return np.array([np.min(parts), np.max(parts)])

    @property
    def weights(self) -> AnyNDArray:
        """Prior weights of the rows of X; ones without."""
        weights = self.spec.weights_of(self.X)
        return np.ones(len(self.X)) if weights is None else weights

    @property
    def likelihood(self) -> Likelihood:
        """The fitted likelihood, without weights."""
        return unwrapped(self.model.likelihood)

    @functools.cached_property
    def units(self) -> tuple[AnyNDArray, AnyNDArray]:
        """Factors and shifts, [L]: the model's predictors in the response's unit."""
        pair, L = self.spec.family.units(self.model.likelihood), self.num_predictors
        return np.broadcast_to(pair[0], L), np.broadcast_to(pair[1], L)

    def constant_of(self, component: Component) -> AnyNDArray:
        """Constant that a component carries, in the response's unit, [L]; zero for most."""
        factor, shift = self.units
        constant = shift + factor * np.array(self.spec.constant)
        carries = self.spec.has_constant([component.name])
        return np.asarray(np.where(carries, constant, 0.0))

    @property
    def num_predictors(self) -> int:
        """L."""
        return len(self.spec.constant)

    # --- rows by their columns' names ------------------------------------------------------------

    def encode(self, data: Any, names: Collection[str] | None = None) -> AnyNDArray:
        """New rows as X [N, D]."""
        spec = self.spec
        wanted = spec.names if names is None else tuple(names)
        keys: set[Key] = {(c, "number") for c in spec.offset}
        every = list(spec.encoder.columns)
        for name in wanted:
            keys |= {every[i] for i in spec.component(name).columns}
        table = filled(Table(data), spec.fills)
        if spec.design is not None and {name for name, _ in keys} & set(spec.design.made):
            table = spec.design.extended(table)
        check_complete(table, variables_of(spec.encoder.sources(keys), lags=True))
        return spec.encoder.encode(table, keys)

    def blocks(self, X: AnyNDArray) -> Iterator[AnyNDArray]:
        """X in blocks of rows; one empty block where there are none."""
        for start in range(0, max(len(X), 1), BLOCK):
            yield X[start : start + BLOCK]

    def predict_link(self, X: AnyNDArray, joint: bool = False) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance of the predictors, [N, L]; ``joint``: [N, L, L] if correlated."""
        moments = self.known_moments
        if moments is None:
            posterior = self.posterior
            joint = joint and posterior.couples_outputs
            return self._in_blocks(X, lambda x: posterior.predict_f(x, full_output_cov=joint))
        mean, var = self._by_rows(X, moments.total)
        return mean + np.asarray(self.model.mean_function(X)), np.maximum(var, 0.0)  # rounding

    @functools.cached_property
    def predictive_share(self) -> float:
        """Share of the predictor's variance that predictions of classes count; else 1."""
        model = self.model
        return model.predictive_share() if isinstance(model, IterNCGP) else 1.0

    def predictive(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """As :meth:`predict_link`, jointly, as far as predictions of responses count variances."""
        mean, var = self.predict_link(X, joint=True)
        return mean, self.predictive_share * var

    def predict_components(
        self, X: AnyNDArray, names: Sequence[str]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance of some components, [N, C, L] each."""
        if self.known_moments is None:
            chosen = [self.spec.names.index(name) for name in names]
            mean, var = self._in_blocks(X, self.posterior.predict_components)
            if self.num_predictors == 1:
                mean, var = mean[..., None], var[..., None]
            return mean[:, chosen], var[:, chosen]
        mean, var = zip(*(self.predict_sum(X, [name]) for name in names))
        return np.stack(mean, axis=1), np.stack(var, axis=1)

    def component_means(self, X: AnyNDArray, names: Sequence[str]) -> tuple[AnyNDArray]:
        """Means alone of some components, [N, C, L], for far less than with their variances."""
        moments = self.known_moments
        if moments is None:
            return (self.predict_components(X, names)[0],)

        def means(rows: AnyNDArray) -> tuple[AnyNDArray]:
            result = np.empty((len(rows), len(names), self.num_predictors))
            for c, name in enumerate(names):
                result[:, c] = moments.features(name, rows).T @ moments.mean[moments.block(name)]
            return (result,)

        return (self._by_rows(X, means)[0],)

    def predict_sum(self, X: AnyNDArray, names: Collection[str]) -> tuple[AnyNDArray, AnyNDArray]:
        """As :meth:`predict_link`, jointly, of the sum of some components; m(x) is left out."""
        chosen = [name for name in self.spec.names if name in names]
        posterior = self.posterior if self.known_moments is None else None
        if isinstance(posterior, ActionPosterior):
            places = [self.spec.names.index(name) for name in chosen]
            mean, cov = self._in_blocks(X, lambda x: posterior.predict_sum(x, places))
            return mean, cov if posterior.couples_outputs else cov[:, 0]
        mean, var = self._by_rows(X, lambda rows: self.moments.total(rows, names=chosen))
        return mean, np.maximum(var, 0.0)  # rounding

    def _by_rows(
        self, X: AnyNDArray, evaluate: Callable[[AnyNDArray], tuple[AnyNDArray, ...]]
    ) -> list[AnyNDArray]:
        """Arrays with a row for a row of X, computed on all cores."""
        parts: dict[int, tuple[AnyNDArray, ...]] = {}
        starts = range(0, max(len(X), 1), _CACHED)
        each(lambda i: parts.update({i: evaluate(X[i : i + _CACHED])}), starts)
        return [np.concatenate(part) for part in zip(*(parts[i] for i in starts))]

    def _in_blocks(
        self, X: AnyNDArray, predict: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        parts = [predict(tf.constant(block)) for block in self.blocks(X)]
        mean, var = (np.concatenate([np.asarray(p) for p in part]) for part in zip(*parts))
        return mean, np.maximum(var, 0.0) if var.ndim == mean.ndim else var  # rounding

    def discrepancies(self) -> Discrepancies:
        """Deviances and Pearson's statistic: one pass over the rows."""
        # No cached property, whose lock Python 3.11 shares among all fits: threads that sum over
        # each other's rows in it would wait for each other for ever.
        if self.data.discrepancies is not None:
            return self.data.discrepancies
        likelihood, solution = self.model.likelihood, self.solution
        if isinstance(self.data, CodedData) and solution is not None:
            return discrepancies_of_rows(self.spec, likelihood, solution, self.q)
        if solution is None:
            F = self.predict_link(self.X)[0]
        else:
            F = solution.rows.means(solution.values, self.q)
        offset = self.model.mean_function(self.X) - np.array(self.spec.constant)
        Y = checked_observations(self.Y, likelihood)
        family = self.spec.family
        # of a baseline that was learnt the constant is no closed form
        null = None if family.intercept_name else family.null(self.Y, offset[:, 0], self.weights)
        if null is None:
            null = constant_predictor(likelihood, self.X, Y, offset, self.num_predictors)
            if solution is not None:
                begin, constant = np.asarray(null)[0], np.array(self.spec.constant)
                null = null_constant(likelihood, solution.rows, constant, begin)
        null = np.asarray(offset + null)
        return discrepancies(self.spec.family, likelihood, self.Y, F, null, self.weights)

    def deviance(self) -> tuple[float, float] | None:
        """Deviance at the posterior mean and the null model's; None where the family has none."""
        return self.discrepancies().deviance

    def sample_pearson(self, number: int) -> Pearson | None:
        """Pearson's statistic of at most so many rows of X, at random."""
        if self.data.discrepancies is not None:
            return self.data.discrepancies.pearson
        at_zero = np.zeros((1, self.num_predictors))
        if self.spec.family.pearson(self.likelihood, self.Y[:1], at_zero) is None:
            return None
        which, F = self.sample_means(number)
        weights = self.weights[which]
        return pearson(self.spec.family, self.model.likelihood, self.Y[which], F, weights)

    def some_rows(self, limit: int) -> AnyNDArray:
        """Indices [n] of rows of X that count: all, or so many, at random."""
        counted = np.flatnonzero(self.weights > 0.0)
        return np.asarray(counted[sampled(np.zeros(len(counted), dtype=int), limit)])

    def sample_means(self, number: int) -> tuple[AnyNDArray, AnyNDArray]:
        """Some rows of X, [n], and the posterior means of their predictors, [n, L]."""
        which = sampled(np.zeros(len(self.X), dtype=int), number)
        X, solution = self.X[which], self.solution
        if solution is None:
            return which, self.predict_link(X)[0]
        rows = solution.rows.subset(self.data.indices[which])
        return which, rows.means(solution.values, self.q)


def sampled(strata: AnyNDArray, limit: int, least: int = 100) -> AnyNDArray:
    """Indices of about so many rows at random, by strata [N], of each ``least`` if they are few."""
    if len(strata) <= limit:
        return np.arange(len(strata))
    # no even steps, which may be in step with hours or weekdays
    order = np.random.default_rng(0).permutation(len(strata))
    before = pd.Series(strata[order]).groupby(strata[order]).cumcount().to_numpy()
    counts = np.bincount(strata)
    least = min(least, -(-limit // np.count_nonzero(counts)))
    each = np.maximum(least, limit * counts / len(strata))
    return np.sort(order[before < each[strata[order]]])


# --- deviances and Pearson's statistic -----------------------------------------------------------


def discrepancies(
    family: Family,
    likelihood: Likelihood,
    Y: AnyNDArray,
    F: AnyNDArray,
    null: AnyNDArray,
    weights: AnyNDArray,
) -> Discrepancies:
    """Deviance and Pearson statistics of rows in memory."""
    deviance = None
    unit_deviance = family.deviance(likelihood, Y, F)
    least = family.deviance(likelihood, Y, family.null_predictor(null, F))
    if unit_deviance is not None and least is not None:
        deviance = float(np.sum(weights * unit_deviance)), float(np.sum(weights * least))
    return Discrepancies(deviance, pearson(family, likelihood, Y, F, weights))


def pearson(
    family: Family, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray, weights: AnyNDArray
) -> Pearson | None:
    """Pearson's statistic of rows in memory: as :func:`discrepancies`."""
    result = family.pearson(likelihood, Y, F)
    if result is None:
        return None
    known = np.isfinite(result[0])
    square, variance = (np.sum(weights[known] * part[known]) for part in result)
    return Pearson(float(square), float(variance), float(np.sum(weights[known])))


def discrepancies_of_rows(
    spec: Specification, likelihood: Likelihood, solution: Solution, q: GaussianPosterior
) -> Discrepancies:
    """Deviance and Pearson statistics of rows that are read in blocks."""
    rows, constant = solution.rows, np.array(spec.constant)
    null = null_constant(likelihood, rows, constant)
    deviance, statistics = np.zeros(2), np.zeros(3)
    defined = scattered = True
    for at, F in rows.predictors(solution.values, q):
        n = at.stop - at.start
        w = np.ones(n)
        if isinstance(likelihood, Weighted):
            w = likelihood.weights(rows.X[at]).numpy()
        known = rows.mean[at] - constant + null
        result = discrepancies(spec.family, likelihood, rows.Y[at], F, known, w)
        defined, scattered = result.deviance is not None, result.pearson is not None
        deviance += np.array(result.deviance or (0.0, 0.0))
        statistics += np.array(result.pearson or (0.0, 0.0, 0.0))
    deviance, statistics = rows.communicator.total([deviance, statistics])
    return Discrepancies(
        (float(deviance[0]), float(deviance[1])) if defined else None,
        Pearson(*map(float, statistics)) if scattered else None,
    )


def null_constant(
    likelihood: Likelihood, rows: Rows, constant: AnyNDArray, begin: AnyNDArray | None = None
) -> AnyNDArray:
    """The constant [L] under which all rows are most likely."""
    ends = [_climbed(likelihood, rows, constant, c) for c in (constant, begin) if c is not None]
    return max(ends, key=lambda end: end[0])[1]


def _climbed(
    likelihood: Likelihood, rows: Rows, constant: AnyNDArray, c: AnyNDArray
) -> tuple[float, AnyNDArray]:
    """The log-likelihood where Newton's method ends, or minus infinity, and the constant there."""
    result = _summed(likelihood, rows, c - constant)
    for _ in range(_STEPS):
        value, slope, curvature = result
        if not all(np.all(np.isfinite(a)) for a in result):
            break
        # where it is flat, as in a direction that the likelihood does not see, it stays
        sizes, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
        sizes = np.abs(sizes)
        seen = sizes > 1e-10 * np.max(sizes, initial=0.0)
        step = vectors[:, seen] @ ((vectors[:, seen].T @ slope) / sizes[seen])
        if not (np.all(np.isfinite(step)) and slope @ step >= _GAIN):
            break
        for _ in range(_HALVINGS):  # with little noise whole steps go where nothing is finite
            following = _summed(likelihood, rows, c + step - constant)
            if following[0] >= value:  # false of NaN
                break
            step = 0.5 * step
        else:
            break
        c, result = c + step, following
    value = float(result[0])
    return (value if np.isfinite(value) else -np.inf), c


def _summed(
    likelihood: Likelihood, rows: Rows, shift: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """The log-likelihood of all rows, and its derivatives in the shift, [], [L] and [L, L]."""
    value, slope, curvature = np.zeros(()), np.zeros(len(shift)), np.zeros([len(shift)] * 2)
    for at in rows.blocks():
        X, F = tf.constant(rows.X[at]), tf.constant(rows.mean[at] + shift)
        Y = checked_observations(tf.constant(rows.Y[at]), likelihood)
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(F)
            with tf.GradientTape() as inner:
                inner.watch(F)
                total = tf.reduce_sum(likelihood.log_prob(X, F, Y))
            g = inner.gradient(total, F)
            sums = [tf.reduce_sum(g[:, i]) for i in range(g.shape[1])]
        H = [tf.reduce_sum(outer.gradient(s, F), axis=0).numpy() for s in sums]
        value, slope = value + total.numpy(), slope + tf.reduce_sum(g, axis=0).numpy()
        curvature = curvature + np.stack(H)
    value, slope, curvature = rows.communicator.total([value, slope, curvature])
    return value, slope, curvature


# --- files ---------------------------------------------------------------------------------------


def solution_to_parts(solution: Solution, model: AdditiveSGPR | AdditiveSVGP, alone: bool) -> Parts:
    """The posterior and the sums over rows, but no row; ``alone``: nor will there be any."""
    solution = solution.with_curvature(model.likelihood)
    solution = with_centre(model, solution) if alone else solution
    q, sums = solution.q, solution.data
    arrays = {f"q {name}": getattr(q, name) for name in _Q}
    arrays["found"] = solution.optimum
    arrays |= {f"q root {i}": root for i, root in enumerate(q.roots)}
    named = {"sums": sums}
    if (centre := solution.centre) is not None:
        arrays["centre"] = centre.coordinates
        named |= {f"centre {k}": getattr(centre, k) for k in _CENTRE}
        for i, draw in enumerate(centre.draws):
            arrays |= {f"drawn {i} {k}": array for k, array in draw._asdict().items()}
    header: dict[str, Any] = {"components": len(q.roots), "error": None}
    if solution.bound is not None:
        known = solution.bound.sums
        header["error"] = [known.squares[0], known.number]
        if len(known.parts) > 1:
            header |= {"squares": list(known.squares), "pairs": known.pairs}
            named |= {f"sums {i}": part for i, part in enumerate(known.parts)}
    for name, data in named.items():
        arrays |= {f"{name} {k}": getattr(data, k) for k in ("precision", "shift")}
        arrays |= {f"{name} mass {i}": mass for i, mass in enumerate(data.masses)}
    arrays |= {f"sums at {i}": c.places.points for i, c in enumerate(solution.rows.components)}
    if solution.chains is not None:
        arrays |= {f"chains {k}": v for k, v in vars(solution.chains).items()}
    rest = {name: getattr(solution, name) for name in ("curvature", "hessian", "unshaped")}
    rest["between"] = between_of(solution, model)
    arrays |= {name: array for name, array in rest.items() if array is not None}
    return header, arrays


def solution_from_parts(parts: Parts, model: AdditiveSGPR | AdditiveSVGP, rows: Rows) -> Solution:
    """Read a solution that :func:`solution_to_parts` gave."""
    header, arrays = parts
    number = range(header["components"])
    roots = tuple(arrays[f"q root {i}"] for i in number)
    q = GaussianPosterior(**{name: arrays[f"q {name}"] for name in _Q}, roots=roots)

    def sums_of(name: str) -> PseudoData:
        masses = tuple(arrays[f"{name} mass {i}"] for i in number)
        return PseudoData(arrays[f"{name} precision"], arrays[f"{name} shift"], masses)

    sums, error = sums_of("sums"), None
    if header["error"] is not None:
        square, total = header["error"]
        error = GaussianSums((sums,), (square,), total)
        if "pairs" in header:
            three = tuple(sums_of(f"sums {i}") for i in range(3))
            error = GaussianSums(three, tuple(header["squares"]), total, header["pairs"])
    rest: dict[str, Any] = {name: arrays.get(name) for name in ("hessian", "unshaped")}
    # nothing where the file has none: it answers as when it was written
    none = None if error is not None else np.zeros_like(q.covariance)
    rest["between"] = arrays.get("between", none)
    chains = {f.name: arrays.get(f"chains {f.name}") for f in dataclasses.fields(Chains)}
    rest["chains"] = None if chains["coordinates"] is None else Chains(**chains)
    if not _same_places(arrays, rows):
        result = present_solution(model, rows, header["error"] is not None)
        return dataclasses.replace(result, q=q, **rest)
    result = solution_of_sums(model, rows, sums, q, arrays["found"], error, arrays.get("curvature"))
    if "centre" in arrays:
        draws: list[Drawn] = []
        while f"drawn {len(draws)} mean" in arrays:
            draws.append(Drawn(*(arrays[f"drawn {len(draws)} {k}"] for k in Drawn._fields)))
        known = {k: sums_of(f"centre {k}") for k in _CENTRE}
        rest["centre"] = Centre(arrays["centre"], **known, draws=draws)
    return dataclasses.replace(result, **rest)


def between_of(solution: Solution, model: AdditiveSGPR | AdditiveSVGP) -> AnyNDArray | None:
    """Covariance beyond that of q, of other predictors and of the likelihood's parameters."""
    gone = isinstance(solution.rows, MissingRows)  # whose file has it where it is something
    if gone or solution.between is not None or solution.bound is not None:
        return solution.between
    with one_blas_thread():  # the same bits, whoever asks
        if model.num_latent_gps == 1:
            return solution.of_parameters(model.likelihood)
        return between_predictors(solution.rows, model.likelihood, solution.values, solution.q)


def _same_places(arrays: dict[str, AnyNDArray], rows: Rows) -> bool:
    """True if nodes are those of a file; on another machine ties may be broken otherwise."""
    points = [component.places.points for component in rows.components]
    stored = [arrays.get(f"sums at {i}") for i in range(len(points))]
    return all(b is None or np.array_equal(a, b) for a, b in zip(points, stored))


# --- warnings of predictions far outside the data, and of those that the far tail makes -----------


_FAR = 0.25  # outside the data by this share of their range is far


def encoded(fit: FittedGAM, table: Table, names: Collection[str] | None = None) -> AnyNDArray:
    """New rows as X [N, D]; warns where numbers are far outside the data."""
    X = fit.encode(table, names)
    warn_if_far(fit, X, names)
    return X


def warn_if_far(fit: FittedGAM, X: AnyNDArray, names: Collection[str] | None = None) -> None:
    """Warn, once a fit and column, where numbers are far outside the data."""
    for component in fit.spec.components:
        if names is not None and component.name not in names:
            continue
        points = component.points(X[component.acting(X)])
        for i, margin in enumerate(component.margins):
            if margin.column in fit.warned or margin.kind == "levels" or margin.period is not None:
                continue
            values = points[:, i]
            low, high = margin.ends
            far = _FAR * (high - low)
            outside = values[(values < low - far) | (values > high + far)]
            if len(outside):
                fit.warned.add(margin.column)
                _warn(fit, component, margin, outside)


def _warn(fit: FittedGAM, component: Component, margin: Margin, outside: AnyNDArray) -> None:
    reader = fit.spec.encoder.readers[margin.column]
    assert isinstance(reader, NumericColumn)
    farthest = outside[np.argmax(np.abs(outside - np.mean(margin.ends)))]
    shown = reader.shown(np.array([farthest, *margin.ends]))
    at, low, high = (str(v).split(".")[0] if reader.time else f"{v:g}" for v in shown)
    warn_caller(
        f"column {reader.name!r} is predicted at {at}, far outside the data of the fit, {low} to "
        f"{high} for {component.name}: {_beyond(component, margin)}. Check the column's unit, or "
        "fit to data that reach there.",
        ExtrapolationWarning,
    )


def _beyond(component: Component, margin: Margin) -> str:
    """Description of a component's extrapolation along a column."""
    if margin.breaks:  # splines
        return "the function goes on as a straight line" if margin.shape else "it stays there"
    kind = component.margins[0].kind
    if component.form == "line":
        return "the line goes on as if nothing changed"
    if component.form == "own":
        return "the function is what its kernel makes of it"
    if kind in KINDS and KINDS[kind].outside:
        return KINDS[kind].outside
    if component.form in ("smooth", "tensor") and has_line(kind):
        return "the function returns to its straight part, and says little"
    return "the function returns to zero, its prior mean, and says little"


# --- tails ---------------------------------------------------------------------------------------

_WIDE = 3.0  # standard deviation on the log scale at which a mean is 90 times the median

CENTRAL = float(2.0 * ndtr(1.0) - 1.0)  # probability within a standard deviation of a normal mean
_SKEWED = float(np.exp(0.5) * np.sqrt(np.e - 1.0) / np.sinh(1.0))
"""Standard deviation of ``exp(f)`` against half of its central interval, where that of f is 1."""


def warn_of_tails(fit: FittedGAM, mean: AnyNDArray, var: AnyNDArray, estimate: AnyNDArray) -> None:
    """Warn, once a fit, where next to nothing is known of a predictor behind a log link."""
    if not fit.spec.family.log_link or "tails" in fit.warned:
        return
    units, shifts = fit.units
    sd = units[0] * np.sqrt(var[:, 0])
    wide = sd > _WIDE
    if not np.any(wide):
        return
    fit.warned.add("tails")
    worst = int(np.argmax(np.where(np.isfinite(sd), sd, 0.0)))
    with np.errstate(over="ignore"):
        median = np.exp(shifts[0] + units[0] * mean[worst, 0])
    warn_caller(
        f"of {np.count_nonzero(wide)} of {len(sd)} rows the data say next to nothing: up to "
        f"{sd[worst]:.2g} is the predictor's standard deviation, on the log scale, and the "
        f"expected response, {estimate[worst]:.3g} where the median is {median:.3g}, is made by "
        "the far tail. Take interval= or type='link', look for extreme values in the columns and "
        "the response, or give the terms less freedom.",
        HeavyTailWarning,
    )


def response_errors(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, se: AnyNDArray
) -> AnyNDArray:
    """Standard errors of expected responses, as :func:`meaningful` leaves them."""
    if not fit.spec.family.heavy_tailed:
        return se
    summary = summarised_response(fit.likelihood, X, mean, var, CENTRAL)
    return meaningful(se, summary.lower, summary.upper)


def meaningful(se: AnyNDArray, lower: object, upper: object, positive: bool = True) -> AnyNDArray:
    """Standard errors, NaN where the far tail makes them, of which is warned."""
    # That is where the posterior is as skewed as that of exp(f) is where f has a standard
    # deviation of 1: by the standard error beside half of the central 68 % interval, which it is of
    # a normal quantity, or by the ratio of the interval's ends, of what is positive.
    low, high = np.asarray(lower), np.asarray(upper)
    rounding = 1e-9 * np.maximum(np.abs(low), np.abs(high))
    with np.errstate(invalid="ignore"):
        settled = np.isfinite(se) & (se <= 0.5 * _SKEWED * (high - low) + rounding)
        if positive:
            settled &= high <= np.exp(2.0) * np.maximum(low, 0.0) + rounding
    if np.all(settled | np.isnan(se)):
        return se
    warn_caller(
        "se is NaN where the expected response has no standard error to speak of, as the far tail "
        "alone would make it: of a predictor behind a log link with a standard deviation above 1, "
        "or of a ratio whose denominator may be near zero. Read the interval (interval=, or lower "
        "and upper), or se on the scale of the link or of a difference.",
        HeavyTailWarning,
    )
    return np.where(settled, se, np.nan)


Scale = Literal["response", "link"]


class NotFittedError(ValueError, AttributeError):
    """The GAM has not seen data yet."""


def fit_of(gam: Any, call: str) -> FittedGAM:
    """The fit of a GAM; raises TypeError for what is none."""
    if not isinstance(gam, Inspected):
        raise TypeError(f"{call} takes fitted GAMs; got {type(gam).__name__}.")
    return gam.fitted


class Inspected:
    """A GAM that may be fitted; ``missing`` says what becomes of incomplete rows."""

    _fit: FittedGAM | None = None
    missing: str
    seed: int

    @property
    def is_fitted(self) -> bool:
        """True if :meth:`fit` has been called."""
        return self._fit is not None

    @property
    def fitted(self) -> FittedGAM:
        """
        The outcome of the fit.

        :raises NotFittedError: there is none.
        :raises ForkedProcessError: nothing can be computed in this process.
        """
        check_process()
        if self._fit is None:
            raise NotFittedError("the GAM is not fitted yet; call fit(data, y) first.")
        return self._fit

    def _chosen_seed(self, seed: int | None) -> int:
        check_count("seed", seed, 0)
        return self.seed if seed is None else seed
