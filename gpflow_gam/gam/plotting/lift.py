"""What pricing reviews open: actual against expected responses, Lorenz curves, double lift."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ..fits import FittedGAM
from ..fits.fitted import encoded
from ..fits.prediction import Prediction
from ..fits.reading import in_memory
from ..frames import NumericColumn, Table, learn_levels
from ..frames.encoding import kind_of_time
from ..terms import Column
from .figures import Axes, Figure, panels, put_labels

_Z = 1.96
_LEAST = 2  # groups
_WIDE, _MANY = 40, 20  # characters of labels that stand side by side, and labels that lean


def lift(
    fit: FittedGAM, data: Any, other: Any = None, groups: int = 10, by: Column | None = None
) -> Figure:
    """
    Charts of a model's order of risks, as of :meth:`gpflow_gam.GAM.draw_lift`.

    Exposure is ``exp(offset)`` under a log link, times prior weights. Intervals of actual means are
    of responses that scatter around the expected ones.

    :param fit: the fitted GAM.
    :param data: rows with the response's column.
    :param other: another fitted GAM, or its N expected responses.
    :param groups: their number.
    :param by: a column of the data by whose levels, or values, actual and expected are shown.
    :return: a new figure.
    :raises ValueError: a response with more than two classes, or that may be negative; a bad
        argument.
    """
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < _LEAST:
        raise ValueError(f"groups must be a whole number from {_LEAST} on; got {groups!r}.")
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
    spec = fit.spec
    Y = spec.encoded(table, spec.levels).Y
    expected = np.asarray(Prediction(fit, seed=0).predict(table))
    if expected.ndim > 1 or Y.shape[1] != 1:
        raise ValueError(
            f"draw_lift: a response of family {spec.family.name!r} is no amount or share; take a "
            "family of counts, amounts or two classes."
        )
    exposure = np.ones(len(Y))
    if spec.family.log_link and spec.offset:
        X = encoded(fit, table)
        exposure = np.exp(X[:, [spec.place(c) for c in spec.offset]].sum(axis=1))
    weights = _weights(fit, table)
    if not np.all(expected > 0.0) or np.any(Y < 0.0) or not np.sum(weights * Y[:, 0]) > 0.0:
        raise ValueError("draw_lift: responses must not be negative, and expected ones positive.")
    if not np.all(weights > 0.0):
        raise ValueError("draw_lift: rows of weight zero have no exposure; leave them out of data.")
    return weights * Y[:, 0], weights * expected, weights * exposure


def _weights(fit: FittedGAM, table: Table) -> AnyNDArray:
    """Prior weights of the rows, [N]; ones where the table has none."""
    column = fit.spec.weights
    if column is None or column not in table:
        return np.ones(table.num_rows)
    return np.asarray(table.values(column), dtype=np.float64)


def _other(other: Any, table: Table, exposure: AnyNDArray, fit: FittedGAM) -> AnyNDArray:
    """Expected responses of the other model, [N]: a fitted GAM, or N numbers."""
    model = getattr(other, "fitted", None)
    if isinstance(model, FittedGAM):
        return _responses(model, table)[1]
    values = np.asarray(other, dtype=np.float64)
    if values.shape != exposure.shape or not np.all(values > 0.0):
        raise ValueError(
            f"other must be a fitted GAM or {len(exposure)} positive expected responses; got shape "
            f"{values.shape}."
        )
    return values * _weights(fit, table)


def _parts(score: AnyNDArray, exposure: AnyNDArray, groups: int) -> list[AnyNDArray]:
    """Rows in order of their score, in groups of equal exposure."""
    order = np.argsort(score, kind="stable")
    middle = (np.cumsum(exposure[order]) - 0.5 * exposure[order]) / exposure.sum()
    group = np.minimum((groups * middle).astype(int), groups - 1)
    return [order[group == k] for k in range(groups) if np.any(group == k)]


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
        several, place = np.unique(x, return_inverse=True)
        sets = [np.array([i]) for i in range(len(several))]
        if len(several) > groups:  # equal values stay together
            sets = _parts(several, np.bincount(place, exposure[there]), groups)
        parts, labels = [there[np.isin(place, p)] for p in sets], []
        for p in sets:
            ends = numbers.shown(several[np.unique(p[[0, -1]])])
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
    order = np.argsort(rate, kind="stable")
    x = np.concatenate([[0.0], np.cumsum(exposure[order]) / exposure.sum()])
    y = np.concatenate([[0.0], np.cumsum(actual[order]) / actual.sum()])
    gini = 1.0 - float(np.sum(np.diff(x) * (y[1:] + y[:-1])))
    ax.plot(x, y, label=f"{name}, Gini {gini:.3f}", gid=f"lorenz {name}")
