"""Numbers that are too large, too small or too far from the others, in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...errors import NotPositiveDefinite
from ...optimizers.binned.rounds import StartError
from ...storage import RowArray
from ..families import (
    CensoredGaussian,
    Family,
    Gaussian,
    Heteroskedastic,
    StudentT,
    check_events,
    moments,
)
from .specification import Specification
from .stating import Stating

LEAST, GREATEST = 1e-70, 1e70
"""Sizes of a response whose variance has a square that is neither zero nor infinite."""
_RESOLVED = 1e-10
"""Against its size, what a response has to vary by to be more than rounding."""
_FAR = 1e3
"""Distances from the median, against half of the values' range, that are worth a word."""
_BROKEN = (
    StartError,
    NotPositiveDefinite,
    np.linalg.LinAlgError,
    tf.errors.InvalidArgumentError,
    OverflowError,
    FloatingPointError,
)
"""What linear algebra comes to on such numbers."""


def check_response(family: Family, Y: RowArray, stating: Stating) -> None:
    """
    Check that there is something in a response that double precision can tell.

    :param Y: as encoded, [N, K].
    :param stating: says which columns hold it.
    :raises ValueError: there is not.
    """
    if family.labelled:
        return
    name = stating.response
    if stating.censoring is not None:
        check_events(Y, stating.censoring)
    with np.errstate(over="ignore", invalid="ignore"):
        _, variance, largest = moments(Y)
    if not largest < GREATEST:
        raise ValueError(
            f"the response {name!r} reaches {largest:g}, whose powers overflow; divide it by a "
            "power of ten."
        )
    if not isinstance(family, (Gaussian, StudentT, Heteroskedastic, CensoredGaussian)):
        return
    sd = float(np.sqrt(variance))
    if sd < LEAST:
        raise ValueError(
            f"the response {name!r} varies by less than {LEAST:g}, whose powers underflow; "
            "multiply it by a power of ten."
        )
    if sd < _RESOLVED * largest:
        raise ValueError(
            f"the response {name!r} varies by {sd:g} around {largest:g}, which is near to rounding "
            "errors; subtract its mean."
        )


@contextlib.contextmanager
def explained(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> Iterator[None]:
    """
    Says of numbers on which linear algebra breaks down which column they are in.

    :param X: rows of the fit, [n, D].
    :param Y: their response, [n, K].
    :raises ValueError: it broke down.
    """
    try:
        yield
    except _BROKEN as error:
        why = "double precision does not suffice for these numbers"
        raise ValueError(f"{why}: {_farthest(spec, X, Y)}") from error


def _farthest(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> str:
    """Which column has the value that is farthest from its others, and what to do."""
    columns: list[tuple[str, AnyNDArray]] = [(f"the response {spec.response!r}", Y[:, 0])]
    for i, (name, kind) in enumerate(spec.encoder.columns):
        if kind == "number":
            columns.append((f"column {name!r}", X[:, i]))
    worst, text = _FAR, ""
    for what, values in columns:
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        distance = np.abs(values - middle)
        row = int(np.argmax(distance))
        spread = high - low if high > low else float(np.std(np.delete(values, row)))
        if distance[row] > worst * spread:
            worst = float(distance[row] / spread) if spread > 0.0 else np.inf
            text = (
                f"{what} has {values[row]:g} in row {row}, while half of its values are between "
                f"{low:g} and {high:g}; leave such rows out, or transform the column (to ranks, "
                "for instance)."
            )
    if text:
        return text
    listed = ", ".join(f"{what} from {v.min():g} to {v.max():g}" for what, v in columns)
    return f"standardise them, and look for extreme values ({listed})."
