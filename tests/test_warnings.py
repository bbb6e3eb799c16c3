"""What fits and predictions warn of: once each, with the remedy, and sane models not at all."""

import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
from problems import autocorrelated

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te, ti


def make(n=300, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(size=n)
    data = pd.DataFrame({"a": a, "z": rng.normal(size=n), "g": rng.choice(list("pqr"), n)})
    data["b"] = 2.0 * a
    data["near"] = 1e-3 * (a + 0.01 * rng.normal(size=n)) + 5.0
    data["akin"] = a + 0.3 * rng.normal(size=n)
    data["square"] = a**2
    data["wave"] = np.sin(9.0 * a)
    data["h"] = data["g"].map({"p": "1", "q": "2", "r": "3"})
    data["coarse"] = data["g"].map({"p": "1", "q": "2", "r": "2"})
    data["who"] = [f"w{i}" for i in rng.integers(0, 200, n)]
    data["what"] = [f"t{i}" for i in rng.integers(0, 200, n)]
    data["y"] = np.sin(5.0 * a) + 0.3 * data["z"] + 0.3 * rng.normal(size=n)
    data["count"] = rng.poisson(np.exp(data["y"]))
    return data


def said(act, *kinds):
    """The texts of our warnings of these kinds; any other of ours fails."""
    ours = tuple(getattr(gg, n) for n in gg.__all__ if n.endswith("Warning"))
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        act()
    mine = [w for w in result if issubclass(w.category, ours)]
    assert all(issubclass(w.category, kinds) for w in mine), [str(w.message) for w in mine]
    assert all(w.filename == __file__ for w in mine)
    return [str(w.message) for w in mine]


def fit(terms, data=None, family="gaussian", y="y", **options):
    data = make() if data is None else data
    return lambda: gg.GAM(terms, family).fit(data, y, **options)


SANE = {
    "common": s("a") + s("z") + factor("g"),
    "akin": s("a") + s("akin") + linear("z"),
    "polynomial": linear("a") + linear("square"),
    "two scales": s("a") + s("a", "z"),
    "not the other way": s("a") + s("wave"),
    "interaction": s("a") + s("z") + ti("a", "z"),
    "surface": te("a", "z") + factor("g"),
    "curves": s("a", by=factor("g")) + factor("g"),
    "curves in a surface": s("a", by=factor("g")) + te("z", "g"),
    "curves of random levels": s("a", by="g") + random_effect("g"),
    "nested": factor("coarse") + random_effect("g"),
    "crossed": random_effect("who") + random_effect("what"),
    "varying": s("a", by="z") + s("b"),
    "two predictors": {"mean": s("a") + factor("g"), "scale": s("square") + factor("h")},
}


@pytest.mark.parametrize("name", SANE)
def test_sane_models_are_left_in_peace(name):
    assert said(fit(SANE[name])) == []


UNDETERMINED = "the data do not determine linear(z): s(a):z holds it as well."
COPIES, ONE = " are functions of the same thing", "drop one of the two"


@pytest.mark.parametrize(
    ("terms", "start", "remedy"),
    [
        (s("a") + s("z") + s("b"), f"s(a) and s(b){COPIES}", ONE),
        (s("a") + s("near"), f"s(a) and s(near){COPIES}", ONE),
        (s("a") + s("square"), f"s(a) and s(square){COPIES}", ONE),
        (linear("a") + linear("b"), f"linear(a) and linear(b){COPIES}", ONE),
        (factor("g") + factor("h"), f"factor(g) and factor(h){COPIES}", ONE),
        (factor("g") + random_effect("h"), f"factor(g) and random_effect(h){COPIES}", ONE),
        (s("a", by="z") + s("b", by="z"), f"s(a):z and s(b):z{COPIES}", ONE),
        (s("a") + linear("a"), "s(a) and linear(a) are of the same column", "Drop the line"),
        (factor("g") + random_effect("g"), "factor(g) and random_effect(g) ", "Drop one of the"),
        # whose reason had been sought in the responses
        (linear("z") + s("a", by="z"), UNDETERMINED, ""),
    ],
)
def test_terms_that_hold_the_same_are_named(terms, start, remedy):
    (text,) = said(fit(terms), gg.IdentifiabilityWarning)
    assert text.startswith(start)
    assert remedy in text


def test_a_level_for_every_row_is_noise():
    data = make(120).assign(row=np.arange(120))
    terms = s("a", k=6) + random_effect("row")
    (text,) = said(fit(terms, data), gg.IdentifiabilityWarning)
    assert text.startswith("random_effect(row) has a level for every row")
    # of counts it is overdispersion, and two rows a level tell it from noise
    assert said(fit(terms, data, "poisson", "count")) == []
    assert said(fit(terms, data.assign(row=np.arange(120) // 2))) == []
    weights = gg.GAM(terms, weights="w")
    assert said(lambda: weights.fit(data.assign(w=2.0), "y")) == []


def test_terms_of_one_column_that_are_not_the_same():
    varying = s("a", by="z")
    for terms in (s("a", bs="cyclic") + linear("a"), varying + s("a"), linear("a") + varying):
        assert said(fit(terms)) == []
    both = {"mean": s("a") + factor("g"), "scale": linear("a") + random_effect("g")}
    assert said(fit(both)) == []


@pytest.mark.parametrize("names", [("hour",), ("hour", "z")])
def test_the_ends_of_whole_numbers_in_a_circle(names):
    """Hour 23 is hour 0 where the period is the range."""
    data = make().assign(hour=np.arange(300) % 24)

    def circle(period=None):
        if len(names) == 1:
            return s(*names, bs="cc", k=8, period=period, by=factor("g")) + factor("g")
        return te(*names, bs=("cc", None), k=5, period=period)

    (text,) = said(fit(circle(), data), gg.IdentifiabilityWarning)
    assert "joins the ends of 'hour': 0 and 23 are one point" in text
    assert "period=24" in text
    for period, rows in ((24, data), (23, data), (None, data.assign(hour=data["hour"] + 0.5))):
        assert said(fit(circle(period), rows)) == []


def test_circles_of_columns_of_arrays(rng):
    """A term of lags has no values of one column that could be whole numbers."""
    lags, weights = np.tile(np.arange(12.0), (120, 1)), rng.normal(size=(120, 12))
    gam = gg.GAM(s("lag", by="weight", bs="cc"))
    gam.fit({"lag": lags, "weight": weights, "y": rng.normal(size=120)}, "y")
    assert gam.is_fitted


def test_curves_by_level_without_the_levels_means():
    terms = s("a", k=6, by=factor("g")) + s("z", k=6, by="g")
    (text,) = said(fit(terms), gg.MissingTermWarning)
    assert "s(a):g" in text
    assert "add factor('g')" in text
    curves = s("a", k=6, by=factor("g"))
    (text,) = said(fit({"mean": curves, "scale": factor("g")}), gg.MissingTermWarning)
    assert text.startswith("mean:s(a):g")
    assert said(fit({"mean": curves + factor("g"), "scale": linear("z")})) == []


def test_a_fit_that_ends_early():
    (text,) = said(
        fit(s("a"), family="poisson", y="count", max_iterations=1), gg.ConvergenceWarning
    )
    assert "limit of 1 reached" in text
    assert "max_iterations" in text


def test_predictions_far_outside_are_told_once_a_column():
    data = make()
    gam = gg.GAM(s("a", k=6) + linear("z") + s("z", bs="cyclic", period=9.0)).fit(data, "y")
    near = pd.DataFrame({"a": [-0.2, 1.2], "z": [0.0, data["z"].max() + 0.5]})
    assert said(lambda: gam.predict(near)) == []
    far = pd.DataFrame({"a": [0.5, 8.0, -3.0], "z": [0.0, 0.0, -1e3]})
    first, second = said(lambda: gam.predict(far), gg.ExtrapolationWarning)
    assert "column 'a' is predicted at 8, far outside the data of the fit, 0.00" in first
    assert "s(a): the function returns to its straight part" in first
    assert "column 'z' is predicted at -1000" in second
    assert "the line goes on" in second
    for again in (gam.predict, gam.sample):
        assert said(lambda again=again: again(far)) == []
    fresh = gg.GAM(s("a", k=6)).fit(data, "y")
    assert len(said(lambda: fresh.sample(far, 2), gg.ExtrapolationWarning)) == 1
    scored = gg.GAM(s("a", k=6)).fit(data, "y")
    held_out = far.assign(y=0.0)
    assert len(said(lambda: scored.log_density(held_out), gg.ExtrapolationWarning)) == 1


def test_a_level_has_a_range_of_its_own():
    data = make()
    data["a"] += 10.0 * (data["g"] == "r")
    gam = gg.GAM(s("a", k=5, by=factor("g")) + factor("g")).fit(data, "y")
    assert said(lambda: gam.predict(pd.DataFrame({"a": [10.5, 0.5], "g": ["r", "p"]}))) == []
    (text,) = said(
        lambda: gam.predict(pd.DataFrame({"a": [10.5], "g": ["p"]})), gg.ExtrapolationWarning
    )
    assert "s(a):g=p" in text


def test_scikit_learns_own_class_is_said_alone():
    from sklearn.exceptions import ConvergenceWarning

    data = make()
    model = gg.sklearn.GAMRegressor(family="poisson", max_iterations=1)
    assert said(lambda: model.fit(data[["a"]], data["count"])) == []
    with pytest.warns(ConvergenceWarning, match="raise max_iterations"):
        model.fit(data[["a"]], data["count"])


def test_means_that_are_made_by_a_tail():
    rng = np.random.default_rng(50)
    data = pd.DataFrame({"x": rng.normal(size=60), "count": rng.poisson(2.0, 60)})
    gam = gg.GAM(linear("x"), "negative_binomial").fit(data, "count")
    assert said(lambda: gam.predict(data)) == []
    data.loc[7, "x"] = 100.0  # a line goes on, and its error with it
    median, sd = (np.asarray(a) for a in gam.predict(data, "link", se=True, unconditional=False))
    assert np.max(sd) > 3.0
    worst = int(np.argmax(sd))
    (text,) = said(lambda: gam.predict(data), gg.HeavyTailWarning)
    expected = gam.predict(data)[worst]
    assert f"expected response, {expected:.3g} where the median is" in text
    assert expected > 50.0 * np.exp(median[worst])
    assert said(lambda: gam.predict(data)) == []  # once a fit
    # what overflows is infinite, and not NaN
    predictors = np.array([[0.0], [1.0]]), np.array([[1e4], [1e6]])
    mean, sd = gg.likelihoods.predictive.summarised_response(
        gam.fitted.likelihood, np.zeros((2, 1)), *predictors
    )[:2]
    assert not np.any(np.isnan([mean, sd]))
    assert np.all(np.isinf(sd))


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(51)
    data = pd.DataFrame({"x": rng.uniform(size=80), "g": rng.choice(["a", "b"], 80)})
    data["count"] = rng.poisson(np.exp(1.0 + np.sin(5.0 * data["x"])))
    data["yes"] = rng.uniform(size=80) < 0.5
    data["y"] = rng.normal(size=80)
    return data


def fits(data):
    terms = s("x", k=6) + factor("g")
    yield gg.GAM(terms, "poisson").fit(data, "count")
    yield gg.GAM(terms, gg.families.NegativeBinomial(link="sqrt")).fit(data, "count")
    yield gg.GAM(terms, "bernoulli").fit(data, "yes")
    yield gg.GAM(terms).fit(data, "y")


OTHER = ["lognormal", "zero_inflated_poisson", gg.families.Gamma("inverse")]


@pytest.mark.parametrize("family", [*OTHER, gpflow.likelihoods.Poisson()])
@pytest.mark.filterwarnings("ignore::gpflow_gam.ExtrapolationWarning")
def test_tails_of_other_families(counts, family):
    data = counts.assign(size=1.0 + counts["count"])
    positive = family == "lognormal" or isinstance(family, gg.families.Gamma)
    gam = gg.GAM(s("x", k=6), family).fit(data, "size" if positive else "count")
    with pytest.warns(gg.HeavyTailWarning, match="se is NaN"):
        se = gam.predict(pd.DataFrame({"x": [0.5, 12.0]}), interval=0.9)["se"]
    assert np.isnan(se).tolist() == [False, True]


FAR = pd.DataFrame({"x": [0.5, 9.0], "g": "a"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gpflow_gam.ExtrapolationWarning")
def test_standard_errors_that_a_tail_would_make(counts):
    """One rule wherever responses have standard errors: a log link, and 1 for the predictor's."""
    gam, *others = fits(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gg.HeavyTailWarning)  # of the mean, once a fit
        gam.predict(FAR)
    sd = gam.predict(FAR, "link", se=True)[1]
    assert sd[0] < 1.0 < sd[1]
    calls = {
        "se": lambda m: m.predict(FAR, se=True)[1],
        "interval": lambda m: m.predict(FAR, interval=0.9)["se"],
        "observation": lambda m: m.predict(FAR, "observation", se=True)[1],
        "effects": lambda m: m.effects("s(x)", FAR["x"], scale="response")["se"],
        "dependence": lambda m: m.partial_dependence("x", FAR["x"])["se"],
        "predictions": lambda m: m.avg_predictions(by="x", data=FAR)["se"],
        "comparisons": lambda m: m.avg_comparisons({"x": (0.4, 0.5, 9.0)})["se"],
    }
    for name, call in calls.items():
        texts = said(lambda call=call: call(gam), gg.HeavyTailWarning)
        assert len(texts) == 1, name
        assert "se is NaN where the expected response has no standard error" in texts[0]
        assert "Read the interval" in texts[0]
        with pytest.warns(gg.HeavyTailWarning):
            se = np.asarray(call(gam))
        assert np.isfinite(se[0]), name
        assert np.isnan(se[1]), name
        for other in others:  # without such a tail
            assert np.all(np.isfinite(call(other))), (name, other.family)
    # no interval is lost
    with pytest.warns(gg.HeavyTailWarning):
        frame = gam.predict(FAR, interval=0.9)
    assert np.all(np.isfinite(frame[["estimate", "lower", "upper"]]))
    # of normal averages about zero, by any link
    with pytest.warns(gg.HeavyTailWarning, match="a ratio whose denominator may be near zero"):
        ratio = others[2].avg_comparisons({"x": (9.0, 0.5)}, comparison="ratio", scale="link")
    assert np.isnan(ratio["se"].item())
    # what is asked of the mean or the predictor alone says nothing
    assert said(lambda: (gam.predict(FAR), gam.predict(FAR, "link", se=True))) == []


def test_the_rule_is_a_standard_deviation_of_one_behind_a_log_link(counts):
    gam, *_ = fits(counts)
    rows = pd.DataFrame({"x": np.linspace(0.0, 4.0, 81), "g": "a"})
    with warnings.catch_warnings(action="ignore"):
        sd = gam.predict(rows, "link", se=True)[1]
        se = gam.predict(rows, se=True)[1]
        known = gam.predict(rows, se=True, unconditional=False)[1]
    np.testing.assert_array_equal(np.isnan(se), sd > 1.0)
    assert np.isnan(known).sum() < np.isnan(se).sum()


def in_time(rho, n=400, seed=0):
    """A wave in ``t``, known up to noise in which a share ``rho`` of the last row's is left."""
    rng = np.random.default_rng(seed)
    noise = autocorrelated(rng, n, rho)
    t, x = np.arange(n), rng.uniform(size=n)
    f = np.sin(6.0 * t / n) + x
    data = pd.DataFrame({"t": t, "x": x, "gaussian": f + 0.5 * noise})
    data["poisson"] = rng.poisson(np.exp(1.0 + f + (0.7 * noise if rho else 0.0)))
    return data.sample(frac=1.0, random_state=seed)  # rows need no order


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_noise_that_lasts_is_named_along_its_column(family):
    for seed in range(3):
        lasting, independent = (
            fit(s("t") + s("x"), in_time(rho, seed=seed), family, family) for rho in (0.6, 0.0)
        )
        *_, heard = said(lasting, gg.DispersionWarning, gg.AutocorrelationWarning)
        assert "'t'" in heard
        assert "bs='ou'" in heard
        assert not said(independent)


@pytest.mark.slow
def test_correlation_of_neighbours_is_that_of_residuals_in_order():
    data = in_time(0.5)
    with warnings.catch_warnings(action="ignore", category=gg.AutocorrelationWarning):
        gam = gg.GAM("gaussian ~ s(t) + s(x)").fit(data)
        remedied = gg.GAM("gaussian ~ s(t) + s(x) + s(t, bs='ou')").fit(data)
    error = (data["gaussian"] - gam.predict(data)).to_numpy()[np.argsort(data["t"])]
    expected = 2.0 * error[1:] @ error[:-1] / (error[1:] @ error[1:] + error[:-1] @ error[:-1])
    shown = gam.summary()
    assert shown.autocorrelations["t"] == pytest.approx(expected, abs=1e-6)
    assert f"t {expected:.2f}" in str(shown)
    assert abs(remedied.summary().autocorrelations["t"]) < 0.15 < shown.autocorrelations["t"]
    with warnings.catch_warnings():  # whose standard errors allow for it
        warnings.simplefilter("error", gg.AutocorrelationWarning)
        blocks = gg.GAM("gaussian ~ s(t) + s(x)")
        blocks.fit(data, criterion="ncv", groups=(data["t"] // 20).to_numpy())
    assert blocks.summary().autocorrelations["t"] > 0.15
