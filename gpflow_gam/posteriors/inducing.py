"""A posterior as joint moments of its components' whitened inducing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from scipy.linalg import block_diag, solve_triangular

from ..covariances import InducingBlocks
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..kernels.stacked import stack
from ..variational import WhitenedGaussian
from .actions import ActionPosterior
from .base import AdditivePosterior
from .data import DataAdditivePosterior
from .sparse import SparseAdditivePosterior

Block = tuple[str, AnyNDArray]
"""A component's name and rows of X [N, D]."""


class InducingMoments:
    """
    Components ``f_c(x) = phi_c(x)' V_c`` plus what inducing values leave open, V normal.

    A plot needs one component at hundreds of points, and its covariance there: that is cheap from
    these moments, and dear from draws of all components together. They hold for the parameters'
    values when they are made.

    :param kernel: the additive kernel.
    :param inducing_variable: the inducing inputs.
    :param mean: of V, [P, L], in the components' order.
    :param covariance: of V, [L, P, P].
    """

    def __init__(
        self,
        kernel: AdditiveKernel,
        inducing_variable: AdditiveInducingVariables,
        mean: AnyNDArray,
        covariance: AnyNDArray,
    ) -> None:
        self.kernel = kernel
        self.inducing_variable = inducing_variable
        self.mean = mean
        self.covariance = covariance
        self._blocks = InducingBlocks(inducing_variable, kernel)
        self._factors = self._blocks.cholesky()
        self._roots = _roots(self._blocks, self._factors)

    @classmethod
    def of_gaussian(
        cls,
        kernel: AdditiveKernel,
        inducing_variable: AdditiveInducingVariables,
        q: WhitenedGaussian,
    ) -> InducingMoments:
        """
        From q(V).

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

        :param inducing_variable: where.
        """
        kernel = posterior.kernel
        names = kernel.names
        points = {
            name: inducing_rows(kernel, inducing_variable, name, kernel.num_columns)
            for name in names
        }
        mean, covariance = (np.asarray(t) for t in posterior.joint_components(points))
        blocks = InducingBlocks(inducing_variable, kernel)
        roots = _roots(blocks, blocks.cholesky())
        root = block_diag(*(roots[i] for i in range(len(names))))
        white = solve_triangular(root, mean, lower=True)
        half = [solve_triangular(root, c, lower=True) for c in covariance]
        inner = np.stack([solve_triangular(root, h.T, lower=True) for h in half])
        return cls(kernel, inducing_variable, white, inner)

    @classmethod
    def of(
        cls,
        posterior: AdditivePosterior,
        inducing_variable: AdditiveInducingVariables | None = None,
    ) -> InducingMoments:
        """
        Of any posterior of ours.

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

    @property
    def layout_offsets(self) -> AnyNDArray:
        """Where each component's values begin, and P at the end."""
        return self._blocks.layout.offsets

    def block(self, name: str) -> slice:
        """Where a component's inducing values stand."""
        index = self.kernel.names.index(name)
        start, end = self.layout_offsets[index : index + 2]
        return slice(int(start), int(end))

    def features(self, name: str, X: AnyNDArray) -> AnyNDArray:
        """``phi_c = L_c^-1 k_c(Z_c, X)``, [M_c, N]."""
        Z = inducing_rows(self.kernel, self.inducing_variable, name, X.shape[1])
        return self._whitened(name, self.kernel[name](Z, X).numpy())

    def features_at(
        self, points: Mapping[str, AnyNDArray]
    ) -> dict[str, tuple[AnyNDArray, AnyNDArray]]:
        """
        Features [M_c, N_c] and prior variances [N_c] of components, each at points of its own.

        Components of a kind with as many points are evaluated together: calls are what costs.

        :param points: component name -> rows of X [N_c, D].
        """
        found: dict[str, tuple[AnyNDArray, AnyNDArray]] = {}
        names = self.kernel.names
        for group in self._blocks.groups:
            batches: dict[int, list[int]] = {}
            for i in group.indices:
                if names[i] in points:
                    batches.setdefault(len(points[names[i]]), []).append(i)
            for batch in batches.values():
                if group.gather is None:
                    (i,) = batch
                    prior = self.kernel.kernels[i](points[names[i]], full_cov=False).numpy()
                    found[names[i]] = self.features(names[i], points[names[i]]), prior
                    continue
                columns = [list(self.kernel.columns[i] or ()) for i in batch]
                X = tf.constant(np.stack([points[names[i]][:, c] for i, c in zip(batch, columns)]))
                Z = tf.stack([self.inducing_variable.inputs[i] for i in batch])
                assert group.columns is not None
                stacked = stack([self.kernel.kernels[i] for i in batch], group.columns)
                K, prior = stacked.K(Z, X).numpy(), stacked.K_diag(X).numpy()
                for row, i in enumerate(batch):
                    found[names[i]] = self._whitened(names[i], K[row]), prior[row]
        return found

    def _whitened(self, name: str, K: AnyNDArray) -> AnyNDArray:
        phi: AnyNDArray = solve_triangular(
            self._roots[self.kernel.names.index(name)], K, lower=True
        )
        return phi

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """
        Draws of V, [S, P, L].

        :param num_samples: S.
        :param seed: makes them reproducible.
        """
        P, L = self.mean.shape
        z = np.random.default_rng(seed).standard_normal((L, P, num_samples))
        roots = np.stack([_root(covariance) for covariance in self.covariance])
        draws: AnyNDArray = np.transpose(roots @ z, (2, 1, 0)) + self.mean
        return draws

    def _features_and_prior(self, name: str, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Features [M_c, N] and k_c(X, X) [N, N], from one evaluation: calls are what costs."""
        Z = inducing_rows(self.kernel, self.inducing_variable, name, X.shape[1])
        K = self.kernel[name](np.concatenate([Z, X])).numpy()
        M = len(Z)
        return self._whitened(name, K[:M, M:]), K[M:, M:]

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

    def all_features(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Features of all components [P, N], in their order, and sum_c k_c(x_n, x_n) [N].

        Components of a kind are evaluated together: many calls of :meth:`features` are dearer.
        """
        features = self._blocks.features(tf.constant(X), self._factors)
        layout = self._blocks.layout
        phi = layout.to_components(layout.concat(features.phi)).numpy()
        return phi, sum(np.sum(variances.numpy(), axis=0) for variances in features.prior)

    def total(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean [N, L] and variance [N, L] of the sum of all components, without m(x)."""
        phi, prior = self.all_features(X)
        inner = np.einsum("mn,lmk,kn->nl", phi, self.covariance, phi, optimize=True)
        return phi.T @ self.mean, inner + (prior - np.sum(phi**2, axis=0))[:, None]


def _root(covariance: AnyNDArray) -> AnyNDArray:
    """A square root of a covariance beside which the prior's is I, up to rounding."""
    try:
        return np.linalg.cholesky(covariance + 1e-9 * np.eye(len(covariance)))
    except np.linalg.LinAlgError:
        # read off where inputs nearly coincide: whitening has blown rounding up
        values, vectors = np.linalg.eigh(covariance)
        root: AnyNDArray = vectors * np.sqrt(np.maximum(values, 0.0))
        return root


def inducing_rows(
    kernel: AdditiveKernel, inducing_variable: AdditiveInducingVariables, name: str, width: int
) -> AnyNDArray:
    """Z_c as rows of X [M_c, width], zero in columns that the component does not read."""
    index = kernel.names.index(name)
    Z: AnyNDArray = np.zeros((inducing_variable.sizes[index], width))
    columns = kernel.columns[index]
    Z[:, slice(None) if columns is None else list(columns)] = inducing_variable.inputs[index]
    return Z


def _roots(blocks: InducingBlocks, factors: Sequence[tf.Tensor]) -> dict[int, AnyNDArray]:
    """Cholesky factors [M_c, M_c] by the component's place."""
    found: dict[int, AnyNDArray] = {}
    for group, L in zip(blocks.groups, factors):
        found |= {index: L[i].numpy() for i, index in enumerate(group.indices)}
    return found
