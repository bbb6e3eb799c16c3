"""
Models as TensorFlow SavedModels, ONNX or LiteRT files, served without GPflow or this package.

:func:`export` writes one, :func:`load` reads a SavedModel back here.
"""

from .export import export
from .gam import GAMServable
from .loaded import Served, load
from .model import ModelServable
from .network import NetworkServable
from .posterior import PosteriorServable
from .rows import Rows
from .servable import Input, Servable, servable

__all__ = [
    "GAMServable",
    "Input",
    "ModelServable",
    "NetworkServable",
    "PosteriorServable",
    "Rows",
    "Servable",
    "Served",
    "export",
    "load",
    "servable",
]
