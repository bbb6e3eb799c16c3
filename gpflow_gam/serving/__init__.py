"""
Models as TensorFlow SavedModels, ONNX or LiteRT files, served without GPflow or this package.

:func:`export` writes one, :func:`load` reads a SavedModel back here.
"""

from .export import Served, export, load

__all__ = ["Served", "export", "load"]
