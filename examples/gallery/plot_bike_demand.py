"""
Bike hires: two kinds of customers by the hour
==============================================

Hourly bike hires in Washington from May to September 2011. When do registered and casual customers
ride, on working days and on others?

The hour is cyclic, so that midnight meets midnight. Each kind of customer has a model of its own,
with the weather.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import gpflow_gam as gg

bikes = gg.datasets.bikeshare()
bikes = bikes[bikes["mnth"].isin(["May", "June", "July", "Aug", "Sept"])]
bikes["kind"] = bikes["workingday"].map({0: "day off", 1: "working day"})

hours = np.linspace(0, 24, 121)
figure, axes = plt.subplots(1, 2, figsize=(6.4, 3.4), layout="constrained")
for ax, customers in zip(axes, ("registered", "casual")):
    gam = gg.GAM(
        f"{customers} ~ s(hr, bs='cyclic', period=24, k=16, by=factor(kind)) + factor(kind)"
        " + s(temp) + s(hum)",
        family="negative_binomial",
    ).fit(bikes)
    print(customers, gam.summary().to_frame()[["edf", "share"]].round(2), sep="\n")
    for kind in ("working day", "day off"):
        new = pd.DataFrame({"hr": hours, "kind": kind, "temp": 0.7, "hum": 0.6})
        curve = gam.predict(new, interval=0.95)
        ax.plot(hours, curve["estimate"], label=kind)
        ax.fill_between(hours, curve["lower"], curve["upper"], alpha=0.25, linewidth=0)
    ax.set(xlabel="hour of the day", ylim=(0, None), xticks=range(0, 25, 6), title=customers)
axes[0].set(ylabel="expected hires an hour", ylim=(0, 640))
axes[0].legend(frameon=False)
plt.show()

# %%
# What to check
# -------------
#
# The share column says what matters: the hour on working days has three quarters of the variance
# for registered customers and three fifths for casual ones. Effective degrees of freedom near
# ``k`` would say that a curve could be rougher than it is allowed to be; here they are 13 or 14 of
# 16, so fit again with ``k=24``.
#
# What could go wrong
# -------------------
#
# Hours of a day resemble each other, so that a rainy day counts as 24 observations, and bands are
# too narrow. A curve holds for the weather that is given: temperature 0.7 and humidity 0.6 of
# their scales, a warm and dry hour, also at night.
