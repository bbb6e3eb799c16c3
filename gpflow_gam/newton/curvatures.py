"""
Second-order expansions of log-likelihoods: gradients and block-diagonal precisions W >= 0.

W has one symmetric Q x Q block a data point. Vectors over Q latent functions at N points are
[Q, N], several of them [Q, N, R]; products cost O(N Q R) where the blocks have structure.
"""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood, Softmax
from gpflow.utilities import Dispatcher

from ..likelihoods import Bernoulli, Weighted
from ..likelihoods.base import is_scalar, log_probabilities

__all__ = ["curvature"]

_ENTRIES = 2**23  # number of entries of products with blocks that are in memory at a time
_TOLERANCE = 1e-6
"""
Largest negative curvature that is taken as rounding, relative to the largest of all curvatures and
squared gradients, which are in the same unit.
"""


class Precision(abc.ABC):
    """W, the precision of a pseudo-observation of the latent functions at every point."""

    num_latents: int

    tensor: tf.Tensor
    """All of the state."""

    @abc.abstractmethod
    def __init__(self, tensor: tf.Tensor) -> None: ...

    @abc.abstractmethod
    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        """W V of V [Q, N, R]."""

    @abc.abstractmethod
    def solve(self, V: tf.Tensor) -> tf.Tensor:
        """W^+ V of V [Q, N, R], with the pseudo-inverse of each block."""

    @abc.abstractmethod
    def in_range(self, x: tf.Tensor) -> tf.Tensor:
        """The part of x [Q, N] in the range of W, ``W W^+ x``: no observation sees the rest."""

    @abc.abstractmethod
    def shrunk(self, noise: tf.Tensor) -> Precision:
        """``(I + W D)^-1 W``, D = diag(noise): the precision once noise [Q or 1, N] is added."""
        # The limit of (W_e^-1 + D)^-1 as W_e > 0 goes to W: null directions of W stay null.

    @abc.abstractmethod
    def gram(self, T: tf.Tensor) -> tf.Tensor:
        """``T'W T`` [QB, QB] for T = blockdiag(T_q); one T [1, N, B] serves all functions."""

    @abc.abstractmethod
    def smallest(self) -> tf.Tensor:
        """The smallest eigenvalue of every block, or a bound of its sign, [N]."""

    @abc.abstractmethod
    def weighted(self, weights: tf.Tensor) -> Precision:
        """Every block times one of the weights [N]."""

    @abc.abstractmethod
    def blocks(self) -> tf.Tensor:
        """All blocks, [N, Q, Q]."""

    def summed(self, weights: tf.Tensor) -> tf.Tensor:
        """Sums [n, Q, Q] of blocks by weights [S] of nodes, of points that are n data S times."""
        Q = self.num_latents
        parts = tf.reshape(self.blocks(), [tf.shape(weights)[0], -1, Q, Q])
        return tf.tensordot(weights, parts, 1)


def block_diagonal(parts: tf.Tensor) -> tf.Tensor:
    """[Q, B, B] -> [QB, QB]."""
    Q, B = tf.shape(parts)[0], tf.shape(parts)[1]
    spread = parts[:, :, None, :] * tf.eye(Q, dtype=parts.dtype)[:, None, :, None]
    return tf.reshape(spread, [Q * B, Q * B])


def _positive(x: tf.Tensor) -> tf.Tensor:
    """Away from 0, where a reciprocal would overflow once it is squared."""
    return tf.maximum(
        x, tf.constant(float(np.sqrt(np.finfo(x.dtype.as_numpy_dtype).tiny)), x.dtype)
    )


class _OfVectors(Precision):
    """Blocks that are made of a vector [Q] each, all of them a tensor [Q, N]."""

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor
        self.num_latents = int(tensor.shape[0])

    def shrunk(self, noise: tf.Tensor) -> Precision:
        return type(self)(self.tensor / (1.0 + noise * self.tensor))

    def smallest(self) -> tf.Tensor:
        return tf.reduce_min(self.tensor, axis=0)

    def weighted(self, weights: tf.Tensor) -> Precision:
        return type(self)(self.tensor * weights)


class DiagonalPrecision(_OfVectors):
    """Blocks diag(w_n), w [Q, N]: latent functions that the likelihood does not couple."""

    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        return self.tensor[..., None] * V

    def solve(self, V: tf.Tensor) -> tf.Tensor:
        return V / _positive(self.tensor)[..., None]

    def in_range(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def gram(self, T: tf.Tensor) -> tf.Tensor:
        return block_diagonal(tf.matmul(T, self.tensor[..., None] * T, transpose_a=True))

    def blocks(self) -> tf.Tensor:
        return tf.linalg.diag(tf.transpose(self.tensor))


class SoftmaxPrecision(_OfVectors):
    """
    Blocks ``diag(a) - a a' / sum(a)``, a [Q, N]: a common shift of the functions is free.

    The softmax has a = pi, its class probabilities.
    """

    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        shift = tf.reduce_sum(self.tensor[..., None] * V, axis=0) / self._sum()[:, None]
        return self.tensor[..., None] * (V - shift)

    def solve(self, V: tf.Tensor) -> tf.Tensor:
        # W^+ = P diag(1/a) P, P = I - 11'/Q: diag(1/a) inverts W on differences of functions
        inner = _without_shift(V) / _positive(self.tensor)[..., None]
        return _without_shift(inner)

    def in_range(self, x: tf.Tensor) -> tf.Tensor:
        return _without_shift(x)

    def _sum(self) -> tf.Tensor:
        return _positive(tf.reduce_sum(self.tensor, axis=0))

    def gram(self, T: tf.Tensor) -> tf.Tensor:
        aT = self.tensor[..., None] * T  # [Q, N, B]
        whole = block_diagonal(tf.matmul(T, aT, transpose_a=True))
        wide = tf.reshape(tf.transpose(aT, [1, 0, 2]), [tf.shape(aT)[1], -1])
        wide = wide / tf.sqrt(self._sum())[:, None]
        return whole - tf.matmul(wide, wide, transpose_a=True)

    def blocks(self) -> tf.Tensor:
        a = tf.transpose(self.tensor)
        return tf.linalg.diag(a) - a[:, :, None] * a[:, None, :] / self._sum()[:, None, None]

    def summed(self, weights: tf.Tensor) -> tf.Tensor:
        # no block is made of a single point: the sums are those of a matrix product a datum
        a = tf.reshape(tf.transpose(self.tensor), [tf.shape(weights)[0], -1, self.num_latents])
        share = weights[:, None] / tf.reshape(self._sum(), tf.shape(a)[:2])
        return tf.linalg.diag(tf.tensordot(weights, a, 1)) - tf.einsum(
            "snp,snq->npq", share[..., None] * a, a
        )


class DensePrecision(Precision):
    """Blocks M [N, Q, Q] without structure."""

    def __init__(self, M: tf.Tensor) -> None:
        self.tensor = 0.5 * (M + tf.linalg.matrix_transpose(M))
        self.num_latents = int(M.shape[-1])

    @functools.cached_property
    def _spectrum(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Inverse eigenvalues [N, Q] and vectors [N, Q, Q], zeros for those of rounding."""
        values, vectors = tf.linalg.eigh(self.tensor)
        size = tf.abs(values)
        eps = 10.0 * self.num_latents * np.finfo(size.dtype.as_numpy_dtype).eps
        keep = size > eps * tf.reduce_max(size, axis=-1, keepdims=True)
        return tf.math.divide_no_nan(tf.cast(keep, size.dtype), values), vectors * tf.cast(
            keep, size.dtype
        )[:, None]

    @functools.cached_property
    def _inverse(self) -> tf.Tensor:
        inverse, vectors = self._spectrum
        return tf.matmul(vectors * inverse[:, None], vectors, transpose_b=True)

    def in_range(self, x: tf.Tensor) -> tf.Tensor:
        _, vectors = self._spectrum
        return tf.einsum("npk,nqk,qn->pn", vectors, vectors, x)

    def multiply(self, V: tf.Tensor) -> tf.Tensor:
        return tf.einsum("npq,qnr->pnr", self.tensor, V)

    def solve(self, V: tf.Tensor) -> tf.Tensor:
        return tf.einsum("npq,qnr->pnr", self._inverse, V)

    def shrunk(self, noise: tf.Tensor) -> DensePrecision:
        noise = tf.transpose(tf.broadcast_to(noise, [self.num_latents, tf.shape(self.tensor)[0]]))
        inner = tf.eye(self.num_latents, dtype=self.tensor.dtype) + self.tensor * noise[:, None, :]
        return DensePrecision(tf.linalg.solve(inner, self.tensor))

    def gram(self, T: tf.Tensor) -> tf.Tensor:
        T = tf.convert_to_tensor(T)
        N, B = int(T.shape[1]), int(T.shape[2])
        some = max(1, _ENTRIES // max(1, self.num_latents * B))
        parts = [
            self._lower(T[:, i : i + some], self.tensor[i : i + some])
            for i in range(0, max(N, 1), some)
        ]
        lower = parts[0] if len(parts) == 1 else tf.add_n(parts)
        blocks = range(0, self.num_latents * B, B) if B else ()
        diag = [lower[i : i + B, i : i + B] for i in blocks]
        return lower + tf.transpose(lower) - (block_diagonal(tf.stack(diag)) if diag else 0.0)

    def _lower(self, T: tf.Tensor, M: tf.Tensor) -> tf.Tensor:
        """The lower blocks of the sum over some data, zeros above: one product a row of blocks."""
        B, rows = T.shape[2], []
        for p in range(self.num_latents):
            wide = tf.transpose(M[:, p, : p + 1])[..., None] * T[: p + 1]  # [p + 1, N, B]
            wide = tf.reshape(tf.transpose(wide, [1, 0, 2]), [T.shape[1], (p + 1) * B])
            row = tf.matmul(T[min(p, T.shape[0] - 1)], wide, transpose_a=True)
            rows.append(tf.pad(row, [[0, 0], [0, (self.num_latents - 1 - p) * B]]))
        return tf.concat(rows, axis=0)

    def smallest(self) -> tf.Tensor:
        return tf.reduce_min(tf.linalg.eigvalsh(self.tensor), axis=-1)

    def weighted(self, weights: tf.Tensor) -> DensePrecision:
        return DensePrecision(self.tensor * weights[:, None, None])

    def blocks(self) -> tf.Tensor:
        return self.tensor


def _without_shift(V: tf.Tensor) -> tf.Tensor:
    return V - tf.reduce_mean(V, axis=0, keepdims=True)


@dataclass(frozen=True)
class Curvature:
    """``log p(y_n | f_n)``, its gradient and its negative Hessian."""

    log_prob: tf.Tensor  # [N]
    gradient: tf.Tensor  # g = d log p / d f, [Q, N]
    precision: Precision  # W = - d^2 log p / d f^2

    def observed(self, f: tf.Tensor) -> tf.Tensor:
        """Pseudo-observations ``f + W^+ g`` of the expansion at f, [Q, N]."""
        return f + self.precision.solve(self.gradient[..., None])[..., 0]

    def cast(self, dtype: tf.DType) -> Curvature:
        if self.gradient.dtype == dtype:
            return self
        log_prob, gradient, W = (
            tf.cast(t, dtype) for t in (self.log_prob, self.gradient, self.precision.tensor)
        )
        return Curvature(log_prob, gradient, type(self.precision)(W))


def checked_curvature(expansion: Curvature, likelihood: Likelihood) -> Curvature:
    """Raises ValueError at a value that is not finite, or where log p is not concave in f."""
    name = type(likelihood).__name__
    smallest = expansion.precision.smallest().numpy()
    finite = np.isfinite(expansion.log_prob.numpy()) & np.isfinite(smallest)
    finite &= np.all(np.isfinite(expansion.gradient.numpy()), axis=0)
    if not np.all(finite):
        row = int(np.argmin(finite))
        raise ValueError(
            f"likelihood {name} has no finite value, gradient and curvature at row {row} of the "
            "data, where the fit has come; check Y there, and the scale of the mean function."
        )
    sizes = expansion.precision.tensor, tf.square(expansion.gradient)
    scale = max(float(np.max(np.abs(size), initial=0.0)) for size in sizes)
    if np.min(smallest, initial=0.0) < -_TOLERANCE * scale:
        row = int(np.argmin(smallest))
        raise ValueError(
            f"likelihood {name} is not log-concave where the fit has come: at row {row} the second "
            f"derivative of log p(y | f) is {-smallest[row]:.3g}. Newton's method needs one that "
            "is log-concave; use a variational model (AdditiveSVGP) for this one."
        )
    return expansion


@check_shapes("X: [N, D]", "F: [N, Q]", "Y: [N, K]")
def automatic_curvature(
    likelihood: Likelihood, X: TensorType, F: TensorType, Y: TensorType
) -> Curvature:
    """The curvature of a likelihood that can be differentiated twice; ValueError of others."""
    F = tf.convert_to_tensor(F)
    columns = tf.unstack(F, axis=1)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(columns)
        with tf.GradientTape() as inner:
            inner.watch(columns)
            log_prob = likelihood.log_prob(X, tf.stack(columns, axis=1), Y)
        gradient = inner.gradient(log_prob, columns)
        if any(g is None for g in gradient):
            raise ValueError(
                f"likelihood {type(likelihood).__name__} has no gradient in f, so Newton's method "
                "cannot use it; use a variational model (AdditiveSVGP)."
            )
    separate = is_scalar(likelihood) or len(columns) == 1
    rows = []
    for q, g in enumerate(gradient):
        sources = [columns[q]] if separate else columns
        rows.append(outer.gradient(g, sources, unconnected_gradients="zero"))
    del outer
    if separate:
        return Curvature(
            log_prob, tf.stack(gradient), DiagonalPrecision(-tf.stack([r[0] for r in rows]))
        )
    hessian = tf.stack([tf.stack(r, axis=-1) for r in rows], axis=-2)
    return Curvature(log_prob, tf.stack(gradient), DensePrecision(-hessian))


curvature = Dispatcher("curvature")
"""
``curvature(likelihood, X, F, Y)``: the :class:`Curvature` at predictors F [N, Q] of responses
Y [N, K] at inputs X [N, D].

It dispatches on the likelihood's class; register a closed form for one of your own with
``@curvature.register(MyLikelihood, object, object, object)``. Any other likelihood is
differentiated automatically.
"""


@curvature.register(Likelihood, object, object, object)
def _any(likelihood: Likelihood, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    return automatic_curvature(likelihood, X, F, Y)


# of classes by hand: these are asked for where tapes are paused (``tf.init_scope``), too


@curvature.register(Bernoulli, object, object, object)
def _bernoulli(likelihood: Bernoulli, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    with np.errstate(over="ignore", invalid="ignore"):
        success, failure = log_probabilities(likelihood.link, np.asarray(F))
    hit = np.asarray(Y) > 0.5
    slope = np.where(hit, success.first, failure.first).T
    bend = np.where(hit, success.second, failure.second).T
    precision = DiagonalPrecision(tf.constant(-bend))
    return Curvature(likelihood.log_prob(X, F, Y), tf.constant(slope), precision)


@curvature.register(Softmax, object, object, object)
def _softmax(likelihood: Softmax, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    log_pi = tf.nn.log_softmax(F)
    pi = tf.exp(log_pi)
    hit = tf.one_hot(tf.cast(Y[:, 0], tf.int32), F.shape[1], dtype=F.dtype)
    log_prob = tf.reduce_sum(hit * log_pi, axis=1)
    return Curvature(log_prob, tf.transpose(hit - pi), SoftmaxPrecision(tf.transpose(pi)))


@curvature.register(Weighted, object, object, object)
def _weighted(likelihood: Weighted, X: TensorType, F: TensorType, Y: TensorType) -> Curvature:
    weights = likelihood.weights(X)
    F = tf.where(tf.not_equal(weights, 0.0)[:, None], F, tf.zeros_like(F))  # 0 times an overflow
    base = curvature(likelihood.base, X, F, Y)
    return Curvature(
        weights * base.log_prob, weights * base.gradient, base.precision.weighted(weights)
    )
