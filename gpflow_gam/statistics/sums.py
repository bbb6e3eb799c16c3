"""Sums of sites over rows, by pairs of bins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from gpflow.base import AnyNDArray

from ..threads import each
from . import costs
from .components import RowComponent
from .encoded import Codes, Multipliers, times
from .posterior import slices
from .pseudo_data import PseudoData


def sums_of(
    components: Sequence[RowComponent],
    matrices: Sequence[AnyNDArray | None],
    codes: Codes,
    multipliers: Multipliers,
    weight: AnyNDArray,
    shift: AnyNDArray,
) -> PseudoData:
    """
    Sums of sites over rows.

    :param matrices: what each component's bins are expressed in, [G, J]; None for themselves.
    """
    outputs = range(weight.shape[1])
    entered = [c.outputs_of(len(outputs)) for c in components]
    sizes = [c.bins.number if m is None else m.shape[1] for c, m in zip(components, matrices)]
    places = slices(sizes)
    total = sum(sizes)
    precision = np.zeros((len(outputs), total, total))
    shifts = np.zeros((total, len(outputs)))
    masses = [np.zeros((len(outputs), c.num_open)) for c in components]
    weights = [np.ascontiguousarray(weight[:, i]) for i in outputs]

    def single(c: int) -> None:
        component, matrix, at = components[c], matrices[c], places[c]
        code, m, number = codes[c], multipliers[c], components[c].bins.number
        for i in entered[c]:
            shifts[at, i] = _shift(component, matrix, code, m, shift[:, i])
            mass = np.bincount(code, times(weights[i], m, m), minlength=number)
            own = np.diag(mass) if matrix is None else (matrix.T * mass) @ matrix
            precision[i, at, at] = own
            masses[c][i] = np.bincount(component.open_bins, mass, minlength=component.num_open)

    def pair(which: tuple[int, int]) -> None:
        a, b = which
        shape = components[a].bins.number, components[b].bins.number
        for i in (i for i in entered[a] if i in entered[b]):
            w = times(weights[i], multipliers[a], multipliers[b])
            W = scipy.sparse.coo_matrix((w, (codes[a], codes[b])), shape=shape)
            # a table of few bins is filled fastest; of many, only the pairs that occur are kept
            table = W.toarray() if shape[0] * shape[1] <= costs.MAX_TABLE else W.tocsr()
            half = table if matrices[b] is None else table @ matrices[b]
            half = half.toarray() if scipy.sparse.issparse(half) else half
            left = matrices[a]
            block = half if left is None else left.T @ half
            precision[i, places[a], places[b]] = block
            precision[i, places[b], places[a]] = block.T

    number = range(len(components))
    pairs = list(itertools.combinations(number, 2))
    rows = len(codes[0])
    if 2.0 * rows * total**2 / costs.FLOPS < len(pairs) * (costs.CALL + rows * costs.LOOKUP):
        for c in number:
            single(c)
        rest = [
            times(_basis(m, c)[code].T, z)
            for m, c, code, z in zip(matrices, components, codes, multipliers)
        ]
        basis = np.concatenate(rest)
        for i in outputs:
            there = np.concatenate([np.full(s, i in e) for s, e in zip(sizes, entered)])
            own = basis if np.all(there) else basis * there[:, None]
            precision[i] = (own * weights[i]) @ own.T
        return PseudoData(precision, shifts, tuple(masses))
    tasks: list[tuple[Callable[[Any], None], Any]] = [(single, c) for c in number]
    tasks += [(pair, which) for which in pairs]
    each(lambda task: task[0](task[1]), tasks, costs.CALL + rows * costs.LOOKUP)
    return PseudoData(precision, shifts, tuple(masses))


def nothing(
    components: Sequence[RowComponent], matrices: Sequence[AnyNDArray | None], outputs: int
) -> PseudoData:
    """
    The sums of no rows.

    :param matrices: as :func:`sums_of` takes them.
    :param outputs: L.
    """
    total = sum(c.bins.number if m is None else m.shape[1] for c, m in zip(components, matrices))
    masses = tuple(np.zeros((outputs, c.num_open)) for c in components)
    return PseudoData(np.zeros((outputs, total, total)), np.zeros((total, outputs)), masses)


def shifts_of(
    components: Sequence[RowComponent],
    matrices: Sequence[AnyNDArray | None],
    codes: Codes,
    multipliers: Multipliers,
    shift: AnyNDArray,
) -> AnyNDArray:
    """
    Sums of shifts over rows, [R, L].

    :param matrices: what each component's bins are expressed in, [G, J]; None for themselves.
    :param shift: [n, L].
    """
    parts = []
    for own in zip(components, matrices, codes, multipliers):
        entered = own[0].outputs_of(shift.shape[1])
        sums = [_shift(*own, s if i in entered else 0.0 * s) for i, s in enumerate(shift.T)]
        parts.append(np.stack(sums, axis=1))
    return np.concatenate(parts)


def _shift(
    component: RowComponent,
    matrix: AnyNDArray | None,
    code: AnyNDArray,
    multiplier: AnyNDArray | None,
    shift: AnyNDArray,
) -> AnyNDArray:
    """One component's sum of one output's shifts [n], by its bins or what they are expressed in."""
    sums: AnyNDArray = np.bincount(code, times(shift, multiplier), component.bins.number)
    return sums if matrix is None else matrix.T @ sums


def _basis(matrix: AnyNDArray | None, component: RowComponent) -> AnyNDArray:
    """What a component's bins are expressed in, [G, J]."""
    return np.eye(component.bins.number) if matrix is None else matrix
