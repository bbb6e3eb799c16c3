"""Where families of q with fewer parameters begin: at the optimum over dense q."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..models import AdditiveSVGP
from ..variational import OptimalPrecision
from .binned.fit import fit_rows
from .binned.passes import Rows
from .minimizers import FitResult

MAX_TWIN_SIZE = 500
"""Inducing values up to which a twin's dense q is worth its N P^2 and P^3."""


def dense_twin(model: AdditiveSVGP) -> AdditiveSVGP:
    """A model of the same hyperparameters with a q of its own, dense and kept by sites."""
    return AdditiveSVGP(
        model.kernel,
        model.likelihood,
        model.inducing_variable,
        variational=OptimalPrecision(),
        mean_function=model.mean_function,
        num_latent_gps=model.num_latent_gps,
    )


def match_twin(model: AdditiveSVGP, twin: AdditiveSVGP) -> None:
    """
    Bring the twin's q into the model's family.

    From the null model L-BFGS stops nats short: q, in coordinates that the prior whitens, holds
    the hyperparameters where they are.
    """
    cholesky = model.blocks.cholesky()
    mean = twin.variational.whitened(cholesky).mean
    Lambda, _ = twin.variational.sites(cholesky)  # type: ignore[operator]
    precision = tf.linalg.set_diag(Lambda, tf.linalg.diag_part(Lambda) + 1.0)
    model.variational.match(cholesky, mean, precision)


def start_from_rows(model: AdditiveSVGP, rows: Rows, **options: Any) -> FitResult | None:
    """
    Fit the twin by sums over rows, which traces nothing, and begin where it ends.

    :param model: as it was built.
    :param rows: its data.
    :param options: of :func:`~gpflow_gam.optimizers.fit`.
    :return: how the twin's fit ended; None where q is too large for one.
    """
    if model.variational.layout.total > MAX_TWIN_SIZE:
        return None
    twin = dense_twin(model)
    result, _ = fit_rows(twin, rows, **{**options, "callback": None, "progress": False})
    match_twin(model, twin)
    return result
