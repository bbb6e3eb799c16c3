"""From named columns to the matrix X that kernels read."""

from __future__ import annotations

import base64
import copy
import dataclasses
import datetime
import decimal
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Number
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms.base import Column, Expression, Lags, Term, column_from_json, column_to_json
from ..terms.parametric import levels_of, parsed, variables_of
from .table import SPANS, ZONED, Distinct, Table, kind_of_time, listed, plain, spans_of

# --- levels as JSON: text, numbers and truth values as they are, others as an object --------------


_PLAIN = (str, int, float, type(None))  # a bool is an int


def value_to_json(value: Any) -> Any:
    """A level, what stands in for a missing value, or what was learnt, as JSON can hold it."""
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    if type(value) in (*_PLAIN, bool):
        return value
    for name, (kinds, write, _) in _CODECS.items():
        if isinstance(value, kinds):
            return {name: write(value)}
    raise TypeError(type(value).__name__)


def value_from_json(value: Any) -> Any:
    """Read a level that :func:`value_to_json` wrote."""
    if not isinstance(value, (dict, list)):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((name, content),) = value.items()
        if name in _CODECS:
            return _CODECS[name][2](content)
    raise ValueError(f"{value!r} is no level")


def _instant(value: Any) -> list[Any]:
    stamp = pd.Timestamp(value)
    zone = None if stamp.tz is None else str(stamp.tz)
    return [int(stamp.asm8.view(np.int64)), stamp.unit, zone]


def _from_instant(content: list[Any]) -> pd.Timestamp:
    number, unit, zone = content
    stamp = pd.Timestamp(np.datetime64(number, unit))
    return stamp if zone is None else stamp.tz_localize("UTC").tz_convert(zone)


def _span(value: Any) -> list[Any]:
    delta = pd.Timedelta(value)
    return [int(delta.asm8.view(np.int64)), delta.unit]


_Codec = tuple[type | tuple[type, ...], Callable[[Any], Any], Callable[[Any], Any]]
_CODECS: dict[str, _Codec] = {
    # datetimes of Python are equal to pandas' of the same instant, and hash alike
    "timestamp": ((datetime.datetime, np.datetime64), _instant, _from_instant),
    "date": (datetime.date, lambda v: v.isoformat(), datetime.date.fromisoformat),
    "time": (datetime.time, lambda v: v.isoformat(), datetime.time.fromisoformat),
    "timedelta": (
        (datetime.timedelta, np.timedelta64),
        _span,
        lambda c: pd.Timedelta(np.timedelta64(c[0], c[1])),
    ),
    "period": (
        pd.Period,
        lambda v: [int(v.ordinal), v.freqstr],
        lambda c: pd.Period(ordinal=c[0], freq=c[1]),
    ),
    "interval": (
        pd.Interval,
        lambda v: [value_to_json(v.left), value_to_json(v.right), v.closed],
        lambda c: pd.Interval(value_from_json(c[0]), value_from_json(c[1]), closed=c[2]),
    ),
    "bytes": (bytes, lambda v: base64.b64encode(v).decode("ascii"), base64.b64decode),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    # what transforms of a formula have learnt
    "dict": (
        dict,
        lambda v: [[value_to_json(x) for x in pair] for pair in v.items()],
        lambda c: {value_from_json(k): value_from_json(x) for k, x in c},
    ),
    "array": (np.ndarray, lambda v: v.tolist(), np.array),
    "text": (str, str, str),  # of a class derived from it
    "number": ((int, float), lambda v: int(v) if isinstance(v, int) else float(v), lambda c: c),
}


# --- columns of X ---------------------------------------------------------------------------------


_DAY = 86_400e6  # microseconds
_GREATEST = 1e100  # beyond which products of a few numbers may be infinite


@dataclasses.dataclass(frozen=True)
class NumericColumn:
    """A column of numbers, in its own unit."""

    name: Column
    use: str
    valid_range: tuple[float, float] | None = None
    time: str = ""
    factor: float = 1.0  # of values as they are in X

    def encode(self, table: Table) -> AnyNDArray:
        """The column as floats [N]."""
        values = table.values(self.name)
        if not len(values):  # of which types tell nothing
            return np.zeros(0)
        result = kind_of_time(table, self.name)
        if result != self.time:
            held = result or ("levels" if table.is_levels(self.name) else "numbers")
            needed = f"{self.time}, as in the fit" if self.time else "numbers"
            how = "pandas.to_timedelta" if self.time == SPANS else "pandas.to_datetime"
            remedy = f"by {how}" if self.time else "to days since its start for instance"
            raise ValueError(
                f"column {self.name!r} holds {held} where {self.use} needs {needed}; convert it, "
                f"{remedy}."
            )
        if self.time:
            values = days(values, self.time)
        elif table.holds(self.name, (str,)):
            row = next((i for i, v in enumerate(values) if isinstance(v, str)), 0)
            held = "text" if isinstance(values[row], str) else "categories"
            raise ValueError(
                f"column {self.name!r} holds {held} ({values[row]!r} in row {table.place(row)}) "
                f"where {self.use} needs numbers; convert it, or use factor({self.name!r})."
            )
        try:
            if values.dtype.kind == "c":  # whose imaginary parts would be lost
                raise TypeError
            numbers: AnyNDArray = values.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"column {self.name!r} holds values of type {type(values[0]).__name__} where "
                f"{self.use} needs numbers; convert it."
            ) from None
        low, high = numbers.min(), numbers.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            row = int(np.flatnonzero(~np.isfinite(numbers))[0])
            variables = self.name.variables if isinstance(self.name, Expression) else ()
            where = ", ".join(f"{v} = {table.values(v)[row]}" for v in variables)
            raise ValueError(
                f"column {self.name!r} must be finite; got {numbers[row]} in row {table.place(row)}"
                + (f", where {where}; leave such rows out, or change it." if variables else ".")
            )
        if max(high, -low) >= _GREATEST:
            row = int(np.argmax(np.abs(numbers)))
            raise ValueError(
                f"column {self.name!r} has {numbers[row]:g} in row {table.place(row)}, whose "
                "square overflows; divide it by a power of ten."
            )
        if self.valid_range is not None:
            low, high = self.valid_range
            strange = np.flatnonzero((numbers < low) | (numbers > high))
            if len(strange):
                row = table.place(strange[0])
                raise ValueError(f"{self.outside} {numbers[strange[0]]:g} in row {row}.")
        return numbers

    @property
    def outside(self) -> str:
        """Error message for values outside the range of the column, up to the value."""
        low, high = self.valid_range or (-np.inf, np.inf)
        return (
            f"column {self.name!r} must be within {low:g} and {high:g}, degrees in {self.use}; got"
        )

    @property
    def column(self) -> Column | None:
        """The column of the data that it is of; None where there is none."""
        return self.name

    def to_json(self) -> dict[str, Any]:
        entries = {"name": column_to_json(self.name), "use": self.use}
        entries |= {"limits": list(self.valid_range)} if self.valid_range else {}
        return entries | ({"time": self.time} if self.time else {})

    def shown(self, values: AnyNDArray) -> Any:
        """Values as users know them: times where they are days, with a zone those that had one."""
        if not self.time:
            return values
        spans = (values * _DAY).round().astype(np.int64).astype("timedelta64[us]")
        times = spans if self.time == SPANS else np.datetime64(0, "us") + spans
        return pd.Series(times).dt.tz_localize("UTC") if self.time == ZONED else times


@dataclasses.dataclass(frozen=True)
class Element(NumericColumn):
    """One column of X of a term that is summed over evaluations: of the points, or the weight."""

    term: str = ""
    place: int = 0  # which of the evaluations, and of a row's values
    source: Column | None = None  # the column of the data; None where all rows have ``factor``

    def encode(self, table: Table) -> AnyNDArray:
        if self.source is None:
            return np.full(table.num_rows, self.factor)
        if table.width(self.source) is None:
            return self.factor * NumericColumn(self.source, self.use).encode(table)
        values = table.array(self.source)[:, self.place]
        return self.factor * self.axis.encode(table.beside({self.name: values}))

    @property
    def column(self) -> Column | None:
        return self.source.over if isinstance(self.source, Lags) else self.source

    @property
    def axis(self) -> NumericColumn:
        """A reader of points at which the function is asked for."""
        return NumericColumn(self.name, self.use)

    def to_json(self) -> dict[str, Any]:
        source = column_to_json(self.source)
        others = {"term": self.term, "place": self.place, "source": source, "factor": self.factor}
        return {**super().to_json(), "element": others}


# among levels that colons join, what has other texts as well
_SAME = re.compile(
    r"(?<![^:])(?:True|(False)|(-?\d+)\.0+|'([-\d]{10}) 00:00:00'"
    r"|'([-\d]{10} [\d:.]+[+-]\d\d:\d\d)')(?![^:])"
)


def _same(found: re.Match[str]) -> str:
    """Truth values and whole numbers as integers, midnights as dates, and times in UTC."""
    false, whole, day, zoned = found.groups()
    if zoned:
        return str(pd.Timestamp(zoned).tz_convert("UTC"))
    return whole or day or str(int(not false))


@dataclasses.dataclass(frozen=True)
class LevelColumn:
    """A column of levels, as codes 0, 1, ..."""

    name: Column
    levels: tuple[Any, ...]
    unseen: str = "error"
    factor: ClassVar[float] = 1.0

    @property
    def column(self) -> Column:
        return self.name

    def encode(self, table: Table) -> AnyNDArray:
        """The codes as floats [N]; levels that were not there get codes of their own."""
        column = table.distinct(self.name)
        codes = {plain(level): i for i, level in enumerate(self.levels)}
        labels = self._labels(column.values)
        place = np.array([codes.get(v, -1) for v in labels], dtype=np.float64)
        encoded: AnyNDArray = place[column.codes]
        strange = encoded < 0
        if not strange.any():
            return encoded
        others = Distinct(column.codes[strange], column.values).occurring()
        new = list(dict.fromkeys(self._labels(others)))
        if self.unseen == "error":
            raise ValueError(
                f"column {self.name!r} has the level {new[0]!r} in row "
                f"{table.place(np.flatnonzero(strange)[0])}, never seen in the fit; the levels are "
                f"{listed(self.levels)}. factor(..., unseen='prior'), random_effect() and "
                "s(..., bs='fs') take new levels."
            )
        self._check_kinds([plain(v) for v in column.occurring()], new[0])
        codes |= {level: len(self.levels) + i for i, level in enumerate(new)}
        # a category that does not occur has no code
        place = np.array([codes.get(v, -1) for v in labels], dtype=np.float64)
        return np.asarray(place[column.codes])

    def _labels(self, values: Iterable[Any]) -> list[Any]:
        """Values as the fit has them: crossed ones are text, which types spell in other ways."""
        labels = [plain(value) for value in values]
        if not (isinstance(self.name, Expression) and self.name.parts):
            return labels
        keys = [_SAME.sub(_same, level) for level in self.levels]
        times, known = Counter(keys), set(self.levels)
        once = {key: level for key, level in zip(keys, self.levels) if times[key] == 1}
        return [v if v in known else once.get(_SAME.sub(_same, v), v) for v in labels]

    def shown(self, codes: AnyNDArray) -> AnyNDArray:
        labels = np.empty(len(codes), dtype=object)
        labels[:] = [self.levels[int(code)] for code in codes]
        return labels

    def _check_kinds(self, values: list[Any], new: Any) -> None:
        """Raises ValueError if all values are of another kind, as numbers read as text."""
        kinds = dict.fromkeys(_kind(level) for level in self.levels)
        if kinds and not any(_kind(v) in kinds for v in values):
            raise ValueError(
                f"column {self.name!r} holds {_kind(new)} ({new!r}), where its levels in the fit "
                f"were {' and '.join(kinds)} ({self.levels[0]!r}, ...), so that every row would "
                f"have a new level; convert it, and let new levels be {' or '.join(kinds)}, too."
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": column_to_json(self.name),
            "levels": [level_to_json(level, self.name) for level in self.levels],
            "unseen": self.unseen,
        }


def level_to_json(level: Any, name: Column) -> Any:
    """A level as JSON can hold it."""
    try:
        return value_to_json(level)
    except TypeError as error:
        raise ValueError(
            f"column {name!r} has levels of type {error}, which no file can hold; make it text "
            f"before the fit: data[{name!r}].map(str)."
        ) from None


Key = tuple[Column, str]
"""A column and how it is read, ``"number"`` or ``"level"``."""


class Encoder:
    """Map from named columns to the columns of X."""

    def __init__(
        self,
        columns: Mapping[Key, NumericColumn | LevelColumn],
        called: Mapping[Column, str] | None = None,
    ) -> None:
        self.columns = dict(columns)
        self.called = dict(called or {})  # names of columns that terms name by their place

    @property
    def width(self) -> int:
        """D, the number of columns of X."""
        return len(self.columns)

    @property
    def readers(self) -> list[NumericColumn | LevelColumn]:
        return list(self.columns.values())

    def index(self, name: Column, kind: str) -> int:
        """Place in X of a column that is read as ``kind``."""
        return list(self.columns).index((name, kind))

    def places(self, kind: str) -> list[int]:
        """Places in X of the columns that are read as ``kind``."""
        return [i for i, (_, k) in enumerate(self.columns) if k == kind]

    def sources(self, keys: Iterable[Key]) -> list[Column]:
        """The columns of the data that some columns of X are made of, each once."""
        chosen = set(keys)
        readers = [reader for key, reader in self.columns.items() if key in chosen]
        names = [r.source if isinstance(r, Element) else r.name for r in readers]
        return [name for name in dict.fromkeys(names) if name is not None]

    def levels(self, name: Column) -> tuple[Any, ...]:
        """The levels of a column that is read as levels."""
        column = self.columns[name, "level"]
        assert isinstance(column, LevelColumn)
        return column.levels

    def fills(self, fills: Iterable[Fill]) -> dict[Column, Any]:
        """What stands in for missing values by column, numbers and times as in X."""
        given = {fill.name: fill.value for fill in fills}
        for (name, kind), reader in self.columns.items():
            if kind == "number" and name in given:
                given[name] = float(reader.encode(Table({name: [given[name]]}))[0])
        return given

    def encode(
        self, table: Table, only: set[Key] | None = None, by_column: bool = False
    ) -> AnyNDArray:
        """X [N, D], for ``by_column`` with columns that are contiguous."""
        X = np.zeros((table.num_rows, self.width), order="F" if by_column else "C")
        self.check_places(table, self.columns if only is None else only)
        for i, (key, column) in enumerate(self.columns.items()):
            if only is None or key in only:
                X[:, i] = column.encode(table)
        return X

    def check_places(self, table: Table, keys: Iterable[Key]) -> None:
        """Raise ValueError if another column is where a term had one in the fit."""
        for name in self.called.keys() & {name for name, _ in keys}:
            if table.name(name) not in (name, self.called[name]):
                raise ValueError(
                    f"column {name} of the data is {table.name(name)!r}, and was "
                    f"{self.called[name]!r} in the fit; order columns as there, or name them in "
                    "terms."
                )

    def to_json(self) -> list[dict[str, Any]]:
        called = {name: {"called": own} for name, own in self.called.items()}
        return [
            {"kind": kind, **c.to_json(), **called.get(name, {})}
            for (name, kind), c in self.columns.items()
        ]

    @classmethod
    def from_json(cls, values: list[dict[str, Any]]) -> Encoder:
        columns: dict[Key, NumericColumn | LevelColumn] = {}
        for value in values:
            kind, name = value["kind"], column_from_json(value["name"])
            if kind == "level":
                levels = tuple(map(value_from_json, value["levels"]))
                columns[name, kind] = LevelColumn(name, levels, value["unseen"])
            elif given := value.get("element"):
                given = {**given, "source": column_from_json(given["source"])}
                columns[name, kind] = Element(name, value["use"], **given)
            else:
                valid_range = tuple(value["limits"]) if "limits" in value else None
                of = value["use"], valid_range, value.get("time", "")
                columns[name, kind] = NumericColumn(name, *of)
        called = {column_from_json(v["name"]): v["called"] for v in values if "called" in v}
        return cls(columns, called)


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


def numeric_column(
    table: Table, name: Column, term: Term, valid_range: tuple[float, float] | None = None
) -> NumericColumn:
    """Reader of a column that a term takes as numbers, or as times."""
    time = kind_of_time(table, name) if name in term.columns else ""
    return NumericColumn(name, term.label, valid_range, time)


def days(values: Any, time: str) -> AnyNDArray:
    """Times, those with a zone in UTC, or spans of time as days."""
    return np.asarray(spans_of(values, time) / pd.Timedelta(days=1), dtype=np.float64)


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


# --- missing values -------------------------------------------------------------------------------


class Holes:
    """Missing values, counted over the blocks of a table."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.incomplete = 0
        """Rows that lack a value."""
        self._counts: dict[Any, int] = {}

    def add(self, table: Table, columns: Iterable[Column]) -> AnyNDArray:
        bad = np.zeros(table.num_rows, dtype=bool)
        for name in dict.fromkeys(columns):
            holes = table.missing(name)
            count = int(np.count_nonzero(holes))
            self._counts[name] = self._counts.get(name, 0) + count
            if count:
                bad |= holes
        self.num_rows += table.num_rows
        self.incomplete += int(np.count_nonzero(bad))
        return bad

    def check(self, missing: str) -> None:
        counts = {name: count for name, count in self._counts.items() if count}
        empty = [n for n, count in counts.items() if count == self.num_rows]
        if empty:
            raise ValueError(f"column {empty[0]!r} has no value at all; leave it out of the model.")
        if not counts:
            return
        if missing == "impute":
            raise ValueError(
                "missing='impute' fills in what terms read, not the response, offsets or weights: "
                + ", ".join(f"{count} missing in {n!r}" for n, count in counts.items())
                + "; leave those rows out."
            )
        if missing != "drop":
            raise ValueError(
                f"data has missing values: {_listed(counts)} ({self.incomplete} of {self.num_rows} "
                "rows); fill them in, drop those rows with missing='drop', or let missing='impute' "
                "fill in what terms read."
            )
        if self.incomplete == self.num_rows:
            raise ValueError(
                "no row is complete: missing='drop' would leave nothing; drop the columns with "
                f"most missing values ({max(counts, key=lambda n: counts[n])!r}) instead."
            )


def _listed(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} in {name!r}" for name, count in counts.items())


_BEFORE = (
    " Lags are in earlier rows: pass these too, or as the column an array of the lags in each row."
)


def check_complete(table: Table, columns: Iterable[Column]) -> None:
    """Raises ValueError where new data lack values in ``columns``."""
    holes = {name: count for name in columns if (count := int(table.missing(name).sum()))}
    if holes:
        before = _BEFORE * any(isinstance(name, Lags) for name in holes)
        raise ValueError(
            f"new data has missing values: {_listed(holes)}; fill them in or leave those rows out."
            f"{before}"
        )


@dataclasses.dataclass(frozen=True)
class Fill:
    """Replacement of a column's missing values."""

    name: Column
    value: Any
    count: int

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"value": level_to_json(self.value, self.name)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Fill:
        return cls(**value | {"value": value_from_json(value["value"])})


def learn_fills(
    table: Table, columns: Iterable[Column], levels: Collection[Column] = ()
) -> tuple[Fill, ...]:
    """The median of numbers and times, the most frequent level of others."""
    fills = []
    for name in dict.fromkeys(table.name(c) for c in columns):
        holes = table.missing(name)
        if holes.all():
            continue
        if name in levels or table.is_levels(name):
            table.distinct(name)  # raises an error that names a column of no levels
            # of several the first in the categories' order, or sorted
            value = pd.Series(table.raw(name)).mode().iloc[0]
        else:
            values = pd.Series(table.values(name)[~holes])
            try:
                ordered, n = values.sort_values(), len(values)
                low, high = plain(ordered.iloc[(n - 1) // 2]), plain(ordered.iloc[n // 2])
                value = low + (high - low) / 2  # which times have, too; a date stays one
            except TypeError:
                value = values.iloc[0]  # no number: who reads the column says so
        fills.append(Fill(name, plain(value), int(holes.sum())))
    return tuple(fills)


def filled(table: Table, fills: Iterable[Fill]) -> Table:
    """The table without missing values in the columns that have a fill, where it has them."""
    columns: dict[Column, Any] = {}
    for fill in fills:
        if fill.name in table and (holes := table.missing(fill.name)).any():
            values = pd.Series(table.raw(fill.name)).reset_index(drop=True)
            dtype = values.dtype
            stated = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else ()
            if not isinstance(dtype, np.dtype) and fill.value not in stated:
                values = values.astype(object)  # the type may not hold it
            columns[fill.name] = values.mask(np.asarray(holes), fill.value)
    return table.beside(columns)


# --- columns that a formula makes of others -------------------------------------------------------


_FUNCTIONS = {
    name: getattr(np, name) for name in ("log1p", "expm1", "sqrt", "sin", "cos", "tan", "abs")
}  # beside those that formulaic has


@dataclasses.dataclass(frozen=True)
class Design:
    """The columns of a parametric formula."""

    text: str
    columns: tuple[NumericColumn | LevelColumn, ...]
    names: tuple[str, ...]
    state: dict[str, Any]
    constant: bool = False

    @classmethod
    def learn(cls, text: str, table: Table, constant: bool = True) -> Design:
        stated, others = levels_of(text)
        readers: list[NumericColumn | LevelColumn] = []
        for name in variables_of(text):
            is_levels = table.is_levels(name)
            if is_levels or name in stated:
                readers.append(learn_levels(table, name))
            if not is_levels and name in others:  # what C() takes in one product is a number here
                readers.append(NumericColumn(name, text))
        state: dict[str, Any] = {}
        matrix = _matrix(text, readers, table, state, constant)
        if not len(matrix.columns):
            raise ValueError(f"formula {text!r} makes no columns.")
        return cls(text, tuple(readers), tuple(map(str, matrix.columns)), state, constant)

    @property
    def variables(self) -> tuple[Column, ...]:
        return tuple(dict.fromkeys(reader.name for reader in self.columns))

    @functools.cached_property
    def made(self) -> tuple[str, ...]:
        """The columns that it makes beside those that it reads."""
        return tuple(name for name in self.names if name not in self.variables)

    def extended(self, table: Table) -> Table:
        """A table with the columns that the formula makes."""
        check_complete(table, self.variables)
        taken = next((name for name in self.made if name in table), None)
        if taken is not None:
            raise ValueError(
                f"data has a column {taken!r}, which the formula makes as well; rename it."
            )
        if table.num_rows == 0:
            values: dict[str, AnyNDArray] = {name: np.zeros(0) for name in self.names}
        else:
            state = copy.deepcopy(self.state)
            matrix = _matrix(self.text, self.columns, table, state, self.constant)
            values = {str(name): matrix[name].to_numpy(np.float64) for name in matrix.columns}
        if tuple(values) != self.names:
            raise ValueError(
                f"formula {self.text!r} makes other columns ({', '.join(values)}) than in the fit "
                f"({', '.join(self.names)})."
            )
        for name in self.made:
            bad = ~np.isfinite(values[name])
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                place = ", ".join(f"{v} = {table.values(v)[row]!s}" for v in self.variables)
                at = f"in row {table.place(row)}, where {place}"
                raise ValueError(f"{name} is {values[name][row]} {at}.")
        return table.beside({name: values[name] for name in self.made})

    def to_json(self) -> dict[str, Any]:
        readers = [reader.to_json() for reader in self.columns]
        return {
            "text": self.text,
            "columns": [{k: r[k] for k in ("name", "levels") if k in r} for r in readers],
            "names": list(self.names),
            "state": value_to_json(self.state),
            "constant": self.constant,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Design:
        text = value["text"]
        variables_of(text)  # which lets no other code pass
        readers = tuple(
            LevelColumn(entry["name"], tuple(map(value_from_json, entry["levels"])))
            if "levels" in entry
            else NumericColumn(entry["name"], text)
            for entry in value["columns"]
        )
        names, state = tuple(value["names"]), value_from_json(value["state"])
        return cls(text, readers, names, state, value.get("constant", False))


def _matrix(
    text: str,
    readers: Iterable[NumericColumn | LevelColumn],
    table: Table,
    state: dict[str, Any],
    constant: bool,
) -> pd.DataFrame:
    """The columns, and in ``state`` what transforms have learnt where they knew nothing."""
    import formulaic
    from formulaic.errors import FormulaicError

    numbers: dict[str, Any] = {}
    levels: dict[str, Any] = {}
    for reader in readers:
        values = reader.encode(table)
        if isinstance(reader, LevelColumn):  # as they are: code of a formula compares with them
            own = pd.Index(reader.levels, dtype=object)
            values = pd.Series(pd.Categorical.from_codes(values.astype(int), own))
        (levels if isinstance(reader, LevelColumn) else numbers)[str(reader.name)] = values
    context = {**_FUNCTIONS, "C": lambda column: levels[column.name]}
    spec = formulaic.ModelSpec(
        formula=parsed(text, constant),
        materializer="pandas",
        output="pandas",
        na_action="ignore",
        transform_state=state,
    )
    try:
        with np.errstate(all="ignore"):  # what is not finite is named with its row
            result = spec.get_model_matrix(pd.DataFrame({**levels, **numbers}), context=context)
    except FormulaicError as error:
        held = f"; levels ({listed(levels)}) are compared: to compute, make numbers of them."
        raise ValueError(f"formula {text!r}: {error}{held * bool(levels)}") from None
    state.update(result.model_spec.transform_state)
    made = pd.DataFrame(result)
    return made.drop(columns="Intercept") if constant else made
