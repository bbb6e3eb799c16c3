"""The response: its name, from what users pass, and its values as likelihoods take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frames import Table, in_blocks
from ..terms import Column, Stated, Surv
from .blockwise import in_memory


def with_response_as(data: Any, y: Any, name: Column) -> Table:
    """
    Data in memory that hold the response under a name.

    :param data: a table, or a source of blocks.
    :param y: as for :func:`with_response`.
    :raises ValueError: as that function.
    """
    found, own = with_response(in_memory(data), y, name)
    assert not isinstance(own, Surv)  # of which callers say that it is of no use to them
    table = Table(found)
    if own == name:
        return table
    columns = {n: v for n, v in table.columns().items() if n != own}
    return Table({**columns, name: table.raw(own)})


def with_response(data: Any, y: Any, stated: Stated | None) -> tuple[Any, Stated]:
    """
    Data that hold the response, and what it is called there.

    :param data: a table, or a source of blocks, which comes back as it is.
    :param y: the response's name, or its values; None for the one that is stated.
    :param stated: what the formula calls it.
    :raises ValueError: there is none, there is no such column, or there are too few or too many
        values.
    """
    y = stated if y is None else y
    if y is None:
        raise ValueError("y is missing: name the response's column, or pass its values.")
    named = isinstance(y, (str, int, Surv)) and not isinstance(y, bool)
    if in_blocks(data):
        if not named:
            raise ValueError(
                "y must name the response's column where data come in blocks; got values of type "
                f"{type(y).__name__}."
            )
        return data, y
    table = Table(data)
    if isinstance(y, Surv):
        for column in y.columns:
            table.raw(column)  # raises where there is none
        return table, y
    if named:
        table.raw(y)  # raises where there is none
        return table, y
    shape, rows = np.shape(y), table.num_rows
    if shape not in ((rows,), (rows, 1)):
        raise ValueError(f"y must have one value a row of data, {rows}; got shape {shape}.")
    values = Table({"y": y}).raw("y")  # as a column is read: with its categories, or its mask
    name: Any = getattr(y, "name", None)
    name = "y" if not isinstance(name, str) or not name or name in table else name
    while name in table:
        name += "_"
    return Table({**{n: table.raw(n) for n in table.names}, name: values}), name
