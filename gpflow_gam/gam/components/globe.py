"""What data settle of a function on the globe."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray

from ...kernels.mapped import unit_vectors
from ...measures import NUM_NODES, cluster_means
from .component import Margin

NUM_INDUCING_GLOBE = 60
LATITUDE = (-90.0, 90.0)
"""Degrees that a latitude may have."""
LONGITUDE = (-360.0, 360.0)
"""Degrees that a longitude may have: both from -180 to 180 and from 0 to 360 are usual."""
_TURN = 360.0


def globe_margins(margins: tuple[Margin, ...], points: AnyNDArray) -> tuple[Margin, ...]:
    """
    The margins of latitude and longitude, whose span is of points in space: radii of the globe.

    :param points: distinct rows, [n, 2].
    """
    span = float(np.max(np.ptp(unit_vectors(points), axis=0)))
    latitude, longitude = (dataclasses.replace(m, span=span) for m in margins)
    return latitude, dataclasses.replace(longitude, period=_TURN)


def globe_points(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Points of the globe that stand for data, [n, 2], and their weights: of clusters in space.

    :param points: distinct rows, [n, 2].
    :param number: at most so many.
    :param seed: of k-means.
    """
    if len(points) <= number:
        return points, weights / weights.sum()
    centres, mass = cluster_means(unit_vectors(points), weights, number, seed)
    x, y, z = centres.T
    degrees = np.rad2deg([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)])
    return degrees.T, mass


def globe_nodes(
    points: AnyNDArray, weights: AnyNDArray, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes on which a function averages to zero, [Q, 2], and their probabilities."""
    return globe_points(points, weights, NUM_NODES[2], seed)


def globe_inducing(points: AnyNDArray, weights: AnyNDArray, k: int | None, seed: int) -> AnyNDArray:
    """Inducing inputs [M, 2]."""
    number = k or NUM_INDUCING_GLOBE
    if len(points) <= number:
        return points[:-1] if len(points) <= NUM_NODES[2] else points
    return globe_points(points, weights, number, seed)[0]
