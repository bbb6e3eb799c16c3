"""Columns, expressions of them, and terms: values that know no data."""

from __future__ import annotations

import abc
import ast
import dataclasses
import functools
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import check_choice, plain_number
from ...priors import Prior

if TYPE_CHECKING:
    import pandas as pd

# --- columns that a formula computes from others, row by row: ``s(log(x))`` -----------------------


Column = str | int
"""A column's name, or its index where the data are an array."""

FUNCTIONS = ("log", "log10", "log2", "log1p", "exp", "expm1", "sqrt", "sin", "cos", "tan", "abs")
"""Functions of one number that an expression may call."""
LEARNT = ("poly", "center", "scale", "standardize")
"""Other functions that the parametric part of a formula may call."""
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.USub: "neg"}
_BY_OTHERS: dict[str, Callable[..., Any]] = {
    "neg": lambda x: ["-", 0.0, x],
    "log2": lambda x: ["/", ["log", x], math.log(2.0)],
    "log10": lambda x: ["/", ["log", x], math.log(10.0)],
    "log1p": lambda x: ["log", ["+", 1.0, x]],
    "expm1": lambda x: ["-", ["exp", x], 1.0],
}
"""What trees say by fewer functions."""
_NAMES = tuple(word for word in keyword.kwlist if word not in ("True", "False", "None"))
_HIDE = re.compile(
    rf"'[^']*'|\"[^\"]*\"|`([^`]*)`|\b({'|'.join(_NAMES)}|[^\W\d]\w*\.\d[\w.]*)\b|(\^)"
)
"""
Text in quotes, which stays; names between backticks; names that Python keeps, or cannot have; and
R's sign for powers, which Python reads as another operator, after sums.
"""
QUOTED = re.compile(r"('[^']*'|\"[^\"]*\"|`[^`]*`)")
_HIDDEN = re.compile(r"_quoted_([0-9a-f]*)_")


class Expression(str):
    """The text of an expression of columns, numbers and levels, which also names its column."""

    __slots__ = ()

    @classmethod
    def crossed(cls, columns: Iterable[Column]) -> Expression:
        """Expression for the combinations of levels of several columns."""
        return cls(":".join(quoted(str(c)) for c in columns))

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns whose levels it combines; empty for arithmetic."""
        return _parsed(self)[0]

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.parts or _parsed(self)[2]

    @property
    def of_levels(self) -> bool:
        """True if it combines levels, or compares with one."""
        node = _parsed(self)[1]
        return node is None or any(
            isinstance(part, ast.Constant) and isinstance(part.value, str)
            for part in ast.walk(node)
        )

    def evaluate(self, column: Callable[[str], Any], function: Callable[[str], Any]) -> Any:
        node = _parsed(self)[1]
        assert node is not None
        return _evaluated(node, column, function)

    def tree(self, column: Callable[[str], Any]) -> Any:
        """The arithmetic as lists of a sign or function and its arguments; KeyError of others."""

        def applied(name: str) -> Callable[..., Any]:
            return _BY_OTHERS.get(name, lambda *arguments: [name, *arguments])

        node, signs = _parsed(self)[1], {kind: applied(sign) for kind, sign in _SIGNS.items()}
        assert node is not None
        return _evaluated(node, column, applied, signs)


class Lags(Expression):
    """A column's values in earlier rows, of which a table makes an array a row."""

    over: Column
    first: int
    last: int
    group: Column | None
    time: Column | None
    step: float | str | None

    @classmethod
    def of(cls, over: Column, first: int, last: int, *others: Any) -> Lags:
        result = cls(f"lag({over}, {first}, {last})")
        result.over, result.first, result.last = over, first, last
        result.group, result.time, result.step = others
        return result

    parts = ()
    of_levels = False

    @property
    def variables(self) -> tuple[Column, ...]:  # type: ignore[override]
        named = (self.over, self.group, self.time)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def number(self) -> int:
        return self.last - self.first + 1


def variables_of(columns: Iterable[Column], lags: bool = False) -> list[Column]:
    """The columns that data must have for these to be read, each once; with ``lags`` these, too."""
    result: dict[Column, None] = {}
    for column in columns:
        whole = not isinstance(column, Expression) or (lags and isinstance(column, Lags))
        result |= dict.fromkeys([column] if whole else column.variables)  # type: ignore[union-attr]
    return list(result)


def column_to_json(column: Column | None) -> Any:
    """A column as JSON can hold it."""
    if isinstance(column, Lags):
        named = column.over, column.first, column.last, column.group, column.time, column.step
        return {"lags": list(named)}
    return {"expression": str(column)} if isinstance(column, Expression) else column


def column_from_json(value: Any) -> Any:
    """Read a name or an expression that :func:`column_to_json` wrote."""
    if isinstance(value, dict) and "lags" in value:
        return Lags.of(*value["lags"])
    return Expression(value["expression"]) if isinstance(value, dict) else value


def hidden(text: str) -> str:
    """Text in which names and signs that are none of Python's have become some."""

    def replaced(result: re.Match[str]) -> str:
        if result[3]:
            return "**"
        name = result[1] if result[2] is None else result[2]
        return result[0] if name is None else f"_quoted_{name.encode().hex()}_"

    return _HIDE.sub(replaced, text)


def shown(text: str) -> str:
    """Undo :func:`hidden`."""
    return _HIDDEN.sub(lambda result: f"`{bytes.fromhex(result[1]).decode()}`", text)


def _revealed(identifier: str) -> str:
    return _HIDDEN.sub(lambda result: bytes.fromhex(result[1]).decode(), identifier)


def name_of(node: ast.expr) -> str | None:
    """The column that a node names: between backticks, bare, or with dots as R has them."""
    if isinstance(node, ast.Name):
        return _revealed(node.id)
    if isinstance(node, ast.Attribute):
        before = name_of(node.value)
        return None if before is None else f"{before}.{_revealed(node.attr)}"
    return None


def expression_of(node: ast.expr) -> Expression:
    """The expression that a node of a formula is."""
    _names(node)
    result = Expression(shown(ast.unparse(node)))
    if not result.variables:
        raise ValueError(f"{result} reads no column.")
    return result


def outside_quotes(text: str, change: Callable[[str], str]) -> str:
    """Text of which what is between quotes or backticks stays."""
    parts = QUOTED.split(text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def quoted(name: str) -> str:
    """A column's name as a formula has it."""
    plain = all(part.isidentifier() and part not in _NAMES for part in name.split("."))
    return name if plain else f"`{name}`"


@functools.lru_cache(256)
def _parsed(text: str) -> tuple[tuple[str, ...], ast.expr | None, tuple[str, ...]]:
    """The columns that are combined, or arithmetic and the columns that it reads."""
    try:
        node = ast.parse(hidden(text), mode="eval").body
    except SyntaxError:
        names = (ast.parse(part, mode="eval").body for part in hidden(text).split(":"))
        return tuple(str(name_of(name)) for name in names), None, ()
    return (), node, _names(node)


def _names(node: ast.expr) -> tuple[str, ...]:
    """The columns that arithmetic reads; ValueError of what is none."""
    names: dict[str, None] = {}
    nothing = dict.fromkeys(_OPERATORS, lambda *_: None)
    _evaluated(node, lambda name: names.setdefault(name), lambda _: lambda _: None, nothing)
    return tuple(names)


def _evaluated(
    node: ast.expr,
    column: Callable[[str], Any],
    function: Callable[[str], Any],
    operators: Mapping[type[ast.AST], Callable[..., Any]] = _OPERATORS,
) -> Any:
    """The value of arithmetic; ValueError of what is none."""

    def value(part: ast.expr) -> Any:
        result = _evaluated(part, column, function, operators)
        # in arithmetic truth is a number: to numpy the sum of two comparisons is "or"
        return function("float64")(result) if getattr(result, "dtype", None) == "bool" else result

    name, text = name_of(node), shown(ast.unparse(node))
    if name is not None:
        return column(name)
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
        # whole numbers without bound could take for ever
        return node.value if isinstance(node.value, str) else float(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        called = node.func.id
        if called in LEARNT:
            raise ValueError(
                f"{called}() learns from the data, which only the parametric part of a formula "
                "can: inside a term write the column itself."
            )
        if called not in (*FUNCTIONS, "I"):
            raise ValueError(
                f"{called}() is no function that a term can be of; there are "
                f"{', '.join(FUNCTIONS)}."
            )
        if len(node.args) != 1 or node.keywords:
            raise ValueError(f"{called}() takes one argument; got {text!r}.")
        if called == "I":
            return _evaluated(node.args[0], column, function, operators)
        return function(called)(value(node.args[0]))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
        return value(node.operand)
    operator: type[ast.AST] = type(node)
    parts: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        operator, parts = type(node.ops[0]), [node.left, *node.comparators]
    elif isinstance(node, ast.BinOp):
        operator, parts = type(node.op), [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        operator, parts = type(node.op), [node.operand]
    if len(parts) > 2:
        raise ValueError(
            f"{text!r} is more than one comparison; make that column in the data, and name it."
        )
    if operator not in _OPERATORS:
        raise ValueError(f"{text!r} is no column and no arithmetic of columns.")
    return operators[operator](*map(value, parts))


# --- terms ----------------------------------------------------------------------------------------


Level = str | int | float | bool  # one of the labels that a column or a response has
NO_INTERCEPT = "- 1"  # among terms in files: there is no intercept
SELECT = "select"  # among terms in files: they shall vanish where they are not there


@dataclasses.dataclass(frozen=True, repr=False)
class Term(abc.ABC):
    """One term of a formula: which columns it reads and what sort of function of them it is."""

    function: ClassVar[str]
    """Name of the function by which users write it."""
    parameter: str = dataclasses.field(default="", kw_only=True)
    """Parameter of the response's distribution that it models; empty if there is one predictor."""
    prior: tuple[Prior, ...] = dataclasses.field(default=(), kw_only=True)
    """What is known of its hyperparameters; empty for the default priors."""
    id: str | None = dataclasses.field(default=None, kw_only=True)
    """Terms with the same one share their hyperparameters, and so do curves of levels of each."""
    edf: float | None = dataclasses.field(default=None, kw_only=True)
    """Effective degrees of freedom that a curve is given; None where the data choose them."""

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns it is a function of, ``by`` left out."""

    @property
    def by(self) -> Column | Term | None:
        """The column that multiplies it or splits it by level."""
        return None

    @property
    def shrinks(self) -> bool:
        """True if the variance of its effects is learnt."""
        return True

    @property
    def label(self) -> str:
        """Its name in tables and plots, such as ``s(hour)`` or ``s(hour):day``."""
        name = f"{self.function}({','.join(str(c) for c in self.columns)})"
        name = f"{self.parameter}:{name}" if self.parameter else name
        return name if self.by is None else f"{name}:{column_of(self.by)}"

    def options(self) -> dict[str, Any]:
        """Its fields that differ from their defaults, columns left out."""
        given = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in _COLUMN_FIELDS and value != field.default:
                if field.name == "prior" and len(value) == 1:
                    value = value[0]
                given[field.name.rstrip("_")] = value
        return given

    @property
    def named(self) -> tuple[Column, ...]:
        """The columns as they were named."""
        return self.columns

    def to_json(self) -> dict[str, Any]:
        options = {k: _plain(v) for k, v in self.options().items()}
        entries = {"parameter": self.parameter} if self.parameter else {}
        return {
            "term": self.function,
            "columns": [*map(column_to_json, self.named)],
            **options,
            **entries,
        }

    def __add__(self, other: Term | Terms) -> Terms:
        return Terms((self,)) + other

    def __radd__(self, other: object) -> Terms:
        return other + Terms((self,))  # type: ignore[operator]

    def __sub__(self, other: object) -> Terms:
        return Terms((self,)) - other

    def __repr__(self) -> str:
        arguments = [repr(c) for c in self.named]
        arguments += [f"{name}={value!r}" for name, value in self.options().items()]
        return f"{self.function}({', '.join(arguments)})"


class FunctionOf(Term):
    """A term with the fields ``over`` and ``by_``: what it is a function of, and what splits it."""

    least: ClassVar[int] = 1  # number of columns, at least
    over: tuple[Column, ...]
    by_: Column | Term | None

    def __post_init__(self) -> None:
        over = checked_columns(self.function, self.over, self.least)
        object.__setattr__(self, "over", over)
        object.__setattr__(self, "by_", checked_by(self.function, over, self.by_))
        if hasattr(self, "k"):
            object.__setattr__(self, "k", checked_k(self.function, self.k))

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.over

    @property
    def by(self) -> Column | Term | None:
        return self.by_


def _no_term(value: object) -> TypeError:
    """The error for what is added to terms and is none."""
    if isinstance(value, str):
        return TypeError(
            f"{value!r} is text, no term: write s({value!r}), linear({value!r}) or "
            f"factor({value!r}), or the whole model as one formula."
        )
    hint = " The intercept is there unless - 1 takes it away." if isinstance(value, int) else ""
    return TypeError(f"terms are added to terms; got {value!r}.{hint}")


_COLUMN_FIELDS = ("column", "over", "parameter")


def column_of(by: Column | Term) -> Column:
    """The column that a ``by`` names, which may be written ``factor("column")``."""
    return by.columns[0] if isinstance(by, Term) else by


def _plain(value: Any) -> Any:
    if isinstance(value, (Term, Prior)):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        return column_to_json(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return {"own": type(value).__name__}


def as_column(name: object, other: Any = None) -> Any:
    """A column's name as Python's own text or number, which numpy's names become."""
    if isinstance(name, str):
        return str(name) if isinstance(name, np.str_) else name
    if isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return int(name)
    return other


def as_columns(argument: str, names: Any) -> list[Column]:
    """The columns that an argument names, one or several."""
    one = as_column(names)
    if one is not None:
        return [one]
    given = list(names) if isinstance(names, Iterable) else [names]
    if argument == "offset" and hasattr(names, "dtype"):  # an array of numbers holds values
        given = given if all(isinstance(name, str) for name in given) else [names]
    return [one_column(argument, name) for name in given]


def one_column(argument: str, name: Any) -> Any:
    """The column that an argument names."""
    column = as_column(name)
    if column is None:
        values = getattr(name, "shape", ()) != ()
        got = f"values (a {type(name).__name__}); add them to the data" if values else repr(name)
        raise TypeError(f"{argument} must name a column of the data, or its index; got {got}.")
    return column


def checked_columns(function: str, columns: Iterable[object], least: int = 1) -> tuple[Column, ...]:
    """The columns of a term."""
    names: tuple[Column, ...] = ()
    for given in columns:
        name = as_column(given)
        if name is None:
            raise TypeError(
                f"{function}() takes column names (or indices), such as {function}('x'); got "
                f"{given!r} of type {type(given).__name__}."
            )
        names += (name,)
        if isinstance(name, int) and name < 0:
            raise ValueError(f"{function}(): column indices count from 0; got {name}.")
    if len(names) < least:
        few = "no column" if not names else f"one column, {names[0]!r}"
        better = f"; for one column write s({names[0]!r})" if names else ""
        raise ValueError(f"{function}() needs at least {least} column(s); got {few}{better}.")
    if len(set(names)) < len(names):
        raise ValueError(f"{function}{names} names a column twice.")
    return names


class Terms:
    """
    The terms of an additive predictor, in order.

    :param terms: the terms.
    :param without: parameters of the response's distribution without an intercept, by the name
        that their terms have.
    :param select: whether smooths that are not there shall vanish: see :class:`gpflow_gam.GAM`.
    :raises TypeError: something that is no term.
    :raises ValueError: the same label twice.
    """

    def __init__(
        self, terms: Iterable[Term] = (), without: Iterable[str] = (), select: bool = False
    ) -> None:
        self._terms = tuple(terms)
        self.without = tuple(dict.fromkeys(without))
        self.select = select
        seen: dict[str, Term] = {}
        for term in self._terms:
            if not isinstance(term, Term):
                raise TypeError(
                    f"terms must be terms such as s('x') or factor('g'); got {term!r} of type "
                    f"{type(term).__name__}."
                )
            if term.label in seen:
                copied = ", or give one a copy of its column under another name"
                other = copied if term != seen[term.label] else ""
                raise ValueError(f"the term {term.label} is there twice; leave one out{other}.")
            seen[term.label] = term

    def __add__(self, other: Term | Terms) -> Terms:
        if isinstance(other, Term):
            return self.of((*self._terms, other))
        if isinstance(other, Terms):
            without = (*self.without, *other.without)
            return Terms((*self._terms, *other), without, self.select or other.select)
        raise _no_term(other)

    def __sub__(self, other: object) -> Terms:
        if isinstance(other, bool) or not isinstance(other, int) or other != 1:
            raise TypeError(
                f"- 1 takes the intercept away, and nothing else can be; got {other!r}. Leave the "
                "term out."
            )
        without = (*self.without, *(self.parameters or ("",)))
        return Terms(self._terms, without, self.select)

    def of(self, terms: Iterable[Term]) -> Terms:
        """Other terms, with the intercepts that these have, and vanishing as these."""
        return Terms(terms, self.without, self.select)

    def selected(self) -> Terms:
        """These, of which smooths that are not there shall vanish."""
        return Terms(self._terms, self.without, select=True)

    def __radd__(self, other: object) -> Terms:
        if isinstance(other, int) and other == 0:  # sum([...]) begins with 0
            return self
        raise _no_term(other)

    def __iter__(self) -> Iterator[Term]:
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    def __getitem__(self, index: int) -> Term:
        return self._terms[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Terms):
            return False
        return self._terms == other._terms and self._manner == other._manner

    def __hash__(self) -> int:
        return hash((self._terms, self._manner))

    @property
    def _manner(self) -> tuple[frozenset[str], bool]:
        return frozenset(self.without), self.select

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the response's distribution that terms are of; one empty name else."""
        return tuple(dict.fromkeys(t.parameter for t in self._terms))

    def carrier(self, parameter: str) -> Term | None:
        """The first factor, whose effects are levels' own means, where there is no intercept."""
        if parameter not in self.without:
            return None
        factors = (t for t in self._terms if t.parameter == parameter and t.function == "factor")
        return next(factors, None)

    def __repr__(self) -> str:
        sums = {
            name: " + ".join(repr(t) for t in self._terms if t.parameter == name)
            + (" - 1" if name in self.without else "")
            for name in dict.fromkeys([*self.parameters, *self.without])
        }
        if not any(sums):
            return "".join(sums.values())
        return "{" + ", ".join(f"{name!r}: {own}" for name, own in sums.items()) + "}"

    def to_json(self) -> list[dict[str, Any]]:
        """As JSON can hold them."""
        gone = [{"term": NO_INTERCEPT, "parameter": name} for name in self.without]
        manner = [{"term": SELECT}] if self.select else []
        return [term.to_json() for term in self._terms] + gone + manner


def columns_of(terms: Iterable[Term]) -> list[Column]:
    """The columns that terms read, as they name them."""
    terms = list(terms)
    columns: list[Column] = [c for term in terms for c in term.columns]
    return columns + [column_of(term.by) for term in terms if term.by is not None]


def as_terms(value: object) -> Terms:
    """The terms that are meant by what users write."""
    if isinstance(value, Terms):
        return value
    if isinstance(value, Term):
        return Terms((value,))
    if not isinstance(value, Iterable) or isinstance(value, (str, Mapping)):
        raise TypeError(
            "terms must be terms such as s('x') + factor('g'), a list of terms, or a formula such "
            f"as 'y ~ s(x)'; got {type(value).__name__}."
        )
    parts = list(value)
    result = [term for part in parts for term in (part if isinstance(part, Terms) else (part,))]
    for term in result:
        if not isinstance(term, Term):
            raise _no_term(term)
    if not result:
        raise ValueError(
            "terms is empty (a generator is, once it has been used); for the intercept alone pass "
            "the formula 'y ~ 1'."
        )
    whole = [part for part in parts if isinstance(part, Terms)]
    without = (name for part in whole for name in part.without)
    return Terms(result, without, any(part.select for part in whole))


def checked_k(function: str, k: object, columns: int = 1) -> int | None:
    """A number of inducing inputs, None for the default."""
    if isinstance(k, (tuple, list)) and len(k) == columns > 1:
        numbers = [checked_k(function, number) for number in k]
        known = [number for number in numbers if number is not None]
        return math.prod(known) if len(known) == len(numbers) else None
    k = plain_number(k)
    if k is None or (type(k) is int and k == -1):
        return None
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        each = f", or one for each of {columns} columns" if columns > 1 else ""
        raise ValueError(
            f"{function}(): k, the number of inducing inputs, must be a whole number of at least "
            f"1{each}; got {k!r}."
        )
    return k


def checked_by(function: str, columns: tuple[Column, ...], by: object) -> Column | Term | None:
    """Check what multiplies a term, or splits it by level."""
    if by is None:
        return None
    name = as_column(by.columns[0] if isinstance(by, Term) else by)
    if name is None:
        raise TypeError(f"{function}(): by must name a column; got {by!r}.")
    if isinstance(by, Term) and by.function != "factor":
        raise TypeError(f"{function}(): by must be a column or factor(column); got {by!r}.")
    if name in columns:
        raise ValueError(f"{function}(): by={name!r} is also what it is a function of.")
    return by if isinstance(by, Term) else name


TYPES = ("right", "left", "interval", "counting")


@dataclasses.dataclass(frozen=True)
class Surv:
    """
    A censored response in two columns or three, as R's ``survival::Surv`` names them.

    - ``Surv("time", "event")``: where event is 0 the response is greater than time, and where it
      is 1 it is time;
    - ``Surv("time", "event", type="left")``: where event is 0 it is less;
    - ``Surv("lower", "upper", type="interval")``: it is between the two. Where they are equal it is
      known; where lower is missing, -inf or, of times, 0, it is below upper, and where upper is
      missing or inf it is above lower; a row that lacks both lacks the response;
    - ``Surv("start", "stop", "event")``: at risk from start, when the row enters, to stop, at which
      event is as in the first. A subject may have several such rows, one after the other, as
      columns that change in time need.

    Censoring must not depend on the response beyond that (Klein & Moeschberger 2003, section 3.2).

    :param first: the column of times, of lower ends, or of starts.
    :param second: the column of events, 0 or 1 (or truth values), of upper ends, or of stops.
    :param third: the column of events where there are starts and stops.
    :param type: "right", "left" or "interval"; "counting" of three columns.
    :raises TypeError: values in place of columns' names.
    :raises ValueError: one column twice, or a type that is none, or not of so many columns.
    """

    first: Column
    second: Column
    third: Column | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        if self.type is None:
            object.__setattr__(self, "type", "right" if self.third is None else "counting")
        names = {"first": self.first, "second": self.second}
        names |= {} if self.third is None else {"third": self.third}
        for place, name in names.items():
            column = as_column(name)
            if column is None:
                raise TypeError(
                    f"Surv names columns of data; got a {type(name).__name__}: put the values into "
                    "a "
                    "column, and give its name."
                )
            object.__setattr__(self, place, column)
        check_choice("type", self.type, TYPES)
        if (self.type == "counting") != (self.third is not None):
            raise ValueError(
                "Surv(start, stop, event) has three columns and type='counting', and no other has; "
                f"got type={self.type!r} and {len(names)} columns."
            )
        twice = [name for name in self.columns if self.columns.count(name) > 1]
        if twice:
            raise ValueError(f"Surv needs {len(names)} columns; got {twice[0]!r} twice.")

    @property
    def columns(self) -> tuple[Column, ...]:
        """All, the one of times first."""
        if self.third is not None:
            return self.second, self.first, self.third
        return self.first, self.second

    @property
    def complete(self) -> tuple[Any, ...]:
        """Those that no row may lack; of an interval itself, which has one end at least."""
        return (self,) if self.type == "interval" else self.columns

    def split(
        self, data: pd.DataFrame, cuts: Sequence[float], start: str = "start"
    ) -> pd.DataFrame:
        """
        Rows of lives cut at given times, as effects that change in time need.

        As R's ``survSplit``: a row for each part of a life between two cuts, in which columns made
        of ``start`` and of the column of times may enter terms. Fit the result with
        ``Surv(start, time, event)``: cuts alone change no estimates, but ``deviance_explained``,
        as the deviance of an event depends on how long its last part is.

        :param data: rows of ``Surv("time", "event")`` or ``Surv("start", "stop", "event")``.
        :param cuts: times, in any order.
        :param start: the name of the column of starts that is made where there is none.
        :return: as ``data``, with each life's parts one after the other, the labels repeated; the
            column of times has the end of each part, that of events 0 in all parts but the last.
        :raises ValueError: censoring that is not to the right, a column ``start`` that is taken,
            a cut that is not finite, or a life that ends before it begins.
        """
        if self.type not in ("right", "counting"):
            raise ValueError(f"split takes Surv(time, event); got {self.type} censoring.")
        if self.third is None and start in data:
            raise ValueError(f"start={start!r} is a column of data; choose another name.")
        time, begin = self.columns[0], start if self.third is None else self.first
        event = self.columns[-1]
        rows = data if self.third is not None else data.assign(**{start: 0.0})
        inner = np.unique(np.asarray(cuts, dtype=np.float64))
        if len(strange := inner[~np.isfinite(inner)]):
            raise ValueError(f"cuts must be finite; got {strange[0]}; leave it out.")
        low, high = (rows[c].to_numpy(np.float64)[:, None] for c in (begin, time))
        if not np.all(low < high):
            raise ValueError(f"data: {time!r} must be greater than {begin!r} in every row.")
        # all ends of all parts; those outside of a life collapse
        ends = np.clip(np.append(inner, np.inf), low, high)
        starts = np.concatenate([low, ends[:, :-1]], axis=1)
        row, part = np.nonzero(starts < ends)
        last = ends[row, part] == high[row, 0]
        result = rows.iloc[row].copy()
        result[begin], result[time] = starts[row, part], ends[row, part]
        dtype = result[event].dtype
        none = False if dtype.kind == "b" else 0
        result[event] = result[event].where(last, none).astype(dtype)
        return result

    def __str__(self) -> str:
        names = [self.first, self.second, self.third]
        return f"Surv({', '.join(str(name) for name in names if name is not None)})"

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it; the constructor takes it."""
        return dataclasses.asdict(self)


ResponseSpec = Column | Surv
"""Name of a response: a column, or the two of a censored one."""
