"""Differences of effects between levels, from the joint posterior."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pandas as pd

from ..components import Component
from ..fits import FittedGAM
from .effect import contrast, effect_component
from .grid import make_grid
from .hyperparameters import joint_moments
from .table import EffectTable


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
    moments = joint_moments(fit, [(component.name, where.X)], unconditional)
    (labels,) = where.columns.values()
    tables = []
    for i, j in itertools.combinations(range(len(labels)), 2):
        a = np.zeros((1, len(labels)))
        a[0, i], a[0, j] = 1.0, -1.0
        table = contrast(fit, component, component.name, {}, a, moments, level, seed)
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
    moments = joint_moments(fit, blocks, unconditional)
    tables = []
    for i, j in itertools.combinations(range(len(curves)), 2):
        A = np.zeros((n, n * len(curves)))
        A[:, i * n : (i + 1) * n] = np.eye(n)
        A[:, j * n : (j + 1) * n] = -np.eye(n)
        name, where = f"{curves[i].name} - {curves[j].name}", wheres[i]
        table = contrast(fit, curves[i], name, where.columns, A, moments, level, seed, where.axes)
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
    tables = []
    for first, second in itertools.combinations(levels, 2):
        both = np.empty(2 * n, dtype=object)
        both[:n], both[n:] = first, second
        where = make_grid(fit, component, {name: np.tile(at[name], 2), every: both})
        moments = joint_moments(fit, [(component.name, where.X)], unconditional)
        A = np.concatenate([np.eye(n), -np.eye(n)], axis=1)
        what = f"{component.name}={first} - {component.name}={second}"
        table = contrast(fit, component, what, at, A, moments, level, seed, shown.axes)
        tables.append((first, second, table))
    return Differences(tables)


def _level(component: Component) -> str:
    assert component.by is not None
    return component.by.level
