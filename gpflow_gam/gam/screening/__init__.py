"""Which interactions a GAM of main effects lacks, without fitting them one by one."""

from .expansion import Expansion, expand
from .features import Features, margin_features, product
from .gain import evidence_gain
from .proposal import anova
from .screen import screen_interactions

__all__ = [
    "Expansion",
    "Features",
    "anova",
    "evidence_gain",
    "expand",
    "margin_features",
    "product",
    "screen_interactions",
]
