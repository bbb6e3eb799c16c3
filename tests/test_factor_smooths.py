"""A curve for each level, and effects of many levels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from problems import exact

import gpflow_gam as gg
from gpflow_gam import random_effect, s, te

LEVELS, EACH, NOISE = 5, 30, 0.3


def deviation(x, g):
    """What each level adds, zero on average over the levels."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, LEVELS))
    a, b = a - a.mean(), b - b.mean()
    return 0.5 * a[g] + 0.8 * b[g] * np.sin(2.0 * np.pi * x)


def make(seed=0):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(LEVELS), EACH)
    x = rng.uniform(size=len(g))
    f = 2.0 * x + deviation(x, g)
    data = pd.DataFrame({"x": x, "g": [f"level {i}" for i in g], "code": g, "f": f})
    return data.assign(y=f + NOISE * rng.normal(size=len(g)))


@pytest.fixture(scope="module")
def data():
    return make()


@pytest.fixture(scope="module")
def fits(data):
    return {bs: gg.GAM(s("x") + s("x", "g", bs=bs)).fit(data, "y") for bs in ("fs", "sz")}


def assert_exact(gam, data, label, atol):
    """The means of an exact Gaussian process of the fitted hyperparameters: sum and component."""
    mean, _, weights = exact(gam, data["y"])
    np.testing.assert_allclose(gam.predict(data, "link"), mean, atol=atol)
    effect = gam.effects(label, grid=data[["x", "g"]])["estimate"] * data.get("z", 1.0)
    own = gam.model.kernel[label](gam.fitted.X).numpy() @ weights
    np.testing.assert_allclose(effect, own, atol=atol)


@pytest.mark.parametrize("bs", ["fs", "sz"])
def test_posterior_is_that_of_an_exact_gaussian_process(data, bs):
    gam = gg.GAM(s("x") + s("x", "g", bs=bs, k=20)).fit(data, "y")
    assert_exact(gam, data, "s(x,g)", 2e-3)


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


def test_deviations_sum_to_zero_over_the_levels_and_are_found(fits, data):
    x = np.linspace(-0.2, 1.2, 9)
    grid = pd.DataFrame({"x": np.repeat(x, LEVELS), "g": np.tile(sorted(set(data["g"])), 9)})
    result = fits["sz"].effects("s(x,g)", grid=grid)["estimate"].to_numpy().reshape(9, LEVELS)
    np.testing.assert_allclose(result.sum(axis=1), 0.0, atol=1e-4)
    inside = (x >= 0) & (x <= 1)
    truth = deviation(np.repeat(x, LEVELS), np.tile(np.arange(LEVELS), 9)).reshape(9, LEVELS)
    assert np.sqrt(np.mean((result - truth)[inside] ** 2)) < 0.5 * NOISE
    # and the main curve is that of all levels
    main = fits["sz"].effects("s(x)", grid=x[inside])
    away = main["estimate"] - 2.0 * (x[inside] - data["x"].mean())
    assert np.sqrt(np.mean(away**2)) < 0.5 * NOISE


def test_unseen_levels(fits, data):
    new = pd.DataFrame({"x": [0.5, 0.5], "g": ["level 1", "another"]})
    mean, se = fits["fs"].predict(new, "link", se=True, unconditional=False)
    kernel = fits["fs"].fitted.model.kernel["s(x,g)"]
    sd = np.sqrt(float(kernel.base.base.kernels[0].variance.numpy()))
    main = fits["fs"].predict(new, "link", terms=["s(x)"])
    np.testing.assert_allclose(mean[1], main[1], atol=1e-8)
    assert sd < se[1] < 1.2 * sd + se[0]
    with pytest.raises(ValueError, match="the level 'another' in row 1, never seen in the fit"):
        fits["sz"].predict(new)
    other = gg.GAM(s("x", "g", bs="fs", unseen="error")).fit(data, "y")
    with pytest.raises(ValueError, match="never seen in the fit"):
        other.predict(new)


def test_codes_are_a_factor_by_their_place(fits, data):
    gam = gg.GAM(s("x") + s("x", "code", bs="sz")).fit(data, "y")
    np.testing.assert_array_equal(gam.predict(data), fits["sz"].predict(data))
    first = gg.GAM(s("x") + s("g", "x", bs="fs")).fit(data, "y")
    np.testing.assert_allclose(first.predict(data), fits["fs"].predict(data), atol=1e-5)


def test_drawn_saved_and_in_blocks(fits, data, tmp_path):
    gam = fits["sz"]
    gam.save(tmp_path / "gam")
    again = gg.GAM.load(tmp_path / "gam")
    assert again.terms == gam.terms
    np.testing.assert_array_equal(again.predict(data), gam.predict(data))
    axes = gam.draw("s(x,g)").axes
    assert [line.get_label() for line in axes[0].lines if line.get_label()[0] != "_"] == [
        f"level {i}" for i in range(LEVELS)
    ]
    blocks = gg.GAM(gam.terms).fit([data[:70], data[70:]], "y")
    np.testing.assert_allclose(blocks.predict(data), gam.predict(data), atol=1e-6)


@pytest.fixture(scope="module")
def varying(data):
    """Coefficients of a number that are a curve for each level, not zero on average."""
    rng = np.random.default_rng(2)
    z = rng.normal(1.0, 1.0, len(data))
    y = 1.0 + z * (1.5 + data["f"]) + NOISE * rng.normal(size=len(data))
    return data.assign(z=z, y=y, half=np.where(np.arange(len(data)) % 2, "u", "v"))


@pytest.mark.parametrize("bs", ["fs", "sz"])
def test_coefficients_that_are_curves(varying, bs, tmp_path):
    own = s("x", "g", bs=bs, k=20, by="z")
    terms = own if bs == "fs" else s("x", by="z") + own
    gam = gg.GAM(terms).fit(varying, "y")
    assert_exact(gam, varying, own.label, 5e-3)
    gam.save(tmp_path / "gam")
    loaded = gg.GAM.load(tmp_path / "gam")
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: s("x", bs="fs"), "takes a number and a factor"),
        (lambda: s("x", "z", "g", bs="sz"), "got 3 column"),
        (lambda: s("x", "g", bs="sz", unseen="no"), "unseen must be 'error', 'prior' or None"),
        (lambda: s("x", unseen="prior"), "bs='se' takes no unseen"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_two_factors_have_no_curves(data):
    with pytest.raises(ValueError, match="'g' and 'h' are both of levels"):
        gg.GAM(s("g", "h", bs="fs")).fit(data.assign(h=data["g"]), "y")


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
    # of a level: its own rows' error and, as all share it, that of the mean of all levels
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
