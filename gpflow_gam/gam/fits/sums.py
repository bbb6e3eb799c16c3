"""What a fit came to, as JSON and arrays: loaded effects are the same to the last bit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ...models import AdditiveSGPR, AdditiveSVGP
from ...optimizers import Solution, present_solution, solution_of_sums
from ...optimizers.binned.cavities import between_predictors
from ...optimizers.binned.evidence import GaussianPosterior, PseudoData
from ...optimizers.binned.passes import Rows
from ...threads import one_blas_thread

Parts = tuple[dict[str, Any], dict[str, AnyNDArray]]
"""What JSON can hold, and arrays."""
_Q = ("mean", "covariance", "log_det", "precision", "shift")


def solution_to_parts(solution: Solution, model: AdditiveSGPR | AdditiveSVGP) -> Parts:
    """
    The posterior and the sums over rows, but no row.

    :param model: of the fit.
    """
    if solution.bound is None and solution.curvature is None:
        sweep = solution.rows.sweep(model.likelihood, solution.values, solution.q)
        solution = dataclasses.replace(solution, curvature=sweep.curvature)
    q, sums = solution.q, solution.data
    arrays = {f"q {name}": getattr(q, name) for name in _Q}
    arrays |= {"sums precision": sums.precision, "sums shift": sums.shift, "found": solution.found}
    arrays |= {f"q root {i}": root for i, root in enumerate(q.roots)}
    arrays |= {f"sums mass {i}": mass for i, mass in enumerate(sums.masses)}
    arrays |= {f"sums at {i}": c.places.points for i, c in enumerate(solution.rows.components)}
    if solution.curvature is not None:
        arrays["curvature"] = solution.curvature
    if solution.hessian is not None:
        arrays["hessian"] = solution.hessian
    if solution.unshaped is not None:
        arrays["unshaped"] = solution.unshaped
    between = between_of(solution, model)
    if between is not None:
        arrays["between"] = between
    error = None if solution.bound is None else list(solution.bound.error)
    return {"components": len(q.roots), "error": error}, arrays


def solution_from_parts(parts: Parts, model: AdditiveSGPR | AdditiveSVGP, rows: Rows) -> Solution:
    """
    What :func:`solution_to_parts` gave.

    :param model: its parameters where they were.
    :param rows: which need have no more than components.
    """
    header, arrays = parts
    number = range(header["components"])
    roots = tuple(arrays[f"q root {i}"] for i in number)
    q = GaussianPosterior(**{name: arrays[f"q {name}"] for name in _Q}, roots=roots)
    masses = tuple(arrays[f"sums mass {i}"] for i in number)
    sums = PseudoData(arrays["sums precision"], arrays["sums shift"], masses)
    error = None if header["error"] is None else tuple(header["error"])
    rest: dict[str, Any] = {name: arrays.get(name) for name in ("hessian", "unshaped", "between")}
    if not _same_places(arrays, rows):
        found = present_solution(model, rows, header["error"] is not None)
        return dataclasses.replace(found, q=q, **rest)
    found = solution_of_sums(model, rows, sums, q, arrays["found"], error, arrays.get("curvature"))
    return dataclasses.replace(found, **rest)


def between_of(solution: Solution, model: AdditiveSGPR | AdditiveSVGP) -> AnyNDArray | None:
    """
    What predictors add to each other's covariances, [L, P, P]; None where they add nothing.

    :param solution: of the fit.
    :param model: of the fit.
    """
    if solution.between is not None or solution.bound is not None:
        return solution.between
    with one_blas_thread():  # the same bits, whoever asks
        return between_predictors(solution.rows, model.likelihood, solution.values, solution.q)


def _same_places(arrays: dict[str, AnyNDArray], rows: Rows) -> bool:
    """
    Whether components are summed where those of a file were.

    On another machine ties between points may be broken otherwise; sums are then none of these
    rows' components, and have to be made anew.
    """
    own = [component.places.points for component in rows.components]
    stored = [arrays.get(f"sums at {i}") for i in range(len(own))]
    return all(b is None or np.array_equal(a, b) for a, b in zip(own, stored))
