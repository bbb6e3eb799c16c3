"""Block precision: a precision with a full block for each component plus a low rank."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.linalg import block_diag

from .base import Cholesky, LowRankFamily, Prior, double, log_abs_det
from .coupled_precision import whitened_coupling
from .factor_analysis import factor_analysis
from .gaussian import BlockGaussian

_DEFAULT_RANK = 8


class BlockPrecision(LowRankFamily):
    """
    q(V) = N(mu, (D + B B')^-1), D block-diagonal and B [P, R]: the default.

    Contains mean field (B = 0) and :class:`CoupledPrecision` of the same rank (D = I), and a rank
    of 8 is within a tenth of a nat of the exact posterior where those are tens and hundreds off.

    Held as ``D = (W W')^-1`` with W lower-triangular blocks and ``B = W^-T C``, so that
    ``S = W (I + C C')^-1 W'``: the same family, but no block needs inverting, and C measures
    coupling relative to each component's own posterior scale.

    Parameters: ``q_mu`` [P, L]; ``q_sqrt``, the W, one [L, G, M, M] per group of like components;
    ``coupling``, the C, [L, P, R] in component order.

    :param rank: the number of columns, R; by default 8, or P where that is less.
    :param whiten: whether ``q_mu`` and ``q_sqrt`` describe V = L^-1 U (default) or U.
    :param seed: of C's small random start.
    :raises ValueError: a rank below 1, or, once sizes are known, above P.
    """

    def _build(self, prior: Prior) -> None:
        self.q_mu = self._zero_mean()
        self.q_sqrt = self._block_sqrt(prior)
        rank = min(_DEFAULT_RANK, self.layout.total) if self.rank is None else self.rank
        self.coupling = self._low_rank_start(rank, self.seed)

    def whitened(self, cholesky: Cholesky) -> BlockGaussian:
        blocks = self._whitened_blocks(self.q_sqrt, cholesky)
        mean = self._whitened_mean(self.q_mu, cholesky)
        C = self._entering(self.layout.to_groups(double(self.coupling)))
        coupling, log_det_A = whitened_coupling(C)
        log_det = log_abs_det(blocks) - log_det_A
        return BlockGaussian(self.layout, mean, log_det, blocks, coupling)

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        # Random couplings are a poor start: L-BFGS takes thousands of iterations from there.
        self._match_mean(self.q_mu, cholesky, mean)
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
        for (G, _), q_sqrt, L in zip(layout.group_shapes, self.q_sqrt, cholesky):
            own = tf.constant(np.array([W[first : first + G] for W in scales]))
            own = own if self.whiten else tf.matmul(L[None], own)
            q_sqrt.assign(tf.cast(own, q_sqrt.dtype))
            first += G
        # zero columns would stay zero, since the ELBO is stationary there
        start = np.asarray(layout.to_groups(tf.convert_to_tensor(self.coupling)))
        C = np.stack(couplings)
        idle = np.linalg.norm(C, axis=1, keepdims=True) < 1e-6
        C = np.where(idle, 1e-2 * start, C)
        self.coupling.assign(tf.cast(layout.to_components(tf.constant(C)), self.coupling.dtype))
