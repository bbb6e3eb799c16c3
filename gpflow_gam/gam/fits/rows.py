"""The rows of a GAM's data as its components see them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ...kernels import AdditiveKernel
from ...optimizers.binned.bins import Bins, ColumnBins, code_type
from ...optimizers.binned.columns import Columns, HeldColumns
from ...optimizers.binned.components import RowComponent, row_component
from ...optimizers.binned.passes import Rows
from ...storage import RowArray
from ...threads import one_blas_thread
from ..components import Component

_OFF = -1.0
"""What no level's code is."""


@one_blas_thread()
def make_rows(
    components: tuple[Component, ...],
    kernel: AdditiveKernel,
    columns: Columns | ColumnBins,
    Y: RowArray,
    mean: RowArray,
    sample: tuple[AnyNDArray, AnyNDArray] | None = None,
    fine: tuple[str, ...] = (),
    known: Sequence[RowComponent] = (),
) -> Rows:
    """
    The rows as bins of the components' columns.

    :param components: in the kernel's order.
    :param kernel: of the model, where its parameters start.
    :param columns: of X, or the bins of X.
    :param Y: [N, K].
    :param mean: the mean function at the rows, [N, L].
    :param sample: as :class:`~gpflow_gam.statistics.Rows` takes it.
    :param fine: names of components whose nodes are for rougher functions than usual ones.
    :param known: what an earlier call made of the same components and rows.
    """
    held = HeldColumns(columns) if isinstance(columns, ColumnBins) else columns
    return Rows(row_components(components, kernel, held, fine, known), held.X, Y, mean, sample)


def row_components(
    components: tuple[Component, ...],
    kernel: AdditiveKernel,
    held: Columns,
    fine: tuple[str, ...] = (),
    known: Sequence[RowComponent] = (),
) -> list[RowComponent]:
    """
    The components as rows see them, in the kernel's order.

    :param kernel: of the model, where its parameters start.
    :param held: columns of X.
    :param fine: names of components whose nodes are for rougher functions than usual ones.
    :param known: what an earlier call made of the same components and rows.
    """
    # users may have given a kernel of their own other priors since
    found = {
        i: same.of_kernel(kernel[component.name])
        for i, (component, same) in enumerate(zip(components, known))
        if component.form != "own"
    }
    number = [i for i in range(len(components)) if i not in found]
    acting = {i: _acting(components[i], held) for i in number}
    totals = held.communicator.total([acting[i][0].mass() for i in number])
    for i, total in zip(number, totals):
        component, (bins, multiplier) = components[i], acting[i]
        Z = np.array(component.inducing).reshape(len(component.inducing), -1)
        own = tuple(m.column for m in component.margins)
        full = component.full(Z, held.width)
        outputs = component.predictors or None
        found[i] = row_component(
            kernel[component.name],
            full,
            bins,
            own,
            multiplier,
            total,
            outputs,
            component.name in fine,
        )
    return [found[i] for i in range(len(components))]


def _acting(component: Component, data: Columns) -> tuple[Bins, RowArray | None]:
    """The bins in which a component acts, points as rows of X, and what multiplies it."""
    columns, width = tuple(m.column for m in component.margins), data.width
    own = data.bins(columns)
    points = component.full(own.points, width)
    codes, multiplier = own.codes, None
    by = component.by
    if by is None:
        pass
    elif by.code is None:
        multiplier = data.values(by.column)
    else:
        # rows of other levels share a bin in which the component is zero
        off = points[:1].copy()
        off[0, by.column] = _OFF
        codes = np.empty(len(own.codes), dtype=code_type(len(points) + 1))
        for at, has in data.rows_at_level((by.column, by.code)):
            codes[at] = np.where(has, own.codes[at], len(points))
        points = np.concatenate([points, off])
    return Bins(codes, points, own.exact), multiplier
