"""Survival curves of new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ..families import Survival
from ..frames import Table
from .fitted import FittedGAM
from .prediction import Uncertain, moments
from .ranges import encoded

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # type: ignore[no-untyped-call]
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def survival(
    fit: FittedGAM, table: Table, times: Any, level: float, uncertain: Uncertain | None
) -> pd.DataFrame:
    """
    What :meth:`gpflow_gam.GAM.survival` returns.

    :param table: the rows.
    :param times: [T].
    :param level: the limits' probability.
    :param uncertain: where limits come from; None takes hyperparameters as known.
    :raises ValueError: a family without a survival function, bad times or no probability.
    """
    family = fit.spec.family
    if not isinstance(family, Survival):
        raise ValueError(
            f"survival: family {family.name!r} has no survival curves; fit 'weibull', 'lognormal', "
            "or 'gaussian' with y=Surv(...)."
        )
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    t = _checked(times, family.kind.logarithm)
    mean, known, var = moments(fit, encoded(fit, table), uncertain, None)
    estimate = np.zeros((len(mean), len(t)))
    for node, weight in zip(_NODES, _WEIGHTS):
        F = mean + node * np.sqrt(known)
        estimate += weight * family.survival(fit.likelihood, t, F[:, None])
    z = norm.ppf(0.5 + 0.5 * level) * np.sqrt(var)
    # survival grows with the predictor, and limits go through
    lower, upper = (
        family.survival(fit.likelihood, t, end[:, None]) for end in (mean - z, mean + z)
    )
    frame = {
        "row": np.repeat(np.arange(len(mean)), len(t)),
        "time": np.tile(t, len(mean)),
        "estimate": estimate.ravel(),
        "lower": lower.ravel(),
        "upper": upper.ravel(),
    }
    return pd.DataFrame(frame)


def _checked(times: Any, positive: bool) -> AnyNDArray:
    """
    :raises ValueError: no such times.
    """
    t = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if t.ndim != 1 or len(t) == 0:
        raise ValueError(f"times must be numbers [T]; got shape {t.shape}.")
    good = np.isfinite(t) & ((t > 0.0) | (not positive))
    if not good.all():
        what = "positive and finite" if positive else "finite"
        raise ValueError(f"times must be {what}; got {t[~good][0]:g}.")
    return t
