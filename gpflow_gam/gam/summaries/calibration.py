"""Dispersions of quasi-likelihoods: fits that go on until theirs is that of the residuals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...likelihoods import Quasi, unwrapped
from ..fits import FittedGAM, SharedFit, fit_again
from .shares import effective_dof

_ROUNDS = 8
_SETTLED = 0.01
"""Change of the logarithm of the dispersion after which it stays: of standard errors half of it."""
_ENDS = 1e-6, 1e6


def calibrated(fit: FittedGAM, seed: int, options: dict[str, Any]) -> FittedGAM:
    """
    The fit at the dispersion that its residuals have; a fit of another family as it is.

    What residuals scatter by over what they would by at a dispersion of one, on residual degrees
    of freedom (McCullagh & Nelder 1989, section 4.5.2; Fletcher 2012). It moves smoothness, and
    that residuals, so fits take turns with it.

    :param fit: a fitted GAM.
    :param seed: of minibatches.
    :param options: of the fit.
    :raises ValueError: rows that other processes hold.
    """
    if not fit.spec.family.calibrated:
        return fit
    if isinstance(fit, SharedFit):
        raise ValueError(
            f"family {fit.spec.family.name!r} takes several fits to the same rows, which no shares "
            "of processes are; fit in one process, or take another family."
        )
    kept = ("max_iterations", "tolerance", "max_seconds", "callback", "progress", "on_interrupt")
    own = {name: value for name, value in options.items() if name in kept}
    time = own.pop("max_seconds", None)
    for _ in range(_ROUNDS):
        likelihood = unwrapped(fit.trained.likelihood)
        assert isinstance(likelihood, Quasi)
        found = fit.discrepancies().pearson
        assert found is not None
        edf = sum(float(effective_dof(fit, c)[:1].sum()) for c in fit.spec.components)
        left = found.number - edf
        spent = fit.result.seconds
        late = time is not None and spent >= time
        if left <= 0.0 or not found.variance > 0.0 or late or not fit.result.converged:
            break
        dispersion = float(likelihood.dispersion.numpy())
        ratio = found.statistic / found.variance * found.number / left
        if not np.isfinite(ratio) or ratio <= 0.0 or abs(np.log(ratio)) < _SETTLED:
            break
        likelihood.dispersion.assign(np.clip(dispersion * ratio, *_ENDS))
        if time is not None:
            own["max_seconds"] = time - spent
        fit = fit_again(dataclasses.replace(fit, model=fit.trained), seed, own)
        result = dataclasses.replace(fit.result, seconds=spent + fit.result.seconds)
        fit = dataclasses.replace(fit, model=fit.trained, result=result)
    return fit
