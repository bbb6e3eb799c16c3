"""Variational additive models without inducing variables."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import Parameter, RegressionData
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import positive

from ..autograph import as_written
from ..kernels import AdditiveKernel
from ..likelihoods.support import checked_data
from ..newton.operators import LatentKernels
from ..posteriors import ActionPosterior
from .base import AdditiveModel, check_kernel, check_precision


class AdditiveVGP(AdditiveModel, InternalDataTrainingLossMixin):
    r"""
    Full-data variational additive GP in 2N parameters (Adam et al. 2018, Appendix B).

    With K = sum_c K_c at the data, lambda > 0 and alpha in R^N (per latent output):

    .. math:: E[f_c] = K_c \alpha,\qquad
              \Sigma_F^{-1} = K_F^{-1} + (1 \otimes \Lambda)(1 \otimes \Lambda)',\qquad
              A = I + \Lambda K \Lambda

    .. math:: KL = \tfrac12 ( \log|A| + \alpha' K \alpha - tr(\Lambda A^{-1} \Lambda K) )

    (The appendix prints the KL without 1/2 on its last two terms.) Exact up to the Gaussian form
    of q; costs O(N^3), so for N up to a few thousand. Kernels and likelihood are evaluated in the
    precision of X, all that is made of their values is in double precision.

    :param data: X [N, D] and Y [N, K].
    :param kernel: the components' priors.
    :param likelihood: any GPflow likelihood.
    :param mean_function: m(x); zero by default.
    :param num_latent_gps: L; by default the likelihood's, else the number of columns of Y.
    :raises TypeError: an argument of the wrong kind.
    :raises ValueError: bad data, with what to change.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: AdditiveKernel,
        likelihood: Likelihood,
        *,
        mean_function: MeanFunction | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        if check_kernel(kernel).members is not None:
            raise TypeError(
                "kernel: AdditiveVGP has one kernel for all outputs; outputs with kernels of their "
                "own are for AdditiveSVGP, AdditiveSGPR and IterNCGP."
            )
        X, Y = checked_data(data, kernel, likelihood, num_latent_gps or likelihood.latent_dim)
        if num_latent_gps is None:
            num_latent_gps = likelihood.latent_dim or int(Y.shape[1])
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        check_precision(X, kernel=kernel, likelihood=likelihood)
        self.data = X, Y
        shape = (int(X.shape[0]), num_latent_gps)
        # both are in the predictor's unit to the power of -1: optimisers see them without it
        sd = float(tf.sqrt(tf.reduce_mean(kernel(X, full_cov=False)))) or 1.0
        self.q_alpha = Parameter(
            np.zeros(shape),
            transform=tfp.bijectors.Scale(tf.constant(1.0 / sd, default_float())),
            dtype=default_float(),
        )
        self.q_lambda = Parameter(
            np.full(shape, 1.0 / sd),
            transform=positive(lower=0.0, base="exp"),
            dtype=default_float(),
        )

    @property
    def precision(self) -> tf.DType:
        return self.data[0].dtype

    def _covariance(self) -> tf.Tensor:
        """
        K [N, N], whose entries are rounded as the inputs are. What is made of it is in double
        precision: A is beyond single precision where data are many or noise is little.
        """
        return tf.cast(self.kernel(self.data[0]), tf.float64)

    def _projection(self, K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """H = L_A^-1 Lambda [L, N, N], so that Lambda A^-1 Lambda = H'H, and log|A| [L]."""
        lam = tf.transpose(tf.cast(self.q_lambda, K.dtype))  # [L, N]
        # The bound holds for any Lambda. One that sees variances as small as the entries' rounding
        # would see K's eigenvalues below zero.
        rounding = _rounding(self.data[0]) * tf.reduce_mean(tf.linalg.diag_part(K))
        lam *= tf.pow(1.0 + tf.square(rounding * tf.square(lam)), -0.25)
        A = lam[:, :, None] * K[None] * lam[:, None, :]
        A = tf.linalg.set_diag(A, tf.linalg.diag_part(A) + 1.0)
        root = tf.debugging.check_numerics(
            tf.linalg.cholesky(A),
            "A = I + Lambda K Lambda is not positive definite: kernel parameters or q_lambda "
            "overflowed; standardise the inputs",
        )
        H = tf.linalg.triangular_solve(root, tf.linalg.diag(lam), lower=True)
        return H, 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)), axis=-1)

    @check_shapes("return: []")
    @as_written
    def elbo(self) -> tf.Tensor:
        """
        The evidence lower bound (Appendix B, corrected).

        :return: a scalar.
        """
        X, Y = self.data
        K = self._covariance()
        H, log_det = self._projection(K)
        alpha = tf.cast(self.q_alpha, K.dtype)
        mean = tf.matmul(K, alpha)
        HK = tf.matmul(H, K[None])
        var = tf.linalg.diag_part(K) - tf.reduce_sum(tf.square(HK), axis=-2)  # [L, N]
        trace = tf.reduce_sum(HK * H, axis=[-2, -1])  # tr(Lambda A^-1 Lambda K)
        kl = 0.5 * (tf.reduce_sum(log_det - trace) + tf.reduce_sum(alpha * mean))
        mean, var = tf.cast(mean, X.dtype) + self.mean_function(X), tf.cast(var, X.dtype)
        expected = self.likelihood.variational_expectations(X, mean, tf.transpose(var), Y)
        return tf.cast(tf.reduce_sum(tf.cast(expected, K.dtype)) - kl, X.dtype)

    def _weights(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        H, _ = self._projection(self._covariance())
        E = tf.transpose(H, [1, 0, 2])
        return tf.transpose(tf.cast(self.q_alpha, H.dtype)), E, E

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> ActionPosterior:
        return ActionPosterior(
            LatentKernels((self.kernel,), self.num_latent_gps),
            self.data[0],
            self._weights,
            self.mean_function,
            precompute_cache=precompute_cache,
            independent=True,
        )


def _rounding(X: tf.Tensor) -> float:
    """
    Rounding error of the eigenvalues of a covariance at X [N, D], as a share of the variance.

    Entries that are near each other are rounded alike, so that it grows with N: measured, it is a
    third of this for smooth kernels.
    """
    return float(np.finfo(X.dtype.as_numpy_dtype).eps) * (10.0 + 0.125 * int(X.shape[0]))
