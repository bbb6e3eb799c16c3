"""Answers about rows of which some lack a value: NaN at those."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..frames import Holes, Table, filled
from ..terms import Column
from .specification import Specification


def at_complete_rows(
    spec: Specification,
    table: Table,
    columns: Iterable[Column],
    answer: Callable[[Table], Any],
    axis: int = 0,
) -> Any:
    """
    What ``answer`` says of the complete rows, and NaN (None among classes) of the others.

    :param table: the rows.
    :param columns: those that are needed.
    :param answer: gives an array or a frame with the rows along ``axis``, or a tuple of them.
    """
    lacking = Holes().add(filled(table, spec.fills), columns)
    if not lacking.any():
        return answer(table)
    return _spread(answer(table.rows(~lacking)), np.flatnonzero(~lacking), len(lacking), axis)


def _spread(found: Any, places: AnyNDArray, number: int, axis: int) -> Any:
    """Rows at their places among ``number``."""
    if isinstance(found, tuple):
        return tuple(_spread(part, places, number, axis) for part in found)
    if isinstance(found, pd.DataFrame):
        return found.set_axis(places).reindex(range(number))
    shape = list(found.shape)
    shape[axis] = number
    numeric = np.issubdtype(found.dtype, np.floating)
    whole: AnyNDArray = np.full(shape, np.nan if numeric else None, float if numeric else object)
    whole[(slice(None),) * axis + (places,)] = found
    return whole
