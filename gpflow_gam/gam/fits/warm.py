"""Where a fit starts that goes on from another one: its hyperparameters, and its posterior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.utilities import parameter_dict, set_trainable

from ...kernels import AdditiveKernel
from ...likelihoods import Quasi, unwrapped
from ...optimizers.binned.solution import Solution
from ..frames import Encoder, LevelColumn
from ..terms import Terms
from .build import Model
from .fitted import FittedGAM
from .specification import Specification

Marginals = tuple[AnyNDArray, AnyNDArray]
"""Mean and variance of the predictor at the rows, [N, L] each, m(x) left out."""


def carry_over(start: FittedGAM, model: Model) -> None:
    """
    Give a model the parameters of an earlier fit, where it has the same.

    Components are known by their names; those that are new stay where they start. What
    ``gpflow.set_trainable`` holds in the fit's ``trained`` is held, at the value that it has there.

    :param start: the earlier fit.
    """
    old, trained = start.model.kernel, start.trained
    for name in set(old.names) & set(model.kernel.names):
        known = {k: start.value(p) for k, p in parameter_dict(old[name]).items()}
        users = trained.kernel
        there = isinstance(users, AdditiveKernel) and name in users.names
        _carry(known, users[name] if there else None, model.kernel[name])
    own, old = unwrapped(model.likelihood), start.likelihood
    if isinstance(own, Quasi) and isinstance(old, Quasi):  # learnt, though not by the bound
        own.dispersion.assign(old.dispersion)
    known = {k: np.asarray(p) for k, p in parameter_dict(start.likelihood).items()}
    _carry(known, unwrapped(trained.likelihood), own)


def same_components(
    start: FittedGAM | None,
    terms: Terms,
    encoder: Encoder,
    X: AnyNDArray,
    names: Sequence[str],
    of_first: bool,
) -> Specification | None:
    """
    What an earlier fit was of, where another one is of the same components at the same rows.

    :param start: the earlier fit, if there is one.
    :param terms: of the other.
    :param encoder: of its columns.
    :param X: its rows, [N, D].
    :param names: its predictors, as terms name them.
    :param of_first: whether its terms without a parameter are of the first alone.
    :return: None where anything differs, or where that fit does not have all of its rows.
    """
    if start is None or start.whole is not None or not start.has_data:
        return None
    spec = start.spec
    same = (
        spec.terms == terms
        and (tuple(spec.family.parameter_names(spec.levels)), spec.family.of_first)
        == (tuple(names), of_first)
        and list(spec.encoder.columns.items()) == list(encoder.columns.items())
        and np.array_equal(start.X, X)
    )
    return spec if same else None


def has_same_sites(start: FittedGAM, spec: Specification, Y: AnyNDArray) -> bool:
    """
    Whether the sites of an earlier fit are sites of another one at the same X.

    :param start: the earlier fit.
    :param spec: of the other.
    :param Y: its response, [N, K].
    """
    old = start.spec
    return (
        old.variational == spec.variational == "sites"
        and (old.family, old.levels, old.constant) == (spec.family, spec.levels, spec.constant)
        and np.array_equal(start.Y, Y)
    )


def marginals_at(
    start: FittedGAM, spec: Specification, model: Model, X: AnyNDArray
) -> Marginals | None:
    """
    What an earlier fit says of the predictor at rows, in the unit of another model.

    :param start: the earlier fit.
    :param spec: of the other model.
    :param X: rows as that one has them, [N, D].
    :return: None where it cannot tell: rows have levels that it has not seen, or there are other
        predictors.
    """
    if start.num_predictors != len(spec.constant):
        return None
    own = _recoded(X, spec.encoder, start.spec.encoder)
    if own is None:
        return None
    if start.solution is not None and start.whole is None and np.array_equal(own, start.X):
        mean, var = marginals_of_rows(start.solution)  # far cheaper than at rows at large
        mean = mean + np.asarray(start.model.mean_function(own))
    else:
        mean, var = start.predict_link(own)
    (factor, shift), (new_factor, new_shift) = start.units, spec.family.units(model.likelihood)
    mean = (shift + factor * mean - new_shift) / new_factor
    return mean - np.asarray(model.mean_function(X)), var * np.square(factor / new_factor)


def marginals_of_rows(solution: Solution) -> Marginals:
    """What a fit says of the predictor at its own rows, by its own bins and in its own unit."""
    parts = [part[1:] for part in solution.rows.marginals(solution.values, solution.q)]
    mean, var = (np.concatenate(part) for part in zip(*parts))
    return mean, var


def _carry(known: dict[str, AnyNDArray], trained: tf.Module | None, new: tf.Module) -> None:
    """
    Parameters of a part of a model.

    :param known: as the earlier fit has them, by their paths.
    :param trained: the same part of the model that the user has; None without one.
    :param new: the part of the new model.
    """
    users = {} if trained is None else parameter_dict(trained)
    for path, parameter in parameter_dict(new).items():
        if not parameter.trainable or path not in known:
            continue
        own, value = users.get(path), known[path]
        held = own is not None and not own.trainable
        if own is not None and held:
            value = own.numpy()
        if value.shape == tuple(parameter.shape):
            parameter.assign(value)
            set_trainable(parameter, not held)


def _recoded(X: AnyNDArray, encoder: Encoder, other: Encoder) -> AnyNDArray | None:
    """Rows of X as another encoder has them; None where it does not know a level or a column."""
    found = np.zeros((len(X), other.width))
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
        found[:, i] = values
    return found
