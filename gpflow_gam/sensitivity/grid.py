"""Grids of nodes of independent inputs, and the functional ANOVA decomposition on them."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Combination, Kernel

from ..kernels import AdditiveKernel, ZeroMean, kernel_columns
from ..measures import Empirical, Measure
from ..posteriors import InducingMoments

Columns = tuple[int, ...]

MAX_POINTS = 120_000
"""Points of the grid of one component."""
_LEAST_NODES = 4


class ProductGrid:
    """Nodes of independent inputs, combined as components need them."""

    def __init__(self, measures: Mapping[int, Measure], subsets: Sequence[Columns]) -> None:
        self._nodes: dict[int, tuple[AnyNDArray, AnyNDArray]] = {}
        for column in sorted({c for subset in subsets for c in subset}):
            if column not in measures:
                raise ValueError(
                    f"column {column} has no measure; give measures={{{column}: ...}}, or data."
                )
            measure = measures[column]
            if measure.dimension != 1:
                raise ValueError(
                    f"the measure of column {column} is on {measure.dimension} columns; "
                    "independent inputs need one each."
                )
            widest = max(len(s) for s in subsets if column in s)
            number = int(MAX_POINTS ** (1.0 / widest) + 1e-9)
            nodes, weights = (np.asarray(a) for a in measure.thinned(number).nodes())
            if number < _LEAST_NODES < len(measure.nodes()[1]):
                raise ValueError(
                    f"a component reads {widest} columns, too many for a grid of nodes; split it "
                    "into components of fewer columns."
                )
            self._nodes[column] = nodes[:, 0], weights

    @property
    def all(self) -> Mapping[int, tuple[AnyNDArray, AnyNDArray]]:
        """Nodes [Q] and weights [Q] of every column."""
        return dict(self._nodes)

    def reweighted(self, weights: Mapping[int, AnyNDArray]) -> ProductGrid:
        """These nodes with other weights."""
        other = copy.copy(self)
        changed = {c: (self.nodes(c), w) for c, w in weights.items()}
        other._nodes = {**self._nodes, **changed}
        return other

    def coarser(self, columns: Columns, number: int) -> ProductGrid:
        """A grid of some of the nodes, at even quantiles of each column."""
        most = max(2, int(number ** (1.0 / max(len(columns), 1)) + 1e-9))
        other = copy.copy(self)
        other._nodes = dict(self._nodes)
        for column in columns:
            nodes, weights = self._nodes[column]
            if len(nodes) > most:
                order = np.argsort(nodes)
                below = np.cumsum(weights[order]) / np.sum(weights)
                at = np.searchsorted(below, (np.arange(most) + 0.5) / most)
                chosen, counts = np.unique(np.minimum(at, len(nodes) - 1), return_counts=True)
                other._nodes[column] = nodes[order[chosen]], counts / most
        return other

    def nodes(self, column: int) -> AnyNDArray:
        """Nodes [Q] of a column."""
        return self._nodes[column][0]

    def weights(self, column: int) -> AnyNDArray:
        """Weights [Q] of a column."""
        return self._nodes[column][1]

    def shape(self, columns: Columns) -> tuple[int, ...]:
        """Number of nodes of each column."""
        return tuple(len(self.weights(c)) for c in columns)

    def points(self, columns: Columns, width: int) -> AnyNDArray:
        """All combinations as rows of X [Q, width], the last column fastest; zero elsewhere."""
        X = np.zeros((int(np.prod(self.shape(columns))), width))
        mesh = np.meshgrid(*[self.nodes(c) for c in columns], indexing="ij")
        for column, values in zip(columns, mesh):
            X[:, column] = values.ravel()
        return X

    def joint_weights(self, columns: Columns) -> AnyNDArray:
        """The weight [Q] of each row of :meth:`points`."""
        weights = np.ones(1)
        for column in columns:
            weights = np.outer(weights, self.weights(column)).ravel()
        return weights


def component_columns(kernel: AdditiveKernel) -> dict[str, Columns]:
    """The columns that each component reads."""
    result = {}
    for name, columns in zip(kernel.names, kernel.columns):
        if columns is None:
            raise ValueError(
                f"component {name!r} reads every column; give its kernel active_dims=[...]."
            )
        result[name] = columns
    return result


def measures_of(kernel: AdditiveKernel) -> dict[int, Measure]:
    """The measures that a kernel's zero-mean components are centred under, by column."""
    result: dict[int, Measure] = {}
    for part in _zero_mean_parts(kernel.kernels):
        columns = kernel_columns(part)
        if columns is None or len(columns) != 1:
            continue
        known = result.setdefault(columns[0], part.measure)
        if not _equal(known, part.measure):
            raise ValueError(
                f"components are centred under {known!r} and {part.measure!r} of column "
                f"{columns[0]}; say which one is meant: measures={{{columns[0]}: ...}}."
            )
    return result


def measures_of_data(X: AnyNDArray, weights: AnyNDArray | None = None) -> dict[int, Measure]:
    """Every column's own distribution in data [N, D], thinned to nodes."""
    return {i: Empirical.from_data(X[:, i], weights) for i in range(X.shape[1])}


def _zero_mean_parts(kernels: Sequence[Kernel]) -> list[ZeroMean]:
    result: list[ZeroMean] = []
    for kernel in kernels:
        if isinstance(kernel, ZeroMean):
            result.append(kernel)
        elif isinstance(kernel, Combination):
            result += _zero_mean_parts(kernel.kernels)
    return result


def _equal(a: Measure, b: Measure) -> bool:
    (x, p), (y, q) = a.nodes(), b.nodes()
    return np.array_equal(x, y) and np.array_equal(p, q)


@dataclasses.dataclass(frozen=True)
class Part:
    """The contribution of components to the effect of one set of columns."""

    places: AnyNDArray
    features: AnyNDArray
    weights: AnyNDArray
    residual: AnyNDArray


_NEGLIGIBLE = 1e-10
"""Features below this are zero: rounding, of the lower terms of a centred component."""


def grid_features(
    moments: InducingMoments, grid: ProductGrid
) -> dict[str, tuple[AnyNDArray, AnyNDArray]]:
    """Features [M_c, Q_c] and prior variances [Q_c] of components at all nodes."""
    reads = component_columns(moments.kernel).items()
    width = moments.kernel.num_columns
    points = {name: grid.points(columns, width) for name, columns in reads if columns}
    return {n: moments.features_and_prior(n, moments.tangents(n, X)) for n, X in points.items()}


def decompose(
    moments: InducingMoments,
    grid: ProductGrid,
    every: Mapping[str, tuple[AnyNDArray, AnyNDArray]] | None = None,
) -> dict[Columns, Part]:
    """Every set of columns that some component has an effect of, single columns first."""
    # The residual variance is counted with all columns of its component.
    result: dict[Columns, list[tuple[slice, AnyNDArray, AnyNDArray]]] = {}
    reads = component_columns(moments.kernel)
    for name, (features, prior) in (every or grid_features(moments, grid)).items():
        columns = reads[name]
        residual = float(
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
                left = (residual if subset == columns else 0.0) * moments.entering([name])[0]
                result.setdefault(subset, []).append(
                    (moments.block(name), values.reshape(len(features), -1), left)
                )
    return {
        subset: Part(
            np.concatenate([np.arange(block.start, block.stop) for block, _, _ in result[subset]]),
            np.concatenate([values for _, values, _ in result[subset]]),
            grid.joint_weights(subset),
            np.sum([left for _, _, left in result[subset]], axis=0),
        )
        for subset in sorted(result, key=lambda s: (len(s), s))
    }


def split(values: AnyNDArray, weights: list[AnyNDArray]) -> dict[tuple[int, ...], AnyNDArray]:
    """The ANOVA terms of functions on a tensor grid, by the axes that they vary along."""
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
    """Features of the effect of a set of columns at points, [M_c, N], by component."""
    result = {}
    for name, columns in component_columns(moments.kernel).items():
        if set(subset) <= set(columns):
            total: AnyNDArray = np.zeros((0, 0))
            for size in range(len(subset) + 1):
                for kept in itertools.combinations(subset, size):
                    sign = (-1.0) ** (len(subset) - size)
                    mean = sign * _conditional_mean(moments, grid, name, columns, kept, X)
                    total = mean if total.size == 0 else total + mean
            result[name] = total
    return result


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
