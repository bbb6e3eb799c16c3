"""Posteriors of additive models."""

from . import dispatch as _dispatch  # noqa: F401  registers with GPflow
from .actions import ActionPosterior
from .base import AdditivePosterior
from .data import DataAdditivePosterior
from .inducing import InducingFeatures, InducingMoments, SettledMoments
from .shaped import (
    ShapedMoments,
    ShapedPosterior,
    ShapedValues,
    acting_nodes,
    held_evidence,
    shape_tail,
    shaped_components,
)
from .sparse import SparseAdditivePosterior

__all__ = [
    "ActionPosterior",
    "AdditivePosterior",
    "DataAdditivePosterior",
    "InducingFeatures",
    "InducingMoments",
    "SettledMoments",
    "ShapedMoments",
    "ShapedPosterior",
    "ShapedValues",
    "SparseAdditivePosterior",
    "acting_nodes",
    "held_evidence",
    "shape_tail",
    "shaped_components",
]
