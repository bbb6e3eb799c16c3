"""The functional ANOVA of a posterior: its effects and their Sobol indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.models import GPModel
from scipy.stats import qmc

from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..measures import Measure
from ..optimizers.laplace import draw_hyperparameters
from ..posteriors import AdditivePosterior, InducingMoments, SparseAdditivePosterior
from .grid import (
    Columns,
    ProductGrid,
    component_columns,
    effect_features,
    measures_of,
    measures_of_data,
)
from .table import check_options, sobol_table
from .variances import REPLICATES, VarianceDraws, bootstrapped_nodes, draw_variances


class FunctionalANOVA:
    """
    The decomposition of a predictor into orthogonal effects of sets of independent inputs.

    Components need not be centred, nor be ANOVA components at all: a function of two columns is
    split into its mean, two main effects and the interaction, and what several components say of
    the same columns is added up.
    """

    def __init__(
        self,
        moments: InducingMoments,
        grid: ProductGrid,
        *,
        members: Sequence[InducingMoments] = (),
        replicates: Sequence[ProductGrid] = (),
        names: Mapping[int, str] | None = None,
        predictors: Sequence[str] = ("",),
    ) -> None:
        self.moments = moments
        self.grid = grid
        self.members = tuple(members) or (moments,)
        self.replicates = tuple(replicates)
        self.names = dict(names or {})
        self.predictors = tuple(predictors)

    def name(self, column: int) -> str:
        """The name of a column."""
        return self.names.get(column, f"x{column}")

    def variances(self, num_samples: int = 4000, seed: int = 0) -> VarianceDraws:
        """Posterior draws of the variance of every effect."""
        return draw_variances(
            self.moments, self.members, self.grid, num_samples, seed, self.replicates
        )

    def sobol(self, *, level: float = 0.95, num_samples: int = 4000, seed: int = 0) -> pd.DataFrame:
        """
        Sobol indices: the share of the predictor's variance that is due to a set of inputs.

        Kinds: ``"first"``, an input's main effect alone; ``"interaction"``, what inputs do together
        beyond their parts; ``"total"``, all effects that an input has a hand in (Sobol' 1993; Homma
        & Saltelli 1996); ``"shapley"``, the same with interactions divided equally, which adds up
        to one (Owen 2014). Indices are functions of the function, so that each has a posterior
        distribution: ``estimate`` is its mean. Credible intervals are equal-tailed, but begin at
        zero where the effect that vanishes lies in the credible ball of that level: within its
        distance, in mean square, of the posterior mean lies that share of the draws. An index
        cannot be negative, and an equal-tailed interval would never contain zero.

        :param level: probability of the credible intervals.
        :param num_samples: posterior draws. Of 4000, the width of a 95 % interval varies by 1.5 %.
        :param seed: of the draws.
        :return: a row an index: ``kind``, ``effect``, ``order`` (how many inputs), ``estimate``,
            ``lower``, ``upper`` and ``variance`` (in the predictor's unit, squared); ``predictor``
            first where there are several.
        :raises ValueError: the predictor's variance is zero.
        """
        check_options(level, num_samples)
        draws = self.variances(num_samples, seed)
        return sobol_table(draws, self.name, level, self.predictors)

    @check_shapes("X: [N, D]", "return[0]: [N, L]", "return[1]: [N, L]")
    def effect(self, columns: Columns | int, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Posterior mean and variance of the effect of a set of columns at points, [N, L] each.

        :param columns: the set; ``(0,)`` is a main effect.
        :param X: points [N, D], of which those columns matter.
        :raises ValueError: no component reads all of these columns.
        """
        subset = (columns,) if isinstance(columns, int) else tuple(sorted(columns))
        result = effect_features(self.moments, self.grid, subset, np.asarray(X))
        if not subset or not result:
            raise ValueError(f"no component has an effect of columns {list(subset)}.")
        moments = self.moments
        places = np.concatenate(
            [np.arange(moments.mean.shape[0])[moments.block(name)] for name in result]
        )
        phi = np.concatenate(list(result.values()))
        mean = phi.T @ moments.mean[places]
        covariance = moments.covariance[:, places[:, None], places[None, :]]
        variance = np.einsum("pn,lpq,qn->nl", phi, covariance, phi, optimize=True)
        own = component_columns(moments.kernel)
        for name, features in result.items():
            if own[name] == subset:
                prior = moments.kernel[name](X, full_cov=False).numpy()
                left = np.maximum(prior - np.sum(features**2, axis=0), 0.0)
                variance += left[:, None] * moments.entering([name])
        return mean, variance


def functional_anova(
    posterior: AdditivePosterior | GPModel,
    measures: Mapping[int, Measure] | AnyNDArray | None = None,
    *,
    names: Mapping[int, str] | Sequence[str] | None = None,
    inducing_variable: AdditiveInducingVariables | None = None,
    unconditional: bool = False,
    bootstrap: bool = True,
    seed: int = 0,
) -> FunctionalANOVA:
    """
    The functional ANOVA of a posterior of any engine.

    :param posterior: of an additive model, or the model.
    :param measures: the distribution of each column, by its place; or data [N, D], whose columns
        are taken as independent; by default the measures that zero-mean components are centred
        under.
    :param names: what columns are called.
    :param inducing_variable: where to read off a posterior that has no inducing values (of
        :class:`~gpflow_gam.models.IterNCGP`, :class:`~gpflow_gam.models.AdditiveVGP`); spread over
        the measures by default.
    :param unconditional: whether indices allow for uncertain hyperparameters: see
        :func:`gpflow_gam.optimizers.laplace.draw_hyperparameters`. It needs the model, an
        :class:`~gpflow_gam.models.AdditiveSGPR`.
    :param bootstrap: whether indices allow for ``measures`` that are data being a sample of the
        inputs' distribution (Bayesian bootstrap of the rows).
    :param seed: of the bootstrap.
    :raises ValueError: columns without a measure, or with several, or components of too many
        columns.
    :raises TypeError: no posterior of an additive model.
    """
    given = type(posterior).__name__
    members: list[InducingMoments] = []
    if unconditional:
        members = [draw.moments for draw in draw_hyperparameters(posterior)]
        if not members:
            raise ValueError(
                "unconditional=True needs an AdditiveSGPR that has trainable parameters; got "
                f"{given}."
            )
    if isinstance(posterior, GPModel):
        posterior = posterior.posterior()
    if not isinstance(posterior, AdditivePosterior):
        raise TypeError(f"posterior must be an additive model or its posterior; got {given}.")
    kernel = posterior.kernel
    subsets = [s for s in component_columns(kernel).values() if s]
    known = _measures(kernel, measures)
    grid = ProductGrid(known, subsets)
    replicates: list[ProductGrid] = []
    if bootstrap and measures is not None and not isinstance(measures, Mapping):
        X = np.asarray(measures)
        drawn = bootstrapped_nodes(grid.all, X, np.ones(len(X)), REPLICATES, seed)
        replicates = [grid.reweighted(weights) for weights in drawn]
    if inducing_variable is None and not isinstance(posterior, SparseAdditivePosterior):
        inducing_variable = spread_inputs(kernel, known)
    moments = InducingMoments.of(posterior, inducing_variable)
    if names is not None and not isinstance(names, Mapping):
        if isinstance(names, str) or len(names) < kernel.num_columns:
            raise ValueError(
                f"names must be one a column, at least {kernel.num_columns}, or a mapping from "
                f"places to names; got {names!r}."
            )
        names = dict(enumerate(names))
    L = moments.mean.shape[1]
    predictors = ("",) if L == 1 else tuple(map(str, range(L)))
    return FunctionalANOVA(
        moments, grid, members=members, replicates=replicates, names=names, predictors=predictors
    )


def _measures(
    kernel: AdditiveKernel, measures: Mapping[int, Measure] | AnyNDArray | None
) -> Mapping[int, Measure]:
    if measures is None:
        return measures_of(kernel)
    if isinstance(measures, Mapping):
        return measures
    data = None if isinstance(measures, Measure) else np.asarray(measures)
    if data is None or data.dtype == object or data.ndim != 2:
        raise ValueError(
            "measures must map the place of each column to its measure, such as "
            f"{{0: Uniform(0, 1)}}, or be data [N, D]; got {measures!r}."
        )
    return measures_of_data(data)


_SPREAD = {1: 32, 2: 100}  # points at which components are read off, by dimension; 200 beyond


def spread_inputs(
    kernel: AdditiveKernel, measures: Mapping[int, Measure]
) -> AdditiveInducingVariables:
    """Inputs that pin components down where the measures have their mass."""
    inputs = {}
    for name, columns in component_columns(kernel).items():
        d = len(columns)
        number = _SPREAD.get(d, 200)
        if d <= 2:
            each = [
                np.asarray(measures[c].thinned(int(number ** (1 / d))).nodes()[0]) for c in columns
            ]
            mesh = np.meshgrid(*[x[:, 0] for x in each], indexing="ij")
            points = np.stack([m.ravel() for m in mesh], axis=1) if d else np.zeros((1, 0))
        else:
            u = qmc.Sobol(d, seed=0).random(number)
            points = np.concatenate(
                [measures[c].transport(u[:, [i]]) for i, c in enumerate(columns)], axis=1
            )
        inputs[name] = np.unique(points, axis=0)
    return AdditiveInducingVariables(inputs)
