"""Optimal precision: q from sites, found by natural gradients (eq. 6; Adam et al. 2021)."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter

from ..bijectors import identity
from .base import Cholesky, Prior, VariationalFamily, _solve
from .gaussian import DenseGaussian, from_precision


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

    def __init__(self) -> None:
        super().__init__(whiten=False)

    def _build(self, prior: Prior) -> None:
        P, L = self.layout.total, self.num_latent_gps
        self.site_shift = _held(np.zeros((P, L)))
        self.site_precision = _held(np.zeros((L, P, P)))
        # beside a precision of zero any factors are the prior
        shapes = self.layout.group_shapes
        self.reference = [_held(np.tile(np.eye(M), (G, 1, 1))) for G, M in shapes]

    def sites(self, cholesky: Cholesky) -> tuple[tf.Tensor, tf.Tensor]:
        """
        The site in the whitened basis of the present prior.

        :param cholesky: of the prior at the present hyperparameters.
        :return: Lambda [L, P, P] and eta [P, L], in group order and double precision.
        """
        # t(U) with U = L V: Lambda_V = (L_0^-1 L)' Lambda (L_0^-1 L)
        change = [_solve(tf.convert_to_tensor(L0), L) for L, L0 in zip(cholesky, self.reference)]
        shift = self.layout.to_groups(tf.convert_to_tensor(self.site_shift))
        precision = tf.convert_to_tensor(self.site_precision)
        precision = self.layout.to_groups(self.layout.to_groups(precision), axis=-1)
        half = tf.linalg.matrix_transpose(self._apply(change, precision))
        return self._separated(self._apply(change, half), self._apply(change, shift))

    def _separated(self, precision: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What a site says of each output's own components, [L, P, P] and [P, L] in group order."""
        members = self.layout.spread(self._members)
        if members is None:
            return precision, shift
        return precision * (members[:, :, None] * members[:, None, :]), shift * members.T

    def _apply(self, change: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
        """blockdiag(T_c)' x."""
        blocks = self.layout.split(x)
        return self.layout.concat(
            [tf.matmul(T, b, transpose_a=True) for T, b in zip(change, blocks)]
        )

    def assign_sites(self, cholesky: Cholesky, precision: tf.Tensor, shift: tf.Tensor) -> None:
        """
        Set the site, given in the whitened basis of the present prior.

        :param cholesky: of the prior at the present hyperparameters.
        :param precision: Lambda [L, P, P], positive semi-definite, in group order.
        :param shift: eta [P, L], in group order.
        """
        for L0, L in zip(self.reference, cholesky):
            L0.assign(L)
        precision = self.layout.to_components(self.layout.to_components(precision), axis=-1)
        precision = 0.5 * (precision + tf.linalg.matrix_transpose(precision))
        self.site_precision.assign(precision)
        self.site_shift.assign(self.layout.to_components(shift))

    def whitened(self, cholesky: Cholesky) -> DenseGaussian:
        Lambda, eta = self.sites(cholesky)
        precision = tf.linalg.set_diag(Lambda, tf.linalg.diag_part(Lambda) + 1.0)
        return from_precision(self.layout, precision, eta)[0]

    def match(self, cholesky: Cholesky, mean: tf.Tensor, precision: tf.Tensor) -> None:
        Lambda = tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) - 1.0)
        shift = tf.linalg.matvec(precision, tf.transpose(mean))
        self.assign_sites(cholesky, Lambda, tf.transpose(shift))


def _held(value: AnyNDArray) -> Parameter:
    """A parameter in double precision that is not trainable."""
    return Parameter(value, transform=identity(), trainable=False, dtype=tf.float64)
