"""Posteriors of additive models."""

from . import dispatch as _dispatch  # noqa: F401  registers with GPflow
from .base import AdditivePosterior
from .data import DataAdditivePosterior
from .sparse import SparseAdditivePosterior

__all__ = ["AdditivePosterior", "DataAdditivePosterior", "SparseAdditivePosterior"]
