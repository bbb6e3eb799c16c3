"""Hyperparameters of components that have a shape, learnt under it."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import minimize

from ...errors import NotPositiveDefinite
from ...kernels.correlation import Values
from ...kernels.fixed_inputs import FixedInputKernel
from ...kernels.functional import parameters_of
from ...kernels.shaped import shaped_part
from ...models import AdditiveSGPR, AdditiveSVGP
from ...posteriors import InducingMoments
from ...posteriors.shaped import acting_nodes, constraint_evidence, shaped_components
from ..minimizers import FitResult, StopFit, Tracker
from .evidence import EvidenceEvaluation, inverse
from .solution import Solution

_TURNS = 2  # number of searches, each with sites at its result
_FIRST, _LATER = 0.5, 0.2
"""Size of the simplex at the start of a search, in logarithms of hyperparameters."""
_CLOSE = 0.05  # size of the simplex at its end, and a move after which no other search is needed
_EVALUATIONS = 40  # number of evaluations for each hyperparameter of a component
_STEP = 0.4  # of second differences: the criterion jumps where other inequalities become active


class ShapeCriterion:
    """
    Gain of the evidence where the active inequalities of shapes are equalities.

    A function without a shape pays for freedom that one with a shape lacks, so that its evidence
    prefers variances at which the other is too stiff. Under a shape :func:`constraint_evidence` is
    added (smoothing parameters of Pya & Wood 2015 go by the constrained degrees of freedom, too).
    """

    def __init__(self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> None:
        self._model, self._solution = model, solution
        self._rounds = solution.rounds
        self._number = len(self._rounds.hyperparameters)
        self._tangents: dict[str, FixedInputKernel] = {}

    @functools.cached_property
    def places(self) -> list[list[int]]:
        """Coordinates of the hyperparameters of each component with a shape."""
        hyperparameters = self._rounds.hyperparameters
        keys = [id(p) for p, _ in hyperparameters.moved(np.zeros(self._number), 0.0)]
        places = []
        for kernel in self._model.kernel.components.values():
            if shaped_part(kernel) is not None:
                parameters = {id(p) for p in parameters_of(kernel)}
                places.append([i for i, key in enumerate(keys) if key in parameters])
        return [place for place in places if place]

    def gain(self, x: AnyNDArray) -> float:
        """The gain at coordinates [K], in nats."""
        return self._gain(*self._evaluated(x))

    def value(self, x: AnyNDArray) -> float:
        """The sum of evidence, gain and log-prior at coordinates [K], without the noise's terms."""
        evaluation, values = self._evaluated(x)
        prior, _ = self._rounds.hyperparameters.log_prior(x[: self._number])
        return evaluation.value + prior + self._gain(evaluation, values)

    def _evaluated(self, x: AnyNDArray) -> tuple[EvidenceEvaluation, Values]:
        values, scale = self._solution.parameters(x)
        evidence, data = self._rounds.evidence, self._solution.data
        return EvidenceEvaluation(evidence, data, values, scale), values

    def _gain(self, evaluation: EvidenceEvaluation, values: Values) -> float:
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
            entering = [A for name, A in rows.items() if moments.entering([name])[0, i]]
            if entering:
                A = np.concatenate(entering)
                try:
                    total += constraint_evidence(mean[:, i], covariance[i], A)
                except np.linalg.LinAlgError:
                    raise NotPositiveDefinite from None
        return total

    def hessian(self, x: AnyNDArray) -> AnyNDArray:
        """Second derivatives of minus the gain, in coordinates of shaped components, [K, K]."""
        which = [i for place in self.places for i in place]
        steps = _STEP * np.eye(len(x))
        hessian = np.zeros((len(x), len(x)))
        here = self.gain(x)
        up = {i: self.gain(x + steps[i]) for i in which}
        down = {i: self.gain(x - steps[i]) for i in which}
        for place in self.places:
            for i in place:
                hessian[i, i] = up[i] + down[i] - 2.0 * here
                for j in place:
                    if j < i:
                        both = self.gain(x + steps[i] + steps[j])
                        neither = self.gain(x - steps[i] - steps[j])
                        along = both + neither - 2.0 * here - up[i] - down[i] - up[j] - down[j]
                        hessian[i, j] = hessian[j, i] = 0.5 * (along + 2.0 * here)
        return -hessian / _STEP**2


def has_shapes(model: AdditiveSGPR | AdditiveSVGP) -> bool:
    """True if a component of a model has a shape."""
    return any(shaped_part(kernel) is not None for kernel in model.kernel.components.values())


def learn_under_shapes(
    model: AdditiveSGPR | AdditiveSVGP,
    result: FitResult,
    solution: Solution,
    tracker: Tracker,
    tolerance: float,
) -> tuple[FitResult, Solution]:
    """Learn the hyperparameters of components with shapes under these; all others stay."""
    solution = dataclasses.replace(solution, unshaped=solution.optimum)
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
            moved = float(np.max(np.abs(x - solution.optimum)))
            if moved == 0.0:
                break
            new = solution.refitted(model, x, tolerance)
            if new is None or _gained(model, solution, elbo, new) < -tolerance:
                solution.assign(model)  # nothing was gained
                break
            solution, elbo = new
            if solution.bound is not None or moved < _CLOSE:
                break
    except StopFit as stop:
        result = dataclasses.replace(result, converged=False, message=stop.message, ended=True)
    except KeyboardInterrupt:
        message = tracker.interrupted()
        solution.assign(model)
        result = dataclasses.replace(result, converged=False, message=message, ended=True)
    return dataclasses.replace(result, elbo=elbo, seconds=tracker.seconds), solution


def _searched(
    criterion: ShapeCriterion,
    solution: Solution,
    size: float,
    tracker: Tracker,
    tolerance: float,
) -> AnyNDArray:
    """Better coordinates [K], component by component: Nelder & Mead's, as the criterion jumps."""
    best = np.array(solution.optimum)
    for place in criterion.places:

        def value(part: AnyNDArray, place: list[int] = place) -> float:
            tracker.check()
            x = np.array(best)
            x[place] = part
            try:
                loss = -criterion.value(x)
            except NotPositiveDefinite:
                return np.inf
            return loss if np.isfinite(loss) else np.inf

        begin = best[place]
        outcome = minimize(
            value,
            begin,
            method="Nelder-Mead",
            options={
                "initial_simplex": np.concatenate([begin[None], begin + size * np.eye(len(place))]),
                "maxfev": _EVALUATIONS * len(place),
                "xatol": _CLOSE,
                "fatol": 1e-2,
            },
        )
        if outcome.fun < value(begin) - tolerance:  # without active inequalities nothing moves
            best[place] = outcome.x
    return best


def _gained(
    model: AdditiveSGPR | AdditiveSVGP, old: Solution, elbo: float, new: tuple[Solution, float]
) -> float:
    """The gain of a solution under its shapes over an old one, each with its ELBO."""
    before, after = (
        value + ShapeCriterion(model, solution).gain(solution.optimum)
        for solution, value in ((old, elbo), new)
    )
    return float(old.rows.communicator.agreed(after - before))
