"""Options that fits share."""

from __future__ import annotations

import numpy as np


def check_options(
    max_iterations: int,
    batch_size: int | None,
    learning_rate: float,
    rho: float,
    tolerance: float,
    patience: int,
) -> None:
    """
    :raises ValueError: an option out of range, naming it.
    """
    if max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1; got {max_iterations}.")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1; got {batch_size}.")
    if not (np.isfinite(learning_rate) and learning_rate > 0.0):
        raise ValueError(f"learning_rate must be positive; got {learning_rate}.")
    if not 0.0 < rho <= 1.0:
        raise ValueError(f"rho must be in (0, 1]; got {rho}.")
    if not tolerance > 0.0:
        raise ValueError(f"tolerance must be positive; got {tolerance}.")
    if patience < 2:
        raise ValueError(f"patience must be at least 2, to tell a trend; got {patience}.")
