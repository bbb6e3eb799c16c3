"""What not knowing the hyperparameters adds to the uncertainty of an effect."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.utilities import deepcopy
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from ..fits import FittedGAM
from ..likelihoods import checked_observations, unwrapped
from ..minimizers import Traced
from ..models import AdditiveSVGP, IterNCGP
from ..optimizers.sites import collected, data_sites, elbo_at_sites, q_from
from ..posteriors import InducingMoments
from ..posteriors.inducing import Block
from ..variational import OptimalPrecision
from .joint import Whitened, frozen_moments, inducing_moments

_NUM_DRAWS = 32
_STEP = 1e-2
_MAX_SD = 2.0
"""Where the objective is flatter in a (logarithmic) hyperparameter, the draws go no further."""


@dataclasses.dataclass(frozen=True)
class HyperparameterDraw:
    """
    A posterior at other hyperparameters than the fitted ones.

    :param moments: of the inducing values.
    :param likelihood: its parameters there.
    """

    moments: InducingMoments
    likelihood: Likelihood


def joint_moments(
    fit: FittedGAM, blocks: Sequence[Block], unconditional: bool = True
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Mean [n, L] and covariance [L, n, n] of components at points.

    :param blocks: components and rows of X, each component once.
    :param unconditional: whether the covariance allows for uncertain hyperparameters:
        ``E[Cov(f | theta)] + Cov(E[f | theta])`` over draws of theta, around the mean at the fitted
        ones (Wood, Pya & Saefken 2016, section 4, who linearise what is drawn here).
    """
    mean, covariance = inducing_moments(fit).joint(blocks)
    draws = hyperparameter_draws(fit) if unconditional else []
    if not draws:
        return mean, covariance
    covariance = np.zeros_like(covariance)  # a sum as they come: maps have large ones
    for draw in draws:
        own, inner = draw.moments.joint(blocks)
        away = (own - mean).T  # around the estimate that is reported, not the draws' own mean
        covariance += (inner + away[:, :, None] * away[:, None, :]) / len(draws)
    return mean, covariance


_DRAWS: weakref.WeakKeyDictionary[FittedGAM, list[HyperparameterDraw]] = weakref.WeakKeyDictionary()


def hyperparameter_draws(fit: FittedGAM) -> list[HyperparameterDraw]:
    """
    The posterior of the inducing values at draws of the hyperparameters, kept as long as the fit.

    Hyperparameters are normal in the coordinates in which they are optimised, with the objective's
    curvature at its optimum (Laplace). At each draw q is the optimal one for Gaussian data; for
    others it is that of the observations' sites, which are held. Empty for other families of q,
    which say nothing of other hyperparameters, and where nothing is trainable.
    """
    if fit not in _DRAWS:
        _DRAWS[fit] = _draw(fit)
    return _DRAWS[fit]


def averaged_log_density(fit: FittedGAM, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """
    log p(y | data) of each row, [N], averaged over draws of the hyperparameters.

    :param X: [N, D].
    :param Y: [N, K], as the likelihood takes it.
    """
    draws = hyperparameter_draws(fit) or [_fitted(fit)]
    parts = []
    for rows in fit.blocks(np.concatenate([X, Y], axis=1)):
        x, y = rows[:, : X.shape[1]], rows[:, X.shape[1] :]
        labels = checked_observations(y, fit.likelihood)
        shift = np.asarray(fit.model.mean_function(x))
        found = []
        for draw in draws:
            mean, var = draw.moments.total(x)
            likelihood = unwrapped(draw.likelihood)
            density = likelihood.predict_log_density(x, mean + shift, np.maximum(var, 0.0), labels)
            found.append(np.asarray(density))
        parts.append(logsumexp(found, axis=0) - np.log(len(found)))
    whole: AnyNDArray = np.concatenate(parts)
    return whole


def _draw(fit: FittedGAM) -> list[HyperparameterDraw]:
    model = fit.model
    if isinstance(model, IterNCGP):
        return []
    whitened: Whitened | None = None
    if isinstance(model, AdditiveSVGP):
        if not isinstance(model.variational, OptimalPrecision):
            return []
        fixed = {v.ref() for v in model.variational.trainable_variables}
        loss, whitened = _at_sites(model, fit)
    else:
        fixed = set()
        loss = model.training_loss_closure(compile=False)
    variables = [v for v in model.trainable_variables if v.ref() not in fixed]
    if not variables:
        return []
    coordinates = _Coordinates(variables)
    optimum = coordinates.get()
    try:
        factor = _covariance_factor(loss, coordinates, optimum)
        uniform = qmc.Sobol(len(optimum), seed=0).random(_NUM_DRAWS // 2)
        z = norm.ppf(np.clip(uniform, 1e-3, 1.0 - 1e-3))
        draws = []
        for point in np.concatenate([z, -z]):
            coordinates.set(optimum + factor @ point)
            moments = frozen_moments(fit, whitened)
            draws.append(HyperparameterDraw(moments, deepcopy(model.likelihood)))
    finally:
        coordinates.set(optimum)
    return draws


def _fitted(fit: FittedGAM) -> HyperparameterDraw:
    return HyperparameterDraw(inducing_moments(fit), fit.likelihood)


def _at_sites(model: AdditiveSVGP, fit: FittedGAM) -> tuple[Callable[[], tf.Tensor], Whitened]:
    """The loss, and q, as hyperparameters move and the site of each observation stays."""
    X = tf.constant(fit.X)
    data = X, checked_observations(fit.Y, model.likelihood)
    cholesky = model.blocks.cholesky()
    sites = data_sites(model, data, cholesky, model.variational.whitened(cholesky))

    def loss() -> tf.Tensor:
        return -(elbo_at_sites(model, data, sites) + model.log_prior_density())

    return loss, lambda factors: q_from(model, collected(model, factors, X, sites))


class _Coordinates:
    """Several variables as one vector."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self.variables = variables
        self.sizes = [int(tf.size(v)) for v in variables]

    def get(self) -> AnyNDArray:
        return np.concatenate([v.numpy().ravel() for v in self.variables])

    def set(self, values: AnyNDArray) -> None:
        parts = np.split(values, np.cumsum(self.sizes)[:-1])
        for variable, part in zip(self.variables, parts):
            variable.assign(part.reshape(variable.shape))


def _covariance_factor(
    loss: Callable[[], tf.Tensor], coordinates: _Coordinates, optimum: AnyNDArray
) -> AnyNDArray:
    """A square root of the inverse Hessian of the loss, by differences of gradients."""

    @Traced
    def gradient() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = loss()
        gradients: list[tf.Tensor] = tape.gradient(
            value, coordinates.variables, unconnected_gradients="zero"
        )
        return gradients

    def at(values: AnyNDArray) -> AnyNDArray:
        coordinates.set(values)
        return np.concatenate([g.numpy().ravel() for g in gradient()])

    steps = _STEP * np.eye(len(optimum))
    hessian = np.stack([(at(optimum + e) - at(optimum - e)) / (2.0 * _STEP) for e in steps])
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    sd = np.minimum(1.0 / np.sqrt(np.maximum(values, 1e-12)), _MAX_SD)
    factor: AnyNDArray = vectors * sd
    return factor
