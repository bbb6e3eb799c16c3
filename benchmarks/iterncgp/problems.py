"""The mixture of Tatzel et al. (2025), class probabilities, and GPflow's SVGP beside ours."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf
from scipy.special import softmax

NUM_CLASSES = 10
BATCH = 1024


def mixture(per_class: int, per_class_test: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """
    Ten Gaussian classes in three dimensions: means U[-1, 1]^3, covariances U diag(U[.001, .1]) U'.

    :return: X, labels, X and labels to test on; rows shuffled.
    """
    rng = np.random.default_rng(seed)
    means = rng.uniform(-1, 1, (NUM_CLASSES, 3))
    roots = []
    for _ in range(NUM_CLASSES):
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        roots.append(turn * np.sqrt(rng.uniform(0.001, 0.1, 3)))

    def draw(number: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.permutation(np.repeat(np.arange(NUM_CLASSES), number))
        noise = rng.normal(size=(len(labels), 3))
        return means[labels] + np.einsum("nij,nj->ni", np.stack(roots)[labels], noise), labels

    return (*draw(per_class), *draw(per_class_test))


def probit(mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Class probabilities by MacKay's approximation, [M, C]."""
    return softmax(mean / np.sqrt(1.0 + np.pi / 8.0 * var), axis=1)


def without_shift(cov: np.ndarray) -> np.ndarray:
    """Variances [M, C] without that of a common shift of all classes."""
    P = np.eye(cov.shape[1]) - 1.0 / cov.shape[1]
    return np.einsum("ncc->nc", P @ cov @ P)


def svgp(
    X: np.ndarray, labels: np.ndarray, kernel: gpflow.kernels.Kernel, num_inducing: int, rate: float
) -> tuple[gpflow.models.SVGP, Callable[[], None]]:
    """
    A softmax model with kernel and inducing inputs held, and its step on the next minibatch.

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
        .batch(BATCH)
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
