"""Residuals of a fitted GAM."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtri

from ..components import Component
from ..effects import inducing_moments
from ..fits import FittedGAM

_STEP = 1e-5
"""Half the width of a central difference against the predictor's natural size."""

_STREAM = 1996
"""Seeds the uniform draws, beside the user's seed."""
_TAIL = 1e-16
"""Probabilities are kept this far from 0 and 1, so that residuals are finite."""
LARGEST = float(-ndtri(_TAIL))
"""Quantile residuals are cut off here, where distribution functions have no more digits."""


def quantile_residuals(fit: FittedGAM, seed: int = 0) -> AnyNDArray:
    """
    Randomised quantile residuals, standard normal where the model is right (Dunn & Smyth 1996).

    ``Phi^-1(u)`` with u uniform between P(y' < y) and P(y' <= y), both at the posterior mean of the
    predictor; the two are equal for a continuous response, and nothing is random.

    :param fit: the fitted GAM.
    :param seed: of the uniform draws.
    :return: [N], within 8.2 of zero.
    :raises ValueError: a family without a distribution function.
    """
    F, _ = fit.predict_link(fit.X)
    probabilities = fit.spec.family.cdf(fit.likelihood, fit.Y, F)
    if probabilities is None:
        raise ValueError(
            f"family {fit.spec.family.name!r} has no distribution function, so there are no "
            "quantile residuals."
        )
    lower, upper = probabilities
    # not the stream of the seed alone: a column that was simulated with it would be the same draws
    rng = np.random.default_rng([seed, _STREAM])
    u = lower + (upper - lower) * rng.uniform(size=len(F))
    residuals: AnyNDArray = np.clip(ndtri(u), -LARGEST, LARGEST)
    return residuals


def working_residuals(fit: FittedGAM) -> AnyNDArray:
    """
    Residuals on the predictor's scale, ``(y - mu) / (d mu / d rho)`` (Wood 2017, section 3.1.2).

    At the posterior mean of the predictor; of a binomial y is the share of successes.
    """
    family, likelihood = fit.spec.family, fit.likelihood
    if fit.num_predictors > 1:
        raise ValueError(
            f"residuals: family {family.name!r} has {fit.num_predictors} predictors, and working "
            "residuals are for one; take residuals=False."
        )
    F, _ = fit.predict_link(fit.X)
    h = _STEP * fit.spec.scale
    mean, low, high = (np.asarray(family.mean(likelihood, F + d)) for d in (0.0, -h, h))
    if mean.ndim > 1:
        raise ValueError(
            f"residuals: family {family.name!r} is of classes, which have no working residuals; "
            "take residuals=False."
        )
    y = observed(fit)
    if np.all(np.isnan(y)):
        raise ValueError(
            "residuals: every response is censored, and there are no residuals on the predictor's "
            "scale; take residuals=False."
        )
    slope = (high - low) / (2.0 * h)
    residuals = np.full(len(mean), np.nan)
    np.divide(y - mean, slope, out=residuals, where=slope != 0.0)
    return residuals


def partial_residuals(fit: FittedGAM, term: str) -> AnyNDArray:
    """
    Working residuals plus a component's estimate (Wood 2017, section 7.2.1).

    Of a function multiplied by a number, the residuals are divided by that number, so that they
    scatter around the function itself.

    :param fit: the fitted GAM.
    :param term: the component's name.
    :return: [N]; NaN on rows on which the component does not act.
    :raises ValueError: an unknown name, or a family as in :func:`working_residuals`.
    """
    component = fit.spec.component(term)
    residuals = working_residuals(fit)
    rows = acting(fit, component)
    moments = inducing_moments(fit)
    points = fit.X[rows][:, [m.column for m in component.margins]]
    features = moments.features(component.name, component.full(points, fit.spec.encoder.width))
    by = component.by
    if by is not None and by.code is None:
        residuals = residuals / np.where(rows, fit.X[:, by.column], 1.0)
    partial = np.full(len(residuals), np.nan)
    estimate = features.T @ moments.mean[moments.block(component.name), 0]
    if component.form == "means":  # of one predictor, in whose unit residuals are
        estimate = estimate + fit.spec.constant[0]
    partial[rows] = residuals[rows] + estimate
    return partial


def observed(fit: FittedGAM) -> AnyNDArray:
    """The response [N], comparable with the family's mean; NaN where it is censored."""
    return fit.spec.family.observed(fit.Y)


def acting(fit: FittedGAM, component: Component) -> AnyNDArray:
    """The rows of the data on which a component acts, [N] truth values."""
    by = component.by
    if by is None:
        return np.ones(len(fit.X), dtype=bool)
    multiplier = fit.X[:, by.column]
    return multiplier != 0.0 if by.code is None else multiplier == by.code
