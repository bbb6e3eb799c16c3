"""One function that fits any additive model sensibly, and fits of GAMs by sums over rows."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, RegressionData
from gpflow.models import BayesianModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin
from scipy.linalg import solve_triangular

from ..bijectors import restore_on_error, without_bijector_cache
from ..errors import NotPositiveDefinite
from ..kernels.fixed_inputs import fixed_input_kernel
from ..kernels.shaped import shaped_part
from ..likelihoods.base import checked_data
from ..likelihoods.expectations import constant_predictor
from ..models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ..threads import SMALL, check_process, one_blas_thread
from ..variational import OptimalPrecision, VariationalFamily
from .binned.checkpoint import Checkpoint, Snapshot, fingerprint
from .binned.evidence import PseudoData, encoded, features_at_bins, slices, times
from .binned.passes import Rows
from .binned.rounds import MANY_ROWS, Evaluation, FitState, Point, Rounds, StartError
from .binned.solution import (
    CollapsedBound,
    Solution,
    assign_posterior,
    has_shapes,
    learn_under_shapes,
)
from .minimizers import (
    Callback,
    FitResult,
    OnInterrupt,
    Options,
    TimeBudget,
    Tracker,
    converge,
    fit_lbfgs,
    other_optimum,
)
from .newton import fit_newton
from .sites import SiteSums, collected, fit_minibatches, fit_sites, q_from, sites_at

_MAX_START_ROWS = 20_000
START_ROWS = 20_000  # number of rows on which a fit to many more begins
_STAGES = 2_000_000  # number of rows beyond which a fit to a second, larger part comes between
_MAX_START_SIZE = 2_000


def start_from_null_model(model: AdditiveSVGP, data: RegressionData) -> None:
    """Set q to the posterior that the sites at the null model give, if it has up to 2000 values."""
    # A first step from the prior mean overflows under a log link as soon as counts are large.
    family = model.variational
    if family.layout.total > _MAX_START_SIZE:
        return
    X, Y = (tf.convert_to_tensor(a) for a in data)
    number = int(X.shape[0])
    stride = -(-number // _MAX_START_ROWS)
    X, Y = X[::stride], Y[::stride]
    offset = tf.broadcast_to(model.mean_function(X), [tf.shape(X)[0], model.num_latent_gps])
    c = constant_predictor(model.likelihood, X, Y, offset, model.num_latent_gps)
    small = tf.fill(tf.shape(offset), tf.constant(1e-2, dtype=offset.dtype))
    _, sites, _ = sites_at(model, (X, Y), offset + c, small)
    cholesky = model.blocks.cholesky()
    scale = float(model.num_data or number) / float(X.shape[0])
    sums = SiteSums(*(scale * s for s in collected(model, cholesky, X, sites)))
    mean = q_from(model, sums).mean
    posterior = tf.linalg.set_diag(sums.precision, tf.linalg.diag_part(sums.precision) + 1.0)
    family.match(cholesky, mean, posterior)


MAX_DENSE_SIZE = 500  # inducing values up to which a dense fit first is worth its N P^2 and P^3


def dense_model(model: AdditiveSVGP) -> AdditiveSVGP:
    """A model of the same hyperparameters with a q of its own, dense and kept by sites."""
    return AdditiveSVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        variational=OptimalPrecision(),
        mean_function=model.mean_function,
        num_latent_gps=model.num_latent_gps,
    )


def match_dense(model: AdditiveSVGP, dense: AdditiveSVGP) -> None:
    """Set q to a dense model's: from the null model L-BFGS stops nats short, held by the prior."""
    cholesky = model.blocks.cholesky()
    mean = dense.variational.whitened(cholesky).mean
    Lambda, _ = dense.variational.sites(cholesky)  # type: ignore[operator]
    precision = tf.linalg.set_diag(Lambda, tf.linalg.diag_part(Lambda) + 1.0)
    model.variational.match(cholesky, mean, precision)


def start_from_rows(model: AdditiveSVGP, rows: Rows, **options: Any) -> FitResult | None:
    """Fit dense q by sums over rows, which traces nothing, and begin where it ends."""
    if model.variational.layout.total > MAX_DENSE_SIZE:
        return None
    dense = dense_model(model)
    result, _ = fit_rows(dense, rows, **{**options, "callback": None, "progress": False})
    match_dense(model, dense)
    return result


def fit(
    model: BayesianModel,
    data: RegressionData | None = None,
    *,
    max_iterations: int = 1000,
    batch_size: int | None = None,
    learning_rate: float = 0.01,
    rho: float = 0.1,
    tolerance: float = 1e-2,
    patience: int = 5,
    max_seconds: float | TimeBudget | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    on_interrupt: OnInterrupt = "raise",
    seed: int = 0,
    hyperparameters: bool = True,
    max_sweeps: float | None = None,
    max_rounds: int = 20,
) -> FitResult:
    """
    Fit ``model``: its q(U) and every trainable hyperparameter.

    What is done depends on the model:

    - it holds its data (``AdditiveSGPR``, GPflow's own): L-BFGS;
    - ``AdditiveSVGP`` with ``OptimalPrecision``: natural-gradient site updates, in turn with
      L-BFGS on hyperparameters at fixed sites; with minibatches, site updates of step ``rho`` in
      turn with Adam;
    - ``AdditiveSVGP`` with another family: L-BFGS on everything, or Adam with minibatches. Up to
      500 inducing values in all, L-BFGS starts from the optimum over dense q;
    - ``IterNCGP``: Newton steps to the mode and the posterior around it, in turn with L-BFGS on
      hyperparameters at held actions. A further call takes the steps that were to come. It never
      ends with a lower bound than it began with, and gets one step further however small its
      budget.

    Minibatches are used where ``batch_size`` is given. Their epochs end where the ELBO has no trend
    beyond its noise, at a learning rate lowered tenfold; up to 200 000 rows some steps on all data
    follow, and the result says which of it was done. q starts at the null model's posterior,
    unless it was moved from where it was built.

    :param model: the model, changed in place.
    :param data: X [N, D] and Y [N, K], where the model does not hold them.
    :param max_iterations: L-BFGS iterations, epochs over minibatches, or Newton steps.
    :param batch_size: rows a minibatch; models that hold their data take none.
    :param learning_rate: Adam's.
    :param rho: natural-gradient step size on minibatches.
    :param tolerance: improvement of the ELBO, in nats, that no longer counts; of an ``IterNCGP``
        by a round of hyperparameters (its solver has a tolerance of its own).
    :param patience: epochs of minibatches whose mean ELBO is compared with that of as many before.
    :param max_seconds: time budget, in seconds from now or a
        :class:`~gpflow_gam.optimizers.TimeBudget` that runs already. It is asked about before every
        minibatch, step of the sites and evaluation of L-BFGS; the fit ends with the best
        parameters so far.
    :param callback: called once an iteration, except in a start over dense q; a true return value
        ends the fit. That of an ``IterNCGP`` may ask for the posterior of the time,
        ``progress.posterior()``, which takes no sweep; it, too, is a posterior of its own, and
        stays what it is.
    :param progress: a progress bar; by default on a terminal only.
    :param on_interrupt: what Ctrl-C does: ``"raise"`` lets the KeyboardInterrupt through, and the
        model is what it was before; ``"keep"`` ends the fit with the best parameters so far, and
        the result's message says so. Before there are any, it is raised.
    :param seed: of the minibatches' order.
    :param hyperparameters: of an ``IterNCGP``, whether to learn the trainable parameters of kernel,
        likelihood and mean function beside the mode. Other models learn what is trainable.
    :param max_sweeps: of an ``IterNCGP``: passes over the N^2 kernel entries that this call may
        take. The posterior's own sweep is within them, where there are at least two; the comparison
        with the posterior that there was before is not. A search by L-BFGS that has begun is ended
        by time alone.
    :param max_rounds: of an ``IterNCGP``: how often hyperparameters and mode take turns.
    :return: what happened. A fit that was ended early or that broke says so, and leaves the model
        at its best parameters; an ``IterNCGP`` with the posterior of what was computed, or the one
        of before the call where its bound is higher.
    :raises ValueError: bad data or options, naming them.
    :raises KeyboardInterrupt: Ctrl-C. As after any error the model is what it was before.
    :raises ForkedProcessError: this process was forked after TensorFlow had begun to compute.
    :raises TypeError: a model that is not additive and holds no data.
    """
    check_process()
    options = Options(max_iterations, tolerance, batch_size, learning_rate, rho, patience, seed)
    budget = TimeBudget.of(max_seconds)
    if max_sweeps is not None and not max_sweeps > 0.0:
        raise ValueError(f"max_sweeps must be positive; got {max_sweeps}.")

    def tracker(variables: Sequence[tf.Variable], method: str) -> Tracker:
        following = callback, progress, on_interrupt, "ELBO", max_iterations, tolerance
        return Tracker(variables, method, budget, *following)

    if isinstance(model, InternalDataTrainingLossMixin):
        if data is not None:
            raise ValueError(f"data: {type(model).__name__} holds its own; leave the argument out.")
        if batch_size is not None:
            instead = "set max_sweeps" if isinstance(model, IterNCGP) else "build an AdditiveSVGP"
            raise ValueError(f"batch_size: {type(model).__name__} takes no minibatches; {instead}.")
    if isinstance(model, IterNCGP):
        following = tracker([], "IterNCGP")
        return fit_newton(model, following, hyperparameters, max_sweeps, max_rounds)
    if not hyperparameters or max_sweeps is not None:
        raise ValueError(
            "hyperparameters and max_sweeps are options of IterNCGP; got a "
            f"{type(model).__name__}. gpflow.set_trainable holds its parameters."
        )
    if isinstance(model, InternalDataTrainingLossMixin):
        with restore_on_error(model), without_bijector_cache(model):
            following = tracker(model.trainable_variables, "L-BFGS")
            return fit_lbfgs(model, None, following, max_iterations)
    if data is None:
        raise ValueError(f"data: {type(model).__name__} holds none; pass (X, Y).")
    if not isinstance(model, AdditiveSVGP):
        raise TypeError(
            f"model must be additive or hold its data; got {type(model).__name__}, which GPflow's "
            "own optimisers train."
        )
    data = checked_data(data, model.kernel, model.likelihood)
    model.check_precision(data[0])
    rows = int(data[0].shape[0])
    if rows == 0:
        raise ValueError("data has no rows.")
    if model.num_data not in (None, rows):
        raise ValueError(
            f"num_data={model.num_data} of the model is not the {rows} rows of data; the bound "
            "would be of neither."
        )
    with restore_on_error(model), without_bijector_cache(model):
        family: VariationalFamily = model.variational
        mean = family.site_shift if isinstance(family, OptimalPrecision) else family.q_mu
        untouched = not np.any(
            tf.convert_to_tensor(mean)
        )  # q has the zero mean that families are built with
        if untouched:
            start_from_null_model(model, data)
        if batch_size is not None and batch_size < rows:
            return fit_minibatches(model, data, tracker(model.variables, "minibatch"), options)
        if isinstance(model.variational, OptimalPrecision):
            following = tracker(model.variables, "sites + L-BFGS")
            return fit_sites(model, data, following, max_iterations)
        following = tracker(model.trainable_variables, "L-BFGS")
        if untouched and model.variational.layout.total <= MAX_DENSE_SIZE:
            # to the optimum over dense q first
            dense = dense_model(model)
            start_from_null_model(dense, data)
            start = Tracker([], "start", budget, None, False, on_interrupt, tolerance=tolerance)
            begun = fit_sites(dense, data, start, max_iterations)
            match_dense(model, dense)
            if start.ended:
                following.ended = True
                return following.result(False, begun.message, -float(model.training_loss(data)))
        return fit_lbfgs(model, data, following, max_iterations)


# --- by sums over rows ---------------------------------------------------------------------------


_MEASURED = 1000  # number of rows at which the errors of bins and nodes are measured
_SHIFTED = 10_000  # number of rows at which shifts of effects by nodes are measured
_MATTERS = 0.1  # loss in nats up to which its root is a sufficient bound of shifts


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
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    start: tuple[AnyNDArray, AnyNDArray] | PseudoData | None = None,
    **others: Any,
) -> tuple[FitResult, Solution]:
    """Fit q, hyperparameters and the likelihood's parameters by sums over rows."""
    # Options are those of fit; others have no effect. Iterations are passes over the rows, or
    # of L-BFGS on the collapsed bound of Gaussian data, which takes one pass (the default of
    # AdditiveSGPR). Sites begin at start, moments [N, L] of the predictor without m(x) or sums
    # of sites; by default at the null model's.
    Options(max_iterations, tolerance, **others)  # are checked
    if collapsed is None:
        collapsed = isinstance(model, AdditiveSGPR)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    following = max_seconds, callback, progress, on_interrupt
    method = "collapsed bound" if collapsed else "sites + evidence"
    with (
        one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL),
        np.errstate(over="ignore", invalid="ignore"),  # results are checked for finiteness
        restore_on_error(model),
        Tracker([], method, *following, "ELBO", max_iterations, tolerance) as tracker,
        contextlib.nullcontext() if checkpoint is None else checkpoint,
    ):
        if collapsed:
            result, solution = _fit_collapsed(model, rows, tracker, checkpoint)
        else:
            assert isinstance(model, AdditiveSVGP)
            result, solution = _fit_sites(model, rows, tracker, checkpoint, seed, start)
        if has_shapes(model):
            result, solution = learn_under_shapes(model, result, solution, tracker)
        interpolation = _Interpolation(model, solution)
        loss, parts = interpolation.loss()
        shift = interpolation.shift() if loss > _MATTERS else math.sqrt(loss)
        result = dataclasses.replace(
            result,
            discretisation=_discretisation(model, solution),
            interpolation=loss,
            interpolation_by=parts,
            interpolation_shift=shift,
        )
        return result, solution


def _fit_collapsed(
    model: AdditiveSGPR | AdditiveSVGP, rows: Rows, tracker: Tracker, checkpoint: Checkpoint | None
) -> tuple[FitResult, Solution]:
    """Maximise the collapsed bound by L-BFGS, and set the model to the optimum."""
    bound = CollapsedBound(model, rows, watch=tracker.watch(rows.number))
    u, name = bound.rounds.coordinates(), ""
    known: Snapshot | None = None
    if checkpoint is not None:
        name = checkpoint.begin()
        known = checkpoint.stage(name, fingerprint(rows, u))
    if known is not None:
        u = known.arrays["u"]
        tracker.history[:] = known.arrays["history"].tolist()
    converged, message = True, "nothing is trainable"

    def record(x: AnyNDArray, value: float) -> None:
        if checkpoint is not None:
            arrays = {"u": x.copy(), "history": np.array(tracker.history)}
            checkpoint.record(name, lambda: Snapshot({"value": float(value)}, arrays))

    def elsewhere(x: AnyNDArray) -> AnyNDArray | None:
        trials = bound.kernel.elsewhere(bound.split(x)[0])
        search = tracker.tolerance, tracker, bound.metric, bound.alone
        return other_optimum(bound.loss, x, trials, *search)

    try:
        value = bound.loss(u)[0] if known is None else known.numbers["value"]
    except NotPositiveDefinite:
        raise StartError(
            "the bound cannot be computed where the fit starts; standardise the data and look for "
            "extreme values in them."
        ) from None
    if len(u):
        # an iteration's gain says less of what is left than a round's
        step, others = 0.1 * tracker.tolerance, (bound.metric, record, elsewhere, bound.hessian)
        u, converged, message = converge(bound.loss, u, value, step, tracker, *others)
    u = rows.communicator.agreed(u)
    bound.set(u)
    solution = Solution.of_bound(bound, u)
    solution.assign(model)
    return tracker.result(converged, message, -bound.loss(u)[0]), solution


def _fit_sites(
    model: AdditiveSVGP,
    rows: Rows,
    tracker: Tracker,
    checkpoint: Checkpoint | None,
    seed: int,
    given: tuple[AnyNDArray, AnyNDArray] | PseudoData | None = None,
) -> tuple[FitResult, Solution]:
    def rounds_of(some: Rows) -> Rounds:
        return Rounds(model.kernel, model.likelihood, some, tracker)

    rounds, limits = rounds_of(rows), (tracker.tolerance, tracker.max_iterations)
    start = rounds.coordinates()
    name = "" if checkpoint is None else checkpoint.begin()

    def run(
        some: Rounds, stage: str, begin: Callable[[], FitState], rough: bool = False
    ) -> tuple[Evaluation, bool, str]:
        """Rounds, from where an earlier run left them."""
        if checkpoint is None:
            return some.run(begin(), *limits, rough)
        known = checkpoint.stage(stage, fingerprint(some.rows, start))
        if known is not None:
            tracker.history[:] = known.arrays["history"].tolist()
        at = begin() if known is None else FitState.restored(known)

        def record(at: FitState) -> None:
            history = [*tracker.history, at.elbo]
            checkpoint.record(stage, lambda: at.snapshot(history))

        return some.run(at, *limits, rough, record)

    def first() -> FitState:
        if isinstance(given, PseudoData):
            learnt = rounds.hyperparameters.get(), rounds.family.get()
            return FitState(Point(given, *learnt), settled=True)
        if given is not None:
            return FitState(rounds.start_at(*given), settled=True)
        return rounds.start(constant)

    constant, begin, well = np.zeros(rows.num_outputs), first, True
    if (
        given is None
        and rows.number > MANY_ROWS
        and not (checkpoint is not None and checkpoint.knows(name))
    ):
        # most of the way on a part of the rows, whose sites then stand for all
        rng = np.random.default_rng(seed)
        which = np.sort(rng.choice(rows.number, START_ROWS, replace=False))
        part = rounds_of(rows.subset(which))
        now, well, message = run(part, f"{name} part", lambda: part.start(constant), rough=True)
        size = START_ROWS
        if well and rows.number > _STAGES:
            # then on one so large that the Newton step from there to all rows is nearly exact
            size = 2 * math.isqrt(START_ROWS * rows.number)
            which = ((np.arange(size) + rng.uniform(size=size)) * (rows.number / size)).astype(int)
            tracker.restart()
            begun = now.point.scaled(size / START_ROWS)
            second = rounds_of(rows.subset(which))
            now, well, message = run(
                second, f"{name} second part", lambda: FitState(begun, settled=True)
            )
        tracker.restart()  # ELBOs of a part are not the whole's
        start_of_all = FitState(now.point.scaled(rows.number / size), settled=True)

        def begin() -> FitState:
            return start_of_all

    if well:
        now, converged, message = run(rounds, name, begin)
    else:
        now, converged = rounds.evaluate(begin().point), False
    point = now.point
    optimum = np.concatenate([point.u, point.phi])
    rounds.set(optimum)
    if converged and len(rounds.family) and rows.number <= MANY_ROWS:
        # a likelihood may be stuck with all data as noise
        short = rounds.worth(constant, np.zeros_like(constant)) - now.elbo
        if short > 0.0:
            converged = False
            message = (
                f"stuck: a constant predictor is better by {short:.0f} nats. Try another link or "
                "family"
            )
    assign_posterior(model, now.q)
    rounds.tracker = None  # it is of this fit
    solution = Solution(point.data, now.q, optimum, rounds, curvature=now.sweep.curvature)
    return tracker.result(converged, message, now.elbo), solution


def _discretisation(model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> float:
    """The variance that rounding inputs to bins adds, as a share of the noise 1 / w_n of sites."""
    rows = solution.rows
    if all(c.bins.exact for c in rows.components):
        return 0.0
    some, q = rows.known(_MEASURED), solution.q
    places = slices([len(r) for r in q.roots])
    total = 0.0
    for at, mean, var in some.marginals(solution.values, q):
        exact = np.zeros_like(mean)
        for component, root, place in zip(some.components, q.roots, places):
            tangents = fixed_input_kernel(component.kernel, component.inducing, some.X[at])
            _, K, _ = tangents.matrices(solution.values)
            exact += solve_triangular(root, K, lower=True).T @ q.mean[place]
        _, w, _ = some.sites(model.likelihood, at, mean, var)
        total += float(np.sum(w * np.square(exact - mean)))
    return float(some.communicator.total([total])[0]) / some.number


class _Interpolation:
    """Errors delta of features that are interpolated between nodes, and what they matter."""

    def __init__(self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> None:
        self._likelihood, self._names = model.likelihood, model.kernel.names
        self._solution, q, values = solution, solution.q, solution.values
        components = solution.rows.components
        between = [  # splines of shapes are exact
            k
            for k, c in enumerate(components)
            if c.interpolation.matrix is not None and shaped_part(c.kernel) is None
        ]
        at_bins = features_at_bins(components, values, q.roots) if between else []
        self._features = [phi for phi, _ in at_bins]
        self._places = slices([len(phi) for phi in self._features])
        self._errors: dict[int, AnyNDArray] = {}  # by component, [M, G] at bins
        for k in between:
            _, K, _ = components[k].places.at_nodes.matrices(values)
            at_nodes = solve_triangular(q.roots[k], K, lower=True)
            matrix: Any = components[k].interpolation.matrix
            self._errors[k] = np.asarray(self._features[k] - at_nodes @ matrix.T)

    def _weighed(self, some: Rows) -> Iterator[tuple[slice, AnyNDArray]]:
        """Blocks of rows, and weights [n, L] of their sites."""
        for at, mean, var in some.marginals(self._solution.values, self._solution.q):
            yield at, some.sites(self._likelihood, at, mean, var)[1]

    def loss(self) -> tuple[float, dict[str, float]]:
        """About sum_n w_n E_q[(delta_n' v)^2] in nats, and of components."""
        rows, q, parts = self._solution.rows, self._solution.q, dict.fromkeys(self._names, 0.0)
        if not self._errors:
            return 0.0, parts
        some, total = rows.known(_MEASURED), np.zeros(1 + len(self._errors))
        components = [some.components[k] for k in self._errors]
        which = np.concatenate([np.r_[self._places[k]] for k in self._errors])
        places = [slice(None), *slices([len(d) for d in self._errors.values()])]
        for at, w in self._weighed(some):
            there = encoded(components, at)
            delta = [times(d[:, c], m) for d, c, m in zip(self._errors.values(), *there)]
            for i in range(w.shape[1]):
                entered = [i in c.outputs_of(w.shape[1]) for c in components]
                every = np.concatenate([d if e else 0.0 * d for d, e in zip(delta, entered)])
                mu, cov = q.mean[which, i], q.covariance[i][np.ix_(which, which)]
                for j, place in enumerate(places):
                    part = every[place]
                    square = np.square(part.T @ mu[place])
                    square += np.einsum("pn,pn->n", part, cov[place, place] @ part)
                    total[j] += float(w[:, i] @ square)
        total = some.communicator.total([total])[0] * rows.number / some.number
        parts |= zip([self._names[k] for k in self._errors], total[1:].tolist(), strict=True)
        return float(total[0]), parts

    def shift(self) -> float:
        """The largest shift of an effect, in standard errors."""
        # Sums are of features phi_n - delta_n, which moves E[v] by Cov[v] sum_n w_n phi_n
        # delta_n' E[v]: much less than the loss, which bounds it, where errors change sign between
        # nodes.
        rows, q = self._solution.rows, self._solution.q
        some, slope = rows.known(_SHIFTED), np.zeros_like(q.mean)
        pairs = list(zip(self._features, self._places))
        for at, w in self._weighed(some):
            codes, factors = some.encoded(at)
            for i in range(w.shape[1]):
                enters = [i in c.outputs_of(w.shape[1]) for c in some.components]
                error = np.zeros(len(w))
                for k, d in self._errors.items():
                    if enters[k]:
                        error += times((q.mean[self._places[k], i] @ d)[codes[k]], factors[k])
                for k, (phi, place) in enumerate(pairs):
                    if enters[k]:
                        own = times(phi[:, codes[k]], factors[k])
                        slope[place, i] += own @ (w[:, i] * error)
        slope = some.communicator.total([slope])[0] * rows.number / some.number
        largest = 0.0
        for i, covariance in enumerate(q.covariance):
            moved = covariance @ slope[:, i]
            for phi, place in pairs:
                var = np.einsum("mg,mg->g", phi, covariance[place, place] @ phi)
                shift = np.square(phi.T @ moved[place])
                there = var > 1e-12 * np.max(var, initial=0.0)
                largest = max(largest, float(np.max(shift[there] / var[there], initial=0.0)))
        return math.sqrt(largest)
