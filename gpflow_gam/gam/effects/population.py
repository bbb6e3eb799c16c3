"""Rows to average over: which they are, with columns set, and in groups."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..fits import FittedGAM
from ..fits.extrapolation import warn_if_far
from ..fits.formula import in_memory
from ..frames import Holes, LevelColumn, NumericColumn, Table, filled
from ..terms import Column, as_columns, variables_of

_ROWS = 2000
"""Rows of the fit's data that stand for them, evenly spread."""
_MOST = 10**6
"""Rows times settings of columns that are looked at in one call."""


@dataclasses.dataclass(frozen=True)
class Population:
    """
    Rows over which is averaged.

    :param X: as encoded, [N, D].
    :param weights: how often each row counts, [N].
    :param table: the rows as users know them; None for those of the fit.
    """

    X: AnyNDArray
    weights: AnyNDArray
    table: Table | None = None


def population(
    fit: FittedGAM, data: Any = None, names: Iterable[Column] = (), drop: bool = False
) -> Population:
    """
    The rows that ``data`` are, or those of the fit that count: all, or 2000, evenly spread.

    Frequency weights count, of ``data`` where they hold the fit's column of weights.

    :param names: columns that are set, and so need not be in the data.
    :param drop: whether rows that lack a value are left out.
    :raises ValueError: as :meth:`FittedGAM.encode`; or there are no rows, or none that counts.
    """
    if data is None:
        rows = fit.even_rows(_ROWS)
        return Population(fit.X[rows], fit.weights[rows])
    table = in_memory(data)
    columns = table.columns()
    for name in names:  # which value does not matter: it is set
        columns[name] = np.repeat(_any_value(fit, name), table.num_rows)
    table = Table(columns)
    if fit.spec.weights is not None and fit.spec.weights in table:
        table = table.counted([fit.spec.weights])
    if drop:
        lacking = Holes().add(filled(table, fit.spec.fills), fit.spec.inputs)
        table = table.rows(~lacking) if lacking.any() else table
    if table.num_rows == 0:
        raise ValueError("data has no complete rows that count to average over.")
    weights = np.ones(table.num_rows)
    if fit.spec.weights is not None and fit.spec.weights in table:
        weights = NumericColumn(fit.spec.weights, "the weights").encode(table)
        if np.any(weights < 0.0):
            raise ValueError(
                f"weights {fit.spec.weights!r} must not be negative; got {weights.min():g} in row "
                f"{int(weights.argmin())}."
            )
    X = fit.encode(table)
    warn_if_far(fit, X)
    return Population(X, weights, table)


# --- columns that are set ------------------------------------------------------------------------


def readers_of(fit: FittedGAM, name: Column) -> dict[int, NumericColumn | LevelColumn]:
    """
    How the model reads a column, by its place in X.

    :raises ValueError: it does not.
    """
    spec = fit.spec
    if spec.design is not None and name in spec.design.variables:
        raise ValueError(
            f"column {name!r} is what the formula makes {', '.join(spec.design.made)} of, which "
            "would stay as they are; make these columns in the data."
        )
    read = {c for component in spec.components for c in component.columns}
    read |= {spec.place(c) for c in spec.offset}
    every = list(enumerate(spec.encoder.columns.values()))
    found = {i: reader for i, reader in every if i in read and reader.name == name}
    computed = [
        r.name for i, r in every if i in read - set(found) and name in variables_of([r.name])
    ]
    if found and computed:
        raise ValueError(
            f"column {name!r} is also what {', '.join(map(str, computed))} is computed of, which "
            "would stay as it is; make these columns in the data."
        )
    if not found:
        there = dict.fromkeys(repr(reader.name) for i, reader in every if i in read)
        raise ValueError(f"no term reads a column {name!r}; there are {', '.join(there)}.")
    return found


def _any_value(fit: FittedGAM, name: Column) -> Any:
    """A value that a column may have."""
    found = readers_of(fit, name)
    for reader in found.values():
        if isinstance(reader, LevelColumn):
            return reader.levels[0]
    margins = (m for c in fit.spec.components for m in c.margins if m.column in found)
    return _shown(found, np.array([next((m.centre for m in margins), 0.0)]))[0]


def set_columns(
    fit: FittedGAM, rows: Population, points: Mapping[Column, Sequence[Any]]
) -> list[AnyNDArray]:
    """
    The rows with columns set, in one setting after the other.

    :raises ValueError: values that the columns cannot have, or too many of them.
    """
    if not points:
        return [rows.X]
    number = len(next(iter(points.values())))
    if number * len(rows.X) > _MOST:
        raise ValueError(
            f"{len(rows.X)} rows of data in {number} settings are more than {_MOST} to average "
            "over; pass fewer rows, such as data.sample(2000), or fewer values."
        )
    encoded = {place: v for name, own in points.items() for place, v in _codes(fit, name, own)}
    found = [rows.X.copy() for _ in range(number)]
    for place, values in encoded.items():
        for X, value in zip(found, values):
            X[:, place] = value
    warn_if_far(fit, np.concatenate([X[:1] for X in found]))
    return found


def _codes(fit: FittedGAM, name: Column, values: Sequence[Any]) -> list[tuple[int, AnyNDArray]]:
    """Values of a column as X has them, by place."""
    found = []
    for place, reader in readers_of(fit, name).items():
        column: Any = list(values)
        if isinstance(reader, LevelColumn):
            column = pd.Series(column, dtype=object)
        table = Table({name: column})
        if table.missing(name).any():
            raise ValueError(f"column {name!r} cannot be set to a missing value.")
        found.append((place, reader.encode(table)))
    return found


def combined(at: Mapping[Column, Any] | None) -> dict[Column, list[Any]]:
    """All combinations of values of columns."""
    if at is None:
        return {}
    if not isinstance(at, Mapping):
        raise TypeError(f"at must map columns to values, as {{'x': [0, 1]}}; got {at!r}.")
    lists = {name: listed(values) for name, values in at.items()}
    empty = next((name for name, values in lists.items() if not values), None)
    if empty is not None:
        raise ValueError(f"at: column {empty!r} has no values.")
    return dict(zip(lists, map(list, zip(*itertools.product(*lists.values())))))


def listed(values: Any) -> list[Any]:
    """One value, or several, as a list."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return [values]
    return list(values)


def points_of(grid: Any, names: list[Column]) -> dict[Column, list[Any]]:
    """
    A user's grid, as values of each column.

    :raises ValueError: it lacks a column, or has no points.
    """
    if isinstance(grid, Mapping) or hasattr(grid, "columns"):
        table = Table(grid)
        points = {name: list(table.raw(name)) for name in names}
    elif len(names) == 1:
        points = {names[0]: listed(grid)}
    else:
        raise ValueError(
            f"grid must be a dict or DataFrame with the columns {', '.join(map(repr, names))}; "
            f"got {type(grid).__name__}."
        )
    if not points[names[0]]:
        raise ValueError("grid has no points.")
    return points


def axis_of(fit: FittedGAM, name: Column, number: int) -> list[Any]:
    """All levels of a column, or even values over the data of the fit."""
    readers = readers_of(fit, name)
    for reader in readers.values():
        if isinstance(reader, LevelColumn):
            return list(reader.levels)
    ends = [m.ends for c in fit.spec.components for m in c.margins if m.column in readers]
    if not ends:  # of what multiplies a term, or an offset
        values = [fit.marginal(place)[0] for place in readers]
        ends = [(float(np.min(v)), float(np.max(v))) for v in values]
    low, high = min(e[0] for e in ends), max(e[1] for e in ends)
    return list(_shown(readers, np.linspace(low, high, number)))


def _shown(readers: Mapping[int, NumericColumn | LevelColumn], values: AnyNDArray) -> AnyNDArray:
    """Numbers of a column as users know them."""
    reader = next(iter(readers.values()))
    assert isinstance(reader, NumericColumn)
    return reader.shown(values)


# --- groups --------------------------------------------------------------------------------------


def groups_of(
    fit: FittedGAM, rows: Population, by: Column | Sequence[Column] | None
) -> tuple[pd.DataFrame, AnyNDArray]:
    """The groups' labels, a row each, and the weights of rows in them, [B, N]."""
    if by is None:
        return pd.DataFrame(index=range(1)), rows.weights[None]
    names = as_columns("by", by)
    labels = pd.DataFrame({name: _labels(fit, rows, name) for name in names})
    keys = pd.DataFrame({name: _in_order(fit, rows, name, labels[name]) for name in names})
    grouped = keys.groupby(names, sort=True, observed=True, dropna=False)
    codes = grouped.ngroup().to_numpy()
    first = np.array([np.flatnonzero(codes == b)[0] for b in range(codes.max() + 1)])
    weights = np.where(codes == np.arange(len(first))[:, None], rows.weights, 0.0)
    counts = weights.sum(axis=1) > 0.0
    return labels.iloc[first[counts]].reset_index(drop=True), weights[counts]


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
    values = rows.X[:, place]
    if isinstance(reader, NumericColumn):
        return values
    return np.array(reader.levels, dtype=object)[values.astype(int)]
