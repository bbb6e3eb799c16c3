"""Posteriors of components with a shape: Gaussians, and draws of them, projected on a cone."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from ..covariances import BlockLayout, Features
from ..kernels.fixed_inputs import FixedInputKernel
from ..kernels.shaped import shaped_part
from ..variational import WhitenedGaussian
from .base import SparseAdditivePosterior
from .inducing import NEGLIGIBLE, InducingMoments

_LEAST_SD = 1e-2  # against the Gaussian's own, what is left of a deviation that is projected away
_NULL_DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class ProjectedDraws:
    """Draws ``mean + root u``, the mean first: free, projected [S, P], walls touched [P, r]."""

    root: AnyNDArray
    free: AnyNDArray
    projected: AnyNDArray
    touching: list[tuple[AnyNDArray, AnyNDArray]]


class Projection:
    """
    N(mean, covariance) projected on the cone of x with ``rows x >= 0``.

    A draw becomes the nearest point of the cone in the Gaussian's own metric. Projected draws
    concentrate as the Gaussian's do, and so do bands around a function in the cone (Lin & Dunson
    2014, "Bayesian monotone regression using Gaussian process projection"; Sen, Patra & Dunson
    2018). A truncated Gaussian is pushed away from where a function is flat (Zhou, Ray, Pati &
    Bhattacharya 2024, "A mass-shifting phenomenon of truncated multivariate normal priors").
    """

    def __init__(self, mean: AnyNDArray, covariance: AnyNDArray, rows: AnyNDArray) -> None:
        values, vectors = np.linalg.eigh(covariance)
        sd = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
        # the symmetric root: rounding turns no axes, and so changes no draw
        self._mean, self._root = mean, (vectors * sd) @ vectors.T
        self._inverse = (vectors / sd) @ vectors.T
        # x = root u, u of unit covariance; of u rows see W u alone, W orthonormal [r, P]
        left, sizes, W = np.linalg.svd(rows @ self._root, full_matrices=False)
        seen = sizes > 1e-12 * sizes.max(initial=0.0)
        walls = left[:, seen] * sizes[seen]
        length = np.linalg.norm(walls, axis=1, keepdims=True)
        self._walls = walls / np.where(length > 0.0, length, 1.0)
        self._W = W[seen]
        self._centre: AnyNDArray = self._W @ (self._inverse @ mean)

    def _moves(self, z: AnyNDArray) -> AnyNDArray:
        """Steps that lead from W u = z [S, r] to the cone."""
        moves = np.zeros_like(z)
        outside = np.flatnonzero(np.any(z @ self._walls.T < 0.0, axis=1))
        for i in outside:
            # what leads there is a sum of walls' normals, pushed by none that is not touched
            moves[i] = self._pushes(z[i]) @ self._walls
        return moves

    def _pushes(self, z: AnyNDArray) -> AnyNDArray:
        """Multipliers of the walls, [n], that take z [r] to the nearest point of the cone."""
        if not len(self._walls):  # which ends the process in some versions of scipy
            return np.zeros(0)
        return nnls(self._walls.T, -z, maxiter=50 * len(self._walls))[0]

    @functools.cached_property
    def _step(self) -> AnyNDArray:
        return self._moves(self._centre[None, :])[0]

    @property
    def mean(self) -> AnyNDArray:
        """The projection of the mean, [P]: where the density is greatest in the cone."""
        return self._mean + self._root @ (self._step @ self._W)

    @property
    def derivative(self) -> AnyNDArray:
        """Derivative of the projected mean in the mean, [P, P]: along the walls that it touches."""
        touched = self._walls[self._pushes(self._centre) > 0.0] @ self._W
        along, sizes, _ = np.linalg.svd(touched.T, full_matrices=False)
        along = along[:, sizes > 1e-9]
        result: AnyNDArray = np.eye(len(self._mean)) - self._root @ along @ (
            along.T @ self._inverse
        )
        return result

    def covariance(self, number: int, seed: int = 0) -> AnyNDArray:
        """``E[(x - m) (x - m)']`` of projected draws x around the projected mean m, [P, P]."""
        r, P = self._W.shape
        half = np.random.default_rng(seed).standard_normal((max(-(-number // 2), 2 * r), P))
        noise = _antithetic(half @ self._W.T)
        away = noise + self._moves(self._centre + noise) - self._step
        inner = away.T @ away / max(len(noise), 1)
        values, vectors = np.linalg.eigh(inner)
        inner = (vectors * np.maximum(values, _LEAST_SD**2)) @ vectors.T
        bound = self._root @ self._W.T
        result: AnyNDArray = self._root @ self._root.T + bound @ (inner @ bound.T - bound.T)
        return 0.5 * (result + result.T)

    def draws(self, number: int, seed: int = 0) -> ProjectedDraws:
        """The mean and draws, each beside its projection."""
        P = len(self._mean)
        half = np.random.default_rng(seed).standard_normal((max(-(-number // 2), 2 * P), P))
        free = np.concatenate([np.zeros((1, P)), _antithetic(half)])
        at = self._centre + free @ self._W.T
        pushes = np.zeros((len(free), len(self._walls)))
        for i in np.flatnonzero(np.any(at @ self._walls.T < 0.0, axis=1)):
            pushes[i] = self._pushes(at[i])
        normals = self._walls @ self._W
        _, first, group = np.unique(pushes > 0.0, axis=0, return_index=True, return_inverse=True)
        touching = []
        for i in np.argsort(first):  # the mean's comes first
            touched = normals[pushes[first[i]] > 0.0]
            touching.append((np.flatnonzero(group.ravel() == i), np.linalg.qr(touched.T)[0]))
        return ProjectedDraws(self._root, free, free + pushes @ normals, touching)

    def sample(self, num_samples: int, rng: np.random.Generator) -> AnyNDArray:
        """Projected draws [S, P]."""
        u = rng.standard_normal((num_samples, len(self._mean)))
        u += self._moves(self._centre + u @ self._W.T) @ self._W
        return self._mean + u @ self._root.T

    def p_value(self, seed: int = 0) -> float:
        """Likelihood-ratio test of the inequalities at the tip (Robertson et al. 1988)."""
        distance = float(np.sum(np.square(self._step)))
        if distance <= 1e-12:
            return 1.0
        noise = np.random.default_rng(seed).standard_normal((_NULL_DRAWS, len(self._centre)))
        null = np.sum(np.square(self._moves(noise)), axis=1)
        return float((1 + np.sum(null >= distance)) / (1 + _NULL_DRAWS))


def _antithetic(half: AnyNDArray) -> AnyNDArray:
    """Draws of covariance I exactly: where no inequality touches nothing is uncertain then."""
    sizes, axes = np.linalg.eigh(half.T @ half / max(len(half), 1))
    half = half @ (axes / np.sqrt(sizes)) @ axes.T
    return np.concatenate([half, -half])


def constraint_evidence(mean: AnyNDArray, covariance: AnyNDArray, rows: AnyNDArray) -> float:
    r"""
    Log Bayes factor of equalities in place of the inequalities that hold a mean, in nats.

    With B the rows that hold the projected mean of N(mean, covariance), the posterior under a
    standard normal prior, it is the ratio of their densities at zero (Dickey 1971),

    .. math:: \log N(0; B \mu, B S B') - \log N(0; 0, B B')
    """
    root = cholesky(covariance, lower=True)
    walls = rows @ root  # of u, where x = root u
    length = np.linalg.norm(walls, axis=1, keepdims=True)
    walls = walls / np.where(length > 0.0, length, 1.0)
    centre = solve_triangular(root, mean, lower=True)
    if np.all(walls @ centre >= 0.0):
        return 0.0
    pushes, _ = nnls(walls.T, -centre, maxiter=50 * len(walls))
    held = pushes > 0.0
    loss = 0.5 * float(np.sum(np.square(pushes @ walls)))
    # rows have the lengths by which walls were divided
    return _log_volume(rows[held] / length[held]) - _log_volume(walls[held]) - loss


def _log_volume(rows: AnyNDArray) -> float:
    """Half the log-determinant of ``rows rows'``, [n, P], of independent ones."""
    triangle = np.linalg.qr(rows.T, mode="r")
    return float(np.sum(np.log(np.abs(np.diag(triangle)))))


_BANK = 2000  # draws that a graph holds


class ShapedValues:
    """Normal V, projected together so that ``rows`` [n_c, P] of it are not negative."""

    def __init__(
        self,
        mean: AnyNDArray,
        covariance: AnyNDArray,
        rows: Mapping[int, AnyNDArray],
        enters: AnyNDArray | None = None,
        number: int = _BANK,
    ) -> None:
        self._free, self._rows = (mean, covariance), dict(rows)
        self._enters, self._number = enters, number

    @functools.cached_property
    def _projections(self) -> list[Projection]:
        moments = enumerate(zip(self._free[0].T, self._free[1]))
        return [Projection(mean, S, self.inequalities(i)) for i, (mean, S) in moments]

    @functools.cached_property
    def mean(self) -> AnyNDArray:
        """The projected mean of V, [P, L]."""
        return np.stack([p.mean for p in self._projections], axis=1)

    @functools.cached_property
    def covariance(self) -> AnyNDArray:
        """Covariance of projected draws around the projected mean, [L, P, P]."""
        return np.stack([p.covariance(self._number) for p in self._projections])

    @property
    def components(self) -> tuple[int, ...]:
        """Places of the components that have a shape."""
        return tuple(self._rows)

    def inequalities(self, output: int) -> AnyNDArray:
        """Rows of V, [n, P], that are not negative where they enter an output."""
        own = [A for c, A in self._rows.items() if self._is_in(c, output)]
        return np.concatenate(own) if own else np.zeros((0, len(self._free[0])))

    def _is_in(self, component: int, output: int) -> bool:
        enters = self._enters
        return enters is None or bool(np.any(self._rows[component] * enters[:, output]))

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """Projected draws of V, [S, P, L]."""
        rng = np.random.default_rng(seed)
        draws = np.stack([p.sample(num_samples, rng) for p in self._projections], axis=-1)
        return draws if self._enters is None else draws * self._enters

    def degrees_of_freedom(self, block: slice) -> AnyNDArray:
        """Traces [L] of how estimates of values V follow the data (Meyer & Woodroofe 2000)."""
        free = self._free[1]
        smoothers = [p.derivative @ (np.eye(len(S)) - S) for p, S in zip(self._projections, free)]
        return np.array([np.trace(F[block, block]) for F in smoothers])

    def p_value(self, component: int, output: int) -> float:
        """The probability that noise alone is as far from a shape as the free estimate is."""
        if not self._is_in(component, output):
            return 1.0
        mean, covariance = self._free
        return Projection(mean[:, output], covariance[output], self._rows[component]).p_value()


class ShapedMoments(InducingMoments):
    """The moments of inducing values after they are projected on the shapes of components."""

    def __init__(self, free: InducingMoments, number: int = _BANK) -> None:
        self.projected = shaped_values(free, number)
        super().__init__(
            free._source,
            free.inducing_variable,
            self.projected.mean,
            self.projected.covariance,
            values=free._values,
            roots=free.roots,
        )
        names = self._source.names
        self._shaped = {names[i] for i in self.projected.components}

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        return self.projected.sample(num_samples, seed)

    # what jitter leaves open has no shape, and is nothing

    def residual_pivots(self, name: str, X: AnyNDArray) -> list[int]:
        return [] if name in self._shaped else super().residual_pivots(name, X)

    def residual_factor(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, prior: AnyNDArray, pivots: Sequence[int]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        if name in self._shaped:
            return np.zeros((len(X), 0)), np.zeros(len(X))
        return super().residual_factor(name, X, phi, prior, pivots)


def shaped_values(free: InducingMoments, number: int = _BANK) -> ShapedValues:
    """The inducing values of free moments, projected on the shapes of their components."""
    kernel, enters = free._source, None
    if kernel.members is not None:
        enters = np.repeat(free.entering(), free.inducing_variable.sizes, axis=0)
    rows = {kernel.names.index(name): A for name, A in shaped_components(free).items()}
    return ShapedValues(free.mean, free.covariance, rows, enters, number)


def shaped_components(
    moments: InducingMoments, tangents: Mapping[str, FixedInputKernel] | None = None
) -> dict[str, AnyNDArray]:
    """Rows [n_c, P] of which V has no negative multiple, of components with a shape."""
    if tangents is None:
        tangents = {name: moments.tangents(name, X) for name, X in acting_nodes(moments).items()}
    result = {}
    for name, own in tangents.items():
        part = shaped_part(moments._source[name])
        assert part is not None
        rows = np.zeros((len(part.kernel.cone), len(moments.mean)))
        phi, _ = moments.features_and_prior(name, own)
        rows[:, moments.block(name)] = part.kernel.cone @ phi.T
        result[name] = rows
    return result


def acting_nodes(moments: InducingMoments) -> dict[str, AnyNDArray]:
    """Rows of X [J, D] at the nodes of each component with a shape."""
    parts = {name: shaped_part(kernel) for name, kernel in moments._source.components.items()}
    return {name: part.acting_nodes() for name, part in parts.items() if part is not None}


class ShapedPosterior(SparseAdditivePosterior):
    """A sparse posterior whose draws have the shapes; a graph draws from 2000 that it holds."""

    def __init__(self, *arguments: Any, moments: ShapedValues, **options: Any) -> None:
        self._moments = moments
        # what jitter leaves open of a constant is drawn for each row by itself
        self._negligible = max(NEGLIGIBLE, 2.0 * default_jitter())
        super().__init__(*arguments, **options)

    def _sample_inducing(
        self, q: WhitenedGaussian, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        if not tf.executing_eagerly():
            bank = tf.constant(self._moments.sample(_BANK, 0)[:, q.layout.order])
            if seed is None:
                return tf.gather(bank, tf.random.uniform([num_samples], 0, _BANK, tf.int32))
            chosen = tf.random.stateless_uniform([num_samples], seed, 0, _BANK, tf.int32)
            return tf.gather(bank, chosen)
        entropy = None if seed is None else np.ravel(np.asarray(seed)).tolist()
        (own,) = np.random.SeedSequence(entropy).generate_state(1)
        draws = self._moments.sample(int(num_samples), int(own))
        return tf.constant(draws[:, q.layout.order])

    def _residual_root(self, layout: BlockLayout, features: Features, X: tf.Tensor) -> tf.Tensor:
        # what jitter leaves open has no shape, nor would the sum have one with it
        root = super()._residual_root(layout, features, X)
        prior = tf.linalg.diag_part(self.blocks.prior_components(X))
        left = tf.reduce_max(tf.reduce_sum(tf.square(root), axis=-1), axis=-1)
        open_ = left > self._negligible * tf.reduce_max(prior, axis=-1)
        free = [i not in self._moments.components for i in range(self.kernel.num_components)]
        return tf.where((open_ & tf.constant(free))[:, None, None], root, tf.zeros_like(root))
