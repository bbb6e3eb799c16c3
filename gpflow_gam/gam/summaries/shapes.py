"""How the data speak of the shapes that terms were asked to have."""

from __future__ import annotations

from ..components import Component
from ..fits import FittedGAM

UNLIKELY = 0.002
"""Probability below which an estimate is too far from its shape to be so by chance."""


def against_shapes(fit: FittedGAM) -> list[tuple[Component, float]]:
    """
    Components whose data speak against their shape, and how often noise alone would.

    See :func:`gpflow_gam.posteriors.shape_tail`.

    :param fit: a fitted GAM.
    """
    if fit.shaped is None:
        return []
    found = []
    for component in fit.spec.components:
        if component.shape:
            own = component.predictors_of(fit.num_predictors)
            p = min(fit.shape_tail(component.name, i) for i in own)
            if p < UNLIKELY:
                found.append((component, p))
    return found
