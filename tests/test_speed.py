"""The benchmark of speed: what it writes, reads, judges and shows; no seconds are asserted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

# its modules run as scripts, beside each other
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "speed"))

import cases
import columns
import ours
import python_peers
import report
import running
import workers
import workloads


def test_columns_come_back_as_they_were_written(tmp_path):
    text = columns.levels(["b", "a", "b"])
    table = pd.DataFrame({"x": [0.5, -1.0, 2.0], "g": text})
    columns.write(tmp_path, table)
    result = columns.read(tmp_path)
    pd.testing.assert_frame_equal(result, table)
    assert list(result["g"].cat.categories) == ["a", "b"]
    assert python_peers.matrix(result).shape == (3, 2)


def test_effects_have_mean_zero_and_one_is_nothing():
    x = (np.arange(10_000) + 0.5) / 10_000
    for c in range(8):
        f = workloads.effect(c, x)
        assert f.mean() == pytest.approx(0.0, abs=1e-4)
        assert f.std() == pytest.approx(0.0 if c == 3 else workloads.EFFECT, rel=1e-3)


@pytest.mark.parametrize("family", ["gaussian", "poisson", "bernoulli"])
def test_deviance_is_least_at_what_was_observed(family):
    data = workloads.uniform(500, 2, family)
    y = data.train["y"].to_numpy()
    mean = {"gaussian": y, "poisson": y}.get(family, np.clip(y, 0.01, 0.99))
    least = running.deviance(family, y, mean)
    assert 0.0 <= least < running.deviance(family, y, np.full(500, y.mean()))


def test_link_and_its_inverse():
    np.testing.assert_allclose(python_peers.predictor(np.exp([0.3]), "poisson"), [0.3])
    np.testing.assert_allclose(python_peers.predictor(np.array([0.5]), "bernoulli"), [0.0])


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


def test_ratios_are_to_the_faster_bam():
    result = {("c", 1, m): {"first": s} for m, s in (("ours", 3.0), ("bam", 2.0), ("bam1", 1.0))}
    assert report.ratios(result) == {("c", 1, "ours"): 3.0}


def test_a_process_that_fails_or_takes_long_is_given_up():
    with pytest.raises(running.GivenUp, match="no luck"):
        running.command([sys.executable, "-c", "raise SystemExit('no luck')"])
    with pytest.raises(running.GivenUp, match="longer than"):
        running.command([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)
    assert running.named("first 1.5\nblas /usr/lib\n") == {"first": 1.5, "blas": "/usr/lib"}


@pytest.mark.slow
def test_two_workers_are_measured_and_find_what_one_does(tmp_path):
    workloads.uniform(5000, 2, "poisson").write(tmp_path)
    model = workloads.smooths(2, "poisson", k=6)
    one, two = (workers.cluster(model, n, tmp_path, running.Settings()) for n in (1, 2))
    assert two["rmse"] == pytest.approx(one["rmse"], rel=1e-6)
    assert two["iterations"] == one["iterations"]
    assert two["sent_kb"] > 0.0
    assert "sent_kb" not in one
    shares = [workers.share(tmp_path, i, 3)["y"] for i in range(3)]
    np.testing.assert_array_equal(np.concatenate(shares), columns.read(tmp_path / "train")["y"])


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
