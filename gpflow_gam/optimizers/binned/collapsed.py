"""The collapsed bound of Gaussian data, for which one pass over rows is enough."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray, Parameter

from ...likelihoods import Weighted
from ...likelihoods.base import unwrapped
from ...models import AdditiveSGPR, AdditiveSVGP
from ...storage import ByBlock
from ..hyperparameters import Hyperparameters, differenced, places_of
from .evidence import GaussianPosterior, PseudoData
from .passes import Rows, Watch
from .rounds import Rounds

_LEAST_NOISE = 1e-12
"""Rounding of sums of squares, relative to the mean square of the response."""


class CollapsedBound:
    """
    The collapsed bound of Gaussian data (Titsias 2009): one pass over rows, then none.

    Its coordinates are those of the kernel's hyperparameters, then of a trainable noise variance.

    :param sums: of the pass, if they are known: of sites of unit noise, and the sum of the data's
        squares with their number.
    """

    def __init__(
        self,
        model: AdditiveSGPR | AdditiveSVGP,
        rows: Rows,
        watch: Watch | None = None,
        sums: tuple[PseudoData, tuple[float, float]] | None = None,
    ) -> None:
        self.model = model
        self.rounds = Rounds(model.kernel, model.likelihood, rows, None)
        self.parameter: Parameter = unwrapped(model.likelihood).variance
        self.noise = Hyperparameters([self.parameter] if self.parameter.trainable else [])
        self.noise_places = places_of(self.noise, model.likelihood)
        self._known = float(np.asarray(self.parameter))
        self.kernel = self.rounds.hyperparameters
        self.rows = rows
        if sums is not None:
            self.data, self.error = sums
            return
        self.data = rows.gather(*self._sites(1.0), watch)
        error = np.zeros(2)
        for w, e in map(self._weighted, rows.blocks()):
            error += np.sum(w * np.square(e)), np.sum(w) * e.shape[1]
        square, number = rows.communicator.total([error])[0].tolist()
        self.error = square, number

    def _weighted(self, at: slice) -> tuple[AnyNDArray, AnyNDArray]:
        """Weights of rows, [n, 1], and Y without the mean function, [n, L]."""
        e: AnyNDArray = self.rows.Y[at] - self.rows.mean[at]
        likelihood = self.model.likelihood
        if isinstance(self.model, AdditiveSGPR):
            return np.asarray(self.model.weights[at])[:, None], e
        if isinstance(likelihood, Weighted):
            return self.rows.X[at][:, likelihood.column, None], e
        return np.ones((len(e), 1)), e

    def _sites(self, noise: float) -> tuple[ByBlock, ByBlock]:
        """Weights and shifts of Gaussian sites, [N, L] each."""

        def weight(at: slice) -> AnyNDArray:
            w, e = self._weighted(at)
            return np.tile(w / noise, (1, e.shape[1]))

        def shift(at: slice) -> AnyNDArray:
            w, e = self._weighted(at)
            return w * e / noise

        shape = len(self.rows.Y), self.rows.num_outputs
        return ByBlock(shape, weight), ByBlock(shape, shift)

    def coordinates(self) -> AnyNDArray:
        """Present coordinates."""
        return np.concatenate([self.kernel.get(), self.noise.get()])

    def split(self, u: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The kernel's coordinates, and the noise variance."""
        number = len(self.kernel)
        if not len(self.noise):
            return u[:number], self._known
        noise = float(self.noise.values(u[number:])[id(self.parameter)])
        return u[:number], max(noise, self.least)

    @property
    def least(self) -> float:
        """The least noise variance, below which rounding decides."""
        square, number = self.error
        return _LEAST_NOISE * square / number if square > 0.0 else 0.0

    def loss(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Minus the bound and the priors' log-densities, and its gradient."""
        inner, noise = self.split(u)
        values = self.rounds.values(inner)
        evidence = self.rounds.evidence
        value, gradients, along = evidence.value_and_gradient(self.data, values, 1.0 / noise)
        square, number = self.error
        value -= 0.5 * (number * np.log(2.0 * np.pi * noise) + square / noise)
        slope = -along / noise - 0.5 * number / noise + 0.5 * square / noise**2
        if noise == self.least:
            slope = 0.0  # nothing is gained below
        prior, prior_slope = self.kernel.log_prior(inner)
        noise_prior, noise_slope = self.noise.log_prior(u[len(inner) :])
        gradient = np.concatenate(
            [
                self.kernel.pullback(inner, gradients) + prior_slope,
                self.noise.pullback(u[len(inner) :], {id(self.parameter): np.asarray(slope)})
                + noise_slope,
            ]
        )
        return -(value + prior + noise_prior), -gradient

    def value(self, u: AnyNDArray) -> float:
        """The value of :meth:`loss`."""
        inner, noise = self.split(u)
        value = self.rounds.evidence.value(self.data, self.rounds.values(inner), 1.0 / noise)
        square, number = self.error
        value -= 0.5 * (number * np.log(2.0 * np.pi * noise) + square / noise)
        prior = self.kernel.log_prior(inner)[0] + self.noise.log_prior(u[len(inner) :])[0]
        return -float(value + prior)

    def metric(self, u: AnyNDArray) -> AnyNDArray | None:
        """Approximate second derivatives of the loss, [K, K]; None if they are not known."""
        inner, noise = self.split(u)
        kernel = self.rounds.metric(self.data, inner, 1.0 / noise)
        if kernel is None:
            return None
        whole = np.zeros((len(u), len(u)))
        whole[: len(inner), : len(inner)] = kernel
        # the logarithm of known noise has information N / 2; it is not independent of the rest
        rest = np.arange(len(inner), len(u))
        whole[rest, rest] = 0.5 * self.error[1]
        return whole

    def hessian(self, u: AnyNDArray) -> AnyNDArray:
        """Second derivatives of the loss, [K, K]."""
        inner, noise = self.split(u)
        hessian, number = np.zeros((len(u), len(u))), len(inner)
        hessian[:number, :number] = self.rounds.hessian(self.data, inner, 1.0 / noise)
        rest = range(number, len(u))
        hessian[number:] = differenced(lambda x: self.loss(x)[1], u, rest)
        hessian[:number, number:] = hessian[number:, :number].T
        return hessian

    def posterior(self, u: AnyNDArray) -> GaussianPosterior:
        """q at coordinates, by the sums at nodes."""
        inner, noise = self.split(u)
        return self.rounds.evidence.posterior(self.data, self.rounds.values(inner), 1.0 / noise)

    def posterior_at_bins(self, u: AnyNDArray) -> GaussianPosterior:
        """q at coordinates, with features at the bins themselves."""
        inner, noise = self.split(u)
        values = self.rounds.values(inner)
        return self.rows.posterior(values, self.posterior(u).roots, *self._sites(noise))

    def set(self, u: AnyNDArray) -> None:
        """Write coordinates to the model."""
        number = len(self.kernel)
        self.kernel.set(u[:number])
        self.noise.set(u[number:])
        if len(self.noise) and self.parameter.numpy() < self.least:
            self.parameter.assign(self.least)
