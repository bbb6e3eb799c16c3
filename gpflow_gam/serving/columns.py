"""The encoding of columns (:mod:`gpflow_gam.gam.frames`) inside a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ..gam.frames import LevelColumn, NumericColumn
from ..gam.terms import Column
from .rows import Rows


def input_dtype(column: Column, levels: Sequence[Any] | None) -> tf.DType:
    """
    What a column is taken as: numbers in double precision, or by the type of its levels.

    :param levels: None for a column of numbers.
    :raises ValueError: levels that have no common type.
    """
    if levels is None or any(isinstance(v, float) for v in levels):
        kinds: set[type] = {float} | {type(v) for v in levels or () if isinstance(v, str)}
    else:
        kinds = {type(v) for v in levels}
    found = {
        frozenset([str]): tf.string,
        frozenset([bool]): tf.bool,
        frozenset([int]): tf.int64,
        frozenset([bool, int]): tf.int64,
        frozenset([float]): tf.float64,
    }.get(frozenset(kinds))
    if found is None:
        raise ValueError(
            f"column {column!r} has levels of several types "
            f"({', '.join(sorted(k.__name__ for k in kinds))}), which no input can take; convert "
            "it to text before the fit."
        )
    return found


def without_missing(
    values: tf.Tensor, column: Column, fill: Any, rows: Rows, levels: Sequence[Any] = ()
) -> tf.Tensor:
    """
    A column [N] with what stands in for its missing values: NaN, or empty text that is no level.

    :param values: [N].
    :param column: its name, for messages.
    :param fill: what stands in; None where nothing does.
    :param rows: are told where values are missing that nothing stands in for, or are infinite.
    :param levels: of a column of text.
    """
    if values.dtype in (tf.int64, tf.bool):
        return values
    if values.dtype == tf.string:
        missing = tf.equal(values, "") & ("" not in levels)
        message = f"column {column!r} has missing values (empty text); leave those rows out"
    else:
        missing = tf.math.is_nan(values)
        message = f"column {column!r} must be finite; got NaN or infinite values in row"
    if fill is not None:
        values = tf.where(missing, tf.constant(fill, values.dtype), values)
        missing = tf.zeros_like(missing)
    bad = missing
    if values.dtype.is_floating:
        bad |= ~tf.math.is_finite(values)
    other = "" if values.dtype == tf.string else 0.0
    return rows.require(values, bad, [message, tf.where(bad)[:1, 0]], other)


def within_limits(values: tf.Tensor, column: NumericColumn, rows: Rows) -> tf.Tensor:
    """
    A column of numbers [N], where it is within the limits that it has.

    :param rows: are told where it is not.
    """
    if column.limits is None:
        return values
    low, high = (tf.constant(v, values.dtype) for v in column.limits)
    bad = (values < low) | (values > high)
    message = [column.outside, tf.boolean_mask(values, bad)[:1], "in row", tf.where(bad)[:1, 0]]
    return rows.require(values, bad, message, 0.0)


class Codes:
    """
    Levels to codes 0, 1, ..., as :class:`gpflow_gam.gam.frames.LevelColumn` does it.

    Levels never seen get codes of their own, in the order in which they come, where the policy
    takes them; rows with one are no good where it does not.

    :param column: the levels.
    :param dtype: what :func:`input_dtype` says, or a float for columns that are numbers too.
    """

    def __init__(self, column: LevelColumn, dtype: tf.DType) -> None:
        self.column = column
        self._is_text = dtype == tf.string
        self.table: tf.lookup.StaticHashTable | None = None
        if not dtype.is_floating:
            kind = tf.string if dtype == tf.string else tf.int64
            levels = [v if kind == tf.string else int(v) for v in column.levels]
            codes = tf.range(len(levels), dtype=tf.int64)
            pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(levels, kind), codes)
            self.table = tf.lookup.StaticHashTable(pairs, default_value=-1)

    def __call__(self, values: tf.Tensor, rows: Rows) -> tf.Tensor:
        """
        Codes [N] in double precision.

        :param values: [N]; of levels that are text, codes will do too.
        :param rows: are told where a level is not known.
        """
        if values.dtype == tf.bool:
            values = tf.cast(values, tf.int64)
        codes = self._known(values, rows.plain)
        strange = codes < 0
        number = len(self.column.levels)
        if self.column.unseen == "error":
            shown = ", ".join(repr(level) for level in self.column.levels[:12])
            message = f"column {self.column.name!r} has a level never seen in the fit, first"
            found = tf.boolean_mask(values, strange)[:1]
            rest = f"in row; the levels are {shown}{', ...' if number > 12 else ''}"
            row = tf.where(strange)[:1, 0]
            codes = rows.require(codes, strange, [message, found, row, rest], 0)
        elif rows.plain:
            codes = tf.where(strange, tf.constant(number, codes.dtype), codes)
        else:
            _, new = tf.unique(tf.boolean_mask(values, strange), tf.int64)
            codes = tf.tensor_scatter_nd_update(codes, tf.where(strange), number + new)
        return tf.cast(codes, tf.float64)

    def _known(self, values: tf.Tensor, plain: bool) -> tf.Tensor:
        """Codes [N] of the levels that were there, and -1."""
        if self._is_text and values.dtype == tf.int64:  # they came as codes
            there = (values >= 0) & (values < len(self.column.levels))
            return tf.where(there, values, -tf.ones_like(values))
        if self.table is not None and not plain:
            return self.table.lookup(values)
        # in the values' own precision: 0.1 is another number in another one
        kind = str if values.dtype == tf.string else values.dtype.as_numpy_dtype
        levels = tf.constant([kind(v) for v in self.column.levels], values.dtype)
        same = tf.equal(values[:, None], levels)
        code = tf.argmax(tf.cast(same, tf.int8), axis=1)
        return tf.where(tf.reduce_any(same, axis=1), code, -tf.ones_like(code))
