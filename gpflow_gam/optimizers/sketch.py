"""A few sums that tell one fit's data and model from another's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from gpflow.base import AnyNDArray

from ..statistics import Rows
from .checkpoint import Sketch

_DATA = 1e-9
"""Up to which share of a column's sizes sums over rows are equal on other machines."""
_MODEL = 1e-6
"""The same of what is learnt from data before the fit: where k-means ends, or a null model."""
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def sketch_of(rows: Rows, start: AnyNDArray) -> Sketch:
    """
    Of the rows, the components and where a fit starts.

    Each column is known by its sum, a sum with a weight that differs from row to row, and the sum
    of its absolute values, to which rounding is compared.

    :param rows: of the fit.
    :param start: coordinates of what is learnt.
    """
    columns = {"responses": rows.Y, "offsets": rows.mean, "inputs or weights": rows.X}
    found = {
        what: (_summed(values[at] for at in rows.blocks()), _DATA)
        for what, values in columns.items()
    }
    for i, c in enumerate(rows.components):
        codes = c.bins.codes
        found[f"values of component {i}"] = _summed(codes[at] for at in rows.blocks()), _DATA
        if c.multiplier is not None:
            by = c.multiplier
            found[f"multipliers of component {i}"] = _summed(by[at] for at in rows.blocks()), _DATA
        found[f"inducing inputs of component {i}"] = _summed([c.inducing]), _MODEL
    found["parameters at the start"] = _summed([start]), _MODEL
    return found


def _summed(blocks: Iterable[AnyNDArray]) -> AnyNDArray:
    """Sums over rows [N, ...] in blocks, [columns, 3]."""
    total, seen = np.zeros(()), 0
    for block in blocks:
        values = np.nan_to_num(np.asarray(block, np.float64)).reshape(len(block), -1)
        weights = np.modf(_GOLDEN * np.arange(seen, seen + len(values)))[0]
        sums = [values.sum(axis=0), weights @ values, np.abs(values).sum(axis=0)]
        total = total + np.stack(sums, axis=-1)
        seen += len(values)
    return total
