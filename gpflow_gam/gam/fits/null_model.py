"""What is known of a response before any effect: its constant predictor, and what rows tell."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...likelihoods import Weighted, checked_observations, constant_predictor
from ...statistics.expectations import expectations
from .specification import Specification

_NULL_ROWS = 20_000
"""Rows that settle where the intercept's prior is centred."""


def beside_null_model(
    spec: Specification, X: AnyNDArray, Y: AnyNDArray, total: float
) -> Specification:
    """
    What is specified, with the constant predictor that explains the response best.

    :param X: some rows, [n, D].
    :param Y: theirs, [n, K].
    :param total: how often all rows count, together.
    """
    stride = max(len(X) // _NULL_ROWS, 1)
    spec = dataclasses.replace(spec, constant=_constant(spec, X, Y, stride))
    each = _information(spec, X[::stride], Y[::stride])
    # to a power of two, so that which rows are seen hardly matters
    spec = dataclasses.replace(spec, information=float(np.exp2(np.round(np.log2(total * each)))))
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


def _information(spec: Specification, rows: AnyNDArray, few: AnyNDArray) -> float:
    """Precision of a row's predictor under the null model, on average, in its natural size."""
    if spec.family.conjugate:  # with the noise that a fit starts at, half of the response
        return 2.0
    weights = None if spec.weights is None else rows[:, spec.place(spec.weights)]
    likelihood = spec.family.likelihood(few, spec.levels, weights)
    mean = np.tile(np.array(spec.constant), (len(rows), 1))
    for column in spec.offset:
        mean[:, 0] += rows[:, spec.place(column)]
    found = expectations(likelihood, rows, mean, np.full_like(mean, 1e-6 * spec.scale**2), few, ())
    precision = spec.scale**2 * np.mean(np.maximum(found.precision, 0.0), axis=1)
    each = float(np.average(np.where(np.isfinite(precision), precision, 0.0), weights=weights))
    return each if each > 0.0 else 1.0


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
