"""Ours, and exact Gaussian processes of GPflow, on one fold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from datasets import Table
from scores import Prediction

MOST_EXACT = {"gaussian": 2500, "bernoulli": 700, "count": 700}
"""Rows that an exact Gaussian process is fitted to: its time is their cube."""
EXACT_STEPS = 100
"""Of L-BFGS, where q is variational."""
FAMILIES = {"gaussian": "gaussian", "bernoulli": "bernoulli", "count": "negative_binomial"}


def ours(order: str) -> Callable[[Table, np.ndarray, np.ndarray], Prediction]:
    """
    Defaults.

    :param order: ``"1"``, or ``"screened"``: pairs that stand out in the training rows.
    """

    def fit(table: Table, train: np.ndarray, test: np.ndarray) -> Prediction:
        import gpflow_gam as gg

        family, rows = FAMILIES[table.family], table.frame.iloc[train].reset_index(drop=True)
        new = clipped(table, train, test)
        start = time.perf_counter()
        if order == "screened":
            terms = gg.anova(data=rows, y="y", family=family)
        else:
            terms = gg.anova(table.covariates, 1, levels=table.levels)
        gam = gg.GAM(terms, family=family).fit(rows, y="y", progress=False)
        mean = np.asarray(gam.predict(new))
        density = np.asarray(gam.log_density(new, unconditional=True))
        limits = gam.predict(new, "observation", interval=0.9) if table.family == "gaussian" else {}
        seconds = time.perf_counter() - start
        lower, upper = (
            None if not len(limits) else np.asarray(limits[k]) for k in ("lower", "upper")
        )
        return Prediction(mean, seconds, log_density=density, lower=lower, upper=upper)

    return fit


def exact(table: Table, train: np.ndarray, test: np.ndarray) -> Prediction | None:
    """
    One Gaussian process of all columns, levels as columns of zeros and ones: GPR for Gaussian data,
    else VGP (Opper & Archambeau 2009); Matern-5/2 with a lengthscale a column.
    """
    if len(train) > MOST_EXACT[table.family]:
        return None
    import gpflow

    X = pd.get_dummies(table.frame[table.covariates]).to_numpy(float)
    X = (X - X[train].mean(axis=0)) / np.maximum(X[train].std(axis=0), 1e-9)
    y = table.frame["y"].to_numpy()
    gaussian = table.family == "gaussian"
    mean, scale = (y[train].mean(), y[train].std()) if gaussian else (0.0, 1.0)
    Y = ((y - mean) / scale)[:, None]
    start = time.perf_counter()
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
    if gaussian:
        model: Any = gpflow.models.GPR((X[train], Y[train]), kernel)
    else:
        likelihood: Any = gpflow.likelihoods.Bernoulli(invlink=_logistic)
        constant = None
        if table.family == "count":
            likelihood = gpflow.likelihoods.Poisson()
            constant = gpflow.functions.Constant(np.log(Y[train].mean()))
        model = gpflow.models.VGP((X[train], Y[train]), kernel, likelihood, mean_function=constant)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": EXACT_STEPS}
    )
    result, var = (np.asarray(t)[:, 0] for t in model.predict_y(X[test]))
    density = np.asarray(model.predict_log_density((X[test], Y[test]))).ravel()
    seconds = time.perf_counter() - start
    if not gaussian:
        return Prediction(result, seconds, log_density=density)
    return Prediction(mean + scale * result, seconds, sd=scale * np.sqrt(var))


def _logistic(F: Any) -> Any:
    import tensorflow as tf

    return tf.sigmoid(F)


def clipped(table: Table, train: np.ndarray, test: np.ndarray) -> pd.DataFrame:
    """Rows to predict, numbers within the range that they have among those to train on."""
    known, new = table.frame.iloc[train], table.frame.iloc[test].reset_index(drop=True)
    numbers = [c for c in table.covariates if c not in table.levels]
    return new.assign(**{c: new[c].clip(known[c].min(), known[c].max()) for c in numbers})


def quiet() -> None:
    """Warnings are for users, who would look at them."""
    warnings.simplefilter("ignore")
