"""The first pass over a table in blocks: kinds, levels, ranges and quantiles of its columns."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...optimizers import TimeBudget
from ...optimizers.binned import bins
from ...optimizers.binned.bins import Summary, summarise
from ...optimizers.minimizers.tracker import progress_bar
from ..components import keys_of, learn_encoder
from ..families import Family
from ..frames import (
    Blocks,
    Encoder,
    Holes,
    Key,
    NumericColumn,
    Occurring,
    Table,
    concatenated,
    numeric_column,
)
from ..terms import Column, Terms, columns_of, variables_of
from .fitting import Roles, check_enough_rows
from .stating import complete_columns, response_columns

_MAX_LABELS = 10_000
"""Labels of a response beyond which it holds none."""


@dataclasses.dataclass(frozen=True)
class Survey:
    """
    What a first pass found.

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

    def place(self, column: int) -> int | None:
        """Where in the summary a column of X stands; None for columns of levels."""
        key = list(self.encoder.columns)[column]
        return self.numbers.index(key) if key in self.numbers else None


def columns_read(terms: Terms, roles: Roles) -> list[Column]:
    """The columns that a fit reads, each once."""
    return variables_of([*columns_of(terms), *response_columns(roles), *roles.others])


def columns_needed(terms: Terms, roles: Roles) -> list[Column]:
    """Those of them that no row may lack."""
    return variables_of([*columns_of(terms), *complete_columns(roles), *roles.others])


def survey(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    missing: str,
    progress: bool | None,
    gather: bool = True,
    budget: TimeBudget | None = None,
) -> Survey | Table:
    """
    Read a table once.

    :param blocks: the table.
    :param missing: ``"error"``, ``"drop"`` or ``"impute"``.
    :param progress: whether a bar is drawn.
    :param gather: whether at most 65 536 rows come back as a table.
    :param budget: time that the fit may take.
    :return: what was found, or the table.
    :raises ValueError: data that no such model can be fitted to, naming column and rows.
    :raises TimeoutError: time is up.
    """
    columns = columns_needed(terms, roles)
    holes = Holes()
    few: list[Table] | None = [] if gather else None
    found: Findings | None = None
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
            found = Findings(terms, family, roles, block) if found is None else found
            found.add(block)
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
    assert found is not None
    return found.survey(terms, roles, holes.incomplete)


def reading(
    blocks: Blocks,
    what: str,
    progress: bool | None,
    total: int | None = None,
    budget: TimeBudget | None = None,
) -> Iterator[Table]:
    """
    The blocks, with a bar that counts their rows.

    :param total: how many rows there are; by default what the blocks say.
    :param budget: time that the fit may take.
    :raises TimeoutError: time is up.
    """
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
    """
    :param what: is being done.
    :raises TimeoutError: time is up.
    """
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


class Findings:
    """
    What blocks have; those of parts of the rows merge.

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
        for name, use in roles.numeric():
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
        found: dict[Column, tuple[str, ...]] = {}
        for name, kind in [*((name, "level") for name in self._levels), *self.numbers]:
            found[name] = (*found.get(name, ()), f"{kind}s")
        return found

    def merged(self, other: Findings) -> Findings:
        """Those of both parts of the rows; none comes after."""
        both = copy.copy(self)
        both._levels = {n: c.merged(other._levels[n]) for n, c in self._levels.items()}
        parts = [f.summary for f in (self, other) if f.summary is not None]
        both.summary = parts[0].merged(parts[1]) if len(parts) == 2 else parts[0]
        return both

    def survey(self, terms: Terms, roles: Roles, dropped: int) -> Survey:
        """
        What follows from them.

        :param dropped: rows left out for missing values.
        """
        assert self.summary is not None
        table = self._table()
        encoder = learn_encoder(terms, roles.numeric(), table)
        return Survey(table, encoder, self.summary, tuple(self.numbers), dropped)

    def _table(self) -> Table:
        """See :class:`Survey`."""
        length = max([1, *(len(column) for column in self._levels.values())])
        columns: dict[Any, Any] = {  # of a column that is read both ways its levels count
            name: reader.shown(np.zeros(length)) for (name, _), reader in self._readers.items()
        }
        columns |= {name: column.column(length) for name, column in self._levels.items()}
        columns.setdefault(self._response, np.zeros(length))
        return Table(columns)
