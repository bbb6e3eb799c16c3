"""Posteriors of additive models."""

from .actions import ActionPosterior
from .base import AdditivePosterior, SparseAdditivePosterior
from .inducing import (
    AugmentedMoments,
    InducingMoments,
    ShapedMoments,
    ShapedPosterior,
    ShapedValues,
)

__all__ = [
    "ActionPosterior",
    "AdditivePosterior",
    "AugmentedMoments",
    "InducingMoments",
    "ShapedMoments",
    "ShapedPosterior",
    "ShapedValues",
    "SparseAdditivePosterior",
]
