"""When a fit ends that several workers take part in: what one decides is decided for all."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

import numpy as np

from ..optimizers.binned.shared import Exchange
from ..optimizers.minimizers import FitProgress
from ..optimizers.minimizers.tracker import INTERRUPTED, Callback, OnInterrupt


class Endings:
    """
    A fit's callback on every worker, in which all tell each other whether they want to go on.

    Time budgets and Ctrl-C are asked about there too: once an iteration, after the reduction of its
    pass over the rows. In between nobody stops, since the others would wait.

    :param exchange: with the other workers.
    :param callback: of the user, on this worker.
    :param max_seconds: time budget of this worker.
    :param on_interrupt: what Ctrl-C on any worker does on all: as for
        :func:`gpflow_gam.optimizers.fit`.
    """

    def __init__(
        self,
        exchange: Exchange,
        callback: Callback | None,
        max_seconds: float | None,
        on_interrupt: OnInterrupt = "raise",
    ) -> None:
        self._keep = on_interrupt == "keep"
        self._exchange, self._callback, self._max_seconds = exchange, callback, max_seconds
        self._start = time.perf_counter()
        self._interrupted = False
        self._before: Any = None

    def __call__(self, progress: FitProgress) -> bool | str:
        """
        :return: whether the fit ends, and why.
        :raises RuntimeError: the workers' fits are not the same any more, or the callback of
            another worker failed.
        :raises KeyboardInterrupt: Ctrl-C on one of the workers, unless what there is, is kept.
        """
        failed: Exception | None = None
        asked = False
        try:
            asked = self._callback is not None and bool(self._callback(progress))
        except Exception as error:  # the others are told first
            failed = error
        late = (
            self._max_seconds is not None and time.perf_counter() - self._start > self._max_seconds
        )
        elbos = np.zeros(self._exchange.number)
        elbos[self._exchange.place] = progress.elbo
        flags = np.array([failed is not None, asked, late, self._interrupted], dtype=np.float64)
        counts, elbos = self._exchange.total([flags, elbos])
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
        for count, why in zip(counts[1:], reasons):
            if count:
                return why
        return False

    def __enter__(self) -> Endings:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:  # a second time: whoever presses it twice means it
            raise KeyboardInterrupt
        self._interrupted = True
