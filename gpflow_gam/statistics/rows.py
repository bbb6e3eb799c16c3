"""One pass over rows: marginals from tables, sites from the likelihood, sums by pairs of bins."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ..kernels.shapes import Values
from .components import RowComponent
from .encoded import codes_of, features_at_bins, multipliers_of
from .evidence import Evidence
from .expectations import expectations
from .posterior import GaussianPosterior, posterior_of
from .pseudo_data import PseudoData
from .stored import RowArray
from .sums import nothing, shifts_of, sums_of
from .tables import Tables

BLOCK = 2**17
"""Rows at a time."""
Watch = Callable[[int], None]
"""Told, after every block of a pass, how many rows it has seen."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """
    What one pass saw.

    :param expected: sum_n E_q[log p(y_n | rho_n)].
    :param data: the sites' sums.
    :param negative: how many weights were negative.
    :param slope: derivative of ``expected`` in the likelihood's parameters, [K].
    :param curvature: its second derivatives, [K, K].
    :param across: how the sites' sum of shifts changes with each of them, [K, R, L].
    """

    expected: float
    data: PseudoData
    negative: int
    slope: AnyNDArray
    curvature: AnyNDArray
    across: AnyNDArray


class Rows:
    """
    The rows of data as components' bins see them.

    What there is of every row may be stored in any way that can be read by slices and by indices
    (:mod:`gpflow_gam.statistics.stored`): a pass reads a block at a time.

    :param components: one an additive component, in the kernel's order.
    :param X: [N, D], for likelihoods that read inputs.
    :param Y: [N, K], as the likelihood takes it.
    :param mean: the mean function at the rows, [N, L].
    :param sample: indices [n] and inputs [n, D] of rows that are known to the last bit, where X is
        not.
    """

    def __init__(
        self,
        components: Sequence[RowComponent],
        X: RowArray,
        Y: RowArray,
        mean: RowArray,
        sample: tuple[AnyNDArray, AnyNDArray] | None = None,
    ) -> None:
        self.components = list(components)
        self.X, self.Y, self.mean, self.sample = X, Y, mean, sample

    @property
    def number(self) -> int:
        """N."""
        return len(self.Y)

    @property
    def num_outputs(self) -> int:
        """L."""
        return int(self.mean.shape[1])

    def subset(self, which: AnyNDArray) -> Rows:
        """
        Some of the rows.

        :param which: their numbers, [n].
        """
        parts = [c.rows(which) for c in self.components]
        return Rows(parts, self.X[which], self.Y[which], self.mean[which])

    def known(self, number: int, seed: int = 0) -> Rows:
        """
        At most so many rows, at random, of which X is known in full.

        :param number: how many, at most.
        :param seed: of the choice.
        """
        rng = np.random.default_rng(seed)
        if self.sample is None:
            return self.subset(rng.choice(self.number, min(number, self.number), replace=False))
        indices, X = self.sample
        chosen = rng.choice(len(indices), min(number, len(indices)), replace=False)
        some = self.subset(indices[chosen])
        some.X = X[chosen][self.here(indices[chosen])]
        return some

    def here(self, which: AnyNDArray) -> AnyNDArray:
        """
        Which of these rows, given by number, are held by this process, [n] of bool.

        :param which: numbers of rows, [n].
        """
        return np.ones(len(which), bool)

    def evidence(self, jitter: float) -> Evidence:
        """
        The evidence of pseudo-data at these components.

        :param jitter: as :class:`Evidence` takes it.
        """
        return Evidence([c.places for c in self.components], jitter)

    # --- the predictor at rows ----------------------------------------------------------------

    def marginals(
        self, values: Values, q: GaussianPosterior
    ) -> Iterator[tuple[slice, AnyNDArray, AnyNDArray]]:
        """
        Blocks of rows with mean and variance [n, L] of the predictor, m(x) left out.

        :param values: of the kernels' parameters.
        :param q: over whitened inducing values, with the factors of the prior at ``values``.
        """
        tables = Tables(self.components, values, q, len(self.Y))
        for at in self.blocks():
            yield at, *tables.at(codes_of(self.components, at), multipliers_of(self.components, at))

    def means(self, values: Values, q: GaussianPosterior) -> AnyNDArray:
        """
        Means of the predictor at all rows, m(x) included, [N, L].

        :param values: of the kernels' parameters.
        :param q: of the inducing values.
        """
        return np.concatenate([mean for _, mean in self.predictors(values, q)])

    def predictors(
        self, values: Values, q: GaussianPosterior
    ) -> Iterator[tuple[slice, AnyNDArray]]:
        """
        Blocks of rows with means of the predictor, m(x) included, [n, L].

        :param values: of the kernels' parameters.
        :param q: of the inducing values.
        """
        tables = Tables(self.components, values, q, len(self.Y), means_only=True)
        for at in self.blocks():
            codes, multipliers = codes_of(self.components, at), multipliers_of(self.components, at)
            yield at, tables.means(codes, multipliers) + self.mean[at]

    def blocks(self) -> Iterator[slice]:
        """The rows in blocks."""
        for start in range(0, len(self.Y), BLOCK):
            yield slice(start, min(start + BLOCK, len(self.Y)))

    # --- sums -----------------------------------------------------------------------------------

    def total(self, *parts: Any) -> list[AnyNDArray]:
        """Sums of arrays over all who hold rows: here, those that are given."""
        return [np.asarray(part) for part in parts]

    def agreed(self, values: Any) -> AnyNDArray:
        """
        An array on which all who hold rows go on: here, the one that is given.

        :param values: an array of any shape.
        """
        return np.asarray(values)

    def sweep(
        self,
        likelihood: Likelihood,
        values: Values,
        q: GaussianPosterior,
        tune: bool = True,
        watch: Watch | None = None,
        signed: bool = False,
    ) -> Sweep:
        """
        The sites of all rows at q, and their sums.

        Where a likelihood is not log-concave, rows far from what is expected of them have negative
        weights. Only with them is q the best there is: without, it is too sure.

        :param likelihood: at its parameters.
        :param values: of the kernels' parameters.
        :param q: over whitened inducing values.
        :param tune: whether derivatives in the likelihood's parameters are wanted.
        :param watch: told how far the pass is.
        :param signed: whether negative weights count, or are taken as 0, with which the sums are
            precisions wherever q is.
        """
        return self._sites(likelihood, self.marginals(values, q), tune, watch, signed)

    def weights(
        self, likelihood: Likelihood, at: slice, mean: AnyNDArray, var: AnyNDArray
    ) -> AnyNDArray:
        """
        The sites' precisions of a block of rows, [n, L].

        :param likelihood: of the model.
        :param at: the block.
        :param mean: of the predictor, m(x) left out, [n, L].
        :param var: [n, L].
        """
        found = expectations(likelihood, self.X[at], mean + self.mean[at], var, self.Y[at], ())
        return found.precision

    def sweep_at(self, likelihood: Likelihood, mean: AnyNDArray, var: AnyNDArray) -> Sweep:
        """
        The sites of a predictor with given marginals.

        :param likelihood: of the model.
        :param mean: beside the mean function, [N, L], or [L] of all rows.
        :param var: the same.
        """
        shape = len(self.Y), self.num_outputs
        mean, var = np.broadcast_to(mean, shape), np.broadcast_to(var, shape)

        def marginals() -> Iterator[tuple[slice, AnyNDArray, AnyNDArray]]:
            for at in self.blocks():
                yield at, mean[at], var[at]

        return self._sites(likelihood, marginals(), False)

    def _sites(
        self,
        likelihood: Likelihood,
        marginals: Iterable[tuple[slice, AnyNDArray, AnyNDArray]],
        tune: bool,
        watch: Watch | None = None,
        signed: bool = False,
    ) -> Sweep:
        variables = list(likelihood.trainable_variables) if tune else []
        expected, negative = 0.0, 0
        data: PseudoData | None = None
        K = sum(int(np.size(v)) for v in variables)
        slope, curvature = np.zeros(K), np.zeros((K, K))
        across: Any = 0.0
        for at, mean, var in marginals:
            found = expectations(
                likelihood, self.X[at], mean + self.mean[at], var, self.Y[at], variables
            )
            expected += found.total
            negative += int(np.sum(found.precision < 0.0))
            w = found.precision if signed else np.maximum(found.precision, 0.0)
            part = self.sums(w, found.slope + w * mean, at)
            data = part if data is None else data + part
            slope, curvature = slope + found.own_slope, curvature + found.own_curvature
            across = across + self._shifts(found.across, at)
            if watch is not None:
                watch(at.stop)
        if data is None:  # as where others hold the rows
            data = nothing(self.components, self._matrices(), self.num_outputs)
            across = np.zeros((K, *data.shift.shape) if K else 0)
        return Sweep(expected, data, negative, slope, curvature, np.asarray(across))

    def _shifts(self, shifts: Sequence[AnyNDArray], at: slice) -> AnyNDArray:
        """Sums of given shifts [n, L] over a block of rows, [K, R, L]."""
        matrices = self._matrices()
        codes, multipliers = codes_of(self.components, at), multipliers_of(self.components, at)
        found = [shifts_of(self.components, matrices, codes, multipliers, s) for s in shifts]
        return np.stack(found) if found else np.zeros(0)

    def gather(self, weight: RowArray, shift: RowArray, watch: Watch | None = None) -> PseudoData:
        """
        The sums of given sites over all rows.

        :param weight: w_n, [N, L], read a block at a time.
        :param shift: [N, L], the same.
        :param watch: told how far the pass is.
        """
        return self._gathered(self._matrices(), weight, shift, watch)

    def sums(self, weight: AnyNDArray, shift: AnyNDArray, at: slice) -> PseudoData:
        """
        The sums of sites over a block of rows.

        :param weight: [n, L].
        :param shift: [n, L].
        :param at: which rows.
        """
        return self._sums_in(self._matrices(), weight, shift, at)

    def posterior(
        self, values: Values, roots: Sequence[AnyNDArray], weight: RowArray, shift: RowArray
    ) -> GaussianPosterior:
        """
        The posterior of given sites, features taken at the bins themselves.

        :param values: of the kernels' parameters.
        :param roots: Cholesky factors of k_c(Z_c, Z_c) there, [M_c, M_c] each.
        :param weight: w_n, [N, L], read a block at a time.
        :param shift: [N, L], the same.
        :raises NotPositiveDefinite: the weights overflow.
        """
        features = [phi.T for phi, _ in features_at_bins(self.components, values, roots)]
        data = self._gathered(features, weight, shift)
        return posterior_of(data.precision, data.shift, roots)

    def _matrices(self) -> list[AnyNDArray | None]:
        return [c.interpolation.matrix for c in self.components]

    def _gathered(
        self,
        matrices: Sequence[AnyNDArray | None],
        weight: RowArray,
        shift: RowArray,
        watch: Watch | None = None,
    ) -> PseudoData:
        """Sums of given sites, by what bins are expressed in."""
        data: PseudoData | None = None
        for at in self.blocks():
            part = self._sums_in(matrices, weight[at], shift[at], at)
            data = part if data is None else data + part
            if watch is not None:
                watch(at.stop)
        return nothing(self.components, matrices, self.num_outputs) if data is None else data

    def _sums_in(
        self,
        matrices: Sequence[AnyNDArray | None],
        weight: AnyNDArray,
        shift: AnyNDArray,
        at: slice,
    ) -> PseudoData:
        return sums_of(
            self.components,
            matrices,
            codes_of(self.components, at),
            multipliers_of(self.components, at),
            weight,
            shift,
        )
