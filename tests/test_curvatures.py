"""Gradients and curvatures of likelihoods against differentiation and dense matrices."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.newton.curvatures import (
    DensePrecision,
    DiagonalPrecision,
    SoftmaxPrecision,
    automatic_curvature,
    checked_curvature,
    curvature,
)

N = 40
lik = gg.likelihoods


def _binary(rng):
    return rng.integers(0, 2, (N, 1)).astype(float)


CASES = {
    "logit": (lambda: lik.Bernoulli("logit"), _binary, 1),
    "probit": (lambda: lik.Bernoulli("probit"), _binary, 1),
    "cloglog": (lambda: lik.Bernoulli("cloglog"), _binary, 1),
    "softmax": (lambda: gpflow.likelihoods.Softmax(4), lambda r: r.integers(0, 4, (N, 1)), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_equal_automatic_differentiation(name, rng):
    make, draw, L = CASES[name]
    likelihood, Y = make(), tf.constant(draw(rng))
    X, F = rng.uniform(size=(N, 2)), tf.constant(3.0 * rng.normal(size=(N, L)))
    closed, automatic = curvature(likelihood, X, F, Y), automatic_curvature(likelihood, X, F, Y)
    np.testing.assert_allclose(closed.gradient, automatic.gradient, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        closed.precision.blocks(), automatic.precision.blocks(), rtol=1e-7, atol=1e-9
    )


def test_counts_are_differentiated(rng):
    """Poisson and binomial, by their closed forms."""
    F, trials = 3.0 * rng.normal(size=(N, 1)), rng.integers(1, 9, (N, 1))
    counts, hits = rng.poisson(3.0, (N, 1)), rng.binomial(trials, 0.4)
    rate, p = 2.5 * np.exp(F), 1.0 / (1.0 + np.exp(-F))
    for likelihood, Y, slope, bend in (
        (gpflow.likelihoods.Poisson(binsize=2.5), counts, counts - rate, rate),
        (lik.Binomial(), np.hstack([hits, trials]), hits - trials * p, trials * p * (1.0 - p)),
    ):
        result = curvature(likelihood, np.zeros((N, 1)), tf.constant(F), Y.astype(float))
        np.testing.assert_allclose(result.gradient, slope.T, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.precision.blocks()[:, 0], bend, rtol=1e-9)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_binary_curvature_far_out(link):
    """Far on the wrong side a logit has slope 1; a probit |f| + 1/|f| and curvature near 1."""
    F = tf.constant([[-300.0], [-30.0], [30.0], [300.0]], dtype=tf.float64)
    result = curvature(lik.Bernoulli(link), np.zeros((4, 1)), F, tf.ones_like(F))
    w = result.precision.blocks().numpy()[:, 0, 0]
    assert np.all(np.isfinite(result.gradient))
    assert np.all(np.isfinite(w) & (w >= 0))
    expected = [1.0, 1.0] if link == "logit" else [300 + 1 / 300, 30 + 1 / 30]
    np.testing.assert_allclose(result.gradient[0, :2], expected, rtol=1e-5)
    if link == "probit":
        np.testing.assert_allclose(w[1], 1 - 1 / 30**2, rtol=1e-4)


def test_weights_multiply(rng):
    X = np.column_stack([rng.uniform(size=N), rng.integers(0, 3, N)])
    F, Y = tf.constant(rng.normal(size=(N, 1))), tf.constant(rng.poisson(3.0, (N, 1)).astype(float))
    base = curvature(gpflow.likelihoods.Poisson(), X, F, Y)
    result = curvature(lik.Weighted(gpflow.likelihoods.Poisson(), 1), X, F, Y)
    np.testing.assert_allclose(result.gradient, X[:, 1] * base.gradient)
    np.testing.assert_allclose(result.precision.blocks()[:, 0, 0], X[:, 1] * np.exp(F[:, 0]))


def _precisions(rng, Q=3):
    a = rng.uniform(0.1, 1.0, (Q, N))
    root = rng.normal(size=(N, Q, Q))
    return {
        "diagonal": DiagonalPrecision(tf.constant(a)),
        "softmax": SoftmaxPrecision(tf.constant(a)),
        "dense": DensePrecision(tf.constant(root @ root.transpose(0, 2, 1))),
        "singular": DensePrecision(tf.constant(root[:, :, :2] @ root[:, :, :2].transpose(0, 2, 1))),
    }


def test_dense_blocks_are_summed_some_data_at_a_time(rng, monkeypatch):
    W, T = _precisions(rng)["dense"], rng.normal(size=(3, N, 5))
    whole = W.gram(T)
    monkeypatch.setattr(gg.curvatures, "_ENTRIES", 3 * 5 * 3)
    np.testing.assert_allclose(W.gram(T), whole, atol=1e-12)


@pytest.mark.parametrize("name", ["diagonal", "softmax", "dense", "singular"])
def test_products_equal_those_of_the_blocks(name, rng):
    W = _precisions(rng)[name]
    blocks = W.blocks().numpy()
    V, T = rng.normal(size=(3, N, 2)), rng.normal(size=(3, N, 5))
    noise = rng.uniform(0.0, 2.0, (3, N))
    pinv = np.stack([np.linalg.pinv(b, rcond=1e-12) for b in blocks])
    shrunk = np.stack([np.linalg.solve(np.eye(3) + b * n, b) for b, n in zip(blocks, noise.T)])
    np.testing.assert_allclose(W.multiply(V), np.einsum("npq,qnr->pnr", blocks, V), atol=1e-12)
    np.testing.assert_allclose(W.solve(V), np.einsum("npq,qnr->pnr", pinv, V), atol=1e-9)
    np.testing.assert_allclose(W.shrunk(noise).blocks(), shrunk, atol=1e-10)
    for T_, Ts in ((T, T), (T[:1], np.repeat(T[:1], 3, axis=0))):
        gram = np.einsum("pnb,npq,qnc->pbqc", Ts, blocks, Ts).reshape(15, 15)
        np.testing.assert_allclose(W.gram(T_), gram, atol=1e-10)
    nodes = rng.uniform(size=2)
    halves = nodes @ blocks.reshape(2, -1)
    np.testing.assert_allclose(W.summed(nodes).numpy().ravel(), halves, atol=1e-12)
    smallest = np.linalg.eigvalsh(blocks).min(axis=1)
    if name != "softmax":  # whose own answer is a bound of the sign
        np.testing.assert_allclose(W.smallest(), smallest, atol=1e-10)
    np.testing.assert_allclose(W.weighted(noise[0]).blocks(), noise[0][:, None, None] * blocks)


def test_likelihoods_that_are_not_log_concave_say_so(rng):
    likelihood = gpflow.likelihoods.StudentT(scale=0.1, df=3.0)
    F, Y = tf.zeros([N, 1], tf.float64), tf.constant(rng.normal(size=(N, 1)))
    with pytest.raises(ValueError, match="StudentT is not log-concave .* row"):
        checked_curvature(curvature(likelihood, F, F, Y), likelihood)
    poisson = gpflow.likelihoods.Poisson()
    result = curvature(poisson, F, F + 800.0, tf.abs(tf.round(Y)))
    with pytest.raises(ValueError, match="Poisson has no finite value"):
        checked_curvature(result, poisson)
