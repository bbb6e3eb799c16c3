"""GAMs of data in blocks: the fit of a table, whatever its rows come in, and what memory holds."""

import importlib
import itertools

import numpy as np
import pandas as pd
import pytest
from problems import assert_close, reloaded

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te
from gpflow_gam.gam.fits.data import CodedData
from gpflow_gam.optimizers import minimizers
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.binned import passes as rows_module
from gpflow_gam.optimizers.binned.bins import RowSample
from gpflow_gam.storage import Store

N = 5000
TERMS = (
    s("x", k=8)
    + s("z", k=6, by=factor("g"))
    + s("h", k=6, by="m")
    + te("x", "m", k=9)
    + random_effect("r")
    + factor("g")
)
ROLES = {"offset": "o", "weights": "w"}


def table(number: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "x": rng.uniform(size=number),
            "z": np.exp(0.5 * rng.normal(size=number)),
            "h": rng.integers(0, 24, number),
            "m": rng.uniform(size=number),
            "g": pd.Categorical(rng.choice(list("cab"), number), list("cab")),
            "r": rng.choice([f"r{i}" for i in range(20)], number),
            "o": 0.2 * rng.normal(size=number),
            "w": rng.integers(0, 4, number),
        }
    )
    eta = np.sin(5.0 * data["x"]) + 0.4 * data["z"] * (data["g"] == "a") + data["o"]
    data["count"] = rng.poisson(np.exp(eta))
    data["y"] = eta + 0.4 * rng.normal(size=number)
    data["label"] = np.where(eta + rng.normal(size=number) > 0.5, "up", "down")
    return data


def pieces(data: pd.DataFrame) -> list[pd.DataFrame]:
    """Uneven ones, one of them empty."""
    ends = [0, 700, 700, 701, 3100, len(data)]
    return [data.iloc[a:b] for a, b in itertools.pairwise(ends)]


class Anew:
    """Begins anew each time, with the tables of its turn."""

    def __init__(self, *turns: list[object]) -> None:
        self.turns, self.times = turns, 0

    def __iter__(self):
        self.times += 1
        return iter(self.turns[min(self.times, len(self.turns)) - 1])


@pytest.fixture
def few(monkeypatch):
    """So few rows are kept as they are that the tests' tables have more."""
    monkeypatch.setattr(bins, "KEPT_ROWS", 1500)
    monkeypatch.setattr(rows_module, "BLOCK", 1700)


def parquet(folder, data: pd.DataFrame) -> str:
    """Categories are those of the first file, and what others have beyond."""
    folder.mkdir()
    other = data.iloc[1800:].assign(g=lambda d: d["g"].cat.reorder_categories(list("bca")))
    for i, part in enumerate((data.iloc[:1800], other)):
        part.to_parquet(folder / f"{i}.parquet", row_group_size=999)
    return str(folder)


# --- the fit of the table ------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("family", "response"), [("gaussian", "y"), ("poisson", "count")])
def test_blocks_give_the_fit_of_their_table(family, response, few):
    data, few_steps = table(), {"max_iterations": 4}  # in which rounding does not grow
    whole = gg.GAM(TERMS, family, **ROLES).fit(data, response, **few_steps)
    stream = gg.GAM(TERMS, family, **ROLES).fit(pieces(data), response, **few_steps)
    assert stream.fitted.result.discretisation > 0.0
    assert stream.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=1e-5)
    known = {"type": "link", "se": True, "unconditional": False}
    assert_close(stream.predict(data, **known), whole.predict(data, **known), rtol=1e-5, atol=1e-6)
    ours, theirs = stream.summary(), whole.summary()
    assert ours.num_rows == theirs.num_rows == np.sum(data["w"] > 0)
    assert ours.deviance_explained == pytest.approx(theirs.deviance_explained, abs=1e-8)
    tables = (t.table.drop(columns=["lengthscale", "p"]) for t in (ours, theirs))
    pd.testing.assert_frame_equal(*tables, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(ours.table["p"], theirs.table["p"], rtol=0.01, atol=1e-4)
    for name in ("s(x)", "s(z):g=a", "te(x,m)"):
        # draws of hyperparameters once, which take longest
        options = {"num_points": 7, "unconditional": name == "s(x)" and family == "gaussian"}
        one, other = (g.effects(name, **options) for g in (stream, whole))
        simulated = ["lower_simultaneous", "upper_simultaneous"]
        pd.testing.assert_frame_equal(
            one.drop(columns=simulated), other.drop(columns=simulated), rtol=1e-3, atol=1e-4
        )
    assert one["x"].min() == data["x"][data["w"] > 0].min()


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("family", "response"), [("gaussian", "y"), ("bernoulli", "label")])
def test_with_a_bin_a_value_it_is_the_fit_of_the_numbers(family, response, monkeypatch):
    """The route of few rows knows nothing of codes and samples."""
    data = table()
    data["x"], data["z"] = data["x"].round(2), data["z"].round(1)
    data.loc[data.index[::7], "x"] = np.nan
    data.loc[3000:3010, "g"] = None
    terms = s("x", k=8) + s("z", k=6, by=factor("g")) + s("h", k=6, by="m") + te("x", "h", k=9)
    numbers = gg.GAM(terms, family, missing="drop", **ROLES).fit(data, response)
    monkeypatch.setattr(bins, "KEPT_ROWS", 1500)
    codes = gg.GAM(terms, family, missing="drop", **ROLES).fit(pieces(data), response)
    assert codes.fitted.result.discretisation == 0.0
    assert codes.fitted.dropped == numbers.fitted.dropped > 500
    for one, other in zip(codes.fitted.spec.components, numbers.fitted.spec.components):
        assert (one.name, one.form, one.by) == (other.name, other.form, other.by)
        for a, b in zip((one, *one.margins), (other, *other.margins)):
            np.testing.assert_allclose(a.nodes, b.nodes, rtol=1e-9)
            np.testing.assert_allclose(a.weights, b.weights, rtol=1e-9)
        np.testing.assert_allclose(one.inducing, other.inducing, rtol=1e-9)
        assert [m.ends for m in one.margins] == [m.ends for m in other.margins]
    assert codes.fitted.result.elbo == pytest.approx(numbers.fitted.result.elbo, abs=0.02)
    new = data.dropna()[:500]
    (a, sd), (b, _) = (
        g.predict(new, "link", se=True, unconditional=False) for g in (codes, numbers)
    )
    assert np.max(np.abs(a - b) / sd) < 0.02
    np.testing.assert_allclose(codes.fitted.deviance(), numbers.fitted.deviance(), rtol=1e-4)
    assert codes.fitted.deviance()[1] == pytest.approx(numbers.fitted.deviance()[1], rel=2e-5)
    offsets = [g.fitted.mean_offset() - g.fitted.spec.constant for g in (codes, numbers)]
    np.testing.assert_allclose(*offsets, atol=1e-12)


def test_little_noise_is_met_with_finer_bins_from_another_pass(few):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=9000)})
    data["y"] = np.sin(8.0 * data["x"]) + 0.1 * rng.normal(size=9000)
    source = Anew(pieces(data))
    gam = gg.GAM(s("x", k=12)).fit(source, "y")
    assert source.times == 3
    (codes,) = (c.bins.codes for c in gam.fitted.solution.rows.components[1:])
    assert codes.dtype == np.uint16
    assert gam.fitted.result.discretisation < 1e-3


def test_few_rows_are_one_table():
    data = table(600)
    source = Anew(pieces(data.iloc[:700]))
    stream = gg.GAM(TERMS, "poisson", **ROLES).fit(source, "count", max_iterations=2)
    assert source.times == 1
    whole = gg.GAM(TERMS, "poisson", **ROLES).fit(data, "count", max_iterations=2)
    np.testing.assert_array_equal(stream.predict(data), whole.predict(data))
    assert stream.fitted.data.complete


@pytest.mark.parametrize("gone", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("formula", ["y ~ b + s(x, by=b, k=5)", "y ~ s(t, k=5) + u", "y ~ c + x"])
def test_a_column_of_which_a_piece_has_nothing_keeps_its_type(formula, gone):
    """As pieces of a CSV have it: what is all missing are numbers there."""
    rng, n = np.random.default_rng(2), 240
    data = pd.DataFrame({"x": rng.uniform(size=n), "b": rng.uniform(size=n) < 0.5})
    data["t"] = pd.date_range("2021-03-01", periods=n)
    data["u"] = data["b"].map({True: "yes", False: "no"})
    data["c"] = pd.Categorical(data["u"], ["yes", "no"], ordered=True)
    data["y"] = data["b"] * np.sin(6 * data["x"]) + 0.1 * rng.normal(size=n)
    parts = [data.iloc[i : i + 80] for i in (0, 80, 160)]
    parts[gone] = parts[gone].assign(**dict.fromkeys("btuc", np.nan))
    stream = gg.GAM(formula, missing="drop").fit(parts)
    rest = data.drop(index=parts[gone].index)
    whole = gg.GAM(formula).fit(rest)
    assert stream.names == whole.names
    np.testing.assert_allclose(stream.predict(data), whole.predict(data), rtol=1e-6)
    for name in whole.names:
        one, other = (g.effects(name, num_points=3).iloc[:, 0] for g in (stream, whole))
        assert one.tolist() == other.tolist()


def test_rows_that_are_dropped_make_no_table_of_blocks(monkeypatch):
    """How many rows come, not how many stay, says which route a fit takes."""
    monkeypatch.setattr(bins, "KEPT_ROWS", N - 100)
    data = table()
    data.loc[data.index[::5], "x"] = np.nan
    terms = s("x", k=6) + factor("g")
    whole, stream = (
        gg.GAM(terms, "poisson", missing="drop").fit(source, "count")
        for source in (data, pieces(data))
    )
    for gam in (whole, stream):
        assert gam.fitted.number == len(gam.fitted.X) == 4000
        assert isinstance(gam.fitted.data, CodedData)
        assert gam.fitted.dropped == 1000
    np.testing.assert_allclose(whole.predict(data.dropna()), stream.predict(data.dropna()))
    imputed = gg.GAM(terms, "poisson", missing="impute").fit(data, "count")
    assert imputed.summary().imputed == 1000
    assert imputed.fitted.number == N
    assert np.all(np.isfinite(imputed.predict(data)))


# --- files and what comes after a fit -------------------------------------------------------------


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """A fit to a folder of Parquet files, its data, and where they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins, "KEPT_ROWS", 1500)
        data = table()
        path = parquet(tmp_path_factory.mktemp("data") / "files", data)
        terms = s("x", k=8) + s("h", k=6) + factor("g") + linear("m")
        gam = gg.GAM(terms, "poisson", **ROLES).fit(path, "count")
        same = gg.GAM(terms, "poisson", **ROLES).fit(data, "count")
    return gam, same, data, path


def test_files_give_the_fit_of_pandas(streamed):
    gam, same, data, _ = streamed
    assert gam.fitted.spec.encoder.levels("g") == ("c", "a", "b")
    np.testing.assert_allclose(gam.predict(data), same.predict(data), rtol=1e-6)


@pytest.mark.slow
def test_predictions_from_files_are_those_from_tables(streamed, monkeypatch):
    gam, _, data, path = streamed
    blockwise = importlib.import_module("gpflow_gam.gam.fits.prediction")
    monkeypatch.setattr(blockwise, "BLOCK", 2600)
    monkeypatch.setattr(blockwise, "_STEP", 2600)
    for options in (
        {"type": "response"},
        {"type": "link", "se": True},
        {"type": "response", "interval": 0.9},
        {"type": "terms"},
        {"type": "observation"},
    ):
        ours, theirs = (gam.predict(source, **options) for source in (path, data))
        assert type(ours) is type(theirs)
        if isinstance(ours, pd.DataFrame):
            pd.testing.assert_frame_equal(ours, theirs)
            assert len(ours) == N
        else:
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    np.testing.assert_array_equal(gam.log_density(path), gam.log_density(data))
    first = data.iloc[:50]
    np.testing.assert_array_equal(gam.sample([first[:20], first[20:]], 3), gam.sample(first, 3))
    bad = data.copy()
    bad["g"] = bad["g"].astype(object)
    bad.loc[2700, "g"] = "new"
    with pytest.raises(ValueError, match=r"rows 2600 to 4999 .*'new' in row 100, never seen"):
        gam.predict([bad])
    with pytest.raises(ValueError, match="data has no rows"):
        gam.predict([data.iloc[:0]])


def test_a_saved_fit_of_many_rows_is_the_same(streamed, tmp_path):
    gam, _, data, _ = streamed
    again = reloaded(gam, tmp_path / "a.gam")
    np.testing.assert_array_equal(again.predict(data), gam.predict(data))
    assert again.summary().deviance_explained == pytest.approx(gam.summary().deviance_explained)
    for column in ("x", "estimate", "se"):
        one, other = (g.effects("s(x)", num_points=5)[column] for g in (again, gam))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)
    indices = [g.sobol(unconditional=False, num_samples=200) for g in (again, gam)]
    pd.testing.assert_frame_equal(*indices, rtol=1e-6)


# --- errors --------------------------------------------------------------------------------------


def changed(**columns: object):
    """Two blocks, the second with other columns."""
    return lambda d: [d[:2000], d[2000:].assign(**columns)]


ERRORS = {
    "generator": (lambda d: (p for p in pieces(d)), "can be read only once"),
    "no column": (lambda d: [d[:9], d[9:].drop(columns="x")], "block 1: data has no column 'x'"),
    "another kind": (changed(x="7"), "'x' holds numbers in block 0"),
    "infinite": (changed(x=np.where(np.arange(N - 2000) == 9, np.inf, 0.5)),
                 r"rows 2000 to 4999 of data: column 'x' must be finite; got inf in row 9"),
    "bad response": (changed(count=-1),
                     r"rows 2000 to 4999 of data: count must be whole count.* in row 0 \(3000 su"),
    "fewer rows": (lambda d: Anew(pieces(d), pieces(d)[:4]),
                   "5000 complete rows and 0 others when it was first read, and 3100 and 0 at"),
    "more rows": (lambda d: Anew(pieces(d), [d, d]),
                  "first read, and more than that at the second"),
    "other values": (lambda d: Anew([d], [d.assign(h=d["h"] + 1)]),
                     "a value, 24, that was not there when the data were first read"),
    "missing": (changed(x=np.nan), r"3000 in 'x' \(3000 of 5000 rows\)"),
    "impute": (changed(x=np.nan), "'impute' needs medians of all rows", {"missing": "impute"}),
    "engine": (pieces, "engine='iterncgp' needs all rows", {"engine": "iterncgp"}),
    "block": (pieces, "variational='block' needs all rows", {"variational": "block"}),
    "weights": (lambda d: [d.assign(m=-d["m"])], "'m' must not be", {"weights": "m"}),
    "constant": (lambda d: [d.assign(x=1.0)], "column 'x' is constant"),
    "same response": (lambda d: [d.assign(count=3)], "'count' is constant"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_one_sentence_says_what_is_wrong(case, few):
    source, message, *options = ERRORS[case]
    terms = s("x", k=5) + s("h", k=5) + factor("g")
    gam = gg.GAM(terms, "poisson", **(options[0] if options else {}))
    with pytest.raises(TypeError if case == "generator" else ValueError, match=message):
        gam.fit(source(table()), "count")


def test_other_things_that_are_refused(few, monkeypatch):
    data = table()
    with pytest.raises(ValueError, match="y must name the response's column"):
        gg.GAM(s("x")).fit(pieces(data), data["y"])
    with pytest.raises(ValueError, match="batch_size=100 needs all rows"):
        gg.GAM(s("x"), "poisson").fit(pieces(data), "count", batch_size=100)
    many = data.assign(r=np.arange(N) % 1600)
    monkeypatch.setattr("gpflow_gam.gam.fits.specification.MAX_SITES", 1500)
    with pytest.raises(ValueError, match="variational='block' needs all rows"):
        gg.GAM(random_effect("r"), "poisson").fit(pieces(many), "count")
    with pytest.raises(ValueError, match="'x' is also in a term"):
        gg.GAM(s("x")).fit(pieces(data), "x")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        gg.GAM(s("x")).fit("nowhere.parquet", "y")


# --- pieces --------------------------------------------------------------------------------------


def test_a_sample_is_even_whatever_period_rows_have(few):
    indices = RowSample.of(np.zeros((24_000, 0))).indices
    gaps = np.diff(indices)
    assert gaps.max() < 3 * gaps.min()
    for period in (7, 8, 24):
        share = np.bincount(indices % period, minlength=period) / len(indices)
        assert share.max() < 1.5 / period


def test_numbers_are_stored_to_the_last_bit(rng):
    for values, kind in (
        (rng.integers(0, 256, 50), np.uint8),
        (rng.integers(0, 60_000, 50) + 256, np.uint16),
        (-rng.integers(0, 9, 50), np.int32),
        (rng.integers(0, 9, 50) / 8.0, np.float32),
        (rng.normal(size=50), np.float64),
    ):
        store = Store(values.shape)
        store.put(0, values.astype(float))
        stored = store.done()
        assert stored.raw.dtype == kind
        np.testing.assert_array_equal(np.asarray(stored), values)
        np.testing.assert_array_equal(stored[3:9], values[3:9])
        assert stored[np.array([4, 4])].dtype == np.float64
    store = Store((6, 1))
    blocks = [[3.0, 2.0**31 - 1.0], [0.5, -1.0], [np.nextafter(1.0, 2.0), 7.0]]
    for i, block in enumerate(blocks):  # none fits into what was enough before
        store.put(2 * i, np.array(block)[:, None])
    np.testing.assert_array_equal(np.asarray(store.done())[:, 0], np.ravel(blocks))


def test_the_bar_tells_passes_and_rows(few, capsys, monkeypatch):
    data = table()
    gg.GAM(s("x", k=5), "poisson").fit(data, "count", max_iterations=2)
    assert "pass" not in capsys.readouterr().err  # this is no terminal
    gam = gg.GAM(s("x", k=5), "poisson").fit(pieces(data), "count", max_iterations=2, progress=True)
    shown = capsys.readouterr().err
    assert "reading, pass 1 of 2" in shown
    assert "reading, pass 2 of 2: 100%" in shown
    assert "5.00k/5.00k" in shown
    assert "pass 1, 5,000 of 5,000 rows" in shown
    last = f"ELBO {gam.fitted.result.history[-2]:.4f}"
    assert f"pass 3, 5,000 of 5,000 rows, {last}" in shown
    assert f"ELBO {gam.fitted.result.elbo:.4f}" in shown
    monkeypatch.setattr(minimizers, "_in_notebook", lambda: True)
    with minimizers.progress_bar("reading", " rows", None) as bar:
        assert not bar.disable
