"""The inducing moments of a fitted GAM, kept as long as the fit is."""

from __future__ import annotations

import weakref

from ...models import IterNCGP
from ...posteriors import InducingMoments
from ..components import build_inducing
from ..fits import FittedGAM

_MOMENTS: weakref.WeakKeyDictionary[FittedGAM, InducingMoments] = weakref.WeakKeyDictionary()


def inducing_moments(fit: FittedGAM) -> InducingMoments:
    """The moments of a fit at its hyperparameters."""
    if fit not in _MOMENTS:
        solution = fit.solution
        if solution is not None:
            q = solution.q
            _MOMENTS[fit] = InducingMoments(
                fit.model.kernel,
                fit.model.inducing_variable,
                q.mean,
                q.covariance,
                values=solution.values,
                roots=q.roots,
                truncation=solution.truncation,
            )
            return _MOMENTS[fit]
        # not the fit itself: what is kept for as long as the fit is must not keep it
        inducing = None
        if isinstance(fit.model, IterNCGP):
            kernel = fit.model.kernel
            inducing = build_inducing(fit.spec.components, kernel, fit.spec.encoder.width)
        _MOMENTS[fit] = InducingMoments.of(fit.posterior, inducing)
    return _MOMENTS[fit]
