"""Fits that Ctrl-C, an error or a time budget ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam import s
from gpflow_gam import variational as vi
from gpflow_gam.optimizers import TimeBudget
from gpflow_gam.optimizers.minimizers import LBFGS, StopFit, Tracker


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=(2, 120))
    y = np.sin(6.0 * x) + z + 0.3 * rng.standard_normal(120)
    return pd.DataFrame({"x": x, "z": z, "y": y, "count": rng.poisson(np.exp(y))})


def ctrl_c(at: int = 2, error: type[BaseException] = KeyboardInterrupt) -> Any:
    def callback(progress: gg.optimizers.FitProgress) -> None:
        if progress.iteration == at:
            raise error

    return callback


GAMS = {"exact": ("gaussian", "y"), "sites": ("poisson", "count")}


@pytest.mark.parametrize(("family", "y"), GAMS.values(), ids=GAMS)
def test_ctrl_c_is_raised_and_leaves_the_fit_before(family: str, y: str) -> None:
    gam = gg.GAM(s("x", k=4) + s("z", k=4), family)
    with pytest.raises(KeyboardInterrupt):
        gam.fit(table(), y, callback=ctrl_c())
    assert not gam.is_fitted
    gam.fit(table(), y)
    before, expected = gam.fitted, gam.predict(table())
    with pytest.raises(KeyboardInterrupt):
        gam.fit(table(1), y, callback=ctrl_c())
    assert gam.fitted is before
    np.testing.assert_array_equal(gam.predict(table()), expected)


@pytest.mark.parametrize(("family", "y"), GAMS.values(), ids=GAMS)
def test_ctrl_c_keeps_the_best_if_asked(family: str, y: str) -> None:
    gam = gg.GAM(s("x", k=4) + s("z", k=4), family)
    gam.fit(table(), y, callback=ctrl_c(), on_interrupt="keep")
    result = gam.fitted.result
    assert result.message == "interrupted; what was best so far is kept"
    assert not result.converged
    assert len(result.history) == 2
    assert np.all(np.isfinite(gam.predict(table())))


def test_a_bad_on_interrupt_is_refused() -> None:
    with pytest.raises(ValueError, match="on_interrupt must be 'raise' or 'keep'; got 'stop'"):
        gg.GAM(s("x")).fit(table(), "y", on_interrupt="stop")


def svgp(family: vi.VariationalFamily) -> tuple[gg.models.AdditiveSVGP, Any]:
    gam = gg.GAM(s("x", k=4), "poisson").fit(table(), "count", max_iterations=1)
    old = gam.model
    model = gg.models.AdditiveSVGP(
        old.kernel, old.likelihood, old.inducing_variable, variational=family
    )
    return model, (gam.fitted.X, gam.fitted.Y)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("family", "options", "error"),
    [
        (vi.OptimalPrecision, {}, ValueError),
        (vi.OptimalPrecision, {"batch_size": 50}, KeyboardInterrupt),
    ],
)
def test_an_error_leaves_the_model_unchanged(family, options, error):
    model, data = svgp(family())
    before = [v.numpy() for v in model.variables]
    with pytest.raises(error):
        gg.optimizers.fit(model, data, callback=ctrl_c(error=error), **options)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert model.num_data is None


def test_an_error_in_a_fit_by_sums_over_rows_leaves_the_model_unchanged() -> None:
    gam = gg.GAM(s("x", k=4), family="negative_binomial").fit(table(), "count")
    model, rows = gam.model, gam.fitted.solution.rows
    model.likelihood.alpha.assign(3.0)  # away from the optimum
    before = [v.numpy() for v in model.variables]
    with pytest.raises(KeyboardInterrupt):
        gg.optimizers.fit_rows(model, rows, callback=ctrl_c(4))
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


# --- time -------------------------------------------------------------------------------------


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Blocks of rows, each of which takes ten seconds to read."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for _ in range(4):
            self.clock.now += 10.0
            yield pd.concat([table()] * 200)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (25.0, "used up reading, pass 1 of 2, after 48,000 rows; nothing was fitted"),
        (55.0, "used up reading, pass 2 of 2, after 24,000 of 96,000 rows; nothing"),
    ],
)
def test_a_time_budget_that_ends_while_data_are_read(limit, message):
    gam = gg.GAM(s("x", k=4)).fit(table(), "y")
    before, clock = gam.fitted, Clock()
    with pytest.raises(TimeoutError, match=f"max_seconds={limit:g} was {message}"):
        gam.fit(Source(clock), "y", max_seconds=TimeBudget(limit, clock))
    assert gam.fitted is before


def test_a_time_budget_that_ends_after_reading_leaves_a_fit() -> None:
    clock = Clock()
    gam = gg.GAM(s("x", k=4), "poisson")
    gam.fit(Source(clock), "count", max_seconds=TimeBudget(120.0, clock), callback=later(clock))
    result = gam.fitted.result
    assert result.message == "time budget of 120 s used up"
    assert not result.converged
    assert np.all(np.isfinite(gam.predict(table())))


def later(clock: Clock) -> Any:
    def callback(progress: gg.optimizers.FitProgress) -> None:
        clock.now += 100.0

    return callback


def test_a_time_budget_ends_the_first_iteration_of_lbfgs() -> None:
    x, calls = tf.Variable([3.0, -2.0], dtype=tf.float64), tf.Variable(0)

    def loss() -> tf.Tensor:
        calls.assign_add(1)
        return 1e6 * tf.reduce_sum((x - 1.0) ** 2) + tf.reduce_sum(x**4)

    budget = TimeBudget(1.0, lambda: 0.0 if int(calls) < 2 else 2.0)
    tracker = Tracker([x], "", budget, None, False)
    with pytest.raises(StopFit, match="time budget of 1 s used up"):
        LBFGS(loss, [x]).converge(tracker, max_iterations=100, tolerance=1e-8)
    assert int(calls) == 2
    assert tracker.history == []
    np.testing.assert_array_equal(x.numpy(), [3.0, -2.0])
