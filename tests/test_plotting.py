"""What is drawn is what the model says."""

import dataclasses
import importlib.util
import sys

import gpflow
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gpflow_gam import GAM, plotting
from gpflow_gam.gam.families import Binomial, Quantile
from gpflow_gam.gam.plotting.appraise import binned, draw_qq, order_statistics

N = 150


def _data() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    d = pd.DataFrame(
        {
            "x": rng.uniform(0.0, 1.0, N),
            "z": rng.uniform(-2.0, 2.0, N),
            "w": rng.normal(size=N),
            "g": rng.choice(["a", "b"], N),
            "h": rng.permutation(np.arange(N) % 45),
            "size": rng.uniform(-0.5, 0.5, N),
        }
    )
    d.loc[d["g"] == "b", "x"] *= 0.8
    f = np.sin(6.0 * d["x"]) + (d["g"] == "b")
    d["num"] = f + 0.3 * rng.normal(size=N)
    d["count"] = rng.poisson(np.exp(1.0 + f + d["size"]))
    d["bin"] = rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-2.0 * f))
    scores = np.stack([f, -f, d["z"]], axis=1) + rng.gumbel(size=(N, 3))
    d["kind"] = np.array(["cat", "dog", "cow"])[scores.argmax(axis=1)]
    return d


DATA = _data()


def panels(figure):
    """Axes by title, colour bars left out."""
    return {ax.get_title(): ax for ax in figure.axes if ax.get_title()}


def marked(ax, gid):
    result = ax.findobj(lambda artist: artist.get_gid() == gid)
    return result[0] if len(result) == 1 else result


def mesh_of(ax):
    return next(c for c in ax.collections if hasattr(c, "get_coordinates"))


def curves_of(ax, number):
    """Lines of so many points."""
    return [line for line in ax.lines if len(line.get_xdata()) == number]


def extent(collection, x):
    """Lowest and highest vertex of a band at each x."""
    (path,) = collection.get_paths()
    sides = [path.vertices[np.isclose(path.vertices[:, 0], v), 1] for v in x]
    return np.array([s.min() for s in sides]), np.array([s.max() for s in sides])


@pytest.fixture(scope="module", autouse=True)
def _fitted_hyperparameters():
    """Pictures are of numbers that others test: here without draws of hyperparameters, for time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpflow_gam.gam.effects.posterior.draw_solutions", lambda *_: [])
        yield


@pytest.fixture(scope="module")
def gaussian() -> GAM:
    formula = "num ~ s(x, k=6, by=g) + factor(g) + te(x, z, k=8) + random_effect(h)"
    return GAM(formula, seed=1).fit(DATA)


@pytest.fixture(scope="module")
def poisson() -> GAM:
    formula = "count ~ s(x, k=6) + s(w, k=5, by=z)"
    return GAM(formula, family="poisson", offset="size").fit(DATA)


@pytest.fixture(scope="module")
def bernoulli() -> GAM:
    formula = "bin ~ te(x, g, k=8) + te(x, z, w, k=8)"
    return GAM(formula, family="bernoulli").fit(DATA)


@pytest.fixture(scope="module")
def categorical() -> GAM:
    formula = "kind ~ s(x, k=5) + factor(g) + te(x, z, k=6)"
    return GAM(formula, family="categorical").fit(DATA)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


# --- draw ----------------------------------------------------------------------------------------


def test_curve_and_bands_are_the_effects(gaussian):
    figure = gaussian.draw("s(x):g=b", level=0.8, num_points=12, simultaneous=True, seed=1)
    (ax,) = figure.axes
    frame = gaussian.effects("s(x):g=b", level=0.8, num_points=12)
    (curve,) = curves_of(ax, 12)
    np.testing.assert_allclose(curve.get_xdata(), frame["x"])
    np.testing.assert_allclose(curve.get_ydata(), frame["estimate"])
    for gid, suffix in (("pointwise", ""), ("simultaneous", "_simultaneous")):
        lower, upper = extent(marked(ax, gid), frame["x"])
        np.testing.assert_allclose(lower, frame[f"lower{suffix}"])
        np.testing.assert_allclose(upper, frame[f"upper{suffix}"])
    edf = gaussian.summary().table.loc["s(x):g=b", "edf"]
    assert ax.get_title() == f"s(x):g=b [edf {edf:.1f}]"
    assert ax.get_xlabel() == "x"
    assert ax.get_ylabel() == "partial effect on num"
    axes = gaussian.draw("s(x):g", ncols=1, figsize=(4.0, 7.0)).axes
    assert len({ax.get_ylim() for ax in axes}) == 1 < len(axes)
    assert {ax.get_position().x0 for ax in axes} == {axes[0].get_position().x0}


def test_rug_has_the_rows_of_the_level_alone(gaussian):
    (ax,) = gaussian.draw("s(x):g=b", num_points=5).axes
    ticks = [segment[0, 0] for segment in marked(ax, "rug").get_segments()]
    np.testing.assert_allclose(ticks, np.unique(DATA.loc[DATA["g"] == "b", "x"]))
    (ax,) = gaussian.draw("s(x):g=b", num_points=5, rug=False).axes
    assert marked(ax, "rug") == []
    assert marked(ax, "simultaneous") == []


def test_rug_is_of_the_column_that_is_drawn_along():
    data = DATA.assign(x=DATA["x"] + 5.0)
    for formula in ("num ~ ti(g, x, k=5)", "num ~ ti(x, g, k=5)"):
        gam = GAM(formula).fit(data, max_iterations=5)
        (ax,) = gam.draw(num_points=5).axes
        ticks = [segment[0, 0] for segment in marked(ax, "rug").get_segments()]
        np.testing.assert_allclose(ticks, np.unique(data["x"]))


def test_curves_of_levels_lie_in_one_panel_when_asked(gaussian):
    (ax,) = gaussian.draw("s(x):g", num_points=5, overlay=True).axes
    curves = {line.get_label(): line for line in curves_of(ax, 5)}
    assert set(curves) == {"a", "b"} == {t.get_text() for t in ax.get_legend().get_texts()}
    for level, curve in curves.items():
        frame = gaussian.effects(f"s(x):g={level}", num_points=5)
        np.testing.assert_allclose(curve.get_xydata(), frame[["x", "estimate"]])
    assert len({curve.get_color() for curve in curves.values()}) == 2
    assert ax.get_title() == "s(x):g"


def test_logarithmic_axes_have_even_points(gaussian):
    (ax,) = gaussian.draw("s(x):g=a", num_points=6, log=["x"]).axes
    (curve,) = curves_of(ax, 6)
    assert ax.get_xscale() == "log"
    assert np.ptp(np.diff(np.log(curve.get_xdata()))) < 1e-9
    want = gaussian.effects("s(x):g=a", curve.get_xdata())["estimate"]
    np.testing.assert_allclose(curve.get_ydata(), want)
    with pytest.raises(ValueError, match=r"log: factor\(g\) is not of positive numbers"):
        gaussian.draw("factor(g)", log=["g"])


def test_a_label_expands_and_every_effect_has_its_panel(gaussian):
    edf = gaussian.summary().table["edf"]
    named = {name: f"{name} [edf {value:.1f}]" for name, value in edf.items()}
    split = {named["s(x):g=a"], named["s(x):g=b"]}
    assert set(panels(gaussian.draw("s(x):g", num_points=4))) == split
    titles = set(panels(gaussian.draw(num_points=4)))
    assert titles == {*named.values(), "standard error"}


def test_maps_are_the_estimate_and_its_error(gaussian):
    figure = gaussian.draw("te(x,z)", num_points=9)
    (estimate, error) = panels(figure).values()
    frame = gaussian.effects("te(x,z)", num_points=9)
    for ax, column in ((estimate, "estimate"), (error, "se")):
        mesh = mesh_of(ax)
        x, z = np.moveaxis(mesh.get_coordinates(), -1, 0)
        at = frame.set_index([frame["x"].round(9), frame["z"].round(9)])[column]
        want = [at[round(a, 9), round(b, 9)] for a, b in zip(x.ravel(), z.ravel())]
        np.testing.assert_allclose(np.ravel(mesh.get_array()), want)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "z")
    mesh = mesh_of(estimate)
    low, high = mesh.get_clim()
    assert low == -high
    span = frame[["x", "z"]].max() - frame[["x", "z"]].min()
    from_row = (
        frame[["x", "z"]].to_numpy()[:, None] - DATA[["x", "z"]].to_numpy()
    ) / span.to_numpy()
    near = np.linalg.norm(from_row, axis=2).min(axis=1) <= 0.1
    assert high == pytest.approx(frame["estimate"][near].abs().max())
    np.testing.assert_allclose(marked(estimate, "data").get_xydata(), DATA[["x", "z"]])


def test_maps_share_their_colours_which_are_faint_where_zero_is_in_the_interval():
    data = DATA.assign(w=DATA["w"].abs() / 3.0)
    gam = GAM("num ~ te(x, z, k=6) + ti(z, w, k=5)", seed=1).fit(data)
    shown = panels(gam.draw(num_points=8))
    del shown["standard error"]
    limits, faint = [], []
    for name, ax in zip(("te(x,z)", "ti(z,w)"), shown.values()):
        limits.append(mesh_of(ax).get_clim())
        frame = gam.effects(name, num_points=8)
        inner = frame[frame.iloc[:, :2].apply(lambda v: (v > v.min()) & (v < v.max())).all(axis=1)]
        (over,) = (c for c in ax.collections if c.get_zorder() == 1.2)
        covered = over.get_paths()[0].contains_points(inner.iloc[:, :2])
        np.testing.assert_array_equal(covered, (inner["lower"] < 0.0) & (inner["upper"] > 0.0))
        faint.append(covered.mean())
    assert limits[0] == limits[1]
    assert faint[1] == 1.0 > faint[0]


def test_maps_are_blank_far_from_all_data(gaussian, monkeypatch):
    """No colours are spent on a corner without data, where the estimate may be anything."""
    corner = (DATA["x"] < 0.5) | (DATA["z"] < 0.0)
    room = sys.modules["gpflow_gam.gam.plotting.draw"]  # whose name is also a function's
    monkeypatch.setattr(room, "acting", lambda fit, component: corner)
    blank = panels(gaussian.draw("te(x,z)", num_points=12))["standard error"]
    frame = gaussian.effects("te(x,z)", num_points=12)
    covers = [p for c in blank.collections if c.get_zorder() == 1.5 for p in c.get_paths()]
    points = frame[["x", "z"]].to_numpy()
    inside = points.mean(axis=0) + 0.999 * (points - points.mean(axis=0))  # not on the frame
    covered = np.any([path.contains_points(inside) for path in covers], axis=0)
    span = np.ptp(points, axis=0)
    from_row = (points[:, None] - DATA.loc[corner, ["x", "z"]].to_numpy()) / span
    distance = np.linalg.norm(from_row, axis=2).min(axis=1)
    assert covered[distance > 0.1].all()
    assert covered[(frame["x"] > 0.7) & (frame["z"] > 0.6)].all()
    assert not covered[distance < 0.1].any()
    colors = mesh_of(blank)
    assert colors.get_clim()[1] == pytest.approx(frame["se"][~covered].max())


def bars(ax):
    """Points and ends of error bars."""
    container = next(c for c in ax.containers if c.lines[0] is not None)
    ends = np.array([s[:, 1] for s in container.lines[2][0].get_segments()])
    return container.lines[0].get_ydata(), ends


def test_levels_have_points_with_limits(gaussian):
    """Many levels are sorted, and have no names."""
    few, many = gaussian.effects("factor(g)"), gaussian.effects("random_effect(h)")
    for name, frame in (("random_effect(h)", many.sort_values("estimate")), ("factor(g)", few)):
        (ax,) = gaussian.draw(name).axes
        points, ends = bars(ax)
        np.testing.assert_allclose(points, frame["estimate"])
        np.testing.assert_allclose(ends, frame[["lower", "upper"]])
        assert len(ax.get_xticks()) == (2 if name == "factor(g)" else 0)
        assert ("45 levels" in ax.get_xlabel()) == (name != "factor(g)")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b"]


def test_partial_residuals_by_hand(poisson):
    figure = poisson.draw("s(x)", residuals=True, num_points=5)
    rho = poisson.predict(DATA, type="link")  # with the offset
    f = poisson.effects("s(x)", DATA["x"])["estimate"]
    want = []
    for y, r, own in zip(DATA["count"], rho, f):
        mu = np.exp(r)
        want.append((y - mu) / mu + own)
    got = marked(figure.axes[0], "residuals")
    np.testing.assert_allclose(got.get_xdata(), DATA["x"])
    np.testing.assert_allclose(got.get_ydata(), want, rtol=1e-6, atol=1e-6)


def test_partial_residuals_of_a_varying_coefficient_scatter_around_it(poisson, gaussian):
    got = plotting.partial_residuals(poisson.fitted, "s(w):z")
    f = poisson.effects("s(w):z", DATA["w"])["estimate"]
    want = f + plotting.working_residuals(poisson.fitted) / DATA["z"]
    np.testing.assert_allclose(got, want, atol=1e-8)
    # those of a level are on its rows
    got = plotting.partial_residuals(gaussian.fitted, "s(x):g=a")
    np.testing.assert_array_equal(np.isfinite(got), DATA["g"] == "a")


def test_a_curve_for_each_level(bernoulli):
    (ax,) = bernoulli.draw("te(x,g)", num_points=7).axes
    frame = bernoulli.effects("te(x,g)", num_points=7)
    curves = {line.get_label(): line for line in curves_of(ax, 7)}
    assert set(curves) == {"a", "b"}
    for level, curve in curves.items():
        rows = frame[frame["g"] == level]
        np.testing.assert_allclose(curve.get_xdata(), rows["x"])
        np.testing.assert_allclose(curve.get_ydata(), rows["estimate"])
    assert ax.get_legend().get_title().get_text() == "g"


def test_a_third_column_is_held_at_its_median(bernoulli):
    figure = bernoulli.draw("te(x,z,w)", num_points=6)
    ax = figure.axes[0]
    middle = float(np.median(DATA["w"]))
    assert f"at w = {middle:.3g}" in ax.get_title()
    mesh = mesh_of(ax)
    x, z = np.moveaxis(mesh.get_coordinates(), -1, 0)
    grid = {"x": x.ravel(), "z": z.ravel(), "w": np.full(36, middle)}
    want = bernoulli.effects("te(x,z,w)", grid)["estimate"]
    np.testing.assert_allclose(np.ravel(mesh.get_array()), want, atol=1e-10)


def test_several_predictors_share_a_panel_of_curves(categorical):
    (ax,) = categorical.draw("s(x)", num_points=6).axes
    frame = categorical.effects("s(x)", num_points=6)
    curves = curves_of(ax, 6)
    assert len(curves) == 3
    for curve, name in zip(curves, ("cat", "cow", "dog")):
        rows = frame[frame["predictor"] == name]
        np.testing.assert_allclose(curve.get_ydata(), rows["estimate"])
        assert curve.get_label().startswith(f"{name} [edf ")
    assert len(marked(ax, "pointwise")) == 3


def test_draws_into_axes(gaussian):
    figure, (left, right) = plt.subplots(1, 2)
    assert gaussian.draw("s(x):g=a", ax=right, num_points=5) is figure
    assert right.get_title().startswith("s(x):g=a [edf ")
    assert not left.lines
    gaussian.draw("te(x,z)", ax=left, num_points=5)
    assert left.get_title().startswith("te(x,z)")
    inner = plt.figure()
    ax = inner.subfigures(1, 2)[0].subplots()
    assert gaussian.draw("factor(g)", ax=ax) is inner


def test_bad_arguments_are_named(gaussian, categorical):
    with pytest.raises(ValueError, match=r"there is no effect 's\(q\)'; there are s\(x\):g=a"):
        gaussian.draw("s(q)")
    with pytest.raises(ValueError, match="intercept"):
        gaussian.draw("intercept")
    with pytest.raises(ValueError, match="ax holds one panel; .* would be 2"):
        gaussian.draw("s(x):g", ax=plt.figure().subplots())
    with pytest.raises(ValueError, match="predictor must be one of cat, cow, dog; got 'pig'"):
        categorical.draw("s(x)", predictor="pig")


def test_nothing_global_changes_and_nothing_is_drawn_on_error(gaussian):
    before = dict(mpl.rcParams)
    gaussian.draw(num_points=4)
    gaussian.appraise()
    assert dict(mpl.rcParams) == before
    plt.close("all")
    with pytest.raises(ValueError, match="no effect"):
        gaussian.draw(["factor(g)", "s(q)"])
    assert plt.get_fignums() == []


def test_a_reference_is_where_ratios_are_one(poisson):
    """Drawn against a value: as effects(reference=) has it, and in the user's words."""
    figure = poisson.draw("s(x)", reference={"x": 0.5}, labels={"x": "Depth (km)"}, fun=np.exp)
    (ax,) = figure.axes
    assert ax.get_xlabel() == "Depth (km)"
    assert "against x = 0.5" in ax.get_ylabel()
    curve = max(ax.lines, key=lambda line: len(line.get_xdata()))
    table = poisson.effects("s(x)", curve.get_xdata(), reference={"x": 0.5}, fun=np.exp)
    np.testing.assert_allclose(curve.get_ydata(), table["estimate"], rtol=1e-9)
    assert np.interp(0.5, curve.get_xdata(), curve.get_ydata()) == pytest.approx(1.0, abs=1e-3)
    for options in ({"reference": {"A": 1}}, {"labels": {"A": "x"}}):
        with pytest.raises(ValueError, match="no effect that is drawn is of 'A'"):
            poisson.draw(**options)


def test_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    spec = importlib.util.spec_from_file_location(plotting.__name__, plotting.__file__)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_gam\[plot\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_working_residuals_of_binomial_are_of_shares(bernoulli):
    fit = bernoulli.fitted
    trials = np.arange(N) % 5 + 1.0
    hits = np.minimum(np.arange(N) % 3, trials)
    spec = dataclasses.replace(fit.spec, family=Binomial(), trials="n")
    data = dataclasses.replace(fit.data, Y=np.stack([hits, trials], axis=1))
    fit = dataclasses.replace(fit, data=data, spec=spec)
    p = 1.0 / (1.0 + np.exp(-fit.predict_link(fit.X)[0][:, 0]))
    want = (hits / trials - p) / (p * (1.0 - p))
    np.testing.assert_allclose(plotting.working_residuals(fit), want, rtol=1e-6, atol=1e-8)


# --- appraise ------------------------------------------------------------------------------------


def test_appraise_gaussian(gaussian):
    axes = panels(gaussian.appraise())
    residuals = plotting.quantile_residuals(gaussian.fitted, 1)
    line = marked(axes["QQ plot"], "data")
    np.testing.assert_allclose(line.get_ydata(), np.sort(residuals))
    np.testing.assert_allclose(norm.cdf(line.get_xdata()), (np.arange(N) + 0.5) / N)
    seen = marked(axes["residuals against predictor"], "data")
    np.testing.assert_allclose(seen.get_xdata(), gaussian.predict(DATA, type="link"))
    np.testing.assert_allclose(seen.get_ydata(), residuals)
    seen = marked(axes["observed against fitted"], "data")
    np.testing.assert_allclose(seen.get_ydata(), DATA["num"])
    heights = [patch.get_height() for patch in axes["PIT histogram"].patches]
    assert np.mean(heights) == pytest.approx(1.0)


def test_residuals_beyond_what_can_be_told_are_marked_so(poisson, monkeypatch):
    own = np.array([-9.0, -1.0, 0.3, 9.0, 9.0])
    monkeypatch.setattr("gpflow_gam.gam.summaries.checks.ndtri", lambda u: np.resize(own, len(u)))
    residuals = plotting.quantile_residuals(poisson.fitted, 1)
    assert np.abs(residuals).max() == pytest.approx(norm.isf(1e-16))
    ax = plt.figure().add_subplot()
    draw_qq(ax, residuals[:5])
    np.testing.assert_allclose(marked(ax, "data").get_ydata(), [-1.0, 0.3])
    above, below = marked(ax, "beyond")
    assert (len(above.get_ydata()), len(below.get_ydata())) == (2, 1)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["2 above 8.2", "1 below -8.2"]


def test_appraise_counts_has_binned_means(poisson):
    axes = panels(poisson.appraise())
    predicted = poisson.predict(DATA)
    order = np.argsort(predicted)
    bins = np.array_split(np.asarray(DATA["count"])[order], 10)
    points, ends = bars(axes["calibration"])
    np.testing.assert_allclose(points, [b.mean() for b in bins])
    half = [1.96 * b.std() / np.sqrt(len(b)) for b in bins]
    np.testing.assert_allclose(ends[:, 1] - points, half)
    assert "QQ plot" in axes


def test_appraise_two_classes(bernoulli):
    axes = panels(bernoulli.appraise())
    assert set(axes) == {
        "QQ plot", "residuals against predictor", "calibration", "fitted probabilities",
    }  # fmt: skip
    order = np.argsort(bernoulli.predict(DATA))
    shares = [b.mean() for b in np.array_split(np.asarray(DATA["bin"], float)[order], 10)]
    points, ends = bars(axes["calibration"])
    np.testing.assert_allclose(points, shares)
    assert ends.min() >= -1e-12
    assert ends.max() <= 1.0 + 1e-12


def test_appraise_classes(categorical):
    axes = panels(categorical.appraise())
    assert set(axes) == {
        "fitted probabilities", "running means of residuals", "calibration", "confusion matrix",
    }  # fmt: skip
    ax = axes["confusion matrix"]
    names = ["cat", "cow", "dog"]
    assert [t.get_text() for t in ax.get_xticklabels()] == names
    predicted = categorical.predict(DATA, type="class")
    counts = np.array(
        [[np.sum((DATA["kind"] == a) & (predicted == b)) for b in names] for a in names]
    )
    shares = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ax.images[0].get_array(), shares)
    assert len(axes["calibration"].containers) == 3


def test_appraise_a_likelihood_without_distribution_function():
    gam = GAM("num ~ s(x, k=5)", family=gpflow.likelihoods.StudentT(df=4)).fit(DATA)
    axes = panels(gam.appraise())
    assert set(axes) == {
        "residuals", "residuals against predictor", "observed against fitted", "calibration",
    }  # fmt: skip
    seen = marked(axes["residuals against predictor"], "data")
    np.testing.assert_allclose(seen.get_ydata(), DATA["num"] - gam.predict(DATA))


def test_appraise_a_quantile_counts_the_rows_below_it():
    """Responses are above and below the quantile by as many as it says, not zero on average."""
    gam = GAM("num ~ z", family=Quantile(0.9)).fit(DATA)
    axes = panels(gam.appraise())
    assert [t.get_label() for t in axes["residuals against predictor"].lines].count(
        "running mean"
    ) == 0
    predicted, ax = gam.predict(DATA), axes["calibration"]
    below = (DATA["num"] <= predicted).to_numpy()[np.argsort(predicted)]
    np.testing.assert_allclose(bars(ax)[0], [b.mean() for b in np.split(below, 10)])
    np.testing.assert_allclose(marked(ax, "reference").get_ydata(), 0.9)
    low, high = (bars(ax)[1][:, end] for end in (0, 1))
    assert np.mean((low < 0.9) & (high > 0.9)) > 0.7


@pytest.mark.parametrize(
    ("response", "family", "panel"),
    [("bin", "bernoulli", "calibration"), ("count", "poisson", "calibration"), ("num", None, None)],
)
def test_diagnostics_do_not_depend_on_the_order_of_rows(response, family, panel):
    """Rows of one level have one prediction: those sorted by their outcome show nothing more."""
    seen, rows = [], DATA.assign(bin=DATA["bin"].astype(float))
    for data in (rows, rows.sort_values(response)):
        gam = GAM("g", family=family or "gaussian").fit(data, response)
        axes = panels(gam.appraise())
        if panel is None:
            (line,) = (
                t for t in axes["residuals against predictor"].lines if "mean" in t.get_label()
            )
            seen.append(line.get_xydata())
        else:
            seen.append(np.concatenate([np.ravel(each) for each in bars(axes[panel])]))
    np.testing.assert_allclose(*seen, atol=1e-6)
    if panel:
        shares = DATA.groupby("g")[response].mean()
        np.testing.assert_allclose(seen[0][: len(shares)], np.sort(shares))


def test_order_statistics_cover_as_they_say():
    lower, upper = order_statistics(40)
    draws = np.sort(np.random.default_rng(0).normal(size=(20_000, 40)), axis=1)
    np.testing.assert_allclose(
        np.mean((draws >= lower) & (draws <= upper), axis=0), 0.95, atol=6e-3
    )


def test_limits_of_shares_stay_between_zero_and_one():
    _, y, (below, above) = binned(np.linspace(0.0, 1.0, 40), np.repeat([0.0, 1.0], 20), shares=True)
    assert len(y) == 4
    assert np.all(y - below >= -1e-12)
    assert np.all(y + above <= 1.0 + 1e-12)
    assert np.all(below + above > 0.1)
    # Wilson's interval solves (p - y)^2 = 1.96^2 p (1 - p) / n
    p = (y + above)[0]
    assert p**2 == pytest.approx(1.96**2 * p * (1.0 - p) / 10.0)
