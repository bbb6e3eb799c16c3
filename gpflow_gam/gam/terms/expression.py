"""Columns that a formula computes from others, row by row: ``s(log(x))``, ``factor(x > 0.5)``."""

from __future__ import annotations

import ast
import functools
import keyword
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
    ast.UAdd: operator.pos,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_NAMES = tuple(word for word in keyword.kwlist if word not in ("True", "False", "None"))
_HIDE = re.compile(
    rf"'[^']*'|\"[^\"]*\"|`([^`]*)`|\b({'|'.join(_NAMES)}|[^\W\d]\w*\.\d[\w.]*)\b|(\^)"
)
"""
Text in quotes, which stays; names between backticks; names that Python keeps, or cannot have; and
R's sign for powers, which Python reads as another operator, after sums.
"""
_HIDDEN = re.compile(r"_quoted_([0-9a-f]*)_")


class Expression(str):
    """
    The text of an expression, which is also the name of the column that it gives.

    Arithmetic of columns, numbers and levels; or columns joined by ``:``, of combined levels.
    """

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
        """Value of the arithmetic."""
        return _evaluated(_parsed(self)[1], column, function)


def variables_of(columns: Iterable[Column]) -> list[Column]:
    """The columns that data must have for these to be read, each once."""
    result: dict[Column, None] = {}
    for column in columns:
        result |= dict.fromkeys(column.variables if isinstance(column, Expression) else [column])
    return list(result)


def to_json(column: Column | None) -> Any:
    """A column as JSON can hold it."""
    return {"expression": str(column)} if isinstance(column, Expression) else column


def from_json(value: Any) -> Any:
    """Read a name or an expression that :func:`to_json` wrote."""
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
    _check(node)
    result = Expression(shown(ast.unparse(node)))
    if not result.variables:
        raise ValueError(f"{result} reads no column")
    return result


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
    _check(node)
    return (), node, tuple(dict.fromkeys(_names(node)))


def _check(node: ast.expr) -> None:
    text = shown(ast.unparse(node))
    if name_of(node) is not None or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float))
    ):
        return
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        _check(node.left)
        _check(node.right)
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        _check(node.operand)
    elif isinstance(node, ast.Compare) and all(type(op) in _OPERATORS for op in node.ops):
        if len(node.ops) > 1:
            raise ValueError(
                f"{text!r} is more than one comparison; make that column in the data, and name it"
            )
        _check(node.left)
        _check(node.comparators[0])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name in LEARNT:
            raise ValueError(
                f"{name}() learns from the data, which only the parametric part of a formula can: "
                "inside a term write the column itself"
            )
        if name not in (*FUNCTIONS, "I"):
            raise ValueError(
                f"{name}() is no function that a term can be of; there are {', '.join(FUNCTIONS)}"
            )
        if len(node.args) != 1 or node.keywords:
            raise ValueError(f"{name}() takes one argument; got {text!r}")
        _check(node.args[0])
    else:
        raise ValueError(f"{text!r} is no column and no arithmetic of columns")


def _names(node: ast.AST) -> Iterator[str]:
    """The columns that a checked node reads."""
    name = name_of(node) if isinstance(node, ast.expr) else None
    if name is not None:
        yield name
        return
    for child in node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        yield from _names(child)


def _evaluated(
    node: ast.expr | None, column: Callable[[str], Any], function: Callable[[str], Any]
) -> Any:
    """The value of a checked node."""

    def value(part: ast.expr) -> Any:
        return _evaluated(part, column, function)

    assert node is not None
    name = name_of(node)
    if name is not None:
        return column(name)
    if isinstance(node, ast.Constant):  # whole numbers without bound could take for ever
        number = node.value
        return number if isinstance(number, str) else float(number)  # type: ignore[arg-type]
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        argument = value(node.args[0])
        return argument if node.func.id == "I" else function(node.func.id)(argument)
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](value(node.operand))
    if isinstance(node, ast.Compare):
        left, right = node.left, node.comparators[0]
        kind: type[ast.AST] = type(node.ops[0])
    else:
        assert isinstance(node, ast.BinOp)
        left, right, kind = node.left, node.right, type(node.op)
    return _OPERATORS[kind](value(left), value(right))
