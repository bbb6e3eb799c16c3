"""The benchmark of speed: what it writes, reads, judges and shows; no seconds are asserted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# its modules run as scripts, beside each other
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "speed"))

import cases
import ours
import report
import running
import workloads


def test_a_fit_of_ours_is_measured_and_judged(tmp_path):
    data = workloads.uniform(200, 1, "gaussian")
    data.write(tmp_path)
    model = workloads.smooths(1, "gaussian", k=5)
    task = {"folder": str(tmp_path), "formula": model.ours, "family": model.family}
    numbers = ours.fit({**task, "stages": ["predictor"]})
    numbers |= running.judged(tmp_path, data, model.family)
    assert numbers["first"] > 0.0
    assert numbers["memory_mb"] > 0.0
    assert 1.0 < numbers["edf"] < 7.0
    assert numbers["rmse"] < 0.2
    assert not (tmp_path / "predictor.bin").exists()


def test_methods_take_turns_and_those_that_fail_are_left_out():
    order = []

    def run(method):
        def once(folder, settings):
            order.append(method)
            if method == "ebm":
                raise running.GivenUp("longer than 1 s")
            return {"first": 2.0 if method == "ours" else 1.0}

        return once

    runs = {m: run(m) for m in ("ours", "bam", "ebm")}
    cells = [running.Cell("c", size, runs, lambda folder: None) for size in (10, 20)]
    records = running.measure(cells, running.Settings(repeats=2))
    assert order == ["ours", "bam", "ebm", "ours", "bam", *["ours", "bam"] * 2]
    assert "ebm at 10: longer than 1 s" in report.table("c", records)
    assert report.ratios(report.medians(records)) == {
        ("c", 10, "ours"): 2.0,
        ("c", 20, "ours"): 2.0,
    }


def test_a_process_that_fails_or_takes_long_is_given_up():
    with pytest.raises(running.GivenUp, match="no luck"):
        running.command([sys.executable, "-c", "raise SystemExit('no luck')"])
    with pytest.raises(running.GivenUp, match="longer than"):
        running.command([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)
    assert running.named("first 1.5\nblas /usr/lib\n") == {"first": 1.5, "blas": "/usr/lib"}


def test_every_case_has_cells_and_a_table():
    plan = cases.Plan(quick=True)
    records = []
    for name, case in cases.CASES.items():
        for cell in case(plan):
            assert cell.case == name
            for method in cell.runs:
                record = {"case": name, "size": cell.size, "unit": cell.unit, "method": method}
                numbers = {"first": 1.0, "again": 0.5, "predict": 0.1}
                records.append({**record, "note": cell.note, "numbers": numbers})
    assert {r["case"] for r in records} >= set(cases.CASES) - {"flights"}  # which needs a package
    for name in dict.fromkeys(r["case"] for r in records):
        assert report.table(name, records).startswith(name)
    sizes = [cell.size for cell in cases.poisson(cases.Plan(max_rows=20_000))]
    assert sizes == [2_000, 20_000]
