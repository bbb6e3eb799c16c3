"""Passes over rows in turn with hyperparameters learnt from their sums."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import gpflow
import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ...covariances.jitter import relative_jitter
from ...errors import NotPositiveDefinite
from ...kernels.functional import parameters_of
from ...likelihoods import MeanLink, Quasi, unwrapped
from ...models import AdditiveSVGP
from ..hyperparameters import Hyperparameters, differenced, places_of
from ..minimizers import StopFit, Tracker, descend, other_optimum
from ..minimizers.descent import Loss
from .checkpoint import Record
from .evidence import (
    Evidence,
    GaussianPosterior,
    PseudoData,
    average_information,
    evidence_hessian,
)
from .passes import Rows, Sweep

_SLOW = 0.4
"""Factor by which a round shortens what is left, from which on it pays to go beyond its target."""
_BEYOND = 4.0
"""Furthest, against the way to the target."""


@dataclasses.dataclass
class Pace:
    """
    How far beyond its target a round should go.

    Near the fixed point what is left shrinks by the same factor each round, where components can
    stand in for each other by one that is near to one. Then every other round goes on to where a
    geometric series ends (Aitken); the ELBO decides whether that is kept.
    """

    last: float = 0.0
    """What the last round gained that went to its target, if the one before it did too."""
    rate: float = 0.0
    """Factor by which a round shortens what is left."""
    asked: float = 1.0
    """How far the last round was to go."""
    furthest: float = _BEYOND

    def note(self, gain: float, share: float) -> None:
        """What a round brought."""
        if share == 1.0 and self.last > 0.0 and gain > 0.0:
            self.rate = min(float(np.sqrt(gain / self.last)), 1.0)
        if self.asked > share:  # what is left does not all go the same way
            self.furthest = 1.0 + 0.5 * (self.furthest - 1.0)
        self.last = gain if share == 1.0 and self.asked == 1.0 else 0.0

    def share(self) -> float:
        """How far the next round should go: one to its target, or further."""
        self.asked = 1.0
        if self.last > 0.0 and self.rate >= _SLOW and self.furthest > 1.2:
            self.asked = min(1.0 / max(1.0 - self.rate, 1e-6), self.furthest)
        return self.asked


@dataclasses.dataclass
class State:
    """Where a fit stands."""

    data: PseudoData  # the sites' sums
    u: AnyNDArray  # coordinates of the kernels' hyperparameters
    phi: AnyNDArray  # coordinates of the likelihood's parameters

    def towards(self, other: State, share: float) -> State:
        """Part of the way."""
        return State(
            self.data.towards(other.data, share),
            self.u + share * (other.u - self.u),
            self.phi + share * (other.phi - self.phi),
        )


@dataclasses.dataclass(frozen=True)
class Position:
    """Between two rounds of a fit."""

    state: State  # where it stands
    elbo: float = 0.0  # there, once there was a round
    rounds: int = 0  # how many there were
    gain: float = 0.0  # of the last one, in nats, as if it had gone all the way to its target
    # whether the sites are near their fixed point, so that it pays to learn hyperparameters at
    # once
    settled: bool = False
    learnt: bool = False  # whether the last round learnt hyperparameters
    pace: Pace = dataclasses.field(default_factory=Pace)  # of the rounds so far
    # whether sites have their negative weights, as they do once the fit without has converged
    signed: bool = False

    def record(self, history: Sequence[float]) -> Record:
        """As a checkpoint holds it."""
        data = self.state.data
        arrays = {"precision": data.precision, "shift": data.shift}
        arrays |= {f"mass {i}": m for i, m in enumerate(data.masses)}
        arrays |= {"u": self.state.u, "phi": self.state.phi, "history": np.array(history)}
        numbers = {"elbo": self.elbo, "rounds": self.rounds, "gain": self.gain}
        flags = {k: bool(getattr(self, k)) for k in ("settled", "learnt", "signed")}
        return Record({**numbers, **flags, "pace": dataclasses.asdict(self.pace)}, arrays)

    @classmethod
    def of(cls, record: Record) -> Position:
        """What :meth:`record` gave."""
        own, numbers = record.arrays, dict(record.numbers)
        masses = tuple(own[f"mass {i}"] for i in range(sum(k.startswith("mass ") for k in own)))
        state = State(PseudoData(own["precision"], own["shift"], masses), own["u"], own["phi"])
        return cls(state, pace=Pace(**numbers.pop("pace")), **numbers)


START_ROWS = 20_000
"""Rows on which a fit to many more begins."""
MANY_ROWS = 40_000
"""More rows than which a fit begins on a part of them."""
_MAX_ROUNDS = 100
_MAX_HALVINGS = 20
_ROUGH = 10.0
"""Tolerance of a search whose outcome is where another begins."""
_STALE_SHARE = 0.03
"""Tolerance of a search against what the last round gained."""
_OFF = 0.5
"""Nats by which sums at nodes and at bins may differ: too little to prefer any hyperparameters."""
_MOST_STEPS = 60
"""L-BFGS iterations a round."""
_STALE_ROUNDS = 2
"""Rounds in which sites alone settle, where they begin at the null model's."""
_STEP = 1e-4
"""Of differences that the information and second derivatives are taken from."""
_LEAST_PRECISION = 1e-2
"""What a coordinate of which neither data nor prior say anything is taken to curve by."""
_LEAST_SHARE = 1e-3
"""Of the likelihood's curvature in its parameters that is left where q's mean goes along."""
_LEAST_CONCAVE = 0.05
"""The same share, below which the mean has to settle before the likelihood's parameters move."""
_NEAR = 0.01
"""Share of the way that tells whether it leads uphill at all."""
_SHORT = 0.1
"""Part of the way to a target below which one of its parts is taken to lead astray."""
_LONGEST = 1.0
"""Longest step of a likelihood's (logarithmic) parameter."""


class StartError(ValueError):
    """Nothing can be computed where a fit starts."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A state, its posterior and the pass over rows that it was given."""

    state: State
    q: GaussianPosterior
    sweep: Sweep
    elbo: float


class Rounds:
    """
    Fits sites, hyperparameters and the likelihood's parameters to rows.

    A round is one pass over the rows, which gathers the sites at the present q, and a search for
    better hyperparameters at those sites, which touches no row. Its fixed point is that of the ELBO
    in all of them: at the sites of q the evidence of the pseudo-data and the ELBO have the same
    gradient (Adam, Chang, Khan & Solin 2021). The ELBO, which every pass gives, decides whether a
    round is kept or shortened.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        rows: Rows,
        tracker: Tracker | None,
    ) -> None:
        self.likelihood, self.rows, self.tracker = likelihood, rows, tracker
        own = parameters_of(kernel)
        self._fixed = {id(p): p.numpy() for p in own if not p.trainable}
        self.hyperparameters = Hyperparameters([p for p in own if p.trainable])
        self.family = Hyperparameters(likelihood.trainable_parameters)
        self.family_places = places_of(self.family, likelihood)
        self.evidence: Evidence = rows.evidence(relative_jitter(None, tf.float64))
        self._users: dict[int, list[int]] = {id(p): [] for p in self.hyperparameters.parameters}
        for i, component in enumerate(rows.components):
            for p in parameters_of(component.kernel):
                if id(p) in self._users:
                    self._users[id(p)].append(i)

    # --- at hyperparameters -----------------------------------------------------------------------

    def values(self, u: AnyNDArray) -> Callable[[Parameter], AnyNDArray]:
        """Constrained values of the kernel's parameters."""
        found = {**self._fixed, **self.hyperparameters.values(u)}
        return lambda parameter: found[id(parameter)]

    def see(self, state: State, signed: bool = False) -> Seen:
        """Pass over the rows at a state."""
        self.family.set(state.phi)
        values = self.values(state.u)
        q = self.evidence.posterior(state.data, values)
        watch = None if self.tracker is None else self.tracker.watch(self.rows.number)
        sweep = self.rows.sweep(self.likelihood, values, q, True, watch, signed)
        prior = self.hyperparameters.log_prior(state.u)[0] + self.family.log_prior(state.phi)[0]
        # the one number that decides; elsewhere linear algebra may round otherwise
        elbo = float(self.rows.communicator.agreed(sweep.expected - q.kl() + prior))
        if not np.isfinite(elbo):
            raise NotPositiveDefinite
        return Seen(state, q, sweep, elbo)

    def start(self, constant: AnyNDArray) -> State:
        """
        The state at the null model's sites.

        Of likelihoods that say what predictors their responses have of their own, at the sites
        there.
        """
        base = unwrapped(self.likelihood)
        base = base.base if isinstance(base, Quasi) else base
        if isinstance(base, MeanLink):
            mean, var = base.first_predictors(np.asarray(self.rows.Y), constant)
            return self.start_at(mean - self.rows.mean, var)
        # a spread that is small beside what the narrowest prior expects, in the predictor's unit
        values = self.values(self.hyperparameters.get())
        sizes = [float(np.max(c.table.matrices(values)[2])) for c in self.rows.components]
        spread = 5e-3 * min(size for size in sizes if size > 0.0)
        return self.start_at(constant, np.full(len(constant), spread))

    def start_at(self, mean: AnyNDArray, var: AnyNDArray) -> State:
        """The state at the sites of given marginals."""
        data = self.rows.sweep_at(self.likelihood, mean, var).data
        return State(data, self.hyperparameters.get(), self.family.get())

    # --- the fit ----------------------------------------------------------------------------------

    def run(
        self,
        begin: Position,
        tolerance: float,
        max_rounds: int,
        rough: bool = False,
        note: Callable[[Position], None] = lambda _: None,
    ) -> tuple[Seen, bool, str]:
        """Rounds until one gains less than ``tolerance``."""
        seen: Seen | None = None
        at, limit = begin, min(max_rounds, _MAX_ROUNDS)
        pace = dataclasses.replace(begin.pace)
        try:
            seen = self._first(at.state, at.signed)
            if not at.rounds:  # an earlier run has told of its own
                self._record(seen)
            while True:
                if at.learnt and (at.gain < tolerance or rough):
                    if rough or at.signed or not seen.sweep.negative:
                        other = None if rough else self._elsewhere(seen, at.signed, tolerance)
                        if other is None:
                            return seen, True, f"the last round gained {at.gain:.2g} nats"
                        at = dataclasses.replace(at, state=other.state, gain=other.elbo - seen.elbo)
                        seen = other
                    else:
                        seen, at = self._with_negative(seen, at)
                if at.rounds >= limit:
                    return seen, False, f"round limit of {max_rounds} reached"
                settled = at.settled or (at.rounds > 0 and at.gain < max(1.0, tolerance))
                learns = settled or at.rounds >= _STALE_ROUNDS
                # while sites still move by much, what they say exactly is of no use
                fine = max(tolerance, _STALE_SHARE * at.gain)
                moves = not settled or at.gain > 1.0
                target = self._improved(seen, learns, settled, moves, _ROUGH if rough else fine)
                share = pace.share() if settled else 1.0
                new, share = self._step(seen, target, share, learns, at.signed)
                if share < _SHORT and (new is None or new.elbo - seen.elbo < tolerance):
                    new = self._apart(seen if new is None else new, target, at.signed) or new
                if new is None and settled and seen.sweep.negative and not at.signed and not rough:
                    seen, at = self._with_negative(seen, at)
                    continue
                if new is None:
                    nothing_left = settled or share == 1.0
                    return seen, nothing_left, "no step improves the ELBO any more"
                # what a short step gains says little of what is left
                gain, seen = (new.elbo - seen.elbo) / min(max(share, _SHORT), 1.0), new
                pace.note(gain if learns else 0.0, share)
                so_far, rounds = dataclasses.replace(pace), at.rounds + 1
                at = Position(new.state, new.elbo, rounds, gain, settled, learns, so_far, at.signed)
                note(at)
                self._record(seen)
        except StopFit as stop:
            if seen is None:
                raise
            self.family.set(seen.state.phi)
            return seen, stop.converged, stop.message
        except KeyboardInterrupt:
            if seen is None or self.tracker is None:
                raise
            self.family.set(seen.state.phi)
            return seen, False, self.tracker.interrupted()

    def _with_negative(self, seen: Seen, at: Position) -> tuple[Seen, Position]:
        """
        The same place, and the sites with their negative weights there.

        They count last: far from the optimum they lead astray.
        """
        there = self.see(seen.state, signed=True)
        return there, dataclasses.replace(at, signed=True, settled=True, gain=1.0)

    def _elsewhere(self, seen: Seen, signed: bool, tolerance: float) -> Seen | None:
        """Other hyperparameters whose ELBO is higher, found at these sites; None without any."""
        data, u = seen.sweep.data, seen.state.u
        trials, metric = self.hyperparameters.elsewhere(u), functools.partial(self.metric, data)
        other = other_optimum(self.loss(data), u, trials, tolerance, self.tracker, metric)
        u = self.rows.communicator.agreed(u if other is None else other)
        if np.array_equal(u, seen.state.u):
            return None
        there = self.see(State(data, u, seen.state.phi), signed)
        return there if there.elbo > seen.elbo + tolerance else None

    def _record(self, seen: Seen) -> None:
        if self.tracker is not None:
            self.tracker.record(seen.elbo)

    def _first(self, state: State, signed: bool) -> Seen:
        for _ in range(_MAX_HALVINGS):
            try:
                return self.see(state, signed)
            except NotPositiveDefinite:
                state = dataclasses.replace(state, data=state.data * 0.5)
        raise StartError(
            "the ELBO cannot be computed where the fit starts; standardise the response and look "
            "for extreme values in it."
        )

    def _improved(
        self, seen: Seen, learns: bool, settled: bool, moves: bool, tolerance: float
    ) -> State:
        """The sites of the last pass, with better hyperparameters and likelihood parameters."""
        data = seen.sweep.data
        u = seen.state.u
        step = self.rows.communicator.agreed(self._newton(seen, settled))
        if len(step):
            # the sites as the likelihood's parameters will have them
            data = data.shifted(np.tensordot(step, seen.sweep.across, axes=1))
        if learns and len(self.hyperparameters):
            try:
                there = self.hyperparameters.off_zero(u) if moves else u
                u = self.rows.communicator.agreed(self._search(data, there, tolerance))
            except NotPositiveDefinite:
                # with negative weights sites may have no posterior where a part of the way to them,
                # which the step takes then, has one
                if not seen.sweep.negative:
                    raise
        return State(data, u, seen.state.phi + step)

    def _newton(self, seen: Seen, settled: bool) -> AnyNDArray:
        """
        A Newton step of the likelihood's parameters, in which q's mean goes along.

        Where the mean would go so far that the sum is no longer concave along that way, it has to
        be settled first, and the parameters stay. Where negative weights leave no mean they move by
        themselves.
        """
        phi = seen.state.phi
        if len(phi) == 0:
            return phi
        sweep = seen.sweep
        slope = sweep.slope + self.family.log_prior(phi)[1]
        values, vectors = np.linalg.eigh(np.diag(self.family.prior_precision()) - sweep.curvature)
        # where the sum is convex, uphill by the same length
        scale = np.maximum(np.abs(values), 1e-8 * max(np.max(np.abs(values)), 1e-300))
        alone = (vectors * scale) @ vectors.T
        try:
            response = self.evidence.response(sweep.data, self.values(seen.state.u), sweep.across)
        except NotPositiveDefinite:
            if not sweep.negative:
                raise
            response = np.zeros_like(alone)
        values, vectors = scipy.linalg.eigh(alone - response, alone)
        if not settled and np.min(values) < _LEAST_CONCAVE:
            return np.zeros_like(phi)
        scale = np.maximum(np.abs(values), _LEAST_SHARE)
        step: AnyNDArray = vectors @ ((vectors.T @ slope) / scale)
        return step / max(1.0, float(np.max(np.abs(step))) / _LONGEST)

    def _step(
        self, seen: Seen, target: State, share: float, learns: bool, signed: bool
    ) -> tuple[Seen | None, float]:
        """The target, or the part of the way at which the ELBO does not fall, and which part."""
        slack = 1e-10 * abs(seen.elbo)
        for _ in range(_MAX_HALVINGS):
            try:
                new = self.see(seen.state.towards(target, share), signed)
                if new.elbo >= seen.elbo - slack:
                    return new, share
                if learns and share == 1.0 and new.elbo >= seen.elbo - _OFF:
                    near = self.see(seen.state.towards(target, _NEAR), signed)
                    if near.elbo < seen.elbo + slack:
                        self.family.set(seen.state.phi)
                        return None, 1.0
            except NotPositiveDefinite:
                pass
            share = 1.0 if share > 1.0 else share * (0.5 if share > 0.1 else 0.1)
        self.family.set(seen.state.phi)
        return None, 0.0

    def _apart(self, seen: Seen, target: State, signed: bool) -> Seen | None:
        """
        The way to the target in one of its parts after the other; None where none of them gains.

        One part that leads astray makes the way in all of them short, which is no convergence.
        """
        best = seen
        for part in ("data", "u", "phi"):
            there = dataclasses.replace(best.state, **{part: getattr(target, part)})
            new, _ = self._step(best, there, 1.0, False, signed)
            best = best if new is None else new
        return best if best.elbo > seen.elbo else None

    def loss(self, data: PseudoData) -> Loss:
        """Minus the evidence of pseudo-data and the priors' log-densities, with its gradient."""

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            values = self.values(x)
            value, gradients, _ = self.evidence.value_and_gradient(data, values)
            prior, slope = self.hyperparameters.log_prior(x)
            return -(value + prior), -(self.hyperparameters.pullback(x, gradients) + slope)

        return loss

    def value(self, data: PseudoData, u: AnyNDArray) -> float:
        """What :meth:`loss` comes to."""
        found = self.evidence.value(data, self.values(u))
        return -(found + self.hyperparameters.log_prior(u)[0])

    def _search(self, data: PseudoData, u: AnyNDArray, tolerance: float) -> AnyNDArray:
        """L-BFGS on the evidence of the pseudo-data."""
        return descend(
            self.loss(data),
            u,
            _MOST_STEPS,
            tolerance,
            self.tracker,
            metric=lambda x: self.metric(data, x),
        )[0]

    def metric(self, data: PseudoData, u: AnyNDArray, scale: float = 1.0) -> AnyNDArray | None:
        """
        About how the loss curves in the coordinates u, [K, K]; None where that cannot be said.
        """
        if not len(self.hyperparameters):
            return None
        present, moved = self._moved(u, _STEP)
        try:
            found = average_information(self.evidence, data, present, moved, _STEP, scale)
        except NotPositiveDefinite:
            return None
        return found + np.diag(self.hyperparameters.prior_precision() + _LEAST_PRECISION)

    def hessian(self, data: PseudoData, u: AnyNDArray, scale: float = 1.0) -> AnyNDArray:
        """Second derivatives of :meth:`loss` at the coordinates u, [K, K]."""
        learnt = self.hyperparameters
        if not len(learnt):
            return np.zeros((0, 0))
        present, moved = self._moved(u, _STEP)
        pulled = [functools.partial(learnt.pullback, u + e) for e in _STEP * np.eye(len(u))]
        found = evidence_hessian(
            self.evidence,
            data,
            present,
            functools.partial(learnt.pullback, u),
            [(*each, pullback) for each, pullback in zip(moved, pulled)],
            _STEP,
            scale,
        )
        return -found - differenced(lambda x: learnt.log_prior(x)[1], u)

    def _moved(
        self, u: AnyNDArray, step: float
    ) -> tuple[dict[int, AnyNDArray], list[tuple[list[int], dict[int, AnyNDArray]]]]:
        """Values at coordinates; for each of these whom it moves, and values a step further on."""
        present = {**self._fixed, **self.hyperparameters.values(u)}
        return present, [
            (self._users[id(p)], {**present, id(p): value})
            for p, value in self.hyperparameters.moved(u, step)
        ]


_PASSES = 30
"""At most."""


def settled_at(
    model: AdditiveSVGP, rounds: Rounds, x: AnyNDArray, data: PseudoData, tolerance: float
) -> Seen:
    """The posterior at hyperparameters that stay, sites having settled there."""
    number = len(rounds.hyperparameters)
    rounds.hyperparameters.set(x[:number])
    rounds.family.set(x[number:])
    with _held(model):
        inner = Rounds(model.kernel, model.likelihood, rounds.rows, None)
    begin = Position(State(data, np.zeros(0), np.zeros(0)), settled=True)
    return inner.run(begin, 0.1 * tolerance, _PASSES)[0]


@contextlib.contextmanager
def _held(model: AdditiveSVGP) -> Iterator[None]:
    """The model's parameters, none of which is to be learnt."""
    learnt = list(model.trainable_parameters)
    for parameter in learnt:
        gpflow.set_trainable(parameter, False)
    try:
        yield
    finally:
        for parameter in learnt:
            gpflow.set_trainable(parameter, True)
