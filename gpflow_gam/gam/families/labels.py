"""Responses that are one of several labels, with an order or without."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from numpy.random import Generator
from scipy.special import log_softmax

from ... import likelihoods
from ...likelihoods.links import ORDERED_LINKS, checked_link, predictor_of
from . import encoding
from .base import Family, Levels, MaybeArray, Pair, Response, base_of, first
from .binary import probability
from .encoding import Observed


class LabelledFamily(Family):
    """A family whose Y [N, 1] holds codes of labels, and whose mean is their probabilities."""

    labelled: ClassVar[bool] = True
    discrete: ClassVar[bool] = True

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        """Codes of a column and their labels, learned where none are given."""
        y = encoding.values(y, name, self.name)
        if y.dtype.kind == "f":
            y = encoding.numbers(y, name, self.name)
        if levels is None:
            levels = encoding.learned_levels(y, name, self.name)
        if len(levels) < 2:
            raise ValueError(
                f"{name} must hold at least two labels for family {self.name!r}; got only "
                f"{encoding.shown(levels)}."
            )
        return Response(encoding.codes(y, levels, name, self.name)[:, None], levels)

    def _known(self, levels: Levels | None) -> Levels:
        if levels is None:
            raise ValueError(
                f"levels must be given for family {self.name!r}: its labels, in order."
            )
        return levels

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        return -2.0 * self.log_density(likelihood, Y, F)

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        p = self.mean(likelihood, F)
        above = np.cumsum(p, axis=-1)[..., :-1] < rng.uniform(size=(*p.shape[:-1], 1))
        return np.sum(above, axis=-1)


@dataclass(frozen=True)
class Categorical(LabelledFamily):
    """
    Classes, each with a predictor of its own, behind a softmax.

    A category that a pandas categorical declares and no row has is a class that may yet come, and
    keeps next to no probability. ``Series.cat.remove_unused_categories`` takes it out beforehand.
    """

    name: ClassVar[str] = "categorical"
    modelled: ClassVar[tuple[str, ...]] = ()

    def for_parameters(self, names: Sequence[str]) -> tuple[Family, tuple[str, ...]]:
        return self, tuple(names)  # labels, which only data have

    def parameter_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return self.predictor_names(levels)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return likelihoods.FixedSoftmax(self.num_predictors(levels))

    def num_predictors(self, levels: Levels | None = None) -> int:
        return len(self._known(levels))

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return tuple(str(level) for level in self._known(levels))

    def log_density(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        logs = log_softmax(np.asarray(F, dtype=np.float64), axis=-1)
        code = np.broadcast_to(np.asarray(Y)[..., :1].astype(np.int64), (*logs.shape[:-1], 1))
        return np.take_along_axis(logs, code, axis=-1)[..., 0]

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> None:
        return None


@dataclass(frozen=True)
class Ordinal(LabelledFamily):
    """
    Ordered classes, ``P(y <= k) = G(c_k - f)``; the cutpoints are learned, the first is 0.

    :param levels: the labels from lowest to highest. By default those of an ordered categorical
        column (of pandas; an Enum of polars; an ordered dictionary of Arrow) in its order, and
        numbers in theirs. Text has no order: it needs one of the two. Levels given here also hold
        for a column that is ordered otherwise.
    :param link: of which G is the inverse: "probit", "logit" (proportional odds), "cloglog"
        (proportional hazards) or "cauchit".
    :raises ValueError: fewer than two labels, one twice, or another link.
    """

    name: ClassVar[str] = "ordinal"
    own_constant: ClassVar[str] = "cutpoints"
    levels: Levels | None = None
    link: str = "probit"

    def __post_init__(self) -> None:
        checked_link(self.link, ORDERED_LINKS)
        if self.levels is None:
            return
        object.__setattr__(self, "levels", tuple(self.levels))
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels must be two or more different labels; got {self.levels}.")

    def labels_of(self, categories: Levels | None, ordered: bool) -> Levels | None:
        return self.levels or (categories if ordered else None)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        stated = levels or self.levels
        response = super()._encode(y, stated, name)
        labels = response.levels or ()
        if stated is None and any(isinstance(level, str) for level in labels):
            raise ValueError(
                f"{name} holds text ({encoding.shown(labels)}), which has no order, for family "
                f"'ordinal': give one, from lowest to highest, by family=gg.families.Ordinal("
                f"levels=[...]), or make {name} pd.Categorical(..., categories=[...], "
                "ordered=True)."
            )
        return response

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        number = len(self._known(levels or self.levels))
        counts = y.occurring(number)
        # where a constant predictor puts them, half an observation more in each class
        shares = np.cumsum(counts + 0.5)[:-1] / np.sum(counts + 0.5)
        steps = np.diff(predictor_of(self.link, shares, 1.0 - shares))
        return likelihoods.Ordered(number, np.maximum(steps, 1e-3), self.link)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """Cutpoints of a ``likelihood``, each by the ``levels`` between which it is."""
        cutpoints = np.asarray(base_of(likelihood).cutpoints, dtype=np.float64)
        pairs = itertools.pairwise(self._known(levels or self.levels))
        return {f"{low} | {high}": float(c) for (low, high), c in zip(pairs, cutpoints)}

    def _cumulative(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        cutpoints = np.asarray(base_of(likelihood).cutpoints, dtype=np.float64)
        f = first(F)[..., None]
        below = probability(self.link, cutpoints - f)
        return np.concatenate([np.zeros_like(f), below, np.ones_like(f)], axis=-1)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.diff(self._cumulative(likelihood, F), axis=-1)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair:
        below = self._cumulative(likelihood, F)
        code = np.asarray(Y)[..., :1].astype(np.int64)
        lower, upper = (np.take_along_axis(below, code + i, axis=-1)[..., 0] for i in (0, 1))
        return lower, upper
