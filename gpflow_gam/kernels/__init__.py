"""Kernels: the additive one, and components of GAMs that GPflow lacks."""

from .additive import AdditiveKernel
from .columns import kernel_columns
from .factor import Factor, Indicator
from .integrated import IntegratedOU
from .linear import CentredLinear
from .markov_field import MarkovField, structured_covariance
from .on_columns import OnColumns
from .random_walk import RandomWalk
from .separate import SeparateAdditive
from .shaped import Shaped
from .sphere import OnSphere
from .stacked import StackedKernel, register_stacked
from .warped import Warped
from .zero_mean import ZeroMean

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
    "SeparateAdditive",
    "Shaped",
    "StackedKernel",
    "Warped",
    "ZeroMean",
    "kernel_columns",
    "register_stacked",
    "structured_covariance",
]
