"""GPflow's SVGP with a softmax, and one step of Adam: what ours is put beside."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from problems import NUM_CLASSES

_BATCH = 1024


def svgp(
    X: np.ndarray, labels: np.ndarray, kernel: gpflow.kernels.Kernel, num_inducing: int, rate: float
) -> tuple[gpflow.models.SVGP, Callable[[], None]]:
    """
    A model whose kernel and inducing inputs are held, and its step on the next minibatch.

    :param X: [N, D]; some of them are the inducing inputs.
    :param labels: [N, 1].
    :param kernel: of all classes.
    :param num_inducing: M.
    :param rate: of learning.
    """
    chosen = np.random.default_rng(0).choice(len(X), num_inducing, replace=False)
    model = gpflow.models.SVGP(
        kernel,
        gpflow.likelihoods.Softmax(NUM_CLASSES),
        X[chosen],
        num_latent_gps=NUM_CLASSES,
        num_data=len(X),
    )
    gpflow.set_trainable(model.kernel, False)
    gpflow.set_trainable(model.inducing_variable, False)
    batches = iter(
        tf.data.Dataset.from_tensor_slices((X, labels.astype(np.int32)))
        .repeat()
        .shuffle(len(X), seed=0)
        .batch(_BATCH)
    )
    loss = model.training_loss_closure(batches, compile=False)
    optimiser = tf.keras.optimizers.Adam(rate)
    variables = list(model.trainable_variables)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        optimiser.apply_gradients(zip(tape.gradient(value, variables), variables))

    optimiser.build(variables)
    return model, step
