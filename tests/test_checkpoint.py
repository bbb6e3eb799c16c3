"""Fits that are ended, and go on from their checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import archive, factor, s
from gpflow_gam.optimizers import Checkpoint
from gpflow_gam.optimizers.binned import checkpoint


def table(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    df = pd.DataFrame({"x": rng.uniform(size=rows), "z": rng.normal(size=rows)})
    df["g"] = rng.choice(["a", "b", "c"], rows)
    rho = np.sin(6.0 * df["x"]) + 0.3 * df["z"] + (df["g"] == "b")
    return df.assign(
        y=rho + 0.3 * rng.normal(size=rows),
        count=rng.negative_binomial(2.0, 1.0 / (1.0 + 0.5 * np.exp(rho))),
    )


def gam(family: str) -> gg.GAM:
    terms = s("x", k=6) + factor("g")
    # enough for more than one leg of a search
    return gg.GAM(terms + s("z", k=6) if family == "gaussian" else terms, family)


FAMILIES = {"gaussian": "y", "negative_binomial": "count"}


class Killed(BaseException):
    """Like a kill: nothing in the package catches it."""


def killed_after(number: int) -> Any:
    seen = [0]

    def callback(_: object) -> None:
        seen[0] += 1
        if seen[0] > number:
            raise Killed

    return callback


def in_pieces(
    family: str, df: pd.DataFrame, folder: Path, number: int = 1
) -> tuple[gg.GAM, list[int]]:
    """A fit that is killed after ``number`` iterations, again and again; iterations of each run."""
    held = []
    for _ in range(60):
        own = gam(family)
        try:
            own.fit(
                df,
                FAMILIES[family],
                checkpoint=Checkpoint(folder, save_every=0.0),
                callback=killed_after(number),
            )
        except Killed:
            _, arrays = archive.read(folder / "fit.state", checkpoint._KIND, 1)
            held.append(max(len(a) for name, a in arrays.items() if name.endswith("history")))
            continue
        return own, held
    raise AssertionError(f"the fit never ended: {held}")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("many", [False, True], ids=["one stage", "begun on a part"])
def test_a_fit_in_pieces_is_the_fit_to_the_last_bit(many, tmp_path, monkeypatch):
    df = table()
    if many:
        monkeypatch.setattr("gpflow_gam.optimizers.fits.MANY_ROWS", 200)
        monkeypatch.setattr("gpflow_gam.optimizers.fits.START_ROWS", 100)
        # read in blocks, and kept as codes
        monkeypatch.setattr("gpflow_gam.optimizers.binned.bins.KEPT_ROWS", 150)
        monkeypatch.setattr("gpflow_gam.gam.fits.reading.BLOCK", 64)
    whole = gam("negative_binomial").fit(df, "count")
    pieces, held = in_pieces("negative_binomial", df, tmp_path)
    assert len(held) >= 2
    np.testing.assert_array_equal(pieces.predict(df, interval=0.9), whole.predict(df, interval=0.9))
    np.testing.assert_array_equal(pieces.fitted.result.history, whole.fitted.result.history)
    assert pieces.fitted.result.message == whole.fitted.result.message


def test_the_search_of_a_collapsed_bound_goes_on(tmp_path: Path) -> None:
    df = table()
    whole = gam("gaussian").fit(df, "y")
    pieces, held = in_pieces("gaussian", df, tmp_path, number=8)
    assert held
    assert held == sorted(held)
    np.testing.assert_array_equal(pieces.predict(df), whole.predict(df))
    assert pieces.fitted.result.elbo == whole.fitted.result.elbo


def test_a_second_call_goes_on_and_a_third_ends_at_once(tmp_path: Path) -> None:
    df = table()
    whole = gam("negative_binomial").fit(df, "count")
    early = gam("negative_binomial")
    with pytest.warns(gg.ConvergenceWarning):
        early.fit(df, "count", checkpoint=tmp_path, max_iterations=2)
    later = gam("negative_binomial").fit(df, "count", checkpoint=tmp_path)
    np.testing.assert_array_equal(later.predict(df), whole.predict(df))
    # the file of a fit that has ended stays
    passes: list[object] = []
    again = gam("negative_binomial").fit(
        df, "count", checkpoint=tmp_path, callback=lambda p: passes.append(p)
    )
    assert not passes
    np.testing.assert_array_equal(again.predict(df), whole.predict(df))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    with pytest.warns(gg.ConvergenceWarning):
        gam("negative_binomial").fit(table(), "count", checkpoint=folder, max_iterations=2)
    return folder


def test_another_fit_is_refused(written: Path) -> None:
    before = (written / "fit.state").read_bytes()
    df = table()
    response = df.assign(count=df["count"].where(df.index != 7, 3 + df["count"]))
    order = df.assign(x=df["x"].to_numpy()[[1, 0, *range(2, len(df))]])
    longer = pd.concat([df, df.iloc[:1]], ignore_index=True)
    rougher = gg.GAM(s("x", k=7) + factor("g"), "negative_binomial")

    def fit(own: gg.GAM, data: pd.DataFrame) -> Any:
        return lambda: own.fit(data, "count", checkpoint=written)

    cases = {
        "responses": fit(gam("negative_binomial"), response),
        "inputs or weights": fit(gam("negative_binomial"), order),
        "inducing inputs of component": fit(rougher, df),
        "parameters": fit(gam("poisson"), df),
        "differ": fit(gam("negative_binomial"), longer),
    }
    for what, begin in cases.items():
        with pytest.raises(ValueError, match=rf"written by another fit: .*{what}"):
            begin()
    assert (written / "fit.state").read_bytes() == before


def test_damaged_files(written: Path, tmp_path: Path) -> None:
    content = (written / "fit.state").read_bytes()
    for broken in (b"", content[:-100], content[:2000] + b"?" + content[2001:]):
        (tmp_path / "fit.state").write_bytes(broken)
        with pytest.raises(ValueError, match=r"^checkpoint: .*damaged.*[Rr]emove it"):
            gam("negative_binomial").fit(table(), "count", checkpoint=tmp_path)


def test_fits_without_checkpoints_and_bad_arguments_are_refused() -> None:
    df = table()
    with pytest.raises(ValueError, match="^checkpoint: a fit with engine='iterncgp' writes none"):
        gg.GAM(s("x"), "poisson", engine="iterncgp").fit(df, "count", checkpoint="nowhere")
    with pytest.raises(ValueError, match="^checkpoint: a fit with batch_size=10"):
        gg.GAM(s("x"), "poisson").fit(df, "count", checkpoint="nowhere", batch_size=10)
    assert not Path("nowhere").exists()
    with pytest.raises(ValueError, match="save_every must be seconds"):
        Checkpoint("nowhere", save_every=-1.0)


def test_a_full_disk_does_not_end_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    df, calls, write = table(), [0], archive.write

    def full(*args: Any, **options: Any) -> None:
        calls[0] += 1
        if calls[0] > 1:
            raise OSError(28, "No space left on device")
        write(*args, **options)

    monkeypatch.setattr(archive, "write", full)
    with pytest.warns(gg.CheckpointWarning, match="No space left on device.*the fit goes on"):
        result = gam("negative_binomial").fit(df, "count", checkpoint=tmp_path)
    assert result.fitted.result.converged
    # but a folder that nothing can be written to is told before anything is computed
    calls[0] = 9
    with pytest.raises(OSError, match="No space left"):
        gam("negative_binomial").fit(df, "count", checkpoint=tmp_path / "other")
