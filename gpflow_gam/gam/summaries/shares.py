"""Numbers that sum a component up: degrees of freedom, share of variance, p-values."""

from __future__ import annotations

import numpy as np
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.linalg import cho_factor, cho_solve

from ...newton.curvatures import curvature
from ...posteriors import InducingMoments, ShapedMoments
from ...sensitivity.dependent import draw_covariances
from ..components import Component
from ..effects import inducing_moments
from ..fits import FittedGAM

SMOOTH = ("smooth", "tensor", "interaction", "own", "curves", "deviations")
"""Forms of components that are functions of numbers."""
_ROWS = 500
_MODE_ROWS, _MODE_STEPS, _MODE_GAIN = 20_000, 50, 1e-8
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


def p_values(fit: FittedGAM) -> dict[str, AnyNDArray]:
    """P-values of the hypothesis that an effect is zero: component -> [L], one a predictor."""
    moments = fit.free_moments or inducing_moments(fit)
    mode = _mode(fit, moments)
    left, bound = np.inf, None if fit.solution is None else fit.solution.bound
    if bound is not None and len(bound.noise):
        dof = sum(float(effective_dof(fit, c).sum()) for c in fit.spec.components)
        left = max(bound.error[1] - dof, 1.0)
    return {c.name: _component_p(fit, c, moments, mode, left) for c in fit.spec.effects}


def _component_p(
    fit: FittedGAM,
    component: Component,
    moments: InducingMoments,
    mode: tuple[AnyNDArray, AnyNDArray],
    left: float,
) -> AnyNDArray:
    """
    P-values of one component.

    Whitened inducing values have the prior N(0, I) and the posterior N(m, S). Where the component
    is zero ``m' S^-1 m`` is a sum of independent ``(1 - s_i) chi^2_1``, with s_i the eigenvalues of
    S: a Wald test of what is not penalised, a score test of a variance at its boundary of zero
    (Wood 2013, "A simple test for random effects in regression models"). Smooths, which have learnt
    their lengthscales from the same data, take ``1 - s_i^2``, whose sum are the degrees of freedom
    ``tr(2 F - F F)`` of Wood 2013, "On p-values for smooth components of an extended generalized
    additive model". Shapes are left out.

    :param mode: mean [P, L] and covariance [L, P, P] of all inducing values.
    :param left: residual degrees of freedom.
    """
    block = moments.block(component.name)
    mean = mode[0][block]
    if component.form == "means":  # levels that have the constant, too
        points = np.unique(fit.X[:, [m.column for m in component.margins]], axis=0)
        phi = moments.features(component.name, component.full(points, fit.spec.encoder.width))
        constant = np.tile(fit.constant_of(component) / fit.units[0], (len(points), 1))
        mean = mean + np.linalg.lstsq(phi.T, constant, rcond=None)[0]
    power = 2 if component.form in SMOOTH else 1
    enters = moments.entering([component.name])[0]
    covariances = mode[1][:, block, block]
    each = zip(mean.T, covariances, enters)
    return np.array([_tail(m, S, left, power) if there else 1.0 for m, S, there in each])


def _mode(fit: FittedGAM, moments: InducingMoments) -> tuple[AnyNDArray, AnyNDArray]:
    """
    The mode of the inducing values, [P, L], and the inverse of minus the Hessian there, [L, P, P].

    Where few counts tell of an effect, the mean of q lies further out than the mode, and the test
    would reject too often: for counts and classes Newton's method goes from the mean to the mode,
    at fixed hyperparameters. Elsewhere, and of many rows, the two are the same.
    """
    moved, few = moments.mean[:, 0], fit.has_data and fit.whole is None and len(fit.X) <= _MODE_ROWS
    sites = fit.spec.variational == "sites" and fit.free_moments is not None
    if not (few and sites and fit.spec.family.discrete and fit.num_predictors == 1):
        return moments.mean, moments.covariance
    phi = np.concatenate([moments.features(c.name, fit.X) for c in fit.spec.components])
    offset = np.asarray(fit.model.mean_function(fit.X))[:, 0]

    def expanded(v: AnyNDArray) -> tuple[float, AnyNDArray, AnyNDArray]:
        """The log posterior density, its gradient and minus its Hessian."""
        F = (offset + phi.T @ v)[:, None]
        at = curvature(fit.model.likelihood, fit.X, tf.constant(F), tf.constant(fit.Y))
        (g,), (w,) = at.gradient.numpy(), at.precision.tensor.numpy()
        density = float(np.sum(at.log_prob)) - 0.5 * float(v @ v)
        return density, phi @ g - v, (phi * w) @ phi.T + np.eye(len(v))

    at = expanded(moved)
    try:
        for _ in range(_MODE_STEPS):
            step = cho_solve(cho_factor(at[2]), at[1])
            if at[1] @ step < _MODE_GAIN:
                break
            while (new := expanded(moved + step))[0] < at[0]:
                step = 0.5 * step
            moved, at = moved + step, new
        return moved[:, None], cho_solve(cho_factor(at[2]), np.eye(len(moved)))[None]
    except np.linalg.LinAlgError:  # of a likelihood that is not log-concave
        return moments.mean, moments.covariance


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
