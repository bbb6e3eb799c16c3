"""The evidence of Gaussian pseudo-data in hyperparameters, and components at rows and nodes."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Constant, Kernel, Stationary
from scipy.linalg import lapack, solve_triangular
from scipy.spatial.distance import cdist

from ...covariances import own_jitter
from ...errors import NotPositiveDefinite
from ...inducing_variables import pivoted_cholesky
from ...kernels import (
    CentredLinear,
    Factor,
    Indicator,
    IntegratedOU,
    MarkovField,
    Summed,
    Warped,
    kernel_columns,
)
from ...kernels.correlation import Values, leaves_of, lookup, parameters_of
from ...kernels.fixed_inputs import FixedInputKernel, Gradients, fixed_input_kernel
from ...kernels.shaped import level_columns, shaped_part
from ...storage import RowArray
from ...threads import each
from .bins import Bins


@dataclasses.dataclass(frozen=True)
class GaussianPosterior:
    """q(V) = N(mean, covariance) over whitened inducing values, blocks in the components' order."""

    mean: AnyNDArray  # [P, L]
    covariance: AnyNDArray  # [L, P, P]
    log_det: AnyNDArray  # of the covariance, [L]
    precision: AnyNDArray  # Lambda = covariance^-1 - I, [L, P, P]
    shift: AnyNDArray  # [P, L]
    roots: tuple[AnyNDArray, ...]  # Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each

    def kl(self) -> float:
        """KL[q(V) || N(0, I)], summed over outputs."""
        P, L = self.mean.shape
        trace = np.trace(self.covariance, axis1=1, axis2=2).sum()
        return 0.5 * float(trace + np.sum(self.mean**2) - P * L - self.log_det.sum())

    def kl_to(self, other: GaussianPosterior) -> float:
        """KL[q(V) || other], summed over outputs; of the same roots."""
        away = self.mean - other.mean
        total = float(np.sum(other.log_det - self.log_det) - away.size + np.sum(away**2))
        for i, (S, Lambda) in enumerate(zip(self.covariance, other.precision)):
            total += float(np.trace(S) + np.vdot(Lambda, S) + away[:, i] @ Lambda @ away[:, i])
        return 0.5 * total


def slices(sizes: Sequence[int]) -> list[slice]:
    """Slices of consecutive blocks of these sizes."""
    return [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *sizes]).tolist())]


def posterior_of(
    precision: AnyNDArray, shift: AnyNDArray, roots: Sequence[AnyNDArray]
) -> GaussianPosterior:
    """N(S shift, S) with ``S = (I + precision)^-1``; NotPositiveDefinite if there is none."""
    factors = [factorised(p) for p in precision]
    means = [lapack.dpotrs(f, s, lower=1)[0] for f, s in zip(factors, shift.T)]
    return GaussianPosterior(
        np.stack(means, axis=1),
        np.stack([inverse(f) for f in factors]),
        np.array([-2.0 * np.log(np.diag(f)).sum() for f in factors]),
        precision,
        shift,
        tuple(roots),
    )


def factorised(precision: AnyNDArray) -> AnyNDArray:
    """The Cholesky factor of I + precision [P, P]."""
    return _cholesky(precision + np.eye(len(precision)))


def _cholesky(matrix: AnyNDArray) -> AnyNDArray:
    root, info = lapack.dpotrf(matrix, lower=1, clean=1)
    if info != 0:
        raise NotPositiveDefinite
    return root


def inverse(factor: AnyNDArray) -> AnyNDArray:
    """The inverse of a matrix from its Cholesky factor, which is zero above the diagonal."""
    triangle, _ = lapack.dpotri(factor, lower=1)
    whole: AnyNDArray = triangle + triangle.T
    whole.flat[:: len(whole) + 1] *= 0.5
    return whole


@dataclasses.dataclass(frozen=True)
class PseudoData:
    """Sums of the Gaussian sites of all rows, with b_n [R] row n's interpolation from all nodes."""

    precision: AnyNDArray  # sum_n w_n b_n b_n', [L, R, R]
    shift: AnyNDArray  # sum_n shift_n b_n, [R, L]
    masses: tuple[AnyNDArray, ...]  # sums of w_n by points of residual variance, [L, E_c] each

    def __add__(self, other: PseudoData) -> PseudoData:
        masses = tuple(a + b for a, b in zip(self.masses, other.masses))
        return PseudoData(self.precision + other.precision, self.shift + other.shift, masses)

    def __mul__(self, factor: float) -> PseudoData:
        masses = tuple(factor * m for m in self.masses)
        return PseudoData(factor * self.precision, factor * self.shift, masses)

    def shifted(self, shift: AnyNDArray) -> PseudoData:
        """The same precision, with ``shift`` [R, L] added to the shifts."""
        return PseudoData(self.precision, self.shift + shift, self.masses)

    def towards(self, other: PseudoData, share: float) -> PseudoData:
        """The mixture ``(1 - share) self + share other``."""
        if share == 1.0:
            return other  # without copies of its precision, the largest array of a fit
        return self * (1.0 - share) + other * share


@dataclasses.dataclass(frozen=True)
class Places:
    """A component's kernel at its nodes and points of residual variance."""

    tangents: FixedInputKernel  # between inducing inputs and [nodes, points of residual variance]
    nodes: int  # the number of nodes, J
    at_nodes: FixedInputKernel  # between inducing inputs and nodes
    parameters: tuple[Parameter, ...]  # of the kernel
    points: AnyNDArray  # nodes, then points of residual variance, [J + E, D]
    kernel: Kernel

    @classmethod
    def of(cls, kernel: Kernel, Z: AnyNDArray, nodes: AnyNDArray, others: AnyNDArray) -> Places:
        """Nodes [J, D] and others [E, D] of a component with inducing inputs Z [M, D]."""
        points = np.concatenate([nodes, others])
        both, at_nodes = fixed_input_kernel(kernel, Z, points), fixed_input_kernel(kernel, Z, nodes)
        return cls(both, len(nodes), at_nodes, tuple(parameters_of(kernel)), points, kernel)


class Evidence:
    r"""
    The bound on the evidence of pseudo-data, and its gradient.

    .. math:: \log Z = -\tfrac12 \log|I + \Lambda| + \tfrac12 \eta' (I + \Lambda)^{-1} \eta
              - \tfrac12 \sum_n w_n \sum_c (k_c(x_n, x_n) - |\phi_c(x_n)|^2)

    with :math:`\Lambda = \sum_n w_n \phi_n \phi_n'` and :math:`\eta = \sum_n s_n \phi_n`: the
    collapsed bound of Titsias (2009) with a precision for each row. Where sites are those of q, its
    gradient in hyperparameters is the ELBO's (Adam, Chang, Khan & Solin 2021). For the slopes of
    Cholesky factors see Murray (2016). ``scale`` multiplies weights and shifts.
    """

    def __init__(self, places: Sequence[Places], jitter: float) -> None:
        self.places = list(places)
        self._jitters = [own_jitter(jitter, p.kernel, tf.float64) for p in self.places]
        # each component as last evaluated: second derivatives move one at a time
        self._last: list[tuple[bytes, Block] | None] = [None] * len(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def posterior(self, data: PseudoData, values: Values, scale: float = 1.0) -> GaussianPosterior:
        roots, features = zip(*(self._at_nodes(c, values) for c in range(len(self))))
        at_data = Projection(features, data, scale)
        # exactly symmetric, as models that store it make it
        Lambda = 0.5 * (at_data.Lambda + np.swapaxes(at_data.Lambda, 1, 2))
        return posterior_of(Lambda, at_data.eta, roots)

    def response(self, data: PseudoData, values: Values, shifts: AnyNDArray) -> AnyNDArray:
        """``s_i' Phi' S Phi s_j`` of shifts [K, R, L]: effects through the mean, [K, K]."""
        features = [self.features(values, c) for c in range(len(self))]
        at_data = Projection(features, data, 1.0)
        total = np.zeros((len(shifts), len(shifts)))
        for i, Lambda in enumerate(at_data.Lambda):
            phi_s = np.concatenate(
                [phi @ shifts[:, at, i].T for phi, at in zip(features, at_data.nodes)]
            )
            total += phi_s.T @ lapack.dpotrs(factorised(Lambda), phi_s, lower=1)[0]
        return total

    def features(self, values: Values, which: int) -> AnyNDArray:
        """Features of a component at its nodes, [M_c, J_c]."""
        return self._at_nodes(which, values)[1]

    def block(self, which: int, values: Values) -> Block:
        return Block(self.places[which], values, self._jitters[which])

    def blocks(self, values: Values) -> list[Block]:
        """All components at values of their parameters."""
        blocks = []
        for i, (places, jitter) in enumerate(zip(self.places, self._jitters)):
            key = b"".join(np.asarray(values(p)).tobytes() for p in places.parameters)
            last = self._last[i]
            if last is None or last[0] != key:
                last = self._last[i] = key, Block(places, values, jitter)
            blocks.append(last[1])
        return blocks

    def part(self, which: int) -> Evidence:
        evidence = Evidence(self.places[which : which + 1], 0.0)
        evidence._jitters = self._jitters[which : which + 1]
        return evidence

    def _at_nodes(self, which: int, values: Values) -> tuple[AnyNDArray, AnyNDArray]:
        K, Kzx, _ = self.places[which].at_nodes.matrices(values)
        root = _root(K, _jitter_of(K, self._jitters[which]))
        phi, _ = lapack.dtrtrs(root, Kzx, lower=1)
        return root, phi


def _jitter_of(K: AnyNDArray, jitter: float) -> float:
    """The relative jitter of a component's k(Z, Z): none if it is diagonal."""
    return jitter if np.count_nonzero(K) > np.count_nonzero(K.diagonal()) else 0.0


def _root(K: AnyNDArray, jitter: float) -> AnyNDArray:
    """The Cholesky factor of a component's k(Z, Z), with jitter as in InducingBlocks."""
    M = len(K)
    trace = float(np.trace(K))
    added = jitter * trace / M if trace > 0.0 else 1.0
    return _cholesky(K + added * np.eye(M))


class Projection:
    """Pseudo-data in the basis of features, [M_c, J_c] of each component at its nodes."""

    def __init__(self, features: Sequence[AnyNDArray], data: PseudoData, scale: float) -> None:
        self.inducing = slices([len(phi) for phi in features])
        self.nodes = slices([phi.shape[1] for phi in features])
        P, (R, L) = sum(len(phi) for phi in features), data.shift.shape
        self.eta = np.zeros((P, L))  # Phi s, [P, L]
        self.half = np.zeros((L, P, R))  # Phi A, [L, P, R]
        self.Lambda = np.zeros((L, P, P))  # Phi A Phi', [L, P, P]
        for phi, rows, at in zip(features, self.inducing, self.nodes):
            self.eta[rows] = scale * (phi @ data.shift[at])
        for A, half, Lambda in zip(data.precision, self.half, self.Lambda):
            for phi, rows, at in zip(features, self.inducing, self.nodes):
                half[rows] = scale * (phi @ A[at])
            for phi, rows, at in zip(features, self.inducing, self.nodes):
                Lambda[:, rows] = half[:, at] @ phi.T


class Block:
    """One component's Cholesky factor and features at values of its parameters."""

    def __init__(self, places: Places, values: Values, jitter: float) -> None:
        (K, Kzx, diagonal), self.pullback = places.tangents.evaluate(values)
        self.jitter = _jitter_of(K, jitter)
        self.root = _root(K, self.jitter)
        self.inverse, _ = lapack.dtrtri(self.root, lower=1)
        self.features = self.inverse @ Kzx
        self.nodes = places.nodes
        self.phi = self.features[:, : self.nodes]
        # k(x, x) - |phi(x)|^2 at the points of residual variance, [E]; negative from rounding, it
        # would seem to be a gain that grows with the number of rows
        phi = self.features[:, self.nodes :]
        residual = diagonal[self.nodes :] - np.einsum("me,me->e", phi, phi)
        self._positive = residual > 0.0
        self.residual_variance = np.where(self._positive, residual, 0.0)

    def gradient(self, phi_bar: AnyNDArray, mass: AnyNDArray) -> Gradients:
        """Gradients in parameters from those in features, nodes first, and weights of residuals."""
        mass = np.where(self._positive, mass, 0.0)
        upstream = np.zeros_like(self.features)
        upstream[:, : phi_bar.shape[1]] = phi_bar
        upstream[:, self.nodes :] += mass * self.features[:, self.nodes :]
        M = len(upstream)
        inner = np.tril(upstream @ self.features.T)
        inner.flat[:: M + 1] *= 0.5
        K_bar = self.inverse.T @ inner @ self.inverse
        K_bar = -0.5 * (K_bar + K_bar.T)
        K_bar.flat[:: M + 1] += self.jitter * np.trace(K_bar) / M
        diagonal_bar = np.concatenate([np.zeros(self.nodes), -0.5 * mass])
        return self.pullback((K_bar, self.inverse.T @ upstream, diagonal_bar))


class EvidenceEvaluation:
    """The bound at one set of parameters."""

    def __init__(
        self, evidence: Evidence, data: PseudoData, values: Values, scale: float = 1.0
    ) -> None:
        self.scale = scale
        self.blocks = evidence.blocks(values)
        self.masses = [scale * m.sum(axis=0) for m in data.masses]
        self.data = data
        self.projection = at_data = Projection([b.phi for b in self.blocks], data, scale)
        self.factors = [factorised(Lambda) for Lambda in at_data.Lambda]
        self.mean = np.stack(
            [lapack.dpotrs(f, s, lower=1)[0] for f, s in zip(self.factors, at_data.eta.T)], axis=1
        )
        value = -sum(np.log(np.diag(f)).sum() for f in self.factors)
        value += 0.5 * float(np.sum(at_data.eta * self.mean))
        value -= 0.5 * sum(float(m @ b.residual_variance) for m, b in zip(self.masses, self.blocks))
        if not np.isfinite(value):
            raise NotPositiveDefinite
        self.value = float(value)

    def data_of(self, which: int) -> PseudoData:
        """Pseudo-data of one component, whose evidence is that of all, but for a constant."""
        at_data = self.projection
        rows, at, others = at_data.inducing[which], at_data.nodes[which], self.covariances
        precision, shift = [], []
        for i, (S, half) in enumerate(zip(others, at_data.half)):
            # the covariance of all others, zero in this one's rows
            rest = S - S[:, rows] @ np.linalg.solve(S[rows, rows], S[rows])
            seen = rest @ half[:, at]
            precision.append(self.scale * self.data.precision[i][at, at] - half[:, at].T @ seen)
            shift.append(self.scale * self.data.shift[at, i] - seen.T @ at_data.eta[:, i])
        masses = (self.scale * self.data.masses[which],)
        return PseudoData(np.stack(precision), np.stack(shift, axis=1), masses)

    def feature_slopes(self) -> list[AnyNDArray]:
        """Gradients in the features of each component at its nodes, [M_c, J_c]."""
        at_data = self.projection
        bars = [np.zeros_like(b.phi) for b in self.blocks]
        for i, slope in enumerate(self.slopes):
            mu = self.mean[:, i]
            for bar, rows, at in zip(bars, at_data.inducing, at_data.nodes):
                bar += 2.0 * (slope[rows] @ at_data.half[i][:, at])
                bar += self.scale * np.outer(mu[rows], self.data.shift[at, i])
        return bars

    def gradient(self) -> tuple[dict[int, AnyNDArray], float]:
        """Gradients by parameters' ``id``, and the slope in the logarithm of the scale."""
        parts = zip(self.blocks, self.feature_slopes(), self.masses)
        gradients = added(block.gradient(bar, mass) for block, bar, mass in parts)
        return gradients, self._slope(self.projection, self.masses)

    def along(self, change: PseudoData) -> float:
        """The derivative in a factor of data that are added to these."""
        at_data = Projection([b.phi for b in self.blocks], change, self.scale)
        return self._slope(at_data, [self.scale * m.sum(axis=0) for m in change.masses])

    def _slope(self, at_data: Projection, masses: Sequence[AnyNDArray]) -> float:
        slope = float(np.sum(self.mean * at_data.eta))
        slope += sum(float(np.vdot(s, L)) for s, L in zip(self.slopes, at_data.Lambda))
        for block, mass in zip(self.blocks, masses):
            slope -= 0.5 * float(mass @ block.residual_variance)
        return slope

    @functools.cached_property
    def covariances(self) -> list[AnyNDArray]:
        """The posterior's covariance of each output, [P, P]."""
        return [inverse(factor) for factor in self.factors]

    @functools.cached_property
    def slopes(self) -> list[AnyNDArray]:
        """Gradients in Lambda of each output, [P, P]."""
        return [-0.5 * (S + np.outer(mu, mu)) for S, mu in zip(self.covariances, self.mean.T)]


def added(gradients: Iterable[Gradients]) -> dict[int, AnyNDArray]:
    """Sums of gradients by parameters' ``id``: components may share parameters."""
    sums: dict[int, AnyNDArray] = {}
    for parameter, gradient in itertools.chain.from_iterable(gradients):
        sums[id(parameter)] = sums.get(id(parameter), 0.0) + gradient
    return sums


# --- components at rows: bins, nodes between which they are interpolated, residual variance -------


@dataclasses.dataclass(frozen=True)
class Interpolation:
    """``f(points) ~ matrix f(points[nodes])`` for every function that is at least as smooth."""

    nodes: AnyNDArray  # indices of points, [J]
    matrix: AnyNDArray | None  # [G, J]; None for the identity


def identity(number: int) -> Interpolation:
    """An interpolation whose nodes are all points."""
    return Interpolation(np.arange(number), None)


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
_RESIDUAL_OF_SUMS = 128  # number of rows of sums over many points
_BETWEEN = (Stationary, IntegratedOU, CentredLinear, Indicator, Constant)
"""Kernels of functions that continue between the points of data."""
_WHOLE = (Warped,)  # kernels whose lengthscale is not their base's
_LEAST_OF_LEVEL = 4  # least number of candidates of each combination of levels
_TOLERANCE = 1e-6
"""
Residual variance between nodes, relative to the variance of the roughest functions. The covariance
of functions three times as smooth is then off by 1e-3 of their variance at most.
"""
_FEW_NODES = 48  # number of nodes that suffices if they leave no more than the next
_FEW_TOLERANCE = 1e-3  # Matern-5/2 would take 130 nodes to leave 1e-6; estimates differ by .01 sd
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
        multiplier = None if self.multiplier is None else self.multiplier[which]
        bins = dataclasses.replace(self.bins, codes=self.bins.codes[which], counts=None)
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
    if isinstance(kernel, Summed):  # of a function at points, which its nodes determine
        parts = kernel.evaluations(points)
        single = kernel.single(parts.points, points.shape[1])
        inner = _nodes(kernel.base, parts.points, len(kernel.slots[0]) - 1, len(Z), refined)
        nodes, matrix = single[inner.nodes], parts.matrix()
        weights = matrix.toarray() if inner.matrix is None else matrix @ inner.matrix
        interpolation = Interpolation(np.arange(len(nodes)), weights)
    elif shaped is None:
        interpolation = _nodes(kernel, points, len(columns), len(Z), refined)
        nodes = points[interpolation.nodes]
    else:  # splines, which a few values determine
        nodes = Z
        interpolation = Interpolation(np.arange(len(nodes)), shaped.weights(points))
    between = all(isinstance(leaf, _BETWEEN) for leaf in leaves_of(kernel, _WHOLE))
    weight = bins.mass() if mass is None else mass
    many = _RESIDUAL_OF_SUMS if isinstance(kernel, Summed) else _RESIDUAL_OF_MANY
    several = len(columns) != 1 or isinstance(kernel, Summed)
    others, residual_bins = _residual_points(
        points, weight, columns, between, len(Z), many if several else None
    )
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
    many: int | None,
) -> tuple[AnyNDArray, AnyNDArray]:
    """Points [E, D] of residual variance, ``many`` unless of a curve, and the one of each, [G]."""
    number, limit = len(points), max(_RESIDUAL, _RESIDUAL_EACH * num_inducing)
    if many is not None:
        if number <= many:
            return points, np.arange(number)
        # neighbours along the last column, by the heaviest of them
        order = np.lexsort(points[:, list(columns)].T[::-1])
        groups = np.empty(number, dtype=int)
        groups[order] = np.arange(number) * many // number
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
    differ = np.flatnonzero(np.ptp(points, axis=0))
    others = points[:, differ[differ != column]]
    off = np.zeros(number, dtype=int)
    if others.size:  # sorting rows takes long even where all are equal
        off = np.ravel(np.unique(others, axis=0, return_inverse=True)[1])
    places = off * (len(edges) + 1) + np.searchsorted(edges, values, side="right")
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
    levels = level_columns(kernel, (Factor, MarkovField))
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
    few = max(_FEW_NODES, _NODES_EACH * num_inducing)
    _, chosen, left = pivoted_cholesky(np.diag(K), K.__getitem__, few, tolerance)
    if columns > 1 or refined or levels or np.max(left) > _FEW_TOLERANCE:
        _, chosen, _ = pivoted_cholesky(np.diag(K), K.__getitem__, max_nodes, tolerance)
    if len(chosen) > 0.8 * number or (len(chosen) == max_nodes and number <= 2 * max_nodes):
        return identity(number)
    nodes = candidates[chosen]
    towards = fixed_input_kernel(kernel, points[nodes], points)
    parts = [(weight, towards.matrices(lookup(values))) for weight, values in scales]
    inner = np.asarray(sum(weight * matrices[0] for weight, matrices in parts))
    outer = sum(weight * matrices[1] for weight, matrices in parts)
    root = np.linalg.cholesky(inner + 1e-12 * np.trace(inner) * np.eye(len(inner)))
    half = solve_triangular(root, outer, lower=True)
    return Interpolation(nodes, solve_triangular(root.T, half, lower=False).T)


def _candidates(points: AnyNDArray, levels: Collection[int], limit: int) -> AnyNDArray:
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
    distance = cdist(scaled, scaled[chosen], "sqeuclidean").min(axis=1)
    while len(chosen) < limit:
        farthest = int(np.argmax(distance))
        chosen.append(farthest)
        moved = np.sum(np.square(scaled - scaled[farthest]), axis=1)
        distance = np.minimum(distance, moved)
    return np.unique(chosen)


def _shortest(kernel: Kernel, factor: float) -> Mapping[int, AnyNDArray] | None:
    """Short lengthscales by the ids of parameters; None for a kernel that is not known well."""
    shortest: dict[int, AnyNDArray] = {}
    for leaf in leaves_of(kernel, _WHOLE):
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


def _unit_variances(kernel: Kernel, points: AnyNDArray) -> list[tuple[Parameter, AnyNDArray]]:
    """Trainable variances of a kernel's parts, and values at which the parts have size one."""
    variances = []
    for leaf in leaves_of(kernel, _WHOLE):
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


def encoded(components: Sequence[RowComponent], at: slice | AnyNDArray) -> Encoded:
    """The rows in a slice, or of these numbers."""
    return Encoded(
        [c.bins.codes[at] for c in components],
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
