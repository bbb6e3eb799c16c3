"""Training on several devices and hosts, with checkpoints that a restarted run goes on from."""

from .fit import DistributedFit, StepProgress, fit
from .training import FailedStepError
from .workers import LostWorkerError

__all__ = ["DistributedFit", "FailedStepError", "LostWorkerError", "StepProgress", "fit"]
