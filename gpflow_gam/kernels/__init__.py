"""Kernels: the additive one, and components of GAMs that GPflow lacks."""

from .additive import AdditiveKernel, StackedKernel, register_stacked
from .correlation import kernel_columns
from .shaped import Shaped
from .summed import Summed
from .terms import (
    CentredLinear,
    Factor,
    Indicator,
    IntegratedOU,
    MarkovField,
    OnColumns,
    OnSphere,
    RandomWalk,
    Warped,
    ZeroMean,
    structured_covariance,
)

__all__ = [
    "AdditiveKernel",
    "CentredLinear",
    "Factor",
    "Indicator",
    "IntegratedOU",
    "MarkovField",
    "OnColumns",
    "OnSphere",
    "RandomWalk",
    "Shaped",
    "StackedKernel",
    "Summed",
    "Warped",
    "ZeroMean",
    "kernel_columns",
    "register_stacked",
    "structured_covariance",
]
