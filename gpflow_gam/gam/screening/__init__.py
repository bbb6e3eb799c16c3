"""Which interactions a GAM of main effects lacks, without fitting them one by one."""

from .proposal import anova
from .screen import (
    Expansion,
    Features,
    evidence_gain,
    expand,
    margin_features,
    product,
    screen_interactions,
)

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
