"""Numbers that sum a component up: degrees of freedom, share of variance, distance from zero."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...posteriors import ShapedMoments
from ...sensitivity.dependent import draw_covariances
from ..components import Component
from ..effects import inducing_moments, max_deviations
from ..fits import FittedGAM

_ROWS = 500
_DRAWS = 1000


def effective_dof(fit: FittedGAM, component: Component) -> AnyNDArray:
    """
    Effective degrees of freedom of a component for each predictor, [L].

    With whitened inducing values of prior N(0, I) and posterior covariance S, the smoother
    matrix is I - S; its trace over the component's block is what the data have settled (Wood 2017,
    section 6.1.2, where ``F = (X'WX + S)^-1 X'WX``).

    :param fit: a fitted GAM.
    :param component: one of the fit's.
    """
    moments = inducing_moments(fit)
    block = moments.block(component.name)
    if isinstance(moments, ShapedMoments):
        settled = moments.settled(component.name)
    else:
        S = moments.covariance[:, block, block]
        settled = S.shape[-1] - np.trace(S, axis1=1, axis2=2)
    enters: AnyNDArray = moments.entering([component.name])[0]
    return np.maximum(settled, 0.0) * enters


def variance_shares(fit: FittedGAM, seed: int = 0) -> AnyNDArray:
    """
    Draws of ``Var[f_c] / sum_d Var[f_d]`` over the data, [S, C, L], without the intercept.

    Variances are over at most 500 rows; the draws carry the posterior's uncertainty at the fitted
    hyperparameters.

    :param fit: a fitted GAM.
    :param seed: of the draws.
    """
    if not fit.spec.effects:  # the intercept alone
        return np.zeros((_DRAWS, 0, fit.num_predictors))
    rows = fit.even_rows(_ROWS)
    draws = draw_covariances(
        [inducing_moments(fit)], fit.X[rows], fit.weights[rows], fit.spec.effect_names, _DRAWS, seed
    )
    total = draws.variances.sum(axis=1, keepdims=True)
    shares: AnyNDArray = np.divide(
        draws.variances, total, out=np.zeros_like(draws.variances), where=total > 0.0
    )
    return shares


def zero_tail(fit: FittedGAM, component: Component, seed: int = 0) -> AnyNDArray:
    """
    The posterior probability of functions at least as far from the estimate as zero is, [L].

    Distance is the largest deviation in standard errors over the data, so that the value is 0.05
    where the simultaneous 95 % band just touches zero. It is no p-value, and it takes
    hyperparameters as known.

    :param fit: a fitted GAM.
    :param component: one of the fit's.
    :param seed: of the simulation.
    """
    points = np.unique(
        fit.X[fit.even_rows(_ROWS)][:, [m.column for m in component.margins]], axis=0
    )
    X = component.full(
        points[np.unique(np.linspace(0, len(points) - 1, 100).astype(int))], fit.spec.encoder.width
    )
    mean, covariance = inducing_moments(fit).joint([(component.name, X)])
    if component.form == "means":
        mean = mean + fit.constant_of(component) / fit.units[0]
    tails = []
    for i in range(fit.num_predictors):
        sd = np.sqrt(np.maximum(np.diag(covariance[i]), 0.0))
        draws = max_deviations(covariance[i], seed)
        alive = sd > 1e-6 * max(sd.max(initial=0.0), 1e-300)
        if len(draws) == 0 or not alive.any():
            tails.append(1.0)
            continue
        tails.append(float(np.mean(draws >= np.max(np.abs(mean[alive, i]) / sd[alive]))))
    return np.array(tails)
