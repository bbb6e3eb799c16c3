"""
Predicted responses under normal predictors, correlated or not: distributions of new responses, and
posterior means, deviations and credible intervals of expected responses.

TensorFlow only, so that all of it can be compiled and exported with a model.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood, MultiClass, Ordinal, Softmax
from gpflow.quadrature import NDiagGHQuadrature
from scipy.stats import norm

from ..bijectors import as_written
from ..errors import check_level
from .base import GaussHermite, GaussHermitePlane, Quasi, Weighted, is_scalar, unwrapped
from .discrete import FixedSoftmax, normal_nodes

_PAIRS, _INDEPENDENT_PAIRS = 256, 64
"""Pairs of nodes that an expectation over several predictors takes, at least; and over independent
ones, where GPflow has a hundred draws."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # type: ignore[no-untyped-call]
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_DRAWS = 1024  # nodes of expected responses of several predictors, and of quantiles
_ROWS = 2**14  # whose densities are integrated at a time
_ENTRIES = 2**21  # numbers of a kind that are held at a time where predictors are drawn

_AT_ONCE: ContextVar[bool] = ContextVar("at_once", default=False)

Arrays = tuple[tf.Tensor, ...]
Block = Callable[[Arrays], Arrays]


# --- distributions of responses ------------------------------------------------------------------


def conditional_distribution(likelihood: Likelihood, F: tf.Tensor) -> Any:
    """
    p(y | F) as a distribution of TensorFlow Probability's, of batch shape [..., 1].

    A likelihood has it by a method ``conditional_distribution(F)``, as those of GPflow's
    ``MultiLatentTFPConditional`` do; None for one that has not. F [..., L] are predictors.
    """
    method = getattr(likelihood, "conditional_distribution", None)
    if callable(method):
        return method(F)
    tfd, kind = tfp.distributions, type(likelihood)
    if kind is gpflow.likelihoods.Bernoulli:
        return tfd.Bernoulli(probs=likelihood.invlink(F), dtype=F.dtype)
    if kind is gpflow.likelihoods.Exponential:
        return tfd.Exponential(1.0 / likelihood.invlink(F))
    if kind is gpflow.likelihoods.Poisson:
        return tfd.Poisson(likelihood.invlink(F) * tf.cast(likelihood.binsize, F.dtype))
    return None


def is_joint(likelihood: Likelihood, num_predictors: int) -> bool:
    """True if a response depends on several predictors together, and so on their covariances."""
    return num_predictors > 1 and not is_scalar(likelihood)


def needed(likelihood: Likelihood, mean: TensorType, var: TensorType) -> tf.Tensor:
    """Variances in place of covariances where the response needs no more; else ``var`` as it is."""
    if _is_covariance(mean, var) and not is_joint(likelihood, int(mean.shape[-1])):
        return tf.linalg.diag_part(var)
    return var


def predictive_moments(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType
) -> MeanAndVariance:
    """Mean and variance of a new response, [..., N, P]; of classes p and p (1 - p)."""
    base, var = unwrapped(likelihood), needed(likelihood, mean, var)
    if _suits_gpflow(base, mean, var):
        moments: MeanAndVariance = likelihood.predict_mean_and_var(X, mean, var)
        return moments
    if isinstance(base, Softmax) and _is_covariance(mean, var):
        p = softmax_mean(mean, var)
        return p, p - tf.square(p)
    expected = at_nodes(base.conditional_mean, mean, var, X)
    within = tf.reduce_mean(at_nodes(base.conditional_variance, mean, var, X), axis=0)
    return tf.reduce_mean(expected, axis=0), within + tf.math.reduce_variance(expected, axis=0)


def predictive_log_density(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType, Y: TensorType
) -> tf.Tensor:
    """Log-density [..., N] of responses under the distribution of :func:`predictive_moments`."""
    base, var = unwrapped(likelihood), needed(likelihood, mean, var)

    def block(arrays: Arrays) -> Arrays:
        return (_log_density(base, *arrays),)

    arrays = tuple(tf.convert_to_tensor(a) for a in (X, mean, var, Y))
    if tf.executing_eagerly() and len(arrays[1].shape) == 2:
        (density,) = in_blocks(block, arrays, _ROWS, [arrays[1].dtype])
    else:
        (density,) = block(arrays)
    return _counted(likelihood, X, density)


def _log_density(
    base: Likelihood, X: tf.Tensor, mean: tf.Tensor, var: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    L, correlated = int(mean.shape[-1]), _is_covariance(mean, var)
    if isinstance(base, Softmax) and correlated:
        return base.log_prob(X, _without_shift(mean, var), Y)
    if correlated and L == 2:  # the first predictor is one that does not depend on the second
        slope = tf.math.divide_no_nan(var[..., 0, 1], var[..., 1, 1])
        own = tf.stack([var[..., 0, 0] - slope * var[..., 0, 1], var[..., 1, 1]], axis=-1)

        def log_prob(F: tf.Tensor) -> tf.Tensor:
            first = F[..., 0] + slope * (F[..., 1] - mean[..., 1])
            both = tf.stack([first, F[..., 1]], axis=-1)
            return _by_rows(base.log_prob, X, both, Y)[..., None]

        return GaussHermitePlane(20, 20).logspace(log_prob, mean, own)[..., 0]
    if not _suits_gpflow(base, mean, var):
        logs = at_nodes(base.log_prob, mean, var, X, Y)
        number = tf.cast(tf.shape(logs)[0], logs.dtype)
        return tf.reduce_logsumexp(logs, axis=0) - tf.math.log(number)
    rule = getattr(base, "quadrature", None)
    if type(rule) is not NDiagGHQuadrature or rule.dim > 2:
        return base.predict_log_density(X, mean, var, Y)
    # GPflow's nodes are those of the predictor, than which a density may be far narrower
    base = copy.copy(base)
    base.quadrature = GaussHermite() if rule.dim == 1 else GaussHermitePlane(20, 20)
    return base.predict_log_density(X, mean, var, Y)


def expected_log_density(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType, Y: TensorType
) -> tf.Tensor:
    """The expectation of a response's log-density over its predictors, [..., N]."""
    var = needed(likelihood, mean, var)
    if not _is_covariance(mean, var):
        return likelihood.variational_expectations(X, mean, var, Y)
    logs = at_nodes(unwrapped(likelihood).log_prob, mean, var, X, Y)
    return _counted(likelihood, X, tf.reduce_mean(logs, axis=0))


def softmax_mean(mean: TensorType, cov: TensorType) -> tf.Tensor:
    """Class probabilities [..., C] behind a softmax, approximately: MacKay (1992)."""
    return tf.nn.softmax(_without_shift(mean, cov))


def shrunk(mean: tf.Tensor, var: tf.Tensor) -> tf.Tensor:
    """The logit whose probability is about the mean under N(mean, var): MacKay (1992)."""
    return mean / tf.sqrt(1.0 + math.pi / 8.0 * var)


def roots(cov: tf.Tensor) -> tf.Tensor:
    """Lower triangular roots of covariances [..., L, L], singular ones too, in plain operations."""
    zero, rest, columns = tf.zeros([], cov.dtype), cov, []
    eps = float(np.finfo(cov.dtype.as_numpy_dtype).eps)
    for i in range(cov.shape[-1]):
        pivot = rest[..., i, i, None]
        has = pivot > 10.0 * eps * cov[..., i, i, None]  # else rounding, or nothing
        scale = tf.sqrt(tf.where(has, pivot, tf.ones_like(pivot)))
        column = tf.where(has, rest[..., i] / scale, zero)
        columns.append(column)
        rest -= column[..., :, None] * column[..., None, :]
    return tf.stack(columns, axis=-1)


def _is_covariance(mean: TensorType, var: TensorType) -> bool:
    return bool(len(var.shape) > len(mean.shape))


def _suits_gpflow(base: Likelihood, mean: TensorType, var: TensorType) -> bool:
    """True if GPflow's own methods serve: no covariances, no fresh random draws at each call."""
    drawn = isinstance(base, MonteCarloLikelihood) and not isinstance(base, FixedSoftmax)
    return not (_is_covariance(mean, var) or drawn)


def _without_shift(mean: tf.Tensor, cov: tf.Tensor) -> tf.Tensor:
    centred = cov - tf.reduce_mean(cov, axis=-1, keepdims=True)
    centred -= tf.reduce_mean(centred, axis=-2, keepdims=True)
    var = tf.linalg.diag_part(centred)
    return shrunk(mean, tf.maximum(var, tf.zeros([], var.dtype)))


def at_nodes(
    function: Callable[..., tf.Tensor],
    mean: TensorType,
    var: TensorType,
    X: TensorType,
    *Y: TensorType,
    nodes: AnyNDArray | None = None,
) -> tf.Tensor:
    """``function(X, F, *Y)`` at equally likely predictors, [S, ..., N, ...], of normal nodes."""
    mean, var = tf.convert_to_tensor(mean), tf.convert_to_tensor(var)
    L = int(mean.shape[-1])
    if nodes is None:
        least = _PAIRS if _is_covariance(mean, var) else _INDEPENDENT_PAIRS
        nodes = _nodes(L, least)
    if _is_covariance(mean, var):
        deviations = tf.einsum("...lk,sk->s...l", roots(var), tf.constant(nodes, mean.dtype))
    else:
        deviations = tf.einsum("...l,sl->s...l", _root(var), tf.constant(nodes, mean.dtype))
    return _by_rows(function, X, mean + deviations, *Y)


def _nodes(L: int, pairs: int) -> AnyNDArray:
    """Normal nodes [S, L], so many pairs or more."""
    return normal_nodes(L, 2 ** math.ceil(math.log2(max(pairs, L))))


def _by_rows(
    function: Callable[..., tf.Tensor], X: TensorType, F: tf.Tensor, *Y: TensorType
) -> tf.Tensor:
    """``function(X, F, *Y)`` at F [S, ..., L], by the matrices that GPflow's likelihoods take."""
    number = tf.shape(F)[0]

    def rows(t: TensorType) -> tf.Tensor:
        t = tf.convert_to_tensor(t)
        last = tf.shape(t)[-1] if t.shape[-1] is None else t.shape[-1]
        return tf.reshape(tf.repeat(t[None], number, axis=0), [-1, last])

    values = function(rows(X), tf.reshape(F, [-1, F.shape[-1]]), *map(rows, Y))
    return tf.reshape(values, tf.concat([tf.shape(F)[:-1], tf.shape(values)[1:]], axis=0))


def _root(var: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(var, tf.zeros([], var.dtype)))


def _counted(likelihood: Likelihood, X: TensorType, density: tf.Tensor) -> tf.Tensor:
    """Times the weights, if there are any."""
    return likelihood.weights(X) * density if isinstance(likelihood, Weighted) else density


# --- expected responses --------------------------------------------------------------------------


def conditional_response(likelihood: Likelihood, X: TensorType, F: TensorType) -> tf.Tensor:
    """E[y | F], [..., N] or probabilities of classes [..., N, K], at predictors F [..., N, L]."""
    base = unwrapped(likelihood)
    base = base.base if isinstance(base, Quasi) else base
    F = tf.convert_to_tensor(F)
    if hasattr(base, "conditional_response"):
        return base.conditional_response(X, F)
    if isinstance(base, Ordinal):
        f = F[..., :1]  # GPflow flattens what it is given
        edges = tf.cast(base.bin_edges, f.dtype)
        below = 0.5 * tf.math.erfc((f - edges) / (base.sigma * np.sqrt(2.0)))
        whole = tf.concat([tf.zeros_like(f), below, tf.ones_like(f)], axis=-1)
        return whole[..., 1:] - whole[..., :-1]
    if isinstance(base, MultiClass):  # GPflow's takes matrices only
        flat = base.invlink(tf.reshape(F, [-1, F.shape[-1]]))
        return tf.reshape(flat, tf.shape(F))
    mean = base.conditional_mean(X, F)
    return mean[..., 0] if mean.shape[-1] == 1 else mean


class ResponseSummary(NamedTuple):
    """Moments and credible intervals of the expected response, [N] or [N, K] each."""

    mean: tf.Tensor  # posterior mean
    sd: tf.Tensor  # posterior standard deviation
    lower: tf.Tensor | None  # of equal-tailed credible intervals; None where none was asked for
    upper: tf.Tensor | None  # their upper ends


@check_shapes(
    "X: [N, D]",
    "mean: [N, L]",
    "var: [N, L, any...]",
    "return.mean: [N, K...]",
    "return.sd: [N, K...]",
)
@as_written
def summarised_response(
    likelihood: Likelihood,
    X: TensorType,
    mean: TensorType,
    var: TensorType,
    level: float | None = None,
) -> ResponseSummary:
    """The expected response under predictors rho(x_n) ~ N(mean_n, diag(var_n) or var_n)."""
    # One predictor, or the first of likelihoods with mean_of_first, by quadrature and the inverse
    # link at the ends of its interval; several by nodes, the same for every row, and correlated
    # classes behind a softmax by MacKay's approximation (1992). level is the intervals', None for
    # none.
    if level is not None:
        check_level(level)
    likelihood = unwrapped(likelihood)
    X, mean, var = (tf.convert_to_tensor(a) for a in (X, mean, var))
    var = needed(likelihood, mean, var)
    correlated = var.shape.rank == 3
    sd = _root(tf.linalg.diag_part(var) if correlated else var)
    width = conditional_response(likelihood, X, mean).shape
    one_by_one = is_scalar(likelihood) and width[1:] == mean.shape[1:]
    if (mean.shape[-1] == 1 and width.rank == 1) or one_by_one:
        return _integrated(likelihood, X, mean, sd, level)
    if getattr(likelihood, "mean_of_first", False):
        moves = tf.constant([1.0] + [0.0] * (mean.shape[-1] - 1), dtype=sd.dtype)
        return _integrated(likelihood, X, mean, sd * moves, level)
    columns = max(mean.shape[-1], width[-1] or 1) if width.rank > 1 else mean.shape[-1]
    rows = max(1, _ENTRIES // (_DRAWS * columns))
    if mean.shape[-1] > 1:
        normals = _nodes(int(mean.shape[-1]), _DRAWS // 2)
        drawn = _drawn(likelihood, X, mean, var, level, normals, rows)
        if correlated and isinstance(likelihood, Softmax):
            return drawn._replace(mean=softmax_mean(mean, var))
        return drawn
    exact = _integrated(likelihood, X, mean, sd, None)
    if level is None:
        return exact
    normals = norm.ppf((np.arange(_DRAWS) + 0.5) / _DRAWS)[:, None]
    drawn = _drawn(likelihood, X, mean, var, level, normals, rows)
    return ResponseSummary(exact.mean, exact.sd, drawn.lower, drawn.upper)


def _integrated(
    likelihood: Likelihood, X: tf.Tensor, mean: tf.Tensor, sd: tf.Tensor, level: float | None
) -> ResponseSummary:
    nodes = tf.constant(_NODES[:, None, None], dtype=mean.dtype)
    values = conditional_response(likelihood, X, mean + sd * nodes)  # [Q, N, ...]
    weights = tf.cast(_WEIGHTS.reshape([-1] + [1] * (values.shape.rank - 1)), mean.dtype)
    expected = tf.reduce_sum(weights * values, axis=0)
    variance = tf.reduce_sum(weights * tf.square(values - expected), axis=0)
    spread = tf.sqrt(tf.maximum(variance, tf.zeros([], mean.dtype)))
    spread = tf.where(tf.math.is_inf(expected), tf.abs(expected), spread)  # not infinity's own NaN
    if level is None:
        return ResponseSummary(expected, spread, None, None)
    z = float(norm.ppf(0.5 + 0.5 * level))
    ends = [conditional_response(likelihood, X, mean + sign * z * sd) for sign in (-1.0, 1.0)]
    return ResponseSummary(expected, spread, tf.minimum(*ends), tf.maximum(*ends))


def _drawn(
    likelihood: Likelihood,
    X: tf.Tensor,
    mean: tf.Tensor,
    var: tf.Tensor,
    level: float | None,
    normals: AnyNDArray,
    rows: int,
) -> ResponseSummary:
    """At standard normals [S, L]."""
    S, normals = len(normals), tf.constant(normals, dtype=mean.dtype)

    def block(arrays: Arrays) -> Arrays:
        x, m, v = arrays
        if v.shape.rank == 3:
            deviations = tf.matmul(normals, roots(v), transpose_b=True)
        else:
            deviations = _root(v)[:, None] * normals
        draws = conditional_response(likelihood, x[:, None], m[:, None] + deviations)  # [n, S, ...]
        center, spread = tf.reduce_mean(draws, axis=1), tf.math.reduce_std(draws, axis=1)
        # not infinity's own NaN
        moments = center, tf.where(tf.math.is_inf(center), tf.abs(center), spread)
        return moments if level is None else moments + _interval(draws, level, S)

    outputs = 2 if level is None else 4
    parts = in_blocks(block, (X, mean, var), rows, [mean.dtype] * outputs)
    return ResponseSummary(*parts, *[None] * (4 - outputs))


@contextmanager
def rows_at_once() -> Iterator[None]:
    """A context in which :func:`in_blocks` makes no loop, which some file formats lack."""
    token = _AT_ONCE.set(True)
    try:
        yield
    finally:
        _AT_ONCE.reset(token)


def in_blocks(block: Block, arrays: Arrays, rows: int, dtypes: Sequence[tf.DType]) -> Arrays:
    """``block`` of the arrays [N, ...], so many rows at a time; N need not be known."""
    number = arrays[0].shape[0]
    if _AT_ONCE.get() or (number is not None and number <= rows):
        return block(arrays)
    if tf.executing_eagerly():
        starts = range(0, number, rows)
        done = [block(tuple(a[i : i + rows] for a in arrays)) for i in starts]
        return tuple(tf.concat(parts, axis=0) for parts in zip(*done))
    number = tf.shape(arrays[0])[0] if number is None else number
    blocks = (number + rows - 1) // rows
    blocks = blocks if isinstance(blocks, int) else tf.maximum(blocks, 1)
    # blocks of one size, as XLA has to know it: together a few rows more than there are
    step = (number + blocks - 1) // blocks
    spare = blocks * step - number
    padded = [tf.concat([a, tf.repeat(a[:1], spare, axis=0)], axis=0) for a in arrays]
    stacked = tuple(tf.reshape(a, [blocks, step, *_sizes(a)[1:]]) for a in padded)
    parts = tf.map_fn(as_written(block), stacked, fn_output_signature=tuple(dtypes))
    return tuple(tf.reshape(p, [blocks * step, *_sizes(p)[2:]])[:number] for p in parts)


def _sizes(x: tf.Tensor) -> list[Any]:
    """The sizes of a tensor's axes, as numbers where they are known."""
    return [tf.shape(x)[i] if size is None else size for i, size in enumerate(x.shape)]


def _interval(draws: tf.Tensor, level: float, S: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Quantiles over the draws [n, S, ...], interpolated linearly as ``np.quantile`` does."""
    rank = draws.shape.rank
    last = tf.transpose(draws, [0, *range(2, rank), 1])  # [n, ..., S]
    tail = 0.5 * (1.0 - level)
    below = S - 1 - (S - 1) * (1.0 - tail)  # places from the top, as floats round
    return -_from_top(-last, (S - 1) * tail, S), _from_top(last, below, S)


def _from_top(values: tf.Tensor, place: float, S: int) -> tf.Tensor:
    """The value at a fractional place in descending order of the last axis, [..., S]."""
    whole = int(np.floor(place))
    highest = tf.math.top_k(values, k=min(whole + 2, S)).values
    first, second = highest[..., whole], highest[..., min(whole + 1, S - 1)]
    return first + (second - first) * (place - whole)
