"""Part of a predictor: some of its terms, with or without the intercept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from gpflow.base import AnyNDArray

from ..terms import Term
from .fitted import FittedGAM
from .specification import Specification

Chosen = str | Term | Iterable[str | Term]
"""A term, its label or the name of one of its effects; or several."""

_INTERCEPT = ("intercept", "(Intercept)", "1")


@dataclasses.dataclass(frozen=True)
class Part:
    """
    What counts of a predictor; offsets always do.

    :param names: the effects that stay, in the model's order.
    :param intercept: whether the intercept does, with the constant about which it is.
    """

    names: tuple[str, ...]
    intercept: bool = True

    def components(self, spec: Specification) -> list[str]:
        """
        The components that count, in the model's order.

        :param spec: of the fit.
        """
        first = [] if spec.intercept is None or not self.intercept else [spec.intercept]
        return [*first, *self.names]


def part_of(
    spec: Specification,
    terms: Chosen | None = None,
    exclude: Chosen | None = None,
    intercept: bool = True,
) -> Part | None:
    """
    The part of a predictor that arguments ask for; None where that is all of it.

    :param spec: what settles a fit but its numbers.
    :param terms: what stays; None for all.
    :param exclude: what does not, of that.
    :param intercept: whether the intercept stays.
    :raises TypeError: something that names no term.
    :raises ValueError: there is no such term.
    """
    if not isinstance(intercept, (bool, np.bool_)):
        raise TypeError(f"intercept must be True or False; got {intercept!r}.")
    if terms is None and exclude is None and (intercept or spec.intercept is None):
        return None
    stay = set(spec.effect_names) if terms is None else _effects(spec, "terms", terms)
    if exclude is not None:
        stay -= _effects(spec, "exclude", exclude)
    return Part(tuple(n for n in spec.effect_names if n in stay), bool(intercept))


def _effects(spec: Specification, argument: str, value: Chosen) -> set[str]:
    """The names of effects, of which a term may have several."""
    if isinstance(value, (str, Term)):
        value = (value,)
    if not isinstance(value, Iterable):
        raise TypeError(f"{argument} must name terms, such as ['s(x)']; got {value!r}.")
    found: set[str] = set()
    for one in value:
        if not isinstance(one, (str, Term)):
            raise TypeError(f"{argument} must name terms, such as ['s(x)']; got {one!r} in it.")
        label = one.label if isinstance(one, Term) else one
        if label in _INTERCEPT:
            raise ValueError(
                f"{argument}: the intercept is no term; intercept=False leaves it out, and "
                "otherwise it stays."
            )
        try:
            found |= {c.name for c in spec.called(one)}
        except ValueError as error:
            raise ValueError(f"{argument}: {error}") from None
    return found


def known_part(fit: FittedGAM, X: AnyNDArray, part: Part | None) -> AnyNDArray:
    """
    What is known of the predictor at rows, [N, L]: a constant and offsets.

    Without what carries the constant it is such that the predictor in the response's unit is the
    sum of effects and offsets alone.

    :param fit: a fitted GAM.
    :param X: [N, D].
    :param part: of the predictor; None for all of it.
    """
    known = np.asarray(fit.model.mean_function(X))
    if part is None:
        return known
    factor, shift = fit.units
    stays = fit.spec.has_constant(part.components(fit.spec))
    return known - np.where(stays, 0.0, np.array(fit.spec.constant) + shift / factor)
