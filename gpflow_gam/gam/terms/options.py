"""Options that several kinds of terms share."""

from __future__ import annotations

from typing import Any

import numpy as np


def checked_k(function: str, k: object) -> None:
    """
    Check a number of inducing inputs.

    :raises ValueError: it is none.
    """
    if k is None:
        return
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(
            f"{function}(): k, the number of inducing inputs, must be a whole number of at least "
            f"1; got {k!r}."
        )


def refuse(bs: str, **options: Any) -> None:
    """
    Check that options are not given which a kind of smooth has no use for.

    :param options: by name; None where they are not given.
    :raises ValueError: one is.
    """
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"s(): bs={bs!r} takes no {name}; got {name}={value!r}.")
