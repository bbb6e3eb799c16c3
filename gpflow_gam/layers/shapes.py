"""Shapes of a head's components: q(V) projected whenever it is not trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..covariances import InducingBlocks
from ..gam.fits.build import MAX_SITES
from ..kernels.shaped import shaped_part
from ..models import AdditiveSVGP
from ..posteriors import ShapedPosterior, ShapedValues
from ..variational import DenseGaussian, WhitenedGaussian

Numbers = tuple[AnyNDArray, AnyNDArray, AnyNDArray]


class _HereOnly(tf.lookup.StaticHashTable):
    """
    What no SavedModel takes, as nothing tracks it.

    A graph that numpy computes for means nothing to another process, or something else. The error
    that TensorFlow raises shows this object.
    """

    def __init__(self) -> None:
        nothing = tf.lookup.KeyValueTensorInitializer([0], [0])
        super().__init__(nothing, default_value=0)

    def __repr__(self) -> str:
        return "<shapes of a head, which gpflow_gam.serving.export writes and nothing else does>"


class HeadShapes:
    """
    Projects the q(V) of a head on the cone in which its components have their shapes.

    A graph calls numpy for it, once for each q: what comes of the last one is kept beside what it
    came from, so that batches of rows cost no more than they do without shapes, and no answer is
    ever that of weights that have changed since.

    :param model: the head's.
    :param width: D, the columns of X.
    :raises ValueError: too many inducing values.
    """

    def __init__(self, model: AdditiveSVGP, width: int) -> None:
        self._model = model
        found = {i: shaped_part(kernel) for i, kernel in enumerate(model.kernel.kernels)}
        self._parts = {i: part for i, part in found.items() if part is not None}
        self._nodes = {i: part.acting_nodes(width) for i, part in self._parts.items()}
        with tf.init_scope():
            self._here = _HereOnly()
        self._last: tuple[list[bytes], ShapedValues, Numbers] | None = None
        size = sum(model.inducing_variable.sizes)
        if self._parts and size > MAX_SITES:
            name = model.kernel.names[min(self._parts)]
            raise ValueError(
                f"{name} has a shape, for which q is kept dense: {size} inducing values are more "
                f"than {MAX_SITES}; pass a smaller num_inducing, or leave shape out."
            )

    def __bool__(self) -> bool:
        return bool(self._parts)

    def projected(self, cholesky: Sequence[tf.Tensor]) -> WhitenedGaussian:
        """
        The projected q(V), in which gradients stop.

        :param cholesky: of the prior at the present parameters.
        """
        blocks = self._model.blocks
        given = self._given(blocks, cholesky)
        P, L = blocks.layout.total, self._model.num_latent_gps
        mean, log_det, factor = tf.numpy_function(
            lambda _, *values: self._found(*values)[1],
            [self._here.size(), *given],
            [tf.float64] * 3,
        )
        shapes = ([P, L], [L], [L, P, P])
        mean, log_det, factor = (
            tf.ensure_shape(x, shape) for x, shape in zip((mean, log_det, factor), shapes)
        )
        return DenseGaussian(blocks.layout, mean, log_det, factor)

    def posterior(self) -> ShapedPosterior:
        """The posterior at the present parameters."""
        model = self._model
        blocks = model.blocks
        given = [np.asarray(x) for x in self._given(blocks, blocks.cholesky())]
        values, numbers = self._found(*given)
        tensors = [tf.constant(x) for x in numbers]
        return ShapedPosterior(
            model.kernel,
            model.inducing_variable,
            lambda _: DenseGaussian(blocks.layout, *tensors),
            model.num_latent_gps,
            model.mean_function,
            moments=values,
            precompute_cache="tensor",
        )

    def tails(self) -> dict[str, list[float]]:
        """How often noise alone is as far from each component's shape, in each output."""
        blocks = self._model.blocks
        values, _ = self._found(*(np.asarray(x) for x in self._given(blocks, blocks.cholesky())))
        names, L = self._model.kernel.names, self._model.num_latent_gps
        return {names[i]: [values.tail(i, k) for k in range(L)] for i in self._parts}

    def _given(self, blocks: InducingBlocks, cholesky: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """What a projection depends on: moments of V, and what is not negative of it."""
        layout = blocks.layout
        q = self._model.variational.whitened(cholesky)
        covariance = layout.to_components(layout.to_components(q.covariance(), axis=-1), axis=-2)
        rows = []
        for i, part in self._parts.items():
            phi = blocks.features(tf.constant(self._nodes[i], blocks.dtype), list(cholesky)).phi
            own = [
                f * tf.constant([[[float(c == i)]] for c in group.indices], f.dtype)
                for f, group in zip(phi, blocks.groups)
            ]
            whole = layout.to_components(layout.concat(own))  # [P, J]
            rows.append(tf.matmul(tf.constant(part.kernel.cone), whole, transpose_b=True))
        return [layout.to_components(q.mean), covariance, *rows]

    def _found(
        self, mean: AnyNDArray, covariance: AnyNDArray, *rows: AnyNDArray
    ) -> tuple[ShapedValues, Numbers]:
        key = [x.tobytes() for x in (mean, covariance, *rows)]
        last = self._last  # read once: replicas' threads may write it
        if last is None or last[0] != key:
            values = ShapedValues(mean, covariance, dict(zip(self._parts, rows)))
            order = self._model.blocks.layout.order
            factor = np.linalg.cholesky(values.covariance[:, order][:, :, order])
            log_det = 2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
            last = self._last = (key, values, (values.mean[order], log_det, factor))
        return last[1], last[2]
