"""
How long the GAM takes: fits, effects, predictions, beside mgcv, pyGAM and EBM in the same run.

A fit is timed from ``GAM(...)`` to fitted, tracing included and imports not, as the first of a
fresh process, then again in the same process. Peers are timed around their fits alone. Methods
take turns, and medians of the repeats are shown; every number is in ``speed.json``, and the medians
of each case are recorded for the page of results. mgcv runs where ``Rscript`` is on the PATH; pyGAM
and interpret (EBM) may live with interpreters of their own. Run it with ``python
benchmarks/speed.py`` (hours), ``--only poisson bike`` (a part) or ``--max-rows 2000`` (a trial).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).with_suffix("")))

from cases import CASES, Plan
from harness import python_version
from recording import machine, parser_of, record, versions
from report import BETTER, HEADLINES, recorded, table
from running import METHODS, OF_MGCV, PACKAGES, Record, Settings, measure, missing


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("speed"), help="folder of the results")
    parser.add_argument("--max-rows", type=int, default=1_000_000, help="of any case")
    parser.add_argument("--refits", type=int, default=200, help="fits of the case refits")
    parser.add_argument("--sonar", type=Path, help="mlbench's Sonar as csv, the class last")
    parser.add_argument("--threads", type=int, default=2, help="of bam")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a measurement")
    for method, package in (("pygam", "pygam"), ("ebm", "interpret")):
        parser.add_argument(f"--{method}-python", metavar="PATH", help=f"a Python with {package}")
    return parser.parse_args()


def store(
    case: str,
    records: list[Record],
    given: argparse.Namespace,
    settings: Settings,
    absent: set[str],
) -> None:
    """The medians of a case, for the page of results."""
    rows = recorded(case, records)
    asked = (CASES[case].__doc__ or "").strip().splitlines()[0].rstrip(".")
    unit = next(r["unit"] for r in records if r["case"] == case)
    heads = {head for row in rows for head in row}
    result = {row["by"] for row in rows}
    peers = {m: names for m, names in PACKAGES.items() if m in result}
    # a case about predictions fits for them, and is not about the fit
    skip = {"fit, s"} if HEADLINES.get(case, "first") != "first" else set()
    record(
        f"speed_{case}",
        asked,
        rows,
        argparse.Namespace(repeats=settings.repeats, threads=settings.threads, record=given.record),
        within=[unit],
        method="by",
        ours=["ours"] if len(result) > 1 else [],
        better={h: d for h, d in BETTER.items() if h in heads - skip and len(result) > 1},
        skipped=sorted(absent - result),
        peers=["R:mgcv"] if result & set(OF_MGCV) else [],
        peer_versions={p: python_version(settings.python(m), i, p) for m, (i, p) in peers.items()},
    )


def main() -> None:
    given = arguments()
    pythons = {"pygam": given.pygam_python, "ebm": given.ebm_python}
    settings = Settings(
        {method: path for method, path in pythons.items() if path},
        given.threads,
        given.limit,
        given.repeats,
        tuple(given.methods),
    )
    absent = missing(settings)
    for method, why in absent.items():
        print(f"{method} skipped: {why}")
    present = tuple(m for m in settings.methods if m not in absent)
    settings = dataclasses.replace(settings, methods=present)
    given.out.mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    result: dict[str, Any] = {
        "command": sys.argv[1:],
        "machine": {**machine(), "versions": versions()},
        "skipped": absent,
        "records": records,
    }

    def keep(record: Record) -> None:
        records.append(record)
        text = json.dumps(result, indent=1)
        (given.out / "speed.json").write_text(text + "\n", encoding="utf-8")

    plan = Plan(given.max_rows, given.refits, given.sonar)
    for name in given.only:
        measure(CASES[name](plan), settings, keep)
        if any(r["case"] == name for r in records):
            print(f"\n{table(name, records)}\n", flush=True)
            if recorded(name, records):
                store(name, records, given, settings, set(absent))
    print(given.out / "speed.json")


if __name__ == "__main__":
    main()
