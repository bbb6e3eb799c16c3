"""The Gaussian over whitened inducing values that pseudo-data give."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import lapack


@dataclasses.dataclass(frozen=True)
class GaussianPosterior:
    """
    q(V) = N(mean, covariance) over whitened inducing values, blocks in the components' order.

    :param mean: [P, L].
    :param covariance: [L, P, P].
    :param log_det: of the covariance, [L].
    :param precision: Lambda = covariance^-1 - I, [L, P, P].
    :param shift: [P, L].
    :param roots: Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each.
    """

    mean: AnyNDArray
    covariance: AnyNDArray
    log_det: AnyNDArray
    precision: AnyNDArray
    shift: AnyNDArray
    roots: tuple[AnyNDArray, ...]

    def kl(self) -> float:
        """KL[q(V) || N(0, I)], summed over outputs."""
        P, L = self.mean.shape
        trace = np.trace(self.covariance, axis1=1, axis2=2).sum()
        return 0.5 * float(trace + np.sum(self.mean**2) - P * L - self.log_det.sum())


def slices(sizes: Sequence[int]) -> list[slice]:
    """Where blocks of these sizes stand, one after the other."""
    return [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *sizes]).tolist())]


def posterior_of(
    precision: AnyNDArray, shift: AnyNDArray, roots: Sequence[AnyNDArray]
) -> GaussianPosterior:
    """
    N(S shift, S) with ``S = (I + precision)^-1``.

    :param precision: Lambda, [L, P, P].
    :param shift: [P, L].
    :param roots: Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each.
    :raises NotPositiveDefinite: I + Lambda does not factorise.
    """
    factors = [factorised(p) for p in precision]
    means = [lapack.dpotrs(f, s, lower=1)[0] for f, s in zip(factors, shift.T)]
    return GaussianPosterior(
        np.stack(means, axis=1),
        np.stack([inverse(f) for f in factors]),
        np.array([-2.0 * np.log(np.diag(f)).sum() for f in factors]),
        precision,
        shift,
        tuple(roots),
    )


def factorised(precision: AnyNDArray) -> AnyNDArray:
    """The Cholesky factor of I + precision [P, P]."""
    root, info = lapack.dpotrf(precision + np.eye(len(precision)), lower=1, clean=1)
    if info != 0:
        raise NotPositiveDefinite
    found: AnyNDArray = root
    return found


def inverse(factor: AnyNDArray) -> AnyNDArray:
    """The inverse of a matrix whose Cholesky factor is given, zero above the diagonal."""
    entries, _ = lapack.dpotri(factor, lower=1)
    found: AnyNDArray = entries + entries.T
    found.flat[:: len(found) + 1] *= 0.5
    return found


class NotPositiveDefinite(Exception):
    """A kernel matrix, or a posterior's precision, that does not factorise."""
