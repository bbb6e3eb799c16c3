"""Hyperparameters of components that have a shape, learnt under it."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import minimize

from ...errors import NotPositiveDefinite
from ...kernels.functional import parameters_of
from ...kernels.shaped import shaped_part
from ...kernels.shapes import Values
from ...kernels.tangents import KernelTangents
from ...models import AdditiveSGPR, AdditiveSVGP
from ...posteriors import InducingMoments
from ...posteriors.shaped import acting_nodes, constraint_evidence, shaped_components
from ..minimizers import FitResult, StopFit, Tracker
from .evidence import Evaluation, inverse
from .rounds import Rounds, StartError, settled_at
from .solution import Solution, assign_posterior

_TURNS = 2
"""Of searches and sites, at most."""
_FIRST, _LATER = 0.5, 0.2
"""Size of the simplex with which a search begins, in logarithms of hyperparameters."""
_CLOSE = 0.05
"""Size of the simplex with which it ends, and a move that asks for no other turn."""
_EVALUATIONS = 40
"""Of the criterion, for each hyperparameter of a component."""
_STEP = 0.4
"""Of second differences: which inequalities hold changes from point to point, and jumps with it."""


class ShapeCriterion:
    """
    What the evidence gains where the inequalities that hold the estimate are equalities.

    A function of any shape pays for freedom that one of this shape does not have: the evidence of
    the first prefers variances at which the second is too stiff. Hyperparameters under a shape are
    therefore those of the greatest evidence of what the inequalities leave free, with
    :func:`~gpflow_gam.posteriors.shaped.constraint_evidence` added (as the smoothing parameters of
    Pya & Wood 2015 go by the degrees of freedom of the constrained fit).
    """

    def __init__(self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> None:
        self._model, self._solution = model, solution
        self._rounds: Rounds = solution.rounds
        self._number = len(self._rounds.hyperparameters)
        self._tangents: dict[str, KernelTangents] = {}

    @functools.cached_property
    def places(self) -> list[list[int]]:
        """Of each component that has a shape, where its hyperparameters stand among all."""
        hyperparameters = self._rounds.hyperparameters
        every = [id(p) for p, _ in hyperparameters.moved(np.zeros(self._number), 0.0)]
        found = []
        for kernel in self._model.kernel.components.values():
            if shaped_part(kernel) is not None:
                own = {id(p) for p in parameters_of(kernel)}
                found.append([i for i, key in enumerate(every) if key in own])
        return [places for places in found if places]

    def gain(self, x: AnyNDArray) -> float:
        """What is added to the evidence at coordinates [K], in nats."""
        return self._gain(*self._evaluated(x))

    def value(self, x: AnyNDArray) -> float:
        """
        The evidence and the gain at coordinates [K], and what priors of kernels' hyperparameters
        add, but for what is the same wherever noise is.
        """
        evaluation, values = self._evaluated(x)
        prior, _ = self._rounds.hyperparameters.log_prior(x[: self._number])
        return evaluation.value + prior + self._gain(evaluation, values)

    def _evaluated(self, x: AnyNDArray) -> tuple[Evaluation, Values]:
        solution, evidence = self._solution, self._rounds.evidence
        noise = 1.0 if solution.bound is None else solution.bound.split(x)[1]
        values = self._rounds.values(x[: self._number])
        return Evaluation(evidence, solution.data, values, 1.0 / noise), values

    def _gain(self, evaluation: Evaluation, values: Values) -> float:
        mean = evaluation.mean
        covariance = np.stack([inverse(factor) for factor in evaluation.factors])
        moments = InducingMoments(
            self._model.kernel,
            self._model.inducing_variable,
            mean,
            covariance,
            values=values,
            roots=[block.root for block in evaluation.blocks],
        )
        if not self._tangents:
            nodes = acting_nodes(moments)
            self._tangents = {name: moments.tangents(name, X) for name, X in nodes.items()}
        rows = shaped_components(moments, self._tangents)
        total = 0.0
        for i in range(mean.shape[1]):
            own = [A for name, A in rows.items() if moments.entering([name])[0, i]]
            if own:
                try:
                    total += constraint_evidence(mean[:, i], covariance[i], np.concatenate(own))
                except np.linalg.LinAlgError:
                    raise NotPositiveDefinite from None
        return total

    def hessian(self, x: AnyNDArray) -> AnyNDArray:
        """Second derivatives of minus the gain, in coordinates of shaped components, [K, K]."""
        which = [i for own in self.places for i in own]
        steps = _STEP * np.eye(len(x))
        found = np.zeros((len(x), len(x)))
        here = self.gain(x)
        up = {i: self.gain(x + steps[i]) for i in which}
        down = {i: self.gain(x - steps[i]) for i in which}
        for own in self.places:
            for i in own:
                found[i, i] = up[i] + down[i] - 2.0 * here
                for j in own:
                    if j < i:
                        both = self.gain(x + steps[i] + steps[j])
                        neither = self.gain(x - steps[i] - steps[j])
                        along = both + neither - 2.0 * here - up[i] - down[i] - up[j] - down[j]
                        found[i, j] = found[j, i] = 0.5 * (along + 2.0 * here)
        return -found / _STEP**2


def has_shapes(model: AdditiveSGPR | AdditiveSVGP) -> bool:
    """Whether a component has one."""
    return any(shaped_part(kernel) is not None for kernel in model.kernel.components.values())


def learn_under_shapes(
    model: AdditiveSGPR | AdditiveSVGP,
    result: FitResult,
    solution: Solution,
    tracker: Tracker,
    tolerance: float,
) -> tuple[FitResult, Solution]:
    """
    Go on from a fit of functions of any shape to hyperparameters that suit the shapes.

    Those of components without a shape, of noise and of the likelihood stay.
    """
    solution = dataclasses.replace(solution, unshaped=solution.found)
    if not ShapeCriterion(model, solution).places or result.ended:
        return result, solution
    elbo = result.elbo
    try:
        for turn in range(_TURNS):
            criterion = ShapeCriterion(model, solution)
            size = _LATER if turn else _FIRST
            x = solution.rows.communicator.agreed(
                _searched(criterion, solution, size, tracker, tolerance)
            )
            moved = float(np.max(np.abs(x - solution.found)))
            if moved == 0.0:
                break
            new = _at(model, solution, x, tolerance)
            if new is None or _gained(model, solution, elbo, new) < -tolerance:
                _put_back(model, solution)  # sites have settled where nothing is gained
                break
            solution, elbo = new
            if solution.bound is not None or moved < _CLOSE:
                break
    except StopFit as stop:
        result = dataclasses.replace(result, converged=False, message=stop.message, ended=True)
    except KeyboardInterrupt:
        message = tracker.interrupted()
        _put_back(model, solution)
        result = dataclasses.replace(result, converged=False, message=message, ended=True)
    return dataclasses.replace(result, elbo=elbo, seconds=tracker.seconds), solution


def _searched(
    criterion: ShapeCriterion,
    solution: Solution,
    size: float,
    tracker: Tracker,
    tolerance: float,
) -> AnyNDArray:
    """
    Better coordinates [K] of shaped components, one component after the other.

    By Nelder & Mead's simplices, as the criterion jumps a little where another inequality holds.
    """
    best = np.array(solution.found)
    for own in criterion.places:

        def value(part: AnyNDArray, own: list[int] = own) -> float:
            tracker.check()
            x = np.array(best)
            x[own] = part
            try:
                found = -criterion.value(x)
            except NotPositiveDefinite:
                return np.inf
            return found if np.isfinite(found) else np.inf

        begin = best[own]
        outcome = minimize(
            value,
            begin,
            method="Nelder-Mead",
            options={
                "initial_simplex": np.concatenate([begin[None], begin + size * np.eye(len(own))]),
                "maxfev": _EVALUATIONS * len(own),
                "xatol": _CLOSE,
                "fatol": 1e-2,
            },
        )
        if outcome.fun < value(begin) - tolerance:  # where nothing holds it, nothing moves
            best[own] = outcome.x
    return best


def _at(
    model: AdditiveSGPR | AdditiveSVGP, solution: Solution, x: AnyNDArray, tolerance: float
) -> tuple[Solution, float] | None:
    """
    What there is at other coordinates, which the model is set to, and the ELBO there.

    None where sites do not settle.
    """
    unshaped, bound = solution.unshaped, solution.bound
    if bound is not None:
        bound.set(x)
        found = dataclasses.replace(Solution.of_bound(bound, x), unshaped=unshaped)
        if isinstance(model, AdditiveSVGP):
            assign_posterior(model, found.q)
        return found, -bound.value(x)
    assert isinstance(model, AdditiveSVGP)
    rounds = solution.rounds
    try:
        seen = settled_at(model, rounds, x, solution.data, tolerance)
    except (NotPositiveDefinite, StartError):
        return None
    u, phi = np.split(x, [len(rounds.hyperparameters)])
    assign_posterior(model, seen.q)
    prior = rounds.hyperparameters.log_prior(u)[0] + rounds.family.log_prior(phi)[0]
    curvature = solution.curvature
    if len(phi):
        curvature = rounds.rows.sweep(model.likelihood, rounds.values(u), seen.q).curvature
    found = dataclasses.replace(
        solution,
        data=seen.state.data,
        q=seen.q,
        values=rounds.values(u),
        found=x,
        curvature=curvature,
    )
    return found, seen.elbo + prior


def _gained(
    model: AdditiveSGPR | AdditiveSVGP, old: Solution, elbo: float, new: tuple[Solution, float]
) -> float:
    """By how much a solution is better under its shapes than an old one, each with its ELBO."""
    before, after = (
        value + ShapeCriterion(model, solution).gain(solution.found)
        for solution, value in ((old, elbo), new)
    )
    return float(old.rows.communicator.agreed(after - before))


def _put_back(model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> None:
    """Set the model to what a solution has."""
    if solution.bound is not None:
        solution.bound.set(solution.found)
    else:
        u, phi = np.split(solution.found, [len(solution.rounds.hyperparameters)])
        solution.rounds.hyperparameters.set(u)
        solution.rounds.family.set(phi)
    if isinstance(model, AdditiveSVGP):
        assign_posterior(model, solution.q)
