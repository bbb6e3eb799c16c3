"""Components: terms made concrete by data, and the kernels and inducing variables they become."""

from .component import By, Component, Margin
from .inducing import shaped_term
from .kernels import build_inducing, build_kernel, interaction_margin
from .plan import INTERCEPT, entering, keys_of, learn_encoder, plan_columns
from .priors import positive_parameter

__all__ = [
    "INTERCEPT",
    "By",
    "Component",
    "Margin",
    "build_inducing",
    "build_kernel",
    "entering",
    "interaction_margin",
    "keys_of",
    "learn_encoder",
    "plan_columns",
    "positive_parameter",
    "shaped_term",
]
