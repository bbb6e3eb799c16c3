"""Sparse additive regression with the exact posterior coupling."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Parameter, RegressionData, TensorType
from gpflow.inducing_variables import SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent
from gpflow.likelihoods import Gaussian
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from gpflow.utilities import positive

from ..autograph import as_written
from ..covariances import InducingBlocks
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..likelihoods.support import checked_data
from ..rows import DEFAULT_BLOCK, sum_over_rows
from ..variational import DenseGaussian, from_precision
from .base import SparseAdditiveModel, check_inducing, check_kernel, check_outputs, check_precision


class SufficientStatistics(NamedTuple):
    """Sums over data in group order, in double precision; w_n are the weights."""

    gram: tf.Tensor  # sum_n w_n phi_n phi_n', [P, P]
    cross: tf.Tensor  # sum_n w_n phi_n e_n', [P, L], with e_n = y_n - m(x_n)
    missing: tf.Tensor
    """sum_n w_n sum_c (k_c(x_n, x_n) - |phi_c(x_n)|^2), []; of outputs with components of their
    own, [L]."""

    error: tf.Tensor  # sum_n w_n |e_n|^2, []
    number: tf.Tensor  # sum_n w_n, []


class AdditiveSGPR(SparseAdditiveModel, InternalDataTrainingLossMixin):
    """
    Sparse additive GP regression: q(U) optimal in closed form, every coupling exact.

    The collapsed bound of Titsias (2009) with the components' features stacked. Its statistics are
    summed over blocks of rows, forward and backward, so that memory is O(P^2 + block): a million
    rows are no difficulty.

    :param data: X [N, D] and Y [N, L].
    :param kernel: the components' priors, the same for all outputs; or a
        ``gpflow.kernels.SeparateIndependent`` of one additive kernel an output, which becomes a
        :class:`~gpflow_gam.kernels.SeparateAdditive`: components keep their outputs apart
        (``"0:f1"``), and one object in several outputs has the same hyperparameters there.
    :param inducing_variable: inducing inputs per component.
    :param noise_variance: where the noise variance starts. It is learnt in logarithms, without
        GPflow's lower bound of 1e-6: what is small depends on the unit of Y.
    :param mean_function: m(x); zero by default.
    :param weights: how often each row counts, [N]; once by default.
    :param block_size: rows a block.
    :raises TypeError: an argument of the wrong kind.
    :raises ValueError: bad data or arguments that do not fit together, with what to change.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: AdditiveKernel | SeparateIndependent,
        inducing_variable: AdditiveInducingVariables | SeparateIndependentInducingVariables,
        noise_variance: float = 1.0,
        *,
        mean_function: MeanFunction | None = None,
        weights: TensorType | None = None,
        block_size: int = DEFAULT_BLOCK,
    ) -> None:
        kernel = check_kernel(kernel)
        if not (np.isfinite(noise_variance) and noise_variance > 0.0):
            raise ValueError(f"noise_variance must be positive and finite; got {noise_variance}.")
        likelihood = Gaussian()
        likelihood.variance = Parameter(noise_variance, transform=positive(lower=0.0, base="exp"))
        X, Y = checked_data(data, kernel, likelihood)
        check_precision(X, kernel=kernel, likelihood=likelihood)
        check_outputs(kernel, int(Y.shape[1]))
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=int(Y.shape[1]))
        self.data = X, Y
        self.weights = _checked_weights(weights, X)
        self.inducing_variable = check_inducing(inducing_variable, kernel)
        self.block_size = block_size
        InducingBlocks(self.inducing_variable, kernel)  # raises where the two do not fit together

    @property
    def precision(self) -> tf.DType:
        return self.data[0].dtype

    def statistics(self, cholesky: list[tf.Tensor]) -> SufficientStatistics:
        """
        The data's sufficient statistics.

        :param cholesky: of the prior at the present parameters.
        """

        def part(
            inputs: tuple[tf.Tensor, ...], X: tf.Tensor, Y: tf.Tensor, w: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            blocks = self.blocks
            features = blocks.features(X, list(inputs))
            error, w = _double(Y - self.mean_function(X)), _double(w)
            phi = blocks.layout.concat(features.phi)
            weighted = phi * w
            left = [
                p - tf.reduce_sum(tf.square(f), axis=1)
                for p, f in zip(features.prior, features.phi)
            ]
            return (
                tf.matmul(weighted, phi, transpose_b=True),
                tf.matmul(weighted, error),
                tf.reduce_sum(w * features.summed(left), axis=-1),
                tf.reduce_sum(w[:, None] * tf.square(error)),
                tf.reduce_sum(w),
            )

        rows = (*self.data, self.weights)
        return SufficientStatistics(*sum_over_rows(part, rows, cholesky, self.block_size))

    def _sites(self, statistics: SufficientStatistics) -> tuple[tf.Tensor, tf.Tensor]:
        """Phi Phi'/s2 [L or 1, P, P] and Phi e/s2 [P, L], zero beside an output's components."""
        noise = _double(self.likelihood.variance)
        Lambda, eta = statistics.gram[None] / noise, statistics.cross / noise
        members = self.blocks.layout.spread(self.kernel.members)
        if members is None:
            return Lambda, eta
        return Lambda * (members[:, :, None] * members[:, None, :]), eta * members.T

    def _optimum(self, Lambda: tf.Tensor, eta: tf.Tensor) -> tuple[DenseGaussian, tf.Tensor]:
        """The optimal q(V), S = (I + Phi Phi'/s2)^-1, and the Cholesky factor of S^-1."""
        precision = tf.linalg.set_diag(Lambda, tf.linalg.diag_part(Lambda) + 1.0)
        q, root = from_precision(self.blocks.layout, precision, eta)
        times = self.num_latent_gps // int(root.shape[0])
        factor = tf.repeat(q.factor, times, axis=0)
        return DenseGaussian(q.layout, q.mean, tf.repeat(q.log_det, times), factor), root

    @check_shapes("return: []")
    @as_written
    def elbo(self) -> tf.Tensor:
        """
        The collapsed bound (Titsias 2009), summed over outputs:
        ``log N(e; 0, Phi'Phi + s2 I) - (sum_n k(x_n, x_n) - tr Phi'Phi) / (2 s2)``.

        :return: a scalar.
        """
        cholesky = self.blocks.cholesky()
        s = self.statistics(cholesky)
        noise = _double(self.likelihood.variance)
        Lambda, eta = self._sites(s)
        _, root = self._optimum(Lambda, eta)
        # e'e/s2 - e'Phi' S Phi e/s2^2, as a sum of squares: L-BFGS sees its rounding otherwise
        columns = eta[None] if self.kernel.members is None else tf.transpose(eta)[..., None]
        half = tf.linalg.triangular_solve(root, columns, lower=True)
        fit = s.error / noise - tf.reduce_sum(tf.square(half))
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(root)), axis=-1)
        log_noise = s.number * tf.math.log(2.0 * np.pi * noise)
        per_output = log_noise + log_det + s.missing / noise  # [1], the same for all, or [L]
        total = self.num_latent_gps * tf.reduce_mean(per_output) + fit
        return tf.cast(-0.5 * total, self.data[0].dtype)

    def whitened(self, cholesky: list[tf.Tensor]) -> DenseGaussian:
        return self._optimum(*self._sites(self.statistics(list(cholesky))))[0]


def _double(x: TensorType) -> tf.Tensor:
    return tf.cast(tf.convert_to_tensor(x), tf.float64)


def _checked_weights(weights: TensorType | None, X: tf.Tensor) -> tf.Tensor:
    if weights is None:
        return tf.ones(tf.shape(X)[:1], dtype=X.dtype)
    w = np.asarray(weights, dtype=X.dtype.as_numpy_dtype)
    if w.shape != (int(X.shape[0]),) or not np.all(np.isfinite(w) & (w >= 0.0)):
        raise ValueError(
            f"weights must be {int(X.shape[0])} finite numbers, none negative; got shape {w.shape}"
            + (f", smallest {np.min(w):g}." if w.size else ".")
        )
    return tf.constant(w)
