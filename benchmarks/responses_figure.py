"""
Quantiles, proportional hazards, quasi-likelihoods and links: a picture, and R's answers beside it.

Left, quantiles of head acceleration in simulated motorcycle accidents (Silverman 1985; R's
MASS::mcycle). In the middle, survival with lung cancer by how well patients do (Loprinzi et al.
1994; survival::lung), beside ``coxph``. Right, counts of variance four times their mean under
``"quasipoisson"``, beside R's mgcv. Run it with ``python benchmarks/responses_figure.py``; it needs
``Rscript`` with MASS, mgcv and survival.
"""

from __future__ import annotations

import argparse
import io
import subprocess
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import gpflow_gam as gg
from gpflow_gam import families, linear, s

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TAUS = 0.1, 0.5, 0.9
COX = """
library(survival)
d <- na.omit(lung[c("time", "status", "age", "sex", "ph.ecog")])
m <- coxph(Surv(time, status == 2) ~ age + sex + ph.ecog, d)
new <- data.frame(age = 62, sex = 1, ph.ecog = c(0, 2))
f <- survfit(m, new, conf.type = "log-log")
message(paste(format(cbind(coef(m), sqrt(diag(vcov(m)))), digits = 3), collapse = " "))
write.csv(data.frame(time = f$time, f$surv))
"""
QUASI = """
library(mgcv)
d <- read.csv(file("stdin"))
m <- gam(y ~ s(x), quasipoisson, d, method = "REML")
p <- predict(m, d, se.fit = TRUE)
message(paste("mgcv: dispersion", format(m$sig2, digits = 4)))
write.csv(data.frame(fit = p$fit, se = p$se.fit))
"""


def in_r(code: str, given: pd.DataFrame | None = None) -> pd.DataFrame:
    """What R writes as a table."""
    text = None if given is None else given.to_csv(index=False)
    done = subprocess.run(
        ["Rscript", "-e", code], input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return pd.read_csv(io.StringIO(done.stdout))


def draw_quantiles(ax: plt.Axes) -> None:
    """Of the motorcycle data."""
    table = in_r("write.csv(MASS::mcycle)").rename(columns={"times": "x", "accel": "y"})
    grid = pd.DataFrame({"x": np.linspace(table["x"].min(), table["x"].max(), 200)})
    ax.plot(table["x"], table["y"], ".", color="0.6", ms=4)
    for tau in TAUS:
        gam = gg.GAM(
            {"quantile": s("x", k=25), "scale": s("x", k=10)}, families.Quantile(tau=tau)
        ).fit(table, "y", progress=False)
        band = gam.predict(grid, interval=0.95)
        (line,) = ax.plot(grid["x"], band["estimate"], label=f"{tau:g}")
        ax.fill_between(grid["x"], band["lower"], band["upper"], color=line.get_color(), alpha=0.2)
        below = np.mean(table["y"] < gam.predict(table))
        print(f"quantile {tau:g}: {below:.3f} of the responses are below it")
    ax.set(xlabel="time, ms", ylabel="acceleration, g", title="quantiles")
    ax.legend()


def draw_survival(ax: plt.Axes) -> None:
    """Of patients with lung cancer."""
    table = in_r("write.csv(survival::lung)").rename(columns={"ph.ecog": "ecog"})
    table["died"] = table["status"] == 2
    gam = gg.GAM(linear("age") + linear("sex") + linear("ecog"), "cox", missing="drop")
    gam.fit(table, gg.Surv("time", "died"), progress=False)
    print(gam.coefficients()[["term", "estimate", "se"]].round(3).to_string(index=False))
    theirs = in_r(COX)
    new = pd.DataFrame({"age": 62, "sex": 1, "ecog": [0, 2]})
    times = np.linspace(5.0, 1000.0, 200)
    found = gam.survival(new, times)
    for row, name in enumerate(("well", "in bed at times")):
        own = found[found["row"] == row]
        (line,) = ax.plot(times, own["estimate"], label=name)
        ax.fill_between(times, own["lower"], own["upper"], color=line.get_color(), alpha=0.2)
        ax.step(theirs["time"], theirs.iloc[:, 2 + row], "k", lw=0.8, where="post")
    ax.plot([], [], "k", lw=0.8, label="coxph")
    ax.set(xlabel="days", ylabel="survival", title="proportional hazards")
    ax.legend()


def draw_quasi(ax: plt.Axes) -> None:
    """Of counts that scatter more than Poisson's."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(size=300))
    truth = 1.5 + np.sin(6.0 * x)
    table = pd.DataFrame({"x": x, "y": rng.negative_binomial(np.exp(truth) / 3.0, 0.25)})
    gam = gg.GAM(s("x"), "quasipoisson").fit(table, "y", progress=False)
    print(f"ours: dispersion {gam.summary().parameters['dispersion']:.3f}")
    band = gam.predict(table, "link", interval=0.95)
    theirs = in_r(QUASI, table)
    (line,) = ax.plot(x, band["estimate"], label="quasipoisson")
    ax.fill_between(x, band["lower"], band["upper"], color=line.get_color(), alpha=0.2)
    for sign in (-1.96, 0.0, 1.96):
        label = "mgcv" if sign == 0.0 else None
        ax.plot(x, theirs["fit"] + sign * theirs["se"], "k--", lw=0.8, label=label)
    ax.plot(x, truth, "r", lw=0.8, label="truth")
    ax.set(xlabel="x", ylabel="log mean", title="counts of variance 4 mean")
    ax.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/responses.png"))
    arguments = parser.parse_args()
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for draw, ax in zip((draw_quantiles, draw_survival, draw_quasi), axes):
        draw(ax)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
