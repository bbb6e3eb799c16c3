"""From terms and data to a fitted GAM."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from ... import optimizers
from ...errors import NotPositiveDefinite
from ...models import AdditiveModel, AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import Checkpoint, FitResult, Solution, TimeBudget
from ...optimizers.binned.bins import FEW_ROWS, FINE_BINS
from ...optimizers.binned.cavities import Neighbourhoods
from ...optimizers.binned.evidence import PseudoData
from ...optimizers.minimizers import check_on_interrupt
from ..components import Component, entering, plan_columns, shaped_term
from ..frames import Table
from ..terms import Column, as_column
from .data import Data, HeldData
from .fitted import FittedGAM
from .model import (
    Marginals,
    beside_null_model,
    build_model,
    carry_over,
    check_rows,
    check_same_criterion,
    has_same_sites,
    joined,
    marginals_at,
    same_components,
)
from .reading import (
    IN_MEMORY,
    EncodedRows,
    Reading,
    first_rows,
    read,
    read_table,
    with_trials,
    with_variables,
)
from .specification import (
    Request,
    Specification,
    check_criterion,
    check_response,
    choose_variational,
    explained,
    needs_all_rows,
    needs_sites,
    too_many,
    without_checkpoint,
)

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


def fit_gam(
    request: Request, source: Any, start: FittedGAM | None = None, **options: Any
) -> FittedGAM:
    """Fit a GAM to data in memory or in blocks."""
    check_on_interrupt(options.get("on_interrupt", "raise"))
    check_criterion(request, options)
    budget = options["max_seconds"] = TimeBudget.of(options.get("max_seconds"))
    request = dataclasses.replace(request, progress=options.get("progress"), budget=budget)
    request = with_trials(request, source)
    initial = request.family.initial_family
    if initial is not None and start is None:
        first = {name: options[name] for name in _OF_ALL if name in options}
        start = fit_gam(dataclasses.replace(request, family=initial), source, **first)
    terms = with_variables(request.terms, lambda: first_rows(source, request))
    request = dataclasses.replace(request, terms=terms)
    needs = needs_all_rows(request, options)
    if options.get("checkpoint") is not None:
        if needs:
            raise ValueError(without_checkpoint(needs))
        options["checkpoint"] = Checkpoint.of(options["checkpoint"])
    criterion, groups = options.pop("criterion", "elbo"), options.pop("groups", None)
    reading = read(source, request, needs)
    spec = specify(reading, start)
    if spec.variational not in BY_SUMS and not reading.rows.data.complete:
        if not isinstance(source, Table):
            raise ValueError(too_many(IN_MEMORY))
        reading = read_table(source, request, True)
        spec = specify(reading, start)
    folds = None if criterion == "elbo" else _neighbourhoods(groups, reading)
    return fit_from_null_model(reading.rows, spec, start, seed=request.seed, folds=folds, **options)


def fit_from_null_model(
    rows: EncodedRows, spec: Specification, start: FittedGAM | None = None, **options: Any
) -> FittedGAM:
    """As :func:`fit`, of a specification that lacks the null model's predictor as yet."""
    X, Y = rows.data.X, rows.data.Y
    with explained(spec, X, Y):
        return fit(rows, beside_null_model(spec, X, Y), start, **options)


def _neighbourhoods(groups: Any, reading: Reading) -> Neighbourhoods:
    """The rows that are left out together."""
    table, complete = reading.given, reading.complete
    assert table is not None
    assert complete is not None
    if groups is None:
        return Neighbourhoods.of_rows(complete.num_rows)
    if as_column(groups) is not None:
        return Neighbourhoods.of_labels(complete.values(groups))
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
        if data.complete and family.name not in WITHOUT_NOISE:
            planned = [
                dataclasses.replace(c, independent=False)
                if c.form == "areas" and has_single_rows(c, data.X, data.columns.weights)
                else c
                for c in planned
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
        scale=family.scale(data.responses, data.columns.weights),
        refined=() if known is None else known.refined,
        fills=reading.fills,
        design=reading.design,
    )


def has_single_rows(component: Component, X: AnyNDArray, weights: AnyNDArray | None) -> bool:
    """True if each level or area of a component has one row only, with a weight of at most one."""
    places = [m.column for m in component.margins if m.kind == "levels"]
    if len(places) != 1 or component.by is not None:
        return False
    codes = X[:, places[0]].astype(np.intp)
    return bool(np.bincount(codes).max() == 1 and (weights is None or weights.max() <= 1.0))


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
    if isinstance(last.trained, IterNCGP):  # itself: it resumes its last fit
        return dataclasses.replace(last, result=_fit_newton(last.trained, options))
    encode = None
    if last.data.complete:
        encode = functools.partial(HeldData.of, last.X, last.Y, spec.encoder, spec.weights)
    rows = EncodedRows(encode, last.dropped, last.data)
    return fit(rows, spec, last, seed=seed, **options)


def update(last: FittedGAM, request: Request, data: Table, **options: Any) -> FittedGAM:
    """
    Fit to the rows of a fit and further ones, from where it ended.

    Inducing inputs, levels and what effects are centred by are those of all rows, as of a first
    fit to them.
    """
    spec, (table, fills) = last.spec, joined(last, data)
    check_same_criterion(last, options, "update()")
    # nothing is left to stand in for
    missing = "error" if request.missing == "impute" else request.missing
    same = ("terms", "family", "response", "offset", "weights", "trials")
    same_as_before = {name: getattr(spec, name) for name in same}
    request = dataclasses.replace(request, missing=missing, **same_as_before)
    new = fit_gam(request, table, last, **options)
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
    if folds is not None and not by_sums:
        raise ValueError(needs_sites(f"variational={spec.variational!r}"))
    if not by_sums and options.pop("checkpoint", None) is not None:
        raise ValueError(without_checkpoint(f"variational={spec.variational!r}"))
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
        if same is not None and same_sites:
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
    exactly = complete and number <= _MAX_EXACT
    finer = [n for n in finer_bins(number) if n is not None or exactly] if rows.can_rebin else []
    return fit_refined(attempt, rebin, spec.refined, finer, options["max_seconds"])


def fit_refined(
    fit: Callable[[tuple[str, ...], AdditiveModel | None], Attempt],
    rebin: Callable[[int | None], None],
    refined: tuple[str, ...],
    numbers: Iterable[int | None],
    budget: TimeBudget,
) -> Attempt:
    """
    Fit to the usual sums, and anew to finer ones where these lose too much.

    Where curves are rougher than nodes are for, those of the components that lose become finer, and
    the fit begins where a fit begins: where coarse nodes led is no place to go on from. Where there
    is little noise beside it, what bins round off counts, and a fit to finer bins goes on from the
    one before. A fit that was ended early stays as it is, and so does one whose time would not do
    for as much again.
    """
    begun, ahead = budget.seconds, list(numbers)
    result = fit(refined, None)
    while _affords(result.result, budget, begun):
        rough = _rough(result.result, refined)
        coarse = len(ahead) > 0 and _coarse(result.result)
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


def finer_bins(rows: int) -> tuple[int | None, ...]:
    """Bins of a column where the usual ones of as many rows lose too much; None for one a value."""
    return (None,) if rows <= FEW_ROWS else (FINE_BINS, None)


def _rough(result: FitResult, refined: tuple[str, ...]) -> tuple[str, ...]:
    """Components without fine nodes as yet that lose the most: what others lose is no matter."""
    if _lost(result) <= MAX_INTERPOLATED:
        return ()
    parts = sorted(result.interpolation_by.items(), key=lambda part: part[1])
    losses = np.cumsum([lost for _, lost in parts])
    values = [name for (name, _), all_lost in zip(parts, losses) if all_lost > MAX_INTERPOLATED / 2]
    return tuple(name for name in values if name not in refined)


def _coarse(result: FitResult) -> bool:
    return result.converged and (result.discretisation or 0.0) > MAX_LOSS


def _lost(result: FitResult) -> float:
    return result.interpolation or 0.0


def _affords(result: FitResult, budget: TimeBudget, begun: float) -> bool:
    return not result.ended and budget.left > budget.seconds - begun


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
