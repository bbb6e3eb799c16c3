"""From terms and data to components: spans, centring measures and inducing inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ...measures import NUM_NODES, Empirical
from ...optimizers.binned.bins import Columns
from ...threads import one_blas_thread
from ..frames import (
    Encoder,
    Key,
    NumericColumn,
    Table,
    is_levels,
    learn_levels,
    numeric_column,
)
from ..frames.encoding import LevelColumn
from ..terms import (
    Column,
    FactorSmooth,
    Interaction,
    Levels,
    Linear,
    MarkovField,
    RandomEffect,
    Smooth,
    Tensor,
    Term,
    Terms,
)
from ..terms.base import column_of
from ..terms.smooth import KINDS
from .inducing import (
    LATITUDE,
    LONGITUDE,
    NUM_INDUCING_ADAPTIVE,
    By,
    Component,
    Form,
    Margin,
    Seen,
    curve_inducing,
    curve_nodes,
    fewer_points,
    globe_inducing,
    globe_margins,
    globe_points,
    inducing_inputs,
    rough_inducing,
    shaped_inducing,
    short_memory,
    speed_knots,
    with_breaks,
)

INTERCEPT = "intercept"
"""Name of the constant, among components and in tables."""
_LEAST = 1e-100
"""Below which products of a few numbers may be zero."""


def keys_of(term: Term, table: Table) -> list[Key]:
    """Columns of ``table`` that a term reads, each as a number or a level, ``by`` last."""
    if isinstance(term, (Levels, MarkovField)):
        keys: list[Key] = [(term.columns[0], "level")]
    elif isinstance(term, FactorSmooth):
        factor = _factor_of(term, table)
        keys = [(c, "level" if c == factor else "number") for c in term.columns]
    elif isinstance(term, Tensor):
        keys = [(c, "level" if is_levels(table, c) else "number") for c in term.columns]
    else:
        keys = [(c, "number") for c in term.columns]
    by = term.by
    if by is not None:
        name = column_of(by)
        own = not isinstance(term, RandomEffect) and (
            isinstance(by, Term) or is_levels(table, name)
        )
        keys.append((name, "level" if own else "number"))
    return keys


def _factor_of(term: FactorSmooth, table: Table) -> Column:
    """The factor among a term's two columns."""
    own = [c for c in term.columns if is_levels(table, c)]
    if len(own) == 2:
        raise ValueError(
            f"{term.label}: bs={term.bs!r} takes a number and a factor; {own[0]!r} and {own[1]!r} "
            "are both of levels. For what two factors do together write te(), or one "
            "random_effect() of a column that has their combinations."
        )
    return own[0] if own else term.columns[-1]


def entering(
    components: Iterable[Component],
    terms: Terms,
    parameters: Sequence[str],
    of_first: bool = False,
) -> tuple[Component, ...]:
    """The components in the predictors of their terms, without intercepts taken away."""
    places = {name: i for i, name in enumerate(parameters)}
    for term in terms:
        if term.parameter and term.parameter not in places:
            raise ValueError(
                f"terms: there is no {term.parameter!r} that could have {term.label}; there are "
                f"{', '.join(parameters)}."
            )
    own = {t.label: (places[t.parameter],) for t in terms if t.parameter}
    if of_first and len(parameters) > 1:
        own = {t.label: (0,) for t in terms if not t.parameter} | own
    number = len(parameters)
    every = tuple(range(number))
    shared = (0,) if of_first else every
    without = {i for n in terms.without for i in ((places[n],) if n in places else shared)}
    result = [dataclasses.replace(c, predictors=own.get(c.term, ())) for c in components]
    if without:
        left = tuple(i for i in every if i not in without)
        result[0] = dataclasses.replace(result[0], predictors=left)
        result = result[0 if left else 1 :]
    entered = {i for c in result for i in c.predictors_of(number)}
    for name, i in places.items():
        if i not in entered:
            which = f"{name!r} has" if name else "there are"
            raise ValueError(
                f"terms: {which} neither terms nor an intercept; leave the intercept in."
            )
    return tuple(result)


def learn_encoder(terms: Terms, extra: Iterable[tuple[Column, str]], table: Table) -> Encoder:
    """The columns of X that the terms need."""
    columns: dict[Key, NumericColumn | LevelColumn] = {}
    globes = [t.columns for t in terms if isinstance(t, Smooth) and t.kind == "sos"]
    limits = {lon: LONGITUDE for _, lon in globes} | {lat: LATITUDE for lat, _ in globes}
    policies = {_factor_of(t, table): t.policy for t in terms if isinstance(t, FactorSmooth)}
    areas = {t.columns[0]: t for t in terms if isinstance(t, MarkovField)}
    policies |= {t.columns[0]: t.unseen for t in terms if isinstance(t, Levels)}
    for term in terms:
        for name, kind in keys_of(term, table):
            if (name, kind) in columns:
                continue
            if kind == "number":
                columns[name, kind] = numeric_column(table, name, term, limits.get(name))
            elif name in areas:
                _check_other_readers(terms, table, areas[name])
                columns[name, kind] = _learn_areas(table, areas[name])
            else:
                columns[name, kind] = learn_levels(table, name, policies.get(name, "error"))
    for name, use in extra:
        columns.setdefault((name, "number"), NumericColumn(name, use))
    return Encoder(columns)


@one_blas_thread()  # for clusters
def plan_columns(
    terms: Terms, table: Table, encoder: Encoder, columns: Columns, seed: int = 0
) -> list[Component]:
    """The components, the intercept first, from distinct values and their weights."""
    components = [Component(INTERCEPT, "", "constant", inducing=((),))]
    for term in terms:
        selects = terms.select or (isinstance(term, (Smooth, Tensor)) and term.select)
        manner = seed, _is_free(term, terms), selects
        keys = keys_of(term, table)
        places = [encoder.index(*key) for key in keys]
        number = len(term.columns)
        for name, place in zip(term.columns, places):
            _check_varies(term, name, columns.value_range(place))
        own_keys, own = keys[:number], places[:number]
        if term.by is None:
            data = Seen.of(columns, own)
            components.append(_component(term, term.label, own_keys, own, data, None, *manner))
            continue
        (by_name, kind), by_place = keys[number], places[number]
        if kind == "number":
            size = columns.size(by_place)
            if size == 0.0:
                raise ValueError(f"column {by_name!r} is all zero; drop {term.label}.")
            if size < _LEAST:
                raise ValueError(
                    f"column {by_name!r} has a size of {size:g}, whose square underflows; multiply "
                    "it by a power of ten."
                )
            data = Seen.of(columns, own)
            by = By(by_place, size=size)
            components.append(_component(term, term.label, own_keys, own, data, by, *manner))
            continue
        there = columns.bins((by_place,)).points[columns.mass((by_place,)) > 0.0, 0]
        for code, level in enumerate(encoder.levels(by_name)):
            if code not in there:
                continue
            for name, place in zip(term.columns, places):
                reach = columns.value_range(place, (by_place, code))
                _check_varies(term, name, reach, f" where {by_name!r} is {level!r}")
            data = Seen.of(columns, own, (by_place, code))
            by = By(by_place, code, str(level))
            label = f"{term.label}={level}"
            components.append(_component(term, label, own_keys, own, data, by, *manner))
    return components


def _is_free(term: Term, terms: Terms) -> bool:
    """True if a term is not centred for lack of an intercept: the first factor, or all lines."""
    carrier = terms.carrier(term.parameter)
    if carrier is not None:
        return term == carrier
    return term.parameter in terms.without and _form(term) == "line"


def _check_varies(term: Term, name: Column, reach: tuple[float, float], where: str = "") -> None:
    if reach[0] == reach[1] and not isinstance(term, RandomEffect):
        raise ValueError(
            f"column {name!r} is constant{where}, so that {term.label} has nothing to show; drop "
            "the term."
        )
    if 0.0 < reach[1] - reach[0] < _LEAST:
        raise ValueError(
            f"column {name!r} spans {reach[1] - reach[0]:g}{where}, whose square underflows; "
            "multiply it by a power of ten."
        )


def _component(
    term: Term,
    name: str,
    keys: list[Key],
    places: list[int],
    data: Seen,
    by: By | None,
    seed: int,
    free: bool,
    select: bool,
) -> Component:
    kinds, periods = _kinds(term, keys)
    margins = tuple(
        _margin(place, kind, period, data, i)
        for i, (place, kind, period) in enumerate(zip(places, kinds, periods))
    )
    margins = with_breaks(term, margins, [data.column(i)[0] for i in range(len(margins))])
    form = _form(term)
    if free and form == "levels":
        form = "means"
    elif free:
        margins = (_through_zero(margins[0], data),)
    nodes: AnyNDArray = np.zeros((0, len(places)))
    weights: AnyNDArray = np.zeros(0)
    if form == "tensor" or (form == "smooth" and len(places) > 1 and "sos" not in kinds):
        nodes, weights = _joint_nodes(data, kinds, seed)
    edges: tuple[tuple[int, int], ...] = ()
    knots: tuple[float, ...] = ()
    k = getattr(term, "k", None)
    kind = term.kind if isinstance(term, Smooth) and term.kernel is None else ""
    if isinstance(term, MarkovField):
        margins, edges = (_area_margin(margins[0], len(term.areas)),), term.edges
    if any(m.shape for m in margins):
        Z = shaped_inducing(margins)
    elif kind == "sos":
        margins = globe_margins(margins, data.points)
        nodes, weights = globe_points(data.points, data.weights, NUM_NODES[2], seed)
        Z = globe_inducing(data.points, data.weights, k, seed)
    elif isinstance(term, Smooth) and kind in KINDS and KINDS[kind].rough:
        if kind == "ou":
            margins = (short_memory(margins[0], data.points),)
        Z = rough_inducing(term, data.points)
    elif isinstance(term, FactorSmooth):
        if term.bs == "fs":
            nodes, weights = curve_nodes(margins, data.points, data.weights)
        Z = curve_inducing(term, margins, data.points)
    else:
        if kind == "iou" and len(margins[0].nodes) < 3:
            raise ValueError(
                f"{name}: bs='iou' bends, which takes three values of {keys[0][0]!r} or more; got "
                f"{len(margins[0].nodes)}. Ask linear() for a line, or factor() for levels."
            )
        if kind == "ad":
            knots, k = speed_knots(data.points), k or NUM_INDUCING_ADAPTIVE
        varying = by is not None and by.code is None
        Z = inducing_inputs(form, margins, data, k, seed, varying)
    return Component(
        name,
        term.label,
        form,
        margins,
        by,
        tuple(map(tuple, nodes.tolist())),
        tuple(weights.tolist()),
        tuple(map(tuple, Z.tolist())),
        edges=edges,
        knots=knots,
        shrink=term.shrinks if isinstance(term, (Linear, Levels)) else True,
        select=select and form in ("smooth", "tensor"),
    )


def _form(term: Term) -> Form:
    if isinstance(term, RandomEffect):
        return "random"
    if isinstance(term, MarkovField):
        return "areas"
    if isinstance(term, FactorSmooth):
        return "curves" if term.bs == "fs" else "deviations"
    if isinstance(term, Levels):
        return "levels"
    if isinstance(term, Linear) or (isinstance(term, Smooth) and term.kind == "linear"):
        return "line"
    if isinstance(term, Smooth):
        if term.kernel is not None:
            return "own"
        return "smooth" if term.isotropic else "tensor"
    return "interaction" if isinstance(term, Interaction) else "tensor"


def _kinds(term: Term, keys: list[Key]) -> tuple[list[str], list[float | None]]:
    if isinstance(term, Tensor):
        kinds = [b if k[1] == "number" else "levels" for b, k in zip(term.kinds, keys)]
        return kinds, list(term.periods)
    if isinstance(term, Smooth):
        return [term.kind] * len(keys), [term.period] * len(keys)
    if isinstance(term, FactorSmooth):
        return ["levels" if kind == "level" else "se" for _, kind in keys], [None, None]
    return ["linear" if isinstance(term, Linear) else "levels"], [None]


def _margin(place: int, kind: str, period: float | None, data: Seen, i: int) -> Margin:
    values, weights = data.column(i)
    measure = Empirical(values, weights)
    if kind == "levels":
        own, masses = _stated(measure)
        return Margin(place, kind, nodes=own, weights=masses)
    own, masses = _stated(measure.thinned(NUM_NODES[1]))
    ends = tuple(data.ends[i].tolist())
    least, low, high, greatest = (float(v) for v in data.reach[:, i])
    span = high - low if high > low else greatest - least
    if kind == "cyclic":
        period = greatest - least if period is None else float(period)
    return Margin(
        place,
        kind,
        span,
        float(np.average(values, weights=weights)),
        period,
        own,
        masses,
        ends,
    )


def _through_zero(margin: Margin, data: Seen) -> Margin:
    """Margin of a line that is zero at zero, whose span is the column's root mean square."""
    values, weights = data.column(0)
    size = float(np.sqrt(np.average(np.square(values), weights=weights)))
    return dataclasses.replace(margin, centre=0.0, span=size)


def _stated(measure: Empirical) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The nodes and weights of a measure on one column, as a margin holds them."""
    return tuple(measure.points[:, 0].tolist()), tuple(measure.probabilities.tolist())


def _joint_nodes(data: Seen, kinds: list[str], seed: int) -> tuple[AnyNDArray, AnyNDArray]:
    number = NUM_NODES.get(data.points.shape[1], 150)
    if "levels" in kinds and len(data.points) > number:
        levels = [i for i, kind in enumerate(kinds) if kind == "levels"]
        return fewer_points(data.points, data.weights, levels, number, seed)
    measure = Empirical.from_data(data.points, data.weights, seed=seed)
    return measure.points, measure.probabilities


# --- areas ---------------------------------------------------------------------------------------


def _learn_areas(table: Table, term: MarkovField) -> LevelColumn:
    """The areas as a column's levels, those without data too."""
    (name,) = term.columns
    occurring, areas = learn_levels(table, name).levels, term.areas
    strange = [level for level in occurring if level not in areas]
    if strange:
        kinds = [{type(v).__name__ for v in values} for values in (occurring, areas)]
        hint = "" if kinds[0] & kinds[1] else f" (areas are {kinds[1]}, the column has {kinds[0]})"
        shown = ", ".join(repr(a) for a in areas[:12]) + (", ..." if len(areas) > 12 else "")
        raise ValueError(
            f"column {name!r} has the level {strange[0]!r}, which is none of the areas of "
            f"bs='mrf'{hint}; they are {shown}."
        )
    return LevelColumn(name, areas)


def _check_other_readers(terms: Terms, table: Table, areas: MarkovField) -> None:
    """Check that no other term reads areas which it cannot know."""
    (name,) = areas.columns
    missing = set(areas.areas) - set(learn_levels(table, name).levels)
    if not missing:
        return
    for term in terms:
        takes = isinstance(term, FactorSmooth) and term.policy == "prior"
        if takes or isinstance(term, (MarkovField, RandomEffect)):
            continue
        if (name, "level") in keys_of(term, table):
            raise ValueError(
                f"{areas.label} is to know areas of {name!r} without data, such as "
                f"{min(missing, key=str)!r}, of which {term.label} knows nothing: leave one of the "
                "two out, or take random_effect()."
            )


def _area_margin(margin: Margin, number: int) -> Margin:
    """A margin of all areas, those without data of no weight."""
    weights = [0.0] * number
    for code, weight in zip(margin.nodes, margin.weights):
        weights[int(code)] = weight
    return dataclasses.replace(
        margin, nodes=tuple(float(i) for i in range(number)), weights=tuple(weights)
    )
