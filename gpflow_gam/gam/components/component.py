"""What the data settle about a component before any kernel is built."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from gpflow.base import AnyNDArray

NUM_INDUCING = {1: 24, 2: 36}
"""How many inducing inputs a component has unless told, by its number of columns; 50 beyond."""

Form = Literal[
    "constant",
    "smooth",
    "tensor",
    "interaction",
    "line",
    "levels",
    "means",
    "random",
    "own",
    "curves",
    "deviations",
    "areas",
]


@dataclasses.dataclass(frozen=True)
class Margin:
    """
    One column of a component.

    :param column: its place in X.
    :param kind: the kind of kernel: one of ``bs``, or ``"levels"``.
    :param span: its natural length, in its own unit: what a lengthscale is compared with.
    :param centre: its mean.
    :param period: of a cyclic one.
    :param nodes: values that stand for its distribution, [Q]; the component averages to zero over
        them.
    :param weights: their probabilities, [Q].
    :param ends: of numbers, the least and the greatest value of rows on which the component acts.
    :param breaks: of the splines that a function with a shape is made of.
    :param shape: what the function is along it, ``"increasing"`` for one; empty for anything.
    """

    column: int
    kind: str
    span: float = 1.0
    centre: float = 0.0
    period: float | None = None
    nodes: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    ends: tuple[float, float] = (0.0, 0.0)
    breaks: tuple[float, ...] = ()
    shape: str = ""


@dataclasses.dataclass(frozen=True)
class By:
    """
    What multiplies a component.

    :param column: its place in X.
    :param code: the code of the level on which the component acts; None for a number that
        multiplies it.
    :param level: that level as text.
    :param size: the root mean square of the number.
    """

    column: int
    code: int | None = None
    level: str = ""
    size: float = 1.0


@dataclasses.dataclass(frozen=True)
class Component:
    """
    One component of the predictor, ready to be built; all of it is JSON.

    :param name: its name in the model, unique.
    :param term: the label of the term it comes from; empty for the intercept.
    :param form: what sort of function it is.
    :param margins: its columns.
    :param by: what multiplies it.
    :param nodes: rows that stand for the joint distribution of its columns, [Q, d]; empty where
        each margin has its own.
    :param weights: their probabilities.
    :param inducing: inducing inputs [M, d], in the order of the margins.
    :param predictors: places of the predictors that it enters; empty for all.
    :param edges: pairs of areas that are neighbours, by their codes.
    :param knots: where the speed of an adaptive function is learnt.
    :param shrink: of a line or levels, whether their variance is learnt, not large and fixed.
    :param select: of a smooth, whether it shall vanish where it is not there.
    :param independent: whether areas have independent effects, too. Where each has a row of its
        own these cannot be told from the noise.
    """

    name: str
    term: str
    form: Form
    margins: tuple[Margin, ...] = ()
    by: By | None = None
    nodes: tuple[tuple[float, ...], ...] = ()
    weights: tuple[float, ...] = ()
    inducing: tuple[tuple[float, ...], ...] = ()
    predictors: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    knots: tuple[float, ...] = ()
    shrink: bool = True
    select: bool = False
    independent: bool = True

    @property
    def carries_constant(self) -> bool:
        """Whether the predictor's constant is part of it."""
        return self.form in ("constant", "means")

    @property
    def shape(self) -> str:
        """What the function is along one of its columns; empty for anything."""
        return next((m.shape for m in self.margins if m.shape), "")

    def predictors_of(self, number: int) -> list[int]:
        """Places of the predictors that it enters, of so many."""
        return list(self.predictors) or list(range(number))

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of X it reads, ``by`` last."""
        own = tuple(m.column for m in self.margins)
        return own if self.by is None else (*own, self.by.column)

    def full(self, points: AnyNDArray, width: int) -> AnyNDArray:
        """Rows of X at which the component is the function itself."""
        X = np.zeros((len(points), width))
        for i, margin in enumerate(self.margins):
            X[:, margin.column] = points[:, i]
        if self.by is not None:
            X[:, self.by.column] = 1.0 if self.by.code is None else self.by.code
        return X

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it: Python writes floats so that they read back to the last bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Component:
        """What :meth:`to_json` wrote."""

        def frozen(v: Any) -> Any:
            return tuple(frozen(x) for x in v) if isinstance(v, list) else v

        fields = {name: frozen(v) for name, v in value.items() if name not in ("margins", "by")}
        margins = tuple(Margin(**{k: frozen(v) for k, v in m.items()}) for m in value["margins"])
        by = None if value["by"] is None else By(**value["by"])
        return cls(margins=margins, by=by, **fields)
