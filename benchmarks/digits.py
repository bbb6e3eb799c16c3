"""
A GP head against a Dense softmax head on the same network: scikit-learn's 8 x 8 digits.

Both train the same backbone for as many epochs with Adam; accuracy, NLL and calibration error on
held-out digits, and mean confidence (the largest probability) on images that are no digits of the
data: turned by 90 degrees, and uniform noise. The GP's q(U) moves by Adam too, or by natural
gradients. Medians over seeds, with a figure of confidence against the angle. Run it with
``python benchmarks/digits.py --out FOLDER``.

The KL of the GP heads is tempered by ``kl_weight`` (Wenzel et al. 2020, "How Good is the Bayes
Posterior in Deep Neural Networks Really?"; Osawa et al. 2019, "Practical Deep Learning with
Bayesian Principles", section 4): classes that a network separates say little of how far apart they
are, so the posterior keeps much of the prior's variance and is underconfident. ``--tempering 1`` is
the plain ELBO.
``--validation FOLD`` holds out a fold of the training digits instead of the test digits, which is
how such numbers are to be chosen.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import numpy as np
from recording import add_option, record
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, train_test_split
from tabulate import tabulate

import gpflow_gam as gg

ANGLES = np.arange(0, 181, 15)
NUM_FEATURES = 8
RATE, BATCH = 0.003, 64
RHO = 0.03  # of natural gradients: small, for tempering makes the noise of batches larger too
TEMPERING = {"Adam": 20, "natural gradients": 5}
"""What the KL is divided by: one over ``kl_weight``."""


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


def gaussian_process(
    num_data: int, tempering: int, natural: bool
) -> tuple[keras.Model, keras.Model]:
    inputs, features = backbone()
    head = gg.layers.AdditiveGP(
        sum((gg.s(i) + gg.linear(i) for i in range(NUM_FEATURES)), gg.terms.Terms()),
        "softmax",
        num_classes=10,
        num_data=num_data,
        kl_weight=1.0 / tempering,
        num_inducing=8,
        variational="sites" if natural else "block",
        rho=RHO,
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
    parser.add_argument("--tempering", type=int, help="one over kl_weight, for every head")
    parser.add_argument("--validation", type=int, choices=range(5), help="fold held out, not test")
    add_option(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    X, Xt, y, yt = train_test_split(images, labels, test_size=500, random_state=0, stratify=labels)
    if arguments.validation is not None:
        folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
        train, held_out = list(folds)[arguments.validation]
        X, Xt, y, yt = X[train], X[held_out], y[train], y[held_out]
    turned = [rotate(Xt, a, axes=(1, 2), reshape=False, order=1) for a in ANGLES]
    noise = np.random.default_rng(0).uniform(size=(500, 8, 8, 1)).astype(np.float32)

    tempering = {k: arguments.tempering or factor for k, factor in TEMPERING.items()}
    heads = {
        "Dense softmax": dense,
        "additive GP, Adam": lambda: gaussian_process(len(X), tempering["Adam"], natural=False),
        "additive GP, natural gradients": lambda: gaussian_process(
            len(X), tempering["natural gradients"], natural=True
        ),
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
            result = (gg.metrics.accuracy(yt, p), gg.metrics.nlpd(yt, p), gg.metrics.ece(yt, p))
            scores.append([*result, quarter, away, seconds])
            print(name, seed, np.round(scores[-1], 4), flush=True)
        rows.append([name, *np.median(scores, axis=0)])
        curves[name] = np.array(confidence)
    heads_of_columns = ["head", "accuracy", "NLL", "ECE", "at 90 degrees", "noise", "fit, s"]
    print(tabulate(rows, heads_of_columns, floatfmt=".3f"))
    if arguments.validation is None:
        record(
            "digits",
            "A GP head beside a Dense softmax head: handwritten digits",
            [dict(zip(heads_of_columns, row)) for row in rows],
            arguments,
            method="head",
            ours=list(heads)[1:],
            better={"accuracy": "higher", "NLL": "lower", "ECE": "lower", "fit, s": "lower"},
        )

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
