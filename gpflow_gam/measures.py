"""Probability measures of an input, against which a zero-mean kernel is centred."""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float


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

        Exact for :class:`Discrete`; to the order of the rule otherwise.
        """


class Uniform(Measure):
    """
    The uniform distribution on an interval.

    :param lower: left end.
    :param upper: right end.
    :param num_nodes: Gauss-Legendre nodes, used with kernels that have no closed form.
    :raises ValueError: unless ``lower < upper``, both finite.
    """

    def __init__(self, lower: float, upper: float, *, num_nodes: int = 64) -> None:
        if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
            raise ValueError(f"lower < upper must be finite; got lower={lower}, upper={upper}.")
        self.lower = float(lower)
        self.upper = float(upper)
        self.num_nodes = num_nodes

    @property
    def dimension(self) -> int:
        return 1

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        x, w = np.polynomial.legendre.leggauss(self.num_nodes)  # type: ignore[no-untyped-call]
        half = 0.5 * (self.upper - self.lower)
        return (self.lower + half * (x + 1.0))[:, None], 0.5 * w

    def __repr__(self) -> str:
        return f"Uniform({self.lower}, {self.upper})"


class Discrete(Measure):
    """
    Finitely many points with probabilities: levels of a factor, hours of a day, a sample.

    :param points: [Q] or [Q, d].
    :param probabilities: [Q], non-negative, summing to one; equal by default.
    :raises ValueError: no point, a non-finite point, or weights that are no probabilities.
    """

    def __init__(self, points: AnyNDArray, probabilities: AnyNDArray | None = None) -> None:
        points = np.asarray(points, dtype=np.float64)
        points = points[:, None] if points.ndim == 1 else points
        if points.ndim != 2 or len(points) == 0:
            raise ValueError(f"points must be [Q] or [Q, d] with Q >= 1; got shape {points.shape}.")
        if not np.all(np.isfinite(points)):
            raise ValueError("points must be finite.")
        if probabilities is None:
            probabilities = np.full(len(points), 1.0 / len(points))
        probabilities = np.asarray(probabilities, dtype=np.float64)
        if probabilities.shape != (len(points),):
            raise ValueError(
                f"probabilities must be one a point, [{len(points)}]; got {probabilities.shape}."
            )
        if np.any(probabilities < 0.0) or not np.isclose(probabilities.sum(), 1.0):
            raise ValueError(
                "probabilities must be non-negative and sum to one; "
                f"got a minimum of {probabilities.min()} and a sum of {probabilities.sum()}."
            )
        self.points = points
        self.probabilities = probabilities

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        return self.points, self.probabilities

    def __repr__(self) -> str:
        return f"Discrete({len(self.points)} points)"


class Nodes(tf.Module, Measure):
    """
    A discrete measure whose points are variables: state that can be set and saved.

    :param start: where it begins; its number of points is for good.
    """

    def __init__(self, start: Discrete) -> None:
        super().__init__()
        self.points = tf.Variable(start.points, trainable=False, dtype=default_float())
        self.probabilities = tf.Variable(
            start.probabilities, trainable=False, dtype=default_float()
        )

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def nodes(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.points), tf.convert_to_tensor(self.probabilities)

    def assign(self, measure: Discrete) -> None:
        """
        Take another measure's points, fewer ones with points of no weight beside them.

        :raises ValueError: it has more points, or other columns.
        """
        have, want = measure.points.shape, tuple(self.points.shape)
        if have[0] > want[0] or have[1] != want[1]:
            raise ValueError(f"measure has points {have}; there is room for {want}.")
        spare = want[0] - have[0]
        self.points.assign(
            np.concatenate([measure.points, np.repeat(measure.points[-1:], spare, 0)])
        )
        self.probabilities.assign(np.concatenate([measure.probabilities, np.zeros(spare)]))

    def __repr__(self) -> str:
        return f"Nodes({self.points.shape[0]} points)"
