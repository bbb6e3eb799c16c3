"""A head trained by itself on the features of a trained network."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, refit

N = 60


@pytest.fixture
def features(rng: np.random.Generator) -> np.ndarray:
    return 3.0 + rng.normal(size=(N, 5)) * [1.0, 1.0, 2.0, 0.5, 1.0]


def joint(**options: object) -> AdditiveGP:
    kernel = gpflow.kernels.Matern52(lengthscales=2.0)
    terms = gg.s(*range(5), k=N, kernel=kernel)
    return AdditiveGP(terms, num_data=N, **options)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_refit_with_all_rows_is_exact_regression(
    features: np.ndarray, rng: np.random.Generator
) -> None:
    y = np.sin(features[:, 0]) + 0.1 * rng.normal(size=N)
    head = joint(normalization="adapt")
    history = refit(head, features, y, epochs=2, batch_size=N, learning_rate=0.0)
    assert len(history.history["loss"]) == 2
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    np.testing.assert_allclose(head.scaled(features), scaled, rtol=1e-6)
    gp = head.model
    exact = gpflow.models.GPR(
        (scaled, y[:, None]),
        gpflow.kernels.Matern52(lengthscales=2.0) + gp.kernel.components["intercept"],
        mean_function=gpflow.functions.Constant(float(gp.mean_function.constant[0])),
    )
    exact.likelihood.variance.assign(gp.likelihood.variance)
    new = features[:20] + 0.3
    mean, variance = exact.predict_f((new - features.mean(axis=0)) / features.std(axis=0))
    moments = head(new).numpy()
    np.testing.assert_allclose(moments[:, 0, 0], mean[:, 0], atol=1e-4)
    np.testing.assert_allclose(moments[:, 0, 1], variance[:, 0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_units_of_features_do_not_matter(features: np.ndarray, rng: np.random.Generator) -> None:
    y = np.sin(features[:, 0]) + 0.1 * rng.normal(size=N)
    result = []
    for inputs in (features[:, :2], features[:, :2] * [1e-6, 1.0] + [0.0, 1e6]):
        head = AdditiveGP(gg.s(0) + gg.s(1), num_data=N)
        assert head.normalization == "running"
        keras.utils.set_random_seed(0)
        refit(head, inputs, y, epochs=2, batch_size=17)
        result.append(head(inputs).numpy())
        # a refit knows all rows: batches do not move what was taken from them
        np.testing.assert_allclose(head.scaling.location, inputs.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(head.scaling.variance, inputs.var(axis=0), rtol=1e-12)
        assert head.normalization == "running"
    np.testing.assert_allclose(result[1], result[0], atol=1e-5)


@pytest.mark.slow
def test_weights_of_a_refit_count_rows(features: np.ndarray, rng: np.random.Generator) -> None:
    y = np.sin(features[:, 0]) + 0.1 * rng.normal(size=N)
    y[:20] += 5.0
    weights = np.repeat([0.0, 1.0], [20, N - 20])
    head = AdditiveGP(gg.s(0), num_data=N)
    options = {"epochs": 40, "batch_size": N, "learning_rate": 0.1}
    refit(head, features, y, sample_weight=weights, **options)
    error = head(features).numpy()[20:, 0, 0] - y[20:]
    assert np.sqrt(np.mean(np.square(error))) < 0.5  # the rows without weight alone add 1.6
    with pytest.raises(ValueError, match=rf"sample_weight must be \[{N}\].*got shape \(3,\)"):
        refit(head, features, y, sample_weight=np.ones(3))


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_away_from_all_features_is_the_prior(features: np.ndarray) -> None:
    head = joint()
    refit(head, features, features[:, 1] - 3.0, epochs=1, batch_size=N)
    variance = head.parameters["kernel.components['s(0,1,2,3,4)'].base.variance"].numpy()
    near, away = (head(X, output="components").numpy()[:, 1, 0] for X in (features, features + 1e3))
    np.testing.assert_allclose(away[:, 0], 0.0, atol=1e-9)
    np.testing.assert_allclose(away[:, 1], variance, rtol=1e-6)
    assert np.all(near[:, 1] < 0.9 * variance)


@pytest.mark.slow
def test_a_network_and_its_refitted_head_are_one_model(rng: np.random.Generator) -> None:
    keras.utils.set_random_seed(0)
    X = rng.normal(size=(N, 3)).astype("float32")
    labels = (X[:, 0] * X[:, 1] > 0.0).astype(int)
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(5, activation="tanh")(inputs)
    body = keras.Model(inputs, hidden)
    terms = gg.s(0) + gg.s(1)
    head = AdditiveGP(terms, "bernoulli", num_data=N)
    before = [np.array(w) for w in body.weights]
    losses = refit(head, body.predict(X, verbose=0), labels, epochs=4, batch_size=30).history
    assert losses["loss"][-1] < losses["loss"][0]
    for now, then in zip(body.weights, before):
        np.testing.assert_array_equal(now, then)
    whole = keras.Model(inputs, head(hidden, output="response"))
    alone = head(body.predict(X, verbose=0), output="response")
    np.testing.assert_allclose(whole.predict(X, verbose=0), alone, atol=1e-6)


def test_a_kernel_of_ones_own_keeps_its_measure(features: np.ndarray) -> None:
    measure = gg.measures.Gaussian(0.5, 2.0)
    own = gg.kernels.ZeroMean(gpflow.kernels.SquaredExponential(active_dims=[0]), measure)
    head = AdditiveGP(gg.s(0, kernel=own) + gg.s(1), num_data=N)
    head.adapt(features, features[:, 1])
    assert own.measure is measure
    assert np.all(np.isfinite(head(features)))
