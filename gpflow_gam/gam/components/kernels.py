"""From components to GPflow kernels with priors, and to inducing variables."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Union

import gpflow
import numpy as np
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray, Parameter
from gpflow.config import default_float
from gpflow.kernels import Constant, Kernel, Periodic, Product, Sum
from gpflow.utilities import deepcopy
from scipy.optimize import brentq
from scipy.stats import norm

from ...bijectors import exponential, softplus
from ...inducing_variables import AdditiveInducingVariables
from ...kernels import (
    AdditiveKernel,
    CentredLinear,
    Factor,
    Indicator,
    IntegratedOU,
    MarkovField,
    OnColumns,
    OnSphere,
    RandomWalk,
    Shaped,
    Summed,
    Warped,
    ZeroMean,
    kernel_columns,
)
from ...kernels.correlation import leaves_of, lengthscales_of
from ...measures import Discrete
from ...priors import SD, Edf, Lengthscale, Prior
from ..terms.base import Term
from ..terms.smooth import KINDS, Lag, Smooth, has_line
from ..terms.smooth import MarkovField as AreaTerm
from .plan import By, Component, Margin, bases_of

LENGTHSCALE = 0.45, 0.9
"""Mode of a lengthscale's prior, as a share of its column's span, and its log-scale deviation."""
START, SPACINGS = 0.35, 3.0
"""
Initial lengthscale: so much of the span, or so many spacings between inducing inputs
where that is less. From a long one optimisation takes quick changes for noise.
"""
CYCLIC_LENGTHSCALE = 0.7, 0.6  # the same of the dimensionless lengthscale of a periodic kernel


class LogLogistic(NamedTuple):
    """A prior ``v^(shape - 1) / (1 + (v / scale)^shape)^2`` of a variance over its size."""

    # with shape 1 it is flat below scale (REML); beyond, it keeps separable classes finite

    shape: float
    scale: float = 20.0
    start: float = 2.0


class LogNormal(NamedTuple):
    """A log-normal prior of a variance over its natural size; spread is in logarithms."""

    mode: float
    spread: float
    start: float


VariancePrior = Union[LogLogistic, LogNormal]


class VariancePriors(NamedTuple):
    """Priors of variances; ``level`` is of the mean of what a number multiplies."""

    trend: VariancePrior
    deviation: VariancePrior
    selected_trend: VariancePrior
    selected_deviation: VariancePrior
    level: VariancePrior
    other: VariancePrior
    # small because main effects explain most; a fit that starts small takes quick changes for noise
    interaction: VariancePrior = LogNormal(0.005, 2.0, 0.1)

    def of_smooth(self, select: bool) -> tuple[VariancePrior, VariancePrior]:
        """Priors of the variances of a smooth's straight part and of its deviation from it."""
        if select:
            return self.selected_trend, self.selected_deviation
        return self.trend, self.deviation

    def to_json(self) -> list[list[Any]]:
        return [[type(prior).__name__, *prior] for prior in self]

    @classmethod
    def from_json(cls, content: Sequence[Sequence[Any]]) -> VariancePriors:
        kinds = {"LogLogistic": LogLogistic, "LogNormal": LogNormal}
        return cls(*(kinds[name](*numbers) for name, *numbers in content))


FLAT, GROWING = LogLogistic(1.0), LogLogistic(1.5)
PRIORS = VariancePriors(
    trend=GROWING,
    deviation=FLAT,
    selected_trend=FLAT,
    selected_deviation=FLAT,
    level=GROWING,
    other=FLAT,
)
"""
The defaults. One coefficient says little about its own variance, and the marginal likelihood often
puts that at zero: the variance of a line or a level is kept away from zero, so that they are hardly
shrunk.
"""
_SMALL = FLAT._replace(start=0.01)
LINES_FIRST = PRIORS._replace(
    deviation=_SMALL,
    selected_deviation=_SMALL,
    interaction=PRIORS.interaction._replace(start=0.005),
)
"""
The same where columns are features that a network is learning: smooths begin as little more than
their lines. Curves that bend much would fit what is random in the features, which then learn noise.
"""
UNPENALISED = 900.0
"""The variance of effects of levels, and of a line over its column's span, that nothing shrinks."""
INDEPENDENT = 0.5, 1.5
"""The same of what of areas is independent, against what is like their neighbours."""
SINGLE_ROWS = LogNormal(0.5, 3.0, 2.0)
"""Variance prior of areas with one row each, which only their neighbours separate from noise."""
SPEED = 1.0  # the deviation, in logarithms, of an adaptive function's speeds
INTERACTION_LENGTHSCALE = 0.7, 0.8
"""A lengthscale's prior in an interaction: few data tell its shape."""


# --- parameters with priors ----------------------------------------------------------------------


@functools.lru_cache(256)
def _log_normal(location: float, spread: float, dtype: np.dtype[Any]) -> Any:
    """One for all parameters of the same prior: making one takes longer than all else of them."""
    return tfp.distributions.LogNormal(np.array(location, dtype), np.array(spread, dtype))


def positive_parameter(
    value: float | AnyNDArray, mode: float | AnyNDArray, spread: float
) -> Parameter:
    """A positive parameter, optimised in logarithms, where its prior is N(log mode, spread^2)."""
    # GPflow's density is of the parameter itself: it peaks at exp(location - spread^2)
    location = np.log(mode) + spread**2
    dtype: Any = np.dtype(default_float())
    if np.ndim(location) == 0:
        prior = _log_normal(float(location), spread, dtype)
    else:
        prior = tfp.distributions.LogNormal(location.astype(dtype), np.array(spread, dtype))
    return Parameter(value, transform=exponential(), prior=prior)


@functools.lru_cache(256)
def _log_logistic(location: float, scale: float, dtype: np.dtype[Any]) -> Any:
    return tfp.distributions.LogLogistic(np.array(location, dtype), np.array(scale, dtype))


_STATIONARY = {name: kind.kernel for name, kind in KINDS.items() if kind.kernel is not None}


def build_kernel(
    components: Sequence[Component],
    terms: Iterable[Term],
    scale: float,
    num_predictors: int = 1,
    priors: VariancePriors = PRIORS,
    null_offset: float = 0.0,
    units: Sequence[float] | AnyNDArray = (),
    information: Sequence[float] = (),
) -> AdditiveKernel:
    """The kernel of components; ``units`` and ``information`` are of :class:`Stated`, [L] each."""
    known = {term.label: term for term in terms}
    kernels: dict[str, Kernel] = {}
    firsts: dict[str, Kernel] = {}
    for component in components:
        term = known.get(component.term)
        stated = None
        if term is not None and term.prior:
            i = component.predictors_of(num_predictors)[0]
            stated = Stated(term.prior, float(units[i]), information[i])
        size = _size(component, scale, null_offset)
        kernel = kernels[component.name] = _kernel(component, term, size, priors, stated)
        if term is not None and term.id is not None:
            first = firsts.setdefault(term.id, kernel)
            _share(first, kernel, f"id={term.id!r} of {component.name}")
    if not any(c.predictors for c in components):
        return AdditiveKernel(kernels)
    members = [
        [i in c.predictors_of(num_predictors) for c in components] for i in range(num_predictors)
    ]
    return AdditiveKernel(kernels, np.array(members))


def build_inducing(
    components: Sequence[Component], kernel: AdditiveKernel, width: int
) -> AdditiveInducingVariables:
    """The inducing variables of components."""
    inputs = {}
    for component in components:
        points: AnyNDArray = np.array(component.inducing, dtype=default_float())
        columns = kernel_columns(kernel[component.name])
        assert columns is not None
        inputs[component.name] = component.full(points, width)[:, list(columns)]
    return AdditiveInducingVariables(inputs)


def interaction_margin(
    margin: Margin,
    variance: float = 1.0,
    prior: VariancePrior | None = None,
    *,
    column: int | None = None,
    start: float = START,
) -> Kernel:
    """One column's factor of an interaction's kernel, zero on average."""
    kernel = _margin_kernel(margin, column, INTERACTION_LENGTHSCALE, start)
    _set_variance(kernel, _unit(margin) * variance, prior)
    return _centred(kernel, margin)


def _share(first: Kernel, other: Kernel, what: str) -> None:
    """Give a kernel the learnt parameters of another one that is built alike."""
    pairs = list(zip(first.submodules, other.submodules))
    alike = all(type(a) is type(b) for a, b in pairs)
    if not alike or len(list(first.trainable_parameters)) != len(list(other.trainable_parameters)):
        raise ValueError(f"{what}: terms with one id must be of one kind, with as many columns.")
    for a, b in [(first, other), *pairs]:
        for name, value in vars(a).items():
            if isinstance(value, Parameter) and value.trainable:
                setattr(b, name, value)


def _size(component: Component, scale: float, null_offset: float) -> float:
    """The natural size of a component: of a line through zero, what the whole predictor has."""
    through_zero = component.form == "line" and component.margins[0].centre == 0.0
    return float(np.hypot(scale, null_offset)) if through_zero else scale


def _kernel(
    component: Component,
    term: Term | None,
    scale: float,
    priors: VariancePriors,
    stated: Stated | None,
) -> Kernel:
    by = component.by
    size = scale if by is None or by.code is not None else scale / by.size
    component = _numbered(component) if component.slots else component
    base = _function(component, term, size, priors)
    if stated is not None:
        stated.impose(base, component)
    if component.slots:
        return Summed(base, component.slots)
    if by is None:
        return base
    summands = base.kernels if type(base) is Sum else [base]
    parts = [Product([part, _multiplier(by)]) for part in summands]
    return parts[0] if len(parts) == 1 else Sum(parts)


def _numbered(component: Component, **changes: Any) -> Component:
    """The component as kernels have it that read columns numbered from 0."""
    margins = enumerate(component.margins)
    local = tuple(dataclasses.replace(m, column=i, **changes) for i, m in margins)
    return dataclasses.replace(component, margins=local)


def _multiplier(by: By) -> Kernel:
    if by.code is not None:
        return Indicator(by.code, active_dims=[by.column])
    multiplier = _line(0.0, [by.column])
    multiplier.variance = _fixed(1.0)
    return multiplier


def _function(
    component: Component, term: Term | None, size: float, priors: VariancePriors
) -> Kernel:
    margins, form, varying = component.margins, component.form, component.varying
    if form == "constant":
        return _constant(size)
    if form == "own":
        assert isinstance(term, Smooth)
        assert term.kernel is not None
        # a copy: a term is a value, and fitting one GAM must not change another
        return OnColumns(deepcopy(term.kernel), [m.column for m in margins])
    if form in ("line", "levels", "means", "random"):
        margin = dataclasses.replace(margins[0], centre=0.0) if varying else margins[0]
        prior: VariancePrior | None = priors.other
        unit = size**2 * _unit(margin)
        if not component.shrink:
            prior, unit = None, UNPENALISED * unit
        kernel = _set_variance(_margin_kernel(margin), unit, prior)
        if form in ("levels", "means"):
            kernel = _centred(kernel, margin)
        return Sum([_constant(size), kernel]) if form == "means" else kernel
    if form == "areas":
        assert isinstance(term, AreaTerm)
        field = _centred(_field(component, term, size, priors.other), margins[0])
        return Sum([_level(size, priors.level), field]) if varying else field
    if form == "deviations":
        return Product([_deviations(m, size, priors.other) for m in margins])
    if form == "interaction":
        first, *others = margins
        variable = interaction_margin(first, size**2, priors.interaction)
        return Product([variable, *map(interaction_margin, others)])
    if margins[0].kind == "rw":
        # what a number multiplies has a level of its own
        dims, level = [margins[0].column], float(varying)
        walk = RandomWalk(_measure(margins[0]), level=level, active_dims=dims)
        return _set_variance(walk, size**2, priors.other)
    of_trend, of_deviation = priors.of_smooth(component.select)
    parts = _trends(component, size, of_trend, of_lags=isinstance(term, Lag))
    if not parts:  # it is all there is
        of_deviation = of_deviation._replace(start=priors.other.start)
    deviation = _joint_kernel(component, size, of_deviation, priors.other)
    if component.nodes:
        deviation = ZeroMean(deviation, _measure(component))
    elif margins[0].kind != "iou":  # which has no line, and so no mean
        deviation = _centred(deviation, margins[0])
    parts = [_level(size, priors.level), *parts] if varying else parts
    return Sum([*parts, deviation]) if parts else deviation


def _constant(size: float) -> Kernel:
    constant = _bare(Constant, None)
    constant.variance = _fixed(10.0 * size**2)
    return constant


def _level(size: float, prior: VariancePrior) -> Kernel:
    """The level of a function that a number multiplies, which the intercept does not confound."""
    return _set_variance(_bare(Constant, None), size**2, prior)


def _trends(component: Component, size: float, prior: VariancePrior, of_lags: bool) -> list[Kernel]:
    """The straight parts of a smooth: what is left to its deviation from them may vanish."""
    if component.form not in ("smooth", "tensor"):
        return []
    result: list[Kernel] = []
    for margin in component.margins:
        if has_line(margin.kind):
            line = _line(margin.centre, [margin.column])
            result.append(_set_variance(line, (size / margin.span) ** 2, prior))
    if of_lags and has_line(component.margins[0].kind):
        lags = _margin_kernel(component.margins[1])
        result[0] = Product([result[0], _set_variance(lags, _unit(component.margins[1]))])
    return result


def _warped(component: Component, size: float, prior: VariancePrior) -> Kernel:
    """A stationary kernel on a warped line; the prior of its speeds is that they are all one."""
    (margin,) = component.margins
    base = _set_variance(_margin_kernel(margin, 0), size**2, prior)
    kernel = Warped(base, component.knots, active_dims=[margin.column])
    speeds = np.ones(len(component.knots))
    kernel.speeds = positive_parameter(speeds, speeds, SPEED)
    return kernel


def _joint_kernel(
    component: Component, size: float, prior: VariancePrior, other: VariancePrior
) -> Kernel:
    if component.shape:
        return _shaped_kernel(component, size, prior, other)
    margins = component.margins
    columns = [m.column for m in margins]
    kinds = {m.kind for m in margins}
    if kinds == {"sos"}:
        base = _set_variance(_margin_kernel(margins[0], 0), size**2, other)
        base.active_dims = [0, 1, 2]
        return OnSphere(base, columns)
    if kinds == {"ad"}:
        return _warped(component, size, prior)
    if len(margins) == 1:
        # one for what is left in time has the shorter memory; what begins small is smooth
        quick = margins[0].kind != "ou" and prior.start >= 1.0
        start = min(START, SPACINGS / max(len(component.inducing), 1)) if quick else START
        kernel = _margin_kernel(margins[0], start=start)
        return _set_variance(kernel, size**2, prior)
    if len(kinds) == 1 and kinds <= set(_STATIONARY):
        kernel = _bare(_STATIONARY[margins[0].kind], columns)
        spans = np.array([m.span for m in margins])
        if component.form == "smooth":  # isotropic
            spans = np.array(np.exp(np.mean(np.log(spans))))
        mode, spread = LENGTHSCALE
        kernel.lengthscales = positive_parameter(START * spans, mode * spans, spread)
        return _set_variance(kernel, size**2, prior)
    parts = [_margin_kernel(m, column=i) for i, m in enumerate(margins)]
    for i, (part, margin) in enumerate(zip(parts, margins)):
        unit = _unit(margin) * (size**2 if i == 0 else 1.0)
        _set_variance(part, unit, prior if i == 0 else None)
    return OnColumns(Product(parts), columns)


def _shaped_kernel(
    component: Component, size: float, prior: VariancePrior, other: VariancePrior
) -> Kernel:
    """Splines with the covariance that the component would have without a shape."""
    margins, base = component.margins, _numbered(component, shape="")
    columns, shapes = [m.column for m in margins], [m.shape for m in margins]
    return Shaped(_joint_kernel(base, size, prior, other), bases_of(margins), columns, shapes)


_NEXT_TO_NOTHING = 1e-6  # the share of independent effects where there are none


def _field(component: Component, term: AreaTerm, size: float, prior: VariancePrior) -> Kernel:
    (margin,) = component.margins
    field = MarkovField(len(margin.nodes), term.edges, active_dims=[margin.column])
    mode, spread = INDEPENDENT
    if component.independent:
        field.independent = positive_parameter(mode, mode, spread)
        return _set_variance(field, size**2, prior)
    field.independent = _fixed(_NEXT_TO_NOTHING)
    return _set_variance(field, size**2, SINGLE_ROWS)


def _deviations(margin: Margin, size: float, prior: VariancePrior) -> Kernel:
    """Kernel of one margin of deviations that sum to zero over the levels."""
    kernel = _margin_kernel(margin)
    if margin.kind != "levels":
        return _set_variance(kernel, size**2, prior)
    codes = np.array(margin.nodes)
    # of variance one for each level, as if there were no constraint
    share = len(codes) / (len(codes) - 1.0)
    return ZeroMean(_set_variance(kernel, share), Discrete(codes))


def _unit(margin: Margin) -> float:
    """The variance at which a margin's kernel is of size one."""
    return 1.0 / margin.span**2 if margin.kind == "linear" else 1.0


def _measure(of: Margin | Component) -> Discrete:
    """What functions average to zero over."""
    return Discrete(np.array(of.nodes), np.array(of.weights))


def _centred(kernel: Kernel, margin: Margin) -> Kernel:
    if margin.kind == "linear":
        return kernel  # it is zero at the mean
    return ZeroMean(kernel, _measure(margin))


def _margin_kernel(
    margin: Margin,
    column: int | None = None,
    lengthscale: tuple[float, float] = LENGTHSCALE,
    start: float = START,
) -> Kernel:
    dims = [margin.column if column is None else column]
    if margin.kind == "levels":
        return _bare(Factor, dims)
    if margin.kind == "linear":
        return _line(margin.centre, dims)
    if margin.kind == "cyclic":
        base = _bare(gpflow.kernels.SquaredExponential, dims)
        mode, spread = CYCLIC_LENGTHSCALE
        base.lengthscales = positive_parameter(mode, mode, spread)
        cyclic = Periodic.__new__(Periodic)
        Kernel.__init__(cyclic)
        cyclic.base_kernel = base
        assert margin.period is not None
        cyclic.period = _fixed(margin.period)
        return cyclic
    mode, spread = lengthscale
    if margin.kind == "iou":
        kernel: Kernel = IntegratedOU(_measure(margin), active_dims=dims)
    else:
        kernel = _bare(_STATIONARY[margin.kind], dims)
    kernel.lengthscales = positive_parameter(start * margin.span, mode * margin.span, spread)
    return kernel


def _line(centre: float, columns: list[int]) -> Kernel:
    """A line that gets its variance next."""
    line = _bare(CentredLinear, columns)
    line.centre = float(centre)
    return line


def _bare(kind: type[Kernel], columns: list[int] | None) -> Kernel:
    """A kernel that gets its parameters next: its constructor's would take most of the time."""
    kernel = kind.__new__(kind)
    Kernel.__init__(kernel, active_dims=columns)
    return kernel


def _fixed(value: float) -> Parameter:
    """A parameter for good, in GPflow's own transform: files hold unconstrained values."""
    return Parameter(value, transform=softplus(), trainable=False)


def _set_variance(kernel: Kernel, size: float, prior: VariancePrior | None = None) -> Kernel:
    """Give a kernel a variance that is learnt, or, without a prior, one for good."""
    holder = kernel.base_kernel if isinstance(kernel, Periodic) else kernel
    if prior is None:
        holder.variance = Parameter(size, transform=exponential(), trainable=False)
    elif isinstance(prior, LogNormal):
        holder.variance = positive_parameter(prior.start * size, prior.mode * size, prior.spread)
    else:
        location, spread = float(np.log(prior.scale * size)), 1.0 / prior.shape
        own = _log_logistic(location, spread, np.dtype(default_float()))
        holder.variance = Parameter(prior.start * size, transform=exponential(), prior=own)
    return kernel


# --- priors that users state ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stated:
    """Priors of one term, with what turns them into priors of a kernel's parameters."""

    priors: tuple[Prior, ...]
    unit: float  # of the predictor that is modelled, in the linear predictor's unit
    information: float  # of all rows in the null model, in the modelled predictor

    def impose(self, kernel: Kernel, component: Component) -> None:
        """Give a function's kernel these priors, and values that are likely under them."""
        parts = list(kernel.kernels) if type(kernel) is Sum else [kernel]
        # size and degrees of freedom are those of functions of the usual lengthscale
        for prior in sorted(self.priors, key=lambda p: not isinstance(p, Lengthscale)):
            if isinstance(prior, Lengthscale):
                _impose_lengthscale(kernel, component, prior)
            elif isinstance(prior, Edf):
                self._impose_edf(parts, component, prior)
            else:
                assert isinstance(prior, SD)
                self._impose_sd(parts, component, prior)

    def _impose_sd(self, parts: Sequence[Kernel], component: Component, prior: SD) -> None:
        X, weights = _points(component)
        free = [(part, v) for part in parts for v in _trainable(part, "variance")]
        scale = (prior.upper / self.unit) ** 2 / _tail(len(free), prior.p)
        for part, variance in free:
            square = float(weights @ np.diagonal(_usual(part, X))) / float(variance.numpy())
            _impose(variance, scale / square)

    def _impose_edf(self, parts: Sequence[Kernel], component: Component, prior: Edf) -> None:
        *lines, deviation = parts
        free = _trainable(deviation, "variance")
        if component.form not in ("smooth", "tensor", "interaction") or len(free) != 1:
            raise ValueError(f"{component.term}: Edf() is a prior of smooths; state SD() instead.")
        X, weights = _points(component)
        root = np.sqrt(weights)
        K = root[:, None] * _usual(deviation, X) * root / float(free[0].numpy())
        values = self.information * np.maximum(np.linalg.eigvalsh(K), 0.0)

        def missing(log_variance: float) -> float:
            gain = np.exp(log_variance) * values
            return float(np.sum(gain / (1.0 + gain))) + len(lines) - prior.median

        ends = np.array([-30.0, 30.0]) - np.log(values[-1])
        most = missing(ends[1]) + prior.median
        if not missing(ends[0]) < 0.0 < most - prior.median:
            raise ValueError(
                f"{component.term}: Edf(median={prior.median:g}) cannot be: {len(lines)} of its "
                f"degrees of freedom are straight lines, and all are at most {most:.1f}. For more, "
                "state a shorter Lengthscale(), too."
            )
        _impose(free[0], float(np.exp(brentq(missing, *ends))))


def _usual(kernel: Kernel, X: AnyNDArray) -> AnyNDArray:
    """Covariances of a function whose lengthscales are the modes of their priors."""
    lengthscales = _trainable(kernel, "lengthscales")
    before = [p.numpy() for p in lengthscales]
    for p in lengthscales:
        prior: Any = p.prior
        p.assign(np.exp(prior.loc - prior.scale**2))
    K = np.asarray(kernel(X))
    for p, value in zip(lengthscales, before):
        p.assign(value)
    return K


def _impose(variance: Parameter, scale: float) -> None:
    """A log-logistic prior with this median of a variance, which begins at no more."""
    variance.prior = _log_logistic(float(np.log(scale)), 1.0, np.dtype(default_float()))
    variance.assign(min(float(variance.numpy()), scale))


def _impose_lengthscale(kernel: Kernel, component: Component, prior: Lengthscale) -> None:
    found = _trainable(kernel, "lengthscales")
    kinds = {m.kind for m in component.margins}
    if len(found) != 1 or np.ndim(found[0]) or kinds & {"ad", "sos"}:
        raise ValueError(
            f"{component.term}: Lengthscale() is a prior of smooths that have one lengthscale, in "
            "a column's unit; leave it out."
        )
    ((parameter, unit),) = lengthscale_units(kernel)
    ends = np.log(np.array([prior.lower, prior.upper]) / unit)
    spread = float(ends[1] - ends[0]) / (2.0 * float(norm.isf(0.5 * prior.p)))
    parameter.prior = _log_normal(float(np.mean(ends)), spread, np.dtype(default_float()))
    parameter.assign(np.exp(np.mean(ends)))


def lengthscale_units(kernel: Kernel) -> list[tuple[Parameter, float]]:
    """Lengthscales and what they are multiplied by to be distances in columns."""
    units = []
    for leaf in leaves_of(kernel, (OnSphere, Periodic)):
        if not isinstance(leaf, OnSphere):  # whose distances are chords, and in no column
            # of a periodic kernel in the unit of a turn's sine
            unit = float(leaf.period.numpy()) / np.pi if isinstance(leaf, Periodic) else 1.0
            units += [(parameter, unit) for parameter in lengthscales_of(leaf)]
    return units


def _points(component: Component) -> tuple[AnyNDArray, AnyNDArray]:
    """Rows of X that stand for the data of a function, and their probabilities."""
    if component.nodes:
        points, weights = _measure(component).nodes()
    else:
        margins = component.margins
        points = np.array(list(itertools.product(*(m.nodes for m in margins))))
        weights = np.prod(list(itertools.product(*(m.weights for m in margins))), axis=1)
    return component.full(points, 1 + max(component.columns)), weights


def _trainable(kernel: Kernel, name: str) -> list[Parameter]:
    known = gpflow.utilities.parameter_dict(kernel)
    return [p for path, p in known.items() if path.endswith(f".{name}") and p.trainable]


@functools.lru_cache(64)
def _tail(number: int, p: float) -> float:
    """Value above which so many log-logistic variables of scale one add up with probability p."""
    if number == 1:
        return (1.0 - p) / p
    u = np.random.default_rng(0).random((2**20 // number, number))
    return float(np.quantile(np.sum(u / (1.0 - u), axis=1), 1.0 - p))
