"""From declarative terms on features to components whose sizes no data decide."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtri
from scipy.stats import qmc

from ..gam.components import Component, learn_encoder, plan
from ..gam.components.curves import inducing_each
from ..gam.components.globe import LATITUDE, LONGITUDE
from ..gam.frames import Encoder, Table
from ..gam.terms import FactorSmooth, Levels, MarkovField, Smooth, Tensor, Term, Terms
from ..gam.terms.base import column_of

Kind = Literal["number", "level", "cycle", "multiplier", "latitude", "longitude"]
_NUM_ROWS = 2048


@dataclasses.dataclass(frozen=True)
class Structure:
    """
    The shape of an additive head: which features it reads, how, and through which components.

    All sizes follow from the terms, so that a configuration alone rebuilds the layer and its
    weights then fit. Numbers (inducing inputs, centring nodes) start from standard normal features.

    :param terms: the terms, every smooth with its number of inducing inputs.
    :param features: the indices of the features read; they become columns 0, 1, ... of X.
    :param kinds: how each is read.
    :param encoder: names the columns.
    :param components: the intercept first.
    """

    terms: Terms
    features: tuple[int, ...]
    kinds: tuple[Kind, ...]
    encoder: Encoder
    components: tuple[Component, ...]

    @property
    def width(self) -> int:
        """D, the columns of X."""
        return len(self.features)

    @property
    def num_levels(self) -> dict[int, int]:
        """Levels of the columns of X that hold codes."""
        return {
            place: len(self.encoder.levels(feature))
            for place, (feature, kind) in enumerate(zip(self.features, self.kinds))
            if kind == "level"
        }

    @property
    def limits(self) -> dict[int, tuple[float, float]]:
        """What the columns of X that are degrees are within."""
        ends = {"latitude": LATITUDE, "longitude": LONGITUDE}
        return {i: ends[kind] for i, kind in enumerate(self.kinds) if kind in ends}

    def plan(self, X: AnyNDArray, seed: int = 0) -> tuple[Component, ...]:
        """
        Components as data would settle them; their sizes may differ from :attr:`components`.

        :param X: scaled features, [N, D].
        """
        reference = _reference(self.kinds, self.num_levels, self._periods(), len(X))
        constant = np.ptp(X, axis=0) == 0.0  # a unit that is dead so far has no distribution
        X = np.where(constant, reference, X)
        table = Table({f: X[:, i] for i, f in enumerate(self.features)})
        return _planned(self.terms, table, self.encoder, X, seed)

    def _periods(self) -> dict[int, float]:
        return _periods(self.terms, self.features)


def build_structure(
    terms: Terms, num_inducing: int | None, num_levels: Mapping[int, int]
) -> Structure:
    """
    The structure of a head.

    :param terms: on features by index.
    :param num_inducing: inducing inputs of each smooth that names no ``k``.
    :param num_levels: how many levels features have that are read as codes 0, 1, ...
    :raises TypeError: a term that names a column.
    :raises ValueError: a feature that is read in two ways, or whose levels or period are missing.
    """
    levels = dict(num_levels) | _areas(terms, num_levels)
    terms = Terms((_sized(term, num_inducing, levels) for term in terms), select=terms.select)
    kinds: dict[int, Kind] = {}
    for term in terms:
        for feature, kind in _readings(term):
            if not isinstance(feature, int):
                raise TypeError(
                    f"terms of a layer name features by index, such as s(0); got {feature!r} in "
                    f"{term.label}."
                )
            known = kinds.get(feature)
            pair = {known, kind}
            if known is None or pair == {"multiplier", "number"}:
                kinds[feature] = kind if known is None else "number"
            elif known != kind:
                raise ValueError(
                    f"feature {feature} is read as a {known} and as a {kind} ({term.label}); "
                    "pass the layer that column twice, and name one copy in each term."
                )
    for feature, kind in kinds.items():
        if kind == "level" and int(levels.get(feature, 0)) < 2:
            raise ValueError(
                f"feature {feature} is read as levels; pass num_levels={{{feature}: K}} with "
                "K >= 2 for the codes 0 to K - 1."
            )
    strange = sorted(set(levels) - {f for f, kind in kinds.items() if kind == "level"})
    if strange:
        raise ValueError(f"num_levels names feature {strange[0]}, which no term reads as levels.")
    features, ways = tuple(kinds), tuple(kinds.values())
    counts = {i: levels[f] for i, f in enumerate(features) if ways[i] == "level"}
    X = _reference(ways, counts, _periods(terms, features), _NUM_ROWS)
    table = Table({f: X[:, i] for i, f in enumerate(features)})
    encoder = learn_encoder(terms, (), table)
    order = [f for f, _ in encoder.columns]
    assert order == list(features)  # one reading a feature, in order of appearance
    return Structure(terms, features, ways, encoder, _planned(terms, table, encoder, X, 0))


def _planned(
    terms: Terms, table: Table, encoder: Encoder, X: AnyNDArray, seed: int
) -> tuple[Component, ...]:
    """Components of which all are penalised: features move, and so do their natural sizes."""
    found = plan(terms, table, encoder, X, None, seed)
    return tuple(dataclasses.replace(c, shrink=True) for c in found)


def spread_rows(have: AnyNDArray, spare: AnyNDArray) -> AnyNDArray:
    """
    As many rows as ``spare``: those of ``have``, then those of ``spare`` farthest from them.

    Inducing inputs must differ, so that padding by copies will not do.

    :param have: [n, d].
    :param spare: [m, d].
    """
    rows = list(have[: len(spare)])
    left = list(spare)
    while len(rows) < len(spare):
        gaps = [min(np.sum((row - z) ** 2) for row in rows) for z in left]
        rows.append(left.pop(int(np.argmax(gaps))))
    return np.array(rows).reshape(spare.shape)


def _areas(terms: Terms, num_levels: Mapping[int, int]) -> dict[int, int]:
    """
    How many areas features have that are codes of them.

    :raises ValueError: areas that are no such codes, or another number of them.
    """
    found = {}
    for term in terms:
        if not isinstance(term, MarkovField):
            continue
        (feature,), number = term.columns, len(term.areas)
        if term.areas != tuple(range(number)):
            raise ValueError(
                f"{term!r}: areas of a layer are codes, neighbours={{0: [...], 1: [...], ...}} in "
                f"this order; got {', '.join(map(repr, term.areas[:5]))}."
            )
        if not isinstance(feature, int):
            continue  # which is said of every term
        if num_levels.get(feature, number) != number:
            raise ValueError(
                f"num_levels says that feature {feature} has {num_levels[feature]} levels; "
                f"{term!r} has {number}."
            )
        found[feature] = number
    return found


def _sized(term: Term, num_inducing: int | None, num_levels: Mapping[int, int]) -> Term:
    if isinstance(term, FactorSmooth) and term.k is None:
        # of each level, however many of them data have
        factor = term.columns[-1]
        number = num_levels.get(factor, 1) if isinstance(factor, int) else 1
        return dataclasses.replace(term, k=inducing_each(number))
    if num_inducing is None or not isinstance(term, (Smooth, Tensor)) or term.k is not None:
        return term
    return dataclasses.replace(term, k=num_inducing)


def _readings(term: Term) -> list[tuple[object, Kind]]:
    if isinstance(term, Smooth) and term.kind == "rw":
        raise ValueError(
            f"{term!r}: bs='rw' goes from value to value of a column, which a layer does not see; "
            "bs='matern12' is as rough."
        )
    if isinstance(term, Smooth) and term.kind == "ou":
        raise ValueError(
            f"{term!r}: bs='ou' forgets within some steps from value to value, which a layer does "
            "not see; bs='matern12' is as rough, and its memory is learnt from a spread on."
        )
    if isinstance(term, Smooth) and term.kind == "iou":
        raise ValueError(
            f"{term!r}: bs='iou' is a curve less its line over the data, which move with the "
            "layers below; bs='matern52' is as smooth."
        )
    kind: Kind = "level" if isinstance(term, (Levels, MarkovField)) else "number"
    found: list[tuple[object, Kind]] = [(c, kind) for c in term.columns]
    if isinstance(term, FactorSmooth):
        found = [(term.columns[0], "number"), (term.columns[1], "level")]
    if isinstance(term, Smooth) and term.kind == "sos":
        found = [(term.columns[0], "latitude"), (term.columns[1], "longitude")]
    if isinstance(term, Smooth) and term.kind == "cyclic":
        found = [(c, "cycle") for c in term.columns]
    if isinstance(term, Tensor):
        found = [
            (c, "cycle" if bs == "cyclic" else "number") for c, bs in zip(term.columns, term.kinds)
        ]
    by = term.by
    if by is not None:
        found.append((column_of(by), "level" if isinstance(by, Term) else "multiplier"))
    return found


def _periods(terms: Terms, features: tuple[int, ...]) -> dict[int, float]:
    """Periods of the columns of X that go round."""
    periods = {}
    for term in terms:
        pairs: list[tuple[object, str, float | None]] = []
        if isinstance(term, Smooth):
            pairs = [(c, term.kind, term.period) for c in term.columns]
        if isinstance(term, Tensor):
            pairs = list(zip(term.columns, term.kinds, term.periods))
        for feature, bs, period in pairs:
            if bs != "cyclic":
                continue
            if period is None:
                raise ValueError(f"{term.label}: bs='cyclic' needs period=... in a layer.")
            periods[features.index(feature)] = float(period)  # type: ignore[arg-type]
    return periods


def _reference(
    kinds: tuple[Kind, ...], num_levels: Mapping[int, int], periods: Mapping[int, float], rows: int
) -> AnyNDArray:
    """Quasi-random features [N, D] with the distribution that scaling aims at (Sobol' 1967)."""
    number = max(int(np.ceil(np.log2(max(rows, 1)))), 6)
    u: AnyNDArray = qmc.Sobol(len(kinds), seed=0).random_base2(number)[:rows]
    X = ndtri(u)
    for i, count in num_levels.items():
        X[:, i] = np.floor(u[:, i] * count)
    for i, period in periods.items():
        X[:, i] = u[:, i] * period
    for i, kind in enumerate(kinds):  # even on the globe
        if kind == "latitude":
            X[:, i] = np.rad2deg(np.arcsin(2.0 * u[:, i] - 1.0))
        elif kind == "longitude":
            X[:, i] = 360.0 * u[:, i] - 180.0
    return X
