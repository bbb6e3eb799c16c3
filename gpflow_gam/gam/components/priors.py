"""What is believed of hyperparameters before the data: wide, and relative to data's own sizes."""

from __future__ import annotations

import math
from typing import NamedTuple

LENGTHSCALE = 0.45, 0.9
"""Where a lengthscale's prior peaks against its column's span; its deviation in logarithms."""
START, SPACINGS = 0.35, 3.0
"""
Where optimisation starts: at so much of the span, or at so many spacings between inducing inputs
where that is less. From a long one it takes quick changes for noise, and stays.
"""
CYCLIC_LENGTHSCALE = 0.7, 0.6
"""The same of the dimensionless lengthscale of a periodic kernel."""


class VariancePrior(NamedTuple):
    """
    Of a variance against that of the predictor.

    :param mode: where it peaks in the logarithm.
    :param spread: its deviation in logarithms.
    :param start: where optimisation starts: from a small variance what is there is not seen.
    """

    mode: float
    spread: float
    start: float


VARIANCE = VariancePrior(2.0, 1.0, 2.0)
"""Of a component."""
_LITTLE, _ENOUGH = 64.0, 512.0
"""Information that says next to nothing of how far a smooth is from straight, and enough."""
DEVIATION_SPREAD = 1.5, 3.0
"""Of that, there: wide where data say enough, so that what is not there may vanish."""
_UNITS, _MOST = 3.0, 0.5
"""
Where its prior peaks: against the variance that all data tell from zero where they say enough, and
at most.
"""
TREND = VariancePrior(0.03, 3.0, 2.0)
"""Of its straight part over its column's span."""
_SELECT_UNITS, _SELECT_MOST, _SELECT_SPREAD = 0.01, 1e-3, 10.0
"""
Of both parts where what is not there shall vanish: against what all data tell from zero, at
most, and so wide that the evidence alone decides. A narrower prior there takes effects that are
there along.
"""
_OF_SPAN = 12.0
"""The squared span of an even column over its variance."""
UNPENALISED = 900.0
"""The variance of effects of levels, and of a line over its column's span, that nothing shrinks."""
INDEPENDENT = 0.5, 1.5
"""The same of what of areas is independent, against what is like their neighbours."""
SINGLE_ROWS = VariancePrior(0.5, 3.0, 2.0)
"""Of areas with one row each, which neighbours alone tell from noise: as wide as of deviations."""
ROWS = 1000.0
"""Information where nobody knows how much data will have."""
SPEED = 1.0
"""The deviation, in logarithms, of an adaptive function's speeds."""
INTERACTION_LENGTHSCALE = 0.7, 0.8
"""A lengthscale's prior in an interaction: few data tell its shape."""
INTERACTION_VARIANCE = VariancePrior(0.005, 2.0, 0.005)
"""Of an interaction: most of what happens is in main effects."""


class SmoothPriors(NamedTuple):
    """
    Of a smooth's variances.

    :param trend: of its straight part over its column's span.
    :param deviation: of how far it is from straight.
    """

    trend: VariancePrior
    deviation: VariancePrior


Priors = tuple[SmoothPriors, SmoothPriors]
"""Of smooths, and of those that shall vanish where they are not there."""


def smooth_priors(information: float, select: bool = False) -> SmoothPriors:
    """
    Of how large both parts of a smooth are.

    Where data say enough, that of its deviation peaks at variances that they could hardly tell from
    zero: what is not there may look absent. Where they say less, it grows faster than these and
    narrows: a deviation of which data say little is left out then and now, and the error bars of
    what is left do not know it. Of binary responses of 400 rows 95 % limits of a half of a sine
    wave held .82 of it where the prior only grew as these, .90 so (``benchmarks/coverage.py``).

    :param information: precision of the predictor in all rows together, in its natural unit: about
        the number of rows where noise is as large as the predictor.
    :param select: whether what is not there shall vanish: both priors then peak at variances of
        which the data could tell nothing.
    """
    least = 1.0 / max(information, 1e-300)
    if not select:
        mode = min(_UNITS * least * max(_ENOUGH * least, 1.0), _MOST)
        share = math.log(max(information, _LITTLE) / _LITTLE) / math.log(_ENOUGH / _LITTLE)
        narrow, wide = DEVIATION_SPREAD
        spread = narrow + (wide - narrow) * min(share, 1.0)
        return SmoothPriors(TREND, VariancePrior(mode, spread, 2.0))
    mode = min(_SELECT_UNITS * least, _SELECT_MOST)
    return SmoothPriors(
        VariancePrior(_OF_SPAN * mode, _SELECT_SPREAD, TREND.start),
        VariancePrior(mode, _SELECT_SPREAD, 2.0),
    )
