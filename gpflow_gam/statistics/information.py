"""How sharply pseudo-data tell hyperparameters apart: their average information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..kernels.shapes import Values
from .evidence import Evidence, Projection
from .posterior import posterior_of
from .pseudo_data import PseudoData


def average_information(
    evidence: Evidence,
    data: PseudoData,
    values: Mapping[int, AnyNDArray],
    moved: Sequence[tuple[Sequence[int], Mapping[int, AnyNDArray]]],
    step: float,
    scale: float = 1.0,
) -> AnyNDArray:
    r"""
    The average information of hyperparameters, [K, K].

    .. math:: H_{ij} = \tfrac12 r' C_i P C_j r

    with :math:`C_i` the derivative of the values' prior covariance, P the inverse of the
    pseudo-data's covariance and r its product with the data (Gilmour, Thompson & Cullis 1995): the
    mean of observed and expected information, of which the traces cancel. It is never negative, and
    costs two evaluations of every component where each has two hyperparameters.

    :param evidence: of the components.
    :param data: the pseudo-data.
    :param values: of the kernels' parameters, by their ``id``.
    :param moved: for each hyperparameter the components that change with it, and the values of
        all parameters where its coordinate is ``step`` further on.
    :param step: of those differences.
    :param scale: multiplies weights and shifts.
    :raises NotPositiveDefinite: at some of these values.
    """
    number = len(evidence)
    features = [evidence.features(_at(values), c) for c in range(number)]
    found = Projection(features, data, scale)
    q = posterior_of(found.Lambda, found.eta, ())
    L = len(data.precision)
    residual = scale * data.shift - np.stack(
        [half.T @ mean for half, mean in zip(found.half, q.mean.T)], axis=1
    )

    def reached(phi: AnyNDArray, c: int) -> AnyNDArray:
        return phi.T @ (phi @ residual[found.nodes[c]])  # C_c r at the component's nodes

    present = [reached(phi, c) for c, phi in enumerate(features)]
    changes = np.zeros((len(moved), *data.shift.shape))
    for change, (which, there) in zip(changes, moved):
        for c in which:
            change[found.nodes[c]] = (
                reached(evidence.features(_at(there), c), c) - present[c]
            ) / step
    H = np.zeros((len(moved), len(moved)))
    for i in range(L):
        D = changes[:, :, i]
        half = D @ found.half[i].T
        H += 0.5 * (scale * (D @ data.precision[i] @ D.T) - half @ q.covariance[i] @ half.T)
    return H


def _at(values: Mapping[int, AnyNDArray]) -> Values:
    return lambda parameter: values[id(parameter)]
