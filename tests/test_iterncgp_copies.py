"""Copies of a fitted IterNCGP, files and graphs made of it."""

from __future__ import annotations

import copy
import pickle

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from iterncgp_cases import additive, fit, fitted
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from gpflow_gam import serving
from gpflow_gam.newton.solvers import ReducedNewton


def _few(rng, name="counts", kernel=None):
    return fitted(name, rng, kernel, solver=ReducedNewton(num_actions=10))


def _in_use(model):
    """Some of everything that a model keeps beside its parts."""
    X = tf.identity(model.data[0][:5])
    for jit in (False, True):
        tf.function(model.predict_f, jit_compile=jit, autograph=False)(X)
    model.predict_f(X)
    model.elbo()


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "gpflow's": gpflow.utilities.deepcopy,
    "frozen": gpflow.utilities.freeze,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_predict_the_same(how, rng):
    model = _few(rng, "classes", additive())
    _in_use(model)
    other = COPIES[how](model)
    X = model.data[0][:7]
    for use in ("predict_f", "predict_components", "predict_probabilities"):
        for a, b in zip(getattr(model, use)(X), getattr(other, use)(X)):
            np.testing.assert_array_equal(a, b)
    assert float(other.elbo()) == float(model.elbo())


@pytest.mark.parametrize("what", ["data", "actions"])
@pytest.mark.parametrize("how", ["copy", "deepcopy"])
def test_fits_of_copies_do_not_move_the_model(how, what, rng):
    model = _few(rng)
    X = model.data[0][:7]
    compiled = tf.function(model.predict_f, autograph=False)
    before, bound, kept = model.predict_f(X), float(model.elbo()), compiled(X)
    other = COPIES[how](model)
    if what == "data":
        other.data = (model.data[0], model.data[1] + 3.0)
    else:
        other.solver = ReducedNewton(num_actions=40)
        other.forget_run()
    fit(other)
    assert np.abs(other.predict_f(X)[1] - before[1]).max() > 1e-3
    for a, b in zip((*model.predict_f(X), *compiled(X)), (*before, *kept)):
        np.testing.assert_array_equal(a, b)
    assert float(model.elbo()) == bound


def test_exports_are_of_the_model_as_it_is(rng, tmp_path):
    """Twice, at other parameters the second time; and none of parts that were replaced."""
    model = _few(rng)
    X = model.data[0][:7]
    for name, lengthscale in (("first", 0.7), ("second", 0.3)):
        model.kernel.lengthscales.assign(lengthscale)
        serving.export(model, tmp_path / name)
    expected = {"second": model.predict_f(X)[0]}
    model.kernel.lengthscales.assign(0.7)
    expected["first"] = model.predict_f(X)[0]
    for name, mean in expected.items():
        loaded = tf.saved_model.load(str(tmp_path / name))
        found = loaded.signatures["serving_default"](inputs=tf.identity(X))["mean"]
        np.testing.assert_allclose(np.ravel(found), np.ravel(mean), atol=1e-9)
    model.kernel = gpflow.kernels.Matern32(1.5, 0.7)
    with pytest.raises(ValueError, match="^kernel: not that of the last fit"):
        serving.export(model, tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_snapshots_are_saved_and_frozen(rng, tmp_path):
    model = _few(rng)
    X = model.data[0][:7]
    module = tf.Module()
    module.posterior = model.posterior()
    module.predict = tf.function(
        lambda x: module.posterior.predict_f(x),
        input_signature=[tf.TensorSpec([None, 2], tf.float64)],
        autograph=False,
    )
    expected = model.predict_f(X)
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    frozen = convert_variables_to_constants_v2(module.predict.get_concrete_function())
    for found in (loaded.predict(X), frozen(tf.identity(X))):
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, atol=1e-9)
