"""
Fits that test_distribute compares, and, run in processes of their own, those of workers.

``python distributed_fits.py together ...``: two workers of one cluster, then a head on two devices.
Each is a fork from before TensorFlow starts, so that it is imported once.
``python distributed_fits.py interrupted ...``: one worker of a cluster, which may be killed.
"""

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pandas as pd
import problems
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gam as gg
from gpflow_gam import factor, s, te
from gpflow_gam.optimizers.binned import bins

X, Y, KERNEL, INDUCING = problems.like(num_components=2, num_data=200, num_inducing=4)
OPTIONS: dict[str, Any] = {"batch_size": 40, "num_steps": 8, "learning_rate": 0.05, "seed": 3}


def svgp() -> gg.models.AdditiveSVGP:
    """With a prior, which must count once."""
    kernel = KERNEL()
    lengthscale = kernel.kernels[0].lengthscales
    lengthscale.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(0.1))
    return gg.models.AdditiveSVGP(
        kernel,
        gpflow.likelihoods.Gaussian(0.3),
        INDUCING(),
        variational=gg.variational.MeanField(),
        num_data=len(X),
    )


class Activity(keras.layers.Layer):
    """A loss of the batch, and one of the weights alone."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        self.add_loss(0.1 * keras.ops.mean(x**2) + 0.3 * keras.ops.sum(self.scale**2))
        return x * self.scale


class Breaks(keras.layers.Layer):
    """Sound for four calls, infinite from then on."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        self.calls.assign_add(1.0)
        return x * self.scale / tf.where(self.calls > 4.0, tf.zeros_like(x), tf.ones_like(x))


def network(**options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Dense(3, activation="tanh", dtype="float64", name="hidden"),
            Activity(dtype="float64"),
            keras.layers.Dense(1, kernel_regularizer="l2", dtype="float64"),
        ]
    )
    model.build((None, 2))
    model.compile(
        optimizer=keras.optimizers.Adam(0.05, **options),
        loss=keras.losses.MeanSquaredError(dtype="float64"),
    )
    return model


def reporting(**options: Any) -> keras.Model:
    """Inputs by name, outputs of a loss each, weighted metrics, averages."""
    keras.utils.set_random_seed(1)
    wide, deep = (keras.Input((1,), name=name, dtype="float64") for name in ("wide", "deep"))
    dense = [keras.layers.Dense(2, dtype="float64", activation="tanh") for _ in range(2)]
    hidden = keras.layers.Concatenate(dtype="float64")([dense[0](wide), dense[1](deep)])
    outputs = {
        "mean": keras.layers.Dense(1, dtype="float64", kernel_regularizer="l2", name="mean")(
            hidden
        ),
        "side": keras.layers.Dense(2, dtype="float64", name="side")(hidden),
    }
    model = keras.Model({"wide": wide, "deep": deep}, outputs)
    model.compile(
        keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.5),
        loss={"mean": "mse", "side": "mae"},
        loss_weights={"mean": 1.0, "side": 0.5},
        metrics={"mean": ["mae", keras.metrics.RootMeanSquaredError(name="rmse")]},
        weighted_metrics={"side": ["mse"]},
        **options,
    )
    return model


def rows_of(data: slice) -> tuple[Any, ...]:
    """Inputs, responses and weights for it."""
    inputs = {"wide": X[data, :1], "deep": X[data, 1:2]}
    return inputs, {"mean": Y[data], "side": X[data] ** 2}, np.linspace(0.0, 3.0, 200)[data]


TRAINING, VALIDATION = rows_of(slice(0, 120)), rows_of(slice(120, 200))
REPORTING: dict[str, Any] = {
    "batch_size": 24,
    "num_steps": 12,
    "validation_data": VALIDATION,  # two replicas have 24 rows each, then 24 and 8
}


def stream() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def per_replica(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Rows such that the union of the replicas' batches is the stream's next batch."""
    replicas = context.num_replicas_in_sync
    rows = OPTIONS["batch_size"] // replicas
    local = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * local
    batches = stream().batch(rows, drop_remainder=True).enumerate()
    mine = batches.filter(lambda i, _: (i % replicas) // local == first // local)
    return mine.map(lambda _, pair: pair)


KINDS = "svgp", "function", "clipped", "report"


def fits(
    strategy: tf.distribute.Strategy | None = None, kinds: Sequence[str] = KINDS
) -> dict[str, gg.distribute.DistributedFit]:
    def run(build: Callable[[], Any], data: Any = (X, Y), **changed: Any) -> Any:
        return lambda: gg.distribute.fit(build, data, strategy=strategy, **{**OPTIONS, **changed})

    every = {
        "svgp": run(svgp),
        "function": run(svgp, per_replica),
        "clipped": run(lambda: network(global_clipnorm=0.1, weight_decay=0.01), learning_rate=None),
        "report": run(reporting, TRAINING, learning_rate=None, **REPORTING),
    }
    return {kind: every[kind]() for kind in kinds}


def values(fit: gg.distribute.DistributedFit) -> list[np.ndarray]:
    return [fit.history, *fit.epochs.values(), *(v.numpy() for v in fit.model.trainable_variables)]


def save(path: str, result: dict[str, gg.distribute.DistributedFit]) -> None:
    arrays = {f"{name} {i}": v for name, fit in result.items() for i, v in enumerate(values(fit))}
    np.savez(path, **arrays)


def interrupted(path: str, folder: str, kill_at: str) -> None:
    """A fit whose process is gone after step ``kill_at``, if that is not 0."""
    keras.config.set_floatx("float64")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def callback(progress: gg.distribute.StepProgress) -> None:
        if progress.step == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        result = gg.distribute.fit(
            svgp,
            (X, Y),
            strategy=strategy,
            **OPTIONS,
            checkpoint=folder,
            save_every=3,
            callback=callback,
            timeout=30.0,
        )
    except gg.distribute.LostWorkerError as error:
        print(f"LostWorkerError: {error}", flush=True)
        os._exit(3)  # TensorFlow's own end would wait for the other worker
    print(f"resumed from {result.resumed_from}", flush=True)
    save(path, {"svgp": result})


def disagree(strategy: tf.distribute.Strategy) -> None:
    """One worker's callback ends the fit of all; other arguments on one are an error on all."""
    worker = strategy.cluster_resolver.task_id

    def fit(seed: int) -> gg.distribute.DistributedFit:
        return gg.distribute.fit(
            svgp,
            (X, Y),
            strategy=strategy,
            **{**OPTIONS, "seed": seed},
            callback=lambda progress: worker == 1 and progress.step == 2,
        )

    assert len(fit(seed=0).history) == 2
    with pytest.raises(ValueError, match="seed: worker 1 was started with 1, worker 0 with 0"):
        fit(seed=worker)


def resumed(strategy: tf.distribute.Strategy, folder: str) -> gg.distribute.DistributedFit:
    """Each worker goes on at the place of its own in its own data."""
    for steps in (3, OPTIONS["num_steps"]):
        options = {**OPTIONS, "num_steps": steps, "checkpoint": folder}
        result = gg.distribute.fit(svgp, per_replica, strategy=strategy, **options)
    assert result.resumed_from == 3
    return result


def workers(strategy: tf.distribute.Strategy, path: str) -> None:
    """What two workers do that both live."""
    keras.config.set_floatx("float64")
    result = fits(strategy)
    save(path, result)
    for a, b in zip(values(resumed(strategy, f"{path} state")), values(result["function"])):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    both = gg.distribute.workers.Workers(strategy, 60.0)
    assert both.communicator.gathered(b"x" * 9 * both.index) == [b"", b"x" * 9]
    disagree(strategy)


# --- shares of the rows of a table ---------------------------------------------------------------

TERMS = s("x", k=8, bs="se") + s("z", k=6, bs="se", by=factor("g")) + te("x", "z", k=9)


def few_kept() -> None:
    """So few rows are kept as they are that one process fits sums, too."""
    bins.KEPT_ROWS = 1500


def table(number: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=number), "z": rng.normal(size=number)})
    data["g"] = rng.choice(list("abc"), number)
    data["w"] = rng.integers(1, 3, number).astype(float)
    data["o"] = 0.1 * rng.normal(size=number)
    predictor = np.sin(6.0 * data["x"]) + 0.3 * data["z"] + data["o"]
    data["count"] = rng.poisson(np.exp(predictor))
    data["y"] = predictor + 0.3 * rng.normal(size=number)
    data["part"] = (np.arange(number) >= number // 3).astype(int)
    return data


def gam(family: str = "poisson") -> gg.GAM:
    return gg.GAM(TERMS, family, weights="w", offset="o")


def share(context: tf.distribute.InputContext) -> pd.DataFrame:
    data = table()
    return data[data["part"] == context.input_pipeline_id]


def shares(strategy: tf.distribute.Strategy, path: str) -> None:
    """What workers do that have shares of the rows of a table."""
    few_kept()
    worker = strategy.cluster_resolver.task_id
    own: Any = {"y": "count", "strategy": strategy, "timeout": 60.0}
    fitted = gg.distribute.fit(gam(), share, **own)
    np.savez(
        path,
        *(fitted.predict(table(), "link", se=True, unconditional=False)),
        told=json.dumps(vars(fitted.fitted.communication)),
        deviance=fitted.summary().deviance_explained,
    )
    # what one cannot fit is an error on all
    with pytest.raises(ValueError, match="has no row"):
        gg.distribute.fit(gam(), lambda c: table()[: 0 if worker else 9], **own)


# --- under MirroredStrategy and on one device: a head, and a loss that sums rows -----------------

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(80, 2))
COUNTS = RNG.poisson(np.exp(1.0 + np.sin(2.0 * FEATURES[:, 0])))


def head(normalise: bool = False, dtype: str = "float64") -> keras.Model:
    options = {"num_data": 80, "num_inducing": 6}
    terms = gg.s(0) + gg.s(1) + gg.s(0, 1, 2)  # whose inducing inputs follow the features
    last = gg.layers.AdditiveGP(terms, "negative_binomial", distance_aware=True, **options)
    inputs = keras.Input((2,), dtype="float64")
    features = keras.layers.Dense(3, dtype=dtype)(inputs)
    if normalise:  # its replicas meet inside the forward pass
        features = keras.layers.BatchNormalization(dtype="float64", synchronized=True)(features)
    model = keras.Model(inputs, last(features))
    model.compile(optimizer=keras.optimizers.SGD(0.02), loss=last.loss)
    model.optimizer.build(model.trainable_variables)  # else every step is traced twice
    return model


def by_keras(strategy: tf.distribute.Strategy) -> tuple[dict[str, np.ndarray], float]:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = head(normalise=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    rows = tf.data.Dataset.from_tensor_slices((FEATURES, COUNTS)).batch(20).with_options(options)
    losses = model.fit(rows, epochs=3, verbose=0).history["loss"]
    return {v.path: np.array(v) for v in model.weights}, losses[-1]


def loop(strategy: tf.distribute.Strategy) -> list[np.ndarray]:
    keras.utils.set_random_seed(3)
    data = FEATURES, COUNTS, np.linspace(0.5, 1.5, 80)
    result = gg.distribute.fit(head, data, strategy=strategy, batch_size=20, num_steps=8)
    return [np.array(v) for v in result.model.weights]


def summing(reduction: str = "sum", **options: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_regularizer="l2")])
    loss = keras.losses.Huber(reduction=reduction)
    model.compile(keras.optimizers.SGD(1e-3, **options), loss=loss, metrics=["mae"])
    return model


def summed(strategy: tf.distribute.Strategy) -> list[np.ndarray]:
    """Reports of a loss that sums over rows; the last of validation's batches is a short one."""
    options = {"batch_size": 20, "num_steps": 8, "validation_data": (FEATURES[:50], COUNTS[:50])}
    data = FEATURES, COUNTS
    return list(gg.distribute.fit(summing, data, strategy=strategy, **options).epochs.values())


def refused(strategy: tf.distribute.Strategy) -> None:
    """What several replicas cannot do, and why a step of theirs failed."""
    rows, gaps = COUNTS, np.where(np.arange(80) == 7, -1, COUNTS)
    for make, y, message in (
        (lambda: summing("mean_with_sample_weight"), rows, "reduction='mean_with_sample_weight'"),
        (lambda: summing(gradient_accumulation_steps=2), rows, "gradient_accumulation_steps=2"),
        (
            lambda: summing(use_ema=True, ema_overwrite_frequency=3),
            rows,
            "ema_overwrite_frequency=3",
        ),
        (head, gaps, "step [1-4]: assertion failed: .*y must be"),
        (lambda: head(dtype="float32"), rows, "float32 and float64.*heads dtype='float32'"),
    ):
        with pytest.raises((ValueError, gg.distribute.FailedStepError), match=message):
            gg.distribute.fit(make, (FEATURES, y), strategy=strategy, batch_size=20, num_steps=4)
    options = {"batch_size": 20, "num_steps": 4, "validation_data": (FEATURES, gaps)}
    with pytest.raises(ValueError, match="validation_data cannot be evaluated: assertion failed"):
        gg.distribute.fit(head, (FEATURES, COUNTS), strategy=strategy, **options)


def on_two_devices() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert two.num_replicas_in_sync == 2
    one = tf.distribute.get_strategy()
    (a, loss_a), (b, loss_b) = by_keras(one), by_keras(two)
    assert np.max(np.abs(a["variational.site_shift"])) > 1e-2
    assert abs(loss_a - loss_b) < 1e-6  # Keras reports in its own float32
    for pair in ((a.values(), b.values()), (loop(one), loop(two))):
        for v, w in zip(*pair, strict=True):
            np.testing.assert_allclose(v, w, rtol=0.0, atol=1e-10)
    for v, w in zip(summed(one), summed(two), strict=True):
        np.testing.assert_allclose(v, w, rtol=1e-5)  # in float32
    refused(two)


# --- processes -----------------------------------------------------------------------------------


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(240)  # one that waits for ever ends
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return pid


def ended(*pids: int) -> bool:
    return not any([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])


def together(path: str, *ports: str) -> None:
    folder = Path(path)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}

    def worker(index: int) -> None:
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        os.environ["TF_CONFIG"] = json.dumps(task)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        workers(strategy, str(folder / f"fits {index}.npz"))
        shares(strategy, str(folder / f"gam {index}.npz"))
        # whoever leaves first breaks a last exchange that the other still reads
        (folder / f"ended {index}").touch()
        while not all((folder / f"ended {i}").exists() for i in range(2)):
            time.sleep(0.05)

    both = [fork(lambda i=i: worker(i)) for i in range(2)]
    if not (ended(*both) and ended(fork(on_two_devices))):
        sys.exit(1)


if __name__ == "__main__":
    {"together": together, "interrupted": interrupted}[sys.argv[1]](*sys.argv[2:])
