"""Terms for each parameter of the response's distribution."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Column, Term, Terms, as_terms
from .formula import Formula, parse_formula
from .survival import ResponseSpec


def parse_parameters(terms: Mapping[str, Any], names: Sequence[str]) -> Formula:
    """
    Terms by parameter, each knowing its own.

    :param terms: parameter -> terms, a formula (one of which may name the response), or None where
        the parameter is a constant.
    :param names: the parameters as the family calls them, in the order of ``terms``.
    :raises TypeError: what are no terms.
    :raises ValueError: two responses, or an offset in another parameter than the first.
    """
    found: list[Term] = []
    gone: list[str] = []
    response: ResponseSpec | None = None
    offset: tuple[Column, ...] = ()
    trials: Column | None = None
    for i, (name, (key, value)) in enumerate(zip(names, terms.items())):
        own = _formula(key, value)
        if own.response is not None:
            if response not in (None, own.response):
                raise ValueError(
                    f"terms: the formulas name two responses, {response!r} and {own.response!r}."
                )
            response = own.response
        if own.offset and i > 0:
            raise ValueError(
                f"terms: offset() is of the first parameter, {names[0]!r}; {name!r} takes none."
            )
        offset += own.offset
        trials = own.trials if trials is None else trials
        found += [dataclasses.replace(term, parameter=name) for term in own.terms]
        gone += [name] if own.terms.without else []
    return Formula(response, Terms(found, gone), offset, trials)


def _formula(parameter: str, value: Any) -> Formula:
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
