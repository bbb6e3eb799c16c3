"""Fits that go on: to more rows, to other rows, and to the same ones."""

import copy
import pickle

import gpflow
import numpy as np
import pandas as pd
import problems
import pytest
from problems import assert_close, reloaded
from scipy.special import expit

import gpflow_gam as gg
from gpflow_gam import factor, linear, s
from gpflow_gam.gam import NotFittedError
from gpflow_gam.optimizers.binned import bins

FINE = {"tolerance": 1e-5}


def make(n, seed=0):
    df, rng = problems.table(n, seed), np.random.default_rng([seed, 1])
    df["of"] = rng.integers(3, 9, n)
    return df.assign(hits=rng.binomial(df["of"], expit(df["y"] - 3.0)))


@pytest.fixture(scope="module")
def data():
    return make(240)


CASES = {
    "gaussian": ("y", {"weights": "w"}),
    "poisson": ("count", {"offset": "log_e"}),
    "negative_binomial": ("count", {}),
    "binomial": ("hits", {"trials": "of"}),
    "categorical": ("kind", {}),
    "heteroskedastic": ("y", {}),
}


def fresh(family, **more):
    return gg.GAM(s("x", k=8) + linear("z") + factor("g"), family, **CASES[family][1], **more)


def specified(gam):
    spec = vars(gam.fitted.spec)
    return {**spec, "encoder": gam.fitted.spec.encoder.to_json()}


def assert_same(one, other, rows, rtol=2e-3):
    # a number that all classes have more changes none of their probabilities
    kind = "response" if one.family.name == "categorical" else "link"
    a, b = (g.predict(rows, kind, interval=0.9) for g in (one, other))
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", list(CASES))
def test_added_rows_give_the_fit_to_all_rows(family, data):
    y = CASES[family][0]
    gam = fresh(family).fit(data.head(160), y=y, **FINE)
    gam.update(data.tail(80), **FINE)
    whole = fresh(family).fit(data, y=y, **FINE)
    assert gam.fitted.number == 240
    np.testing.assert_allclose(gam.fitted.X, whole.fitted.X)
    np.testing.assert_allclose(gam.fitted.Y, whole.fitted.Y)
    assert specified(gam) == specified(whole)
    assert gam.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=1e-2)
    assert_same(gam, whole, data.head(30))


@pytest.mark.parametrize("family", ["gaussian", "poisson", "binomial"])
def test_forgetting_is_a_fit_with_weights(family, data, tmp_path):
    """Also twice, by way of a file, and whether or not the GAM has weights of its own."""
    y, options = CASES[family]
    parts = data.head(100), data.iloc[100:170], data.tail(70)
    age = np.repeat([2, 1, 0], [100, 70, 70])
    gam = fresh(family).fit(parts[0], y=y, **FINE).update(parts[1], forget=0.6, **FINE)
    gam = reloaded(gam, tmp_path / "gam").update(parts[2], forget=0.6, **FINE)
    weights = 0.6**age * (data["w"] if "weights" in options else 1.0)
    np.testing.assert_allclose(gam.fitted.weights, weights)
    terms = s("x", k=8) + linear("z") + factor("g")
    whole = gg.GAM(terms, family, **{**options, "weights": "v"})
    whole.fit(data.assign(v=weights), y=y, **FINE)
    assert gam.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=1e-2)
    assert_same(gam, whole, data.head(30))
    plain = fresh(family).fit(data, y=y, **FINE)
    with pytest.raises(AssertionError):
        assert_same(gam, plain, data.head(30))
    # without a word about it nothing is forgotten, and what was stays forgotten
    gam.update(parts[2], **FINE)
    np.testing.assert_allclose(gam.fitted.weights[:240], weights)
    with pytest.raises(ValueError, match="forget must be above 0 and at most 1; got 1.1"):
        gam.update(parts[2], forget=1.1)


def test_a_gam_that_forgot_is_fitted_anew_like_any(data, tmp_path):
    gam = fresh("poisson").fit(data.head(100), y="count").update(data.tail(140), forget=0.5)
    assert len(gam.log_density(data)) == 240
    assert gam.avg_predictions(num_samples=16)["estimate"].notna().all()
    for again in (gam, reloaded(gam, tmp_path / "gam"), copy.deepcopy(gam)):
        again.refit(data, **FINE)
        np.testing.assert_array_equal(again.fitted.weights, 1.0)


def test_going_on_is_short(data):
    """From the end of a fit there is next to nothing left to do, and from the start there is."""
    gam = fresh("poisson").fit(data.head(230), y="count")
    first = gam.fitted.result.num_iterations
    gam.update(data.tail(10))
    assert gam.fitted.result.num_iterations <= (first + 1) // 2
    gam.refit()
    assert gam.fitted.result.num_iterations <= 2
    assert gam.fitted.result.converged


def test_a_fit_that_was_cut_short_goes_on(data):
    for family in ("poisson", "gaussian"):
        y = CASES[family][0]
        whole = fresh(family).fit(data, y=y, **FINE)
        with pytest.warns(gg.ConvergenceWarning):
            gam = fresh(family).fit(data, y=y, max_iterations=2)
        before = gam.fitted.result.elbo
        gam.refit(**FINE)
        assert gam.fitted.result.elbo > before
        assert gam.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=1e-3)
        assert_same(gam, whole, data.head(30))


def test_other_rows_start_from_what_is_known(data):
    gam = fresh("poisson").fit(data.head(120), y="count", **FINE)
    other = make(150, seed=9).rename(columns={"count": "n"})
    gam.refit(other, "n", **FINE)
    alone = fresh("poisson").fit(other, y="n", **FINE)
    assert specified(gam) == specified(alone)
    assert_same(gam, alone, other.head(30))
    assert gam.fitted.result.num_iterations < alone.fitted.result.num_iterations


def test_levels_and_ranges_may_be_new(data):
    few = data[data["g"] != "c"]
    more = data[data["g"] == "c"].assign(x=lambda d: d["x"] + 0.5)
    gam = fresh("poisson").fit(few, y="count", **FINE).update(more, **FINE)
    whole = fresh("poisson").fit(pd.concat([few, more]), y="count", **FINE)
    assert specified(gam) == specified(whole)
    assert_same(gam, whole, more.head(30))
    # classes of the response, too
    few = data[data["kind"] != "w"]
    gam = fresh("categorical").fit(few, y="kind", **FINE)
    gam.update(data[data["kind"] == "w"], **FINE)
    assert gam.fitted.spec.levels == ("u", "v", "w")


def test_levels_are_what_they_were(data):
    table = data.assign(g=pd.Categorical(data["g"], categories=["c", "a", "b"]))
    gam = gg.GAM(s("x", k=6) + factor("g")).fit(table.head(200), y="y", **FINE)
    gam.update(table.tail(40), **FINE)
    whole = gg.GAM(s("x", k=6) + factor("g")).fit(table, y="y", **FINE)
    assert gam.fitted.spec.encoder.levels("g") == whole.fitted.spec.encoder.levels("g")
    assert_same(gam, whole, table.head(20))
    # an order of levels is kept where new rows are plain text, and new ones come last
    gam.update(data.tail(30).assign(g="new"))
    assert gam.fitted.spec.encoder.levels("g") == ("c", "a", "b", "new")


def test_rows_that_lack_values(data):
    holes = data.copy()
    holes.loc[[3, 200, 201], "z"] = np.nan
    gam = fresh("poisson", missing="drop").fit(holes.head(160), y="count", **FINE)
    gam.update(holes.tail(80), **FINE)
    assert (gam.fitted.number, gam.fitted.dropped) == (237, 3)
    gam = fresh("poisson", missing="impute").fit(holes.head(160), y="count", **FINE)
    before = {f.name: f.value for f in gam.fitted.spec.fills}
    gam.update(holes.tail(80), **FINE)
    fills = {f.name: f for f in gam.fitted.spec.fills}
    assert fills["z"].count == 3
    assert {name: f.value for name, f in fills.items()} == before
    assert np.sum(gam.fitted.X[:, 1] == before["z"]) >= 3
    with pytest.raises(ValueError, match="missing values: 2 in 'z'"):
        fresh("poisson").fit(data.head(160), y="count", **FINE).update(holes.tail(80))


def test_rows_in_arrays_and_blocks(data):
    X, y = data[["x", "z"]].to_numpy(), data["y"].to_numpy()
    gam = gg.GAM(s(0, k=6) + linear(1)).fit(X[:160], y[:160], **FINE)
    gam.update(X[160:], y[160:], **FINE)
    whole = gg.GAM(s(0, k=6) + linear(1)).fit(X, y, **FINE)
    assert_same(gam, whole, X[:20])
    gam = fresh("poisson").fit(data.head(160), y="count", **FINE)
    gam.update([data.iloc[160:200], data.iloc[200:]], **FINE)
    assert gam.fitted.number == 240


@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_the_other_engine_goes_on_where_it_was(data):
    def ended(**options):
        gam = fresh("poisson", engine="iterncgp")
        return gam.fit(data, y="count", hyperparameters=False, **options)

    whole, gam = ended(), ended(max_seconds=1e-9)
    bounds = [gam.fitted.result.elbo]
    while not gam.fitted.result.converged and len(bounds) < 12:
        gam.refit(hyperparameters=False, max_seconds=1e-9)
        bounds.append(gam.fitted.result.elbo)
    assert gam.fitted.result.converged
    assert np.all(np.diff(bounds) >= -1e-9)
    assert bounds[-1] == pytest.approx(whole.fitted.result.elbo, abs=1e-6)


@pytest.mark.slow
def test_files_without_data_are_fitted_anew_only(data, tmp_path):
    gam = fresh("poisson").fit(data.head(160), y="count", **FINE)
    bare = reloaded(gam, tmp_path / "bare.gam", data=False)
    for ask in (lambda: bare.update(data.tail(80)), lambda: bare.refit()):
        with pytest.raises(ValueError, match=r"without its data.*call refit\(data\)"):
            ask()
    assert_same(bare.refit(data, **FINE), gam.refit(data, **FINE), data.head(30))


def test_many_rows(data, monkeypatch):
    """Of rows that are kept as codes: those that there are go on, others are all that is taken."""
    monkeypatch.setattr(bins, "KEPT_ROWS", 150)
    gam = fresh("poisson").fit(data, y="count", max_iterations=3)
    assert not gam.fitted.data.complete
    before = gam.fitted.result.elbo
    gam.refit(**FINE)
    assert gam.fitted.result.elbo > before
    assert gam.fitted.number == 240
    with pytest.raises(ValueError, match=r"keeps codes.*call refit\(data\)"):
        gam.update(data.head(5))
    more = pd.concat([data, make(60, seed=3)])
    gam.refit(more, **FINE)
    whole = fresh("poisson").fit(more, y="count", **FINE)
    assert gam.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=1e-2)


@pytest.mark.parametrize("blocks", [False, True])
def test_rows_that_are_too_many_once_they_are_added(blocks, data, monkeypatch):
    """All rows together become codes, those of the fit among them."""
    monkeypatch.setattr(bins, "KEPT_ROWS", 150)
    gam = fresh("poisson").fit(data.head(60), y="count")
    assert gam.fitted.data.complete
    new = data.tail(180)
    gam.update([new.head(90), new.tail(90)] if blocks else new, **FINE)
    assert not gam.fitted.data.complete
    assert gam.fitted.number == 240
    whole = fresh("poisson").fit(data, y="count", **FINE)
    assert gam.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=1e-2)
    assert_same(gam, whole, data.head(30))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_a_fit_goes_on_by_its_own_criterion(data):
    gam = gg.GAM(s("x", k=5))
    short = {"criterion": "ncv", "groups": "g", "max_iterations": 1}
    gam.fit(data.head(80), y="y", **short)
    for ask in (gam.refit, lambda: gam.refit(data), lambda: gam.update(data.tail(9))):
        with pytest.raises(ValueError, match="criterion: the last fit was by 'ncv'"):
            ask()
    for ask in (gam.refit, lambda **o: gam.update(data.tail(9), **o)):
        with pytest.raises(ValueError, match="criterion='ncv': .* has no rows to leave out"):
            ask(criterion="ncv")
    gam.refit(data.head(90), **short)
    assert gam.fitted.solution.hessian is not None
    gam.update(data.tail(9), criterion="elbo")
    assert gam.fitted.number == 99


def test_what_cannot_go_on_is_said(data):
    gam = fresh("poisson")
    for ask in (lambda: gam.update(data), lambda: gam.refit()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask()
    gam.fit(data.head(100), y="count", **FINE)
    fit = gam.fitted
    for ask, message in (
        (lambda: gam.update(data.drop(columns="count")), "no column 'count'"),
        (lambda: gam.update(data.assign(count=-1)), "count"),
        (lambda: gam.update(data.assign(x="text")), "column 'x' holds text"),
        (lambda: gam.refit(y="count"), "y is the response of data"),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
        assert gam.fitted is fit


# --- parameters that the user holds --------------------------------------------------------------


def _held(gam: gg.GAM) -> list[tuple[bool, float]]:
    parts = (gam.model.kernel["s(x)"], gam.model.likelihood)
    return [(p.trainable, float(p.numpy())) for part in parts for p in part.parameters]


def _own() -> gpflow.kernels.Kernel:
    """A kernel of the user's, part of which is held already."""
    kernel = gpflow.kernels.SquaredExponential(lengthscales=3.0)
    gpflow.set_trainable(kernel.lengthscales, False)
    return kernel


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("family", "y", "kernel", "options"),
    [
        ("gaussian", "y", None, {}),
        ("negative_binomial", "count", None, {}),
        ("poisson", "count", _own(), {}),
        ("poisson", "count", _own(), {"engine": "iterncgp"}),
        ("poisson", "count", _own(), {"variational": "mean_field"}),
    ],
)
def test_held_parameters_stay_held(family, y, kernel, options, tmp_path):
    """What is changed in the model travels and counts in later fits, in answers not."""
    rng = np.random.default_rng(0)
    x = 10.0 * rng.uniform(size=150)
    table = pd.DataFrame({"x": x, "z": rng.uniform(size=150)})
    table["y"] = 100.0 + 30.0 * np.sin(x) + 10.0 * rng.standard_normal(150)
    table["count"] = rng.negative_binomial(3, 3.0 / (3.0 + np.exp(1.0 + np.sin(x)))) + 0.0
    held = gg.GAM(s("x", kernel=kernel) + s("z"), family, **options).fit(table, y)

    def ask(gam):
        tables = gam.variance_components(), gam.summary().table
        numbers = [table.select_dtypes("number").to_numpy() for table in tables]
        return [*gam.predict(table, "link", se=True), *numbers]

    before = ask(copy.deepcopy(held))
    for part in (held.model.kernel["s(x)"], held.model.likelihood):
        for parameter in part.parameters if kernel else part.trainable_parameters:
            parameter.assign(0.8 * parameter.numpy())
        gpflow.set_trainable(part, False)
    expected = _held(held)
    for each in (held, copy.deepcopy(held), copy.deepcopy(copy.deepcopy(held))):
        assert_close(ask(each), before, rtol=1e-9, atol=1e-12)  # a fit is a value
        for _ in range(2):
            assert _held(each.refit()) == expected
    kernels, link = {"s(x)": _own()} if kernel else None, held.predict(table, "link", se=True)
    bare = () if "engine" in options else ("bare.gam",)
    for name in ("whole.gam", *bare):
        held.save(tmp_path / name, data=name == "whole.gam")
    files = [gg.GAM.load(tmp_path / name, kernels=kernels) for name in ("whole.gam", *bare)]
    for other in (*files, pickle.loads(pickle.dumps(held))):
        assert _held(other) == expected
        assert_close(other.predict(table, "link", se=True), link, rtol=0)
    for refitted in (
        files[0].refit(),
        copy.deepcopy(held).refit(table, y),
        copy.deepcopy(held).update(table.head(20)),
    ):
        assert _held(refitted) == expected
