"""Generalized additive models with Gaussian processes, on GPflow."""

from . import (
    covariances,
    datasets,
    inducing_variables,
    kernels,
    likelihoods,
    measures,
    models,
    optimizers,
    posteriors,
    variational,
)
from .version import __version__

__all__ = [
    "__version__",
    "covariances",
    "datasets",
    "inducing_variables",
    "kernels",
    "likelihoods",
    "measures",
    "models",
    "optimizers",
    "posteriors",
    "variational",
]
