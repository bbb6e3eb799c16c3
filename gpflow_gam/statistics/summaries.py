"""What is to be known of columns of numbers before they are binned; summaries of parts merge."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .sampling import RowSample

MAX_DISTINCT = 1024
"""Distinct values up to which each has a bin of its own, however many rows there are."""

Distinct = AnyNDArray | None
"""The distinct values of a column, ascending; None where there are more than 1024."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """
    Rows of D columns of numbers, summed up.

    :param number: N.
    :param least: [D].
    :param greatest: [D].
    :param distinct: one a column.
    :param sample: of whole rows, [n, D].
    """

    number: int
    least: AnyNDArray
    greatest: AnyNDArray
    distinct: tuple[Distinct, ...]
    sample: RowSample

    def merged(self, other: Summary) -> Summary:
        """
        The summary of the rows of both, of the same columns and different row numbers.

        :param other: of other rows.
        """
        return Summary(
            self.number + other.number,
            np.minimum(self.least, other.least),
            np.maximum(self.greatest, other.greatest),
            tuple(_union(a, b) for a, b in zip(self.distinct, other.distinct)),
            self.sample.merged(other.sample),
        )


def summarise(X: AnyNDArray, start: int = 0, before: Summary | None = None) -> Summary:
    """
    The summary of some rows.

    :param X: [n, D], finite, n at least 1.
    :param start: the first row's number in the whole.
    :param before: what the summary will be merged with: what that has settled is not looked at.
    """
    found: list[Distinct] = []
    for i, column in enumerate(X.T):
        settled = before is not None and before.distinct[i] is None
        found.append(None if settled else _distinct(column))
    halvings = 0 if before is None else before.sample.halvings
    return Summary(
        len(X),
        X.min(axis=0),
        X.max(axis=0),
        tuple(found),
        RowSample.of(X, start, halvings),
    )


def _distinct(column: AnyNDArray) -> Distinct:
    if len(pd.unique(column[:4096])) > MAX_DISTINCT:
        return None
    values = pd.unique(column)
    return np.sort(values) if len(values) <= MAX_DISTINCT else None


def _union(a: Distinct, b: Distinct) -> Distinct:
    if a is None or b is None:
        return None
    if len(a) == len(b) and np.array_equal(a, b):
        return a
    both = np.union1d(a, b)
    return both if len(both) <= MAX_DISTINCT else None
