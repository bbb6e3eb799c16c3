"""
A Gaussian process as the last layer of a convolutional network: 8 x 8 digits.

Trains the network and its additive head by ``model.fit``, prints accuracy and how sure the model is
of digits and of noise, draws how each feature speaks for each class, and exports the model for
serving. Run it with ``python examples/deep_head.py``; takes about a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gpflow_gam as gg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="folder of figure and export")
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype("float32")
    X, Xt, y, yt = train_test_split(images, labels, test_size=500, random_state=0, stratify=labels)

    inputs = keras.Input((8, 8, 1), name="image")
    x = keras.layers.Conv2D(16, 3, activation="relu")(inputs)
    x = keras.layers.Conv2D(32, 3, activation="relu")(x)
    x = keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(x))
    features = keras.layers.Dense(4)(x)
    head = gg.layers.AdditiveGP(
        gg.s(0) + gg.s(1) + gg.te(2, 3),
        "softmax",
        num_classes=10,
        num_data=len(X),
        num_inducing=20,
        name="head",
    )
    model = keras.Model(inputs, head(features))
    model.compile(
        optimizer=keras.optimizers.Adam(3e-3),
        loss=head.loss,
        metrics=[head.metric("accuracy"), head.metric("nlpd")],
    )
    model.fit(X, y, epochs=arguments.epochs, batch_size=64, validation_data=(Xt, yt), verbose=2)

    probabilities = keras.Model(inputs, head(features, output="response"))
    p = probabilities.predict(Xt, verbose=0)
    noise = np.random.default_rng(0).uniform(size=Xt.shape).astype("float32")
    away = probabilities.predict(noise, verbose=0)
    print(f"accuracy on {len(Xt)} held-out digits: {np.mean(p.argmax(axis=1) == yt):.3f}")
    print(
        f"mean confidence: digits {p.max(axis=1).mean():.2f}, noise {away.max(axis=1).mean():.2f}"
    )

    head.draw().savefig(arguments.out / "deep_head.png")
    gg.serving.export(model, arguments.out / "deep_head", overwrite=True)
    print(f"drew {arguments.out / 'deep_head.png'}, exported {arguments.out / 'deep_head'}")


if __name__ == "__main__":
    main()
