"""Draws of hyperparameters around their optimum, and the posterior at each."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import deepcopy
from scipy.stats import norm, qmc

from ..bijectors import frozen_copy
from ..errors import NotPositiveDefinite
from ..kernels.correlation import Values
from ..models import AdditiveSGPR, AdditiveSVGP
from ..posteriors.inducing import InducingMoments
from ..threads import SMALL, one_blas_thread
from .binned.evidence import GaussianPosterior, PseudoData
from .binned.hyperparameters import Hyperparameters
from .binned.solution import Centre, Chains, Drawn, ShapeCriterion, Solution
from .minimizers import LBFGS, Loss, descend, differenced

Posterior = TypeVar("Posterior")
Further = Callable[[AnyNDArray], AnyNDArray]

_NUM_DRAWS, _TURNS, _FROM_CHAINS = 32, 10, 64
_SETTLED, _FINE = 1.0, 0.01  # tolerances in nats: of one step, which leads far closer; of ELBOs
_FEW_ROWS, _MOST_APART = 500, 0.05  # nats between posteriors with and without negative weights
_MAX_SD = 1.0  # deviation of a (logarithmic) hyperparameter up to which there is a parabola
_TRIED = 2.0  # how far from the optimum it is looked at where it is flatter
_MOST_CENTRES, _CENTRED = 3, 0.1  # of draws, one from the sites at another, and how near they end
_FARTHEST_SD = 4.0  # where it is flat there, too, the draws go no further


def _standard_normal(dimension: int) -> AnyNDArray:
    """Points [32, K] of a normal distribution, in pairs of opposite ones."""
    # Of a Sobol sequence only signs and ranks count. In turns each coordinate takes the quantiles
    # of a normal one, and the points the nearest of covariance identity (a projection with its
    # trace beyond 16 coordinates): what is linear in them has its exact variance, and what depends
    # on a single one nearly its own.
    half = _NUM_DRAWS // 2
    quantiles = norm.ppf(0.5 + 0.5 * (np.arange(half) + 0.5) / half)
    z = qmc.Sobol(dimension, seed=0).random(half) - 0.5
    for _ in range(_TURNS):
        ranks = np.argsort(np.argsort(np.abs(z), axis=0), axis=0)
        u, _, v = np.linalg.svd(np.copysign(quantiles[ranks], z), full_matrices=False)
        z = np.sqrt(max(half, dimension)) * u @ v
    return np.concatenate([z, -z])


_MAX_STEPS, _TOLERANCE = 60, 1e-6  # of the search for the centre of draws: a hundredth counts


def centre_of_draws(
    loss: Loss,
    start: AnyNDArray,
    slopes: AnyNDArray,
    metric: Callable[[AnyNDArray], AnyNDArray | None] = lambda _: None,
    hessian: Callable[[AnyNDArray], AnyNDArray | None] | None = None,
) -> AnyNDArray:
    """The coordinates [K] around which hyperparameters are drawn."""
    # Fitted variances may be zero; the density of their logarithms, under a prior flat in standard
    # deviations (slopes), is highest where data begin to tell an effect from none.
    if not slopes.any():
        return start

    def tilted(u: AnyNDArray) -> tuple[float, AnyNDArray]:
        value, gradient = loss(u)
        return value - float(slopes @ u), gradient - slopes

    try:
        return descend(tilted, start, _MAX_STEPS, _TOLERANCE, None, metric=metric, hessian=hessian)[
            0
        ]
    except NotPositiveDefinite:
        return start


class Steps:
    """Steps from an optimum as far as the objective lets hyperparameters go."""

    # Where it is a parabola they are normal (Laplace). The variance of a vanished effect changes
    # nothing towards zero, and upwards as data tell: its deviation on either side is that of the
    # parabola through what the objective comes to further on (as Rue, Martino & Chopin 2009,
    # section 6.5, have it).

    def __init__(
        self, value: Callable[[AnyNDArray], float], optimum: AnyNDArray, hessian: AnyNDArray
    ) -> None:
        # the first coordinates of points are the most even: the flattest's, whichever came first
        self._order = np.argsort(np.sum(np.abs(hessian), axis=1))
        self._factor = _factor(hessian)
        sd = np.sqrt(np.sum(np.square(self._factor), axis=1))
        self._up, self._down = np.ones(len(optimum)), np.ones(len(optimum))
        flat = np.flatnonzero(np.diag(hessian) < 1.0 / _MAX_SD**2)
        here = value(optimum) if len(flat) else 0.0
        for i in flat:
            for reach, step in ((self._up, _TRIED), (self._down, -_TRIED)):
                there = optimum.copy()
                there[i] += step
                try:
                    risen = max(value(there) - here, 0.5 * (_TRIED / _FARTHEST_SD) ** 2)
                except NotPositiveDefinite:
                    continue
                reach[i] = _TRIED / np.sqrt(2.0 * risen) / sd[i]

    def __iter__(self) -> Iterator[AnyNDArray]:
        points = _standard_normal(len(self._order))
        points[:, self._order] = points.copy()
        return map(self, points)

    def __call__(self, point: AnyNDArray) -> AnyNDArray:
        """The step [K] of a standard normal point [K]."""
        step = self._factor @ point
        return step * np.where(step > 0.0, self._up, self._down)


def _factor(hessian: AnyNDArray) -> AnyNDArray:
    """The symmetric root of a Hessian's inverse, which no choice of eigenvectors moves."""
    values, vectors = np.linalg.eigh(hessian)
    sd = np.minimum(1.0 / np.sqrt(np.maximum(values, 1e-12)), _MAX_SD)
    return (vectors * sd) @ vectors.T


@dataclasses.dataclass(eq=False)
class HyperparameterDraw:
    """A posterior at other hyperparameters than the fitted ones."""

    moments: InducingMoments
    make: Likelihood | Callable[[], Likelihood]
    coordinates: AnyNDArray = dataclasses.field(default_factory=lambda: np.zeros(0))  # [K]

    @functools.cached_property
    def likelihood(self) -> Likelihood:
        """The likelihood at the draw."""
        return self.make if isinstance(self.make, Likelihood) else self.make()


def draw_hyperparameters(model: GPModel) -> list[HyperparameterDraw]:
    """Posteriors of an AdditiveSGPR at 32 draws of its hyperparameters, in opposite pairs."""
    if not isinstance(model, AdditiveSGPR):
        return []
    # of the model: where inducing inputs are is the approximation's choice
    held = {id(p) for p in model.inducing_variable.parameters}
    free = [p for p in model.trainable_parameters if id(p) not in held]
    if not free:
        return []
    learnt = Hyperparameters(free)
    variables = [p.unconstrained_variable for p in learnt.parameters]
    loss = LBFGS(model.training_loss_closure(compile=False), variables)
    fitted, slopes = learnt.get(), learnt.to_uniform_sd()

    def moments(u: AnyNDArray) -> InducingMoments:
        learnt.set(u)
        try:
            q = model.posterior(PrecomputeCacheType.NOCACHE).q()
            return InducingMoments.of_gaussian(model.kernel, model.inducing_variable, q)
        except tf.errors.InvalidArgumentError:
            raise NotPositiveDefinite from None

    def draw(step: AnyNDArray) -> HyperparameterDraw:
        _, there = _towards(moments, further, step)
        return HyperparameterDraw(there, deepcopy(model.likelihood))

    def value(step: AnyNDArray) -> float:
        u = further(step)
        return loss(u)[0] - float(slopes @ u)

    def slope(step: AnyNDArray) -> AnyNDArray:
        u = further(step)
        return loss(u)[1] * learnt.stretch(u)

    try:
        centre = centre_of_draws(loss, learnt.off_zero(fitted), slopes)
        further, none = functools.partial(learnt.further, centre), np.zeros(len(centre))
        steps = Steps(value, none, differenced(slope, none))
        return [draw(step) for step in steps]
    finally:
        learnt.set(fitted)


def draw_solutions(
    model: AdditiveSVGP | AdditiveSGPR, solution: Solution
) -> list[HyperparameterDraw]:
    """Posteriors at draws of hyperparameters, from sums; the likelihood's are independent."""
    # of chains where there are some, and else of a Laplace approximation
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        target = Target(model, solution)
        if not len(target.optimum):
            return []
        if solution.centre is not None and solution.centre.draws:
            return [target.drawn(*drawn) for drawn in solution.centre.draws]
        if solution.chains is not None:
            return target.draw_from(solution.chains.coordinates)
        if solution.unshaped is not None and solution.hessian is None:
            target.criterion = ShapeCriterion(
                model, dataclasses.replace(solution, data=target.data)
            )
        elif solution.hessian is None:
            target.recentre()
        hessian = target.hessian() if solution.hessian is None else solution.hessian
        unit = target.learnt.stretch(target.optimum)
        value, none = (lambda step: target.value(target.further(step))), np.zeros(len(unit))
        steps = Steps(value, none, hessian * np.outer(unit, unit))
        return [target.draw(target.further, step) for step in steps]


def with_centre(model: AdditiveSVGP | AdditiveSGPR, solution: Solution) -> Solution:
    """With all that draws of hyperparameters ask of rows."""
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        target = Target(model, solution)
        if not target.reads:
            return solution
        optimum = target.data
        target.recentre()
        draws = draw_solutions(model, solution) if target.settles else []
        return dataclasses.replace(solution, centre=target.kept(optimum, draws))


class Target:
    """The collapsed bound, or evidence of sites, at which the likelihood's parameters are held."""

    def __init__(self, model: AdditiveSVGP | AdditiveSGPR, solution: Solution) -> None:
        self._model, self._solution, self.optimum = model, solution, solution.optimum
        self.criterion: ShapeCriterion | None = None  # what shapes add to the evidence
        bound, rounds = solution.bound, solution.rounds
        self.data = solution.trusted(model.likelihood)
        self._signed = None if self.data is solution.data else solution.data
        self.reads = self._signed is not None and solution.centre is None  # rows, for new sites
        self.settles = self.reads and rounds.rows.number <= _FEW_ROWS  # at every draw
        parameters = *rounds.hyperparameters.parameters, *rounds.family.parameters
        self.learnt = Hyperparameters(parameters)
        self._slopes = np.zeros(len(self.optimum))
        self._kernels = len(rounds.hyperparameters)
        self.loss: Loss
        if bound is not None:
            self.number = len(self.optimum)
            self.loss, self._metric = bound.loss, bound.metric
            self._second = bound.hessian
        else:
            self.number = self._kernels
            self._hold(self.data)

    def _hold(self, data: PseudoData) -> None:
        """Take the evidence of other sums."""
        self.data, rounds = data, self._solution.rounds
        self.loss = rounds.loss(data)
        self._metric = functools.partial(rounds.metric, data)
        self._second = functools.partial(rounds.hessian, data)

    def at(self, u: AnyNDArray) -> tuple[GaussianPosterior, Values]:
        """The posterior at coordinates."""
        # Sites are held. If some have negative weights they are found anew where rows are few, and
        # else the signs are, where they make no difference.
        values, data, scale = self._solution.parameters(u)
        rounds = self._solution.rounds
        if self.settles:
            return rounds.settled_at(u[: self.number], self.data, _SETTLED).q, values
        data = data if self._solution.bound is not None else self.data
        q = rounds.evidence.posterior(data, values, scale)
        if self._signed is not None:
            with contextlib.suppress(NotPositiveDefinite):
                signed = rounds.evidence.posterior(self._signed, values)
                q = signed if q.kl_to(signed) < _MOST_APART else q
        return q, values

    def exact(self, u: AnyNDArray) -> float:
        """Minus the ELBO, of sites found anew, and the log-densities of priors at coordinates."""
        rounds = self._solution.rounds
        now = rounds.settled_at(u, self.data, _FINE)
        return -(now.elbo + rounds.hyperparameters.log_prior(u)[0])

    def recentre(self) -> None:
        """Move to where the density of the coordinates is highest."""
        rounds, n, known = self._solution.rounds, self._kernels, self._solution.centre
        self._slopes[:n] = rounds.hyperparameters.to_uniform_sd()
        if known is not None:
            self.optimum, self._signed = known.coordinates, known.signed
            self._hold(known.absolute)
            return
        off_zero = rounds.hyperparameters.off_zero(self.optimum[:n])
        self.optimum = np.concatenate([off_zero, self.optimum[n:]])
        if not self.reads:
            self._climb()
            return
        for _ in range(_MOST_CENTRES):
            before = self.optimum
            self._climb()
            if self.settles:
                self._shorten(before)
            with contextlib.suppress(NotPositiveDefinite):
                q, values = self.at(self.optimum)
                given = rounds.likelihood, values, q, False, None
                self._signed = rounds.rows.sweep(*given, negative=1.0).data
                self._hold(rounds.rows.sweep(*given, negative=-1.0).data)
            if np.max(np.abs(self.optimum - before)[:n], initial=0.0) < _CENTRED:
                break

    def _climb(self) -> None:
        m, slopes = self.number, self._slopes
        start = self.optimum[:m], slopes[:m]
        centre = centre_of_draws(self.loss, *start, self._metric, self._second)
        self.optimum = np.concatenate([centre, self.optimum[m:]])

    def _shorten(self, before: AnyNDArray) -> None:
        """Go back towards where the last step began until the ELBO of sites anew has risen."""
        m = self.number

        def height(u: AnyNDArray) -> float:
            try:
                return float(self._slopes @ u) - self.exact(u[:m])
            except NotPositiveDefinite:
                return -np.inf

        least, step = height(before), self.optimum - before
        for share in (1.0, 0.5, 0.25, 0.125, 0.0):
            self.optimum = before + share * step
            if share == 0.0 or height(self.optimum) >= least:
                break

    def further(self, step: AnyNDArray) -> AnyNDArray:
        """Coordinates a step from the optimum, of logarithms of what is positive."""
        return self.learnt.further(self.optimum, step)

    def value(self, u: AnyNDArray) -> float:
        gain = 0.0 if self.criterion is None else self.criterion.gain(u)
        return self.loss(u[: self.number])[0] - float(self._slopes @ u) - gain

    def hessian(self) -> AnyNDArray:
        free = self._free_hessian()
        return free if self.criterion is None else free + self.criterion.hessian(self.optimum)

    def _free_hessian(self) -> AnyNDArray:
        solution, n = self._solution, self._kernels
        if solution.bound is not None:
            return solution.bound.hessian(self.optimum)
        result = np.zeros((len(self.optimum), len(self.optimum)))
        if n:
            result[:n, :n] = solution.rounds.hessian(self.data, self.optimum[:n])
        if n < len(result):
            known = solution.curvature
            if known is None:
                known = solution.rows.sweep(
                    self._model.likelihood, solution.values, solution.q
                ).curvature
            prior = solution.rounds.family.log_prior
            curvature = differenced(lambda phi: prior(phi)[1], self.optimum[n:])
            result[n:, n:] = -known - curvature
        return result

    def factor(self) -> AnyNDArray:
        """Root [K, K] of the Laplace approximation's covariance, around a new centre."""
        self.recentre()
        unit = self.learnt.stretch(self.optimum)
        return unit[:, None] * _factor(self.hessian() * np.outer(unit, unit))

    def draw_from(self, chains: AnyNDArray) -> list[HyperparameterDraw]:
        """Posteriors at draws of chains [C, S, K], evenly spaced; what they hold is normal."""
        draws = chains.reshape(-1, chains.shape[2])
        draws = draws[np.linspace(0, len(draws) - 1, _FROM_CHAINS).astype(int)]
        if self.number < draws.shape[1]:
            held, steps = slice(self.number, None), np.zeros_like(draws)
            unit = self.learnt.stretch(self.optimum)[held]
            root = _factor(self._free_hessian()[held, held] * np.outer(unit, unit))
            z = qmc.MultivariateNormalQMC(np.zeros(len(root)), seed=0).random(len(draws))
            steps[:, held] = z @ root.T
            draws = self.learnt.further(draws, steps)
        return [self.draw(self.optimum.__add__, u - self.optimum) for u in draws]

    def draw(self, further: Further, step: AnyNDArray) -> HyperparameterDraw:
        u, (q, values) = _towards(self.at, further, step)
        kernels, held = u[: self.number], further(step)[self.number :]
        return self._made(np.concatenate([kernels, held]), q, values)

    def drawn(self, u: AnyNDArray, mean: AnyNDArray, covariance: AnyNDArray) -> HyperparameterDraw:
        """The draw that a file has."""
        values = self._solution.parameters(u)[0]
        q = self._solution.rounds.evidence.posterior(self.data, values)
        return self._made(u, dataclasses.replace(q, mean=mean, covariance=covariance), values)

    def kept(self, optimum: PseudoData, draws: Sequence[HyperparameterDraw]) -> Centre:
        """The centre where this is, beside sums at the optimum."""
        assert self._signed is not None
        kept = [Drawn(d.coordinates, d.moments.mean, d.moments.covariance) for d in draws]
        return Centre(self.optimum, self.data, self._signed, optimum, kept)

    def _made(self, u: AnyNDArray, q: GaussianPosterior, values: Values) -> HyperparameterDraw:
        def likelihood() -> Likelihood:
            copied, learnt = movable_likelihood(self._model, self._solution)
            learnt.set(u[self._kernels :])
            return copied

        given = self._model.kernel, self._model.inducing_variable, q.mean, q.covariance
        moments = InducingMoments(*given, values=values, roots=q.roots)
        return HyperparameterDraw(moments, likelihood, u)


def movable_likelihood(
    model: AdditiveSVGP | AdditiveSGPR, solution: Solution
) -> tuple[Likelihood, Hyperparameters]:
    """A copy of the likelihood, and those of its parameters that were learnt."""
    copied = frozen_copy(model.likelihood)
    parameters = list(copied.parameters)
    return copied, Hyperparameters([parameters[i] for i in solution.rounds.family_places])


def _towards(
    posterior: Callable[[AnyNDArray], Posterior], further: Further, step: AnyNDArray
) -> tuple[AnyNDArray, Posterior]:
    """Where a step leads, or as far on as it can be computed, and the posterior there."""
    for share in (1.0, 0.5, 0.25, 0.125):
        try:
            return further(share * step), posterior(further(share * step))
        except NotPositiveDefinite:
            continue
    return further(0.0 * step), posterior(further(0.0 * step))


Density = Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]

_CHAINS, _WARMUP, _KEPT = 4, 200, 250
_ACCEPTANCE = 0.8  # aimed at
_FIRST_STEP = 0.5  # in coordinates in which the Laplace approximation is a standard normal
_DEEPEST = 6  # trees of at most 2^6 steps


def sample_chains(model: AdditiveSGPR | AdditiveSVGP, solution: Solution, seed: int) -> Chains:
    """Chains of the coordinates of a solution, at its sums over rows."""
    # The density is the evidence times that of the priors. Of Gaussian data the noise is drawn with
    # the kernels' hyperparameters; of others the evidence is that of the fit's sites, which stand
    # for the likelihood, at its fitted parameters.
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        target = Target(model, solution)
        number = target.number
        bound, rounds = solution.bound, solution.rounds
        learnt = rounds.hyperparameters if bound is None else target.learnt
        factor = target.factor()[:number, :number]
        centre = target.optimum[:number]
        fixed = target.optimum[number:]
        slopes = learnt.to_uniform_sd()

        def density(z: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            u = centre + factor @ z
            try:
                value, gradient = target.loss(u)
            except NotPositiveDefinite:
                value, gradient = np.inf, np.zeros(number)
            if not np.isfinite(value):
                return np.array(-np.inf), np.zeros(number)
            jacobian, slope = learnt.log_jacobian(u)
            total = slopes @ u + jacobian - value
            return np.array(total), factor.T @ (slopes + slope - gradient)

        run, begin = _sampler(density, number), np.random.default_rng(seed)
        starts = 0.5 * begin.standard_normal((_CHAINS, number))
        seeds = tf.constant([(seed, c) for c in range(_CHAINS)], tf.int32)
        chains = [run(tf.constant(start), state) for start, state in zip(starts, seeds)]
    z = np.stack([draws for draws, _ in chains])
    log_density, diverged = (np.stack(part) for part in zip(*(traced for _, traced in chains)))
    u = centre + z @ factor.T
    held = np.broadcast_to(fixed, (*u.shape[:2], len(fixed)))
    return Chains(np.concatenate([u, held], axis=2), log_density, diverged)


def _sampler(density: Density, number: int) -> Any:
    """The no-U-turn sampler with a step that is learnt (Hoffman & Gelman 2014), compiled once."""

    @tf.custom_gradient
    def log_prob(z: tf.Tensor) -> tuple[tf.Tensor, Any]:
        value, gradient = tf.numpy_function(density, [z], [tf.float64, tf.float64])
        value.set_shape([])
        gradient.set_shape([number])
        return value, lambda upstream: upstream * gradient

    step, aim = np.float64(_FIRST_STEP), np.float64(_ACCEPTANCE)
    kernel = tfp.mcmc.NoUTurnSampler(log_prob, step, max_tree_depth=_DEEPEST)
    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(kernel, int(0.8 * _WARMUP), aim)

    def trace(_: Any, results: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return results.inner_results.target_log_prob, results.inner_results.has_divergence

    @tf.function(autograph=False)
    def run(start: tf.Tensor, seed: tf.Tensor) -> Any:
        return tfp.mcmc.sample_chain(
            _KEPT, start, kernel=kernel, num_burnin_steps=_WARMUP, trace_fn=trace, seed=seed
        )

    return run
