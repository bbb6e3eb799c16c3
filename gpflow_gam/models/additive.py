"""Sparse variational additive models, and what all models share."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import (
    AnyNDArray,
    InputData,
    MeanAndVariance,
    Parameter,
    PriorOn,
    RegressionData,
    TensorType,
)
from gpflow.kernels import SeparateIndependent
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, Softmax
from gpflow.mean_functions import MeanFunction
from gpflow.models import GPModel
from gpflow.models.training_mixins import (
    ExternalDataTrainingLossMixin,
    InternalDataTrainingLossMixin,
)
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import assert_params_false

from ..bijectors import as_written, exponential, flat_values
from ..covariances import Features, InducingBlocks, check_layout
from ..errors import check_count, check_positive
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..likelihoods.base import (
    as_numbers,
    check_width,
    checked_data,
    checked_inputs,
    checked_observations,
    in_dtype_of,
    num_labels,
    unwrapped,
)
from ..likelihoods.discrete import FixedSoftmax
from ..likelihoods.predictive import predictive_log_density, predictive_moments
from ..posteriors import AdditivePosterior
from ..posteriors.base import SparseAdditivePosterior
from ..variational import (
    BlockPrecision,
    DenseGaussian,
    VariationalFamily,
    WhitenedGaussian,
    double,
    from_precision,
)

Tensors = tuple[tf.Tensor, ...]
RowSum = Callable[..., Tensors]

BLOCK = 8192
"""Rows of a block: large enough to keep two cores busy, small enough to stay near the caches."""


def sum_over_rows(fn: RowSum, rows: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> Tensors:
    """
    ``fn(inputs, *rows)``, which sums over rows [N, ...], block by block, and so its gradient.

    Gradients reach ``inputs`` and the variables that ``fn`` reads, in memory for one block.
    """
    number = rows[0].shape[0]
    if number is not None and number <= BLOCK:
        return fn(inputs, *rows)
    size = tf.shape(rows[0])[0]

    def slices(start: tf.Tensor) -> list[tf.Tensor]:
        return [r[start : start + BLOCK] for r in rows]

    def loop(step: Callable[[tf.Tensor], Tensors]) -> Tensors:
        def body(start: tf.Tensor, *totals: tf.Tensor) -> Tensors:
            return (start + BLOCK, *(t + s for t, s in zip(totals, step(start))))

        first = step(tf.constant(0))
        result = tf.while_loop(
            lambda start, *_: start < size,
            body,
            (tf.constant(BLOCK), *first),
            parallel_iterations=1,  # one block in memory at a time
        )
        return tuple(result[1:])

    @tf.custom_gradient
    def total(*flat: tf.Tensor) -> tuple[Tensors, Callable[..., Any]]:
        def gradient(*upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> Any:
            sources = [*flat, *(variables or ())]

            def step(start: tf.Tensor) -> Tensors:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    parts = fn(flat, *slices(start))
                    value = tf.add_n([tf.reduce_sum(u * p) for u, p in zip(upstream, parts)])
                grads = tape.gradient(value, sources, unconnected_gradients="zero")
                return tuple(tf.convert_to_tensor(g) for g in grads)

            grads = list(loop(step))
            own, others = grads[: len(flat)], grads[len(flat) :]
            return own if variables is None else (own, others)

        return loop(lambda start: fn(flat, *slices(start))), gradient

    return tuple(total(*inputs))


# --- what all models share ------------------------------------------------------------------------


def log_prior_density(parameters: Sequence[Parameter]) -> tf.Tensor:
    """The log-densities of the parameters' priors, summed as GPflow does, []."""
    # Those of one kind together: singly they were half of a training step's operations. They are
    # densities of logarithms less these: a cache of TFP's own keeps the graph it was called in.
    kinds: dict[type, list[Parameter]] = {}
    densities = []
    for p in parameters:
        if _has_location_and_scale(p):
            kinds.setdefault(type(p.prior), []).append(p)
        elif p.prior is not None:
            densities.append(p.log_prior_density())
    for kind, group in kinds.items():
        logs = tf.math.log(flat_values(group))
        location, scale = (
            np.concatenate([_entries(getattr(p.prior, name), p) for p in group])
            for name in ("loc", "scale")
        )
        density = kind(location, scale).distribution.log_prob(logs)
        densities.append(tf.reduce_sum(density - logs))
    if densities:
        return tf.add_n(densities)
    return tf.zeros([], dtype=parameters[0].dtype)


def _has_location_and_scale(parameter: Parameter) -> bool:
    """True if the prior is of a kind that those of several parameters can be put together in."""
    prior: Any = parameter.prior
    kinds = (tfp.distributions.LogNormal, tfp.distributions.LogLogistic)
    return (
        type(prior) in kinds
        and parameter.prior_on is PriorOn.CONSTRAINED
        and all(tf.get_static_value(c) is not None for c in (prior.loc, prior.scale))
    )


def _entries(value: Any, parameter: Parameter) -> AnyNDArray:
    """A prior's constant for every entry of its parameter, flat."""
    return np.broadcast_to(tf.get_static_value(value), tuple(parameter.shape)).ravel()


def check_kernel(kernel: object) -> AdditiveKernel:
    """The kernel, that of separate outputs as one of ours."""
    if isinstance(kernel, SeparateIndependent):
        if all(isinstance(k, AdditiveKernel) for k in kernel.kernels):
            return AdditiveKernel.separate(kernel.kernels)
    elif isinstance(kernel, AdditiveKernel):
        return kernel
    raise TypeError(
        "kernel must be a gpflow_gam.kernels.AdditiveKernel, or a SeparateIndependent of them; got "
        f"{type(kernel).__name__}. Wrap a single kernel as AdditiveKernel([kernel])."
    )


def check_outputs(kernel: AdditiveKernel, num_latent_gps: int) -> None:
    """Raise ValueError if the kernel is of another number of outputs."""
    if kernel.members is not None and len(kernel.members) != num_latent_gps:
        raise ValueError(
            f"kernel has {len(kernel.members)} output(s), but there are {num_latent_gps} latent "
            "functions; give it one kernel a latent function."
        )


class AdditiveModel(GPModel, abc.ABC):
    """A :class:`gpflow.models.GPModel` whose posterior has components."""

    kernel: AdditiveKernel
    data: tuple[tf.Tensor, tf.Tensor]  # where the model holds them
    elbo: Callable[..., tf.Tensor]
    """A lower bound of the evidence, []; of data where the model holds none."""

    @inherit_check_shapes
    @as_written
    def maximum_log_likelihood_objective(self, *data: RegressionData) -> tf.Tensor:
        return self.elbo(*data)

    @abc.abstractmethod
    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> AdditivePosterior:
        """
        The posterior at the present parameters.

        :param precompute_cache: ``TENSOR`` (default): a snapshot, differentiable; ``VARIABLE``:
            brought up to date by ``update_cache()``, also inside compiled functions; ``NOCACHE``:
            everything anew at each call.
        """

    def fused_posterior(self) -> AdditivePosterior:
        """The posterior without a cache, which follows the parameters."""
        return self.posterior(PrecomputeCacheType.NOCACHE)

    @inherit_check_shapes
    def log_prior_density(self) -> tf.Tensor:
        parameters = self.trainable_parameters
        return log_prior_density(parameters) if parameters else super().log_prior_density()

    @property
    def precision(self) -> tf.DType:
        """The dtype of the data it is fitted to, and of inputs to predict at."""
        return self.data[0].dtype

    def input_ends(self) -> tuple[list[float], list[float]]:
        """Least and greatest value of each column of X: of the data, or of inducing inputs."""
        seen: dict[int, AnyNDArray] = {}
        if (data := getattr(self, "data", None)) is not None:
            return np.min(data[0], axis=0).tolist(), np.max(data[0], axis=0).tolist()
        for Z, columns in zip(self.inducing_variable.inputs, self.kernel.columns):
            values = np.transpose(tf.convert_to_tensor(Z))
            for column, z in zip(range(len(values)) if columns is None else columns, values):
                seen[column] = np.append(z, seen.get(column, z))
        read = range(max([1, self.kernel.num_columns, *(c + 1 for c in seen)]))
        every = [seen.get(c, np.array([0.0, 1.0])) for c in read]
        return [float(z.min()) for z in every], [float(z.max()) for z in every]

    @property
    def _reader(self) -> AdditiveKernel:
        """The kernel that knows which columns of inputs are read."""
        return self.kernel

    def check_precision(self, X: tf.Tensor) -> None:
        """Raise ValueError if X [N, D] is of another precision than the parameters."""
        for name in ("kernel", "likelihood", "mean_function"):
            variables = getattr(self, name).variables
            others = {v.dtype.name for v in variables if v.dtype.is_floating} - {X.dtype.name}
            if others:
                raise ValueError(
                    f"X is {X.dtype.name}, but parameters of {name} are {others.pop()}. Pass data "
                    "of their precision; or make all parts of the model after "
                    f"gpflow.config.set_default_float(np.{X.dtype.name})."
                )

    def _numbers(self, Xnew: InputData) -> tf.Tensor:
        return as_numbers(Xnew, "Xnew", self.kernel, self.precision)

    def _checked_inputs(self, Xnew: InputData) -> tf.Tensor:
        return checked_inputs(self._numbers(Xnew), self._reader, "Xnew")

    @inherit_check_shapes
    @as_written
    def predict_f(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        Xnew = self._numbers(Xnew)
        if Xnew.shape.rank == 2:
            Xnew = self._checked_inputs(Xnew)
        return self.fused_posterior().fused_predict_f(
            Xnew, full_cov=full_cov, full_output_cov=full_output_cov
        )

    def _predictive_moments(self, X: tf.Tensor) -> MeanAndVariance:
        """Moments of the predictors at X, from which responses are predicted."""
        return self.predict_f(X)

    @as_written
    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """
        Mean and variance of new responses; of classes behind a softmax their probabilities.

        This is the model's predictive distribution, of which :meth:`predict_log_density` has the
        density: predictors that are correlated a posteriori are taken together.

        :param Xnew: inputs, [N, D].
        :param full_cov: not supported, as in GPflow.
        :param full_output_cov: not supported, as in GPflow.
        :return: [N, P] each.
        :raises TypeError: inputs of another precision than the data.
        :raises ValueError: inputs of another width, or not finite.
        """
        assert_params_false(self.predict_y, full_cov=full_cov, full_output_cov=full_output_cov)
        X = self._numbers(Xnew)
        return predictive_moments(self.likelihood, X, *self._predictive_moments(X))

    @as_written
    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """
        Log-density of each response under the distribution that :meth:`predict_y` is of.

        :param data: X [N, D], and Y [N, K] or, of one column, [N]; labels may be of any type.
        :param full_cov: not supported, as in GPflow.
        :param full_output_cov: not supported, as in GPflow.
        :return: [N]; times the weights of a weighted likelihood.
        :raises TypeError: inputs or responses of another precision than the data.
        :raises ValueError: X or Y that are not finite or of another shape; impossible Y.
        """
        assert_params_false(
            self.predict_log_density, full_cov=full_cov, full_output_cov=full_output_cov
        )
        X = self._numbers(data[0])
        return predictive_log_density(
            self.likelihood, X, *self._predictive_moments(X), self._responses(data[1], X)
        )

    def _responses(self, Y: TensorType, X: tf.Tensor) -> tf.Tensor:
        """Y as the likelihood takes it."""
        base = unwrapped(self.likelihood)
        labels = isinstance(base, Bernoulli) or num_labels(base) is not None
        Y = tf.cast(as_numbers(Y, "Y", X, None if labels else X.dtype), X.dtype)
        if Y.shape.rank == 1:
            Y = Y[:, None]
        if X.shape.rank != 2 or Y.shape.rank != 2:  # batches, which GPflow's interface has
            return in_dtype_of(self.likelihood, Y)
        check_width(Y.shape[1], self.likelihood, self.num_latent_gps)
        if None not in (X.shape[0], Y.shape[0]) and X.shape[0] != Y.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows, Y has {Y.shape[0]}; they must be equal.")
        return checked_observations(Y, self.likelihood)

    @as_written
    def predict_components(self, Xnew: InputData, full_cov: bool = False) -> MeanAndVariance:
        """
        Mean and variance of every component.

        See :meth:`~gpflow_gam.posteriors.AdditivePosterior.predict_components`.

        :param Xnew: inputs, [N, D].
        :param full_cov: covariances between inputs in place of variances.
        :raises TypeError: inputs of another precision than the data.
        :raises ValueError: inputs of another width, or not finite.
        """
        Xnew = self._checked_inputs(Xnew)
        return self.fused_posterior().predict_components(Xnew, full_cov=full_cov)


class DataModel(AdditiveModel, InternalDataTrainingLossMixin):
    """An additive model that holds its data."""

    @property
    def data(self) -> tuple[tf.Tensor, tf.Tensor]:
        """
        X [N, D] and Y [N, K], tensors. Others may be assigned; the next fit is to them.

        :raises ValueError: they do not fit together, Y cannot come of the likelihood, or X is of
            another precision than the parameters.
        """
        return self._data

    @data.setter
    def data(self, data: RegressionData) -> None:
        X, Y = checked_data(data, self._reader, self.likelihood, self.num_latent_gps)
        if X.dtype not in (tf.float32, tf.float64):
            raise ValueError(f"X must be float32 or float64; got {X.dtype.name}.")
        if X.shape[0] == 0:
            raise ValueError("X has no rows; there is nothing to fit.")
        self.check_precision(X)
        self._data = X, Y


def columns_of(data: RegressionData) -> int:
    """The columns of Y, for what is made before data are checked."""
    if isinstance(data, (tuple, list)) and len(data) == 2 and np.ndim(data[1]) == 2:
        return int(np.shape(data[1])[1])
    return 1  # checked_data says what is wrong


class SparseAdditiveModel(AdditiveModel):
    """An additive model with inducing variables."""

    inducing_variable: AdditiveInducingVariables

    @property
    def blocks(self) -> InducingBlocks:
        """The covariances between inducing values and functions."""
        return InducingBlocks(self.inducing_variable, self.kernel)

    @abc.abstractmethod
    def whitened(self, cholesky: list[tf.Tensor]) -> WhitenedGaussian:
        """
        The posterior q(V) of the whitened inducing values.

        :param cholesky: of the prior at the present parameters, [G, M, M] a group.
        """

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR
    ) -> SparseAdditivePosterior:
        return SparseAdditivePosterior(
            self.kernel,
            self.inducing_variable,
            self.whitened,
            self.num_latent_gps,
            self.mean_function,
            precompute_cache=precompute_cache,
        )


# --- AdditiveSVGP ---------------------------------------------------------------------------------


class AdditiveSVGP(SparseAdditiveModel, ExternalDataTrainingLossMixin):
    """
    Additive sparse variational GP: minibatches, any likelihood (Adam, Durrande & John 2018).

    :param kernel: the components' priors, the same for all outputs; or a
        ``gpflow.kernels.SeparateIndependent`` of one additive kernel an output, which becomes
        one kernel with ``members``: components keep their outputs apart (``"0:f1"``), and one
        object in several outputs has the same hyperparameters there.
    :param likelihood: any GPflow likelihood; one with several latent functions (softmax) gives
        each its own q, under the same prior. GPflow's softmax, whose bound is drawn anew at each
        call, is replaced by :class:`~gpflow_gam.likelihoods.FixedSoftmax`.
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
        inducing_variable: AdditiveInducingVariables,
        *,
        variational: VariationalFamily | None = None,
        mean_function: MeanFunction | None = None,
        num_data: int | None = None,
        num_latent_gps: int | None = None,
    ) -> None:
        kernel = check_kernel(kernel)
        if type(likelihood) is Softmax:
            likelihood = FixedSoftmax(likelihood.num_classes)  # type: ignore[arg-type]
        if num_latent_gps is None:
            outputs = 1 if kernel.members is None else len(kernel.members)
            num_latent_gps = likelihood.latent_dim or outputs
        check_outputs(kernel, num_latent_gps)
        super().__init__(kernel, likelihood, mean_function, num_latent_gps)
        check_count("num_data", num_data)
        self.num_data = num_data
        self.inducing_variable = inducing_variable
        if variational is None:
            variational = BlockPrecision()
        self.variational = variational
        blocks = self.blocks
        variational.build(blocks.layout, num_latent_gps, kernel.members)

    @property
    def precision(self) -> tf.DType:
        return self.inducing_variable.inputs[0].dtype

    def whitened(self, cholesky: list[tf.Tensor]) -> WhitenedGaussian:
        check_layout(self.variational.layout, self.blocks)
        return self.variational.whitened(cholesky)

    @check_shapes("return: []")
    @as_written
    def prior_kl(self) -> tf.Tensor:
        """KL[q(U) || p(U)], summed over the latent outputs."""
        return tf.cast(self.whitened(self.blocks.cholesky()).kl(), self.precision)

    @check_shapes("data[0]: [N, D]", "data[1]: [N, K]", "return: []")
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
        q = self.whitened(cholesky)
        expected = self.expected_log_density(data, cholesky, q)
        if self.num_data is not None:
            rows = tf.cast(tf.shape(data[0])[0], expected.dtype)
            expected *= tf.cast(self.num_data, expected.dtype) / rows
        return tf.cast(expected - q.kl(), data[0].dtype)

    def expected_log_density(
        self, data: RegressionData, cholesky: list[tf.Tensor], q: WhitenedGaussian
    ) -> tf.Tensor:
        """``sum_n E_q[log p(y_n | rho(x_n))]`` in double precision; memory does not grow with N."""
        X, Y = checked_data(data, self.kernel, self.likelihood, self.num_latent_gps)
        self.check_precision(X)
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
        """Mean and variance [N, L] of the predictor at X [N, D], mean function included."""
        X = tf.convert_to_tensor(X)
        mean = tf.cast(q.total_mean(features.phi), X.dtype) + self.mean_function(X)
        var = features.total_prior() + q.total_quadratic(features.phi)
        return mean, tf.cast(tf.transpose(var), X.dtype)


# --- AdditiveSGPR ---------------------------------------------------------------------------------


class SufficientStatistics(NamedTuple):
    """Sums over data in group order, in double precision; w_n are the weights."""

    gram: tf.Tensor  # sum_n w_n phi_n phi_n', [P, P]
    cross: tf.Tensor  # sum_n w_n phi_n e_n', [P, L], with e_n = y_n - m(x_n)
    # sum_n w_n sum_c (k_c(x_n, x_n) - |phi_c(x_n)|^2), []; of outputs' own components, [L]
    missing: tf.Tensor
    error: tf.Tensor  # sum_n w_n |e_n|^2, []
    number: tf.Tensor  # sum_n w_n, []


class AdditiveSGPR(DataModel, SparseAdditiveModel):
    """
    Sparse additive GP regression: q(U) optimal in closed form, every coupling exact.

    The collapsed bound of Titsias (2009) with the components' features stacked. Its statistics are
    summed over blocks of rows, forward and backward, so that memory is O(P^2 + block): a million
    rows are no difficulty.

    :param data: X [N, D] and Y [N, L].
    :param kernel: the components' priors, the same for all outputs; or a
        ``gpflow.kernels.SeparateIndependent`` of one additive kernel an output, which becomes
        one kernel with ``members``: components keep their outputs apart (``"0:f1"``), and one
        object in several outputs has the same hyperparameters there.
    :param inducing_variable: inducing inputs per component.
    :param noise_variance: where the noise variance starts. It is learnt in logarithms, without
        GPflow's lower bound of 1e-6: what is small depends on the unit of Y.
    :param mean_function: m(x); zero by default.
    :param weights: how often each row counts, [N]; once by default. Data of another number of rows
        need others, by assignment to ``weights``.
    :raises TypeError: an argument of the wrong kind.
    :raises ValueError: bad data or arguments that do not fit together, with what to change.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: AdditiveKernel | SeparateIndependent,
        inducing_variable: AdditiveInducingVariables,
        noise_variance: float = 1.0,
        *,
        mean_function: MeanFunction | None = None,
        weights: TensorType | None = None,
    ) -> None:
        kernel = check_kernel(kernel)
        check_positive("noise_variance", noise_variance)
        likelihood = Gaussian()
        likelihood.variance = Parameter(noise_variance, transform=exponential())
        super().__init__(kernel, likelihood, mean_function, num_latent_gps=columns_of(data))
        self.data = data
        check_outputs(kernel, self.num_latent_gps)
        self.weights = None if weights is None else _checked_weights(weights, self.data[0])
        self.inducing_variable = inducing_variable
        InducingBlocks(self.inducing_variable, kernel)  # raises where the two do not fit together

    def row_weights(self) -> tf.Tensor:
        """How often each row counts, [N]."""
        X = self.data[0]
        if self.weights is None:
            return tf.ones(tf.shape(X)[:1], dtype=X.dtype)
        return _checked_weights(self.weights, X)

    def statistics(self, cholesky: list[tf.Tensor]) -> SufficientStatistics:
        """The data's sufficient statistics, by the prior's factors at the present parameters."""

        def part(
            inputs: tuple[tf.Tensor, ...], X: tf.Tensor, Y: tf.Tensor, w: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            blocks = self.blocks
            features = blocks.features(X, list(inputs))
            error, w = double(Y - self.mean_function(X)), double(w)
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

        rows = (*self.data, self.row_weights())
        return SufficientStatistics(*sum_over_rows(part, rows, cholesky))

    def _sites(self, statistics: SufficientStatistics) -> tuple[tf.Tensor, tf.Tensor]:
        """Phi Phi'/s2 [L or 1, P, P] and Phi e/s2 [P, L], zero beside an output's components."""
        noise = double(self.likelihood.variance)
        Lambda, eta = statistics.gram[None] / noise, statistics.cross / noise
        return self.blocks.layout.separated(self.kernel.members, Lambda, eta)

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
        noise = double(self.likelihood.variance)
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


def _checked_weights(weights: TensorType, X: tf.Tensor) -> tf.Tensor:
    if not tf.executing_eagerly() and tf.is_tensor(weights):  # a variable has no value there
        return tf.cast(weights, X.dtype)
    w = np.asarray(weights, dtype=X.dtype.as_numpy_dtype)
    if w.shape != (int(X.shape[0]),) or not np.all(np.isfinite(w) & (w >= 0.0)):
        raise ValueError(
            f"weights must be {int(X.shape[0])} finite numbers, none negative; got shape {w.shape}"
            + (f", smallest {np.min(w):g}." if w.size else ".")
        )
    return tf.cast(weights, X.dtype)  # a tensor stays what it is: no constant of a graph
