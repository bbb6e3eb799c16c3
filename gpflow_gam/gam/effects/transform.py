"""Effects through a function, such as the exponential: ratios under a log or logit link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

Transform = Callable[[Any], Any]
"""A monotone function of an array, value by value."""

CENTRED = "estimate_centred"
"""What estimates are called that leave the means of levels out."""
_LIMITS = ("", "_simultaneous")


def transformed(frame: pd.DataFrame, fun: Transform | None) -> pd.DataFrame:
    """
    A table with its estimates and limits through ``fun``, without ``se``.

    A standard error is the predictor's own, and one of what ``fun`` makes of it would say little.

    :param frame: with ``estimate`` (or ``estimate_centred``), ``se``, ``lower``, ``upper`` and
        perhaps simultaneous limits.
    :param fun: None for the table as it is.
    :raises TypeError: no function.
    :raises ValueError: it does not give a number for each.
    """
    if fun is None:
        return frame
    estimate = "estimate" if "estimate" in frame else CENTRED
    found = {estimate: applied(fun, frame[estimate].to_numpy())}
    for which in _LIMITS:
        if f"lower{which}" in frame:
            ends = [applied(fun, frame[f"{e}{which}"].to_numpy()) for e in ("lower", "upper")]
            # a function that falls swaps them
            found |= {f"lower{which}": np.minimum(*ends), f"upper{which}": np.maximum(*ends)}
    return frame.assign(**found).drop(columns="se")


def applied(fun: Transform, values: AnyNDArray) -> AnyNDArray:
    """
    ``fun(values)``, of the same shape.

    :param fun: works entry by entry.
    :param values: of any shape.
    :raises TypeError: no function.
    :raises ValueError: it does not give a number for each.
    """
    if not callable(fun):
        raise TypeError(f"fun must be a function such as numpy.exp; got {fun!r}.")
    found = np.asarray(fun(values), dtype=np.float64)
    if found.shape != values.shape:
        raise ValueError(
            f"fun must give a number for each of {values.shape}; got shape {found.shape}."
        )
    if np.any(np.isnan(found) & ~np.isnan(values)):
        at = float(values[np.isnan(found)][0])
        raise ValueError(f"fun is not a number at {at:g}, where an effect or a limit of it is.")
    return found
