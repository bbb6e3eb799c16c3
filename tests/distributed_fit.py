"""
Fits that test_distribute compares, and, run in processes of its own, those of workers that are
killed.
"""

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import keras
import numpy as np
import problems
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gam as gg

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
    "validation_data": VALIDATION,  # two replicas have a round, one batch, and one of 8 rows
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


def interrupted(strategy: tf.distribute.Strategy, path: str, folder: str, kill_at: int) -> None:
    """A fit whose process is gone after step ``kill_at``, if that is not 0."""

    def callback(progress: gg.distribute.StepProgress) -> None:
        if progress.step == kill_at:
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


def main(path: str, folder: str, kill_at: str) -> None:
    keras.config.set_floatx("float64")
    interrupted(tf.distribute.MultiWorkerMirroredStrategy(), path, folder, int(kill_at))


if __name__ == "__main__":
    main(*sys.argv[1:])
