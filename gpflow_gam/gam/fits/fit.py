"""Fits: the model of a specification, where it begins, and how it is fitted."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.utilities import parameter_dict, set_trainable

from ... import optimizers
from ...bijectors import exponential
from ...errors import NotPositiveDefinite, check_choice
from ...kernels import AdditiveKernel
from ...kernels.correlation import in_double_precision
from ...likelihoods import Autoregressive, Quasi, Weighted
from ...likelihoods.base import checked_observations, unwrapped
from ...likelihoods.expectations import constant_predictor
from ...models import AdditiveModel, AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import Checkpoint, FitResult, Solution, TimeBudget
from ...optimizers.binned import bins
from ...optimizers.binned.bins import FEW_ROWS, FINE_BINS
from ...optimizers.binned.cavities import Neighbourhoods
from ...optimizers.binned.evidence import PseudoData
from ...optimizers.binned.passes import Rows
from ...optimizers.laplace import sample_chains
from ...variational import OptimalPrecision
from ..components.kernels import build_inducing, build_kernel
from ..components.plan import Component, entering, plan_columns, shaped_term
from ..families import Binomial, Ordinal
from ..families.encoding import Sample
from ..frames.encoding import Encoder, Fill, LevelColumn, NumericColumn, filled
from ..frames.table import Table, check_no_place, concatenated
from ..terms.base import Column, Expression, as_column
from .data import Data, HeldData, MissingData
from .fitted import FittedGAM
from .reading import (
    IN_MEMORY,
    EncodedRows,
    Reading,
    check_roles,
    first_rows,
    read,
    read_table,
    with_trials,
    with_variables,
)
from .specification import (
    FADING,
    POSITION,
    VARIATIONAL,
    Model,
    Request,
    Specification,
    check_has,
    check_response,
    check_together,
    choose_variational,
    explained,
    needs_all_rows,
    too_many,
    with_positions,
)

_NULL_ROWS = 20_000  # rows that settle where the intercept's prior is centred


@in_double_precision()
def build_model(spec: Specification, data: Data) -> Model:
    """The model, its parameters where they start."""
    # Of rows that are not all held as numbers it holds none: that of Gaussian data is an
    # AdditiveSVGP, too, whose q is the optimal one.
    predictors = spec.family.num_predictors(spec.levels)
    mean, exact, units = spec.mean_function(), spec.variational == "exact", np.ones(predictors)
    collapsed = exact and data.complete and spec.ar1 is None
    if not collapsed:  # a model of these has its own
        if isinstance(data, MissingData):
            likelihood = spec.family.likelihood(data.response, spec.levels, None)
        else:
            weights = data.columns.weights
            likelihood = spec.family.likelihood(data.responses, spec.levels, weights)
        units = np.broadcast_to(spec.family.units(likelihood)[0], predictors)
    of = spec.components, spec.terms, spec.scale, predictors, spec.priors, spec.null_offset
    kernel = build_kernel(*of, units, spec.information)
    inducing = build_inducing(spec.components, kernel, spec.encoder.width)
    if exact:  # a noise variance in logarithms, as a response may be in any unit
        noise = Parameter(0.5 * spec.scale**2, transform=exponential())
        if collapsed:
            given: dict[str, Any] = {"mean_function": mean, "weights": data.columns.weights}
            model = AdditiveSGPR((data.X, data.Y), kernel, inducing, **given)
            model.likelihood.variance = noise
            return model
        if spec.ar1 is not None:
            likelihood = Autoregressive(spec.place(POSITION))
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
    offset[:, 0] = rows[:, [spec.place(column) for column in spec.offset]].sum(axis=1)
    known = spec.family.null(few, offset[:, 0], spec.weights_of(rows))
    if known is not None:
        return tuple(known.tolist())
    # of all rows, whose unit the fit's likelihood has
    likelihood = spec.family.likelihood(Y, spec.levels, spec.weights_of(X))
    if spec.weights is not None:
        likelihood = Weighted(likelihood, spec.place(spec.weights))
    Y = checked_observations(few, likelihood)
    constant = constant_predictor(likelihood, tf.constant(rows), Y, offset, L)
    return tuple(np.asarray(constant)[0].tolist())


def _information(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Average information [L] of rows on predictors in the null model, which priors refer to."""
    weights = spec.weights_of(X)
    likelihood = spec.family.likelihood(Y, spec.levels, weights)
    Y, F, x = checked_observations(Y, likelihood), spec.mean_function()(X), tf.constant(X)
    F, weight, step = np.asarray(F), 1.0 if weights is None else weights, 1e-3 * spec.scale
    result = np.zeros(F.shape[1])
    for i in range(len(result)):
        there = [F + step * np.eye(len(result))[i] * sign for sign in (-1.0, 0.0, 1.0)]
        low, here, high = (np.asarray(likelihood.log_prob(x, f, Y)) for f in there)
        result[i] = -np.mean(weight * (low - 2.0 * here + high)) / step**2
    return np.maximum(result, 1e-8 / spec.scale**2)


# --- where an earlier fit ended -------------------------------------------------------------------


Marginals = tuple[AnyNDArray, AnyNDArray]
"""Mean and variance of the predictor at the rows, [N, L] each, m(x) left out."""


def carry_over(start: FittedGAM, model: Model) -> None:
    """Give a model the parameters of an earlier fit, where it has the same."""
    # Components are known by their names; those that are new stay where they start. What
    # gpflow.set_trainable holds in the user's model is held, at the value that it has there.
    old, changed = start.model.kernel, start.model if start.users_copy is None else start.users_copy
    users, own = changed.kernel, {c.name for c in start.spec.components if c.form == "own"}
    for name in set(old.names) & set(model.kernel.names):
        known = {k: start.value(p) for k, p in parameter_dict(old[name]).items()}
        there = isinstance(users, AdditiveKernel) and name in users.names
        _carry(known, users[name] if there else None, model.kernel[name], name in own)
    new, last = unwrapped(model.likelihood), unwrapped(changed.likelihood)
    if isinstance(new, Quasi) and isinstance(last, Quasi):  # learnt, though not by the bound
        new.dispersion.assign(last.dispersion)
    known = {k: np.asarray(p) for k, p in parameter_dict(start.likelihood).items()}
    _carry(known, last, new)


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
        fitted = start.solution  # at its own rows, by their bins, far cheaper than at rows at large
        parts = [part[1:] for part in fitted.rows.marginals(fitted.values, fitted.q)]
        mean, var = (np.concatenate(part) for part in zip(*parts))
        mean = mean + np.asarray(start.model.mean_function(recoded))
    else:
        mean, var = start.predict_link(recoded)
    (factor, shift), (new_factor, new_shift) = start.units, spec.family.units(model.likelihood)
    mean = (shift + factor * mean - new_shift) / new_factor
    return mean - np.asarray(model.mean_function(X)), var * np.square(factor / new_factor)


def _carry(
    known: dict[str, AnyNDArray], changed: tf.Module | None, new: tf.Module, own: bool = False
) -> None:
    users = {} if changed is None else parameter_dict(changed)
    for path, parameter in parameter_dict(new).items():
        # what is held from the start is of the data, but for kernels of the user's own
        if path not in known or not (parameter.trainable or own):
            continue
        user, value = users.get(path), known[path]
        held = not (parameter if user is None else user).trainable
        if user is not None and held:
            value = user.numpy()
        if value.shape == tuple(parameter.shape):
            parameter.assign(value)
            if user is not None and held and user.transform == parameter.transform:  # to the bit
                parameter.unconstrained_variable.assign(user.unconstrained_variable)
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


@in_double_precision()
def with_chains(fit: FittedGAM, seed: int) -> FittedGAM:
    """The fit, with chains of its hyperparameters."""
    solution, model = fit.solution, fit.model
    assert solution is not None
    assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
    if solution.bound is None and not len(solution.rounds.hyperparameters):
        return fit  # there is nothing to draw
    chains = sample_chains(model, solution, seed)
    return dataclasses.replace(fit, _solution=dataclasses.replace(solution, chains=chains))


def check_same_criterion(fit: FittedGAM, options: dict[str, Any], asked: str = "") -> None:
    """Check that a fit does not go on by another criterion without a word."""
    criterion = options.get("criterion")
    if asked and criterion == "ncv":
        raise ValueError(f"criterion='ncv': {asked} has no rows to leave out; pass {_ALL}")
    if criterion is None and fit.criterion == "ncv":
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


def joined(last: FittedGAM, data: Table, forget: float = 1.0) -> tuple[Table, tuple[Fill, ...]]:
    """Rows of a fit and further ones as one table, and what stands in for missing values in it."""
    spec, data = last.spec, data.counted(last.spec.counting)
    check_rows(last, "update")
    if spec.ar1 is not None:
        raise ValueError("update: ar1 needs all rows' times; call refit(data) with all rows.")
    computed = [] if spec.design is None else [spec.design.text]
    names = [*(name for name, _ in spec.encoder.columns), spec.trials]
    computed += [str(name) for name in names if isinstance(name, Expression)]
    computed += [c.name for c in spec.components if c.slots]
    if computed:
        instead = (
            ", or fit to a column of what is computed (of cbind: trials=, or shares, weights=)"
        )
        raise ValueError(
            f"update: of the columns that {computed[0]} is made of nothing is kept; call "
            "refit(data) with all rows, which starts from what is known"
            f"{'' if computed[0] in spec.names else instead}."
        )
    if not last.data.complete:
        raise ValueError(
            f"update: of more than {bins.KEPT_ROWS} rows a fit keeps codes, to which no rows "
            "can be added; call refit(data) with all rows, which starts from what is known."
        )
    if last.Y.shape[1] != (1 if spec.trials is None else 2):
        raise ValueError(
            f"update: family {spec.family.name!r} has a response of several columns; call "
            "refit(data) with all rows."
        )
    fills = tuple(
        Fill(f.name, f.value, f.count + int(data.missing(f.name).sum())) for f in spec.fills
    )
    data = _in_order(spec, filled(data, fills))
    spec.encoder.check_places(data, spec.encoder.columns)
    return concatenated([_decoded(last, data, forget), data]), fills


def _decoded(fit: FittedGAM, others: Table, forget: float) -> Table:
    """The rows of a fit, with categories where other rows have them or levels are not sorted."""
    spec = fit.spec
    columns: dict[Column, Any] = {}

    def levels(name: Column, reader: LevelColumn, codes: AnyNDArray) -> None:
        values, known = reader.shown(codes), reader.levels
        in_order = known == tuple(sorted(known, key=lambda v: (isinstance(v, str), v)))
        stated = others.levels(name) is not None or not in_order
        dtype = pd.CategoricalDtype(list(known), others.ordered(name))
        columns[name] = pd.Categorical(values, dtype=dtype) if stated else values

    for i, ((name, _), reader) in enumerate(spec.encoder.columns.items()):
        if isinstance(reader, NumericColumn):
            columns[name] = reader.shown(fit.X[:, i])
        elif (name, "number") not in spec.encoder.columns:
            levels(name, reader, fit.X[:, i])
    if spec.levels is not None:
        levels(spec.response, LevelColumn(spec.response, spec.levels), fit.Y[:, 0])
    else:
        shares = isinstance(spec.family, Binomial) and spec.family.proportion
        columns[spec.response] = spec.family.observed(fit.Y) if shares else fit.Y[:, 0]
    if spec.trials is not None:
        columns[spec.trials] = fit.Y[:, 1]
    weights = spec.weights or (FADING if FADING in others else None)
    return Table(columns if weights is None else {**columns, weights: forget * fit.weights})


def _in_order(spec: Specification, data: Table) -> Table:
    """Further rows, with the fit's order of an ordinal response where they state none."""
    name, known = spec.response, list(spec.levels or ())
    text = any(isinstance(level, str) for level in known)
    if not (isinstance(spec.family, Ordinal) and text) or data.ordered(name):
        return data
    values = data.values(name)
    new = [v for v in dict.fromkeys(values.tolist()) if v not in known and not pd.isna(v)]
    if new:
        raise ValueError(
            f"update: {name!r} has the label {new[0]!r}, which is none of the fit's "
            f"({', '.join(map(repr, known))}), and no order; make it an ordered categorical of "
            "all labels."
        )
    ordered = pd.Categorical(values, categories=known, ordered=True)
    return data.beside({name: ordered})


WITHOUT_NOISE = ("poisson", "binomial", "zero_inflated_poisson", "hurdle_poisson")
"""Families in which a row by itself tells its mean from its noise."""
BY_SUMS = ("exact", "sites")  # families of q(U) that sums over rows serve
MAX_LOSS = 1e-3
"""Share by which bins may add to the noise: estimates then move by .03 standard deviations."""
MAX_INTERPOLATED = 0.1  # nats by which interpolation between nodes may matter
_MAX_EXACT = 20_000
"""Rows up to which every value may be its own bin: then a pass costs what a dense one does."""
_MOST_SHIFTED = 0.5
"""Standard errors of an effect beyond which it is said that fine nodes do not do."""
_OVERFLOW = float(np.log(np.finfo(np.float64).max))
_OF_ALL = ("max_seconds", "max_iterations", "progress", "on_interrupt")
"""Options that a fit shares with one that it goes on from."""


@in_double_precision()
def fit_gam(
    request: Request,
    source: Any,
    start: FittedGAM | None = None,
    posterior: str = "laplace",
    **options: Any,
) -> FittedGAM:
    """Fit a GAM to data in memory or in blocks."""
    check_choice("on_interrupt", options.get("on_interrupt", "raise"), ("raise", "keep"))
    check_together(request, options, posterior)
    budget = options["max_seconds"] = TimeBudget.of(options.get("max_seconds"))
    request = dataclasses.replace(request, progress=options.get("progress"), budget=budget)
    source = with_positions(request, source)
    check_roles(request, source)
    request = with_trials(request, source)
    initial = request.family.initial_family
    if initial is not None and start is None:
        first = {name: options[name] for name in _OF_ALL if name in options}
        if options.get("checkpoint") is not None:  # which begins where the next call does, too
            first.pop("max_iterations", None)
        start = fit_gam(dataclasses.replace(request, family=initial), source, **first)
    terms = with_variables(request.terms, lambda: first_rows(source, request))
    request = dataclasses.replace(request, terms=terms)
    needs = needs_all_rows(request, options)
    if options.get("checkpoint") is not None:
        model = repr([terms.to_json(), request.family, request.ar1, request.variational])
        options["checkpoint"] = Checkpoint.of(options["checkpoint"], model)
    criterion, groups = options.pop("criterion", "elbo"), options.pop("groups", None)
    reading = read(source, request, needs)
    spec = specify(reading, start)
    if spec.variational not in BY_SUMS and not reading.rows.data.complete:
        if not isinstance(source, Table):
            raise ValueError(too_many(IN_MEMORY))
        reading = read_table(source, request, True)
        spec = specify(reading, start)
    options |= {"seed": request.seed}
    options["folds"] = None if criterion == "elbo" else _neighbourhoods(groups, reading)
    return fit_from_null_model(reading.rows, spec, start, **options)


def fit_from_null_model(
    rows: EncodedRows, spec: Specification, start: FittedGAM | None = None, **options: Any
) -> FittedGAM:
    """As :func:`fit`, of a specification that lacks the null model's predictor as yet."""
    X, Y = rows.data.X, rows.data.Y
    stride = max(len(X) // _NULL_ROWS, 1)
    with explained(spec, X, Y):
        spec = dataclasses.replace(spec, constant=_constant(spec, X, Y, stride))
        if any(term.prior for term in spec.terms):
            mean = _information(spec, X[::stride], Y[::stride])
            total = tuple((rows.data.number * mean).tolist())
            spec = dataclasses.replace(spec, information=total)
        return fit(rows, _without_constant(spec, Y[::stride]), start, **options)


def _neighbourhoods(groups: Any, reading: Reading) -> Neighbourhoods:
    table, complete = reading.given, reading.complete
    assert table is not None
    assert complete is not None
    if groups is None:
        return Neighbourhoods.of_rows(complete.num_rows)
    if as_column(groups) is not None:
        check_no_place("groups", as_column(groups), complete.names)
        return Neighbourhoods.of_labels(complete.values(groups))
    table.check_order("groups", groups)
    return Neighbourhoods.of(groups, table.num_rows, complete.origin)


def specify(reading: Reading, start: FittedGAM | None = None) -> Specification:
    """All of a model but its parameters' values, and the null model's predictor."""
    request, data, encoder = reading.request, reading.rows.data, reading.encoder
    terms, family = request.terms, request.family
    _check_varies(data, request.response)
    check_response(request, data.responses)
    if len(terms) >= data.number:
        mass = np.array(sum(float(w.sum()) for _, w in data.weights()))
        if len(terms) >= data.columns.communicator.total([mass])[0]:
            raise ValueError(
                f"{len(terms)} terms cannot be learnt from {data.number} rows; drop terms or add "
                "rows."
            )
    names = family.parameter_names(reading.levels)
    known = same_components(start, request, encoder, data, names)
    if known is None:
        planned = plan_columns(terms, reading.table, encoder, data.columns, request.seed)
        areas = [c for c in planned if c.form == "areas"]
        if areas and len(data.X) == data.number and family.name not in WITHOUT_NOISE:
            most = max(float(w.max()) for _, w in data.weights())
            most = max(data.columns.communicator.gathered(most))
            single = [c for c in areas if has_single_rows(c, data.X, most)]
            planned = [
                dataclasses.replace(c, independent=False) if c in single else c for c in planned
            ]
        components = entering(planned, terms, names, family.of_first)
    else:
        components = known.components
    chosen = choose_variational(request, components)
    return Specification(
        **{**vars(request), "variational": chosen, "budget": None},
        levels=reading.levels,
        encoder=encoder,
        components=components,
        scale=family.scale(Sample(data.responses, data.columns.weights)),
        refined=() if known is None else known.refined,
        fills=reading.fills,
        design=reading.design,
    )


def has_single_rows(component: Component, X: AnyNDArray, most: float) -> bool:
    """True if each level or area has one row only; ``most``: the largest weight, which counts."""
    places = [m.column for m in component.margins if m.kind == "levels"]
    if len(places) != 1 or component.by is not None:
        return False
    codes = X[:, places[0]].astype(np.intp)
    return bool(np.bincount(codes).max() == 1 and most <= 1.0)


def _check_varies(data: Data, response: Column) -> None:
    """Raise ValueError if the response is constant."""
    Y = data.responses
    parts = [(y.min(axis=0), y.max(axis=0)) for y in (Y[at] for at, _ in data.weights())]
    ends = np.array([np.min(parts, axis=(0, 1)), np.max(parts, axis=(0, 1))])
    ends = ends[None] if isinstance(Y, np.ndarray) else Y.gathered(ends)
    if np.all(ends == ends[0, 0]):
        raise ValueError(
            f"the response {response!r} is constant ({ends[0, 0, 0]:g}): there is nothing to model."
        )


def refit(last: FittedGAM, seed: int, options: dict[str, Any]) -> FittedGAM:
    """Go on with a fit to its own rows, from where it ended."""
    check_rows(last, "refit")
    check_same_criterion(last, options, "refit()")
    spec = last.spec
    options = {k: v for k, v in options.items() if k != "criterion"}
    model = last.model if last.users_copy is None else last.users_copy
    if isinstance(model, IterNCGP):  # which resumes its last fit
        result = _fit_newton(model, options)
        return dataclasses.replace(last, model=model, users_copy=None, result=result)
    encode = None
    if last.data.complete:
        encode = functools.partial(HeldData.of, last.X, last.Y, spec.encoder, spec.weights)
    rows = EncodedRows(encode, last.dropped, last.data)
    return fit(rows, spec, last, seed=seed, **options)


def update(
    last: FittedGAM, request: Request, data: Table, forget: float = 1.0, **options: Any
) -> FittedGAM:
    """Fit to the rows of a fit and further ones, from where it ended."""
    # Inducing inputs, levels and what effects are centred by are those of all rows, as of a first
    # fit to them.
    if not 0.0 < forget <= 1.0:
        raise ValueError(f"forget must be above 0 and at most 1; got {forget!r}.")
    spec, weights = last.spec, last.spec.weights
    if forget < 1.0 and weights is None:
        weights = FADING
    if weights == FADING:
        data = data.beside({FADING: np.ones(data.num_rows)})
    table, fills = joined(last, data, forget)
    check_same_criterion(last, options, "update()")
    # nothing is left to stand in for
    missing = "error" if request.missing == "impute" else request.missing
    same = ("terms", "family", "response", "offset", "trials")
    same_as_before = {"weights": weights} | {name: getattr(spec, name) for name in same}
    request = dataclasses.replace(request, missing=missing, **same_as_before)
    new = fit_gam(request, table, last, **options)
    new.spec.encoder.called.update(spec.encoder.called)
    spec = dataclasses.replace(new.spec, fills=fills)
    return dataclasses.replace(new, spec=spec, dropped=last.dropped + new.dropped)


def fit(
    rows: EncodedRows,
    spec: Specification,
    start: FittedGAM | None = None,
    *,
    seed: int,
    folds: Neighbourhoods | None = None,
    **options: Any,
) -> FittedGAM:
    """Fit what is specified."""
    data, exact = rows.data, spec.variational == "exact"
    minibatches = options.get("batch_size") is not None and options["batch_size"] < data.number
    by_sums = exact or (spec.variational == "sites" and not minibatches)
    shaped = shaped_term(spec.components)
    if shaped and minibatches:
        raise ValueError(
            f"{shaped} has a shape, which fits in minibatches do not hold to; leave batch_size out."
        )
    if not by_sums:
        reason = f"variational={spec.variational!r}"
        check_has("criterion='ncv'", folds is not None and reason)
        check_has("checkpoint", options.pop("checkpoint", None) is not None and reason)
    if spec.variational == "iterncgp":
        model = _built(spec, data, start)
        assert isinstance(model, IterNCGP)
        return FittedGAM(spec, model, data, _fit_newton(model, options), rows.dropped)
    options |= {"seed": seed, "max_seconds": TimeBudget.of(options.get("max_seconds"))}
    if by_sums:
        del data  # of which there may be another with finer bins
        spec, model, result, solution = _fit_by_sums(rows, spec, start, options)
        if folds is not None and result.ended:
            what = f"{result.message}, before rows were left out: smoothness is the ELBO's"
            result = dataclasses.replace(result, converged=False, message=what)
        elif folds is not None:
            bins = result.discretisation
            result, solution = optimizers.fit_left_out(model, solution, folds, **options)
            result = dataclasses.replace(result, discretisation=bins)
        return FittedGAM(spec, model, rows.data, result, rows.dropped, solution)
    model = _built(spec, data, start)
    assert isinstance(model, AdditiveSVGP)
    if not minibatches:
        early = optimizers.start_from_rows(model, data.rows(spec, model), **options)
        if early is not None and early.ended:
            elbo = -float(model.training_loss((data.X, data.Y)))
            early = dataclasses.replace(early, converged=False, elbo=elbo, discretisation=None)
            return FittedGAM(spec, model, data, early, rows.dropped)
    result = optimizers.fit(model, (data.X, data.Y), **options)
    return FittedGAM(spec, model, data, result, rows.dropped)


def _built(spec: Specification, data: Data, start: FittedGAM | None) -> Any:
    model = build_model(spec, data)
    if start is not None:
        carry_over(start, model)
    return model


def _fit_newton(model: IterNCGP, options: dict[str, Any]) -> FitResult:
    """Fit by the second engine; a model that was fitted before goes on from there."""
    known = (
        "hyperparameters", "max_sweeps", "max_seconds", "max_iterations", "tolerance", "callback",
        "progress", "on_interrupt",
    )  # fmt: skip
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"engine='iterncgp' has no option {unknown[0]!r}; it takes {', '.join(known)}."
        )
    result = optimizers.fit(model, **options)
    if np.isnan(result.elbo):  # it was not needed
        result = dataclasses.replace(result, elbo=float(model.elbo()))
    return result


# --- sums over rows, as fine as effects need them ------------------------------------------------


class Attempt(NamedTuple):
    """A fit to sums over rows, as fine as they were."""

    spec: Specification
    model: AdditiveModel
    result: FitResult
    solution: Solution


def _fit_by_sums(
    rows: EncodedRows, spec: Specification, start: FittedGAM | None, options: dict[str, Any]
) -> Attempt:
    """Fit to sums over rows that are as fine as they have to be."""
    exact = spec.variational == "exact"
    complete = rows.data.complete
    known, same_sites, marginals = None, False, list[Marginals | None]()
    if start is not None and spec.components is start.spec.components:  # of the same rows
        known, same_sites = start.solution, has_same_sites(start, spec, rows.data)

    def attempt(refined: tuple[str, ...], model: AdditiveModel | None) -> Attempt:
        asked = dataclasses.replace(spec, refined=refined)
        if model is None:
            model = _built(asked, rows.data, start)
        assert isinstance(model, (AdditiveSGPR, AdditiveSVGP))
        same = known if refined == spec.refined else None
        read = rows.data.rows(asked, model, () if same is None else same.rows.components)
        begin: PseudoData | Marginals | None = None
        # a kernel of the user's, changed since, may have other nodes
        if same is not None and same_sites and _same_nodes(read, same.rows):
            begin = same.data
        elif start is not None and complete and not exact:
            if not marginals:
                marginals.append(marginals_at(start, spec, model, rows.data.X))
            begin = marginals[0]
        given = {**options, "collapsed": exact, "start": begin}
        return Attempt(asked, model, *optimizers.fit_rows(model, read, **given))

    def rebin(number: int | None) -> None:
        nonlocal known
        known = None
        rows.rebin(number)

    number = rows.data.number
    finer = [FINE_BINS] if number > FEW_ROWS else list[int | None]()
    finer += [None] if complete and number <= _MAX_EXACT else []  # a bin a value
    finer = finer if rows.encode else []
    return fit_refined(attempt, rebin, spec.refined, finer, options["max_seconds"])


def _same_nodes(one: Rows, other: Rows) -> bool:
    nodes = [[c.places.points for c in rows.components] for rows in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(*nodes))


def fit_refined(
    fit: Callable[[tuple[str, ...], AdditiveModel | None], Attempt],
    rebin: Callable[[int | None], None],
    refined: tuple[str, ...],
    numbers: Iterable[int | None],
    budget: TimeBudget,
) -> Attempt:
    """Fit to the usual sums, and anew to finer ones where these lose too much."""
    # Where curves are rougher than nodes are for, those of the components that lose become finer,
    # and the fit begins where a fit begins: where coarse nodes led is no place to go on from. Where
    # there is little noise beside it, what bins round off counts, and a fit to finer bins goes on
    # from the one before. A fit that was ended early stays as it is, and so does one whose time
    # would not do for as much again.
    begun, ahead = budget.seconds, list(numbers)
    result = fit(refined, None)
    while not result.result.ended and budget.left > budget.seconds - begun:
        rough = _rough(result.result, refined)
        rounded = (result.result.discretisation or 0.0) > MAX_LOSS
        coarse = len(ahead) > 0 and result.result.converged and rounded
        if not (rough or coarse):
            break
        begun, refined = budget.seconds, (*refined, *rough)
        model = None if rough else result.model
        if coarse:
            del result  # its solution holds codes: two sets of them are not needed at once
            rebin(ahead.pop(0))
        result = fit(refined, model)
    if not result.result.converged and not result.result.ended:
        _check_finite(result)
    return result._replace(result=_checked(result.result))


def _check_finite(result: Attempt) -> None:
    """Check, of a fit that found no optimum, that the rows' expected responses are numbers."""
    if not result.spec.family.log_link:
        return
    factor, shift = result.spec.family.units(result.model.likelihood)
    solution, rows, over = result.solution, result.solution.rows, 0
    for at, mean, var in rows.marginals(solution.values, solution.q):
        f = shift[0] + factor[0] * (mean + rows.mean[at])[:, 0]
        over += int(np.sum(~(f + 0.5 * factor[0] ** 2 * var[:, 0] < _OVERFLOW)))
    if rows.communicator.total([float(over)])[0] > 0.0:
        raise NotPositiveDefinite


def _rough(result: FitResult, refined: tuple[str, ...]) -> tuple[str, ...]:
    """Components without fine nodes as yet that lose the most: what others lose is no matter."""
    if (result.interpolation or 0.0) <= MAX_INTERPOLATED:
        return ()
    parts = sorted(result.interpolation_by.items(), key=lambda part: part[1])
    losses = np.cumsum([lost for _, lost in parts])
    values = [name for (name, _), all_lost in zip(parts, losses) if all_lost > MAX_INTERPOLATED / 2]
    return tuple(name for name in values if name not in refined)


def _checked(result: FitResult) -> FitResult:
    shift = result.interpolation_shift or 0.0
    if not result.converged or shift <= _MOST_SHIFTED:
        return result
    message = (
        "effects are rougher than the nodes at which rows are summed up, so that an estimate is "
        f"off by up to {shift:.1f} of its standard errors. Take fewer inducing inputs (k) for "
        "joint smooths, or variational='covariance'"
    )
    return dataclasses.replace(result, converged=False, message=message)
