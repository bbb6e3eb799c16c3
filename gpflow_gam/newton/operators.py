"""Covariance matrices that are never held: products with them, partial Cholesky factors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent
from gpflow.utilities import deepcopy

from ..inducing_variables import pivoted_cholesky
from ..kernels import AdditiveKernel
from ..likelihoods.predictive import Arrays, in_blocks

_SMALL = 2**19
"""Entries of a matrix that is made whole: what compiling costs, tens of such matrices cost."""


def is_small(X1: tf.Tensor, X2: tf.Tensor) -> bool:
    """True if k(X1, X2) [N, M] is computed at once, without compiling."""
    return int(X1.shape[0]) * int(X2.shape[0]) <= _SMALL


class Compiled:
    """A function compiled by XLA, once for each combination of shapes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._concrete: dict[Hashable, Callable[..., Any]] = {}

    def __call__(self, *arguments: tf.Tensor, variant: Hashable = None) -> Any:
        key = variant, *((a.dtype, tuple(a.shape)) for a in arguments)
        if key not in self._concrete:
            traced = tf.function(self._function, autograph=False, jit_compile=True)
            self._concrete[key] = traced.get_concrete_function(*arguments)
        return self._concrete[key](*arguments)


def as_additive(kernel: Kernel) -> AdditiveKernel:
    """``kernel``, or an additive kernel of which it is the one component."""
    return kernel if isinstance(kernel, AdditiveKernel) else AdditiveKernel({"f": kernel})


@dataclass(frozen=True)
class LatentKernels:
    """Q independent latent functions g_q ~ GP(0, k_q), of any GPflow kernel."""

    kernels: tuple[AdditiveKernel, ...]  # one, shared, or one a latent function
    num_latents: int  # Q

    @classmethod
    def of(cls, kernel: Kernel, num_outputs: int) -> LatentKernels:
        if isinstance(kernel, AdditiveKernel) and kernel.members is not None:
            kernel = SeparateIndependent(list(kernel.latent_kernels))
        if not isinstance(kernel, MultioutputKernel):
            return cls((as_additive(kernel),), num_outputs)
        if not isinstance(kernel, SeparateIndependent):
            raise TypeError(
                "kernel must be a single-output kernel, for all outputs, or SeparateIndependent; "
                f"got {type(kernel).__name__}."
            )
        if len(kernel.kernels) != num_outputs:
            raise ValueError(
                f"kernel has {len(kernel.kernels)} output(s), but the likelihood takes "
                f"{num_outputs}; give it one kernel an output."
            )
        return cls(tuple(as_additive(k) for k in kernel.kernels), num_outputs)

    def copied(self) -> LatentKernels:
        return LatentKernels(tuple(map(deepcopy, self.kernels)), self.num_latents)

    @property
    def variables(self) -> list[tf.Variable]:
        return [v for kernel in self.kernels for v in kernel.variables]

    @property
    def shared(self) -> bool:
        """True if one kernel serves all latent functions."""
        return len(self.kernels) == 1

    def each(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """What kernels have, [...] each -> latent functions, [Q, ...], in double precision."""
        stacked = tf.cast(tf.stack(values), tf.float64)
        return tf.repeat(stacked, self.num_latents, axis=0) if self.shared else stacked


def joint_covariance(prior: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """Of outputs [N, Q, (N,) Q]: prior [Q, N] or [Q, N, N], less h h' of h [Q, N, R]."""
    if prior.shape.rank == 3:
        whole, taken = tf.linalg.diag(tf.transpose(prior, [1, 2, 0])), "lnr,kmr->nlmk"
        whole = tf.transpose(whole, [0, 2, 1, 3])
    else:
        whole, taken = tf.linalg.diag(tf.transpose(prior)), "lnr,knr->nlk"
    return whole - tf.einsum(taken, h, h)


_NARROW, _ENTRIES = 64, (2**19, 2**22)
"""Entries of a block of rows: near the caches, or, with more right-hand sides than so many, large
enough that these are not read too often."""
_SMALLEST = 1e-9  # variance left, against the largest at the start, at which a factor is complete


class KernelProduct:
    """``k(X1, X2) V`` in memory for one block of rows, differentiable in V and parameters."""

    # A small matrix is computed at once. Any other takes a loop over blocks inside one XLA program,
    # and its gradient a second one: automatic differentiation would keep every block.
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._column, self._compiled = Compiled(kernel), Compiled(self._product)

    @check_shapes("X: [N, D]", "diag: [N]", "return[0]: [M, N]", "return[1]: [M]", "return[2]: [N]")
    def pivoted(
        self, X: tf.Tensor, diag: tf.Tensor, number: int
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """P' of ``k(X, X) = P P' + R`` with M pivots; these, -1 beyond the rank; and diag(R)."""
        whole = self.kernel(X, X).numpy() if is_small(X, X) else None

        def row(i: int) -> AnyNDArray:
            return self._column(X, X[i : i + 1])[:, 0].numpy() if whole is None else whole[i]

        least = _SMALLEST * np.max(diag)
        factor, chosen, rest = pivoted_cholesky(diag.numpy(), row, number, least)
        return factor, np.array([*chosen, *[-1] * (number - len(chosen))]), rest

    def __call__(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """[N, R]. Shapes: X1 [N, D], X2 [M, D], V [M, R]."""
        if is_small(X1, X2):
            return tf.matmul(tf.cast(self.kernel(X1, X2), V.dtype), V)
        # its gradient is of those variables that were trainable when it was traced
        return self._compiled(X1, X2, V, variant=tuple(v.trainable for v in self.kernel.variables))

    def _product(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        # The gradient has to be inside the compiled function: TensorFlow differentiates whatever
        # it calls while a tape is open, and would keep every block of the loop.
        @tf.custom_gradient
        def product(V: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            def gradient(U: tf.Tensor, variables: Sequence[tf.Variable] | None = None) -> Any:
                to_V = self._run(X2, X1, U)
                if variables is None:
                    return to_V
                return to_V, self._run_gradient(X1, X2, V, U, variables)

            return self._run(X1, X2, V), gradient

        return product(V)

    def _rows(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> int:
        """The number of rows of a block."""
        width = V.shape[1]
        entries = _ENTRIES[0] if width is not None and width <= _NARROW else _ENTRIES[1]
        return max(1, min(int(X1.shape[0]), entries // max(int(X2.shape[0]), 1)))

    def _run(self, X1: tf.Tensor, X2: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        N = int(X1.shape[0])
        if N == 0 or X2.shape[0] == 0:
            return tf.zeros([N, tf.shape(V)[1]], dtype=V.dtype)

        def block(rows: Arrays) -> Arrays:
            return (tf.matmul(tf.cast(self.kernel(rows[0], X2), V.dtype), V),)

        (result,) = in_blocks(block, (X1,), self._rows(X1, X2, V), [V.dtype])
        return tf.ensure_shape(result, [N, V.shape[1]])

    def _run_gradient(
        self,
        X1: tf.Tensor,
        X2: tf.Tensor,
        V: tf.Tensor,
        U: tf.Tensor,
        variables: Sequence[tf.Variable],
    ) -> list[tf.Tensor]:
        """d tr(U' K V) / d theta of the kernel's variables."""
        N, rows = int(X1.shape[0]), self._rows(X1, X2, V)
        number = -(-N // rows)
        spare = number * rows - N
        X1 = tf.concat([X1, tf.repeat(X1[:1], spare, axis=0)], axis=0)
        U = tf.pad(U, [[0, spare], [0, 0]])

        def body(i: tf.Tensor, *totals: tf.Tensor) -> tuple[tf.Tensor, ...]:
            block = tf.slice(X1, [i * rows, 0], [rows, X1.shape[1]])
            weights = tf.slice(U, [i * rows, 0], [rows, tf.shape(U)[1]])
            weights = tf.matmul(weights, V, transpose_b=True)  # d / d K
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                value = tf.reduce_sum(tf.cast(self.kernel(block, X2), V.dtype) * weights)
            parts = tape.gradient(value, variables, unconnected_gradients="zero")
            return (i + 1, *(t + tf.convert_to_tensor(p) for t, p in zip(totals, parts)))

        start = (tf.constant(0), *(tf.zeros(v.shape, dtype=v.dtype) for v in variables))
        result = tf.while_loop(lambda i, *_: i < number, body, start, parallel_iterations=1)
        return list(result[1:])


_CROSS_ENTRIES = 2**24  # entries of k(Xnew, X) that are held at a time
_WHITE_BLOCK = 64


class KernelOperator:
    """``K = blockdiag_q k_q(X, X)`` by its products; nothing of size N^2 is ever held."""

    # Kernels are evaluated in the precision of X [N, D], all else is in double precision: Newton's
    # systems are beyond single precision where data are many or noise is little.
    def __init__(
        self, latents: LatentKernels, X: tf.Tensor, programs: Sequence[KernelProduct] | None = None
    ) -> None:
        self.latents = latents
        self.X = X
        self.sweeps = 0.0
        """Number of evaluations of all kernel entries; parts of them count as fractions."""
        self._programs = programs or [KernelProduct(k) for k in latents.kernels]
        self._noise = self._white()

    def renewed(self) -> KernelOperator:
        """An operator at the present parameters: white noise is taken when it is made."""
        return KernelOperator(self.latents, self.X, self._programs)

    dtype = tf.float64  # data type of products, columns and all that is computed from them

    @property
    def num_latents(self) -> int:
        """Q."""
        return self.latents.num_latents

    @property
    def num_data(self) -> int:
        """N."""
        return int(self.X.shape[0])

    @check_shapes("V: [Q, N, R]", "return: [Q, N, R]")
    def product(self, V: tf.Tensor) -> tf.Tensor:
        """K V: one sweep, however many right-hand sides."""
        self.sweeps += 1.0
        return self._apply(self.X, V) + tf.cast(self._noise, V.dtype) * V

    @check_shapes("indices: [M]")
    def of_rows(self, indices: tf.Tensor) -> KernelOperator:
        """The operator of some data alone."""
        return KernelOperator(self.latents, tf.gather(self.X, indices), self._programs)

    @check_shapes("indices: [M]", "V: [Q, M, R]", "return: [Q, N, R]")
    def product_of_rows(self, indices: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """K V for V that is zero but at some data: M / N of a sweep."""
        self.sweeps += float(indices.shape[0]) / self.num_data
        return self.of_rows(indices)._apply(self.X, V) + self._noise * self.spread(indices, V)

    @check_shapes("indices: [M]", "V: [Q, N, R]", "return: [Q, M, R]")
    def product_at_rows(self, indices: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """K V at some data: M / N of a sweep."""
        self.sweeps += float(indices.shape[0]) / self.num_data
        result = self._apply(tf.gather(self.X, indices), V)
        return result + tf.gather(self._noise * V, indices, axis=1)

    @check_shapes("indices: [M]", "V: [Q, M, R]", "return: [Q, N, R]")
    def spread(self, indices: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        """Values at some data, and zeros at the others."""
        shape = [self.num_data, V.shape[0], V.shape[2]]
        wide = tf.scatter_nd(indices[:, None], tf.transpose(V, [1, 0, 2]), shape)
        return tf.transpose(wide, [1, 0, 2])

    @check_shapes("V: [Q, N, R]", "return: [Q, M, R]")
    def _apply(self, X1: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
        Q, N, R = V.shape
        if self.latents.shared:
            wide = [N, -1 if R is None else Q * R]
            flat = tf.reshape(tf.transpose(V, [1, 0, 2]), wide)
            out = self._programs[0](X1, self.X, flat)
            out = tf.reshape(out, [X1.shape[0], Q, tf.shape(V)[2] if R is None else R])
            return tf.transpose(out, [1, 0, 2])
        return tf.stack([p(X1, self.X, V[q]) for q, p in enumerate(self._programs)])

    def _white(self) -> tf.Tensor:
        """White noise [1 or Q, N, 1]: the diagonal of k(X) beyond that of k(X, X2) at X2 = X."""
        kernels = self.latents.kernels
        if not any(isinstance(m, gpflow.kernels.White) for k in kernels for m in k.submodules):
            return tf.zeros([1, self.num_data, 1], self.dtype)
        starts = range(0, self.num_data, _WHITE_BLOCK)
        blocks = [self.X[i : i + _WHITE_BLOCK] for i in starts]
        pairs = [
            tf.concat([tf.linalg.diag_part(k(x, tf.identity(x))) for x in blocks], axis=0)
            for k in kernels
        ]
        return (self.diag() - tf.cast(tf.stack(pairs), self.dtype))[..., None]

    def diag(self) -> tf.Tensor:
        """Prior variances, [1, N] where the kernel is shared, [Q, N] otherwise."""
        result = tf.stack([k(self.X, full_cov=False) for k in self.latents.kernels])
        return tf.cast(result, self.dtype)

    def pivoted(self, number: int) -> PivotedCholesky:
        """Factors of every kernel's matrix, of at most M pivots each, in O(N M^2): M / N sweeps."""
        number = min(number, self.num_data)
        pairs = zip(self._programs, tf.unstack(self.diag()))
        parts = (program.pivoted(self.X, diag, number) for program, diag in pairs)
        factors, pivots, left = map(np.stack, zip(*parts))
        rank = int(np.max(np.sum(pivots >= 0, axis=1)))
        self.sweeps += rank / self.num_data
        factor = np.swapaxes(factors[:, :rank], 1, 2)
        return PivotedCholesky(tf.constant(factor), pivots[:, :rank], tf.constant(left))


@check_shapes("Xnew: [M, D]", "X: [N, D]", "V: [Q, N, R]", "return: [Q, M, R]")
def cross_product(latents: LatentKernels, Xnew: tf.Tensor, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """``k_q(Xnew, X) V_q``, a block of Xnew at a time, inside compiled functions as outside."""

    def block(x: tf.Tensor) -> tf.Tensor:
        if latents.shared:
            return tf.matmul(tf.cast(latents.kernels[0](x, X), V.dtype)[None], V)
        own = [tf.cast(k(x, X), V.dtype) for k in latents.kernels]
        return tf.stack([tf.matmul(k, V[q]) for q, k in enumerate(own)])

    return over_rows(block, Xnew, int(X.shape[0]), V.dtype, axis=1)


def over_rows(
    block: Callable[[tf.Tensor], tf.Tensor],
    Xnew: tf.Tensor,
    num_columns: int,
    dtype: tf.DType,
    axis: int,
) -> tf.Tensor:
    """``block(rows of Xnew)`` put together along ``axis``, as many rows at a time as fit."""

    def rows_first(arrays: Arrays) -> Arrays:
        result = block(arrays[0])
        order = [axis, *(i for i in range(result.shape.rank) if i != axis)]
        return (tf.transpose(result, order),)

    most = max(1, _CROSS_ENTRIES // max(num_columns, 1))
    if Xnew.shape[0] is not None and Xnew.shape[0] <= most:
        return block(Xnew)
    (result,) = in_blocks(rows_first, (Xnew,), most, [dtype])
    return tf.transpose(result, [*range(1, axis + 1), 0, *range(axis + 1, result.shape.rank)])


@dataclass(frozen=True)
class PivotedCholesky:
    """``k_q(X, X) = P_q P_q' + R_q``, R_q >= 0 with zeros at the pivots."""

    factor: tf.Tensor
    """P [K, N, M]; K = 1 where the kernel is shared, and columns of zeros where a rank is less."""

    pivots: AnyNDArray  # rows that were chosen, in order, [K, M]; -1 beyond the rank
    left: tf.Tensor  # diag(R_q) [K, N], not negative

    @property
    def rank(self) -> int:
        """M."""
        return int(self.factor.shape[2])

    def of_rows(self, indices: tf.Tensor, diag: tf.Tensor) -> PivotedCholesky:
        """The factor at some data, of the pivots up to the first that is not among them."""
        place = {int(row): at for at, row in enumerate(indices.numpy())} | {-1: -1}
        there = np.all(np.isin(self.pivots, list(place)), axis=0)
        number = len(there) if there.all() else int(np.argmin(there))
        known = self.first(number, diag)
        pivots = np.array([[place[int(row)] for row in own] for own in known.pivots], dtype=int)
        factor = tf.gather(known.factor, indices, axis=1)
        left = tf.gather(known.left, indices, axis=1)
        return PivotedCholesky(factor, pivots.reshape(known.pivots.shape), left)

    def first(self, number: int, diag: tf.Tensor) -> PivotedCholesky:
        """The factor of fewer pivots: factors are nested. Shapes: diag [K, N]."""
        if number >= self.rank:
            return self
        factor = self.factor[:, :, :number]
        left = tf.maximum(diag - tf.reduce_sum(tf.square(factor), axis=2), 0.0)
        return PivotedCholesky(factor, self.pivots[:, :number], left)
