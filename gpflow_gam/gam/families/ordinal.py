"""Classes with an order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ... import likelihoods
from ...likelihoods.ordered import checked_ordered_link
from ...storage import RowArray
from . import encoding
from .base import Levels, Response, first, own
from .binary import predictor_of, probability
from .encoding import Observed
from .labels import LabelledFamily, known, labelled


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
        checked_ordered_link(self.link)
        if self.levels is None:
            return
        object.__setattr__(self, "levels", tuple(self.levels))
        if len(self.levels) < 2 or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"levels must be two or more different labels; got {self.levels}.")

    def labels_of(self, categories: Levels | None, ordered: bool) -> Levels | None:
        return self.levels or (categories if ordered else None)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        """
        :raises ValueError: text without an order, too.
        """
        stated = levels or self.levels
        codes, found = labelled(y, stated, name, self.name)
        text = [level for level in found if isinstance(level, str)]
        if stated is None and text:
            raise ValueError(
                f"{name} holds text ({encoding.shown(found)}), which has no order, for family "
                f"'ordinal': give one, from lowest to highest, by family=gg.families.Ordinal("
                f"levels=[...]), or make {name} pd.Categorical(..., categories=[...], "
                "ordered=True)."
            )
        return Response(codes[:, None], found)

    def likelihood(
        self, Y: Observed, levels: Levels | None = None, weights: RowArray | None = None
    ) -> likelihoods.Ordered:
        number = len(known(levels or self.levels, self.name))
        counts = encoding.counts(Y, number, weights)
        # where a constant predictor puts them, half an observation more in each class
        shares = np.cumsum(counts + 0.5)[:-1] / np.sum(counts + 0.5)
        steps = np.diff(predictor_of(self.link, shares, 1.0 - shares))
        return likelihoods.Ordered(number, np.maximum(steps, 1e-3), self.link)

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """The cutpoints, each by the labels between which it is."""
        cutpoints = np.asarray(own(likelihood, likelihoods.Ordered).cutpoints, dtype=np.float64)
        labels = known(levels or self.levels, self.name)
        return {
            f"{low} | {high}": float(c)
            for (low, high), c in zip(itertools.pairwise(labels), cutpoints)
        }

    def _cumulative(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        cutpoints = np.asarray(own(likelihood, likelihoods.Ordered).cutpoints, dtype=np.float64)
        f = first(F)[..., None]
        below = probability(self.link, cutpoints - f)
        return np.concatenate([np.zeros_like(f), below, np.ones_like(f)], axis=-1)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.diff(self._cumulative(likelihood, F), axis=-1)

    def cdf(
        self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        below = self._cumulative(likelihood, F)
        code = np.asarray(Y)[..., :1].astype(np.int64)
        lower, upper = (np.take_along_axis(below, code + i, axis=-1)[..., 0] for i in (0, 1))
        return lower, upper
