"""Blocks of rows of a table, a file or a stream, which are read one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...errors import check_count, imported
from ..terms.base import Column
from .table import (
    Table,
    concatenated,
    cut,
    is_table,
    kind_of_time,
    merged_categories,
    paths_of,
    resolved,
)

_READAHEAD = 4
"""Batches that pyarrow reads before they are asked for, beside the one that is in use."""


class Blocks:
    """Blocks of rows of the same columns and kinds, which can be read any number of times."""

    def __init__(
        self,
        read: Callable[[], Iterable[Any]],
        names: list[Column] | None,
        rows: int,
        counting: Iterable[Column] = (),
        count: Callable[[], int] | None = None,
    ) -> None:
        self._read, self._names, self._rows = read, names, rows
        self._counting, self._count = tuple(counting), count

    def __iter__(self) -> Iterator[Table]:
        """The blocks in order; ValueError where one differs in kind from those before."""
        names = self._names
        kinds: dict[Any, tuple[str, int]] = {}
        for index, data in enumerate(self._read()):
            table = Table(data)
            try:
                table = table.only(table.names if names is None else names)
            except ValueError as error:
                raise ValueError(f"source, block {index}: {error}") from None
            names = table.names
            for name in names:
                kind = _kind(table, name)
                first, where = kinds.setdefault(name, (kind, index)) if kind else (kind, index)
                if kind != first:
                    raise ValueError(
                        f"source: column {name!r} holds {first} in block {where} and {kind} in "
                        f"block {index}; make them alike."
                    )
            for start in range(0, table.num_rows, self._rows):
                part = table.part(start, start + self._rows)
                counted = part.counted(self._counting)
                if counted.num_rows:
                    yield counted

    @property
    def num_rows(self) -> int | None:
        """Number of rows; None where only reading tells."""
        return None if self._counting or self._count is None else self._count()


def blocks_of(
    source: Any, columns: Iterable[Column] | None, rows: int, counting: Iterable[Column] = ()
) -> Blocks:
    """Blocks of at most so many rows, with ``columns`` alone, None for all; without weight zero."""
    # What Table takes; the path of a Parquet file or folder, or a list of them; a
    # pyarrow.dataset.Dataset; or tables one after the other, which are read anew for each pass.
    check_count("rows", rows)
    names = None if columns is None else list(columns)
    paths = paths_of(source)
    if paths is not None:
        source = _opened(paths)
    if hasattr(source, "scanner") and hasattr(source, "schema"):
        every = source.schema.names
        read = list(dict.fromkeys(resolved(c, every) for c in (every if names is None else names)))
        options = {"batch_readahead": _READAHEAD, "fragment_readahead": 1}

        def batches() -> Iterator[Any]:
            return iter(source.scanner(columns=read, batch_size=rows, **options).to_batches())

        return Blocks(batches, None, rows, counting, getattr(source, "count_rows", None))
    if is_table(source):
        table = Table(source)
        table = table if names is None else table.only(names)
        return Blocks(lambda: [table], None, rows, counting, lambda: table.num_rows)
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
    return Blocks(lambda: source, names, rows, counting)


def _kind(table: Table, name: Any) -> str:
    """Kind of values in a column, in words; empty where all of it is missing."""
    if table.levels(name) is not None:
        return "categories"
    first = np.asarray(cut(table.raw(name), 0, 1))
    if pd.isna(first).all() and table.missing(name).all():
        return ""
    if first.dtype.kind in "iuf":
        return "numbers"
    if table.is_levels(name):
        return "text or truth values"
    return kind_of_time(table, name) or "numbers"


def _opened(paths: Any) -> Any:
    arrow = imported("pyarrow.dataset", "a Parquet file", "'gpflow_gam[parquet]'")
    for path in [paths] if isinstance(paths, str) else paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"source: there is no file or folder {path!r}.")
    try:
        dataset = arrow.dataset(paths, format="parquet", partitioning="hive")
    except ValueError as error:
        raise ValueError(
            f"source {paths!r} is not Parquet ({str(error).splitlines()[0]}); read it yourself, "
            "and pass the tables."
        ) from None
    if not dataset.schema.names:
        raise ValueError(f"source {paths!r} holds no Parquet file.")
    return dataset


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
        self._dtypes: dict[tuple[Any, ...], pd.CategoricalDtype] = {}

    @property
    def stated(self) -> bool:
        """True if the column says what its levels are."""
        return bool(self._dtypes)

    def add(self, table: Table) -> None:
        if table.levels(self.name) is not None:
            dtype = table.raw(self.name).dtype
            self._dtypes[dtype.ordered, *dtype.categories] = dtype
        self._take(table.distinct(self.name).occurring())

    def merged(self, other: Occurring) -> Occurring:
        """Those of other blocks of the same table, too."""
        both = Occurring(self.name)
        both._dtypes = self._dtypes | other._dtypes
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
        if not self._dtypes:
            return values
        return pd.Categorical(
            values, dtype=merged_categories(list(self._dtypes.values()), self.name)
        )
