"""What a GAM is, apart from its parameters' values."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Collection
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ..components import Component
from ..components.priors import PRIORS, VariancePriors
from ..families import Family
from ..frames import Design, Encoder, Fill
from ..terms import (
    Column,
    Expression,
    Levels,
    Linear,
    Smooth,
    Surv,
    Term,
    Terms,
    Variable,
    parse_formula,
    variables_of,
)
from ..terms.base import column_of

_TYPED = re.compile(
    r"(?:(?P<parameter>\w+):)?(?P<call>\w*\(.*\)|[^:()=]+)(?::(?P<by>[^=]+)(?:=(?P<level>.+))?)?"
)
"""A term as it is typed, or its label: perhaps of a parameter, and perhaps with a column by it."""


@dataclasses.dataclass(frozen=True)
class Specification:
    """
    Everything that the model is built from, but the data and the parameters' values.

    :param terms: the terms.
    :param family: the response's distribution.
    :param response: the response's name, or the first column of a censored one.
    :param levels: its levels, where it has any.
    :param encoder: how columns become X.
    :param components: the components, the intercept first where there is one.
    :param scale: the predictor's natural size.
    :param constant: the null model's predictor, [L]; zero where nothing has a constant.
    :param offset: offset columns.
    :param weights: the column of weights.
    :param trials: the column of binomial trials.
    :param variational: the family of q(U), ``"exact"`` for the collapsed one.
    :param fills: what stands in for missing values, with ``missing="impute"``.
    :param design: the columns that a formula makes of others.
    :param censoring: both columns of a censored response.
    :param priors: of variances.
    :param away: how far the null model's predictor is from zero where nothing has a constant.
    :param fine: names of components whose sums over rows are at nodes for rougher functions than
        usual ones.
    """

    terms: Terms
    family: Family
    response: Column
    levels: tuple[Any, ...] | None
    encoder: Encoder
    components: tuple[Component, ...]
    scale: float
    constant: tuple[float, ...]
    offset: tuple[Column, ...] = ()
    weights: Column | None = None
    trials: Column | None = None
    variational: str = "exact"
    fills: tuple[Fill, ...] = ()
    design: Design | None = None
    censoring: Surv | None = None
    priors: VariancePriors = PRIORS
    away: float = 0.0
    fine: tuple[str, ...] = ()

    @property
    def own_kernels(self) -> dict[str, Kernel]:
        """Users' own kernels, by the label of their term."""
        return {
            t.label: t.kernel for t in self.terms if isinstance(t, Smooth) and t.kernel is not None
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The components' names, the intercept first where there is one."""
        return tuple(c.name for c in self.components)

    @property
    def effects(self) -> tuple[Component, ...]:
        """The components but for the intercept."""
        return tuple(c for c in self.components if c.form != "constant")

    @property
    def effect_names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(c.name for c in self.effects)

    @property
    def intercept(self) -> str | None:
        """The intercept's name; None where there is none."""
        return next((c.name for c in self.components if c.form == "constant"), None)

    def has_constant(self, names: Collection[str]) -> AnyNDArray:
        """
        Whether one of some components carries the constant of each predictor, [L].

        :param names: of components.
        """
        found = np.zeros(len(self.constant), dtype=bool)
        for c in self.components:
            if c.carries_constant and c.name in names:
                found[c.predictors_of(len(found))] = True
        return found

    @property
    def predictor_names(self) -> tuple[str, ...]:
        """What the predictors are called; one empty name where there is one."""
        return self.family.predictor_names(self.levels)

    @property
    def inputs(self) -> list[Column]:
        """The columns that a prediction reads, by name."""
        return self.inputs_of(self.names)

    def inputs_of(self, names: Collection[str]) -> list[Column]:
        """
        The columns that some of the components read, and those of offsets.

        :param names: of components.
        """
        keys = list(self.encoder.columns)
        own = [keys[i][0] for c in self.components if c.name in names for i in c.columns]
        design = self.design
        if design is not None and set(own) & set(design.made):
            own = [*(name for name in own if name not in design.made), *design.variables]
        return variables_of([*own, *self.offset])

    @property
    def dependent(self) -> list[str]:
        """What a formula makes of columns that are read otherwise as well."""
        names = dict.fromkeys(name for name, _ in self.encoder.columns)
        found = [] if self.design is None else [self.design.text]
        for name in names:
            others = variables_of(other for other in names if other != name)
            if isinstance(name, Expression) and set(name.variables) & set(others):
                found.append(str(name))
        return found

    def place(self, column: Column) -> int:
        """
        Where in X a numeric column stands.

        :param column: by name.
        """
        return self.encoder.index(column, "number")

    def component(self, name: str) -> Component:
        """
        The one component that is asked for by ``name``.

        :param name: as of :meth:`called`.
        :raises ValueError: there is none, or there are several, one a level.
        :raises TypeError: that is no name.
        """
        if not isinstance(name, str):
            raise TypeError(
                f"an effect is asked for by its name, a string; got {name!r}; there are "
                f"{', '.join(self.effect_names)}."
            )
        found = self.called(name)
        if len(found) > 1:
            names = ", ".join(c.name for c in found)
            raise ValueError(f"{name!r} is several effects, one a level; ask for one of {names}.")
        return found[0]

    def called(self, name: str | Term) -> tuple[Component, ...]:
        """
        The components that are asked for by a name: one, or those of all levels of a term.

        A name that none has exactly is read as a formula has it: ``s(g, bs="re")`` and ``s(g)`` are
        ``random_effect(g)``, where no other term is of the same columns.

        :param name: of an effect, the label of a term, either as it was typed, or a term.
        :raises ValueError: there is none.
        """
        label = name.label if isinstance(name, Term) else name
        found = [c for c in self.components if c.name == label]
        found = found or [c for c in self.effects if c.term == label]
        found = found or self._typed(name)
        if not found:
            every, meant = ", ".join(self.effect_names), self._meant(label)
            raise ValueError(f"there is no effect {label!r}; there are {every}.{meant}")
        return tuple(found)

    def _typed(self, name: str | Term) -> list[Component]:
        """The components of the only term of the same columns as ``name``; none otherwise."""
        asked, parameter, by, level = name, None, None, None
        if isinstance(name, str):
            parts = _TYPED.fullmatch(_plain(name))
            if parts is None:
                return []
            try:
                (asked,) = parse_formula(parts["call"]).terms
            except (TypeError, ValueError):  # no term
                return []
            parameter, by, level = parts["parameter"], parts["by"], parts["level"]
        assert isinstance(asked, Term)
        key, parameter = _columns(asked, by), parameter or asked.parameter
        alike = [t for t in self.terms if _columns(t) == key]
        alike = [t for t in alike if parameter in ("", t.parameter)]
        if isinstance(asked, Variable):  # a column that stands alone is a line or a factor
            alike = [t for t in alike if isinstance(t, (Linear, Levels))]
        own = [t for t in alike if t.function == asked.function] or alike
        if len(own) != 1:
            return []
        found = [c for c in self.effects if c.term == own[0].label]
        if level:  # without its spaces, as here
            found = [c for c in found if c.by is not None and _plain(c.by.level) == level]
        return found

    def _meant(self, name: str) -> str:
        """A question after an effect of that column or, in short, of that name; or nothing."""
        names = self.effect_names
        keys = list(self.encoder.columns)
        reads = {c.name: {str(keys[i][0]) for i in c.columns} for c in self.effects}
        found = [n for n in names if reads[n] == {name}] or [n for n in names if name in reads[n]]
        found = found or [n for n in names if n.startswith(f"{name}:")]
        found = found or [n for n in names if len(name) > 1 and name in n]
        found = found or difflib.get_close_matches(name, names, n=1)
        return f" Did you mean {found[0]!r}?" if found else ""

    def term(self, label: str) -> Term:
        """
        The term with a label.

        :param label: of a term of this fit.
        """
        return next(t for t in self.terms if t.label == label)


def _columns(term: Term, by: str | None = None) -> tuple[frozenset[str], str]:
    """What a term is of, as text without spaces: its columns and ``by``, empty for none."""
    other = column_of(term.by) if by is None and term.by is not None else by or ""
    return frozenset(_plain(c) for c in term.columns), _plain(other)


def _plain(name: Column) -> str:
    """Without spaces."""
    return re.sub(r"\s", "", str(name))
