"""A head trained by itself on the features of a trained network."""

from __future__ import annotations

import gpflow
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


def test_a_kernel_of_ones_own_keeps_its_measure(features: np.ndarray) -> None:
    measure = gg.measures.Gaussian(0.5, 2.0)
    own = gg.kernels.ZeroMean(gpflow.kernels.SquaredExponential(active_dims=[0]), measure)
    head = AdditiveGP(gg.s(0, kernel=own) + gg.s(1), num_data=N)
    head.adapt(features, features[:, 1])
    assert own.measure is measure
    assert np.all(np.isfinite(head(features)))
