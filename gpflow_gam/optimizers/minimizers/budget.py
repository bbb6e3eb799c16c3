"""Time that may be spent, by one computation or by several that share it."""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable


class TimeBudget:
    """
    A time limit whose clock starts when it is made.

    Whatever takes ``max_seconds`` takes one of these, too: what shares it ends together.

    :param max_seconds: the limit; None for none.
    :param clock: tells seconds.
    :raises ValueError: a limit that is no positive number.
    """

    def __init__(
        self, max_seconds: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if max_seconds is not None:
            number = isinstance(max_seconds, numbers.Real) and not isinstance(max_seconds, bool)
            if not (number and max_seconds > 0.0):
                raise ValueError(
                    f"max_seconds must be positive; got {max_seconds!r}. Leave it out for no limit."
                )
        self.max_seconds = None if max_seconds is None else float(max_seconds)
        self._clock = clock
        self._start = clock()

    @classmethod
    def of(cls, value: float | TimeBudget | None) -> TimeBudget:
        """
        A budget that runs already, or one that starts now.

        :param value: seconds, None for no limit, or a budget.
        :raises ValueError: a limit that is no positive number.
        """
        return value if isinstance(value, TimeBudget) else cls(value)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return self._clock() - self._start

    @property
    def left(self) -> float:
        """Seconds until the limit, not less than zero; infinite where there is none."""
        return math.inf if self.max_seconds is None else max(self.max_seconds - self.seconds, 0.0)

    @property
    def spent(self) -> bool:
        """Whether time is up."""
        return self.max_seconds is not None and self.seconds > self.max_seconds

    def __str__(self) -> str:
        return "no limit" if self.max_seconds is None else f"{self.max_seconds:g} s"
