"""Moments of inducing values, and of what these leave open at further points."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gpflow.base import AnyNDArray

from ..inducing_variables import AdditiveInducingVariables
from .inducing import InducingMoments

_JITTER = 1e-10
"""Of what is left open at the points, as a share of it."""


class SettledMoments(InducingMoments):
    r"""
    The same posterior with more inducing inputs, where those that there are leave much open.

    What inducing values V_c leave open of a component has its prior, independent of them. With
    further inputs S_c, whose whitened features given V_c are
    :math:`C^{-1} (k_c(S_c, x) - \phi_c(S_c)' \phi_c(x))`, C C' being the covariance left open at
    S_c, the component is a function of V_c and of as many standard normal variables.

    :param moments: of the inducing values.
    :param points: further inputs by component, rows of X [R_c, D], of which what is left open is
        nowhere settled by the others.
    """

    def __init__(self, moments: InducingMoments, points: Mapping[str, AnyNDArray]) -> None:
        kernel, own = moments._source, moments.inducing_variable
        inputs, roots, start = {}, [], 0
        old: list[int] = []
        for name, Z, root in zip(kernel.names, own.inputs, moments.roots):
            rows = points.get(name)
            number = len(root) if rows is None else len(root) + len(rows)
            old += range(start, start + len(root))
            start += number
            inputs[name], whole = np.asarray(Z), root
            if rows is not None:
                columns = kernel.columns[kernel.names.index(name)]
                some = rows if columns is None else rows[:, list(columns)]
                inputs[name] = np.concatenate([inputs[name], some])
                left = moments.open_covariance([(name, rows)])
                left = left + _JITTER * np.diag(np.diag(left))
                whole = np.zeros((number, number))
                whole[: len(root), : len(root)] = root
                whole[len(root) :, : len(root)] = moments.features(name, rows).T
                whole[len(root) :, len(root) :] = np.linalg.cholesky(left)
            roots.append(whole)
        self._free, self._old = moments, np.array(old)
        L = moments.mean.shape[1]
        mean, covariance = np.zeros((start, L)), np.stack([np.eye(start)] * L)
        mean[self._old] = moments.mean
        covariance[:, self._old[:, None], self._old] = moments.covariance
        super().__init__(
            kernel,
            AdditiveInducingVariables(inputs),
            mean,
            covariance,
            values=moments._values,
            roots=roots,
        )

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        V = self._free.sample(num_samples, seed)
        shape = (num_samples, len(self.mean), V.shape[2])
        whole = np.random.default_rng((seed, 1)).standard_normal(shape)
        whole = whole * np.repeat(self.entering(), self.inducing_variable.sizes, axis=0)
        whole[:, self._old] = V
        return whole
