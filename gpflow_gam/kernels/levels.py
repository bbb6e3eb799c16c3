"""Which kernels are functions of codes alone."""

from __future__ import annotations

from gpflow.kernels import Constant, Kernel, Product, Sum

from .factor import Factor, Indicator
from .markov_field import MarkovField
from .on_columns import OnColumns
from .zero_mean import ZeroMean


def only_levels(kernel: Kernel) -> bool:
    """
    Whether ``kernel`` is one of finitely many levels: of a factor, of regions, of a constant.

    Inducing inputs at all its levels then say all there is to know of it.

    :param kernel: any.
    """
    if type(kernel) in (Sum, Product):
        return all(only_levels(part) for part in kernel.kernels)
    if type(kernel) in (ZeroMean, OnColumns):
        return only_levels(kernel.base)
    return type(kernel) in (Constant, Factor, Indicator, MarkovField)
