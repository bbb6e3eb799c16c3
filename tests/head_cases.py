"""Data, and networks with heads on them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP

N = 90
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, 3))
F = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 - 0.5
Y = (F + 0.2 * RNG.normal(size=N)) / 1.2
LABELS = np.digitize(F, [-0.5, 0.5])


def additive(terms: Any = None, likelihood: Any = "gaussian", **options: Any) -> AdditiveGP:
    terms = gg.s(0) + gg.s(1) if terms is None else terms
    return AdditiveGP(terms, likelihood, **{"num_data": N, "num_inducing": 6, **options})


def small(terms: Any = None, **options: Any) -> AdditiveGP:
    """For what terms and families of q do not change: its training step takes half the time."""
    return additive(gg.s(0) if terms is None else terms, **options)


def lively(terms: Any = None, **options: Any) -> AdditiveGP:
    """With effects, as of a head that has learnt."""
    head = additive(terms, **options)
    q_mu = head.parameters["variational.site_shift"]
    q_mu.assign(np.linspace(-1.0, 1.0, q_mu.shape.num_elements()).reshape(q_mu.shape))
    return head


def network(head: Any, kind: type[keras.Model] = keras.Model, width: int = 3) -> keras.Model:
    inputs = keras.Input((width,))
    return kind(inputs, head(keras.layers.Dense(width, name="dense")(inputs)))


def compiled(
    model: keras.Model, head: Any, rate: float = 0.02, by: Any = None, **options: Any
) -> keras.Model:
    model.compile((by or keras.optimizers.Adam)(rate), loss=head.loss, **options)
    if model.built:  # a step that makes the optimiser's variables is traced twice
        model.optimizer.build(model.trainable_variables)
    return model


def scramble(head: Any, seed: int = 0) -> None:
    """Move every number that the layer holds."""
    rng = np.random.default_rng(seed)
    for path, variable in head._state().items():
        value = np.asarray(variable)
        moved = value + 0.05 * rng.uniform(0.1, 1.0, value.shape)
        if path.endswith("probabilities"):
            moved = np.abs(moved) / np.abs(moved).sum()
        variable.assign(moved)


def numbers(head: Any) -> dict[str, np.ndarray]:
    return {path: np.array(v) for path, v in head._state().items()}


@contextmanager
def unchanged(head: Any) -> Iterator[None]:
    """Every number that the layer holds."""
    before = numbers(head)
    yield
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


def moved_model() -> tuple[keras.Model, AdditiveGP]:
    """A network of which every number has moved from where it starts."""
    keras.utils.set_random_seed(0)
    head = additive(gg.s(0) + gg.s(1) + gg.te(1, 2), name="trained")
    model = compiled(network(head), head)
    head.adapt(model.get_layer("dense")(X))
    scramble(head)
    return model, head


class Subclassed(keras.Model):
    def __init__(self, head: AdditiveGP) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.head = head

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return self.head(self.dense(x), training=training)
