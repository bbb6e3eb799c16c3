"""
How often does the front door fail? Random GAMs on nasty data, damaged files, killed saves.

- More than a thousand random GAMs of ``tests/fuzz``: each has to end in finite, sane numbers, or in
  an error of ours that names what it is about. Where a case asks for it the answers are compared
  with those of the same rows in another order, in other units, each row twice at half the weight,
  or with other names of levels.
- Random small GAMs, each fitted twice: with covariates' signs, levels' names, the order of rows,
  rows that are there twice or rows that do not count changed, the predictor stays within a
  hundredth of its standard deviation; those that differ are listed, with their seeds.
- A saved GAM cut short or with a bit flipped: an error, or the same predictions.
- A process that writes a GAM's file, killed (SIGKILL) at fifty moments: the old file or the new
  one, whole, and nothing beside it after the next ``save``.
- A process that fits with a checkpoint, killed (SIGKILL) twenty times at random moments, started
  again each time: in the end the predictions of a fit that nobody killed.

Run it with ``python benchmarks/reliability.py``; ``--seconds`` ends the first part early, and the
counts say how many there were. It writes ``docs/figures/reliability.txt`` and ``.png``, too.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, Phase, given, seed, settings
from recording import add_option, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import archive, factor, s
from gpflow_gam.gam import saving

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from nasty import (  # noqa: E402
    RELATIONS,
    SAME,
    Case,
    Outcome,
    cases,
    change,
    judged,
    mild_case,
)

FIGURE = ROOT / "docs" / "figures" / "reliability"
GOOD = ("fitted", "fitted, tails", "refused")


def random_gams(number: int, seconds: float, start: int) -> dict[str, Any]:
    """
    Outcomes of random cases, and those that are not as they should be.

    :param number: at most so many.
    :param seconds: after which no further one is begun.
    :param start: of hypothesis.
    """
    counts: collections.Counter[str] = collections.Counter()
    failures: list[dict[str, str]] = []
    families: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    begun = time.perf_counter()

    @seed(start)
    @settings(
        max_examples=number,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def run(case: Case) -> None:
        if time.perf_counter() - begun > seconds:
            return
        outcome: Outcome = judged(case)
        counts[outcome.kind] += 1
        families[case.family][outcome.kind] += 1
        if not outcome.good:
            failures.append({"kind": outcome.kind, "text": outcome.text, "case": repr(case)})
            print(outcome.kind, outcome.text, case, sep="\n  ", flush=True)

    run()
    total = sum(counts.values()) - counts["not built"]
    return {
        "models": total,
        "outcomes": dict(counts),
        "by_family": {name: dict(own) for name, own in sorted(families.items())},
        "failures": failures,
    }


def invariances(number: int, start: int) -> dict[str, Any]:
    """
    Random small models, each fitted twice: as it is, and to data that say the same.

    :param number: of models; of each one of the changes in turn.
    :param start: the first one's seed.
    """
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    differing: list[dict[str, Any]] = []
    for seed_ in range(start, start + number):
        relation = RELATIONS[seed_ % len(RELATIONS)]
        result = change(mild_case(seed_), relation)
        kind = "not comparable" if np.isnan(result) else "same" if result <= SAME else "differs"
        counts[relation][kind] += 1
        if kind == "differs":
            differing.append({"seed": seed_, "relation": relation, "by": result})
            print(seed_, relation, result, mild_case(seed_), flush=True)
    return {"counts": {k: dict(v) for k, v in counts.items()}, "differing": differing}


def data(rows: int = 200) -> pd.DataFrame:
    """What the files of the other parts are fitted to."""
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"x": rng.uniform(size=rows), "g": rng.choice(["a", "b"], rows)})
    return df.assign(count=rng.poisson(np.exp(np.sin(6.0 * df["x"]))))


def damaged_files(number: int) -> dict[str, int]:
    """
    Files cut short, and files with a bit flipped, half of each.

    :param number: of both together.
    """
    df = data()
    gam = gg.GAM(s("x", k=6) + factor("g"), "poisson").fit(df, "count", progress=False)
    expected, rng = gam.predict(df), np.random.default_rng(1)
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gam"
        gam.save(path)
        content = path.read_bytes()
        for i in range(number):
            broken = bytearray(content)
            if i % 2:
                broken = broken[: int(rng.integers(len(content)))]
            else:
                broken[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
            path.write_bytes(broken)
            try:
                again = gg.GAM.load(path).predict(df)
            except ValueError as error:
                counts["refused" if "damaged" in str(error) else "other error"] += 1
            except Exception as error:
                counts["raw error"] += 1
                print(repr(error), flush=True)
            else:
                counts["same" if np.array_equal(again, expected) else "other predictions"] += 1
    return dict(counts)


def killed_saves(number: int) -> dict[str, int]:
    """
    A process that writes a GAM's file again and again, killed at random moments.

    What is written is made before: TensorFlow does not work in a forked process.

    :param number: of times.
    """
    df, rng = data(2000), np.random.default_rng(2)
    gam = gg.GAM(s("x") + factor("g"), "poisson").fit(df, "count", progress=False)
    expected = gam.predict(df)
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "a.gam"
        gam.save(target)
        header, arrays = archive.read(target, "gpflow_gam.GAM", saving.FORMAT)
        begun = time.perf_counter()
        archive.write(target, header, arrays, overwrite=True)
        takes = time.perf_counter() - begun
        for _ in range(number):
            process = os.fork()
            if process == 0:
                while True:
                    archive.write(target, header, arrays, overwrite=True)
            time.sleep(float(rng.uniform(0.0, 3.0 * takes)))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            again = gg.GAM.load(target).predict(df)
            counts["whole" if np.array_equal(again, expected) else "damaged"] += 1
            counts["left a temporary file"] += len(os.listdir(folder)) > 1
            gam.save(target, overwrite=True)
            counts["temporary files after the next save"] += len(os.listdir(folder)) - 1
    return dict(counts)


def fitted_with_checkpoint(folder: Path | None) -> np.ndarray:
    """Predictions of a fit that takes some seconds, its state kept as often as possible."""
    df = data(150_000)
    rng = np.random.default_rng(3)
    for i in range(8):
        df[f"z{i}"] = rng.normal(size=len(df))
    terms = s("x") + factor("g")
    for i in range(8):
        terms = terms + s(f"z{i}", k=20)
    kept = None if folder is None else gg.optimizers.Checkpoint(folder, save_every=0.0)
    print("begins", flush=True)
    gam = gg.GAM(terms, "negative_binomial").fit(df, "count", checkpoint=kept, progress=False)
    return np.asarray(gam.predict(df[:1000]))


def killed_fits(number: int) -> dict[str, int]:
    """
    A fit with a checkpoint, killed at random moments and started again.

    :param number: of kills.
    """
    rng, counts = np.random.default_rng(4), collections.Counter({"killed": 0})
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "one.npy", Path(folder) / "pieces.npy"
        begun = time.perf_counter()
        subprocess.run(_child(paths[0], None), check=True, capture_output=True)
        takes = time.perf_counter() - begun
        while counts["killed"] < number:
            there = (Path(folder) / "state" / "fit.state").exists()
            process = subprocess.Popen(
                _child(paths[1], Path(folder) / "state"), stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            process.stdout.readline()  # imports and data are not what is killed
            try:
                process.wait(float(rng.uniform(0.0, 0.3 * takes)))
                counts["ended before"] += 1
                (Path(folder) / "state" / "fit.state").unlink()  # and begins anew
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                counts["killed"] += 1
                counts["went on from a state"] += there
        subprocess.run(_child(paths[1], Path(folder) / "state"), check=True, capture_output=True)
        one, pieces = map(np.load, paths)
        counts["ended with other numbers"] = int(not np.array_equal(one, pieces))
    return dict(counts)


def _child(result: Path, folder: Path | None) -> list[str]:
    return [sys.executable, __file__, "--fit", str(result), "" if folder is None else str(folder)]


def draw(result: dict[str, Any]) -> None:
    """Bars of the outcomes by family, and in the title what was found in files."""
    import matplotlib.pyplot as plt

    kinds = sorted({k for own in result["random"]["by_family"].values() for k in own})
    kinds = [*GOOD, *(k for k in kinds if k not in (*GOOD, "not built"))]
    families = list(result["random"]["by_family"])
    fig, ax = plt.subplots(figsize=(8.0, 3.2), layout="constrained")
    left = np.zeros(len(families))
    colors = [
        "tab:blue",
        "tab:cyan",
        "0.7",
        "tab:red",
        "tab:orange",
        "tab:purple",
        "tab:brown",
        "tab:pink",
    ]
    for kind, color in zip(kinds, colors):
        own = np.array([result["random"]["by_family"][f].get(kind, 0) for f in families])
        ax.barh(families, own, left=left, color=color, label=kind)
        left += own
    ax.set_xlabel(f"random GAMs, {result['random']['models']} in all")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    fig.savefig(FIGURE.with_suffix(".png"), dpi=150)


def counts_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row an outcome."""
    random = result["random"]
    parts = {"random GAMs": random["outcomes"], "damaged files": result["files"]}
    parts |= {"killed saves": result["kills"], "killed fits": result["fits"]}
    parts |= {f"{r} changed": own for r, own in result["invariances"]["counts"].items()}
    return [
        {"what": what, "outcome": outcome, "count": number}
        for what, own in parts.items()
        for outcome, number in sorted(own.items())
    ]


def details_of(random: dict[str, Any]) -> list[dict[str, Any]]:
    """Random GAMs by family, and every failure, of which there should be none."""
    rows = [
        {"what": f"random GAMs, {family}", "outcome": outcome, "count": number}
        for family, own in random["by_family"].items()
        for outcome, number in sorted(own.items())
    ]
    rows += [
        {"what": "failure", "outcome": f"{f['kind']}: {f['text']}; {f['case']}", "count": 1}
        for f in random["failures"]
    ]
    return rows


def table(result: dict[str, Any]) -> str:
    """The counts, as the documentation shows them."""
    rows = [(f"{row['what']}: {row['outcome']}", row["count"]) for row in counts_of(result)]
    return str(tabulate(rows, ["", "count"], tablefmt="rst")) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--models", type=int, default=1150)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of the random GAMs")
    parser.add_argument("--pairs", type=int, default=500, help="of fits that are to be the same")
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--fits", type=int, default=20, help="kills of one fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", nargs=2, help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args()
    if options.fit:
        result, folder = options.fit
        np.save(result, fitted_with_checkpoint(Path(folder) if folder else None))
        return
    result = {
        "files": damaged_files(options.files),
        "kills": killed_saves(options.kills),
        "fits": killed_fits(options.fits),
        "invariances": invariances(options.pairs, options.seed),
        "random": random_gams(options.models, options.seconds, options.seed),
    }
    record(
        "reliability",
        "Failures of random GAMs, damaged files and killed processes",
        counts_of(result) + details_of(result["random"]),
        options,
        peers=["hypothesis"],
    )
    FIGURE.with_suffix(".txt").write_text(table(result), encoding="utf-8")
    draw(result)
    shown = {k: v for k, v in result["random"].items() if k not in ("failures", "by_family")}
    print(json.dumps({**result, "random": shown}, indent=1))


if __name__ == "__main__":
    main()
