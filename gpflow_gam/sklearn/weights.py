"""Rows by how often they count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from sklearn.utils import check_array

MAX_REPEATED_ROWS = 50_000
"""Rows up to which whole weights repeat rows; beyond, weights are a column of the model."""


def checked_weights(weights: Any, number: int) -> AnyNDArray | None:
    """
    How often each row counts, [N]; None without weights.

    :raises ValueError: not one a row, negative, or all zero.
    """
    if weights is None:
        return None
    w: AnyNDArray = check_array(
        weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if w.shape != (number,):
        raise ValueError(f"sample_weight must be [N], one a row, {number}; got shape {w.shape}.")
    if np.any(w < 0.0) or not np.any(w > 0.0):
        raise ValueError(
            f"sample_weight must not be negative, and not all zero; got {w.min():g} in row "
            f"{int(w.argmin())}."
        )
    return w


def counted(
    frame: pd.DataFrame, y: AnyNDArray, weights: AnyNDArray | None, repeat: bool = True
) -> tuple[pd.DataFrame, AnyNDArray, AnyNDArray | None]:
    """
    Rows that count, repeated where weights are whole and few: what is left of the weights.

    Spans, inducing inputs and centring are then exactly those of repeated rows.

    :param repeat: whether rows may be repeated, as proportions of so many trials may not.
    """
    if weights is None:
        return frame, y, None
    if repeat and np.all(weights == np.round(weights)) and weights.sum() <= MAX_REPEATED_ROWS:
        rows = np.repeat(np.arange(len(y)), weights.astype(int))
        return frame.iloc[rows].reset_index(drop=True), y[rows], None
    rows = np.flatnonzero(weights)
    return frame.iloc[rows].reset_index(drop=True), y[rows], weights[rows]
