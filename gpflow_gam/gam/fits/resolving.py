"""Terms that data have to say more of: what a formula transforms, and everything else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pandas as pd

from ..frames import Design, Table, is_levels
from ..terms import (
    AllColumns,
    Column,
    Linear,
    Term,
    Terms,
    Transformed,
    Variable,
    columns_of,
    factor,
    linear,
    variables_of,
)
from .fitted import FittedGAM
from .fitting import Roles, complete_table
from .stating import response_columns


def unresolved(terms: Terms) -> bool:
    """Whether there are any."""
    return any(isinstance(t, (Transformed, AllColumns)) for t in terms)


def with_variables(terms: Terms, table: Callable[[], Table]) -> Terms:
    """
    With columns that stand alone as lines or factors, by their types.

    :param table: gives rows of the data.
    :raises ValueError: no such column.
    """
    if not any(isinstance(t, Variable) for t in terms):
        return terms
    rows = table()
    return terms.of(
        t.resolved(is_levels(rows, t.column)) if isinstance(t, Variable) else t for t in terms
    )


def fit_resolved(
    terms: Terms,
    roles: Roles,
    source: Any,
    missing: str,
    fit: Callable[[Terms, Table, str], FittedGAM],
) -> FittedGAM:
    """
    Fit terms after data have said what they are.

    :param source: a table in memory.
    :param fit: takes terms, a table and what becomes of missing values.
    :raises ValueError: data in blocks, or columns that the terms cannot be made of.
    """
    if not isinstance(source, Table):
        raise ValueError(
            "a formula that transforms columns, or has '.', needs a table in memory; make the "
            "columns where the blocks are made, and name them."
        )
    named = _everything(terms, roles, source)
    own = next((t for t in named if isinstance(t, Transformed)), None)
    if own is None:
        return fit(named, source, missing)
    if own.parameter:
        raise ValueError(
            f"{own.text}: columns are not transformed in terms of one parameter; make them in the "
            "data."
        )
    table, dropped, fills = complete_table(source, named, roles, missing)
    constant = "" not in named.without or named.carrier("") is not None
    design = Design.learn(own.text, table, constant)
    lines = [linear(name) for name in design.names if linear(name) not in tuple(named)]
    plain: list[Term] = [t for t in named if not isinstance(t, Transformed)]
    found = fit(terms.of([*plain, *lines]), design.extended(table), "error")
    spec = dataclasses.replace(found.spec, fills=fills, design=design)
    return dataclasses.replace(found, model=found.trained, spec=spec, dropped=dropped)


def as_written(terms: Terms, design: Design | None) -> Terms:
    """
    The terms of a fit with their formula in the place of the columns that it made.

    :param terms: of the fit.
    :param design: of its formula; None where it had none.
    """
    if design is None:
        return terms
    plain: list[Term] = [
        t for t in terms if not (isinstance(t, Linear) and t.column in design.names)
    ]
    return terms.of([*plain, Transformed(design.text)])


def _everything(terms: Terms, roles: Roles, table: Table) -> Terms:
    """With ``.`` as the columns that it stands for."""
    if not any(isinstance(t, AllColumns) for t in terms):
        return terms
    others: list[Column] = [*response_columns(roles), *(name for name, _ in roles.numeric())]
    found: list[Term] = []
    for term in terms:
        if not isinstance(term, AllColumns):
            found.append(term)
            continue
        taken = [*others, *term.without]
        taken += columns_of(t for t in terms if t.parameter == term.parameter)
        taken = variables_of(taken)
        names = {table.name(c) for c in taken}
        rest = [name for name in table.names if name not in names]
        _check_not_the_response(rest, roles, table)
        own = [factor(name) if is_levels(table, name) else linear(name) for name in rest]
        found += [dataclasses.replace(t, parameter=term.parameter) for t in own]
    return terms.of(found)


def _check_not_the_response(names: list[Column], roles: Roles, table: Table) -> None:
    """
    :raises ValueError: a column that would explain the response by itself.
    """
    response = pd.Series(table.values(roles.response))
    for name in names:
        if pd.Series(table.values(name)).equals(response):
            raise ValueError(
                f"'.' takes in column {name!r}, which is the response in every row; take it away, "
                f". - {name}, or name the response in the formula."
            )
