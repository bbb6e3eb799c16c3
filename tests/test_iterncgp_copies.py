"""Copies of a fitted IterNCGP, files and graphs made of it."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

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
    for use in ("predict_f", "predict_components", "predict_y"):
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


LOADED = """
import sys
import numpy as np
sys.modules["gpflow_gam"] = sys.modules["gpflow"] = None  # importing either is an error
import tensorflow as tf
X = np.load("X.npy")
for folder in sys.argv[1:]:
    model = tf.saved_model.load(folder)
    found = {"elbo 0": model.compiled_elbo()}
    for use in ("predict_f", "predict_components", "predict_y"):
        if hasattr(model, "compiled_" + use):
            for i, part in enumerate(tf.nest.flatten(getattr(model, "compiled_" + use)(X))):
                found[f"{use} {i}"] = part.numpy()
    np.savez(folder + ".npz", **found)
"""


@pytest.mark.parametrize(
    ("name", "uses", "lengthscales"),
    [
        ("counts", ["predict_f", "predict_components"], [0.4, 0.3]),
        ("classes", ["predict_y"], [0.3]),
    ],
)
def test_models_are_saved_with_functions_of_theirs(name, uses, lengthscales, rng, tmp_path):
    """As GPflow's documentation has it: another process loads them without our code."""
    model = _few(rng, name, additive())
    for use in uses:
        setattr(model, f"compiled_{use}", _compiled(model, use))
    model.compiled_elbo = tf.function(model.elbo, input_signature=[], autograph=False)
    X, expected = model.data[0][:7].numpy(), {}
    np.save(tmp_path / "X.npy", X)
    for lengthscale in lengthscales:
        step = str(lengthscale)
        model.kernel["a"].lengthscales.assign(lengthscale)  # the functions follow
        tf.saved_model.save(model, str(tmp_path / step))
        values = {use: tf.nest.flatten(getattr(model, use)(X)) for use in uses}
        expected[step] = values | {"elbo": [model.elbo()]}
    command = [sys.executable, "-c", LOADED, *expected]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    for step, values in expected.items():
        with np.load(tmp_path / f"{step}.npz") as found:
            assert len(found) == sum(len(parts) for parts in values.values())
            for use, parts in values.items():
                for i, part in enumerate(parts):
                    np.testing.assert_allclose(found[f"{use} {i}"], part, rtol=1e-9, atol=1e-12)
    # parameters and checkpoints are what they were
    fresh = type(model)(model.data, additive(), model.likelihood)
    assert len(model.variables) == len(fresh.variables)
    kept = [tf.train.Checkpoint(model=m).save(str(tmp_path / "kept")) for m in (model, fresh)]
    first, second = ([key for key, _ in tf.train.list_variables(file)] for file in kept)
    assert first == second


def _compiled(model, use):
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    return tf.function(getattr(model, use), input_signature=signature, autograph=False)


def test_a_model_without_a_fit_is_not_saved(rng, tmp_path):
    fresh = _few(rng)
    fresh.restore(None)
    fresh.compiled_predict_f = _compiled(fresh, "predict_f")
    with pytest.raises(ValueError, match="the model is not fitted"):
        tf.saved_model.save(fresh, str(tmp_path / "fresh"))


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
