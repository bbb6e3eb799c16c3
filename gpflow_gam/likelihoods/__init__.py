"""What models ask of a GPflow likelihood beyond its own interface."""

from .sites import constant_predictor, expectation_gradients
from .support import checked_data, checked_inputs, register_support

__all__ = [
    "checked_data",
    "checked_inputs",
    "constant_predictor",
    "expectation_gradients",
    "register_support",
]
