"""Networks with heads as SavedModels: ours, and those that Keras and TensorFlow write."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from head_cases import lively

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP
from gpflow_gam.serving.portable import graph_bytes
from gpflow_gam.serving.servable import Rows, servable

N = 30
RNG = np.random.default_rng(5)
X = np.column_stack([RNG.normal(size=(N, 2)), np.arange(N) % 3]).astype("float32")


def head(terms: Any = None, **options: Any) -> AdditiveGP:
    return lively(gg.s(0) if terms is None else terms, **options)


@pytest.mark.slow
def test_keras_and_tensorflow_write_heads(tmp_path: Path) -> None:
    """Names such as ``te(0,1)`` are none that a SavedModel takes for a variable."""
    inputs = keras.Input((3,))
    one = head(gg.s(0, by=1) + gg.te(0, 1) + gg.factor(2), num_levels={2: 3})
    two = [one, head(likelihood="poisson")]
    model = keras.Model(inputs, [h(inputs) for h in two])
    model.export(str(tmp_path / "m"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    for a, b in zip(loaded.serve(X), model(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


# --- as we write them ----------------------------------------------------------------------------


class Inside(keras.Model):
    """A model that calls a head itself."""

    def __init__(self, inner: AdditiveGP) -> None:
        super().__init__()
        self.dense, self.inner = keras.layers.Dense(2), inner

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.inner(keras.ops.tanh(self.dense(inputs)))


def served_features(model: keras.Model, *inputs: Any) -> Any:
    """What goes into the posterior, before anything is written."""
    result = servable(model)
    arguments = {
        i.name: tf.constant(x, i.dtype) for i, x in zip(result.inputs, inputs, strict=True)
    }
    (features,) = result.features(arguments, Rows("error"))
    return features.numpy()


def test_features_are_those_of_the_call_that_is_exported() -> None:
    """The head's own ``input`` is that of its first call, wherever that was."""
    inputs = keras.Input((3,))
    one, layers = head(normalization=None), [keras.layers.Dense(2) for _ in range(2)]
    first = keras.Model(inputs, one(layers[0](inputs)))
    second = keras.Model(inputs, one(layers[1](inputs), output="response"))
    for model, layer in ((first, layers[0]), (second, layers[1])):
        want = layer(X).numpy()[:, :1]
        np.testing.assert_allclose(served_features(model, X), want, rtol=1e-6)
    sequential = keras.Sequential([keras.Input((3,)), layers[0], one])
    np.testing.assert_array_equal(served_features(sequential, X), served_features(first, X))


@pytest.mark.skipif(
    tuple(map(int, keras.version().split(".")[:2])) < (3, 14), reason="Keras refuses the model"
)
def test_inputs_that_no_output_reads() -> None:
    inputs, other = keras.Input((3,)), keras.Input((3,))
    direct = keras.Model([other, inputs], head(normalization=None)(inputs))
    np.testing.assert_array_equal(served_features(direct, 2.0 * X, X), X[:, :1])


def test_heads_inside_of_other_models() -> None:
    inputs = keras.Input((3,))
    one, dense = head(normalization=None), keras.layers.Dense(3)
    inside = Inside(one)
    between = keras.Model(inputs, [dense(inputs), inside(dense(inputs))])
    outer = keras.Input((3,))
    model = keras.Model(outer, between(keras.layers.Rescaling(2.0)(outer))[1])
    want = np.tanh(inside.dense(dense(2.0 * X)))[:, :1]
    for _ in range(2):  # once more: what the first left behind is not taken for calls
        np.testing.assert_allclose(served_features(model, X), want, rtol=1e-6)
    wrapped = Inside(head())
    wrapped(X)
    with pytest.raises(ValueError, match="does not say what its inputs are"):
        servable(wrapped)


class Opaque(keras.Model):
    """A model that computes in TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.inner = head(name="inner", normalization=None)
        self.power = tf.Variable(1.5)  # that Keras does not know
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([0, 1, 2], [0.5, -1.0, 2.0]), 0.0
        )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        codes = self.table.lookup(tf.cast(inputs[:, 2], tf.int32))
        features = tf.sin(self.power * self.dense(inputs)) + codes[:, None]
        return self.inner(features)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape[0], 1, 2


@pytest.mark.slow
def test_heads_behind_functions_of_tensorflow(tmp_path: Path) -> None:
    """No graph of Keras shows them; variables and tables of theirs go into the file."""
    inputs, outer = keras.Input((3,)), keras.Input((3,), name="x")
    opaque = Opaque()
    between = keras.Model(inputs, opaque(keras.layers.Rescaling(0.5)(inputs)))
    model = keras.Model(outer, between(keras.layers.Rescaling(2.0)(outer)))
    gg.serving.export(model, tmp_path / "m")
    moments = model(X).numpy()[:, 0]
    loaded = gg.serving.load(tmp_path / "m")
    for rows in (X, X[:1]):
        result = loaded.predict({"x": rows})
        np.testing.assert_allclose(result["mean"], moments[: len(rows), 0], rtol=1e-6)
        np.testing.assert_allclose(result["variance"], moments[: len(rows), 1], rtol=1e-6)
    codes = np.array([0.5, -1.0, 2.0])[X[:, 2].astype(int)]
    want = np.sin(1.5 * opaque.dense(X).numpy()) + codes[:, None]  # scaled twice, by 2 and a half
    np.testing.assert_allclose(served_features(model, X), want[:, :1], rtol=1e-5)
    np.testing.assert_array_equal(model(X).numpy()[:, 0], moments)  # as it was


@pytest.mark.slow
def test_several_heads(tmp_path: Path) -> None:
    """Each answers as in a file of its own, under its name; what they share is computed once."""
    inputs = keras.Input((3,), name="x", dtype="float64")
    hidden = keras.layers.Dense(2, dtype="float64")(inputs)
    one = head(gg.s(0), likelihood="poisson", name="one")
    two = head(gg.s(0) + gg.s(1), likelihood="softmax", num_classes=3, name="one_mean")
    model = keras.Model(inputs, [one(hidden), two(hidden)])
    gg.serving.export(model, tmp_path / "m", invalid="nan")
    served = gg.serving.load(tmp_path / "m")
    rows = {"x": X.astype(float)}
    result, parts = served.predict(rows), served.predict_components(rows)
    draws = served.sample(rows, 400, seed=3)
    alone = {}
    for h in (one, two):
        gg.serving.export(keras.Model(inputs, h(hidden)), tmp_path / h.name)
        alone[h.name] = gg.serving.load(tmp_path / h.name)
        want = alone[h.name].predict_components(rows)
        assert parts[f"{h.name}_names"].tolist() == want.pop("names").tolist()
        for answers, wanted in ((result, alone[h.name].predict(rows)), (parts, want)):
            for name, values in wanted.items():
                np.testing.assert_allclose(
                    answers[f"{h.name}_{name}"], values, rtol=1e-12, atol=1e-14
                )
    assert (len(result), len(parts), len(draws)) == (12, 6, 4)  # one of several predictors
    assert served.description["heads"] == ["one", "one_mean"]
    assert served.description["likelihood"] == {"one": "Poisson", "one_mean": "FixedSoftmax"}
    # draws: each head's own, and of no other's random numbers
    a, b = draws["one_predictor"], draws["one_mean_predictor"]
    np.testing.assert_allclose(a.mean(0), result["one_mean"], atol=5.0 * a.std(0).max() / 20.0)
    for k in range(3):
        assert abs(np.corrcoef(a[:, 0], b[:, 0, k])[0, 1]) < 0.25
    strange = rows["x"].copy()
    strange[1] = np.inf
    for name, values in served.predict({"x": strange}).items():
        bad = np.isnan(values.reshape(N, -1)).all(axis=1)
        assert bad.tolist() == [i == 1 for i in range(N)], name


def test_outputs_of_one_name_are_refused() -> None:
    inputs = keras.Input((3,))
    result = servable(keras.Model(inputs, [head(name=n)(inputs) for n in ("a", "a_component")]))
    with pytest.raises(ValueError, match="two outputs would be called 'a_component_mean'; rename"):
        graph_bytes(result, ".onnx", 0.9)
    classes = {"likelihood": "softmax", "num_classes": 3}
    two = [head(name="a", **classes), head(name="a_mean")]
    result = servable(keras.Model(inputs, [h(inputs) for h in two]))
    with pytest.raises(ValueError, match="two outputs would be called 'a_mean_lower'; rename"):
        graph_bytes(result, ".onnx", 0.9)


def test_heads_that_are_called_again() -> None:
    inputs = keras.Input((3,))
    one = head()
    again = keras.layers.Flatten()(one(inputs))
    with pytest.raises(ValueError, match=f"something is computed from what {one.name} returns"):
        servable(keras.Model(inputs, one(again)))
    with pytest.raises(ValueError, match="is called 2 times"):
        servable(keras.Model(inputs, [one(inputs), one(2.0 * inputs)]))
    other, moments = head(name="other"), one(inputs)
    for outputs in (
        [one(inputs), other(keras.layers.Flatten()(one(inputs)))],
        [moments, other(keras.layers.Flatten()(moments))],  # once, and for another head
        other(keras.layers.Flatten()(one(inputs))),
        [moments, keras.layers.Flatten()(moments)],
    ):
        with pytest.raises(ValueError, match="something is computed from what"):
            servable(keras.Model(inputs, outputs))
    with pytest.raises(ValueError, match="is called 2 times"):
        servable(keras.Model(inputs, [moments, moments]))
    with pytest.raises(ValueError, match=r"rows \[N, F\].*features \(None, 7, 3\), which are"):
        servable(keras.Sequential([keras.Input((7, 3)), head()]))
    for call in (one, tf.function(one)):  # whatever was asked of it before
        assert isinstance(call(X), tf.Tensor)


@pytest.mark.slow
@pytest.mark.parametrize("invalid", ["error", "nan"])
def test_tables_of_other_layers_and_keys_of_inputs(invalid: Any, tmp_path: Path) -> None:
    x, g = keras.Input((1,)), keras.Input((1,), dtype="string")
    codes = keras.layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=1)(g)
    features = keras.layers.Concatenate()([x, keras.ops.cast(codes, "float32") - 1.0])
    one = head(gg.s(0) + gg.factor(1), num_levels={1: 2}, normalization=None)
    with pytest.warns(UserWarning, match="keys in the dict must match"):
        model = keras.Model({"per cent": x, "group": g}, one(features))
    gg.serving.export(model, tmp_path / "m", invalid=invalid)
    served = gg.serving.load(tmp_path / "m")
    assert [i["name"] for i in served.description["inputs"]] == ["group", "per_cent"]
    assert [i["column"] for i in served.description["inputs"]] == ["group", "per cent"]
    data = {"per cent": X[:4, :1], "group": np.array([["a"], ["b"], ["b"], ["a"]])}
    want = one(np.column_stack([X[:4, 0], [0.0, 1.0, 1.0, 0.0]])).numpy()[:, 0]
    result = served.predict(data)
    np.testing.assert_allclose(result["mean"], want[:, 0], rtol=1e-10)
    renamed = {"per_cent": data["per cent"], "group": data["group"]}
    np.testing.assert_array_equal(served.predict(renamed)["mean"], result["mean"])
    data["group"][2] = "z"
    if invalid == "error":
        with pytest.raises(tf.errors.InvalidArgumentError, match="feature 1 must hold codes"):
            served.predict(data)
        return
    for name, values in served.predict(data).items():
        assert np.isnan(values).tolist() == [False, False, True, False], name
    np.testing.assert_array_equal(
        np.delete(served.predict(data)["mean"], 2), result["mean"][[0, 1, 3]]
    )


def test_a_head_that_was_never_adapted(tmp_path: Path) -> None:
    inputs = keras.Input((3,))
    raw = head(normalization="adapt")
    model = keras.Model(inputs, raw(inputs))
    with pytest.raises(ValueError, match=r"does not know its features yet: call adapt"):
        gg.serving.export(model, tmp_path / "m")
