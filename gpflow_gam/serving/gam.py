"""A fitted GAM as something that can be exported: its columns are the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..gam import GAM
from ..gam.fits import FittedGAM
from ..gam.fits.prediction import OFFSET
from ..gam.frames import Key, LevelColumn, NumericColumn
from ..gam.terms import Column, Expression, variables_of
from .servable import LINES, Input, PosteriorServable, Rows, argument_names, servable

# --- the encoding of columns inside a graph ------------------------------------------------------


def input_dtype(column: Column, levels: Sequence[Any] | None) -> tf.DType:
    """A column's type: double precision, or that of its levels, which are None for numbers."""
    if levels is None or any(isinstance(v, float) for v in levels):
        kinds: set[type] = {float} | {type(v) for v in levels or () if isinstance(v, str)}
    else:
        kinds = {type(v) for v in levels}
    dtype = {
        frozenset([str]): tf.string,
        frozenset([bool]): tf.bool,
        frozenset([int]): tf.int64,
        frozenset([bool, int]): tf.int64,
        frozenset([float]): tf.float64,
    }.get(frozenset(kinds))
    if dtype is None:
        raise ValueError(
            f"column {column!r} has levels of several types "
            f"({', '.join(sorted(k.__name__ for k in kinds))}), which no input can take; convert "
            "it to text before the fit."
        )
    return dtype


def without_missing(
    values: tf.Tensor, column: Column, fill: Any, rows: Rows, levels: Sequence[Any] = ()
) -> tf.Tensor:
    """A column [N], ``fill`` for missing values; else rows with one are bad, as infinite ones."""
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
    """A column of numbers [N]; rows outside of its ``limits`` are invalid."""
    if column.limits is None:
        return values
    low, high = (tf.constant(v, values.dtype) for v in column.limits)
    bad = (values < low) | (values > high)
    message = [column.outside, tf.boolean_mask(values, bad)[:1], "in row", tf.where(bad)[:1, 0]]
    return rows.require(values, bad, message, 0.0)


class Codes:
    """
    Levels to codes 0, 1, ..., as :class:`gpflow_gam.gam.frames.LevelColumn` does it.

    New levels get further codes where the policy takes them; else their rows are bad.
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
        """Codes [N] in double precision of values [N], or of codes of levels that are text."""
        if values.dtype == tf.bool:
            values = tf.cast(values, tf.int64)
        codes = self._known(values, rows.plain)
        unknown = codes < 0
        number = len(self.column.levels)
        if self.column.unseen == "error":
            shown = ", ".join(repr(level) for level in self.column.levels[:12])
            message = f"column {self.column.name!r} has a level never seen in the fit, first"
            first = tf.boolean_mask(values, unknown)[:1]
            rest = f"in row; the levels are {shown}{', ...' if number > 12 else ''}"
            row = tf.where(unknown)[:1, 0]
            codes = rows.require(codes, unknown, [message, first, row, rest], 0)
        elif rows.plain:
            codes = tf.where(unknown, tf.constant(number, codes.dtype), codes)
        else:
            _, new = tf.unique(tf.boolean_mask(values, unknown), tf.int64)
            codes = tf.tensor_scatter_nd_update(codes, tf.where(unknown), number + new)
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


# --- the model -----------------------------------------------------------------------------------


class GAMServable(PosteriorServable):
    """A GAM, with an argument for each column, or one for a matrix of numbered columns."""

    kind: ClassVar[str] = "GAM"

    def __init__(self, gam: GAM) -> None:
        fit = gam.fitted
        if fit.spec.design is not None:
            raise ValueError(
                f"gam: its formula makes columns of others ({fit.spec.design.text}) in Python, "
                "which no SavedModel holds; make them in the data, and name them."
            )
        super().__init__(fit.posterior, fit.model.likelihood, gam.seed, fit.predictive_share)
        self._fit = fit
        self._units = fit.units
        # of each component, so that their sum is the predictor
        self._constants = np.array([fit.constant_of(c) for c in fit.spec.components])
        self._offset = [fit.spec.place(c) for c in fit.spec.offset]
        self.names = (*self.names, *([OFFSET] if self._offset else []))
        self._fills = {fill.name: fill.value for fill in fit.spec.fills}
        self._keys = _keys(fit)
        names = list(dict.fromkeys(name for name, _ in self._keys))
        columns = variables_of(names)
        if not columns:
            raise ValueError(
                "gam: it reads no column, so that no request would say for how many rows; its "
                "prediction is one number, gam.predict(data)[0]."
            )
        dtypes = {c: self._dtype(c) for c in dict.fromkeys([*columns, *names])}
        self._computed = [name for name in names if isinstance(name, Expression)]
        for name in self._computed:
            if name.of_levels or any(dtypes[v] == tf.string for v in name.variables):
                raise ValueError(
                    f"gam: its formula makes {name} of levels, which no SavedModel holds; make "
                    "that column in the data, and name it."
                )
        self.is_matrix = bool(columns) and all(isinstance(c, int) for c in columns)
        if self.is_matrix:
            text = [c for c, dtype in dtypes.items() if dtype == tf.string]
            if text:
                raise ValueError(
                    f"column {text[0]} of the matrix holds text, which cannot be served beside "
                    "numbers; fit on a DataFrame or a dict of named columns."
                )
            dtypes |= dict.fromkeys(columns, tf.float64)
            width = 1 + max(c for c in columns if isinstance(c, int))
            meaning = f"the first {width} columns of the data, of which {columns} are read"
            self.inputs = (Input("inputs", tf.float64, (None, width), meaning),)
        else:
            arguments = argument_names(columns)
            self.inputs = tuple(self._input(c, arguments[c], dtypes[c]) for c in columns)
        self._codes = {
            c: Codes(column, dtypes[c])
            for (c, _), column in self._keys.items()
            if isinstance(column, LevelColumn)
        }

    def _levels(self, column: Column) -> LevelColumn | None:
        encoded = self._keys.get((column, "level"))
        return encoded if isinstance(encoded, LevelColumn) else None

    def _dtype(self, column: Column) -> tf.DType:
        levels = self._levels(column)
        if levels is None:
            return tf.float64
        dtype = input_dtype(column, levels.levels)
        return tf.float64 if (column, "number") in self._keys else dtype

    def _input(self, column: Column, name: str, dtype: tf.DType) -> Input:
        levels = self._levels(column)
        if levels is None:
            reader = self._keys.get((column, "number"))
            time = getattr(reader, "time", "")
            since = " since 1970-01-01" + ", UTC" * time.endswith("zone")
            what = f"days{since * time.startswith('times')}" if time else "numbers"
            meaning = f"column {column!r}, {what}"
        else:
            others = "no others" if levels.unseen == "error" else "new ones have the prior's effect"
            meaning = f"column {column!r}, levels {list(levels.levels)}; {others}"
        known = () if levels is None else tuple(levels.levels)
        return Input(name, dtype, (None,), meaning, column, self._fills.get(column), known)

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tf.Tensor:
        raw: dict[Column, tf.Tensor]
        if self.is_matrix:
            matrix = inputs["inputs"]
            raw = {c: matrix[:, c] for c, _ in self._keys}
            number = tf.shape(matrix)[0]
        else:
            raw = {i.column: inputs[i.name] for i in self.inputs if i.column is not None}
            number = tf.shape(next(iter(raw.values())))[0]
        whole = {}
        for column, values in raw.items():
            levels = self._levels(column)
            known = () if levels is None else levels.levels
            whole[column] = without_missing(values, column, self._fills.get(column), rows, known)
        for name in self._computed:
            values = name.evaluate(lambda v: tf.cast(whole[v], tf.float64), _function)
            whole[name] = without_missing(values, name, None, rows)
        zeros = tf.zeros([number], tf.float64)
        parts = []
        for key in self._fit.spec.encoder.columns:  # weights and the like are read by nobody
            column, kind = key
            if key not in self._keys:
                parts.append(zeros)
            elif kind == "level":
                parts.append(self._codes[column](whole[column], rows))
            else:
                parts.append(
                    within_limits(tf.cast(whole[column], tf.float64), self._keys[key], rows)
                )
        return tf.stack(parts, axis=1)

    # predictors are in the response's unit, as in the GAM's own answers

    def predict(self, X: tf.Tensor, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        outputs = super().predict(X, level, plain)
        factor, shift = self._units
        moved = {k: _scaled(outputs[k], factor, shift) for k in LINES if k in outputs}
        return outputs | moved | {"variance": _scaled(outputs["variance"], factor**2)}

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = super().components(X)
        factor, _ = self._units
        mean = _scaled(outputs["mean"], factor, self._single(self._constants))
        variance = _scaled(outputs["variance"], factor**2)
        if self._offset:  # which is known, and part of the first predictor
            offset = tf.reduce_sum(tf.gather(X, self._offset, axis=1), axis=1)
            first = tf.constant(factor[0] * np.eye(1, self.num_predictors), mean.dtype)
            added = self._single(offset[:, None, None] * first)
            mean = tf.concat([mean, added], axis=1)
            variance = tf.concat([variance, tf.zeros_like(added)], axis=1)
        return {"mean": mean, "variance": variance}

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        draws = super().sample(X, num_samples, seed)
        return draws | {"predictor": _scaled(draws["predictor"], *self._units)}

    def resources(self) -> list[Any]:
        return [c.table for c in self._codes.values() if c.table is not None]

    def description(self) -> dict[str, Any]:
        spec = self._fit.spec
        return {
            "terms": [term.label for term in spec.terms],
            "family": spec.family.name,
            "response": spec.response,
            "predictors": list(spec.predictor_names),
            "classes": None if spec.levels is None else list(spec.levels),
        }


def _function(name: str) -> Any:
    """TensorFlow's function for a name in an expression."""
    base = {"log2": 2.0, "log10": 10.0}.get(name)
    if base is not None:
        return lambda x: tf.math.log(x) / tf.constant(np.log(base), x.dtype)
    return getattr(tf.math, name)


def _scaled(values: tf.Tensor, factor: AnyNDArray, shift: AnyNDArray | float = 0.0) -> tf.Tensor:
    """``shift + factor values``, with no operation for ones and zeros."""
    if np.any(factor != 1.0):
        values = tf.constant(factor, values.dtype) * values
    return tf.constant(shift, values.dtype) + values if np.any(shift) else values


def _keys(fit: FittedGAM) -> dict[Key, Any]:
    """The columns that terms and offsets read, and how, in the encoder's order."""
    spec = fit.spec
    keys = list(spec.encoder.columns)
    wanted = {keys[i] for component in spec.components for i in component.columns}
    wanted |= {(column, "number") for column in spec.offset}
    return {key: column for key, column in spec.encoder.columns.items() if key in wanted}


@servable.register(GAM)
def _gam(gam: GAM) -> GAMServable:
    return GAMServable(gam)
