"""A head's effects in the units of its features: tables, drawings, a summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ..errors import check_count, check_level
from ..gam.components.kernels import lengthscale_units
from ..gam.components.plan import Component

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .head import GPHead

_SPREADS = 3.0
"""Spreads on each side of a feature's location that curves are drawn over."""
_NUM_POINTS = {1: 100, 2: 30}
"""Of a default grid, along each of its features."""
_NUM_ROWS = 512
"""Over which a summary averages."""


def head_effects(head: GPHead, term: str | None, grid: Any, level: float) -> pd.DataFrame:
    """See :meth:`GPHead.effects`."""
    check_level(level)
    if term is not None:
        return _effect(head, _named(head, term), grid, level)
    every = [component for component in head.structure.components if component.margins]
    tables = []
    for component in every if grid is not None else _small(head):
        table = _effect(head, component, grid, level)
        table.insert(0, "term", component.name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _small(head: GPHead) -> list[Component]:
    """The effects of one or two features."""
    small = [c for c in head.structure.components if len(c.margins) in _NUM_POINTS]
    if not small:
        raise ValueError(
            f"{head.name} has no effect of one or two features, to be shown without a grid; there "
            f"are {', '.join(head.names)}."
        )
    return small


def _named(head: GPHead, name: str) -> Component:
    for component in head.structure.components:
        if component.name == name:
            return component
    raise ValueError(f"there is no effect {name!r}; there are {', '.join(head.names)}.")


def _effect(head: GPHead, component: Component, grid: Any, level: float) -> pd.DataFrame:
    places = [margin.column for margin in component.margins]
    features = [head.structure.features[place] for place in places]
    columns = _grid(head, component, features, grid)
    rows: AnyNDArray = np.zeros((len(columns), max(head.structure.features) + 1))
    rows[:, features] = columns
    if component.by is not None:
        code = component.by.code
        rows[:, head.structure.features[component.by.column]] = 1.0 if code is None else code
    index = head.names.index(component.name)
    moments = np.asarray(head(tf.constant(rows), output="components"))[:, index]
    z = norm.ppf(0.5 + 0.5 * level)
    tables = []
    for k, predictor in enumerate(head.specification.names):
        mean, se = moments[:, k, 0], np.sqrt(np.maximum(moments[:, k, 1], 0.0))
        table = pd.DataFrame(columns, columns=features)
        if head.num_predictors > 1:
            table["predictor"] = predictor
        tables.append(table.assign(estimate=mean, se=se, lower=mean - z * se, upper=mean + z * se))
    return pd.concat(tables, ignore_index=True)


def _grid(head: GPHead, component: Component, features: list[int], grid: Any) -> AnyNDArray:
    """Values of a component's features, [n, d]."""
    if grid is not None:
        if isinstance(grid, Mapping) or hasattr(grid, "columns"):
            missing = [f for f in features if f not in grid]
            if missing:
                raise ValueError(f"grid has no feature {missing[0]}, which {component.name} reads.")
            parts = [np.asarray(grid[f], dtype=np.float64) for f in features]
            return np.column_stack(parts)
        values: AnyNDArray = np.asarray(grid, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or values.shape[1] != len(features):
            raise ValueError(
                f"grid of {component.name} must be [n, {len(features)}], values of features "
                f"{', '.join(map(str, features))}; got shape {values.shape}."
            )
        return values
    number = _NUM_POINTS.get(len(features))
    if number is None:
        raise ValueError(
            f"{component.name or 'the intercept'} is a function of {len(features)} features; pass "
            "the grid at which it is wanted."
        )
    axes = [_axis(head, margin.column, margin.period, number) for margin in component.margins]
    mesh = np.meshgrid(*axes, indexing="ij")
    return np.column_stack([values.ravel() for values in mesh])


def _axis(head: GPHead, place: int, period: float | None, number: int) -> AnyNDArray:
    structure = head.structure
    if place in structure.num_levels:
        return np.arange(float(structure.num_levels[place]))
    if place in structure.degrees:
        return np.linspace(*structure.degrees[place], number)
    if period is not None:
        return np.linspace(0.0, period, number)
    scaled: AnyNDArray = np.zeros((number, structure.width))
    scaled[:, place] = np.linspace(-_SPREADS, _SPREADS, number)
    values: AnyNDArray = head.unscaled(scaled)[:, place]
    return values


def head_summary(head: GPHead) -> pd.DataFrame:
    """See :meth:`GPHead.summary`."""
    structure = head.structure
    features = head.like_seen(_NUM_ROWS)
    moments = np.asarray(head(tf.constant(features), output="components"))
    with head._precision():
        at = head.scaled(tf.constant(features))
        priors = [np.asarray(kernel(at, full_cov=False)) for kernel in head.kernel.kernels]
    rows = []
    for i, component in enumerate(structure.components):
        if not component.margins:
            continue
        lengths = _lengthscales(head, component)
        for k, predictor in enumerate(head.specification.names):
            mean, variance = moments[:, i, k, 0], moments[:, i, k, 1]
            rows.append(
                {
                    "term": component.name,
                    "predictor": predictor,
                    "sd": float(np.std(mean)),
                    "se": float(np.sqrt(np.mean(np.maximum(variance, 0.0)))),
                    "prior_sd": float(np.sqrt(np.mean(priors[i]))),
                    "lengthscale": lengths,
                }
            )
    table = pd.DataFrame(rows)
    return table if head.num_predictors > 1 else table.drop(columns="predictor")


def _lengthscales(head: GPHead, component: Component) -> tuple[float, ...]:
    """In the features' units, where there is one for each of them that has no levels."""
    each = [unit * np.ravel(p) for p, unit in lengthscale_units(head.kernel[component.name])]
    lengths = np.concatenate([*each, []])
    places = [margin.column for margin in component.margins if margin.kind != "levels"]
    if len(lengths) == 1:  # of distances
        lengths = np.repeat(lengths, len(places))
    if len(lengths) != len(places):
        return ()
    at = np.zeros((2, head.structure.width))
    at[1, places] = lengths
    both = head.unscaled(at)
    return tuple(float(x) for x in (both[1] - both[0])[places])


def draw_head(head: GPHead, terms: str | Iterable[str] | None, level: float) -> Figure:
    """See :meth:`GPHead.draw`."""
    # a figure of its own, outside pyplot: nothing piles up over epochs
    from matplotlib.figure import Figure

    if terms is None:
        parts = _small(head)
    else:
        parts = [_named(head, t) for t in ([terms] if isinstance(terms, str) else terms)]
    tables = [_effect(head, c, None, level) for c in parts]
    panels: list[tuple[Component, str | None, pd.DataFrame]] = []
    for component, table in zip(parts, tables):
        if _is_map(head, component) and "predictor" in table:
            groups = table.groupby("predictor", sort=False)
            panels += [(component, str(name), part) for name, part in groups]
        else:
            panels.append((component, None, table))
    columns = min(4, len(panels))
    rows = -(-len(panels) // max(columns, 1))
    figure = Figure(figsize=(3.2 * columns, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    curves = []
    for ax, (component, predictor, table) in zip(axes, panels):
        if _is_map(head, component):
            _draw_map(figure, ax, component, table)
        else:
            _draw_curves(head, ax, component, table)
            curves.append(ax)
        title = component.name if predictor is None else f"{component.name}, {predictor}"
        ax.set_title(title, fontsize=10)
    for ax in curves[1:]:
        ax.sharey(curves[0])
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    if head.num_predictors > 1 and curves:
        figure.legend(*curves[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _is_map(head: GPHead, component: Component) -> bool:
    levels = head.structure.num_levels
    return len(component.margins) == 2 and not any(m.column in levels for m in component.margins)


def _draw_curves(head: GPHead, ax: Axes, component: Component, table: pd.DataFrame) -> None:
    """A curve with its band for each predictor and each level beside the first feature."""
    features = [f for f in table.columns if isinstance(f, int)]
    levels = [f for f in features if head.structure.features.index(f) in head.structure.num_levels]
    along = next((f for f in features if f not in levels), features[0])
    apart = [f for f in features if f != along]
    names = [n for n in ("predictor",) if n in table]
    # bands of many classes would hide each other
    alpha = 0.25 if head.num_predictors <= 3 else 0.06
    groups = table.groupby([*names, *apart], sort=False) if names or apart else [((), table)]
    for key, part in groups:
        label = ", ".join(str(k) for k in key)
        if along in levels:
            half = part["upper"] - part["estimate"]
            ax.errorbar(part[along], part["estimate"], yerr=half, fmt="o", ms=3, label=label)
        else:
            line = ax.plot(part[along], part["estimate"], label=label)[0]
            ax.fill_between(
                part[along], part["lower"], part["upper"], alpha=alpha, color=line.get_color()
            )
    ax.set_xlabel(f"feature {along}")
    if along in levels:
        ax.set_xticks(np.unique(table[along]))


def _draw_map(figure: Figure, ax: Axes, component: Component, table: pd.DataFrame) -> None:
    first, second = (f for f in table.columns if isinstance(f, int))
    values = table.pivot(index=second, columns=first, values="estimate")
    most = float(np.abs(values.to_numpy()).max()) or 1.0
    mesh = ax.pcolormesh(values.columns, values.index, values, cmap="RdBu_r", vmin=-most, vmax=most)
    figure.colorbar(mesh, ax=ax)
    ax.set(xlabel=f"feature {first}", ylabel=f"feature {second}")


class DrawComponents(keras.callbacks.Callback):
    """
    Draw the effects of a head with 95 % bands, every so many epochs.

    :param head: the layer.
    :param folder: where ``epoch_0001.png``, ... are written; made if it is not there.
    :param every: epochs between drawings.
    :raises ValueError: ``every`` below 1, or a head without effects of one or two features.
    """

    def __init__(self, head: GPHead, folder: str | Path, every: int = 1) -> None:
        super().__init__()
        check_count("every", every)
        if not any(len(c.margins) in _NUM_POINTS for c in head.structure.components):
            raise ValueError(f"{head.name} has no effect of one or two features to draw.")
        self.head, self.folder, self.every = head, Path(folder), every

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Draw if ``epoch + 1`` is a multiple of ``every``."""
        if (epoch + 1) % self.every:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        figure = self.head.draw()
        figure.suptitle(f"epoch {epoch + 1}")
        figure.savefig(self.folder / f"epoch_{epoch + 1:04d}.png", dpi=100)
