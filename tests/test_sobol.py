"""Sobol indices of GAMs on tables, and their pictures."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, s, ti
from gpflow_gam.gam.plotting import draw_cumulative_sobol, draw_sobol
from gpflow_gam.sensitivity import functional_anova


def table(n: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"x": rng.uniform(size=n), "z": rng.uniform(size=n)})
    data["g"] = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    rho = np.sin(6.0 * data["x"]) + 8.0 * (data["x"] - 0.5) * (data["z"] - 0.5)
    data["count"] = rng.poisson(np.exp(rho + 1.0 + 0.7 * (data["g"] == "b")))
    return data


@pytest.fixture(scope="module")
def gam() -> gg.GAM:
    terms = s("x", k=7) + s("z", k=5) + ti("x", "z", k=12) + factor("g")
    return gg.GAM(terms, family="poisson").fit(table(), y="count", max_iterations=40)


def test_indices_of_a_gam_are_those_of_its_model(gam):
    """The components are centred under the columns' own distributions in the data."""
    own = gam.sobol(unconditional=False, bootstrap=False, seed=4)
    names = {gam.fitted.spec.encoder.index(c, k): c for c, k in gam.fitted.spec.encoder.columns}
    # the factor's measure is on levels, the others' are nodes: as in the kernels
    other = functional_anova(gam.model, names=names).sobol(seed=4)
    assert list(own["effect"]) == list(other["effect"])
    np.testing.assert_allclose(own["estimate"], other["estimate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(own["upper"], other["upper"], rtol=1e-6, atol=1e-9)
    snapshot = functional_anova(gam.posterior, names=names).sobol(seed=4)
    np.testing.assert_allclose(snapshot["estimate"], other["estimate"], rtol=1e-9, atol=1e-12)
    first = own[own["kind"] == "first"].set_index("effect")["estimate"]
    assert first.idxmax() == "x"
    pair = own[own["kind"] == "interaction"].set_index("effect").loc["x:z"]
    assert pair["lower"] > 0.1


@pytest.mark.slow
def test_uncertain_hyperparameters_widen_intervals(gam):
    known, uncertain = gam.sobol(unconditional=False), gam.sobol()
    widths = [(t["upper"] - t["lower"]).to_numpy() for t in (known, uncertain)]
    assert widths[1].sum() > widths[0].sum()
    np.testing.assert_allclose(uncertain["estimate"], known["estimate"], atol=0.1)


def test_indices_of_the_expected_response(gam):
    """Against the definition, on rows of predictions: E over the levels' means of exp(rho)."""
    result = gam.sobol(scale="response", unconditional=False, bootstrap=False, num_samples=64)
    assert set(result["kind"]) == {"first", "interaction", "total"}
    data = table()
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({c: rng.choice(data[c], 3000) for c in ("x", "z")})
    levels = data["g"].value_counts(normalize=True)
    draws = np.stack(
        [gam.sample(rows.iloc[:400].assign(g=level), 200, seed=0) for level in levels.index], axis=2
    )  # of the same functions, [S, N, levels]
    p = levels.to_numpy()
    total = (draws**2 @ p).mean(axis=1) - (draws @ p).mean(axis=1) ** 2
    means = draws.mean(axis=1)
    index = (means**2 @ p - (means @ p) ** 2) / total
    first = result[result["kind"] == "first"].set_index("effect").loc["g"]
    assert first["estimate"] == pytest.approx(index.mean(), abs=0.03)
    whole = result[result["kind"] == "total"].set_index("effect")["estimate"]
    assert whole["g"] > first["estimate"] + 0.02  # past the link it has a part in interactions


def test_shares_over_the_data(gam):
    result = gam.sobol(inputs="data", unconditional=False)
    parts = {kind: t.set_index("effect")["estimate"] for kind, t in result.groupby("kind")}
    assert list(parts["share"].index) == list(gam.names)
    assert parts["share"].sum() == pytest.approx(1.0, abs=1e-9)
    pd.testing.assert_series_equal(
        parts["structural"] + parts["correlative"], parts["share"], check_names=False
    )
    contributions = gam.predict(table(), type="terms").iloc[:, 1:]
    plug_in = contributions.cov().sum() / contributions.cov().to_numpy().sum()
    np.testing.assert_allclose(parts["share"], plug_in[list(gam.names)], atol=0.05)


@pytest.mark.parametrize("inputs", ["independent", "data"])
def test_a_predictor_that_is_constant_has_no_indices(inputs):
    data = table()
    data["y"] = data["count"] * (np.random.default_rng(0).uniform(size=len(data)) < 0.7)
    gam = gg.GAM(s("x", k=5) + s("z", k=4), family="zero_inflated_poisson").fit(data, y="y")
    result = gam.sobol(unconditional=False, inputs=inputs)
    assert set(result["predictor"]) == {"mean"}
    parts = result[result["kind"].isin(["first", "interaction", "share"])]
    assert parts["estimate"].sum() == pytest.approx(1.0)
    # given the posterior's mean, the variances are those of effects over the rows
    effects = gam.predict(data, "terms")
    first = result[result["kind"] == {"independent": "first", "data": "structural"}[inputs]]
    for name in "xz":
        effect = np.reshape(np.asarray(effects[f"s({name})"]), (len(data), -1))[:, 0]
        own = first[first["effect"].isin([name, f"s({name})"])]["variance"].item()
        assert 0.8 * effect.var() < own < 1.4 * effect.var() + 0.02


def test_bad_arguments_are_named(gam):
    for arguments, message in (
        ({"scale": "log"}, "scale must be 'link' or 'response'; got 'log'"),
        ({"inputs": "both"}, "inputs must be 'independent' or 'data'"),
        ({"inputs": "data", "scale": "response"}, "needs inputs='independent'"),
        ({"level": 1.0}, "level must be a probability"),
        ({"measures": {"w": UNIFORM}}, "no term reads a column 'w'; there are g, x, z"),
        ({"measures": {"g": UNIFORM}}, "column 'g' holds levels"),
        ({"measures": {"x": "uniform"}}, "column 'x' needs a measure of one column"),
        ({"measures": {"x": UNIFORM}, "inputs": "data"}, "measures describe independent inputs"),
        ({"num_samples": 1.5}, "num_samples must be a whole number"),
        ({"scale": "response", "num_points": 1000}, "num_points must be a power of two"),
    ):
        with pytest.raises(ValueError, match=message):
            gam.sobol(unconditional=False, **arguments)


def test_a_column_read_in_two_ways_is_no_independent_input():
    data = table()
    data["g"] = data["g"].map({"a": 0, "b": 1, "c": 2})
    twice = gg.GAM(s("x", k=4) + s("g", k=3) + factor("g"), family="gaussian")
    twice.fit(data, y="count", max_iterations=3)
    with pytest.raises(ValueError, match="'g' is read both as numbers and as levels"):
        twice.sobol(unconditional=False)
    assert len(twice.sobol(inputs="data", unconditional=False)) == 9


# --- what is known of the inputs' distribution ---------------------------------------------------

UNIFORM = gg.measures.Uniform(0.0, 1.0)


@pytest.fixture(scope="module")
def lines() -> gg.GAM:
    """Two slopes of one, known all but exactly, on columns of which 300 values are known."""
    data = sample_of_lines(np.random.default_rng(0))
    return gg.GAM(gg.linear("a") + gg.linear("b")).fit(data, y="y")


def sample_of_lines(rng: np.random.Generator, between: float = 0.0) -> pd.DataFrame:
    a, noise = rng.uniform(size=(2, 300))
    data = pd.DataFrame({"a": a, "b": between * a + (1.0 - between) * noise})
    data["y"] = data["a"] + data["b"] + 1e-3 * rng.standard_normal(300)
    return data


def first_of_a(result: pd.DataFrame) -> pd.Series:
    return result[(result["kind"] == "first") & (result["effect"] == "a")].iloc[0]


def test_measures_that_are_given_are_those_of_the_columns(lines):
    """Var[a] / (Var[a] + Var[b]) with a uniform on (0, 1) and b on (0, 2)."""
    measures = {"a": UNIFORM, "b": gg.measures.Uniform(0.0, 2.0)}
    for scale in ("link", "response"):
        row = first_of_a(lines.sobol(measures=measures, scale=scale, unconditional=False))
        assert row["estimate"] == pytest.approx(0.2, abs=2e-3)
        assert row["upper"] - row["lower"] < 0.01


APART = 0.25 * np.sqrt(2.0 * (1.8 - 1.0) / 300)
"""Sd of the share 1/2 by the delta method: of log Var each column has (kurtosis - 1) / N."""


# of 256 draws of the columns' distribution, and of 32, where the width itself varies by 17 %
@pytest.mark.parametrize(("scale", "within"), [("link", 0.25), ("response", 0.4)])
def test_intervals_allow_for_the_columns_being_a_sample(lines, scale, within):
    known = first_of_a(lines.sobol(unconditional=False, bootstrap=False, scale=scale))
    row = first_of_a(lines.sobol(unconditional=False, scale=scale))
    assert row["upper"] - row["lower"] == pytest.approx(2.0 * 1.96 * APART, rel=within)
    assert row["lower"] < 0.5 < row["upper"]
    assert known["upper"] - known["lower"] < 0.2 * APART


def test_shares_over_data_allow_for_the_rows_being_a_sample(lines):
    """What two columns have in common by chance is not known either."""
    known, result = (
        lines.sobol(inputs="data", unconditional=False, bootstrap=b).set_index(["kind", "effect"])
        for b in (False, True)
    )
    both = np.hypot(APART, 0.5 / np.sqrt(300))  # d(Va / Vrho) has -dCov / (2 Va) beside
    for kind, sd in (("share", APART), ("structural", both)):
        row, alone = (t.loc[(kind, "linear(a)")] for t in (result, known))
        assert row["upper"] - row["lower"] == pytest.approx(2.0 * 1.96 * sd, rel=0.25)
        assert alone["upper"] - alone["lower"] < 0.2 * sd


def test_columns_are_uncertain_together():
    """Of columns that are nearly the same one, rows vary the variances in proportion."""
    data = sample_of_lines(np.random.default_rng(1), between=0.97)
    gam = gg.GAM(gg.linear("a") + gg.linear("b")).fit(data, y="y")
    fixed = {c: gam.fitted.encode(data)[:, i] for i, c in enumerate("ab")}
    assert np.corrcoef(fixed["a"], fixed["b"])[0, 1] > 0.99
    row = first_of_a(gam.sobol(unconditional=False))
    known = first_of_a(gam.sobol(unconditional=False, bootstrap=False))
    own = known["upper"] - known["lower"]
    assert row["upper"] - row["lower"] < own + 0.3 * 2.0 * 1.96 * APART


# --- pictures ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bars_are_the_indices(gam):
    result = gam.sobol(unconditional=False)
    figure = draw_sobol(result)
    (ax,) = figure.axes
    total = result[result["kind"] == "total"].sort_values("estimate", ascending=False)
    bars = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(bars[3:6], total["estimate"])
    assert [t.get_text() for t in ax.get_yticklabels()] == [*total["effect"], "x:z"]
    assert bars[-1] == pytest.approx(result.set_index("effect").loc["x:z", "estimate"])
    lower, upper = ax.collections[1].get_segments()[0][:, 0]
    assert (lower, upper) == pytest.approx(tuple(total.iloc[0][["lower", "upper"]]))
    figure = draw_cumulative_sobol(result)
    heights = figure.axes[0].lines[0].get_ydata()
    assert heights[0] == 0.0
    assert heights[-1] == pytest.approx(1.0)
    assert np.all(np.diff(heights, 2) <= 1e-12)  # the greatest first
    _, ax = plt.subplots()
    assert draw_sobol(gam.sobol(inputs="data", unconditional=False), ax=ax) is ax.figure
    plt.close("all")
    with pytest.raises(ValueError, match="no first-order indices"):
        draw_cumulative_sobol(gam.sobol(inputs="data", unconditional=False))
    with pytest.raises(ValueError, match="table must be"):
        draw_sobol(result[["effect"]])
