"""Posteriors of additive models."""

from .actions import ActionPosterior
from .base import AdditivePosterior

__all__ = ["ActionPosterior", "AdditivePosterior"]
