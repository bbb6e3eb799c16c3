"""Linear terms, factors, random effects, and columns that ``formulaic`` makes of a formula."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from typing import Any, ClassVar

from ...errors import check_choice
from ...priors import Prior, checked_priors
from .base import FUNCTIONS as ROWWISE
from .base import (
    LEARNT,
    Column,
    Expression,
    Term,
    as_column,
    checked_columns,
    outside_quotes,
)

UNSEEN = ("error", "prior")


@dataclasses.dataclass(frozen=True, repr=False)
class _OneColumn(Term):
    column: Column

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", checked_columns(self.function, (self.column,))[0])

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)


@dataclasses.dataclass(frozen=True, repr=False)
class Variable(_OneColumn):
    """A column that stands alone in a formula: a line of numbers, or a factor of levels."""

    function: ClassVar[str] = ""

    @property
    def label(self) -> str:
        return f"{self.parameter}:{self.column}" if self.parameter else str(self.column)

    def resolved(self, is_levels: bool) -> Term:
        """The term that it is, once data have said what the column holds."""
        term = factor(self.column) if is_levels else linear(self.column)
        return dataclasses.replace(term, parameter=self.parameter)

    def __repr__(self) -> str:
        return str(self.column)


@dataclasses.dataclass(frozen=True, repr=False)
class Linear(_OneColumn):
    """A straight line: see :func:`linear`."""

    function: ClassVar[str] = "linear"
    shrink: bool = False

    @property
    def shrinks(self) -> bool:
        return self.shrink


@dataclasses.dataclass(frozen=True, repr=False)
class Levels(_OneColumn):
    """An effect for each level of a column: see :func:`factor`."""

    function: ClassVar[str] = "factor"
    unseen: str = "error"
    shrink: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(f"{self.function}(): unseen", self.unseen, UNSEEN)

    @property
    def shrinks(self) -> bool:
        return self.shrink or self.unseen == "prior"  # as new levels need it


@dataclasses.dataclass(frozen=True, repr=False)
class RandomEffect(Levels):
    """Exchangeable normal effects: see :func:`random_effect`."""

    function: ClassVar[str] = "random_effect"
    unseen: str = "prior"
    by_: Column | Term | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by_ is not None:
            by = as_column(self.by_)
            if by is None:
                raise TypeError(
                    f"random_effect(): by must name a numeric column; got {self.by_!r}."
                )
            object.__setattr__(self, "by_", by)

    @property
    def by(self) -> Column | Term | None:
        return self.by_

    @property
    def shrinks(self) -> bool:
        return True


def linear(column: Column, *, shrink: bool = False) -> Linear:
    """
    A straight line in a numeric column, zero at the column's mean.

    Its slope is not penalised: the prior's standard deviation lets the line rise over the column's
    span by thirty times the predictor's natural size, which only keeps slopes finite that the
    data do not determine. ``gam.coefficients()`` shows the slope in the column's unit.

    :param column: its name or index.
    :param shrink: whether the variance of the slope's normal prior is learnt from the data, as in
        ridge regression: what the data leave open is drawn towards zero, and standard errors are
        those of the shrunk slope.
    """
    return Linear(column, shrink)


def factor(column: Column, *, unseen: str = "error", shrink: bool = False) -> Levels:
    """
    An effect for each level of a column, zero on average over the data.

    Effects are not penalised: their prior's standard deviation is thirty times the predictor's
    natural size, which only keeps effects finite that the data do not determine, such as those of a
    level whose binary responses are all alike.

    :param column: its name or index; text, categories, truth values or numbers as codes.
    :param unseen: what to do at prediction with a level that was not there: ``"error"``, or
        ``"prior"`` for an effect of zero with the prior's variance, which is then learnt as with
        ``shrink``.
    :param shrink: whether the effects' variance is learnt from the data, which draws them towards
        zero. :func:`random_effect` does the same without centring them.
    """
    return Levels(column, unseen, shrink)


def random_effect(
    *columns: Column,
    unseen: str = "prior",
    by: Column | Term | None = None,
    prior: Prior | tuple[Prior, ...] | None = None,
) -> RandomEffect:
    """
    Independent normal effects with one learnt variance for the levels of a column.

    They are not forced to average to zero: a new level is as uncertain as the levels differ.

    :param columns: a column's name or index. Of several columns, each combination of their levels
        has an effect: for plots within sites add ``random_effect("site", "plot")`` to
        ``random_effect("site")``.
    :param unseen: as in :func:`factor`.
    :param by: a numeric column: each level gets a slope in it instead of an intercept.
    :param prior: of the standard deviation of effects: see :mod:`gpflow_gam.priors`.
    :raises TypeError: what is no column.
    :raises ValueError: no column, or one twice.
    """
    names = checked_columns("random_effect", columns)
    column = names[0] if len(names) == 1 else Expression.crossed(names)
    own = checked_priors("random_effect", prior)
    return RandomEffect(column, unseen, by_=by, prior=own)


FUNCTIONS = (*ROWWISE, *LEARNT, "I", "C")
"""Functions that a formula may call. A formula is text, also from a file: no other code runs."""

_ALLOWED = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp,
    ast.Compare, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_CONSTANT = ("Intercept", "1")  # names of the intercept in formulaic
_FACTOR = re.compile(r"\bfactor\s*\(")
_SPLINES = ("bs", "cr", "cc", "cs", "ns")


@dataclasses.dataclass(frozen=True, repr=False)
class Transformed(Term):
    """Columns made of others, ``log(x)``, ``poly(x, 3)``, ``a*b``, which become lines."""

    function: ClassVar[str] = "transformed"
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", respelled(self.text))
        variables_of(self.text)

    @property
    def columns(self) -> tuple[Column, ...]:
        return variables_of(self.text)

    @property
    def label(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        return {"term": self.function, "columns": [self.text]}

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, repr=False)
class AllColumns(Term):
    """``.``: a line or a factor for each column that is not named elsewhere."""

    function: ClassVar[str] = "."
    without: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        return ()

    @property
    def label(self) -> str:
        return "."

    def to_json(self) -> dict[str, Any]:
        return {"term": self.function, "columns": list(self.without)}

    def __repr__(self) -> str:
        return " - ".join([".", *map(str, self.without)])


def respelled(text: str) -> str:
    """A formula as ``formulaic`` spells it, to which ``^`` is ``**``, but not inside I()."""
    return outside_quotes(text, lambda part: _FACTOR.sub("C(", part).replace("^", "**"))


@functools.lru_cache(256)
def variables_of(text: str) -> tuple[str, ...]:
    """The columns that a formula's right-hand side reads."""
    result: dict[str, None] = {}
    called: set[str] = set()
    for term in parsed(text):
        for factor in term.factors:
            if factor.eval_method.value == "literal":
                continue
            if factor.eval_method.value == "lookup":
                if str(term) in _CONSTANT:
                    raise ValueError(
                        f"formula {text!r}: {str(term)!r} is what the constant is called there; "
                        "rename the column."
                    )
                result[factor.expr] = None
                continue
            names, own = _names(factor.expr, text)
            result |= dict.fromkeys(names)
            called |= own
    if not result:
        raise ValueError(f"formula {text!r} reads no column.")
    taken = [name for name in result if name in called]
    if taken:
        raise ValueError(
            f"formula {text!r}: {taken[0]!r} is the name of a column and of a function there; "
            "rename the column."
        )
    return tuple(result)


def levels_of(text: str) -> tuple[set[str], set[str]]:
    """The columns of a right-hand side that ``C()`` takes as levels, and those read without it."""
    levels: set[str] = set()
    others = {f.expr for t in parsed(text) for f in t.factors if f.eval_method.value == "lookup"}
    for factor in (f for t in parsed(text) for f in t.factors if f.eval_method.value == "python"):
        names, functions = _names(factor.expr, text)
        (levels if "C" in functions else others).update(names)
    return levels, others


def parsed(text: str, constant: bool = False) -> Any:
    """A formula's right-hand side as ``formulaic`` has it."""
    import formulaic
    from formulaic.errors import FormulaicError
    from formulaic.parser import DefaultFormulaParser

    try:
        # without "- 1", which would take away a column that is called 1
        parser = DefaultFormulaParser(include_intercept=constant)
        result = formulaic.Formula(text, _parser=parser)
    except (FormulaicError, SyntaxError):
        result = None
    if not isinstance(result, formulaic.SimpleFormula):
        raise ValueError(
            f"formula {text!r} cannot be read; write columns made of others as log(x), "
            "poly(x, 3), a*b or a:b."
        )
    return result


def _names(expression: str, text: str) -> tuple[list[str], set[str]]:
    """The columns that Python code of a formula reads, and the functions that it calls."""
    from formulaic.utils.code import sanitize_variable_names

    named: dict[str, str] = {}
    try:
        # as formulaic does before it evaluates: another idea of which backticks belong together,
        # and which are in quotes, would let code pass for a name
        tree = ast.parse(sanitize_variable_names(expression, {}, named), mode="eval")
    except SyntaxError:
        raise ValueError(f"formula {text!r} cannot be read near {expression!r}.") from None
    called, functions = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            raise ValueError(
                f"formula {text!r}: {ast.unparse(node)!r} is not understood; put the names of "
                "columns with dots between backticks."
            )
        odd = isinstance(node, ast.Constant) and "`" in str(node.value)
        if odd or not isinstance(node, _ALLOWED):
            raise ValueError(f"formula {text!r}: {expression!r} is not understood.")
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
            if name in _SPLINES:
                raise ValueError(
                    f"formula {text!r}: {name}() is a spline's basis; for a smooth curve write s()."
                )
            if name not in FUNCTIONS:
                known = ", ".join(FUNCTIONS)
                raise ValueError(f"formula {text!r}: {name}() is no transform; there are {known}.")
            if name == "C" and (len(node.args) != 1 or not isinstance(node.args[0], ast.Name)):
                raise ValueError(f"formula {text!r}: C() takes a column; got {expression!r}.")
            called.add(id(node.func))
            functions.add(name)
    names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
    return [named.get(name, name) for name in names], functions
