"""The functional ANOVA of a posterior, its effects, and tables of Sobol indices."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.functions import Constant
from gpflow.models import GPModel
from scipy.stats import qmc

from ..errors import check_count, check_level
from ..inducing_variables import AdditiveInducingVariables
from ..kernels import AdditiveKernel
from ..kernels.additive import OffsetMean
from ..kernels.shaped import level_columns
from ..measures import Discrete, Empirical, Measure
from ..optimizers.laplace import draw_hyperparameters
from ..posteriors import AdditivePosterior
from ..posteriors.base import SparseAdditivePosterior
from ..posteriors.inducing import InducingMoments
from .grid import (
    REPLICATES,
    Columns,
    ProductGrid,
    VarianceDraws,
    augmented,
    bootstrapped_nodes,
    component_columns,
    draw_variances,
    effect_features,
    measures_of,
    varying,
)

_Index = tuple[dict[str, Any], AnyNDArray, AnyNDArray | bool]
"""What an index is of, its variance in each draw [S, K], and whether it may be zero [K]."""


def sobol_table(
    draws: VarianceDraws,
    names: Callable[[int], str],
    level: float,
    predictors: Sequence[str] = ("",),
) -> pd.DataFrame:
    """Indices of all kinds: see :meth:`FunctionalANOVA.sobol`."""

    def indices() -> Iterator[_Index]:
        for kind, effect, columns, shares in _sums(draws.subsets, names):
            variances = np.einsum("svl,v->sl", draws.variances, shares)
            index = {"kind": kind, "effect": effect, "order": len(columns)}
            yield index, variances, may_vanish(draws, shares, level)

    return _table(indices(), draws.total(), level, "predictor", predictors)


def response_table(
    draws: PickFreezeDraws,
    predictor: VarianceDraws,
    names: Callable[[int], str],
    level: float,
    classes: Sequence[str],
) -> pd.DataFrame:
    """Indices of a response: as :func:`sobol_table`, interactions of pairs only."""
    inputs, pairs, tables, total = draws
    singles = [(c,) for c in inputs]

    def indices() -> Iterator[_Index]:
        for kind, values in tables.items():
            for v, columns in enumerate(pairs if kind == "interaction" else singles):
                inside = [
                    set(columns) <= set(s) and (kind != "first" or len(s) == 1)
                    for s in predictor.subsets
                ]
                vanishing = may_vanish(predictor, np.array(inside, dtype=float), level).all()
                effect = ":".join(map(names, columns))
                index = {"kind": kind, "effect": effect, "order": len(columns)}
                yield index, values[:, v], bool(vanishing) and kind != "interaction"

    return _table(indices(), total, level, "class", classes)


def covariance_table(
    variances: AnyNDArray,
    covariances: AnyNDArray,
    names: Sequence[str],
    level: float,
    predictors: Sequence[str],
) -> pd.DataFrame:
    """Shares Cov[f_c, rho] / Var[rho], and their structural and correlative parts."""
    kinds = {
        "share": covariances,
        "structural": variances,
        "correlative": covariances - variances,
    }
    indices = (
        ({"kind": kind, "effect": name}, values[:, c], False)
        for kind, values in kinds.items()
        for c, name in enumerate(names)
    )
    return _table(indices, covariances.sum(axis=1), level, "predictor", predictors)


def _table(
    indices: Iterator[_Index], total: AnyNDArray, level: float, what: str, names: Sequence[str]
) -> pd.DataFrame:
    """Posterior means and intervals of shares of ``total`` [S, K], a row an index and output."""
    outputs, tail, rows = varying(total), 0.5 * (1.0 - level), []
    for index, values, zero in indices:
        for k, may_be_zero in zip(outputs, np.broadcast_to(zero, total.shape[1])[outputs]):
            shares = values[:, k] / total[:, k]
            lower, upper = np.quantile(shares, [tail, 1.0 - tail])
            least = 0.0 if may_be_zero else -np.inf  # Monte Carlo's estimates may be below
            shown = {
                "estimate": max(float(shares.mean()), least),
                "lower": 0.0 if may_be_zero else float(lower),
                "upper": max(float(upper), least),
                "variance": float(values[:, k].mean()),
            }
            rows.append(({what: names[k]} if len(names) > 1 else {}) | index | shown)
    return pd.DataFrame(rows)


def may_vanish(draws: VarianceDraws, shares: AnyNDArray, level: float) -> AnyNDArray:
    """True if effects that vanish are in the credible ball of L2 round the posterior mean, [L]."""
    distances = np.einsum("svl,v->sl", draws.distances, shares)
    sizes = np.einsum("vl,v->l", draws.sizes, shares)
    inside: AnyNDArray = sizes <= np.quantile(distances, level, axis=0)
    return inside


def _sums(
    subsets: Sequence[Columns], names: Callable[[int], str]
) -> Iterator[tuple[Any, str, Columns, AnyNDArray]]:
    """Each index as a sum of the sets' variances: kind, label, columns and weights [V]."""
    inputs = sorted({c for s in subsets for c in s})
    indicator = {c: np.array([float(c in s) for s in subsets]) for c in inputs}
    sizes = np.array([len(s) for s in subsets])
    for c in inputs:
        yield "first", names(c), (c,), indicator[c] * (sizes == 1)
    for i, subset in enumerate(subsets):
        if len(subset) > 1:
            yield "interaction", ":".join(map(names, subset)), subset, np.eye(len(subsets))[i]
    for c in inputs:
        yield "total", names(c), (c,), indicator[c]
    for c in inputs:
        yield "shapley", names(c), (c,), indicator[c] / sizes


# --- pick-freeze, for functions that are no sums --------------------------------------------------


ALL_PAIRS = 10  # inputs up to which all pairs of them are taken

Response = Callable[[AnyNDArray], AnyNDArray]
"""From predictors' components [S, N, L] to what indices are asked of, [S, N, K]."""


PickFreezeDraws = tuple[Columns, tuple[Columns, ...], dict[str, AnyNDArray], AnyNDArray]
"""Inputs, pairs, variances [S, V, K] by kind (noisy, so some are negative) and in all [S, K]."""


def pick_freeze(
    members: Sequence[tuple[InducingMoments, Response]],
    measures: Sequence[Mapping[int, Measure]],
    num_points: int,
    num_samples: int,
    seed: int,
) -> PickFreezeDraws:
    """Draws of variances of a response."""
    kernel = members[0][0].kernel
    reads = {name: columns for name, columns in component_columns(kernel).items() if columns}
    inputs = tuple(sorted({c for columns in reads.values() for c in columns}))
    # past a link all interact; of many inputs those that a component reads together do most
    together = [inputs] if len(inputs) <= ALL_PAIRS else reads.values()
    pairs = tuple(sorted({p for columns in together for p in itertools.combinations(columns, 2)}))
    grid = ProductGrid(measures[0], list(reads.values()))
    _, every = augmented(members[0][0], grid, [moments for moments, _ in members])
    members = [(moments, response) for moments, (_, response) in zip(every, members)]

    def exchanged(
        moments: InducingMoments, response: Response, V: AnyNDArray, A: AnyNDArray, B: AnyNDArray
    ) -> tuple[AnyNDArray, ...]:
        """The variance in all, and by kind, of columns of A [N, D] that are exchanged for B's."""

        def values(name: str, X: AnyNDArray) -> AnyNDArray:
            """f_c of every draw, [S, N, L]."""
            phi = moments.features(name, X)
            return np.einsum("pn,spl->snl", phi, V[:, moments.block(name)])

        own = {name: values(name, A) for name in kernel.names}
        base = sum(own.values())
        at_a, at_b = response(base), response(sum(values(n, B) for n in kernel.names))
        mean = 0.5 * (at_a.mean(axis=1, keepdims=True) + at_b.mean(axis=1, keepdims=True))
        at_a, at_b = at_a - mean, at_b - mean

        @functools.cache
        def part(name: str, columns: Columns) -> AnyNDArray:
            """Change of f_c at A with these of its columns from B."""
            X = A.copy()
            X[:, list(columns)] = B[:, list(columns)]
            return values(name, X) - own[name]

        def change(columns: Columns) -> AnyNDArray:
            """Change of the response at A with these columns from B, [S, N, K]."""
            read = {n: tuple(c for c in own if c in columns) for n, own in reads.items()}
            moved = [part(name, some) for name, some in read.items() if some]
            return response(base + sum(moved)) - mean - at_a

        total = 0.5 * (np.mean(at_a**2, axis=1) + np.mean(at_b**2, axis=1))
        first, anyhow = {}, []
        for c in inputs:
            moved = change((c,))
            first[c] = np.mean(at_b * moved, axis=1)
            anyhow.append(0.5 * np.mean(moved**2, axis=1))
        both = [np.mean(at_b * change(p), axis=1) - first[p[0]] - first[p[1]] for p in pairs]
        return (
            total,
            np.stack(list(first.values()), axis=1),
            np.stack(both, axis=1) if both else np.zeros((len(V), 0, total.shape[1])),
            np.stack(anyhow, axis=1),
        )

    each, result = -(-num_samples // len(members)), []
    for i, (moments, response) in enumerate(members):
        # rows of their own: intervals then allow for the integral's error, too
        rows = _rows(inputs, measures[i % len(measures)], kernel.num_columns, num_points, seed + i)
        result.append(exchanged(moments, response, moments.sample(each, seed + i), *rows))
    total, *each_kind = (np.concatenate(parts) for parts in zip(*result))
    varying(total)
    return inputs, pairs, dict(zip(("first", "interaction", "total"), each_kind)), total


def _rows(
    inputs: Columns, measures: Mapping[int, Measure], width: int, number: int, seed: int
) -> tuple[AnyNDArray, AnyNDArray]:
    """Independent rows A and B [N, width]."""
    power = int(np.log2(number)) if number > 0 else 0
    if number < 2 or 2**power != number:
        raise ValueError(f"num_points must be a power of two; got {number}.")
    u = qmc.Sobol(2 * len(inputs), seed=seed).random_base2(power)
    rows = np.zeros((2, number, width))
    for half in range(2):
        for i, c in enumerate(inputs):
            rows[half, :, c] = measures[c].transport(u[:, [half * len(inputs) + i]])[:, 0]
    return rows[0], rows[1]


# --- the functional ANOVA -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class FunctionalANOVA:
    """
    The decomposition of a predictor into orthogonal effects of sets of independent inputs.

    Components need not be centred, nor be ANOVA components at all: a function of two columns is
    split into its mean, two main effects and the interaction, and what several components say of
    the same columns is added up. See :func:`functional_anova`, which makes it.
    """

    moments: InducingMoments
    grid: ProductGrid
    members: Sequence[InducingMoments] = ()
    replicates: Sequence[ProductGrid] = ()
    names: Mapping[int, str] | None = None
    predictors: Sequence[str] = ("",)

    def name(self, column: int) -> str:
        """The name of ``column``, a number."""
        return (self.names or {}).get(column, f"x{column}")

    def variances(self, num_samples: int = 4000, seed: int = 0) -> VarianceDraws:
        """``num_samples`` posterior draws of the variance of every effect, from ``seed`` on."""
        members = self.members or (self.moments,)
        return draw_variances(self.moments, members, self.grid, num_samples, seed, self.replicates)

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
        check_level(level)
        check_count("num_samples", num_samples, 2)
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
        subset = (columns,) if isinstance(columns, (int, np.integer)) else tuple(sorted(columns))
        # past this the means that are taken away leave next to nothing open, nor do parts
        moments, own = self._augmented, component_columns(self.moments.kernel)
        result = effect_features(moments, self.grid, subset, np.asarray(X))
        if not subset or not result:
            raise ValueError(f"no component has an effect of columns {list(subset)}.")
        _, open_ = moments.all_features(X, names=list(result))
        whole = np.array([[own[name] == subset] for name in result])
        features = np.concatenate(list(result.values()))
        return moments.summed(features, open_ * whole, list(result))

    @functools.cached_property
    def _augmented(self) -> InducingMoments:
        return augmented(self.moments, self.grid)[0]


def functional_anova(
    posterior: AdditivePosterior | GPModel,
    measures: Mapping[int, Measure] | AnyNDArray | None = None,
    *,
    names: Mapping[int, str] | Sequence[str] | None = None,
    unconditional: bool = False,
    seed: int = 0,
) -> FunctionalANOVA:
    """
    The functional ANOVA of a posterior of any engine.

    :param posterior: of an additive model, or the model.
    :param measures: the distribution of each column, by its place; or data [N, D], whose columns
        are taken as independent, and as a sample of their distribution (Bayesian bootstrap of the
        rows); by default the measures that zero-mean components are centred under.
    :param names: what columns are called.
    :param unconditional: whether indices allow for uncertain hyperparameters, by a Laplace
        approximation. It needs the model, an :class:`~gpflow_gam.models.AdditiveSGPR`.
    :param seed: of the bootstrap.
    :raises ValueError: columns without a measure, or with several, components of too many columns,
        a mean function of columns, or outputs with kernels of their own.
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
    mean = posterior.mean_function
    if getattr(mean, "columns", ()) or not isinstance(mean, (Constant, OffsetMean, type(None))):
        raise ValueError(
            f"posterior has a mean function, {type(mean).__name__}, that may read columns, whose "
            "share would be missing; make it a component (gpflow.kernels.Linear) or a constant."
        )
    kernel = posterior.kernel
    subsets = [s for s in component_columns(kernel).values() if s]
    known = _measures(kernel, measures)
    grid = ProductGrid(known, subsets)
    replicates: list[ProductGrid] = []
    if measures is not None and not isinstance(measures, Mapping):
        X = np.asarray(measures)
        drawn = bootstrapped_nodes(grid.margins, X, np.ones(len(X)), REPLICATES, seed)
        replicates = [grid.reweighted(weights) for weights in drawn]
    sparse = isinstance(posterior, SparseAdditivePosterior)
    moments = InducingMoments.of(posterior, None if sparse else spread_inputs(kernel, known, grid))
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
    levels = level_columns(kernel)
    if measures is None:
        measures = measures_of(kernel)
    elif not isinstance(measures, Mapping):
        data = None if isinstance(measures, Measure) else np.asarray(measures)
        if data is None or data.dtype == object or data.ndim != 2:
            raise ValueError(
                "measures must map the place of each column to its measure, such as "
                f"{{0: Uniform(0, 1)}}, or be data [N, D]; got {measures!r}."
            )
        kinds = [Discrete if i in levels else Empirical for i in range(data.shape[1])]
        measures = {i: kind.from_data(x) for i, (kind, x) in enumerate(zip(kinds, data.T))}
    return {  # fewer points may stand for numbers, but not for levels
        c: Discrete(*m.nodes()) if c in levels and isinstance(m, Empirical) else m
        for c, m in measures.items()
    }


_SPREAD = {1: 32, 2: 100}  # points at which components are read off, by dimension; 200 beyond
_TURNS = 10  # in which at most a hundred more are added to a component, where it varies quickly


def spread_inputs(
    kernel: AdditiveKernel, measures: Mapping[int, Measure], grid: ProductGrid
) -> AdditiveInducingVariables:
    """Inputs that pin components down where the measures have their mass, as many as it takes."""
    inputs = {}
    for name, columns in zip(kernel.names, kernel.columns):
        assert columns is not None  # in the kernel's order, as inducing inputs are
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
    result = AdditiveInducingVariables(inputs)
    for _ in range(_TURNS):
        P = sum(result.sizes)
        prior = InducingMoments(kernel, result, np.zeros((P, 1)), np.eye(P)[None])
        before, result = result, augmented(prior, grid)[0].inducing_variable
        if result is before:
            break
    return result
