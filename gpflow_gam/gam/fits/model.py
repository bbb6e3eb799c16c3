"""The GPflow model of a specification, at the null model or where an earlier fit ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.functions import MeanFunction
from gpflow.utilities import deepcopy, parameter_dict, set_trainable

from ...bijectors import exponential, identity
from ...kernels import AdditiveKernel
from ...likelihoods import Quasi, Weighted
from ...likelihoods.base import unwrapped
from ...likelihoods.expectations import constant_predictor
from ...likelihoods.support import checked_observations
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers.binned import bins
from ...optimizers.binned.solution import Solution
from ...variational import OptimalPrecision
from ..components import build_inducing, build_kernel
from ..families import Binomial, Ordinal
from ..frames import Encoder, Fill, LevelColumn, NumericColumn, Table, filled
from ..frames.table import merged_categories
from ..terms import Column, Expression
from .data import Data, MissingData
from .fitted import FittedGAM
from .specification import VARIATIONAL, Model, Request, Specification

_NULL_ROWS = 20_000  # rows that settle where the intercept's prior is centred


class OffsetMean(MeanFunction):
    """``m(x) = constant + sum of the offset columns``, the offsets in the first predictor only."""

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


def build_model(spec: Specification, data: Data) -> Model:
    """
    The model, its parameters where they start.

    Of rows that are not all held as numbers it holds none: that of Gaussian data is an
    :class:`~gpflow_gam.models.AdditiveSVGP`, too, whose q is the optimal one.
    """
    predictors = spec.family.num_predictors(spec.levels)
    # copies: a term is a value, and fitting one GAM must not change another
    users = {label: deepcopy(kernel) for label, kernel in spec.user_kernels.items()}
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


# --- where an earlier fit ended -------------------------------------------------------------------


Marginals = tuple[AnyNDArray, AnyNDArray]
"""Mean and variance of the predictor at the rows, [N, L] each, m(x) left out."""


def carry_over(start: FittedGAM, model: Model) -> None:
    """
    Give a model the parameters of an earlier fit, where it has the same.

    Components are known by their names; those that are new stay where they start. What
    ``gpflow.set_trainable`` holds in the fit's ``trained`` is held, at the value that it has there.
    """
    old, trained = start.model.kernel, start.trained
    for name in set(old.names) & set(model.kernel.names):
        known = {k: start.value(p) for k, p in parameter_dict(old[name]).items()}
        users = trained.kernel
        there = isinstance(users, AdditiveKernel) and name in users.names
        _carry(known, users[name] if there else None, model.kernel[name])
    new, old = unwrapped(model.likelihood), start.likelihood
    if isinstance(new, Quasi) and isinstance(old, Quasi):  # learnt, though not by the bound
        new.dispersion.assign(old.dispersion)
    known = {k: np.asarray(p) for k, p in parameter_dict(start.likelihood).items()}
    _carry(known, unwrapped(trained.likelihood), new)


def same_components(
    start: FittedGAM | None, request: Request, encoder: Encoder, data: Data, names: Sequence[str]
) -> Specification | None:
    """Specification of an earlier fit with the same components at the same rows, or None."""
    if start is None or not (start.data.complete and data.complete):
        return None
    spec = start.spec
    same = (
        spec.terms == request.terms
        and tuple(spec.family.parameter_names(spec.levels)) == tuple(names)
        and spec.family.of_first == request.family.of_first
        and list(spec.encoder.columns.items()) == list(encoder.columns.items())
        and np.array_equal(start.X, data.X)
    )
    return spec if same else None


def has_same_sites(start: FittedGAM, spec: Specification, data: Data) -> bool:
    """True if the sites of an earlier fit are sites of another one at the same X."""
    old = start.spec
    return (
        old.variational == spec.variational == "sites"
        and (old.family, old.levels, old.constant) == (spec.family, spec.levels, spec.constant)
        and (start.data is data or np.array_equal(start.Y, data.Y))
    )


def marginals_at(
    start: FittedGAM, spec: Specification, model: Model, X: AnyNDArray
) -> Marginals | None:
    """Marginals of an earlier fit's predictor at rows, in the unit of another model."""
    if start.num_predictors != len(spec.constant):
        return None
    recoded = _recoded(X, spec.encoder, start.spec.encoder)
    if recoded is None:
        return None
    if start.solution is not None and start.data.complete and np.array_equal(recoded, start.X):
        mean, var = marginals_of_rows(start.solution)  # far cheaper than at rows at large
        mean = mean + np.asarray(start.model.mean_function(recoded))
    else:
        mean, var = start.predict_link(recoded)
    (factor, shift), (new_factor, new_shift) = start.units, spec.family.units(model.likelihood)
    mean = (shift + factor * mean - new_shift) / new_factor
    return mean - np.asarray(model.mean_function(X)), var * np.square(factor / new_factor)


def marginals_of_rows(solution: Solution) -> Marginals:
    """Marginals of a fit's predictor at its own rows, by its own bins and in its own unit."""
    parts = [part[1:] for part in solution.rows.marginals(solution.values, solution.q)]
    mean, var = (np.concatenate(part) for part in zip(*parts))
    return mean, var


def _carry(known: dict[str, AnyNDArray], trained: tf.Module | None, new: tf.Module) -> None:
    """Parameters of a part of a model."""
    users = {} if trained is None else parameter_dict(trained)
    for path, parameter in parameter_dict(new).items():
        if not parameter.trainable or path not in known:
            continue
        user, value = users.get(path), known[path]
        held = user is not None and not user.trainable
        if user is not None and held:
            value = user.numpy()
        if value.shape == tuple(parameter.shape):
            parameter.assign(value)
            set_trainable(parameter, not held)


def _recoded(X: AnyNDArray, encoder: Encoder, other: Encoder) -> AnyNDArray | None:
    """Rows of X as another encoder has them; None where it does not know a level or a column."""
    result = np.zeros((len(X), other.width))
    for i, (key, reader) in enumerate(other.columns.items()):
        if key not in encoder.columns:
            return None
        values = X[:, encoder.index(*key)]
        if isinstance(reader, LevelColumn):
            codes = {level: code for code, level in enumerate(reader.levels)}
            place = np.array([codes.get(v, -1) for v in encoder.levels(key[0])], dtype=np.float64)
            values = place[values.astype(int)]
            if np.any(values < 0.0):
                return None
        result[:, i] = values
    return result


# --- rows ----------------------------------------------------------------------------------------


def check_same_criterion(fit: FittedGAM, options: dict[str, Any], asked: str = "") -> None:
    """Check that a fit does not go on by another criterion without a word."""
    criterion = options.get("criterion")
    last = "elbo" if fit.solution is None or fit.solution.hessian is None else "ncv"
    if asked and criterion == "ncv":
        raise ValueError(f"criterion='ncv': {asked} has no rows to leave out; pass {_ALL}")
    if criterion is None and last == "ncv":
        raise ValueError(
            f"criterion: the last fit was by 'ncv'; pass {_ALL} For the ELBO, which explains rows "
            "that depend on each other by rougher effects, pass criterion='elbo'."
        )


_ALL = "refit(data, criterion='ncv', groups=...) all rows and their groups."


def check_rows(fit: FittedGAM, asked: str) -> None:
    """Raise ValueError if the rows of a fit are not in this process."""
    if not fit.data.available:
        raise ValueError(
            f"{asked}: this GAM was loaded from a file without its data (save(data=False)); call "
            "refit(data) with all rows, which starts from what is known."
        )
    if fit.data.shared:
        raise ValueError(
            f"{asked}: the rows of this fit are held by several processes; fit to all of them."
        )


def joined(last: FittedGAM, data: Table) -> tuple[Table, tuple[Fill, ...]]:
    """
    The rows of a fit and further ones as one table, and what stands in for missing values in it.
    """
    spec, data = last.spec, data.counted(last.spec.counting)
    check_rows(last, "update")
    computed = [] if spec.design is None else [spec.design.text]
    names = [*(name for name, _ in spec.encoder.columns), spec.trials]
    computed += [str(name) for name in names if isinstance(name, Expression)]
    if computed:
        raise ValueError(
            f"update: of the columns that {computed[0]} is made of nothing is kept; call "
            "refit(data) with all rows, which starts from what is known."
        )
    if not last.data.complete:
        raise ValueError(
            f"update: of more than {bins.KEPT_ROWS} rows a fit keeps codes, to which no rows "
            "can be added; call refit(data) with all rows, which starts from what is known."
        )
    fills = tuple(
        Fill(f.name, f.value, f.count + int(data.missing(f.name).sum())) for f in spec.fills
    )
    return _joined(last, filled(data, fills)), fills


def _joined(fit: FittedGAM, data: Table) -> Table:
    """The rows of a fit, and others after them."""
    spec = fit.spec
    columns: dict[Column, Any] = {}
    kinds: dict[Column, set[str]] = {}
    for name, kind in spec.encoder.columns:
        kinds.setdefault(name, set()).add(kind)
    for name, uses in kinds.items():
        if "number" in uses:
            numbers = spec.encoder.columns[name, "number"]
            assert isinstance(numbers, NumericColumn)
            columns[name] = numbers.joined(fit.X[:, spec.place(name)], data)
        else:
            reader = spec.encoder.columns[name, "level"]
            assert isinstance(reader, LevelColumn)
            codes = fit.X[:, spec.encoder.index(name, "level")].astype(int)
            columns[name] = _with_levels(reader.levels, codes, data, name)
    if fit.Y.shape[1] != (1 if spec.trials is None else 2):
        raise ValueError(
            f"update: family {spec.family.name!r} has a response of several columns; call "
            "refit(data) with all rows."
        )
    if spec.levels is None:
        shares = isinstance(spec.family, Binomial) and spec.family.proportion
        values = spec.family.observed(fit.Y) if shares else fit.Y[:, 0]
        columns[spec.response] = _concatenated(values, data.values(spec.response))
    else:
        codes = fit.Y[:, 0].astype(int)
        columns[spec.response] = _labels(spec, codes, data)
    if spec.trials is not None:
        columns[spec.trials] = _concatenated(fit.Y[:, 1], data.values(spec.trials))
    return Table(columns)


def _concatenated(values: AnyNDArray, more: AnyNDArray) -> Any:
    return pd.concat([pd.Series(values), pd.Series(more)], ignore_index=True).to_numpy()


def _with_levels(levels: tuple[Any, ...], codes: AnyNDArray, data: Table, name: Column) -> Any:
    """A column of levels, in the order of a category where they have one."""
    known = np.empty(len(levels), dtype=object)
    known[:] = levels
    # by way of pandas: numpy makes whole numbers of times
    more = pd.Series(data.values(name)).astype(object).to_numpy()
    whole = np.concatenate([known[codes], more])
    order = data.levels(name)
    if order is None and levels == tuple(sorted(levels, key=lambda v: (isinstance(v, str), v))):
        return whole
    if order is None:
        order = tuple(dict.fromkeys(v for v in whole[len(codes) :] if not pd.isna(v)))
    new = [v for v in order if v not in levels]
    dtype = pd.CategoricalDtype([*levels, *new])
    if data.ordered(name):
        dtypes = [pd.CategoricalDtype(list(part), ordered=True) for part in (levels, order)]
        dtype = merged_categories(dtypes, name)
    return pd.Categorical(whole, dtype=dtype)


def _labels(spec: Specification, codes: AnyNDArray, data: Table) -> Any:
    """The response, whose labels are in the fit's order where further rows state none."""
    assert spec.levels is not None
    result = _with_levels(spec.levels, codes, data, spec.response)
    if not isinstance(spec.family, Ordinal) or data.ordered(spec.response):
        return result
    if any(isinstance(level, str) for level in spec.levels):
        known = list(spec.levels)
        new = [v for v in dict.fromkeys(np.asarray(result, dtype=object)) if v not in known]
        if any(not pd.isna(v) for v in new):
            raise ValueError(
                f"update: {spec.response!r} has the label {new[0]!r}, which is none of the fit's "
                f"({', '.join(map(repr, known))}), and no order; make it an ordered categorical of "
                "all labels."
            )
        return pd.Categorical(result, categories=known, ordered=True)
    return np.asarray(result, dtype=object)
