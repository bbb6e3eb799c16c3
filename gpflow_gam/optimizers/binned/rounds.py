"""Rounds of passes over rows in turn with learning hyperparameters."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import scipy.linalg
import scipy.sparse
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from scipy.linalg import lapack

from ...covariances import relative_jitter
from ...errors import NotPositiveDefinite
from ...kernels.correlation import Values, lookup, parameters_of
from ...likelihoods import MeanLink, Quasi
from ...likelihoods.base import unwrapped
from ...likelihoods.linked import first_predictors
from ..minimizers import (
    Loss,
    StopFit,
    Tracker,
    descend,
    differenced,
    newton_step,
    other_optimum,
    promised,
)
from .checkpoint import Snapshot
from .evidence import (
    Evidence,
    EvidenceEvaluation,
    GaussianPosterior,
    Projection,
    PseudoData,
    added,
    factorised,
    posterior_of,
    slices,
)
from .hyperparameters import LONGEST, Hyperparameters
from .passes import Rows, Sweep

_MAX_ROUNDS = 100
_MAX_HALVINGS, _MOST_FIRST = 12, 40  # of steps, the last of 1e-8 of the way; of first sites
_ROUGH = 10.0  # tolerance of a search whose result is the start of another
_SLOWEST = 0.9  # largest share of the way to their fixed point that rounds leave if they get there
_SMALL_SHARE = 1e-3  # gain, relative to the tolerance, that a Newton step may promise at the end
_STALE_SHARE = 0.03  # tolerance of a search relative to the gain of the last round
_OFF = 0.5  # nats between sums at nodes and at bins: too few to prefer hyperparameters
_MOST_STEPS = 60  # number of L-BFGS iterations of a round
_STALE_ROUNDS = 2  # number of rounds of sites alone, if they begin at the null model's
_STEP = 1e-4  # step of differences for the information and second derivatives
_LEAST_PRECISION = 1e-2  # curvature of a coordinate of which neither data nor prior say anything
_LEAST_SHARE = 1e-3  # least share of the likelihood's curvature once q's mean goes along
_LEAST_CONCAVE = 0.05  # the same share, below which the mean converges before parameters move
_NEAR = 0.01  # share of the way at which it is tested whether it leads uphill at all
_SHORT = 0.1  # share of the way below which the step is taken block by block
_REMEMBERED = 4  # number of targets that are mixed
_PRICE = 20.0  # largest cost of a component beyond its gain, in nats: that of its KL divergence
_LEAST_NEW = 1e-4  # share of a residual's length that has to be unlike the others
_PASSES = 30  # number of passes at fixed hyperparameters
MANY_ROWS = 40_000  # number of rows from which a pass costs more than to foresee its gain


@dataclasses.dataclass
class Point:
    """All that a fit changes."""

    data: PseudoData  # sums of the sites
    u: AnyNDArray  # coordinates of the kernels' hyperparameters
    phi: AnyNDArray  # coordinates of the likelihood's parameters

    def scaled(self, factor: float) -> Point:
        return dataclasses.replace(self, data=self.data * factor)

    def arrays(self) -> dict[str, AnyNDArray]:
        """All of it, by name."""
        data = self.data
        masses = {f"mass {i}": m for i, m in enumerate(data.masses)}
        alone = {"precision": data.precision, "shift": data.shift, "u": self.u, "phi": self.phi}
        return alone | masses

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, AnyNDArray], prefix: str = "") -> Point:
        """Undo :meth:`arrays`, of names that begin with the prefix."""
        masses: list[AnyNDArray] = []
        while (name := f"{prefix}mass {len(masses)}") in arrays:
            masses.append(arrays[name])
        precision, shift, u, phi = (
            arrays[prefix + name] for name in ("precision", "shift", "u", "phi")
        )
        return cls(PseudoData(precision, shift, tuple(masses)), u, phi)

    def towards(self, other: Point, share: float) -> Point:
        return Point(
            self.data.towards(other.data, share),
            self.u + share * (other.u - self.u),
            self.phi + share * (other.phi - self.phi),
        )


@dataclasses.dataclass(frozen=True)
class Mixing:
    """Anderson's acceleration of a fixed-point iteration (Walker & Ni 2011)."""

    # Components that can replace each other converge slowly, and sites that go too far swing: a
    # mixture of the last targets has the least left to go, as far as that is linear.

    targets: tuple[Point, ...] = ()
    residuals: tuple[AnyNDArray, ...] = ()  # ways to them, [D]: half their squares are nats

    def after(self, target: Point, residual: AnyNDArray) -> Mixing:
        """With the target of one more round."""
        return Mixing(
            (*self.targets, target)[-_REMEMBERED:], (*self.residuals, residual)[-_REMEMBERED:]
        )

    def weights(self) -> AnyNDArray:
        """Weights of the targets, which add up to one."""
        *before, last = self.residuals
        differences = np.stack([last - r for r in before], axis=1)
        shares = np.linalg.lstsq(differences, last, rcond=_LEAST_NEW)[0]
        return np.append(shares, 1.0 - np.sum(shares))

    def target(self, weights: AnyNDArray) -> Point:
        data = functools.reduce(operator.add, (p.data * w for p, w in zip(self.targets, weights)))
        last = self.targets[-1]
        # where nothing is to be gained, as by variances that have vanished, targets are anywhere
        u, phi = (
            np.clip(
                weights @ [getattr(p, name) for p in self.targets], end - LONGEST, end + LONGEST
            )
            for name, end in (("u", last.u), ("phi", last.phi))
        )
        return Point(data, u, phi)


@dataclasses.dataclass(frozen=True)
class FitState:
    """A fit between two rounds, from which it goes on the same way."""

    point: Point
    elbo: float = -np.inf  # that of the point; where a fit starts, about what it should be
    rounds: int = 0  # number so far
    gain: float = 0.0  # of the last round, in nats, scaled to a full step
    settled: bool = False  # whether sites are near their fixed point, so that it pays to learn
    learnt: bool = False  # whether the last round learnt hyperparameters
    fine: float = np.inf  # tolerance of the last search: no later one is coarser
    signed: bool = False  # whether negative weights count, as they do after convergence without
    mixing: Mixing = dataclasses.field(default_factory=Mixing)

    def snapshot(self, history: Sequence[float]) -> Snapshot:
        """The state for a checkpoint, with the ELBOs so far."""
        arrays = {**self.point.arrays(), "history": np.array(history)}
        for i, (target, residual) in enumerate(zip(self.mixing.targets, self.mixing.residuals)):
            arrays |= {f"target {i} {name}": a for name, a in target.arrays().items()}
            arrays[f"residual {i}"] = residual
        names = [f.name for f in dataclasses.fields(self) if f.name not in ("point", "mixing")]
        return Snapshot({name: getattr(self, name) for name in names}, arrays)

    @classmethod
    def restored(cls, snapshot: Snapshot) -> FitState:
        """Undo :meth:`snapshot`."""
        arrays, mixing = snapshot.arrays, Mixing()
        while (name := f"residual {len(mixing.targets)}") in arrays:
            target = Point.of_arrays(arrays, f"target {len(mixing.targets)} ")
            mixing = mixing.after(target, arrays[name])
        return cls(Point.of_arrays(arrays), **snapshot.numbers, mixing=mixing)


class StartError(ValueError):
    """The ELBO cannot be computed where a fit starts."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A point, its posterior and the pass over rows there."""

    point: Point
    q: GaussianPosterior
    sweep: Sweep
    elbo: float


def _slack(now: Evaluation) -> float:
    """Nats by which rounding may let the ELBO fall."""
    return min(1e-10 * abs(now.elbo), 1e-5)


class Rounds:
    """Fits sites, hyperparameters and the likelihood's parameters to rows."""

    # A round is one pass over the rows, which sums the sites at the present q, and a search for
    # better hyperparameters at those sites, which reads no row: there the evidence of the
    # pseudo-data and the ELBO have the same gradient (Adam, Chang, Khan & Solin 2021). The ELBO
    # decides whether to keep it.

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        rows: Rows,
        tracker: Tracker | None,
        learns: bool = True,
    ) -> None:
        self.kernel, self.likelihood, self.rows, self.tracker = kernel, likelihood, rows, tracker
        parameters = parameters_of(kernel)
        trainable = [p for p in parameters if p.trainable and learns]
        self.hyperparameters = Hyperparameters(trainable)
        self.family = Hyperparameters(likelihood.trainable_parameters if learns else [])
        learnt = {id(p) for p in trainable}
        self._fixed = {id(p): p.numpy() for p in parameters if id(p) not in learnt}
        every = [id(p) for p in likelihood.parameters]
        # among all parameters of the likelihood, also of any copy of it
        self.family_places = [every.index(id(p)) for p in self.family.parameters]
        places = [c.places for c in rows.components]
        self.evidence = Evidence(places, relative_jitter(None, tf.float64))
        self._last_hessian: tuple[PseudoData, tuple[bytes, float], AnyNDArray] | None = None
        self._users: dict[int, list[int]] = {id(p): [] for p in self.hyperparameters.parameters}
        for i, component in enumerate(rows.components):
            for p in parameters_of(component.kernel):
                if id(p) in self._users:
                    self._users[id(p)].append(i)

    def coordinates(self) -> AnyNDArray:
        """Present coordinates [K] of hyperparameters, then of the likelihood's parameters."""
        return np.concatenate([self.hyperparameters.get(), self.family.get()])

    def split(self, x: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Coordinates of hyperparameters, and of the likelihood's parameters."""
        number = len(self.hyperparameters)
        return x[:number], x[number:]

    def set(self, x: AnyNDArray) -> None:
        """Write coordinates [K] to the model."""
        u, phi = self.split(x)
        self.hyperparameters.set(u)
        self.family.set(phi)

    def log_prior(self, u: AnyNDArray, phi: AnyNDArray) -> float:
        """Log-density of the priors at coordinates."""
        return self.hyperparameters.log_prior(u)[0] + self.family.log_prior(phi)[0]

    def values(self, u: AnyNDArray) -> Values:
        """Constrained values of the kernel's parameters at coordinates [K]."""
        return lookup({**self._fixed, **self.hyperparameters.values(u)})

    def evaluate(self, point: Point, signed: bool = False) -> Evaluation:
        """Pass over the rows at a point; NotPositiveDefinite if nothing can be computed there."""
        self.family.set(point.phi)
        values = self.values(point.u)
        q = self.evidence.posterior(point.data, values)
        watch = None if self.tracker is None else self.tracker.watch(self.rows.number)
        sweep = self.rows.sweep(self.likelihood, values, q, len(self.family) > 0, watch, signed)
        elbo = sweep.expected - q.kl() + self.log_prior(point.u, point.phi)
        # the number that decides; other processes may round otherwise
        elbo = float(self.rows.communicator.agreed(elbo))
        if not np.isfinite(elbo):
            raise NotPositiveDefinite
        return Evaluation(point, q, sweep, elbo)

    def start(self, constant: AnyNDArray) -> FitState:
        """The state at sites of a constant predictor [L], or the likelihood's own guesses."""
        base = unwrapped(self.likelihood)
        base = base.base if isinstance(base, Quasi) else base
        known = self.rows.mean[:]
        first = first_predictors(base, self.rows.Y[:], known, constant)
        if first is not None:
            point = self.start_at(first[0] - known, first[1])
            sure = isinstance(base, MeanLink)  # whose constant may be a singular point
            return FitState(point, -np.inf if sure else self.worth(constant, 0.0 * constant))
        # a variance that is small relative to the smallest prior variance
        values = self.values(self.hyperparameters.get())
        sizes = [float(np.max(c.table.matrices(values)[2])) for c in self.rows.components]
        spread = np.full(len(constant), 5e-3 * min(size for size in sizes if size > 0.0))
        return FitState(self.start_at(constant, spread), self.worth(constant, spread))

    def start_at(self, mean: AnyNDArray, var: AnyNDArray) -> Point:
        """The point at the sites of marginals [n, L] or [L], m(x) left out."""
        data = self.rows.sweep_at(self.likelihood, mean, var).data
        return Point(data, self.hyperparameters.get(), self.family.get())

    def worth(self, mean: AnyNDArray, var: AnyNDArray) -> float:
        """The ELBO that components have to reach beside a constant predictor of moments [L]."""
        expected = self.rows.expected(self.likelihood, mean, var)
        prior = self.log_prior(self.hyperparameters.get(), self.family.get())
        return expected + prior - _PRICE * (1 + len(self.rows.components))

    def run(
        self,
        begin: FitState,
        tolerance: float,
        max_rounds: int,
        rough: bool = False,
        record: Callable[[FitState], None] = lambda _: None,
    ) -> tuple[Evaluation, bool, str]:
        """Rounds until one gains less than ``tolerance`` nats; ``rough``: until one has learnt."""
        now: Evaluation | None = None
        at, limit = begin, min(max_rounds, _MAX_ROUNDS)
        try:
            now = self._first(at)
            if not at.rounds:  # an earlier run has recorded it
                self._record(now)
            while True:
                settled = at.settled or (at.rounds > 0 and at.gain < max(1.0, tolerance))
                step = self.rows.communicator.agreed(self._newton(now, settled))
                near = at.learnt and at.gain < 1.0
                away = self._away(now, step) if near and not rough else None
                if at.learnt and (rough or self._ended(now, at, tolerance, away)):
                    if rough or at.signed or not now.sweep.negative:
                        other = None if rough else self._elsewhere(now, at.signed, tolerance)
                        if other is None:
                            return now, True, f"the last round gained {at.gain:.2g} nats"
                        gain = other.elbo - now.elbo
                        at = dataclasses.replace(at, point=other.point, gain=gain, mixing=Mixing())
                        now = other
                    else:
                        now, at = self._with_negative(now, at)
                    continue
                if at.rounds >= limit:
                    return now, False, f"round limit of {limit} reached"
                learns = settled or at.rounds >= _STALE_ROUNDS
                # digits are of no use while sites still move by much
                fine = min(at.fine, max(0.1 * tolerance, _STALE_SHARE * at.gain))
                moves = not settled or at.gain > 1.0
                foreseen = settled and not rough and self._foresees(now)
                fine = _ROUGH if rough else tolerance if foreseen else fine
                target = self._improved(now, step, learns, moves, fine, near)
                if foreseen and (there := self._foreseen(now, target)).elbo < now.elbo + tolerance:
                    gain = there.elbo - now.elbo
                    other = self._elsewhere(there, at.signed, tolerance)
                    if other is None:
                        return there, True, f"another pass over the rows would gain {gain:.2g} nats"
                    gain, now = other.elbo - there.elbo, other
                    at = dataclasses.replace(at, point=other.point, gain=gain, mixing=Mixing())
                    continue
                mixing = Mixing() if away is None else at.mixing.after(target, away)
                least = now.elbo + _SMALL_SHARE * tolerance
                new, share = self._mixed(mixing, at.signed, least), 1.0
                if new is None:
                    mixing = Mixing() if away is None else Mixing().after(target, away)
                    new, share = self._step(now, target, learns, at.signed)
                if new is None or (share < _SHORT and new.elbo - now.elbo < tolerance):
                    new = self._by_block(now if new is None else new, target, at.signed) or new
                if new is None and settled and now.sweep.negative and not at.signed and not rough:
                    now, at = self._with_negative(now, at)
                    continue
                if new is None:
                    nothing_left = settled or share == 1.0
                    return now, nothing_left, "no step improves the ELBO any more"
                # a short step says little of the remaining gain
                gain, now = (new.elbo - now.elbo) / min(max(share, _SHORT), 1.0), new
                fine = fine if learns else at.fine
                state = new.elbo, at.rounds + 1, gain, settled, learns, fine, at.signed, mixing
                at = FitState(new.point, *state)
                record(at)
                self._record(now)
        except (StopFit, KeyboardInterrupt) as error:
            if now is None or self.tracker is None:
                raise
            self.family.set(now.point.phi)
            return now, False, self.tracker.why(error)

    def converged_at(self, x: AnyNDArray, data: PseudoData, tolerance: float) -> Evaluation:
        """The evaluation at fixed coordinates, which are set, and converged sites; no priors."""
        self.set(x)
        return converged(self.kernel, self.likelihood, self.rows, data, 0.1 * tolerance)

    def settled_at(self, u: AnyNDArray, data: PseudoData, tolerance: float) -> Evaluation:
        """The evaluation at hyperparameters' coordinates, without priors; nothing is set."""
        values = {**self._fixed, **self.hyperparameters.values(u)}
        try:
            return converged(self.kernel, self.likelihood, self.rows, data, tolerance, values)
        except StartError:
            raise NotPositiveDefinite from None

    def _ended(
        self, now: Evaluation, at: FitState, tolerance: float, away: AnyNDArray | None
    ) -> bool:
        """True if the last round gained little, and next to nothing is left to gain."""
        # rounds that leave negative weights out go before others, and need not lead uphill
        first = now.sweep.negative > 0 and not at.signed
        if at.gain >= tolerance or first or self._foresees(now) or away is None:
            return at.gain < tolerance
        # what is left of rounds that each leave a share of the way is a geometric series
        size, small, share = float(np.linalg.norm(away)), _SMALL_SHARE * tolerance, 0.0
        if at.mixing.residuals:
            share = size / max(float(np.linalg.norm(at.mixing.residuals[-1])), 1e-300)
            share = float(self.rows.communicator.agreed(min(share, _SLOWEST)))
        left = 0.5 * size**2 / (1.0 - share)
        if at.gain < small and share == _SLOWEST:
            return True  # rounds that stay as far from their fixed point, and gain nothing
        if at.gain < small:  # a search has just been for what hyperparameters promise
            return bool(self.rows.communicator.agreed(left) < small)
        u, data = now.point.u, now.sweep.data
        hessian = self._known_hessian(data, u)
        if len(u) and hessian is not None:
            left += promised(self.loss(data)(u)[1], hessian)
        return float(self.rows.communicator.agreed(left)) < small

    def _away(self, now: Evaluation, step: AnyNDArray) -> AnyNDArray:
        """The way to the last sites and parameters, [D]; half its square is about nats to gain."""
        # the second-order expansion of a KL divergence of Gaussians
        q, values = now.q, self.values(now.point.u)
        features = [self.evidence.features(values, c) for c in range(len(self.evidence))]
        there = Projection(features, now.sweep.data, 1.0)
        way = [np.sqrt(np.abs(self._family_curvature(now).diagonal())) * step]
        for precision, shift, mean, Lambda, eta in zip(
            q.precision, q.shift.T, q.mean.T, there.Lambda, there.eta.T
        ):
            root, change = factorised(precision), Lambda - precision
            half = lapack.dtrtrs(root, change, lower=1)[0]
            way.append(lapack.dtrtrs(root, eta - shift - change @ mean, lower=1)[0])
            way.append(np.ravel(lapack.dtrtrs(root, half.T, lower=1)[0]) / np.sqrt(2.0))
        return np.concatenate(way)

    def _mixed(self, mixing: Mixing, signed: bool, least: float) -> Evaluation | None:
        """The mixture of the last targets; None if there are none, or the ELBO is less there."""
        if len(mixing.targets) < 2:
            return None
        weights = self.rows.communicator.agreed(mixing.weights())
        try:
            new = self.evaluate(mixing.target(weights), signed)
        except NotPositiveDefinite:
            return None
        return new if new.elbo >= least else None

    def _family_curvature(self, now: Evaluation) -> AnyNDArray:
        """Minus second derivatives in the likelihood's parameters, [K, K]."""
        return np.diag(self.family.prior_precision()) - now.sweep.curvature

    def _foresees(self, now: Evaluation) -> bool:
        """True if the gain of the next round is known before its pass over the rows."""
        many = self.rows.number > MANY_ROWS
        return many and not len(self.family) and not now.sweep.negative

    def _foreseen(self, now: Evaluation, target: Point) -> Evaluation:
        """The evaluation at a target that has the present sites, near their fixed point."""
        # at fixed sites the bound on their evidence falls short of it by the KL divergence of q
        best = self.evidence.posterior(target.data, self.values(now.point.u))
        loss = self.loss(target.data)
        gain = loss(now.point.u)[0] - loss(target.u)[0]
        elbo = float(self.rows.communicator.agreed(now.elbo + now.q.kl_to(best) + gain))
        q = self.evidence.posterior(target.data, self.values(target.u))
        return Evaluation(target, q, now.sweep, elbo)

    def _with_negative(self, now: Evaluation, at: FitState) -> tuple[Evaluation, FitState]:
        """The same point with the sites' negative weights, which count last."""
        there = self.evaluate(now.point, signed=True)
        return there, dataclasses.replace(at, signed=True, settled=True, gain=1.0, mixing=Mixing())

    def _elsewhere(self, now: Evaluation, signed: bool, tolerance: float) -> Evaluation | None:
        """Other hyperparameters with a higher ELBO, found at these sites, or None."""
        data, u = now.sweep.data, now.point.u
        trials, metric = self.hyperparameters.elsewhere(u), functools.partial(self.metric, data)
        alone = functools.partial(self.alone, data)
        other = other_optimum(self.loss(data), u, trials, tolerance, self.tracker, metric, alone)
        u = self.rows.communicator.agreed(u if other is None else other)
        if np.array_equal(u, now.point.u):
            return None
        try:
            there = self.evaluate(Point(data, u, now.point.phi), signed)
        except NotPositiveDefinite:
            self.family.set(now.point.phi)
            return None
        return there if there.elbo > now.elbo + tolerance else None

    def _record(self, now: Evaluation) -> None:
        if self.tracker is not None:
            self.tracker.record(now.elbo)

    def _first(self, at: FitState) -> Evaluation:
        # where a log-density is nearly a line the sites of a constant go far beyond the optimum, as
        # they do where it bends little; and a scale that few rows tell of may be any under a wide
        # prior
        first, last, point = None, None, at.point
        halves = (point.scaled(0.5**k) for k in range(_MOST_FIRST))
        smaller = (dataclasses.replace(point, u=u) for u in self.hyperparameters.smaller(point.u))
        for there in halves:
            try:
                now = self.evaluate(there, at.signed)
            except NotPositiveDefinite:
                continue
            if now.elbo >= at.elbo - _slack(now):
                return now
            if last is not None and now.elbo < last.elbo:
                break
            first, last = first or now, now
        # the largest, if it is more than halfway there
        if first is not None and last is not None and 2.0 * last.elbo > first.elbo + at.elbo:
            return last
        for there in smaller:
            with contextlib.suppress(NotPositiveDefinite):
                now = self.evaluate(there, at.signed)
                if now.elbo >= at.elbo - _slack(now):
                    return now
        if first is not None:
            return first
        raise StartError(
            "the ELBO cannot be computed where the fit starts; standardise the response and look "
            "for extreme values in it."
        )

    def _improved(
        self,
        now: Evaluation,
        step: AnyNDArray,
        learns: bool,
        moves: bool,
        tolerance: float,
        near: bool,
    ) -> Point:
        """The last sites and better parameters; vanished effects come back while sites move."""
        data = now.sweep.data
        u = now.point.u
        if len(step):
            # the sites at the new parameters of the likelihood
            data = data.shifted(np.tensordot(step, now.sweep.across, axes=1))
        if learns and len(self.hyperparameters):
            try:
                there = self.hyperparameters.off_zero(u) if moves else u
                u = self.rows.communicator.agreed(self._search(data, there, tolerance, near))
            except NotPositiveDefinite:
                # sites with negative weights may have no posterior, and one at a share of the way
                if not now.sweep.negative:
                    raise
        return Point(data, u, now.point.phi + step)

    def _newton(self, now: Evaluation, settled: bool) -> AnyNDArray:
        """A Newton step of the likelihood's parameters, in which q's mean goes along."""
        # If the mean would go so far that the sum is not concave along that way, it has to converge
        # first, and the parameters stay. If negative weights leave no mean, they move alone.
        phi = now.point.phi
        if len(phi) == 0:
            return phi
        sweep = now.sweep
        slope = sweep.slope + self.family.log_prior(phi)[1]
        values, vectors = np.linalg.eigh(self._family_curvature(now))
        # uphill by the same length if the sum is convex
        scale = np.maximum(np.abs(values), 1e-8 * max(np.max(np.abs(values)), 1e-300))
        along = np.abs(vectors.T @ slope)
        if len(phi) > 1 and np.any(along > LONGEST * scale):
            # a direction of which nothing is known would shorten the step in all others
            reach = np.max(np.abs(vectors) / self.family.longest(phi)[:, None], axis=0)
            scale = np.maximum(scale, along * reach)
        alone = (vectors * scale) @ vectors.T
        try:
            response = self.evidence.response(sweep.data, self.values(now.point.u), sweep.across)
        except NotPositiveDefinite:
            if not sweep.negative:
                raise
            response = np.zeros_like(alone)
        values, vectors = scipy.linalg.eigh(alone - response, alone)
        if not settled and np.min(values) < _LEAST_CONCAVE:
            return np.zeros_like(phi)
        scale = np.maximum(np.abs(values), _LEAST_SHARE)
        step: AnyNDArray = vectors @ ((vectors.T @ slope) / scale)
        if np.max(np.abs(step)) <= LONGEST:
            return step
        return step / max(1.0, float(np.max(np.abs(step) / self.family.longest(phi))))

    def _step(
        self, now: Evaluation, target: Point, learns: bool, signed: bool
    ) -> tuple[Evaluation | None, float]:
        """The ELBO at the largest share of the way to the target at which it does not fall."""
        # With learns it gives up, with a share of 1, if the target loses next to nothing and a
        # hundredth of the way gains nothing: of sites alone that says nothing, as they may go too
        # far.
        share = 1.0
        for _ in range(_MAX_HALVINGS):
            try:
                new = self.evaluate(now.point.towards(target, share), signed)
                if new.elbo >= now.elbo - _slack(now):
                    return new, share
                if learns and share == 1.0 and new.elbo >= now.elbo - _OFF:
                    near = self.evaluate(now.point.towards(target, _NEAR), signed)
                    if near.elbo < now.elbo + _slack(now):
                        self.family.set(now.point.phi)
                        return None, 1.0
            except NotPositiveDefinite:
                pass
            share *= 0.5 if share > 0.1 else 0.1
        self.family.set(now.point.phi)
        return None, 0.0

    def _by_block(self, now: Evaluation, target: Point, signed: bool) -> Evaluation | None:
        """Steps part by part, as one that leads astray makes joint ones short; None: no gain."""
        # a search may have gone to another optimum, which is no way uphill from here
        data, u = now.sweep.data, now.point.u
        hessian = self._known_hessian(data, u) if len(u) else None
        if hessian is not None:
            step = newton_step(self.loss(data)(u)[1], hessian)
            step = step / max(1.0, float(np.max(np.abs(step))) / LONGEST)
            target = dataclasses.replace(target, u=self.rows.communicator.agreed(u + step))
        best = now
        for part in ("data", "u", "phi"):
            there = dataclasses.replace(best.point, **{part: getattr(target, part)})
            new, _ = self._step(best, there, True, signed)
            best = best if new is None else new
        return best if best.elbo > now.elbo else None

    def loss(self, data: PseudoData) -> Loss:
        """Minus the evidence of pseudo-data and the priors' log-densities, with its gradient."""

        def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
            here = EvidenceEvaluation(self.evidence, data, self.values(x))
            prior, slope = self.hyperparameters.log_prior(x)
            gradients, _ = here.gradient()
            return -(here.value + prior), -(self.hyperparameters.pullback(x, gradients) + slope)

        return loss

    def alone(
        self, data: PseudoData, x: AnyNDArray, scale: float = 1.0
    ) -> Callable[[int], Loss | None]:
        """By a coordinate: the loss, but for a constant, where one component leaves x; or None."""
        u, _ = self.split(x)
        here = EvidenceEvaluation(self.evidence, data, self.values(u), scale)
        users = [self._users[id(p)] for p, _ in self.hyperparameters.moved(u, 0.0)]

        def of(k: int) -> Loss | None:
            if len(users[k]) != 1:
                return None
            (c,) = users[k]
            evidence, own = self.evidence.part(c), here.data_of(c)
            moves = np.array([each == [c] for each in users])

            def loss(x: AnyNDArray) -> tuple[float, AnyNDArray]:
                u, _ = self.split(x)
                there = EvidenceEvaluation(evidence, own, self.values(u))
                prior, slope = self.hyperparameters.log_prior(u)
                gradient = np.zeros_like(x)
                pulled = self.hyperparameters.pullback(u, there.gradient()[0])
                gradient[: len(u)] = np.where(moves, -(pulled + slope), 0.0)
                return -(there.value + prior), gradient

            return loss

        return of

    def _search(self, data: PseudoData, u: AnyNDArray, tolerance: float, near: bool) -> AnyNDArray:
        """L-BFGS on the evidence of the pseudo-data."""
        return descend(
            self.loss(data),
            u,
            _MOST_STEPS,
            tolerance,
            self.tracker,
            metric=lambda x: self.metric(data, x),
            hessian=lambda x: self._known_hessian(data, x),
            near=near,
        )[0]

    def _known_hessian(self, data: PseudoData, u: AnyNDArray) -> AnyNDArray | None:
        """As :meth:`hessian`; None where rounding leaves none."""
        try:
            return self.hessian(data, u)
        except NotPositiveDefinite:
            return None

    def metric(self, data: PseudoData, u: AnyNDArray, scale: float = 1.0) -> AnyNDArray | None:
        """Approximate second derivatives of the loss at u, [K, K]; None if they are not known."""
        if not len(self.hyperparameters):
            return None
        try:
            information = self._information(data, u, scale)
        except NotPositiveDefinite:
            return None
        return information + np.diag(self.hyperparameters.prior_precision() + _LEAST_PRECISION)

    def _information(self, data: PseudoData, u: AnyNDArray, scale: float) -> AnyNDArray:
        """The average information ``r'C_i P C_j r / 2`` of coordinates, [K, K]."""
        # C_i is the derivative of the values' covariance, P the inverse of the pseudo-data's, r its
        # product with the data (Gilmour, Thompson & Cullis 1995): never negative, one evaluation a
        # coordinate
        evidence, (present, moved) = self.evidence, self._moved(u)
        features = [evidence.features(present, c) for c in range(len(evidence))]
        at_data = Projection(features, data, scale)
        q = posterior_of(at_data.Lambda, at_data.eta, ())
        residual = scale * data.shift - np.stack(
            [half.T @ mean for half, mean in zip(at_data.half, q.mean.T)], axis=1
        )

        def product(phi: AnyNDArray, c: int) -> AnyNDArray:
            return phi.T @ (phi @ residual[at_data.nodes[c]])  # C_c r at the component's nodes

        here = [product(phi, c) for c, phi in enumerate(features)]
        changes = np.zeros((len(moved), *data.shift.shape))
        for change, (which, there) in zip(changes, moved):
            for c in which:
                new = product(evidence.features(there, c), c)
                change[at_data.nodes[c]] = (new - here[c]) / _STEP
        H = np.zeros((len(moved), len(moved)))
        for i, precision in enumerate(data.precision):
            D = scipy.sparse.csr_array(changes[:, :, i])  # of each, its components' nodes
            half = D @ at_data.half[i].T
            H += 0.5 * (scale * (D @ (D @ precision).T) - half @ q.covariance[i] @ half.T)
        return H

    def hessian(self, data: PseudoData, u: AnyNDArray, scale: float = 1.0) -> AnyNDArray:
        """Second derivatives of :meth:`loss` at u, [K, K]."""
        # a round asks for them at its end, then a search at its start, and at last a posterior
        last = self._last_hessian
        if last is None or last[0] is not data or last[1] != (u.tobytes(), scale):
            last = self._last_hessian = data, (u.tobytes(), scale), self._hessian(data, u, scale)
        return last[2]

    def _hessian(self, data: PseudoData, u: AnyNDArray, scale: float) -> AnyNDArray:
        # Features are differenced, a component at a time, and their interaction through the
        # posterior is written out: differences of gradients evaluate every component for every
        # coordinate.
        if not len(u):
            return np.zeros((0, 0))
        learnt, (present, moved) = self.hyperparameters, self._moved(u)
        here = EvidenceEvaluation(self.evidence, data, present, scale)
        bars, masses = here.feature_slopes(), here.masses
        gradients = [b.gradient(*g) for b, *g in zip(here.blocks, bars, masses)]
        rows, nodes = here.projection.inducing, here.projection.nodes
        H = np.zeros((len(moved), len(moved)))
        # changes of features, of each component by coordinates that move it
        changes: list[dict[int, AnyNDArray]] = [{} for _ in rows]
        for j, (step, (which, there)) in enumerate(zip(_STEP * np.eye(len(u)), moved)):
            blocks = {c: self.evidence.block(c, there) for c in which}
            for c, block in blocks.items():
                changes[c][j] = (block.phi - here.blocks[c].phi) / _STEP
            before = added(gradients[c] for c in which)
            after = added(blocks[c].gradient(bars[c], masses[c]) for c in which)
            H[j] += (learnt.pullback(u + step, after) - learnt.pullback(u, before)) / _STEP
        H = 0.5 * (H + H.T)
        # below one another: of each row its coordinate, and which inducing value it is of
        D = [np.concatenate(list(d.values())) for d in changes if d]
        cells = [nodes[c] for c, d in enumerate(changes) if d]
        rows_of = [(j, r) for d, r in zip(changes, rows) for j in d]
        owner = np.concatenate([np.full(r.stop - r.start, j) for j, r in rows_of])
        value = np.concatenate([np.r_[r] for _, r in rows_of])
        sums = np.eye(len(u))[owner]
        for i, (slope, half) in enumerate(zip(here.slopes, here.projection.half)):
            mu, A, s = here.mean[:, i], data.precision[i], data.shift[:, i]
            S = -2.0 * slope - np.outer(mu, mu)
            # changes of Lambda have few rows and columns
            W = np.concatenate([d @ half[:, at].T for d, at in zip(D, cells)])
            X = np.concatenate([scale * (d @ A[at]) for d, at in zip(D, cells)])
            WS = W @ S
            driven = -sums.T @ (W * mu[value][:, None])
            pulls = np.concatenate([scale * (d @ s[at]) for d, at in zip(D, cells)]) - W @ mu
            np.add.at(driven, (owner, value), pulls)
            H += driven @ S @ driven.T
            for d, at, mine in zip(D, cells, slices([len(d) for d in D])):
                # each pair of components once, as twice what is above the diagonal is symmetric
                own, on = value[mine], slice(mine.start, None)
                part = (WS[mine] @ W[on].T) * S[np.ix_(own, value[on])]
                part += WS[mine][:, value[on]] * WS[on, own].T
                part += 2.0 * (d @ X[on, at].T) * slope[np.ix_(own, value[on])]
                part[:, len(d) :] *= 2.0
                H += sums[mine].T @ part @ sums[on]
        return -0.5 * (H + H.T) - differenced(lambda x: learnt.log_prior(x)[1], u)

    def _moved(self, u: AnyNDArray) -> tuple[Values, list[tuple[list[int], Values]]]:
        """Values at u; of each coordinate, components that it moves and values a step further."""
        present = {**self._fixed, **self.hyperparameters.values(u)}
        return lookup(present), [
            (self._users[id(p)], lookup({**present, id(p): value}))
            for p, value in self.hyperparameters.moved(u, _STEP)
        ]


def converged(
    kernel: Kernel,
    likelihood: Likelihood,
    rows: Rows,
    data: PseudoData,
    tolerance: float,
    values: Mapping[int, AnyNDArray] | None = None,
) -> Evaluation:
    """The evaluation at the sites of some rows at fixed parameters, from other sums on."""
    rounds = Rounds(kernel, likelihood, rows, None, learns=False)
    rounds._fixed |= values or {}  # of the kernel's parameters, in place of the present ones
    signed = values is not None  # from near sites on
    begin = FitState(Point(data, np.zeros(0), np.zeros(0)), settled=True, signed=signed)
    return rounds.run(begin, tolerance, _PASSES)[0]
