"""Bases of the additive models, and checks of their arguments."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import (
    AnyNDArray,
    InputData,
    MeanAndVariance,
    Parameter,
    PriorOn,
    RegressionData,
    TensorType,
)
from gpflow.inducing_variables import SeparateIndependentInducingVariables
from gpflow.kernels import SeparateIndependent
from gpflow.likelihoods import Bernoulli
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import assert_params_false

from ..autograph import as_written
from ..covariances import InducingBlocks
from ..inducing_variables import AdditiveInducingVariables, joined
from ..kernels import AdditiveKernel, SeparateAdditive
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import predictive_log_density, predictive_moments
from ..likelihoods.support import (
    as_numbers,
    check_width,
    checked_inputs,
    checked_observations,
    in_dtype_of,
    num_labels,
)
from ..posteriors import AdditivePosterior, SparseAdditivePosterior
from ..variational import WhitenedGaussian


def log_prior_density(parameters: Sequence[Parameter]) -> tf.Tensor:
    """
    The log-densities of the parameters' priors, summed as GPflow does, [].

    Those of one kind are evaluated together: singly they were half of a training step's
    operations. They are densities of logarithms less these, the change of measure: the bijector
    of TFP's own density has a cache that keeps the graph it was called in.
    """
    kinds: dict[type, list[Parameter]] = {}
    densities = []
    for p in parameters:
        if _has_location_and_scale(p):
            kinds.setdefault(type(p.prior), []).append(p)
        elif p.prior is not None:
            densities.append(p.log_prior_density())
    for kind, group in kinds.items():
        logs = tf.math.log(tf.concat([tf.reshape(p, [-1]) for p in group], axis=0))
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
            return SeparateAdditive.of(kernel)
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


def check_inducing(inducing_variable: object, kernel: AdditiveKernel) -> AdditiveInducingVariables:
    """The inducing variables, those of separate outputs as one of ours."""
    if isinstance(inducing_variable, SeparateIndependentInducingVariables):
        parts = inducing_variable.inducing_variables
        if kernel.members is not None and all(
            isinstance(p, AdditiveInducingVariables) for p in parts
        ):
            return joined(parts, kernel.names, kernel.members)
    elif isinstance(inducing_variable, AdditiveInducingVariables):
        return inducing_variable
    raise TypeError(
        "inducing_variable must be AdditiveInducingVariables, or with a SeparateIndependent kernel "
        f"one of them an output; got {type(inducing_variable).__name__}."
    )


def check_precision(X: tf.Tensor, **parts: tf.Module) -> None:
    """Shapes: X [N, D]."""
    for name, part in parts.items():
        others = {v.dtype.name for v in part.variables if v.dtype.is_floating} - {X.dtype.name}
        if others:
            raise ValueError(
                f"X is {X.dtype.name}, but parameters of {name} are {others.pop()}. Pass data of "
                "their precision; or make all parts of the model after "
                f"gpflow.config.set_default_float(np.{X.dtype.name})."
            )


class AdditiveModel(GPModel, abc.ABC):
    """A :class:`gpflow.models.GPModel` whose posterior has components."""

    kernel: AdditiveKernel
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
    @abc.abstractmethod
    def precision(self) -> tf.DType:
        """The dtype of the data it is fitted to, and of inputs to predict at."""

    def _numbers(self, Xnew: InputData) -> tf.Tensor:
        return as_numbers(Xnew, "Xnew", self.kernel, self.precision)

    def _checked_inputs(self, Xnew: InputData) -> tf.Tensor:
        return checked_inputs(self._numbers(Xnew), self.kernel, "Xnew")

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
