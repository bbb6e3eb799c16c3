"""Two moons: how sure each head is, and where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from methods import Trained
from problems import Problem


def draw_moons(pictures: Mapping[str, tuple[Problem, Trained]], path: Path) -> None:
    """The largest probability of every method on a grid, with the training data."""
    across = 5
    down = -(-len(pictures) // across)
    figure, axes = plt.subplots(
        down, across, figsize=(2.3 * across, 2.5 * down), layout="constrained", squeeze=False
    )
    ticks = np.linspace(-5.5, 5.5, 90)
    grid = np.stack(np.meshgrid(ticks + 0.5, ticks + 0.25), axis=-1).astype(np.float32)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, (name, (problem, trained)) in zip(axes.flat, pictures.items()):
        p = trained.predict(grid.reshape(-1, 2)).probabilities
        image = ax.contourf(
            grid[..., 0],
            grid[..., 1],
            p.max(axis=1).reshape(grid.shape[:2]),
            levels=np.linspace(0.5, 1.0, 11),
            cmap="viridis",
        )
        ax.scatter(*problem.X.T, c=problem.y, s=1.5, cmap="coolwarm")
        ax.set_title(name, fontsize=8)
    figure.colorbar(image, ax=axes, label="largest probability", shrink=0.8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
