"""Interface of models that can be exported."""

from __future__ import annotations

import abc
import dataclasses
import functools
import keyword
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf
from gpflow.likelihoods import Likelihood
from scipy.stats import norm

from ..gam.terms import Column
from ..likelihoods.base import unwrapped
from ..likelihoods.predictive import conditional_response, expected_response, summarised_response
from ..models import AdditiveModel, IterNCGP
from ..posteriors import AdditivePosterior

FORMAT = 1
"""Raised when older code could no longer read the description."""
DESCRIPTION = Path("assets.extra") / "gpflow_gam.json"
"""The description's place in a SavedModel."""
RESERVED = ("seed", "num_samples")
"""Arguments of the ``sample`` signature besides the inputs."""
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

    kind: ClassVar[str]
    """For the description."""

    inputs: tuple[Input, ...]
    """The arguments, in order."""

    names: tuple[str, ...]
    """The components."""

    heads: tuple[str, ...] = ()
    """Names that outputs begin with, before ``_``, where there are several of each."""

    @abc.abstractmethod
    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> Any:
        """X [N, D], finite; several of them in a tuple where other methods take such."""

    @abc.abstractmethod
    def predict(self, X: Any, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        """
        ``mean`` and ``variance`` of the predictor, [N] or [N, L]; ``response``, ``lower`` and
        ``upper``, the expected response and its credible interval, [N] or [N, K]; of several
        predictors ``mean_lower`` and ``mean_upper``, intervals of each, [N, L].

        ``plain`` is without loops, which not every format has.
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


LINES = ("mean", "mean_lower", "mean_upper")
"""Answers that are values of predictors."""


class PosteriorAnswers:
    """
    Predictions from a likelihood and a cached posterior, of whose variance classes count a
    share.
    """

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

    def predict(self, X: tf.Tensor, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        joint = self.posterior.couples_outputs
        mean, cov = self.posterior.predict_f(X, full_output_cov=joint)
        var = _rounded(tf.linalg.diag_part(cov) if joint else cov)
        shape = [None, self.num_predictors]
        mean, var = tf.ensure_shape(mean, shape), tf.ensure_shape(var, shape)
        cov = tf.ensure_shape(cov, [*shape, self.num_predictors]) if joint else var
        summary = summarised_response(
            self.likelihood, X, mean, cov, level, seed=self.seed, in_blocks=not plain
        )
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


class PosteriorServable(PosteriorAnswers, Servable):
    """Something to be exported that has one posterior and one likelihood."""


def _rounded(var: tf.Tensor) -> tf.Tensor:
    """Variances without the negative ones of rounding."""
    return tf.maximum(var, tf.zeros([], var.dtype))


class ModelServable(PosteriorServable):
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


@servable.register(AdditiveModel)
def _model(model: AdditiveModel) -> ModelServable:
    return ModelServable(model)
