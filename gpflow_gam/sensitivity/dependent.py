"""Shares of variance where inputs depend on each other.

Without independence an additive predictor's variance is no sum of its components' variances. It is
the sum of their covariances with the predictor, each of which is the component's own variance
(structural) and its covariance with the other components (correlative; Li et al. 2010, "Global
sensitivity analysis for systems with independent and/or correlated inputs")."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..posteriors import InducingMoments
from .table import interval
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
    """
    Draws of components' covariances: quadratic forms in V.

    What inducing values leave open adds its expected variance.
    """
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
            open_ = np.array(left)[:, None] * member.entering(names)
            variances.append(np.stack(own, axis=1) + open_)
            covariances.append(np.stack(across, axis=1) + open_)
    return CovarianceDraws(tuple(names), np.concatenate(variances), np.concatenate(covariances))


def _products(left: AnyNDArray, Q: AnyNDArray, right: AnyNDArray) -> AnyNDArray:
    """``left' Q right`` of each draw, [S, L], from [S, P, L], [P, R] and [S, R, L]."""
    outputs = range(left.shape[2])
    return np.stack([np.sum((left[:, :, i] @ Q) * right[:, :, i], axis=1) for i in outputs], axis=1)


def covariance_table(
    draws: CovarianceDraws, level: float, predictors: Sequence[str] = ("",)
) -> pd.DataFrame:
    """
    Shares of the predictor's variance by component.

    Kinds: ``"share"``, Cov[f_c, rho] / Var[rho], which add up to one; ``"structural"``,
    Var[f_c] / Var[rho]; ``"correlative"``, what is left of the share, negative where a component
    works against others.
    """
    total = draws.covariances.sum(axis=1)
    shown = [(i, predictors[i]) for i in varying(total)]
    kinds = {
        "share": draws.covariances,
        "structural": draws.variances,
        "correlative": draws.covariances - draws.variances,
    }
    rows = []
    for kind, values in kinds.items():
        for c, name in enumerate(draws.names):
            for i, predictor in shown:
                shares = values[:, c, i] / total[:, i]
                lower, upper = interval(shares, level)
                row = {
                    "kind": kind,
                    "effect": name,
                    "estimate": float(shares.mean()),
                    "lower": lower,
                    "upper": upper,
                    "variance": float(values[:, c, i].mean()),
                }
                rows.append(({"predictor": predictor} if len(predictors) > 1 else {}) | row)
    return pd.DataFrame(rows)
