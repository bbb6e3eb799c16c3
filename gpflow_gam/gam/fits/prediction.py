"""Predictions with their uncertainty, at rows of any number, on the scales that users ask for."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.interpolate import CubicSpline
from scipy.linalg import block_diag
from scipy.stats import norm

from ...errors import check_choice, check_level
from ...likelihoods.base import NO_DENSITIES, checked_observations
from ...likelihoods.predictive import (
    predictive_log_density,
    roots,
    summarised_response,
)
from ...threads import each
from ..components.plan import Component
from ..frames.blocks import blocks_of, recut
from ..frames.encoding import Holes, NumericColumn, filled
from ..frames.table import Table, in_blocks, located
from ..terms.base import Column, Term, variables_of
from .fitted import _CACHED, BLOCK, FittedGAM, encoded, response_errors, warn_of_tails
from .reading import in_memory
from .specification import Specification

PredictionType = Literal["response", "link", "terms", "observation", "class"]
Selection = str | Term | Iterable[str | Term]
"""A term, its label or the name of one of its effects; or several."""

OFFSET = "offset"  # name of the offsets' part of the predictor
_INTERCEPT = ("intercept", "(Intercept)", "1")
_DRAWS = 1000
_TOGETHER = 2**20  # responses that are drawn in one call
_STEP = 20 * BLOCK  # rows at a time where nothing is drawn
_NODES = 2049  # of the splines that functions of one column are read off
MANY = 8 * _NODES  # rows, from which on they are
_AGREEMENT = 1e-6  # relative, between their nodes
_COMPARED = 400  # most nodes at which features of a component are compared
_CORRELATED = 1e-8  # correlations between components of less than that are none
Averaged = Callable[[FittedGAM, AnyNDArray, AnyNDArray], AnyNDArray]
OfComponents = Callable[[AnyNDArray, Sequence[str]], tuple[AnyNDArray, ...]]
"""Means, or means and variances, of some components at rows, [N, C, L] each."""


# --- part of a predictor -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Part:
    """Part of a predictor that counts; offsets always do."""

    names: tuple[str, ...]  # the effects that stay, in the model's order
    intercept: bool = True  # whether the intercept does, with the constant about which it is

    def components(self, spec: Specification) -> list[str]:
        """The components that count, in the model's order."""
        first = [] if spec.intercept is None or not self.intercept else [spec.intercept]
        return [*first, *self.names]


def part_of(
    spec: Specification,
    terms: Selection | None = None,
    exclude: Selection | None = None,
    intercept: bool = True,
) -> Part | None:
    """The part of a predictor that arguments ask for; None where that is all of it."""
    if not isinstance(intercept, (bool, np.bool_)):
        raise TypeError(f"intercept must be True or False; got {intercept!r}.")
    if terms is None and exclude is None and (intercept or spec.intercept is None):
        return None
    stay = set(spec.effect_names) if terms is None else _effects(spec, "terms", terms)
    if exclude is not None:
        stay -= _effects(spec, "exclude", exclude)
    return Part(tuple(n for n in spec.effect_names if n in stay), bool(intercept))


def _effects(spec: Specification, argument: str, value: Selection) -> set[str]:
    """The names of effects, of which a term may have several."""
    if isinstance(value, (str, Term)):
        value = (value,)
    if not isinstance(value, Iterable):
        raise TypeError(f"{argument} must name terms, such as ['s(x)']; got {value!r}.")
    result: set[str] = set()
    for one in value:
        if not isinstance(one, (str, Term)):
            raise TypeError(f"{argument} must name terms, such as ['s(x)']; got {one!r} in it.")
        label = one.label if isinstance(one, Term) else one
        if label in _INTERCEPT:
            raise ValueError(
                f"{argument}: the intercept is no term; intercept=False leaves it out, and "
                "otherwise it stays."
            )
        try:
            result |= {c.name for c in spec.called(one)}
        except ValueError as error:
            raise ValueError(f"{argument}: {error}") from None
    return result


def known_part(fit: FittedGAM, X: AnyNDArray, part: Part | None) -> AnyNDArray:
    """Known part of the predictor at rows, [N, L]: a constant and offsets."""
    # Without what carries the constant it is such that the predictor in the response's unit is the
    # sum of effects and offsets alone.
    known = np.asarray(fit.model.mean_function(X))
    if part is None:
        return known
    factor, shift = fit.units
    stays = fit.spec.has_constant(part.components(fit.spec))
    return known - np.where(stays, 0.0, np.array(fit.spec.constant) + shift / factor)


# --- predictions of a table ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Summaries:
    """Mean, standard deviation and credible interval of some quantity at N points."""

    estimate: AnyNDArray  # [N] or [N, K]
    se: AnyNDArray  # the same
    lower: AnyNDArray | None = None  # ends of the intervals; None where no interval was asked
    upper: AnyNDArray | None = None
    names: tuple[Any, ...] = ()  # of the K quantities

    def frame(self) -> pd.DataFrame:
        """Columns ``estimate``, ``se``, ``lower``, ``upper``; under each name where K > 1."""
        parts = {"estimate": self.estimate, "se": self.se}
        if self.lower is not None and self.upper is not None:
            parts |= {"lower": self.lower, "upper": self.upper}
        return framed(parts, self.names)


def framed(parts: dict[str, AnyNDArray], names: Sequence[Any], index: Any = None) -> pd.DataFrame:
    """Columns [N], or [N, K] under each of K names."""
    if next(iter(parts.values())).ndim == 1:
        return pd.DataFrame(parts, index=index)
    each = enumerate(names)
    frames = {n: pd.DataFrame({k: v[:, i] for k, v in parts.items()}, index) for i, n in each}
    return pd.concat(frames, axis=1)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What is predicted of rows, whatever they come in."""

    fit: FittedGAM
    type: str = "response"
    interval: float | None = None
    se: bool = False
    seed: int = 0
    drop: bool = False  # whether rows that lack a value are NaN
    uncertain: Any = None  # a posterior that allows for uncertain hyperparameters
    part: Part | None = None

    # --- rows in whatever they come --------------------------------------------------------------

    def predict(self, data: Any) -> Any:
        """As :meth:`gpflow_gam.GAM.predict`; the same rows give the same, to some five digits."""
        if self.interval is not None:
            check_level(self.interval, "interval")
        check_choice("type", self.type, get_args(PredictionType))
        if self.type == "observation" and not _are_numbers(self.fit):
            raise ValueError(
                "type='observation': new responses are labels here, which have no mean and no "
                "interval. Take type='response', their probabilities, or type='class'; sample() "
                "draws labels."
            )
        # draws of new responses go on from block to block
        rng, parts = np.random.default_rng(self.seed), []
        # what few rows of a block need is dear, and so shared by many
        step = BLOCK if self.type == "observation" else _STEP
        if self.type in ("response", "class"):  # predictors may have covariances
            step = max(BLOCK, _STEP // self.fit.num_predictors**2)
        for start, table in blocks(data, self.columns, step):
            with located(start, table.num_rows):
                asked = self.fit, table, self.columns, self.drop
                parts.append(_complete(*asked, lambda table: self._of_table(table, rng)))
        return labelled(joined(parts), data)

    def sample(self, data: Any, num_samples: int) -> AnyNDArray:
        asked = self.fit, in_memory(data), self.columns, self.drop
        return _complete(*asked, lambda table: self._draws(table, num_samples), axis=1)

    @functools.cached_property
    def columns(self) -> list[Column]:
        spec = self.fit.spec
        result = spec.inputs if self.part is None else spec.inputs_of(self.part.names)
        trials = spec.trials if self.type == "observation" else None
        return result if trials is None else variables_of([*result, trials])

    # --- rows of a table -------------------------------------------------------------------------

    def _of_table(self, table: Table, rng: np.random.Generator) -> Any:
        fit = self.fit
        X = encoded(fit, table, None if self.part is None else self.names)
        if self.type == "terms":
            return self._terms(X)
        if self.type == "class":
            alone = dataclasses.replace(self, uncertain=None, interval=None, se=False)
            return _classes(fit, alone.response(X).estimate)
        errors = self.se or self.interval is not None
        if not errors and self.type != "observation":
            return self.estimate(X)
        if self.type == "link":
            out = self._link(X)
        elif self.type == "response":
            out = self.response(X)
        else:
            out = self._observation(X, _trials(fit, table), rng)
        if self.interval is not None:
            return out.frame()
        return (out.estimate, out.se) if self.se else out.estimate

    @functools.cached_property
    def names(self) -> list[str]:
        spec = self.fit.spec
        return list(spec.names) if self.part is None else self.part.components(spec)

    def _draws(self, table: Table, number: int) -> AnyNDArray:
        fit, rng = self.fit, np.random.default_rng(self.seed)
        check_choice("type", self.type, ("response", "link", "observation"))
        X = encoded(fit, table, None if self.part is None else self.names)
        trials = _trials(fit, table) if self.type == "observation" else None
        if self.uncertain is None:  # of the second engine
            return self._shown(fit.likelihood, self._of_posterior(X, number), trials, rng)
        known = known_part(fit, X, self.part)
        drawn = self.uncertain(fit, X, self.names, number, self.seed)
        parts = [self._shown(likelihood, F + known, trials, rng) for likelihood, F in drawn]
        return np.concatenate(parts)[rng.permutation(sum(map(len, parts)))[:number]]

    def _of_posterior(self, X: AnyNDArray, number: int) -> AnyNDArray:
        """Draws of the predictor [S, N, L] by the GPflow posterior itself."""
        fit = self.fit
        if self.part is None:
            return np.asarray(fit.posterior.sample_f(X, number, seed=self.seed))
        every = np.asarray(fit.posterior.sample_components(X, number, seed=self.seed))
        every = every.reshape(*every.shape[:3], -1)  # [S, N, C, L]
        chosen = [i for i, name in enumerate(fit.spec.names) if name in self.names]
        return known_part(fit, X, self.part) + every[:, :, chosen].sum(axis=2)

    def _shown(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        trials: AnyNDArray | None,
        rng: np.random.Generator,
    ) -> AnyNDArray:
        """What is asked for of predictors [S, N, L]."""
        fit, family = self.fit, self.fit.spec.family
        if self.type == "link":
            factor, shift = fit.units
            F = shift + factor * F
            return F[..., 0] if fit.num_predictors == 1 else F
        if self.type == "response":
            return np.asarray(family.mean(likelihood, F))
        parts = [F[at] for at in _draws_at_a_time(*F.shape[:2])]
        drawn = [family.sample(likelihood, f, rng, trials=trials) for f in parts]
        return _observed(fit, np.concatenate(drawn))

    def _known_moments(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean [N, L] of the predictor, and (co)variances, at the fitted hyperparameters."""
        fit, part = self.fit, self.part
        if part is None:
            return fit.predict_link(X, joint=True)
        mean, var = fit.predict_sum(X, self.names)
        return mean + known_part(fit, X, part), var

    def _moments(
        self, X: AnyNDArray, between: bool = False
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Mean [N, L] of the predictor, and (co)variances, of estimates and of errors."""
        fit, part = self.fit, self.part
        if self.uncertain is None or not self.names:
            sums = known_sums(fit) if len(X) >= MANY else None
            if not sums:
                mean, var = self._known_moments(X)
            else:
                mean, var, beyond = sums(X, [fit.spec.names.index(name) for name in self.names])
                mean += known_part(fit, X, part)
                if beyond.any():
                    mean[beyond], var[beyond] = self._known_moments(X[beyond])
            return mean, var, var
        names = None if part is None else self.names
        mean, known, var = self.uncertain.link(X, names, between)
        mean = mean + known_part(fit, X, part)
        return mean, np.maximum(known, 0.0), np.maximum(var, 0.0)

    def _link(self, X: AnyNDArray) -> Summaries:
        """The predictor rho(x), or a part of it: normal a posteriori."""
        mean, _, var = self._moments(X, between=True)
        factor, shift = self.fit.units
        mean, var = shift + factor * mean, factor**2 * _variances(var)
        names = self.fit.spec.predictor_names
        if self.fit.num_predictors == 1:
            mean, var = mean[:, 0], var[:, 0]
        se = np.sqrt(var)
        if self.interval is None:
            return Summaries(mean, se, names=names)
        z = norm.ppf(0.5 + 0.5 * self.interval)
        return Summaries(mean, se, mean - z * se, mean + z * se, names)

    def estimate(self, X: AnyNDArray) -> AnyNDArray:
        """The predictor or the expected response, for far less than with its standard error."""
        fit, (factor, shift) = self.fit, self.fit.units
        if self.type == "response":
            return self.response(X).estimate
        if fit.known_moments is None:
            return self._link(X).estimate
        mean = at_rows(fit, X, self.names, fit.component_means)[0].sum(axis=1)
        mean += known_part(fit, X, self.part)
        mean = shift + factor * mean
        return mean[:, 0] if fit.num_predictors == 1 else mean

    def response(self, X: AnyNDArray, offset: AnyNDArray | None = None) -> Summaries:
        """The expected response mu(rho(x)); ``offset`` [L] is in place of rows' known part."""
        # the mean is at the fitted hyperparameters, whatever is known of them, as of predict_y
        fit, likelihood = self.fit, self.fit.likelihood
        # of classes the parameters that the predictor goes with are part of the response, too
        alone = fit.num_predictors == 1 and fit.spec.levels is None
        mean, known, var = self._moments(X, between=alone)
        mean = mean if offset is None else mean - known_part(fit, X, self.part) + offset
        summary = summarised_response(likelihood, X, mean, var, self.interval)
        estimate, se = np.asarray(summary.mean), np.asarray(summary.sd)
        share = fit.predictive_share
        if self.uncertain is not None or share != 1.0:
            estimate = np.asarray(summarised_response(likelihood, X, mean, share * known).mean)
        warn_of_tails(fit, mean, _variances(known), estimate)
        if self.se or self.interval is not None:
            se = response_errors(fit, X, mean, var, se)
        lower, upper = (None if end is None else np.asarray(end) for end in summary[2:])
        names: tuple[Any, ...] = ()
        if estimate.ndim == 2:  # classes, which a likelihood of the user's only counts
            names = fit.spec.levels or tuple(range(estimate.shape[1]))
        return Summaries(estimate, se, lower, upper, names)

    def _observation(
        self, X: AnyNDArray, trials: AnyNDArray | None, rng: np.random.Generator
    ) -> Summaries:
        """A new response at x: mean, deviation and interval of draws from its density."""
        fit, family, likelihood = self.fit, self.fit.spec.family, self.fit.likelihood
        mean, _, var = self._moments(X)
        var = fit.predictive_share * var
        joint = None if var.ndim == 2 else np.asarray(roots(tf.constant(var)))
        parts, means, noise = [], [], []
        for at in _draws_at_a_time(_DRAWS, len(mean)):
            normals = rng.standard_normal((at.stop - at.start, *mean.shape))
            away = np.sqrt(var) * normals if joint is None else (joint @ normals[..., None])[..., 0]
            parts.append(np.asarray(family.sample(likelihood, mean + away, rng, trials=trials)))
            if (known := family.heavy_noise(likelihood, mean + away)) is not None:
                means.append(family.mean(likelihood, mean + away))
                noise.append(known)
        draws = _observed(fit, np.concatenate(parts))
        tail = 0.5 * (1.0 - (self.interval or 0.95))
        lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        se = draws.std(axis=0)
        if noise:
            se = np.sqrt(np.concatenate(noise).mean(axis=0) + np.concatenate(means).var(axis=0))
        # of the expected response, whose tail is theirs
        if (self.se or self.interval is not None) and family.heavy_tailed:
            expected = np.asarray(summarised_response(likelihood, X, mean, var).sd)
            errors = response_errors(fit, X, mean, var, expected)
            se = np.where(np.isnan(errors), np.nan, se)
        return Summaries(draws.mean(axis=0), se, lower, upper)

    def _terms(self, X: AnyNDArray) -> Any:
        """Contributions of components and offsets to the predictor and their errors, by column."""
        # their sum is the predictor: its constant is in the intercept's, or in that of the levels
        # whose means stand in its place
        fit, names = self.fit, self.names
        if self.interval is None and not self.se:
            mean = at_rows(fit, X, names, fit.component_means)[0]
            return _contributions(fit, X, mean, names)
        alone = fit.predict_components if self.uncertain is None else self.uncertain.components
        mean, var = at_rows(fit, X, names, alone)
        factor, _ = fit.units
        errors = _by_column(fit, np.sqrt(factor**2 * var), names)
        estimates, errors = _contributions(fit, X, mean, names), _offset(fit, errors, 0.0)
        if self.interval is None:
            return estimates, errors
        half = norm.ppf(0.5 + 0.5 * self.interval) * errors
        parts = {"estimate": estimates, "se": errors}
        parts |= {"lower": estimates - half, "upper": estimates + half}
        whole, number = pd.concat(parts, axis=1), estimates.shape[1]
        order = np.arange(whole.shape[1]).reshape(len(parts), number).T.ravel()
        places = [*range(1, whole.columns.nlevels), 0]
        return whole.reorder_levels(places, axis=1).iloc[:, order]


def at_rows(
    fit: FittedGAM, X: AnyNDArray, names: Sequence[str], evaluate: OfComponents
) -> list[AnyNDArray]:
    """What ``evaluate`` gives of components at rows; at many, of one column each by its spline."""
    if len(X) < MANY:
        return list(evaluate(X, names))
    splines = {name: _by_spline(fit.spec.component(name), X, evaluate) for name in names}
    others = [name for name in names if splines[name] is None]
    exact = evaluate(X, others) if others else ()
    parts = zip(*(splines[n] or [v[:, others.index(n)] for v in exact] for n in names))
    return [np.stack(part, axis=1) for part in parts]


def _by_spline(
    component: Component, X: AnyNDArray, evaluate: OfComponents
) -> list[AnyNDArray] | None:
    """The same of a component at rows, [N, L] each, by :class:`ColumnSplines`; or None."""
    name = [component.name]
    splines = ColumnSplines.of(
        component, X.shape[1], lambda at: [part[:, 0] for part in evaluate(at, name)]
    )
    if splines is None:
        return None
    result = splines(X)
    outside = np.flatnonzero(splines.outside(X))
    if len(outside):
        for own, value in zip(result, evaluate(X[outside], name)):
            own[outside] = value[:, 0]
    return result


@dataclasses.dataclass(frozen=True)
class ColumnSplines:
    """Means, variances and functions behind covariances, [N, K_i] each, of a component's column."""

    component: Component
    start: float
    step: float  # between nodes
    coefficients: AnyNDArray  # cubic between nodes, [4, nodes - 1, sum K], highest power first
    ends: AnyNDArray  # where parts begin, but for the first

    @classmethod
    def of(
        cls,
        component: Component,
        width: int,
        evaluate: Callable[[AnyNDArray], Sequence[AnyNDArray]],
    ) -> ColumnSplines | None:
        """None of a component that has no such column, or is too rough there."""
        if not has_one_column(component):
            return None
        nodes, step = np.linspace(*component.margins[0].ends, _NODES, retstep=True)
        # rough functions are so at inducing inputs
        cells = np.clip((np.ravel(component.inducing) - nodes[0]) // step, 0, _NODES - 2)
        between = nodes[0] + (np.union1d(cells, np.arange(0, _NODES - 1, 64)) + 0.5) * step
        at = component.full(np.concatenate([nodes, between])[:, None], width)
        parts = evaluate(at)
        values = np.concatenate(parts, axis=1)
        spline = CubicSpline(nodes, values[:_NODES])
        sizes = [np.max(np.abs(part), axis=0) for part in parts]
        for size in sizes[2:]:  # functions count together
            size[:] = np.max(size, initial=0.0)
        away = np.abs(spline(between) - values[_NODES:])
        if np.any(away > _AGREEMENT * np.concatenate(sizes)):
            return None
        ends = np.cumsum([len(size) for size in sizes[:-1]])
        return cls(component, float(nodes[0]), float(step), spline.c, ends)

    def __call__(self, X: AnyNDArray) -> list[AnyNDArray]:
        """At rows, outside of the nodes what is at their ends."""
        c, by = self.coefficients, self.component.by
        last = c.shape[1]
        x = X[:, self.component.margins[0].column]
        place = np.clip((x - self.start) / self.step, 0.0, last)
        cell = np.minimum(place.astype(int), last - 1)
        away = self.step * (place - cell)[:, None]
        value = c[0].take(cell, axis=0)
        for power in c[1:]:
            value *= away
            value += power.take(cell, axis=0)
        parts = np.split(value, self.ends, axis=1)
        if by is not None:
            size = X[:, by.column] if by.code is None else X[:, by.column] == by.code
            parts = [part * (size**i)[:, None] for part, i in zip(parts, (1, 2, 1))]
        return parts

    def outside(self, X: AnyNDArray) -> AnyNDArray:
        """Rows beyond the nodes where the component acts, [N]."""
        margin, by = self.component.margins[0], self.component.by
        x, (low, high) = X[:, margin.column], margin.ends
        result: AnyNDArray = ~((x >= low) & (x <= high))
        return result if by is None or by.code is None else result & (X[:, by.column] == by.code)


def has_one_column(component: Component) -> bool:
    """True of a function of one column of numbers."""
    margins = component.margins
    return len(margins) == 1 and not component.slots and margins[0].ends[1] > margins[0].ends[0]


def rows_at_nodes(component: Component, width: int) -> AnyNDArray:
    """Rows of X at nodes of a component, [n, D]; what is not of it is zero."""
    margins = component.margins
    nodes = [(node,) for node in margins[0].nodes] if len(margins) == 1 else component.nodes
    points = np.array(nodes or component.inducing)
    if component.form == "constant" or not points.size:
        return np.zeros((1, width))
    even = np.unique(np.linspace(0, len(points) - 1, _COMPARED).astype(int))
    return component.full(points[even], width)


class SumsBySplines:
    """Means and variances of sums of components at many rows, by splines where of one column."""

    # A variance is that of each component, and of each pair twice b_c(x)' C_cd b_d(x), of the few
    # functions b of a component that others are correlated with. features() has a component's
    # features [M_c, N], what they leave open [N], and rows [N] that have to be exact.
    # mean is [P, L], or [P, 0] of variances alone; covariances are [L, P, P]; counted [C, L] says
    # how often what is left open counts.

    def __init__(
        self,
        components: Sequence[Component],
        width: int,
        features: Callable[[int, AnyNDArray], tuple[AnyNDArray, AnyNDArray, AnyNDArray]],
        mean: AnyNDArray,
        covariances: AnyNDArray,
        counted: AnyNDArray,
    ) -> None:
        self._features, self._mean, self._counted = features, mean, counted
        at = [features(c, rows_at_nodes(one, width))[0] for c, one in enumerate(components)]
        self._blocks = _blocks(at)
        self._own = [covariances[:, block, block] for block in self._blocks]
        halves = [_half(phi @ phi.T / phi.shape[1]) for phi in at]
        # what is negligible is judged by correlations between components
        sds = [np.sqrt(np.einsum("pr,lpq,qr->l", h, S, h)) for h, S in zip(halves, self._own)]
        sds = [np.where(sd > 0.0, sd, 1.0)[:, None, None] for sd in sds]
        self._splines: list[ColumnSplines | None] = [None] * len(at)
        self._bases = [np.eye(len(phi)) for phi in at]  # R_c, of b_c = R_c phi_c
        back = list(self._bases)  # P_c, of phi_c = P_c b_c, as far as others are correlated with it
        for c, component in enumerate(components):
            if not has_one_column(component):
                continue
            others = [
                covariances[:, self._blocks[c], self._blocks[d]] @ halves[d] / (sds[c] * sds[d])
                for d in range(len(at))
                if d != c
            ]
            W = np.concatenate([halves[c][:, :0], *(one for S in others for one in S)], axis=1)
            left, size, axes = np.linalg.svd(halves[c].T @ W, full_matrices=False)
            kept = size > _CORRELATED
            basis = axes[kept] @ W.T

            def evaluate(X: AnyNDArray, c: int = c, basis: AnyNDArray = basis) -> list[AnyNDArray]:
                return self._exactly(c, basis, X)[0]

            spline = ColumnSplines.of(component, width, evaluate)
            if spline is not None:
                self._splines[c], self._bases[c] = spline, basis
                back[c] = halves[c] @ left[:, kept] / size[kept]
        self._places = _blocks(self._bases)
        project = block_diag(*back)
        crossed = project.T @ covariances @ project
        for place in self._places:
            crossed[:, place, : place.stop] = 0.0  # each pair once, and none with itself
        self._crossed = 2.0 * crossed

    def __bool__(self) -> bool:
        return any(self._splines)

    def _exactly(
        self, c: int, basis: AnyNDArray, X: AnyNDArray
    ) -> tuple[list[AnyNDArray], AnyNDArray]:
        """A component's means, variances [N, L], functions b_c [N, R_c]; rows to be exact."""
        phi, left, beyond = self._features(c, X)
        own = np.stack([np.sum((S @ phi) * phi, axis=0) for S in self._own[c]], axis=1)
        own += left[:, None] * self._counted[c]
        return [phi.T @ self._mean[self._blocks[c]], own, (basis @ phi).T], beyond

    def __call__(
        self, X: AnyNDArray, which: Sequence[int]
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Moments of the sum of some components, [N, L], and rows [N] that have to be exact."""
        mean = np.zeros((len(X), self._mean.shape[1]))
        variance = np.zeros((len(X), len(self._crossed)))
        beyond = np.zeros(len(X), dtype=bool)

        def evaluate(start: int) -> None:
            rows = slice(start, start + _CACHED)
            b = np.zeros((len(X[rows]), len(self._crossed[0])))
            for c in which:
                spline = self._splines[c]
                if spline is None:
                    parts, apart = self._exactly(c, self._bases[c], X[rows])
                else:
                    parts, apart = spline(X[rows]), spline.outside(X[rows])
                mean[rows] += parts[0]
                variance[rows] += parts[1]
                b[:, self._places[c]] = parts[2]
                beyond[rows] |= apart
            for i, C in enumerate(self._crossed):
                variance[rows, i] += np.einsum("nr,nr->n", b @ C, b)

        each(evaluate, range(0, len(X), _CACHED))
        return mean, np.maximum(variance, 0.0), beyond


def known_sums(fit: FittedGAM) -> SumsBySplines | None:
    """Sums of components at the fitted hyperparameters, kept in the fit; None where unknown."""
    moments, spec, kept = fit.known_moments, fit.spec, vars(fit)
    if moments is not None and "sums" not in kept:

        def features(c: int, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
            phi, left = moments.all_features(X, names=[spec.names[c]])
            return phi, left[0], np.zeros(len(X), dtype=bool)

        given = spec.components, spec.encoder.width, features, moments.mean, moments.covariance
        kept["sums"] = SumsBySplines(*given, moments.entering())
    return kept.get("sums")


def _half(moment: AnyNDArray) -> AnyNDArray:
    """A square root of a matrix that may be singular."""
    sizes, axes = np.linalg.eigh(moment)
    return np.asarray(axes * np.sqrt(np.maximum(sizes, 0.0)))


def _blocks(parts: Sequence[AnyNDArray]) -> list[slice]:
    ends = np.cumsum([0, *map(len, parts)])
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def _trials(fit: FittedGAM, table: Table) -> AnyNDArray | None:
    trials = fit.spec.trials
    return None if trials is None else NumericColumn(trials, "trials").encode(table)


def _are_numbers(fit: FittedGAM) -> bool:
    """Whether new responses have a mean: not those that are text, or classes without an order."""
    return fit.spec.family.ordered and np.asarray(fit.spec.levels or 0).dtype.kind in "biuf"


def _observed(fit: FittedGAM, draws: AnyNDArray) -> AnyNDArray:
    """New responses as data have them: labels for codes, as numbers where they are numbers."""
    if fit.spec.levels is None:
        return draws
    labels = np.asarray(fit.spec.levels)
    labels = labels.astype(float) if labels.dtype.kind in "biuf" else labels
    return labels[draws.astype(np.intp)]


def _classes(fit: FittedGAM, probabilities: AnyNDArray) -> AnyNDArray:
    if fit.spec.levels is None:
        raise ValueError(f"type='class': family {fit.spec.family.name!r} has no classes.")
    alone = probabilities.ndim == 1
    codes = (probabilities > 0.5).astype(int) if alone else probabilities.argmax(axis=1)
    return np.asarray(fit.spec.levels)[codes]


def _variances(var: AnyNDArray) -> AnyNDArray:
    if var.ndim == 2:
        return var
    return np.maximum(np.diagonal(var, axis1=1, axis2=2), 0.0)


def _draws_at_a_time(number: int, rows: int) -> list[slice]:
    """So many of the draws that what is made on the way to them is small beside them."""
    step = max(1, _TOGETHER // max(rows, 1))
    return [slice(start, min(start + step, number)) for start in range(0, number, step)]


def _contributions(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, names: Sequence[str]
) -> pd.DataFrame:
    """Contributions of components to the predictor, from their means [N, C, L], and of offsets."""
    factor, _ = fit.units
    constants = [fit.constant_of(fit.spec.component(name)) for name in names]
    whole = factor * mean + np.reshape(constants, (1, len(names), fit.num_predictors))
    offset = X[:, [fit.spec.place(c) for c in fit.spec.offset]].sum(axis=1)
    return _offset(fit, _by_column(fit, whole, names), factor[0] * offset)


def _offset(fit: FittedGAM, frame: pd.DataFrame, values: AnyNDArray | float) -> pd.DataFrame:
    """A column more where there are offsets, which the first predictor has."""
    if fit.spec.offset:
        first = fit.spec.predictor_names[0]
        frame[(OFFSET, first) if fit.num_predictors > 1 else OFFSET] = values
    return frame


def _by_column(fit: FittedGAM, values: AnyNDArray, names: Sequence[str]) -> pd.DataFrame:
    """Table of components [N, C, L]: a column each, or one for each predictor that they enter."""
    if fit.num_predictors == 1:
        return pd.DataFrame(values[..., 0], columns=list(names))
    predictors = fit.spec.predictor_names
    entered = [fit.spec.component(name).predictors_of(len(predictors)) for name in names]
    at = [(c, i) for c, places in enumerate(entered) for i in places]
    pairs = [(names[c], predictors[i]) for c, i in at]
    columns = pd.MultiIndex.from_arrays(list(zip(*pairs)) or [[], []])
    return pd.DataFrame(values[:, [c for c, _ in at], [i for _, i in at]], columns=columns)


def density_of_rows(fit: FittedGAM, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """log E_q[p(y | rho(x))] of each row, [N]: held-out rows measure the whole prediction."""
    given = *fit.predictive(X), checked_observations(Y, fit.likelihood)
    return np.asarray(predictive_log_density(fit.likelihood, X, *given))


# --- rows in whatever they come ------------------------------------------------------------------


def log_density(
    fit: FittedGAM, data: Any, of_rows: Averaged = density_of_rows, drop: bool = False
) -> AnyNDArray:
    """Log predictive density of each row's response, [N]."""
    spec, parts = fit.spec, []
    if spec.family.calibrated:  # before rows, which may be wrong as well
        raise ValueError(NO_DENSITIES)
    columns = variables_of([*spec.inputs, *spec.response_columns])
    needed = variables_of([*spec.inputs, *spec.complete_columns])

    def density(table: Table) -> AnyNDArray:
        X, Y = encoded(fit, table), spec.encoded(table, spec.levels).Y
        checked_observations(Y, fit.likelihood, str(spec.response))
        return of_rows(fit, X, Y)

    for start, table in blocks(data, columns):
        with located(start, table.num_rows):
            parts.append(_complete(fit, table, needed, drop, density))
    return np.concatenate(parts)


def blocks(data: Any, columns: list[Column], step: int = BLOCK) -> Iterator[tuple[int, Table]]:
    """Blocks of equal numbers of rows, each with the number of its first."""
    if in_blocks(data):
        start, names = 0, list(dict.fromkeys(columns))
        # the place of a named column is known among all of them only
        named = bool(names) and all(isinstance(name, str) for name in names)
        for table in recut(iter(blocks_of(data, names if named else None, BLOCK)), step):
            yield start, table
            start += table.num_rows
        if start == 0:
            raise ValueError("data has no rows; there is nothing to predict.")
        return
    table = Table(data)
    for start in range(0, max(table.num_rows, 1), step):
        whole = table.num_rows <= step
        yield start, table if whole else table.part(start, start + step)


def labelled(result: Any, data: Any) -> Any:
    """Frames with the labels of the rows of pandas' data, by which pandas puts columns together."""
    index = getattr(data, "index", None)
    if not isinstance(index, pd.Index):
        return result
    if isinstance(result, tuple):
        return tuple(labelled(part, data) for part in result)
    return result.set_axis(index) if isinstance(result, pd.DataFrame) else result


def joined(parts: list[Any]) -> Any:
    """Arrays, frames or tuples of them, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        return tuple(joined(list(part)) for part in zip(*parts))
    if isinstance(parts[0], pd.DataFrame):
        return pd.concat(parts, ignore_index=True)
    return np.concatenate(parts)


def _complete(
    fit: FittedGAM,
    table: Table,
    columns: Iterable[Column],
    drop: bool,
    answer: Callable[[Table], Any],
    axis: int = 0,
) -> Any:
    """Result of ``answer``; with ``drop`` at complete rows, and NaN (None) at the others."""
    lacking = np.zeros(table.num_rows, dtype=bool)
    if drop:
        lacking = Holes().add(filled(table, fit.spec.fills), columns)
    if not lacking.any():
        return answer(table)
    return _spread(answer(table.rows(~lacking)), np.flatnonzero(~lacking), len(lacking), axis)


def _spread(result: Any, places: AnyNDArray, number: int, axis: int) -> Any:
    """Rows at their places among ``number``."""
    if isinstance(result, tuple):
        return tuple(_spread(part, places, number, axis) for part in result)
    if isinstance(result, pd.DataFrame):
        return result.set_axis(places).reindex(range(number))
    shape = list(result.shape)
    shape[axis] = number
    numeric = np.issubdtype(result.dtype, np.floating)
    whole: AnyNDArray = np.full(shape, np.nan if numeric else None, float if numeric else object)
    whole[(slice(None),) * axis + (places,)] = result
    return whole
