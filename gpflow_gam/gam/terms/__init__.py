"""The terms of a GAM: values that add up, know no data, and can be written down."""

from .base import (
    Column,
    ResponseSpec,
    Surv,
    Term,
    Terms,
    as_column,
    as_columns,
    as_terms,
    columns_of,
)
from .expression import Expression, variables_of
from .formula import Formula, parse_formula, parse_parameters, terms_from_json
from .parametric import (
    AllColumns,
    Levels,
    Linear,
    RandomEffect,
    Transformed,
    Variable,
    factor,
    linear,
    random_effect,
)
from .smooth import FactorSmooth, Interaction, MarkovField, Smooth, Tensor, s, te, ti

__all__ = [
    "AllColumns",
    "Column",
    "Expression",
    "FactorSmooth",
    "Formula",
    "Interaction",
    "Levels",
    "Linear",
    "MarkovField",
    "RandomEffect",
    "ResponseSpec",
    "Smooth",
    "Surv",
    "Tensor",
    "Term",
    "Terms",
    "Transformed",
    "Variable",
    "as_column",
    "as_columns",
    "as_terms",
    "columns_of",
    "factor",
    "linear",
    "parse_formula",
    "parse_parameters",
    "random_effect",
    "s",
    "te",
    "terms_from_json",
    "ti",
    "variables_of",
]
