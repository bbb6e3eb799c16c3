"""Families of the Gaussian q(U) over all components' inducing values."""

from .base import VariationalFamily
from .block_precision import BlockPrecision
from .coupled_covariance import CoupledCovariance
from .coupled_precision import CoupledPrecision
from .gaussian import BlockGaussian, DenseGaussian, WhitenedGaussian
from .mean_field import MeanField
from .optimal_precision import OptimalPrecision

__all__ = [
    "BlockGaussian",
    "BlockPrecision",
    "CoupledCovariance",
    "CoupledPrecision",
    "DenseGaussian",
    "MeanField",
    "OptimalPrecision",
    "VariationalFamily",
    "WhitenedGaussian",
]
