"""Heads on features with any leading dimensions: sequences, images, masks."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5, 2))
Y = np.sin(2.0 * X[..., 0]) + X[..., 1] + 0.2 * RNG.normal(size=(60, 5))
WEIGHT = RNG.uniform(0.5, 1.5, size=Y.shape)


def build(shape: tuple[int, ...], num_data: int = 300, masked: bool = False) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((*shape, 2), dtype="float64")
    head = gg.layers.AdditiveGP(gg.s(0) + gg.s(1), num_data=num_data, num_inducing=8)
    x = keras.layers.Masking(dtype="float64")(inputs) if masked else inputs
    model = keras.Model(inputs, head(keras.layers.Dense(2, dtype="float64")(x)))
    metrics = [head.metric("nlpd"), head.metric("mse")]
    model.compile("adam", loss=head.loss, weighted_metrics=metrics)
    return model, head


@pytest.mark.slow
def test_rows_are_rows_whatever_their_dimensions() -> None:
    """A sequence of five steps is five rows: the same batches train the same model."""
    results = []
    for leading in ((300,), (60, 5, 1)):
        model, head = build(leading[1:])
        batch = 50 * leading[0] // 300
        history = model.fit(
            X.reshape(*leading, 2),
            Y.reshape(leading),
            sample_weight=WEIGHT.reshape(leading),
            batch_size=batch,
            epochs=2,
            shuffle=False,
            verbose=0,
        ).history
        moments = model.predict(X.reshape(*leading, 2), verbose=0)
        assert moments.shape == (*leading, 1, 2)
        response = head(moments[..., 0, :], output="response")
        assert response.shape == leading
        assert head(moments[..., 0, :], output="interval").shape == (*leading, 3)
        results.append((history, moments.reshape(300, 2), np.ravel(response)))
    (history, *rows), (other, *places) = results
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-5)
    for got, want in zip(places, rows):
        np.testing.assert_allclose(got, want, atol=1e-10)


@pytest.mark.slow
def test_masked_steps_are_not_there() -> None:
    """Training, loss and metrics are those of the other steps alone, whatever stands in these."""
    mask = RNG.uniform(size=Y.shape) < 0.7
    mask[:, 0] = True
    number = int(mask.sum())
    padded, y = np.where(mask[..., None], X, 0.0), np.where(mask, Y, np.nan)
    model, head = build((5,), number, masked=True)
    history = model.fit(padded, y, batch_size=60, epochs=4, shuffle=False, verbose=0).history
    flat, other = build((), number)
    want = flat.fit(X[mask], Y[mask], batch_size=1000, epochs=4, shuffle=False, verbose=0).history
    for name, values in want.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    np.testing.assert_allclose(head(X[:, 0]), other(X[:, 0]), atol=1e-8)
    evaluated = model.evaluate(padded, y, batch_size=60, verbose=0, return_dict=True)
    whole = flat.evaluate(X[mask], Y[mask], batch_size=1000, verbose=0, return_dict=True)
    for name, value in whole.items():
        np.testing.assert_allclose(evaluated[name], value, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [5, None])
def test_a_layer_before_the_loss_is_an_error(steps: int | None) -> None:
    """The head would learn nothing of what it sees."""
    inputs = keras.Input((steps, 2), dtype="float64")
    head = gg.layers.AdditiveGP(gg.s(0) + gg.s(1), num_data=300, num_inducing=8)
    model = keras.Model(inputs, keras.layers.TimeDistributed(head)(inputs))
    model.compile("adam", loss=head.loss)
    with pytest.raises(ValueError, match="needs? no TimeDistributed|must be given what the layer"):
        model.fit(X, Y, verbose=0)
    assert model.evaluate(X, Y, verbose=0) > 0.0


@pytest.mark.slow
def test_gradient_descent_moves_hyperparameters_as_gpflow_would() -> None:
    """Whatever the coordinates that Adam's steps are right in."""
    model, head = build(())
    rows, y = tf.constant(X.reshape(300, 2)), tf.constant(Y.ravel())
    data = tf.data.Dataset.from_tensors((rows, y))  # in double precision, which arrays lose
    model.fit(data, epochs=3, verbose=0)
    head.frozen = ("inducing_variable", "variational", "mean_function")
    head.normalization = None  # so that a step changes nothing else
    model.compile(keras.optimizers.SGD(0.1), loss=head.loss)
    gp = head.model
    variance, scaled = gp.likelihood.variance, head.scaled(model.layers[1](rows))
    start, values = 3.0 * variance.numpy(), []
    for factor in (1e-4, -1e-4, 0.0):
        variance.assign(start * np.exp(factor))
        elbo = gp.elbo((scaled, y[:, None])) + gp.log_prior_density()
        values.append(-float(elbo) / 300)
    model.fit(data, epochs=1, verbose=0)
    slope = (values[0] - values[1]) / 2e-4
    np.testing.assert_allclose(np.log(variance.numpy() / start), -0.1 * slope, rtol=1e-5)
