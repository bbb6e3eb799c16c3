"""Watching components while a network trains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from .curves import component_curve
from .head import GPHead

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
        """Draw, where it is time."""
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
