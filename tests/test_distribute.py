"""Distributed training against plain loops, on one device and on several, with and without luck."""

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import distributed_fits as script
import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import shared_rows
import tensorflow as tf
from problems import assert_close
from shared_rows import fits
from test_package import script as example_of

import gpflow_gam as gg
from gpflow_gam import s
from gpflow_gam.distribute import DistributedFit
from gpflow_gam.distribute.gam import StopSync, fit_share
from gpflow_gam.optimizers import laplace
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.minimizers import FitProgress
from gpflow_gam.storage import Communicator

fit = gg.distribute.fit
DATA, OPTIONS = (script.X, script.Y), script.OPTIONS
TRAINING, VALIDATION, REPORTS = script.TRAINING, script.VALIDATION, script.REPORTING


# Keras holds learning rates in it, and adds up its losses
pytestmark = pytest.mark.usefixtures("keras_in_double")


def training() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(TRAINING)


def batches_of(rows: tf.data.Dataset, number: int = 40) -> Any:
    return lambda context: rows.batch(number, drop_remainder=True)


def assert_equal(result: DistributedFit, expected: DistributedFit) -> None:
    assert_close(script.values(result), script.values(expected), rtol=1e-10, atol=1e-10)


def assert_file_equal(path: Path, expected: dict[str, DistributedFit]) -> None:
    with np.load(path) as result:
        assert len(result) == sum(len(script.values(fit)) for fit in expected.values())
        for name, one in expected.items():
            for i, value in enumerate(script.values(one)):
                np.testing.assert_allclose(result[f"{name} {i}"], value, rtol=1e-10, atol=1e-10)


@pytest.fixture(scope="module")
def on_one_device() -> dict[str, DistributedFit]:
    class Fits(dict[str, Any]):
        def __missing__(self, kind: str) -> DistributedFit:
            return self.setdefault(kind, script.fits(kinds=[kind])[kind])

    return Fits()


# --- one device ------------------------------------------------------------------------------


@pytest.mark.slow
def test_is_a_plain_loop(on_one_device: dict[str, DistributedFit]) -> None:
    model, history = script.svgp(), []
    variables = list(model.trainable_variables)
    adam = keras.optimizers.Adam(0.05)
    for step in range(8):
        epoch, batch = divmod(step, 5)  # of 40 rows each
        order = np.random.default_rng((3, epoch)).permutation(200)
        rows = order[40 * batch : 40 * (batch + 1)]
        with tf.GradientTape() as tape:
            loss = model.training_loss((script.X[rows], script.Y[rows]))
        history.append(float(loss))
        adam.apply(tape.gradient(loss, variables, unconnected_gradients="zero"), variables)
    result = on_one_device["svgp"]
    np.testing.assert_allclose(result.history, history, rtol=1e-10)
    assert_close(result.model.trainable_variables, variables, atol=1e-10)
    assert (result.resumed_from, len(result.history)) == (0, 8)


def test_a_callback_sees_steps_and_ends_the_fit(tmp_path: Path) -> None:
    seen = []

    def callback(progress: gg.distribute.StepProgress) -> bool:
        seen.append((progress.step, progress.loss))
        assert isinstance(progress.model, gg.models.AdditiveSVGP)
        return progress.step == 2

    result = fit(script.svgp, DATA, **OPTIONS, callback=callback, checkpoint=tmp_path)
    assert seen == list(zip([1, 2], result.history))
    again = fit(script.svgp, DATA, **{**OPTIONS, "num_steps": 2}, checkpoint=tmp_path)
    assert again.resumed_from == 2  # the step it was ended at was saved
    assert_equal(again, result)


# --- checkpoints -----------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", ["svgp", "function", "clipped"])
def test_resumes_after_an_exception(
    kind: str, on_one_device: dict[str, DistributedFit], tmp_path: Path
) -> None:
    def callback(progress: gg.distribute.StepProgress) -> None:
        if progress.step == 5:
            raise OSError("no more")

    expected = on_one_device[kind]
    arguments: dict[str, Any] = {**OPTIONS, "checkpoint": tmp_path / "deep" / "er", "save_every": 2}
    build, data = script.svgp, DATA
    if kind == "clipped":
        arguments["learning_rate"] = None
        build = lambda: script.network(global_clipnorm=0.1, weight_decay=0.01)
    elif kind == "function":
        data = script.per_replica
    with pytest.raises(OSError, match="no more"):
        fit(build, data, **arguments, callback=callback)
    result = fit(build, data, **arguments)
    assert result.resumed_from == 4
    assert_equal(result, expected)
    done = fit(build, data, **arguments)
    assert done.resumed_from == 8
    assert_equal(done, expected)


def build_with(num_inducing: int = 4, frozen: bool = False, rows: int = 200) -> Any:
    line = np.linspace(0.0, 1.0, num_inducing)[:, None]
    inducing = gg.inducing_variables.AdditiveInducingVariables([line] * 2)
    likelihood = gpflow.likelihoods.Gaussian(0.3)
    model = gg.models.AdditiveSVGP(script.KERNEL(), likelihood, inducing, num_data=rows)
    gpflow.set_trainable(model.likelihood, not frozen)
    return model


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "seed": ({"seed": 4}, "seed was 3, now it is 4"),
    "data": ({"data": (script.X, script.Y + 1.0)}, "checksum of data was"),
    "shapes": (
        {"build": lambda: build_with(5)},
        r"shape of .*Z0.* was \[4, 1\], now it is \[5, 1\]",
    ),
    "frozen": (
        {"build": lambda: build_with(frozen=True)},
        r"trained was .*likelihood\.variance.*, now",
    ),
    "optimizer": ({"learning_rate": lambda: keras.optimizers.SGD(0.1)}, "optimizer was .*Adam"),
    "num_steps": ({"num_steps": 2}, "num_steps=2 is less than the 3 steps"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("checkpoint")
    fit(build_with, DATA, **{**OPTIONS, "num_steps": 3}, checkpoint=path)
    return path


@pytest.mark.parametrize("name", OTHERS)
def test_refuses_a_checkpoint_of_another_fit(name: str, folder: Path) -> None:
    changed, message = OTHERS[name]
    arguments = {"build": build_with, "data": DATA, **OPTIONS, **changed, "checkpoint": folder}
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


def test_refuses_a_damaged_checkpoint(folder: Path, tmp_path: Path) -> None:
    content = (folder / "training.state").read_bytes()
    (tmp_path / "training.state").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is damaged, or is no checkpoint.*Remove it"):
        fit(build_with, DATA, **OPTIONS, checkpoint=tmp_path)


# --- errors ----------------------------------------------------------------------------------


def test_a_broken_step_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    def build() -> keras.Model:
        last = keras.layers.Dense(1, kernel_initializer="ones")  # not inf - inf, which is no number
        model = keras.Sequential([keras.Input((2,)), script.Breaks(), last])
        model.compile(optimizer="sgd", loss="mse")
        return model

    data = script.X, script.Y
    arguments = {**OPTIONS, "learning_rate": None, "checkpoint": tmp_path, "save_every": 3}
    with pytest.raises(gg.distribute.FailedStepError, match=r"step 5: the loss is inf.*of step 3 "):
        fit(build, data, **arguments)
    assert fit(build, data, **{**arguments, "num_steps": 3}).resumed_from == 3


def test_a_broken_gradient_is_found_at_its_step() -> None:
    class Cusp(keras.layers.Layer):
        """The square root of 0 has a value and no gradient."""

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(), initializer="zeros")

        def call(self, x: tf.Tensor) -> tf.Tensor:
            return x + tf.sqrt(self.scale)

    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((2,)), Cusp()])
        model.compile(optimizer="sgd", loss="mse")
        return model

    data = script.X, script.X + 1.0
    with pytest.raises(gg.distribute.FailedStepError, match="step 1: the gradient"):
        fit(build, data, **OPTIONS)


def test_a_step_that_diverges_or_cannot_be_computed_is_named() -> None:
    options = {**OPTIONS, "learning_rate": lambda: keras.optimizers.SGD(1e200)}
    with pytest.raises(gg.distribute.FailedStepError, match="step 2: the loss is nan"):
        fit(script.svgp, DATA, **options)
    rows = tf.data.Dataset.from_tensor_slices((script.X, bad_row()))
    with pytest.raises(gg.distribute.FailedStepError, match="step 1: .*Y must be finite"):
        fit(script.svgp, batches_of(rows), **OPTIONS)


def without_num_data() -> gg.models.AdditiveSVGP:
    model = build_with()
    model.num_data = None
    return model


def with_sites() -> gg.models.AdditiveSVGP:
    return gg.models.AdditiveSVGP(
        script.KERNEL(),
        gpflow.likelihoods.Gaussian(0.3),
        script.INDUCING(),
        variational=gg.variational.OptimalPrecision(),
        num_data=200,
    )


def bad_row() -> np.ndarray:
    Y = script.Y.copy()
    Y[17] = np.nan
    return Y


REPORTED = {"build": script.reporting, "data": TRAINING, **REPORTS, "learning_rate": None}


def weighted(weights: Any) -> dict[str, Any]:
    return {**REPORTED, "data": (*TRAINING[:2], weights)}


def validated(data: Any) -> dict[str, Any]:
    return {**REPORTED, "validation_data": data}


SHORT = {**VALIDATION[1], "mean": VALIDATION[1]["mean"][:-1]}
NAN = np.where(np.arange(120) == 3, np.nan, TRAINING[2])
ONLY = "one X and one Y, without sample_weight; got X"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"batch_size": 201}, "batch_size=201 is more than the 200 rows"),
        ({"data": (script.X, script.Y[:-1])}, "X has 200 rows, Y has 199"),
        ({"data": (script.X, bad_row())}, "Y must be finite.*17"),
        ({"data": lambda context: script.stream().batch(30)}, "batch_size / replicas = 40"),
        ({"data": batches_of(script.stream().filter(lambda x, y: False))}, "without a batch"),
        ({"data": (TRAINING[0], script.Y[:120])}, ONLY),
        ({"data": (*DATA, np.ones(200))}, ONLY),
        ({"build": without_num_data}, "without num_data"),
        ({"build": lambda: build_with(rows=150)}, "num_data=150.*200 rows"),
        ({"build": with_sites}, "OptimalPrecision"),
        (weighted(NAN), "sample_weight must be finite and not negative; entry 3"),
        (weighted(-TRAINING[2]), "not negative; entry 1"),
        (weighted({"mean": TRAINING[2], "side": NAN}), r"sample_weight\['side'\] must be.*entry 3"),
        (weighted(TRAINING[2][1:]), r"X\['deep'\] has 120.*sample_weight has 119"),
        (validated((VALIDATION[0], SHORT)), r"validation_data: .*Y\['mean'\] has 79"),
        (validated(training()), r"validation_data must be arrays \(X, Y\).*Dataset"),
        (validated((script.X[:0], script.Y[:0])), "validation_data holds no rows"),
        ({"validation_data": DATA}, "validation_data are of a keras.Model"),
    ],
)
def test_errors(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(**{"build": build_with, "data": DATA, **OPTIONS, **changed})


# --- several devices and processes -----------------------------------------------------------


def run(*jobs: list[str], seconds: float) -> list[tuple[int, str]]:
    """Exit codes and outputs of the script, once for each job, as one cluster if several."""
    ports = [_free_port() for _ in jobs]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    deadline = time.monotonic() + seconds
    processes: list[subprocess.Popen[str]] = []
    try:
        for index, job in enumerate(jobs):
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
            environment.pop("TF_CONFIG", None)
            if len(jobs) > 1:
                task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
                environment["TF_CONFIG"] = json.dumps(task)
            processes.append(
                subprocess.Popen(
                    [sys.executable, script.__file__, *job],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        outputs = [p.communicate(timeout=deadline - time.monotonic())[0] for p in processes]
        return [(p.returncode, output) for p, output in zip(processes, outputs)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _free_port() -> int:
    with ExitStack() as stack:
        result = stack.enter_context(socket.socket())
        result.bind(("127.0.0.1", 0))
        return int(result.getsockname()[1])


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two workers wrote what they had found; a head on two devices has been that on one."""
    folder: Path = tmp_path_factory.mktemp("workers")
    job = ["together", str(folder), *(str(_free_port()) for _ in range(2))]
    ((code, output),) = run(job, seconds=300)
    assert code == 0, output
    return folder


@pytest.mark.slow  # starts two processes
def test_two_workers_are_one(on_one_device: dict[str, DistributedFit], workers: Path) -> None:
    for i in range(2):
        expected = {kind: on_one_device[kind] for kind in script.KINDS}
        assert_file_equal(workers / f"fits {i}.npz", expected)


@pytest.mark.slow
def test_two_workers_fit_the_gam_of_one(workers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "KEPT_ROWS", bins.KEPT_ROWS)  # put back afterwards
    script.few_kept()
    data = script.table()
    one = script.gam().fit(data, "count")
    expected = one.predict(data, "link", se=True, unconditional=False)
    first, second = (dict(np.load(workers / f"gam {i}.npz")) for i in range(2))
    for name in ("arr_0", "arr_1", "deviance", "told"):
        np.testing.assert_array_equal(first[name], second[name])
    for name, values in zip(("arr_0", "arr_1"), expected):
        np.testing.assert_allclose(first[name], values, rtol=1e-8, atol=1e-8)
    assert float(first["deviance"]) == pytest.approx(one.summary().deviance_explained, abs=1e-10)
    R, _ = one.fitted.solution.data.shift.shape
    E = sum(m.shape[1] for m in one.fitted.solution.data.masses)
    assert json.loads(str(first["told"]))["bytes"] > 8 * (R * (R + 1) // 2 + R + E)


@pytest.mark.slow  # four processes that start TensorFlow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_dies_and_all_are_started_again(
    victim: int, on_one_device: dict[str, DistributedFit], tmp_path: Path
) -> None:
    def start(kill_at: int) -> list[tuple[int, str]]:
        return run(
            *(
                # the folder of worker 1 is its own: the chief's is the only one used
                [
                    "interrupted",
                    str(tmp_path / f"{i}.npz"),
                    str(tmp_path / f"folder {i}"),
                    str(kill_at if i == victim else 0),
                ]
                for i in range(2)
            ),
            seconds=120,
        )

    result = start(kill_at=7)
    other = 1 - victim
    assert result[victim][0] == -9, result[victim][1]
    assert result[other][0] == 3, result[other][1]
    assert "LostWorkerError: another worker is gone" in result[other][1]
    assert "they go on from step 6" in result[other][1]
    for i, (code, output) in enumerate(start(kill_at=0)):
        assert code == 0, output
        assert "resumed from 6" in output
        assert_file_equal(tmp_path / f"{i}.npz", {"svgp": on_one_device["svgp"]})
    assert not (tmp_path / "folder 1").exists()


@pytest.mark.slow
def test_the_wide_and_deep_example_trains() -> None:
    example = example_of("examples/wide_deep.py")
    columns = [column[:700] for column in example.load()]
    train, held_out = ([c[part] for c in columns] for part in (slice(0, 512), slice(512, 700)))
    result, _ = example.distributed(train, held_out, epochs=10)
    for name in ("loss", "val_loss", "val_nlpd"):
        assert result.epochs[name][-1] < result.epochs[name][0]


# --- reports of epochs, against Keras's fit ------------------------------------------------------

EPOCHS = {**REPORTS, "data": batches_of(training(), 24), "steps_per_epoch": 5}


@pytest.fixture(scope="module")
def of_keras() -> tuple[dict[str, list[float]], list[np.ndarray]]:
    model = script.reporting()
    history = model.fit(
        training().batch(24), epochs=2, validation_data=VALIDATION, verbose=0
    ).history
    return history, model.get_weights()


@pytest.fixture(scope="module")
def reported() -> DistributedFit:
    return fit(script.reporting, **EPOCHS)


@pytest.mark.slow
def test_reports_are_those_of_keras(of_keras, reported):
    """Outputs with a loss each; weights; regularisation; averages; a last batch of fewer rows."""
    history, weights = of_keras
    assert {"mean_rmse", "side_mse", "side_loss", "val_mean_mae", "val_loss"} <= set(history)
    assert sorted(reported.epochs) == sorted(history)
    # where batches differ in size Keras weighs those of an output's loss by what it has traced
    for name in {*history} - {"val_mean_loss", "val_side_loss"}:
        np.testing.assert_allclose(reported.epochs[name], history[name], rtol=1e-10, err_msg=name)
    assert len(reported.history) == 12  # two epochs of five, and two steps
    again = fit(script.reporting, **{**EPOCHS, "num_steps": 10})
    assert_close(again.model.get_weights(), weights, rtol=1e-10, atol=1e-12)


def test_outputs_have_weights_of_their_own() -> None:
    weights = {"mean": TRAINING[2], "side": TRAINING[2][::-1]}
    one, options = (*TRAINING[:2], weights), {"epochs": 1, "batch_size": 120, "verbose": 0}
    model = script.reporting()
    history = model.fit(*TRAINING[:2], sample_weight=weights, **options).history
    changed = {"batch_size": 120, "num_steps": 1, "validation_data": None}
    result = fit(script.reporting, one, **{**REPORTS, **changed})
    assert_close(result.model.get_weights(), model.get_weights(), rtol=1e-10, atol=1e-12)
    assert_close(
        [result.epochs[name] for name in sorted(history)],
        [history[name] for name in sorted(history)],
        rtol=1e-10,
        atol=1e-12,
    )


@pytest.mark.slow
def test_a_resumed_fit_reports_what_the_whole_one_does(reported, tmp_path):
    """Also of the epoch in whose middle it was interrupted."""
    options = {**EPOCHS, "checkpoint": tmp_path, "save_every": 4}
    seen = {}

    def callback(progress: gg.distribute.StepProgress) -> bool:
        if progress.epoch:
            seen[progress.step] = float(progress.epoch["val_loss"])
        return progress.step == 8

    first = fit(script.reporting, **options, callback=callback)
    assert len(first.history) == 8
    assert len(first.epochs["loss"]) == 1
    result = fit(script.reporting, **options)
    assert result.resumed_from == 8
    assert list(result.epochs) == list(reported.epochs)
    assert_equal(result, reported)
    assert seen == {5: pytest.approx(reported.epochs["val_loss"][0], rel=1e-10)}
    for changed, message in (
        ({"validation_data": TRAINING}, "checksum of validation_data was"),
        ({"steps_per_epoch": 4}, "steps_per_epoch was 5, now it is 4"),
        ({"validation_data": None}, "checksum of validation_data was"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(script.reporting, **{**options, **changed})


def test_the_steps_of_an_epoch() -> None:
    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        return model

    unknown = batches_of(script.stream())
    with pytest.raises(ValueError, match="how many rows they have: pass steps_per_epoch="):
        fit(build, unknown, batch_size=40, num_steps=2)
    result = fit(build, unknown, batch_size=40, num_steps=5, steps_per_epoch=2)
    np.testing.assert_allclose(result.epochs["loss"], result.history[:4].reshape(2, 2).mean(1))
    assert result.epochs["mae"].shape == (2,)
    # nothing to report but the loss
    one = fit(script.network, (script.X, script.Y), batch_size=80, num_steps=4)
    np.testing.assert_allclose(one.epochs["loss"], one.history.reshape(2, 2).mean(1))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "KEPT_ROWS", 1500)


def shares(data: pd.DataFrame, number: int) -> list[pd.DataFrame]:
    """Unequal ones."""
    cuts = [0, *(len(data) * np.arange(1, number) ** 2 // number**2), len(data)]
    return [data.iloc[a:b] for a, b in itertools.pairwise(cuts)]


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
    [("poisson", "count", 1e-7), ("negative_binomial", "count", 1e-6), ("gaussian", "y", 1e-8)],
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
    assert communication.bytes > 8 * L * (R * (R + 1) // 2 + R + E)
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


@pytest.mark.parametrize(("family", "term"), [("cox", "s(start, k=5)"), ("weibull", "1")])
def test_survival_curves_and_their_times_are_of_all_rows(
    few: None, tmp_path: Path, family: str, term: str
) -> None:
    rng = np.random.default_rng(0)
    x, time, end = rng.normal(size=400), rng.exponential(size=400), rng.exponential(3.0, 400)
    time = time * np.exp(-0.6 * x)
    data = pd.DataFrame({"x": x, "time": np.minimum(time, end), "died": time <= end})
    rows = gg.Surv("time", "died").split(data, [0.25, 0.5, 1.0, 2.0]).sort_values("time")

    def make() -> gg.GAM:
        return gg.GAM(f"Surv(start, time, died) ~ x + {term}", family)

    one, new = make().fit(rows, tolerance=1e-5), pd.DataFrame({"x": [0.0, 1.0]})
    for gam in fits(make, shares(rows, 2), tolerance=1e-5):
        curves = [each.survival(new, unconditional=False) for each in (gam, one)]
        pd.testing.assert_frame_equal(*curves, atol=1e-3)
        gam.save(tmp_path / "gam", data=False, overwrite=True)
        times = curves[0]["time"].unique()
        again = gg.GAM.load(tmp_path / "gam").survival(new, times, unconditional=False)
        pd.testing.assert_frame_equal(again, curves[0])


def test_areas_of_one_row_are_told_from_noise(few: None) -> None:
    names = [str(i) for i in range(30)]
    near = {a: [b for b in names if abs(int(a) - int(b)) == 1] for a in names}
    y = np.sin(np.arange(30) / 4.0) + 0.3 * np.random.default_rng(0).normal(size=30)
    data = pd.DataFrame({"area": names, "y": y})
    make = lambda: gg.GAM(s("area", bs="mrf", neighbours=near))
    one = make().fit(data, "y", max_iterations=5)
    for gam in fits(make, shares(data, 2), "y", max_iterations=5):
        np.testing.assert_allclose(gam.predict(data), one.predict(data), atol=1e-4)


@pytest.mark.slow
def test_a_fit_that_begins_on_a_part_of_the_rows(few, monkeypatch):
    import gpflow_gam.optimizers.fits as module

    monkeypatch.setattr(module, "MANY_ROWS", 2000)
    monkeypatch.setattr(module, "START_ROWS", 1000)
    data = script.table()
    one = script.gam().fit(data, "count")
    assert_same(fits(script.gam, shares(data, 2), "count"), one, data, 1e-8)


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
        (lambda d: d.assign(g=d["g"].astype("category")), {}, "'g' is read as categories by wor"),
        (lambda d: d.assign(count=-1), {}, "count must be"),
        (lambda d: iter([d]), {}, "read only once"),
        (lambda d: d, {"engine": "iterncgp"}, "engine='iterncgp' needs all rows in one memory"),
        (lambda d: d, {"missing": "impute"}, "missing='impute' needs all rows"),
        (lambda d: d, {"family": "quasipoisson"}, "family 'quasipoisson' needs all rows"),
        (lambda d: d, {"family": "quantile"}, "family 'quantile' needs all rows"),
        (lambda d: d, {"edf": 2.0}, "edf= of s(x) needs all rows"),
        (lambda d: d, {"checkpoint": "here"}, "checkpoint= needs all rows"),
    ],
)
def test_what_cannot_be_fitted_is_an_error_on_all(change: Any, options: Any, message: str) -> None:
    first, second = shares(script.table(400), 2)
    options = {"family": "poisson", **options}
    terms = s("x", k=5, edf=options.pop("edf", None)) + s("z", k=5) + s("w", k=3, by="g")
    of_fit = {k: options.pop(k) for k in ("checkpoint",) if k in options}
    gam = lambda: gg.GAM(terms, **options)
    for error in fits(gam, [first, change(second)], "count", **of_fit):
        assert isinstance(error, (ValueError, TypeError)), error
        assert message in str(error)


def test_kernels_of_the_same_kind_are_the_same_argument() -> None:
    parts = shares(script.table(200), 2)
    terms = lambda: s("x", k=5, kernel=gpflow.kernels.Matern32())
    for gam in fits(lambda: gg.GAM(terms(), "poisson"), parts, "count", max_iterations=1):
        assert gam.is_fitted


def test_hyperparameters_are_drawn_alike_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplace, "_WARMUP", 3)
    monkeypatch.setattr(laplace, "_KEPT", 5)
    parts = shares(script.table(200), 2)
    make = lambda: gg.GAM(s("x", k=4))
    result = fits(make, parts, "y", posterior="mcmc", max_iterations=3)
    first, second = (gam.fitted.solution.chains.coordinates for gam in result)
    np.testing.assert_array_equal(first, second)
    assert np.ptp(first) > 0.0
    for gam in fits(make, parts, "y", posterior="laplace", max_iterations=1):
        assert gam.fitted.solution.chains is None
    for error in fits(make, parts, "y", posterior="nuts"):
        assert "posterior must be 'laplace' or 'mcmc'; got 'nuts'" in str(error)


def test_arguments_must_be_alike() -> None:
    each, parts = iter((5, 6)), shares(script.table(200), 2)
    for error in fits(lambda: gg.GAM(s("x", k=next(each)), "poisson"), parts, "count"):
        assert isinstance(error, ValueError)
        assert str(error).startswith("terms: worker 1 was started with")
    for error in fits(script.gam, parts, "count", max_iteration=3):
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
