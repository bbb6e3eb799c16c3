"""How the means of several predictors answer together where rows are left out."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import cholesky, lapack, solve_triangular

MAX_SIZE = 6000
"""Inducing values times predictors beyond which predictors are taken to answer by themselves."""

_ENTRIES = 2**22
"""Numbers that are held at a time."""


class CoupledMeans:
    r"""
    Means without rows, by one Newton step of all predictors together.

    The means maximise the bound at given covariances: :math:`\mu = \sum_n g_n \otimes \phi_n`, with
    ``g_n`` the slopes of row n's expectation in the means of its L predictors. These change with
    the means of *all* of them, by the curvature :math:`C_n`, which a site a predictor leaves out:
    without rows A the step is :math:`-(H - \sum_A C_n \otimes \phi_n \phi_n')^{-1} \sum_A g_n
    \otimes \phi_n`, with :math:`H = I + \sum_n C_n \otimes \phi_n \phi_n'`. With one predictor that
    is what dividing out its site gives.

    :param enters: which features enter which predictor, 1 or 0, [P, L].
    :param slopes: g_n, [N, L].
    :param curvature: C_n, [N, L, L].
    """

    def __init__(self, enters: AnyNDArray, slopes: AnyNDArray, curvature: AnyNDArray) -> None:
        self._slopes, self._curvature = slopes, curvature
        self._enters = enters
        self._P, self._L = P, L = enters.shape
        self._H = np.zeros((L, P, L, P))
        self._root: AnyNDArray | None = None

    def add(self, which: AnyNDArray, phi: AnyNDArray) -> None:
        """
        Rows' part of H.

        :param which: rows by number, [n].
        :param phi: features, [P, n].
        """
        C = self._curvature[which]
        own = [phi * enters[:, None] for enters in self._enters.T]
        for i in range(self._L):
            for j in range(i, self._L):
                part = (own[i] * C[:, i, j]) @ own[j].T
                self._H[i, :, j, :] += part
                if i != j:
                    self._H[j, :, i, :] += part.T

    def factorise(self) -> bool:
        """Once all rows are there: whether H has a factor, as it has where the bound is highest."""
        size = self._L * self._P
        H = self._H.reshape(size, size)
        try:
            self._root = cholesky(H + np.eye(size), lower=True)
        except np.linalg.LinAlgError:
            return False
        return True

    def beyond(self) -> AnyNDArray:
        """
        What predictors that answer together add to the covariance of each by itself, [L, P, P].

        The diagonal blocks of H^-1, which is how means respond to a slight pull (linear response;
        Giordano, Broderick & Jordan 2018), less what they were if the others stayed where they are.
        """
        P, L = self._P, self._L
        whole, _ = lapack.dpotri(self._root, lower=1)  # of which the lower triangle is there
        found = np.zeros((L, P, P))
        for i in range(L):
            at = slice(i * P, (i + 1) * P)
            together = np.tril(whole[at, at])
            together += np.tril(together, -1).T
            found[i] = together - np.linalg.inv(self._H[i, :, i, :] + np.eye(P))
        return 0.5 * (found + np.swapaxes(found, 1, 2))

    def one_by_one(self, which: AnyNDArray, phi: AnyNDArray, mean: AnyNDArray) -> AnyNDArray:
        """
        Means of rows, each without itself, [n, L]; NaN where there are none.

        :param which: rows by number, [n].
        :param phi: features, [P, n].
        :param mean: with all rows, [n, L].
        """
        G = np.empty((len(which), self._L, self._L))
        step = max(1, _ENTRIES // (self._L**2 * self._P))
        for start in range(0, len(which), step):
            T = self._whitened(phi[:, start : start + step])
            G[start : start + step] = np.einsum("ipn,jpn->nij", T, T, optimize=True)
        g, C = self._slopes[which], self._curvature[which]
        pull = np.einsum("nij,nj->ni", G, g)
        A = np.eye(self._L) - np.einsum("nij,njk->nik", G, C)
        good = np.linalg.slogdet(A)[0] > 0.0
        A[~good] = np.eye(self._L)
        moved = mean - np.linalg.solve(A, pull[..., None])[..., 0]
        moved[~good] = np.nan
        found: AnyNDArray = moved
        return found

    def without(
        self, out: AnyNDArray, phi_out: AnyNDArray, phi: AnyNDArray, mean: AnyNDArray
    ) -> AnyNDArray:
        """
        Means of rows without some rows, [m, L]; NaN where there are none.

        :param out: rows left out by number, [k].
        :param phi_out: their features, [P, k].
        :param phi: of the rows predicted, [P, m].
        :param mean: of these with all rows, [m, L].
        """
        L, k = self._L, len(out)
        T, S = self._whitened(phi), self._whitened(phi_out)
        g, C = self._slopes[out], self._curvature[out]
        pull = np.einsum("ipn,ni->p", S, g, optimize=True)  # sum of g (x) phi, whitened
        lever = np.einsum("nij,jpn->inp", C, S, optimize=True).reshape(L * k, -1)
        own = S.transpose(0, 2, 1).reshape(L * k, -1)
        short = k <= self._P
        # (I - U V)^-1 = I + U (I - V U)^-1 V
        A = np.eye(L * k) - lever @ own.T if short else np.eye(L * self._P) - own.T @ lever
        if np.linalg.slogdet(A)[0] <= 0.0:
            return np.full_like(mean, np.nan)
        if short:
            step = pull + own.T @ np.linalg.solve(A, lever @ pull)
        else:
            step = np.linalg.solve(A, pull)
        found: AnyNDArray = mean - np.einsum("ipn,p->ni", T, step, optimize=True)
        return found

    def _whitened(self, phi: AnyNDArray) -> AnyNDArray:
        """Features of each predictor, in which H is one, [L, L P, n]."""
        found = []
        for i in range(self._L):
            whole = np.zeros((self._L * self._P, phi.shape[1]))
            whole[i * self._P : (i + 1) * self._P] = phi * self._enters[:, i, None]
            found.append(solve_triangular(self._root, whole, lower=True))
        return np.stack(found)
