"""The benchmark of speed: what it writes, reads, judges and shows; no seconds are asserted."""

from __future__ import annotations

import sys
from pathlib import Path

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
