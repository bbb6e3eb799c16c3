"""Posteriors from sums over rows, as models hold them, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..covariances import InducingBlocks
from ..models import AdditiveSVGP
from ..statistics import GaussianPosterior
from ..statistics.posterior import posterior_of
from ..variational import OptimalPrecision
from ..variational.gaussian import DenseGaussian


def assign_posterior(model: AdditiveSVGP, q: GaussianPosterior) -> None:
    """
    Give the model the q of what was found, at the hyperparameters that it has.

    :param model: whose q is set.
    :param q: over whitened inducing values.
    """
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
    """
    q(V) as posteriors take it: the same whatever factors it is asked at.

    :param q: over whitened inducing values, in component order.
    :param blocks: the prior's.
    """
    layout = blocks.layout
    order = layout.order
    covariance = q.covariance[:, order][:, :, order]
    factor = tf.constant(np.linalg.cholesky(covariance))
    mean, log_det = tf.constant(q.mean[order]), tf.constant(q.log_det)
    return lambda _: DenseGaussian(layout, mean, log_det, factor)
