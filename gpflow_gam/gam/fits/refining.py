"""How finely rows are summed up: usual nodes and bins, and finer ones where effects need them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ...errors import NotPositiveDefinite
from ...models import AdditiveModel
from ...optimizers import FitResult, Solution, TimeBudget
from ...optimizers.binned.bins import FEW_ROWS, FINE_BINS
from .specification import Specification

MAX_LOSS = 1e-3
"""Share by which bins may add to the noise: estimates then move by .03 standard deviations."""
MAX_INTERPOLATED = 0.1
"""Nats by which interpolation between nodes may matter."""
_MOST_SHIFTED = 0.5
"""Standard errors of an effect beyond which it is said that fine nodes do not do."""

_OVERFLOW = float(np.log(np.finfo(np.float64).max))


class Attempt(NamedTuple):
    """A fit to sums over rows, as fine as they were."""

    spec: Specification
    model: AdditiveModel
    result: FitResult
    solution: Solution


def fit_refined(
    fit: Callable[[tuple[str, ...], AdditiveModel | None], Attempt],
    rebin: Callable[[int | None], None],
    fine: tuple[str, ...],
    numbers: Iterable[int | None],
    budget: TimeBudget,
) -> Attempt:
    """
    Fit to the usual sums, and anew to finer ones where these lose too much.

    Where curves are rougher than nodes are for, those of the components that lose become finer, and
    the fit begins where a fit begins: where coarse nodes led is no place to go on from. Where there
    is little noise beside it, what bins round off counts, and a fit to finer bins goes on from the
    one before. A fit that was ended early stays as it is, and so does one whose time would not do
    for as much again.

    :param fit: to the present bins: given the names of components with fine nodes, and going on
        from a model or, with None, from the start.
    :param rebin: makes the bins of a column so many; one for each value with None.
    :param fine: components that have fine nodes from the first.
    :param numbers: of bins, to be tried in turn; from :func:`finer_bins`.
    :param budget: of the fit in all.
    :return: the last attempt, whose result says so where effects are too rough for it all the same.
    :raises NotPositiveDefinite: it found no optimum, and expected responses overflow where it is.
    """
    begun, ahead = budget.seconds, list(numbers)
    found = fit(fine, None)
    while _affords(found.result, budget, begun):
        rough = _rough(found.result, fine)
        coarse = len(ahead) > 0 and _coarse(found.result)
        if not (rough or coarse):
            break
        begun, fine = budget.seconds, (*fine, *rough)
        model = None if rough else found.model
        if coarse:
            del found  # its solution holds codes: two sets of them are not needed at once
            rebin(ahead.pop(0))
        found = fit(fine, model)
    if not found.result.converged and not found.result.ended:
        _check_finite(found)
    return found._replace(result=_checked(found.result))


def _check_finite(found: Attempt) -> None:
    """
    Check, of a fit that found no optimum, that the rows' expected responses are numbers.

    :raises NotPositiveDefinite: exponentials of some predictors overflow.
    """
    if not found.spec.family.log_link:
        return
    factor, shift = found.spec.family.units(found.model.likelihood)
    solution, rows, over = found.solution, found.solution.rows, 0
    for at, mean, var in rows.marginals(solution.values, solution.q):
        f = shift[0] + factor[0] * (mean + rows.mean[at])[:, 0]
        over += int(np.sum(~(f + 0.5 * factor[0] ** 2 * var[:, 0] < _OVERFLOW)))
    if rows.communicator.total([float(over)])[0] > 0.0:
        raise NotPositiveDefinite


def finer_bins(rows: int) -> tuple[int | None, ...]:
    """Bins of a column where the usual ones of as many rows lose too much; None for one a value."""
    return (None,) if rows <= FEW_ROWS else (FINE_BINS, None)


def _rough(result: FitResult, fine: tuple[str, ...]) -> tuple[str, ...]:
    """Components without fine nodes as yet that lose the most: what others lose is no matter."""
    if _lost(result) <= MAX_INTERPOLATED:
        return ()
    parts = sorted(result.interpolation_by.items(), key=lambda part: part[1])
    losses = np.cumsum([lost for _, lost in parts])
    found = [name for (name, _), all_lost in zip(parts, losses) if all_lost > MAX_INTERPOLATED / 2]
    return tuple(name for name in found if name not in fine)


def _coarse(result: FitResult) -> bool:
    return result.converged and (result.discretisation or 0.0) > MAX_LOSS


def _lost(result: FitResult) -> float:
    return result.interpolation or 0.0


def _affords(result: FitResult, budget: TimeBudget, begun: float) -> bool:
    return not result.ended and budget.left > budget.seconds - begun


def _checked(result: FitResult) -> FitResult:
    shift = result.interpolation_shift or 0.0
    if not result.converged or shift <= _MOST_SHIFTED:
        return result
    message = (
        "effects are rougher than the nodes at which rows are summed up, so that an estimate is "
        f"off by up to {shift:.1f} of its standard errors. Take fewer inducing inputs (k) for "
        "joint smooths, or variational='covariance'"
    )
    return dataclasses.replace(result, converged=False, message=message)
