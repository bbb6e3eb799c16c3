"""Heads in all that Keras does with layers: batches, dtypes, weights, copies, ways to run."""

import re
from pathlib import Path
from typing import Any

import gpflow
import h5py
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import parameter_dict
from head_cases import X as FEATURES
from head_cases import Y as RESPONSE
from head_cases import additive, compiled, lively, moved_model, numbers, scramble, small, unchanged
from head_cases import network as dense_network

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).astype("float32")
Y = np.sin(2.0 * X[:, 0])
LABELS = (Y > 0.0).astype(int) + (X[:, 1] > 1.0)


def head(terms: Any = None, **options: Any) -> AdditiveGP:
    return lively(terms, **{"num_data": N, "num_inducing": 5, "normalization": None, **options})


def network(one: AdditiveGP, **options: Any) -> keras.Model:
    """Nothing of it moves."""
    inputs = keras.Input((3,))
    model = keras.Model(inputs, one(inputs))
    model.compile(keras.optimizers.SGD(0.0), loss=one.loss, **options)
    return model


# --- rows and batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("strange", ["no rows", "nan", "inf"])
def test_what_says_nothing_of_features_does_not_move_their_scaling(strange: str) -> None:
    terms = gg.s(0) + gg.s(0, 1, 2)  # inducing inputs follow the features
    one, other = head(terms, normalization="running"), head(terms, normalization="running")
    for h in (one, other):
        h(X, training=True)
    more = 2.0 + 3.0 * X
    if strange == "no rows":
        one(more[:0], training=True)
    else:
        rows = np.vstack([more, [[float(strange), 0.0, 0.0]]])
        one.num_data = N + 1
        assert np.isnan(one(rows, training=True)[-1]).all()
        assert np.isnan(one(rows)).all(axis=(1, 2)).tolist() == [False] * N + [True]
        other(more, training=True)
    assert float(one.scaling.count) == float(other.scaling.count)
    np.testing.assert_allclose(one(X), other(X), rtol=1e-12)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("dtype", ["float16", "int32", "bool"])
def test_numbers_of_any_type_are_read(dtype: str) -> None:
    one, rows = head(), np.random.default_rng(1).integers(0, 2, (9, 3))
    np.testing.assert_array_equal(one(tf.constant(rows.astype(dtype))), one(rows.astype(float)))
    inputs = keras.Input((3,), dtype=dtype)
    model = keras.Model(inputs, one(inputs))
    result = model.predict(rows.astype(dtype), verbose=0)
    np.testing.assert_allclose(result, one(rows.astype(float)), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_labels_of_several_shapes_one_after_the_other() -> None:
    """Keras traces one function for both, which then does not know their rank."""
    model = network(head())
    want = model.evaluate(X, Y, batch_size=N, verbose=0)
    for y in (pd.Series(Y), Y[:, None], Y.astype("float64"), tf.constant(Y)):
        assert model.evaluate(X, y, batch_size=N, verbose=0) == pytest.approx(want, rel=1e-6)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.evaluate(X, np.column_stack([Y, Y]), batch_size=N, verbose=0)


@pytest.mark.slow_but_first
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("one_hot", [False, True])
def test_weights_of_classes_are_those_of_their_rows(one_hot: bool) -> None:
    one = head(likelihood="softmax", num_classes=3)
    one.frozen = (
        "inducing_variable",
        "variational",
        "mean_function",
    )  # else it is the null model's
    model, by_class = network(one), {0: 1.0, 1: 3.0, 2: 0.5}
    weights = np.array([by_class[label] for label in LABELS])
    nll = np.array(one.negative_expected_log_likelihood(LABELS, one(X)))
    want = np.mean(weights * nll) + float(one.penalty())
    y = np.eye(3)[LABELS] if one_hot else LABELS
    options = {"batch_size": N, "verbose": 0}
    result = model.fit(X, y, class_weight=by_class, **options).history["loss"][0]
    assert result == pytest.approx(want, rel=1e-6)
    assert model.evaluate(X, y, sample_weight=weights, **options) == pytest.approx(want, rel=1e-6)


@pytest.mark.slow
def test_files_of_several_heads_go_on_training(tmp_path: Path) -> None:
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(3)(inputs)
    a = head(name="a", normalization="running")
    b = head(name="b", likelihood="softmax", num_classes=3)
    model = keras.Model(inputs, {"a": a(hidden), "b": b(hidden)})
    model.compile(
        keras.optimizers.SGD(0.01),
        loss={"a": a.loss, "b": b.loss},
        metrics={"b": [b.metric("accuracy")]},
    )
    y = {"a": Y, "b": LABELS}
    options = {"batch_size": N, "verbose": 0}
    model.fit(X, y, **options)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    want, result = (m.predict(X, **options) for m in (model, again))
    for name in "ab":
        np.testing.assert_array_equal(result[name], want[name])
    histories = [m.fit(X, y, **options).history for m in (model, again)]
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-6, err_msg=name)
    for left, right in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-12, err_msg=left.path)


@keras.saving.register_keras_serializable(package="tests")
class MakesItsHead(keras.Model):
    """A head by another automatic name each time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.head = head()

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return self.head(x, training=training)


@pytest.mark.usefixtures("eagerly")
def test_files_of_heads_that_a_model_makes_go_on_training(tmp_path: Path) -> None:
    model = MakesItsHead()
    metrics = [model.head.metric("mae"), model.head.metric("nlpd")]
    model.compile(keras.optimizers.SGD(0.01), loss=model.head.loss, metrics=metrics)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    assert again.head.name != model.head.name
    for way in ("evaluate", "fit", "evaluate"):
        results = [getattr(m, way)(X, Y, batch_size=N, verbose=0) for m in (model, again)]
        if way == "evaluate":
            np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


@pytest.mark.slow
def test_ways_to_run_are_one() -> None:
    losses = []
    for way in ({"jit_compile": True}, {"run_eagerly": True}, {"steps_per_execution": 3}):
        keras.utils.set_random_seed(0)
        terms = gg.s(0) + gg.s(0, 1, 2)  # inducing inputs follow the features
        one, inputs = head(terms, normalization="running"), keras.Input((3,))
        model = keras.Model(inputs, one(keras.layers.Dense(3)(inputs)))
        model.compile(keras.optimizers.Adam(0.01), loss=one.loss, **way)
        result = model.fit(X, Y, epochs=3, batch_size=16, shuffle=False, verbose=0)
        losses.append(result.history["loss"])
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, AdditiveGP]:
    return moved_model()


# --- state ---------------------------------------------------------------------------------------


def test_state_is_all_there_is(trained: tuple[keras.Model, AdditiveGP]) -> None:
    _, head = trained
    inside = {path.lstrip(".") for path in parameter_dict(head.model)}
    assert inside == set(head._adopted.variables)
    for path, leaf in parameter_dict(head.model).items():
        own = head._adopted.variables[path.lstrip(".")]
        tensor = leaf.unconstrained_variable if hasattr(leaf, "unconstrained_variable") else leaf
        assert own.value is tensor


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("way", "flags"), [("keras", "changed"), ("weights", "changed"), ("checkpoint", "other")]
)
def test_round_trips_are_exact(tmp_path: Path, way: str, flags: str) -> None:
    terms = gg.s(0) + gg.s(1, by=2) + gg.ti(0, 1) + gg.s(0, 1, 2)
    head = additive(terms, name="saved", distance_aware=True)
    model = dense_network(head)
    scramble(head)
    if flags == "changed":
        head.frozen = ("kernel", "variational.site_shift")
    want = model(FEATURES)
    if way == "keras":
        model.save(tmp_path / "net.keras")
        again = keras.models.load_model(tmp_path / "net.keras")
        other = again.get_layer("saved")
        assert other.frozen == head.frozen
    else:
        other = additive(terms, name="saved", distance_aware=True)
        again = dense_network(other)
        if flags == "other":
            other.frozen = ("inducing_variable", "kernel", "likelihood")
        if way == "weights":
            model.save_weights(tmp_path / "net.weights.h5")
            again.load_weights(tmp_path / "net.weights.h5")
        else:
            saved = tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
            tf.train.Checkpoint(again).read(saved).assert_existing_objects_matched()
    for path, variable in head._state().items():
        np.testing.assert_array_equal(variable, other._state()[path], err_msg=path)
    np.testing.assert_array_equal(again(FEATURES), want)


def test_a_file_that_lacks_one_parameter_is_refused(tmp_path: Path) -> None:
    head = additive(name="part")
    model = dense_network(head)
    where = tmp_path / "net.weights.h5"
    model.save_weights(where)
    before = numbers(head)
    with h5py.File(where, "a") as file:
        names: list[str] = []
        file.visit(names.append)
        del file[next(name for name in names if name.endswith("variational.site_shift"))]
    scramble(head)
    assert not [k for k, v in numbers(head).items() if v.size and np.array_equal(v, before[k])]
    with unchanged(head), pytest.raises(ValueError, match=r"lacks variational\.site_shift"):
        model.load_weights(where)


@pytest.mark.parametrize(
    ("terms", "message"),
    [(gg.s(0) + gg.s(2), "lacks|holds"), (gg.s(0, k=9) + gg.s(1), "was it saved with other terms")],
)
def test_files_of_other_terms_are_refused(tmp_path: Path, terms: Any, message: str) -> None:
    where = tmp_path / "net.weights.h5"
    dense_network(additive(name="terms")).save_weights(where)
    with pytest.raises(ValueError, match=message):
        dense_network(additive(terms, name="terms")).load_weights(where)


def test_configuration_and_clones(trained: tuple[keras.Model, AdditiveGP]) -> None:
    model, head = trained
    again = AdditiveGP.from_config(head.get_config())
    assert again.get_config() == head.get_config()
    assert [v.shape for v in again._state().values()] == [v.shape for v in head._state().values()]
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(FEATURES), model(FEATURES))
    own = clone.get_layer("trained")
    assert own is not head
    assert own.loss._head() is own
    for one in (own, head):  # both of one name
        by_name = keras.losses.deserialize(keras.losses.serialize(one.loss))
        by_name(RESPONSE, one(FEATURES))
        assert by_name._head() is one


def test_gpflow_trains_what_has_entries() -> None:
    head = small(normalization=None)
    head.loss(RESPONSE, head(FEATURES, training=True))
    data = (head.scaled(FEATURES), RESPONSE[:, None])
    closure = head.model.training_loss_closure(data)
    before = float(closure())
    variables = head.model.trainable_variables
    gpflow.optimizers.Scipy().minimize(closure, variables, options={"maxiter": 3})
    assert float(closure()) < before


def test_gpflow_samples_where_keras_has_moved_to() -> None:
    """By slopes of transforms, and by a prior on the unconstrained value, that are those there."""
    normal = tfp.distributions.Normal(np.float64(0.0), np.float64(0.1))
    options = {"prior": normal, "prior_on": "unconstrained"}
    options["transform"] = gpflow.utilities.positive()
    kernel = gpflow.kernels.SquaredExponential()
    kernel.lengthscales = gpflow.Parameter(0.7, **options)
    head = small(gg.s(0, kernel=kernel))
    scramble(head)
    named = {n: p for n, p in head.parameters.items() if n.startswith(("kernel", "likelihood"))}
    for p in named.values():
        x = tf.convert_to_tensor(p.unconstrained_variable)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = p.transform.forward(x)
        want = tf.reduce_sum(tf.math.log(tape.gradient(y, x)))
        rank = x.shape.ndims
        np.testing.assert_allclose(p.transform.forward_log_det_jacobian(x, rank), want, rtol=1e-6)
        np.testing.assert_allclose(p.transform.inverse_log_det_jacobian(y, rank), -want, rtol=1e-6)
    (own,) = (p for name, p in named.items() if name.endswith("lengthscales"))
    want = gpflow.Parameter(own.numpy(), **options).log_prior_density()
    for p in (own, gpflow.utilities.deepcopy(own)):
        np.testing.assert_allclose(p.log_prior_density(), want, rtol=1e-6)


def test_one_place_for_flags() -> None:
    head = additive()
    parameters = head.parameters
    lengthscale = "kernel.components['s(0)'].kernels[1].base.lengthscales"
    assert parameters[lengthscale].trainable
    assert not parameters["inducing_variable.components['s(0)']"].trainable
    head.frozen = ("kernel",)
    assert not parameters[lengthscale].trainable
    assert parameters["inducing_variable.components['s(0)']"].trainable
    head.trainable = False
    assert head.trainable_weights == []
    assert not parameters["likelihood.variance"].trainable
    head.trainable = True  # what is frozen stays frozen
    names = {p for p, v in head._adopted.variables.items() if v.trainable}
    assert not any(p.startswith("kernel") for p in names)
    assert parameters["likelihood.variance"].trainable
    with pytest.raises(ValueError, match="no parameter's path begins with 'kernels'"):
        head.frozen = ("kernels",)


def test_flags_that_training_would_not_heed() -> None:
    head = small(frozen=(), normalization=None)
    for name in ("likelihood.variance", "inducing_variable.components['s(0)']"):
        match = f"{re.escape(name)} is not trainable for GPflow.*head.frozen"
        gpflow.set_trainable(head.parameters[name], False)
        with pytest.raises(ValueError, match=match):
            head.loss(RESPONSE, head(FEATURES, training=True))
        head.frozen = (*head.frozen, name)
    head.loss(RESPONSE, head(FEATURES, training=True))


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_inducing_inputs_move_when_free() -> None:
    head = small(frozen=(), normalization=None)
    before = np.array(head.model.inducing_variable["s(0)"])
    inputs = keras.Input((3,))
    compiled(keras.Model(inputs, head(inputs)), head).fit(
        FEATURES, RESPONSE, epochs=1, batch_size=45, verbose=0
    )
    assert np.max(np.abs(np.array(head.model.inducing_variable["s(0)"]) - before)) > 1e-3
