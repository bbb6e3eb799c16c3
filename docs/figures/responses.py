"""Responses of several kinds beside R: ``python docs/figures/responses.py``."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_gam as gg
from gpflow_gam import s

HERE = Path(__file__).parent
OPTIONS = {"font.size": 12, "legend.frameon": False, "legend.fontsize": 10}
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, **OPTIONS})

GAULSS = """
suppressMessages(library(mgcv))
d <- MASS::mcycle
m <- gam(list(accel ~ s(times, k = 20), ~ s(times, k = 10)), family = gaulss(), data = d)
x <- data.frame(times = seq(min(d$times), max(d$times), length.out = 200))
p <- predict(m, x, type = "response")
write.csv(data.frame(x, mean = p[, 1], sd = 1 / p[, 2]))
"""
COX = """
library(survival)
d <- na.omit(lung[c("time", "status", "age", "sex", "ph.ecog")])
m <- coxph(Surv(time, status == 2) ~ age + sex + ph.ecog, d)
f <- survfit(m, data.frame(age = 62, sex = 1, ph.ecog = c(0, 2)))
write.csv(data.frame(time = f$time, f$surv))
"""
QUASI = """
suppressMessages(library(mgcv))
d <- read.csv(file("stdin"))
p <- predict(gam(y ~ s(x), quasipoisson, d, method = "REML"), d, se.fit = TRUE)
write.csv(data.frame(fit = p$fit, se = p$se.fit))
"""


def in_r(code: str, given: str = "") -> pd.DataFrame:
    """What R writes as a table."""
    done = subprocess.run(
        ["Rscript", "-e", code], input=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return pd.read_csv(io.StringIO(done.stdout), index_col=0)


def curve(ax: plt.Axes, x: np.ndarray, band: pd.DataFrame, label: str) -> None:
    """An estimate and its 95 % band."""
    (line,) = ax.plot(x, band["estimate"], label=label)
    ax.fill_between(x, band["lower"], band["upper"], color=line.get_color(), alpha=0.2)


def location_scale(table: pd.DataFrame) -> None:
    """Mean and standard deviation of head acceleration."""
    gam = gg.GAM({"location": s("times"), "scale": s("times")}, "heteroskedastic")
    gam.fit(table, "accel", progress=False)
    theirs = in_r(GAULSS)
    both = gam.predict(theirs, "link", interval=0.95)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    axes[0].plot(table["times"], table["accel"], ".", color="0.6", markersize=4)
    for ax, band, peer in zip(axes, (both["mean"], np.exp(both["log scale"])), ("mean", "sd")):
        curve(ax, theirs["times"], band, "gpflow_gam")
        ax.plot(theirs["times"], theirs[peer], "k--", linewidth=1.0, label="mgcv, gaulss")
        ax.set(xlabel="time, ms", ylabel=f"{peer} of the acceleration, g")
    axes[0].legend()
    figure.savefig(HERE / "location_scale.png", dpi=100)


def quantiles(ax: plt.Axes, table: pd.DataFrame) -> None:
    """Of head acceleration."""
    grid = pd.DataFrame({"times": np.linspace(*table["times"].agg(["min", "max"]), 200)})
    ax.plot(table["times"], table["accel"], ".", color="0.6", markersize=4)
    for tau in (0.1, 0.5, 0.9):
        terms = {"quantile": s("times"), "scale": s("times", k=10)}
        gam = gg.GAM(terms, gg.families.Quantile(tau=tau)).fit(table, "accel", progress=False)
        curve(ax, grid["times"], gam.predict(grid, interval=0.95), f"{tau:g}")
        below = np.mean(table["accel"] < gam.predict(table))
        print(f"quantile {tau:g}: {below:.3f} of the responses are below it")
    ax.set(xlabel="time, ms", ylabel="acceleration, g", title="quantiles")
    ax.legend()


def survival(ax: plt.Axes) -> None:
    """With lung cancer, by how well patients do."""
    table = in_r("write.csv(survival::lung)").rename(columns={"ph.ecog": "ecog"})
    table["died"] = table["status"] == 2
    gam = gg.GAM("Surv(time, died) ~ age + sex + ecog", "cox", missing="drop")
    gam.fit(table, progress=False)
    theirs, times = in_r(COX), np.linspace(5.0, 1000.0, 200)
    found = gam.survival(pd.DataFrame({"age": 62, "sex": 1, "ecog": [0, 2]}), times)
    for row, name in enumerate(("well", "in bed at times")):
        curve(ax, times, found[found["row"] == row], name)
        label = None if row else "coxph"
        ax.step(theirs["time"], theirs.iloc[:, 1 + row], "k", lw=1.0, where="post", label=label)
    ax.set(xlabel="days", ylabel="survival probability", title="proportional hazards")
    ax.legend()


def counts(ax: plt.Axes) -> None:
    """Of variance four times their mean."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(size=300))
    truth = 1.5 + np.sin(6.0 * x)
    table = pd.DataFrame({"x": x, "y": rng.negative_binomial(np.exp(truth) / 3.0, 0.25)})
    gam = gg.GAM("y ~ s(x)", "quasipoisson").fit(table, progress=False)
    theirs = in_r(QUASI, table.to_csv(index=False))
    curve(ax, x, gam.predict(table, "link", interval=0.95), "quasipoisson")
    for sign in (-1.96, 0.0, 1.96):
        label = None if sign else "mgcv"
        ax.plot(x, theirs["fit"] + sign * theirs["se"], "k--", linewidth=1.0, label=label)
    ax.plot(x, truth, "r", linewidth=1.0, label="truth")
    ax.set(xlabel="x", ylabel="log mean", title="counts of variance 4 mean")
    ax.legend()


mcycle = in_r("write.csv(MASS::mcycle)")
location_scale(mcycle)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
quantiles(axes[0], mcycle)
survival(axes[1])
counts(axes[2])
figure.savefig(HERE / "responses.png", dpi=100)
