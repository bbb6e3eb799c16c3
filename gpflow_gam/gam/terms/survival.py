"""Responses of which some are known only to lie beyond, or between, given values."""

from __future__ import annotations

import dataclasses
from typing import Any

from .base import Column, as_column

TYPES = ("right", "left", "interval")


@dataclasses.dataclass(frozen=True)
class Surv:
    """
    A censored response in two columns, as R's ``survival::Surv`` names them.

    - ``Surv("time", "event")``: where event is 0 the response is greater than time, and where it
      is 1 it is time;
    - ``Surv("time", "event", type="left")``: where event is 0 it is less;
    - ``Surv("lower", "upper", type="interval")``: it is between the two. Where they are equal it is
      known; where lower is missing, -inf or, of times, 0, it is below upper, and where upper is
      missing or inf it is above lower.

    Censoring must say nothing of the response beyond that (Klein & Moeschberger 2003, section 3.2).

    :param first: the column of times, or of lower ends.
    :param second: the column of events, 0 or 1 (or truth values), or of upper ends.
    :param type: "right", "left" or "interval".
    :raises TypeError: values in place of columns' names.
    :raises ValueError: one column twice, or another type.
    """

    first: Column
    second: Column
    type: str = "right"

    def __post_init__(self) -> None:
        for place, name in (("first", self.first), ("second", self.second)):
            column = as_column(name)
            if column is None:
                raise TypeError(
                    f"Surv names columns of data; got a {type_name(name)}: put the values into a "
                    "column, and give its name."
                )
            object.__setattr__(self, place, column)
        if self.type not in TYPES:
            raise ValueError(f"type must be one of {', '.join(TYPES)}; got {self.type!r}.")
        if self.first == self.second:
            raise ValueError(f"Surv needs two columns; got {self.first!r} twice.")

    @property
    def columns(self) -> tuple[Column, Column]:
        """Both."""
        return self.first, self.second

    @property
    def complete(self) -> tuple[Column, ...]:
        """Those that no row may lack."""
        return () if self.type == "interval" else self.columns

    def __str__(self) -> str:
        return f"Surv({self.first}, {self.second})"

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it; the constructor takes it."""
        return dataclasses.asdict(self)


ResponseSpec = Column | Surv
"""What a response is called."""


def type_name(value: object) -> str:
    """The name of a value's type."""
    return type(value).__name__
