"""From named columns to the matrix X that kernels read."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms import Column, Term, expression
from . import labels
from .table import Distinct, Table, plain

_TIMES, _ZONED, _SPANS = "times", "times with a time zone", "spans of time"
_DAY = 86_400e6
"""Microseconds."""
_GREATEST = 1e100
"""Beyond which products of a few numbers may be infinite."""


@dataclasses.dataclass(frozen=True)
class NumericColumn:
    """A column of numbers, in its own unit."""

    name: Column
    use: str
    limits: tuple[float, float] | None = None
    time: str = ""

    def encode(self, table: Table) -> AnyNDArray:
        """The column as floats [N]."""
        values = table.values(self.name)
        result = kind_of_time(table, self.name)
        if result != self.time:
            held = result or ("levels" if is_levels(table, self.name) else "numbers")
            needed = f"{self.time}, as in the fit" if self.time else "numbers"
            how = "pandas.to_timedelta" if self.time == _SPANS else "pandas.to_datetime"
            remedy = f"by {how}" if self.time else "to days since its start for instance"
            raise ValueError(
                f"column {self.name!r} holds {held} where {self.use} needs {needed}; convert it, "
                f"{remedy}."
            )
        if self.time:
            values = _days(values, self.time)
        elif _holds(table, self.name, (str,)):
            row = next((i for i, v in enumerate(values) if isinstance(v, str)), 0)
            held = "text" if isinstance(values[row], str) else "categories"
            raise ValueError(
                f"column {self.name!r} holds {held} ({values[row]!r} in row {row}) where "
                f"{self.use} needs numbers; convert it, or use factor({self.name!r})."
            )
        if values.dtype.kind == "c" or (
            values.dtype.kind == "O" and any(issubclass(t, complex) for t in set(map(type, values)))
        ):
            raise ValueError(
                f"column {self.name!r} holds complex numbers; {self.use} needs real ones: take "
                "their real and imaginary parts as columns of their own."
            )
        try:
            numbers: AnyNDArray = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"column {self.name!r} holds values of type {type(values[0]).__name__} where "
                f"{self.use} needs numbers; convert it."
            ) from None
        if not np.all(np.isfinite(numbers)):
            row = int(np.flatnonzero(~np.isfinite(numbers))[0])
            own = self.name.variables if isinstance(self.name, expression.Expression) else ()
            where = ", ".join(f"{v} = {table.values(v)[row]}" for v in own)
            raise ValueError(
                f"column {self.name!r} must be finite; got {numbers[row]} in row {row}"
                + (f", where {where}; leave such rows out, or change it." if own else ".")
            )
        if len(numbers) and np.max(np.abs(numbers)) >= _GREATEST:
            row = int(np.argmax(np.abs(numbers)))
            raise ValueError(
                f"column {self.name!r} has {numbers[row]:g} in row {row}, whose square overflows; "
                "divide it by a power of ten."
            )
        if self.limits is not None and len(numbers):
            low, high = self.limits
            strange = np.flatnonzero((numbers < low) | (numbers > high))
            if len(strange):
                raise ValueError(f"{self.outside} {numbers[strange[0]]:g} in row {strange[0]}.")
        return numbers

    @property
    def outside(self) -> str:
        """Error message for values outside the range of the column, up to the value."""
        low, high = self.limits or (-np.inf, np.inf)
        return (
            f"column {self.name!r} must be within {low:g} and {high:g}, degrees in {self.use}; got"
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        own: dict[str, Any] = {} if self.limits is None else {"limits": list(self.limits)}
        own |= {"time": self.time} if self.time else {}
        return {"name": expression.to_json(self.name), "use": self.use, **own}

    def shown(self, values: AnyNDArray) -> AnyNDArray:
        """Values as users know them: times where they are days."""
        if not self.time:
            return values
        spans = (values * _DAY).round().astype(np.int64).astype("timedelta64[us]")
        return spans if self.time == _SPANS else np.datetime64(0, "us") + spans

    def joined(self, values: AnyNDArray, table: Table) -> Any:
        """Rows that were encoded and, after them, those of a table."""
        known: Any = pd.Series(self.shown(values))
        known = known.dt.tz_localize("UTC") if self.time == _ZONED else known
        both = pd.concat([known, pd.Series(table.values(self.name))], ignore_index=True)
        return both if self.time == _ZONED else both.to_numpy()


@dataclasses.dataclass(frozen=True)
class LevelColumn:
    """A column of levels, as codes 0, 1, ..."""

    name: Column
    levels: tuple[Any, ...]
    unseen: str = "error"

    def encode(self, table: Table) -> AnyNDArray:
        """The codes as floats [N]; levels that were not there get codes of their own."""
        column = table.distinct(self.name)
        codes = {level: i for i, level in enumerate(self.levels)}
        own = [plain(v) for v in column.values]
        place = np.array([codes.get(v, -1) for v in own], dtype=np.float64)
        encoded: AnyNDArray = place[column.codes]
        strange = encoded < 0
        if not strange.any():
            return encoded
        others = Distinct(column.codes[strange], column.values).occurring()
        new = list(dict.fromkeys(plain(v) for v in others))
        if self.unseen == "error":
            shown = ", ".join(repr(level) for level in self.levels[:12])
            raise ValueError(
                f"column {self.name!r} has the level {new[0]!r} in row "
                f"{int(np.flatnonzero(strange)[0])}, never seen in the fit; the levels are {shown}"
                f"{', ...' if len(self.levels) > 12 else ''}. factor(..., unseen='prior'), "
                "random_effect() and s(..., bs='fs') take new levels."
            )
        self._check_kinds([plain(v) for v in column.occurring()], new[0])
        codes |= {level: len(self.levels) + i for i, level in enumerate(new)}
        # a category that does not occur has no code
        place = np.array([codes.get(v, -1) for v in own], dtype=np.float64)
        return np.asarray(place[column.codes])

    def _check_kinds(self, values: list[Any], new: Any) -> None:
        """Raises ValueError if all values are of another kind, as numbers read as text."""
        own = dict.fromkeys(_kind(level) for level in self.levels)
        if own and not any(_kind(v) in own for v in values):
            raise ValueError(
                f"column {self.name!r} holds {_kind(new)} ({new!r}), where its levels in the fit "
                f"were {' and '.join(own)} ({self.levels[0]!r}, ...), so that every row would have "
                f"a new level; convert it, and let new levels be {' or '.join(own)}, too."
            )

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "name": expression.to_json(self.name),
            "levels": [level_to_json(level, self.name) for level in self.levels],
            "unseen": self.unseen,
        }


def level_to_json(level: Any, name: Column) -> Any:
    """A level as JSON can hold it."""
    try:
        return labels.to_json(level)
    except TypeError as error:
        raise ValueError(
            f"column {name!r} has levels of type {error}, which no file can hold; make it text "
            f"before the fit: data[{name!r}].map(str)."
        ) from None


Key = tuple[Column, str]
"""A column and how it is read, ``"number"`` or ``"level"``."""


class Encoder:
    """Map from named columns to the columns of X."""

    def __init__(self, columns: Mapping[Key, NumericColumn | LevelColumn]) -> None:
        self.columns = dict(columns)

    @property
    def width(self) -> int:
        """D, the number of columns of X."""
        return len(self.columns)

    def index(self, name: Column, kind: str) -> int:
        """Place in X of a column that is read as ``kind``."""
        return list(self.columns).index((name, kind))

    def places(self, kind: str) -> list[int]:
        """Places in X of the columns that are read as ``kind``."""
        return [i for i, (_, k) in enumerate(self.columns) if k == kind]

    def levels(self, name: Column) -> tuple[Any, ...]:
        """The levels of a column that is read as levels."""
        column = self.columns[name, "level"]
        assert isinstance(column, LevelColumn)
        return column.levels

    def encode(self, table: Table, only: set[Key] | None = None) -> AnyNDArray:
        """X [N, D]."""
        X = np.zeros((table.num_rows, self.width))
        for i, (key, column) in enumerate(self.columns.items()):
            if only is None or key in only:
                X[:, i] = column.encode(table)
        return X

    def to_json(self) -> list[dict[str, Any]]:
        """As JSON can hold it."""
        return [{"kind": kind, **c.to_json()} for (_, kind), c in self.columns.items()]

    @classmethod
    def from_json(cls, values: list[dict[str, Any]]) -> Encoder:
        """Read an encoder that :meth:`to_json` wrote."""
        columns: dict[Key, NumericColumn | LevelColumn] = {}
        for value in values:
            kind, name = value["kind"], expression.from_json(value["name"])
            if kind == "level":
                levels = tuple(labels.from_json(level) for level in value["levels"])
                column = LevelColumn(name, levels, value["unseen"])
                columns[name, kind] = column
            else:
                limits = tuple(value["limits"]) if "limits" in value else None
                own = value.get("time", "")
                columns[name, kind] = NumericColumn(name, value["use"], limits, own)
        return cls(columns)


def learn_levels(table: Table, name: Column, unseen: str = "error") -> LevelColumn:
    """The levels that occur in a column: in a category's own order, else sorted."""
    occurring = {plain(v) for v in table.distinct(name).occurring() if not pd.isna(v)}
    _check_written(occurring, name)
    own = table.levels(name)
    if own is not None:
        levels = tuple(plain(v) for v in own if plain(v) in occurring)
    else:
        try:
            levels = tuple(sorted(occurring, key=lambda v: (isinstance(v, str), v)))
        except TypeError:
            kinds = sorted({type(v).__name__ for v in occurring})
            raise ValueError(
                f"column {name!r} has levels without a common order ({', '.join(kinds)}); make "
                "them text, or a category, which has its own order."
            ) from None
    if any(isinstance(v, float) for v in levels) and len(levels) > 20:
        raise ValueError(
            f"column {name!r} holds {len(levels)} different fractions, which are no levels; use "
            f"s({name!r})."
        )
    return LevelColumn(name, levels, unseen)


def is_levels(table: Table, name: Column) -> bool:
    """True if a column is of levels by its type: text, categories or truth values."""
    dtype = getattr(table.raw(name), "dtype", None)
    values = table.values(name)
    if isinstance(dtype, pd.BooleanDtype) or values.dtype.kind == "b":
        return True
    return _holds(table, name, (str, bool))


def _holds(table: Table, name: Column, kinds: tuple[type, ...]) -> bool:
    """True if a column is categorical or text, or holds objects of one of these kinds."""
    dtype = getattr(table.raw(name), "dtype", None)
    if isinstance(dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return True
    values = table.values(name)
    if values.dtype.kind != "O":
        return values.dtype.kind in "US"
    # the first rows tell nearly always
    return any(issubclass(t, kinds) for some in (values[:99], values) for t in set(map(type, some)))


def kind_of_time(table: Table, name: Column) -> str:
    """Kind of times in a column, with or without a zone, or spans; empty for none."""
    values = table.values(name)
    if values.dtype.kind in "mM":
        return _TIMES if values.dtype.kind == "M" else _SPANS
    if values.dtype.kind != "O":
        return ""
    first = next((v for v in values if not pd.isna(v)), None)
    if isinstance(first, datetime.timedelta):
        return _SPANS
    zoned = isinstance(first, datetime.datetime) and first.tzinfo is not None
    return (_ZONED if zoned else _TIMES) if isinstance(first, datetime.date) else ""


def numeric_column(
    table: Table, name: Column, term: Term, limits: tuple[float, float] | None = None
) -> NumericColumn:
    """Reader of a column that a term takes as numbers, or as times."""
    time = kind_of_time(table, name) if name in term.columns else ""
    return NumericColumn(name, term.label, limits, time)


def _days(values: AnyNDArray, time: str) -> AnyNDArray:
    """Times, those with a zone in UTC, or spans of time as days."""
    if time != _SPANS:
        spans = pd.to_datetime(pd.Series(values), utc=True) - pd.Timestamp(0, tz="UTC")
    else:
        spans = pd.to_timedelta(pd.Series(values))
    return np.asarray(spans / pd.Timedelta(days=1), dtype=np.float64)


def _check_written(levels: Iterable[Any], name: Column) -> None:
    """Files read in parts may have the same codes as numbers in one and as text in another."""
    written = {str(v): v for v in levels if _kind(v) == "numbers"}
    twice = [v for v in levels if isinstance(v, str) and v in written]
    if twice:
        both = sorted(twice)[0]
        raise ValueError(
            f"column {name!r} holds {written[both]!r} as a number and as text ({both!r}), which "
            f"would be two levels; make all of it text or all of it numbers."
        )


def _kind(level: Any) -> str:
    """Kind of a level; levels of different kinds are never equal."""
    if isinstance(level, str):
        return "text"
    if isinstance(level, Number):
        return "numbers"
    if isinstance(level, datetime.datetime):
        return "times" if level.tzinfo is None else "times with a time zone"
    if isinstance(level, datetime.date):
        return "dates"
    return f"values of type {type(level).__name__}"
