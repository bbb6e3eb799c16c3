"""Probability measures of inputs, against which functions are centred and variances taken."""

from .base import Measure
from .composite import Mixture, Product
from .continuous import Gaussian, Uniform
from .discrete import Discrete, Empirical, Nodes

__all__ = [
    "Discrete",
    "Empirical",
    "Gaussian",
    "Measure",
    "Mixture",
    "Nodes",
    "Product",
    "Uniform",
]
