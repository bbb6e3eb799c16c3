"""Columns that data settle: the response, and the columns of formulas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..frames import Design, Table, blocks_of, concatenated, in_blocks, is_levels
from ..terms import (
    AllColumns,
    Column,
    Linear,
    ResponseSpec,
    Surv,
    Term,
    Terms,
    Transformed,
    Variable,
    as_column,
    columns_of,
    factor,
    linear,
    variables_of,
)
from .specification import Roles

_BLOCK = 2**17
"""Rows that are read at a time."""


def in_memory(data: Any) -> Table:
    """Data as one table, whatever they come in."""
    if not in_blocks(data):
        return Table(data)
    tables = list(blocks_of(data, None, _BLOCK))
    if not tables:
        raise ValueError("data has no rows.")
    return concatenated(tables)


# --- the response --------------------------------------------------------------------------------


def with_response_as(data: Any, y: Any, name: Column) -> Table:
    """Data in memory that hold the response under a name."""
    result, own = with_response(in_memory(data), y, name)
    assert not isinstance(own, Surv)  # of which callers say that it is of no use to them
    table = Table(result)
    if own == name:
        return table
    columns = {n: v for n, v in table.columns().items() if n != own}
    return Table({**columns, name: table.raw(own)})


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
    Raise ValueError if y has the labels of data's rows in another order, and would be taken as it
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


# --- formulas ------------------------------------------------------------------------------------


def needs_table(terms: Terms) -> bool:
    """True if terms transform columns or stand for all others, which needs rows in memory."""
    return any(isinstance(t, (Transformed, AllColumns)) for t in terms)


def with_variables(terms: Terms, table: Callable[[], Table]) -> Terms:
    """With columns that stand alone as lines or factors, by their types."""
    if not any(isinstance(t, Variable) for t in terms):
        return terms
    rows = table()
    return terms.of(
        t.resolved(is_levels(rows, t.column)) if isinstance(t, Variable) else t for t in terms
    )


def expand_formula(terms: Terms, roles: Roles, table: Table) -> Terms:
    """With ``.`` as the columns that it stands for."""
    if not any(isinstance(t, AllColumns) for t in terms):
        return terms
    others: list[Column] = [*roles.response_columns, *(name for name, _ in roles.numeric)]
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
        _check_not_the_response(rest, roles, table)
        own = [factor(name) if is_levels(table, name) else linear(name) for name in rest]
        result += [dataclasses.replace(t, parameter=term.parameter) for t in own]
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


def _check_not_the_response(names: list[Column], roles: Roles, table: Table) -> None:
    """Raise ValueError if a column is the response itself."""
    response = pd.Series(table.values(roles.response))
    for name in names:
        if pd.Series(table.values(name)).equals(response):
            raise ValueError(
                f"'.' takes in column {name!r}, which is the response in every row; take it away, "
                f". - {name}, or name the response in the formula."
            )
