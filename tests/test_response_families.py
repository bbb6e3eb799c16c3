"""Response families: deviances, columns, names and fits."""

import json
import pathlib
import pickle
import re
import warnings
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.integrate
import scipy.stats as st
import shared_rows
from response_cases import CASES, Amounts, D, Labels, weighted, zeros
from scipy.special import expit, softmax

import gpflow_gam as gg
from gpflow_gam import families, likelihoods, linear, s, ti
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam.gam.families.discrete import constant_of
from gpflow_gam.gam.families.encoding import Sample
from gpflow_gam.likelihoods.continuous import Loss
from gpflow_gam.likelihoods.expectations import constant_predictor
from gpflow_gam.optimizers.binned import bins

# --- encoding ----------------------------------------------------------------------------------


def test_numbers_pass_and_labels_are_coded():
    Y, levels = fam.Poisson().encode(np.array([0, 3, 2]), name="bikers")
    assert levels is None
    assert Y.dtype == np.float64
    assert Y.tolist() == [[0.0], [3.0], [2.0]]
    for y, levels, coded, expected in (
        (np.array(["yes", "no"], dtype=object), None, [1.0, 0.0], ("no", "yes")),
        (np.array(["no"]), ("no", "yes"), [0.0], ("no", "yes")),
        (np.array([True, True]), None, [1.0, 1.0], (False, True)),
        (np.array([0.0, 0.0]), None, [0.0, 0.0], (0, 1)),
        (np.array([2, 1, 2]), None, [1.0, 0.0, 1.0], (1, 2)),
    ):
        response = fam.Bernoulli().encode(y, levels)
        assert response.Y[:, 0].tolist() == coded
        assert response.levels == expected
        assert [type(a) for a in response.levels] == [type(a) for a in expected]
    Y, levels = fam.Categorical().encode(np.array(["c", "a", "b", "a"]))
    assert levels == ("a", "b", "c")
    assert all(type(level) is str for level in levels)
    assert Y[:, 0].tolist() == [2.0, 0.0, 1.0, 0.0]
    low_to_high = ("low", "mid", "high")
    Y, levels = fam.Ordinal(low_to_high).encode(np.array(["high", "low"]))
    assert levels == low_to_high
    assert Y[:, 0].tolist() == [2.0, 0.0]
    Y, _ = fam.Binomial().encode(np.array([1, 2]), trials=np.array([4, 2]))
    assert Y.tolist() == [[1.0, 4.0], [2.0, 2.0]]
    assert fam.Custom(gpflow.likelihoods.Exponential()).encode(np.ones(3)).Y.shape == (3, 1)


@pytest.mark.parametrize(
    ("family", "y", "options", "message"),
    [
        ("poisson", [1, -3, 0.5], {}, r"bikers must be whole counts, not negative, for family "
         r"'poisson'; got -3.0 in row 1 \(2 such values\)\."),
        ("tweedie", [0.0, -1.0], {}, "bikers must be not negative.*-1.0 in row 1"),
        ("hurdle_poisson", [1.0, 0.5], {}, "bikers must be whole counts"),
        ("gaussian", [1.0, np.nan], {}, "bikers must be finite.*row 1 .*drop the rows"),
        ("gaussian", ["1", "x"], {}, "bikers must be numbers, for family 'gaussian'; got '1' in"),
        ("gaussian", np.array([1.0, None], dtype=object), {}, "given in every row.*None in row 1"),
        ("gaussian", np.ones((3, 2)), {}, r"one column \[N\].*shape \(3, 2\)"),
        ("gaussian", [], {}, "bikers has no rows"),
        ("gaussian", [1.0], {"trials": [1]}, "trials: family 'gaussian' takes none"),
        ("gamma", [1.0, 0.0], {}, "bikers must be positive, .*0.0 in row 1 .1 such value.\\."),
        ("beta", [0.5, 1.0], {}, "strictly between 0 and 1"),
        ("bernoulli", ["a", "b", "c"], {}, "two labels .*got 3: 'a', 'b', 'c'.*'binomial'"),
        ("bernoulli", ["a", "a"], {}, "two labels .*got 1: 'a'"),
        ("bernoulli", ["maybe"], {"levels": ("no", "yes")}, "one of 'no', 'yes', .*'maybe' in row"),
        ("binomial", [1], {}, "trials must be given"),
        ("binomial", [1, 3], {"trials": [2, 2]}, "from 0 to the row's trials.*3.0 in row 1"),
        ("binomial", [1, 3], {"trials": [2, 0]}, "trials must be whole and at least 1"),
        ("binomial", [1, 3], {"trials": [2]}, "bikers has 2 rows, trials has 1"),
        ("binomial", [0.5], {"trials": [2]}, "whole counts of successes"),
        ("categorical", ["a", "a"], {}, "at least two labels .*only 'a'"),
        ("categorical", np.array(["a", 1], dtype=object), {}, "mixes strings and numbers"),
        ("categorical", np.array([(1,), None], dtype=object)[:1], {}, "a tuple; convert"),
        ("ordinal", [1.0, np.nan], {}, "bikers must be finite"),
        (gpflow.likelihoods.Poisson(), [0.5], {}, "bikers must be whole counts"),
    ],
)  # fmt: skip
def test_bad_columns_are_named(family, y, options, message):
    with pytest.raises(ValueError, match=message):
        fam.family(family).encode(np.asarray(y), **{"levels": None, "name": "bikers", **options})


# --- names and values --------------------------------------------------------------------------


FAMILIES = [*(case.family for case in CASES.values()), fam.Ordinal(("low", "high"))]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_json_round_trip(family: fam.Family):
    data = json.loads(json.dumps(family.to_json()))
    again = fam.from_json(data)
    assert hash(again) == hash(family)
    assert [other for other in FAMILIES if again == other] == [family]
    assert data["name"] == family.name
    assert data.get("link") == getattr(family, "link", None)


def test_families_by_name():
    names = {
        "Negative-Binomial": "negative_binomial",
        "softmax": "categorical",
        **{name: name for name in fam.FAMILIES},
    }
    for alias, name in names.items():
        assert fam.family(alias).name == name
    poisson = fam.Poisson()
    assert fam.family(poisson) is poisson
    assert isinstance(fam.family(gpflow.likelihoods.Exponential()), fam.Custom)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fam.family("poison"), ValueError, "'poison' is unknown; .*mean 'poisson'"),
        (lambda: fam.family("zzz"), ValueError, r"there are .*gaussian, .*heteroskedastic, .*\.$"),
        (lambda: fam.family(3), TypeError, "must be a name.*got int"),
        (lambda: fam.from_json({"link": "logit"}), ValueError, "mapping with a 'name'"),
        (
            lambda: fam.Custom(gpflow.likelihoods.Poisson()).to_json(),
            ValueError,
            "'custom' .Poisson. cannot be saved",
        ),
        (lambda: fam.from_json({"name": "poisson", "df": 3}), ValueError, "no option 'df'.*'link'"),
        (
            lambda: fam.from_json({"name": "categorical", "df": 3}),
            ValueError,
            "no option 'df'.*none",
        ),
        (
            lambda: fam.from_json({"name": "bernoulli", "link": "inverse"}),
            ValueError,
            "'logit', 'probit'",
        ),
        (lambda: fam.StudentT(0.0), ValueError, "df must be positive"),
        (lambda: fam.Ordinal(("a", "a")), ValueError, "different labels"),
        (lambda: fam.Categorical().num_predictors(), ValueError, "levels must be given"),
        (lambda: lk.Ordered(1), ValueError, "num_classes must be a whole number of at least 2"),
        (lambda: lk.Ordered(4, [1.0]), ValueError, r"increments must be \[2\]"),
        (lambda: lk.Binomial("loglog"), ValueError, "'cauchit' or 'log'; got 'loglog'"),
    ],
)
def test_bad_options_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_predictors_and_their_size(rng):
    assert fam.Poisson().predictor_names() == ("",)
    assert fam.Heteroskedastic().predictor_names() == ("mean", "log scale")
    assert fam.Categorical().predictor_names(("a", 2)) == ("a", "2")
    y = 50.0 * rng.standard_normal((500, 1))
    for family in (fam.Gaussian(), fam.StudentT()):
        assert family.scale(Sample(y)) == pytest.approx(np.std(y), rel=0.02)  # of most rows, of all
        assert family.scale(Sample(np.full((5, 1), 3.0))) == 1.0
    equal = np.where(np.arange(100) < 70, 3.0, np.arange(100.0))[:, None]  # most of the rows
    assert Sample(equal).robust[1] == pytest.approx(np.std(equal))
    assert fam.Gaussian().scale(Sample(y)) == pytest.approx(np.std(y))
    assert fam.Poisson().scale(Sample(y)) == fam.Heteroskedastic().scale(Sample(y)) == 1.0
    for unit in (1e-5, 1.0, 1e6):  # parameters start where the data are, in any unit
        variance = fam.Gaussian().likelihood(unit * y).variance
        assert float(variance.numpy()) == pytest.approx(0.5 * np.var(unit * y))


def test_custom_wraps_and_never_changes_the_users_likelihood(rng):
    user = gpflow.likelihoods.Exponential()
    family = fam.Custom(user)
    likelihood = family.likelihood(np.ones((3, 1)))
    assert likelihood is not user
    F, Y = rng.standard_normal((4, 1)), rng.exponential(size=(4, 1))
    np.testing.assert_allclose(family.mean(likelihood, F), np.exp(F[:, 0]))
    expected = st.expon(scale=np.exp(F[:, 0])).logpdf(Y[:, 0])
    np.testing.assert_allclose(family.log_density(likelihood, Y, F), expected)
    softmax3 = fam.Custom(gpflow.likelihoods.Softmax(3))
    assert softmax3.predictor_names() == ("0", "1", "2")
    F, Y = rng.standard_normal((4, 3)), np.array([[0.0], [1.0], [2.0], [1.0]])
    got = softmax3.log_density(softmax3.likelihood(Y), Y, F)
    np.testing.assert_allclose(got, Labels(softmax(F, axis=1)).logpmf(Y[:, 0]))


# --- fits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shift"),
    [
        ("poisson", 0.7),
        ("negative_binomial", 0.0),
        ("gaussian", 0.7),
        ("gamma", 0.7),
        ("bernoulli_probit", 0.0),
        ("binomial_logit", 0.0),
    ],
)
def test_null_models_in_closed_form_are_those_of_a_search(name, shift, rng):
    case = CASES[name]
    Y, _ = case.data(rng, 60)
    w, offset = rng.integers(1, 4, 60).astype(float), shift * rng.standard_normal(60)
    likelihood, X = weighted(case.likelihood()), np.zeros((60, 2))
    X[:, likelihood.column] = w
    searched = constant_predictor(likelihood, X, Y, offset[:, None], 1)
    result = case.family.null(Y, offset, w)
    np.testing.assert_allclose(result, searched[0], atol=1e-5)
    if name not in ("poisson", "gaussian", "gamma"):
        assert case.family.null(Y, offset + 1.0, w) is None


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog", "cauchit"])
def test_the_null_model_of_a_share_has_that_probability(link):
    family = fam.Bernoulli(link)
    for share in (1e-9, 0.2, 1.0 - 1e-9):
        result = constant_of(link, np.array([share]), np.array([1.0 - share]), None)
        assert family.mean(family.likelihood(None), result)[()] == pytest.approx(share, rel=1e-6)
    assert constant_of(link, np.ones(3), np.zeros(3), None) is None


# --- the order of labels ---------------------------------------------------------------------

GRADES = ["low", "medium", "high"]


@pytest.fixture(scope="module")
def graded() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=300)
    codes = np.digitize(4.0 * x - 2.0 + rng.logistic(size=300) / 2, [-1.0, 1.0])
    return pd.DataFrame({"x": x, "code": codes, "grade": np.array(GRADES)[codes]})


def ordered(text: object) -> pd.Categorical:
    return pd.Categorical(text, categories=GRADES, ordered=True)


def of_order(data: object, y: object = "grade", family: object = "ordinal") -> gg.GAM:
    return gg.GAM("s(x, k=6)", family).fit(data, y)


def parquet(data: pd.DataFrame, folder: pathlib.Path) -> str:
    data.assign(grade=ordered(data.grade)).to_parquet(folder / "a.parquet", row_group_size=70)
    return str(folder / "a.parquet")


def arrow(data: pd.DataFrame, _: pathlib.Path) -> object:
    """Chunks whose dictionaries differ: the first one's is not how the second one's begins."""
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array([levels.index(v) if v in levels else None for v in part], pa.int8()),
            pa.array(levels),
            ordered=True,
        )
        for part, levels in ((data.grade[:100], ["low", "high"]), (data.grade[100:], GRADES))
    ]
    return pa.table({"x": data.x, "grade": pa.chunked_array(chunks)}).drop_null()


SOURCES = {
    "pandas": lambda d, _: d.assign(grade=ordered(d.grade)),
    "polars": lambda d, _: pl.from_pandas(d).with_columns(pl.col("grade").cast(pl.Enum(GRADES))),
    "arrow": arrow,
    "parquet": parquet,
    "blocks": lambda d, _: [
        d[:120].assign(grade=pd.Categorical(d.grade[:120], ["low", "high"], ordered=True)).dropna(),
        d[120:].assign(grade=ordered(d.grade[120:])),
    ],
}  # fmt: skip


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("source", "many"), [*((source, False) for source in SOURCES), ("blocks", True)]
)
def test_ordered_labels_keep_their_order(graded, source, many, tmp_path, monkeypatch):
    """Alphabetical order had been taken of text, and of some of these, without a word."""
    if many:
        monkeypatch.setattr(bins, "KEPT_ROWS", 100)
    data = SOURCES[source](graded, tmp_path)
    gam = of_order(data)
    assert gam.fitted.spec.levels == tuple(GRADES)
    assert gam.fitted.data.complete or many
    assert list(gam.predict({"x": [0.02, 0.5, 0.98]}, type="class")) == GRADES


def test_shares_keep_the_order_of_labels(graded, monkeypatch):
    monkeypatch.setattr(bins, "KEPT_ROWS", 100)
    parts = SOURCES["blocks"](graded, None)
    gams = shared_rows.fits(lambda: gg.GAM("s(x, k=6)", "ordinal"), parts, "grade")
    assert [gam.fitted.spec.levels for gam in gams] == [tuple(GRADES)] * 2


@pytest.mark.parametrize(
    "y", ["grade", pd.Categorical], ids=["text", "a categorical without order"]
)
def test_text_without_an_order_is_an_error(graded, y, monkeypatch):
    for kept in (10_000, 100):
        monkeypatch.setattr(bins, "KEPT_ROWS", kept)
        data = graded if y == "grade" else graded.assign(grade=y(graded.grade))
        with pytest.raises(ValueError, match=r"no order.*Ordinal\(levels=.*ordered=True"):
            of_order(data)
    assert of_order(data, family=fam.Ordinal(levels=GRADES)).fitted.spec.levels == tuple(GRADES)


@pytest.mark.slow
def test_numbers_and_truth_values_have_an_order(graded):
    for column, levels in ((graded.code, (0, 1, 2)), (graded.code > 0, (False, True))):
        assert of_order(graded.assign(grade=column)).fitted.spec.levels == levels
        odd = pd.Categorical(column, categories=list(levels)[::-1])  # which says of no order
        assert of_order(graded.assign(grade=odd)).fitted.spec.levels == levels


@pytest.mark.slow
def test_levels_that_are_given_win(graded):
    down = fam.Ordinal(levels=GRADES[::-1])
    gam = of_order(graded.assign(grade=ordered(graded.grade)), family=down)
    assert gam.fitted.spec.levels == tuple(GRADES[::-1])
    up = of_order(graded.assign(grade=ordered(graded.grade)))
    assert np.allclose(gam.predict(graded)[:, ::-1], up.predict(graded), atol=1e-3)


def test_a_response_apart_keeps_its_order_beside_a_column_of_its_text(graded):
    y = pd.Series(ordered(graded.grade), name="grade")
    gam = gg.GAM("s(x, k=6)", "ordinal").fit(graded, y)
    assert gam.fitted.spec.levels == tuple(GRADES)
    assert gam.fitted.spec.response == "grade"


@pytest.mark.slow
def test_further_rows_keep_the_order_of_labels(graded):
    """Text takes the fit's order, and an ordered column may have labels between the fit's."""
    first = graded[graded.grade != "medium"]
    low_high = pd.Categorical(first.grade, ["low", "high"], ordered=True)
    gam = of_order(first.assign(grade=low_high))
    gam.update(graded[:50].assign(grade=ordered(graded.grade[:50])))
    assert gam.fitted.spec.levels == tuple(GRADES)
    gam.update(graded[:20])
    assert gam.fitted.spec.levels == tuple(GRADES)
    with pytest.raises(ValueError, match="'grade' has the label 'top', which is none of"):
        gam.update(graded[:20].assign(grade="top"))
    gam.refit(graded.assign(grade=ordered(graded.grade)))
    assert gam.fitted.spec.levels == tuple(GRADES)


def test_orders_of_blocks_that_do_not_settle_one_are_errors(graded):
    def block(*levels: str) -> pd.DataFrame:
        part = graded[graded.grade.isin(levels)]
        return part.assign(grade=pd.Categorical(part.grade, levels, ordered=True))

    for orders in (["low", "high"], ["medium", "high"]), (["low", "high"], ["high", "low"]):
        with pytest.raises(ValueError, match="'grade' is ordered.*all categories, in order"):
            of_order([block(*order) for order in orders])


def test_groups_of_averages_are_in_the_order_of_levels(graded):
    data = graded.assign(g=pd.Categorical(graded.grade, GRADES), y=graded.x)
    gam = gg.GAM("s(x, k=6) + factor(g)").fit(data, "y")
    for rows in (None, data, data.assign(g=data.g.astype(str))):
        assert list(gam.avg_predictions(by="g", data=rows)["g"]) == GRADES


# --- binomial responses without trials -----------------------------------------------------------


@pytest.fixture(scope="module")
def trials() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"x": rng.uniform(size=200), "n": rng.integers(2, 9, 200)})
    p = expit(3.0 * data["x"] - 1.0)
    data["k"], data["yes"] = rng.binomial(data["n"], p), rng.binomial(1, p)
    return data.assign(p=lambda d: d["k"] / d["n"])


def assert_same_answers(one: gg.GAM, other: gg.GAM, data: pd.DataFrame) -> None:
    assert one.fitted.result.elbo == pytest.approx(other.fitted.result.elbo, abs=1e-8)
    np.testing.assert_allclose(one.predict(data), other.predict(data), rtol=1e-8)


@pytest.mark.parametrize(
    ("labels", "kept"), [(lambda y: y * 1.0, 100), (lambda y: np.array(list("ab"))[y], 10_000)]
)
def test_binomial_responses_of_one_trial_are_bernoullis(trials, labels, kept, monkeypatch):
    monkeypatch.setattr(bins, "KEPT_ROWS", kept)
    data = trials.assign(yes=labels(trials["yes"].to_numpy()))
    gam = gg.GAM("yes ~ s(x, k=6)", fam.Binomial("probit")).fit(data)
    expected = gg.GAM("yes ~ s(x, k=6)", fam.Bernoulli("probit")).fit(data)
    assert_same_answers(gam, expected, data)
    np.testing.assert_allclose(gam.anova()["p"], expected.anova()["p"], rtol=0.02)
    assert gam.fitted.spec.family == fam.Bernoulli("probit")
    blocks = gg.GAM("yes ~ s(x, k=6)", "binomial").fit([data[:90], data[90:]])
    assert blocks.fitted.spec.family == fam.Bernoulli()


def test_weights_are_the_trials_of_proportions(trials, tmp_path):
    """As of R's glm and mgcv."""
    none = trials[:5].assign(n=0, p=np.nan)  # which glm takes as well: no trials, no row
    data = pd.concat([none, trials], ignore_index=True)
    expected = gg.GAM("k ~ s(x, k=6)", "binomial", trials="n").fit(trials)
    gam = gg.GAM("p ~ s(x, k=6)", "binomial", weights="n").fit(data)
    assert_same_answers(gam, expected, trials)
    np.testing.assert_allclose(gam.fitted.deviance(), expected.fitted.deviance())
    blocks = gg.GAM("p ~ s(x, k=6)", "binomial", weights="n").fit([data[:90], data[90:]])
    assert_same_answers(blocks, expected, trials)
    few = trials.iloc[:7]
    gam.save(tmp_path / "gam")
    for other in (gam, gg.GAM.load(tmp_path / "gam"), pickle.loads(pickle.dumps(gam))):
        np.testing.assert_allclose(other.log_density(few), expected.log_density(few), rtol=1e-8)
        drawn = other.sample(few, 50, "observation")
        np.testing.assert_allclose(drawn, expected.sample(few, 50, "observation") / few["n"].values)
        again = other.refit(data)
        np.testing.assert_allclose(again.predict(few), expected.predict(few), atol=1e-4)
    half = gg.GAM("p ~ s(x, k=6)", "binomial", weights="n").fit(data[:99])
    half.update(data[99:], tolerance=1e-4)
    np.testing.assert_allclose(half.predict(few), expected.predict(few), atol=2e-3)


def test_shares_of_proportions(trials, monkeypatch):
    """One share holds nothing but zeros and ones, which alone would be those of one trial."""
    monkeypatch.setattr(bins, "KEPT_ROWS", 100)
    whole = trials["k"].isin([0, trials["n"]]) | (trials["k"] == trials["n"])
    parts = [trials[whole], trials[~whole]]
    expected = gg.GAM("k ~ s(x, k=6)", "binomial", trials="n")
    expected.fit(pd.concat(parts, ignore_index=True))
    shares = lambda: gg.GAM("p ~ s(x, k=6)", "binomial", weights="n")
    for gam in shared_rows.fits(shares, parts):
        np.testing.assert_allclose(gam.predict(trials), expected.predict(trials), rtol=1e-5)


def test_proportions_that_are_none(trials):
    def fit(data: pd.DataFrame, **options: str) -> gg.GAM:
        return gg.GAM("p ~ s(x, k=6)", "binomial", **options).fit(data)

    with pytest.raises(
        ValueError, match="p holds fractions, .* trials='column'.* weights='column'"
    ):
        fit(trials)
    with pytest.raises(ValueError, match="p must be a whole number of successes when multiplied"):
        fit(trials.assign(p=0.3141), weights="n")
    with pytest.raises(ValueError, match="weights, the trials of proportions, must be whole"):
        fit(trials.assign(n=trials["n"] + 0.5), weights="n")
    with pytest.raises(ValueError, match=r"trials must be given for family 'binomial'.*cbind\(k,"):
        gg.GAM("k ~ s(x, k=6)", "binomial").fit(trials)
    gam = fit(trials.assign(p=trials["p"].round(4)), weights="n")  # as tables print them
    for wrong in (2.7, -3):
        with pytest.raises(ValueError, match=f"trials must be whole counts.* got {wrong}"):
            gam.predict(trials.head(2).assign(n=wrong), "observation")
    family = fam.Binomial(proportion=True)
    assert fam.from_json(json.loads(json.dumps(family.to_json()))) == family
    assert fam.from_json({"name": "binomial", "link": "logit"}) == fam.Binomial()
    share = fam.QuasiBinomial(proportion=True).encode(np.array([0.25]), trials=np.array([8.0]))
    assert share.Y.tolist() == [[2.0, 8.0]]


def test_weights_are_trials_of_shares_of_the_quasi_family_too(trials):
    """As in R, where both ways to write it are one fit."""
    shares = gg.GAM("p ~ s(x, k=6)", "quasibinomial", weights="n").fit(trials)
    counts = gg.GAM("k ~ s(x, k=6)", "quasibinomial", trials="n").fit(trials)
    for own, want in zip(*(g.predict(trials, "link", se=True) for g in (shares, counts))):
        np.testing.assert_allclose(own, want, rtol=1e-5)


def test_binomial_of_scikit_learn(trials):
    X, p, n = trials[["x"]], trials["p"], trials["n"]
    expected = gg.GAM("k ~ s(x, k=6)", "binomial", trials="n").fit(trials)
    shares = gg.sklearn.GAMRegressor("s(x, k=6)", "binomial").fit(X, p, sample_weight=n)
    np.testing.assert_allclose(shares.predict(X), expected.predict(trials), atol=1e-4)
    classes = gg.sklearn.GAMClassifier("s(x, k=6)", "binomial").fit(X, trials["yes"])
    assert classes.gam_.family == fam.Bernoulli()


# --- rows far from all others --------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "model", [s("x"), {"location": s("x"), "scale": linear("x")}], ids=["location", "scale"]
)
def test_student_t_ignores_an_outlier(model: Any) -> None:
    """The truth is known; the fit was to the outlier, whose deviations its units were."""
    rng = np.random.default_rng(9)
    x = np.linspace(0.0, 1.0, 100)
    f = np.sin(6.0 * x)
    y = f + 0.1 * rng.standard_normal(100)
    y[30] += 1e6
    gam = gg.GAM(model, "student_t").fit({"x": x, "y": y}, "y")
    assert np.sqrt(np.mean(np.square(gam.predict({"x": x}) - f))) < 0.05


@pytest.mark.parametrize("df", [4.0, 1.5])
def test_deviations_of_new_responses_are_those_of_t(df: float) -> None:
    """That of draws, whose fourth moment is infinite, had been .9 to 3 times as large."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=100)
    table = {"x": x, "y": 2.0 * x + 0.3 * rng.standard_t(4.0, 100)}
    gam = gg.GAM(linear("x"), fam.StudentT(df)).fit(table, "y")
    _, se = gam.predict(table, "observation", se=True)
    _, of_mean = gam.predict(table, se=True)
    noise = gam.fitted.likelihood.scale.numpy() ** 2 * (df / (df - 2.0) if df > 2.0 else np.inf)
    np.testing.assert_allclose(se, np.sqrt(noise + of_mean**2), rtol=0.01)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", ["gamma", "beta", "custom"])
def test_parameters_far_from_where_they_begin_are_reached(family) -> None:
    """Those on a line (softplus) moved by one a round, of a hundred; the truth is scipy's."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=500)
    m = expit(2.0 * x - 1.0)
    shape = {"gamma": 1000.0, "beta": 400.0, "custom": 300.0}[family]
    draws = {
        "gamma": st.gamma(shape, scale=np.exp(x) / shape),
        "beta": st.beta(shape * m, shape * (1.0 - m)),
        "custom": st.t(4.0, m, shape),
    }
    y = draws[family].rvs(random_state=rng)
    if family == "custom":
        family = fam.Custom(gpflow.likelihoods.StudentT(scale=1.0))
    gam = gg.GAM(linear("x"), family).fit({"x": x, "y": y}, "y")
    likelihood = gam.fitted.likelihood
    found = likelihood.shape if hasattr(likelihood, "shape") else likelihood.scale
    assert float(found.numpy()) == pytest.approx(shape, rel=0.15)


# --- responses with zeros of their own: Tweedie, zero-inflated and hurdle counts -----------------

N = 1200


def _frame(kind: type[families.Family], link: str = "logit") -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.0, 1.0, N), rng.uniform(size=N)
    F = np.stack(
        [np.sin(3.0 * x) + 1.0, -1.5 + (0.7 * np.sin(6.0 * z) if link == "log" else 2.0 * z)],
        axis=1,
    )
    y = zeros(kind, link).reference(F).rvs(rng)
    return pd.DataFrame({"x": x, "z": z, "y": y}), F


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (families.ZeroInflatedNegativeBinomial, "logit"),
        (families.HurdleNegativeBinomial, "logit"),
        (families.ZeroInflatedPoisson, "cloglog"),
        (families.ZeroInflatedPoisson, "log"),
    ],
)
def test_counts_and_zeros_are_found(kind, link) -> None:
    frame, F = _frame(kind, link)
    gam = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, kind(link)).fit(frame, "y")
    result, se = gam.predict(frame, "link", se=True)
    away = np.asarray(result) - F
    assert np.all(np.sqrt(np.mean(np.square(away), axis=0)) < 0.2)
    assert np.mean(np.abs(away[:, 1]) < 3.0 * np.asarray(se)[:, 1]) > 0.95
    known = gam.fitted.spec.family.parameters(gam.fitted.likelihood, None)
    assert known.get("alpha", D) == pytest.approx(D, abs=0.2)


@pytest.mark.slow
def test_terms_without_a_parameter_are_of_the_count() -> None:
    frame, _ = _frame(families.ZeroInflatedPoisson)
    gam = gg.GAM(s("x", k=8), family="zero_inflated_poisson").fit(frame, y="y")
    assert gam.names == ("s(x)",)
    rows = pd.DataFrame({"x": [-0.5, 0.5]})
    link = np.asarray(gam.predict(rows, type="link"))
    assert link[0, 1] == link[1, 1]
    assert "predictor" not in gam.effects("s(x)")
    every = gg.GAM({"mean": s("x", k=8), "zero": s("z", k=5)}, family="zero_inflated_poisson").fit(
        frame, y="y"
    )
    plain = gg.GAM(s("x", k=8) + s("z", k=5), family="negative_binomial").fit(frame, y="y")
    score = [g.loo().elpd for g in (every, gam, plain)]
    assert score[0] > score[1] + 10.0 > score[2]


@pytest.mark.parametrize(("power", "phi"), [(1.05, 2.0), (1.3, 0.7), (1.6, 1.5), (1.9, 0.3)])
def test_tweedie_density_is_that_of_its_sum(power: float, phi: float) -> None:
    """Poisson numbers of gamma amounts, term by term; and all of it is one."""
    likelihood = likelihoods.Tweedie(phi, power)
    f = np.array([-1.0, 0.5, 3.0])
    amounts = Amounts(np.exp(f), phi, power)
    amounts.j = np.arange(1.0, 3000.0)[:, None]
    for y in (1e-3, 0.3, 2.0, 40.0):
        result = likelihood.log_prob(np.zeros((3, 1)), f[:, None], np.full((3, 1), y))
        np.testing.assert_allclose(result, amounts.logpdf(y), rtol=1e-6, atol=1e-6)
    none = likelihood.log_prob(np.zeros((3, 1)), f[:, None], np.zeros((3, 1)))
    np.testing.assert_allclose(none, amounts.logpdf(0.0), rtol=1e-10)


def test_tweedie_learns_its_power() -> None:
    unit = 1000.0
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, N)
    f, power, phi = np.sin(3.0 * x) + 1.0, 1.6, 1.5
    y = Amounts(np.exp(f), phi, power).rvs(rng)
    frame = pd.DataFrame({"x": x, "y": unit * y})
    gam = gg.GAM(s("x", k=8), family="tweedie").fit(frame, y="y")
    result = gam.fitted.spec.family.parameters(gam.fitted.likelihood, None)
    assert result["power"] == pytest.approx(power, abs=0.06)
    assert result["dispersion"] == pytest.approx(phi * unit ** (2.0 - power), rel=0.15)
    link = np.asarray(gam.predict(frame, type="link")) - np.log(unit)
    assert np.sqrt(np.mean(np.square(link - f))) < 0.15


@pytest.mark.parametrize(("seed", "column"), [(21, "o"), (16, "y")])
def test_fits_that_find_no_optimum_have_numbers_or_say_which_do_not_do(seed, column):
    rng, rows = np.random.default_rng(seed), 90
    frame = pd.DataFrame({"u": rng.uniform(size=rows), "sk": np.exp(3.0 * rng.normal(size=rows))})
    frame["o"] = np.where(np.arange(rows) == 30, 1e6, rng.normal(size=rows))
    frame["n"] = rng.normal(size=rows)
    mean = np.exp(np.sin(6.0 * frame["u"]) + 0.3 * rng.normal(size=rows))
    frame["y"] = rng.poisson(mean) * (rng.uniform(size=rows) < 0.7)
    terms = s("n", bs="cyclic", k=6) + ti("n", "o", k=8) + s("o", k=6)
    if column == "y":
        frame.loc[45, "y"] = 10_000_000
        terms = s("sk", bs="cyclic", k=6) + ti("n", "sk", k=8)
    gam, refused, finite = gg.GAM(terms, "zero_inflated_poisson"), "", False
    with warnings.catch_warnings(action="ignore"):
        try:
            mean = gam.fit(frame, "y").predict(frame)
            finite = bool(np.all(np.isfinite(mean)))
        except ValueError as error:
            refused = str(error)
    assert finite or f"{column!r} has 1e+0" in refused


# --- quasi-likelihoods ---------------------------------------------------------------------------

PHI = 4.0


def counts(seed: int, n: int = 200) -> pd.DataFrame:
    """Of variance ``PHI mu``."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=n)
    f = 1.5 + np.sin(6.0 * x)
    y = rng.negative_binomial(np.exp(f) / (PHI - 1.0), 1.0 / PHI)
    return pd.DataFrame({"x": x, "f": f, "y": y})


def learnt(gam: gg.GAM) -> float:
    return float(gam.fitted.likelihood.dispersion.numpy())


@pytest.fixture(scope="module")
def gam() -> gg.GAM:
    return gg.GAM(s("x", k=10), family="quasipoisson").fit(counts(0), "y")


def test_the_likelihood_is_divided():
    base = gpflow.likelihoods.Poisson()
    quasi = lk.Quasi(base, 2.5)
    mean, var = np.array([[0.3], [1.0]]), np.array([[0.1], [0.4]])
    X, Y = np.zeros((2, 1)), np.array([[1.0], [4.0]])
    got = quasi.variational_expectations(X, mean, var, Y)
    np.testing.assert_allclose(got, base.variational_expectations(X, mean, var, Y) / 2.5)
    np.testing.assert_allclose(quasi.log_prob(X, mean, Y), base.log_prob(X, mean, Y) / 2.5)
    rate = np.exp(mean + 0.5 * var)
    result = quasi.predict_mean_and_var(X, mean, var)
    np.testing.assert_allclose(result[0], rate, rtol=1e-7)
    variance = 2.5 * rate + np.square(rate) * np.expm1(var)
    np.testing.assert_allclose(result[1], variance, rtol=1e-5)
    assert not quasi.trainable_parameters


def test_the_dispersion_is_fletchers(gam):
    """``X^2 / (1 + mean(s))`` on residual degrees of freedom, s = (y - mu) / mu."""
    table = counts(0)
    mu = np.exp(gam.predict(table, "link"))
    away = (table["y"] - mu) / mu
    edf = gam.summary().edf
    expected = np.sum(away * (table["y"] - mu)) / (1.0 + away.mean()) / (len(table) - edf)
    assert learnt(gam) == pytest.approx(expected, rel=0.012)
    assert "dispersion" in str(gam.summary())
    assert "Pearson" not in str(gam.summary())
    deviance = gam.fitted.deviance()[0]
    raw = (
        fam.Poisson()
        .deviance(gpflow.likelihoods.Poisson(), gam.fitted.Y, np.log(mu)[:, None])
        .sum()
    )
    assert deviance == pytest.approx(raw / learnt(gam), rel=1e-6)


def test_shares_of_trials_are_successes():
    rng = np.random.default_rng(7)
    x, m = rng.uniform(size=150), np.full(150, 12)
    k = rng.binomial(m, 1.0 / (1.0 + np.exp(1.0 - 2.0 * x)))
    table = pd.DataFrame({"x": x, "k": k, "m": m, "share": k / m})
    of_trials = gg.GAM(linear("x"), family="quasibinomial", trials="m").fit(table, "k")
    of_shares = gg.GAM(linear("x"), family="quasibinomial").fit(table, "share")
    a, b = (g.predict(table.iloc[:5], "link", se=True) for g in (of_trials, of_shares))
    np.testing.assert_allclose(a, b, atol=1e-3)
    assert learnt(of_trials) == pytest.approx(12.0 * learnt(of_shares), rel=0.01)
    assert learnt(of_shares) < 0.2
    for g in (of_trials, of_shares):
        with pytest.raises(ValueError, match="'quasibinomial' is no distribution, and no resp"):
            g.predict(table, "observation", interval=0.9)
        with pytest.raises(ValueError, match="is no distribution.*no loo"):
            g.log_density(table.assign(m=0))  # whatever else is wrong


def test_what_no_quasi_likelihood_has_is_said(gam):
    table = counts(0)
    for ask in (gam.loo, lambda: gam.log_density(table), lambda: gg.compare(gam, gam)):
        with pytest.raises(ValueError, match="is no distribution.*no loo.*'negative_binomial'"):
            ask()
    with pytest.raises(ValueError, match="'quasipoisson' is no distribution, and no responses"):
        gam.sample(table, 2, "observation")
    with pytest.raises(ValueError, match="y must be not negative, for family 'quasipoisson'"):
        gg.GAM("y ~ s(x)", family="quasipoisson").fit(table.assign(y=-table["y"]))
    with pytest.raises(ValueError, match="y must be a share from 0 to 1.*give trials="):
        gg.GAM("y ~ s(x)", family="quasibinomial").fit(table)
    with pytest.raises(ValueError, match="y must be from 0 to the row's trials"):
        gg.GAM("y ~ s(x)", family="quasibinomial", trials="x").fit(table)
    with pytest.raises(ValueError, match="is no distribution"):
        gg.GAM("y ~ s(x)", family="quasipoisson").fit(table, criterion="ncv")


# --- quantiles -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Noise that grows threefold along x."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=400)
    return pd.DataFrame({"x": x, "y": np.sin(6.0 * x) + noise(x) * rng.standard_normal(400)})


def noise(x):
    return 0.2 * np.exp(1.1 * x)


@pytest.fixture(scope="module")
def varying(table) -> gg.GAM:
    gam = gg.GAM({"quantile": s("x", k=10), "scale": linear("x")}, family=fam.Quantile(tau=0.8))
    return gam.fit(table, "y")


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.97])
def test_the_loss_is_a_density_whose_quantile_is_the_predictor(tau):
    loss = Loss(tau, 1e-3)
    z = np.linspace(-60.0, 60.0, 400_001) / min(tau, 1.0 - tau)
    p = np.exp(loss.log_density(z, np.ones(1)))
    assert scipy.integrate.trapezoid(p, z) == pytest.approx(1.0, abs=1e-4)
    below = scipy.integrate.trapezoid(np.where(z < 0.0, p, 0.0), z)
    assert below == pytest.approx(tau, abs=2e-3)
    far = np.array([-50.0, 50.0])  # that of Koenker and Bassett, but for its level
    slope = np.diff(loss.log_density(np.stack([far, 1.1 * far]), np.ones(1)), axis=0)[0]
    np.testing.assert_allclose(slope, [-5.0 * (1.0 - tau), -5.0 * tau], rtol=1e-9)
    assert Loss(tau).best == pytest.approx(np.max(Loss(tau).log_density(z, np.ones(1))), abs=1e-6)
    X, F, Y = np.zeros((2, 1)), np.array([[0.3], [2.0]]), np.array([[0.5], [0.0]])
    both = np.hstack([F / 2.0, np.full((2, 1), np.log(0.25))])
    own = lk.Quantile(tau, unit=2.0, varying=True).log_prob(X, both, Y)
    np.testing.assert_allclose(own, lk.Quantile(tau, 0.5).log_prob(X, F, Y), rtol=1e-10)


def test_errors_are_those_of_theory():
    """``tau (1 - tau) / (n f^2)`` is the variance of a quantile (Koenker 2005, section 4.2)."""
    n, sd, tau = 4000, 3.0, 0.9
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"x": rng.uniform(-1.0, 1.0, n)})
    table["y"] = 20.0 + table["x"] + sd * rng.standard_normal(n)
    gam = gg.GAM(linear("x"), family=fam.Quantile(tau=tau)).fit(table, "y")
    estimate, se = gam.predict(pd.DataFrame({"x": [0.0]}), se=True)
    error = np.sqrt(tau * (1.0 - tau) / n) * sd / st.norm.pdf(st.norm.ppf(tau))
    assert se[0] == pytest.approx(error, rel=0.12)
    assert abs(estimate[0] - 20.0 - sd * st.norm.ppf(tau)) < 2.5 * error
    slope = gam.coefficients().iloc[1]
    assert slope["se"] == pytest.approx(error * np.sqrt(3.0), rel=0.12)
    below = (table["y"] < gam.predict(table)).mean()
    assert below == pytest.approx(tau, abs=0.01)


@pytest.mark.slow
def test_where_noise_varies_the_limits_do(table, varying):
    grid = pd.DataFrame({"x": np.linspace(0.04, 0.96, 40)})
    truth = np.sin(6.0 * grid["x"]) + noise(grid["x"]) * st.norm.ppf(0.8)
    band = varying.predict(grid, interval=0.95)
    assert np.mean((band["lower"] < truth) & (truth < band["upper"])) > 0.9
    width = (band["upper"] - band["lower"]).to_numpy()
    assert width[30:36].mean() > 1.2 * width[4:10].mean()
    assert (table["y"] < varying.predict(table)).mean() == pytest.approx(0.8, abs=0.03)
    scale = varying.predict(pd.DataFrame({"x": [0.1, 0.9]}), "link")[:, 1]
    assert scale[1] - scale[0] == pytest.approx(0.88, abs=0.3)
    assert varying.fitted.spec.predictor_names == ("quantile", "log scale")


def test_what_no_quantile_is_for_is_said(table, varying):
    with pytest.raises(ValueError, match="tau must be a probability between 0 and 1; got 1"):
        fam.Quantile(tau=1.0)
    with pytest.raises(ValueError, match="smoothing must be positive"):
        fam.Quantile(smoothing=0.0)
    with pytest.raises(ValueError, match="is no distribution.*no loo"):
        varying.loo()
    with pytest.raises(ValueError, match="'quantile' is no distribution.*several tau"):
        varying.predict(table, "observation")
    with pytest.raises(ValueError, match="no parameter 'shape'.*'quantile', 'scale'"):
        gg.GAM({"shape": s("x")}, family="quantile")
    with pytest.raises(ValueError, match="'quantile' takes no censored"):
        gg.GAM(s("x"), family="quantile").fit(table.assign(e=1), gg.Surv("y", "e"))


@pytest.mark.slow
def test_outliers_bend_the_loss_and_a_warning_has_the_remedy():
    """Of Cauchy noise, whose average loss a few rows make; the truth is known."""
    tau = 0.9
    rng = np.random.default_rng(3)
    x = rng.uniform(size=800)
    data = {"x": x, "y": np.sin(6.0 * x) + 0.2 * rng.standard_cauchy(800)}
    with pytest.warns(gg.SmoothingWarning) as said:
        bent = gg.GAM(s("x"), fam.Quantile(tau)).fit(data, "y")
    (text,) = [str(w.message) for w in said]
    advice = re.search(rf"Take families.Quantile\({tau}, smoothing=([0-9.]+)\)", text)
    assert advice is not None
    with warnings.catch_warnings(action="error"):
        narrow = gg.GAM(s("x"), fam.Quantile(tau, smoothing=float(advice[1]))).fit(data, "y")
    truth = np.sin(6.0 * x) + 0.2 * st.cauchy.ppf(tau)
    off, less = (abs(float(np.mean(g.predict(data) - truth))) for g in (bent, narrow))
    assert less < 0.2 < off
    share = np.mean(data["y"] < narrow.predict(data))
    assert share == pytest.approx(tau, abs=3.0 * np.sqrt(tau * (1.0 - tau) / 800))
