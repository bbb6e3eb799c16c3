"""Kernels of terms that GPflow lacks: levels, areas, lines, walks, maps, functions of zero mean."""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import IsotropicStationary, Kernel, SquaredExponential
from gpflow.kernels.base import ActiveDims, NormalizedActiveDims
from gpflow.utilities import positive
from numpy.polynomial.legendre import leggauss
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..measures import Discrete, Gaussian, Measure, Uniform
from .additive import (
    Kernels,
    StackableKernel,
    StackedKernel,
    StackedStationary,
    register_stacked,
    rest_of,
    signature,
    stack_or_alone,
    stack_variances,
)
from .correlation import (
    PROFILES,
    Columns,
    Correlation,
    Dual,
    Fixed,
    Pairs,
    UnknownKernel,
    Values,
    correlation_of,
    kernel_columns,
    only_column,
)


class OneColumn(StackableKernel):
    """``variance c(x, y)`` of the values of one column."""

    @property
    def place(self) -> float:
        """The number on which c depends, if any."""
        return 0.0

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        """c at values that broadcast."""
        raise NotImplementedError

    def pair_correlation(self, pairs: Pairs) -> Correlation:
        """c in numpy, where it has no parameters."""
        return Fixed(np.asarray(self.between(*pairs.column(only_column(self)), self.place)))


class Factor(OneColumn):
    """
    Exchangeable levels: ``k(x, x') = variance`` where the two codes are equal, else 0.

    The GP on a factor with independent normal effects, the random effect of mixed models. Centre
    it with :class:`ZeroMean` and a :class:`~gpflow_gam.measures.Discrete` measure on the levels to
    set it apart from a constant.

    :param variance: prior variance of a level's effect, a scalar.
    :param active_dims: the one column that holds the codes.
    """

    def __init__(self, variance: TensorType = 1.0, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.variance = Parameter(variance, transform=positive())

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        return tf.cast(x == y, x.dtype)


class Indicator(OneColumn):
    """
    ``k(x, x') = 1`` where both codes equal ``level``, else 0; it has no parameters.

    Times a smooth kernel it gives a smooth that acts on one level of a factor only: mgcv's
    ``s(x, by=factor)`` is one such component a level.

    :param level: the code of the level.
    :param active_dims: the one column that holds the codes.
    """

    def __init__(self, level: float, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.level = float(level)

    @property
    def place(self) -> float:
        return self.level

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        return tf.cast(x == place, x.dtype) * tf.cast(y == place, x.dtype)


# --- areas that are neighbours -------------------------------------------------------------------


def structured_covariance(number: int, edges: Sequence[tuple[int, int]]) -> AnyNDArray:
    """The covariance [n, n] of an intrinsic conditional autoregression, of mean variance one."""
    # Scaled in each connected part (Sorbye & Rue 2014); of several parts each has a level of its
    # own (Freni-Sterrantino et al. 2018).
    if not edges:
        return np.eye(number)
    i, j = np.array(edges).T
    adjacency = coo_matrix((np.ones(len(i)), (i, j)), shape=(number, number)).toarray()
    adjacency = np.minimum(adjacency + adjacency.T, 1.0)
    parts, member = connected_components(adjacency, directed=False)
    result = np.zeros((number, number))
    for part in range(parts):
        own = np.flatnonzero(member == part)
        at = np.ix_(own, own)
        if len(own) == 1:
            result[at] = 1.0
            continue
        A = adjacency[at]
        size = len(own)
        # (L + J / n)^-1 - J / n is the pseudo-inverse of a connected graph's Laplacian L
        constant = np.full((size, size), 1.0 / size)
        inverse = np.linalg.inv(np.diag(A.sum(axis=1)) - A + constant) - constant
        field = inverse / np.exp(np.mean(np.log(np.diag(inverse))))
        result[at] = field if parts == 1 else 0.5 * field + 0.5
    return 0.5 * (result + result.T)


class MarkovField(OneColumn):
    """
    Areas that are like their neighbours, and a part of them that is not.

    ``k = variance (B + r I) / (1 + r)``, B the covariance of an intrinsic autoregression, r the
    ``independent`` part: ``BYM2`` (Riebler et al. 2016), whose mixing parameter is ``1 / (1 + r)``.

    :param number: of areas.
    :param edges: pairs of neighbours, numbered from 0.
    :param variance: of an area on average, trainable, a scalar.
    :param independent: r, trainable, a scalar.
    :param active_dims: the column with the area's number; where it is no area's k is zero.
    """

    def __init__(
        self,
        number: int,
        edges: Sequence[tuple[int, int]],
        variance: TensorType = 1.0,
        independent: TensorType = 1.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        self.structured = structured_covariance(number, edges)
        self.variance = Parameter(variance, transform=positive())
        self.independent = Parameter(independent, transform=positive())

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        number, B = len(self.structured), tf.constant(self.structured, x.dtype)
        r = tf.cast(self.independent, x.dtype)
        mixed = (B + r * tf.eye(number, dtype=x.dtype)) / (1.0 + r)
        mixed = tf.pad(mixed, [[0, 1], [0, 1]])  # no area: zero
        i, j = (tf.where((z >= 0) & (z < number), tf.cast(z, tf.int32), number) for z in (x, y))
        return tf.gather(tf.reshape(mixed, [-1]), (number + 1) * i + j)

    def pair_correlation(self, pairs: Pairs) -> Correlation:
        number = len(self.structured)
        a, b = (
            np.where((z >= 0) & (z < number), z, number).astype(int)
            for z in pairs.column(only_column(self))
        )
        same = (a == b) & (a < number)
        return _Mixed(self.independent, np.pad(self.structured, (0, 1))[a, b], same.astype(float))


class _Mixed(Correlation):
    """``(B + r I) / (1 + r)`` of areas, r a parameter."""

    def __init__(self, ratio: Parameter, structured: AnyNDArray, same: AnyNDArray) -> None:
        self._ratio, self._structured, self._same = ratio, structured, same

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        share = 1.0 / (1.0 + float(values(self._ratio)))
        away = self._structured - self._same
        value = self._same + share * away
        if not slopes:
            return Dual(value)
        return Dual(value, [(self._ratio, None, -share * (1.0 - share) * away)])


class CentredLinear(OneColumn):
    """
    ``k(x, x') = variance (x - centre)(x' - centre)``: a slope, normal a priori.

    :param centre: where the line is zero.
    :param variance: of the slope, trainable, a scalar.
    :param active_dims: the column.
    """

    def __init__(
        self, centre: float = 0.0, variance: TensorType = 1.0, active_dims: ActiveDims | None = None
    ) -> None:
        super().__init__(active_dims)
        self.centre = float(centre)
        self.variance = Parameter(variance, transform=positive())

    @property
    def place(self) -> float:
        return self.centre

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        return (x - place) * (y - place)


@register_stacked(OneColumn, Factor, Indicator, CentredLinear)
class StackedOneColumn(StackedKernel):
    """Kernels of one class, and a column each."""

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return () if len(columns) == 1 else None

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        return self._at(X[:, :, None, 0], X2[:, None, :, 0])

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        return self._at(X[..., 0], X[..., 0])

    def _at(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        shape = [-1] + [1] * (x.shape.rank - 1)
        first, places = self.kernels[0], [kernel.place for kernel in self.kernels]
        c = first.between(x, y, tf.reshape(tf.constant(places, x.dtype), shape))
        if isinstance(first, Indicator):
            return c
        return tf.reshape(stack_variances(self.kernels), shape) * c


def _check_points(measure: Measure, least: int) -> None:
    """Raise ValueError unless it is on so many points of one column, whose span is a unit."""
    fine = isinstance(measure, Discrete) and measure.dimension == 1
    if not fine or len(np.unique(measure.nodes()[0][measure.nodes()[1] > 0.0])) < least:
        raise ValueError(
            f"measure must be Discrete, of {least} distinct points or more of one column; got "
            f"{measure!r}."
        )


class RandomWalk(OneColumn):
    """
    Brownian motion of unknown start less its mean under a measure (Matheron 1973).

    ``k(x, y) = variance (m(x) + m(y) - |x - y| - e) / e``, ``m(x) = E_t |x - t|``, ``e = E m(t)``.

    :param measure: under which functions average to zero.
    :param variance: on average under the measure, trainable, a scalar.
    :param level: variance of a constant that is added, over the variance.
    :param active_dims: the column.
    :raises ValueError: a measure of several columns, or of fewer than two points.
    """

    def __init__(
        self,
        measure: Discrete,
        variance: TensorType = 1.0,
        level: float = 0.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        _check_points(measure, 2)
        order = np.argsort(measure.points[:, 0])
        self.measure = measure
        self.level = float(level)
        self.variance = Parameter(variance, transform=positive())
        self._nodes = measure.points[order, 0]
        self._weights = measure.probabilities[order]
        self._spread = float(self._weights @ self._mean(tf.constant(self._nodes)).numpy())

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        means = self._mean(x) + self._mean(y)
        return (means - tf.abs(x - y)) / self._spread - 1.0 + self.level

    def _mean(self, x: tf.Tensor) -> tf.Tensor:
        away = tf.abs(x[..., None] - tf.constant(self._nodes, x.dtype))
        return tf.linalg.matvec(away, tf.constant(self._weights, x.dtype))


_NEAR, _SERIES = 0.5, 12
"""Argument below which a series replaces the closed form (cancellation); number of its terms."""


class IntegratedOU(OneColumn):
    r"""
    Curves whose second derivative is an Ornstein-Uhlenbeck process, less their straight lines.

    With :math:`r = |x - y|` and the generalised covariance (Matheron 1973)

    .. math:: h(r) = e^{-r / \ell} - 1 + \frac{r}{\ell} - \frac{r^2}{2 \ell^2}
              + \frac{r^3}{6 \ell^3}

    whose fourth derivative is that of the Ornstein-Uhlenbeck process, the kernel is ``variance``
    times that of ``f - P f``, with ``P f`` the line that fits f best on the measure, over its
    average on the measure. Between the data it is as smooth as a Matern-5/2 process. For short
    lengthscales it is the prior of cubic smoothing splines (Wahba 1978), and for long ones a
    parabola; beyond the data a curve bends on for about a lengthscale, then goes on along its
    slope, and its standard deviation grows.

    :param measure: on one column.
    :param variance: of a draw about its line, on average over the measure; a scalar.
    :param lengthscales: over which the second derivative is remembered; a scalar.
    :param active_dims: the one column.
    :raises ValueError: a measure of several columns, or of fewer than three points.
    """

    def __init__(
        self,
        measure: Discrete,
        variance: TensorType = 1.0,
        lengthscales: TensorType = 1.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        _check_points(measure, 3)
        self.measure = measure
        nodes, weights = measure.points[:, 0], np.asarray(measure.probabilities)
        self._centre = float(weights @ nodes)
        away = nodes - self._centre
        self._scale = float(np.sqrt(weights @ np.square(away)))
        self._nodes = nodes
        # E_t g(t) and E_t g(t) (t - centre) / scale, of functions g at the nodes
        self._averages = np.stack([weights, weights * away / self._scale], axis=1)
        self.variance = Parameter(variance, transform=positive())
        self.lengthscales = Parameter(lengthscales, transform=positive())

    def _lines(self, x: AnyNDArray) -> AnyNDArray:
        """Orthonormal lines at points [n], [n, 2]."""
        return np.stack([np.ones_like(x), (x - self._centre) / self._scale], axis=1)

    def pair_correlation(self, pairs: Pairs) -> Correlation:
        return _Curves(self, pairs)

    def between(self, x: tf.Tensor, y: tf.Tensor, place: float | tf.Tensor) -> tf.Tensor:
        nodes = tf.constant(self._nodes, x.dtype)
        averages = tf.constant(self._averages, x.dtype)
        inverse = 1.0 / self.lengthscales
        square = _generalised(tf.abs(nodes[:, None] - nodes) * inverse)
        half = tf.linalg.matmul(square, averages)  # E_t h(z, t) and so on, [J, 2]
        whole = tf.linalg.matmul(averages, half, transpose_a=True)
        Phi = tf.constant(self._lines(self._nodes), x.dtype)
        left = -2.0 * tf.reduce_sum(Phi * half, axis=1)
        left += tf.reduce_sum(tf.linalg.matmul(Phi, whole) * Phi, axis=1)
        average = tf.reduce_sum(averages[:, 0] * left)

        def parts(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            lines = tf.stack([tf.ones_like(z), (z - self._centre) / self._scale], axis=-1)
            h = _generalised(tf.abs(z[..., None] - nodes) * inverse)
            return lines, tf.tensordot(h, averages, 1)

        (lines_x, means_x), (lines_y, means_y) = parts(x), parts(y)
        result = _generalised(tf.abs(x - y) * inverse)
        # one product of twos after the other: points broadcast
        result -= tf.reduce_sum(lines_x * means_y, axis=-1) + tf.reduce_sum(
            means_x * lines_y, axis=-1
        )
        result += tf.reduce_sum(tf.tensordot(lines_x, whole, 1) * lines_y, axis=-1)
        return result / average


def _generalised(u: tf.Tensor) -> tf.Tensor:
    """h at distances in lengthscales, any shape, zero and above."""
    near = tf.minimum(u, tf.cast(_NEAR, u.dtype))  # the other branch's gradient has to be finite
    series = tf.ones_like(u)
    for k in range(4 + _SERIES, 4, -1):
        series = 1.0 - near * series / k
    series *= tf.square(tf.square(near)) / 24.0
    far = tf.exp(-u) + (u * (1.0 + u * (u / 6.0 - 0.5)) - 1.0)
    return tf.where(u < _NEAR, series, far)


def _profile(u: AnyNDArray, slopes: bool) -> tuple[AnyNDArray, AnyNDArray | None]:
    """h at distances in lengthscales [n], and its derivative in the lengthscale's logarithm."""
    value = u / 6.0
    value -= 0.5
    value *= u
    value += 1.0
    value *= u
    value -= 1.0
    value += np.exp(-u)
    at = np.flatnonzero(u < _NEAR)
    near = u[at]
    series = np.ones_like(near)
    for k in range(4 + _SERIES, 4, -1):
        series *= near / -k
        series += 1.0
    value[at] = np.square(np.square(near)) / 24.0 * series
    if not slopes:
        return value, None
    return value, u * (value - u * u * u / 6.0)  # h'(u) = u^3 / 6 - h(u)


class _Curves(Correlation):
    """The kernel over its variance, linear in h between points and nodes."""

    def __init__(self, kernel: IntegratedOU, pairs: Pairs) -> None:
        nodes, column = kernel._nodes, only_column(kernel)
        self._scales, self._averages = kernel.lengthscales, kernel._averages
        self._rows = pairs.elementwise
        a, b = pairs.A[:, column], pairs.B[:, column]
        self._lines = kernel._lines(a), kernel._lines(b), kernel._lines(nodes)
        apart = [np.abs(np.subtract(*pairs.column(column)))]
        apart += [np.abs(x[:, None] - nodes) for x in (nodes, a, b)]
        self._sizes = [p.shape for p in apart]
        self._apart = np.concatenate([p.ravel() for p in apart])
        self._ends = np.cumsum([p.size for p in apart])[:-1]

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        h, moved = _profile(self._apart / float(values(self._scales)), slopes)
        value, average = self._combined(h)
        if moved is None:
            return Dual(value / average)
        change, of_average = self._combined(moved)
        value /= average
        return Dual(value, [(self._scales, None, (change - value * of_average) / average)])

    def _combined(self, flat: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The covariance without the lines, and its average on the measure."""
        pairs, square, of_a, of_b = (
            part.reshape(size) for part, size in zip(np.split(flat, self._ends), self._sizes)
        )
        lines_a, lines_b, lines = self._lines
        half = square @ self._averages
        whole = self._averages.T @ half
        means_a, means_b = of_a @ self._averages, of_b @ self._averages
        left, right = lines_a @ whole - means_a, -lines_a
        if self._rows:
            result = pairs + np.sum(left * lines_b + right * means_b, axis=1)
        else:
            result = pairs + left @ lines_b.T + right @ means_b.T
        own = np.sum((lines @ whole - 2.0 * half) * lines, axis=1)
        return result, float(self._averages[:, 0] @ own)


class OnColumns(Kernel):
    """
    ``base`` at mapped inputs, its first columns: here the given ``columns`` as they are.

    :param base: the kernel, of columns numbered from 0.
    :param columns: those of X.
    """

    inner: Columns
    """The columns that the base kernel reads where inputs are mapped."""

    def __init__(self, base: Kernel, columns: Sequence[int]) -> None:
        super().__init__(active_dims=list(columns))
        self.base = base

    def mapped(self, X: tf.Tensor) -> tf.Tensor:
        """Inputs [..., N, d] of the base kernel at ``X``."""
        return X

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self.base(self.mapped(X), None if X2 is None else self.mapped(X2))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.base(self.mapped(X), full_cov=False)

    def pair_correlation(self, pairs: Pairs) -> Correlation:
        """In numpy, at ``pairs`` of rows, over the variance."""
        columns = list(kernel_columns(self) or ())
        own = pairs.mapped(lambda X: np.asarray(self.mapped(tf.constant(X[:, columns]))))
        return correlation_of(self.base, own)


@check_shapes("degrees: [n, 2]", "return: [n, 3]")
def unit_vectors(degrees: AnyNDArray) -> AnyNDArray:
    """Points of the unit sphere."""
    return np.asarray(_points(tf.constant(degrees)))


class OnSphere(OnColumns):
    """
    A stationary kernel of straight distances through a globe of radius one (Gneiting 2013).

    :param base: the kernel.
    :param active_dims: the columns of latitude and longitude, in degrees.
    """

    inner = (0, 1, 2)

    def __init__(self, base: IsotropicStationary, active_dims: Sequence[int] = (0, 1)) -> None:
        super().__init__(base, active_dims)

    def mapped(self, X: tf.Tensor) -> tf.Tensor:
        return _points(X)


def _points(degrees: TensorType) -> tf.Tensor:
    radians = degrees * tf.constant(np.pi / 180.0, degrees.dtype)
    latitude, longitude = radians[..., 0], radians[..., 1]
    level = tf.cos(latitude)
    result = [level * tf.cos(longitude), level * tf.sin(longitude), tf.sin(latitude)]
    return tf.stack(result, axis=-1)


class Warped(OnColumns):
    """
    ``base(w(x), w(y))``, w an increasing function whose slope is linear between knots.

    Where the slope is steep, functions vary quickly (Sampson & Guttorp 1992).

    :param base: the kernel.
    :param knots: in increasing order.
    :param speeds: slopes at the knots, trainable, [knots]; ones if left out.
    :param active_dims: the column.
    """

    inner = (0,)

    def __init__(
        self,
        base: IsotropicStationary,
        knots: Sequence[float],
        speeds: TensorType | None = None,
        active_dims: Sequence[int] = (0,),
    ) -> None:
        super().__init__(base, active_dims)
        self.knots = tuple(float(t) for t in knots)
        start = np.ones(len(self.knots)) if speeds is None else speeds
        self.speeds = Parameter(start, transform=positive())

    def mapped(self, X: tf.Tensor) -> tf.Tensor:
        speeds = tf.convert_to_tensor(self.speeds)
        return tf.linalg.matvec(_integrals(X, self.knots), speeds)[..., None]

    def pair_correlation(self, pairs: Pairs) -> Correlation:
        if type(self.base) not in PROFILES:
            raise UnknownKernel
        return _WarpedCorrelation(self, pairs)


def integrated_hats(x: AnyNDArray, knots: Sequence[float]) -> AnyNDArray:
    """Integrals [n, J] from the first knot to x [n] of the hats that are one at each knot."""
    return np.asarray(_integrals(tf.constant(x[:, None]), knots))


def _integrals(X: tf.Tensor, knots: Sequence[float]) -> tf.Tensor:
    """:func:`integrated_hats` [..., n, J] of X [..., n, 1]."""
    t = tf.constant(knots, X.dtype)
    h = t[1:] - t[:-1]
    u = tf.clip_by_value(X - t[:-1], tf.zeros_like(h), h)
    right, none = tf.square(u) / (2.0 * h), tf.zeros_like(X)
    left = u - right
    below, above = tf.minimum(X - t[0], 0.0), tf.maximum(X - t[-1], 0.0)
    result = tf.concat([left, none], axis=-1) + tf.concat([none, right], axis=-1)
    ends = [below, *([none] * (len(knots) - 2)), above]
    return result + tf.concat(ends, axis=-1)


class _WarpedCorrelation(Correlation):
    """A stationary correlation at distances that are linear in speeds."""

    level = True

    def __init__(self, kernel: Warped, pairs: Pairs) -> None:
        column, rows = only_column(kernel), pairs.elementwise
        a, b = (integrated_hats(X[:, column], kernel.knots) for X in (pairs.A, pairs.B))
        self._kernel = kernel
        self._apart = a - b if rows else a[:, None, :] - b  # [n, m, J], or [n, J]

    def __call__(self, values: Values, slopes: bool, deficit: bool = False) -> Dual:
        kernel = self._kernel
        speeds = np.asarray(values(kernel.speeds))
        scale = kernel.base.lengthscales
        length = float(np.ravel(values(scale))[0])
        profile = PROFILES[type(kernel.base)]
        unit = length / profile.scale
        distance = (self._apart @ speeds) / unit
        value, slope = profile.array(np.square(distance), slopes, deficit)
        if slope is None:
            return Dual(value)
        # dk / d log speed_j = 2 d (d_j speed_j / unit) dk/ds2, and of the length -2 d^2 dk/ds2
        along = 2.0 * distance * slope
        own = [
            (kernel.speeds, j, along * (self._apart[..., j] * (speeds[j] / unit)))
            for j in range(len(speeds))
        ]
        return Dual(value, [(scale, None, -along * distance), *own])


@register_stacked(OnSphere, Warped)
class StackedMapped(StackedKernel):
    """Stationary kernels of mapped inputs, whose variances no map changes."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self._inner = stack_or_alone([k.base for k in kernels], kernels[0].inner)
        self.level = self._inner.level

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return signature(kernel.base, kernel.inner)

    def _mapped(self, X: tf.Tensor) -> tf.Tensor:
        if len(self.kernels) == 1:  # at inputs of any leading length
            return self.kernels[0].mapped(X)
        return tf.stack([k.mapped(X[g]) for g, k in enumerate(self.kernels)])

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        mapped = self._mapped(X)
        other = mapped if X2 is X else self._mapped(X2)
        return self._inner.K(mapped, other, **rest_of(self._inner, rest))

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        return self._inner.K_diag(X, **rest_of(self._inner, rest))


# --- draws that integrate to zero under a measure -------------------------------------------------


class Embedding(abc.ABC):
    """The means of G kernels under their measures less their ``level``: digits stay."""

    total: tf.Tensor  # E_{t,u} g(t, u) - c, [G, 1]

    @abc.abstractmethod
    def mean(self, X: tf.Tensor) -> tf.Tensor:
        """E_t g(x, t) - c, [G, N], for X [G, N, d]."""


class _Nodes(Embedding):
    """By the measure's nodes: exact for discrete measures, quadrature for others."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        nodes, weights = zip(*(m.nodes() for m in measures))
        self.base = base
        self.nodes = tf.stack([tf.cast(x, dtype) for x in nodes])
        self.weights = tf.stack([tf.cast(w, dtype) for w in weights])
        inner = self.mean(self.nodes)
        self.total = tf.reduce_sum(self.weights * inner, axis=-1, keepdims=True)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(self.base.K(X, self.nodes, **rest_of(self.base)), self.weights)


# which are exact to rounding up to the reach of each correlation
_PLACES, _SHARES = leggauss(24)  # type: ignore[no-untyped-call]
_PLACES, _SHARES = 0.5 * (_PLACES + 1.0), 0.5 * _SHARES


class _Interval(Embedding):
    """Stationary kernels under Uniform[a, b], by integrals over distances, smooth on each side."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        assert isinstance(base, StackedStationary)
        ends = [(m.lower, m.upper) for m in measures if isinstance(m, Uniform)]
        self.a, self.b = (tf.constant(e, dtype=dtype)[:, None] for e in zip(*ends))
        self.profile = PROFILES[type(base.kernels[0])]
        self.variance = base.variances
        self.unit = base.lengthscales / self.profile.scale  # [G, 1]
        self.width = (self.b - self.a) / self.unit
        pairs = self._integral(self.width, linear=True)
        self.total = 2.0 * self.variance * pairs / tf.square(self.width)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        x, once = X[..., 0], self._integral
        both = once((x - self.a) / self.unit) + once((self.b - x) / self.unit)
        return self.variance / self.width * both

    def _integral(self, end: tf.Tensor, linear: bool = False) -> tf.Tensor:
        """Of ``g - 1`` over distances from 0 to an end of either sign, or times ``end - s``."""
        most = tf.constant(self.profile.reach, end.dtype)
        inner = tf.clip_by_value(end, -most, most)  # beyond, g - 1 is minus one
        s = inner[..., None] * tf.constant(_PLACES, end.dtype)
        deficit = self.profile.tensor(tf.square(s), deficit=True)
        rest = end - inner
        if linear:
            deficit, rest = deficit * (end[..., None] - s), 0.5 * tf.square(rest)
        return inner * tf.linalg.matvec(deficit, tf.constant(_SHARES, end.dtype)) - rest


class _SquaredExponentialGaussian(Embedding):
    """The squared exponential under N(m, d^2): a product of normal densities."""

    def __init__(self, base: StackedKernel, measures: Sequence[Measure], dtype: tf.DType) -> None:
        assert isinstance(base, StackedStationary)
        moments = [(m.mean, m.sd) for m in measures if isinstance(m, Gaussian)]
        self.centre, sd = (tf.constant(v, dtype=dtype)[:, None] for v in zip(*moments))
        self.variance = base.variances
        square = tf.square(base.lengthscales)
        self.spread = square + tf.square(sd)
        self.log_height = -0.5 * tf.math.log1p(tf.square(sd) / square)
        log_total = -0.5 * tf.math.log1p(2.0 * tf.square(sd) / square)
        self.total = self.variance * tf.math.expm1(log_total)

    def mean(self, X: tf.Tensor) -> tf.Tensor:
        away = tf.square(X[..., 0] - self.centre) / (2.0 * self.spread)
        return self.variance * tf.math.expm1(self.log_height - away)


_CLOSED_FORMS: dict[tuple[type[Kernel], type[Measure]], type[Embedding]] = {
    **{(kernel, Uniform): _Interval for kernel in PROFILES},
    (SquaredExponential, Gaussian): _SquaredExponentialGaussian,
}


def closed_form(kernel: Kernel, measure: Measure) -> type[Embedding] | None:
    """The class that has this pair in closed form, None where it goes by nodes."""
    return _CLOSED_FORMS.get((type(kernel), type(measure)))


class ZeroMean(StackableKernel):
    r"""
    ``base`` conditioned on a zero integral under ``measure``.

    .. math:: s(x, y) = g(x, y) - \frac{E_t g(x, t)\, E_t g(y, t)}{E_{t,u}\, g(t, u)}

    Main effects with such kernels are orthogonal to a constant, and products of them on different
    inputs to both, so that the components of a sum are identifiable (Durrande, Ginsbourger,
    Roustant & Carraro 2013, "ANOVA kernels and RKHS of zero mean functions"; eq. 8 of Adam et al.
    2018). Integrals are exact to rounding for the squared exponential and the Matern kernels under
    a uniform measure and for the squared exponential under a Gaussian one; every other pair goes by
    the measure's nodes.

    :param base: the kernel g; its ``active_dims`` are this kernel's.
    :param measure: the measure, on as many columns as ``base`` reads.
    :param extrapolate: whether the kernel may be used outside the measure's bounds, where it goes
        on by the same formula. By default it refuses to: draws there are in no way centred, and
        such inputs are mostly an error in the bounds.
    :raises ValueError: where ``base`` and ``measure`` are of different dimension, ``base`` does
        not say which columns it reads, or, when it is evaluated, inputs outside the bounds (in a
        graph ``tf.errors.InvalidArgumentError``; XLA drops the check).
    """

    def __init__(self, base: Kernel, measure: Measure, *, extrapolate: bool = False) -> None:
        super().__init__()
        columns = kernel_columns(base)
        if columns is None:
            raise ValueError(
                f"base {type(base).__name__} reads every column; give it active_dims=[...], so "
                "that the measure is on the right ones."
            )
        if len(columns) != measure.dimension:
            raise ValueError(
                f"measure {measure!r} is on {measure.dimension} column(s), base "
                f"{type(base).__name__} reads {len(columns)}."
            )
        self.base = base
        self.measure = measure
        self.extrapolate = extrapolate

    @property
    def active_dims(self) -> NormalizedActiveDims:
        # not the base's: a product of kernels slices for itself, the measure must not
        columns = kernel_columns(self.base)
        return np.array(columns, dtype=np.int32)

    @active_dims.setter
    def active_dims(self, value: ActiveDims) -> None:
        self.base.active_dims = value  # type: ignore[assignment]


@register_stacked(ZeroMean)
class StackedZeroMean(StackedKernel):
    """Zero-mean kernels over stacked bases."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.base = stack_or_alone([k.base for k in kernels], columns)
        self._measures = [k.measure for k in kernels]
        self._made: Embedding | None = None
        self._last: tuple[tf.Tensor, tf.Tensor] | None = None

    def _mean(self, X: tf.Tensor) -> tf.Tensor:
        """The embedding's mean at X; covariances and variances are asked one after the other."""
        if self._last is None or self._last[0] is not X:
            self._last = X, self._embed(X.dtype).mean(X)
        return self._last[1]

    def _embed(self, dtype: tf.DType) -> Embedding:
        if self._made is None:
            form = closed_form(self.base.kernels[0], self._measures[0]) or _Nodes
            self._made = form(self.base, self._measures, dtype)  # type: ignore[call-arg]
        return self._made

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        base = signature(kernel.base, columns)
        if base is None:
            return None
        form: Hashable = closed_form(kernel.base, kernel.measure)
        if form is None:
            form = int(kernel.measure.nodes()[1].shape[0])
        return base, form

    def K(self, X: tf.Tensor, X2: tf.Tensor, rest: bool = False) -> tf.Tensor:
        same = X2 is X
        X = self._inside(X)
        X2 = X if same else self._inside(X2)
        embedding, level = self._embed(X.dtype), self.base.level
        h = self.base.K(X, X2, **rest_of(self.base))
        mean, mean2 = self._mean(X), self._mean(X2)
        if level is None:
            scaled = tf.math.divide_no_nan(mean, embedding.total)  # a variance may be zero
            return h - scaled[:, :, None] * mean2[:, None, :]
        # With g = c + h: s = h + [c (E h - E_t h(x, t) - E_t h(y, t)) - E_t h(x, t) E_t h(y, t)]
        # / (c + E h), where what is of order c has cancelled on paper rather than in rounding.
        # (Slices, which Grappler does not look through: it would round otherwise than eager code,
        # and what is served is the model's to the last bit.)
        whole = level + embedding.total
        share = tf.math.divide_no_nan(level, whole)
        along = share * (embedding.total - mean)
        across = -(share + tf.math.divide_no_nan(mean, whole))
        return h + along[:, :, None] + across[:, :, None] * mean2[:, None, :]

    def K_diag(self, X: tf.Tensor, rest: bool = False) -> tf.Tensor:
        X = self._inside(X)
        embedding, level = self._embed(X.dtype), self.base.level
        h, mean = self.base.K_diag(X, **rest_of(self.base)), self._mean(X)
        if level is None:
            return h - tf.math.divide_no_nan(tf.square(mean), embedding.total)
        whole = level + embedding.total
        inner = level * (embedding.total - 2.0 * mean) - tf.square(mean)
        return tf.maximum(h + tf.math.divide_no_nan(inner, whole), tf.zeros([], X.dtype))

    def _inside(self, X: tf.Tensor) -> tf.Tensor:
        """X, once it is known to be within the measures' bounds."""
        bounds = [None if k.extrapolate else k.measure.bounds for k in self.kernels]
        if not any(bounds):
            return X
        free = np.full(X.shape[-1], np.inf)
        lower, upper = (np.stack(ends) for ends in zip(*(b or (-free, free) for b in bounds)))
        slack = 1e-6 * (upper - lower)  # inputs may have been rounded to single precision
        low = tf.constant((lower - slack)[:, None, :], X.dtype)
        high = tf.constant((upper + slack)[:, None, :], X.dtype)
        fine = tf.reduce_all((low <= X) & (high >= X))
        least, greatest = tf.reduce_min(X, axis=1), tf.reduce_max(X, axis=1)
        problem = f"inputs reach outside the bounds of {', '.join(map(repr, self._measures))}: from"
        advice = "; widen the measure, or pass extrapolate=True to ZeroMean."
        if tf.executing_eagerly():
            if not fine:
                low, high = (np.ravel(a).tolist() for a in (least, greatest))
                raise ValueError(f"{problem} {low} to {high}{advice}")
            return X
        message = [problem, least, "to", greatest, advice]
        with tf.control_dependencies([tf.debugging.Assert(fine, message, 64)]):
            return tf.identity(X)
