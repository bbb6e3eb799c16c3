"""Gaussian sites of the observations, and the q and the bound they give."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ..covariances import Features
from ..likelihoods import expectation_gradients
from ..models import AdditiveSVGP
from ..rows import DEFAULT_BLOCK, sum_over_rows
from ..variational import WhitenedGaussian
from ..variational.gaussian import DenseGaussian, from_precision

Rows = tuple[tf.Tensor, ...]


class DataSites(NamedTuple):
    """One Gaussian site per observation and latent output, on the predictor without m(x)."""

    weight: tf.Tensor
    """w_n = -2 dE/dv_n, at least 0, [N, L]: the site's precision."""

    shift: tf.Tensor
    """g_n + w_n rho_n, [N, L]: precision times location."""


class SiteSums(NamedTuple):
    """
    What the sites of all observations add up to, in group order.

    In double precision, whatever the data's: where data are many or tell much, I + Lambda is
    beyond single precision.
    """

    precision: tf.Tensor
    """Lambda = sum_n w_n phi_n phi_n', [L, P, P]."""

    shift: tf.Tensor
    """eta = sum_n shift_n phi_n, [P, L]."""


def sites_at(
    model: AdditiveSVGP,
    data: RegressionData,
    mean: tf.Tensor,
    var: tf.Tensor,
    signed: bool | tf.Tensor = False,
) -> tuple[tf.Tensor, DataSites, tf.Tensor]:
    """
    The sites of observations whose predictor is N(mean, var), m(x) included (Khan & Lin 2017).

    :param mean: [N, L].
    :param var: [N, L].
    :param signed: whether negative weights, which only likelihoods that are not log-concave have,
        are kept; they count as 0 otherwise, so that every sum is a precision.
    :return: E[log p(y_n | rho_n)] [N], the sites, and how many weights were negative.
    """
    X, Y = data
    expected, g, w = expectation_gradients(model.likelihood, X, mean, var, Y)
    negative = tf.reduce_sum(tf.cast(w < 0.0, w.dtype))
    w = tf.where(signed, w, tf.maximum(w, 0.0))
    return expected, DataSites(w, g + w * (mean - model.mean_function(X))), negative


def sums_of(model: AdditiveSVGP, features: Features, sites: DataSites) -> SiteSums:
    """The sums over rows of which the features are given."""
    phi = model.blocks.layout.concat(features.phi)
    weight = _double(tf.transpose(sites.weight))[:, None, :]
    shift = tf.matmul(phi, _double(sites.shift))
    own = phi[None]
    members = model.blocks.layout.spread(model.kernel.members)
    if members is not None:
        own = own * members[:, :, None]
        shift *= members.T
    return SiteSums(tf.matmul(weight * own, own, transpose_b=True), shift)


def collected(
    model: AdditiveSVGP, cholesky: list[tf.Tensor], X: tf.Tensor, sites: DataSites
) -> SiteSums:
    """The sums over all rows of X [N, D], in memory that does not grow with N."""

    def part(inputs: Rows, X: tf.Tensor, weight: tf.Tensor, shift: tf.Tensor) -> Rows:
        features = model.blocks.features(X, list(inputs))
        return sums_of(model, features, DataSites(weight, shift))

    return SiteSums(*sum_over_rows(part, (X, sites.weight, sites.shift), cholesky))


def q_from(model: AdditiveSVGP, sums: SiteSums) -> DenseGaussian:
    """q(V) with precision I + Lambda and shift eta, in double precision."""
    precision = tf.linalg.set_diag(sums.precision, tf.linalg.diag_part(sums.precision) + 1.0)
    return from_precision(model.blocks.layout, precision, sums.shift)[0]


def elbo_at_sites(model: AdditiveSVGP, data: RegressionData, sites: DataSites) -> tf.Tensor:
    """
    The bound as a function of hyperparameters, each observation's site held fixed.

    Tighter than at a fixed mean and covariance, and for a Gaussian likelihood the collapsed bound
    itself (Adam, Chang, Khan & Solin 2021). In double precision, as its optimisers need.
    """
    X, Y = data
    blocks = model.blocks
    cholesky = blocks.cholesky()
    if X.shape[0] is None or X.shape[0] > DEFAULT_BLOCK:
        q = q_from(model, collected(model, cholesky, X, sites))
        return model.expected_log_density(data, cholesky, q) - q.kl()
    features = blocks.features(X, cholesky)  # once, for the sums and for the marginals
    q = q_from(model, sums_of(model, features, sites))
    mean, var = model.marginals(features, q, X)
    expected = model.likelihood.variational_expectations(X, mean, var, Y)
    return tf.reduce_sum(_double(expected)) - q.kl()


class Sweep(NamedTuple):
    """One pass over some rows at a given q; sums in double precision."""

    expected: tf.Tensor
    """sum_n E[log p(y_n | rho_n)], []."""

    sums: SiteSums
    """What the rows' sites add up to."""

    num_negative: tf.Tensor
    """How many weights were negative, []."""


def sweep(
    model: AdditiveSVGP,
    data: RegressionData,
    cholesky: list[tf.Tensor],
    q: WhitenedGaussian,
    signed: bool | tf.Tensor = False,
) -> Sweep:
    """
    The sites of all rows at q and their sums, in memory of one block of rows.

    :param signed: as :func:`sites_at`.
    """
    form, number = q.form(), len(cholesky)

    def part(inputs: Rows, X: tf.Tensor, Y: tf.Tensor) -> Rows:
        features = model.blocks.features(X, list(inputs[:number]))
        mean, var = model.marginals(features, form(inputs[number:]), X)
        expected, sites, negative = sites_at(model, (X, Y), mean, var, signed)
        sums = sums_of(model, features, sites)
        return (tf.reduce_sum(_double(expected)), *sums, _double(negative))

    expected, precision, shift, negative = sum_over_rows(part, data, (*cholesky, *q.tensors()))
    return Sweep(expected, SiteSums(precision, shift), negative)


def data_sites(
    model: AdditiveSVGP,
    data: RegressionData,
    cholesky: list[tf.Tensor],
    q: WhitenedGaussian,
    signed: bool | tf.Tensor = False,
) -> DataSites:
    """
    The site of every row at q, [N, L] each; features are held for one block of rows only.

    :param signed: as :func:`sites_at`.
    """
    X, Y = data
    size = int(X.shape[0])
    parts = []
    for at in range(0, size, DEFAULT_BLOCK):
        rows = X[at : at + DEFAULT_BLOCK], Y[at : at + DEFAULT_BLOCK]
        mean, var = model.marginals(model.blocks.features(rows[0], cholesky), q, rows[0])
        parts.append(sites_at(model, rows, mean, var, signed)[1])
    weights, shifts = zip(*parts)
    return DataSites(tf.concat(weights, axis=0), tf.concat(shifts, axis=0))


def _double(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float64)
