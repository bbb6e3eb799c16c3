"""Scores of predicted class probabilities, of draws and of quantiles."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray, TensorType

from .errors import check_count, check_level


def accuracy(labels: TensorType, probabilities: TensorType) -> float:
    """
    Share of rows whose most probable class is right.

    :param labels: whole class numbers [N] or [N, 1].
    :param probabilities: [N, C], or [N] or [N, 1] of class 1 out of two.
    :raises ValueError: shapes, labels or probabilities that cannot be.
    """
    y, p = _checked(labels, probabilities)
    return float(np.mean(p.argmax(axis=1) == y))


def nlpd(labels: TensorType, probabilities: TensorType) -> float:
    """
    Mean negative log probability of the right class, in nats; infinite where one has none.

    :param labels: as :func:`accuracy`.
    :param probabilities: as :func:`accuracy`.
    :raises ValueError: as :func:`accuracy`.
    """
    y, p = _checked(labels, probabilities)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(len(y)), y])))


def ece(labels: TensorType, probabilities: TensorType, num_bins: int = 10) -> float:
    """
    Expected calibration error: the mean gap between confidence and accuracy (Guo et al. 2017).

    :param labels: as :func:`accuracy`.
    :param probabilities: as :func:`accuracy`.
    :param num_bins: equal bins of confidence, the probability of the predicted class; each
        includes its upper end.
    :raises ValueError: as :func:`accuracy`; fewer than one bin.
    """
    check_count("num_bins", num_bins)
    y, p = _checked(labels, probabilities)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    gap = 0.0
    for b in np.unique(bins):
        inside = bins == b
        gap += float(inside.mean()) * abs(float(confidence[inside].mean() - right[inside].mean()))
    return gap


def crps(observed: TensorType, draws: TensorType) -> AnyNDArray:
    r"""
    Continuous ranked probability score of each observation, in its unit; lower is better.

    :math:`E|X - y| - E|X - X'| / 2` (Gneiting & Raftery 2007), X and X' being independent draws:
    means over the draws and over all pairs of different ones, which is unbiased. It is the
    integral of twice the pinball loss over all quantiles.

    :param observed: y, [N].
    :param draws: of their predictive distributions, [S, N].
    :return: [N].
    :raises ValueError: other shapes, or fewer than two draws.
    """
    y, x = np.asarray(observed, dtype=float), np.sort(np.asarray(draws, dtype=float), axis=0)
    if y.ndim != 1 or x.shape != (len(x), len(y)) or len(x) < 2:
        raise ValueError(
            f"observed must be [N] and draws [S, N], S at least 2; got {y.shape} and {x.shape}."
        )
    number = len(x)
    pairs = 2.0 * np.arange(1, number + 1) - number - 1.0  # the sum of x_j - x_i, i < j
    return np.abs(x - y).mean(axis=0) - pairs @ x / (number * (number - 1.0))


def pinball(observed: TensorType, quantile: TensorType, level: float) -> AnyNDArray:
    """
    Pinball (quantile) loss of each observation, in its unit; lower is better.

    It is least, on average, of the true quantile (Gneiting & Raftery 2007).

    :param observed: [N].
    :param quantile: predicted, [N].
    :param level: its probability.
    :return: [N].
    :raises ValueError: other shapes, or a level that is no probability.
    """
    check_level(level)
    y, q = np.asarray(observed, dtype=float), np.asarray(quantile, dtype=float)
    if y.ndim != 1 or y.shape != q.shape:
        raise ValueError(f"observed and quantile must be [N]; got {y.shape} and {q.shape}.")
    above = y - q
    return np.maximum(level * above, (level - 1.0) * above)


def _checked(labels: TensorType, probabilities: TensorType) -> tuple[AnyNDArray, AnyNDArray]:
    y, p = np.asarray(labels), np.asarray(probabilities, dtype=float)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    p = p[:, None] if p.ndim == 1 else p
    if y.ndim != 1 or p.ndim != 2 or len(y) != len(p):
        raise ValueError(
            f"labels must be [N] and probabilities [N, C]; got {y.shape} and {p.shape}."
        )
    if len(y) == 0:
        raise ValueError("labels is empty; there is nothing to measure.")
    p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
    if not np.all((p >= 0.0) & (p <= 1.0)) or not np.allclose(p.sum(axis=1), 1.0, atol=1e-4):
        raise ValueError("probabilities must be between 0 and 1, and sum to 1 in each row.")
    try:
        whole = y.astype(float).astype(int)
    except (TypeError, ValueError):
        raise ValueError(f"labels must be whole class numbers; got {y.tolist()[0]!r}.") from None
    if not np.all(whole == y.astype(float)) or whole.min() < 0 or whole.max() >= p.shape[1]:
        raise ValueError(
            f"labels must be whole, 0 to {p.shape[1] - 1}; got {y.min()} to {y.max()}."
        )
    return whole, p
