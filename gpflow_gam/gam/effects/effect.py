"""Effects, their slopes and their differences, from the joint posterior."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..components import Component
from ..fits import FittedGAM
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
    mean, covariance = joint_moments(fit, both, unconditional)
    A = np.concatenate([-np.eye(n), np.eye(n)], axis=1) / (2.0 * h)
    own, names = predictors(fit, component)
    return EffectTable.known(
        f"d {component.name}",
        component,
        where.columns,
        A @ mean[:, own],
        A @ covariance[own] @ A.T,
        level,
        seed,
        names,
        where.axes,
    )


class Differences:
    """
    Differences between levels.

    :param tables: (level, level, table) of each pair.
    """

    def __init__(self, tables: list[tuple[Any, Any, EffectTable]]) -> None:
        self.tables = tables

    def frame(self) -> pd.DataFrame:
        """One table: ``level_1``, ``level_2``, and the columns of an effect."""
        frames = []
        for first, second, table in self.tables:
            frame = table.frame()
            frame.insert(0, "level_2", [second] * len(frame))
            frame.insert(0, "level_1", [first] * len(frame))
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)


def differences(
    fit: FittedGAM,
    term: str,
    level: float = 0.95,
    grid: Any = None,
    num_points: int | None = None,
    seed: int = 0,
    unconditional: bool = True,
) -> Differences:
    """
    ``f(level_1) - f(level_2)`` for every pair of levels of a factor, or of a ``by=`` factor.

    :param fit: a fitted GAM.
    :param term: the factor's name, or the label of the term with ``by=`` or a curve a level.
    :param level: probability of the limits.
    :param grid: values of its column, a dict of columns, a DataFrame; by default an even grid.
    :param num_points: of the default grid on each axis.
    :param seed: of what is drawn.
    :param unconditional: whether uncertainty allows for uncertain hyperparameters.
    :raises ValueError: a term without levels.
    """
    spec = fit.spec
    curves = [
        c for c in spec.components if c.term == term and c.by is not None and c.by.code is not None
    ]
    if curves:
        return _curve_differences(fit, curves, level, grid, num_points, seed, unconditional)
    component = effect_component(fit, term)
    if component.form in ("curves", "deviations"):
        return _level_differences(fit, component, level, grid, num_points, seed, unconditional)
    if component.form not in ("levels", "means", "random", "areas"):
        raise ValueError(f"differences: {term!r} has no levels to compare.")
    where = make_grid(fit, component)
    mean, covariance = joint_moments(fit, [(component.name, where.X)], unconditional)
    (labels,) = where.columns.values()
    own, names = predictors(fit, component)
    tables = []
    for i, j in itertools.combinations(range(len(labels)), 2):
        a = np.zeros((1, len(labels)))
        a[0, i], a[0, j] = 1.0, -1.0
        table = EffectTable.known(
            component.name,
            component,
            {},
            a @ mean[:, own],
            a @ covariance[own] @ a.T,
            level,
            seed,
            names,
        )
        tables.append((labels[i], labels[j], table))
    return Differences(tables)


def _curve_differences(
    fit: FittedGAM,
    curves: list[Component],
    level: float,
    grid: Any,
    num_points: int | None,
    seed: int,
    unconditional: bool,
) -> Differences:
    # on the values that the data of all levels cover
    first = curves[0]
    if grid is None and len(first.margins) == 1 and first.margins[0].kind != "levels":
        ends = np.array([c.margins[0].ends for c in curves])
        name = fit.spec.term(first.term).columns[0]
        grid = {name: np.linspace(ends.min(), ends.max(), num_points or 100)}
    wheres = [make_grid(fit, c, grid, num_points) for c in curves]
    n = len(wheres[0].X)
    blocks = [(c.name, w.X) for c, w in zip(curves, wheres)]
    mean, covariance = joint_moments(fit, blocks, unconditional)
    own, names = predictors(fit, first)
    tables = []
    for i, j in itertools.combinations(range(len(curves)), 2):
        A = np.zeros((n, n * len(curves)))
        A[:, i * n : (i + 1) * n] = np.eye(n)
        A[:, j * n : (j + 1) * n] = -np.eye(n)
        table = EffectTable.known(
            f"{curves[i].name} - {curves[j].name}",
            curves[i],
            wheres[i].columns,
            A @ mean[:, own],
            A @ covariance[own] @ A.T,
            level,
            seed,
            names,
            wheres[i].axes,
        )
        tables.append((_level(curves[i]), _level(curves[j]), table))
    return Differences(tables)


def _level_differences(
    fit: FittedGAM,
    component: Component,
    level: float,
    grid: Any,
    num_points: int | None,
    seed: int,
    unconditional: bool,
) -> Differences:
    """Of one component that has a curve for each level."""
    number, factor = sorted(component.margins, key=lambda m: m.kind == "levels")
    name = list(fit.spec.encoder.columns)[number.column][0]
    shown = make_grid(fit, dataclasses.replace(component, margins=(number,)), grid, num_points)
    at = dict(shown.columns)
    n = len(at[name])
    every = list(fit.spec.encoder.columns)[factor.column][0]
    levels = [fit.spec.encoder.levels(every)[int(code)] for code in factor.nodes]
    own, names = predictors(fit, component)
    tables = []
    for first, second in itertools.combinations(levels, 2):
        both = np.empty(2 * n, dtype=object)
        both[:n], both[n:] = first, second
        where = make_grid(fit, component, {name: np.tile(at[name], 2), every: both})
        mean, covariance = joint_moments(fit, [(component.name, where.X)], unconditional)
        A = np.concatenate([np.eye(n), -np.eye(n)], axis=1)
        table = EffectTable.known(
            f"{component.name}={first} - {component.name}={second}",
            component,
            at,
            A @ mean[:, own],
            A @ covariance[own] @ A.T,
            level,
            seed,
            names,
            shown.axes,
        )
        tables.append((first, second, table))
    return Differences(tables)


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


def predictors(fit: FittedGAM, component: Component) -> tuple[list[int], tuple[str, ...]]:
    """Places and names of the predictors that a component enters."""
    own = component.predictors_of(fit.num_predictors)
    return own, tuple(fit.spec.predictor_names[i] for i in own)


def _level(component: Component) -> str:
    assert component.by is not None
    return component.by.level


def effect_component(fit: FittedGAM, term: str) -> Component:
    """
    The component that is the effect called ``term``.

    :raises ValueError: there is none, there are several of them, or it is the intercept.
    """
    if term not in fit.spec.effect_names:
        split = [c.name for c in fit.spec.components if c.term == term]
        if split:
            raise ValueError(
                f"{term!r} is several effects, one a level; ask for one of {', '.join(split)}."
            )
    if term == fit.spec.intercept:
        raise ValueError("the intercept is no effect of a column; see summary().")
    return fit.spec.component(term)
