"""
What a sample says of the distribution it is from: the Bayesian bootstrap.

Rows of a sample get weights that are Dirichlet(1, ..., 1): the posterior of their distribution
under a prior that favours none (Rubin 1981, "The Bayesian bootstrap"). The weights are those of
whole rows, so that columns which depend on each other are uncertain together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gpflow.base import AnyNDArray

REPLICATES = 256
"""Draws of the inputs' distribution behind an interval."""


def bootstrapped_weights(
    weights: AnyNDArray, number: int, seed: int, size: int | None = None
) -> AnyNDArray:
    """
    Draws [number, n] of how much rows count, in the mean ``weights``.

    :param weights: how often each row counts, [n].
    :param number: of draws.
    :param seed: of the draws.
    :param size: N, of the sample where the rows are an even part of it.
    """
    each = (size or len(weights)) / len(weights)
    draws = np.random.default_rng(seed).gamma(each, size=(number, len(weights)))
    found: AnyNDArray = weights * draws / each
    return found


def bootstrapped_nodes(
    nodes: Mapping[int, tuple[AnyNDArray, AnyNDArray]],
    X: AnyNDArray,
    weights: AnyNDArray,
    number: int,
    seed: int,
    size: int | None = None,
) -> list[dict[int, AnyNDArray]]:
    """
    Draws of the weights of nodes that stand for the columns of a sample.

    A row stands at the node that is nearest to it.

    :param nodes: of columns: nodes [Q] and their weights [Q] in the sample itself.
    :param X: the sample, or an even part of it, [n, D].
    :param weights: how often each row counts, [n].
    :param number: of draws.
    :param seed: of the draws.
    :param size: N, of the sample.
    :return: a draw of all columns' weights, [Q] each.
    """
    nearest = {c: _nearest(points, X[:, c]) for c, (points, _) in nodes.items()}
    own = {c: np.bincount(nearest[c], weights, len(w)) for c, (_, w) in nodes.items()}
    found = []
    for counts in bootstrapped_weights(weights, number, seed, size):
        changed = {}
        for c, (_, known) in nodes.items():
            mass = np.bincount(nearest[c], counts, len(known))
            # a ratio: nodes that are the means of bins keep their own weights in the mean
            new = known * np.divide(mass, own[c], out=np.ones_like(mass), where=own[c] > 0.0)
            changed[c] = new / new.sum()
        found.append(changed)
    return found


def _nearest(nodes: AnyNDArray, values: AnyNDArray) -> AnyNDArray:
    """The place [n] of the node nearest to each value."""
    order = np.argsort(nodes)
    edges = 0.5 * (nodes[order][1:] + nodes[order][:-1])
    found: AnyNDArray = order[np.searchsorted(edges, values)]
    return found
