"""GAMs, models and networks as functions of tensors that can be exported."""

from __future__ import annotations

import abc
import copy
import functools
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.stats import norm

from ..gam import GAM
from ..gam.fits.prediction import OFFSET
from ..gam.frames.encoding import LevelColumn, NumericColumn
from ..gam.tables import TablePosterior, check_columns, check_levels, input_dtype
from ..gam.terms.base import Column, Expression, variables_of
from ..layers import GPHead
from ..layers.head import HeadInput, trace_heads
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import conditional_response, summarised_response
from ..models import AdditiveModel, IterNCGP
from ..posteriors import AdditivePosterior
from ..version import __version__

FORMAT = 1  # raised when older code could no longer read the description
RESERVED = ("seed", "num_samples")  # arguments of the sample signature besides the inputs
COMPONENT = "component_"  # before the names of components' outputs beside predictions
OUTPUTS = (
    *("mean", "variance", "response", "lower", "upper", "mean_lower", "mean_upper"),
    *(COMPONENT + "mean", COMPONENT + "variance"),
)
"""Of predictions and components, the last two of several predictors alone."""
MISSING_CODE = -2  # a missing value among codes of levels that are text; -1 is a new level
Invalid = Literal["error", "nan"]
"""A request with rows that the model cannot take fails, or is answered by NaN in those rows."""


@dataclass(frozen=True)
class Input:
    """An argument of the signatures."""

    name: str
    dtype: tf.DType
    shape: tuple[int | None, ...]  # [None], or [None, D] of a matrix
    column: Column | None = None  # or a network input's key; None for a matrix of all columns
    fill: Any = None  # stands in for a missing value; None where none may be missing
    levels: tuple[Any, ...] = ()
    time: str = ""  # the kind of times that are days in it
    range: tuple[Any, Any] | None = None  # least and greatest value in the fit, where known

    @property
    def codes(self) -> dict[Any, int]:
        """The places of levels, and what an empty text is."""
        return {"": MISSING_CODE, **{level: i for i, level in enumerate(self.levels)}}

    def coded(self) -> Input:
        """The same as numbers for formats without text: 0, 1, ... for the levels."""
        if self.dtype != tf.string or not self.levels:
            return self
        fill = None if self.fill is None else self.codes[self.fill]
        return replace(self, dtype=tf.int64, fill=fill)

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        types = {"dtype": self.dtype.name, "shape": list(self.shape)}
        return {**vars(self), **types, "levels": list(self.levels) or None}


class Rows:
    """The rows of one request; ``plain``: one by one, by operations that every format has."""

    def __init__(self, invalid: Invalid, plain: bool = False) -> None:
        self.invalid, self.plain = invalid, plain
        self._bad: list[tf.Tensor] = []

    def require(self, values: tf.Tensor, bad: tf.Tensor, message: list[Any], other: Any) -> Any:
        """Values [N, ...]; bad rows [N] fail the request, or are ``other`` and not shown."""
        if self.invalid == "error":
            with tf.control_dependencies([tf.debugging.Assert(~tf.reduce_any(bad), message)]):
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
    return tf.reshape(bad, [-1 if i == axis else 1 for i in range(values.shape.rank)])


# --- predictions ---------------------------------------------------------------------------------


@dataclass
class Answers:
    """Predictions from a cached posterior of L predictors, sums of C components."""

    posterior: AdditivePosterior
    likelihood: Likelihood
    share: float = 1.0  # of the predictor's variance that the expected response averages over
    constants: Any = 0.0  # that components carry, in the response's unit, [C, L]
    # factors and shifts, [L] or [1], from the model's predictors to that unit
    units: tuple[AnyNDArray, AnyNDArray] = (np.ones(1), np.zeros(1))
    offsets: Sequence[int] = ()  # columns of X that are added to the first predictor
    stream: int = 0  # added to seeds of draws: those of several heads are independent

    def _single(self, values: Any) -> Any:
        return values[..., 0] if self.posterior.num_latent_gps == 1 else values

    def predict(self, X: tf.Tensor, level: float) -> dict[str, tf.Tensor]:
        """Moments of the predictor, [N] or [N, L], and the expected response, [N] or [N, K]."""
        # with credible intervals: of the response, and of several predictors of each
        likelihood, L = unwrapped(self.likelihood), self.posterior.num_latent_gps
        joint = self.posterior.couples_outputs
        mean, cov = self.posterior.predict_f(X, full_output_cov=joint)
        var = tf.maximum(tf.linalg.diag_part(cov) if joint else cov, 0.0)  # but for rounding
        mean, var = tf.ensure_shape(mean, [None, L]), tf.ensure_shape(var, [None, L])
        cov = tf.ensure_shape(cov, [None, L, L]) if joint else var
        summary = summarised_response(likelihood, X, mean, cov, level)
        response = summary.mean
        if self.share != 1.0:
            response = summarised_response(likelihood, X, mean, self.share * cov).mean
        half = float(norm.ppf(0.5 + 0.5 * level)) * tf.sqrt(var)
        ends = {"mean_lower": mean - half, "mean_upper": mean + half} if L > 1 else {}
        lines = {"mean": self._single(mean), **ends}
        return {
            **{name: _scaled(line, *self.units) for name, line in lines.items()},
            "variance": _scaled(self._single(var), self.units[0] ** 2),
            "response": response,
            "lower": summary.lower,
            "upper": summary.upper,
        }

    def predict_components(self, X: tf.Tensor, prefix: str = "") -> dict[str, tf.Tensor]:
        """``mean`` and ``variance`` of the components, [N, C] or [N, C, L]."""
        mean, var = self.posterior.predict_components(X)
        factor, _ = self.units
        mean = _scaled(mean, factor, self._single(np.atleast_2d(self.constants)))
        var = _scaled(tf.maximum(var, 0.0), factor**2)
        if self.offsets:  # which are known
            offset = tf.reduce_sum(tf.gather(X, self.offsets, axis=1), axis=1)
            first = tf.constant(factor[0] * np.eye(1, self.posterior.num_latent_gps), mean.dtype)
            added = self._single(offset[:, None, None] * first)
            mean = tf.concat([mean, added], axis=1)
            var = tf.concat([var, tf.zeros_like(added)], axis=1)
        return {prefix + "mean": mean, prefix + "variance": var}

    def sample(self, X: tf.Tensor, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Joint draws: ``predictor`` [S, N] or [S, N, L], ``response`` [S, N] or [S, N, K]."""
        F = self.posterior.sample_f(X, num_samples, seed=seed + self.stream)
        F = tf.ensure_shape(F, [None, None, self.posterior.num_latent_gps])
        response = conditional_response(unwrapped(self.likelihood), X, F)
        return {"predictor": _scaled(self._single(F), *self.units), "response": response}


def _scaled(values: tf.Tensor, factor: AnyNDArray, shift: AnyNDArray | float = 0.0) -> tf.Tensor:
    return tf.constant(shift, values.dtype) + tf.constant(factor, values.dtype) * values


class Servable(abc.ABC):
    """A fitted model as traced functions in double precision; constants are ``__init__``'s."""

    inputs: tuple[Input, ...]  # the arguments, in order
    heads: dict[str, Answers]  # by what their outputs' names begin with; "" of a single one
    about: dict[str, Any]  # facts for readers, as JSON can hold them
    heads_alone: Any = None  # makes what is behind a network, with examples of features as levels
    resources: Sequence[Any] = ()  # lookup tables and the like, which the file has to hold

    @abc.abstractmethod
    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> list[tf.Tensor]:
        """X [N, D] of each head, finite."""

    def by_tables(self) -> bool:
        """Predict from a GAM's tables from now on; False where there are none."""
        return False

    def each(
        self, answer: Callable[[Answers, tf.Tensor], dict[str, tf.Tensor]], X: Sequence[tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Outputs of all heads at their X, by their names."""
        outputs: dict[str, tf.Tensor] = {}
        for (head, answers), x in zip(self.heads.items(), X):
            part = {joined(head, key): value for key, value in answer(answers, x).items()}
            if twice := sorted(set(outputs) & set(part)):
                raise ValueError(f"model: two outputs would be called {twice[0]!r}; rename a head.")
            outputs |= part
        return outputs

    def traced(
        self,
        function: Callable[..., dict[str, tf.Tensor]],
        inputs: Sequence[Input],
        rows: Callable[[], Rows],
        more: Sequence[tf.TensorSpec] = (),
    ) -> Any:
        """The concrete function of inputs, and ``more``, by a function of their features."""
        specs = [*(tf.TensorSpec(i.shape, i.dtype, name=i.name) for i in inputs), *more]

        def call(**arguments: tf.Tensor) -> dict[str, tf.Tensor]:
            others = {spec.name: arguments.pop(spec.name) for spec in more}
            request = rows()
            outputs = function(self.features(arguments, request), **others)
            outputs = request.shown(outputs, axis=1 if more else 0)
            return {name: tf.cast(value, tf.float64) for name, value in outputs.items()}

        # nothing to convert, and autograph would go through all of check_shapes
        compiled = tf.function(call, autograph=False)
        return compiled.get_concrete_function(**{spec.name: spec for spec in specs})

    def described(self, inputs: Sequence[Input], **about: Any) -> dict[str, Any]:
        """Description stored in a file."""
        names = {  # offsets last
            head: [*answers.posterior.names, *([OFFSET] if answers.offsets else [])]
            for head, answers in self.heads.items()
        }
        return {
            "format": FORMAT,
            "gpflow_gam": __version__,
            **about,
            "inputs": [i.to_json() for i in inputs],
            "components": names.get("", names),
            **self.about,
        }


def joined(head: str, key: str) -> str:
    """The name of a head's output."""
    return f"{head}_{key}" if head else key


@functools.singledispatch
def servable(model: Any) -> Servable:
    """The model as something that can be exported."""
    raise TypeError(
        "model must be a fitted gpflow_gam.GAM, a gpflow_gam model with a posterior() "
        "(AdditiveSVGP, AdditiveSGPR, IterNCGP), or a keras.Model with heads of "
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
    used = {name.lower() for name in taken}
    first = sorted(plain, key=lambda c: plain[c] != c)  # whose own name will do
    names = {column: unused(plain[column], used) for column in first}
    return {column: names[column] for column in plain}


def unused(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken, whatever its capitals; it is taken then."""
    unique, number = name, 2
    while unique.lower() in taken:
        unique, number = f"{name}_{number}", number + 1
    taken.add(unique.lower())
    return unique


# --- models of a matrix --------------------------------------------------------------------------


@servable.register(AdditiveModel)
class ModelServable(Servable):
    """A trained model of a matrix X: AdditiveSVGP, AdditiveSGPR or IterNCGP."""

    def __init__(self, model: AdditiveModel) -> None:
        share = model.predictive_share() if isinstance(model, IterNCGP) else 1.0
        self.heads = {"": Answers(model.posterior(), model.likelihood, share=share)}
        name, ends = type(unwrapped(model.likelihood)).__name__, model.input_ends()
        self.about = {"kind": "model", "model": type(model).__name__, "likelihood": name}
        self.inputs = (Input("inputs", tf.float64, (None, len(ends[0])), range=ends),)

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> list[tf.Tensor]:
        what = "inputs must be finite; drop or impute the rows; first,"
        return [_finite(tf.cast(inputs["inputs"], tf.float64), what, rows)]


def _finite(values: tf.Tensor, what: str, rows: Rows) -> tf.Tensor:
    """Values [N] or [N, D] without NaN and infinite ones."""
    bad = ~tf.math.is_finite(values)
    bad = tf.reduce_any(bad, axis=1) if values.shape.rank == 2 else bad
    return rows.require(values, bad, [f"{what} row", tf.where(bad)[:1, 0]], 0.0)


# --- GAMs: the encoding of columns inside a graph ------------------------------------------------


def _within_range(values: tf.Tensor, column: NumericColumn, rows: Rows) -> tf.Tensor:
    if column.valid_range is None:
        return values
    low, high = column.valid_range
    bad = (values < low) | (values > high)
    what = [column.outside, tf.boolean_mask(values, bad)[:1], "in row", tf.where(bad)[:1, 0]]
    return rows.require(values, bad, what, 0.0)


class _Levels:
    """Levels to codes 0, 1, ..., as :class:`gpflow_gam.gam.frames.encoding.LevelColumn` does it."""

    def __init__(self, column: LevelColumn, source: Input) -> None:
        self.column, self.is_text = column, source.dtype == tf.string
        self.fill = None if source.fill is None else source.codes.get(source.fill, -1)
        self.table: tf.lookup.StaticHashTable | None = None
        if self.is_text:
            keys, codes = (tf.constant(list(part)) for part in zip(*source.codes.items()))
            pairs = tf.lookup.KeyValueTensorInitializer(keys, tf.cast(codes, tf.int64))
            self.table = tf.lookup.StaticHashTable(pairs, default_value=-1)

    def __call__(self, values: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Codes [N] in double precision of values [N], or of codes of levels that are text."""
        levels, number = self.column.levels, len(self.column.levels)
        if values.dtype == tf.bool:
            values = tf.cast(values, tf.int64)
        codes = values
        if self.table is not None and values.dtype == tf.string:
            codes = self.table.lookup(values)
        elif not self.is_text:
            same = tf.equal(values[:, None], np.array(levels, values.dtype.as_numpy_dtype))
            codes = tf.argmax(tf.cast(same, tf.int8), axis=1)
            none = tf.where(tf.equal(values, values), -1, MISSING_CODE)  # NaN is missing
            codes = tf.where(tf.reduce_any(same, axis=1), codes, tf.cast(none, codes.dtype))
        missing, what = tf.equal(codes, MISSING_CODE), f"column {self.column.name!r} has"
        if self.fill is None:
            message = [f"{what} missing values; leave those rows out", tf.where(missing)[:1, 0]]
            codes = rows.require(codes, missing, message, 0)
        else:
            codes = tf.where(missing, tf.constant(self.fill, codes.dtype), codes)
        new = (codes < 0) | (codes >= number)
        if self.column.unseen == "error":
            shown = ", ".join(map(repr, levels[:12])) + ", ..." * (number > 12)
            first, row = tf.boolean_mask(values, new)[:1], tf.where(new)[:1, 0]
            message = [f"{what} a level never seen in the fit, first", first, "in row", row]
            codes = rows.require(codes, new, [*message, f"the levels are {shown}"], 0)
        elif rows.plain:
            codes = tf.where(new, tf.constant(number, codes.dtype), codes)
        else:
            _, others = tf.unique(tf.boolean_mask(values, new), tf.int64)
            codes = tf.tensor_scatter_nd_update(codes, tf.where(new), number + others)
        return tf.cast(codes, tf.float64)


@servable.register(GAM)
class GAMServable(Servable):
    """A GAM, with an argument for each column, or one for a matrix of numbered columns."""

    def __init__(self, gam: GAM) -> None:
        self._fit = fit = gam.fitted
        spec = fit.spec
        check_columns(spec, "SavedModel")
        answers = Answers(fit.posterior, fit.model.likelihood, fit.predictive_share)
        # of each component, so that their sum is the predictor
        answers.constants = np.array([fit.constant_of(c) for c in spec.components])
        answers.units, answers.offsets = fit.units, [spec.place(c) for c in spec.offset]
        self.heads = {"": answers}
        self._fills = spec.encoder.fills(spec.fills)
        check_levels(spec.response, spec.levels or ())
        # what terms and offsets read: weights and the like are read by nobody
        read = {i for component in spec.components for i in component.columns}
        read |= set(answers.offsets)
        every = enumerate(spec.encoder.columns.items())
        self._columns = spec.encoder.columns
        self._readers = {key: reader for i, (key, reader) in every if i in read}
        names = list(dict.fromkeys(name for name, _ in self._readers))
        columns = variables_of(names)
        if not columns:
            raise ValueError(
                "gam: it reads no column, so that no request would say for how many rows; its "
                "prediction is one number, gam.predict(data)[0]."
            )
        arguments, keys = argument_names(columns), list(self._columns)
        self._ends: dict[Column, tuple[float, float]] = {}
        for m in (m for c in spec.components for m in c.margins if m.kind != "levels"):
            low, high = self._ends.get(keys[m.column][0], m.ends)
            self._ends[keys[m.column][0]] = min(low, m.ends[0]), max(high, m.ends[1])
        inputs = {c: self._input(c, arguments[c]) for c in columns}
        text = {c for c, i in inputs.items() if i.dtype == tf.string}
        for name in names:
            if isinstance(name, Expression) and (name.of_levels or text & set(name.variables)):
                raise ValueError(
                    f"gam: its formula makes {name} of levels, which no SavedModel holds; make "
                    "that column in the data, and name it."
                )
        self._levels = {
            name: _Levels(reader, inputs.get(name, Input(str(name), tf.float64, (None,))))
            for (name, _), reader in self._readers.items()
            if isinstance(reader, LevelColumn)
        }
        self.resources = [v.table for v in self._levels.values() if v.table is not None]
        self.about = {
            "kind": "GAM",
            "terms": [term.label for term in spec.terms],
            "family": spec.family.name,
            "response": spec.response,
            "predictors": list(spec.predictor_names),
            "classes": None if spec.levels is None else list(spec.levels),
            # of columns that terms name by their place, those and their names
            "places": [[c, spec.encoder.called.get(c)] for c in columns if isinstance(c, int)],
        }
        self.inputs = tuple(inputs.values())
        # a matrix holds neither text nor times, and whole numbers of so many digits
        plain = not text and not any(
            i.time or max(map(abs, i.levels), default=0) > 2**53 for i in inputs.values()
        )
        self.is_matrix = plain and all(isinstance(c, int) for c in columns)
        if self.is_matrix:
            width = 1 + max(c for c in columns if isinstance(c, int))
            ends = tuple(zip(*(self._ends.get(c, (0.0, 1.0)) for c in range(width))))
            self.inputs = (Input("inputs", tf.float64, (None, width), range=(ends[0], ends[1])),)

    def by_tables(self) -> bool:
        posterior: Any = TablePosterior.of(self._fit)
        self.heads = {"": replace(self.heads[""], posterior=posterior or self.heads[""].posterior)}
        return posterior is not None

    def _input(self, column: Column, name: str) -> Input:
        levels, number = (self._readers.get((column, kind)) for kind in ("level", "number"))
        known = tuple(levels.levels) if isinstance(levels, LevelColumn) else ()
        check_levels(column, known)
        dtype = input_dtype(column, known) if known and number is None else tf.float64
        time = number.time if isinstance(number, NumericColumn) else ""
        fill, ends = self._fills.get(column), self._ends.get(column)
        return Input(name, dtype, (None,), column, fill, known, time, ends)

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> list[tf.Tensor]:
        if self.is_matrix:
            raw = {c: inputs["inputs"][:, c] for c, _ in self._readers}
        else:
            raw = {i.column: inputs[i.name] for i in self.inputs if i.column is not None}

        def finite(values: tf.Tensor, column: Column) -> tf.Tensor:
            what = f"column {column!r} must be finite; got NaN or infinite values in"
            return _finite(tf.cast(values, tf.float64), what, rows)  # a comparison is a number

        def number(column: Column) -> tf.Tensor:
            values, fill = tf.cast(raw[column], tf.float64), self._fills.get(column)
            if fill is not None:
                missing = tf.math.is_nan(values)
                values = tf.where(missing, tf.constant(fill, tf.float64), values)
            return finite(values, column)

        zeros = tf.zeros(tf.shape(next(iter(raw.values())))[:1], tf.float64)
        parts = []
        for key, reader in self._columns.items():
            name = key[0]
            if key not in self._readers:
                parts.append(zeros)
                continue
            computed = name.evaluate(number, _function) if isinstance(name, Expression) else None
            if isinstance(reader, LevelColumn):
                parts.append(self._levels[name](raw[name] if computed is None else computed, rows))
            else:
                values = number(name) if computed is None else finite(computed, name)
                parts.append(_within_range(values, reader, rows))
        return [tf.stack(parts, axis=1)]


def _function(name: str) -> Any:
    """TensorFlow's function for a name in an expression."""
    base = {"log2": 2.0, "log10": 10.0}.get(name)
    if base is not None:
        return lambda x: tf.math.log(x) / tf.constant(np.log(base), x.dtype)
    return functools.partial(tf.cast, dtype=name) if name == "float64" else getattr(tf.math, name)


# --- Keras models with heads ----------------------------------------------------------------------


@servable.register(keras.Model)
class NetworkServable(Servable):
    """A network up to its heads' features, each an X, and the heads' posteriors behind it."""

    def __init__(self, model: keras.Model) -> None:
        self.model, self._tensors = model, _declared_inputs(model)
        self._flat = keras.Model(model.inputs, model.outputs)
        traced: list[HeadInput] = []
        compiled = tf.function(lambda *x: traced.extend(self._traced(x)), autograph=False)
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in self._tensors.values()]
        compiled.get_concrete_function(*specs)
        names = argument_names(t.head.name for t in traced)
        self.heads = {
            names[t.head.name] if len(traced) > 1 else "": _answers_of(t.head, 1_000_003 * i)
            for i, t in enumerate(traced)
        }
        self._layers, self._before = [t.head for t in traced], self._traced
        kinds = {n: type(unwrapped(h.likelihood)).__name__ for n, h in self.heads.items()}
        self.about = {"kind": "keras", "model": model.name, "likelihood": kinds.get("", kinds)}
        self.about |= {} if "" in kinds else {"heads": list(kinds)}
        self.resources = [
            value
            for layer in model._flatten_layers()
            for value in vars(layer).values()
            if isinstance(value, tf.saved_model.experimental.TrackableResource)
        ]
        arguments = argument_names(self._tensors)
        types = {key: tf.as_dtype(t.dtype) for key, t in self._tensors.items()}
        types = {key: tf.float64 if of.is_floating else of for key, of in types.items()}
        self.inputs = tuple(
            Input(arguments[key], types[key], (None, *t.shape[1:]), key)
            for key, t in self._tensors.items()
        )

    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> list[tf.Tensor]:
        pairs, result = zip(self.inputs, self._tensors.values()), []
        for traced in self._before([tf.cast(inputs[i.name], t.dtype) for i, t in pairs]):
            head, features, scaled = traced.head, traced.features, traced.head.scaled
            if rows.invalid == "nan":  # the head itself would fail
                features = rows.require(features, ~head.readable(features), [], 0.0)
                scaled = head.scaled_unchecked
            what = f"the features of {head.name} must be finite; look at the inputs of"
            result.append(_finite(scaled(features), what, rows))
        return result

    def heads_alone(self) -> Servable:
        part, seen = copy.copy(self), enumerate(head.like_seen(64) for head in self._layers)
        new = [Input(f"x{i}", tf.float32, (None, len(x.T)), levels=tuple(x)) for i, x in seen]
        part.inputs, part._tensors = tuple(new), {i.name: i for i in new}
        part._before = lambda values: list(map(HeadInput, self._layers, values))
        return part

    def _traced(self, values: Sequence[tf.Tensor]) -> list[HeadInput]:
        """What each head is given, in the order of the outputs; values of the inputs in order."""
        try:
            with trace_heads():
                outputs: list[Any] = keras.tree.flatten(self._flat(list(values), training=False))
        except Exception as error:  # layers have their own ways of taking no such input
            # without what Keras adds: colours, and the arguments
            said = re.sub("\x1b\\[[0-9;]*m", "", str(error)).split("Arguments received by")[0]
            said = " ".join(said.split()) or type(error).__name__
            raise ValueError(self._cannot(said)) from error
        for output in outputs:
            if not isinstance(output, HeadInput):
                raise ValueError(self._cannot("an output is not what a head returns"))
            times = sum(isinstance(o, HeadInput) and o.head is output.head for o in outputs)
            if times > 1:
                raise ValueError(self._cannot(f"{output.head.name} is called {times} times"))
        return outputs

    def _cannot(self, why: str) -> str:
        return (
            f"{self.model.name} has to return what its heads return of rows [N, F] and nothing "
            "else, each called once, outside of a tf.function, a loop or a condition; export "
            "keras.Model(inputs, head(features)), or without draws and components by "
            f"model.export(path). ({why})"
        )


def _answers_of(head: GPHead, stream: int) -> Answers:
    if not head.is_ready:
        raise ValueError(f"{head.name} does not know its features yet: call {head._first} first.")
    share, constants = float(head.predictive_share), np.asarray(head.constants())
    return Answers(head.posterior(), head.likelihood, share, constants, stream=stream)


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
        paths = [path for path, _ in keras.tree.flatten_with_path(inputs)]
        keys = ["/".join(str(part) for part in path) for path in paths]
        return dict(zip(keys, tensors, strict=True))
    return {t.name: t for t in tensors}
