"""Posterior draws of the variance of every ANOVA term."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..posteriors import InducingMoments
from .decomposition import Part, decompose
from .grid import Columns, ProductGrid


@dataclasses.dataclass(frozen=True)
class VarianceDraws:
    """
    Variances of ANOVA terms under independent inputs, for S posterior draws.

    :param subsets: the sets of columns, [V].
    :param variances: [S, V, L].
    :param distances: E[(f_v - E f_v)^2] of each draw from the posterior mean's term, [S, V, L].
    :param sizes: E[(E f_v)^2], the same from zero to the posterior mean's term, [V, L].
    """

    subsets: tuple[Columns, ...]
    variances: AnyNDArray
    distances: AnyNDArray
    sizes: AnyNDArray

    def total(self) -> AnyNDArray:
        """
        The variance of the predictor, [S, L].

        :raises ValueError: it is zero: no index is defined.
        """
        total: AnyNDArray = self.variances.sum(axis=1)
        check_varies(total)
        return total


def check_varies(total: AnyNDArray) -> None:
    """
    :param total: variances of the predictor.
    :raises ValueError: one is zero: no index is defined.
    """
    if total.size == 0 or not np.all(total > 0.0):
        raise ValueError(
            "Sobol indices are undefined: the predictor has zero variance under these measures. "
            "Every component is constant, or every input has a single value."
        )


def draw_variances(
    reference: InducingMoments,
    members: Sequence[InducingMoments],
    grid: ProductGrid,
    num_samples: int,
    seed: int,
) -> VarianceDraws:
    """
    Draws of ``Var[f_v] = V' E[phi_v phi_v'] V``, in closed form given V.

    What inducing values leave open adds its expected variance.

    :param reference: whose mean is the estimate.
    :param members: posteriors that share the draws evenly, at draws of hyperparameters for
        instance.
    :param grid: nodes of the inputs.
    :param num_samples: S, at least one a member.
    :param seed: of the draws.
    """
    own = decompose(reference, grid)
    estimates = {
        subset: part.features.T @ reference.mean[part.places] for subset, part in own.items()
    }
    each = -(-num_samples // len(members))
    variances, distances = [], []
    for i, member in enumerate(members):
        parts = own if member is reference else decompose(member, grid)
        V = member.sample(each, seed + i)
        both = [_quadratic(part, V[:, part.places], estimates[s]) for s, part in parts.items()]
        if not both:
            check_varies(np.zeros(0))
        variances.append(np.stack([v for v, _ in both], axis=1))
        distances.append(np.stack([d for _, d in both], axis=1))
    sizes = [part.weights @ estimates[subset] ** 2 for subset, part in own.items()]
    return VarianceDraws(
        tuple(own), np.concatenate(variances), np.concatenate(distances), np.stack(sizes)
    )


def _quadratic(part: Part, V: AnyNDArray, estimate: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    """Variance and squared distance from ``estimate`` [Q, L] of each draw V [S, P_v, L]."""
    second = part.second_moments()
    variance = np.einsum("spl,pq,sql->sl", V, second, V, optimize=True)
    towards = (part.features * part.weights) @ estimate  # E[phi_v times the estimate]
    norm = part.weights @ estimate**2
    distance = variance - 2.0 * np.einsum("spl,pl->sl", V, towards) + norm
    return variance + part.residual, np.maximum(distance, 0.0) + part.residual
