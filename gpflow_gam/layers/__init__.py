"""Keras 3 layers: an additive Gaussian process as the head of a network."""

from .additive_gp import AdditiveGP
from .effects import DrawComponents
from .head import GPHead
from .iterncgp import IterNCGP
from .spectral import SpectralBound

__all__ = [
    "AdditiveGP",
    "DrawComponents",
    "GPHead",
    "IterNCGP",
    "SpectralBound",
]
