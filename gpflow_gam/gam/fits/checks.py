"""Checks of a fit's options, and of numbers that double precision cannot tell apart."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray

from ...errors import NotPositiveDefinite
from ...optimizers.binned.rounds import StartError
from ...storage import RowArray
from ..families import CensoredGaussian, Family, Gaussian, Heteroskedastic, StudentT
from ..families.encoding import Sample, check_events
from .model import MAX_SITES, VARIATIONAL
from .specification import Roles, Specification

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
"""Options of ``GAM.fit``; which of them a fit uses depends on its engine and q(U)."""
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
"""Names of GAM's arguments in other packages."""


def check_names(options: Iterable[str]) -> None:
    """Refuse options of ``GAM.fit`` that there are not, before any data are read."""
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


CRITERIA = ("elbo", "ncv")
"""Values of ``criterion``."""


def check_criterion(variational: str | None, engine: str, options: dict[str, Any]) -> None:
    """Raise ValueError if a criterion is unknown, or does not go with the other options."""
    criterion = options.get("criterion", "elbo")
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}; got {criterion!r}.")
    if criterion == "elbo":
        if options.get("groups") is not None:
            raise ValueError(
                "groups: the ELBO leaves no rows out; add criterion='ncv', or leave groups out."
            )
        return
    if engine != "variational":
        raise ValueError(needs_sites(f"engine={engine!r}"))
    if variational not in (None, "exact", "sites"):
        raise ValueError(needs_sites(f"variational={variational!r}"))
    if options.get("batch_size") is not None:
        raise ValueError(needs_sites(f"batch_size={options['batch_size']!r}"))


def needs_sites(what: str) -> str:
    """The message of a fit without sites, for which an argument is the reason."""
    return (
        f"criterion='ncv' divides rows' sites out, which a fit with {what} does not keep; leave "
        "one of the two out."
    )


def needs_all_rows(variational: str | None, engine: str, options: dict[str, Any]) -> str:
    """The argument that sums over rows do not serve; empty where there is none."""
    if engine != "variational":
        return f"engine={engine!r}"
    if options.get("criterion", "elbo") != "elbo":
        return f"criterion={options['criterion']!r}"
    if options.get("batch_size") is not None:
        return f"batch_size={options['batch_size']!r}"
    if variational in VARIATIONAL and variational != "sites":
        return f"variational={variational!r}"
    return ""


def too_many(remedy: str) -> str:
    """The message of terms for which q(U) would need all rows as numbers."""
    return (
        f"the terms have more than {MAX_SITES} inducing values in all, for which "
        f"variational='block' {remedy} Or give the terms a smaller k."
    )


def without_checkpoint(what: str) -> str:
    """The message of a fit that writes no checkpoint, for which an argument is the reason."""
    return (
        f"checkpoint: a fit with {what} writes none; leave the argument out, or bound the fit by "
        "max_seconds."
    )


# --- numbers -------------------------------------------------------------------------------------


LEAST, GREATEST = 1e-70, 1e70
"""Sizes of a response whose variance has a square that is neither zero nor infinite."""
_RESOLVED = 1e-10
"""Against its size, what a response has to vary by to be more than rounding."""
_FAR = 1e3
"""Distances from the median, against half of the values' range, that are worth a word."""
_BROKEN = (
    StartError,
    NotPositiveDefinite,
    np.linalg.LinAlgError,
    tf.errors.InvalidArgumentError,
    OverflowError,
    FloatingPointError,
)
"""Exceptions that linear algebra raises on such numbers."""


def check_response(family: Family, Y: RowArray, roles: Roles) -> None:
    """Check that there is something in a response that double precision can tell."""
    if family.labelled:
        return
    name = roles.response
    if roles.censoring is not None:
        check_events(Y, roles.censoring)
    with np.errstate(over="ignore", invalid="ignore"):
        _, variance, largest = Sample(Y).moments
    if not largest < GREATEST:
        raise ValueError(
            f"the response {name!r} reaches {largest:g}, whose powers overflow; divide it by a "
            "power of ten."
        )
    if not isinstance(family, (Gaussian, StudentT, Heteroskedastic, CensoredGaussian)):
        return
    sd = float(np.sqrt(variance))
    if sd < LEAST:
        raise ValueError(
            f"the response {name!r} varies by less than {LEAST:g}, whose powers underflow; "
            "multiply it by a power of ten."
        )
    if sd < _RESOLVED * largest:
        raise ValueError(
            f"the response {name!r} varies by {sd:g} around {largest:g}, which is near to rounding "
            "errors; subtract its mean."
        )


@contextlib.contextmanager
def explained(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> Iterator[None]:
    """Says of numbers on which linear algebra breaks down which column they are in."""
    try:
        yield
    except _BROKEN as error:
        why = "double precision does not suffice for these numbers"
        raise ValueError(f"{why}: {_farthest(spec, X, Y)}") from error


def _farthest(spec: Specification, X: AnyNDArray, Y: AnyNDArray) -> str:
    """Description of the column with the value farthest from its others, and of what to do."""
    columns: list[tuple[str, AnyNDArray]] = [(f"the response {spec.response!r}", Y[:, 0])]
    for i, (name, kind) in enumerate(spec.encoder.columns):
        if kind == "number":
            columns.append((f"column {name!r}", X[:, i]))
    worst, text = _FAR, ""
    for what, values in columns:
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        distance = np.abs(values - middle)
        row = int(np.argmax(distance))
        spread = high - low if high > low else float(np.std(np.delete(values, row)))
        if distance[row] > worst * spread:
            worst = float(distance[row] / spread) if spread > 0.0 else np.inf
            text = (
                f"{what} has {values[row]:g} in row {row}, while half of its values are between "
                f"{low:g} and {high:g}; leave such rows out, or transform the column (to ranks, "
                "for instance)."
            )
    if text:
        return text
    listed = ", ".join(f"{what} from {v.min():g} to {v.max():g}" for what, v in columns)
    return f"standardise them, and look for extreme values ({listed})."
