"""Pages of results are those of the recorded files; what a benchmark may record is checked."""

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


def test_pages_are_those_of_the_files():
    pages = results_page.pages(RESULTS)
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, "run python benchmarks/results_page.py"
    details = set(results_page.PAGE.with_suffix("").glob("*"))
    assert set(pages) == {results_page.PAGE, *details}
    assert len(pages[results_page.PAGE].splitlines()) <= 200


def test_every_file_stands_on_one_page_of_details_under_a_heading_of_its_own():
    named = [name for _, names in results_page.TOPICS.values() for name in names.split()]
    assert sorted(named) == sorted(RESULTS)
    assert len({result["title"] for result in RESULTS.values()}) == len(RESULTS)


@pytest.mark.parametrize("name", results_page.DRAWN)
def test_figures_are_drawn_from_the_files_and_shown(name):
    drawn = Image.open(results_page.FIGURES / f"{name}.png").text["Description"]
    _, topic, files = results_page.DRAWN[name]
    assert drawn == results_page.digest(*files.split())
    assert {path.stem for path in results_page.FIGURES.glob("*")} == set(results_page.DRAWN)
    assert f"figures/results/{name}.png" in results_page.front(RESULTS)
    assert not topic or f"figures/results/{name}.png" in results_page.detail(topic, RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_machine_and_versions_are_stated(name):
    result = RESULTS[name]
    if name not in OLDER:
        assert result["machine"]["cores"] >= 1
        assert {"python", "gpflow_gam", "gpflow", "tensorflow", "numpy"} <= set(result["versions"])
    assert result["rows"]
    assert "/tmp" not in json.dumps(result)


def test_every_benchmark_records():
    folder = ROOT / "benchmarks"
    scripts = {p.relative_to(folder).as_posix() for p in folder.glob("*.py")}
    scripts |= {p.relative_to(folder).as_posix() for p in folder.glob("iterncgp/*.py")}
    scripts -= set(results_page.HELPERS)
    for file in scripts:
        assert re.search(r"^ +(record|study)\(", (folder / file).read_text("utf-8"), re.M), file
    assert scripts <= {r["benchmark"] for r in RESULTS.values()}


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


def test_losses_are_what_the_best_of_others_is_ahead_by(tmp_path):
    behind = results_page.comparisons(written(tmp_path))
    assert [round(share, 3) for share, _ in behind] == [1.0, -0.125, 0.001]
    assert behind[0][1] == "truth a: RMSE **0.200** (ours), **0.100** by theirs"
    assert results_page.section(written(tmp_path)).count("\n- ") == 1


def test_intervals_of_ours_that_cover_too_little_are_counted(tmp_path):
    rows = [{**row, "coverage": 0.75 + row["RMSE"]} for row in ROWS]
    text = results_page.section(written(tmp_path, rows))
    assert "less than 90 %:* 1 of 2; the least, 0.850: truth b, model ours" in text
