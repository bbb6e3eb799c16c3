"""A page of diagnostics."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtr

from ..fits import FittedGAM, prediction
from .calibration import draw_calibration, draw_reliability
from .diagnostics import (
    draw_class_residuals,
    draw_confusion,
    draw_histogram,
    draw_observed,
    draw_pit,
    draw_probabilities,
    draw_qq,
    draw_residuals,
)
from .figures import Axes, Figure, panels
from .residuals import observed, quantile_residuals


def appraise(fit: FittedGAM, seed: int = 0) -> Figure:
    """
    Four panels that show whether a fit suits its data.

    - Randomised quantile residuals (see :func:`gpflow_gam.gam.plotting.quantile_residuals`) against
      normal quantiles, and against the (first) predictor.
    - A number: observed against fitted, and the histogram of the probability integral transform, or
      binned means where the response is discrete.
    - Two classes: shares against probabilities, and probabilities by class.
    - More classes: shares against probabilities and the confusion matrix; if they have no order,
      the residuals of each class and the probabilities of the observed one instead of the first
      two.
    - A family without a distribution function: response residuals in place of quantile ones.

    Weights are left out. Fitted values are those of ``predict(type="response")``.

    :param fit: the fitted GAM.
    :param seed: of the randomised residuals.
    :return: a new figure.
    :raises ValueError: a likelihood of the user's whose response has several means.
    """
    fitted = prediction.response(fit, fit.X, None, seed).estimate
    F, _ = fit.predict_link(fit.X)
    levels = fit.spec.levels
    if fitted.ndim == 2 and levels is None:
        raise ValueError(
            f"appraise: family {fit.spec.family.name!r} gives {fitted.shape[1]} means a row, and "
            "what they stand for is not known; take a named family."
        )
    figure, axes = panels([1] * 4)
    places = [ax for (ax,) in axes]
    if levels is None:
        _numbers(places, fit, fitted, F, seed)
    else:
        _classes(places, fit, fitted, F, tuple(map(str, levels)), seed)
    return figure


def _numbers(
    axes: list[Axes], fit: FittedGAM, fitted: AnyNDArray, F: AnyNDArray, seed: int
) -> None:
    y = observed(fit)
    limits = fit.spec.family.cdf(fit.likelihood, fit.Y, F)
    factor, shift = fit.units
    predictor = (shift + factor * F)[:, 0]
    draw_observed(axes[2], fitted, y)
    if limits is None:
        draw_histogram(axes[0], y - fitted)
        draw_residuals(axes[1], predictor, y - fitted, "observed minus fitted")
        draw_calibration(axes[3], fitted, y)
        return
    residuals = quantile_residuals(fit, seed)
    draw_qq(axes[0], residuals)
    draw_residuals(axes[1], predictor, residuals, "quantile residuals")
    if not fit.spec.family.discrete:
        draw_pit(axes[3], ndtr(residuals))
    else:
        draw_calibration(axes[3], fitted, y)


def _classes(
    axes: list[Axes],
    fit: FittedGAM,
    fitted: AnyNDArray,
    F: AnyNDArray,
    names: tuple[str, ...],
    seed: int,
) -> None:
    codes = fit.Y[:, 0].astype(int)
    two = fitted.ndim == 1
    probabilities = np.stack([1.0 - fitted, fitted], axis=1) if two else fitted
    if fit.spec.family.cdf(fit.likelihood, fit.Y, F) is None:
        own = np.take_along_axis(probabilities, codes[:, None], axis=1)[:, 0]
        draw_probabilities(axes[0], own, codes, names, "probability of the observed class")
        draw_class_residuals(axes[1], probabilities, F, codes, names)
    else:
        residuals = quantile_residuals(fit, seed)
        draw_qq(axes[0], residuals)
        draw_residuals(axes[1], F[:, 0], residuals, "quantile residuals")
    if two:
        # one line: that of the first class mirrors it
        draw_reliability(axes[2], fitted[:, None], 1 - codes, names[1:])
        draw_probabilities(axes[3], fitted, codes, names, f"probability of {names[1]}")
    else:
        draw_reliability(axes[2], probabilities, codes, names)
        draw_confusion(axes[3], probabilities, codes, names)
