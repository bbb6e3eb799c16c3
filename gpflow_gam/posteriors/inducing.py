"""A posterior as joint moments of its components' whitened inducing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import block_diag, solve_triangular

from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..kernels.shapes import Values
from ..kernels.tangents import KernelTangents
from ..variational import WhitenedGaussian
from .actions import ActionPosterior
from .base import AdditivePosterior
from .data import DataAdditivePosterior
from .features import Block, InducingFeatures, inducing_roots, inducing_rows
from .sparse import SparseAdditivePosterior


class JointParts(NamedTuple):
    """Moments of components at points, in two parts."""

    mean: AnyNDArray
    """[n, L]."""

    inner: AnyNDArray
    """Covariance by way of the inducing values, [L, n, n], or its diagonal alone, [L, n]."""

    open: AnyNDArray
    """Variance of what inducing values leave open, [n]."""


class InducingMoments(InducingFeatures):
    """
    Components of normal inducing values V, whitened, and their moments at any points.

    A plot needs one component at hundreds of points, and its covariance there: that is cheap from
    these moments, and dear from draws of all components together. They hold for the parameters'
    values when they are made.

    :param kernel: the additive kernel.
    :param inducing_variable: the inducing inputs.
    :param mean: of V, [P, L], in the components' order.
    :param covariance: of V, [L, P, P].
    :param values: of the kernel's parameters; those that they have by default.
    :param roots: Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each, at these values.
    :param shared: B [L, P, R], where outputs are correlated: what was learnt takes B_l B_k' from
        the prior covariance of outputs l and k.
    """

    def __init__(
        self,
        kernel: AdditiveKernel,
        inducing_variable: AdditiveInducingVariables,
        mean: AnyNDArray,
        covariance: AnyNDArray,
        *,
        values: Values | None = None,
        roots: Sequence[AnyNDArray] | None = None,
        shared: AnyNDArray | None = None,
    ) -> None:
        super().__init__(kernel, inducing_variable, values=values, roots=roots)
        self.mean, self.covariance, self.shared = mean, covariance, shared
        if kernel.members is not None:  # zero, not as the prior has it, where they do not enter
            enters = np.repeat(kernel.members, inducing_variable.sizes, axis=1)
            self.mean = mean * enters.T
            self.covariance = covariance * (enters[:, :, None] & enters[:, None, :])

    @classmethod
    def of_gaussian(
        cls,
        kernel: AdditiveKernel,
        inducing_variable: AdditiveInducingVariables,
        q: WhitenedGaussian,
    ) -> InducingMoments:
        """
        From q(V).

        :param kernel: of the model.
        :param inducing_variable: of the model.
        :param q: at the present parameters.
        """
        layout = q.layout
        covariance = layout.to_components(q.covariance(), axis=-1)
        return cls(
            kernel,
            inducing_variable,
            layout.to_components(q.mean).numpy(),
            layout.to_components(covariance, axis=-2).numpy(),
        )

    @classmethod
    def of_values(
        cls,
        posterior: ActionPosterior | DataAdditivePosterior,
        inducing_variable: AdditiveInducingVariables,
    ) -> InducingMoments:
        """
        Of a posterior that has no inducing values: those of its components at given inputs.

        What is read off is the posterior itself as far as the inputs pin the components down.

        :param posterior: of actions, or of the data.
        :param inducing_variable: where.
        """
        kernel = posterior.kernel
        names = kernel.names
        width = np.shape(posterior.X_data)[-1]  # of which no kernel reads weights and offsets
        points = {name: inducing_rows(kernel, inducing_variable, name, width) for name in names}
        roots = inducing_roots(kernel, inducing_variable)
        root = block_diag(*roots)
        if isinstance(posterior, ActionPosterior):
            mean, prior, h = (np.asarray(t) for t in posterior.joint_parts(points))
            covariance = prior - h @ h.swapaxes(1, 2)
        else:
            mean, covariance = (np.asarray(t) for t in posterior.joint_components(points))
        shared = None
        if posterior.couples_outputs and posterior.latents.mixing is None:
            shared = np.stack([solve_triangular(root, one, lower=True) for one in h])
        white = solve_triangular(root, mean, lower=True)
        half = [solve_triangular(root, c, lower=True) for c in covariance]
        inner = np.stack([solve_triangular(root, h.T, lower=True) for h in half])
        return cls(kernel, inducing_variable, white, inner, roots=roots, shared=shared)

    @classmethod
    def of(
        cls,
        posterior: AdditivePosterior,
        inducing_variable: AdditiveInducingVariables | None = None,
    ) -> InducingMoments:
        """
        Of any posterior of ours.

        :param posterior: of an additive model.
        :param inducing_variable: where to read off posteriors that have no inducing values.
        :raises ValueError: it is needed and missing.
        """
        if isinstance(posterior, SparseAdditivePosterior):
            return cls.of_gaussian(posterior.kernel, posterior.X_data, posterior.q())
        if inducing_variable is None:
            raise ValueError(
                f"{type(posterior).__name__} has no inducing values; pass inducing_variable."
            )
        return cls.of_values(posterior, inducing_variable)

    def entering(self, names: Sequence[str] | None = None) -> AnyNDArray:
        """
        Which components enter which outputs, as 1 and 0, [C, L].

        :param names: of the components; all by default.
        """
        members = self._source.members
        L = self.mean.shape[1]
        whole = np.ones((L, self._source.num_components)) if members is None else members
        where = [self._index(name) for name in (self._source.names if names is None else names)]
        return np.asarray(whole.T[where], dtype=np.float64)

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """
        Draws of V, [S, P, L].

        :param num_samples: S.
        :param seed: makes them reproducible.
        """
        P, L = self.mean.shape
        z = np.random.default_rng(seed).standard_normal((L, P, num_samples))
        if self.shared is not None:  # (I - B B')^(1/2) z, of all outputs together
            U, size, _ = np.linalg.svd(self.shared.reshape(L * P, -1), full_matrices=False)
            flat = z.reshape(L * P, -1)
            taken = 1.0 - np.sqrt(np.maximum(1.0 - np.square(size), 0.0))
            flat = flat - U @ (taken[:, None] * (U.T @ flat))
            return np.transpose(flat.reshape(z.shape), (2, 1, 0)) + self.mean
        roots = np.stack([_root(covariance) for covariance in self.covariance])
        draws: AnyNDArray = np.transpose(roots @ z, (2, 1, 0)) + self.mean
        if self._source.members is None:
            return draws
        return draws * np.repeat(self.entering(), self.inducing_variable.sizes, axis=0)

    def joint(self, blocks: Sequence[Block]) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean [n, L] and covariance [L, n, n] of components at points, one block after the other.

        Blocks of one component have to be given as one block of all its points.

        :param blocks: components by name, each with its points [n_c, D]; n in all.
        """
        parts = self.joint_parts(blocks, [self.tangents(c, X) for c, X in blocks])
        return parts.mean, parts.inner + self.open_covariance(blocks)

    def joint_parts(
        self, blocks: Sequence[Block], tangents: Sequence[KernelTangents]
    ) -> JointParts:
        """
        :meth:`joint` but for the covariance of what inducing values leave open.

        :param blocks: components and rows of X, each component once.
        :param tangents: what :meth:`tangents` made of each block, for any moments of this kernel.
        """
        found = [self.features_and_prior(c, t) for (c, _), t in zip(blocks, tangents)]
        phis = [phi for phi, _ in found]
        slices = [self.block(c) for c, _ in blocks]
        mean = np.concatenate([phi.T @ self.mean[s] for phi, s in zip(phis, slices)])
        rows = [
            np.concatenate(
                [p.T @ self.covariance[:, s, t] @ r for r, t in zip(phis, slices)], axis=-1
            )
            for p, s in zip(phis, slices)
        ]
        return JointParts(mean, np.concatenate(rows, axis=-2), _left_open(found))

    def pointwise_parts(
        self, blocks: Sequence[Block], tangents: Sequence[KernelTangents]
    ) -> JointParts:
        """
        :meth:`joint_parts` of each point for itself: no more than n of anything is formed.

        :param blocks: components by name, each with its points [n_c, D]; n in all.
        :param tangents: of each block, as :meth:`tangents` makes them.
        """
        found = [self.features_and_prior(c, t) for (c, _), t in zip(blocks, tangents)]
        slices = [self.block(c) for c, _ in blocks]
        mean = [phi.T @ self.mean[s] for (phi, _), s in zip(found, slices)]
        inner = [
            np.sum(phi * (self.covariance[:, s, s] @ phi), axis=1)
            for (phi, _), s in zip(found, slices)
        ]
        return JointParts(np.concatenate(mean), np.concatenate(inner, axis=1), _left_open(found))

    def shared_parts(self, blocks: Sequence[Block]) -> AnyNDArray | None:
        """
        B of components at points, [L, n, R], one block after the other; None without it.

        :param blocks: components by name, each with its points [n_c, D]; n in all.
        """
        if self.shared is None:
            return None
        parts = [self.features(c, X).T @ self.shared[:, self.block(c)] for c, X in blocks]
        return np.concatenate(parts, axis=1)

    def total(
        self, X: AnyNDArray, tangents: Sequence[KernelTangents] | None = None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean [N, L] and variance [N, L] of the sum of all components, without m(x).

        :param X: [N, D].
        :param tangents: what :meth:`all_tangents` made of X, of any moments of this kernel.
        """
        phi, left = self.all_features(X, tangents)
        inner = np.sum(phi * (self.covariance @ phi), axis=1)
        return phi.T @ self.mean, inner.T + left.T @ self.entering()


def _left_open(found: Sequence[tuple[AnyNDArray, AnyNDArray]]) -> AnyNDArray:
    """Variances beside what features [M_c, n_c] and prior variances [n_c] of blocks explain."""
    left = [prior - np.sum(np.square(phi), axis=0) for phi, prior in found]
    return np.maximum(np.concatenate(left), 0.0)


def _root(covariance: AnyNDArray) -> AnyNDArray:
    """A square root of a covariance beside which the prior's is I, up to rounding."""
    try:
        return np.linalg.cholesky(covariance + 1e-9 * np.eye(len(covariance)))
    except np.linalg.LinAlgError:
        # read off where inputs nearly coincide: whitening has blown rounding up
        values, vectors = np.linalg.eigh(covariance)
        root: AnyNDArray = vectors * np.sqrt(np.maximum(values, 0.0))
        return root
