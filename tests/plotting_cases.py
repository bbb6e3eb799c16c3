"""Data to draw, and how to find what was drawn."""

from __future__ import annotations

import numpy as np
import pandas as pd

N = 150


def data() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    d = pd.DataFrame(
        {
            "x": rng.uniform(0.0, 1.0, N),
            "z": rng.uniform(-2.0, 2.0, N),
            "w": rng.normal(size=N),
            "g": rng.choice(["a", "b"], N),
            "h": rng.permutation(np.arange(N) % 45),
            "size": rng.uniform(-0.5, 0.5, N),
        }
    )
    d.loc[d["g"] == "b", "x"] *= 0.8
    f = np.sin(6.0 * d["x"]) + (d["g"] == "b")
    d["num"] = f + 0.3 * rng.normal(size=N)
    d["count"] = rng.poisson(np.exp(1.0 + f + d["size"]))
    d["bin"] = rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-2.0 * f))
    scores = np.stack([f, -f, d["z"]], axis=1) + rng.gumbel(size=(N, 3))
    d["kind"] = np.array(["cat", "dog", "cow"])[scores.argmax(axis=1)]
    return d


DATA = data()


def panels(figure):
    """Axes by title, colour bars left out."""
    return {ax.get_title(): ax for ax in figure.axes if ax.get_title()}


def marked(ax, gid):
    result = ax.findobj(lambda artist: artist.get_gid() == gid)
    return result[0] if len(result) == 1 else result


def extent(collection, x):
    """Lowest and highest vertex of a band at each x."""
    (path,) = collection.get_paths()
    sides = [path.vertices[np.isclose(path.vertices[:, 0], v), 1] for v in x]
    return np.array([s.min() for s in sides]), np.array([s.max() for s in sides])
