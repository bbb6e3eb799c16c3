"""How far the rounds of a fixed-point iteration go."""

from __future__ import annotations

import dataclasses

import numpy as np

_SLOW = 0.4
"""Factor by which a round shortens what is left, from which on it pays to go beyond its target."""
_BEYOND = 4.0
"""Furthest, against the way to the target."""


@dataclasses.dataclass
class Pace:
    """
    How far beyond its target a round should go.

    Near the fixed point what is left shrinks by the same factor each round, where components can
    stand in for each other by one that is near to one. Then every other round goes on to where a
    geometric series ends (Aitken); the ELBO decides whether that is kept.
    """

    last: float = 0.0
    """What the last round gained that went to its target, if the one before it did too."""
    rate: float = 0.0
    """Factor by which a round shortens what is left."""
    asked: float = 1.0
    """How far the last round was to go."""
    furthest: float = _BEYOND

    def note(self, gain: float, share: float) -> None:
        """
        What a round brought.

        :param gain: in the ELBO, which goes with the square of what is left.
        :param share: how far it went.
        """
        if share == 1.0 and self.last > 0.0 and gain > 0.0:
            self.rate = min(float(np.sqrt(gain / self.last)), 1.0)
        if self.asked > share:  # what is left does not all go the same way
            self.furthest = 1.0 + 0.5 * (self.furthest - 1.0)
        self.last = gain if share == 1.0 and self.asked == 1.0 else 0.0

    def share(self) -> float:
        """How far the next round should go: one to its target, or further."""
        self.asked = 1.0
        if self.last > 0.0 and self.rate >= _SLOW and self.furthest > 1.2:
            self.asked = min(1.0 / max(1.0 - self.rate, 1e-6), self.furthest)
        return self.asked
