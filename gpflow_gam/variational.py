"""Families of the Gaussian q(U) over all components' inducing values."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Module, Parameter, TensorType
from gpflow.config import default_float
from gpflow.utilities import triangular
from scipy.linalg import block_diag, cho_factor, cho_solve, solve_triangular

from .bijectors import identity
from .covariances import BlockLayout
from .errors import check_count

__all__ = [
    "BlockPrecision",
    "CoupledCovariance",
    "CoupledPrecision",
    "MeanField",
    "OptimalPrecision",
    "VariationalFamily",
]


_NOT_POSITIVE = (
    "posterior precision I + Lambda is not positive definite: the likelihood's weights overflowed "
    "or are negative; standardise Y, use a smaller step, or raise gpflow's jitter"
)
Form = Callable[[Sequence[tf.Tensor]], "WhitenedGaussian"]
"""Makes a Gaussian out of the tensors that define one."""


class WhitenedGaussian(abc.ABC):
    """q(V) = N(mean, S) for each of L independent latent outputs."""

    def __init__(
        self, layout: BlockLayout, mean: tf.Tensor, log_det: tf.Tensor, *others: Any
    ) -> None:
        self.layout = layout
        self.mean = mean
        self.log_det = log_det
        self._parts = mean, log_det, *others

    # --- what differs -----------------------------------------------------------------------

    @abc.abstractmethod
    def trace(self) -> tf.Tensor:
        """tr S, [L]."""

    @abc.abstractmethod
    def total_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi' (S - I) phi`` with all components summed, [L, N], for features [G, M, N]."""

    @abc.abstractmethod
    def total_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi_n' (S - I) phi_m`` with all components summed, [L, N, N]."""

    @abc.abstractmethod
    def changes(self) -> list[tf.Tensor]:
        """``S_cc - I`` of each group, [L, G, M, M]."""

    @abc.abstractmethod
    def between(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi_c' S_cd phi_d`` of components c != d, [L, N, C, C] in component order."""

    @abc.abstractmethod
    def sample(self, num_samples: int, seed: AnyNDArray | None = None) -> tf.Tensor:
        """Draws of V, [num_samples, P, L]."""

    @abc.abstractmethod
    def covariance(self) -> tf.Tensor:
        """S, [L, P, P] in group order. Costs P^2 memory: for tests and small models."""

    # --- what does not ----------------------------------------------------------------------

    def tensors(self) -> list[tf.Tensor]:
        """The tensors that define q, for a cache."""
        return [part for part in tf.nest.flatten(self._parts) if part is not None]

    def form(self) -> Form:
        """A function that makes this kind of q from other :meth:`tensors`; it holds none itself."""
        kind, layout = type(self), self.layout
        there = tf.nest.map_structure(lambda part: part is not None, self._parts)

        def make(tensors: Sequence[tf.Tensor]) -> WhitenedGaussian:
            left = iter(tensors)
            parts = tf.nest.map_structure(lambda given: next(left) if given else None, there)
            return kind(layout, *parts)

        return make

    def kl(self) -> tf.Tensor:
        """``KL[q(V) || N(0, I)] = 1/2 (tr S + |mean|^2 - P - log|S|)``, summed over outputs."""
        mahalanobis = tf.reduce_sum(tf.square(self.mean), axis=0)
        P = tf.cast(self.layout.total, self.mean.dtype)
        return 0.5 * tf.reduce_sum(self.trace() + mahalanobis - P - self.log_det)

    def total_mean(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi' mean`` with all components summed, [N, L]."""
        return tf.matmul(self.layout.concat(phi), self.mean, transpose_a=True)

    def component_mean(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi_c' mean_c``, [C, N, L] in component order."""
        means = self.layout.split(self.mean)
        parts = [tf.matmul(f, m, transpose_a=True) for f, m in zip(phi, means)]
        return self.layout.restore_components(parts)

    def component_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi_c' (S_cc - I) phi_c``, [L, C, N] in component order."""
        return self._by_component(
            [tf.reduce_sum(f * tf.matmul(S, f[None]), axis=-2) for S, f in zip(self.changes(), phi)]
        )

    def component_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi_cn' (S_cc - I) phi_cm``, [L, C, N, N] in component order."""
        return self._by_component(
            [
                tf.matmul(f[None], tf.matmul(S, f[None]), transpose_a=True)
                for S, f in zip(self.changes(), phi)
            ]
        )

    def cross_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """``phi_cn' (S - I)_cd phi_dn``, [L, N, C, C] in component order."""
        own = tf.transpose(self.component_quadratic(phi), [0, 2, 1])
        return tf.linalg.set_diag(self.between(phi), own)

    def _by_component(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Group parts [L, G, ...] -> [L, C, ...] in component order."""
        return self.layout.restore_components(parts, axis=1)


def block_product(
    layout: BlockLayout, blocks: Sequence[tf.Tensor], x: tf.Tensor, transpose: bool = False
) -> tf.Tensor:
    """blockdiag(T_c) x, or blockdiag(T_c)' x, for x [..., P, K] in group order."""
    return layout.concat(
        [tf.matmul(T, b, transpose_a=transpose) for T, b in zip(blocks, layout.split(x))]
    )


def _norms(x: tf.Tensor) -> tf.Tensor:
    """Squared norms over the second to last axis."""
    return tf.reduce_sum(tf.square(x), axis=-2)


def _gram(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, x, transpose_a=True)


def _less_identity(S: tf.Tensor) -> tf.Tensor:
    return tf.linalg.set_diag(S, tf.linalg.diag_part(S) - 1.0)


def standard_normal(
    shape: object, dtype: tf.DType, seed: AnyNDArray | tf.Tensor | None
) -> tf.Tensor:
    """Standard normal draws, stateless where there is a seed."""
    if seed is None:
        return tf.random.normal(shape, dtype=dtype)
    return tf.random.stateless_normal(shape, seed=seed, dtype=dtype)


class BlockGaussian(WhitenedGaussian):
    """
    S = E (I - G'G) E', at a cost linear in the number of components.

    The coupling enters the variance of a sum as ONE squared norm ``| sum_c H_c phi_c |^2``, H = G
    E', so that marginals cost N P (M + R); summing over pairs of components would cost N P^2.
    """

    def __init__(
        self,
        layout: BlockLayout,
        mean: tf.Tensor,
        log_det: tf.Tensor,
        scale: Sequence[tf.Tensor] | None,
        coupling: tf.Tensor | None,
    ) -> None:
        self.scale = None if scale is None else list(scale)
        super().__init__(layout, mean, log_det, self.scale, coupling)
        self.coupling = coupling

    def _rows(self) -> list[tf.Tensor]:
        """H_c' = E_c G_c' of each group, [L, G, M, R]."""
        assert self.coupling is not None
        blocks = self.layout.split(tf.linalg.matrix_transpose(self.coupling))
        if self.scale is None:
            return blocks
        return [tf.matmul(E, G) for E, G in zip(self.scale, blocks)]

    def trace(self) -> tf.Tensor:
        if self.scale is None:
            total = tf.cast(self.layout.total, self.mean.dtype)
        else:
            total = tf.add_n([tf.reduce_sum(tf.square(E), axis=[1, 2, 3]) for E in self.scale])
        if self.coupling is not None:
            lost = [tf.reduce_sum(tf.square(H), axis=[1, 2, 3]) for H in self._rows()]
            total = total - tf.add_n(lost)
        return total

    def _coupled(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """sum_c H_c phi_c, [L, R, N]."""
        rows = self.layout.concat(self._rows())  # [L, P, R]
        return tf.matmul(rows, self.layout.concat(phi)[None], transpose_a=True)

    def _scale_changes(self) -> list[tf.Tensor]:
        """E_c E_c' - I, [L, G, M, M]: a fifth faster than a difference of sums of squares."""
        return [_less_identity(tf.matmul(E, E, transpose_b=True)) for E in self.scale or ()]

    def changes(self) -> list[tf.Tensor]:
        parts = self._scale_changes()
        if self.coupling is None:
            return parts
        lost = [tf.matmul(H, H, transpose_b=True) for H in self._rows()]
        return [p - h for p, h in zip(parts, lost)] if parts else [-h for h in lost]

    def total_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        parts = [
            tf.reduce_sum(f * tf.matmul(change, f[None]), axis=[1, 2])
            for change, f in zip(self._scale_changes(), phi)
        ]
        if self.coupling is not None:
            parts.append(-_norms(self._coupled(phi)))
        return tf.add_n(parts)

    def total_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        parts = [
            tf.reduce_sum(tf.matmul(f[None], tf.matmul(change, f[None]), transpose_a=True), axis=1)
            for change, f in zip(self._scale_changes(), phi)
        ]
        if self.coupling is not None:
            parts.append(-_gram(self._coupled(phi)))
        return tf.add_n(parts)

    def between(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        if self.coupling is None:
            L, C = self.mean.shape[1], self.layout.num_components
            return tf.zeros([L, tf.shape(phi[0])[-1], C, C], dtype=self.mean.dtype)
        rows = [tf.matmul(H, f[None], transpose_a=True) for H, f in zip(self._rows(), phi)]
        h = self._by_component(rows)  # [L, C, R, N]
        return -tf.einsum("lcrn,ldrn->lncd", h, h)

    def sample(self, num_samples: int, seed: AnyNDArray | None = None) -> tf.Tensor:
        L, P = self.mean.shape[1], self.layout.total
        noise = standard_normal([L, P, num_samples], self.mean.dtype, seed)
        if self.coupling is not None:
            noise = shrunk_noise(self.coupling, noise)
        if self.scale is not None:
            noise = block_product(self.layout, self.scale, noise)
        return self.mean[None] + tf.transpose(noise, [2, 1, 0])

    def covariance(self) -> tf.Tensor:
        L, P = self.mean.shape[1], self.layout.total
        eye = tf.eye(P, batch_shape=[L], dtype=self.mean.dtype)
        inner = eye
        if self.coupling is not None:
            inner = eye - _gram(self.coupling)
        if self.scale is None:
            return inner
        left = tf.linalg.matrix_transpose(block_product(self.layout, self.scale, inner))
        return block_product(self.layout, self.scale, left)


def shrunk_noise(G: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
    """``(I - G'G)^1/2 noise`` of G [..., R, P] and noise [..., P, S]."""
    # = noise - G' U diag((1 - sqrt(1 - s)) / s) U' G noise, with G G' = U diag(s) U': the square
    # root costs R^3, not P^3.
    s, U = tf.linalg.eigh(tf.matmul(G, G, transpose_b=True))
    s = tf.clip_by_value(s, tf.zeros([], s.dtype), tf.ones([], s.dtype))
    weight = 1.0 / (1.0 + tf.sqrt(1.0 - s))  # = (1 - sqrt(1 - s)) / s, also at s = 0
    inner = tf.matmul(U, tf.matmul(G, noise), transpose_a=True)
    return noise - tf.matmul(G, tf.matmul(U, weight[..., None] * inner), transpose_a=True)


class DenseGaussian(WhitenedGaussian):
    """S = F F' with F [L, P, P]; costs N P^2 for all marginals."""

    def __init__(
        self, layout: BlockLayout, mean: tf.Tensor, log_det: tf.Tensor, factor: tf.Tensor
    ) -> None:
        super().__init__(layout, mean, log_det, factor)
        self.factor = factor

    def trace(self) -> tf.Tensor:
        return tf.reduce_sum(tf.square(self.factor), axis=[1, 2])

    def _scaled(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """F' phi, [L, P, N]."""
        return tf.matmul(self.factor, self.layout.concat(phi)[None], transpose_a=True)

    def total_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        return _norms(self._scaled(phi)) - _norms(self.layout.concat(phi))

    def total_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        # the components' priors are independent: their own features' Gram matrices add up
        own = tf.add_n([tf.reduce_sum(_gram(f), axis=0) for f in phi])
        return _gram(self._scaled(phi)) - own

    def changes(self) -> list[tf.Tensor]:
        blocks = self.layout.split(self.factor)
        return [_less_identity(tf.matmul(F, F, transpose_b=True)) for F in blocks]

    def between(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        blocks = self.layout.split(self.factor)
        scaled = [tf.matmul(F, f[None], transpose_a=True) for F, f in zip(blocks, phi)]
        h = self._by_component(scaled)  # [L, C, P, N]
        return tf.einsum("lcpn,ldpn->lncd", h, h)

    def sample(self, num_samples: int, seed: AnyNDArray | None = None) -> tf.Tensor:
        L, P = self.mean.shape[1], self.layout.total
        noise = standard_normal([L, P, num_samples], self.mean.dtype, seed)
        return self.mean[None] + tf.transpose(tf.matmul(self.factor, noise), [2, 1, 0])

    def covariance(self) -> tf.Tensor:
        return tf.matmul(self.factor, self.factor, transpose_b=True)


class RootGaussian(DenseGaussian):
    """S = (C C')^-1 with C [L, P, P] lower triangular: solving takes half of what products take."""

    def __init__(
        self, layout: BlockLayout, mean: tf.Tensor, log_det: tf.Tensor, root: tf.Tensor
    ) -> None:
        WhitenedGaussian.__init__(self, layout, mean, log_det, root)
        self.root = root

    @functools.cached_property
    def factor(self) -> tf.Tensor:  # type: ignore[override]
        return tf.linalg.matrix_transpose(self._inverse())

    def trace(self) -> tf.Tensor:
        return tf.reduce_sum(tf.square(self._inverse()), axis=[1, 2])

    def _inverse(self) -> tf.Tensor:
        return tf.linalg.triangular_solve(self.root, tf.eye(self.layout.total, dtype=tf.float64))

    def _scaled(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        return tf.linalg.triangular_solve(self.root, self.layout.concat(phi))


def from_precision(
    layout: BlockLayout, precision: tf.Tensor, shift: tf.Tensor
) -> tuple[DenseGaussian, tf.Tensor]:
    """N(S shift, S) with ``S = precision^-1``."""
    C = tf.debugging.check_numerics(tf.linalg.cholesky(precision), _NOT_POSITIVE)
    eye = tf.eye(layout.total, batch_shape=[tf.shape(precision)[0]], dtype=precision.dtype)
    inverse = tf.linalg.triangular_solve(C, eye, lower=True)
    factor = tf.linalg.matrix_transpose(inverse)
    half = tf.matmul(inverse, tf.transpose(shift)[..., None])
    mean = tf.transpose(tf.matmul(factor, half)[..., 0])
    log_det = -2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(C)), axis=-1)
    return DenseGaussian(layout, mean, log_det, factor), C


Cholesky = Sequence[tf.Tensor]  # lower Cholesky factors of K_c(Z_c, Z_c), one [G, M, M] a group


class VariationalFamily(Module, abc.ABC):
    """
    A family of Gaussians q(U) over the inducing values of all components.

    Constructed without sizes; the model that it is given to calls :meth:`build`. Then it holds
    parameters, of V in ``U_c = L_c V_c``, and :meth:`whitened` turns them into a Gaussian over V.
    """

    def __init__(self) -> None:
        super().__init__()
        self._layout: BlockLayout | None = None
        self._members: AnyNDArray | None = None
        self.num_latent_gps = 0

    @property
    def built(self) -> bool:
        """True once a model has given this family its sizes."""
        return self._layout is not None

    @property
    def layout(self) -> BlockLayout:
        """The blocks; raises ValueError before :meth:`build`."""
        if self._layout is None:
            raise ValueError(
                f"{type(self).__name__} has no sizes yet; pass it to a model as variational=..."
            )
        return self._layout

    def build(
        self, layout: BlockLayout, num_latent_gps: int, members: AnyNDArray | None = None
    ) -> None:
        """
        Create the parameters, at the prior (or as near to it as the family can start from).

        Where a component does not enter an output, by ``members`` [L, C], q is the prior for good.
        """
        if self.built:
            raise ValueError(
                f"this {type(self).__name__} belongs to a model already; give each model its own."
            )
        self._validate(layout)
        self._layout = layout
        self._members = members
        self.num_latent_gps = num_latent_gps
        self._build()

    def _validate(self, layout: BlockLayout) -> None:
        """Raise where the options do not fit the sizes."""

    @abc.abstractmethod
    def _build(self) -> None:
        """Create the parameters."""

    @abc.abstractmethod
    def whitened(self, cholesky: Cholesky) -> WhitenedGaussian:
        """q over the whitened values, in double precision, as the prior's factors are."""

    def kl(self, cholesky: Cholesky) -> tf.Tensor:
        """KL[q(U) || p(U)], summed over the latent outputs."""
        return self.whitened(cholesky).kl()

    @abc.abstractmethod
    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        """
        Set the parameters close to N(mean, precision^-1) over the whitened values: a start.

        Shapes: mean [P, L], precision [L, P, P], both in group order.
        """

    # --- for the families -------------------------------------------------------------------

    def _zero_mean(self) -> Parameter:
        shape = (self.layout.total, self.num_latent_gps)
        return Parameter(np.zeros(shape), dtype=default_float())

    def _block_sqrt(self) -> list[Parameter]:
        """One lower-triangular [L, G, M, M] a group, at the prior."""
        starts = [
            np.tile(np.eye(M), (self.num_latent_gps, G, 1, 1)) for G, M in self.layout.group_shapes
        ]
        return [Parameter(s, transform=triangular(), dtype=default_float()) for s in starts]

    def _low_rank_start(self, rank: int) -> Parameter:
        """[L, P, R]: small and random, because the ELBO is stationary in B at B = 0."""
        shape = (self.num_latent_gps, self.layout.total, rank)
        noise = np.random.default_rng(0).standard_normal(shape)
        return Parameter(0.1 * noise / np.sqrt(max(rank, 1)), dtype=default_float())

    def _entering(self, x: tf.Tensor) -> tf.Tensor:
        """``x`` [L, P, K] in group order, rows zero of components that do not enter an output."""
        members = self.layout.spread(self._members)
        return x if members is None else x * members[:, :, None]

    def _mean(self, q_mu: tf.Tensor) -> tf.Tensor:
        mean = self.layout.to_groups(double(q_mu))
        members = self.layout.spread(self._members)
        return mean if members is None else mean * members.T

    def _match_mean(self, q_mu: Parameter, mean: tf.Tensor) -> None:
        q_mu.assign(tf.cast(self.layout.to_components(mean), q_mu.dtype))

    def _blocks(self, q_sqrt: Sequence[Parameter]) -> list[tf.Tensor]:
        blocks = [double(W) for W in q_sqrt]
        if self._members is None:
            return blocks
        enters = [self._members[:, list(g), None, None] for g in self.layout.groups]
        return [tf.where(e, W, tf.eye(W.shape[-1], dtype=W.dtype)) for e, W in zip(enters, blocks)]


class LowRankFamily(VariationalFamily):
    """A family with a coupling of some columns."""

    def __init__(self, rank: int | None = None) -> None:
        super().__init__()
        check_count("rank", rank)
        self.rank = rank

    def _validate(self, layout: BlockLayout) -> None:
        if self.rank is not None and self.rank > layout.total:
            raise ValueError(
                f"rank={self.rank} exceeds the number of inducing values P={layout.total} (the sum "
                "of the components' inducing inputs), beyond which it adds nothing; choose "
                "1 <= rank <= P."
            )


def double(x: TensorType) -> tf.Tensor:
    """In double precision."""
    return tf.cast(tf.convert_to_tensor(x), tf.float64)


def log_abs_det(blocks: Sequence[tf.Tensor]) -> tf.Tensor:
    """log|W W'| summed over triangular blocks [L, G, M, M]: [L]."""
    return tf.add_n(
        [tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(W))), axis=[1, 2]) for W in blocks]
    )


class MeanField(VariationalFamily):
    """
    q(V) = prod_c N(mu_c, W_c W_c'): no coupling between components.

    Cheap, and overconfident about each component where inputs are correlated (Saul, Hensman,
    Vehtari & Lawrence 2016, "Chained Gaussian processes").

    Parameters: ``q_mu`` [P, L]; ``q_sqrt``, one lower-triangular [L, G, M, M] per group of like
    components.
    """

    def _build(self) -> None:
        self.q_mu = self._zero_mean()
        self.q_sqrt = self._block_sqrt()

    def whitened(self, cholesky: Cholesky) -> BlockGaussian:
        blocks = self._blocks(self.q_sqrt)
        mean = self._mean(self.q_mu)
        return BlockGaussian(self.layout, mean, log_abs_det(blocks), blocks, None)

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        self._match_mean(self.q_mu, mean)
        # the best independent blocks: inverses of the precision's diagonal blocks
        start = 0
        for (G, M), W in zip(self.layout.group_shapes, self.q_sqrt):
            places = range(start, start + G * M, M)
            blocks = tf.stack([precision[:, i : i + M, i : i + M] for i in places], axis=1)
            W.assign(tf.cast(tf.linalg.cholesky(tf.linalg.inv(blocks)), W.dtype))
            start += G * M


def whitened_coupling(B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(I + B B')^-1 = I - G'G, with G = L_A^-1 B' and A = I + B'B = L_A L_A'."""
    A = tf.matmul(B, B, transpose_a=True)
    A = tf.linalg.set_diag(A, tf.linalg.diag_part(A) + 1.0)
    L_A = tf.linalg.cholesky(A)
    G = tf.linalg.triangular_solve(L_A, tf.linalg.matrix_transpose(B), lower=True)
    return G, 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(L_A)), axis=-1)


class CoupledPrecision(LowRankFamily):
    """
    q(V) = N(mu, (I + B B')^-1) with B [P, R]: the paper's family, whose own rank is R = M.

    ``B B'`` has to carry every direction that the data pin down, about the effective degrees of
    freedom of all components together. Where that exceeds the rank, q is hundreds of nats off;
    :class:`~gpflow_gam.variational.BlockPrecision` is not.

    Parameters, in component order: ``q_mu`` [P, L] and ``B`` [L, P, R].

    :param rank: the number of columns, R; by default the paper's, the most inducing inputs that a
        component has.
    :raises ValueError: a rank below 1, or, once sizes are known, above P.
    """

    def _build(self) -> None:
        self.q_mu = self._zero_mean()
        rank = max(self.layout.sizes) if self.rank is None else self.rank
        self.B = self._low_rank_start(rank)

    def whitened(self, cholesky: Cholesky) -> BlockGaussian:
        B = self._entering(self.layout.to_groups(double(self.B)))
        coupling, log_det_A = whitened_coupling(B)
        return BlockGaussian(self.layout, self._mean(self.q_mu), -log_det_A, None, coupling)

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        # B B' is the best approximation of rank R to precision - I (Eckart & Young 1936).
        values, vectors = tf.linalg.eigh(precision)
        rank = self.B.shape[-1]
        scale = tf.sqrt(tf.maximum(values[:, -rank:] - 1.0, 1e-8))
        B = vectors[:, :, -rank:] * scale[:, None, :]
        self._match_mean(self.q_mu, mean)
        self.B.assign(tf.cast(self.layout.to_components(B), self.B.dtype))


Blocks = list[AnyNDArray]
_TOLERANCE = 1e-5  # nats that no longer count


def factor_analysis(
    A: AnyNDArray, sizes: Sequence[int], rank: int, *, max_sweeps: int = 100
) -> tuple[Blocks, AnyNDArray]:
    """
    The blocks D and the B [P, R] that minimise ``KL[N(0, (D + B B')^-1) || N(0, A^-1)]``.

    It is the likelihood of factor analysis with A for the sample covariance and blocks for specific
    variances: given D, B is an eigendecomposition (Tipping & Bishop 1999); given B, an EM step
    improves D (Rubin & Thayer 1982). No sweep, of O(P^3), increases the KL.
    """
    stops = np.cumsum(sizes)
    places = [slice(stop - size, stop) for stop, size in zip(stops, sizes)]
    D, previous = [A[p, p] for p in places], np.inf
    B = np.zeros((len(A), rank))
    for _ in range(max_sweeps):
        T = block_diag(*[np.linalg.cholesky(d) for d in D])
        half = solve_triangular(T, A, lower=True)
        whitened = solve_triangular(T, half.T, lower=True)
        # all of them: asked for a part, LAPACK may find fewer where many are equal
        values, vectors = np.linalg.eigh(0.5 * (whitened + whitened.T))
        largest = slice(len(A) - rank, None)
        B = (T @ vectors[:, largest]) * np.sqrt(np.maximum(values[largest] - 1.0, 0.0))
        root = cho_factor(block_diag(*D) + B @ B.T, lower=True)
        log_det = 2.0 * np.sum(np.log(np.diag(root[0])))
        objective = 0.5 * (np.trace(cho_solve(root, A)) + log_det)
        if previous - objective < _TOLERANCE:
            break
        previous = objective
        gain = cho_solve(root, B)  # the factors' conditional mean given v is gain' v
        second = np.eye(rank) - B.T @ gain + gain.T @ A @ gain
        # E[(v - B z)(v - B z)'], of which the M step takes the blocks
        cross = A @ gain
        D = [
            A[p, p] - cross[p] @ B[p].T - B[p] @ cross[p].T + B[p] @ second @ B[p].T for p in places
        ]
    return D, B


_DEFAULT_RANK = 8


class BlockPrecision(LowRankFamily):
    """
    q(V) = N(mu, (D + B B')^-1), D block-diagonal and B [P, R]: the default.

    Contains mean field (B = 0) and :class:`CoupledPrecision` of the same rank (D = I), and a rank
    of 8 is within a tenth of a nat of the exact posterior where those are tens and hundreds off.

    Held as ``D = (W W')^-1`` with W lower-triangular blocks and ``B = W^-T G``, so that
    ``S = W (I + G G')^-1 W'``: the same family, but no block needs inverting, and G measures
    coupling relative to each component's own posterior scale.

    Parameters: ``q_mu`` [P, L]; ``q_sqrt``, the W, one [L, G, M, M] per group of like components;
    ``coupling``, the G, [L, P, R] in component order.

    :param rank: the number of columns, R; by default 8, or P where that is less.
    :raises ValueError: a rank below 1, or, once sizes are known, above P.
    """

    def _build(self) -> None:
        self.q_mu = self._zero_mean()
        self.q_sqrt = self._block_sqrt()
        rank = min(_DEFAULT_RANK, self.layout.total) if self.rank is None else self.rank
        self.coupling = self._low_rank_start(rank)

    def whitened(self, cholesky: Cholesky) -> BlockGaussian:
        blocks = self._blocks(self.q_sqrt)
        mean = self._mean(self.q_mu)
        C = self._entering(self.layout.to_groups(double(self.coupling)))
        coupling, log_det_A = whitened_coupling(C)
        log_det = log_abs_det(blocks) - log_det_A
        return BlockGaussian(self.layout, mean, log_det, blocks, coupling)

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        # Random couplings are a poor start: L-BFGS takes thousands of iterations from there.
        self._match_mean(self.q_mu, mean)
        rank, layout = self.coupling.shape[-1], self.layout
        sizes = [layout.sizes[i] for i in layout.component_order]
        # a start is worth seconds, not minutes: a sweep costs P^3
        sweeps = int(np.clip(2e9 / layout.total**3, 5, 100))
        scales: list[list[AnyNDArray]] = []
        couplings = []
        for A in np.asarray(precision):
            D, B = factor_analysis(A.astype(np.float64), sizes, rank, max_sweeps=sweeps)
            W = [np.linalg.cholesky(np.linalg.inv(d)) for d in D]
            scales.append(W)
            couplings.append(block_diag(*W).T @ B)
        first = 0
        for (G, _), q_sqrt in zip(layout.group_shapes, self.q_sqrt):
            own = tf.constant(np.array([W[first : first + G] for W in scales]))
            q_sqrt.assign(tf.cast(own, q_sqrt.dtype))
            first += G
        # zero columns would stay zero, since the ELBO is stationary there
        start = np.asarray(layout.to_groups(tf.convert_to_tensor(self.coupling)))
        C = np.stack(couplings)
        idle = np.linalg.norm(C, axis=1, keepdims=True) < 1e-6
        C = np.where(idle, 1e-2 * start, C)
        self.coupling.assign(tf.cast(layout.to_components(tf.constant(C)), self.coupling.dtype))


class CoupledCovariance(VariationalFamily):
    """
    q(V) = N(mu, W W') with W lower triangular [P, P]: every coupling, at a cost of P^2 a point.

    What :class:`gpflow.models.SVGP` holds when it is built on our kernel and inducing variables
    (Adam 2017, "Structured variational inference for coupled Gaussian processes").

    Parameters, in component order: ``q_mu`` [P, L], ``q_sqrt`` [L, P, P].
    """

    def _build(self) -> None:
        self.q_mu = self._zero_mean()
        start = np.tile(np.eye(self.layout.total), (self.num_latent_gps, 1, 1))
        self.q_sqrt = Parameter(start, transform=triangular(), dtype=default_float())

    def whitened(self, cholesky: Cholesky) -> DenseGaussian:
        W = double(self.q_sqrt)
        if self._members is not None:  # what does not enter has its prior
            enters = np.repeat(self._members, self.layout.sizes, axis=1).astype(np.float64)
            W *= enters[:, :, None] * enters[:, None, :]
            W = tf.linalg.set_diag(W, tf.linalg.diag_part(W) + (1.0 - enters))
        log_det = tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(W))), axis=-1)
        return DenseGaussian(self.layout, self._mean(self.q_mu), log_det, self.layout.to_groups(W))

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        self._match_mean(self.q_mu, mean)
        S = tf.linalg.inv(precision)
        S = self.layout.to_components(self.layout.to_components(S), axis=-1)
        root = tf.linalg.cholesky(0.5 * (S + tf.linalg.matrix_transpose(S)))
        self.q_sqrt.assign(tf.cast(root, self.q_sqrt.dtype))


class OptimalPrecision(VariationalFamily):
    r"""
    q(U) proportional to p(U) times a Gaussian site t(U): the optimum's own form (eq. 6).

    .. math:: \Sigma_U^{-1} = K^{-1} + \Lambda_U,\qquad
              \Lambda_U = K^{-1} \Big(\sum_n w_n k_n k_n'\Big) K^{-1}
              \text{ at its optimum}

    While hyperparameters move, the site t(U) stays fixed *as a function of U* and the prior moves
    under it: the bound is tighter than at a fixed mean and covariance (in the spirit of Adam,
    Chang, Khan & Solin 2021, "Dual parameterization of sparse variational Gaussian processes").
    What is held matters: with the K-weighted sum ``sum_n w_n k_n k_n'`` held fixed instead, its
    :math:`k_n` no longer match the new :math:`K`, and a lengthscale that moves by a tenth costs
    tens to thousands of nats.

    The site is stored whitened by the prior's Cholesky factor L_0 at the time when it was set,
    ``Lambda_U = L_0^-T Lambda L_0^-1``: forming Lambda_U itself would lose its digits to K's
    condition.

    The parameters are not trainable, since a gradient step could leave the cone of positive
    matrices; :class:`gpflow_gam.optimizers.NaturalGradient` moves them. Any GPflow optimiser then
    trains hyperparameters at fixed sites.

    Parameters, in component order: ``site_shift`` [P, L], ``site_precision`` [L, P, P],
    ``reference``, the L_0, one [G, M, M] per group, identities until a site is set. They are in
    double precision whatever GPflow's default: I + Lambda is beyond single precision where data
    are many or tell much.
    """

    def _build(self) -> None:
        P, L = self.layout.total, self.num_latent_gps
        self.site_shift = fixed_parameter(np.zeros((P, L)))
        self.site_precision = fixed_parameter(np.zeros((L, P, P)))
        # beside a precision of zero any factors are the prior
        shapes = self.layout.group_shapes
        self.reference = [fixed_parameter(np.tile(np.eye(M), (G, 1, 1))) for G, M in shapes]

    def sites(self, cholesky: Cholesky) -> tuple[tf.Tensor, tf.Tensor]:
        """Lambda [L, P, P] and eta [P, L] in the present prior's whitened basis, in group order."""
        # t(U) with U = L V: Lambda_V = (L_0^-1 L)' Lambda (L_0^-1 L)
        change = [tf.linalg.triangular_solve(L0, L) for L, L0 in zip(cholesky, self.reference)]
        shift = self.layout.to_groups(tf.convert_to_tensor(self.site_shift))
        precision = tf.convert_to_tensor(self.site_precision)
        precision = self.layout.to_groups(self.layout.to_groups(precision), axis=-1)
        half = tf.linalg.matrix_transpose(
            block_product(self.layout, change, precision, transpose=True)
        )
        whitened = (block_product(self.layout, change, x, transpose=True) for x in (half, shift))
        return self.layout.separated(self._members, *whitened)

    def assign_sites(self, cholesky: Cholesky, precision: tf.Tensor, shift: tf.Tensor) -> None:
        """Set Lambda [L, P, P], positive semi-definite, and eta [P, L] as of :meth:`sites`."""
        self.site_shift.assign(self.layout.to_components(shift))  # where NaN is seen
        precision = self.layout.to_components(self.layout.to_components(precision), axis=-1)
        self.site_precision.unconstrained_variable.assign(precision)
        for L0, L in zip(self.reference, cholesky):
            L0.unconstrained_variable.assign(L)

    def whitened(self, cholesky: Cholesky) -> DenseGaussian:
        Lambda, eta = self.sites(cholesky)
        precision = tf.linalg.set_diag(Lambda, tf.linalg.diag_part(Lambda) + 1.0)
        return from_precision(self.layout, precision, eta)[0]

    def of_sites(self, Lambda: tf.Tensor, eta: tf.Tensor) -> RootGaussian:
        """q(V) with a site Lambda [L, P, P], eta [P, L] in the whitened basis, for few points."""
        root = tf.linalg.cholesky(Lambda + np.eye(self.layout.total))
        diagonal = tf.debugging.check_numerics(tf.linalg.diag_part(root), _NOT_POSITIVE)
        mean = tf.linalg.cholesky_solve(root, tf.transpose(eta)[..., None])[..., 0]
        log_det = -2.0 * tf.reduce_sum(tf.math.log(diagonal), axis=-1)
        return RootGaussian(self.layout, tf.transpose(mean), log_det, root)

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        Lambda = tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) - 1.0)
        shift = tf.linalg.matvec(precision, tf.transpose(mean))
        self.assign_sites(cholesky, Lambda, tf.transpose(shift))


def fixed_parameter(value: AnyNDArray) -> Parameter:
    """A parameter in double precision that is not trainable."""
    return Parameter(value, transform=identity(), trainable=False, dtype=tf.float64)
