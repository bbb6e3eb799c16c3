"""Named values, a line each, as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable

Named = Iterable[tuple[str, str]]


def as_text(rows: Named) -> str:
    """
    A line each, the values below each other.

    :param rows: names and values.
    """
    return "\n".join(f"{name + ':':30s}{value}" for name, value in rows)


def as_html(rows: Named) -> str:
    """
    A table with a row each.

    :param rows: names and values, of any characters.
    """
    body = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{body}</table>"
