"""Medians, ratios and a table of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from results_page import shown
from running import Record
from tabulate import tabulate

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
    "response": "response and se, s",
    "base": "below, s",
    "rmse": "RMSE",
    "deviance": "held-out deviance",
    "r2": "R2",
    "edf": "edf",
    "explained": "explained",
    "interactions": "interactions",
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
    "response and se, s": "lower",
    "RMSE": "lower",
    "held-out deviance": "lower",
    "R2": "higher",
}
"""Columns in which one can win or lose, in the record."""
BASELINES = (("bam", "bam1"), ("gam",), ("ebm",))
"""What a ratio is to: the faster of the first of these that a size has."""
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
        own = gathered.setdefault((record["case"], record["size"], record["method"]), {})
        for name, value in record.get("numbers", {}).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                own.setdefault(name, []).append(float(value))
    medians = {
        key: {name: float(np.median(values)) for name, values in own.items()}
        for key, own in gathered.items()
    }
    return {key: numbers for key, numbers in medians.items() if numbers}


def ratios(result: dict[Key, dict[str, float]], quantity: str = "first") -> dict[Key, float]:
    """Seconds over those of the baseline at the same size."""
    out = {}
    for (case, size, method), numbers in result.items():
        for methods in BASELINES:
            own = [result.get((case, size, m), {}).get(quantity) for m in methods]
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
    result = medians(own)
    to = ratios(result, HEADLINES.get(case, "first"))
    lines: list[dict[str, Any]] = []
    for key, numbers in result.items():
        line: dict[str, Any] = {own[0]["unit"]: key[1], "by": key[2]}
        names = {**QUANTITIES, **NAMES.get(case, {})}
        line |= {head: numbers[q] for q, head in names.items() if q in numbers}
        line |= derived(*key[:2], numbers)
        if key in to:
            line["ratio"] = to[key]
        lines.append({head: value for head, value in line.items() if value == value})
    return lines


def recorded(case: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The same, for a file: whole numbers as such."""
    whole = lambda v: int(v) if isinstance(v, float) and v == int(v) else v  # noqa: E731
    return [{head: whole(v) for head, v in line.items()} for line in rows(case, records)]


def table(case: str, records: Sequence[Record]) -> str:
    """A row a size and method."""
    own, lines = [r for r in records if r["case"] == case], rows(case, records)
    heads = dict.fromkeys(head for line in lines for head in line)
    body = [[shown(line.get(head)) for head in heads] for line in lines]
    right = ("right", "left", *["right"] * (len(heads) - 2))
    text = tabulate(body, list(heads), disable_numparse=True, colalign=right if body else None)
    notes = [r["note"] for r in own if r["note"]][:1]
    notes += [f"{r['method']} at {r['size']}: {r['error']}" for r in own if "error" in r]
    return "\n".join([case, text, *dict.fromkeys(notes)])
