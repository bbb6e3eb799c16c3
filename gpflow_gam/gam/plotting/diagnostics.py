"""Panels that show where a fit and its data part."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtri
from scipy.stats import beta

from .figures import Axes, clip_to, faintness, put_title, short
from .residuals import LARGEST

_TEXT = 8
"""With more classes than these, a confusion matrix has no room for numbers."""


def scatter(ax: Axes, x: AnyNDArray, y: AnyNDArray, color: str = "C0") -> None:
    """Many points."""
    ax.plot(
        x, y, ".", color=color, markersize=5.0, markeredgewidth=0.0,
        alpha=faintness(len(x)), rasterized=len(x) > 2000, gid="data",
    )  # fmt: skip


def order_statistics(number: int, level: float = 0.95) -> tuple[AnyNDArray, AnyNDArray]:
    """
    Limits of each of N sorted standard normal values, [N] each.

    Exact, with no need to simulate: the i-th of N sorted uniform values is Beta(i, N + 1 - i).

    :param number: N.
    :param level: probability of each pair of limits.
    """
    i = np.arange(1, number + 1)
    tail = 0.5 * (1.0 - level)
    lower, upper = (ndtri(beta.ppf(p, i, number + 1 - i)) for p in (tail, 1.0 - tail))
    return lower, upper


def draw_qq(ax: Axes, residuals: AnyNDArray) -> None:
    """
    Sorted residuals against normal quantiles, with the 95 % limits of each.

    Residuals too large to be told apart stand at the edge, as arrowheads.
    """
    number = len(residuals)
    quantiles = ndtri((np.arange(1, number + 1) - 0.5) / number)
    lower, upper = order_statistics(number)
    ax.fill_between(quantiles, lower, upper, color="0.85", linewidth=0.0, gid="reference")
    ax.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.8)
    values = np.sort(residuals)
    told = np.abs(values) < LARGEST
    ax.plot(quantiles[told], values[told], ".", color="C0", markersize=4.0, gid="data")
    for sign, marker in ((1.0, "^"), (-1.0, "v")):
        beyond = sign * values >= LARGEST
        if beyond.any():
            ax.plot(
                quantiles[beyond], values[beyond], marker, color="C3", markersize=5.0, gid="beyond",
                label=f"{beyond.sum()} {'above' if sign > 0.0 else 'below'} {sign * LARGEST:.1f}",
            )  # fmt: skip
    if not told.all():
        ax.legend(fontsize="small")
    ax.set_xlabel("normal quantiles")
    ax.set_ylabel("quantile residuals")
    put_title(ax, "QQ plot")


def running_mean(x: AnyNDArray, y: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Means of x and y over a window of rows that moves along x."""
    order = np.argsort(x, kind="stable")
    # a twentieth of the rows, but 30 where a seventh has as many: fewer show only noise
    width = max(min(len(x) // 7, 30), len(x) // 20, 1)
    window = np.full(width, 1.0 / width)
    return np.convolve(x[order], window, "valid"), np.convolve(y[order], window, "valid")


def draw_residuals(ax: Axes, predictor: AnyNDArray, residuals: AnyNDArray, name: str) -> None:
    """Residuals against the predictor with their running mean."""
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    scatter(ax, predictor, residuals)
    ax.plot(*running_mean(predictor, residuals), color="C3", label="running mean")
    ax.legend(fontsize="small", framealpha=0.7)
    ax.set_xlabel("linear predictor")
    ax.set_ylabel(name)
    put_title(ax, "residuals against predictor")


def draw_class_residuals(
    ax: Axes, probabilities: AnyNDArray, F: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """Running means of ``1[y = k] - p_k`` against the predictor of class k, a line a class."""
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    for k, name in enumerate(names):
        residuals = (codes == k) - probabilities[:, k]
        ax.plot(*running_mean(F[:, k], residuals), color=f"C{k}", label=short(name))
    if len(names) <= 10:
        ax.legend(fontsize="small", framealpha=0.7)
    ax.set_xlabel("linear predictor of the class")
    ax.set_ylabel("observed minus probability")
    put_title(ax, "running means of residuals")


def draw_observed(ax: Axes, fitted: AnyNDArray, observed: AnyNDArray) -> None:
    """The response, where it is known, against the expected one; a few far values fall outside."""
    known = ~np.isnan(observed)
    fitted, observed = fitted[known], observed[known]
    if known.any():
        start = float(np.median(fitted))
        ax.axline((start, start), slope=1.0, color="0.6", linewidth=0.8)
        scatter(ax, fitted, observed)
        ends = np.quantile(observed, [0.001, 0.999])
        clip_to(ax, float(min(ends[0], fitted.min())), float(max(ends[1], fitted.max())))
    ax.set_xlabel("fitted")
    ax.set_ylabel("observed")
    put_title(ax, "observed against fitted" + ("" if known.all() else " (uncensored rows)"))


def draw_pit(ax: Axes, uniform: AnyNDArray) -> None:
    """
    A histogram of the residuals on the uniform scale (Dawid 1984), with 95 % limits of each bar.

    :param uniform: P(y' <= y), [N].
    """
    number = len(uniform)
    bars = int(np.clip(number // 15, 5, 20))
    ax.hist(
        uniform, bins=np.linspace(0.0, 1.0, bars + 1).tolist(), density=True, color="C0", alpha=0.6
    )
    half = 1.96 * np.sqrt((bars - 1.0) / number)  # a bar's count is Binomial(N, 1 / bars)
    for height, style in ((1.0, "-"), (1.0 - half, "--"), (1.0 + half, "--")):
        ax.axhline(height, color="0.3", linewidth=0.8, linestyle=style)
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel("probability integral transform")
    ax.set_ylabel("density")
    put_title(ax, "PIT histogram")


def draw_histogram(ax: Axes, residuals: AnyNDArray) -> None:
    """A histogram of response residuals."""
    ax.hist(residuals, bins=int(np.clip(len(residuals) // 10, 5, 40)), color="C0", alpha=0.6)
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    ax.set_xlabel("observed minus fitted")
    ax.set_ylabel("rows")
    put_title(ax, "residuals")


def draw_probabilities(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...], what: str
) -> None:
    """
    Histograms of probabilities by the class observed.

    :param probabilities: [N].
    :param codes: [N].
    :param names: of the classes.
    :param what: whose probability it is.
    """
    bins = np.linspace(0.0, 1.0, 21).tolist()
    for k, name in enumerate(names):
        ax.hist(
            probabilities[codes == k], bins=bins, histtype="stepfilled", color=f"C{k}", alpha=0.35,
            edgecolor=f"C{k}", label=short(name),
        )  # fmt: skip
    if len(names) <= 10:
        ax.legend(title="observed", fontsize="small", framealpha=0.7)
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel(what)
    ax.set_ylabel("rows")
    put_title(ax, "fitted probabilities")


def draw_confusion(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """How often each class was the most probable one, as shares of the class observed."""
    number = len(names)
    counts = np.zeros((number, number), dtype=int)
    np.add.at(counts, (codes, probabilities.argmax(axis=1)), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if number <= _TEXT:
        for (i, j), count in np.ndenumerate(counts):
            color = "white" if shares[i, j] > 0.5 else "black"
            text = f"{shares[i, j]:.0%}\n({count})"
            ax.text(j, i, text, ha="center", va="center", color=color, fontsize="small")
    labels = [short(name, 12) for name in names]
    ax.set_xticks(range(number), labels, rotation=0 if sum(map(len, labels)) < 36 else 90)
    ax.set_yticks(range(number), labels)
    ax.set_xlabel("most probable class")
    ax.set_ylabel("observed class")
    put_title(ax, "confusion matrix")
