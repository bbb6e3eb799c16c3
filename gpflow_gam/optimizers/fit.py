"""One function that fits any additive model sensibly, and the starts of its fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import BayesianModel
from gpflow.models.training_mixins import InternalDataTrainingLossMixin

from ..bijectors import restore_on_error, without_bijector_cache
from ..errors import check_process
from ..likelihoods.expectations import constant_predictor
from ..likelihoods.support import checked_data
from ..models import AdditiveSVGP, IterNCGP
from ..models.base import check_precision
from ..variational import OptimalPrecision, VariationalFamily
from .binned.fit import fit_rows
from .binned.passes import Rows
from .minimizers import (
    Callback,
    FitResult,
    OnInterrupt,
    Options,
    TimeBudget,
    Tracker,
    fit_lbfgs,
)
from .newton import fit_newton
from .sites import SiteSums, collected, fit_minibatches, fit_sites, q_from, sites_at

_MAX_START_ROWS = 20_000
_MAX_START_SIZE = 2_000


def start_from_null_model(model: AdditiveSVGP, data: RegressionData) -> None:
    """
    Set q to the posterior that the sites at the null model give, if it has up to 2000 values.

    A first step from the prior mean overflows under a log link as soon as counts are large.
    """
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

    - it holds its data (``AdditiveSGPR``, ``AdditiveVGP``, GPflow's own): L-BFGS;
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
    :param callback: called once an iteration; a true return value ends the fit. That of an
        ``IterNCGP`` may ask for the posterior of the time, ``progress.posterior()``, which takes no
        sweep; it, too, is a posterior of its own, and stays what it is.
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
    check_precision(data[0], kernel=model.kernel, likelihood=model.likelihood)
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
                return following.result(False, begun.message, -float(model.training_loss(data)))
        return fit_lbfgs(model, data, following, max_iterations)
