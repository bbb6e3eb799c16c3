"""The second pass over a table in blocks: rows as codes of bins, and what else is kept of them."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...statistics import Bins, CodedColumns, Coder, ColumnGrid, Grid, Inputs, Store
from ...statistics.grids import NUM_BINS, margin_bins
from ...statistics.parallel import each
from ...statistics.sampling import kept
from ..components import keys_of
from ..families import Custom, Family, Levels
from ..frames import Blocks, Holes, LevelColumn, NumericColumn
from ..terms import Terms
from .fitting import Roles
from .surveying import Survey, columns_read, located, reading
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


def encode_rows(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    found: Survey,
    levels: Levels | None,
    number: int | None = None,
    progress: bool | None = None,
) -> tuple[Whole, Sample]:
    """
    Read a table a second time.

    :param blocks: the table.
    :param found: what the first pass found.
    :param levels: the response's labels, where it has any.
    :param number: of bins of a column that has many values.
    :param progress: whether a bar is drawn.
    :return: all rows in codes, and the sample.
    :raises ValueError: a response that the family cannot have produced, naming its rows; or data
        that changed between the passes.
    """
    wanted = Wanted(terms, found, roles, family)
    encoding = _Encoding(found, wanted, number or NUM_BINS)
    columns, holes, total = columns_read(terms, roles), Holes(), found.summary.number
    trials = None if roles.trials is None else NumericColumn(roles.trials, "trials")
    for block in reading(blocks, "reading, pass 2 of 2", progress, total + found.dropped):
        with located(holes.num_rows, block.num_rows):
            bad = holes.add(block, columns)
            if bad.any():
                block = block.rows(~bad)
            if holes.num_rows - holes.incomplete > total:
                break
            if block.num_rows == 0:
                continue
            response = family.encode(
                block.values(roles.response),
                levels,
                trials=None if trials is None else trials.encode(block),
                name=str(roles.response),
            )
            encoding.add(found.encoder.encode(block), response.Y)
    seen = holes.num_rows - holes.incomplete
    if seen != total or holes.incomplete != found.dropped:
        more = "more than that" if seen > total else f"{seen} and {holes.incomplete}"
        raise ValueError(
            f"data had {total} complete rows and {found.dropped} others when it was first read, "
            f"and {more} at the second; data must give the same rows each time."
        )
    return encoding.done()


class _Encoding:
    """Takes rows as they come."""

    def __init__(self, found: Survey, wanted: Wanted, number: int) -> None:
        self._found, self._wanted = found, wanted
        self._number, total = number, found.summary.number
        self._total = total
        self._coders = {places: Coder(self._grid(places), total) for places in wanted.joint}
        single = {places[0] for places in wanted.joint if len(places) == 1}
        self._others = {
            place: Coder(self._grid((place,)), total, keep=False) for place in wanted.used - single
        }
        self._masses = {p: np.zeros(c.grid.number) for p, c in self._others.items()}
        self._held = {place: Store((total,)) for place in wanted.held}
        self._reaches = {key: self._reach(key[1]) for key in wanted.reaches}
        self._halvings = found.summary.sample.halvings
        self._kept: list[tuple[AnyNDArray, AnyNDArray, AnyNDArray]] = []
        self._Y: Store | None = None
        self._filled = 0

    def _grid(self, places: tuple[int, ...]) -> Grid:
        own = margin_bins(len(places), self._number)
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
        coders = list(self._coders.items())
        each(lambda item: item[1].add(X[:, list(item[0])]), coders)
        w = None if self._wanted.weights is None else X[:, self._wanted.weights]
        for place, coder in self._others.items():
            coder.add(X[:, [place]])
            cells = coder.grid.cells(X[:, [place]])
            self._masses[place] += np.bincount(cells, w, minlength=coder.grid.number)
        for place, store in self._held.items():
            store.put(start, X[:, place])
        if self._Y is None:
            self._Y = Store((self._total, Y.shape[1]))
        self._Y.put(start, Y)
        counts = slice(None) if w is None or np.all(w > 0.0) else w > 0.0
        for (place, by), (least, greatest) in self._reaches.items():
            values = X[counts, place]
            if by is not None:
                codes = X[counts, by].astype(np.intp)
                np.minimum.at(least, codes, values)
                np.maximum.at(greatest, codes, values)
            elif len(values):
                least[0] = min(least[0], values.min())
                greatest[0] = max(greatest[0], values.max())
        which = kept(start, self._filled, self._halvings)
        self._kept.append((which, X[which - start], Y[which - start]))

    def done(self) -> tuple[Whole, Sample]:
        """All rows, and the sample."""
        assert self._Y is not None
        held = {place: store.done() for place, store in self._held.items()}
        weights = None if self._wanted.weights is None else held[self._wanted.weights]
        coded = {places: coder.bins() for places, coder in self._coders.items()}
        # of no column, the intercept's, there is one bin
        coded[()] = Bins(np.zeros(self._total, dtype=np.uint8), np.zeros((1, 0)), True)
        columns = CodedColumns(
            Inputs(self._total, self._found.encoder.width, held), coded, self._reaches, weights
        )
        marginals: dict[int, Marginal] = {}
        for place in sorted(self._wanted.used):
            if place in self._others:
                coder = self._others[place]
                sums = coder.sums()
                marginals[place] = coder.grid.points(sums)[:, 0], self._masses[place][sums.cells]
            else:
                marginals[place] = coded[place,].points[:, 0], columns.mass((place,))
        indices, X, Y = (np.concatenate(parts) for parts in zip(*self._kept))
        return Whole(columns, self._Y.done(), marginals, indices), (X, Y)
