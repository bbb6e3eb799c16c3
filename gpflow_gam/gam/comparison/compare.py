"""Several fits to the same rows, beside each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import pandas as pd
from tabulate import tabulate

from .leave_one_out import LeaveOneOut, check_same, total

_NOTE = (
    "elpd: log predictive density of {left_out}, and its difference from the best one's with the\n"
    "difference's standard error over rows. Fits whose difference is within two of these, or\n"
    "smaller than 4, predict about equally well. AIC: -2 log p(y | mean) + 2 (edf + parameters)."
)
_HEADER = ["", "elpd", "se", "difference", "its se", "edf", "AIC", "not trusted"]


class Fitted(Protocol):
    """A fit with leave-one-out scores, such as a fitted :class:`~gpflow_gam.GAM`."""

    def loo(self, groups: Any = None) -> LeaveOneOut:
        """Predictive densities of rows left out."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """
    Fits beside each other, the best first.

    :param table: a row a fit: ``elpd``, ``se``, ``difference`` to the best elpd (never positive),
        ``difference_se``, ``edf``, ``aic``, ``untrusted`` rows.
    :param left_out: what was left out at a time, in words.
    """

    table: pd.DataFrame
    left_out: str

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def _rows(self) -> list[list[str]]:
        return [
            [
                str(name),
                f"{row['elpd']:.2f}",
                f"{row['se']:.2f}",
                f"{row['difference']:.2f}",
                f"{row['difference_se']:.2f}",
                f"{row['edf']:.1f}",
                f"{row['aic']:.2f}",
                f"{int(row['untrusted']):,}",
            ]
            for name, row in self.table.iterrows()
        ]

    def _note(self) -> str:
        return _NOTE.format(left_out=self.left_out)

    def __str__(self) -> str:
        return tabulate(self._rows(), _HEADER, disable_numparse=True) + "\n\n" + self._note()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        body: str = tabulate(self._rows(), _HEADER, tablefmt="html", disable_numparse=True)
        return f"{body}<p>{self._note()}</p>"


def compare(*fits: Any, groups: Any = None) -> Comparison:
    """
    Compare fits to the same rows by how well they predict rows that are left out.

    Differences are taken row by row, so that what is hard for both does not count (Vehtari, Gelman
    & Gabry 2017). AIC, of the form that R's mgcv has, is for orientation.

    :param fits: fitted GAMs, what their ``loo`` gave, or one mapping of names to these; without
        names they are named by their terms.
    :param groups: rows that are left out together, as :meth:`gpflow_gam.GAM.loo` takes them, for
        those that are fits.
    :return: a table, the best first; prints as text, and as HTML in notebooks.
    :raises ValueError: fewer than two; or responses, rows, weights or what is left out differ; or
        one has densities and the other probabilities.
    :raises TypeError: what is no fit.
    """
    if len(fits) == 1 and isinstance(fits[0], Mapping):
        names, models = [str(name) for name in fits[0]], list(fits[0].values())
    else:
        names, models = [], list(fits)
    if len(models) < 2:
        raise ValueError(f"compare needs at least two fits; got {len(models)}.")
    result = [_left_out(model, groups) for model in models]
    names = names or _by_terms(result)
    check_same(names, [own.observed for own in result])
    return _compared(names, result)


def _left_out(model: Any, groups: Any) -> LeaveOneOut:
    if isinstance(model, LeaveOneOut):
        return model
    if not callable(getattr(model, "loo", None)):
        raise TypeError(
            "compare takes fitted GAMs or what their loo() gave, or a mapping of names to these; "
            f"got {type(model).__name__}."
        )
    fit: Fitted = model
    return fit.loo(groups)


def _by_terms(result: list[LeaveOneOut]) -> list[str]:
    """Names by terms, with families where these differ, and counted where that is not enough."""
    families = len({own.family for own in result}) > 1
    names = [f"{own.terms}, {own.family}" if families else own.terms for own in result]
    if len(set(names)) == len(names):
        return names
    return [f"{i}: {name}" for i, name in enumerate(names, 1)]


def _compared(names: list[str], result: list[LeaveOneOut]) -> Comparison:
    best = max(result, key=lambda own: own.elpd)
    rows = []
    for own in result:
        difference, se = (0.0, 0.0)
        if own is not best:
            difference, se = total(own.pointwise - best.pointwise, own.weights)
        rows.append(
            {
                "elpd": own.elpd,
                "se": own.se,
                "difference": difference,
                "difference_se": se,
                "edf": own.edf,
                "aic": own.aic,
                "untrusted": own.untrusted,
            }
        )
    table = pd.DataFrame(rows, index=pd.Index(names, name="fit"))
    return Comparison(table.sort_values("elpd", ascending=False), best.left_out)
