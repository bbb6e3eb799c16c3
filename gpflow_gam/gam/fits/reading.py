"""From a table, or a source of blocks, to the encoded rows of a fit."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...optimizers import TimeBudget
from ...optimizers.binned import bins
from ...optimizers.binned.bins import (
    NUM_BINS,
    Bins,
    BinSums,
    CodedColumns,
    Coder,
    ColumnGrid,
    Grid,
    Summary,
    kept,
    margin_bins,
    summarise,
)
from ...optimizers.minimizers import progress_bar
from ...storage import Inputs, Store
from ...threads import each
from ..components import keys_of, learn_encoder
from ..families import Binomial, Custom, Family, Levels
from ..frames import (
    Blocks,
    Counted,
    Design,
    Encoder,
    Fill,
    Holes,
    Key,
    LevelColumn,
    NumericColumn,
    Occurring,
    Table,
    blocks_of,
    complete_rows,
    concatenated,
    filled,
    learn_fills,
    numeric_column,
)
from ..terms import Column, Terms, columns_of, variables_of
from .data import CodedData, Data, HeldData, Marginal
from .formula import design_columns, expand_formula, needs_table
from .specification import Roles

BLOCK = 2**17
"""Rows that are read at a time."""
_MAX_LABELS = 10_000
"""Labels of a response beyond which it holds none."""


class EncodedRows:
    """
    The rows of a fit, encoded, for which there may be other bins.

    :param encode: gives the rows with so many bins of a column that has many values, and with one
        for each with None; without it bins stay as they are.
    :param dropped: rows left out for missing values.
    :param data: the rows, where they are there already.
    """

    def __init__(
        self, encode: Callable[[int | None], Data] | None, dropped: int, data: Data | None = None
    ) -> None:
        if data is None:
            assert encode is not None
            data = encode(NUM_BINS)
        self.data, self.dropped, self._encode = data, dropped, encode

    @property
    def can_rebin(self) -> bool:
        """True if the data can be binned anew."""
        return self._encode is not None

    def rebin(self, number: int | None) -> None:
        """Make so many bins of a column that has many values; one for each with None."""
        assert self._encode is not None
        del self.data  # two sets of codes are not needed at once
        self.data = self._encode(number)


@dataclasses.dataclass(frozen=True)
class Reading:
    """
    The rows of a fit, and what its columns are.

    :param terms: of columns as they are, without formulas of the data.
    :param table: has the kinds of all columns, and their levels.
    :param encoder: how columns become X.
    :param levels: the response's labels, where it has any.
    :param fills: what stands in for missing values.
    :param design: the columns that a formula makes of others.
    :param given: the data, where they are a table in memory.
    :param complete: its rows that lack no value.
    """

    rows: EncodedRows
    terms: Terms
    table: Table
    encoder: Encoder
    levels: Levels | None
    fills: tuple[Fill, ...] = ()
    design: Design | None = None
    given: Table | None = None
    complete: Table | None = None


def read(
    source: Any,
    terms: Terms,
    family: Family,
    roles: Roles,
    missing: str,
    needs: str,
    progress: bool | None,
    budget: TimeBudget,
) -> Reading:
    """Up to 65 536 rows as numbers in memory; of more of them codes and a sample, by two passes."""
    if not isinstance(source, Table):
        if needs_table(terms):
            raise ValueError(
                "a formula that transforms columns, or has '.', needs a table in memory; make the "
                "columns where the blocks are made, and name them."
            )
        blocks = read_in_blocks(source, terms, roles, budget)
        summary = summarise_columns(terms, family, roles, blocks, missing, progress, True, budget)
        if isinstance(summary, ColumnSummary):
            if needs:
                raise ValueError(f"{needs} {IN_MEMORY}")
            return _coded(terms, family, roles, blocks, summary, summary.dropped, progress, budget)
        source = summary
    return read_table(source, terms, family, roles, missing, bool(needs), progress, budget)


def read_table(
    table: Table,
    terms: Terms,
    family: Family,
    roles: Roles,
    missing: str,
    as_numbers: bool,
    progress: bool | None,
    budget: TimeBudget,
) -> Reading:
    """As :func:`read`, of a table in memory."""
    given, named = table, expand_formula(terms, roles, table)
    complete, dropped, fills = complete_table(table, named, roles, missing)
    terms, table, design = design_columns(named, complete)
    if design is not None:  # of which new columns may lack values
        complete_table(table, terms, roles, "error")
    if not as_numbers and given.counted(roles.counting).num_rows > bins.KEPT_ROWS:
        blocks = read_in_blocks(table, terms, roles, budget)
        summary = summarise_columns(terms, family, roles, blocks, "error", progress, False, budget)
        assert isinstance(summary, ColumnSummary)
        coded = _coded(terms, family, roles, blocks, summary, dropped, progress, budget)
        return dataclasses.replace(coded, fills=fills, design=design)
    encoder = learn_encoder(terms, roles.numeric, table)
    X = encoder.encode(table)
    if roles.weights is not None:
        w = X[:, encoder.index(roles.weights, "number")]
        _check_weights(roles, w.min(), f" in row {int(w.argmin())}")
    response = roles.encoded(family, table, roles.labels(family, table))
    encode = functools.partial(HeldData.of, X, response.Y, encoder, roles.weights)
    rows = EncodedRows(encode, dropped)
    levels = response.levels
    return Reading(rows, terms, table, encoder, levels, fills, design, given, complete)


def _coded(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    summary: ColumnSummary,
    dropped: int,
    progress: bool | None,
    budget: TimeBudget,
) -> Reading:
    """The rows in codes, by a second pass over blocks."""
    check_summary(terms, roles, summary)
    levels = summary.labels(family, roles)
    share = Share(summary.summary.number, 0, summary.dropped)

    def encode(number: int | None) -> CodedData:
        limit = budget if number == NUM_BINS else None  # of finer bins there is a fit to be lost
        return encode_share(
            terms, family, roles, blocks, summary, levels, share, number, progress, limit
        ).done()

    rows = EncodedRows(encode, dropped)
    return Reading(rows, terms, summary.table, summary.encoder, levels)


IN_MEMORY = (
    "needs all rows in memory as numbers, which data in blocks are not; pass a table in memory "
    "(for a Parquet file pandas.read_parquet(path))."
)


# --- checks --------------------------------------------------------------------------------------


def _check_weights(roles: Roles, least: float, where: str = "") -> None:
    """Raise ValueError if a weight is negative."""
    if least < 0.0:
        raise ValueError(f"weights {roles.weights!r} must not be negative; got {least:g}{where}.")


def check_enough_rows(number: int, roles: Roles) -> None:
    """Raise ValueError if fewer than two rows count."""
    if number < 2:
        own = " and ".join(map(repr, roles.counting))
        counted = f" in which {own} is not zero" if own else ""
        raise ValueError(f"data has {number} row(s){counted}; a fit needs at least 2.")


def _check_response_is_no_term(roles: Roles, read: list[Column], table: Table | None) -> None:
    for name in roles.response_columns[: 1 if roles.censoring is None else 2]:
        if (name if table is None else table.name(name)) in read:
            raise ValueError(f"the response {name!r} is also in a term; drop that term.")


def check_summary(terms: Terms, roles: Roles, summary: ColumnSummary) -> None:
    """Raise ValueError if the first pass shows that no such model can be fitted."""
    _check_response_is_no_term(roles, variables_of(columns_of(terms)), None)
    check_enough_rows(summary.summary.number, roles)
    if roles.weights is not None:
        place = summary.numbers.index((roles.weights, "number"))
        _check_weights(roles, summary.summary.least[place])


# --- tables --------------------------------------------------------------------------------------


def complete_table(
    table: Table, terms: Terms, roles: Roles, missing: str
) -> tuple[Table, int, tuple[Fill, ...]]:
    """
    Complete rows that count, how many were dropped, and what the inputs were filled with.

    Here rows of weight zero are left out, before anything is looked at.
    """
    table = table.counted(roles.counting)
    columns = variables_of(columns_of(terms))
    _check_response_is_no_term(roles, [table.name(c) for c in columns], table)
    fills: tuple[Fill, ...] = ()
    if missing == "impute":
        keys = [key for term in terms for key in keys_of(term, table)]
        levels = [table.name(name) for name, kind in keys if kind == "level"]
        fills = learn_fills(table, columns, levels)
        table = filled(table, fills)
    columns += variables_of([*roles.complete_columns, *roles.others])
    check_enough_rows(table.num_rows, roles)
    return *complete_rows(table, columns, missing), fills


def first_rows(source: Any, terms: Terms, roles: Roles, budget: TimeBudget | None = None) -> Table:
    """The first rows of a source, whose columns have the types of all."""
    if isinstance(source, Table):
        return source
    for block in read_in_blocks(source, terms, roles, budget):
        if block.num_rows:
            return block
    raise ValueError("data has 0 row(s); a fit needs at least 2.")


def with_trials(
    family: Family,
    roles: Roles,
    source: Any,
    gathered: Callable[[Callable[[], set[str]]], Iterable[set[str]]] = lambda own: [own()],
) -> tuple[Family, Roles]:
    """
    The family and the columns of a binomial response without trials.

    Weights are the trials of proportions; zeros and ones, truth values and labels are Bernoulli's.
    """
    if not isinstance(family, Binomial) or roles.trials is not None or roles.censoring is not None:
        return family, roles
    if not family.needs_trials and roles.weights is None:
        return family, roles  # shares of no trials
    seen = set[str]().union(*gathered(lambda: _sizes(source, roles)))
    if "counts" in seen:
        return family, roles  # to which trials are missing
    own = family.without_trials("fractions" in seen, roles.weights, str(roles.response))
    if "fractions" in seen:
        roles = dataclasses.replace(roles, trials=roles.weights, weights=None)
    return own, roles


def _sizes(source: Any, roles: Roles) -> set[str]:
    """Kinds of numbers in a response: fractions, and numbers that are neither these nor 0 nor 1."""
    result: set[str] = set()
    columns = [roles.response, *roles.counting]
    named = all(isinstance(c, str) for c in columns)
    for block in blocks_of(source, columns if named else None, BLOCK):
        table = block.counted(roles.counting)
        if table.levels(roles.response) is not None:
            break  # labels, whatever they are called
        y = pd.to_numeric(pd.Series(table.values(roles.response)), errors="coerce").to_numpy(float)
        inside = (y > 0.0) & (y < 1.0)
        result |= {"fractions"} if inside.any() else set()
        result |= {"counts"} if np.any((y < 0.0) | (y > 1.0)) else set()
    return result


# --- first pass: kinds, levels, ranges and quantiles of columns ----------------------------------


def read_in_blocks(
    source: Any, terms: Terms, roles: Roles, budget: TimeBudget | None = None
) -> Blocks:
    """The columns of a source that a fit reads."""
    columns = columns_read(terms, roles)
    # the place of a named column is known among all of them only
    named = all(isinstance(c, str) for c in columns)
    blocks = blocks_of(source, columns if named else None, BLOCK)
    if counting := roles.counting:
        blocks = Counted(blocks, counting)
    if budget is not None:
        blocks.watch = lambda: check_time(budget, "reading the levels of categorical columns")
    return blocks


@dataclasses.dataclass(frozen=True)
class ColumnSummary:
    """
    Summary of each column from the first pass.

    :param table: a table that has every level and label that occurs, and of columns of numbers
        nothing but their kind.
    :param encoder: how columns become X.
    :param summary: of the columns of numbers.
    :param numbers: which they are, in the summary's order.
    :param dropped: rows left out for missing values.
    """

    table: Table
    encoder: Encoder
    summary: Summary
    numbers: tuple[Key, ...]
    dropped: int

    def labels(self, family: Family, roles: Roles) -> Levels | None:
        """The response's labels, where it has any."""
        if not family.labelled:
            return None
        return roles.encoded(family, self.table, roles.labels(family, self.table)).levels

    def place(self, column: int) -> int | None:
        """Place of a column of X in the summary; None for columns of levels."""
        key = list(self.encoder.columns)[column]
        return self.numbers.index(key) if key in self.numbers else None


def columns_read(terms: Terms, roles: Roles) -> list[Column]:
    """The columns that a fit reads, each once."""
    return variables_of([*columns_of(terms), *roles.response_columns, *roles.others])


def columns_needed(terms: Terms, roles: Roles) -> list[Column]:
    """Those of them that no row may lack."""
    return variables_of([*columns_of(terms), *roles.complete_columns, *roles.others])


def summarise_columns(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    missing: str,
    progress: bool | None,
    gather: bool = True,
    budget: TimeBudget | None = None,
) -> ColumnSummary | Table:
    """Read a table once."""
    columns = columns_needed(terms, roles)
    holes = Holes()
    few: list[Table] | None = [] if gather else None
    result: PartialSummary | None = None
    for block in reading(blocks, "reading, pass 1 of 2", progress, budget=budget):
        start = holes.num_rows
        if few is not None:
            few.append(block)
            if start + block.num_rows > bins.KEPT_ROWS:
                few = None
        if missing == "impute" and few is not None:
            holes.num_rows += block.num_rows
            continue
        with located(start, block.num_rows):
            bad = holes.add(block, columns)
            if bad.any():
                block = block.rows(~bad)
            if block.num_rows == 0:
                continue
            result = PartialSummary(terms, family, roles, block) if result is None else result
            result.add(block)
    if few is not None:
        if not few:
            check_enough_rows(0, roles)
        return concatenated(few)
    if missing == "impute":
        raise ValueError(
            "missing='impute' needs medians of all rows, which data in blocks do not give; fill "
            "the values in where the blocks are made, or take missing='drop'."
        )
    holes.check(missing)
    assert result is not None
    return result.whole(terms, roles, holes.incomplete)


def reading(
    blocks: Blocks,
    what: str,
    progress: bool | None,
    total: int | None = None,
    budget: TimeBudget | None = None,
) -> Iterator[Table]:
    """The blocks, with a bar that counts their rows."""
    total = blocks.num_rows if total is None else total
    seen = 0
    with progress_bar(what, " rows", progress, total, unit_scale=True) as bar:
        for block in blocks:
            of = "" if total is None else f" of {total:,}"
            check_time(budget, f"{what}, after {seen:,}{of} rows")
            yield block
            seen += block.num_rows
            bar.update(block.num_rows)


def check_time(budget: TimeBudget | None, what: str) -> None:
    """Raise TimeoutError if time is up."""
    if budget is not None and budget.spent:
        raise TimeoutError(
            f"max_seconds={budget.max_seconds:g} was used up {what}; nothing was fitted. Give the "
            "fit more time, or fewer rows or columns."
        )


@contextlib.contextmanager
def located(start: int, number: int) -> Iterator[None]:
    """Says where the rows are that an error counts from 0."""
    try:
        yield
    except ValueError as error:
        if start == 0:
            raise
        raise ValueError(f"rows {start} to {start + number - 1} of data: {error}") from error


class PartialSummary:
    """
    Summary of blocks of rows; those of parts of the rows merge.

    :param terms: the terms.
    :param family: the response's.
    :param roles: the columns that are no terms.
    :param block: some block with rows, from which the columns' kinds are known.
    :param start: the number of the first row, which other parts do not have.
    """

    def __init__(
        self, terms: Terms, family: Family, roles: Roles, block: Table, start: int = 0
    ) -> None:
        readers: dict[Key, NumericColumn] = {}
        levels: dict[Column, Occurring] = {}
        for term in terms:
            for name, kind in keys_of(term, block):
                if kind == "level":
                    levels.setdefault(name, Occurring(name))
                else:
                    readers.setdefault((name, kind), numeric_column(block, name, term))
        for name, use in roles.numeric:
            readers.setdefault((name, "number"), NumericColumn(name, use))
        if family.labelled:
            levels.setdefault(roles.response, Occurring(roles.response))
        self.numbers, self._readers, self._levels = list(readers), readers, levels
        self._response, self._start = roles.response, start
        self.summary: Summary | None = None

    def add(self, block: Table) -> None:
        """A block's complete rows, which follow those before."""
        for column in self._levels.values():
            column.add(block)
            if column.name == self._response and len(column) > _MAX_LABELS:
                raise ValueError(
                    f"the response {self._response!r} has more than {_MAX_LABELS} labels; is it a "
                    "number? Take another family."
                )
        X = np.zeros((block.num_rows, len(self._readers)))
        for i, reader in enumerate(self._readers.values()):
            X[:, i] = reader.encode(block)
        start = self._start + (0 if self.summary is None else self.summary.number)
        own = summarise(X, start, self.summary)
        self.summary = own if self.summary is None else self.summary.merged(own)

    @property
    def kinds(self) -> dict[Column, tuple[str, ...]]:
        """As what each column is read."""
        result: dict[Column, tuple[str, ...]] = {}
        for name, kind in [*((name, "level") for name in self._levels), *self.numbers]:
            result[name] = (*result.get(name, ()), f"{kind}s")
        return result

    def merged(self, other: PartialSummary) -> PartialSummary:
        """Those of both parts of the rows; none comes after."""
        both = copy.copy(self)
        both._levels = {n: c.merged(other._levels[n]) for n, c in self._levels.items()}
        parts = [f.summary for f in (self, other) if f.summary is not None]
        both.summary = parts[0].merged(parts[1]) if len(parts) == 2 else parts[0]
        return both

    def whole(self, terms: Terms, roles: Roles, dropped: int) -> ColumnSummary:
        """Summary of each column, and the encoder that follows from it."""
        assert self.summary is not None
        table = self._table()
        encoder = learn_encoder(terms, roles.numeric, table)
        return ColumnSummary(table, encoder, self.summary, tuple(self.numbers), dropped)

    def _table(self) -> Table:
        """See :class:`ColumnSummary`."""
        length = max([1, *(len(column) for column in self._levels.values())])
        columns: dict[Any, Any] = {  # of a column that is read both ways its levels count
            name: reader.shown(np.zeros(length)) for (name, _), reader in self._readers.items()
        }
        columns |= {name: column.column(length) for name, column in self._levels.items()}
        columns.setdefault(self._response, np.zeros(length))
        return Table(columns)


# --- second pass: codes of bins ------------------------------------------------------------------


class Wanted:
    """
    Columns of X, and the forms in which they are needed.

    :param terms: the terms.
    :param result: what the first pass found.
    :param roles: the columns that are no terms.
    :param family: the response's; one of the user's may read any column.
    """

    def __init__(self, terms: Terms, result: ColumnSummary, roles: Roles, family: Family) -> None:
        encoder = result.encoder
        self.joint: set[tuple[int, ...]] = set()
        self.ranges: set[tuple[int, int | None]] = set()
        self.used: set[int] = set()
        self.weights = None if roles.weights is None else encoder.index(roles.weights, "number")
        held = {encoder.index(name, "number") for name, _ in roles.numeric}
        for term in terms:
            keys = keys_of(term, result.table)
            places = [encoder.index(*key) for key in keys]
            own = places[: len(term.columns)]
            self.joint.add(tuple(own))
            self.ranges |= {(place, None) for place in places}
            self.used |= set(places)
            if term.by is None:
                continue
            by = places[-1]
            if keys[-1][1] == "number":
                held.add(by)
            else:
                self.joint.add((by,))
                self.ranges |= {(place, by) for place in own}
        self.held = set(range(encoder.width)) if isinstance(family, Custom) else held


@dataclasses.dataclass(frozen=True)
class Share:
    """
    Share of all rows that is read here.

    :param number: how many, all of them complete.
    :param start: the number of the first one among all complete ones.
    :param dropped: rows here that were left out for missing values.
    """

    number: int
    start: int = 0
    dropped: int = 0


def encode_share(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    result: ColumnSummary,
    levels: Levels | None,
    share: Share,
    number: int | None = NUM_BINS,
    progress: bool | None = None,
    budget: TimeBudget | None = None,
) -> Encoding:
    """Read a share of the rows a second time."""
    wanted = Wanted(terms, result, roles, family)
    assert number is not None  # rows in codes have no bin a value
    encoding = Encoding(result, wanted, number, share.number, share.start)
    columns, holes, total = columns_needed(terms, roles), Holes(), share.number
    expected = total + share.dropped
    for block in reading(blocks, "reading, pass 2 of 2", progress, expected, budget):
        with located(holes.num_rows, block.num_rows):
            bad = holes.add(block, columns)
            if bad.any():
                block = block.rows(~bad)
            if holes.num_rows - holes.incomplete > total:
                break
            if block.num_rows == 0:
                continue
            response = roles.encoded(family, block, levels)
            encoding.add(result.encoder.encode(block), response.Y)
    seen = holes.num_rows - holes.incomplete
    if seen != total or holes.incomplete != share.dropped:
        more = "more than that" if seen > total else f"{seen} and {holes.incomplete}"
        raise ValueError(
            f"data had {total} complete rows and {share.dropped} others when it was first read, "
            f"and {more} at the second; data must give the same rows each time."
        )
    return encoding


@dataclasses.dataclass(frozen=True)
class Totals:
    """
    Totals that determine the bins of coded rows; those of parts of the rows merge.

    :param sums: what is in joint bins, by their columns.
    :param masses: the rows' weight in each cell of every column that is read, by its place.
    :param ranges: as :class:`CodedColumns` has them.
    """

    sums: dict[tuple[int, ...], BinSums]
    masses: dict[int, AnyNDArray]
    ranges: dict[tuple[int, int | None], tuple[AnyNDArray, AnyNDArray]]

    def merged(self, other: Totals) -> Totals:
        """Totals of the rows of both."""
        return Totals(
            {places: own.merged(other.sums[places]) for places, own in self.sums.items()},
            {place: own + other.masses[place] for place, own in self.masses.items()},
            {
                key: (np.minimum(a, other.ranges[key][0]), np.maximum(b, other.ranges[key][1]))
                for key, (a, b) in self.ranges.items()
            },
        )


class Encoding:
    """
    Takes rows as they come.

    :param result: what a first pass over all rows found.
    :param wanted: which columns in which form.
    :param number: of bins of a column that has many values.
    :param total: how many rows come here; by default all of them.
    :param start: the number of the first of them.
    """

    def __init__(
        self,
        result: ColumnSummary,
        wanted: Wanted,
        number: int,
        total: int | None = None,
        start: int = 0,
    ) -> None:
        self._found, self._wanted, self._number = result, wanted, number
        self._total = total = result.summary.number if total is None else total
        self._coders = {places: Coder(self._grid(places), total) for places in wanted.joint}
        for place in wanted.used:  # of columns that are in joint bins alone no code is kept
            if (place,) not in self._coders:
                self._coders[place,] = Coder(self._grid((place,)), total, keep=False)
        self._masses = {p: np.zeros(self._coders[p,].grid.number) for p in wanted.used}
        self._held = {place: Store((total,)) for place in wanted.held}
        self._ranges = {key: self._range(key[1]) for key in wanted.ranges}
        self._halvings = result.summary.sample.halvings
        self._kept: list[tuple[AnyNDArray, AnyNDArray, AnyNDArray]] = []
        self._Y: Store | None = None
        self._start, self._filled = start, 0

    def _grid(self, places: tuple[int, ...]) -> Grid:
        own = margin_bins(len(places), self._number, self._found.summary.number)
        margins = []
        for place in places:
            column = self._found.place(place)
            if column is not None:
                margins.append(ColumnGrid.of(self._found.summary, column, own))
            else:
                margins.append(ColumnGrid.levels(self._num_levels(place)))
        return Grid(tuple(margins))

    def _num_levels(self, place: int) -> int:
        column = list(self._found.encoder.columns.values())[place]
        assert isinstance(column, LevelColumn)
        return len(column.levels)

    def _range(self, by: int | None) -> tuple[AnyNDArray, AnyNDArray]:
        number = 1 if by is None else self._num_levels(by)
        return np.full(number, np.inf), np.full(number, -np.inf)

    def add(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """The rows that come next, [n, D] and [n, K]."""
        start, self._filled = self._filled, self._filled + len(X)
        w = None if self._wanted.weights is None else X[:, self._wanted.weights]

        def coded(places: tuple[int, ...]) -> None:
            coder = self._coders[places]
            cells = coder.add(X[:, list(places)])
            if places in single:
                (place,) = places
                self._masses[place] += np.bincount(cells, w, minlength=coder.grid.number)

        single = {(place,) for place in self._masses}
        each(coded, list(self._coders))
        for place, store in self._held.items():
            store.put(start, X[:, place])
        if self._Y is None:
            self._Y = Store((self._total, Y.shape[1]))
        self._Y.put(start, Y)
        for (place, by), (least, greatest) in self._ranges.items():
            values = X[:, place]
            if by is not None:
                codes = X[:, by].astype(np.intp)
                np.minimum.at(least, codes, values)
                np.maximum.at(greatest, codes, values)
            elif len(values):
                least[0] = min(least[0], values.min())
                greatest[0] = max(greatest[0], values.max())
        first = self._start + start
        which = kept(first, first + len(X), self._halvings)
        self._kept.append((which - self._start, X[which - first], Y[which - first]))

    def totals(self) -> Totals:
        """Totals of these rows, which determine the bins."""
        sums = {places: coder.sums() for places, coder in self._coders.items()}
        return Totals(sums, self._masses, self._ranges)

    def done(self, totals: Totals | None = None) -> CodedData:
        """These rows in codes, and those of them that are in the sample."""
        assert self._Y is not None
        totals = self.totals() if totals is None else totals
        held = {place: store.done() for place, store in self._held.items()}
        weights = None if self._wanted.weights is None else held[self._wanted.weights]
        coded = {
            places: self._coders[places].bins(totals.sums[places]) for places in self._wanted.joint
        }
        # of no column, the intercept's, there is one bin
        coded[()] = Bins(np.zeros(self._total, dtype=np.uint8), np.zeros((1, 0)), True)
        inputs = Inputs(self._total, self._found.encoder.width, held)
        columns = CodedColumns(inputs, coded, totals.ranges, weights)
        marginals: dict[int, Marginal] = {}
        for place in sorted(self._wanted.used):
            sums = totals.sums[place,]
            points = self._coders[place,].grid.points(sums)[:, 0]
            marginals[place] = points, totals.masses[place][sums.cells]
        indices, X, Y = (np.concatenate(parts) for parts in zip(*self._kept))
        return CodedData(X, Y, columns, self._Y.done(), marginals, indices)
