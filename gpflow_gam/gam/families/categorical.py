"""Classes without an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.special import log_softmax, softmax

from ... import likelihoods
from ...statistics.stored import RowArray
from . import encoding
from .base import Family, Levels, Response
from .encoding import Observed


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


def draw(p: AnyNDArray, rng: np.random.Generator) -> AnyNDArray:
    """A code [...] for each row of probabilities [..., C]."""
    above = np.cumsum(p, axis=-1)[..., :-1] < rng.uniform(size=(*p.shape[:-1], 1))
    return np.sum(above, axis=-1)


@dataclass(frozen=True)
class Categorical(Family):
    """
    Classes, each with a predictor of its own, behind a softmax.

    A category that a pandas categorical declares and no row has is a class that may yet come, and
    keeps next to no probability. ``Series.cat.remove_unused_categories`` takes it out beforehand.
    """

    name: ClassVar[str] = "categorical"
    labelled: ClassVar[bool] = True
    discrete: ClassVar[bool] = True
    modelled: ClassVar[tuple[str, ...]] = ()

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        codes, levels = labelled(y, levels, name, self.name)
        return Response(codes[:, None], levels)

    def for_parameters(self, names: Sequence[str]) -> tuple[Family, tuple[str, ...]]:
        return self, tuple(names)  # labels, which data tell

    def parameter_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return self.predictor_names(levels)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> likelihoods.FixedSoftmax:
        return likelihoods.FixedSoftmax(self.num_predictors(levels))

    def num_predictors(self, levels: Levels | None = None) -> int:
        return len(known(levels, self.name))

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return tuple(str(level) for level in known(levels, self.name))

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.asarray(softmax(np.asarray(F, dtype=np.float64), axis=-1))

    def log_density(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        logs = log_softmax(np.asarray(F, dtype=np.float64), axis=-1)
        code = np.broadcast_to(np.asarray(Y)[..., :1].astype(np.int64), (*logs.shape[:-1], 1))
        return np.take_along_axis(logs, code, axis=-1)[..., 0]

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return -2.0 * self.log_density(likelihood, Y, F)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> None:
        return None

    def sample(
        self,
        likelihood: Likelihood,
        F: AnyNDArray,
        rng: np.random.Generator,
        trials: AnyNDArray | None = None,
    ) -> AnyNDArray:
        return draw(self.mean(likelihood, F), rng)
