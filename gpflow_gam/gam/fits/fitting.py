"""From a formula and data to a fitted GAM."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ... import optimizers
from ...likelihoods import checked_observations
from ...models import AdditiveModel, AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...optimizers import Solution, TimeBudget
from ...optimizers.binned.bins import ColumnBins
from ...optimizers.binned.cavities import Neighbourhoods
from ...optimizers.binned.components import RowComponent
from ...optimizers.binned.passes import Rows
from ..components import Component, entering, keys_of, learn_encoder, plan, shaped_term
from ..families import Family
from ..frames import (
    Encoder,
    Fill,
    Table,
    complete_rows,
    filled,
    learn_fills,
)
from ..terms import Column, ResponseSpec, Surv, Terms, columns_of, variables_of
from .build import build_model, choose_variational
from .criterion import needs_sites, neighbourhoods
from .extremes import check_response, explained
from .fitted import FittedGAM
from .null_model import beside_null_model
from .refining import Attempt, finer_bins, fit_refined
from .rows import make_rows
from .specification import Specification
from .stating import (
    complete_columns,
    counting_columns,
    encoded_response,
    response_columns,
    stated_labels,
)
from .warm import Marginals, carry_over, has_same_sites, marginals_at, same_components

WITHOUT_NOISE = ("poisson", "binomial", "zero_inflated_poisson", "hurdle_poisson")
"""Families in which a row by itself tells its mean from its noise."""
_MAX_EXACT = 20_000
"""Rows up to which every value may be its own bin: then a pass costs what a dense one does."""


@dataclasses.dataclass(frozen=True)
class Roles:
    """
    The columns that are no terms.

    :param response: the response, or the first column of a censored one.
    :param censoring: both columns of that.
    :param offset: added to the first predictor.
    :param weights: how often each row counts.
    :param trials: of a binomial response.
    """

    response: Column
    offset: tuple[Column, ...] = ()
    weights: Column | None = None
    trials: Column | None = None
    censoring: Surv | None = None

    @classmethod
    def of(
        cls,
        stated: ResponseSpec,
        offset: tuple[Column, ...] = (),
        weights: Column | None = None,
        trials: Column | None = None,
    ) -> Roles:
        """
        Of a response as users state it.

        :param stated: the response's column, or both of a censored one.
        :param offset: added to the first predictor.
        :param weights: how often each row counts.
        :param trials: of a binomial response.
        """
        if isinstance(stated, Surv):
            return cls(stated.first, offset, weights, trials, stated)
        return cls(stated, offset, weights, trials)

    def suited(self, family: Family) -> Family:
        """
        The family itself, or that of a censored response.

        :param family: that was asked for.
        :raises ValueError: there is none.
        """
        return family if self.censoring is None else family.censored()

    @property
    def others(self) -> list[Column]:
        """Offsets and weights."""
        return [name for name, _ in self.numeric()]

    def numeric(self) -> list[tuple[Column, str]]:
        """The columns that become columns of X, and what they are for."""
        extra = [(c, "the offset") for c in self.offset]
        return extra + ([] if self.weights is None else [(self.weights, "the weights")])


def fit_gam(
    terms: Terms,
    family: Family,
    roles: Roles,
    table: Table,
    *,
    missing: str,
    variational: str | None,
    engine: str,
    seed: int,
    start: FittedGAM | None = None,
    **options: Any,
) -> FittedGAM:
    """
    Fit a GAM.

    :param terms: of the predictor.
    :param family: of the response.
    :param roles: columns that are no terms.
    :param table: holds every column that is named.
    :param missing: ``"error"``, ``"drop"`` or ``"impute"``.
    :param variational: the family of q(U); None for the one that suits.
    :param engine: ``"variational"`` or ``"iterncgp"``.
    :param seed: of k-means and of minibatches.
    :param start: an earlier fit of the same terms, from which this one goes on.
    :param options: of :func:`gpflow_gam.optimizers.fit`.
    :return: the fit.
    :raises ValueError: data that no such model can be fitted to: one sentence that says why.
    """
    criterion, given = options.pop("criterion", "elbo"), table
    groups = options.pop("groups", None)
    table, dropped, fills = complete_table(table, terms, roles, missing)
    folds = None if criterion == "elbo" else neighbourhoods(groups, given, table)
    encoder = learn_encoder(terms, roles.numeric(), table)
    X = encoder.encode(table)
    _check_weights(roles, encoder, X)
    response = encoded_response(family, roles, table, stated_labels(family, roles, table))
    Y = response.Y
    if np.all(Y[0] == Y):
        raise ValueError(
            f"the response {roles.response!r} is constant ({Y[0, 0]:g}): there is nothing to model."
        )
    check_response(family, Y, roles)
    weights = None if roles.weights is None else X[:, encoder.index(roles.weights, "number")]
    total = float(len(X) if weights is None else np.sum(weights))
    if len(terms) >= max(len(X), total):
        raise ValueError(
            f"{len(terms)} terms cannot be learnt from {len(X)} rows; drop terms or add rows."
        )
    levels = encoder.places("level")
    bins = ColumnBins(X, levels=levels)
    names = family.parameter_names(response.levels)
    known = same_components(start, terms, encoder, X, names, family.of_first)
    if known is None:
        planned = plan(terms, table, encoder, X, weights, seed, bins)
        if family.name not in WITHOUT_NOISE:
            planned = [
                dataclasses.replace(c, independent=False)
                if c.form == "areas" and has_single_rows(c, X, weights)
                else c
                for c in planned
            ]
        components = entering(planned, terms, names, family.of_first)
    else:
        components = known.components
    size = sum(len(c.inducing) for c in components)
    spec = Specification(
        terms,
        family,
        roles.response,
        response.levels,
        encoder,
        components,
        family.scale(Y, weights),
        (),
        roles.offset,
        roles.weights,
        roles.trials,
        choose_variational(family, size, variational, engine, shaped_term(components)),
        fills,
        censoring=roles.censoring,
        fine=() if known is None else known.fine,
    )
    with explained(spec, X, Y):
        spec = beside_null_model(spec, X, Y)
        return fit_model(spec, X, Y, dropped, seed, options, bins, folds, start, known is not None)


def fit_model(
    spec: Specification,
    X: AnyNDArray,
    Y: AnyNDArray,
    dropped: int,
    seed: int,
    options: dict[str, Any],
    bins: ColumnBins | None = None,
    folds: Neighbourhoods | None = None,
    start: FittedGAM | None = None,
    same_rows: bool = False,
) -> FittedGAM:
    """
    Fit what is specified.

    :param X: [N, D].
    :param Y: [N, K].
    :param dropped: rows left out for missing values.
    :param seed: of minibatches.
    :param bins: of X, where they are there already.
    :param folds: without which rows each is to be predicted best; None leaves that to the ELBO.
    :param start: an earlier fit, from which this one goes on.
    :param same_rows: whether that one is of the same components at the same X.
    """
    minibatches = options.get("batch_size") is not None and options["batch_size"] < len(X)
    by_sums = spec.variational == "exact" or (spec.variational == "sites" and not minibatches)
    shaped = shaped_term(spec.components)
    if shaped and minibatches:
        raise ValueError(
            f"{shaped} has a shape, which fits in minibatches do not hold to; leave batch_size out."
        )
    if folds is not None and not by_sums:
        raise ValueError(needs_sites(f"variational={spec.variational!r}"))
    if not by_sums and options.pop("checkpoint", None) is not None:
        raise ValueError(without_checkpoint(f"variational={spec.variational!r}"))
    model = build_model(spec, X, Y)
    if start is not None:
        carry_over(start, model)
    if isinstance(model, IterNCGP):
        return FittedGAM(spec, model, X, Y, fit_newton(model, options), dropped)
    given = {"seed": seed, **options, "max_seconds": TimeBudget.of(options.get("max_seconds"))}
    bins = ColumnBins(X, levels=spec.encoder.places("level")) if bins is None else bins
    if by_sums:
        known = start.solution if start is not None and same_rows else None
        spec, model, result, solution = _fit_by_sums(spec, model, X, Y, bins, start, known, given)
        if folds is not None and result.ended:
            what = f"{result.message}, before rows were left out: smoothness is the ELBO's"
            result = dataclasses.replace(result, converged=False, message=what)
        elif folds is not None:
            begun = result
            result, solution = optimizers.fit_left_out(model, solution, folds, **given)
            result = dataclasses.replace(result, discretisation=begun.discretisation)
        return FittedGAM(spec, model, X, Y, result, dropped, solution)
    assert isinstance(model, AdditiveSVGP)
    if not minibatches:
        rows = _summed(spec, model, X, Y, bins)
        early = optimizers.start_from_rows(model, rows, **given)
        if early is not None and early.ended:
            elbo = -float(model.training_loss((X, Y)))
            early = dataclasses.replace(early, converged=False, elbo=elbo, discretisation=None)
            return FittedGAM(spec, model, X, Y, early, dropped)
    return FittedGAM(spec, model, X, Y, optimizers.fit(model, (X, Y), **given), dropped)


def without_checkpoint(what: str) -> str:
    """
    What is said where there is none.

    :param what: the argument that is the reason.
    """
    return (
        f"checkpoint: a fit with {what} writes none; leave the argument out, or bound the fit by "
        "max_seconds."
    )


def _fit_by_sums(
    spec: Specification,
    model: AdditiveSGPR | AdditiveSVGP,
    X: AnyNDArray,
    Y: AnyNDArray,
    bins: ColumnBins,
    start: FittedGAM | None,
    known: Solution | None,
    given: dict[str, Any],
) -> Attempt:
    """
    Fit to sums over rows that are as fine as they have to be.

    :param known: of the same components at the same rows.
    """

    @functools.cache
    def marginals() -> Marginals | None:
        if start is None or spec.variational != "sites":
            return None
        return marginals_at(start, spec, model, X)

    same_sites = start is not None and known is not None and has_same_sites(start, spec, Y)

    def fit(fine: tuple[str, ...], fitted: AdditiveModel | None) -> Attempt:
        asked = dataclasses.replace(spec, fine=fine)
        if fitted is None and fine != spec.fine:
            fitted = build_model(asked, X, Y)
            if start is not None:
                carry_over(start, fitted)
        fitted = model if fitted is None else fitted
        assert isinstance(fitted, (AdditiveSGPR, AdditiveSVGP))
        same = known if fine == spec.fine else None
        rows = _summed(asked, fitted, X, Y, bins, () if same is None else same.rows.components)
        begin = same.data if same is not None and same_sites else marginals()
        return Attempt(asked, fitted, *optimizers.fit_rows(fitted, rows, start=begin, **given))

    def rebin(number: int | None) -> None:
        nonlocal bins, known
        known = None
        bins = ColumnBins(X, number, spec.encoder.places("level"))

    numbers = [n for n in finer_bins(len(X)) if n is not None or len(X) <= _MAX_EXACT]
    return fit_refined(fit, rebin, spec.fine, numbers, given["max_seconds"])


def _summed(
    spec: Specification,
    model: AdditiveSGPR | AdditiveSVGP,
    X: AnyNDArray,
    Y: AnyNDArray,
    bins: ColumnBins,
    known: Sequence[RowComponent] = (),
) -> Rows:
    mean = np.asarray(model.mean_function(X))
    return make_rows(spec.components, model.kernel, bins, Y, mean, fine=spec.fine, known=known)


def fit_newton(model: IterNCGP, options: dict[str, Any]) -> optimizers.FitResult:
    """
    Fit by the second engine.

    :param model: changed in place; one that was fitted before goes on from there.
    :param options: of :func:`gpflow_gam.optimizers.fit`.
    :return: what happened, with the bound.
    :raises ValueError: an option that it does not have.
    """
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


def complete_table(
    table: Table, terms: Terms, roles: Roles, missing: str
) -> tuple[Table, int, tuple[Fill, ...]]:
    """
    Complete rows that count, how many were dropped, and what the inputs were filled with.

    Here rows of weight zero are left out, before anything is looked at.
    """
    table = table.counted(counting_columns(roles))
    columns = variables_of(columns_of(terms))
    read = [table.name(c) for c in columns]
    for name in response_columns(roles)[: 1 if roles.censoring is None else 2]:
        if table.name(name) in read:
            raise ValueError(f"the response {name!r} is also in a term; drop that term.")
    fills: tuple[Fill, ...] = ()
    if missing == "impute":
        keys = [key for term in terms for key in keys_of(term, table)]
        levels = [table.name(name) for name, kind in keys if kind == "level"]
        fills = learn_fills(table, columns, levels)
        table = filled(table, fills)
    columns += variables_of([*complete_columns(roles), *roles.others])
    check_enough_rows(table.num_rows, roles)
    return *complete_rows(table, columns, missing), fills


def has_single_rows(component: Component, X: AnyNDArray, weights: AnyNDArray | None) -> bool:
    """Whether each level or area of a component has but one row, which counts once at most."""
    places = [m.column for m in component.margins if m.kind == "levels"]
    if len(places) != 1 or component.by is not None:
        return False
    codes = X[:, places[0]].astype(np.intp)
    return bool(np.bincount(codes).max() == 1 and (weights is None or weights.max() <= 1.0))


def check_enough_rows(number: int, roles: Roles) -> None:
    """
    :raises ValueError: fewer than two rows count.
    """
    if number < 2:
        own = " and ".join(map(repr, counting_columns(roles)))
        counted = f" in which {own} is not zero" if own else ""
        raise ValueError(f"data has {number} row(s){counted}; a fit needs at least 2.")


def _check_weights(roles: Roles, encoder: Encoder, X: AnyNDArray) -> None:
    if roles.weights is None:
        return
    w = X[:, encoder.index(roles.weights, "number")]
    if np.any(w < 0.0):
        raise ValueError(
            f"weights {roles.weights!r} must not be negative; got {w.min():g} in row "
            f"{int(w.argmin())}."
        )


def checked_response(fit: FittedGAM, table: Table) -> AnyNDArray:
    """
    The response of new rows, [N, K].

    :param fit: a fitted GAM.
    :param table: new rows.
    :raises ValueError: a response that is not there or that the family cannot have produced.
    """
    spec = fit.spec
    Y = encoded_response(spec.family, spec, table, spec.levels).Y
    checked_observations(Y, fit.likelihood, str(spec.response))
    return Y
