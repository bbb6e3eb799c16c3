"""What moves in a head that trains, and what does not."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, NaturalGradientModel

N = 40
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, 2)).astype("float32")
Y = np.sin(2.0 * X[:, 0])


def build(kind: type[keras.Model] = keras.Model, **options: Any) -> tuple[keras.Model, AdditiveGP]:
    options = {"num_data": N, "num_inducing": 5, **options}
    head = AdditiveGP(gg.s(0) + gg.s(1), **options)
    inputs = keras.Input((2,))
    model = kind(inputs, head(keras.layers.Dense(2, name="dense")(inputs)))
    model.compile(keras.optimizers.SGD(0.01), loss=head.loss)
    return model, head


def numbers(head: AdditiveGP) -> dict[str, np.ndarray]:
    return {path: np.array(v) for path, v in head._state().items()}


# --- q by natural gradients ----------------------------------------------------------------------


def test_sites_need_natural_gradients() -> None:
    model, head = build(variational="sites")
    with pytest.raises(ValueError, match="variational='sites'.*NaturalGradientModel.*'block'"):
        model.fit(X, Y, verbose=0)
    assert np.isfinite(model.evaluate(X, Y, batch_size=N, verbose=0))
    with head.recorded() as features:  # a loop of one's own
        head(X, training=True)
    before = numbers(head)["variational.site_shift"]
    head.natural_gradient_step(features[0], Y)
    assert np.max(np.abs(numbers(head)["variational.site_shift"] - before)) > 1e-3


@pytest.mark.parametrize("kind", [keras.Model, NaturalGradientModel])
def test_sites_are_not_distributed(kind: type[keras.Model]) -> None:
    with pytest.raises(ValueError, match=r"variational='sites'.*'block'"):
        gg.distribute.fit(
            lambda: build(kind, variational="sites")[0], (X, Y), batch_size=20, num_steps=1
        )


def test_own_steps_are_not_distributed() -> None:
    class Own(keras.Model):
        def train_step(self, data: Any) -> Any:
            raise AssertionError("never called")

    with pytest.raises(ValueError, match="train_step of its own.*compute_loss"):
        gg.distribute.fit(lambda: build(Own)[0], (X, Y), batch_size=20, num_steps=1)


# --- frozen heads --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["head", "model"])
def test_a_frozen_head_stays_as_it_is(where: str) -> None:
    model, head = build()
    head(X, training=True)
    before, outputs = numbers(head), np.array(head(X))
    (head if where == "head" else model).trainable = False
    head(3.0 + 10.0 * X, training=True)
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    np.testing.assert_array_equal(head(X), outputs)
    head.trainable = True
    head(3.0 + 10.0 * X, training=True)
    assert np.max(np.abs(np.array(head(X)) - outputs)) > 1e-3


@pytest.mark.parametrize("way", ["trainable", "frozen"])
def test_natural_gradients_leave_what_is_frozen(way: str) -> None:
    model, head = build(NaturalGradientModel, variational="sites", normalization=None)
    if way == "trainable":
        head.trainable = False
    else:
        head.frozen = ("inducing_variable", "kernel", "likelihood", "mean_function", "variational")
    model.compile(keras.optimizers.SGD(0.1), loss=head.loss)
    before, dense = numbers(head), np.array(model.get_layer("dense").kernel)
    head.parameters["variational.site_shift"].assign(before["variational.site_shift"] + 0.3)
    before = numbers(head)
    model.fit(X, Y, batch_size=N, verbose=0)
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    assert np.max(np.abs(np.array(model.get_layer("dense").kernel) - dense)) > 1e-4
