"""Scores for the interactions that a fitted GAM does not have."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .. import GAM
from ..components import Margin
from ..fits import FittedGAM
from ..terms import Column, Interaction, ti
from .arguments import check_count, check_gain
from .expansion import expand
from .features import margin_features, product
from .gain import evidence_gain
from .selection import Candidate, Columns, choose

_FORMS = ("smooth", "own", "line", "levels", "means")
"""Components that are the main effect of a column."""


@dataclasses.dataclass(frozen=True)
class _Column:
    """
    A column that has a main effect.

    :param name: the column.
    :param margin: what is known of it.
    :param period: the period that the main effect was given.
    """

    name: Column
    margin: Margin
    period: float | None


def screen_interactions(
    gam: GAM,
    depth: int = 2,
    *,
    columns: Iterable[Column] | None = None,
    k: int | None = None,
    max_interactions: int | None = None,
    min_gain: float | None = None,
    max_rows: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """
    Score the interactions that a fitted GAM lacks, and choose among them.

    A candidate's score is the log evidence that it would add to the GAM as fitted, its own
    variance optimised, its lengthscales where their prior peaks, everything else held
    (:func:`evidence_gain`): exact for Gaussian data but for the candidate's kernel being cut to 64
    features, and for other families in the Gaussian approximation that the fit has come to. A
    score costs O(N R F) for F features beside main effects of R degrees of freedom, and no fit.
    Several predictors count as independent and share the variance, as they do in the model.

    The best are chosen one by one, each beside those chosen before, while they gain more than
    ``1 + log(number of candidates)`` nats (or ``min_gain``). An additive truth lets a candidate of
    fixed variance gain t with probability ``exp(-t)`` at most, as a likelihood ratio has mean 1;
    with the variance optimised the chance is about half of a chi-squared variable's on one degree
    of freedom to exceed 2t (Self & Liang 1987), so that in expectation less than one in ten screens
    chooses an interaction for nothing.

    That guard holds where the main effects' model is right but for what they leave out. A family
    without a variance of its own (Poisson, say) takes very strong interactions, before they are
    in, for noise that it does not know, and may choose one too many: fit the GAM of those chosen,
    and screen it again. A family with one is held back instead: as interactions come in, the noise
    goes down and those left would gain more. There too it helps to screen again, as
    ``anova(rounds=2)`` does; where there are many, set ``min_gain=0`` as well.

    Beyond pairs, candidates are the chosen interactions (and those in the GAM) with one column
    more: not all subsets are looked at, and an interaction none of whose parts stands out is
    missed (weak heredity: Chipman 1996). Screening pairs by what they add to main effects follows
    Lou, Caruana, Gehrke & Hooker (2013).

    :param gam: fitted; its main effects say which columns there are and of which kind. Columns of
        numbers that it reads as levels are scored as levels, but ``ti`` goes by a column's type:
        make them categories.
    :param depth: the most columns of an interaction.
    :param columns: those that may interact; all that have a main effect by default.
    :param k: inducing inputs of the terms proposed; what :func:`~gpflow_gam.ti` has by default.
    :param max_interactions: how many to choose at most, in all; twice the number of columns by
        default.
    :param min_gain: the log evidence [nats] that is too little; by default what guards against
        interactions that are not there. 0 takes all that the evidence is for, and leaves it to
        their prior to hold back what is none: better predictions where interactions are many.
    :param max_rows: rows that are looked at, drawn at random beyond that: scores then are of those
        rows given all others, and less than all rows would say.
    :param seed: of those draws.
    :return: a row a candidate, the highest gain first: ``term``; ``gain`` [nats], beside what the
        GAM has and the interactions of fewer columns that are chosen; ``variance`` of its kernel at
        that gain, in the square of the predictor's unit; ``partial_gain`` [nats], beside those of
        as many columns chosen before as well, NaN where it was not worth looking; ``chosen``.
    :raises ValueError: a GAM that is not fitted, fewer than two columns, columns without a main
        effect, numbers out of range; names the argument.
    """
    fit = gam.fitted
    known = _columns(fit)
    if columns is not None:
        known = _selected(known, columns)
    check_count("depth", depth, 1)
    if depth > len(known):
        raise ValueError(
            f"depth={depth} is more than the {len(known)} column(s) that have a main effect."
        )
    check_count("max_rows", max_rows, 2)
    check_gain(min_gain)
    limit = 2 * len(known) if max_interactions is None else max_interactions
    check_count("max_interactions", limit, 0)

    rows = _rows(fit, max_rows, seed)
    parts = [margin_features(c.margin, fit.X[rows, c.margin.column]) for c in known]

    def features(places: Columns) -> AnyNDArray:
        return product(tuple(parts[i] for i in places)).values

    expansion = expand(fit, rows)
    present = _present(fit, known)
    parents: list[Columns] = [(i,) for i in range(len(known))]
    found: list[Candidate] = []
    for order in range(2, depth + 1):
        candidates = [
            Candidate(places, *evidence_gain(*expansion.project(features(places))))
            for places in _extensions(parents, len(known))
            if places not in present
        ]
        guard = 1.0 + math.log(max(len(candidates), 1))
        threshold = guard if min_gain is None else min_gain
        expansion = choose(expansion, candidates, features, limit, threshold)
        parents = [c.columns for c in candidates if c.chosen]
        parents += [places for places in present if len(places) == order]
        found += candidates
    best = sorted((c for c in found if c.chosen), key=_partial_gain, reverse=True)
    for candidate in best[limit:]:
        candidate.chosen = False
    found.sort(key=lambda c: c.gain, reverse=True)
    return pd.DataFrame(
        {
            "term": pd.Series(
                [_term([known[i] for i in c.columns], k) for c in found], dtype=object
            ),
            "gain": [c.gain for c in found],
            "variance": [c.variance for c in found],
            "partial_gain": [_partial_gain(c) for c in found],
            "chosen": np.array([c.chosen for c in found], dtype=bool),
        }
    )


def _partial_gain(candidate: Candidate) -> float:
    return math.nan if candidate.partial_gain is None else candidate.partial_gain


def _columns(fit: FittedGAM) -> list[_Column]:
    """The columns that have a main effect, in the order of the terms."""
    keys = list(fit.spec.encoder.columns)
    found: dict[Column, _Column] = {}
    for component in fit.spec.effects:
        if component.form in _FORMS and component.by is None and len(component.margins) == 1:
            margin = component.margins[0]
            name = keys[margin.column][0]
            period = getattr(fit.spec.term(component.term), "period", None)
            found.setdefault(name, _Column(name, margin, period))
    return list(found.values())


def _selected(known: Sequence[_Column], names: Iterable[Column]) -> list[_Column]:
    by_name = {c.name: c for c in known}
    names = list(names)
    absent = [n for n in names if n not in by_name]
    if absent:
        raise ValueError(
            f"columns: {absent[0]!r} has no main effect in the GAM, which has those of "
            f"{', '.join(repr(n) for n in by_name)}; add s({absent[0]!r}) to it."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"columns: {names!r} names a column twice.")
    return [by_name[n] for n in names]


def _rows(fit: FittedGAM, max_rows: int, seed: int) -> AnyNDArray:
    """The rows that are looked at, in order; those of weight zero say nothing."""
    rows = np.flatnonzero(fit.weights > 0.0)
    if len(rows) > max_rows:
        rows = np.sort(np.random.default_rng(seed).choice(rows, max_rows, replace=False))
    return rows


def _present(fit: FittedGAM, known: Sequence[_Column]) -> set[Columns]:
    """The sets of columns whose interaction the GAM has, whatever it is written as."""
    keys = list(fit.spec.encoder.columns)
    places = {c.name: i for i, c in enumerate(known)}
    sets = set()
    for component in fit.spec.effects:
        names = {keys[column][0] for column in component.columns}
        if len(names) > 1 and names <= set(places):
            sets.add(tuple(sorted(places[n] for n in names)))
    return sets


def _extensions(parents: Sequence[Columns], number: int) -> list[Columns]:
    """Every parent with one of ``number`` columns more, each set once."""
    return sorted({tuple(sorted((*p, i))) for p in parents for i in range(number) if i not in p})


def _term(columns: Sequence[_Column], k: int | None) -> Interaction:
    # a column of levels is one whatever kind is asked for
    kinds = tuple("se" if c.margin.kind == "levels" else c.margin.kind for c in columns)
    names = [c.name for c in columns]
    bs = kinds[0] if len(set(kinds)) == 1 else kinds
    periods = tuple(c.period for c in columns)
    return ti(*names, bs=bs, k=k, period=None if set(periods) == {None} else periods)
