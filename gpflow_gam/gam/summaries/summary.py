"""Summaries of a fitted GAM: components, dispersion, and the summary as text and HTML."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Constant, Kernel, Sum
from gpflow.utilities import parameter_dict
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm
from tabulate import tabulate

from ...errors import NotPositiveDefinite, check_level, imported
from ...kernels import CentredLinear, Summed, kernel_columns
from ...kernels.correlation import leaves_of, lengthscales_of
from ...measures import NUM_NODES
from ...newton.curvatures import curvature
from ...optimizers import Solution
from ...optimizers.binned.evidence import EvidenceEvaluation
from ...optimizers.laplace import Target
from ...optimizers.minimizers import Loss, descend
from ...posteriors.inducing import InducingMoments
from ...threads import one_blas_thread
from ..components.kernels import lengthscale_units
from ..components.plan import Component
from ..effects.effect import coefficients
from ..fits import FittedGAM
from ..fits.fitted import Inspected, sampled
from ..terms.base import Column
from .checks import UNLIKELY, Dispersion, autocorrelations, dispersion, effective_dof, total_dof

# --- components: shares, p-values, variance components --------------------------------------------


SMOOTH = ("smooth", "tensor", "interaction", "own", "curves", "deviations")
"""Forms of components that are functions of numbers."""
_SHARE_ROWS = 1000  # of each component, that stand for all
_MODE_ROWS, _MODE_STEPS, _MODE_GAIN = 20_000, 50, 1e-8
_DRAWS = 1000


def variance_shares(fit: FittedGAM) -> AnyNDArray:
    """Draws of ``Var[f_c] / sum_d Var[f_d]`` over the data, [S, C, L], without the intercept."""
    moments, V, variances = fit.moments, fit.moments.sample(_DRAWS, 0), []
    for component in fit.spec.effects:
        rows, w = _rows_of(fit, component)
        name, X = component.name, fit.X[rows]
        phi, prior = moments.features_and_prior(name, moments.tangents(name, X))
        left = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0) @ w
        v, centred = V[:, moments.block(name)], phi - (phi @ w)[:, None]
        own = np.einsum("spl,pr,srl->sl", v, (centred * w) @ centred.T, v, optimize=True)
        variances.append(own + left * moments.entering([name])[0])
    result = np.stack(variances, axis=1) if variances else np.zeros((_DRAWS, 0, V.shape[2]))
    total = result.sum(axis=1, keepdims=True)
    return np.divide(result, total, out=np.zeros_like(result), where=total > 0.0)


def _rows_of(fit: FittedGAM, component: Component) -> tuple[AnyNDArray, AnyNDArray]:
    """Rows of the fit at random, of all levels of a component, and what share each stands for."""
    rows, by = fit.some_rows(len(fit.X)), component.by
    X, w = fit.X[rows], fit.weights[rows]
    levels = X[:, [m.column for m in component.margins if m.kind == "levels"]]
    if by is not None and by.code is not None:
        levels = np.asarray(component.acting(X))[:, None]
    strata = np.zeros(len(X), dtype=int)
    if levels.size and not component.slots:
        strata = pd.DataFrame(levels).groupby(list(range(levels.shape[1]))).ngroup().to_numpy()
    number = strata.max() + 1
    if number > _SHARE_ROWS:
        strata, number = np.zeros_like(strata), 1
    few = sampled(strata, _SHARE_ROWS, _SHARE_ROWS // number)
    counts = np.bincount(strata, w) / np.bincount(strata[few], w[few])
    shares = w[few] * counts[strata[few]]
    return rows[few], shares / shares.sum()


class TermTest(NamedTuple):
    """A test of the hypothesis that a part of the predictor is zero."""

    ref_df: float  # the statistic's expectation where the hypothesis is true
    statistic: float
    p: float


_Form = tuple[float, AnyNDArray]
"""A statistic, and the weights of the sum of chi-squares that it is under the hypothesis."""


def joint_test(
    fit: FittedGAM, components: list[Component], bases: Sequence[AnyNDArray | None]
) -> TermTest:
    """Test of the sum of components, whose inducing values may be in a predictor's basis [P, K]."""
    return _test(_forms(fit, components, _mode(fit), bases), residual_dof(fit))


def free_moments(fit: FittedGAM) -> InducingMoments:
    """Moments before shapes."""
    return fit.free_moments or fit.moments


def residual_dof(fit: FittedGAM) -> float:
    """Degrees of freedom of the noise's variance; infinite where none is learnt."""
    bound = None if fit.solution is None else fit.solution.bound
    if bound is None or not len(bound.noise):
        return np.inf
    return max(bound.sums.number - total_dof(fit), 1.0)


def _forms(
    fit: FittedGAM,
    components: list[Component],
    mode: tuple[AnyNDArray, AnyNDArray],
    bases: Sequence[AnyNDArray | None] | None = None,
) -> list[_Form]:
    """Statistics of the sum of components, one a predictor; inducing values in a basis may be."""
    # Whitened inducing values have the prior N(0, I) and the posterior N(m, S). Where the component
    # is zero m' S^-1 m is a sum of independent (1 - s_i) chi^2_1, with s_i the eigenvalues
    # of S: a Wald test of what is not penalised, a score test of a variance at its boundary of zero
    # (Wood 2013, "A simple test for random effects in regression models"). Smooths, which have
    # learnt their lengthscales from the same data, take 1 - s_i^2, whose sum are the degrees of
    # freedom tr(2 F - F F) of Wood 2013, "On p-values for smooth components of an extended
    # generalized additive model"; without that paper's cut at this rank the test has more power.
    # Shapes are left out. A basis is projected out, in the norm of S^-1.
    moments = free_moments(fit)
    mean = mode[0].copy()
    for c in components:
        if c.form == "means":  # levels that have the constant, too
            points = np.unique(fit.X[:, [m.column for m in c.margins]], axis=0)
            phi = moments.features(c.name, c.full(points, fit.spec.encoder.width))
            constant = np.tile(fit.constant_of(c) / fit.units[0], (len(points), 1))
            mean[moments.block(c.name)] += np.linalg.lstsq(phi.T, constant, rcond=None)[0]
    forms = []
    for i, basis in enumerate(bases or [None] * fit.num_predictors):
        own = [c for c in components if i in c.predictors_of(fit.num_predictors)]
        where = moments.places([c.name for c in own])
        power = 2 if any(c.form in SMOOTH for c in own) else 1
        values, vectors = np.linalg.eigh(mode[1][i][np.ix_(where, where)])
        values = np.clip(values, 1e-12, 1.0)
        z, weights = vectors.T @ mean[where, i] / np.sqrt(values), 1.0 - values**power
        if basis is not None:
            Q = np.linalg.qr(vectors.T @ basis / np.sqrt(values)[:, None])[0]
            z, rest = z - Q @ (Q.T @ z), np.eye(len(z)) - Q @ Q.T
            weights = np.linalg.eigvalsh(rest @ (weights[:, None] * rest))
        forms.append((float(z @ z), weights))
    return forms


def _mode(fit: FittedGAM) -> tuple[AnyNDArray, AnyNDArray]:
    """The mode of the inducing values, [P, L], and the inverse of -Hessian there, [L, P, P]."""
    moments = free_moments(fit)
    # Where few counts tell of an effect, the mean of q lies further out than the mode, and the test
    # would reject too often: for counts and classes Newton's method goes from the mean to the mode,
    # at fixed hyperparameters. Elsewhere, and of many rows, the two are the same.
    moved, few = moments.mean[:, 0], fit.data.complete and len(fit.X) <= _MODE_ROWS
    sites = fit.spec.variational == "sites" and fit.free_moments is not None
    if not (few and sites and fit.spec.family.discrete and fit.num_predictors == 1):
        return moments.mean, moments.covariance
    phi = moments.all_features(fit.X)[0]
    offset = np.asarray(fit.model.mean_function(fit.X))[:, 0]

    def expanded(v: AnyNDArray) -> tuple[float, AnyNDArray, AnyNDArray]:
        """The log posterior density, its gradient and minus its Hessian."""
        F = (offset + phi.T @ v)[:, None]
        at = curvature(fit.model.likelihood, fit.X, tf.constant(F), tf.constant(fit.Y))
        (g,), (w,) = at.gradient.numpy(), at.precision.tensor.numpy()
        density = float(np.sum(at.log_prob)) - 0.5 * float(v @ v)
        return density, phi @ g - v, (phi * w) @ phi.T + np.eye(len(v))

    at = expanded(moved)
    try:
        for _ in range(_MODE_STEPS):
            step = cho_solve(cho_factor(at[2]), at[1])
            if at[1] @ step < _MODE_GAIN:
                break
            while (new := expanded(moved + step))[0] < at[0]:
                step = 0.5 * step
            moved, at = moved + step, new
        return moved[:, None], cho_solve(cho_factor(at[2]), np.eye(len(moved)))[None]
    except np.linalg.LinAlgError:  # of a likelihood that is not log-concave
        return moments.mean, moments.covariance


def _test(forms: list[_Form], residual_dof: float) -> TermTest:
    """The test whose statistic is the sum of several."""
    statistic, weights = sum(q for q, _ in forms), np.concatenate([w for _, w in forms])
    weights = weights[weights > 1e-10]
    p = exceedance(statistic, weights, residual_dof) if len(weights) else 1.0
    return TermTest(float(np.sum(weights)), statistic, p)


def exceedance(value: float, weights: AnyNDArray, residual_dof: float = np.inf) -> float:
    """``P(sum_i w_i chi^2_1 > value chi^2_k / k)``, k the ``residual_dof``, to eight digits."""
    # the moment generating function's inverse, integrated along a path through its saddlepoint (as
    # Rice 1980) that bends to where the integrand falls off
    w, q = weights / np.max(weights), value / np.max(weights)
    w = w[w > 1e-10]

    def slope(s: float) -> float:
        return float(np.sum(w / (1.0 - 2.0 * w * s)) - q / (1.0 + 2.0 * s * q / residual_dof))

    s0 = 0.05  # right of the pole at zero
    if slope(s0) < 0.0:
        s0 = brentq(slope, s0, 0.5 * (1.0 - 1e-13))
    width = 1.0 / np.sqrt(2.0 * np.sum(np.square(w / (1.0 - 2.0 * w * s0))) + s0**-2)
    x = np.linspace(-30.0, 30.0, 1715)
    t, root = np.sinh(x), np.cosh(x)
    s = s0 + width * (1j * t + 0.5 * t**2 / root)
    turn = width * root * (1j + t / root - 0.5 * (t / root) ** 3)
    if np.isinf(residual_dof):
        exponent = -s * q
    else:
        exponent = -0.5 * residual_dof * np.log1p(2.0 * s * q / residual_dof)
    exponent = exponent - 0.5 * np.sum(np.log(1.0 - 2.0 * w[:, None] * s), axis=0)
    area = np.sum(np.exp(exponent) * turn / s) * (x[1] - x[0])
    return float(np.clip(area.imag / (2.0 * np.pi), 0.0, 1.0))


class Part(NamedTuple):
    """A part of a component that has a variance of its own."""

    name: str  # empty where there is one part
    variance: Parameter
    unit: float  # prior variance of the part's contribution, over variance


def parts_of(fit: FittedGAM, component: Component) -> list[Part]:
    """The parts of a component whose variances are learnt."""
    if component.form == "own" or not component.shrink:
        return []
    kernel = fit.model.kernel[component.name]
    kernel = kernel.base if isinstance(kernel, Summed) else kernel
    several = isinstance(kernel, Sum)
    parts = []
    for summand in kernel.kernels if several else [kernel]:
        leaves = leaves_of(summand)
        learnt = [
            leaf.variance
            for leaf in leaves
            if isinstance(getattr(leaf, "variance", None), Parameter) and leaf.variance.trainable
        ]
        if learnt:  # not the intercept's, in means of levels
            (variance,) = learnt
            name, unit = _named(fit, component, leaves[0]) if several else ("", 1.0)
            parts.append(Part(name, variance, unit))
    return parts if len(parts) > 1 else [part._replace(name="") for part in parts]


def _named(fit: FittedGAM, component: Component, leaf: Kernel) -> tuple[str, float]:
    """Name and unit of one of several parts."""
    if isinstance(leaf, Constant):
        return "level", 1.0
    if not isinstance(leaf, CentredLinear):
        return "deviation", 1.0
    for i, margin in enumerate(component.margins):
        place = i if component.slots else margin.column
        if (place,) == (kernel_columns(leaf) or ()):
            # the variance of the column turns a slope's into its own
            distance = np.array(margin.nodes) - margin.centre
            column = fit.spec.encoder.readers[margin.column].name
            name = "straight" if len(component.margins) == 1 else f"straight in {column}"
            return name, float(np.dot(margin.weights, np.square(distance)))
    return "straight", 1.0


def _rows(fit: FittedGAM, z: float) -> Iterator[tuple[object, ...]]:
    spec, interval = fit.spec, _intervals(fit, z)
    names = spec.predictor_names
    for component in spec.effects:
        for name, parameter, unit in parts_of(fit, component):
            variance = np.array([fit.value(parameter), np.nan, np.nan])
            if not component.shape:  # whose data say more than the criterion knows
                variance[1:] = interval(parameter)
            for i in component.predictors_of(len(names)):
                sd = np.abs(fit.units[0][i]) * np.sqrt(unit * variance)
                yield component.name, names[i], name, sd[0] ** 2, *sd
    noise = spec.family.parameters(fit.likelihood, spec.levels).get("variance")
    if noise is not None:
        bound = None if fit.solution is None else fit.solution.bound
        within = (np.nan, np.nan) if bound is None else interval(bound.parameter)
        yield "residual", "", "", noise, *np.sqrt([noise, *within])


_FARTHEST = 32.0  # distance, in (logarithmic) coordinates, at which an end is last looked for
_PROFILE_STEPS, _PROFILE_TOLERANCE = 30, 0.1
"""Iterations, and nats of which a hundredth counts, of the search over the other coordinates."""
_ACCURACY = 0.003  # relative, of the distance of an end of the interval
_CLOSE_END = 0.1  # relative error of a deviate at which an end is one


@dataclasses.dataclass
class _Profile:
    """A loss at each value of one coordinate, minimised over all others."""

    loss: Loss
    optimum: AnyNDArray
    place: int
    metric: Callable[[AnyNDArray], AnyNDArray | None]
    exact: Callable[[AnyNDArray], float] | None = None  # what the loss approximates

    def __post_init__(self) -> None:
        self._others = np.arange(len(self.optimum)) != self.place
        self._least = self.loss(self.optimum)[0]
        around = self.metric(self.optimum)
        self._exact_least = 0.0 if self.exact is None else self.exact(self.optimum)
        along = np.eye(len(self.optimum))[self.place]
        if around is not None:
            along = np.linalg.solve(around, along)
        self._sd = float(np.sqrt(along[self.place]))
        self._direction: AnyNDArray = along / along[self.place]

    def interval(self, z: float) -> tuple[float, float]:
        """Where it has risen by ``z^2 / 2`` (Bates, Mächler, Bolker & Walker 2015), or infinity."""
        at = self.optimum[self.place]
        return at - self._distance(-1.0, z), at + self._distance(1.0, z)

    def _distance(self, sign: float, z: float) -> float:
        """Distance from the optimum to one end of the interval; infinite if it is too far away."""
        known = {0.0: (-z, self.optimum)}

        def excess(distance: float) -> float:
            """The root of twice the rise, nearly linear in the distance, less ``z``."""
            if distance in known:
                return known[distance][0]
            # lengthscales may have several optima: on from nearer the optimum, never back
            inner = max(d for d in known if d < distance)
            at = known[inner][1]
            try:
                at, value = self._least_at(at + sign * (distance - inner) * self._direction)
                root = np.sqrt(2.0 * max(value - self._least, 0.0))
            except NotPositiveDefinite:  # as far as numbers go
                root = np.inf
            known[distance] = min(float(root), 2.0 * z) - z, at
            return known[distance][0]

        end = self._root(excess, z)
        if self.exact is None:
            return end
        exact, least = self.exact, self._exact_least

        def true(distance: float) -> float:
            """The same of the exact loss, where the other is least."""
            if excess(distance) >= z:  # as far as numbers go
                return z
            try:
                rise = exact(known[distance][1]) - least
            except NotPositiveDefinite:
                return z
            return float(np.sqrt(2.0 * max(rise, 0.0))) - z

        return end if np.isfinite(end) and abs(true(end)) < _CLOSE_END * z else self._root(true, z)

    def _root(self, excess: Callable[[float], float], z: float) -> float:
        near, far = 0.0, min(z * self._sd, 2.0)
        while excess(far) < 0.0:
            if far >= _FARTHEST:
                return np.inf
            expected = 1.1 * far * z / max(excess(far) + z, 1e-3 * z)
            near, far = far, min(max(1.5 * far, min(expected, 4.0 * far)), _FARTHEST)
        return float(brentq(excess, near, far, xtol=_ACCURACY * far))

    def _least_at(self, start: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The least of the loss where the coordinate is what it is in ``start``."""
        others = self._others
        if not others.any():
            return start, self.loss(start)[0]

        def whole(part: AnyNDArray) -> AnyNDArray:
            u = start.copy()
            u[others] = part
            return u

        def loss(part: AnyNDArray) -> tuple[float, AnyNDArray]:
            value, gradient = self.loss(whole(part))
            return value, gradient[others]

        def metric(part: AnyNDArray) -> AnyNDArray | None:
            result = self.metric(whole(part))
            return None if result is None else result[np.ix_(others, others)]

        best = whole(
            descend(loss, start[others], _PROFILE_STEPS, _PROFILE_TOLERANCE, None, metric=metric)[0]
        )
        return best, self.loss(best)[0]


def _intervals(fit: FittedGAM, z: float) -> Callable[[Parameter], tuple[float, float]]:
    """Profile intervals of variances; NaN where the fit has no marginal likelihood."""
    solution = fit.solution
    if solution is None or solution.hessian is not None:
        return lambda _: (np.nan, np.nan)
    bound, rounds = solution.bound, solution.rounds
    optimum = solution.optimum if solution.unshaped is None else solution.unshaped
    learnt = list(rounds.hyperparameters.parameters)
    loss: Loss
    metric: Callable[[AnyNDArray], AnyNDArray | None]
    exact: Callable[[AnyNDArray], float] | None = None
    if bound is not None:
        loss, metric = bound.loss, bound.metric
        learnt += bound.noise.parameters
    else:
        optimum, target = optimum[: len(rounds.hyperparameters)], Target(fit.model, solution)
        if target.reads or solution.centre is not None:
            target.recentre()
            exact = target.exact if target.settles else None
        data = target.data
        loss = rounds.loss(data)

        def metric(u: AnyNDArray) -> AnyNDArray | None:
            return rounds.metric(data, u)

    starts = np.cumsum([0, *(int(np.prod(p.shape.as_list())) for p in learnt)])

    def interval(parameter: Parameter) -> tuple[float, float]:
        at = [p is parameter for p in learnt].index(True)
        ends = _Profile(loss, optimum, int(starts[at]), metric, exact).interval(z)
        assert parameter.transform is not None  # a variance is positive
        lower, upper = np.asarray(parameter.transform.forward(np.array(ends)))
        return float(lower), float(upper)

    return interval


# --- is a smooth absent, a line, or curved? -------------------------------------------------------


_SIZES = np.linspace(-3.6, 1.2, 7)  # logarithms of standard deviations, in the predictor's unit
_ABSENT = np.log(1e-6)
_LENGTHS = norm.ppf([1.0 / 6.0, 0.5, 5.0 / 6.0])  # of standardised lengthscales, in thirds


def _hypotheses(
    fit: FittedGAM, solution: Solution, parts: Sequence[Part], length: Parameter
) -> AnyNDArray:
    """Log evidence [3] without a smooth, with its straight part, and with both."""
    # Standard deviations of both parts are half-Cauchy, of scale one in the predictor's unit, and
    # the lengthscale has its prior; all other hyperparameters are the fitted ones.
    kernels = solution.rounds.hyperparameters
    keys = [id(p) for p, _ in kernels.moved(np.zeros(len(kernels)), 0.0)]
    line, bend, at = (keys.index(id(p)) for p in (*(part.variance for part in parts), length))
    units = [2.0 * np.log(fit.spec.scale) - np.log(part.unit) for part in parts]
    data = solution.trusted(fit.likelihood)
    prior: Any = length.prior

    def evidence(first: float, second: float, z: float) -> float:
        u = np.array(solution.optimum)
        u[line], u[bend] = units[0] + 2.0 * first, units[1] + 2.0 * second
        u[at] = float(prior.loc + z * prior.scale)
        values, _, scale = solution.parameters(u)
        return EvidenceEvaluation(solution.rounds.evidence, data, values, scale).value

    weights = np.exp(_SIZES) / (1.0 + np.exp(2.0 * _SIZES))
    weights = np.log(weights / weights.sum())
    sizes = list(zip(weights, _SIZES))
    straight = [w + evidence(a, _ABSENT, 0.0) for w, a in sizes]
    curved = [v + w + evidence(a, b, z) for v, a in sizes for w, b in sizes for z in _LENGTHS]
    return np.array(
        [
            evidence(_ABSENT, _ABSENT, 0.0),
            logsumexp(straight),
            logsumexp(curved) - np.log(len(_LENGTHS)),
        ]
    )


# --- the summary ----------------------------------------------------------------------------------


Named = Iterable[tuple[str, str]]


def as_text(rows: Named) -> str:
    """A line each, the values below each other."""
    return "\n".join(f"{name + ':':30s}{value}" for name, value in rows)


def as_html(rows: Named) -> str:
    """A table with a row each."""
    body = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{body}</table>"


def as_html_columns(rows: list[list[str]], header: list[str]) -> str:
    """A table as pandas shows frames, with numbers on the right; nothing of no rows."""
    align = ["left", *["right"] * (len(header) - 1)]
    text = tabulate(rows, header, "html", disable_numparse=True, colalign=align) if rows else ""
    return text.replace("<table>", '<table border="1" class="dataframe">')


_NOTE = (
    "edf: effective degrees of freedom. M: inducing values (basis functions). prior_sd: standard\n"
    "deviation of the effect under its prior. lengthscale: the distance over which it changes.\n"
    "share: of the predictor's variance. p: p-value of the hypothesis that the effect is zero."
)
_SHAPES = (
    "shapes: p is how often noise alone takes an estimate as far from the shape as the one\n"
    "without it is."
)
_FEW = (
    "* effective degrees of freedom are close to M, the number of inducing values:\n"
    "k may be too small; fit again with twice the k, and see whether they grow."
)
_NUMBERS = ["term", "estimate", "se", "lower", "upper"]
_SHOWN = 16  # terms of more levels than about these are not printed level by level
_OF_LEVELS = ("factor(", "random_effect(")
_CLOSE = 0.8  # share of M from which degrees of freedom are close to it
_HEADER = ["effect", "edf", "M", "prior_sd", "lengthscale", "share [95 %]", "p"]
_COLUMNS = [
    "edf", "M", "k_low", "prior_sd", "lengthscale", "share", "share_lower", "share_upper", "p",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Summary:
    """The summary of a fit; prints as text, and as HTML in notebooks."""

    table: pd.DataFrame
    """
    A row for each effect (and predictor): ``edf``; ``M`` inducing values; ``k_low``, whether edf is
    close to M; ``prior_sd``, the prior standard deviation, NaN of what is not penalised;
    ``lengthscale``; ``share`` of the predictor's variance, with a 95 % credible interval; ``p``,
    the p-value of the hypothesis that the effect is zero. With terms that have a shape also
    ``shape`` and ``shape_p``: how often noise alone is as far from the shape as the estimate
    without it is.
    """
    terms: str
    """The model's terms."""
    family: str
    """The family's name."""
    parameters: dict[str, float]
    """The family's own parameters as learnt; cutpoints of ordered classes."""
    coefficients: pd.DataFrame
    """As :meth:`gpflow_gam.GAM.coefficients`, without terms of more than 16 levels."""
    num_rows: int
    """Rows of the fit."""
    dropped: int
    """Rows left out for missing values."""
    imputed: int
    """Missing values that were filled in."""
    edf: float
    """Effective degrees of freedom in all, the intercept's included."""
    deviance_explained: float | None
    """Against the null model; None where the family has no deviance."""
    dispersion: Dispersion | None
    """Pearson's, for families of counts."""
    autocorrelations: dict[Column, float]
    """
    Of neighbours' residuals: the correlation of randomised quantile residuals (Dunn & Smyth 1996)
    of rows next to each other along each smooth's column of which nearly all values differ. Where
    noise is independent it is about zero, or a little below.
    """
    elbo: float
    """The bound at the end with log-densities of priors, which depend on units of columns."""
    converged: bool
    """False if a limit of iterations or time ended the fit."""
    message: str
    """Why the fit ended."""
    seconds: float
    """Duration of the fit."""
    unpenalised: tuple[str, ...] = ()
    """Effects whose variance is large and fixed: ``linear``, ``factor`` without ``shrink``."""

    def to_frame(self) -> pd.DataFrame:
        """The table of effects."""
        return self.table.copy()

    def _header(self) -> list[tuple[str, str]]:
        explained = self.deviance_explained
        rows = f"{self.num_rows:,}" + (f" ({self.dropped:,} dropped)" if self.dropped else "")
        rows += f" ({self.imputed:,} values imputed)" if self.imputed else ""
        family = self.family
        if self.parameters:
            family += " (" + ", ".join(f"{k} {v:.4g}" for k, v in self.parameters.items()) + ")"
        neighbours = ", ".join(f"{c} {r:.2f}" for c, r in self.autocorrelations.items())
        scatter = []
        if self.dispersion is not None:
            value = f"{self.dispersion.value:.2f}"
            if self.dispersion.clear:
                times = f"{self.dispersion.factor:.1f} times too small"
                value += f": standard errors are {times}; {self.dispersion.remedy}"
            scatter = [("Pearson dispersion", value)]
        return [
            ("terms", self.terms),
            ("family", family),
            ("rows", rows),
            ("deviance explained", "none defined" if explained is None else f"{explained:.1%}"),
            *scatter,
            *([("residuals of neighbours", neighbours)] if neighbours else []),
            ("effective degrees of freedom", f"{self.edf:.1f}"),
            ("ELBO", f"{self.elbo:.2f}"),
            ("fit", f"{'converged' if self.converged else 'NOT CONVERGED'}: {self.message}"),
            ("time", f"{self.seconds:.1f} s"),
        ]

    def _rows(self) -> list[list[str]]:
        rows = []
        for name, row in self.table.iterrows():
            lengths = row["lengthscale"]
            rows.append(
                [
                    str(name) if not isinstance(name, tuple) else " | ".join(map(str, name)),
                    f"{row['edf']:.2f}",
                    f"{row['M']}{' *' if row['k_low'] else ''}",
                    f"{row['prior_sd']:.3g}" if np.isfinite(row["prior_sd"]) else "",
                    ", ".join(f"{v:.3g}" for v in lengths),
                    f"{row['share']:.3f} [{row['share_lower']:.3f}, {row['share_upper']:.3f}]",
                    f"{row['p']:.3f}" if row["p"] >= 1e-3 else "<.001",
                ]
            )
        return rows

    def __str__(self) -> str:
        header = as_text(self._header())
        effects = tabulate(self._rows(), _HEADER, disable_numparse=True)
        rows = self._coefficients()
        numbers = [tabulate(rows, _NUMBERS, disable_numparse=True)] if rows else []
        return "\n\n".join([header, effects, self._note(), *numbers, *self._more()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = as_html_columns(self._rows(), _HEADER)
        numbers = as_html_columns(self._coefficients(), _NUMBERS)
        notes = [f"<p>{html.escape(text)}</p>" for text in (self._note(), *self._more())]
        return f"{as_html(self._header())}{body}{notes[0]}{numbers}{''.join(notes[1:])}"

    def _note(self) -> str:
        few = "\n" + _FEW if self.table["k_low"].any() else ""
        wide = f"\nnot penalised: {', '.join(self.unpenalised)}." if self.unpenalised else ""
        return _NOTE + wide + few + self._shapes()

    def _shapes(self) -> str:
        """Lines on the effects that have a shape, with p-values of the shapes."""
        if "shape" not in self.table:
            return ""
        lines = []
        for name, row in self.table[self.table["shape"] != ""].iterrows():
            label = " | ".join(map(str, name)) if isinstance(name, tuple) else str(name)
            against = " THE DATA SPEAK AGAINST IT." if row["shape_p"] < UNLIKELY else ""
            lines.append(f"{label} is {row['shape']}: p {row['shape_p']:.3f}.{against}")
        return "\n".join(["", _SHAPES, *lines])

    def _coefficients(self) -> list[list[str]]:
        rows = []
        for row in self.coefficients.to_dict("records"):
            name = [row["term"], row.get("predictor", ""), row["level"]]
            label = " | ".join(str(part) for part in name if part not in (None, ""))
            rows.append([label] + [f"{row[column]:.4g}" for column in _NUMBERS[1:]])
        return rows

    def _more(self) -> list[str]:
        index = self.table.index
        names = dict.fromkeys(index.get_level_values(0) if index.nlevels > 1 else index)
        omitted = [
            n for n in names if n.startswith(_OF_LEVELS) and n not in set(self.coefficients["term"])
        ]
        return [f"of the levels of {', '.join(omitted)} see coefficients()."] if omitted else []


def _k_low(component: Component, dof: float) -> bool:
    """True if a function may need more inducing values (``k.check`` of R's mgcv)."""
    M = len(component.inducing)
    if component.form not in SMOOTH:
        return False
    nodes = len(component.nodes)
    if len(component.margins) == 1:
        nodes = len(component.margins[0].nodes)
    # so many stand for more values than there are nodes
    complete = 0 < nodes <= M + 1 and nodes < NUM_NODES.get(len(component.margins), 150)
    return not complete and dof > _CLOSE * M


def _scales(fit: FittedGAM, component: Component) -> tuple[float, tuple[float, ...]]:
    """Prior standard deviation, straight part and deviation together, and lengthscales."""
    parts = parts_of(fit, component)
    if not parts:
        return float("nan"), ()
    # a level is no part of how a function varies
    varying = [part for part in parts if part.name != "level"]
    total = sum(part.unit * float(fit.value(part.variance)) for part in varying)
    found = lengthscale_units(fit.model.kernel[component.name])
    each = [unit * np.ravel(fit.value(p)) for p, unit in found]
    return float(np.sqrt(total)), tuple(np.concatenate([*each, []]).tolist())


class Summaries(Inspected):
    """Summaries of a fitted GAM."""

    @one_blas_thread()
    def summary(self) -> Summary:
        """A table of the terms and the fit as a whole; prints as text, and as HTML in notebooks."""
        fit = self.fitted
        spec = fit.spec
        components = spec.effects
        shares, tests = variance_shares(fit), self.anova()
        rows: list[dict[str, Any]] = []
        for c, component in enumerate(components):
            sd, lengths = _scales(fit, component)
            for i in component.predictors_of(fit.num_predictors):
                lower, upper = np.quantile(shares[:, c, i], [0.025, 0.975])
                edf, p = tests[["edf", "p"]].iloc[len(rows)]
                row = {
                    "edf": edf,
                    "M": len(component.inducing),
                    "k_low": _k_low(component, edf),
                    "prior_sd": sd * fit.units[0][i],
                    "lengthscale": lengths,
                    "share": shares[:, c, i].mean(),
                    "share_lower": lower,
                    "share_upper": upper,
                    "p": p,
                }
                if fit.shaped is not None:
                    tail = fit.shape_tail(component.name, i) if component.shape else np.nan
                    row |= {"shape": component.shape, "shape_p": tail}
                rows.append(row)
        columns = [*_COLUMNS, *([] if fit.shaped is None else ["shape", "shape_p"])]
        discrepancies = fit.discrepancies()
        deviance = discrepancies.deviance
        result = fit.result
        return Summary(
            pd.DataFrame(rows, index=tests.index, columns=columns),
            repr(spec.terms),
            spec.family.name,
            spec.family.parameters(fit.likelihood, spec.levels),
            coefficients(fit, most=_SHOWN),
            fit.number,
            fit.dropped,
            sum(fill.count for fill in spec.fills),
            total_dof(fit),
            None if deviance is None else 1.0 - deviance[0] / deviance[1],
            dispersion(fit, discrepancies),
            autocorrelations(fit),
            result.elbo,
            result.converged,
            result.message,
            result.seconds,
            tuple(c.name for c in components if not c.shrink),
        )

    def anova(self) -> pd.DataFrame:
        """
        A test of each term, of the hypothesis that its effect is zero (``anova`` of R's mgcv).

        Lines and levels have Wald's test, of all levels together; a random effect, whose variance
        is then at its boundary, that of Wood 2013 (Biometrika 100:1005); a smooth one with the
        reference degrees of freedom of Wood 2013 (Biometrika 100:221). The statistic is
        ``m' S^-1 m`` of the effect's posterior mean and covariance, under the hypothesis a weighted
        sum of chi-squares, over the estimated variance of Gaussian noise, whose tail is computed to
        all digits.
        :func:`gpflow_gam.anova_test` compares two GAMs.

        :return: a row an effect (and predictor): ``edf``, the effective degrees of freedom;
            ``ref_df``, the statistic's expectation where the effect is zero; ``statistic``; ``p``.
        """
        fit = self.fitted
        mode, dof, rows, labels = _mode(fit), residual_dof(fit), [], []
        for component in fit.spec.effects:
            edf, forms = effective_dof(fit, component), _forms(fit, [component], mode)
            for i in component.predictors_of(fit.num_predictors):
                rows.append((edf[i], *_test([forms[i]], dof)))
                labels.append((component.name, fit.spec.predictor_names[i]))
        both = pd.MultiIndex.from_tuples(labels, names=["effect", "predictor"])
        index = both if fit.num_predictors > 1 and rows else both.droplevel(1)
        return pd.DataFrame(rows, index=index, columns=["edf", "ref_df", "statistic", "p"])

    @one_blas_thread()
    def term_probabilities(self) -> pd.DataFrame:
        """
        Posterior probabilities that a smooth of one column is absent, a straight line, or curved.

        The three have a third each before the data are seen. Standard deviations of the straight
        part and of the deviation from it are half-Cauchy, of scale one in the predictor's natural
        unit (the response's standard deviation; one behind a link), if they are there: a spike and
        slab for each part, as Bach & Klein (2024, arXiv 2401.00840) have it. They are integrated
        out, and with them the lengthscale; all other hyperparameters are the fitted ones. Under
        other odds multiply the columns and divide by their sum.

        :return: columns ``absent``, ``straight`` and ``curved``, which add up to one; a row for
            each smooth of one column without ``shape`` and ``id``, and without a number for ``by``.
        :raises ValueError: the fit has no marginal likelihood.
        """
        fit = self.fitted
        if fit.solution is None:
            raise ValueError(
                "term_probabilities: a fit with this engine or variational= has no marginal "
                "likelihood; fit with the defaults."
            )
        rows = {}
        for component in fit.spec.effects:
            parts = parts_of(fit, component)
            shared = fit.spec.term(component.term).id is not None
            if [p.name for p in parts] == ["straight", "deviation"] and not (
                component.shape or shared
            ):
                (length,) = lengthscales_of(fit.model.kernel[component.name])
                evidence = _hypotheses(fit, fit.solution, parts, length)
                rows[component.name] = np.exp(evidence - logsumexp(evidence))
        return pd.DataFrame.from_dict(
            rows, orient="index", columns=["absent", "straight", "curved"]
        )

    def variance_components(self, level: float = 0.95) -> pd.DataFrame:
        """
        The learnt variances of effects, as lme4's ``VarCorr`` and mgcv's ``gam.vcomp`` give them.

        They maximise the marginal likelihood (REML). Each is a prior variance, in the squared unit
        of the predictor: of the effects of levels; of slopes, per unit of their column; of a
        smooth at a point, of its straight part over the data. A straight part is one coefficient,
        which says little of its own variance.

        Intervals are those of the profile of the marginal likelihood, with all other
        hyperparameters learnt anew at each value, as lme4's ``confint`` computes them. The lower
        limit is zero where the data do not tell an effect from none. For responses that are not
        Gaussian the marginal likelihood is that of the Gaussian approximation at the fit.

        :param level: probability of the intervals.
        :return: a row for each variance: ``term``, ``predictor`` where there are several, ``part``
            (``"straight"``, ``"deviation"`` or ``"level"`` of a term that has several),
            ``variance``, ``sd``, and ``lower`` and ``upper`` of the standard deviation. The last
            row is ``"residual"``, the noise, where the family has its variance. Intervals are NaN
            where the marginal likelihood did not choose the variance alone: with
            ``engine="iterncgp"`` and ``criterion="ncv"``, of terms with a shape, and of a residual
            behind a link.
        :raises ValueError: ``level`` is no probability.
        """
        fit = self.fitted
        check_level(level)
        # trial steps may end where numbers do
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            rows = list(_rows(fit, float(norm.ppf(0.5 + 0.5 * level))))
        columns = ["term", "predictor", "part", "variance", "sd", "lower", "upper"]
        table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))
        return table if fit.num_predictors > 1 else table.drop(columns="predictor")

    def inference_data(self) -> Any:
        """
        Chains of the hyperparameters after ``fit(data, posterior="mcmc")``.

        :return: an ``arviz.InferenceData``, for ``arviz.summary`` and its plots: variances and
            lengthscales by the names of their effects, and of a gaussian response the residual
            variance.
        :raises ValueError: the fit has no chains.
        :raises ImportError: arviz is not there.
        """
        fit = self.fitted
        solution = fit.solution
        if solution is None or solution.chains is None:
            raise ValueError("there are no chains: fit with posterior='mcmc'.")
        arviz = imported("arviz", "inference_data()", "'gpflow_gam[mcmc]'")
        names, units = {}, {}
        for component in fit.spec.components:
            for part in parts_of(fit, component):
                what = f"variance ({part.name})" if part.name else "variance"
                names[id(part.variance)] = f"{component.name} {what}"
            for parameter, unit in lengthscale_units(fit.model.kernel[component.name]):
                names[id(parameter)] = f"{component.name} lengthscale"
                units[id(parameter)] = unit
        for path, parameter in parameter_dict(fit.model.kernel).items():
            names.setdefault(id(parameter), path)
        chains, learnt = solution.chains, [solution.rounds.hyperparameters]
        if solution.bound is not None:
            names |= {id(p): "residual correlation" for p in solution.bound.noise.parameters}
            names[id(solution.bound.parameter)] = "residual variance"
            learnt.append(solution.bound.noise)
        draws, at, (C, S, _) = {}, 0, chains.coordinates.shape
        for some in learnt:
            rows = chains.coordinates[..., at : (at := at + len(some))].reshape(C * S, -1)
            values = [some.values(u) for u in rows]
            for key in map(id, some.parameters):
                drawn = units.get(key, 1.0) * np.array([each[key] for each in values])
                draws[names[key]] = drawn.reshape(C, S, *drawn.shape[1:])
        stats = {"lp": chains.log_density, "diverging": chains.diverged}
        groups: dict[str, Any] = {"posterior": draws, "sample_stats": stats}
        named = str(arviz.__version__).startswith("0.")  # since version 1 it takes them as one
        return arviz.from_dict(**groups) if named else arviz.from_dict(groups)
