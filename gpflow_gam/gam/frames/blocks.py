"""Tables that come in blocks of rows, as those do that memory does not hold."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms import Column
from .encoding import is_levels
from .table import Table, foreign_columns, merged_categories, resolved

_READAHEAD = 4
"""Batches that pyarrow reads before they are asked for, beside the one that is in use."""


class Blocks(abc.ABC):
    """
    A table in blocks of rows, which can be read any number of times, each time the same.

    Every block has the same columns, and of a categorical column the same levels. What a column
    is, levels, numbers or times, is the same in all blocks that have values of it. A whole number
    may be an integer in one block and, beside missing values, a float in another: as a level
    (:class:`LevelColumn`) and as a number it is the same.
    """

    watch: Callable[[], None] | None = None
    """Called for every piece that is read before the first block is given; it may raise."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Table]:
        """
        The blocks in order, from the first row.

        :raises ValueError: a block without a column, or with one of another kind than in those
            before; names block and column.
        """

    @property
    def num_rows(self) -> int | None:
        """Number of rows; None where only reading tells."""
        return None


class Counted(Blocks):
    """
    Blocks without their rows of weight zero.

    :param blocks: of a table.
    :param columns: its columns of weights and trials.
    """

    def __init__(self, blocks: Blocks, columns: Iterable[Column]) -> None:
        self._blocks, self._columns = blocks, tuple(columns)

    def __iter__(self) -> Iterator[Table]:
        self._blocks.watch = self.watch
        for block in self._blocks:
            counted = block.counted(self._columns)
            if counted.num_rows:
                yield counted


def in_blocks(source: Any) -> bool:
    """True if a source is a path, a data set or tables one after the other, not one table."""
    if _is_table(source) or source is None:
        return False
    dataset = hasattr(source, "scanner") and hasattr(source, "schema")
    return _paths(source) is not None or dataset or isinstance(source, Iterable)


def blocks_of(source: Any, columns: Iterable[Column] | None, rows: int) -> Blocks:
    """
    A table in blocks of at most so many rows, with ``columns`` alone; None for all.

    What :class:`Table` takes; the path of a Parquet file or folder, or a list of them; a
    ``pyarrow.dataset.Dataset``; or tables one after the other, which are read twice for levels.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1; got {rows}.")
    names = None if columns is None else list(columns)
    paths = _paths(source)
    if paths is not None:
        return _from_dataset(_opened(paths), names, rows)
    if hasattr(source, "scanner") and hasattr(source, "schema"):
        return _from_dataset(source, names, rows)
    if _is_table(source):
        table = Table(source)
        return _Slices(table if names is None else table.only(names), rows)
    if not isinstance(source, Iterable):
        raise TypeError(
            "source must be a table, the path of a Parquet file, or an iterable of tables; got "
            f"{type(source).__name__}."
        )
    if isinstance(source, Iterator):
        raise TypeError(
            f"source can be read only once; got a {type(source).__name__}, and the data are read "
            "several times: pass a list of tables, or an object whose __iter__ begins anew."
        )
    return _Joined(lambda: iter(source), names, rows)


class _Slices(Blocks):
    """Blocks of one table in memory."""

    def __init__(self, table: Table, rows: int) -> None:
        self._table, self._rows = table, rows

    def __iter__(self) -> Iterator[Table]:
        for start in range(0, self._table.num_rows, self._rows):
            yield self._table.part(start, start + self._rows)

    @property
    def num_rows(self) -> int | None:
        return self._table.num_rows


class _Joined(Blocks):
    """Blocks of tables that come one after the other."""

    def __init__(
        self,
        read: Callable[[], Iterator[Any]],
        names: list[Column] | None,
        rows: int,
        levels_read: Callable[[], Iterator[Any]] | None = None,
        count: Callable[[], int] | None = None,
    ) -> None:
        self._read, self._levels_read, self._count = read, levels_read, count
        self._names, self._rows = names, rows
        self._levels: dict[Any, pd.CategoricalDtype] | None = None

    def __iter__(self) -> Iterator[Table]:
        if self._levels is None:
            self._levels = self._common_levels()
        kinds: dict[Any, tuple[str, int]] = {}
        for index, table in self._tables():
            for name in table.names:
                kind = _kind(table, name)
                first, where = kinds.setdefault(name, (kind, index)) if kind else (kind, index)
                if kind != first:
                    raise ValueError(
                        f"source: column {name!r} holds {first} in block {where} and {kind} in "
                        f"block {index}; make them alike."
                    )
            aligned = _with_levels(table, self._levels)
            for start in range(0, table.num_rows, self._rows):
                yield aligned.part(start, start + self._rows)

    @property
    def num_rows(self) -> int | None:
        return None if self._count is None else self._count()

    def _tables(self) -> Iterator[tuple[int, Table]]:
        names = self._names
        for index, data in enumerate(self._read()):
            table = Table(data)
            try:
                table = table.only(table.names if names is None else names)
            except ValueError as error:
                raise ValueError(f"source, block {index}: {error}") from None
            names = table.names
            yield index, table

    def _common_levels(self) -> dict[Any, pd.CategoricalDtype]:
        """All levels of every categorical column."""
        result: dict[Any, dict[tuple[Any, ...], pd.CategoricalDtype]] = {}
        if self._levels_read is not None:
            tables = (Table(data) for data in self._levels_read())
        else:
            tables = (table for _, table in self._tables())
        for index, table in enumerate(tables):
            if self.watch is not None:
                self.watch()
            for name in table.names:
                if table.levels(name) is None:
                    continue
                dtype = table.raw(name).dtype
                result.setdefault(name, {})[dtype.ordered, *dtype.categories] = dtype
            # a column that is categorical later only is refused when it comes
            if index == 0 and not result and not _may_be_categorical(table):
                break
        return {name: merged_categories(list(own.values()), name) for name, own in result.items()}


def _may_be_categorical(table: Table) -> bool:
    """True if a block without categories has a column of unknown kind, all of it missing."""
    return any(not _kind(table, name) for name in table.names)


def _kind(table: Table, name: Any) -> str:
    """Kind of values in a column, in words; empty where all of it is missing."""
    if table.levels(name) is not None:
        return "categories"
    if table.missing(name).all():
        return ""
    if is_levels(table, name):
        return "text or truth values"
    return "times" if table.values(name).dtype.kind in "mM" else "numbers"


def _with_levels(table: Table, levels: Mapping[Any, pd.CategoricalDtype]) -> Table:
    columns = table.columns()
    for name in table.names:
        if name not in levels:
            continue
        if table.levels(name) is None:  # all of it is missing
            codes = np.full(table.num_rows, -1)
            columns[name] = pd.Categorical.from_codes(codes.tolist(), dtype=levels[name])
        else:
            own, dtype = pd.Categorical(table.raw(name)), levels[name]
            columns[name] = own.set_categories(dtype.categories, ordered=dtype.ordered)
    return Table(columns)


def _is_table(source: Any) -> bool:
    """True if :class:`Table` takes it as one table; a list is one where its items are rows."""
    if isinstance(source, (Table, Mapping, np.ndarray)) or foreign_columns(source) is not None:
        return True
    if isinstance(source, (list, tuple)):
        return bool(source) and isinstance(source[0], (list, tuple)) and not _is_table(source[0])
    return hasattr(source, "columns") and hasattr(source, "__getitem__")


def _paths(source: Any) -> Any:
    """A path or paths as pyarrow takes them; None for anything else."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    listed = isinstance(source, (list, tuple)) and bool(source)
    if listed and all(isinstance(item, (str, os.PathLike)) for item in source):
        return [os.fspath(item) for item in source]
    return None


def _opened(paths: Any) -> Any:
    try:
        import pyarrow
        import pyarrow.dataset
    except ImportError as error:
        raise ImportError(
            f"Parquet files need pyarrow ({error}); pip install 'gpflow_gam[parquet]'."
        ) from error
    for path in [paths] if isinstance(paths, str) else paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"source: there is no file or folder {path!r}.")
    try:
        dataset = pyarrow.dataset.dataset(paths, format="parquet", partitioning="hive")
    except pyarrow.ArrowInvalid as error:
        raise ValueError(
            f"source {paths!r} is not Parquet ({str(error).splitlines()[0]}); read it yourself, "
            "and pass the tables."
        ) from None
    if not dataset.schema.names:
        raise ValueError(f"source {paths!r} holds no Parquet file.")
    return dataset


def _from_dataset(dataset: Any, columns: list[Column] | None, rows: int) -> Blocks:
    schema = dataset.schema
    wanted = schema.names if columns is None else columns
    names = list(dict.fromkeys(resolved(column, schema.names) for column in wanted))
    categories = [n for n in names if hasattr(schema.field(n).type, "index_type")]

    def read(names: list[str]) -> Iterator[Any]:
        return iter(
            dataset.scanner(
                columns=names, batch_size=rows, batch_readahead=_READAHEAD, fragment_readahead=1
            ).to_batches()
        )

    return _Joined(
        lambda: read(names),
        None,
        rows,
        lambda: read(categories) if categories else iter(()),
        getattr(dataset, "count_rows", None),
    )


def concatenated(tables: Sequence[Table]) -> Table:
    """Tables one after the other, as one."""
    if len(tables) == 1:
        return tables[0]
    columns: dict[Any, Any] = {}
    for name in tables[0].names:
        parts = [t.raw(name) for t in tables]
        if tables[0].levels(name) is not None:
            codes = np.concatenate([np.asarray(pd.Categorical(p).codes) for p in parts])
            columns[name] = pd.Categorical.from_codes(codes.tolist(), dtype=parts[0].dtype)
        elif any(isinstance(getattr(p, "dtype", None), pd.StringDtype) for p in parts):
            columns[name] = pd.concat([pd.Series(p, dtype=object) for p in parts])
        else:
            columns[name] = np.concatenate([t.values(name) for t in tables])
    return Table(columns)


def recut(blocks: Iterator[Table], rows: int) -> Iterator[Table]:
    """Blocks of exactly so many rows, but for the last."""
    waiting: list[Table] = []
    number = 0
    for block in blocks:
        start = 0
        while block.num_rows - start >= rows - number:
            waiting.append(block.part(start, start + rows - number))
            start += rows - number
            yield concatenated(waiting)
            waiting, number = [], 0
        if start < block.num_rows:
            waiting.append(block.part(start, block.num_rows))
            number += block.num_rows - start
    if waiting:
        yield concatenated(waiting)


class Occurring:
    """The distinct values of a column, gathered over blocks."""

    def __init__(self, name: Column) -> None:
        self.name = name
        self._seen: set[Any] = set()
        self._values: list[AnyNDArray] = []
        self._dtype: pd.CategoricalDtype | None = None

    def add(self, table: Table) -> None:
        """Those of a block, none of them missing."""
        if table.levels(self.name) is not None:
            self._dtype = table.raw(self.name).dtype
        self._take(table.distinct(self.name).occurring())

    def merged(self, other: Occurring) -> Occurring:
        """Those of other blocks of the same table, too."""
        both = Occurring(self.name)
        dtypes = [p._dtype for p in (self, other) if p._dtype is not None]
        both._dtype = merged_categories(dtypes, self.name) if dtypes else None
        for part in (self, other):
            for values in part._values:
                both._take(values)
        return both

    def _take(self, values: AnyNDArray) -> None:
        new = np.array([v not in self._seen for v in values.tolist()], dtype=bool)
        if new.any():
            self._values.append(values[new])
            self._seen.update(values[new].tolist())

    def __len__(self) -> int:
        return len(self._seen)

    def column(self, length: int) -> Any:
        """A column that holds each of them at least once."""
        values = np.concatenate(self._values)
        values = np.concatenate([values, np.repeat(values[:1], length - len(values))])
        return values if self._dtype is None else pd.Categorical(values, dtype=self._dtype)
