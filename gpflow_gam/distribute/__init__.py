"""Training on several devices and hosts, with checkpoints that a restarted run goes on from."""

from .fit import fit
from .result import DistributedFit, FailedStepError, StepProgress
from .workers import LostWorkerError

__all__ = ["DistributedFit", "FailedStepError", "LostWorkerError", "StepProgress", "fit"]
