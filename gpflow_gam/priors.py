"""Priors of a term's hyperparameters: ``s("x", prior=gg.priors.SD(upper=1.0))``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from .errors import plain_number

__all__ = ["SD", "Edf", "Lengthscale"]


@dataclasses.dataclass(frozen=True)
class Prior:
    """What is known of a term's function before the data are seen."""

    about: ClassVar[str]  # two of a term are about different things

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = plain_number(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not (0.0 < value < math.inf):
                raise ValueError(
                    f"{type(self).__name__}(): {field.name} must be a positive number; got "
                    f"{value!r}."
                )
            if field.name == "p" and value >= 1.0:
                raise ValueError(f"{type(self).__name__}(): p must be less than 1; got {value!r}.")

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"prior": type(self).__name__, **dataclasses.asdict(self)}


@dataclasses.dataclass(frozen=True)
class SD(Prior):
    """
    The prior standard deviation of a term's effect is above ``upper`` with probability ``p``.

    Of a smooth it is that of the whole function over the data, straight line and deviation from it,
    at the mode of the lengthscale's prior; of levels and random effects that of an effect;
    with ``by`` a number that of the coefficient. It is stated by its tail, as penalised complexity
    priors are (Simpson et al. 2017, arXiv 1403.4630). The variance is log-logistic: its density is
    flat near zero, so that an effect may vanish, and falls slowly, so that strong data overrule it.

    :param upper: in the unit of the linear predictor: .1 is about ten per cent under a log link.
    :param p: the probability.
    :raises ValueError: a number that is not positive and finite; ``p`` of 1 or more.
    """

    about: ClassVar[str] = "variance"
    upper: float
    p: float = 0.05


@dataclasses.dataclass(frozen=True)
class Edf(Prior):
    """
    The effective degrees of freedom of a smooth have this median.

    They are those that the term would have by itself, at the information that rows have in the null
    model (half of the response's variance taken for noise where there is noise) and the mode of the
    lengthscale's prior. Straight lines in it count one each, whatever the data say of them; the
    prior is of the variance of the deviation from them (Ventrucci & Rue 2016, arXiv 1511.05748).

    :param median: more than the number of straight lines: one of ``s``, one a column of ``te``.
    :raises ValueError: ``median`` is not positive and finite.
    """

    about: ClassVar[str] = "variance"
    median: float


@dataclasses.dataclass(frozen=True)
class Lengthscale(Prior):
    """
    The lengthscale of a smooth is between two values with probability 1 - ``p``.

    Functions change little over a fraction of a lengthscale, and are unrelated beyond some of them.
    It is log-normal, with as much probability below as above the two.

    :param lower: in the column's unit.
    :param upper: in the column's unit, more than ``lower``.
    :param p: probability that it is outside.
    :raises ValueError: a number that is not positive and finite; ``p`` of 1 or more; ends that do
        not increase.
    """

    about: ClassVar[str] = "lengthscale"
    lower: float
    upper: float
    p: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lower >= self.upper:
            raise ValueError(
                f"Lengthscale(): lower must be less than upper; got {self.lower!r} and "
                f"{self.upper!r}."
            )


KINDS: dict[str, type[Prior]] = {kind.__name__: kind for kind in (SD, Edf, Lengthscale)}


def checked_priors(function: str, given: Any) -> tuple[Prior, ...]:
    """The priors of a term, given as one, several, or as files hold them."""
    if given is None:
        return ()
    several = given if isinstance(given, (tuple, list)) else (given,)
    result: list[Prior] = []
    for one in several:
        if isinstance(one, Mapping) and one.get("prior") in KINDS:
            one = KINDS[one["prior"]](**{k: v for k, v in one.items() if k != "prior"})
        if not isinstance(one, Prior):
            raise TypeError(
                f"{function}(): prior must be one of {', '.join(f'{k}(...)' for k in KINDS)} of "
                f"gpflow_gam.priors, or a tuple of them; got {one!r}."
            )
        if any(other.about == one.about for other in result):
            raise ValueError(f"{function}(): prior has two of the {one.about}; leave one out.")
        result.append(one)
    return tuple(result)
