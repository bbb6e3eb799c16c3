"""Where components have their inducing inputs."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...measures import NUM_NODES, bin_means, cluster_means
from .component import NUM_INDUCING, Form, Margin
from .seen import Seen


def inducing_inputs(
    form: Form,
    margins: tuple[Margin, ...],
    data: Seen,
    k: int | None,
    seed: int,
    varying: bool = False,
) -> AnyNDArray:
    """
    Inducing inputs [M, d]: quantiles, a cycle, levels, or centres of k-means.

    :param varying: whether it is a coefficient, whose mean is not the intercept's.
    """
    points = data.points
    d = points.shape[1]
    number = NUM_INDUCING.get(d, 50) if k is None else int(k)
    if form == "line":
        return np.array([[margins[0].centre + margins[0].span]])
    if form in ("random", "means"):
        return points
    if form == "areas":  # data may come of those that have none
        codes = np.array(margins[0].nodes)[:, None]
        if varying:
            return codes
        return np.delete(codes, int(np.argmax(margins[0].weights)), axis=0)
    if form == "levels":
        return _without_commonest(data)
    if len(points) <= number:
        centred = form != "own" and not varying and len(points) <= NUM_NODES.get(d, 150)
        return _without_commonest(data) if centred else points
    if d == 1 and margins[0].kind == "cyclic":
        period = margins[0].period
        assert period is not None
        phases = np.unique(np.mod(points[:, 0], period))
        if len(phases) > number:
            phases = np.arange(number) * (period / number)
        return phases[:, None]
    if d == 1:
        return data.quantiles(number)[:, None]
    levels = [i for i, m in enumerate(margins) if m.kind == "levels"]
    return fewer_points(points, data.weights, levels, number, seed)[0]


def fewer_points(
    points: AnyNDArray, weights: AnyNDArray, levels: list[int], number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Points [M, d] that stand for more, and their weights: means of clusters.

    Between levels there are no points: those of each combination stand for themselves, as many of
    all, whatever levels are called. Where there are too many combinations for that it is points
    chosen at random.

    :param levels: columns of codes.
    :param number: M, at most.
    """
    if not levels:
        return cluster_means(points, weights, number, seed)
    _, groups = np.unique(points[:, levels], axis=0, return_inverse=True)
    sizes = np.bincount(groups.ravel())
    if 2 * len(sizes) > number:
        share = weights / weights.sum()
        rows = np.sort(
            np.random.default_rng(seed).choice(len(points), number, replace=False, p=share)
        )
        return points[rows], np.full(number, 1.0 / number)
    each = next(n for n in range(number, 0, -1) if np.minimum(sizes, n).sum() <= number)
    numbers = [i for i in range(points.shape[1]) if i not in levels]
    found, masses = [], []
    for group in range(len(sizes)):
        own, mass = points[groups.ravel() == group], weights[groups.ravel() == group]
        if len(own) > each:
            values, shares = _clusters(own[:, numbers], mass, each, seed)
            own, mass = np.repeat(own[:1], len(values), axis=0), mass.sum() * shares
            own[:, numbers] = values
        found.append(own)
        masses.append(mass)
    return np.concatenate(found), np.concatenate(masses) / weights.sum()


def _clusters(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    if points.shape[1] > 1:
        return cluster_means(points, weights, number, seed)
    order = np.argsort(points[:, 0])
    values, shares = bin_means(points[order, 0], weights[order], number)
    return values[:, None], shares


def _without_commonest(data: Seen) -> AnyNDArray:
    """
    All points but one, which follows from the others: they average to zero.

    The one of most weight, and of these the innermost: a rare one would be a difference of large
    numbers.
    """
    away = np.abs(data.points - np.average(data.points, axis=0, weights=data.weights))
    inner = np.max(away / np.maximum(np.ptp(data.points, axis=0), 1e-300), axis=1)
    first = np.lexsort((np.round(inner, 9), -data.weights))[0]
    return np.delete(data.points, first, axis=0)
