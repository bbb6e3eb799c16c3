"""Smooths on the globe, of what is left in time, and that vary quicker in places."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from problems import exact

import gpflow_gam as gg
from gpflow_gam import factor, s, te

NUMBER = 200


def globe(seed=0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(NUMBER, 3))
    u /= np.linalg.norm(u, axis=1)[:, None]
    f = np.sin(2.0 * u[:, 0]) + u[:, 1] * u[:, 2]
    lat, lon = np.rad2deg([np.arcsin(u[:, 2]), np.arctan2(u[:, 1], u[:, 0])])
    return pd.DataFrame({"lat": lat, "lon": lon, "f": f}), 0.3


def memory(seed=0, rho=0.8):
    rng = np.random.default_rng(seed)
    t, e = np.arange(float(NUMBER)), rng.normal(size=NUMBER)
    for i in range(1, NUMBER):
        e[i] = rho * e[i - 1] + np.sqrt(1.0 - rho**2) * e[i]
    return pd.DataFrame({"t": t, "f": e}), 0.3


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


def test_averages_to_zero_over_the_data(fit):
    gam, data = fit
    name = gam.names[-1]
    columns = [c for c in data.columns if c not in "fy"]
    shown = gam.effects(name, grid=data[columns])["estimate"]
    assert abs(shown.mean()) < 0.05 * shown.std()


def test_saved_and_drawn(fit, tmp_path):
    gam, data = fit
    rows = data[[c for c in data.columns if c not in "fy"]]
    gam.save(tmp_path / "gam")
    again = gg.GAM.load(tmp_path / "gam")
    np.testing.assert_array_equal(again.predict(rows), gam.predict(rows))
    assert gam.draw().axes


# --- the globe -----------------------------------------------------------------------------------


def test_no_seam_and_one_pole(fits):
    gam, data = fits["sos"]
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


@pytest.mark.slow
def test_memory_is_learnt_beside_a_trend():
    result = {}
    for rho in (0.5, 0.9):
        data, noise = memory(3, rho)
        data["trend"] = 3.0 * np.sin(data["t"] / 40.0)
        rng = np.random.default_rng(5)
        data["y"] = data["trend"] + data["f"] + noise * rng.normal(size=NUMBER)
        gam = gg.GAM(s("t") + s("t", bs="ou")).fit(data, "y")
        length = gam.summary().table.loc["s(t,ou)", "lengthscale"][0]
        result[rho] = np.exp(-1.0 / length)
        assert list(gam.names) == ["s(t)", "s(t,ou)"]
        alone = gg.GAM(s("t")).fit(data, "y")
        left = [np.asarray(data["y"] - m.predict(data, "link")) for m in (alone, gam)]
        correlation = [np.corrcoef(e[:-1], e[1:])[0, 1] for e in left]
        # beyond chance, of which twice the deviation is this
        assert correlation[0] > 2.0 / np.sqrt(NUMBER) > 0.1 > correlation[1]
    assert result[0.5] < 0.75 < result[0.9]


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


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_trend_and_what_lasts_are_told_apart(seed):
    """Evidence for both, where a search can go past the variance of one of them to nothing."""
    rng = np.random.default_rng(seed)
    e = [rng.normal()]
    for _ in range(239):
        e.append(0.9 * e[-1] + np.sqrt(1.0 - 0.81) * rng.normal())
    t, season = np.arange(240) / 12.0, 3.0 * np.sin(np.pi * np.arange(240) / 6.0)
    y = 1.2 * t + 0.02 * t**2 + season + 0.5 * np.array(e) + 0.2 * rng.normal(size=240)
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


def test_curves_have_slopes(fits):
    gam, _ = fits["iou"]
    x = np.linspace(0.1, 0.9, 9)
    shown = gam.derivatives("s(x)", grid=x)
    assert np.mean(np.abs(shown["estimate"] - 8.0 * (x - 0.5)) < 1.96 * shown["se"]) > 0.7


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
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_no_slopes_of_what_is_rough(fits):
    with pytest.raises(ValueError, match="bs='rw', whose draws have no slope"):
        fits["rw"][0].derivatives("s(t,rw)")
