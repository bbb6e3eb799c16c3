"""Effects, slopes and differences between levels at points of a grid, as tables with bands."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ...bijectors import frozen_copy
from ...errors import check_choice, check_count, check_level
from ...posteriors.inducing import Block
from ...threads import one_blas_thread
from ..components.plan import By, Component, Margin
from ..fits import FittedGAM
from ..fits.fitted import Inspected, Scale
from ..fits.prediction import Part, Prediction
from ..frames.table import Table, listed
from ..terms.base import Column, Level
from ..terms.smooth import KINDS
from .grid import Grid, make_grid, reader_of
from .posterior import (
    averaged,
    critical_values,
    draws_at,
    joint_moments,
    normal_draws,
    places_of,
    predictor_draws,
    simultaneous_bands,
)

# --- effects on a grid ----------------------------------------------------------------------------


Transform = Callable[[Any], Any]  # A monotone function of an array, value by value

CENTRED = "estimate_centred"  # column of estimates that leave out the means of levels
_INTERVALS = ("", "_simultaneous")
NUMBERS = ("estimate", "se", "lower", "upper", "lower_simultaneous", "upper_simultaneous")
"""Columns of a table of effects beside those of the data."""


def transformed(frame: pd.DataFrame, fun: Transform | None) -> pd.DataFrame:
    """A table with its estimates and ends of intervals through ``fun``, without ``se``."""
    if fun is None:
        return frame
    estimate = "estimate" if "estimate" in frame else CENTRED
    result = {estimate: applied(fun, frame[estimate].to_numpy())}
    for which in _INTERVALS:
        if f"lower{which}" in frame:
            ends = [applied(fun, frame[f"{e}{which}"].to_numpy()) for e in ("lower", "upper")]
            # a function that falls swaps them
            result |= {f"lower{which}": np.minimum(*ends), f"upper{which}": np.maximum(*ends)}
    return frame.assign(**result).drop(columns="se")


def applied(fun: Transform, values: AnyNDArray) -> AnyNDArray:
    """``fun(values)``, of the same shape."""
    if not callable(fun):
        raise TypeError(f"fun must be a function such as numpy.exp; got {fun!r}.")
    result = np.asarray(fun(values), dtype=np.float64)
    if result.shape != values.shape:
        raise ValueError(
            f"fun must give a number for each of {values.shape}; got shape {result.shape}."
        )
    if np.any(np.isnan(result) & ~np.isnan(values)):
        at = float(values[np.isnan(result)][0])
        raise ValueError(f"fun is not a number at {at:g}, which an effect or its interval has.")
    return result


@dataclasses.dataclass(frozen=True)
class EffectTable:
    """An effect on the predictor's scale."""

    component: Component
    where: Grid
    predictors: tuple[str, ...]
    estimate: AnyNDArray
    variance: AnyNDArray
    joint: Callable[[], AnyNDArray]
    level: float
    seed: int

    def __post_init__(self) -> None:
        check_level(self.level)

    @functools.cached_property
    def covariance(self) -> AnyNDArray:
        """Posterior covariance of all points, [L, n, n]."""
        return self.joint()

    @property
    def se(self) -> AnyNDArray:
        """Posterior standard deviations, [n, L]."""
        return np.sqrt(np.maximum(self.variance, 0.0))

    def critical(self, predictor: int = 0) -> tuple[float, float]:
        """Half-widths of the pointwise and the simultaneous band, in standard errors."""
        return critical_values(self.covariance[predictor], self.level, self.seed)

    def numbers(self) -> AnyNDArray:
        """Estimates, standard errors, and the ends of two credible intervals, [6, n, L]."""
        estimate, se = self.estimate, self.se
        widths = [self.critical(i) for i in range(len(self.predictors))]
        ends = [estimate + sign * se * w for w in np.array(widths).T for sign in (-1.0, 1.0)]
        return np.stack([estimate, se, *ends])

    def frame(self) -> pd.DataFrame:
        """The numbers beside the columns of the grid."""
        parts = dict(zip(NUMBERS, self.numbers()))
        return stacked_frame(self.where.columns, parts, "predictor", self.predictors)


def stacked_frame(
    columns: Mapping[Any, Any], parts: Mapping[str, AnyNDArray], what: str, names: Sequence[Any]
) -> pd.DataFrame:
    """Numbers [n, K] beside columns, one class or predictor after the other; named if several."""
    frames, index = [], range(len(next(iter(parts.values()))))
    for k, name in enumerate(names):
        whole = beside(columns, [*NUMBERS, *parts, *([what] if len(names) > 1 else [])])
        if len(names) > 1:
            whole[what] = name
        whole |= {part: values[:, k] for part, values in parts.items()}
        frames.append(pd.DataFrame(whole, index=index))
    return pd.concat(frames, ignore_index=True)


def beside(columns: Mapping[Any, Any], taken: Collection[Any]) -> dict[Any, Any]:
    """Columns of the data, under another name where theirs is taken: ``class (column)``."""
    return {f"{name} (column)" if name in taken else name: v for name, v in columns.items()}


STEP = 1e-4  # half a central difference's width, over a length: .07 % off for waves of a hundredth
_FEW = 300  # points whose covariance costs no more than their variances do


def effect(
    fit: FittedGAM,
    term: str,
    grid: Any = None,
    level: float = 0.95,
    num_points: int | None = None,
    seed: int = 0,
    unconditional: bool = True,
    reference: Mapping[Column, Any] | None = None,
) -> EffectTable:
    """A component at the points of a grid, or its differences from it at other values."""
    component = effect_component(fit, term)
    where = make_grid(fit, component, grid, num_points)
    if reference is not None:
        X = _referred(fit, component, where.X, reference)
        others, which = np.unique(X, axis=0, return_inverse=True)
        both = [(component.name, np.concatenate([where.X, others]))]
        A = np.concatenate([np.eye(len(where.X)), -np.eye(len(others))[which.ravel()]], axis=1)
        moments = joint_moments(fit, both, unconditional)
        return contrast(fit, component, where, A, moments, level, seed)
    blocks = [(component.name, where.X)]
    if len(where.X) <= _FEW:
        # of levels there is nothing between inducing inputs
        left_open = component.form != "means"
        mean, covariance = joint_moments(fit, blocks, unconditional, left_open)
        mean = mean + fit.constant_of(component)
        A = np.eye(len(mean))
        return contrast(fit, component, where, A, (mean, covariance), level, seed)
    mean, variance = joint_moments(fit, blocks, unconditional, pointwise=True)
    entered, names = predictors(fit, component)
    mean = (mean + fit.constant_of(component))[:, entered]

    def joint() -> AnyNDArray:
        return joint_moments(fit, blocks, unconditional)[1][entered]

    return EffectTable(component, where, names, mean, variance[:, entered], joint, level, seed)


def _referred(
    fit: FittedGAM, component: Component, X: AnyNDArray, reference: Mapping[Column, Any]
) -> AnyNDArray:
    """Rows of X with the values of a reference."""
    readers = [reader_of(fit, m) for m in component.margins]
    names = [r.name for r in readers]
    if not isinstance(reference, Mapping) or not reference or not set(reference) <= set(names):
        raise ValueError(
            f"reference must map columns of {component.name}, {', '.join(map(repr, names))}, to "
            f"values with which others are compared; got {reference!r}."
        )
    X = X.copy()
    for i, (margin, reader) in enumerate(zip(component.margins, readers)):
        if reader.name in reference:
            value = pd.Series([reference[reader.name]])
            places = [slot[i] for slot in component.slots] or [margin.column]
            X[:, places] = reader.encode(Table({reader.name: value}))
    return X


def derivative(
    fit: FittedGAM,
    term: str,
    grid: Any = None,
    level: float = 0.95,
    seed: int = 0,
    column: Column | None = None,
) -> EffectTable:
    """The slope of a component in a column, with bands: central differences of the posterior."""
    component = effect_component(fit, term)
    where = make_grid(fit, component, grid)
    numbers = {reader_of(fit, m).name: m for m in component.margins if m.kind != "levels"}
    if component.slots or not numbers:
        raise ValueError(f"derivatives: {term!r} is not a function of one numeric column.")
    if column is None and len(numbers) == 1:
        (column,) = numbers
    if column not in numbers:
        raise ValueError(
            f"derivatives: column must be one of {', '.join(map(repr, numbers))}, the columns of "
            f"numbers of {term!r}; got {column!r}."
        )
    margin = numbers[column]
    if margin.kind in KINDS and not KINDS[margin.kind].has_slope:
        raise ValueError(
            f"derivatives: {term!r} has bs={margin.kind!r}, whose draws have no slope."
        )
    low, high, step = where.X.copy(), where.X.copy(), STEP * margin.length
    low[:, margin.column] -= step
    high[:, margin.column] += step
    moments = joint_moments(fit, [(component.name, np.concatenate([low, high]))])
    one = np.eye(len(low)) / (2.0 * step)
    return contrast(fit, component, where, np.hstack([-one, one]), moments, level, seed)


def contrast(
    fit: FittedGAM,
    component: Component,
    where: Grid,
    A: AnyNDArray,
    moments: tuple[AnyNDArray, AnyNDArray],
    level: float,
    seed: int,
) -> EffectTable:
    """Linear combinations of a component's values, and of what stands beside it."""
    entered, names = predictors(fit, component)
    mean, covariance = A @ moments[0][:, entered], A @ moments[1][entered] @ A.T
    variance = np.diagonal(covariance, axis1=1, axis2=2).T
    return EffectTable(component, where, names, mean, variance, lambda: covariance, level, seed)


def predictors(fit: FittedGAM, component: Component) -> tuple[list[int], tuple[str, ...]]:
    """Places and names of the predictors that a component enters."""
    places = component.predictors_of(fit.num_predictors)
    return places, tuple(fit.spec.predictor_names[i] for i in places)


def effect_component(fit: FittedGAM, term: str) -> Component:
    """The component that is the effect called ``term``."""
    if term == fit.spec.intercept:
        raise ValueError("the intercept is no effect of a column; see summary().")
    return fit.spec.component(term)


Moments = tuple[AnyNDArray, AnyNDArray]


def _means(fit: FittedGAM, component: Component, place: int) -> list[Component]:
    """The components that have the means of a factor's levels, beside curves of a component."""
    entered = component.predictors_of(fit.num_predictors)
    return [
        c
        for c in fit.spec.components
        if c.form in LEVELS
        and c.by is None
        and c.margins[0].column == place
        and set(entered) <= set(c.predictors_of(fit.num_predictors))
    ]


def _at_levels(
    fit: FittedGAM, curves: Sequence[Component], grid: Any
) -> tuple[list[Any], AnyNDArray, Grid, list[Block]]:
    """Levels, their codes, points, and for each level the component there."""
    first, margins = curves[0], {m.kind: m for m in curves[0].margins}
    if len(curves) > 1:
        if grid is None and len(first.margins) == 1 and "levels" not in margins:
            # over the values that the data of all levels cover
            ends = np.array([c.margins[0].ends for c in curves])
            name = fit.spec.term(first.term).columns[0]
            grid = {name: np.linspace(ends.min(), ends.max(), 100)}
        where = make_grid(fit, first, grid)
        grid = where.columns if grid is None else grid
        places = [(c.name, make_grid(fit, c, grid).X) for c in curves]
        by = [c.by for c in curves if c.by is not None]
        codes = np.array([b.code for b in by], dtype=float)
        labels = fit.spec.encoder.readers[by[0].column].shown(codes)
        return list(labels), codes, where, places
    factor = margins.pop("levels")
    codes, reader = np.array(factor.nodes), reader_of(fit, factor)
    labels = reader.shown(codes)
    if not margins:
        X = make_grid(fit, first).X
        shown = Grid({}, X[:1])
    else:
        shown = make_grid(fit, dataclasses.replace(first, margins=tuple(margins.values())), grid)
        ((name, at),) = shown.columns.items()
        rows = {name: np.tile(at, len(labels)), reader.name: np.repeat(labels, len(at))}
        X = make_grid(fit, first, rows).X
    return list(labels), codes, shown, [(first.name, x) for x in np.split(X, len(labels))]


_TOGETHER = 1000  # points of levels whose joint moments are formed at a time, twice


def _pairs(
    fit: FittedGAM, places: Sequence[Block], codes: AnyNDArray, means: Sequence[Component]
) -> Iterator[tuple[tuple[int, int], AnyNDArray, Moments]]:
    """Pairs of levels, their difference as a combination of values, and moments of these."""
    n, M = len(places[0][1]), len(means)
    A = np.hstack([np.eye(n), -np.eye(n), *[np.ones((n, 1)), -np.ones((n, 1))] * M])
    parts = np.array_split(range(len(places)), -(-n * len(places) // _TOGETHER))
    for first, second in itertools.combinations_with_replacement(parts, 2):
        levels = first if first is second else np.concatenate([first, second])
        names = itertools.groupby((places[k] for k in levels), key=lambda block: block[0])
        blocks = [(name, np.concatenate([X for _, X in some])) for name, some in names]
        blocks += [(c.name, c.full(codes[levels, None], fit.spec.encoder.width)) for c in means]
        mean, covariance = joint_moments(fit, blocks)
        number = len(levels)
        for i, j in itertools.combinations(range(number), 2):
            if first is second or i < len(first) <= j:
                own = [(n + m) * number + k for m in range(M) for k in (i, j)]
                rows = np.r_[i * n : (i + 1) * n, j * n : (j + 1) * n, own].astype(int)
                moments = mean[rows], covariance[:, rows[:, None], rows]
                yield (levels[i], levels[j]), A, moments


# --- on the scale of the response -----------------------------------------------------------------


_DRAWS = 4000
_ENTRIES = 2**22  # numbers that draws may be, together


def response_effect(
    fit: FittedGAM,
    term: str,
    grid: Any = None,
    level: float = 0.95,
    num_points: int | None = None,
    seed: int = 0,
    unconditional: bool = True,
) -> pd.DataFrame:
    """The expected response at the points of a grid, as predicted from intercept and effect."""
    check_level(level)
    spec, component = fit.spec, effect_component(fit, term)
    part, where = Part((component.name,)), make_grid(fit, component, grid, num_points)
    if not spec.has_constant(part.components(spec)).all():
        raise ValueError(
            f"scale='response': {term} is added to an intercept, which this GAM does not have; "
            "partial_dependence() averages over the levels that stand in its place."
        )
    uncertain, number = averaged(fit) if unconditional else None, len(where.X)
    asked = Prediction(fit, interval=level, seed=seed, uncertain=uncertain, part=part)
    offset = fit.mean_offset()  # in place of that of the rows
    summary = asked.response(where.X, offset)
    lower, upper = np.asarray(summary.lower), np.asarray(summary.upper)
    S = int(np.clip(_ENTRIES // (number * fit.num_predictors), 500, _DRAWS))
    draws = [
        spec.family.mean(likelihood, F + offset)
        for likelihood, F in draws_at(fit, where.X, asked.names, S, seed, unconditional)
    ]
    low, high = simultaneous_bands(np.concatenate(draws), level)
    ends = lower, upper, np.minimum(low, lower), np.maximum(high, upper)
    numbers = zip(NUMBERS, (summary.estimate, summary.se, *ends))
    parts = {name: values.reshape(number, -1) for name, values in numbers}
    return stacked_frame(where.columns, parts, "class", summary.names or ("",))


# --- coefficients ---------------------------------------------------------------------------------


_LEVELS = 300  # levels of which a joint covariance is held at a time

LEVELS = ("levels", "means", "random")
COEFFICIENTS = ("constant", "line", *LEVELS)
"""Forms of components that are read as numbers."""


def coefficients(
    fit: FittedGAM,
    reference: Level | Mapping[Column, Level] | None = None,
    level: float = 0.95,
    unconditional: bool = True,
    most: int | None = None,
) -> pd.DataFrame:
    """The table of :meth:`gpflow_gam.GAM.coefficients`."""
    check_level(level)
    references = None if reference is None else _references(fit, reference)
    z, rows = float(norm.ppf(0.5 + 0.5 * level)), []
    places: list[tuple[Any, Any]] = []  # column and level
    for component in fit.spec.components:
        if component.form not in COEFFICIENTS:
            continue
        if most is not None and len(component.inducing) > most:
            continue
        for column, labels, mean, covariance in _parts(fit, component, references, unconditional):
            variance = np.diagonal(covariance, axis1=1, axis2=2).T
            sd = np.sqrt(np.maximum(variance, 0.0))
            for i in component.predictors_of(fit.num_predictors):
                where = component.name, fit.spec.predictor_names[i]
                rows += [(*where, *pair) for pair in zip(mean[:, i], sd[:, i])]
                places += [(column, label) for label in labels]
    frame = pd.DataFrame(rows, columns=["term", "predictor", "estimate", "se"])
    for i, name in enumerate(("column", "level")):
        frame.insert(2 + i, name, pd.Series([at[i] for at in places], dtype=object))
    half = z * frame["se"]
    frame = frame.assign(lower=frame["estimate"] - half, upper=frame["estimate"] + half)
    return frame if fit.num_predictors > 1 else frame.drop(columns="predictor")


def _parts(
    fit: FittedGAM,
    component: Component,
    references: dict[str, int] | None,
    unconditional: bool,
) -> Iterator[tuple[Column | None, Sequence[Any], AnyNDArray, AnyNDArray]]:
    """Column and levels of coefficients, their means [n, L] and covariances [L, n, n]."""
    width = fit.spec.encoder.width

    def moments(X: AnyNDArray) -> Moments:
        return joint_moments(fit, [(component.name, X)], unconditional, left_open=False)

    if component.form == "constant":
        points = [(component, np.zeros((1, 0)), 1.0)]
        if references is not None:
            points += _reference_points(fit, references)
        blocks = [(c.name, c.full(x, width)) for c, x, _ in points]
        mean, covariance = joint_moments(fit, blocks, unconditional, left_open=False)
        a = np.array([[weight for _, _, weight in points]])
        yield None, [None], a @ mean + fit.constant_of(component), a @ covariance @ a.T
        return
    if component.form == "line":
        (margin,) = component.margins
        # by a number the line crosses zero at zero, and at its centre otherwise
        varying = component.by is not None and component.by.code is None
        start = 0.0 if varying else margin.centre
        X = component.full(np.array([[start + margin.span]]), width)
        mean, covariance = moments(X)
        run = X[0, margin.column] - start  # as rounded
        name = fit.spec.encoder.readers[margin.column].name
        yield name, [None], mean / run, covariance / run**2
        return
    where = make_grid(fit, component)
    ((name, labels),) = where.columns.items()
    against = None if references is None else references.get(component.name)
    extra = [] if against is None else [against]
    for first in range(0, len(labels), _LEVELS):
        at = np.arange(first, min(first + _LEVELS, len(labels)))
        mean, covariance = moments(where.X[[*at, *extra]])
        A = np.eye(len(at), len(at) + len(extra))
        A[:, len(at) :] = -1.0
        A[np.isin(at, extra)] = 0.0
        yield name, labels[at], A @ (mean + fit.constant_of(component)), A @ covariance @ A.T


def _reference_points(
    fit: FittedGAM, references: dict[str, int]
) -> list[tuple[Component, AnyNDArray, float]]:
    """Contributions to the intercept at reference levels: components, inputs, and weights."""
    spec = fit.spec
    codes = {}
    points = []
    for name, place in references.items():
        component = spec.component(name)
        (margin,) = component.margins
        codes[margin.column] = margin.nodes[place]
        if component.by is None:  # slopes are those of a column, at zero of it
            points.append((component, np.array([[margin.nodes[place]]]), 1.0))
    for component in spec.components:
        by, share = component.by, 1.0
        if component.form != "line" or (by is not None and by.code is None):
            continue  # a number that multiplies a line: at zero of it, too
        if by is not None:
            if by.column in codes:
                share = float(codes[by.column] == by.code)
            else:
                values, weights = fit.marginal(by.column)
                share = float(np.sum(weights[values == by.code]) / np.sum(weights))
        points.append((component, np.zeros((1, 1)), share))
    return points


def _references(fit: FittedGAM, reference: Level | Mapping[Column, Level]) -> dict[str, int]:
    """The place among its levels of what each named component is compared with."""
    spec = fit.spec
    components = [c for c in spec.components if c.form in LEVELS]
    names = {c.name: spec.encoder.readers[c.margins[0].column].name for c in components}
    if not isinstance(reference, Mapping):
        if len(names) != 1:
            raise ValueError(
                f"reference={reference!r} could be of {len(names)} terms; name the column, as in "
                f"reference={{{next(iter(names.values()), 'g')!r}: {reference!r}}}."
            )
        reference = {next(iter(names)): reference}
    result: dict[str, int] = {}
    for key, value in reference.items():
        own = [name for name, column in names.items() if key in (name, column)]
        if not own:  # perhaps a term as it was typed
            with contextlib.suppress(ValueError):
                own = [c.name for c in spec.called(str(key)) if c.name in names]
        if not own:
            made = spec.design is not None and key in spec.design.variables
            coded = ". The formula makes lines of it, levels against the first: see names" * made
            raise ValueError(
                f"reference: there is no factor {key!r}; there are {', '.join(names) or 'none'}"
                f"{coded}."
            )
        for name in own:
            (labels,) = make_grid(fit, spec.component(name)).columns.values()
            places = [i for i, label in enumerate(labels) if label == value]
            if not places:
                raise ValueError(
                    f"reference: {name} has no level {value!r}; its levels are {listed(labels)}."
                )
            result[name] = places[0]
    return result


# --- what users call ------------------------------------------------------------------------------


class Effects(Inspected):
    """Effects of a fitted GAM."""

    def effects(
        self,
        term: str | None = None,
        grid: Any = None,
        *,
        reference: Mapping[Column, Any] | None = None,
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
        fun: Transform | None = None,
        scale: Scale = "link",
    ) -> pd.DataFrame:
        """
        An effect, or all of them, with standard errors, pointwise and simultaneous bands.

        With ``scale="response"`` it is the expected response along the effect, as gratia's
        ``add_constant`` and the inverse link make it of a smooth: intercept and this effect
        together, their covariance included, all other effects at zero, which is their average over
        the data, and offsets at their mean. It is what :meth:`predict` says of this term alone. A
        mean over rows of the data, past the link, is :meth:`partial_dependence`.

        :param term: its name, such as ``"s(x)"`` (see :attr:`names`), or the term as it was typed,
            such as ``"s(g, bs='re')"``; by default every effect, one after the other.
        :param grid: where: values of its column, a dict of columns or a DataFrame; by default an
            even grid over the data. Of all effects a dict or DataFrame. Of a term that is summed
            over lags or arrays, points of the function that is summed; or the sums, of arrays, or
            of values that are the same at all lags, where no ``lag`` is given.
        :param reference: of one effect, values with which others are compared: ``{"temp": 21}``
            gives the effect at each point less that where ``temp`` is 21.
        :param level: probability of the credible interval.
        :param num_points: of the default grid, per axis.
        :param unconditional: whether uncertainty allows for uncertain hyperparameters, which takes
            some seconds the first time, as those of :meth:`predict` do, and that of one predictor
            of several for the others, and that of a single one for the likelihood's parameters;
            :attr:`posterior`, and ``sample(unconditional=False)``, take them as known.
        :param fun: a monotone function through which the estimate and the interval go, such as
            ``numpy.exp``: under a log link an effect is then the factor by which it multiplies
            the expected response, and one of the odds under a logit link. There is no ``se`` then,
            which is the predictor's.
        :param scale: ``"link"``, the predictor in the response's unit, or ``"response"``.
        :return: the grid's columns, ``estimate``, ``se``, ``lower``, ``upper``,
            ``lower_simultaneous``, ``upper_simultaneous``; ``predictor`` where there are several,
            or ``class`` of a response with classes. Of all effects ``term`` is first, and columns
            that an effect is not of are missing in its rows. On the response's scale ``se`` is NaN,
            with a :class:`HeavyTailWarning`, where it would say nothing: see :meth:`predict`.
        :raises ValueError: naming the argument.
        """
        if reference is not None and (term is None or scale == "response"):
            raise ValueError("reference is of one effect, on scale='link'; name the effect.")
        if term is None:
            options = {"level": level, "num_points": num_points, "unconditional": unconditional}
            return self._every_effect(grid, fun=fun, scale=scale, **options)
        asked = term, grid, level, num_points, self.seed, unconditional
        check_choice("scale", scale, ("link", "response"))
        if scale == "response":
            if fun is not None:
                raise ValueError(
                    "fun takes effects through a function on scale='link'; with scale='response' "
                    "they are through the inverse link already. Leave one of the two out."
                )
            return response_effect(self.fitted, *asked)
        table = effect(self.fitted, *asked, reference)
        return transformed(table.frame(), fun)

    def _every_effect(self, grid: Any, **options: Any) -> pd.DataFrame:
        if grid is not None and not isinstance(grid, Mapping) and not hasattr(grid, "columns"):
            raise ValueError(
                "grid must be a dict or DataFrame of columns where it is for all effects; got "
                f"{type(grid).__name__}. Name one effect to give values of its column."
            )
        frames = []
        for name in self.fitted.spec.effect_names:
            frame = self.effects(name, grid, **options)
            if "term" in frame:
                raise ValueError(
                    f"effects(): {name} is of a column 'term', which is what the table calls "
                    "effects; ask for one effect at a time."
                )
            frame.insert(0, "term", name)
            frames.append(frame)
        if not frames:
            raise ValueError("effects(): the GAM has no effects; see coefficients().")
        whole = pd.concat(frames, ignore_index=True)
        # what they are of is left of the numbers
        return whole[sorted(whole, key=lambda name: name in NUMBERS)]

    def coefficients(
        self,
        reference: Level | Mapping[Column, Level] | None = None,
        *,
        level: float = 0.95,
        unconditional: bool = True,
        fun: Transform | None = None,
    ) -> pd.DataFrame:
        """
        Coefficients: effects that are single numbers, on the predictor's scale.

        - The intercept: the predictor where every effect is zero, which each is on average over
          the data; offsets left out. With ``reference`` it is the predictor at the reference levels
          and at zero of each straight line's column, as ``glm`` prints it; smooths, and levels that
          are not named, stay at their average.
        - The slope of each ``linear`` term, in units of the response (behind its link) per unit of
          the column; shrunk only with ``linear(..., shrink=True)``.
        - The effect of each level of ``factor`` and ``random_effect``: those of a factor average
          to zero over the data, or, with ``reference``, are differences from one level.

        :param reference: a level of the only factor, or levels by column (or name of the term), as
            ``{"clinic": "north"}``: the table then is of treatment contrasts. ``{}`` names none, so
            that straight lines alone move.
        :param fun: as in :meth:`effects`, as ``level`` and ``unconditional`` are: the exponential
            of a slope is a ratio, of means under a log link and of odds under a logit link.
        :return: a row a coefficient: ``term``, ``predictor`` where there are several, ``column``,
            ``level``, ``estimate``, ``se``, ``lower``, ``upper``.
        :raises ValueError: naming the argument.
        """
        result = coefficients(self.fitted, reference, level, unconditional)
        return transformed(result, fun)

    def derivatives(
        self,
        term: str,
        grid: Any = None,
        *,
        column: Column | None = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """
        The slope of an effect in a column, with bands.

        Of what predictions do, past a link and in all terms together, see :meth:`avg_slopes`.

        :param term: its name.
        :param grid: where; by default an even grid over the data.
        :param column: of an effect of several numbers, in which of them.
        :param level: probability of the credible interval.
        :return: as :meth:`effects`, in units of the predictor per unit of the column.
        :raises ValueError: an effect without a slope, or a bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        return derivative(self.fitted, term, grid, level, self.seed, column).frame()

    def differences(
        self,
        term: str,
        *,
        level: float = 0.95,
        grid: Any = None,
        fun: Transform | None = None,
        group_means: bool = False,
    ) -> pd.DataFrame:
        """
        Differences between levels: of a factor's effects, or of the curves of a ``by=`` factor.

        Curves of a ``by=`` factor are centred, each over its own level's data: what levels differ
        by on average is the factor's own term. Their differences are ``estimate_centred``;
        ``group_means=True`` adds those of the means, and the column is ``estimate``.

        :param term: the factor's name, or the label of the smooth (``"s(x):g"``).
        :param level: probability of the credible interval.
        :param grid: for curves, where.
        :param fun: as in :meth:`effects`; the exponential of a difference is a ratio.
        :param group_means: adds the differences of the levels' means, which the terms
            ``factor("g")`` and ``random_effect("g")`` have, to those of curves.
        :return: ``level_1``, ``level_2`` and, for ``level_1 - level_2``, the columns of
            :meth:`effects`.
        :raises ValueError: an effect without levels, ``group_means`` where no term has them, or a
            bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        fit, seed = self.fitted, self.seed
        curves = fit.spec.called(term)
        component = curves[0] if len(curves) > 1 else effect_component(fit, term)
        factor: By | Margin | None = component.by
        if len(curves) == 1:
            factor = next((m for m in component.margins if m.kind == "levels"), None)
        several = len(curves) > 1 or component.form in ("curves", "deviations")
        if factor is None or not (several or component.form in (*LEVELS, "areas")):
            raise ValueError(f"differences: {term!r} has no levels to compare.")
        means = _means(fit, component, factor.column) if several else []
        if group_means and len(curves) > 1 and not means:
            name = fit.spec.encoder.readers[factor.column].name
            raise ValueError(
                f"group_means=True: no term has the means of the levels of {name!r}; add "
                f"factor({name!r}) to the terms, or leave group_means out."
            )
        centred = not group_means and (component.form != "own" if len(curves) > 1 else bool(means))
        labels, codes, where, places = _at_levels(fit, curves, grid)
        pairs, numbers = [], []
        for pair, A, moments in _pairs(fit, places, codes, means if group_means else []):
            pairs.append(pair)
            numbers.append(contrast(fit, component, where, A, moments, level, seed).numbers())
        order = sorted(range(len(pairs)), key=pairs.__getitem__)
        n, names = len(where.X), predictors(fit, component)[1]
        which = np.repeat([pairs[k] for k in order], n, axis=0)
        columns: dict[Column, Any] = {
            f"level_{i + 1}": [labels[k] for k in which[:, i]] for i in range(2)
        }
        at = {name: np.tile(values, len(pairs)) for name, values in where.columns.items()}
        columns |= beside(at, columns)
        parts = dict(zip(NUMBERS, np.concatenate([numbers[k] for k in order], axis=1)))
        frame = stacked_frame(columns, parts, "predictor", names)
        # a pair's predictors stand below each other
        row = np.tile(np.arange(len(which)) // n, len(names))
        frame = frame.iloc[np.argsort(row, kind="stable")].reset_index(drop=True)
        return transformed(frame.rename(columns={"estimate": CENTRED}) if centred else frame, fun)

    def sample_effects(
        self,
        term: str,
        grid: Any = None,
        num_samples: int = 100,
        *,
        seed: int | None = None,
        reference: Mapping[Column, Any] | None = None,
    ) -> AnyNDArray:
        """
        Joint posterior draws of a component, [S, N] ([S, N, L] for several predictors).

        Each draw of a term that has a shape has it. ``term``, ``grid`` and ``reference`` are as of
        :meth:`effects`. Draws of different terms say nothing of each other: those of
        ``sample(data, type="link", terms=[...], intercept=False)`` are of a sum of terms.

        :param num_samples: S.
        :param seed: the GAM's own by default.
        :raises ValueError: an unknown effect, or a bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        fit, seed = self.fitted, self._chosen_seed(seed)
        check_count("num_samples", num_samples)
        component = effect_component(fit, term)
        if component.shape:  # whose draws are not normal
            at = [make_grid(fit, component, grid).X]
            at += [] if reference is None else [_referred(fit, component, at[0], reference)]
            places = [places_of(fit, component.name, at)]
            with one_blas_thread():
                every = list(predictor_draws(fit, places, len(at), num_samples, seed))
            parts = np.concatenate([f[0] if len(f) == 1 else f[0] - f[1] for _, f in every])
            chosen = np.random.default_rng(seed).permutation(len(parts))[:num_samples]
            shaped = (fit.units[0] * parts[chosen])[..., predictors(fit, component)[0]]
            return shaped[..., 0] if shaped.shape[-1] == 1 else shaped
        table = effect(fit, term, grid, reference=reference)
        rng = np.random.default_rng([seed, fit.spec.names.index(component.name)])
        draws = [
            table.estimate[:, i] + normal_draws(table.covariance[i], num_samples, rng)
            for i in range(len(table.predictors))
        ]
        return draws[0] if len(draws) == 1 else np.stack(draws, axis=-1)

    def prior_effects(
        self, term: str, grid: Any = None, num_samples: int = 100, *, seed: int | None = None
    ) -> AnyNDArray:
        """
        Draws of a component from its prior, [S, N]: what is assumed before data are seen.

        Hyperparameters are drawn with it. The default priors of variances say next to nothing:
        draws under them are of all sizes. With ``prior=`` of a term they show what that means.
        ``term``, ``grid``, ``num_samples`` and ``seed`` are as of :meth:`sample_effects`.

        :raises ValueError: an unknown effect, one with a shape, or a bad argument, naming it.
        :raises TypeError: ``term`` is no name.
        """
        fit, seed = self.fitted, self._chosen_seed(seed)
        check_count("num_samples", num_samples)
        component = effect_component(fit, term)
        if component.shape:
            raise ValueError(
                f"{term} has a shape, to which draws from its prior do not hold; leave shape out "
                "to see what is assumed of size and smoothness."
            )
        X = make_grid(fit, component, grid).X
        kernel = frozen_copy(fit.model.kernel[component.name])
        learnt: list[Any] = [p for p in kernel.parameters if p.prior is not None]
        unit = fit.units[0][predictors(fit, component)[0][0]]
        rng = np.random.default_rng([seed, fit.spec.names.index(component.name)])
        seeds = rng.integers(2**31, size=(len(learnt), 2))
        values = [p.prior.sample(num_samples, seed=own) for p, own in zip(learnt, seeds)]
        result = np.zeros((num_samples, len(X)))
        for i, draw in enumerate(result):
            for p, value in zip(learnt, values):
                p.assign(value[i])
            draw[:] = unit * normal_draws(np.asarray(kernel(X)), 1, rng)[0]
        return result
