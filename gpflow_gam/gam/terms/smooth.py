"""Smooth terms, ``s``, ``te`` and ``ti``, and the kinds of functions that ``bs=`` names."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import gpflow
import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ...errors import check_choice, plain_number
from ...kernels.shaped import SHAPES
from ...priors import Prior, checked_priors
from .base import (
    Column,
    FunctionOf,
    Lags,
    Level,
    Term,
    checked_k,
)
from .parametric import UNSEEN, random_effect


@dataclasses.dataclass(frozen=True)
class SmoothKind:
    """A kernel that ``bs=`` names, and what functions drawn from it are like."""

    name: str
    words: str  # as an article says it
    kernel: type[Kernel] | None = None
    """A stationary kernel with a variance and lengthscales; None where it is built otherwise."""
    tensor: bool = True  # true if te and ti take it, too, and not s alone
    one_column: bool = False
    has_line: bool = False  # true if it has a straight part of its own, of another size
    has_slope: bool = True  # true if functions drawn from it are differentiable
    shapeable: bool = False  # true if it can be made increasing, decreasing, convex or concave
    rough: bool = False
    """True if it has an inducing input at every value, and is identified beside a smooth."""
    outside: str = ""
    """Behaviour outside the data, in words; empty if it reverts to its straight part or to zero."""
    num_inducing: int | None = None  # of s by default; None for the number by columns


_GPFLOW = gpflow.kernels
_WALKS = "the walk goes on from where it was, and says less and less"
_WARPED = "squared exponential with a varying lengthscale"
_GLIDES = "the curve goes on along its slope, and says less and less"
_CURVE: dict[str, Any] = {"has_line": True, "shapeable": True}
_ALONE: dict[str, Any] = {"tensor": False, "one_column": True}
_LINED = _ALONE | {"has_line": True}
_EACH: dict[str, Any] = {"has_slope": False, "rough": True, "num_inducing": 300}

KINDS = {
    kind.name: kind
    for kind in (
        SmoothKind("se", "squared exponential", _GPFLOW.SquaredExponential, **_CURVE),
        SmoothKind("matern12", "Matern-1/2", _GPFLOW.Matern12, has_slope=False, **_CURVE),
        SmoothKind("matern32", "Matern-3/2", _GPFLOW.Matern32, **_CURVE),
        SmoothKind("matern52", "Matern-5/2", _GPFLOW.Matern52, **_CURVE),
        SmoothKind("cyclic", "periodic", one_column=True),
        SmoothKind("linear", "linear", one_column=True),
        SmoothKind("ou", "Ornstein-Uhlenbeck", _GPFLOW.Matern12, one_column=True, **_EACH),
        SmoothKind(
            "sos", "Matern-5/2 on the sphere", _GPFLOW.Matern52, tensor=False, num_inducing=60
        ),
        SmoothKind("rw", "random walk", outside=_WALKS, **_ALONE, **_EACH),
        SmoothKind("iou", "integrated Ornstein-Uhlenbeck", outside=_GLIDES, **_LINED),
        SmoothKind("ad", _WARPED, _GPFLOW.SquaredExponential, num_inducing=60, **_LINED),
    )
}
"""Kinds of smooths that ``bs`` names."""


def has_line(name: str) -> bool:
    """True if a margin's kind has a straight part of its own; levels and lines have none."""
    return name in KINDS and KINDS[name].has_line


Neighbours = tuple[tuple[Level, tuple[Level, ...]], ...]  # areas, each with its neighbours
Ring = tuple[tuple[float, float], ...]
Polygons = tuple[tuple[Level, tuple[Ring, ...]], ...]
"""Areas, each with the rings that bound its parts."""


@dataclasses.dataclass(frozen=True, repr=False)
class MarkovField(FunctionOf):
    """Effects of areas that are like those of their neighbours: see :func:`s`."""

    function: ClassVar[str] = "s"
    over: tuple[Column, ...]
    bs: str = ""
    neighbours: Neighbours | None = None
    polygons: Polygons | None = None
    by_: Column | Term | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.over) != 1:
            raise ValueError(f"s(): bs='mrf' takes one column, of areas; got {self.over!r}.")
        if self.polygons is not None:
            object.__setattr__(self, "polygons", _checked_polygons(self.polygons))
        near = self.neighbours
        if near is None and self.polygons is None:
            raise ValueError(
                "s(): bs='mrf' needs neighbours={area: [its neighbours], ...} or polygons={area: "
                "corners, ...}."
            )
        near = sharing_corners(self.polygons or ()) if near is None else _checked_neighbours(near)
        object.__setattr__(self, "neighbours", near)

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
    owners: dict[tuple[float, float], dict[Level, None]] = {}
    for area, rings in polygons:
        for corner in itertools.chain.from_iterable(rings):
            owners.setdefault(corner, {})[area] = None
    near: dict[Level, dict[Level, None]] = {area: {} for area, _ in polygons}
    for together in owners.values():
        for one, other in itertools.permutations(together, 2):
            near[one][other] = None
    if not any(near.values()):
        raise ValueError(
            "s(): no two polygons share a corner, to the last digit; give neighbours=, too."
        )
    place = {area: i for i, area in enumerate(near)}
    return tuple((area, tuple(sorted(near[area], key=place.__getitem__))) for area in near)


def _checked_neighbours(value: Any) -> Neighbours:
    if isinstance(value, pd.DataFrame):
        rows, columns = list(value.index), list(value.columns)
        if len({*rows}) < len(rows) or sorted(map(str, rows)) != sorted(map(str, columns)):
            raise ValueError(
                "s(): neighbours as a DataFrame must have the areas, each once, as its index and "
                f"as its columns; got {rows} and {columns}."
            )
        if not np.isin(value, [0, 1]).all():
            raise ValueError("s(): neighbours as a DataFrame must be zeros and ones.")
        value = value[value.index]
        value = {area: row.index[row == 1] for area, row in value.iterrows()}
    result: dict[Level, tuple[Level, ...]] = {}
    for area, near in _by_area("neighbours", value).items():
        if isinstance(near, str) or not isinstance(near, Iterable):
            raise TypeError(f"s(): neighbours of {area!r} must be a list of areas; got {near!r}.")
        others = dict.fromkeys(_level("neighbours", other) for other in near)
        result[area] = tuple(other for other in others if other != area)
    for area, near in result.items():
        for other in near:
            if area not in result.get(other, ()):
                raise ValueError(
                    f"s(): neighbours must be mutual; {area!r} has {other!r}, and {other!r} "
                    + (f"does not have {area!r}." if other in result else "is no area.")
                )
    return tuple(result.items())


def _checked_polygons(value: Any) -> Polygons:
    result: dict[Level, tuple[Ring, ...]] = {}
    for area, given in _by_area("polygons", value).items():
        separate = isinstance(given, (list, tuple)) and len(given) and np.ndim(given[0]) == 2
        rings = (ring for part in (given if separate else [given]) for ring in _rings(area, part))
        result[area] = tuple(rings)
    return tuple(result.items())


def _rings(area: Level, corners: Any) -> Iterator[Ring]:
    """The rings of a part, which rows of NaN separate."""
    try:
        points: AnyNDArray = np.asarray(corners, dtype=np.float64)
    except (TypeError, ValueError):
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] != 2 or np.isinf(points).any():
        raise ValueError(
            f"s(): polygons: corners of {area!r} must be an array [n, 2] of numbers; got one of "
            f"shape {points.shape}, or an infinite one."
        )
    holes = np.isnan(points).any(axis=1)
    for ring in np.split(points, np.flatnonzero(holes)):
        kept = ring[~np.isnan(ring).any(axis=1)]
        if 0 < len(kept) < 3:
            raise ValueError(f"s(): polygons: {area!r} has a part of {len(kept)} corner(s).")
        if len(kept):
            yield tuple((float(x), float(y)) for x, y in kept)


def _by_area(argument: str, value: Any) -> dict[Level, Any]:
    """What a mapping, or a list of pairs as files have it, says of each area."""
    try:
        areas = dict(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"s(): {argument} must be a mapping of areas: {error}") from None
    if len(areas) < 2:
        raise ValueError(f"s(): {argument} must have at least two areas; got {len(areas)}.")
    return {_level(argument, area): content for area, content in areas.items()}


def _level(argument: str, value: Any) -> Level:
    level = plain_number(value)
    if not isinstance(level, (str, int, float, bool)):
        raise TypeError(f"s(): {argument}: areas are text or numbers; got {value!r}.")
    return level


FACTOR_SMOOTHS = ("fs", "sz")


@dataclasses.dataclass(frozen=True, repr=False)
class FactorSmooth(FunctionOf):
    """A function of a number for each level of a factor: see :func:`s`."""

    function: ClassVar[str] = "s"
    over: tuple[Column, ...]
    bs: str = ""
    k: int | None = None
    unseen: str | None = None
    by_: Column | Term | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.over) != 2:
            raise ValueError(
                f"s(): bs={self.bs!r} takes a number and a factor, as s('x', 'g', bs={self.bs!r}); "
                f"got {len(self.over)} column(s)."
            )
        check_choice("s(): unseen", self.unseen, (*UNSEEN, None))

    @property
    def policy(self) -> str:
        """Policy for levels that were not in the data."""
        return self.unseen or ("prior" if self.bs == "fs" else "error")


LEAST_SPLINES = 4  # along a column of numbers, of a function with a shape

_ALIASES = {"cc": "cyclic", "cp": "cyclic", "periodic": "cyclic", "rbf": "se", "gp": "se"}
_SHRINKING = ("ts", "cs")
SPLINES = ("tp", "cr", "ps", "ds", "bs", *_SHRINKING)
"""Bases of mgcv, which ask for a smooth curve; those that shrink for one that may vanish."""
DEFAULT = "matern52"
"""
The kind of kernel of curves that name none. Curves in data are seldom analytic, as draws of the
squared exponential are: its bands are too narrow, and its predictions a little worse.
"""
_OF_SEVERAL = "se"  # of smooths of several columns, which would take four times as many nodes


def checked_kind(function: str, bs: object) -> str | None:
    """The kind of kernel that ``bs`` names, or one of mgcv's bases; None for the default."""
    if bs is None:
        return None
    kind = _ALIASES.get(str(bs), bs)
    names = [name for name, known in KINDS.items() if known.tensor or function == "s"]
    if kind not in (*names, *SPLINES):
        if function == "s":
            names += [*FACTOR_SMOOTHS, "mrf", "re"]
        raise ValueError(
            f"{function}(): bs must be one of {', '.join(names)}; got {bs!r}. Spline bases of "
            f"mgcv's ({', '.join(SPLINES)}) give the default."
        )
    return str(kind)


def _kernel_of(bs: str | None, columns: int) -> str:
    if bs is not None and bs not in SPLINES:
        return bs
    return DEFAULT if columns == 1 else _OF_SEVERAL


def _checked_period(function: str, kind: str, period: object) -> None:
    if period is None:
        return
    if kind != "cyclic":
        raise ValueError(f"{function}(): period={period!r} needs bs='cyclic'; got bs={kind!r}.")
    if not isinstance(period, (int, float)) or not np.isfinite(period) or period <= 0:
        raise ValueError(f"{function}(): period must be a positive number; got {period!r}.")


class SmoothTerm(FunctionOf):
    """A smooth function with the fields ``bs``, ``period`` and ``shape`` of all columns or each."""

    bs: Any
    k: int | None
    period: Any
    shape: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        name = self.function
        object.__setattr__(self, "bs", self._each("bs", self.bs, lambda b: checked_kind(name, b)))
        object.__setattr__(self, "period", self._each("period", self.period, plain_number))
        for kind, period in zip(self.kinds, self.periods):
            _checked_period(name, kind, period)

    def _check_shapes(self) -> None:
        for shape in self.shapes:
            check_choice(f"{self.function}(): shape", shape, (*SHAPES, None))
        known = [name for name, kind in KINDS.items() if kind.shapeable]
        other = next((kind for kind in self.kinds if kind not in known), None)
        if other is not None:
            raise ValueError(
                f"{self.function}(): shape is not for bs={other!r}, but for {', '.join(known)}; "
                "leave one of bs and shape out."
            )

    def _each(self, argument: str, value: Any, check: Any) -> Any:
        """Checked; one value, or of several columns a tuple with one a column."""
        if not isinstance(value, (tuple, list)) or self.least == 1:
            return check(value)
        if len(value) != len(self.over):
            raise ValueError(
                f"{self.function}(): {argument} must be one value or one a column, "
                f"{len(self.over)}; got {value!r}."
            )
        return tuple(check(v) for v in value)

    @property
    def bases(self) -> tuple[str | None, ...]:
        """``bs`` as written, one for each column."""
        return self.bs if isinstance(self.bs, tuple) else (self.bs,) * len(self.over)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of kernel on each column."""
        return tuple(_kernel_of(bs, len(self.over)) for bs in self.bases)

    @property
    def periods(self) -> tuple[float | None, ...]:
        """The period on each column."""
        if isinstance(self.period, tuple):
            return self.period
        if self.least == 1:
            return (self.period,) * len(self.over)
        # one period is for the cyclic columns among several
        return tuple(self.period if kind == "cyclic" else None for kind in self.kinds)

    @property
    def shapes(self) -> tuple[str | None, ...]:
        """The shape along each column, None for any; empty where there is none."""
        return self.shape if isinstance(self.shape, tuple) else (self.shape,) * bool(self.shape)

    @property
    def select(self) -> bool:
        """True if the term shrinks to zero where the data do not support it."""
        return any(bs in _SHRINKING for bs in self.bases)


@dataclasses.dataclass(frozen=True, repr=False)
class Smooth(SmoothTerm):
    """A smooth function of one column, or an isotropic one of several: see :func:`s`."""

    function: ClassVar[str] = "s"
    over: tuple[Column, ...]
    bs: str | None = None
    k: int | None = None
    by_: Column | Term | None = None
    period: float | None = None
    kernel: Kernel | None = None
    isotropic: bool = True
    shape: str | None = None
    at: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.bs
        if self.at is not None:
            self._check_at()
        if len(self.over) > 1 and KINDS[self.kind].one_column:
            better = f"; {'use te() for' if KINDS[self.kind].tensor else 'got'} {self.over}"
            raise ValueError(f"s(): bs={kind!r} is for one column{better}.")
        if kind == "sos" and (len(self.over) != 2 or not self.isotropic):
            raise ValueError(
                "s(): bs='sos' takes latitude and longitude in degrees, as s('lat', 'lon', "
                "bs='sos'), which share one lengthscale; "
                + (f"got {self.over}." if self.isotropic else "leave isotropic=False out.")
            )
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise TypeError(f"s(): kernel must be a gpflow kernel; got {self.kernel!r}.")
        if not isinstance(self.isotropic, bool):
            raise TypeError(f"s(): isotropic must be True or False; got {self.isotropic!r}.")
        if not self.isotropic and len(self.over) == 1:
            raise ValueError("s(): isotropic=False is of several columns; leave it out of one.")
        check_choice("s(): shape", self.shape, (*SHAPES, None))
        if self.shape is None:
            return
        self._check_shapes()
        if self.k is not None and self.k < LEAST_SPLINES:
            raise ValueError(
                f"s(): a function with a shape is made of at least {LEAST_SPLINES} splines; got "
                f"k={self.k}."
            )
        if len(self.over) > 1:
            raise ValueError(
                f"s(): shape={self.shape!r} is along one column; of {self.over} say which in "
                f"te(..., shape=({self.shape!r}, None))."
            )

    def _check_at(self) -> None:
        at: AnyNDArray = np.asarray(self.at, dtype=np.float64)
        if at.ndim != 1 or len(at) < 2 or not np.all(np.diff(at) > 0.0) or np.isinf(at).any():
            raise ValueError(
                "s(): at must be the increasing places, two or more, at which each curve was read; "
                f"got {self.at!r}."
            )
        if len(self.over) > 1 or self.by_ is not None:
            raise ValueError(
                "s(): at= is of one column that holds curves, and which the coefficient function "
                f"multiplies; leave by= and other columns out. Got {self.over!r}."
            )
        object.__setattr__(self, "at", tuple(at.tolist()))

    @property
    def kind(self) -> str:
        return _kernel_of(self.bs, len(self.over))

    @property
    def label(self) -> str:
        label = super().label
        return label.replace(")", f",{self.bs})", 1) if KINDS[self.kind].rough else label


@dataclasses.dataclass(frozen=True, repr=False)
class Tensor(SmoothTerm):
    """A function of several columns, each with its own kernel: see :func:`te` and :func:`ti`."""

    function: ClassVar[str] = "te"
    least = 2
    over: tuple[Column, ...]
    bs: str | tuple[str | None, ...] | None = None
    k: int | None = None
    by_: Column | Term | None = None
    period: float | tuple[float | None, ...] | None = None
    shape: tuple[str | None, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape is not None:
            self._check_shapes()

    def _check_shapes(self) -> None:
        if not isinstance(self.shape, (tuple, list)) or len(self.shape) != len(self.over):
            like = ("increasing", *[None] * (len(self.over) - 1))
            raise ValueError(
                f"te(): shape must say for each of {self.over} what the function is along it, as "
                f"shape={like!r}; got {self.shape!r}."
            )
        object.__setattr__(self, "shape", tuple(self.shape))
        super()._check_shapes()
        if sum(shape is not None for shape in self.shape) != 1:
            raise ValueError(
                f"te(): a function has a shape along one column, and None along the others; got "
                f"shape={self.shape!r}."
            )


@dataclasses.dataclass(frozen=True, repr=False)
class Interaction(Tensor):
    """Interaction of several columns beyond their main effects: see :func:`ti`."""

    function: ClassVar[str] = "ti"


@dataclasses.dataclass(frozen=True, repr=False)
class Lag(Tensor):
    """A function of a column's value and of its lag, summed over lags: see :func:`lag`."""

    function: ClassVar[str] = "lag"
    first: int = 0
    last: int = 0
    group: Column | None = None
    time: Column | None = None
    step: float | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "last", "step"):
            object.__setattr__(self, name, plain_number(getattr(self, name)))
        ends = self.first, self.last
        if not all(type(end) is int for end in ends) or not 0 <= ends[0] < ends[1]:
            raise ValueError(
                "lag() needs the first and the last lag, whole numbers from 0, as lag('x', 0, 21); "
                f"got {self.first!r} and {self.last!r}. For one lag make that column."
            )
        if self.step is not None and self.time is None:
            raise ValueError(
                f"lag(): step={self.step!r} is between times; name their column, time=."
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        others = self.group, self.time, self.step
        return (Lags.of(self.over[0], self.first, self.last, *others),)

    @property
    def named(self) -> tuple[Column, ...]:
        return self.over[:1]

    @property
    def label(self) -> str:
        return f"{self.parameter}:{self._own}" if self.parameter else self._own

    @property
    def _own(self) -> str:
        return f"lag({self.over[0]})"


_CURVES = ("k", "period", "kernel", "shape", "isotropic", "at", "id", "edf")
_OPTIONS = {
    "mrf": ("neighbours", "polygons"),
    "fs": ("k", "unseen"),
    "sz": ("k", "unseen"),
    "re": (),
    "sos": tuple(name for name in _CURVES if name != "at"),
}
"""Options of ``s`` beside ``by`` and ``prior`` by kind; of others those of curves."""


def s(
    *columns: Column,
    bs: str | None = None,
    k: int | None = None,
    by: Column | Term | None = None,
    period: float | None = None,
    kernel: Kernel | None = None,
    shape: str | None = None,
    isotropic: bool = True,
    unseen: str | None = None,
    neighbours: Any = None,
    polygons: Any = None,
    at: Any = None,
    prior: Prior | tuple[Prior, ...] | None = None,
    id: str | None = None,
    edf: float | None = None,
) -> Term:
    """
    A smooth function of a column, zero on average over the data.

    Most kinds are a straight line and a deviation from it, whose sizes are learnt and may vanish:
    what is straight, or absent, comes out so, and far outside the data only the line is left.

    :param columns: one column; several share one lengthscale, so have them in one unit, or learn a
        lengthscale for each by ``isotropic=False``.
    :param bs: the kernel: ``"matern52"``, the default of one column; ``"se"`` (squared
        exponential), that of several and of Keras heads; ``"matern12"``, ``"matern32"``,
        ``"cyclic"`` (periodic; also ``"cc"``), ``"linear"``; ``"re"`` gives
        :func:`random_effect`; of a number and a column of levels ``"fs"`` a random curve for each
        level and ``"sz"`` what each adds to the curve of all; of areas ``"mrf"`` effects like those
        of neighbours. On the globe ``"sos"``, of latitude and longitude in degrees: a Matern-5/2
        kernel of the distance through it. Of what is left in time ``"ou"``, an Ornstein-Uhlenbeck
        process (autoregressive of order one) whose prior has it forget within some values, and
        ``"rw"``, a random walk, which goes on from where it is with bands that grow. ``"iou"`` is a
        curve that goes on along its slope beyond the data, with bands that grow, as smoothing
        splines do: its second derivative is an Ornstein-Uhlenbeck process. ``"ad"`` is adaptive:
        its lengthscale varies along the column, by a warp whose slope is learnt at six knots.
        mgcv's spline bases ``"tp"``, ``"cr"``, ``"ps"``, ``"bs"`` and ``"ds"`` give the default,
        with a warning, and ``"ts"`` and ``"cs"`` the default that vanishes where it is not there,
        as all smooths do with ``GAM(..., select=True)``.
    :param k: how many inducing inputs; by default (or -1) up to 24 quantiles of one column, 36
        cluster centres of two, 50 of more; 60 of ``"sos"`` and ``"ad"``; of ``"ou"`` and ``"rw"``,
        which are rough, every value up to 300; of ``"fs"`` and ``"sz"`` 10 a level.
    :param by: a numeric column that multiplies the function (a varying coefficient), or a column
        of levels (text, categories, or ``factor("column")``) that each get a function of their own.
    :param period: of ``bs="cyclic"``, in the column's unit (24 of hours 0 to 23); by default the
        column's range.
    :param kernel: your own GPflow kernel on these columns, numbered from 0 in this order; it is
        used as it is, neither centred nor given priors.
    :param shape: what the function is sure to be: ``"increasing"``, ``"decreasing"``, ``"convex"``
        or ``"concave"`` (neither strictly), each curve of a ``by`` for itself; what a number
        multiplies has the shape before it is multiplied. The estimate and all draws then are; see
        :ref:`shapes`.
    :param isotropic: whether several columns share one lengthscale.
    :param unseen: of ``bs="fs"`` and ``"sz"``: a level that the fit has not seen is an ``"error"``
        (the default of ``"sz"``) or has the ``"prior"`` (of ``"fs"``).
    :param neighbours: of ``bs="mrf"``: a mapping of each area to its neighbours, which must name it
        in turn, or a DataFrame of zeros and ones; by default areas that share a corner of their
        ``polygons``.
    :param polygons: of ``bs="mrf"``: a mapping of areas to corners [n, 2]; rows of NaN, or a list
        of arrays, separate parts and holes. ``draw()`` makes a map of them.
    :param at: the column holds a curve a row, an array of its values at these places: the term is
        the integral of curve times a smooth function of the place, by the trapezoidal rule
        (scalar-on-function regression: Goldsmith et al. 2011). A column of arrays without ``at`` is
        summed over: see :ref:`linear-functionals`.
    :param prior: of the variance or the lengthscale, or a tuple of both: see
        :mod:`gpflow_gam.priors`.
    :param id: a name that terms of the same kind have in common, which then share variances and
        lengthscales, in the columns' units. So do the curves of a ``by`` factor, which without one
        have their own each.
    :param edf: effective degrees of freedom that each curve is to have, its straight line
        included; the data do not choose its smoothness then, and bands take it as known.
    :raises TypeError, ValueError: naming the argument.
    """
    if id is not None and not isinstance(id, str):
        raise TypeError(f"s(): id must be a name, text; got {id!r}.")
    own = {"bs": bs, "prior": prior, "id": id, "edf": edf, "shape": shape}
    own["isotropic"] = None if isotropic else False
    for name, value in own.items() if kernel is not None else ():
        if value is not None:
            raise ValueError(f"s(): a kernel of your own is used as it is; leave it or {name} out.")
    priors = checked_priors("s", prior)
    edf = plain_number(edf)
    if edf is not None:
        known = isinstance(edf, (int, float)) and 0.0 < edf < np.inf
        if not known or priors or id or shape:
            raise ValueError(
                f"s(): edf must be a positive number, of a curve without prior, id and shape; got "
                f"edf={edf!r}."
            )
    given = {
        "k": k, "period": period, "kernel": kernel, "shape": shape, "unseen": unseen, "at": at,
        "isotropic": None if isotropic else False, "neighbours": neighbours, "polygons": polygons,
        "id": id, "edf": edf,
    }  # fmt: skip
    takes = _OPTIONS.get(bs or DEFAULT, _CURVES)
    for name, value in given.items():
        if value is not None and name not in takes:
            raise ValueError(
                f"s(): bs={bs or DEFAULT!r} takes no {name}; leave {name}={value!r} out."
            )
    if bs == "mrf":
        return MarkovField(columns, bs, neighbours, polygons, by, prior=priors)
    if bs in FACTOR_SMOOTHS:
        return FactorSmooth(columns, bs, k, unseen, by, prior=priors)
    if bs == "re":
        if len(columns) != 1:
            named = ", ".join(map(repr, columns))
            raise ValueError(
                f"s(): bs='re' takes one column; got {columns!r}. For each combination of levels "
                f"write random_effect({named}), for slopes random_effect({columns[0]!r}, by=...)."
            )
        return random_effect(*columns, by=by, prior=prior)
    return Smooth(
        columns, bs, k, by, period, kernel, isotropic, shape, at, prior=priors, id=id, edf=edf
    )


def te(
    *columns: Column,
    bs: str | tuple[str | None, ...] | None = None,
    k: int | tuple[int, ...] | None = None,
    by: Column | Term | None = None,
    period: float | tuple[float | None, ...] | None = None,
    shape: tuple[str | None, ...] | None = None,
    prior: Prior | None = None,
) -> Tensor:
    """
    A smooth function of several columns, main effects included, with a lengthscale for each.

    :param columns: two or more; columns of levels may be among them.
    :param bs: kernels as in :func:`s`, one for all columns or one each.
    :param k: how many inducing inputs in all; by default 36 of two columns and 50 of more, centres
        of k-means. A tuple of one number a column, as in mgcv, is their product.
    :param by: as in :func:`s`.
    :param period: of cyclic columns.
    :param shape: what the function is along one of the columns, as in :func:`s`, whatever the
        others are: one value a column, such as ``("increasing", None)``.
    :param prior: of the variance: see :mod:`gpflow_gam.priors`.
    :raises TypeError, ValueError: naming the argument.
    """
    own = checked_priors("te", prior)
    return Tensor(columns, bs, checked_k("te", k, len(columns)), by, period, shape, prior=own)


def ti(
    *columns: Column,
    bs: str | tuple[str | None, ...] | None = None,
    k: int | tuple[int, ...] | None = None,
    by: Column | Term | None = None,
    period: float | tuple[float | None, ...] | None = None,
    prior: Prior | None = None,
) -> Interaction:
    """
    The interaction of several columns alone: it averages to zero over each of them.

    Add ``s()`` of the columns for their main effects. ``columns``, ``bs``, ``k``, ``by``,
    ``period`` and ``prior`` are as in :func:`te`; it has no shape.

    :raises TypeError, ValueError: naming the argument.
    """
    own = checked_priors("ti", prior)
    return Interaction(columns, bs, checked_k("ti", k, len(columns)), by, period, prior=own)


def lag(
    column: Column,
    first: int = 0,
    last: int = 0,
    *,
    bs: str | tuple[str | None, ...] | None = None,
    k: int | tuple[int, ...] | None = None,
    period: float | tuple[float | None, ...] | None = None,
    group: Column | None = None,
    time: Column | None = None,
    step: float | str | None = None,
) -> Lag:
    """
    A smooth function of a column's value and of its lag, summed over lags.

    The distributed lag non-linear model of Gasparrini, Armstrong & Kenward (2010): ``lag("temp", 0,
    21)`` adds ``f(temp[t], 0) + f(temp[t - 1], 1) + ... + f(temp[t - 21], 21)``. The prior is that
    of :func:`te`, but that the straight line along the column has a slope for each lag. Rows are in
    the order of time unless ``time`` says when they are. Rows without all of their lags are
    incomplete, as the first rows of a series are: ``missing="drop"`` leaves them out, and
    predictions need the rows before, or a column of arrays of lags, the first lag first. ``bs``,
    ``k`` and ``period`` are as of :func:`te`, one for value and lag or one each.

    :param column: its name or index.
    :param first: the first lag, in rows, or in steps of time; 0 is the row's own value.
    :param last: the last one.
    :param group: a column that says which of several series a row belongs to.
    :param time: a column of times or numbers: rows may be in any order then, and gaps are missing.
    :param step: between two lags; by default one day, and 1 where times are numbers. Pandas' units
        such as ``"h"`` are understood.
    :raises TypeError, ValueError: naming the argument.
    """
    others = group, time, step
    return Lag(
        (column, "lag"), bs, checked_k("lag", k, 2), None, period, None, first, last, *others
    )
