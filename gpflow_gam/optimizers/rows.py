"""Fits of GAMs from sums over rows: what is learnt, and what is kept of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from scipy.linalg import solve_triangular

from ..covariances import InducingBlocks
from ..kernels.tangents import kernel_tangents
from ..likelihoods import Weighted, unwrapped
from ..models import AdditiveSGPR, AdditiveSVGP
from ..statistics import GaussianPosterior, NotPositiveDefinite, PseudoData, Rows
from ..statistics.parallel import one_blas_thread
from ..statistics.posterior import posterior_of, slices
from ..statistics.rows import Watch
from ..statistics.stored import ByBlock
from ..variational import OptimalPrecision
from ..variational.gaussian import DenseGaussian
from .hyperparameters import Hyperparameters, places_of
from .minimizers import FitResult, StopFit, TimeBudget, Tracker, descend
from .minimizers.result import Callback
from .minimizers.tracker import OnInterrupt
from .options import check_options
from .rounds import MANY_ROWS, START_ROWS, Rounds, StartError, State
from .undoing import undone_on_error

SMALL = 1500
"""Inducing values up to which a second thread of linear algebra costs more than it brings."""


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """
    What a fit came to: sums over rows, the hyperparameters, and the posterior they give.

    Everything that asks afterwards how the evidence changes with hyperparameters asks this, and
    touches no row.

    :param rows: the data.
    :param data: the sites' sums.
    :param q: the posterior.
    :param values: of the kernels' parameters.
    :param found: coordinates of what was learnt: the kernels' hyperparameters, then the noise
        variance of a collapsed bound or the likelihood's parameters.
    :param rounds: gave the evidence of the sums, which hold the sites' own weights; or
    :param bound: the collapsed bound of Gaussian data, whose sums are to be divided by the noise.
    :param curvature: of sum_n E_q[log p(y_n)] in the likelihood's parameters, [K, K]; None where
        nobody has asked for it.
    """

    rows: Rows
    data: PseudoData
    q: GaussianPosterior
    values: Callable[[Parameter], AnyNDArray]
    found: AnyNDArray
    rounds: Rounds
    bound: CollapsedBound | None = None
    curvature: AnyNDArray | None = None


def fit_rows(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    *,
    max_iterations: int = 1000,
    tolerance: float = 1e-2,
    max_seconds: float | TimeBudget | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    seed: int = 0,
    collapsed: bool | None = None,
    **others: Any,
) -> tuple[FitResult, Solution]:
    """
    Fit q, hyperparameters and the likelihood's parameters by sums over rows.

    :param model: with a Gaussian likelihood, or with sites; its parameters are where they start,
        and are set to what was found.
    :param rows: its data.
    :param max_iterations: passes over the rows, or L-BFGS iterations where one pass is enough.
    :param tolerance: improvement of the ELBO, in nats, that no longer counts.
    :param max_seconds: time budget. One pass over the rows there has to be.
    :param callback: called once an iteration; a true return value ends the fit.
    :param progress: a progress bar; by default on a terminal only.
    :param on_interrupt: as for :func:`~gpflow_gam.optimizers.fit`.
    :param seed: of the rows on which a fit to many begins.
    :param collapsed: whether q of Gaussian data is put into the bound, which takes one pass; by
        default for :class:`~gpflow_gam.models.AdditiveSGPR`.
    :param others: options of :func:`~gpflow_gam.optimizers.fit` that are of no use here.
    :return: how it ended, and what it came to.
    :raises TypeError: an option that is none.
    :raises ValueError: bad options; or nothing can be computed at the start.
    :raises KeyboardInterrupt: Ctrl-C. As after any error the model is what it was before.
    """
    options: dict[str, Any] = {"batch_size": None, "learning_rate": 0.01, "rho": 0.1, "patience": 5}
    unknown = set(others) - set(options)
    if unknown:
        raise TypeError(f"fit() has no option {unknown.pop()!r}.")
    options |= others
    check_options(max_iterations, tolerance=tolerance, **options)
    number = sum(model.inducing_variable.sizes)
    if collapsed is None:
        collapsed = isinstance(model, AdditiveSGPR)
    method = "collapsed bound" if collapsed else "sites + evidence"
    with (
        one_blas_thread(number <= SMALL),
        undone_on_error(model),
        Tracker([], method, max_seconds, callback, progress, on_interrupt) as tracker,
    ):
        if collapsed:
            result, solution = _fit_gaussian(model, rows, tracker, max_iterations, tolerance)
        else:
            assert isinstance(model, AdditiveSVGP)
            result, solution = _fit_sites(model, rows, tracker, max_iterations, tolerance, seed)
        return dataclasses.replace(result, discretisation=discretisation(model, solution)), solution


def present_solution(
    model: AdditiveSGPR | AdditiveSVGP, rows: Rows, collapsed: bool | None = None
) -> Solution:
    """
    What a model that is fitted already came to: its hyperparameters and q are taken as they are.

    :param rows: its data.
    :param collapsed: as :func:`fit_rows`.
    """
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        if isinstance(model, AdditiveSGPR) or collapsed:
            bound = CollapsedBound(model, rows)
            return bound.solution(bound.start())
        rounds = Rounds(model.kernel, model.likelihood, rows, None)
        values = rounds.values(rounds.hyperparameters.get())
        q = _present_q(model)
        data = rows.sweep(model.likelihood, values, q, tune=False).data
        found = np.concatenate([rounds.hyperparameters.get(), rounds.family.get()])
        return Solution(rows, data, q, values, found, rounds)


def solution_of_sums(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    data: PseudoData,
    q: GaussianPosterior,
    found: AnyNDArray,
    error: tuple[float, float] | None = None,
    curvature: AnyNDArray | None = None,
) -> Solution:
    """
    A solution of which everything is known.

    :param rows: which need have no more than components.
    :param error: of a collapsed bound: the sum of the data's squares, and their number.
    """
    if error is not None:
        bound = CollapsedBound(model, rows, sums=(data, error))
        values = bound.rounds.values(found[: len(bound.kernel)])
        return Solution(rows, data, q, values, found, bound.rounds, bound)
    rounds = Rounds(model.kernel, model.likelihood, rows, None)
    values = rounds.values(found[: len(rounds.hyperparameters)])
    return Solution(rows, data, q, values, found, rounds, curvature=curvature)


def discretisation(
    model: AdditiveSGPR | AdditiveSVGP, solution: Solution, number: int = 1000
) -> float:
    """
    The share by which rounding inputs to bins adds to the noise.

    What a row's predictor changes on the way to its bin is like noise of its own, beside that of
    variance 1 / w_n that its site has: the mean of w_n times the change's square.

    :param number: of rows at which it is measured.
    """
    rows = solution.rows
    if all(c.bins.exact for c in rows.components):
        return 0.0
    some, q = rows.known(number), solution.q
    own = slices([len(r) for r in q.roots])
    found = 0.0
    for _, mean, var in some.marginals(solution.values, q):  # one block, or none
        exact = np.zeros_like(mean)
        for component, root, at in zip(some.components, q.roots, own):
            tangents = kernel_tangents(component.kernel, component.inducing, some.X)
            _, K, _ = tangents.matrices(solution.values)
            exact += solve_triangular(root, K, lower=True).T @ q.mean[at]
        w = np.maximum(some.weights(model.likelihood, mean, var), 0.0)
        found += float(np.sum(w * np.square(exact - mean)))
    return float(some.total(found)[0]) / some.number


# --- Gaussian data ----------------------------------------------------------------------------


class CollapsedBound:
    """
    The collapsed bound of Gaussian data (Titsias 2009): one pass over rows, then none.

    Its coordinates are those of the kernel's hyperparameters, then the noise variance's where that
    is trainable.

    :param model: with a Gaussian likelihood.
    :param rows: its data.
    :param watch: told how far the pass is.
    :param sums: what the pass would come to, where it is known: the sums of the data, and their
        squares' sum and number.
    """

    def __init__(
        self,
        model: AdditiveSGPR | AdditiveSVGP,
        rows: Rows,
        watch: Watch | None = None,
        sums: tuple[PseudoData, tuple[float, float]] | None = None,
    ) -> None:
        self.model = model
        self.rounds = Rounds(model.kernel, model.likelihood, rows, None)
        self.parameter: Parameter = unwrapped(model.likelihood).variance
        self.noise = Hyperparameters([self.parameter] if self.parameter.trainable else [])
        self.noise_places = places_of(self.noise, model.likelihood)
        self._known = float(np.asarray(self.parameter))
        self.kernel = self.rounds.hyperparameters
        self.rows = rows
        if sums is not None:
            self.data, self.error = sums
            return
        self.data = rows.gather(*self._sites(1.0), watch)
        seen = np.zeros(2)
        for w, e in map(self._weighted, rows.blocks()):
            seen += np.sum(w * np.square(e)), np.sum(w) * e.shape[1]
        square, number = rows.total(seen)[0].tolist()
        self.error = square, number

    def _weighted(self, at: slice) -> tuple[AnyNDArray, AnyNDArray]:
        """How often rows count, [n, 1], and what is left of Y without the mean function, [n, L]."""
        e: AnyNDArray = self.rows.Y[at] - self.rows.mean[at]
        likelihood = self.model.likelihood
        if isinstance(self.model, AdditiveSGPR):
            return np.asarray(self.model.weights[at])[:, None], e
        if isinstance(likelihood, Weighted):
            return self.rows.X[at][:, likelihood.column, None], e
        return np.ones((len(e), 1)), e

    def _sites(self, noise: float) -> tuple[ByBlock, ByBlock]:
        """Weights and shifts of Gaussian sites, [N, L] each."""

        def weight(at: slice) -> AnyNDArray:
            w, e = self._weighted(at)
            return np.tile(w / noise, (1, e.shape[1]))

        def shift(at: slice) -> AnyNDArray:
            w, e = self._weighted(at)
            return w * e / noise

        shape = len(self.rows.Y), self.rows.num_outputs
        return ByBlock(shape, weight), ByBlock(shape, shift)

    def start(self) -> AnyNDArray:
        """Present coordinates."""
        return np.concatenate([self.kernel.get(), self.noise.get()])

    def split(self, u: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The kernel's coordinates, and the noise variance."""
        number = len(self.kernel)
        found = self.noise.values(u[number:])
        return u[:number], float(found.get(id(self.parameter), self._known))

    def loss(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Minus the bound and the priors' log-densities, and its gradient."""
        inner, noise = self.split(u)
        values = self.rounds.values(inner)
        evidence = self.rounds.evidence
        value, gradients, along = evidence.value_and_gradient(self.data, values, 1.0 / noise)
        square, number = self.error
        value -= 0.5 * (number * np.log(2.0 * np.pi * noise) + square / noise)
        slope = -along / noise - 0.5 * number / noise + 0.5 * square / noise**2
        prior, prior_slope = self.kernel.log_prior(inner)
        noise_prior, noise_slope = self.noise.log_prior(u[len(inner) :])
        gradient = np.concatenate(
            [
                self.kernel.pullback(inner, gradients) + prior_slope,
                self.noise.pullback(u[len(inner) :], {id(self.parameter): np.asarray(slope)})
                + noise_slope,
            ]
        )
        return -(value + prior + noise_prior), -gradient

    def metric(self, u: AnyNDArray) -> AnyNDArray | None:
        """About how the loss curves, [K, K]; None where that cannot be said."""
        inner, noise = self.split(u)
        own = self.rounds.metric(self.data, inner, 1.0 / noise)
        if own is None:
            return None
        whole = np.zeros((len(u), len(u)))
        whole[: len(inner), : len(inner)] = own
        # known noise's logarithm has information N / 2; how it goes with the rest is left out
        rest = np.arange(len(inner), len(u))
        whole[rest, rest] = 0.5 * self.error[1]
        return whole

    def posterior(self, u: AnyNDArray) -> GaussianPosterior:
        """q at coordinates."""
        inner, noise = self.split(u)
        return self.rounds.evidence.posterior(self.data, self.rounds.values(inner), 1.0 / noise)

    def solution(self, u: AnyNDArray) -> Solution:
        """
        What there is at coordinates, which the model has been set to.

        Nodes have served the search; the posterior that is kept is that of the bins themselves.
        """
        inner, noise = self.split(u)
        values = self.rounds.values(inner)
        q = self.rows.posterior(values, self.posterior(u).roots, *self._sites(noise))
        return Solution(self.rows, self.data, q, values, u, self.rounds, self)

    def set(self, u: AnyNDArray) -> None:
        """Write coordinates to the model."""
        number = len(self.kernel)
        self.kernel.set(u[:number])
        self.noise.set(u[number:])


def _fit_gaussian(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
) -> tuple[FitResult, Solution]:
    bound = CollapsedBound(model, rows, watch=tracker.watch(rows.number))
    u = bound.start()
    best = [u]
    converged, message = True, "nothing is trainable"

    def noted(x: AnyNDArray) -> None:
        best[0] = x

    try:
        value = bound.loss(u)[0]
    except NotPositiveDefinite:
        raise StartError(
            "the bound cannot be computed where the fit starts; standardise the data and look for "
            "extreme values in them."
        ) from None
    try:
        while len(u):
            left = max_iterations - len(tracker.history)
            if left <= 0:
                converged, message = False, f"iteration limit of {max_iterations} reached"
                break
            u, converged, message = descend(
                bound.loss,
                u,
                left,
                tolerance,
                tracker,
                record=True,
                best_seen=noted,
                metric=bound.metric,
            )
            now = bound.loss(u)[0]
            gain, value = value - now, now
            if not converged:
                break
            if gain < tolerance:
                message = f"the last run of L-BFGS gained {gain:.2g} nats"
                break
    except StopFit as stop:
        u, converged, message = best[0], stop.converged, stop.message
    except KeyboardInterrupt:
        u, converged, message = best[0], False, tracker.interrupted()
    bound.set(u)
    solution = bound.solution(u)
    if isinstance(model, AdditiveSVGP):
        assign_posterior(model, solution.q)
    return tracker.result(converged, message, -bound.loss(u)[0]), solution


# --- sites ------------------------------------------------------------------------------------


def _fit_sites(
    model: AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    max_iterations: int,
    tolerance: float,
    seed: int,
) -> tuple[FitResult, Solution]:
    def rounds_of(some: Rows) -> Rounds:
        return Rounds(model.kernel, model.likelihood, some, tracker)

    rounds = rounds_of(rows)
    constant = np.zeros(rows.num_outputs)
    if rows.number > MANY_ROWS:
        # most of the way on a part of the rows, whose sites then count for all
        which = np.sort(np.random.default_rng(seed).choice(rows.number, START_ROWS, replace=False))
        begun = rounds_of(rows.subset(which))
        seen, begun_well, message = begun.run(
            begun.start(constant), tolerance, max_iterations, rough=True
        )
        begin = seen.state
        state = State(begin.data * (rows.number / START_ROWS), begin.u, begin.phi)
        settled = True
        tracker.restart()  # ELBOs of a part are none of the whole's
    else:
        state, settled, begun_well = rounds.start(constant), False, True
    if begun_well:
        seen, converged, message = rounds.run(state, tolerance, max_iterations, settled)
    else:
        seen, converged = rounds.see(state), False
    rounds.hyperparameters.set(seen.state.u)
    rounds.family.set(seen.state.phi)
    assign_posterior(model, seen.q)
    rounds.tracker = None  # which is of this fit
    state, curvature = seen.state, seen.sweep.curvature
    found, values = np.concatenate([state.u, state.phi]), rounds.values(state.u)
    solution = Solution(rows, state.data, seen.q, values, found, rounds, curvature=curvature)
    return tracker.result(converged, message, seen.elbo), solution


def assign_posterior(model: AdditiveSVGP, q: GaussianPosterior) -> None:
    """Give the model the q of what was found, at the hyperparameters that it has."""
    family = model.variational
    assert isinstance(family, OptimalPrecision)
    blocks = model.blocks
    order = blocks.layout.order
    roots = [np.stack([q.roots[i] for i in group.indices]) for group in blocks.groups]
    family.assign_sites(
        [tf.constant(L) for L in roots],
        tf.constant(q.precision[:, order][:, :, order]),
        tf.constant(q.shift[order]),
    )


def _present_q(model: AdditiveSVGP) -> GaussianPosterior:
    """The model's q at the parameters that it has, in the components' order."""
    family, blocks = model.variational, model.blocks
    assert isinstance(family, OptimalPrecision)
    # as it was assigned, where nothing has changed since: to the last bit
    reference = [L0.numpy() for L0 in family.reference]
    cholesky = [L.numpy() for L in blocks.cholesky()]
    if all(_equal(L, L0) for L, L0 in zip(cholesky, reference)):
        factors, precision, shift = reference, *_numbers(family.site_precision, family.site_shift)
    else:
        back = np.argsort(blocks.layout.order)
        factors, (precision, shift) = cholesky, _numbers(*family.sites(blocks.cholesky()))
        precision, shift = precision[:, back][:, :, back], shift[back]
    roots: list[Any] = [None] * len(blocks.layout.sizes)
    for group, L in zip(blocks.groups, factors):
        for i, root in zip(group.indices, L):
            roots[i] = root
    return posterior_of(precision, shift, roots)


def _equal(one: AnyNDArray, other: AnyNDArray) -> bool:
    """Whether factors [G, M, M] are the same up to rounding."""
    return float(np.max(np.abs(one - other))) <= 1e-9 * float(np.max(np.abs(other)))


def _numbers(*tensors: Any) -> tuple[AnyNDArray, ...]:
    return tuple(np.asarray(t) for t in tensors)


def whitened_of(q: GaussianPosterior, blocks: InducingBlocks) -> Callable[[Any], DenseGaussian]:
    """q(V) as posteriors take it: the same whatever factors it is asked at."""
    layout = blocks.layout
    order = layout.order
    covariance = q.covariance[:, order][:, :, order]
    factor = tf.constant(np.linalg.cholesky(covariance))
    mean, log_det = tf.constant(q.mean[order]), tf.constant(q.log_det)
    return lambda _: DenseGaussian(layout, mean, log_det, factor)
