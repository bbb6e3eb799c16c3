"""Components: what terms and data settle before a kernel is built."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ...errors import ResolutionWarning, warn_caller
from ...kernels.shaped import Basis, LevelBasis, SplineBasis, grid
from ...kernels.terms import unit_vectors
from ...measures import NUM_NODES, Empirical, bin_means, cluster_means, weighted_quantiles
from ...optimizers.binned.bins import Columns, HeldColumns, Level
from ...threads import one_blas_thread
from ..frames.encoding import (
    Element,
    Encoder,
    Key,
    LevelColumn,
    NumericColumn,
    learn_levels,
    numeric_column,
)
from ..frames.table import Table, listed
from ..terms import Terms
from ..terms.base import Column, Term, column_of
from ..terms.parametric import Levels, Linear, RandomEffect
from ..terms.smooth import (
    DEFAULT,
    KINDS,
    LEAST_SPLINES,
    FactorSmooth,
    Interaction,
    Lag,
    MarkovField,
    Smooth,
    SmoothTerm,
    Tensor,
)

NUM_INDUCING = {1: 24, 2: 36}
"""Default number of inducing inputs of a component, by its number of columns; 50 beyond."""


Form = str
"""
"constant", "smooth", "tensor", "interaction", "line", "levels", "means" (levels and the constant),
"random", "own" (a user's kernel), "curves", "deviations" or "areas".
"""


@dataclasses.dataclass(frozen=True)
class Margin:
    """One column of a component."""

    column: int  # its place in X
    kind: str  # the kind of kernel: one of bs, or "levels"
    span: float = 1.0  # its natural length, in its own unit: what a lengthscale is compared with
    centre: float = 0.0  # its mean
    period: float | None = None  # of a cyclic one
    # values that stand for its distribution, [Q]; the component averages to zero over them
    nodes: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()  # their probabilities, [Q]
    # of numbers, the least and the greatest value of rows on which the component acts
    ends: tuple[float, float] = (0.0, 0.0)
    breaks: tuple[float, ...] = ()  # of the splines that a function with a shape is made of
    shape: str = ""  # what the function is along it, "increasing" for one; empty for anything

    @property
    def length(self) -> float:
        """Its span, or its period where that is shorter."""
        return min(self.span, self.period or self.span)


@dataclasses.dataclass(frozen=True)
class By:
    """Multiplier of a component: a number, or the indicator of a level."""

    column: int  # its place in X
    code: int | None = None  # of the level on which the component acts; None for a number
    level: str = ""  # that level as text
    size: float = 1.0  # the root mean square of the number; of weights, of the sum of their sizes
    # whether it is weights with the same sum in all rows: its constant is the intercept's
    constant: bool = False


@dataclasses.dataclass(frozen=True)
class Component:
    """One component of the predictor, ready to be built; all of it is JSON."""

    name: str  # its name in the model, unique
    term: str  # the label of the term it comes from; empty for the intercept
    form: Form  # what sort of function it is
    margins: tuple[Margin, ...] = ()  # its columns
    by: By | None = None  # what multiplies it
    # rows that stand for the joint distribution of its columns, [Q, d]; empty where each margin has
    # its own
    nodes: tuple[tuple[float, ...], ...] = ()
    weights: tuple[float, ...] = ()  # their probabilities
    # inducing inputs [M, d], in the order of the margins
    inducing: tuple[tuple[float, ...], ...] = ()
    predictors: tuple[int, ...] = ()  # places of the predictors that it enters; empty for all
    knots: tuple[float, ...] = ()  # where the speed of an adaptive function is learnt
    # of a line or levels, whether their variance is learnt, not large and fixed
    shrink: bool = True
    select: bool = False  # of a smooth, whether it shall vanish where it is not there
    # whether areas have independent effects, too. Where each has a row of its own these cannot be
    # told from the noise.
    independent: bool = True
    # of a term that is summed over evaluations of its function, the columns of X of each: those of
    # the margins, and that of the weight. The first are the margins' and by's own.
    slots: tuple[tuple[int, ...], ...] = ()

    @property
    def varying(self) -> bool:
        """True if a number multiplies the function, so that its level is part of it."""
        return self.by is not None and self.by.code is None and not self.by.constant

    @property
    def carries_constant(self) -> bool:
        """True if the predictor's constant is part of it."""
        return self.form in ("constant", "means")

    @property
    def shape(self) -> str:
        """Shape of the function along one of its columns; empty for any."""
        return next((m.shape for m in self.margins if m.shape), "")

    def predictors_of(self, number: int) -> list[int]:
        """Places of the predictors that it enters, of so many."""
        return list(self.predictors) or list(range(number))

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of X it reads, ``by`` last."""
        if self.slots:
            return tuple(column for slot in self.slots for column in slot)
        columns = tuple(m.column for m in self.margins)
        return columns if self.by is None else (*columns, self.by.column)

    def full(self, points: AnyNDArray, width: int) -> AnyNDArray:
        """Rows of X at which the component is the function itself."""
        X = np.zeros((len(points), width))
        for i, margin in enumerate(self.margins):
            X[:, margin.column] = points[:, i]
        if self.by is not None:
            X[:, self.by.column] = 1.0 if self.by.code is None else self.by.code
        return X

    def acting(self, X: AnyNDArray) -> AnyNDArray | slice:
        """Rows of X [N, D] of the level of which it is; all where it is of none."""
        by = self.by
        return slice(None) if by is None or by.code is None else X[:, by.column] == by.code

    def multiplier(self, X: AnyNDArray) -> AnyNDArray:
        """What multiplies the function in rows X [N, D], [N]."""
        if self.by is None:
            return np.ones(len(X))
        x = X[:, self.by.column]
        return x if self.by.code is None else np.asarray(x == self.by.code, dtype=np.float64)

    def points(self, X: AnyNDArray) -> AnyNDArray:
        """Points [n, d] at which the function is evaluated in rows X [N, D]."""
        if not self.slots:
            return X[:, [m.column for m in self.margins]]
        values = X[:, np.array(self.slots)].reshape(-1, len(self.margins) + 1)
        return values[values[:, -1] != 0.0, :-1]

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it: Python writes floats so that they read back to the last bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Component:
        def frozen(v: Any) -> Any:
            return tuple(frozen(x) for x in v) if isinstance(v, list) else v

        others = ("margins", "by", "edges", "of_lags")  # the last two are of older files
        fields = {name: frozen(v) for name, v in value.items() if name not in others}
        margins = tuple(Margin(**{k: frozen(v) for k, v in m.items()}) for m in value["margins"])
        by = None if value["by"] is None else By(**value["by"])
        return cls(margins=margins, by=by, **fields)


NUM_INDUCING_EACH = 10  # inducing inputs of each level's curve
_ALL_INDUCING = 400
"""Inducing inputs of all levels together, unless each would have fewer than the least."""
_LEAST_EACH = 4
_NODES = 200  # nodes on which all curves together average to zero, about
LATITUDE = (-90.0, 90.0)  # degrees that a latitude may have
LONGITUDE = (-360.0, 360.0)
"""Degrees that a longitude may have: both from -180 to 180 and from 0 to 360 are usual."""
_TURN = 360.0
NUM_KNOTS = 6  # most knots at which the speed of an adaptive smooth is learnt
_MEMORY = 10.0  # spacings of values that count as the span of what forgets quickly
NUM_SPLINES = {1: 24, 2: 9, 3: 6}
"""Default number of splines of a column, by the number of columns of numbers; 4 beyond."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """Data of a component."""

    # least, 2.5 % point, 97.5 % point and greatest of each column over all rows: the levels of a
    # factor share their prior
    reach: AnyNDArray
    ends: AnyNDArray  # least and greatest of each column over the rows on which it acts, [d, 2]
    points: AnyNDArray  # distinct rows on which it acts, or what stands for them, [n, d]
    weights: AnyNDArray  # their total weights
    exact: bool  # whether they are the distinct rows

    @classmethod
    def of(cls, columns: Columns, places: list[int], level: Level | None = None) -> Seen:
        bins, everywhere = columns.bins(tuple(places)), columns.mass(tuple(places))
        seen = everywhere > 0.0
        levels = [0.0, 0.025, 0.975, 1.0]
        if bins.exact:
            reach = np.quantile(bins.points[seen], levels, axis=0)
        else:
            values, shares = bins.points[seen].T, everywhere[seen]
            reach = np.stack([weighted_quantiles(v, shares, levels) for v in values], axis=1)
        mass = everywhere if level is None else columns.mass(tuple(places), level)
        acts = mass > 0.0
        ends = np.array([columns.value_range(place, level) for place in places])
        return cls(reach, ends, bins.points[acts], mass[acts], bins.exact)

    def column(self, i: int) -> tuple[AnyNDArray, AnyNDArray]:
        """The distinct values of a column and their total weights."""
        values, inverse = np.unique(self.points[:, i], return_inverse=True)
        return values, np.bincount(inverse, self.weights)


def inducing_inputs(
    term: Term, form: Form, margins: tuple[Margin, ...], data: Seen, seed: int, varying: bool
) -> AnyNDArray:
    """Inducing inputs [M, d]: of levels all that are not given by others; some of many values."""
    points, first = data.points, margins[0]
    d, k = points.shape[1], getattr(term, "k", None)
    if any(m.shape for m in margins):
        return grid([basis.places for basis in bases_of(margins)])  # where coefficients are
    if isinstance(term, FactorSmooth):
        return _of_curves(term, margins, points)
    if form == "line":
        return np.array([[first.centre + first.span]])
    if form in ("random", "means"):
        return points
    if form == "areas":  # data may come of those that have none
        codes = np.array(first.nodes)[:, None]
        return codes if varying else np.delete(codes, int(np.argmax(first.weights)), axis=0)
    if form == "levels":
        return _without_commonest(data)
    kind = KINDS[term.kind if isinstance(term, Smooth) else DEFAULT]
    number = k or kind.num_inducing or NUM_INDUCING.get(d, 50)
    if len(points) <= number:
        # an interaction is centred over each margin, not over these points
        joint = not isinstance(term, Interaction) or all(m.kind == "levels" for m in margins)
        centred = form != "own" and not varying and len(points) <= NUM_NODES.get(d, 150)
        return _without_commonest(data) if centred and joint else points
    if kind.rough and isinstance(term, Smooth):
        if k is None:
            warn_caller(
                f"{term.label} has {number} inducing inputs for {len(points)} values or more: what "
                "changes faster than from one to the next is taken for noise. Set k=, up to the "
                "number of values (time grows with its cube), or bin the column.",
                ResolutionWarning,
            )
        # values themselves: half way between two of them a rough function says little of either
        places = np.linspace(0.0, len(points) - 1.0, number).round().astype(int)
        return np.asarray(np.sort(points, axis=0)[np.unique(places)])
    if d == 1 and first.kind == "cyclic":
        assert first.period is not None
        phases = np.unique(np.mod(points[:, 0], first.period))
        if len(phases) > number:
            phases = np.arange(number) * (first.period / number)
        return phases[:, None]
    if d == 1 and data.exact:
        return _quantiles(points[:, 0], number)[:, None]
    if d == 1:
        even = np.linspace(0.0, 1.0, number)
        return weighted_quantiles(points[:, 0], data.weights, even)[:, None]
    return fewer_points(data, [m.kind for m in margins], number, seed)[0]


def fewer_points(
    data: Seen, kinds: Sequence[str], number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Points [M, d] that stand for data, and their probabilities: means of clusters of many."""
    points, weights = data.points, data.weights
    share = weights / weights.sum()
    if len(points) <= number:
        return points, share
    if "sos" in kinds:  # clusters in space
        centres, mass = cluster_means(unit_vectors(points), weights, number, seed)
        x, y, z = centres.T
        return np.rad2deg([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]).T, mass
    levels = [i for i, kind in enumerate(kinds) if kind == "levels"]
    if not levels:
        return cluster_means(points, weights, number, seed)
    # Each combination of levels has points of its own, or, if there are too many, they are drawn.
    _, groups = np.unique(points[:, levels], axis=0, return_inverse=True)
    sizes = np.bincount(groups.ravel())
    if 2 * len(sizes) > number:
        rows = np.sort(
            np.random.default_rng(seed).choice(len(points), number, replace=False, p=share)
        )
        return points[rows], np.full(number, 1.0 / number)
    each = next(n for n in range(number, 0, -1) if np.minimum(sizes, n).sum() <= number)
    numbers = [i for i in range(points.shape[1]) if i not in levels]
    result, masses = [], []
    for group in range(len(sizes)):
        members, mass = points[groups.ravel() == group], share[groups.ravel() == group]
        if len(members) > each:
            values, shares = _clusters(members[:, numbers], mass, each, seed)
            members, mass = np.repeat(members[:1], len(values), axis=0), mass.sum() * shares
            members[:, numbers] = values
        result.append(members)
        masses.append(mass)
    return np.concatenate(result), np.concatenate(masses)


def _clusters(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    if points.shape[1] > 1:
        return cluster_means(points, weights, number, seed)
    order = np.argsort(points[:, 0])
    values, shares = bin_means(points[order, 0], weights[order], number)
    return values[:, None], shares


def _without_commonest(data: Seen) -> AnyNDArray:
    """All points but the one of most weight, innermost of equals: it follows from the others."""
    # a rare one would be a difference of large numbers
    away = np.abs(data.points - np.average(data.points, axis=0, weights=data.weights))
    inner = np.max(away / np.maximum(np.ptp(data.points, axis=0), 1e-300), axis=1)
    first = np.lexsort((np.round(inner, 9), -data.weights))[0]
    return np.delete(data.points, first, axis=0)


# --- a curve a level -----------------------------------------------------------------------------


def inducing_each(number: int) -> int:
    """Default number of inducing inputs of each of ``number`` levels."""
    return max(min(NUM_INDUCING_EACH, _ALL_INDUCING // number), _LEAST_EACH)


def _of_curves(term: FactorSmooth, margins: tuple[Margin, ...], points: AnyNDArray) -> AnyNDArray:
    """Inducing inputs [M, 2]: quantiles of each level's own values, or, of deviations, of all."""
    place = int(margins[0].kind == "levels")  # of the number
    x, codes = points[:, place], points[:, 1 - place]
    levels = np.unique(codes)
    each = term.k or inducing_each(len(levels))
    if term.bs == "sz":  # they sum to zero: the last level follows from the others
        shared = _quantiles(np.unique(x), each)
        parts = [(shared, level) for level in levels[:-1]]
    else:
        parts = [(_quantiles(np.unique(x[codes == level]), each), level) for level in levels]
    Z = np.concatenate([np.column_stack([inputs, np.full(len(inputs), c)]) for inputs, c in parts])
    return Z[:, ::-1] if place else Z


def _quantiles(values: AnyNDArray, number: int) -> AnyNDArray:
    """Even quantiles of distinct values, all of them where they are few."""
    if len(values) <= number:
        return values
    return np.asarray(np.quantile(values, np.linspace(0.0, 1.0, number)))


# --- shapes --------------------------------------------------------------------------------------


def with_breaks(
    term: Term, margins: tuple[Margin, ...], values: Sequence[AnyNDArray]
) -> tuple[Margin, ...]:
    """The margins of a term, with breaks and shapes where it asks for a shape."""
    if not isinstance(term, SmoothTerm) or not term.shapes:
        return margins
    for name, margin, shape in zip(term.columns, margins, term.shapes):
        if shape and margin.kind == "levels":
            raise ValueError(
                f"{term.label}: shape={shape!r} is along {name!r}, which has levels; shapes are "
                "of numbers."
            )
    numbers = sum(m.kind != "levels" for m in margins)
    each = NUM_SPLINES.get(numbers, LEAST_SPLINES)
    if term.k is not None:
        each = max(LEAST_SPLINES, round(float(term.k) ** (1.0 / numbers)))
    return tuple(
        dataclasses.replace(m, breaks=_breaks(m, v, each), shape=shape or "")
        for m, v, shape in zip(margins, values, term.shapes)
    )


def _breaks(margin: Margin, values: AnyNDArray, number: int) -> tuple[float, ...]:
    """Codes of levels; or breaks half way between even quantiles of values and even steps."""
    if margin.kind == "levels":
        return tuple(values.tolist())
    number = max(LEAST_SPLINES, min(number, len(values))) - 1
    share = np.linspace(0.0, 1.0, number)
    even = values[0] + share * (values[-1] - values[0])
    return tuple((0.5 * even + 0.5 * np.quantile(values, share)).tolist())


def bases_of(margins: Sequence[Margin]) -> list[Basis]:
    """The splines on each margin; straight beyond the ends where that keeps the shape."""
    return [
        LevelBasis(np.array(m.breaks))
        if m.kind == "levels"
        else SplineBasis(np.array(m.breaks), straight=bool(m.shape))
        for m in margins
    ]


def shaped_term(components: Sequence[Component]) -> str:
    """The label of the first term that has a shape; empty where none has."""
    return next((c.term for c in components if c.shape), "")


# --- from terms and data to components ------------------------------------------------------------


INTERCEPT = "intercept"
"""Name of the constant, among components and in tables."""
_LEAST = 1e-100  # below which products of a few numbers may be zero


def keys_of(term: Term, table: Table) -> list[Key]:
    """Columns of ``table`` that a term reads, each as a number or a level, ``by`` last."""
    if isinstance(term, (Levels, MarkovField)):
        keys: list[Key] = [(term.columns[0], "level")]
    elif isinstance(term, FactorSmooth):
        factor = _factor_of(term, table)
        keys = [(c, "level" if c == factor else "number") for c in term.columns]
    elif isinstance(term, Tensor):
        keys = [(c, "level" if table.is_levels(c) else "number") for c in term.columns]
    else:
        keys = [(c, "number") for c in term.columns]
    by = term.by
    if by is not None:
        name = column_of(by)
        by_level = not isinstance(term, RandomEffect) and (
            isinstance(by, Term) or table.is_levels(name)
        )
        keys.append((name, "level" if by_level else "number"))
    return keys


def _factor_of(term: FactorSmooth, table: Table) -> Column:
    """The factor among a term's two columns."""
    factors = [c for c in term.columns if table.is_levels(c)]
    if len(factors) == 2:
        raise ValueError(
            f"{term.label}: bs={term.bs!r} takes a number and a factor; {factors[0]!r} and "
            f"{factors[1]!r} are both of levels. For what two factors do together write te(), or "
            "one random_effect() of a column that has their combinations."
        )
    return factors[0] if factors else term.columns[-1]


def entering(
    components: Iterable[Component], terms: Terms, parameters: Sequence[str], of_first: bool = False
) -> tuple[Component, ...]:
    """The components in the predictors of their terms, without intercepts taken away."""
    places = {name: i for i, name in enumerate(parameters)}
    for term in terms:
        if term.parameter and term.parameter not in places:
            raise ValueError(
                f"terms: there is no {term.parameter!r} that could have {term.label}; there are "
                f"{', '.join(parameters)}."
            )
    predictors = {t.label: (places[t.parameter],) for t in terms if t.parameter}
    if of_first and len(parameters) > 1:
        predictors = {t.label: (0,) for t in terms if not t.parameter} | predictors
    number = len(parameters)
    every = tuple(range(number))
    shared = (0,) if of_first else every
    without = {i for n in terms.without for i in ((places[n],) if n in places else shared)}
    result = [dataclasses.replace(c, predictors=predictors.get(c.term, ())) for c in components]
    if without:
        left = tuple(i for i in every if i not in without)
        result[0] = dataclasses.replace(result[0], predictors=left)
        result = result[0 if left else 1 :]
    entered = {i for c in result for i in c.predictors_of(number)}
    for name, i in places.items():
        if i not in entered:
            which = f"{name!r} has" if name else "there are"
            raise ValueError(
                f"terms: {which} neither terms nor an intercept; leave the intercept in."
            )
    return tuple(result)


def learn_encoder(terms: Terms, extra: Iterable[tuple[Column, str]], table: Table) -> Encoder:
    """The columns of X that the terms need."""
    columns: dict[Key, NumericColumn | LevelColumn] = {}
    globes = [t.columns for t in terms if isinstance(t, Smooth) and t.kind == "sos"]
    degrees = {lon: LONGITUDE for _, lon in globes} | {lat: LATITUDE for lat, _ in globes}
    areas = {t.columns[0]: t for t in terms if isinstance(t, MarkovField)}
    policies: dict[Column, set[str]] = {}
    for term in terms:
        if elements := elements_of(term, table):
            columns |= elements
            continue
        for name, kind in keys_of(term, table):
            if kind == "level" and name in term.columns:  # curves of levels (by) have no policy
                policy = getattr(term, "policy", getattr(term, "unseen", "error"))
                policies.setdefault(name, set()).add(policy)
            if (name, kind) in columns:
                continue
            if kind == "number":
                columns[name, kind] = numeric_column(table, name, term, degrees.get(name))
            elif name in areas:
                _check_other_readers(terms, table, areas[name])
                columns[name, kind] = _learn_areas(table, areas[name])
            else:
                columns[name, kind] = learn_levels(table, name)
    for name, stated in policies.items():
        column = columns[name, "level"]
        if stated == {"prior"} and isinstance(column, LevelColumn):
            columns[name, "level"] = dataclasses.replace(column, unseen="prior")
    for name, use in extra:
        columns.setdefault((name, "number"), NumericColumn(name, use))
    placed = (name for name, _ in columns if isinstance(name, int) and name not in table.names)
    return Encoder(columns, {name: table.name(name) for name in placed})


@one_blas_thread()  # for clusters
def plan_columns(
    terms: Terms, table: Table, encoder: Encoder, columns: Columns, seed: int = 0
) -> list[Component]:
    """The components, the intercept first, from distinct values and their weights."""
    components = [Component(INTERCEPT, "", "constant", inducing=((),))]
    for term in terms:
        selects = terms.select or (isinstance(term, SmoothTerm) and term.select)
        manner = seed, _is_free(term, terms), selects
        if isinstance(term, SmoothTerm) and (slots := slots_of(term, encoder)):
            components.append(_summed(term, slots, encoder, columns, *manner))
            continue
        keys, number = keys_of(term, table), len(term.columns)
        places = [encoder.index(*key) for key in keys]
        own = list(zip(term.columns, places))
        for name, place in own:
            _check_varies(term, name, columns.value_range(place))
        for by in _multipliers(term, keys[number:], places[number:], encoder, columns):
            label, level = term.label, None
            if by is not None and by.code is not None:
                label, level = f"{label}={by.level}", (by.column, by.code)
                where = f" where {keys[-1][0]!r} is {encoder.levels(keys[-1][0])[by.code]!r}"
                for name, place in own:
                    _check_varies(term, name, columns.value_range(place, level), where)
            data = Seen.of(columns, places[:number], level)
            components.append(
                _component(term, label, keys[:number], places[:number], data, by, *manner)
            )
    return components


def _multipliers(
    term: Term, keys: Sequence[Key], places: Sequence[int], encoder: Encoder, columns: Columns
) -> list[By | None]:
    """Multipliers of a term's components: none, a number, or the levels that occur."""
    if not keys:
        return [None]
    ((name, kind),), (place,) = keys, places
    if kind == "level":
        there = columns.bins((place,)).points[columns.mass((place,)) > 0.0, 0]
        levels = enumerate(encoder.levels(name))
        return [By(place, code, str(level)) for code, level in levels if code in there]
    size = columns.size(place)
    if size == 0.0:
        raise ValueError(f"column {name!r} is all zero; drop {term.label}.")
    if size < _LEAST:
        raise ValueError(
            f"column {name!r} has a size of {size:g}, whose square underflows; multiply it by a "
            "power of ten."
        )
    return [By(place, size=size)]


# --- terms that are summed over evaluations of a function ----------------------------------------


_SUMMED = tuple(name for name, kind in KINDS.items() if kind.tensor and not kind.rough)
_Role = tuple[Column, Column | None, Sequence[float]]  # name, column of the data, factors


def elements_of(term: Term, table: Table) -> dict[Key, NumericColumn | LevelColumn]:
    """Columns of X of a term of lags, curves or columns of arrays; none of other terms."""
    if not isinstance(term, SmoothTerm):
        return {}
    at = term.at if isinstance(term, Smooth) else None
    by = None if term.by is None else column_of(term.by)
    read = [*term.columns, *([] if by is None else [by])]
    widths = {name: width for name in read if (width := table.width(name)) is not None}
    if not widths and at is None:
        return {}
    own = isinstance(term, Smooth) and (term.kernel is not None or term.kind not in _SUMMED)
    levels = isinstance(term.by, Term) or any(table.is_levels(n) for n in read if n not in widths)
    if own or levels or term.shapes or isinstance(term, Interaction):
        raise ValueError(
            f"{term.label} is summed over arrays, which takes neither levels, shapes, kernels of "
            f"your own nor ti(), and of bs= {', '.join(_SUMMED)}."
        )
    number = len(at) if at is not None else next(iter(widths.values()))
    for name in read:
        held = widths.get(name, number if at is None else 1)
        if held != number:
            raise ValueError(
                f"column {name!r} holds {held} value(s) a row, where {term.label} needs {number}: "
                "arrays of one length, such as a column of a dict that is a matrix [N, L]."
            )
    ones = [1.0] * number
    roles: list[_Role] = [*((name, name, ones) for name in term.columns), ("weight", by, ones)]
    if isinstance(term, Lag):
        lags = range(term.first, term.last + 1)
        roles = [(term.over[0], term.columns[0], ones), (term.over[1], None, lags), roles[-1]]
    elif at is not None:  # by the trapezoidal rule
        steps = 0.5 * np.diff(at)
        weights = np.append(steps, 0.0) + np.append(0.0, steps)
        roles = [("at", None, at), (*term.columns, *term.columns, weights)]
    return {
        (name, f"{term.label}[{place}].{role}"): Element(
            name,
            term.label,
            factor=float(factors[place]),
            term=term.label,
            place=place,
            source=source,
        )
        for place in range(number)
        for role, (name, source, factors) in enumerate(roles)
    }


def slots_of(term: Term, encoder: Encoder) -> tuple[tuple[int, ...], ...]:
    """The columns of X of each evaluation that a term is summed over; none of other terms."""
    slots: dict[int, list[int]] = {}
    for i, column in enumerate(encoder.readers):
        if isinstance(column, Element) and column.term == term.label:
            slots.setdefault(column.place, []).append(i)
    return tuple(map(tuple, slots.values()))


def _summed(
    term: SmoothTerm,
    slots: tuple[tuple[int, ...], ...],
    encoder: Encoder,
    columns: Columns,
    *manner: Any,
) -> Component:
    """The component of a function that is summed over evaluations."""
    values = columns.X[:, np.array(slots)]
    mass = np.ones(len(values)) if columns.weights is None else columns.weights
    w = values[..., -1]
    if not np.any(mass[:, None] * w):
        raise ValueError(f"the weights of {term.label} are all zero; drop it.")
    sums = w.sum(axis=1)
    size = np.sqrt(np.average(np.square(np.abs(w).sum(axis=1)), weights=mass))
    constant = bool(np.ptp(sums) <= 1e-9 * np.max(np.abs(sums)))
    there = w.ravel() != 0.0
    pooled = HeldColumns(
        values.reshape(-1, values.shape[-1])[there, :-1], (mass[:, None] * np.abs(w)).ravel()[there]
    )
    readers = encoder.readers
    at = list(range(len(slots[0]) - 1))
    for i in at:
        _check_varies(term, readers[slots[0][i]].name, pooled.value_range(i))
    keys: list[Key] = [(readers[slots[0][i]].name, "number") for i in at]
    by = By(slots[0][-1], size=float(size), constant=constant)
    data = Seen.of(pooled, at)
    component = _component(term, term.label, keys, list(slots[0][:-1]), data, by, *manner)
    return dataclasses.replace(component, slots=slots)


def _is_free(term: Term, terms: Terms) -> bool:
    """True if a term is not centred for lack of an intercept: the first factor, or all lines."""
    carrier = terms.carrier(term.parameter)
    if carrier is not None:
        return term == carrier
    return term.parameter in terms.without and _form(term) == "line"


def _check_varies(term: Term, name: Column, reach: tuple[float, float], where: str = "") -> None:
    if reach[0] == reach[1] and not isinstance(term, RandomEffect):
        raise ValueError(
            f"column {name!r} is constant{where}, so that {term.label} has nothing to show; drop "
            "the term."
        )
    if 0.0 < reach[1] - reach[0] < _LEAST:
        raise ValueError(
            f"column {name!r} spans {reach[1] - reach[0]:g}{where}, whose square underflows; "
            "multiply it by a power of ten."
        )


def _component(
    term: Term,
    name: str,
    keys: list[Key],
    places: list[int],
    data: Seen,
    by: By | None,
    seed: int,
    free: bool,
    select: bool,
) -> Component:
    own: Sequence[str] = ["linear" if isinstance(term, Linear) else DEFAULT] * len(keys)
    periods: Sequence[float | None] = [None] * len(keys)
    if isinstance(term, SmoothTerm):
        own, periods = term.kinds, term.periods
    kinds = ["levels" if key[1] == "level" else kind for key, kind in zip(keys, own)]
    varying = by is not None and by.code is None and not by.constant
    margins = tuple(
        _margin(place, kind, period, data, i)
        for i, (place, kind, period) in enumerate(zip(places, kinds, periods))
    )
    margins = with_breaks(term, margins, [data.column(i)[0] for i in range(len(margins))])
    form = _form(term)
    if free and form == "levels":
        form = "means"
    elif free:
        margins = (_through_zero(margins[0], data),)
    number = 0
    if form == "curves":  # each level of which has some
        number = max(_NODES, 2 * len(data.column(kinds.index("levels"))[0]))
    elif form == "tensor" or (form == "smooth" and len(places) > 1):
        number = NUM_NODES.get(len(places), 150)
    nodes, weights = fewer_points(data, kinds, number, seed) if number else (np.zeros(0),) * 2
    kind = term.kind if isinstance(term, Smooth) else ""
    knots: tuple[float, ...] = ()
    if isinstance(term, MarkovField):
        shares = dict(zip(margins[0].nodes, margins[0].weights))  # areas without data have none
        codes = tuple(float(i) for i in range(len(term.areas)))
        masses = tuple(shares.get(code, 0.0) for code in codes)
        margins = (dataclasses.replace(margins[0], nodes=codes, weights=masses),)
    elif kind == "sos":
        span = float(np.max(np.ptp(unit_vectors(data.points), axis=0)))  # in radii of the globe
        latitude, longitude = (dataclasses.replace(m, span=span) for m in margins)
        margins = latitude, dataclasses.replace(longitude, period=_TURN)
    elif kind == "ou":  # it forgets within some steps from value to value
        spacing = float(np.median(np.diff(np.unique(data.points))))
        span = min(margins[0].span, _MEMORY * spacing)
        margins = (dataclasses.replace(margins[0], span=span),)
    elif kind == "ad":
        values = np.unique(data.points)  # where there are none, nothing tells a speed
        even = np.linspace(0.0, 1.0, min(NUM_KNOTS, len(values)))
        knots = tuple(np.unique(np.quantile(values, even)).tolist())
    elif kind == "iou" and len(margins[0].nodes) < 3:
        raise ValueError(
            f"{name}: bs='iou' bends, which takes three values of {keys[0][0]!r} or more; got "
            f"{len(margins[0].nodes)}. Ask linear() for a line, or factor() for levels."
        )
    Z = inducing_inputs(term, form, margins, data, seed, varying)
    return Component(
        name,
        term.label,
        form,
        margins,
        by,
        tuple(map(tuple, nodes.tolist())),
        tuple(weights.tolist()),
        tuple(map(tuple, Z.tolist())),
        knots=knots,
        shrink=term.shrinks,
        select=select and form in ("smooth", "tensor"),
    )


def _form(term: Term) -> Form:
    if isinstance(term, RandomEffect):
        return "random"
    if isinstance(term, MarkovField):
        return "areas"
    if isinstance(term, FactorSmooth):
        return "curves" if term.bs == "fs" else "deviations"
    if isinstance(term, Levels):
        return "levels"
    if isinstance(term, Linear) or (isinstance(term, Smooth) and term.kind == "linear"):
        return "line"
    if isinstance(term, Smooth):
        if term.kernel is not None:
            return "own"
        return "smooth" if term.isotropic else "tensor"
    return "interaction" if isinstance(term, Interaction) else "tensor"


def _margin(place: int, kind: str, period: float | None, data: Seen, i: int) -> Margin:
    values, weights = data.column(i)
    measure = Empirical(values, weights)
    if kind == "levels":
        own, masses = _stated(measure)
        return Margin(place, kind, nodes=own, weights=masses)
    own, masses = _stated(measure.thinned(NUM_NODES[1]))
    ends = tuple(data.ends[i].tolist())
    least, low, high, greatest = (float(v) for v in data.reach[:, i])
    span = high - low if high > low else greatest - least
    if kind == "cyclic":
        period = greatest - least if period is None else float(period)
    return Margin(
        place, kind, span, float(np.average(values, weights=weights)), period, own, masses, ends
    )


def _through_zero(margin: Margin, data: Seen) -> Margin:
    """Margin of a line that is zero at zero, whose span is the column's root mean square."""
    values, weights = data.column(0)
    size = float(np.sqrt(np.average(np.square(values), weights=weights)))
    return dataclasses.replace(margin, centre=0.0, span=size)


def _stated(measure: Empirical) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The nodes and weights of a measure on one column, as a margin holds them."""
    return tuple(measure.points[:, 0].tolist()), tuple(measure.probabilities.tolist())


# --- areas ---------------------------------------------------------------------------------------


def _learn_areas(table: Table, term: MarkovField) -> LevelColumn:
    """The areas as a column's levels, those without data too."""
    (name,) = term.columns
    occurring, areas = learn_levels(table, name).levels, term.areas
    strange = [level for level in occurring if level not in areas]
    if strange:
        kinds = [{type(v).__name__ for v in values} for values in (occurring, areas)]
        hint = "" if kinds[0] & kinds[1] else f" (areas are {kinds[1]}, the column has {kinds[0]})"
        raise ValueError(
            f"column {name!r} has the level {strange[0]!r}, which is none of the areas of "
            f"bs='mrf'{hint}; they are {listed(areas)}."
        )
    return LevelColumn(name, areas)


def _check_other_readers(terms: Terms, table: Table, areas: MarkovField) -> None:
    """Check that no other term reads areas which it cannot know."""
    (name,) = areas.columns
    missing = set(areas.areas) - set(learn_levels(table, name).levels)
    if not missing:
        return
    for term in terms:
        takes = isinstance(term, FactorSmooth) and term.policy == "prior"
        if takes or isinstance(term, (MarkovField, RandomEffect)):
            continue
        if (name, "level") in keys_of(term, table):
            raise ValueError(
                f"{areas.label} is to know areas of {name!r} without data, such as "
                f"{min(missing, key=str)!r}, of which {term.label} knows nothing: leave one of the "
                "two out, or take random_effect()."
            )
