"""Draws of hyperparameters around their optimum, and the posterior of a model at each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import deepcopy

from ..covariances import InducingBlocks
from ..errors import NotPositiveDefinite
from ..kernels.tangents import KernelTangents
from ..likelihoods import checked_observations
from ..models import AdditiveSGPR, AdditiveSVGP
from ..posteriors import InducingMoments
from ..posteriors.features import Block
from ..variational import OptimalPrecision, WhitenedGaussian
from .hyperparameters import Hyperparameters, differenced
from .laplace_steps import Steps, centre_of_draws, standard_normal
from .minimizers import Traced
from .sites import collected, data_sites, elbo_at_sites, q_from

Whitened = Callable[[list[tf.Tensor]], WhitenedGaussian]
"""From the Cholesky factors of K_c(Z_c, Z_c) to q(V)."""


class HyperparameterDraw:
    """
    A posterior at other hyperparameters than the fitted ones.

    :param moments: of the inducing values.
    :param likelihood: gives the likelihood with its parameters there: few ask for it.
    :param shares_kernel: whether the moments are of the model's own kernel at other values.
    """

    def __init__(
        self,
        moments: InducingMoments,
        likelihood: Callable[[], Likelihood],
        shares_kernel: bool = True,
    ) -> None:
        self.moments = moments
        self.shares_kernel = shares_kernel
        self._make = likelihood

    def tangents(self, blocks: Sequence[Block]) -> list[KernelTangents]:
        """The matrices of components at points, for moments that share no kernel with others."""
        return [self.moments.tangents(name, X) for name, X in blocks]

    @functools.cached_property
    def likelihood(self) -> Likelihood:
        """The likelihood at the draw."""
        return self._make()


def draw_hyperparameters(
    model: GPModel, data: RegressionData | None = None
) -> list[HyperparameterDraw]:
    """
    The posterior of the inducing values at draws of the hyperparameters.

    Hyperparameters are normal in the coordinates in which they are optimised, with the objective's
    curvature at its optimum (Laplace). At each draw q is the optimal one for Gaussian data; for
    others it is that of the observations' sites, which are held. Empty for other models and
    families of q, which say nothing of other hyperparameters, and where nothing is trainable.

    :param model: at its optimum.
    :param data: X [N, D] and Y [N, K] of a model that holds none.
    :return: 32 draws, in pairs of opposite ones; one at which kernel matrices do not factorise is
        moved towards the optimum.
    :raises ValueError: the model needs data.
    """
    whitened: Whitened | None = None
    if isinstance(model, AdditiveSVGP):
        if not isinstance(model.variational, OptimalPrecision):
            return []
        if data is None:
            raise ValueError(
                "data is missing: the model holds none, and how far its hyperparameters are known "
                "depends on them; pass (X, Y)."
            )
        fixed = {v.ref() for v in model.variational.trainable_variables}
        loss, whitened = _at_sites(model, *(tf.convert_to_tensor(d) for d in data))
    elif isinstance(model, AdditiveSGPR):
        fixed = set()
        loss = model.training_loss_closure(compile=False)
    else:
        return []
    variables = [v for v in model.trainable_variables if v.ref() not in fixed]
    if not variables:
        return []
    coordinates = _Coordinates(variables)
    learnt = Hyperparameters(model.trainable_parameters)
    u = learnt.get()
    raised, slopes = (
        coordinates.vector(
            {
                p.unconstrained_variable.ref(): own
                for p, own in zip(learnt.parameters, learnt.by_parameter(values))
            }
        )
        for values in (learnt.off_zero(u) - u, learnt.to_uniform_sd())
    )
    fitted = coordinates.get()
    try:
        optimum, steps = _steps_of(loss, coordinates, fitted + raised, slopes)
        draws = []
        for point in standard_normal(len(optimum)):
            moments = _moments_towards(model, whitened, coordinates, optimum, steps(point))
            likelihood = functools.partial(_same, deepcopy(model.likelihood))
            draws.append(HyperparameterDraw(moments, likelihood, shares_kernel=False))
    finally:
        coordinates.set(fitted)
    return draws


def _same(likelihood: Likelihood) -> Likelihood:
    return likelihood


def _moments_towards(
    model: AdditiveSVGP | AdditiveSGPR,
    whitened: Whitened | None,
    coordinates: _Coordinates,
    optimum: AnyNDArray,
    step: AnyNDArray,
) -> InducingMoments:
    """
    The moments a step from the optimum, or as far on as they can be computed.

    Where a component has vanished its lengthscale says nothing, and may be where numbers end.
    """
    for share in (1.0, 0.5, 0.25, 0.125):
        coordinates.set(optimum + share * step)
        try:
            return _frozen_moments(model, whitened)
        except tf.errors.InvalidArgumentError:
            continue
    coordinates.set(optimum)
    return _frozen_moments(model, whitened)


def _frozen_moments(
    model: AdditiveSVGP | AdditiveSGPR, whitened: Whitened | None
) -> InducingMoments:
    """The moments at the hyperparameters that the model has now, which are about to change."""
    kernel = deepcopy(model.kernel)
    blocks = InducingBlocks(model.inducing_variable, kernel)
    if whitened is None:
        q = model.posterior(PrecomputeCacheType.NOCACHE).q()
    else:
        q = whitened(blocks.cholesky())
    return InducingMoments.of_gaussian(kernel, model.inducing_variable, q)


def _at_sites(
    model: AdditiveSVGP, X: tf.Tensor, Y: tf.Tensor
) -> tuple[Callable[[], tf.Tensor], Whitened]:
    """The loss, and q, as hyperparameters move and the site of each observation stays."""
    data = X, checked_observations(Y, model.likelihood)
    cholesky = model.blocks.cholesky()
    sites = data_sites(model, data, cholesky, model.variational.whitened(cholesky), True)

    def loss() -> tf.Tensor:
        bound = elbo_at_sites(model, data, sites)
        return -(bound + tf.cast(model.log_prior_density(), bound.dtype))

    return loss, lambda factors: q_from(model, collected(model, factors, X, sites))


class _Coordinates:
    """Several variables as one vector."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self.variables = variables
        self.sizes = [int(tf.size(v)) for v in variables]

    def get(self) -> AnyNDArray:
        return np.concatenate([v.numpy().ravel() for v in self.variables])

    def vector(self, values: Mapping[Any, AnyNDArray]) -> AnyNDArray:
        """Values by the variables' references, zero where there is none."""
        zeros = {v.ref(): np.zeros(size) for v, size in zip(self.variables, self.sizes)}
        return np.concatenate([np.ravel(values.get(ref, zero)) for ref, zero in zeros.items()])

    def set(self, values: AnyNDArray) -> None:
        parts = np.split(values, np.cumsum(self.sizes)[:-1])
        for variable, part in zip(self.variables, parts):
            variable.assign(part.reshape(variable.shape))


def _steps_of(
    loss: Callable[[], tf.Tensor],
    coordinates: _Coordinates,
    start: AnyNDArray,
    slopes: AnyNDArray,
) -> tuple[AnyNDArray, Steps]:
    """The centre of draws and steps from there, of a loss in variables."""

    @Traced
    def traced() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = loss()
        gradients: list[tf.Tensor] = tape.gradient(
            value, coordinates.variables, unconnected_gradients="zero"
        )
        return value, gradients

    def at(values: AnyNDArray) -> tuple[float, AnyNDArray]:
        coordinates.set(values)
        try:
            value, gradients = traced()
        except tf.errors.InvalidArgumentError:
            raise NotPositiveDefinite from None
        if not np.isfinite(value):
            raise NotPositiveDefinite
        return float(value), np.concatenate([g.numpy().ravel() for g in gradients])

    centre = centre_of_draws(at, start, slopes)
    hessian = differenced(lambda u: at(u)[1], centre)
    return centre, Steps(lambda u: at(u)[0] - float(slopes @ u), centre, hessian)
