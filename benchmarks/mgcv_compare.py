"""
The same GAMs fitted by gpflow_gam and by R's mgcv: deviance explained, edf, time, and curves.

Daily deaths in Chicago against time, pollution and temperature (Poisson), first with straight lines
for pollution, then with smooths; retinopathy in Wisconsin (binary) with all pairwise interactions.
mgcv runs where ``Rscript`` is on the PATH. The data are the R package gamair's: write them with
write.csv(..., row.names = FALSE) to ``chicago.csv`` and ``wesdr.csv`` (or .csv.gz) in one folder.
Run it with ``python benchmarks/mgcv_compare.py --data FOLDER``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from of_r import mgcv_is_there
from scipy.stats import norm
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam import linear, s, ti
from gpflow_gam.gam.terms import Terms

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SCRIPT = Path(__file__).parent / "mgcv" / "compare.R"
HALF = float(norm.ppf(0.975))
CHICAGO = ["death", "time", "pm10median", "so2median", "o3median", "tmpd"]
WESDR = ["ret", "dur", "gly", "bmi"]
Curves = dict[str, pd.DataFrame]
"""By effect: a frame with x, estimate, lower, upper."""


@dataclass(frozen=True)
class Case:
    """A model in both languages."""

    name: str
    columns: list[str]
    """The response first."""
    family: str
    terms: Terms
    formula: str
    """What mgcv is given."""
    engine: str = "gam"
    """Which of mgcv's functions: gam (REML), or bam (fREML) where gam takes long."""
    select: bool = False
    """Whether mgcv may shrink whole terms to zero, as our priors do."""

    @property
    def smooths(self) -> list[str]:
        """The effects of one column, to be drawn."""
        return [t.label for t in self.terms if t.function == "s"]


POLLUTION = ["pm10median", "so2median", "o3median"]
CASES = [
    Case(
        "chicago, lines",
        CHICAGO,
        "poisson",
        s("time", k=200) + Terms(linear(c) for c in (*POLLUTION, "tmpd")),
        "death ~ s(time, bs = 'cr', k = 200) + pm10median + so2median + o3median + tmpd",
    ),
    Case(
        "chicago, smooths",
        CHICAGO,
        "poisson",
        s("time", k=200) + Terms(s(c) for c in (*POLLUTION, "tmpd")),
        "death ~ s(time, bs = 'cr', k = 200) + s(pm10median, bs = 'cr') + s(so2median, bs = 'cr')"
        " + s(o3median, bs = 'cr') + s(tmpd, bs = 'cr')",
        engine="bam",
    ),
    Case(
        "wesdr",
        WESDR,
        "bernoulli",
        s("dur") + s("gly") + s("bmi") + ti("dur", "gly") + ti("dur", "bmi") + ti("gly", "bmi"),
        "ret ~ s(dur) + s(gly) + s(bmi) + ti(dur, gly) + ti(dur, bmi) + ti(gly, bmi)",
        select=True,
    ),
]


def load(folder: Path, case: Case) -> pd.DataFrame:
    """The complete rows of its columns."""
    name = case.name.split(",")[0]
    paths = [folder / f"{name}.csv", folder / f"{name}.csv.gz"]
    found = [p for p in paths if p.exists()]
    if not found:
        raise SystemExit(f"{folder} holds neither {paths[0].name} nor {paths[1].name}")
    return pd.read_csv(found[0])[case.columns].dropna().reset_index(drop=True)


def grids(case: Case, data: pd.DataFrame, num: int = 200) -> dict[str, np.ndarray]:
    """By effect, values over its column's range."""
    columns = {effect: data[effect[2:-1]] for effect in case.smooths}
    return {effect: np.linspace(x.min(), x.max(), num) for effect, x in columns.items()}


def ours(case: Case, data: pd.DataFrame) -> tuple[list[float], Curves]:
    """Deviance explained, edf and seconds; and the curves."""
    start = time.perf_counter()
    gam = gg.GAM(case.terms, family=case.family)
    gam.fit(data, y=case.columns[0])
    seconds = time.perf_counter() - start
    curves = {}
    for effect, x in grids(case, data).items():
        frame = pd.DataFrame(gam.effects(effect, x, level=0.95))
        curves[effect] = frame[["estimate", "lower", "upper"]].assign(x=x)
    summary = gam.summary()
    return [summary.deviance_explained, summary.edf, seconds], curves


def by_mgcv(case: Case, data: pd.DataFrame) -> tuple[list[float], Curves]:
    """The same of mgcv's fit."""
    covariates = data[case.columns[1:]]
    parts = []
    for effect, x in grids(case, data).items():
        typical = covariates.median().to_dict()
        parts.append(pd.DataFrame({**typical, effect[2:-1]: x, "term": effect}))
    family = {"bernoulli": "binomial"}.get(case.family, case.family)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.csv" for name in ("data", "grid", "effects")]
        data.to_csv(paths[0], index=False)
        pd.concat(parts).to_csv(paths[1], index=False)
        options = [case.engine, family, str(case.select).upper(), case.formula]
        command = ["Rscript", str(SCRIPT), *options, *map(str, paths)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        effects = pd.read_csv(paths[2])
    curves = {}
    for i, (effect, x) in enumerate(grids(case, data).items()):
        own = effects.iloc[i * len(x) : (i + 1) * len(x)].reset_index(drop=True)
        lower, upper = own.estimate - HALF * own.se, own.estimate + HALF * own.se
        curves[effect] = own[["estimate"]].assign(x=x, lower=lower, upper=upper)
    return [float(number) for number in output.split()], curves


def draw(drawn: dict[str, dict[str, Curves]], path: Path) -> None:
    """Every smooth of one column by both, with 95 % bands; one row a case."""
    width = max(len(case.smooths) for case in CASES)
    shape = (3.2 * width, 2.8 * len(drawn))
    figure, axes = plt.subplots(
        len(drawn), width, figsize=shape, squeeze=False, constrained_layout=True
    )
    for row, (case, by_method) in zip(axes, drawn.items()):
        for ax in row:
            ax.axis("off")
        for method, curves in by_method.items():
            for ax, (effect, curve) in zip(row, curves.items()):
                ax.axis("on")
                ax.fill_between(curve.x, curve.lower, curve.upper, alpha=0.3, linewidth=0)
                ax.plot(curve.x, curve.estimate, linewidth=1, label=method)
                ax.set_title(effect)
        row[0].set_ylabel(case)
        row[0].legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of gamair's tables")
    parser.add_argument("--out", type=Path, default=Path("mgcv_compare.png"), help="the figure")
    parser.add_argument("--methods", nargs="+", choices=["ours", "mgcv"], default=["ours", "mgcv"])
    arguments = parser.parse_args()

    methods = {"ours": ours, "mgcv": by_mgcv}
    methods = {name: methods[name] for name in arguments.methods}
    if "mgcv" in methods and not mgcv_is_there():
        print("mgcv is absent (no Rscript on the PATH, or no such package): ours alone")
        del methods["mgcv"]
    rows: list[list[object]] = []
    drawn: dict[str, dict[str, Curves]] = {}
    for case in CASES:
        data = load(arguments.data, case)
        drawn[case.name] = {}
        for method, fit in methods.items():
            numbers, drawn[case.name][method] = fit(case, data)
            rows.append([case.name, len(data), method, *numbers])
    header = ["model", "rows", "method", "deviance explained", "edf", "s"]
    print(tabulate(rows, header, floatfmt=("", "", "", ".3f", ".1f", ".1f")))
    draw(drawn, arguments.out)
    print(f"figure: {arguments.out}")


if __name__ == "__main__":
    main()
