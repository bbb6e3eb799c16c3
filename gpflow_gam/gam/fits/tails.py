"""Whether expected responses are made by the far tail of their predictor."""

from __future__ import annotations

import weakref

import numpy as np
from gpflow.base import AnyNDArray

from ...errors import TailWarning, warn_caller
from .fitted import FittedGAM

_WIDE = 3.0
"""Standard deviation on the log scale at which a mean is 90 times the median."""

_SAID: weakref.WeakSet[FittedGAM] = weakref.WeakSet()
"""The fits of which it has been said."""


def warn_of_tails(fit: FittedGAM, mean: AnyNDArray, var: AnyNDArray, estimate: AnyNDArray) -> None:
    """
    Warn, once a fit, where next to nothing is known of a predictor behind a log link.

    The mean of ``exp(f)``, ``exp(m + v / 2)``, then is a number that no data would look like.

    :param mean: of the predictor, [N, L].
    :param var: the same.
    :param estimate: of the response, [N].
    """
    if not fit.spec.family.log_link or fit in _SAID:
        return
    units, shifts = fit.spec.family.units(fit.likelihood)
    sd = units[0] * np.sqrt(var[:, 0])
    wide = sd > _WIDE
    if not np.any(wide):
        return
    _SAID.add(fit)
    worst = int(np.argmax(np.where(np.isfinite(sd), sd, 0.0)))
    with np.errstate(over="ignore"):
        median = np.exp(shifts[0] + units[0] * mean[worst, 0])
    warn_caller(
        f"of {np.count_nonzero(wide)} of {len(sd)} rows the data say next to nothing: up to "
        f"{sd[worst]:.2g} is the predictor's standard deviation, on the log scale, and the "
        f"expected response, {estimate[worst]:.3g} where the median is {median:.3g}, is made by "
        "the far tail. Take interval= or type='link', look for extreme values in the columns and "
        "the response, or give the terms less freedom.",
        TailWarning,
    )
