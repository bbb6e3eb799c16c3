"""
A GP head against a Dense softmax head on the same network: scikit-learn's 8 x 8 digits.

Both train the same backbone for as many epochs with Adam; accuracy, NLL and calibration error on
held-out digits, and mean confidence (the largest probability) on images that are no digits of the
data: turned by 90 degrees, and uniform noise. The GP's q(U) moves by Adam too, or by natural
gradients. Medians over seeds, with a figure of confidence against the angle. Run it with
``python benchmarks/digits.py --out FOLDER``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tabulate import tabulate

import gpflow_gam as gg

ANGLES = np.arange(0, 181, 15)
NUM_FEATURES = 8
RATE, BATCH = 0.003, 64


def backbone() -> tuple[keras.KerasTensor, keras.KerasTensor]:
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(16, 3, activation="relu")(inputs)
    x = keras.layers.Conv2D(32, 3, activation="relu")(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(64, activation="relu")(x)
    return inputs, keras.layers.Dense(NUM_FEATURES)(x)


def dense() -> tuple[keras.Model, keras.Model]:
    inputs, features = backbone()
    outputs = keras.layers.Dense(10, activation="softmax")(features)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss="sparse_categorical_crossentropy")
    return model, model


def gaussian_process(num_data: int, natural: bool) -> tuple[keras.Model, keras.Model]:
    inputs, features = backbone()
    head = gg.layers.AdditiveGP(
        sum((gg.s(i) + gg.linear(i) for i in range(NUM_FEATURES)), gg.terms.Terms()),
        "softmax",
        num_classes=10,
        num_data=num_data,
        num_inducing=8,
        variational="sites" if natural else "block",
        rho=0.1,
    )
    kind = gg.layers.NaturalGradientModel if natural else keras.Model
    model = kind(inputs, head(features))
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss=head.loss)
    return model, keras.Model(inputs, head(features, output="response"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the figure")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    X, Xt, y, yt = train_test_split(images, labels, test_size=500, random_state=0, stratify=labels)
    turned = [rotate(Xt, a, axes=(1, 2), reshape=False, order=1) for a in ANGLES]
    noise = np.random.default_rng(0).uniform(size=(500, 8, 8, 1)).astype(np.float32)

    heads = {
        "Dense softmax": dense,
        "additive GP, Adam": lambda: gaussian_process(len(X), natural=False),
        "additive GP, natural gradients": lambda: gaussian_process(len(X), natural=True),
    }
    rows, curves = [], {}
    for name, build in heads.items():
        scores, confidence = [], []
        for seed in range(arguments.seeds):
            keras.utils.set_random_seed(seed)
            model, probabilities = build()
            start = time.perf_counter()
            model.fit(X, y, epochs=arguments.epochs, batch_size=BATCH, verbose=0)
            seconds = time.perf_counter() - start
            p = probabilities.predict(Xt, verbose=0).astype(float)
            p = p / p.sum(axis=1, keepdims=True)
            away = probabilities.predict(noise, verbose=0).max(axis=1).mean()
            confidence.append(
                [probabilities.predict(t, verbose=0).max(axis=1).mean() for t in turned]
            )
            quarter = confidence[-1][int(np.flatnonzero(ANGLES == 90)[0])]
            found = (gg.metrics.accuracy(yt, p), gg.metrics.nlpd(yt, p), gg.metrics.ece(yt, p))
            scores.append([*found, quarter, away, seconds])
            print(name, seed, np.round(scores[-1], 4), flush=True)
        rows.append([name, *np.median(scores, axis=0)])
        curves[name] = np.array(confidence)
    heads_of_columns = ["head", "accuracy", "NLL", "ECE", "at 90 degrees", "noise", "fit, s"]
    print(tabulate(rows, heads_of_columns, floatfmt=".3f"))

    figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
    for name, values in curves.items():
        line = ax.plot(ANGLES, np.median(values, axis=0), label=name)[0]
        ax.fill_between(
            ANGLES, *np.quantile(values, [0, 1], axis=0), color=line.get_color(), alpha=0.2
        )
    ax.set_xlabel("turned by, degrees")
    ax.set_ylabel("mean confidence")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    figure.savefig(arguments.out / "digits_confidence.png", dpi=110)


if __name__ == "__main__":
    main()
