"""Saved GAMs: the same to the last bit, or a clear error."""

import copy
import dataclasses
import datetime
import decimal
import functools
import hashlib
import json
import os
import pickle
import stat
import zipfile
from pathlib import Path

import gpflow
import joblib
import numpy as np
import pandas as pd
import problems
import pytest
import tensorflow_probability as tfp
from golden import make
from gpflow.utilities import parameter_dict
from problems import assert_close, reloaded
from response_cases import ROWS, responses

import gpflow_gam as gg
from gpflow_gam import archive, factor, linear, s
from gpflow_gam.gam.effects.posterior import between_moments
from gpflow_gam.gam.frames.encoding import value_from_json, value_to_json

QUICK = {"max_iterations": 3}


@pytest.fixture(scope="module")
def data():
    df = problems.table(60)
    df["label"], df["t"] = np.where(df["y"] > 3, "up", "down"), df.groupby("g").cumcount()
    df["g"] = pd.Categorical(df["g"], ["c", "b", "a"])
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.exp(1.0 + np.sin(4.0 * df["x"])))
    df["zeros"] = np.where(rng.uniform(size=60) < 0.4, 0, counts)
    return df


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    gam = gg.GAM(s("x", k=5), family="poisson").fit(data, y="count", **QUICK)
    path = tmp_path_factory.mktemp("gam") / "count.gam"
    gam.save(path)
    return gam, path


TERMS = s("x", k=5) + factor("g")
FILES = {
    "weights": (TERMS, "gaussian", "y", {"weights": "w", "seed": np.int64(3)}),
    "offset": (TERMS, "negative_binomial", "count", {"offset": "z"}),
    "levels": (TERMS, gg.families.Ordinal(levels=("down", "up")), "label", {}),
    "block": (TERMS, "poisson", "count", {"variational": "block"}),
    # where sites of negative weight are left out
    "negative": (TERMS, "zero_inflated_poisson", "zeros", {}),
    "shape": (s("x", shape="increasing", k=6), "gaussian", "y", {}),
    "ar1": (TERMS, "gaussian", "y", {"ar1": "t | g"}),
    "no constant": (TERMS - 1, "gaussian", "y", {}),
    "classes": ({"v": linear("x"), "w": TERMS}, "categorical", "kind", {}),
    "iterncgp": (TERMS, "poisson", "count", {"engine": "iterncgp"}),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("terms", "family", "y", "options"), FILES.values(), ids=FILES)
def test_files_hold_what_answers_to_the_last_bit(terms, family, y, options, data, tmp_path):
    def ask(gam):
        effects = gam.effects(gam.names[0]).select_dtypes("number")
        answers = [*gam.predict(data, "link", se=True), gam.predict(data, interval=0.9), effects]
        answers += [gam.sample_effects(gam.names[0], num_samples=7), gam.log_density(data)]
        return [*answers, gam.fitted.number, gam.fitted.deviance()]

    gam = gg.GAM(terms, family, **options).fit(data, y, max_iterations=8 if y == "zeros" else 2)
    want, bare = ask(gam), gam.engine != "iterncgp"
    if y == "kind":
        assert np.any(between_moments(gam.fitted).covariance > 0.0)
    for kept in (False, True) if bare else (True,):
        again = reloaded(gam, tmp_path / f"{kept}.gam", data=kept)
        assert (again.terms, again.ar1, again.engine) == (gam.terms, gam.ar1, gam.engine)
        more = reloaded(again, tmp_path / f"{kept} again.gam", data=kept)
        for copied in (again, more, pickle.loads(pickle.dumps(again))):
            assert_close(ask(copied), want, rtol=0)
    if not bare:
        return
    with zipfile.ZipFile(tmp_path / "False.gam") as archive:
        assert not {"X", "Y"} & set(json.loads(archive.read("arrays.json")))
    again = gg.GAM.load(tmp_path / "False.gam")
    again.draw(gam.names[0])
    for ask in (again.summary, again.appraise, again.concurvity):
        with pytest.raises(ValueError, match=r"without its data \(save\(data=False\)\)"):
            ask()
    with pytest.raises(ValueError, match="has no data.*pass data=False"):
        again.save(tmp_path / "c.gam")


TESTED = {"gaussian", "poisson", "bernoulli", "negative_binomial"}
TESTED |= {"zero_inflated_negative_binomial", "hurdle_negative_binomial"}  # as those of Poisson's
LINKED = [
    gg.families.Gaussian("log"),
    gg.families.StudentT(np.int64(4), link="inverse"),
    gg.families.Gamma("inverse"),
    gg.families.Tweedie("sqrt"),
    gg.families.QuasiPoisson("identity"),
]


@pytest.mark.slow_but_first
@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
@pytest.mark.parametrize("family", [*sorted({*responses()} - TESTED), *LINKED], ids=str)
def test_gams_of_other_families_are_saved(family, tmp_path):
    family = gg.families.family(family)
    y = responses()["gamma" if family in LINKED else family.name]
    table = pd.DataFrame({"x": np.linspace(0.0, 1.0, ROWS), "y": y})
    gam = gg.GAM(s("x", k=5), family).fit(table, "y", max_iterations=2)
    known = parameter_dict(gam.fitted.likelihood)
    for kept in (True, False):
        again = reloaded(gam, tmp_path / str(kept), data=kept)
        assert again.family == gam.family
        for path, parameter in parameter_dict(again.fitted.likelihood).items():
            np.testing.assert_array_equal(parameter, known[path])
        assert_close(gam.predict(table, se=True), again.predict(table, se=True), rtol=0)


def test_an_engine_that_needs_its_data_says_so(data, tmp_path):
    gam = gg.GAM(s("x", k=5), engine="iterncgp").fit(data, y="y", hyperparameters=False, **QUICK)
    with pytest.raises(ValueError, match="engine='iterncgp' is a function of the training rows"):
        gam.save(tmp_path / "a.gam", data=False)
    copied = copy.deepcopy(gam)
    np.testing.assert_array_equal(copied.predict(data), gam.predict(data))


def test_gams_can_be_copied_and_pickled_after_use(data, tmp_path):
    gam = gg.GAM(s("x", k=5) + factor("g"), "poisson").fit(data, y="count", **QUICK)
    expected, effect = gam.predict(data), gam.effects("s(x)")
    gam.summary()
    gam.draw("s(x)")
    joblib.dump(gam, tmp_path / "a.joblib")
    joined = joblib.load(tmp_path / "a.joblib")
    for again in (pickle.loads(pickle.dumps(gam)), copy.deepcopy(gam), joined):
        np.testing.assert_array_equal(again.predict(data), expected)
        pd.testing.assert_frame_equal(again.effects("s(x)"), effect, rtol=1e-10)
        assert str(again.summary()) == str(gam.summary())
    assert again.fit(data, "count", **QUICK).is_fitted
    np.testing.assert_array_equal(gam.predict(data), expected)


def test_own_families_and_kernels_are_copied_and_pickled(data):
    terms = s("x", kernel=gpflow.kernels.Matern32(), k=5)
    gam = gg.GAM(terms, gpflow.likelihoods.StudentT()).fit(data, y="y", **QUICK)
    expected = gam.predict(data)
    for again in (copy.deepcopy(gam), pickle.loads(pickle.dumps(gam))):
        np.testing.assert_array_equal(again.predict(data), expected)
    assert not pickle.loads(pickle.dumps(gg.GAM(terms))).is_fitted


LEVELS = [
    pd.Interval(0.0, 1.5, closed="left"),
    pd.Interval(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01")),
    pd.Timestamp("2020-01-01 12:00:00.000000001"),
    pd.Timestamp("2020-10-25 00:30", tz="UTC").tz_convert("Europe/Paris"),
    datetime.datetime(2020, 1, 1, 12),
    datetime.date(2020, 2, 29),
    datetime.time(8, 5, 7),
    b"\x00a",
    pd.Timedelta("1 day 00:00:01"),
    pd.Period("2020-03", "M"),
    decimal.Decimal("1.10"),
    "text",
    -3,
    0.1,
    True,
]


@pytest.mark.parametrize("level", LEVELS, ids=repr)
def test_levels_come_back_as_they_were(level):
    again = value_from_json(json.loads(json.dumps(value_to_json(level))))
    assert again == level
    assert hash(again) == hash(level)
    assert isinstance(level, datetime.datetime) or type(again) is type(level)


@pytest.mark.parametrize("kind", ["interval", "date", "timestamp"])
def test_gams_with_such_levels_are_saved(kind, data, tmp_path):
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60) % 3, "D")
    column = {
        "interval": pd.cut(data["x"], 3),
        "date": pd.Series(days.date, dtype=object),
        "timestamp": days,
    }[kind]
    df = data.assign(when=column)
    gam = gg.GAM(factor("when"), missing="impute").fit(df, y="y", **QUICK)
    again = reloaded(gam, tmp_path / "a.gam")
    np.testing.assert_array_equal(again.predict(df), gam.predict(df))
    if kind == "timestamp":  # in whatever unit
        other = df.assign(when=days.as_unit("ns"))
        np.testing.assert_array_equal(again.predict(other), gam.predict(df))


def test_levels_that_no_file_holds(data, tmp_path):
    df = data.assign(kind=[Path("a"), Path("b")] * 30)
    gam = gg.GAM(factor("kind")).fit(df, y="y", **QUICK)
    with pytest.raises(ValueError, match=r"'kind' has levels of type PosixPath.*map\(str\)"):
        gam.save(tmp_path / "a.gam")
    assert os.listdir(tmp_path) == []
    assert np.all(np.isfinite(gam.predict(df)))


def test_levels_without_a_common_order(data):
    df = data.assign(mixed=[datetime.date(2020, 1, 1), 3] * 30)
    with pytest.raises(ValueError, match="'mixed' has levels without a common order"):
        gg.GAM(factor("mixed")).fit(df, y="y")


def test_loaded_gams_can_be_fitted_again(saved, data):
    again = gg.GAM.load(saved[1]).fit(data, **QUICK)  # the response is remembered
    np.testing.assert_allclose(again.predict(data), saved[0].predict(data))


def test_no_parameter_is_missed(saved, tmp_path):
    """Every variable of the model, moved, comes back moved."""
    gam, _ = saved
    moved = gg.GAM.load(saved[1])
    for variable in moved.model.variables:
        variable.assign(variable + 0.01)
    # a fit of what it is now
    moved._fit = dataclasses.replace(moved.fitted, model=moved.model, users_copy=None)
    again = reloaded(moved, tmp_path / "moved.gam")
    for one, other, old in zip(
        moved.model.variables, again.model.variables, gam.model.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert np.all(one.numpy() != old.numpy())


def test_own_kernels(data, tmp_path):
    own = gpflow.kernels.Matern32()
    gam = gg.GAM(s("x", kernel=own, k=5)).fit(data, y="y", **QUICK)
    assert own.lengthscales.numpy() == 1.0  # a term is a value: what is fitted is a copy
    gam.save(tmp_path / "own.gam")
    with pytest.raises(ValueError, match="kernel of your own \\(Matern32\\)"):
        gg.GAM.load(tmp_path / "own.gam")
    kernels = {"s(x)": gpflow.kernels.Matern32()}
    again = gg.GAM.load(tmp_path / "own.gam", kernels=kernels)
    np.testing.assert_array_equal(again.predict(data), gam.predict(data))
    kernels = {"s(x)": gpflow.kernels.RationalQuadratic()}
    with pytest.raises(ValueError, match="lacks the parameter"):
        gg.GAM.load(tmp_path / "own.gam", kernels=kernels)


def test_files_are_replaced_if_asked_and_whole(saved, monkeypatch):
    gam, path = saved
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gam.save(path)
    gam.save(path, overwrite=True)
    assert os.listdir(path.parent) == [path.name]  # nothing temporary stays
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        gam.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_where_files_are_written(saved, tmp_path):
    gam, _ = saved
    for path, what in ((Path("/dev/null"), "a device"), (tmp_path, "a folder")):
        for overwrite in (False, True):
            with pytest.raises(ValueError, match=f"path: .* is {what}"):
                gam.save(path, overwrite=overwrite)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(FileNotFoundError, match="there is no folder .*absent; make it"):
        gam.save(tmp_path / "absent" / "a.gam")
    before = os.umask(0o027)
    try:
        gam.save(tmp_path / "a.gam")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.gam").stat().st_mode) == 0o640
    os.chmod(tmp_path / "a.gam", 0o664)
    (tmp_path / "link.gam").symlink_to("a.gam")
    inode = (tmp_path / "a.gam").stat().st_ino
    with pytest.raises(FileExistsError):
        gam.save(tmp_path / "link.gam")
    gam.save(tmp_path / "link.gam", overwrite=True)
    assert (tmp_path / "link.gam").is_symlink()
    assert (tmp_path / "a.gam").stat().st_ino != inode
    assert stat.S_IMODE((tmp_path / "a.gam").stat().st_mode) == 0o664
    gg.GAM.load(tmp_path / "link.gam")


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


def test_damaged_bytes_are_an_error_or_change_nothing(saved, tmp_path):
    content = saved[1].read_bytes()
    header, arrays = archive.read(saved[1], "gpflow_gam.GAM", 1)
    path, rng, refused = tmp_path / "a.gam", np.random.default_rng(0), 0
    n = len(content)
    places = [*range(60), *rng.integers(0, n, 200), *range(n - 60, n)]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:  # every one of them says so, or reads what was written
            seen, result = archive.read(path, "gpflow_gam.GAM", 1)
        except ValueError as error:
            refused += "damaged, or is no saved GAM" in str(error)
            continue
        assert seen == header
        assert result.keys() == arrays.keys()
        assert all(np.array_equal(result[name], arrays[name]) for name in arrays)
    assert refused > 200


def changed(source, path, change):
    """A copy of a file with another header, its checksum right."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        content = {name: old.read(name) for name in old.namelist()}
        content["gam.json"] = json.dumps(change(json.loads(content["gam.json"]))).encode()
        sums = json.loads(content["checksums.json"])
        sums["gam.json"] = hashlib.sha256(content["gam.json"]).hexdigest()
        content["checksums.json"] = json.dumps(sums).encode()
        for name, value in content.items():
            new.writestr(name, value)


def test_files_that_lack_something(saved, tmp_path):
    header, _ = archive.read(saved[1], "gpflow_gam.GAM", 1)
    # files from before it was written are read
    optional = {"version", "solution", "held", "priors"}
    for name in set(header) - optional:
        path = tmp_path / f"{name}.gam"
        changed(saved[1], path, lambda h, name=name: {k: v for k, v in h.items() if k != name})
        with pytest.raises(ValueError, match=f"damaged.*{name}"):
            gg.GAM.load(path)
    for name, value in (("encoder", [{}]), ("terms", 3), ("components", None), ("family", {})):
        changed(saved[1], tmp_path / "a.gam", lambda h, n=name, v=value: {**h, n: v})
        with pytest.raises(ValueError, match="damaged|no term|family"):
            gg.GAM.load(tmp_path / "a.gam")


def test_newer_files(saved, tmp_path):
    path = tmp_path / "newer.gam"
    changed(saved[1], path, lambda header: {**header, "format": 99, "version": "9.9"})
    with pytest.raises(ValueError, match="written by gpflow_gam 9.9 in format 99.* Upgrade"):
        gg.GAM.load(path)


@pytest.fixture(scope="module")
def even():
    """Points in even steps, among which nodes are chosen between ties."""
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 1.0, 80)
    y = np.sin(6.0 * x) + 0.3 * rng.normal(size=80)
    return pd.DataFrame({"x": x, "y": y, "count": rng.poisson(np.exp(y))})


@pytest.mark.parametrize(("family", "response"), [("gaussian", "y"), ("poisson", "count")])
def test_a_machine_that_takes_other_nodes_sums_anew(even, tmp_path, monkeypatch, family, response):
    gam = gg.GAM(s("x", k=10), family).fit(even, response)
    again = reloaded(gam, tmp_path / "a.gam")
    pd.testing.assert_frame_equal(again.effects("s(x)"), gam.effects("s(x)"), check_exact=True)
    rough = gg.optimizers.binned.evidence._ROUGHEST
    monkeypatch.setitem(rough, 1, 0.8 * rough[1])
    again = gg.GAM.load(tmp_path / "a.gam")
    one, other = (g.fitted.solution.rows.components[1].places.points for g in (gam, again))
    assert not np.array_equal(one, other)
    se = [g.effects("s(x)")["se"].to_numpy() for g in (gam, again)]
    np.testing.assert_allclose(se[1], se[0], rtol=0.02)
    # q is the file's, whatever else is summed anew
    np.testing.assert_array_equal(again.predict(even, "link"), gam.predict(even, "link"))


# --- a fit is a value ----------------------------------------------------------------------------


DATA = problems.table(90)


def fitted(family: str) -> gg.GAM:
    gam = gg.GAM(s("x", k=6) + factor("g"), family=family, offset="log_e")
    return gam.fit(DATA, y="y" if family in ("gaussian", "student_t") else "count")


@functools.cache
def original_fit(family: str) -> gg.GAM:
    """A fit whose model nobody changes."""
    return fitted(family)


@functools.cache
def reference(family: str) -> list[np.ndarray]:
    return answers(original_fit(family))


def answers(gam: gg.GAM) -> list[np.ndarray]:
    return [
        gam.predict(DATA, interval=0.9).to_numpy(),
        gam.predict(DATA, "observation", se=True)[1],
        gam.log_density(DATA),
        gam.log_density(DATA, unconditional=True),
        gam.effects("s(x)").iloc[:, 1:].to_numpy(),
        gam.sample(DATA, 3, seed=1),
        np.array([gam.summary().deviance_explained]),
        gam.coefficients().select_dtypes("number").to_numpy(),
        gam.variance_components().select_dtypes("number").to_numpy(),
    ]


def assign(model: gg.models.additive.AdditiveModel) -> None:
    for parameter in model.trainable_parameters:
        parameter.unconstrained_variable.assign_add(0.5 * np.ones(parameter.shape.as_list()))


def replace_parts(model: gg.models.additive.AdditiveModel) -> None:
    model.mean_function = gpflow.functions.Zero()
    assign(model.likelihood)


CHANGES = {
    "freeze": lambda model: gpflow.set_trainable(model, False),
    "assign": assign,
    "kernel": lambda model: setattr(model, "kernel", gpflow.kernels.SquaredExponential()),
    "parts": replace_parts,
}


@pytest.fixture(scope="module", params=["gaussian", "negative_binomial"])
def original(request) -> tuple[str, list[np.ndarray]]:
    return request.param, reference(request.param)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("copied", [True, False])
def test_what_becomes_of_the_model_changes_no_answer(original, change, copied):
    family, before = original
    gam = copy.deepcopy(original_fit(family)) if copied else fitted(family)
    CHANGES[change](gam.model)
    assert_close(answers(gam), before, rtol=1e-9, atol=1e-12)


@pytest.mark.slow_but_first
@pytest.mark.usefixtures("remembering")
@pytest.mark.parametrize("family", ["gaussian", "negative_binomial", "student_t"])
def test_readers_share_no_memory_of_transforms(family, monkeypatch):
    """TFP's is one dictionary of the process, and breaks when threads read parameters at once."""
    want = reference(family)
    fresh = fitted(family)

    class Untouchable(dict):
        def setdefault(self, *_: object) -> None:
            raise AssertionError("a reader asks what another thread may be changing")

        __getitem__ = __setitem__ = __iter__ = keys = setdefault

    storage = Untouchable()
    storage.maybe_del = lambda _: None
    monkeypatch.setattr(tfp.bijectors.Bijector.__dict__["_cache"], "storage", storage)
    assert_close(answers(fresh), want, rtol=1e-9, atol=1e-12)


# --- files of earlier releases -------------------------------------------------------------------

FILES = sorted(make.FOLDER.glob("*.gam"))


def test_every_release_has_a_file():
    assert any(gg.__version__ in file.name for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_answers_as_when_it_was_written(file: Path):
    want = json.loads((file.parent / f"{file.stem}.json").read_text("utf-8"))
    gam = gg.GAM.load(file)
    result = make.answers(gam)
    assert result.pop("names") == want.pop("names")
    terms, old = np.array(result.pop("terms")), np.array(want.pop("terms"))
    np.testing.assert_allclose(terms.sum(axis=1), gam.predict(make.rows(), "link"), rtol=1e-9)
    if file.stem == "gam-0.1.0":  # without the constant, which is the intercept's, and offsets
        (constant,) = gam.fitted.spec.constant
        terms = np.column_stack([terms[:, 0] - constant, terms[:, 1:-1]])
    np.testing.assert_allclose(terms, old, rtol=1e-6, atol=1e-9)
    for what, values in want.items():
        np.testing.assert_allclose(result[what], values, rtol=1e-6, atol=1e-9, err_msg=what)
