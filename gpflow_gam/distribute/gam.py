"""Fits of GAMs to rows of which every worker has its own share."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

import numpy as np

from ..communicator import Communicator
from ..gam import GAM
from ..gam.fits.checks import check_names
from ..optimizers import TimeBudget
from ..optimizers.minimizers import FitProgress
from ..optimizers.minimizers.tracker import INTERRUPTED, Callback, OnInterrupt, check_on_interrupt
from .workers import workers_of

_MINIBATCH = (
    "batch_size",
    "num_steps",
    "learning_rate",
    "checkpoint",
    "save_every",
    "validation_data",
    "steps_per_epoch",
)
_REMEDY = "Start all workers again: the fit of a GAM has no checkpoint, and begins anew."


def fit_gam(
    gam: GAM,
    data: Any,
    *,
    y: Any = None,
    strategy: object = None,
    timeout: float = 300.0,
    max_seconds: float | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    **options: Any,
) -> GAM:
    """Fit a GAM to the rows of all workers; see :func:`gpflow_gam.distribute.fit`."""
    workers = workers_of(strategy, timeout)
    # what can be read by rows is data, whatever else it can do
    is_function = callable(data) and not hasattr(data, "__iter__")

    def share() -> Any:
        _check(gam, max_seconds, options)  # where the others are told of errors
        return data(workers.context()) if is_function else data

    if not workers.several:
        limits: dict[str, Any] = {
            "max_seconds": max_seconds,
            "callback": callback,
            "progress": progress,
        }
        limits = {name: value for name, value in limits.items() if value is not None}
        return gam.fit(share(), y, **limits, **options)
    communicator = Communicator(workers.sum, workers.index, workers.number)
    on_interrupt = options.get("on_interrupt", "raise")
    with (
        workers.watched(_REMEDY),
        StopSync(communicator, callback, max_seconds, on_interrupt) as stop,
    ):
        shown = progress if communicator.first else False
        return gam.fit_share(
            share, y, communicator=communicator, callback=stop, progress=shown, **options
        )


def _check(gam: GAM, max_seconds: float | None, options: Mapping[str, Any]) -> None:
    for name in _MINIBATCH:
        if name in options:
            raise ValueError(
                f"{name} is of minibatch training, whose first argument is a function that builds "
                "a model; a GAM is fitted to all rows at once: leave the argument out."
            )
    if gam.is_fitted:
        raise ValueError("build: the GAM is fitted already; pass one that is not.")
    check_names(options)
    check_on_interrupt(options.get("on_interrupt", "raise"))
    TimeBudget(max_seconds)  # raises where it is none


class StopSync:
    """
    A fit's callback on every worker, in which all decide together whether they go on.

    Time budgets and Ctrl-C are asked about there too: once an iteration, after the reduction of its
    pass over the rows. In between nobody stops, since the others would wait.
    """

    def __init__(
        self,
        communicator: Communicator,
        callback: Callback | None,
        max_seconds: float | None,
        on_interrupt: OnInterrupt = "raise",
    ) -> None:
        self._keep = on_interrupt == "keep"
        self._communicator, self._callback, self._max_seconds = communicator, callback, max_seconds
        self._start = time.perf_counter()
        self._interrupted = False
        self._handler: Any = None

    def __call__(self, progress: FitProgress) -> bool | str:
        """
        Whether the fit ends, and why.

        :raises RuntimeError: the workers' fits are not the same any more, or the callback of
            another worker failed.
        :raises KeyboardInterrupt: Ctrl-C on one of the workers, unless ``on_interrupt="keep"``.
        """
        failed: Exception | None = None
        asked = False
        try:
            asked = self._callback is not None and bool(self._callback(progress))
        except Exception as error:  # the others are told first
            failed = error
        elapsed = time.perf_counter() - self._start
        late = self._max_seconds is not None and elapsed > self._max_seconds
        elbos = np.zeros(self._communicator.number)
        elbos[self._communicator.place] = progress.elbo
        flags = np.array([failed is not None, asked, late, self._interrupted], dtype=np.float64)
        counts, elbos = self._communicator.total([flags, elbos])
        if failed is not None:
            raise failed
        if counts[0]:
            raise RuntimeError("the callback of another worker failed; see its error.")
        if np.any(elbos != elbos[0]):
            raise RuntimeError(
                "the workers' processors or libraries round differently, so that their fits went "
                "apart; run the same versions on machines of one kind."
            )
        if counts[3] and not self._keep:
            raise KeyboardInterrupt
        reasons = ("stopped by the callback", "time budget used up", INTERRUPTED)
        return next((why for count, why in zip(counts[1:], reasons) if count), False)

    def __enter__(self) -> StopSync:
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *error: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:  # pressed twice
            raise KeyboardInterrupt
        self._interrupted = True
