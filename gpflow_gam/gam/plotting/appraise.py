"""Diagnostics of a fit: residuals, calibration, classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from ..fits import FittedGAM, prediction
from .figures import Axes, Figure, clip_to, faintness, panels, put_title, short
from .residuals import LARGEST, observed, quantile_residuals

_Z = 1.96
_NAMED = 10


class Bins(NamedTuple):
    """Means over bins of equal counts, [B] each, with 95 % limits of the observed one."""

    predicted: AnyNDArray
    observed: AnyNDArray
    lower: AnyNDArray
    upper: AnyNDArray


def binned(predicted: AnyNDArray, observed: AnyNDArray, shares: bool = False) -> Bins:
    """
    Mean response against mean prediction in up to ten bins of equal counts.

    Limits are normal ones for the mean, and Wilson's (1927) where responses are zeros and ones.

    :param predicted: [N].
    :param observed: [N].
    :param shares: whether the responses are zeros and ones.
    """
    order = np.argsort(predicted, kind="stable")
    number = int(np.clip(len(order) // 10, 1, 10))
    parts = np.array_split(order, number)
    n = np.array([len(p) for p in parts], dtype=float)
    x = np.array([predicted[p].mean() for p in parts])
    y = np.array([observed[p].mean() for p in parts])
    if shares:
        centre = (y + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(y * (1 - y) / n + _Z**2 / (4 * n**2))
        return Bins(x, y, centre - half, centre + half)
    half = _Z * np.array([observed[p].std() for p in parts]) / np.sqrt(n)
    return Bins(x, y, y - half, y + half)


def draw_bins(ax: Axes, bins: Bins, color: str = "C0", label: str | None = None) -> None:
    """Binned means with their limits, joined."""
    error = np.maximum([bins.observed - bins.lower, bins.upper - bins.observed], 0.0)
    ax.errorbar(
        bins.predicted, bins.observed, error, fmt="o-", color=color, markersize=4.0,
        linewidth=0.9, elinewidth=0.9, label=label, gid="calibration",
    )  # fmt: skip


def identity(ax: Axes) -> None:
    """Where observed equals predicted."""
    ax.axline((0.0, 0.0), slope=1.0, color="0.6", linewidth=0.8, zorder=0)


def draw_calibration(ax: Axes, predicted: AnyNDArray, observed: AnyNDArray) -> None:
    """Binned means of a number."""
    identity(ax)
    draw_bins(ax, binned(predicted, observed))
    ax.set_xlabel("fitted, mean of bin")
    ax.set_ylabel("observed, mean of bin")
    put_title(ax, "calibration")


def draw_reliability(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """
    Shares of classes against their probabilities, a line a class.

    :param probabilities: [N, K].
    :param codes: the classes observed, [N].
    :param names: of the K classes.
    """
    identity(ax)
    for k, name in enumerate(names):
        bins = binned(probabilities[:, k], (codes == k).astype(float), shares=True)
        draw_bins(ax, bins, f"C{k}", short(name))
    if 1 < len(names) <= _NAMED:
        ax.legend(fontsize="small", framealpha=0.7)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("predicted probability")
    ax.set_ylabel("observed share")
    put_title(ax, "calibration")


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


def appraise(fit: FittedGAM, seed: int = 0) -> Figure:
    """
    Four panels that show whether a fit suits its data.

    - Randomised quantile residuals (see :func:`gpflow_gam.gam.plotting.quantile_residuals`) against
      normal quantiles, and against the (first) predictor.
    - A number: observed against fitted, and the histogram of the probability integral transform, or
      binned means where the response is discrete.
    - Two classes: shares against probabilities, and probabilities by class.
    - More classes: shares against probabilities and the confusion matrix; if they have no order,
      the residuals of each class and the probabilities of the observed one instead of the first
      two.
    - A family without a distribution function: response residuals in place of quantile ones.

    Weights are left out. Fitted values are those of ``predict(type="response")``.

    :param fit: the fitted GAM.
    :param seed: of the randomised residuals.
    :return: a new figure.
    :raises ValueError: a likelihood of the user's whose response has several means.
    """
    fitted = prediction.response(fit, fit.X, None, seed).estimate
    F, _ = fit.predict_link(fit.X)
    levels = fit.spec.levels
    if fitted.ndim == 2 and levels is None:
        raise ValueError(
            f"appraise: family {fit.spec.family.name!r} gives {fitted.shape[1]} means a row, and "
            "what they stand for is not known; take a named family."
        )
    figure, axes = panels([1] * 4)
    places = [ax for (ax,) in axes]
    if levels is None:
        _numbers(places, fit, fitted, F, seed)
    else:
        _classes(places, fit, fitted, F, tuple(map(str, levels)), seed)
    return figure


def _numbers(
    axes: list[Axes], fit: FittedGAM, fitted: AnyNDArray, F: AnyNDArray, seed: int
) -> None:
    y = observed(fit)
    limits = fit.spec.family.cdf(fit.likelihood, fit.Y, F)
    factor, shift = fit.units
    predictor = (shift + factor * F)[:, 0]
    draw_observed(axes[2], fitted, y)
    if limits is None:
        draw_histogram(axes[0], y - fitted)
        draw_residuals(axes[1], predictor, y - fitted, "observed minus fitted")
        draw_calibration(axes[3], fitted, y)
        return
    residuals = quantile_residuals(fit, seed)
    draw_qq(axes[0], residuals)
    draw_residuals(axes[1], predictor, residuals, "quantile residuals")
    if not fit.spec.family.discrete:
        draw_pit(axes[3], ndtr(residuals))
    else:
        draw_calibration(axes[3], fitted, y)


def _classes(
    axes: list[Axes],
    fit: FittedGAM,
    fitted: AnyNDArray,
    F: AnyNDArray,
    names: tuple[str, ...],
    seed: int,
) -> None:
    codes = fit.Y[:, 0].astype(int)
    two = fitted.ndim == 1
    probabilities = np.stack([1.0 - fitted, fitted], axis=1) if two else fitted
    if fit.spec.family.cdf(fit.likelihood, fit.Y, F) is None:
        own = np.take_along_axis(probabilities, codes[:, None], axis=1)[:, 0]
        draw_probabilities(axes[0], own, codes, names, "probability of the observed class")
        draw_class_residuals(axes[1], probabilities, F, codes, names)
    else:
        residuals = quantile_residuals(fit, seed)
        draw_qq(axes[0], residuals)
        draw_residuals(axes[1], F[:, 0], residuals, "quantile residuals")
    if two:
        # one line: that of the first class mirrors it
        draw_reliability(axes[2], fitted[:, None], 1 - codes, names[1:])
        draw_probabilities(axes[3], fitted, codes, names, f"probability of {names[1]}")
    else:
        draw_reliability(axes[2], probabilities, codes, names)
        draw_confusion(axes[3], probabilities, codes, names)
