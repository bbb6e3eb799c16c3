"""What a model has to provide to be exported."""

from __future__ import annotations

import abc
import dataclasses
import functools
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from ..gam.terms import Column
from .rows import Rows

RESERVED = ("seed", "num_samples")
"""Arguments of the ``sample`` signature besides the inputs."""


@dataclasses.dataclass(frozen=True)
class Input:
    """
    An argument of the signatures.

    :param name: what TensorFlow calls it.
    :param dtype: float64 for numbers, of which single precision is accepted too.
    :param shape: [None], or [None, D] of a matrix.
    :param meaning: in words.
    :param column: the column of the data that it takes, or the key of a network's input; None for
        a matrix of all columns.
    :param fill: what stands in for a missing value; None where none may be missing.
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
        """
        Its signature, with numbers in single precision on demand.

        :param single: numbers in single precision, whole ones and text as they are.
        """
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


class Servable(abc.ABC):
    """
    A fitted model as functions of tensors.

    Everything is traced into graphs, with no Python left; ``features`` takes the inputs' dtypes as
    they come, numbers in single or double precision, and everything else is in double precision.
    Tensors that do not depend on the inputs belong in ``__init__``.
    """

    kind: ClassVar[str]
    """What was exported, for the description."""

    inputs: tuple[Input, ...]
    """The arguments, in order."""

    names: tuple[str, ...]
    """The components."""

    heads: tuple[str, ...] = ()
    """What outputs are called by, with ``_`` behind, where there are several of each."""

    @abc.abstractmethod
    def features(self, inputs: Mapping[str, tf.Tensor], rows: Rows) -> Any:
        """
        X [N, D], finite; several of them in a tuple where other methods take such.

        :param inputs: the arguments, by name.
        :param rows: are told which rows hold what the model cannot take.
        """

    @abc.abstractmethod
    def predict(self, X: Any, level: float, plain: bool = False) -> dict[str, tf.Tensor]:
        """
        ``mean`` and ``variance`` of the predictor, [N] or [N, L]; ``response``, ``lower`` and
        ``upper``, the expected response and its credible limits, [N] or [N, K]; of several
        predictors ``mean_lower`` and ``mean_upper``, limits of each, [N, L].

        :param X: as :meth:`features` gives it, [N, D].
        :param level: probability of the limits.
        :param plain: without loops, which not every format has.
        """

    @abc.abstractmethod
    def components(self, X: Any) -> dict[str, tf.Tensor]:
        """
        ``mean`` and ``variance`` of the components, [N, C] or [N, C, L].

        :param X: as :meth:`features` gives it, [N, D].
        """

    @abc.abstractmethod
    def sample(self, X: Any, num_samples: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """
        Joint draws: ``predictor`` [S, N] or [S, N, L], ``response`` [S, N] or [S, N, K].

        :param X: as :meth:`features` gives it, [N, D].
        :param num_samples: S, a scalar.
        :param seed: a scalar; equal ones give equal draws.
        """

    def meaning(self, output: str, meanings: Mapping[str, str]) -> tuple[str, str]:
        """
        The head of an output, empty where there is one of all, and what the output is.

        :param output: its name.
        :param meanings: what outputs are called without their heads.
        """
        for head in sorted(self.heads, key=len, reverse=True):  # a name may begin with another
            name = output.removeprefix(f"{head}_")
            if name != output and name in meanings:
                return f"{head}_", name
        return "", output

    def resources(self) -> list[Any]:
        """Lookup tables and the like, which the file has to hold besides variables."""
        return []

    def description(self) -> dict[str, Any]:
        """What else readers should know, as JSON can hold it."""
        return {}


@functools.singledispatch
def servable(model: Any) -> Servable:
    """
    The model as something that can be exported; ``servable.register`` teaches it another kind.

    :param model: fitted: a GAM, a GPflow model, a posterior or a Keras model.
    :raises TypeError: nothing is known about such models.
    """
    if isinstance(model, Servable):
        return model
    raise TypeError(
        "model must be a fitted gpflow_gam.GAM, a gpflow_gam model with a posterior() "
        "(AdditiveSVGP, AdditiveSGPR, AdditiveVGP, IterNCGP), or a keras.Model with heads of "
        f"gpflow_gam.layers; got {type(model).__name__}."
    )


def argument_names(columns: Iterable[Column], taken: Iterable[str] = RESERVED) -> dict[Column, str]:
    """
    Names that TensorFlow, C and Python accept: other characters become ``_``.

    Names that begin otherwise than with a letter, Python's keywords and ``self`` get ``x_`` in
    front; names that differ in capitals alone, which TensorFlow confuses, get a number behind.

    :param columns: or names of another kind.
    :param taken: names that mean something else.
    """
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
