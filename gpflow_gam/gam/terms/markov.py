"""Effects of areas that are like those of their neighbours: ``s(area, bs="mrf")``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .base import Column, FunctionOf, Level, Term, checked_by, checked_columns

Neighbours = tuple[tuple[Level, tuple[Level, ...]], ...]
"""Areas, each with its neighbours."""
Ring = tuple[tuple[float, float], ...]
Polygons = tuple[tuple[Level, tuple[Ring, ...]], ...]
"""Areas, each with the rings that bound its parts."""


@dataclasses.dataclass(frozen=True, repr=False)
class MarkovField(FunctionOf):
    """
    An effect for each area that is like those of its neighbours, zero on average over the data.

    The effects are a mixture, learnt from the data, of an intrinsic conditional autoregression on
    the graph of neighbours (Besag, York & Mollie 1991), scaled to a mean variance of one whatever
    the graph (Sorbye & Rue 2014), and of independent effects (``BYM2``: Riebler et al. 2016).
    mgcv's ``mrf`` is the first part alone, and so is ours where each area has but one row, in which
    independent effects cannot be told from noise. Parts of a graph that are not connected have a
    level of their own each. Areas without data have what their neighbours say.

    :param over: its one column, of areas.
    :param bs: as it was asked for: ``"mrf"``.
    :param neighbours: a mapping of each area to its neighbours, which must name it in turn; or a
        DataFrame of zeros and ones whose index and columns are the areas. By default those that
        share a corner of their ``polygons``.
    :param polygons: a mapping of areas to corners [n, 2], in the same coordinates to the last
        digit where areas meet; rows of NaN (as in mgcv), or a list of arrays, separate parts and
        holes. ``draw()`` makes a map of them.
    :param by_: a column of numbers, of which each area then has a coefficient, not zero on average;
        or a column of levels, which have effects of areas each for itself.
    :raises TypeError, ValueError: neighbours that are none, naming them.
    """

    function: ClassVar[str] = "s"
    over: tuple[Column, ...]
    bs: str = ""
    neighbours: Neighbours | None = None
    polygons: Polygons | None = None
    by_: Column | Term | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "over", checked_columns("s", self.over))
        if len(self.over) != 1:
            raise ValueError(f"s(): bs='mrf' takes one column, of areas; got {self.over!r}.")
        object.__setattr__(self, "by_", checked_by("s", self.over, self.by_))
        if self.neighbours is None and self.polygons is None:
            raise ValueError(
                "s(): bs='mrf' needs neighbours={area: [its neighbours], ...} or polygons={area: "
                "corners, ...}."
            )
        if self.polygons is not None:
            object.__setattr__(self, "polygons", _checked_polygons(self.polygons))
        if self.neighbours is None:
            assert self.polygons is not None
            object.__setattr__(self, "neighbours", sharing_corners(self.polygons))
        else:
            object.__setattr__(self, "neighbours", _checked_neighbours(self.neighbours))

    @property
    def areas(self) -> tuple[Level, ...]:
        """All areas, those without data too."""
        assert self.neighbours is not None
        return tuple(area for area, _ in self.neighbours)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of neighbours, by their places among the areas, each once."""
        assert self.neighbours is not None
        place = {area: i for i, area in enumerate(self.areas)}
        pairs = ((place[a], place[b]) for a, near in self.neighbours for b in near)
        return tuple((i, j) for i, j in pairs if i < j)

    def __repr__(self) -> str:
        given = "neighbours" if self.polygons is None else "polygons"
        by = "" if self.by_ is None else f", by={self.by_!r}"
        return f"s({self.over[0]!r}, bs='mrf', {given}=<of {len(self.areas)} areas>{by})"


def sharing_corners(polygons: Polygons) -> Neighbours:
    """Areas that have a corner in common."""
    owners: dict[tuple[float, float], set[int]] = {}
    for i, (_, rings) in enumerate(polygons):
        for corner in itertools.chain.from_iterable(rings):
            owners.setdefault(corner, set()).add(i)
    pairs = {pair for own in owners.values() for pair in itertools.permutations(sorted(own), 2)}
    if not pairs:
        raise ValueError(
            "s(): no two polygons share a corner, to the last digit; give neighbours=, too."
        )
    names = [area for area, _ in polygons]
    near: list[list[Level]] = [[] for _ in names]
    for i, j in sorted(pairs):
        near[i].append(names[j])
    return tuple((area, tuple(own)) for area, own in zip(names, near))


def _checked_neighbours(value: Any) -> Neighbours:
    if isinstance(value, pd.DataFrame):
        value = _of_matrix(value)
    found: dict[Level, tuple[Level, ...]] = {}
    for area, near in _pairs("neighbours", value):
        if isinstance(near, (str, bytes)) or not isinstance(near, Iterable):
            raise TypeError(f"s(): neighbours of {area!r} must be a list of areas; got {near!r}.")
        found[area] = tuple(dict.fromkeys(_level("neighbours", other) for other in near))
    for area, near in found.items():
        for other in near:
            if other == area:
                raise ValueError(f"s(): neighbours has {area!r} as its own neighbour.")
            if other not in found:
                raise ValueError(
                    f"s(): neighbours of {area!r} has {other!r}, which is no area; areas are "
                    f"{_shown(found)}."
                )
            if area not in found[other]:
                raise ValueError(
                    f"s(): neighbours must be mutual; {area!r} has {other!r}, and {other!r} does "
                    f"not have {area!r}."
                )
    return tuple(found.items())


def _of_matrix(frame: pd.DataFrame) -> dict[Any, list[Any]]:
    if set(frame.index) != set(frame.columns) or len(set(frame.index)) < len(frame):
        raise ValueError(
            "s(): neighbours as a DataFrame must have the areas as its index and, each once, as "
            "its columns."
        )
    A = frame[list(frame.index)].to_numpy()
    if not np.isin(A, [0, 1]).all():
        raise ValueError("s(): neighbours as a DataFrame must be zeros and ones.")
    names, linked = list(frame.index), A.astype(bool) & ~np.eye(len(A), dtype=bool)
    return {name: [names[j] for j in np.flatnonzero(row)] for name, row in zip(names, linked)}


def _checked_polygons(value: Any) -> Polygons:
    found: dict[Level, tuple[Ring, ...]] = {}
    for area, given in _pairs("polygons", value):
        parts = [given]
        if isinstance(given, (list, tuple)) and len(given) and np.ndim(given[0]) == 2:
            parts = list(given)
        rings = tuple(ring for part in parts for ring in _rings(area, part))
        if not rings:
            raise ValueError(f"s(): polygons: {area!r} has no corners.")
        found[area] = rings
    return tuple(found.items())


def _rings(area: Level, corners: Any) -> Iterator[Ring]:
    """The rings of a part, which rows of NaN separate."""
    try:
        points: AnyNDArray = np.asarray(corners, dtype=np.float64)
    except (TypeError, ValueError):
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(
            f"s(): polygons: corners of {area!r} must be an array [n, 2]; got "
            f"{type(corners).__name__} of shape {points.shape}."
        )
    holes = np.isnan(points).any(axis=1)
    for ring in np.split(points, np.flatnonzero(holes)):
        kept = ring[~np.isnan(ring).any(axis=1)]
        if not np.all(np.isfinite(kept)):
            raise ValueError(f"s(): polygons: {area!r} has infinite corners.")
        if 0 < len(kept) < 3:
            raise ValueError(f"s(): polygons: {area!r} has a part of {len(kept)} corner(s).")
        if len(kept):
            yield tuple((float(x), float(y)) for x, y in kept)


def _pairs(argument: str, value: Any) -> Iterator[tuple[Level, Any]]:
    """Areas with what is said of them, from a mapping or what files hold of it."""
    if isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in value
    ):
        raise TypeError(
            f"s(): {argument} must be a mapping of areas"
            + (", or a DataFrame" if argument == "neighbours" else "")
            + f"; got {type(value).__name__}."
        )
    if len(value) < 2:
        raise ValueError(f"s(): {argument} must have at least two areas; got {len(value)}.")
    seen = set()
    for area, own in value:
        level = _level(argument, area)
        if level in seen:
            raise ValueError(f"s(): {argument} has {level!r} twice.")
        seen.add(level)
        yield level, own


def _level(argument: str, value: Any) -> Level:
    level = value.item() if isinstance(value, np.generic) else value
    if not isinstance(level, (str, int, float, bool)):
        raise TypeError(
            f"s(): {argument}: areas are text or numbers; got {value!r} of type "
            f"{type(value).__name__}."
        )
    return level


def _shown(areas: Iterable[Level]) -> str:
    names = [repr(a) for a in areas]
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
