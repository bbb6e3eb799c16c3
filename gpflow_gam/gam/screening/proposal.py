"""Terms proposed from columns: main effects, and interactions up to a depth."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from gpflow.likelihoods import Likelihood

from .. import GAM
from ..components.inducing import NUM_INDUCING
from ..families import Family
from ..frames import Table, is_levels
from ..terms import Column, Surv, Term, Terms, as_column, as_columns, factor, linear, s, ti
from .screen import check_count, check_gain, screen_interactions

MAX_TERMS = 500
"""Most terms that are proposed without data."""
MAX_INDUCING = 600
"""Inducing inputs that main effects have together, and interactions, where there are many."""
_LEAST_INDUCING = 8


def anova(
    columns: Iterable[Column] | None = None,
    depth: int = 2,
    *,
    bs: str | Mapping[Column, str] = "se",
    k: int | None = None,
    k_interaction: int | None = None,
    levels: Iterable[Column] = (),
    data: Any = None,
    y: Any = None,
    family: str | Family | Likelihood = "gaussian",
    offset: Column | Iterable[Column] | None = None,
    weights: Column | None = None,
    trials: Column | None = None,
    missing: str = "error",
    max_interactions: int | None = None,
    min_gain: float | None = None,
    rounds: int = 1,
    max_rows: int = 2000,
    seed: int = 0,
    **options: Any,
) -> Terms:
    """
    Propose the terms of a functional ANOVA: main effects, and interactions up to a depth.

    Without ``data`` these are a main effect of every column and ``ti`` of every set of 2 to
    ``depth`` columns. With ``data`` and ``y`` a GAM of the main effects is fitted, all pairs are
    scored beside it, and those that stand out are proposed, the best first; see
    :func:`gpflow_gam.gam.screening.screen_interactions`, which also shows the scores. Sets of three
    and more extend the pairs that were chosen, so that no number of columns is too large to try.

    A column of text, categories or truth values becomes ``factor``, one of two numbers ``linear``,
    all others ``s``.

    :param columns: their names, or indices; with ``data`` None takes all that vary, but the
        response, offsets, weights and trials.
    :param depth: the most columns of a term; 1 for main effects alone.
    :param bs: the kind of kernel, as in :func:`~gpflow_gam.s`; a mapping gives those of some
        columns, and the others ``"se"``.
    :param k: inducing inputs of a main effect. By default as in :func:`~gpflow_gam.s`, but beyond
        25 columns as many as make 600 in all, and at least 8.
    :param k_interaction: those of an interaction. By default as in :func:`~gpflow_gam.ti`, but
        beyond 16 interactions as many as make 600 in all, and at least 8.
    :param levels: columns of levels, where there are no data to tell by.
    :param data: as in :meth:`gpflow_gam.GAM.fit`.
    :param y: the response: a column's name, or N values.
    :param family: of the response, as ``offset``, ``weights``, ``trials`` and ``missing`` are, an
        argument of :class:`gpflow_gam.GAM`.
    :param offset: columns added to the predictor.
    :param weights: a column: how often each row counts.
    :param trials: a column, of binomial responses.
    :param missing: ``"error"``, ``"drop"`` or ``"impute"``.
    :param max_interactions: how many a round proposes at most; twice the number of columns by
        default.
    :param min_gain: the least log evidence [nats]; by default a guard against interactions that are
        not there. 0 takes all that add evidence, and leaves shrinkage to their prior: better
        predictions where interactions are many.
    :param rounds: screens at most: after the first, the GAM is fitted with what was chosen and the
        others are scored beside it, until none stands out. With large interactions in, the noise is
        smaller and smaller ones are found.
    :param max_rows: rows that are scored, drawn at random beyond that.
    :param seed: of everything random.
    :param options: of :meth:`gpflow_gam.GAM.fit`, for the GAMs that are screened: ``progress``,
        ``max_seconds``, ...
    :return: main effects in the order of the columns, then interactions, round by round.
    :raises TypeError, ValueError: naming the argument or the column.
    """
    first = [*columns] if isinstance(columns, (list, tuple)) else [columns]
    if any(isinstance(value, GAM) for value in (*first, depth)):
        raise TypeError(
            "columns must be names of columns; got a GAM: anova proposes terms. To compare fitted "
            "GAMs call gpflow_gam.compare(m0, m1), which is by how well they predict rows that are "
            "left out."
        )
    for argument, count, least in (
        ("max_interactions", max_interactions, 0),
        ("max_rows", max_rows, 2),
        ("k", k, 1),
        ("k_interaction", k_interaction, 1),
        ("rounds", rounds, 1),
    ):
        if count is not None:
            check_count(argument, count, least)  # before anything is fitted
    check_gain(min_gain)
    if data is None:
        unused = {
            "y": y,
            "offset": offset,
            "weights": weights,
            "trials": trials,
            "max_interactions": max_interactions,
            "min_gain": min_gain,
            "rounds": None if rounds == 1 else rounds,
            **options,
        }
        for argument, value in unused.items():
            if value is not None:
                raise ValueError(f"{argument} is of use with data only; pass data= as well.")
        return _every_term(_checked_columns(columns), depth, bs, levels, k, k_interaction)
    if y is None:
        raise ValueError("y is missing: with data, name the response's column or pass its values.")
    table = Table(data)
    counted = table.counted([name for name in (weights, trials) if name is not None])
    names = _that_vary(
        counted, columns, _roles(table, y, offset=offset, weights=weights, trials=trials)
    )
    _check_depth(depth, names)
    terms = _main_effects(counted, names, bs, _listed("levels", levels, names), depth, k)
    if depth == 1:
        return terms
    chosen: list[Term] = []
    for _ in range(rounds):
        gam = GAM(
            terms + Terms(chosen),
            family,
            offset=offset,
            weights=weights,
            trials=trials,
            missing=missing,
            seed=seed,
        )
        scores = screen_interactions(
            gam.fit(table, y, **options),
            depth,
            max_interactions=max_interactions,
            min_gain=min_gain,
            max_rows=max_rows,
            seed=seed,
        )
        more = list(scores["term"][scores["chosen"]])
        if not more:
            break
        size = _shared(k_interaction, len(chosen) + len(more), NUM_INDUCING[2])
        chosen = [dataclasses.replace(term, k=size) for term in chosen + more]
    return terms + Terms(chosen)


def _checked_columns(columns: Any) -> list[Column]:
    """The columns that an argument names."""
    if columns is None:
        raise ValueError("columns is missing: name them, or pass data= and y=.")
    if as_column(columns) is not None:
        raise TypeError(f"columns must be a list of names; got {columns!r}; write [{columns!r}].")
    names = as_columns("columns", columns)
    if not names:
        raise ValueError("columns is empty; name at least one.")
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ValueError(f"columns: {twice[0]!r} is there twice; leave one out.")
    return names


def _check_depth(depth: int, names: Sequence[Column]) -> None:
    check_count("depth", depth, 1)
    if depth > len(names):
        raise ValueError(f"depth={depth} is more than there are columns, {len(names)}.")


def _listed(argument: str, some: Iterable[Column], names: Sequence[Column]) -> set[Column]:
    """The columns that an argument names among ``names``."""
    some = as_columns(argument, some)
    for name in some:
        if name not in names:
            raise ValueError(f"{argument} names {name!r}, which is not among the columns.")
    return set(some)


def _every_term(
    names: Sequence[Column],
    depth: int,
    bs: str | Mapping[Column, str],
    levels: Iterable[Column],
    k: int | None,
    k_interaction: int | None,
) -> Terms:
    """All terms up to a depth, where they are not too many."""
    kinds, of_levels = _kinds(bs, names), _listed("levels", levels, names)
    _check_depth(depth, names)
    number = sum(math.comb(len(names), order) for order in range(1, depth + 1))
    if number > MAX_TERMS:
        raise ValueError(
            f"{len(names)} columns have {number} terms up to depth={depth}; pass data= and y=, for "
            "those that stand out, or a smaller depth."
        )
    size = _shared(k, len(names), NUM_INDUCING[1])
    main = [factor(c) if c in of_levels else s(c, bs=kinds[c], k=size) for c in names]
    size = _shared(k_interaction, number - len(names), NUM_INDUCING[2])
    sets = [c for d in range(2, depth + 1) for c in itertools.combinations(names, d)]
    return Terms([*main, *(_interaction(c, kinds, of_levels, size) for c in sets)])


def _main_effects(
    table: Table,
    names: Sequence[Column],
    bs: str | Mapping[Column, str],
    of_levels: set[Column],
    depth: int,
    k: int | None,
) -> Terms:
    """A main effect of every column, as its values ask for."""
    kinds, chosen = _kinds(bs, names), bs if isinstance(bs, Mapping) else {}
    size = _shared(k, len(names), NUM_INDUCING[1])
    terms: list[Term] = []
    for name in names:
        by_type = is_levels(table, name)
        if name in of_levels and not by_type and depth > 1:
            raise ValueError(
                f"levels: column {name!r} holds numbers, which interactions read as such; make it "
                f"a category first: data.astype({{{name!r}: 'category'}})."
            )
        if by_type or name in of_levels:
            terms.append(factor(name))
        elif _distinct(table, name) == 2 and name not in chosen:
            terms.append(linear(name))  # of two values nothing else can be learnt
        else:
            terms.append(s(name, bs=kinds[name], k=size))
    return Terms(terms)


def _kinds(bs: str | Mapping[Column, str], names: Sequence[Column]) -> dict[Column, str]:
    """The kind of kernel of every column."""
    if not isinstance(bs, Mapping):
        return dict.fromkeys(names, bs)
    _listed("bs", bs, names)
    return {name: bs.get(name, "se") for name in names}


def _shared(asked: int | None, number: int, usual: int) -> int | None:
    """Inducing inputs of each of ``number`` components; None for the usual number."""
    if asked is not None or number * usual <= MAX_INDUCING:
        return asked
    return max(MAX_INDUCING // number, _LEAST_INDUCING)


def _interaction(
    columns: tuple[Column, ...], kinds: Mapping[Column, str], of_levels: set[Column], k: int | None
) -> Term:
    kinds_of = tuple("se" if c in of_levels else kinds[c] for c in columns)
    return ti(*columns, bs=kinds_of[0] if len(set(kinds_of)) == 1 else kinds_of, k=k)


def _roles(table: Table, y: Any, **others: Any) -> set[Any]:
    """The columns of the table that are no inputs."""
    column = as_column(y)
    named = [*y.columns] if isinstance(y, Surv) else [] if column is None else [column]
    for argument, other in others.items():
        if other is not None:
            named += as_columns(argument, other)
    return {table.name(n) for n in named}


def _that_vary(table: Table, columns: Any, roles: set[Any]) -> list[Column]:
    """The columns that are asked for, once each is there and varies, or all that do."""
    if columns is None:
        return [n for n in table.names if n not in roles and _distinct(table, n) > 1]
    names = _checked_columns(columns)
    for name in names:
        if table.name(name) in roles:
            raise ValueError(f"columns: {name!r} is the response, an offset, weights or trials.")
    constant = [n for n in names if _distinct(table, n) < 2]
    if constant:
        raise ValueError(
            f"columns: {', '.join(map(repr, constant))} hold(s) a single value, which has no "
            "effect; leave it out."
        )
    return names


def _distinct(table: Table, name: Column) -> int:
    return int(pd.Series(table.values(name)).nunique())
