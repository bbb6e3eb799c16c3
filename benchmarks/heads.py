"""
GP heads beside what else gives a network an uncertainty: accuracy, calibration, and what is away.

Every method has the same residual network before its head; what is asked of it are accuracy, the
negative log density (NLL) and calibration error (ECE) of held-out rows, and how well three numbers
tell inputs that are of no class from held-out rows: the largest probability, the variance of the
probabilities, and that of the likeliest class's score. Area under the curve (AUROC), .5 for a coin.
Medians over seeds; moons are drawn, too. Run it with
``python benchmarks/heads.py --out FOLDER`` (an hour on two cores), or a part by ``--problems``; a
choice of ``--methods`` is not recorded.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).with_suffix("")))

import keras
import numpy as np
from drawing import draw_moons
from gpflow.base import AnyNDArray
from methods import METHODS, Trained, timed
from problems import PROBLEMS, Problem
from recording import add_option, record
from sklearn.metrics import roc_auc_score
from tabulate import tabulate

import gpflow_gam as gg

Row = dict[str, float | str | None]
BETTER = {
    "accuracy": "higher",
    "NLL": "lower",
    "ECE": "lower",
    "AUROC, probability": "higher",
    "AUROC, variance": "higher",
    "AUROC, score's": "higher",
    "fit, s": "lower",
}


def scored(trained: Trained, problem: Problem) -> list[Row]:
    """A row for each kind of input that is away."""
    held_out = trained.predict(problem.Xt)
    p = held_out.probabilities.astype(float)
    p = p / p.sum(axis=1, keepdims=True)
    known = {
        "accuracy": float(gg.metrics.accuracy(problem.yt, p)),
        "NLL": float(gg.metrics.nlpd(problem.yt, p)),
        "ECE": float(gg.metrics.ece(problem.yt, p)),
    }
    rows: list[Row] = []
    for name, X in problem.away.items():
        away = trained.predict(X)
        telling = {
            "AUROC, probability": (-p.max(axis=1), -away.probabilities.max(axis=1)),
            "AUROC, variance": (held_out.variance, away.variance),
            "AUROC, score's": (held_out.score, away.score),
        }
        rows.append({"away": name, **known, **{k: _auroc(*pair) for k, pair in telling.items()}})
    return rows


def _auroc(near: AnyNDArray | None, away: AnyNDArray | None) -> float | None:
    """How often what is away has the larger number of the two."""
    if near is None or away is None:
        return None
    is_away = np.repeat([0, 1], [len(near), len(away)])
    return float(roc_auc_score(is_away, np.concatenate([near, away])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the figure")
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    add_option(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    for name in arguments.problems:
        rows, pictures = compared(name, arguments.methods, arguments.seeds)
        print(tabulate(rows, headers="keys", floatfmt=".3f"))
        if name == "moons":
            draw_moons(pictures, arguments.out / "heads_moons.png")
        if arguments.methods == list(METHODS):
            record(
                f"heads_{name}",
                f"Heads of networks, and inputs of no class: {name}",
                rows,
                arguments,
                within=["away"],
                method="head",
                ours=[m for m in METHODS if m.startswith(("AdditiveGP", "IterNCGP"))],
                better=BETTER,
            )


def compared(
    name: str, methods: Sequence[str], seeds: int
) -> tuple[list[Row], dict[str, tuple[Problem, Trained]]]:
    """Medians over seeds for each method and what is away; and what the first seed's data gave."""
    rows, pictures = [], {}
    for method in methods:
        result: dict[str, list[Row]] = {}
        for seed in range(seeds):
            problem = PROBLEMS[name](seed)
            keras.utils.clear_session()
            keras.utils.set_random_seed(seed)
            trained, seconds = timed(METHODS[method], problem)
            for row in scored(trained, problem):
                row |= {"fit, s": seconds, "parameters": trained.parameters}
                result.setdefault(str(row.pop("away")), []).append(row)
                print(name, method, seed, _short(row), flush=True)
            if seed == 0:
                pictures[method] = (problem, trained)
        for away, each in result.items():
            medians: Row = {
                key: None if each[0][key] is None else float(np.median([row[key] for row in each]))
                for key in each[0]
            }
            medians["parameters"] = int(each[0]["parameters"] or 0)
            rows.append({"away": away, "head": method, **medians})
    return rows, pictures


def _short(row: Row) -> str:
    return ", ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values())


if __name__ == "__main__":
    main()
