"""Generalized additive models with Gaussian processes, on GPflow."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .backend import require_tensorflow

require_tensorflow()  # before anything that takes long to import


@contextmanager
def _docstrings_as_written() -> Iterator[None]:
    """Keep ``check_shapes`` from adding shapes to docstrings, which is slow, but for Sphinx."""
    from check_shapes.config import get_rewrite_docstrings, set_rewrite_docstrings

    before = get_rewrite_docstrings()
    if "sphinx" not in sys.modules:
        set_rewrite_docstrings(None)
    try:
        yield
    finally:
        set_rewrite_docstrings(before)


with _docstrings_as_written():
    from . import (
        covariances,
        datasets,
        distribute,
        errors,
        gam,
        inducing_variables,
        kernels,
        layers,
        likelihoods,
        measures,
        metrics,
        models,
        newton,
        optimizers,
        posteriors,
        priors,
        sensitivity,
        serving,
        variational,
    )
    from .errors import (
        AutocorrelationWarning,
        BasisWarning,
        CheckpointWarning,
        ConvergenceWarning,
        DispersionWarning,
        ExtrapolationWarning,
        ForkedProcessError,
        HeavyTailWarning,
        IdentifiabilityWarning,
        LeaveOneOutWarning,
        MissingTermWarning,
        ResolutionWarning,
        ScaleMismatchWarning,
        ShapeWarning,
        SmoothingWarning,
    )
    from .gam import GAM, comparison, effects, families, forecast, screening, summaries, terms
    from .gam.comparison import anova_test, compare, stack
    from .gam.conformal import conformal
    from .gam.forecast import backtest
    from .gam.screening import anova
    from .gam.survival import cumulative_incidence
    from .gam.terms import Surv, factor, lag, linear, random_effect, s, te, ti
    from .newton import curvatures, operators, solvers
    from .optimizers import minimizers
    from .version import __version__

__all__ = [
    "GAM",
    "AutocorrelationWarning",
    "BasisWarning",
    "CheckpointWarning",
    "ConvergenceWarning",
    "DispersionWarning",
    "ExtrapolationWarning",
    "ForkedProcessError",
    "HeavyTailWarning",
    "IdentifiabilityWarning",
    "LeaveOneOutWarning",
    "MissingTermWarning",
    "ResolutionWarning",
    "ScaleMismatchWarning",
    "ShapeWarning",
    "SmoothingWarning",
    "Surv",
    "__version__",
    "anova",
    "anova_test",
    "backtest",
    "compare",
    "comparison",
    "conformal",
    "covariances",
    "cumulative_incidence",
    "curvatures",
    "datasets",
    "distribute",
    "effects",
    "errors",
    "factor",
    "families",
    "forecast",
    "gam",
    "inducing_variables",
    "kernels",
    "lag",
    "layers",
    "likelihoods",
    "linear",
    "measures",
    "metrics",
    "minimizers",
    "models",
    "newton",
    "operators",
    "optimizers",
    "plotting",
    "posteriors",
    "priors",
    "random_effect",
    "s",
    "screening",
    "sensitivity",
    "serving",
    "sklearn",
    "solvers",
    "stack",
    "summaries",
    "te",
    "terms",
    "ti",
    "variational",
]

_LAZY = {"plotting": ".gam.plotting", "sklearn": ".sklearn"}
"""Modules whose imports are dear, or not everybody's: matplotlib and scikit-learn's machinery."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(_LAZY[name], __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
