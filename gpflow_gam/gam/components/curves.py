"""What data settle of a curve for each level."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...measures import bin_means
from ..frames import Table, is_levels
from ..terms import Column, FactorSmooth
from .component import Margin

NUM_INDUCING_EACH = 10
"""Inducing inputs of each level's curve."""
_ALL_INDUCING = 400
"""Of all levels together, unless there are so many that each would have fewer than the least."""
_LEAST_EACH = 4
_NODES = 200
"""Nodes on which all curves together average to zero, about."""


def factor_of(term: FactorSmooth, table: Table) -> Column:
    """
    Which of a term's two columns is the factor.

    :raises ValueError: both of them by their type.
    """
    own = [c for c in term.columns if is_levels(table, c)]
    if len(own) == 2:
        raise ValueError(
            f"{term.label}: bs={term.bs!r} takes a number and a factor; {own[0]!r} and {own[1]!r} "
            "are both of levels. For what two factors do together write te(), or one "
            "random_effect() of a column that has their combinations."
        )
    return own[0] if own else term.columns[-1]


def inducing_each(number: int) -> int:
    """How many inducing inputs each of so many levels has, unless told."""
    return max(min(NUM_INDUCING_EACH, _ALL_INDUCING // number), _LEAST_EACH)


def curve_inducing(
    term: FactorSmooth, margins: tuple[Margin, ...], points: AnyNDArray
) -> AnyNDArray:
    """
    Inducing inputs [M, 2]: quantiles of each level's own values, or, of deviations, of all.

    :param points: distinct rows of the two columns, [n, 2].
    """
    place = int(margins[0].kind == "levels")  # of the number
    x, codes = points[:, place], points[:, 1 - place]
    levels = np.unique(codes)
    each = term.k or inducing_each(len(levels))
    if term.bs == "sz":  # they sum to zero: the last level follows from the others
        shared = _quantiles(np.unique(x), each)
        parts = [(shared, level) for level in levels[:-1]]
    else:
        parts = [(_quantiles(np.unique(x[codes == level]), each), level) for level in levels]
    Z = np.concatenate([np.column_stack([own, np.full(len(own), c)]) for own, c in parts])
    return Z[:, ::-1] if place else Z


def curve_nodes(
    margins: tuple[Margin, ...], points: AnyNDArray, weights: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes [Q, 2] that stand for rows of a number and a factor, and their probabilities."""
    place = int(margins[0].kind == "levels")
    codes = points[:, 1 - place]
    levels = np.unique(codes)
    number = max(_NODES // len(levels), 2)
    nodes, masses = [], []
    for level in levels:
        own = codes == level
        order = np.argsort(points[own, place])
        x, w = points[own, place][order], weights[own][order]
        if len(x) > number:
            total = w.sum()
            x, w = bin_means(x, w, number)
            w = w * total
        node = np.full((len(x), 2), level)
        node[:, place] = x
        nodes.append(node)
        masses.append(w)
    mass = np.concatenate(masses)
    return np.concatenate(nodes), mass / mass.sum()


def _quantiles(values: AnyNDArray, number: int) -> AnyNDArray:
    """Even quantiles of distinct values, all of them where they are few."""
    if len(values) <= number:
        return values
    return np.asarray(np.quantile(values, np.linspace(0.0, 1.0, number)))
