"""Kinds of smooth functions: the kernels that ``bs=`` names, and what they are like."""

from __future__ import annotations

import dataclasses

import gpflow
from gpflow.kernels import Kernel


@dataclasses.dataclass(frozen=True)
class SmoothKind:
    """A kernel that ``bs=`` names, and what functions drawn from it are like."""

    name: str
    kernel: type[Kernel] | None = None
    """A stationary kernel with a variance and lengthscales; None where it is built otherwise."""
    tensor: bool = True
    """Whether ``te`` and ``ti`` take it, too, and not ``s`` alone."""
    one_column: bool = False
    has_line: bool = False
    """Whether it has a straight part of its own, of another size."""
    has_slope: bool = True
    """Whether functions drawn from it are differentiable."""
    shapeable: bool = False
    """Whether it can be made increasing, decreasing, convex or concave."""
    rough: bool = False
    """Whether it has an inducing input at every value, and is told from a smooth of its column."""
    outside: str = ""
    """What it does beyond the data, in words; empty where it goes back to its line, or to zero."""


_GPFLOW = gpflow.kernels
_WALKS = "the walk goes on from where it was, and says less and less"
_GLIDES = "the curve goes on along its slope, and says less and less"

KINDS = {
    kind.name: kind
    for kind in (
        SmoothKind("se", _GPFLOW.SquaredExponential, has_line=True, shapeable=True),
        SmoothKind("matern12", _GPFLOW.Matern12, has_line=True, has_slope=False, shapeable=True),
        SmoothKind("matern32", _GPFLOW.Matern32, has_line=True, shapeable=True),
        SmoothKind("matern52", _GPFLOW.Matern52, has_line=True, shapeable=True),
        SmoothKind("cyclic", one_column=True),
        SmoothKind("linear", one_column=True),
        SmoothKind("ou", _GPFLOW.Matern12, one_column=True, has_slope=False, rough=True),
        SmoothKind("sos", _GPFLOW.Matern52, tensor=False),
        SmoothKind(
            "rw", tensor=False, one_column=True, has_slope=False, rough=True, outside=_WALKS
        ),
        SmoothKind("iou", tensor=False, one_column=True, has_line=True, outside=_GLIDES),
        SmoothKind("ad", _GPFLOW.SquaredExponential, tensor=False, one_column=True, has_line=True),
    )
}
"""What ``bs`` may be, by name."""


def has_line(name: str) -> bool:
    """Whether a margin's kind has a straight part of its own; levels and lines have none."""
    return name in KINDS and KINDS[name].has_line
