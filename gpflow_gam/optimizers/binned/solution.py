"""The outcome of a fit from sums over rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter

from ...covariances import InducingBlocks
from ...models import AdditiveSVGP
from ...variational import OptimalPrecision
from ...variational.gaussian import DenseGaussian
from .collapsed import CollapsedBound
from .evidence import GaussianPosterior, PseudoData, posterior_of
from .passes import Rows
from .rounds import Rounds


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """
    What a fit came to: sums over rows, the hyperparameters, and the posterior they give.

    Everything that asks afterwards how the evidence changes with hyperparameters asks this, and
    touches no row.
    """

    rows: Rows  # the data
    data: PseudoData  # the sites' sums
    q: GaussianPosterior  # the posterior
    values: Callable[[Parameter], AnyNDArray]  # of the kernels' parameters
    # coordinates of what was learnt, [K]: the kernels' hyperparameters, then the noise variance
    # of a collapsed bound or the likelihood's parameters
    found: AnyNDArray
    rounds: Rounds  # gave the evidence of the sums, which hold the sites' own weights; or
    # the collapsed bound of Gaussian data, whose sums are to be divided by the noise
    bound: CollapsedBound | None = None
    # of sum_n E_q[log p(y_n)] in the likelihood's parameters, [K, K]; None where nobody has asked
    # for it
    curvature: AnyNDArray | None = None
    # of minus the criterion that chose ``found``, [K, K], where that was another than the
    # evidence
    hessian: AnyNDArray | None = None
    # the coordinates without the shapes of terms, [K]; None where none has one
    unshaped: AnyNDArray | None = None
    # what predictors add to each other's covariances, [L, P, P], as
    between: AnyNDArray | None = None

    @classmethod
    def of_bound(cls, bound: CollapsedBound, u: AnyNDArray) -> Solution:
        """What there is at coordinates of a collapsed bound, which the model has been set to."""
        values = bound.rounds.values(bound.split(u)[0])
        return cls(bound.rows, bound.data, bound.kept(u), values, u, bound.rounds, bound)

    def at(self, x: AnyNDArray) -> tuple[GaussianPosterior, Callable[[Parameter], AnyNDArray]]:
        """
        The posterior of the same sums at other coordinates, and the values of parameters there.
        """
        if self.bound is not None:
            return self.bound.posterior(x), self.rounds.values(self.bound.split(x)[0])
        values = self.rounds.values(x[: len(self.rounds.hyperparameters)])
        return self.rounds.evidence.posterior(self.data, values), values


def assign_posterior(model: AdditiveSVGP, q: GaussianPosterior) -> None:
    """Give the model the q of what was found, at the hyperparameters that it has."""
    family = model.variational
    assert isinstance(family, OptimalPrecision)
    blocks = model.blocks
    order = blocks.layout.order
    roots = [np.stack([q.roots[i] for i in group.indices]) for group in blocks.groups]
    family.assign_sites(
        [tf.constant(L) for L in roots],
        tf.constant(q.precision[:, order][:, :, order]),
        tf.constant(q.shift[order]),
    )


def present_posterior(model: AdditiveSVGP) -> GaussianPosterior:
    """The model's q at the parameters that it has, in the components' order."""
    family, blocks = model.variational, model.blocks
    assert isinstance(family, OptimalPrecision)
    # as it was assigned, where nothing has changed since: to the last bit
    reference = [L0.numpy() for L0 in family.reference]
    cholesky = [L.numpy() for L in blocks.cholesky()]
    if all(_equal(L, L0) for L, L0 in zip(cholesky, reference)):
        factors, precision, shift = reference, *_numbers(family.site_precision, family.site_shift)
    else:
        back = np.argsort(blocks.layout.order)
        factors, (precision, shift) = cholesky, _numbers(*family.sites(blocks.cholesky()))
        precision, shift = precision[:, back][:, :, back], shift[back]
    roots: list[Any] = [None] * len(blocks.layout.sizes)
    for group, L in zip(blocks.groups, factors):
        for i, root in zip(group.indices, L):
            roots[i] = root
    return posterior_of(precision, shift, roots)


def _equal(one: AnyNDArray, other: AnyNDArray) -> bool:
    """Whether factors [G, M, M] are the same up to rounding."""
    return float(np.max(np.abs(one - other))) <= 1e-9 * float(np.max(np.abs(other)))


def _numbers(*tensors: Any) -> tuple[AnyNDArray, ...]:
    return tuple(np.asarray(t) for t in tensors)


def whitened_of(q: GaussianPosterior, blocks: InducingBlocks) -> Callable[[Any], DenseGaussian]:
    """q(V) as posteriors take it: the same whatever factors it is asked at."""
    layout = blocks.layout
    order = layout.order
    covariance = q.covariance[:, order][:, :, order]
    factor = tf.constant(np.linalg.cholesky(covariance))
    mean, log_det = tf.constant(q.mean[order]), tf.constant(q.log_det)
    return lambda _: DenseGaussian(layout, mean, log_det, factor)
