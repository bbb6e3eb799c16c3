"""
How soon a head is good: held-out negative log density after each of the first epochs.

The same network, two hidden layers and Adam with Keras's defaults, ends in a Dense layer or in an
AdditiveGP on a few features. The NLL is that of predictions, without the KL. Run it with
``python benchmarks/epochs.py --out FOLDER`` (half an hour on two cores), or a part by
``--problems``. The figure is drawn into the folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from recording import add_option, record
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tabulate import tabulate

import gpflow_gam as gg

EPOCHS = (1, 2, 5, 10, 20, 40)
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Problem:
    """
    :param make: rows and responses from a seed, training and held-out ones.
    :param likelihood: of the GP head.
    :param outputs: of the Dense layer.
    :param nll: of each row, from what the Dense layer returns.
    """

    make: Callable[[int], tuple[AnyNDArray, AnyNDArray, AnyNDArray, AnyNDArray]]
    likelihood: str
    outputs: int
    nll: Loss
    width: int = 32
    features: int = 4


def _drawn(response: Callable[[AnyNDArray, np.random.Generator], AnyNDArray]) -> Callable:  # type: ignore[type-arg]
    def make(seed: int) -> tuple[AnyNDArray, ...]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(5000, 6)).astype("float32")
        w = rng.normal(size=(6, 3)) / np.sqrt(6.0)
        z = X @ w
        f = np.sin(2.0 * z[:, 0]) + 0.5 * z[:, 1] ** 2 + 0.5 * z[:, 1] * z[:, 2]
        y = response(f, rng).astype("float32")
        return X[:3000], X[3000:], y[:3000], y[3000:]

    return make


def _digits(seed: int) -> tuple[AnyNDArray, ...]:
    X, y = load_digits(return_X_y=True)
    return tuple(
        train_test_split((X / 16.0).astype("float32"), y, test_size=500, random_state=seed)
    )


def _gaussian(y: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
    scaled = (tf.reshape(y, [-1]) - out[:, 0]) * tf.exp(-0.5 * out[:, 1])
    return 0.5 * (np.log(2.0 * np.pi) + out[:, 1] + scaled**2)


def _poisson(y: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
    y = tf.reshape(y, [-1])
    return tf.exp(out[:, 0]) - y * out[:, 0] + tf.math.lgamma(y + 1.0)


def _bernoulli(y: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(tf.reshape(y, [-1]), out[:, 0])


def _softmax(y: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
    codes = tf.cast(tf.reshape(y, [-1]), tf.int32)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(codes, out)


PROBLEMS = {
    "regression": Problem(
        _drawn(lambda f, rng: f + 0.2 * rng.normal(size=len(f))), "gaussian", 2, _gaussian
    ),
    "counts": Problem(
        _drawn(lambda f, rng: rng.poisson(np.exp(1.0 + 1.5 * np.tanh(f)))), "poisson", 1, _poisson
    ),
    "rare": Problem(
        _drawn(lambda f, rng: rng.uniform(size=len(f)) < 1.0 / (1.0 + np.exp(4.0 - 2.0 * f))),
        "bernoulli",
        1,
        _bernoulli,
    ),
    "digits": Problem(_digits, "softmax", 10, _softmax, width=64, features=6),
}


class HeldOut(keras.callbacks.Callback):
    """The held-out NLL after some epochs, and the seconds of training up to there."""

    def __init__(self, score: Callable[[], float]) -> None:
        super().__init__()
        self.score, self.seconds, self.rows = score, 0.0, {}  # type: ignore[var-annotated]

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        took = time.perf_counter() - self.start
        self.seconds += took if epoch else 0.0  # the first one compiles
        if epoch + 1 in EPOCHS:
            self.rows[epoch + 1] = self.score()


def run(problem: Problem, head: str, seed: int, batch: int, epochs: int) -> dict[str, float]:
    X, Xt, y, yt = problem.make(seed)
    keras.utils.set_random_seed(seed)
    inputs = keras.Input(X.shape[1:])
    x = inputs
    for _ in range(2 if X.shape[1] < 64 else 1):
        x = keras.layers.Dense(problem.width, activation="relu")(x)
    if head == "Dense":
        model = keras.Model(inputs, keras.layers.Dense(problem.outputs)(x))
        model.compile("adam", loss=problem.nll)

        def score() -> float:
            return float(tf.reduce_mean(problem.nll(tf.constant(yt), model(Xt))))

    else:
        terms = sum((gg.s(i) for i in range(problem.features)), gg.terms.Terms())
        classes = {"num_classes": problem.outputs} if problem.likelihood == "softmax" else {}
        gp = gg.layers.AdditiveGP(terms, problem.likelihood, num_data=len(X), **classes)
        model = keras.Model(inputs, gp(keras.layers.Dense(problem.features)(x)))
        model.compile("adam", loss=gp.loss)

        def score() -> float:
            return -float(tf.reduce_mean(gp.predict_log_density(yt, model(Xt))))

    held_out = HeldOut(score)
    model.fit(X, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[held_out])
    result = {f"NLL after {k}": v for k, v in held_out.rows.items()}
    return {**result, "s an epoch": held_out.seconds / max(epochs - 1, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the figure")
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=max(EPOCHS))
    parser.add_argument("--batch", type=int, default=32)
    add_option(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in arguments.problems:
        for head in ("Dense", "AdditiveGP"):
            scores = []
            for seed in range(arguments.seeds):
                scores.append(run(PROBLEMS[name], head, seed, arguments.batch, arguments.epochs))
                print(name, head, seed, {k: round(v, 3) for k, v in scores[-1].items()}, flush=True)
            medians = pd.DataFrame(scores).median().to_dict()
            rows.append({"problem": name, "head": head, **medians})
    print(tabulate(rows, "keys", floatfmt=".3f"))
    scored = [k for k in rows[0] if k.startswith("NLL")]
    record(
        "epochs",
        "A GP head beside a Dense layer: the first epochs",
        rows,
        arguments,
        method="head",
        ours=["AdditiveGP"],
        better=dict.fromkeys([*scored, "s an epoch"], "lower"),
    )
    figure, axes = plt.subplots(
        1, len(arguments.problems), figsize=(3.1 * len(arguments.problems), 3.0),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for ax, name in zip(axes[0], arguments.problems):
        for row in rows:
            if row["problem"] == name:
                at = [int(k.split()[-1]) for k in scored]
                ax.plot(at, [row[k] for k in scored], marker="o", ms=3, label=row["head"])
        ax.set(title=name, xlabel="epochs", xscale="log", xticks=at, xticklabels=at)
        ax.minorticks_off()
    axes[0, 0].set_ylabel("held-out NLL")
    axes[0, 0].legend()
    figure.savefig(arguments.out / "epochs.png", dpi=110)


if __name__ == "__main__":
    main()
