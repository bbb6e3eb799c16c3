"""Fits to rows of which several processes hold a share each."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ...communicator import Communicator
from ...kernels import AdditiveKernel
from ...optimizers.binned.columns import CodedColumns
from ...optimizers.binned.passes import Rows, bytes_of_pass
from ...storage import Stored
from ..families import Family, Levels
from ..frames import Blocks, Holes
from ..terms import Column, ResponseSpec, Terms
from .deviance import Discrepancies, Pearson
from .encoding import Encoding, Sample, Share, Totals, encode_share
from .fitted import FittedGAM
from .fitting import Roles
from .resolving import unresolved, with_variables
from .rows import row_components
from .specification import Specification
from .streaming import (
    check_survey,
    first_rows,
    fit_encoded,
    needs_all_rows,
    read_in_blocks,
    too_many,
    with_trials,
)
from .surveying import Findings, columns_needed, located, reading
from .whole import Whole

_APART = "needs all rows in one memory, which rows shared out among workers are not."
_CLOSED = (
    "sums over the rows of all workers are there during the fit alone; what a fitted GAM tells "
    "needs none."
)


_NONE = Discrepancies(None, None)


@dataclasses.dataclass(frozen=True)
class Communication:
    """
    What a fit told the other workers.

    :param workers: how many there were.
    :param bytes_a_pass: what each contributes to the reduction of one pass over the rows.
    :param reductions: of all kinds, over the fit.
    :param bytes: what each contributed to them in all.
    """

    workers: int
    bytes_a_pass: int
    reductions: int
    bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class SharedWhole(Whole):
    """
    What this process holds of its share of the rows; bins and marginals are of all.

    :param start: the number of the first row here.
    :param total: N, over all processes.
    :param exchange: with the others.
    """

    start: int
    total: int
    exchange: Communicator

    @property
    def number(self) -> int:
        return self.total

    def rows(self, spec: Specification, kernel: AdditiveKernel, X: AnyNDArray) -> Rows:
        parts = row_components(spec.components, kernel, self.columns)
        shape = [(len(c.interpolation.nodes), c.bins.number, c.num_residual) for c in parts]
        if any(other != shape for other in self.exchange.gathered(shape)):
            raise ValueError(
                "the workers came to different nodes for the same columns: their processors or "
                "libraries round differently; run the same versions on machines of one kind."
            )
        mean, sample = self.mean(spec), (self.indices, X)
        own = self.columns.X, self.Y, mean, sample
        return Rows(parts, *own, self.start, self.total, self.exchange)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, AnyNDArray]]:
        raise ValueError(
            "a GAM that several workers have fitted cannot be saved to a file, which would hold "
            "the rows of one of them only; pass data=False, or export it with gpflow_gam.serving."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class SharedFit(FittedGAM):
    """
    The outcome of a fit to shares of the rows: what asks for all of them was asked at its end.

    :param offset: the known part of the predictor, offsets at their mean, [L].
    :param found: deviances and Pearson's statistic.
    :param communication: what the fit told the other workers.
    """

    offset: AnyNDArray = dataclasses.field(default_factory=lambda: np.zeros(0))
    found: Discrepancies = _NONE
    communication: Communication | None = None

    def mean_offset(self) -> AnyNDArray:
        return self.offset

    def discrepancies(self) -> Discrepancies:
        return self.found

    def sample_pearson(self, number: int) -> Pearson | None:
        return self.found.pearson


def fit_share(
    terms: Terms,
    family: Family,
    source: Callable[[], tuple[Any, ResponseSpec]],
    exchange: Communicator,
    *,
    offset: tuple[Column, ...],
    weights: Column | None,
    trials: Column | None,
    missing: str,
    variational: str | None,
    engine: str,
    seed: int,
    **options: Any,
) -> SharedFit:
    """
    Fit a GAM to rows of which this process has a share.

    Every process calls this with its own share; the outcome is the same on all, and that of one
    process which reads the shares one after the other.

    :param terms: of the predictor.
    :param family: of the response.
    :param source: gives the share and the response's name, as :func:`fit_source` takes them.
    :param exchange: with the other processes.
    :param offset: and the others as of a :class:`~gpflow_gam.GAM`.
    :param weights: as of :class:`~gpflow_gam.GAM`.
    :param trials: as of :class:`~gpflow_gam.GAM`.
    :param missing: as of :class:`~gpflow_gam.GAM`.
    :param variational: as of :class:`~gpflow_gam.GAM`.
    :param engine: as of :class:`~gpflow_gam.GAM`.
    :param seed: as of :class:`~gpflow_gam.GAM`.
    :param options: of :func:`gpflow_gam.optimizers.fit_rows`; those that say when a fit ends must
        say so on all processes at once.
    :return: the fit, which holds this process's share of the rows.
    :raises ValueError: on all processes, where one was given data or arguments that no such model
        can be fitted to, or other arguments than the first; or what needs all rows in one memory.
    """
    needs = needs_all_rows(variational, engine, options)
    if missing == "impute":
        needs = "missing='impute'"
    if unresolved(terms):
        needs = "a formula that transforms columns, or has '.',"

    opened: list[tuple[Terms, Blocks, Roles]] = []

    def open_share() -> dict[str, str]:
        data, response = source()
        roles = Roles.of(response, offset, weights, trials)
        own_terms = with_variables(terms, lambda: first_rows(data, terms, roles))
        opened.append((own_terms, read_in_blocks(data, terms, roles), roles))
        if needs:
            raise ValueError(f"{needs} {_APART}")
        own = roles.suited(family)
        return _arguments(own_terms, own, roles, missing, variational, seed, options)

    _check_alike(exchange.together(open_share))
    ((terms, blocks, roles),) = opened
    family, roles = with_trials(roles.suited(family), roles, blocks, exchange.together)
    progress = options.get("progress")
    shares = _shares(exchange, terms, roles, blocks, missing, progress)
    own, total = shares[exchange.place], sum(s.number for s in shares)

    found = functools.reduce(
        Findings.merged,
        _alike(
            exchange.together(
                lambda: _findings(terms, family, roles, blocks, own, missing, progress, total)
            )
        ),
    ).survey(terms, roles, sum(s.dropped for s in shares))
    check_survey(terms, roles, found)

    def encode(levels: Levels | None, number: int | None) -> tuple[Whole, Sample]:
        encodings: list[Encoding] = []

        def read() -> Totals:
            part = encode_share(terms, family, roles, blocks, found, levels, own, number, progress)
            encodings.append(part)
            return part.totals()

        totals = functools.reduce(Totals.merged, exchange.together(read))
        whole, (X, Y) = encodings[0].done(totals)
        kept = exchange.gathered((whole.indices + own.start, X, Y))
        indices, X, Y = (np.concatenate(parts) for parts in zip(*kept))
        parts = whole.columns
        columns = CodedColumns(parts.X, parts.coded, parts.ranges, parts.weights, exchange)
        stored = Stored(whole.Y.raw, exchange)
        shared = SharedWhole(columns, stored, whole.marginals, indices, own.start, total, exchange)
        return shared, (X, Y)

    given = {"variational": variational, "engine": engine, "seed": seed, **options}
    fit = fit_encoded(terms, family, roles, found, encode, given)
    if fit is None:
        raise ValueError(too_many(_APART))
    return _finished(fit, exchange)


def _finished(fit: FittedGAM, exchange: Communicator) -> SharedFit:
    """With what would need all rows, while all workers are there."""
    solution, whole = fit.solution, fit.whole
    assert solution is not None
    assert isinstance(whole, SharedWhole)
    known, L = whole.mean(fit.spec), fit.num_predictors
    sums, mass = np.zeros(L), 0.0
    for at, w in whole.weights():
        sums, mass = sums + w @ known[at], mass + float(w.sum())
    sums, count = exchange.total([sums, mass])
    found = fit.discrepancies()
    K = sum(int(np.size(p)) for p in fit.model.likelihood.trainable_parameters)
    R, L = solution.data.shift.shape
    E = sum(m.shape[1] for m in solution.data.masses)
    pass_ = bytes_of_pass(R, L, E, None if solution.bound is not None else K)
    told = Communication(exchange.number, pass_, exchange.reductions, exchange.bytes)
    exchange.close(_CLOSED)
    own = {f.name: getattr(fit, f.name) for f in dataclasses.fields(fit) if f.init}
    own["model"] = fit.trained
    return SharedFit(**own, offset=sums / count, found=found, communication=told)


# --- shares -----------------------------------------------------------------------------------


def _shares(
    exchange: Communicator,
    terms: Terms,
    roles: Roles,
    blocks: Blocks,
    missing: str,
    progress: bool | None,
) -> list[Share]:
    """
    Which rows each process has, in their order.

    Rows' numbers settle the sample, and so bins: they must be known before it is drawn, which
    takes a pass of its own where rows are dropped or nobody knows how many there are.
    """

    def count() -> tuple[int, int]:
        number = blocks.num_rows
        if missing == "error" and number is not None:
            return number, 0
        holes, columns = Holes(), columns_needed(terms, roles)
        for block in reading(blocks, "counting rows", progress):
            holes.add(block, columns)
        return holes.num_rows - holes.incomplete, holes.incomplete

    counts = exchange.together(count)
    empty = [i for i, (number, _) in enumerate(counts) if number == 0]
    if empty:
        raise ValueError(
            f"data: worker {empty[0]} has no row{' without missing values' * (missing == 'drop')}; "
            "give each worker a share of the rows, or start fewer."
        )
    starts = np.cumsum([0, *(number for number, _ in counts)]).tolist()
    return [Share(number, start, gone) for (number, gone), start in zip(counts, starts)]


def _findings(
    terms: Terms,
    family: Family,
    roles: Roles,
    blocks: Blocks,
    share: Share,
    missing: str,
    progress: bool | None,
    total: int,
) -> Findings:
    """What this process's rows have."""
    columns, holes = columns_needed(terms, roles), Holes()
    found: Findings | None = None
    for block in reading(blocks, "reading, pass 1 of 2", progress):
        with located(holes.num_rows, block.num_rows):
            bad = holes.add(block, columns)
            if bad.any():
                block = block.rows(~bad)
            if block.num_rows == 0:
                continue
            found = Findings(terms, family, roles, block, share.start) if found is None else found
            found.add(block)
    holes.check(missing)
    if found is None or found.summary is None or found.summary.number != share.number:
        raise ValueError("data gave other rows the second time; it must give the same each time.")
    sample = found.summary.sample.of_total(total)
    found.summary = dataclasses.replace(found.summary, sample=sample)
    return found


def _alike(findings: Sequence[Findings]) -> Sequence[Findings]:
    """
    :raises ValueError: a column is of numbers here and of levels there.
    """
    first = dict(findings[0].kinds)
    for place, found in enumerate(findings):
        for name, kinds in found.kinds.items():
            if first.get(name) != kinds:
                raise ValueError(
                    f"column {name!r} is read as {' and '.join(kinds)} by worker {place} and as "
                    f"{' and '.join(first.get(name, ('nothing',)))} by worker 0; give the shares "
                    "the same columns, of the same types."
                )
    return findings


# --- arguments --------------------------------------------------------------------------------


def _arguments(
    terms: Terms,
    family: Family,
    roles: Roles,
    missing: str,
    variational: str | None,
    seed: int,
    options: Mapping[str, Any],
) -> dict[str, str]:
    """What must be the same on all processes, as text."""
    own = {k: v for k, v in options.items() if k not in ("callback", "progress", "max_seconds")}
    stated = {
        "terms": terms,
        "family": family,
        "y": roles.response if roles.censoring is None else roles.censoring,
        "offset": roles.offset,
        "weights": roles.weights,
        "trials": roles.trials,
        "missing": missing,
        "variational": variational,
        "seed": seed,
        **own,
    }
    # of a kernel or a likelihood its kind is all that is known, not where it is in memory
    return {name: re.sub(r" at 0x[0-9a-f]+", "", repr(value)) for name, value in stated.items()}


def _check_alike(arguments: Sequence[Mapping[str, str]]) -> None:
    first = arguments[0]
    for place, own in enumerate(arguments):
        for name in dict.fromkeys([*first, *own]):
            here, there = own.get(name, "not given"), first.get(name, "not given")
            if here != there:
                raise ValueError(
                    f"{name}: worker {place} was started with {here}, worker 0 with {there}; all "
                    "workers must be given the same arguments, but for their data."
                )
