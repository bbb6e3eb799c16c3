"""The few functions that most of an interaction's prior is made of."""

from __future__ import annotations

import dataclasses

import numpy as np
from check_shapes import check_shapes
from gpflow.base import AnyNDArray

from ..components import Margin, interaction_margin

MAX_RANK = 64
"""Features of an interaction: more than a product of smooth kernels has that are of any size."""
_NEGLIGIBLE = 1e-5
"""Prior variance, against the whole, of features that are left out."""


@dataclasses.dataclass(frozen=True)
class Features:
    """
    Functions b_r whose products add up to a kernel: ``k(x, x') = sum_r b_r(x) b_r(x')``.

    :param values: b_r(x_n), [N, R].
    :param sizes: E[b_r(x)^2], [R], the largest first.
    """

    values: AnyNDArray
    sizes: AnyNDArray

    def leading(self, max_rank: int) -> Features:
        """
        Those of most prior variance, without the negligible ones.

        :param max_rank: how many, at most.
        """
        order = np.argsort(-self.sizes, kind="stable")[:max_rank]
        order = order[self.sizes[order] > _NEGLIGIBLE * self.sizes.sum()]
        return Features(self.values[:, order], self.sizes[order])


@check_shapes("x: [N]")
def margin_features(margin: Margin, x: AnyNDArray) -> Features:
    """
    The leading eigenfunctions of a column's part in an interaction, at the prior's lengthscale.

    Nystroem's method on the nodes that stand for the column's distribution (Rasmussen & Williams
    2006, section 4.3.2), exact for levels.

    :param margin: the column; its nodes are the quadrature.
    :param x: its values, [N], in its own unit.
    """
    nodes = np.array(margin.nodes)[:, None]
    root = np.sqrt(np.array(margin.weights))
    kernel = interaction_margin(margin, column=0)
    K = kernel(np.concatenate([nodes, x[:, None]]), nodes).numpy()
    among, across = K[: len(nodes)], K[len(nodes) :]
    sizes, vectors = np.linalg.eigh(root[:, None] * among * root)
    sizes, vectors = sizes[::-1][:MAX_RANK], vectors[:, ::-1][:, :MAX_RANK]
    kept = sizes > _NEGLIGIBLE * sizes.sum()
    sizes, vectors = sizes[kept], vectors[:, kept]
    return Features(across @ (root[:, None] * vectors / np.sqrt(sizes)), sizes)


def product(parts: tuple[Features, ...], max_rank: int = MAX_RANK) -> Features:
    """
    The leading features of a product of kernels, on columns taken as independent.

    :param parts: the kernels' features at the same points.
    :param max_rank: how many to keep.
    """
    whole = parts[0]
    for part in parts[1:]:
        sizes = np.outer(whole.sizes, part.sizes).ravel()
        values = whole.values[:, :, None] * part.values[:, None, :]
        whole = Features(values.reshape(len(values), -1), sizes).leading(max_rank)
    return whole
