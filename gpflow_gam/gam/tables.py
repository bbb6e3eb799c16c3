"""A fitted GAM as tables: what each component is at knots or levels, straight lines in between."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy import special
from scipy.spatial import cKDTree
from scipy.stats import norm

from ..errors import ResolutionWarning, check_choice, warn_caller
from ..likelihoods import MeanLink
from ..threads import one_blas_thread
from ..version import __version__
from . import scorer
from .components.plan import Component, Margin
from .effects import effect, transformed
from .effects.effect import predictors, stacked_frame
from .effects.posterior import joint_moments, pivoted_root
from .families.base import base_of, number
from .fits import FittedGAM
from .fits.specification import Specification
from .frames.encoding import (
    Encoder,
    Key,
    LevelColumn,
    NumericColumn,
)
from .frames.table import Table
from .terms.base import Column, Expression

ERROR = 1e-4
"""Default of the interpolation's error, against an effect's range over the data."""
_START, _ROUNDS = 17, 12  # knots of an axis at first, and rounds to refine
_MOST = {1: 1000, 2: 150}  # knots of an axis at most, by the number of axes of numbers
_ROOT_ERROR = 0.004  # of standard errors between points, of all terms together
_MOST_ROOTS = 4000  # points of all terms, whose joint covariance is factorised
_LARGEST_SE = 0.01  # error of standard errors, as a share of them, without a warning
_NEAR = 1000  # rows at which tables are compared with the fit
_AVERAGED = 1000  # points whose averages have the standard errors of all bins of a table
_ROWS = 600  # points whose joint covariance is formed at once where points are chosen


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


def check_levels(column: Column, levels: Iterable[Any]) -> None:
    """Raise ValueError for levels of a type that other programs do not have."""
    other = next((v for v in levels if not isinstance(v, (str, int, float))), None)
    if other is not None:
        raise ValueError(
            f"gam: column {column!r} has levels of type {type(other).__name__}, which other "
            f"programs do not have; make them text before the fit: data[{column!r}].map(str)."
        )


def input_dtype(column: Column, levels: Sequence[Any]) -> tf.DType:
    """The type of a column of levels."""
    kinds = {type(v) for v in levels}
    if kinds == {str}:
        return tf.string
    if str in kinds:
        raise ValueError(
            f"column {column!r} has levels of several types "
            f"({', '.join(sorted(k.__name__ for k in kinds))}), which no input can take; convert "
            "it to text before the fit."
        )
    return tf.bool if kinds == {bool} else tf.float64 if float in kinds else tf.int64


def increasing(option: str, column: Column, points: Any, infinite: bool) -> AnyNDArray:
    """Places on an axis as an array; ValueError if they are none."""
    given, own = np.asarray(points), f"{option}: those of {column!r} must be"
    if given.dtype.kind not in "iuf":
        raise ValueError(f"{own} numbers; got {points!r}.")
    if given.ndim != 1 or len(given) < 2 or not np.all(np.diff(given) > 0.0):
        raise ValueError(f"{own} two or more, and increase; got {points!r}.")
    if not (infinite or np.isfinite(given).all()):
        raise ValueError(f"{own} finite; got {points!r}.")
    return given


def counted_by(fit: FittedGAM, component: Component) -> AnyNDArray:
    """What rows of X count by in averages of a function: the square of what multiplies it, too."""
    return np.asarray(fit.weights * np.square(component.multiplier(fit.X)))


class Roots(NamedTuple):
    """Rows whose sums over terms have the predictor's variance, but for what each has alone."""

    axes: list[list[Axis]]  # of each component
    rows: list[AnyNDArray]  # [L, K, R]
    left: list[AnyNDArray]  # variances between inducing inputs, which terms have alone, [L, K]
    rank: int  # R


class Tables:
    """The tables of a fit, to ``error`` of the range of an effect; ValueError if none can be."""

    def __init__(
        self,
        fit: FittedGAM,
        error: float = ERROR,
        knots: Mapping[Column, Sequence[float]] | None = None,
        bins: Mapping[Column, Sequence[float]] | None = None,
    ) -> None:
        if not 0.0 < error < 1.0:
            raise ValueError(f"error must be a share of an effect's range; got {error!r}.")
        self.fit, self.error, self.knots = fit, error, dict(knots or {})
        self.bins = {column: np.asarray(ends) for column, ends in (bins or {}).items()}
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
        timed = {r.name for r in self.readers if isinstance(r, NumericColumn) and r.time}
        each = (("knots", self.knots.items()), ("bins", self.bins.items()))
        for option, column, points in ((o, *one) for o, given in each for one in given):
            if column not in read or column in levels:
                raise ValueError(f"{option}: no term reads column {column!r} as numbers.")
            increasing(option, column, points, option == "bins" and column not in timed)
        if both := [c for c in self.bins if c in self.knots]:
            raise ValueError(f"bins: {both[0]!r} has knots already; give one of the two.")

    def values(self, component: Component, points: Sequence[AnyNDArray]) -> AnyNDArray:
        """The component in the response's unit at the product of points of axes, [K, ..., L]."""
        # a by-variable is at one
        rows = np.array(list(itertools.product(*points)))
        return self._at(component, rows).reshape(*map(len, points), -1)

    def _at(self, component: Component, points: AnyNDArray) -> AnyNDArray:
        """The same at points [n, d], [n, L]."""
        fit = self.fit
        X = component.full(points, fit.spec.encoder.width)
        means = fit.component_means(X, [component.name])[0][:, 0]
        return np.asarray(fit.units[0] * means + fit.constant_of(component))

    def _ranges(self) -> dict[str, float]:
        """By how much each component varies over the data; little counts as a hundredth of most."""
        ranges = {}
        for c in self.components:
            points = [self._within(self._axis(c, m), m) for m in c.margins]
            at = self.values(c, points)
            ranges[c.name] = float(np.ptp(at, axis=tuple(range(len(points)))).max(initial=0.0))
        least = 0.01 * max(ranges.values(), default=0.0)
        return {name: max(size, least) for name, size in ranges.items()}

    # --- knots -----------------------------------------------------------------------------------

    def _axes(self, component: Component) -> list[Axis]:
        axes = [self._axis(component, m) for m in component.margins]
        free = [
            i
            for i, axis in enumerate(axes)
            if axis.levels is None
            and axis.column not in {**self.knots, **self.bins}
            and component.form != "line"
        ]
        values = functools.partial(self.values, component)
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

    def _axis(self, component: Component, margin: Margin, few: bool = False) -> Axis:
        """Knots to begin with, up to one range beyond the data, a quarter where there are few."""
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
        numeric = sum(m.kind != "levels" for m in component.margins)
        away = 0.25 * span if few or numeric > 1 else span
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

    @one_blas_thread()
    def roots(self) -> Roots | None:
        """Standard errors of all terms, the constants first; None if they take too many points."""
        every = [*self.constants, *self.components]
        most = _MOST_ROOTS // len(every)
        axes = [self._root_axes(c, most) for c in every]
        rows = [np.array(list(itertools.product(*(a.points for a in each)))) for each in axes]
        if sum(map(len, rows)) > _MOST_ROOTS:
            return None
        covariance, left = self._covariance(every, rows)
        roots = [pivoted_root(one) for one in covariance]
        rank = max(r.shape[1] for r in roots)
        whole = np.stack([np.pad(r, ((0, 0), (0, rank - r.shape[1]))) for r in roots])
        ends = np.cumsum([len(r) for r in rows])[:-1]
        return Roots(axes, np.split(whole, ends, axis=1), np.split(left, ends, axis=1), rank)

    def _covariance(
        self, components: Sequence[Component], rows: Sequence[AnyNDArray]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Covariance of components at points, [L, K, K]; variances of each for itself, [L, K]."""
        fit, L = self.fit, self.fit.num_predictors
        blocks, enters = [], []
        for component, points in zip(components, rows):
            X = component.full(points.reshape(len(points), -1), fit.spec.encoder.width)
            blocks.append((component.name, X))
            entered = np.isin(range(L), component.predictors_of(L))
            enters.append(np.repeat(entered[:, None], len(X), axis=1))
        if (moments := fit.known_moments) is None:
            _, prior, h = map(np.asarray, fit.posterior.joint_parts(dict(blocks)))
            covariance, left = prior - h @ h.swapaxes(1, 2), np.zeros(prior.shape[1])
        else:
            parts = moments.joint_parts(blocks, [moments.tangents(name, X) for name, X in blocks])
            covariance, left = parts.inner, parts.open
        square, there = fit.units[0][:, None] ** 2, np.concatenate(enters, axis=1)
        covariance = square[..., None] * covariance
        return covariance * (there[:, :, None] & there[:, None, :]), square * left * there

    def _root_axes(self, component: Component, most: int) -> list[Axis]:
        """So many points at most, between which straight lines give the standard errors."""
        axes = [self._axis(component, m, len(component.margins) > 1) for m in component.margins]
        free = [i for i, axis in enumerate(axes) if axis.levels is None]
        if component.form == "line":
            return axes
        if len(axes) == len(free) == 1:  # at inducing inputs rough functions have kinks
            points = axes[0].points
            kinks = np.clip(np.ravel(component.inducing), points[0], points[-1])
            axes[0] = dataclasses.replace(axes[0], points=np.union1d(points, kinks))
        levels = math.prod(len(a.points) for a in axes if a.levels is not None)
        each = int((most / levels) ** (1.0 / max(len(free), 1)))
        curved = [m for c in self.components if c.form != "line" for m in c.margins]
        numeric = sum(m.kind != "levels" for m in curved)
        allowed = _ROOT_ERROR / max(numeric, 1) ** 0.5  # as errors of terms add up
        done = {i: np.zeros(0) for i in free}
        for _, i in itertools.product(range(_ROUNDS), free):
            knots = axes[i].points
            new = np.flatnonzero(~np.isin(knots[:-1], done[i]))
            off = self._errors(component, axes, i, new) / allowed
            done[i] = np.append(done[i], knots[new[off <= 1.0]])
            worst = new[np.argsort(-off)][: np.count_nonzero(off > 1.0)]
            split = worst[: max(each - len(knots), 0)]
            points = np.sort(np.append(knots, 0.5 * (knots[split] + knots[split + 1])))
            axes[i] = dataclasses.replace(axes[i], points=points)
        return axes

    def _errors(
        self, component: Component, axes: Sequence[Axis], i: int, lows: AnyNDArray
    ) -> AnyNDArray:
        """Errors of standard errors between a point of an axis and the next, as shares of them."""
        knots, beyond = axes[i].points, _beyond(axes[i].points, component.margins[i].ends)
        shares = np.array([0.25, 0.5, 0.75] if len(axes) == 1 else [0.5])
        few = [1 if a.levels is None else -(-len(a.points) // 4) for a in axes]
        others = [a.points[: 1 if j == i else None : few[j]] for j, a in enumerate(axes)]
        along = np.array(list(itertools.product(*others)))
        at = np.append([0.0, 1.0], shares)
        errors, size = np.zeros(len(lows)), max(1, _ROWS // (len(at) * len(along)))
        to = np.stack([1.0 - shares, shares, *-np.eye(len(shares))], axis=1)  # less what is there
        for begin in range(0, len(lows), size):
            low = knots[span := lows[begin : begin + size]]
            rows = np.tile(along, (len(at), len(span), 1, 1))
            rows[..., i] = (low + at[:, None] * (knots[span + 1] - low))[..., None]
            covariance, left = self._covariance([component], [rows.reshape(-1, len(axes))])
            shape = (-1, len(at), len(span) * len(along))
            each = np.einsum("lanbn->nlab", covariance.reshape(*shape, *shape[1:]))
            left = left.reshape(shape).transpose(2, 0, 1)
            variance = self._variances(component, rows[2:].reshape(-1, len(axes)))
            variance = variance.reshape(len(shares), shape[2], -1).transpose(1, 2, 0)
            far = np.repeat(beyond[span], len(along))[:, None, None]
            own = (np.einsum("nlaa->nla", each) + left)[..., 2:]
            variance = np.where(far, np.maximum(variance, own), variance)
            # a component that is off by e moves the predictor's standard error by sd(e) at most:
            # its own one may be far larger, and other terms take it back
            off = np.sqrt(np.maximum(np.einsum("sa,nlab,sb->nls", to, each, to), 0.0) / variance)
            off += 0.5 * np.abs(left @ to.T) / variance
            errors[begin : begin + size] = off.reshape(len(span), -1).max(axis=1)
        return errors / np.where(beyond[lows], 3.0, 1.0)

    def _variances(self, component: Component, points: AnyNDArray) -> AnyNDArray:
        """The predictors' variances at rows near points of a component, by its variable at one."""
        X, _, variance = self.near
        times = np.square(component.multiplier(X))
        if not times.any():  # a rare level
            times = np.ones(len(X))
        X, variance = X[times > 0.0], variance[times > 0.0] / times[times > 0.0, None]
        columns = [m.column for m in component.margins]
        scale = X[:, columns].std(axis=0)
        scale[scale == 0.0] = 1.0
        _, nearest = cKDTree(X[:, columns] / scale).query(points / scale)
        return np.maximum(variance[nearest], 1e-300)

    @functools.cached_property
    def near(self) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """Rows of the data, or between their ends, and means and variances of predictors there."""
        fit, rng = self.fit, np.random.default_rng(0)
        if fit.data.available:
            X = fit.X[rng.permutation(len(fit.X))[:_NEAR]]
        else:
            X = np.zeros((_NEAR, fit.spec.encoder.width))
            columns = self._columns()
            for x, reader in zip(X.T, self.readers):
                about = columns.get(str(reader.name))
                if isinstance(reader, LevelColumn):
                    x[:] = rng.integers(len(reader.levels), size=_NEAR)
                elif about is not None:
                    low, high = about["range"] or (0.0, 1.0)
                    x[:] = rng.uniform(low, high, size=_NEAR)
        mean, variance = fit.predict_link(X)
        factor, shift = fit.units
        return X, shift + factor * np.asarray(mean), factor**2 * np.asarray(variance)

    # --- as people read them ---------------------------------------------------------------------

    def frames(
        self,
        scale: Literal["link", "response"],
        base: Mapping[Column, Any],
        level: float,
    ) -> dict[str, pd.DataFrame]:
        """As :meth:`gpflow_gam.GAM.tables` returns them."""
        check_choice("scale", scale, ("link", "response"))
        link = self.link()["name"] if scale == "response" else "identity"
        if link not in ("identity", "log", "logit"):
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
            known = value in levels if levels is not None else timed or is_number(value)
            if not known:
                what = "a finite number" if levels is None else f"one of the levels {list(levels)}"
                raise ValueError(f"base: {column!r} must be {what}; got {value!r}.")
        fun = np.exp if link != "identity" else None
        frames = {c.name: self._frame(c, base, level, fun) for c in self.components}
        return {name: transformed(frame, fun) for name, frame in frames.items()}

    def _frame(
        self, component: Component, base: Mapping[Column, Any], level: float, fun: Any
    ) -> pd.DataFrame:
        axes = self.axes[component.name]
        points = [self._shown(a, m) for a, m in zip(axes, component.margins)]
        rows = np.array(list(itertools.product(*points)))
        columns = {a.column: self._labels(a, rows[:, i]) for i, a in enumerate(axes)}
        own = {c: base[c] for c in columns if len(axes) == 1 and c in base}
        place = self._places(component, points) if self.fit.data.available else np.zeros(0, int)
        if any(c in self.bins for c in columns):
            estimate, se, error = self._averages(component, rows, place, own)
            names = predictors(self.fit, component)[1]
            more = {"error": error if fun is None else fun(error)}
        else:
            table = effect(self.fit, component.name, columns, level, reference=own or None)
            estimate, se, names, more = table.estimate, table.se, table.predictors, {}
        half = float(norm.ppf(0.5 + 0.5 * level)) * se
        parts = {"estimate": estimate, "se": se, "lower": estimate - half, "upper": estimate + half}
        if len(place):
            counts = np.bincount(place[place >= 0], minlength=len(rows))
            counts = np.round(counts * (self.fit.number / len(self.fit.X))).astype(np.int64)
            more["rows"] = np.tile(counts[:, None], len(names))
        return stacked_frame(columns, parts | more, "predictor", names)

    def _shown(self, axis: Axis, margin: Margin) -> AnyNDArray:
        """Points of an axis within the data; of bins their places."""
        if axis.levels is not None:
            return axis.points[: len(axis.levels)]
        if (breaks := self.bins.get(axis.column)) is not None:
            return np.arange(len(breaks) - 1.0)
        if axis.period is not None or axis.column in self.knots:
            return axis.points
        low, high = margin.ends
        return axis.points[(axis.points >= low) & (axis.points <= high)]

    def _labels(self, axis: Axis, values: AnyNDArray) -> Any:
        if (breaks := self.bins.get(axis.column)) is None:
            return axis.reader.shown(values)
        ends = axis.reader.shown(breaks)
        return pd.IntervalIndex.from_breaks(ends, closed="left")[values.astype(int)]

    def _places(self, component: Component, points: Sequence[AnyNDArray]) -> AnyNDArray:
        """The point of a table that is nearest to each row of X, or whose bin it is in; or -1."""
        X = self.fit.X
        place, acting = np.zeros(len(X), dtype=np.int64), np.zeros(len(X), dtype=bool)
        acting[component.acting(X)] = True
        for axis, margin, knots in zip(self.axes[component.name], component.margins, points):
            own = self._along(axis, margin, knots, X[:, margin.column])
            place, acting = place * len(knots) + own, acting & (own >= 0)
        return np.where(acting, place, -1)

    def _along(self, axis: Axis, margin: Margin, points: AnyNDArray, x: AnyNDArray) -> AnyNDArray:
        """The same of one axis: places of values, -1 of those in no bin."""
        bins = self.bins.get(axis.column)
        ends = points if bins is None else bins
        if margin.period is not None:
            low = ends[0] if np.isfinite(ends[0]) else margin.ends[0]
            x = low + np.mod(x - low, margin.period)
        if bins is None:
            return np.searchsorted(0.5 * (points[1:] + points[:-1]), x)
        return np.where(x < ends[-1], np.searchsorted(ends, x, side="right") - 1, -1)

    def _averages(
        self,
        component: Component,
        rows: AnyNDArray,
        place: AnyNDArray,
        base: Mapping[Column, Any],
    ) -> tuple[AnyNDArray, ...]:
        """Averages over the rows in bins, their standard errors, and the most rows are off by."""
        fit, entered = self.fit, predictors(self.fit, component)[0]
        axes, each = self.axes[component.name], min(50, 2 + _AVERAGED // len(rows))
        known = [i for i, axis in enumerate(axes) if axis.column not in self.bins]
        means, errors, points = [], [], []
        every = counted_by(fit, component) if len(place) else place
        for k, row in enumerate(rows):
            counted = np.flatnonzero((place == k) & (every > 0.0))
            if len(counted):
                at, weights = component.points(fit.X[counted]), every[counted]
                at[:, known] = row[known]
            else:
                at = self._between(component, row)
                weights = np.ones(len(at))
            at, which = np.unique(at, axis=0, return_inverse=True)
            weights = np.bincount(which.ravel(), weights)
            values = self._at(component, at)[:, entered]
            means.append(weights @ values / weights.sum())
            errors.append(np.abs(values - means[-1]).max(axis=0))
            shares = np.cumsum(weights) / weights.sum()
            points.append(at[np.searchsorted(shares, (np.arange(each) + 0.5) / each)])
        A, variances = np.eye(len(rows)), []
        for column, value in base.items():
            x = axes[0].reader.encode(Table({column: pd.Series([value])}))
            (k,) = self._along(axes[0], component.margins[0], rows[:, 0], x)
            if k < 0:
                raise ValueError(f"base: {value!r} is in none of the bins of {column!r}.")
            A[:, k] -= 1.0
        together = len(rows) if base else max(1, _AVERAGED // each)
        for some in np.array_split(range(len(rows)), -(-len(rows) // together)):
            X = component.full(np.concatenate([points[k] for k in some]), fit.spec.encoder.width)
            covariance = joint_moments(fit, [(component.name, X)])[1][entered]
            covariance = covariance.reshape(-1, *(len(some), each) * 2).mean(axis=(2, 4))
            own = A[np.ix_(some, some)]
            variances.append(np.einsum("ij,ljk,ik->il", own, covariance, own))
        se = np.sqrt(np.maximum(np.concatenate(variances), 0.0))
        return A @ np.stack(means), se, np.stack(errors)

    def _between(self, component: Component, row: AnyNDArray) -> AnyNDArray:
        """Points in bins without data, evenly; open ones go no farther than the data."""
        sides = []
        for axis, margin, place in zip(self.axes[component.name], component.margins, row):
            if (bins := self.bins.get(axis.column)) is None:
                sides.append([place])
                continue
            low, high = bins[int(place)], bins[int(place) + 1]
            low = low if np.isfinite(low) else min(margin.ends[0], high)
            high = high if np.isfinite(high) else max(margin.ends[1], low)
            sides.append(np.linspace(low, high, _START))
        return np.array(list(itertools.product(*sides)))

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
            constant = constant + self.values(component, []).ravel() - fit.constant_of(component)
        terms = []
        if roots is not None and self.constants:
            terms.append(self._entry(self.constants[0], [], np.zeros((1, len(constant))), roots, 0))
        for i, component in enumerate(self.components):
            axes = self.axes[component.name]
            values = self.values(component, [a.points for a in axes])
            flat = values.reshape(-1, values.shape[-1])
            terms.append(self._entry(component, axes, flat, roots, i + len(self.constants)))
        return {
            "format": scorer.FORMAT,
            "version": scorer.VERSION,
            "gpflow_gam": __version__,
            "fit": self._about(),
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
            "rank": 0 if roots is None else roots.rank,
            "terms": terms,
        }

    def _about(self) -> dict[str, Any]:
        """What the fit was, for those who read a file later."""
        deviance, least = self.fit.deviance() or (0.0, 0.0)
        return {
            "rows": int(self.fit.number),
            "terms": repr(self.fit.spec.terms),
            "converged": self.fit.result.converged,
            "deviance_explained": 1.0 - deviance / least if least > 0.0 else None,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }

    def checked(self, model: Mapping[str, Any]) -> dict[str, float]:
        """How far predictions from a document are from the fit's, at rows of the data."""
        fit, (X, mean, variance) = self.fit, self.near
        factor, shift = fit.units
        answer = scorer.scored(model, coded(model, fit.spec.encoder, X))
        off = np.abs(answer["predictor"].reshape(mean.shape) - mean).max()
        response = fit.spec.family.mean(fit.likelihood, (mean - shift) / factor)
        of_response = np.abs(answer["median"].reshape(response.shape) - response).max()
        result = {"rows": len(X), "predictor": float(off)}
        result["response"] = float(of_response / np.abs(response).max())
        if "se" in answer:
            se, there = np.sqrt(variance), answer["se"].reshape(variance.shape)
            shares = np.abs(there / np.maximum(se, 1e-300) - 1.0)[se > 0.0]
            result["se"] = float(shares.max(initial=0.0))
            if result["se"] > _LARGEST_SE:
                warn_caller(
                    f"model: standard errors and intervals in the file are off by up to "
                    f"{100 * result['se']:.2g} % at rows of the data; export a SavedModel or "
                    "ONNX, where they are exact.",
                    ResolutionWarning,
                )
        return result

    def _entry(
        self,
        component: Component,
        axes: Sequence[Axis],
        values: AnyNDArray,
        roots: Roots | None,
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
            "left": None,
        }
        if roots is not None:
            entry["root_axes"] = [axis.to_json() for axis in roots.axes[place]]
            entry["roots"] = [[_short(row) for row in rows] for rows in roots.rows[place]]
            entry["left"] = [_short(row) for row in roots.left[place]]
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
        known: list[dict[str, Any]] = [{"name": name} for name in scorer.LINKS]
        base = base_of(fit.likelihood, MeanLink)
        if isinstance(base, MeanLink) and base.link != "log":
            f, bend = number(base.unit) * f, None if base.bend is None else number(base.bend)
            given = response(np.column_stack([f, others[:, 1:]]))
            known = [{"name": base.link, "unit": number(base.unit), "bend": bend}]
        for link in known:
            there = scorer.inverse(link, f)[:, None]
            if given.shape == there.shape and np.allclose(given, there, rtol=1e-9, atol=1e-12):
                return link
        centre = (
            np.ravel(fit.constant_of(fit.spec.components[0]))[0] if fit.spec.components else 0.0
        )
        half = max(30.0 * float(np.ravel(factor)[0]), 3.0 * sum(self.ranges.values()))
        wide = centre + half * np.linspace(-1.0, 1.0, 4001)
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
    values: Callable[[Sequence[AnyNDArray]], AnyNDArray],
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
    allowed = np.where(_beyond(knots, ends), 10.0, 1.0) * tolerance
    worst = np.argsort(-off / allowed, kind="stable")[: most - len(knots)]
    split = worst[off[worst] > allowed[worst]]
    return np.sort(np.concatenate([knots, knots[split] + 0.5 * steps[split]]))


def _beyond(knots: AnyNDArray, ends: tuple[float, float]) -> AnyNDArray:
    """Which intervals between knots are beyond the data."""
    return (knots[1:] <= ends[0]) | (knots[:-1] >= ends[1])


def _short(row: AnyNDArray) -> list[float]:
    """Seven digits, without the zeros at the end."""
    used = np.flatnonzero(row)
    return [float(f"{v:.7g}") for v in row[: used[-1] + 1 if len(used) else 0]]


class TablePosterior:
    """Moments of a fit's predictors from its tables, by a few operations, without any kernel."""

    couples_outputs = False

    @classmethod
    def of(cls, fit: FittedGAM) -> TablePosterior | None:
        """That of a fit; None where it has no tables, or these do not hold its standard errors."""
        try:
            tables = Tables(fit)
        except ValueError:
            return None
        roots = None if fit.posterior.couples_outputs else tables.roots()
        return None if roots is None else cls(fit, tables, roots)

    def __init__(self, fit: FittedGAM, tables: Tables, roots: Roots) -> None:
        self.names, self.num_latent_gps = fit.spec.names, fit.num_predictors
        self._offset, factor = fit.model.mean_function, fit.units[0]
        place = {c.name: i for i, c in enumerate([*tables.constants, *tables.components])}
        self._parts = []
        for component in fit.spec.components:
            axes, i = tables.axes.get(component.name, []), place[component.name]
            values = tables.values(component, [a.points for a in axes])
            means = (values - fit.constant_of(component)) / factor
            rows = np.moveaxis(roots.rows[i], 0, 1) / factor[:, None]  # [K, L, R]
            left = roots.left[i].T[..., None] / factor[:, None] ** 2
            held = np.concatenate([rows, left], axis=2)
            means = means.reshape(-1, self.num_latent_gps)
            self._parts.append((component, axes, means, roots.axes[i], held))

    def _moments(self, X: tf.Tensor) -> Iterator[tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Means [N, L] of each component; of variances a root [N, L, R], and the rest [N, L]."""
        for component, axes, means, root_axes, held in self._parts:
            times = tf.ones_like(X[:, :1])
            if component.by is not None:
                x = X[:, component.by.column, None]
                known = component.by.code is None
                times = x if known else tf.cast(tf.equal(x, component.by.code), X.dtype)
            mean = times * _interpolated(component, axes, means, X)
            root = times[..., None] * _interpolated(component, root_axes, held, X)
            yield mean, root[..., :-1], tf.maximum(times * root[..., -1], 0.0)

    def predict_f(self, X: tf.Tensor, full_output_cov: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of the predictors, [N, L] each."""
        means, roots, left = (tf.add_n(list(part)) for part in zip(*self._moments(X)))
        return self._offset(X) + means, tf.reduce_sum(tf.square(roots), axis=2) + left

    def predict_components(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of the components, [N, C] each, or [N, C, L]."""
        each = [(m, tf.reduce_sum(tf.square(r), axis=2) + left) for m, r, left in self._moments(X)]
        mean, var = (tf.stack(part, axis=1) for part in zip(*each))
        return (mean, var) if self.num_latent_gps > 1 else (mean[..., 0], var[..., 0])


def _interpolated(
    component: Component, axes: Sequence[Axis], table: AnyNDArray, X: tf.Tensor
) -> tf.Tensor:
    """A table [K, ...] at rows X [N, D], as the scorer has it."""
    corners = [(tf.cast(tf.zeros_like(X[:, 0]), tf.int32), tf.ones_like(X[:, 0]))]
    for axis, margin in zip(axes, component.margins):
        x, size = X[:, margin.column], len(axis.points)
        if axis.levels is not None:  # the last row is that of new levels
            steps = [(tf.minimum(tf.cast(x, tf.int32), size - 1), None)]
        else:
            knots = axis.points
            if axis.period is not None:
                x = knots[0] + tf.math.floormod(x - knots[0], tf.constant(axis.period, X.dtype))
            above = x[:, None] >= tf.constant(knots[1:-1], X.dtype)
            low = tf.reduce_sum(tf.cast(above, tf.int32), axis=1)
            first, width = (
                tf.gather(tf.constant(a, X.dtype), low) for a in (knots, np.diff(knots))
            )
            share = (x - first) / width
            steps = [(low, 1.0 - share), (low + 1, share)]
        corners = [(p * size + i, w if s is None else w * s) for p, w in corners for i, s in steps]
    held, ones = tf.constant(table, X.dtype), [1] * (table.ndim - 1)
    return tf.add_n([tf.reshape(w, [-1, *ones]) * tf.gather(held, p) for p, w in corners])


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


def is_number(value: Any) -> bool:
    """True of a finite one."""
    return isinstance(value, Real) and bool(np.isfinite(float(value)))
