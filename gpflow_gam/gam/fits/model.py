"""From a specification to a GPflow model that starts at the null model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.utilities import deepcopy

from ...bijectors import exponential, identity
from ...likelihoods import Weighted
from ...likelihoods.expectations import constant_predictor
from ...likelihoods.support import checked_observations
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...variational import (
    BlockPrecision,
    CoupledCovariance,
    CoupledPrecision,
    MeanField,
    OptimalPrecision,
    VariationalFamily,
)
from ..components import build_inducing, build_kernel
from ..families import Family
from .data import Data, MissingData
from .specification import Specification

Model = AdditiveSGPR | AdditiveSVGP | IterNCGP

ENGINES = ("variational", "iterncgp")
"""Methods by which the posterior is found."""

MAX_SITES = 5000
"""
Inducing values up to which q is kept dense, as sites: six minutes and five gigabytes at 4200.

Blocks are far behind in the same time, in more memory, wherever both were measured.
"""
VARIATIONAL: dict[str, type[VariationalFamily]] = {
    "sites": OptimalPrecision,
    "block": BlockPrecision,
    "mean_field": MeanField,
    "covariance": CoupledCovariance,
    "precision": CoupledPrecision,
}
"""Variational families, by their names in ``variational``."""
_NULL_ROWS = 20_000
"""Rows that settle where the intercept's prior is centred."""


class OffsetMean(MeanFunction):
    """
    ``m(x) = constant + sum of the offset columns``, the offsets in the first predictor only.

    The constant is the null model's; the intercept is a component, whose prior is centred there.

    :param constant: [L].
    :param columns: places of the offsets in X.
    """

    def __init__(self, constant: TensorType, columns: Sequence[int]) -> None:
        super().__init__()
        self.constant = Parameter(constant, transform=identity(), trainable=False)
        self.columns = list(columns)

    @inherit_check_shapes
    def __call__(self, X: TensorType) -> tf.Tensor:
        X = tf.convert_to_tensor(X)
        shape = tf.concat([tf.shape(X)[:-1], tf.shape(self.constant)], axis=0)
        mean = tf.broadcast_to(tf.cast(self.constant, X.dtype), shape)
        if not self.columns:
            return mean
        offset = tf.reduce_sum(tf.gather(X, self.columns, axis=-1), axis=-1, keepdims=True)
        others = tf.zeros(tf.concat([tf.shape(X)[:-1], tf.shape(self.constant) - 1], 0), X.dtype)
        return mean + tf.concat([offset, others], axis=-1)


def choose_variational(
    family: Family,
    size: int,
    asked: str | None,
    engine: str = "variational",
    shaped: str = "",
) -> str:
    """
    The family of q(U): collapsed for Gaussian data, sites up to 5000 values, block precision.

    The other engine has none, and its name stands here.
    """
    if shaped:
        _check_shapes(asked, engine, shaped)
    if engine == "iterncgp":
        if asked is not None:
            raise ValueError(
                f"variational={asked!r} is of engine='variational'; leave one of the two out."
            )
        return engine
    if asked is not None:
        known = ("exact", *VARIATIONAL)
        if asked not in known:
            raise ValueError(f"variational must be one of {', '.join(known)}; got {asked!r}.")
        if asked == "exact" and not family.conjugate:
            raise ValueError("variational='exact' is for family='gaussian'; use 'sites'.")
        return asked
    if family.conjugate:
        return "exact"
    if shaped and size > MAX_SITES:
        raise ValueError(
            f"{shaped} has a shape, for which q is kept dense: {size} inducing values are more "
            f"than {MAX_SITES}; give terms a smaller k, or leave shape out."
        )
    return "sites" if size <= MAX_SITES else "block"


def _check_shapes(asked: str | None, engine: str, shaped: str) -> None:
    if engine == "iterncgp":
        raise ValueError(
            f"{shaped} has a shape, which engine='iterncgp' does not hold to; leave engine out."
        )
    if asked not in (None, "exact", "sites"):
        raise ValueError(
            f"{shaped} has a shape, which variational={asked!r} does not hold to; leave "
            "variational out."
        )


def build_model(spec: Specification, data: Data) -> Model:
    """
    The model, its parameters where they start.

    Of rows that are not all held as numbers it holds none: that of Gaussian data is an
    :class:`~gpflow_gam.models.AdditiveSVGP`, too, whose q is the optimal one.
    """
    predictors = spec.family.num_predictors(spec.levels)
    # copies: a term is a value, and fitting one GAM must not change another
    users = {label: deepcopy(kernel) for label, kernel in spec.own_kernels.items()}
    kernel = build_kernel(
        spec.components, spec.scale, users, predictors, spec.priors, spec.null_offset
    )
    inducing = build_inducing(spec.components, kernel, spec.encoder.width)
    mean = OffsetMean(np.array(spec.constant), [spec.place(c) for c in spec.offset])
    if isinstance(data, MissingData):
        likelihood = spec.family.likelihood(data.response, spec.levels, None)
    else:
        weights = data.columns.weights
        likelihood = spec.family.likelihood(data.responses, spec.levels, weights)
    exact = spec.variational == "exact"
    if exact:  # a noise variance in logarithms, as a response may be in any unit
        noise = Parameter(0.5 * spec.scale**2, transform=exponential())
        if data.complete:
            X, Y = data.X, data.Y
            model = AdditiveSGPR(
                (X, Y), kernel, inducing, mean_function=mean, weights=data.columns.weights
            )
            model.likelihood.variance = noise
            return model
        likelihood.variance = noise
    if spec.weights is not None:
        likelihood = Weighted(likelihood, spec.place(spec.weights))
    if spec.variational == "iterncgp":
        if kernel.members is not None:
            raise ValueError(
                "engine='iterncgp' has the same terms for all parameters; leave engine out, or "
                "give the terms once."
            )
        return IterNCGP((data.X, data.Y), kernel, likelihood, mean_function=mean, solver="newton")
    return AdditiveSVGP(
        kernel,
        likelihood,
        inducing,
        variational=OptimalPrecision() if exact else VARIATIONAL[spec.variational](),
        mean_function=mean,
        num_data=data.number,
        num_latent_gps=predictors,
    )


# --- the null model ------------------------------------------------------------------------------


def beside_null_model(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> Specification:
    """The specification, with the constant predictor that explains the response best."""
    stride = max(len(X) // _NULL_ROWS, 1)
    spec = dataclasses.replace(spec, constant=_constant(spec, X, Y, stride))
    return _without_constant(spec, Y[::stride])


def _without_constant(spec: Specification, Y: AnyNDArray) -> Specification:
    """With a constant of zero, in the response's unit, where no component has it."""
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
    null_offset = float(np.sqrt(np.mean(np.square(constant[~has]))))
    return dataclasses.replace(
        spec, constant=tuple(np.where(has, constant, 0.0)), null_offset=null_offset
    )


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
