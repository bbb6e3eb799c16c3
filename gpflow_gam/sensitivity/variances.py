"""Posterior draws of the variance of every ANOVA term."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..posteriors import AugmentedMoments, InducingMoments
from ..threads import SMALL, one_blas_thread
from .grid import Columns, Part, ProductGrid, component_columns, decompose, grid_features

_RESIDUAL = 1e-3  # share of a component's variance that may be left open
_CANDIDATES = 1000  # points of a grid that may become inducing inputs


def augmented(
    moments: InducingMoments, grid: ProductGrid, others: Sequence[InducingMoments] = ()
) -> tuple[InducingMoments, list[InducingMoments]]:
    """Moments with inducing inputs over the whole grid, where the residual variance is large."""
    # Joint smooths have theirs where rows are, and the grid of independent columns is wider.
    points = _residual_points(moments, grid)
    if not points:
        return moments, list(others)
    made = {id(m): AugmentedMoments(m, points) for m in (moments, *others)}
    return made[id(moments)], [made[id(m)] for m in others]


def _residual_points(moments: InducingMoments, grid: ProductGrid) -> dict[str, AnyNDArray]:
    result, width = {}, moments.kernel.num_columns
    for name, columns in component_columns(moments.kernel).items():
        if not columns:
            continue
        coarse = grid.coarser(columns, _CANDIDATES)
        X, w = coarse.points(columns, width), coarse.joint_weights(columns)
        phi, prior = moments.features_and_prior(name, moments.tangents(name, X))
        left = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)
        if w @ left > _RESIDUAL * (w @ prior):
            pivots = moments.residual_pivots(name, X)
            if pivots:
                result[name] = X[pivots]
    return result


REPLICATES = 256
"""Draws of the inputs' distribution behind an interval."""


def bootstrapped_weights(
    weights: AnyNDArray, number: int, seed: int, size: int | None = None
) -> AnyNDArray:
    """Draws [number, n] of how much rows count, in the mean ``weights``."""
    each = (size or len(weights)) / len(weights)
    draws = np.random.default_rng(seed).gamma(each, size=(number, len(weights)))
    result: AnyNDArray = weights * draws / each
    return result


def bootstrapped_nodes(
    nodes: Mapping[int, tuple[AnyNDArray, AnyNDArray]],
    X: AnyNDArray,
    weights: AnyNDArray,
    number: int,
    seed: int,
    size: int | None = None,
) -> list[dict[int, AnyNDArray]]:
    """Draws of the weights of nodes, at each of which the nearest rows of a sample stand."""
    nearest = {c: _nearest(points, X[:, c]) for c, (points, _) in nodes.items()}
    own = {c: np.bincount(nearest[c], weights, len(w)) for c, (_, w) in nodes.items()}
    result = []
    for counts in bootstrapped_weights(weights, number, seed, size):
        changed = {}
        for c, (_, known) in nodes.items():
            mass = np.bincount(nearest[c], counts, len(known))
            # a ratio: nodes that are the means of bins keep their own weights in the mean
            new = known * np.divide(mass, own[c], out=np.ones_like(mass), where=own[c] > 0.0)
            changed[c] = new / new.sum()
        result.append(changed)
    return result


def _nearest(nodes: AnyNDArray, values: AnyNDArray) -> AnyNDArray:
    """The place [n] of the node nearest to each value."""
    order = np.argsort(nodes)
    edges = 0.5 * (nodes[order][1:] + nodes[order][:-1])
    result: AnyNDArray = order[np.searchsorted(edges, values)]
    return result


_Turn = tuple[int, dict[Columns, tuple[AnyNDArray, AnyNDArray]]]
"""A number of draws, and variances and distances of every term in them."""


@dataclasses.dataclass(frozen=True)
class VarianceDraws:
    """Variances of ANOVA terms under independent inputs, for S posterior draws."""

    subsets: tuple[Columns, ...]
    variances: AnyNDArray
    distances: AnyNDArray
    sizes: AnyNDArray

    def total(self) -> AnyNDArray:
        """The variance of the predictor, [S, L]."""
        total: AnyNDArray = self.variances.sum(axis=1)
        return total


def varying(total: AnyNDArray) -> list[int]:
    """Indices of the outputs whose variance is positive; the others are constant."""
    result = [i for i, own in enumerate(total.T) if np.any(own > 0.0)]
    if not result or not np.all(total[:, result] > 0.0):
        raise ValueError(
            "Sobol indices are undefined: the predictor has zero variance under these measures. "
            "Every component is constant, or every input has a single value."
        )
    return result


def draw_variances(
    reference: InducingMoments,
    members: Sequence[InducingMoments],
    grid: ProductGrid,
    num_samples: int,
    seed: int,
    replicates: Sequence[ProductGrid] = (),
) -> VarianceDraws:
    """Draws of ``Var[f_v] = V' E[phi_v phi_v'] V``; residual variance adds its mean."""
    reference, members = augmented(reference, grid, members)
    with one_blas_thread(len(reference.mean) <= SMALL):
        own, turns = _turns(reference, members, grid, num_samples, seed, replicates)
    # other weights bring effects about that vanish under the first
    subsets = {s for _, result in turns for s in result} | set(own)
    if not subsets:
        varying(np.zeros((1, 0)))
    order = sorted(subsets, key=lambda s: (len(s), s))
    L = reference.mean.shape[1]
    variances, distances = (
        np.concatenate(
            [
                np.stack([result[s][k] if s in result else np.zeros((n, L)) for s in order], axis=1)
                for n, result in turns
            ]
        )
        for k in (0, 1)
    )
    sizes = {s: p.weights @ (p.features.T @ reference.mean[p.places]) ** 2 for s, p in own.items()}
    return VarianceDraws(
        tuple(order), variances, distances, np.stack([sizes.get(s, np.zeros(L)) for s in order])
    )


def _turns(
    reference: InducingMoments,
    members: Sequence[InducingMoments],
    grid: ProductGrid,
    num_samples: int,
    seed: int,
    replicates: Sequence[ProductGrid],
) -> tuple[dict[Columns, Part], list[_Turn]]:
    """The terms of the estimate; how many draws shared weights and a member, and what they are."""
    reference_features = grid_features(reference, grid)
    own = decompose(reference, grid, reference_features)
    each = -(-num_samples // len(members))
    turns: list[_Turn] = []
    for i, member in enumerate(members):
        features = reference_features if member is reference else grid_features(member, grid)
        V = member.sample(each, seed + i)
        grids = replicates[i :: len(members)] or (grid,)
        for some, weighted in zip(np.array_split(V, len(grids)), grids):
            mean = own if weighted is grid else decompose(reference, weighted, reference_features)
            parts = mean if member is reference else decompose(member, weighted, features)
            estimates = {s: p.features.T @ reference.mean[p.places] for s, p in mean.items()}
            result = {
                s: _quadratic(p, some[:, p.places], estimates.get(s)) for s, p in parts.items()
            }
            turns.append((len(some), result))
    return own, turns


def _quadratic(
    part: Part, V: AnyNDArray, estimate: AnyNDArray | None
) -> tuple[AnyNDArray, AnyNDArray]:
    """Variance and squared distance from ``estimate`` [Q, L] of each draw V [S, P_v, L]."""
    second = (part.features * part.weights) @ part.features.T  # E[phi phi'], [P_v, P_v]
    if estimate is None:
        estimate = np.zeros((len(part.weights), V.shape[2]))
    variance = np.einsum("spl,pq,sql->sl", V, second, V, optimize=True)
    towards = (part.features * part.weights) @ estimate  # E[phi_v times the estimate]
    norm = part.weights @ estimate**2
    distance = variance - 2.0 * np.einsum("spl,pl->sl", V, towards) + norm
    return variance + part.residual, np.maximum(distance, 0.0) + part.residual


# --- inputs that depend on each other ------------------------------------------------------------

# An additive predictor's variance is the sum of its components' covariances with it: each is the
# component's variance (structural) and its covariance with the others (correlative; Li et al. 2010,
# "Global sensitivity analysis for systems with independent and/or correlated inputs").


@dataclasses.dataclass(frozen=True)
class CovarianceDraws:
    """Variances and covariances of components over data, for S posterior draws."""

    names: tuple[str, ...]
    variances: AnyNDArray
    covariances: AnyNDArray


def draw_covariances(
    members: Sequence[InducingMoments],
    X: AnyNDArray,
    weights: AnyNDArray,
    names: Sequence[str],
    num_samples: int,
    seed: int,
    replicates: Sequence[AnyNDArray] = (),
) -> CovarianceDraws:
    """Draws of components' covariances, quadratic forms in V; residual covariance adds its mean."""
    each = -(-num_samples // len(members))
    variances, covariances = [], []
    for i, member in enumerate(members):
        both = [member.features_and_prior(name, member.tangents(name, X)) for name in names]
        V = member.sample(each, seed + i)
        counts = replicates[i :: len(members)] or (weights,)
        for some, count in zip(np.array_split(V, len(counts)), counts):
            w = count / count.sum()
            left = [np.maximum(prior - np.sum(phi**2, axis=0), 0.0) @ w for phi, prior in both]
            features = [phi - (phi @ w)[:, None] for phi, _ in both]
            parts = [some[:, member.block(name)] for name in names]
            # f_c at the rows enters only through inner products: [P, P] rather than [S, C, N]
            rho = np.concatenate(features)
            towards = [(f * w) @ rho.T for f in features]
            together = np.concatenate(parts, axis=1)
            own = [_products(v, (f * w) @ f.T, v) for v, f in zip(parts, features)]
            across = [_products(v, t, together) for v, t in zip(parts, towards)]
            residual = np.array(left)[:, None] * member.entering(names)
            variances.append(np.stack(own, axis=1) + residual)
            covariances.append(np.stack(across, axis=1) + residual)
    return CovarianceDraws(tuple(names), np.concatenate(variances), np.concatenate(covariances))


def _products(left: AnyNDArray, Q: AnyNDArray, right: AnyNDArray) -> AnyNDArray:
    """``left' Q right`` of each draw, [S, L], from [S, P, L], [P, R] and [S, R, L]."""
    outputs = range(left.shape[2])
    return np.stack([np.sum((left[:, :, i] @ Q) * right[:, :, i], axis=1) for i in outputs], axis=1)
