"""Components: what data settle before a kernel is built, and values that stand for columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from gpflow.base import AnyNDArray

from ...errors import ResolutionWarning, warn_caller
from ...kernels.shaped import Basis, LevelBasis, SplineBasis, grid
from ...kernels.terms import unit_vectors
from ...measures import NUM_NODES, bin_means, cluster_means, weighted_quantiles
from ...optimizers.binned.bins import Columns, Level
from ..terms import FactorSmooth, Smooth, Tensor, Term
from ..terms.smooth import LEAST_SPLINES

NUM_INDUCING = {1: 24, 2: 36}
"""Default number of inducing inputs of a component, by its number of columns; 50 beyond."""

Form = Literal[
    "constant",
    "smooth",
    "tensor",
    "interaction",
    "line",
    "levels",
    "means",
    "random",
    "own",
    "curves",
    "deviations",
    "areas",
]


@dataclasses.dataclass(frozen=True)
class Margin:
    """
    One column of a component.

    :param column: its place in X.
    :param kind: the kind of kernel: one of ``bs``, or ``"levels"``.
    :param span: its natural length, in its own unit: what a lengthscale is compared with.
    :param centre: its mean.
    :param period: of a cyclic one.
    :param nodes: values that stand for its distribution, [Q]; the component averages to zero over
        them.
    :param weights: their probabilities, [Q].
    :param ends: of numbers, the least and the greatest value of rows on which the component acts.
    :param breaks: of the splines that a function with a shape is made of.
    :param shape: what the function is along it, ``"increasing"`` for one; empty for anything.
    """

    column: int
    kind: str
    span: float = 1.0
    centre: float = 0.0
    period: float | None = None
    nodes: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    ends: tuple[float, float] = (0.0, 0.0)
    breaks: tuple[float, ...] = ()
    shape: str = ""


@dataclasses.dataclass(frozen=True)
class By:
    """
    Multiplier of a component: a number, or the indicator of a level.

    :param column: its place in X.
    :param code: the code of the level on which the component acts; None for a number that
        multiplies it.
    :param level: that level as text.
    :param size: the root mean square of the number.
    """

    column: int
    code: int | None = None
    level: str = ""
    size: float = 1.0


@dataclasses.dataclass(frozen=True)
class Component:
    """
    One component of the predictor, ready to be built; all of it is JSON.

    :param name: its name in the model, unique.
    :param term: the label of the term it comes from; empty for the intercept.
    :param form: what sort of function it is.
    :param margins: its columns.
    :param by: what multiplies it.
    :param nodes: rows that stand for the joint distribution of its columns, [Q, d]; empty where
        each margin has its own.
    :param weights: their probabilities.
    :param inducing: inducing inputs [M, d], in the order of the margins.
    :param predictors: places of the predictors that it enters; empty for all.
    :param edges: pairs of areas that are neighbours, by their codes.
    :param knots: where the speed of an adaptive function is learnt.
    :param shrink: of a line or levels, whether their variance is learnt, not large and fixed.
    :param select: of a smooth, whether it shall vanish where it is not there.
    :param independent: whether areas have independent effects, too. Where each has a row of its
        own these cannot be told from the noise.
    """

    name: str
    term: str
    form: Form
    margins: tuple[Margin, ...] = ()
    by: By | None = None
    nodes: tuple[tuple[float, ...], ...] = ()
    weights: tuple[float, ...] = ()
    inducing: tuple[tuple[float, ...], ...] = ()
    predictors: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    knots: tuple[float, ...] = ()
    shrink: bool = True
    select: bool = False
    independent: bool = True

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
        own = tuple(m.column for m in self.margins)
        return own if self.by is None else (*own, self.by.column)

    def full(self, points: AnyNDArray, width: int) -> AnyNDArray:
        """Rows of X at which the component is the function itself."""
        X = np.zeros((len(points), width))
        for i, margin in enumerate(self.margins):
            X[:, margin.column] = points[:, i]
        if self.by is not None:
            X[:, self.by.column] = 1.0 if self.by.code is None else self.by.code
        return X

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it: Python writes floats so that they read back to the last bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Component:
        """Read a component that :meth:`to_json` wrote."""

        def frozen(v: Any) -> Any:
            return tuple(frozen(x) for x in v) if isinstance(v, list) else v

        fields = {name: frozen(v) for name, v in value.items() if name not in ("margins", "by")}
        margins = tuple(Margin(**{k: frozen(v) for k, v in m.items()}) for m in value["margins"])
        by = None if value["by"] is None else By(**value["by"])
        return cls(margins=margins, by=by, **fields)


NUM_INDUCING_EACH = 10
"""Inducing inputs of each level's curve."""
_ALL_INDUCING = 400
"""Inducing inputs of all levels together, unless each would have fewer than the least."""
_LEAST_EACH = 4
_NODES = 200
"""Nodes on which all curves together average to zero, about."""
NUM_INDUCING_GLOBE = 60
LATITUDE = (-90.0, 90.0)
"""Degrees that a latitude may have."""
LONGITUDE = (-360.0, 360.0)
"""Degrees that a longitude may have: both from -180 to 180 and from 0 to 360 are usual."""
_TURN = 360.0
NUM_INDUCING_ROUGH = 300
"""Inducing inputs of what has no slope: one for each value, up to so many."""
NUM_INDUCING_ADAPTIVE = 60
NUM_KNOTS = 6
"""Most knots at which the speed of an adaptive smooth is learnt."""
_MEMORY = 10.0
"""Spacings of values that count as the span of what forgets quickly."""
NUM_SPLINES = {1: 24, 2: 9, 3: 6}
"""Default number of splines of a column, by the number of columns of numbers; 4 beyond."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """
    Data of a component.

    :param reach: least, 2.5 % point, 97.5 % point and greatest of each column over all rows: the
        levels of a factor share their prior.
    :param ends: least and greatest of each column over the rows on which it acts, [d, 2].
    :param points: distinct rows on which it acts, or what stands for them, [n, d].
    :param weights: their total weights.
    :param exact: whether they are the distinct rows.
    """

    reach: AnyNDArray
    ends: AnyNDArray
    points: AnyNDArray
    weights: AnyNDArray
    exact: bool

    @classmethod
    def of(cls, columns: Columns, places: list[int], level: Level | None = None) -> Seen:
        bins, everywhere = columns.bins(tuple(places)), columns.mass(tuple(places))
        seen = everywhere > 0.0
        levels = [0.0, 0.025, 0.975, 1.0]
        if bins.exact:
            reach = np.quantile(bins.points[seen], levels, axis=0)
        else:
            values, own = bins.points[seen].T, everywhere[seen]
            reach = np.stack([weighted_quantiles(v, own, levels) for v in values], axis=1)
        mass = everywhere if level is None else columns.mass(tuple(places), level)
        acts = mass > 0.0
        ends = np.array([columns.value_range(place, level) for place in places])
        return cls(reach, ends, bins.points[acts], mass[acts], bins.exact)

    def column(self, i: int) -> tuple[AnyNDArray, AnyNDArray]:
        """The distinct values of a column and their total weights."""
        values, inverse = np.unique(self.points[:, i], return_inverse=True)
        return values, np.bincount(inverse, self.weights)

    def quantiles(self, number: int) -> AnyNDArray:
        """Even quantiles of the one column's values, [number]: of distinct ones where known."""
        levels = np.linspace(0.0, 1.0, number)
        if self.exact:
            return np.asarray(np.quantile(self.points[:, 0], levels))
        return weighted_quantiles(self.points[:, 0], self.weights, levels)


def inducing_inputs(
    form: Form,
    margins: tuple[Margin, ...],
    data: Seen,
    k: int | None,
    seed: int,
    varying: bool = False,
) -> AnyNDArray:
    """Inducing inputs [M, d]: quantiles, a cycle, levels, or centres of k-means."""
    points = data.points
    d = points.shape[1]
    number = NUM_INDUCING.get(d, 50) if k is None else int(k)
    if form == "line":
        return np.array([[margins[0].centre + margins[0].span]])
    if form in ("random", "means"):
        return points
    if form == "areas":  # data may come of those that have none
        codes = np.array(margins[0].nodes)[:, None]
        if varying:
            return codes
        return np.delete(codes, int(np.argmax(margins[0].weights)), axis=0)
    if form == "levels":
        return _without_commonest(data)
    if len(points) <= number:
        centred = form != "own" and not varying and len(points) <= NUM_NODES.get(d, 150)
        return _without_commonest(data) if centred else points
    if d == 1 and margins[0].kind == "cyclic":
        period = margins[0].period
        assert period is not None
        phases = np.unique(np.mod(points[:, 0], period))
        if len(phases) > number:
            phases = np.arange(number) * (period / number)
        return phases[:, None]
    if d == 1:
        return data.quantiles(number)[:, None]
    levels = [i for i, m in enumerate(margins) if m.kind == "levels"]
    return fewer_points(points, data.weights, levels, number, seed)[0]


def fewer_points(
    points: AnyNDArray, weights: AnyNDArray, levels: list[int], number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Points [M, d] that stand for more, and their weights: means of clusters.

    Each combination of levels has points of its own, or, if there are too many, they are drawn.
    """
    if not levels:
        return cluster_means(points, weights, number, seed)
    _, groups = np.unique(points[:, levels], axis=0, return_inverse=True)
    sizes = np.bincount(groups.ravel())
    if 2 * len(sizes) > number:
        share = weights / weights.sum()
        rows = np.sort(
            np.random.default_rng(seed).choice(len(points), number, replace=False, p=share)
        )
        return points[rows], np.full(number, 1.0 / number)
    each = next(n for n in range(number, 0, -1) if np.minimum(sizes, n).sum() <= number)
    numbers = [i for i in range(points.shape[1]) if i not in levels]
    result, masses = [], []
    for group in range(len(sizes)):
        own, mass = points[groups.ravel() == group], weights[groups.ravel() == group]
        if len(own) > each:
            values, shares = _clusters(own[:, numbers], mass, each, seed)
            own, mass = np.repeat(own[:1], len(values), axis=0), mass.sum() * shares
            own[:, numbers] = values
        result.append(own)
        masses.append(mass)
    return np.concatenate(result), np.concatenate(masses) / weights.sum()


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


# --- rough functions, and those that vary quicker in places --------------------------------------


def rough_inducing(term: Smooth, points: AnyNDArray) -> AnyNDArray:
    """Every value, or, with a warning unless ``k`` was given, even ranks of too many, [M, 1]."""
    values = np.unique(points[:, 0])
    number = term.k or NUM_INDUCING_ROUGH
    if len(values) <= number:
        # the last follows from the others where it is on these that they average to zero
        return values[: -1 if len(values) <= NUM_NODES[1] else None, None]
    if term.k is None:
        warn_caller(
            f"{term.label} has {number} inducing inputs for {len(values)} values or more: what "
            "changes faster than from one to the next is taken for noise. Set k=, up to the "
            "number of values (time grows with its cube), or bin the column.",
            ResolutionWarning,
        )
    # values themselves: half way between two of them a rough function says little of either
    places = np.linspace(0.0, len(values) - 1.0, number).round().astype(int)
    return np.asarray(values[np.unique(places), None])


def short_memory(margin: Margin, points: AnyNDArray) -> Margin:
    """A margin whose span is of some steps from value to value."""
    spacing = float(np.median(np.diff(np.unique(points[:, 0]))))
    return dataclasses.replace(margin, span=min(margin.span, _MEMORY * spacing))


def speed_knots(points: AnyNDArray) -> tuple[float, ...]:
    """Quantiles of distinct values, [n, 1]: where there are none, nothing tells a speed."""
    values = np.unique(points[:, 0])
    knots = np.quantile(values, np.linspace(0.0, 1.0, min(NUM_KNOTS, len(values))))
    return tuple(np.unique(knots).tolist())


# --- a curve a level -----------------------------------------------------------------------------


def inducing_each(number: int) -> int:
    """Default number of inducing inputs of each of ``number`` levels."""
    return max(min(NUM_INDUCING_EACH, _ALL_INDUCING // number), _LEAST_EACH)


def curve_inducing(
    term: FactorSmooth, margins: tuple[Margin, ...], points: AnyNDArray
) -> AnyNDArray:
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
    Z = np.concatenate([np.column_stack([own, np.full(len(own), c)]) for own, c in parts])
    return Z[:, ::-1] if place else Z


def curve_nodes(
    margins: tuple[Margin, ...], points: AnyNDArray, weights: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes [Q, 2] that stand for rows of a number and a factor, and their probabilities."""
    place = int(margins[0].kind == "levels")
    codes = points[:, 1 - place]
    levels = np.unique(codes)
    number = max(_NODES // len(levels), 2)
    nodes, masses = [], []
    for level in levels:
        own = codes == level
        order = np.argsort(points[own, place])
        x, w = points[own, place][order], weights[own][order]
        if len(x) > number:
            total = w.sum()
            x, w = bin_means(x, w, number)
            w = w * total
        node = np.full((len(x), 2), level)
        node[:, place] = x
        nodes.append(node)
        masses.append(w)
    mass = np.concatenate(masses)
    return np.concatenate(nodes), mass / mass.sum()


def _quantiles(values: AnyNDArray, number: int) -> AnyNDArray:
    """Even quantiles of distinct values, all of them where they are few."""
    if len(values) <= number:
        return values
    return np.asarray(np.quantile(values, np.linspace(0.0, 1.0, number)))


# --- the globe -----------------------------------------------------------------------------------


def globe_margins(margins: tuple[Margin, ...], points: AnyNDArray) -> tuple[Margin, ...]:
    """The margins of latitude and longitude; their span is in radii of the globe."""
    span = float(np.max(np.ptp(unit_vectors(points), axis=0)))
    latitude, longitude = (dataclasses.replace(m, span=span) for m in margins)
    return latitude, dataclasses.replace(longitude, period=_TURN)


def globe_points(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Points of the globe that stand for data, [n, 2], and their weights: of clusters in space."""
    if len(points) <= number:
        return points, weights / weights.sum()
    centres, mass = cluster_means(unit_vectors(points), weights, number, seed)
    x, y, z = centres.T
    degrees = np.rad2deg([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)])
    return degrees.T, mass


def globe_inducing(points: AnyNDArray, weights: AnyNDArray, k: int | None, seed: int) -> AnyNDArray:
    """Inducing inputs [M, 2]."""
    number = k or NUM_INDUCING_GLOBE
    if len(points) <= number:
        return points[:-1] if len(points) <= NUM_NODES[2] else points
    return globe_points(points, weights, number, seed)[0]


# --- shapes --------------------------------------------------------------------------------------


def with_breaks(
    term: Term, margins: tuple[Margin, ...], values: Sequence[AnyNDArray]
) -> tuple[Margin, ...]:
    """The margins of a term, with breaks and shapes where it asks for a shape."""
    if not isinstance(term, (Smooth, Tensor)) or not term.shapes:
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


def shaped_inducing(margins: Sequence[Margin]) -> AnyNDArray:
    """Inducing inputs [M, d]: where coefficients are."""
    return grid([basis.places for basis in bases_of(margins)])


def shaped_term(components: Sequence[Component]) -> str:
    """The label of the first term that has a shape; empty where none has."""
    return next((c.term for c in components if c.shape), "")
