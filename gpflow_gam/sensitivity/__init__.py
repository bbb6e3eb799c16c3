"""Dependence of predictions on inputs: functional ANOVA and Sobol indices."""

from .anova import FunctionalANOVA, functional_anova
from .grid import VarianceDraws

__all__ = ["FunctionalANOVA", "VarianceDraws", "functional_anova"]
