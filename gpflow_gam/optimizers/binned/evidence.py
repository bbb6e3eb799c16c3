"""The evidence of Gaussian pseudo-data as a function of hyperparameters."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Kernel
from scipy.linalg import lapack

from ...covariances.jitter import own_jitter
from ...errors import NotPositiveDefinite
from ...kernels.functional import parameters_of
from ...kernels.shapes import Values
from ...kernels.tangents import Gradients, KernelTangents, kernel_tangents


@dataclasses.dataclass(frozen=True)
class GaussianPosterior:
    """
    q(V) = N(mean, covariance) over whitened inducing values, blocks in the components' order.

    :param mean: [P, L].
    :param covariance: [L, P, P].
    :param log_det: of the covariance, [L].
    :param precision: Lambda = covariance^-1 - I, [L, P, P].
    :param shift: [P, L].
    :param roots: Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each.
    """

    mean: AnyNDArray
    covariance: AnyNDArray
    log_det: AnyNDArray
    precision: AnyNDArray
    shift: AnyNDArray
    roots: tuple[AnyNDArray, ...]

    def kl(self) -> float:
        """KL[q(V) || N(0, I)], summed over outputs."""
        P, L = self.mean.shape
        trace = np.trace(self.covariance, axis1=1, axis2=2).sum()
        return 0.5 * float(trace + np.sum(self.mean**2) - P * L - self.log_det.sum())


def slices(sizes: Sequence[int]) -> list[slice]:
    """Where blocks of these sizes stand, one after the other."""
    return [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *sizes]).tolist())]


def posterior_of(
    precision: AnyNDArray, shift: AnyNDArray, roots: Sequence[AnyNDArray]
) -> GaussianPosterior:
    """
    N(S shift, S) with ``S = (I + precision)^-1``.

    :param precision: Lambda, [L, P, P].
    :param shift: [P, L].
    :param roots: Cholesky factors of k_c(Z_c, Z_c), [M_c, M_c] each.
    :raises NotPositiveDefinite: I + Lambda does not factorise.
    """
    factors = [factorised(p) for p in precision]
    means = [lapack.dpotrs(f, s, lower=1)[0] for f, s in zip(factors, shift.T)]
    return GaussianPosterior(
        np.stack(means, axis=1),
        np.stack([inverse(f) for f in factors]),
        np.array([-2.0 * np.log(np.diag(f)).sum() for f in factors]),
        precision,
        shift,
        tuple(roots),
    )


def factorised(precision: AnyNDArray) -> AnyNDArray:
    """The Cholesky factor of I + precision [P, P]."""
    root, info = lapack.dpotrf(precision + np.eye(len(precision)), lower=1, clean=1)
    if info != 0:
        raise NotPositiveDefinite
    found: AnyNDArray = root
    return found


def inverse(factor: AnyNDArray) -> AnyNDArray:
    """The inverse of a matrix whose Cholesky factor is given, zero above the diagonal."""
    entries, _ = lapack.dpotri(factor, lower=1)
    found: AnyNDArray = entries + entries.T
    found.flat[:: len(found) + 1] *= 0.5
    return found


@dataclasses.dataclass(frozen=True)
class PseudoData:
    """
    What Gaussian sites of all rows add up to at the components' nodes.

    :param precision: sum_n w_n b_n b_n', [L, R, R], with b_n the interpolation weights of row n's
        value of every component from the nodes.
    :param shift: sum_n shift_n b_n, [R, L].
    :param masses: sum of w_n by the points at which a component's open variance is summed,
        [L, E_c] each.
    """

    precision: AnyNDArray
    shift: AnyNDArray
    masses: tuple[AnyNDArray, ...]

    def __add__(self, other: PseudoData) -> PseudoData:
        masses = tuple(a + b for a, b in zip(self.masses, other.masses))
        return PseudoData(self.precision + other.precision, self.shift + other.shift, masses)

    def __mul__(self, factor: float) -> PseudoData:
        masses = tuple(factor * m for m in self.masses)
        return PseudoData(factor * self.precision, factor * self.shift, masses)

    def shifted(self, shift: AnyNDArray) -> PseudoData:
        """
        With ``shift`` [R, L] added to the sum of shifts.

        :param shift: [R, L].
        """
        return PseudoData(self.precision, self.shift + shift, self.masses)

    def towards(self, other: PseudoData, share: float) -> PseudoData:
        """
        The mixture ``(1 - share) self + share other``.

        :param other: at the same nodes.
        :param share: from 0 to 1.
        """
        if share == 1.0:
            return other  # whose precision is the largest array of a fit: no copies of it
        return self * (1.0 - share) + other * share


@dataclasses.dataclass(frozen=True)
class Places:
    """
    Where one component's matrices are evaluated.

    :param tangents: its matrices between inducing inputs and [nodes, points of open variance].
    :param nodes: J, how many of the columns are nodes.
    :param at_nodes: its matrices between inducing inputs and the nodes alone.
    :param parameters: of the kernel.
    :param points: the nodes, then the points of open variance, [J + E, D].
    :param kernel: of the component.
    """

    tangents: KernelTangents
    nodes: int
    at_nodes: KernelTangents
    parameters: tuple[Parameter, ...]
    points: AnyNDArray
    kernel: Kernel

    @classmethod
    def of(cls, kernel: Kernel, Z: AnyNDArray, nodes: AnyNDArray, others: AnyNDArray) -> Places:
        """
        The places of a component.

        :param kernel: of the component.
        :param Z: its inducing inputs [M, D].
        :param nodes: [J, D].
        :param others: points of open variance [E, D].
        """
        points = np.concatenate([nodes, others])
        both = kernel_tangents(kernel, Z, points)
        own = tuple(parameters_of(kernel))
        return cls(both, len(nodes), kernel_tangents(kernel, Z, nodes), own, points, kernel)


class Evidence:
    r"""
    The bound on the evidence of pseudo-data, and its gradient.

    .. math:: \log Z = -\tfrac12 \log|I + \Lambda| + \tfrac12 \eta' (I + \Lambda)^{-1} \eta
              - \tfrac12 \sum_n w_n \sum_c (k_c(x_n, x_n) - |\phi_c(x_n)|^2)

    summed over latent outputs, with :math:`\Lambda = \sum_n w_n \phi_n \phi_n'` and :math:`\eta =
    \sum_n s_n \phi_n` from the pseudo-data: the collapsed bound of Titsias (2009) with a precision
    for each row. Where the sites are those of q, its gradient in hyperparameters is the ELBO's
    (Adam, Chang, Khan & Solin 2021).

    Matrices are small and gradients are written out (for the Cholesky factor see Murray 2016).

    :param places: one a component.
    :param jitter: added to the diagonal of k_c(Z_c, Z_c), against its mean; less of it for levels,
        and nothing to a matrix that is diagonal.
    """

    def __init__(self, places: Sequence[Places], jitter: float) -> None:
        self._places = list(places)
        self._jitters = [own_jitter(jitter, p.kernel, tf.float64) for p in self._places]
        # of each component what it last was: second derivatives move one at a time
        self._last: list[tuple[bytes, Block] | None] = [None] * len(self._places)

    def __len__(self) -> int:
        """C, the number of components."""
        return len(self._places)

    def value(self, data: PseudoData, values: Values, scale: float = 1.0) -> float:
        """
        The bound.

        :param data: the pseudo-data.
        :param values: constrained values of the kernels' parameters.
        :param scale: multiplies weights and shifts.
        """
        return Evaluation(self, data, values, scale).value

    def value_and_gradient(
        self, data: PseudoData, values: Values, scale: float = 1.0
    ) -> tuple[float, dict[int, AnyNDArray], float]:
        """
        The bound, its gradient in parameters by their ``id``, and in the logarithm of ``scale``.

        :param data: the pseudo-data.
        :param values: constrained values of the kernels' parameters.
        :param scale: multiplies weights and shifts.
        :raises NotPositiveDefinite: at these values.
        """
        evaluation = Evaluation(self, data, values, scale)
        return evaluation.value, *evaluation.gradient()

    def posterior(self, data: PseudoData, values: Values, scale: float = 1.0) -> GaussianPosterior:
        """
        The posterior of the pseudo-data.

        :param data: whose sums are over the nodes of these components.
        :param values: of the kernels' parameters.
        :param scale: multiplies weights and shifts.
        :raises NotPositiveDefinite: at these values.
        """
        roots, features = [], []
        for which in range(len(self)):
            root, phi = self._at_nodes(which, values)
            roots.append(root)
            features.append(phi)
        found = Projection(features, data, scale)
        # as symmetric as those who keep it will make it
        Lambda = 0.5 * (found.Lambda + np.swapaxes(found.Lambda, 1, 2))
        return posterior_of(Lambda, found.eta, roots)

    def response(self, data: PseudoData, values: Values, shifts: AnyNDArray) -> AnyNDArray:
        """
        ``s_i' Phi' S Phi s_j`` for shifts s_i [K, R, L]: what they do to each other by way of the
        posterior's mean, [K, K].

        :param data: whose sums are over the nodes of these components.
        :param values: of the kernels' parameters.
        :param shifts: [K, R, L].
        :raises NotPositiveDefinite: at these values.
        """
        features = [self._at_nodes(which, values)[1] for which in range(len(self))]
        found = Projection(features, data, 1.0)
        total = np.zeros((len(shifts), len(shifts)))
        for i, Lambda in enumerate(found.Lambda):
            phi_s = np.concatenate(
                [phi @ shifts[:, at, i].T for phi, at in zip(features, found.nodes)]
            )
            total += phi_s.T @ lapack.dpotrs(factorised(Lambda), phi_s, lower=1)[0]
        return total

    def features(self, values: Values, which: int) -> AnyNDArray:
        """
        Features of a component at its nodes, [M_c, J_c].

        :param values: of the kernels' parameters.
        :param which: the component's place.
        :raises NotPositiveDefinite: at these values.
        """
        return self._at_nodes(which, values)[1]

    def block(self, which: int, values: Values) -> Block:
        """
        One component at values of the parameters.

        :param which: the component's place.
        :param values: of the kernels' parameters.
        :raises NotPositiveDefinite: at these values.
        """
        return Block(self._places[which], values, self._jitters[which])

    def blocks(self, values: Values) -> list[Block]:
        """
        All components at values of the parameters.

        :param values: of the kernels' parameters.
        """
        found = []
        for i, (places, jitter) in enumerate(zip(self._places, self._jitters)):
            key = b"".join(np.asarray(values(p)).tobytes() for p in places.parameters)
            last = self._last[i]
            if last is None or last[0] != key:
                last = self._last[i] = key, Block(places, values, jitter)
            found.append(last[1])
        return found

    def _at_nodes(self, which: int, values: Values) -> tuple[AnyNDArray, AnyNDArray]:
        K, Kzx, _ = self._places[which].at_nodes.matrices(values)
        root = _root(K, _share(K, self._jitters[which]))
        phi, _ = lapack.dtrtrs(root, Kzx, lower=1)
        return root, phi


def _share(K: AnyNDArray, jitter: float) -> float:
    """The jitter of a component's k(Z, Z): as :func:`jittered` has it, none if it is diagonal."""
    return jitter if np.count_nonzero(K) > np.count_nonzero(K.diagonal()) else 0.0


def _root(K: AnyNDArray, share: float) -> AnyNDArray:
    """The Cholesky factor of a component's k(Z, Z), jitter added as InducingBlocks adds it."""
    M = len(K)
    trace = float(np.trace(K))
    added = share * trace / M if trace > 0.0 else 1.0
    root, info = lapack.dpotrf(K + added * np.eye(M), lower=1, clean=1)
    if info != 0:
        raise NotPositiveDefinite
    found: AnyNDArray = root
    return found


class Projection:
    """
    Pseudo-data in the basis of features.

    :param features: of each component at its nodes, [M_c, J_c].
    :param data: of the same nodes.
    :param scale: multiplies weights and shifts.
    """

    def __init__(self, features: Sequence[AnyNDArray], data: PseudoData, scale: float) -> None:
        self.own = slices([len(phi) for phi in features])
        self.nodes = slices([phi.shape[1] for phi in features])
        P, (R, L) = sum(len(phi) for phi in features), data.shift.shape
        self.eta = np.zeros((P, L))
        """Phi s, [P, L]."""
        self.half = np.zeros((L, P, R))
        """Phi A, [L, P, R]."""
        self.Lambda = np.zeros((L, P, P))
        """Phi A Phi', [L, P, P]."""
        for phi, own, at in zip(features, self.own, self.nodes):
            self.eta[own] = scale * (phi @ data.shift[at])
        for A, half, Lambda in zip(data.precision, self.half, self.Lambda):
            for phi, own, at in zip(features, self.own, self.nodes):
                half[own] = scale * (phi @ A[at])
            for phi, own, at in zip(features, self.own, self.nodes):
                Lambda[:, own] = half[:, at] @ phi.T


class Block:
    """One component's factor and features at given parameters."""

    def __init__(self, places: Places, values: Values, jitter: float) -> None:
        (K, Kzx, diagonal), self.pullback = places.tangents.evaluate(values)
        self.share = _share(K, jitter)
        self.root = _root(K, self.share)
        self.inverse, _ = lapack.dtrtri(self.root, lower=1)
        self.whole = self.inverse @ Kzx
        self.nodes = places.nodes
        self.phi = self.whole[:, : self.nodes]
        # k(x, x) - |phi(x)|^2 at the points of open variance, [E]
        open_phi = self.whole[:, self.nodes :]
        left = diagonal[self.nodes :] - np.einsum("me,me->e", open_phi, open_phi)
        self._open = left > 0.0  # rounding may leave less than nothing, which the more rows the
        self.open_variance = np.where(self._open, left, 0.0)  # better would seem to be a gain

    def gradient(self, phi_bar: AnyNDArray, mass: AnyNDArray) -> Gradients:
        """From gradients in the features at nodes, and weights of open variance."""
        mass = np.where(self._open, mass, 0.0)
        upstream = np.concatenate([phi_bar, mass * self.whole[:, self.nodes :]], axis=1)
        M = len(upstream)
        inner = np.tril(upstream @ self.whole.T)
        inner.flat[:: M + 1] *= 0.5
        K_bar = self.inverse.T @ inner @ self.inverse
        K_bar = -0.5 * (K_bar + K_bar.T)
        K_bar.flat[:: M + 1] += self.share * np.trace(K_bar) / M
        diagonal_bar = np.concatenate([np.zeros(self.nodes), -0.5 * mass])
        return self.pullback((K_bar, self.inverse.T @ upstream, diagonal_bar))


class Evaluation:
    """The bound at one set of parameters."""

    def __init__(self, evidence: Evidence, data: PseudoData, values: Values, scale: float) -> None:
        self.scale = scale
        self.blocks = evidence.blocks(values)
        self.masses = [scale * m.sum(axis=0) for m in data.masses]
        self.data = data
        self.projection = found = Projection([b.phi for b in self.blocks], data, scale)
        self.factors = [factorised(Lambda) for Lambda in found.Lambda]
        self.mean = np.stack(
            [lapack.dpotrs(f, s, lower=1)[0] for f, s in zip(self.factors, found.eta.T)], axis=1
        )
        value = -sum(np.log(np.diag(f)).sum() for f in self.factors)
        value += 0.5 * float(np.sum(found.eta * self.mean))
        value -= 0.5 * sum(float(m @ b.open_variance) for m, b in zip(self.masses, self.blocks))
        if not np.isfinite(value):
            raise NotPositiveDefinite
        self.value = float(value)
        self._known: list[AnyNDArray] | None = None

    def feature_slopes(self) -> list[AnyNDArray]:
        """In the features of each component at its nodes, [M_c, J_c]."""
        at_data = self.projection
        bars = [np.zeros_like(b.phi) for b in self.blocks]
        for i, slope in enumerate(self.slopes()):
            mu = self.mean[:, i]
            for bar, own, at in zip(bars, at_data.own, at_data.nodes):
                bar += 2.0 * (slope[own] @ at_data.half[i][:, at])
                bar += self.scale * np.outer(mu[own], self.data.shift[at, i])
        return bars

    def gradient(self) -> tuple[dict[int, AnyNDArray], float]:
        """In parameters, by their ``id``, and in the logarithm of the scale."""
        at_data = self.projection
        along = float(np.sum(self.mean * at_data.eta))
        along += sum(float(np.vdot(s, L)) for s, L in zip(self.slopes(), at_data.Lambda))
        for block, mass in zip(self.blocks, self.masses):
            along -= 0.5 * float(mass @ block.open_variance)
        every = zip(self.blocks, self.feature_slopes(), self.masses)
        return added(block.gradient(bar, mass) for block, bar, mass in every), along

    def slopes(self) -> list[AnyNDArray]:
        """In Lambda of each output, [P, P]."""
        if self._known is None:
            self._known = [
                -0.5 * (inverse(factor) + np.outer(mu, mu))
                for factor, mu in zip(self.factors, self.mean.T)
            ]
        return self._known


def added(gradients: Iterable[Gradients]) -> dict[int, AnyNDArray]:
    """Sums of gradients in parameters, by their ``id``: components may share some."""
    found: dict[int, AnyNDArray] = {}
    for parameter, gradient in itertools.chain.from_iterable(gradients):
        found[id(parameter)] = found.get(id(parameter), 0.0) + gradient
    return found


def average_information(
    evidence: Evidence,
    data: PseudoData,
    values: Mapping[int, AnyNDArray],
    moved: Sequence[tuple[Sequence[int], Mapping[int, AnyNDArray]]],
    step: float,
    scale: float = 1.0,
) -> AnyNDArray:
    r"""
    The average information of hyperparameters, [K, K].

    .. math:: H_{ij} = \tfrac12 r' C_i P C_j r

    with :math:`C_i` the derivative of the values' prior covariance, P the inverse of the
    pseudo-data's covariance and r its product with the data (Gilmour, Thompson & Cullis 1995): the
    mean of observed and expected information, of which the traces cancel. It is never negative, and
    costs two evaluations of every component where each has two hyperparameters.

    :param evidence: of the components.
    :param data: the pseudo-data.
    :param values: of the kernels' parameters, by their ``id``.
    :param moved: for each hyperparameter the components that change with it, and the values of
        all parameters where its coordinate is ``step`` further on.
    :param step: of those differences.
    :param scale: multiplies weights and shifts.
    :raises NotPositiveDefinite: at some of these values.
    """
    number = len(evidence)
    features = [evidence.features(_at(values), c) for c in range(number)]
    found = Projection(features, data, scale)
    q = posterior_of(found.Lambda, found.eta, ())
    L = len(data.precision)
    residual = scale * data.shift - np.stack(
        [half.T @ mean for half, mean in zip(found.half, q.mean.T)], axis=1
    )

    def reached(phi: AnyNDArray, c: int) -> AnyNDArray:
        return phi.T @ (phi @ residual[found.nodes[c]])  # C_c r at the component's nodes

    present = [reached(phi, c) for c, phi in enumerate(features)]
    changes = np.zeros((len(moved), *data.shift.shape))
    for change, (which, there) in zip(changes, moved):
        for c in which:
            change[found.nodes[c]] = (
                reached(evidence.features(_at(there), c), c) - present[c]
            ) / step
    H = np.zeros((len(moved), len(moved)))
    for i in range(L):
        D = changes[:, :, i]
        half = D @ found.half[i].T
        H += 0.5 * (scale * (D @ data.precision[i] @ D.T) - half @ q.covariance[i] @ half.T)
    return H


def _at(values: Mapping[int, AnyNDArray]) -> Values:
    return lambda parameter: values[id(parameter)]


Pullback = Callable[[Mapping[int, AnyNDArray]], AnyNDArray]
"""From gradients in parameters, by their ``id``, to those in coordinates, [K]."""


def evidence_hessian(
    evidence: Evidence,
    data: PseudoData,
    values: Mapping[int, AnyNDArray],
    pullback: Pullback,
    moved: Sequence[tuple[Sequence[int], Mapping[int, AnyNDArray], Pullback]],
    step: float,
    scale: float = 1.0,
) -> AnyNDArray:
    """
    Second derivatives of the evidence, [K, K].

    The evidence is a function of the components' features, and these of hyperparameters. How
    features change is taken by differences, a component at a time; what those changes do to each
    other by way of the posterior is written out. Differences of whole gradients evaluate every
    component for every hyperparameter instead.

    :param evidence: of the components.
    :param data: the pseudo-data.
    :param values: of the kernels' parameters, by their ``id``.
    :param pullback: at these values.
    :param moved: for each coordinate the components that change with it, the values of all
        parameters where it is ``step`` further on, and the pullback there.
    :param step: of those differences.
    :param scale: multiplies weights and shifts.
    :raises NotPositiveDefinite: at some of these values.
    """
    here = Evaluation(evidence, data, _at(values), scale)
    bars, masses = here.feature_slopes(), here.masses
    own, nodes = here.projection.own, here.projection.nodes
    H = np.zeros((len(moved), len(moved)))
    # of every coordinate, how the features of the components that it moves change, [M_c, J_c] each
    changes: list[dict[int, AnyNDArray]] = []
    for j, (which, there, pullback_there) in enumerate(moved):
        blocks = {c: evidence.block(c, _at(there)) for c in which}
        changes.append({c: (b.phi - here.blocks[c].phi) / step for c, b in blocks.items()})
        before, after = (
            added(b[c].gradient(bars[c], masses[c]) for c in which) for b in (here.blocks, blocks)
        )
        H[j] += (pullback_there(after) - pullback(before)) / step
    H = 0.5 * (H + H.T)
    for i, (slope, half) in enumerate(zip(here.slopes(), here.projection.half)):
        mu, A, s = here.mean[:, i], data.precision[i], data.shift[:, i]
        S = -2.0 * slope - np.outer(mu, mu)
        # per coordinate and component: its change times A Phi' and A, and Lambda's slope times it
        towards = [{c: D @ half[:, nodes[c]].T for c, D in each.items()} for each in changes]
        weighted = [{c: scale * (D @ A[nodes[c]]) for c, D in each.items()} for each in changes]
        sloped = [{c: slope[:, own[c]] @ D for c, D in each.items()} for each in changes]
        shifts = np.zeros((len(moved), len(mu)))
        for shift, each in zip(shifts, changes):
            for c, D in each.items():
                shift[own[c]] += scale * (D @ s[nodes[c]])
        for j, shift in enumerate(shifts):
            # how mu changes, and Lambda's slope: those of Lambda are of few rows and columns
            driven = shift.copy()
            slope_change = np.zeros_like(S)
            for c, W in towards[j].items():
                driven[own[c]] -= W @ mu
                driven -= W.T @ mu[own[c]]
                slope_change += S[:, own[c]] @ (0.5 * (W @ S))
            mu_change = S @ driven
            slope_change -= np.outer(0.5 * mu_change, mu)
            slope_change += slope_change.T.copy()
            H[j] += shifts @ mu_change
            for k, each in enumerate(towards):
                for a, W in each.items():
                    H[j, k] += 2.0 * np.vdot(slope_change[own[a]], W)
                    for c, X in weighted[j].items():
                        H[j, k] += 2.0 * np.vdot(X[:, nodes[a]], sloped[k][a][own[c]])
    return 0.5 * (H + H.T)
