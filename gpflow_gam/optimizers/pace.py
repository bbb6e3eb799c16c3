"""How far the rounds of a fixed-point iteration go."""

from __future__ import annotations

import numpy as np

_SLOW = 0.4
"""Factor by which a round shortens what is left, from which on it pays to go beyond its target."""
_BEYOND = 4.0
"""Furthest, against the way to the target."""


class Pace:
    """
    How far beyond its target a round should go.

    Near the fixed point what is left shrinks by the same factor each round, where components can
    stand in for each other by one that is near to one. Then every other round goes on to where a
    geometric series ends (Aitken); the ELBO decides whether that is kept.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._rate = 0.0
        self._asked = 1.0
        self._furthest = _BEYOND

    def note(self, gain: float, share: float) -> None:
        """
        What a round brought.

        :param gain: in the ELBO, which goes with the square of what is left.
        :param share: how far it went.
        """
        if share == 1.0 and self._last > 0.0 and gain > 0.0:
            self._rate = min(float(np.sqrt(gain / self._last)), 1.0)
        if self._asked > share:  # what is left does not all go the same way
            self._furthest = 1.0 + 0.5 * (self._furthest - 1.0)
        self._last = gain if share == 1.0 and self._asked == 1.0 else 0.0

    def share(self) -> float:
        """How far the next round should go: one to its target, or further."""
        self._asked = 1.0
        if self._last > 0.0 and self._rate >= _SLOW and self._furthest > 1.2:
            self._asked = min(1.0 / max(1.0 - self._rate, 1e-6), self._furthest)
        return self._asked
