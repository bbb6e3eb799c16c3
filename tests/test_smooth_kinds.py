"""Smooths on the globe, of what is left in time, and that vary quicker in places."""

import itertools

import numpy as np
import pandas as pd
import pytest
from problems import autocorrelated, exact, reloaded

import gpflow_gam as gg
from gpflow_gam import factor, random_effect, s, te
from gpflow_gam.gam.terms import Terms, parse_formula
from gpflow_gam.kernels import MarkovField, structured_covariance

NUMBER = 200


def globe(seed=0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(NUMBER, 3))
    u /= np.linalg.norm(u, axis=1)[:, None]
    f = np.sin(2.0 * u[:, 0]) + u[:, 1] * u[:, 2]
    lat, lon = np.rad2deg([np.arcsin(u[:, 2]), np.arctan2(u[:, 1], u[:, 0])])
    return pd.DataFrame({"lat": lat, "lon": lon, "f": f}), 0.3


def memory(seed=0, rho=0.8):
    e = autocorrelated(np.random.default_rng(seed), NUMBER, rho)
    return pd.DataFrame({"t": np.arange(float(NUMBER)), "f": e}), 0.3


def walk(seed=0):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, 40.0, NUMBER))
    steps = np.sqrt(np.diff(t, prepend=0.0)) * rng.normal(size=NUMBER)
    return pd.DataFrame({"t": t, "f": 50.0 + np.cumsum(steps)}), 0.3


def bend(seed=0):
    x = np.sort(np.random.default_rng(seed).uniform(size=NUMBER))
    return pd.DataFrame({"x": x, "f": 4.0 * np.square(x - 0.5)}), 0.2


def doppler(seed=0):
    # Donoho & Johnstone (1994), a little slower
    x = np.sort(np.random.default_rng(seed).uniform(size=NUMBER))
    f = 3.0 * np.sqrt(x * (1.0 - x)) * np.sin(2.1 * np.pi / (x + 0.15))
    return pd.DataFrame({"x": x, "f": f}), 0.2


CASES = {
    "sos": (globe, s("lat", "lon", bs="sos")),
    "ou": (memory, s("t", bs="ou")),
    "rw": (walk, s("t", bs="rw")),
    "iou": (bend, s("x", bs="iou")),
    "ad": (doppler, s("x", bs="ad")),
}


def noisy(make, seed=0):
    data, noise = make(seed)
    return data.assign(y=data["f"] + noise * np.random.default_rng([seed, 1]).normal(size=NUMBER))


@pytest.fixture(scope="module")
def fits():
    result = {}
    for bs, (make, term) in CASES.items():
        data = noisy(make)
        result[bs] = gg.GAM(term).fit(data, "y"), data
    return result


@pytest.fixture(params=list(CASES))
def fit(request, fits):
    return fits[request.param]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("bs", list(CASES))
def test_posterior_is_that_of_an_exact_gaussian_process(bs):
    make, term = CASES[bs]
    data = noisy(make)
    gam = gg.GAM(s(*term.columns, bs=bs, k=NUMBER)).fit(data, "y")
    own = gam.fitted
    priors = sum(float(p.log_prior_density()) for p in own.model.trainable_parameters)
    np.testing.assert_allclose(own.result.elbo, float(own.model.elbo()) + priors, atol=0.05)
    mean, sd, _ = exact(gam, data["y"])
    result, se = gam.predict(data, "link", se=True, unconditional=False)
    noise = np.sqrt(own.model.likelihood.variance.numpy())
    np.testing.assert_allclose(result, mean, atol=3e-3 * noise)
    np.testing.assert_allclose(se, sd, rtol=5e-3)  # jitter


@pytest.mark.slow_but_first
def test_truth_is_found_and_covered(fit):
    gam, data = fit
    mean, se = gam.predict(data, "link", se=True)
    away = np.abs(mean - data["f"])
    assert np.sqrt(np.mean(away**2)) < 0.95 * np.std(data["y"] - data["f"])
    assert np.mean(away < 1.96 * se) > 0.88


def test_averages_to_zero_over_the_data_is_saved_and_drawn(fit, tmp_path):
    gam, data = fit
    rows = data[[c for c in data.columns if c not in "fy"]]
    shown = gam.effects(gam.names[-1], grid=rows)["estimate"]
    assert abs(shown.mean()) < 0.05 * shown.std()
    again = reloaded(gam, tmp_path / "gam")
    np.testing.assert_array_equal(again.predict(rows), gam.predict(rows))
    assert gam.draw().axes


# --- the globe -----------------------------------------------------------------------------------


def test_no_seam_and_one_pole(fits):
    gam, data = fits["sos"]
    assert gam.summary().table["lengthscale"].iloc[0] == ()  # chords are in no column's unit
    around = {"lat": [10, 10, 10, 90, 90], "lon": [-180, 180, -180 + 360, 0, 77]}
    mean, se = gam.predict(around, "link", se=True)
    np.testing.assert_allclose(mean[[1, 2, 4]], mean[[0, 0, 3]], atol=1e-9)
    np.testing.assert_allclose(se[[1, 2, 4]], se[[0, 0, 3]], atol=1e-6)
    turned = data.assign(lon=data["lon"] % 360.0)
    again = gg.GAM(gam.terms).fit(turned, "y")
    np.testing.assert_allclose(again.predict(turned), gam.predict(data), atol=0.02)


@pytest.mark.slow
def test_degrees_are_within_their_limits(fits, tmp_path):
    gam, data = fits["sos"]
    bad = pd.DataFrame({"lat": [10.0, 100.0], "lon": [0.0, 0.0]})
    message = "'lat' must be within -90 and 90, degrees in s\\(lat,lon\\); got 100 in row 1"
    with pytest.raises(ValueError, match=message):
        gam.predict(bad)
    gam.save(tmp_path / "gam")
    with pytest.raises(ValueError, match=message):
        gg.GAM.load(tmp_path / "gam").predict(bad)
    swapped = gg.GAM(s("lon", "lat", bs="sos"))
    with pytest.raises(ValueError, match="'lon' must be within -90 and 90"):
        swapped.fit(data, "y")
    gg.serving.export(gam, tmp_path / "served")
    served = gg.serving.load(tmp_path / "served")
    rows = data[["lat", "lon"]][:5]
    np.testing.assert_allclose(np.ravel(served.predict(rows)["mean"]), gam.predict(rows))
    with pytest.raises(Exception, match="must be within -90 and 90, degrees in s"):
        served.predict(bad)


# --- what is left in time ------------------------------------------------------------------------


def test_walks_go_on_from_where_they_are(fits):
    gam, data = fits["rw"]
    last = data["t"].max()
    with pytest.warns(gg.ExtrapolationWarning, match="the walk goes on from where it was"):
        mean = gam.predict({"t": last + np.array([0.0, 5.0, 20.0])}, "link")
    np.testing.assert_allclose(mean, mean[0], atol=1e-4)
    variance = float(gam.fitted.model.kernel["s(t,rw)"].variance.numpy())
    spread = gam.fitted.model.kernel["s(t,rw)"]._spread
    grown = np.diff(
        np.square(gam.predict({"t": last + np.array([0.0, 5.0, 20.0])}, "link", se=True,
                              unconditional=False)[1])
    )  # fmt: skip
    np.testing.assert_allclose(grown, 2.0 * variance / spread * np.array([5.0, 15.0]), rtol=1e-3)
    # the variance of steps a unit of time, which is one
    assert 0.6 < 2.0 * variance / spread < 1.6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_trend_and_what_lasts_are_told_apart(seed):
    """Evidence for both, where a search can go past the variance of one of them to nothing."""
    rng = np.random.default_rng(seed)
    e = autocorrelated(rng, 240, 0.9)
    t, season = np.arange(240) / 12.0, 3.0 * np.sin(np.pi * np.arange(240) / 6.0)
    y = 1.2 * t + 0.02 * t**2 + season + 0.5 * e + 0.2 * rng.normal(size=240)
    data = pd.DataFrame({"t": t, "m": np.arange(240) % 12, "y": y})
    trends = s("t"), s("t", bs="ou"), s("t") + s("t", bs="ou")
    fits = [gg.GAM(trend + s("m", bs="cyclic", period=12)).fit(data, "y") for trend in trends]
    smooth, lasting, both = (gam.fitted.result.elbo for gam in fits)
    assert both > max(smooth, lasting) + 10.0
    assert fits[2].variance_components().set_index("term").loc["s(t,ou)", "sd"] > 0.1


def test_rough_functions_need_their_values(fits):
    gam, data = fits["rw"]
    assert len(gam.fitted.spec.components[1].inducing) == NUMBER
    few = gg.GAM(s("t", bs="rw", k=24)).fit(data, "y")
    errors = [np.sqrt(np.mean((m.predict(data) - data["f"]) ** 2)) for m in (gam, few)]
    assert errors[0] < 0.9 * errors[1]
    long = pd.DataFrame({"t": np.arange(310.0), "y": np.sin(np.arange(310.0))})
    with pytest.warns(gg.ResolutionWarning, match="300 inducing inputs for 310 values or more"):
        gg.GAM(s("t", bs="ou")).fit(long, "y", max_iterations=1)


# --- beyond the data -----------------------------------------------------------------------------


def test_curves_are_straight_far_beyond_the_data(fits):
    gam, _ = fits["iou"]
    far = 1.0 + np.array([20.0, 30.0, 40.0])
    with pytest.warns(gg.ExtrapolationWarning, match="the curve goes on along its slope"):
        mean, se = gam.predict({"x": far}, "link", se=True)
    assert abs(np.diff(mean, 2)[0]) < 1e-6 * abs(np.diff(mean)[0])
    assert np.all(np.diff(se) > 0.0)


def test_curves_have_slopes_and_walks_none(fits):
    gam, _ = fits["iou"]
    x = np.linspace(0.1, 0.9, 9)
    shown = gam.derivatives("s(x)", grid=x)
    assert np.mean(np.abs(shown["estimate"] - 8.0 * (x - 0.5)) < 1.96 * shown["se"]) > 0.7
    with pytest.raises(ValueError, match="bs='rw', whose draws have no slope"):
        fits["rw"][0].derivatives("s(t,rw)")


def test_curves_in_other_units(fits):
    gam, data = fits["iou"]
    moved = data.assign(x=1e9 + 1e6 * data["x"], y=1e-6 * data["y"])
    again = gg.GAM(s("x", bs="iou")).fit(moved, "y")
    result, expected = again.predict(moved, se=True), gam.predict(data, se=True)
    np.testing.assert_allclose(1e6 * result[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(1e6 * result[1], expected[1], rtol=1e-4)


def test_coefficients_and_levels_may_have_curves():
    rng = np.random.default_rng(0)
    x, z = rng.uniform(size=300), rng.normal(size=300)
    g = rng.choice(["a", "b"], 300)
    beta = np.where(g == "a", 1.0, -1.0) * np.square(2.0 * x)
    data = pd.DataFrame({"x": x, "z": z, "g": g, "y": np.square(2.0 * x) * z, "h": beta})
    data[["y", "h"]] += 0.2 * rng.normal(size=(300, 2))
    gam = gg.GAM(s("x", bs="iou", by="z")).fit(data, "y")
    shown = gam.effects(gam.names[-1], grid=x)["estimate"]
    assert np.sqrt(np.mean((shown - np.square(2.0 * x)) ** 2)) < 0.1
    each = gg.GAM(s("x", bs="iou", by="g") + factor("g")).fit(data, "h")
    assert np.sqrt(np.mean((each.predict(data) - beta) ** 2)) < 0.08


def test_a_line_that_a_number_multiplies_goes_through_zero():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(1.0, 2.0, 60), "z": rng.normal(size=60)})
    y = 2.0 * data["x"] * data["z"] + 0.01 * rng.normal(size=60)
    gam = gg.GAM(s("x", bs="linear", by="z")).fit(data.assign(y=y), "y")
    np.testing.assert_allclose(gam.predict(data), y, atol=0.1)


def test_curves_of_many_values_stand_at_nodes():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=1500)
    data = pd.DataFrame({"x": x, "y": np.sin(8.0 * x) + x**2 + 0.3 * rng.normal(size=1500)})
    own = gg.GAM(s("x", bs="iou")).fit(data, "y").fitted
    (_, curve) = own.solution.rows.components
    assert len(curve.interpolation.nodes) < 300
    # the bound over rows, in TensorFlow
    priors = sum(float(p.log_prior_density()) for p in own.model.trainable_parameters)
    np.testing.assert_allclose(own.result.elbo, float(own.model.elbo()) + priors, atol=0.01)


def test_curves_of_few_values():
    data = pd.DataFrame({"x": np.tile([0.0, 1.0, 2.0], 20)})
    data["y"] = np.square(data["x"]) + 0.1 * np.random.default_rng(0).normal(size=60)
    gam = gg.GAM(s("x", bs="iou")).fit(data, "y")
    np.testing.assert_allclose(gam.predict({"x": [0.0, 1.0, 2.0]}), [0.0, 1.0, 4.0], atol=0.15)
    with pytest.raises(ValueError, match="s\\(x\\).*bs='iou' .* three values.* 2"):
        gg.GAM(s("x", bs="iou")).fit(data[data["x"] < 2.0], "y")


# --- adaptive ------------------------------------------------------------------------------------


def test_adaptive_smooths_follow_what_varies_quicker_in_places(fits):
    gam, data = fits["ad"]
    even = gg.GAM(s("x", k=60)).fit(data, "y")
    errors = [np.sqrt(np.mean((m.predict(data) - data["f"]) ** 2)) for m in (gam, even)]
    assert errors[0] < 0.85 * errors[1]
    speeds = gam.fitted.model.kernel["s(x)"].kernels[1].base.speeds.numpy()
    assert speeds[:3].max() > 3.0 * speeds[3:].max()


def test_adaptive_smooths_of_what_is_even_are_as_good():
    rng = np.random.default_rng(2)
    x = rng.uniform(size=200)
    f = np.sin(6.0 * x)
    data = pd.DataFrame({"x": x, "y": f + 0.3 * rng.normal(size=200)})
    gams = [gg.GAM(t).fit(data, "y") for t in (s("x", bs="ad"), s("x"))]
    errors = [np.sqrt(np.mean((m.predict(data) - f) ** 2)) for m in gams]
    assert errors[0] < 1.4 * errors[1]
    speeds = gams[0].fitted.model.kernel["s(x)"].kernels[1].base.speeds.numpy()
    assert speeds.max() / speeds.min() < 4.0


# --- a curve for each level, and effects of many levels ------------------------------------------

LEVELS, EACH, NOISE = 5, 30, 0.3


def deviation(x, g):
    """What each level adds, zero on average over the levels."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, LEVELS))
    a, b = a - a.mean(), b - b.mean()
    return 0.5 * a[g] + 0.8 * b[g] * np.sin(2.0 * np.pi * x)


@pytest.fixture(scope="module")
def levels():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(LEVELS), EACH)
    x = rng.uniform(size=len(g))
    f = 2.0 * x + deviation(x, g)
    data = pd.DataFrame({"x": x, "g": [f"level {i}" for i in g], "code": g, "f": f})
    return data.assign(y=f + NOISE * rng.normal(size=len(g)))


@pytest.fixture(scope="module")
def curves(levels):
    return {bs: gg.GAM(s("x") + s("x", "g", bs=bs)).fit(levels, "y") for bs in ("fs", "sz")}


def assert_exact(gam, levels, label, atol):
    """The means of an exact Gaussian process of the fitted hyperparameters: sum and component."""
    mean, _, weights = exact(gam, levels["y"])
    np.testing.assert_allclose(gam.predict(levels, "link"), mean, atol=atol)
    effect = gam.effects(label, grid=levels[["x", "g"]])["estimate"] * levels.get("z", 1.0)
    own = gam.model.kernel[label](gam.fitted.X).numpy() @ weights
    np.testing.assert_allclose(effect, own, atol=atol)


@pytest.mark.parametrize("bs", ["fs", "sz"])
def test_curves_are_those_of_an_exact_gaussian_process(levels, bs):
    gam = gg.GAM(s("x") + s("x", "g", bs=bs, k=20)).fit(levels, "y")
    assert_exact(gam, levels, "s(x,g)", 2e-3)


def test_nodes_of_many_rows_have_each_levels_share_and_mean():
    rng = np.random.default_rng(2)
    code = rng.choice(4, 900, p=[0.1, 0.2, 0.3, 0.4])
    rows = pd.DataFrame({"x": rng.normal(code), "g": code, "y": rng.normal(size=900)})
    gam = gg.GAM(s("x", "g", bs="fs", k=4)).fit(rows, "y", max_iterations=1)
    component = gam.fitted.spec.component("s(x,g)")
    nodes, weights = np.array(component.nodes), np.array(component.weights)
    assert 150 < len(nodes) <= 200
    for level, own in rows.groupby("g"):
        here = nodes[:, 1] == level
        assert weights[here].sum() == pytest.approx(len(own) / 900)
        mean = np.average(nodes[here, 0], weights=weights[here])
        assert mean == pytest.approx(own["x"].mean())


def test_deviations_sum_to_zero_over_the_levels_and_are_found(curves, levels):
    x = np.linspace(-0.2, 1.2, 9)
    grid = pd.DataFrame({"x": np.repeat(x, LEVELS), "g": np.tile(sorted(set(levels["g"])), 9)})
    result = curves["sz"].effects("s(x,g)", grid=grid)["estimate"].to_numpy().reshape(9, LEVELS)
    np.testing.assert_allclose(result.sum(axis=1), 0.0, atol=1e-4)
    inside = (x >= 0) & (x <= 1)
    truth = deviation(np.repeat(x, LEVELS), np.tile(np.arange(LEVELS), 9)).reshape(9, LEVELS)
    assert np.sqrt(np.mean((result - truth)[inside] ** 2)) < 0.5 * NOISE
    # and the main curve is that of all levels
    main = curves["sz"].effects("s(x)", grid=x[inside])
    away = main["estimate"] - 2.0 * (x[inside] - levels["x"].mean())
    assert np.sqrt(np.mean(away**2)) < 0.5 * NOISE


def test_unseen_levels(curves, levels):
    new = pd.DataFrame({"x": [0.5, 0.5], "g": ["level 1", "another"]})
    mean, se = curves["fs"].predict(new, "link", se=True, unconditional=False)
    kernel = curves["fs"].fitted.model.kernel["s(x,g)"]
    sd = np.sqrt(float(kernel.base.base.kernels[0].variance.numpy()))
    main = curves["fs"].predict(new, "link", terms=["s(x)"])
    np.testing.assert_allclose(mean[1], main[1], atol=1e-8)
    assert sd < se[1] < 1.2 * sd + se[0]
    with pytest.raises(ValueError, match="the level 'another' in row 1, never seen in the fit"):
        curves["sz"].predict(new)
    other = gg.GAM(s("x", "g", bs="fs", unseen="error")).fit(levels, "y")
    with pytest.raises(ValueError, match="never seen in the fit"):
        other.predict(new)


def test_codes_are_a_factor_by_their_place(curves, levels):
    gam = gg.GAM(s("x") + s("x", "code", bs="sz")).fit(levels, "y")
    np.testing.assert_array_equal(gam.predict(levels), curves["sz"].predict(levels))
    first = gg.GAM(s("x") + s("g", "x", bs="fs")).fit(levels, "y")
    np.testing.assert_allclose(first.predict(levels), curves["fs"].predict(levels), atol=1e-5)


def test_drawn_saved_and_in_blocks(curves, levels, tmp_path):
    gam = curves["sz"]
    again = reloaded(gam, tmp_path / "gam")
    assert again.terms == gam.terms
    np.testing.assert_array_equal(again.predict(levels), gam.predict(levels))
    axes = gam.draw("s(x,g)").axes
    assert [line.get_label() for line in axes[0].lines if line.get_label()[0] != "_"] == [
        f"level {i}" for i in range(LEVELS)
    ]
    blocks = gg.GAM(gam.terms).fit([levels[:70], levels[70:]], "y")
    np.testing.assert_allclose(blocks.predict(levels), gam.predict(levels), atol=1e-6)


@pytest.fixture(scope="module")
def varying(levels):
    """Coefficients of a number that are a curve for each level, not zero on average."""
    rng = np.random.default_rng(2)
    z = rng.normal(1.0, 1.0, len(levels))
    y = 1.0 + z * (1.5 + levels["f"]) + NOISE * rng.normal(size=len(levels))
    return levels.assign(z=z, y=y, half=np.where(np.arange(len(levels)) % 2, "u", "v"))


@pytest.mark.parametrize("bs", ["fs", "sz"])
def test_coefficients_that_are_curves(varying, bs, tmp_path):
    own = s("x", "g", bs=bs, k=20, by="z")
    terms = own if bs == "fs" else s("x", by="z") + own
    gam = gg.GAM(terms).fit(varying, "y")
    assert_exact(gam, varying, own.label, 5e-3)
    loaded = reloaded(gam, tmp_path / "gam")
    np.testing.assert_array_equal(loaded.predict(varying), gam.predict(varying))


def test_curves_of_two_factors(varying):
    """Each level of ``by`` is as a fit to its own rows, but for what is learnt together."""
    with pytest.warns(gg.MissingTermWarning, match=r"add factor\('half'\)"):
        gam = gg.GAM(s("x", "g", bs="fs", by="half")).fit(varying, "f")
    assert gam.names == ("s(x,g):half=u", "s(x,g):half=v")
    fit = gam.fitted
    K = np.asarray(fit.model.kernel["s(x,g):half=u"](fit.X))
    inside = (varying["half"] == "u").to_numpy()
    assert np.all(K[~inside] == 0.0)
    assert np.linalg.matrix_rank(K[np.ix_(inside, inside)]) > 20
    np.testing.assert_allclose(gam.predict(varying), varying["f"], atol=0.2)


def test_two_factors_have_no_curves(levels):
    with pytest.raises(ValueError, match="'g' and 'h' are both of levels"):
        gg.GAM(s("g", "h", bs="fs")).fit(levels.assign(h=levels["g"]), "y")


def test_every_one_of_many_levels_is_learnt():
    rng = np.random.default_rng(0)
    number, each = 300, 8
    g = np.repeat(np.arange(number), each)
    b = rng.normal(size=number)
    y = b[g] + 0.2 * rng.normal(size=len(g))
    data = pd.DataFrame({"g": [f"{i:03d}" for i in g], "y": y})
    gam = gg.GAM(random_effect("g")).fit(data, "y")
    shown = gam.effects("random_effect(g)", unconditional=False)
    means = data.groupby("g")["y"].mean().to_numpy()
    away = shown["estimate"] - (means - means.mean())
    assert np.abs(away - away.mean()).max() < 0.05  # shrunk by less than 1 %
    # of a level: its own rows' error and, as all share it, that of the mean of all data
    assert shown["se"].max() < 1.2 * np.hypot(0.2 / np.sqrt(each), 1.0 / np.sqrt(number))


def test_several_columns_with_a_scale_each():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.uniform(size=300), "b": 1000.0 * rng.uniform(size=300)})
    f = np.sin(6.0 * data["a"]) * np.cos(data["b"] / 500.0)
    data["y"] = f + 0.2 * rng.normal(size=300)
    with pytest.warns(gg.ScaleMismatchWarning, match="'a', which spans 0.9.*isotropic=False"):
        one = gg.GAM(s("a", "b")).fit(data, "y")
    each = gg.GAM(s("a", "b", isotropic=False)).fit(data, "y")
    both = gg.GAM(te("a", "b")).fit(data, "y")
    np.testing.assert_array_equal(each.predict(data), both.predict(data))
    error = {
        n: np.sqrt(np.mean((m.predict(data) - f) ** 2)) for n, m in (("one", one), ("each", each))
    }
    assert error["each"] < 0.08 < 0.3 < error["one"]
    lengths = each.summary().table.loc["s(a,b)", "lengthscale"]
    assert 100.0 < lengths[1] / lengths[0] < 10_000.0


SIDE, AREA_NOISE = 6, 0.4
AREAS = [f"{i}{j}" for i, j in itertools.product(range(SIDE), range(SIDE))]
BARE = ("23", "00")
"""Areas without data."""
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=float)
POLYGONS = {a: SQUARE + np.array([int(a[0]), int(a[1])]) for a in AREAS}
TRUTH = {a: np.sin(int(a[0]) / 2.0) + np.cos(int(a[1]) / 2.0) for a in AREAS}


@pytest.fixture(scope="module")
def areas():
    rng = np.random.default_rng(3)
    area = rng.choice([a for a in AREAS if a not in BARE], 120)
    truth = np.array([TRUTH[a] for a in area])
    return pd.DataFrame({"area": area, "f": truth, "y": truth + AREA_NOISE * rng.normal(size=120)})


@pytest.fixture(scope="module")
def field(areas):
    return gg.GAM(s("area", bs="mrf", polygons=POLYGONS)).fit(areas, "y")


# --- the kernel ----------------------------------------------------------------------------------


def test_structured_part_is_the_scaled_inverse_of_the_laplacian():
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3)]
    laplacian = np.zeros((4, 4))
    for i, j in edges:
        laplacian[[i, j], [i, j]] += 1.0
        laplacian[[i, j], [j, i]] -= 1.0
    expected = np.linalg.pinv(laplacian)
    expected /= np.exp(np.mean(np.log(np.diag(expected))))
    np.testing.assert_allclose(structured_covariance(4, edges), expected, atol=1e-12)


def test_parts_that_are_not_connected():
    B = structured_covariance(6, [(0, 1), (1, 2), (3, 4)])
    np.testing.assert_array_equal(B[:3, 3:], 0.0)
    np.testing.assert_array_equal(B[5], np.eye(6)[5])
    np.testing.assert_allclose(np.exp(np.mean(np.log(2.0 * np.diag(B[:3, :3]) - 1.0))), 1.0)
    np.testing.assert_allclose(B[3:5, 3:5], [[1.0, 0.0], [0.0, 1.0]], atol=1e-12)
    np.testing.assert_allclose(np.ones(3) @ B[:3, :3] @ np.ones(3), 0.5 * 9.0)
    np.testing.assert_array_equal(structured_covariance(3, []), np.eye(3))


def test_interactions_of_few_points_are_those_of_the_exact_process():
    """Every point has an inducing input: centred over margins, none follows from the others."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(14, 2)), columns=["x", "z"])
    data["y"] = np.sin(9.0 * data["x"]) * np.sin(9.0 * data["z"]) + 0.02 * rng.normal(size=14)
    gam = gg.GAM(gg.ti("x", "z", k=40, bs="ou")).fit(data, "y")
    _, se = gam.predict(data, "link", se=True, unconditional=False)
    _, sd, _ = exact(gam, gam.fitted.Y[:, 0])
    np.testing.assert_allclose(se, gam.fitted.units[0] * sd, rtol=1e-6)


def test_covariances_by_loops():
    kernel = MarkovField(4, [(0, 1), (1, 2), (2, 3)], 2.0, 0.5, active_dims=[1])
    codes, others = np.array([3, 0, 0, 2]), np.array([1, 3])
    B = structured_covariance(4, [(0, 1), (1, 2), (2, 3)])
    expected = [[2.0 * (B[i, j] + 0.5 * (i == j)) / 1.5 for j in others] for i in codes]
    X, X2 = (np.column_stack([np.full(len(c), 9.0), c.astype(float)]) for c in (codes, others))
    np.testing.assert_allclose(kernel(X, X2), expected)


# --- the term ------------------------------------------------------------------------------------


def test_areas_are_those_of_an_exact_gaussian_process(field, areas):
    mean, sd, _ = exact(field, areas["y"], np.arange(len(AREAS))[:, None].astype(float))
    result, se = field.predict({"area": AREAS}, "link", se=True, unconditional=False)
    np.testing.assert_allclose(result, mean, atol=1e-4)
    np.testing.assert_allclose(se**2, sd**2, atol=1e-4)


def test_neighbours_help_and_speak_for_areas_without_data(field, areas):
    rows = areas.drop_duplicates("area")
    alone = gg.GAM(random_effect("area")).fit(areas, "y")
    error = [np.sqrt(np.mean((m.predict(rows) - rows["f"]) ** 2)) for m in (field, alone)]
    assert error[0] < 0.75 * error[1]
    mean, se = field.predict({"area": list(BARE)}, "link", se=True)
    assert np.all(np.abs(mean - [TRUTH[a] for a in BARE]) < 2.0 * se)
    assert np.all(se > field.predict({"area": ["22"]}, "link", se=True)[1])
    assert list(field.effects("s(area)")["area"]) == AREAS


def test_independent_areas_are_told_from_smooth_ones(areas):
    rng = np.random.default_rng(1)
    effect = rng.normal(size=len(AREAS))
    codes = np.repeat(np.arange(len(AREAS)), 5)
    rough = pd.DataFrame({"area": np.array(AREAS)[codes], "y": effect[codes]})
    rough["y"] += 0.3 * rng.normal(size=len(codes))
    ratios = []
    for rows in (areas, rough):
        fit = gg.GAM(s("area", bs="mrf", polygons=POLYGONS)).fit(rows, "y").fitted
        ratios.append(float(fit.model.kernel["s(area)"].base.independent.numpy()))
    assert ratios[1] > 2.0 * ratios[0]


def test_ways_to_say_who_are_neighbours(field):
    near = {
        a: [b for b in AREAS if b != a and max(abs(int(a[k]) - int(b[k])) for k in (0, 1)) == 1]
        for a in AREAS
    }
    by_mapping = s("area", bs="mrf", neighbours=near)
    assert dict(by_mapping.neighbours) == dict(field.terms[0].neighbours)
    matrix = pd.DataFrame(0, index=AREAS, columns=AREAS)
    for a, own in near.items():
        matrix.loc[a, own] = 1
    assert s("area", bs="mrf", neighbours=matrix.loc[:, AREAS[::-1]]) == by_mapping
    holes = {a: np.concatenate([SQUARE + 9.0 * i, [[np.nan, np.nan]], SQUARE + 30.0])
             for i, a in enumerate("ab")}  # fmt: skip
    assert s("area", bs="mrf", polygons=holes).edges == ((0, 1),)
    text = f"y ~ s(area, bs='mrf', neighbours={near})"
    assert parse_formula(text).terms == Terms([by_mapping])
    assert repr(by_mapping) == "s('area', bs='mrf', neighbours=<of 36 areas>)"


@pytest.mark.slow
def test_drawn_saved_served_and_in_blocks(field, areas, tmp_path):
    figure = field.draw()
    result = [c for ax in figure.axes for c in ax.collections if c.get_gid() == "areas"]
    assert [len(c.get_paths()) for c in result] == [len(AREAS)] * 2
    np.testing.assert_allclose(result[0].get_array(), field.effects("s(area)")["estimate"])
    assert any(c.get_gid() == "without data" for ax in figure.axes for c in ax.collections)
    rows = {"area": [*AREAS, *BARE]}
    again = reloaded(field, tmp_path / "gam")
    assert again.terms == field.terms
    np.testing.assert_array_equal(again.predict(rows), field.predict(rows))
    gg.serving.export(field, tmp_path / "served")
    served = gg.serving.load(tmp_path / "served").predict(rows)
    np.testing.assert_allclose(np.ravel(served["mean"]), field.predict(rows), atol=1e-9)
    blocks = gg.GAM(field.terms).fit([areas[:60], areas[60:]], "y")
    np.testing.assert_allclose(blocks.predict(rows), field.predict(rows), atol=1e-6)


def test_updates_take_areas_that_had_no_data(areas):
    gam = gg.GAM(s("area", bs="mrf", polygons=POLYGONS)).fit(areas, "y")
    before = gam.predict({"area": [BARE[0]]}, "link", se=True)[1]
    gam.update(pd.DataFrame({"area": [BARE[0]] * 30, "y": [3.0] * 30}))
    mean, se = gam.predict({"area": [BARE[0]]}, "link", se=True)
    assert abs(mean - 3.0) < 0.3
    assert se < 0.5 * before


def test_coefficients_that_vary_over_areas(areas):
    """A level of their own included, and those of areas without data too."""
    rng = np.random.default_rng(1)
    z = rng.normal(1.0, 1.0, len(areas))
    y = 2.0 + z * (3.0 + areas["f"]) + AREA_NOISE * rng.normal(size=len(areas))
    term = s("area", bs="mrf", polygons=POLYGONS, by="z")
    gam = gg.GAM(term).fit(areas.assign(z=z, y=y), "y")
    np.testing.assert_allclose(gam.predict(areas.assign(z=z)), exact(gam, y)[0], atol=1e-3)
    assert "by='z'" in repr(term)
    gam.draw()


PAIR = {"a": ["b"], "b": ["a"]}
EDGES = pd.DataFrame({"a": [0, 1], "b": [1, 0]}, index=["a", "b"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: s("x", bs="sos"), "takes latitude and longitude"),
        (lambda: s("x", "y", bs="sos", isotropic=False), "share one lengthscale"),
        (lambda: s("x", "y", bs="rw"), "bs='rw' is for one column"),
        (lambda: s("x", "y", bs="iou"), "bs='iou' is for one column"),
        (lambda: s("x", "y", bs="ou"), "bs='ou' is for one column; use te"),
        (lambda: s("x", bs="ad", period=2.0), "needs bs='cyclic'"),
        (lambda: te("x", "y", bs="sos"), "bs must be one of se, .*, ou; got 'sos'"),
        (lambda: te("x", "y", bs=("rw", "se")), "got 'rw'"),
        (lambda: s("x", bs="sows"), "fs, sz, mrf, re; got 'sows'"),
        (lambda: s("x", bs="fs"), "takes a number and a factor"),
        (lambda: s("x", "z", "g", bs="sz"), "got 3 column"),
        (lambda: s("x", "g", bs="sz", unseen="no"), "unseen must be 'error', 'prior' or None"),
        (lambda: s("x", unseen="prior"), "bs='matern52' takes no unseen"),
        (lambda: s("x", bs="mrf"), "needs neighbours="),
        (lambda: s("x", neighbours=PAIR), "bs='matern52' takes no neighbours"),
        (lambda: s("x", bs="mrf", neighbours={"a": ["b"], "b": []}), "be mutual; 'a'"),
        (
            lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": SQUARE + 7.0}),
            "no two polygons share a corner",
        ),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": [1, 2]}), "\\[n, 2\\]"),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": "no"}), "corners of 'b'"),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE, "b": SQUARE[:2]}), "2 corner"),
        (lambda: s("x", bs="mrf", polygons={"a": SQUARE}), "at least two areas; got 1"),
        (lambda: s("x", bs="mrf", neighbours=EDGES.assign(c=0)), "got .*'b', 'c'"),
        (lambda: s("x", bs="mrf", neighbours=EDGES.set_axis(["a", "a"])), "each once"),
        (lambda: s("x", bs="mrf", neighbours=2 * EDGES), "must be zeros and ones"),
    ],
)
def test_terms_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_areas_that_are_not_known(field, areas):
    with pytest.raises(ValueError, match="the level '99' in row 0, never seen"):
        field.predict({"area": ["99"]})
    other = gg.GAM(s("area", bs="mrf", neighbours=PAIR))
    with pytest.raises(ValueError, match="'01', which is none of the areas .* they are 'a', 'b'"):
        other.fit(areas, "y")
    codes = areas.assign(area=areas["area"].astype(int))
    with pytest.raises(ValueError, match="areas are {'str'}, the column has {'int'}"):
        gg.GAM(field.terms).fit(codes, "y")
    both = gg.GAM(field.terms + factor("area"))
    with pytest.raises(ValueError, match="such as '00', of which factor\\(area\\) knows nothing"):
        both.fit(areas, "y")


def lattice(seed: int, side: int = 7) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """One row an area, whose effects are smooth, and noise as large as they are."""
    i, j = np.divmod(np.arange(side**2), side)
    near = np.abs(i[:, None] - i) + np.abs(j[:, None] - j) == 1
    names = [f"a{n}" for n in range(side**2)]
    rng = np.random.default_rng(seed)
    effect = 2.0 * np.sin(6.0 * i / side + 0.3) * np.cos(5.0 * j / side)
    data = pd.DataFrame({"area": names, "effect": effect})
    data["y"] = effect + rng.normal(size=side**2)
    return data, {names[a]: [names[b] for b in np.flatnonzero(near[a])] for a in range(side**2)}


@pytest.mark.parametrize("seed", range(2))
def test_areas_of_one_row_each_are_smoothed_and_not_interpolated(seed):
    """Independent effects of data are noise there, and had taken all of it."""
    data, neighbours = lattice(seed, side=12)
    gam = gg.GAM(s("area", bs="mrf", neighbours=neighbours)).fit(data, "y")
    assert 0.3 < float(gam.model.likelihood.variance.numpy()) < 2.5
    (edf,) = gam.summary().table["edf"]
    assert 10.0 < edf < 100.0  # of 143
    error = np.square(gam.predict(data) - data["effect"]).mean()
    assert error < 0.6 * np.square(data["y"] - data["effect"]).mean()
    twice = pd.concat([data, data.assign(y=data["effect"])], ignore_index=True)
    again = gg.GAM(s("area", bs="mrf", neighbours=neighbours)).fit(twice, "y")
    assert [c.independent for c in again.fitted.spec.effects] == [True]
    assert [c.independent for c in gam.fitted.spec.effects] == [False]


def test_areas_that_are_interpolated_all_the_same_are_warned_of():
    """As where effects of neighbours have next to nothing in common."""
    data, neighbours = lattice(0, side=5)
    checks = data.assign(y=np.where(np.arange(25) % 2, 1.0, -1.0) + 0.01 * data["y"])
    pairs = {a: [f"a{(int(a[1:]) + 2) % 25}", f"a{(int(a[1:]) - 2) % 25}"] for a in neighbours}
    with pytest.warns(gg.IdentifiabilityWarning, match="one row an area and goes through nearly"):
        gg.GAM(s("area", bs="mrf", neighbours=pairs)).fit(checks, "y")
