"""What not knowing the hyperparameters adds to the uncertainty of an effect."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import logsumexp

from ...likelihoods import checked_observations, unwrapped
from ...optimizers.laplace import HyperparameterDraw, draw_hyperparameters
from ...posteriors.inducing import Block
from ..fits import FittedGAM
from .joint import inducing_moments


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

    See :func:`gpflow_gam.optimizers.laplace.draw_hyperparameters`; empty where it has none.
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
    return draw_hyperparameters(fit.model, (fit.X, fit.Y))


def _fitted(fit: FittedGAM) -> HyperparameterDraw:
    return HyperparameterDraw(inducing_moments(fit), fit.likelihood)
