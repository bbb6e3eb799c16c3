"""Grids of nodes of inputs, decompositions of functions on them, and draws of their variances."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Combination, Kernel
from scipy.linalg import eigh_tridiagonal

from ..kernels import (
    AdditiveKernel,
    ZeroMean,
    kernel_columns,
)
from ..kernels.fixed_inputs import FixedInputKernel
from ..measures import Empirical, Measure
from ..posteriors.inducing import AugmentedMoments, InducingMoments
from ..threads import SMALL, one_blas_thread

Columns = tuple[int, ...]

NUM_POINTS, MAX_POINTS = 16_000, 120_000
"""Points of the grid of one component: about, unless nodes are the least, and at most."""
_LEAST_NODES = 4
_GAUSS_NODES = 200  # at most: functions between inducing inputs are smooth, and more take minutes


class ProductGrid:
    """Nodes of independent inputs, combined as components need them."""

    def __init__(self, measures: Mapping[int, Measure], subsets: Sequence[Columns]) -> None:
        self.margins: dict[int, tuple[AnyNDArray, AnyNDArray]] = {}
        """Nodes [Q] and weights [Q] of every column."""
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
            number = max(int(NUM_POINTS ** (1.0 / widest) + 1e-9), _LEAST_NODES)
            if number**widest > MAX_POINTS and len(measure.nodes()[1]) > _LEAST_NODES:
                raise ValueError(
                    f"a component reads {widest} columns, too many for a grid of nodes; split it "
                    "into components of fewer columns."
                )
            if isinstance(measure, Empirical) and len(measure.points) > number:
                points, number = measure.points[:, 0], min(number, _GAUSS_NODES)
                margin = gauss_rule(points, measure.probabilities, number)
            else:
                nodes, weights = (np.asarray(a) for a in measure.thinned(number).nodes())
                margin = nodes[:, 0], weights
            self.margins[column] = margin

    def reweighted(self, weights: Mapping[int, AnyNDArray]) -> ProductGrid:
        """These nodes with other weights."""
        other = copy.copy(self)
        other.margins = self.margins | {c: (self.margins[c][0], w) for c, w in weights.items()}
        return other

    def coarser(self, columns: Columns, number: int) -> ProductGrid:
        """A grid of some of the nodes, at even quantiles of each column."""
        most = max(2, int(number ** (1.0 / max(len(columns), 1)) + 1e-9))
        other = copy.copy(self)
        other.margins = dict(self.margins)
        for column in columns:
            nodes, weights = self.margins[column]
            if len(nodes) > most:
                order = np.argsort(nodes)
                below = np.cumsum(weights[order]) / np.sum(weights)
                at = np.searchsorted(below, (np.arange(most) + 0.5) / most)
                chosen, counts = np.unique(np.minimum(at, len(nodes) - 1), return_counts=True)
                other.margins[column] = nodes[order[chosen]], counts / most
        return other

    def shape(self, columns: Columns) -> tuple[int, ...]:
        """Number of nodes of each column."""
        return tuple(len(self.margins[c][1]) for c in columns)

    def points(self, columns: Columns, width: int) -> AnyNDArray:
        """All combinations as rows of X [Q, width], the last column fastest; zero elsewhere."""
        X = np.zeros((int(np.prod(self.shape(columns))), width))
        mesh = np.meshgrid(*[self.margins[c][0] for c in columns], indexing="ij")
        for column, values in zip(columns, mesh):
            X[:, column] = values.ravel()
        return X

    def joint_weights(self, columns: Columns) -> AnyNDArray:
        """The weight [Q] of each row of :meth:`points`."""
        weights = np.ones(1)
        for column in columns:
            weights = np.outer(weights, self.margins[column][1]).ravel()
        return weights


def gauss_rule(
    points: AnyNDArray, weights: AnyNDArray, number: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes [Q] and weights that average polynomials of degree 2 Q - 1 as all points do."""
    # Lanczos' recursion for the measure's orthogonal polynomials (Golub & Welsch 1969)
    centre, scale = weights @ points, float(np.ptp(points))
    x, basis = (points - centre) / scale, [np.sqrt(weights)]
    diagonal, off = [], []
    for _ in range(number):
        diagonal.append(basis[-1] @ (x * basis[-1]))
        known, new = np.stack(basis), x * basis[-1]
        for _ in range(2):  # against rounding
            new = new - known.T @ (known @ new)
        off.append(float(np.linalg.norm(new)))
        basis.append(new / off[-1])
    nodes, vectors = eigh_tridiagonal(diagonal, off[:-1])
    return centre + scale * nodes, np.square(vectors[0])


def component_columns(kernel: AdditiveKernel) -> dict[str, Columns]:
    """The columns that each component reads, sorted: as sets."""
    result = {}
    for name, columns in zip(kernel.names, kernel.columns):
        if columns is None:
            raise ValueError(
                f"component {name!r} reads every column; give its kernel active_dims=[...]."
            )
        result[name] = tuple(sorted(columns))
    return result


def measures_of(kernel: AdditiveKernel) -> dict[int, Measure]:
    """The measures that a kernel's zero-mean components are centred under, by column."""
    result: dict[int, Measure] = {}
    for part in _zero_mean_parts(kernel.kernels):
        columns = kernel_columns(part)
        if columns is None or len(columns) != 1:
            continue
        known = result.setdefault(columns[0], part.measure)
        pairs = zip(known.nodes(), part.measure.nodes())
        if not all(np.array_equal(a, b) for a, b in pairs):
            raise ValueError(
                f"components are centred under {known!r} and {part.measure!r} of column "
                f"{columns[0]}; say which one is meant: measures={{{columns[0]}: ...}}."
            )
    return result


def _zero_mean_parts(kernels: Sequence[Kernel]) -> list[ZeroMean]:
    result: list[ZeroMean] = []
    for kernel in kernels:
        if isinstance(kernel, ZeroMean):
            result.append(kernel)
        elif isinstance(kernel, Combination):
            result += _zero_mean_parts(kernel.kernels)
    return result


_NEGLIGIBLE = 1e-10
"""Share of the features below which effects are zero: rounding, of a centred component."""


class GridFeatures:
    """Features of components at all nodes, and the variances that inducing inputs leave open."""

    def __init__(self, moments: InducingMoments, places: Mapping[str, FixedInputKernel]) -> None:
        self.moments = moments
        self.features: dict[str, AnyNDArray] = {}  # [M_c, Q_c]
        self.left: dict[str, AnyNDArray] = {}  # [Q_c]
        for name, tangents in places.items():
            phi, prior = moments.features_and_prior(name, tangents)
            self.features[name] = phi
            self.left[name] = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)

    def functions(self, V: AnyNDArray) -> dict[str, AnyNDArray]:
        """Components of inducing values V [S, P, L] at all nodes, [S, L, Q_c] each."""
        S, P, L = V.shape
        rows, block = np.moveaxis(V, 1, 2).reshape(-1, P), self.moments.block
        pairs = self.features.items()
        return {n: (rows[:, block(n)] @ phi).reshape(S, L, -1) for n, phi in pairs}

    def least(self) -> dict[str, float]:
        """Size of a function of each component that counts as none."""
        pairs = self.features.items()
        return {n: _NEGLIGIBLE * float(np.abs(phi).max(initial=0.0)) for n, phi in pairs}

    def residual(self, grid: ProductGrid) -> dict[Columns, AnyNDArray]:
        """Variances that inputs leave open, which count with all columns of a component, [L]."""
        result: dict[Columns, AnyNDArray] = {}
        reads = component_columns(self.moments.kernel)
        for name, left in self.left.items():
            own = (left @ grid.joint_weights(reads[name])) * self.moments.entering([name])[0]
            result[reads[name]] = result.get(reads[name], 0.0) + own
        return result


def decompose(
    functions: Mapping[str, AnyNDArray],
    reads: Mapping[str, Columns],
    least: Mapping[str, float],
    grid: ProductGrid,
) -> dict[Columns, AnyNDArray]:
    """Effects [S, L, Q] of every set of columns that some component has one of, weighted alike."""
    result: dict[Columns, AnyNDArray] = {}
    for name, values in functions.items():
        columns = reads[name]
        flat = values.reshape(-1, *grid.shape(columns))
        for axes, part in split(flat, [grid.margins[c][1] for c in columns]).items():
            whole = len(axes) == len(columns)
            if whole or (axes and np.abs(part).max(initial=0.0) > least[name]):
                subset = tuple(columns[i] for i in axes)
                result[subset] = result.get(subset, 0.0) + part.reshape(*values.shape[:2], -1)
    return result


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


# --- distributions of variances -------------------------------------------------------------------


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


_TOGETHER = 16  # draws that are decomposed at a time
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
        sizes, turns = _turns(reference, members, grid, num_samples, seed, replicates)
    # other weights bring effects about that vanish under the first
    subsets = {s for _, result in turns for s in result} | set(sizes)
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
) -> tuple[dict[Columns, AnyNDArray], list[_Turn]]:
    """Sizes of the estimate's terms; numbers of draws that share weights, with their terms."""
    reads, width = component_columns(reference.kernel), reference.kernel.num_columns
    points = {n: grid.points(columns, width) for n, columns in reads.items() if columns}
    tangents = {n: reference.tangents(n, X) for n, X in points.items()}
    fitted = GridFeatures(reference, tangents)
    estimate, least = fitted.functions(reference.mean[None]), fitted.least()
    sizes = {
        s: np.square(values[0]) @ grid.joint_weights(s)
        for s, values in decompose(estimate, reads, least, grid).items()
    }
    each = -(-num_samples // len(members))
    turns: list[_Turn] = []
    for i, member in enumerate(members):
        own, places = fitted, tangents
        if member is not reference:
            if member._source is not reference._source:  # whose pairs of points are compared
                places = {n: member.tangents(n, X) for n, X in points.items()}
            own = GridFeatures(member, places)
        V = member.sample(each, seed + i)
        grids = replicates[i :: len(members)] or [grid] * -(-each // _TOGETHER)
        grids = grids[:each]  # each of them has a draw
        for some, weighted in zip(np.array_split(V, len(grids)), grids):
            drawn, number = own.functions(some), len(some)
            both = {n: np.concatenate([values, estimate[n]]) for n, values in drawn.items()}
            result, left = {}, own.residual(weighted)
            for s, values in decompose(both, reads, least, weighted).items():
                w, open_ = weighted.joint_weights(s), left.get(s, 0.0)
                away = np.square(values[:number] - values[number:])
                result[s] = np.square(values[:number]) @ w + open_, away @ w + open_
            turns.append((number, result))
    return sizes, turns


# --- inputs that depend on each other ------------------------------------------------------------

# An additive predictor's variance is the sum of its components' covariances with it: each is the
# component's variance (structural) and its covariance with the others (correlative; Li et al. 2010,
# "Global sensitivity analysis for systems with independent and/or correlated inputs").


def draw_covariances(
    members: Sequence[InducingMoments],
    X: AnyNDArray,
    weights: AnyNDArray,
    names: Sequence[str],
    num_samples: int,
    seed: int,
    replicates: Sequence[AnyNDArray] = (),
) -> tuple[AnyNDArray, AnyNDArray]:
    """Draws [S, C, L] of components' variances, and of their covariances with the predictor."""
    # quadratic forms in V, to which residual covariance adds its mean
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
    return np.concatenate(variances), np.concatenate(covariances)


def _products(left: AnyNDArray, Q: AnyNDArray, right: AnyNDArray) -> AnyNDArray:
    """``left' Q right`` of each draw, [S, L], from [S, P, L], [P, R] and [S, R, L]."""
    return np.einsum("spl,pr,srl->sl", left, Q, right, optimize=True)
