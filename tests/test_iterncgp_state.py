"""What a fitted IterNCGP follows: parameters, replaced parts, copies, files, threads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Poisson, Softmax
from iterncgp_cases import additive, data, fit, fitted, kernel, made

from gpflow_gam.models import IterNCGP
from gpflow_gam.newton import operators
from gpflow_gam.newton.solvers import ReducedNewton


def constant(value):
    return gpflow.functions.Constant(value)


REPLACED = {
    "kernel": lambda m: setattr(m, "kernel", gpflow.kernels.Matern32(100.0, 0.3)),
    "likelihood": lambda m: setattr(m, "likelihood", Poisson(binsize=0.1)),
    "mean_function": lambda m: setattr(m, "mean_function", constant(3.0)),
    "data": lambda m: setattr(m, "data", (m.data[0][:40], m.data[1][:40] + 1.0)),
    "a parameter": lambda m: setattr(m.kernel, "lengthscales", gpflow.Parameter(0.2)),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("what", REPLACED)
def test_parts_that_were_replaced(what, rng):
    """Nothing is predicted before the next fit, and that is one to the new parts."""
    model = fitted("counts", rng)
    X, snapshot, before = model.data[0], model.posterior(), model.predict_f(model.data[0])
    REPLACED[what](model)
    part = what if hasattr(model, what) else "kernel"
    for use in (model.predict_f, model.predict_components, lambda _: model.elbo(),
                lambda _: model.posterior()):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{part}: not that of the last fit"):
            use(X)
    assert fit(model).converged
    options = {"mean_function": model.mean_function, "solver": model.solver}
    fresh = made(model.data, model.kernel, model.likelihood, **options)
    for a, b, old in zip(model.predict_f(X), fresh.predict_f(X), before):
        np.testing.assert_allclose(a, b, atol=1e-9)
        assert np.abs(a - old).max() > 0.05
    # a snapshot is of the fit before
    for a, b in zip(snapshot.predict_f(X), before):
        np.testing.assert_allclose(a, b, atol=1e-12)


# compiled by XLA they are traced as without
@pytest.mark.slow
@pytest.mark.parametrize("jit", [pytest.param(False, marks=pytest.mark.slow), True])
def test_compiled_predictions_follow_parameters_and_fits(jit, rng):
    model = fitted("counts", rng, additive())
    X = model.data[0][:7]
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    options = {"input_signature": signature, "jit_compile": jit, "autograph": False}
    compiled = tf.function(both_predictions(model), **options)

    def agree(tolerance):
        for rows in (X,) if jit else (X, X[:0]):
            expected = *model.predict_f(rows), *model.predict_components(rows)
            for a, b in zip(compiled(rows), expected):
                np.testing.assert_allclose(a, b, atol=tolerance)
        return model.predict_f(X)[0]

    before = agree(1e-11)
    model.kernel["a"].lengthscales.assign(0.2)
    # rounding is blown up by S'(K + W^+)S, and XLA's eigenvectors have more of it
    moved = agree(1e-5)
    assert np.abs(moved - before).max() > 0.05
    model.solver = ReducedNewton(num_actions=30)  # another number of actions
    fit(model)
    assert np.abs(agree(1e-11) - moved).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_predictions_have_gradients(compiled, rng):
    """In inputs and parameters, of mean and variance, against finite differences."""
    k = gpflow.kernels.SeparateIndependent(
        [kernel(), gpflow.kernels.SquaredExponential(0.8, 0.5), gpflow.kernels.Matern52()]
    )
    solver = ReducedNewton(num_actions=20, tolerance=1e-11)
    mean = constant([0.1, 0.2, 0.3])
    model = fitted("classes", rng, k, solver=solver, mean_function=mean)
    Xnew = tf.Variable(rng.uniform(-1, 1, (4, 2)))
    slopes = [tf.constant(rng.normal(size=(4, 3))) for _ in range(2)]

    def value():
        return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(slopes, model.predict_f(Xnew))])

    def gradients():
        variables = [Xnew, *model.trainable_variables]
        with tf.GradientTape() as tape:
            total = value()
        return tape.gradient(total, variables)

    variables = [Xnew, *model.trainable_variables]
    result = (tf.function(gradients, autograph=False) if compiled else gradients)()
    assert len(result) == 8
    for variable, gradient in zip(variables, result):
        start, step = variable.numpy(), 1e-5
        direction = rng.normal(size=start.shape)
        ends = []
        for sign in (1.0, -1.0):
            variable.assign(start + sign * step * direction)
            ends.append(float(value()))
        variable.assign(start)
        expected = (ends[0] - ends[1]) / (2.0 * step)
        assert float(np.sum(direction * gradient)) == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_parameters_may_be_frozen_and_set_free_again(rng, monkeypatch):
    """Fits learn what is trainable when they begin, whatever was compiled before."""
    monkeypatch.setattr(operators, "_SMALL", 0)
    model = IterNCGP(data(rng)["counts"], kernel(), Poisson(), solver="newton")
    gpflow.set_trainable(model.kernel.lengthscales, False)
    first = fit(model, hyperparameters=True).elbo
    assert float(model.kernel.lengthscales.numpy()) == pytest.approx(0.7, rel=1e-12)
    gpflow.set_trainable(model.kernel.lengthscales, True)
    assert fit(model, hyperparameters=True).elbo > first + 1e-3
    assert abs(float(model.kernel.lengthscales.numpy()) - 0.7) > 1e-2
    # GPflow's other sense: a copy of which nothing is trainable
    frozen = gpflow.utilities.freeze(model)
    for a, b in zip(frozen.predict_f(model.data[0]), model.predict_f(model.data[0])):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_float32(rng):
    double = fitted("classes", rng, solver=ReducedNewton(num_actions=50))
    X, Y = double.data
    gpflow.config.set_default_float(np.float32)
    single = IterNCGP(
        (X.numpy().astype(np.float32), Y.numpy()), kernel(), Softmax(3), solver="newton"
    )
    result = fit(single)
    assert result.converged
    mean, var = single.predict_f(X.numpy().astype(np.float32))
    assert mean.dtype == tf.float32
    for a, b in zip((mean, var), double.predict_f(X)):
        np.testing.assert_allclose(a, b, atol=2e-2)


def few(rng, name="counts", kernel=None, number=10):
    return fitted(name, rng, kernel, solver=ReducedNewton(num_actions=number))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("compiled", [False, True])
def test_slopes_of_frozen_parameters_that_are_watched_are_whole(compiled, rng):
    """By the weights, too: not by k(Xnew, X) alone."""
    model = few(rng, number=5)
    X, v = model.data[0][:5], model.kernel.lengthscales.unconstrained_variable

    def slope():
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(v)
            value = tf.reduce_sum(model.predict_f(X)[0])
        return tape.gradient(value, v)

    def result():
        return float((tf.function(slope, autograph=False) if compiled else slope)())

    free = result()
    gpflow.set_trainable(model.kernel, False)
    assert result() == pytest.approx(free, rel=1e-9)


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


@pytest.mark.slow
def test_copies_predict_the_same(rng):
    model = few(rng, "classes", additive())
    _in_use(model)
    X = model.data[0][:7]
    uses = ("predict_f", "predict_components", "predict_y")
    expected = [*(part for use in uses for part in getattr(model, use)(X)), model.elbo()]
    for how, copied in COPIES.items():
        other = copied(model)
        result = [*(part for use in uses for part in getattr(other, use)(X)), other.elbo()]
        for a, b in zip(result, expected):
            np.testing.assert_array_equal(a, b, err_msg=how)


LOADED = """
import sys
import numpy as np
sys.modules["gpflow_gam"] = sys.modules["gpflow"] = None  # importing either is an error
import tensorflow as tf
for folder in ("counts", "classes"):
    model, X = tf.saved_model.load(folder), np.load(folder + ".npy")
    parts = [model.compiled_elbo(), *tf.nest.flatten(model.compiled(X))]
    np.savez(folder + ".npz", *[part.numpy() for part in parts])
"""


def both_predictions(model):
    return lambda x: (*model.predict_f(x), *model.predict_components(x))


@pytest.mark.slow
def test_models_are_saved_with_functions_of_theirs(rng, tmp_path):
    """As GPflow's documentation has it: another process loads them without our code."""
    expected = {}
    for name in ("counts", "classes"):
        model = few(rng, name, additive())
        uses = model.predict_y if name == "classes" else both_predictions(model)
        signature = [tf.TensorSpec([None, 2], tf.float64)]
        model.compiled = tf.function(uses, input_signature=signature, autograph=False)
        model.compiled_elbo = tf.function(model.elbo, input_signature=[], autograph=False)
        X = model.data[0][:7].numpy()
        np.save(tmp_path / f"{name}.npy", X)
        model.kernel["a"].lengthscales.assign(0.4)  # the functions follow
        tf.saved_model.save(model, str(tmp_path / name))
        expected[name] = [model.elbo(), *uses(X)]
    command = [sys.executable, "-c", LOADED]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    for name, parts in expected.items():
        with np.load(tmp_path / f"{name}.npz") as result:
            for own, part in zip(result.values(), parts, strict=True):
                np.testing.assert_allclose(own, part, rtol=1e-9, atol=1e-12)
    # parameters and checkpoints are what they were
    fresh = type(model)(model.data, additive(), model.likelihood)
    assert len(model.variables) == len(fresh.variables)
    kept = [tf.train.Checkpoint(model=m).save(str(tmp_path / "kept")) for m in (model, fresh)]
    first, second = ([key for key, _ in tf.train.list_variables(file)] for file in kept)
    assert first == second
