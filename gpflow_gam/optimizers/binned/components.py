"""A component at rows: bins, nodes between which it is interpolated, and its residual variance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Constant, Kernel, Stationary
from scipy.linalg import lapack, solve_triangular

from ...kernels import (
    CentredLinear,
    Factor,
    Indicator,
    IntegratedOU,
    MarkovField,
    OnColumns,
    Warped,
    kernel_columns,
)
from ...kernels.functional import parameters_of
from ...kernels.shaped import shaped_part
from ...kernels.shapes import Values
from ...kernels.tangents import KernelTangents, kernel_tangents
from ...storage import RowArray
from ...threads import each
from .bins import Bins
from .evidence import Places


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """
    ``f(points) ~ matrix f(points[nodes])`` for every function that is at least as smooth.

    :param nodes: which points, [J].
    :param matrix: [G, J]; None where it is the identity.
    """

    nodes: AnyNDArray
    matrix: AnyNDArray | None

    def dense(self) -> AnyNDArray:
        """The matrix [G, J], the identity too."""
        return np.eye(len(self.nodes)) if self.matrix is None else self.matrix


def identity(number: int) -> Interpolation:
    """Every point is a node."""
    return Interpolation(np.arange(number), None)


def choose_nodes(K: AnyNDArray, max_nodes: int, tolerance: float) -> AnyNDArray:
    """
    Points [J] between which functions of a covariance can be interpolated: pivots of its Cholesky
    decomposition.

    :param K: of G candidates, [G, G].
    :param max_nodes: at most so many.
    :param tolerance: variance that may be left open at a point.
    """
    return _pivoted(K, min(max_nodes, len(K)), tolerance)


def interpolation(nodes: AnyNDArray, among: AnyNDArray, towards: AnyNDArray) -> Interpolation:
    """
    The interpolation of a covariance's functions from nodes.

    :param nodes: which points they are, [J].
    :param among: their covariance, [J, J].
    :param towards: that with all points, [J, G].
    """
    root = np.linalg.cholesky(among + 1e-12 * np.trace(among) * np.eye(len(among)))
    half = solve_triangular(root, towards, lower=True)
    return Interpolation(nodes, solve_triangular(root.T, half, lower=False).T)


def _pivoted(K: AnyNDArray, limit: int, tolerance: float) -> AnyNDArray:
    """Pivots [J] (Harbrecht, Peters & Schneider 2012)."""
    left = np.diag(K).copy()
    factor = np.zeros((limit, len(K)))
    pivots: list[int] = []
    for j in range(limit):
        pivot = int(np.argmax(left))
        if left[pivot] <= tolerance:
            break
        column = K[pivot] - factor[:j, pivot] @ factor[:j]
        column /= np.sqrt(left[pivot])
        factor[j] = column
        pivots.append(pivot)
        left -= np.square(column)
        left[pivots] = 0.0
    return np.array(pivots, dtype=np.int64)


_ROUGHEST = {1: 0.27, 2: 0.54}
"""The shortest lengthscale that nodes are chosen for, against a prior's mode, by columns."""
_USUAL_INDUCING = 24
"""Inducing inputs beyond which a component of one column may come to be as much rougher."""
_SCALES = ((1.0, 1.0), (6.0, 30.0), (36.0, 1000.0))
"""Lengthscales against the shortest, and variances: what varies slowly is interpolated best."""
_MAX_NODES = {1: 256, 2: 192}
_MAX_CANDIDATES = 192
"""Points among which nodes are chosen, at least."""
_NODES_EACH = 2
"""Nodes for each inducing input, at most, where there are many of these."""
_OPEN = 128
"""Points at which the open variance of a component of one column is summed, about."""
_OPEN_EACH = 3
"""The same for each inducing input, where these are many."""
_MOST_OPEN = 1024
"""The same of several columns."""
_BETWEEN = (Stationary, IntegratedOU, CentredLinear, Indicator, Constant)
"""Kernels that go on between the points of data."""
_LEAST_OF_LEVEL = 4
"""Candidates of each combination of levels, at least."""
_TOLERANCE = 1e-6
"""
Variance against the roughest functions' own that nodes may leave open. With it the covariance of
functions three times as smooth is off by 1e-3 of their variance at most, on even and skew columns.
"""
_FINE_TOLERANCE = 1e-8
"""The same of fine nodes."""
_FINE = {1: 0.5}
"""The shortest lengthscale that fine nodes are chosen for, against the usual one's, by columns."""
_FINE_OF_MANY = 0.25
"""The same of several columns, each of which may be the one that is rough."""
_FEW_VALUES = 64
"""Values of a column up to which all are nodes, and nothing is interpolated."""
_FEW_PAIRS = 32
"""The same of several columns."""
_ALL_VALUES = {1: 512}
"""Points up to which all are fine nodes, by columns."""
_MANY_NODES = 1024
"""The same of several columns, and their fine nodes at most."""


@dataclasses.dataclass(frozen=True)
class RowComponent:
    """
    One component at rows.

    :param kernel: of the component.
    :param inducing: its inducing inputs as rows of X, [M, D].
    :param bins: the bin of each row; points are rows of X [G, D] at which the component is itself.
    :param multiplier: what multiplies it in each row, [N], as doubles; None for one.
    :param interpolation: nodes among the points; those of a component with a shape are its own.
    :param open_bins: which of the points of open variance stands for each bin, [G].
    :param places: where the evidence evaluates it: nodes, then points of open variance.
    :param table: its matrices at all points.
    :param outputs: the latent outputs that it enters; None for all.
    """

    kernel: Kernel
    inducing: AnyNDArray
    bins: Bins
    multiplier: RowArray | None
    interpolation: Interpolation
    open_bins: AnyNDArray
    places: Places
    table: KernelTangents
    outputs: tuple[int, ...] | None = None

    def outputs_of(self, number: int) -> Sequence[int]:
        """
        The latent outputs that it enters, of so many.

        :param number: L, how many there are.
        """
        return range(number) if self.outputs is None else self.outputs

    @property
    def num_open(self) -> int:
        """E, the points of open variance."""
        return int(self.open_bins.max()) + 1

    def rows(self, which: AnyNDArray) -> RowComponent:
        """
        The component at some of the rows.

        :param which: their numbers, [n].
        """
        multiplier = None if self.multiplier is None else self.multiplier[which]
        bins = dataclasses.replace(self.bins, codes=self.bins.codes[which])
        return dataclasses.replace(self, bins=bins, multiplier=multiplier)

    def of_kernel(self, kernel: Kernel) -> RowComponent:
        """
        The same rows, nodes and inducing inputs under a kernel of other hyperparameters.

        :param kernel: of the same structure and priors.
        """
        nodes, others = np.split(self.places.points, [self.places.nodes])
        places = Places.of(kernel, self.inducing, nodes, others)
        table = kernel_tangents(kernel, self.inducing, self.bins.points)
        return dataclasses.replace(self, kernel=kernel, places=places, table=table)


def row_component(
    kernel: Kernel,
    Z: AnyNDArray,
    bins: Bins,
    columns: tuple[int, ...],
    multiplier: RowArray | None = None,
    mass: AnyNDArray | None = None,
    outputs: tuple[int, ...] | None = None,
    fine: bool = False,
) -> RowComponent:
    """
    Prepare a component for sums over rows.

    :param kernel: of the component.
    :param Z: its inducing inputs as rows of X, [M, D].
    :param bins: of the rows; points [G, D].
    :param columns: of X that it is a function of, without those that say where it is zero.
    :param multiplier: [N].
    :param mass: how many rows there are in each bin, [G]; those of ``bins`` by default.
    :param outputs: the latent outputs that it enters; None for all.
    :param fine: whether nodes are for functions that are rougher than is usual.
    :return: what sums over rows ask of it.
    """
    points = bins.points
    shaped = shaped_part(kernel)
    if shaped is None:
        found = _nodes(kernel, points, len(columns), len(Z), fine)
        nodes = points[found.nodes]
    else:  # made of splines, which a few values settle
        nodes = shaped.nodes(Z[0])
        found = Interpolation(np.arange(len(nodes)), shaped.weights(points))
    between = all(isinstance(leaf, _BETWEEN) for leaf in _leaf_kernels(kernel))
    weight = bins.mass() if mass is None else mass
    order, open_bins = _open_points(points, weight, columns, between, len(Z))
    places = Places.of(kernel, Z, nodes, order)
    table = kernel_tangents(kernel, Z, points)
    return RowComponent(kernel, Z, bins, multiplier, found, open_bins, places, table, outputs)


def _open_points(
    points: AnyNDArray,
    mass: AnyNDArray,
    columns: tuple[int, ...],
    between: bool,
    num_inducing: int,
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Fewer points that stand for all, and which stands for each.

    :param between: whether what lies between points is like them, as it is not with levels.
    :param num_inducing: M. Where they are many, functions are rough: nothing is open at them, and
        much half way.
    """
    number, limit = len(points), max(_OPEN, _OPEN_EACH * num_inducing)
    if len(columns) != 1:
        if number <= _MOST_OPEN:
            return points, np.arange(number)
        # neighbours along the last column, of which the heaviest stands for the others
        order = np.lexsort(points[:, list(columns)].T[::-1])
        groups = np.empty(number, dtype=int)
        groups[order] = np.arange(number) * _MOST_OPEN // number
        return points[_heaviest(groups, mass)], groups
    if number <= 1.3 * limit:
        return points, np.arange(number)
    # neighbours along the column, none far apart: what is open grows where inputs are sparse
    (column,) = columns
    values = points[:, column]
    half = limit // 2
    edges = np.unique(
        np.concatenate(
            [
                np.quantile(values, np.linspace(0.0, 1.0, half + 1)[1:-1]),
                np.linspace(values.min(), values.max(), half + 1)[1:-1],
            ]
        )
    )
    # where the component is off, as for other levels, nothing is open
    _, off = np.unique(np.delete(points, column, axis=1), axis=0, return_inverse=True)
    places = off.ravel() * (len(edges) + 1) + np.searchsorted(edges, values, side="right")
    _, first, groups = np.unique(places, return_index=True, return_inverse=True)
    groups = groups.ravel()
    if not between:
        return points[_heaviest(groups, mass)], groups
    weight = np.maximum(mass, 1e-300)
    found = points[first]
    origin = values[first]  # around which a column far from zero keeps its digits
    found[:, column] = origin + np.bincount(
        groups, weight * (values - origin[groups])
    ) / np.bincount(groups, weight)
    return found, groups


def _heaviest(groups: AnyNDArray, mass: AnyNDArray) -> AnyNDArray:
    """The heaviest of each group."""
    order = np.lexsort((-mass, groups))
    found: AnyNDArray = order[np.unique(groups[order], return_index=True)[1]]
    return found


def _nodes(
    kernel: Kernel, points: AnyNDArray, columns: int, num_inducing: int, fine: bool
) -> Interpolation:
    """Nodes for the roughest functions that the hyperparameters may come to."""
    number = len(points)
    levels = level_columns(kernel)
    few = _FEW_VALUES if columns == 1 else _FEW_PAIRS
    if number <= few or len(levels) == columns:  # between levels there is nothing
        return identity(number)
    if fine and number <= _ALL_VALUES.get(columns, _MANY_NODES):
        return identity(number)
    many = fine and columns > 1
    max_nodes = max(_MAX_NODES.get(columns, 192), _NODES_EACH * num_inducing)
    max_nodes = max(max_nodes, _MANY_NODES) if many else max_nodes
    finer = min(1.0, _USUAL_INDUCING / num_inducing) if columns == 1 else 1.0
    finer *= _FINE.get(columns, _FINE_OF_MANY) if fine else 1.0
    shortest = _shortest(kernel, finer * _ROUGHEST.get(columns, 0.7))
    if shortest is None:
        return identity(number)
    own = {id(p): p.numpy() for p in parameters_of(kernel)}
    # wherever a fit has taken the variances, the nodes are the same: on even points there are ties,
    # which the rounding of another factor would break otherwise
    own |= {id(v): size for v, size in _variances(kernel, points)}
    limit = 2 * max_nodes if many else max(_MAX_CANDIDATES, _NODES_EACH * num_inducing)
    candidates = _candidates(points, levels, limit)
    if levels:
        max_nodes = len(candidates)  # no level may go without
    among = kernel_tangents(kernel, points[candidates], points[:1])
    rough, _, _ = among.matrices(_at({**own, **shortest}))
    unit = float(np.max(np.diag(rough)))
    if unit <= 0.0:
        return Interpolation(candidates[:1], np.zeros((number, 1)))
    scales = [
        (weight / unit, {**own, **{key: factor * v for key, v in shortest.items()}})
        for factor, weight in (_SCALES if shortest else _SCALES[:1])
    ]
    K = sum(weight * among.matrices(_at(values))[0] for weight, values in scales)
    pivots = choose_nodes(np.asarray(K), max_nodes, _FINE_TOLERANCE if fine else _TOLERANCE)
    if len(pivots) > 0.8 * number or (len(pivots) == max_nodes and number <= 2 * max_nodes):
        return identity(number)
    nodes = candidates[pivots]
    towards = kernel_tangents(kernel, points[nodes], points)
    parts = [(weight, towards.matrices(_at(values))) for weight, values in scales]
    inner = sum(weight * matrices[0] for weight, matrices in parts)
    outer = sum(weight * matrices[1] for weight, matrices in parts)
    return interpolation(nodes, np.asarray(inner), np.asarray(outer))


def _candidates(points: AnyNDArray, levels: Sequence[int], limit: int) -> AnyNDArray:
    """
    Points among which nodes are chosen: in each combination of levels, half in even ranks, half far
    from all others.

    Without the latter a long tail of few points would be extrapolated into.

    :param levels: columns that hold codes.
    :param limit: how many, about, in all.
    """
    if len(points) <= limit:
        return np.arange(len(points))
    if not levels:
        return _spread(points, limit)
    groups = np.unique(points[:, list(levels)], axis=0, return_inverse=True)[1].ravel()
    each = max(limit // (int(groups.max()) + 1), _LEAST_OF_LEVEL)
    chosen = []
    for group in range(int(groups.max()) + 1):
        own = np.flatnonzero(groups == group)
        chosen.append(own[_spread(points[own], each)])
    return np.sort(np.concatenate(chosen))


def _spread(points: AnyNDArray, limit: int) -> AnyNDArray:
    """So many of the points at most, as :func:`_candidates` describes."""
    number = len(points)
    if number <= limit:
        return np.arange(number)
    chosen = np.unique(np.linspace(0, number - 1, limit // 2).astype(int)).tolist()
    size = np.ptp(points, axis=0)
    scaled = points[:, size > 0.0] / size[size > 0.0]
    distance = np.full(number, np.inf)
    for start in chosen:
        distance = np.minimum(distance, np.sum(np.square(scaled - scaled[start]), axis=1))
    while len(chosen) < limit:
        farthest = int(np.argmax(distance))
        chosen.append(farthest)
        moved = np.sum(np.square(scaled - scaled[farthest]), axis=1)
        distance = np.minimum(distance, moved)
    return np.unique(chosen)


def _at(values: Mapping[int, AnyNDArray]) -> Values:
    return lambda parameter: values[id(parameter)]


def _shortest(kernel: Kernel, factor: float) -> Mapping[int, AnyNDArray] | None:
    """
    Short lengthscales, by the ids of their parameters; empty where there are none.

    :return: None for a kernel that is not known well enough.
    """
    found: dict[int, AnyNDArray] = {}
    for leaf in _leaf_kernels(kernel):
        if isinstance(leaf, (Stationary, IntegratedOU)):
            parameter = leaf.lengthscales
            found[id(parameter)] = factor * _prior_mode(parameter)
            continue
        if type(leaf).__name__ not in ("Factor", "CentredLinear", "Indicator", "Constant"):
            return None
        if any(
            p.trainable for p in parameters_of(leaf) if p is not getattr(leaf, "variance", None)
        ):
            return None
    return found


def level_columns(kernel: Kernel) -> list[int]:
    """The columns of X that a kernel reads as codes of levels."""
    if isinstance(kernel, OnColumns):
        own = list(kernel_columns(kernel) or ())
        return [own[i] for i in level_columns(kernel.base)]
    if hasattr(kernel, "kernels"):
        return sorted({c for part in kernel.kernels for c in level_columns(part)})
    if isinstance(getattr(kernel, "base", None), Kernel):
        return level_columns(kernel.base)
    known = type(kernel) in (Factor, MarkovField)
    return list(kernel_columns(kernel) or ()) if known else []


def _leaf_kernels(kernel: Kernel) -> list[Kernel]:
    if hasattr(kernel, "kernels"):
        return [leaf for part in kernel.kernels for leaf in _leaf_kernels(part)]
    if isinstance(kernel, Warped):  # whose lengthscale is not what its base has
        return [kernel]
    for name in ("base", "base_kernel"):
        if isinstance(getattr(kernel, name, None), Kernel):
            return _leaf_kernels(getattr(kernel, name))
    return [kernel]


def _variances(kernel: Kernel, points: AnyNDArray) -> list[tuple[Parameter, AnyNDArray]]:
    """What multiplies the parts of a kernel, where it is learnt, and its value at size one."""
    found = []
    for leaf in _leaf_kernels(kernel):
        variance = getattr(leaf, "variance", None)
        if isinstance(variance, Parameter) and variance.trainable:
            span = 1.0
            if isinstance(leaf, CentredLinear):
                span = float(np.ptp(points[:, kernel_columns(leaf) or (0,)])) or 1.0
            found.append((variance, np.full(variance.shape, 1.0 / span**2)))
    return found


def _prior_mode(parameter: Parameter) -> AnyNDArray:
    """Where the prior of a positive parameter peaks in its logarithm; its value without one."""
    prior = parameter.prior
    if prior is None or not hasattr(prior, "loc") or not hasattr(prior, "scale"):
        return parameter.numpy()
    return np.exp(np.asarray(prior.loc) - np.square(np.asarray(prior.scale)))


FEATURE = 2e-8
"""Seconds that an entry of a component's features takes, between a bin and an inducing input."""
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
    each(evaluate, range(len(components)), shared * FEATURE)
    return [found[c] for c in range(len(components))]
