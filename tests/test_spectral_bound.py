"""Layers that do not stretch distances."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from gpflow_gam.layers import SpectralBound


def largest(kernel: np.ndarray) -> float:
    return float(np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), 2))


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (3, 3, 2, 4)], ids=["tall", "wide", "conv"])
def test_a_kernel_is_scaled_to_the_bound(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    kernel = rng.normal(size=shape)
    held = np.asarray(SpectralBound(0.6)(kernel))
    np.testing.assert_allclose(held, kernel * 0.6 / largest(kernel), rtol=1e-12)
    np.testing.assert_array_equal(SpectralBound(0.6)(0.9 * held), 0.9 * held)  # within: as it is
    np.testing.assert_array_equal(SpectralBound(0.6)(np.zeros(shape)), 0.0)


def test_trained_residual_blocks_keep_distances(rng: np.random.Generator, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    layer = keras.layers.Dense(4, activation="relu", kernel_constraint=SpectralBound(0.8))
    block = keras.Model(inputs, inputs + layer(inputs))
    X = rng.normal(size=(64, 4)).astype("float32")
    block.compile(keras.optimizers.Adam(0.1), loss="mse")
    block.fit(X, 5.0 * X[:, ::-1], epochs=20, batch_size=16, verbose=0)
    assert largest(np.asarray(layer.kernel)) == pytest.approx(0.8, rel=1e-5), "training pulls at it"
    before = np.linalg.norm(X[:, None] - X, axis=-1)
    after = block.predict(X, verbose=0)
    after = np.linalg.norm(after[:, None] - after, axis=-1)
    apart = before > 0.0
    assert np.all(after[apart] <= 1.8 * before[apart] * (1.0 + 1e-5))
    assert np.all(after[apart] >= 0.2 * before[apart] * (1.0 - 1e-5))
    block.save(tmp_path / "block.keras")
    again = keras.models.load_model(tmp_path / "block.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), block.predict(X, verbose=0))
    assert again.layers[1].kernel_constraint.bound == 0.8
