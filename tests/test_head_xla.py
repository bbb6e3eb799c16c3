"""Heads inside XLA, which drops assertions: what should have failed is NaN, and no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP

N = 12
RNG = np.random.default_rng(3)
X = np.column_stack([RNG.normal(size=N), np.arange(N) % 3])
Y = X[:, 1]


def compiled(head: AdditiveGP, **options: Any) -> Any:
    return tf.function(lambda x: head(x, **options), jit_compile=True, autograph=False)


def factors(**options: Any) -> AdditiveGP:
    terms = gg.s(0) + gg.factor(1)
    options = {"num_data": N, "num_inducing": 4, "num_levels": {1: 3}, **options}
    return AdditiveGP(terms, **options)


@pytest.fixture(scope="module")
def fixed() -> AdditiveGP:
    return factors(normalization=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "output",
    [
        "moments",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("components", "response", "interval")),
    ],
)
def test_unknown_levels(fixed: AdditiveGP, output: str) -> None:
    head = fixed
    strange = X.copy()
    strange[[1, 4, 7, 8], 1] = 3.0, -1.0, 0.5, np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match="codes 0 to 2"):
        head(strange, output=output)
    result = np.asarray(compiled(head, output=output)(tf.constant(strange)))
    bad = np.isin(np.arange(N), [1, 4, 7, 8])
    assert np.all(np.isnan(result[bad]))
    want = head(X, output=output).numpy()[~bad]
    np.testing.assert_allclose(result[~bad], want, rtol=1e-8, atol=1e-10)


def test_infinite_features() -> None:
    head = factors()
    strange = X.copy()
    strange[2, 0] = np.inf
    result = head(strange).numpy()
    assert np.all(np.isnan(result[2]))
    assert np.all(np.isfinite(np.delete(result, 2, axis=0)))


@pytest.mark.slow
def test_before_adapt() -> None:
    head = AdditiveGP(gg.s(0), num_data=N, num_inducing=4, normalization="adapt")
    run = compiled(head)
    assert np.all(np.isnan(run(tf.constant(X))))
    head.adapt(X)
    assert np.all(np.isfinite(run(tf.constant(X))))


@pytest.mark.slow
def test_batches_larger_than_num_data() -> None:
    head = AdditiveGP(gg.s(0), num_data=N, num_inducing=4)
    run = compiled(head, training=True)
    assert np.all(np.isfinite(run(tf.constant(X))))
    result = run(tf.constant(np.concatenate([X, X]))).numpy()
    assert np.all(np.isnan(result[..., 0]))


@pytest.mark.slow
def test_natural_gradients_of_bad_rows() -> None:
    labels = X[:, 1]
    head = factors(likelihood="softmax", num_classes=3, normalization=None)

    @tf.function(jit_compile=True, autograph=False)
    def step(features: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return head.loss(y, head(features, training=True))

    start = {path: np.array(value) for path, value in head._state().items()}
    for features, y in ((X, labels + 1.0), (np.where(X == 2.0, 3.0, X), labels)):
        for path, variable in head._state().items():
            variable.assign(start[path])
        step(tf.constant(X), tf.constant(labels))
        assert np.all(np.isfinite(head.parameters["variational.site_shift"].numpy()))
        step(tf.constant(features), tf.constant(y))
        assert np.all(np.isnan(head.parameters["variational.site_shift"].numpy()))
