"""Sparse variational additive models."""

from __future__ import annotations

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import RegressionData
from gpflow.inducing_variables import SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models.training_mixins import ExternalDataTrainingLossMixin

from ..autograph import as_written
from ..covariances import Features
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..likelihoods.support import as_numbers, checked_data
from ..rows import sum_over_rows
from ..variational import BlockPrecision, PriorFactors, VariationalFamily, WhitenedGaussian
from .base import SparseAdditiveModel, check_inducing, check_kernel, check_outputs, check_precision


class AdditiveSVGP(SparseAdditiveModel, ExternalDataTrainingLossMixin):
    """
    Additive sparse variational GP: minibatches, any likelihood (Adam, Durrande & John 2018).

    :param kernel: the components' priors, the same for all outputs; or a
        ``gpflow.kernels.SeparateIndependent`` of one additive kernel an output, which becomes a
        :class:`~gpflow_gam.kernels.SeparateAdditive`: components keep their outputs apart
        (``"0:f1"``), and one object in several outputs has the same hyperparameters there.
    :param likelihood: any GPflow likelihood; one with several latent functions (softmax) gives
        each its own q, under the same prior.
    :param inducing_variable: inducing inputs per component.
    :param variational: the family of q(U), unbuilt; by default
        :class:`~gpflow_gam.variational.BlockPrecision`.
    :param mean_function: m(x); zero by default.
    :param num_data: N of the whole data, when ``elbo`` is given minibatches.
    :param num_latent_gps: L; by default the likelihood's, else one.
    :raises TypeError: an argument of the wrong kind.
    :raises ValueError: arguments that do not fit together, with what to change.
    """

    def __init__(
        self,
        kernel: AdditiveKernel | SeparateIndependent,
        likelihood: Likelihood,
        inducing_variable: AdditiveInducingVariables | SeparateIndependentInducingVariables,
        *,
        variational: VariationalFamily | None = None,
        mean_function: MeanFunction | None = None,
        num_data: int | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        kernel = check_kernel(kernel)
        if not isinstance(likelihood, Likelihood):
            raise TypeError(
                f"likelihood must be a gpflow likelihood; got {type(likelihood).__name__}."
            )
        if num_latent_gps is None:
            outputs = 1 if kernel.members is None else len(kernel.members)
            num_latent_gps = likelihood.latent_dim or outputs
        check_outputs(kernel, num_latent_gps)
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        if num_data is not None and num_data < 1:
            raise ValueError(f"num_data must be at least 1; got {num_data}.")
        self.num_data = num_data
        self.inducing_variable = check_inducing(inducing_variable, kernel)
        if variational is None:
            variational = BlockPrecision()
        if not isinstance(variational, VariationalFamily):
            raise TypeError(
                "variational must be a family such as gpflow_gam.variational.BlockPrecision(); "
                f"got {type(variational).__name__}."
            )
        self.variational = variational
        blocks = self.blocks
        variational.build(blocks.layout, num_latent_gps, blocks.cholesky, kernel.members)

    @property
    def precision(self) -> tf.DType:
        return self.inducing_variable.inputs[0].dtype

    def whitened(self, cholesky: list[tf.Tensor]) -> WhitenedGaussian:
        return self.variational.whitened(cholesky)

    @check_shapes("return: []")
    @as_written
    def prior_kl(self) -> tf.Tensor:
        """KL[q(U) || p(U)], summed over the latent outputs."""
        return tf.cast(self.variational.kl(PriorFactors(self.blocks.cholesky)), self.precision)

    @check_shapes(
        "data[0]: [N, D]",
        "data[1]: [N, K]",
        "return: []",
    )
    @as_written
    def elbo(self, data: RegressionData) -> tf.Tensor:
        """
        The evidence lower bound, ``sum_n E_q[log p(y_n | rho(x_n))] - KL[q(U) || p(U)]``.

        :param data: X [N, D] and Y [N, K], all of it or a minibatch; the sum is scaled by
            ``num_data / N``.
        :raises ValueError: bad data (NaN, or impossible under the likelihood), or data of
            another precision than the parameters.
        """
        data = as_numbers(data[0], "X", self.kernel), data[1]
        cholesky = self.blocks.cholesky()
        q = self.variational.whitened(cholesky)
        expected = self.expected_log_density(data, cholesky, q)
        if self.num_data is not None:
            rows = tf.cast(tf.shape(data[0])[0], expected.dtype)
            expected *= tf.cast(self.num_data, expected.dtype) / rows
        return tf.cast(expected - q.kl(), data[0].dtype)

    def expected_log_density(
        self, data: RegressionData, cholesky: list[tf.Tensor], q: WhitenedGaussian
    ) -> tf.Tensor:
        """
        ``sum_n E_q[log p(y_n | rho(x_n))]``, in memory that does not grow with N.

        :param data: X [N, D] and Y [N, K].
        :param cholesky: of the prior at the present parameters.
        :param q: over the whitened inducing values.
        :return: in double precision.
        :raises ValueError: data that are not finite, do not fit together or are no possible
            observations; or of another precision than the parameters.
        """
        X, Y = checked_data(data, self.kernel, self.likelihood, self.num_latent_gps)
        check_precision(X, kernel=self.kernel, likelihood=self.likelihood)
        form, number = q.form(), len(cholesky)

        def part(inputs: tuple[tf.Tensor, ...], X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor]:
            features = self.blocks.features(X, list(inputs[:number]))
            mean, var = self.marginals(features, form(inputs[number:]), X)
            expected = self.likelihood.variational_expectations(X, mean, var, Y)
            return (tf.reduce_sum(tf.cast(expected, tf.float64)),)

        return sum_over_rows(part, (X, Y), (*cholesky, *q.tensors()))[0]

    def marginals(
        self, features: Features, q: WhitenedGaussian, X: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance [N, L] of the predictor, mean function included.

        :param features: of X.
        :param q: over the whitened inducing values.
        :param X: inputs [N, D].
        """
        X = tf.convert_to_tensor(X)
        mean = tf.cast(q.total_mean(features.phi), X.dtype) + self.mean_function(X)
        var = features.total_prior() + q.total_quadratic(features.phi)
        return mean, tf.cast(tf.transpose(var), X.dtype)
