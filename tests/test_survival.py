"""Censored responses: likelihoods beside scipy, and truths that are known."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import tensorflow as tf
from response_cases import EVERY, LOCATED, SCALE

import gpflow_gam as gg
from gpflow_gam import Surv, linear, s
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam.gam.plotting import quantile_residuals
from gpflow_gam.optimizers.binned import bins

RIGHT, EXACT, LEFT, INTERVAL = range(4)
names = [family().name for _, family, _ in LOCATED]
each = pytest.mark.parametrize("case", [EVERY[name] for name in names], ids=names)


def learnt(gam: gg.GAM) -> float:
    """The scale."""
    return float(gam.fitted.likelihood.scale.numpy())


# --- likelihoods ---------------------------------------------------------------------------------


def mixed() -> np.ndarray:
    """Rows of every kind, and some that entered late, [N, 4]."""
    y = np.array([0.3, 1.1, 2.5])
    rows = [[a, a, kind, -np.inf] for kind in (RIGHT, EXACT, LEFT) for a in y]
    late = [[a, a, kind, share * a] for kind in (RIGHT, EXACT) for a in y for share in (0.3, 0.9)]
    return np.array([*rows, *late, *[[a, a + 0.8, INTERVAL, 0.2] for a in y]])


def expected(distribution, Y: np.ndarray) -> np.ndarray:
    """Log-densities and logarithms of probabilities, by scipy."""
    y, end, kind, start = Y.T
    end = np.where(kind == INTERVAL, end, y + 1.0)
    above = distribution.logsf(y), distribution.logsf(end)
    below = distribution.logcdf(end), distribution.logcdf(y)
    high, low = np.where(above[0] < below[0], above, below)  # differences keep their digits there
    with np.errstate(divide="ignore"):
        between = high + np.log(-np.expm1(low - high))
    late = np.isfinite(start) & (kind <= EXACT)
    entered = np.where(late, distribution.logsf(np.where(late, start, y)), 0.0)
    return -entered + np.select(
        [kind == RIGHT, kind == EXACT, kind == LEFT],
        [distribution.logsf(y), distribution.logpdf(y), distribution.logcdf(y)],
        between,
    )


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", [*names, *(f"{name}-scale" for name in names)])
def test_probabilities_are_scipys_and_expectations_dense_quadratures(name):
    case, Y, rng = EVERY[name], mixed(), np.random.default_rng(1)
    likelihood, X = case.likelihood(), np.zeros((len(Y), 1))
    F = case.predictors(rng, len(Y))
    got = likelihood.log_prob(X, F, Y)
    np.testing.assert_allclose(got, expected(case.reference(F), Y), rtol=1e-9)
    # of a scale that may be near to zero Weibull's has no mean
    var = rng.uniform(0.02, 0.15, F.shape) * [1.0, 0.2][: case.L]
    z = np.linspace(-7.0, 7.0, 4001 if case.L == 1 else 121)
    w = st.norm.pdf(z) / st.norm.pdf(z).sum()
    nodes = np.stack(np.meshgrid(*[z] * case.L, indexing="ij"), -1).reshape(-1, 1, case.L)
    w = np.prod(np.meshgrid(*[w] * case.L), axis=0).ravel()
    logs = expected(case.reference(F + np.sqrt(var) * nodes), Y)
    got = likelihood.variational_expectations(X, F, var, Y)
    np.testing.assert_allclose(got, w @ logs, rtol=2e-5)
    got = likelihood.predict_log_density(X, F, var, Y)
    np.testing.assert_allclose(got, np.log(w @ np.exp(logs)), atol=2e-4)


@each
@pytest.mark.parametrize("far", [-30.0, 30.0])
def test_far_tails_are_finite_and_so_are_gradients(case, far):
    Y, likelihood = mixed(), case.likelihood()
    F = tf.constant(np.full((len(Y), 1), -far * SCALE))
    with tf.GradientTape() as tape:
        tape.watch(F)
        got = likelihood.log_prob(np.zeros((len(Y), 1)), F, Y)
    assert np.all(np.isfinite(got))
    assert np.all(np.isfinite(tape.gradient(got, F)))


@pytest.mark.parametrize("kind", [lk.CensoredGaussian, lk.LogNormal, lk.Weibull])
def test_narrow_intervals_are_densities_times_widths(kind):
    """Also where they are so narrow, or so far out, that distribution functions are equal."""
    likelihood = kind(1.0)
    y, X = np.array([[0.5], [1.0], [3.0], [12.0]]), np.zeros((4, 1))
    F = np.zeros_like(y) if kind is not lk.Weibull else np.log(y) / 2
    for width in (1e-3, 1e-6, 1e-9):
        ends = np.concatenate([y - width / 2, y + width / 2, np.full_like(y, INTERVAL)], axis=1)
        got = likelihood.log_prob(X, F, ends)
        np.testing.assert_allclose(
            got, likelihood.log_prob(X, F, y) + np.log(width), atol=2e-5, rtol=0.0
        )


@each
def test_the_saturated_model_is_the_best_location(case):
    Y, likelihood = mixed(), case.likelihood()
    F = np.linspace(-40.0, 40.0, 16_001)[:, None, None] * np.ones((1, len(Y), 1))
    best = np.max(likelihood.log_prob(np.zeros((1, 1)), F, Y), axis=0)
    own = likelihood.log_prob(np.zeros((1, 1)), F[8000], Y)
    deviance = case.family.deviance(likelihood, Y, F[8000])
    np.testing.assert_allclose(deviance, 2.0 * (best - own), atol=6e-5)
    assert np.any(deviance > 1.0)


@each
def test_randomised_residuals_are_uniform(case):
    rng = np.random.default_rng(2)
    f, kind = rng.standard_normal(3000), np.repeat([RIGHT, LEFT, INTERVAL], 1000)
    y, at = (
        case.reference(f[:, None]).rvs(random_state=rng),
        case.reference(0.0 * f[:, None]).rvs(random_state=rng),
    )
    if case.family.name == "censored_gaussian":
        low, high = np.floor(y), np.floor(y) + 1.0
    else:
        low = 2.0 ** np.floor(np.log2(y))
        high = 2.0 * low
    known = np.select([kind == RIGHT, kind == LEFT], [y <= at, y >= at], False)
    ends = np.where(kind == INTERVAL, [low, high], np.where(known, y, at))
    Y = np.stack([*ends, np.where(known, EXACT, kind)], axis=1)
    below, at_most = case.family.cdf(case.likelihood(), Y, f[:, None])
    assert np.all(below <= at_most)
    u = below + (at_most - below) * rng.uniform(size=len(f))
    for own in (RIGHT, LEFT, INTERVAL):
        assert st.kstest(u[kind == own], "uniform").pvalue > 0.01


@pytest.mark.parametrize("name", [*names, *(f"{name}-scale" for name in names)])
def test_survival_is_what_draws_exceed(name, rng):
    case, t = EVERY[name], np.array([0.5, 1.5])
    F, likelihood = case.predictors(rng, 2), case.likelihood()
    got = case.family.survival(likelihood, t, F[:, None])
    np.testing.assert_allclose(got, [case.reference(f).sf(t) for f in F], rtol=1e-9)
    draws = case.family.sample(likelihood, np.tile(F[:1], (20_000, 1)), rng)
    np.testing.assert_allclose([(draws > a).mean() for a in t], got[0], atol=0.015)


@pytest.mark.slow
def test_residuals_are_not_the_draws_of_a_simulated_column():
    """Data are often simulated with the seed that a GAM has."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(size=200)})
    time, end = rng.exponential(size=(2, 200))
    table = table.assign(time=np.minimum(time, end), event=time <= end)
    gam = gg.GAM(linear("x"), family="weibull").fit(table, Surv("time", "event"))
    below, at_most = gam.fitted.spec.family.cdf(
        gam.fitted.likelihood, gam.fitted.Y, gam.fitted.predict_link(gam.fitted.X)[0]
    )
    censored = below < at_most
    u = (st.norm.cdf(quantile_residuals(gam.fitted)) - below) / (at_most - below + ~censored)
    assert abs(np.corrcoef(u[censored], table["x"][censored])[0, 1]) < 0.3


# --- what is said of the columns -----------------------------------------------------------------


def encoded(first, second, type="right", family=None) -> np.ndarray:
    stated = Surv("a", "b", type=type)
    family = fam.Weibull() if family is None else family
    return family.encode_censored([np.asarray(first), np.asarray(second)], stated).Y


def test_columns_say_what_is_known():
    right = encoded([1.0, 2.0], [True, False])
    np.testing.assert_array_equal(right, [[1, 1, EXACT], [2, 2, RIGHT]])
    left = encoded([1.0, 2.0], [1, 0], "left")
    np.testing.assert_array_equal(left, [[1, 1, EXACT], [2, 2, LEFT]])
    between = encoded([1, 2, np.nan, 0, 3], [1, np.inf, 4, 5, 6], "interval")
    np.testing.assert_array_equal(
        between, [[1, 1, EXACT], [2, 2, RIGHT], [4, 4, LEFT], [5, 5, LEFT], [3, 6, INTERVAL]]
    )
    nones = encoded(np.array([None, 2.0], dtype=object), [1.0, np.nan], "interval")
    np.testing.assert_array_equal(nones, [[1, 1, LEFT], [2, 2, RIGHT]])
    own = np.array([pd.NA, 2.0], dtype=object), np.array([1.0, pd.NA], dtype=object)
    np.testing.assert_array_equal(encoded(*own, "interval"), nones)
    tobit = encoded([-2.0, 0.0], [-1.0, 1.0], "interval", fam.CensoredGaussian())
    np.testing.assert_array_equal(tobit[:, 2], [INTERVAL, INTERVAL])


@pytest.mark.parametrize(
    ("first", "second", "type", "says"),
    [
        ([1.0, -2.0], [1, 1], "right", "a must be positive.*-2.0 in row 1"),
        ([1.0, 0.0], [1, 1], "right", "a must be positive"),
        ([1.0, np.nan], [1, 1], "right", "a must be finite.*row 1"),
        ([1.0, 2.0], [1, 2], "right", "b must be 1 .or True.*got 2.0 in row 1"),
        ([1.0, 2.0], [1.0, np.nan], "right", "b must be finite"),
        ([1.0, 2.0], ["yes", "no"], "right", "b must be numbers.*got 'yes' in row 0"),
        ([1.0, 3.0], [1, 2], "interval", "a must be at most 'b' of its row.*3.0 in row 1"),
        ([1.0, -3.0], [1, 2], "interval", "a must be not negative"),
        (
            [1.0, np.nan],
            [1, np.inf],
            "interval",
            "a must be given .* lacks 'b'.* got nan in row 1",
        ),
        ([1.0, np.inf], [1, np.inf], "interval", "a must be less than inf"),
        ([1.0, "x"], [1, 2], "interval", "a must hold numbers"),
        (pd.to_timedelta([1, 2], "D"), [1, 0], "right", "a holds spans of time.*divide it by the"),
        (pd.to_timedelta([1, 2], "D"), [1, 0], "interval", "a holds spans of time"),
        ([1.0, 2.0], pd.to_timedelta([1, 2], "D"), "interval", "b holds spans of time"),
    ],
)
def test_values_that_no_response_has_are_named(first, second, type, says):
    with pytest.raises(ValueError, match=says):
        encoded(first, second, type)


def test_what_is_no_surv_is_said():
    with pytest.raises(TypeError, match="Surv names columns of data; got a ndarray"):
        Surv(np.ones(3), "event")
    with pytest.raises(
        ValueError, match="type must be 'right', 'left', 'interval' or 'counting'; got 'both'"
    ):
        Surv("a", "b", type="both")
    with pytest.raises(ValueError, match="2 columns; got 'a' twice"):
        Surv("a", "a")


def test_formulas_take_surv():
    formula = gg.terms.parse_formula("Surv(a, `the end`, type='interval') ~ s(x)")
    assert formula.response == Surv("a", "the end", type="interval")
    with pytest.raises(ValueError, match="formula 'Surv.a. ~ s.x.'.*second"):
        gg.terms.parse_formula("Surv(a) ~ s(x)")
    with pytest.raises(ValueError, match="type must be 'right'"):
        gg.terms.parse_formula("Surv(a, b, type='x') ~ s(x)")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Weibull times, about three in ten of them censored."""
    rng = np.random.default_rng(0)
    n = 400
    x, g = rng.uniform(size=n), rng.choice(["a", "b"], n)
    f = np.sin(6.0 * x) + 0.8 * (g == "b")
    time = np.exp(f) * rng.exponential(size=n) ** 0.5
    end = rng.exponential(3.0, size=n)
    result = {"x": x, "g": g, "f": f, "full": time, "time": np.minimum(time, end)}
    result |= {"event": time <= end, "lower": np.floor(4 * time) / 4}
    result["upper"] = result["lower"] + 0.25
    return pd.DataFrame(result)


@pytest.mark.parametrize(
    ("gam", "y", "says"),
    [
        (gg.GAM("s(x)", family="poisson"), Surv("time", "event"), "'poisson' takes no censored"),
        (gg.GAM("s(x)", family="weibull"), Surv("time", "events"), "did you mean 'event'"),
        (
            gg.GAM("s(x) + event", family="weibull"),
            Surv("time", "event"),
            "'event' is also in a term",
        ),
        (gg.GAM("s(x)", family="weibull"), Surv("time", "none"), "every row is censored.*1 what"),
        (gg.GAM("s(x)", family="weibull", trials="x"), Surv("time", "event"), "trials: a censored"),
    ],
)
def test_what_cannot_be_fitted_is_said(table, gam, y, says):
    with pytest.raises(ValueError, match=says):
        gam.fit(table.assign(none=0), y=y)


# --- fits ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weibull(table) -> gg.GAM:
    return gg.GAM("Surv(time, event) ~ s(x) + factor(g)", family="weibull").fit(table)


@pytest.fixture(scope="module")
def times() -> pd.DataFrame:
    """Times, three in ten of them censored, whose scale goes from .25 to .9 with z."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(size=(2, 600))
    f, log_scale = np.sin(6.0 * x), np.log(0.25) + 1.3 * z
    e = np.log(rng.standard_exponential(600))
    time, end = np.exp(f + np.exp(log_scale) * e), rng.exponential(3.0, size=600)
    result = {"x": x, "z": z, "f": f, "g": log_scale, "full": time}
    result |= {"time": np.minimum(time, end), "event": time <= end}
    return pd.DataFrame(result)


TERMS = {"location": s("x"), "scale": s("z", k=6)}


@pytest.fixture(scope="module")
def both(times) -> gg.GAM:
    return gg.GAM(TERMS, "weibull").fit(times, Surv("time", "event"))


def test_densities_draws_and_residuals_are_those_of_what_is_known(table, weibull):
    few, fit = table.iloc[:6], weibull.fitted
    F, var = fit.predict_link(fit.encode(gg.gam.frames.table.Table(few)))
    expect = fit.likelihood.predict_log_density(np.zeros((6, 1)), F, var, fit.Y[:6])
    np.testing.assert_allclose(weibull.log_density(few), expect, rtol=1e-10)
    draws = weibull.sample(few, 4000, "observation", seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), weibull.predict(few), rtol=0.06)
    assert "scale" in str(weibull.summary())
    weibull.appraise()
    weibull.draw("s(x)", residuals=True)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(
    ("formula", "y", "hole", "message"),
    [
        (
            "linear(x)",
            Surv("lower", "upper", type="interval"),
            ["lower", "upper"],
            "missing values: 1 in Surv.*'lower'.*missing='drop'",
        ),
        pytest.param(
            "Surv(time, event) ~ linear(x)", None, "event", "1 in 'event'", marks=pytest.mark.slow
        ),
    ],
    ids=["ends", "event"],
)
def test_rows_without_a_response_are_dropped(table, formula, y, hole, message, blocks):
    holes = table.iloc[:80].astype({"event": float})
    holes.loc[3, hole] = np.nan
    holes.loc[5, "upper"] = np.nan  # one end of an interval may be missing
    given = [holes[:40], holes[40:]] if blocks else holes
    gam = gg.GAM(formula, family="lognormal", missing="drop").fit(given, y)
    assert gam.fitted.dropped == 1
    assert np.flatnonzero(np.isnan(gam.log_density(holes))).tolist() == [3]
    if y is not None and not blocks:
        assert gam.fitted.Y[4].tolist() == [holes["lower"][5], holes["lower"][5], RIGHT]
    with pytest.raises(ValueError, match=message):
        gg.GAM(formula, family="lognormal").fit(given, y)


@pytest.mark.slow
def test_lives_over_many_orders_of_magnitude_are_fitted(table):
    """The logarithm's own spread sets where a fit begins: moments of times say nothing of it."""
    wide = table.assign(time=1e-3 * table["time"] ** 8)
    gam = gg.GAM("Surv(time, event) ~ s(x) + factor(g)", family="weibull").fit(wide)
    assert learnt(gam) == pytest.approx(8 * 0.5, rel=0.1)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("family", "sd"), [("weibull", 0.9), ("cox", 2.0), ("gamma", 4.0), ("poisson", 4.0)]
)
def test_groups_that_are_far_apart_are_fitted(family, sd):
    """From a constant, where log-densities are nearly lines, a first step went to exp(50)."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(40), 12)
    level = rng.normal(0.0, sd, 40)[group]
    time = np.exp(level + 0.3 * np.log(rng.standard_exponential(len(group))))
    y = rng.poisson(np.exp(level)) if family == "poisson" else time
    table = pd.DataFrame({"g": group.astype(str), "y": y, "event": 1})
    response = Surv("y", "event") if family in ("weibull", "cox") else "y"
    gam = gg.GAM(gg.random_effect("g"), family).fit(table, response)
    sign = -1.0 if family == "cox" else 1.0
    assert sign * np.corrcoef(gam.predict(table, "link"), level)[0, 1] > 0.93
    if family == "weibull":
        assert learnt(gam) == pytest.approx(0.3, abs=0.03)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(
    ("family", "number", "censored"),
    [
        ("weibull", 200, False),
        ("weibull", 1000, False),
        ("weibull", 200, True),
        ("lognormal", 200, True),
    ],
)
def test_scales_of_which_few_rows_tell_are_fitted(family, number, censored, seed):
    """Where rows are rare the scale is any under the prior with which fits begin."""
    rng = np.random.default_rng(seed)
    z = rng.exponential(size=number) if censored else rng.normal(size=number)
    time = np.exp(1.0 + 0.5 * np.sin(z)) * rng.exponential(size=number) ** 0.7
    end = rng.exponential(5.0, number) if censored else np.inf
    data = pd.DataFrame({"z": z, "time": np.minimum(time, end), "event": time <= end})
    y = Surv("time", "event") if censored else "time"
    gam = gg.GAM({"location": s("z"), "scale": s("z")}, family=family).fit(data, y=y)
    assert gam.fitted.result.converged
    constant = gg.GAM({"location": s("z")}, family=family).fit(data, y=y)
    assert gam.summary().elbo > constant.summary().elbo - 15.0
    if family == "weibull":
        scale = gam.predict(data, "link", interval=0.999)["log scale"]
        inside = (scale["lower"] < np.log(0.7)) & (np.log(0.7) < scale["upper"])
        assert inside.mean() > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [False, True], ids=["memory", "blocks"])
def test_the_null_model_is_the_best_constant(monkeypatch, blocks):
    """Whose likelihood has a closed form; little noise makes its slope explode."""
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"x": rng.uniform(size=300), "event": rng.uniform(size=300) > 0.3})
    data["time"] = np.exp(5.0 * data["x"] + 0.05 * np.log(rng.exponential(size=300)))
    if blocks:
        monkeypatch.setattr(bins, "KEPT_ROWS", 150)
    gam = gg.GAM(linear("x"), "weibull").fit(data, Surv("time", "event"))
    assert (not gam.fitted.data.complete) == blocks
    scale, event = float(gam.fitted.likelihood.scale.numpy()), data["event"].to_numpy()
    z = np.log(data["time"].to_numpy()) / scale
    z = z - (np.logaddexp.reduce(z) - np.log(event.sum()))
    null = 2.0 * np.sum(event * (np.exp(z) - z - 1.0)) + 2.0 * np.sum(~event * np.exp(z))
    assert gam.fitted.deviance()[1] == pytest.approx(null, rel=1e-6)


@pytest.mark.slow
def test_survival_begins_at_one(table, times, weibull, both, tmp_path):
    few = table.iloc[:3]
    for made, rows, whole in (
        (weibull, few, True),
        (weibull, few, False),
        (both, times[:3], False),
    ):
        start = made.survival(rows[:3], 0, unconditional=whole)
        np.testing.assert_array_equal(start[["estimate", "lower", "upper"]], 1.0)
        assert start["time"].tolist() == [0.0] * 3
    pd.testing.assert_frame_equal(weibull.survival(few, 1.5), weibull.survival(few, [1.5]))
    curve, at = weibull.survival(few), np.linspace(0.0, table["time"].max(), 101)
    np.testing.assert_allclose(curve["time"], np.tile(at, 3))
    assert np.all(np.diff(curve[curve["row"] == 1]["estimate"]) <= 0.0)
    pd.testing.assert_frame_equal(curve, weibull.survival(few, at))
    # responses that may be negative begin at the least
    tobit = gg.GAM("Surv(y, event) ~ x", family="gaussian")
    tobit.fit(table.assign(y=np.log(table["time"])))
    ends = tobit.survival(few.head(1))["time"].iloc[[0, -1]]
    np.testing.assert_allclose(ends, np.log(table["time"]).agg(["min", "max"]))
    weibull.save(tmp_path / "gam", data=False)
    with pytest.raises(ValueError, match="times: the GAM was saved without its data.*give times"):
        gg.GAM.load(tmp_path / "gam").survival(few)


def test_curves_of_a_new_group_are_those_of_scipy():
    """Its level is uncertain by ten scales; ends of intervals were above estimates."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(40), 10)
    time = np.exp(rng.normal(0.0, 0.8, 40)[group] + 0.08 * rng.normal(size=len(group)))
    table = pd.DataFrame({"g": group.astype(str), "time": time, "event": 1})
    gam = gg.GAM(gg.random_effect("g"), "lognormal").fit(table, Surv("time", "event"))
    new, t = pd.DataFrame({"g": ["new"]}), np.geomspace(0.2, 600.0, 40)
    (mean,), (sd,) = gam.predict(new, "link", se=True, unconditional=False)
    scale = learnt(gam)
    got, wide = (gam.survival(new, t, unconditional=each) for each in (False, True))
    z = (np.log(t) - mean) / scale
    away = st.norm.ppf(0.975) * sd / scale
    np.testing.assert_allclose(got["estimate"], st.norm.sf(z / np.hypot(1.0, sd / scale)))
    np.testing.assert_allclose(got["lower"], st.norm.sf(z + away), atol=1e-9)
    np.testing.assert_allclose(got["upper"], st.norm.sf(z - away), atol=1e-9)
    few = wide[wide["time"] < 3.0]
    assert np.all((few["lower"] < few["estimate"]) & (few["estimate"] < few["upper"]))
    area = gam.restricted_mean(new, t)["estimate"]
    s = np.hypot(scale, sd)
    below = st.lognorm(s, scale=np.exp(mean + s**2)).cdf(t) * np.exp(mean + 0.5 * s**2)
    np.testing.assert_allclose(area, below + t * st.lognorm(s, scale=np.exp(mean)).sf(t), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["weibull", "both"])
def test_survival_curves_are_those_of_drawn_predictors(request, table, times, which):
    gam = request.getfixturevalue(which)
    few, at = (table if which == "weibull" else times).iloc[:4], np.array([0.5, 1.0, 2.0])
    result = gam.survival(few, at, unconditional=False)
    assert result["row"].tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    link, se = (
        np.reshape(v, (4, -1)) for v in gam.predict(few, "link", se=True, unconditional=False)
    )
    F = link + se * np.random.default_rng(1).standard_normal((40_000, 1, link.shape[1]))
    scale = learnt(gam) if which == "weibull" else np.exp(F[..., 1:])
    draws = np.exp(-((at / np.exp(F[..., :1])) ** (1.0 / scale)))
    np.testing.assert_allclose(result["estimate"], draws.mean(axis=0).ravel(), atol=0.002)
    for name, level in (("lower", 0.025), ("upper", 0.975)):
        ends = np.quantile(draws, level, axis=0).ravel()
        np.testing.assert_allclose(result[name], ends, atol=0.009)
    wide, narrow = ((r["upper"] - r["lower"]).to_numpy() for r in (gam.survival(few, at), result))
    assert which == "both" or np.all(wide > narrow - 1e-3)
    assert wide.mean() > narrow.mean()


def test_what_has_no_survival_is_said(table, weibull):
    with pytest.raises(ValueError, match="times must be finite and not negative; got -1"):
        weibull.survival(table[:3], [-1.0])
    plain = gg.GAM("full ~ linear(x)").fit(table)
    with pytest.raises(ValueError, match="survival: family 'gaussian' has no survival curves"):
        plain.survival(table[:3], [0.5])


# --- a scale that varies --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "options", "message"),
    [
        ({"location": s("x"), "shape": s("z")}, {}, "no parameter 'shape'.*'location', 'scale'"),
        (TERMS, {"offset": "f"}, "offset"),
        (TERMS, {"engine": "iterncgp"}, "engine='iterncgp' has the same terms"),
    ],
)
def test_terms_that_no_scale_has(times, terms, options, message):
    with pytest.raises(ValueError, match=message):
        gg.GAM(terms, "weibull", **options).fit(times, Surv("time", "event"))


def test_rows_of_a_censored_response_are_not_added(table):
    gam = gg.GAM("Surv(time, event) ~ x", family="weibull").fit(table)
    with pytest.raises(ValueError, match="update: rows of a censored response"):
        gam.update(table.iloc[:5])
