"""Variance components: learnt prior variances of the parts of effects, and of the noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Constant, Kernel, Sum
from scipy.stats import norm

from ...kernels import CentredLinear, kernel_columns
from ...optimizers.hyperparameters import profile_limits
from ...optimizers.minimizers.descent import Loss
from ...threads import one_blas_thread
from ..components import Component
from ..fits import FittedGAM


class Part(NamedTuple):
    """
    A part of a component that has a variance of its own.

    :param name: which it is of several; empty of the only one.
    :param variance: the parameter that is learnt.
    :param unit: what it is multiplied by to be the prior variance of what the part contributes.
    """

    name: str
    variance: Parameter
    unit: float


def parts_of(fit: FittedGAM, component: Component) -> list[Part]:
    """
    The parts of a component whose variances are learnt.

    :param fit: a fitted GAM.
    :param component: one of the fit's.
    :return: none of what is not penalised, and of users' own kernels.
    """
    if component.form == "own" or not component.shrink:
        return []
    kernel = fit.model.kernel[component.name]
    several = isinstance(kernel, Sum)
    found = []
    for own in kernel.kernels if several else [kernel]:
        leaves = leaves_of(own)
        learnt = [
            leaf.variance
            for leaf in leaves
            if isinstance(getattr(leaf, "variance", None), Parameter) and leaf.variance.trainable
        ]
        if learnt:  # not the intercept's, in means of levels
            (variance,) = learnt
            name, unit = _named(fit, component, leaves[0]) if several else ("", 1.0)
            found.append(Part(name, variance, unit))
    return found if len(found) > 1 else [part._replace(name="") for part in found]


def _named(fit: FittedGAM, component: Component, leaf: Kernel) -> tuple[str, float]:
    """What a part of several is called, and its unit."""
    if isinstance(leaf, Constant):
        return "level", 1.0
    if not isinstance(leaf, CentredLinear):
        return "deviation", 1.0
    for margin in component.margins:
        if (margin.column,) == (kernel_columns(leaf) or ()):
            # the variance of the column turns a slope's into its own
            away = np.array(margin.nodes) - margin.centre
            column = list(fit.spec.encoder.columns)[margin.column][0]
            name = "straight" if len(component.margins) == 1 else f"straight in {column}"
            return name, float(np.dot(margin.weights, np.square(away)))
    return "straight", 1.0


def leaves_of(kernel: Kernel) -> list[Kernel]:
    """
    The kernels that a kernel is made of.

    :param kernel: a sum, a product, or one with a base.
    """
    if hasattr(kernel, "kernels"):
        return [leaf for part in kernel.kernels for leaf in leaves_of(part)]
    for name in ("base", "base_kernel"):
        if hasattr(kernel, name):
            return leaves_of(getattr(kernel, name))
    return [kernel]


def variance_components(fit: FittedGAM, level: float = 0.95) -> pd.DataFrame:
    """
    The table of :meth:`gpflow_gam.GAM.variance_components`.

    :param fit: a fitted GAM.
    :param level: probability of the limits.
    :raises ValueError: ``level`` is no probability.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be a probability between 0 and 1; got {level}.")
    # trial steps may end where numbers do
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        rows = list(_rows(fit, float(norm.ppf(0.5 + 0.5 * level))))
    columns = ["term", "predictor", "part", "variance", "sd", "lower", "upper"]
    table = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[3:], float))
    return table if fit.num_predictors > 1 else table.drop(columns="predictor")


def _rows(fit: FittedGAM, z: float) -> Iterator[tuple[object, ...]]:
    spec, limits = fit.spec, _limits(fit, z)
    names = spec.predictor_names
    units = np.broadcast_to(fit.units[0], len(names))
    for component in spec.effects:
        for name, parameter, unit in parts_of(fit, component):
            found = np.array([fit.value(parameter), np.nan, np.nan])
            if not component.shape:  # data say more of those than the criterion knows
                found[1:] = limits(parameter)
            for i in component.predictors_of(len(names)):
                sd = np.abs(units[i]) * np.sqrt(unit * found)
                yield component.name, names[i], name, sd[0] ** 2, *sd
    noise = spec.family.parameters(fit.likelihood, spec.levels).get("variance")
    if noise is not None:
        bound = None if fit.solution is None else fit.solution.bound
        within = (np.nan, np.nan) if bound is None else limits(bound.parameter)
        yield "residual", "", "", noise, *np.sqrt([noise, *within])


def _limits(fit: FittedGAM, z: float) -> Callable[[Parameter], tuple[float, float]]:
    """Limits of a variance; NaN where the fit has no criterion that speaks of others."""
    solution = fit.solution
    if solution is None or solution.hessian is not None:
        return lambda _: (np.nan, np.nan)
    bound, rounds, data = solution.bound, solution.rounds, solution.data
    optimum = solution.found if solution.unshaped is None else solution.unshaped
    learnt = list(rounds.hyperparameters.parameters)
    loss: Loss
    metric: Callable[[AnyNDArray], AnyNDArray | None]
    if bound is not None:
        loss, metric = bound.loss, bound.metric
        learnt += bound.noise.parameters
    else:
        optimum, loss = optimum[: len(rounds.hyperparameters)], rounds.loss(data)

        def metric(u: AnyNDArray) -> AnyNDArray | None:
            return rounds.metric(data, u)

    starts = np.cumsum([0, *(int(np.prod(p.shape.as_list())) for p in learnt)])

    def limits(parameter: Parameter) -> tuple[float, float]:
        at = [p is parameter for p in learnt].index(True)
        ends = profile_limits(loss, optimum, int(starts[at]), z, metric)
        assert parameter.transform is not None  # a variance is positive
        lower, upper = np.asarray(parameter.transform.forward(np.array(ends)))
        return float(lower), float(upper)

    return limits
