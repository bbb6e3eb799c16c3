"""Components: terms made concrete by data, and the kernels and inducing variables they become."""

from .kernels import Stated, build_inducing, build_kernel, interaction_margin, positive_parameter
from .plan import (
    INTERCEPT,
    By,
    Component,
    Margin,
    elements_of,
    entering,
    keys_of,
    learn_encoder,
    plan_columns,
    shaped_term,
)

__all__ = [
    "INTERCEPT",
    "By",
    "Component",
    "Margin",
    "Stated",
    "build_inducing",
    "build_kernel",
    "elements_of",
    "entering",
    "interaction_margin",
    "keys_of",
    "learn_encoder",
    "plan_columns",
    "positive_parameter",
    "shaped_term",
]
