"""Lines and files of Python by room of the package, of tests and of benchmarks: ``tox -e size``."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).parent.parent
AT_MOST = {"gpflow_gam": (53_445, 133), "tests": (31_362, 81), "benchmarks": (6_988, 31)}
"""Lines and files. To be lowered with what they measure; a change that raises one says why."""


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Lines and files of what is in a folder: of its own modules as ``.``, and of folders in it."""
    rooms = {".": sorted(folder.glob("*.py"))}
    rooms |= {p.name: sorted(p.rglob("*.py")) for p in sorted(folder.iterdir()) if p.is_dir()}
    return {
        room: (sum(len(f.read_text(encoding="utf-8").splitlines()) for f in files), len(files))
        for room, files in rooms.items()
        if files
    }


def total(folder: Path) -> tuple[int, int]:
    """Lines and files of all of it."""
    lines, files = zip(*sizes(folder).values())
    return sum(lines), sum(files)


if __name__ == "__main__":
    rows = []
    for name, most in AT_MOST.items():
        rooms = sizes(ROOT / name)
        if "gam" in rooms:
            del rooms["gam"]
            rooms |= {f"gam/{room}": size for room, size in sizes(ROOT / name / "gam").items()}
        rows += [(f"{name}/{room}", *size) for room, size in rooms.items()]
        rows.append((f"{name}, all (at most {most[0]}, {most[1]})", *total(ROOT / name)))
    print(tabulate(rows, ["", "lines", "files"]))
