"""Numbers that sum a component up: degrees of freedom, share of variance, p-values."""

from __future__ import annotations

import numpy as np
import scipy.stats
from gpflow.base import AnyNDArray

from ...posteriors import ShapedMoments
from ...sensitivity.dependent import draw_covariances
from ..components import Component
from ..effects import inducing_moments
from ..fits import FittedGAM

SMOOTH = ("smooth", "tensor", "interaction", "own", "curves", "deviations")
"""Forms of components that are functions of numbers."""
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


def p_values(fit: FittedGAM, component: Component) -> AnyNDArray:
    """
    P-values of the hypothesis that a component is zero, one for each predictor, [L].

    Whitened inducing values have the prior N(0, I) and the posterior N(m, S). Where the component
    is zero ``m' S^-1 m`` is a sum of independent ``(1 - s_i) chi^2_1``, with s_i the eigenvalues of
    S: a Wald test of what is not penalised, a score test of a variance at its boundary of zero
    (Wood 2013, "A simple test for random effects in regression models"). Smooths, which have learnt
    their lengthscales from the same data, take ``1 - s_i^2``, whose sum are the degrees of freedom
    ``tr(2 F - F F)`` of Wood 2013, "On p-values for smooth components of an extended generalized
    additive model". Shapes are left out.

    :param fit: a fitted GAM.
    :param component: one of the fit's.
    """
    moments = fit.free_moments or inducing_moments(fit)
    block = moments.block(component.name)
    mean = moments.mean[block]
    if component.form == "means":  # levels that have the constant, too
        points = np.unique(fit.X[:, [m.column for m in component.margins]], axis=0)
        phi = moments.features(component.name, component.full(points, fit.spec.encoder.width))
        constant = np.tile(fit.constant_of(component) / fit.units[0], (len(points), 1))
        mean = mean + np.linalg.lstsq(phi.T, constant, rcond=None)[0]
    left, bound = np.inf, None if fit.solution is None else fit.solution.bound
    if bound is not None and len(bound.noise):
        dof = sum(float(effective_dof(fit, c).sum()) for c in fit.spec.components)
        left = max(bound.error[1] - dof, 1.0)
    return np.array(
        [
            _tail(m, S, left, 2 if component.form in SMOOTH else 1) if enters else 1.0
            for m, S, enters in zip(
                mean.T,
                moments.covariance[:, block, block],
                moments.entering([component.name])[0],
            )
        ]
    )


def _tail(mean: AnyNDArray, covariance: AnyNDArray, left: float, power: int) -> float:
    """
    How often ``m' S^-1 m`` is larger where the component is zero.

    The sum of chi-squares is taken for one that is shifted and has the same mean, variance and
    skewness (Liu, Tang & Zhang 2009), which is exact where the weights are equal.

    :param left: residual degrees of freedom behind a noise variance that was learnt.
    :param power: of the eigenvalues in the weights.
    """
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, 1e-12, 1.0)
    weights = 1.0 - values**power
    if np.max(weights, initial=0.0) < 1e-10:
        return 1.0
    statistic = float(np.sum(np.square(vectors.T @ mean) / values))
    first, second, third = (float(np.sum(weights**k)) for k in (1, 2, 3))
    dof = second**3 / third**2
    at = dof + (statistic - first) * second / third
    if np.isinf(left):
        return float(scipy.stats.chi2.sf(at, dof))
    return float(scipy.stats.f.sf(at / dof, dof, left))
