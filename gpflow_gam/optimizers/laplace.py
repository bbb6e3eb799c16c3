"""Draws of hyperparameters around their optimum, and the posterior at each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import deepcopy
from scipy.stats import norm, qmc

from ..errors import NotPositiveDefinite
from ..frozen import frozen_copy
from ..kernels.fixed_inputs import FixedInputKernel
from ..models import AdditiveSGPR, AdditiveSVGP
from ..posteriors import InducingMoments
from ..posteriors.inducing import Block
from ..threads import SMALL, one_blas_thread
from .binned.evidence import GaussianPosterior
from .binned.shaped import ShapeCriterion
from .binned.solution import CollapsedBound, Solution
from .hyperparameters import Hyperparameters, differenced
from .minimizers import Loss, Traced, descend

_NUM_DRAWS = 32
_MAX_SD = 1.0
"""Deviation in a (logarithmic) hyperparameter up to which the objective is taken for a parabola."""
_TRIED = 2.0
"""How far from the optimum it is looked at where it is flatter."""
_FARTHEST_SD = 4.0
"""Where it is flat there, too, the draws go no further."""


def standard_normal(dimension: int) -> AnyNDArray:
    """Points [32, K] of a normal distribution, in pairs of opposite ones."""
    uniform = qmc.Sobol(dimension, seed=0).random(_NUM_DRAWS // 2)
    z = norm.ppf(np.clip(uniform, 1e-3, 1.0 - 1e-3))
    points: AnyNDArray = np.concatenate([z, -z])
    return points


_MAX_STEPS, _TOLERANCE = 60, 1e-8
"""Of the search for the centre of draws."""


def centre_of_draws(
    loss: Loss,
    start: AnyNDArray,
    slopes: AnyNDArray,
    metric: Callable[[AnyNDArray], AnyNDArray | None] = lambda _: None,
) -> AnyNDArray:
    """
    The coordinates [K] around which hyperparameters are drawn.

    The fitted ones, where the density of a variance is highest, may have variances of zero; the
    density of their logarithms with a prior that is flat in standard deviations is highest where
    data begin to tell an effect from none.

    Shapes: start and slopes [K].
    """
    if not slopes.any():
        return start

    def tilted(u: AnyNDArray) -> tuple[float, AnyNDArray]:
        value, gradient = loss(u)
        return value - float(slopes @ u), gradient - slopes

    try:
        return descend(tilted, start, _MAX_STEPS, _TOLERANCE, None, metric=metric)[0]
    except NotPositiveDefinite:
        return start


class Steps:
    """
    Steps from an optimum as far as the objective lets hyperparameters go.

    Where it is a parabola they are normal (Laplace). The variance of an effect that has vanished is
    another matter: towards zero nothing changes, and upwards it is the data that say how large the
    effect may be after all. There, the deviation on either side is that of the parabola through
    what the objective comes to further on (as Rue, Martino & Chopin 2009, section 6.5, have it).

    Shapes: optimum [K], hessian [K, K].
    """

    def __init__(
        self, value: Callable[[AnyNDArray], float], optimum: AnyNDArray, hessian: AnyNDArray
    ) -> None:
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

    def __call__(self, point: AnyNDArray) -> AnyNDArray:
        """The step [K] of a standard normal point [K]."""
        step = self._factor @ point
        return step * np.where(step > 0.0, self._up, self._down)


def _factor(hessian: AnyNDArray) -> AnyNDArray:
    """
    The symmetric square root of the inverse of a Hessian.

    It alone does not hang on which eigenvectors are taken of eigenvalues that are nearly equal, as
    those of several effects that have vanished are.
    """
    values, vectors = np.linalg.eigh(hessian)
    sd = np.minimum(1.0 / np.sqrt(np.maximum(values, 1e-12)), _MAX_SD)
    factor: AnyNDArray = (vectors * sd) @ vectors.T
    return factor


class HyperparameterDraw:
    """A posterior at other hyperparameters than the fitted ones."""

    def __init__(
        self,
        moments: InducingMoments,
        likelihood: Likelihood | Callable[[], Likelihood],
        shares_kernel: bool = True,
    ) -> None:
        self.moments = moments
        self.shares_kernel = shares_kernel
        self._make = likelihood

    def tangents(self, blocks: Sequence[Block]) -> list[FixedInputKernel]:
        """The matrices of components at points, for moments that share no kernel with others."""
        return [self.moments.tangents(name, X) for name, X in blocks]

    @functools.cached_property
    def likelihood(self) -> Likelihood:
        """The likelihood at the draw."""
        return self._make if isinstance(self._make, Likelihood) else self._make()


def draw_hyperparameters(model: GPModel) -> list[HyperparameterDraw]:
    """
    The posterior of the inducing values of an AdditiveSGPR at draws of its hyperparameters.

    Hyperparameters are normal in the coordinates in which they are optimised, with the objective's
    curvature at its optimum (Laplace): 32 draws, in pairs of opposite ones. A draw at which kernel
    matrices do not factorise is moved towards the optimum. Empty for other models, and where
    nothing is trainable.
    """
    if not isinstance(model, AdditiveSGPR) or not model.trainable_variables:
        return []
    coordinates = _Coordinates(model.trainable_variables)
    learnt = Hyperparameters(model.trainable_parameters)
    u = learnt.get()
    raised, slopes = (
        coordinates.vector(
            {
                p.unconstrained_variable.ref(): own
                for p, own in zip(learnt.parameters, learnt.by_parameter(values))
            }
        )
        for values in (learnt.off_zero(u) - u, learnt.to_uniform_sd())
    )
    fitted = coordinates.get()
    try:
        loss = model.training_loss_closure(compile=False)
        optimum, steps = _steps_of(loss, coordinates, fitted + raised, slopes)
        draws = []
        for point in standard_normal(len(optimum)):
            moments = _moments_towards(model, coordinates, optimum, steps(point))
            draws.append(HyperparameterDraw(moments, deepcopy(model.likelihood), False))
    finally:
        coordinates.set(fitted)
    return draws


def _moments_towards(
    model: AdditiveSGPR, coordinates: _Coordinates, optimum: AnyNDArray, step: AnyNDArray
) -> InducingMoments:
    """
    The moments a step from the optimum, or as far on as they can be computed.

    Where a component has vanished its lengthscale says nothing, and may be where numbers end.
    """
    for share in (1.0, 0.5, 0.25, 0.125):
        coordinates.set(optimum + share * step)
        try:
            return _frozen_moments(model)
        except tf.errors.InvalidArgumentError:
            continue
    coordinates.set(optimum)
    return _frozen_moments(model)


def _frozen_moments(model: AdditiveSGPR) -> InducingMoments:
    """The moments at the hyperparameters that the model has now, which are about to change."""
    q = model.posterior(PrecomputeCacheType.NOCACHE).q()
    return InducingMoments.of_gaussian(deepcopy(model.kernel), model.inducing_variable, q)


class _Coordinates:
    """Several variables as one vector."""

    def __init__(self, variables: Sequence[tf.Variable]) -> None:
        self.variables = variables
        self.sizes = [int(tf.size(v)) for v in variables]

    def get(self) -> AnyNDArray:
        return np.concatenate([v.numpy().ravel() for v in self.variables])

    def vector(self, values: Mapping[Any, AnyNDArray]) -> AnyNDArray:
        """Values by the variables' references, zero where there is none."""
        zeros = {v.ref(): np.zeros(size) for v, size in zip(self.variables, self.sizes)}
        return np.concatenate([np.ravel(values.get(ref, zero)) for ref, zero in zeros.items()])

    def set(self, values: AnyNDArray) -> None:
        parts = np.split(values, np.cumsum(self.sizes)[:-1])
        for variable, part in zip(self.variables, parts):
            variable.assign(part.reshape(variable.shape))


def _steps_of(
    loss: Callable[[], tf.Tensor],
    coordinates: _Coordinates,
    start: AnyNDArray,
    slopes: AnyNDArray,
) -> tuple[AnyNDArray, Steps]:
    """The centre of draws and steps from there, of a loss in variables."""

    @Traced
    def traced() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = loss()
        gradients: list[tf.Tensor] = tape.gradient(
            value, coordinates.variables, unconnected_gradients="zero"
        )
        return value, gradients

    def at(values: AnyNDArray) -> tuple[float, AnyNDArray]:
        coordinates.set(values)
        try:
            value, gradients = traced()
        except tf.errors.InvalidArgumentError:
            raise NotPositiveDefinite from None
        if not np.isfinite(value):
            raise NotPositiveDefinite
        return float(value), np.concatenate([g.numpy().ravel() for g in gradients])

    centre = centre_of_draws(at, start, slopes)
    hessian = differenced(lambda u: at(u)[1], centre)
    return centre, Steps(lambda u: at(u)[0] - float(slopes @ u), centre, hessian)


def draw_solutions(
    model: AdditiveSVGP | AdditiveSGPR, solution: Solution
) -> list[HyperparameterDraw]:
    """
    The posterior at draws of the hyperparameters, from sums over rows, none of which is visited.

    As :func:`gpflow_gam.optimizers.laplace.draw_hyperparameters` has them of a model. The
    likelihood's parameters are drawn by themselves, at held marginals of the predictor.
    """
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        target: _Collapsed | _Sites | _Shaped
        if solution.bound is not None:
            target = _Collapsed(model, solution.bound, solution.optimum)
        else:
            assert isinstance(model, AdditiveSVGP)
            target = _Sites(model, solution)
        if not len(target.optimum):
            return []
        if solution.unshaped is not None and solution.hessian is None:
            target = _Shaped(target, ShapeCriterion(model, solution))
        elif solution.hessian is None:
            target.recentre()
        hessian = target.hessian() if solution.hessian is None else solution.hessian
        steps = Steps(target.value, target.optimum, hessian)
        return [target.draw(steps(point)) for point in standard_normal(len(target.optimum))]


class _Collapsed:
    """Gaussian data: the collapsed bound."""

    def __init__(
        self, model: AdditiveSGPR | AdditiveSVGP, bound: CollapsedBound, optimum: AnyNDArray
    ) -> None:
        self.model, self.bound, self.optimum = model, bound, optimum
        self._slopes = np.zeros(len(optimum))

    def recentre(self) -> None:
        """Move to where the density of the coordinates is highest."""
        bound, n = self.bound, len(self.bound.kernel)
        self._slopes[:n] = bound.kernel.to_uniform_sd()
        start = np.concatenate([bound.kernel.off_zero(self.optimum[:n]), self.optimum[n:]])
        self.optimum = centre_of_draws(bound.loss, start, self._slopes, bound.metric)

    def value(self, u: AnyNDArray) -> float:
        return self.bound.value(u) - float(self._slopes @ u)

    def hessian(self) -> AnyNDArray:
        return self.bound.hessian(self.optimum)

    def draw(self, step: AnyNDArray) -> HyperparameterDraw:
        u, q = _towards(self.bound.posterior, self.optimum, step)
        values = self.bound.rounds.values(u[: len(self.bound.kernel)])
        places = self.bound.noise_places
        rest = u[len(self.bound.kernel) :]
        return HyperparameterDraw(
            _moments_at(self.model, values, q), lambda: _with(self.model.likelihood, places, rest)
        )


class _Sites:
    """Other data: the evidence of the sites, and the likelihood at held marginals."""

    def __init__(self, model: AdditiveSVGP, solution: Solution) -> None:
        self.model, self.solution = model, solution
        self.rounds, self.optimum = solution.rounds, solution.optimum
        self.number = len(self.rounds.hyperparameters)
        self._slopes = np.zeros(self.number)

    def recentre(self) -> None:
        """Move to where the density of the coordinates is highest."""
        n, self._slopes = self.number, self.rounds.hyperparameters.to_uniform_sd()
        rounds, data = self.rounds, self.solution.data
        start = rounds.hyperparameters.off_zero(self.optimum[:n])
        own = centre_of_draws(
            rounds.loss(data), start, self._slopes, lambda u: rounds.metric(data, u)
        )
        self.optimum = np.concatenate([own, self.optimum[n:]])

    def value(self, u: AnyNDArray) -> float:
        """With the likelihood's parameters as they are."""
        own = u[: self.number]
        return self.rounds.value(self.solution.data, own) - float(self._slopes @ own)

    def hessian(self) -> AnyNDArray:
        result = np.zeros((len(self.optimum), len(self.optimum)))
        n = self.number
        if n:
            result[:n, :n] = self.rounds.hessian(self.solution.data, self.optimum[:n])
        if n < len(result):
            known = self.solution.curvature
            if known is None:
                known = self.solution.rows.sweep(
                    self.model.likelihood, self.solution.values, self.solution.q
                ).curvature
            prior = self.rounds.family.log_prior
            curvature = differenced(lambda phi: prior(phi)[1], self.optimum[n:])
            result[n:, n:] = -known - curvature
        return result

    def draw(self, step: AnyNDArray) -> HyperparameterDraw:
        n, rounds, data = self.number, self.rounds, self.solution.data
        u, q = _towards(
            lambda x: rounds.evidence.posterior(data, rounds.values(x)),
            self.optimum[:n],
            step[:n],
        )
        phi = self.optimum[n:] + step[n:]
        return HyperparameterDraw(
            _moments_at(self.model, rounds.values(u), q),
            lambda: _with(self.model.likelihood, rounds.family_places, phi),
        )


class _Shaped:
    """Components with a shape: beside what inequalities add to the evidence."""

    def __init__(self, free: _Collapsed | _Sites, criterion: ShapeCriterion) -> None:
        self._free, self._criterion = free, criterion
        self.optimum, self.draw = free.optimum, free.draw

    def value(self, u: AnyNDArray) -> float:
        return self._free.value(u) - self._criterion.gain(u)

    def hessian(self) -> AnyNDArray:
        return self._free.hessian() + self._criterion.hessian(self.optimum)


def _towards(
    posterior: Callable[[AnyNDArray], GaussianPosterior], optimum: AnyNDArray, step: AnyNDArray
) -> tuple[AnyNDArray, GaussianPosterior]:
    """A step from the optimum, or as far on as it can be computed, and the posterior there."""
    for share in (1.0, 0.5, 0.25, 0.125):
        try:
            return optimum + share * step, posterior(optimum + share * step)
        except NotPositiveDefinite:
            continue
    return optimum, posterior(optimum)


def _moments_at(
    model: AdditiveSVGP | AdditiveSGPR,
    values: Callable[[Parameter], AnyNDArray],
    q: GaussianPosterior,
) -> InducingMoments:
    return InducingMoments(
        model.kernel,
        model.inducing_variable,
        q.mean,
        q.covariance,
        values=values,
        roots=q.roots,
    )


def _with(likelihood: Likelihood, places: Sequence[int], u: AnyNDArray) -> Likelihood:
    """A copy of a likelihood with other values of the parameters at some places."""
    own = frozen_copy(likelihood)
    parameters = list(own.parameters)
    Hyperparameters([parameters[i] for i in places]).set(u)
    return own
