"""GPflow's global float type and jitter, as one computation needs them."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator

import gpflow
import numpy as np

_LOCK = threading.RLock()
"""Settings are the process's: threads that trace models would leave each other's behind."""


@contextlib.contextmanager
def float_type(dtype: str, least_jitter: float = 0.0) -> Iterator[None]:
    """
    GPflow's settings for computations in ``dtype``, one thread at a time.

    Nothing within may wait for another thread, such as a reduction over replicas.

    :param dtype: "float32" or "float64".
    :param least_jitter: what default jitter is at least.
    """
    with _LOCK:
        config = dataclasses.replace(
            gpflow.config.config(),
            float=np.float32 if dtype == "float32" else np.float64,
            jitter=max(gpflow.config.default_jitter(), least_jitter),
        )
        with gpflow.config.as_context(config):
            yield
