"""What newcomers get wrong, and the one sentence that tells them."""

import inspect
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam import factor, linear, s, te
from gpflow_gam.gam.fits.specification import OPTIONS
from gpflow_gam.gam.terms.parametric import Variable


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"temp": rng.uniform(size=30), "hum": rng.uniform(size=30)})
    df["site"] = ["a", "b", "c"] * 10
    df["flat"] = 3.0
    df["empty"] = np.nan
    df["text"] = ["1.5", "abc", "2"] * 10
    df["when"] = pd.date_range("2020-01-01", periods=30)
    df["count"] = rng.poisson(2.0, 30)
    df["y"] = rng.normal(size=30)
    return df


@pytest.fixture(scope="module")
def two_terms(data) -> gg.GAM:
    terms = s("temp", k=4) + s("hum", by=factor("site"), k=4) + factor("site")
    return gg.GAM(terms).fit(data.assign(site=["a", "b"] * 15), "y")


@pytest.mark.parametrize(
    ("terms", "options", "response", "message"),
    [
        (s("tempp"), {}, "y", "no column 'tempp'; did you mean 'temp'"),
        (s("qqq"), {}, "y", "no column 'qqq'; it has 'temp', 'hum'"),
        (s("temp", by="hhum"), {}, "y", "did you mean 'hum'"),
        (s("temp"), {"offset": "tmp"}, "y", "did you mean 'temp'"),
        (s("site"), {}, "y", r"text \('a' in row 0\) where s\(site\) needs.*factor\('site'\)"),
        (linear("text"), {}, "y", r"holds text \('1.5' in row 0\)"),
        (s("temp", by="when"), {}, "y", "holds times where .* needs numbers"),
        (s("temp"), {"weights": "site"}, "y", "holds text .* where the weights needs numbers"),
        (s("temp"), {"offset": 1}, "y", "offset=1: columns .* have names; give one of 'temp'"),
        (s("temp"), {"trials": 9, "family": "binomial"}, "count", r"trials=9: .*assign\(n=9\)"),
        (te("temp", "flat"), {}, "y", r"'flat' is constant, so that te\(temp,flat\) has nothing"),
        (s("empty"), {}, "y", "'empty' has no value at all"),
        (s("temp"), {}, "flat", r"response 'flat' is constant \(3\)"),
        (s("temp"), {}, "temp", "also in a term"),
        (s("temp"), {"family": "poisson"}, "y", "y .*whole.* not negative.*poisson.*got -"),
        (s("temp"), {"weights": "y"}, "count", "must not be negative"),
        (factor("temp"), {}, "y", r"30 different fractions.* use s\('temp'\)"),
    ],
    ids=str,
)
def test_one_sentence_says_what_to_do(terms, options, response, message, data):
    with pytest.raises(ValueError, match=message) as caught:
        gg.GAM(terms, **options).fit(data, y=response)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("argument", ["offset", "weights", "trials", "ar1"])
@pytest.mark.parametrize("values", [pd.Series, np.array, pl.Series])
def test_values_are_no_columns(argument, values):
    with pytest.raises(TypeError, match=f"{argument} must name a column.*got values.*add them"):
        gg.GAM(s("temp"), "poisson", **{argument: values([1, 2, 1])})


def test_numbered_columns_are_named_by_number(data):
    with pytest.raises(ValueError, match="groups=5: columns .* have names"):
        gg.GAM(s("temp")).fit(data, "y", criterion="ncv", groups=5)
    X = data[["temp", "hum"]].to_numpy()
    gam = gg.GAM(s(0), weights=1).fit(X, data["y"], max_iterations=5)
    assert list(gam.avg_slopes(np.array([0]), num_samples=32)["column"]) == [0]
    by_number = gam.predict(X)
    named = gg.GAM(s("temp"), weights="hum").fit(data, "y", max_iterations=5).predict(data)
    np.testing.assert_array_equal(by_number, named)


def fit(data, terms=None, y="y", **options):
    return gg.GAM(s("temp") if terms is None else terms, **options).fit(data, y)


def nested():
    pair = pl.struct(a=pl.lit(1), b=pl.lit(2))
    return pl.DataFrame({"y": np.arange(9.0)}).with_columns(pair=pair)


def intervals(data):
    return pa.Table.from_pandas(data.assign(cut=pd.cut(data["temp"], 3))[["cut", "y"]])


TWICE = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
MIXED = [pd.Timestamp("2024-01-01"), 3] * 15
LISTS = r"column 'lists' holds values that are no levels \(list"
BY_CG = gg.GAM(s("temp"), engine="iterncgp")
WRONG = [
    ("data has 1 row", lambda d, _: fit(d.head(1))),
    ("data has 0 row", lambda d, _: fit(d.head(0))),
    ("'temp' must be finite; got inf in row 4", lambda d, _: fit(d.replace(d.temp[4], np.inf))),
    ("1 in 'y'", lambda d, _: fit(d.replace(d.y[5], np.nan))),
    (r"one value a row of data, 30; got shape \(3,\)", lambda d, _: fit(d, y=[1.0, 2.0, 3.0])),
    ("y is missing", lambda d, _: fit(d, y=None)),
    ("missing must be 'error', 'drop' or 'impute'", lambda d, _: fit(d, missing="ignore")),
    ("'temp' holds times, and in row 1", lambda d, _: fit(d.assign(temp=MIXED), missing="impute")),
    ("engine must be 'variational' or 'iterncgp'; got", lambda d, _: fit(d, engine="mcmc")),
    ("variational='block' is of", lambda d, _: fit(d, engine="iterncgp", variational="block")),
    ("engine='iterncgp' has no option 'batch_size'", lambda d, _: BY_CG.fit(d, "y", batch_size=9)),
    ("variational must be 'exact', ", lambda d, _: fit(d, variational="full")),
    ("data must be a DataFrame, a dict of columns or a matrix", lambda *_: fit([1.0, 2.0])),
    ("columns must be of one length", lambda *_: fit({"temp": [1.0, 2.0], "y": [1.0]})),
    ("column 12 is asked for; data has 9 columns", lambda d, _: fit(d, s(12))),
    ("twice", lambda *_: fit(TWICE, s("a"), "a")),
    ("column 'pair' is nested", lambda *_: fit(nested(), factor("pair"))),
    ("column 'cut' holds values that are no lev", lambda d, _: fit(intervals(d), factor("cut"))),
    (LISTS, lambda d, _: fit(d.assign(lists=[[1], [2]] * 15), factor("lists"))),
    (LISTS, lambda d, _: fit(d.assign(lists=[[1], [2]] * 15), y="lists", family="categorical")),
    ("seed must be a whole number of at least 0; got -1", lambda d, _: fit(d, seed=-1)),
    ("seed must be a whole number", lambda d, gam: gam.sample(d, seed=0.5)),
    ("num_points must be a whole number", lambda _, gam: gam.effects("s(temp)", num_points=-1)),
    ("type must be 'response', ", lambda d, gam: gam.predict(d, type="probabilities")),
    ("interval must be a probability", lambda d, gam: gam.predict(d, interval=95)),
    ("has no classes", lambda d, gam: gam.predict(d, type="class")),
    ("missing values: 1 in 'temp'", lambda d, gam: gam.predict(d.replace(d.temp[3], np.nan))),
]


@pytest.mark.parametrize(("message", "call"), WRONG)
def test_what_is_wrong_is_named(message, call, data, two_terms):
    with pytest.raises((ValueError, TypeError), match=message):
        call(data.assign(site=["a", "b"] * 15), two_terms)


def test_one_row_is_a_table(data, two_terms):
    """Which messages say of what is none; a tensor is a matrix."""
    row = data.iloc[0]
    for one, message in (
        (row, r"got Series of shape \(9,\). One row is data.iloc\[\[0\]\]"),
        (row.to_numpy(), r"got ndarray of shape \(9,\). One row is"),
        (tf.constant([0.5, 0.5]), r"got EagerTensor of shape \(2,\). One row is"),
        (row.to_dict(), r"got shape \(\). One row is {'temp': \[0.6\d+\]}"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            two_terms.predict(one)
    gam = gg.GAM(s(0, k=4)).fit(data[["temp"]].to_numpy(), data["y"], max_iterations=3)
    np.testing.assert_array_equal(
        gam.predict(tf.constant(data[["temp"]])), gam.predict(data[["temp"]])
    )


def test_two_rows_are_fitted(data):
    gam = gg.GAM(linear("temp")).fit(data.head(2), y="y")
    assert np.all(np.isfinite(gam.predict(data)))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("weights", "no option 'weights': it belongs to the model; give GAM(...) weights=, then"),
        ("seed", "belongs to the model; give GAM(...) seed=, then fit."),
        ("max_iter", "no option 'max_iter'; is it 'max_iterations'? It takes max_iterations, tol"),
        ("epochs", "no option 'epochs'; it takes max_iterations, tolerance, "),
    ],
)
def test_options_that_a_fit_has_not(option, message, data, two_terms):
    for call in (gg.GAM(s("temp")).fit, two_terms.refit, two_terms.update):
        with pytest.raises(TypeError, match=re.escape(message)):
            call(data, "nowhere", **{option: "flat"})


def test_the_options_of_a_fit_are_the_optimizers():
    """By a list, which docs and errors show; it must not go stale."""
    taken = set(inspect.signature(gg.optimizers.fit).parameters)
    taken |= set(inspect.signature(gg.optimizers.fit_rows).parameters)
    own = {"criterion", "groups"}  # of GAM.fit
    other = {"model", "data", "rows", "seed", "validation_data", "collapsed", "start", "others"}
    assert set(OPTIONS) == taken - other | own


EXTREMES = {
    "column far out": ("x", 1e12, "poisson", r"column 'x' has 1e\+12 in row 7, while half of its"),
    "response far out": (
        "count", 1e30, "poisson", r"the response 'count' has 1e\+30 in row 7.*leave such rows out"
    ),
    "overflow": ("x", 1e200, "poisson", r"column 'x' has 1e\+200 in row 7, whose square overflows"),
    "offset": ("o", 1e6, "poisson", r"column 'o' has 1e\+06 in row 7"),
}  # fmt: skip
SCALED = {
    "tiny x": ("x", lambda v: 1e-310 * v, "column 'x' spans .*e-31.*multiply it by a power of"),
    "tiny y": ("y", lambda v: 1e-310 * v, "'y' varies by less than 1e-70.*multiply it by a"),
    "large y": ("y", lambda v: 1e160 * v, r"'y' reaches .*e\+160.*divide it by a power of ten"),
    "rounding": ("y", lambda v: v + 1e15, r"'y' varies by .* around 1e\+15.*subtract its mean"),
    "complex x": ("x", lambda v: v + 1j, r"'x' holds values of type complex128 where linear"),
    "complex y": ("y", lambda v: v + 1j, "y must be numbers, for family 'gaussian'"),
}


def _plain(number=60):
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"x": rng.uniform(size=number), "y": rng.normal(size=number), "o": 0.0})
    return df.assign(count=rng.poisson(1.0, number).astype(float))


@pytest.mark.parametrize(("column", "value", "family", "message"), EXTREMES.values(), ids=EXTREMES)
def test_values_far_from_the_others_are_named(column, value, family, message):
    df = _plain()
    df.loc[7, column] = value
    offset = "o" if column == "o" else None
    terms = s("x") + s("y") if column == "count" else linear("x")
    with pytest.raises(ValueError, match=message) as caught:
        gg.GAM(terms, family, offset=offset).fit(df, y="count")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("column", "change", "message"), SCALED.values(), ids=SCALED)
def test_numbers_that_double_precision_cannot_tell_are_named(column, change, message):
    df = _plain()
    with pytest.raises(ValueError, match=message):
        gg.GAM(linear("x")).fit(df.assign(**{column: change(df[column])}), y="y")


@pytest.mark.parametrize(("x", "y"), [(1e-99, 1.0), (1e97, 1.0), (1.0, 1e-67), (1.0, 1e68)])
def test_units_within_these_bounds_change_nothing(x, y):
    df = _plain()
    expected = gg.GAM(s("x", k=5)).fit(df, y="y").predict(df)
    scaled = df.assign(x=x * df["x"], y=y * df["y"])
    result = gg.GAM(s("x", k=5)).fit(scaled, y="y").predict(scaled)
    np.testing.assert_allclose(result / y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [1e4, 1e6])
def test_one_row_far_away_does_not_move_a_smooth_of_the_others(value):
    df = _plain(200)
    df["y"] += np.sin(6.0 * df["x"])
    expected = gg.GAM(s("x")).fit(df.drop(7), y="y").predict(df.drop(7))
    df.loc[7, "x"] = value
    result = gg.GAM(s("x")).fit(df, y="y").predict(df.drop(7))
    assert np.max(np.abs(result - expected)) < 0.3


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("tem", "Did you mean 's(temp)'?"),
        ("hum", "Did you mean 's(hum):site=a'?"),
        ("s(hum):site", "ask for one of s(hum):site=a, s(hum):site=b"),
        ("xyz", "no effect 'xyz'; there are s(temp), "),
    ],
)
def test_effects_that_there_are_not(two_terms, asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        two_terms.effects(asked)


@pytest.mark.parametrize(
    "add", [lambda: s("x") + "z", lambda: "z" + s("x"), lambda: (s("x") + s("y")) + "z"]
)
def test_columns_are_no_terms(add):
    with pytest.raises(TypeError, match=r"'z' is text, no term: write s\('z'\), linear\('z'\)"):
        add()


@pytest.mark.parametrize("formula", ["y ~ s(Solar.R) + Wind.v", "y ~ s(`Solar.R`) + `Wind.v`"])
def test_names_as_they_are_in_r(formula):
    parsed = gg.GAM(formula)
    assert list(parsed.terms) == [s("Solar.R"), Variable("Wind.v")]
