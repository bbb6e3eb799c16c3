"""Gauss-Hermite quadrature."""

from __future__ import annotations

import numpy as np
from gpflow.config import default_float
from gpflow.quadrature import NDiagGHQuadrature
from numpy.polynomial.hermite import hermgauss


class GaussHermite(NDiagGHQuadrature):
    """
    GPflow's rule in one dimension, its points made without TensorFlow.

    Every scalar likelihood has a rule, and many never use it; where the making of GPflow's is the
    first that a process does with TensorFlow, it takes longer than a small fit's pass over rows.

    :param number: of points.
    """

    def __init__(self, number: int = 20) -> None:
        points, weights = hermgauss(number)  # type: ignore[no-untyped-call]
        self.dim, self.n_gh, self.n_gh_total = 1, number, number
        self.Z = (np.sqrt(2.0) * points[:, None]).astype(default_float())
        self.dZ = (weights[:, None] / np.sqrt(np.pi)).astype(default_float())


class GaussHermitePlane(NDiagGHQuadrature):
    """
    In two dimensions, with so many points in each.

    :param first: of points in the first one.
    :param second: of points in the second one.
    """

    def __init__(self, first: int, second: int) -> None:
        lines = GaussHermite(first), GaussHermite(second)
        self.dim, self.n_gh, self.n_gh_total = 2, first, first * second
        self.Z = np.concatenate(
            [np.repeat(lines[0].Z, second, axis=0), np.tile(lines[1].Z, (first, 1))], axis=1
        )
        self.dZ = np.outer(lines[0].dZ, lines[1].dZ).reshape(-1, 1)
