"""Run by test_operators in a process of its own: devices are set before TensorFlow starts."""

from __future__ import annotations

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import contextlib

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.newton import operators


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    operators._SMALL = 0  # of which nothing would be compiled
    rng = np.random.default_rng(0)
    X, V = tf.constant(rng.uniform(size=(61, 2))), tf.constant(rng.normal(size=(61, 3)))
    kernel = gpflow.kernels.Matern32(1.3, 0.4)
    product = gg.operators.KernelProduct(kernel)
    with strategy.scope():
        result = product(X, X, V)
    np.testing.assert_allclose(result, kernel(X).numpy() @ V.numpy(), atol=1e-12)
    copies = product._on_devices(tuple(strategy.extended.worker_devices))
    for copy, device in zip(copies, strategy.extended.worker_devices):
        assert next(iter(copy._compiled._concrete))[1][1] == (31, 2)  # half of the rows
        assert copy.kernel.variance.unconstrained_variable.device == device
    kernel.variance.assign(2.6)
    with strategy.scope():
        np.testing.assert_allclose(product(X, X, V), 2.0 * result, atol=1e-12)

    U, free = tf.constant(rng.normal(size=(61, 3))), kernel.trainable_variables
    for name, entries in (("small", 2**19), ("compiled", 0)):
        operators._SMALL = entries
        slopes = []
        for scope in (contextlib.nullcontext(), strategy.scope()):
            with scope, tf.GradientTape() as tape:
                tape.watch(V)
                value = tf.reduce_sum(U * tf.sin(gg.operators.KernelProduct(kernel)(X, X, V)))
            slopes.append(tape.gradient(value, [V, *free]))
        for one, split in zip(*slopes):
            np.testing.assert_allclose(split, one, rtol=1e-10, atol=1e-10, err_msg=name)
            assert np.abs(one).max() > 0.1
    gpflow.set_trainable(kernel.lengthscales, False)  # of the same product, which made copies
    with strategy.scope(), tf.GradientTape() as tape:
        value = tf.reduce_sum(U * tf.sin(product(X, X, V)))
    np.testing.assert_allclose(tape.gradient(value, free[1]), slopes[0][2], rtol=1e-10)
    gpflow.set_trainable(kernel.lengthscales, True)
    with strategy.scope(), tf.GradientTape() as tape:  # V alone
        tape.watch(V)
        value = tf.reduce_sum(U * tf.sin(product(X, X, V)))
    np.testing.assert_allclose(tape.gradient(value, V), slopes[0][0], rtol=1e-10)

    @tf.function(autograph=False)
    def in_a_graph() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(V)
            value = tf.reduce_sum(U * tf.sin(product(X, X, V)))
        return tape.gradient(value, [V, *free])

    kernel.lengthscales.assign(0.7)
    with strategy.scope():
        there = in_a_graph()
        kernel.lengthscales.assign(0.4)  # read at each call
        there = in_a_graph()
    for one, split in zip(slopes[0], there):
        np.testing.assert_allclose(split, one, rtol=1e-10, atol=1e-10)

    Y = tf.cast(X[:, :1] > 0.5, X.dtype)
    models = [
        gg.models.IterNCGP((X, Y), kernel, gg.likelihoods.Bernoulli(), solver="newton")
        for _ in range(2)
    ]
    gg.optimizers.fit(models[0], hyperparameters=False)
    with strategy.scope():
        gg.optimizers.fit(models[1], hyperparameters=False)
    for a, b in zip(models[0].predict_f(X), models[1].predict_f(X)):
        np.testing.assert_allclose(a, b, atol=1e-10)
    for model in models:
        kernel.variance.assign(2.6)
        kernel.lengthscales.assign(0.4)
        with strategy.scope() if model is models[1] else contextlib.nullcontext():
            gg.optimizers.fit(model, max_iterations=30)
        learnt = float(kernel.variance.numpy()), float(kernel.lengthscales.numpy())
        model.learnt = learnt
    np.testing.assert_allclose(models[1].learnt, models[0].learnt, rtol=1e-6)
    print("equal on two devices")


if __name__ == "__main__":
    main()
