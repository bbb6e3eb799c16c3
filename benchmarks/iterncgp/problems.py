"""The mixture of Tatzel et al. (2025), and races on it: ours and GPflow's SVGP against time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy.special import softmax

from gpflow_gam import metrics
from gpflow_gam.models import IterNCGP

NUM_CLASSES = 10
SCORES = {"NLL": metrics.nlpd, "ECE": metrics.ece, "accuracy": metrics.accuracy}
Point = tuple[float, ...]
"""Seconds, then the scores of each of the sets of rows that are judged."""
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


class Race:
    """
    Data, kernel and clock of one curve; the clock stands still while posteriors are scored.

    :param data: X and labels of those rows, X and labels of others.
    :param kernel: held.
    :param budget: seconds of the curve.
    :param judged: sets of rows, and their labels, that posteriors are scored on.
    :param joint: whether class probabilities leave out the common shift of all classes, for which
        it takes their covariances.
    :param now: the clock.
    """

    def __init__(
        self,
        data: Sequence[np.ndarray],
        kernel: gpflow.kernels.Kernel,
        budget: float,
        judged: Sequence[tuple[np.ndarray, np.ndarray]],
        joint: bool,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.X, labels = data[:2]
        self.Y = labels[:, None].astype(self.X.dtype)
        self.kernel, self.budget, self.judged, self.joint = kernel, budget, judged, joint
        self.points: list[Point] = []
        self._now = now
        self._begun, self._scoring = now(), 0.0

    @property
    def seconds(self) -> float:
        return self._now() - self._begun - self._scoring

    @property
    def over(self) -> bool:
        return self.seconds > self.budget

    def model(self, solver: Any, rows: int | None = None) -> IterNCGP:
        likelihood = gpflow.likelihoods.Softmax(NUM_CLASSES)
        return IterNCGP((self.X[:rows], self.Y[:rows]), self.kernel, likelihood, solver=solver)

    def score(self, predict: Callable[..., tuple[tf.Tensor, tf.Tensor]]) -> None:
        """Note how well a posterior predicts."""
        seconds, begun, scores = self.seconds, self._now(), []
        for X, labels in self.judged:
            parts = []
            for rows in np.array_split(X, 10):
                both = predict(rows, full_output_cov=True) if self.joint else predict(rows)
                mean, cov = (t.numpy().astype(float) for t in both)
                parts.append(probit(mean, without_shift(cov) if self.joint else cov))
            scores += [f(labels, np.concatenate(parts)) for f in SCORES.values()]
        self.points.append((seconds, *map(float, scores)))
        print(f"  {seconds:.1f} s: NLL {scores[-len(SCORES)]:.4f}", flush=True)
        self._scoring += self._now() - begun

    def svgp(self, num_inducing: int, rate: float, first: float, spacing: float) -> None:
        """Points at times that are spaced like powers."""
        model, step = svgp(self.X, self.Y, self.kernel, num_inducing, rate)
        mark = first
        while not self.over:
            step()
            if self.seconds > mark:
                self.score(model.predict_f)
                mark = self.seconds * spacing
