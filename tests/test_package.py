"""What a newcomer meets first: the import, the data, the examples, the README."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gpflow_gam as gg

ROOT = Path(__file__).parent.parent


def script(path: str) -> ModuleType:
    """An example or benchmark, imported from its file."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if str((ROOT / path).parent) not in sys.path:  # as of a script that is run
        sys.path.append(str((ROOT / path).parent))
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_another_backend_of_keras_is_named(backend):
    command = [sys.executable, "-c", "import gpflow_gam"]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode != 0
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: gpflow_gam needs Keras's TensorFlow backend")
    assert "KERAS_BACKEND=tensorflow" in last


def test_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {gg.__version__}\n" in text


def test_bikeshare_data():
    data = gg.datasets.bikeshare()
    assert data.shape == (8645, 15)
    assert not data.isna().any(axis=None)
    np.testing.assert_array_equal(data["casual"] + data["registered"], data["bikers"])
    assert data["bikers"].sum() == 1_243_103
    assert set(data["hr"]) == set(range(24))
    assert data["weathersit"].min() == "clear"
    assert list(data.groupby("mnth", observed=True)["day"].min()) == sorted(
        data.groupby("mnth", observed=True)["day"].min()
    )


def test_main_job(tmp_path):
    """The demo as a newcomer runs it, who sees no warning."""
    theirs = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "MPLBACKEND")
    environment = {k: v for k, v in os.environ.items() if k not in theirs}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, str(ROOT / "examples" / "bikeshare.py")]
    run = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    # but for lines that TensorFlow writes before it reads TF_CPP_MIN_LOG_LEVEL
    theirs = ("WARNING: All log messages before absl", "I0000", "Unable to register")
    rest = [line for line in run.stderr.splitlines() if not any(t in line for t in theirs)]
    assert rest == []
    for part in (r"fit: +converged", r"s\(hr\):workingday=1", "estimate +se +lower +upper"):
        assert re.search(part, run.stdout)
    score = re.search(r"held-out R\^2: (0\.\d{3})\n", run.stdout)
    assert score is not None
    assert float(score[1]) > 0.88
    assert (tmp_path / "bikeshare.png").stat().st_size > 50_000


@pytest.mark.slow
def test_the_same_model_by_hand(tmp_path, capsys, monkeypatch):
    bikeshare = script("examples/gpflow_bikeshare.py")
    figure = tmp_path / "bikeshare.png"
    monkeypatch.setattr(sys, "argv", ["gpflow_bikeshare.py", "--figure", str(figure)])
    bikeshare.main()
    out = capsys.readouterr().out
    explained = re.search(r"held-out deviance explained: (0\.\d{3})\n", out)
    assert explained is not None
    assert float(explained[1]) >= 0.914  # that of mgcv's bam(family = nb()) on the same rows
    assert "fit: converged" in out
    assert re.search(r"ELBO: -\d+", out)
    assert "hour | working day" in out
    assert figure.stat().st_size > 50_000


@pytest.mark.slow
def test_friedman_illustration():
    """Section 7 of Adam, Durrande & John (2018), Figure 1 in numbers."""
    friedman = script("examples/friedman.py")
    model = friedman.build(*friedman.observations(5000, seed=0))
    result = gg.optimizers.fit(model)
    assert result.converged
    errors = friedman.errors(model)
    for name in ("x1", "x2", "x3", "x4", "x5"):
        assert errors[name] < 0.15, f"main effect of {name}"
    assert errors["x6"] < 0.1
    assert errors["x1 x2"] < 0.2
    assert model.likelihood.variance.numpy() == pytest.approx(1.0, abs=0.08)


def readme_blocks() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.S)


def test_readme_from_a_table_to_a_figure(tmp_path, monkeypatch):
    """As it stands, on every twentieth row."""
    monkeypatch.chdir(tmp_path)
    whole = gg.datasets.bikeshare()
    monkeypatch.setattr(gg.datasets, "bikeshare", lambda: whole.iloc[::20])
    monkeypatch.setattr("gpflow_gam.gam.effects.posterior.draw_solutions", lambda *_: [])
    names: dict[str, object] = {}
    exec(compile(readme_blocks()[0], "README.md", "exec"), names)
    summary = names["gam"].summary()
    assert summary.converged
    assert summary.deviance_explained > 0.85
    assert (tmp_path / "effects.png").stat().st_size > 30_000


def test_readme_from_gpflow():
    names: dict[str, object] = {}
    exec(compile(readme_blocks()[1], "README.md", "exec"), names)
    assert names["result"].converged
    assert names["mean"].shape == (5, 4)
    assert names["draws"].shape == (100, 5, 4)
    first = np.asarray(names["mean"])
    exec(compile(readme_blocks()[2], "README.md", "exec"), names)  # the same by the other engine
    assert names["mean"].shape == (5, 4)
    away = np.sum(first, axis=1) - np.sum(names["mean"], axis=1)
    assert np.all(
        np.abs(away) < 3.0 * np.sqrt(names["posterior"].predict_f(names["X"][:5])[1][:, 0])
    )


@pytest.mark.slow
def test_readme_from_keras(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(readme_blocks()[3], "README.md", "exec"), names)
    images = names["images"] / 16.0
    scores = names["model"].evaluate(images, names["labels"], return_dict=True, verbose=0)
    assert scores["accuracy"] > 0.9
    served = gg.serving.load("served/1").predict(images[:200])["response"]
    assert np.mean(served.argmax(axis=1) == names["labels"][:200]) > 0.9
