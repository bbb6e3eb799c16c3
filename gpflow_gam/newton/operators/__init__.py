"""Covariance matrices that are never held: products with them, columns of them."""

from .kernel_operator import KernelOperator
from .latents import LatentKernels, as_additive
from .pivoted_cholesky import PivotedCholesky, pivoted_cholesky
from .products import KernelProduct

__all__ = [
    "KernelOperator",
    "KernelProduct",
    "LatentKernels",
    "PivotedCholesky",
    "as_additive",
    "pivoted_cholesky",
]
