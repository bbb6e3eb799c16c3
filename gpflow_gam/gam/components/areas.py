"""What data settle of areas that are neighbours."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ..frames import Key, LevelColumn, Table, learn_levels
from ..terms import FactorSmooth, MarkovField, RandomEffect, Term, Terms
from .component import Margin


def learn_areas(table: Table, term: MarkovField) -> LevelColumn:
    """
    The areas as a column's levels, those without data too.

    :raises ValueError: the column has others.
    """
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


def check_other_readers(
    terms: Terms,
    table: Table,
    areas: MarkovField,
    keys_of: Callable[[Term, Table], list[Key]],
) -> None:
    """
    Check that no other term reads areas which it cannot know.

    :raises ValueError: some areas have no data, and another term needs data of each level.
    """
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


def area_margin(margin: Margin, number: int) -> Margin:
    """
    A margin of all areas, those without data of no weight.

    :param margin: of those with data.
    :param number: of areas.
    """
    weights = [0.0] * number
    for code, weight in zip(margin.nodes, margin.weights):
        weights[int(code)] = weight
    return dataclasses.replace(
        margin, nodes=tuple(float(i) for i in range(number)), weights=tuple(weights)
    )
