"""GPflow's global float type and jitter, as one layer needs them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..kernels.precision import float_type

_SINGLE_JITTER = 1e-4


def precision(dtype: str) -> AbstractContextManager[None]:
    """
    GPflow's settings for computations in ``dtype``, one thread at a time.

    Nothing within may wait for another thread, such as a reduction over replicas.

    :param dtype: "float32" or "float64".
    """
    return float_type(dtype, _SINGLE_JITTER if dtype == "float32" else 0.0)
