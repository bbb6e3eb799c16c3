"""Dependence of predictions on inputs: functional ANOVA and Sobol indices."""

from .anova import FunctionalANOVA, functional_anova
from .variances import VarianceDraws

__all__ = ["FunctionalANOVA", "VarianceDraws", "functional_anova"]
