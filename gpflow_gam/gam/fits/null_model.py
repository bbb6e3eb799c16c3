"""What is known of a response before any effect: its constant predictor, and what rows tell."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...likelihoods import Weighted, checked_observations, constant_predictor
from .specification import Specification

_NULL_ROWS = 20_000
"""Rows that settle where the intercept's prior is centred."""


def beside_null_model(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> Specification:
    """
    What is specified, with the constant predictor that explains the response best.

    :param X: some rows, [n, D].
    :param Y: theirs, [n, K].
    """
    stride = max(len(X) // _NULL_ROWS, 1)
    spec = dataclasses.replace(spec, constant=_constant(spec, X, Y, stride))
    return _without_constant(spec, Y[::stride])


def _without_constant(spec: Specification, Y: AnyNDArray) -> Specification:
    """
    With a constant of zero, in the response's unit, where no component has it.

    :raises ValueError: zero depends on the response's unit.
    """
    constant = np.array(spec.constant)
    has = spec.has_constant(spec.names)
    if has.all():
        return spec
    _, shift = spec.family.units(spec.family.likelihood(Y, spec.levels))
    names = spec.family.parameter_names(spec.levels)
    for i in np.flatnonzero(~has & (np.broadcast_to(shift, has.shape) != 0.0)):
        raise ValueError(
            f"terms: the predictor of {names[i]!r} is a logarithm of what has the response's unit, "
            "and is nowhere zero by itself; leave its intercept in."
        )
    away = float(np.sqrt(np.mean(np.square(constant[~has]))))
    return dataclasses.replace(spec, constant=tuple(np.where(has, constant, 0.0)), away=away)


def _constant(spec: Specification, X: AnyNDArray, Y: AnyNDArray, stride: int) -> tuple[float, ...]:
    """The constant predictor [L] that explains the response best, beside the offsets."""
    rows, few = X[::stride], Y[::stride]
    L = spec.family.num_predictors(spec.levels)
    offset = np.zeros((len(rows), L))
    for column in spec.offset:
        offset[:, 0] += rows[:, spec.place(column)]
    weights = None if spec.weights is None else rows[:, spec.place(spec.weights)]
    known = spec.family.null(few, offset[:, 0], weights)
    if known is not None:
        return tuple(known.tolist())
    # of all rows, whose unit the fit's likelihood has
    every = None if spec.weights is None else X[:, spec.place(spec.weights)]
    likelihood = spec.family.likelihood(Y, spec.levels, every)
    if spec.weights is not None:
        likelihood = Weighted(likelihood, spec.place(spec.weights))
    constant = constant_predictor(
        likelihood, tf.constant(rows), checked_observations(few, likelihood), offset, L
    )
    return tuple(np.asarray(constant)[0].tolist())
