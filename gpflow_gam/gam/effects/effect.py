"""Effects and their slopes, from the joint posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..components import Component
from ..fits import FittedGAM
from ..terms import Column
from .bands import normal_draws
from .grid import make_grid
from .hyperparameters import joint_moments, pointwise_moments
from .shaped import shaped_draws
from .table import EffectTable

_STEP = 1e-3
"""Half the width of a central difference against the column's span."""
_FEW = 300
"""Points whose covariance costs no more than their variances do."""


def effect(
    fit: FittedGAM,
    term: str,
    grid: Any = None,
    level: float = 0.95,
    num_points: int | None = None,
    seed: int = 0,
    unconditional: bool = True,
) -> EffectTable:
    """
    A component at the points of a grid.

    :param fit: a fitted GAM.
    :param term: its name.
    :param grid: values of its column, a dict of columns, a DataFrame; by default an even grid.
    :param level: probability of the limits.
    :param num_points: of the default grid on each axis.
    :param seed: of the simulation behind simultaneous limits.
    :param unconditional: whether uncertainty allows for uncertain hyperparameters.
    :raises ValueError: an unknown name, or a grid that does not suit.
    """
    component = effect_component(fit, term)
    where = make_grid(fit, component, grid, num_points)
    blocks = [(component.name, where.X)]
    own, names = predictors(fit, component)
    if len(where.X) <= _FEW:
        # of levels there is nothing between inducing inputs
        left_open = component.form != "means"
        mean, covariance = joint_moments(fit, blocks, unconditional, left_open)
        mean = mean + fit.constant_of(component)
        return EffectTable.known(
            component.name,
            component,
            where.columns,
            mean[:, own],
            covariance[own],
            level,
            seed,
            names,
            where.axes,
        )
    mean, variance = pointwise_moments(fit, blocks, unconditional)
    mean = mean + fit.constant_of(component)
    return EffectTable(
        component.name,
        component,
        where.columns,
        mean[:, own],
        variance[:, own],
        lambda: joint_moments(fit, blocks, unconditional)[1][own],
        level,
        seed,
        names,
        where.axes,
    )


def derivative(
    fit: FittedGAM,
    term: str,
    grid: Any = None,
    level: float = 0.95,
    num_points: int | None = None,
    seed: int = 0,
    unconditional: bool = True,
) -> EffectTable:
    """
    The slope of a component of one numeric column.

    By central differences of the joint posterior, so that bands come with it.

    :param fit: a fitted GAM.
    :param term: the component's name.
    :param grid: values of its column, a dict of columns, a DataFrame; by default an even grid.
    :param level: probability of the limits.
    :param num_points: of the default grid on each axis.
    :param seed: of what is drawn.
    :param unconditional: whether uncertainty allows for uncertain hyperparameters.
    :raises ValueError: a component of several columns or of levels, or one that has no slope
        (``bs="matern12"``).
    """
    component = effect_component(fit, term)
    margins = component.margins
    if len(margins) != 1 or margins[0].kind == "levels":
        raise ValueError(f"derivatives: {term!r} is not a function of one numeric column.")
    kind = margins[0].kind
    if kind in ("matern12", "ou", "rw"):
        raise ValueError(f"derivatives: {term!r} has bs={kind!r}, whose draws have no slope.")
    where = make_grid(fit, component, grid, num_points)
    column, n = margins[0].column, len(where.X)
    h = _STEP * margins[0].span
    low, high = where.X.copy(), where.X.copy()
    low[:, column] -= h
    high[:, column] += h
    both = [(component.name, np.concatenate([low, high]))]
    moments = joint_moments(fit, both, unconditional)
    A = np.concatenate([-np.eye(n), np.eye(n)], axis=1) / (2.0 * h)
    name = f"d {component.name}"
    return contrast(fit, component, name, where.columns, A, moments, level, seed, where.axes)


def sample_effect(
    fit: FittedGAM, term: str, grid: Any = None, num_samples: int = 100, seed: int = 0
) -> AnyNDArray:
    """
    Joint posterior draws of a component, [S, n], or [S, n, L] for several predictors.

    Those of a component that has a shape have it, and are not normal.

    :param fit: a fitted GAM.
    :param term: the component's name.
    :param grid: values of its column, a dict of columns, a DataFrame; by default an even grid.
    :param num_samples: S.
    :param seed: of what is drawn.
    :raises ValueError: as :func:`effect`, or ``num_samples`` < 1.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1; got {num_samples}.")
    component = effect_component(fit, term)
    if component.shape:
        X = make_grid(fit, component, grid).X
        shaped = shaped_draws(fit, component, X, num_samples, seed)
        shaped = shaped[..., predictors(fit, component)[0]]
        return shaped[..., 0] if shaped.shape[-1] == 1 else shaped
    table = effect(fit, term, grid)
    draws = [
        table.estimate[:, i] + normal_draws(table.covariance[i], num_samples, seed + i)
        for i in range(len(table.predictors))
    ]
    return draws[0] if len(draws) == 1 else np.stack(draws, axis=-1)


def contrast(
    fit: FittedGAM,
    component: Component,
    name: str,
    columns: dict[Column, AnyNDArray],
    A: AnyNDArray,
    moments: tuple[AnyNDArray, AnyNDArray],
    level: float,
    seed: int,
    axes: tuple[AnyNDArray, ...] | None = None,
) -> EffectTable:
    """
    Linear combinations of a component's values.

    :param name: what they are.
    :param columns: where they are, [m] each.
    :param A: of which values they are made, [m, n].
    :param moments: of the values, mean [n, L] and covariance [L, n, n].
    """
    own, names = predictors(fit, component)
    mean, covariance = A @ moments[0][:, own], A @ moments[1][own] @ A.T
    return EffectTable.known(name, component, columns, mean, covariance, level, seed, names, axes)


def predictors(fit: FittedGAM, component: Component) -> tuple[list[int], tuple[str, ...]]:
    """Places and names of the predictors that a component enters."""
    own = component.predictors_of(fit.num_predictors)
    return own, tuple(fit.spec.predictor_names[i] for i in own)


def effect_component(fit: FittedGAM, term: str) -> Component:
    """
    The component that is the effect called ``term``.

    :raises ValueError: there is none, there are several of them, or it is the intercept.
    """
    if term == fit.spec.intercept:
        raise ValueError("the intercept is no effect of a column; see summary().")
    return fit.spec.component(term)
