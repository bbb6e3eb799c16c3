"""The evidence of pseudo-data as a function of hyperparameters, free of the number of rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Kernel
from scipy.linalg import lapack

from ..covariances.jitter import own_jitter
from ..kernels.functional import parameters_of
from ..kernels.shapes import Values
from ..kernels.tangents import Gradients, KernelTangents, kernel_tangents
from .posterior import (
    GaussianPosterior,
    NotPositiveDefinite,
    factorised,
    inverse,
    posterior_of,
    slices,
)
from .pseudo_data import PseudoData


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
