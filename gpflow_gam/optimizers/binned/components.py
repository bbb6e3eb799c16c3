"""A component at rows: bins, nodes between which it is interpolated, and its residual variance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Constant, Kernel, Stationary
from scipy.linalg import lapack, solve_triangular

from ...inducing_variables import pivots
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
from ...kernels.correlation import Values
from ...kernels.fixed_inputs import FixedInputKernel, fixed_input_kernel
from ...kernels.functional import parameters_of
from ...kernels.shaped import shaped_part
from ...storage import RowArray
from ...threads import each
from .bins import Bins
from .evidence import Places, lookup


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """``f(points) ~ matrix f(points[nodes])`` for every function that is at least as smooth."""

    nodes: AnyNDArray  # indices of points, [J]
    matrix: AnyNDArray | None  # [G, J]; None for the identity

    def dense(self) -> AnyNDArray:
        """The matrix [G, J], also if it is the identity."""
        return np.eye(len(self.nodes)) if self.matrix is None else self.matrix


def identity(number: int) -> Interpolation:
    """An interpolation whose nodes are all points."""
    return Interpolation(np.arange(number), None)


def _interpolation(nodes: AnyNDArray, among: AnyNDArray, towards: AnyNDArray) -> Interpolation:
    """Interpolation between nodes with covariances ``among`` [J, J] and ``towards`` all [J, G]."""
    root = np.linalg.cholesky(among + 1e-12 * np.trace(among) * np.eye(len(among)))
    half = solve_triangular(root, towards, lower=True)
    return Interpolation(nodes, solve_triangular(root.T, half, lower=False).T)


# Constants in dicts are by the number of columns.
_ROUGHEST = {1: 0.27, 2: 0.54}  # shortest lengthscale of nodes, relative to the prior's mode
_USUAL_INDUCING = 24  # inducing inputs beyond which a curve may be rougher in proportion
_SCALES = ((1.0, 1.0), (6.0, 30.0), (36.0, 1000.0))
"""Lengthscales relative to the shortest, and variances: slow functions are interpolated best."""
_MAX_NODES = {1: 256, 2: 192}  # largest number of nodes, unless there are many inducing inputs
_NODES_EACH = 2  # largest number of nodes for each inducing input
_MAX_CANDIDATES = 192  # points among which nodes are chosen, unless inducing inputs are many
_RESIDUAL = 128  # number of points at which the residual variance of a curve is summed, about
_RESIDUAL_EACH = 3  # number of these for each inducing input, if there are many inducing inputs
_RESIDUAL_OF_MANY = 1024  # number of these for several columns
_BETWEEN = (Stationary, IntegratedOU, CentredLinear, Indicator, Constant)
"""Kernels of functions that continue between the points of data."""
_LEAST_OF_LEVEL = 4  # least number of candidates of each combination of levels
_TOLERANCE = 1e-6
"""
Residual variance between nodes, relative to the variance of the roughest functions. The covariance
of functions three times as smooth is then off by 1e-3 of their variance at most.
"""
_REFINED_TOLERANCE = 1e-8  # the tolerance of refined nodes
_REFINED = {1: 0.5}  # shortest lengthscale of refined nodes, relative to the usual one
_REFINED_OF_MANY = 0.25  # the same of several columns, of which one may be rough
_FEW_VALUES = 64  # number of values of a column up to which all are nodes
_FEW_PAIRS = 32  # number of joint values of several columns up to which all are nodes
_ALL_VALUES = {1: 512}  # number of points up to which all are refined nodes
_MANY_NODES = 1024  # the same of several columns, and the largest number of their refined nodes


@dataclasses.dataclass(frozen=True)
class RowComponent:
    """One component at the rows of data."""

    kernel: Kernel
    inducing: AnyNDArray  # inducing inputs as rows of X, [M, D]
    bins: Bins  # points are rows of X, [G, D]
    multiplier: RowArray | None  # [N]; None for one
    interpolation: Interpolation  # from nodes to bins
    residual_bins: AnyNDArray  # the point of residual variance of each bin, [G]
    places: Places  # nodes, then points of residual variance
    table: FixedInputKernel  # at all bins
    outputs: tuple[int, ...] | None = None  # predictors that it enters; None for all

    def outputs_of(self, number: int) -> Sequence[int]:
        """The predictors that the component enters, of ``number`` predictors."""
        return range(number) if self.outputs is None else self.outputs

    @property
    def num_residual(self) -> int:
        """The number of points of residual variance, E."""
        return int(self.residual_bins.max()) + 1

    def rows(self, which: AnyNDArray) -> RowComponent:
        """The component at some of the rows."""
        multiplier = None if self.multiplier is None else self.multiplier[which]
        bins = dataclasses.replace(self.bins, codes=self.bins.codes[which])
        return dataclasses.replace(self, bins=bins, multiplier=multiplier)

    def of_kernel(self, kernel: Kernel) -> RowComponent:
        """The component with a kernel of the same structure and other hyperparameters."""
        nodes, others = np.split(self.places.points, [self.places.nodes])
        places = Places.of(kernel, self.inducing, nodes, others)
        table = fixed_input_kernel(kernel, self.inducing, self.bins.points)
        return dataclasses.replace(self, kernel=kernel, places=places, table=table)


def row_component(
    kernel: Kernel,
    Z: AnyNDArray,
    bins: Bins,
    columns: tuple[int, ...],
    multiplier: RowArray | None = None,
    mass: AnyNDArray | None = None,
    outputs: tuple[int, ...] | None = None,
    refined: bool = False,
) -> RowComponent:
    """A component at rows. Z [M, D] are rows of X; ``columns`` those it reads, but for ``by``."""
    points = bins.points
    shaped = shaped_part(kernel)
    if shaped is None:
        interpolation = _nodes(kernel, points, len(columns), len(Z), refined)
        nodes = points[interpolation.nodes]
    else:  # splines, which a few values determine
        nodes = shaped.nodes(Z[0])
        interpolation = Interpolation(np.arange(len(nodes)), shaped.weights(points))
    between = all(isinstance(leaf, _BETWEEN) for leaf in _leaf_kernels(kernel))
    weight = bins.mass() if mass is None else mass
    others, residual_bins = _residual_points(points, weight, columns, between, len(Z))
    places = Places.of(kernel, Z, nodes, others)
    table = fixed_input_kernel(kernel, Z, points)
    return RowComponent(
        kernel, Z, bins, multiplier, interpolation, residual_bins, places, table, outputs
    )


def _residual_points(
    points: AnyNDArray,
    mass: AnyNDArray,
    columns: tuple[int, ...],
    between: bool,
    num_inducing: int,
) -> tuple[AnyNDArray, AnyNDArray]:
    """Some points [E, D] of residual variance, and the one of each point, [G]."""
    number, limit = len(points), max(_RESIDUAL, _RESIDUAL_EACH * num_inducing)
    if len(columns) != 1:
        if number <= _RESIDUAL_OF_MANY:
            return points, np.arange(number)
        # neighbours along the last column, by the heaviest of them
        order = np.lexsort(points[:, list(columns)].T[::-1])
        groups = np.empty(number, dtype=int)
        groups[order] = np.arange(number) * _RESIDUAL_OF_MANY // number
        return points[_heaviest(groups, mass)], groups
    if number <= 1.3 * limit:
        return points, np.arange(number)
    # neighbours along the column, none far apart: the variance grows where inputs are sparse
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
    # without rows where the component is zero, as for other levels
    _, off = np.unique(np.delete(points, column, axis=1), axis=0, return_inverse=True)
    places = off.ravel() * (len(edges) + 1) + np.searchsorted(edges, values, side="right")
    _, first, groups = np.unique(places, return_index=True, return_inverse=True)
    groups = groups.ravel()
    if not between:
        return points[_heaviest(groups, mass)], groups
    weight = np.maximum(mass, 1e-300)
    means = points[first]
    origin = values[first]  # subtracted for the digits of a column far from zero
    means[:, column] = origin + np.bincount(
        groups, weight * (values - origin[groups])
    ) / np.bincount(groups, weight)
    return means, groups


def _heaviest(groups: AnyNDArray, mass: AnyNDArray) -> AnyNDArray:
    """The index of the heaviest member of each group."""
    order = np.lexsort((-mass, groups))
    return order[np.unique(groups[order], return_index=True)[1]]


def _nodes(
    kernel: Kernel, points: AnyNDArray, columns: int, num_inducing: int, refined: bool
) -> Interpolation:
    """Nodes for the roughest functions that hyperparameters may lead to."""
    number = len(points)
    levels = level_columns(kernel)
    few = _FEW_VALUES if columns == 1 else _FEW_PAIRS
    if number <= few or len(levels) == columns:
        return identity(number)
    if refined and number <= _ALL_VALUES.get(columns, _MANY_NODES):
        return identity(number)
    many = refined and columns > 1
    max_nodes = max(_MAX_NODES.get(columns, 192), _NODES_EACH * num_inducing)
    max_nodes = max(max_nodes, _MANY_NODES) if many else max_nodes
    factor = min(1.0, _USUAL_INDUCING / num_inducing) if columns == 1 else 1.0
    factor *= _REFINED.get(columns, _REFINED_OF_MANY) if refined else 1.0
    shortest = _shortest(kernel, factor * _ROUGHEST.get(columns, 0.7))
    if shortest is None:
        return identity(number)
    present = {id(p): p.numpy() for p in parameters_of(kernel)}
    # variances of one, so that nodes do not depend on them: on even points there are ties, which
    # the rounding of other factors breaks in other ways
    present |= {id(v): size for v, size in _unit_variances(kernel, points)}
    limit = 2 * max_nodes if many else max(_MAX_CANDIDATES, _NODES_EACH * num_inducing)
    candidates = _candidates(points, levels, limit)
    if levels:
        max_nodes = len(candidates)  # so that every level has nodes
    among = fixed_input_kernel(kernel, points[candidates], points[:1])
    rough, _, _ = among.matrices(lookup({**present, **shortest}))
    unit = float(np.max(np.diag(rough)))
    if unit <= 0.0:
        return Interpolation(candidates[:1], np.zeros((number, 1)))
    scales = [
        (weight / unit, {**present, **{key: factor * v for key, v in shortest.items()}})
        for factor, weight in (_SCALES if shortest else _SCALES[:1])
    ]
    K = sum(weight * among.matrices(lookup(values))[0] for weight, values in scales)
    tolerance = _REFINED_TOLERANCE if refined else _TOLERANCE
    K = np.asarray(K)
    chosen = pivots(np.diag(K), lambda i: K[i], max_nodes, tolerance)
    if len(chosen) > 0.8 * number or (len(chosen) == max_nodes and number <= 2 * max_nodes):
        return identity(number)
    nodes = candidates[chosen]
    towards = fixed_input_kernel(kernel, points[nodes], points)
    parts = [(weight, towards.matrices(lookup(values))) for weight, values in scales]
    inner = sum(weight * matrices[0] for weight, matrices in parts)
    outer = sum(weight * matrices[1] for weight, matrices in parts)
    return _interpolation(nodes, np.asarray(inner), np.asarray(outer))


def _candidates(points: AnyNDArray, levels: Sequence[int], limit: int) -> AnyNDArray:
    """Points of each combination of levels, half of even ranks, half far from others, for tails."""
    if len(points) <= limit:
        return np.arange(len(points))
    if not levels:
        return _spread(points, limit)
    groups = np.unique(points[:, list(levels)], axis=0, return_inverse=True)[1].ravel()
    number = int(groups.max()) + 1
    limit = max(limit // number, _LEAST_OF_LEVEL)
    members = [np.flatnonzero(groups == group) for group in range(number)]
    return np.sort(np.concatenate([rows[_spread(points[rows], limit)] for rows in members]))


def _spread(points: AnyNDArray, limit: int) -> AnyNDArray:
    """Indices of at most ``limit`` points, as :func:`_candidates` describes."""
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


def _shortest(kernel: Kernel, factor: float) -> Mapping[int, AnyNDArray] | None:
    """Short lengthscales by the ids of parameters; None for a kernel that is not known well."""
    shortest: dict[int, AnyNDArray] = {}
    for leaf in _leaf_kernels(kernel):
        if isinstance(leaf, (Stationary, IntegratedOU)):
            parameter = leaf.lengthscales
            shortest[id(parameter)] = factor * _prior_mode(parameter)
            continue
        if type(leaf).__name__ not in ("Factor", "CentredLinear", "Indicator", "Constant"):
            return None
        if any(
            p.trainable for p in parameters_of(leaf) if p is not getattr(leaf, "variance", None)
        ):
            return None
    return shortest


def level_columns(kernel: Kernel) -> list[int]:
    """The columns of X that a kernel reads as codes of levels."""
    if isinstance(kernel, OnColumns):
        columns = list(kernel_columns(kernel) or ())
        return [columns[i] for i in level_columns(kernel.base)]
    if hasattr(kernel, "kernels"):
        return sorted({c for part in kernel.kernels for c in level_columns(part)})
    if isinstance(getattr(kernel, "base", None), Kernel):
        return level_columns(kernel.base)
    known = type(kernel) in (Factor, MarkovField)
    return list(kernel_columns(kernel) or ()) if known else []


def _leaf_kernels(kernel: Kernel) -> list[Kernel]:
    if hasattr(kernel, "kernels"):
        return [leaf for part in kernel.kernels for leaf in _leaf_kernels(part)]
    if isinstance(kernel, Warped):  # its lengthscale is not its base's
        return [kernel]
    for name in ("base", "base_kernel"):
        if isinstance(getattr(kernel, name, None), Kernel):
            return _leaf_kernels(getattr(kernel, name))
    return [kernel]


def _unit_variances(kernel: Kernel, points: AnyNDArray) -> list[tuple[Parameter, AnyNDArray]]:
    """Trainable variances of a kernel's parts, and values at which the parts have size one."""
    variances = []
    for leaf in _leaf_kernels(kernel):
        variance = getattr(leaf, "variance", None)
        if isinstance(variance, Parameter) and variance.trainable:
            span = 1.0
            if isinstance(leaf, CentredLinear):
                span = float(np.ptp(points[:, kernel_columns(leaf) or (0,)])) or 1.0
            variances.append((variance, np.full(variance.shape, 1.0 / span**2)))
    return variances


def _prior_mode(parameter: Parameter) -> AnyNDArray:
    """The prior's mode in the logarithm of a parameter; the parameter's value without a prior."""
    prior = parameter.prior
    if prior is None or not hasattr(prior, "loc") or not hasattr(prior, "scale"):
        return parameter.numpy()
    return np.exp(np.asarray(prior.loc) - np.square(np.asarray(prior.scale)))


FEATURE = 2e-8  # seconds for an entry of a component's features, between bin and inducing input


class Encoded(NamedTuple):
    """Some rows as codes of bins and multipliers, one array [n] a component."""

    codes: list[AnyNDArray]
    multipliers: list[AnyNDArray | None]


def encoded(components: Sequence[RowComponent], at: slice) -> Encoded:
    """The rows in a slice."""
    return Encoded(
        [c.bins.codes[at].astype(np.int32) for c in components],
        [None if c.multiplier is None else c.multiplier[at] for c in components],
    )


def times(x: AnyNDArray, *multipliers: AnyNDArray | None) -> AnyNDArray:
    """The product of ``x`` with those multipliers that are not None."""
    for m in multipliers:
        if m is not None:
            x = x * m
    return x


def features_at_bins(
    components: Sequence[RowComponent], values: Values, roots: Sequence[AnyNDArray]
) -> list[tuple[AnyNDArray, AnyNDArray]]:
    """Features [M, G] and prior variances [G] of each component at its bins."""
    features: dict[int, tuple[AnyNDArray, AnyNDArray]] = {}

    def evaluate(c: int) -> None:
        _, K, diagonal = components[c].table.matrices(values)
        phi, _ = lapack.dtrtrs(roots[c], np.asarray_chkfinite(K), lower=1)
        features[c] = phi, diagonal

    entries = [c.bins.number * len(root) for c, root in zip(components, roots)]
    # at best the largest runs beside all others
    seconds = FEATURE * (sum(entries) - max(entries)) / len(entries)
    each(evaluate, range(len(components)), seconds)
    return [features[c] for c in range(len(components))]
