"""The page of results is that of the recorded files; what a benchmark may record is checked."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import pytest
from PIL import Image
from test_package import ROOT, script

sys.path.insert(0, str(ROOT / "benchmarks"))

import recording

results_page = script("benchmarks/results_page.py")
RESULTS = results_page.load()
OLDER = {"reliability"}  # run before machines were recorded; the page says so


def test_the_page_is_that_of_the_files():
    text = results_page.PAGE.read_text(encoding="utf-8")
    assert text == results_page.page(RESULTS), "run python benchmarks/results_page.py"


@pytest.mark.parametrize("name", [n for n, r in RESULTS.items() if results_page.panels(r)])
def test_figures_are_drawn_from_the_files(name):
    drawn = Image.open(results_page.FIGURES / f"{name}.png").text["Description"]
    assert drawn == results_page.digest(results_page.RESULTS / f"{name}.json")


def test_there_are_no_other_figures():
    drawn = {path.stem for path in results_page.FIGURES.glob("*.png")}
    assert drawn == {n for n, r in RESULTS.items() if results_page.panels(r)}


@pytest.mark.parametrize("name", RESULTS)
def test_machine_and_versions_are_stated(name):
    result = RESULTS[name]
    if name not in OLDER:
        assert result["machine"]["cores"] >= 1
        assert {"python", "gpflow_gam", "gpflow", "tensorflow", "numpy"} <= set(result["versions"])
    assert result["rows"]
    assert "/tmp" not in json.dumps(result)


def test_every_benchmark_records_or_is_listed():
    folder = ROOT / "benchmarks"
    scripts = {p.relative_to(folder).as_posix() for p in folder.glob("*.py")}
    scripts |= {p.relative_to(folder).as_posix() for p in folder.glob("iterncgp/*.py")}
    scripts -= set(results_page.HELPERS)
    recording_ones = {
        s
        for s in scripts
        if re.search(r"^ +(record|study)\(", (folder / s).read_text("utf-8"), re.M)
    }
    assert scripts - recording_ones == set(results_page.BY_HAND)
    assert recording_ones <= {r["benchmark"] for r in RESULTS.values()}


# --- what the page makes of numbers -------------------------------------------------------------

ROWS = [
    {"truth": "a", "model": "ours", "RMSE": 0.2, "R2": 0.9},
    {"truth": "a", "model": "theirs", "RMSE": 0.1, "R2": 0.8},
    {"truth": "b", "model": "ours", "RMSE": 0.1, "R2": None},
    {"truth": "b", "model": "theirs", "RMSE": 0.0999, "R2": 0.8},
]
HOW = {"within": ["truth"], "method": "model", "ours": ["ours"]}
BETTER = {"RMSE": "lower", "R2": "higher"}


def written(folder: Path, rows=ROWS, **changes) -> dict:
    options = argparse.Namespace(record=folder, seeds=3, data=Path("/tmp/x"), python="/tmp/y")
    keywords = {**HOW, "better": BETTER, **changes}
    path = recording.record("trial", "A trial", rows, options, **keywords)
    return json.loads(path.read_text(encoding="utf-8"))


def test_paths_are_not_recorded(tmp_path):
    assert written(tmp_path)["settings"] == {"seeds": 3}


def test_what_cannot_be_recorded_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no column 'speed'"):
        written(tmp_path, better={"speed": "lower"})
    with pytest.raises(ValueError, match="'less', not one of"):
        written(tmp_path, better={"RMSE": "less"})
    with pytest.raises(ValueError, match="JSON"):
        written(tmp_path, [{**ROWS[0], "RMSE": float("nan")}])
    with pytest.raises(TypeError, match="rows hold text"):
        written(tmp_path, [{**ROWS[0], "RMSE": object()}])
