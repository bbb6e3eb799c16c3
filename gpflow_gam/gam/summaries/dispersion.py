"""Whether responses scatter as their family says, and quasi-likelihoods that follow them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...likelihoods import Quasi, unwrapped
from ..fits import FittedGAM, SharedFit, fit_again
from ..fits.deviance import Discrepancies, Pearson
from .components import effective_dof

_ROWS = 10_000
"""Rows at which a fit is looked at as it ends: they settle the dispersion to a few hundredths."""
_LARGE = 1.2
"""Dispersion from which standard errors, too small by its root, are worth a word."""
_DEVIATIONS = 4.0
"""How many standard deviations above one are no chance."""


@dataclasses.dataclass(frozen=True)
class Dispersion:
    """
    Pearson's dispersion: by how much responses vary more than their family says.

    :param value: ``sum_n w_n (y_n - mu_n)^2 / V(mu_n)`` over the residual degrees of freedom
        (McCullagh & Nelder 1989, section 4.5.2), about 1 where the family holds.
    :param clear: whether it is above one by more than chance and by enough to matter, in a family
        that does not learn it.
    :param remedy: what to do then.
    """

    value: float
    clear: bool
    remedy: str

    @property
    def factor(self) -> float:
        """By how much standard errors are too small."""
        return float(np.sqrt(self.value))


def dispersion(fit: FittedGAM, found: Discrepancies | None = None) -> Dispersion | None:
    """
    The dispersion of a fit, over all rows.

    None where the family has none to speak of: its variance is no function of its mean, one trial
    a row shows nothing, or it is a parameter that was found.
    """
    return _judged(fit, (found or fit.discrepancies()).pearson, 1.0)


def sample_dispersion(fit: FittedGAM) -> Dispersion | None:
    """The same over at most 10 000 rows, which takes a moment at most."""
    found = fit.sample_pearson(_ROWS)
    return _judged(fit, found, min(_ROWS, len(fit.X)) / fit.number)


def _judged(fit: FittedGAM, found: Pearson | None, share: float) -> Dispersion | None:
    if found is None or found.number == 0.0 or fit.spec.family.calibrated:
        return None
    edf = sum(float(effective_dof(fit, c).sum()) for c in fit.spec.components)
    left = found.number - share * edf
    if left <= 0.0:
        return None
    value = found.statistic / left
    sd = np.sqrt(found.variance * left / found.number)
    remedy = fit.spec.family.overdispersed
    chance = found.statistic - left <= _DEVIATIONS * sd
    return Dispersion(value, bool(remedy) and value > _LARGE and not chance, remedy)


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
