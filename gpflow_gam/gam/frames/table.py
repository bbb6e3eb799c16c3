"""Tables: columns of rows in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import difflib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms.base import Column, Expression, Lags, Surv, as_column, variables_of


class Distinct(NamedTuple):
    """A column as positions among few values: ``values[codes]``."""

    codes: AnyNDArray  # integers [N]; -1 is the last value, as in any index

    values: AnyNDArray  # [K], not all of which need occur

    def occurring(self) -> AnyNDArray:
        """The values that occur, in order of their first rows; all missing ones are one."""
        return np.asarray(self.values[pd.unique(self.codes)])


def listed(values: Iterable[Any], most: int = 12) -> str:
    """Values in words, the first few of many."""
    words = [repr(value) for value in values]
    more = f", ... ({len(words)} in all)" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def named_distinct(values: AnyNDArray, name: object) -> Distinct:
    """Distinct values of a column, as Python compares them: of 1, 1.0 and True the first stays."""
    if values.dtype.kind in "mM":  # pandas would convert the unit, and so what values turn into
        codes, whole = pd.factorize(values.view(np.int64))
        return Distinct(codes, whole.view(values.dtype))
    if values.dtype == np.float16:  # pandas has no table of these; the values stay as they are
        values = values.astype(np.float64)
    if values.dtype.kind not in "biuf":
        values = values.astype(object)
    try:
        codes, result = pd.factorize(values, use_na_sentinel=False)
    except TypeError as error:
        kinds = {type(v).__name__ for v in values.tolist() if getattr(v, "__hash__", None) is None}
        raise ValueError(
            f"column {name!r} holds values that are no levels "
            f"({', '.join(sorted(kinds)) or error}); make them text or numbers."
        ) from None
    return Distinct(codes, np.asarray(result, dtype=values.dtype))


def merged_categories(parts: Sequence[pd.CategoricalDtype], name: object) -> pd.CategoricalDtype:
    """The categories of all parts of a column; if ordered, those of the part with all of them."""
    parts = [part for part in parts if len(part.categories)] or parts  # others hold nothing
    stated = list(dict.fromkeys(tuple(part.categories) for part in parts))
    result = list(dict.fromkeys(level for order in stated for level in order))
    ordered = all(part.ordered for part in parts)
    if ordered and len(stated) > 1:
        longest = max(stated, key=len)
        result = list(longest)
        if any([level for level in result if level in order] != list(order) for order in stated):
            raise ValueError(
                f"column {name!r} is ordered, and its parts state other categories, or other "
                "orders; give all parts all categories, in order."
            )
    return pd.CategoricalDtype(pd.Index(result, dtype=object).infer_objects(), ordered)


def plain(value: Any) -> Any:
    """A level as Python writes it, times as pandas' and numbers of any type by their value."""
    if isinstance(value, np.datetime64):
        return pd.Timestamp(value)
    if isinstance(value, np.timedelta64):
        return pd.Timedelta(value)
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, decimal.Decimal):
        value = int(value) if value.is_finite() and value == int(value) else float(value)
    if not isinstance(value, float):
        return value
    if value.is_integer():
        return int(value)
    # 0.1 in single precision, too, is the level 0.1; what few digits are exact for stays
    single = np.float32(value)
    rounded = float(single) == value != float(f"{value:.14g}")
    return float(str(single)) if rounded else value


@dataclasses.dataclass(frozen=True, eq=False)
class Deferred:
    """A column that is converted when it is first read, not when its table is made."""

    length: int
    read: Callable[[], Any]
    cut: Callable[[int, int], Deferred] | None = None
    categorical: bool | None = None

    def __len__(self) -> int:
        return self.length


def foreign_columns(data: Any) -> list[tuple[Any, Any]] | None:
    """The names and columns of an Arrow table or record batch, or of a polars frame."""
    for sign, call in (("collect_schema", "collect"), ("fetchall", "df")):  # of polars, DuckDB
        if hasattr(data, sign) and hasattr(data, call):
            name = type(data).__name__
            raise TypeError(f"data must hold its rows; got a {name}, a query: pass data.{call}().")
    if all(hasattr(data, name) for name in ("column_names", "schema", "num_rows", "column")):
        names = list(data.column_names)
        return [(name, data.column(i)) for i, name in enumerate(names)]
    if hasattr(data, "get_columns") and hasattr(data, "to_dicts"):
        return [(column.name, column) for column in data.get_columns()]
    return None


def deferred(values: Any, name: object) -> Deferred | None:
    """A column of Arrow or polars, by its name; None where ``values`` is neither."""
    if hasattr(values, "to_physical") and hasattr(values, "to_numpy"):
        if type(values.dtype).__name__ in ("Categorical", "Enum"):
            return Deferred(len(values), lambda: _polars_categories(values))
        return _cuttable(values)
    if hasattr(values, "null_count") and hasattr(values, "to_pandas") and hasattr(values, "type"):
        if hasattr(values.type, "index_type"):  # a dictionary
            return Deferred(len(values), lambda: _arrow_categories(values, name))
        return _cuttable(values)
    return None


def _cuttable(values: Any) -> Deferred:
    """Both libraries cut without a copy. Categories are not cut: pieces would lose levels."""

    def cut(start: int, stop: int) -> Deferred:
        return _cuttable(values.slice(start, stop - start))

    return Deferred(len(values), lambda: _converted(values), cut, categorical=False)


def _merges(values: AnyNDArray) -> bool:
    """True if floats are so large that they do not tell all whole numbers."""
    return values.dtype.kind == "f" and np.nanmax(np.abs(values), initial=0.0) >= 2.0**53


def _merge(parts: Sequence[Any]) -> bool:
    """True if floats among columns would merge whole numbers of others."""
    mixed = {p.dtype.kind == "f" for p in parts} == {True, False}
    return mixed and any(_merges(np.asarray(p).astype(np.float64)) for p in parts)


def _array_of(raw: Any) -> AnyNDArray:
    """A column as numpy has it; as objects where floats would merge whole numbers with gaps."""
    values = np.asarray(raw)
    whole = values.dtype.kind == "f" and pd.api.types.is_integer_dtype(raw.dtype)
    return np.asarray(raw, dtype=object) if whole and _merges(values) else values


def _converted(values: Any) -> Any:
    """A column of Arrow or polars as numpy or pandas hold it."""
    is_arrow = hasattr(values, "type")
    kind = str(values.type if is_arrow else type(values.dtype).__name__).lower()
    if kind.startswith("decimal"):
        values = values.cast("float64" if is_arrow else float)
    elif kind == "array":  # of polars, which is a matrix to numpy
        values = values.arr.to_list()
    elif kind in ("string", "large_string", "string_view"):
        text = _to_numpy(values)
        return pd.Series(text, dtype="string" if pd.isna(text).all() else object)
    elif kind in ("bool", "boolean") and (values.null_count if is_arrow else values.null_count()):
        return pd.Series(_to_numpy(values), dtype="boolean")
    elif kind == "null":
        return np.full(len(values), np.nan)
    elif zone := None if is_arrow else getattr(values.dtype, "time_zone", None):
        return pd.Series(values.to_numpy()).dt.tz_localize("UTC").dt.tz_convert(zone)
    elif (number := kind.rstrip("0123456789")) in ("int", "uint", "float", "double"):
        result = _to_numpy(values)  # nulls are NaN
        if number in ("float", "double") or not _merges(result):
            return result
        whole = values.to_pylist() if is_arrow else values.to_list()
        return pd.Series(whole, dtype="Int64" if number == "int" else "UInt64")
    return values.to_pandas(date_as_object=False) if is_arrow else values.to_numpy()


def _to_numpy(values: Any) -> AnyNDArray:
    """Array of a polars column, or of an array or chunks of Arrow's, whose signatures differ."""
    whole = hasattr(values, "type") and not hasattr(values, "chunks")
    return np.asarray(values.to_numpy(zero_copy_only=False) if whole else values.to_numpy())


def _arrow_categories(values: Any, name: object) -> pd.Categorical:
    chunks = [values]
    if hasattr(values, "chunks"):
        chunks = values.chunks or [values.combine_chunks()]
        values = values.unify_dictionaries()  # which may differ from chunk to chunk
    try:
        result = pd.Categorical(values.to_pandas())
    except ValueError:  # a dictionary that holds a value twice, or a null
        decoded = _converted(values.cast(values.type.value_type))
        return pd.Categorical(decoded, dtype=_arrow_dtype(chunks, name))
    if not result.ordered or len(chunks) == 1:
        return result
    return result.set_categories(_arrow_dtype(chunks, name).categories)


def _arrow_dtype(chunks: list[Any], name: object) -> pd.CategoricalDtype:
    """The categories of chunks."""
    known = [pd.Series(_converted(chunk.dictionary), dtype=object).dropna() for chunk in chunks]
    ordered = bool(chunks[0].type.ordered)
    return merged_categories([pd.CategoricalDtype(list(k.unique()), ordered) for k in known], name)


def _polars_categories(values: Any) -> pd.Categorical:
    """An Enum's categories in its order, or a Categorical's that occur, in that of their text."""
    result, ordered = values.unique().drop_nulls(), type(values.dtype).__name__ == "Enum"
    numbers, names = result.to_physical().to_numpy(), result.to_list()
    levels = list(values.dtype.categories) if ordered else sorted(names)
    where = {name: i for i, name in enumerate(levels)}
    place = np.full(int(numbers.max()) + 2 if len(numbers) else 1, -1)
    place[numbers] = [where[name] for name in names]  # the last place stays -1, for nulls
    physical = values.to_physical().cast(int).fill_null(-1).to_numpy()
    categories = pd.Index(levels, dtype=object)
    return pd.Categorical.from_codes(place[physical], categories=categories, ordered=ordered)


class Table:
    """Named columns of equal length: of a DataFrame, an Arrow table, a dict, or a matrix [N, D]."""

    # Arrow's and polars' are converted when first read: nulls are missing values, dictionaries and
    # Enums categories. An Expression is read as if it were a column: it is computed.

    def __init__(self, data: Any) -> None:
        self._whole: tuple[Table, Any] | None = None  # of which this has some rows, and which
        self._made: dict[Any, AnyNDArray] = {}  # arrays of columns that hold them, and of lags
        self.origin: AnyNDArray | None = None
        """The places that rows had in the table of which :meth:`rows` took some; None for all."""
        self.num_rows = 0
        if isinstance(data, Table):
            self._columns: dict[Any, Any] = data._columns
            self._whole, self._made, self.origin = data._whole, data._made, data.origin
            self.num_rows = data.num_rows
        elif isinstance(data, Mapping):
            check_order((f"column {name!r}", values) for name, values in data.items())
            self._columns = {
                as_column(name, name): _one_dimensional(name, v) for name, v in data.items()
            }
        elif (foreign := foreign_columns(data)) is not None:
            _check_names([name for name, _ in foreign])
            self._columns = {name: _one_dimensional(name, v) for name, v in foreign}
        elif hasattr(data, "columns") and hasattr(data, "__getitem__"):
            names = list(data.columns)
            _check_names(names)
            self._columns = {as_column(name, name): data[name] for name in names}
            self.num_rows = len(data)  # which may have no columns
        else:
            matrix = _array(data)
            if matrix.ndim != 2:
                raise TypeError(
                    "data must be a DataFrame, a dict of columns or a matrix [N, D]; got "
                    f"{type(data).__name__} of shape {matrix.shape}. One row is data.iloc[[0]], "
                    "{'x': [1.0]} or [[1.0]]."
                )
            self._columns = {i: _unmasked(matrix[:, i]) for i in range(matrix.shape[1])}
            self.num_rows = len(matrix)
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must be of one length; got {lengths}.")
        self.num_rows = next(iter(lengths.values()), self.num_rows)

    @property
    def names(self) -> list[Any]:
        return list(self._columns)

    def __contains__(self, name: Column) -> bool:
        return as_column(name, name) in self._columns

    def raw(self, name: Column) -> Any:
        """A column's values as they came; of Arrow and polars, as numpy or pandas hold them."""
        name = self.name(name)
        if isinstance(name, Lags):
            return self.array(name)
        if isinstance(name, Expression) and name not in self._columns:
            return self._computed(name)
        values = self._columns[name]
        if isinstance(values, Deferred):
            try:
                values = values.read()
            except TypeError as error:
                raise ValueError(
                    f"column {name!r} holds values that are no levels ({error}); make them text or "
                    "numbers."
                ) from None
            if np.ndim(values) != 1:
                raise ValueError(
                    f"column {name!r} is nested, with several values a row; make each of them a "
                    "column of its own."
                )
            self._columns[name] = values
        return values

    def name(self, name: Column) -> Any:
        """The column's own name here, for a name or an index."""
        if isinstance(name, Expression) and name not in self._columns:
            for variable in name.variables[: 1 if self._has_lags(name) else None]:
                self.name(variable)
            return name
        return resolved(name, self.names)

    def values(self, name: Column) -> AnyNDArray:
        """The values of a column as an array [N], of objects where they are categories."""
        raw = self.raw(name)
        if isinstance(getattr(raw, "dtype", None), pd.CategoricalDtype):
            return np.asarray(raw, dtype=object)
        return _array_of(raw)

    def levels(self, name: Column) -> tuple[Any, ...] | None:
        """The levels of a categorical column in its own order; None where it states none."""
        raw = self._columns.get(self.name(name))
        if isinstance(raw, Deferred) and raw.categorical is False:
            return None  # which needs no reading
        dtype = getattr(self.raw(name), "dtype", None)
        return tuple(dtype.categories) if isinstance(dtype, pd.CategoricalDtype) else None

    def ordered(self, name: Column) -> bool:
        """True if a column is of categories that are ordered."""
        return self.levels(name) is not None and bool(self.raw(name).dtype.ordered)

    def is_levels(self, name: Column) -> bool:
        """True if ``name`` is of levels by its type: text, categories or truth values."""
        truth = isinstance(getattr(self.raw(name), "dtype", None), pd.BooleanDtype)
        return truth or self.holds(name, (str, bool)) or self.values(name).dtype.kind == "b"

    def holds(self, name: Column, kinds: tuple[type, ...]) -> bool:
        """True if ``name`` is categorical or text, or holds objects of one of ``kinds``."""
        dtype = getattr(self.raw(name), "dtype", None)
        if isinstance(dtype, (pd.CategoricalDtype, pd.StringDtype)):
            return True
        values = self.values(name)
        if values.dtype.kind != "O":
            return values.dtype.kind in "US"
        # the first rows tell nearly always
        parts = values[:99], values
        return any(issubclass(t, kinds) for some in parts for t in set(map(type, some)))

    def distinct(self, name: Column) -> Distinct:
        """The distinct values of a column, and which of them each row has."""
        raw = self.raw(name)
        dtype = getattr(raw, "dtype", None)
        if isinstance(dtype, pd.CategoricalDtype):
            column = getattr(raw, "array", raw)
            # the missing value is last, which is the code -1 of pandas
            values = np.append(np.asarray(column.categories, dtype=object), np.nan)
            return Distinct(np.asarray(column.codes), values)
        if isinstance(dtype, pd.StringDtype):  # without an object a row
            codes, values = pd.factorize(raw, use_na_sentinel=False)
            return Distinct(codes, np.asarray(values, dtype=object))
        return named_distinct(_array_of(raw), name)

    def missing(self, name: Any) -> AnyNDArray:
        """Mask of the missing values of a column, or of all columns of a ``Surv``, [N]."""
        if isinstance(name, Surv):
            ends: AnyNDArray = np.all([self.missing(end) for end in name.columns], axis=0)
            return ends
        name = self.name(name)
        if self.width(name) is not None:
            return np.asarray(np.isnan(self.array(name)).any(axis=1))
        if isinstance(name, Expression) and name not in self._columns:
            return np.any([self.missing(v) for v in name.variables], axis=0)
        raw = self.raw(name)
        if isinstance(getattr(raw, "dtype", None), (pd.CategoricalDtype, pd.StringDtype)):
            return np.asarray(pd.isna(raw), dtype=bool)  # without an object a row
        return np.asarray(pd.isna(self.values(name)), dtype=bool)

    def rows(self, keep: AnyNDArray) -> Table:
        """The rows where ``keep``, truth values [N], holds; a column is copied when it is read."""
        count = int(np.count_nonzero(keep))

        def later(name: Any) -> Deferred:
            return Deferred(count, lambda: _kept(self.raw(name), keep))

        result = Table._of({name: later(name) for name in self._columns}, count)
        places = np.flatnonzero(keep)
        result.origin = places if self.origin is None else self.origin[places]
        result._whole = self, places
        return result

    def place(self, row: Any) -> int:
        """The number of a row in the table of which :meth:`rows` took some."""
        return int(row if self.origin is None else self.origin[row])

    def counted(self, columns: Iterable[Column]) -> Table:
        """The rows but for those of weight zero, which are as if they were not there."""
        none = np.zeros(self.num_rows, dtype=bool)
        for name in columns:
            values = pd.Series(self.values(name))
            none |= np.asarray(pd.to_numeric(values, errors="coerce") == 0.0, dtype=bool)
        return self.rows(~none) if none.any() else self

    def part(self, start: int, stop: int) -> Table:
        """The rows from ``start`` to before ``stop``, which are not copied."""
        stop = min(stop, self.num_rows)
        columns: dict[Any, Any] = {}
        for name, values in self._columns.items():
            if isinstance(values, Deferred) and values.cut is not None:
                columns[name] = values.cut(start, stop)
            else:
                columns[name] = cut(self.raw(name), start, stop)
        result = Table._of(columns, stop - start)
        result._whole = self, slice(start, stop)
        return result

    def only(self, names: Iterable[Column]) -> Table:
        kept = dict.fromkeys(self.name(n) for n in variables_of(names))
        result = Table._of({n: self._columns[n] for n in kept}, self.num_rows)
        result._whole = self._whole
        return result

    def beside(self, columns: Mapping[Any, Any]) -> Table:
        """The same rows, with further columns of theirs, or others in the place of these."""
        result = Table._of({**self._columns, **columns}, self.num_rows)
        result.origin, result._whole = self.origin, self._whole
        return result

    def check_order(self, name: str, values: Any) -> None:
        """Raise ValueError if values have the labels of the rows in another order."""
        labelled = (c for c in self._columns.values() if isinstance(c, pd.Series))
        check_order([*(("data", c) for c in itertools.islice(labelled, 1)), (name, values)])

    def _computed(self, expression: Expression) -> AnyNDArray:
        """The values of an expression, [N]; raises ValueError if its columns hold no numbers."""
        if expression.parts:
            return self._crossed(expression.parts)
        try:
            with np.errstate(all="ignore"):  # what is not finite is named with its row
                result = expression.evaluate(self._operand, functools.partial(getattr, np))
        except TypeError:
            held = {v: self._operand(v) for v in expression.variables}
            others = ", ".join(repr(v) for v, own in held.items() if own.dtype == object)
            raise ValueError(
                f"{expression} needs numbers, which {others} does not hold; convert it."
            ) from None
        return np.asarray(result)

    def _operand(self, name: str) -> AnyNDArray:
        values = self.values(name)
        if values.dtype.kind == "O":
            values = np.where(pd.isna(values), np.nan, values)  # pandas' NA compares with nothing
        kinds = set(map(type, values)) if values.dtype.kind == "O" else set()
        if values.dtype.kind in "biuf" or (kinds and not any(issubclass(k, str) for k in kinds)):
            return values.astype(np.float64)
        return values.astype(object)

    def _crossed(self, names: Iterable[str]) -> AnyNDArray:
        """The combination of levels that each row has, as text joined by colons."""

        def part(value: Any) -> str:
            """In quotes if it could be taken for several parts, or for one in quotes."""
            text = str(plain(value))
            return repr(text) if ":" in text or text[:1] in ("'", '"') else text

        codes: AnyNDArray = np.zeros(self.num_rows, dtype=np.int64)
        texts = [""]
        for name in names:
            column = self.distinct(name)
            size = max(len(column.values), 1)
            seen, codes = np.unique(codes * size + column.codes % size, return_inverse=True)
            values = [part(value) for value in column.values]
            texts = [f"{texts[i // size]}:{values[i % size]}" for i in seen]
        labels = np.array([text[1:] for text in texts], dtype=object)
        return labels[codes] if len(codes) else np.zeros(0, dtype=object)

    @classmethod
    def _of(cls, columns: dict[Any, Any], num_rows: int) -> Table:
        """From columns that have been checked."""
        table = cls.__new__(cls)
        table._columns, table.num_rows, table.origin = columns, num_rows, None
        table._whole, table._made = None, {}
        return table

    # --- columns of arrays ------------------------------------------------------------------------

    def width(self, name: Column) -> int | None:
        """The number of values that a column has in each row; None where it has one."""
        if isinstance(name, Lags):
            return name.number
        name = self.name(name)
        raw: Any = self.raw(name) if name in self._columns else None
        if getattr(raw, "dtype", "") != "O":
            return None
        first = next((v for v in raw if np.ndim(v) or not pd.isna(v)), None)
        return len(first) if isinstance(first, (np.ndarray, list, tuple)) else None

    def array(self, name: Column) -> AnyNDArray:
        """A column of arrays, or lags, as one array [N, L]; NaN where rows have none."""
        name = self.name(name)
        if name not in self._made:
            if isinstance(name, Lags):
                self._made[name] = self._lagged(name)
            else:
                self._made[name] = _stacked(self.raw(name), name, self.width(name) or 1)
        return self._made[name]

    def positions(self, time: Column, group: Column | None) -> AnyNDArray:
        """Places [N] of rows in series: one further where times are a step apart, else two."""
        series = self._ordering(time, "ar1")
        spans = pd.api.types.is_timedelta64_dtype(series)
        times = (series / pd.Timedelta("1s") if spans else series).to_numpy(np.float64)
        codes = self._series(group)
        missing = np.flatnonzero(~np.isfinite(times) | (codes < 0))
        if len(missing):
            raise ValueError(f"ar1: row {missing[0]} has no {time!r}, or no series; drop it.")
        order = np.lexsort((times, codes))
        gaps, within = np.diff(times[order]), np.diff(codes[order]) == 0
        if np.any(twice := within & (gaps == 0.0)):
            one, other = sorted(order[np.flatnonzero(twice)[0] + np.array([0, 1])].tolist())
            raise ValueError(
                f"ar1: rows {one} and {other} are of the same time {time!r} and series; name the "
                f"column of the series, ar1='{time} | group'."
            )
        step = float(np.median(gaps[within])) if within.any() else np.inf
        follows = within & (np.abs(gaps / step - 1.0) < _UNEVEN)
        if 2 * np.count_nonzero(follows) <= len(times):
            raise ValueError(
                f"ar1: of {len(times)} rows {np.count_nonzero(follows)} are a step of {time!r} "
                f"({step:g}) after another. Of uneven times add s({str(time)!r}, bs='ou')."
            )
        places = np.empty(len(times))
        places[order] = np.cumsum(np.concatenate([[0.0], np.where(follows, 1.0, 2.0)]))
        return places

    def _steps(self, lags: Lags, codes: AnyNDArray) -> AnyNDArray:
        """Numbers of steps from the first time to each row's, or of rows of a series; -1: none."""
        if lags.time is None:
            return np.asarray(pd.Series(codes).groupby(codes).cumcount())
        series = self._ordering(lags.time, lags)
        if pd.api.types.is_timedelta64_dtype(series):
            step: Any = pd.Timedelta(lags.step or "1D")
        else:
            step = 1.0 if lags.step is None else lags.step
        if isinstance(step, str) or not step > type(step)(0):
            raise ValueError(
                f"{lags}: step must be positive, in the unit of {lags.time!r}; got {step}."
            )
        away = np.asarray((series - series.min()) / step, dtype=np.float64)
        whole = np.round(away)
        days = kind_of_time(self, lags.time) == ZONED and not step % pd.Timedelta("1D")
        # clocks change: midnights are 23 or 25 hours apart then
        slack = pd.Timedelta("1h") / step if days else 0.0
        if np.nanmax(np.abs(away - whole), initial=0.0) > slack + 1e-6:
            row = int(np.nanargmax(np.abs(away - whole)))
            raise ValueError(
                f"{lags}: the time {lags.time!r} in row {row} is no whole number of steps of "
                f"{step} from the first; say how far apart rows are, step=."
            )
        return np.nan_to_num(whole, nan=-1.0).astype(np.int64)

    def _ordering(self, time: Column, use: object) -> Any:
        """Times as spans since 1970, or what else orders rows as floats, [N]."""
        if self.is_levels(time):
            raise ValueError(f"{use}: column {time!r} must hold numbers or times; it holds levels.")
        kind, values = kind_of_time(self, time), self.values(time)
        if kind:
            return spans_of(values, kind)
        return pd.to_numeric(pd.Series(values)).astype(np.float64)

    def _series(self, group: Column | None) -> AnyNDArray:
        """Number of the series of each row, [N]; -1 for none."""
        values = np.zeros(self.num_rows) if group is None else self.values(group)
        return np.asarray(pd.factorize(values)[0])

    def _has_lags(self, name: Column) -> bool:
        """True if a column holds the lags that are asked for, as arrays."""
        return isinstance(name, Lags) and self.width(name.over) is not None

    def _lagged(self, lags: Lags) -> AnyNDArray:
        width = self.width(lags.over)
        if width is not None:
            if width != lags.number:
                raise ValueError(
                    f"column {lags.over!r} holds {width} values a row, where {lags} has "
                    f"{lags.number}."
                )
            return self.array(lags.over)
        if self._whole is not None:
            table, rows = self._whole
            return np.asarray(table.array(lags)[rows])
        values = np.asarray(pd.to_numeric(pd.Series(self.values(lags.over)))).astype(np.float64)
        number = len(values)
        codes = self._series(lags.group)
        steps = self._steps(lags, codes)
        here = np.flatnonzero((steps >= 0) & (codes >= 0))
        # so far apart that no lag of a series is in another one
        keys = codes[here] * (int(steps.max(initial=0)) + lags.last + 1) + steps[here]
        known = pd.Series(values[here], keys)
        if not known.index.is_unique:
            first = keys[known.index.duplicated()][0]
            one, other = here[keys == first][:2].tolist()
            raise ValueError(
                f"{lags}: rows {one} and {other} are of the same time {lags.time!r}"
                + ("; name their series, group=." if lags.group is None else ".")
            )
        result: AnyNDArray = np.full((number, lags.number), np.nan)
        for i, by in enumerate(range(lags.first, lags.last + 1)):
            result[here, i] = known.reindex(keys - by)
        return result


_UNEVEN = 0.1  # share by which steps may differ, as months do


TIMES, ZONED, SPANS = "times", "times with a time zone", "spans of time"


def kind_of_time(table: Table, name: Column) -> str:
    """Kind of times in a column, with or without a zone, or spans; empty for none."""
    values = table.values(name)
    if values.dtype.kind != "O":
        return {"M": TIMES, "m": SPANS}.get(values.dtype.kind, "")
    there = np.flatnonzero(~pd.isna(values))
    kinds = [_kind_of_time(v) for v in values[there]]
    kind = max((TIMES, ZONED, SPANS), key=kinds.count)
    if kind not in kinds:
        return ""
    for row, other in zip(there, kinds):
        if other != kind:
            what = other or f"a value of type {type(values[row]).__name__}"
            raise ValueError(
                f"column {name!r} holds {kind}, and in row {table.place(row)} {what} "
                f"({values[row]!r}); make all of it times, by pandas.to_datetime, or numbers."
            )
    return kind


def _kind_of_time(value: Any) -> str:
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return SPANS
    zoned = isinstance(value, datetime.datetime) and value.tzinfo is not None
    return (ZONED if zoned else TIMES) if isinstance(value, (datetime.date, np.datetime64)) else ""


def spans_of(values: Any, kind: str) -> Any:
    """Times as spans since 1970, of those with a zone in UTC; spans as they are."""
    if kind == SPANS:
        return pd.to_timedelta(pd.Series(values))
    return pd.to_datetime(pd.Series(values), utc=True) - pd.Timestamp(0, tz="UTC")


def _stacked(values: Any, name: object, width: int) -> AnyNDArray:
    """Arrays a row as one, [N, width]."""
    result: AnyNDArray = np.full((len(values), width), np.nan)
    for i, row in enumerate(values):
        if row is None or np.ndim(row) == 0:
            continue
        if len(row) != width:
            raise ValueError(
                f"column {name!r} has {len(row)} values in row {i}, and {width} in the first; a "
                "column of arrays has as many in each."
            )
        result[i] = row
    return result


def resolved(name: Column, names: list[Any]) -> Any:
    """The one of the names that is meant by a column, as :meth:`Table.name`."""
    name = as_column(name, name)
    if name in names:
        return name
    # as formulas have names: a micro sign is the letter mu
    same = [n for n in names if _normal(n) == _normal(name)]
    if len(same) == 1:
        return same[0]
    if isinstance(name, int) and all(isinstance(n, str) for n in names):
        if name < len(names):
            return names[name]
        raise ValueError(f"column {name} is asked for; data has {len(names)} columns.")
    shown = {str(n): n for n in names}
    near = difflib.get_close_matches(str(name), list(shown), n=1, cutoff=0.5)
    hint = f"did you mean {shown[near[0]]!r}?" if near else f"it has {listed(names)}."
    if "(" in str(name):
        hint += " Columns are computed of others in formulas, such as 'y ~ s(log(x))'."
    raise ValueError(f"data has no column {name!r}; {hint}")


def _normal(name: Column) -> Column:
    return normalize("NFKC", name) if isinstance(name, str) else name


def check_no_place(argument: str, column: Column | None, names: list[Any]) -> None:
    """Raise ValueError if a number is given for a column, and columns have names."""
    if isinstance(column, int) and all(isinstance(name, str) for name in names):
        raise ValueError(
            f"{argument}={column}: columns of the data have names; give one of {listed(names)}. A "
            f"number that is the same in all rows is a column, too: data.assign(n={column})."
        )


def _check_names(names: list[Any]) -> None:
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise ValueError(f"data has the column(s) {sorted(map(str, twice))} twice.")


def check_order(columns: Iterable[tuple[str, Any]]) -> None:
    """Raise ValueError if one has the labels of the first one's rows in another order."""
    labelled = [(c, v.index) for c, v in columns if isinstance(getattr(v, "index", None), pd.Index)]
    for name, own in labelled[1:]:
        first, rows = labelled[0]
        shapes = [(len(index), index.nlevels, index.is_unique) for index in (rows, own)]
        comparable = shapes[0] == shapes[1] and rows.is_unique
        if comparable and not rows.equals(own) and rows.isin(own).all():
            at = int(np.flatnonzero(rows != own)[0])
            raise ValueError(
                f"{name} has the rows of {first} in another order: in place {at} {first} has the "
                f"row labelled {rows[at]!r}, and {name} that of {own[at]!r}. Bring them in one "
                "order by .loc[], or, where they go together as they stand, take .to_numpy()."
            )


def _one_dimensional(name: Any, values: Any) -> Any:
    if isinstance(values, (pd.Series, Deferred)):
        return values
    if (foreign := deferred(values, name)) is not None:
        return foreign
    array: Any = values if isinstance(values, pd.Categorical) else _array(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.dtype.kind in "iuf":  # a column of arrays
        rows = np.empty(len(array), dtype=object)
        rows[:] = list(array)
        return rows
    if array.ndim != 1:
        one = f" One row is {{{name!r}: [{plain(values)!r}]}}." if array.ndim == 0 else ""
        raise ValueError(f"column {name!r} must be one-dimensional; got shape {array.shape}.{one}")
    return _unmasked(array)


def _array(values: Any) -> AnyNDArray:
    if isinstance(values, np.ma.MaskedArray):
        return values
    # numpy makes text of what is missing beside text, and a number beside truth values
    kinds = set(map(type, values)) if isinstance(values, (list, tuple)) else set()
    mixed = len(kinds) > 1 and any(issubclass(kind, (str, bool, np.bool_)) for kind in kinds)
    return np.asarray(values, dtype=object if mixed else None)


def _unmasked(values: Any) -> Any:
    """Values with numpy's masked ones missing: below a mask there may be anything."""
    return pd.Series(values) if isinstance(values, np.ma.MaskedArray) else values


def _kept(values: Any, keep: AnyNDArray) -> Any:
    """Rows by truth value, with an index that counts them."""
    return values[keep].reset_index(drop=True) if isinstance(values, pd.Series) else values[keep]


def cut(values: Any, start: int, stop: int) -> Any:
    """Some consecutive rows of a column."""
    return values.iloc[start:stop] if isinstance(values, pd.Series) else values[start:stop]


def concatenated(tables: Sequence[Table]) -> Table:
    """Tables one after the other, as one; their categories are those of all."""
    if len(tables) == 1:
        return tables[0]
    columns: dict[Any, Any] = {}
    for name in tables[0].names:
        parts = [t.raw(name) for t in tables]
        kinds = {"n" if p.dtype.kind in "iuf" else p.dtype.kind for p in parts}
        if any(t.levels(name) is not None for t in tables):
            parts = [_categories(p) if t.levels(name) is None else p for t, p in zip(tables, parts)]
            dtype = merged_categories([p.dtype for p in parts], name)
            columns[name] = pd.concat([pd.Series(pd.Categorical(p, dtype=dtype)) for p in parts])
        elif kinds in ({"n"}, {"b"}, {"m"}, {"M"}) and not _merge(parts):
            columns[name] = np.concatenate([t.values(name) for t in tables])
        else:
            # by way of pandas: numpy makes whole numbers of times, numbers of truth values where a
            # part is all missing, and floats of whole numbers where one has gaps
            columns[name] = pd.concat([pd.Series(p, dtype=object) for p in parts])
    return Table._of(columns, sum(t.num_rows for t in tables))


def _categories(values: Any) -> pd.Categorical:
    """Values that state no categories, with those that occur, in the order of their first rows."""
    codes, levels = pd.factorize(np.asarray(values, dtype=object))
    return pd.Categorical.from_codes(codes, pd.Index(levels, dtype=object))


def in_blocks(source: Any) -> bool:
    """True if a source is a path, a data set or tables one after the other, not one table."""
    if is_table(source) or source is None:
        return False
    dataset = hasattr(source, "scanner") and hasattr(source, "schema")
    return paths_of(source) is not None or dataset or isinstance(source, Iterable)


def is_table(source: Any) -> bool:
    """True if :class:`Table` takes it as one table; a list is one where its items are rows."""
    whole = isinstance(source, (Table, Mapping)) or hasattr(source, "__array__")
    if whole or foreign_columns(source) is not None:
        return True
    if isinstance(source, (list, tuple)):
        return bool(source) and isinstance(source[0], (list, tuple)) and not is_table(source[0])
    return hasattr(source, "columns") and hasattr(source, "__getitem__")


def paths_of(source: Any) -> Any:
    """A path or paths as pyarrow takes them; None for anything else."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    listed = isinstance(source, (list, tuple)) and bool(source)
    if listed and all(isinstance(item, (str, os.PathLike)) for item in source):
        return [os.fspath(item) for item in source]
    return None


@contextlib.contextmanager
def located(start: int, number: int) -> Iterator[None]:
    """Says where the rows are that an error counts from 0."""
    try:
        yield
    except ValueError as error:
        if start == 0:
            raise
        raise ValueError(f"rows {start} to {start + number - 1} of data: {error}") from error
