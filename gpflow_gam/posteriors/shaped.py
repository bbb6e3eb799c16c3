"""The posterior of an additive model some of whose components have a shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ..covariances import Features
from ..layout import BlockLayout
from ..variational import WhitenedGaussian
from .sparse import SparseAdditivePosterior
from .truncated import Truncation


class ShapedPosterior(SparseAdditivePosterior):
    """
    As :class:`~gpflow_gam.posteriors.SparseAdditivePosterior`, whose draws have the shapes.

    q(V) has the moments of the Gaussian that is conditioned on the shapes, up to what expectation
    propagation leaves; draws are of that Gaussian itself. They are made in numpy, and in no graph.

    :param truncation: gives what draws are conditioned on, once some are wanted.
    :param arguments: as its base's.
    """

    def __init__(
        self, *arguments: Any, truncation: Callable[[], Truncation], **options: Any
    ) -> None:
        self._truncation = truncation
        super().__init__(*arguments, **options)

    def _sample_inducing(
        self, q: WhitenedGaussian, num_samples: int | tf.Tensor, seed: int | tf.Tensor | None
    ) -> tf.Tensor:
        if not tf.executing_eagerly():
            raise NotImplementedError(
                "draws of functions with a shape are made in numpy; call outside of tf.function."
            )
        entropy = None if seed is None else np.ravel(np.asarray(seed)).tolist()
        (own,) = np.random.SeedSequence(entropy).generate_state(1)
        draws = self._truncation().sample(int(num_samples), int(own))
        return tf.constant(draws[:, q.layout.order])

    def _open_root(self, layout: BlockLayout, features: Features, X: tf.Tensor) -> tf.Tensor:
        root = super()._open_root(layout, features, X)
        open_ = np.ones((self.kernel.num_components, 1, 1))
        open_[list(self._truncation().components)] = 0.0  # what jitter adds has no shape
        return root * tf.constant(open_, root.dtype)
