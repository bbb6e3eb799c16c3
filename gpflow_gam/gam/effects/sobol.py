"""Sobol indices of a fitted GAM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...errors import check_choice, check_count, check_level
from ...likelihoods.base import unwrapped
from ...measures import Discrete, Empirical, Measure
from ...sensitivity import FunctionalANOVA
from ...sensitivity.anova import (
    Response,
    covariance_table,
    pick_freeze,
    response_table,
)
from ...sensitivity.grid import (
    REPLICATES,
    ProductGrid,
    bootstrapped_nodes,
    bootstrapped_weights,
    component_columns,
    draw_covariances,
)
from ..fits import FittedGAM
from ..fits.fitted import Inspected, Scale
from .posterior import hyperparameter_draws

_ROWS = 2000  # rows that stand for the data's joint distribution

_RESAMPLED = 32
"""Sets of Monte Carlo rows past a link, at least; each is of a draw of the inputs' distribution."""


def given_measures(fit: FittedGAM, measures: Mapping[str, Measure] | None) -> dict[int, Measure]:
    """Distributions that are given for columns of the data, by the columns' places."""
    keys = list(fit.spec.encoder.columns)
    used = {c for component in fit.spec.components for c in component.columns}
    names = sorted({str(keys[c][0]) for c in used})
    result: dict[int, Measure] = {}
    for name, measure in (measures or {}).items():
        places = [c for c in used if keys[c][0] == name]
        if not places:
            raise ValueError(
                f"measures: no term reads a column {name!r}; there are {', '.join(names)}."
            )
        if any(keys[c][1] == "level" for c in places):
            raise ValueError(
                f"measures: column {name!r} holds levels, whose shares are those of the data; "
                "give a measure of numbers only."
            )
        if not isinstance(measure, Measure) or measure.dimension != 1:
            raise ValueError(
                f"measures: column {name!r} needs a measure of one column, such as "
                f"gg.measures.Uniform(0, 1); got {measure!r}."
            )
        result |= {c: measure for c in places}
    return result


def input_measures(fit: FittedGAM) -> dict[int, Measure]:
    """Each column's distribution in the data: levels as they are, numbers thinned to nodes."""
    used = sorted({c for component in fit.spec.components for c in component.columns})
    keys = list(fit.spec.encoder.columns)
    summed = next((c.name for c in fit.spec.components if c.slots), None)
    if summed is not None:
        raise ValueError(f"sobol: {summed} is a sum over lags or arrays, whose values go together.")
    names = [keys[c][0] for c in used]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(
            f"column {twice!r} is read both as numbers and as levels, which are not independent; "
            "use inputs='data'."
        )
    result: dict[int, Measure] = {}
    for c in used:
        if keys[c][1] == "level":
            result[c] = Discrete.from_data(*fit.marginal(c))
        else:
            result[c] = Empirical.from_data(*fit.marginal(c))
    return result


def _response(fit: FittedGAM, likelihood: Likelihood, shift: AnyNDArray) -> Response:
    def response(F: AnyNDArray) -> AnyNDArray:
        mean = np.asarray(fit.spec.family.mean(likelihood, F + shift))
        return mean if mean.ndim == 3 else mean[..., None]

    return response


def _in_units(fit: FittedGAM, table: pd.DataFrame) -> pd.DataFrame:
    """With variances in the response's unit."""
    if "predictor" in table:
        if fit.model.kernel.members is not None:  # of columns that a predictor does not read
            none = (table[["estimate", "lower", "upper"]] == 0.0).all(axis=1)
            table = table[~none].reset_index(drop=True)
        squares = dict(zip(fit.spec.predictor_names, fit.units[0] ** 2))
        table["variance"] *= table["predictor"].map(squares)
    return table


class SobolIndices(Inspected):
    """Sobol indices of a fitted GAM."""

    def sobol(
        self,
        *,
        scale: Scale = "link",
        inputs: Literal["independent", "data"] = "independent",
        measures: Mapping[str, Measure] | None = None,
        bootstrap: bool = True,
        level: float = 0.95,
        unconditional: bool = True,
        num_samples: int = 4000,
        num_points: int = 2048,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """
        Sobol indices: which share of the prediction's variance is due to which columns.

        With ``inputs="independent"`` every column has its own distribution in the data, and the
        predictor is split into effects of sets of columns that are orthogonal to each other: see
        :meth:`gpflow_gam.sensitivity.FunctionalANOVA.sobol` for the kinds ``"first"``,
        ``"interaction"``, ``"total"`` and ``"shapley"``. Where columns depend on each other in the
        data this says what the fitted function does, not what happens in the data: combinations
        of values that never occur count as much as any.

        With ``inputs="data"`` rows stay together. Variances of components then overlap, and no
        split by columns is orthogonal; the table gives each component's ``"share"``, its
        covariance with the predictor over the predictor's variance (they add up to one), of which
        ``"structural"`` is the component's own variance and ``"correlative"`` its covariance with
        the other components (Li et al. 2010). Shapley effects under dependence need conditional
        expectations of the function given any set of columns, which a sample of moderate size
        cannot give without a further model; they are left out.

        With ``scale="response"`` the indices are of the expected response, by Monte Carlo, whose
        error is part of the intervals: past a link inputs interact even where the predictor is a
        sum. Interactions are of pairs: of all up to ten inputs, of more those that a term reads
        together. Offsets are held at their mean.

        :param scale: the predictor, or the expected response (probabilities of each class).
        :param inputs: ``"independent"`` or ``"data"``.
        :param measures: distributions of numeric columns that are known, such as
            ``{"x": gg.measures.Uniform(0, 1)}``; of other columns that of the data is taken.
        :param bootstrap: whether the intervals allow for the data being a sample of the columns'
            distribution (Bayesian bootstrap of the rows); without it they are those of the
            population that consists of the data.
        :param level: probability of the credible interval.
        :param unconditional: whether they allow for uncertain hyperparameters, as
            :meth:`effects` does.
        :param num_samples: posterior draws; at most 128 with ``scale="response"``, where each needs
            the functions themselves.
        :param num_points: Monte Carlo rows with ``scale="response"``, a power of two.
        :param seed: the GAM's own by default.
        :return: a row an index: ``kind``, ``effect``, ``estimate`` (the posterior mean), ``lower``,
            ``upper``, ``variance``; ``predictor`` or ``class`` first where there are several.
        :raises ValueError: a prediction without variance, of which no share is defined; or
            naming the argument.
        """
        fit, seed = self.fitted, self._chosen_seed(seed)
        check_level(level)
        check_count("num_samples", num_samples, 2)
        check_choice("scale", scale, ("link", "response"))
        check_choice("inputs", inputs, ("independent", "data"))
        made = fit.spec.dependent
        if inputs == "independent" and made:
            raise ValueError(
                f"inputs='independent': columns that the formula makes ({', '.join(made)}) are "
                "functions of others; use inputs='data'."
            )
        given = given_measures(fit, measures)
        drawn = hyperparameter_draws(fit) if unconditional else []
        members = [(d.moments, unwrapped(d.likelihood)) for d in drawn]
        members = members or [(fit.moments, fit.likelihood)]
        states = [moments for moments, _ in members]
        if inputs == "data":
            if scale == "response":
                raise ValueError(
                    "scale='response' needs inputs='independent': past a link the response is no "
                    "sum of components whose covariances could be taken."
                )
            if given:
                raise ValueError(
                    "measures describe independent inputs; with inputs='data' rows stay together. "
                    "Leave one of the two out."
                )
            rows = fit.some_rows(_ROWS)
            weights = fit.weights[rows]
            of_rows = weights, REPLICATES, seed, fit.number
            counts = list(bootstrapped_weights(*of_rows)) if bootstrap else []
            names = fit.spec.effect_names
            at = states, fit.X[rows], weights, names
            draws = draw_covariances(*at, num_samples, seed, counts)
            table = covariance_table(*draws, names, level, fit.spec.predictor_names)
            return _in_units(fit, table)
        known, replicates = input_measures(fit) | given, []
        grid = ProductGrid(known, [s for s in component_columns(fit.moments.kernel).values() if s])
        if bootstrap:
            margins = {c: margin for c, margin in grid.margins.items() if c not in given}
            changed = bootstrapped_nodes(margins, fit.X, fit.weights, REPLICATES, seed, fit.number)
            replicates = [grid.reweighted(weights) for weights in changed]
        anova = FunctionalANOVA(
            fit.moments,
            grid,
            members=states,
            replicates=replicates,
            names={i: str(name) for i, (name, _) in enumerate(fit.spec.encoder.columns)},
            predictors=fit.spec.predictor_names,
        )
        if scale == "link":
            return _in_units(fit, anova.sobol(level=level, num_samples=num_samples, seed=seed))
        shift = fit.mean_offset()
        response = [(m, _response(fit, likelihood, shift)) for m, likelihood in members]
        response *= -(-_RESAMPLED // len(response))
        each = [known]
        if bootstrap:
            nodes = {c: m.nodes() for c, m in known.items() if c not in given}
            pairs = {c: (np.asarray(x)[:, 0], np.asarray(w)) for c, (x, w) in nodes.items()}
            of = fit.X, fit.weights, len(response), seed, fit.number
            each = [
                known | {c: Discrete(pairs[c][0], w) for c, w in weights.items()}
                for weights in bootstrapped_nodes(pairs, *of)
            ]
        result = pick_freeze(response, each, num_points, min(num_samples, 128), seed)
        classes = tuple(map(str, fit.spec.levels or ())) if result[-1].shape[1] > 1 else ("",)
        predictor = anova.variances(num_samples, seed)
        return response_table(result, predictor, anova.name, level, classes)
