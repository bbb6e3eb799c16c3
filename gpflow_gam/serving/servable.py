"""GAMs, models and networks as functions of tensors that can be exported."""

from __future__ import annotations

import abc
import dataclasses
import functools
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.stats import norm

from ..gam import GAM
from ..gam.fits import FittedGAM
from ..gam.fits.prediction import OFFSET
from ..gam.frames import Key, LevelColumn, NumericColumn
from ..gam.terms import Column, Expression, variables_of
from ..layers import GPHead
from ..layers.head import HeadInput, trace_heads
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import conditional_response, expected_response, summarised_response
from ..models import AdditiveModel, IterNCGP
from ..posteriors import AdditivePosterior

FORMAT = 1  # raised when older code could no longer read the description
DESCRIPTION = Path("assets.extra") / "gpflow_gam.json"  # the description's place in a SavedModel
RESERVED = ("seed", "num_samples")  # arguments of the sample signature besides the inputs
MEANINGS = {
    "predict": {
        "mean": "of the predictor, offsets included",
        "variance": "of the predictor",
        "response": "expected response, or class probabilities",
        "lower": "bound of the credible interval of the expected response",
        "upper": "bound of the credible interval of the expected response",
        "mean_lower": "bound of the credible interval of each of several predictors",
        "mean_upper": "bound of the credible interval of each of several predictors",
    },
    "predict_components": {
        "mean": "of each component's contribution to the predictor",
        "variance": "of the same",
    },
    "sample": {
        "predictor": "joint draws of the predictor",
        "response": "the expected response of the same draws",
    },
}
"""Outputs of the signatures."""
MISSING_CODE = -2  # a missing value among codes of levels that are text; -1 is a new level
Invalid = Literal["error", "nan"]
"""A request with rows that the model cannot take fails, or is answered by NaN in those rows."""


@dataclasses.dataclass(frozen=True)
class Input:
    """
    An argument of the signatures.

    :param name: in the signature.
    :param dtype: float64 for numbers, of which single precision is accepted too.
    :param shape: [None], or [None, D] of a matrix.
    :param meaning: in words.
    :param column: of the data, or the key of a network's input; None for a matrix of all columns.
    :param fill: stands in for a missing value; None where none may be missing.
    :param levels: of a column of levels.
    :param is_coded: whether it takes the places of levels in their stead.
    """

    name: str
    dtype: tf.DType
    shape: tuple[int | None, ...]
    meaning: str
    column: Column | None = None
    fill: Any = None
    levels: tuple[Any, ...] = ()
    is_coded: bool = False

    def coded(self) -> Input:
        """The same as numbers for formats without text: 0, 1, ... for the levels."""
        if self.dtype != tf.string or not self.levels:
            return self
        return dataclasses.replace(
            self,
            dtype=tf.int64,
            meaning=f"column {self.column!r}, the places 0, 1, ... of {list(self.levels)}",
            fill=None if self.fill is None else self.levels.index(self.fill),
            is_coded=True,
        )

    def spec(self, single: bool = False) -> tf.TensorSpec:
        """Its type in a signature, numbers in single precision on demand."""
        dtype = tf.float32 if single and self.dtype == tf.float64 else self.dtype
        return tf.TensorSpec(self.shape, dtype, name=self.name)

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "name": self.name,
            "dtype": self.dtype.name,
            "shape": list(self.shape),
            "meaning": self.meaning,
            "column": self.column,
            "fill": self.fill,
            "levels": list(self.levels) or None,
        }


class Rows:
    """The rows of one request; ``plain``: one by one, by operations that every format has."""

    def __init__(self, invalid: Invalid, plain: bool = False) -> None:
        self.invalid = invalid
        self.plain = plain
        self._bad: list[tf.Tensor] = []

    def require(self, values: tf.Tensor, bad: tf.Tensor, message: list[Any], other: Any) -> Any:
        """Values [N, ...]; bad rows [N] fail the request, or are ``other`` and not shown."""
        if self.invalid == "error":
            check = tf.debugging.Assert(~tf.reduce_any(bad), message)
            with tf.control_dependencies([check]):
                return tf.identity(values)
        self._bad.append(bad)
        return tf.where(_along(bad, values, 0), tf.constant(other, values.dtype), values)

    def shown(self, outputs: dict[str, tf.Tensor], axis: int) -> dict[str, tf.Tensor]:
        """The answer, NaN in bad rows, which are along ``axis``."""
        if not self._bad:
            return outputs
        bad = tf.reduce_any(tf.stack(self._bad), axis=0)
        return {
            name: tf.where(_along(bad, value, axis), tf.constant(np.nan, value.dtype), value)
            for name, value in outputs.items()
        }


def _along(bad: tf.Tensor, values: tf.Tensor, axis: int) -> tf.Tensor:
    """[N] so that it broadcasts against values whose rows are along an axis."""
    shape = [1] * values.shape.rank
    shape[axis] = -1
    return tf.reshape(bad, shape)


class Servable(abc.ABC):
    """
    A fitted model as functions of tensors, which are traced.

    Inputs come in single or double precision, all else is in double precision. Tensors that do
    not depend on inputs belong in ``__init__``.
    """

    kind: ClassVar[str]  # for the description

    inputs: tuple[Input, ...]  # the arguments, in order

    names: tuple[str, ...]  # the components

    heads: tuple[str, ...] = ()
    """Names that outputs begin with, before ``_``, where there are several of each."""

    @abc.abstractmethod
    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> Any:
        """X [N, D], finite; several of them in a tuple where other methods take such."""

    @abc.abstractmethod
    def predict(self, X: Any, level: float) -> dict[str, tf.Tensor]:
        """
        ``mean`` and ``variance`` of the predictor, [N] or [N, L]; ``response``, ``lower`` and
        ``upper``, the expected response and its credible interval, [N] or [N, K]; of several
        predictors ``mean_lower`` and ``mean_upper``, intervals of each, [N, L].
        """

    @abc.abstractmethod
    def components(self, X: Any) -> dict[str, tf.Tensor]:
        """``mean`` and ``variance`` of the components, [N, C] or [N, C, L]."""

    @abc.abstractmethod
    def sample(self, X: Any, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Joint draws: ``predictor`` [S, N] or [S, N, L], ``response`` [S, N] or [S, N, K]."""

    def split_head(self, output: str, meanings: Mapping[str, str]) -> tuple[str, str]:
        """The head in an output's name, with ``_`` or empty, and the rest."""
        for head in sorted(self.heads, key=len, reverse=True):  # a name may begin with another
            name = output.removeprefix(f"{head}_")
            if name != output and name in meanings:
                return f"{head}_", name
        return "", output

    def resources(self) -> list[Any]:
        """Lookup tables and the like, which the file has to hold besides variables."""
        return []

    def description(self) -> dict[str, Any]:
        """Facts for readers, as JSON can hold them."""
        return {}


@functools.singledispatch
def servable(model: Any) -> Servable:
    """The model as something that can be exported."""
    if isinstance(model, Servable):
        return model
    raise TypeError(
        "model must be a fitted gpflow_gam.GAM, a gpflow_gam model with a posterior() "
        "(AdditiveSVGP, AdditiveSGPR, AdditiveVGP, IterNCGP), or a keras.Model with heads of "
        f"gpflow_gam.layers; got {type(model).__name__}."
    )


def argument_names(columns: Iterable[Column], taken: Iterable[str] = RESERVED) -> dict[Column, str]:
    """Names that TensorFlow, C and Python accept, none ``taken``; other characters become ``_``."""
    plain: dict[Column, str] = {}
    for column in columns:
        name = re.sub(r"[^A-Za-z0-9_]", "_", str(column))
        if not re.match(r"[A-Za-z]", name) or keyword.iskeyword(name) or name == "self":
            name = f"x_{name}"
        plain[column] = name
    names: dict[Column, str] = {}
    used = {name.lower() for name in taken}
    for column in sorted(plain, key=lambda c: plain[c] != c):  # whose own name will do first
        unique, number = plain[column], 2
        while unique.lower() in used:
            unique, number = f"{plain[column]}_{number}", number + 1
        used.add(unique.lower())
        names[column] = unique
    return {column: names[column] for column in plain}


LINES = ("mean", "mean_lower", "mean_upper")  # answers that are values of predictors


class PosteriorAnswers:
    """Predictions from a likelihood and a cached posterior."""

    def __init__(
        self,
        posterior: AdditivePosterior,
        likelihood: Likelihood,
        seed: int = 0,
        share: float = 1.0,
    ) -> None:
        self.posterior = posterior
        self.likelihood = unwrapped(likelihood)
        self.seed = seed
        self.share = share
        self.names = posterior.names

    @property
    def num_predictors(self) -> int:
        """L."""
        return self.posterior.num_latent_gps

    def _single(self, values: tf.Tensor) -> tf.Tensor:
        return values[..., 0] if self.num_predictors == 1 else values

    def predict(self, X: tf.Tensor, level: float) -> dict[str, tf.Tensor]:
        joint = self.posterior.couples_outputs
        mean, cov = self.posterior.predict_f(X, full_output_cov=joint)
        var = _rounded(tf.linalg.diag_part(cov) if joint else cov)
        shape = [None, self.num_predictors]
        mean, var = tf.ensure_shape(mean, shape), tf.ensure_shape(var, shape)
        cov = tf.ensure_shape(cov, [*shape, self.num_predictors]) if joint else var
        summary = summarised_response(self.likelihood, X, mean, cov, level, seed=self.seed)
        response = summary.mean
        if self.share != 1.0:
            response = expected_response(self.likelihood, X, mean, self.share * cov, seed=self.seed)
        outputs = {
            "mean": self._single(mean),
            "variance": self._single(var),
            "response": response,
            "lower": summary.lower,
            "upper": summary.upper,
        }
        if self.num_predictors > 1:
            half = float(norm.ppf(0.5 + 0.5 * level)) * tf.sqrt(var)
            outputs |= {"mean_lower": mean - half, "mean_upper": mean + half}
        return outputs

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        mean, var = self.posterior.predict_components(X)
        return {"mean": mean, "variance": _rounded(var)}

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        F = self.posterior.sample_f(X, num_samples, seed=seed)
        F = tf.ensure_shape(F, [None, None, self.num_predictors])
        response = conditional_response(self.likelihood, X, F)
        return {"predictor": self._single(F), "response": response}


def _rounded(var: tf.Tensor) -> tf.Tensor:
    """Variances without the negative ones of rounding."""
    return tf.maximum(var, tf.zeros([], var.dtype))


class ModelServable(PosteriorAnswers, Servable):
    """A trained model of a matrix X: AdditiveSVGP, AdditiveSGPR, AdditiveVGP or IterNCGP."""

    kind: ClassVar[str] = "model"

    def __init__(self, model: AdditiveModel) -> None:
        share = model.predictive_share() if isinstance(model, IterNCGP) else 1.0
        super().__init__(model.posterior(), model.likelihood, share=share)
        self._class = type(model).__name__
        width = _width(model)
        meaning = f"rows of X, {width} columns in the model's order"
        self.inputs = (Input("inputs", tf.float64, (None, width), meaning),)

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tf.Tensor:
        X = tf.cast(inputs["inputs"], tf.float64)
        bad = ~tf.reduce_all(tf.math.is_finite(X), axis=1)
        message = "inputs must be finite; drop or impute the rows; first, row"
        return rows.require(X, bad, [message, tf.where(bad)[:1, 0]], 0.0)

    def description(self) -> dict[str, Any]:
        return {"model": self._class, "likelihood": type(self.likelihood).__name__}


def _width(model: AdditiveModel) -> int:
    """D: of the data where the model holds them, else what the kernel reads."""
    data = getattr(model, "data", None)
    if data is not None:
        return int(data[0].shape[1])
    inputs = [tf.convert_to_tensor(Z) for Z in model.inducing_variable.inputs]
    whole = [int(Z.shape[1]) for Z, c in zip(inputs, model.kernel.columns) if c is None]
    return max([1, model.kernel.num_columns, *whole])


servable.register(AdditiveModel, ModelServable)


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
    if values.dtype == tf.int64 and levels and isinstance(levels[0], str):
        missing = tf.equal(values, MISSING_CODE)
        message = f"column {column!r} has missing values; leave those rows out"
        fill = None if fill is None else levels.index(fill)
    elif values.dtype in (tf.int64, tf.bool):
        return values
    elif values.dtype == tf.string:
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
    other = "" if values.dtype == tf.string else 0
    return rows.require(values, bad, [message, tf.where(bad)[:1, 0]], other)


def within_limits(values: tf.Tensor, column: NumericColumn, rows: Rows) -> tf.Tensor:
    """A column of numbers [N]; rows outside of its ``limits`` are invalid."""
    if column.valid_range is None:
        return values
    low, high = (tf.constant(v, values.dtype) for v in column.valid_range)
    bad = (values < low) | (values > high)
    message = [column.outside, tf.boolean_mask(values, bad)[:1], "in row", tf.where(bad)[:1, 0]]
    return rows.require(values, bad, message, 0.0)


class Codes:
    """Levels to codes 0, 1, ..., as :class:`gpflow_gam.gam.frames.LevelColumn` does it."""

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


class GAMServable(PosteriorAnswers, Servable):
    """A GAM, with an argument for each column, or one for a matrix of numbered columns."""

    kind: ClassVar[str] = "GAM"

    def __init__(self, gam: GAM) -> None:
        fit = gam.fitted
        if fit.spec.design is not None:
            raise ValueError(
                f"gam: its formula makes columns of others ({fit.spec.design.text}) in Python, "
                "which no SavedModel holds; make them in the data, and name them."
            )
        if summed := next((c.name for c in fit.spec.components if c.slots), None):
            raise ValueError(
                f"gam: {summed} is a sum over lags or arrays, which no SavedModel holds; leave the "
                "term out, or predict in Python."
            )
        super().__init__(fit.posterior, fit.model.likelihood, gam.seed, fit.predictive_share)
        self._fit = fit
        self._units = fit.units
        # of each component, so that their sum is the predictor
        self._constants = np.array([fit.constant_of(c) for c in fit.spec.components])
        self._offset = [fit.spec.place(c) for c in fit.spec.offset]
        self.names = (*self.names, *([OFFSET] if self._offset else []))
        self._fills = {fill.name: fill.value for fill in fit.spec.fills}
        self._keys = _read_keys(fit)
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

    def predict(self, X: tf.Tensor, level: float) -> dict[str, tf.Tensor]:
        outputs = super().predict(X, level)
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


def _read_keys(fit: FittedGAM) -> dict[Key, Any]:
    """The columns that terms and offsets read, and how, in the encoder's order."""
    spec = fit.spec
    keys = list(spec.encoder.columns)
    wanted = {keys[i] for component in spec.components for i in component.columns}
    wanted |= {(column, "number") for column in spec.offset}
    return {key: column for key, column in spec.encoder.columns.items() if key in wanted}


servable.register(GAM, GAMServable)


# --- Keras models with heads ----------------------------------------------------------------------


_BETWEEN = 1_000_003  # between the seeds of heads, whose draws have nothing to do with each other


class _Head(PosteriorAnswers):
    """A head's answers, and X of its features."""

    def __init__(self, head: GPHead) -> None:
        if not head.is_ready:
            raise ValueError(
                f"{head.name} does not know its features yet: call {head._first} first."
            )
        super().__init__(head.posterior(), head.likelihood, share=float(head.predictive_share))
        self.head, self._constants = head, np.asarray(head.constants())

    def components(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = super().components(X)
        constants = self._single(tf.constant(self._constants, outputs["mean"].dtype))
        return outputs | {"mean": outputs["mean"] + constants}

    def read(self, features: tf.Tensor, rows: Rows) -> tf.Tensor:
        if rows.invalid == "nan":  # the head itself would fail
            strange = ~self.head.readable(features)
            features = rows.require(features, strange, [], 0.0)
        X = self.head.scaled(features)
        strange = ~tf.reduce_all(tf.math.is_finite(X), axis=1)
        message = f"the features of {self.head.name} must be finite; look at the inputs of row"
        return rows.require(X, strange, [message, tf.where(strange)[:1, 0]], 0.0)


class NetworkServable(Servable):
    """A network up to its heads' features, a tuple for X, and the heads' posteriors behind it."""

    kind: ClassVar[str] = "keras"

    def __init__(self, model: keras.Model) -> None:
        if not any(isinstance(layer, GPHead) for layer in model._flatten_layers()):
            raise ValueError(
                f"model must hold a head of gpflow_gam.layers; {model.name} holds 0; model.export "
                "writes other Keras models."
            )
        self.model = model
        self._tensors = _declared_inputs(model)
        self._features = FeaturesOfHeads(model)
        heads = self._features.heads
        names = argument_names(head.name for head in heads)
        self._heads = [_Head(head) for head in heads]
        if len(heads) > 1:
            self.heads = tuple(names[head.name] for head in heads)
        self.names = tuple(name for head in self._heads for name in head.names)
        arguments = argument_names(self._tensors)
        self.inputs = tuple(
            Input(
                arguments[key],
                tf.float64 if tf.as_dtype(t.dtype).is_floating else tf.as_dtype(t.dtype),
                (None, *t.shape[1:]),
                f"input {key!r} of the network",
                key,
            )
            for key, t in self._tensors.items()
        )

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> tuple[tf.Tensor, ...]:
        tensors = self._tensors.values()
        values = [tf.cast(inputs[i.name], t.dtype) for i, t in zip(self.inputs, tensors)]
        pairs = zip(self._heads, self._features(values), strict=True)
        return tuple(head.read(features, rows) for head, features in pairs)

    def resources(self) -> list[Any]:
        return [
            value
            for layer in self.model._flatten_layers()
            for value in vars(layer).values()
            if isinstance(value, tf.saved_model.experimental.TrackableResource)
        ]

    def predict(self, X: tuple[tf.Tensor, ...], level: float) -> dict[str, tf.Tensor]:
        return self._named(h.predict(x, level) for h, x in zip(self._heads, X))

    def components(self, X: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        return self._named(h.components(x) for h, x in zip(self._heads, X))

    def sample(
        self, X: tuple[tf.Tensor, ...], num_samples: tf.Tensor, seed: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return self._named(
            h.sample(x, num_samples, seed + _BETWEEN * i)
            for i, (h, x) in enumerate(zip(self._heads, X))
        )

    def _named(self, answers: Iterable[dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
        """In double precision, by the heads' names where there are several; each name once."""
        named: dict[str, tf.Tensor] = {}
        for name, outputs in zip(self.heads or ("",), answers):
            for key, value in outputs.items():
                key = f"{name}_{key}" if name else key
                if key in named:
                    raise ValueError(f"model: two outputs would be called {key!r}; rename a head.")
                named[key] = tf.cast(value, tf.float64)
        return named

    def description(self) -> dict[str, Any]:
        kinds = [type(h.likelihood).__name__ for h in self._heads]
        if not self.heads:
            return {"model": self.model.name, "likelihood": kinds[0]}
        return {
            "model": self.model.name,
            "heads": list(self.heads),
            "likelihood": dict(zip(self.heads, kinds)),
            "components": {name: list(h.names) for name, h in zip(self.heads, self._heads)},
        }


def _declared_inputs(model: keras.Model) -> dict[str, Any]:
    """A model's symbolic inputs, flat, by the keys of a dict or else by their names."""
    try:
        tensors = list(model.inputs)
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"model {model.name} does not say what its inputs are; export "
            "keras.Model(x, model(x)) with x = keras.Input(...)."
        ) from None
    # a sequential model has none of its own before it was called, and never a dict
    inputs = None if isinstance(model, keras.Sequential) else model.input
    if isinstance(inputs, Mapping):
        return dict(zip(_keys(inputs), tensors, strict=True))
    return {t.name: t for t in tensors}


def _keys(inputs: Mapping[str, Any]) -> list[str]:
    paths = [path for path, _ in keras.tree.flatten_with_path(inputs)]
    return ["/".join(str(part) for part in path) for path in paths]


servable.register(keras.Model, NetworkServable)


class FeaturesOfHeads:
    """From the inputs of a model to what its heads are given."""

    def __init__(self, model: keras.Model) -> None:
        self._name = model.name
        self._model = keras.Model(model.inputs, model.outputs)  # both of them flat
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in model.inputs]
        self.heads: list[GPHead] = []
        """In the order of the outputs."""

        def call(*values: tf.Tensor) -> None:
            self.heads = [traced.head for traced in self._traced(values)]

        tf.function(call, autograph=False).get_concrete_function(*specs)

    def __call__(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Features [N, F] for each of :attr:`heads`; ``values`` of the inputs in a flat list."""
        return [traced.features for traced in self._traced(values)]

    def _traced(self, values: Sequence[tf.Tensor]) -> list[HeadInput]:
        try:
            with trace_heads():
                outputs: list[Any] = keras.tree.flatten(self._model(list(values), training=False))
        except Exception as error:  # layers have their own ways of taking no such input
            raise ValueError(self._cannot(_said(error))) from error
        for output in outputs:
            if not isinstance(output, HeadInput):
                raise ValueError(self._cannot("an output is not what a head returns"))
        for traced in outputs:
            times = sum(other.head is traced.head for other in outputs)
            if times > 1:
                raise ValueError(self._cannot(f"{traced.head.name} is called {times} times"))
        return outputs

    def _cannot(self, why: str) -> str:
        return (
            f"{self._name} has to return what its heads return and nothing else, each called once, "
            "on what Keras layers or functions of TensorFlow compute outside of a tf.function, a "
            "loop or a condition; what comes behind or beside heads would not be served. Export "
            "keras.Model(inputs, head(features)), which may have several heads for outputs, or all "
            f"of the network, without draws and components, by model.export(path). ({why})"
        )


def _said(error: Exception) -> str:
    """Message of an error without what Keras adds: colours, and the arguments."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).split("Arguments received by")[0]
    return " ".join(text.split()) or type(error).__name__
