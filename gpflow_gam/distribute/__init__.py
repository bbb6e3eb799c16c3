"""Training on several devices and hosts, with checkpoints that a restarted run goes on from."""

from .training import DistributedFit, FailedStepError, StepProgress, fit
from .workers import LostWorkerError

__all__ = ["DistributedFit", "FailedStepError", "LostWorkerError", "StepProgress", "fit"]
