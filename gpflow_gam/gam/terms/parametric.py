"""Linear terms, factors and random effects."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from .base import Column, Term, as_column, checked_columns

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
class Linear(_OneColumn):
    """A straight line: see :func:`linear`."""

    function: ClassVar[str] = "linear"


@dataclasses.dataclass(frozen=True, repr=False)
class Levels(_OneColumn):
    """An effect for each level of a column: see :func:`factor`."""

    function: ClassVar[str] = "factor"
    unseen: str = "error"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unseen not in UNSEEN:
            raise ValueError(
                f"{self.function}(): unseen must be one of {', '.join(UNSEEN)}; "
                f"got {self.unseen!r}."
            )


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


def linear(column: Column) -> Linear:
    """
    A straight line in a numeric column, zero at the column's mean.

    Its slope has a normal prior of mean zero whose variance is learnt from the data: a ridge.
    Slopes that the data settle are hardly shrunk; what they leave open is drawn towards zero, and
    standard errors are those of the shrunk slope. ``gam.coefficients()`` shows it in the column's
    unit.

    :param column: its name or index.
    """
    return Linear(column)


def factor(column: Column, unseen: str = "error") -> Levels:
    """
    An effect for each level of a column, zero on average over the data.

    :param column: its name or index; text, categories, truth values or numbers as codes.
    :param unseen: what to do at prediction with a level that was not there: ``"error"``, or
        ``"prior"`` for an effect of zero with the prior's variance.
    """
    return Levels(column, unseen)


def random_effect(
    column: Column, unseen: str = "prior", by: Column | Term | None = None
) -> RandomEffect:
    """
    Independent normal effects with one learnt variance for the levels of a column.

    They are not forced to average to zero: a new level is as uncertain as the levels differ.

    :param column: its name or index.
    :param unseen: as in :func:`factor`.
    :param by: a numeric column: each level gets a slope in it instead of an intercept.
    """
    return RandomEffect(column, unseen, by)
