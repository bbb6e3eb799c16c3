"""Tensor grids of nodes of independent inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Combination, Kernel

from ..kernels import AdditiveKernel, ZeroMean, kernel_columns
from ..measures import Empirical, Measure

Columns = tuple[int, ...]

MAX_POINTS = 120_000
"""Points of the grid of one component."""
_LEAST_NODES = 4


class ProductGrid:
    """
    Nodes of independent inputs, combined as components need them.

    :param measures: the measure of each column, on one column each.
    :param subsets: the columns that components read together: many columns get fewer nodes each.
    :raises ValueError: a column without a measure, or a component of too many columns.
    """

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
        """
        The same nodes with other weights.

        :param weights: of some of the columns, [Q] each.
        """
        other = copy.copy(self)
        changed = {c: (self.nodes(c), w) for c, w in weights.items()}
        other._nodes = {**self._nodes, **changed}
        return other

    def coarser(self, columns: Columns, number: int) -> ProductGrid:
        """
        A grid of some of the nodes, at even quantiles of each column.

        :param columns: whose combinations are at most ``number`` then.
        :param number: of points.
        """
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
        """How many nodes each column has."""
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
    """
    The columns that each component reads.

    :raises ValueError: one that does not say.
    """
    found = {}
    for name, columns in zip(kernel.names, kernel.columns):
        if columns is None:
            raise ValueError(
                f"component {name!r} reads every column; give its kernel active_dims=[...]."
            )
        found[name] = columns
    return found


def measures_of(kernel: AdditiveKernel) -> dict[int, Measure]:
    """
    The measures that a kernel's zero-mean components are centred under, by column.

    :raises ValueError: two different ones on one column.
    """
    found: dict[int, Measure] = {}
    for part in _zero_mean_parts(kernel.kernels):
        columns = kernel_columns(part)
        if columns is None or len(columns) != 1:
            continue
        known = found.setdefault(columns[0], part.measure)
        if not _equal(known, part.measure):
            raise ValueError(
                f"components are centred under {known!r} and {part.measure!r} of column "
                f"{columns[0]}; say which one is meant: measures={{{columns[0]}: ...}}."
            )
    return found


def measures_of_data(X: AnyNDArray, weights: AnyNDArray | None = None) -> dict[int, Measure]:
    """Every column's own distribution in data [N, D], thinned to nodes."""
    return {i: Empirical.from_data(X[:, i], weights) for i in range(X.shape[1])}


def _zero_mean_parts(kernels: Sequence[Kernel]) -> list[ZeroMean]:
    found: list[ZeroMean] = []
    for kernel in kernels:
        if isinstance(kernel, ZeroMean):
            found.append(kernel)
        elif isinstance(kernel, Combination):
            found += _zero_mean_parts(kernel.kernels)
    return found


def _equal(a: Measure, b: Measure) -> bool:
    (x, p), (y, q) = a.nodes(), b.nodes()
    return np.array_equal(x, y) and np.array_equal(p, q)
