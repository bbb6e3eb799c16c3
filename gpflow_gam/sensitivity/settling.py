"""Components that inducing values leave open where inputs are taken as independent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..posteriors import AugmentedMoments, InducingMoments
from .grid import ProductGrid, component_columns

_OPEN = 1e-3
"""Share of a component's variance that may be left open."""
_CANDIDATES = 1000
"""Points of a grid at which more may be settled."""


def settled(
    moments: InducingMoments, grid: ProductGrid, others: Sequence[InducingMoments] = ()
) -> tuple[InducingMoments, list[InducingMoments]]:
    """
    Moments with inducing inputs over the whole grid, where they leave much of it open.

    Joint smooths have theirs where rows are. Where columns depend on each other most of the grid
    of independent ones has none, and what is left open there is a function as any other: parts of
    it are main effects, and past a link it cannot be added up afterwards.

    :param moments: of a posterior.
    :param grid: nodes of the inputs.
    :param others: at other hyperparameters, which are given the same inputs.
    :return: of the posterior and of the others; the same objects where nothing is left open.
    """
    points = _open_points(moments, grid)
    if not points:
        return moments, list(others)
    made = {id(m): AugmentedMoments(m, points) for m in (moments, *others)}
    return made[id(moments)], [made[id(m)] for m in others]


def _open_points(moments: InducingMoments, grid: ProductGrid) -> dict[str, AnyNDArray]:
    found, width = {}, moments.kernel.num_columns
    for name, columns in component_columns(moments.kernel).items():
        if not columns:
            continue
        coarse = grid.coarser(columns, _CANDIDATES)
        X, w = coarse.points(columns, width), coarse.joint_weights(columns)
        phi, prior = moments.features_and_prior(name, moments.tangents(name, X))
        left = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)
        if w @ left > _OPEN * (w @ prior):
            pivots = moments.residual_pivots(name, X)
            if pivots:
                found[name] = X[pivots]
    return found
