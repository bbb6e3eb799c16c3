"""Covariances of inducing values: in blocks for us, dense for GPflow's own models."""

from .blocks import Features, InducingBlocks
from .dispatch import kuf_additive, kuu_additive

__all__ = ["Features", "InducingBlocks", "kuf_additive", "kuu_additive"]
