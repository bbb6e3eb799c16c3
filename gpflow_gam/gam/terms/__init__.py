"""The terms of a GAM: values that add up, know no data, and can be written down."""

from .base import Surv, Terms
from .formula import parse_formula
from .parametric import factor, linear, random_effect
from .smooth import lag, s, te, ti

__all__ = [
    "Surv",
    "Terms",
    "factor",
    "lag",
    "linear",
    "parse_formula",
    "random_effect",
    "s",
    "te",
    "ti",
]
