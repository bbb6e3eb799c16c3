"""Diagnostics of a fit: residuals, calibration, classes; and how predictions order other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from ...errors import check_count
from ...likelihoods.times import EXACT, entry
from ..families import Cox, Quantile
from ..fits import FittedGAM
from ..fits.fitted import encoded
from ..fits.prediction import Prediction
from ..fits.reading import in_memory
from ..frames.encoding import NumericColumn, learn_levels
from ..frames.table import Table, kind_of_time
from ..summaries.checks import LARGEST, autocorrelations, quantile_residuals
from ..terms.base import Column
from .tables import clip_to, faintness, panels, put_labels, short

_Z = 1.96
_NAMED = 10  # with more classes than these, a legend hides the lines
_NEIGHBOURS = 3  # columns along which residuals' correlation is written into a panel
_TEXT = 8  # with more classes than these, a confusion matrix has no room for numbers


def binned(
    predicted: AnyNDArray, observed: AnyNDArray, shares: bool = False
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Means [B] over up to ten bins of about equal counts, and how far 95 % intervals go [2, B]."""
    # Intervals are normal ones for the mean, and Wilson's (1927) for shares of zeros and ones.
    number = int(np.clip(len(predicted) // 10, 1, 10))
    parts = _parts(predicted, np.ones(len(predicted)), number)
    n = np.array([len(p) for p in parts], dtype=float)
    x = np.array([predicted[p].mean() for p in parts])
    y = np.array([observed[p].mean() for p in parts])
    if shares:
        centre = (y + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * np.sqrt(y * (1 - y) / n + _Z**2 / (4 * n**2))
        return x, y, np.maximum([y - (centre - half), centre + half - y], 0.0)
    half = _Z * np.array([observed[p].std() for p in parts]) / np.sqrt(n)
    return x, y, np.stack([half, half])


def draw_bins(
    ax: Axes,
    x: AnyNDArray,
    y: AnyNDArray,
    error: AnyNDArray,
    color: str = "C0",
    label: str | None = None,
) -> None:
    """Binned means with their intervals, joined."""
    ax.errorbar(
        x, y, error, fmt="o-", color=color, markersize=4.0,
        linewidth=0.9, elinewidth=0.9, label=label, gid="calibration",
    )  # fmt: skip


def _draw_identity(ax: Axes, start: float = 0.0, zorder: float = 0.0) -> None:
    ax.axline((start, start), slope=1.0, color="0.6", linewidth=0.8, zorder=zorder)


def draw_reliability(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """Shares of classes against their probabilities, a line a class."""
    _draw_identity(ax)
    for k, name in enumerate(names):
        bins = binned(probabilities[:, k], (codes == k).astype(float), shares=True)
        draw_bins(ax, *bins, f"C{k}", short(name))
    if 1 < len(names) <= _NAMED:
        ax.legend(fontsize="small", framealpha=0.7)
    ax.set_xlim(-0.03, 1.03)
    ax.set_ylim(-0.03, 1.03)
    put_labels(ax, "predicted probability", "observed share", "calibration")


def _scatter(ax: Axes, x: AnyNDArray, y: AnyNDArray) -> None:
    ax.plot(
        x, y, ".", color="C0", markersize=5.0, markeredgewidth=0.0,
        alpha=faintness(len(x)), rasterized=len(x) > 2000, gid="data",
    )  # fmt: skip


def order_statistics(number: int) -> tuple[AnyNDArray, AnyNDArray]:
    """95 % intervals of each of N sorted standard normal values, [N] each end."""
    i = np.arange(1, number + 1)
    lower, upper = (ndtri(beta.ppf(p, i, number + 1 - i)) for p in (0.025, 0.975))
    return lower, upper


def draw_qq(ax: Axes, residuals: AnyNDArray) -> None:
    """Sorted residuals against normal quantiles, with a 95 % interval of each."""
    number = len(residuals)
    quantiles = ndtri((np.arange(1, number + 1) - 0.5) / number)
    lower, upper = order_statistics(number)
    ax.fill_between(quantiles, lower, upper, color="0.85", linewidth=0.0, gid="reference")
    _draw_identity(ax, zorder=2.0)
    values = np.sort(residuals)
    exact = np.abs(values) < LARGEST
    ax.plot(quantiles[exact], values[exact], ".", color="C0", markersize=4.0, gid="data")
    for sign, marker in ((1.0, "^"), (-1.0, "v")):
        beyond = sign * values >= LARGEST
        if beyond.any():
            ax.plot(
                quantiles[beyond], values[beyond], marker, color="C3", markersize=5.0, gid="beyond",
                label=f"{beyond.sum()} {'above' if sign > 0.0 else 'below'} {sign * LARGEST:.1f}",
            )  # fmt: skip
    if not exact.all():
        ax.legend(fontsize="small")
    put_labels(ax, "normal quantiles", "quantile residuals", "QQ plot")


def running_mean(x: AnyNDArray, y: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Means of x and y over a window of rows that moves along x; rows of one x share their y."""
    place, order = _places(x), np.argsort(x)
    y = (np.bincount(place, y) / np.bincount(place))[place]
    # a twentieth of the rows, but 30 where a seventh has as many: fewer show only noise
    width = max(min(len(x) // 7, 30), len(x) // 20, 1)
    window = np.full(width, 1.0 / width)
    return np.convolve(x[order], window, "valid"), np.convolve(y[order], window, "valid")


def draw_residuals(
    ax: Axes, predictor: AnyNDArray, residuals: AnyNDArray, name: str, mean: bool = True
) -> None:
    """Residuals against the predictor with their running ``mean``, where this should be zero."""
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    _scatter(ax, predictor, residuals)
    if mean:
        ax.plot(*running_mean(predictor, residuals), color="C3", label="running mean")
        ax.legend(fontsize="small", framealpha=0.7)
    put_labels(ax, "linear predictor", name, "residuals against predictor")


def draw_class_residuals(
    ax: Axes, probabilities: AnyNDArray, F: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """Running means of ``1[y = k] - p_k`` against the predictor of class k, a line a class."""
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    for k, name in enumerate(names):
        residuals = (codes == k) - probabilities[:, k]
        ax.plot(*running_mean(F[:, k], residuals), color=f"C{k}", label=short(name))
    if len(names) <= _NAMED:
        ax.legend(fontsize="small", framealpha=0.7)
    title = "running means of residuals"
    put_labels(ax, "linear predictor of the class", "observed minus probability", title)


def draw_observed(ax: Axes, fitted: AnyNDArray, observed: AnyNDArray) -> None:
    """The response, where it is known, against the expected one; a few far values fall outside."""
    known = ~np.isnan(observed)
    fitted, observed = fitted[known], observed[known]
    if known.any():
        _draw_identity(ax, float(np.median(fitted)), zorder=2.0)
        _scatter(ax, fitted, observed)
        ends = np.quantile(observed, [0.001, 0.999])
        clip_to(ax, float(min(ends[0], fitted.min())), float(max(ends[1], fitted.max())))
    rows = "" if known.all() else " (uncensored rows)"
    put_labels(ax, "fitted", "observed", f"observed against fitted{rows}")


def draw_hazards(ax: Axes, fit: FittedGAM, F: AnyNDArray) -> None:
    """Survival, ``exp(-H)``, in about thirds of rows by predictor: of events, and by the fit."""
    # both of hazards of the rows at risk in short intervals
    Y, family = fit.Y, fit.spec.family
    assert isinstance(family, Cox)
    start, stop, event = entry(Y), Y[:, 0], Y[:, 2] == EXACT
    times = np.unique([start.min(), *np.quantile(stop[event], np.linspace(0.0, 1.0, 101))])
    spent = np.minimum(stop[:, None], times[1:]) - np.maximum(start[:, None], times[:-1])
    at_risk = np.clip(spent / np.diff(times), 0.0, 1.0)
    S = family.survival(fit.likelihood, times, F[:, None, :])
    expected = at_risk * np.diff(-np.log(S), axis=1)
    thirds = _parts(F[:, 0], np.ones(len(F)), 3)
    names = {1: ("all",), 2: ("lower", "higher")}.get(len(thirds), ("lowest", "middle", "highest"))
    interval = np.searchsorted(times, stop) - 1  # (t_k, t_k+1]: at a time's risk are who reach it
    for i, (rows, name) in enumerate(zip(thirds, names)):
        seen = np.bincount(interval[rows][event[rows]], minlength=len(times) - 1)
        number = np.maximum(at_risk[rows].sum(axis=0), 1e-12)
        events = seen, expected[rows].sum(axis=0)
        for sums, style, label in zip(events, ("-", "--"), (name, None)):
            H = np.concatenate([[0.0], np.cumsum(sums / number)])
            ax.plot(times, np.exp(-H), style, color=f"C{i}", linewidth=1.1, label=label)
    ax.legend(title="hazard", fontsize="small", framealpha=0.7)
    put_labels(ax, "time", "surviving", "observed survival and fitted (dashed)")


def draw_pit(ax: Axes, uniform: AnyNDArray) -> None:
    """Histogram of residuals on the uniform scale (Dawid 1984), with 95 % intervals."""
    number = len(uniform)
    bars = int(np.clip(number // 15, 5, 20))
    ax.hist(
        uniform, bins=np.linspace(0.0, 1.0, bars + 1).tolist(), density=True, color="C0", alpha=0.6
    )
    half = _Z * np.sqrt((bars - 1.0) / number)  # a bar's count is Binomial(N, 1 / bars)
    for height, style in ((1.0, "-"), (1.0 - half, "--"), (1.0 + half, "--")):
        ax.axhline(height, color="0.3", linewidth=0.8, linestyle=style)
    ax.set_xlim(0.0, 1.0)
    put_labels(ax, "probability integral transform", "density", "PIT histogram")


def draw_probabilities(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...], what: str
) -> None:
    """Histograms of probabilities by the class observed."""
    bins = np.linspace(0.0, 1.0, 21).tolist()
    for k, name in enumerate(names):
        ax.hist(
            probabilities[codes == k], bins=bins, histtype="stepfilled", color=f"C{k}", alpha=0.35,
            edgecolor=f"C{k}", label=short(name),
        )  # fmt: skip
    if len(names) <= _NAMED:
        ax.legend(title="observed", fontsize="small", framealpha=0.7)
    ax.set_xlim(0.0, 1.0)
    put_labels(ax, what, "rows", "fitted probabilities")


def draw_confusion(
    ax: Axes, probabilities: AnyNDArray, codes: AnyNDArray, names: tuple[str, ...]
) -> None:
    """Confusion matrix of the most probable class, as shares of the class observed."""
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
    put_labels(ax, "most probable class", "observed class", "confusion matrix")


def appraise(fit: FittedGAM, seed: int = 0) -> Figure:
    """
    Four panels that show whether a fit suits its data.

    - Randomised quantile residuals (:func:`gpflow_gam.gam.plotting.quantile_residuals`) against
      normal quantiles, and against the (first) predictor; the correlation of neighbours' along
      columns that order the rows, as :meth:`gpflow_gam.GAM.summary` has it.
    - A number: observed against fitted, and the histogram of the probability integral transform, or
      binned means where the response is discrete.
    - Two classes: shares against probabilities, and probabilities by class.
    - More classes: shares against probabilities and the confusion matrix; if they have no order,
      the residuals of each class and the probabilities of the observed one instead of the first
      two.
    - Cox's family: observed and fitted survival in thirds of the rows, in place of the third.
    - A family without a distribution function: response residuals in place of quantile ones; of a
      quantile's, shares of responses at or below it in place of their means.

    Weights are left out. Fitted values are those of ``predict(type="response")``.

    :param fit: the fitted GAM.
    :param seed: of the randomised residuals.
    :return: a new figure.
    :raises ValueError: a likelihood of the user's whose response has several means.
    """
    family, fitted = fit.spec.family, Prediction(fit, seed=seed).response(fit.X).estimate
    F, _ = fit.predict_link(fit.X)
    levels = fit.spec.levels
    if fitted.ndim == 2 and levels is None:
        raise ValueError(
            f"appraise: family {family.name!r} gives {fitted.shape[1]} means a row, and "
            "what they stand for is not known; take a named family."
        )
    figure, axes = panels([1] * 4)
    first, second, third, fourth = (ax for (ax,) in axes)
    factor, shift = fit.units
    predictor = (shift + factor * F)[:, 0]
    residuals = None
    if family.cdf(fit.likelihood, fit.Y, F) is not None:
        residuals = quantile_residuals(fit, seed)
        draw_qq(first, residuals)
        draw_residuals(second, predictor, residuals, "quantile residuals")
        neighbours = [f"{name} {r:.2f}" for name, r in autocorrelations(fit).items()]
        if neighbours:
            label = "correlation of neighbours: " + ", ".join(neighbours[:_NEIGHBOURS])
            second.annotate(label, (0.02, 0.02), xycoords="axes fraction", fontsize="small")
    if levels is None:
        y = family.observed(fit.Y)
        if isinstance(family, Cox):
            draw_hazards(third, fit, F)
        else:
            draw_observed(third, fitted, y)
        if residuals is None:
            first.hist(y - fitted, int(np.clip(len(y) // 10, 5, 40)), color="C0", alpha=0.6)
            first.axvline(0.0, color="0.4", linewidth=0.8)
            put_labels(first, "observed minus fitted", "rows", "residuals")
            centred = not isinstance(family, Quantile)
            draw_residuals(second, predictor, y - fitted, "observed minus fitted", centred)
        if isinstance(family, Quantile):
            fourth.axhline(family.tau, color="0.6", linewidth=0.8, zorder=0, gid="reference")
            draw_bins(fourth, *binned(fitted, (y <= fitted).astype(float), shares=True))
            label = f"share at or below, for {family.tau:g}"
            put_labels(fourth, "fitted, mean of bin", label, "calibration")
        elif residuals is None or family.discrete:
            _draw_identity(fourth)
            draw_bins(fourth, *binned(fitted, y))
            put_labels(fourth, "fitted, mean of bin", "observed, mean of bin", "calibration")
        else:
            draw_pit(fourth, ndtr(residuals))
        return figure
    names, codes = tuple(map(str, levels)), fit.Y[:, 0].astype(int)
    two = fitted.ndim == 1
    probabilities = np.stack([1.0 - fitted, fitted], axis=1) if two else fitted
    if residuals is None:
        observed_class = np.take_along_axis(probabilities, codes[:, None], axis=1)[:, 0]
        draw_probabilities(first, observed_class, codes, names, "probability of the observed class")
        draw_class_residuals(second, probabilities, F, codes, names)
    if two:
        # one line: that of the first class mirrors it
        draw_reliability(third, fitted[:, None], 1 - codes, names[1:])
        draw_probabilities(fourth, fitted, codes, names, f"probability of {names[1]}")
    else:
        draw_reliability(third, probabilities, codes, names)
        draw_confusion(fourth, probabilities, codes, names)
    return figure


# --- lift -----------------------------------------------------------------------------------------


_WIDE, _MANY = 40, 20  # characters of labels that stand side by side, and labels that lean


def lift(
    fit: FittedGAM, data: Any, other: Any = None, groups: int = 10, by: Column | None = None
) -> Figure:
    """
    Charts of a ``fit``'s order of risks: see :meth:`gpflow_gam.GAM.draw_lift`.

    ``data``, ``other``, ``groups`` and ``by`` are its arguments. Intervals of actual means are of
    responses that scatter around the expected ones.

    :raises ValueError: as ``draw_lift``.
    """
    check_count("groups", groups, 2)
    table = in_memory(data)
    actual, expected, exposure = _responses(fit, table)
    rate = expected / exposure
    figure, axes = panels([1] * (2 + (other is not None) + (by is not None)))
    response = str(fit.spec.response or "response")
    first, second = axes[0][0], axes[1][0]
    parts = _parts(rate, exposure, groups)
    _draw_means(first, parts, actual, exposure, {"expected": expected}, response)
    put_labels(first, "group, by expected response", first.get_ylabel(), "Actual and expected")
    _draw_lorenz(second, rate, actual, exposure, "this model")
    if other is not None:
        theirs = _other(other, table, exposure, fit)
        _draw_lorenz(second, theirs / exposure, actual, exposure, "the other")
        parts = _parts(expected / theirs, exposure, groups)
        both = {"this model": expected, "the other": theirs}
        _draw_means(axes[2][0], parts, actual, exposure, both, response)
        label = axes[2][0].get_ylabel()
        put_labels(axes[2][0], "group, by ratio of the models", label, "Double lift")
    if by is not None:
        last = axes[-1][0]
        parts, labels = _by_column(table, by, exposure, groups)
        _draw_means(last, parts, actual, exposure, {"expected": expected}, response)
        put_labels(last, str(by), last.get_ylabel(), f"Actual and expected by {by}")
        rotation = 90 if len(labels) > _MANY else 45 if sum(map(len, labels)) > _WIDE else 0
        last.set_xticks(range(1, len(parts) + 1), labels, rotation=rotation)
    ends = [0.0, 1.0]
    second.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
    title = "Lorenz curve of the order of risks"
    put_labels(second, "share of exposure, lowest first", f"share of {response}", title)
    second.legend(frameon=False, fontsize="small")
    return figure


def _responses(fit: FittedGAM, table: Table) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Actual and expected responses and exposures, [N] each."""
    spec, weights = fit.spec, _weights(fit, table)
    if not np.all(weights > 0.0):
        raise ValueError("draw_lift: rows of weight zero have no exposure; leave them out of data.")
    actual = spec.family.observed(spec.encoded(table, spec.levels).Y)
    expected = np.asarray(Prediction(fit, seed=0).predict(table))
    if expected.ndim > 1 or np.isnan(actual).any():
        raise ValueError(
            f"draw_lift: a response of family {spec.family.name!r} is no amount or share; take a "
            "family of counts, amounts or two classes."
        )
    exposure = np.ones(len(actual))
    if spec.family.log_link and spec.offset:
        X = encoded(fit, table)
        exposure = np.exp(X[:, [spec.place(c) for c in spec.offset]].sum(axis=1))
    if not np.all(expected > 0.0) or np.any(actual < 0.0) or not np.sum(weights * actual) > 0.0:
        raise ValueError("draw_lift: responses must not be negative, and expected ones positive.")
    return weights * actual, weights * expected, weights * exposure


def _weights(fit: FittedGAM, table: Table) -> AnyNDArray:
    """Prior weights and trials of the rows, [N]; ones where the table has none."""
    columns = [table.values(c) for c in fit.spec.counting if c in table]
    return np.prod([np.ones(table.num_rows), *columns], axis=0, dtype=np.float64)


def _other(other: Any, table: Table, exposure: AnyNDArray, fit: FittedGAM) -> AnyNDArray:
    """Expected responses of the other model, [N]: a fitted GAM, or N numbers."""
    model = getattr(other, "fitted", None)
    if isinstance(model, FittedGAM):
        other = Prediction(model, seed=0).predict(table)
    values = np.asarray(other, dtype=np.float64)
    if values.shape != exposure.shape or not np.all(values > 0.0):
        raise ValueError(
            f"other must be a fitted GAM or {len(exposure)} positive expected responses; got shape "
            f"{values.shape}."
        )
    return values * _weights(fit, table)


def _places(score: AnyNDArray) -> AnyNDArray:
    """The place of each row's score among the distinct ones, [N]."""
    # The order of rows of one score says nothing, nor does that of scores apart by rounding.
    order = np.argsort(score)
    values, place = score[order], np.zeros(len(score), dtype=int)
    apart = np.diff(values) > 1e-10 * (np.abs(values[1:]) + np.median(np.abs(values)))
    place[order[1:]] = np.cumsum(apart)
    return place


def _parts(score: AnyNDArray, exposure: AnyNDArray, groups: int) -> list[AnyNDArray]:
    """Rows in groups of about equal exposure by their score; equal scores stay together."""
    place = _places(score)
    sums = np.bincount(place, exposure)
    middle = (np.cumsum(sums) - 0.5 * sums) / exposure.sum()
    group = np.minimum((groups * middle).astype(int), groups - 1)[place]
    return [np.flatnonzero(group == k) for k in np.unique(group)]


def _by_column(
    table: Table, by: Column, exposure: AnyNDArray, groups: int
) -> tuple[list[AnyNDArray], list[str]]:
    """Rows of each level, or of groups of equal exposure by a number, and what they are called."""
    if by not in table:
        raise ValueError(f"by: data has no column {by!r}.")
    missing = table.missing(by)
    there = np.flatnonzero(~missing)
    rows = Table({by: table.values(by)[there]})
    if table.is_levels(by):
        reader = learn_levels(table, by)
        codes, labels = reader.encode(rows), list(map(str, reader.levels))
        parts = [there[codes == code] for code in range(len(labels))]
    else:
        time = kind_of_time(table, by)
        numbers = NumericColumn(by, "draw_lift", None, time)
        x = numbers.encode(rows)
        sets = [np.flatnonzero(x == value) for value in np.unique(x)[: groups + 1]]
        if len(sets) > groups:
            sets = _parts(x, exposure[there], groups)
        parts, labels = [there[p] for p in sets], []
        for p in sets:
            ends = numbers.shown(np.unique([x[p].min(), x[p].max()]))
            labels.append(" to ".join(str(e)[:10] if time else f"{e:.4g}" for e in ends))
    if missing.any():
        parts, labels = [*parts, np.flatnonzero(missing)], [*labels, "missing"]
    return parts, labels


def _draw_means(
    ax: Axes,
    parts: list[AnyNDArray],
    actual: AnyNDArray,
    exposure: AnyNDArray,
    expected: dict[str, AnyNDArray],
    response: str,
) -> None:
    places = np.arange(1, len(parts) + 1)
    for k, (name, values) in enumerate({"actual": actual, **expected}.items()):
        means = [values[p].sum() / exposure[p].sum() for p in parts]
        marker = "o" if k == 0 else ""
        style = "" if k == 0 else "-"
        ax.plot(places, means, marker=marker, linestyle=style, color=f"C{k}", label=name, gid=name)
        if k == 0 and len(expected) == 1:  # around which the actual ones scatter
            (mean,) = expected.values()
            sums = [np.square((actual - mean)[p]).sum() for p in parts]
            error = [_Z * np.sqrt(v) / exposure[p].sum() for v, p in zip(sums, parts)]
            ax.errorbar(places, means, error, fmt="none", ecolor="C0", linewidth=0.9)
    unit = "" if np.all(exposure == 1.0) else " per exposure"
    ax.set_ylabel(f"mean {response}{unit}")
    ax.legend(frameon=False, fontsize="small")


def _draw_lorenz(
    ax: Axes, rate: AnyNDArray, actual: AnyNDArray, exposure: AnyNDArray, name: str
) -> None:
    sums = (np.bincount(_places(rate), values) for values in (exposure, actual))
    x, y = (np.concatenate([[0.0], np.cumsum(each) / each.sum()]) for each in sums)
    gini = 1.0 - float(np.sum(np.diff(x) * (y[1:] + y[:-1])))
    ax.plot(x, y, label=f"{name}, Gini {gini:.3f}", gid=f"lorenz {name}")
