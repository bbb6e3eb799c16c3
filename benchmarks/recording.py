"""
What a benchmark found, with where and by what: ``benchmarks/results/NAME.json``.

A benchmark calls :func:`record` at its end. ``benchmarks/results_page.py`` makes
the pages of results out of these files. A trial is best written elsewhere: ``--record FOLDER``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("gpflow_gam", "gpflow", "tensorflow", "keras", "numpy", "scipy", "scikit-learn")
DIRECTIONS = ("lower", "higher")


def parser_of(doc: str | None, **numbers: int) -> argparse.ArgumentParser:
    """With the first line of a docstring, whole numbers and their defaults, and ``--record``."""
    parser = argparse.ArgumentParser(description=(doc or "").strip().splitlines()[0])
    for name, number in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument(
        "--record", type=Path, default=RESULTS, metavar="FOLDER", help="of the JSON file"
    )
    return parser


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Where this runs, and how busy it is: processes that compute, over the last minutes."""
    result: dict[str, Any] = {"system": platform.system(), "processor": processor()}
    result["cores"] = os.cpu_count()
    if hasattr(os, "sysconf"):
        pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        result["memory, GB"] = round(pages / 2**30, 1)
    if hasattr(os, "getloadavg"):
        result["load"] = round(os.getloadavg()[2], 1)
    return result


def versions(others: Sequence[str] = ()) -> dict[str, str]:
    """
    Of Python, of what we stand on, and of peers.

    :param others: packages of Python, or ``"R:mgcv"``.
    """
    result = {"python": platform.python_version()}
    for name in (*PACKAGES, *others):
        if name.startswith("R:"):
            if shutil.which("Rscript") is None:
                continue
            code = f"cat(as.character(getRversion()), as.character(packageVersion('{name[2:]}')))"
            answer = subprocess.run(["Rscript", "-e", code], capture_output=True, text=True)
            if answer.returncode == 0:
                result["R"], result[name[2:]] = answer.stdout.split()
            continue
        try:
            result[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return result


def script() -> str:
    """What is run: its path below this folder, or its name."""
    path = Path(sys.argv[0]).resolve()
    here = RESULTS.parent
    return path.relative_to(here).as_posix() if here in path.parents else path.name


def record(
    name: str,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    options: argparse.Namespace,
    *,
    within: Sequence[str] = (),
    method: str | None = None,
    ours: Sequence[str] = (),
    better: Mapping[str, str] | None = None,
    skipped: Sequence[str] = (),
    peers: Sequence[str] = (),
    peer_versions: Mapping[str, str] | None = None,
) -> Path:
    """
    Print what was found, and write it.

    :param name: of the file, and of the benchmark.
    :param title: a line that says what was asked.
    :param rows: of the table; flat, of text, numbers and None.
    :param options: of the run, with ``record``, the folder. Paths among them are left out.
    :param within: columns of which rows with equal entries are compared with each other.
    :param method: the column that says who made a row.
    :param ours: entries of that column that are ours.
    :param better: ``"lower"`` or ``"higher"`` of columns in which one can win or lose.
    :param skipped: what was not there to compare with.
    :param peers: what else to state versions of, as :func:`versions` takes it.
    :param peer_versions: of peers with an interpreter of their own.
    :return: the file.
    :raises ValueError: if a column is named that rows do not have, or a number is not finite.
    """
    better = dict(better or {})
    known = {column for row in rows for column in row}
    for column in (*within, *better, *([method] if method else [])):
        if column not in known:
            raise ValueError(f"rows have no column {column!r}; they have {sorted(known)}")
    for column, direction in better.items():
        if direction not in DIRECTIONS:
            raise ValueError(f"better[{column!r}] is {direction!r}, not one of {DIRECTIONS}")
    settings = {
        key: value
        for key, value in vars(options).items()
        if key != "record" and not isinstance(value, Path) and "/" not in str(value)
    }
    content = {
        "benchmark": script(),
        "title": title,
        "made": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": {**versions(peers), **(peer_versions or {})},
        "settings": settings,
        "skipped": list(skipped),
        "compare": {
            "within": list(within),
            "method": method,
            "ours": list(ours),
            "better": better,
        },
        "rows": [dict(row) for row in rows],
    }
    print(tabulate(rows, "keys", floatfmt=".4g"))
    text = json.dumps(content, indent=1, allow_nan=False, default=_plain)
    options.record.mkdir(parents=True, exist_ok=True)
    path = options.record / f"{name}.json"
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path.name} written")
    return path


def _plain(value: Any) -> Any:
    """A number of numpy as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is a {type(value).__name__}: rows hold text, numbers and None")
