"""Second-order expansions of log-likelihoods, and products with their curvature."""

from .automatic import automatic_curvature
from .curvature import Curvature, checked_curvature
from .dispatch import curvature
from .precisions import DensePrecision, DiagonalPrecision, Precision, SoftmaxPrecision

__all__ = [
    "Curvature",
    "DensePrecision",
    "DiagonalPrecision",
    "Precision",
    "SoftmaxPrecision",
    "automatic_curvature",
    "checked_curvature",
    "curvature",
]
