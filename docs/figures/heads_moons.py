"""How sure heads of networks are around two moons: ``python docs/figures/heads_moons.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "benchmarks"))
from heads import METHODS, PROBLEMS  # noqa: E402

NAMES = ["Dense", "ensemble of 5", "SNGP", "AdditiveGP", "AdditiveGP, distance-aware"]

problem = PROBLEMS["moons"](0)
side = np.linspace(-6.0, 7.0, 150)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2).astype(np.float32)
figure, axes = plt.subplots(1, len(NAMES), figsize=(13, 3), layout="constrained")
for ax, name in zip(axes, NAMES):
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    probability = METHODS[name](problem).predict(grid).probabilities.max(axis=1)
    levels = np.linspace(0.5, 1.0, 11)
    drawn = ax.contourf(side, side, probability.reshape(150, 150), levels)
    ax.scatter(*problem.X.T, s=3, c=problem.y, cmap="coolwarm")
    ax.set(title=name.replace(", ", ",\n"), xticks=[], yticks=[], aspect="equal")
    ax.title.set_fontsize(14)
bar = figure.colorbar(drawn, ax=axes, ticks=[0.5, 0.75, 1.0])
bar.set_label("largest probability", fontsize=14)
figure.savefig(HERE / "heads_moons.png", dpi=110)
