"""The posterior behind effects, at the fitted hyperparameters and averaged over them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import logsumexp

from ...kernels.fixed_inputs import FixedInputKernel
from ...likelihoods.base import unwrapped
from ...likelihoods.support import checked_observations
from ...models import IterNCGP
from ...optimizers.laplace import HyperparameterDraw, draw_solutions
from ...posteriors import InducingMoments, ShapedMoments
from ...posteriors.inducing import Block, JointParts
from ...threads import SMALL, one_blas_thread
from ..components import Component, build_inducing
from ..fits import FittedGAM
from ..fits.fitted import between_of
from ..fits.prediction import density_of_rows

_MOMENTS: weakref.WeakKeyDictionary[FittedGAM, InducingMoments] = weakref.WeakKeyDictionary()


def inducing_moments(fit: FittedGAM) -> InducingMoments:
    """The moments of a fit at its hyperparameters."""
    if fit not in _MOMENTS:
        known = fit.free_moments if fit.shaped is None else fit.shaped
        if known is not None:
            return known
        # not the fit itself: what is kept for as long as the fit is must not keep it
        inducing = None
        if isinstance(fit.model, IterNCGP):
            kernel = fit.model.kernel
            inducing = build_inducing(fit.spec.components, kernel, fit.spec.encoder.width)
        _MOMENTS[fit] = InducingMoments.of(fit.posterior, inducing)
    return _MOMENTS[fit]


_BETWEEN: weakref.WeakKeyDictionary[FittedGAM, InducingMoments | None] = weakref.WeakKeyDictionary()


def between_moments(fit: FittedGAM) -> InducingMoments | None:
    """
    Covariance that predictors add to each other, as moments whose mean is zero.

    Kept as long as the fit. None where they add nothing or nothing is known of it: of one
    predictor, of terms with a shape, and of fits that keep no sums over rows, of which IterNCGP's
    posterior has its predictors together already. See
    :func:`gpflow_gam.optimizers.binned.cavities.between_predictors`.
    """
    if fit not in _BETWEEN:
        _BETWEEN[fit] = _found(fit)
    return _BETWEEN[fit]


def _found(fit: FittedGAM) -> InducingMoments | None:
    solution, model = fit.solution, fit.model
    if solution is None or isinstance(model, IterNCGP) or fit.shaped is not None:
        return None
    covariance = between_of(solution, model)
    if covariance is None:
        return None
    fitted = inducing_moments(fit)
    return InducingMoments(
        model.kernel,
        fitted.inducing_variable,
        np.zeros_like(solution.q.mean),
        covariance,
        values=solution.values,
        roots=solution.q.roots,
    )


_PROJECTED = 256
"""Draws behind the covariance at each draw of the hyperparameters, of which there are many."""


def joint_moments(
    fit: FittedGAM,
    blocks: Sequence[Block],
    unconditional: bool = True,
    left_open: bool = True,
    between: bool = True,
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Mean [n, L] and covariance [L, n, n] of components at points, in the response's unit.

    If ``unconditional``, the covariance allows for uncertain hyperparameters:
    ``E[Cov(f | theta)] + Cov(E[f | theta])`` over draws of theta, around the mean at the fitted
    ones (Wood, Pya & Saefken 2016, section 4, who linearise what is drawn here). Of the residual
    that inducing values leave, which ``left_open`` adds, correlations between points are those at
    the fitted hyperparameters. Without ``between`` the covariance of a predictor takes the other
    predictors as known: for functions of several predictors, whose covariances are not kept.
    """
    mean, covariance = _moments(fit, blocks, unconditional, left_open)
    if unconditional and between:
        covariance = covariance + _between(fit, blocks, lambda m, at: m.joint_parts(blocks, at))
    factor, _ = fit.units
    return factor * mean, factor[:, None, None] ** 2 * covariance


def _moments(
    fit: FittedGAM, blocks: Sequence[Block], unconditional: bool, left_open: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    with one_blas_thread():
        states = _states(fit, blocks, unconditional)
        fitted, tangents = next(states)
        own = fitted.joint_parts(blocks, tangents)
        open_ = fitted.residual_covariance(blocks) if left_open else np.zeros(own.inner.shape[1:])
        covariance, left, number = np.zeros_like(own.inner), np.zeros_like(own.open), 0
        for moments, at in states:
            parts = moments.joint_parts(blocks, at)
            away = (parts.mean - own.mean).T  # around the estimate that is reported
            covariance += parts.inner + away[:, :, None] * away[:, None, :]
            left += parts.open
            number += 1
    if number == 0:
        return own.mean, own.inner + open_
    # what is open keeps the correlation that it has at the fitted hyperparameters
    sd = np.sqrt(np.divide(left / number, own.open, out=np.ones_like(left), where=own.open > 0))
    return own.mean, covariance / number + open_ * sd[:, None] * sd


def pointwise_moments(
    fit: FittedGAM, blocks: Sequence[Block], unconditional: bool = True
) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean and variance, [n, L] both, as of :func:`joint_moments`, for far less than all of it."""
    with one_blas_thread():
        states = _states(fit, blocks, unconditional)
        fitted, tangents = next(states)
        own = fitted.joint_parts(blocks, tangents, pointwise=True)
        result = [
            parts.inner + np.square((parts.mean - own.mean).T) + parts.open
            for parts in (moments.joint_parts(blocks, at, pointwise=True) for moments, at in states)
        ]
    variance = np.mean(result, axis=0) if result else own.inner + own.open
    if unconditional:
        variance = variance + _between(
            fit, blocks, lambda m, at: m.joint_parts(blocks, at, pointwise=True)
        )
    factor, _ = fit.units
    return factor * own.mean, factor**2 * variance.T


def _between(
    fit: FittedGAM,
    blocks: Sequence[Block],
    parts: Callable[[InducingMoments, Sequence[FixedInputKernel]], JointParts],
) -> AnyNDArray | float:
    """Covariance that predictors add to each other, between blocks."""
    moments = between_moments(fit)
    if moments is None:
        return 0.0
    with one_blas_thread():
        return parts(moments, [moments.tangents(name, X) for name, X in blocks]).inner


def _states(
    fit: FittedGAM, blocks: Sequence[Block], unconditional: bool
) -> Iterator[tuple[InducingMoments, Sequence[FixedInputKernel]]]:
    """Moments at the fitted hyperparameters, then at draws, with their kernels' matrices."""
    fitted = inducing_moments(fit)
    tangents = [fitted.tangents(name, X) for name, X in blocks]
    yield fitted, tangents
    for draw in hyperparameter_draws(fit) if unconditional else []:
        # copies of the kernel have matrices of their own
        yield draw.moments, tangents if draw.shares_kernel else draw.tangents(blocks)


_DRAWS: weakref.WeakKeyDictionary[FittedGAM, list[HyperparameterDraw]] = weakref.WeakKeyDictionary()


def hyperparameter_draws(fit: FittedGAM) -> list[HyperparameterDraw]:
    """
    The posterior of the inducing values at draws of the hyperparameters, kept as long as the fit.

    Empty for fits without sums over rows, whose q does not cover other hyperparameters.
    """
    if fit not in _DRAWS:
        _DRAWS[fit] = _draw(fit)
    return _DRAWS[fit]


def averaged_log_density(fit: FittedGAM, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """log p(y | data) of each row, [N], averaged over draws of the hyperparameters."""
    draws, parts = hyperparameter_draws(fit), []
    if not draws:
        return density_of_rows(fit, X, Y)
    for rows in fit.blocks(np.concatenate([X, Y], axis=1)):
        x, y = rows[:, : X.shape[1]], rows[:, X.shape[1] :]
        labels = checked_observations(y, fit.likelihood)
        shift = np.asarray(fit.model.mean_function(x))
        result = []
        tangents = inducing_moments(fit).all_tangents(x)
        for draw in draws:
            with one_blas_thread(len(draw.moments.mean) <= SMALL):
                mean, var = draw.moments.total(x, tangents if draw.shares_kernel else None)
            likelihood = unwrapped(draw.likelihood)
            density = likelihood.predict_log_density(x, mean + shift, np.maximum(var, 0.0), labels)
            result.append(np.asarray(density))
        parts.append(logsumexp(result, axis=0) - np.log(len(result)))
    whole: AnyNDArray = np.concatenate(parts)
    return whole


def _draw(fit: FittedGAM) -> list[HyperparameterDraw]:
    solution, model = fit.solution, fit.model
    if solution is None or isinstance(model, IterNCGP):
        return []
    draws = draw_solutions(model, solution)
    if fit.shaped is None:
        return draws
    with one_blas_thread():
        return [_shaped(draw) for draw in draws]


def _shaped(draw: HyperparameterDraw) -> HyperparameterDraw:
    """The draw, with the shapes of terms."""
    moments = ShapedMoments(draw.moments, _PROJECTED)
    return HyperparameterDraw(moments, lambda: draw.likelihood, draw.shares_kernel)


def fitted_draw(fit: FittedGAM) -> HyperparameterDraw:
    """The fitted hyperparameters, as if they had been drawn."""
    return HyperparameterDraw(inducing_moments(fit), lambda: fit.likelihood)


def shaped_draws(
    fit: FittedGAM, component: Component, X: AnyNDArray, num_samples: int, seed: int
) -> AnyNDArray:
    """
    Joint posterior draws of a component, each with its shape, [S, n, L], in the response's unit.

    They are spread over draws of the hyperparameters, in a random order.
    """
    rng = np.random.default_rng(seed)
    fitted = inducing_moments(fit)
    tangents = fitted.tangents(component.name, X)
    members = [d.moments for d in hyperparameter_draws(fit)] or [fitted]
    numbers = np.bincount(np.arange(num_samples) % len(members), minlength=len(members))
    result = []
    with one_blas_thread():
        for moments, number in zip(members, numbers):
            if number:
                V = moments.sample(int(number), int(rng.integers(2**31)))
                phi, _ = moments.features_and_prior(component.name, tangents)
                own = V[:, moments.block(component.name)]
                result.append(np.einsum("mn,sml->snl", phi, own, optimize=True))
    draws = np.concatenate(result)[rng.permutation(num_samples)]
    factor: AnyNDArray = np.asarray(fit.units[0])
    whole: AnyNDArray = factor * draws
    return whole
