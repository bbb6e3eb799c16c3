"""
The page of all results, and its figures, out of what benchmarks have recorded.

``docs/results.md`` and ``docs/figures/results/NAME.png`` are made of ``benchmarks/results/*.json``
and of nothing else, so that no number is copied by hand; a test compares. Run it with
``python benchmarks/results_page.py`` after a benchmark has been run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
FIGURES = ROOT / "docs" / "figures" / "results"
LEVEL = 0.02
"""Scores that differ by less than this share count as level."""

BY_HAND = {"iterncgp/figures.py": "pictures of [](iterncgp.rst)"}
"""Benchmarks that record nothing yet, and where their numbers are."""
TABLES = {
    "gam.rst": "straight and absent effects (100 data sets); sentences of `responses.py` (24)",
    "comparison.rst": "`ncv.py` (15), and leaving rows out one by one",
    "shapes.rst": "means of the table of `shapes.py` above",
    "layers.rst": "`flights.py` (3 seeds) and `heads.py` (5)",
}
"""Pages with tables that were copied from what a run printed, and of which benchmark."""
HELPERS = (
    "harness.py",
    "public_tables.py",
    "recording.py",
    "results_page.py",
    "truths.py",
    "iterncgp/problems.py",
)

INTRODUCTION = """\
<!-- Made by benchmarks/results_page.py from benchmarks/results/*.json: change those, not this. -->

# Results

What the benchmarks found, with where and by what. This page and its figures are made from the files
that benchmarks write (`benchmarks/results`); no number on it is copied by hand, and a test fails
where page and files differ. `python benchmarks/NAME.py` makes a file anew.

The best of each group is **bold**, whoever it belongs to, in columns where less (↓) or more (↑) is
better. *Lost* lists, below each table, where somebody else's best is better than our best by more
than {level:.0%}, in bold, too; where a standard error is given, differences within it are chance.
Load is the number of processes that computed at the time, over a quarter of an hour: beside more
than one, seconds say little.
"""


def load(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What was recorded, by name."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def digest(path: Path) -> str:
    """Of a file; figures carry that of what they were drawn from."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- who is best -------------------------------------------------------------------------------


def groups(result: dict[str, Any]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows that are compared with each other."""
    values: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        values.setdefault(tuple(row.get(c) for c in result["compare"]["within"]), []).append(row)
    return values


def best(rows: Sequence[dict[str, Any]], column: str, direction: str) -> dict[str, Any] | None:
    """The row with the best score, if there is any."""
    scored = [row for row in rows if isinstance(row.get(column), (int, float))]
    if not scored:
        return None
    choose = min if direction == "lower" else max
    return choose(scored, key=lambda row: row[column])


def losses(result: dict[str, Any]) -> list[str]:
    """A line for each score in which somebody else's best is better than ours."""
    compare, values = result["compare"], []
    if not compare["ours"]:
        return []
    for key, rows in groups(result).items():
        own = [row for row in rows if row[compare["method"]] in compare["ours"]]
        others = [row for row in rows if row[compare["method"]] not in compare["ours"]]
        for column, direction in compare["better"].items():
            mine, theirs = best(own, column, direction), best(others, column, direction)
            if mine is None or theirs is None:
                continue
            a, b = mine[column], theirs[column]
            behind = a - b if direction == "lower" else b - a
            if behind <= LEVEL * abs(b):
                continue
            where = ", ".join(f"{c} {v}" for c, v in zip(compare["within"], key))
            scores = (
                f"{column} **{shown(a)}** ({mine[compare['method']]}), "
                f"**{shown(b)}** by {theirs[compare['method']]}"
            )
            values.append(f"{where}: {scores}" if where else scores)
    return values


# --- the page ----------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    if not isinstance(value, float):
        return str(value).replace("|", "\\|")
    if value == 0.0:
        return "0"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def table(result: dict[str, Any]) -> str:
    """In Markdown, the best of each group bold."""
    better = result["compare"]["better"]
    columns = list(dict.fromkeys(c for row in result["rows"] for c in row))
    arrow = {"lower": " ↓", "higher": " ↑"}
    texts = [any(isinstance(row.get(c), str) for row in result["rows"]) for c in columns]
    lines = [
        "| " + " | ".join(c + arrow.get(better.get(c, ""), "") for c in columns) + " |",
        "| " + " | ".join("---" if text else "---:" for text in texts) + " |",
    ]
    for rows in groups(result).values():
        tops = {c: best(rows, c, direction) for c, direction in better.items()}
        for row in rows:
            cells = []
            for c in columns:
                top, cell = tops.get(c), shown(row.get(c))
                first = top is not None and cell == shown(top[c]) and len(rows) > 1
                cells.append(f"**{cell}**" if first else cell)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def circumstances(result: dict[str, Any]) -> str:
    """When, where, by what."""
    m = result["machine"]
    where = str(m["processor"])
    where += f", {m['cores']} cores, {m['memory, GB']} GB, load {m['load']}" if m["cores"] else ""
    by = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    settings = ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in result["settings"].items()
        if value not in (None, False, [])
    )
    script = f"`benchmarks/{result['benchmark']}`"
    if not (ROOT / "benchmarks" / result["benchmark"]).exists():
        script = "A script that settled a decision and is no longer here"
    lines = [f"{script}, {result['made']}; {where}; {by}."]
    if settings:
        lines.append(f"Settings: {settings}.")
    if result["skipped"]:
        lines.append(f"Not there to compare with: {', '.join(result['skipped'])}.")
    return " ".join(lines)


def section(name: str, result: dict[str, Any]) -> str:
    """Of one file."""
    parts = [f"## {result['title']}", circumstances(result)]
    if panels(result):
        parts.append(f"![{result['title']}](figures/results/{name}.png)")
    parts.append(table(result))
    lost = losses(result)
    if lost:
        parts.append("*Lost:*\n\n" + "\n".join(f"- {line}" for line in lost))
    elif result["compare"]["ours"]:
        parts.append("*Lost:* nothing.")
    return "\n\n".join(parts)


def page(results: dict[str, dict[str, Any]]) -> str:
    """All of it."""
    lines = ["| asked | scores | lost |", "| --- | ---: | ---: |"]
    for result in results.values():
        if result["compare"]["ours"]:
            scores = len(groups(result)) * len(result["compare"]["better"])
            lines.append(f"| {result['title']} | {scores} | {len(losses(result))} |")
    hand = [f"- `benchmarks/{name}`: {where}" for name, where in BY_HAND.items()]
    parts = [
        INTRODUCTION.format(level=LEVEL).strip(),
        "Beside others:",
        "\n".join(lines),
        *(section(name, result) for name, result in results.items()),
        "## Not from files",
        "These benchmarks record nothing yet:",
        "\n".join(hand),
        "These pages have tables that were copied from what a run printed, mostly other runs than "
        "those above:",
        "\n".join(f"- []({name}): {of}" for name, of in TABLES.items()),
    ]
    return "\n\n".join(parts) + "\n"


# --- the figures -------------------------------------------------------------------------------


def panels(result: dict[str, Any]) -> list[str]:
    """Columns that are worth a picture: scores, and what bands cover."""
    columns = list(dict.fromkeys(c for row in result["rows"] for c in row))
    better = result["compare"]["better"]
    return [c for c in columns if c in better or (better and c.startswith("coverage"))]


def tick(value: float) -> str:
    """A number on an axis; thousands as k."""
    return f"{value / 1000.0:g}k" if abs(value) >= 10_000.0 else f"{value:g}"


def draw(result: dict[str, Any], source: Path, path: Path) -> None:
    """A dot a method, a line a group, a panel a score."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    method, ours = result["compare"]["method"], result["compare"]["ours"]
    columns, every = panels(result)[:4], groups(result)
    methods = list(dict.fromkeys(row[method] for row in result["rows"]))
    alone = len(every) == 1
    # where models are each group's own, what counts is whose they are
    whose = len(methods) > 8 and bool(ours)
    names = ["ours", "others"] if whose else methods
    own_names = [n for n in names if n == "ours" or not ours or n in ours]
    own_names = ["ours"] if whose else own_names
    names = [*own_names, *(n for n in names if n not in own_names)]
    colours = dict(zip(own_names, ("C0", "C9", "C4", "C6", "C5", "C7", "C8", "C2")))
    colours |= dict(zip(names[len(own_names) :], ("C1", "C3", "C2", "C8", "C5", "C7")))
    labels = methods if alone else [", ".join(map(str, key)) for key in every]
    height = 1.3 + 0.27 * len(labels)
    figure = Figure(figsize=(2.2 + 2.9 * len(columns), height), layout="constrained")
    axes = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
    for ax, column in zip(axes, columns):
        values, how = [], result["compare"].get("drawn", {}).get(column)
        for at, rows in enumerate(every.values()):
            top = best(rows, column, result["compare"]["better"].get(column, "lower"))
            for row in rows:
                value = row.get(column)
                if not isinstance(value, (int, float)):
                    continue
                if how is not None and top is not None:
                    value = value / top[column] if how == "ratio" else value - top[column]
                values.append(value)
                name = row[method]
                mine = not ours or name in ours
                key = ("ours" if mine else "others") if whose else name
                y = methods.index(name) if alone else at
                marker = "o" if mine else "D"
                ax.plot(value, y, marker, color=colours[key], markersize=6, alpha=0.8)
        if how == "difference" and max(values, default=0.0) > 0.1:
            ax.set_xscale("symlog", linthresh=0.01)
            ax.set_xlim(left=-0.002)
        elif values and min(values) > 0.0 and max(values) > 30.0 * min(values):
            wide = max(values) > 300.0 * min(values)
            ax.set_xscale("log")
            if not wide:
                ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            ax.xaxis.set_minor_formatter(NullFormatter())
        else:
            ax.xaxis.set_major_locator(MaxNLocator(4))
        plain = how == "difference" and ax.get_xscale() == "linear"
        if plain or (values and min(values) > 1e-3):
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        if column.startswith("coverage"):
            stated = re.search(r"(\d+) %", column)
            level = 0.95 if stated is None else float(stated[1]) / 100.0
            ax.axvline(level, color="0.4", linestyle=":", linewidth=1)
        beside = {"ratio": " / the best's", "difference": " - the best's", None: ""}[how]
        arrow = {"lower": " (less is better)", "higher": " (more is better)"}
        ax.set_xlabel(column + beside + arrow.get(result["compare"]["better"].get(column, ""), ""))
        ax.grid(axis="y", color="0.9")
        ax.set_axisbelow(True)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].set_ylabel("" if alone else ", ".join(result["compare"]["within"]))
    axes[0].set_ylim(len(labels) - 0.5, -0.5)
    if not alone:
        handles = [
            Line2D([], [], linestyle="", marker="o" if own else "D", color=colours[n], label=n)
            for n in names
            for own in [n == "ours" if whose else not ours or n in ours]
        ]
        figure.legend(handles=handles, loc="outside right upper", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Description": digest(source)})


def main() -> None:
    results = load()
    if not results:
        sys.exit(f"there is nothing in {RESULTS}")
    for name, result in results.items():
        source, path = RESULTS / f"{name}.json", FIGURES / f"{name}.png"
        if panels(result):
            draw(result, source, path)
    PAGE.write_text(page(results), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} benchmarks")


if __name__ == "__main__":
    main()
