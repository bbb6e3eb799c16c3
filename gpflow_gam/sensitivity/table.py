"""Sobol indices as tables, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from .grid import Columns
from .pick_freeze import PickFreezeDraws
from .variances import CovarianceDraws, VarianceDraws, varying


def sobol_table(
    draws: VarianceDraws,
    names: Callable[[int], str],
    level: float,
    predictors: Sequence[str] = ("",),
) -> pd.DataFrame:
    """Indices of all kinds: see :meth:`FunctionalANOVA.sobol`."""
    total = draws.total()
    outputs, rows = varying(total), []
    for kind, effect, columns, shares in _sums(draws.subsets, names):
        variances = np.einsum("svl,v->sl", draws.variances, shares)
        vanishing = may_vanish(draws, shares, level)
        index = {"kind": kind, "effect": effect, "order": len(columns)}
        for i in outputs:
            label = {"predictor": predictors[i]} if len(predictors) > 1 else {}
            shown = shares_row(variances[:, i], total[:, i], level, vanishing[i])
            rows.append(label | index | shown)
    return pd.DataFrame(rows)


def response_table(
    draws: PickFreezeDraws,
    predictor: VarianceDraws,
    names: Callable[[int], str],
    level: float,
    classes: Sequence[str] = ("",),
) -> pd.DataFrame:
    """Indices of a response: as :func:`sobol_table`, interactions of pairs only."""
    tables = {"first": draws.first, "interaction": draws.both, "total": draws.any}
    singles = [(c,) for c in draws.inputs]
    outputs, rows = varying(draws.total), []
    for kind, values in tables.items():
        for v, columns in enumerate(draws.pairs if kind == "interaction" else singles):
            inside = [
                set(columns) <= set(s) and (kind != "first" or len(s) == 1)
                for s in predictor.subsets
            ]
            vanishing = may_vanish(predictor, np.array(inside, dtype=float), level).all()
            zero = bool(vanishing) and kind != "interaction"
            effect = ":".join(map(names, columns))
            index = {"kind": kind, "effect": effect, "order": len(columns)}
            for k in outputs:
                label = {"class": classes[k]} if len(classes) > 1 else {}
                shown = shares_row(values[:, v, k], draws.total[:, k], level, zero)
                rows.append(label | index | shown)
    return pd.DataFrame(rows)


def covariance_table(
    draws: CovarianceDraws, level: float, predictors: Sequence[str] = ("",)
) -> pd.DataFrame:
    """Shares Cov[f_c, rho] / Var[rho], and their structural and correlative parts."""
    total = draws.covariances.sum(axis=1)
    kinds = {
        "share": draws.covariances,
        "structural": draws.variances,
        "correlative": draws.covariances - draws.variances,
    }
    outputs, rows = varying(total), []
    for kind, values in kinds.items():
        for c, name in enumerate(draws.names):
            for i in outputs:
                label = {"predictor": predictors[i]} if len(predictors) > 1 else {}
                shown = shares_row(values[:, c, i], total[:, i], level)
                rows.append(label | {"kind": kind, "effect": name} | shown)
    return pd.DataFrame(rows)


def shares_row(
    values: AnyNDArray, total: AnyNDArray, level: float, zero: bool = False
) -> dict[str, float]:
    """A share's posterior mean and interval, from zero where ``zero``, and its variance."""
    shares, tail = values / total, 0.5 * (1.0 - level)
    lower, upper = np.quantile(shares, [tail, 1.0 - tail])
    return {
        "estimate": float(shares.mean()),
        "lower": 0.0 if zero else float(lower),
        "upper": float(upper),
        "variance": float(values.mean()),
    }


def may_vanish(draws: VarianceDraws, shares: AnyNDArray, level: float) -> AnyNDArray:
    """True if effects that vanish are in the credible ball of L2 round the posterior mean, [L]."""
    distances = np.einsum("svl,v->sl", draws.distances, shares)
    sizes = np.einsum("vl,v->l", draws.sizes, shares)
    inside: AnyNDArray = sizes <= np.quantile(distances, level, axis=0)
    return inside


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
