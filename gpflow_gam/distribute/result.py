"""What a distributed fit reports, while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import keras
import numpy as np
from gpflow.base import AnyNDArray

from ..models import AdditiveSVGP

Model: TypeAlias = "AdditiveSVGP | keras.Model"


class FailedStepError(RuntimeError):
    """A step could not be computed, or came out NaN or infinite."""


@dataclass(frozen=True)
class StepProgress:
    """The state of a running fit, as callbacks see it."""

    step: int
    """Steps done, counted from 1 over all restarts."""

    loss: float
    """Of the step's batch, at the parameters before the step."""

    seconds: float
    """Time since this start of the fit."""

    model: Model = field(repr=False)
    """The model that is being fitted."""

    epoch: Mapping[str, AnyNDArray] = field(default_factory=dict)
    """
    What compiled metrics and validation data of a Keras model came to, where an epoch ended at this
    step: `loss`, `val_loss` and so on; nothing at other steps.
    """


Callback = Callable[[StepProgress], bool | None]
"""
Called once a step, or a call of several, on every worker; a true return value on any of them ends
the fit on all.
"""


@dataclass(frozen=True)
class DistributedFit:
    """How a distributed fit ended. Equal on every worker, but for the time."""

    model: Model
    """The fitted model; its variables live on the replicas and are read as any others are."""

    history: AnyNDArray = field(repr=False, default_factory=lambda: np.zeros(0))
    """The loss of each step's batch, from the first step on, restarts or not [steps]."""

    epochs: Mapping[str, AnyNDArray] = field(repr=False, default_factory=dict)
    """
    As the history of Keras's ``fit``: of each epoch that has ended the mean `loss` of its steps,
    compiled metrics by their names, and the same of validation data as `val_loss` and so on
    [epochs]. Empty where the data do not say how long an epoch is and ``steps_per_epoch`` does not,
    either.
    """

    resumed_from: int = 0
    """The step of the checkpoint that this start went on from; 0 without one."""

    seconds: float = 0.0
    """How long this start took."""
