"""The blocks of inducing values, and their covariances: dense ones too for GPflow's own models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorLike, TensorType
from gpflow.config import default_jitter
from gpflow.covariances import Kuf, Kuu
from gpflow.kernels import Constant, Kernel, Product, Sum

from .inducing_variables import AdditiveInducingVariables, check_compatible
from .kernels import AdditiveKernel
from .kernels.additive import Alone, ComponentGroup, StackedKernel
from .kernels.correlation import float_type, in_double
from .kernels.terms import Factor, Indicator, MarkovField, OnColumns, ZeroMean


@dataclass(frozen=True)
class BlockLayout:
    """
    The blocks of U = [U_1, ..., U_C] in R^P, of sizes M_c, and which are worked on together.

    Parameters are stored in *component order*. Inside, arrays are in *group order*: the blocks
    of one group, all of size M, stand side by side, so that a group's part reshapes to [G, M,
    ...].
    """

    sizes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def num_components(self) -> int:
        """C."""
        return len(self.sizes)

    @property
    def total(self) -> int:
        """P, the sum of the block sizes."""
        return sum(self.sizes)

    @property
    def group_shapes(self) -> tuple[tuple[int, int], ...]:
        """(G, M) of every group."""
        return tuple((len(g), self.sizes[g[0]]) for g in self.groups)

    @property
    def component_order(self) -> list[int]:
        """Component indices in group order."""
        return [i for g in self.groups for i in g]

    @cached_property
    def offsets(self) -> AnyNDArray:
        """Offset of each component's block, in component order, and P at the end: [C + 1]."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def order(self) -> AnyNDArray:
        """Component-order positions in group order, [P]: ``x_group = x_component[order]``."""
        blocks = [np.arange(self.offsets[i], self.offsets[i + 1]) for i in self.component_order]
        return np.concatenate(blocks).astype(np.int32)

    def to_groups(self, x: tf.Tensor, axis: int = -2) -> tf.Tensor:
        """[..., P, ...] from component order to group order along ``axis``."""
        return _permuted(x, self.order, axis)

    def to_components(self, x: tf.Tensor, axis: int = -2) -> tf.Tensor:
        """[..., P, ...] from group order to component order along ``axis``."""
        return _permuted(x, np.argsort(self.order), axis)

    def spread(self, members: AnyNDArray | None) -> AnyNDArray | None:
        """Mask of the components of each output, [L, C], for each entry in group order, [L, P]."""
        if members is None:
            return None
        whole = np.repeat(members, self.sizes, axis=1)
        return np.asarray(whole[:, self.order], dtype=np.float64)

    def separated(
        self, members: AnyNDArray | None, precision: tf.Tensor, shift: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """A site without what it says of components that do not enter an output."""
        enters = self.spread(members)
        if enters is None:
            return precision, shift
        return precision * (enters[:, :, None] * enters[:, None, :]), shift * enters.T

    def split(self, x: tf.Tensor) -> list[tf.Tensor]:
        """[..., P, K] in group order -> a list of [..., G, M, K]."""
        parts = tf.split(x, [g * m for g, m in self.group_shapes], axis=-2)
        return [_with_rows(p, 1, [g, m]) for p, (g, m) in zip(parts, self.group_shapes)]

    def concat(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The inverse of :meth:`split`."""
        flat = [_with_rows(p, 2, [g * m]) for p, (g, m) in zip(parts, self.group_shapes)]
        return flat[0] if len(flat) == 1 else tf.concat(flat, axis=-2)

    def restore_components(self, parts: Sequence[tf.Tensor], axis: int = 0) -> tf.Tensor:
        """[..., G, ...] of each group, one slice a component along ``axis``, -> [..., C, ...]."""
        x = parts[0] if len(parts) == 1 else tf.concat(list(parts), axis=axis)
        return _permuted(x, np.argsort(self.component_order), axis)


def _permuted(x: tf.Tensor, places: AnyNDArray, axis: int) -> tf.Tensor:
    """Entries at these places along an axis; free where they are all in order."""
    if np.array_equal(places, np.arange(len(places))):
        return x
    return tf.gather(x, places, axis=axis)


def _with_rows(x: tf.Tensor, axes: int, rows: list[int]) -> tf.Tensor:
    """``x`` with the ``axes`` axes before its last one reshaped to ``rows``."""
    if x.shape.rank is not None:
        known = x.shape.as_list()
        wanted = [*known[: -axes - 1], *rows, known[-1]]
        if wanted.count(None) <= (0 not in wanted):  # one operation instead of a dozen
            return tf.reshape(x, [-1 if size is None else size for size in wanted])
    shape = tf.shape(x)
    return tf.reshape(x, tf.concat([shape[: -axes - 1], rows, shape[-1:]], axis=0))


# --- covariances of inducing values ---------------------------------------------------------------


__all__ = ["Features", "InducingBlocks"]


_SINGLE = 1e-5  # the least share in single precision, where less is lost in rounding
_LEVELS = 1e-12  # enough for levels in double precision: their eigenvalues are zero or far from it
_KNOWN = 1e-10  # share of a variance that is nothing: what rounding and the jitter of levels leave
_LEAST = 1e-6  # share of the mean variance that may be rounding where functions are centred


def relative_jitter(jitter: float | None, dtype: tf.DType) -> float:
    """The share of its variances that is added to a covariance matrix."""
    if jitter is not None:
        return jitter
    return max(default_jitter(), _SINGLE) if dtype == tf.float32 else default_jitter()


def own_jitter(jitter: float, kernel: Kernel, dtype: tf.DType) -> float:
    """The share of a component, at most ``jitter``; less of levels, of which more is known."""
    return min(jitter, _LEVELS) if dtype == tf.float64 and only_levels(kernel) else jitter


def mean_variance(variances: tf.Tensor) -> tf.Tensor:
    """Mean [..., 1] of variances [..., N], exactly zero where it cannot be told from it."""
    mean = tf.reduce_mean(variances, axis=-1, keepdims=True)
    limits = np.finfo(variances.dtype.as_numpy_dtype)
    return tf.where(mean > limits.tiny / limits.eps, mean, tf.zeros_like(mean))


def jittered(K: tf.Tensor, jitter: float, size: tf.Tensor | None = None) -> tf.Tensor:
    """``K + jitter * size * I`` of matrices K [..., M, M]; I is added to one of zeros."""
    if K.shape[-1] == 1 and size is None:
        return K + tf.cast(tf.equal(mean_variance(K), 0.0), K.dtype)
    diag = tf.linalg.diag_part(K)
    if size is None:
        size = mean_variance(diag)
        others = tf.reduce_any(tf.linalg.set_diag(K, tf.zeros_like(diag)) != 0.0, axis=[-2, -1])
        jitter = (jitter * tf.cast(others, K.dtype))[..., None]
    return tf.linalg.set_diag(K, diag + tf.where(size > 0.0, jitter * size, tf.ones_like(size)))


def open_variances(variances: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
    """Sizes [..., N] of what inducing inputs leave open at points, of which jitter is a share."""
    # A point's own variance a priori, as the mean may be an outlier's; zero where nothing is left,
    # as of lines and levels. In single precision rounding is as large as the largest.
    mean = mean_variance(variances)
    if variances.dtype == tf.float32:
        return mean + tf.zeros_like(variances)
    size = tf.maximum(variances, _LEAST * mean)
    return tf.where((mean > 0.0) & (left > _KNOWN * variances), size, tf.zeros_like(size))


def sampling_root(covariance: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """A square root [..., N, N] of covariances that rounding may have left slightly indefinite."""
    # where errors of differences exceed the jitter, the symmetric one without negative eigenvalues
    jitter = relative_jitter(None, covariance.dtype)
    size = tf.broadcast_to(size, tf.shape(covariance)[:-1])
    alive = size > 0.0
    both = alive[..., :, None] & alive[..., None, :]
    covariance = tf.where(both, covariance, tf.zeros_like(covariance))  # that may be rounding
    root = tf.linalg.cholesky(jittered(covariance, jitter, size))

    def clipped() -> tf.Tensor:
        # at unit variances: the components of one matrix may differ in size
        scale = tf.where(alive, tf.sqrt(size), tf.ones_like(size))
        unit = covariance / (scale[..., :, None] * scale[..., None, :])
        values, vectors = tf.linalg.eigh(tf.cast(unit, tf.float64))
        eps = np.finfo(covariance.dtype.as_numpy_dtype).eps
        rounding = -np.sqrt(eps) * tf.cast(tf.shape(unit)[-1], tf.float64)
        values = tf.where(values > rounding, tf.maximum(values, 0.0), np.nan)
        values = tf.debugging.check_numerics(
            values,
            "the conditional covariance of a component is not positive definite at Xnew; raise "
            "gpflow's default_jitter",
        )
        inner = tf.matmul(vectors * tf.sqrt(values)[..., None, :], vectors, transpose_b=True)
        return scale[..., None] * tf.cast(inner, covariance.dtype)

    finite = tf.reduce_all(tf.math.is_finite(root))
    root = tf.cond(finite, lambda: root, clipped)
    return tf.where(alive, tf.ones_like(size), tf.zeros_like(size))[..., None] * root


@dataclass(frozen=True)
class Features:
    """
    Whitened features of points and their prior variances, in group order.

    For points x_1..x_N: ``phi[g]`` [G, M, N] holds ``L_c^-1 k_c(Z_c, x_n)`` and ``prior[g]``
    [G, N] holds ``k_c(x_n, x_n)``. In double precision, as the factors are. ``members[g]`` [L, G]
    says which components enter which outputs; None: all of them all.
    """

    phi: list[tf.Tensor]
    prior: list[tf.Tensor]
    members: list[AnyNDArray] | None = None

    def total_prior(self) -> tf.Tensor:
        """``sum_c k_c(x_n, x_n)``, [N]; of each output's own components, [L, N]."""
        return self.summed(self.prior)

    def summed(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Sums over components of ``parts`` [G, N] a group: [N]; over each output's own, [L, N]."""
        if self.members is None:
            return tf.add_n([tf.reduce_sum(p, axis=0) for p in parts])
        return tf.add_n(
            [tf.matmul(m.astype(p.dtype.as_numpy_dtype), p) for m, p in zip(self.members, parts)]
        )


class InducingBlocks:
    """
    The covariances between inducing values and functions, never densified.

    A short-lived view of a kernel and its inducing variables: it reads their parameters once, when
    it first needs them. Make one inside each gradient tape and ``tf.function``.

    In double precision, those of models in single precision too: a bound is a difference of sums
    over the data of what L_c^-1 has blown up. In single precision its slope is noise long before
    the optimum, and kernels of small distances have no digits.

    :param inducing_variable: inducing inputs per component.
    :param kernel: the additive kernel.
    :param double: whether to; otherwise matrices are in the precision of kernel and inputs.
    :raises ValueError: where the two do not fit together.
    :raises TypeError: inducing variables that are not ours.
    """

    def __init__(
        self,
        inducing_variable: AdditiveInducingVariables,
        kernel: AdditiveKernel,
        double: bool = True,
    ) -> None:
        check_compatible(inducing_variable, kernel)
        self.inducing_variable = inducing_variable
        self.kernel = kernel
        own = [Z.dtype for Z in inducing_variable.inputs]
        self.dtype = tf.float64 if double or not own else own[0]
        self._raised = any(dtype != self.dtype for dtype in own)
        self._evaluated = kernel
        if self._raised:
            raised = in_double(kernel)
            assert isinstance(raised, AdditiveKernel)
            self._evaluated = raised
        sizes = inducing_variable.sizes
        self.groups = kernel.groups(sizes)
        self.layout = BlockLayout(sizes, tuple(g.indices for g in self.groups))
        members = kernel.members
        self._members = (
            None if members is None else [members[:, list(g.indices)] for g in self.groups]
        )
        self._stacks: dict[ComponentGroup, StackedKernel] = {}
        self._inputs: dict[tuple[ComponentGroup, int], tf.Tensor] = {}

    def _precision(self) -> AbstractContextManager[None]:
        """In which kernels are evaluated."""
        return float_type("float64") if self._raised else nullcontext()

    def _stacked(self, group: ComponentGroup) -> StackedKernel:
        if group not in self._stacks:
            self._stacks[group] = self._evaluated.stacked(group)
        return self._stacks[group]

    def _inducing(self, group: ComponentGroup, width: int) -> tf.Tensor:
        """Inducing inputs [G, M, d] as the group's kernels read them, of ``width`` columns of X."""
        key = group, width if group.gather is None else 0
        if key not in self._inputs:
            inputs = [self.inducing_variable.inputs[i] for i in group.indices]
            Z = tf.cast(tf.stack([tf.convert_to_tensor(Z) for Z in inputs]), self.dtype)
            columns = self.kernel.columns[group.indices[0]]
            if group.gather is None and columns is not None:  # zero where it does not read
                where = np.zeros((len(columns), width))
                where[np.arange(len(columns)), list(columns)] = 1.0
                Z = tf.matmul(Z, tf.constant(where, dtype=Z.dtype))
            self._inputs[key] = Z
        return self._inputs[key]

    def kuu(self) -> list[tf.Tensor]:
        """``k_c(Z_c, Z_c)`` of each group, [G, M, M], without jitter."""
        blocks = []
        with self._precision():
            for group in self.groups:
                Z = self._inducing(group, max(self.kernel.num_columns, 1))
                blocks.append(self._stacked(group).K(Z, Z))
        return blocks

    def kuf(self, X: TensorType) -> list[tf.Tensor]:
        """``k_c(Z_c, X)`` of each group, [G, M, N], for ``X`` [N, D]."""
        self.kernel.check_inputs(X)
        X = tf.cast(X, self.dtype)
        with self._precision():
            return [
                self._stacked(group).K(self._inducing(group, X.shape[-1]), group.inputs(X))
                for group in self.groups
            ]

    def prior(self, X: TensorType) -> tf.Tensor:
        """
        ``sum_c k_c(x_n, x_m)``, [N, N]; of each output's own components, [L, N, N].

        :param X: inputs, [N, D].
        """
        members = self.kernel.members
        if members is not None:
            parts = self.prior_components(X)
            return tf.einsum("lc,cnm->lnm", members.astype(parts.dtype.as_numpy_dtype), parts)
        with self._precision():
            return self._evaluated(tf.cast(X, self.dtype))

    def prior_components(self, X: TensorType) -> tf.Tensor:
        """``k_c(x_n, x_m)``, [C, N, N], for ``X`` [N, D]."""
        with self._precision():
            return self._evaluated.K_components(tf.cast(X, self.dtype))

    def cholesky(self, jitter: float | None = None) -> list[tf.Tensor]:
        """
        Lower Cholesky factors of ``K_c + jitter trace(K_c) / M_c I``, K_c = k_c(Z_c, Z_c), of each
        group, [G, M, M]. A component without variance has I for one; to a diagonal K_c, as that of
        an intercept or of a factor's levels, nothing is added.

        :param jitter: as a share of the component's own variance at its inducing inputs, so that
            the response may be in any unit; GPflow's default. Less of it is added to components
            that are functions of levels.
        :raises tf.errors.InvalidArgumentError: a block is not positive definite; names the
            component and says what to change.
        """
        blocks = [self._jittered(K, group, jitter) for group, K in zip(self.groups, self.kuu())]
        return [self._root(K, group, share) for group, (K, share) in zip(self.groups, blocks)]

    def _jittered(
        self, K: tf.Tensor, group: ComponentGroup, jitter: float | None = None
    ) -> tuple[tf.Tensor, float]:
        kernel = self.kernel.kernels[group.indices[0]]  # the others are of its kind
        share = own_jitter(relative_jitter(jitter, K.dtype), kernel, K.dtype)
        return jittered(K, share), share

    def _root(self, K: tf.Tensor, group: ComponentGroup, jitter: float) -> tf.Tensor:
        """The Cholesky factor; on a CPU a failed one is NaN and says nothing."""
        L = tf.linalg.cholesky(K)
        failed = tf.reduce_any(~tf.math.is_finite(L), axis=[-2, -1])
        names = [self.kernel.names[i] for i in group.indices]
        problem = "kernel matrix of the inducing inputs is not positive definite for component"
        advice = (
            f"even with {jitter:g} of its variance as jitter: its parameters are not finite, or "
            "inducing inputs (nearly) coincide. Use fewer or distinct inducing inputs, standardise "
            "the column, put a prior on the lengthscale, or raise gpflow's default_jitter."
        )
        if tf.executing_eagerly():
            guilty = [name for name, bad in zip(names, failed.numpy()) if bad]
            if guilty:
                message = f"{problem} {', '.join(guilty)} {advice}"
                raise tf.errors.InvalidArgumentError(None, None, message)
            return L
        # one flag a component: XLA, which drops assertions, cannot gather strings
        which = f"{problem} where 1 stands in the order {', '.join(names)}:"
        flags = tf.cast(failed, tf.int32)
        check = tf.debugging.Assert(~tf.reduce_any(failed), [which, flags, advice], 64)
        with tf.control_dependencies([check]):
            return tf.identity(L)

    def features(self, X: TensorType, cholesky: list[tf.Tensor]) -> Features:
        """Whitened features of X [N, D], by the factors that :meth:`cholesky` returned."""
        self.kernel.check_inputs(X)
        X = tf.cast(X, self.dtype)
        phi, prior = [], []
        with self._precision():
            for group, L in zip(self.groups, cholesky):
                kernel, inputs = self._stacked(group), group.inputs(X)
                k = kernel.K(self._inducing(group, X.shape[-1]), inputs)
                phi.append(tf.linalg.triangular_solve(tf.cast(L, k.dtype), k, lower=True))
                prior.append(kernel.K_diag(inputs))
        return Features(phi, prior, self._members)

    def whitened(self, X: tf.Tensor) -> tuple[list[tf.Tensor], Features]:
        """
        :meth:`cholesky` and :meth:`features` of X [N, D] by one evaluation of each kernel.

        Factors have no gradients of their own, as where q(V) is held.

        :param X: inputs, [N, D].
        """
        self.kernel.check_inputs(X)
        X = tf.cast(X, self.dtype)
        factors, phi, prior = [], [], []
        with self._precision():
            for group in self.groups:
                kernel, Z = self._stacked(group), self._inducing(group, X.shape[-1])
                both, M = tf.concat([Z, group.inputs(X)], axis=1), Z.shape[1]
                own, across = tf.split(kernel.K(Z, both), [M, -1], axis=-1)
                if isinstance(kernel, Alone):  # noise is that of the same rows, not of equal ones
                    own = kernel.K(Z, Z)
                own, share = self._jittered(own, group)
                factors.append(self._root(tf.stop_gradient(own), group, share))
                phi.append(_solved(factors[-1], own, across))
                prior.append(kernel.K_diag(both)[:, M:])
        return factors, Features(phi, prior, self._members)

    @check_shapes("x: [N, D]", "return: [C, N]")
    def residual_variance(self, x: TensorType) -> tf.Tensor:
        """
        ``k_c(x, x) - |phi_c(x)|^2`` of every component: what its inducing inputs cannot see.

        :param x: inputs, [N, D].
        :return: [C, N].
        """
        f = self.features(x, self.cholesky())
        parts = [p - tf.reduce_sum(tf.square(a), axis=-2) for a, p in zip(f.phi, f.prior)]
        return tf.cast(self.layout.restore_components(parts), tf.convert_to_tensor(x).dtype)


def check_layout(layout: BlockLayout, blocks: InducingBlocks) -> None:
    """Raise ValueError unless a q's layout is the kernel's, as it was when q was made."""
    if layout != blocks.layout:
        raise ValueError(
            "kernel has a component of another kind than when this model's q was made; build the "
            "model anew."
        )


def _solved(L: tf.Tensor, own: tf.Tensor, across: tf.Tensor) -> tf.Tensor:
    """``L^-1 across`` [G, M, N], where ``own`` [G, M, M] is L L', through which gradients go."""
    M = L.shape[-1]
    upper = np.triu(np.ones((M, M))) - 0.5 * np.eye(M)

    @tf.custom_gradient
    def solved(_: tf.Tensor, across: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        phi = tf.linalg.triangular_solve(L, across)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # dL = L Phi(L^-1 dK L^-T), Phi the lower triangle with half of the diagonal (Murray
            # 2016, "Differentiation of the Cholesky decomposition")
            inner = -upper * tf.matmul(phi, upstream, transpose_b=True)
            half = tf.linalg.triangular_solve(L, inner, adjoint=True)
            return (
                tf.linalg.triangular_solve(L, tf.linalg.matrix_transpose(half), adjoint=True),
                tf.linalg.triangular_solve(L, upstream, adjoint=True),
            )

        return phi, gradient

    return solved(own, across)


@Kuu.register(AdditiveInducingVariables, AdditiveKernel)
@check_shapes("inducing_variable: [P, D, 1]", "return: [P, P]")
def kuu_additive(
    inducing_variable: AdditiveInducingVariables, kernel: AdditiveKernel, *, jitter: float = 0.0
) -> tf.Tensor:
    """blockdiag_c(K_c) with the jitter of :meth:`InducingBlocks.cholesky`, in component order."""
    blocks = InducingBlocks(inducing_variable, kernel, double=False)
    singles: list[tf.Tensor] = [None] * kernel.num_components
    for group, K in zip(blocks.groups, blocks.kuu()):
        share = own_jitter(jitter, kernel.kernels[group.indices[0]], K.dtype)
        own = jittered(K, share) if share else K
        for row, index in zip(tf.unstack(own), group.indices):
            singles[index] = row
    operators = [tf.linalg.LinearOperatorFullMatrix(K) for K in singles]
    return tf.linalg.LinearOperatorBlockDiag(operators).to_dense()


@Kuf.register(AdditiveInducingVariables, AdditiveKernel, TensorLike)
@check_shapes("inducing_variable: [P, D, 1]", "Xnew: [batch..., N, D2]", "return: [P, batch..., N]")
def kuf_additive(
    inducing_variable: AdditiveInducingVariables, kernel: AdditiveKernel, Xnew: TensorType
) -> tf.Tensor:
    """Cov(U, rho(x)) = [k_1(Z_1, x), ..., k_C(Z_C, x)], in component order."""
    blocks = InducingBlocks(inducing_variable, kernel, double=False)
    shape = tf.shape(Xnew)
    flat = tf.reshape(Xnew, [-1, Xnew.shape[-1]])
    dense = blocks.layout.to_components(blocks.layout.concat(blocks.kuf(flat)))
    return tf.reshape(dense, tf.concat([tf.shape(dense)[:1], shape[:-1]], axis=0))


@Kuu.register(AdditiveInducingVariables, Kernel)
@Kuf.register(AdditiveInducingVariables, Kernel, TensorLike)
def no_such_pair(
    inducing_variable: AdditiveInducingVariables, kernel: Kernel, *_: TensorType, **__: float
) -> NoReturn:
    raise TypeError(
        "AdditiveInducingVariables need an AdditiveKernel, whose components they belong to; got "
        f"{type(kernel).__name__}. Build gpflow_gam.kernels.AdditiveKernel([...]) from its parts."
    )


def only_levels(kernel: Kernel) -> bool:
    """True for a kernel on finitely many levels, which inducing inputs at all of them settle."""
    if type(kernel) in (Sum, Product):
        return all(only_levels(part) for part in kernel.kernels)
    if type(kernel) in (ZeroMean, OnColumns):
        return only_levels(kernel.base)
    return type(kernel) in (Constant, Factor, Indicator, MarkovField)
