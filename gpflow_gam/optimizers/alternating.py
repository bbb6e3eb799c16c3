"""Site updates in turn with L-BFGS on hyperparameters at fixed sites."""

from __future__ import annotations

import tensorflow as tf
from gpflow.base import RegressionData

from ..models import AdditiveSVGP
from .minimizers import LBFGS, FitResult, StopFit, Traced, Tracker
from .natural_gradient import check_sites
from .sites import DataSites, SiteSums, collected, data_sites, elbo_at_sites, sweep

_MAX_ROUNDS = 100
_MAX_SITE_STEPS = 50
_MAX_HALVINGS = 30
_FIRST_STEPS, _MOST_STEPS = 10, 80
"""L-BFGS iterations a round: few while sites are stale, doubling as they settle."""


def fit_sites(
    model: AdditiveSVGP,
    data: RegressionData,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
    max_rounds: int = _MAX_ROUNDS,
) -> FitResult:
    """
    Fit q by its sites and hyperparameters by L-BFGS, on all data, in turn.

    :param model: with ``OptimalPrecision``.
    :param data: X and Y, checked.
    :param tracker: of this fit.
    :param max_iterations: limit on site and L-BFGS iterations together.
    :param tolerance: a round that improves the bound by less ends the fit.
    :param max_rounds: limit.
    """
    sites = _Sites(model, data)
    converged, message = False, f"round limit of {max_rounds} reached"
    with tracker:
        try:
            bound = sites.converge(tracker, tolerance)
            if not model.trainable_variables:
                return tracker.result(True, "no hyperparameter is trainable", bound)
            hyperparameters = _Hyperparameters(model, data, sites)
            for k in range(max_rounds):
                hyperparameters.improve(tracker, tolerance, min(_FIRST_STEPS * 2**k, _MOST_STEPS))
                new = sites.converge(tracker, tolerance)
                gain, bound = new - bound, new
                if gain < tolerance:
                    converged = True
                    message = f"the last round of site and hyperparameter steps gained {gain:.2g}"
                    break
                if len(tracker.history) >= max_iterations:
                    message = f"iteration limit of {max_iterations} reached"
                    break
        except StopFit as stop:
            converged, message = stop.converged, stop.message
            bound = sites.settle()
        except KeyboardInterrupt:
            message = tracker.interrupted()
            bound = sites.settle()
        return tracker.result(converged, message, bound)


class _Sites:
    """
    Natural-gradient steps at fixed hyperparameters until the bound stands still.

    First with negative weights as 0, with which every step leads to a posterior; then, from where
    the best is near, with what they are, or q would be too sure.
    """

    def __init__(self, model: AdditiveSVGP, data: RegressionData) -> None:
        family = check_sites(model)
        rows, outputs = int(data[0].shape[0]), model.num_latent_gps
        zeros = tf.zeros([rows, outputs], dtype=data[0].dtype)
        self.weight = tf.Variable(zeros, trainable=False)
        self.shift = tf.Variable(zeros, trainable=False)
        self._signed = signed = tf.Variable(False, trainable=False)

        @Traced
        def visit(precision: tf.Tensor, shift: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Take the site; return the bound there, the sites' sums and negative ones at its q."""
            cholesky = model.blocks.cholesky()
            family.assign_sites(cholesky, precision, shift)
            q = family.whitened(cholesky)
            seen = sweep(model, data, cholesky, q, signed)
            bound = seen.expected - q.kl()
            bound += tf.cast(model.log_prior_density(), bound.dtype)
            return bound, seen.sums.precision, seen.sums.shift, seen.num_negative

        @Traced
        def remember() -> None:
            cholesky = model.blocks.cholesky()
            now = data_sites(model, data, cholesky, family.whitened(cholesky), signed)
            self.weight.assign(now.weight)
            self.shift.assign(now.shift)

        self._visit = visit
        self.remember = remember
        self._present = SiteSums(*family.sites(model.blocks.cholesky()))

    def data_sites(self) -> DataSites:
        """The sites at the last :meth:`remember`."""
        return DataSites(tf.identity(self.weight), tf.identity(self.shift))

    def move_to(self, sums: SiteSums) -> None:
        """Where to begin next, after the hyperparameters have moved."""
        self._present = sums

    def settle(self) -> float:
        """Leave the model at the last site that was taken; returns the bound there."""
        return float(self._visit(*self._present)[0])

    def converge(self, tracker: Tracker, tolerance: float) -> float:
        """Steps of rho = 1, halved where the bound would fall; returns the bound."""
        bound, *target, negative = self._visit(*self._present)
        tracker.record(float(bound))
        for _ in range(_MAX_SITE_STEPS):
            moved = self._step(float(bound), SiteSums(*target), tracker)
            ends = moved is None
            if moved is not None:
                new, *target, negative = moved
                ends = float(new) - float(bound) < 0.1 * tolerance
                bound = new
                tracker.record(float(bound))
            if ends and not bool(self._signed) and float(negative) > 0.0:
                self._signed.assign(True)
                bound, *target, negative = self._visit(*self._present)
            elif ends:
                if moved is None:
                    self.settle()
                break
        return float(bound)

    def _step(
        self, bound: float, target: SiteSums, tracker: Tracker
    ) -> tuple[tf.Tensor, ...] | None:
        old, rho = self._present, 1.0
        for _ in range(_MAX_HALVINGS):
            tracker.check()
            trial = SiteSums(*((1.0 - rho) * a + rho * b for a, b in zip(old, target)))
            try:
                seen: tuple[tf.Tensor, ...] = self._visit(*trial)
                if float(seen[0]) >= bound - 1e-10 * abs(bound):  # false for NaN
                    self._present = trial
                    return seen
            except tf.errors.InvalidArgumentError:
                pass  # the weights overflowed: too long a step
            rho *= 0.5
        return None


class _Hyperparameters:
    """L-BFGS on hyperparameters, the site of each observation held fixed."""

    def __init__(self, model: AdditiveSVGP, data: RegressionData, sites: _Sites) -> None:
        self.sites = sites

        def loss() -> tf.Tensor:
            bound = elbo_at_sites(model, data, sites.data_sites())
            return -(bound + tf.cast(model.log_prior_density(), bound.dtype))

        @Traced
        def collect() -> SiteSums:
            return collected(model, model.blocks.cholesky(), data[0], sites.data_sites())

        self._lbfgs = LBFGS(loss, model.trainable_variables)
        self._collect = collect

    def improve(self, tracker: Tracker, tolerance: float, max_iterations: int) -> None:
        """Some iterations; the sites are carried to the new hyperparameters, come what may."""
        self.sites.remember()
        try:
            self._lbfgs.run(tracker, max_iterations=max_iterations, tolerance=1e-2 * tolerance)
        finally:
            self.sites.move_to(self._collect())
