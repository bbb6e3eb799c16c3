"""Sobol indices of a fitted GAM."""

from __future__ import annotations

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...likelihoods import unwrapped
from ...measures import Discrete, Empirical, Measure
from ...posteriors import InducingMoments
from ...sensitivity import FunctionalANOVA
from ...sensitivity.dependent import covariance_table, draw_covariances
from ...sensitivity.grid import ProductGrid, component_columns
from ...sensitivity.pick_freeze import Response, pick_freeze
from ...sensitivity.table import check_options, response_table
from ..fits import FittedGAM
from .hyperparameters import hyperparameter_draws
from .joint import inducing_moments

_ROWS = 2000
"""Rows that stand for the data's joint distribution."""

Member = tuple[InducingMoments, Likelihood]


def sobol(
    fit: FittedGAM,
    *,
    scale: str = "link",
    inputs: str = "independent",
    level: float = 0.95,
    unconditional: bool = True,
    num_samples: int = 4000,
    num_points: int = 2048,
    seed: int = 0,
) -> pd.DataFrame:
    """
    What :meth:`gpflow_gam.GAM.sobol` returns.

    :raises ValueError: naming the argument.
    """
    check_options(level, num_samples)
    for argument, value, allowed in (
        ("scale", scale, ("link", "response")),
        ("inputs", inputs, ("independent", "data")),
    ):
        if value not in allowed:
            raise ValueError(f"{argument} must be one of {', '.join(allowed)}; got {value!r}.")
    members = posterior_members(fit, unconditional)
    if inputs == "data":
        if scale == "response":
            raise ValueError(
                "scale='response' needs inputs='independent': past a link the response is no sum "
                "of components whose covariances could be taken."
            )
        rows = np.unique(np.linspace(0, len(fit.X) - 1, min(len(fit.X), _ROWS)).astype(int))
        moments = [m for m, _ in members]
        draws = draw_covariances(
            moments, fit.X[rows], fit.weights[rows], fit.spec.names[1:], num_samples, seed
        )
        return _in_units(fit, covariance_table(draws, level, fit.spec.predictor_names))
    anova = functional_anova(fit, members)
    if scale == "link":
        return _in_units(fit, anova.sobol(level=level, num_samples=num_samples, seed=seed))
    measures = input_measures(fit)
    shift = mean_offset(fit)
    response = [(m, _response(fit, likelihood, shift)) for m, likelihood in members]
    found = pick_freeze(response, measures, num_points, min(num_samples, 128), seed)
    classes = tuple(map(str, fit.spec.levels or ())) if found.total.shape[1] > 1 else ("",)
    predictor = anova.variances(num_samples, seed)
    return response_table(found, predictor, anova.name, level, classes)


def functional_anova(fit: FittedGAM, members: list[Member] | None = None) -> FunctionalANOVA:
    """
    The functional ANOVA of a fit's predictor, each column with its own distribution in the data.

    :param members: posteriors over which indices are averaged; the fitted one by default.
    """
    moments = inducing_moments(fit)
    subsets = [s for s in component_columns(moments.kernel).values() if s]
    return FunctionalANOVA(
        moments,
        ProductGrid(input_measures(fit), subsets),
        members=[m for m, _ in members or ()],
        names={i: str(name) for i, (name, _) in enumerate(fit.spec.encoder.columns)},
        predictors=fit.spec.predictor_names,
    )


def posterior_members(fit: FittedGAM, unconditional: bool) -> list[Member]:
    """The posterior at draws of the hyperparameters, or at the fitted ones."""
    draws = hyperparameter_draws(fit) if unconditional else []
    if not draws:
        return [(inducing_moments(fit), fit.likelihood)]
    return [(d.moments, unwrapped(d.likelihood)) for d in draws]


def input_measures(fit: FittedGAM) -> dict[int, Measure]:
    """
    Each column's distribution in the data: levels as they are, numbers thinned to nodes.

    :raises ValueError: a column that is read as numbers and as levels: its two readings are not
        independent.
    """
    used = sorted({c for component in fit.spec.components for c in component.columns})
    keys = list(fit.spec.encoder.columns)
    names = [keys[c][0] for c in used]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(
            f"column {twice!r} is read both as numbers and as levels, which are not independent; "
            "use inputs='data'."
        )
    found: dict[int, Measure] = {}
    for c in used:
        if keys[c][1] == "level":
            levels = Empirical(*fit.marginal(c))
            found[c] = Discrete(levels.points, levels.probabilities)
        else:
            found[c] = Empirical.from_data(*fit.marginal(c))
    return found


def mean_offset(fit: FittedGAM) -> AnyNDArray:
    """The known part of the predictor, [L], offsets at their mean."""
    return fit.mean_offset()


def _response(fit: FittedGAM, likelihood: Likelihood, shift: AnyNDArray) -> Response:
    def response(F: AnyNDArray) -> AnyNDArray:
        mean = np.asarray(fit.spec.family.mean(likelihood, F + shift))
        return mean if mean.ndim == 3 else mean[..., None]

    return response


def _in_units(fit: FittedGAM, table: pd.DataFrame) -> pd.DataFrame:
    """With variances in the response's unit."""
    if "predictor" in table:
        factor = np.broadcast_to(fit.units[0], fit.num_predictors)
        squares = dict(zip(fit.spec.predictor_names, factor**2))
        table["variance"] *= table["predictor"].map(squares)
    return table
