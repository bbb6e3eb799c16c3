"""Kernels: the additive one, and components of GAMs that GPflow lacks."""

from .additive import AdditiveKernel
from .columns import kernel_columns
from .factor import Factor, Indicator
from .linear import CentredLinear
from .markov_field import MarkovField, structured_covariance
from .on_columns import OnColumns
from .separate import SeparateAdditive
from .stacked import StackedKernel, register_stacked
from .zero_mean import ZeroMean

__all__ = [
    "AdditiveKernel",
    "CentredLinear",
    "Factor",
    "Indicator",
    "MarkovField",
    "OnColumns",
    "SeparateAdditive",
    "StackedKernel",
    "ZeroMean",
    "kernel_columns",
    "register_stacked",
    "structured_covariance",
]
