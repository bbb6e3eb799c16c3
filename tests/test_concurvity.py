"""Concurvity by pairs, against a loop of least squares and known truths."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, linear, s

QUICK = {"max_iterations": 15}


@pytest.fixture(scope="module")
def data():
    return made(200)


def made(number):
    rng = np.random.default_rng(1)
    df = pd.DataFrame({"x": rng.uniform(size=number), "free": rng.uniform(size=number)})
    df["bent"] = (df["x"] - 0.4) ** 2  # a function of x, of which x is none
    df["g"] = np.where(df["x"] > 0.5, "high", "low")
    df["y"] = np.sin(6 * df["x"]) + df["bent"] + df["free"] + 0.2 * rng.standard_normal(number)
    return df


@pytest.fixture(scope="module")
def gam(data):
    terms = s("x") + s("bent", k=8) + s("free", k=8) + linear("x") + factor("g")
    return gg.GAM(terms).fit(data, y="y", **QUICK)


def test_pairs_are_what_regression_on_one_effect_explains(gam):
    table = gam.concurvity(full=False)
    moments, X = gam.fitted.moments, gam.fitted.X
    for measure in ("observed", "estimate"):
        result = table.loc[measure]
        for one in gam.names:
            A = moments.features(one, X).T
            A = A - A.mean(axis=0)
            # of one size with the constant, beside which directions of next to no size are
            A = np.column_stack([np.ones(len(X)), A * np.sqrt(len(X)) / np.linalg.norm(A)])
            for other in gam.names:
                B = moments.features(other, X).T
                if measure == "observed":
                    B = B @ moments.mean[moments.block(other)]
                B = B - B.mean(axis=0)
                # directions of next to no size are left out, there as here
                left = B - A @ np.linalg.lstsq(A, B, rcond=1e-3)[0]
                expected = 1.0 if one == other else 1.0 - np.sum(left**2) / np.sum(B**2)
                assert result.loc[one, other] == pytest.approx(expected, abs=2e-4), (one, other)


def test_rows_explain_columns(gam):
    result = gam.concurvity(full=False).loc["estimate"]
    assert result.loc["s(x)", "s(bent)"] > 0.99  # bent is a function of x
    assert result.loc["s(bent)", "s(x)"] < 0.9  # and x none of it
    assert result.loc["s(x)", "linear(x)"] > 0.99
    assert result.loc["s(free)", "s(x)"] < 0.1
    assert result.loc["s(x)", "s(free)"] < 0.15
    np.testing.assert_array_equal(np.diag(result), 1.0)
    # with one other effect there is no difference between it and all others
    assert (gam.concurvity()["estimate"] >= result.where(result < 1.0).max() - 1e-6).all()


@pytest.mark.parametrize("full", [True, False])
def test_weights_count_rows(full):
    """Rows that count nothing are those that make x and z alike."""
    rng = np.random.default_rng(2)
    x, w = rng.uniform(size=200), rng.integers(0, 3, 200)
    z = np.where(w == 0, x, rng.uniform(size=200))
    table = pd.DataFrame({"x": x, "z": z, "w": w, "y": np.sin(6 * x) + z + rng.normal(size=200)})
    repeated = table.loc[table.index.repeat(w)].reset_index(drop=True)
    terms, fine = s("x", k=8) + s("z", k=8), {"tolerance": 1e-6}
    counted = gg.GAM(terms, weights="w").fit(table, y="y", **fine).concurvity(full)
    expected = gg.GAM(terms).fit(repeated, y="y", **fine).concurvity(full)
    np.testing.assert_allclose(counted, expected, atol=2e-3)
