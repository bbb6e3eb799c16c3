"""Families of which the dispersion, too, may have a predictor."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...storage import RowArray
from .base import Family, Levels, number, own
from .linked import measured, size_of


@dataclasses.dataclass(frozen=True)
class Dispersed(Family):
    """
    A family of a mean and a dispersion.

    :param varying: whether the logarithm of the dispersion has a predictor, the second, instead of
        being a number that is learnt.
    """

    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    dispersion: ClassVar[str] = "dispersion"
    """What the second predictor is the logarithm of."""
    varying: bool = dataclasses.field(default=False, kw_only=True)

    def of_all(self) -> Family:
        return dataclasses.replace(self, varying=True)

    def num_predictors(self, levels: Levels | None = None) -> int:
        return 2 if self.varying else 1

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return (self.modelled[0], f"log {self.dispersion}") if self.varying else ("",)

    def axes(self, response: str) -> tuple[str, ...]:
        if not self.varying:
            return ()
        return f"{self._measured} of {response}", f"log {self.dispersion} of {response}"

    @property
    def _measured(self) -> str:
        """What the first predictor measures."""
        link = getattr(self, "link", "log" if self.log_link else "identity")
        return measured(link, self.modelled[0])

    @property
    def takes_offset(self) -> bool:  # type: ignore[override]
        return not self.varying or self.own_link

    def scale(self, Y: RowArray, weights: RowArray | None = None) -> float:
        return 1.0 if self.varying else super().scale(Y, weights)

    def units(self, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
        if not self.varying:
            return super().units(likelihood)
        return np.array([size_of(likelihood), 1.0]), np.zeros(2)

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """A constant mean, with the dispersion that was fitted."""
        if not self.varying:
            return null
        return np.stack([np.broadcast_to(null[..., 0], len(F)), F[..., 1]], axis=-1)


@dataclasses.dataclass(frozen=True)
class LocationScale(Dispersed):
    """
    A family of a location and a scale.

    Where the scale has a predictor of its own the model measures both in the likelihood's ``unit``,
    as that of :class:`Heteroskedastic` does.
    """

    modelled: ClassVar[tuple[str, ...]] = ("location", "scale")
    dispersion: ClassVar[str] = "scale"
    kind: ClassVar[Any]
    """Its likelihood."""
    varying_kind: ClassVar[Any]
    """Where the scale has a predictor."""

    @property
    def takes_offset(self) -> bool:  # type: ignore[override]
        return not self.varying

    def _own(self, likelihood: Likelihood) -> Any:
        return own(likelihood, self.varying_kind if self.varying else self.kind)

    def _unit(self, likelihood: Likelihood) -> float:
        """In which the model measures its predictors."""
        return number(self._own(likelihood).unit) if self.varying else 1.0

    def units(self, likelihood: Likelihood) -> tuple[AnyNDArray, AnyNDArray]:
        if not self.varying:
            return np.ones(1), np.zeros(1)
        unit = self._unit(likelihood)
        size = unit if self.own_link else size_of(likelihood)
        return np.array([size, 1.0]), np.array([0.0, np.log(unit)])

    def _scale(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        """In the response's unit: a number, or [...] where it varies."""
        if not self.varying:
            return number(self._own(likelihood).scale)
        return self._unit(likelihood) * np.exp(np.asarray(F, dtype=np.float64)[..., 1])
