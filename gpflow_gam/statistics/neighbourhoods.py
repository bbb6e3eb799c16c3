"""Which rows are left out together, and which are predicted without them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

_ENTRIES = 2**21
"""Numbers of a kind that a batch of folds holds at a time."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """
    Some folds, padded to equal numbers of rows.

    :param out: rows left out, [F, k].
    :param left: which of these are rows, and no padding, [F, k].
    :param predicted: rows predicted, [F, m].
    :param asked: which of these are rows, [F, m].
    """

    out: AnyNDArray
    left: AnyNDArray
    predicted: AnyNDArray
    asked: AnyNDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """
    Folds: rows that are left out together, and the rows that are predicted without them.

    Every row is predicted in one fold, and is left out there itself (Wood 2024).

    :param out: rows left out, one array a fold.
    :param predicted: rows predicted, one array a fold.
    :param number: N.
    """

    out: tuple[AnyNDArray, ...]
    predicted: tuple[AnyNDArray, ...]
    number: int

    def __len__(self) -> int:
        """The number of folds."""
        return len(self.out)

    @classmethod
    def of_labels(cls, labels: Any) -> Neighbourhoods:
        """
        Groups of rows, each left out and predicted as a whole.

        :param labels: one a row, [N].
        :raises ValueError: labels are missing, or all the same.
        """
        codes, levels = pd.factorize(pd.Series(labels), use_na_sentinel=True)
        missing = int(np.count_nonzero(codes < 0))
        if missing:
            raise ValueError(
                f"groups lack a label in {missing} of {len(codes)} rows; give these rows one, or "
                "leave them out of the fit."
            )
        if len(levels) < 2:
            raise ValueError(
                "groups has one label for all rows: without its group nothing is left to predict "
                "a row from; give at least two."
            )
        order = np.argsort(codes, kind="stable")
        parts = tuple(np.split(order, np.cumsum(np.bincount(codes))[:-1]))
        return cls(parts, parts, len(codes))

    @classmethod
    def of_lists(cls, lists: Sequence[Any], kept: AnyNDArray | None = None) -> Neighbourhoods:
        """
        A neighbourhood for each row, which is left out where the row is predicted.

        :param lists: indices of rows, one array a row; a row is its own neighbour whether its list
            has it or not.
        :param kept: which of the rows there are, ascending, [n]; all by default.
        :raises ValueError: indices that are none.
        """
        number = len(lists)
        place = np.full(number, -1)
        rows = np.arange(number) if kept is None else kept
        place[rows] = np.arange(len(rows))
        out = []
        for n in rows:
            own = np.asarray(lists[n])
            if own.ndim != 1 or (own.size and own.dtype.kind not in "iu"):
                raise ValueError(
                    f"groups: the neighbourhood of row {n} must be indices of rows; got "
                    f"{own.dtype} of shape {own.shape}."
                )
            own = own.astype(np.int64)
            if own.size and not (own.min() >= 0 and own.max() < number):
                raise ValueError(
                    f"groups: the neighbourhood of row {n} has indices {own.min()} to {own.max()}; "
                    f"rows are counted from 0 to {number - 1}."
                )
            found = place[np.union1d(own, [n])]
            out.append(found[found >= 0])
        if all(len(one) == len(rows) for one in out):
            raise ValueError(
                "groups: every neighbourhood has all rows, so that nothing is left to predict "
                "from; give smaller ones."
            )
        return cls(tuple(out), tuple(np.arange(len(rows))[:, None]), len(rows))

    @classmethod
    def of(cls, groups: Any, number: int, kept: AnyNDArray | None = None) -> Neighbourhoods:
        """
        From what users give.

        :param groups: labels, one a row, or indices of rows, an array (or list, range) a row.
        :param number: of rows that there were when ``groups`` was made.
        :param kept: which of these there are now, ascending, [n]; all by default.
        :raises ValueError: not one a row, or as :meth:`of_labels` and :meth:`of_lists`.
        :raises TypeError: nothing of the kind.
        """
        if isinstance(groups, (dict, set)) or not hasattr(groups, "__len__"):
            raise TypeError(
                "groups must be a column, one label a row, or an array of row indices for each "
                f"row; got {type(groups).__name__}."
            )
        if isinstance(groups, np.ndarray) and groups.ndim > 1:
            raise ValueError(f"groups must have one label a row; got shape {groups.shape}.")
        if len(groups) != number:
            raise ValueError(
                f"groups must have one entry for each of {number} rows; got {len(groups)}."
            )
        if _are_lists(groups):
            return cls.of_lists(list(groups), kept)
        labels = pd.Series(_listed(groups))
        return cls.of_labels(labels if kept is None else labels.iloc[kept])

    @classmethod
    def of_rows(cls, number: int) -> Neighbourhoods:
        """
        Every row by itself.

        :param number: N, how many rows there are.
        """
        parts = tuple(np.arange(number)[:, None])
        return cls(parts, parts, number)

    def batches(self, width: int) -> Iterator[Batch]:
        """
        All folds, those of like size together.

        :param width: P, of what is held of each row.
        """
        sizes = np.array([len(o) + len(p) for o, p in zip(self.out, self.predicted)])
        order = np.argsort(sizes, kind="stable")
        start = 0
        while start < len(order):
            # sizes ascend: the last one of a batch is its largest
            stop = start + 1
            while stop < len(order):
                if (stop + 1 - start) * int(sizes[order[stop]]) * width > _ENTRIES:
                    break
                stop += 1
            which = order[start:stop]
            out, left = _padded([self.out[i] for i in which])
            predicted, asked = _padded([self.predicted[i] for i in which])
            yield Batch(out, left, predicted, asked)
            start = stop

    @property
    def digest(self) -> str:
        """The same for the same folds."""
        found = hashlib.blake2b(digest_size=16)
        for part in (*self.out, *self.predicted):
            found.update(np.int64(len(part)).tobytes())
            found.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
        return found.hexdigest()


def _padded(parts: Sequence[AnyNDArray]) -> tuple[AnyNDArray, AnyNDArray]:
    """Arrays of indices as one, [F, k], and which of its entries are theirs."""
    most = max(len(part) for part in parts)
    indices = np.zeros((len(parts), most), dtype=np.int64)
    has = np.zeros((len(parts), most), dtype=bool)
    for row, own, part in zip(indices, has, parts):
        row[: len(part)] = part
        own[: len(part)] = True
    return indices, has


def _are_lists(groups: Any) -> bool:
    """Whether there is a list of rows for each row, rather than a label; a Series has labels."""
    kind = getattr(getattr(groups, "dtype", None), "kind", "O")
    if isinstance(groups, pd.Series) or kind != "O":
        return False
    return all(isinstance(g, (np.ndarray, list, tuple, range)) for g in groups)


def _listed(labels: Any) -> Any:
    """Labels as a Series takes them: tuples stay labels."""
    if isinstance(labels, (list, tuple)):
        held = np.empty(len(labels), dtype=object)
        held[:] = labels
        return held
    return labels if isinstance(labels, pd.Categorical) else np.asarray(labels)
