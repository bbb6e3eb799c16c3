"""Kinds of smooths, drawn from simulated data: ``python docs/figures/smooths.py``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_gam as gg
from gpflow_gam import s

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
rng = np.random.default_rng(0)
n = 800
x, g = rng.uniform(size=n), rng.integers(0, 12, n)
heights, phases = rng.normal(size=12), 0.6 * rng.normal(size=12)
groups = pd.DataFrame({"x": x, "g": [f"g{i:02d}" for i in g]})
groups["y"] = np.sin(6 * x + phases[g]) + heights[g] + 0.4 * rng.normal(size=n)

side = np.arange(8)
squares = {f"{i}{j}": [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)] for i in side for j in side}
area = rng.choice([name for name in squares if name not in ("34", "35", "61")], n)
height = np.array([np.sin(0.7 * int(a[0])) + 0.4 * np.cos(0.9 * int(a[1])) for a in area])
areas = pd.DataFrame({"area": area, "y": height + 0.7 * rng.normal(size=n)})

globe = pd.DataFrame({"lat": np.degrees(np.arcsin(rng.uniform(-1, 1, n)))})
globe["lon"] = rng.uniform(-180, 180, n)
lat, lon = np.radians(globe["lat"]), np.radians(globe["lon"])
globe["y"] = np.sin(3 * lat) + np.cos(2 * lon) * np.cos(lat) ** 2 + 0.4 * rng.normal(size=n)

bend = pd.DataFrame({"x": x, "y": np.sin(25 * x**3) + 0.25 * rng.normal(size=n)})
noise, day = np.zeros(250), np.arange(250.0)
for i in range(1, 250):
    noise[i] = 0.7 * noise[i - 1] + 0.5 * rng.normal()
series = pd.DataFrame({"day": day, "again": day})
series["y"] = np.sin(day / 40) + noise + 0.2 * rng.normal(size=250)

figure, axes = plt.subplots(2, 3, figsize=(11.5, 6), layout="constrained")
ou = gg.GAM(s("day") + s("again", bs="ou")).fit(series, "y")
for ax, gam, effect, title in (
    (axes[0, 0], gg.GAM(s("x", "g", bs="fs")).fit(groups, "y"), "s(x,g)", 's("x", "g", bs="fs")'),
    (
        axes[0, 1],
        gg.GAM(s("area", bs="mrf", polygons=squares)).fit(areas, "y"),
        "s(area)",
        's("area", bs="mrf", polygons=...)',
    ),
    (
        axes[0, 2],
        gg.GAM(s("lat", "lon", bs="sos")).fit(globe, "y"),
        "s(lat,lon)",
        's("lat", "lon", bs="sos")',
    ),
    (axes[1, 0], gg.GAM(s("x", bs="ad")).fit(bend, "y"), "s(x)", 's("x", bs="ad")'),
    (axes[1, 1], ou, "s(day)", 's("day") beside "ou"'),
    (axes[1, 2], ou, "s(again)", 's("day", bs="ou") beside it'),
):
    gam.draw(effect, ax=ax, labels={"again": "day"} if effect == "s(again)" else None)
    ax.set_title(title)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=90)
