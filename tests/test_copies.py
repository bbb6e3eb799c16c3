"""Copies of the variational models and what is pickled: the same, and nobody else's."""

from __future__ import annotations

import copy
import pickle

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf

HOW = {
    "deepcopy": copy.deepcopy,
    "gpflow's": gpflow.utilities.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


def _model(name, problem):
    if name == "sgpr":
        return problem.sgpr()
    return problem.svgp(gpflow.likelihoods.Gaussian(0.2))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["sgpr", "svgp"])
def test_a_copy_predicts_the_same_and_goes_on_alone(name, how):
    problem = problems.few(30)
    model, X = _model(name, problem), problem.X[:5]
    data = () if name == "sgpr" else (problem.data,)
    for parameter in model.trainable_parameters:
        shift = 0.1 * np.sin(np.arange(parameter.unconstrained_variable.shape.num_elements()))
        variable = parameter.unconstrained_variable
        variable.assign_add(shift.reshape(variable.shape))
    expected = [*model.predict_f(X), *model.predict_components(X), model.elbo(*data)]
    model.posterior().predict_f(X)
    other = HOW[how](model)
    result = [*other.predict_f(X), *other.predict_components(X), other.elbo(*data)]
    for a, b in zip(result, expected):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    with tf.GradientTape() as tape:
        loss = -other.elbo(*data)
    for variable, slope in zip(
        other.trainable_variables, tape.gradient(loss, other.trainable_variables)
    ):
        variable.assign_sub(1e-4 * slope)  # training goes on
    assert float(other.elbo(*data)) > float(expected[-1]) + 1e-3
    after = [*model.predict_f(X), *model.predict_components(X), model.elbo(*data)]
    for a, b in zip(after, expected):
        np.testing.assert_allclose(a, b, rtol=1e-10)
