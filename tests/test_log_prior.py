"""Priors evaluated together are those evaluated one by one."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Parameter

from gpflow_gam.bijectors import exponential, softplus
from gpflow_gam.models.base import log_prior_density
from gpflow_gam.optimizers.hyperparameters import Hyperparameters

f64 = np.float64
tfd = tfp.distributions


def parameters() -> list[Parameter]:
    """Every kind of prior, of scalars and vectors, and none."""
    each = tfd.LogNormal(np.array([0.1, -0.4]), np.array([0.5, 2.0]))
    positive = exponential()
    return [
        Parameter(0.7, transform=positive, prior=tfd.LogNormal(f64(0.3), f64(1.5))),
        Parameter([0.2, 3.0], transform=positive, prior=each),
        Parameter([0.9, 1.1], transform=positive, prior=tfd.LogNormal(f64(-1.0), f64(0.2))),
        Parameter(1.4, transform=softplus(), prior=tfd.LogNormal(f64(0.0), f64(1.0))),
        Parameter(2.0, transform=positive, prior=tfd.Gamma(f64(2.0), f64(3.0))),
        Parameter(
            3.0,
            transform=positive,
            prior=tfd.LogNormal(f64(0.0), f64(1.0)),
            prior_on=gpflow.base.PriorOn.UNCONSTRAINED,
        ),
        Parameter(0.5, transform=positive, prior=tfd.LogNormal(f64(0.0), tf.Variable(f64(2.0)))),
        Parameter(-0.5, prior=tfd.Normal(f64(0.0), f64(1.0))),
        Parameter(5.0, transform=positive),
    ]


def test_together_is_one_by_one() -> None:
    own = parameters()
    variables = [p.unconstrained_variable for p in own]
    with tf.GradientTape(persistent=True) as tape:
        together = log_prior_density(own)
        each = tf.add_n([p.log_prior_density() for p in own])
    np.testing.assert_allclose(together, each, rtol=1e-14)
    for ours, theirs in zip(tape.gradient(together, variables), tape.gradient(each, variables)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-13)
    value, slope = Hyperparameters(own).log_prior(Hyperparameters(own).get())
    np.testing.assert_allclose(value, each, rtol=1e-13)
    whole = [
        tf.zeros_like(v) if g is None else g
        for v, g in zip(variables, tape.gradient(each, variables))
    ]
    np.testing.assert_allclose(slope, np.concatenate([np.ravel(g) for g in whole]), rtol=1e-12)


def test_it_follows_the_parameters_and_their_priors_in_graphs() -> None:
    own = parameters()[:3]
    compiled = tf.function(lambda: log_prior_density(own), autograph=False)
    before = float(compiled())
    own[0].assign(7.0)
    assert float(compiled()) != before
    np.testing.assert_allclose(compiled(), sum(float(p.log_prior_density()) for p in own))
    np.testing.assert_allclose(log_prior_density(parameters()[-1:]), 0.0)
