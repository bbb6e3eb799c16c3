"""K-means, without the second that importing scikit-learn takes."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg.blas import dgemm

_MAX_ITERATIONS = 300
_TOLERANCE = 1e-4
"""Square by which centres still move, against the mean variance of the columns, at the end."""
_BLOCK = 1024
"""Points whose distances to all centres are held."""
_ROUNDING = 1e-6
"""Share of a distance that squares round off at most."""


def k_means(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Centres of clusters [K, d], and the cluster of each point [N].

    Lloyd's algorithm from greedy k-means++ (Arthur & Vassilvitskii 2007), with random numbers drawn
    as scikit-learn's ``KMeans(number, n_init=1, random_state=seed)`` draws them: its clusters.

    :param points: [N, d], as many as clusters at least.
    :param weights: [N].
    :param number: K.
    :param seed: of the first centres.
    """
    middle = points.mean(axis=0)
    X: AnyNDArray = points - middle
    centres = X[_spread(X, weights, number, np.random.RandomState(seed))]
    enough = _TOLERANCE * float(np.mean(X.var(axis=0)))
    labels = np.full(len(X), -1)
    # distances to the own centre at most, and to the next at least (Hamerly 2010)
    own, other = np.full(len(X), np.inf), np.zeros(len(X))
    for _ in range(_MAX_ITERATIONS):
        before = labels.copy()
        _assign(X, centres, labels, own, other)
        if np.array_equal(labels, before):
            break
        moved = _means(X, weights, labels, centres)
        steps = np.sqrt(np.sum(np.square(moved - centres), axis=1))
        centres = moved
        own += steps[labels]
        other -= steps.max()
        if steps @ steps <= enough:
            break
    _assign(X, centres, labels, own, other)
    return centres + middle, labels


def _assign(
    X: AnyNDArray, centres: AnyNDArray, labels: AnyNDArray, own: AnyNDArray, other: AnyNDArray
) -> None:
    """The nearest centre of each point, where it may have changed; in place."""
    open_ = np.flatnonzero(own >= other * (1.0 - _ROUNDING))
    norms = np.sum(np.square(centres), axis=1)
    for start in range(0, len(open_), _BLOCK):
        at = open_[start : start + _BLOCK]
        # |c|^2 - 2 x'c, transposed; rounded as scikit-learn rounds it, which settles ties on grids
        squares = np.repeat(norms[:, None], len(at), axis=1)
        squares = dgemm(-2.0, centres, X[at], 1.0, squares, trans_b=True, overwrite_c=True)
        nearest = np.argmin(squares, axis=0)
        labels[at] = nearest
        every = np.arange(len(at))
        least = squares[nearest, every]
        squares[nearest, every] = np.inf
        square = np.sum(np.square(X[at]), axis=1)
        own[at] = np.sqrt(np.maximum(least + square, 0.0))
        other[at] = np.sqrt(np.maximum(squares.min(axis=0) + square, 0.0))


def _means(
    X: AnyNDArray, weights: AnyNDArray, labels: AnyNDArray, centres: AnyNDArray
) -> AnyNDArray:
    """Weighted means of clusters; one that has nothing stays where it is."""
    mass = np.bincount(labels, weights, minlength=len(centres))
    total = [np.bincount(labels, weights * x, minlength=len(centres)) for x in X.T]
    full = mass > 0.0
    found = centres.copy()
    found[full] = np.stack(total, axis=1)[full] / mass[full, None]
    return found


def _spread(
    X: AnyNDArray, weights: AnyNDArray, number: int, random: np.random.RandomState
) -> list[int]:
    """Points far from each other: of a few drawn by their share of the squares, the best."""
    trials = 2 + int(np.log(number))
    chosen = [int(random.choice(len(X), p=weights / weights.sum()))]
    nearest = np.sum(np.square(X - X[chosen[0]]), axis=1)
    for _ in range(1, number):
        shares = np.cumsum(weights * nearest)
        drawn = np.searchsorted(shares, random.uniform(size=trials) * (nearest @ weights))
        drawn = np.minimum(drawn, len(X) - 1)
        squares = np.zeros((trials, len(X)))
        for x in X.T:
            squares += np.square(x[drawn, None] - x)
        squares = np.minimum(squares, nearest)
        best = int(np.argmin(squares @ weights))
        nearest = squares[best]
        chosen.append(int(drawn[best]))
    return chosen
