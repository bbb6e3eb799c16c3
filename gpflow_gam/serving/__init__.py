"""
Models as TensorFlow SavedModels, ONNX or LiteRT files, served without GPflow or this package.

:func:`export` writes one, :func:`load` reads a SavedModel back here.
"""

from . import gam, network  # noqa: F401  which teach servable()
from .export import export
from .loaded import Served, load

__all__ = ["Served", "export", "load"]
