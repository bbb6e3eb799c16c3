"""What the limits of several predictors have to allow for beside a q that keeps them apart."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..kernels.shapes import Values
from .cavities import RowPosterior
from .coupled import CoupledMeans
from .expectations import mean_curvature
from .posterior import GaussianPosterior
from .rows import Rows

_MAX_SIZE = 3000
"""Inducing values times predictors beyond which predictors are left apart."""
_ROWS = 20_000
"""Rows that stand for all, where there are more."""
_TOGETHER = 2**13
"""Rows whose features are held at a time."""
_NOTHING = 1e-9
"""Curvature, against the largest, which rounding leaves."""


def between_predictors(
    rows: Rows, likelihood: Likelihood, values: Values, q: GaussianPosterior
) -> AnyNDArray | None:
    r"""
    What is to be added to the covariance of each predictor's inducing values, [L, P, P].

    q has the predictors of a likelihood independent, as a site each leaves them: the variance of
    each is that with the others known, which is too little where they can stand in for each other,
    as logits of classes can. How the means of all of them respond to a slight pull says what it is
    with the others unknown: :math:`H^{-1}`, :math:`H = I + \sum_n C_n \otimes \phi_n \phi_n'` and
    C_n row n's curvature in the means of its predictors (linear response; Giordano, Broderick &
    Jordan 2018). It is never less.

    Where only differences of predictors matter, as under a softmax, of components that enter all of
    them the data leave open what all have in common: that is no news of the effect, which is told
    against the other predictors', and nothing is added to these components.

    :param rows: of the fit; of rows that several processes share nothing is asked.
    :param likelihood: at its parameters.
    :param values: of the kernels' parameters.
    :param q: over whitened inducing values.
    :return: None where there is nothing to add, or no telling: of one predictor, of classes with
        the same terms, of rows that are not here, of too many inducing values.
    """
    L = q.mean.shape[1]
    if L == 1 or type(rows) is not Rows or L * len(q.mean) > _MAX_SIZE:
        return None
    some = rows.known(_ROWS)
    parts = [
        mean_curvature(likelihood, some.X[at], mean + some.mean[at], var, some.Y[at])
        for at, mean, var in some.marginals(values, q)
    ]
    curvature = np.concatenate(parts) * (rows.number / some.number)
    least = _NOTHING * np.max(np.abs(curvature))
    if not np.max(np.abs(curvature * (1.0 - np.eye(L)))) > least:
        return None
    posterior = RowPosterior.of_rows(some, values, q)
    differences_alone = np.max(np.abs(curvature.sum(axis=2))) <= least
    shared = np.all(posterior.enters, axis=1) & differences_alone
    if np.all(shared):
        return None
    means = CoupledMeans(posterior.enters, np.zeros((some.number, L)), curvature)
    for start in range(0, some.number, _TOGETHER):
        which = np.arange(start, min(start + _TOGETHER, some.number))
        means.add(which, posterior.features(which)[0])
    if not means.factorise():
        return None
    found = means.beyond()
    found[:, shared] = 0.0
    found[:, :, shared] = 0.0
    return found
