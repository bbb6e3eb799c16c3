"""Metrics of class probabilities against values computed by hand, and scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

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


def test_equal_scikit_learn(rng):
    p = rng.dirichlet(np.ones(4), 200)
    y = rng.integers(0, 4, 200)
    assert metrics.accuracy(y, p) == accuracy_score(y, p.argmax(axis=1))
    assert metrics.nlpd(y[:, None], p) == pytest.approx(log_loss(y, p, labels=range(4)))


def test_a_perfect_and_an_impossible_prediction():
    assert metrics.nlpd([0, 1], np.eye(2)) == 0.0
    assert metrics.ece([0, 1], np.eye(2)) == 0.0
    assert metrics.nlpd([1, 0], np.eye(2)) == np.inf


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([0, 1], np.ones((3, 2)) / 2, "labels must be .N. and probabilities .N, C.; got"),
        ([0, 3], np.eye(2), "labels must be whole, 0 to 1; got 0 to 3"),
        ([0, 0.5], np.eye(2), "labels must be whole"),
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
