"""What predictors are measured in."""

from __future__ import annotations

from gpflow.base import Parameter, TensorType
from gpflow.utilities import positive


def fixed_unit(unit: TensorType) -> Parameter:
    """
    A positive number that is saved with a model and never learnt.

    :param unit: in that of the response, a scalar.
    """
    return Parameter(unit, transform=positive(lower=0.0, base="exp"), trainable=False)
