"""
Time the installed package, and write down whose commit it is: ``tox -e history``.

Results are kept in ``benchmarks/history/results``, a folder a machine and a file a commit; those of
different machines are never compared. ``--machine NAME`` says which this is (by default one named
by its cores), ``--publish`` makes pages of all results in ``build/asv/html``. The rest is asv's:
``asv compare --config benchmarks/history/asv.conf.json A B`` says what changed from A to B.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from asv.machine import Machine, MachineCollection

CONFIG = Path(__file__).parent / "asv.conf.json"


def asv(*arguments: str) -> None:
    """:raises subprocess.CalledProcessError: it failed."""
    command = [sys.executable, "-m", "asv", *arguments, "--config", str(CONFIG)]
    subprocess.run(command, check=True)


def describe(machine: str) -> None:
    """Tell asv what this machine is: ``asv machine --machine NAME`` keeps the name alone."""
    MachineCollection.save(machine, {**Machine.get_defaults(), "machine": machine})


def without_paths(machine: str) -> None:
    """Call the environment by Python's version: asv names it by where the interpreter lies."""
    folder, version = CONFIG.parent / "results" / machine, platform.python_version()
    for path in folder.glob("*-existing-*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        found["env_name"] = f"python{version}"
        found["python"] = found["params"]["python"] = version
        path.unlink()
        name = f"{found['commit_hash'][:8]}-{found['env_name']}.json"
        (folder / name).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--machine", default=f"{os.cpu_count()}-cores")
    parser.add_argument("--bench", help="a regular expression: these only")
    parser.add_argument("--publish", action="store_true", help="make pages of all results")
    options = parser.parse_args()
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=CONFIG.parent, check=True, capture_output=True, text=True
    )
    describe(options.machine)
    try:
        asv(
            "run",
            "--environment", f"existing:{sys.executable}",
            "--set-commit-hash", found.stdout.strip(),
            "--machine", options.machine,
            "--launch-method", "spawn",
            *(["--bench", options.bench] if options.bench else []),
        )  # fmt: skip
    finally:  # where a benchmark fails, results of the others are written all the same
        without_paths(options.machine)
    if options.publish:
        asv("publish")


if __name__ == "__main__":
    main()
