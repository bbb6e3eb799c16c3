"""Components given normal inducing values, projected or not: features and moments, in numpy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter
from scipy.linalg import block_diag, cholesky, lapack, solve_triangular
from scipy.optimize import nnls

from ..covariances import BlockLayout, Features, InducingBlocks
from ..inducing_variables import AdditiveInducingVariables, embed, pivoted_cholesky
from ..kernels import AdditiveKernel
from ..kernels.correlation import Values, parameters_of, with_values
from ..kernels.fixed_inputs import FixedInputKernel, fixed_input_kernel
from ..kernels.shaped import shaped_part
from ..variational import WhitenedGaussian
from .actions import ActionPosterior
from .base import AdditivePosterior, SparseAdditivePosterior

Block = tuple[str, AnyNDArray]  # a component's name and rows of X [N, D]
NEGLIGIBLE = 1e-5  # share of a prior variance that counts as nothing beside what inputs explain
_RESIDUAL_COLUMNS = 100  # of a factor of what they leave open


class JointParts(NamedTuple):
    """Moments of components at points, in two parts."""

    mean: AnyNDArray  # [n, L]
    inner: AnyNDArray  # covariance by way of inducing values, [L, n, n], or its diagonal, [L, n]
    open: AnyNDArray  # variance of what inducing values leave open, [n]


class InducingMoments:
    """Components ``f_c(x) = phi_c(x)' V_c`` of normal whitened inducing values V, plus the rest."""

    # A component at hundreds of points, and its covariance there, are cheap from these moments and
    # dear from joint draws. They hold for the parameters' values when they are made, or for values
    # that are given. V has mean [P, L] and covariance [L, P, P], in the components' order; roots
    # are factors of k_c(Z_c, Z_c). With correlated outputs shared is B [L, P, R]: data take B_l
    # B_k' from the prior covariance.
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
            known = {id(p): p.numpy().astype(np.float64) for p in parameters_of(kernel)}
            # the kernel of a snapshot has values in their place
            values = lambda p: known[id(p)] if id(p) in known else np.asarray(p)  # noqa: E731
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
        counted: bool,
    ) -> InducingMoments:
        """Moments of a posterior without inducing values, as far as inputs pin it down."""
        if not posterior.latents.shared:
            raise ValueError(
                "posterior has outputs with kernels of their own; its components are read off "
                "where one kernel serves all outputs: fit a model an output, or give one kernel."
            )
        kernel = posterior.kernel
        names = kernel.names
        data = np.asarray(posterior.X_data)  # of which no kernel reads weights and offsets
        points = {
            name: inducing_rows(kernel, inducing_variable, name, data.shape[1]).astype(data.dtype)
            for name in names
        }
        roots = inducing_roots(kernel, inducing_variable)
        root = block_diag(*roots)
        mean, prior, h = (np.asarray(t) for t in posterior.joint_parts(points))
        covariance = prior - h @ h.swapaxes(1, 2)
        if counted:  # the jitter of roots is the prior's, too: what it alone moves is not settled
            covariance += root @ root.T - prior[0]
        shared = None
        if posterior.couples_outputs:
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
        counted: bool = False,
    ) -> InducingMoments:
        """Moments of any posterior of an additive model; ``counted``: for degrees of freedom."""
        if isinstance(posterior, SparseAdditivePosterior):
            return cls.of_gaussian(posterior.kernel, posterior.X_data, posterior.q())
        assert inducing_variable is not None
        return cls.of_values(posterior, inducing_variable, counted)

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
        roots = np.stack([covariance_root(S) for S in self.covariance])
        draws: AnyNDArray = np.transpose(roots @ z, (2, 1, 0)) + self.mean
        if self._source.members is None:
            return draws
        return draws * np.repeat(self.entering(), self.inducing_variable.sizes, axis=0)

    def joint_parts(
        self, blocks: Sequence[Block], tangents: Sequence[FixedInputKernel], pointwise: bool = False
    ) -> JointParts:
        """Joint moments of distinct components at points, block after block, in two parts."""
        # of each point for itself where pointwise: no more than n of anything is formed then
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

    def total(
        self,
        X: AnyNDArray,
        tangents: Sequence[FixedInputKernel] | None = None,
        names: Sequence[str] | None = None,
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and variance [N, L] of the sum of components at X [N, D], all or some; no m(x)."""
        return self.summed(*self.all_features(X, tangents, names), names)

    def summed(
        self, phi: AnyNDArray, left: AnyNDArray, names: Sequence[str] | None = None
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """:meth:`total` from features [P, N], and from what these leave open, [C, N]."""
        mean, covariance = self.mean, self.covariance
        if names is not None:
            where = self.places(names)
            mean, covariance = mean[where], covariance[:, where[:, None], where]
        inner = np.sum(phi * (covariance @ phi), axis=1)
        return phi.T @ mean, inner.T + left.T @ self.entering(names)

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

    def places(self, names: Sequence[str]) -> AnyNDArray:
        """The indices of some components' inducing values."""
        return np.concatenate([np.r_[:0], *(np.r_[self.block(name)] for name in names)])

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
        return pivoted_cholesky(rest, row, _RESIDUAL_COLUMNS, least)[1]

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

    def all_features(
        self,
        X: AnyNDArray,
        tangents: Sequence[FixedInputKernel] | None = None,
        names: Sequence[str] | None = None,
    ) -> tuple[AnyNDArray, AnyNDArray]:
        """Features [P, N] of components, all or some, and the variances they leave, [C, N]."""
        names = self._source.names if names is None else names
        tangents = [self.tangents(name, X) for name in names] if tangents is None else tangents
        result = [self.features_and_prior(n, t) for n, t in zip(names, tangents)]
        left = [_residual_variance(*pair) for pair in result]
        phi = np.concatenate([phi for phi, _ in result] or [np.zeros((0, len(X)))])
        return phi, np.array(left).reshape(len(result), len(X))


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
    Z = inducing_variable.inputs[index].numpy().astype(np.float64)
    return embed(Z, kernel.columns[index], width)


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


def covariance_root(covariance: AnyNDArray) -> AnyNDArray:
    """A square root of a covariance beside which the prior's is I, up to rounding."""
    try:  # without jitter, which a line's variance far away would multiply
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        # read off where inputs nearly coincide: whitening has blown rounding up
        values, vectors = np.linalg.eigh(covariance)
        return vectors * np.sqrt(np.maximum(values, 0.0))


_ROUNDING = 1e-13  # of a prior variance
_JITTER = 1e-10  # of what is left open at the points, as a share of it


# --- with shapes ----------------------------------------------------------------------------------


_LEAST_SD = 1e-2  # against the Gaussian's own, what is left of a deviation that is projected away
_NULL_DRAWS = 1000

Walls = list[tuple[AnyNDArray, AnyNDArray]]
"""Draws that touch the same walls, and the directions [P, r] that these hold."""


class Projection:
    """N(mean, covariance) projected on the cone of x with ``rows x >= 0``."""

    # A draw becomes the nearest point of the cone in the Gaussian's own metric. Projected draws
    # concentrate as the Gaussian's do, and so do bands around a function in the cone (Lin & Dunson
    # 2014, "Bayesian monotone regression using Gaussian process projection"; Sen, Patra & Dunson
    # 2018). A truncated Gaussian is pushed away from where a function is flat (Zhou, Ray, Pati &
    # Bhattacharya 2024, "A mass-shifting phenomenon of truncated multivariate normal priors").
    def __init__(self, mean: AnyNDArray, covariance: AnyNDArray, rows: AnyNDArray) -> None:
        values, vectors = np.linalg.eigh(covariance)
        sd = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
        # the symmetric root: rounding turns no axes, and so changes no draw
        self._mean, self._root = mean, (vectors * sd) @ vectors.T
        self._inverse = (vectors / sd) @ vectors.T
        # x = root u, u of unit covariance; of u rows see W u alone, W orthonormal [r, P]
        left, sizes, W = np.linalg.svd(rows @ self._root, full_matrices=False)
        seen = sizes > 1e-12 * sizes.max(initial=0.0)
        walls = left[:, seen] * sizes[seen]
        length = np.linalg.norm(walls, axis=1, keepdims=True)
        self._walls = walls / np.where(length > 0.0, length, 1.0)
        self._W = W[seen]
        self._centre: AnyNDArray = self._W @ (self._inverse @ mean)

    def _pushes(self, z: AnyNDArray) -> AnyNDArray:
        """Multipliers [S, n] of the walls that take W u = z [S, r] to the nearest point inside."""
        pushes = np.zeros((len(z), len(self._walls)))
        for i in np.flatnonzero(np.any(z @ self._walls.T < 0.0, axis=1)):
            pushes[i] = nnls(self._walls.T, -z[i], maxiter=50 * len(self._walls))[0]
        return pushes

    def _moves(self, z: AnyNDArray) -> AnyNDArray:
        """Steps that lead from W u = z [S, r] to the cone, along the normals of walls touched."""
        return self._pushes(z) @ self._walls

    @functools.cached_property
    def _step(self) -> AnyNDArray:
        return self._moves(self._centre[None, :])[0]

    @property
    def mean(self) -> AnyNDArray:
        """The projection of the mean, [P]: where the density is greatest in the cone."""
        return self._mean + self._root @ (self._step @ self._W)

    @property
    def derivative(self) -> AnyNDArray:
        """Derivative of the projected mean in the mean, [P, P]: along the walls that it touches."""
        touched = self._walls[self._pushes(self._centre[None])[0] > 0.0] @ self._W
        along, sizes, _ = np.linalg.svd(touched.T, full_matrices=False)
        along = along[:, sizes > 1e-9]
        result: AnyNDArray = np.eye(len(self._mean)) - self._root @ along @ (
            along.T @ self._inverse
        )
        return result

    def covariance(self, number: int, seed: int = 0) -> AnyNDArray:
        """``E[(x - m) (x - m)']`` of projected draws x around the projected mean m, [P, P]."""
        r, P = self._W.shape
        half = np.random.default_rng(seed).standard_normal((max(-(-number // 2), 2 * r), P))
        noise = _antithetic(half @ self._W.T)
        away = noise + self._moves(self._centre + noise) - self._step
        inner = away.T @ away / max(len(noise), 1)
        values, vectors = np.linalg.eigh(inner)
        inner = (vectors * np.maximum(values, _LEAST_SD**2)) @ vectors.T
        bound = self._root @ self._W.T
        result: AnyNDArray = self._root @ self._root.T + bound @ (inner @ bound.T - bound.T)
        return 0.5 * (result + result.T)

    def draws(self, number: int, seed: int = 0) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray, Walls]:
        """A root, u [S, P] of draws ``mean + root u``, the mean first, projected ones, walls."""
        P = len(self._mean)
        half = np.random.default_rng(seed).standard_normal((max(-(-number // 2), 2 * P), P))
        free = np.concatenate([np.zeros((1, P)), _antithetic(half)])
        pushes = self._pushes(self._centre + free @ self._W.T)
        normals = self._walls @ self._W
        _, first, group = np.unique(pushes > 0.0, axis=0, return_index=True, return_inverse=True)
        touching = []
        for i in np.argsort(first):  # the mean's comes first
            touched = normals[pushes[first[i]] > 0.0]
            touching.append((np.flatnonzero(group.ravel() == i), np.linalg.qr(touched.T)[0]))
        return self._root, free, free + pushes @ normals, touching

    def sample(self, num_samples: int, rng: np.random.Generator) -> AnyNDArray:
        """Projected draws [S, P]."""
        u = rng.standard_normal((num_samples, len(self._mean)))
        u += self._moves(self._centre + u @ self._W.T) @ self._W
        return self._mean + u @ self._root.T

    def p_value(self, seed: int = 0) -> float:
        """Likelihood-ratio test of the inequalities at the tip (Robertson et al. 1988)."""
        distance = float(np.sum(np.square(self._step)))
        if distance <= 1e-12:
            return 1.0
        noise = np.random.default_rng(seed).standard_normal((_NULL_DRAWS, len(self._centre)))
        null = np.sum(np.square(self._moves(noise)), axis=1)
        return float((1 + np.sum(null >= distance)) / (1 + _NULL_DRAWS))


def _antithetic(half: AnyNDArray) -> AnyNDArray:
    """Draws of covariance I exactly: where no inequality touches nothing is uncertain then."""
    sizes, axes = np.linalg.eigh(half.T @ half / max(len(half), 1))
    half = half @ (axes / np.sqrt(sizes)) @ axes.T
    return np.concatenate([half, -half])


def constraint_evidence(mean: AnyNDArray, covariance: AnyNDArray, rows: AnyNDArray) -> float:
    """Log Bayes factor of equalities in place of the inequalities that hold a mean, in nats."""
    # With B the rows that hold the projected mean of N(mean, covariance), the posterior under a
    # standard normal prior, it is the ratio of their densities at zero (Dickey 1971),
    # log N(0; B mu, B S B') - log N(0; 0, B B').
    root = cholesky(covariance, lower=True)
    walls = rows @ root  # of u, where x = root u
    length = np.linalg.norm(walls, axis=1, keepdims=True)
    walls = walls / np.where(length > 0.0, length, 1.0)
    centre = solve_triangular(root, mean, lower=True)
    if np.all(walls @ centre >= 0.0):
        return 0.0
    pushes, _ = nnls(walls.T, -centre, maxiter=50 * len(walls))
    held = pushes > 0.0
    loss = 0.5 * float(np.sum(np.square(pushes @ walls)))
    # rows have the lengths by which walls were divided
    return _log_volume(rows[held] / length[held]) - _log_volume(walls[held]) - loss


def _log_volume(rows: AnyNDArray) -> float:
    """Half the log-determinant of ``rows rows'``, [n, P], of independent ones."""
    triangle = np.linalg.qr(rows.T, mode="r")
    return float(np.sum(np.log(np.abs(np.diag(triangle)))))


_BANK = 2000  # draws that a graph holds


class ShapedValues:
    """Normal V, projected together so that ``rows`` [n_c, P] of it are not negative."""

    def __init__(
        self,
        mean: AnyNDArray,
        covariance: AnyNDArray,
        rows: Mapping[int, AnyNDArray],
        enters: AnyNDArray | None = None,
        number: int = _BANK,
    ) -> None:
        self._free, self._rows = (mean, covariance), dict(rows)
        self._enters, self._number = enters, number

    @functools.cached_property
    def _projections(self) -> list[Projection]:
        moments = enumerate(zip(self._free[0].T, self._free[1]))
        return [Projection(mean, S, self.inequalities(i)) for i, (mean, S) in moments]

    @functools.cached_property
    def mean(self) -> AnyNDArray:
        """The projected mean of V, [P, L]."""
        return np.stack([p.mean for p in self._projections], axis=1)

    @functools.cached_property
    def covariance(self) -> AnyNDArray:
        """Covariance of projected draws around the projected mean, [L, P, P]."""
        return np.stack([p.covariance(self._number) for p in self._projections])

    @property
    def components(self) -> tuple[int, ...]:
        """Places of the components that have a shape."""
        return tuple(self._rows)

    def inequalities(self, output: int) -> AnyNDArray:
        """Rows of V, [n, P], that are not negative where they enter an output."""
        own = [A for c, A in self._rows.items() if self._is_in(c, output)]
        return np.concatenate(own) if own else np.zeros((0, len(self._free[0])))

    def _is_in(self, component: int, output: int) -> bool:
        enters = self._enters
        return enters is None or bool(np.any(self._rows[component] * enters[:, output]))

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """Projected draws of V, [S, P, L]."""
        rng = np.random.default_rng(seed)
        draws = np.stack([p.sample(num_samples, rng) for p in self._projections], axis=-1)
        return draws if self._enters is None else draws * self._enters

    def degrees_of_freedom(self, block: slice) -> AnyNDArray:
        """Traces [L] of how estimates of values V follow the data (Meyer & Woodroofe 2000)."""
        free = self._free[1]
        smoothers = [p.derivative @ (np.eye(len(S)) - S) for p, S in zip(self._projections, free)]
        return np.array([np.trace(F[block, block]) for F in smoothers])

    def p_value(self, component: int, output: int) -> float:
        """The probability that noise alone is as far from a shape as the free estimate is."""
        if not self._is_in(component, output):
            return 1.0
        mean, covariance = self._free
        return Projection(mean[:, output], covariance[output], self._rows[component]).p_value()


class ShapedMoments(InducingMoments):
    """The moments of inducing values after they are projected on the shapes of components."""

    def __init__(self, free: InducingMoments, number: int = _BANK) -> None:
        self.projected = shaped_values(free, number)
        super().__init__(
            free._source,
            free.inducing_variable,
            self.projected.mean,
            self.projected.covariance,
            values=free._values,
            roots=free.roots,
        )
        names = self._source.names
        self._shaped = {names[i] for i in self.projected.components}

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        return self.projected.sample(num_samples, seed)

    # what jitter leaves open has no shape, and is nothing

    def residual_pivots(self, name: str, X: AnyNDArray) -> list[int]:
        return [] if name in self._shaped else super().residual_pivots(name, X)

    def residual_factor(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, prior: AnyNDArray, pivots: Sequence[int]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        if name in self._shaped:
            return np.zeros((len(X), 0)), np.zeros(len(X))
        return super().residual_factor(name, X, phi, prior, pivots)


def shaped_values(free: InducingMoments, number: int = _BANK) -> ShapedValues:
    """The inducing values of free moments, projected on the shapes of their components."""
    kernel, enters = free._source, None
    if kernel.members is not None:
        enters = np.repeat(free.entering(), free.inducing_variable.sizes, axis=0)
    rows = {kernel.names.index(name): A for name, A in shaped_components(free).items()}
    return ShapedValues(free.mean, free.covariance, rows, enters, number)


def shaped_components(
    moments: InducingMoments, tangents: Mapping[str, FixedInputKernel] | None = None
) -> dict[str, AnyNDArray]:
    """Rows [n_c, P] of which V has no negative multiple, of components with a shape."""
    if tangents is None:
        tangents = {name: moments.tangents(name, X) for name, X in acting_nodes(moments).items()}
    result = {}
    for name, own in tangents.items():
        part = shaped_part(moments._source[name])
        assert part is not None
        rows = np.zeros((len(part.kernel.cone), len(moments.mean)))
        phi, _ = moments.features_and_prior(name, own)
        rows[:, moments.block(name)] = part.kernel.cone @ phi.T
        result[name] = rows
    return result


def acting_nodes(moments: InducingMoments) -> dict[str, AnyNDArray]:
    """Rows of X [J, D] at the nodes of each component with a shape."""
    kernel, Z = moments._source, moments.inducing_variable
    shaped = [name for name, own in kernel.components.items() if shaped_part(own) is not None]
    return {name: inducing_rows(kernel, Z, name, kernel.num_columns) for name in shaped}


class ShapedPosterior(SparseAdditivePosterior):
    """A sparse posterior whose draws have the shapes; a graph draws from 2000 that it holds."""

    def __init__(self, *arguments: Any, moments: ShapedValues, **options: Any) -> None:
        self._moments = moments
        # what jitter leaves open of a constant is drawn for each row by itself
        self._negligible = max(NEGLIGIBLE, 2.0 * default_jitter())
        super().__init__(*arguments, **options)

    def _sample_inducing(
        self, q: WhitenedGaussian, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        if not tf.executing_eagerly():
            bank = tf.constant(self._moments.sample(_BANK, 0)[:, q.layout.order])
            if seed is None:
                return tf.gather(bank, tf.random.uniform([num_samples], 0, _BANK, tf.int32))
            chosen = tf.random.stateless_uniform([num_samples], seed, 0, _BANK, tf.int32)
            return tf.gather(bank, chosen)
        entropy = None if seed is None else np.ravel(np.asarray(seed)).tolist()
        (own,) = np.random.SeedSequence(entropy).generate_state(1)
        draws = self._moments.sample(int(num_samples), int(own))
        return tf.constant(draws[:, q.layout.order])

    def _residual_root(self, layout: BlockLayout, features: Features, X: tf.Tensor) -> tf.Tensor:
        # what jitter leaves open has no shape, nor would the sum have one with it
        root = super()._residual_root(layout, features, X)
        prior = tf.linalg.diag_part(self.blocks.prior_components(X))
        left = tf.reduce_max(tf.reduce_sum(tf.square(root), axis=-1), axis=-1)
        open_ = left > self._negligible * tf.reduce_max(prior, axis=-1)
        free = [i not in self._moments.components for i in range(self.kernel.num_components)]
        return tf.where((open_ & tf.constant(free))[:, None, None], root, tf.zeros_like(root))
