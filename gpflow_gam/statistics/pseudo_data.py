"""What Gaussian sites of all rows add up to."""

from __future__ import annotations

import dataclasses

from gpflow.base import AnyNDArray


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
