"""The mixture of Tatzel et al. (2025), and its exact Laplace posterior by factorisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

NUM_CLASSES = 10


def mixture(per_class: int, per_class_test: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """
    Ten Gaussian classes in three dimensions: means U[-1, 1]^3, covariances U diag(U[.001, .1]) U'.

    :return: X, labels, X and labels to test on; rows shuffled.
    """
    rng = np.random.default_rng(seed)
    means = rng.uniform(-1, 1, (NUM_CLASSES, 3))
    roots = []
    for _ in range(NUM_CLASSES):
        turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        roots.append(turn * np.sqrt(rng.uniform(0.001, 0.1, 3)))

    def draw(number: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.permutation(np.repeat(np.arange(NUM_CLASSES), number))
        noise = rng.normal(size=(len(labels), 3))
        return means[labels] + np.einsum("nij,nj->ni", np.stack(roots)[labels], noise), labels

    return (*draw(per_class), *draw(per_class_test))


def softmax(F: np.ndarray) -> np.ndarray:
    e = np.exp(F - F.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@dataclass
class DenseLaplace:
    """
    Rasmussen & Williams (2006), algorithms 3.3 and 3.4, with halved steps; classes share K.

    :param K: [N, N].
    :param labels: [N].
    """

    K: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        N, C = len(self.K), NUM_CLASSES
        hit = np.eye(C)[self.labels]
        weights = np.zeros((N, C))
        value = self._value(weights, hit)
        for _ in range(100):
            F = self.K @ weights
            pi = softmax(F)
            self._factorise(pi)
            b = pi * F - pi * np.sum(pi * F, axis=1, keepdims=True) + hit - pi
            c = np.stack([self._E(q, self.K @ b[:, q]) for q in range(C)], axis=1)
            shift = cho_solve(self._sum, c.sum(axis=1))
            new = b - c + np.stack([self._E(q, shift) for q in range(C)], axis=1)
            length, before = 1.0, value
            while True:
                trial = weights + length * (new - weights)
                value = self._value(trial, hit)
                if value >= before - 1e-9 or length < 1e-6:
                    break
                length /= 2
            weights = trial
            if value - before < 1e-7:
                break
        self.weights = weights
        """[N, C]."""
        self.log_posterior = value
        self._factorise(softmax(self.K @ weights))

    def _value(self, weights: np.ndarray, hit: np.ndarray) -> float:
        F = self.K @ weights
        top = F.max(axis=1)
        log_norm = top + np.log(np.exp(F - top[:, None]).sum(axis=1))
        return float(np.sum(hit * F) - log_norm.sum() - 0.5 * np.sum(weights * F))

    def _factorise(self, pi: np.ndarray) -> None:
        """E_q = D^1/2 (I + D^1/2 K D^1/2)^-1 D^1/2, and the sum of all."""
        self._roots = []
        total = np.zeros_like(self.K)
        for q in range(NUM_CLASSES):
            d = np.sqrt(pi[:, q])
            L = np.linalg.cholesky(np.eye(len(d)) + d[:, None] * self.K * d)
            self._roots.append((d, L))
            Z = solve_triangular(L, np.diag(d), lower=True)
            total += Z.T @ Z
        self._sum = cho_factor(total, lower=True)

    def _E(self, q: int, x: np.ndarray) -> np.ndarray:
        d, L = self._roots[q]
        rows = d if x.ndim == 1 else d[:, None]
        return rows * cho_solve((L, True), rows * x)

    def predict(self, Ks: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Means [M, C] and covariances [M, C, C] at new points.

        :param Ks: covariances with the data [M, N].
        :param prior: variances [M].
        """
        C = NUM_CLASSES
        b = [self._E(q, Ks.T) for q in range(C)]
        cov = np.zeros((len(Ks), C, C))
        for q in range(C):
            cov[:, q, q] += prior - np.sum(Ks.T * b[q], axis=0)
            z = cho_solve(self._sum, b[q])
            for p in range(C):
                cov[:, q, p] += np.sum(b[p] * z, axis=0)
        return Ks @ self.weights, cov


def probit(mean: np.ndarray, var: np.ndarray) -> np.ndarray:
    """Class probabilities by MacKay's approximation, [M, C]."""
    return softmax(mean / np.sqrt(1.0 + np.pi / 8.0 * var))


def without_shift(cov: np.ndarray) -> np.ndarray:
    """Variances [M, C] without that of a common shift of all classes."""
    P = np.eye(cov.shape[1]) - 1.0 / cov.shape[1]
    return np.einsum("ncc->nc", P @ cov @ P)
