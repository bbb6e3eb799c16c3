"""Posteriors of additive models some of whose components have a shape."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_jitter

from ..covariances import Features
from ..kernels.shaped import shaped_part
from ..kernels.tangents import KernelTangents
from ..layout import BlockLayout
from ..variational import WhitenedGaussian
from .features import NEGLIGIBLE
from .inducing import InducingMoments
from .projection import Projection
from .sparse import SparseAdditivePosterior

_BANK = 2000
"""Draws that a graph holds."""


class ShapedMoments(InducingMoments):
    """
    Moments of inducing values projected on the shapes of components.

    The mean is the projected one, and covariances are those of projected draws around it. All
    components are projected together: what is correlated with one that has a shape goes along.

    :param free: the moments without shapes.
    :param number: of the draws behind covariances.
    """

    def __init__(self, free: InducingMoments, number: int = 2000) -> None:
        self._free = free
        self._shaped = shaped_components(free)
        found = [self._projection(i) for i in range(free.mean.shape[1])]
        super().__init__(
            free._source,
            free.inducing_variable,
            np.stack([p.mean for p in found], axis=1),
            np.stack([p.covariance(number) for p in found]),
            values=free._values,
            roots=free.roots,
        )
        self._projections = found

    @property
    def components(self) -> tuple[int, ...]:
        """Places of the components that have a shape."""
        names = self._source.names
        return tuple(names.index(name) for name in self._shaped)

    def inequalities(self, output: int, names: Sequence[str] | None = None) -> AnyNDArray:
        """
        What is not negative of V, [n, P].

        :param output: of the predictor.
        :param names: of components with a shape; all by default.
        """
        free = self._free
        own = [
            name
            for name in (self._shaped if names is None else names)
            if free.entering([name])[0, output]
        ]
        rows = [self._shaped[name] for name in own]
        return np.concatenate(rows) if rows else np.zeros((0, len(free.mean)))

    def _projection(self, output: int, names: Sequence[str] | None = None) -> Projection:
        free, A = self._free, self.inequalities(output, names)
        return Projection(free.mean[:, output], free.covariance[output], A)

    def settled(self, name: str) -> AnyNDArray:
        """
        Degrees of freedom of a component for each output, [L].

        The trace of how its estimate follows the data (Meyer & Woodroofe 2000): what inequalities
        hold fast follows none.

        :param name: of the component.
        """
        block, free = self.block(name), self._free.covariance
        smoothers = [p.kept @ (np.eye(len(S)) - S) for p, S in zip(self._projections, free)]
        return np.array([np.trace(F[block, block]) for F in smoothers])

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        rng = np.random.default_rng(seed)
        draws = np.stack([p.sample(num_samples, rng) for p in self._projections], axis=-1)
        if self._source.members is None:
            return draws
        return draws * np.repeat(self.entering(), self.inducing_variable.sizes, axis=0)

    # what jitter leaves open has no shape, and is nothing

    def open_pivots(self, name: str, X: AnyNDArray) -> list[int]:
        return [] if name in self._shaped else super().open_pivots(name, X)

    def open_factor(
        self, name: str, X: AnyNDArray, phi: AnyNDArray, prior: AnyNDArray, pivots: Sequence[int]
    ) -> tuple[AnyNDArray, AnyNDArray]:
        if name in self._shaped:
            return np.zeros((len(X), 0)), np.zeros(len(X))
        return super().open_factor(name, X, phi, prior, pivots)


def shape_tail(free: InducingMoments, name: str, output: int) -> float:
    """
    How often noise alone is as far from a component's shape as its estimate without is.

    :param free: moments without shapes.
    :param name: of the component.
    :param output: of the predictor.
    """
    if not free.entering([name])[0, output]:
        return 1.0
    rows = shaped_components(free)[name]
    return Projection(free.mean[:, output], free.covariance[output], rows).tail()


def shaped_components(
    moments: InducingMoments, tangents: Mapping[str, KernelTangents] | None = None
) -> dict[str, AnyNDArray]:
    """
    What is not negative of inducing values V, rows [n_c, P], of components with a shape.

    :param moments: of V.
    :param tangents: what any moments of this kernel made of :func:`acting_nodes`.
    """
    if tangents is None:
        tangents = {name: moments.tangents(name, X) for name, X in acting_nodes(moments).items()}
    found = {}
    for name, own in tangents.items():
        part = shaped_part(moments._source[name])
        assert part is not None
        rows = np.zeros((len(part.kernel.cone), len(moments.mean)))
        phi, _ = moments.features_and_prior(name, own)
        rows[:, moments.block(name)] = part.kernel.cone @ phi.T
        found[name] = rows
    return found


def acting_nodes(moments: InducingMoments) -> dict[str, AnyNDArray]:
    """
    Rows of X [J, D] at the nodes of each component with a shape.

    :param moments: whose components.
    """
    parts = {name: shaped_part(kernel) for name, kernel in moments._source.components.items()}
    return {name: part.acting_nodes() for name, part in parts.items() if part is not None}


class ShapedValues:
    """
    Inducing values, all of whose components enter all outputs, projected on shapes.

    :param mean: of V, [P, L], in the components' order.
    :param covariance: of V, [L, P, P].
    :param rows: what is not negative of V, [n_c, P], by the component's place.
    """

    def __init__(
        self, mean: AnyNDArray, covariance: AnyNDArray, rows: Mapping[int, AnyNDArray]
    ) -> None:
        self._free, self._rows = (mean, covariance), dict(rows)
        whole = np.concatenate(list(self._rows.values()))
        self._projections = [Projection(m, S, whole) for m, S in zip(mean.T, covariance)]
        self.mean: AnyNDArray = np.stack([p.mean for p in self._projections], axis=1)

    @functools.cached_property
    def covariance(self) -> AnyNDArray:
        """Of projected draws around the projected mean, [L, P, P]."""
        return np.stack([p.covariance(_BANK) for p in self._projections])

    @property
    def components(self) -> tuple[int, ...]:
        """Places of the components that have a shape."""
        return tuple(self._rows)

    def sample(self, num_samples: int, seed: int) -> AnyNDArray:
        """
        Projected draws of V, [S, P, L].

        :param num_samples: S.
        :param seed: equal seeds give equal draws.
        """
        rng = np.random.default_rng(seed)
        return np.stack([p.sample(num_samples, rng) for p in self._projections], axis=-1)

    def tail(self, component: int, output: int) -> float:
        """
        As :func:`shape_tail`.

        :param component: its place.
        :param output: of the predictor.
        """
        mean, covariance = self._free
        return Projection(mean[:, output], covariance[output], self._rows[component]).tail()


class ShapedPosterior(SparseAdditivePosterior):
    """
    As :class:`~gpflow_gam.posteriors.SparseAdditivePosterior`, whose draws have the shapes.

    q(V) is the Gaussian of the projected moments; draws are projected ones. They are made in numpy;
    a graph holds 2000 of them, and draws from these.

    :param moments: of the components.
    :param arguments: as its base's.
    """

    def __init__(
        self, *arguments: Any, moments: ShapedMoments | ShapedValues, **options: Any
    ) -> None:
        self._moments = moments
        # what jitter leaves open of a constant is drawn for each row by itself
        self._negligible = max(NEGLIGIBLE, 2.0 * default_jitter())
        super().__init__(*arguments, **options)

    def _sample_inducing(
        self, q: WhitenedGaussian, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        if not tf.executing_eagerly():
            return tf.gather(self._bank(q), self._chosen(num_samples, seed))
        entropy = None if seed is None else np.ravel(np.asarray(seed)).tolist()
        (own,) = np.random.SeedSequence(entropy).generate_state(1)
        draws = self._moments.sample(int(num_samples), int(own))
        return tf.constant(draws[:, q.layout.order])

    def _bank(self, q: WhitenedGaussian) -> tf.Tensor:
        """The draws that a graph holds, [B, P, L]."""
        return tf.constant(self._moments.sample(_BANK, 0)[:, q.layout.order])

    def _chosen(self, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None) -> tf.Tensor:
        if seed is None:
            return tf.random.uniform([num_samples], 0, _BANK, tf.int32)
        return tf.random.stateless_uniform([num_samples], seed, 0, _BANK, tf.int32)

    def _open_root(self, layout: BlockLayout, features: Features, X: tf.Tensor) -> tf.Tensor:
        # what jitter leaves open has no shape, nor would the sum have one with it
        root = super()._open_root(layout, features, X)
        prior = tf.linalg.diag_part(self.blocks.prior_components(X))
        left = tf.reduce_max(tf.reduce_sum(tf.square(root), axis=-1), axis=-1)
        open_ = left > self._negligible * tf.reduce_max(prior, axis=-1)
        free = [i not in self._moments.components for i in range(self.kernel.num_components)]
        return tf.where((open_ & tf.constant(free))[:, None, None], root, tf.zeros_like(root))
