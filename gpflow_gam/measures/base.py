"""What every probability measure of inputs can do."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray


class Measure(abc.ABC):
    """A probability measure on the columns that one component reads."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """How many columns the measure lives on."""

    @abc.abstractmethod
    def nodes(self) -> tuple[AnyNDArray | tf.Tensor, AnyNDArray | tf.Tensor]:
        """
        Quadrature nodes [Q, d] and weights [Q], which sum to one.

        Exact for discrete measures; to the order of the rule for others.
        """

    def thinned(self, num_nodes: int) -> Measure:
        """
        The same measure, or one that stands for it, with at most about so many nodes.

        :param num_nodes: Q.
        """
        return self

    @property
    def bounds(self) -> tuple[AnyNDArray, AnyNDArray] | None:
        """Ends [d] outside of which functions are not meant to be used; None where there are none.

        Discrete measures stand for a population, or are levels: they bound nothing.
        """
        return None

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        """
        Map independent uniform numbers to the measure.

        :param u: [N, d] in [0, 1).
        :return: [N, d]; by the nodes where the measure has no quantile function of its own.
        """
        points, weights = (np.asarray(a) for a in self.nodes())
        return discrete_quantile(u[:, 0], points, weights)


def discrete_quantile(u: AnyNDArray, points: AnyNDArray, weights: AnyNDArray) -> AnyNDArray:
    """The points [N, d] of a discrete measure at levels u [N] of its distribution function."""
    edges = np.cumsum(weights)
    at = np.searchsorted(edges / edges[-1], u, side="right")
    found: AnyNDArray = points[np.minimum(at, len(points) - 1)]
    return found


def checked_probabilities(
    argument: str, values: AnyNDArray | Sequence[float] | None, number: int, each: str
) -> AnyNDArray:
    """
    Probabilities [number]; equal ones for None.

    :param argument: what to call them.
    :param number: how many there have to be.
    :param each: what there has to be one for.
    :raises ValueError: another number of them, negative ones, or a sum that is not one.
    """
    if values is None:
        return np.full(number, 1.0 / number)
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (number,):
        raise ValueError(f"{argument} must be one a {each}, [{number}]; got shape {found.shape}.")
    if not np.all(found >= 0.0) or not np.isclose(found.sum(), 1.0):  # NaN fails the first
        raise ValueError(
            f"{argument} must be non-negative and sum to one; "
            f"got a minimum of {found.min()} and a sum of {found.sum()}."
        )
    return found


def checked_sample(
    argument: str, values: object, weights: object | None
) -> tuple[AnyNDArray, AnyNDArray]:
    """
    A sample [N, d] and its weights [N].

    :param argument: what to call the values.
    :raises ValueError: no value, values that are not finite, or weights that are none.
    """
    given = np.asarray(values, dtype=np.float64)
    points = given[:, None] if given.ndim == 1 else given
    if points.ndim != 2 or len(points) == 0:
        raise ValueError(f"{argument} must be [N] or [N, d] with N >= 1; got shape {given.shape}.")
    if not np.all(np.isfinite(points)):
        raise ValueError(f"{argument} must be finite; fill in or leave out what is missing.")
    w = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(points),):
        raise ValueError(f"weights must be one a point, [{len(points)}]; got shape {w.shape}.")
    if not np.all(np.isfinite(w)) or np.any(w < 0.0) or w.sum() == 0.0:
        raise ValueError(
            "weights must be finite, non-negative and not all zero; "
            f"got a minimum of {w.min()} and a sum of {w.sum()}."
        )
    return points, w
