"""
Sensitivity analysis: Sobol indices from 128 runs
=================================================

A simulator takes three inputs, and each run is dear. Which inputs matter, and do they interact?
The Ishigami function stands for the simulator, as its indices are known: ``sin(x1) + 7 sin(x2)^2 +
0.1 x3^4 sin(x1)``, inputs uniform in [-pi, pi].

An additive Gaussian process of main effects and pairs is fitted to 128 runs. Its Sobol indices are
computed from the posterior, with credible intervals.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import qmc

import gpflow_gam as gg
from gpflow_gam.gam.plotting import draw_sobol

x = qmc.scale(qmc.Sobol(3, seed=0).random(128), -np.pi, np.pi)
runs = pd.DataFrame(x, columns=["x1", "x2", "x3"])
runs["y"] = np.sin(runs["x1"]) * (1 + 0.1 * runs["x3"] ** 4) + 7 * np.sin(runs["x2"]) ** 2

gam = gg.GAM("y ~ s(x1) + s(x2) + s(x3) + ti(x1, x2) + ti(x1, x3) + ti(x2, x3)").fit(runs)
uniform = {name: gg.measures.Uniform(-np.pi, np.pi) for name in ("x1", "x2", "x3")}
table = gam.sobol(measures=uniform, num_samples=500, unconditional=False)
first = table[table["kind"].isin(["first", "interaction"])]
print(first[["effect", "estimate", "lower", "upper"]].round(3).to_string(index=False))

# %%
# Bars are estimates with 95 % credible intervals, crosses the known values.

figure, ax = plt.subplots(figsize=(5.8, 3.6), layout="constrained")
draw_sobol(table, ax=ax)
known = {"x1": 0.314, "x2": 0.442, "x3": 0.0, "x1:x3": 0.244, "x1:x2": 0.0, "x2:x3": 0.0}
for place, label in zip(ax.get_yticks(), ax.get_yticklabels()):
    (cross,) = ax.plot(known[label.get_text()], place, "x", color="C3", markersize=8, zorder=5)
cross.set_label("known value")
ax.legend(loc="lower right", frameon=False, fontsize="small")
ax.set_xlabel("share of the output's variance")
plt.show()

# %%
# What to check
# -------------
#
# ``gam.summary()`` must explain nearly all of the deviance: a simulator has no noise, and what the
# model leaves out is in no index. Predict some runs that were not used. Add runs until intervals
# are as narrow as the decision needs.
#
# What could go wrong
# -------------------
#
# Intervals hold given the model, and with ``unconditional=False``, which takes half the time,
# given its hyperparameters: without the term ``ti(x1, x3)`` its quarter of the variance would be
# called noise, and nothing would warn but the deviance. Indices depend on how inputs are
# distributed, which ``measures`` says. Inputs that depend on each other need ``inputs="data"``.
