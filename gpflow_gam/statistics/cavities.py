"""What the other rows say of a row: the posterior with the sites of some rows divided out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..kernels.shapes import Values
from .coupled import MAX_SIZE, CoupledMeans
from .encoded import features_at_bins, times
from .expectations import expectations, mean_curvature
from .neighbourhoods import Neighbourhoods
from .posterior import GaussianPosterior
from .rows import Rows

_TOGETHER = 2**13
"""Rows whose features are held at a time."""


@dataclasses.dataclass(frozen=True)
class Sites:
    """
    What each row says of its predictor, as a normal density of it.

    :param weight: precisions w_n, [N, L].
    :param shift: products of precision and mean, m(x) left out, [N, L].
    :param curvature: of several predictors, how the slopes of each row's expectation change with
        the means of all of them, [N, L, L], of which sites of single predictors know the diagonal.
    """

    weight: AnyNDArray
    shift: AnyNDArray
    curvature: AnyNDArray | None = None


class Cavity(NamedTuple):
    """The predictor of some rows without the sites that were divided out, m(x) left out."""

    mean: AnyNDArray
    """[n, L]."""

    var: AnyNDArray
    """[n, L]."""

    posterior: AnyNDArray
    """The mean with all sites, [n, L]."""

    untrusted: AnyNDArray
    """Rows of which dividing out left no variance, [n]; mean and variance are the prior's."""


def sites_of(
    rows: Rows,
    likelihood: Likelihood,
    values: Values,
    q: GaussianPosterior,
    signed: bool = True,
) -> tuple[Sites, GaussianPosterior]:
    """
    The sites of all rows at q, and the posterior that they give.

    The latter is q where the fit has converged. To divide a site that is not negative out of it is
    possible where no other is: what is left has the other rows' sites, whatever q had.

    :param rows: of the data.
    :param likelihood: with weights.
    :param values: of the kernels' parameters.
    :param q: over whitened inducing values.
    :param signed: whether negative weights count, or are taken as 0.
    :raises NotPositiveDefinite: they give no posterior, as negative weights may where q is not
        their fixed point.
    """
    shape = rows.number, rows.num_outputs
    weight, shift, curvature = np.zeros(shape), np.zeros(shape), []
    for at, mean, var in rows.marginals(values, q):
        given = likelihood, rows.X[at], mean + rows.mean[at], var, rows.Y[at]
        found = expectations(*given, ())
        weight[at] = found.precision if signed else np.maximum(found.precision, 0.0)
        shift[at] = found.slope + weight[at] * mean
        if rows.num_outputs > 1:
            curvature.append(mean_curvature(*given))
    whole = np.concatenate(curvature) if curvature else None
    return Sites(weight, shift, whole), rows.posterior(values, q.roots, weight, shift)


class RowPosterior:
    """
    The predictor at rows by way of a normal V: ``phi_n' V`` plus what V leaves open.

    :param features: gives ``phi`` [P, n] of rows by number, and the open variance [n, L].
    :param mean: of V, [P, L].
    :param covariance: of V, [L, P, P].
    :param enters: which of V enter which output, 1 or 0, [P, L].
    """

    def __init__(
        self,
        features: Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]],
        mean: AnyNDArray,
        covariance: AnyNDArray,
        enters: AnyNDArray,
    ) -> None:
        self.features, self.enters = features, enters
        self._moments = mean, covariance
        self._roots = [_root(S) for S in covariance]
        # V = R (R^-1 mean + e), e standard normal
        self._u = [np.linalg.lstsq(R, m, rcond=None)[0] for R, m in zip(self._roots, mean.T)]

    @classmethod
    def of_rows(cls, rows: Rows, values: Values, q: GaussianPosterior) -> RowPosterior:
        """
        Of rows in bins.

        :param rows: of the fit.
        :param values: of the kernels' parameters.
        :param q: with the factors of the prior there.
        """
        found = features_at_bins(rows.components, values, q.roots)
        opens = [prior - np.sum(np.square(phi), axis=0) for phi, prior in found]
        L = q.mean.shape[1]
        entering = np.array(
            [np.isin(np.arange(L), c.outputs_of(L)) for c in rows.components], float
        )

        def features(which: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            parts, left = [], np.zeros((len(which), len(entering[0])))
            for (phi, _), own, component, where in zip(found, opens, rows.components, entering):
                code = component.bins.codes[which]
                m = None if component.multiplier is None else component.multiplier[which]
                parts.append(times(phi[:, code], m))
                left += times(own[code], m, m)[:, None] * where
            return np.concatenate(parts), np.maximum(left, 0.0)

        enters = np.repeat(entering, [len(root) for root in q.roots], axis=0)
        return cls(features, q.mean, q.covariance, enters)

    def one_by_one(self, sites: Sites) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """
        Every row without its own site.

        :param sites: of all rows.
        :return: blocks of rows by number, and what is left of each.
        """
        number, L = sites.weight.shape
        coupled = self._coupled(sites)
        for start in range(0, number, _TOGETHER):
            which = np.arange(start, min(start + _TOGETHER, number))
            phi, left = self.features(which)
            mean, var, posterior = (np.zeros((len(which), L)) for _ in range(3))
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                z = root.T @ self.of(i, phi)
                w, s = sites.weight[which, i], sites.shift[which, i]
                h, a = np.sum(np.square(z), axis=0), z.T @ u
                rest = 1.0 - w * h
                with np.errstate(divide="ignore", invalid="ignore"):
                    mean[:, i], var[:, i] = (a - h * s) / rest, h / rest
                posterior[:, i] = a
            if coupled is not None:
                _moved(mean, coupled.one_by_one(which, phi, posterior))
            yield which, self.trusted(mean, var, posterior, phi, left)

    def by_neighbourhood(
        self, sites: Sites, neighbourhoods: Neighbourhoods
    ) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """
        Every row without the sites of its neighbourhood.

        :param sites: of all rows.
        :param neighbourhoods: rows that are left out together, and those predicted then.
        :return: blocks of rows by number, and what is left of each.
        """
        L = sites.weight.shape[1]
        coupled = self._coupled(sites)
        for batch in neighbourhoods.batches(len(self._roots[0])):
            union = np.unique(np.concatenate([batch.out[batch.left], batch.predicted[batch.asked]]))
            phi, left = self.features(union)
            # what only fills up may be no row of theirs
            out = np.where(batch.left, np.searchsorted(union, batch.out), 0)
            asked = np.where(batch.asked, np.searchsorted(union, batch.predicted), 0)
            which, at = batch.predicted[batch.asked], asked[batch.asked]
            mean, var, posterior = (np.zeros((len(which), L)) for _ in range(3))
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                z = self.of(i, phi).T @ root
                w = np.where(batch.left, sites.weight[batch.out, i], 0.0)
                s = np.where(batch.left, sites.shift[batch.out, i], 0.0)
                root = np.sqrt(np.abs(w))
                found = divided_out(z[asked], z[out], u, root, s, signs_of(w))
                mean[:, i], var[:, i] = (part.numpy()[batch.asked] for part in found)
                posterior[:, i] = z[at] @ u
            if coupled is not None:
                ends = np.cumsum(batch.asked.sum(axis=1))
                for f, stop in enumerate(ends):
                    own = slice(stop - int(batch.asked[f].sum()), stop)
                    gone = batch.out[f][batch.left[f]]
                    phi_out = phi[:, out[f][batch.left[f]]]
                    moved = coupled.without(gone, phi_out, phi[:, at[own]], posterior[own])
                    _moved(mean[own], moved)
            yield which, self.trusted(mean, var, posterior, phi[:, at], left[at])

    def moments(self, output: int) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean [P] and covariance [P, P] of V for an output.

        :param output: which of the L.
        """
        mean, covariance = self._moments
        return mean[:, output], covariance[output]

    def without(
        self, output: int, phi: AnyNDArray, weight: AnyNDArray, shift: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray] | None:
        """
        Mean and covariance of V with some rows' sites divided out; None where that is no Gaussian.

        :param output: of the predictor.
        :param phi: features of the rows, [P, k].
        :param weight: of their sites, [k].
        :param shift: the same.
        """
        root, u = self._roots[output], self._u[output]
        z = root.T @ self.of(output, phi)
        try:
            factor = np.linalg.cholesky(np.eye(len(z)) - (z * weight) @ z.T)
        except np.linalg.LinAlgError:
            return None
        half = np.linalg.solve(factor, root.T)  # [P, P], half'half the covariance
        return half.T @ np.linalg.solve(factor, u - z @ shift), half.T @ half

    def of(self, output: int, phi: AnyNDArray) -> AnyNDArray:
        """
        Features as they are of one output, [P, n].

        :param output: which of the L.
        :param phi: features of all components, [P, n].
        """
        enters = self.enters[:, output]
        return phi if np.all(enters) else phi * enters[:, None]

    def trusted(
        self,
        mean: AnyNDArray,
        var: AnyNDArray,
        posterior: AnyNDArray,
        phi: AnyNDArray,
        left: AnyNDArray,
    ) -> Cavity:
        """
        Cavities whose variance is one; of the others the prior's moments, V being N(0, I).

        :param mean: of what is left, [n, L].
        :param var: the same.
        :param posterior: the mean with all sites, [n, L].
        :param phi: the rows' features, [P, n].
        :param left: the variance that V leaves open, [n, L].
        """
        bad = ~np.all((var >= 0.0) & np.isfinite(var) & np.isfinite(mean), axis=1)
        mean[bad], var[bad] = 0.0, np.square(phi[:, bad]).T @ self.enters
        return Cavity(mean, var + left, posterior, bad)

    def _coupled(self, sites: Sites) -> CoupledMeans | None:
        """The means of several predictors; None of one, or of too many."""
        P = len(self._roots[0])
        if sites.curvature is None or P * len(self._roots) > MAX_SIZE:
            return None
        number = len(sites.weight)
        means = np.zeros_like(sites.weight)
        parts = [np.arange(i, min(i + _TOGETHER, number)) for i in range(0, number, _TOGETHER)]
        for which in parts:
            phi, _ = self.features(which)
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                means[which, i] = (root.T @ self.of(i, phi)).T @ u
        found = CoupledMeans(self.enters, sites.shift - sites.weight * means, sites.curvature)
        for which in parts:
            found.add(which, self.features(which)[0])
        return found if found.factorise() else None


def signs_of(weight: AnyNDArray) -> AnyNDArray | None:
    """
    Signs of sites' precisions, 1 or -1, the shape of ``weight``; None where none is negative.

    :param weight: w_n, of any shape.
    """
    return np.where(weight < 0.0, -1.0, 1.0) if np.any(weight < 0.0) else None


def divided_out(
    predicted: tf.Tensor,
    out: tf.Tensor,
    u: tf.Tensor,
    root_weight: tf.Tensor,
    shift: tf.Tensor,
    sign: AnyNDArray | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance [F, m] of ``z'e`` for e ~ N(u, I) with the sites of some z'e divided out.

    What is left of e has precision ``I - sum_k w_k z_k z_k'`` and mean times precision
    ``u - sum_k s_k z_k``. NaN where that is no precision.

    :param predicted: z of the rows predicted, [F, m, P].
    :param out: z of the rows left out, [F, k, P].
    :param u: [P].
    :param root_weight: square roots of the w_k, signs left out, [F, k].
    :param shift: s_k, [F, k].
    :param sign: of the w_k, 1 or -1, [F, k]; None where none is negative.
    """
    predicted, out, u, r, s = (
        tf.convert_to_tensor(a) for a in (predicted, out, u, root_weight, shift)
    )
    P, k = int(out.shape[2]), int(out.shape[1])
    half = r[..., None] * out  # [F, k, P]
    shifted = u - tf.linalg.matvec(out, s, transpose_a=True)  # [F, P]
    if k > P:
        signed = half if sign is None else half * tf.constant(sign[..., None], half.dtype)
        A = tf.eye(P, dtype=out.dtype) - tf.matmul(signed, half, transpose_a=True)
        root = tf.linalg.cholesky(A)
        T = tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(predicted))
        e = tf.linalg.triangular_solve(root, shifted[..., None])
        mean = tf.matmul(T, e, transpose_a=True)[..., 0]
        return mean, tf.reduce_sum(tf.square(T), axis=1)
    ends = tf.concat([predicted, shifted[:, None, :]], axis=1)  # [F, m + 1, P]
    mean, var = tf.linalg.matvec(predicted, shifted), tf.reduce_sum(tf.square(predicted), axis=2)
    positive = half if sign is None else half * tf.constant(sign[..., None] > 0.0, half.dtype)
    eye, across = tf.eye(k, dtype=out.dtype), tf.matmul(positive, ends, transpose_b=True)
    A = eye - tf.matmul(positive, positive, transpose_b=True)
    if sign is not None:
        # (I + A'A)^-1 = I - A' (I + A A')^-1 A: without negative weights there is more precision,
        # so that these go first
        negative = half - positive
        root = tf.linalg.cholesky(eye + tf.matmul(negative, negative, transpose_b=True))
        T = tf.linalg.triangular_solve(root, tf.matmul(negative, ends, transpose_b=True))
        R = tf.linalg.triangular_solve(root, tf.matmul(negative, positive, transpose_b=True))
        mean -= tf.reduce_sum(T[..., :-1] * T[..., -1:], axis=1)
        var -= tf.reduce_sum(tf.square(T[..., :-1]), axis=1)
        across -= tf.matmul(R, T, transpose_a=True)
        A += tf.matmul(R, R, transpose_a=True)
    # (I - A'A)^-1 = I + A' (I - A A')^-1 A
    B = tf.linalg.triangular_solve(tf.linalg.cholesky(A), across)  # [F, k, m + 1]
    mean += tf.reduce_sum(B[..., :-1] * B[..., -1:], axis=1)
    return mean, var + tf.reduce_sum(tf.square(B[..., :-1]), axis=1)


def _moved(mean: AnyNDArray, to: AnyNDArray) -> None:
    """Means as they are known better, where they are."""
    good = np.all(np.isfinite(to), axis=1)
    mean[good] = to[good]


def marginal_cavities(mean: AnyNDArray, var: AnyNDArray, sites: Sites, prior: AnyNDArray) -> Cavity:
    """
    Every row without its own site, where the predictor's marginals are all that is known.

    :param mean: m(x) left out, [N, L].
    :param var: [N, L].
    :param sites: of the rows.
    :param prior: variances, [N, L].
    """
    rest = 1.0 - sites.weight * var
    with np.errstate(divide="ignore", invalid="ignore"):
        found, spread = (mean - var * sites.shift) / rest, var / rest
    bad = ~np.all((spread >= 0.0) & np.isfinite(spread) & np.isfinite(found), axis=1)
    found[bad], spread[bad] = 0.0, prior[bad]
    return Cavity(found, spread, mean, bad)


def _root(covariance: AnyNDArray) -> AnyNDArray:
    """R with R R' a covariance beside which the prior's is I."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        root: AnyNDArray = vectors * np.sqrt(np.maximum(values, 1e-14))
        return root
