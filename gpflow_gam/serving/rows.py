"""Rows of a request that the model cannot take: an error, or NaN for them alone."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import tensorflow as tf

Invalid = Literal["error", "nan"]
"""What becomes of a request with such rows."""


class Rows:
    """
    The rows of one request, while its graph is made.

    :param invalid: ``"error"``: the request fails; ``"nan"``: so much of the answer is NaN.
    :param plain: rows are answered one by one, by operations that every format has: levels are
        compared rather than looked up, and all new ones of a column have one code.
    """

    def __init__(self, invalid: Invalid, plain: bool = False) -> None:
        self.invalid = invalid
        self.plain = plain
        self._bad: list[tf.Tensor] = []

    def require(self, values: tf.Tensor, bad: tf.Tensor, message: list[Any], other: Any) -> Any:
        """
        Values that the model can take: in bad rows the request fails, or others stand in.

        :param values: [N, ...].
        :param bad: which rows hold something else, [N].
        :param message: of the error, in parts.
        :param other: what can be computed with in their place, of which nothing is shown.
        """
        if self.invalid == "error":
            check = tf.debugging.Assert(~tf.reduce_any(bad), message)
            with tf.control_dependencies([check]):
                return tf.identity(values)
        self._bad.append(bad)
        return tf.where(_along(bad, values, 0), tf.constant(other, values.dtype), values)

    def shown(self, outputs: dict[str, tf.Tensor], axis: int) -> dict[str, tf.Tensor]:
        """
        The answer without what was computed of bad rows.

        :param outputs: by name, floating.
        :param axis: along which the rows are.
        """
        if not self._bad:
            return outputs
        bad = tf.reduce_any(tf.stack(self._bad), axis=0)
        return {
            name: tf.where(_along(bad, value, axis), tf.constant(np.nan, value.dtype), value)
            for name, value in outputs.items()
        }


def _along(bad: tf.Tensor, values: tf.Tensor, axis: int) -> tf.Tensor:
    """Which rows, [N], so that it broadcasts against values whose rows are along an axis."""
    shape = [1] * values.shape.rank
    shape[axis] = -1
    return tf.reshape(bad, shape)
