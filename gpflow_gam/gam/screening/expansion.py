"""A fitted GAM as the Gaussian model that its posterior is the posterior of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ...likelihoods import checked_observations, expectation_gradients
from ..effects import inducing_moments
from ..fits import FittedGAM

_BLOCK = 5_000
_NEGLIGIBLE = 1e-12
"""Share of an observation's precision that main effects may take up unnoticed."""


@dataclasses.dataclass(frozen=True)
class Predictor:
    """
    One predictor's part of :class:`Expansion`: ``P = R (D - D E E' D) R``.

    :param root: R, square roots of the observations' precisions W, signs left out, [N].
    :param sign: D, their signs, 1 or -1, [N].
    :param alpha: the gradient of the log-likelihood, [N].
    :param basis: E, [N, R].
    """

    root: AnyNDArray
    sign: AnyNDArray
    alpha: AnyNDArray
    basis: AnyNDArray

    def residual(self, B: AnyNDArray) -> AnyNDArray:
        """(I - E E' D) R B, [N, R]."""
        C = self.root[:, None] * B
        return C - self.basis @ (self.basis.T @ (self.sign[:, None] * C))

    def precision(self, B: AnyNDArray) -> AnyNDArray:
        """B'P B, [R, R], of which negative weights leave nothing negative."""
        C = self.root[:, None] * B
        signed = self.sign[:, None] * C
        shared = self.basis.T @ signed
        found: AnyNDArray = C.T @ signed - shared.T @ shared
        if np.all(self.sign > 0.0):
            return found
        sizes, axes = np.linalg.eigh(found)
        return (axes * np.maximum(sizes, 0.0)) @ axes.T

    def extended(self, B: AnyNDArray, variance: float) -> Predictor:
        """The same with a component of covariance ``variance B B'`` beside it."""
        inner = self.precision(B)
        inner[np.diag_indices_from(inner)] += 1.0 / variance
        L = cholesky(inner, lower=True)
        new = solve_triangular(L, self.residual(B).T, lower=True).T
        shift = new @ solve_triangular(L, B.T @ self.alpha, lower=True)
        alpha = self.alpha - self.root * self.sign * shift
        return Predictor(self.root, self.sign, alpha, np.hstack([self.basis, new]))


class Expansion:
    """
    A Gaussian model of some rows, given all others: what is left for further components to explain.

    With pseudo-observations of precisions W, ``P = (K + W^-1)^-1`` is the precision of the rows
    under the components so far, and alpha = P (pseudo-observations less their expectation).
    Predictors are taken as independent a posteriori, as the fit's own sites are.

    :param predictors: one a predictor.
    """

    def __init__(self, predictors: tuple[Predictor, ...]) -> None:
        self.predictors = predictors

    @check_shapes("B: [N, R]", "return[0]: [K]", "return[1]: [K]")
    def project(self, B: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        What :func:`~gpflow_gam.gam.screening.evidence_gain` needs to know of a component.

        :param B: its features at the rows, [N, R].
        :return: scores and curvatures, R a predictor.
        """
        found = []
        for predictor in self.predictors:
            curvatures, Q = np.linalg.eigh(predictor.precision(B))
            found.append((Q.T @ (B.T @ predictor.alpha), np.maximum(curvatures, 0.0)))
        scores, sizes = zip(*found)
        return np.concatenate(scores), np.concatenate(sizes)

    @check_shapes("B: [N, R]")
    def extended(self, B: AnyNDArray, variance: float) -> Expansion:
        """
        The model with one component more, the components before and W left as they are.

        :param B: the component's features at the rows, [N, R].
        :param variance: what B B' is multiplied by to be its covariance.
        """
        return Expansion(tuple(p.extended(B, variance) for p in self.predictors))


@check_shapes("rows: [n]")
def expand(fit: FittedGAM, rows: AnyNDArray) -> Expansion:
    """
    The Gaussian model at a fit's posterior, at its hyperparameters.

    Observations count as pseudo-observations whose precision and location are those of the
    expected log-likelihood's second and first derivatives (Opper & Archambeau 2009; Khan & Lin
    2017); for Gaussian data they are the observations themselves, and nothing is approximated but
    what inducing inputs approximate. Where log p is not concave precisions may be below 0.

    The main effects are informed by all rows. What is returned is of ``rows`` given the others: a
    gain in its evidence is the gain in log p(y[rows] | y[others]) by a component that acts on
    ``rows`` alone.

    :param fit: the fitted GAM.
    :param rows: indices into its rows of X, [n].
    """
    moments = inducing_moments(fit)
    gradient, weight = _sites(fit)
    try:
        factors = _factors(fit, weight)
    except LinAlgError:  # negative weights of a fit that has not converged
        weight = np.maximum(weight, 0.0)
        factors = _factors(fit, weight)
    phi = moments.all_features(fit.X[rows])[0]
    predictors = []
    for factor, g, w in zip(factors, gradient.T, weight.T):
        root = np.sqrt(np.abs(w[rows]))
        half = solve_triangular(factor, phi * root, lower=True).T
        predictors.append(
            Predictor(root, np.where(w[rows] < 0.0, -1.0, 1.0), g[rows], _leading(half))
        )
    return Expansion(tuple(predictors))


def _factors(fit: FittedGAM, weight: AnyNDArray) -> list[AnyNDArray]:
    """
    Cholesky factors of the posterior's precision, one a predictor.

    :param weight: the sites' precisions, [N, L].
    :raises LinAlgError: that is no precision.
    """
    size = sum(len(c.inducing) for c in fit.spec.components)
    precisions = np.tile(np.eye(size), (fit.num_predictors, 1, 1))
    if fit.whole is not None and fit.solution is not None:
        precisions += fit.solution.q.precision  # of rows that are not here, too
    else:
        moments = inducing_moments(fit)
        for block in _blocks(np.arange(len(fit.X))):
            phi = moments.all_features(fit.X[block])[0]
            for precision, w in zip(precisions, weight.T):
                precision += (phi * w[block]) @ phi.T
    return [cholesky(precision, lower=True) for precision in precisions]


def _sites(fit: FittedGAM) -> tuple[AnyNDArray, AnyNDArray]:
    """Gradients and precisions of all rows, [N, L] each, weights included."""
    gradients, precisions = [], []
    for block in _blocks(np.arange(len(fit.X))):
        X = fit.X[block]
        mean, var = fit.predict_link(X)
        Y = checked_observations(tf.constant(fit.Y[block]), fit.likelihood)
        _, g, w = expectation_gradients(fit.likelihood, tf.constant(X), mean, var, Y)
        gradients.append(np.asarray(g))
        precisions.append(np.asarray(w))
    counts = fit.weights[:, None]
    return counts * np.concatenate(gradients), counts * np.concatenate(precisions)


def _leading(A: AnyNDArray) -> AnyNDArray:
    """E of fewer columns than A [N, P] has, with E E' = A A' but for what is negligible."""
    N, P = A.shape
    sizes, vectors = np.linalg.eigh(A @ A.T if N < P else A.T @ A)
    kept = sizes > _NEGLIGIBLE
    if N < P:
        return vectors[:, kept] * np.sqrt(sizes[kept])
    basis: AnyNDArray = A @ vectors[:, kept]
    return basis


def _blocks(rows: AnyNDArray) -> Iterator[AnyNDArray]:
    for start in range(0, len(rows), _BLOCK):
        yield rows[start : start + _BLOCK]
