"""SavedModels: the same numbers as the models', without their code."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from exported_files import additive_model, answered, close, columns, counts, values_of
from programs import output, python

import gpflow_gam as gg
from gpflow_gam.likelihoods import predictive

HERE = Path(__file__).parent
DATA = columns()
N = len(DATA)


def new(rows: int = 7) -> pd.DataFrame:
    return DATA.iloc[:rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("served")


def fitted(family: str, terms: Any, y: np.ndarray, data: Any = DATA, **options: Any) -> gg.GAM:
    return gg.GAM(terms, family=family, **options).fit(data, y, max_iterations=8)


def exported(model: Any, path: Path, **options: Any) -> gg.serving.Served:
    gg.serving.export(model, path, **options)
    return gg.serving.load(path)


@pytest.fixture(scope="module")
def claims(folder) -> tuple[gg.GAM, gg.serving.Served, Path]:
    gam = counts()
    return gam, exported(gam, folder / "counts", level=0.9), folder / "counts"


@pytest.fixture(scope="module")
def simple(folder) -> tuple[gg.GAM, gg.serving.Served, Path]:
    """A number and text: what other programs are fed."""
    data = {"x": DATA["x"], "g": DATA["Group of"]}
    noise = np.random.default_rng(2).standard_normal(N)
    y = np.sin(6.0 * data["x"]) + (data["g"] == "a") + 0.1 * noise
    gam = fitted("gaussian", gg.s("x", k=6) + gg.factor("g"), y, data)
    return gam, exported(gam, folder / "simple"), folder / "simple"


def same(gam: gg.GAM, served: gg.serving.Served, data: Any) -> None:
    """TensorFlow's numbers are numpy's, to rounding."""
    close(answered(served, data), values_of(gam, data, served.description), 1e-9)


# --- the same numbers --------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_counts(claims, rows):
    gam, served, _ = claims
    if rows:
        same(gam, served, new(rows))
    result = served.predict(new(rows))
    assert {v.shape for v in result.values()} == {(rows,)}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["categorical", "ordinal"])
def test_classes(family, folder):
    y = np.digitize(DATA["x"], [0.3, 0.7])
    gam = fitted(family, gg.s("x", k=5), y, variational="mean_field", seed=4)
    served = exported(gam, folder / family)
    same(gam, served, new(5))
    result = served.predict(new(1))
    assert result["response"].shape == (1, 3)
    assert result["mean"].shape == ((1, 3) if family == "categorical" else (1,))
    assert served.sample(new(4), 3)["response"].shape == (3, 4, 3)
    assert served.description["classes"] == [0, 1, 2]


def test_new_levels(claims):
    gam, served, _ = claims
    data = {**new(4), "site": np.array([99, 3, 98, 99])}
    same(gam, served, data)
    draws = served.sample(data, 400)["predictor"]
    other = served.predict(data)["variance"]
    assert other[0] > other[1]
    # the same new level is one effect, another one another
    data = {k: np.repeat(np.asarray(v)[:1], 3) for k, v in data.items()}
    draws = served.sample({**data, "site": np.array([99, 99, 98])}, 400)["predictor"]
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], atol=0.02)
    assert np.std(draws[:, 0] - draws[:, 2]) > 0.05
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Group of.*never seen.*zz"):
        served.predict({**new(2), "Group of": ["a", "zz"]})


@pytest.mark.slow
def test_missing(claims, folder):
    _, served, _ = claims
    data = new(3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="column .+x.+ must be finite"):
        served.predict({**data, "x": [0.1, np.nan, 0.2]})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Group of.*missing"):
        served.predict({**data, "Group of": ["a", None, "b"]})
    with pytest.raises(ValueError, match="site.*missing"):
        served.predict({**data, "site": [3.0, np.nan, 4.0]})
    terms = gg.s("x", k=5) + gg.factor("Group of") + gg.factor("site")
    gam = fitted("bernoulli", terms, DATA["x"] > 0.5, missing="impute")
    served = exported(gam, folder / "impute")
    holes = {"x": [np.nan, 0.2], "Group of": ["a", None], "site": [np.nan, 4.0]}
    same(gam, served, holes)
    same(gam, served, pd.DataFrame(holes))
    with pytest.raises(tf.errors.InvalidArgumentError, match="column .+x.+ must be finite"):
        served.predict({**holes, "x": [np.inf, 0.2]})
    lenient = exported(gam, folder / "lenient", invalid="nan")  # of whole numbers as levels, too
    assert np.isnan(lenient.predict({**new(2), "site": [99, 4]})["mean"]).tolist() == [True, False]


@pytest.mark.slow
def test_matrix_and_fractions_as_levels(folder):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(size=N), rng.choice([0.1, 0.5, 2.0], N), rng.uniform(size=N)])
    y = X[:, 0] + X[:, 1] + 0.1 * rng.normal(size=N)
    gam = fitted("gaussian", gg.s(0, k=5) + gg.factor(1), y, X)
    served = exported(gam, folder / "matrix")
    same(gam, served, X[:6])
    np.testing.assert_array_equal(
        served.predict(X[:6])["mean"], served.predict({"inputs": X[:6, :2]})["mean"]
    )
    with pytest.raises(ValueError, match="matrix with 2 columns"):
        served.predict(X[:, :1])


def test_whole_numbers_keep_all_digits(folder):
    ids = np.array([1234567890123456789, 1234567890123456790, 2**53 + 1, 5])[np.arange(N) % 4]
    y = (ids == ids[1]) + 0.1 * np.random.default_rng(3).normal(size=N)
    data = pd.DataFrame({"id": ids})
    for name, terms, given in (
        ("ids", gg.random_effect("id"), data),
        ("ids of a matrix", gg.random_effect(0), data.set_axis([0], axis=1)),
    ):
        gam = fitted("gaussian", terms, y, given)
        same(gam, exported(gam, folder / name), given[:8])
    served = gg.serving.load(folder / "ids")
    with pytest.raises(ValueError, match="'id' must hold whole numbers"):
        served.predict({"id": [5.5]})


def test_times(folder):
    rng = np.random.default_rng(0)
    when = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, N), unit="D"))
    y, holes = np.sin(when.dt.dayofyear / 20.0), when.where(when.index > 2)
    gam = fitted("gaussian", gg.s("when", k=5), y, {"when": holes}, missing="impute")
    served = exported(gam, folder / "times")
    days = (holes - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for given in (holes, holes.astype("datetime64[s]"), holes.dt.date, days):
        found = served.predict({"when": given})["mean"]
        np.testing.assert_allclose(found, gam.predict({"when": holes}, "link"), rtol=1e-9)
    with pytest.raises(ValueError, match="'when' holds times with a time zone, and must hold time"):
        served.predict({"when": when.dt.tz_localize("UTC")})


def test_draws(claims):
    _, served, _ = claims
    data = new(4)
    first, again = (served.sample(data, 6000, 3) for _ in range(2))
    np.testing.assert_array_equal(first["predictor"], again["predictor"])
    assert not np.any(first["predictor"] == served.sample(data, 6000, 4)["predictor"])
    np.testing.assert_allclose(first["response"], np.exp(first["predictor"]))
    moments = served.predict(data)
    sd = np.sqrt(moments["variance"])
    z = (first["predictor"].mean(axis=0) - moments["mean"]) / sd
    assert np.max(np.abs(z)) < 4.0 / np.sqrt(6000)
    np.testing.assert_allclose(first["predictor"].std(axis=0), sd, rtol=0.05)
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 1"):
        served.sample(data, 0)


# --- models without a GAM ----------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["svgp", "sgpr", "newton"])
def test_models(name, folder):
    model = additive_model(name)
    served = exported(model, folder / name)
    X = np.random.default_rng(5).uniform(size=(7, 2))
    mean, var = (a.numpy() for a in model.posterior().predict_f(X))
    result = served.predict(X)
    np.testing.assert_allclose(result["mean"].reshape(7, -1), mean, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(result["variance"].reshape(7, -1), var, rtol=1e-12, atol=1e-14)
    response = predictive.summarised_response(model.likelihood, X, mean, var).mean
    if name == "newton":  # whose latent functions are correlated
        response = model.predict_y(X)[0]
    np.testing.assert_allclose(result["response"], response, rtol=1e-12)
    parts = served.predict_components(X)
    np.testing.assert_allclose(parts["mean"], model.predict_components(X)[0], atol=1e-10)
    draws = served.sample(X, 2000, 1)["predictor"].reshape(2000, 7, -1)
    assert np.max(np.abs(draws.mean(axis=0) - mean) / np.sqrt(var)) < 5.0 / np.sqrt(2000)
    with pytest.raises(tf.errors.InvalidArgumentError, match="inputs must be finite"):
        served.predict(np.full((1, 2), np.nan))


# --- files -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_description_and_names(claims):
    gam, served, path = claims
    text = json.loads((path / "assets.extra" / "gpflow_gam.json").read_text())
    assert text == served.description
    assert {i["name"]: (i["column"], i["dtype"]) for i in text["inputs"]} == {
        **{name: (name, "float64") for name in ("x", "z")},
        "log_time": ("log time", "float64"),
        **{"Group_of": ("Group of", "string"), "who": ("who", "string")},
        **{"site": ("site", "int64"), "flag": ("flag", "bool")},
    }
    assert text["components"] == ["intercept", *gam.names, "offset"]
    assert text["level"] == 0.9
    loaded = tf.saved_model.load(str(path))
    kinds = {"predict", "predict_components", "sample"}
    assert set(loaded.signatures) == {*kinds, "serving_default"}
    default = loaded.signatures["serving_default"](**served._arguments(new(2)))
    np.testing.assert_array_equal(default["mean"], served.predict(new(2))["mean"])


def test_export_errors(claims, tmp_path):
    gam, _, path = claims
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gg.serving.export(gam, path)
    with pytest.raises(TypeError, match=r"fitted gpflow_gam.GAM.*got int"):
        gg.serving.export(3, tmp_path / "m")
    with pytest.raises(ValueError, match="not fitted"):
        gg.serving.export(gg.GAM(gg.s("x")), tmp_path / "m")
    with pytest.raises(ValueError, match="level must be a probability"):
        gg.serving.export(gam, tmp_path / "m", level=95)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("all of it")
    with pytest.raises(FileExistsError, match="a SavedModel replaces a SavedModel"):
        gg.serving.export(gam, mine, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_whole_or_not_at_all(simple, tmp_path, monkeypatch):
    gam, served, simple_path = simple
    path, data = tmp_path / "m", {"x": [0.5], "g": ["a"]}
    shutil.copytree(simple_path, path)

    def fail(module: Any, folder: str, **options: Any) -> None:
        Path(folder).mkdir()
        (Path(folder) / "saved_model.pb").write_text("half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(tf.saved_model, "save", fail)
        for target in (path, tmp_path / "other"):
            with pytest.raises(OSError, match="disk full"):
                gg.serving.export(gam, target, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert gg.serving.load(path).description == served.description
    gg.serving.export(gam, path, overwrite=True, level=0.5)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    again = gg.serving.load(path).predict(data)
    assert again["upper"] < served.predict(data)["upper"]
    np.testing.assert_array_equal(again["mean"], served.predict(data)["mean"])


def test_load_errors(simple, tmp_path):
    _, served, path = simple
    with pytest.raises(FileNotFoundError, match="no SavedModel"):
        gg.serving.load(tmp_path)
    other = tmp_path / "other"
    tf.saved_model.save(tf.Module(), str(other))
    with pytest.raises(FileNotFoundError, match="tf.saved_model.load reads those of others"):
        gg.serving.load(other)
    later = tmp_path / "later"
    shutil.copytree(path, later)
    text = later / "assets.extra" / "gpflow_gam.json"
    text.write_text(json.dumps({**served.description, "format": 99}))
    with pytest.raises(ValueError, match="Upgrade gpflow_gam"):
        gg.serving.load(later)
    with pytest.raises(ValueError, match="no column 'g'"):
        served.predict({"x": [0.1]})
    with pytest.raises(ValueError, match="must hold text"):
        served.predict({"x": [0.1], "g": [3]})
    with pytest.raises(ValueError, match="must hold numbers"):
        served.predict({"x": ["far"], "g": ["a"]})


# --- other programs ----------------------------------------------------------------------------

CLEAN = """
import runpy, sys
for name in ("gpflow", "tensorflow_probability", "gpflow_gam", "check_shapes", "pandas", "scipy"):
    sys.modules[name] = None
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
found = model.signatures["predict"](
    x=tf.constant([0.1, 0.9], tf.float64), g=tf.constant(["a", "c"])
)
np.savez(sys.argv[2], **{k: v.numpy() for k, v in found.items()})
# TensorFlow's command line, as python -m runs it
module = "tensorflow.python.tools.saved_model_cli"
sys.argv = [module, *sys.argv[3:]]
runpy.run_module(module, run_name="__main__")
"""


@pytest.fixture(scope="module")
def written(simple, tmp_path_factory) -> Path:
    """What a process without our code computes and writes: in Python, then by the command line."""
    _, _, path = simple
    out = tmp_path_factory.mktemp("written")
    command = ["run", "--dir", str(path), "--tag_set", "serve", "--signature_def", "predict"]
    command += ["--input_exprs", "x=[0.1, 0.9];g=['a', 'c']", "--outdir", str(out)]
    python(CLEAN, path, out / "out.npz", *command)
    return out


@pytest.mark.slow
def test_clean_process_and_command_line(simple, written):
    _, served, _ = simple
    expected = served.predict({"x": [0.1, 0.9], "g": ["a", "c"]})
    with np.load(written / "out.npz") as result:
        assert set(result) == set(expected)
        # Grappler, which is off here (settings.py), and the command line's sessions round otherwise
        for key, value in expected.items():
            for there in (result[key], np.load(written / f"{key}.npy")):
                np.testing.assert_allclose(there, value, rtol=1e-13, atol=1e-13)


@pytest.mark.slow
def test_c_program(simple, tmp_path):
    """No Python at all."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = Path(tf.sysconfig.get_lib())
    objects = [library / "libtensorflow_cc.so.2", library / "libtensorflow_framework.so.2"]
    program = tmp_path / "client"
    command = [compiler, HERE / "serving_client.c", "-o", program]
    output(*command, f"-I{tf.sysconfig.get_include()}", *objects, f"-Wl,-rpath,{library}")
    gam, served, path = simple
    names = _operations(path)
    data = {"x": np.array([0.1, 0.45, 0.9]), "g": np.array(["a", "b", "c"])}
    rows = "\n".join(f"{x!r} {g}" for x, g in zip(data["x"].tolist(), data["g"]))
    printed = output(program, path, names["x"], names["g"], names["response"], input=rows)
    result = np.array([float(line) for line in printed.split()])
    # TensorFlow's C session has other kernels than its eager mode: a product is summed otherwise
    np.testing.assert_allclose(result, gam.predict(data), rtol=1e-11)
    np.testing.assert_allclose(result, served.predict(data)["response"], rtol=1e-11)


def _operations(path: Path) -> dict[str, str]:
    """What the graph calls inputs and outputs of ``predict``."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    whole = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    signature = whole.meta_graphs[0].signature_def["predict"]
    return {
        key: t.name for part in (signature.inputs, signature.outputs) for key, t in part.items()
    }


# --- rows that cannot be taken, and requests that are too large ----------------------------------


@pytest.fixture(scope="module")
def answers(claims, folder) -> gg.serving.Served:
    return exported(claims[0], folder / "answers", invalid="nan", max_rows=10)


@pytest.mark.slow
def test_bad_rows_are_nan_and_others_are_not(answers: gg.serving.Served) -> None:
    assert answers.description["invalid"] == "nan"
    bad, data = [0, 1, 3, 4], new(6).copy()
    data.loc[[1, 3], "x"], data.loc[[0, 4], "Group of"] = [np.nan, np.inf], ["zz", None]
    for call in (answers.predict, answers.predict_components):
        whole = call(new(6))
        for name, value in call(data).items():
            if name == "names":
                continue
            assert np.all(np.isnan(value[bad]))
            assert np.all(np.isfinite(whole[name]))
            np.testing.assert_allclose(value[[2, 5]], whole[name][[2, 5]], rtol=1e-12)
    for value in answers.sample(data, 3, 1).values():
        assert np.all(np.isnan(value[:, bad]))
        assert np.all(np.isfinite(value[:, [2, 5]]))
    data.loc[5, "who"] = "new"  # where the term takes them
    assert np.flatnonzero(np.isfinite(answers.predict(data)["mean"])).tolist() == [2, 5]


def test_draws_have_a_limit_of_rows(claims, answers: gg.serving.Served, tmp_path: Path) -> None:
    assert answers.sample(new(10))["response"].shape == (1, 10)
    with pytest.raises(tf.errors.InvalidArgumentError, match="may have 10 rows.*max_rows.*11"):
        answers.sample(new(11))
    assert answers.predict(new(11))["mean"].shape == (11,)
    for options, message in (
        ({"max_rows": 0}, "max_rows must be a whole number of at least 1"),
        ({"invalid": "drop"}, "invalid must be 'error' or 'nan'; got 'drop'"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.serving.export(claims[0], tmp_path / "m", **options)
