"""Survival curves, restricted means and cumulative incidences, with credible intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.integrate import cumulative_trapezoid
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import norm

from ..errors import check_count, check_level
from ..likelihoods.base import unwrapped
from ..optimizers.laplace import HyperparameterDraw, movable_likelihood
from .effects.posterior import draws_at, equal_tailed, hyperparameter_draws, predictors_of_draws
from .families import Cox, Survival, Weibull
from .families.base import base_of
from .fits import FittedGAM
from .fits.fitted import Inspected, encoded, fit_of
from .fits.prediction import blocks, joined
from .frames.table import Table, located
from .terms.base import Column, variables_of

if TYPE_CHECKING:
    from .gam import GAM

__all__ = ["cumulative_incidence"]

_TIMES = 101  # number of times of a default grid
_NODES, _SCALE_NODES = 32, 16  # of quadratures over a predictor, and over that of a scale
_GRID = np.arange(-20.0, 4.0, 0.5)
"""Where a trapezoidal rule over the logarithm of a standard exponential variable is exact."""
_SHARES = (1e-300, 1.0 - 1e-16)  # limits of survival before a score is taken of it
_OVER_TIME = 64  # nodes of an integral over time
_STEPS = 100  # of a cumulative incidence, even ones, and as many that are even in logarithms
_SHORT = 1e-6  # the end of the first of them, against the longest time
_SAMPLES = 1000  # draws of curves whose hazards change in time
_BASELINES = 200  # number of baselines among them
_TOGETHER = 2**23  # numbers that are drawn in one go

Score = Callable[[Likelihood, AnyNDArray], AnyNDArray]
"""What rises with the share that has died by each of T times, [N, T], of predictors [N, L]."""


class _Normal:
    """Scores of which the share that has died is the normal distribution function."""

    def survived(self, z: AnyNDArray) -> AnyNDArray:
        return np.asarray(ndtr(-z))

    def hazard(self, z: AnyNDArray) -> AnyNDArray:
        return np.asarray(-log_ndtr(-z))

    def score(self, survived: AnyNDArray) -> AnyNDArray:
        return np.asarray(-ndtri(np.clip(survived, *_SHARES)))

    def expected(self, z: AnyNDArray, sd: AnyNDArray) -> AnyNDArray:
        """The mean share that has survived, of scores N(z, sd^2)."""
        return self.survived(z / np.sqrt(1.0 + np.square(sd)))


class _Proportional:
    """Scores that are logarithms of cumulative hazards."""

    def survived(self, z: AnyNDArray) -> AnyNDArray:
        return np.asarray(np.exp(-self.hazard(z)))

    def hazard(self, z: AnyNDArray) -> AnyNDArray:
        with np.errstate(over="ignore"):
            return np.exp(z)

    def score(self, survived: AnyNDArray) -> AnyNDArray:
        return np.log(-np.log(np.clip(survived, *_SHARES)))

    def expected(self, z: AnyNDArray, sd: AnyNDArray) -> AnyNDArray:
        """The mean share that has survived, of scores N(z, sd^2)."""
        z, sd = np.broadcast_arrays(z, sd)
        result, wide = np.zeros(z.shape), sd > 1.0
        for node, weight in zip(*_hermite(_NODES)):
            result[~wide] += weight * self.survived(z[~wide] + node * sd[~wide])
        # over the logarithm of a standard exponential variable, which has to exceed the score
        weights = np.exp(_GRID - np.exp(_GRID))
        for node, weight in zip(_GRID, weights / weights.sum()):
            result[wide] += weight * ndtr((node - z[wide]) / sd[wide])
        return result


def _hermite(number: int) -> tuple[AnyNDArray, AnyNDArray]:
    """Nodes and weights of means over a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(number)  # type: ignore[no-untyped-call]
    return nodes, weights / weights.sum()


@dataclasses.dataclass(frozen=True)
class Lifetimes:
    """A fit of times, and draws of its hyperparameters if intervals allow for them."""

    fit: FittedGAM
    draws: Sequence[HyperparameterDraw] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.fit.spec.family, (Survival, Cox)):
            raise ValueError(
                f"survival: family {self.fit.spec.family.name!r} has no survival curves; fit "
                "'weibull', 'lognormal', 'cox', or 'gaussian' with y=Surv(...)."
            )

    @property
    def moving(self) -> Column | None:
        """The column of when rows enter, if a term has it: hazards then change along a curve."""
        surv = self.fit.spec.censoring
        if surv is None or not surv.third or not isinstance(self.family, Cox):
            return None  # to other families it is a column as any
        return surv.first if surv.first in variables_of(self.fit.spec.inputs) else None

    @property
    def family(self) -> Survival | Cox:
        family = self.fit.spec.family
        assert isinstance(family, (Survival, Cox))
        return family

    @property
    def positive(self) -> bool:
        """Whether no response is below zero."""
        return isinstance(self.family, Cox) or self.family.kind.logarithm

    @property
    def begin(self) -> float:
        """Until when curves are one."""
        if isinstance(self.family, Cox):
            return self.family.ends(self.fit.likelihood)[0]
        return 0.0 if self.positive else -np.inf

    def times(self, times: Any) -> AnyNDArray:
        """Times as users give them as numbers [T], or even ones; raises ValueError."""
        fit, family = self.fit, self.family
        if times is not None:
            t = np.atleast_1d(np.asarray(times, dtype=np.float64))
            if t.ndim != 1 or len(t) == 0:
                raise ValueError(f"times must be numbers [T]; got shape {t.shape}.")
            good = np.isfinite(t) & ((t >= 0.0) | (not self.positive))
            if not good.all():
                what = "finite and not negative" if self.positive else "finite"
                raise ValueError(f"times must be {what}; got {t[~good][0]:g}.")
        elif isinstance(family, Cox):
            t = np.linspace(*family.ends(fit.likelihood), _TIMES)
        elif fit.data.available:
            least, greatest = fit.reach()
            t = np.linspace(0.0 if self.positive else least, greatest, _TIMES)
        else:
            raise ValueError(
                "times: the GAM was saved without its data, whose largest response would be the "
                "last time; give times, such as numpy.linspace(0, 10, 101)."
            )
        if isinstance(family, Cox) and np.max(t) > (longest := family.ends(fit.likelihood)[1]):
            raise ValueError(
                f"times must be at most {longest:g}, the longest time of the fit, beyond which "
                f"family 'cox' knows nothing; got {np.max(t):g}."
            )
        return t

    @property
    def scale(self) -> _Normal | _Proportional:
        """What scores are: nearly linear in predictors and the family's scale."""
        return _Proportional() if isinstance(self.family, (Cox, Weibull)) else _Normal()

    def score(self, t: AnyNDArray) -> Score:
        """Those of times ``t`` [T]; of times until curves begin, which have none, any."""
        known = np.where(t > self.begin, t, self.begin + 1.0)
        return lambda likelihood, F: self.family.score(likelihood, known, F[..., None, :])

    def expected(self, t: AnyNDArray, mean: AnyNDArray, var: AnyNDArray) -> AnyNDArray:
        """Posterior means of curves, [N, T], of predictors of mean and variance [N, L]."""
        score, likelihood, sd = self.score(t), self.fit.likelihood, np.sqrt(var)
        nodes, weights = _hermite(_SCALE_NODES) if mean.shape[1] > 1 else (np.zeros(1), np.ones(1))
        location = np.eye(mean.shape[1])[0]
        result: Any = 0.0
        for node, weight in zip(nodes, weights):
            at = mean + node * (1.0 - location) * sd
            z = score(likelihood, at)  # linear in the location
            spread = np.abs(score(likelihood, at + location * sd) - z)
            result = result + weight * self.scale.expected(z, spread)
        return np.asarray(result)

    def table(
        self, data: Any, t: AnyNDArray, means: bool, level: float, unconditional: bool, seed: int
    ) -> pd.DataFrame:
        """Curves at times ``t`` [T], or their means up to these, T lines for each row."""
        check_level(level)
        if self.moving:
            return self._drawn(data, t, means, level, unconditional, seed)
        parts, z = [], float(norm.ppf(0.5 + 0.5 * level))
        falling = np.argsort(-t if means else t)  # the order of times in which values fall
        over, weights, before, unit = t, np.ones(1), 0.0, 1.0
        if means:
            before = np.minimum(t, self.begin)
            unit = t - before
            over, weights = _over(unit)
            over = self.begin + over

        def averaged(shares: AnyNDArray) -> AnyNDArray:
            """Restricted means as a share of times: averages of the curve up to each."""
            return np.asarray(shares.reshape(len(shares), len(t), len(weights)) @ weights)

        def score(likelihood: Likelihood, F: AnyNDArray) -> AnyNDArray:
            z = self.score(over)(likelihood, F)
            if not means:
                return z
            return scale.score(averaged(scale.survived(z)))

        scale = self.scale
        for start, table in blocks(data, self.fit.spec.inputs):
            with located(start, table.num_rows):
                X = encoded(self.fit, table)
            mean, var = self.fit.predict_link(X)
            estimate = averaged(self.expected(over, mean, var))
            if len(self.draws) or mean.shape[1] > 1:
                scores = self._interval(score, X, z)
            else:  # a share moves one way with the predictor, and ends of intervals go through
                away = z * np.sqrt(var)
                scores = [score(self.fit.likelihood, mean + d) for d in (-away, away)]
            ends = [scale.survived(each) for each in scores]
            three = [estimate, np.minimum(*ends), np.maximum(*ends)]
            mean, low, high = (before + unit * np.where(t > self.begin, v, 1.0) for v in three)
            # ends are of each time by itself, and of few events could turn: what falls, falls
            low[:, falling] = np.maximum.accumulate(low[:, falling[::-1]], axis=1)[:, ::-1]
            high[:, falling] = np.minimum.accumulate(high[:, falling], axis=1)
            parts.append(_lines(start, t, mean, low, high))
        return joined(parts)

    def _drawn(
        self, data: Any, t: AnyNDArray, means: bool, level: float, unconditional: bool, seed: int
    ) -> pd.DataFrame:
        """As :meth:`table`, where hazards change in time, by draws."""
        fit, family, parts = self.fit, self.family, []
        assert isinstance(family, Cox)
        edges = base_of(fit.likelihood).edges.numpy()
        last = max(np.max(t), edges[1])
        grid = np.linspace(edges[0], last, _OVER_TIME + 1)
        # the fit took hazards relative to the baseline as constant from one start to the next
        starts = fit.starts()
        if starts is None:
            raise ValueError(
                f"survival: the GAM's file has neither its data nor values of {self.moving!r}, "
                "when rows enter, which is in a term; save it again from a GAM with its data."
            )
        steps = np.unique(np.concatenate([[0.0], t, edges, grid, starts]))
        steps = steps[steps <= last]
        since = starts[np.maximum(np.searchsorted(starts, steps[:-1], "right") - 1, 0)]
        at, J = np.searchsorted(steps, t), len(steps) - 1
        others = [name for name in variables_of(fit.spec.inputs) if name != self.moving]
        most = max(1, _TOGETHER // (_SAMPLES * J))
        for start, table in blocks(data, others, most):
            columns = {name: table.values(name) for name in others}
            with located(start, table.num_rows):  # whose errors count rows as they were given
                encoded(fit, Table({**columns, self.moving: np.full(table.num_rows, starts[0])}))
            columns = {name: np.repeat(values, J, axis=0) for name, values in columns.items()}
            X = fit.encode(Table({**columns, self.moving: np.tile(since, table.num_rows)}))
            none = [(fit.likelihood, np.zeros((1, 0)))]
            curves = []
            for likelihood, F in self._draws(X, unconditional, seed) if len(X) else none:
                relative = np.exp(F).reshape(len(F), table.num_rows, J)
                risk = np.diff(-np.log(family.survival(likelihood, steps, np.zeros((1, 1)))))
                H = np.cumsum(risk * relative, axis=-1)
                curves.append(np.exp(-np.pad(H, [(0, 0), (0, 0), (1, 0)])))
            S = np.concatenate(curves)
            if means:
                S = cumulative_trapezoid(S, steps, initial=0.0)
            S = S[..., at]
            parts.append(_lines(start, t, S.mean(axis=0), *equal_tailed(S, level)))
        return joined(parts)

    def _draws(
        self, X: AnyNDArray, unconditional: bool, seed: int
    ) -> Iterator[tuple[Likelihood, AnyNDArray]]:
        """Baselines, and draws [s, N] of the predictor given each."""
        fit, solution, model = self.fit, self.fit.solution, self.fit.model
        ((likelihood, F),) = draws_at(fit, X, fit.spec.names, _SAMPLES, seed, False)
        F = F[..., 0] + np.asarray(model.mean_function(X))[:, 0]
        joint = None
        if unconditional and solution is not None and fit.data.available:
            joint = solution.with_parameters(model.likelihood)
        if solution is None or joint is None:
            yield likelihood, F
            return
        (moved,), root = joint
        response = fit.moments.all_features(X)[0].T @ moved
        copied, learnt = movable_likelihood(model, solution)
        z = np.random.default_rng(seed).standard_normal((_BASELINES, len(root)))
        for part, step in zip(np.array_split(F, _BASELINES), z @ root.T):
            learnt.set(solution.rounds.family.get() + step)
            yield unwrapped(copied), part + response @ step

    def _interval(self, score: Score, X: AnyNDArray, z: float) -> list[AnyNDArray]:
        """Scores' intervals [N, T], with uncertain hyperparameters, the family's own too."""
        fit = self.fit

        def variance(likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> AnyNDArray:
            """Variance that uncertain predictors cause, to first order, [N, T]."""
            sd, result = np.sqrt(np.maximum(var, 0.0)), np.zeros_like(at)
            for axis in np.eye(mean.shape[1]):
                ends = [score(likelihood, mean + sign * axis * sd) for sign in (-1.0, 1.0)]
                result += np.square(0.5 * (ends[1] - ends[0]))
            return result

        mean, var = fit.predict_link(X)
        at = score(fit.likelihood, mean)
        total = np.zeros_like(at) if len(self.draws) else variance(fit.likelihood, mean, var)
        for likelihood, mean, var in predictors_of_draws(fit, self.draws, X):
            total += variance(likelihood, mean, var) + np.square(score(likelihood, mean) - at)
        half = z * np.sqrt(total / max(len(self.draws), 1))
        return [at - half, at + half]


def _lines(
    start: int, t: AnyNDArray, mean: AnyNDArray, low: AnyNDArray, high: AnyNDArray, **others: Any
) -> pd.DataFrame:
    """A line for each row and time, of estimates and ends of intervals [N, T]."""
    rows = np.arange(start, start + len(mean))
    where = {"row": np.repeat(rows, len(t)), "time": np.tile(t, len(mean)), **others}
    parts = {"estimate": mean.ravel(), "lower": low.ravel(), "upper": high.ravel()}
    return pd.DataFrame(where | parts)


def _over(t: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Times up to each of ``t`` [T], those of one behind those of another, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(_OVER_TIME)  # type: ignore[no-untyped-call]
    root = 0.5 * (1.0 + nodes)  # cubes are dense where lives may be over long before a last time
    return (t[:, None] * root**3).ravel(), 1.5 * weights * np.square(root)


class SurvivalCurves(Inspected):
    """Survival curves of a fitted GAM."""

    def _lifetimes(self, unconditional: bool) -> Lifetimes:
        return Lifetimes(self.fitted, hyperparameter_draws(self.fitted) if unconditional else [])

    def survival(
        self, data: Any, times: Any = None, *, level: float = 0.95, unconditional: bool = True
    ) -> pd.DataFrame:
        """
        Probabilities that responses exceed given times: survival curves of new rows.

        Of family ``"cox"`` they are given being alive when the first row of the fit entered, as
        nobody was at risk before; until then they are 1.

        Where a term has ``start`` of ``Surv("start", "stop", "event")``, hazards change along each
        curve, which begins there whatever ``start`` is in ``data``. Estimates and
        intervals are then those of a thousand draws, which allow for an uncertain baseline (where
        the GAM has its data) and have kernels' hyperparameters at the fitted ones.

        :param data: as in :meth:`predict`.
        :param times: [T], in the response's unit, or one time; by default 101 even ones from 0 (of
            family ``"cox"`` the first entry, of responses that may be negative the least one) to
            the largest response of the fit.
        :param level: probability of the credible interval at each time.
        :param unconditional: whether intervals allow for uncertain hyperparameters, as those of
            :meth:`predict`, and for the family's own: scale, or baseline hazard.
        :return: ``row``, ``time``, ``estimate`` (the posterior mean), ``lower`` and ``upper``,
            T lines for each row.
        :raises ValueError: naming the argument, also where a GAM that was saved without its data
            is given no times; or a family without survival curves.
        """
        lives = self._lifetimes(unconditional)
        return lives.table(data, lives.times(times), False, level, unconditional, self.seed)

    def restricted_mean(
        self, data: Any, times: Any = None, *, level: float = 0.95, unconditional: bool = True
    ) -> pd.DataFrame:
        """
        Mean times up to given ones: areas under the survival curves of new rows.

        The mean time lived up to a given time, from time 0, in the response's unit; comparing it
        needs no proportional hazards (Royston & Parmar 2013). ``data``, ``times``, ``level``
        and ``unconditional`` are as of :meth:`survival`.

        :return: as :meth:`survival`; ``time`` is the restriction.
        :raises ValueError: as :meth:`survival`; responses that may be negative.
        """
        lives = self._lifetimes(unconditional)
        t = lives.times(times)
        if not lives.positive:
            raise ValueError(
                f"restricted_mean: family {lives.family.name!r} has responses below zero; fit "
                "'weibull', 'lognormal' or 'cox'."
            )
        return lives.table(data, t, True, level, unconditional, self.seed)


def cumulative_incidence(
    gams: Mapping[str, GAM],
    data: Any,
    times: Any = None,
    *,
    level: float = 0.95,
    unconditional: bool = True,
    num_samples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    r"""
    Probabilities of each of several competing events by given times.

    Each cause has a fit of its own, in which rows that had another event first are censored at it:
    a model of the cause's hazard. Together they say how likely each event comes, and comes first,

    .. math:: F_k(t) = \int_0^t \prod_j S_j(u) \, dH_k(u), \qquad H_k = -\log S_k

    (Kalbfleisch & Prentice 2002, section 8.2). One minus a cause's own survival curve would be
    larger: it is the probability in a world without the other causes. The fits must not depend on
    each other given the columns: their posteriors are taken as independent. Where rows enter late,
    probabilities are given being alive at the first entry, as curves of family ``"cox"`` are.

    :param gams: a fitted GAM for each cause, of family ``"cox"``, ``"weibull"`` or
        ``"lognormal"``.
    :param data: rows with the columns of all of them.
    :param times: [T], or one time; by default 101 even ones from 0, or the first entry, to the
        longest that all know.
    :param level: probability of the credible interval at each time.
    :param unconditional: whether draws allow for uncertain hyperparameters and baselines.
    :param num_samples: posterior draws.
    :param seed: of the draws.
    :return: ``row``, ``time``, ``cause``, ``estimate`` (the posterior mean), ``lower`` and
        ``upper``, for each row T lines a cause.
    :raises ValueError: fewer than two causes, a family without times, or a bad argument, naming it.
    :raises TypeError: no mapping, or no GAMs.
    """
    if not isinstance(gams, Mapping):
        raise TypeError(
            "gams must be a mapping, as {'death': gam, 'relapse': other}; got "
            f"{type(gams).__name__}."
        )
    if len(gams) < 2:
        raise ValueError(f"gams must have a GAM for each of two causes or more; got {len(gams)}.")
    check_level(level)
    check_count("num_samples", num_samples)
    lives = []
    for gam in gams.values():
        fit = fit_of(gam, "cumulative_incidence")
        lives.append(Lifetimes(fit, hyperparameter_draws(fit) if unconditional else []))
        if not lives[-1].positive:
            raise ValueError("gams must be of times; 'gaussian' has responses below zero.")
        if lives[-1].moving:
            raise ValueError(
                f"gams: {lives[-1].moving!r}, when a row enters, is in a term, so that hazards "
                "change along a curve; leave such terms out."
            )
    begin = max(each.begin for each in lives)
    if times is None:
        times = np.linspace(begin, min(each.times(None)[-1] for each in lives), _TIMES)
    t = lives[0].times(times)
    for each in lives[1:]:
        each.times(t)
    # lives may be over long before the last time
    grid = np.linspace(0.0, 1.0, _STEPS + 1), np.geomspace(_SHORT, 1.0, _STEPS)
    span = max(np.max(t) - begin, 0.0)
    steps = np.unique(np.concatenate([t, *(begin + span * ends for ends in grid)]))
    at, rng = np.searchsorted(steps, t), np.random.default_rng(seed)
    parts: list[pd.DataFrame] = []
    inputs = list(dict.fromkeys(name for each in lives for name in each.fit.spec.inputs))
    most = max(1, _TOGETHER // (num_samples * len(gams) * len(steps)))
    for start, table in blocks(data, inputs):
        with located(start, table.num_rows):
            rows = [encoded(each.fit, table) for each in lives]
        moments = [
            list(predictors_of_draws(each.fit, each.draws, X))
            or [(each.fit.likelihood, *each.fit.predict_link(X))]
            for each, X in zip(lives, rows)
        ]
        for first in range(0, max(table.num_rows, 1), most):
            part = slice(first, min(first + most, table.num_rows))
            shares = _shares(lives, moments, part, steps, num_samples, rng)[..., at]
            causes = zip(gams, shares.mean(axis=0), *equal_tailed(shares, level))
            parts += [_lines(start + first, t, *three, cause=cause) for cause, *three in causes]
    return pd.concat(parts, ignore_index=True)


def _shares(
    lives: Sequence[Lifetimes],
    moments: Sequence[Sequence[tuple[Likelihood, AnyNDArray, AnyNDArray]]],
    part: slice,
    t: AnyNDArray,
    number: int,
    rng: np.random.Generator,
) -> AnyNDArray:
    """Draws of the incidence of each cause by times ``t`` of some rows, [S, K, N, T]."""
    causes = []
    for each, of in zip(lives, moments):
        H = np.zeros((number, part.stop - part.start, len(t)))
        # hyperparameters of one cause beside any of another
        for group, at in zip(np.array_split(rng.permutation(number), len(of)), of):
            likelihood, (mean, var) = at[0], (moment[part] for moment in at[1:])
            z = rng.standard_normal((len(group), *mean.shape))
            F = mean + np.sqrt(np.maximum(var, 0.0)) * z
            hazard = each.scale.hazard(each.score(t)(likelihood, F))
            H[group] = np.where(t > each.begin, hazard, 0.0)
        causes.append(H)
    # given alive when the curves of all causes have begun
    since = t[1:] > max(each.begin for each in lives)
    risk = np.diff(np.stack(causes, axis=1), axis=-1) * since
    total = risk.sum(axis=1, keepdims=True)
    # of those alive at a step's start, by the cause's share of the step's hazard
    before = total.cumsum(axis=-1) - total
    ended = np.exp(-before) * -np.expm1(-total)
    shares = np.divide(risk, total, out=np.zeros_like(risk), where=total > 0.0) * ended
    return np.pad(shares.cumsum(axis=-1), [(0, 0)] * 3 + [(1, 0)])
