"""Under MirroredStrategy and on one device: a head, a loss that sums rows, what is refused."""

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg

N = 80
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = RNG.poisson(np.exp(1.0 + np.sin(2.0 * X[:, 0])))


def build(normalise: bool = False, dtype: str = "float64") -> keras.Model:
    options = {"num_data": N, "num_inducing": 6}
    terms = gg.s(0) + gg.s(1) + gg.s(0, 1, 2)  # whose inducing inputs follow the features
    head = gg.layers.AdditiveGP(terms, "negative_binomial", distance_aware=True, **options)
    inputs = keras.Input((2,), dtype="float64")
    features = keras.layers.Dense(3, dtype=dtype)(inputs)
    if normalise:  # its replicas meet inside the forward pass
        features = keras.layers.BatchNormalization(dtype="float64", synchronized=True)(features)
    model = keras.Model(inputs, head(features))
    model.compile(optimizer=keras.optimizers.SGD(0.02), loss=head.loss)
    model.optimizer.build(model.trainable_variables)  # else every step is traced twice
    return model


def fit(strategy: tf.distribute.Strategy) -> tuple[dict[str, np.ndarray], float]:
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = build(normalise=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).batch(20).with_options(options)
    losses = model.fit(rows, epochs=3, verbose=0).history["loss"]
    return {v.path: np.array(v) for v in model.weights}, losses[-1]


def loop(strategy: tf.distribute.Strategy) -> list[np.ndarray]:
    keras.utils.set_random_seed(3)
    data = X, Y, np.linspace(0.5, 1.5, N)
    result = gg.distribute.fit(build, data, strategy=strategy, batch_size=20, num_steps=8)
    return [np.array(v) for v in result.model.weights]


def network(reduction: str = "sum", **options: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_regularizer="l2")])
    loss = keras.losses.Huber(reduction=reduction)
    model.compile(keras.optimizers.SGD(1e-3, **options), loss=loss, metrics=["mae"])
    return model


def summed(strategy: tf.distribute.Strategy) -> list[np.ndarray]:
    """Reports of a loss that sums over rows; the last of validation's batches is a short one."""
    options = {"batch_size": 20, "num_steps": 8, "validation_data": (X[:50], Y[:50])}
    return list(gg.distribute.fit(network, (X, Y), strategy=strategy, **options).epochs.values())


def refused(strategy: tf.distribute.Strategy) -> None:
    """What several replicas cannot do, and why a step of theirs failed."""
    gaps = np.where(np.arange(N) == 7, -1, Y)
    for make, rows, message in (
        (lambda: network("mean_with_sample_weight"), Y, "reduction='mean_with_sample_weight'"),
        (lambda: network(gradient_accumulation_steps=2), Y, "gradient_accumulation_steps=2"),
        (lambda: network(use_ema=True, ema_overwrite_frequency=3), Y, "ema_overwrite_frequency=3"),
        (build, gaps, "step [1-4]: assertion failed: .*y must be"),
        (lambda: build(dtype="float32"), Y, "float32 and float64.*heads dtype='float32'"),
    ):
        with pytest.raises((ValueError, gg.distribute.FailedStepError), match=message):
            gg.distribute.fit(make, (X, rows), strategy=strategy, batch_size=20, num_steps=4)
    options = {"batch_size": 20, "num_steps": 4, "validation_data": (X, gaps)}
    with pytest.raises(ValueError, match="validation_data cannot be evaluated: assertion failed"):
        gg.distribute.fit(build, (X, Y), strategy=strategy, **options)


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    two = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert two.num_replicas_in_sync == 2
    one = tf.distribute.get_strategy()
    (a, loss_a), (b, loss_b) = fit(one), fit(two)
    assert np.max(np.abs(a["variational.site_shift"])) > 1e-2
    assert abs(loss_a - loss_b) < 1e-6  # Keras reports in its own float32
    for fits in ((a.values(), b.values()), (loop(one), loop(two))):
        for v, w in zip(*fits, strict=True):
            np.testing.assert_allclose(v, w, rtol=0.0, atol=1e-10)
    for v, w in zip(summed(one), summed(two), strict=True):
        np.testing.assert_allclose(v, w, rtol=1e-5)  # in float32
    refused(two)
