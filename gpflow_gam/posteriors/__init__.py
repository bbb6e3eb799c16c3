"""Posteriors of additive models."""

from .actions import ActionPosterior
from .base import AdditivePosterior
from .inducing import AugmentedMoments, InducingMoments
from .shaped import ShapedMoments, ShapedPosterior, ShapedValues
from .sparse import SparseAdditivePosterior

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
