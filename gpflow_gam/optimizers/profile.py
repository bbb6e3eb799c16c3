"""How far one hyperparameter may be from its optimum while all others follow it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import brentq

from ..statistics import NotPositiveDefinite
from .minimizers import descend
from .minimizers.descent import Loss

_FARTHEST = 32.0
"""Distance, in (logarithmic) coordinates, at which a limit is last looked for."""
_MAX_STEPS, _TOLERANCE = 30, 0.1
"""Of the search for the others, in iterations and nats of which it is a hundredth that counts."""
_ACCURACY = 0.003
"""Of a limit's distance."""


def profile_limits(
    loss: Loss,
    optimum: AnyNDArray,
    place: int,
    z: float,
    metric: Callable[[AnyNDArray], AnyNDArray | None],
) -> tuple[float, float]:
    """
    Limits of one coordinate by the profile of a loss, which is minimised over all others.

    They are where it has risen by ``z^2 / 2``, as minus a normal log density has at ``z`` standard
    deviations (Bates, Mächler, Bolker & Walker 2015); infinite where it never has.

    :param loss: minus a log density at coordinates, and its gradient.
    :param optimum: where it is least, [K].
    :param place: of the coordinate.
    :param z: how many standard deviations.
    :param metric: about the loss's second derivatives, positive definite, [K, K]; None where that
        is not known.
    """
    profile = _Profile(loss, optimum, place, metric)
    return optimum[place] - profile.distance(-1.0, z), optimum[place] + profile.distance(1.0, z)


class _Profile:
    """One coordinate's profile; arguments as above."""

    def __init__(
        self,
        loss: Loss,
        optimum: AnyNDArray,
        place: int,
        metric: Callable[[AnyNDArray], AnyNDArray | None],
    ) -> None:
        self._loss, self._optimum, self._place, self._metric = loss, optimum, place, metric
        self._others = np.arange(len(optimum)) != place
        self._least = loss(optimum)[0]
        around = metric(optimum)
        along = np.eye(len(optimum))[place]
        if around is not None:
            along = np.linalg.solve(around, along)
        self._sd = float(np.sqrt(along[place]))
        self._direction: AnyNDArray = along / along[place]

    def distance(self, sign: float, z: float) -> float:
        """How far the limit is on one side."""
        known = {0.0: (-z, self._optimum)}

        def excess(distance: float) -> float:
            """The root of twice the rise, nearly linear in the distance, less ``z``."""
            if distance in known:
                return known[distance][0]
            # lengthscales may have several optima: on from nearer the optimum, never back
            inner = max(d for d in known if d < distance)
            at = known[inner][1]
            try:
                at, value = self._least_at(at + sign * (distance - inner) * self._direction)
                root = np.sqrt(2.0 * max(value - self._least, 0.0))
            except NotPositiveDefinite:  # as far as numbers go
                root = np.inf
            known[distance] = min(float(root), 2.0 * z) - z, at
            return known[distance][0]

        near, far = 0.0, min(z * self._sd, 2.0)
        while excess(far) < 0.0:
            if far >= _FARTHEST:
                return np.inf
            expected = 1.1 * far * z / max(excess(far) + z, 1e-3 * z)
            near, far = far, min(max(1.5 * far, min(expected, 4.0 * far)), _FARTHEST)
        return float(brentq(excess, near, far, xtol=_ACCURACY * far))

    def _least_at(self, start: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The least of the loss where the coordinate is what it is in ``start``."""
        others = self._others
        if not others.any():
            return start, self._loss(start)[0]

        def whole(part: AnyNDArray) -> AnyNDArray:
            u = start.copy()
            u[others] = part
            return u

        def loss(part: AnyNDArray) -> tuple[float, AnyNDArray]:
            value, gradient = self._loss(whole(part))
            return value, gradient[others]

        def metric(part: AnyNDArray) -> AnyNDArray | None:
            found = self._metric(whole(part))
            return None if found is None else found[np.ix_(others, others)]

        best = whole(descend(loss, start[others], _MAX_STEPS, _TOLERANCE, None, metric=metric)[0])
        return best, self._loss(best)[0]
