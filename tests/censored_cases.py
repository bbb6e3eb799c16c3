"""Responses of which not all is known, and what scipy has of them."""

from __future__ import annotations

import numpy as np

from gpflow_gam.likelihoods.continuous import EXACT, INTERVAL, LEFT, RIGHT


def mixed() -> np.ndarray:
    """Rows of every kind, [N, 3]."""
    y = np.array([0.3, 1.1, 2.5])
    rows = [[[a, a, kind] for a in y] for kind in (RIGHT, EXACT, LEFT)]
    return np.array([*rows[0], *rows[1], *rows[2], *[[a, a + 0.8, INTERVAL] for a in y]])


def same_expectations(likelihood, Y, moments, logp, w, expectation, density) -> None:
    """
    Expected log-densities under a normal predictor, and log-densities, are sums over its points.

    :param moments: mean and variance of the predictor, [N, L] each.
    :param logp: of Y at each point, [P, N].
    :param w: of the points, [P, 1].
    :param expectation: tolerances of the former, for numpy's ``assert_allclose``.
    :param density: of the latter.
    """
    X = np.zeros((len(Y), 1))
    got = likelihood.variational_expectations(X, *moments, Y)
    np.testing.assert_allclose(got, (w * logp).sum(axis=0), **expectation)
    got = likelihood.predict_log_density(X, *moments, Y)
    np.testing.assert_allclose(got, np.log((w * np.exp(logp)).sum(axis=0)), **density)


def expected(distribution, Y: np.ndarray) -> np.ndarray:
    """Log-densities and logarithms of probabilities, by scipy."""
    y, end, kind = Y.T
    end = np.where(kind == INTERVAL, end, y + 1.0)
    above = distribution.logsf(y), distribution.logsf(end)
    below = distribution.logcdf(end), distribution.logcdf(y)
    high, low = np.where(above[0] < below[0], above, below)  # differences keep their digits there
    with np.errstate(divide="ignore"):
        between = high + np.log(-np.expm1(low - high))
    return np.select(
        [kind == RIGHT, kind == EXACT, kind == LEFT],
        [distribution.logsf(y), distribution.logpdf(y), distribution.logcdf(y)],
        between,
    )
