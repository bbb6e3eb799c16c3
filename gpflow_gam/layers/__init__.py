"""Keras 3 layers: an additive Gaussian process as the head of a network."""

from .additive_gp import AdditiveGP
from .curves import DrawComponents, component_curve
from .head import GPHead
from .iterncgp import IterNCGP
from .losses import ExpectedLogLikelihood, NegativeLogPredictiveDensity, ResponseMetric
from .training import NaturalGradientModel, SpectralBound, refit

__all__ = [
    "AdditiveGP",
    "DrawComponents",
    "ExpectedLogLikelihood",
    "GPHead",
    "IterNCGP",
    "NaturalGradientModel",
    "NegativeLogPredictiveDensity",
    "ResponseMetric",
    "SpectralBound",
    "component_curve",
    "refit",
]
