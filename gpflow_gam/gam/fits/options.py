"""What may be asked of a fit, by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

OPTIONS = (
    "max_iterations",
    "tolerance",
    "max_seconds",
    "callback",
    "progress",
    "on_interrupt",
    "criterion",
    "groups",
    "checkpoint",
    "batch_size",
    "learning_rate",
    "rho",
    "patience",
    "hyperparameters",
    "max_sweeps",
    "max_rounds",
)
"""Of ``GAM.fit``; which of them a fit has use for depends on its engine and q(U)."""
_OF_GAM = (
    "family",
    "intercept",
    "offset",
    "weights",
    "trials",
    "missing",
    "engine",
    "variational",
    "seed",
)
_ELSEWHERE = {
    "sample_weight": "weights",
    "sample_weights": "weights",
    "weight": "weights",
    "exposure": "offset",
    "offsets": "offset",
    "random_state": "seed",
}
"""What arguments of a GAM are called in other packages."""


def check_names(options: Iterable[str] | Mapping[str, Any]) -> None:
    """
    Refuse what no fit has, before any data are read.

    :param options: names of what ``GAM.fit`` was called with.
    :raises TypeError: one that is an argument of the GAM, or none at all.
    """
    for name in options:
        if name in OPTIONS:
            continue
        own = _ELSEWHERE.get(name, name)
        if own in _OF_GAM:
            raise TypeError(
                f"fit() has no option {name!r}: it belongs to the model; give GAM(...) {own}=, "
                "then fit."
            )
        near = difflib.get_close_matches(name, OPTIONS, 1)
        guess = f"is it {near[0]!r}? It" if near else "it"
        raise TypeError(f"fit() has no option {name!r}; {guess} takes {', '.join(OPTIONS)}.")
