"""What it is that a fit predicts, so that two fits are compared only where it is the same."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from ..fits import FittedGAM
from ..terms import Column

_BLOCK = 2**17
"""Rows at a time."""


@dataclasses.dataclass(frozen=True)
class Observed:
    """
    What was predicted.

    :param response: its column's name.
    :param number: N.
    :param values: a digest of the responses, in their order.
    :param weights: one of how often rows count.
    :param discrete: whether responses have probabilities, and not densities.
    :param folds: a digest of what is left out together; empty for one row at a time.
    """

    response: Column
    number: int
    values: str
    weights: str
    discrete: bool
    folds: str = ""


def observed_of(fit: FittedGAM) -> Observed:
    """
    What a fit predicts.

    :param fit: whose data are held.
    """
    spec = fit.spec
    Y = fit.data.responses
    values = hashlib.blake2b(repr(spec.levels).encode() if spec.levels else b"", digest_size=16)
    for start in range(0, len(Y), _BLOCK):
        block = np.asarray(Y[start : start + _BLOCK], dtype=np.float64)
        values.update(np.ascontiguousarray(block + 0.0).tobytes())  # of two zeros one
    weights = hashlib.blake2b(digest_size=16)
    for _, part in fit.data.weights():
        weights.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
    return Observed(
        spec.response, fit.number, values.hexdigest(), weights.hexdigest(), spec.family.discrete
    )


def check_same(names: list[str], all_observed: list[Observed]) -> None:
    """
    :raises ValueError: the fits do not predict the same, naming the first two that differ, and how.
    """
    first = all_observed[0]
    for name, other in zip(names[1:], all_observed[1:]):
        pair = f"compare: {names[0]!r} and {name!r}"
        if first.number != other.number:
            raise ValueError(
                f"{pair} were fitted to {first.number} and {other.number} rows; fit both to the "
                "same rows (such as those complete in the columns of both)."
            )
        if first.discrete != other.discrete:
            which = name if first.discrete else names[0]
            raise ValueError(
                f"{pair}: the family of {which!r} has densities of responses and the other one "
                "probabilities, which have no unit in common; compare families of one kind."
            )
        if first.values != other.values:
            raise ValueError(
                f"{pair} were fitted to different responses ({first.response!r} and "
                f"{other.response!r}), or to rows in another order; densities of transformed or "
                "other responses cannot be compared. Fit both to the same column of the same rows."
            )
        if first.weights != other.weights:
            raise ValueError(f"{pair} were fitted with different weights; give both the same.")
        if first.folds != other.folds:
            raise ValueError(
                f"{pair}: different rows were left out together; call loo with the same groups."
            )
