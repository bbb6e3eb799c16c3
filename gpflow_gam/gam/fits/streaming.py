"""Fits to data of any size: read in blocks, kept as codes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from ... import optimizers
from ...models import AdditiveModel, AdditiveSVGP
from ...optimizers import Checkpoint, TimeBudget
from ...optimizers.binned import bins
from ...optimizers.minimizers.tracker import check_on_interrupt
from ..components import entering, plan_columns, shaped_term
from ..families import Binomial, Family, Levels
from ..frames import Blocks, Counted, Table, blocks_of
from ..terms import Terms, columns_of, variables_of
from .build import MAX_SITES, VARIATIONAL, build_model, choose_variational
from .criterion import check_criterion
from .encoding import Sample, encode_rows
from .extremes import check_response, explained
from .fitted import FittedGAM
from .fitting import Roles, complete_table, fit_gam, without_checkpoint
from .null_model import beside_null_model
from .refining import Attempt, finer_bins, fit_refined
from .resolving import fit_resolved, unresolved, with_variables
from .specification import Specification
from .stating import counting_columns, encoded_response, response_columns, stated_labels
from .surveying import Survey, check_time, columns_read, survey
from .warm import carry_over
from .whole import Whole

BLOCK = 2**17
"""Rows that are read at a time."""
_NOT_OF_FIT = ("variational", "engine", "criterion", "groups", "start")
"""Arguments that are settled before rows in codes are fitted."""


def fit_source(
    terms: Terms,
    family: Family,
    roles: Roles,
    source: Any,
    *,
    missing: str,
    variational: str | None,
    engine: str,
    seed: int,
    start: FittedGAM | None = None,
    **options: Any,
) -> FittedGAM:
    """
    Fit a GAM to data in memory or in blocks.

    Up to 65 536 rows are one table. Of more, two passes make codes of bins, and a sample of rows is
    kept as it is: see :class:`Whole`.

    :param terms: of the predictor.
    :param family: of the response.
    :param roles: columns that are no terms.
    :param source: a :class:`Table`, or what :func:`~gpflow_gam.gam.frames.blocks_of` takes.
    :param missing: as for :func:`fit_gam`, and so are the others.
    :param variational: as for :func:`fit_gam`.
    :param engine: as for :func:`fit_gam`.
    :param seed: as for :func:`fit_gam`.
    :param start: as for :func:`fit_gam`.
    :return: the fit.
    :raises ValueError: data that no such model can be fitted to, or too many rows for what needs
        all of them at once.
    :raises TimeoutError: ``max_seconds`` were used up before there was anything to keep.
    """
    # what is no option at all is refused before any data are read
    check_on_interrupt(options.get("on_interrupt", "raise"))
    check_criterion(variational, engine, options)
    options["max_seconds"] = TimeBudget.of(options.get("max_seconds"))
    terms = with_variables(terms, lambda: first_rows(source, terms, roles, options["max_seconds"]))
    if unresolved(terms):

        def fitted(terms: Terms, table: Table, missing: str) -> FittedGAM:
            given = {"variational": variational, "engine": engine, "seed": seed, **options}
            return fit_source(terms, family, roles, table, missing=missing, start=start, **given)

        return fit_resolved(terms, roles, source, missing, fitted)
    needs = needs_all_rows(variational, engine, options)
    if options.get("checkpoint") is not None:
        if needs:
            raise ValueError(without_checkpoint(needs))
        options["checkpoint"] = Checkpoint.of(options["checkpoint"])
    given = {
        "variational": variational,
        "engine": engine,
        "seed": seed,
        "start": start,
        **options,
    }
    if isinstance(source, Table):
        if needs or source.counted(counting_columns(roles)).num_rows <= bins.KEPT_ROWS:
            return fit_gam(terms, family, roles, source, missing=missing, **given)
        whole, dropped, fills = complete_table(source, terms, roles, missing)
        blocks = read_in_blocks(whole, terms, roles, options["max_seconds"])
        found = _survey(terms, family, roles, blocks, "error", options, gather=False)
        assert isinstance(found, Survey)
        fit = _fit_survey(terms, family, roles, blocks, found, given)
        if fit is None:
            return fit_gam(terms, family, roles, source, missing=missing, **given)
        spec = dataclasses.replace(fit.spec, fills=fills)
        return dataclasses.replace(fit, model=fit.trained, spec=spec, dropped=dropped)
    blocks = read_in_blocks(source, terms, roles, options["max_seconds"])
    found = _survey(terms, family, roles, blocks, missing, options)
    if isinstance(found, Table):
        return fit_gam(terms, family, roles, found, missing=missing, **given)
    if needs:
        raise ValueError(f"{needs} {_IN_MEMORY}")
    fit = _fit_survey(terms, family, roles, blocks, found, given)
    if fit is None:
        raise ValueError(too_many(_IN_MEMORY))
    return fit


def too_many(remedy: str) -> str:
    """What is said where q(U) would need all rows as numbers."""
    return (
        f"the terms have more than {MAX_SITES} inducing values in all, for which "
        f"variational='block' {remedy} Or give the terms a smaller k."
    )


_IN_MEMORY = (
    "needs all rows in memory as numbers, which data in blocks are not; pass a table in memory "
    "(for a Parquet file pandas.read_parquet(path))."
)


def needs_all_rows(variational: str | None, engine: str, options: dict[str, Any]) -> str:
    """The argument that sums over rows do not serve; empty where there is none."""
    if engine != "variational":
        return f"engine={engine!r}"
    if options.get("criterion", "elbo") != "elbo":
        return f"criterion={options['criterion']!r}"
    if options.get("batch_size") is not None:
        return f"batch_size={options['batch_size']!r}"
    if variational in VARIATIONAL and variational != "sites":
        return f"variational={variational!r}"
    return ""


def read_in_blocks(
    source: Any, terms: Terms, roles: Roles, budget: TimeBudget | None = None
) -> Blocks:
    """
    The columns of a source that a fit reads.

    :param budget: time that the fit may take.
    """
    columns = columns_read(terms, roles)
    # the place of a named column is known among all of them only
    named = all(isinstance(c, str) for c in columns)
    blocks = blocks_of(source, columns if named else None, BLOCK)
    if counting := counting_columns(roles):
        blocks = Counted(blocks, counting)
    if budget is not None:
        blocks.watch = lambda: check_time(budget, "reading the levels of categorical columns")
    return blocks


def first_rows(source: Any, terms: Terms, roles: Roles, budget: TimeBudget | None = None) -> Table:
    """
    The first rows of a source, whose columns have the types of all.

    :raises ValueError: there are none.
    """
    if isinstance(source, Table):
        return source
    for block in read_in_blocks(source, terms, roles, budget):
        if block.num_rows:
            return block
    raise ValueError("data has 0 row(s); a fit needs at least 2.")


def _survey(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    missing: str,
    options: dict[str, Any],
    gather: bool = True,
) -> Survey | Table:
    found = survey(
        terms, family, roles, blocks, missing, options.get("progress"), gather,
        options["max_seconds"],
    )  # fmt: skip
    if not isinstance(found, Survey):
        return found
    check_survey(terms, roles, found)
    return found


def with_trials(
    family: Family,
    roles: Roles,
    source: Any,
    gathered: Callable[[Callable[[], set[str]]], Iterable[set[str]]] = lambda own: [own()],
) -> tuple[Family, Roles]:
    """
    The family and the columns of a binomial response without trials.

    Weights are the trials of proportions; zeros and ones, truth values and labels are Bernoulli's.

    :param family: that was asked for.
    :param roles: columns that are no terms.
    :param source: a :class:`Table`, or blocks.
    :param gathered: what all processes that share the rows have seen, given what this one has.
    :return: both, as the fit takes them.
    :raises ValueError: proportions of unknown trials.
    """
    if not isinstance(family, Binomial) or roles.trials is not None or roles.censoring is not None:
        return family, roles
    if not family.needs_trials and roles.weights is None:
        return family, roles  # shares of no trials
    seen = set[str]().union(*gathered(lambda: _sizes(source, roles)))
    if "counts" in seen:
        return family, roles  # to which trials are missing
    own = family.without_trials("fractions" in seen, roles.weights, str(roles.response))
    if "fractions" in seen:
        roles = dataclasses.replace(roles, trials=roles.weights, weights=None)
    return own, roles


def _sizes(source: Any, roles: Roles) -> set[str]:
    """Whether a response has fractions, and numbers that are neither these nor 0 nor 1."""
    found: set[str] = set()
    columns = [roles.response, *counting_columns(roles)]
    named = all(isinstance(c, str) for c in columns)
    for block in blocks_of(source, columns if named else None, BLOCK):
        table = block.counted(counting_columns(roles))
        if table.levels(roles.response) is not None:
            break  # labels, whatever they are called
        y = pd.to_numeric(pd.Series(table.values(roles.response)), errors="coerce").to_numpy(float)
        inside = (y > 0.0) & (y < 1.0)
        found |= {"fractions"} if inside.any() else set()
        found |= {"counts"} if np.any((y < 0.0) | (y > 1.0)) else set()
    return found


def check_survey(terms: Terms, roles: Roles, found: Survey) -> None:
    """
    :raises ValueError: no such model can be fitted to these data.
    """
    number = found.summary.number
    for name in response_columns(roles)[: 1 if roles.censoring is None else 2]:
        if name in variables_of(columns_of(terms)):
            raise ValueError(f"the response {name!r} is also in a term; drop that term.")
    if number < 2 or len(terms) >= number:
        raise ValueError(
            f"{len(terms)} terms cannot be learnt from {number} rows; drop terms or add rows."
        )
    if roles.weights is not None:
        place = found.numbers.index((roles.weights, "number"))
        least = found.summary.least[place]
        if least < 0.0:
            raise ValueError(f"weights {roles.weights!r} must not be negative; got {least:g}.")


def _fit_survey(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    found: Survey,
    given: dict[str, Any],
) -> FittedGAM | None:
    """The fit; None where the terms ask for a family of q that needs all rows."""
    progress, budget = given.get("progress"), given["max_seconds"]

    def encode(levels: Levels | None, number: int | None) -> tuple[Whole, Sample]:
        limit = budget if number is None else None  # of finer bins there is a fit to be lost
        return encode_rows(terms, family, roles, blocks, found, levels, number, progress, limit)

    return fit_encoded(terms, family, roles, found, encode, given)


def fit_encoded(
    terms: Terms,
    family: Family,
    roles: Roles,
    found: Survey,
    encode: Callable[[Levels | None, int | None], tuple[Whole, Sample]],
    given: dict[str, Any],
) -> FittedGAM | None:
    """
    The fit to rows in codes; None where the terms ask for a family of q that needs all rows.

    :param found: what a first pass found.
    :param encode: makes the second, given the response's labels and the number of bins.
    :param given: ``variational``, ``engine``, ``seed``, perhaps ``start``, and options.
    """
    options = {k: v for k, v in given.items() if k not in _NOT_OF_FIT}
    start = given.get("start")
    budget = options["max_seconds"] = TimeBudget.of(given.get("max_seconds"))
    levels = _labels(family, roles, found)
    whole, sample = encode(levels, None)
    check_response(family, whole.Y, roles)
    planned = _planned(terms, family, roles, found, levels, whole, given)
    if planned is None:
        return None
    X, Y = sample
    with explained(planned, X, Y):
        spec = beside_null_model(planned, X, Y)
        options["collapsed"] = spec.variational == "exact"

        def fit(fine: tuple[str, ...], model: AdditiveModel | None) -> Attempt:
            asked = dataclasses.replace(spec, fine=fine)
            if model is None:
                model = build_model(asked, X, whole.Y, whole.number, whole.columns.weights)
                if start is not None:
                    carry_over(start, model)
            assert isinstance(model, AdditiveSVGP)
            rows = whole.rows(asked, model.kernel, X)
            return Attempt(asked, model, *optimizers.fit_rows(model, rows, **options))

        def rebin(number: int | None) -> None:
            nonlocal whole
            del whole  # two sets of codes are not needed at once
            whole = encode(levels, number)[0]  # noqa: F841 (`fit` reads it)

        numbers = [n for n in finer_bins(found.summary.number) if n is not None]
        done = fit_refined(fit, rebin, spec.fine, numbers, budget)
        return FittedGAM(
            done.spec, done.model, X, Y, done.result, found.dropped, done.solution, whole
        )


def _labels(family: Family, roles: Roles, found: Survey) -> Levels | None:
    if not family.labelled:
        return None
    labels = stated_labels(family, roles, found.table)
    return encoded_response(family, roles, found.table, labels).levels


def _planned(
    terms: Terms,
    family: Family,
    roles: Roles,
    found: Survey,
    levels: Levels | None,
    whole: Whole,
    given: dict[str, Any],
) -> Specification | None:
    own = [(Y.min(axis=0), Y.max(axis=0)) for Y in (whole.Y[at] for at, _ in whole.weights())]
    ends = whole.Y.gathered(np.array([np.min(own, axis=(0, 1)), np.max(own, axis=(0, 1))]))
    if np.all(ends == ends[0, 0]):
        raise ValueError(
            f"the response {roles.response!r} is constant ({ends[0, 0, 0]:g}): there is nothing to "
            "model."
        )
    planned = plan_columns(terms, found.table, found.encoder, whole.columns, given["seed"])
    components = entering(planned, terms, family.parameter_names(levels), family.of_first)
    size = sum(len(c.inducing) for c in components)
    shaped = shaped_term(components)
    variational = choose_variational(family, size, given["variational"], given["engine"], shaped)
    if variational not in ("exact", "sites"):
        return None
    return Specification(
        terms,
        family,
        roles.response,
        levels,
        found.encoder,
        components,
        family.scale(whole.Y, whole.columns.weights),
        (),
        roles.offset,
        roles.weights,
        roles.trials,
        variational,
        censoring=roles.censoring,
    )
