"""Specification of a head: terms on features, components of fixed sizes, response."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeGuard

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from scipy.special import ndtri
from scipy.stats import qmc

from ..errors import check_count, check_positive
from ..gam import families
from ..gam.components.kernels import PRIORS, VariancePriors, build_kernel
from ..gam.components.plan import (
    LATITUDE,
    LONGITUDE,
    Component,
    inducing_each,
    learn_encoder,
    plan_columns,
)
from ..gam.families import Family
from ..gam.families import family as as_family
from ..gam.frames.encoding import Encoder
from ..gam.frames.table import Table
from ..gam.terms import Terms
from ..gam.terms.base import Column, FunctionOf, Term, as_terms, column_of
from ..gam.terms.formula import terms_from_json
from ..gam.terms.parametric import Levels, RandomEffect
from ..gam.terms.smooth import KINDS, FactorSmooth, MarkovField, Smooth, SmoothTerm, Tensor
from ..kernels import AdditiveKernel, ZeroMean
from ..kernels.additive import OffsetMean
from ..kernels.terms import OnColumns, closed_form
from ..likelihoods.expectations import constant_predictor
from ..measures import Discrete, Gaussian, Nodes
from ..optimizers.binned.bins import HeldColumns

Kind = Literal["number", "level", "cycle", "multiplier", "latitude", "longitude"]
_NUM_ROWS = 2048
_NUM_NORMAL = 12  # inducing inputs of a smooth of one normal feature
_NUM_JOINT = 100  # of a smooth of all features that is distance aware
_FAR_VARIANCE = 10.0
"""Its prior variance for classes, in scales: what is known of a row that is far from all others."""
_CLASSES = ("categorical", "ordinal")
_IN_UNITS = ("gaussian", "student_t", "heteroskedastic")
_REFUSED = {
    "rw": "goes from value to value of a column, which a layer does not see; bs='matern12' is as "
    "rough",
    "ou": "forgets within some steps from value to value, which a layer does not see; "
    "bs='matern12' is as rough, and its memory is learnt from a spread on",
    "iou": "is a curve less its line over the data, which move with the layers below; "
    "bs='matern52' is as smooth",
}
"""Kinds of smooths that layers do not take, and why."""


@dataclasses.dataclass(frozen=True)
class Structure:
    """The features that an additive head reads, how, and components of fixed sizes."""

    terms: Terms  # every smooth with its number of inducing inputs
    columns: tuple[Column, ...]  # features read, which become columns 0, 1, ... of X; see `_apart`
    kinds: tuple[Kind, ...]
    encoder: Encoder
    components: tuple[Component, ...]  # the intercept first

    @property
    def features(self) -> tuple[int, ...]:
        """Indices of the features that become columns 0, 1, ... of X, some of them twice."""
        return tuple(map(int, self.columns))

    @property
    def width(self) -> int:
        return len(self.columns)

    @property
    def joint(self) -> list[Component]:
        """Smooths of more than two features, which no grid of inducing inputs fills."""
        smooths = [c for c in self.components if c.form in ("smooth", "own") and c.by is None]
        return [c for c in smooths if len(c.margins) > 2]

    @functools.cached_property
    def num_levels(self) -> dict[int, int]:
        """Numbers of levels of the columns of X that hold codes."""
        return {
            place: len(self.encoder.levels(column))
            for place, (column, kind) in enumerate(zip(self.columns, self.kinds))
            if kind == "level"
        }

    @functools.cached_property
    def degrees(self) -> dict[int, tuple[float, float]]:
        """Lowest and highest value of the columns of X that are latitudes or longitudes."""
        ends = {"latitude": LATITUDE, "longitude": LONGITUDE}
        return {i: ends[kind] for i, kind in enumerate(self.kinds) if kind in ends}

    def reference(self, number: int) -> AnyNDArray:
        """Rows [number, D] with the distribution that scaling aims at."""
        periods = _periods(self.terms, self.columns)
        return _reference(self.kinds, self.num_levels, periods, number)

    def adapted(self, X: AnyNDArray) -> list[Component]:
        """The components with nodes and inducing inputs from scaled features [N, D]."""
        reference = self.reference(len(X))
        constant = np.ptp(X, axis=0) == 0.0  # a unit that is dead so far has no distribution
        X = np.where(constant, reference, X)
        table = Table({c: X[:, i] for i, c in enumerate(self.columns)})
        planned = {c.name: c for c in _planned(self.terms, table, self.encoder, X)}
        adapted = []
        for component in self.components:  # a level that does not occur keeps what it has
            new = planned.get(component.name, component)
            if component.shape:  # splines are the kernel's, and their places with them
                margins = tuple(
                    dataclasses.replace(margin, breaks=old.breaks)
                    for margin, old in zip(new.margins, component.margins)
                )
                new = dataclasses.replace(new, margins=margins, inducing=component.inducing)
            adapted.append(new if new.inducing else component)
        return adapted


def build_structure(
    terms: Terms, num_inducing: int | None, num_levels: Mapping[int, int], normal: bool
) -> Structure:
    """The structure of a head."""
    levels = dict(num_levels) | _areas(terms, num_levels)
    curves = {term.label for term in terms if normal and _is_curve(term)}
    each = {label: num_inducing or _NUM_NORMAL for label in curves}
    terms = Terms(
        (_sized(term, each.get(term.label, num_inducing), levels) for term in terms),
        select=terms.select,
    )
    kinds: dict[Column, Kind] = {}
    for term in terms:
        for feature, kind in _readings(term):
            if not isinstance(feature, int):
                raise TypeError(
                    f"terms of a layer name features by index, such as s(0); got {feature!r} in "
                    f"{term.label}."
                )
            pair: tuple[Column, Column] = feature, str(feature)
            column, other = pair[::-1] if kind == "multiplier" else pair
            for before in (kinds.setdefault(column, kind), kinds.get(other, kind)):
                both = {before, kind}
                if len(both) > 1 and ("multiplier" not in both or "level" in both):
                    raise ValueError(
                        f"feature {feature} is read as a {before} and as a {kind} ({term.label}); "
                        "pass the layer that column twice, and name one copy in each term."
                    )
    terms = Terms(map(_apart, terms), select=terms.select)
    for column, kind in kinds.items():
        if kind == "level" and int(levels.get(int(column), 0)) < 2:
            raise ValueError(
                f"feature {column} is read as levels; pass num_levels={{{column}: K}} with "
                "K >= 2 for the codes 0 to K - 1."
            )
    unused = sorted(set(levels) - {c for c, kind in kinds.items() if kind == "level"})
    if unused:
        raise ValueError(f"num_levels names feature {unused[0]}, which no term reads as levels.")
    columns = tuple(kinds)
    counts = {i: levels[int(c)] for i, c in enumerate(columns) if kinds[c] == "level"}
    X = _reference(tuple(kinds.values()), counts, _periods(terms, columns), _NUM_ROWS)
    table = Table({c: X[:, i] for i, c in enumerate(columns)})
    encoder = learn_encoder(terms, (), table)
    components = tuple(
        _spread(c) if c.term in curves else c for c in _planned(terms, table, encoder, X)
    )
    return Structure(terms, columns, tuple(kinds.values()), encoder, components)


def _apart(term: Term) -> Term:
    """The term with a multiplier that is a column of its own, named by text, as scaling keeps 0."""
    if isinstance(term, (FunctionOf, RandomEffect)) and isinstance(term.by, int):
        return dataclasses.replace(term, by_=str(term.by))  # type: ignore[arg-type]
    return term


def _is_curve(term: Term) -> bool:
    """True for a smooth of one feature, but for those that have places of their own."""
    if not isinstance(term, Smooth) or len(term.columns) > 1 or term.shape or term.kernel:
        return False
    kind = KINDS[term.kind]
    return kind.has_line and kind.tensor


def _spread(component: Component) -> Component:
    """Inducing inputs as k-means would place them, at the cube root of the normal density."""
    # quantiles leave the tails empty: of 12 the second is at -1.3
    M = len(component.inducing)
    places = np.sqrt(3.0) * ndtri((np.arange(M) + 0.5) / M)
    return dataclasses.replace(component, inducing=tuple((float(z),) for z in places))


def _planned(terms: Terms, table: Table, encoder: Encoder, X: AnyNDArray) -> tuple[Component, ...]:
    """Components, all of them penalised: features move, and so do their natural sizes."""
    return tuple(
        dataclasses.replace(c, shrink=True)
        for c in plan_columns(terms, table, encoder, HeldColumns(X))
    )


def _areas(terms: Terms, num_levels: Mapping[int, int]) -> dict[int, int]:
    """Numbers of areas of the features that Markov random fields read as codes of them."""
    areas = {}
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
            continue  # an error of its own, below
        if num_levels.get(feature, number) != number:
            raise ValueError(
                f"num_levels says that feature {feature} has {num_levels[feature]} levels; "
                f"{term!r} has {number}."
            )
        areas[feature] = number
    return areas


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
    """Features that a term reads, and how."""
    kinds: list[Kind]
    if isinstance(term, FactorSmooth):
        kinds = ["number", "level"]
    elif isinstance(term, (Levels, MarkovField)):
        kinds = ["level"]
    elif isinstance(term, Smooth) and term.kind in _REFUSED:
        raise ValueError(f"{term!r}: bs={term.kind!r} {_REFUSED[term.kind]}.")
    elif isinstance(term, Smooth) and term.kind == "sos":
        kinds = ["latitude", "longitude"]
    elif isinstance(term, SmoothTerm):
        kinds = ["cycle" if kind == "cyclic" else "number" for kind in term.kinds]
    else:
        kinds = ["number"] * len(term.columns)
    readings: list[tuple[object, Kind]] = list(zip(term.columns, kinds, strict=True))
    by = term.by
    if by is not None:
        readings.append((column_of(by), "level" if isinstance(by, Term) else "multiplier"))
    return readings


def _periods(terms: Terms, columns: tuple[Column, ...]) -> dict[int, float]:
    """Periods of the columns of X that go round."""
    periods = {}
    for term in terms:
        pairs: list[tuple[object, str, float | None]] = []
        if isinstance(term, SmoothTerm):
            pairs = list(zip(term.columns, term.kinds, term.periods))
        for feature, bs, period in pairs:
            if bs != "cyclic":
                continue
            if period is None:
                raise ValueError(f"{term.label}: bs='cyclic' needs period=... in a layer.")
            periods[columns.index(feature)] = float(period)  # type: ignore[arg-type]
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


class HeadSpecification:
    """Terms and response of an additive head: the arguments of layers, checked."""

    def __init__(
        self,
        terms: Terms | Term | Iterable[Term | Terms],
        likelihood: str | Family | Likelihood,
        num_classes: int | None,
        num_levels: Mapping[int, int] | None,
        num_inducing: int | None,
        scale: float,
        distance_aware: bool = False,
    ) -> None:
        if isinstance(terms, (list, tuple)) and terms and isinstance(terms[0], dict):
            terms = terms_from_json(list(terms))
        if isinstance(terms, str) or (isinstance(terms, Terms) and len(terms) == 0):
            raise TypeError(f"terms must be terms such as s(0) + te(1, 2); got {terms!r}.")
        terms = as_terms(terms)
        if terms.without:
            raise ValueError(
                f"terms: a layer has an intercept always; got {terms!r}. Leave - 1 out."
            )
        for term in terms:
            if term.prior or term.id is not None or term.edf is not None:
                raise ValueError(
                    f"{term!r}: a layer's priors are in units that are not known before it is "
                    "trained, and its terms share nothing; leave prior, id and edf out."
                )
        if isinstance(likelihood, Mapping):
            likelihood = families.from_json(likelihood)
        family = as_family(likelihood)
        if family.reads_response:
            raise ValueError(
                f"likelihood={family!r} is settled by all responses before a fit, and a layer sees "
                "batches of them; fit a GAM, or take a family with its own link."
            )
        if family.name in _CLASSES:
            if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 2:
                raise ValueError(
                    f"num_classes must be at least 2 for likelihood={family.name!r}; got "
                    f"{num_classes!r}."
                )
        elif num_classes is not None and not (family.name == "bernoulli" and num_classes == 2):
            raise ValueError(
                f"num_classes={num_classes!r} is for a softmax or ordinal likelihood; got "
                f"{family.name!r}."
            )
        check_count("num_inducing", num_inducing)
        check_positive("scale", scale)
        if scale != 1.0 and family.name not in _CLASSES and family.num_predictors() > 1:
            raise ValueError(
                f"scale must be 1 for likelihood={family.name!r}, whose predictors have units of "
                f"their own; got {scale!r}. Divide the response by its standard deviation."
            )
        if distance_aware and not any(map(_is_joint, terms)):
            raise ValueError(
                "distance_aware=True needs a smooth of all features, such as s(*range(64)), in "
                f"terms; got {terms!r}."
            )
        self.terms, self.family, self.num_classes = terms, family, num_classes
        self.num_levels = {int(f): int(k) for f, k in (num_levels or {}).items()}
        self.num_inducing, self.scale = num_inducing, float(scale)
        self.distance_aware = bool(distance_aware)

    def to_json(self) -> dict[str, Any]:
        own = [t.label for t in self.terms if isinstance(t, Smooth) and t.kernel is not None]
        if own:
            raise ValueError(
                f"{own[0]} has a kernel of your own, which no configuration can hold: "
                "use bs=... to save or clone this layer."
            )
        return {
            "terms": self.terms.to_json(),
            "likelihood": self.family.to_json(),
            "num_classes": self.num_classes,
            "num_levels": {str(f): k for f, k in self.num_levels.items()},
            "num_inducing": self.num_inducing,
            "scale": self.scale,
        }

    @property
    def levels(self) -> tuple[Any, ...] | None:
        """Codes of the response's classes, where it has any."""
        if self.family.name in _CLASSES:
            assert self.num_classes is not None
            return tuple(range(self.num_classes))
        return (0, 1) if self.family.name == "bernoulli" else None

    @property
    def num_predictors(self) -> int:
        return self.family.num_predictors(self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The L predictors' names, one empty where there is one."""
        return self.family.predictor_names(self.levels)

    @property
    def in_units(self) -> bool:
        """True if the (first) predictor has the response's unit."""
        return self.family.name in _IN_UNITS

    def structure(self, normal: bool = False) -> Structure:
        """The structure where features are scaled while they are learnt, and so ``normal``."""
        return build_structure(self._terms(), self.num_inducing, self.num_levels, normal)

    def _terms(self) -> Terms:
        """The terms, a kernel named for each smooth; with its own where it is distance aware."""
        return Terms(map(self._with_kernel, self.terms), select=self.terms.select)

    def _with_kernel(self, term: Term) -> Term:
        if self.distance_aware and _is_joint(term):
            return self._of_distances(term)
        own = isinstance(term, Smooth) and term.kernel is not None
        if own or not isinstance(term, (Smooth, Tensor)) or term.bs is not None:
            return term
        return dataclasses.replace(term, bs="se")  # which is centred in closed form

    def _of_distances(self, term: Smooth) -> Smooth:
        """A smooth that is its prior again away from all data, which a line is not."""
        # learnt, a longer lengthscale fits the rows that are there as well
        held = functools.partial(Parameter, transform=gpflow.utilities.positive(), trainable=False)
        variance = self.scale**2 * (1.0 if self.levels is None else _FAR_VARIANCE)
        kernel = gpflow.kernels.SquaredExponential(
            held(variance), held(0.5 * np.sqrt(len(term.columns)))
        )
        k = term.k or self.num_inducing or _NUM_JOINT
        return dataclasses.replace(term, kernel=kernel, k=k)

    def build_kernel(
        self, structure: Structure, priors: VariancePriors = PRIORS, normal: bool = False
    ) -> AdditiveKernel:
        """The prior, its centring measures held in variables."""
        # where features are scaled to be normal, closed forms under that measure take their place:
        # nodes are most of a training step
        kernel = build_kernel(structure.components, self._terms(), self.scale, priors=priors)
        for part in _centred(kernel):
            assert isinstance(part.measure, Discrete)
            closed = part.measure.dimension == 1 and closed_form(part.base, Gaussian())
            part.measure = Gaussian() if normal and closed else Nodes(part.measure)
        return kernel

    def build_mean(self) -> OffsetMean:
        """The constant part of the predictor, zero at first."""
        return OffsetMean(np.zeros(self.num_predictors), [])

    def build_likelihood(self, y: AnyNDArray | None = None) -> Likelihood:
        """The likelihood, its parameters started from ``y`` or responses of the size ``scale``."""
        if y is not None:
            return self.family.likelihood(y, self.levels)
        if self.levels is not None:
            return self.family.likelihood(np.array(self.levels, float)[:, None], self.levels)
        if self.family.name == "binomial":
            return self.family.likelihood(np.array([[1.0, 2.0], [1.0, 2.0]]))
        refused = ""
        neutral = [-self.scale, self.scale], [0.0, 1.0, 2.0], [0.25, 0.75], [1.0, 2.0], [0.0, 1.0]
        for values in neutral:
            try:
                Y = self.family.encode(np.array(values)).Y
            except ValueError as error:
                refused = str(error)
                continue
            return self.family.likelihood(Y)
        raise ValueError(
            f"no response is known that likelihood {self.family.name!r} can produce: {refused}"
        )

    def adapt_measures(self, kernel: AdditiveKernel, components: Sequence[Component]) -> None:
        """Centre a kernel's components under the measures of others of the same structure."""
        fresh = build_kernel(components, self._terms(), self.scale)
        for part, new in zip(_centred(kernel), _centred(fresh), strict=True):
            measure, nodes = new.measure, part.measure
            assert isinstance(measure, Discrete)
            if not isinstance(nodes, Nodes):
                continue
            room = int(nodes.points.shape[0])
            if len(measure.points) > room:
                masses = measure.probabilities[:room]
                measure = Discrete(measure.points[:room], masses / masses.sum())
            nodes.assign(measure)

    def adapt_response(self, model: GPModel, X: AnyNDArray, Y: AnyNDArray) -> None:
        """Start the predictor's constant and the likelihood's parameters from responses."""
        if self.in_units:
            spread = float(np.std(Y))
            if not 0.1 * self.scale < spread < 10.0 * self.scale:
                raise ValueError(
                    f"y has a standard deviation of {spread:.3g} where scale={self.scale:g} was "
                    "given; pass scale of y's size to the layer, or standardise y."
                )
        likelihood = model.likelihood
        start = gpflow.utilities.parameter_dict(self.build_likelihood(Y.astype(np.float64)))
        for path, parameter in gpflow.utilities.parameter_dict(likelihood).items():
            parameter.assign(start[path])
        offset = np.zeros((len(X), self.num_predictors), X.dtype)
        constant = constant_predictor(
            likelihood, tf.constant(X), tf.constant(Y), offset, self.num_predictors
        )
        model.mean_function.constant.assign(np.asarray(constant)[0])


def _is_joint(term: Term) -> TypeGuard[Smooth]:
    """True for a smooth of several features without a kernel of its own."""
    if not isinstance(term, Smooth) or len(term.columns) == 1 or term.kernel is not None:
        return False
    return term.bs in (None, "se") and term.isotropic


def _centred(kernel: AdditiveKernel) -> list[ZeroMean]:
    """Every zero-mean part of a kernel, in a fixed order, but for those in a user's kernels."""
    users = [part.base for part in kernel.submodules if isinstance(part, OnColumns)]
    excluded = {id(part) for base in users for part in (base, *base.submodules)}
    return [
        part
        for part in kernel.submodules
        if isinstance(part, ZeroMean) and id(part) not in excluded
    ]
