"""What chooses the smoothness of a fit, and the rows that are left out together for it."""

from __future__ import annotations

from typing import Any

from ...optimizers.binned.cavities import Neighbourhoods
from ..frames import Table
from ..terms import as_column

CRITERIA = ("elbo", "ncv")
"""What ``criterion`` may be."""


def check_criterion(variational: str | None, engine: str, options: dict[str, Any]) -> None:
    """
    :param variational: the family of q(U); None for the one that suits.
    :param engine: of the fit.
    :param options: of the fit.
    :raises ValueError: an unknown criterion, or one that does not go with the other options.
    """
    criterion = options.get("criterion", "elbo")
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}; got {criterion!r}.")
    if criterion == "elbo":
        if options.get("groups") is not None:
            raise ValueError(
                "groups: the ELBO leaves no rows out; add criterion='ncv', or leave groups out."
            )
        return
    if engine != "variational":
        raise ValueError(needs_sites(f"engine={engine!r}"))
    if variational not in (None, "exact", "sites"):
        raise ValueError(needs_sites(f"variational={variational!r}"))
    if options.get("batch_size") is not None:
        raise ValueError(needs_sites(f"batch_size={options['batch_size']!r}"))


def needs_sites(what: str) -> str:
    """
    What is said where a fit has no sites.

    :param what: the argument that is the reason.
    """
    return (
        f"criterion='ncv' divides rows' sites out, which a fit with {what} does not keep; leave "
        "one of the two out."
    )


def neighbourhoods(groups: Any, given: Table, table: Table) -> Neighbourhoods:
    """
    The rows that are left out together.

    :param groups: a column's name, labels, or a neighbourhood for each row; None leaves every row
        out by itself.
    :param given: the user's table.
    :param table: its complete rows.
    :raises ValueError: naming the argument.
    """
    if groups is None:
        return Neighbourhoods.of_rows(table.num_rows)
    if as_column(groups) is not None:
        return Neighbourhoods.of_labels(table.values(groups))
    return Neighbourhoods.of(groups, given.num_rows, table.origin)
