"""Second derivatives of the evidence of pseudo-data in hyperparameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from gpflow.base import AnyNDArray

from ..kernels.shapes import Values
from .evidence import Evaluation, Evidence, added
from .pseudo_data import PseudoData

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


def _at(values: Mapping[int, AnyNDArray]) -> Values:
    return lambda parameter: values[id(parameter)]
