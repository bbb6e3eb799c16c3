"""The inducing moments of a fitted GAM, kept as long as the fit is."""

from __future__ import annotations

import weakref

from ...models import IterNCGP
from ...posteriors import InducingMoments
from ..components import build_inducing
from ..fits import FittedGAM

_MOMENTS: weakref.WeakKeyDictionary[FittedGAM, InducingMoments] = weakref.WeakKeyDictionary()


def inducing_moments(fit: FittedGAM) -> InducingMoments:
    """
    The moments of a fit at its hyperparameters.

    :param fit: a fitted GAM.
    """
    if fit not in _MOMENTS:
        known = fit.free_moments if fit.shaped is None else fit.shaped
        if known is not None:
            return known
        # not the fit itself: what is kept for as long as the fit is must not keep it
        inducing = None
        if isinstance(fit.model, IterNCGP):
            kernel = fit.model.kernel
            inducing = build_inducing(fit.spec.components, kernel, fit.spec.encoder.width)
        _MOMENTS[fit] = InducingMoments.of(fit.posterior, inducing)
    return _MOMENTS[fit]
