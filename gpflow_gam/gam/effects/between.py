"""What limits of a predictor allow for beside a posterior that keeps predictors apart."""

from __future__ import annotations

import weakref

import numpy as np

from ...models import IterNCGP
from ...posteriors import InducingMoments
from ..fits import FittedGAM
from ..fits.fitted import between_of
from .joint import inducing_moments

_BETWEEN: weakref.WeakKeyDictionary[FittedGAM, InducingMoments | None] = weakref.WeakKeyDictionary()


def between_moments(fit: FittedGAM) -> InducingMoments | None:
    """
    What predictors add to each other's covariances, as moments whose mean is zero.

    Kept as long as the fit. None where they add nothing or nothing is known of it: of one
    predictor, of terms with a shape, and of fits that keep no sums over rows, of which IterNCGP's
    posterior has its predictors together already. See
    :func:`gpflow_gam.optimizers.binned.cavities.between_predictors`.

    :param fit: a fitted GAM.
    """
    if fit not in _BETWEEN:
        _BETWEEN[fit] = _found(fit)
    return _BETWEEN[fit]


def _found(fit: FittedGAM) -> InducingMoments | None:
    solution, model = fit.solution, fit.model
    if solution is None or isinstance(model, IterNCGP) or fit.shaped is not None:
        return None
    covariance = between_of(solution, model)
    if covariance is None:
        return None
    fitted = inducing_moments(fit)
    return InducingMoments(
        model.kernel,
        fitted.inducing_variable,
        np.zeros_like(solution.q.mean),
        covariance,
        values=solution.values,
        roots=solution.q.roots,
    )
