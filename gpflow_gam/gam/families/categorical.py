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
from ...storage import RowArray
from .base import Family, Levels, Response
from .encoding import Observed
from .labels import LabelledFamily, known, labelled


@dataclass(frozen=True)
class Categorical(LabelledFamily):
    """
    Classes, each with a predictor of its own, behind a softmax.

    A category that a pandas categorical declares and no row has is a class that may yet come, and
    keeps next to no probability. ``Series.cat.remove_unused_categories`` takes it out beforehand.
    """

    name: ClassVar[str] = "categorical"
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

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> None:
        return None
