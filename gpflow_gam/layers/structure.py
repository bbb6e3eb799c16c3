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
from ..gam.frames import Encoder, Table
from ..gam.terms import FactorSmooth, Levels, MarkovField, Smooth, Tensor, Term, Terms
from ..gam.terms.base import column_of
from ..gam.terms.smooth import OF_S

Kind = Literal["number", "level", "cycle", "multiplier"]
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

    def plan(self, X: AnyNDArray, seed: int = 0) -> tuple[Component, ...]:
        """
        Components as data would settle them; their sizes may differ from :attr:`components`.

        :param X: scaled features, [N, D].
        """
        reference = _reference(self.kinds, self.num_levels, self._periods(), len(X))
        constant = np.ptp(X, axis=0) == 0.0  # a unit that is dead so far has no distribution
        X = np.where(constant, reference, X)
        table = Table({f: X[:, i] for i, f in enumerate(self.features)})
        return tuple(plan(self.terms, table, self.encoder, X, None, seed))

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
    terms = Terms(_sized(term, num_inducing) for term in terms)
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
    levels = dict(num_levels)
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
    return Structure(terms, features, ways, encoder, tuple(plan(terms, table, encoder, X, None, 0)))


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


def _sized(term: Term, num_inducing: int | None) -> Term:
    if num_inducing is None or not isinstance(term, (Smooth, Tensor)) or term.k is not None:
        return term
    return dataclasses.replace(term, k=num_inducing)


def _readings(term: Term) -> list[tuple[object, Kind]]:
    if isinstance(term, Smooth) and term.bs in OF_S:
        raise ValueError(f"{term!r}: bs={term.bs!r} is for columns of tables, not for features.")
    if isinstance(term, Smooth) and term.bs == "ou":
        raise ValueError(
            f"{term!r}: bs='ou' forgets within some steps from value to value, which a layer does "
            "not see; bs='matern12' is as rough, and its memory is learnt from a spread on."
        )
    if isinstance(term, (FactorSmooth, MarkovField)):
        raise ValueError(
            f"{term!r} is for tables; of features write s(x, by=factor(g)) + factor(g)."
        )
    kind: Kind = "level" if isinstance(term, Levels) else "number"
    found: list[tuple[object, Kind]] = [(c, kind) for c in term.columns]
    if isinstance(term, Smooth) and term.bs == "cyclic":
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
            pairs = [(c, term.bs, term.period) for c in term.columns]
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
    return X
