"""A head's components as curves over their feature, and drawings of them while it trains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.stats import norm

from .head import GPHead

_SPREADS = 3.0
"""Spreads on each side of a feature's location that curves are drawn over."""


def component_curve(
    head: GPHead,
    name: str,
    grid: AnyNDArray | None = None,
    *,
    level: float = 0.95,
    num_points: int = 100,
) -> pd.DataFrame:
    """
    A component of one feature with pointwise credible intervals, on the predictor's scale.

    :param head: the layer.
    :param name: the component's name, such as ``"s(0)"``; see :attr:`GPHead.names`.
    :param grid: values of the feature [n]; by default three spreads about its location, or every
        level, or one period.
    :param level: probability of the intervals.
    :param num_points: of the default grid.
    :return: columns ``<feature index>``, ``predictor`` (its name, empty where there is one),
        ``estimate``, ``se``, ``lower``, ``upper``.
    :raises ValueError: an unknown name, or a component of several features.
    """
    index = head.names.index(name) if name in head.names else -1
    if index < 0:
        raise ValueError(f"there is no component {name!r}; there are {', '.join(head.names)}.")
    component = head.structure.components[index]
    if len(component.margins) != 1 or component.by is not None:
        raise ValueError(f"component {name!r} is no function of one feature.")
    place = component.margins[0].column
    feature = head.structure.features[place]
    width = max(head.structure.features) + 1
    if grid is None:
        grid = _default_grid(head, place, component.margins[0].period, num_points)
    features: AnyNDArray = np.zeros((len(grid), width))
    features[:, feature] = np.asarray(grid, dtype=np.float64)
    moments = np.asarray(head(tf.constant(features), output="components"))[:, index]
    z = norm.ppf(0.5 + 0.5 * level)
    frames = []
    for k, predictor in enumerate(head.specification.names):
        mean, se = moments[:, k, 0], np.sqrt(np.maximum(moments[:, k, 1], 0.0))
        frames.append(
            pd.DataFrame(
                {
                    feature: grid,
                    "predictor": predictor,
                    "estimate": mean,
                    "se": se,
                    "lower": mean - z * se,
                    "upper": mean + z * se,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _default_grid(head: GPHead, place: int, period: float | None, num_points: int) -> AnyNDArray:
    if place in head.structure.num_levels:
        return np.arange(float(head.structure.num_levels[place]))
    if period is not None:
        return np.linspace(0.0, period, num_points)
    scaled: AnyNDArray = np.zeros((num_points, head.structure.width))
    scaled[:, place] = np.linspace(-_SPREADS, _SPREADS, num_points)
    if head.normalization is None:
        return scaled[:, place]
    values: AnyNDArray = head.scaling.inverse(scaled)[:, place]
    return values


if TYPE_CHECKING:
    from matplotlib.figure import Figure


class DrawComponents(keras.callbacks.Callback):
    """
    Draw the one-dimensional components of a head with 95 % bands, every so many epochs.

    :param head: the layer.
    :param folder: where ``epoch_0001.png``, ... are written; made if it is not there.
    :param every: epochs between drawings.
    :raises ValueError: ``every`` below 1, or a head without one-dimensional components.
    """

    def __init__(self, head: GPHead, folder: str | Path, every: int = 1) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"every must be at least 1; got {every}.")
        self.terms = [
            c.name for c in head.structure.components if len(c.margins) == 1 and c.by is None
        ]
        if not self.terms:
            raise ValueError(f"{head.name} has no one-dimensional component to draw.")
        structure = head.structure
        self.levels: set[Any] = {structure.features[place] for place in structure.num_levels}
        self.head, self.folder, self.every = head, Path(folder), every

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Draw if ``epoch + 1`` is a multiple of ``every``."""
        if (epoch + 1) % self.every:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        figure = self.draw()
        figure.suptitle(f"epoch {epoch + 1}")
        figure.savefig(self.folder / f"epoch_{epoch + 1:04d}.png", dpi=100)

    def draw(self) -> Figure:
        """The present components, one panel each."""
        # a figure of its own, outside pyplot: nothing piles up over epochs
        from matplotlib.figure import Figure

        columns = min(4, len(self.terms))
        rows = -(-len(self.terms) // columns)
        figure = Figure(figsize=(3.2 * columns, 2.6 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        # bands of many classes would hide each other
        alpha = 0.25 if self.head.num_predictors <= 3 else 0.06
        for ax, name in zip(axes, self.terms):
            curve = component_curve(self.head, name)
            feature = curve.columns[0]
            for label, part in curve.groupby("predictor", sort=False):
                ax.plot(part[feature], part["estimate"], label=label)
                ax.fill_between(part[feature], part["lower"], part["upper"], alpha=alpha)
            ax.set_title(name, fontsize=10)
            ax.set_xlabel(f"feature {feature}")
            if feature in self.levels:
                ax.set_xticks(part[feature])
        for ax in axes[len(self.terms) :]:
            ax.set_axis_off()
        if self.head.num_predictors > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
        return figure
