"""What is amiss with a fit, said as it ends: each once, with what to do."""

from __future__ import annotations

import warnings

from ..errors import ConvergenceWarning, DispersionWarning
from .fits import FittedGAM
from .summaries import sample_dispersion

_LEVEL = 4
"""Calls up to who asked for the fit."""


def check_fit(fit: FittedGAM) -> None:
    """Warn of what a fit shows to be wrong with it."""
    _check_convergence(fit)
    _check_dispersion(fit)


def _warn(text: str, kind: type[UserWarning]) -> None:
    warnings.warn(text, kind, stacklevel=_LEVEL + 1)


def _check_convergence(fit: FittedGAM) -> None:
    result = fit.result
    if not result.converged:
        _warn(
            f"the fit did not converge: {result.message}. Estimates and their errors may be far "
            "off: fit again with a larger max_iterations or max_seconds, or fewer terms.",
            ConvergenceWarning,
        )


def _check_dispersion(fit: FittedGAM) -> None:
    found = sample_dispersion(fit)
    if found is not None and found.clear:
        _warn(
            f"the response scatters more than family {fit.spec.family.name!r} allows: Pearson "
            f"dispersion {found.value:.2f}, so that standard errors are {found.factor:.1f} times "
            f"too small; {found.remedy}.",
            DispersionWarning,
        )
