"""Additive models: GPflow models whose posterior has components."""

from .additive import AdditiveModel, AdditiveSGPR, AdditiveSVGP, AdditiveVGP
from .iterncgp import IterNCGP

__all__ = [
    "AdditiveModel",
    "AdditiveSGPR",
    "AdditiveSVGP",
    "AdditiveVGP",
    "IterNCGP",
]
