"""Generalized additive models with Gaussian processes, on GPflow."""

import importlib
from types import ModuleType

from . import (
    covariances,
    curvatures,
    datasets,
    distribute,
    effects,
    families,
    inducing_variables,
    kernels,
    layers,
    likelihoods,
    measures,
    metrics,
    minimizers,
    models,
    operators,
    optimizers,
    posteriors,
    screening,
    sensitivity,
    serving,
    solvers,
    summaries,
    terms,
    variational,
)
from .gam import GAM
from .screening import anova
from .terms import factor, linear, random_effect, s, te, ti
from .version import __version__

__all__ = [
    "GAM",
    "__version__",
    "anova",
    "covariances",
    "curvatures",
    "datasets",
    "distribute",
    "effects",
    "factor",
    "families",
    "inducing_variables",
    "kernels",
    "layers",
    "likelihoods",
    "linear",
    "measures",
    "metrics",
    "minimizers",
    "models",
    "operators",
    "optimizers",
    "plotting",
    "posteriors",
    "random_effect",
    "s",
    "screening",
    "sensitivity",
    "serving",
    "sklearn",
    "solvers",
    "summaries",
    "te",
    "terms",
    "ti",
    "variational",
]

_LAZY = ("plotting", "sklearn")
"""Modules whose imports are dear, or not everybody's: matplotlib and scikit-learn's machinery."""


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
