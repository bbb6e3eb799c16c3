"""Kernels: the additive one, and components of GAMs that GPflow lacks."""

from .additive import AdditiveKernel
from .columns import kernel_columns
from .factor import Factor, Indicator
from .stacked import StackedKernel, register_stacked
from .zero_mean import ZeroMean

__all__ = [
    "AdditiveKernel",
    "Factor",
    "Indicator",
    "StackedKernel",
    "ZeroMean",
    "kernel_columns",
    "register_stacked",
]
