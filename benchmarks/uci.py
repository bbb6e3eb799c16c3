"""
How well do main effects and pairwise interactions predict? Beside published additive GPs.

autoMPG and breast as "Additive Gaussian Processes Revisited" (OAK; Lu, Boukouvalas & Hensman, 2022)
has them: rows permuted with seed 4, five folds, test inputs clipped to the training range, RMSE in
original units (or error in %), NLL per row of the response standardised on the training rows.
Concrete as "Additive Gaussian Processes" (Duvenaud, Nickisch & Rasmussen, 2011) has it: all columns
standardised, ten folds in the file's order, MSE and NLL. NLLs of ours are averaged over uncertain
hyperparameters. AutoMPG is also fitted with a noise that varies with the inputs. The data are that
paper's .mat files (repository duvenaud/additive-gps). Run it with
``python benchmarks/uci.py --data FOLDER``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.io import loadmat
from sklearn.model_selection import KFold
from tabulate import tabulate

import gpflow_gam as gg
from gpflow_gam.terms import Terms

RESPONSE = "y"
Scores = tuple[float, float]
"""Error and NLL of one fold."""

PUBLISHED: dict[str, dict[str, tuple[str, str]]] = {
    "autompg": {"OAK": ("2.685 +- 0.365", "0.349 +- 0.216")},
    "breast": {"OAK": ("5.56 +- 1.39", "0.143 +- 0.036")},
    "concrete": {
        "Duvenaud's GP-GAM": ("0.149", "0.467"),
        "Duvenaud's SE-ARD": ("0.157", "0.398"),
        "Duvenaud's additive": ("0.089", "0.114"),
    },
}
FILES = {"autompg": "autompg.mat", "breast": "breast.mat", "concrete": "r_concrete_1030.mat"}
LIKELIHOODS = {
    "autompg": ["gaussian", "heteroskedastic"],
    "breast": ["bernoulli"],
    "concrete": ["gaussian"],
}
"""The published rows' likelihood first."""
UNITS = {"autompg": "RMSE", "breast": "error, %", "concrete": "MSE"}


# --- the model -----------------------------------------------------------------------------------


def second_order(data: pd.DataFrame, num_inducing: int, order: int) -> Terms:
    """
    A main effect of every column and, where ``order`` is 2, an interaction of every pair.

    Text columns are factors.
    """
    columns = [c for c in data if c != RESPONSE]
    text = [c for c in columns if not pd.api.types.is_numeric_dtype(data[c])]
    return gg.anova(columns, order, k=24, k_interaction=num_inducing, levels=text)


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


def fit(X: pd.DataFrame, y: np.ndarray, family: str, num_inducing: int, order: int) -> gg.GAM:
    data = X.assign(**{RESPONSE: y})
    gam = gg.GAM(second_order(data, num_inducing, order), family=family)
    gam.fit(data, y=RESPONSE)
    return gam


def regression(
    train: pd.DataFrame,
    test: pd.DataFrame,
    y: np.ndarray,
    y_test: np.ndarray,
    family: str,
    **options: int,
) -> Scores:
    """RMSE in the units of y; NLL of y standardised."""
    mean, scale = y.mean(), y.std()
    gam = fit(train, (y - mean) / scale, family, **options)
    standardised = (y_test - mean) / scale
    error = np.asarray(gam.predict(test, type="response")) - standardised
    density = gam.log_density(test.assign(**{RESPONSE: standardised}), unconditional=True)
    return scale * float(np.sqrt(np.mean(error**2))), -float(np.mean(density))


def classification(
    train: pd.DataFrame,
    test: pd.DataFrame,
    y: np.ndarray,
    y_test: np.ndarray,
    family: str,
    **options: int,
) -> Scores:
    """Errors in per cent, and NLL."""
    gam = fit(train, (y > 0).astype(int), family, **options)
    labels = (y_test > 0).astype(int)
    wrong = (np.asarray(gam.predict(test, type="response")) > 0.5) != labels
    density = gam.log_density(test.assign(**{RESPONSE: labels}), unconditional=True)
    return 100.0 * float(wrong.mean()), -float(np.mean(density))


def scores(
    folder: Path, name: str, family: str, order: int, num_inducing: int
) -> tuple[np.ndarray, float]:
    """Error and NLL of every fold [F, 2], and seconds a fold."""
    X, y = load(folder, name)
    if name == "concrete":
        numeric = X.select_dtypes("number")
        X = X.assign(**(numeric - numeric.mean()) / numeric.std())
        y = (y - y.mean()) / y.std(ddof=1)
    found = []
    start = time.perf_counter()
    for number, split in enumerate(folds(X, y, name)):
        of_fold = classification if name == "breast" else regression
        train, test, own, own_test = split
        error, nll = of_fold(
            train, test, own, own_test, family=family, num_inducing=num_inducing, order=order
        )
        if name == "concrete":  # its response is standardised once, over all rows
            error, nll = error**2, nll + float(np.log(own.std()))
        found.append((error, nll))
        print(f"{name}, fold {number}: {error:.3f}, {nll:.3f}", file=sys.stderr, flush=True)
    return np.array(found), (time.perf_counter() - start) / len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the .mat files")
    parser.add_argument("--datasets", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--orders", nargs="+", type=int, choices=[1, 2], default=[1, 2])
    parser.add_argument("--num-inducing", type=int, default=16, help="of an interaction")
    arguments = parser.parse_args()

    for name in arguments.datasets:
        rows = [[method, *numbers] for method, numbers in PUBLISHED[name].items()]
        for family, order in itertools.product(LIKELIHOODS[name], arguments.orders):
            found, seconds = scores(arguments.data, name, family, order, arguments.num_inducing)
            both = [f"{m:.3f} +- {d:.3f}" for m, d in zip(found.mean(axis=0), found.std(axis=0))]
            rows.append([f"ours, {family}, order {order}", *both, f"{seconds:.1f}"])
        print(f"\n{name}; mean +- standard deviation over folds")
        print(tabulate(rows, ["method", UNITS[name], "NLL", "s a fold"], disable_numparse=True))


if __name__ == "__main__":
    main()
