"""Complications that fade, beside R: ``python docs/figures/survival.py``; needs pammtools."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_gam as gg

CODE = """
suppressMessages({library(pammtools); library(survival); library(dplyr)})
data(tumor, package = "pammtools"); write.csv(as.data.frame(tumor), "tumor.csv", row.names = FALSE)
ped <- as_ped(tumor, Surv(days, status) ~ complications + age, cut = seq(0, 3000, by = 50))
m <- pamm(ped_status ~ s(tend) + complications + s(tend, by = as.ordered(complications)) + s(age),
  data = ped, method = "REML")
new <- ped |> make_newdata(tend = unique(tend), complications = unique(complications), age = c(60))
p <- new |> group_by(complications) |> add_surv_prob(m)
r <- coxph(Surv(days, status) ~ pspline(age, df = 2) + strata(complications), tumor)
rows <- with(p, data.frame(by = "pammtools", time = tend, complications, S = surv_prob))
for (c in c("no", "yes")) {
  f <- survfit(r, newdata = data.frame(age = 60, complications = c))
  rows <- rbind(rows, data.frame(by = "coxph", time = f$time, complications = c, S = f$surv))
}
write.csv(rows, "curves.csv", row.names = FALSE)
"""

with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["Rscript", "-e", CODE], cwd=folder, check=True, capture_output=True)
    tumor, theirs = (pd.read_csv(Path(folder) / f"{name}.csv") for name in ("tumor", "curves"))
tumor["complicated"] = (tumor["complications"] == "yes").astype(float)
parts = gg.Surv("days", "status").split(tumor, cuts=np.arange(50.0, 3001.0, 50.0))
gam = gg.GAM("Surv(start, days, status) ~ s(start, by=complicated) + s(age)", family="cox")
gam.fit(parts)

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 14})
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
ratio = gam.effects("s(start):complicated", np.linspace(0.0, 1500.0, 200), fun=np.exp)
left.fill_between(ratio["start"], ratio["lower"], ratio["upper"], alpha=0.25, linewidth=0.0)
left.plot(ratio["start"], ratio["estimate"])
left.axhline(1.0, color="0.6", linewidth=0.8)
left.set(yscale="log", xlabel="days after the operation", ylabel="hazard ratio of complications")
left.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
times = np.linspace(0.0, 2000.0, 101)
for i, (name, group) in enumerate(theirs.groupby("complications")):
    new = {"complicated": [float(name == "yes")], "age": [60.0]}
    curve = gam.survival(new, times)
    right.fill_between(times, curve["lower"], curve["upper"], color=f"C{i}", alpha=0.25)
    what = "with" if name == "yes" else "without"
    right.plot(times, curve["estimate"], color=f"C{i}", label=f"{what} complications")
    for by, style in (("coxph", "k-"), ("pammtools", "k--")):
        own = group[(group["by"] == by) & (group["time"] <= 2000.0)]
        drawn = "steps-post" if by == "coxph" else "default"
        label = by if i == 0 else None
        right.plot(own["time"], own["S"], style, drawstyle=drawn, linewidth=1.0, label=label)
right.set(xlabel="days after the operation", ylabel="survival probability", ylim=(0.0, 1.0))
right.legend(frameon=False, fontsize=11)
figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)
