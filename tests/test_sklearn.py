"""GAMs among scikit-learn's tools."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import gpflow_gam as gg
from gpflow_gam.sklearn import GAMClassifier, GAMRegressor, automatic_terms

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


QUICK: dict[str, Any] = {"max_iterations": 1, "tolerance": 1.0}
CHECKS = parametrize_with_checks([GAMRegressor(**QUICK), GAMClassifier(**QUICK)])


def in_time() -> Iterator[Any]:
    """scikit-learn's checks; of the classifier those that the regressor takes too are slow."""
    for estimator, check in CHECKS.args[1]:
        name = f"{check.func.__name__} {check.keywords}"
        shared = isinstance(estimator, GAMClassifier) and "classif" not in name
        again = "memmap" in name or shared or "check_classifiers_train" in name
        yield pytest.param(estimator, check, marks=[pytest.mark.slow] if again else [])


@pytest.mark.slow_but_first
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("estimator", "check"), in_time(), ids=CHECKS.kwargs["ids"])
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([GAMRegressor(), GAMClassifier()])
def test_estimator_checks_at_defaults(estimator, check):
    check(estimator)


def wave(number: int = 200, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X [N, 2], the mean sin(3 x0) + x1 and observations around it."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (number, 2))
    mean = np.sin(3.0 * X[:, 0]) + X[:, 1]
    return X, mean, mean + 0.2 * rng.standard_normal(number)


def shops(number: int = 60, seed: int = 2) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, text, a switch and a column that says nothing, under an index of its own."""
    rng = np.random.default_rng(seed)
    town = rng.choice(["Bath", "Ely", "Wells"], number)
    X = pd.DataFrame({"size": rng.uniform(0.0, 1.0, number), "town": town})
    X["open"], X["country"] = rng.integers(0, 2, number), "UK"
    X.index = np.arange(number) * 3 + 7
    y = 3.0 * X["size"] + (X["town"] == "Ely") + 0.1 * rng.standard_normal(number)
    return X, y.rename("sales")


# --- what is learnt ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("labels", [["no", "yes"], ["c", "a", "b"]])
def test_probabilities_follow_the_classes(labels):
    X, mean, _ = wave(120)
    code = np.digitize(mean, [-0.5, 0.5] if len(labels) == 3 else [0.0])
    y = np.array(labels)[code]
    model = GAMClassifier("s(0, k=8) + linear(1)").fit(X, y)
    p = model.predict_proba(X)
    assert list(model.classes_) == sorted(labels)
    assert p.shape == (120, len(labels))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X[::-7]), p[::-7], rtol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), p)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.usefixtures("eagerly")
def test_counts_with_an_offset():
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"x": rng.uniform(-1, 1, 80), "log_n": np.log(rng.integers(1, 50, 80))})
    y = rng.poisson(np.exp(X["log_n"] + X["x"]))
    named = GAMRegressor("cases ~ x + offset(log_n)", "poisson").fit(X, y)
    given = GAMRegressor(gg.linear("x"), "poisson", offset="log_n").fit(X, y)
    placed = GAMRegressor(gg.linear(0), "poisson", offset=[1]).fit(X.to_numpy(), y)
    np.testing.assert_array_equal(named.predict(X), given.predict(X))
    np.testing.assert_array_equal(placed.predict(X.to_numpy()), given.predict(X))
    double = given.predict(X.assign(log_n=X["log_n"] + np.log(2.0)))
    np.testing.assert_allclose(double, 2.0 * given.predict(X))
    assert automatic_terms(X, ["log_n"], None, None, {}) == gg.terms.Terms([gg.s("x")])


# --- columns -------------------------------------------------------------------------------------


def test_terms_nobody_named():
    X, _ = shops()
    X["grade"] = pd.Categorical(["a", "b"] * 30)
    unseen = {"unseen": "prior"}
    expected = gg.s("size") + gg.factor("town", **unseen) + gg.linear("open")
    assert automatic_terms(X, None, None, None, {}) == expected + gg.factor("grade", **unseen)
    wide = pd.DataFrame(np.random.default_rng(0).standard_normal((4, 5)))
    assert automatic_terms(wide, None, 8, None, {}) == gg.terms.Terms([gg.s(0, 1, 2, 3, 4, k=8)])
    assert automatic_terms(wide, 2, None, None, {}) == gg.terms.Terms([gg.s(0, 1, 3, 4)])
    # a shape is of one column, whose function stays its own
    shaped = automatic_terms(wide, None, None, None, {0: "increasing"})
    assert [t.shape for t in shaped] == ["increasing", None, None, None, None]


@pytest.mark.usefixtures("eagerly")
def test_terms_nobody_named_where_every_row_lacks_a_value():
    X, mean, _ = wave(40)
    X[::2, 0], X[1::2, 1] = np.nan, np.nan
    model = GAMRegressor(missing="impute").fit(X, mean)
    assert model.gam_.terms == gg.s(0) + gg.s(1)
    assert model.score(X, mean) > 0.3


@pytest.mark.usefixtures("eagerly")
def test_times_are_read_as_gams_read_them_whatever_their_unit():
    when = pd.date_range("2024-01-01", periods=60, freq="D")
    X = pd.DataFrame({"when": when, "z": np.tile([0.0, 1.0, 2.0], 20)})
    y = np.sin(np.arange(60) / 9)
    for given in (X[["when"]], X, X[["when"]] - when[0]):
        model = GAMRegressor().fit(given, y)
        expected = gg.GAM(model.gam_.terms).fit(given.assign(y=y), "y").predict(given)
        kind = "datetime64" if given["when"].dtype.kind == "M" else "timedelta64"
        for unit in ("ns", "us", "ms", "s"):
            other = given.assign(when=given["when"].astype(f"{kind}[{unit}]"))
            np.testing.assert_allclose(model.predict(other), expected)


@pytest.mark.slow
def test_text_columns():
    X, y = shops()
    model = GAMRegressor().fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    assert model.gam_.fitted.spec.response == "sales"
    assert model.score(X, y) > 0.95
    elsewhere = X.iloc[:3].assign(town="York")
    _, std = model.predict(X.iloc[:3], return_std=True)
    assert np.all(model.predict(elsewhere, return_std=True)[1] > std)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(X[["town", "size", "open", "country"]])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict(X, True)[1], model.predict(X, True)[1])
    assert str(again.gam_.summary()) == str(model.gam_.summary())


@pytest.mark.usefixtures("eagerly")
def test_missing_values():
    X, _, y = wave(40)
    holes = X.copy()
    holes[5, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        GAMRegressor("0 + 1").fit(holes, y)
    dropped = GAMRegressor("0 + 1", missing="drop").fit(holes, y)
    assert dropped.gam_.fitted.dropped == 1
    with pytest.raises(ValueError, match="NaN"):
        dropped.predict(holes)
    imputed = GAMRegressor("0 + 1", missing="impute").fit(holes, y)
    by_hand = np.where(np.isnan(holes), np.sort(np.delete(X[:, 0], 5))[19], holes)  # of 39
    np.testing.assert_array_equal(imputed.predict(holes), imputed.predict(by_hand))
    words = pd.DataFrame(holes, columns=["x", "z"]).assign(g=np.where(X[:, 1] > 0.0, "a", "b"))
    model = GAMClassifier("x + g", missing="drop").fit(words, y > 0.0)
    with pytest.raises(ValueError, match="missing values: 1 in 'x'"):
        model.predict(words)
    assert len(model.predict(words.drop(5).assign(z=np.nan))) == 39


@pytest.mark.usefixtures("eagerly")
def test_fractions_of_weights_and_classes_without_any():
    X, mean, y = wave(40)
    w = np.linspace(0.5, 2.5, 40)
    model = GAMRegressor("0 + 1").fit(pd.DataFrame(X, columns=["a", "b"]), y, w)
    assert model.gam_.fitted.spec.weights == "sample_weight"
    label = np.digitize(mean, [-0.5, 0.5])
    two = GAMClassifier("0 + 1").fit(X, label, sample_weight=label > 0)
    assert list(two.classes_) == [1, 2]
    with pytest.raises(ValueError, match=r"at least two classes among rows that count; got only 2"):
        two.fit(X, label, sample_weight=label == 2)
    with pytest.raises(ValueError, match=r"sample_weight must not be negative.* got -1 in row 0"):
        model.fit(X, y, sample_weight=-np.ones(40))
    with pytest.raises(ValueError, match=r"sample_weight must be \[N\].*got shape \(3,\)"):
        model.fit(X, y, sample_weight=np.ones(3))


# --- scikit-learn's tools ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_pipelines_cross_validation_and_grids():
    X, _, y = wave(60)
    model = make_pipeline(StandardScaler(), GAMRegressor(gg.s(0, k=6) + gg.linear(1)))
    assert cross_val_score(model, X, y, cv=2).min() > 0.8
    grid = [
        {"gamregressor__terms": [gg.linear(0), gg.s(0, k=6) + gg.linear(1)]},
        {"gamregressor__terms": ["0"], "gamregressor__family": [gg.families.StudentT()]},
    ]
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert search.best_params_ == grid[0] | {"gamregressor__terms": gg.s(0, k=6) + gg.linear(1)}
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()


def test_smooths_that_nobody_named_are_searched_over():
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.uniform(-1.0, 1.0, (150, 3)), columns=["a", "b", "c"])
    y = X["a"] + 2.0 * X["a"] * X["b"] + 0.2 * rng.standard_normal(150)
    grid = {"k": [6], "bs": ["se", "matern52"], "interactions": [0, 1]}
    search = GridSearchCV(GAMRegressor(), grid, cv=2).fit(X, y)
    assert search.best_params_["interactions"] == 1
    assert search.best_score_ > 0.9
    terms = search.best_estimator_.gam_.terms
    assert [t.columns for t in terms if len(t.columns) > 1] == [("a", "b")]
    assert all(t.k == search.best_params_["k"] for t in terms if len(t.columns) == 1)
    rising = GAMRegressor(k=6, shape={"a": "increasing"}).fit(X, y)
    steps = rising.predict(pd.DataFrame({"a": np.linspace(-1.0, 1.0, 20), "b": 0.0, "c": 0.0}))
    assert np.all(np.diff(steps) > -1e-9)
    frame = rising.predict(X, interval=0.9)
    np.testing.assert_allclose(frame["estimate"], rising.predict(X))
    assert np.all(frame["lower"] < frame["upper"])
    with pytest.raises(ValueError, match="shape: X has no column 'nowhere'"):
        GAMRegressor(shape={"nowhere": "increasing"}).fit(X, y)
    with pytest.raises(ValueError, match="k is of smooths that nobody named"):
        GAMRegressor("s(a)", k=6).fit(X, y)


# --- what is refused -----------------------------------------------------------------------------


def test_refusals():
    X, mean, y = wave(30)
    with pytest.raises(ValueError, match="'bernoulli' is of classes; take GAMClassifier"):
        GAMRegressor(family="bernoulli").fit(X, y)
    with pytest.raises(ValueError, match="'poisson' is not of classes; take GAMRegressor"):
        GAMClassifier(family="poisson").fit(X, mean > 0.0)
    with pytest.raises(ValueError, match=r"two labels for family 'bernoulli'; got 3"):
        GAMClassifier(family="bernoulli").fit(X, np.digitize(mean, [-0.5, 0.5]))
    with pytest.raises(ValueError, match="terms name column 2; X has 2, 0 to 1"):
        GAMRegressor(gg.s(0) + gg.s(2)).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    with pytest.raises(NotFittedError):
        GAMClassifier().predict(X)


def test_a_pipeline_that_drops_names_is_told_how_to_keep_them():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=60), "b": rng.uniform(size=60)})
    y = np.sin(5.0 * X["a"])
    pipeline = make_pipeline(StandardScaler(), GAMRegressor(gg.s("a", k=6) + gg.linear("b")))
    with pytest.raises(ValueError, match=r"column 'a'.*set_output\(transform='pandas'\)"):
        pipeline.fit(X, y)
    pipeline.set_output(transform="pandas").fit(X, y)
    assert pipeline.score(X, y) > 0.99


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("grades", [["low", "medium", "high"], ["low", "high"]])
def test_ordered_classes(grades):
    """Columns are sorted, as scorers take them to be; the model has the labels' own order."""
    X, last = np.random.default_rng(0).normal(size=(150, 2)), len(grades) - 1
    code = np.digitize(X[:, 0] + 0.6 * X[:, 1], [-0.5, 0.5][:last])
    text, ordered = np.array(grades)[code], sorted(grades)
    y = pd.Categorical(text, categories=grades, ordered=True)
    model = GAMClassifier("0", "ordinal").fit(X, pd.Series(y))
    p = model.predict_proba(X)
    assert model.classes_.tolist() == ordered
    assert model.score(X, text) > 0.6
    assert np.corrcoef(p[:, ordered.index("high")], X[:, 0])[0, 1] > 0.7
    frame = GAMClassifier("0", "ordinal").fit(X, pd.DataFrame({"grade": y}))
    levels = GAMClassifier("0", gg.families.Ordinal(levels=grades)).fit(X, text)
    for same in (frame, levels, pickle.loads(pickle.dumps(model))):
        assert same.gam_.fitted.spec.levels == tuple(grades)
        np.testing.assert_allclose(same.predict_proba(X), p, atol=1e-6)
        assert same.predict(X).tolist() == model.predict(X).tolist()
    codes = GAMClassifier("0", "ordinal").fit(X, code)
    for name in ("neg_log_loss", "roc_auc_ovr"):
        of_codes = get_scorer(name)(codes, X, code)
        assert get_scorer(name)(model, X, text) == pytest.approx(of_codes, abs=1e-6)
    with pytest.raises(ValueError, match=r"no order.*Ordinal\(levels="):
        GAMClassifier("0", "ordinal").fit(X, text)
    by_name = GAMClassifier("0", "categorical").fit(X, y)
    assert by_name.classes_.tolist() == ordered
    assert by_name.score(X, text) > 0.6


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("family", [None, "ordinal", "bernoulli"])
def test_classes_are_those_of_complete_rows(family):
    X, other = np.random.default_rng(0).normal(size=(2, 60, 1))
    y = np.where(X[:, 0] + 0.6 * other[:, 0] > 0.0, "yes", "no").astype(object)
    X[:3], y[:3] = np.nan, "maybe"
    if family == "ordinal":
        family = gg.families.Ordinal(levels=["no", "yes"])
    model = GAMClassifier("0", family, missing="drop").fit(X, y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict_proba(X[3:]).shape == (57, 2)
    assert model.score(X[3:], y[3:]) > 0.7
    # a type is that of the labels that were given
    numbers = GAMClassifier("0", missing="drop").fit(X[3:], (y[3:] == "yes") * 1.0)
    assert numbers.classes_.dtype == float
