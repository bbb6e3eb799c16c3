"""Processes that share rows, as threads that wait for each other."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import gpflow_gam as gg
from gpflow_gam.distribute.gam import fit_share
from gpflow_gam.storage import Communicator


def run(number: int, work: Callable[[Communicator], Any], seconds: float = 120.0) -> list[Any]:
    """What ``work(communicator)`` gives on each of so many threads, or the exception it raises."""
    barrier = threading.Barrier(number, timeout=seconds)
    sent: list[Any] = [None] * number
    result: list[Any] = [None] * number

    def one(place: int) -> None:
        def reduce(vector: np.ndarray) -> np.ndarray:
            sent[place] = vector
            barrier.wait()
            assert {v.shape for v in sent} == {vector.shape}
            total = sum(sent[1:], sent[0].copy())
            barrier.wait()
            return total

        try:
            result[place] = work(Communicator(reduce, place, number))
        except BaseException as error:
            result[place] = error
            if not isinstance(error, (ValueError, TypeError, RuntimeError)):
                # not at once: others may still be on their way out of the barrier passed last
                threading.Timer(1.0, barrier.abort).start()

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    return result


def fits(make: Callable[[], gg.GAM], parts: list[Any], y: Any = None, **options: Any) -> list[Any]:
    """The GAMs of workers of which each has one of the parts, or the errors that they raise."""

    def work(communicator: Communicator) -> gg.GAM:
        part = parts[communicator.place]
        return fit_share(make(), lambda: part, y, communicator=communicator, **options)

    return run(len(parts), work)
