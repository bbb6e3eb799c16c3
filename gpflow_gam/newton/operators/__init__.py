"""Covariance matrices that are never held: products with them, columns of them."""

from .kernel_operator import KernelOperator, KernelPrograms
from .latents import LatentKernels, as_additive
from .pivoted_cholesky import PivotedCholesky, pivoted_cholesky
from .pivoting import Pivoting
from .products import KernelProduct

__all__ = [
    "KernelOperator",
    "KernelProduct",
    "KernelPrograms",
    "LatentKernels",
    "PivotedCholesky",
    "Pivoting",
    "as_additive",
    "pivoted_cholesky",
]
