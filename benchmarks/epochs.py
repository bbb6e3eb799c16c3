"""
How soon a head is good: held-out rows after each of the first epochs.

The same network and Adam, all of Keras's defaults, end in a Dense layer or in an AdditiveGP on a
few features. The NLL is that of predictions, without the KL. The error is that of the expected
response (RMSE) or of the likeliest class. Medians over seeds. Run it with
``python benchmarks/epochs.py`` (an hour on two cores), or a part by ``--problems``, which is not
recorded.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from heads import leaves
from recording import parser_of, record
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gpflow_gam as gg

EPOCHS = (1, 2, 5, 10, 20, 40)
VARYING = "AdditiveGP, heteroskedastic"  # whose noise depends on inputs, as Dense's does
Tensors = Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Problem:
    make: Callable[[int], Sequence[AnyNDArray]]  # X, Xt, y, yt from a seed
    likelihoods: dict[str, str]  # of GP heads, by name
    outputs: int  # of the Dense layer
    nll: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # of each row, from y and Dense's outputs
    response: Tensors  # expected ones or probabilities, from Dense's outputs
    hidden: tuple[int, ...] = (32, 32)  # widths of the network's layers
    features: int = 4  # of the GP head

    def errors(self, y: AnyNDArray, response: AnyNDArray) -> dict[str, float | None]:
        if self.likelihoods["AdditiveGP"] in ("gaussian", "poisson"):
            return {"error": float(np.sqrt(np.mean((response - y) ** 2))), "ECE": None}
        p = np.stack([1.0 - response, response], axis=1) if response.ndim == 1 else response
        p = p / p.sum(axis=1, keepdims=True)
        return {"error": 1.0 - gg.metrics.accuracy(y, p), "ECE": gg.metrics.ece(y, p)}


def _drawn(
    response: Callable[[AnyNDArray, np.random.Generator], AnyNDArray],
) -> Callable[[int], Sequence[AnyNDArray]]:
    def make(seed: int) -> Sequence[AnyNDArray]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(5000, 6)).astype("float32")
        z = X @ rng.normal(size=(6, 3)) / np.sqrt(6.0)
        f = np.sin(2.0 * z[:, 0]) + 0.5 * z[:, 1] ** 2 + 0.5 * z[:, 1] * z[:, 2]
        y = response(f, rng).astype("float32")
        return X[:3000], X[3000:], y[:3000], y[3000:]

    return make


def _digits(seed: int) -> Sequence[AnyNDArray]:
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype("float32")
    return train_test_split(X, y, test_size=500, random_state=seed)  # type: ignore[no-any-return]


def _leaves(seed: int) -> Sequence[AnyNDArray]:
    problem = leaves(seed)
    return problem.X, problem.Xt, problem.y, problem.yt


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


def _first(out: tf.Tensor) -> tf.Tensor:
    return out[:, 0]


PROBLEMS = {
    "regression": Problem(
        _drawn(lambda f, rng: f + 0.2 * rng.normal(size=len(f))),
        {"AdditiveGP": "gaussian", VARYING: "heteroskedastic"},
        2,
        _gaussian,
        _first,
    ),
    "counts": Problem(
        _drawn(lambda f, rng: rng.poisson(np.exp(1.0 + 1.5 * np.tanh(f)))),
        {"AdditiveGP": "poisson"},
        1,
        _poisson,
        lambda out: tf.exp(out[:, 0]),
    ),
    "rare": Problem(
        _drawn(lambda f, rng: rng.uniform(size=len(f)) < 1.0 / (1.0 + np.exp(4.0 - 2.0 * f))),
        {"AdditiveGP": "bernoulli"},
        1,
        _bernoulli,
        lambda out: tf.sigmoid(out[:, 0]),
    ),
    "digits": Problem(_digits, {"AdditiveGP": "softmax"}, 10, _softmax, tf.nn.softmax, (64,), 6),
    "leaves": Problem(_leaves, {"AdditiveGP": "softmax"}, 24, _softmax, tf.nn.softmax, (64,), 8),
}


class HeldOut(keras.callbacks.Callback):
    """The held-out NLL after some epochs, and the seconds of training."""

    def __init__(self, nll: Callable[[], float]) -> None:
        super().__init__()
        self._nll = nll
        self.found: dict[str, float] = {}
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.seconds.append(time.perf_counter() - self._start)
        if epoch + 1 in EPOCHS:
            self.found[f"NLL after {epoch + 1}"] = self._nll()


def run(problem: Problem, head: str, seed: int, batch: int, epochs: int) -> dict[str, Any]:
    X, Xt, y, yt = problem.make(seed)
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    x = inputs = keras.Input(X.shape[1:])
    for width in problem.hidden:
        x = keras.layers.Dense(width, activation="relu")(x)
    if head == "Dense":
        model = keras.Model(inputs, keras.layers.Dense(problem.outputs)(x))
        nll, loss, response = problem.nll, problem.nll, problem.response
    else:
        terms = sum((gg.s(i) for i in range(problem.features)), gg.terms.Terms())
        likelihood = problem.likelihoods[head]
        classes = {"num_classes": problem.outputs} if likelihood == "softmax" else {}
        gp = gg.layers.AdditiveGP(terms, likelihood, num_data=len(X), **classes)
        model = keras.Model(inputs, gp(keras.layers.Dense(problem.features)(x)))
        loss, response = gp.loss, gp.response

        def nll(y: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
            return -gp.predict_log_density(y, moments)

    held_out = HeldOut(lambda: float(tf.reduce_mean(nll(tf.constant(yt), model(Xt)))))
    model.compile("adam", loss=loss)
    model.fit(X, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[held_out])
    found = {**held_out.found, **problem.errors(yt, np.asarray(response(model(Xt))))}
    return {**found, "s an epoch": float(np.median(held_out.seconds[1:]))}  # the first one compiles


def main() -> None:
    parser = parser_of(__doc__, seeds=5, epochs=max(EPOCHS))
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    arguments = parser.parse_args()
    rows = []
    for name in arguments.problems:
        for batch in (32, 128):
            heads = ("Dense", *PROBLEMS[name].likelihoods)
            scores: dict[str, list[dict[str, Any]]] = {head: [] for head in heads}
            for seed in range(arguments.seeds):
                for head, each in scores.items():
                    each.append(run(PROBLEMS[name], head, seed, batch, arguments.epochs))
                    print(name, batch, head, seed, list(each[-1].values()), flush=True)
            for head, each in scores.items():
                medians = pd.DataFrame(each).astype(float).median()
                numbers = {k: None if np.isnan(v) else float(v) for k, v in medians.items()}
                rows.append({"problem": name, "batch": batch, "head": head, **numbers})
    if arguments.problems == list(PROBLEMS):
        record(
            "epochs",
            "The first epochs of a GP head and of a Dense layer",
            rows,
            arguments,
            within=["problem", "batch"],
            method="head",
            ours=["AdditiveGP", VARYING],
            better=dict.fromkeys(list(rows[0])[3:], "lower"),
        )


if __name__ == "__main__":
    main()
