"""The rows of a GAM's data as its components see them."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...kernels import AdditiveKernel
from ...statistics import Bins, ColumnBins, RowComponent, Rows, row_component
from ...statistics.parallel import each
from ..components import Component

_OFF = -1.0
"""What no level's code is."""


def make_rows(
    components: tuple[Component, ...],
    kernel: AdditiveKernel,
    bins: ColumnBins,
    Y: AnyNDArray,
    mean: AnyNDArray,
) -> Rows:
    """
    The rows as bins of the components' columns.

    :param components: in the kernel's order.
    :param kernel: of the model, where its parameters start.
    :param bins: of X.
    :param Y: [N, K].
    :param mean: the mean function at the rows, [N, L].
    """
    found: dict[int, RowComponent] = {}

    def make(i: int) -> None:
        found[i] = _row_component(components[i], kernel, bins)

    for component in components:
        bins(tuple(m.column for m in component.margins))  # once, before threads ask for it
    each(make, range(len(components)))
    return Rows([found[i] for i in range(len(components))], bins.X, Y, mean)


def _row_component(component: Component, kernel: AdditiveKernel, bins: ColumnBins) -> RowComponent:
    X, width = bins.X, bins.X.shape[1]
    columns = tuple(m.column for m in component.margins)
    own = bins(columns)
    points = component.full(own.points, width)
    codes, multiplier = own.codes, None
    by = component.by
    if by is not None and by.code is None:
        multiplier = np.ascontiguousarray(X[:, by.column])
    elif by is not None:
        # rows of other levels share a bin in which the component is zero
        off = points[:1].copy()
        off[0, by.column] = _OFF
        kind = np.uint8 if len(points) < 2**8 else np.uint16 if len(points) < 2**16 else np.int32
        codes = np.where(X[:, by.column] == by.code, codes, len(points)).astype(kind)
        points = np.concatenate([points, off])
    Z = component.full(np.array(component.inducing).reshape(len(component.inducing), -1), width)
    found = Bins(codes, points, own.exact)
    return row_component(kernel[component.name], Z, found, len(columns), multiplier)
