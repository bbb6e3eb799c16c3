"""Numbers that sum components up: degrees of freedom, shares, p-values, variance components."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Constant, Kernel, Sum
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

from ...kernels import CentredLinear, kernel_columns
from ...newton.curvatures import curvature
from ...optimizers.hyperparameters import profile_limits
from ...optimizers.minimizers import Loss
from ...posteriors import InducingMoments, ShapedMoments
from ...sensitivity.variances import draw_covariances
from ...threads import one_blas_thread
from ..components import Component
from ..effects import inducing_moments
from ..fits import FittedGAM

UNLIKELY = 0.002
"""Probability below which an estimate is too far from its shape to be so by chance."""
SMOOTH = ("smooth", "tensor", "interaction", "own", "curves", "deviations")
"""Forms of components that are functions of numbers."""
_ROWS = 500
_MODE_ROWS, _MODE_STEPS, _MODE_GAIN = 20_000, 50, 1e-8
_DRAWS = 1000


def against_shapes(fit: FittedGAM) -> list[tuple[Component, float]]:
    """Components whose data speak against their shape, with the p-value of the shape."""
    if fit.shaped is None:
        return []
    tails = [
        (c, min(fit.shape_tail(c.name, i) for i in c.predictors_of(fit.num_predictors)))
        for c in fit.spec.components
        if c.shape
    ]
    return [(component, p) for component, p in tails if p < UNLIKELY]


def effective_dof(fit: FittedGAM, component: Component) -> AnyNDArray:
    """
    Effective degrees of freedom of a component for each predictor, [L].

    With whitened inducing values of prior N(0, I) and posterior covariance S, the smoother
    matrix is I - S; its trace over the component's block is what the data have settled (Wood 2017,
    section 6.1.2, where ``F = (X'WX + S)^-1 X'WX``).
    """
    moments = inducing_moments(fit)
    block = moments.block(component.name)
    if isinstance(moments, ShapedMoments):
        settled = moments.projected.degrees_of_freedom(moments.block(component.name))
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
    residual_dof, bound = np.inf, None if fit.solution is None else fit.solution.bound
    if bound is not None and len(bound.noise):
        dof = sum(float(effective_dof(fit, c).sum()) for c in fit.spec.components)
        residual_dof = max(bound.error[1] - dof, 1.0)
    return {c.name: _component_p(fit, c, moments, mode, residual_dof) for c in fit.spec.effects}


def _component_p(
    fit: FittedGAM,
    component: Component,
    moments: InducingMoments,
    mode: tuple[AnyNDArray, AnyNDArray],
    residual_dof: float,
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
    return np.array(
        [
            _tail(m, S, residual_dof, power) if enters_it else 1.0
            for m, S, enters_it in zip(mean.T, covariances, enters)
        ]
    )


def _mode(fit: FittedGAM, moments: InducingMoments) -> tuple[AnyNDArray, AnyNDArray]:
    """
    The mode of the inducing values, [P, L], and the inverse of minus the Hessian there, [L, P, P].

    Where few counts tell of an effect, the mean of q lies further out than the mode, and the test
    would reject too often: for counts and classes Newton's method goes from the mean to the mode,
    at fixed hyperparameters. Elsewhere, and of many rows, the two are the same.
    """
    moved, few = moments.mean[:, 0], fit.data.complete and len(fit.X) <= _MODE_ROWS
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


def _tail(mean: AnyNDArray, covariance: AnyNDArray, residual_dof: float, power: int) -> float:
    """
    Probability of a larger ``m' S^-1 m`` where the component is zero.

    The sum of chi-squares is taken for one that is shifted and has the same mean, variance and
    skewness (Liu, Tang & Zhang 2009), which is exact where the weights are equal.
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
    if np.isinf(residual_dof):
        return float(scipy.stats.chi2.sf(at, dof))
    return float(scipy.stats.f.sf(at / dof, dof, residual_dof))


class Part(NamedTuple):
    """A part of a component that has a variance of its own."""

    name: str
    """Empty where there is one part."""
    variance: Parameter
    unit: float
    """Prior variance of the part's contribution, over ``variance``."""


def parts_of(fit: FittedGAM, component: Component) -> list[Part]:
    """The parts of a component whose variances are learnt."""
    if component.form == "own" or not component.shrink:
        return []
    kernel = fit.model.kernel[component.name]
    several = isinstance(kernel, Sum)
    parts = []
    for summand in kernel.kernels if several else [kernel]:
        leaves = leaves_of(summand)
        learnt = [
            leaf.variance
            for leaf in leaves
            if isinstance(getattr(leaf, "variance", None), Parameter) and leaf.variance.trainable
        ]
        if learnt:  # not the intercept's, in means of levels
            (variance,) = learnt
            name, unit = _named(fit, component, leaves[0]) if several else ("", 1.0)
            parts.append(Part(name, variance, unit))
    return parts if len(parts) > 1 else [part._replace(name="") for part in parts]


def _named(fit: FittedGAM, component: Component, leaf: Kernel) -> tuple[str, float]:
    """Name and unit of one of several parts."""
    if isinstance(leaf, Constant):
        return "level", 1.0
    if not isinstance(leaf, CentredLinear):
        return "deviation", 1.0
    for margin in component.margins:
        if (margin.column,) == (kernel_columns(leaf) or ()):
            # the variance of the column turns a slope's into its own
            distance = np.array(margin.nodes) - margin.centre
            column = list(fit.spec.encoder.columns)[margin.column][0]
            name = "straight" if len(component.margins) == 1 else f"straight in {column}"
            return name, float(np.dot(margin.weights, np.square(distance)))
    return "straight", 1.0


def leaves_of(kernel: Kernel) -> list[Kernel]:
    """The kernels that a kernel is made of."""
    if hasattr(kernel, "kernels"):
        return [leaf for part in kernel.kernels for leaf in leaves_of(part)]
    for name in ("base", "base_kernel"):
        if hasattr(kernel, name):
            return leaves_of(getattr(kernel, name))
    return [kernel]


def variance_components(fit: FittedGAM, level: float = 0.95) -> pd.DataFrame:
    """The table of :meth:`gpflow_gam.GAM.variance_components`."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    # trial steps may end where numbers do
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        rows = list(_rows(fit, float(norm.ppf(0.5 + 0.5 * level))))
    columns = ["term", "predictor", "part", "variance", "sd", "lower", "upper"]
    table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))
    return table if fit.num_predictors > 1 else table.drop(columns="predictor")


def _rows(fit: FittedGAM, z: float) -> Iterator[tuple[object, ...]]:
    spec, interval = fit.spec, _intervals(fit, z)
    names = spec.predictor_names
    units = np.broadcast_to(fit.units[0], len(names))
    for component in spec.effects:
        for name, parameter, unit in parts_of(fit, component):
            variance = np.array([fit.value(parameter), np.nan, np.nan])
            if not component.shape:  # whose data say more than the criterion knows
                variance[1:] = interval(parameter)
            for i in component.predictors_of(len(names)):
                sd = np.abs(units[i]) * np.sqrt(unit * variance)
                yield component.name, names[i], name, sd[0] ** 2, *sd
    noise = spec.family.parameters(fit.likelihood, spec.levels).get("variance")
    if noise is not None:
        bound = None if fit.solution is None else fit.solution.bound
        within = (np.nan, np.nan) if bound is None else interval(bound.parameter)
        yield "residual", "", "", noise, *np.sqrt([noise, *within])


def _intervals(fit: FittedGAM, z: float) -> Callable[[Parameter], tuple[float, float]]:
    """Profile intervals of variances; NaN where the fit has no marginal likelihood."""
    solution = fit.solution
    if solution is None or solution.hessian is not None:
        return lambda _: (np.nan, np.nan)
    bound, rounds, data = solution.bound, solution.rounds, solution.data
    optimum = solution.optimum if solution.unshaped is None else solution.unshaped
    learnt = list(rounds.hyperparameters.parameters)
    loss: Loss
    metric: Callable[[AnyNDArray], AnyNDArray | None]
    if bound is not None:
        loss, metric = bound.loss, bound.metric
        learnt += bound.noise.parameters
    else:
        optimum, loss = optimum[: len(rounds.hyperparameters)], rounds.loss(data)

        def metric(u: AnyNDArray) -> AnyNDArray | None:
            return rounds.metric(data, u)

    starts = np.cumsum([0, *(int(np.prod(p.shape.as_list())) for p in learnt)])

    def interval(parameter: Parameter) -> tuple[float, float]:
        at = [p is parameter for p in learnt].index(True)
        ends = profile_limits(loss, optimum, int(starts[at]), z, metric)
        assert parameter.transform is not None  # a variance is positive
        lower, upper = np.asarray(parameter.transform.forward(np.array(ends)))
        return float(lower), float(upper)

    return interval
