"""Keras 3 layers: an additive Gaussian process as the head of a network."""

from .additive_gp import AdditiveGP
from .callbacks import DrawComponents
from .curves import component_curve
from .head import GPHead
from .iterncgp import IterNCGP
from .losses import ExpectedLogLikelihood, NegativeLogPredictiveDensity, ResponseMetric
from .natural_gradients import NaturalGradientModel
from .refit import refit
from .spectral_bound import SpectralBound

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
