"""The interface between a GAM and the distribution of its response."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.utilities import parameter_dict
from numpy.random import Generator

from ...errors import check_choice, plain_number
from ...likelihoods import MeanLink, Quasi
from ...likelihoods.base import Support, in_dtype_of, unwrapped
from ...likelihoods.linked import POWERS, predictor_of
from ...likelihoods.predictive import conditional_response
from ...storage import RowArray
from ..terms import Surv
from ..terms.base import Level
from . import encoding
from .encoding import Described, Observed, Sample

Levels = tuple[Level, ...]
"""The labels of a response, in the order of their codes."""
Pair = tuple[AnyNDArray, AnyNDArray]
MaybeArray = AnyNDArray | None

FAMILIES: dict[str, type[Family]] = {}
"""Every family that has a name of its own."""
_SYNONYMS = ("mean", "location", "mu"), ("scale", "dispersion", "sd", "sigma")
"""Synonyms of the first and the second parameter of a family."""


class Response(NamedTuple):
    """A response column as a likelihood takes it."""

    Y: AnyNDArray  # float64 [N, K]

    levels: Levels | None  # the labels that Y's codes stand for, where it holds codes


@dataclasses.dataclass(frozen=True)
class Family(abc.ABC):
    """A response distribution: how to encode a column, fit it, and judge a fit."""

    # Values: equal options make equal families; what is learned is in the likelihood, with or
    # without weights around it. F is [..., L] with L = num_predictors, Y [N, K] as encode() has it.

    name: ClassVar[str]
    labelled: ClassVar[bool] = False
    """True if Y holds codes of labels."""
    discrete: ClassVar[bool] = False
    """True if responses have probabilities rather than densities."""
    log_link: ClassVar[bool] = False
    """True if the mean response is the exponential of the first predictor, or a share of it."""
    intercept_name: ClassVar[str] = ""
    """Name of the family's own constant, which replaces the intercept; empty if it has none."""
    modelled: ClassVar[tuple[str, ...]] = ("mean",)
    """Parameters that may have terms: a predictor each, but for those that may be constants."""
    of_first: ClassVar[bool] = False
    """True if terms given for no parameter enter the first predictor alone."""
    calibrated: ClassVar[bool] = False
    """True if the dispersion is no parameter of the likelihood, and is found by several fits."""
    ordered: ClassVar[bool] = True
    """False if responses are classes without an order, of which there is no mean."""
    needs_trials: ClassVar[bool] = False
    """True if trials, or a substitute for them, are required."""
    takes_offset: ClassVar[bool] = True
    """True if offsets are in the unit in which the model has its first predictor."""
    support: ClassVar[Support | None] = None
    """The numbers that a response may be; None for all, and where ``_encode`` says more."""

    def __init_subclass__(cls, listed: bool = True) -> None:
        if listed and "name" in vars(cls):
            FAMILIES[cls.name] = cls

    links: ClassVar[tuple[str, ...]] = ()
    """What the field ``link`` may be, of families that have it."""
    default_link: ClassVar[bool] = True
    """True if the link is the family's first, and no other link wraps the likelihood."""
    initial_family: ClassVar[Family | None] = None
    """The family of a first fit, from which this one's goes on; None for none."""
    conjugate: ClassVar[bool] = False
    """True if q is known in closed form: the response is normal around its predictor."""
    overdispersed: ClassVar[str] = ""
    """
    The advice where responses scatter more than the family allows; empty where it learns how much
    they do, or where one response a row does not show it.
    """

    def __post_init__(self) -> None:
        if self.links:
            check_choice(f"link of family {self.name!r}", vars(self)["link"], self.links)

    @property
    def heavy_tailed(self) -> bool:
        """True if expected responses have a heavy tail where the predictor is uncertain."""
        return self.log_link

    def to_json(self) -> dict[str, Any]:
        """The name and the options, as JSON takes them; ``from_json`` reads them."""
        options = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {
            k: list(map(plain_number, v)) if isinstance(v, tuple) else plain_number(v)
            for k, v in options.items()
        }
        return {"name": self.name, **plain}

    # --- the response --------------------------------------------------------------------------

    def encode(
        self,
        y: AnyNDArray,
        levels: Levels | None = None,
        *,
        trials: AnyNDArray | None = None,
        name: str = "y",
    ) -> Response:
        """The response y [N] as the likelihood takes it; ``levels`` of None are learnt."""
        if trials is not None:
            raise ValueError(f"trials: family {self.name!r} takes none; leave the argument out.")
        return self._encode(y, levels, name)

    def _encode(self, y: AnyNDArray, levels: Levels | None, name: str) -> Response:
        x = encoding.numbers(y, name, self.name)
        if self.support is not None:
            encoding.require(x, *self.support(x), name, self.name)
        return Response(x[:, None], None)

    def labels_of(self, categories: Levels | None, ordered: bool) -> Levels | None:
        """Labels of a column of ``categories``, ``ordered`` or not; None for those it holds."""
        return categories

    def censored(self) -> Family:
        """The family of a response that is a ``Surv``."""
        raise ValueError(
            f"y: family {self.name!r} takes no censored responses (Surv); take 'weibull', "
            "'lognormal' or 'gaussian'."
        )

    def encode_censored(self, columns: Sequence[AnyNDArray], surv: Surv) -> Response:
        """Y [N, 3] from ``columns``, those of the ``Surv`` ``surv``."""
        self.censored()
        raise AssertionError(f"family {self.name!r} is not that of censored responses")

    def observed(self, Y: AnyNDArray) -> AnyNDArray:
        """``Y`` [N] in the unit of :meth:`mean`; NaN in rows in which it is not known."""
        return first(Y)

    # --- predictors ----------------------------------------------------------------------------

    def num_predictors(self, levels: Levels | None = None) -> int:
        """The number L of latent outputs, given the ``levels``."""
        return len(self.predictor_names(levels))

    def for_parameters(self, names: Sequence[str]) -> tuple[Family, tuple[str, ...]]:
        """The family in which the parameters ``names`` have terms, and its names of them."""
        if not names:
            raise ValueError("terms: the mapping is empty; give terms of at least one parameter.")
        parameters = tuple(self._parameter(name) for name in names)
        if len(set(parameters)) < len(parameters):
            raise ValueError(f"terms: {', '.join(map(repr, names))} name one parameter twice.")
        return (self if parameters == self.modelled[:1] else self.of_all()), parameters

    def _parameter(self, name: str) -> str:
        """The family's name of a parameter."""
        for parameter, others in zip(self.modelled, _SYNONYMS):
            if name == parameter or name in others:
                return parameter
        raise ValueError(
            f"terms: family {self.name!r} has no parameter {name!r} that could have terms; it has "
            f"{', '.join(map(repr, self.modelled))}."
        )

    def of_all(self) -> Family:
        """The family in which every one of :attr:`modelled` has a predictor."""
        return self

    def parameter_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        """The parameters [L] after which terms are called, given the ``levels``."""
        return self.modelled[: self.num_predictors(levels)] or self.predictor_names(levels)

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        """L names, given the ``levels``; an empty one where there is a single predictor."""
        return ("",)

    @property
    def link_name(self) -> str:
        """The link of the first predictor."""
        return "log" if self.log_link else str(getattr(self, "link", "identity"))

    def axes(self, response: str) -> tuple[str, ...]:
        """Labels [L] of predictors of a ``response`` that differ in kind; empty for others."""
        return ()

    def units(self, likelihood: Likelihood) -> Pair:
        """Factors and shifts, [L] or [1], from the model's predictors to the response's unit."""
        return np.ones(1), np.zeros(1)

    def scale(self, y: Observed) -> float:
        """The natural size of a predictor of ``y``: 1 behind a link."""
        return 1.0

    def _moments(self, y: Observed) -> tuple[float, float]:
        """Mean and standard deviation of all responses."""
        return y.moments[0], y.spread()

    # --- the likelihood ------------------------------------------------------------------------

    def likelihood(
        self, Y: RowArray | Described, levels: Levels | None = None, weights: RowArray | None = None
    ) -> Likelihood:
        """A fresh likelihood that begins where Y [N, K], or a summary of it, suggests."""
        # lower ends of parameters, which no file holds, are those of rows that count once
        return self._likelihood(Y if isinstance(Y, Described) else Sample(Y, weights), levels)

    @abc.abstractmethod
    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        """That of a response whose labels are ``levels``."""

    @property
    def reads_response(self) -> bool:
        """True if the likelihood has constants that all responses determine."""
        return self.calibrated

    def parameters(self, likelihood: Likelihood, levels: Levels | None) -> dict[str, float]:
        """Trained numbers of a ``likelihood`` that summaries show, given the ``levels``."""
        numbers = {}
        for path, parameter in parameter_dict(unwrapped(likelihood)).items():
            value = np.asarray(parameter)
            name = path.removeprefix(".base").removeprefix(".base").lstrip(".")
            if value.ndim == 0 and name != "unit":  # which is the data's
                numbers[name] = float(value)
        return numbers

    def null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        """The constant [L] that explains ``Y`` best beside an ``offset``; None if not closed."""
        return None

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """The null model's predictor [N, L]: ``null``, but for dispersion that of ``F``."""
        return null

    # --- the distribution ----------------------------------------------------------------------

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """E[y | ``F``] under a ``likelihood``, [...]; class probabilities [..., C]."""
        return np.asarray(conditional_response(likelihood, *tensors(F)), dtype=np.float64)

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray | None:
        """``2 (log p(y | saturated) - log p(y | F))``, [N], without weights; None if unbounded."""
        # scaled (McCullagh & Nelder 1989, section 2.3): both have the likelihood's dispersion
        F = np.broadcast_to(F, (len(Y), np.shape(F)[-1]))
        best = self._saturated(likelihood, Y, F)
        if best is None:
            return None
        return np.maximum(2.0 * (best - self.log_density(likelihood, Y, F)), 0.0)

    def _saturated(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> MaybeArray:
        """The greatest log-density of each row over its first predictor; None without a limit."""

        def log_density(f: AnyNDArray) -> AnyNDArray:
            return self.log_density(likelihood, Y, np.column_stack([f, F[:, 1:]]))

        return greatest(log_density, first(F))

    def pearson(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair | None:
        """Squared Pearson residuals of ``Y`` at ``F`` and their variances, [N] each, or None."""
        # (y - mu)^2 / V(mu) has mean one and variance 2 + kurtosis (McCullagh & Nelder 1989,
        # section 4.5.2). NaN in rows that show no dispersion; None where the variance is no
        # function of the mean. Of a calibrated family the second is the average of the first.
        return None

    def log_density(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """Log p(``Y`` | ``F``) under a ``likelihood``, [...], without weights."""
        X, F = tensors(F)
        Y = in_dtype_of(likelihood, tf.constant(Y, dtype=tf.float64))
        return np.asarray(unwrapped(likelihood).log_prob(X, F, Y), dtype=np.float64)

    def heavy_noise(self, likelihood: Likelihood, F: AnyNDArray) -> MaybeArray:
        """Var[y | ``F``], [...], where that of draws is none to count on; None elsewhere."""
        return None

    def distribution(self, likelihood: Likelihood, F: AnyNDArray) -> Any:
        """The distribution of y, frozen at ``F`` and a ``likelihood`` as scipy's are."""
        raise NotImplementedError

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> Pair | None:
        """P(y' < y) and P(y' <= y) of ``Y`` at ``F``, [N]; None without order."""
        # a uniform draw between the two is a randomised quantile residual (Dunn & Smyth 1996)
        y, distribution = first(Y), self.distribution(likelihood, F)
        at_most = np.asarray(distribution.cdf(y))
        return np.asarray(distribution.cdf(y - 1.0)) if self.discrete else at_most, at_most

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> AnyNDArray:
        """One response [...] for each row of predictors F [..., L]: codes of levels, or counts."""
        return self._draw(likelihood, F, rng)

    def _draw(self, likelihood: Likelihood, F: AnyNDArray, rng: Generator) -> AnyNDArray:
        # a size, as SciPy leaves out axes of length one without it
        drawn = self.distribution(likelihood, F).rvs(size=F.shape[:-1], random_state=rng)
        return np.asarray(drawn, dtype=np.float64)


class LinkedFamily(Family):
    """A family with a field ``link``, by :class:`MeanLink` if not the likelihood's own."""

    # the first of the links is that of the likelihood without another one around it
    link: str

    @property
    def default_link(self) -> bool:  # type: ignore[override]
        return self.link == self.links[0]

    @property
    def reads_response(self) -> bool:
        """The mean of all, about which another link is kept positive."""
        return self.calibrated or not self.default_link

    @property
    def log_link(self) -> bool:  # type: ignore[override]
        return self.link == "log"

    @property
    def heavy_tailed(self) -> bool:
        return self.link in ("log", "inverse")

    def linked(self, base: Likelihood, y: Observed) -> Likelihood:
        """A likelihood with the family's link, of a ``base`` with its first one."""
        if self.default_link:
            return base
        mean, _ = self._moments(y)
        if isinstance(y, Described) and not mean > 0.0:
            mean = 1.0  # weights made it positive; what it settles comes from a file
        if not mean > 0.0:
            raise ValueError(
                f"y: link {self.link!r} is of positive means, and the mean response is {mean:g}; "
                f"take link={self.links[0]!r}."
            )
        return MeanLink(base, self.link, mean, self._size(y))

    def log_mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """The logarithm [...] of the mean, at ``F`` and a ``likelihood`` of counts or amounts."""
        if self.default_link:
            return first(F)
        linked = base_of(likelihood, MeanLink)
        return np.asarray(linked.log_mean(tf.constant(first(F), tf.float64)), np.float64)

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        return np.exp(self.log_mean(likelihood, F))

    def scale(self, y: Observed) -> float:
        return self._size(y)

    def _size(self, y: Observed) -> float:
        """Scale of the predictor: 1 for the log link, else to first order from the response."""
        mean, sd = self._moments(y)
        if self.link == "log" or not mean > 0.0:
            return 1.0
        power = POWERS[self.link]
        # what varies more than its mean does so by chance
        return float(abs(power) * mean ** (power - 1.0) * min(sd, mean))

    def linked_null(self, Y: AnyNDArray, offset: AnyNDArray, weights: MaybeArray) -> MaybeArray:
        """The predictor [1] of the mean of ``Y`` with ``weights``; None beside an ``offset``."""
        mean = float(np.average(Y[:, 0], weights=weights))
        if np.any(offset) or not mean > 0.0:
            return None
        return np.array([predictor_of(self.link, mean)])


@dataclasses.dataclass(frozen=True)
class Dispersed(Family):
    """A family of a mean and a dispersion, with or without a predictor of the latter."""

    modelled: ClassVar[tuple[str, ...]] = ("mean", "scale")
    dispersion: ClassVar[str] = "dispersion"  # the exponential of the second predictor
    varying: bool = dataclasses.field(default=False, kw_only=True)
    """True if the log dispersion has a predictor, instead of being a number that is learnt."""

    def of_all(self) -> Family:
        return dataclasses.replace(self, varying=True)  # type: ignore[call-arg]

    def predictor_names(self, levels: Levels | None = None) -> tuple[str, ...]:
        return (self.modelled[0], f"log {self.dispersion}") if self.varying else ("",)

    def axes(self, response: str) -> tuple[str, ...]:
        if not self.varying:
            return ()
        mean = measured(getattr(self, "link", "identity"), self.modelled[0])
        return f"{mean} of {response}", f"log {self.dispersion} of {response}"

    @property
    def takes_offset(self) -> bool:  # type: ignore[override]
        return not self.varying or self.default_link

    def scale(self, y: Observed) -> float:
        return 1.0 if self.varying else super().scale(y)

    def units(self, likelihood: Likelihood) -> Pair:
        if not self.varying:
            return super().units(likelihood)
        return np.array([size_of(likelihood), 1.0]), np.zeros(2)

    def null_predictor(self, null: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        """A constant mean, ``null``, with the dispersion that was fitted, of ``F``."""
        return with_second_of(F, null) if self.varying else null

    def _parts(self, likelihood: Likelihood, F: AnyNDArray) -> tuple[AnyNDArray, Any]:
        """First predictor and log dispersion (location and scale of location-scale families)."""
        base = unwrapped(likelihood)
        base = base.base if isinstance(base, Quasi) else base
        f, g = base.split(tensors(F)[1])
        return first(f), first(g) if self.varying else number(g)


class LocationScale(Dispersed):
    """A family of a location and a scale, in the likelihood's ``unit`` where the scale varies."""

    modelled: ClassVar[tuple[str, ...]] = ("location", "scale")
    dispersion: ClassVar[str] = "scale"

    @property
    def takes_offset(self) -> bool:  # type: ignore[override]
        return not self.varying

    def scale(self, y: Observed) -> float:
        known = self.default_link and not self.varying
        return self._moments(y)[1] if known else super().scale(y)

    def units(self, likelihood: Likelihood) -> Pair:
        if not self.varying:
            return super().units(likelihood)
        unit = number(base_of(likelihood).unit)
        size = unit if self.default_link else size_of(likelihood)
        return np.array([size, 1.0]), np.array([0.0, np.log(unit)])

    def mean(self, likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
        """The location, at ``F`` and a ``likelihood``."""
        return self._parts(likelihood, F)[0]


class QuasiFamily(Family):
    """A family whose variance is multiplied by a dispersion, found by Pearson's statistic."""

    calibrated: ClassVar[bool] = True
    overdispersed: ClassVar[str] = ""
    _instead: ClassVar[str]

    def _dispersion(self, likelihood: Likelihood) -> float:
        return number(unwrapped(likelihood).dispersion)

    def _likelihood(self, y: Observed, levels: Levels | None) -> Likelihood:
        return Quasi(super()._likelihood(y, levels))  # type: ignore[safe-super]

    def deviance(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> AnyNDArray:
        deviance = super().deviance(likelihood, Y, F)  # type: ignore[safe-super]
        assert deviance is not None
        return deviance / self._dispersion(likelihood)

    def cdf(self, likelihood: Likelihood, Y: AnyNDArray, F: AnyNDArray) -> None:
        return None

    def sample(
        self, likelihood: Likelihood, F: AnyNDArray, rng: Generator, trials: MaybeArray = None
    ) -> NoReturn:
        raise ValueError(
            f"family {self.name!r} is no distribution, and no responses can be drawn from it; take "
            f"{self._instead}, or type='response'."
        )


def base_of(likelihood: Likelihood, within: type[Likelihood] | None = None) -> Any:
    """The likelihood inside weights, dispersion and link, or the ``within`` around it."""
    base = unwrapped(likelihood)
    while isinstance(base, (Quasi, MeanLink)) and not (within and isinstance(base, within)):
        base = base.base
    return base


def tensors(F: AnyNDArray) -> tuple[tf.Tensor, tf.Tensor]:
    """Inputs X [..., 1], which no unweighted likelihood reads, and F [..., L], for GPflow."""
    F = np.asarray(F)
    X = tf.zeros((*F.shape[:-1], 1), dtype=tf.float64)
    return X, tf.constant(F, dtype=tf.float64)


def number(parameter: Any) -> float:
    """The value of a scalar parameter."""
    return float(tf.convert_to_tensor(parameter))


def first(F: AnyNDArray) -> AnyNDArray:
    """The first column, [...], in double precision."""
    return np.asarray(F, dtype=np.float64)[..., 0]


def with_second_of(F: AnyNDArray, null: AnyNDArray) -> AnyNDArray:
    """The first column of ``null`` beside the second of predictors F [N, 2]."""
    return np.stack([np.broadcast_to(null[..., 0], len(F)), F[..., 1]], axis=-1)


def size_of(likelihood: Likelihood) -> float:
    """The unit in which a model measures a predictor of the mean beside one of the scale."""
    base = unwrapped(likelihood)
    return base.measure if isinstance(base, MeanLink) else 1.0


def measured(link: str, what: str) -> str:
    """The predictor of a mean, in words."""
    words = {"identity": "{}", "inverse": "1 / {}", "sqrt": "root of {}"}
    return words.get(link, link + " {}").format(what)


_DOUBLINGS, _SECTIONS = 60, 32
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_FLAT = 1e-9  # nats that a last doubling may gain where the largest density is at infinity


def greatest(
    log_density: Callable[[AnyNDArray], AnyNDArray], start: AnyNDArray
) -> AnyNDArray | None:
    """The greatest log-density of each row over its predictor, [N]; None where one has no limit."""

    def at(f: AnyNDArray) -> AnyNDArray:
        with np.errstate(all="ignore"):
            return np.nan_to_num(log_density(f), nan=-np.inf, posinf=-np.inf)

    middle, value = start.astype(np.float64), at(start)
    step = np.full(len(start), 1e-3) * np.maximum(1.0, np.abs(start))
    up, down = at(middle + step), at(middle - step)
    step = np.where(up >= down, step, -step)
    behind, gained = middle - step, np.full(len(start), np.inf)
    ahead = middle + step
    for _ in range(_DOUBLINGS):
        new = at(ahead)
        climbs = new > value
        if not climbs.any():
            break
        gained = np.where(climbs, new - value, 0.0)
        behind = np.where(climbs, middle, behind)
        middle, value = np.where(climbs, ahead, middle), np.where(climbs, new, value)
        step = np.where(climbs, 2.0 * step, step)
        ahead = np.where(climbs, middle + step, ahead)
    else:
        if np.any(gained > _FLAT):
            return None
    low, high = np.minimum(behind, ahead), np.maximum(behind, ahead)
    width = high - low
    a, b = high - _GOLDEN * width, low + _GOLDEN * width
    left, right = at(a), at(b)
    for _ in range(_SECTIONS):
        rises = left < right
        low, high = np.where(rises, a, low), np.where(rises, high, b)
        width = _GOLDEN * (high - low)
        kept, known = np.where(rises, b, a), np.where(rises, right, left)
        new = np.where(rises, low + width, high - width)
        there = at(new)
        a, b = np.where(rises, kept, new), np.where(rises, new, kept)
        left, right = np.where(rises, known, there), np.where(rises, there, known)
    value = np.maximum(value, np.maximum(left, right))
    return value if np.all(np.isfinite(value)) else None
