"""Kernels: the additive one, and components of GAMs that GPflow lacks."""

from .additive import AdditiveKernel
from .columns import kernel_columns
from .factor import Factor, Indicator
from .linear import CentredLinear
from .on_columns import OnColumns
from .separate import SeparateAdditive
from .shaped import Shaped
from .stacked import StackedKernel, register_stacked
from .zero_mean import ZeroMean

__all__ = [
    "AdditiveKernel",
    "CentredLinear",
    "Factor",
    "Indicator",
    "OnColumns",
    "SeparateAdditive",
    "Shaped",
    "StackedKernel",
    "ZeroMean",
    "kernel_columns",
    "register_stacked",
]
