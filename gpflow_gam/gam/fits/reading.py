"""From a table, or a source of blocks, to the encoded rows of a fit."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

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
from ...storage import ALONE, Communicator, Inputs, Store, Stored
from ...threads import ahead, each
from ..components.plan import elements_of, keys_of, learn_encoder
from ..families import Binomial, Custom, Levels
from ..frames.blocks import Blocks, Occurring, blocks_of
from ..frames.encoding import (
    Design,
    Encoder,
    Fill,
    Holes,
    Key,
    LevelColumn,
    NumericColumn,
    filled,
    learn_fills,
    numeric_column,
)
from ..frames.table import Table, check_no_place, concatenated, in_blocks, located
from ..terms import Surv, Terms, factor, linear
from ..terms.base import Column, ResponseSpec, Term, as_column, columns_of, variables_of
from ..terms.parametric import AllColumns, Linear, Transformed, Variable
from ..terms.smooth import Lag
from .data import CodedData, Data, HeldData, Marginal
from .specification import Request

BLOCK = 2**17  # rows that are read at a time
T = TypeVar("T")


def in_memory(data: Any) -> Table:
    """Data as one table, whatever they come in."""
    if not in_blocks(data):
        return Table(data)
    tables = list(blocks_of(data, None, BLOCK))
    if not tables:
        raise ValueError("data has no rows.")
    return concatenated(tables)


# --- the response --------------------------------------------------------------------------------


def with_response_as(data: Any, y: Any, name: Column) -> Table:
    """Data in memory that hold the response under a name."""
    result, column = with_response(in_memory(data), y, name)
    assert not isinstance(column, Surv)  # of which callers say that it is of no use to them
    table = Table(result)
    if column == name:
        return table
    others = table.only(n for n in table.names if n != column)
    return others.beside({name: table.raw(column)})


def with_response(data: Any, y: Any, stated: ResponseSpec | None) -> tuple[Any, ResponseSpec]:
    """Data that hold the response, and what it is called there."""
    y = stated if y is None else y
    if y is None:
        raise ValueError("y is missing: name the response's column, or pass its values.")
    y, named = as_column(y, y), as_column(y) is not None or isinstance(y, Surv)
    if in_blocks(data):
        if not named:
            raise ValueError(
                "y must name the response's column where data come in blocks; got values of type "
                f"{type(y).__name__}."
            )
        return data, y
    table = Table(data)
    if named:
        for column in y.columns if isinstance(y, Surv) else (y,):
            table.raw(column)  # raises where there is none
        return table, y
    shape, rows = np.shape(y), table.num_rows
    if shape not in ((rows,), (rows, 1)):
        raise ValueError(f"y must have one value a row of data, {rows}; got shape {shape}.")
    table.check_order("y", y)
    values = Table({"y": y}).raw("y")  # as a column is read: with its categories, or its mask
    name: Any = getattr(y, "name", None)
    known = pd.Series(np.asarray(table.raw(name))) if name in table else None
    # that column, which "." leaves out then, in the order that its categories have in y
    if known is None or not known.equals(pd.Series(np.asarray(values))):
        name = "y" if not isinstance(name, str) or not name or name in table else name
        while name in table:
            name += "_"
    return table.beside({name: values}), name


def same_values(table: Table, first: Column, second: Column) -> bool:
    """True if two columns hold the same in every row."""
    return pd.Series(table.values(first)).equals(pd.Series(table.values(second)))


# --- formulas ------------------------------------------------------------------------------------


def needs_table(terms: Terms) -> bool:
    """True if terms read lags, transform columns or stand for others: it needs rows in memory."""
    return any(isinstance(t, (Transformed, AllColumns, Lag)) for t in terms)


def with_variables(terms: Terms, table: Callable[[], Table]) -> Terms:
    """With columns that stand alone as lines or factors, by their types."""
    if not any(isinstance(t, Variable) for t in terms):
        return terms
    rows = table()
    return terms.of(
        t.resolved(rows.is_levels(t.column)) if isinstance(t, Variable) else t for t in terms
    )


def expand_formula(request: Request, table: Table) -> Terms:
    """The terms, with ``.`` as the columns that it stands for."""
    terms = request.terms
    if not any(isinstance(t, AllColumns) for t in terms):
        return terms
    others = [*request.response_columns, *(name for name, _ in request.numeric)]
    result: list[Term] = []
    for term in terms:
        if not isinstance(term, AllColumns):
            result.append(term)
            continue
        taken = [*others, *term.without]
        taken += columns_of(t for t in terms if t.parameter == term.parameter)
        taken = variables_of(taken)
        names = {table.name(c) for c in taken}
        rest = [name for name in table.names if name not in names]
        for name in rest:
            if same_values(table, name, request.response):
                raise ValueError(
                    f"'.' takes in column {name!r}, which is the response in every row; take it "
                    f"away, . - {name}, or name the response in the formula."
                )
            one = factor(name) if table.is_levels(name) else linear(name)
            result.append(dataclasses.replace(one, parameter=term.parameter))
    return terms.of(result)


def design_columns(terms: Terms, table: Table) -> tuple[Terms, Table, Design | None]:
    """A formula that transforms columns as lines of new columns, and the table with these."""
    own = next((t for t in terms if isinstance(t, Transformed)), None)
    if own is None:
        return terms, table, None
    if own.parameter:
        raise ValueError(
            f"{own.text}: columns are not transformed in terms of one parameter; make them in the "
            "data."
        )
    constant = "" not in terms.without or terms.carrier("") is not None
    design = Design.learn(own.text, table, constant)
    lines = [linear(name) for name in design.names if linear(name) not in tuple(terms)]
    plain: list[Term] = [t for t in terms if not isinstance(t, Transformed)]
    return terms.of([*plain, *lines]), design.extended(table), design


def as_written(terms: Terms, design: Design | None) -> Terms:
    """The terms of a fit with their formula in the place of the columns that it made."""
    if design is None:
        return terms
    plain: list[Term] = [
        t for t in terms if not (isinstance(t, Linear) and t.column in design.names)
    ]
    return terms.of([*plain, Transformed(design.text)])


# --- rows as encoded ------------------------------------------------------------------------------


_MAX_LABELS = 10_000  # labels of a response beyond which it holds none


class EncodedRows:
    """The rows of a fit, which ``encode`` gives with so many bins of a column of many values."""

    # None is for a bin a value; without encode bins stay as they are.

    def __init__(
        self, encode: Callable[[int | None], Data] | None, dropped: int, data: Data | None = None
    ) -> None:
        if data is None:
            assert encode is not None
            data = encode(NUM_BINS)
        self.data, self.dropped, self.encode = data, dropped, encode

    def rebin(self, number: int | None) -> None:
        """Make so many bins of a column that has many values; one for each with None."""
        assert self.encode is not None
        del self.data  # two sets of codes are not needed at once
        self.data = self.encode(number)


@dataclasses.dataclass(frozen=True)
class Reading:
    """The rows of a fit, and what its columns are."""

    rows: EncodedRows
    request: Request  # with terms of columns as they are, without formulas of the data
    table: Table  # has the kinds of all columns, and their levels
    encoder: Encoder  # how columns become X
    levels: Levels | None  # the response's labels, where it has any
    fills: tuple[Fill, ...] = ()  # what stands in for missing values
    design: Design | None = None  # the columns that a formula makes of others
    given: Table | None = None  # the data, where they are a table in memory
    complete: Table | None = None  # its rows that lack no value


def read(source: Any, request: Request, needs: str) -> Reading:
    """Up to 65 536 rows as numbers in memory; of more of them codes and a sample, by two passes."""
    if not isinstance(source, Table):
        if needs_table(request.terms):
            raise ValueError(
                "a formula that transforms columns, or has '.' or lag(), needs a table in memory; "
                "make the columns where the blocks are made, and name them."
            )
        blocks = read_in_blocks(source, request)
        summary = summarise_columns(request, blocks)
        if isinstance(summary, ColumnSummary):
            if needs:
                raise ValueError(f"{needs} {IN_MEMORY}")
            return read_in_codes(request, blocks, summary, summary.dropped)
        source = summary
    return read_table(source, request, bool(needs))


def read_table(given: Table, request: Request, as_numbers: bool) -> Reading:
    """As :func:`read`, of a table in memory."""
    request = dataclasses.replace(request, terms=expand_formula(request, given))
    if any(elements_of(term, given) for term in request.terms):
        as_numbers = True
        if request.missing == "impute":
            raise ValueError(
                "missing='impute' fills in no arrays and lags; fill the column in, or take "
                "missing='drop'."
            )
    complete, dropped, fills = complete_table(given, request)
    terms, table, design = design_columns(request.terms, complete)
    request = dataclasses.replace(request, terms=terms, missing="error")
    if design is not None:  # of which new columns may lack values
        complete_table(table, request)
    if not as_numbers and given.counted(request.counting).num_rows > bins.KEPT_ROWS:
        blocks = read_in_blocks(table, request)
        summary = summarise_columns(request, blocks, gather=False)
        assert isinstance(summary, ColumnSummary)
        result = read_in_codes(request, blocks, summary, dropped)
        return dataclasses.replace(result, fills=fills, design=design)
    encoder = learn_encoder(terms, request.numeric, table)
    X = encoder.encode(table)
    if request.weights is not None:
        w = X[:, encoder.index(request.weights, "number")]
        check_weights(request.weights, w.min(), f" in row {table.place(w.argmin())}")
    response = request.encoded(table, request.labels(table))
    encode = functools.partial(HeldData.of, X, response.Y, encoder, request.weights)
    rows, levels = EncodedRows(encode, dropped), response.levels
    return Reading(rows, request, table, encoder, levels, fills, design, given, complete)


def read_in_codes(
    request: Request,
    blocks: Blocks,
    summary: ColumnSummary,
    dropped: int,
    share: Share | None = None,
    communicator: Communicator = ALONE,
    total: int | None = None,
) -> Reading:
    """The rows in codes, or this process's share of ``total``, by a second pass over blocks."""
    check_summary(request, summary)
    levels = summary.labels(request)
    here = share or Share(summary.summary.number, 0, summary.dropped)

    def encode(number: int | None) -> CodedData:
        # of finer bins there is a fit to be lost
        timed = request if number == NUM_BINS else dataclasses.replace(request, budget=None)
        encodings: list[Encoding] = []

        def totals() -> Totals:
            encodings.append(_encoded(timed, blocks, summary, levels, here, number))
            return encodings[0].totals()

        every = functools.reduce(Totals.merged, communicator.together(totals))
        return encodings[0].done(every, communicator, total)

    rows = EncodedRows(encode, dropped)
    return Reading(rows, request, summary.table, summary.encoder, levels)


IN_MEMORY = (
    "needs all rows in memory as numbers, which data in blocks are not; pass a table in memory "
    "(for a Parquet file pandas.read_parquet(path))."
)


# --- checks --------------------------------------------------------------------------------------


def check_weights(name: Column, least: float, where: str = "") -> None:
    """Raise ValueError if the ``least`` of a column of weights is negative."""
    if least < 0.0:
        raise ValueError(f"weights {name!r} must not be negative; got {least:g}{where}.")


def check_enough_rows(number: int, request: Request) -> None:
    """Raise ValueError if fewer than two rows count."""
    if number < 2:
        names = " and ".join(map(repr, request.counting))
        counted = f" in which {names} is not zero" if names else ""
        raise ValueError(f"data has {number} row(s){counted}; a fit needs at least 2.")


def _check_response_is_no_term(request: Request, table: Table | None) -> None:
    read = variables_of(columns_of(request.terms))
    read = read if table is None else [table.name(c) for c in read]
    surv = request.censoring
    names = [request.response] if surv is None else [*surv.columns]
    if surv is not None and surv.third is not None:
        names.remove(surv.first)  # when a row enters is known beforehand
    for name in names:
        if (name if table is None else table.name(name)) in read:
            raise ValueError(f"the response {name!r} is also in a term; drop that term.")


def check_summary(request: Request, summary: ColumnSummary) -> None:
    """Raise ValueError if the first pass shows that no such model can be fitted."""
    _check_response_is_no_term(request, None)
    check_enough_rows(summary.summary.number, request)
    if request.weights is not None:
        place = summary.numbers.index((request.weights, "number"))
        check_weights(request.weights, summary.summary.least[place])


# --- tables --------------------------------------------------------------------------------------


def complete_table(table: Table, request: Request) -> tuple[Table, int, tuple[Fill, ...]]:
    """Complete rows that count, how many were dropped, and what the inputs were filled with."""
    table = table.counted(request.counting)
    _check_response_is_no_term(request, table)
    fills: tuple[Fill, ...] = ()
    if request.missing == "impute":
        keys = [key for term in request.terms for key in keys_of(term, table)]
        levels = [table.name(name) for name, kind in keys if kind == "level"]
        fills = learn_fills(table, variables_of(columns_of(request.terms)), levels)
        table = filled(table, fills)
    check_enough_rows(table.num_rows, request)
    holes = Holes()
    bad = holes.add(table, request.columns_needed)
    holes.check(request.missing)
    return (table.rows(~bad) if holes.incomplete else table), holes.incomplete, fills


def first_rows(source: Any, request: Request) -> Table:
    """The first rows of a source, whose columns have the types of all."""
    if isinstance(source, Table):
        return source
    rows: list[Table] = []
    empty: set[Any] = set()  # columns of which none of these has a value, that tells a type
    for block in read_in_blocks(source, request):
        lacks = {name for name in block.names if block.missing(name).all()}
        if not rows or empty - lacks:
            empty = empty & lacks if rows else lacks
            rows.append(block)
        if not empty:
            break
    if not rows:
        raise ValueError("data has 0 row(s); a fit needs at least 2.")
    return concatenated(rows)


def check_roles(request: Request, source: Any) -> None:
    """Raise ValueError if a number is given for a column of what is no covariate."""
    roles = [("offset", c) for c in request.offset]
    for argument, column in (*roles, ("weights", request.weights), ("trials", request.trials)):
        if isinstance(column, int):
            check_no_place(argument, column, first_rows(source, request).names)


def with_trials(
    request: Request,
    source: Any,
    gathered: Callable[[Callable[[], set[str]]], Iterable[set[str]]] = lambda here: [here()],
) -> Request:
    """The request with the family and the columns of a binomial response without trials."""
    # Weights are the trials of proportions; zeros and ones, truth values and labels are
    # Bernoulli's.
    family, weights = request.family, request.weights
    if not isinstance(family, Binomial) or request.trials is not None:
        return request
    if not family.needs_trials and weights is None:
        return request  # shares of no trials
    seen = set[str]().union(*gathered(lambda: _sizes(source, request)))
    if "counts" in seen:
        return request  # to which trials are missing
    family = family.without_trials("fractions" in seen, weights, str(request.response))
    if "fractions" in seen:
        request = dataclasses.replace(request, trials=weights, weights=None)
    return dataclasses.replace(request, family=family)


def _sizes(source: Any, request: Request) -> set[str]:
    """Kinds of numbers in a response: fractions, and numbers that are neither these nor 0 nor 1."""
    result: set[str] = set()
    columns = [request.response, *request.counting]
    named = all(isinstance(c, str) for c in columns)
    for table in blocks_of(source, columns if named else None, BLOCK, request.counting):
        if table.levels(request.response) is not None:
            break  # labels, whatever they are called
        response = pd.Series(table.values(request.response))
        y = pd.to_numeric(response, errors="coerce").to_numpy(float)
        inside = (y > 0.0) & (y < 1.0)
        result |= {"fractions"} if inside.any() else set()
        result |= {"counts"} if np.any((y < 0.0) | (y > 1.0)) else set()
    return result


# --- first pass: kinds, levels, ranges and quantiles of columns ----------------------------------


def read_in_blocks(source: Any, request: Request) -> Blocks:
    """The columns of a source that a fit reads."""
    columns = request.columns_read
    # the place of a named column is known among all of them only
    named = all(isinstance(c, str) for c in columns)
    return blocks_of(source, columns if named else None, BLOCK, request.counting)


@dataclasses.dataclass(frozen=True)
class ColumnSummary:
    """Summary of each column from the first pass."""

    # a table that has every level and label that occurs, and of columns of numbers nothing but
    # their kind
    table: Table
    encoder: Encoder  # how columns become X
    summary: Summary  # of the columns of numbers
    numbers: tuple[Key, ...]  # which they are, in the summary's order
    dropped: int  # rows left out for missing values

    def labels(self, request: Request) -> Levels | None:
        if not request.family.labelled:
            return None
        return request.encoded(self.table, request.labels(self.table)).levels

    def place(self, column: int) -> int | None:
        """Place of a column of X in the summary; None for columns of levels."""
        key = list(self.encoder.columns)[column]
        return self.numbers.index(key) if key in self.numbers else None


def summarise_columns(
    request: Request, blocks: Blocks, gather: bool = True
) -> ColumnSummary | Table:
    """Read a table once; with ``gather`` one that has few rows is kept."""
    few: list[Table] | None = [] if gather else None

    def take(block: Table, seen: int) -> bool:
        nonlocal few
        if few is not None:
            few = [*few, block] if seen + block.num_rows <= bins.KEPT_ROWS else None
        return few is None or request.missing != "impute"

    result, holes = partial_summary(request, blocks, take=take)
    if few is not None:
        if not few:
            check_enough_rows(0, request)
        return concatenated(few)
    if request.missing == "impute":
        raise ValueError(
            "missing='impute' needs medians of all rows, which data in blocks do not give; fill "
            "the values in where the blocks are made, or take missing='drop'."
        )
    holes.check(request.missing)
    assert result is not None
    return result.whole(request, holes.incomplete)


def partial_summary(
    request: Request,
    blocks: Blocks,
    start: int = 0,
    take: Callable[[Table, int], bool] = lambda block, seen: True,
) -> tuple[PartialSummary | None, Holes]:
    """Summary of blocks' complete rows; None without any. ``take`` says which blocks count."""
    result: PartialSummary | None = None

    def encode(block: Table) -> AnyNDArray:
        nonlocal result
        result = PartialSummary(request, block, start) if result is None else result
        return result.encode(block)

    def add(X: AnyNDArray) -> None:
        assert result is not None
        result.add(X)

    holes = each_complete(request, blocks, "reading, pass 1 of 2", encode, add, take=take)
    return result, holes


def each_complete(
    request: Request,
    blocks: Blocks,
    what: str,
    encode: Callable[[Table], T],
    add: Callable[[T], None],
    total: int | None = None,
    take: Callable[[Table, int], bool] = lambda block, seen: True,
) -> Holes:
    """Encode and add the complete rows of each block; errors say where in the data they are."""
    holes, columns = Holes(), request.columns_needed

    def encoded() -> Iterator[tuple[int, int, T]]:
        for block in reading(blocks, what, request, total):
            start, number = holes.num_rows, block.num_rows
            if not take(block, start):
                holes.num_rows += number
                continue
            with located(start, number):
                bad = holes.add(block, columns)
                block = block.rows(~bad) if bad.any() else block
                result = [encode(block)] if block.num_rows else []
            for part in result:
                yield start, number, part

    for start, number, part in ahead(encoded()):
        with located(start, number):
            add(part)
    return holes


def reading(
    blocks: Blocks, what: str, request: Request, total: int | None = None
) -> Iterator[Table]:
    """The blocks, with a bar that counts their rows."""
    total = blocks.num_rows if total is None else total
    seen = 0
    with progress_bar(what, " rows", request.progress, total, unit_scale=True) as bar:
        for block in blocks:
            if request.budget is not None and request.budget.spent:
                of = "" if total is None else f" of {total:,}"
                raise TimeoutError(
                    f"max_seconds={request.budget.max_seconds:g} was used up {what}, after "
                    f"{seen:,}{of} rows; nothing was fitted. Give the fit more time, or fewer rows "
                    "or columns."
                )
            yield block
            seen += block.num_rows
            bar.update(block.num_rows)


class PartialSummary:
    """Summary of blocks of rows; those of parts of the rows merge."""

    def __init__(self, request: Request, block: Table, start: int = 0) -> None:
        readers: dict[Key, NumericColumn] = {}
        levels: dict[Column, Occurring] = {}
        for term in request.terms:
            if elements_of(term, block):
                raise ValueError(f"{term.label} is a sum over arrays, which {IN_MEMORY}")
            for name, kind in keys_of(term, block):
                if kind == "level":
                    levels.setdefault(name, Occurring(name))
                else:
                    readers.setdefault((name, kind), numeric_column(block, name, term))
        for name, use in request.numeric:
            readers.setdefault((name, "number"), NumericColumn(name, use))
        if request.family.labelled:
            levels.setdefault(request.response, Occurring(request.response))
        self.numbers, self._readers, self._levels = list(readers), readers, levels
        self._response, self._start = request.response, start
        self.summary: Summary | None = None

    def encode(self, block: Table) -> AnyNDArray:
        """The numbers [n, D] of a block's complete rows, whose levels are taken."""
        for column in self._levels.values():
            column.add(block)
            if column.name == self._response and len(column) > _MAX_LABELS:
                raise ValueError(
                    f"the response {self._response!r} has more than {_MAX_LABELS} labels; is it a "
                    "number? Take another family."
                )
        X = np.zeros((block.num_rows, len(self._readers)), order="F")
        for i, reader in enumerate(self._readers.values()):
            X[:, i] = reader.encode(block)
        return X

    def add(self, X: AnyNDArray) -> None:
        start = self._start + (0 if self.summary is None else self.summary.number)
        part = summarise(X, start, self.summary)
        self.summary = part if self.summary is None else self.summary.merged(part)

    @property
    def kinds(self) -> dict[Column, tuple[str, ...]]:
        """As what each column is read."""
        result: dict[Column, tuple[str, ...]] = {}
        levels = ((n, "categories" if c.stated else "levels") for n, c in self._levels.items())
        for name, kind in [*levels, *((n, f"{k}s") for n, k in self.numbers)]:
            result[name] = (*result.get(name, ()), kind)
        return result

    def merged(self, other: PartialSummary) -> PartialSummary:
        both = copy.copy(self)
        both._levels = {n: c.merged(other._levels[n]) for n, c in self._levels.items()}
        parts = [f.summary for f in (self, other) if f.summary is not None]
        both.summary = parts[0].merged(parts[1]) if len(parts) == 2 else parts[0]
        return both

    def whole(self, request: Request, dropped: int) -> ColumnSummary:
        """Summary of each column, and the encoder that follows from it."""
        assert self.summary is not None
        length = max([1, *(len(column) for column in self._levels.values())])
        columns: dict[Any, Any] = {  # of a column that is read both ways its levels count
            name: reader.shown(np.zeros(length)) for (name, _), reader in self._readers.items()
        }
        columns |= {name: column.column(length) for name, column in self._levels.items()}
        columns.setdefault(self._response, np.zeros(length))
        table = Table(columns)
        encoder = learn_encoder(request.terms, request.numeric, table)
        return ColumnSummary(table, encoder, self.summary, tuple(self.numbers), dropped)


# --- second pass: codes of bins ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Share:
    """Share of all rows that is read here."""

    number: int  # of complete rows
    start: int = 0  # the number of the first one among all complete ones
    dropped: int = 0  # rows here that were left out for missing values


def _encoded(
    request: Request,
    blocks: Blocks,
    result: ColumnSummary,
    levels: Levels | None,
    share: Share,
    number: int | None,
) -> Encoding:
    """Read a share of the rows a second time."""
    assert number is not None  # rows in codes have no bin a value
    encoding = Encoding(request, result, number, share.number, share.start)
    total, seen = share.number, 0

    def encode(block: Table) -> tuple[AnyNDArray, ...]:
        nonlocal seen
        seen += block.num_rows
        if seen > total:
            return ()
        return result.encoder.encode(block, by_column=True), request.encoded(block, levels).Y

    def add(parts: tuple[AnyNDArray, ...]) -> None:
        if parts:
            encoding.add(*parts)

    expected = total + share.dropped
    holes = each_complete(
        request, blocks, "reading, pass 2 of 2", encode, add, expected, lambda *_: seen <= total
    )
    if seen != total or holes.incomplete != share.dropped:
        more = "more than that" if seen > total else f"{seen} and {holes.incomplete}"
        raise ValueError(
            f"data had {total} complete rows and {share.dropped} others when it was first read, "
            f"and {more} at the second; data must give the same rows each time."
        )
    return encoding


@dataclasses.dataclass(frozen=True)
class Totals:
    """Totals that determine the bins of coded rows; those of parts of the rows merge."""

    sums: dict[tuple[int, ...], BinSums]  # what is in joint bins, by their columns
    # the rows' weight in each cell of every column that is read, by its place
    masses: dict[int, AnyNDArray]
    # as `CodedColumns` has them
    ranges: dict[tuple[int, int | None], tuple[AnyNDArray, AnyNDArray]]

    def merged(self, other: Totals) -> Totals:
        return Totals(
            {places: own.merged(other.sums[places]) for places, own in self.sums.items()},
            {place: own + other.masses[place] for place, own in self.masses.items()},
            {
                key: (np.minimum(a, other.ranges[key][0]), np.maximum(b, other.ranges[key][1]))
                for key, (a, b) in self.ranges.items()
            },
        )


class Encoding:
    """Takes rows as they come."""

    def __init__(
        self, request: Request, result: ColumnSummary, number: int, total: int, start: int = 0
    ) -> None:
        self._columns, self._number, self._total = result, number, total
        encoder, weights = result.encoder, request.weights
        self._weights = None if weights is None else encoder.index(weights, "number")
        self._joint: set[tuple[int, ...]] = set()  # columns of joint bins
        ranges: set[tuple[int, int | None]] = set()  # columns, and those whose levels split them
        used: set[int] = set()
        held = {encoder.index(name, "number") for name, _ in request.numeric}
        for term in request.terms:
            keys = keys_of(term, result.table)
            places = [encoder.index(*key) for key in keys]
            over = places[: len(term.columns)]
            self._joint.add(tuple(over))
            ranges |= {(place, None) for place in places}
            used |= set(places)
            if term.by is not None and keys[-1][1] == "number":
                held.add(places[-1])
            elif term.by is not None:
                self._joint.add((places[-1],))
                ranges |= {(place, places[-1]) for place in over}
        if isinstance(request.family, Custom):  # which may read any column
            held = set(range(encoder.width))
        self._coders = {places: Coder(self._grid(places), total) for places in self._joint}
        for place in used:  # of columns that are in joint bins alone no code is kept
            if (place,) not in self._coders:
                self._coders[place,] = Coder(self._grid((place,)), total, keep=False)
        self._masses = {p: np.zeros(self._coders[p,].grid.number) for p in used}
        self._held = {place: Store((total,)) for place in held}
        self._ranges = {}
        for key in ranges:
            number = 1 if key[1] is None else self._num_levels(key[1])
            self._ranges[key] = np.full(number, np.inf), np.full(number, -np.inf)
        self._halvings = result.summary.sample.halvings
        self._kept: list[tuple[AnyNDArray, AnyNDArray, AnyNDArray]] = []
        self._Y: Store | None = None
        self._start, self._filled = start, 0

    def _grid(self, places: tuple[int, ...]) -> Grid:
        own = margin_bins(len(places), self._number, self._columns.summary.number)
        margins = []
        for place in places:
            column = self._columns.place(place)
            if column is not None:
                margins.append(ColumnGrid.of(self._columns.summary, column, own))
            else:
                margins.append(ColumnGrid.levels(self._num_levels(place)))
        return Grid(tuple(margins))

    def _num_levels(self, place: int) -> int:
        column = self._columns.encoder.readers[place]
        assert isinstance(column, LevelColumn)
        return len(column.levels)

    def add(self, X: AnyNDArray, Y: AnyNDArray) -> None:
        """The rows that come next, [n, D] and [n, K]."""
        start, self._filled = self._filled, self._filled + len(X)
        w = None if self._weights is None else X[:, self._weights]

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
        sums = {places: coder.sums() for places, coder in self._coders.items()}
        return Totals(sums, self._masses, self._ranges)

    def done(self, totals: Totals, communicator: Communicator, total: int | None) -> CodedData:
        """These rows in codes, and the sample of all processes' rows."""
        assert self._Y is not None
        held = {place: store.done() for place, store in self._held.items()}
        weights = None if self._weights is None else held[self._weights]
        coded = {places: self._coders[places].bins(totals.sums[places]) for places in self._joint}
        # of no column, the intercept's, there is one bin
        coded[()] = Bins(
            np.zeros(self._total, dtype=np.uint8), np.zeros((1, 0)), True, np.array([self._total])
        )
        inputs = Inputs(self._total, self._columns.encoder.width, held)
        columns = CodedColumns(inputs, coded, totals.ranges, weights, communicator)
        marginals: dict[int, Marginal] = {}
        for place in sorted(self._masses):
            sums = totals.sums[place,]
            points = self._coders[place,].grid.points(sums)[:, 0]
            marginals[place] = points, totals.masses[place][sums.cells]
        indices, X, Y = (np.concatenate(parts) for parts in zip(*self._kept))
        sample = communicator.gathered((indices + self._start, X, Y))
        indices, X, Y = (np.concatenate(parts) for parts in zip(*sample))
        responses = Stored(self._Y.done().raw, communicator)
        return CodedData(X, Y, columns, responses, marginals, indices, self._start, total)
