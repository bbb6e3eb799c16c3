"""Proportional hazards: beside split tables of counts and truths that are known."""

import itertools
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats as st
import tensorflow as tf
from response_cases import hazards
from scipy.integrate import cumulative_trapezoid
from scipy.optimize import minimize

import gpflow_gam as gg
from gpflow_gam import Surv, linear, s
from gpflow_gam import families as fam
from gpflow_gam.gam.families import encoding
from gpflow_gam.gam.families.continuous import step_sd
from gpflow_gam.gam.plotting import draw_survival, quantile_residuals
from gpflow_gam.likelihoods.base import Batch
from gpflow_gam.optimizers.binned import bins

STATED = Surv("time", "event")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Hazard ``1.5 t^0.5 exp(sin(6 x) + 0.6 z)``, about a quarter of the rows censored."""
    rng = np.random.default_rng(4)
    n = 350
    result = pd.DataFrame({"x": rng.uniform(size=n), "z": rng.standard_normal(n)})
    result["f"] = np.sin(6.0 * result["x"]) + 0.6 * result["z"]
    time = (rng.exponential(size=n) / np.exp(result["f"])) ** (1.0 / 1.5)
    end = rng.uniform(0.5, 3.0, size=n)
    result["time"] = np.minimum(time, end)
    result["event"] = time <= end
    return result


@pytest.fixture(scope="module")
def gam(table) -> gg.GAM:
    terms = s("x", k=10) + linear("z")
    return gg.GAM(terms, family=fam.Cox(16)).fit(table, STATED)


def test_rows_are_split_tables_of_counts():
    likelihood, Y = hazards()
    level = np.cumsum([0.0, 0.4, -1.1])
    level += np.log(0.7) - np.log(np.exp(level) @ [0.5, 0.3, 0.2])
    np.testing.assert_allclose(likelihood.log_baseline(), level, rtol=1e-12)
    f = np.linspace(-1.0, 1.0, len(Y))[:, None]
    expected = np.zeros(len(Y))
    for n, (t, _, event) in enumerate(Y):
        for j, (a, b) in enumerate([(0.0, 1.0), (1.0, 2.5), (2.5, np.inf)]):
            if t <= a:
                continue
            here = event if t <= b else 0.0
            rate = (min(t, b) - a) * np.exp(level[j] + f[n, 0])
            # the density of a time, and not the probability of a count
            expected[n] += st.poisson.logpmf(here, rate) - here * np.log(min(t, b) - a)
    got = likelihood.log_prob(np.zeros((len(Y), 1)), f, Y)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_other_parameters_and_times_that_are_none_are_not_for_sums_without_tensorflow():
    base, Y = hazards()
    mean = np.linspace(-1.0, 1.0, len(Y))[:, None]
    rows = Batch(mean, 0.3 + 0.0 * mean, Y, None, [base.edges.unconstrained_variable])
    assert base.row_terms(rows) is None
    assert base.row_terms(rows._replace(Y=-Y, variables=[])) is None


def test_how_far_a_baseline_steps_is_what_its_events_say():
    rng = np.random.default_rng(3)
    J, risk = 24, np.full(24, 1.0)
    level = np.cumsum(np.r_[4.0, 0.5 * rng.standard_normal(J - 1)])
    for factor in (1.0, 1e-6):  # of the unit of time
        assert 0.35 < step_sd(rng.poisson(np.exp(level)), factor * risk) < 0.9
    assert step_sd(np.full(J, 400.0), risk) < 0.06
    assert step_sd(np.zeros(J), risk) > 1.0
    # the evidence of two intervals, by quadrature: of a binomial share, its logit N(0, sd^2)
    z, w = np.polynomial.hermite_e.hermegauss(201)
    sds = np.geomspace(5e-3, 3.0, 60)
    for seen in ([30.0, 60.0], [45.0, 45.0], [10.0, 90.0]):
        p = 1.0 / (1.0 + np.exp(-sds[:, None] * z))
        logs = np.log(st.binom.pmf(seen[0], sum(seen), p) @ w)
        wanted = sds[np.flatnonzero(logs >= logs.max() - 1.0)[-1]]
        np.testing.assert_allclose(step_sd(np.array(seen), np.ones(2)), wanted, rtol=0.13)


def partial_likelihood(table: pd.DataFrame, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and standard errors where Cox's partial likelihood is largest; no ties."""
    rows = table.sort_values("time", ascending=False)
    X, event = rows[names].to_numpy(), rows["event"].to_numpy(bool)
    b = np.zeros(len(names))
    for _ in range(30):
        r = np.exp(X @ b)[:, None]
        total = np.cumsum(r, axis=0)
        mean = np.cumsum(r * X, axis=0) / total
        second = np.cumsum(r[:, :, None] * X[:, :, None] * X[:, None, :], axis=0)
        second = second / total[:, :, None] - mean[:, :, None] * mean[:, None, :]
        H = second[event].sum(axis=0)
        b = b + np.linalg.solve(H, (X - mean)[event].sum(axis=0))
    return b, np.sqrt(np.diag(np.linalg.inv(H)))


def test_lines_are_those_of_the_partial_likelihood_whatever_the_intervals(table):
    """Neither the priors of slopes nor the number of intervals hold them back."""
    other = table.assign(z=1e3 * table["z"])
    known, errors = partial_likelihood(other, ["x", "z"])
    off = []
    for intervals in (16, 64):
        own = gg.GAM(linear("x") + linear("z"), family=fam.Cox(intervals)).fit(other, STATED)
        result = own.coefficients().set_index("term").loc[["linear(x)", "linear(z)"]]
        off.append((result["estimate"] - known) / errors)
        np.testing.assert_allclose(result["se"], errors, rtol=0.06)
    np.testing.assert_allclose(off, 0.0, atol=0.08)
    np.testing.assert_allclose(off[0], off[1], atol=0.03)


def test_akaikes_criterion_counts_what_a_baseline_is_free_to_do(table):
    """More intervals tell much the same: all steps of the walk were counted."""
    gams = [gg.GAM(s("x"), fam.Cox(intervals=n)).fit(table, STATED) for n in (8, 96)]
    assert all(gam.fitted.result.converged for gam in gams)
    fits = [gam.loo() for gam in gams]
    assert abs(fits[0].aic - fits[1].aic) < 6.0
    assert all(abs(fit.aic + 2.0 * fit.elpd) < 20.0 for fit in fits)


def test_what_the_family_says_goes_together():
    """Survival, distribution function, hazard and deviance are of one distribution."""
    likelihood, Y = hazards()
    family, f = fam.Cox(3), np.full((len(Y), 1), 0.3)
    t = tf.constant(np.linspace(0.05, 3.95, 40))
    with tf.GradientTape() as tape:
        tape.watch(t)
        level, total = likelihood.hazards(t)
    np.testing.assert_allclose(tape.gradient(total, t), np.exp(level), rtol=1e-12)
    below, at_most = family.cdf(likelihood, Y, f)
    survival = family.survival(likelihood, Y[:, 0], f)
    np.testing.assert_allclose(below, 1.0 - survival, rtol=1e-12)
    np.testing.assert_array_equal(at_most[Y[:, 2] == 0.0], 1.0)
    X, result = np.zeros((len(Y), 1)), family.deviance(likelihood, Y, f)
    F = np.linspace(-12.0, 9.0, 20_001)[:, None, None] * np.ones((1, len(Y), 1))
    logs = np.asarray(likelihood.log_prob(np.zeros(F.shape), F, Y + np.zeros((len(F), 1, 1))))
    own = np.asarray(likelihood.log_prob(X, f, Y))
    np.testing.assert_allclose(result, 2.0 * (logs.max(axis=0) - own), atol=1e-4)


def test_intervals_are_quantiles_of_events(table):
    likelihood = fam.Cox(8).likelihood(
        fam.Cox().encode_censored([table.time, table.event], STATED).Y
    )
    edges = likelihood.edges.numpy()
    seen = table.time[table.event]
    counts = np.histogram(seen, edges)[0]
    assert np.ptp(counts) <= 0.1 * len(seen)
    np.testing.assert_allclose(edges[-1], table.time.max())
    assert float(likelihood.unit.numpy()) == pytest.approx(len(seen) / table.time.sum())
    risk = [np.clip(table.time - a, 0.0, w).sum() for a, w in zip(edges[:-1], np.diff(edges))]
    np.testing.assert_allclose(likelihood.shares.numpy(), np.array(risk) / sum(risk), rtol=1e-10)


def test_events_in_whole_units_are_warned_of_and_drawing_times_within_them_helps():
    rng = np.random.default_rng(1)
    x, end = rng.uniform(-1.0, 1.0, 1000), rng.exponential(3.0, 1000)
    exact = rng.exponential(size=1000) * np.exp(-0.8 * x)
    time = np.minimum(exact, end)

    def fitted(time) -> tuple[gg.GAM, float]:
        data = pd.DataFrame({"x": x, "time": time, "died": exact <= end})
        gam = gg.GAM("Surv(time, died) ~ x", "cox").fit(data)
        return gam, gam.coefficients()["estimate"].iloc[-1]

    with warnings.catch_warnings():  # also where a few times are the same
        warnings.simplefilter("error")
        _, slope = fitted(np.ceil(200.0 * time) / 200.0)
    units = np.ceil(4.0 * time) / 4.0
    with pytest.warns(gg.ResolutionWarning, match="many events share a time: slopes are about 10%"):
        _, short = fitted(units)
    assert short < 0.9 * slope
    gam, drawn = fitted(units - 0.25 * rng.uniform(size=1000))
    assert drawn == pytest.approx(slope, rel=0.02)
    assert gam.survival({"x": [0.0]}, 1.0)["estimate"].item() == pytest.approx(np.exp(-1), abs=0.02)


def test_pictures_have_kaplan_meier_beside_the_fit_and_curves_with_bands(table, gam):
    ax = gam.appraise().axes[2]
    F = gam.predict(table, "link")
    for k, rows in enumerate(np.array_split(np.argsort(F, kind="stable"), 3)):
        there = table.iloc[rows]
        seen = there["event"]
        km = st.ecdf(st.CensoredData(there["time"][seen], right=there["time"][~seen])).sf
        x, observed = ax.lines[2 * k].get_data()
        assert np.max(np.abs(observed - km.evaluate(x))) < 0.04
        mean = gam.survival(there, x).groupby("time")["estimate"].mean()
        assert np.max(np.abs(ax.lines[2 * k + 1].get_ydata() - mean)) < 0.06
    curves = gam.survival(table.head(2), [0.0, 0.5, 1.0])
    narrow = gam.survival(table.head(2), [0.0, 0.5, 1.0], unconditional=False)
    width = (curves["upper"] - curves["lower"]) / (narrow["upper"] - narrow["lower"])
    assert np.all(width[curves["time"] > 0.0] > 1.0)  # the baseline is not known
    (ax,) = draw_survival(curves, labels=["one", "two"]).axes
    for (_, want), line, band in zip(curves.groupby("row"), ax.lines, ax.collections):
        np.testing.assert_allclose(line.get_xydata(), want[["time", "estimate"]])
        got = band.get_paths()[0].vertices
        assert want[["lower", "upper"]].isin(got[:, 1]).all(axis=None)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one", "two"]
    assert ax.get_legend().get_title().get_text() == ""
    with pytest.raises(ValueError, match="labels must be 2, one for each row; got 1"):
        draw_survival(curves, labels=["one"])
    with pytest.raises(ValueError, match="labels must differ; got 'one' twice"):
        draw_survival(curves, labels=["one", "one"])
    with pytest.raises(ValueError, match="it has no 'time'"):
        draw_survival(curves.drop(columns="time"))
    plt.close("all")


def test_pictures_count_events_at_the_end_of_whole_units(table):
    """Whole months: observed survival is exp(-H) of Nelson and Aalen, at every month."""
    months = table.assign(time=np.ceil(6.0 * table["time"]).clip(upper=9.0))
    months["event"] &= months["time"] < 9.0
    gam = gg.GAM("Surv(time, event) ~ z", family="cox").fit(months)
    ax = gam.appraise().axes[2]
    z = months["z"] * np.sign(gam.coefficients()["estimate"].iloc[-1])
    for k, (_, rows) in enumerate(months.groupby(pd.qcut(z, 3))):
        units = np.arange(1.0, 9.0)
        steps = [
            (rows["event"] & (rows["time"] == t)).sum() / (rows["time"] >= t).sum() for t in units
        ]
        x, observed = ax.lines[2 * k].get_data()
        assert np.isin(units, x).all()
        np.testing.assert_allclose(observed[np.isin(x, units)], np.exp(-np.cumsum(steps)))
    plt.close("all")


def test_weights_count_rows_in_the_baseline_too(table):
    """Intervals, their shares and how far the hazard steps are of rows as often as they count."""
    some = table.iloc[:150].assign(w=np.arange(150.0) % 4.0)
    some.loc[some["time"].idxmax(), "w"] = 1.0
    repeated = some.loc[some.index.repeat(some["w"].astype(int))].reset_index(drop=True)
    weighted = gg.GAM(linear("z"), family=fam.Cox(8), weights="w").fit(some, STATED)
    plain = gg.GAM(linear("z"), family=fam.Cox(8)).fit(repeated, STATED)
    a, b = (g.coefficients()[["estimate", "se"]] for g in (weighted, plain))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    curves = [g.survival(some.iloc[:5], [0.5, 1.0], unconditional=False) for g in (weighted, plain)]
    pd.testing.assert_frame_equal(*curves, rtol=1e-6)


def test_rows_in_blocks_are_the_rows(table, gam, monkeypatch):
    monkeypatch.setattr(bins, "KEPT_ROWS", 150)
    monkeypatch.setattr(encoding, "_BLOCK", 90)
    other = gg.GAM(s("x", k=10) + linear("z"), family=fam.Cox(16))
    other.fit([table.iloc[:130], table.iloc[130:]], STATED)
    assert not other.fitted.data.complete
    a, b = (g.fitted.likelihood.edges.numpy() for g in (other, gam))
    np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(other.predict(table, "link"), gam.predict(table, "link"), atol=0.03)


@pytest.mark.parametrize("events", [1, 2])
def test_ends_of_bands_fall_as_curves_do_however_few_the_events(events):
    rng = np.random.default_rng(0)
    x, time = rng.normal(size=200), np.sort(rng.exponential(size=200))
    end = min(1.2 * time[events - 1], 0.999 * time[events])
    data = pd.DataFrame({"x": x, "time": np.minimum(time, end), "died": time <= end})
    gam = gg.GAM("Surv(time, died) ~ x", "cox").fit(data)
    t, new = rng.permutation(np.linspace(0.0, end, 41)), {"x": [0.0, 1.0]}
    for ask, sign in ((gam.survival, -1.0), (gam.restricted_mean, 1.0)):
        got = ask(new, t)
        np.testing.assert_array_equal(got["time"], np.tile(t, 2))
        for _, curve in got.sort_values("time").groupby("row"):
            assert np.all(sign * np.diff(curve[["estimate", "lower", "upper"]], axis=0) > -1e-9)
            assert curve["estimate"].between(curve["lower"], curve["upper"]).all()


def test_what_no_hazard_has_is_said(table, gam):
    few = table.iloc[:2]
    with pytest.raises(ValueError, match="needs times and whether the event was seen: y=Surv"):
        gg.GAM(s("x"), family="cox").fit(table, "time")
    for type in ("left", "interval"):
        stated = Surv("time", "event", type=type)
        with pytest.raises(ValueError, match=f"no {type} censoring; take 'weibull'"):
            gg.GAM(s("x"), family="cox").fit(table, stated)
    longest = table["time"].max()
    with pytest.raises(ValueError, match=f"times must be at most {longest:g}.*got 9"):
        gam.survival(few, [0.5, 9.0])
    with pytest.raises(ValueError, match="family 'cox' draws no responses.*survival"):
        gam.predict(few, "observation")
    with pytest.raises(ValueError, match="no residuals on the predictor's scale"):
        gam.draw("s(x)", residuals=True)
    normal = gg.GAM(s("x")).fit(table, STATED, max_iterations=2)
    with pytest.raises(ValueError, match="responses below zero"):
        normal.restricted_mean(few, [1.0])
    with pytest.raises(ValueError, match="intervals must be a whole number of at least 2; got 1"):
        fam.Cox(1)


# --- rows that enter later ------------------------------------------------------------------------


def lives(n=500, seed=3):
    """A subject a row: hazards that double when treatment begins, and a covariate."""
    rng = np.random.default_rng(seed)
    x, begin, end = rng.normal(size=n), rng.exponential(2.0, n), rng.exponential(5.0, n)
    spent = rng.exponential(size=n) * np.exp(-0.5 * x)  # hazard 1/2 before, 1 after
    time = np.where(spent < 0.5 * begin, 2.0 * spent, begin + spent - 0.5 * begin)
    data = pd.DataFrame({"x": x, "begin": begin, "stop": np.minimum(time, end)})
    return data.assign(start=0.0, event=time <= end)


def episodes(data, at):
    """Rows split at times [N], where these are within; and whether they are the later part."""
    inside = (at > data["start"]) & (at < data["stop"])
    first = data.assign(stop=np.where(inside, at, data["stop"]), later=False)
    first["event"] = data["event"] & ~inside
    return pd.concat([first, data.assign(start=at, later=True)[inside]], ignore_index=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["cox", "weibull", "lognormal"])
def test_splitting_rows_in_two_changes_nothing(family):
    whole = lives()
    halves = episodes(whole, 0.4 * whole["stop"])
    fits = [
        gg.GAM(f"{y} ~ s(x, bs='se')", family).fit(data)
        for y, data in (
            ("Surv(stop, event)", whole),
            ("Surv(start, stop, event)", whole),
            ("Surv(start, stop, event)", halves),
        )
    ]
    new = pd.DataFrame({"x": np.linspace(-2.0, 2.0, 9)})
    # fits start at rows, which differ, and end within their tolerance; and times of rows are what
    # priors of the others have their unit from
    rtol = 1e-4 if family == "cox" else 2e-3
    for each in fits[1:]:
        np.testing.assert_allclose(each.predict(new), fits[0].predict(new), rtol=rtol)
        curves = [gam.survival(new, times=[0.5, 2.0])["estimate"] for gam in (each, fits[0])]
        np.testing.assert_allclose(*curves, rtol=rtol)
    if family == "cox":
        assert fits[2].fitted.result.elbo == pytest.approx(fits[0].fitted.result.elbo, abs=1e-3)
    else:  # the density of a life is the product of those of its parts
        likelihood, F = fits[0].model.likelihood, np.full((len(whole), 1), 0.3)
        at = 0.4 * whole["stop"].to_numpy()
        none, seen = 0.0 * at, whole["event"].to_numpy(float)
        parts = [
            likelihood.log_prob(0.0 * F, F, np.stack([stop, stop, event, start], axis=1)).numpy()
            for stop, event, start in (
                (whole["stop"], seen, none),
                (at, none, none),
                (whole["stop"], seen, at),
            )
        ]
        np.testing.assert_allclose(parts[1] + parts[2], parts[0], atol=1e-12)


def test_a_treatment_that_begins_as_poisson_regression_has_it():
    """Estimate and standard error, by a table of episodes with an indicator an interval."""
    whole = lives()
    data = episodes(whole, whole["begin"].to_numpy()).assign(on=lambda d: d["later"].astype(float))
    gam = gg.GAM("Surv(start, stop, event) ~ x + on", gg.families.Cox(intervals=8)).fit(data)
    table = gam.coefficients().set_index("term").loc[["linear(x)", "linear(on)"]]
    edges = gam.model.likelihood.edges.numpy()
    rows, counts, risks = [], [], []
    for row in data.itertuples():
        for j, (low, high) in enumerate(itertools.pairwise(edges)):
            spent = min(row.stop, high) - max(row.start, low)
            if spent > 0.0:
                rows.append([*(np.arange(8) == j), row.x, row.on])
                counts.append(row.event and row.stop <= high)
                risks.append(spent)
    A, y, risk = (np.array(v, dtype=float) for v in (rows, counts, risks))
    beta = np.zeros(10)
    for _ in range(30):  # Newton's method
        mu = risk * np.exp(A @ beta)
        beta += np.linalg.solve((A.T * mu) @ A, A.T @ (y - mu))
    se = np.sqrt(np.diag(np.linalg.inv((A.T * mu) @ A)))[8:]
    assert np.all(np.abs(table["estimate"] - beta[8:]) < 0.2 * se)
    # the baseline's steps have a prior here
    np.testing.assert_allclose(table["se"], se, rtol=0.03)
    known = gam.coefficients(unconditional=False).set_index("term")
    assert known.loc["linear(on)", "se"] < 0.95 * table.loc["linear(on)", "se"]


@pytest.mark.parametrize("family", ["cox", "weibull", "lognormal"])
def test_rows_that_enter_late_are_not_taken_for_survivors(family):
    """Without its entry a row seems to have lived longer: the short lives were never seen."""
    rng = np.random.default_rng(1)
    x, entry = rng.normal(size=8000), rng.uniform(0.0, 4.0, 8000)
    log = rng.normal(size=8000) if family == "lognormal" else np.log(rng.exponential(size=8000))
    time = 2.0 * np.exp(log - 1.5 * x)
    data = pd.DataFrame({"x": x, "start": entry, "stop": np.minimum(time, 8.0)})
    data["event"] = time < 8.0
    data = data[entry < data["stop"]]
    fits = [
        gg.GAM(f"{y} ~ linear(x)", family).fit(data)
        for y in ("Surv(start, stop, event)", "Surv(stop, event)")
    ]
    right, wrong = (gam.coefficients().iloc[-1] for gam in fits)
    truth = 1.5 if family == "cox" else -1.5
    assert abs(right["estimate"] - truth) < 3.0 * right["se"]
    assert abs(wrong["estimate"] - truth) > 3.0 * wrong["se"]
    assert st.kstest(quantile_residuals(fits[0].fitted, seed=0), "norm").pvalue > 0.01


def ages(n=600, seed=0):
    """Entries up to 20, then hazard ``0.02 exp(0.08 t + 0.5 x)`` of one death, and another."""
    rng = np.random.default_rng(seed)
    x, entry = rng.normal(size=n), rng.uniform(0.0, 20.0, n)
    spent = 0.08 * rng.exponential(size=n) / (0.02 * np.exp(0.5 * x))
    time = np.log(np.exp(0.08 * entry) + spent) / 0.08
    other = entry + rng.exponential(30.0, n)
    end = entry + rng.uniform(2.0, 15.0, n)
    stop = np.minimum(np.minimum(time, other), end)
    data = pd.DataFrame({"x": x, "start": entry - entry.min(), "stop": stop - entry.min()})
    return data.assign(died=stop == time, left=stop == other)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("term", ["", " + linear(start)"])
def test_a_clock_may_begin_at_any_time(term):
    """Ages and years: what lies before the first entry changes nothing, and curves begin there."""
    since = ages()
    t, new = np.array([0.0, 5.0, 10.0, 20.0, 25.0]), {"x": [0.0, 1.0]}
    results = []
    for shift in (0.0, 50.0, 2000.0):
        data = since.assign(start=since["start"] + shift, stop=since["stop"] + shift)
        gam = gg.GAM(f"Surv(start, stop, died) ~ x{term}", "cox").fit(data)
        curves = gam.survival(new, t + shift)
        assert np.all(curves.loc[curves["time"] == shift, ["estimate", "lower", "upper"]] == 1.0)
        assert np.all(gam.survival(new, [0.0, 0.6 * shift])["estimate"] == 1.0)
        areas = gam.restricted_mean(new, t + shift)[["estimate", "lower", "upper"]] - shift
        assert gam.restricted_mean(new, 0.5 * shift)["estimate"][0] == pytest.approx(0.5 * shift)
        grid = gam.survival(new)["time"]
        ends = [grid.min() - shift, grid.max() - shift]
        slope = gam.coefficients().loc[1, ["estimate", "se"]].to_numpy(float)
        others = gam.appraise().axes[2].lines
        pictures = [line.get_xydata() - [shift, 0.0] for line in others]
        plt.close("all")
        columns = ["estimate", "lower", "upper"]
        results.append([curves[columns], areas, ends, slope, *pictures, gam.log_density(data)])
        if not term:
            other = gg.GAM("Surv(start, stop, left) ~ x", "cox").fit(data)
            causes = {"died": gam, "left": other}
            shares = gg.cumulative_incidence(causes, new, np.r_[0.0, t + shift])
            assert np.all(shares.loc[shares["time"] <= shift, columns] == 0.0)
            results[-1].append(shares.loc[shares["time"] > shift, columns])
    for each in results[1:]:
        for got, want in zip(each, results[0]):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    if not term:
        estimate, lower, upper = (curves.loc[curves["row"] == 0, c] for c in columns)
        truth = np.exp(-0.02 / 0.08 * np.expm1(0.08 * t))
        assert np.all(np.abs(estimate - truth) <= upper - lower)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", ["weibull", "lognormal", "gaussian"])
def test_when_rows_enter_is_a_covariate_as_any_but_to_cox(family):
    data = lives(200)
    data = data.assign(start=np.linspace(0.1, 0.6, 200) * data["stop"])
    gams = [
        gg.GAM(f"Surv(start, stop, event) ~ x + linear({name})", family)
        for name in ("start", "copy")
    ]
    curves = [
        gam.fit(data.assign(copy=data["start"])).survival(
            data[:3].assign(copy=data["start"]), [0.5, 2.0]
        )
        for gam in gams
    ]
    pd.testing.assert_frame_equal(*curves)


def test_a_truncated_regression_has_the_greatest_likelihood():
    """Beside scipy's densities, maximised over intercept, slope and scale."""
    rng = np.random.default_rng(5)
    x, entry = rng.normal(size=1200), rng.uniform(0.0, 3.0, 1200)
    time = np.exp(1.0 - 0.5 * x + 0.6 * rng.normal(size=1200))
    data = pd.DataFrame({"x": x, "start": entry, "stop": np.minimum(time, 6.0), "died": time < 6.0})
    data = data[entry < data["stop"]]

    def loss(theta):
        life = st.lognorm(np.exp(theta[2]), scale=np.exp(theta[0] + theta[1] * data["x"]))
        stop = data["stop"]
        seen = np.where(data["died"], life.logpdf(stop), life.logsf(stop))
        return -np.sum(seen - life.logsf(data["start"]))

    best = minimize(loss, [1.0, -0.5, -0.5], method="BFGS", options={"maxiter": 15})
    gam = gg.GAM("Surv(start, stop, died) ~ linear(x)", "lognormal").fit(data)
    got = gam.coefficients().set_index("term")
    ours = got["estimate"].to_numpy(copy=True)
    ours[0] -= ours[1] * data["x"].mean()  # smooths and lines are centred over rows
    assert np.all(np.abs(ours - best.x[:2]) < 0.1 * got["se"].to_numpy())
    assert gam.model.likelihood.scale.numpy() == pytest.approx(np.exp(best.x[2]), rel=0.01)


def test_lives_are_cut():
    data = lives(40).drop(columns="start").assign(event=lambda d: d["event"].astype(int))
    parts = gg.Surv("stop", "event").split(data, [2.0, 0.5, 0.5])
    loop = []
    for label, life in data.iterrows():
        ends = [c for c in (0.5, 2.0) if c < life["stop"]] + [life["stop"]]
        for i, end in enumerate(ends):
            seen = int(life["event"]) if i == len(ends) - 1 else 0
            loop.append([label, ends[i - 1] if i else 0.0, end, seen, life["x"]])
    got = parts.reset_index()[["index", "start", "stop", "event", "x"]]
    np.testing.assert_array_equal(got.to_numpy(), np.array(loop))
    assert parts["event"].dtype == data["event"].dtype
    again = gg.Surv("start", "stop", "event").split(parts, [1.0])
    whole = gg.Surv("stop", "event").split(data, [0.5, 1.0, 2.0])
    pd.testing.assert_frame_equal(again[whole.columns], whole)
    with pytest.raises(ValueError, match="start='x' is a column"):
        gg.Surv("stop", "event").split(data, [1.0], start="x")
    for kind in ("bool", "boolean", "Int64", "float64"):
        typed = gg.Surv("stop", "event").split(data.astype({"event": kind}), [2.0, 0.5])
        assert typed["event"].dtype == kind
        assert typed["event"].astype(int).tolist() == parts["event"].tolist()
    for cut in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"cuts must be finite; got {cut}"):
            gg.Surv("stop", "event").split(data, [0.5, cut])
    with pytest.raises(ValueError, match="'stop' must be greater than 'start' in every row"):
        gg.Surv("stop", "event").split(data.assign(stop=0.0), [1.0])


def test_an_effect_that_fades_is_found():
    """Of x on the hazard, which falls from 1.5 by a half each unit of time."""
    rng = np.random.default_rng(0)
    x, end = rng.integers(0, 2, 2500).astype(float), rng.uniform(2.0, 6.0, 2500)
    at = np.linspace(0.0, 6.0, 3001)
    hazard = 0.4 * np.exp((1.5 - at / 2) * np.array([[0.0], [1.0]]))
    risk = cumulative_trapezoid(hazard, at, axis=1, initial=0.0)
    spent = rng.exponential(size=2500)
    time = [np.interp(e, risk[int(v)], at, right=np.inf) for e, v in zip(spent, x)]
    data = pd.DataFrame({"x": x, "time": np.minimum(time, end), "died": time <= end})
    rows = Surv("time", "died").split(data, np.arange(0.25, 6.0, 0.25))
    gam = gg.GAM("Surv(start, time, died) ~ x + s(start, by=x)", "cox").fit(rows)
    start = np.array([0.25, 1.0, 2.0, 3.0])
    new = [pd.DataFrame({"x": v, "start": start}) for v in (1.0, 0.0)]
    f = gam.sample(pd.concat(new), 2000, "link")
    gap = f[:, :4] - f[:, 4:]
    assert np.all(np.abs(gap.mean(axis=0) - (1.375 - start / 2)) < 3.0 * gap.std(axis=0))
    assert np.all(gap.std(axis=0) < 0.3)
    # hazards change along curves, which are those of the truth and as wide as Kaplan-Meier's
    ask, t = pd.DataFrame({"x": [0.0, 1.0]}), np.array([0.0, 0.5, 1.0, 2.0])
    curves = gam.survival(ask, t)
    estimate, lower, upper = (
        curves[name].to_numpy().reshape(2, 4) for name in ("estimate", "lower", "upper")
    )
    truth = np.exp(-np.stack([np.interp(t, at, r) for r in risk]))
    half = 0.5 * (upper - lower)
    assert np.all(np.abs(estimate - truth) <= half + 0.01)
    number = np.bincount(x.astype(int))[:, None]
    binomial = 1.96 * np.sqrt(truth * (1.0 - truth) / number)
    assert np.all(estimate[:, 0] == 1.0)
    assert np.all(half[:, 1:] > 0.6 * binomial[:, 1:])
    assert np.all(half[:, 1:] < 1.4 * binomial[:, 1:])
    grid = np.linspace(0.0, 2.0, 101)
    areas = gam.survival(ask, grid)["estimate"].to_numpy().reshape(2, -1)
    means = gam.restricted_mean(ask, [2.0])["estimate"]
    np.testing.assert_allclose(means, cumulative_trapezoid(areas, grid)[:, -1], rtol=1e-3)
    # as other curves do: at time 0 alone, of no rows, and with errors that count rows as given
    assert list(gam.survival(ask, [0.0])["estimate"]) == [1.0, 1.0]
    assert list(gam.survival(ask[:0], t).columns) == list(curves.columns)
    with pytest.raises(ValueError, match="missing values: 1 in 'x'"):
        gam.survival(pd.DataFrame({"x": [0.0, np.nan]}), t)
    with pytest.raises(ValueError, match="gams: 'start', when a row enters, is in a term"):
        gg.cumulative_incidence({"a": gam, "b": gam}, ask)


def test_an_effect_that_ends_is_found_whatever_starts_there_are(tmp_path):
    """The old die at rate 1 until time 2, then as the young; half of the rows enter late."""
    rng = np.random.default_rng(0)
    n, t = 2000, [0.5, 1.0, 2.0]
    old, e, end = rng.uniform(size=n) < 0.5, rng.exponential(size=n), rng.uniform(1.0, 5.0, n)
    time = np.where(old & (e < 2.0), e, np.where(old, 2.0 + (e - 2.0) / 0.3, e / 0.3))
    data = pd.DataFrame({"old": old, "time": np.minimum(time, end), "died": time <= end})
    late = data.assign(start=np.where(rng.uniform(size=n) < 0.5, rng.uniform(0.0, 0.3, n), 0.0))
    late = late[late["time"] > late["start"]]
    for rows in (
        Surv("time", "died").split(data, [1.0, 2.0, 3.0]),
        Surv("start", "time", "died").split(late, [1.0, 2.0, 3.0]),
    ):
        gam = gg.GAM("Surv(start, time, died) ~ old + s(start, by=old)", "cox").fit(rows)
        curve = gam.survival({"old": [True]}, t, unconditional=False)
        np.testing.assert_allclose(curve["estimate"], np.exp([-0.5, -1.0, -2.0]), atol=0.03)
        gam.save(tmp_path / "bare", overwrite=True, data=False)
        bare = gg.GAM.load(tmp_path / "bare")
        again = bare.survival({"old": [True]}, t, unconditional=False)
        pd.testing.assert_frame_equal(again, curve)
        bare.save(tmp_path / "again", overwrite=True, data=False)
        again = gg.GAM.load(tmp_path / "again").survival({"old": [True]}, t, unconditional=False)
        pd.testing.assert_frame_equal(again, curve)


# --- areas under curves, and competing events -----------------------------------------------------


@pytest.mark.parametrize("family", ["cox", "weibull"])
def test_restricted_means_are_areas_under_curves(table, family):
    gam = gg.GAM(s("x"), family=family).fit(table, STATED)
    new, t = pd.DataFrame({"x": [0.2, 0.8]}), np.linspace(0.0, 2.0, 1001)
    # narrow ones, whose scale, another for areas than for curves, hardly counts
    curves = gam.survival(new, t, level=0.2).set_index(["row", "time"]).unstack("row")
    area = {
        name: cumulative_trapezoid(curves[name].to_numpy(), t, axis=0)[[499, 999]]
        for name in ("estimate", "lower", "upper")
    }
    got = gam.restricted_mean(new, [1.0, 2.0], level=0.2).set_index(["row", "time"]).unstack("row")
    np.testing.assert_allclose(got["estimate"], area["estimate"], rtol=2e-4)
    assert list(gam.restricted_mean(new[:0], t).columns) == list(gam.survival(new[:0], t).columns)
    # errors of a curve's times are not all one
    assert np.all((got["lower"] > area["lower"]) & (got["lower"] < area["estimate"]))
    assert np.all((got["upper"] < area["upper"]) & (got["upper"] > area["estimate"]))


def test_competing_events_are_shared_out():
    """Constant hazards exp(x) 3/10 and exp(-x) 2/10, whose incidences have a closed form."""
    rng = np.random.default_rng(6)
    x, end = rng.uniform(-1.0, 1.0, 1500), rng.uniform(1.0, 8.0, 1500)
    hazards = 0.3 * np.exp(x), 0.2 * np.exp(-x)
    times = [rng.exponential(size=1500) / h for h in hazards]
    data = pd.DataFrame({"x": x, "time": np.minimum(np.minimum(*times), end)})
    for name, t in zip("ab", times):
        data[name] = data["time"] == t
    gams = {
        name: gg.GAM(f"Surv(time, {name}) ~ s(x, bs='se')", family).fit(data)
        for name, family in (("a", "cox"), ("b", "weibull"))
    }
    new, t = pd.DataFrame({"x": [-0.7, 0.0, 0.7]}), np.array([0.0, 1.0, 4.0])
    got = gg.cumulative_incidence(gams, new, t).set_index(["cause", "row", "time"])
    own = np.stack([0.3 * np.exp(new["x"]), 0.2 * np.exp(-new["x"])])
    truth = (own / own.sum(axis=0))[:, :, None] * -np.expm1(-own.sum(axis=0)[:, None] * t)
    estimate = got["estimate"].to_numpy().reshape(truth.shape)
    half = (got["upper"] - got["lower"]).to_numpy().reshape(truth.shape) / 2
    assert np.all(np.abs(estimate - truth) < 1.5 * half + 1e-12)
    assert np.all(half[..., 1:] < 0.1)
    # all is shared out: what is left has had neither
    alive = np.prod([gam.survival(new, t)["estimate"] for gam in gams.values()], axis=0)
    np.testing.assert_allclose(estimate.sum(axis=0).ravel() + alive, 1.0, atol=6e-3)
    none = gg.cumulative_incidence(gams, new[:0], t)
    assert len(none) == 0
    assert set(none.columns) == {*got.index.names, *got.columns}
    turned = gg.cumulative_incidence(dict(reversed(gams.items())), new, t)
    assert list(turned["cause"].unique()) == ["b", "a"]
    turned = turned.set_index(["cause", "row", "time"]).loc[got.index, "estimate"]
    np.testing.assert_allclose(turned, got["estimate"], atol=8e-3)
    with pytest.raises(TypeError, match="gams must be a mapping.* got list"):
        gg.cumulative_incidence(list(gams.values()), new, t)
    with pytest.raises(ValueError, match="gams must have a GAM for each of two causes"):
        gg.cumulative_incidence({"a": gams["a"]}, new, t)


def test_incidences_of_short_lives_beside_long_ones():
    """Most is over before the first of even steps to the last time."""
    rng = np.random.default_rng(8)
    x = rng.uniform(-2.0, 2.0, 2000)
    first = np.exp(2.0 * x) * rng.exponential(size=2000) ** 2.0
    second = np.exp(2.0 * x + 0.5 * rng.normal(size=2000))
    data = pd.DataFrame({"x": x, "time": np.minimum(first, second), "a": first < second})
    data["b"] = ~data["a"]
    a = gg.GAM("Surv(time, a) ~ x", "weibull").fit(data)
    b = gg.GAM("Surv(time, b) ~ x", "lognormal").fit(data)
    new, last = pd.DataFrame({"x": [-1.8]}), 10.0 * data["time"].max()
    got = gg.cumulative_incidence({"a": a, "b": b}, new, last).set_index("cause")["estimate"]
    t = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 20_001) * last])
    alive = [gam.survival(new, t, unconditional=False)["estimate"].to_numpy() for gam in (a, b)]
    truth = -np.sum(np.diff(alive[0]) * 0.5 * (alive[1][1:] + alive[1][:-1]))
    assert got["a"] == pytest.approx(truth, abs=0.01)
    assert got.sum() == pytest.approx(1.0, abs=1e-6)


def test_bad_starts_are_named():
    data = lives(50)
    with pytest.raises(ValueError, match="start must be less than 'stop' of its row"):
        gg.GAM("Surv(start, stop, event) ~ x", "cox").fit(data.assign(start=data["stop"]))
    with pytest.raises(ValueError, match="start must be not negative"):
        gg.GAM("Surv(start, stop, event) ~ x", "cox").fit(data.assign(start=-1.0))
    with pytest.raises(ValueError, match="three columns"):
        gg.Surv("start", "stop", "event", "left")
