"""The splines that functions with a shape are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ...kernels.shaped import Basis, LevelBasis, SplineBasis, grid
from ..terms import Smooth, Tensor, Term
from ..terms.smooth import LEAST_SPLINES
from .component import Component, Margin

NUM_SPLINES = {1: 24, 2: 9, 3: 6}
"""How many splines a column has unless told, by the number of columns of numbers; 4 beyond."""


def with_breaks(
    term: Term, margins: tuple[Margin, ...], values: Sequence[AnyNDArray]
) -> tuple[Margin, ...]:
    """
    The margins of a term, with breaks and shapes where it asks for a shape.

    :param values: distinct values of each margin.
    :raises ValueError: a shape along levels.
    """
    if not isinstance(term, (Smooth, Tensor)) or not term.shapes:
        return margins
    for name, margin, shape in zip(term.columns, margins, term.shapes):
        if shape and margin.kind == "levels":
            raise ValueError(
                f"{term.label}: shape={shape!r} is along {name!r}, which has levels; shapes are "
                "of numbers."
            )
    numbers = sum(m.kind != "levels" for m in margins)
    each = NUM_SPLINES.get(numbers, LEAST_SPLINES)
    if term.k is not None:
        each = max(LEAST_SPLINES, round(float(term.k) ** (1.0 / numbers)))
    return tuple(
        dataclasses.replace(m, breaks=_breaks(m, v, each), shape=shape or "")
        for m, v, shape in zip(margins, values, term.shapes)
    )


def _breaks(margin: Margin, values: AnyNDArray, number: int) -> tuple[float, ...]:
    """Codes of levels; or breaks half way between even quantiles of values and even steps."""
    if margin.kind == "levels":
        return tuple(values.tolist())
    number = max(LEAST_SPLINES, min(number, len(values))) - 1
    share = np.linspace(0.0, 1.0, number)
    even = values[0] + share * (values[-1] - values[0])
    return tuple((0.5 * even + 0.5 * np.quantile(values, share)).tolist())


def bases_of(margins: Sequence[Margin]) -> list[Basis]:
    """The splines on each margin; straight beyond the ends where that keeps the shape."""
    return [
        LevelBasis(np.array(m.breaks))
        if m.kind == "levels"
        else SplineBasis(np.array(m.breaks), straight=bool(m.shape))
        for m in margins
    ]


def shaped_inducing(margins: Sequence[Margin]) -> AnyNDArray:
    """Inducing inputs [M, d]: where coefficients are."""
    return grid([basis.places for basis in bases_of(margins)])


def shaped_term(components: Sequence[Component]) -> str:
    """
    The label of the first term that has a shape; empty where none has.

    :param components: of the predictor.
    """
    return next((c.term for c in components if c.shape), "")
