"""Pearson's dispersion, and quasi-likelihoods fitted at it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...likelihoods import Quasi
from ...likelihoods.base import unwrapped
from ..fits import FittedGAM
from ..fits.data import Discrepancies, Pearson
from ..fits.fit import refit
from .components import effective_dof

_ROWS = 10_000
"""Rows at which a fit is looked at as it ends: they settle the dispersion to a few hundredths."""
_LARGE = 1.2
"""Dispersion from which standard errors, too small by its root, are worth a word."""
_DEVIATIONS = 4.0
"""Standard deviations above one that are more than chance."""
_ROUNDS = 8
_SETTLED = 0.01
"""Change of the logarithm of the dispersion below which calibration ends."""
_ENDS = 1e-6, 1e6


@dataclasses.dataclass(frozen=True)
class Dispersion:
    """Pearson's dispersion: by how much responses vary more than their family says."""

    value: float
    """
    ``sum_n w_n (y_n - mu_n)^2 / V(mu_n)`` over the residual degrees of freedom (McCullagh & Nelder
    1989, section 4.5.2), about 1 where the family holds.
    """
    clear: bool
    """True if it is clearly above one, in a family that does not learn it."""
    remedy: str

    @property
    def factor(self) -> float:
        """Factor by which standard errors are too small."""
        return float(np.sqrt(self.value))


def dispersion(fit: FittedGAM, result: Discrepancies | None = None) -> Dispersion | None:
    """
    The dispersion of a fit, over all rows.

    None where the variance is no function of the mean, where each row is one trial, and where the
    dispersion is a learnt parameter.
    """
    return _judged(fit, (result or fit.discrepancies()).pearson, 1.0)


def sample_dispersion(fit: FittedGAM) -> Dispersion | None:
    """The dispersion over at most 10 000 rows."""
    return _judged(fit, fit.sample_pearson(_ROWS), min(_ROWS, len(fit.X)) / fit.number)


def _judged(fit: FittedGAM, pearson: Pearson | None, share: float) -> Dispersion | None:
    if pearson is None or pearson.number == 0.0 or fit.spec.family.calibrated:
        return None
    edf = sum(float(effective_dof(fit, c).sum()) for c in fit.spec.components)
    dof = pearson.number - share * edf
    if dof <= 0.0:
        return None
    value = pearson.statistic / dof
    sd = np.sqrt(pearson.variance * dof / pearson.number)
    remedy = fit.spec.family.overdispersed
    chance = pearson.statistic - dof <= _DEVIATIONS * sd
    return Dispersion(value, bool(remedy) and value > _LARGE and not chance, remedy)


def calibrated(fit: FittedGAM, seed: int, options: dict[str, Any]) -> FittedGAM:
    """
    A quasi-likelihood's fit at the dispersion of its residuals; other fits as they are.

    Pearson's statistic over residual degrees of freedom (McCullagh & Nelder 1989, section 4.5.2;
    Fletcher 2012). The dispersion changes smoothness, and that the residuals: fits alternate.
    """
    if not fit.spec.family.calibrated:
        return fit
    if fit.data.shared:
        raise ValueError(
            f"family {fit.spec.family.name!r} takes several fits to the same rows, which no shares "
            "of processes are; fit in one process, or take another family."
        )
    kept = ("max_iterations", "tolerance", "max_seconds", "callback", "progress", "on_interrupt")
    settings = {name: value for name, value in options.items() if name in kept}
    time = settings.pop("max_seconds", None)
    for _ in range(_ROUNDS):
        likelihood = unwrapped(fit.trained.likelihood)
        assert isinstance(likelihood, Quasi)
        pearson = fit.discrepancies().pearson
        assert pearson is not None
        edf = sum(float(effective_dof(fit, c)[:1].sum()) for c in fit.spec.components)
        dof = pearson.number - edf
        spent = fit.result.seconds
        late = time is not None and spent >= time
        if dof <= 0.0 or not pearson.variance > 0.0 or late or not fit.result.converged:
            break
        dispersion = float(likelihood.dispersion.numpy())
        ratio = pearson.statistic / pearson.variance * pearson.number / dof
        if not np.isfinite(ratio) or ratio <= 0.0 or abs(np.log(ratio)) < _SETTLED:
            break
        likelihood.dispersion.assign(np.clip(dispersion * ratio, *_ENDS))
        if time is not None:
            settings["max_seconds"] = time - spent
        fit = refit(dataclasses.replace(fit), seed, settings)
        result = dataclasses.replace(fit.result, seconds=spent + fit.result.seconds)
        fit = dataclasses.replace(fit, result=result)
    return fit
