"""The inequalities of components that have a shape, and the sites that stand for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..kernels.shaped import shaped_part
from ..kernels.shapes import Values
from .components import RowComponent
from .evidence import Evidence
from .posterior import GaussianPosterior, posterior_of, slices
from .propagation import Propagated, propagate
from .pseudo_data import PseudoData


@dataclasses.dataclass(frozen=True)
class _Cone:
    """
    :param component: its place.
    :param rows: what is not negative of its values at its nodes, [n_c, J_c].
    :param outputs: that it enters.
    """

    component: int
    rows: AnyNDArray
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ConeSites:
    """
    Gaussian factors that stand for all inequalities.

    :param precision: [L, n], zero in outputs in which an inequality does not hold.
    :param shift: [L, n].
    :param correction: what they add to the ELBO.
    """

    precision: AnyNDArray
    shift: AnyNDArray
    correction: float = 0.0


class Cones:
    """
    What is not negative of the components' values at their nodes.

    Sites of the inequalities are pseudo-data like those of rows: they pull at a component's values
    at its own nodes, and at all others by way of the posterior.

    :param components: as rows see them.
    :param num_outputs: L.
    """

    def __init__(self, components: Sequence[RowComponent], num_outputs: int) -> None:
        self._cones: list[_Cone] = []
        for i, component in enumerate(components):
            part = shaped_part(component.kernel)
            if part is not None:
                outputs = tuple(component.outputs_of(num_outputs))
                self._cones.append(_Cone(i, part.kernel.cone(), outputs))
        self._at = slices([len(cone.rows) for cone in self._cones])
        self._nodes = slices([c.places.nodes for c in components])
        self._own = slices([len(c.inducing) for c in components])
        self._open = [c.num_open for c in components]
        self._num_outputs = num_outputs

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._cones)

    @property
    def components(self) -> tuple[int, ...]:
        """Places of the components that have a shape."""
        return tuple(cone.component for cone in self._cones)

    @property
    def outputs(self) -> AnyNDArray:
        """In which outputs each inequality holds, [L, n] of bool."""
        found = np.zeros((self._num_outputs, self._number), dtype=bool)
        for cone, at in zip(self._cones, self._at):
            found[list(cone.outputs), at] = True
        return found

    @property
    def _number(self) -> int:
        return self._at[-1].stop

    def rows(self, evidence: Evidence, values: Values) -> AnyNDArray:
        """
        A [n, P]: of whitened inducing values V, A V is not negative.

        :param values: of the kernels' parameters.
        """
        found = np.zeros((self._number, self._own[-1].stop))
        for cone, at in zip(self._cones, self._at):
            phi = evidence.features(values, cone.component)
            found[at, self._own[cone.component]] = cone.rows @ phi.T
        return found

    def propagated(
        self, evidence: Evidence, values: Values, free: GaussianPosterior
    ) -> tuple[GaussianPosterior, ConeSites]:
        """
        The posterior with sites of the inequalities, and these.

        :param values: of the kernels' parameters.
        :param free: the posterior without.
        """
        A, outputs = self.rows(evidence, values), self.outputs
        precision, shift = np.zeros(outputs.shape), np.zeros(outputs.shape)
        total_precision, total_shift = free.precision.copy(), free.shift.copy()
        correction = 0.0
        for i, own in enumerate(outputs):
            if not own.any():
                continue
            sites = propagated_along(A[own], free.mean[:, i], free.covariance[i])
            precision[i, own], shift[i, own] = sites.precision, sites.shift
            correction += sites.correction
            total_precision[i] += (A[own].T * sites.precision) @ A[own]
            total_shift[:, i] += A[own].T @ sites.shift
        q = posterior_of(total_precision, total_shift, free.roots)
        return q, ConeSites(precision, shift, correction)

    def log_support(
        self, evidence: Evidence, values: Values, free: GaussianPosterior
    ) -> dict[tuple[int, int], float]:
        """
        For each component and output that it enters, how data speak for its shape.

        The logarithm of the probability of the shape a posteriori against that a priori, which is
        that of the Bayes factor for it against functions of any shape.

        :param values: of the kernels' parameters.
        :param free: the posterior without inequalities.
        """
        A, found = self.rows(evidence, values), {}
        for cone, at in zip(self._cones, self._at):
            own = A[at]
            prior = propagated_along(own, np.zeros(own.shape[1]), np.eye(own.shape[1])).log_mass
            for i in cone.outputs:
                sites = propagated_along(own, free.mean[:, i], free.covariance[i])
                found[cone.component, i] = sites.log_mass - prior
        return found

    def data(self, sites: ConeSites) -> PseudoData:
        """Sites as pseudo-data at the nodes."""
        R, L = self._nodes[-1].stop, self._num_outputs
        precision, shift = np.zeros((L, R, R)), np.zeros((R, L))
        for cone, at in zip(self._cones, self._at):
            own, G = self._nodes[cone.component], cone.rows
            for i in cone.outputs:
                precision[i, own, own] = (G.T * sites.precision[i, at]) @ G
                shift[own, i] = G.T @ sites.shift[i, at]
        masses = tuple(np.zeros((L, number)) for number in self._open)
        return PseudoData(precision, shift, masses)


def propagated_along(rows: AnyNDArray, mean: AnyNDArray, covariance: AnyNDArray) -> Propagated:
    """The sites of ``rows V >= 0`` for V ~ N(mean, covariance)."""
    return propagate(rows @ mean, rows @ covariance @ rows.T)
