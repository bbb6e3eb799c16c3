"""Quadratic B-splines as piecewise polynomials, in numpy and in TensorFlow."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.interpolate import BSpline


class SplineBasis:
    """
    Quadratic B-splines on an interval.

    A spline goes up, or bends up, everywhere if and only if its coefficients do over
    :attr:`places`: the slope of a quadratic spline is linear between breaks, and so is settled by
    what it is at them (Schumaker 2007, "Spline functions: basic theory").

    :param breaks: where polynomials meet, ends included, increasing [I + 1].
    :param straight: whether splines go on beyond the ends as straight lines; else as constants.
    """

    def __init__(self, breaks: AnyNDArray, straight: bool = True) -> None:
        self.breaks: AnyNDArray = np.asarray(breaks, dtype=np.float64)
        t = np.concatenate([self.breaks[[0, 0]], self.breaks, self.breaks[[-1, -1]]])
        self.number = len(t) - 3
        """J, how many splines there are."""
        self.places: AnyNDArray = 0.5 * (t[1:-2] + t[2:-1])
        """Greville's abscissae [J], where coefficients are about the values of a spline."""
        spline = BSpline(t, np.eye(self.number), 2)
        value, slope = spline(self.breaks), spline.derivative(1)(self.breaks)
        bend = 0.5 * spline.derivative(2)(self.breaks[:-1])
        outside = slope[[0, -1]] * float(straight)
        nothing = np.zeros((1, self.number))
        # pieces: below, between breaks, above; powers of the distance from each piece's origin
        self._origins: AnyNDArray = np.concatenate([self.breaks[:1], self.breaks])
        self._pieces: AnyNDArray = np.stack(
            [
                np.concatenate([value[:1], value]),
                np.concatenate([outside[:1], slope[:-1], outside[1:]]),
                np.concatenate([nothing, bend, nothing]),
            ],
            axis=1,
        )

    def __call__(self, x: AnyNDArray) -> AnyNDArray:
        """The splines at x [N], [N, J]."""
        piece = np.searchsorted(self.breaks, x, side="right")
        away = x - self._origins[piece]
        a, b, c = np.moveaxis(self._pieces[piece], 1, 0)
        found: AnyNDArray = a + away[:, None] * (b + away[:, None] * c)
        return found

    def tensor(self, x: tf.Tensor) -> tf.Tensor:
        """The splines at x [...], [..., J]."""
        piece = tf.searchsorted(tf.constant(self.breaks, x.dtype), x, side="right")
        away = (x - tf.gather(tf.constant(self._origins, x.dtype), piece))[..., None]
        parts = tf.gather(tf.constant(self._pieces, x.dtype), piece)
        a, b, c = (parts[..., i, :] for i in range(3))
        return a + away * (b + away * c)


class LevelBasis:
    """
    One for each of some levels, zero elsewhere.

    :param places: the codes of the levels, [J].
    """

    def __init__(self, places: AnyNDArray) -> None:
        self.places: AnyNDArray = np.asarray(places, dtype=np.float64)
        self.number = len(self.places)

    def __call__(self, x: AnyNDArray) -> AnyNDArray:
        """[N, J]."""
        return np.asarray(x[:, None] == self.places, dtype=np.float64)

    def tensor(self, x: tf.Tensor) -> tf.Tensor:
        """[..., J]."""
        return tf.cast(x[..., None] == tf.constant(self.places, x.dtype), x.dtype)


def differences(places: AnyNDArray, shape: str) -> AnyNDArray:
    """
    What is not negative of coefficients that have a shape, [n, J].

    :param places: of the coefficients, [J].
    :param shape: ``"increasing"``, ``"decreasing"``, ``"convex"`` or ``"concave"``.
    """
    slopes = np.diff(np.eye(len(places)), axis=0) / np.diff(places)[:, None]
    rows = slopes if shape in ("increasing", "decreasing") else np.diff(slopes, axis=0)
    return rows if shape in ("increasing", "convex") else -rows


def grid(axes: list[AnyNDArray]) -> AnyNDArray:
    """All combinations of values, the last axis fastest, [n, d]."""
    return np.array(list(itertools.product(*axes)), dtype=np.float64)
