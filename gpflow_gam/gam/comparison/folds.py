"""Which rows of a fit are left out together."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...optimizers.binned.cavities import Neighbourhoods
from ..fits import FittedGAM
from ..fits.data import CodedData
from ..terms import Column, as_column


def folds_of(fit: FittedGAM, groups: Any) -> Neighbourhoods:
    """
    Neighbourhoods of a fit's rows.

    :param groups: a column that the model reads, labels [N], or an array of row indices for each
        row.
    :raises ValueError: naming the argument.
    """
    column = as_column(groups)
    if column is not None:
        return Neighbourhoods.of_labels(_labels(fit, column))
    number = fit.number
    if fit.dropped and hasattr(groups, "__len__") and len(groups) == number + fit.dropped:
        raise ValueError(
            f"groups must have one entry for each of the {number} rows that were fitted; got "
            f"{len(groups)}, with the {fit.dropped} that were left out for missing values. Leave "
            "them out here too."
        )
    return Neighbourhoods.of(groups, number)


def _labels(fit: FittedGAM, column: Column) -> Any:
    """A column of the data, as the fit holds it."""
    keys = list(fit.spec.encoder.columns)
    found = [i for i, (name, _) in enumerate(keys) if name == column]
    for place in found:
        if not isinstance(fit.data, CodedData):
            return fit.X[:, place]
        bins = fit.data.columns.coded.get((place,))
        if bins is not None and bins.exact:
            return bins.codes
    if found:
        raise ValueError(
            f"groups: of {column!r} the fit holds ranges of values alone, as there are many rows; "
            "pass the labels of all rows."
        )
    names = dict.fromkeys(str(name) for name, _ in keys)
    raise ValueError(
        f"groups: the fit holds no column {column!r}, which no term reads (there are "
        f"{', '.join(names)}); pass its values, as in groups=data[{column!r}]."
    )


def described(folds: Neighbourhoods | None) -> str:
    """What is left out at a time, in words."""
    if folds is None:
        return "one row at a time"
    sizes = np.array([len(part) for part in folds.out])
    if folds.out is folds.predicted:
        return f"{len(folds)} groups of {sizes.min()} to {sizes.max()} rows"
    return f"each row with its neighbourhood, {sizes.min()} to {sizes.max()} rows"
