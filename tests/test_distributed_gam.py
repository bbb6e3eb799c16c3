"""Fits of GAMs to rows that several workers share, beside the fit of one that has them all."""

from __future__ import annotations

import itertools
from typing import Any

import distributed_gam as script
import gpflow
import numpy as np
import pandas as pd
import pytest
import shared_rows

import gpflow_gam as gg
from gpflow_gam import s
from gpflow_gam.distribute.gam import StopSync, fit_share
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.minimizers import FitProgress
from gpflow_gam.storage import Communicator


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "KEPT_ROWS", 1500)


def shares(data: pd.DataFrame, number: int) -> list[pd.DataFrame]:
    """Unequal ones."""
    cuts = [0, *(len(data) * np.arange(1, number) ** 2 // number**2), len(data)]
    return [data.iloc[a:b] for a, b in itertools.pairwise(cuts)]


def fits(gam: Any, parts: list[Any], y: Any, **options: Any) -> list[Any]:
    """Of one worker a part."""

    def work(communicator: Communicator) -> gg.GAM:
        part = parts[communicator.place]
        return fit_share(gam(), lambda: part, y, communicator=communicator, **options)

    return shared_rows.run(len(parts), work)


def assert_same(result: list[gg.GAM], one: gg.GAM, data: pd.DataFrame, tolerance: float) -> None:
    known = {"type": "link", "se": True, "unconditional": False}
    expected, first = one.predict(data, **known), result[0].predict(data, **known)
    for gam in result:
        for a, b, c in zip(gam.predict(data, **known), first, expected):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, c, rtol=tolerance, atol=tolerance)
        assert gam.fitted.number == one.fitted.number
        ours, theirs = gam.summary(), one.summary()
        assert ours.deviance_explained == pytest.approx(theirs.deviance_explained, abs=tolerance)
        np.testing.assert_allclose(gam.fitted.mean_offset(), one.fitted.mean_offset(), rtol=1e-10)


# --- fits -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "y", "tolerance"),
    [
        ("poisson", "count", 1e-7),
        ("negative_binomial", "count", 1e-6),
        ("gaussian", "y", 1e-8),
    ],
)
def test_shares_are_fitted_as_one_table(family: str, y: str, tolerance: float, few: None) -> None:
    data = script.table()
    # to the end: where a search ends early depends on rounding
    one = script.gam(family).fit(data, y, tolerance=1e-5)
    result = fits(lambda: script.gam(family), shares(data, 2), y, tolerance=1e-5)
    assert_same(result, one, data, tolerance)
    communication = result[0].fitted.communication
    assert communication.workers == 2
    data_ = result[0].fitted.solution.data
    (R, L), E = data_.shift.shape, sum(m.shape[1] for m in data_.masses)
    scalars = {"gaussian": 0, "poisson": 2, "negative_binomial": 4 + R * L}[family]
    assert communication.bytes_a_pass == 8 * (scalars + L * (R * (R + 1) // 2 + R + E))
    assert communication.bytes > communication.bytes_a_pass
    a, b = (gam.effects("s(x)")[["estimate", "se"]] for gam in (result[1], one))
    pd.testing.assert_frame_equal(a, b, rtol=max(tolerance, 1e-5), atol=max(tolerance, 1e-6))
    with pytest.raises(ValueError, match="cannot be saved"):
        result[0].save("never.gam")
    with pytest.raises(RuntimeError, match="during the fit alone"):
        result[0].fitted.solution.rows.communicator.total([1.0])


@pytest.mark.slow
def test_missing_rows_levels_and_bins_are_of_all(few: None) -> None:
    """Rows that are dropped, levels and labels that one share has not, and finer bins."""
    data = script.table()
    data.loc[data.index[::7], "x"] = np.nan
    data["label"] = np.where(data["y"] > 0.0, "yes", "no")
    data.loc[data.index[:700], "g"] = "a"
    data["g"] = data["g"].astype("category")
    parts = shares(data, 3)
    parts[0] = parts[0].assign(g=parts[0]["g"].cat.remove_unused_categories())
    terms = s("x", k=6) + gg.factor("g")
    one = gg.GAM(terms, "bernoulli", missing="drop").fit(parts, "label")
    result = fits(lambda: gg.GAM(terms, "bernoulli", missing="drop"), parts, "label")
    assert result[1].fitted.dropped == one.fitted.dropped
    assert_same(result, one, data.dropna(), 1e-8)
    data = data.dropna()
    data["sharp"] = np.sin(8.0 * data["x"]) + 0.05 * np.random.default_rng(1).normal(size=len(data))
    one = gg.GAM(s("x", k=12)).fit(data, "sharp")
    result = fits(lambda: gg.GAM(s("x", k=12)), shares(data, 3), "sharp")
    assert_same(result, one, data, 1e-7)
    assert result[0].fitted.data.columns.bins((0,)).number > 300


@pytest.mark.slow
def test_a_fit_that_begins_on_a_part_of_the_rows(few, monkeypatch):
    import gpflow_gam.optimizers.fits as module

    monkeypatch.setattr(module, "MANY_ROWS", 2000)
    monkeypatch.setattr(module, "START_ROWS", 1000)
    data = script.table()
    one = script.gam().fit(data, "count")
    assert_same(fits(script.gam, shares(data, 2), "count"), one, data, 1e-8)


# --- workers ----------------------------------------------------------------------------------


def test_one_worker_is_the_fit_of_a_gam() -> None:
    data = script.table(300)
    result = gg.distribute.fit(script.gam(), lambda context: data, y="count", max_iterations=2)
    one = script.gam().fit(data, "count", max_iterations=2)
    np.testing.assert_array_equal(result.predict(data), one.predict(data))


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda d: d.iloc[:0], {}, "worker 1 has no row"),
        (lambda d: d.assign(g=1.5), {}, "column 'g' is read as numbers by worker 1 and as levels"),
        (lambda d: d.assign(z=np.nan), {}, "'z'"),
        (lambda d: d.assign(count=-1), {}, "count must be"),
        (lambda d: iter([d]), {}, "read only once"),
        (lambda d: d, {"engine": "iterncgp"}, "engine='iterncgp' needs all rows in one memory"),
        (lambda d: d, {"missing": "impute"}, "missing='impute' needs all rows"),
    ],
)
def test_what_cannot_be_fitted_is_an_error_on_all(change: Any, options: Any, message: str) -> None:
    first, second = shares(script.table(400), 2)
    terms = s("x", k=5) + s("z", k=5) + s("w", k=3, by="g")
    gam = lambda: gg.GAM(terms, "poisson", **options)
    for error in fits(gam, [first, change(second)], "count"):
        assert isinstance(error, (ValueError, TypeError)), error
        assert message in str(error)


def test_kernels_of_the_same_kind_are_the_same_argument() -> None:
    parts = shares(script.table(200), 2)
    terms = lambda: s("x", k=5, kernel=gpflow.kernels.Matern32())
    for gam in fits(lambda: gg.GAM(terms(), "poisson"), parts, "count", max_iterations=1):
        assert gam.is_fitted


def test_arguments_must_be_alike() -> None:
    each = iter((5, 6))
    gam = lambda: gg.GAM(s("x", k=next(each)), "poisson")
    for error in fits(gam, shares(script.table(200), 2), "count"):
        assert isinstance(error, ValueError)
        assert str(error).startswith("terms: worker 1 was started with")


def test_an_option_that_there_is_not_is_an_error_on_all() -> None:
    for error in fits(script.gam, shares(script.table(200), 2), "count", max_iteration=3):
        assert "has no option 'max_iteration'; is it 'max_iterations'?" in str(error)


# --- ends of fits ------------------------------------------------------------------------------


def ended(
    ask: Any = None,
    seconds: float | None = None,
    interrupt: bool = False,
    on_interrupt: Any = "keep",
) -> list[Any]:
    """Fits of two workers of which the second wants to end."""
    parts = shares(script.table(400), 2)

    def work(communicator: Communicator) -> gg.GAM:
        own = communicator.place == 1
        stop = StopSync(communicator, ask if own else None, seconds if own else None, on_interrupt)
        if own and interrupt:
            stop._interrupt(2, None)
        gam = gg.GAM(s("x", k=5), "poisson")
        return fit_share(
            gam,
            lambda: parts[communicator.place],
            "count",
            communicator=communicator,
            callback=stop,
        )

    return shared_rows.run(2, work)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"ask": lambda progress: True}, "stopped by the callback"),
        ({"seconds": 1e-6}, "time budget used up"),
        ({"interrupt": True}, "interrupted; what was best so far is kept"),
    ],
)
def test_one_worker_ends_the_fit_of_all(wish: dict[str, Any], message: str) -> None:
    for gam in ended(**wish):
        assert gam.fitted.result.message == message
        assert len(gam.fitted.result.history) == 1
        assert not gam.fitted.result.converged


def test_ctrl_c_at_one_worker_is_raised_on_all() -> None:
    for outcome in ended(interrupt=True, on_interrupt="raise"):
        assert isinstance(outcome, KeyboardInterrupt)


def test_a_callback_that_fails_is_an_error_on_all() -> None:
    def fail(progress: Any) -> bool:
        raise ValueError("no more")

    first, second = ended(fail)
    assert isinstance(first, RuntimeError)
    assert "callback of another worker failed" in str(first)
    assert str(second) == "no more"


def test_workers_with_different_elbos_are_an_error() -> None:
    def work(communicator: Communicator) -> Any:
        return StopSync(communicator, None, None)(FitProgress(1, float(communicator.place), 0.0))

    for error in shared_rows.run(2, work):
        assert isinstance(error, RuntimeError)
        assert "round differently" in str(error)
