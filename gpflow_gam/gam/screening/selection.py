"""Choosing interactions one by one, each beside those chosen before."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Sequence

from gpflow.base import AnyNDArray

from .expansion import Expansion
from .gain import evidence_gain

Columns = tuple[int, ...]


@dataclasses.dataclass
class Candidate:
    """
    An interaction and what it gains.

    :param columns: its columns, in ascending order.
    :param gain: log evidence beside what was there, in nats.
    :param variance: of its kernel at that gain.
    :param partial_gain: log evidence beside those chosen before as well; None where it was never
        looked at again.
    :param chosen: whether it was chosen.
    """

    columns: Columns
    gain: float
    variance: float
    partial_gain: float | None = None
    chosen: bool = False


def choose(
    expansion: Expansion,
    candidates: Sequence[Candidate],
    features: Callable[[Columns], AnyNDArray],
    limit: int,
    threshold: float,
) -> Expansion:
    """
    Choose the candidate that gains most, then the one that gains most beside it, and so on.

    What one gains shrinks as others that resemble it are chosen, so that a gain found earlier
    serves as a bound, and only the candidate on top is looked at again (Minoux 1978). That is a
    heuristic where candidates help each other.

    :param expansion: the model without them.
    :param candidates: scored; they are marked in place.
    :param features: those of a candidate at the rows of ``expansion``, [N, R].
    :param limit: how many to choose at most.
    :param threshold: the gain that is too little, in nats.
    :return: the model with those that were chosen.
    """
    queue = [(-c.gain, i) for i, c in enumerate(candidates) if c.gain > threshold]
    heapq.heapify(queue)
    number = 0
    while queue and number < limit:
        _, index = heapq.heappop(queue)
        candidate = candidates[index]
        B = features(candidate.columns)
        candidate.partial_gain, variance = evidence_gain(*expansion.project(B))
        if candidate.partial_gain <= threshold:
            continue
        if queue and candidate.partial_gain < -queue[0][0]:
            heapq.heappush(queue, (-candidate.partial_gain, index))
            continue
        candidate.chosen = True
        number += 1
        expansion = expansion.extended(B, variance)
    return expansion
