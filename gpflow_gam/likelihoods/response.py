"""
The expected response mu(rho(x)) under a Gaussian predictor: its mean, deviation and limits.

TensorFlow only, so that it can be compiled and exported with a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood, MultiClass, Ordinal, ScalarLikelihood, Softmax
from gpflow.utilities import Dispatcher
from scipy.stats import norm

from ..autograph import as_written
from .binomial import Binomial
from .ordered import Ordered
from .predictive import needed, roots, softmax_mean
from .quasi import Quasi
from .weighted import Weighted, unwrapped

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)  # type: ignore[no-untyped-call]
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_DRAWS = 1000
_ENTRIES = 2**21
"""Numbers of a kind that are held at a time where predictors are drawn."""

Arrays = tuple[tf.Tensor, ...]
Block = Callable[[Arrays], Arrays]

conditional_response = Dispatcher("conditional_response")
"""
``conditional_response(likelihood, X, F)``: E[y | F] of predictors F [..., N, L].

[..., N] where the response is one column, class probabilities [..., N, K] where it is a class, the
probability [..., N] of a binomial. It dispatches on the likelihood's class; register one of your
own with ``@conditional_response.register(MyLikelihood, object, object)``.
"""


@conditional_response.register(Likelihood, object, object)
def _any(likelihood: Likelihood, X: TensorType, F: TensorType) -> tf.Tensor:
    mean = likelihood.conditional_mean(X, F)
    return mean[..., 0] if mean.shape[-1] == 1 else mean


@conditional_response.register(Weighted, object, object)
def _weighted(likelihood: Weighted, X: TensorType, F: TensorType) -> tf.Tensor:
    return conditional_response(likelihood.base, X, F)


@conditional_response.register(Quasi, object, object)
def _quasi(likelihood: Quasi, X: TensorType, F: TensorType) -> tf.Tensor:
    return conditional_response(likelihood.base, X, F)


@conditional_response.register(Binomial, object, object)
def _binomial(likelihood: Binomial, X: TensorType, F: TensorType) -> tf.Tensor:
    return likelihood.invlink(F)[..., 0]


@conditional_response.register(Ordered, object, object)
def _ordered(likelihood: Ordered, X: TensorType, F: TensorType) -> tf.Tensor:
    below = likelihood.cumulative(F)[..., 0, :]
    return tf.concat([below[..., :1], below[..., 1:] - below[..., :-1]], axis=-1)


@conditional_response.register(Ordinal, object, object)
def _ordinal(likelihood: Ordinal, X: TensorType, F: TensorType) -> tf.Tensor:
    f = tf.convert_to_tensor(F)[..., :1]  # GPflow flattens what it is given
    edges = tf.cast(likelihood.bin_edges, f.dtype)
    below = 0.5 * tf.math.erfc((f - edges) / (likelihood.sigma * np.sqrt(2.0)))
    whole = tf.concat([tf.zeros_like(f), below, tf.ones_like(f)], axis=-1)
    return whole[..., 1:] - whole[..., :-1]


@conditional_response.register(MultiClass, object, object)
def _multi_class(likelihood: MultiClass, X: TensorType, F: TensorType) -> tf.Tensor:
    F = tf.convert_to_tensor(F)  # GPflow's takes matrices only
    flat = likelihood.invlink(tf.reshape(F, [-1, F.shape[-1]]))
    return tf.reshape(flat, tf.shape(F))


class ResponseSummary(NamedTuple):
    """Moments and limits of the expected response, [N] or [N, K] each."""

    mean: tf.Tensor
    """Posterior mean."""

    sd: tf.Tensor
    """Posterior standard deviation."""

    lower: tf.Tensor | None
    """Equal-tailed lower limits; None where no interval was asked."""

    upper: tf.Tensor | None
    """The upper ones."""


@check_shapes("X: [N, D]", "mean: [N, L]", "var: [N, L, any...]", "return: [N, K...]")
@as_written
def expected_response(
    likelihood: Likelihood, X: TensorType, mean: TensorType, var: TensorType, *, seed: int = 0
) -> tf.Tensor:
    """
    E_q[E[y | rho(x)]] under predictors rho(x_n) ~ N(mean_n, diag(var_n)), or N(mean_n, var_n).

    See :func:`summarised_response` for how.

    :param likelihood: of the responses.
    :param X: inputs [N, D], for likelihoods that read them.
    :param mean: of the predictors, [N, L].
    :param var: of the predictors, [N, L]; or, where they are correlated, covariances [N, L, L].
    :param seed: of the draws that several predictors take, which are the same for every row.
    :return: [N], or class probabilities [N, K]; of a binomial the probability.
    :raises ValueError: the number of predictors is not known.
    """
    return summarised_response(likelihood, X, mean, var, seed=seed).mean


@check_shapes(
    "X: [N, D]",
    "mean: [N, L]",
    "var: [N, L, any...]",
    "return[0]: [N, K...]",
    "return[1]: [N, K...]",
)
@as_written
def response_interval(
    likelihood: Likelihood,
    X: TensorType,
    mean: TensorType,
    var: TensorType,
    level: float = 0.95,
    *,
    seed: int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Equal-tailed credible limits of the expected response, shaped as :func:`expected_response`.

    :param likelihood: of the responses.
    :param X: inputs [N, D], for likelihoods that read them.
    :param mean: of the predictors, [N, L].
    :param var: of the predictors, [N, L]; or, where they are correlated, covariances [N, L, L].
    :param level: their probability.
    :param seed: of the draws that several predictors take.
    :raises ValueError: ``level`` is none, or the number of predictors is not known.
    """
    summary = summarised_response(likelihood, X, mean, var, level, seed=seed)
    return summary.lower, summary.upper  # type: ignore[return-value]


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
    *,
    seed: int = 0,
    in_blocks: bool = True,
) -> ResponseSummary:
    """
    All of :func:`expected_response` and :func:`response_interval` at the cost of one.

    One predictor is integrated by Gauss-Hermite quadrature, and its limits are carried through the
    inverse link, which is monotone; so is each of several outputs that are observed one by one,
    and the first predictor of likelihoods with ``mean_of_first``, on which alone their mean
    depends. Ordered classes are integrated as well, but for limits, which are of a thousand even
    quantiles of the predictor. Several predictors of a response are drawn, jointly where they are
    correlated; the mean of classes behind a softmax is then MacKay's approximation (1992), which
    ``predict_y`` of models has, too.

    :param likelihood: of the responses.
    :param X: inputs [N, D], for likelihoods that read them.
    :param mean: of the predictors, [N, L].
    :param var: of the predictors, [N, L]; or, where they are correlated, covariances [N, L, L].
    :param level: the limits' probability; None for none.
    :param seed: of the draws that several predictors take.
    :param in_blocks: whether draws are made for some rows at a time, in a loop; at once otherwise,
        in memory for a thousand times the rows.
    :raises ValueError: ``level`` is no probability, or the number of predictors is not known.
    """
    if level is not None and not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    likelihood = unwrapped(likelihood)
    X, mean, var = (tf.convert_to_tensor(a) for a in (X, mean, var))
    if mean.shape[-1] is None:
        raise ValueError("mean must have a known number of columns; got an unknown one.")
    var = needed(likelihood, mean, var)
    is_joint = var.shape.rank == 3
    sd = _root(tf.linalg.diag_part(var) if is_joint else var)
    width = conditional_response(likelihood, X, mean).shape
    one_by_one = isinstance(likelihood, ScalarLikelihood) and width[1:] == mean.shape[1:]
    if getattr(likelihood, "mean_of_first", False):
        moves = tf.constant([1.0] + [0.0] * (mean.shape[-1] - 1), dtype=sd.dtype)
        return _integrated(likelihood, X, mean, sd * moves, level)
    if (mean.shape[-1] == 1 and width.rank == 1) or one_by_one:
        return _integrated(likelihood, X, mean, sd, level)
    columns = max(mean.shape[-1], width[-1] or 1) if width.rank > 1 else mean.shape[-1]
    rows = max(1, _ENTRIES // (_DRAWS * columns)) if in_blocks else None
    if mean.shape[-1] > 1:
        # the same for every row: what is predicted of one does not depend on the others
        normals = np.random.default_rng(seed).standard_normal((_DRAWS, mean.shape[-1]))
        drawn = _drawn(likelihood, X, mean, var, level, normals, rows)
        if is_joint and isinstance(likelihood, Softmax):
            return drawn._replace(mean=softmax_mean(mean, var))
        return drawn
    exact = _integrated(likelihood, X, mean, sd, None)
    if level is None:
        return exact
    normals = norm.ppf((np.arange(_DRAWS) + 0.5) / _DRAWS)[:, None]
    limits = _drawn(likelihood, X, mean, var, level, normals, rows)
    return ResponseSummary(exact.mean, exact.sd, limits.lower, limits.upper)


def _root(var: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.maximum(var, tf.zeros([], var.dtype)))


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
    rows: int | None,
) -> ResponseSummary:
    """At standard normals [S, L]."""
    normals = tf.constant(normals, dtype=mean.dtype)

    def block(arrays: Arrays) -> Arrays:
        x, m, v = arrays
        if v.shape.rank == 3:
            away = tf.matmul(normals, roots(v), transpose_b=True)
        else:
            away = _root(v)[:, None] * normals
        draws = conditional_response(likelihood, x[:, None], m[:, None] + away)  # [n, S, ...]
        center, spread = tf.reduce_mean(draws, axis=1), tf.math.reduce_std(draws, axis=1)
        # not infinity's own NaN
        moments = center, tf.where(tf.math.is_inf(center), tf.abs(center), spread)
        return moments if level is None else moments + _limits(draws, level)

    outputs = 2 if level is None else 4
    arrays = (X, mean, var)
    parts = block(arrays) if rows is None else _in_blocks(block, arrays, rows, outputs)
    return ResponseSummary(*parts, *[None] * (4 - outputs))


def _in_blocks(block: Block, arrays: Arrays, rows: int, outputs: int) -> Arrays:
    """``block`` of the arrays [N, ...], so many rows at a time; N need not be known."""
    number = arrays[0].shape[0]
    if number is not None and number <= rows:
        return block(arrays)
    if tf.executing_eagerly():
        starts = range(0, number, rows)
        done = [block(tuple(a[i : i + rows] for a in arrays)) for i in starts]
        return tuple(tf.concat(parts, axis=0) for parts in zip(*done))
    step = rows
    if number is None:
        number = tf.shape(arrays[0])[0]
        step = tf.clip_by_value(number, 1, rows)
    blocks = tf.maximum((number + step - 1) // step, 1)  # none would have no shape
    more = [0, blocks * step - number]
    padded = [tf.pad(a, [more, *[[0, 0]] * (a.shape.rank - 1)]) for a in arrays]
    stacked = tuple(tf.reshape(a, [blocks, step, *a.shape[1:]]) for a in padded)
    parts = tf.map_fn(as_written(block), stacked, fn_output_signature=(arrays[1].dtype,) * outputs)
    return tuple(tf.reshape(p, [blocks * step, *p.shape[2:]])[:number] for p in parts)


def _limits(draws: tf.Tensor, level: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Quantiles over the draws [n, S, ...], interpolated linearly as ``np.quantile`` does."""
    rank = draws.shape.rank
    last = tf.transpose(draws, [0, *range(2, rank), 1])  # [n, ..., S]
    tail = 0.5 * (1.0 - level)
    below = _DRAWS - 1 - (_DRAWS - 1) * (1.0 - tail)  # places from the top, as floats round
    return -_from_top(-last, (_DRAWS - 1) * tail), _from_top(last, below)


def _from_top(values: tf.Tensor, place: float) -> tf.Tensor:
    """The value at a fractional place in descending order of the last axis."""
    whole = int(np.floor(place))
    highest = tf.math.top_k(values, k=min(whole + 2, _DRAWS)).values
    first, second = highest[..., whole], highest[..., min(whole + 1, _DRAWS - 1)]
    return first + (second - first) * (place - whole)
