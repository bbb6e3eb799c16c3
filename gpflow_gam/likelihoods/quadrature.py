"""Gauss-Hermite quadrature in one dimension."""

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
