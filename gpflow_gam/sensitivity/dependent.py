"""
Shares of variance where inputs depend on each other.

An additive predictor's variance is the sum of its components' covariances with it, each of which is
the component's own variance (structural) and its covariance with the others (correlative; Li et al.
2010, "Global sensitivity analysis for systems with independent and/or correlated inputs").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..posteriors import InducingMoments
from .table import shares_row
from .variances import varying


@dataclasses.dataclass(frozen=True)
class CovarianceDraws:
    """Variances and covariances of components over data, for S posterior draws."""

    names: tuple[str, ...]
    variances: AnyNDArray
    covariances: AnyNDArray


def draw_covariances(
    members: Sequence[InducingMoments],
    X: AnyNDArray,
    weights: AnyNDArray,
    names: Sequence[str],
    num_samples: int,
    seed: int,
    replicates: Sequence[AnyNDArray] = (),
) -> CovarianceDraws:
    """Draws of components' covariances, quadratic forms in V; residual covariance adds its mean."""
    each = -(-num_samples // len(members))
    variances, covariances = [], []
    for i, member in enumerate(members):
        both = [member.features_and_prior(name, member.tangents(name, X)) for name in names]
        V = member.sample(each, seed + i)
        counts = replicates[i :: len(members)] or (weights,)
        for some, count in zip(np.array_split(V, len(counts)), counts):
            w = count / count.sum()
            left = [np.maximum(prior - np.sum(phi**2, axis=0), 0.0) @ w for phi, prior in both]
            features = [phi - (phi @ w)[:, None] for phi, _ in both]
            parts = [some[:, member.block(name)] for name in names]
            # f_c at the rows enters only through inner products: [P, P] rather than [S, C, N]
            rho = np.concatenate(features)
            towards = [(f * w) @ rho.T for f in features]
            together = np.concatenate(parts, axis=1)
            own = [_products(v, (f * w) @ f.T, v) for v, f in zip(parts, features)]
            across = [_products(v, t, together) for v, t in zip(parts, towards)]
            residual = np.array(left)[:, None] * member.entering(names)
            variances.append(np.stack(own, axis=1) + residual)
            covariances.append(np.stack(across, axis=1) + residual)
    return CovarianceDraws(tuple(names), np.concatenate(variances), np.concatenate(covariances))


def _products(left: AnyNDArray, Q: AnyNDArray, right: AnyNDArray) -> AnyNDArray:
    """``left' Q right`` of each draw, [S, L], from [S, P, L], [P, R] and [S, R, L]."""
    outputs = range(left.shape[2])
    return np.stack([np.sum((left[:, :, i] @ Q) * right[:, :, i], axis=1) for i in outputs], axis=1)


def covariance_table(
    draws: CovarianceDraws, level: float, predictors: Sequence[str] = ("",)
) -> pd.DataFrame:
    """
    Shares Cov[f_c, rho] / Var[rho] by component, their structural and their correlative parts.
    """
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
