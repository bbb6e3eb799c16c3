"""What components are given their inducing values: features, and what these leave open."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import block_diag, lapack, solve_triangular

from ..covariances import InducingBlocks
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..kernels.functional import parameters_of, with_values
from ..kernels.shapes import Values
from ..kernels.tangents import KernelTangents, kernel_tangents

Block = tuple[str, AnyNDArray]
"""A component's name and rows of X [N, D]."""
NEGLIGIBLE = 1e-5
"""Of a component's prior variance: what inducing values leave open beside it counts as nothing."""
_OPEN_COLUMNS = 100
"""Of a factor of what they leave open."""


class InducingFeatures:
    """
    Components ``f_c(x) = phi_c(x)' V_c`` plus what inducing values leave open, of any V.

    They hold for the parameters' values when they are made.

    :param kernel: the additive kernel.
    :param inducing_variable: the inducing inputs.
    :param values: of the kernel's parameters; those that they have by default.
    :param roots: Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each, at these values.
    """

    def __init__(
        self,
        kernel: AdditiveKernel,
        inducing_variable: AdditiveInducingVariables,
        *,
        values: Values | None = None,
        roots: Sequence[AnyNDArray] | None = None,
    ) -> None:
        self.inducing_variable = inducing_variable
        self._source = kernel
        if values is None:
            # now, and not when they are asked for: the parameters may have moved by then
            present = {id(p): p.numpy() for p in parameters_of(kernel)}
            values = lambda parameter: present[id(parameter)]  # noqa: E731
        self._values = values
        if roots is None:
            roots = inducing_roots(kernel, inducing_variable)
        self._roots = list(roots)
        self._rows: dict[tuple[str, int], AnyNDArray] = {}

    @functools.cached_property
    def kernel(self) -> AdditiveKernel:
        """The additive kernel at the parameters' values of these moments, which stay."""
        values = [self._values(p) for p in parameters_of(self._source)]
        kernel = with_values(self._source, values)
        assert isinstance(kernel, AdditiveKernel)
        return kernel

    @property
    def roots(self) -> Sequence[AnyNDArray]:
        """Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each, in the components' order."""
        return self._roots

    @functools.cached_property
    def layout_offsets(self) -> AnyNDArray:
        """
        Where each component's values begin, and P at the end.

        :return: [C + 1].
        """
        return np.concatenate([[0], np.cumsum(self.inducing_variable.sizes)])

    def _index(self, name: str) -> int:
        return self._source.names.index(name)

    def block(self, name: str) -> slice:
        """
        Where a component's inducing values stand.

        :param name: of the component.
        """
        start, end = self.layout_offsets[self._index(name) :][:2]
        return slice(int(start), int(end))

    def _inputs(self, name: str, width: int) -> AnyNDArray:
        """Z_c as rows of X [M_c, width]."""
        if (name, width) not in self._rows:
            found = inducing_rows(self._source, self.inducing_variable, name, width)
            self._rows[name, width] = found
        return self._rows[name, width]

    def tangents(self, name: str, X: AnyNDArray) -> KernelTangents:
        """
        A component's matrices between its inducing inputs and X [N, D].

        :param name: of the component.
        :param X: inputs, [N, D].
        """
        Z = self._inputs(name, X.shape[1])
        return kernel_tangents(self._source[name], Z, np.asarray(X, dtype=np.float64))

    def features(self, name: str, X: AnyNDArray) -> AnyNDArray:
        """
        ``phi_c = L_c^-1 k_c(Z_c, X)``, [M_c, N].

        :param name: of the component.
        :param X: inputs, [N, D].
        """
        return self.features_and_prior(name, self.tangents(name, X))[0]

    def features_and_prior(
        self, name: str, tangents: KernelTangents
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Features [M_c, N] of a component and its prior variances [N].

        :param name: of the component.
        :param tangents: what :meth:`tangents` made, of any moments of this kernel.
        """
        _, K, diagonal = tangents.matrices(self._values)
        return self._whitened(name, K), diagonal

    def features_at(
        self, points: Mapping[str, AnyNDArray]
    ) -> dict[str, tuple[AnyNDArray, AnyNDArray]]:
        """
        Features [M_c, N_c] and prior variances [N_c] of components, each at points of its own.

        :param points: component name -> rows of X [N_c, D].
        """
        return {
            name: self.features_and_prior(name, self.tangents(name, X))
            for name, X in points.items()
        }

    def _whitened(self, name: str, K: AnyNDArray) -> AnyNDArray:
        root = self._roots[self._index(name)]
        phi, _ = lapack.dtrtrs(root, np.asarray_chkfinite(K), lower=1)
        found: AnyNDArray = phi
        return found

    def open_covariance(self, blocks: Sequence[Block]) -> AnyNDArray:
        """
        ``k_c(x, x') - phi_c(x)' phi_c(x')`` at points, components independent, [n, n].

        :param blocks: components by name, each with its points [n_c, D]; n in all.
        """
        parts = []
        for name, X in blocks:
            Z = self._inputs(name, X.shape[1])
            X = np.asarray(X, dtype=np.float64)
            K, Kxz, _ = kernel_tangents(self._source[name], X, Z).matrices(self._values)
            phi = self._whitened(name, Kxz.T)
            parts.append(K - phi.T @ phi)
        whole: AnyNDArray = parts[0] if len(parts) == 1 else block_diag(*parts)
        return whole

    def open_pivots(self, name: str, X: AnyNDArray) -> list[int]:
        """
        Points that pin down what inducing values leave open of a component, at most 100 of them.

        Those of a partial Cholesky factor, which asks for a column of the kernel at a time: none
        where inducing inputs settle the function.

        :param name: of the component.
        :param X: [N, D].
        """
        phi, prior = self.features_and_prior(name, self.tangents(name, X))
        rest: AnyNDArray = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)
        least = NEGLIGIBLE * float(np.max(prior, initial=0.0))
        pivots: list[int] = []
        columns: list[AnyNDArray] = []
        while len(pivots) < _OPEN_COLUMNS and float(np.max(rest, initial=0.0)) > least:
            pivot = int(np.argmax(rest))
            (k,) = self._open_rows(name, X, phi, [pivot])
            k = k - sum((c[pivot] * c for c in columns), 0.0)
            columns.append(k / np.sqrt(rest[pivot]))
            rest = np.maximum(rest - np.square(columns[-1]), 0.0)
            rest[pivot] = 0.0
            pivots.append(pivot)
        return pivots

    def open_factor(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, prior: AnyNDArray, pivots: Sequence[int]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        What inducing values leave open of a component at many points, for draws of it.

        :param name: of the component.
        :param X: [N, D].
        :param phi: features there, [M_c, N].
        :param prior: prior variances there, [N].
        :param pivots: what :meth:`open_pivots` gave, of any moments of this kernel.
        :return: a factor [N, R] of the covariance, and the variance [N] that it lacks, zero where
            that is negligible everywhere.
        """
        rest: AnyNDArray = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)
        least = NEGLIGIBLE * float(np.max(prior, initial=0.0))
        root = np.zeros((len(rest), 0))
        if len(pivots):
            rows = self._open_rows(name, X, phi, pivots)
            factor, order, rank, _ = lapack.dpstrf(rows[:, list(pivots)], tol=1e-3 * least, lower=1)
            kept = rows[order[:rank] - 1]
            root = solve_triangular(np.tril(factor)[:rank, :rank], kept, lower=True).T
            rest = np.maximum(rest - np.sum(np.square(root), axis=1), 0.0)
        settled = float(np.max(rest, initial=0.0)) <= least
        return root, np.zeros_like(rest) if settled else rest

    def _open_rows(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, which: Sequence[int]
    ) -> AnyNDArray:
        """Rows [R, N] of the covariance of what inducing values leave open."""
        some = X[list(which)]
        K = kernel_tangents(self._source[name], some, X).matrices(self._values)[1]
        found: AnyNDArray = K - phi[:, list(which)].T @ phi
        return found

    def all_tangents(self, X: AnyNDArray) -> list[KernelTangents]:
        """
        :meth:`tangents` of all components, in their order.

        :param X: inputs, [N, D].
        """
        return [self.tangents(name, X) for name in self._source.names]

    def all_features(
        self, X: AnyNDArray, tangents: Sequence[KernelTangents] | None = None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Features of all components [P, N], in their order, and what these leave open, [C, N].

        :param X: [N, D].
        :param tangents: what :meth:`all_tangents` made of X, of any moments of this kernel.
        """
        tangents = self.all_tangents(X) if tangents is None else tangents
        found = [self.features_and_prior(n, t) for n, t in zip(self._source.names, tangents)]
        left = [prior - np.sum(np.square(phi), axis=0) for phi, prior in found]
        return np.concatenate([phi for phi, _ in found]), np.stack(left)


def inducing_rows(
    kernel: AdditiveKernel, inducing_variable: AdditiveInducingVariables, name: str, width: int
) -> AnyNDArray:
    """Z_c as rows of X [M_c, width], zero in columns that the component does not read."""
    index = kernel.names.index(name)
    Z: AnyNDArray = np.zeros((inducing_variable.sizes[index], width))
    columns = kernel.columns[index]
    Z[:, slice(None) if columns is None else list(columns)] = inducing_variable.inputs[index]
    return Z


def inducing_roots(
    kernel: AdditiveKernel, inducing_variable: AdditiveInducingVariables
) -> list[AnyNDArray]:
    """Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each, at the parameters' present values."""
    blocks = InducingBlocks(inducing_variable, kernel)
    found: dict[int, AnyNDArray] = {}
    for group, L in zip(blocks.groups, blocks.cholesky()):
        found |= {index: L[i].numpy() for i, index in enumerate(group.indices)}
    return [found[i] for i in range(len(found))]
