"""All rows of a fit to more of them than are kept as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ...kernels import AdditiveKernel
from ...optimizers.binned.bins import Bins
from ...optimizers.binned.columns import CodedColumns
from ...optimizers.binned.passes import BLOCK, Rows
from ...storage import Inputs, Offsets, Stored
from .rows import make_rows
from .specification import Specification

Marginal = tuple[AnyNDArray, AnyNDArray]
"""Values [Q] that stand for a column, and the weight of rows at each, [Q]."""


@dataclasses.dataclass(frozen=True, eq=False)
class Whole:
    """
    What memory holds of all rows: codes of bins, the response, offsets and weights.

    :param columns: of X.
    :param Y: the response as encoded, [N, K].
    :param marginals: of every column that a component reads, by its place in X.
    :param indices: which rows are kept as they are, [n].
    """

    columns: CodedColumns
    Y: Stored
    marginals: dict[int, Marginal]
    indices: AnyNDArray

    @property
    def number(self) -> int:
        """N."""
        return len(self.Y)

    def rows(self, spec: Specification, kernel: AdditiveKernel, X: AnyNDArray) -> Rows:
        """
        The rows as a fit sees them.

        :param kernel: of the model.
        :param X: the rows that are kept, [n, D].
        """
        mean, sample = self.mean(spec), (self.indices, X)
        return make_rows(spec.components, kernel, self.columns, self.Y, mean, sample, spec.fine)

    def mean(self, spec: Specification) -> Offsets:
        """The known part of the predictor, [N, L]."""
        offsets = [self.columns.values(spec.place(c)) for c in spec.offset]
        return Offsets(len(self.Y), spec.constant, offsets)

    def weights(self) -> Iterator[tuple[slice, AnyNDArray]]:
        """Blocks of rows and how often they count, [n]."""
        weights = self.columns.weights
        for start in range(0, len(self.Y), BLOCK):
            at = slice(start, min(start + BLOCK, len(self.Y)))
            yield at, np.ones(at.stop - at.start) if weights is None else weights[at]

    # --- files ----------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, AnyNDArray]]:
        """As JSON can hold it, and the arrays."""
        arrays = {"whole Y": self.Y.raw, "whole indices": self.indices}
        columns = self.columns
        header: dict[str, Any] = {"bins": [], "held": list(columns.X.columns), "reaches": []}
        for i, (places, bins) in enumerate(columns.coded.items()):
            header["bins"].append({"columns": list(places), "exact": bins.exact})
            arrays |= {f"whole codes {i}": bins.codes, f"whole points {i}": bins.points}
        for place, stored in columns.X.columns.items():
            arrays[f"whole column {place}"] = stored.raw
            if columns.weights is stored:
                header["weights"] = place
        for i, (key, (least, greatest)) in enumerate(columns.ranges.items()):
            header["reaches"].append(list(key))
            arrays[f"whole reach {i}"] = np.stack([least, greatest])
        header["marginals"] = list(self.marginals)
        for place, marginal in self.marginals.items():
            arrays[f"whole marginal {place}"] = np.stack(marginal)
        header["width"] = columns.width
        return header, arrays

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> Whole:
        """What :meth:`to_arrays` wrote."""
        coded = {
            tuple(b["columns"]): Bins(
                arrays[f"whole codes {i}"], arrays[f"whole points {i}"], b["exact"]
            )
            for i, b in enumerate(header["bins"])
        }
        held = {place: Stored(arrays[f"whole column {place}"]) for place in header["held"]}
        reaches = {
            (key[0], key[1]): tuple(arrays[f"whole reach {i}"])
            for i, key in enumerate(header["reaches"])
        }
        Y = Stored(arrays["whole Y"])
        columns = CodedColumns(
            Inputs(len(Y), header["width"], held), coded, reaches, held.get(header.get("weights"))
        )
        marginals = {
            place: tuple(arrays[f"whole marginal {place}"]) for place in header["marginals"]
        }
        return cls(columns, Y, marginals, arrays["whole indices"])
