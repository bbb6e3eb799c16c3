"""Threads for work that numpy does outside of Python's lock."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

T = TypeVar("T")

MIN_SECONDS = 1e-3
"""Seconds that a call on another thread has to take to be worth it."""
SMALL = 1500
"""Inducing values up to which a second thread of linear algebra costs more than it brings."""

_pool: ThreadPoolExecutor | None = None


def _forget() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # a child has the pool, but not its threads


def each(function: Callable[[T], None], items: Sequence[T], seconds: float = math.inf) -> None:
    """Call ``function`` on all items, on as many threads as cores if calls take long enough."""
    global _pool
    if len(items) < 2 or seconds < MIN_SECONDS:
        with one_blas_thread():
            for item in items:
                function(item)
        return
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="gpflow_gam")
    warned = np.geterr()

    def call(item: T) -> None:
        with np.errstate(**warned):
            function(item)

    with one_blas_thread():
        for _ in _pool.map(call, items):
            pass


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread(wanted: bool = True) -> Iterator[None]:
    """Linear algebra on one thread: of small matrices more cost up to fifty times as much."""
    if not wanted:
        yield
        return
    with _libraries().limit(limits=1, user_api="blas"):
        yield
