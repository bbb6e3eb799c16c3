"""Inducing variables of additive models, and where to put them."""

from .additive import AdditiveInducingVariables
from .selection import select

__all__ = ["AdditiveInducingVariables", "select"]
