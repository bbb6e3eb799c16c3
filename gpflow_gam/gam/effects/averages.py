"""Averages over rows, also where columns are set: partial dependence, predictions, comparisons."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...errors import check_choice, check_count, check_level
from ...threads import one_blas_thread
from ..fits import FittedGAM
from ..fits.fitted import CENTRAL, Inspected, Scale, meaningful, sampled, warn_if_far
from ..fits.prediction import Part, Prediction, Selection, known_part, part_of
from ..fits.reading import check_weights, in_memory
from ..frames.encoding import Element, Holes, LevelColumn, NumericColumn, filled
from ..frames.table import Table, check_no_place
from ..terms.base import Column, as_columns, one_column, variables_of
from ..terms.smooth import KINDS
from .effect import STEP, beside, stacked_frame
from .grid import as_table
from .posterior import equal_tailed, places_of, predictor_draws, simultaneous_bands

_ROWS = 2000  # rows of the fit, at random, that tell how far posterior draws are apart
_MOST_OWN = 10**5  # rows of the fit for estimates, over the square of the number of settings
_MOST = 10**6  # the same of rows that are given
_MOST_DRAWN = 2 * 10**7  # rows times draws, where each row is looked at by itself


@dataclasses.dataclass(frozen=True)
class Population:
    """Rows over which is averaged."""

    X: AnyNDArray
    weights: AnyNDArray
    places: AnyNDArray  # of the rows among those of the data, or of the fit
    table: Table | None = None


def population(
    fit: FittedGAM,
    data: Any = None,
    names: Iterable[Column] = (),
    drop: bool = False,
    part: Part | None = None,
    weights: Column | None = None,
    each: bool = False,
) -> Population:
    """Rows of ``data``, or of the fit that count; each by itself, of the fit at most 2000."""
    if data is None:
        rows = fit.some_rows(_ROWS if each else len(fit.X))
        return Population(fit.X[rows], fit.weights[rows], fit.data.indices[rows])
    names_read = fit.spec.names if part is None else part.components(fit.spec)
    table = in_memory(data)

    def readable(table: Table) -> Table:
        """With any value in what is set, which terms read; groups and weights read the rows'."""
        return table.beside({n: np.repeat(_any_value(fit, n), table.num_rows) for n in names})

    if weights is None and not each and fit.spec.weights is not None and fit.spec.weights in table:
        weights = fit.spec.weights
    if weights is not None:
        check_no_place("weights", weights, table.names)
        table = table.counted([weights])
    if drop:
        read = filled(readable(table), fit.spec.fills)
        lacking = Holes().add(read, fit.spec.inputs_of(names_read))
        table = table.rows(~lacking) if lacking.any() else table
    if table.num_rows == 0:
        raise ValueError("data has no complete rows that count to average over.")
    counts = np.ones(table.num_rows)
    if weights is not None:
        counts = NumericColumn(weights, "the weights").encode(table)
        check_weights(weights, counts.min(), f" in row {table.place(counts.argmin())}")
    X = fit.encode(readable(table), names_read)
    warn_if_far(fit, X, names_read)
    places = np.arange(table.num_rows) if table.origin is None else table.origin
    return Population(X, counts, places, table)


# --- columns that are set ------------------------------------------------------------------------


def readers_of(fit: FittedGAM, name: Column) -> dict[int, NumericColumn | LevelColumn]:
    """Readers of a column, by its place in X."""
    spec = fit.spec
    if spec.design is not None and name in spec.design.variables:
        raise ValueError(
            f"column {name!r} is what the formula makes {', '.join(spec.design.made)} of, which "
            "would stay as they are; make these columns in the data."
        )
    read = {c for component in spec.components for c in component.columns}
    read |= {spec.place(c) for c in spec.offset}
    every = list(enumerate(spec.encoder.readers))
    result = {i: reader for i, reader in every if i in read and reader.column == name}
    others = dict.fromkeys(
        r.column for i, r in every if i in read - set(result) and r.column is not None
    )
    computed = [other for other in others if name in variables_of([other])]
    if result and computed:
        raise ValueError(
            f"column {name!r} is also what {', '.join(map(str, computed))} is computed of, which "
            "would stay as it is; make these columns in the data."
        )
    if not result:
        there = ", ".join(map(repr, others))
        raise ValueError(f"no term reads a column {name!r}; there are {there}.")
    return result


def _ends(fit: FittedGAM, readers: Mapping[int, NumericColumn | LevelColumn]) -> list[Any]:
    """The least and the greatest value of a column of numbers, of each component that reads it."""
    margins = [m for c in fit.spec.components for m in c.margins if m.column in readers]
    if margins:
        # of a cyclic one over one period
        return [(m.ends[0], min(m.ends[1], m.ends[0] + (m.period or np.inf))) for m in margins]
    # of what multiplies a term, or an offset
    values = [fit.marginal(place)[0] / reader.factor for place, reader in readers.items()]
    return [(float(np.min(v)), float(np.max(v))) for v in values]


def _any_value(fit: FittedGAM, name: Column) -> Any:
    result = readers_of(fit, name)
    for reader in result.values():
        if isinstance(reader, LevelColumn):
            return reader.levels[0]
    margins = (m for c in fit.spec.components for m in c.margins if m.column in result)
    return _shown(result, np.array([next((m.centre for m in margins), 0.0)]))[0]


Setting = Callable[[AnyNDArray], AnyNDArray]
"""What makes rows of X [N, D] those that are looked at."""


def _as_they_are(X: AnyNDArray) -> AnyNDArray:
    return X


def _set(X: AnyNDArray, places: list[int], values: AnyNDArray) -> AnyNDArray:
    X = X.copy()
    X[:, places] = values
    return X


def set_columns(
    fit: FittedGAM, rows: Population, points: Mapping[Column, Sequence[Any]]
) -> list[Setting]:
    """Columns set to one combination of values after the other."""
    columns: dict[int, AnyNDArray] = {}
    for name, values in points.items():
        for place, reader in readers_of(fit, name).items():
            levels = isinstance(reader, LevelColumn)
            table = Table({name: pd.Series(values, dtype=object) if levels else list(values)})
            if table.missing(name).any():
                raise ValueError(f"column {name!r} cannot be set to a missing value.")
            own = NumericColumn(name, reader.use) if isinstance(reader, Element) else reader
            columns[place] = reader.factor * own.encode(table)
    if not points:
        return [_as_they_are]
    each = zip(*columns.values())
    result: list[Setting] = []
    result += [functools.partial(_set, places=list(columns), values=np.array(v)) for v in each]
    warn_if_far(fit, np.concatenate([setting(rows.X[:1]) for setting in result]))
    return result


def combined(lists: Mapping[Column, Sequence[Any]]) -> dict[Column, list[Any]]:
    """All combinations of values of columns."""
    empty = next((name for name, values in lists.items() if not values), None)
    if empty is not None:
        raise ValueError(f"at: column {empty!r} has no values.")
    return dict(zip(lists, map(list, zip(*itertools.product(*lists.values())))))


def listed(values: Any) -> list[Any]:
    """One value, or several, as a list."""
    return list(values) if pd.api.types.is_list_like(values) else [values]


def points_of(grid: Any, names: list[Column]) -> dict[Column, list[Any]]:
    """A user's grid, as values of each column."""
    if not isinstance(grid, Mapping) and not hasattr(grid, "columns") and len(names) == 1:
        grid = listed(grid)
    table = as_table(grid, names)
    points = {name: list(table.raw(name)) for name in names}
    if not points[names[0]]:
        raise ValueError("grid has no points.")
    return points


def axis_of(fit: FittedGAM, name: Column, number: int) -> list[Any]:
    """All levels of a column, or even values over the data of the fit."""
    readers = readers_of(fit, name)
    for reader in readers.values():
        if isinstance(reader, LevelColumn):
            return list(reader.levels)
    ends = _ends(fit, readers)
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    return list(_shown(readers, np.linspace(low, high, number)))


def _shown(readers: Mapping[int, NumericColumn | LevelColumn], values: AnyNDArray) -> Any:
    """Numbers of a column as users know them."""
    reader = next(iter(readers.values()))
    assert isinstance(reader, NumericColumn)
    return reader.shown(values)


# --- groups --------------------------------------------------------------------------------------


def groups_of(
    fit: FittedGAM, rows: Population, by: Column | Sequence[Column] | None
) -> tuple[pd.DataFrame, Any]:
    """The groups' labels, a row each, and the weights of rows in them, sparse [B, N]."""
    if by is None:
        return pd.DataFrame(index=range(1)), scipy.sparse.csr_matrix(rows.weights)
    names = as_columns("by", by)
    labels = pd.DataFrame({name: _labels(fit, rows, name) for name in names})
    keys = pd.DataFrame({name: _in_order(fit, rows, name, labels[name]) for name in names})
    grouped = keys.groupby(names, sort=True, observed=True, dropna=False)
    codes = grouped.ngroup().to_numpy()
    weights = scipy.sparse.csr_matrix((rows.weights, (codes, np.arange(len(codes)))))
    first, counts = np.unique(codes, return_index=True)[1], weights.sum(axis=1).A1 > 0.0
    return labels.iloc[first[counts]].reset_index(drop=True), weights[counts]


def _crossed(settings: Mapping[Any, Any], groups: pd.DataFrame) -> pd.DataFrame:
    """Every setting with every group, a row each."""
    first = pd.DataFrame(dict(settings), index=None if settings else range(1))
    named = beside(dict(groups.items()), settings)
    return first.merge(pd.DataFrame(named, index=groups.index), how="cross")


def _in_order(fit: FittedGAM, rows: Population, name: Column, labels: Any) -> Any:
    """Labels that sort as their categories do, those of the rows or of the fit."""
    levels = None if rows.table is None else rows.table.levels(name)
    if levels is None and (name, "level") in fit.spec.encoder.columns:
        levels = fit.spec.encoder.levels(name)
        levels = (*levels, *sorted(set(labels.dropna()).difference(levels), key=str))
    return labels if levels is None else pd.Categorical(labels, categories=levels)


def _labels(fit: FittedGAM, rows: Population, name: Column) -> Any:
    if rows.table is not None:
        return rows.table.values(name)
    try:
        ((place, reader),) = list(readers_of(fit, name).items())[:1]
    except ValueError as error:
        raise ValueError(f"by: {error} Pass data= to group rows by other columns.") from None
    return reader.shown(rows.X[:, place] / reader.factor)


_POINTS = {1: 50, 2: 15}
"""Number of points of a default grid, on each axis, by the number of columns."""


def _is_step(fit: FittedGAM, name: Column, change: Any) -> bool:
    """True if a column is shifted from its values, rather than set."""
    readers = readers_of(fit, name)
    levels = any(isinstance(r, LevelColumn) for r in readers.values())
    number = isinstance(change, (int, float, np.number)) and not isinstance(change, bool)
    if number and levels:
        raise ValueError(
            f"columns: {name!r} holds levels, which have no steps; name two of them, as "
            f"{{{name!r}: (first, second)}}."
        )
    margins = (m for c in fit.spec.components for m in c.margins if m.column in readers)
    truth = any(set(m.nodes) == {0.0, 1.0} for m in margins)  # which has no more than two values
    return number or (change is None and not levels and not truth)


def _compared(
    fit: FittedGAM, rows: Population, name: Column, change: Any, comparison: str
) -> tuple[list[Setting], list[str]]:
    """Settings, of which others are compared with the first, and what comparisons are called."""
    sign = "-" if comparison == "difference" else "/"
    if _is_step(fit, name, change):
        step = 1.0 if change is None else float(change)
        if step == 0.0 or not np.isfinite(step):
            raise ValueError(f"columns: a step of {name!r} must be a number but zero; got {step}.")
        moved = _moved(fit, name, step)
        warn_if_far(fit, moved(rows.X))
        label = f"({name} + {step:g}) {sign} {name}"
        return [_as_they_are, moved], [label]
    if change is None:
        values = axis_of(fit, name, 2)
    else:
        values = listed(change)
        if len(values) < 2:
            raise ValueError(
                f"columns: {name!r} needs two values to compare, or more that are compared with "
                f"the first; got {change!r}."
            )
    labels = [f"{value} {sign} {values[0]}" for value in values[1:]]
    return set_columns(fit, rows, {name: values}), labels


def _moved(fit: FittedGAM, name: Column, step: float) -> Setting:
    """A column's values, all of them by a step higher."""
    readers = readers_of(fit, name)
    places, by = list(readers), step * np.array([reader.factor for reader in readers.values()])
    return lambda X: _set(X, places, X[:, places] + by)


def _beside(fit: FittedGAM, name: Column) -> tuple[list[Setting], float]:
    """A column a little lower, and a little higher, and the distance."""
    readers = readers_of(fit, name)
    if any(isinstance(reader, LevelColumn) for reader in readers.values()):
        raise ValueError(f"columns: {name!r} holds levels, which have no slope; compare them.")
    margins = [m for c in fit.spec.components for m in c.margins if m.column in readers]
    rough = next((m.kind for m in margins if m.kind in KINDS and not KINDS[m.kind].has_slope), None)
    if rough is not None:
        raise ValueError(f"columns: {name!r} is read with bs={rough!r}, whose draws have no slope.")
    lengths = [m.length for m in margins] or [high - low for low, high in _ends(fit, readers)]
    step = STEP * float(min(lengths))
    return [_moved(fit, name, -step), _moved(fit, name, step)], 2.0 * step


def _sloping(fit: FittedGAM) -> list[Column]:
    """Columns of numbers that terms read."""
    read = {c for component in fit.spec.components for c in component.columns}
    readers = [r for i, r in enumerate(fit.spec.encoder.readers) if i in read]
    levels = {r.column for r in readers if isinstance(r, LevelColumn)}
    names = dict.fromkeys(r.column for r in readers)
    return [name for name in names if name is not None and name not in levels]


Quantity = Callable[[AnyNDArray], float] | Sequence[float] | AnyNDArray
"""A function of predictions [N], or their weights in a sum."""


def _evaluated(name: Any, quantity: Quantity, values: AnyNDArray) -> AnyNDArray:
    """A quantity of each of several vectors of predictions, [S, N] or [S, N, K]."""
    if callable(quantity):
        result = np.array([np.asarray(quantity(v), dtype=np.float64) for v in values])
        if result.ndim != 1:
            raise ValueError(
                f"quantities: {name!r} must be one number; the function gave shape "
                f"{result.shape[1:]}."
            )
        return result
    weights = np.asarray(quantity, dtype=np.float64)
    if weights.shape != values.shape[1:]:
        raise ValueError(
            f"quantities: the weights of {name!r} must have shape {values.shape[1:]}, a number for "
            f"each prediction; got {weights.shape}."
        )
    return np.tensordot(values, weights, weights.ndim)


def _some(weights: Any, limit: int) -> AnyNDArray:
    """Rows [n] that stand for all, of all groups; weights are [B, N], each row in one group."""
    return sampled(weights.tocsc().indices, limit)


def _averaged(values: AnyNDArray, weights: Any, total: bool) -> AnyNDArray:
    """Means over groups, or sums, [..., N, K] -> [..., B, K]."""
    rows = np.moveaxis(values, -2, 0)
    sums = weights @ rows.reshape(len(rows), -1)
    result = sums if total else sums / weights.sum(axis=1).A1[:, None]
    return np.moveaxis(result.reshape(len(result), *rows.shape[1:]), 0, -2)


class Averaging:
    """Averages of the expected response, or of the predictor, over rows."""

    # Estimates are at the fitted hyperparameters. Draws are of whole functions, one for all rows
    # and settings, so that sums and differences of averages have the uncertainty that they have.

    def __init__(
        self,
        gam: Inspected,
        scale: Scale,
        level: float,
        unconditional: bool,
        num_samples: int,
        seed: int | None,
        part: Part | None = None,
    ) -> None:
        self.fit, self.drop = gam.fitted, gam.missing == "drop"
        check_choice("scale", scale, ("response", "link"))
        check_level(level)
        check_count("num_samples", num_samples, 2)
        self.scale, self.level, self.unconditional = scale, level, unconditional
        self.num_samples, self.seed, self.part = num_samples, gam._chosen_seed(seed), part

    def each_row(self, rows: Population) -> tuple[pd.DataFrame, Any]:
        number = len(rows.X)
        if number * self.num_samples > _MOST_DRAWN:
            raise ValueError(
                f"{self.num_samples} draws at {number} rows are more than {_MOST_DRAWN}; pass "
                "fewer rows, or num_samples."
            )
        return pd.DataFrame({"row": rows.places}), scipy.sparse.identity(number, format="csr")

    def averages(
        self,
        rows: Population,
        settings: Sequence[Setting],
        weights: Any,
        smooth: bool = False,
        total: bool = False,
    ) -> AnyNDArray:
        """Estimates and S draws in G settings of rows, over B groups, [1 + S, G, B, K]."""
        fit, X, number = self.fit, rows.X, len(settings)
        own = rows.table is None
        if number * (min(len(X), _ROWS) if own else len(X)) > _MOST:
            raise ValueError(
                f"{len(X)} rows of data in {number} settings are more than {_MOST} to average "
                "over; pass fewer rows, such as data.sample(2000), or fewer values."
            )
        if own:
            few = _some(weights, max(_ROWS, _MOST_OWN // number**2))
            X, weights = X[few], weights[:, few]
        estimates = np.stack([self._estimated(setting(X)) for setting in settings])
        estimate, shift = _averaged(estimates, weights, total), np.array(0.0)
        if own and len(X) > _ROWS:
            few = _some(weights, _ROWS)
            X, weights = X[few], weights[:, few]
            # draws are of few rows, but about the estimate that is of all
            with np.errstate(invalid="ignore"):
                shift = np.nan_to_num(estimate - _averaged(estimates[:, few], weights, total))
        at = [setting(X) for setting in settings]
        known = [known_part(fit, X, self.part) for X in at]
        names = fit.spec.names if self.part is None else self.part.components(fit.spec)
        places = [places_of(fit, name, at) for name in names]
        with one_blas_thread():
            drawn = predictor_draws(
                fit,
                places,
                len(settings),
                self.num_samples,
                self.seed,
                self.unconditional,
                smooth,
                apart=self.scale == "link",
            )
            draws = []
            for likelihood, predictor in drawn:
                moved = [self._quantities(likelihood, F + k) for F, k in zip(predictor, known)]
                draws.append(_averaged(np.stack(moved, axis=1), weights, total) + shift)
        return np.concatenate([estimate[None], *draws])

    def _estimated(self, X: AnyNDArray) -> AnyNDArray:
        """Predictions at rows, [N, K]."""
        result = Prediction(self.fit, self.scale, part=self.part).estimate(X)
        return result if result.ndim == 2 else result[:, None]

    def _quantities(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """Predictions at predictors [s, N, L] in the model's unit, [s, N, K]."""
        if self.scale == "link":
            factor, shift = self.fit.units
            return np.asarray(shift + factor * F)
        result = np.asarray(self.fit.spec.family.mean(likelihood, F))
        return result if result.ndim == 3 else result[..., None]

    def frame(self, labels: pd.DataFrame, result: AnyNDArray, comparison: str = "") -> pd.DataFrame:
        """A row an average, one class or predictor after the other."""
        spec, estimate, draws, K = self.fit.spec, result[0], result[1:], result.shape[-1]
        lower, upper = equal_tailed(draws, self.level)
        se = draws.std(axis=0)
        if comparison == "ratio" or (spec.family.heavy_tailed and self.scale != "link"):
            low, high = equal_tailed(draws, CENTRAL)
            se = meaningful(se, low, high, positive=comparison != "difference")
        parts = {"estimate": estimate, "se": se, "lower": lower, "upper": upper}
        parts = {name: v.reshape(-1, K) for name, v in parts.items()}
        what, names = "class", spec.levels or range(K)
        if self.scale == "link":
            what, names = "predictor", spec.predictor_names
        return stacked_frame({name: labels[name].array for name in labels}, parts, what, names[:K])


def _slopes(
    over: Averaging,
    columns: Column | Sequence[Column] | None,
    rows: Population,
    labels: pd.DataFrame,
    weights: Any,
) -> pd.DataFrame:
    """Slopes in columns, averaged over groups of rows."""
    fit, frames = over.fit, []
    names = _sloping(fit) if columns is None else as_columns("columns", columns)
    if not names:
        raise ValueError("columns must name at least one column of numbers; got none.")
    for name in names:
        settings, distance = _beside(fit, name)
        slopes = np.diff(over.averages(rows, settings, weights, smooth=True), axis=1) / distance
        whole = _crossed({"column": [name]}, labels)
        frames.append(over.frame(whole, slopes, "difference"))
    return pd.concat(frames, ignore_index=True)


class Averager(Inspected):
    """Averages over rows of what a fitted GAM predicts."""

    def partial_dependence(
        self,
        columns: Column | Sequence[Column],
        grid: Any = None,
        *,
        data: Any = None,
        scale: Scale = "response",
        level: float = 0.95,
        num_points: int | None = None,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        The mean over rows of the expected response, with columns set to each value of a grid.

        (Friedman 2001.) Past a link this is another curve than ``effects(scale="response")``, which
        has the other effects at their average; and it has what a column does in all of the terms
        that read it.

        :param columns: a column, or several.
        :param grid: values of the column, a dict of columns or a DataFrame; by default all levels,
            or an even grid over the data of the fit, of a column that all terms take for cyclic
            over a period of them.
        :param data: rows to average over; the columns need not be in them. Rows count by the GAM's
            weights where they have them, but not by trials, which weights of binomial families are.
            By default those of the fit that count; at most 100 000 over the square of the number of
            settings, drawn at random, and no fewer than 2000.
        :param scale: ``"response"``, or ``"link"`` for the predictor.
        :param level: probability of the credible interval.
        :param num_points: of the default grid on each axis.
        :param unconditional: whether intervals allow for uncertain hyperparameters, as those of
            :meth:`effects`; those of one predictor of several for the others with ``scale="link"``.
        :param num_samples: posterior draws.
        :param seed: the GAM's own by default.
        :return: the grid's columns, ``estimate``, ``se``, ``lower``, ``upper`` and, for the whole
            curve at once, ``lower_simultaneous`` and ``upper_simultaneous``; ``class`` (or
            ``predictor``) where there are several, with a curve each.
        :raises ValueError: naming the argument or column.
        """
        over = Averaging(self, scale, level, unconditional, num_samples, seed)
        check_count("num_points", num_points)
        fit, names = over.fit, as_columns("columns", columns)
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"columns must name one column or several different ones; got {names!r}."
            )
        rows = population(fit, data, names, over.drop)
        if grid is None:
            number = num_points or _POINTS.get(len(names), 7)
            points = combined({name: axis_of(fit, name, number) for name in names})
        else:
            points = points_of(grid, names)
        result = over.averages(rows, set_columns(fit, rows, points), groups_of(fit, rows, None)[1])
        frame = over.frame(pd.DataFrame(points), result)
        lower, upper = frame["lower"].to_numpy(), frame["upper"].to_numpy()
        if result.shape[1] > 1:
            low, high = simultaneous_bands(result[1:, :, 0], over.level)
            lower, upper = np.minimum(lower, low.T.ravel()), np.maximum(upper, high.T.ravel())
        return frame.assign(lower_simultaneous=lower, upper_simultaneous=upper)

    def avg_predictions(
        self,
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        at: Mapping[Column, Any] | None = None,
        weights: Column | None = None,
        total: bool = False,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Expected responses, averaged over rows (``avg_predictions`` of R's marginaleffects).

        With ``total=True`` they are added up: over the cells of a grid, with ``weights=`` their
        areas and ``by="year"``, it is the index of abundance of a survey, as ``get_index`` of R's
        sdmTMB. Its uncertainty is that of the sum, of which errors that cells share are the most.
        ``scale``, ``level``, ``unconditional``, ``num_samples`` and ``seed`` are as of
        :meth:`partial_dependence`.

        :param data: rows to average over, as of :meth:`partial_dependence`.
        :param by: columns of the data: an average for each combination of their values.
        :param at: columns that are set for all rows, to each combination of the given values, as
            ``{"dose": [0, 1]}``; they need not be in the data.
        :param weights: a column of ``data`` by which rows count, in place of the GAM's weights.
        :param total: whether rows are added up, rather than averaged; ``data`` must then be given
            and complete, as a row that is left out would be missing from the sum.
        :return: a row an average: the columns of ``at`` and ``by``, ``estimate``, ``se``,
            ``lower``, ``upper``; ``class`` (or ``predictor``) where there are several.
        :raises TypeError, ValueError: naming the argument or column.
        """
        over = Averaging(self, scale, level, unconditional, num_samples, seed)
        if data is None and (total or weights is not None):
            raise ValueError("weights and total are of the rows of data, which must be given.")
        weights = None if weights is None else one_column("weights", weights)
        if at is not None and not isinstance(at, Mapping):
            raise TypeError(f"at must map columns to values, as {{'x': [0, 1]}}; got {at!r}.")
        points, fit = combined({n: listed(values) for n, values in (at or {}).items()}), over.fit
        rows = population(fit, data, points, over.drop and not total, weights=weights)
        groups, counts = groups_of(fit, rows, by)
        result = over.averages(rows, set_columns(fit, rows, points), counts, total=total)
        return over.frame(_crossed(points, groups), result)

    def avg_comparisons(
        self,
        columns: Column | Sequence[Column] | Mapping[Column, Any],
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        comparison: Literal["difference", "ratio"] = "difference",
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Average effects of changing a column (``avg_comparisons`` of marginaleffects).

        ``scale``, ``level``, ``unconditional``, ``num_samples`` and ``seed`` are as of
        :meth:`partial_dependence`.

        :param columns: one column, several, or a mapping of each to what is compared. A column of
            numbers is moved by one, or by the step that is given, as ``{"x": 0.1}``; of a pair
            ``{"x": (2, 5)}`` the second value is compared with the first. Levels are compared with
            the first of them, or of those that are given, and one with zero in a column that has
            only these, as truth values are.
        :param data: rows to average over, as of :meth:`partial_dependence`.
        :param by: columns of the data: comparisons for each combination of their values.
        :param comparison: ``"difference"`` of averages, or their ``"ratio"``.
        :return: a row a comparison: ``column``, ``contrast``, the columns of ``by``, ``estimate``,
            ``se``, ``lower``, ``upper``; ``class`` (or ``predictor``) where there are several.
        :raises ValueError: naming the argument or column.
        """
        over = Averaging(self, scale, level, unconditional, num_samples, seed)
        fit = over.fit
        check_choice("comparison", comparison, ("difference", "ratio"))
        whole = columns if isinstance(columns, Mapping) else {}
        asked = {name: whole.get(name) for name in as_columns("columns", columns)}
        if not asked:
            raise ValueError("columns must name at least one column; got none.")
        compare = np.subtract if comparison == "difference" else np.divide
        frames = []
        for name, change in asked.items():
            fixed = not _is_step(fit, name, change)
            rows = population(fit, data, [name] if fixed else [], over.drop)
            groups, weights = groups_of(fit, rows, by)
            settings, labels = _compared(fit, rows, name, change, comparison)
            result = over.averages(rows, settings, weights)
            named = {"column": [name] * len(labels), "contrast": labels}
            labelled = _crossed(named, groups)
            frames.append(over.frame(labelled, compare(result[:, 1:], result[:, :1]), comparison))
        return pd.concat(frames, ignore_index=True)

    def avg_slopes(
        self,
        columns: Column | Sequence[Column] | None = None,
        data: Any = None,
        *,
        by: Column | Sequence[Column] | None = None,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Average slopes of the expected response in columns (``avg_slopes`` of marginaleffects).

        The slope is that of the whole prediction: of all terms that read the column, and past the
        link. It is a central difference over a small share of the column's span, or its period.
        ``scale``, ``level``, ``unconditional``, ``num_samples`` and ``seed`` are as of
        :meth:`partial_dependence`.

        :param columns: columns of numbers; all that terms read by default.
        :param data: rows to average over, as of :meth:`partial_dependence`.
        :param by: columns of the data: averages for each combination of their values.
        :return: a row a slope, in units of the response (or predictor) per unit of the column:
            ``column``, the columns of ``by``, ``estimate``, ``se``, ``lower``, ``upper``; ``class``
            (or ``predictor``) where there are several.
        :raises ValueError: a column of levels, or of a smooth without slope; naming the argument.
        """
        over = Averaging(self, scale, level, unconditional, num_samples, seed)
        rows = population(over.fit, data, (), over.drop)
        return _slopes(over, columns, rows, *groups_of(over.fit, rows, by))

    def slopes(
        self,
        columns: Column | Sequence[Column] | None = None,
        data: Any = None,
        *,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Slopes of the expected response at each row (``slopes`` of marginaleffects).

        ``scale``, ``level``, ``unconditional``, ``num_samples`` and ``seed`` are as of
        :meth:`partial_dependence`.

        :param columns: columns of numbers; all that terms read by default.
        :param data: N rows; by default those of the fit, or 2000 of them at random.
        :return: as :meth:`avg_slopes`, with ``row``, its number among those of ``data``, or among
            those that the fit kept, for each column. With ``missing="drop"`` rows that lack a value
            are left out; the fit numbers the others anew.
        :raises ValueError: as :meth:`avg_slopes`; or too many rows times draws.
        """
        over = Averaging(self, scale, level, unconditional, num_samples, seed)
        rows = population(over.fit, data, (), over.drop, each=True)
        return _slopes(over, columns, rows, *over.each_row(rows))

    def hypotheses(
        self,
        quantities: Any,
        data: Any,
        *,
        null: float = 0.0,
        terms: Selection | None = None,
        scale: Scale = "response",
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Quantities made of predictions: contrasts, ratios, where a curve is highest or crosses.

        Each is computed of the estimates, and of every posterior draw of all N predictions
        together. ``gam.hypotheses([-1, 1], {"x": [0.2, 0.8]}, terms="s(x)", scale="link")`` asks
        whether ``s(x)`` is higher at .8 than at .2; ``lambda f: x[f.argmax()]``, at a grid ``x``,
        where its maximum is.
        ``scale``, ``level``, ``unconditional``, ``num_samples`` and ``seed`` are as of
        :meth:`partial_dependence`.

        :param quantities: N weights of predictions in a sum, or a function that makes a number of
            an array of N predictions ([N, K] where there are K classes or predictors), NaN where
            there is none; or a mapping of names to these.
        :param data: N rows, complete ones.
        :param null: a value with which quantities are compared.
        :param terms: the terms that count, as in :meth:`predict`, beside intercept and offsets;
            columns that others read need not be there.
        :return: a row a quantity: ``quantity``, its name, where there are names; ``estimate``,
            ``se``, ``lower``, ``upper``; ``probability``, posterior, of a value above ``null``;
            ``defined``, the share of draws in which it is not NaN, of which the others are.
        :raises ValueError: naming the argument or column.
        """
        part = part_of(self.fitted.spec, terms)
        over = Averaging(self, scale, level, unconditional, num_samples, seed, part)
        named = quantities if isinstance(quantities, Mapping) else {"": quantities}
        rows = population(over.fit, data, part=part, each=True)
        result = over.averages(rows, [_as_they_are], over.each_row(rows)[1])[:, 0]
        result = result[..., 0] if result.shape[-1] == 1 else result
        lines = []
        for name, quantity in named.items():
            estimate, *draws = _evaluated(name, quantity, result)
            there, summary = np.array(draws)[~np.isnan(draws)], [np.nan] * 4
            if len(there):
                ends = equal_tailed(there, over.level)
                summary = [there.std(), *ends, float(np.mean(there > null))]
            lines.append((name, estimate, *summary, len(there) / len(draws)))
        columns = ["quantity", "estimate", "se", "lower", "upper", "probability", "defined"]
        frame = pd.DataFrame(lines, columns=columns)
        return frame if named is quantities else frame.drop(columns="quantity")
