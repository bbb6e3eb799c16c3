"""Proportional hazards: times to an event, some of which did not happen while a row was watched."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.config import default_float
from gpflow.likelihoods import QuadratureLikelihood

from .quadrature import GaussHermite


@dataclasses.dataclass(frozen=True)
class Intervals:
    """
    Pieces of time in which the baseline hazard is constant.

    :param edges: from zero to the longest time, [J + 1]; what is beyond is in the last interval.
    :param shares: of all time at risk, [J].
    :param hazard: events over time at risk, of all rows.
    :param sd: of the prior of steps of the hazard's logarithm between neighbouring intervals.
    """

    edges: AnyNDArray
    shares: AnyNDArray
    hazard: float
    sd: float = 1.0


class Cox(QuadratureLikelihood):
    """
    Hazard ``h(t) = h0(t) exp(f)``, h0 constant in each of J intervals of time.

    The piecewise exponential model (Friedman 1982): what split tables of Poisson counts with the
    logarithm of exposure are used for is, row by row,
    ``log p = event (log h0(t) + f) - H0(t) exp(f)``, H0 the integral of h0. So Y [N, 3] has a row
    each: time, again, and 1 where the event was seen then and 0 where the time at risk ended
    without. h0 is ``hazard`` on average over the time at risk, so that f is the logarithm of the
    hazard relative to that of all rows. Steps of log h0 from one interval to the next, a random
    walk, are learnt: ``sd`` of the intervals times ``steps``, which are standard normal a priori.

    Means are those of the relative hazard, exp(f).

    :param intervals: of time.
    """

    def __init__(self, intervals: Intervals) -> None:
        super().__init__(
            input_dim=None, latent_dim=1, observation_dim=None, quadrature=GaussHermite()
        )
        self.edges = Parameter(intervals.edges, trainable=False)
        self.shares = Parameter(intervals.shares, trainable=False)
        self.unit = Parameter(intervals.hazard, trainable=False)
        self.sd = Parameter(intervals.sd, trainable=False)
        zero, one = (tf.constant(v, default_float()) for v in (0.0, 1.0))
        self.steps = Parameter(
            np.zeros(len(intervals.shares) - 1), prior=tfp.distributions.Normal(zero, one)
        )
        self.invlink = tf.exp

    def log_baseline(self) -> tf.Tensor:
        """``log h0`` in each interval, [J]."""
        steps = tf.convert_to_tensor(self.steps) * self.sd.unconstrained_variable
        level = tf.concat([tf.zeros([1], steps.dtype), tf.cumsum(steps)], axis=0)
        shares = self.shares.unconstrained_variable
        mean = tf.math.log(tf.reduce_sum(shares * tf.exp(level)))
        return level - mean + tf.math.log(self.unit.unconstrained_variable)

    def hazards(self, t: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        ``log h0`` and ``H0`` at times, [...] both.

        :param t: times since the start, [...].
        """
        edges, level = self.edges.unconstrained_variable, self.log_baseline()
        lower, upper = edges[:-1], edges[1:]
        at = t[..., None]
        place = tf.reduce_sum(tf.cast(at > upper[:-1], tf.int32), axis=-1)
        spent = tf.maximum(at - lower, tf.zeros([], at.dtype))
        spent = tf.concat([tf.minimum(spent[..., :-1], (upper - lower)[:-1]), spent[..., -1:]], -1)
        return tf.gather(level, place), tf.linalg.matvec(spent, tf.exp(level))

    def _log_density(self, f: tf.Tensor, ratio: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """
        :param ratio: exp(f), or its mean beside that of f.
        """
        level, total = self.hazards(Y[..., 0])
        return Y[..., 2] * (level + f) - total * ratio

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        f = tf.convert_to_tensor(F)[..., 0]
        return self._log_density(f, tf.exp(f), tf.convert_to_tensor(Y))

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        f = Fmu[..., 0]
        return self._log_density(f, tf.exp(f + 0.5 * Fvar[..., 0]), tf.convert_to_tensor(Y))

    @inherit_check_shapes
    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.exp(F)

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return tf.zeros_like(F)  # a relative hazard is known where f is
