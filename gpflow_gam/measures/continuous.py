"""Measures with a density."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtri, roots_hermitenorm, roots_legendre

from .base import Measure, checked_sample


class Uniform(Measure):
    """
    The uniform distribution on an interval.

    :param lower: left end.
    :param upper: right end.
    :param num_nodes: Gauss-Legendre nodes, used with kernels that have no closed form.
    :raises ValueError: unless ``lower < upper``, both finite.
    """

    def __init__(self, lower: float, upper: float, *, num_nodes: int = 64) -> None:
        if np.ndim(lower) or np.ndim(upper):
            raise ValueError(
                f"lower and upper must be numbers; got {lower!r} and {upper!r}. For several "
                "columns use a Product of measures, for a sample Uniform.from_data."
            )
        if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
            raise ValueError(f"lower < upper must be finite; got lower={lower}, upper={upper}.")
        self.lower = float(lower)
        self.upper = float(upper)
        self.num_nodes = checked_number(num_nodes)

    @classmethod
    def from_data(cls, values: AnyNDArray, *, num_nodes: int = 64) -> Uniform:
        """
        On the range of a sample.

        :param values: [N].
        :param num_nodes: of the quadrature rule.
        :raises ValueError: fewer than two distinct values, or values that are not finite.
        """
        points = _column(values)
        low, high = float(points.min()), float(points.max())
        if low == high:
            raise ValueError(f"values are all {low}; an interval needs two distinct ones.")
        return cls(low, high, num_nodes=num_nodes)

    def thinned(self, num_nodes: int) -> Uniform:
        number = min(checked_number(num_nodes), self.num_nodes)
        return Uniform(self.lower, self.upper, num_nodes=number)

    @property
    def dimension(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[AnyNDArray, AnyNDArray]:
        return np.array([self.lower]), np.array([self.upper])

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        x, w = roots_legendre(self.num_nodes)
        half = 0.5 * (self.upper - self.lower)
        return (self.lower + half * (x + 1.0))[:, None], 0.5 * w

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        x: AnyNDArray = self.lower + (self.upper - self.lower) * u
        return x

    def __repr__(self) -> str:
        return f"Uniform({self.lower}, {self.upper})"


class Gaussian(Measure):
    """
    The normal distribution.

    :param mean: its mean.
    :param sd: its standard deviation.
    :param num_nodes: Gauss-Hermite nodes, used with kernels that have no closed form.
    :raises ValueError: a mean that is not finite, or a deviation that is not positive.
    """

    def __init__(self, mean: float = 0.0, sd: float = 1.0, *, num_nodes: int = 64) -> None:
        if not np.isfinite(mean):
            raise ValueError(f"mean must be finite; got {mean}.")
        if not (np.isfinite(sd) and sd > 0.0):
            raise ValueError(f"sd must be positive and finite; got {sd}.")
        self.mean = float(mean)
        self.sd = float(sd)
        self.num_nodes = checked_number(num_nodes)

    @classmethod
    def from_data(
        cls, values: AnyNDArray, weights: AnyNDArray | None = None, *, num_nodes: int = 64
    ) -> Gaussian:
        """
        With the mean and the deviation of a sample.

        :param values: [N].
        :param weights: how often each counts, [N].
        :param num_nodes: of the quadrature rule.
        :raises ValueError: values that do not vary or are not finite, or bad weights.
        """
        points = _column(values)
        _, w = checked_sample("values", points, weights)
        mean = float(np.average(points, weights=w))
        sd = float(np.sqrt(np.average((points - mean) ** 2, weights=w)))
        if sd == 0.0:
            raise ValueError(f"values are all {mean}; a normal distribution needs them to vary.")
        return cls(mean, sd, num_nodes=num_nodes)

    def thinned(self, num_nodes: int) -> Gaussian:
        return Gaussian(
            self.mean, self.sd, num_nodes=min(checked_number(num_nodes), self.num_nodes)
        )

    @property
    def dimension(self) -> int:
        return 1

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        x, w = roots_hermitenorm(self.num_nodes)
        return (self.mean + self.sd * x)[:, None], w / w.sum()

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        tiny = np.finfo(np.float64).tiny  # u = 0 is minus infinity
        x: AnyNDArray = self.mean + self.sd * ndtri(np.maximum(u, tiny))
        return x

    def __repr__(self) -> str:
        return f"Gaussian({self.mean}, {self.sd})"


def checked_number(num_nodes: int) -> int:
    """
    :raises ValueError: no whole number from 1 on.
    """
    if isinstance(num_nodes, bool) or int(num_nodes) != num_nodes or num_nodes < 1:
        raise ValueError(f"num_nodes must be a whole number from 1 on; got {num_nodes!r}.")
    return int(num_nodes)


def _column(values: AnyNDArray) -> AnyNDArray:
    points, _ = checked_sample("values", values, None)
    if points.shape[1] != 1:
        raise ValueError(f"values must be of one column; got shape {points.shape}.")
    return points[:, 0]
