"""Proposed terms, and the screen of interactions against dense algebra and known truths."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import gpflow
import numpy as np
import pandas as pd
import pytest
from response_cases import responses
from scipy.stats import multivariate_normal

import gpflow_gam as gg
from gpflow_gam import factor, linear, s, te, ti
from gpflow_gam.gam.components.kernels import INTERACTION_LENGTHSCALE
from gpflow_gam.gam.screening import (
    evidence_gain,
    expand,
    margin_features,
    product,
    screen_interactions,
)
from gpflow_gam.gam.terms import Terms
from gpflow_gam.gam.terms.formula import terms_from_json
from gpflow_gam.layers import AdditiveGP
from gpflow_gam.likelihoods.expectations import expectations
from gpflow_gam.optimizers import FitResult

NAMES = [f"x{i}" for i in range(12)]
QUICK = {"max_iterations": 8}


def table(n: int, number: int = 12, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(rng.uniform(size=(n, number)), columns=NAMES[:number])
    df["g"] = rng.choice(["low", "mid", "top"], n)
    return df


def mains(columns) -> Terms:
    return Terms(factor(c) if c == "g" else s(c, k=5) for c in columns)


def fitted(df, y, family="gaussian", columns=NAMES, **options) -> gg.GAM:
    return gg.GAM(mains(columns), family=family).fit(df, y, **{**QUICK, **options})


@contextlib.contextmanager
def as_built() -> Iterator[None]:
    """GAMs stay at the hyperparameters they start from: training is what takes time."""
    with pytest.MonkeyPatch.context() as patch:
        result = FitResult(True, "as built", 0.0, 0, 0.0, "none", np.zeros(0))
        patch.setattr(
            "gpflow_gam.optimizers.fit_rows",
            lambda model, rows, **options: (result, gg.optimizers.present_solution(model, rows)),
        )
        yield


@pytest.fixture
def untrained() -> Iterator[None]:
    with as_built():
        yield


def centred(x):
    return x - 0.5


# --- the algebra ---------------------------------------------------------------------------------


def log_evidence(error, covariance):
    L = np.linalg.cholesky(covariance)
    white = np.linalg.solve(L, error)
    return -0.5 * white @ white - np.log(np.diag(L)).sum()


@pytest.fixture(scope="module")
def small():
    df = table(80, 3)
    df["w"] = np.random.default_rng(1).integers(0, 3, 80).astype(float)
    noise = 0.3 * np.random.default_rng(2).standard_normal(80)
    df["y"] = np.sin(4 * df.x0) + 4 * centred(df.x1) * centred(df.x2) + noise
    with as_built():
        return gg.GAM(mains(["x0", "x1", "x2", "g"]), weights="w").fit(df, "y")


def dense(gam, rows):
    """Errors y - m and their covariance under the main effects, [n] and [n, n]."""
    fit = gam.fitted
    moments = fit.moments
    X = fit.X[rows]
    phi = np.concatenate([moments.features(c.name, X) for c in fit.spec.components])
    noise = float(fit.likelihood.variance.numpy()) / fit.weights[rows]
    error = fit.Y[rows, 0] - gam.model.mean_function(X).numpy()[:, 0]
    return error, phi.T @ phi + np.diag(noise)


def interaction(gam, *names):
    """The features of an interaction at all rows, term by term."""
    fit = gam.fitted
    parts = []
    for name in names:
        margin = next(c for c in fit.spec.components if name in c.name).margins[0]
        parts.append(margin_features(margin, fit.X[:, margin.column]))
    return parts, product(tuple(parts))


@pytest.mark.parametrize("names", [("x1", "x2"), ("x0", "g"), ("x0", "x1", "x2")])
def test_gain_is_the_difference_of_log_evidences(small, names):
    rows = np.flatnonzero(small.fitted.weights > 0)
    error, K = dense(small, rows)
    B = interaction(small, *names)[1].values[rows]
    scores, curvatures = expand(small.fitted, rows).project(B)
    start = log_evidence(error, K)
    for variance in (0.1, 1.0, 30.0):
        shrinkage = 1.0 + variance * curvatures
        ours = 0.5 * np.sum(variance * scores**2 / shrinkage - np.log(shrinkage))
        gain = log_evidence(error, K + variance * B @ B.T) - start
        # two log-evidences leave a small difference no more digits than they have
        np.testing.assert_allclose(ours, gain, rtol=1e-8, atol=1e-14 * abs(start) * len(rows))
    gain, variance = evidence_gain(scores, curvatures)
    tried = [log_evidence(error, K + v * B @ B.T) - start for v in np.logspace(-6, 4, 201)]
    assert gain >= max(*tried, 0.0) - 1e-9
    if gain > 0.0:
        own = log_evidence(error, K + variance * B @ B.T) - start
        np.testing.assert_allclose(gain, own, rtol=1e-8)


def test_some_rows_are_scored_given_the_others(small):
    """The score of a sample is the gain of log p(sample | other rows)."""
    every = np.flatnonzero(small.fitted.weights > 0)
    error, K = dense(small, every)
    inside = np.isin(every, every[::2])
    B = np.where(inside[:, None], interaction(small, "x1", "x2")[1].values[every], 0.0)
    gain, variance = evidence_gain(*expand(small.fitted, every[inside]).project(B[inside]))
    assert gain > 1.0
    expected = log_evidence(error, K + variance * B @ B.T) - log_evidence(error, K)
    np.testing.assert_allclose(gain, expected, rtol=1e-8)


def test_rows_of_negative_precision_are_three_standard_deviations_away():
    """Beside the formula written out, W and main effects' precision in full."""
    rng = np.random.default_rng(3)
    df = pd.DataFrame(rng.uniform(size=(70, 2)), columns=["x0", "x1"])
    y = np.sin(5.0 * df.x0) + 0.2 * rng.normal(size=70)
    y[::6] += 3.0
    gam = gg.GAM(s("x0", k=6) + s("x1", k=6), "student_t").fit(df.assign(y=y), "y")
    fit = gam.fitted
    mean, var = fit.predict_link(fit.X)
    given = expectations(fit.likelihood, fit.X, mean, var, fit.Y, ())
    w, g = given.precision[:, 0], given.slope[:, 0]
    assert np.sum(w < 0.0) > 5
    w = np.maximum(w, g**2 / 9.0)
    (own,) = expand(fit, np.arange(70)).predictors
    phi = fit.moments.all_features(fit.X)[0]
    S = np.linalg.inv(np.eye(len(phi)) + (phi * w) @ phi.T)
    P = np.diag(w) - (phi * w).T @ S @ (phi * w)
    B, C = rng.normal(size=(2, 70, 3))
    np.testing.assert_allclose(own.precision(B), B.T @ P @ B, rtol=1e-6, atol=1e-6)
    more = own.extended(B, 0.1)
    Q = P - P @ B @ np.linalg.inv(np.eye(3) / 0.1 + B.T @ P @ B) @ B.T @ P
    np.testing.assert_allclose(more.precision(C), C.T @ Q @ C, rtol=1e-6, atol=1e-6)
    alpha = own.alpha - P @ B @ np.linalg.solve(np.eye(3) / 0.1 + B.T @ P @ B, B.T @ own.alpha)
    np.testing.assert_allclose(more.alpha, alpha, rtol=1e-6, atol=1e-6)


def test_gains_have_a_bound_where_log_p_is_not_concave():
    """None by thousands of nats: of rows that are additive, and of a level's outliers."""
    rng = np.random.default_rng(1)
    df = pd.DataFrame(rng.uniform(size=(150, 2)), columns=["x0", "x1"])
    df["g"], df["h"] = rng.choice(list("abcdef"), 150), rng.choice(list("uvwxyz"), 150)
    counts = rng.poisson(np.exp(np.sin(6.0 * df.x0) + df.x1)) * (rng.uniform(size=150) > 0.3)
    cell = (df.g == "c") & (df.h == "v")
    times = 0.2 * rng.standard_t(3, 150) + 4.0 * cell
    for terms, family, y in (
        (s("x0", k=6) + s("x1", k=6), "zero_inflated_poisson", counts),
        (factor("g") + factor("h"), "student_t", times),
    ):
        assert screen_interactions(gg.GAM(terms, family).fit(df.assign(y=y), "y"))["gain"][0] < 10.0


def test_terms_count_in_the_predictors_that_they_enter():
    df = table(80, 3).assign(y=np.random.default_rng(1).normal(size=80))
    terms = {"mean": s("x0", k=5) + s("x1", k=5), "scale": linear("x1")}
    gam = gg.GAM(terms).fit(df, "y", max_iterations=3)
    fit, rows = gam.fitted, np.arange(80)
    B = interaction(gam, "x0", "x1")[1].values
    for i, own in enumerate(expand(fit, rows).predictors):
        names = [c.name for c in fit.spec.components if i in c.predictors_of(2)]
        phi = fit.moments.all_features(fit.X, names=names)[0]
        P = np.linalg.inv(phi.T @ phi + np.diag(own.root**-2.0))
        np.testing.assert_allclose(own.precision(B), B.T @ P @ B, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("untrained")
def test_features_make_up_the_kernel_of_the_term():
    """What the leading features leave out of the interaction's kernel in the model is nothing."""
    gam = gg.GAM(ti("x0", "x1") + ti("x0", "g")).fit(table(80, 3).assign(y=np.arange(80.0)), "y")
    X = gam.fitted.X
    for component in gam.fitted.spec.components[1:]:
        kernel, parts = gam.model.kernel[component.name], []
        for margin, factor_of_it in zip(component.margins, kernel.kernels):
            parts.append(margin_features(margin, X[:, margin.column]))
            at_nodes = margin_features(margin, np.array(margin.nodes)).values
            np.testing.assert_allclose(np.array(margin.weights) @ at_nodes, 0.0, atol=1e-9)
            np.testing.assert_allclose(
                np.array(margin.weights) @ at_nodes**2, parts[-1].sizes, rtol=1e-6
            )
            factor_of_it.base.variance.assign(1.0)
            if margin.kind != "levels":
                factor_of_it.base.lengthscales.assign(INTERACTION_LENGTHSCALE[0] * margin.span)
        B = product(tuple(parts)).values
        np.testing.assert_allclose(B @ B.T, kernel(X).numpy(), atol=1e-4)


# --- what is found -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["bernoulli", "gaussian", "poisson", "heteroskedastic", "categorical"]
)
def test_true_interactions_rank_first(family):
    df = table(500)
    # behind a logarithm less of it is strong: at 6 main effects alone are a wrong model, of a
    # dispersion of 3, and one sample in four has a third pair
    size = 4 if family == "poisson" else 10
    f = np.sin(4 * df.x0) + size * centred(df.x1) * centred(df.x2)
    f += size * centred(df.x3) * centred(df.x4)
    y = responses(2.0 * f if family == "bernoulli" else f, 3)[family]
    scores = screen_interactions(fitted(df, y, family))
    assert len(scores) == 66
    assert {t.columns for t in scores["term"][:2]} == {("x1", "x2"), ("x3", "x4")}
    assert list(scores["chosen"]) == [True, True] + [False] * 64
    assert np.all(np.diff(scores["gain"]) <= 0.0)
    assert np.all(scores["partial_gain"][:2] > 1 + np.log(66))


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_levels_times_a_number_and_what_the_gam_has_already():
    df = table(250, 4)
    slope = df.g.map({"low": -2.0, "mid": 0.0, "top": 2.0})
    y = slope * centred(df.x1) + 0.3 * np.random.default_rng(4).standard_normal(250)
    columns = [*NAMES[:4], "g"]
    gam = fitted(df, y, columns=columns)
    scores = screen_interactions(gam)
    assert len(scores) == 10
    assert list(scores["term"][scores["chosen"]]) == [ti("x1", "g")]
    for present in (ti("x1", "g"), s("x1", by="g")):
        again = screen_interactions(gg.GAM(mains(columns) + present).fit(df, y))
        assert len(again) == 9
        assert ("x1", "g") not in {t.columns for t in again["term"]}


@pytest.mark.usefixtures("untrained")
def test_a_shadow_of_an_interaction_is_not_another_one():
    """x2 and x5 are nearly the same: either explains the interaction, both are too many."""
    df = table(300, 6)
    rng = np.random.default_rng(5)
    df["x5"] = df.x2 + 0.02 * rng.standard_normal(300)
    y = 8 * centred(df.x1) * centred(df.x2) + 0.3 * rng.standard_normal(300)
    scores = screen_interactions(fitted(df, y, columns=NAMES[:6]))
    assert {t.columns for t in scores["term"][:2]} == {("x1", "x2"), ("x1", "x5")}
    assert scores["gain"][1] > 10.0
    assert scores["chosen"].sum() == 1
    assert 0.0 <= scores["partial_gain"][1] < 1 + np.log(15)


@pytest.mark.slow
@pytest.mark.usefixtures("untrained")
def test_triples_extend_pairs():
    df = table(500, 8)
    a, b, c = (2 * centred(df[n]) for n in ("x1", "x2", "x3"))
    rng = np.random.default_rng(6)
    y = 0.5 * a * b + 3 * a * b * c + 0.4 * rng.standard_normal(500)
    gam = fitted(df, y, columns=NAMES[:8])
    scores = screen_interactions(gam, depth=3, max_interactions=2)
    order = scores["term"].map(lambda t: len(t.columns))
    assert (order == 2).sum() == 28
    assert (order == 3).sum() <= 2 * 6  # of the 56 that there are
    best = scores[order == 3].iloc[0]
    assert best["term"].columns == ("x1", "x2", "x3")
    assert best["chosen"]
    assert scores["chosen"].sum() <= 2
    every = screen_interactions(gam, min_gain=0.0, max_interactions=28)
    assert every["chosen"].sum() > (scores["chosen"] & (order == 2)).sum()
    assert every["chosen"].sum() < 28
    assert np.all(every["partial_gain"][every["chosen"]] > 0.0)
    none = screen_interactions(gam, depth=3, max_interactions=0)
    assert len(none) == 28
    assert not none["chosen"].any()


# --- what is proposed ----------------------------------------------------------------------------


def test_proposals_without_data():
    terms = gg.anova(["a", "b", "c", "d"], depth=3)
    assert len(terms) == 4 + 6 + 4
    assert gg.anova(["a", "b", "c"]) == Terms(
        [s("a"), s("b"), s("c"), ti("a", "b"), ti("a", "c"), ti("b", "c")]
    )
    kinds = gg.anova(["a", "b"], bs="cyclic", k=7)
    main = [s("a", bs="cyclic", k=7), s("b", bs="cyclic", k=7)]
    assert kinds == Terms([*main, ti("a", "b", bs="cyclic")])
    many = gg.anova(range(30))
    assert len(many) == 30 + 435
    assert {t.k for t in many if len(t.columns) == 1} == {20}
    assert {t.k for t in many if len(t.columns) == 2} == {8}


@pytest.mark.usefixtures("untrained")
def test_proposals_from_data_are_terms_of_a_gam():
    df = table(200, 4).assign(constant=1.0, flag=np.tile([0, 1], 100), log_e=np.linspace(0, 1, 200))
    rng = np.random.default_rng(8)
    df["y"] = 8 * centred(df.x0) * centred(df.x1) + df.log_e + 0.3 * rng.standard_normal(200)
    terms = gg.anova(data=df, y="y", offset="log_e", k=5)
    assert terms == Terms([*mains([*NAMES[:4], "g"]), linear("flag"), ti("x0", "x1")])
    gam = gg.GAM(terms, offset="log_e").fit(df, "y")
    effect = gam.predict(df, type="terms")["ti(x0,x1)"]
    assert np.corrcoef(effect, centred(df.x0) * centred(df.x1))[0, 1] > 0.9
    alone = gg.anova(data=df.drop(columns="y"), y=df["y"], depth=1)
    smooths = [f"s({n})" for n in NAMES[:4]]
    assert [t.label for t in alone] == [*smooths, "factor(g)", "linear(flag)", "s(log_e)"]


@pytest.mark.parametrize("values", [lambda y: y, np.asarray, list])
def test_a_response_given_as_values_is_no_predictor(values):
    df = table(50, 2)
    df["y"] = df["x0"] + np.random.default_rng(0).standard_normal(50)
    named = gg.anova(data=df, y="y", depth=1)
    assert gg.anova(data=df, y=values(df["y"]), depth=1) == named
    with pytest.raises(ValueError, match="columns: 'y' is the response"):
        gg.anova(["x0", "y"], data=df, y=values(df["y"]), depth=1)
    other = gg.anova(data=df, y=values(df["y"] + 1.0), depth=1)  # beside a column of its name
    assert [t.label for t in other] == [*(t.label for t in named), "s(y)"]


def test_a_second_round_sees_what_the_first_took_for_noise(monkeypatch):
    df = table(150, 4)
    rng = np.random.default_rng(0)
    df["y"] = 12 * centred(df.x0) * centred(df.x1) + 2 * centred(df.x2) * centred(df.x3)
    df["y"] += 0.2 * rng.standard_normal(150)
    rounds = []

    def seen(*arguments, **options):
        rounds.append(screen_interactions(*arguments, **options))
        return rounds[-1]

    monkeypatch.setattr("gpflow_gam.gam.screening.screen_interactions", seen)
    terms = gg.anova(NAMES[:4], data=df, y="y", rounds=2, k=5, max_iterations=20)
    assert Terms(terms[4:]) == Terms([ti("x0", "x1"), ti("x2", "x3")])
    chosen = [list(scores["term"][scores["chosen"]]) for scores in rounds]
    assert chosen == [[ti("x0", "x1")], [ti("x2", "x3")]]


def test_what_is_asked_for_wrongly(small):
    df = table(20, 3).assign(y=np.arange(20.0), one=1.0)
    x = NAMES[:3]
    for message, call in {
        "columns is empty": lambda: gg.anova([]),
        "'a' is there twice": lambda: gg.anova(["a", "b", "a"]),
        "depth must be a whole number of at least 1; got 0": lambda: gg.anova(x, 0),
        "depth=4 is more than there are columns, 3": lambda: gg.anova(x, 4),
        "36050 terms up to depth=3; pass data=": lambda: gg.anova(range(60), 3),
        "bs must be one of": lambda: gg.anova(x, bs="nonsense"),
        "y is of use with data only": lambda: gg.anova(x, y="y"),
        "max_interactions must be a whole number of at least 0; got -1": lambda: gg.anova(
            x, data=df, y="y", max_interactions=-1
        ),
        "y is missing": lambda: gg.anova(x, data=df),
        "'y' is the response": lambda: gg.anova([*x, "y"], data=df, y="y"),
        "'one' hold(s) a single value": lambda: gg.anova([*x, "one"], data=df, y="y"),
        "not fitted": lambda: screen_interactions(gg.GAM(s("x"))),
        "a number of nats from 0 on; got -1": lambda: screen_interactions(small, min_gain=-1),
        "depth=5 is more than the 4 column": lambda: screen_interactions(small, depth=5),
    }.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
    with pytest.raises(TypeError, match=r"write \['a'\]"):
        gg.anova("a")


def test_screens_are_in_double_precision_whatever_the_default(small):
    expected = screen_interactions(small)["gain"]
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        np.testing.assert_array_equal(screen_interactions(small)["gain"], expected)


# --- smooths that vanish where they are not there (select=True) ----------------------------------

CHOSEN = ["wave", "line", "a", "b", "c", "d"]


def made(seed: int = 0, n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """A wave, a line, and four columns that do not matter."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.uniform(size=(n, 6)), columns=CHOSEN)
    f = np.sin(6.0 * data["wave"]) + 1.5 * data["line"]
    return data.assign(y=f + 0.6 * rng.normal(size=n)), np.asarray(f)


@pytest.fixture(scope="module")
def fits() -> dict[bool, gg.GAM]:
    data, _ = made()
    terms = [s(name) for name in CHOSEN]
    return {which: gg.GAM(terms, select=which).fit(data, "y") for which in (False, True)}


@pytest.mark.slow
def test_what_is_not_there_vanishes_and_what_is_there_stays(fits: dict[bool, gg.GAM]) -> None:
    data, f = made()
    edf = {which: gam.summary().table["edf"] for which, gam in fits.items()}
    absent = [f"s({name})" for name in CHOSEN[2:]]
    assert edf[True][absent].sum() < 0.5 * edf[False][absent].sum()
    assert edf[True][absent].median() < 0.1 < edf[False][absent].median()
    error = {
        which: np.sqrt(np.mean(np.square(gam.predict(data) - f))) for which, gam in fits.items()
    }
    assert error[True] < error[False]
    for name in ("s(wave)", "s(line)"):
        assert edf[True][name] == pytest.approx(edf[False][name], rel=0.25)
        own = {which: gam.effects(name)["estimate"] for which, gam in fits.items()}
        np.testing.assert_allclose(own[True], own[False], atol=0.1)


def test_bands_of_what_has_vanished_say_how_large_it_may_be(fits: dict[bool, gg.GAM]) -> None:
    band, known = (fits[True].effects("s(a)", unconditional=u) for u in (True, False))
    assert np.all(band["lower"] < 0.0)
    assert np.all(band["upper"] > 0.0)
    assert np.median(band["se"]) > 2.0 * np.median(known["se"])


@pytest.mark.slow
def test_a_term_may_be_selected_by_itself(tmp_path: Path) -> None:
    """``bs="ts"`` has the priors of ``select=True`` for one term, in files as well."""
    data, _ = made()
    terms = [s(name, bs="cs" if name == "a" else "se", k=8) for name in CHOSEN]
    gam = gg.GAM(terms).fit(data, "y")
    every = gg.GAM([s(n, k=8) for n in CHOSEN], select=True).fit(data, "y")
    none = gg.GAM([s(n, k=8) for n in CHOSEN]).fit(data, "y")

    def modes(fitted: gg.GAM, name: str) -> list[float]:
        priors = [p.prior for p in fitted.model.kernel[f"s({name})"].parameters]
        return [float(prior.log_prob(1.0)) for prior in priors if prior is not None]

    gam.save(tmp_path / "gam")
    for one in (gam, gg.GAM.load(tmp_path / "gam")):
        for name in CHOSEN:
            assert modes(one, name) == modes(every if name == "a" else none, name)
        np.testing.assert_array_equal(one.predict(data), gam.predict(data))


def test_terms_know_whether_they_are_selected() -> None:
    terms = s("x") + te("x", "z")
    chosen = gg.GAM(terms, select=True).terms
    assert chosen.select
    assert not terms.select
    assert chosen != terms
    assert hash(chosen) != hash(terms)
    assert list(chosen) == list(terms)
    for kept in (chosen + s("w"), s("w") + chosen, chosen - 1, gg.GAM([chosen, s("w")]).terms):
        assert kept.select
    assert terms_from_json(chosen.to_json()) == chosen
    assert gg.GAM("y ~ s(x) + s(z)", select=True).terms.select
    with pytest.raises(TypeError, match="select must be True or False; got 'yes'"):
        gg.GAM(terms, select="yes")


def test_heads_hold_to_it() -> None:
    terms = s(0) + te(0, 1)
    heads = {
        which: AdditiveGP(terms.selected() if which else terms, num_data=500, num_inducing=4)
        for which in (False, True)
    }
    assert heads[True].specification.terms.select
    again = AdditiveGP.from_config(heads[True].get_config())
    modes = {}
    for which, head in {**heads, "again": again}.items():
        kernel = head.kernel["s(0)"]
        modes[which] = [
            float(p.prior.log_prob(1.0)) for p in kernel.parameters if p.prior is not None
        ]
    assert modes["again"] == modes[True] != modes[False]


def test_probabilities_of_absent_straight_and_curved_are_the_evidence() -> None:
    """By dense Gaussian densities, at the fitted noise, over the same standard deviations."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.linspace(0.0, 1.0, 10), 4)
    y = 0.4 * np.sin(6.0 * x) + 0.3 * rng.normal(size=40)
    gam = gg.GAM(s("x", k=10)).fit(pd.DataFrame({"x": x, "y": y}), "y")
    line, bend = (part for part in gam.fitted.model.kernel["s(x)"].kernels)
    intercept = float(gam.fitted.model.kernel["intercept"].variance.numpy())
    noise = float(gam.fitted.likelihood.variance.numpy())
    prior, X = bend.base.lengthscales.prior, x[:, None]
    line.variance.assign(1.0 / np.var(x))
    bend.base.variance.assign(1.0)
    sizes = np.linspace(-3.6, 1.2, 7)
    weights = np.exp(sizes) / (1.0 + np.exp(2.0 * sizes))
    weights /= weights.sum()
    evidence = np.zeros(3)
    scale = np.var(y)

    def density(a: float, b: float) -> float:
        cov = a * scale * np.asarray(line(X)) + b * scale * np.asarray(bend(X))
        cov = cov + intercept + noise * np.eye(40)
        return float(np.exp(multivariate_normal.logpdf(y - y.mean(), cov=cov)))

    evidence[0] = density(0.0, 0.0)
    evidence[1] = sum(w * density(np.exp(2.0 * a), 0.0) for w, a in zip(weights, sizes))
    for third in (1.0 / 6.0, 0.5, 5.0 / 6.0):
        bend.base.lengthscales.assign(prior.quantile(third))
        for v, a in zip(weights, sizes):
            for w, b in zip(weights, sizes):
                evidence[2] += v * w * density(np.exp(2.0 * a), np.exp(2.0 * b)) / 3.0
    table = gam.term_probabilities()
    np.testing.assert_allclose(table.loc["s(x)"], evidence / evidence.sum(), atol=0.01)


@pytest.mark.slow
def test_probabilities_of_absent_straight_and_curved_are_calibrated() -> None:
    """Truths drawn from the prior: of effects with probability p, a share p is there."""
    said, truth = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        data, f = pd.DataFrame(rng.uniform(size=(150, 3)), columns=list("abc")), np.zeros(150)
        for name in data:
            x, kind = data[name].to_numpy(), rng.integers(3)
            truth.append(kind)
            sizes = np.abs(rng.standard_cauchy(100))
            line, bend = sizes[(sizes > 0.03) & (sizes < 3.3)][:2]
            if kind > 0:
                f += line * rng.normal() * (x - x.mean()) / x.std()
            if kind > 1:
                length = np.exp(np.log(0.45) + 0.9**2 + 0.9 * rng.normal())
                K = np.asarray(gpflow.kernels.Matern52(lengthscales=length)(x[:, None]))
                K = K - np.outer(K.mean(0), K.mean(0)) / K.mean()
                f += bend * np.linalg.cholesky(K + 1e-8 * np.eye(150)) @ rng.normal(size=150)
        gam = gg.GAM([s(name, k=12) for name in data])
        gam.fit(data.assign(y=f + 0.8 * rng.normal(size=150)), "y")
        said += gam.term_probabilities().to_numpy().tolist()
    p, was = np.array(said), np.eye(3)[truth]
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    for k in range(3):  # on average, and where it is said to be likely
        assert abs(np.mean(p[:, k] - was[:, k])) < 3.0 * np.sqrt(
            np.mean(p[:, k] * (1 - p[:, k])) / len(p)
        )
    of_truth = np.sum(p * was, axis=1)
    expected = np.sum(np.square(p), axis=1)
    assert abs(np.mean(of_truth - expected)) < 3.0 * np.std(of_truth - expected) / np.sqrt(len(p))
