"""Components given normal inducing values: features and joint moments, in numpy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import block_diag, lapack, solve_triangular

from ..covariances import InducingBlocks
from ..inducing_variables import AdditiveInducingVariables, pivots
from ..kernels import AdditiveKernel
from ..kernels.correlation import Values, parameters_of, with_values
from ..kernels.fixed_inputs import FixedInputKernel, fixed_input_kernel
from ..variational import WhitenedGaussian
from .actions import ActionPosterior
from .base import AdditivePosterior, SparseAdditivePosterior

Block = tuple[str, AnyNDArray]  # a component's name and rows of X [N, D]
NEGLIGIBLE = 1e-5  # share of a prior variance that counts as nothing beside what inputs explain
_RESIDUAL_COLUMNS = 100  # of a factor of what they leave open


class JointParts(NamedTuple):
    """Moments of components at points, in two parts."""

    mean: AnyNDArray  # [n, L]
    inner: AnyNDArray
    """Covariance by way of the inducing values, [L, n, n], or its diagonal alone, [L, n]."""

    open: AnyNDArray  # variance of what inducing values leave open, [n]


class InducingMoments:
    """
    Components ``f_c(x) = phi_c(x)' V_c`` of normal whitened inducing values V, plus the rest.

    A component at hundreds of points, and its covariance there, are cheap from these moments and
    dear from joint draws. They hold for the parameters' values when they are made, or for
    ``values``. V has mean [P, L] and covariance [L, P, P], in the components' order; roots are
    factors of k_c(Z_c, Z_c). With correlated outputs ``shared`` is B [L, P, R]: data take B_l B_k'
    from the prior covariance.
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
        self.inducing_variable = inducing_variable
        self._source = kernel
        if values is None:
            # now, and not when they are asked for: the parameters may have moved by then
            present = {id(p): p.numpy() for p in parameters_of(kernel)}
            values = lambda parameter: present[id(parameter)]  # noqa: E731
        self._values = values
        self.roots = inducing_roots(kernel, inducing_variable) if roots is None else list(roots)
        self._rows: dict[tuple[str, int], AnyNDArray] = {}
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
        """From q(V)."""
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
        posterior: ActionPosterior,
        inducing_variable: AdditiveInducingVariables,
    ) -> InducingMoments:
        """Moments of a posterior without inducing values, as far as inputs pin it down."""
        kernel = posterior.kernel
        names = kernel.names
        width = np.shape(posterior.X_data)[-1]  # of which no kernel reads weights and offsets
        points = {name: inducing_rows(kernel, inducing_variable, name, width) for name in names}
        roots = inducing_roots(kernel, inducing_variable)
        root = block_diag(*roots)
        mean, prior, h = (np.asarray(t) for t in posterior.joint_parts(points))
        covariance = prior - h @ h.swapaxes(1, 2)
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
        """Moments of any posterior of an additive model."""
        if isinstance(posterior, SparseAdditivePosterior):
            return cls.of_gaussian(posterior.kernel, posterior.X_data, posterior.q())
        if inducing_variable is None:
            raise ValueError(
                f"{type(posterior).__name__} has no inducing values; pass inducing_variable."
            )
        return cls.of_values(posterior, inducing_variable)

    def entering(self, names: Sequence[str] | None = None) -> AnyNDArray:
        """Membership of components in outputs, as 1 and 0, [C, L]."""
        members = self._source.members
        L = self.mean.shape[1]
        whole = np.ones((L, self._source.num_components)) if members is None else members
        where = [self._index(name) for name in (self._source.names if names is None else names)]
        return np.asarray(whole.T[where], dtype=np.float64)

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """Draws of V, [S, P, L]."""
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

    def joint_parts(
        self, blocks: Sequence[Block], tangents: Sequence[FixedInputKernel], pointwise: bool = False
    ) -> JointParts:
        """
        Joint moments of distinct components at points, block after block, in two parts.

        Of each point for itself where ``pointwise``: no more than n of anything is formed then.
        """
        result = [self.features_and_prior(c, t) for (c, _), t in zip(blocks, tangents)]
        parts = [(phi, self.block(c)) for (phi, _), (c, _) in zip(result, blocks)]
        mean = np.concatenate([phi.T @ self.mean[s] for phi, s in parts])
        S = self.covariance
        if pointwise:
            inner = np.concatenate([np.sum(p * (S[:, s, s] @ p), axis=1) for p, s in parts], axis=1)
        else:
            rows = [np.concatenate([p.T @ S[:, s, t] @ r for r, t in parts], -1) for p, s in parts]
            inner = np.concatenate(rows, axis=-2)
        left = np.concatenate([_residual_variance(*pair) for pair in result])
        return JointParts(mean, inner, left)

    def shared_parts(self, blocks: Sequence[Block]) -> AnyNDArray | None:
        """B of components at points, [L, n, R], one block after the other; None without it."""
        if self.shared is None:
            return None
        parts = [self.features(c, X).T @ self.shared[:, self.block(c)] for c, X in blocks]
        return np.concatenate(parts, axis=1)

    def total(
        self, X: AnyNDArray, tangents: Sequence[FixedInputKernel] | None = None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance [N, L] of the sum of all components at X [N, D], without m(x)."""
        phi, left = self.all_features(X, tangents)
        inner = np.sum(phi * (self.covariance @ phi), axis=1)
        return phi.T @ self.mean, inner.T + left.T @ self.entering()

    def components(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance [N, C, L] of each component at X [N, D]."""
        means, variances = [], []
        for name, enters in zip(self._source.names, self.entering()):
            phi, prior = self.features_and_prior(name, self.tangents(name, X))
            block = self.block(name)
            means.append(phi.T @ self.mean[block])
            known = np.sum(phi * (self.covariance[:, block, block] @ phi), axis=1)
            variances.append(known.T + np.outer(_residual_variance(phi, prior), enters))
        return np.stack(means, axis=1), np.stack(variances, axis=1)

    # --- features -----------------------------------------------------------------------------

    @functools.cached_property
    def kernel(self) -> AdditiveKernel:
        """The additive kernel at the parameters' values of these moments, which stay."""
        values = [self._values(p) for p in parameters_of(self._source)]
        kernel = with_values(self._source, values)
        assert isinstance(kernel, AdditiveKernel)
        return kernel

    @functools.cached_property
    def _blocks(self) -> dict[str, slice]:
        ends = itertools.pairwise(itertools.accumulate(self.inducing_variable.sizes, initial=0))
        return {name: slice(*end) for name, end in zip(self._source.names, ends)}

    def _index(self, name: str) -> int:
        return self._source.names.index(name)

    def block(self, name: str) -> slice:
        """The slice of a component's inducing values."""
        return self._blocks[name]

    def _inputs(self, name: str, width: int) -> AnyNDArray:
        """Z_c as rows of X [M_c, width]."""
        if (name, width) not in self._rows:
            result = inducing_rows(self._source, self.inducing_variable, name, width)
            self._rows[name, width] = result
        return self._rows[name, width]

    def tangents(self, name: str, X: AnyNDArray) -> FixedInputKernel:
        """A component's matrices between its inducing inputs and X [N, D]."""
        Z = self._inputs(name, X.shape[1])
        return fixed_input_kernel(self._source[name], Z, np.asarray(X, dtype=np.float64))

    def features(self, name: str, X: AnyNDArray) -> AnyNDArray:
        """``phi_c = L_c^-1 k_c(Z_c, X)``, [M_c, N]. Shapes: X [N, D]."""
        return self.features_and_prior(name, self.tangents(name, X))[0]

    def features_and_prior(
        self, name: str, tangents: FixedInputKernel
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Features [M_c, N] of a component and its prior variances [N]."""
        _, K, diagonal = tangents.matrices(self._values)
        return self._whitened(name, K), diagonal

    def _whitened(self, name: str, K: AnyNDArray) -> AnyNDArray:
        root = self.roots[self._index(name)]
        phi, _ = lapack.dtrtrs(root, np.asarray_chkfinite(K), lower=1)
        return phi

    def residual_covariance(self, blocks: Sequence[Block]) -> AnyNDArray:
        """``k_c(x, x') - phi_c(x)' phi_c(x')`` at points, components independent, [n, n]."""
        parts = []
        for name, X in blocks:
            Z = self._inputs(name, X.shape[1])
            X = np.asarray(X, dtype=np.float64)
            K, Kxz, _ = fixed_input_kernel(self._source[name], X, Z).matrices(self._values)
            phi = self._whitened(name, Kxz.T)
            parts.append(K - phi.T @ phi)
        return parts[0] if len(parts) == 1 else block_diag(*parts)

    def residual_pivots(self, name: str, X: AnyNDArray) -> list[int]:
        """At most 100 rows of X that pin down what inducing values leave open."""
        phi, prior = self.features_and_prior(name, self.tangents(name, X))
        rest: AnyNDArray = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)
        least = NEGLIGIBLE * float(np.max(prior, initial=0.0))
        row = lambda i: self._residual_rows(name, X, phi, [i])[0]  # noqa: E731
        return pivots(rest, row, _RESIDUAL_COLUMNS, least)

    def residual_factor(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, prior: AnyNDArray, pivots: Sequence[int]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Factor of a component's residual covariance at many points X [N, D], for draws of it."""
        rest: AnyNDArray = np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)
        least = NEGLIGIBLE * float(np.max(prior, initial=0.0))
        root = np.zeros((len(rest), 0))
        if len(pivots):
            rows = self._residual_rows(name, X, phi, pivots)
            factor, order, rank, _ = lapack.dpstrf(rows[:, list(pivots)], tol=1e-3 * least, lower=1)
            kept = rows[order[:rank] - 1]
            root = solve_triangular(np.tril(factor)[:rank, :rank], kept, lower=True).T
            rest = np.maximum(rest - np.sum(np.square(root), axis=1), 0.0)
        settled = float(np.max(rest, initial=0.0)) <= least
        return root, np.zeros_like(rest) if settled else rest

    def _residual_rows(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, which: Sequence[int]
    ) -> AnyNDArray:
        """Rows [R, N] of the covariance of what inducing values leave open."""
        some = X[list(which)]
        K = fixed_input_kernel(self._source[name], some, X).matrices(self._values)[1]
        return K - phi[:, list(which)].T @ phi

    def all_tangents(self, X: AnyNDArray) -> list[FixedInputKernel]:
        """:meth:`tangents` of all components, in their order. Shapes: X [N, D]."""
        return [self.tangents(name, X) for name in self._source.names]

    def all_features(
        self, X: AnyNDArray, tangents: Sequence[FixedInputKernel] | None = None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Features of all components [P, N] at X, and variances that these leave open, [C, N]."""
        tangents = self.all_tangents(X) if tangents is None else tangents
        result = [self.features_and_prior(n, t) for n, t in zip(self._source.names, tangents)]
        left = [_residual_variance(*pair) for pair in result]
        return np.concatenate([phi for phi, _ in result]), np.stack(left)


class AugmentedMoments(InducingMoments):
    r"""
    A posterior with more inducing inputs S_c [R_c, D], where present ones leave much variance.

    Their whitened features given V_c are :math:`C^{-1} (k_c(S_c, x) - \phi_c(S_c)' \phi_c(x))`, C
    C' being the covariance left open at S_c, of standard normal variables independent of V_c.
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
                left = moments.residual_covariance([(name, rows)])
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
    result: dict[int, AnyNDArray] = {}
    for group, L in zip(blocks.groups, blocks.cholesky()):
        result |= {index: L[i].numpy() for i, index in enumerate(group.indices)}
    return [result[i] for i in range(len(result))]


def _residual_variance(phi: AnyNDArray, prior: AnyNDArray) -> AnyNDArray:
    """Of one component, [n]; zero where it is rounding, which far from the data is large."""
    left = prior - np.sum(np.square(phi), axis=0)
    return np.where(left > _ROUNDING * prior, left, 0.0)


def _root(covariance: AnyNDArray) -> AnyNDArray:
    """A square root of a covariance beside which the prior's is I, up to rounding."""
    try:
        return np.linalg.cholesky(covariance + 1e-9 * np.eye(len(covariance)))
    except np.linalg.LinAlgError:
        # read off where inputs nearly coincide: whitening has blown rounding up
        values, vectors = np.linalg.eigh(covariance)
        return vectors * np.sqrt(np.maximum(values, 0.0))


_ROUNDING = 1e-13  # of a prior variance
_JITTER = 1e-10  # of what is left open at the points, as a share of it
