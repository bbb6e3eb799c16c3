"""Differences of effects between levels, from the joint posterior."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..components import Component
from ..fits import FittedGAM
from .effect import contrast, effect_component
from .grid import make_grid
from .hyperparameters import joint_moments
from .table import EffectTable
from .transform import CENTRED


class Differences:
    """
    Differences between levels.

    :param tables: (level, level, table) of each pair.
    :param centred: whether a term that is left out has the means of the levels.
    """

    def __init__(self, tables: list[tuple[Any, Any, EffectTable]], centred: bool = False) -> None:
        self.tables, self.centred = tables, centred

    def frame(self) -> pd.DataFrame:
        """One table: ``level_1``, ``level_2``, and the columns of an effect."""
        frames = []
        for first, second, table in self.tables:
            frame = table.frame()
            if self.centred:
                frame = frame.rename(columns={"estimate": CENTRED})
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
    group_means: bool = False,
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
    :param group_means: whether differences of curves have those of the levels' means, which are
        another term's.
    :raises ValueError: a term without levels, or ``group_means`` where no term has them.
    """
    found = fit.spec.called(term)
    if len(found) > 1:  # a curve for each level
        return _curve_differences(
            fit, found, level, grid, num_points, seed, unconditional, group_means
        )
    component = effect_component(fit, term)
    if component.form in ("curves", "deviations"):
        return _level_differences(
            fit, component, level, grid, num_points, seed, unconditional, group_means
        )
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


def _means(fit: FittedGAM, component: Component, place: int) -> list[Component]:
    """The components that have the means of a factor's levels, beside curves of a component."""
    entered = component.predictors_of(fit.num_predictors)
    return [
        c
        for c in fit.spec.components
        if c.form in ("levels", "means", "random")
        and c.by is None
        and c.margins[0].column == place
        and set(entered) <= set(c.predictors_of(fit.num_predictors))
    ]


def _require_means(fit: FittedGAM, component: Component, place: int) -> None:
    """
    :raises ValueError: there are none.
    """
    if not _means(fit, component, place):
        name = list(fit.spec.encoder.columns)[place][0]
        raise ValueError(
            f"group_means=True: no term has the means of the levels of {name!r}; add "
            f"factor({name!r}) to the terms, or leave group_means out."
        )


def _mean_blocks(
    fit: FittedGAM, means: Sequence[Component], codes: AnyNDArray
) -> list[tuple[str, AnyNDArray]]:
    """The means of some levels, a block a component."""
    width = fit.spec.encoder.width
    return [(c.name, c.full(codes[:, None], width)) for c in means]


def _curve_differences(
    fit: FittedGAM,
    curves: Sequence[Component],
    level: float,
    grid: Any,
    num_points: int | None,
    seed: int,
    unconditional: bool,
    group_means: bool,
) -> Differences:
    # on the values that the data of all levels cover
    first = curves[0]
    assert first.by is not None
    if group_means:
        _require_means(fit, first, first.by.column)
    if grid is None and len(first.margins) == 1 and first.margins[0].kind != "levels":
        ends = np.array([c.margins[0].ends for c in curves])
        name = fit.spec.term(first.term).columns[0]
        grid = {name: np.linspace(ends.min(), ends.max(), num_points or 100)}
    wheres = [make_grid(fit, c, grid, num_points) for c in curves]
    n, K = len(wheres[0].X), len(curves)
    means = _means(fit, first, first.by.column) if group_means else []
    codes = np.array([c.by.code for c in curves if c.by is not None], dtype=np.float64)
    blocks = [(c.name, w.X) for c, w in zip(curves, wheres)] + _mean_blocks(fit, means, codes)
    moments = joint_moments(fit, blocks, unconditional)
    tables = []
    for i, j in itertools.combinations(range(K), 2):
        sign = np.zeros(K)
        sign[i], sign[j] = 1.0, -1.0
        # of the curves at each point, and of what has their means
        A = np.concatenate(
            [np.kron(sign, np.eye(n)), *[np.tile(sign, (n, 1))] * len(means)], axis=1
        )
        name, where = f"{curves[i].name} - {curves[j].name}", wheres[i]
        table = contrast(fit, curves[i], name, where.columns, A, moments, level, seed, where.axes)
        tables.append((_level(curves[i]), _level(curves[j]), table))
    return Differences(tables, centred=first.form != "own" and not group_means)


def _level_differences(
    fit: FittedGAM,
    component: Component,
    level: float,
    grid: Any,
    num_points: int | None,
    seed: int,
    unconditional: bool,
    group_means: bool,
) -> Differences:
    """Of one component that has a curve for each level, whose own mean is part of it."""
    number, factor = sorted(component.margins, key=lambda m: m.kind == "levels")
    name = list(fit.spec.encoder.columns)[number.column][0]
    shown = make_grid(fit, dataclasses.replace(component, margins=(number,)), grid, num_points)
    at = dict(shown.columns)
    n = len(at[name])
    every = list(fit.spec.encoder.columns)[factor.column][0]
    levels = fit.spec.encoder.levels(every)
    means = _means(fit, component, factor.column)
    added = means if group_means else []
    A = np.concatenate([np.eye(n), -np.eye(n), *[np.tile([1.0, -1.0], (n, 1))] * len(added)], 1)
    tables = []
    for codes in itertools.combinations(factor.nodes, 2):
        first, second = (levels[int(code)] for code in codes)
        both = np.empty(2 * n, dtype=object)
        both[:n], both[n:] = first, second
        where = make_grid(fit, component, {name: np.tile(at[name], 2), every: both})
        blocks = [(component.name, where.X), *_mean_blocks(fit, added, np.array(codes))]
        moments = joint_moments(fit, blocks, unconditional)
        what = f"{component.name}={first} - {component.name}={second}"
        table = contrast(fit, component, what, at, A, moments, level, seed, shown.axes)
        tables.append((first, second, table))
    return Differences(tables, centred=bool(means) and not group_means)


def _level(component: Component) -> str:
    assert component.by is not None
    return component.by.level
