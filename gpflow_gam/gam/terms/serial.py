"""Terms from JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gpflow.kernels import Kernel

from . import expression
from .base import NO_INTERCEPT, SELECT, Term, Terms
from .parametric import factor, linear, random_effect
from .smooth import s, te, ti
from .transformed import AllColumns, Transformed

FUNCTIONS: dict[str, Any] = {
    "s": s,
    "te": te,
    "ti": ti,
    "linear": linear,
    "factor": factor,
    "random_effect": random_effect,
}
"""What a term may be called in a formula or a file."""


def terms_from_json(
    values: list[dict[str, Any]], kernels: Mapping[str, Kernel] | None = None
) -> Terms:
    """
    The terms that :meth:`Terms.to_json` wrote.

    :param values: what it wrote.
    :param kernels: users' own kernels, by the label of their term.
    :raises ValueError: no such terms, or a kernel that is not given.
    """
    gone = [v for v in values if isinstance(v, dict) and v.get("term") == NO_INTERCEPT]
    chosen = {"term": SELECT} in values
    of_all = [*gone, {"term": SELECT}]
    terms = [_term(value, kernels or {}) for value in values if value not in of_all]
    return Terms(terms, (value["parameter"] for value in gone), chosen)


def _term(value: Any, kernels: Mapping[str, Kernel]) -> Term:
    if isinstance(value, dict) and value.get("term") == Transformed.function:
        return _of(value, Transformed(*value["columns"]))
    if isinstance(value, dict) and value.get("term") == AllColumns.function:
        return _of(value, AllColumns(tuple(value["columns"])))
    if not isinstance(value, dict) or value.get("term") not in FUNCTIONS:
        raise ValueError(f"no term can be read from {value!r}.")
    options = {
        name: tuple(option) if isinstance(option, list) else option
        for name, option in value.items()
        if name not in ("term", "columns", "parameter")
    }
    columns = [expression.from_json(column) for column in value["columns"]]
    by = options.get("by")
    if isinstance(by, dict):
        options["by"] = _term(by, kernels) if "term" in by else expression.from_json(by)
    if "kernel" in options:
        kind = value["kernel"]["own"]
        del options["kernel"]
        label = _of(value, FUNCTIONS[value["term"]](*columns, **options)).label
        if label not in kernels:
            raise ValueError(
                f"{label} has a kernel of your own ({kind}), which no file holds; pass "
                f"kernels={{{label!r}: ...}}."
            )
        options["kernel"] = kernels[label]
    return _of(value, FUNCTIONS[value["term"]](*columns, **options))


def _of(value: Mapping[str, Any], term: Term) -> Term:
    """The term, of the parameter that it was written for."""
    return dataclasses.replace(term, parameter=value.get("parameter", ""))
