"""Interactions that a GAM of main effects lacks, found without fitting them one by one."""

from .proposal import anova
from .screen import screen_interactions

__all__ = ["anova", "screen_interactions"]
