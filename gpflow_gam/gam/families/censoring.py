"""From the two columns of a censored response to numbers, with errors that name the row."""

from __future__ import annotations

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...likelihoods.standardised import EXACT, INTERVAL, LEFT, RIGHT
from ...storage import RowArray, Stored
from ..terms import Surv
from . import encoding

_BLOCK = 2**20
"""Rows at a time."""


def encoded(
    first: AnyNDArray, second: AnyNDArray, stated: Surv, family: str, positive: bool
) -> AnyNDArray:
    """
    What is known of each row, as censored likelihoods take it, [N, 3].

    :param first: the first column, [N].
    :param second: the second one, [N].
    :param stated: what they are.
    :param family: for messages.
    :param positive: whether responses are.
    :raises ValueError: values that no response can have, naming column, value and row.
    """
    names = str(stated.first), str(stated.second)
    if stated.type == "interval":
        return _intervals(first, second, names, family, positive)
    time = encoding.numbers(first, names[0], family)
    if positive:
        encoding.require(time, time > 0.0, "positive", names[0], family)
    _require_numbers(second, names[1])
    event = encoding.numbers(second, names[1], family)
    known = (event == 0.0) | (event == 1.0)
    what = "1 (or True) where the event was seen and 0 where it is censored"
    encoding.require(event, known, what, names[1], family)
    kind = np.where(event == 1.0, EXACT, RIGHT if stated.type == "right" else LEFT)
    return np.stack([time, time, kind], axis=1)


def _require_numbers(event: AnyNDArray, name: str) -> None:
    """
    :raises ValueError: words that say what happened.
    """
    event = np.asarray(event)
    words = [v for v in event.tolist() if isinstance(v, str)] if event.dtype.kind in "OUS" else []
    if words:
        found = ", ".join(map(repr, sorted(set(words))[:3]))
        raise ValueError(
            f"{name} must be 1 (or True) where the event was seen and 0 where it is censored; got "
            f"words ({found}): make it a truth value, as data[{name!r}] = data[{name!r}] == "
            f"{sorted(set(words))[0]!r}."
        )


def _intervals(
    first: AnyNDArray, second: AnyNDArray, names: tuple[str, str], family: str, positive: bool
) -> AnyNDArray:
    lower = _ends(first, names[0], family, -np.inf)
    upper = _ends(second, names[1], family, np.inf)
    encoding.require(lower, lower < np.inf, "less than inf", names[0], family)
    encoding.require(upper, upper > -np.inf, "greater than -inf", names[1], family)
    if positive:
        negative = np.isfinite(lower) & (lower < 0.0)
        encoding.require(lower, ~negative, "not negative", names[0], family)
        lower = np.where(lower == 0.0, -np.inf, lower)
        encoding.require(upper, upper > 0.0, "positive", names[1], family)
    ordered = lower <= upper
    encoding.require(lower, ordered, f"at most {names[1]!r} of its row", names[0], family)
    left, right = np.isinf(lower), np.isinf(upper)
    encoding.require(
        lower, ~(left & right), f"given in a row that lacks {names[1]!r}", names[0], family,
        "drop the rows, of which nothing is known",
    )  # fmt: skip
    kind = np.select([left, right, lower == upper], [LEFT, RIGHT, EXACT], INTERVAL)
    one = np.where(left, upper, lower)  # of a row with one end
    return np.stack([one, np.where(right, one, upper), kind], axis=1)


def _ends(y: AnyNDArray, name: str, family: str, missing: float) -> AnyNDArray:
    """Ends of intervals [N], which may be infinite, and are so where they are missing."""
    y = np.asarray(y)
    encoding.check_no_times(y, name, family)
    if y.dtype.kind == "O":  # None, or missing values of pandas'
        y = np.where(np.asarray(pd.isna(y)), missing, y)
    if y.dtype.kind in "Oc" or y.dtype.kind not in "biuf":
        try:
            y = y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} must hold numbers, for family {family!r}; got {y.dtype} values such as "
                f"{y.tolist()[0]!r}."
            ) from None
    x = y.astype(np.float64)
    return np.where(np.isnan(x), missing, x)


def check_events(Y: RowArray, stated: Surv) -> None:
    """
    :param Y: [N, 3].
    :param stated: as users wrote the response.
    :raises ValueError: responses that are all beyond the values that are known.
    """
    found = np.zeros(4)
    for start in range(0, len(Y), _BLOCK):
        kinds = np.asarray(Y[start : start + _BLOCK])[:, 2].astype(np.int64)
        found += np.bincount(kinds, minlength=4)
    found = Y.gathered(found).sum(axis=0) if isinstance(Y, Stored) else found
    alone = [kind for kind in (RIGHT, LEFT) if found[int(kind)] == found.sum()]
    if alone:
        where = "greater" if alone == [RIGHT] else "less"
        raise ValueError(
            f"{stated}: every row is censored, and all that is known is that responses are "
            f"{where} than the values given, from which no distribution can be learnt"
            + ("; is 1 what marks an event?" if stated.type != "interval" else ".")
        )
