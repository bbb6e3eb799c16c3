"""Joint moments of a few components at a few points each."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import deepcopy
from scipy.linalg import block_diag, solve_triangular

from ..components import Component, build_inducing
from ..covariances import InducingBlocks
from ..fits import FittedGAM
from ..models import IterNCGP
from ..variational import WhitenedGaussian

Block = tuple[Component, AnyNDArray]
"""A component and rows of X [N, D]."""

Whitened = Callable[[list[tf.Tensor]], WhitenedGaussian]


class InducingMoments:
    """
    The posterior of the whitened inducing values, in the components' order, at the hyperparameters
    that a fit's model has now.

    A plot needs one component at hundreds of points, and its covariance there: that is cheap from
    these moments, and dear from draws of all components together.

    :param fit: the fitted GAM.
    :param whitened: from the Cholesky factors of K_c(Z_c, Z_c) to q(V); the model's own by default.
    :param frozen: whether to copy the kernel, whose parameters are about to change.
    """

    def __init__(
        self, fit: FittedGAM, whitened: Whitened | None = None, frozen: bool = False
    ) -> None:
        # not the fit itself: what is kept for as long as the fit is must not keep it
        model = fit.model
        self._names = fit.spec.names
        self._kernel = deepcopy(model.kernel) if frozen else model.kernel
        self.likelihood = deepcopy(model.likelihood) if frozen else model.likelihood
        if isinstance(model, IterNCGP):
            self._inducing = build_inducing(fit.spec.components, self._kernel, fit.X.shape[1])
        else:
            self._inducing = model.inducing_variable
        blocks = InducingBlocks(self._inducing, self._kernel)
        self.layout = blocks.layout
        factors = blocks.cholesky()
        self._blocks, self._factors = blocks, factors
        per_component: dict[int, AnyNDArray] = {}
        for group, L in zip(blocks.groups, factors):
            per_component |= {index: L[i].numpy() for i, index in enumerate(group.indices)}
        self._cholesky = per_component
        self.mean: AnyNDArray
        self.covariance: AnyNDArray
        if isinstance(model, IterNCGP):
            self.mean, self.covariance = self._of_actions(fit)
            return
        q = (
            model.posterior(PrecomputeCacheType.NOCACHE).q()
            if whitened is None
            else whitened(factors)
        )
        self.mean = self.layout.to_components(q.mean).numpy()
        covariance = self.layout.to_components(q.covariance(), axis=-1)
        self.covariance = self.layout.to_components(covariance, axis=-2).numpy()

    def _of_actions(self, fit: FittedGAM) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Whitened moments [P, L] and [L, P, P] of the components at the inducing inputs.

        That engine has no inducing values; effects are read off a posterior as if it had.
        """
        width = fit.X.shape[1]
        points = {c.name: self._inducing_rows(c, width) for c in fit.spec.components}
        mean, covariance = (t.numpy() for t in fit.posterior.joint_components(points))
        root = block_diag(*(self._cholesky[i] for i in range(len(points))))
        white = solve_triangular(root, mean, lower=True)
        half = [solve_triangular(root, c, lower=True) for c in covariance]
        return white, np.stack([solve_triangular(root, h.T, lower=True) for h in half])

    def block(self, component: Component) -> slice:
        """Where a component's inducing values stand."""
        index = self._names.index(component.name)
        start, end = self.layout.offsets[index : index + 2]
        return slice(int(start), int(end))

    def features(self, component: Component, X: AnyNDArray) -> AnyNDArray:
        """L_c^-1 k_c(Z_c, X), [M_c, N]."""
        Z = self._inducing_rows(component, X.shape[1])
        return self._whitened(component, self._kernel[component.name](Z, X).numpy())

    def _inducing_rows(self, component: Component, width: int) -> AnyNDArray:
        """Z_c as rows of X, zero in columns that the component does not read."""
        index = self._names.index(component.name)
        Z = np.zeros((self._inducing.sizes[index], width))
        columns = self._kernel.columns[index]
        assert columns is not None
        Z[:, list(columns)] = np.asarray(self._inducing.inputs[index])
        return Z

    def _whitened(self, component: Component, K: AnyNDArray) -> AnyNDArray:
        L = self._cholesky[self._names.index(component.name)]
        phi: AnyNDArray = solve_triangular(L, K, lower=True)
        return phi

    def _features_and_prior(
        self, component: Component, X: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Features [M_c, N] and k_c(X, X) [N, N], from one evaluation: calls are what costs."""
        Z = self._inducing_rows(component, X.shape[1])
        K = self._kernel[component.name](np.concatenate([Z, X])).numpy()
        M = len(Z)
        return self._whitened(component, K[:M, M:]), K[M:, M:]

    def joint(self, blocks: Sequence[Block]) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean [n, L] and covariance [L, n, n] of components at points, one block after the other.

        Blocks of one component have to be given as one block of all its points.
        """
        phis, priors = zip(*(self._features_and_prior(c, X) for c, X in blocks))
        slices = [self.block(c) for c, _ in blocks]
        mean = np.concatenate([phi.T @ self.mean[s] for phi, s in zip(phis, slices)])
        rows = [
            np.concatenate(
                [p.T @ self.covariance[:, s, t] @ r for r, t in zip(phis, slices)], axis=-1
            )
            for p, s in zip(phis, slices)
        ]
        covariance = np.concatenate(rows, axis=-2)
        start = 0
        for prior, phi in zip(priors, phis):
            stop = start + len(prior)
            covariance[:, start:stop, start:stop] += prior - phi.T @ phi
            start = stop
        return mean, covariance

    def total(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean [N, L] and variance [N, L] of the sum of all components, without m(x)."""
        features = self._blocks.features(tf.constant(X), self._factors)
        phi = self.layout.to_components(self.layout.concat(features.phi)).numpy()
        prior = sum(np.sum(variances.numpy(), axis=0) for variances in features.prior)
        inner = np.einsum("mn,lmk,kn->nl", phi, self.covariance, phi, optimize=True)
        return phi.T @ self.mean, inner + (prior - np.sum(phi**2, axis=0))[:, None]


_MOMENTS: weakref.WeakKeyDictionary[FittedGAM, InducingMoments] = weakref.WeakKeyDictionary()


def inducing_moments(fit: FittedGAM) -> InducingMoments:
    """The moments of a fit, kept as long as the fit is."""
    if fit not in _MOMENTS:
        _MOMENTS[fit] = InducingMoments(fit)
    return _MOMENTS[fit]
