"""Metrics of predictions against values computed by hand, closed forms, and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import accuracy_score, log_loss, mean_pinball_loss

from gpflow_gam import metrics

LABELS = np.array([0, 1, 2, 1])
P = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6], [0.05, 0.95, 0.0]])


def test_values_by_hand():
    assert metrics.accuracy(LABELS, P) == 0.75
    assert metrics.nlpd(LABELS, P) == pytest.approx(-np.log([0.7, 0.4, 0.6, 0.95]).mean())
    # bins (.6, .7], (.4, .5], (.5, .6], (.9, 1]: gaps .3, .5, .4, .05, a quarter each
    assert metrics.ece(LABELS, P) == pytest.approx((0.3 + 0.5 + 0.4 + 0.05) / 4)
    # two bins: (0, .5] holds the wrong one, (.5, 1] the three others
    assert metrics.ece(LABELS, P, num_bins=2) == pytest.approx(0.25 * 0.5 + 0.75 * 0.25)


def test_crps_of_draws_is_that_of_the_distribution(rng):
    """In closed form of the normal distribution; and of few draws without bias, by loops."""
    y = np.array([-2.0, 0.1, 1.5])
    closed = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    draws = rng.normal(size=(200_000, 3))
    np.testing.assert_allclose(metrics.crps(y, draws), closed, atol=0.01)
    few = draws[:4]
    pairs = [np.abs(few[i] - few[j]) for i in range(4) for j in range(4) if i != j]
    by_hand = np.abs(few - y).mean(axis=0) - 0.5 * np.mean(pairs, axis=0)
    np.testing.assert_allclose(metrics.crps(y, few), by_hand)
    # twice the pinball loss, over all quantiles
    levels = (np.arange(2000) + 0.5) / 2000
    losses = [metrics.pinball(y, np.full(3, norm.ppf(p)), p) for p in levels]
    np.testing.assert_allclose(2.0 * np.mean(losses, axis=0), closed, atol=1e-3)
    with pytest.raises(ValueError, match=r"draws \[S, N\], S at least 2; got \(3,\) and \(1, 3\)"):
        metrics.crps(y, draws[:1])


def test_pinball_loss_is_scikit_learns(rng):
    y, q = rng.normal(size=(2, 50))
    for level in (0.1, 0.5, 0.95):
        expected = mean_pinball_loss(y, q, alpha=level)
        assert metrics.pinball(y, q, level).mean() == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"must be \[N\]; got \(3,\) and \(1,\)"):
        metrics.pinball([1, 2, 3], [1], 0.3)
    with pytest.raises(ValueError, match="level must be a probability between 0 and 1; got 1.7"):
        metrics.pinball(y, q, 1.7)


def test_equal_scikit_learn(rng):
    p = rng.dirichlet(np.ones(4), 200)
    y = rng.integers(0, 4, 200)
    assert metrics.accuracy(y, p) == accuracy_score(y, p.argmax(axis=1))
    assert metrics.nlpd(y[:, None], p) == pytest.approx(log_loss(y, p, labels=range(4)))


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([0, 1], np.ones((3, 2)) / 2, "labels must be .N. and probabilities .N, C.; got"),
        ([0, 3], np.eye(2), "labels must be whole, 0 to 1; got 0 to 3"),
        ([0, 0.5], np.eye(2), "labels must be whole"),
        (["a", "b"], np.eye(2), "labels must be whole class numbers; got 'a'"),
        ([0, 1], np.ones((2, 2)), "sum to 1 in each row"),
        ([0, 1], [[np.nan, 1], [0, 1]], "between 0 and 1"),
        ([], np.zeros((0, 2)), "labels is empty"),
    ],
)
def test_bad_input(labels, probabilities, message):
    with pytest.raises(ValueError, match=message):
        metrics.accuracy(labels, probabilities)
    with pytest.raises(ValueError, match="num_bins must be a whole number of at least 1"):
        metrics.ece(LABELS, P, num_bins=0)
