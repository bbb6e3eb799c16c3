"""Terms for those who name none."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from ..gam.frames import Table, is_levels
from ..gam.terms import Column, Smooth, Term, Terms, as_columns, factor, linear, s


def automatic_terms(frame: pd.DataFrame, offset: Column | Iterable[Column] | None) -> Terms:
    """
    A smooth, a line or a factor for every column that varies and is no offset.

    :param frame: the columns.
    :param offset: those that are offsets.
    """
    names = list(frame.columns)
    offsets = () if offset is None else as_columns("offset", offset)
    known = {names[c] if c not in names and isinstance(c, int) else c for c in offsets}
    complete = frame.dropna()
    table = Table(frame)
    terms: list[Term] = []
    for name in names:
        distinct = complete[name].nunique()
        if name in known or distinct < 2:
            continue
        if is_levels(table, name):
            # a fold of a cross-validation need not hold every level
            terms.append(factor(name, unseen="prior"))
        else:
            terms.append(linear(name) if distinct == 2 else s(name))
    curves = [t for t in terms if isinstance(t, Smooth)]
    if len(terms) >= len(complete) and len(curves) > 1:
        # too many to tell apart: one function of them together
        terms = [s(*(t.columns[0] for t in curves)), *(t for t in terms if t not in curves)]
    return Terms(terms)
