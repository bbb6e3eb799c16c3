"""Linear terms, factors and random effects."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from .base import Column, Term, as_column, checked_columns
from .expression import Expression

UNSEEN = ("error", "prior")


@dataclasses.dataclass(frozen=True, repr=False)
class _OneColumn(Term):
    column: Column

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", checked_columns(self.function, (self.column,))[0])

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)


@dataclasses.dataclass(frozen=True, repr=False)
class Variable(_OneColumn):
    """A column that stands alone in a formula: a line of numbers, or a factor of levels."""

    function: ClassVar[str] = ""

    @property
    def label(self) -> str:
        return f"{self.parameter}:{self.column}" if self.parameter else str(self.column)

    def resolved(self, is_levels: bool) -> Term:
        """The term that it is, once data have said what the column holds."""
        own = factor(self.column) if is_levels else linear(self.column)
        return dataclasses.replace(own, parameter=self.parameter)

    def __repr__(self) -> str:
        return str(self.column)


def _checked_shrink(function: str, shrink: object) -> None:
    if not isinstance(shrink, bool):
        raise TypeError(f"{function}(): shrink must be True or False; got {shrink!r}.")


@dataclasses.dataclass(frozen=True, repr=False)
class Linear(_OneColumn):
    """A straight line: see :func:`linear`."""

    function: ClassVar[str] = "linear"
    shrink: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked_shrink(self.function, self.shrink)

    @property
    def shrinks(self) -> bool:
        """Whether the slope's variance is learnt."""
        return self.shrink


@dataclasses.dataclass(frozen=True, repr=False)
class Levels(_OneColumn):
    """An effect for each level of a column: see :func:`factor`."""

    function: ClassVar[str] = "factor"
    unseen: str = "error"
    shrink: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _checked_shrink(self.function, self.shrink)
        if self.unseen not in UNSEEN:
            raise ValueError(
                f"{self.function}(): unseen must be one of {', '.join(UNSEEN)}; "
                f"got {self.unseen!r}."
            )

    @property
    def shrinks(self) -> bool:
        """Whether the effects' variance is learnt, as new levels need it."""
        return self.shrink or self.unseen == "prior"


@dataclasses.dataclass(frozen=True, repr=False)
class RandomEffect(Levels):
    """Exchangeable normal effects: see :func:`random_effect`."""

    function: ClassVar[str] = "random_effect"
    unseen: str = "prior"
    by_: Column | Term | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by_ is not None:
            by = as_column(self.by_)
            if by is None:
                raise TypeError(
                    f"random_effect(): by must name a numeric column; got {self.by_!r}."
                )
            object.__setattr__(self, "by_", by)

    @property
    def by(self) -> Column | Term | None:
        return self.by_

    @property
    def shrinks(self) -> bool:
        return True


def linear(column: Column, shrink: bool = False) -> Linear:
    """
    A straight line in a numeric column, zero at the column's mean.

    Its slope is not penalised: the prior's standard deviation lets the line rise over the column's
    span by thirty times the predictor's natural size, which only keeps slopes finite that the
    data do not determine. ``gam.coefficients()`` shows the slope in the column's unit.

    :param column: its name or index.
    :param shrink: whether the variance of the slope's normal prior is learnt from the data, as in
        ridge regression: what the data leave open is drawn towards zero, and standard errors are
        those of the shrunk slope.
    """
    return Linear(column, shrink)


def factor(column: Column, unseen: str = "error", shrink: bool = False) -> Levels:
    """
    An effect for each level of a column, zero on average over the data.

    Effects are not penalised: their prior's standard deviation is thirty times the predictor's
    natural size, which only keeps effects finite that the data do not determine, such as those of a
    level whose binary responses are all alike.

    :param column: its name or index; text, categories, truth values or numbers as codes.
    :param unseen: what to do at prediction with a level that was not there: ``"error"``, or
        ``"prior"`` for an effect of zero with the prior's variance, which is then learnt as with
        ``shrink``.
    :param shrink: whether the effects' variance is learnt from the data, which draws them towards
        zero. :func:`random_effect` does the same without centring them.
    """
    return Levels(column, unseen, shrink)


def random_effect(
    *columns: Column, unseen: str = "prior", by: Column | Term | None = None
) -> RandomEffect:
    """
    Independent normal effects with one learnt variance for the levels of a column.

    They are not forced to average to zero: a new level is as uncertain as the levels differ.

    :param columns: a column's name or index. Of several columns, each combination of their levels
        has an effect: for plots within sites add ``random_effect("site", "plot")`` to
        ``random_effect("site")``.
    :param unseen: as in :func:`factor`.
    :param by: a numeric column: each level gets a slope in it instead of an intercept.
    :raises TypeError: what is no column.
    :raises ValueError: no column, or one twice.
    """
    names = checked_columns("random_effect", columns)
    column = names[0] if len(names) == 1 else Expression.crossed(names)
    return RandomEffect(column, unseen, by_=by)
