"""Partial dependence and averages over rows, against predictions, closed forms and known truths."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import problems
import pytest
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, ti
from gpflow_gam.gam.effects.posterior import joint_moments

QUICK = {"max_iterations": 12}
GRID = [0.1, 0.5, 0.9]


DATA = problems.table(90, 11)


TERMS = s("x", k=8) + linear("z") + factor("g")


@pytest.fixture(scope="module")
def gaussian():
    return gg.GAM(TERMS + ti("x", "z", k=6)).fit(DATA, y="y", **QUICK)


@pytest.fixture(scope="module")
def poisson():
    return gg.GAM(TERMS, family="poisson", offset="log_e", weights="w").fit(DATA, y="count")


@pytest.fixture(scope="module")
def softmax():
    return gg.GAM(s("x", k=6) + factor("g"), family="categorical").fit(DATA, y="kind", **QUICK)


# --- estimates -----------------------------------------------------------------------------------


def test_partial_dependence_is_the_mean_prediction(gaussian, poisson):
    for gam, weights in ((gaussian, np.ones(90)), (poisson, DATA["w"])):
        result = gam.partial_dependence("x", GRID, num_samples=64)
        expected = [np.average(gam.predict(DATA.assign(x=v)), weights=weights) for v in GRID]
        np.testing.assert_allclose(result["estimate"], expected, rtol=1e-6)
        assert list(result["x"]) == GRID
        few = DATA.head(20).drop(columns=["x", "w"])
        result = gam.partial_dependence("x", GRID, data=few, num_samples=64)
        expected = [gam.predict(DATA.head(20).assign(x=v)).mean() for v in GRID]
        np.testing.assert_allclose(result["estimate"], expected, rtol=1e-6)


def test_averages_are_over_all_rows_of_a_fit_and_its_rare_levels():
    """Other columns repeat themselves with the rows, which even steps would be in step with."""
    rng, n = np.random.default_rng(3), 9600
    data = pd.DataFrame({"hour": np.arange(n) % 24.0, "w": rng.uniform(0.5, 2.0, n)})
    data["site"] = np.where(np.arange(n) % 1920 == 7, "rare", rng.choice(["a", "b"], n))
    f = np.sin(data["hour"] / 4.0) + np.where(data["site"] == "rare", 3.0, 0.0)
    data["y"], data["count"] = f + 0.3 * rng.normal(size=n), rng.poisson(np.exp(0.3 * f))
    for y, options in (("y", {}), ("count", {"family": "poisson", "weights": "w"})):
        gam = gg.GAM("y ~ s(hour, k=8) + site", **options).fit(data, y=y)
        data["mu"] = gam.predict(data)

        def average(rows, weights=data["w"] if options else None):
            return np.average(rows["mu"], weights=None if weights is None else weights[rows.index])

        result = gam.avg_predictions(num_samples=64)
        np.testing.assert_allclose(result["estimate"], average(data), rtol=1e-9)
        result = gam.avg_predictions(by="site", num_samples=512)
        assert list(result["site"]) == ["a", "b", "rare"]
        expected = [average(rows) for _, rows in data.groupby("site")]
        np.testing.assert_allclose(result["estimate"], expected, rtol=1e-9)
        every = gam.avg_predictions(data, by="site", num_samples=512)
        for column in ("lower", "upper"):
            away = result[column] - every[column]
            np.testing.assert_array_less(np.abs(away), 0.5 * every["se"])
        changed = gam.predict(data.assign(site="a"))
        change = gam.avg_comparisons({"site": ("rare", "a")}, num_samples=64)["estimate"][0]
        rare = gam.predict(data.assign(site="rare"))
        weights = data["w"] if options else None
        assert change == pytest.approx(np.average(changed - rare, weights=weights), rel=1e-9)
        terms = gam.predict(data, "terms")[["s(hour)", "factor(site)"]]
        spread = np.cov(terms.T, aweights=weights).diagonal()
        shares = gam.summary().table["share"]
        np.testing.assert_allclose(shares, spread / spread.sum(), rtol=0.1)


@pytest.mark.slow
def test_every_one_of_many_groups_is_there_in_many_settings():
    rng, n = np.random.default_rng(4), 18_000
    data = pd.DataFrame({"x": rng.uniform(size=n), "id": rng.integers(0, 300, n).astype(str)})
    data["y"] = np.sin(6.0 * data["x"]) + 0.3 * rng.normal(size=n)
    gam = gg.GAM("y ~ s(x) + (1 | id)").fit(data)
    at = np.linspace(0.0, 1.0, 60)
    result = gam.avg_predictions(by="id", at={"x": at}, num_samples=32)
    expected = gam.predict(pd.DataFrame({"x": 0.0, "id": result["id"][result["x"] == 0.0]}))
    assert len(expected) == 300
    np.testing.assert_allclose(result["estimate"][result["x"] == 0.0], expected, rtol=1e-9)


def test_classes_have_averages_each(softmax):
    result = softmax.avg_predictions(at={"g": ["a", "c"]}, num_samples=64)
    for label, own in result.groupby("class"):
        expected = [
            softmax.predict(DATA.assign(g=v), interval=0.9)[label]["estimate"].mean() for v in "ac"
        ]
        np.testing.assert_allclose(own["estimate"], expected, rtol=1e-6)
    np.testing.assert_allclose(result.groupby("g")["estimate"].sum(), 1.0, atol=1e-9)
    link = softmax.avg_predictions(scale="link", num_samples=64)
    assert list(link["predictor"]) == ["u", "v", "w"]
    np.testing.assert_allclose(link["estimate"], softmax.predict(DATA, "link").mean(axis=0))
    curve = softmax.partial_dependence("x", num_points=5, num_samples=64)
    assert len(curve) == 15


def test_groups_and_settings(poisson):
    result = poisson.avg_predictions(by="g", at={"x": [0.2, 0.7], "log_e": 0.0}, num_samples=64)
    assert list(result.columns[:3]) == ["x", "log_e", "g"]
    rows = DATA.assign(log_e=0.0)
    for _, row in result.iterrows():
        own = rows.assign(x=row["x"])[rows["g"] == row["g"]]
        expected = np.average(poisson.predict(own), weights=own["w"])
        assert row["estimate"] == pytest.approx(expected, rel=1e-6)
    # any column of the data makes groups, and rows that lack their value are one
    half = DATA.assign(half=np.where(np.arange(90) < 45, "one", "two"))
    result = poisson.avg_predictions(half, by=["half", "g"], num_samples=64)
    assert len(result) == 6
    blocks = poisson.avg_predictions(
        [half.head(30), half.tail(60)], by=["half", "g"], num_samples=64
    )
    pd.testing.assert_frame_equal(blocks, result)


# --- their uncertainty ---------------------------------------------------------------------------


@pytest.mark.parametrize("unconditional", [False, True])
def test_deviations_are_those_of_the_mean_of_functions(gaussian, unconditional):
    """Of a mean over rows, a'Ca with the covariance of all components at all rows."""
    few = DATA.head(25)
    result = gaussian.partial_dependence(
        "x", GRID, data=few, num_samples=20_000, unconditional=unconditional, scale="link"
    )
    for value, se in zip(result["x"], result["se"]):
        X = gaussian.fitted.encode(few.assign(x=value))
        blocks = [(name, X) for name in gaussian.fitted.spec.names]
        _, cov = joint_moments(gaussian.fitted, blocks, unconditional)
        assert se == pytest.approx(np.sqrt(cov[0].sum()) / 25, rel=0.03)


def test_an_average_of_one_row_is_its_prediction():
    """Inside the data and far outside, where functions are what their priors are."""
    gam = gg.GAM(s("x", k=8) + random_effect("g"), family="poisson").fit(DATA, y="count", **QUICK)
    rows = pd.DataFrame({"x": [0.4, 1.2], "g": ["a", "new"]})
    for i in range(2):
        row = rows.iloc[[i]]
        options = {"unconditional": False, "level": 0.9, "num_samples": 20_000}
        result = gam.avg_predictions(row, **options)
        expected = gam.predict(row, interval=0.9, unconditional=False)
        np.testing.assert_allclose(
            result[["lower", "upper"]], expected[["lower", "upper"]], rtol=0.04
        )
        assert result["estimate"].item() == pytest.approx(expected["estimate"].item())


def test_each_parameter_has_the_uncertainty_of_its_own_terms():
    """At a row far outside, where a term of one parameter leaves nothing open in the other."""
    gam = gg.GAM({"mean": s("x", k=6), "scale": s("z", k=6)}).fit(DATA, y="y", **QUICK)
    options = {"unconditional": False, "num_samples": 20_000, "scale": "link"}
    for row in ({"x": [1.2], "z": [0.5]}, {"x": [0.5], "z": [3.5]}):
        result = gam.avg_predictions(pd.DataFrame(row), **options)
        mean, se = gam.predict(pd.DataFrame(row), "link", se=True, unconditional=False)
        np.testing.assert_allclose(result["estimate"], mean[0], rtol=1e-6)
        np.testing.assert_allclose(result["se"], se[0], rtol=0.03)
    again = gam.update(problems.table(30))
    assert again.fitted.number == 120
    part = gam.predict(DATA[["z"]], "terms", terms="scale:s(z)", intercept=False)
    assert list(part.columns) == [("scale:s(z)", "log scale")]


def test_the_band_of_a_curve_holds_whole_curves(gaussian):
    result = gaussian.partial_dependence("x", num_points=6, level=0.9)
    assert len(result) == 6
    assert (result["lower_simultaneous"] < result["lower"]).all()
    assert (result["upper_simultaneous"] > result["upper"]).all()
    again = gaussian.partial_dependence("x", num_points=6, level=0.9)
    pd.testing.assert_frame_equal(result, again)
    other = gaussian.partial_dependence("x", num_points=6, level=0.9, seed=5)
    assert (other["lower"] != result["lower"]).all()


# --- comparisons ---------------------------------------------------------------------------------


def test_a_ratio_behind_a_log_link_is_the_slopes_exponential(poisson):
    result = poisson.avg_comparisons(
        {"z": 2.0}, comparison="ratio", num_samples=20_000, unconditional=False
    )
    slopes = poisson.coefficients(unconditional=False).query("term == 'linear(z)'")
    slope = slopes.iloc[0]
    ends = np.exp(2.0 * slope[["lower", "upper"]].astype(float))
    np.testing.assert_allclose(result.loc[0, ["lower", "upper"]].astype(float), ends, rtol=0.03)
    assert result.loc[0, "contrast"] == "(z + 2) / z"
    assert result.loc[0, "estimate"] == pytest.approx(np.exp(2.0 * slope["estimate"]), rel=0.1)


def test_levels_are_compared_with_the_first(gaussian):
    result = gaussian.avg_comparisons("g")
    assert list(result["contrast"]) == ["b - a", "c - a"]
    means = [gaussian.predict(DATA.assign(g=v)).mean() for v in "abc"]
    np.testing.assert_allclose(result["estimate"], [means[1] - means[0], means[2] - means[0]])
    # in a sum of terms it is the coefficients' difference, with their covariance
    own = gaussian.coefficients(reference="a").query("term == 'factor(g)'").iloc[1:]
    np.testing.assert_allclose(result["se"], own["se"].astype(float), rtol=0.1)
    pair = gaussian.avg_comparisons({"g": ("c", "b"), "x": (0.2, 0.8)}, by="g")
    assert list(pair["contrast"].unique()) == ["b - c", "0.8 - 0.2"]
    assert len(pair) == 6


def test_a_column_of_truth_values_has_two_values_to_compare(tmp_path):
    """Also where a term takes it for a number: nothing is more than true."""
    data = DATA.assign(flag=DATA["z"] > 0.0)
    gam = gg.GAM(linear("flag") + s("x", k=5), "poisson").fit(data, "count", **QUICK)
    both = [gam.predict(data.assign(flag=v)).mean() for v in (False, True)]
    bare = problems.reloaded(gam, tmp_path / "bare.gam", data=False)
    for own, rows in ((gam, None), (gam, data), (bare, data)):
        result = own.avg_comparisons("flag", rows, num_samples=16)
        np.testing.assert_allclose(result["estimate"], both[1] - both[0], rtol=1e-6)
        assert list(result["contrast"]) == ["1.0 - 0.0"]


def test_rows_are_grouped_and_counted_by_what_their_data_say(poisson):
    """Also by a column that is set, whether its values are of the fit or of data."""
    for ask in ({"columns": "g"}, {"columns": {"x": (0.2, 0.8)}, "by": ["g", "x"]}):
        ask = {"by": "g", "num_samples": 16, **ask}
        own, given = poisson.avg_comparisons(**ask), poisson.avg_comparisons(data=DATA, **ask)
        pd.testing.assert_frame_equal(given, own)
    result = poisson.avg_predictions(DATA, at={"g": ["a", "b"]}, by="g", num_samples=16)
    assert list(result.columns[:2]) == ["g", "g (column)"]
    assert [*zip(result["g"], result["g (column)"])] == [(a, b) for a in "ab" for b in "abc"]
    for row in result.itertuples(index=False):
        own = DATA[DATA["g"] == row[1]].assign(g=row.g)
        expected = np.average(poisson.predict(own), weights=own["w"])
        assert row.estimate == pytest.approx(expected, rel=1e-6)
    result = poisson.avg_predictions(DATA, at={"x": 0.2}, weights="x", num_samples=16)
    expected = np.average(poisson.predict(DATA.assign(x=0.2)), weights=DATA["x"])
    assert result["estimate"].item() == pytest.approx(expected, rel=1e-9)
    named = DATA.assign(contrast=DATA["g"])
    result = poisson.avg_comparisons("z", named, by="contrast", num_samples=16)
    assert list(result["contrast (column)"]) == ["a", "b", "c"]
    # a hole in what is set is none in what is read of a row
    assert len(poisson.avg_comparisons("g", DATA.assign(g=None), num_samples=16)) == 2


# --- totals --------------------------------------------------------------------------------------


def surveyed(seed, n=150):
    """Catches at random places in three years, and a grid of cells with the rate in each."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=2)

    def rate(lon, lat, year):
        shore = np.exp(-8.0 * ((lon - 0.3) ** 2 + (lat - 0.6) ** 2))
        return np.exp(
            0.3 * year + 1.5 * shore + 0.6 * np.sin(3.0 * lon + a) * np.cos(3.0 * lat + b)
        )

    table = pd.DataFrame(rng.uniform(size=(n, 2)), columns=["lon", "lat"])
    table["year"] = rng.choice(3, n)
    table["caught"] = rng.poisson(rate(table["lon"], table["lat"], table["year"]))
    side = (np.arange(12) + 0.5) / 12
    cells = [(lon, lat, year) for year in range(3) for lon in side for lat in side]
    grid = pd.DataFrame(cells, columns=["lon", "lat", "year"])
    grid["area"] = np.where(grid["lon"] < 0.5, 2.0, 1.0)
    grid["true"] = rate(grid["lon"], grid["lat"], grid["year"]) * grid["area"]
    return table, grid


SURVEY = "caught ~ s(lon, lat, k=30) + factor(year)"


def test_totals_are_sums_of_joint_draws():
    table, grid = surveyed(0)
    gam = gg.GAM(SURVEY, "poisson").fit(table, **QUICK)
    options = {"by": "year", "total": True, "num_samples": 20_000, "unconditional": False}
    result = gam.avg_predictions(grid, weights="area", **options)
    assert list(result["year"]) == [0, 1, 2]
    each = gam.predict(grid) * grid["area"]
    draws = gam.sample(grid, 4000, unconditional=False) * grid["area"].array
    for (_, row), (_, cells) in zip(result.iterrows(), grid.groupby("year")):
        sums = draws[:, cells.index].sum(axis=1)
        assert row["estimate"] == pytest.approx(each[cells.index].sum())
        assert row["se"] == pytest.approx(sums.std(), rel=0.05)
        ends = np.quantile(sums, [0.025, 0.975])
        np.testing.assert_allclose(row[["lower", "upper"]].astype(float), ends, rtol=0.02)
    # a mean by area is the total over the area, and without weights each cell counts once
    mean = gam.avg_predictions(grid, by="year", weights="area", num_samples=64)["estimate"]
    areas = grid.groupby("year")["area"].sum().array
    np.testing.assert_allclose(mean * areas, result["estimate"])
    plain = gam.avg_predictions(grid, total=True, num_samples=64)["estimate"].item()
    assert plain == pytest.approx(gam.predict(grid).sum())


def test_curves_and_levels_are_drawn(softmax, gaussian):
    table = softmax.partial_dependence("x", num_points=5, num_samples=64)
    (ax,) = gg.plotting.draw_partial_dependence(table).axes
    assert [line.get_label() for line in ax.lines] == ["u", "v", "w"]
    np.testing.assert_array_equal(
        ax.lines[1].get_ydata(), table.query("`class` == 'v'")["estimate"]
    )
    table = gaussian.partial_dependence("g", num_samples=64)
    (ax,) = gg.plotting.draw_partial_dependence(table).axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]
    _, ax = plt.subplots()
    response = gaussian.effects("s(x)", scale="response", num_points=5)
    assert gg.plotting.draw_partial_dependence(response, ax=ax) is ax.figure
    bands = {b.get_gid(): b.get_paths()[0].get_extents() for b in ax.collections}
    assert bands["simultaneous"].y1 == pytest.approx(response["upper_simultaneous"].max())
    assert bands["pointwise"].y0 == pytest.approx(response["lower"].min())
    plt.close("all")
    two = gaussian.effects("ti(x,z)", num_points=3)
    for wrong in (gaussian.effects("s(x)").drop(columns="se"), two):
        with pytest.raises(ValueError, match="table must be a partial dependence on one column"):
            gg.plotting.draw_partial_dependence(wrong)


# --- files and errors ----------------------------------------------------------------------------


def test_a_gam_without_its_data_averages_over_others(poisson, tmp_path):
    again = problems.reloaded(poisson, tmp_path / "bare.gam", data=False)
    pd.testing.assert_frame_equal(
        again.partial_dependence("x", num_points=3, data=DATA, num_samples=64),
        poisson.partial_dependence("x", num_points=3, data=DATA, num_samples=64),
    )
    with pytest.raises(ValueError, match="without its data"):
        again.partial_dependence("x")


TWO = {"x": [0.1, 0.2], "z": [0.0, 0.0], "g": ["a", "a"]}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda g: g.partial_dependence("nope"), "no term reads a column 'nope'; there are 'x'"),
        (lambda g: g.partial_dependence([]), "columns must name one column or several"),
        (lambda g: g.partial_dependence(["x", "x"]), "several different ones"),
        (lambda g: g.partial_dependence("x", []), "grid has no points"),
        (lambda g: g.partial_dependence(["x", "z"], [1, 2]), "grid must be a dict or DataFrame"),
        (lambda g: g.partial_dependence("x", ["low"]), "column 'x' holds text"),
        (lambda g: g.partial_dependence("g", ["d"]), "has the level 'd'.*never seen"),
        (lambda g: g.partial_dependence("x", [np.nan]), "cannot be set to a missing value"),
        (lambda g: g.partial_dependence("x", scale="log"), "scale must be"),
        (lambda g: g.partial_dependence("x", level=95), "level must be a probability"),
        (lambda g: g.partial_dependence("x", num_samples=1), "num_samples must be a whole"),
        (lambda g: g.partial_dependence("x", np.linspace(0, 1, 20_000)), "90 rows .* 20000 sett"),
        (lambda g: g.avg_predictions(at={"x": []}), "at: column 'x' has no values"),
        (lambda g: g.avg_predictions(by="nope"), "by: no term reads .* Pass data="),
        (lambda g: g.avg_predictions(pd.DataFrame({"x": [0.5]})), "no column 'z'; it has 'x'"),
        (lambda g: g.avg_predictions(total=True), "of the rows of data, which must be given"),
        (lambda g: g.avg_predictions({"x": [0.5]}, weights="area"), "no column 'area'"),
        (lambda g: g.avg_predictions(DATA, weights=1), "weights=1: columns .* have names"),
        (lambda g: g.avg_comparisons({"g": 1.0}), "'g' holds levels, which have no steps"),
        (lambda g: g.avg_comparisons({"x": (0.5,)}), "'x' needs two values"),
        (lambda g: g.avg_comparisons({"x": 0.0}), "a step of 'x' must be a number but zero"),
        (lambda g: g.avg_comparisons([]), "columns must name at least one"),
        (lambda g: g.avg_comparisons("x", comparison="odds"), "comparison must be 'diff"),
        (lambda g: g.avg_slopes("g"), "columns: 'g' holds levels, which have no slope"),
        (lambda g: g.avg_slopes("q"), "no term reads a column 'q'"),
        (lambda g: g.slopes("x", num_samples=10**6), "pass fewer rows, or num_samples"),
        (lambda g: g.hypotheses([1.0], TWO), r"weights of '' must have shape \(2,\)"),
        (lambda g: g.hypotheses({"a": lambda f: f}, TWO), "'a' must be one number"),
        (lambda g: g.hypotheses([1, -1], TWO, terms="s(q)"), "terms: there is no effect"),
    ],
)
def test_bad_arguments_are_named(gaussian, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(gaussian)


def test_rows_that_do_not_count_take_no_room():
    """Averages are over 2000 rows of those that count, here all of them."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.uniform(size=6001), "w": 0.0})
    table.loc[1::40, "w"] = 1.0
    table["y"] = np.sin(6.0 * table["x"]) + 0.3 * rng.standard_normal(6001)
    gam = gg.GAM(s("x", k=8), weights="w").fit(table, y="y")
    counted = table[table["w"] > 0.0]
    expected = np.mean(gam.predict(counted))
    assert gam.avg_predictions(num_samples=10)["estimate"].item() == pytest.approx(expected)
    few = gg.GAM(s("x", k=8)).fit(counted, y="y").fitted
    assert len(gam.fitted.some_rows(2000)) == len(few.some_rows(2000)) == len(counted)


# --- slopes, and quantities of predictions --------------------------------------------------------


def _difference(gam, rows, name, h=1e-4, **options):
    """A central difference of predictions, [N] or [N, K]."""
    ends = [
        np.asarray(gam.predict(rows.assign(**{name: rows[name] + s}), **options)) for s in (-h, h)
    ]
    return (ends[1] - ends[0]) / (2.0 * h)


def test_slopes_are_differences_of_predictions(gaussian, poisson, softmax):
    for gam, weights in ((gaussian, np.ones(90)), (poisson, DATA["w"])):
        result = gam.avg_slopes(num_samples=64)
        assert list(result["column"]) == ["x", "z"]
        expected = [np.average(_difference(gam, DATA, c), weights=weights) for c in "xz"]
        np.testing.assert_allclose(result["estimate"], expected, rtol=1e-4, atol=1e-6)
    by = poisson.avg_slopes("x", DATA, by="g", num_samples=64).set_index("g")["estimate"]
    for level, rows in DATA.groupby("g"):
        expected = np.average(_difference(poisson, rows, "x"), weights=rows["w"])
        assert by[level] == pytest.approx(expected, rel=1e-4)
    each = poisson.slopes("x", DATA, num_samples=64)
    assert list(each["row"]) == list(range(90))
    exact = _difference(poisson, DATA, "x")
    np.testing.assert_allclose(each["estimate"], exact, rtol=0.0, atol=1e-3 * np.max(exact))
    light = DATA.assign(w=np.where(np.arange(90) < 20, 0.0, DATA["w"]))
    each = poisson.slopes("x", light, num_samples=64)
    np.testing.assert_allclose(each["estimate"], exact, rtol=0.0, atol=1e-3 * np.max(exact))
    classes = softmax.avg_slopes("x", num_samples=64)
    np.testing.assert_allclose(
        classes["estimate"], _difference(softmax, DATA, "x").mean(axis=0), rtol=1e-3, atol=1e-5
    )
    rough = gg.GAM(s("x", bs="ou", k=6)).fit(DATA, y="y", **QUICK)
    with pytest.raises(ValueError, match="bs='ou', whose draws have no slope"):
        rough.avg_slopes("x")


def test_a_default_grid_has_one_period_of_what_is_cyclic():
    t = np.linspace(3.0, 700.0, 400)
    data = pd.DataFrame({"t": t, "y": np.sin(2.0 * np.pi * t / 7.0)})
    gam = gg.GAM(s("t", bs="cyclic", period=7.0, k=10)).fit(data, y="y", **QUICK)
    curve = gam.partial_dependence("t", num_samples=8)
    assert curve["t"].iloc[[0, -1]].tolist() == [3.0, 10.0]
    np.testing.assert_allclose(curve["estimate"], np.sin(2.0 * np.pi * curve["t"] / 7.0), atol=0.1)


def test_slopes_see_waves_that_are_short_beside_the_data():
    """Cycles, of which the data have many, and a smooth with as many waves."""
    t = np.linspace(0.0, 2000.0, 900)
    wave = np.sin(2.0 * np.pi * t / 7.0) + 0.1 * np.cos(t)
    week = s("t", bs="cyclic", period=7.0, k=10)
    data = pd.DataFrame({"t": t, "y": wave, "slow": np.sin(2.0 * np.pi * t / 50.0)})
    rows = pd.DataFrame({"t": [1000.0, 1001.0, 1002.5]})
    smooth = s("t", k=160)
    for terms, y, name in ((linear("t") + week, "y", week.label), (smooth, "slow", smooth.label)):
        gam = gg.GAM(terms).fit(data, y=y, **QUICK)
        expected = _difference(gam, rows, "t")
        result = gam.slopes("t", rows, num_samples=8)["estimate"]
        np.testing.assert_allclose(result, expected, rtol=2e-3)
        line = 0.0 if terms is smooth else gam.derivatives("linear(t)", rows)["estimate"]
        result = gam.derivatives(name, rows)["estimate"] + line
        np.testing.assert_allclose(result, expected, rtol=2e-3)


def test_slopes_of_the_predictor_have_the_errors_of_derivatives(gaussian, poisson):
    """Another route: of one component the closed form, of all terms their joint covariance."""
    x = np.array([0.1, 0.45, 0.8])
    rows = pd.DataFrame({"x": x, "z": 0.0, "g": "a", "log_e": 0.0})
    ours = poisson.slopes("x", rows, scale="link", num_samples=4000)
    theirs = poisson.derivatives("s(x)", x)
    np.testing.assert_allclose(ours["estimate"], theirs["estimate"], rtol=1e-6)
    np.testing.assert_allclose(ours["se"], theirs["se"], rtol=0.06)
    # z stands in a line and in an interaction
    ours = gaussian.slopes("z", rows, scale="link", num_samples=4000)
    fit, h = gaussian.fitted, 1e-3
    X = np.concatenate([fit.encode(rows.assign(z=z)) for z in (-h, h)])
    A = np.kron([[-1.0, 1.0, -1.0, 1.0]], np.eye(3)) / (2.0 * h)
    mean, covariance = joint_moments(fit, [("linear(z)", X), ("ti(x,z)", X)])
    np.testing.assert_allclose(ours["estimate"], (A @ mean)[:, 0], rtol=1e-3)
    sd = np.sqrt(np.diag(A @ covariance[0] @ A.T))
    np.testing.assert_allclose(ours["se"], sd, rtol=0.06)


def test_errors_of_one_of_several_predictors_allow_for_the_others():
    """Slopes, averages and draws of a predictor have the errors of coefficients and predictions."""
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"x": rng.uniform(size=20), "g": rng.choice(list("abc"), 20)})
    data["y"] = data["x"] + np.exp(2.0 * data["x"] - 1.0) * rng.normal(size=20)
    gam = gg.GAM({"mean": "y ~ x + g", "scale": "x"}).fit(data)
    known = gam.coefficients().query("column == 'x'").set_index("predictor")["se"]
    asked = {"scale": "link", "num_samples": 8000}
    for result in (gam.avg_slopes("x", **asked), gam.avg_comparisons("x", data, **asked)):
        ours = result.set_index("predictor")["se"]
        np.testing.assert_allclose(ours, known[ours.index], rtol=0.03)
    ours, (_, se) = gam.sample(data, 8000, "link"), gam.predict(data, "link", se=True)
    np.testing.assert_allclose(ours.std(axis=0), se, rtol=0.06)


def test_contrasts_of_an_effect_are_those_of_a_reference(poisson):
    rows = {"x": [0.2, 0.8], "log_e": [0.0, 0.0]}
    ask = {"rise": [-1.0, 1.0], "ratio": lambda f: f[1] / f[0]}
    result = poisson.hypotheses(ask, rows, terms="s(x)", scale="link", num_samples=4000).set_index(
        "quantity"
    )
    known = poisson.effects("s(x)", [0.8], reference={"x": 0.2}).iloc[0]
    rise = result.loc["rise"]
    assert rise["estimate"] == pytest.approx(known["estimate"], rel=1e-6)
    assert rise["se"] == pytest.approx(known["se"], rel=0.05)
    inside = norm.cdf(known["estimate"] / known["se"])
    assert rise["probability"] == pytest.approx(inside, abs=0.03)
    two = poisson.predict(rows, "link", terms="s(x)")
    assert result.loc["ratio", "estimate"] == pytest.approx(two[1] / two[0], rel=1e-6)


def test_quantities_and_slopes_are_of_the_rows_that_data_have():
    """Those of weight zero are among them, and rows that lack a value keep the others' numbers."""
    gam = gg.GAM(s("x", k=6), weights="w", missing="drop").fit(DATA, y="y", **QUICK)
    rows = pd.DataFrame({"x": np.linspace(0.0, 1.0, 7), "w": [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]})
    ask = {"top": lambda f: f.argmax(), "sum": np.arange(7.0)}
    found = gam.hypotheses(ask, rows, num_samples=8)["estimate"]
    expected = gam.predict(rows)
    np.testing.assert_allclose(found, [expected.argmax(), np.arange(7.0) @ expected])
    whole = gam.slopes("x", rows, num_samples=8)
    rows.loc[1, "x"] = np.nan
    pd.testing.assert_frame_equal(
        gam.slopes("x", rows, num_samples=8)[["row", "estimate"]],
        whole[["row", "estimate"]].drop(1).reset_index(drop=True),
    )
    with pytest.raises(ValueError, match="missing values: 1 in 'x'.*leave those rows out"):
        gam.hypotheses(ask, rows)


def test_where_a_curve_is_highest_and_where_it_crosses():
    """Of a parabola whose top is at .4, and which is zero at .9."""
    rng = np.random.default_rng(6)
    table = pd.DataFrame({"x": rng.uniform(size=300)})
    table["y"] = 1.0 - 4.0 * (table["x"] - 0.4) ** 2 + 0.2 * rng.normal(size=300)
    gam, x = gg.GAM("y ~ s(x, k=10, bs='se')").fit(table), np.linspace(0.0, 1.0, 201)

    def crossing(f, level=0.0):
        below = np.flatnonzero((f[:-1] >= level) & (f[1:] < level))
        return x[below[0]] if len(below) else np.nan

    ask = {"top": lambda f: x[f.argmax()], "zero": crossing, "two": lambda f: crossing(f, 2.0)}
    result = gam.hypotheses(ask, {"x": x}, null=0.5).set_index("quantity")
    top, zero, two = (result.loc[name] for name in ask)
    assert top["lower"] < 0.4 < top["upper"] < 0.5
    assert top["probability"] < 0.02
    assert zero["lower"] < 0.9 < zero["upper"] < 0.97
    assert (two["defined"], top["defined"]) == (0.0, 1.0)
    assert np.isnan(two["lower"])
