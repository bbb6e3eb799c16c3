"""Additive models: GPflow models whose posterior has components."""

from .base import AdditiveModel
from .iterncgp import IterNCGP
from .sgpr import AdditiveSGPR
from .svgp import AdditiveSVGP
from .vgp import AdditiveVGP

__all__ = [
    "AdditiveModel",
    "AdditiveSGPR",
    "AdditiveSVGP",
    "AdditiveVGP",
    "IterNCGP",
]
