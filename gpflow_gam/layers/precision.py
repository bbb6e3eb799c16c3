"""GPflow's global float type and jitter, as one layer needs them."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator

import gpflow
import numpy as np

_SINGLE_JITTER = 1e-4
_LOCK = threading.RLock()
"""Settings are the process's: threads that trace heads would leave each other's behind."""


@contextlib.contextmanager
def precision(dtype: str) -> Iterator[None]:
    """
    GPflow's settings for computations in ``dtype``, one thread at a time.

    Nothing within may wait for another thread, such as a reduction over replicas.

    :param dtype: "float32" or "float64".
    """
    single = dtype == "float32"
    with _LOCK:
        config = dataclasses.replace(
            gpflow.config.config(),
            float=np.float32 if single else np.float64,
            jitter=max(gpflow.config.default_jitter(), _SINGLE_JITTER if single else 0.0),
        )
        with gpflow.config.as_context(config):
            yield
