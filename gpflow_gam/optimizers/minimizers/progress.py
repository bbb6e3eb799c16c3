"""Progress bars, on terminals and in notebooks."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm


def progress_bar(
    what: str, unit: str, progress: bool | None, total: int | None = None, **options: Any
) -> Any:
    """
    A bar of tqdm's.

    :param what: stands before it.
    :param unit: of what is counted.
    :param progress: whether it is drawn; None for "on a terminal or in a notebook only".
    :param total: how many there will be, where that is known.
    :param options: of tqdm.
    """
    disable = None if progress is None else not progress
    if disable is None and _in_notebook():
        disable = False  # what a notebook writes to is no terminal, and tqdm would not draw
    return tqdm(desc=what, unit=unit, disable=disable, total=total, **options)


def _in_notebook() -> bool:
    """Whether tqdm draws widgets here."""
    return any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)
