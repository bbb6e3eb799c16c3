"""The inducing moments of a fitted GAM, kept as long as the fit is."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import tensorflow as tf
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import deepcopy

from ..components import build_inducing
from ..covariances import InducingBlocks
from ..fits import FittedGAM
from ..models import IterNCGP
from ..posteriors import InducingMoments
from ..variational import WhitenedGaussian

Whitened = Callable[[list[tf.Tensor]], WhitenedGaussian]
"""From the Cholesky factors of K_c(Z_c, Z_c) to q(V)."""


def frozen_moments(fit: FittedGAM, whitened: Whitened | None) -> InducingMoments:
    """
    The moments at the hyperparameters that the model has now, which are about to change.

    :param whitened: what gives q(V); the model's own by default.
    """
    model = fit.model
    kernel = deepcopy(model.kernel)
    blocks = InducingBlocks(model.inducing_variable, kernel)
    q = (
        model.posterior(PrecomputeCacheType.NOCACHE).q()
        if whitened is None
        else whitened(blocks.cholesky())
    )
    return InducingMoments.of_gaussian(kernel, model.inducing_variable, q)


_MOMENTS: weakref.WeakKeyDictionary[FittedGAM, InducingMoments] = weakref.WeakKeyDictionary()


def inducing_moments(fit: FittedGAM) -> InducingMoments:
    """The moments of a fit at its hyperparameters."""
    if fit not in _MOMENTS:
        # not the fit itself: what is kept for as long as the fit is must not keep it
        inducing = None
        if isinstance(fit.model, IterNCGP):
            kernel = fit.model.kernel
            inducing = build_inducing(fit.spec.components, kernel, fit.X.shape[1])
        _MOMENTS[fit] = InducingMoments.of(fit.posterior, inducing)
    return _MOMENTS[fit]
