"""
How well do main effects and pairwise interactions predict? Beside published additive GPs.

autoMPG and breast as "Additive Gaussian Processes Revisited" (OAK; Lu, Boukouvalas & Hensman, 2022)
has them: rows permuted with seed 4, five folds, test inputs clipped to the training range, RMSE in
original units (or error in %), NLL per row of the response standardised on the training rows.
Concrete as "Additive Gaussian Processes" (Duvenaud, Nickisch & Rasmussen, 2011) has it: all columns
standardised, ten folds in the file's order, MSE and NLL. NLLs of ours are averaged over uncertain
hyperparameters. AutoMPG is also fitted with a noise that varies with the inputs. The data are that
paper's .mat files (repository duvenaud/additive-gps).

Interactions are all pairs (``--orders 2``), or those that ``gpflow_gam.anova`` chooses by looking
at the training rows of each fold (``--orders screened``): all that the evidence is for
(``--min-gain 0``), in two ``--rounds``, the second beside those of the first; the table says how
many a fold has on average. Run it with ``python benchmarks/uci.py --data FOLDER``.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from recording import add_option, record
from scipy.io import loadmat
from sklearn.model_selection import KFold
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam.gam.terms import Terms

RESPONSE = "y"
UNITS = {"autompg": "RMSE", "breast": "error, %", "concrete": "MSE"}
TITLES = {"autompg": "autoMPG", "breast": "breast", "concrete": "concrete"}
ORDERS = {"1": "order 1", "2": "order 2", "screened": "order 2, screened"}
"""What ``--orders`` takes, and the rows' names."""

Spread = tuple[float, float | None]
"""Mean and standard deviation over folds."""
PUBLISHED: dict[str, dict[str, tuple[Spread, Spread]]] = {
    "autompg": {"OAK": ((2.685, 0.365), (0.349, 0.216))},
    "breast": {"OAK": ((5.56, 1.39), (0.143, 0.036))},
    "concrete": {
        "Duvenaud's GP-GAM": ((0.149, None), (0.467, None)),
        "Duvenaud's SE-ARD": ((0.157, None), (0.398, None)),
        "Duvenaud's additive": ((0.089, None), (0.114, None)),
    },
}
FILES = {"autompg": "autompg.mat", "breast": "breast.mat", "concrete": "r_concrete_1030.mat"}
LIKELIHOODS = {
    "autompg": ["gaussian", "heteroskedastic"],
    "breast": ["bernoulli"],
    "concrete": ["gaussian"],
}
"""The published rows' likelihood first."""


@dataclasses.dataclass(frozen=True)
class Model:
    """
    What is fitted.

    :param family: of the response.
    :param order: one of ``ORDERS``.
    :param num_inducing: of an interaction.
    :param max_interactions: that a screen chooses at most; the library's default if None.
    :param rounds: screens at most, each of the model fitted with those chosen before.
    :param min_gain: of an interaction, in nats.
    """

    family: str
    order: str
    num_inducing: int
    max_interactions: int | None = None
    rounds: int = 2
    min_gain: float = 0.0


@dataclasses.dataclass(frozen=True)
class Fold:
    """
    What one fold gave.

    :param error: of the test rows.
    :param nll: the same.
    :param interactions: how many the model has.
    :param seconds: to choose, fit and predict.
    """

    error: float
    nll: float
    interactions: int
    seconds: float


# --- the model -----------------------------------------------------------------------------------


def terms_of(data: pd.DataFrame, model: Model) -> Terms:
    """
    A main effect of every column, and interactions of every pair or of those that stand out.

    Text columns are factors.
    """
    if model.order == "screened":
        return gg.anova(
            data=data,
            y=RESPONSE,
            family=model.family,
            k=24,
            k_interaction=model.num_inducing,
            max_interactions=model.max_interactions,
            min_gain=model.min_gain,
            rounds=model.rounds,
        )
    columns = [c for c in data if c != RESPONSE]
    text = [c for c in columns if not pd.api.types.is_numeric_dtype(data[c])]
    return gg.anova(columns, int(model.order), k=24, k_interaction=model.num_inducing, levels=text)


def fit(X: pd.DataFrame, y: np.ndarray, model: Model) -> gg.GAM:
    data = X.assign(**{RESPONSE: y})
    return gg.GAM(terms_of(data, model), family=model.family).fit(data, y=RESPONSE)


# --- the data ------------------------------------------------------------------------------------


def load(folder: Path, name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Inputs, with a column of at most three values as text, and the response [N]."""
    content = loadmat(folder / FILES[name])
    X = np.asarray(content["X"], dtype=float)
    if name == "autompg":
        X, y = X[:, 1:], X[:, 0]
    else:
        y = np.asarray(content["y"], dtype=float)[:, 0]
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    for column in frame:
        if frame[column].nunique() <= 3:
            frame[column] = "level " + frame[column].astype(int).astype(str)
    return frame, y


def clipped(test: pd.DataFrame, train: pd.DataFrame) -> pd.DataFrame:
    """Numeric columns within the range that they have in ``train``."""
    numeric = train.select_dtypes("number")
    return test.assign(**test[numeric.columns].clip(numeric.min(), numeric.max(), axis=1))


def folds(
    X: pd.DataFrame, y: np.ndarray, name: str
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, np.ndarray, np.ndarray]]:
    """Inputs and responses to train and to test on."""
    if name == "concrete":
        splits = KFold(10)
    else:
        order = np.random.RandomState(4).permutation(len(X))
        X, y, splits = X.iloc[order].reset_index(drop=True), y[order], KFold(5)
    for train, test in splits.split(X):
        yield X.iloc[train], clipped(X.iloc[test], X.iloc[train]), y[train], y[test]


# --- scores --------------------------------------------------------------------------------------


def regression(
    train: pd.DataFrame,
    test: pd.DataFrame,
    y: np.ndarray,
    y_test: np.ndarray,
    model: Model,
) -> Fold:
    """RMSE in the units of y; NLL of y standardised."""
    mean, scale = y.mean(), y.std()
    start = time.perf_counter()
    gam = fit(train, (y - mean) / scale, model)
    standardised = (y_test - mean) / scale
    away = np.asarray(gam.predict(test, type="response")) - standardised
    return scored(gam, test, standardised, float(scale * np.sqrt(np.mean(away**2))), start)


def classification(
    train: pd.DataFrame,
    test: pd.DataFrame,
    y: np.ndarray,
    y_test: np.ndarray,
    model: Model,
) -> Fold:
    """Errors in per cent, and NLL."""
    start = time.perf_counter()
    gam = fit(train, (y > 0).astype(int), model)
    labels = (y_test > 0).astype(int)
    wrong = (np.asarray(gam.predict(test, type="response")) > 0.5) != labels
    return scored(gam, test, labels, 100.0 * float(np.mean(wrong)), start)


def scored(gam: gg.GAM, test: pd.DataFrame, y_test: np.ndarray, error: float, start: float) -> Fold:
    """A fold with its NLL."""
    density = gam.log_density(test.assign(**{RESPONSE: y_test}), unconditional=True)
    seconds = time.perf_counter() - start
    interactions = sum(len(t.columns) > 1 for t in gam.terms)
    return Fold(error, -float(np.mean(density)), interactions, seconds)


def folds_of(folder: Path, name: str, model: Model) -> list[Fold]:
    """Every fold of a data set."""
    X, y = load(folder, name)
    if name == "concrete":
        numeric = X.select_dtypes("number")
        X = X.assign(**(numeric - numeric.mean()) / numeric.std())
        y = (y - y.mean()) / y.std(ddof=1)
    result = []
    for number, (train, test, own, own_test) in enumerate(folds(X, y, name)):
        of_fold = classification if name == "breast" else regression
        fold = of_fold(train, test, own, own_test, model)
        if name == "concrete":  # its response is standardised once, over all rows
            nll = fold.nll + float(np.log(own.std()))
            fold = dataclasses.replace(fold, error=fold.error**2, nll=nll)
        result.append(fold)
        print(
            f"{name}, fold {number}: {fold.error:.3f}, {fold.nll:.3f}, "
            f"{fold.interactions} interactions, {fold.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the .mat files")
    parser.add_argument("--datasets", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--orders", nargs="+", choices=list(ORDERS), default=list(ORDERS))
    parser.add_argument("--families", nargs="+", help="only these; all of a data set by default")
    parser.add_argument("--num-inducing", type=int, default=16, help="of an interaction")
    parser.add_argument("--max-interactions", type=int, help="that a screen chooses")
    parser.add_argument("--min-gain", type=float, default=0.0, help="of an interaction, in nats")
    parser.add_argument("--rounds", type=int, default=2, help="screens, each beside those before")
    add_option(parser)
    arguments = parser.parse_args()
    recorded: list[dict[str, object]] = []
    for name in arguments.datasets:
        rows = [
            row_of(name, f"{method}, published", *scores)
            for method, scores in PUBLISHED[name].items()
        ]
        families = [f for f in LIKELIHOODS[name] if f in (arguments.families or [f])]
        for family, order in itertools.product(families, arguments.orders):
            model = Model(
                family,
                order,
                arguments.num_inducing,
                arguments.max_interactions,
                arguments.rounds,
                arguments.min_gain,
            )
            result = folds_of(arguments.data, name, model)
            both = np.array([(fold.error, fold.nll) for fold in result])
            scores = zip(both.mean(axis=0).tolist(), both.std(axis=0).tolist())
            rows.append(
                {
                    **row_of(name, f"ours, {family}, {ORDERS[order]}", *scores),
                    "interactions": float(np.mean([fold.interactions for fold in result])),
                    "s a fold": float(np.mean([fold.seconds for fold in result])),
                }
            )
        recorded += rows
        print(f"\n{name}; mean and standard deviation over folds")
        print(tabulate(rows, "keys", floatfmt=".3f"), flush=True)
    methods = [str(row["method"]) for row in recorded]
    record(
        "uci",
        "Additive GPs on UCI tables, beside what the papers of OAK and Duvenaud state",
        recorded,
        arguments,
        within=("data",),
        method="method",
        ours=sorted({m for m in methods if m.startswith("ours")}),
        better={"error": "lower", "NLL": "lower"},
    )


def row_of(name: str, method: str, error: Spread, nll: Spread) -> dict[str, object]:
    """A row of the record."""
    return {
        "data": f"{TITLES[name]}, {UNITS[name]}",
        "method": method,
        "error": error[0],
        "error, sd": error[1],
        "NLL": nll[0],
        "NLL, sd": nll[1],
    }


if __name__ == "__main__":
    main()
