"""Dense Laplace posteriors in numpy (Rasmussen & Williams 2006, algorithms 3.1 to 3.3)."""

from collections.abc import Callable

import numpy as np
from scipy.special import log_softmax, softmax


def binary_or_counts(
    K: np.ndarray, derivatives: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Algorithm 3.1 with halved steps: from f -> log p, gradient, W [N] to mode, K^-1 mode, W."""
    N = len(K)
    f = a = np.zeros(N)
    value = derivatives(f)[0].sum()
    for _ in range(100):
        _, gradient, W = derivatives(f)
        root = np.sqrt(W)
        B = np.eye(N) + root[:, None] * K * root
        b = W * f + gradient
        step = b - root * np.linalg.solve(B, root * (K @ b)) - a
        length = 1.0
        while True:
            new = a + length * step
            value_new = derivatives(K @ new)[0].sum() - 0.5 * new @ K @ new
            if value_new >= value - 1e-12 or length < 1e-10:
                break
            length /= 2
        a, f, gain, value = new, K @ new, value_new - value, value_new
        if abs(gain) < 1e-13 * max(1.0, abs(value)):
            break
    return f, a, derivatives(f)[2]


def covariance(K: np.ndarray, W: np.ndarray, Ks: np.ndarray, Kss: np.ndarray) -> np.ndarray:
    """Algorithm 3.2: of f at new points, with Ks [N, M]."""
    root = np.sqrt(W)
    B = np.eye(len(K)) + root[:, None] * K * root
    V = np.linalg.solve(np.linalg.cholesky(B), root[:, None] * Ks)
    return Kss - V.T @ V


def classes(K: np.ndarray, labels: np.ndarray, C: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Algorithm 3.3 with K [N, N] or [CN, CN]: mode [N, C], W [CN, CN] by class, log posterior."""
    N, hit = len(labels), np.eye(C)[labels]
    big = np.kron(np.eye(C), K) if len(K) == N else K

    def value(a: np.ndarray) -> float:
        F = (big @ a).reshape(C, N).T
        return float(log_softmax(F, axis=1)[hit == 1].sum() - 0.5 * a @ big @ a)

    a = np.zeros(C * N)
    for _ in range(100):
        P = softmax((big @ a).reshape(C, N).T, axis=1)
        W = _softmax_precision(P)
        b = W @ big @ a + (hit - P).T.ravel()
        step = np.linalg.solve(np.eye(C * N) + W @ big, b) - a
        length = 1.0
        while value(a + length * step) < value(a) - 1e-12 and length > 1e-10:
            length /= 2
        gain = value(a + length * step) - value(a)
        a = a + length * step
        if abs(gain) < 1e-13:
            break
    F = (big @ a).reshape(C, N).T
    return F, _softmax_precision(softmax(F, axis=1)), value(a)


def _softmax_precision(P: np.ndarray) -> np.ndarray:
    N, C = P.shape
    W = np.zeros((C * N, C * N))
    for n in range(N):
        rows = np.arange(C) * N + n
        W[np.ix_(rows, rows)] = np.diag(P[n]) - np.outer(P[n], P[n])
    return W
