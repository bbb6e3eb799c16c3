"""Sobol indices as tables, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .grid import Columns
from .pick_freeze import PickFreezeDraws
from .variances import VarianceDraws, varying

KINDS = ("first", "interaction", "total", "shapley")
"""What indices there are of independent inputs."""


def sobol_table(
    draws: VarianceDraws,
    names: Callable[[int], str],
    level: float,
    predictors: Sequence[str] = ("",),
) -> pd.DataFrame:
    """Indices of all kinds: see :meth:`FunctionalANOVA.sobol`."""
    total = draws.total()
    shown = [(i, predictors[i]) for i in varying(total)]
    rows = []
    for kind, effect, columns, shares in _sums(draws.subsets, names):
        variances = np.einsum("svl,v->sl", draws.variances, shares)
        vanishing = may_vanish(draws, shares, level)
        variance = variances.mean(axis=0)
        for i, predictor in shown:
            index = variances[:, i] / total[:, i]
            lower, upper = interval(index, level)
            row = {
                "kind": kind,
                "effect": effect,
                "order": len(columns),
                "estimate": float(index.mean()),
                "lower": 0.0 if vanishing[i] else lower,
                "upper": upper,
                "variance": float(variance[i]),
            }
            rows.append(({"predictor": predictor} if len(predictors) > 1 else {}) | row)
    return pd.DataFrame(rows)


def response_table(
    draws: PickFreezeDraws,
    predictor: VarianceDraws,
    names: Callable[[int], str],
    level: float,
    classes: Sequence[str] = ("",),
) -> pd.DataFrame:
    """Indices of a response: as :func:`sobol_table`, interactions of pairs only."""
    shown = [(k, classes[k]) for k in varying(draws.total)]
    tables = {"first": draws.first, "interaction": draws.both, "total": draws.any}
    singles = [(c,) for c in draws.inputs]
    rows = []
    for kind, values in tables.items():
        for v, columns in enumerate(draws.pairs if kind == "interaction" else singles):
            inside = [
                set(columns) <= set(s) and (kind != "first" or len(s) == 1)
                for s in predictor.subsets
            ]
            vanishing = may_vanish(predictor, np.array(inside, dtype=float), level).all()
            for k, label in shown:
                index = values[:, v, k] / draws.total[:, k]
                lower, upper = interval(index, level)
                row = {
                    "kind": kind,
                    "effect": ":".join(map(names, columns)),
                    "order": len(columns),
                    "estimate": float(index.mean()),
                    "lower": 0.0 if vanishing and kind != "interaction" else lower,
                    "upper": upper,
                    "variance": float(values[:, v, k].mean()),
                }
                rows.append(({"class": label} if len(classes) > 1 else {}) | row)
    return pd.DataFrame(rows)


def may_vanish(draws: VarianceDraws, shares: AnyNDArray, level: float) -> AnyNDArray:
    """Whether effects that vanish are in the credible ball of L2 round the posterior mean, [L]."""
    distances = np.einsum("svl,v->sl", draws.distances, shares)
    sizes = np.einsum("vl,v->l", draws.sizes, shares)
    inside: AnyNDArray = sizes <= np.quantile(distances, level, axis=0)
    return inside


def interval(draws: AnyNDArray, level: float) -> tuple[float, float]:
    """Equal-tailed limits."""
    tail = 0.5 * (1.0 - level)
    lower, upper = np.quantile(draws, [tail, 1.0 - tail])
    return float(lower), float(upper)


def check_options(level: float, num_samples: int) -> None:
    """Raise ValueError for a level outside (0, 1) or too few draws."""
    if isinstance(num_samples, bool) or int(num_samples) != num_samples or num_samples < 2:
        raise ValueError(f"num_samples must be a whole number from 2 on; got {num_samples!r}.")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1; got {level}.")


def _sums(
    subsets: Sequence[Columns], names: Callable[[int], str]
) -> Iterator[tuple[Any, str, Columns, AnyNDArray]]:
    """Each index as a sum of the sets' variances: kind, label, columns and weights [V]."""
    inputs = sorted({c for s in subsets for c in s})
    indicator = {c: np.array([float(c in s) for s in subsets]) for c in inputs}
    sizes = np.array([len(s) for s in subsets])
    for c in inputs:
        yield "first", names(c), (c,), indicator[c] * (sizes == 1)
    for i, subset in enumerate(subsets):
        if len(subset) > 1:
            yield "interaction", ":".join(map(names, subset)), subset, np.eye(len(subsets))[i]
    for c in inputs:
        yield "total", names(c), (c,), indicator[c]
    for c in inputs:
        yield "shapley", names(c), (c,), indicator[c] / sizes
