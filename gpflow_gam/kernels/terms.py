"""Kernels of terms that GPflow lacks: levels, areas, lines, walks, and maps of inputs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import AnyNDArray, Parameter, TensorType
from gpflow.kernels import IsotropicStationary, Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..measures import Discrete
from .additive import (
    Kernels,
    StackableKernel,
    StackedKernel,
    StackedOnColumn,
    fill,
    register_stacked,
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
    Values,
    correlation_of,
    differences,
    kernel_columns,
    only_column,
    products,
    register_correlation,
)


class Factor(StackableKernel):
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


class Indicator(StackableKernel):
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


@register_stacked(Factor)
class StackedFactor(StackedOnColumn):
    """Exchangeable levels of several factors."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_variances(kernels)

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        same = tf.equal(X[..., :, None, 0], X2[..., None, :, 0])
        return self.variances[:, :, None] * tf.cast(same, X.dtype)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return fill(self.variances, X)


@register_stacked(Indicator)
class StackedIndicator(StackedOnColumn):
    """Indicators of several levels."""

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self.K_diag(X)[:, :, None] * self.K_diag(X2)[:, None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        levels = tf.constant([[k.level] for k in self.kernels], dtype=X.dtype)
        return tf.cast(tf.equal(X[..., 0], levels), X.dtype)


@register_correlation(Factor)
def _factor(kernel: Factor, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    same = differences(A[:, column], B[:, column], elementwise) == 0.0
    return Fixed(same.astype(A.dtype))


@register_correlation(Indicator)
def _indicator(kernel: Indicator, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    on, other = ((x[:, column] == kernel.level).astype(x.dtype) for x in (A, B))
    return Fixed(products(on, other, elementwise))


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


class MarkovField(Kernel):
    """
    Areas that are like their neighbours, and a part of them that is not.

    ``k = variance (B + r I) / (1 + r)``, B the covariance of an intrinsic autoregression, r the
    ``independent`` part: ``BYM2`` (Riebler et al. 2016), whose mixing parameter is ``1 / (1 + r)``.

    :param number: of areas.
    :param edges: pairs of neighbours, numbered from 0.
    :param variance: of an area on average, trainable, a scalar.
    :param independent: r, trainable, a scalar.
    :param active_dims: the column with the area's number.
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

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        if X2 is None:
            codes = self._codes(X)
            rows = tf.gather(self._covariance(X.dtype), codes)
            return tf.gather(rows, codes, axis=-1, batch_dims=codes.shape.rank - 1)
        one, other = tf.reshape(self._codes(X), [-1]), tf.reshape(self._codes(X2), [-1])
        result = tf.gather(tf.gather(self._covariance(X.dtype), one), other, axis=1)
        return tf.reshape(result, tf.concat([tf.shape(X)[:-1], tf.shape(X2)[:-1]], axis=0))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return tf.gather(tf.linalg.diag_part(self._covariance(X.dtype)), self._codes(X))

    def _codes(self, X: TensorType) -> tf.Tensor:
        return tf.cast(X[..., 0], tf.int32)

    def _covariance(self, dtype: tf.DType) -> tf.Tensor:
        B = tf.constant(self.structured, dtype)
        r = tf.cast(self.independent, dtype)
        mixed = (B + r * tf.eye(len(self.structured), dtype=dtype)) / (1.0 + r)
        return tf.cast(self.variance, dtype) * mixed


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


@register_correlation(MarkovField)
def _field(kernel: MarkovField, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    a, b = A[:, column].astype(int), B[:, column].astype(int)
    same = (differences(a, b, elementwise) == 0).astype(A.dtype)
    structured = kernel.structured
    between = structured[a, b] if elementwise else structured[np.ix_(a, b)]
    return _Mixed(kernel.independent, between, same)


class CentredLinear(StackableKernel):
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


@register_stacked(CentredLinear)
class StackedCentredLinear(StackedOnColumn):
    """Several lines."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self.variances = stack_variances(kernels)

    def _away(self, X: tf.Tensor) -> tf.Tensor:
        return X[..., 0] - tf.constant([[k.centre] for k in self.kernels], dtype=X.dtype)

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self.variances[:, :, None] * self._away(X)[:, :, None] * self._away(X2)[:, None, :]

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self.variances * tf.square(self._away(X))


@register_correlation(CentredLinear)
def _line(kernel: CentredLinear, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    return Fixed(products(A[:, column] - kernel.centre, B[:, column] - kernel.centre, elementwise))


def _pairs(x: tf.Tensor, y: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
    """Points x [..., N] and y [...2, N2], or those of x themselves, so that they broadcast."""
    if y is None:
        return x[..., :, None], x[..., None, :]
    return tf.reshape(x, tf.concat([tf.shape(x), tf.ones([tf.rank(y)], tf.int32)], axis=0)), y


class RandomWalk(Kernel):
    """
    Brownian motion of unknown start less its mean under a measure (Matheron 1973).

    ``k(x, y) = variance (m(x) + m(y) - |x - y| - e) / e``, ``m(x) = E_t |x - t|``, ``e = E m(t)``.

    :param measure: under which functions average to zero.
    :param variance: on average under the measure, trainable, a scalar.
    :param level: variance of a constant that is added, over the variance.
    :param active_dims: the column.
    """

    def __init__(
        self,
        measure: Discrete,
        variance: TensorType = 1.0,
        level: float = 0.0,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        order = np.argsort(measure.points[:, 0])
        self.measure = measure
        self.level = float(level)
        self.variance = Parameter(variance, transform=positive())
        self._nodes = measure.points[order, 0]
        self._weights = measure.probabilities[order]
        self._spread = float(self._weights @ self._mean(tf.constant(self._nodes)).numpy())

    def correlation(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """The kernel over its variance [...], of points ``x`` and ``y`` that broadcast."""
        means = self._mean(x) + self._mean(y)
        return (means - tf.abs(x - y)) / self._spread - 1.0 + self.level

    def _mean(self, x: tf.Tensor) -> tf.Tensor:
        away = tf.abs(x[..., None] - tf.constant(self._nodes, x.dtype))
        return tf.linalg.matvec(away, tf.constant(self._weights, x.dtype))

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        pairs = _pairs(X[..., 0], None if X2 is None else X2[..., 0])
        return self.variance * self.correlation(*pairs)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.variance * self.correlation(X[..., 0], X[..., 0])


@register_correlation(RandomWalk)
def _walk(kernel: RandomWalk, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    a, b = tf.constant(A[:, column]), tf.constant(B[:, column])
    return Fixed(kernel.correlation(a if elementwise else a[:, None], b).numpy())


_NEAR, _SERIES = 0.5, 12
"""Argument below which a series replaces the closed form (cancellation); number of its terms."""


class IntegratedOU(Kernel):
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
        if measure.dimension != 1 or len(measure.points) < 3:
            raise ValueError(
                f"measure must be of three points or more of one column; got {measure}."
            )
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

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self._covariance(*_pairs(X[..., 0], None if X2 is None else X2[..., 0]))

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self._covariance(X[..., 0], X[..., 0])

    def _covariance(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Covariances of points that broadcast."""
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
        return self.variance * result / average


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

    def __init__(
        self, kernel: IntegratedOU, a: AnyNDArray, b: AnyNDArray, elementwise: bool
    ) -> None:
        nodes = kernel._nodes
        self._scales, self._averages, self._rows = (
            kernel.lengthscales,
            kernel._averages,
            elementwise,
        )
        self._lines = kernel._lines(a), kernel._lines(b), kernel._lines(nodes)
        pairs = [np.abs(a - b) if elementwise else np.abs(a[:, None] - b)]
        pairs += [np.abs(x[:, None] - nodes) for x in (nodes, a, b)]
        self._sizes = [p.shape for p in pairs]
        self._apart = np.concatenate([p.ravel() for p in pairs])
        self._ends = np.cumsum([p.size for p in pairs])[:-1]

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


@register_correlation(IntegratedOU)
def _curve(kernel: IntegratedOU, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    return _Curves(kernel, A[:, column], B[:, column], elementwise)


class OnColumns(Kernel):
    """``base`` on the given ``columns``, which it sees numbered from 0."""

    def __init__(self, base: Kernel, columns: Sequence[int]) -> None:
        super().__init__(active_dims=list(columns))
        self.base = base

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        return self.base(X, X2)

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        return self.base(X, full_cov=False)


@register_correlation(OnColumns)
def _moved(kernel: OnColumns, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    columns = list(kernel_columns(kernel) or ())
    return correlation_of(kernel.base, A[:, columns], B[:, columns], elementwise)


@check_shapes("degrees: [n, 2]", "return: [n, 3]")
def unit_vectors(degrees: AnyNDArray) -> AnyNDArray:
    """Points of the unit sphere."""
    return np.asarray(_points(tf.constant(degrees)))


class OnSphere(StackableKernel):
    """
    A stationary kernel of straight distances through a globe of radius one (Gneiting 2013).

    :param base: the kernel.
    :param active_dims: the columns of latitude and longitude, in degrees.
    """

    inner: ClassVar[Columns] = (0, 1, 2)
    """Columns that the base kernel reads."""

    def __init__(self, base: IsotropicStationary, active_dims: Sequence[int] = (0, 1)) -> None:
        super().__init__(active_dims=list(active_dims))
        self.base = base

    def mapped(self, X: tf.Tensor) -> tf.Tensor:
        """Inputs [..., N, 3] of the base kernel at ``X`` [..., N, 2]."""
        return _points(X)


def _points(degrees: TensorType) -> tf.Tensor:
    radians = degrees * tf.constant(np.pi / 180.0, degrees.dtype)
    latitude, longitude = radians[..., 0], radians[..., 1]
    level = tf.cos(latitude)
    result = [level * tf.cos(longitude), level * tf.sin(longitude), tf.sin(latitude)]
    return tf.stack(result, axis=-1)


@register_correlation(OnSphere)
def _globe(kernel: OnSphere, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    columns = list(kernel_columns(kernel) or ())
    a, b = (unit_vectors(X[:, columns]) for X in (A, B))
    return correlation_of(kernel.base, a, b, elementwise)


class Warped(StackableKernel):
    """
    ``base(w(x), w(y))``, w an increasing function whose slope is linear between knots.

    Where the slope is steep, functions vary quickly (Sampson & Guttorp 1992).

    :param base: the kernel.
    :param knots: in increasing order.
    :param speeds: slopes at the knots, trainable, [knots]; ones if left out.
    :param active_dims: the column.
    """

    inner: ClassVar[Columns] = (0,)
    """Columns that the base kernel reads."""

    def __init__(
        self,
        base: IsotropicStationary,
        knots: Sequence[float],
        speeds: TensorType | None = None,
        active_dims: ActiveDims | None = None,
    ) -> None:
        super().__init__(active_dims)
        self.base = base
        self.knots = tuple(float(t) for t in knots)
        start = np.ones(len(self.knots)) if speeds is None else speeds
        self.speeds = Parameter(start, transform=positive())

    def mapped(self, X: tf.Tensor) -> tf.Tensor:
        """Inputs of the base kernel at ``X``, [..., N, 1] each."""
        speeds = tf.convert_to_tensor(self.speeds)
        return tf.linalg.matvec(_integrals(X, self.knots), speeds)[..., None]


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

    def __init__(self, kernel: Warped, apart: AnyNDArray) -> None:
        self._kernel, self._apart = kernel, apart  # [n, m, J], or [n, J]

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


@register_correlation(Warped)
def _warp(kernel: Warped, A: AnyNDArray, B: AnyNDArray, elementwise: bool) -> Correlation:
    column = only_column(kernel)
    a, b = (integrated_hats(X[:, column], kernel.knots) for X in (A, B))
    return _WarpedCorrelation(kernel, a - b if elementwise else a[:, None, :] - b[None, :, :])


@register_stacked(OnSphere, Warped)
class StackedMapped(StackedKernel):
    """Stationary kernels of mapped inputs, whose variances no map changes."""

    def __init__(self, kernels: Kernels, columns: Columns) -> None:
        super().__init__(kernels, columns)
        self._inner = stack_or_alone([k.base for k in kernels], kernels[0].inner)

    @classmethod
    def signature(cls, kernel: Kernel, columns: Columns) -> Hashable | None:
        return signature(kernel.base, kernel.inner)

    def _both(self, X: tf.Tensor, X2: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The inputs of the base kernels."""
        mapped = self._mapped(X)
        return mapped, mapped if X2 is X else self._mapped(X2)

    def _mapped(self, X: tf.Tensor) -> tf.Tensor:
        if len(self.kernels) == 1:  # at inputs of any leading length
            return self.kernels[0].mapped(X)
        return tf.stack([k.mapped(X[g]) for g, k in enumerate(self.kernels)])

    def K(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self._inner.K(*self._both(X, X2))

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        return self._inner.K_diag(X)

    @property
    def level(self) -> tf.Tensor | None:
        return self._inner.level

    def K_rest(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        return self._inner.K_rest(*self._both(X, X2))

    def K_diag_rest(self, X: tf.Tensor) -> tf.Tensor:
        return self._inner.K_diag_rest(X)
