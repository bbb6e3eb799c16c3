"""The second pass over a table in blocks: rows as codes of bins, and what else is kept of them."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray

from ...optimizers import TimeBudget
from ...optimizers.binned.bins import (
    NUM_BINS,
    Bins,
    BinSums,
    Coder,
    ColumnGrid,
    Grid,
    kept,
    margin_bins,
)
from ...optimizers.binned.columns import CodedColumns
from ...storage import Inputs, Store
from ...threads import each
from ..components import keys_of
from ..families import Custom, Family, Levels
from ..frames import Blocks, Holes, LevelColumn
from ..terms import Terms
from .fitting import Roles
from .stating import encoded_response
from .surveying import Survey, columns_needed, located, reading
from .whole import Marginal, Whole

Sample = tuple[AnyNDArray, AnyNDArray]
"""Rows of X [n, D] and Y [n, K] that are kept as they are."""


class Wanted:
    """
    Which columns of X are wanted in which form.

    :param terms: the terms.
    :param found: what the first pass found.
    :param roles: the columns that are no terms.
    :param family: the response's; one of the user's may read any column.
    """

    def __init__(self, terms: Terms, found: Survey, roles: Roles, family: Family) -> None:
        encoder = found.encoder
        self.joint: set[tuple[int, ...]] = set()
        self.reaches: set[tuple[int, int | None]] = set()
        self.used: set[int] = set()
        self.weights = None if roles.weights is None else encoder.index(roles.weights, "number")
        held = {encoder.index(name, "number") for name, _ in roles.numeric()}
        for term in terms:
            keys = keys_of(term, found.table)
            places = [encoder.index(*key) for key in keys]
            own = places[: len(term.columns)]
            self.joint.add(tuple(own))
            self.reaches |= {(place, None) for place in places}
            self.used |= set(places)
            if term.by is None:
                continue
            by = places[-1]
            if keys[-1][1] == "number":
                held.add(by)
            else:
                self.joint.add((by,))
                self.reaches |= {(place, by) for place in own}
        self.held = set(range(encoder.width)) if isinstance(family, Custom) else held


@dataclasses.dataclass(frozen=True)
class Share:
    """
    Which of all rows are read here.

    :param number: how many, all of them complete.
    :param start: the number of the first one among all complete ones.
    :param dropped: rows here that were left out for missing values.
    """

    number: int
    start: int = 0
    dropped: int = 0


def encode_rows(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    found: Survey,
    levels: Levels | None,
    number: int | None = None,
    progress: bool | None = None,
    budget: TimeBudget | None = None,
) -> tuple[Whole, Sample]:
    """
    Read a table a second time.

    :param blocks: the table.
    :param found: what the first pass found.
    :param levels: the response's labels, where it has any.
    :param number: of bins of a column that has many values.
    :param progress: whether a bar is drawn.
    :param budget: time that the fit may take.
    :return: all rows in codes, and the sample.
    :raises ValueError, TimeoutError: as :func:`encode_share`.
    """
    share = Share(found.summary.number, 0, found.dropped)
    return encode_share(
        terms, family, roles, blocks, found, levels, share, number, progress, budget
    ).done()


def encode_share(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    found: Survey,
    levels: Levels | None,
    share: Share,
    number: int | None = None,
    progress: bool | None = None,
    budget: TimeBudget | None = None,
) -> Encoding:
    """
    Read a share of the rows a second time.

    :param blocks: the share.
    :param found: what the first pass over all rows found.
    :param levels: the response's labels, where it has any.
    :param share: which rows they are.
    :param number: of bins of a column that has many values.
    :param progress: whether a bar is drawn.
    :param budget: time that the fit may take.
    :raises ValueError: a response that the family cannot have produced, naming its rows; or data
        that changed between the passes.
    :raises TimeoutError: time is up.
    """
    wanted = Wanted(terms, found, roles, family)
    encoding = Encoding(found, wanted, number or NUM_BINS, share.number, share.start)
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
            response = encoded_response(family, roles, block, levels)
            encoding.add(found.encoder.encode(block), response.Y)
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
    What settles the bins that rows have codes of; those of parts of the rows merge.

    :param sums: what is in joint bins, by their columns.
    :param masses: the rows' weight in each cell of every column that is read, by its place.
    :param reaches: as :class:`~gpflow_gam.statistics.CodedColumns` has them.
    """

    sums: dict[tuple[int, ...], BinSums]
    masses: dict[int, AnyNDArray]
    reaches: dict[tuple[int, int | None], tuple[AnyNDArray, AnyNDArray]]

    def merged(self, other: Totals) -> Totals:
        """Of the rows of both."""
        return Totals(
            {places: own.merged(other.sums[places]) for places, own in self.sums.items()},
            {place: own + other.masses[place] for place, own in self.masses.items()},
            {
                key: (np.minimum(a, other.reaches[key][0]), np.maximum(b, other.reaches[key][1]))
                for key, (a, b) in self.reaches.items()
            },
        )


class Encoding:
    """
    Takes rows as they come.

    :param found: what a first pass over all rows found.
    :param wanted: which columns in which form.
    :param number: of bins of a column that has many values.
    :param total: how many rows come here; by default all of them.
    :param start: the number of the first of them.
    """

    def __init__(
        self, found: Survey, wanted: Wanted, number: int, total: int | None = None, start: int = 0
    ) -> None:
        self._found, self._wanted, self._number = found, wanted, number
        self._total = total = found.summary.number if total is None else total
        self._coders = {places: Coder(self._grid(places), total) for places in wanted.joint}
        for place in wanted.used:  # of columns that are in joint bins alone no code is kept
            if (place,) not in self._coders:
                self._coders[place,] = Coder(self._grid((place,)), total, keep=False)
        self._masses = {p: np.zeros(self._coders[p,].grid.number) for p in wanted.used}
        self._held = {place: Store((total,)) for place in wanted.held}
        self._reaches = {key: self._reach(key[1]) for key in wanted.reaches}
        self._halvings = found.summary.sample.halvings
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

    def _reach(self, by: int | None) -> tuple[AnyNDArray, AnyNDArray]:
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
        for (place, by), (least, greatest) in self._reaches.items():
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
        """What settles the bins, of these rows."""
        sums = {places: coder.sums() for places, coder in self._coders.items()}
        return Totals(sums, self._masses, self._reaches)

    def done(self, totals: Totals | None = None) -> tuple[Whole, Sample]:
        """
        These rows in codes, and those of them that are in the sample.

        :param totals: of all rows, where there are others; of these rows by default.
        """
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
        columns = CodedColumns(inputs, coded, totals.reaches, weights)
        marginals: dict[int, Marginal] = {}
        for place in sorted(self._wanted.used):
            sums = totals.sums[place,]
            points = self._coders[place,].grid.points(sums)[:, 0]
            marginals[place] = points, totals.masses[place][sums.cells]
        indices, X, Y = (np.concatenate(parts) for parts in zip(*self._kept))
        return Whole(columns, self._Y.done(), marginals, indices), (X, Y)
