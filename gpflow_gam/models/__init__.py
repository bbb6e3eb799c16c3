"""Additive models: GPflow models whose posterior has components."""

from .additive import AdditiveModel, AdditiveSGPR, AdditiveSVGP
from .iterncgp import IterNCGP

__all__ = ["AdditiveModel", "AdditiveSGPR", "AdditiveSVGP", "IterNCGP"]
