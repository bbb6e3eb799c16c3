"""What functions compiled of an IterNCGP give between a part's replacement and the next fit."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Poisson
from gpflow.utilities import positive
from iterncgp_cases import additive, data, fit

from gpflow_gam.models import IterNCGP
from gpflow_gam.newton.solvers import ReducedNewton


def _fitted(rng, kernel=None):
    model = IterNCGP(
        data(rng)["counts"],
        kernel or additive(),
        Poisson(),
        mean_function=gpflow.functions.Constant(0.2),
        solver=ReducedNewton(num_actions=10),
    )
    fit(model)
    return model


def _component(model):
    return model.kernel["a"]


def _put(owner, name, value):
    """Assign, and say how to take it back."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def _put_item(owner, key, value):
    before = owner[key]
    owner[key] = value

    def back():
        owner[key] = before

    return back


REPLACED = {
    "kernel": lambda m: _put(m, "kernel", gpflow.kernels.Matern32(10.0, 0.3)),
    "likelihood": lambda m: _put(m, "likelihood", Poisson(binsize=0.1)),
    "mean_function": lambda m: _put(m, "mean_function", gpflow.functions.Constant(3.0)),
    "data": lambda m: _put(m, "data", (m.data[0], m.data[1] + 1.0)),
    "kernel: a parameter of a component": lambda m: _put(
        _component(m), "lengthscales", gpflow.Parameter(0.1, transform=positive())
    ),
    "kernel: a setting of a component": lambda m: _put(_component(m), "active_dims", [1]),
    "kernel: a component": lambda m: _put_item(
        m.kernel.components, "a", gpflow.kernels.Matern32(9.0, 0.2, active_dims=[0])
    ),
    "likelihood: a number": lambda m: _put(m.likelihood, "binsize", 0.1),
    "mean_function: its parameter": lambda m: _put(m.mean_function, "c", gpflow.Parameter(3.0)),
}


def _numbers(found):
    return [np.asarray(t) for t in tf.nest.flatten(found)]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("what", REPLACED)
def test_what_was_compiled_before_raises_from_the_replacement_on(what, jit, rng):
    model = _fitted(rng)
    X = model.data[0][:5]
    use = tf.function(lambda: model.predict_f(X), jit_compile=jit, autograph=False)
    before = _numbers(use())
    back = REPLACED[what](model)
    part = what.split(":")[0]
    with pytest.raises(ValueError, match=f"^{part}: not that of the last fit"):
        use()
    back()
    for a, b in zip(_numbers(use()), before):
        np.testing.assert_array_equal(a, b)
    back = REPLACED[what](model)
    fit(model)
    with pytest.raises(ValueError, match="compile it anew"):
        use()
    back()
    with pytest.raises(ValueError, match="compile it anew"):
        use()


@pytest.mark.parametrize("use", ["predict_components", "predict_y", "elbo", "slopes", "closure"])
def test_every_use_raises(use, rng):
    model = _fitted(rng)
    X = model.data[0][:5]

    def slopes():
        with tf.GradientTape() as tape:
            value = model.elbo()
        return tape.gradient(value, model.trainable_variables)

    functions = {
        "predict_components": lambda: model.predict_components(X),
        "predict_y": lambda: model.predict_y(X),
        "elbo": model.elbo,
        "slopes": slopes,
    }
    if use == "closure":
        compiled = model.training_loss_closure(compile=True)
    else:
        compiled = tf.function(functions[use], autograph=False)
    compiled()
    REPLACED["kernel: a parameter of a component"](model)
    with pytest.raises(ValueError, match="^kernel: not that of the last fit"):
        compiled()


@pytest.mark.parametrize("jit", [False, True])
def test_a_part_of_a_sum_of_kernels_that_was_replaced_is_noticed(jit, rng):
    model = _fitted(rng, gpflow.kernels.Matern32(1.5, 0.7) + gpflow.kernels.Linear(0.1))
    use = tf.function(model.predict_f, jit_compile=jit, autograph=False)
    X = model.data[0][:5]
    use(X)
    model.kernel.kernels[1] = gpflow.kernels.Linear(9.0)
    with pytest.raises(ValueError, match="^kernel: not that of the last fit"):
        use(X)


@pytest.mark.parametrize(
    "wrap",
    {
        "within another": lambda f: tf.function(tf.function(f, autograph=False), autograph=False),
        "concrete": lambda f: tf.function(lambda x: f(x), autograph=False).get_concrete_function(
            tf.TensorSpec([None, 2], tf.float64)
        ),
        "a branch": lambda f: tf.function(
            lambda x: tf.cond(x[0, 0] < 9.0, lambda: f(x), lambda: f(-x)), autograph=False
        ),
        "a loop": lambda f: tf.function(
            lambda x: tf.map_fn(lambda row: f(row[None])[0][0], x), autograph=False
        ),
        "a function in a loop": lambda f: tf.function(
            lambda x: tf.map_fn(tf.function(lambda row: f(row[None])[0][0]), x), autograph=False
        ),
        "a strategy": lambda f: tf.function(
            lambda x: tf.distribute.get_strategy().run(f, (x,)), autograph=False
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_however_the_function_was_compiled(wrap, rng):
    model = _fitted(rng)
    X, use = model.data[0][:5], wrap[1](model.predict_f)
    expected = _numbers(model.predict_f(X))
    np.testing.assert_allclose(_numbers(use(X))[0], expected[0], atol=1e-9)
    REPLACED["kernel: a component"](model)
    with pytest.raises(ValueError, match="^kernel: not that of the last fit"):
        use(X)


def test_data_sets_that_were_mapped_before_raise_from_the_next_fit_on(rng):
    """They ask Python no more when they run."""
    model = _fitted(rng)
    X = model.data[0][:5]
    mapped = tf.data.Dataset.from_tensors(X).map(lambda x: model.predict_f(x)[0])
    np.testing.assert_allclose(next(iter(mapped)), model.predict_f(X)[0], atol=1e-9)
    model.data = (model.data[0], model.data[1] + 1.0)
    fit(model)
    with pytest.raises(tf.errors.InvalidArgumentError, match="compile it anew"):
        next(iter(mapped))


@pytest.mark.parametrize("what", ["kernel", "data", "kernel: a parameter of a component"])
def test_posteriors_that_follow_the_model_follow_no_fit_of_other_parts(what, rng):
    """Their kernel and inputs are those before: with the new weights they are no posterior."""
    model = _fitted(rng)
    X = model.data[0][:5]
    live, kept = model.posterior("nocache"), model.posterior("variable")
    compiled = tf.function(live.fused_predict_f, autograph=False)
    before = _numbers(kept.predict_f(X))
    np.testing.assert_allclose(_numbers(compiled(X)), before, atol=1e-9)
    REPLACED[what](model)
    fit(model)
    message = f"^{what.split(':')[0]}: not that of the fit of which this posterior is"
    for use in (lambda: live.fused_predict_f(X), lambda: kept.fused_predict_f(X),
                kept.update_cache):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            use()
    with pytest.raises(ValueError, match="compile it anew"):
        compiled(X)
    for a, b in zip(_numbers(kept.predict_f(X)), before):  # nothing was taken
        np.testing.assert_array_equal(a, b)


def test_functions_of_a_likelihood_are_parts_of_it(rng):
    def link(power):
        return functools.partial(lambda a, x: tf.exp(a * x), power)

    model = IterNCGP(data(rng)["counts"], additive(), Poisson(invlink=link(0.9)), solver="newton")
    fit(model)
    model.likelihood.invlink = link(0.5)
    with pytest.raises(ValueError, match="^likelihood: not that of the last fit"):
        model.elbo()
