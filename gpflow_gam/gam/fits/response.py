"""The response: its name, from what users pass, and its values as likelihoods take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..frames import Table, in_blocks
from ..terms import Column, ResponseSpec, Surv, as_column
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


def with_response(data: Any, y: Any, stated: ResponseSpec | None) -> tuple[Any, ResponseSpec]:
    """
    Data that hold the response, and what it is called there.

    :param data: a table, or a source of blocks, which comes back as it is.
    :param y: the response's name, or its values; None for the one that is stated.
    :param stated: what the formula calls it.
    :raises ValueError: there is none, there is no such column, there are too few or too many
        values, or values of pandas whose labels are those of data in another order.
    """
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
    _check_order(data, y)
    values = Table({"y": y}).raw("y")  # as a column is read: with its categories, or its mask
    name: Any = getattr(y, "name", None)
    if name in table and _equal(table.raw(name), values):
        # that column, which "." leaves out then, in the order that its categories have in y
        return Table({**{n: table.raw(n) for n in table.names}, name: values}), name
    name = "y" if not isinstance(name, str) or not name or name in table else name
    while name in table:
        name += "_"
    return Table({**{n: table.raw(n) for n in table.names}, name: values}), name


def _check_order(data: Any, y: Any) -> None:
    """
    :raises ValueError: y has the labels of data's rows in another order, and would be taken as it
        stands.
    """
    columns = list(data.values()) if isinstance(data, Mapping) else [data]
    given = [c.index for c in [*columns, y] if isinstance(getattr(c, "index", None), pd.Index)]
    if len(given) < 2 or given[0].equals(given[-1]):
        return
    rows, own = given[0], given[-1]
    if rows.is_unique and own.is_unique and len(rows) == len(own) and rows.isin(own).all():
        at = int(np.flatnonzero(rows != own)[0])
        raise ValueError(
            f"y has the rows of data in another order: in place {at} data has the row labelled "
            f"{rows[at]!r}, and y that of {own[at]!r}. Pass y.loc[data.index], or, where they go "
            "together as they stand, y.to_numpy()."
        )


def _equal(a: Any, b: Any) -> bool:
    return pd.Series(np.asarray(a)).equals(pd.Series(np.asarray(b)))
