"""A fitted GAM as something that can be exported: its columns are the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ..gam import GAM
from ..gam.fits import FittedGAM
from ..gam.fits.prediction import OFFSET
from ..gam.frames import Key, LevelColumn
from ..gam.terms import Column, Expression, variables_of
from .columns import Codes, input_dtype, within_limits, without_missing
from .posterior import LINES, PosteriorServable
from .rows import Rows
from .servable import Input, argument_names, servable


class GAMServable(PosteriorServable):
    """
    A GAM, with an argument for each column that its terms and offsets read.

    Where the columns have numbers for names, as those of a matrix, one argument takes the matrix.

    :param gam: fitted.
    :raises NotFittedError: it is not.
    :raises ValueError: a formula that transforms columns, levels of several types in one column, or
        text in a matrix.
    """

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
        found = self._keys.get((column, "level"))
        return found if isinstance(found, LevelColumn) else None

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
        own = () if levels is None else tuple(levels.levels)
        return Input(name, dtype, (None,), meaning, column, self._fills.get(column), own)

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
            own = () if levels is None else levels.levels
            whole[column] = without_missing(values, column, self._fills.get(column), rows, own)
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

    # what is said of predictors is in the response's unit, as what the GAM itself says

    def predict(self, X: tf.Tensor, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        found = super().predict(X, level, plain)
        factor, shift = self._units
        moved = {name: _scaled(found[name], factor, shift) for name in LINES if name in found}
        return found | moved | {"variance": _scaled(found["variance"], factor**2)}

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        found = super().components(X)
        factor, _ = self._units
        mean = _scaled(found["mean"], factor, self._single(self._constants))
        variance = _scaled(found["variance"], factor**2)
        if self._offset:  # of which nothing is uncertain, and which the first predictor has
            own = tf.reduce_sum(tf.gather(X, self._offset, axis=1), axis=1)
            first = tf.constant(factor[0] * np.eye(1, self.num_predictors), mean.dtype)
            added = self._single(own[:, None, None] * first)
            mean = tf.concat([mean, added], axis=1)
            variance = tf.concat([variance, tf.zeros_like(added)], axis=1)
        return {"mean": mean, "variance": variance}

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        found = super().sample(X, num_samples, seed)
        return found | {"predictor": _scaled(found["predictor"], *self._units)}

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
    """What expressions call."""
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
    every = list(spec.encoder.columns)
    wanted = {every[i] for component in spec.components for i in component.columns}
    wanted |= {(column, "number") for column in spec.offset}
    return {key: column for key, column in spec.encoder.columns.items() if key in wanted}


@servable.register(GAM)
def _gam(gam: GAM) -> GAMServable:
    return GAMServable(gam)
