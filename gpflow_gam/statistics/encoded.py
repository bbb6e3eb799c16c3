"""Rows of some components as codes of bins, and what multiplies them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import lapack

from ..kernels.shapes import Values
from ..threads import each
from . import costs
from .components import RowComponent

Codes = list[AnyNDArray]
Multipliers = list[AnyNDArray | None]


def codes_of(components: Sequence[RowComponent], at: slice) -> Codes:
    """The bins of some rows, one array a component."""
    return [c.bins.codes[at].astype(np.int32) for c in components]


def multipliers_of(components: Sequence[RowComponent], at: slice) -> Multipliers:
    """What multiplies the components at some rows."""
    return [None if c.multiplier is None else c.multiplier[at] for c in components]


def times(x: AnyNDArray, *multipliers: AnyNDArray | None) -> AnyNDArray:
    """The product of ``x`` with what there is of multipliers."""
    for m in multipliers:
        if m is not None:
            x = x * m
    return x


def features_at_bins(
    components: Sequence[RowComponent], values: Values, roots: Sequence[AnyNDArray]
) -> list[tuple[AnyNDArray, AnyNDArray]]:
    """Features [M, G] and prior variances [G] of each component at its bins."""
    found: dict[int, tuple[AnyNDArray, AnyNDArray]] = {}

    def evaluate(c: int) -> None:
        _, K, diagonal = components[c].table.matrices(values)
        phi, _ = lapack.dtrtrs(roots[c], np.asarray_chkfinite(K), lower=1)
        found[c] = phi, diagonal

    entries = [c.bins.number * len(root) for c, root in zip(components, roots)]
    # the largest runs beside all others at best
    shared = (sum(entries) - max(entries)) / len(entries)
    each(evaluate, range(len(components)), shared * costs.FEATURE)
    return [found[c] for c in range(len(components))]
