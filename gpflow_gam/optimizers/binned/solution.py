"""The outcome of a fit from sums over rows, and the collapsed bound of Gaussian data."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.likelihoods import Likelihood
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

from ...errors import NotPositiveDefinite
from ...kernels.correlation import Values, parameters_of
from ...kernels.fixed_inputs import FixedInputKernel
from ...kernels.shaped import shaped_part
from ...likelihoods import Autoregressive, Weighted
from ...likelihoods.base import unwrapped
from ...likelihoods.continuous import predecessors
from ...models import AdditiveSGPR, AdditiveSVGP
from ...posteriors.inducing import (
    InducingMoments,
    acting_nodes,
    constraint_evidence,
    shaped_components,
)
from ...storage import ByBlock
from ...threads import SMALL, one_blas_thread
from ...variational import OptimalPrecision
from ..minimizers import FitResult, Loss, StopFit, Tracker, differenced
from .evidence import (
    EvidenceEvaluation,
    GaussianPosterior,
    PseudoData,
    inverse,
    posterior_of,
    slices,
)
from .passes import Rows, Sums, Watch
from .rounds import Rounds, StartError

_LEAST_NOISE = 1e-12  # rounding of sums of squares, relative to the mean square of the response


@dataclasses.dataclass(frozen=True)
class GaussianSums:
    """
    Sums over rows of Gaussian data of unit noise, and of squares of the response.

    Of autoregressive noise of correlation r there are three parts, with factors 1, r^2 / (1 - r^2)
    and -r / (1 - r^2): of all rows, of rows as often as they have neighbours, and of neighbours.
    """

    parts: tuple[PseudoData, ...]
    squares: tuple[float, ...]
    number: float  # of the rows' weights
    pairs: float = 0.0  # number of pairs of neighbours

    def at(self, correlation: float) -> tuple[PseudoData, float]:
        """The sums, and that of squares."""
        if len(self.parts) == 1:
            return self.parts[0], self.squares[0]
        a = 1.0 / (1.0 - correlation**2)
        return self._added((1.0, correlation**2 * a, -correlation * a))

    def slope(self, correlation: float) -> tuple[PseudoData, float]:
        """Their derivatives in the correlation."""
        a = 1.0 / (1.0 - correlation**2)
        return self._added((0.0, 2.0 * correlation * a**2, -(1.0 + correlation**2) * a**2))

    def _added(self, factors: Sequence[float]) -> tuple[PseudoData, float]:
        parts = (part * factor for part, factor in zip(self.parts, factors))
        return functools.reduce(operator.add, parts), float(np.dot(factors, self.squares))


class CollapsedBound:
    """The collapsed bound of Gaussian data (Titsias 2009): one pass over rows, then none."""

    # Coordinates are the kernel's hyperparameters, then a trainable noise variance, and the
    # correlation of autoregressive noise.

    def __init__(
        self,
        model: AdditiveSGPR | AdditiveSVGP,
        rows: Rows,
        watch: Watch | None = None,
        sums: GaussianSums | None = None,
    ) -> None:
        self.model = model
        self.rounds = Rounds(model.kernel, model.likelihood, rows, None)
        likelihood = unwrapped(model.likelihood)
        self.parameter: Parameter = likelihood.variance
        autoregressive = isinstance(likelihood, Autoregressive)
        self._correlation: Parameter | None = likelihood.correlation if autoregressive else None
        self._known = float(np.asarray(self.parameter))
        self._known_correlation = 0.0 if self._correlation is None else self._correlation.numpy()
        self.kernel, self.noise = self.rounds.hyperparameters, self.rounds.family
        self.rows = rows
        if sums is not None:
            self.sums = sums
            return
        error = np.zeros(2)
        for w, e in map(self._weighted, rows.blocks()):
            error += np.sum(w * np.square(e)), np.sum(w) * e.shape[1]
        square, number = rows.communicator.total([error])[0].tolist()
        parts = self._gathered(watch=watch)
        if len(parts) == 1:
            self.sums = GaussianSums(parts, (square,), number)
            return
        before, often, z, beside = self._series
        squares = square, float(np.sum(often * np.square(z))), float(np.sum(z * beside))
        pairs = float(np.sum(before >= 0) * z.shape[1])
        self.sums = GaussianSums(parts, squares, number, pairs)

    def _gathered(
        self, sums: Sums | None = None, watch: Watch | None = None
    ) -> tuple[PseudoData, ...]:
        """Sums over rows of unit noise, as :class:`GaussianSums` has them."""
        every = self.rows.gather(*self.sites(1.0), watch, sums)
        if self._correlation is None:
            return (every,)
        before, often, z, beside = self._series
        weight, e = self._weighted(slice(None))
        weights = np.tile(weight, (1, e.shape[1]))
        root = np.sqrt(weights)
        return (
            every,
            self.rows.gather(often * weights, often * root * z, None, sums),
            self.rows.gather_neighbours(before, root * root[before], root * beside, sums),
        )

    @functools.cached_property
    def _series(self) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray, AnyNDArray]:
        """Predecessors, numbers of neighbours, weighted residuals, and sums of neighbours' ones."""
        position = self.rows.X[slice(None)][:, unwrapped(self.model.likelihood).position]
        before = predecessors(position)
        weight, e = self._weighted(slice(None))
        z = np.sqrt(weight) * e
        rows = np.flatnonzero(before >= 0)
        often, beside = (before >= 0).astype(np.float64)[:, None], np.zeros_like(z)
        often[before[rows]] += 1.0
        beside[rows] = z[before[rows]]
        beside[before[rows]] += z[rows]
        return before, often, z, beside

    def _weighted(self, at: slice) -> tuple[AnyNDArray, AnyNDArray]:
        """Weights of rows, [n, 1], and Y without the mean function, [n, L]."""
        e: AnyNDArray = self.rows.Y[at] - self.rows.mean[at]
        likelihood = self.model.likelihood
        if isinstance(self.model, AdditiveSGPR):
            return np.asarray(self.model.row_weights()[at])[:, None], e
        if isinstance(likelihood, Weighted):
            return self.rows.X[at][:, likelihood.column, None], e
        return np.ones((len(e), 1)), e

    def sites(self, noise: float) -> tuple[ByBlock, ByBlock]:
        """Weights and shifts of Gaussian sites, [N, L] each."""

        def weight(at: slice) -> AnyNDArray:
            w, e = self._weighted(at)
            return np.tile(w / noise, (1, e.shape[1]))

        def shift(at: slice) -> AnyNDArray:
            w, e = self._weighted(at)
            return w * e / noise

        shape = len(self.rows.Y), self.rows.num_outputs
        return ByBlock(shape, weight), ByBlock(shape, shift)

    def split(self, u: AnyNDArray) -> tuple[AnyNDArray, float]:
        """The kernel's coordinates, and the noise variance."""
        inner, rest = self.rounds.split(u)
        noise = self.noise.values(rest).get(id(self.parameter), self._known)
        return inner, max(float(noise), self.least)

    def correlation(self, u: AnyNDArray) -> float:
        """The correlation of neighbouring rows' noise."""
        if self._correlation is None:
            return 0.0
        rest = self.noise.values(self.rounds.split(u)[1])
        return float(rest.get(id(self._correlation), self._known_correlation))

    def data(self, u: AnyNDArray) -> PseudoData:
        """Sums over rows of unit noise."""
        return self.sums.at(self.correlation(u))[0]

    @property
    def least(self) -> float:
        """The least noise variance, below which rounding decides."""
        square, number = self.sums.squares[0], self.sums.number
        return _LEAST_NOISE * square / number if square > 0.0 else 0.0

    def loss(self, u: AnyNDArray) -> tuple[float, AnyNDArray]:
        """Minus the bound and the priors' log-densities, and its gradient."""
        (inner, noise), r, sums = self.split(u), self.correlation(u), self.sums
        data, square = sums.at(r)
        values = self.rounds.values(inner)
        here = EvidenceEvaluation(self.rounds.evidence, data, values, 1.0 / noise)
        gradients, along = here.gradient()
        slope = (0.5 * square / noise - along - 0.5 * sums.number) / noise
        if noise == self.least:
            slope = 0.0  # nothing is gained below
        slopes = {id(self.parameter): np.asarray(slope)}
        if self._correlation is not None:
            change, moved = sums.slope(r)
            slope = here.along(change) - 0.5 * moved / noise + sums.pairs * r / (1.0 - r**2)
            slopes[id(self._correlation)] = np.asarray(slope)
        prior, prior_slope = self.kernel.log_prior(inner)
        noise_prior, noise_slope = self.noise.log_prior(u[len(inner) :])
        gradient = np.concatenate(
            [
                self.kernel.pullback(inner, gradients) + prior_slope,
                self.noise.pullback(u[len(inner) :], slopes) + noise_slope,
            ]
        )
        log_det = sums.number * np.log(2.0 * np.pi * noise) + sums.pairs * np.log1p(-(r**2))
        value = here.value - 0.5 * square / noise - 0.5 * float(log_det)
        return -(value + prior + noise_prior), -gradient

    def metric(self, u: AnyNDArray) -> AnyNDArray | None:
        """Approximate second derivatives of the loss, [K, K]; None if they are not known."""
        inner, noise = self.split(u)
        kernel = self.rounds.metric(self.data(u), inner, 1.0 / noise)
        if kernel is None:
            return None
        whole = np.zeros((len(u), len(u)))
        whole[: len(inner), : len(inner)] = kernel
        # the logarithm of known noise has information N / 2, and the inverse hyperbolic tangent of
        # its correlation n (1 - r^2); they are not independent of the rest
        along = self.sums.pairs * (1.0 - self.correlation(u) ** 2)
        for i, p in enumerate(self.noise.parameters, len(inner)):
            whole[i, i] = 0.5 * self.sums.number if p is self.parameter else along
        return whole

    def alone(self, u: AnyNDArray) -> Callable[[int], Loss | None]:
        return self.rounds.alone(self.data(u), u, 1.0 / self.split(u)[1])

    def hessian(self, u: AnyNDArray) -> AnyNDArray:
        """Second derivatives of the loss, [K, K]."""
        inner, noise = self.split(u)
        hessian, number = np.zeros((len(u), len(u))), len(inner)
        hessian[:number, :number] = self.rounds.hessian(self.data(u), inner, 1.0 / noise)
        rest = range(number, len(u))
        hessian[number:] = differenced(lambda x: self.loss(x)[1], u, rest)
        hessian[:number, number:] = hessian[number:, :number].T
        return hessian

    def posterior(self, u: AnyNDArray) -> GaussianPosterior:
        """q(U), with features at the bins themselves."""
        inner, noise = self.split(u)
        values = self.rounds.values(inner)
        roots = self.rounds.evidence.posterior(self.data(u), values, 1.0 / noise).roots
        parts = self._gathered(self.rows.sums_at_bins(values, roots))
        data = dataclasses.replace(self.sums, parts=parts).at(self.correlation(u))[0]
        return posterior_of(data.precision / noise, data.shift / noise, roots)

    def set(self, u: AnyNDArray) -> None:
        self.rounds.set(u)
        if len(self.noise) and self.parameter.numpy() < self.least:
            self.parameter.assign(self.least)


@dataclasses.dataclass(frozen=True)
class Chains:
    """Draws of hyperparameters: after warm-up, and what the sampler says of them."""

    coordinates: AnyNDArray  # unconstrained, [C, S, K]
    log_density: AnyNDArray  # of the coordinates, [C, S], up to a constant
    diverged: AnyNDArray  # truth values, [C, S]

    def rhat(self) -> float:
        """The largest split R-hat of a coordinate (Gelman et al. 2013, section 11.4)."""
        C, S, K = self.coordinates.shape
        halves = self.coordinates[:, : S // 2 * 2].reshape(2 * C, S // 2, K)
        within = np.mean(np.var(halves, axis=1, ddof=1), axis=0)
        between = np.var(np.mean(halves, axis=1), axis=0, ddof=1)
        drawn = within > 0.0  # a likelihood's parameters are held
        ratio = between[drawn] / within[drawn]
        return float(np.sqrt(np.max((S // 2 - 1) / (S // 2) + ratio, initial=1.0)))


class Drawn(NamedTuple):
    """The posterior at a draw of hyperparameters."""

    coordinates: AnyNDArray  # unconstrained, [K]
    mean: AnyNDArray  # [P, L]
    covariance: AnyNDArray  # [L, P, P]


class Centre(NamedTuple):
    """Where draws of hyperparameters are centred, sums of the sites there, and draws."""

    coordinates: AnyNDArray  # [K]
    absolute: PseudoData  # of absolute weights
    signed: PseudoData
    optimum: PseudoData  # of absolute weights, at the optimum
    draws: Sequence[Drawn]


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """Sums over rows, hyperparameters, and their posterior: the outcome of a fit."""

    # How the evidence changes with hyperparameters follows without a pass over rows. What is learnt
    # are the kernels', then a collapsed bound's noise variance, or the likelihood's parameters.
    data: PseudoData
    q: GaussianPosterior
    optimum: AnyNDArray  # coordinates of what was learnt, [K]
    rounds: Rounds  # give the evidence of the sums
    bound: CollapsedBound | None = None  # of Gaussian data, whose sums the noise divides
    curvature: AnyNDArray | None = None  # of E_q[log p(Y)] in the likelihood's parameters, [K, K]
    hessian: AnyNDArray | None = None  # of minus the criterion, [K, K], if it was no evidence
    unshaped: AnyNDArray | None = None  # the optimum without shapes, if a term has one
    between: AnyNDArray | None = None  # beyond q, as a file has it, [L, P, P]
    chains: Chains | None = None  # draws of what was learnt
    centre: Centre | None = None  # if some weights are negative, and rows cannot be read any more

    @classmethod
    def of_bound(cls, bound: CollapsedBound, u: AnyNDArray) -> Solution:
        """The solution at coordinates of a collapsed bound, to which the model has been set."""
        return cls(bound.data(u), bound.posterior(u), u, bound.rounds, bound)

    @property
    def rows(self) -> Rows:
        return self.rounds.rows

    @functools.cached_property
    def values(self) -> Values:
        return self.rounds.values(self.rounds.split(self.optimum)[0])

    def at(self, x: AnyNDArray) -> tuple[GaussianPosterior, Values]:
        """The posterior of the same sums at other coordinates, and the parameters' values there."""
        values, data, scale = self.parameters(x)
        return self.rounds.evidence.posterior(data, values, scale), values

    def parameters(self, x: AnyNDArray) -> tuple[Values, PseudoData, float]:
        """Values of the kernels' parameters at coordinates, the sums, and their factor."""
        if self.bound is None:
            return self.rounds.values(self.rounds.split(x)[0]), self.data, 1.0
        u, noise = self.bound.split(x)
        return self.rounds.values(u), self.bound.data(x), 1.0 / noise

    def trusted(self, likelihood: Likelihood) -> PseudoData:
        """Sums whose evidence means something at other coordinates; q is given the likelihood."""
        # away from the optimum that of sites with negative weights has no upper bound, nor that of
        # slopes alone; of absolute weights it has one
        if self.centre is not None:
            return self.centre.optimum
        signed = self.bound is None and any(_is_negative(A) for A in self.data.precision)
        if not signed or not hasattr(self.rows, "communicator"):  # which rows that are gone lack
            return self.data
        return self.rows.sweep(likelihood, self.values, self.q, False, negative=-1.0).data

    def with_curvature(self, likelihood: Likelihood) -> Solution:
        """With that in the likelihood's parameters."""
        if self.bound is not None or self.curvature is not None:
            return self
        sweep = self.rows.sweep(likelihood, self.values, self.q)
        return dataclasses.replace(self, curvature=sweep.curvature)

    def refitted(
        self, model: AdditiveSGPR | AdditiveSVGP, x: AnyNDArray, tolerance: float
    ) -> tuple[Solution, float] | None:
        """Set the model to coordinates: the solution there and its ELBO; None: not converged."""
        if self.bound is not None:
            self.bound.set(x)
            new = dataclasses.replace(Solution.of_bound(self.bound, x), unshaped=self.unshaped)
            elbo = -self.bound.loss(x)[0]
        else:
            rounds = self.rounds
            try:
                now = rounds.converged_at(x, self.data, tolerance)
            except (NotPositiveDefinite, StartError):
                return None
            u, phi = rounds.split(x)
            curvature = self.curvature
            if len(phi):
                sweep = rounds.rows.sweep(model.likelihood, rounds.values(u), now.q)
                curvature = sweep.curvature
            new = dataclasses.replace(
                self,
                data=now.point.data,
                q=now.q,
                optimum=x,
                curvature=curvature,
                centre=None,
            )
            elbo = now.elbo + rounds.log_prior(u, phi)
        if isinstance(model, AdditiveSVGP):
            assign_posterior(model, new.q)
        return new, elbo

    def of_parameters(self, likelihood: Likelihood) -> AnyNDArray | None:
        """Covariance that uncertain parameters of the likelihood add to q's, [L, P, P], or None."""
        joint = self.with_parameters(likelihood)
        if joint is None:
            return None
        halves = [moved @ joint[1] for moved in joint[0]]
        return np.stack([half @ half.T for half in halves])

    def with_parameters(self, likelihood: Likelihood) -> tuple[list[AnyNDArray], AnyNDArray] | None:
        """How q's mean moves with the likelihood's parameters, [P, K] each, and their root."""
        # q is given these. With the joint precision [[S^-1, -B], [-B', D]] of inducing values and
        # parameters, theirs is D - B'S B, and the mean moves by S B: as in columns of time beside a
        # baseline.
        rounds, q = self.rounds, self.q
        if self.bound is not None or not len(rounds.family) or not self.rows.communicator.open:
            return None
        sweep = self.rows.sweep(likelihood, self.values, q)
        evidence, nodes = rounds.evidence, slices([p.nodes for p in rounds.evidence.places])
        features = [evidence.features(self.values, c) for c in range(len(evidence))]
        B = [
            np.concatenate([phi @ across[:, at].T for phi, at in zip(features, nodes)])
            for across in np.moveaxis(sweep.across, 2, 0)
        ]
        moved = [S @ b for S, b in zip(q.covariance, B)]
        D = np.diag(rounds.family.prior_precision()) - sweep.curvature
        D = D - sum(b.T @ m for b, m in zip(B, moved))
        try:
            root = np.linalg.cholesky(D)
        except np.linalg.LinAlgError:  # of likelihoods that are not log-concave
            return None
        return moved, solve_triangular(root, np.eye(len(root)), lower=True).T

    def assign(self, model: AdditiveSGPR | AdditiveSVGP) -> None:
        (self.rounds if self.bound is None else self.bound).set(self.optimum)
        if isinstance(model, AdditiveSVGP):
            assign_posterior(model, self.q)


def _is_negative(matrix: AnyNDArray) -> bool:
    """Whether a symmetric matrix has negative eigenvalues, beyond rounding."""
    least = 1e-9 * float(np.max(np.abs(matrix.diagonal()), initial=1e-290))
    return bool(lapack.dpotrf(matrix + least * np.eye(len(matrix)))[1] > 0)


def assign_posterior(model: AdditiveSVGP, q: GaussianPosterior) -> None:
    """Set the model's q, at its present hyperparameters."""
    family = model.variational
    assert isinstance(family, OptimalPrecision)
    blocks = model.blocks
    order = blocks.layout.order
    roots = [np.stack([q.roots[i] for i in group.indices]) for group in blocks.groups]
    family.assign_sites(
        [tf.constant(L) for L in roots],
        tf.constant(q.precision[:, order][:, :, order]),
        tf.constant(q.shift[order]),
    )


def present_posterior(model: AdditiveSVGP) -> GaussianPosterior:
    """The model's q at its present parameters, in the components' order."""
    family, blocks = model.variational, model.blocks
    assert isinstance(family, OptimalPrecision)
    # to the last bit as it was assigned, if nothing has changed since
    reference = [L0.numpy() for L0 in family.reference]
    cholesky = [L.numpy() for L in blocks.cholesky()]
    pairs = list(zip(cholesky, reference))
    if all(np.max(np.abs(L - L0)) <= 1e-9 * np.max(np.abs(L0)) for L, L0 in pairs):
        factors = reference
        precision, shift = np.asarray(family.site_precision), np.asarray(family.site_shift)
    else:
        back, factors = np.argsort(blocks.layout.order), cholesky
        precision, shift = (np.asarray(t) for t in family.sites(blocks.cholesky()))
        precision, shift = precision[:, back][:, :, back], shift[back]
    roots: list[Any] = [None] * len(blocks.layout.sizes)
    for group, L in zip(blocks.groups, factors):
        for i, root in zip(group.indices, L):
            roots[i] = root
    return posterior_of(precision, shift, roots)


def present_solution(
    model: AdditiveSGPR | AdditiveSVGP, rows: Rows, collapsed: bool | None = None
) -> Solution:
    """The solution of a fitted model, from its present hyperparameters and q."""
    with one_blas_thread(sum(model.inducing_variable.sizes) <= SMALL):
        if isinstance(model, AdditiveSGPR) or collapsed:
            bound = CollapsedBound(model, rows)
            return Solution.of_bound(bound, bound.rounds.coordinates())
        rounds = Rounds(model.kernel, model.likelihood, rows, None)
        values = rounds.values(rounds.hyperparameters.get())
        q = present_posterior(model)
        data = rows.sweep(model.likelihood, values, q, tune=False, negative=1.0).data
        return Solution(data, q, rounds.coordinates(), rounds)


def solution_of_sums(
    model: AdditiveSGPR | AdditiveSVGP,
    rows: Rows,
    data: PseudoData,
    q: GaussianPosterior,
    optimum: AnyNDArray,
    sums: GaussianSums | None = None,
    curvature: AnyNDArray | None = None,
) -> Solution:
    """A solution from its parts, with rows that may have no more than components."""
    if sums is not None:
        bound = CollapsedBound(model, rows, sums=sums)
        return Solution(data, q, optimum, bound.rounds, bound)
    rounds = Rounds(model.kernel, model.likelihood, rows, None)
    return Solution(data, q, optimum, rounds, curvature=curvature)


# --- hyperparameters of components that have a shape, learnt under it -----------------------------


_TURNS = 2  # number of searches, each with sites at its result
_FIRST, _LATER = 0.5, 0.2
"""Size of the simplex at the start of a search, in logarithms of hyperparameters."""
_CLOSE = 0.05  # size of the simplex at its end, and a move after which no other search is needed
_EVALUATIONS = 40  # number of evaluations for each hyperparameter of a component
_STEP = 0.4  # of second differences: the criterion jumps where other inequalities become active


class ShapeCriterion:
    """Gain of the evidence where the active inequalities of shapes are equalities."""

    # A function without a shape pays for freedom that one with a shape lacks, so that its evidence
    # prefers variances at which the other is too stiff. Under a shape constraint_evidence is added
    # (smoothing parameters of Pya & Wood 2015 go by the constrained degrees of freedom, too).

    def __init__(self, model: AdditiveSGPR | AdditiveSVGP, solution: Solution) -> None:
        self._model, self._solution = model, solution
        self._rounds = solution.rounds
        self._number = len(self._rounds.hyperparameters)
        self._tangents: dict[str, FixedInputKernel] = {}

    @functools.cached_property
    def places(self) -> list[list[int]]:
        """Coordinates of the hyperparameters of each component with a shape."""
        hyperparameters = self._rounds.hyperparameters
        keys = [id(p) for p, _ in hyperparameters.moved(np.zeros(self._number), 0.0)]
        places = []
        for kernel in self._model.kernel.components.values():
            if shaped_part(kernel) is not None:
                parameters = {id(p) for p in parameters_of(kernel)}
                places.append([i for i, key in enumerate(keys) if key in parameters])
        return [place for place in places if place]

    def gain(self, x: AnyNDArray) -> float:
        """The gain at coordinates [K], in nats."""
        return self._gain(*self._evaluated(x))

    def value(self, x: AnyNDArray) -> float:
        """The sum of evidence, gain and log-prior at coordinates [K], without the noise's terms."""
        evaluation, values = self._evaluated(x)
        prior, _ = self._rounds.hyperparameters.log_prior(x[: self._number])
        return evaluation.value + prior + self._gain(evaluation, values)

    def _evaluated(self, x: AnyNDArray) -> tuple[EvidenceEvaluation, Values]:
        values, data, scale = self._solution.parameters(x)
        return EvidenceEvaluation(self._rounds.evidence, data, values, scale), values

    def _gain(self, evaluation: EvidenceEvaluation, values: Values) -> float:
        mean = evaluation.mean
        covariance = np.stack([inverse(factor) for factor in evaluation.factors])
        moments = InducingMoments(
            self._model.kernel,
            self._model.inducing_variable,
            mean,
            covariance,
            values=values,
            roots=[block.root for block in evaluation.blocks],
        )
        if not self._tangents:
            nodes = acting_nodes(moments)
            self._tangents = {name: moments.tangents(name, X) for name, X in nodes.items()}
        rows = shaped_components(moments, self._tangents)
        total = 0.0
        for i in range(mean.shape[1]):
            entering = [A for name, A in rows.items() if moments.entering([name])[0, i]]
            if entering:
                A = np.concatenate(entering)
                try:
                    total += constraint_evidence(mean[:, i], covariance[i], A)
                except np.linalg.LinAlgError:
                    raise NotPositiveDefinite from None
        return total

    def hessian(self, x: AnyNDArray) -> AnyNDArray:
        """Second derivatives of minus the gain, in coordinates of shaped components, [K, K]."""
        which = [i for place in self.places for i in place]
        steps = _STEP * np.eye(len(x))
        hessian = np.zeros((len(x), len(x)))
        here = self.gain(x)
        up = {i: self.gain(x + steps[i]) for i in which}
        down = {i: self.gain(x - steps[i]) for i in which}
        for place in self.places:
            for i in place:
                hessian[i, i] = up[i] + down[i] - 2.0 * here
                for j in place:
                    if j < i:
                        both = self.gain(x + steps[i] + steps[j])
                        neither = self.gain(x - steps[i] - steps[j])
                        along = both + neither - 2.0 * here - up[i] - down[i] - up[j] - down[j]
                        hessian[i, j] = hessian[j, i] = 0.5 * (along + 2.0 * here)
        return -hessian / _STEP**2


def has_shapes(model: AdditiveSGPR | AdditiveSVGP) -> bool:
    """True if a component of a model has a shape."""
    return any(shaped_part(kernel) is not None for kernel in model.kernel.components.values())


def learn_under_shapes(
    model: AdditiveSGPR | AdditiveSVGP, result: FitResult, solution: Solution, tracker: Tracker
) -> tuple[FitResult, Solution]:
    """Learn the hyperparameters of components with shapes under these; all others stay."""
    solution = dataclasses.replace(solution, unshaped=solution.optimum)
    if not ShapeCriterion(model, solution).places or result.ended:
        return result, solution
    elbo = result.elbo
    try:
        for turn in range(_TURNS):
            criterion = ShapeCriterion(model, solution)
            size = _LATER if turn else _FIRST
            x = solution.rows.communicator.agreed(_searched(criterion, solution, size, tracker))
            moved = float(np.max(np.abs(x - solution.optimum)))
            if moved == 0.0:
                break
            new = solution.refitted(model, x, tracker.tolerance)
            if new is None or _gained(model, solution, elbo, new) < -tracker.tolerance:
                solution.assign(model)  # nothing was gained
                break
            solution, elbo = new
            if solution.bound is not None or moved < _CLOSE:
                break
    except (StopFit, KeyboardInterrupt) as error:
        message = tracker.why(error)
        solution.assign(model)
        result = dataclasses.replace(result, converged=False, message=message, ended=True)
    return dataclasses.replace(result, elbo=elbo, seconds=tracker.budget.seconds), solution


def _searched(
    criterion: ShapeCriterion, solution: Solution, size: float, tracker: Tracker
) -> AnyNDArray:
    """Better coordinates [K], component by component: Nelder & Mead's, as the criterion jumps."""
    best = np.array(solution.optimum)
    for place in criterion.places:

        def value(part: AnyNDArray, place: list[int] = place) -> float:
            tracker.check()
            x = np.array(best)
            x[place] = part
            try:
                loss = -criterion.value(x)
            except NotPositiveDefinite:
                return np.inf
            return loss if np.isfinite(loss) else np.inf

        begin = best[place]
        outcome = minimize(
            value,
            begin,
            method="Nelder-Mead",
            options={
                "initial_simplex": np.concatenate([begin[None], begin + size * np.eye(len(place))]),
                "maxfev": _EVALUATIONS * len(place),
                "xatol": _CLOSE,
                "fatol": 1e-2,
            },
        )
        # without active inequalities nothing moves
        if outcome.fun < value(begin) - tracker.tolerance:
            best[place] = outcome.x
    return best


def _gained(
    model: AdditiveSGPR | AdditiveSVGP, old: Solution, elbo: float, new: tuple[Solution, float]
) -> float:
    """The gain of a solution under its shapes over an old one, each with its ELBO."""
    before, after = (
        value + ShapeCriterion(model, solution).gain(solution.optimum)
        for solution, value in ((old, elbo), new)
    )
    return float(old.rows.communicator.agreed(after - before))
