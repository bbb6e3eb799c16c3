"""Starts of fits of q(U): the null model, or the optimum over dense q."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from gpflow.base import RegressionData

from ..likelihoods import constant_predictor
from ..models import AdditiveSVGP
from ..variational import OptimalPrecision, VariationalFamily
from .binned.fit import fit_rows
from .binned.passes import Rows
from .minimizers import FitResult
from .sites import SiteSums, collected, q_from, sites_at

_MAX_START_ROWS = 20_000
_MAX_START_SIZE = 2_000


def is_untouched(model: AdditiveSVGP) -> bool:
    """True if q still has the zero mean that families are built with."""
    family: VariationalFamily = model.variational
    mean = family.site_shift if isinstance(family, OptimalPrecision) else family.q_mu
    return not bool(tf.reduce_any(tf.not_equal(tf.convert_to_tensor(mean), 0.0)))


def start_from_null_model(model: AdditiveSVGP, data: RegressionData) -> None:
    """
    Set q to the posterior that the sites at the null model give.

    A first step from the prior mean overflows under a log link as soon as counts are large. Does
    nothing where q has P > 2000 values, whose dense precision would cost more than it saves.
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


MAX_DENSE_SIZE = 500
"""Inducing values up to which a fit of dense q first is worth its N P^2 and P^3."""


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
    """
    Bring the q of a dense model into the model's family: a warm start.

    From the null model L-BFGS stops nats short: q, in coordinates that the prior whitens, holds
    the hyperparameters where they are.
    """
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
