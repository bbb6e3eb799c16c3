"""The front door: fits, predictions, and what has to be equal by two routes."""

import datetime

import numpy as np
import pandas as pd
import problems
import pytest
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te, ti

QUICK = {"max_iterations": 12}


DATA = problems.table()


TERMS = s("x", k=8) + linear("z") + factor("g")


@pytest.fixture(scope="module")
def gaussian():
    return gg.GAM(TERMS).fit(DATA, y="y")


@pytest.fixture(scope="module")
def poisson():
    return gg.GAM(TERMS, family="poisson", offset="log_e").fit(DATA, y="count")


@pytest.fixture(scope="module")
def softmax():
    terms = s("x", k=6) + linear("z") + factor("g")
    return gg.GAM(terms, family="categorical").fit(DATA, y="kind", **QUICK)


# --- predictions ---------------------------------------------------------------------------------


def test_link_interval_is_normal_and_response_interval_its_image(poisson):
    link = poisson.predict(DATA, type="link", interval=0.9, unconditional=False)
    half = norm.ppf(0.95) * link["se"]
    np.testing.assert_allclose(link["upper"], link["estimate"] + half)
    response = poisson.predict(DATA, interval=0.9, unconditional=False)
    np.testing.assert_allclose(response["lower"], np.exp(link["lower"]))
    np.testing.assert_allclose(response["upper"], np.exp(link["upper"]))
    # the mean and variance of a log-normal variable
    v = link["se"] ** 2
    mean = np.exp(link["estimate"] + v / 2)
    np.testing.assert_allclose(response["estimate"], mean, rtol=1e-8)
    np.testing.assert_allclose(response["se"], mean * np.sqrt(np.expm1(v)), rtol=1e-6)


def test_gaussian_predictions_are_the_models(gaussian):
    mean, var = gaussian.model.predict_y(gaussian.fitted.X)
    np.testing.assert_allclose(gaussian.predict(DATA), mean.numpy()[:, 0])
    observed = gaussian.predict(DATA.head(4), type="observation", interval=0.8, unconditional=False)
    sd = np.sqrt(var.numpy()[:4, 0])
    np.testing.assert_allclose(observed["se"], sd, rtol=0.1)
    half = norm.ppf(0.9) * sd
    np.testing.assert_allclose(observed["upper"] - observed["lower"], 2 * half, rtol=0.12)
    expected = norm.logpdf(DATA["y"], mean.numpy()[:, 0], np.sqrt(var.numpy()[:, 0]))
    np.testing.assert_allclose(gaussian.log_density(DATA), expected)


def test_class_probabilities(softmax):
    p, se = softmax.predict(DATA, se=True)
    assert p.shape == se.shape == (120, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    frame = softmax.predict(DATA, interval=0.5)
    assert list(frame.columns.get_level_values(0).unique()) == ["u", "v", "w"]
    assert np.all(frame["v"]["lower"] <= frame["v"]["upper"])
    classes = softmax.predict(DATA, type="class")
    np.testing.assert_array_equal(classes, np.array(["u", "v", "w"])[p.argmax(axis=1)])
    own = p[np.arange(120), pd.factorize(DATA["kind"], sort=True)[0]]
    shares = DATA["kind"].value_counts(normalize=True)
    assert np.mean(np.log(own)) > np.sum(shares * np.log(shares)) + 0.05  # the null model's
    assert softmax.predict(DATA.head(2), type="terms").shape == (2, 12)


def labelled():
    """Rows with grades 1 to 3, kinds without an order, and two labels in text."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=300)})
    data["grade"] = 1 + np.digitize(data["x"] + 0.3 * rng.normal(size=300), [0.3, 0.6])
    data["kind"] = np.array(["cat", "dog", "owl"])[rng.integers(0, 3, 300)]
    data["number"] = data["kind"].map({"cat": 1, "dog": 2, "owl": 5})
    data["ok"] = np.where(rng.uniform(size=300) < data["x"], "yes", "no")
    return data.assign(half=np.where(data["ok"] == "yes", 1.0, 0.5), flag=data["ok"] == "yes")


@pytest.mark.parametrize(
    ("y", "family", "numbers"),
    [
        ("grade", "ordinal", True),
        ("half", "bernoulli", True),
        ("flag", "bernoulli", True),
        ("ok", "bernoulli", False),
        ("kind", "categorical", False),
        ("number", "categorical", False),
    ],
)
def test_new_responses_of_classes_are_labels(y, family, numbers):
    """Codes had been drawn, and their means and quantiles given for estimates and limits."""
    data = labelled()
    gam = gg.GAM(f"{y} ~ s(x, k=5)", family=family).fit(data, **QUICK)
    draws = gam.sample(data, 200, "observation")
    known = np.unique(data[y])
    assert set(np.unique(draws)) == set(known.tolist())
    shares = [np.mean(draws == label) for label in known]
    np.testing.assert_allclose(shares, [np.mean(data[y] == label) for label in known], atol=0.04)
    if not numbers:
        with pytest.raises(ValueError, match="'observation'.*no mean.*'response'.*'class'"):
            gam.predict(data, "observation", interval=0.9)
        return
    assert draws.dtype == float
    frame = gam.predict(data, "observation", interval=0.9)
    assert frame["lower"].min() == known[0]
    assert frame["upper"].max() == known[-1]
    p = gam.predict(data)
    mean = p @ known if p.ndim == 2 else known[0] * (1.0 - p) + known[1] * p
    np.testing.assert_allclose(frame["estimate"], mean, atol=0.12)


@pytest.mark.parametrize("unconditional", [True, False])
def test_draws_have_the_posteriors_moments(poisson, unconditional):
    options = {"type": "link", "unconditional": unconditional}
    draws = poisson.sample(DATA.head(5), 4000, **options)
    mean, se = poisson.predict(DATA.head(5), se=True, **options)
    # estimates are at the fitted hyperparameters, draws around their mean over these
    away = (0.15 if unconditional else 0.0) + 4 / np.sqrt(4000)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=away * se.max())
    np.testing.assert_allclose(draws.std(axis=0), se, rtol=0.06)
    np.testing.assert_array_equal(poisson.sample(DATA, 3), poisson.sample(DATA, 3))
    counts = poisson.sample(DATA.head(5), 20, type="observation")
    assert counts.shape == (20, 5)
    assert poisson.sample(DATA.head(5), 1, "observation").shape == (1, 5)
    assert np.all(counts == np.round(counts))


@pytest.mark.parametrize("bs", ["se", "matern12"])
def test_draws_are_joint(bs):
    """Six inducing inputs leave much of a rough function open, which has covariances of its own."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(size=80))
    y = np.sin(9.0 * x) + 0.2 * rng.standard_normal(80)
    gam = gg.GAM(s("x", k=6, bs=bs)).fit(pd.DataFrame({"x": x, "y": y}), "y")
    rows = pd.DataFrame({"x": np.linspace(0.0, 1.0, 30)})
    draws = gam.sample(rows, 20_000, "link", unconditional=False)
    _, covariance = gam.posterior.predict_f(gam.fitted.encode(rows), full_cov=True)
    expected = gam.fitted.units[0] ** 2 * covariance[0].numpy()
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.04 * np.max(expected))


def test_frames_have_the_labels_of_the_data(gaussian, softmax):
    """Pandas puts a column of them beside others by labels: rows of another order would mix."""
    rows = DATA.sample(12, random_state=1)
    table = rows.assign(estimate=gaussian.predict(rows, interval=0.9)["estimate"])
    np.testing.assert_allclose(table["estimate"], gaussian.predict(rows), atol=1e-12)
    for type in ("link", "terms", "observation", "response"):
        assert gaussian.predict(rows, type, interval=0.9).index.equals(rows.index)
    for part in gaussian.predict(rows, "terms", se=True):
        assert part.index.equals(rows.index)
    assert softmax.predict(rows, interval=0.9).index.equals(rows.index)
    plain = gaussian.predict({c: rows[c].to_numpy() for c in rows}, interval=0.9)
    assert plain.index.equals(pd.RangeIndex(12))


def test_no_rows(gaussian):
    assert gaussian.predict(DATA.head(0)).shape == (0,)
    assert gaussian.sample(DATA.head(0), 3).shape == (3, 0)
    for rows in (pd.DataFrame(index=range(5)), np.zeros((5, 0))):
        constant = gaussian.predict(rows, terms=[])
        np.testing.assert_array_equal(constant, gaussian.predict(DATA.head(5), terms=[]))
    assert gaussian.predict(DATA.head(0), type="terms").shape == (0, 5 - 1)


# --- two routes, one answer ----------------------------------------------------------------------


def test_every_kind_of_table_gives_the_same_model(gaussian):
    columns = {name: DATA[name].to_numpy() for name in DATA}
    mapping = gg.GAM(TERMS).fit(columns, y="y")
    np.testing.assert_array_equal(mapping.predict(columns), gaussian.predict(DATA))
    codes = DATA["g"].map({"a": 0, "b": 1, "c": 2})
    X = np.column_stack([DATA["x"], DATA["z"], codes])
    matrix = gg.GAM(s(0, k=8) + linear(1) + factor(2)).fit(X, DATA["y"])
    np.testing.assert_array_equal(matrix.predict(X), gaussian.predict(DATA))
    assert matrix.names == ("s(0)", "linear(1)", "factor(2)")


def test_columns_by_place_are_those_of_the_fit(tmp_path):
    gam = gg.GAM(s(0, k=4) + factor(1)).fit(DATA[["x", "g"]], DATA["y"], max_iterations=3)
    mean = gam.predict(DATA[["x", "g", "z"]])
    other = "column 0 of the data is 'z', and was 'x' in the fit"
    for model in (gam, problems.reloaded(gam, tmp_path / "gam")):
        np.testing.assert_array_equal(model.predict(DATA[["x", "g"]].to_numpy(object)), mean)
        with pytest.raises(ValueError, match=other):
            model.predict(DATA[["z", "g", "x"]])
        with pytest.raises(ValueError, match=other):
            model.update(DATA[["z", "g", "x", "y"]])
        model.update(DATA[["x", "g", "y"]], max_iterations=1)
        with pytest.raises(ValueError, match=other):
            model.predict(DATA[["z", "g", "x"]])


def test_offset_is_exposure():
    """Counts over exposures 2 and 3 are sums of as many counts over exposure 1."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=60)
    times = np.tile([2, 3], 30)
    single = rng.poisson(np.exp(np.sin(5 * np.repeat(x, times))))
    total = np.add.reduceat(single, np.concatenate([[0], np.cumsum(times)[:-1]]))
    separate = pd.DataFrame({"x": np.repeat(x, times), "y": single})
    summed = pd.DataFrame({"x": x, "y": total, "log_t": np.log(times), "t": times})
    a = gg.GAM(s("x", k=8), family="poisson").fit(separate, y="y")
    # the weights only make both centre the effect on the same distribution
    b = gg.GAM(s("x", k=8), family="poisson", offset="log_t").fit(summed, y="y")
    grid = np.linspace(0.05, 0.95, 9)
    one, other = (m.predict({"x": grid, "log_t": 0 * grid}, "link", se=True) for m in (a, b))
    np.testing.assert_allclose(one[0], other[0], atol=5e-3)
    np.testing.assert_allclose(one[1], other[1], rtol=0.03)
    assert b.predict(summed, "link") == pytest.approx(
        a.predict(summed, "link") + summed["log_t"], abs=5e-3
    )


def test_dropping_rows_is_missing_drop():
    holes = DATA.copy()
    holes.loc[[3, 50], "x"] = np.nan
    holes.loc[[7], "g"] = None
    kept = gg.GAM(TERMS, missing="drop").fit(holes, y="y")
    by_hand = gg.GAM(TERMS).fit(holes.drop(index=[3, 7, 50]), y="y")
    np.testing.assert_array_equal(kept.predict(DATA), by_hand.predict(DATA))
    assert kept.summary().dropped == 3
    with pytest.raises(ValueError, match=r"2 in 'x', 1 in 'g' \(3 of 120 rows\)"):
        gg.GAM(TERMS).fit(holes, y="y")
    assert np.isnan(kept.predict(holes.loc[[7, 8]])).tolist() == [True, False]


@pytest.mark.slow
def test_many_inducing_inputs_find_what_varies_quickly():
    """From the lengthscale of the prior, the fit ends 500 nats below, with a smooth trend."""
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 1.0, 800)
    season, quick = np.sin(2 * np.pi * 14 * t), np.sin(2 * np.pi * 23 * t)
    data = pd.DataFrame({"t": t, "temp": season + 0.3 * rng.standard_normal(800)})
    data["y"] = rng.poisson(np.exp(3.0 + 0.3 * season + 0.4 * quick))
    gam = gg.GAM(s("t", k=120) + s("temp"), family="poisson").fit(data, y="y")
    effect = gam.predict(data, "terms")["s(t)"] + gam.predict(data, "terms")["s(temp)"]
    assert np.corrcoef(effect, 0.3 * season + 0.4 * quick)[0, 1] > 0.95


def test_imputing_is_filling_in_by_hand(tmp_path):
    holes = DATA.copy()
    holes.loc[[3, 50], "x"] = np.nan
    holes.loc[[7], "g"] = None
    x, g = holes["x"].median(), holes["g"].value_counts().idxmax()
    assert x not in set(holes["x"])  # but midway between two
    by_hand = holes.fillna({"x": x, "g": g})
    gam = gg.GAM(TERMS, missing="impute").fit(holes, y="y", **QUICK)
    expected = gg.GAM(TERMS).fit(by_hand, y="y", **QUICK)
    np.testing.assert_array_equal(gam.fitted.X, expected.fitted.X)
    np.testing.assert_array_equal(gam.predict(holes), expected.predict(by_hand))
    assert "3 values imputed" in str(gam.summary())
    # with the values of the fit, whatever the new rows have
    new = holes.loc[[3, 7]]
    np.testing.assert_array_equal(gam.predict(new), expected.predict(by_hand.loc[[3, 7]]))
    np.testing.assert_array_equal(
        problems.reloaded(gam, tmp_path / "holes.gam").predict(new), gam.predict(new)
    )
    # also where the type of a column would not hold them
    assert g != "a"
    typed = new.assign(x=pd.array([None, 1], dtype="Int64"), g=pd.Categorical(["a", None]))
    known = new.assign(x=[x, 1.0], g=["a", g])
    np.testing.assert_array_equal(gam.predict(typed), expected.predict(known))
    holes.loc[5, "y"] = np.nan
    with pytest.raises(ValueError, match="not the response.*1 missing in 'y'"):
        gg.GAM(TERMS, missing="impute").fit(holes, y="y")


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        (np.array([-100, 101], np.int8), 0.5),  # their difference is no int8
        (pd.array([1, 2], dtype="Int64"), 1.5),
        (pd.to_datetime(["2024-01-01", "2024-01-04"]), pd.Timestamp("2024-01-02 12:00")),
        ([datetime.date(2024, 1, 1), datetime.date(2024, 1, 4)], datetime.date(2024, 1, 2)),
    ],
)
def test_an_even_number_of_values_is_filled_with_the_middle_of_two(values, middle):
    data = pd.DataFrame({"x": pd.Series(values).repeat(20), "y": np.arange(40.0)})
    gam = gg.GAM(linear("x"), missing="impute").fit(data, y="y", **QUICK)
    np.testing.assert_array_equal(gam.predict({"x": [None]}), gam.predict({"x": [middle]}))


def test_varying_coefficient_is_the_function_times_the_number():
    gam = gg.GAM(s("x", k=8, by="z")).fit(DATA, y="y", **QUICK)
    one = gam.predict({"x": DATA["x"], "z": np.ones(120)}, "terms")["s(x):z"]
    twice = gam.predict({"x": DATA["x"], "z": np.full(120, -2.0)}, "terms")["s(x):z"]
    np.testing.assert_allclose(twice, -2.0 * one)
    np.testing.assert_allclose(gam.effects("s(x):z", DATA["x"])["estimate"], one)


# --- kinds of terms ------------------------------------------------------------------------------


def test_effects_average_to_zero_over_the_data():
    terms = s("x", k=8) + s("z", bs="matern52", k=8) + te("x", "z", k=10)
    terms += factor("g") + linear("log_e") + te("x", "g", k=10)
    gam = gg.GAM(terms).fit(DATA, y="y", **QUICK)
    effects = gam.predict(DATA, type="terms").drop(columns="intercept")
    size = effects.std() + 1e-3
    assert np.all(np.abs(effects.mean()) < 0.05 * size)
    assert abs(effects["factor(g)"].mean()) < 1e-8
    assert abs(effects["linear(log_e)"].mean()) < 1e-8


@pytest.mark.parametrize("seed", [0, 1])
def test_a_quick_interaction_is_no_noise(seed: int) -> None:
    """Main effects and their interaction find what one function of both columns finds."""
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({"x": rng.uniform(size=300), "z": rng.uniform(size=300)})
    truth = np.sin(4.0 * np.pi * df["x"]) * df["z"]
    truth += 4.0 * np.maximum(df["x"] - 0.6, 0.0) * np.maximum(df["z"] - 0.4, 0.0)
    df["y"] = truth + 0.3 * rng.normal(size=300)
    parts, whole = (
        gg.GAM(f"y ~ {right}").fit(df).predict(df)
        for right in ("s(x) + s(z) + ti(x, z)", "te(x, z)")
    )
    assert np.std(parts - truth) < 1.2 * np.std(whole - truth)


def test_interaction_averages_to_zero_over_each_column():
    gam = gg.GAM(ti("x", "z", k=20)).fit(DATA, y="y", **QUICK)
    component = gam.fitted.spec.component("ti(x,z)")
    nodes, weights = np.array(component.margins[0].nodes), np.array(component.margins[0].weights)
    for z in (-1.0, 0.5):
        effect = gam.effects("ti(x,z)", {"x": nodes, "z": np.full(len(nodes), z)})
        assert abs(weights @ effect["estimate"]) < 1e-6 * np.abs(effect["estimate"]).max()


def test_cyclic_curve_joins():
    gam = gg.GAM(s("x", bs="cyclic", period=0.8, k=10)).fit(DATA, y="y", **QUICK)
    effect = gam.effects("s(x)", [0.0, 0.8, 0.3, 1.1])
    np.testing.assert_allclose(effect["estimate"][0], effect["estimate"][1], atol=1e-8)
    np.testing.assert_allclose(effect["se"][2], effect["se"][3], atol=1e-8)
    (length,) = gam.summary().table.loc["s(x)", "lengthscale"]
    kernel = gam.model.kernel["s(x)"].base
    near = kernel(np.array([[0.3]]), np.array([[0.301]])).numpy().item()
    # as of a squared exponential kernel, where the circle is straight
    fall = -np.log(near / kernel.base_kernel.variance.numpy())
    assert fall == pytest.approx(0.5 * (0.001 / length) ** 2, rel=1e-4)


def test_unseen_levels(gaussian):
    new = DATA.head(3).assign(g=["new", "a", "other"])
    with pytest.raises(ValueError, match="level 'new' in row 0, never seen in the fit; .* 'a'"):
        gaussian.predict(new)
    gam = gg.GAM(random_effect("g")).fit(DATA, y="y", **QUICK)
    mean, se = gam.predict(new, "terms", se=True, unconditional=False)
    np.testing.assert_allclose(mean["random_effect(g)"][[0, 2]], 0.0, atol=1e-12)
    prior = np.sqrt(gam.model.kernel["random_effect(g)"].variance.numpy())
    np.testing.assert_allclose(se["random_effect(g)"][[0, 2]], prior)
    assert se["random_effect(g)"][1] < 0.8 * prior


@pytest.mark.parametrize("first", ["g", "s(x, g, bs='sz', k=5)", "te(x, g, k=9)"])
@pytest.mark.parametrize("order", [1, -1])
def test_one_term_that_knows_no_new_level_refuses_it(first, order):
    """Whatever other terms of the factor do, and in any order."""
    right = " + ".join([first, "(0 + z | g)"][::order])
    gam = gg.GAM(f"y ~ {right}").fit(DATA, **QUICK)
    with pytest.raises(ValueError, match="level 'new' in row 0, never seen in the fit"):
        gam.predict(DATA.head(1).assign(g="new"))


def test_levels_keep_the_order_of_a_category():
    ordered = DATA.assign(g=pd.Categorical(DATA["g"], ["c", "b", "a"]))
    gam = gg.GAM(factor("g")).fit(ordered, y="y", **QUICK)
    assert list(gam.effects("factor(g)")["g"]) == ["c", "b", "a"]
    numbers = gg.GAM(factor("code")).fit(DATA.assign(code=DATA["x"].round()), y="y", **QUICK)
    assert list(numbers.effects("factor(code)")["code"]) == [0, 1]
    assert numbers.predict({"code": [1, 0]}).shape == (2,)


def test_a_class_that_no_row_has_may_yet_come():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=100)
    y = pd.Categorical(np.where(rng.uniform(size=100) < x, "b", "a"), categories=["a", "b", "c"])
    frame = pd.DataFrame({"x": x, "y": y})
    with pytest.warns(gg.IdentifiabilityWarning, match="do not determine linear\\(x\\)"):
        declared = gg.GAM("y ~ x", family="categorical").fit(frame, **QUICK)
    p = declared.predict(frame)
    assert p.shape == (100, 3)
    np.testing.assert_array_less(p[:, 2], 1 / 100)  # less than one row would make of it
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    frame["y"] = frame["y"].cat.remove_unused_categories()
    seen = gg.GAM("y ~ x", family="categorical").fit(frame, **QUICK)
    np.testing.assert_allclose(p[:, :2], seen.predict(frame), atol=0.03)


@pytest.mark.slow
def test_other_families_begin_where_sums_over_rows_end():
    """At the dense optimum, which block precision holds: L-BFGS has next to nothing to do."""
    dense = gg.GAM(s("x", k=6), family="poisson").fit(DATA, y="count")
    block = gg.GAM(s("x", k=6), family="poisson", variational="block").fit(DATA, y="count")
    assert block.fitted.result.method == "L-BFGS"
    assert block.fitted.result.num_iterations <= 5
    assert block.fitted.result.elbo == pytest.approx(dense.fitted.result.elbo, abs=1e-3)
    np.testing.assert_allclose(block.predict(DATA), dense.predict(DATA), rtol=1e-3)

    early = gg.GAM(s("x", k=6), family="poisson", variational="block")
    early.fit(DATA, y="count", max_seconds=1e-6)
    assert not early.fitted.result.converged
    assert early.fitted.result.ended
    bound = -float(early.model.training_loss((early.fitted.X, early.fitted.Y)))
    assert early.fitted.result.elbo == pytest.approx(bound)


@pytest.mark.slow
def test_minibatches_and_variational_families():
    gam = gg.GAM(s("x", k=6), family="poisson", variational="block")
    gam.fit(DATA, y="count", batch_size=40, max_iterations=3)
    assert isinstance(gam.model.variational, gg.variational.BlockPrecision)
    assert gam.fitted.result.method == "minibatch"
    gaussian = gg.GAM(s("x", k=6), variational="sites").fit(DATA, y="y")
    exact = gg.GAM(s("x", k=6)).fit(DATA, y="y")
    assert gaussian.fitted.result.elbo == pytest.approx(exact.fitted.result.elbo, abs=5e-3)
    np.testing.assert_allclose(gaussian.predict(DATA), exact.predict(DATA), atol=5e-3)


def test_refused_fit_leaves_the_last_one():
    gam = gg.GAM(s("x", k=6)).fit(DATA, y="y", **QUICK)
    before = gam.predict(DATA)
    with pytest.raises(ValueError, match="no column 'y_'"):
        gam.fit(DATA, y="y_")
    np.testing.assert_array_equal(gam.predict(DATA), before)
    with pytest.raises(ValueError, match="not fitted yet"):
        gg.GAM(s("x")).predict(DATA)


def test_numbers_are_names_before_they_are_places(rng):
    frame = pd.DataFrame(rng.uniform(size=(60, 3)), columns=[1, 2, 3])
    y = frame[1] - frame[3]
    first, last = frame.columns[0], frame.columns[-1]
    gam = gg.GAM(gg.linear(first) + gg.linear(last)).fit(frame, y)
    np.testing.assert_allclose(gam.predict(frame), y, atol=1e-2)
    regressor = gg.sklearn.GAMRegressor(gg.linear(first) + gg.linear(last)).fit(frame, y)
    np.testing.assert_allclose(regressor.predict(frame), y, atol=1e-2)
    np.testing.assert_allclose(regressor.predict(frame.to_numpy()), y, atol=1e-2)
    with pytest.raises(ValueError, match=r"columns as in the fit, \[1, 2, 3\]"):
        regressor.predict(frame[[3, 2, 1]])
    X = frame.to_numpy()  # whose columns are 0, 1, 2
    gam = gg.GAM(gg.linear(np.int64(0)) + gg.linear(np.int64(2))).fit(X, y)
    np.testing.assert_allclose(gam.predict(X), y, atol=1e-2)
    with pytest.raises(TypeError, match="takes column names"):
        gg.s(np.bool_(True))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("far", [1e3, 1e6])
@pytest.mark.parametrize("family", ["gamma", "quasipoisson"])
def test_draws_beside_a_row_far_away_have_the_posteriors_moments(family, far):
    """The jitter that the far row's variance would ask for is more than is known of the others."""
    rng, rows = np.random.default_rng(0), 60
    x, g = rng.uniform(size=rows), rng.choice(list("abc"), rows)
    o = np.where(np.arange(rows) == 20, far, rng.standard_normal(rows))
    y = np.exp(np.sin(6.0 * x) + 0.3 * rng.standard_normal(rows))
    frame = pd.DataFrame({"x": x, "g": g, "o": o, "y": y if family == "gamma" else rng.poisson(y)})
    gam = gg.GAM(linear("o") + s("x", "g", bs="fs"), family).fit(frame, "y")
    for kind in ("link", "response"):
        mean, se = gam.predict(frame, kind, se=True, unconditional=False)
        draws = gam.sample(frame, 1000, kind, seed=0, unconditional=False)
        assert np.max(np.abs(draws.mean(axis=0) - mean) / se) < 4.0 / np.sqrt(1000)
        np.testing.assert_allclose(draws.std(axis=0), se, rtol=0.25)


# --- rows that lack a value: NaN where others have an answer -------------------------------------

HOLES = [2, 5, 6]


@pytest.fixture(scope="module")
def holes() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(size=80), "g": rng.choice(list("ab"), 80)})
    frame["log_n"] = rng.normal(size=80)
    frame["y"] = np.sin(5.0 * frame["x"]) + 0.1 * rng.normal(size=80)
    frame["label"] = np.where(frame["y"] > 0.2, "high", "low")
    frame["unused"] = np.nan
    frame.loc[2, "x"] = np.nan
    frame.loc[5, "g"] = None
    frame.loc[6, "log_n"] = np.nan
    return frame


@pytest.fixture(scope="module")
def dropping(holes) -> gg.GAM:
    terms = s("x", k=6) + factor("g")
    return gg.GAM(terms, offset="log_n", missing="drop").fit(holes, y="y")


ANSWERS = {
    "response": lambda dropping, rows: dropping.predict(rows),
    "se": lambda dropping, rows: dropping.predict(rows, "link", se=True),
    "interval": lambda dropping, rows: dropping.predict(rows, interval=0.9),
    "terms": lambda dropping, rows: dropping.predict(rows, "terms"),
    "observation": lambda dropping, rows: dropping.predict(rows, "observation"),
    "sample": lambda dropping, rows: dropping.sample(rows, 3).T,
    "density": lambda dropping, rows: dropping.log_density(rows),
    "averaged": lambda dropping, rows: dropping.log_density(rows, unconditional=True),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_incomplete_rows_are_nan_and_the_others_as_without_them(dropping, holes, answer):
    whole, alone = answer(dropping, holes), answer(dropping, holes.drop(index=HOLES))
    for all_rows, complete in zip(
        *((t if isinstance(t, tuple) else (t,)) for t in (whole, alone)), strict=True
    ):
        values = np.asarray(all_rows)
        assert len(values) == len(holes)
        assert np.isnan(values[HOLES]).all()
        np.testing.assert_array_equal(np.delete(values, HOLES, axis=0), np.asarray(complete))
        if isinstance(all_rows, pd.DataFrame):
            assert list(all_rows.index) == list(range(len(holes)))


def test_a_missing_response_has_no_density_and_a_prediction(dropping, holes):
    rows = holes.assign(y=holes["y"].where(holes.index != 7))
    assert np.flatnonzero(np.isnan(dropping.log_density(rows))).tolist() == [*HOLES, 7]
    assert np.flatnonzero(np.isnan(dropping.predict(rows))).tolist() == HOLES


def test_blocks_and_tables_of_holes_only(dropping, holes):
    pieces = [holes.iloc[:20], holes.iloc[20:]]
    np.testing.assert_array_equal(dropping.predict(pieces), dropping.predict(holes))
    assert np.isnan(dropping.predict(holes.loc[HOLES])).all()
    assert dropping.predict(holes.loc[HOLES], "terms").shape == (3, 4)  # the offset, too


def test_no_class_where_a_value_is_missing(holes):
    dropping = gg.GAM(linear("x"), family="bernoulli", missing="drop").fit(holes, y="label")
    classes = dropping.predict(holes, "class")
    assert classes[2] is None
    assert set(np.delete(classes, 2)) == {"high", "low"}
