"""What a fit reports, while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ...posteriors import AdditivePosterior


@dataclass(frozen=True)
class FitProgress:
    """The state of a running fit, as callbacks see it."""

    iteration: int
    """Iterations done, counted from 1."""

    elbo: float
    """The objective now (an epoch's mean under minibatches; the log posterior at a Newton step)."""

    seconds: float
    """Time since the fit began."""

    posterior: Callable[[], AdditivePosterior] | None = field(
        default=None, repr=False, compare=False
    )
    """Makes the posterior of what has been computed so far, a snapshot. It is to be called while
    the callback runs (later it raises RuntimeError), and takes time only where it is. ``None`` in
    fits that are not of an ``IterNCGP``: they change a model, which predicts for itself."""


Callback = Callable[[FitProgress], bool | str | None]
"""Called once an iteration; a true return value ends the fit, and a text says why."""


@dataclass(frozen=True)
class FitResult:
    """How a fit ended."""

    converged: bool
    """Whether the objective had stopped improving."""

    message: str
    """Why it ended, in words."""

    elbo: float
    """The objective at the end: the ELBO, plus the log-densities of priors where there are any. NaN
    where hyperparameters were held and the fit had no need of it."""

    num_iterations: int
    """How many iterations there were."""

    seconds: float
    """How long it took."""

    method: str
    """What was done."""

    history: AnyNDArray = field(repr=False, default_factory=lambda: np.zeros(0))
    """The objective after each iteration: under minibatches the mean of each epoch, then the steps
    on all data; under Newton steps the log posterior
    log p(y | f) + log p(f), without its constant."""

    sweeps: float | None = None
    """Passes over the kernel's entries, where kernel matrices are not held."""

    steps: list[dict[str, Any]] = field(repr=False, default_factory=list)
    """Of Newton steps, a dict each: the fields of :class:`~gpflow_gam.newton.solvers.StepReport`,
    ``seconds``, ``nlpd`` of validation data, and ``round``; ``pandas.DataFrame(result.steps)`` is a
    table."""

    discretisation: float | None = None
    """How much rounding inputs to bins adds to the noise, as a share of it, measured at a thousand
    rows: posterior means move by about its square root in posterior standard deviations. 0 where
    nothing was rounded, None for fits that do not. Predictions are at exact inputs, always."""

    interpolation: float | None = None
    """About by how many nats it matters that curves are summed up at nodes, and are interpolated
    between: the squares of what is lost there, in standard deviations of rows, added up. None for
    fits that do not."""

    interpolation_by: dict[str, float] = field(repr=False, default_factory=dict)
    """The same of each component by itself."""

    interpolation_shift: float | None = None
    """By how many of its standard errors that moves an effect, at most and to first order."""

    ended: bool = False
    """Whether time, the callback or Ctrl-C asked for the end."""
