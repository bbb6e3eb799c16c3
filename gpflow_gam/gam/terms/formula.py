"""Formulas such as ``"bikers ~ s(hr, bs='cyclic') + te(hum, windspeed)"``, parsed, never run."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from typing import Any

from .base import Term, Terms
from .parametric import linear
from .serial import FUNCTIONS
from .survival import Stated, Surv


@dataclasses.dataclass(frozen=True)
class Formula:
    """
    What a formula says.

    :param response: the column left of ``~``, or a :class:`Surv`; None without one.
    :param terms: the terms.
    :param offset: the columns inside ``offset()``.
    """

    response: Stated | None
    terms: Terms
    offset: tuple[str, ...] = ()


_BACKTICKS = re.compile(r"`([^`]*)`")


def parse_formula(text: str) -> Formula:
    """
    Read a formula.

    Column names stand bare or in quotes, and a bare column outside a function is a straight line:
    ``"y ~ s(x, k=10) + te(u, v) + factor(g) + z + offset(log_n)"``. Names may have dots
    (``Solar.R``), and any text between backticks or quotes is one.

    :param text: ``response ~ terms``, or the terms alone, with or without the ``~``.
    :raises ValueError: with the place at which it makes no sense.
    """
    left, _, right = text.rpartition("~")
    response = _response(_expression(left.strip(), text), text) if left.strip() else None
    terms: list[Term] = []
    offset: list[str] = []
    for node in _summands(_expression(right.strip(), text), text):
        if isinstance(node, ast.Constant) and node.value == 1:
            continue  # the intercept, which is always there
        if _is_call(node, "offset"):
            assert isinstance(node, ast.Call)
            offset += [_name(argument, text) for argument in node.args]
        else:
            terms.append(_term(node, text))
    return Formula(response, Terms(terms), tuple(offset))


def _expression(part: str, text: str) -> ast.expr:
    if not part:
        raise ValueError(f"formula {text!r} has an empty side.")
    part = _BACKTICKS.sub(lambda found: repr(found[1]), part)  # how R quotes a name
    try:
        return ast.parse(part, mode="eval").body
    except SyntaxError as error:
        near = part[max((error.offset or 1) - 1, 0) :][:20]
        raise ValueError(
            f"formula {text!r} cannot be read near {near!r}; "
            "write terms as s(x), te(x, z), factor(g), joined by +."
        ) from None


def _summands(node: ast.expr, text: str) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _summands(node.left, text) + _summands(node.right, text)
    if isinstance(node, ast.BinOp):
        raise ValueError(
            f"formula {text!r}: terms are joined by +; {ast.unparse(node)!r} is not understood. "
            "The intercept is always there; for an interaction write ti(x, z)."
        )
    return [node]


def _is_call(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _response(node: ast.expr, text: str) -> Stated:
    if not isinstance(node, ast.Call) or not _is_call(node, "Surv"):
        return _name(node, text)
    columns = [_column(argument, text) for argument in node.args]
    options = {str(k.arg): _option(str(k.arg), k.value, text) for k in node.keywords}
    try:
        return Surv(*columns, **options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"formula {text!r}: {error}") from None


def _name(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):  # a name with dots, as they are common in R
        return f"{_name(node.value, text)}.{node.attr}"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError(
        f"formula {text!r}: {ast.unparse(node)!r} is no column; transform it in the data first."
    )


def _term(node: ast.expr, text: str) -> Term:
    if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
        return linear(_column(node, text))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"formula {text!r}: {ast.unparse(node)!r} is no term.")
    function = node.func.id
    if function not in FUNCTIONS:
        near = difflib.get_close_matches(function, FUNCTIONS, n=1)
        hint = f"; did you mean {near[0]}()?" if near else ""
        raise ValueError(
            f"formula {text!r}: {function}() is no term; there are {', '.join(FUNCTIONS)}{hint}"
        )
    columns = [_column(argument, text) for argument in node.args]
    options = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError(f"formula {text!r}: ** is not understood.")
        options[keyword.arg] = _option(keyword.arg, keyword.value, text)
    try:
        term: Term = FUNCTIONS[function](*columns, **options)
    except TypeError as error:
        raise ValueError(f"formula {text!r}: {error}") from None
    return term


def _column(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value  # an index
    return _name(node, text)


def _option(name: str, node: ast.expr, text: str) -> Any:
    if name == "by":
        return _term(node, text) if isinstance(node, ast.Call) else _column(node, text)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(
            f"formula {text!r}: {name} must be a number or text in quotes; got "
            f"{ast.unparse(node)!r}."
        ) from None
