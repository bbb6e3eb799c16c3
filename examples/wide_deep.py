"""
Wide and deep: a GAM on the columns one wants to read, a network on the others.

    log E[bikers] = s(hour, cyclic) by workingday + s(temp) + workingday + s(network(the rest))

The hour, the temperature and the kind of day go straight into terms; month, weather, humidity and
wind go through a small network whose one output is a feature like any other. Components average to
zero over their own inputs, so that the readable ones keep their meaning beside the network. Prints
how well held-out hours are explained, and draws the components. Run it with
``python examples/wide_deep.py``; takes about a minute.

With ``--workers`` it is trained by ``gg.distribute.fit``, by Adam in double precision: the same on
one host as on the several that ``TF_CONFIG`` names, each of which runs this program.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.axes import Axes
from sklearn.model_selection import train_test_split

import gpflow_gam as gg


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of the terms [N, 3], of the network [N, 8], and counts [N]."""
    data = gg.datasets.bikeshare()
    wide = data[["hr", "workingday", "temp"]].to_numpy(np.float32)
    season = 2.0 * np.pi * data["mnth"].cat.codes / 12.0
    deep = np.column_stack(
        [
            np.sin(season),
            np.cos(season),
            data["hum"],
            data["windspeed"],
            pd.get_dummies(data["weathersit"]),
        ]
    )
    return wide, deep.astype(np.float32), data["bikers"].to_numpy(np.float32)


def build(num_data: int, width: int) -> tuple[keras.Model, keras.Model, gg.layers.AdditiveGP]:
    """
    The model of counts' moments, the one of the head's features, and the head.
    """
    wide, deep = keras.Input((3,), name="wide"), keras.Input((width,), name="deep")
    hidden = keras.layers.Dense(32, activation="gelu")(deep)
    learnt = keras.layers.Dense(1)(keras.layers.Dense(16, activation="gelu")(hidden))
    features = keras.layers.Concatenate()([wide, learnt])
    head = gg.layers.AdditiveGP(
        gg.s(0, bs="cyclic", period=24, by=gg.factor(1)) + gg.s(2) + gg.factor(1) + gg.s(3),
        "poisson",
        num_data=num_data,
        num_levels={1: 2},
        name="head",
    )
    model = keras.Model([wide, deep], head(features))
    model.compile(
        optimizer=keras.optimizers.Adam(0.01), loss=head.loss, metrics=[head.metric("nlpd")]
    )
    return model, keras.Model([wide, deep], features), head


def distributed(
    train: tuple[np.ndarray, ...],
    held_out: tuple[np.ndarray, ...],
    epochs: int,
    strategy: tf.distribute.Strategy | None = None,
) -> tuple[gg.distribute.DistributedFit, gg.layers.AdditiveGP]:
    """
    The fit on all workers, of columns and counts (W, D, y), and the head.

    Keras's numbers have to be doubles, as those of the head are: workers send one type.
    """
    W, D, y = train
    heads = []

    def make() -> keras.Model:
        keras.utils.set_random_seed(0)
        model, features, head = build(len(W), D.shape[1])
        head.adapt(features([W, D]).numpy(), y)  # the same on all workers, as their data are
        heads.append(head)
        return model

    result = gg.distribute.fit(
        make,
        ((W, D), y),
        strategy=strategy,
        batch_size=256,
        num_steps=epochs * (len(W) // 256),
        validation_data=(held_out[:2], held_out[2]),
    )
    return result, heads[0]


def explained(y: np.ndarray, mean: np.ndarray, constant: float) -> float:
    """The share of the Poisson deviance that predictions take off a constant's."""

    def deviance(mu: np.ndarray | float) -> float:
        logs = y * np.log(np.where(y > 0.0, y, 1.0) / mu)
        return float(np.sum(logs - (y - mu)))

    return 1.0 - deviance(mean) / deviance(constant)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--figure", type=Path, default=Path("wide_deep.png"))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--workers", action="store_true", help="train by gg.distribute.fit")
    arguments = parser.parse_args()
    strategy = None
    if arguments.workers:
        keras.config.set_floatx("float64")
        if "TF_CONFIG" in os.environ:  # before anything else of TensorFlow
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(0)
    wide, deep, y = load()
    parts = train_test_split(wide, deep, y, test_size=0.2, random_state=0)
    W, Wt, D, Dt, y, yt = parts
    if arguments.workers:
        result, head = distributed((W, D, y), (Wt, Dt, yt), arguments.epochs, strategy)
        model = result.model
        print(f"held-out NLPD, last epoch: {result.epochs['val_nlpd'][-1]:.6f}")
    else:
        model, features, head = build(len(W), D.shape[1])
        head.adapt(features.predict([W, D], verbose=0), y)
        model.fit([W, D], y, epochs=arguments.epochs, batch_size=256, verbose=0)

    mean = head.response(model([Wt, Dt])).numpy()
    print(f"held-out deviance explained: {explained(yt, mean, float(y.mean())):.3f}")
    if not arguments.workers:  # Keras evaluates in one process
        loss = model.evaluate([W, D], y, batch_size=2048, verbose=0)[0]
        print(f"ELBO with the log prior of hyperparameters: {-len(W) * loss:.0f}")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(1, 3)
    grid = np.linspace(0.0, 24.0, 97)
    for level, label in enumerate(("other day", "working day")):
        name = f"s(0):1={level}"
        _band(axes[0], head.effects(name, grid), label)
    axes[0].legend()
    for ax, name in zip(axes[1:], ("s(2)", "s(3)")):
        _band(ax, head.effects(name), None)
    for ax, label in zip(axes, ("hour", "temperature (scaled)", "the network's output")):
        ax.set_xlabel(label)
    axes[0].set_ylabel("effect on log count")
    figure.savefig(arguments.figure, dpi=110)
    print(f"drew {arguments.figure}")


def _band(ax: Axes, curve: pd.DataFrame, label: str | None) -> None:
    x = curve.iloc[:, 0]
    ax.plot(x, curve["estimate"], label=label)
    ax.fill_between(x, curve["lower"], curve["upper"], alpha=0.3)


if __name__ == "__main__":
    main()
