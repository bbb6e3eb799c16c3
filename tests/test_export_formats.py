"""ONNX and LiteRT files: the same numbers as the model's, by runtimes without TensorFlow and us."""

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import scipy.special
import tensorflow as tf
from exported_files import (
    additive_model,
    answered,
    arguments,
    close,
    columns,
    counts,
    description,
    exported,
    prior_variance,
    run,
    values_of,
)
from head_cases import additive, lively

import gpflow_gam as gg
from gpflow_gam.gam.tables import TablePosterior
from gpflow_gam.layers import AdditiveGP
from gpflow_gam.serving.portable import FORMULAS, check, litert_bytes, litert_runner
from gpflow_gam.serving.servable import Answers, Input, Rows, servable

pytestmark = pytest.mark.filterwarnings("ignore::gpflow_gam.ExtrapolationWarning")
onnx = pytest.importorskip("onnx", reason="the package onnx writes what is tested here")

N = 120


def request() -> pd.DataFrame:
    """Rows beside the data, some beyond them, and with new levels of the random effects."""
    data = columns(9, 7)
    data.loc[0, "x"], data.loc[1, "z"] = 1.4, -0.3
    data.loc[3:5, "site"] = [99, 98, -1]
    data.loc[5:6, "who"] = "new"
    return data


@pytest.fixture(scope="module")
def files(runtime, tmp_path_factory) -> tuple[gg.GAM, dict[str, Any], dict[str, Any]]:
    """The GAM, how its ONNX file describes itself, and what files answer."""
    folder, gam, jobs = tmp_path_factory.mktemp("files"), counts(), []
    strange = request().iloc[:5].copy()
    strange.loc[1, "Group of"], strange.loc[2, "x"], strange.loc[3, "x"] = "zz", np.nan, np.inf
    strange.loc[4, "who"] = ""  # a level that is missing is not one that is new
    for kind, suffix in (("double", ".onnx"), ("lite", ".tflite")):
        path = folder / f"{kind}{suffix}"
        gg.serving.export(gam, path, level=0.9)
        for name, rows in (("", request()), ("odd ", strange), ("none ", request()[:0])):
            if name != "none " or kind == "double":
                out = folder / f"{name}{kind}.npz"
                jobs.append((path, arguments(path, rows, f".{name.strip()}"), out))
    run(jobs)
    about = description(folder / "double.onnx")
    return gam, about, {out.stem: dict(np.load(out)) for _, _, out in jobs}


@pytest.mark.parametrize(
    ("kind", "dtype", "rtol", "alone"),
    [("double", np.float64, 1e-10, 1e-13), ("lite", np.float32, 1e-3, 1e-5)],
)
def test_numbers_and_rows_that_cannot_be_taken(files, kind, dtype, rtol, alone):
    """These are NaN, and the others as without them."""
    gam, about, result = files
    assert {v.dtype for v in result[kind].values()} == {np.dtype(dtype)}
    prior = 1.0 if kind == "double" else prior_variance(gam)
    close(result[kind], values_of(gam, request(), about), rtol, prior=prior)
    for name, values in result[f"odd {kind}"].items():
        assert np.all(np.isnan(values[1:])), name
        np.testing.assert_allclose(values[0], result[kind][name][0], rtol=alone, atol=alone / 10)
    assert {len(v) for v in result["none double"].values()} == {0}


@pytest.mark.parametrize("name", ["wide", pytest.param("far", marks=pytest.mark.slow)])
def test_tables_where_single_precision_loses_digits(name, runtime, tmp_path):
    """Far from zero, or with a wide prior; what has no tables is refused."""
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"x": rng.integers(0, 100, 300).astype(float)})
    df = df.assign(g=rng.choice(["a", "b"], 300), far=94_100.0 + df["x"])
    y = np.sin(0.06 * df["x"]) + (df["g"] == "b") + 0.05 * rng.normal(size=300)
    path, terms = tmp_path / "m.tflite", {"wide": gg.s("x", k=8) + gg.factor("g")}
    gam = gg.GAM(terms.get(name, gg.s("far", k=8))).fit(df, y, max_iterations=15)
    gg.serving.export(gam, path)
    run([(path, arguments(path, df), tmp_path / "m.npz")])
    result, (mean, se) = (
        np.load(tmp_path / "m.npz"),
        gam.predict(df, type="link", se=True, unconditional=False),
    )
    np.testing.assert_allclose(result["mean"], mean, atol=2e-4 * np.ptp(mean))
    np.testing.assert_allclose(np.sqrt(result["variance"]), se, rtol=0.005)
    if name == "far":
        three = gg.s("far", "x", "z", k=20, isotropic=False) + gg.factor("g")
        gam = gg.GAM(three).fit(df.assign(z=rng.uniform(size=300)), y, max_iterations=15)
        with pytest.raises(ValueError, match="its mean is .* of its size away"):
            gg.serving.export(gam, tmp_path / "three.tflite")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("case", ["by", "scale", "periodic te", "no intercept", "sos"])
def test_predictions_from_tables_are_the_posteriors(case: str) -> None:
    fit = fitted_case(case).fitted
    X, posterior = tf.constant(fit.X), TablePosterior.of(fit)
    for name in ("predict_f", "predict_components"):
        (mean, var), (true_mean, true_var) = (
            getattr(p, name)(X) for p in (posterior, fit.posterior)
        )
        np.testing.assert_allclose(mean, true_mean, atol=3e-4 * np.ptp(true_mean))
        away = np.abs(np.sqrt(var) - np.sqrt(np.maximum(true_var, 0.0)))
        assert np.max(away) < 0.01 * np.sqrt(np.max(true_var))


@pytest.mark.slow
def test_files_are_written_without_warnings_of_tensorflow(tmp_path, caplog):
    data = columns(60, 7)
    gam = gg.GAM(gg.s("x", k=4) + gg.random_effect("who")).fit(data, data["z"], max_iterations=2)
    for name in ("m.onnx", "m.tflite"):
        gg.serving.export(gam, tmp_path / name)
    assert [r.getMessage() for r in caplog.records if r.name == "tensorflow"] == []


def test_models(runtime, tmp_path):
    """As SavedModels serve them."""
    X = np.random.default_rng(5).uniform(size=(7, 2))
    for name in ("sgpr", "newton"):
        model = additive_model(name)
        gg.serving.export(model, tmp_path / name)
        values = answered(gg.serving.load(tmp_path / name), X)
        for result, rtol in zip(exported(model, tmp_path, X, name), (1e-12, 1e-3), strict=True):
            close(result, values, rtol)


# --- what stands in for functions that formats lack --------------------------------------------


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
def test_formulas(dtype):
    x = np.concatenate([-np.logspace(1.2, -9, 40), [0.0], np.logspace(-9, 1.2, 40)])
    x = x.astype(dtype.as_numpy_dtype)
    y = np.roll(x, 7)
    wide = x.astype(np.float64)
    eps = float(np.finfo(x.dtype).eps)
    for name, given, wanted in (
        ("Expm1", (x,), np.expm1(wide)),
        ("Log1p", (np.abs(x),), np.log1p(np.abs(wide))),
        ("Softplus", (x,), np.logaddexp(0.0, wide)),
        ("Tan", (0.1 * x,), np.tan(0.1 * x.astype(np.float64))),
        ("Atan2", (x, y), np.arctan2(wide, y.astype(np.float64))),
        ("Acos", (np.tanh(-np.abs(x)),), np.arccos(np.tanh(-np.abs(x)).astype(np.float64))),
    ):
        result = FORMULAS[name](None, *(tf.constant(a) for a in given))
        np.testing.assert_allclose(result, wanted, rtol=8.0 * eps, atol=1e-300, err_msg=name)
    # of kernels that add it to numbers of size one
    erf = FORMULAS["Erf"](None, tf.constant(x))
    np.testing.assert_allclose(erf, scipy.special.erf(wide), rtol=0.0, atol=100.0 * eps)
    erfc = FORMULAS["Erfc"](None, tf.constant(x[np.abs(x) < 5.0]))
    wanted = scipy.special.erfc(wide[np.abs(x) < 5.0])
    np.testing.assert_allclose(erfc, wanted, rtol=100.0 * eps)
    positive = np.concatenate([np.abs(x), 1.0 + np.linspace(0.0, 2.0, 40), [1e6]])
    every = np.concatenate([positive, -0.7 - np.arange(3.0)]).astype(x.dtype)
    wanted = scipy.special.gammaln(every.astype(np.float64))
    result = FORMULAS["Lgamma"](None, tf.constant(every[every != 0.0]))
    wanted = wanted[every != 0.0]
    assert np.max(np.abs(result - wanted) / np.maximum(1.0, np.abs(wanted))) < 100.0 * eps
    odd = tf.constant([np.nan, np.inf, -np.inf, 1.0], dtype)
    assert FORMULAS["IsInf"](None, odd).numpy().tolist() == [False, True, True, False]


def test_files_that_say_something_else_are_refused():
    inputs = [Input("x", tf.float32, (None,))]
    single = {"x": tf.TensorSpec((None,), tf.float32, name="x")}

    def function(factor: float, spec: Any) -> Any:
        call = tf.function(lambda *, x: {"twice": tf.cast(factor * x, tf.float32)}, autograph=False)
        return call.get_concrete_function(**spec)

    content = litert_bytes(function(2.0, single), "")
    check(litert_runner(content), function(2.0, single), inputs)
    with pytest.raises(ValueError, match="its twice is 0.05 of its size"):
        check(litert_runner(content), function(2.1, single), inputs)
    with pytest.raises(ValueError, match="its twice is inf of its size"):
        check(litert_runner(content), function(np.nan, single), inputs)
    bessel = tf.function(lambda x: {"y": tf.math.bessel_i0e(x)}, autograph=False)
    wrong = bessel.get_concrete_function(**single)
    with pytest.raises(ValueError, match=r"BesselI0e, which LiteRT does not have; export it as O"):
        litert_bytes(wrong, "")


# --- what cannot be written --------------------------------------------------------------------


def test_bad_options(tmp_path):
    model, path = additive_model("sgpr"), tmp_path / "m.onnx"
    for options, match in (
        ({"knots": {"x": [0.0, 1.0]}}, "knots is no option of m.onnx"),
        ({"table": "new"}, "table is no option of m.onnx"),
        ({"invalid": "error"}, "invalid is no option of m.onnx"),
        ({"level": 1.0}, "level must be a probability"),
    ):
        with pytest.raises(ValueError, match=match):
            gg.serving.export(model, path, **options)
    for name in ("m.csv", "m.XLS", "m.parquet", "m.yaml"):
        with pytest.raises(ValueError, match=r"path: \..* is none of \.json, .*onnx"):
            gg.serving.export(model, tmp_path / name)
    assert not list(tmp_path.iterdir())
    gg.serving.export(model, tmp_path / "model.v1" / "1.2")
    assert gg.serving.load(tmp_path / "model.v1" / "1.2").description["kind"] == "model"
    path.mkdir()
    with pytest.raises(FileExistsError, match="a file a file"):
        gg.serving.export(model, path, overwrite=True)
    path.rmdir()
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gg.serving.export(model, path)
    assert path.read_bytes() == b"mine"


@pytest.mark.slow
def test_several_heads_and_iterncgp(runtime, tmp_path):
    """Outputs by the heads' names; posteriors of both engines."""
    rng = np.random.default_rng(8)
    X = rng.uniform(size=(60, 2))
    heads = []
    for name, shape in (("one", None), ("up", "increasing"), ("bent", "convex")):
        terms = gg.s(0, shape=shape) + gg.s(1)
        one = AdditiveGP(terms, "poisson", num_data=60, num_inducing=6, name=name)
        one.adapt(X)
        q_mu = one.parameters["variational.site_shift"]
        q_mu.assign(rng.normal(size=q_mu.shape))
        heads.append(one)
    two = gg.layers.IterNCGP(gg.s(1), "gaussian", name="two")
    two.fit(X, np.sin(6.0 * X[:, 1]), hyperparameters=False)
    heads.append(two)
    inputs = keras.Input((2,), name="inputs", dtype="float64")
    model = keras.Model(inputs, [head(inputs) for head in heads])
    # beside what the data say, the prior is large
    assert np.min(two(X)[:, 0, 1]) < 0.01 * np.max(two.kernel(X, full_cov=False))
    served = servable(model)
    features = served.features({"inputs": tf.constant(X)}, Rows("error"))
    values = served.each(lambda head, x: head.predict(x, 0.95), features)
    for name, parts in served.each(Answers.predict_components, features).items():
        values[re.sub("(mean|variance)$", r"component_\1", name)] = parts
    for head in heads:  # which is what the layers say
        moments, parts = (head(X, output=o).numpy() for o in ("moments", "components"))
        for start, both in (("", moments[:, 0]), ("component_", parts.reshape(60, -1, 2))):
            for i, kind in enumerate(("mean", "variance")):
                own = values[f"{head.name}_{start}{kind}"]
                np.testing.assert_allclose(own, both[..., i], rtol=1e-7, atol=1e-9)
    for result, rtol in zip(exported(model, tmp_path, X), (1e-11, 1e-3), strict=True):
        for key, want in values.items():
            atol = rtol * np.max(np.abs(want))
            np.testing.assert_allclose(result[key], want, rtol=0.0, atol=atol, err_msg=key)
    for name in ("m.onnx", "m.tflite"):
        about = description(tmp_path / name)
        assert about["components"] == {h.name: list(h.names) for h in heads}


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'gpflow_gam\[onnx\]'"):
        gg.serving.export(additive_model("sgpr"), tmp_path / "m.onnx")


class Strange(gpflow.kernels.SquaredExponential):
    """Computed by what ONNX does not have."""

    def K_r2(self, r2):
        return tf.math.bessel_i0e(r2)


@pytest.mark.slow
def test_operations_and_checks_that_onnx_lacks(tmp_path):
    Z = np.linspace(0.0, 1.0, 4)[:, None]
    inducing = gg.inducing_variables.AdditiveInducingVariables({"f": Z})
    X = np.linspace(0.0, 1.0, 20)[:, None]
    strict = gg.kernels.ZeroMean(
        gpflow.kernels.Matern32(active_dims=[0]), gg.measures.Uniform(0.0, 1.0)
    )
    for own, match in (
        (Strange(active_dims=[0]), "(?s)cannot be written as ONNX.*BesselI0e"),
        (strict, "checks its inputs while it predicts.*extrapolate=True"),
    ):
        additive = gg.kernels.AdditiveKernel({"f": own})
        model = gg.models.AdditiveSGPR((X, np.sin(X)), additive, inducing)
        with pytest.raises(ValueError, match=match):
            gg.serving.export(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def test_loops_are_refused(tmp_path):
    """Of which only the first state was written, whatever came in."""
    inputs = keras.Input((7, 3))
    for layer in (keras.layers.LSTM(2), keras.layers.Bidirectional(keras.layers.GRU(1))):
        model = keras.Model(inputs, lively()(layer(inputs)))
        with pytest.raises(ValueError, match="predicts by a loop .*give recurrent.*unroll=True"):
            gg.serving.export(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_sequences_of_any_length(runtime, tmp_path):
    """Sizes that halve, and windows longer than a short sequence, follow those of a request."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((None, 3), name="inputs")
    hidden = keras.layers.MaxPooling1D(2)(keras.layers.Conv1D(4, 5)(inputs))
    hidden = keras.layers.Dense(2, activation="tanh")(hidden)
    model = keras.Model(inputs, lively()(keras.layers.GlobalAveragePooling1D()(hidden)))
    rng = np.random.default_rng(0)
    for shape in ((5, 11, 3), (1, 40, 3)):
        X = rng.normal(size=shape)
        wanted = model(X).numpy()[:, 0]
        for result, rtol in zip(exported(model, tmp_path, X, f"m{shape[0]}"), (1e-5, 1e-3)):
            found = np.stack([result["mean"], result["variance"]], axis=-1)
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


def test_lite_is_compared_where_the_data_are(tmp_path):
    """Little of the prior is left there; in [0, 1), far away, nearly all of it."""
    X = np.random.default_rng(0).uniform(50.0, 100.0, size=(2000, 1))
    y = np.sin(X / 8.0)
    inducing = gg.inducing_variables.AdditiveInducingVariables(
        {"a": np.linspace(50, 100, 20)[:, None]}
    )
    kernel = gg.kernels.AdditiveKernel({"a": gpflow.kernels.Matern52(1.0, 30.0, active_dims=[0])})
    matrix = gg.models.AdditiveSGPR((X, y), kernel, inducing)
    matrix.likelihood.variance.assign(1e-4)
    own = {"num_data": 2000, "num_inducing": 20, "normalization": "adapt", "scale": 0.7}
    head = additive(gg.s(0), **own)
    head.adapt(X, y)
    head.parameters["likelihood.variance"].assign(1e-4)
    head.loss(y, head(X, training=True))
    inputs = keras.Input((1,))
    behind = head(keras.layers.Rescaling(10.0)(inputs))
    for model in (matrix, keras.Model(inputs, head(inputs)), keras.Model(inputs, behind)):
        with pytest.raises(ValueError, match="its variance is .* of its size away"):
            gg.serving.export(model, tmp_path / "m.tflite")


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "terms", [gg.s(0, by=gg.factor(1)), gg.factor(1), gg.factor(1) + gg.s(2, 3, bs="sos")]
)
def test_heads_that_read_levels_and_degrees(runtime, tmp_path, terms):
    """Rows with others are NaN, alone."""
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=9), np.arange(9) % 3, rng.uniform(-90, 90, (9, 2))])
    head = lively(terms, normalization=None, num_levels={1: 3})
    inputs = keras.Input((4,), name="inputs", dtype="float64")
    wanted = head(X).numpy()[:, 0]
    X[4, 1:3] = 3.0, 91.0
    for result, rtol in zip(exported(keras.Model(inputs, head(inputs)), tmp_path, X), (1e-7, 1e-3)):
        found = np.stack([result["mean"], result["variance"]], axis=-1)
        np.testing.assert_allclose(np.delete(found, 4, 0), np.delete(wanted, 4, 0), rtol, rtol)
        assert np.all(np.isnan(found[4]))


@pytest.mark.slow
def test_layers_in_half_precision(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X = np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)
    inputs = keras.Input((2,), name="inputs")
    hidden = keras.layers.Dense(2, dtype="mixed_float16")(inputs)
    head = AdditiveGP(gg.s(0), num_data=60, num_inducing=4, normalization=None)
    q_mu = head.parameters["variational.site_shift"]
    q_mu.assign(np.linspace(-1.0, 1.0, q_mu.shape[-2])[:, None] + 0.0 * q_mu)
    model = keras.Model(inputs, head(hidden))
    gg.serving.export(model, tmp_path / "m.onnx")
    run = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run
    wanted = model(X).numpy()[:, 0, 0]
    atol = 2e-3 * np.max(np.abs(wanted))
    np.testing.assert_allclose(run(["mean"], {"inputs": X.astype(float)})[0], wanted, atol=atol)
    with pytest.raises(ValueError, match="MatMul.*which LiteRT does not have"):
        gg.serving.export(model, tmp_path / "m.tflite")


NAMES = [
    *("class", "None", "async", "self", "args_0", "training", "name", "seed", "num_samples"),
    *("mean", "response", "component_mean", "mean_2", "x", "X", "x_class", "c0", "_c1", "v0_0"),
    *("a_b", "a.b", "a-b", "a b", "1st", "7", "_x", "größe", "日本", "", "a:0", "new\nline"),
]


@pytest.mark.slow
def test_every_column_name_that_a_fit_takes(tmp_path):
    """Under its own name wherever TensorFlow can hold it, and where no output of ONNX has it."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({name: rng.uniform(size=60) for name in NAMES})
    y = data @ np.linspace(-1.0, 1.0, len(NAMES)) + rng.standard_normal(60)
    data["def"] = rng.choice(["u", "v"], len(data))
    terms = sum((gg.linear(name) for name in NAMES), gg.factor("def"))
    gam = gg.GAM(terms).fit(data, y, max_iterations=1)
    expected = gam.predict(data, "link")
    paths = [tmp_path / name for name in ("m", "m.onnx", "m.tflite")]
    for path in paths:
        gg.serving.export(gam, path)
    served = gg.serving.load(paths[0])
    kept = {i["column"]: i["name"] for i in served.description["inputs"]}
    own = {"args_0", "training", "name", "mean", "response", "component_mean", "mean_2", "x", "a_b"}
    assert own <= {name for name, argument in kept.items() if name == argument}
    assert kept["class"] == "x_class_2"
    np.testing.assert_allclose(served.predict(data)["mean"], expected, rtol=1e-12, atol=1e-12)
    named = {argument: data[name] for name, argument in kept.items()}  # as other programs do
    raw = tf.saved_model.load(str(paths[0])).signatures["predict"]
    collected = raw(**{name: tf.constant(np.asarray(values)) for name, values in named.items()})
    np.testing.assert_allclose(collected["mean"], expected, rtol=1e-12, atol=1e-12)
    assert set(served.sample(data, 1)) == {"predictor", "response"}
    jobs = [[path, arguments(path, data, path.suffix), f"{path}.npz"] for path in paths[1:]]
    run(jobs)
    for (path, _, result), tolerance in zip(jobs, (1e-10, 1e-4)):
        with np.load(result) as collected:
            np.testing.assert_allclose(collected["mean"], expected, rtol=tolerance, atol=tolerance)
        about = {i["column"]: i["name"] for i in description(path)["inputs"]}
        assert set(about) == {*NAMES, "def"}
    assert about["mean"] == "mean"  # of LiteRT, the last one
    in_onnx = {i["column"]: i["name"] for i in description(paths[1])["inputs"]}
    assert in_onnx["class"] == "x_class_2"
    assert not {"mean", "response", "component_mean"} & set(in_onnx.values())


def test_columns_that_numbers_name(tmp_path):
    """They are an argument of all columns, of which a table gives those that it has."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(30, 3)), columns=[1, 2, 5])
    gam = gg.GAM(gg.linear(2) + gg.linear(5)).fit(data, data[2] - data[5], max_iterations=1)
    gg.serving.export(gam, tmp_path / "m")
    served = gg.serving.load(tmp_path / "m")
    expected = gam.predict(data, "link")
    for given in (data, data[[5, 2]], {5: data[5], 2: data[2]}, data.reindex(columns=range(6))):
        np.testing.assert_allclose(served.predict(given)["mean"], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="no column 5"):
        served.predict(data[[1, 2]])
    data[5] = np.where(data[1] < 0.5, "a", "b")  # text stands in no matrix of numbers
    gam = gg.GAM(gg.linear(2) + gg.factor(5)).fit(data, data[2].to_numpy(), max_iterations=1)
    gg.serving.export(gam, tmp_path / "text")
    served = gg.serving.load(tmp_path / "text")
    assert [i["name"] for i in served.description["inputs"]] == ["x_2", "x_5"]
    np.testing.assert_allclose(served.predict(data)["mean"], gam.predict(data, "link"), rtol=1e-12)


def test_columns_that_places_name_stay_in_their_places(tmp_path):
    """And others may hold what they like."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(30, 2)), columns=["a", "b"])
    data.insert(0, "id", [f"row {i}" for i in range(30)])
    data["kind"] = np.where(data["a"] < 0.5, "u", "v")
    for name, terms in (("matrix", gg.linear(1)), ("arguments", gg.linear(1) + gg.factor(3))):
        gam = gg.GAM(terms).fit(data, data["a"] - data["b"], max_iterations=1)
        gg.serving.export(gam, tmp_path / name)
        served = gg.serving.load(tmp_path / name)
        for given in (data, data.to_numpy()):
            known = gam.predict(given, "link")
            np.testing.assert_allclose(served.predict(given)["mean"], known, rtol=1e-10)
        for model in (gam, served):
            with pytest.raises(ValueError, match="column 1 of the data is 'b', and was 'a'"):
                model.predict(data[["id", "b", "a", "kind"]])


# --- all kinds of terms, and terms for each parameter --------------------------------------------

AREAS = {"p": ["q"], "q": ["p", "r"], "r": ["q", "s"], "s": ["r"]}


def rows(number: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(size=number),
            "z": rng.uniform(size=number),
            "t": np.arange(float(number)) % 40.0,
            "lat": rng.uniform(-80.0, 80.0, number),
            "lon": rng.uniform(-180.0, 180.0, number),
            "g": rng.choice(["a", "b", "c"], number),
            "area": rng.choice(list(AREAS), number),
        }
    )


def responses() -> dict[str, Any]:
    data, rng = rows(), np.random.default_rng(1)
    rho, scale = np.sin(3.0 * data["x"]), np.exp(data["z"] - 1.5)
    probability = np.stack([rho, data["z"], np.zeros(N)], axis=1)
    probability = np.exp(probability) / np.exp(probability).sum(axis=1, keepdims=True)
    counts = rng.poisson(np.exp(rho) * rng.gamma(2.0, 0.5, N))
    return {
        "number": 50.0 * (rho + scale * rng.standard_normal(N)),  # in a unit of its own
        "calm": rho + 0.1 * rng.standard_normal(N),
        "count": counts,
        "zeros": counts * (rng.uniform(size=N) < 0.7),
        "positive": rng.gamma(1.0 / scale, scale * np.exp(rho)),
        "share": rng.beta(2.0 + rho, 3.0),
        "truth": rho + rng.standard_normal(N) > 0.5,
        "class": np.array(["u", "v", "w"])[
            (probability.cumsum(axis=1) < rng.uniform(size=(N, 1))).sum(axis=1)
        ],
    }


# a narrow prior: rounding is of the prior's size, which is thirty times as large without
LEVELS = gg.factor("g", shrink=True)
WAVE, BOTH = gg.s("x", k=5), {"mean": gg.s("x", k=5), "scale": gg.s("z", k=4)}
NORMAL = {
    "convex": gg.s("x", k=6, shape="convex") + gg.linear("z"),
    "shape by level": gg.s("x", by="g", k=5, shape="concave"),
    "scale": {"mean": WAVE + gg.factor("g"), "scale": gg.s("z", k=4)},
    "no intercept": {"mean": gg.factor("g") + gg.s("x", k=4) - 1, "scale": gg.s("z", k=4)},
    "fs": gg.s("x", "g", bs="fs", k=4) + gg.te("x", "z", k=3),
    "by": gg.s("x", by="z", k=4) + gg.linear("z"),
    "cyclic": gg.s("t", bs="cyclic", period=40, k=5),
    "periodic te": gg.te("t", "x", bs=("cyclic", "se"), k=4),
    "matern12": gg.s("x", bs="matern12", k=6),
    "ou": gg.s("t", bs="ou"),
    "rw": gg.s("t", bs="rw"),
    "iou": gg.s("x", bs="iou", k=8),
    "ad": gg.s("x", bs="ad", k=12),
    "sos": gg.s("lat", "lon", bs="sos", k=12),
    "sz": gg.s("x", k=4) + gg.s("x", "g", bs="sz", k=4),
    "ti": gg.s("x", k=4) + gg.s("z", k=4) + gg.ti("x", "z", k=4),
    "two lengths": gg.s("x", "z", isotropic=False, k=9),
    "vanished": gg.s("x", kernel=gpflow.kernels.Exponential(), k=6),
}
KERNELS = {
    "arccosine": gpflow.kernels.ArcCosine(order=1),
    "rational": gpflow.kernels.RationalQuadratic(),
    "cosine": gpflow.kernels.Cosine(),
    "polynomial": gpflow.kernels.Polynomial(3),
    "exponential": gpflow.kernels.Exponential(),
}
LINKED = {
    "cloglog": (gg.families.Bernoulli("cloglog"), "truth"),
    "probit": (gg.families.Bernoulli("probit"), "truth"),
    "zero inflated": ("zero_inflated_poisson", "zeros"),
    "tweedie": ("tweedie", "positive"),
    "ordinal cauchit": (gg.families.Ordinal(("u", "v", "w"), "cauchit"), "class"),
    "ordinal cloglog": (gg.families.Ordinal(("u", "v", "w"), "cloglog"), "class"),
    "beta probit": (gg.families.Beta("probit"), "share"),
    "beta cauchit": (gg.families.Beta("cauchit"), "share"),
}
SCALED = {
    "gamma": ("gamma", "positive"),
    "gamma inverse": (gg.families.Gamma("inverse"), "positive"),
    "gaussian log": (gg.families.Gaussian("log"), "positive"),
    "negative binomial": ("negative_binomial", "count"),
    "beta": ("beta", "share"),
}
CASES: dict[str, tuple[Any, Any, str]] = {
    "shape and scale": (
        {"mean": gg.s("x", k=5, shape="increasing") + LEVELS, "scale": gg.s("z", k=4)},
        "gamma",
        "positive",
    ),
    **{name: (terms, "gaussian", "number") for name, terms in NORMAL.items()},
    **{n: (gg.s("x", kernel=k, k=6), "gaussian", "calm") for n, k in KERNELS.items()},
    **{name: (WAVE, *response) for name, response in LINKED.items()},
    **{name: (BOTH, *response) for name, response in SCALED.items()},
    "falling": (gg.s("x", k=6, shape="decreasing") + gg.s("z", k=4), "gamma", "positive"),
    "shape of te": (gg.te("x", "z", k=5, shape=("increasing", None)), "bernoulli", "truth"),
    "shapes": (gg.s("x", k=6, shape="increasing") + gg.s("z", k=5), "poisson", "count"),
    "student_t": ({"location": WAVE, "scale": gg.s("z", k=4)}, "student_t", "number"),
    "lognormal": ({"location": WAVE, "scale": gg.linear("z")}, "lognormal", "positive"),
    "weibull": ({"location": WAVE, "scale": LEVELS}, "weibull", "positive"),
    "hurdle": ({"mean": WAVE, "zero": gg.s("z", k=4)}, "hurdle_poisson", "zeros"),
    "classes": ({"u": WAVE, "v": gg.s("z", k=4)}, "categorical", "class"),
    "quantile": (
        {"quantile": WAVE, "scale": gg.linear("x")},
        gg.families.Quantile(tau=0.8),
        "number",
    ),
    "matern32": (gg.s("x", bs="matern32", k=6), "bernoulli", "truth"),
    "mrf": (gg.s("area", bs="mrf", neighbours=AREAS), "poisson", "count"),
}


def fitted_case(case: str) -> gg.GAM:
    terms, family, kind = CASES[case]
    with warnings.catch_warnings(action="ignore"):
        return gg.GAM(terms, family=family).fit(rows(), responses()[kind], max_iterations=8)


def tolerance(path: Path, name: str, case: str) -> float:
    """Of a file's output, as the page of serving has it."""
    if path.name.startswith("m.onnx"):
        return 1e-10
    rough = case in ("exponential", "arccosine")  # beside little noise
    if "variance" in name:
        return 5e-5 if rough else 1e-5
    if name.endswith(("lower", "upper")):
        return 1.5e-3
    return 1e-3 if rough else 2e-4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_numbers_of_every_case(runtime: None, tmp_path: Path, case: str) -> None:
    gam, data = fitted_case(case), rows(10_000, 7)
    data.loc[0, "x"] = 1.3
    jobs = []
    for name in ("m.onnx", "m.tflite"):
        gg.serving.export(gam, tmp_path / name, level=0.9)
        given = arguments(tmp_path / name, data, Path(name).suffix)
        jobs.append((tmp_path / name, given, tmp_path / f"{name}.npz"))
    run(jobs)
    about = description(tmp_path / "m.onnx")
    for _, _, path in jobs:
        result, values = dict(np.load(path)), values_of(gam, data, about)
        assert set(result) == set(values)
        for name, want in values.items():
            assert result[name].shape == want.shape, name
            assert np.all(np.isfinite(want)), name
            # each predictor, and each component of it, beside its own largest
            size = np.max(np.abs(want), axis=0)
            size = np.maximum(size, 1e-3 * size.max())  # but nothing beside what is nothing
            if "component_" in name:  # nor one that vanished beside the predictor
                whole = values[name.removeprefix("component_")]
                size = np.maximum(size, 1e-3 * np.max(np.abs(whole)))
            if "variance" in name:  # differences of the prior's
                size = np.maximum(size, prior_variance(gam))
            away = np.max(np.abs(result[name] - want) / size)
            assert away < tolerance(path, name, case), f"{case} {path.name} {name}: {away:.1e}"


def test_saved_models_say_the_same_of_each_parameter(tmp_path: Path) -> None:
    """And draw it: of the scale, too, in the response's unit."""
    gam, data = fitted_case("scale"), rows(9, 7)
    gg.serving.export(gam, tmp_path / "m", level=0.9)
    served = gg.serving.load(tmp_path / "m")
    result = answered(served, data)
    close(result, values_of(gam, data, served.description), 1e-10)
    assert served.description["predictors"] == ["mean", "log scale"]
    assert served.description["components"] == ["intercept", *gam.names]
    draws = served.sample(data, 4000, seed=2)["predictor"]
    sd = np.sqrt(result["variance"])
    z = (draws.mean(axis=0) - result["mean"]) / sd
    assert np.max(np.abs(z)) < 4.5 / np.sqrt(4000)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.06)
