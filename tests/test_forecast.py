"""Forecasts from rolling origins, against fits and scores one by one, and where a level breaks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import metrics, s

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
        expected = alone.log_density(future)
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
    expected = alone.log_density(data.loc[early["row"]])
    np.testing.assert_allclose(early["log_density"], expected, atol=0.02)


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
        ({"y": "text"}, "responses that are numbers"),
    ],
)
def test_bad_arguments_are_named(data, change, message):
    table = data.assign(text=np.where(data["y"] > 0.5, "high", "low"))
    family = "bernoulli" if "y" in change else "gaussian"
    given = {"y": "y", "time": "day", "horizon": 5, "origins": 2, **change}
    with pytest.raises(ValueError, match=message):
        gg.backtest(gg.GAM(s("x", k=8), family), table, **given)


def test_spans_are_in_the_unit_of_time() -> None:
    """Ten of a date would be ten nanoseconds."""
    table = pd.DataFrame({"x": np.arange(40.0), "y": np.arange(40.0) % 7})
    dated = table.assign(day=pd.date_range("2024-01-01", periods=40))
    gam = gg.GAM(s("x", k=8))
    with pytest.raises(TypeError, match="horizon must be of spans of time such as '7D', as 'day'"):
        gg.backtest(gam, dated, "y", time="day", horizon=10, origins=2)
    with pytest.raises(TypeError, match="window must be of numbers, as 'x' is; got '7D'"):
        gg.backtest(gam, table, "y", time="x", horizon=10, origins=2, window="7D")
    with pytest.raises(TypeError, match="backtest takes a GAM"):
        gg.backtest("y ~ s(x)", table, time="x", horizon=10, origins=2)
