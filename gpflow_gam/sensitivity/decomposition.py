"""
The functional ANOVA decomposition of features.

Under independent inputs every square-integrable function is a sum over sets of columns,

    f(x) = sum_v f_v(x_v),    f_v = sum_{w <= v} (-1)^{|v| - |w|} E[f | x_w],

whose terms have zero mean in each of their columns and are orthogonal (Hoeffding 1948; Sobol'
1993; Owen 2013). A component f_c = phi_c' V is linear in V, so its features are decomposed once and
every draw of V with them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import numpy as np
from gpflow.base import AnyNDArray

from ..posteriors import InducingMoments
from .grid import Columns, ProductGrid, component_columns


@dataclasses.dataclass(frozen=True)
class Part:
    """
    What components contribute to the effect of one set of columns.

    :param places: of their inducing values, [P_v].
    :param features: their decomposed features on the set's grid, [P_v, Q].
    :param weights: of the grid, [Q].
    :param residual: the variance that inducing values leave open, expected a posteriori, [L].
    """

    places: AnyNDArray
    features: AnyNDArray
    weights: AnyNDArray
    residual: AnyNDArray

    def second_moments(self) -> AnyNDArray:
        """E[phi phi'], [P_v, P_v]: Var[f_v] = V' E[phi phi'] V, and what is left open."""
        moments: AnyNDArray = (self.features * self.weights) @ self.features.T
        return moments


_NEGLIGIBLE = 1e-10
"""Where features count as zero: what rounding leaves of the lower terms of a centred component."""


def grid_features(
    moments: InducingMoments, grid: ProductGrid
) -> dict[str, tuple[AnyNDArray, AnyNDArray]]:
    """Features [M_c, Q_c] and prior variances [Q_c] of components at all nodes."""
    reads = component_columns(moments.kernel).items()
    width = moments.kernel.num_columns
    return moments.features_at({name: grid.points(c, width) for name, c in reads if c})


def decompose(
    moments: InducingMoments,
    grid: ProductGrid,
    every: Mapping[str, tuple[AnyNDArray, AnyNDArray]] | None = None,
) -> dict[Columns, Part]:
    """
    Every set of columns that some component has an effect of, single columns first.

    What inducing values leave open is counted with all columns of its component; where it is much,
    :func:`~gpflow_gam.sensitivity.settling.settled` moments leave less.

    :param moments: the posterior.
    :param grid: nodes of the inputs.
    :param every: what :func:`grid_features` gives for these nodes, of any weights.
    """
    found: dict[Columns, list[tuple[slice, AnyNDArray, AnyNDArray]]] = {}
    reads = component_columns(moments.kernel)
    for name, (features, prior) in (every or grid_features(moments, grid)).items():
        columns = reads[name]
        open_ = float(
            np.maximum(prior - np.sum(features**2, axis=0), 0.0) @ grid.joint_weights(columns)
        )
        parts = split(
            features.reshape(len(features), *grid.shape(columns)),
            [grid.weights(c) for c in columns],
        )
        least = _NEGLIGIBLE * np.abs(features).max(initial=0.0)
        for axes, values in parts.items():
            whole = len(axes) == len(columns)
            if whole or (axes and np.abs(values).max(initial=0.0) > least):
                subset = tuple(columns[i] for i in axes)
                left = (open_ if subset == columns else 0.0) * moments.entering([name])[0]
                found.setdefault(subset, []).append(
                    (moments.block(name), values.reshape(len(features), -1), left)
                )
    return {
        subset: Part(
            np.concatenate([np.arange(block.start, block.stop) for block, _, _ in found[subset]]),
            np.concatenate([values for _, values, _ in found[subset]]),
            grid.joint_weights(subset),
            np.sum([left for _, _, left in found[subset]], axis=0),
        )
        for subset in sorted(found, key=lambda s: (len(s), s))
    }


def split(values: AnyNDArray, weights: list[AnyNDArray]) -> dict[tuple[int, ...], AnyNDArray]:
    """
    The ANOVA terms of functions on a tensor grid, by the axes that they vary along.

    :param values: [M, Q_1, ..., Q_d].
    :param weights: of the nodes of each axis.
    :return: for each set of axes [M, Q_i for i in it].
    """
    terms: dict[tuple[int, ...], AnyNDArray] = {(): values}
    for axis, w in enumerate(weights):
        later: dict[tuple[int, ...], AnyNDArray] = {}
        for axes, term in terms.items():
            place = 1 + len(axes)  # axes before this one are kept or gone
            mean = np.tensordot(term, w, axes=(place, 0))
            later[axes] = mean
            later[(*axes, axis)] = term - np.expand_dims(mean, place)
        terms = later
    return terms


def effect_features(
    moments: InducingMoments, grid: ProductGrid, subset: Columns, X: AnyNDArray
) -> dict[str, AnyNDArray]:
    """
    Features of the effect of a set of columns at points, [M_c, N], by component.

    :param subset: the set v.
    :param X: rows [N, D], of which the columns of the set matter.
    """
    found = {}
    for name, columns in component_columns(moments.kernel).items():
        if set(subset) <= set(columns):
            total: AnyNDArray = np.zeros((0, 0))
            for size in range(len(subset) + 1):
                for kept in itertools.combinations(subset, size):
                    sign = (-1.0) ** (len(subset) - size)
                    mean = sign * _conditional_mean(moments, grid, name, columns, kept, X)
                    total = mean if total.size == 0 else total + mean
            found[name] = total
    return found


def _conditional_mean(
    moments: InducingMoments,
    grid: ProductGrid,
    name: str,
    columns: Columns,
    kept: Columns,
    X: AnyNDArray,
) -> AnyNDArray:
    """E[phi_c | x_kept] at each row, [M_c, N]."""
    width = moments.kernel.num_columns
    others = tuple(c for c in columns if c not in kept)
    nodes, weights = grid.points(others, width), grid.joint_weights(others)
    if not kept:
        mean = moments.features(name, nodes) @ weights
        return np.repeat(mean[:, None], len(X), axis=1)
    rows = np.repeat(nodes[None], len(X), axis=0)
    for c in kept:
        rows[:, :, c] = X[:, c, None]
    features = moments.features(name, rows.reshape(-1, width))
    means: AnyNDArray = features.reshape(len(features), len(X), -1) @ weights
    return means
