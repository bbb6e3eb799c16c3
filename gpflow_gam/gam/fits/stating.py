"""Which columns hold the response, and their values as likelihoods take them."""

from __future__ import annotations

from typing import Protocol

from ..families import Family, Levels, Response
from ..frames import NumericColumn, Table
from ..terms import Column, Surv


class Counting(Protocol):
    """What says how often rows count."""

    @property
    def weights(self) -> Column | None:
        """How often each row counts."""

    @property
    def trials(self) -> Column | None:
        """Of a binomial response."""


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


def counting_columns(stating: Counting) -> list[Column]:
    """Columns of which zero says that a row does not count: weights and trials."""
    return [column for column in (stating.weights, stating.trials) if column is not None]


def response_columns(stating: Stating) -> list[Column]:
    """All columns that hold the response."""
    own = [stating.response] if stating.censoring is None else [*stating.censoring.columns]
    return own if stating.trials is None else [*own, stating.trials]


def complete_columns(stating: Stating) -> list[Column]:
    """Those of them that no row may lack."""
    own = [stating.response] if stating.censoring is None else [*stating.censoring.complete]
    return own if stating.trials is None else [*own, stating.trials]


def stated_labels(family: Family, stating: Stating, table: Table) -> Levels | None:
    """The labels that a table states for the response, in order; None for those that it holds."""
    return family.labels_of(table.levels(stating.response), table.ordered(stating.response))


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
