r"""
Gaussians over the whitened inducing values V, and what posteriors need of them.

With U_c = L_c V_c the prior is N(0, I_P). Every family of q(U) comes down to one of two forms,
and everything downstream is written once against their common interface:

- :class:`BlockGaussian`, :math:`S = E (I - G'G) E'` with block-diagonal E and a coupling G of few
  rows: mean field (no G), coupled precision (no E), block precision (both);
- :class:`DenseGaussian`, :math:`S = F F'`: coupled covariance, optimal precision, collapsed bound.

All arrays are in *group order* (see :class:`~gpflow_gam.layout.BlockLayout`), with the L latent
outputs leading.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import AnyNDArray

from ..layout import BlockLayout

Form = Callable[[Sequence[tf.Tensor]], "WhitenedGaussian"]
"""Makes a Gaussian out of the tensors that define one."""


class WhitenedGaussian(abc.ABC):
    """
    q(V) = N(mean, S) for each of L independent latent outputs.

    :param layout: the blocks.
    :param mean: [P, L].
    :param log_det: log|S|, [L].
    """

    def __init__(self, layout: BlockLayout, mean: tf.Tensor, log_det: tf.Tensor) -> None:
        self.layout = layout
        self.mean = mean
        self.log_det = log_det

    # --- what differs -----------------------------------------------------------------------

    @abc.abstractmethod
    def trace(self) -> tf.Tensor:
        """tr S, [L]."""

    @abc.abstractmethod
    def total_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi' (S - I) phi`` with all components summed, [L, N], for features [G, M, N].

        :param phi: features, [G, M, N] a group.
        """

    @abc.abstractmethod
    def total_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi_n' (S - I) phi_m`` with all components summed, [L, N, N].

        :param phi: features, [G, M, N] a group.
        """

    @abc.abstractmethod
    def component_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi_c' (S_cc - I) phi_c``, [L, C, N] in component order.

        :param phi: features, [G, M, N] a group.
        """

    @abc.abstractmethod
    def component_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi_cn' (S_cc - I) phi_cm``, [L, C, N, N] in component order.

        :param phi: features, [G, M, N] a group.
        """

    @abc.abstractmethod
    def cross_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi_cn' (S - I)_cd phi_dn``, [L, N, C, C] in component order.

        :param phi: features, [G, M, N] a group.
        """

    @abc.abstractmethod
    def sample(self, num_samples: int, seed: AnyNDArray | None = None) -> tf.Tensor:
        """
        Draws of V, [num_samples, P, L].

        :param num_samples: how many.
        :param seed: two integers, [2], for draws that are the same each time; others without.
        """

    @abc.abstractmethod
    def covariance(self) -> tf.Tensor:
        """S, [L, P, P] in group order. Costs P^2 memory: for tests and small models."""

    @abc.abstractmethod
    def tensors(self) -> list[tf.Tensor]:
        """The tensors that define q, for a cache."""

    @abc.abstractmethod
    def form(self) -> Form:
        """What makes the same kind of q out of other :meth:`tensors`. Holds no tensor itself."""

    # --- what does not ----------------------------------------------------------------------

    def kl(self) -> tf.Tensor:
        """``KL[q(V) || N(0, I)] = 1/2 (tr S + |mean|^2 - P - log|S|)``, summed over outputs."""
        mahalanobis = tf.reduce_sum(tf.square(self.mean), axis=0)
        P = tf.cast(self.layout.total, self.mean.dtype)
        return 0.5 * tf.reduce_sum(self.trace() + mahalanobis - P - self.log_det)

    def total_mean(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi' mean`` with all components summed, [N, L].

        :param phi: features, [G, M, N] a group.
        """
        return tf.matmul(self.layout.concat(phi), self.mean, transpose_a=True)

    def component_mean(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """
        ``phi_c' mean_c``, [C, N, L] in component order.

        :param phi: features, [G, M, N] a group.
        """
        means = self.layout.split(self.mean)
        parts = [tf.matmul(f, m, transpose_a=True) for f, m in zip(phi, means)]
        return self.layout.restore_components(parts)

    def _by_component(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Group parts [L, G, ...] -> [L, C, ...] in component order."""
        return self.layout.restore_components(parts, axis=1)


def _norms(x: tf.Tensor) -> tf.Tensor:
    """Squared norms over the second to last axis."""
    return tf.reduce_sum(tf.square(x), axis=-2)


def _gram(x: tf.Tensor) -> tf.Tensor:
    return tf.matmul(x, x, transpose_a=True)


def _normal(
    shape: Sequence[int | tf.Tensor], dtype: tf.DType, seed: AnyNDArray | None
) -> tf.Tensor:
    if seed is None:
        return tf.random.normal(shape, dtype=dtype)
    return tf.random.stateless_normal(shape, seed=seed, dtype=dtype)


class BlockGaussian(WhitenedGaussian):
    """
    S = E (I - G'G) E', at a cost linear in the number of components.

    The coupling enters the variance of a sum as ONE squared norm of a sum over components,
    ``| sum_c H_c phi_c |^2`` with H = G E', so that the marginals cost N P (M + R); summing over
    pairs of components would cost N P^2.

    :param layout: the blocks.
    :param mean: [P, L], in group order.
    :param log_det: of the covariance, [L].
    :param scale: E, one [L, G, M, M] a group; None for the identity.
    :param coupling: G [L, R, P], whose rows' Gram matrix is below I; None for no coupling.
    """

    def __init__(
        self,
        layout: BlockLayout,
        mean: tf.Tensor,
        log_det: tf.Tensor,
        scale: Sequence[tf.Tensor] | None,
        coupling: tf.Tensor | None,
    ) -> None:
        super().__init__(layout, mean, log_det)
        self.scale = None if scale is None else list(scale)
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

    def _scaled(self, phi: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """E_c' phi_c, [L, G, M, N]."""
        assert self.scale is not None
        return [tf.matmul(E, f[None], transpose_a=True) for E, f in zip(self.scale, phi)]

    def _coupled(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        """sum_c H_c phi_c, [L, R, N]."""
        rows = self.layout.concat(self._rows())  # [L, P, R]
        return tf.matmul(rows, self.layout.concat(phi)[None], transpose_a=True)

    def total_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        parts: list[tf.Tensor] = []
        if self.scale is not None:
            # phi'(E E' - I) phi in one product of [M, M] and [M, N] and one pass over [G, M, N]:
            # a fifth faster than the difference of two sums of squares
            for E, f in zip(self.scale, phi):
                change = tf.matmul(E, E, transpose_b=True)
                change = tf.linalg.set_diag(change, tf.linalg.diag_part(change) - 1.0)
                parts.append(tf.reduce_sum(f * tf.matmul(change, f[None]), axis=[1, 2]))
        if self.coupling is not None:
            parts.append(-_norms(self._coupled(phi)))
        return tf.add_n(parts)

    def total_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        parts: list[tf.Tensor] = []
        if self.scale is not None:
            for own, f in zip(self._scaled(phi), phi):
                parts.append(tf.reduce_sum(_gram(own), axis=1) - tf.reduce_sum(_gram(f), axis=0))
        if self.coupling is not None:
            parts.append(-_gram(self._coupled(phi)))
        return tf.add_n(parts)

    def _coupled_components(self, phi: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """H_c phi_c of each group, [L, G, R, N]."""
        return [tf.matmul(H, f[None], transpose_a=True) for H, f in zip(self._rows(), phi)]

    def _component_changes(
        self, phi: Sequence[tf.Tensor], of: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """What squares ``of`` the features come to beside those under the prior, [L, C, ...]."""
        parts: list[Any] = [0.0] * len(phi)  # scale or coupling or both are there
        if self.scale is not None:
            parts = [of(s) - of(f) for s, f in zip(self._scaled(phi), phi)]
        if self.coupling is not None:
            parts = [p - of(h) for p, h in zip(parts, self._coupled_components(phi))]
        return self._by_component(parts)

    def component_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        return self._component_changes(phi, _norms)

    def component_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        return self._component_changes(phi, _gram)

    def cross_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        L, C = self.mean.shape[1], self.layout.num_components
        N = tf.shape(phi[0])[-1]
        total = tf.zeros([L, N, C, C], dtype=self.mean.dtype)
        if self.scale is not None:
            own = [_norms(s) - _norms(f) for s, f in zip(self._scaled(phi), phi)]
            total += tf.linalg.diag(tf.transpose(self._by_component(own), [0, 2, 1]))
        if self.coupling is not None:
            h = self._by_component(self._coupled_components(phi))  # [L, C, R, N]
            total -= tf.einsum("lcrn,ldrn->lncd", h, h)
        return total

    def sample(self, num_samples: int, seed: AnyNDArray | None = None) -> tf.Tensor:
        # (I - G'G)^1/2 = I - G' U diag((1 - sqrt(1 - s)) / s) U' G with G G' = U diag(s) U':
        # the square root costs R^3, not P^3.
        L, P = self.mean.shape[1], self.layout.total
        noise = _normal([L, P, num_samples], self.mean.dtype, seed)
        if self.coupling is not None:
            G = self.coupling
            s, U = tf.linalg.eigh(tf.matmul(G, G, transpose_b=True))
            s = tf.clip_by_value(s, 0.0, 1.0)
            weight = 1.0 / (1.0 + tf.sqrt(1.0 - s))  # = (1 - sqrt(1 - s)) / s, also at s = 0
            inner = tf.matmul(U, tf.matmul(G, noise), transpose_a=True)
            correction = tf.matmul(U, weight[..., None] * inner)
            noise = noise - tf.matmul(G, correction, transpose_a=True)
        if self.scale is not None:
            blocks = self.layout.split(noise)
            noise = self.layout.concat([tf.matmul(E, b) for E, b in zip(self.scale, blocks)])
        return self.mean[None] + tf.transpose(noise, [2, 1, 0])

    def covariance(self) -> tf.Tensor:
        L, P = self.mean.shape[1], self.layout.total
        eye = tf.eye(P, batch_shape=[L], dtype=self.mean.dtype)
        inner = eye
        if self.coupling is not None:
            inner = eye - _gram(self.coupling)
        if self.scale is None:
            return inner
        left = self.layout.concat(
            [tf.matmul(E, b) for E, b in zip(self.scale, self.layout.split(inner))]
        )
        left = tf.linalg.matrix_transpose(left)  # (E inner)'
        return self.layout.concat(
            [tf.matmul(E, b) for E, b in zip(self.scale, self.layout.split(left))]
        )

    def tensors(self) -> list[tf.Tensor]:
        coupling = [] if self.coupling is None else [self.coupling]
        return [self.mean, self.log_det, *coupling, *(self.scale or [])]

    def form(self) -> Form:
        layout, scaled, coupled = self.layout, self.scale is not None, self.coupling is not None

        def make(tensors: Sequence[tf.Tensor]) -> BlockGaussian:
            mean, log_det, *rest = tensors
            coupling = rest.pop(0) if coupled else None
            return BlockGaussian(layout, mean, log_det, rest if scaled else None, coupling)

        return make


class DenseGaussian(WhitenedGaussian):
    """
    S = F F' with F [L, P, P]; costs N P^2 for all marginals.

    :param layout: the blocks.
    :param mean: [P, L], in group order.
    :param log_det: of the covariance, [L].
    :param factor: F, any square root of S, [L, P, P].
    """

    def __init__(
        self, layout: BlockLayout, mean: tf.Tensor, log_det: tf.Tensor, factor: tf.Tensor
    ) -> None:
        super().__init__(layout, mean, log_det)
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

    def _blocks(self) -> list[tf.Tensor]:
        """S_cc of each group, [L, G, M, M]."""
        return [tf.matmul(F, F, transpose_b=True) for F in self.layout.split(self.factor)]

    def component_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        parts = [
            tf.reduce_sum(f * tf.matmul(S, f[None]), axis=-2) - _norms(f)
            for S, f in zip(self._blocks(), phi)
        ]
        return self._by_component(parts)

    def component_quadratic_full(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        parts = [
            tf.matmul(f[None], tf.matmul(S, f[None]), transpose_a=True) - _gram(f)
            for S, f in zip(self._blocks(), phi)
        ]
        return self._by_component(parts)

    def cross_quadratic(self, phi: Sequence[tf.Tensor]) -> tf.Tensor:
        scaled = [
            tf.matmul(F, f[None], transpose_a=True)
            for F, f in zip(self.layout.split(self.factor), phi)
        ]
        h = self._by_component(scaled)  # [L, C, P, N]
        own = tf.transpose(self.layout.restore_components([_norms(f) for f in phi]))
        return tf.einsum("lcpn,ldpn->lncd", h, h) - tf.linalg.diag(own)

    def sample(self, num_samples: int, seed: AnyNDArray | None = None) -> tf.Tensor:
        L, P = self.mean.shape[1], self.layout.total
        noise = _normal([L, P, num_samples], self.mean.dtype, seed)
        return self.mean[None] + tf.transpose(tf.matmul(self.factor, noise), [2, 1, 0])

    def covariance(self) -> tf.Tensor:
        return tf.matmul(self.factor, self.factor, transpose_b=True)

    def tensors(self) -> list[tf.Tensor]:
        return [self.mean, self.log_det, self.factor]

    def form(self) -> Form:
        layout = self.layout

        def make(tensors: Sequence[tf.Tensor]) -> DenseGaussian:
            mean, log_det, factor = tensors
            return DenseGaussian(layout, mean, log_det, factor)

        return make


def from_precision(
    layout: BlockLayout, precision: tf.Tensor, shift: tf.Tensor
) -> tuple[DenseGaussian, tf.Tensor]:
    """
    N(S shift, S) with ``S = precision^-1``.

    :param layout: the blocks.
    :param precision: [L, P, P], in group order, positive definite.
    :param shift: S^-1 mean, [P, L], in group order.
    :return: the Gaussian, and the Cholesky factor of its precision [L, P, P].
    """
    C = tf.debugging.check_numerics(
        tf.linalg.cholesky(precision),
        "posterior precision I + Lambda is not positive definite: the likelihood's weights "
        "overflowed or are negative; standardise Y, use a smaller step, or raise gpflow's jitter",
    )
    eye = tf.eye(layout.total, batch_shape=[tf.shape(precision)[0]], dtype=precision.dtype)
    inverse = tf.linalg.triangular_solve(C, eye, lower=True)
    factor = tf.linalg.matrix_transpose(inverse)
    half = tf.matmul(inverse, tf.transpose(shift)[..., None])
    mean = tf.transpose(tf.matmul(factor, half)[..., 0])
    log_det = -2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(C)), axis=-1)
    return DenseGaussian(layout, mean, log_det, factor), C
