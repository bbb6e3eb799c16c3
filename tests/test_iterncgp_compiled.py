"""What functions compiled of an IterNCGP's bound give when the model goes on."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Poisson
from iterncgp_cases import data, fit, kernel

from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import ReducedNewton


def _few(rng, kind="counts", likelihood=None):
    model = IterNCGP(
        data(rng)[kind], kernel(), likelihood or Poisson(), solver=ReducedNewton(num_actions=5)
    )
    fit(model)
    return model


def _compiled(model, jit):
    """The bound, its gradient and that of ten rows, and the same as written."""
    rows = tf.range(10)

    def numbers():
        with tf.GradientTape() as tape:
            value = model.elbo()
        parameters = model.kernel.variance, model.kernel.lengthscales
        variables = [p.unconstrained_variable for p in parameters]
        slopes = tape.gradient(value, variables)
        return [value, model.elbo(rows), model.training_loss(), *slopes]

    return tf.function(numbers, jit_compile=jit, autograph=False), numbers


@pytest.mark.parametrize("jit", [False, True])
def test_compiled_bounds_follow_parameters_and_fits(jit, rng):
    model = _few(rng)
    compiled, numbers = _compiled(model, jit)

    def agree():
        found, expected = compiled(), numbers()
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
        return float(expected[0])

    seen = [agree()]
    model.kernel.lengthscales.assign(0.3)
    seen.append(agree())
    fit(model)  # other pseudo-observations
    seen.append(agree())
    model.solver = ReducedNewton(num_actions=20)  # another number of actions
    model.forget_run()
    fit(model)
    seen.append(agree())
    fit(model, hyperparameters=True)
    seen.append(agree())
    assert np.abs(np.diff(seen)).min() > 0.1


@pytest.mark.parametrize("compiled", [False, True])
def test_slopes_of_frozen_parameters_that_are_watched_are_whole(compiled, rng):
    """By the weights, too: not by k(Xnew, X) alone."""
    model = _few(rng)
    X, v = model.data[0][:5], model.kernel.lengthscales.unconstrained_variable

    def slope():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(v)
            value = tf.reduce_sum(model.predict_f(X)[0])
        return tape.gradient(value, v)

    def found():
        return float((tf.function(slope, autograph=False) if compiled else slope)())

    free = found()
    gpflow.set_trainable(model.kernel, False)
    assert found() == pytest.approx(free, rel=1e-9)
