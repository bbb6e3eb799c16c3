"""Draws of hyperparameters around the optimum of a fit that is left as sums over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood

from ..errors import NotPositiveDefinite
from ..held import held
from ..models import AdditiveSGPR, AdditiveSVGP
from ..posteriors import InducingMoments
from ..threads import SMALL, one_blas_thread
from .binned.collapsed import CollapsedBound
from .binned.evidence import GaussianPosterior
from .binned.shaped import ShapeCriterion
from .binned.solution import Solution
from .hyperparameters import Hyperparameters, differenced
from .laplace import HyperparameterDraw
from .laplace_steps import Steps, centre_of_draws, standard_normal


def draw_solutions(
    model: AdditiveSVGP | AdditiveSGPR, solution: Solution
) -> list[HyperparameterDraw]:
    """
    The posterior at draws of the hyperparameters, from sums over rows, none of which is visited.

    As :func:`gpflow_gam.optimizers.laplace.draw_hyperparameters` has them of a model. The
    likelihood's parameters are drawn by themselves, at held marginals of the predictor.

    :param model: at its optimum; it stays as it is.
    :param solution: what its fit came to.
    """
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        target: _Collapsed | _Sites | _Shaped
        if solution.bound is not None:
            target = _Collapsed(model, solution.bound, solution.found)
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
        self.rounds, self.optimum = solution.rounds, solution.found
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
        found = np.zeros((len(self.optimum), len(self.optimum)))
        n = self.number
        if n:
            found[:n, :n] = self.rounds.hessian(self.solution.data, self.optimum[:n])
        if n < len(found):
            known = self.solution.curvature
            if known is None:
                known = self.solution.rows.sweep(
                    self.model.likelihood, self.solution.values, self.solution.q
                ).curvature
            prior = self.rounds.family.log_prior
            curvature = differenced(lambda phi: prior(phi)[1], self.optimum[n:])
            found[n:, n:] = -known - curvature
        return found

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
    """
    Components with a shape: beside what inequalities add to the evidence.

    :param free: without them.
    :param criterion: with them.
    """

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
    own = held(likelihood)
    parameters = list(own.parameters)
    Hyperparameters([parameters[i] for i in places]).set(u)
    return own
