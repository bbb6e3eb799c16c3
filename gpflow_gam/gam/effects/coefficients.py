"""Coefficients: the intercept, slopes of lines, and effects of levels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.stats import norm

from ..components import Component
from ..fits import FittedGAM
from ..terms import Column
from ..terms.base import Level
from .effect import make_grid
from .posterior import joint_moments

_LEVELS = 300  # levels of which a joint covariance is held at a time

COEFFICIENTS = ("constant", "line", "levels", "means", "random")
"""Forms of components that are read as numbers."""


class _Part(NamedTuple):
    """Coefficients of one component."""

    column: Column | None
    levels: list[Any]
    mean: AnyNDArray  # [n, L]
    sd: AnyNDArray  # [n, L]


def coefficients(
    fit: FittedGAM,
    reference: Level | Mapping[Column, Level] | None = None,
    level: float = 0.95,
    unconditional: bool = True,
    most: int | None = None,
) -> pd.DataFrame:
    """The table of :meth:`gpflow_gam.GAM.coefficients`."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    references = None if reference is None else _references(fit, reference)
    z = float(norm.ppf(0.5 + 0.5 * level))
    frames = []
    for component in fit.spec.components:
        if component.form not in COEFFICIENTS:
            continue
        if most is not None and len(component.inducing) > most:
            continue
        for part in _parts(fit, component, references, unconditional):
            for i in component.predictors_of(fit.num_predictors):
                estimate, se = part.mean[:, i], part.sd[:, i]
                frame = pd.DataFrame(
                    {
                        "term": component.name,
                        "column": pd.Series([part.column] * len(se), dtype=object),
                        "level": pd.Series(part.levels, dtype=object),
                        "estimate": estimate,
                        "se": se,
                        "lower": estimate - z * se,
                        "upper": estimate + z * se,
                    }
                )
                if fit.num_predictors > 1:
                    frame.insert(1, "predictor", fit.spec.predictor_names[i])
                frames.append(frame)
    if not frames:
        predictor = ["predictor"] if fit.num_predictors > 1 else []
        columns = ["term", *predictor, "column", "level", "estimate", "se", "lower", "upper"]
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)


def _parts(
    fit: FittedGAM,
    component: Component,
    references: dict[str, int] | None,
    unconditional: bool,
) -> Iterator[_Part]:
    width = fit.spec.encoder.width
    if component.form == "constant":
        points = [(component, np.zeros((1, 0)), 1.0)]
        if references is not None:
            points += _reference_points(fit, references)
        blocks = [(c.name, c.full(x, width)) for c, x, _ in points]
        mean, covariance = joint_moments(fit, blocks, unconditional, left_open=False)
        a = np.array([[weight for _, _, weight in points]])
        yield _Part(None, [None], a @ mean + fit.constant_of(component), _sd(a @ covariance @ a.T))
        return
    if component.form == "line":
        (margin,) = component.margins
        # by a number the line crosses zero at zero, and at its centre otherwise
        varying = component.by is not None and component.by.code is None
        start = 0.0 if varying else margin.centre
        X = component.full(np.array([[start + margin.span]]), width)
        mean, covariance = _moments(fit, component, X, unconditional)
        run = X[0, margin.column] - start  # as rounded
        name = list(fit.spec.encoder.columns)[margin.column][0]
        yield _Part(name, [None], mean / run, _sd(covariance) / abs(run))
        return
    where = make_grid(fit, component)
    ((name, labels),) = where.columns.items()
    against = None if references is None else references.get(component.name)
    for first in range(0, len(labels), _LEVELS):
        at = np.arange(first, min(first + _LEVELS, len(labels)))
        if against is None:
            mean, covariance = _moments(fit, component, where.X[at], unconditional)
            mean = mean + fit.constant_of(component)
        else:
            both = where.X[np.append(at, against)]
            mean, covariance = _moments(fit, component, both, unconditional)
            A = np.concatenate([np.eye(len(at)), -np.ones((len(at), 1))], axis=1)
            A[at == against] = 0.0
            mean, covariance = A @ mean, A @ covariance @ A.T
        yield _Part(name, list(labels[at]), mean, _sd(covariance))


def _reference_points(
    fit: FittedGAM, references: dict[str, int]
) -> list[tuple[Component, AnyNDArray, float]]:
    """Contributions to the intercept at reference levels: components, inputs, and weights."""
    spec = fit.spec
    codes = {}
    points = []
    for name, place in references.items():
        component = spec.component(name)
        (margin,) = component.margins
        codes[margin.column] = margin.nodes[place]
        if component.by is None:  # slopes are those of a column, at zero of it
            points.append((component, np.array([[margin.nodes[place]]]), 1.0))
    for component in spec.components:
        by, share = component.by, 1.0
        if component.form != "line" or (by is not None and by.code is None):
            continue  # a number that multiplies a line: at zero of it, too
        if by is not None:
            if by.column in codes:
                share = float(codes[by.column] == by.code)
            else:
                values, weights = fit.marginal(by.column)
                share = float(np.sum(weights[values == by.code]) / np.sum(weights))
        points.append((component, np.zeros((1, 1)), share))
    return points


def _moments(
    fit: FittedGAM, component: Component, X: AnyNDArray, unconditional: bool
) -> tuple[AnyNDArray, AnyNDArray]:
    return joint_moments(fit, [(component.name, X)], unconditional, left_open=False)


def _sd(covariance: AnyNDArray) -> AnyNDArray:
    """[n, L] of [L, n, n]."""
    variances = np.diagonal(covariance, axis1=1, axis2=2).T
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))


def _references(fit: FittedGAM, reference: Level | Mapping[Column, Level]) -> dict[str, int]:
    """The place among its levels of what each named component is compared with."""
    spec = fit.spec
    components = [c for c in spec.components if c.form in ("levels", "means", "random")]
    names = {c.name: list(spec.encoder.columns)[c.margins[0].column][0] for c in components}
    if not isinstance(reference, Mapping):
        if len(names) != 1:
            raise ValueError(
                f"reference={reference!r} could be of {len(names)} terms; name the column, as in "
                f"reference={{{next(iter(names.values()), 'g')!r}: {reference!r}}}."
            )
        reference = {next(iter(names)): reference}
    result: dict[str, int] = {}
    for key, value in reference.items():
        own = [name for name, column in names.items() if key in (name, column)]
        if not own:  # perhaps a term as it was typed
            with contextlib.suppress(ValueError):
                own = [c.name for c in spec.called(str(key)) if c.name in names]
        if not own:
            raise ValueError(
                f"reference: there is no factor {key!r}; there are {', '.join(names) or 'none'}."
            )
        for name in own:
            (labels,) = make_grid(fit, spec.component(name)).columns.values()
            places = [i for i, label in enumerate(labels) if label == value]
            if not places:
                shown = ", ".join(repr(label) for label in labels[:12])
                raise ValueError(
                    f"reference: {name} has no level {value!r}; its levels are {shown}"
                    f"{', ...' if len(labels) > 12 else ''}."
                )
            result[name] = places[0]
    return result
