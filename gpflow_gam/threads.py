"""Threads for work that numpy does outside of Python's lock, and processes that cannot compute."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import threadpoolctl

from .errors import ForkedProcessError

T = TypeVar("T")

MIN_SECONDS = 1e-3
"""Seconds that a call on another thread has to take to be worth it."""
SMALL = 1500
"""Inducing values up to which a second thread of linear algebra costs more than it brings."""

_pool: ThreadPoolExecutor | None = None
_orphaned = False
"""True if this process was forked from one in which TensorFlow was at work."""


def _forked() -> None:
    global _lock, _orphaned, _pool
    _pool = None  # which is there, but without its threads
    _lock = threading.Lock()  # which another thread may have held
    # asked without importing anything, which a fork may have left locked
    module = sys.modules.get("tensorflow.python.eager.context")
    context = None if module is None else getattr(module, "_context", None)
    _orphaned = _orphaned or bool(getattr(context, "_initialized", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


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


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items, the next of which is made on another thread while one is in use."""
    made, warned = iter(items), np.geterr()

    def following() -> list[T]:
        with np.errstate(**warned):
            return list(itertools.islice(made, 1))

    with ThreadPoolExecutor(1, thread_name_prefix="gpflow_gam") as thread:
        coming = thread.submit(following)
        while now := coming.result():
            coming = thread.submit(following)
            yield now[0]


_lock, _inside = threading.Lock(), 0
_give_back: Callable[[], None]


@functools.cache
def _libraries() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()


def _free(force: bool = False) -> None:
    """Let any thread set the limit: since threadpoolctl 3.8 only the one that set it before can."""
    if clear := getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None):
        clear(force)


@contextlib.contextmanager
def one_blas_thread(wanted: bool = True) -> Iterator[None]:
    """Linear algebra on one thread: of small matrices more cost up to fifty times as much."""
    if not wanted:
        yield
        return
    # the limit is the process's: the first of several threads sets it, the last gives it back
    global _inside, _give_back
    with _lock:
        if _inside == 0:
            limit = _libraries().limit(limits=1, user_api="blas")
            _give_back = limit.restore_original_limits
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _free(force=True)
                _give_back()
                _free()


def check_process() -> None:
    """Raise ForkedProcessError where TensorFlow would wait for ever for its parent's threads."""
    if _orphaned:
        raise ForkedProcessError(
            "this process was forked after TensorFlow had begun to compute in its parent, and "
            "would wait for ever for threads that are there. Start processes instead: "
            "multiprocessing.get_context('spawn'), or joblib's default; or fork before the first "
            "fit or prediction."
        )
