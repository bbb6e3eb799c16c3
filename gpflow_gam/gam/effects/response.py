"""An effect on the response's scale: the expected response along it, all else at its average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ...likelihoods.predictive import (
    conditional_response,
    expected_response,
    response_interval,
    summarised_response,
)
from ...posteriors import InducingMoments
from ...posteriors.inducing import Block
from ..components import Component
from ..fits import FittedGAM
from ..fits.extrapolation import response_errors
from ..terms import Column
from .bands import critical_values, normal_draws, simultaneous_bands
from .effect import effect_component, make_grid
from .posterior import inducing_moments, joint_moments

_DRAWS = 4000
_ENTRIES = 2**22
"""Numbers that draws of several predictors or classes may be, together."""


def response_effect(
    fit: FittedGAM,
    term: str,
    grid: Any = None,
    level: float = 0.95,
    num_points: int | None = None,
    seed: int = 0,
    unconditional: bool = True,
) -> pd.DataFrame:
    """
    The expected response at the points of a grid, other effects at zero, offsets at their mean.

    Estimates and credible intervals are those of a prediction from the intercept and this effect
    alone. With one predictor simultaneous bands are the images of the predictor's; otherwise they
    are of joint draws.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    component = effect_component(fit, term)
    where = make_grid(fit, component, grid, num_points)
    number, likelihood = len(where.X), fit.likelihood
    blocks, A = _predictor(fit, component.name, where.X)
    moments = inducing_moments(fit)
    mean, known = _moments(fit, blocks, A, False)
    covariance = _moments(fit, blocks, A, True)[1] if unconditional else known
    at_fit, var = (np.maximum(np.diagonal(c, axis1=1, axis2=2).T, 0.0) for c in (known, covariance))
    shared = moments.shared_parts(blocks)
    if shared is not None:  # predictors are correlated, and nothing is known of hyperparameters
        at_fit = var = with_outputs(var, A @ shared)
    summary = summarised_response(likelihood, where.X, mean, var, level, seed=seed)
    share = fit.predictive_share
    estimate = np.asarray(expected_response(likelihood, where.X, mean, share * at_fit, seed=seed))
    se = response_errors(fit, where.X, mean, var, np.asarray(summary.sd), seed)
    assert summary.lower is not None
    assert summary.upper is not None
    lower, upper = np.asarray(summary.lower), np.asarray(summary.upper)
    if fit.num_predictors == 1 and estimate.ndim == 1:
        _, wide = critical_values(covariance[0], level, seed)
        inside = float(2.0 * norm.cdf(wide) - 1.0)
        ends = response_interval(likelihood, where.X, mean, var, inside, seed=seed)
        low, high = (np.asarray(end) for end in ends)
    else:
        S = int(np.clip(_ENTRIES // (number * max(len(covariance), 1)), 500, _DRAWS))
        if shared is None:
            away = [normal_draws(c, S, seed + i) for i, c in enumerate(covariance)]
        else:
            away = _joint_draws(moments, blocks, A, S, seed)
        F = mean + np.stack(away, axis=-1)
        draws = np.asarray(conditional_response(likelihood, where.X, F))
        low, high = simultaneous_bands(draws, level)
        low, high = np.minimum(low, lower), np.maximum(high, upper)
    parts = {
        "estimate": estimate,
        "se": se,
        "lower": lower,
        "upper": upper,
        "lower_simultaneous": low,
        "upper_simultaneous": high,
    }
    return classes_frame(fit, where.columns, parts)


def classes_frame(
    fit: FittedGAM, columns: dict[Column, AnyNDArray], parts: dict[str, AnyNDArray]
) -> pd.DataFrame:
    """Numbers [n] beside the columns of a grid, or [n, K], one class after the other."""
    first = next(iter(parts.values()))
    if first.ndim == 1:
        return pd.DataFrame(columns | parts)
    levels = fit.spec.levels or tuple(range(first.shape[1]))
    frames = []
    for k, label in enumerate(levels):
        own = {name: values[:, k] for name, values in parts.items()}
        frames.append(pd.DataFrame(columns | {"class": [label] * len(first)} | own))
    return pd.concat(frames, ignore_index=True)


def _predictor(fit: FittedGAM, name: str, X: AnyNDArray) -> tuple[list[Block], AnyNDArray]:
    """
    Components at points, m in all, and A [n, m] that sums them up to intercept and effect.

    Means of levels that are there in the intercept's place are averaged over the data.
    """
    blocks, parts = [(name, X)], [np.eye(len(X))]
    for component in fit.spec.components:
        if component.carries_constant and component.name != name:
            points, weights = _average(component)
            blocks.append((component.name, component.full(points, X.shape[1])))
            parts.append(np.tile(weights, (len(X), 1)))
    return blocks, np.concatenate(parts, axis=1)


def _moments(
    fit: FittedGAM, blocks: list[Block], A: AnyNDArray, unconditional: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean [n, L] and covariance [L, n, n] in the model's unit; offsets are at their mean."""
    # of which quantities of several predictors are computed
    mean, covariance = joint_moments(fit, blocks, unconditional, between=False)
    factor, _ = fit.units
    whole = A @ mean / factor + fit.mean_offset()
    return whole, A @ covariance @ A.T / np.square(factor)[:, None, None]


def with_outputs(var: AnyNDArray, shared: AnyNDArray) -> AnyNDArray:
    """Variances [n, L] with the covariances between outputs, [n, L, L], by B [L, n, R]."""
    cov = -np.einsum("lnr,knr->nlk", shared, shared)
    at = np.arange(var.shape[1])
    cov[:, at, at] = var
    return cov


def _joint_draws(
    moments: InducingMoments, blocks: list[Block], A: AnyNDArray, number: int, seed: int
) -> list[AnyNDArray]:
    """Draws of correlated predictors about their means, [S, n] each."""
    V = moments.sample(number, seed) - moments.mean
    parts = [(moments.features(c, X), V[:, moments.block(c)]) for c, X in blocks]
    values = np.concatenate([np.einsum("mn,sml->snl", phi, v) for phi, v in parts], axis=1)
    left = moments.residual_covariance(blocks)
    return [
        (values[..., i] + normal_draws(left, number, seed + 1 + i)) @ A.T
        for i in range(values.shape[2])
    ]


def _average(component: Component) -> tuple[AnyNDArray, AnyNDArray]:
    """Points [n, d] and weights [n] whose sum is what the intercept would be."""
    if component.form == "constant":
        return np.zeros((1, 0)), np.ones(1)
    (margin,) = component.margins
    return np.array(margin.nodes)[:, None], np.array(margin.weights)
