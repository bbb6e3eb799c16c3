"""Families of responses that are one of several labels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from . import encoding
from .base import Family, Levels


class LabelledFamily(Family):
    """A family whose Y [N, 1] holds codes of labels, and whose mean is their probabilities."""

    labelled: ClassVar[bool] = True
    discrete: ClassVar[bool] = True

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return -2.0 * self.log_density(likelihood, Y, F)

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        p = self.mean(likelihood, F)
        above = np.cumsum(p, axis=-1)[..., :-1] < rng.uniform(size=(*p.shape[:-1], 1))
        return np.sum(above, axis=-1)


def labelled(
    y: AnyNDArray, levels: Levels | None, name: str, family: str
) -> tuple[AnyNDArray, Levels]:
    """
    Codes [N] of a column and the labels they stand for, learned where none are given.

    :raises ValueError: fewer than two labels, a label that is not known, or missing values.
    """
    y = encoding.values(y, name, family)
    if y.dtype.kind == "f":
        y = encoding.numbers(y, name, family)
    if levels is None:
        levels = encoding.learned_levels(y, name, family)
    if len(levels) < 2:
        raise ValueError(
            f"{name} must hold at least two labels for family {family!r}; got only "
            f"{encoding.shown(levels)}."
        )
    return encoding.codes(y, levels, name, family), levels


def known(levels: Levels | None, family: str) -> Levels:
    """
    The labels, once they are there.

    :raises ValueError: they are not.
    """
    if levels is None:
        raise ValueError(f"levels must be given for family {family!r}: its labels, in order.")
    return levels
