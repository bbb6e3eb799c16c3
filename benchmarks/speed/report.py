"""Medians, ratios, a table and a figure of what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from running import METHODS, Record
from tabulate import tabulate

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

QUANTITIES = {
    "state": "state, s",
    "pass_s": "a pass, s",
    "first": "fit, s",
    "again": "again, s",
    "refit": "refit, s",
    "iterations": "iterations",
    "draw": "draw, s",
    "draw_again": "draw again, s",
    "effects": "effects, s",
    "summary": "summary, s",
    "predict": "predict, s",
    "predict_again": "predict again, s",
    "base": "below, s",
    "rmse": "RMSE",
    "deviance": "held-out deviance",
    "r2": "R2",
    "edf": "edf",
    "explained": "explained",
    "interactions": "interactions",
    "sent_kb": "sent a pass, kB",
    "reductions": "reductions",
    "held_mb": "held, MB",
    "memory_mb": "peak, MB",
    "predict_mb": "predict peak, MB",
    "mb_a_fit": "MB a fit",
}
"""Columns of the tables, in their order."""
BETTER = {
    "fit, s": "lower",
    "five fits, s": "lower",
    "fit and draw, s": "lower",
    "predict, s": "lower",
    "RMSE": "lower",
    "held-out deviance": "lower",
    "R2": "higher",
}
"""Columns in which one can win or lose, in the record."""
BASELINES = (("bam", "bam1"), ("gam",), ("ebm",))
"""What a ratio is to: the faster of the first of these that a size has."""
COLOURS = dict(zip(METHODS, ("#c8102e", "#1f4e79", "#4f81bd", "#9dc3e6", "#5a8f3c", "#b8860b")))
MARKERS = dict(zip(METHODS, "ospD^v"))
HEADLINES = {"predict": "predict"}
"""What a case is about, where that is not its fit."""
NAMES = {"imports": {"first": "import, s"}, "crossval": {"first": "five fits, s"}}
"""Quantities with names of their own in some cases."""
Key = tuple[str, int, str]
"""Case, size, method."""


def medians(records: Sequence[Record]) -> dict[Key, dict[str, float]]:
    """Of every number over the repeats; sizes in ascending order."""
    gathered: dict[Key, dict[str, list[float]]] = {}
    for record in records:
        key = (record["case"], record["size"], record["method"])
        own = gathered.setdefault(key, {})
        for name, value in record.get("numbers", {}).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                own.setdefault(name, []).append(float(value))
    return {
        key: {name: float(np.median(values)) for name, values in own.items()}
        for key, own in gathered.items()
        if own
    }


def ratios(found: dict[Key, dict[str, float]], quantity: str = "first") -> dict[Key, float]:
    """Seconds over those of the baseline at the same size."""
    out = {}
    for (case, size, method), numbers in found.items():
        for methods in BASELINES:
            own = [found.get((case, size, m), {}).get(quantity) for m in methods]
            there = [seconds for seconds in own if seconds is not None]
            if there:
                if method not in methods and quantity in numbers:
                    out[case, size, method] = numbers[quantity] / min(there)
                break
    return out


def derived(case: str, size: int, numbers: dict[str, float]) -> dict[str, float]:
    """What follows from the medians and is wanted beside them."""
    out = {}
    if {"first", "draw"} <= set(numbers):
        out["fit and draw, s"] = numbers["first"] + numbers["draw"]
    if case == "reading" and {"first", "effects", "summary"} <= set(numbers):
        whole = numbers["first"] + numbers["effects"] + numbers["summary"]
        out["with reading / fit"] = whole / numbers["first"]
    if case == "rows" and numbers.get("iterations"):
        out["ms an iteration"] = 1e3 * numbers["first"] / numbers["iterations"]
    if case == "predict" and "predict" in numbers:
        out["rows/s"] = size / numbers["predict"]
    return out


def rows(case: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row a size and method: medians, and ratios to the baseline."""
    own = [r for r in records if r["case"] == case]
    found = medians(own)
    to = ratios(found, HEADLINES.get(case, "first"))
    lines: list[dict[str, Any]] = []
    for key, numbers in found.items():
        line: dict[str, Any] = {own[0]["unit"]: key[1], "by": key[2]}
        names = {**QUANTITIES, **NAMES.get(case, {})}
        line |= {head: numbers[q] for q, head in names.items() if q in numbers}
        line |= derived(*key[:2], numbers)
        if key in to:
            line["ratio"] = to[key]
        lines.append(line)
    return lines


def recorded(case: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The same, for a file: whole numbers as such, and nothing where there is no number."""
    return [
        {
            head: _whole(value)
            for head, value in line.items()
            if not (isinstance(value, float) and math.isnan(value))
        }
        for line in rows(case, records)
    ]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value


def table(case: str, records: Sequence[Record]) -> str:
    """A row a size and method."""
    own = [r for r in records if r["case"] == case]
    lines = rows(case, records)
    heads = dict.fromkeys(head for line in lines for head in line)
    body = [[_shown(line.get(head)) for head in heads] for line in lines]
    right = ("right", "left", *["right"] * (len(heads) - 2))
    text = tabulate(body, list(heads), disable_numparse=True, colalign=right if body else None)
    notes = [r["note"] for r in own if r["note"]][:1]
    notes += [f"{r['method']} at {r['size']}: {r['error']}" for r in own if "error" in r]
    return "\n".join([case, text, *dict.fromkeys(notes)])


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 4)}f}"


def figure(records: Sequence[Record], path: Path) -> None:
    """Seconds against size, a panel a case of several sizes; the others in one panel together."""
    found = {
        key: {**numbers, "first": numbers[HEADLINES.get(key[0], "first")]}
        for key, numbers in medians(records).items()
        if HEADLINES.get(key[0], "first") in numbers
    }
    cases = list(dict.fromkeys(case for case, _, _ in found))
    sizes = {c: sorted({size for case, size, _ in found if case == c}) for c in cases}
    several = [c for c in cases if len(sizes[c]) > 1]
    single = [c for c in cases if len(sizes[c]) == 1]
    number = len(several) + bool(single)
    if not number:
        return
    across = min(number, 3)
    down = -(-number // across)
    fig, axes = plt.subplots(
        down, across, figsize=(4.8 * across, 3.9 * down), squeeze=False, constrained_layout=True
    )
    for ax in axes.flat[number:]:
        ax.axis("off")
    units = {r["case"]: r["unit"] for r in records}
    for ax, case in zip(axes.flat, several):
        _lines(ax, case, found, units[case])
    if single:
        _points(axes.flat[number - 1], single, found, sizes)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def _lines(ax: Any, case: str, found: dict[Key, dict[str, float]], unit: str) -> None:
    for method in METHODS:
        style = {"color": COLOURS[method], "marker": MARKERS[method], "markersize": 5}
        for quantity, look in (("first", "-"), ("again", ":")):
            points = sorted(
                (size, n[quantity])
                for (c, size, m), n in found.items()
                if c == case and m == method and quantity in n
            )
            if not points or (quantity == "again" and method != "ours"):
                continue
            label = method if quantity == "first" else f"{method}, again"
            ax.plot(*zip(*points), linestyle=look, label=label, **style)
    ax.set(xscale="log", yscale="log", title=case, xlabel=unit, ylabel="seconds")
    _ticks(ax.xaxis)
    _ticks(ax.yaxis)
    ax.grid(which="major", color="0.88")
    ax.legend(frameon=False, fontsize=9)


def _ticks(axis: Any) -> None:
    """At powers of ten over decades; also between them, as plain numbers, over less."""
    low, high = axis.get_view_interval()
    if high < 40.0 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _points(
    ax: Any, cases: list[str], found: dict[Key, dict[str, float]], sizes: dict[str, list[int]]
) -> None:
    for method in METHODS:
        points = [
            (found[c, sizes[c][0], method]["first"], i)
            for i, c in enumerate(cases)
            if (c, sizes[c][0], method) in found
        ]
        if points:
            style = {"color": COLOURS[method], "marker": MARKERS[method]}
            ax.plot(*zip(*points), linestyle="", label=method, alpha=0.85, **style)
    ax.set(xscale="log", xlabel="seconds", title="cases of one size", ylim=(len(cases) - 0.5, -0.5))
    ax.set_yticks(range(len(cases)), cases)
    _ticks(ax.xaxis)
    ax.grid(axis="both", color="0.88")
    ax.legend(frameon=False, fontsize=9)
