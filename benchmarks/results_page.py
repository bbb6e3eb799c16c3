"""
The pages of results, and their figures, out of what benchmarks have recorded.

``docs/results.md`` answers eight questions, in the words of ``results_page.md`` beside this file;
``docs/results/TOPIC.md`` has all tables. Their numbers and ``docs/figures/results/NAME.png`` are
made of ``benchmarks/results/*.json``, so that none is copied by hand; a test compares. Run it with
``python benchmarks/results_page.py`` after a benchmark has been run.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
TEMPLATE = Path(__file__).with_suffix(".md")
PAGE = ROOT / "docs" / "results.md"
FIGURES = ROOT / "docs" / "figures" / "results"
LEVEL = 0.02
"""Scores that differ by less than this share count as level."""
Results = dict[str, dict[str, Any]]
Row = dict[str, Any]

HELPERS = ("harness.py", "recording.py", "results_page.py", "truths.py")
TOPICS = {
    "coverage": (
        "Coverage of credible intervals",
        "calibration calibration_more calibration_peers coverage exact concurvity mcmc",
    ),
    "speed": (
        "Speed of fits, summaries and predictions",
        "speed_poisson speed_gaussian speed_binary speed_flights speed_claims speed_bike "
        "speed_reading speed_crossval speed_screening speed_predict speed_refits speed_imports",
    ),
    "accuracy": ("Accuracy on public tables", "tables tables_more uci"),
    "effects": (
        "Error of estimated effects, by kind of smooth and response",
        "gamsim responses smooths shapes lags lines_truths lines_quakes variance_components "
        "location_scale",
    ),
    "extrapolation": (
        "Extrapolation and autocorrelated noise",
        "extrapolation_curves extrapolation_co2 ncv autocorrelation forecast",
    ),
    "p-values": ("P-values and selection of effects", "pvalues pvalues_real lines_selection"),
    "scaling": (
        "Scaling in rows, smooths and workers",
        "speed_files speed_files_gaussian speed_rows speed_components speed_workers crossover",
    ),
    "heads": (
        "Gaussian process heads of networks",
        "heads_digits heads_leaves heads_moons digits epochs head_steps steps_per_call "
        "natural_gradients flights",
    ),
    "iterncgp": (
        "IterNCGP beside SVGP and KeOps",
        "iterncgp_anytime iterncgp_anytime_1e5 iterncgp_rough iterncgp_rough_1e5 "
        "iterncgp_rough_sum iterncgp_rough_sum_1e5 iterncgp_predictive iterncgp_predictive_digits "
        "iterncgp_predictive_mixture_seeds iterncgp_predictive_seeds iterncgp_carried "
        "iterncgp_early iterncgp_products iterncgp_products_rows iterncgp_products_sums",
    ),
    "serving": ("Cost of serving", "portable serving"),
    "variational": (
        "Engines and families of q(U): coverage, accuracy, cost",
        "families table1_components table1_inducing table1_ratios sbc calibration_engines",
    ),
    "sobol": ("Sobol indices", "sobol"),
    "reliability": ("Failures of fits, files and processes", "reliability"),
}
"""Pages of details: their headings, and whose tables they hold."""


NOTE = (
    "<!-- Made by benchmarks/results_page.py from benchmarks/results: change those, not this. -->"
)
EXPLANATION = f"""\
The main numbers are on the [page of results](../results.md). The best of each group is **bold**,
whoever it belongs to, in columns where less (↓) or more (↑) is better. *Lost* lists, below each
table, where the best of others is better than our best by more than {LEVEL:.0%}. Where a standard
error is given, differences within it are chance. Load is the number of processes that computed at
the time, over a quarter of an hour: beside more than one, seconds say little."""


def load(folder: Path = RESULTS) -> Results:
    """What was recorded, by name."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def digest(*names: str) -> str:
    """Of recorded files; a figure carries that of what it was drawn from."""
    files = [(RESULTS / f"{name}.json").read_bytes() for name in names]
    return hashlib.sha256(b"".join(files)).hexdigest()


# --- who is best -------------------------------------------------------------------------------


def groups(result: dict[str, Any]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that are compared with each other."""
    values: dict[tuple[Any, ...], list[Row]] = {}
    for row in result["rows"]:
        values.setdefault(tuple(row.get(c) for c in result["compare"]["within"]), []).append(row)
    return values


def best(rows: Sequence[Row], column: str, direction: str) -> Row | None:
    """The row with the best score, if there is any."""
    scored = [row for row in rows if isinstance(row.get(column), (int, float))]
    if not scored:
        return None
    choose = min if direction == "lower" else max
    return choose(scored, key=lambda row: row[column])


def comparisons(result: dict[str, Any]) -> list[tuple[float, str]]:
    """Of our best score and the best of others: by what share ours is worse, and a line on both."""
    compare, values = result["compare"], []
    for key, rows in groups(result).items():
        own = [row for row in rows if row.get(compare["method"]) in compare["ours"]]
        others = [row for row in rows if row not in own]
        for column, direction in compare["better"].items():
            mine, theirs = best(own, column, direction), best(others, column, direction)
            if mine is None or theirs is None:
                continue
            a, b = mine[column], theirs[column]
            behind = (a - b if direction == "lower" else b - a) / max(abs(b), 1e-300)
            where = ", ".join(f"{c} {v}" for c, v in zip(compare["within"], key))
            scores = (
                f"{column} **{shown(a)}** ({mine[compare['method']]}), "
                f"**{shown(b)}** by {theirs[compare['method']]}"
            )
            values.append((behind, f"{where}: {scores}" if where else scores))
    return values


def coverages(result: dict[str, Any]) -> list[tuple[float, str]]:
    """What our 95 % intervals cover, and of what."""
    compare, values = result["compare"], []
    for row in result["rows"]:
        by = row.get(compare["method"] or "method", "ours")
        if by not in (compare["ours"] or ("ours", "additive GP")):
            continue
        texts = [f"{k} {v}" for k, v in row.items() if k in compare["within"] or isinstance(v, str)]
        for column, share in row.items():
            stated = re.match(r"0.95$|in.* 95 %|coverage(?!.*90)", column)
            if stated and share is not None:
                values.append((share, ", ".join([*texts, column])))
    return values


# --- tables ------------------------------------------------------------------------------------


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


def place(machine: dict[str, Any]) -> str:
    """A machine, as far as it was recorded."""
    known = f", {machine['cores']} cores, {machine.get('memory, GB')} GB"
    return str(machine["processor"]) + known * bool(machine["cores"])


def made_by(result: dict[str, Any]) -> list[str]:
    """Machine and versions."""
    versions = (f"{name} {number}" for name, number in result["versions"].items())
    return [place(result["machine"]), *versions]


def usual(results: Results) -> list[str]:
    """Machine and versions of nearly all tables."""
    counts = Counter(part for result in results.values() for part in made_by(result))
    return [part for part, count in counts.items() if count > 0.9 * len(results)]


def circumstances(result: dict[str, Any], known: Sequence[str] = ()) -> str:
    """When and by what, but for machine and versions that are ``known``."""
    parts = [part for part in made_by(result) if part not in known]
    if result["machine"]["cores"]:
        parts.append(f"load {result['machine']['load']}")
    settings = ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in result["settings"].items()
        if value not in (None, False, [])
    )
    script = f"`benchmarks/{result['benchmark']}`"
    if not (ROOT / "benchmarks" / result["benchmark"]).exists():
        script = "A script that is no longer here"
    lines = [f"{script}, {result['made']}; {', '.join(parts)}."]
    if settings:
        lines.append(f"Settings: {settings}.")
    if result["skipped"]:
        lines.append(f"Not installed, so not compared: {', '.join(result['skipped'])}.")
    return " ".join(lines)


def section(result: dict[str, Any], known: Sequence[str] = ()) -> str:
    """Of one file."""
    parts = [f"## {result['title']}", circumstances(result, known), table(result)]
    lost = [line for behind, line in comparisons(result) if behind > LEVEL]
    if lost:
        parts.append("*Lost:*\n\n" + "\n".join(f"- {line}" for line in lost))
    elif result["compare"]["ours"]:
        parts.append("*Lost:* nothing.")
    covered = coverages(result)
    low = [(share, text) for share, text in covered if share < 0.9]
    if covered:
        text = f"*95 % intervals of ours that cover less than 90 %:* {len(low)} of {len(covered)}"
        least = f"; the least, {shown(min(low)[0])}: {min(low)[1]}" if low else ""
        parts.append(text + least + ".")
    return "\n\n".join(parts)


# --- pages -------------------------------------------------------------------------------------


def detail(topic: str, results: Results) -> str:
    """A page of one topic."""
    heading, names = TOPICS[topic]
    pictures = [
        picture.replace("(", "(../")
        for name, (_, of_topic, _) in DRAWN.items()
        if of_topic == topic
        for picture in re.findall(rf"!\[.*/{name}\.png\)", TEMPLATE.read_text("utf-8"))
    ]
    known = usual(results)
    made = textwrap.fill(f"Unless it is said otherwise: {', '.join(known)}.", 100)
    sections = [section(results[name], known) for name in names.split()]
    return "\n\n".join([NOTE, f"# {heading}", EXPLANATION, made, *pictures, *sections]) + "\n"


def of(results: Results, name: str, column: str, **where: str) -> list[Any]:
    """A column of the rows with such entries, without what is missing."""
    rows = [
        row for row in results[name]["rows"] if all(str(row.get(k)) == v for k, v in where.items())
    ]
    return [row[column] for row in rows if row.get(column) is not None]


def front(results: Results) -> str:
    """The eight questions: ``{{file | column | column=entry | %}}`` is a recorded number."""
    known = derived(results)

    def number(match: re.Match[str]) -> str:
        name, *words = re.split(r"\s*\|\s*", " ".join(match[1].split()))
        if not words:
            return known[name]
        percent = words[-1] == "%"
        column, *pairs = words[: len(words) - percent]
        where = dict(pair.split("=", 1) for pair in pairs)
        values = set(of(results, name, column, **where))
        if len(values) != 1:
            raise ValueError(f"{match[0]} is not one number, but {values}")
        (value,) = values
        return f"{100 * value:.0f} %" if percent else shown(value)

    text = re.sub(r"\{\{(.*?)\}\}", number, TEMPLATE.read_text("utf-8"), flags=re.S)
    wrapped = partial(textwrap.fill, width=100, break_long_words=False, break_on_hyphens=False)
    # a line that began with % would be a comment
    text = text.strip().replace(" %", "\N{NO-BREAK SPACE}%")
    parts = [p if p[0] in "#|!`" else wrapped(p) for p in text.split("\n\n")]
    return "\n\n".join([NOTE, *parts]) + "\n"


def pages(results: Results) -> dict[Path, str]:
    """All of them, by file."""
    details = PAGE.with_suffix("")
    return {PAGE: front(results), **{details / f"{t}.md": detail(t, results) for t in TOPICS}}


# --- numbers of the front page -------------------------------------------------------------------

HIDDEN = "gaussian, 30 waves"
PUBLIC = ("tables", "tables_more")
PACKAGES = ("ours, screened", "ours", "mgcv", "pyGAM", "EBM", "gamfit", "exact GP")


def covered(results: Results, method: str, quantity: str) -> list[float]:
    """By family of responses."""
    files = (
        ["calibration", "calibration_more"] if method in ("ours", "mgcv") else ["calibration_peers"]
    )
    rows = [row for name in files for row in results[name]["rows"] if row["data"] != HIDDEN]
    return [r["0.95"] for r in rows if (r["method"], r["quantity"]) == (method, quantity)]


def excess(results: Results, method: str) -> list[float]:
    """Percent by which errors on public tables are above the best on each."""
    values = []
    for rows in (rows for name in PUBLIC for rows in groups(results[name]).values()):
        errors = [(row["error"], row["method"]) for row in rows if row.get("error") is not None]
        own, least = [error for error, by in errors if by == method], min(errors)[0]
        values += [100.0 * (error / least - 1.0) for error in own]
    return values


def won(results: Results) -> dict[str, tuple[int, ...]]:
    """Comparisons in which our best is better, level and worse, by topic, where there are any."""
    counts = {}
    for topic, (_, names) in TOPICS.items():
        behind = [share for name in names.split() for share, _ in comparisons(results[name])]
        better, worse = sum(b < -LEVEL for b in behind), sum(b > LEVEL for b in behind)
        counts[topic] = better, len(behind) - better - worse, worse
    return {topic: count for topic, count in counts.items() if any(count)}


def derived(results: Results) -> dict[str, str]:
    """Numbers that more than one row makes, by the name that the template gives them."""
    public = [line for name in PUBLIC for line in comparisons(results[name])]
    errors = sorted((line for line in public if ": error" in line[1]), reverse=True)
    seconds = [behind for behind, line in public if ": seconds" in line]
    million = [
        of(results, "speed_poisson", "fit, s", rows="1000000", by=b)[0] for b in ("bam", "ours")
    ]
    better, level, worse = map(sum, zip(*won(results).values()))
    shares = [share for result in results.values() for share, _ in coverages(result)]
    heads = ("topic", "scores", "better", "level", "worse", "intervals", "below 90 %")
    details = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * 6]
    for topic, (heading, names) in TOPICS.items():
        counts = won(results).get(topic, (0, 0, 0))
        held = [share for name in names.split() for share, _ in coverages(results[name])]
        cells = (sum(counts), *counts, len(held), sum(share < 0.9 for share in held))
        details.append(f"| [{heading}](results/{topic}.md) | {' | '.join(map(str, cells))} |")
    toctree = "\n".join(["```{toctree}", ":hidden:", *(f"results/{t}" for t in TOPICS), "```"])
    (imported,) = results["speed_imports"]["rows"]
    race = results["iterncgp_anytime_1e5"]["settings"]
    numbers: dict[str, Any] = {
        "machines": " or ".join(
            sorted({place(r["machine"]) for r in results.values() if r["machine"]["cores"]})
        ),
        "families": len(covered(results, "ours", "curve")),
        "faster": f"{million[0] / million[1]:.0f}",
        "import": f"{imported['import, s'] + imported['below, s']:.1f}",
        "public": sum(len(groups(results[name])) for name in PUBLIC),
        "slower": sum(behind > LEVEL for behind in seconds),
        "less accurate": sum(behind > LEVEL for behind, _ in errors),
        "largest losses": "; ".join(line[5:].replace(": error", "") for _, line in errors[:3]),
        "svgp": len(race["inducing"]) * len(race["rates"]),
        "compared": better + level + worse,
        "better": better,
        "level": level,
        "worse": worse,
        "intervals": len(shares),
        "low": sum(share < 0.9 for share in shares),
        "details": "\n".join(details) + "\n\n" + toctree,
    }
    for quantity, method in itertools.product(
        ("predictor", "curve", "derivative"), ("ours", "mgcv", "pyGAM", "EBM")
    ):
        if share := covered(results, method, quantity):
            numbers[f"{quantity}, {method}"] = f"{100 * min(share):.0f} to {100 * max(share):.0f} %"
    numbers |= {f"finished, {m}": len(excess(results, m)) for m in PACKAGES}
    numbers |= {f"excess, {m}": f"{statistics.median(excess(results, m)):.1f} %" for m in PACKAGES}
    return {name: str(number) for name, number in numbers.items()}


# --- figures -----------------------------------------------------------------------------------

OURS, PEER = "#0072B2", "#D55E00"
LOOKS = {
    "ours": (OURS, "o"),
    "mgcv": (PEER, "D"),
    "pyGAM": ("#009E73", "s"),
    "EBM": ("#CC79A7", "^"),
    "mgcv's gam": ("#E69F00", "v"),
}
"""Colours that colour-blind readers tell apart, and markers."""
STYLE = {
    "font.size": 10.5,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "legend.handletextpad": 0.3,
    "legend.columnspacing": 1.0,
}
QUANTITIES = {
    "curve": "smooth curve",
    "derivative": "its slope",
    "line": "straight effect",
    "absent": "absent effect",
    "levels": "factor levels",
    "predictor": "linear predictor",
    "response": "new observation",
    "sobol": "Sobol index",
    "loo": "leave-one-out",
}


def canvas(rows: int = 1, columns: int = 1, height: float = 3.2, **options: Any) -> tuple[Any, Any]:
    """A figure of 5.6 inches, whose fonts have their size at 400 pixels, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend(figure: Any, looks: dict[str, tuple[str, str]], line: str = "") -> None:
    """Above the axes."""
    from matplotlib.lines import Line2D

    keys = [
        Line2D([], [], color=c, marker=m, linestyle=line, label=n) for n, (c, m) in looks.items()
    ]
    figure.legend(handles=keys, loc="outside upper center", ncols=len(keys))


def ticks(axis: Any, values: Sequence[float]) -> None:
    """Of a logarithmic axis; thousands as k, millions as M."""
    from matplotlib.ticker import NullLocator

    units = [next((u for u in ((1e6, "M"), (1e3, "k")) if v >= u[0]), (1.0, "")) for v in values]
    axis.set_ticks(values, [f"{v / unit:g}{word}" for v, (unit, word) in zip(values, units)])
    axis.set_minor_locator(NullLocator())


def rows_of(ax: Any, labels: Sequence[str]) -> None:
    """Names of rows, the first above."""
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.5, -0.5)


def bands(results: Results) -> Any:
    figure, ((ax,),) = canvas(height=4.0)
    looks = {method: LOOKS[method] for method in ("ours", "mgcv", "pyGAM", "EBM")}
    for y, quantity in enumerate(QUANTITIES):
        for method, (colour, marker) in looks.items():
            x, at = covered(results, method, quantity), y + (-0.16 if method == "ours" else 0.16)
            ax.plot(x, [at] * len(x), marker, color=colour, markersize=5, alpha=0.75)
    ax.axvline(0.95, color="0.3", linestyle="--", linewidth=1)
    rows_of(ax, list(QUANTITIES.values()))
    ax.set_xlabel("share of true values in 95 % intervals (dashed: 0.95)")
    legend(figure, looks)
    return figure


def speed(results: Results) -> Any:
    figure, ((ax,),) = canvas()
    names = {"ours": "ours", "mgcv": "bam", "mgcv's gam": "gam", "pyGAM": "pygam", "EBM": "ebm"}
    for name, by in names.items():
        x, y = (of(results, "speed_poisson", column, by=by) for column in ("rows", "fit, s"))
        ax.loglog(x, y, marker=LOOKS[name][1], color=LOOKS[name][0])
    ticks(ax.xaxis, of(results, "speed_poisson", "rows", by="ours"))
    ticks(ax.yaxis, [0.5, 1, 2, 5, 10, 20])
    ax.set(xlabel="rows", ylabel="first fit, seconds")
    legend(figure, {f"{n}'s bam" if n == "mgcv" else n: LOOKS[n] for n in names}, "-")
    return figure


def accuracy(results: Results) -> Any:
    figure, ((ax,),) = canvas(height=3.6)
    for y, method in enumerate(PACKAGES):
        x, colour = excess(results, method), OURS if method.startswith("ours") else PEER
        at = [y + 0.09 * (i % 5 - 2) for i in range(len(x))]
        ax.plot(x, at, "o", color=colour, alpha=0.6, markersize=5)
        ax.plot(statistics.median(x), y, "|", color="k", markersize=20, markeredgewidth=2)
        ax.text(1.02, y, f"{len(x)} tables", transform=ax.get_yaxis_transform(), va="center")
    ax.set_xscale("symlog", linthresh=2.0)
    ticks(ax.xaxis, [0, 1, 2, 5, 20, 50, 150])
    ax.set_xlim(-0.2, 200)
    rows_of(ax, PACKAGES)
    ax.set_xlabel("error above the best on each table, % (bar: median)")
    return figure


def scaling(results: Results) -> Any:
    figure, axes = canvas(2, 1, 4.4, sharex=True)
    looks = {"ours, from Parquet files": LOOKS["ours"], "mgcv's bam, in memory": LOOKS["mgcv"]}
    for (ax,), column, unit in zip(axes, ("fit, s", "peak, MB"), (1.0, 1e3)):
        for name, by, (colour, marker) in zip(
            ("speed_files", "speed_poisson"), ("ours", "bam"), looks.values()
        ):
            x, y = (of(results, name, c, by=by) for c in ("rows", column))
            ax.loglog(x, [value / unit for value in y], marker=marker, color=colour)
    ticks(axes[0, 0].yaxis, [1, 10, 100])
    ticks(axes[1, 0].yaxis, [0.25, 0.5, 1, 2])
    ticks(axes[1, 0].xaxis, [1e4, 1e5, 1e6, 1e7, 1e8])
    axes[0, 0].set_ylabel("first fit, seconds")
    axes[1, 0].set(ylabel="peak memory, GB", xlabel="rows (counts, eight smooths)")
    legend(figure, looks, "-")
    return figure


def heads(results: Results) -> Any:
    figure, (axes,) = canvas(1, 2, 3.9, sharey=True)
    ours = results["heads_digits"]["compare"]["ours"]
    every = [
        h for h in dict.fromkeys(of(results, "heads_digits", "head")) if h != "Dense, 8 features"
    ]
    for ax, column in zip(axes, ("NLL", "AUROC, probability")):
        for data, away, marker in (("digits", "rotated", "o"), ("leaves", "other species", "^")):
            for y, head in enumerate(every):
                x = of(results, f"heads_{data}", column, head=head, away=away)
                ax.plot(x, [y], marker, color=OURS if head in ours else PEER)
    axes[0].set_xscale("log")
    ticks(axes[0].xaxis, [0.05, 0.1, 0.2, 0.5])
    rows_of(axes[0], [head.replace("AdditiveGP", "GP") for head in every])
    axes[0].set_xlabel("held-out NLL\n(less is better)")
    axes[1].set_xlabel("AUROC of unseen inputs\n(more is better)")
    looks = {
        "digits": ("0.3", "o"),
        "leaves": ("0.3", "^"),
        "ours": (OURS, "s"),
        "others": (PEER, "s"),
    }
    legend(figure, looks)
    return figure


def epochs(results: Results) -> Any:
    figure, axes = canvas(1, 2, 3.4, sharey=True)
    rows, at = results["epochs"]["rows"], [1, 2, 5, 10, 20, 40]
    looks = dict(zip(dict.fromkeys(row["problem"] for row in rows), LOOKS.values()))
    dense = {(r["batch"], r["problem"]): r for r in rows if r["head"] == "Dense"}
    for row in rows:
        ax, (colour, marker) = axes[0, row["batch"] // 128], looks[row["problem"]]
        other = dense[row["batch"], row["problem"]]
        if other is not row:
            ratios = [row[f"NLL after {k}"] / other[f"NLL after {k}"] for k in at]
            style = ":" if "," in row["head"] else "-"
            ax.semilogx(at, ratios, style, color=colour, marker=marker, markersize=5)
    for ax, batch in zip(axes.flat, (32, 128)):
        ax.axhline(1.0, color="0.5", linewidth=1.0)
        ax.set(title=f"batches of {batch}", xlabel="epochs", ylim=(0.0, 2.2))
        ticks(ax.xaxis, at)
    axes[0, 0].set_ylabel("held-out NLL, ratio to Dense")
    legend(figure, looks, "-")
    return figure


def iterncgp(results: Results) -> Any:
    figure, (axes,) = canvas(1, 2, 3.2)
    looks = {"IterNCGP": LOOKS["ours"], "SVGP": LOOKS["mgcv"]}
    for ax, name, time, lines in (
        (axes[0], "iterncgp_anytime_1e5", "seconds", ({"method": "ours"}, {"method": "SVGP"})),
        (
            axes[1],
            "iterncgp_rough_1e5",
            "CPU s",
            ({"fit": "IterNCGP, newton"}, {"fit": "AdditiveSVGP, M = 1000"}),
        ),
    ):
        for where, (colour, marker) in zip(lines, looks.values()):
            x, y = (of(results, name, column, **where) for column in (time, "NLL"))
            ax.semilogx(x, y, marker=marker, markersize=5, color=colour)
        ax.set_xlabel("seconds of CPU")
    ticks(axes[0].xaxis, [2, 4, 8, 16, 32, 64])
    ticks(axes[1].xaxis, [2, 8, 32, 128])
    axes[0].set(ylabel="held-out NLL", title="ten classes, kernel given")
    axes[1].set_title("two classes, rough function")
    legend(figure, looks, "-")
    return figure


def serving(results: Results) -> Any:
    figure, axes = canvas(2, 2, 3.6, sharey=True)
    rows = results["portable"]["rows"]
    columns = {"p50, ms": "one row, ms", "cold start, s": "time to start, s"}
    for ax, column in zip(axes.flat, (*columns, "memory, MiB", "file, KiB")):
        values = [row[column] for row in rows]
        colours = [OURS if row["format"] != "pyGAM" else PEER for row in rows]
        bars = ax.barh(range(len(rows)), values, 0.6, color=colours)
        ax.bar_label(bars, [f"{v:.2f}" if v < 10 else f"{v:.0f}" for v in values], padding=3)
        ax.set(xlim=(0, 1.3 * max(values)), title=columns.get(column, column), xticks=[])
        ax.grid(visible=False)
    rows_of(axes[0, 0], [row["format"] for row in rows])
    return figure


def losses(results: Results) -> Any:
    figure, ((ax,),) = canvas(height=3.8)
    colours, counts = {"better": OURS, "level": "0.8", "worse": PEER}, won(results)
    for y, count in enumerate(counts.values()):
        left = 0.0
        for number, (name, colour) in zip(count, colours.items()):
            bar = ax.barh(y, 100.0 * number / sum(count), 0.7, left, color=colour)
            left += 100.0 * number / sum(count)
            if number > 0.05 * sum(count):
                text = "k" if name == "level" else "w"
                ax.bar_label(bar, [str(number)], label_type="center", color=text)
    rows_of(ax, [topic.replace("iterncgp", "IterNCGP") for topic in counts])
    ax.set(xlim=(0, 100), xlabel="share of scores, % (numbers: scores)")
    ax.grid(visible=False)
    legend(figure, {name: (colour, "s") for name, colour in colours.items()})
    return figure


DRAWN: dict[str, tuple[Callable[[Results], Any], str, str]] = {
    "bands": (bands, "coverage", "calibration calibration_more calibration_peers"),
    "speed": (speed, "speed", "speed_poisson"),
    "accuracy": (accuracy, "accuracy", "tables tables_more"),
    "scaling": (scaling, "scaling", "speed_files speed_poisson"),
    "heads": (heads, "heads", "heads_digits heads_leaves"),
    "epochs": (epochs, "", "epochs"),
    "iterncgp": (iterncgp, "iterncgp", "iterncgp_anytime_1e5 iterncgp_rough_1e5"),
    "serving": (serving, "serving", "portable"),
    "losses": (losses, "", " ".join(names for _, names in TOPICS.values())),
}
"""Figures: how they are drawn, on whose page they stand, and from which files."""


def main() -> None:
    import matplotlib

    results = load()
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, (draw, _, files) in DRAWN.items():
        with matplotlib.rc_context(STYLE):
            picture = {"Description": digest(*files.split())}
            draw(results).savefig(FIGURES / f"{name}.png", dpi=160, metadata=picture)
    for path, text in pages(results).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(results)} benchmarks")


if __name__ == "__main__":
    main()
