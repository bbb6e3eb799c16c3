"""From a column of a data frame to numbers, with errors that name the row."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...errors import plain_number
from ...likelihoods.times import EXACT, INTERVAL, LEFT, RIGHT
from ...storage import RowArray, Stored
from ..frames.table import listed, named_distinct
from ..terms import Surv
from ..terms.base import Level

_BLOCK = 2**20  # rows at a time
_MOST_STEPS = 200
_CAUCHY_OF_NORMAL = 0.6120
"""The scale of the Cauchy distribution that is nearest to a standard normal one."""
_NUMBERS = (bool, int, float, decimal.Decimal, np.integer, np.floating, np.bool_)
_SPANS = (datetime.timedelta, np.timedelta64)  # the latter of which numpy calls a number


Moments = tuple[float, float, float]  # mean, variance and largest size of a column


def values(y: AnyNDArray, name: str, family: str) -> AnyNDArray:
    """The column as an array [N]; ValueError if it is empty or has missing values."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(
            f"{name} must be one column [N] for family {family!r}; got shape {y.shape}."
        )
    if len(y) == 0:
        raise ValueError(f"{name} has no rows.")
    if y.dtype.kind not in "biufUS":
        require(y, ~np.asarray(pd.isna(y)), "given in every row", name, family, "drop the rows")
    return y


def numbers(y: AnyNDArray, name: str, family: str) -> AnyNDArray:
    """The column in double precision, [N]; ValueError if a value is not a finite number."""
    y = values(y, name, family)
    check_no_times(y, name, family)
    if y.dtype.kind not in "biuf":
        others = {t for t in set(map(type, y)) if not issubclass(t, _NUMBERS)}
        if others:
            require(y, np.array([type(v) not in others for v in y]), "numbers", name, family)
    x = y.astype(np.float64)
    require(x, np.isfinite(x), "finite", name, family, "drop the rows")
    return x


def check_no_times(y: AnyNDArray, name: str, family: str) -> None:
    """Raises ValueError if a column holds times or spans of time, which are in whatever unit."""
    kinds = set(map(type, y)) if y.dtype.kind == "O" else set()
    if y.dtype.kind == "m" or any(issubclass(t, _SPANS) for t in kinds):
        raise ValueError(
            f"{name} holds spans of time, for family {family!r}, which needs numbers: divide it by "
            "the unit that you think in, such as pd.Timedelta(days=1)."
        )
    if y.dtype.kind == "M":
        raise ValueError(
            f"{name} holds times, for family {family!r}, which needs numbers: convert it, to days "
            "since its start for instance."
        )


def require(
    y: AnyNDArray, holds: AnyNDArray, what: str, name: str, family: str, remedy: str = ""
) -> None:
    """Raises ValueError naming the column, the first value that is bad and its row."""
    if np.all(holds):
        return
    row = int(np.flatnonzero(~holds)[0])
    count = int(np.sum(~holds))
    raise ValueError(
        f"{name} must be {what}, for family {family!r}; got {plain_number(y[row])!r} in row "
        f"{row} ({count} such {'value' if count == 1 else 'values'})"
        + (f"; {remedy}." if remedy else ".")
    )


def learned_levels(y: AnyNDArray, name: str, family: str) -> tuple[Level, ...]:
    """The distinct labels of a column, sorted; ValueError if JSON cannot hold them."""
    labels = {plain_number(v) for v in named_distinct(y, name).occurring()}
    for label in labels:
        if not isinstance(label, (str, int, float, bool)):
            raise ValueError(
                f"{name} must hold strings or numbers for family {family!r}; got a "
                f"{type(label).__name__}; convert it to strings."
            )
    if len({isinstance(label, str) for label in labels}) > 1:
        raise ValueError(
            f"{name} mixes strings and numbers, which have no common order; convert it to strings."
        )
    return tuple(sorted(labels))


def labels(
    y: AnyNDArray, levels: tuple[Level, ...] | None, name: str, family: str
) -> tuple[AnyNDArray, tuple[Level, ...]]:
    """The values of a column of labels, and the labels, learned where none are given."""
    y = values(y, name, family)
    if y.dtype.kind == "f":
        y = numbers(y, name, family)
    return y, learned_levels(y, name, family) if levels is None else levels


class Sample:
    """A response Y [N, K], in memory or stored, and how often each row counts."""

    def __init__(self, Y: RowArray, weights: RowArray | None = None) -> None:
        self.Y, self._weights = Y, weights

    @property
    def unweighted(self) -> Sample:
        """The same sample with every row counted once."""
        return Sample(self.Y)

    @property
    def moments(self) -> Moments:
        """Mean, variance and largest size of the first column."""
        return self._moments()

    def _moments(self, transform: Callable[[AnyNDArray], AnyNDArray] = np.asarray) -> Moments:
        part = np.zeros(4)
        for block, w in self.blocks():
            y, total = transform(block[:, 0]), float(np.sum(w))
            centre = float(np.average(y, weights=w)) if total > 0.0 else 0.0
            # around each block's own mean: values far from zero keep their digits
            squares = float(np.sum(w * (y - centre) ** 2))
            part = _added(part, np.array([total, centre, squares, np.max(np.abs(y))]))
        total, mean, squares, largest = functools.reduce(_added, self.gathered(part)).tolist()
        return mean, squares / total, largest

    def spread(self, logarithm: bool = False) -> float:
        """The standard deviation of the first column (or its logarithm), or 1 if it is constant."""
        return _deviation(self._moments(np.log) if logarithm else self.moments)

    @property
    def robust(self) -> tuple[float, float]:
        """Mean and standard deviation of normal data, whatever a third of the rows are."""
        # By a fitted Cauchy distribution (EM; Kent, Tyler & Vardi 1994) unless half are equal.
        whole, mean = self.spread(), self.moments[0]
        centre, scale = mean, whole
        for _ in range(_MOST_STEPS):
            sums: AnyNDArray = np.zeros(3)
            for block, counts in self.blocks():
                e = block[:, 0] - centre
                w = counts / (1.0 + np.square(e / scale))
                sums = sums + np.array([np.sum(w), w @ e, w @ np.square(e)])
            number, away, squares = self.summed(sums).tolist()
            step = away / number
            following = float(np.sqrt(max(squares / number - step**2, 0.0)))
            if following < 1e-12 * whole:
                break
            done = abs(following - scale) < 1e-3 * scale and abs(step) < 1e-3 * scale
            centre, scale = centre + step, following
            if done:
                return centre, scale / _CAUCHY_OF_NORMAL
        return mean, whole

    def occurring(self, number: int) -> AnyNDArray:
        """Weight of each code in the first column, [number]."""
        total: AnyNDArray = np.zeros(number)
        for block, w in self.blocks():
            total = total + np.bincount(block[:, 0].astype(np.int64), w, minlength=number)
        total = self.summed(total)
        return total.astype(np.int64) if self._weights is None else total

    def blocks(self) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        """Rows of Y and how often each counts, some at a time."""
        for start in range(0, len(self.Y), _BLOCK):
            at = slice(start, min(start + _BLOCK, len(self.Y)))
            y, w = np.asarray(self.Y[at], dtype=np.float64), self._weights
            yield y, np.ones(len(y)) if w is None else np.asarray(w[at], np.float64)

    def gathered(self, part: AnyNDArray) -> AnyNDArray:
        """What comes of the rows of Y that are here, beside that of all who hold some, [W, ...]."""
        return self.Y.gathered(part) if isinstance(self.Y, Stored) else part[None]

    def summed(self, sums: AnyNDArray) -> AnyNDArray:
        """Sums over the rows of Y that are here, over the rows of all who hold some."""
        return self.gathered(sums).sum(axis=0)


@dataclasses.dataclass(frozen=True)
class Described:
    """A summary that families build their likelihood from in place of a :class:`Sample`."""

    moments: Moments
    counts: tuple[int, ...] = ()  # weight of each code in the first column, where it holds codes
    width: float | None = None  # standard deviation of robust; None in files that have none
    centre: float | None = None

    @classmethod
    def of(cls, Y: RowArray, levels: Sequence[Level] | None) -> Described:
        """Summary of a response Y [N, K], which may hold codes of ``levels``."""
        sample = Sample(Y)
        occurring = () if levels is None else tuple(sample.occurring(len(levels)).tolist())
        centre, width = sample.robust
        return cls(sample.moments, occurring, width, centre)

    @property
    def unweighted(self) -> Described:
        return self

    def spread(self, logarithm: bool = False) -> float:
        return _deviation(self.moments)

    @property
    def robust(self) -> tuple[float, float]:
        centre = self.moments[0] if self.centre is None else self.centre
        return centre, self.spread() if self.width is None else self.width

    def occurring(self, number: int) -> AnyNDArray:
        return np.array(self.counts)


Observed = Sample | Described  # A response, or what stands for it


def _deviation(moments: Moments) -> float:
    sd = float(np.sqrt(moments[1]))
    return sd if sd > 1e-10 * (1e-300 + moments[2]) else 1.0


def _added(a: AnyNDArray, b: AnyNDArray) -> AnyNDArray:
    """Total weight, mean, sum of squares around it and largest size (Chan et al. 1983), [4]."""
    total = a[0] + b[0]
    if total == 0.0:
        return np.array([0.0, 0.0, 0.0, max(a[3], b[3])])
    away = b[1] - a[1]
    squares = a[2] + b[2] + away**2 * a[0] * b[0] / total
    return np.array([total, a[1] + away * b[0] / total, squares, max(a[3], b[3])])


def codes(y: AnyNDArray, levels: Sequence[Level], name: str, family: str) -> AnyNDArray:
    """Positions [N] in ``levels``, in double precision; ValueError of another label."""
    place = {level: float(i) for i, level in enumerate(levels)}
    column = named_distinct(y, name)
    places = np.array([place.get(plain_number(v), -1.0) for v in column.values])
    positions: AnyNDArray = places[column.codes]
    require(y, positions >= 0.0, f"one of {listed(levels)}", name, family)
    return positions


# --- censored responses -------------------------------------------------------------------------


def censored(
    columns: Sequence[AnyNDArray], surv: Surv, family: str, above_zero: bool
) -> AnyNDArray:
    """Y [N, 3] of censored likelihoods, from the columns of a ``Surv``."""
    names = [str(name) for name in surv.columns]
    if surv.type == "interval":
        return _intervals(columns[0], columns[1], (names[0], names[1]), family, above_zero)
    time = start = numbers(columns[0], names[0], family)
    if above_zero:
        require(time, time > 0.0, "positive", names[0], family)
    if surv.type == "counting":
        start = numbers(columns[1], names[1], family)
        if above_zero:
            require(start, start >= 0.0, "not negative", names[1], family)
        require(start, start < time, f"less than {names[0]!r} of its row", names[1], family)
    event = numbers(columns[-1], names[-1], family)
    known = (event == 0.0) | (event == 1.0)
    what = "1 (or True) where the event was seen and 0 where it is censored"
    require(event, known, what, names[-1], family)
    kind = np.where(event == 1.0, EXACT, LEFT if surv.type == "left" else RIGHT)
    return np.stack([time, start, kind], axis=1)


def _intervals(
    first: AnyNDArray, second: AnyNDArray, names: tuple[str, str], family: str, above_zero: bool
) -> AnyNDArray:
    lower = _ends(first, names[0], family, -np.inf)
    upper = _ends(second, names[1], family, np.inf)
    require(lower, lower < np.inf, "less than inf", names[0], family)
    require(upper, upper > -np.inf, "greater than -inf", names[1], family)
    if above_zero:
        negative = np.isfinite(lower) & (lower < 0.0)
        require(lower, ~negative, "not negative", names[0], family)
        lower = np.where(lower == 0.0, -np.inf, lower)
        require(upper, upper > 0.0, "positive", names[1], family)
    ordered = lower <= upper
    require(lower, ordered, f"at most {names[1]!r} of its row", names[0], family)
    left, right = np.isinf(lower), np.isinf(upper)
    known, what = ~(left & right), f"given in a row that lacks {names[1]!r}"
    remedy = "drop the rows, of which nothing is known"
    require(np.asarray(first), known, what, names[0], family, remedy)
    kind = np.select([left, right, lower == upper], [LEFT, RIGHT, EXACT], INTERVAL)
    one = np.where(left, upper, lower)  # of a row with one end
    return np.stack([one, np.where(right, one, upper), kind], axis=1)


def _ends(y: AnyNDArray, name: str, family: str, missing: float) -> AnyNDArray:
    """Ends of intervals [N], which may be infinite, and are so where they are missing."""
    y = np.asarray(y)
    check_no_times(y, name, family)
    if y.dtype.kind == "O":  # None, or missing values of pandas'
        y = np.where(np.asarray(pd.isna(y)), missing, y)
    try:
        x = y.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must hold numbers, for family {family!r}; got {y.dtype} values such as "
            f"{y.tolist()[0]!r}."
        ) from None
    return np.where(np.isnan(x), missing, x)


def check_events(Y: RowArray, surv: Surv) -> None:
    """Raises ValueError of responses Y [N, 3] that are all beyond the values that are known."""
    sample, numbers = Sample(Y), np.zeros(4)
    for block, _ in sample.blocks():
        numbers += np.bincount(block[:, 2].astype(np.int64), minlength=4)
    numbers = sample.summed(numbers)
    alone = [kind for kind in (RIGHT, LEFT) if numbers[int(kind)] == numbers.sum()]
    if alone:
        where = "greater" if alone == [RIGHT] else "less"
        raise ValueError(
            f"{surv}: every row is censored, and all that is known is that responses are "
            f"{where} than the values given, from which no distribution can be learnt"
            + ("; is 1 what marks an event?" if surv.type != "interval" else ".")
        )
