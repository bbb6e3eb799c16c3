"""What a Newton solver works on."""

from __future__ import annotations

import copy

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..curvatures import (
    Curvature,
    DensePrecision,
    Precision,
    checked_curvature,
    curvature,
)
from ..operators import KernelOperator, PivotedCholesky, pivoted_cholesky


class LaplaceProblem:
    """
    ``max_g log p(y | m + A g) - 1/2 g'K^-1 g`` over Q latent functions at N data, and its parts.

    Latent functions are [Q, N] here; outputs of the likelihood are [N, L]. The likelihood is
    evaluated in the precision of X; everything else is in double precision, as the operator is.

    :param operator: K.
    :param likelihood: log-concave in its outputs.
    :param Y: observations [N, K].
    :param mean_function: m(x).
    """

    def __init__(
        self,
        operator: KernelOperator,
        likelihood: Likelihood,
        Y: tf.Tensor,
        mean_function: MeanFunction,
    ) -> None:
        self.operator = operator
        self.likelihood = likelihood
        self.mean_function = mean_function
        self.X, self.Y = operator.X, Y
        shape = [operator.num_data, operator.latents.num_outputs]
        self.mean = tf.cast(tf.broadcast_to(mean_function(self.X), shape), operator.dtype)
        self._pivoted: PivotedCholesky | None = None
        self._asked = 0

    def predictor(self, g: tf.Tensor) -> tf.Tensor:
        """
        Outputs m + A g, [N, L].

        :param g: latent functions, [Q, N].
        """
        return self.mean + tf.transpose(self.operator.latents.mixed(g))

    def log_likelihood(self, g: tf.Tensor) -> tf.Tensor:
        """
        Summed over the data.

        :param g: latent functions, [Q, N].
        """
        return tf.reduce_sum(self._log_prob(self.predictor(g)))

    def curvature(self, g: tf.Tensor) -> Curvature:
        """
        The log-likelihood to second order in the latent functions.

        :param g: latent functions, [Q, N].
        :raises ValueError: not finite or not log-concave there.
        """
        found = checked_curvature(self._expansion(self.predictor(g)), self.likelihood)
        mixing = self.operator.latents.mixing
        if mixing is None:
            return found
        A = tf.cast(tf.convert_to_tensor(mixing), g.dtype)
        gradient = tf.matmul(A, found.gradient, transpose_a=True)
        blocks = tf.einsum("lq,nlk,kp->nqp", A, found.precision.blocks(), A)
        return Curvature(found.log_prob, gradient, DensePrecision(blocks))

    def _log_prob(self, F: tf.Tensor) -> tf.Tensor:
        """At outputs [N, L], [N]."""
        found = self.likelihood.log_prob(self.X, tf.cast(F, self.X.dtype), self.Y)
        return tf.cast(found, F.dtype)

    def _expansion(self, F: tf.Tensor) -> Curvature:
        """In the outputs, at [N, L]."""
        found: Curvature = curvature(self.likelihood, self.X, tf.cast(F, self.X.dtype), self.Y)
        return found.cast(F.dtype)

    def of_rows(self, indices: tf.Tensor) -> LaplaceProblem:
        """
        The same of some data alone; of a partial Cholesky factor, what they know goes with them.

        :param indices: of the data [M].
        """
        found = copy.copy(self)
        found.operator = self.operator.of_rows(indices)
        found.X, found.Y = found.operator.X, tf.gather(self.Y, indices)
        found.mean = tf.gather(self.mean, indices)
        found._pivoted, found._asked = None, 0
        if self._pivoted is not None:
            found._pivoted = self._pivoted.of_rows(indices, self.operator.diag())
            whole = found._pivoted.rank == self._pivoted.rank
            found._asked = self._asked if whole else found._pivoted.rank
        return found

    def order(self) -> AnyNDArray:
        """
        Rows of which the first of any number stand for all, [N].

        Those of the pivots that are known come first, as they lie far apart; the others at random.
        """
        size = self.operator.num_data
        first = np.zeros(0, dtype=int)
        if self._pivoted is not None:
            known = self._pivoted.pivots.T.reshape(-1)
            first = np.array(list(dict.fromkeys(known[known >= 0].tolist())), dtype=int)
        rest = np.random.default_rng(0).permutation(size)
        return np.concatenate([first, rest[~np.isin(rest, first)]])

    def pivoted(self, number: int) -> PivotedCholesky:
        """A partial Cholesky factor of K with at most ``number`` pivots, kept for the next call."""
        number = min(number, self.operator.num_data)
        if self._pivoted is None or self._asked < number:
            self._pivoted, self._asked = pivoted_cholesky(self.operator, number), number
        if number >= self._pivoted.rank:
            return self._pivoted
        return self._pivoted.first(number, self.operator.diag())


def noise_products(precision: Precision, S: tf.Tensor) -> tf.Tensor:
    """``W^+ S`` of joint actions S [B, Q, N], [B, Q, N]."""
    return tf.transpose(precision.solve(tf.transpose(S, [1, 2, 0])), [2, 0, 1])
