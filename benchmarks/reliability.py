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
import itertools
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
from recording import parser_of, record
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import archive, factor, s
from gpflow_gam.gam import saving

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from nasty import RELATIONS, SAME, change, judged, mild_case, wild_case  # noqa: E402

FIGURE = ROOT / "docs" / "figures" / "reliability"
GOOD = {"fitted": "tab:blue", "fitted, tails": "tab:cyan", "refused": "0.7"}
"""Outcomes as they should be, and their colours."""
BAD = ("tab:red", "tab:orange", "tab:purple", "tab:brown", "tab:pink")
Rows = list[dict[str, Any]]
"""With ``what``, ``outcome`` and ``count``."""


def counted(what: str, counts: dict[str, int]) -> Rows:
    return [{"what": what, "outcome": o, "count": n} for o, n in sorted(counts.items())]


def random_gams(number: int, seconds: float, start: int) -> tuple[Rows, Rows]:
    """Outcomes of random cases, and of each family, with those that are not as they should be."""
    families: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    failures: Rows = []
    begun = time.perf_counter()

    for seed in range(start, start + number):
        if time.perf_counter() - begun > seconds:
            break
        case = wild_case(seed)
        outcome = judged(case)
        families[case.family][outcome.kind] += 1
        if not outcome.good:
            text = f"{outcome.kind}: {outcome.text}; {case!r}"
            failures.append({"what": "failure", "outcome": text, "count": 1})
            print(outcome.kind, outcome.text, case, sep="\n  ", flush=True)
    details = [counted(f"random GAMs, {name}", own) for name, own in sorted(families.items())]
    total = sum(families.values(), collections.Counter())
    return counted("random GAMs", total), [*itertools.chain(*details), *failures]


def invariances(number: int, start: int) -> Rows:
    """Random small models, each fitted twice: as it is, and to data that say the same."""
    counts: dict[str, collections.Counter[str]] = {r: collections.Counter() for r in RELATIONS}
    for seed in range(start, start + number):
        relation = RELATIONS[seed % len(RELATIONS)]
        result = change(mild_case(seed), relation)
        kind = "not comparable" if np.isnan(result) else "same" if result <= SAME else "differs"
        counts[relation][kind] += 1
        if kind == "differs":
            print(seed, relation, result, mild_case(seed), flush=True)
    return [row for r, own in counts.items() for row in counted(f"{r} changed", own)]


def data(rows: int = 200) -> pd.DataFrame:
    """What the files of the other parts are fitted to."""
    rng = np.random.default_rng(0)
    df = pd.DataFrame({"x": rng.uniform(size=rows), "g": rng.choice(["a", "b"], rows)})
    return df.assign(count=rng.poisson(np.exp(np.sin(6.0 * df["x"]))))


def damaged_files(number: int) -> Rows:
    """Files cut short, and files with a bit flipped, half of each."""
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
    return counted("damaged files", counts)


def killed_saves(number: int) -> Rows:
    """
    A process that writes a GAM's file again and again, killed at random moments.

    What is written is made before: TensorFlow does not work in a forked process.
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
    return counted("killed saves", counts)


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


def killed_fits(number: int) -> Rows:
    """A fit with a checkpoint, killed at random moments and started again."""
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
    return counted("killed fits", counts)


def _child(result: Path, folder: Path | None) -> list[str]:
    return [sys.executable, __file__, "--fit", str(result), "" if folder is None else str(folder)]


def draw(rows: Rows) -> None:
    """Bars of the outcomes by family."""
    import matplotlib.pyplot as plt

    table = pd.DataFrame([r for r in rows if r["what"] != "failure"])
    table["what"] = table["what"].str.removeprefix("random GAMs, ")
    table = table.pivot_table("count", "what", "outcome", fill_value=0)
    table = table.drop(columns="not built", errors="ignore")
    bad = dict(zip(sorted(set(table) - set(GOOD)), BAD))
    fig, ax = plt.subplots(figsize=(8.0, 3.2), layout="constrained")
    colors = {k: c for k, c in GOOD.items() if k in table} | bad
    table[list(colors)].plot.barh(stacked=True, width=0.8, color=colors, ax=ax)
    ax.set(xlabel=f"random GAMs, {table.to_numpy().sum():.0f} in all", ylabel="")
    ax.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    fig.savefig(FIGURE.with_suffix(".png"), dpi=150)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--models", type=int, default=1150)
    parser.add_argument("--seconds", type=float, default=1e6, help="of the random GAMs")
    parser.add_argument("--pairs", type=int, default=500, help="of fits that are to be the same")
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--fits", type=int, default=20, help="kills of one fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        result, folder = options.fit
        np.save(result, fitted_with_checkpoint(Path(folder) if folder else None))
        return
    parts = [
        damaged_files(options.files),
        killed_saves(options.kills),
        killed_fits(options.fits),
        invariances(options.pairs, options.seed),
    ]
    random, details = random_gams(options.models, options.seconds, options.seed)
    rows = [*random, *itertools.chain(*parts)]
    record(
        "reliability",
        "Failures: random GAMs, damaged files and killed processes",
        rows + details,
        options,
    )
    counts = [(f"{row['what']}: {row['outcome']}", row["count"]) for row in rows]
    table = tabulate(counts, ["", "count"], tablefmt="rst")
    FIGURE.with_suffix(".txt").write_text(table + "\n", encoding="utf-8")
    draw(details)
    print(table)


if __name__ == "__main__":
    main()
