"""Saved GAMs: the same to the last bit, or a clear error."""

from __future__ import annotations

import json
import os
import zipfile

import gpflow
import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, s, te

QUICK = {"max_iterations": 3, "progress": False}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(2)
    df = pd.DataFrame({"x": rng.uniform(size=60), "z": rng.normal(size=60)})
    df["g"] = pd.Categorical(rng.choice(["b", "a"], 60), ["b", "a"])
    df["w"] = rng.integers(1, 3, 60)
    df["y"] = np.sin(5 * df["x"]) + 0.3 * rng.standard_normal(60)
    df["count"] = rng.poisson(np.exp(df["y"]))
    df["label"] = np.where(df["y"] > 0, "up", "down")
    return df


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    gam = gg.GAM(s("x", k=5), family="poisson").fit(data, y="count", **QUICK)
    path = tmp_path_factory.mktemp("gam") / "count.gam"
    gam.save(path)
    return gam, path


@pytest.mark.parametrize(
    ("family", "response", "options"),
    [
        ("gaussian", "y", {"weights": "w"}),
        ("poisson", "count", {"offset": "z", "variational": "block"}),
        pytest.param("bernoulli", "label", {}, marks=pytest.mark.slow),
        pytest.param("negative_binomial", "count", {"weights": "w"}, marks=pytest.mark.slow),
    ],
)
def test_predictions_are_equal_to_the_last_bit(family, response, options, data, tmp_path):
    terms = s("x", k=5, bs="matern52") + te("x", "z", k=6) + factor("g")
    gam = gg.GAM(terms, family=family, **options).fit(data, y=response, **QUICK)
    gam.save(tmp_path / "a.gam")
    again = gg.GAM.load(tmp_path / "a.gam")
    assert again.terms == gam.terms
    assert again.family == gam.family
    for kind in ("link", "response"):
        for one, other in zip(
            gam.predict(data, kind, se=True), again.predict(data, kind, se=True), strict=True
        ):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(gam.log_density(data), again.log_density(data))
    assert str(again.summary()) == str(gam.summary())
    one, other = (m.effects("s(x)", unconditional=False) for m in (again, gam))
    assert one.equals(other)


def test_loaded_gams_can_be_fitted_again(saved, data):
    again = gg.GAM.load(saved[1]).fit(data, **QUICK)  # the response is remembered
    np.testing.assert_allclose(again.predict(data), saved[0].predict(data))


def test_no_parameter_is_missed(saved, tmp_path):
    """Every variable of the model, moved, comes back moved."""
    gam, _ = saved
    moved = gg.GAM.load(saved[1])
    for variable in moved.model.variables:
        variable.assign(variable + 0.01)
    moved.save(tmp_path / "moved.gam")
    again = gg.GAM.load(tmp_path / "moved.gam")
    for one, other, old in zip(
        moved.model.variables, again.model.variables, gam.model.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert np.all(one.numpy() != old.numpy())


def test_own_kernels(data, tmp_path):
    terms = s("x", kernel=gpflow.kernels.Matern32(), k=5)
    gam = gg.GAM(terms).fit(data, y="y", **QUICK)
    gam.save(tmp_path / "own.gam")
    with pytest.raises(ValueError, match="kernel of your own \\(Matern32\\)"):
        gg.GAM.load(tmp_path / "own.gam")
    kernels = {"s(x)": gpflow.kernels.Matern32()}
    again = gg.GAM.load(tmp_path / "own.gam", kernels=kernels)
    np.testing.assert_array_equal(again.predict(data), gam.predict(data))
    kernels = {"s(x)": gpflow.kernels.RationalQuadratic()}
    with pytest.raises(ValueError, match="lacks the parameter"):
        gg.GAM.load(tmp_path / "own.gam", kernels=kernels)


def test_files_are_not_overwritten_unasked(saved):
    gam, path = saved
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gam.save(path)
    gam.save(path, overwrite=True)
    assert os.listdir(path.parent) == [path.name]  # nothing temporary stays


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    gam, path = saved
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        gam.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_no_pickle_inside(saved):
    with zipfile.ZipFile(saved[1]) as archive:
        names = archive.namelist()
        assert {name.split(".")[-1] for name in names} == {"json", "npy"}
        header = json.loads(archive.read("gam.json"))
    assert header["format"] == 1
    assert header["terms"] == [{"term": "s", "columns": ["x"], "k": 5}]


def test_damaged_files(saved, tmp_path):
    content = saved[1].read_bytes()
    for name, damaged in {
        "short": content[: len(content) // 2],
        "empty": b"",
        "text": b"not a model",
        "flipped": content[:200] + bytes([content[200] ^ 255]) + content[201:],
    }.items():
        path = tmp_path / name
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged, or is no saved GAM"):
            gg.GAM.load(path)
    with pytest.raises(FileNotFoundError, match="no file"):
        gg.GAM.load(tmp_path / "absent")


def test_newer_files(saved, tmp_path):
    path = tmp_path / "newer.gam"
    with zipfile.ZipFile(saved[1]) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "gam.json":
                header = json.loads(content)
                content = json.dumps({**header, "format": 99, "version": "9.9"}).encode()
            new.writestr(name, content)
    with pytest.raises(ValueError, match="written by gpflow_gam 9.9 in format 99.* Upgrade"):
        gg.GAM.load(path)


def test_custom_likelihoods_cannot_be_saved(data, tmp_path):
    gam = gg.GAM(s("x", k=5), family=gpflow.likelihoods.StudentT()).fit(data, y="y", **QUICK)
    with pytest.raises(ValueError, match="family"):
        gam.save(tmp_path / "custom.gam")
    assert os.listdir(tmp_path) == []
