"""Fits that Ctrl-C, an error or a time budget ends."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import problems
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam import archive, factor, s
from gpflow_gam import variational as vi
from gpflow_gam.optimizers import Checkpoint, TimeBudget
from gpflow_gam.optimizers.binned import checkpoint
from gpflow_gam.optimizers.minimizers import LBFGS, StopFit, Tracker

table = functools.partial(problems.table, 120)


def ctrl_c(at: int = 2, error: type[BaseException] = KeyboardInterrupt) -> Any:
    def callback(progress: gg.optimizers.FitProgress) -> None:
        if progress.iteration == at:
            raise error

    return callback


@pytest.mark.parametrize(("family", "y"), [("gaussian", "y"), ("poisson", "count")])
def test_ctrl_c_leaves_the_fit_before_or_keeps_the_best_if_asked(family: str, y: str) -> None:
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
    gam.fit(table(), y, callback=ctrl_c(), on_interrupt="keep")
    result = gam.fitted.result
    assert result.message == "interrupted; what was best so far is kept"
    assert not result.converged
    assert len(result.history) == 2
    assert np.all(np.isfinite(gam.predict(table())))


def test_a_bad_on_interrupt_is_refused() -> None:
    with pytest.raises(ValueError, match="on_interrupt must be 'raise' or 'keep'; got 'stop'"):
        gg.GAM(s("x")).fit(table(), "y", on_interrupt="stop")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("options", "error"), [({}, ValueError), ({"batch_size": 50}, KeyboardInterrupt)]
)
def test_an_error_leaves_the_model_unchanged(options, error):
    gam = gg.GAM(s("x", k=4), "poisson").fit(table(), "count", max_iterations=1)
    parts = gam.model.kernel, gam.model.likelihood, gam.model.inducing_variable
    model = gg.models.AdditiveSVGP(*parts, variational=vi.OptimalPrecision())
    before, data = [v.numpy() for v in model.variables], (gam.fitted.X, gam.fitted.Y)
    with pytest.raises(error):
        gg.optimizers.fit(model, data, callback=ctrl_c(error=error), **options)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert model.num_data is None


def test_an_error_in_a_fit_by_sums_over_rows_leaves_the_model_unchanged() -> None:
    gam = gg.GAM(s("x", k=4), family="negative_binomial").fit(table(), "count")
    model, rows = gam.fitted.model, gam.fitted.solution.rows
    model.likelihood.alpha.assign(3.0)  # away from the optimum
    before = [v.numpy() for v in model.variables]
    with pytest.raises(KeyboardInterrupt):
        gg.optimizers.fit_rows(model, rows, callback=ctrl_c(4))
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


# --- time -------------------------------------------------------------------------------------


class Source:
    """Blocks of rows, each of which takes ten seconds to read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for _ in range(4):
            self.now += 10.0
            yield pd.concat([table()] * 200)

    def budget(self, limit: float) -> TimeBudget:
        return TimeBudget(limit, lambda: self.now)

    def wait(self, _: object) -> None:
        self.now += 100.0


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (25.0, "used up reading, pass 1 of 2, after 48,000 rows; nothing was fitted"),
        (55.0, "used up reading, pass 2 of 2, after 24,000 of 96,000 rows; nothing"),
    ],
)
def test_a_time_budget_that_ends_while_data_are_read(limit, message):
    gam = gg.GAM(s("x", k=4)).fit(table(), "y")
    before, source = gam.fitted, Source()
    with pytest.raises(TimeoutError, match=f"max_seconds={limit:g} was {message}"):
        gam.fit(source, "y", max_seconds=source.budget(limit))
    assert gam.fitted is before


def test_a_running_budget_is_that_of_several_fits() -> None:
    budget = TimeBudget(60.0)
    fit = gg.GAM("count ~ s(x, k=5)", "quasipoisson").fit(table(), max_seconds=budget).fitted
    assert fit.result.converged


def test_a_time_budget_that_ends_after_reading_leaves_a_fit() -> None:
    source, gam = Source(), gg.GAM(s("x", k=4), "poisson")
    gam.fit(source, "count", max_seconds=source.budget(120.0), callback=source.wait)
    result = gam.fitted.result
    assert result.message == "time budget of 120 s used up"
    assert not result.converged
    assert np.all(np.isfinite(gam.predict(table())))


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


# --- fits that go on from their checkpoint -------------------------------------------------------


def rows(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({"x": rng.uniform(size=rows), "z": rng.normal(size=rows)})
    df["g"] = rng.choice(["a", "b", "c"], rows)
    rho = np.sin(6.0 * df["x"]) + 0.3 * df["z"] + (df["g"] == "b")
    df["y"] = rho + 0.3 * rng.normal(size=rows)
    return df.assign(count=rng.negative_binomial(2.0, 1.0 / (1.0 + 0.5 * np.exp(rho))))


def gam(family: str) -> gg.GAM:
    terms = s("x", k=6) + factor("g")
    # enough for more than one leg of a search
    return gg.GAM(terms + s("z", k=6) if family == "gaussian" else terms, family)


FAMILIES = {"gaussian": "y", "negative_binomial": "count"}


class Killed(BaseException):
    """Like a kill: nothing in the package catches it."""


def killed_after(number: int) -> Any:
    seen = [0]

    def callback(_: object) -> None:
        seen[0] += 1
        if seen[0] > number:
            raise Killed

    return callback


def in_pieces(
    family: str, df: pd.DataFrame, folder: Path, number: int = 1
) -> tuple[gg.GAM, list[int]]:
    """A fit that is killed after ``number`` iterations, again and again; iterations of each run."""
    held = []
    for _ in range(60):
        own = gam(family)
        try:
            kept = Checkpoint(folder, save_every=0.0)
            own.fit(df, FAMILIES[family], checkpoint=kept, callback=killed_after(number))
        except Killed:
            _, arrays = archive.read(folder / "fit.state", checkpoint._KIND, 1)
            held.append(max(len(a) for name, a in arrays.items() if name.endswith("history")))
            continue
        return own, held
    raise AssertionError(f"the fit never ended: {held}")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("many", [False, True], ids=["one stage", "begun on a part"])
def test_a_fit_in_pieces_is_the_fit_to_the_last_bit(many, tmp_path, monkeypatch):
    df = rows()
    if many:
        monkeypatch.setattr("gpflow_gam.optimizers.fits.MANY_ROWS", 200)
        monkeypatch.setattr("gpflow_gam.optimizers.fits.START_ROWS", 100)
        # read in blocks, and kept as codes
        monkeypatch.setattr("gpflow_gam.optimizers.binned.bins.KEPT_ROWS", 150)
        monkeypatch.setattr("gpflow_gam.gam.fits.reading.BLOCK", 64)
    whole = gam("negative_binomial").fit(df, "count")
    pieces, held = in_pieces("negative_binomial", df, tmp_path)
    assert len(held) >= 2
    np.testing.assert_array_equal(pieces.predict(df, interval=0.9), whole.predict(df, interval=0.9))
    np.testing.assert_array_equal(pieces.fitted.result.history, whole.fitted.result.history)
    assert pieces.fitted.result.message == whole.fitted.result.message


def test_the_search_of_a_collapsed_bound_goes_on(tmp_path: Path) -> None:
    df = rows()
    whole = gam("gaussian").fit(df, "y")
    pieces, held = in_pieces("gaussian", df, tmp_path, number=8)
    assert held
    assert held == sorted(held)
    np.testing.assert_array_equal(pieces.predict(df), whole.predict(df))
    assert pieces.fitted.result.elbo == whole.fitted.result.elbo


def test_a_second_call_goes_on_and_a_third_ends_at_once(tmp_path: Path) -> None:
    df = rows()
    whole = gam("negative_binomial").fit(df, "count")
    early = gam("negative_binomial")
    with pytest.warns(gg.ConvergenceWarning):
        early.fit(df, "count", checkpoint=tmp_path, max_iterations=2)
    later = gam("negative_binomial").fit(df, "count", checkpoint=tmp_path)
    np.testing.assert_array_equal(later.predict(df), whole.predict(df))
    # the file of a fit that has ended stays
    again, passes = gam("negative_binomial"), list[object]()
    again.fit(df, "count", checkpoint=tmp_path, callback=passes.append)
    assert not passes
    np.testing.assert_array_equal(again.predict(df), whole.predict(df))


@pytest.mark.slow
def test_a_fit_that_begins_with_another_family_goes_on(tmp_path: Path) -> None:
    """As quantiles do, whose start is the fit's own, however few iterations the first call has."""
    fit = lambda **options: gg.GAM("y ~ s(x, k=6)", "quantile").fit(rows(), **options)
    with pytest.warns(gg.ConvergenceWarning):
        fit(checkpoint=tmp_path, max_iterations=1)
    np.testing.assert_array_equal(fit(checkpoint=tmp_path).predict(rows()), fit().predict(rows()))


def test_fits_that_learn_no_hyperparameter_have_a_checkpoint(tmp_path: Path) -> None:
    fits = [gg.GAM("count ~ x", "poisson").fit(rows(), checkpoint=tmp_path) for _ in range(2)]
    np.testing.assert_array_equal(*(fit.predict(rows()) for fit in fits))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    with pytest.warns(gg.ConvergenceWarning):
        gam("negative_binomial").fit(rows(), "count", checkpoint=folder, max_iterations=2)
    return folder


def test_another_fit_is_refused(written: Path) -> None:
    before = (written / "fit.state").read_bytes()
    df = rows()
    response = df.assign(count=df["count"].where(df.index != 7, 3 + df["count"]))
    order = df.assign(x=df["x"].to_numpy()[[1, 0, *range(2, len(df))]])
    longer = pd.concat([df, df.iloc[:1]], ignore_index=True)
    finer = gg.GAM(s("x", k=7) + factor("g"), "negative_binomial")
    rougher = gg.GAM(s("x", k=6, bs="matern12") + factor("g"), "negative_binomial")

    def fit(own: gg.GAM, data: pd.DataFrame) -> Any:
        return lambda: own.fit(data, "count", checkpoint=written)

    cases = {
        "responses": fit(gam("negative_binomial"), response),
        "inputs or weights": fit(gam("negative_binomial"), order),
        "inducing inputs of component": fit(finer, df),
        "terms or family differ": fit(rougher, df),
        "parameters": fit(gam("poisson"), df),
        "differ": fit(gam("negative_binomial"), longer),
    }
    for what, begin in cases.items():
        with pytest.raises(ValueError, match=rf"written by another fit: .*{what}"):
            begin()
    assert (written / "fit.state").read_bytes() == before


def test_damaged_files(written: Path, tmp_path: Path) -> None:
    content = (written / "fit.state").read_bytes()
    for broken in (b"", content[:-100], content[:2000] + b"?" + content[2001:]):
        (tmp_path / "fit.state").write_bytes(broken)
        with pytest.raises(ValueError, match=r"^checkpoint: .*damaged.*[Rr]emove it"):
            gam("negative_binomial").fit(rows(), "count", checkpoint=tmp_path)


def test_fits_without_checkpoints_and_bad_arguments_are_refused() -> None:
    df = rows()
    with pytest.raises(ValueError, match="^checkpoint: a fit with engine='iterncgp' writes none"):
        gg.GAM(s("x"), "poisson", engine="iterncgp").fit(df, "count", checkpoint="nowhere")
    with pytest.raises(ValueError, match="^checkpoint: a fit with batch_size=10"):
        gg.GAM(s("x"), "poisson").fit(df, "count", checkpoint="nowhere", batch_size=10)
    assert not Path("nowhere").exists()
    with pytest.raises(ValueError, match="save_every must be seconds"):
        Checkpoint("nowhere", save_every=-1.0)


def test_a_full_disk_does_not_end_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    df, calls, write = rows(), [0], archive.write

    def full(*args: Any, **options: Any) -> None:
        calls[0] += 1
        if calls[0] > 1:
            raise OSError(28, "No space left on device")
        write(*args, **options)

    monkeypatch.setattr(archive, "write", full)
    with pytest.warns(gg.CheckpointWarning, match="No space left on device.*the fit goes on"):
        result = gam("negative_binomial").fit(df, "count", checkpoint=tmp_path)
    assert result.fitted.result.converged
    # but a folder that nothing can be written to is told before anything is computed
    calls[0] = 9
    with pytest.raises(OSError, match="No space left"):
        gam("negative_binomial").fit(df, "count", checkpoint=tmp_path / "other")
