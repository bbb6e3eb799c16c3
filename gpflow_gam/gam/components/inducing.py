"""Where components have their inducing inputs."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...measures.discrete import NUM_NODES
from ...measures.thinning import cluster_means
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
    if any(m.kind == "levels" for m in margins):
        rows = np.random.default_rng(seed).choice(len(points), number, replace=False)
        return points[np.sort(rows)]
    return cluster_means(points, data.weights, number, seed)[0]


def _without_commonest(data: Seen) -> AnyNDArray:
    """
    All points but one, which follows from the others: they average to zero.

    The one with most rows: a rare one would be a difference of large numbers.
    """
    return np.delete(data.points, int(np.argmax(data.weights)), axis=0)
