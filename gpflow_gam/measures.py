"""Probability measures of inputs, against which functions are centred and variances taken."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from scipy.special import ndtri, roots_hermitenorm, roots_legendre
from threadpoolctl import threadpool_limits

from .errors import check_count, check_positive
from .threads import one_blas_thread

__all__ = ["Discrete", "Empirical", "Gaussian", "Measure", "Nodes", "Uniform"]


class Measure(abc.ABC):
    """A probability measure on the columns that one component reads."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """Number of columns of the measure."""

    @abc.abstractmethod
    def nodes(self) -> tuple[AnyNDArray | tf.Tensor, AnyNDArray | tf.Tensor]:
        """
        Quadrature nodes [Q, d] and weights [Q], which sum to one.

        Exact for discrete measures; to the order of the rule for others.
        """

    def thinned(self, num_nodes: int) -> Measure:
        """This measure, or one of at most about ``num_nodes`` nodes that stands for it."""
        return self

    @property
    def bounds(self) -> tuple[AnyNDArray, AnyNDArray] | None:
        """Ends [d] outside of which functions are not meant to be used; None: there are none."""
        # discrete measures stand for a population, or are levels: they bound nothing
        return None

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        """Independent uniform numbers u [N, d] in [0, 1) mapped to the measure, [N, d]."""
        # by the nodes, where the measure has no quantile function of its own
        points, weights = (np.asarray(a) for a in self.nodes())
        edges = np.cumsum(weights)
        at = np.searchsorted(edges / edges[-1], u[:, 0], side="right")
        return points[np.minimum(at, len(points) - 1)]


def checked_sample(values: object, weights: object | None) -> tuple[AnyNDArray, AnyNDArray]:
    """A sample [N, d] and its weights [N]."""
    given = np.asarray(values, dtype=np.float64)
    points = given[:, None] if given.ndim == 1 else given
    if points.ndim != 2 or len(points) == 0:
        raise ValueError(f"points must be [N] or [N, d] with N >= 1; got shape {given.shape}.")
    if not np.all(np.isfinite(points)):
        raise ValueError("points must be finite; fill in or leave out what is missing.")
    w = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(points),):
        raise ValueError(f"weights must be one a point, [{len(points)}]; got shape {w.shape}.")
    if not np.all(np.isfinite(w)) or np.any(w < 0.0) or w.sum() == 0.0:
        raise ValueError(
            "weights must be finite, non-negative and not all zero; "
            f"got a minimum of {w.min()} and a sum of {w.sum()}."
        )
    return points, w


_MAX_ROWS = 20_000  # points that k-means sees
_SLIVER = 1e-12  # share of the weight that rounding leaves between ends that are equal
_SKEW = 1e-6  # moments below which a column is taken to be as it is the other way round


def weighted_quantiles(
    values: AnyNDArray, weights: AnyNDArray | None, levels: AnyNDArray | Sequence[float]
) -> AnyNDArray:
    """Quantiles of values that count by their weights (two: the value twice), linear in between."""
    distinct, inverse = np.unique(values, return_inverse=True)
    mass = np.bincount(inverse.ravel(), weights)
    middle = np.cumsum(mass) - 0.5 * mass
    return np.asarray(np.interp(np.asarray(levels) * mass.sum(), middle, distinct))


def bin_means(
    values: AnyNDArray, weights: AnyNDArray, number: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Means and weights of bins of equal weight; a value where a bin ends is in part in both."""
    ends = np.cumsum(weights) / weights.sum()
    cuts = np.unique(np.concatenate([[0.0], ends, np.linspace(0.0, 1.0, number + 1)]))
    length = np.diff(cuts)
    kept = length > _SLIVER
    length, middle = length[kept], 0.5 * (cuts[1:] + cuts[:-1])[kept]
    own = values[np.minimum(np.searchsorted(ends, middle), len(values) - 1)]
    _, first, bins = np.unique(np.floor(number * middle), return_index=True, return_inverse=True)
    mass, origin = np.bincount(bins, length), own[first]
    # around a value of its own: a bin of a single one has it to the last digit
    return origin + np.bincount(bins, length * (own - origin[bins])) / mass, mass / mass.sum()


def cluster_means(
    points: AnyNDArray, weights: AnyNDArray, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Means and weights of k-means' clusters, found in columns of equal deviation."""
    from sklearn.cluster import KMeans  # dear to import: only where it is used

    location, scale = points.mean(axis=0), points.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)  # clusters must not depend on a column's unit
    standard = np.round((points - location) / scale, 6)  # nor ties between them on rounding
    signs = _orientation(standard, weights)  # nor on its sign
    standard = standard * signs
    order = np.lexsort(standard.T[::-1])[:: -(-len(points) // _MAX_ROWS)]
    standard, weights = standard[order], weights[order]
    search = KMeans(number, n_init=1, random_state=seed)
    # threads wait for each other far longer than they compute
    with one_blas_thread(), threadpool_limits(1, "openmp"):
        fitted = search.fit(standard, sample_weight=weights)
    mass = np.bincount(fitted.labels_, weights, minlength=number)
    centres = location + fitted.cluster_centers_ * signs * scale
    return centres[mass > 0.0], mass[mass > 0.0] / mass.sum()


def _orientation(standard: AnyNDArray, weights: AnyNDArray) -> AnyNDArray:
    """Signs [d] that turn columns the same way, however they come: by their first odd moment."""
    turned, share = standard.copy(), weights / weights.sum()
    signs = np.ones(standard.shape[1])
    for i, x in enumerate(standard.T):
        others = np.delete(standard, i, axis=1)
        odd = np.column_stack([x**2, turned[:, :i], others**2])
        moments = (share * x) @ odd
        clear = moments[np.abs(moments) > _SKEW]
        if len(clear) and clear[0] < 0.0:
            signs[i] = -1.0
            turned[:, i] = -x
    return signs


class Uniform(Measure):
    """
    The uniform distribution on an interval.

    :param lower: left end.
    :param upper: right end.
    :param num_nodes: Gauss-Legendre nodes, used with kernels that have no closed form.
    :raises ValueError: unless ``lower < upper``, both finite.
    """

    def __init__(self, lower: float, upper: float, *, num_nodes: int = 64) -> None:
        if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
            raise ValueError(f"lower < upper must be finite; got lower={lower}, upper={upper}.")
        self.lower = float(lower)
        self.upper = float(upper)
        self.num_nodes = checked_number(num_nodes)

    def thinned(self, num_nodes: int) -> Uniform:
        number = min(checked_number(num_nodes), self.num_nodes)
        return Uniform(self.lower, self.upper, num_nodes=number)

    @property
    def dimension(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[AnyNDArray, AnyNDArray]:
        return np.array([self.lower]), np.array([self.upper])

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        x, w = roots_legendre(self.num_nodes)
        half = 0.5 * (self.upper - self.lower)
        return (self.lower + half * (x + 1.0))[:, None], 0.5 * w

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        return self.lower + (self.upper - self.lower) * u

    def __repr__(self) -> str:
        return f"Uniform({self.lower}, {self.upper})"


class Gaussian(Measure):
    """
    The normal distribution.

    :param mean: its mean.
    :param sd: its standard deviation.
    :param num_nodes: Gauss-Hermite nodes, used with kernels that have no closed form.
    :raises ValueError: a mean that is not finite, or a deviation that is not positive.
    """

    def __init__(self, mean: float = 0.0, sd: float = 1.0, *, num_nodes: int = 64) -> None:
        if not np.isfinite(mean):
            raise ValueError(f"mean must be finite; got {mean}.")
        check_positive("sd", sd)
        self.mean = float(mean)
        self.sd = float(sd)
        self.num_nodes = checked_number(num_nodes)

    def thinned(self, num_nodes: int) -> Gaussian:
        return Gaussian(
            self.mean, self.sd, num_nodes=min(checked_number(num_nodes), self.num_nodes)
        )

    @property
    def dimension(self) -> int:
        return 1

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        x, w = roots_hermitenorm(self.num_nodes)
        return (self.mean + self.sd * x)[:, None], w / w.sum()

    def transport(self, u: AnyNDArray) -> AnyNDArray:
        tiny = np.finfo(np.float64).tiny  # u = 0 is minus infinity
        return self.mean + self.sd * ndtri(np.maximum(u, tiny))

    def __repr__(self) -> str:
        return f"Gaussian({self.mean}, {self.sd})"


def checked_number(num_nodes: int) -> int:
    check_count("num_nodes", num_nodes)
    return int(num_nodes)


def frequencies(
    points: AnyNDArray | Sequence[float], weights: AnyNDArray | Sequence[float] | None
) -> tuple[AnyNDArray, AnyNDArray]:
    """Distinct rows [Q, d] of a sample, and their shares [Q] of its weight."""
    rows, w = checked_sample(points, weights)
    distinct, inverse = np.unique(rows[w > 0.0], axis=0, return_inverse=True)
    mass = np.bincount(inverse.ravel(), w[w > 0.0])
    return distinct, mass / mass.sum()


class Discrete(Measure):
    """
    Finitely many points with probabilities: levels of a factor, hours of a day, nodes.

    Its points are never thinned: between two levels there is none.

    :param points: [Q] or [Q, d].
    :param probabilities: [Q], non-negative, summing to one; equal by default.
    :raises ValueError: no point, a non-finite point, or weights that are no probabilities.
    """

    def __init__(
        self,
        points: AnyNDArray | Sequence[float],
        probabilities: AnyNDArray | Sequence[float] | None = None,
    ) -> None:
        self.points, _ = checked_sample(points, None)
        number = len(self.points)
        p = np.full(number, 1.0 / number) if probabilities is None else np.asarray(probabilities)
        if p.shape != (number,):
            raise ValueError(f"probabilities must be one a point, [{number}]; got shape {p.shape}.")
        if not np.all(p >= 0.0) or not np.isclose(p.sum(), 1.0):  # NaN fails the first
            raise ValueError(
                "probabilities must be non-negative and sum to one; "
                f"got a minimum of {p.min()} and a sum of {p.sum()}."
            )
        self.probabilities = p.astype(np.float64)

    @classmethod
    def from_data(cls, values: AnyNDArray, weights: AnyNDArray | None = None) -> Discrete:
        """
        The distinct rows of a sample and how often they occur.

        :param values: [N] or [N, d].
        :param weights: how often each row counts, [N].
        :raises ValueError: an empty sample, one that is not finite, or weights that are negative
            or all zero.
        """
        return cls(*frequencies(values, weights))

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def nodes(self) -> tuple[AnyNDArray, AnyNDArray]:
        return self.points, self.probabilities

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.points)} points)"


class Empirical(Discrete):
    """
    A sample as a measure.

    :param points: the sample, [N] or [N, d]; repeated rows add up.
    :param weights: how often each point counts, [N], of any sum; once each by default.
    :raises ValueError: an empty sample, one that is not finite, or weights that are negative or
        all zero.
    """

    def __init__(
        self,
        points: AnyNDArray | Sequence[float],
        weights: AnyNDArray | Sequence[float] | None = None,
    ) -> None:
        super().__init__(*frequencies(points, weights))

    @classmethod
    def from_data(cls, values: AnyNDArray, weights: AnyNDArray | None = None) -> Empirical:
        """
        A sample, thinned to nodes that stand for it: 48, 100 in two columns and 150 beyond.

        In one column the nodes are the means of bins of about equal weight: averages over them
        equal averages over the data to second order in the bins' width, and exactly for straight
        lines. In several they are the means of k-means' clusters.

        :param values: [N] or [N, d].
        :param weights: how often each row counts, [N].
        :raises ValueError: as the constructor.
        """
        whole = cls(values, weights)
        return whole.thinned(NUM_NODES.get(whole.dimension, 150))

    def thinned(self, num_nodes: int) -> Empirical:
        """At most so many points that stand for all: means of bins, or of k-means' clusters."""
        number = checked_number(num_nodes)
        if len(self.points) <= number:
            return self
        if self.dimension == 1:
            return Empirical(*bin_means(self.points[:, 0], self.probabilities, number))
        return Empirical(*cluster_means(self.points, self.probabilities, number, seed=0))


class Nodes(tf.Module, Measure):
    """A discrete measure whose points are variables: state that can be set and saved."""

    def __init__(self, start: Discrete) -> None:
        super().__init__()
        self.points = tf.Variable(start.points, trainable=False, dtype=default_float())
        self.probabilities = tf.Variable(
            start.probabilities, trainable=False, dtype=default_float()
        )

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def nodes(self) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.convert_to_tensor(self.points), tf.convert_to_tensor(self.probabilities)

    def assign(self, measure: Discrete) -> None:
        """Take another measure's points, fewer ones with points of no weight beside them."""
        have, want = measure.points.shape, tuple(self.points.shape)
        if have[0] > want[0] or have[1] != want[1]:
            raise ValueError(f"measure has points {have}; there is room for {want}.")
        spare = want[0] - have[0]
        self.points.assign(
            np.concatenate([measure.points, np.repeat(measure.points[-1:], spare, 0)])
        )
        self.probabilities.assign(np.concatenate([measure.probabilities, np.zeros(spare)]))

    def __repr__(self) -> str:
        return f"Nodes({self.points.shape[0]} points)"


NUM_NODES = {1: 48, 2: 100}  # nodes that stand for a sample, by dimension; 150 beyond
