"""A head under MirroredStrategy, batch normalisation before it, and on one device."""

from __future__ import annotations

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import keras
import numpy as np
import tensorflow as tf

import gpflow_gam as gg

N = 80
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = RNG.poisson(np.exp(1.0 + np.sin(2.0 * X[:, 0])))


def build(normalise: bool = False) -> keras.Model:
    options = {"num_data": N, "num_inducing": 6}
    terms = gg.s(0) + gg.s(1) + gg.s(0, 1, 2)  # whose inducing inputs follow the features
    head = gg.layers.AdditiveGP(terms, "negative_binomial", distance_aware=True, **options)
    inputs = keras.Input((2,), dtype="float64")
    features = keras.layers.Dense(3, dtype="float64")(inputs)
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
