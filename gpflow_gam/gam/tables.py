"""A fitted GAM as tables: what each component is at knots or levels, straight lines in between."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy import special
from scipy.stats import norm
from sklearn.isotonic import isotonic_regression

from ..errors import check_choice
from ..version import __version__
from . import scorer
from .components.plan import Component, Margin
from .effects import effect, joint_moments, transformed
from .effects.effect import stacked_frame
from .effects.posterior import pivoted_root
from .fits import FittedGAM
from .fits.specification import Specification
from .frames.encoding import (
    Encoder,
    Fill,
    Key,
    LevelColumn,
    NumericColumn,
    check_complete,
    filled,
)
from .frames.table import Table
from .terms.base import Column, Expression, variables_of

ERROR = 1e-4
"""Default of the interpolation's error, against an effect's range over the data."""
_START, _ROUNDS = 17, 12  # knots of an axis at first, and rounds to refine
_MOST = {1: 1000, 2: 150}  # knots of an axis at most, by the number of axes of numbers
_ROOT_ERROR = 0.001  # of standard errors between knots, against the usual one
_ROOT_POINTS = {1: 129, 2: 25}  # of an axis within the data, of which the fewest that do are taken
_MOST_ROOTS = 3000  # points of all terms whose joint covariance is factorised
_TRUNCATED = 1e-9  # variance that is left out, against the largest


@dataclasses.dataclass(frozen=True)
class Axis:
    """One column of a table: knots in its unit, or the places of levels, new ones last."""

    reader: NumericColumn | LevelColumn
    points: AnyNDArray
    period: float | None = None

    @property
    def column(self) -> Column:
        return self.reader.name

    @property
    def levels(self) -> tuple[Any, ...] | None:
        return self.reader.levels if isinstance(self.reader, LevelColumn) else None

    def to_json(self) -> dict[str, Any]:
        knots = None if self.levels is not None else self.points.tolist()
        return {
            "column": str(self.column),
            "knots": knots,
            "size": len(self.points),
            "period": self.period,
        }


def check_columns(spec: Specification, holder: str) -> None:
    """Raise ValueError if columns or terms are computed in Python, which no file holds."""
    if spec.design is not None:
        raise ValueError(
            f"gam: its formula makes columns of others ({spec.design.text}) in Python, which no "
            f"{holder} holds; make them in the data, and name them."
        )
    if summed := next((c.name for c in spec.components if c.slots), None):
        raise ValueError(
            f"gam: {summed} is a sum over lags or arrays, which no {holder} holds; leave the term "
            "out, or predict in Python."
        )


Values = Callable[[Sequence[AnyNDArray]], AnyNDArray]
"""A function over the product of points of axes, [K, ..., L]."""


class Tables:
    """The tables of a fit, to ``error`` of the range of an effect; ValueError if none can be."""

    def __init__(
        self,
        fit: FittedGAM,
        error: float = ERROR,
        knots: Mapping[Column, Sequence[float]] | None = None,
    ) -> None:
        if not 0.0 < error < 1.0:
            raise ValueError(f"error must be a share of an effect's range; got {error!r}.")
        self.fit, self.error, self.knots = fit, error, dict(knots or {})
        self.readers = fit.spec.encoder.readers
        self.constants = [c for c in fit.spec.components if c.form == "constant"]
        self.components = [c for c in fit.spec.components if c.form != "constant"]
        self._check()
        if not self.components:
            raise ValueError("tables: the GAM has no effects, and so no tables.")
        self.ranges = self._ranges()
        self.axes = {c.name: self._axes(c) for c in self.components}

    def _check(self) -> None:
        check_columns(self.fit.spec, "table")
        for component in self.components:
            readers = [self.readers[m.column] for m in component.margins]
            numeric = [r for r in readers if not isinstance(r, LevelColumn)]
            if len(numeric) > 2:
                raise ValueError(
                    f"tables: {component.name} is a function of {len(numeric)} columns of numbers; "
                    "a table holds at most two. Export a SavedModel, which holds any."
                )
        read = {self.readers[place].name for c in self.components for place in c.columns}
        levels = {r.name for r in self.readers if isinstance(r, LevelColumn)}
        for column, points in self.knots.items():
            if column not in read or column in levels:
                raise ValueError(f"knots: no term reads column {column!r} as numbers.")
            given = np.asarray(points)
            if given.dtype.kind not in "iuf":
                raise ValueError(f"knots: those of {column!r} must be numbers; got {points!r}.")
            if given.ndim != 1 or len(given) < 2 or not np.all(np.diff(given) > 0.0):
                raise ValueError(f"knots: those of {column!r} must be two or more, and increase.")

    def values(self, component: Component) -> Values:
        """The component in the response's unit, by-variable at one, as a function of axes."""
        fit = self.fit
        factor, _ = fit.units
        constant = fit.constant_of(component)

        def values(points: Sequence[AnyNDArray]) -> AnyNDArray:
            rows = np.array(list(itertools.product(*points)))
            X = component.full(rows.reshape(len(rows), len(points)), fit.spec.encoder.width)
            means = factor * fit.component_means(X, [component.name])[0][:, 0] + constant
            return means.reshape(*map(len, points), -1)

        return values

    def _ranges(self) -> dict[str, float]:
        """By how much each component varies over the data; little counts as a hundredth of most."""
        ranges = {}
        for c in self.components:
            points = [self._within(self._axis(c, m), m) for m in c.margins]
            at = self.values(c)(points)
            ranges[c.name] = float(np.ptp(at, axis=tuple(range(len(points)))).max(initial=0.0))
        least = 0.01 * max(ranges.values(), default=0.0)
        return {name: max(size, least) for name, size in ranges.items()}

    # --- knots -----------------------------------------------------------------------------------

    def _axes(self, component: Component) -> list[Axis]:
        axes = [self._axis(component, m) for m in component.margins]
        free = [
            i
            for i, axis in enumerate(axes)
            if axis.levels is None and axis.column not in self.knots and component.form != "line"
        ]
        values = self.values(component)
        tolerance = self.error * self.ranges[component.name]
        for _ in range(_ROUNDS if tolerance > 0.0 else 0):
            points = [axis.points for axis in axes]
            at = values(points)
            more = False
            for i in free:
                ends, most = component.margins[i].ends, _MOST[len(free)]
                refined = _refined(values, points, at, i, tolerance, ends, most)
                if len(refined) > len(axes[i].points):
                    axes[i] = dataclasses.replace(axes[i], points=refined)
                    more = True
            if not more:
                break
        return axes

    def _axis(self, component: Component, margin: Margin) -> Axis:
        reader = self.readers[margin.column]
        if isinstance(reader, LevelColumn):
            number = len(reader.levels) + (reader.unseen != "error")
            return Axis(reader, np.arange(number, dtype=np.float64))
        given = self.knots.get(reader.name)
        knots = None if given is None else np.asarray(given, dtype=np.float64)
        low, high = margin.ends
        if margin.kind == "cyclic" and (period := margin.period) is not None:
            if knots is None:
                return Axis(reader, np.linspace(low, low + period, _START), period)
            within = knots[0] + np.unique(np.mod(knots - knots[0], period))
            return Axis(reader, np.append(within, knots[0] + period), period)
        if knots is not None:
            return Axis(reader, knots)
        span = (high - low) or 1.0
        if component.form == "line":
            return Axis(reader, np.array([low, low + span]))
        # a trend is left where the data are far away
        away = span if len(component.margins) == 1 else 0.25 * span
        least, most = low - away, high + away
        if reader.valid_range is not None:
            least, most = max(least, reader.valid_range[0]), min(most, reader.valid_range[1])
        inner = np.linspace(low, low + span, _START)
        points = np.unique([least, 0.5 * (least + low), *inner, 0.5 * (most + high), most])
        return Axis(reader, points)

    def _within(self, axis: Axis, margin: Margin) -> AnyNDArray:
        """Points of an axis that are no farther than the data; at least two of numbers."""
        if axis.levels is not None:
            return axis.points
        low, high = margin.ends
        return np.linspace(low, high if high > low else low + 1.0, _START)

    # --- joint uncertainty -----------------------------------------------------------------------

    def roots(self) -> tuple[list[list[Axis]], list[AnyNDArray], int] | None:
        """Axes of each component, the constant's first, and roots [L, K, R]; None if too many."""
        # a row of a root is a point's: weighted sums of rows have the predictor's variance for
        # their squared norm
        every = [*self.constants, *self.components]
        axes = [self._root_axes(c) for c in every]
        if sum(np.prod([len(a.points) for a in each], dtype=int) for each in axes) > _MOST_ROOTS:
            return None
        covariance, ends = self._covariance(every, axes)
        roots = [pivoted_root(one, _TRUNCATED) for one in covariance]
        rank = max(r.shape[1] for r in roots)
        whole = np.stack([np.pad(r, ((0, 0), (0, rank - r.shape[1]))) for r in roots])
        return axes, np.split(whole, ends, axis=1), rank

    def _covariance(
        self, components: Sequence[Component], axes: Sequence[Sequence[Axis]]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Covariance of components at all points of their axes, [L, K, K], and where each ends."""
        fit, blocks, enters = self.fit, [], []
        for component, each in zip(components, axes):
            rows = np.array(list(itertools.product(*(a.points for a in each))))
            X = component.full(rows.reshape(len(rows), -1), fit.spec.encoder.width)
            blocks.append((component.name, X))
            entered = np.isin(
                range(fit.num_predictors), component.predictors_of(fit.num_predictors)
            )
            enters.append(np.repeat(entered[:, None], len(X), axis=1))
        _, covariance = joint_moments(fit, blocks, unconditional=False)
        there = np.concatenate(enters, axis=1)
        ends = np.cumsum([len(X) for _, X in blocks])[:-1]
        return covariance * (there[:, :, None] & there[:, None, :]), ends

    def _root_axes(self, component: Component) -> list[Axis]:
        """The fewest even points between which standard errors are right."""
        axes = [self._axis(component, m) for m in component.margins]
        free = [i for i, axis in enumerate(axes) if axis.levels is None]
        if not free or component.form == "line":
            return axes
        number = _ROOT_POINTS[len(free)]
        for i in free:
            axes[i] = dataclasses.replace(axes[i], points=self._even(component, axes[i], i, number))
        shape = [len(a.points) for a in axes]
        first = [
            a if i in free else dataclasses.replace(a, points=a.points[:1])
            for i, a in enumerate(axes)
        ]
        covariance, _ = self._covariance(
            [*self.constants, component], [*([] for _ in self.constants), first]
        )
        if self.constants:  # which a component may be nearly the negative of
            alone = covariance[:, 1:, 1:] + covariance[:, :1, 1:] + covariance[:, 1:, :1]
            covariance = alone + covariance[:, :1, :1]
        for stride in (16, 8, 4, 2):
            if any((shape[i] - 1) % stride for i in free):
                continue
            if _interpolates(covariance, [shape[i] for i in free], stride):
                for i in free:
                    axes[i] = dataclasses.replace(axes[i], points=axes[i].points[::stride])
                break
        return axes

    def _even(self, component: Component, axis: Axis, place: int, number: int) -> AnyNDArray:
        least, most = float(axis.points[0]), float(axis.points[-1])
        if axis.period is not None or number == _ROOT_POINTS[2]:
            return np.linspace(least, most, number)
        low, high = component.margins[place].ends
        step = ((high - low) or 1.0) / (number - 1)
        before, after = (
            int(np.ceil(d / step / 16 - 1e-9)) * 16 for d in (low - least, most - high)
        )
        return low + step * np.arange(-before, number + after)

    # --- as people read them ---------------------------------------------------------------------

    def frames(
        self,
        scale: Literal["link", "response"],
        base: Mapping[Column, Any],
        level: float,
    ) -> dict[str, pd.DataFrame]:
        """As :meth:`gpflow_gam.GAM.tables` returns them."""
        check_choice("scale", scale, ("link", "response"))
        link = self.link()["name"]
        if scale == "response" and link not in ("identity", "log", "logit"):
            raise ValueError(
                f"scale: under the link {link} an effect alone has no response; under log it is a "
                "factor, under logit an odds ratio. Pass scale='link', or call "
                "effects(scale='response')."
            )
        axes = {axis.column: axis for axes in self.axes.values() for axis in axes}
        for column, value in base.items():
            if column not in axes:
                raise ValueError(f"base: no table is of column {column!r}.")
            levels, reader = axes[column].levels, axes[column].reader
            timed = isinstance(reader, NumericColumn) and reader.time  # it knows times itself
            known = value in levels if levels is not None else timed or _is_number(value)
            if not known:
                what = "a finite number" if levels is None else f"one of the levels {list(levels)}"
                raise ValueError(f"base: {column!r} must be {what}; got {value!r}.")
        fun = np.exp if scale == "response" and link != "identity" else None
        frames = {c.name: self._frame(c, base, level) for c in self.components}
        return {name: transformed(frame, fun) for name, frame in frames.items()}

    def _frame(
        self, component: Component, base: Mapping[Column, Any], level: float
    ) -> pd.DataFrame:
        axes = self.axes[component.name]
        points = [self._shown(a, m) for a, m in zip(axes, component.margins)]
        rows = np.array(list(itertools.product(*points)))
        columns = {a.column: a.reader.shown(rows[:, i]) for i, a in enumerate(axes)}
        own = {c: base[c] for c in columns if len(axes) == 1 and c in base}
        table = effect(self.fit, component.name, columns, level, reference=own or None)
        estimate, se = table.estimate, table.se
        half = float(norm.ppf(0.5 + 0.5 * level)) * se
        parts = {"estimate": estimate, "se": se, "lower": estimate - half, "upper": estimate + half}
        if self.fit.data.available:
            parts["rows"] = np.tile(self._rows(component, points)[:, None], len(table.predictors))
        return stacked_frame(columns, parts, "predictor", table.predictors)

    def _shown(self, axis: Axis, margin: Margin) -> AnyNDArray:
        """Points of an axis within the data."""
        if axis.levels is not None:
            return axis.points[: len(axis.levels)]
        if axis.period is not None or axis.column in self.knots:
            return axis.points
        low, high = margin.ends
        return axis.points[(axis.points >= low) & (axis.points <= high)]

    def _rows(self, component: Component, points: Sequence[AnyNDArray]) -> AnyNDArray:
        """Rows of the data whose nearest point of a table each is."""
        X = self.fit.X[component.acting(self.fit.X)]
        place = np.zeros(len(X), dtype=np.int64)
        for margin, knots in zip(component.margins, points):
            x = X[:, margin.column]
            if margin.period is not None:
                x = knots[0] + np.mod(x - knots[0], margin.period)
            place = place * len(knots) + np.searchsorted(0.5 * (knots[1:] + knots[:-1]), x)
        counts = np.bincount(place, minlength=int(np.prod([len(k) for k in points])))
        return np.round(counts * (self.fit.number / len(self.fit.X))).astype(np.int64)

    # --- as files hold them ----------------------------------------------------------------------

    def document(self, errors: bool = True) -> dict[str, Any]:
        """All that predictions need, as JSON can hold it."""
        fit, spec = self.fit, self.fit.spec
        factor, shift = fit.units
        roots = self.roots() if errors else None
        held = spec.has_constant([c.name for c in spec.components])
        total = np.where(held, shift + factor * np.array(spec.constant), 0.0)
        constant = total - sum(fit.constant_of(c) for c in self.components)
        for component in self.constants:
            constant = constant + self.values(component)([]).ravel() - fit.constant_of(component)
        terms = []
        if roots is not None and self.constants:
            terms.append(self._entry(self.constants[0], [], np.zeros((1, len(constant))), roots, 0))
        for i, component in enumerate(self.components):
            axes = self.axes[component.name]
            values = self.values(component)([a.points for a in axes])
            flat = values.reshape(-1, values.shape[-1])
            terms.append(self._entry(component, axes, flat, roots, i + len(self.constants)))
        return {
            "format": scorer.FORMAT,
            "version": scorer.VERSION,
            "gpflow_gam": __version__,
            "family": spec.family.name,
            "response": spec.response,
            "predictors": list(spec.predictor_names),
            "classes": None if spec.levels is None else list(spec.levels),
            "columns": self._columns(),
            "constant": np.broadcast_to(constant, (fit.num_predictors,)).tolist(),
            "offset": {
                "columns": [str(c) for c in spec.offset],
                "factor": float(np.ravel(factor)[0]),
            },
            "link": self.link(),
            "error": self.error,
            "rank": 0 if roots is None else roots[2],
            "terms": terms,
        }

    def _entry(
        self,
        component: Component,
        axes: Sequence[Axis],
        values: AnyNDArray,
        roots: Any,
        place: int,
    ) -> dict[str, Any]:
        by = None
        if component.by is not None:
            name = str(self.readers[component.by.column].name)
            by = {"column": name, "code": component.by.code}
        entry = {
            "name": component.name,
            "by": by,
            "axes": [axis.to_json() for axis in axes],
            "values": values.tolist(),
            "root_axes": None,
            "roots": None,
        }
        if roots is not None:
            entry["root_axes"] = [axis.to_json() for axis in roots[0][place]]
            entry["roots"] = [[_short(row) for row in rows] for rows in roots[1][place]]
        return entry

    def _columns(self) -> dict[str, dict[str, Any]]:
        spec = self.fit.spec
        fills = spec.encoder.fills(spec.fills)
        read = {i for c in spec.components for i in c.columns}
        columns: dict[str, dict[str, Any]] = {}
        for i in sorted(read | {spec.place(c) for c in spec.offset}):
            reader = self.readers[i]
            if str(reader.name) in columns:
                raise ValueError(
                    f"tables: column {reader.name!r} is read as numbers and as levels; give one of "
                    "the two another name in the data."
                )
            levels = reader.levels if isinstance(reader, LevelColumn) else None
            ends = [m.ends for c in self.components for m in c.margins if m.column == i]
            fill = fills.get(reader.name)
            columns[str(reader.name)] = {
                "levels": None if levels is None else list(levels),
                "range": [min(e[0] for e in ends), max(e[1] for e in ends)]
                if ends and levels is None
                else None,
                "new_levels": isinstance(reader, LevelColumn) and reader.unseen != "error",
                "time": reader.time if isinstance(reader, NumericColumn) else "",
                "fill": getattr(fill, "item", lambda fill=fill: fill)(),
                "expression": _tree(reader.name, fills),
            }
        return columns

    def link(self) -> dict[str, Any]:
        """The expected response as a function of the predictor: a known one, or a table."""
        fit = self.fit
        factor, shift = fit.units
        L = fit.num_predictors
        f = np.linspace(-6.0, 6.0, 240)  # not nought, where some have no value
        others = np.random.default_rng(0).normal(size=(len(f), L))
        others[:, 0] = f

        def response(F: AnyNDArray) -> AnyNDArray:
            mean = fit.spec.family.mean(fit.likelihood, (F - shift) / factor)
            return np.reshape(mean, (len(F), -1))

        given = response(others)
        if L > 1:
            softmax = special.softmax(others, axis=1)
            if given.shape == softmax.shape and np.allclose(given, softmax, rtol=1e-9, atol=1e-12):
                return {"name": "softmax"}
            zero = response(np.column_stack([f, np.zeros((len(f), L - 1))]))
            if not np.allclose(given, zero, rtol=1e-9, atol=1e-12):
                raise ValueError(
                    f"tables: the response of family {fit.spec.family.name!r} depends on "
                    f"{L} predictors at once, which tables do not hold; export a SavedModel."
                )
        for name, function in scorer.LINKS.items():
            known = function(f)[:, None]
            if given.shape == known.shape and np.allclose(given, known, rtol=1e-9, atol=1e-12):
                return {"name": name}
        centre = (
            np.ravel(fit.constant_of(fit.spec.components[0]))[0] if fit.spec.components else 0.0
        )
        scale = float(np.ravel(factor)[0])
        wide = centre + scale * np.linspace(-30.0, 30.0, 4001)
        table = response(np.column_stack([wide, np.zeros((len(wide), L - 1))]))
        return {"name": "table", "predictor": wide.tolist(), "response": table.tolist()}


def _tree(name: Column, fills: Mapping[Any, Any]) -> Any:
    """How a column is computed from others, which are described as columns are."""
    if not isinstance(name, Expression):
        return None
    try:
        if not name.of_levels:
            return name.tree(lambda c: {"column": c, "levels": None, "fill": fills.get(c)})
    except KeyError:
        pass  # as of levels
    raise ValueError(
        f"tables: a term reads {name}, which other programs have no functions for; make that "
        "column in the data, and name it."
    )


def _refined(
    values: Values,
    points: Sequence[AnyNDArray],
    at: AnyNDArray,
    axis: int,
    tolerance: float,
    ends: tuple[float, float],
    most: int,
) -> AnyNDArray:
    """Points of an axis, and the middles of intervals in which straight lines are off."""
    knots = points[axis]
    if len(knots) >= most:
        return knots
    shares = np.array([0.25, 0.5, 0.75])
    steps = np.diff(knots)
    trial = (knots[:-1, None] + steps[:, None] * shares).ravel()
    true = np.moveaxis(values([*points[:axis], trial, *points[axis + 1 :]]), axis, 0)
    moved = np.moveaxis(at, axis, 0)
    low, high = np.repeat(moved[:-1], 3, axis=0), np.repeat(moved[1:], 3, axis=0)
    share = np.tile(shares, len(steps)).reshape(-1, *[1] * (moved.ndim - 1))
    off = np.abs(low + share * (high - low) - true).reshape(len(steps), -1).max(axis=1)
    beyond = (knots[1:] <= ends[0]) | (knots[:-1] >= ends[1])
    split = np.flatnonzero(off > np.where(beyond, 10.0, 1.0) * tolerance)[: most - len(knots)]
    return np.sort(np.concatenate([knots, knots[split] + 0.5 * steps[split]]))


def _interpolates(covariance: AnyNDArray, shape: Sequence[int], stride: int) -> bool:
    """Whether rows at every so many points give the variances at all of them, in between too."""
    weights = np.ones((1, 1))
    for size in shape:
        kept = np.arange(0, size, stride)
        hat = np.array([np.interp(np.arange(size), kept, e) for e in np.eye(len(kept))]).T
        whole = np.zeros((size, size))
        whole[:, kept] = hat
        weights = np.kron(weights, whole)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    there = np.einsum("nk,lkm,nm->ln", weights, covariance, weights, optimize=True)
    off = np.abs(np.sqrt(np.maximum(there, 0.0)) - np.sqrt(np.maximum(variance, 0.0)))
    usual = np.sqrt(np.maximum(np.median(variance, axis=1, keepdims=True), 0.0))
    return bool(np.all(off <= _ROOT_ERROR * usual))


def _short(row: AnyNDArray) -> list[float]:
    """Seven digits, without the zeros at the end."""
    used = np.flatnonzero(row)
    return [float(f"{v:.7g}") for v in row[: used[-1] + 1 if len(used) else 0]]


# --- tables changed by hand ----------------------------------------------------------------------


class Editable:
    """What has tables that can be changed by hand."""

    def _edited(self) -> EditedGAM:
        raise NotImplementedError

    def edit(
        self,
        term: str,
        *,
        reason: str,
        monotone: Literal["increasing", "decreasing"] | None = None,
        values: Mapping[Any, float] | None = None,
        cap: tuple[float, float] | None = None,
    ) -> EditedGAM:
        """
        Change one table by hand, with a record of what was changed and why.

        The GAM stays as it is. The result predicts, can be edited further, and
        :func:`gpflow_gam.serving.export` writes it, its edits included. It has no intervals: they
        would be of the tables that were fitted.

        :param term: the name of an effect of one column, of a GAM with one predictor.
        :param reason: why, in words.
        :param monotone: the closest table that never falls (``"increasing"``) or never rises, by
            least squares over the rows of the data.
        :param values: the effect at levels or at values of the column, on the link's scale.
        :param cap: the least and the greatest effect, on the link's scale.
        :return: a GAM that is its tables.
        :raises ValueError: an effect that is no such table; not one change; a bad argument.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError("reason must say why the table is changed.")
        given = {"monotone": monotone, "values": values, "cap": cap}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError(f"edit: give one of monotone, values and cap; got {list(given)}.")
        tables = self._edited()
        model = copy.deepcopy(tables.document)
        entry = next((t for t in model["terms"] if t["name"] == term and t["axes"]), None)
        if entry is None:
            names = ", ".join(t["name"] for t in model["terms"] if t["axes"])
            raise ValueError(f"term: there is no table {term!r}; the tables are {names}.")
        if len(entry["axes"]) > 1 or len(model["constant"]) > 1:
            raise ValueError(f"edit: {term} is no table of one column and one predictor.")
        (axis,) = entry["axes"]
        at = np.array([row[0] for row in entry["values"]])
        if monotone is not None:
            at = tables._monotone(term, axis, at, monotone)
        elif values is not None:
            axis, at = _with_values(model["columns"][axis["column"]]["levels"], axis, at, values)
        elif cap is not None:
            ends = np.atleast_1d(np.asarray(cap, dtype=object))
            if len(ends) != 2 or not all(map(_is_number, ends)) or ends[0] > ends[1]:
                raise ValueError(f"cap must be the least and the greatest effect; got {cap!r}.")
            at = np.clip(at, float(ends[0]), float(ends[1]))
        entry["axes"], entry["values"] = [axis], at[:, None].tolist()
        change = {"values": {str(k): float(v) for k, v in (values or {}).items()}}
        shown = {**given, **(change if values is not None else {})}
        effects = [tables._effect(m) for m in (tables.document, model)]
        model["edits"].append(
            {
                "term": term,
                "change": shown,
                "reason": reason,
                "deviance": [e[0] for e in effects],
                "mean": [e[1] for e in effects],
            }
        )
        return EditedGAM(tables._fit, tables._encoder, tables._fills, model)


class EditedGAM(Editable):
    """
    A GAM whose tables were changed by hand, as :meth:`gpflow_gam.GAM.edit` gives it.

    It predicts, without intervals, which no longer hold, can be edited further, and
    :func:`gpflow_gam.serving.export` writes it with its ``edits``.
    """

    def __init__(
        self,
        fit: FittedGAM | None,
        encoder: Encoder,
        fills: Sequence[Fill],
        document: dict[str, Any],
    ) -> None:
        self._fit, self._encoder, self._fills, self.document = fit, encoder, fills, document

    def __getstate__(self) -> dict[str, Any]:
        """The tables and their edits: what a pickle holds, without the fit and its data."""
        return {**vars(self), "_fit": None}

    def __repr__(self) -> str:
        return f"EditedGAM({len(self.document['edits'])} edits)"

    @property
    def edits(self) -> pd.DataFrame:
        """The changes: reasons, and deviance and mean response before and after each."""
        return pd.DataFrame(self.document["edits"])

    def predict(self, data: Any, type: Literal["response", "link", "terms"] = "response") -> Any:
        """
        Predictions from the tables.

        :param data: as of :meth:`gpflow_gam.GAM.predict`.
        :param type: the response at the predictor, [N] or [N, K] of classes; ``"link"``, the
            predictor, [N] or [N, L]; or ``"terms"``, a table with a column for each term.
        :return: the predictions.
        :raises ValueError: a column that is not there, or a value that the model cannot take.
        """
        names = {"response": "median", "link": "predictor", "terms": "terms"}
        check_choice("type", type, names)
        keys = columns_read(self.document, self._encoder)
        table = filled(Table(data), self._fills)
        check_complete(table, variables_of(self._encoder.sources(keys)))
        X = self._encoder.encode(table, keys)
        answer = scorer.scored(self.document, coded(self.document, self._encoder, X))[names[type]]
        return pd.DataFrame(answer) if type == "terms" else answer

    def _edited(self) -> EditedGAM:
        return self

    def _monotone(
        self, term: str, axis: Mapping[str, Any], at: AnyNDArray, direction: str
    ) -> AnyNDArray:
        """The closest table that never turns, by rows of the data at its knots."""
        check_choice("monotone", direction, ("increasing", "decreasing"))
        if axis["knots"] is None or axis["period"] is not None:
            raise ValueError(f"monotone: {term} is no function of a number.")
        if self._fit is None or not self._fit.data.available:
            raise ValueError("monotone: the rows of the data, which it weighs by, are not here.")
        X, component, knots = self._fit.X, self._fit.spec.component(term), np.array(axis["knots"])
        x = X[:, component.margins[0].column]
        nearest = np.searchsorted(0.5 * (knots[1:] + knots[:-1]), x)
        of_rows = self._fit.weights * np.square(component.multiplier(X))
        weights = np.bincount(nearest, of_rows, len(at))
        weights += 1e-6 * weights.sum()  # where there are no data
        increasing = direction == "increasing"
        return np.asarray(isotonic_regression(at, sample_weight=weights, increasing=increasing))

    def _effect(self, model: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Deviance and mean response of the data; None where they are not there."""
        fit = self._fit
        if fit is None or not fit.data.available:
            return None, None
        X, factor = fit.X, fit.units[0]
        f = scorer.scored(model, coded(model, fit.spec.encoder, X))["predictor"]
        F = ((f - fit.units[1]) / factor).reshape(len(X), 1)
        family, weights = fit.spec.family, fit.weights
        response = family.mean(fit.likelihood, F)
        of_classes = response.size > len(X)
        mean = None if of_classes else float(np.average(np.ravel(response), weights=weights))
        deviance = family.deviance(fit.likelihood, fit.Y, F)
        total = None if deviance is None else float(np.sum(weights * np.ravel(deviance)))
        return total, mean


def columns_read(model: Mapping[str, Any], encoder: Encoder) -> set[Key]:
    """The columns of X that tables read."""
    levels = {name: about["levels"] for name, about in model["columns"].items()}
    return {
        (name, kind)
        for name, kind in encoder.columns
        if str(name) in levels and (kind == "level") == (levels[str(name)] is not None)
    }


def coded(model: Mapping[str, Any], encoder: Encoder, X: AnyNDArray) -> dict[str, AnyNDArray]:
    """Columns of X [N, D] as the scorer has them, new levels as -1."""
    columns = {}
    for name, kind in columns_read(model, encoder):
        x = X[:, encoder.index(name, kind)]
        new = kind == "level" and x >= len(encoder.levels(name))
        columns[str(name)] = np.where(new, -1.0, x)
    return columns


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and bool(np.isfinite(float(value)))


def _with_values(
    levels: Sequence[Any] | None,
    axis: Mapping[str, Any],
    at: AnyNDArray,
    values: Mapping[Any, float],
) -> tuple[dict[str, Any], AnyNDArray]:
    """An axis and its table with given values at levels or knots, which may be new."""
    axis, at = dict(axis), at.copy()
    for key, value in values.items():
        if not _is_number(value) or (levels is None and not _is_number(key)):
            raise ValueError(f"values: {key!r}: {value!r} is no finite number at a place.")
        if levels is not None:
            if key not in levels:
                raise ValueError(f"values: {key!r} is none of the levels {list(levels)}.")
            at[list(levels).index(key)] = value
            continue
        knots, x, period = np.array(axis["knots"]), float(key), axis["period"]
        if period is not None:
            x = knots[0] + (x - knots[0]) % period
        place = int(np.searchsorted(knots, x))
        if place == len(knots) or knots[place] != x:
            if not knots[0] < x < knots[-1]:
                raise ValueError(f"values: {key!r} is no place between the knots of the table.")
            knots, at = np.insert(knots, place, x), np.insert(at, place, 0.0)
        at[place] = value
        if period is not None:  # one and the same point
            at[-1] = at[0]
        axis |= {"knots": knots.tolist(), "size": len(knots)}
    return axis, at
