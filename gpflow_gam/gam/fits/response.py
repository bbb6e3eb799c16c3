"""The response: its name, from what users pass, and its values as likelihoods take them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pandas as pd

from ..families import Family, Levels, Response
from ..frames import NumericColumn, Table, in_blocks
from ..terms import Column, Stated, Surv


class Stating(Protocol):
    """What says which columns hold the response."""

    @property
    def response(self) -> Column:
        """The response, or the first column of a censored one."""

    @property
    def censoring(self) -> Surv | None:
        """Both columns of a censored one."""

    @property
    def trials(self) -> Column | None:
        """Of a binomial response."""


def response_columns(stating: Stating) -> list[Column]:
    """All columns that hold the response."""
    own = [stating.response] if stating.censoring is None else [*stating.censoring.columns]
    return own if stating.trials is None else [*own, stating.trials]


def complete_columns(stating: Stating) -> list[Column]:
    """Those of them that no row may lack."""
    own = [stating.response] if stating.censoring is None else [*stating.censoring.complete]
    return own if stating.trials is None else [*own, stating.trials]


def encoded_response(
    family: Family, stating: Stating, table: Table, levels: Levels | None
) -> Response:
    """
    The response of a table's rows.

    :param stating: says which columns hold it.
    :param levels: its labels, where they are known.
    :raises ValueError: values that the family cannot have produced, naming column and row.
    """
    values = table.values(stating.response)
    if stating.censoring is not None:
        if stating.trials is not None:
            raise ValueError("trials: a censored response (Surv) has none; leave trials out.")
        second = table.values(stating.censoring.second)
        return family.encode_censored(values, second, stating.censoring)
    trials = None
    if stating.trials is not None:
        trials = NumericColumn(stating.trials, "trials").encode(table)
    return family.encode(values, levels, trials=trials, name=str(stating.response))


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
    values = y if isinstance(y, pd.Series) else np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = np.asarray(values)[:, 0]
    if values.ndim != 1 or len(values) != table.num_rows:
        raise ValueError(
            f"y must have one value a row of data, {table.num_rows}; got shape {values.shape}."
        )
    name: Any = getattr(values, "name", None)
    name = "y" if not isinstance(name, str) or name in table else name
    while name in table:
        name += "_"
    return Table({**{n: table.raw(n) for n in table.names}, name: values}), name
