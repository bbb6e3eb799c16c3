"""Forecasts from rolling origins, against fits and scores one by one, and where a level breaks."""

import warnings

import numpy as np
import pandas as pd
import pytest
from problems import autocorrelated, reloaded
from scipy.stats import multivariate_normal

import gpflow_gam as gg
from gpflow_gam import metrics, s
from gpflow_gam.errors import AutocorrelationWarning
from gpflow_gam.gam.plotting import quantile_residuals

SCORES = ["crps", "pinball_0.05", "pinball_0.5", "pinball_0.95", "log_density"]


def made(seed=0, number=120, jump=0.0):
    """Four rows a day; from the middle on a level that is higher by ``jump``."""
    rng = np.random.default_rng(seed)
    day = np.arange(number) // 4
    x = rng.uniform(size=number)
    mean = np.sin(5.0 * x) + np.where(day >= number // 8, jump, 0.0)
    table = pd.DataFrame({"day": day, "x": x, "y": mean + 0.3 * rng.normal(size=number)})
    table["date"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    table["count"] = rng.poisson(np.exp(mean))
    return table.sample(frac=1.0, random_state=seed, ignore_index=True)


@pytest.fixture(scope="module")
def data():
    return made()


def test_forecasts_are_those_of_fits_to_the_past(data):
    gam = gg.GAM(s("x", k=8)).fit(data, "y")
    result = gg.backtest(gam, data, time="day", horizon=5, origins=3, tolerance=1e-6)
    assert gam.fitted.number == len(data)  # as it was
    assert list(result["origin"].unique()) == [14, 19, 24]
    assert len(result) == 60
    for origin, part in result.groupby("origin"):
        past, future = data[data["day"] <= origin], data.loc[part["row"]]
        assert set(part["time"]) == set(range(origin + 1, origin + 6))
        np.testing.assert_array_equal(part["observed"], future["y"])
        alone = gg.GAM(s("x", k=8)).fit(past, "y", tolerance=1e-6)
        expected = alone.log_density(future, unconditional=True)
        np.testing.assert_allclose(part["log_density"], expected, atol=0.01)
        np.testing.assert_allclose(part["estimate"], alone.predict(future), atol=0.06)
        draws = alone.sample(future, 20_000, "observation")
        np.testing.assert_allclose(part["crps"], metrics.crps(future["y"], draws), atol=0.04)
        ends = np.quantile(draws, [0.05, 0.95], axis=0)
        np.testing.assert_allclose(part[["lower", "upper"]].T, ends, atol=0.15)
        within = (part["lower"] <= part["observed"]) & (part["observed"] <= part["upper"])
        assert (part["covered"] == within).all()
        loss = metrics.pinball(part["observed"], part["upper"], 0.95)
        np.testing.assert_allclose(part["pinball_0.95"], loss)
    assert result["covered"].mean() == pytest.approx(0.9, abs=0.12)


def test_dates_and_counts(data):
    """As by numbers; the response is named by the formula."""
    gam = gg.GAM("count ~ s(x, k=8)", "poisson")
    options = {"num_samples": 200, "quantiles": (0.1, 0.9)}
    dated = gg.backtest(gam, data, time="date", horizon="5D", origins=["2024-01-20"], **options)
    numbered = gg.backtest(gam, data, time="day", horizon=5, origins=[19], **options)
    assert not gam.is_fitted
    assert dated["time"].min() == pd.Timestamp("2024-01-21")
    columns = ["row", "estimate", "crps", "pinball_0.1", "log_density", "covered"]
    pd.testing.assert_frame_equal(dated[columns], numbered[columns])


@pytest.mark.slow
@pytest.mark.filterwarnings("error::gpflow_gam.AutocorrelationWarning")
def test_after_a_break_fits_that_forget_are_better():
    data, gam = made(3, 240, jump=2.0), gg.GAM(s("x", k=8))
    given = {"y": "y", "time": "day", "horizon": 2}
    origins = range(31, 58, 2)  # after the break at day 30
    every = gg.backtest(gam, data, origins=origins, **given)[SCORES].mean()
    fading = gg.backtest(gam, data, origins=origins, forget=0.5, **given)
    recent = gg.backtest(gam, data, origins=origins, window=6, **given)
    for better in (fading, recent):
        assert better["crps"].mean() < 0.7 * every["crps"]
        assert better["log_density"].mean() > every["log_density"] + 0.3
        assert better["pinball_0.5"].mean() < 0.7 * every["pinball_0.5"]
    # at the second origin the first 32 days count half
    early = fading[fading["origin"] == 33]
    past = data[data["day"] <= 33].assign(w=lambda t: np.where(t["day"] <= 31, 0.5, 1.0))
    alone = gg.GAM(s("x", k=8), weights="w").fit(past, "y")
    expected = alone.log_density(data.loc[early["row"]], unconditional=True)
    np.testing.assert_allclose(early["log_density"], expected, atol=0.02)


def test_origins_without_new_rows_forget_too():
    """Of rows before a gap of four origins each counts ``forget ** 5`` after it."""
    data = made(3, 120)
    data = data[(data["day"] < 10) | (data["day"] >= 20)]
    gam, given = gg.GAM("y ~ x"), {"time": "day", "horizon": 3}
    got = gg.backtest(gam, data, origins=[9, 11, 13, 15, 17, 21], forget=0.5, **given)
    got = got[got["origin"] == 21]
    past = data[data["day"] <= 21].assign(w=lambda t: np.where(t["day"] <= 9, 0.5**5, 1.0))
    alone = gg.GAM("y ~ x", weights="w").fit(past)
    expected = alone.log_density(data.iloc[got["row"]], unconditional=True)
    np.testing.assert_allclose(got["log_density"], expected, atol=1e-3)


def test_rows_that_lack_a_value_have_no_scores(data):
    there = {"x": data["day"] != 27, "y": data["day"] != 26}
    holes = data.assign(**{name: data[name].where(keep) for name, keep in there.items()})
    gam = gg.GAM(s("x", k=8), missing="drop")
    result = gg.backtest(gam, holes, "y", time="day", horizon=5, origins=1, num_samples=50)
    assert set(result["time"]) == {25, 28, 29}
    assert len(result) == 12
    assert result.notna().all(axis=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": "x", "horizon": 2.0}, "no rows to fit to at"),
        ({"time": "text"}, "time: column 'text' must hold numbers or dates"),
        ({"quantiles": (0.9, 0.1)}, "quantiles must increase"),
        ({"window": 5, "forget": 0.9}, "give one of them"),
        ({"origins": [29]}, "no rows to predict after any"),
        ({"quantiles": 0.5}, r"quantiles must increase, .* two or more; got \[0.5\]"),
        ({"horizon": 0}, "horizon must be positive; got 0"),
        ({"window": -5}, "window must be positive; got -5"),
        ({"origins": 0}, "origins must be a whole number of at least 1; got 0"),
        ({"num_samples": 1}, "num_samples must be a whole number of at least 2; got 1"),
        ({"y": "text"}, "responses that are numbers"),
    ],
)
def test_bad_arguments_are_named(data, change, message):
    table = data.assign(text=np.where(data["y"] > 0.5, "high", "low"))
    family = "bernoulli" if "y" in change else "gaussian"
    given = {"y": "y", "time": "day", "horizon": 5, "origins": 2, **change}
    with pytest.raises(ValueError, match=message):
        gg.backtest(gg.GAM(s("x", k=8), family), table, **given)


def test_what_cannot_be_forgotten_is_said(data):
    counts = data.assign(k=1, n=np.arange(len(data)) % 3 + 1)
    given = {"time": "day", "horizon": 5, "origins": 2, "num_samples": 50, "forget": 0.8}
    with pytest.raises(ValueError, match="a column of what is computed .of cbind: trials="):
        gg.backtest(gg.GAM("cbind(k, n) ~ s(x, k=5)", "binomial"), counts, **given)
    gg.backtest(gg.GAM("k ~ s(x, k=5)", "binomial", trials="n"), counts, **given)


def test_rounded_times_are_in_one_forecast_each() -> None:
    """Tenths are no binary fractions: 19.9 - 0.5 is before the row at 19.4."""
    table = pd.DataFrame({"t": np.arange(200) / 10, "y": np.arange(200.0) % 7})
    for options in ({}, {"window": 5.0}, {"forget": 0.9}):
        result = gg.backtest(
            gg.GAM("y ~ 1"), table, time="t", horizon=0.5, origins=10, num_samples=10, **options
        )
        np.testing.assert_array_equal(result["row"], np.arange(150, 200))
        assert (result.groupby("origin").size() == 5).all()


def test_spans_are_in_the_unit_of_time() -> None:
    """Ten of a date would be ten nanoseconds."""
    table = pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40.0) % 7})
    dated = table.assign(day=pd.date_range("2024-01-01", periods=40))
    gam = gg.GAM(s("x", k=8))
    with pytest.raises(TypeError, match="horizon must be of spans of time such as '7D', as 'day'"):
        gg.backtest(gam, dated, "y", time="day", horizon=10, origins=2)
    with pytest.raises(TypeError, match="window must be of numbers, as 'x' is; got '7D'"):
        gg.backtest(gam, table, "y", time="x", horizon=10, origins=2, window="7D")
    zoned = dated.assign(day=dated["day"].dt.tz_localize("Europe/Vienna"))
    one, other = (
        gg.backtest(gam, table, "y", time="day", horizon="5D", origins=["2024-02-01"])
        for table in (dated, zoned)
    )
    np.testing.assert_array_equal(one["row"], other["row"])
    span = np.timedelta64(5, "D")
    result = gg.backtest(gam, dated, "y", time="day", horizon=span, origins=["2024-02-01"])
    pd.testing.assert_frame_equal(result, one)
    with pytest.raises(TypeError, match="horizon must be of numbers, as 'x' is"):
        gg.backtest(gam, table, "y", time="x", horizon=span, origins=2)
    with pytest.raises(TypeError, match="has a time zone, and the column of times has none"):
        gg.backtest(gam, dated, "y", time="day", horizon="5D", origins=zoned["day"][30:])
    with pytest.raises(TypeError, match="origins must be times, or how many; got 2.5"):
        gg.backtest(gam, dated, "y", time="day", horizon="5D", origins=2.5)
    with pytest.raises(TypeError, match="backtest takes a GAM"):
        gg.backtest("y ~ s(x)", table, time="x", horizon=10, origins=2)


# --- noise that is autoregressive along time -----------------------------------------------------

RHO, SD = 0.7, 0.5


def series(
    seed: int, number: int = 120, groups: int = 1, rho: float = RHO, gap: bool = False
) -> pd.DataFrame:
    """Rows with a known function ``f`` of ``x`` and ``t``, and noise of known correlation."""
    rng = np.random.default_rng(seed)
    parts = []
    for group in range(groups):
        noise = autocorrelated(rng, number, rho)
        x, t = rng.uniform(size=number), np.arange(number)
        f = np.sin(2.0 * np.pi * x) + np.sin(4.0 * t / number)
        y = f + SD * noise
        parts.append(pd.DataFrame({"x": x, "t": t, "f": f, "y": y, "g": f"series {group}"}))
    data = pd.concat(parts, ignore_index=True)
    return data.drop(index=[30, 31, 70]).reset_index(drop=True) if gap else data


def parameters(gam: gg.GAM) -> tuple[float, float]:
    """The noise's variance and correlation."""
    likelihood = gam.fitted.likelihood
    return float(likelihood.variance.numpy()), float(likelihood.correlation.numpy())


def correlations(data: pd.DataFrame, rho: float) -> np.ndarray:
    """The noise's correlation matrix, row by row; a gap begins another series."""
    R, last = np.eye(len(data)), {name: rows.t.max() for name, rows in data.groupby("g")}
    known = set(zip(data.g, data.t))
    place = {key: i for i, key in enumerate(zip(data.g, data.t))}
    for (g, t), i in place.items():
        for later in range(t + 1, last[g] + 1):
            if (g, later) not in known:
                break
            j = place[g, later]
            R[i, j] = R[j, i] = rho ** (later - t)
    return R


def fitted(
    data: pd.DataFrame, formula: str = "y ~ s(x, k=40, bs='se') + s(t, k=12, bs='se')", **options
) -> gg.GAM:
    return gg.GAM(formula, ar1="t | g", **options).fit(data)


@pytest.fixture(scope="module")
def broken() -> tuple[pd.DataFrame, gg.GAM]:
    """Two series, with gaps."""
    data = series(0, 60, groups=2, gap=True)
    return data, fitted(data)


def test_the_evidence_is_that_of_a_dense_gaussian_process(broken) -> None:
    data, gam = broken
    variance, rho = parameters(gam)
    model = gam.fitted.model
    constant = model.mean_function(gam.fitted.X).numpy().ravel()

    def density(variance: float, rho: float) -> float:
        covariance = model.kernel(gam.fitted.X).numpy() + variance * correlations(data, rho)
        return float(multivariate_normal(constant, covariance).logpdf(data.y))

    prior = float(model.log_prior_density().numpy())
    assert gam.fitted.result.elbo == pytest.approx(density(variance, rho) + prior, abs=0.02)
    # at the optimum, priors being next to flat
    assert density(variance, rho) > density(variance, rho + 0.1)
    assert density(variance, rho) > density(variance, rho - 0.1)


def test_predictions_are_those_of_a_dense_gaussian_process(broken) -> None:
    data, gam = broken
    variance, rho = parameters(gam)
    model, X = gam.fitted.model, gam.fitted.X
    K, noise = model.kernel(X).numpy(), variance * correlations(data, rho)
    constant = model.mean_function(X).numpy().ravel()
    gain = np.linalg.solve(K + noise, K).T
    mean, se = gam.predict(data, "link", se=True, unconditional=False)
    np.testing.assert_allclose(mean, constant + gain @ (data.y - constant), atol=2e-3)
    np.testing.assert_allclose(se, np.sqrt(np.diag(K - gain @ K)), rtol=0.01)


@pytest.mark.parametrize("weights", [None, "w"])
def test_a_line_is_that_of_generalised_least_squares(weights) -> None:
    data = series(1, 100).assign(w=np.tile([1.0, 4.0], 50))
    gam = gg.GAM("y ~ x", ar1="t", weights=weights).fit(data)
    variance, rho = parameters(gam)
    root = np.diag(1.0 / np.sqrt(data.w)) if weights else np.eye(len(data))
    covariance = variance * root @ correlations(data, rho) @ root
    A = np.column_stack([np.ones(len(data)), data.x])
    precision = A.T @ np.linalg.solve(covariance, A)
    estimate = np.linalg.solve(precision, A.T @ np.linalg.solve(covariance, data.y))
    line, se = gam.summary().coefficients.iloc[-1][["estimate", "se"]]
    assert line == pytest.approx(estimate[1], rel=1e-3)
    assert se == pytest.approx(np.sqrt(np.linalg.inv(precision)[1, 1]), rel=0.01)


def test_order_of_rows_and_units_of_time_do_not_matter(broken) -> None:
    data, gam = broken
    mixed = data.sample(frac=1.0, random_state=1).reset_index(drop=True)
    mixed["hour"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(mixed.t, unit="h")
    other = gg.GAM("y ~ s(x, k=40, bs='se') + s(t, k=12, bs='se')", ar1="hour | g").fit(mixed)
    np.testing.assert_allclose(parameters(other), parameters(gam), rtol=1e-4)
    np.testing.assert_allclose(other.predict(data), gam.predict(data), atol=1e-4)


@pytest.mark.parametrize("zone", [None, "Europe/Rome"])
def test_months_are_a_step_apart(zone) -> None:
    data = series(2, 96)
    data["month"] = pd.date_range("2010-01-01", periods=96, freq="MS", tz=zone)
    by_month = gg.GAM("y ~ s(x) + s(t)", ar1="month").fit(data)
    by_number = gg.GAM("y ~ s(x) + s(t)", ar1="t").fit(data)
    assert parameters(by_month) == pytest.approx(parameters(by_number), rel=1e-6)


def test_times_may_be_the_first_column_of_an_array(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = np.stack([np.arange(60.0), rng.uniform(size=60)], axis=1)
    gam = gg.GAM("linear(1)", ar1=0).fit(X, X[:, 1] + rng.normal(size=60))
    loaded = reloaded(gam, tmp_path / "fit.gam")
    assert loaded.ar1 == 0
    np.testing.assert_array_equal(loaded.predict(X), gam.predict(X))


def test_refits_end_where_the_fit_did(broken) -> None:
    data, gam = broken
    again = fitted(data).refit()
    assert parameters(again) == pytest.approx(parameters(gam), rel=1e-4)


def test_residuals_are_of_what_is_new() -> None:
    data = series(4, 400)
    with pytest.warns(AutocorrelationWarning):
        gg.GAM("y ~ s(x) + s(t)").fit(data)
    with warnings.catch_warnings(action="error"):
        gam = gg.GAM("y ~ s(x) + s(t)", ar1="t").fit(data)
    e = quantile_residuals(gam.fitted)
    assert abs(np.corrcoef(e[1:], e[:-1])[0, 1]) < 0.15
    assert np.std(e) == pytest.approx(1.0, abs=0.15)
    assert "correlation" in str(gam.summary())


@pytest.mark.slow
def test_rows_in_codes_are_as_rows_in_numbers() -> None:
    data = series(5, 70_000, rho=0.6)
    whole = gg.GAM("y ~ s(x) + s(t)", ar1="t").fit(data)
    assert parameters(whole)[1] == pytest.approx(0.6, abs=0.02)
    part = gg.GAM("y ~ s(x) + s(t)", ar1="t").fit(data[:60_000])
    mean, se = whole.predict(data[:100], "link", se=True)
    other, _ = part.predict(data[:100], "link", se=True)
    assert np.all(np.abs(mean - other) < 3.0 * se)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "poisson"}, "ar1 is of the noise of family='gaussian'"),
        ({"family": gg.families.Gaussian(link="log")}, "identity link"),
        ({"ar1": "g"}, "numbers or times"),
        ({"engine": "iterncgp"}, "engine='iterncgp'"),
        ({"variational": "sites"}, "variational='sites'"),
        ({"ar1": "nowhere"}, "nowhere"),
        ({"ar1": "t"}, r"rows 0 and 60 are of the same time 't'.*ar1='t | group'"),
        ({"ar1": "x"}, "uneven"),
    ],
)
def test_what_cannot_be_is_said(options, message: str) -> None:
    data = series(0, 60, groups=2).assign(y=lambda d: d.y.round().abs())
    with pytest.raises(ValueError, match=message):
        gg.GAM("y ~ s(x)", **{"ar1": "t | g", **options}).fit(data)


def test_what_is_of_other_fits_is_said(broken) -> None:
    data, gam = broken
    with pytest.raises(ValueError, match="one table"):
        fitted([data, data])
    with pytest.raises(ValueError, match="criterion='ncv'"):
        gg.GAM("y ~ s(x)", ar1="t | g").fit(data, criterion="ncv")
    with pytest.raises(ValueError, match="ar1"):
        gam.update(data)
    for leave_out in (gam.loo, lambda: gg.conformal(gam)):
        with pytest.raises(ValueError, match="backtest"):
            leave_out()
    with pytest.raises(TypeError, match="ar1 must name a column"):
        gg.GAM("y ~ s(x)", ar1=["t", "g"])
    with pytest.raises(ValueError, match="drop it"):
        fitted(data.assign(t=data.t.where(data.t != 3)))


def test_fits_are_averaged_by_forecasts() -> None:
    """No row is left out of a fit by itself: its neighbours tell of its noise."""
    data = series(3)
    gams = {"ar1": gg.GAM("y ~ s(t)", ar1="t").fit(data), "line": gg.GAM("y ~ t").fit(data)}
    with pytest.raises(ValueError, match="compare forecasts, gpflow_gam.backtest"):
        gg.stack(gams)
    logs = np.array([[-1.0, -2.0, -1.5], [-3.0, -4.0, -2.5]])
    stack = gg.stack(gams, scores=dict(zip(gams, logs)))
    np.testing.assert_allclose(stack.weights, [1.0, 0.0], atol=1e-6)
    np.testing.assert_array_equal(stack.predict(data), gams["ar1"].predict(data))
