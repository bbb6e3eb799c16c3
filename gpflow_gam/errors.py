"""
Warnings of fits and predictions, a class each, so that each can be silenced or made an error.

``warnings.simplefilter("error", gpflow_gam.ConvergenceWarning)`` does the latter. All are
``UserWarning``, and a fit warns of a thing once. Also the error of processes that cannot compute,
packages that may not be there, and checks of arguments that many functions take.
"""

from __future__ import annotations

import importlib
import math
import numbers
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_HERE = str(Path(__file__).parent)


class AutocorrelationWarning(UserWarning):
    """Residuals of neighbouring rows are alike: standard errors are too small."""


class BasisWarning(UserWarning):
    """A term asked for a spline basis of mgcv's, and is a Gaussian process."""


class CheckpointWarning(UserWarning):
    """The state of a fit could not be written to its file."""


class ConvergenceWarning(UserWarning):
    """A fit ended before it had stopped improving."""


class DispersionWarning(UserWarning):
    """Responses scatter more than their family allows: standard errors are too small."""


class ExtrapolationWarning(UserWarning):
    """A prediction is far outside the data that the model was fitted to."""


class IdentifiabilityWarning(UserWarning):
    """Two terms, a term and the noise, or two values of a column are the same thing to a model."""


class LeaveOneOutWarning(UserWarning):
    """Rows could not be left out of a fit, and were predicted from the prior."""


class MissingTermWarning(UserWarning):
    """The terms leave out what another of them takes for granted."""


class ResolutionWarning(UserWarning):
    """A rough function has fewer inducing inputs than its column values, or events few times."""


class ShapeWarning(UserWarning):
    """The data speak against the shape that a term was asked to have."""


class SmoothingWarning(UserWarning):
    """The loss of a quantile is smoothed over more than the noise of most rows."""


class HeavyTailWarning(UserWarning):
    """The far tail of a very uncertain predictor makes a mean, or would make a standard error."""


class ScaleMismatchWarning(UserWarning):
    """Columns of very different ranges share one lengthscale."""


class ForkedProcessError(RuntimeError):
    """This process was forked from one in which TensorFlow was at work, and cannot compute."""


class NotPositiveDefinite(Exception):
    """A kernel matrix, or a posterior's precision, that does not factorise."""


def warn_caller(text: str, kind: type[UserWarning]) -> None:
    """Warn at the line outside of this package that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)


def imported(name: str, what: str, install: str) -> Any:
    """A module of an optional package; raises ImportError that says how that is installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{what} needs {name} ({error}): pip install {install}.") from error


def plain_number(value: Any) -> Any:
    """A number of numpy's as Python has it, which files can hold; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def check_level(level: float, argument: str = "level") -> None:
    """Raise ValueError unless it is a probability between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"{argument} must be a probability between 0 and 1; got {level}.")


def check_count(argument: str, value: object, least: int = 1) -> None:
    """Raise ValueError unless it is a whole number of at least ``least``, or None for a default."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if value is not None and not (whole and int(value) >= least):  # type: ignore[call-overload]
        raise ValueError(f"{argument} must be a whole number of at least {least}; got {value!r}.")


def check_positive(argument: str, value: float) -> None:
    """Raise ValueError unless it is positive and finite."""
    if not 0.0 < value < math.inf:
        raise ValueError(f"{argument} must be positive and finite; got {value}.")


def check_choice(argument: str, value: object, choices: Iterable[object]) -> None:
    """Raise ValueError unless it is one of the choices."""
    *others, last = choices
    if value != last and value not in others:
        shown = ", ".join(map(repr, others))
        raise ValueError(f"{argument} must be {shown} or {last!r}; got {value!r}.")
