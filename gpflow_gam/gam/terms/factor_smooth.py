"""A curve for each level, alike in size and wiggliness: ``s(x, g, bs="fs")`` and ``bs="sz"``."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from .base import Column, FunctionOf, Term, checked_columns
from .options import checked_by, checked_k
from .parametric import UNSEEN

FACTOR_SMOOTHS = ("fs", "sz")


@dataclasses.dataclass(frozen=True, repr=False)
class FactorSmooth(FunctionOf):
    """
    A function of a number for each level of a factor; all share one variance and one lengthscale.

    ``bs="fs"``: curves drawn from one Gaussian process, levels included: there is no other term
    for their means. They average to zero over all data together, so that a new level is as
    uncertain as the levels differ. mgcv's ``fs`` has a variance of its own for their means; add
    :func:`random_effect` for that.

    ``bs="sz"``: what each level adds to the curve of all, ``s("x") + s("x", "g", bs="sz")``; at
    every x the levels' deviations sum to zero. mgcv's ``sz``.

    With ``by`` a column of numbers, they are coefficients of it: of ``"fs"`` not zero on average,
    and of ``"sz"`` what each level adds to ``s("x", by="z")``. With ``by`` a column of levels each
    of those has such curves of its own.

    Levels times ``k`` inducing inputs are learnt together, in time that grows with the cube of
    their number and memory with its square: ten levels cost about what ten smooths do, fifty with
    the default ``k`` some seconds, and some hundred levels are better a random effect.

    :param over: the number and the factor. A column of text, categories or truth values is the
        factor; of two columns of numbers the second is.
    :param bs: ``"fs"`` or ``"sz"``.
    :param k: inducing inputs of each level; by default 10, fewer beyond 40 levels.
    :param unseen: at prediction a level that was not there is an ``"error"``, as it is of ``"sz"``
        by default, or has the ``"prior"``, as of ``"fs"``.
    :param by_: a column of numbers that multiplies them, or of levels.
    :raises TypeError, ValueError: options that make no sense, naming them.
    """

    function: ClassVar[str] = "s"
    over: tuple[Column, ...]
    bs: str = ""
    k: int | None = None
    unseen: str | None = None
    by_: Column | Term | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "over", checked_columns("s", self.over))
        if len(self.over) != 2:
            raise ValueError(
                f"s(): bs={self.bs!r} takes a number and a factor, as s('x', 'g', bs={self.bs!r}); "
                f"got {len(self.over)} column(s)."
            )
        object.__setattr__(self, "k", checked_k("s", self.k))
        object.__setattr__(self, "by_", checked_by("s", self.over, self.by_))
        if self.unseen is not None and self.unseen not in UNSEEN:
            raise ValueError(
                f"s(): unseen must be one of {', '.join(UNSEEN)}; got {self.unseen!r}."
            )

    @property
    def policy(self) -> str:
        """What is done with levels that were not there."""
        return self.unseen or ("prior" if self.bs == "fs" else "error")
