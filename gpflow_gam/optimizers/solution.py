"""What a fit from sums over rows came to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from gpflow.base import AnyNDArray, Parameter

from ..statistics import GaussianPosterior, PseudoData, Rows
from .collapsed import CollapsedBound
from .rounds import Rounds


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """
    What a fit came to: sums over rows, the hyperparameters, and the posterior they give.

    Everything that asks afterwards how the evidence changes with hyperparameters asks this, and
    touches no row.

    :param rows: the data.
    :param data: the sites' sums.
    :param q: the posterior.
    :param values: of the kernels' parameters.
    :param found: coordinates of what was learnt, [K]: the kernels' hyperparameters, then the noise
        variance of a collapsed bound or the likelihood's parameters.
    :param rounds: gave the evidence of the sums, which hold the sites' own weights; or
    :param bound: the collapsed bound of Gaussian data, whose sums are to be divided by the noise.
    :param curvature: of sum_n E_q[log p(y_n)] in the likelihood's parameters, [K, K]; None where
        nobody has asked for it.
    :param hessian: of minus the criterion that chose ``found``, [K, K], where that was another than
        the evidence.
    :param unshaped: the coordinates without the shapes of terms, [K]; None where none has one.
    :param between: what predictors add to each other's covariances, [L, P, P], as
        :func:`~gpflow_gam.statistics.between_predictors` has it; None where nobody has asked.
    """

    rows: Rows
    data: PseudoData
    q: GaussianPosterior
    values: Callable[[Parameter], AnyNDArray]
    found: AnyNDArray
    rounds: Rounds
    bound: CollapsedBound | None = None
    curvature: AnyNDArray | None = None
    hessian: AnyNDArray | None = None
    unshaped: AnyNDArray | None = None
    between: AnyNDArray | None = None

    @classmethod
    def of_bound(cls, bound: CollapsedBound, u: AnyNDArray) -> Solution:
        """
        What there is at coordinates of a collapsed bound, which the model has been set to.

        :param bound: that was maximised.
        :param u: coordinates of what was learnt, [K].
        """
        values = bound.rounds.values(bound.split(u)[0])
        return cls(bound.rows, bound.data, bound.kept(u), values, u, bound.rounds, bound)

    def at(self, x: AnyNDArray) -> tuple[GaussianPosterior, Callable[[Parameter], AnyNDArray]]:
        """
        The posterior of the same sums at other coordinates, and the values of parameters there.

        :param x: [K].
        :raises NotPositiveDefinite: at these coordinates.
        """
        if self.bound is not None:
            return self.bound.posterior(x), self.rounds.values(self.bound.split(x)[0])
        values = self.rounds.values(x[: len(self.rounds.hyperparameters)])
        return self.rounds.evidence.posterior(self.data, values), values
