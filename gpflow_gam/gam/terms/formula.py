"""
Terms from formulas, such as ``"bikers ~ s(hr, bs='cyclic') + te(hum, windspeed)"``, and from JSON.

Formulas are parsed, never run.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard
from unicodedata import normalize

from gpflow.kernels import Kernel

from ...priors import KINDS as PRIORS
from .base import (
    NO_INTERCEPT,
    QUOTED,
    SELECT,
    Column,
    Expression,
    ResponseSpec,
    Surv,
    Term,
    Terms,
    as_terms,
    column_from_json,
    expression_of,
    hidden,
    name_of,
    outside_quotes,
    quoted,
    shown,
)
from .parametric import FUNCTIONS as TRANSFORMS
from .parametric import (
    AllColumns,
    Transformed,
    Variable,
    factor,
    linear,
    parsed,
    random_effect,
    respelled,
)
from .smooth import lag, s, te, ti

FUNCTIONS: dict[str, Any] = {
    "s": s,
    "te": te,
    "ti": ti,
    "lag": lag,
    "linear": linear,
    "factor": factor,
    "random_effect": random_effect,
    "C": factor,
    "t2": te,
}
"""Functions that write a term in a formula or a file: the last two are R's."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """Parts of a parsed formula."""

    response: ResponseSpec | None
    terms: Terms
    offset: tuple[Column, ...] = ()
    trials: Column | None = None


_SMOOTH = re.compile(rf"\b({'|'.join(FUNCTIONS)}|offset)\s*\(")
_SPELLINGS = re.compile(r"\b(?:np\.|numpy\.|as\.(?=factor))(?=\w+\s*\()")
"""Prefix of a function in other languages."""
_FACTOR = re.compile(r"\b(factor|C)\s*\(")
_OPERATORS = re.compile(r"[:*/^]|%in%")


def parse_formula(text: str) -> Formula:
    """
    Read a formula.

    Column names stand bare or in quotes: ``"y ~ s(x, k=10) + te(u, v) + z + offset(log(n))"``. A
    bare column outside a function is a straight line where it holds numbers, and a factor where it
    holds levels. Names may have dots (``Solar.R``), and any text between backticks or quotes is
    one. Arithmetic may stand in the place of a column inside a function, ``s(log(x))``,
    ``factor(x > 0.5)``; in what is no smooth ``log(x) + poly(z, 3) + a*b`` are straight lines, and
    ``.`` is every column not named elsewhere. ``(1 | g)`` and ``(x | g)`` are random effects, and
    ``cbind(k, n - k)`` is a binomial response. ``- 1``, or ``0 +`` beside names, takes the
    intercept away.

    :param text: the formula; a part without ``~`` has no response.
    :return: its ``response``, ``terms``, ``offset`` and what else it says.
    :raises ValueError: what is no formula, with the part that is not.
    """
    try:
        return _parsed(text)
    except (TypeError, ValueError) as error:
        already = str(error).startswith("formula ")  # of the part that formulaic reads
        raise ValueError(str(error) if already else f"formula {text!r}: {error}") from None


def _parsed(text: str) -> Formula:
    # bare names as Python has them
    text = outside_quotes(text, lambda part: _SPELLINGS.sub("", normalize("NFKC", part)))
    place = QUOTED.sub(lambda name: "_" * len(name[0]), text).rfind("~")
    left, right = text[: max(place, 0)], text[place + 1 :]
    response, trials = _response(left.strip()) if left.strip() else (None, None)
    terms: list[Term] = []
    offset: list[Column] = []
    without: list[Term] = []
    written: list[tuple[str, Term | None]] = []  # what formulaic may have to read, in order
    pieces = list(_pieces(right))
    for sign, piece in pieces:
        if piece == "1":
            continue  # the intercept
        if piece == ".":
            terms.append(AllColumns())
            continue
        code = hidden(piece)
        if code.startswith("(") and code.endswith(")") and "|" in code:
            if sign == "-":
                raise ValueError(f"- {piece} takes nothing away; leave the term out.")
            terms += _random_effects(code[1:-1])
            continue
        if _transforms(piece):
            written.append((f"{sign} {piece}", None))
            continue
        node = _expression(piece)
        if sign == "+" and _is_call(node, "offset"):
            offset += [_column(argument) for argument in node.args]
            continue
        term = _term(node)
        (terms if sign == "+" else without).append(term)
        written.append((f"{sign} {_coded(term)}", term))
    named = response is not None or any(isinstance(c, str) for t in terms for c in t.columns)
    signs = [sign + piece for sign, piece in pieces]
    if named and "+0" in signs and Variable(0) in terms:
        terms.remove(Variable(0))  # beside names, 0 is none of the columns
    else:
        signs = [sign for sign in signs if sign != "+0"]
    said = [sign for sign in signs if sign in ("+1", "-1", "+0")]  # the last one counts, as in R
    gone = bool(said) and said[-1] != "+1"
    if transformed := " ".join(text for text, term in written if term is None):
        whole = respelled(transformed.removeprefix("+ "))
        parts = [] if whole.startswith("-") else parsed(whole)
        crossed = {f.expr for part in parts if len(part.factors) > 1 for f in part.factors}
        # g + h + g:h is g*h: formulaic codes levels by what stands beside them
        main = [t for t in (*terms, *without) if _coded(t).strip("`") in crossed]
        terms, without = ([t for t in own if t not in main] for own in (terms, without))
        whole = " ".join(text for text, term in written if term is None or term in main)
        if not whole.startswith("+"):
            raise ValueError(f"{whole!r} takes nothing away; leave it out.")
        terms.append(Transformed(respelled(whole[2:])))
    if without and AllColumns() not in terms:
        raise ValueError(f"- {without[0].label} takes nothing away; leave the term out.")
    if without:
        names = [column for term in without for column in term.columns]
        terms[terms.index(AllColumns())] = AllColumns(tuple(names))
    return Formula(response, Terms(terms, [""] if gone else []), tuple(offset), trials)


def _coded(term: Term) -> str:
    """A column or a factor by itself as ``formulaic`` has it."""
    name = str(term.columns[0]) if term.columns else ""
    name = name if name.isidentifier() else f"`{name}`"
    if isinstance(term, Variable):
        return name
    return f"C({name})" if term.columns and term == factor(term.columns[0]) else ""


def _response(left: str) -> tuple[ResponseSpec, Column | None]:
    """The response, and its trials."""
    node = _expression(left)
    if _is_call(node, "Surv"):
        options = {str(k.arg): _option(str(k.arg), k.value) for k in node.keywords}
        return Surv(*map(_column, node.args), **options), None
    if _is_call(node, "cbind"):
        return _counted(node)
    if isinstance(node, (ast.Call, ast.BinOp)):
        raise ValueError(
            f"the response is a column, not {left!r}. A family with another link "
            "says how it depends on terms: family='gamma' has the logarithm of its mean, 'beta' "
            "the logit. Or transform it in the data, and everything is of the transformed column. "
            "Successes k of n trials are cbind(k, n - k)."
        )
    return _name(node), None


def _counted(call: ast.Call) -> tuple[Column, Column]:
    """Successes and trials of ``cbind(successes, failures)``."""
    if len(call.args) != 2 or call.keywords:
        raise ValueError("cbind() takes successes and failures, as cbind(k, n - k).")
    for node in call.args:
        _column(node)
    successes, failures = call.args
    column = _column(successes)
    if isinstance(failures, ast.BinOp) and isinstance(failures.op, ast.Sub):
        whole, rest = failures.left, failures.right
        if ast.dump(rest) == ast.dump(successes):
            return column, _column(whole)
    return column, Expression(" + ".join(f"({shown(ast.unparse(node))})" for node in call.args))


def _random_effects(inside: str) -> list[Term]:
    """Terms of ``(1 | g)``, ``(x | g)``, ``(1 | a/b)``, ``(1 | a:b)``; all independent."""
    left, _, right = inside.replace("||", "|").partition("|")
    groups: list[list[Column]] = []
    for part in right.split("/"):
        names = [_name(_expression(name.strip())) for name in part.split(":")]
        groups.append([*(groups[-1] if groups else []), *names])
    slopes: list[Column] = []
    intercept = True
    for sign, piece in _pieces(left):
        if piece in ("0", "1"):
            intercept = (sign == "+") == (piece == "1")
        elif sign == "-":
            raise ValueError(f"- {shown(piece)} takes nothing away; leave it out.")
        else:
            slopes.append(_column(_expression(piece)))
    of = [None] * intercept + slopes
    return [random_effect(*columns, by=by) for columns in groups for by in of]


def _pieces(right: str) -> Iterator[tuple[str, str]]:
    """Summands with their signs, as they are outside brackets and quotes."""
    if not right.strip():
        raise ValueError("it has an empty side.")
    sign, start, depth, quote = "+", 0, 0, ""
    for i, c in enumerate(right):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"`":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c in "+-" and depth == 0:
            # a sign before the first summand, or after an operator, as in x**-1
            before = right[start:i].strip()
            if before[-1:] not in (*":*/^",):
                if before:
                    yield sign, before
                sign, start = c, i + 1
    yield sign, right[start:].strip()


def _transforms(piece: str) -> bool:
    """True if a summand is for ``formulaic`` to read."""
    code = hidden(piece)
    smooth = _SMOOTH.search(_FACTOR.sub("", code))
    try:
        node = ast.parse(code, mode="eval").body
    except SyntaxError:
        return bool(_OPERATORS.search(code)) and not smooth
    if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
        return False
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name in TRANSFORMS and name not in FUNCTIONS
    if smooth or not isinstance(node, ast.BinOp):
        raise ValueError(
            f"terms are joined by +; {piece!r} is not understood. For an "
            "interaction write ti(x, z), for a varying coefficient s(x, by=z)."
        )
    if isinstance(node.op, (ast.Pow, ast.BitXor)) and isinstance(node.left, ast.Name):
        name = quoted(str(name_of(node.left)))
        raise ValueError(
            "a power of a column is its interaction with itself, which is "
            f"{name}; write I({name}**2) or poly({name}, 2)."
        )
    return True


def _expression(part: str) -> ast.expr:
    if not part:
        raise ValueError("it has an empty side.")
    try:
        return ast.parse(hidden(part), mode="eval").body
    except SyntaxError as error:
        near = part[max((error.offset or 1) - 1, 0) :][:20]
        raise ValueError(
            f"it cannot be read near {near!r}; "
            "write terms as s(x), te(x, z), factor(g), joined by +."
        ) from None


def _is_call(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _name(node: ast.expr) -> str:
    result = name_of(node)
    if result is None and isinstance(node, ast.Constant) and isinstance(node.value, str):
        result = node.value
    if result is None:
        raise ValueError(f"{shown(ast.unparse(node))!r} is no column.")
    return result


def _term(node: ast.expr) -> Term:
    if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)):
        return Variable(_column(node))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{shown(ast.unparse(node))!r} is no term.")
    function = node.func.id
    if function not in FUNCTIONS:
        near = difflib.get_close_matches(function, FUNCTIONS, n=1)
        hint = f"; did you mean {near[0]}()?" if near else ""
        raise ValueError(f"{function}() is no term; there are {', '.join(FUNCTIONS)}{hint}")
    columns = [_column(argument) for argument in node.args]
    if any(k.arg is None for k in node.keywords):
        raise ValueError("** is not understood.")
    options = {str(k.arg): _option(str(k.arg), k.value) for k in node.keywords}
    term: Term = FUNCTIONS[function](*columns, **options)
    return term


def _column(node: ast.expr) -> Any:
    """A column's name or index, or the expression that computes it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value  # an index
    if isinstance(node, ast.Constant) or name_of(node) is not None:
        return _name(node)
    return expression_of(node)


def _option(name: str, node: ast.expr) -> Any:
    if name in ("by", "group", "time"):
        return _term(node) if any(_is_call(node, f) for f in FUNCTIONS) else _column(node)
    if name == "prior":
        return _prior(node)
    try:
        return _literal(node)
    except ValueError:
        raise ValueError(
            f"{name} must be a number or text in quotes; got {shown(ast.unparse(node))!r}."
        ) from None


def _prior(node: ast.expr) -> Any:
    """A prior as it is written outside of a formula, or several."""
    if isinstance(node, ast.Tuple):
        return tuple(_prior(value) for value in node.elts)
    name = shown(ast.unparse(node.func)).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or name not in PRIORS:
        written = shown(ast.unparse(node))
        raise ValueError(f"prior must be one of {', '.join(PRIORS)}, called; got {written!r}.")
    options = {str(k.arg): _literal(k.value) for k in node.keywords}
    return PRIORS[name](*map(_literal, node.args), **options)


def _literal(node: ast.expr) -> Any:
    """A value as Python or R write it."""
    if _is_call(node, "c") and not node.keywords:
        return tuple(_literal(value) for value in node.args)
    if isinstance(node, ast.Name) and node.id in ("TRUE", "FALSE"):
        return node.id == "TRUE"
    return ast.literal_eval(node)


def parse_parameters(terms: Mapping[str, Any], names: Sequence[str]) -> Formula:
    """Terms by parameter, each knowing its own."""
    result: list[Term] = []
    gone: list[str] = []
    response: ResponseSpec | None = None
    offset: tuple[Column, ...] = ()
    trials: Column | None = None
    for i, (name, (key, value)) in enumerate(zip(names, terms.items())):
        part = _formula_of(key, value)
        if part.response is not None:
            if response not in (None, part.response):
                raise ValueError(
                    f"terms: the formulas name two responses, {response!r} and {part.response!r}."
                )
            response = part.response
        if part.offset and i > 0:
            raise ValueError(
                f"terms: offset() is of the first parameter, {names[0]!r}; {name!r} takes none."
            )
        offset += part.offset
        trials = part.trials if trials is None else trials
        result += [dataclasses.replace(term, parameter=name) for term in part.terms]
        gone += [name] if part.terms.without else []
    return Formula(response, Terms(result, gone), offset, trials)


def _formula_of(parameter: str, value: Any) -> Formula:
    if isinstance(value, str):
        return parse_formula(value)
    if value is None:
        return Formula(None, Terms())
    try:
        return Formula(None, as_terms(value))
    except TypeError as error:
        raise TypeError(
            f"terms[{parameter!r}] must be terms such as s('x') + factor('g'), a formula, or None "
            f"for a constant: {error}"
        ) from None


def terms_from_json(
    values: list[dict[str, Any]], kernels: Mapping[str, Kernel] | None = None
) -> Terms:
    """The terms that :meth:`Terms.to_json` wrote."""
    gone = [v for v in values if isinstance(v, dict) and v.get("term") == NO_INTERCEPT]
    chosen = {"term": SELECT} in values
    of_all = [*gone, {"term": SELECT}]
    terms = [_term_from_json(value, kernels or {}) for value in values if value not in of_all]
    return Terms(terms, (value["parameter"] for value in gone), chosen)


def _term_from_json(value: Any, kernels: Mapping[str, Kernel]) -> Term:
    known = {
        **FUNCTIONS,
        Transformed.function: Transformed,
        AllColumns.function: lambda *without: AllColumns(without),
    }
    if not isinstance(value, dict) or value.get("term") not in known:
        raise ValueError(f"no term can be read from {value!r}.")
    options: dict[str, Any] = {
        name: tuple(option) if isinstance(option, list) else option
        for name, option in value.items()
        if name not in ("term", "columns", "parameter")
    }
    columns = [column_from_json(column) for column in value["columns"]]
    by, own = options.get("by"), options.pop("kernel", None)
    if isinstance(by, dict):
        options["by"] = _term_from_json(by, kernels) if "term" in by else column_from_json(by)

    def made(**others: Any) -> Term:
        term = known[value["term"]](*columns, **options, **others)
        return dataclasses.replace(term, parameter=value.get("parameter", ""))

    if own is None:
        return made()
    label = made().label
    if label not in kernels:
        raise ValueError(
            f"{label} has a kernel of your own ({own['own']}), which no file holds; pass "
            f"kernels={{{label!r}: ...}}."
        )
    return made(kernel=kernels[label])
