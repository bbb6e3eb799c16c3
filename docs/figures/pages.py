"""Figures of what pages show: ``python docs/figures/pages.py``."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_gam as gg

HERE = Path(__file__).parent
RECORDS = HERE.parent.parent / "benchmarks" / "results"
OPTIONS = {"font.size": 14, "legend.frameon": False, "legend.fontsize": 12}
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, **OPTIONS})


def shapes() -> None:
    """Effects with a shape and without."""
    truths = {
        "flat, then up": ("gaussian", "increasing", lambda x: 3.0 * np.maximum(x - 0.5, 0.0)),
        "sigmoid": ("poisson", "increasing", lambda x: 2.0 / (1.0 + np.exp(-15.0 * (x - 0.5)))),
        "parabola": ("bernoulli", "convex", lambda x: 6.0 * np.square(x - 0.4)),
    }
    figure, axes = plt.subplots(1, 3, figsize=(10, 4), layout="constrained")
    grid = np.linspace(0.0, 1.0, 101)
    for ax, (name, (family, shape, f)) in zip(axes, truths.items()):
        rng, n = np.random.default_rng(1), 800 if family == "bernoulli" else 200
        x = rng.uniform(size=n)
        z = x + rng.normal(size=n)
        eta = f(x) + 0.7 * np.sin(2.0 * z)
        y = {
            "gaussian": eta + 0.7 * rng.normal(size=n),
            "poisson": rng.poisson(np.exp(eta)),
            "bernoulli": rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-eta)),
        }[family]
        data = pd.DataFrame({"x": x, "z": z, "y": y})
        for given, colour in ((None, "0.5"), (shape, "C0")):
            gam = gg.GAM(gg.s("x", shape=given) + gg.s("z"), family).fit(data, "y")
            effect = gam.effects("s(x)", grid)
            band = effect["lower"], effect["upper"]
            ax.fill_between(grid, *band, color=colour, alpha=0.25, linewidth=0.0)
            ax.plot(grid, effect["estimate"], color=colour, label=given or "any shape")
        draws = gam.sample_effects("s(x)", grid, num_samples=8, seed=0)
        ax.plot(grid, draws.T, color="C0", linewidth=0.6, alpha=0.6)
        ax.plot(grid, f(grid) - f(x).mean(), "k--", label="truth")
        ax.set(title=f"{name}\n({family})", xlabel="x")
        ax.legend(loc="upper left" if shape == "increasing" else "upper center")
    axes[0].set_ylabel("effect on the predictor")
    figure.savefig(HERE / "shapes.png", dpi=100)


def partial_effects() -> None:
    """Of the first table of ``gam.rst``."""
    rng, n = np.random.default_rng(0), 300
    table = pd.DataFrame({"age": rng.uniform(20, 80, n), "dose": rng.uniform(0, 1, n)})
    table["clinic"] = rng.choice(["north", "south", "west"], n)
    table["days"] = rng.integers(10, 100, n)
    log_rate = -2.0 + np.sin(table["age"] / 12.0) + 1.5 * table["dose"]
    table["visits"] = rng.poisson(table["days"] * np.exp(log_rate))
    gam = gg.GAM("visits ~ s(age) + dose + clinic + offset(log(days))", "poisson").fit(table)
    figure = gam.draw(labels={"age": "age (years)"}, figsize=(11.52, 4.64))
    figure.savefig(HERE / "partial_effects.png", dpi=100)


def partial_dependence() -> None:
    """Mean hires of bikes an hour."""
    bikes = gg.datasets.bikeshare()
    terms = "bikers ~ s(hr, bs='cyclic', period=24, by=factor(workingday)) + factor(workingday)"
    terms += " + s(temp) + s(hum) + s(windspeed) + factor(mnth) + factor(weathersit)"
    rides = gg.GAM(terms, "negative_binomial").fit(bikes)
    figure, axes = plt.subplots(1, 3, figsize=(10, 4), layout="constrained", sharey=True)
    names = {"temp": "temperature (scaled)", "weathersit": "weather", "hr": "hour of the day"}
    for ax, (column, title) in zip(axes, names.items()):
        average = rides.partial_dependence(column)
        gg.plotting.draw_partial_dependence(average, label="hires an hour", ax=ax)
        ax.set(xlabel=title, ylabel="" if ax is not axes[0] else "mean hires an hour")
    grid = np.linspace(bikes["temp"].min(), bikes["temp"].max(), 100)
    typical = rides.effects("s(temp)", grid, scale="response")
    axes[0].plot(grid, typical["estimate"], "k--", label="others at\ntheir average")
    axes[0].legend(loc="upper left")
    axes[1].set_xticks(range(4), ["clear", "cloudy", "rain", "heavy\nrain"])
    figure.savefig(HERE / "partial_dependence.png", dpi=100)


def sobol() -> None:
    """As recorded by ``benchmarks/sobol.py``."""
    rows = pd.DataFrame(json.loads((RECORDS / "sobol.json").read_text())["rows"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained", sharey=True)
    for ax, (name, table) in zip(axes, rows.groupby("function")):
        for i, (method, own) in enumerate(table.groupby("method")):
            own, colour = own.sort_values("evaluations"), f"C{i}"
            for index, style in (("first-order", "o-"), ("total", "s--")):
                kept = own.dropna(subset=f"error, {index}")
                label = f"{method}, {index}" if len(kept) else None
                ax.loglog(
                    kept["evaluations"],
                    kept[f"error, {index}"],
                    style,
                    color=colour,
                    label=label,
                    markersize=5,
                )
        ax.set(title=name, xlabel="function evaluations")
    axes[0].set_ylabel("mean absolute error of indices")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(HERE / "sobol.png", dpi=100)


def tasks() -> None:
    """The last ``figure`` that the code of ``tasks.rst`` makes before each of its images."""
    scope: dict[str, plt.Figure] = {}
    block = re.compile(r"\.\. testcode::\n\n((?:    .*\n|\n)+)|\.\. image:: figures/(.*)")
    for code, image in block.findall((HERE.parent / "tasks.rst").read_text(encoding="utf-8")):
        exec(textwrap.dedent(code), scope)
        if image:
            scope["figure"].savefig(HERE / image, dpi=100)


tasks()
partial_effects()
shapes()
partial_dependence()
sobol()
