"""The rows of a fit: in memory, as codes of bins, shared out among processes, or gone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ...kernels import AdditiveKernel
from ...models import AdditiveModel
from ...optimizers.binned.bins import (
    NUM_BINS,
    Bins,
    CodedColumns,
    Columns,
    HeldColumns,
    bin_columns,
    code_type,
)
from ...optimizers.binned.evidence import Places, RowComponent, row_component
from ...optimizers.binned.passes import BLOCK, Rows
from ...storage import ByBlock, Inputs, RowArray, Stored, blocks
from ...threads import one_blas_thread
from ..components.plan import Component
from ..families.encoding import Described
from ..frames.encoding import Encoder
from ..terms.base import Column
from .specification import Specification

Marginal = tuple[AnyNDArray, AnyNDArray]
"""Values [Q] that stand for a column, and the weight of rows at each, [Q]."""
_OFF = -1.0  # the code of no level
_GONE = (
    "this GAM was loaded from a file without its data (save(data=False)), and what was asked for "
    "needs them; load a file that holds them, or fit again."
)


class Pearson(NamedTuple):
    """Pearson's statistic at the posterior mean of the predictor."""

    statistic: float  # sum of squared Pearson residuals
    variance: float  # their sum's variance, where the family holds and its mean is known
    number: float  # total weight of its rows


class Discrepancies(NamedTuple):
    """Deviance and Pearson statistics, from one pass over the rows."""

    deviance: tuple[float, float] | None
    """At the posterior mean of the predictor, and the null model's; None where none is defined."""

    pearson: Pearson | None  # none where the family's variance is no function of its mean


@dataclasses.dataclass(frozen=True)
class Communication:
    """Number and size of the messages between the workers of a fit."""

    workers: int  # how many there were
    reductions: int  # of all kinds, over the fit
    bytes: int  # what each contributed to them in all


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Known:
    """What a fit knows where rows cannot be asked, all of them or those of other processes."""

    offset: AnyNDArray | None = None  # the known part of the predictor, offsets at their mean, [L]
    discrepancies: Discrepancies | None = None
    starts: AnyNDArray | None = None  # when rows of "cox" enter
    reach: AnyNDArray | None = None  # the ends of the response, [2]
    response: Described | None = None  # what families ask of it
    communication: Communication | None = None  # messages between the workers of a fit


class Data(_Known):
    """The rows of a fit, as encoded."""

    X: AnyNDArray  # rows that are held as numbers, [n, D]: all of them, or an even sample
    Y: AnyNDArray  # theirs, [n, K]
    indices: AnyNDArray  # their places among all rows, [n]
    number: int  # N, all rows of the fit
    columns: Columns  # X of all rows, as sums over rows read it
    responses: RowArray  # Y of all rows (of this process), [N, K]
    complete: bool = False  # whether X and Y are all rows
    available: bool = True  # whether there are any rows
    shared: bool = False  # whether other processes have rows of it, too
    rows: Callable[..., Rows]  # the rows as a fit by sums reads them
    # values of a column of X, or what stands for them, and the weight of rows at each
    marginal: Callable[[int], Marginal]

    def weights(self) -> Iterator[tuple[slice, AnyNDArray]]:
        """Blocks of rows (of this process) and how often they count, [n]."""
        weights = self.columns.weights
        for at in blocks(len(self.responses), BLOCK):
            yield at, np.ones(at.stop - at.start) if weights is None else weights[at]


@dataclasses.dataclass(frozen=True, eq=False)
class HeldData(Data):
    """All rows in memory as numbers."""

    X: AnyNDArray
    Y: AnyNDArray
    columns: Columns
    number: int
    responses: AnyNDArray  # Y
    indices: AnyNDArray
    complete = True

    @classmethod
    def of(
        cls,
        X: AnyNDArray,
        Y: AnyNDArray,
        encoder: Encoder,
        weights: Column | None,
        number: int | None = NUM_BINS,
    ) -> HeldData:
        w = None if weights is None else X[:, encoder.index(weights, "number")]
        columns = HeldColumns(X, w, number, encoder.places("level"))
        return cls(X, Y, columns, len(X), Y, np.arange(len(X)))

    def rows(
        self, spec: Specification, model: AdditiveModel, known: Sequence[RowComponent] = ()
    ) -> Rows:
        parts = row_components(spec.components, model.kernel, self.columns, spec.refined, known)
        return Rows(parts, self.X, self.Y, np.asarray(model.mean_function(self.X)))

    def marginal(self, column: int) -> Marginal:
        weights = self.columns.weights
        return self.X[:, column], np.ones(len(self.X)) if weights is None else np.asarray(weights)


@dataclasses.dataclass(frozen=True, eq=False)
class CodedData(Data):
    """Rows of which memory holds codes of bins, the response, offsets and weights."""

    X: AnyNDArray  # an even sample of the rows, [n, D]
    Y: AnyNDArray  # theirs, [n, K]
    columns: CodedColumns
    responses: Stored
    marginals: dict[int, Marginal]  # of every column that a component reads, by its place in X
    indices: AnyNDArray
    start: int = 0  # the number of the first row here
    total: int | None = None  # N, over all processes; None where this one has all rows

    @property
    def number(self) -> int:  # type: ignore[override]
        return len(self.responses) if self.total is None else self.total

    @property
    def shared(self) -> bool:  # type: ignore[override]
        return self.total is not None

    def rows(
        self, spec: Specification, model: AdditiveModel, known: Sequence[RowComponent] = ()
    ) -> Rows:
        communicator = self.columns.communicator
        parts = row_components(spec.components, model.kernel, self.columns, spec.refined, known)
        shape = [(len(c.interpolation.nodes), c.bins.number, c.num_residual) for c in parts]
        if any(other != shape for other in communicator.gathered(shape)):
            raise ValueError(
                "the workers came to different nodes for the same columns: their processors or "
                "libraries round differently; run the same versions on machines of one kind."
            )
        mean, sample = self.mean(spec), (self.indices, self.X)
        own = self.columns.X, self.responses, mean, sample
        return Rows(parts, *own, self.start, self.total, communicator)

    def mean(self, spec: Specification) -> ByBlock:
        """The known part of the predictor, [N, L]."""
        offsets = [self.columns.values(spec.place(c)) for c in spec.offset]

        def known(which: Any) -> AnyNDArray:
            mean = np.tile(spec.constant, (len(self.responses.raw[which]), 1))
            for offset in offsets:
                mean[:, 0] += offset[which]
            return mean

        return ByBlock((len(self.responses), len(spec.constant)), known)

    def marginal(self, column: int) -> Marginal:
        return self.marginals[column]

    # --- files ----------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, AnyNDArray]]:
        """All but X and Y, as JSON can hold it, and arrays."""
        if self.shared:
            raise ValueError(
                "a GAM that several workers have fitted cannot be saved to a file, which would "
                "hold the rows of one of them only; pass data=False, or export it with "
                "gpflow_gam.serving."
            )
        arrays = {"whole Y": self.responses.raw, "whole indices": self.indices}
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
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any]) -> CodedData:
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
        responses = Stored(arrays["whole Y"])
        inputs = Inputs(len(responses), header["width"], held)
        columns = CodedColumns(inputs, coded, reaches, held.get(header.get("weights")))
        marginals = {
            place: tuple(arrays[f"whole marginal {place}"]) for place in header["marginals"]
        }
        indices = arrays["whole indices"]
        return cls(arrays["X"], arrays["Y"], columns, responses, marginals, indices)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise ValueError(_GONE)


@dataclasses.dataclass(frozen=True, eq=False)
class MissingData(Data):
    """Rows that a file left out: whatever asks for them raises an error that says so."""

    number: int  # how many there were
    available = False
    rows = marginal = weights = _refuse
    X = Y = columns = responses = indices = property(_refuse)  # type: ignore


class MissingRows(Rows):
    """Rows of which nothing but sums, by components, is left."""

    X = Y = mean = sample = number = property(_refuse)  # type: ignore[assignment]

    def __init__(self, components: Sequence[tuple[Kernel, Places]]) -> None:
        self.components = [SummedComponent(*c) for c in components]  # type: ignore[misc]


class SummedComponent(NamedTuple):
    """A component of rows that are gone, and where the evidence evaluates it."""

    kernel: Kernel
    places: Places


# --- rows as sums over them read them ------------------------------------------------------------


@one_blas_thread()
def row_components(
    components: tuple[Component, ...],
    kernel: AdditiveKernel,
    columns: Columns,
    refined: tuple[str, ...] = (),
    known: Sequence[RowComponent] = (),
) -> list[RowComponent]:
    """The components as rows see them, in the kernel's order."""
    # users may have given a kernel of their own other priors since
    parts = {
        i: same.of_kernel(kernel[component.name])
        for i, (component, same) in enumerate(zip(components, known))
        if component.form != "own"
    }
    new = [i for i in range(len(components)) if i not in parts]
    acting = {i: _acting(components[i], columns) for i in new}
    totals = columns.communicator.total([acting[i][0].mass() for i in new])
    for i, total in zip(new, totals):
        component, (bins, multiplier) = components[i], acting[i]
        Z = np.array(component.inducing).reshape(len(component.inducing), -1)
        parts[i] = row_component(
            kernel[component.name],
            component.full(Z, columns.width),
            bins,
            tuple(m.column for m in component.margins),
            multiplier,
            total,
            component.predictors or None,
            component.name in refined,
        )
    return [parts[i] for i in range(len(components))]


def _acting(component: Component, data: Columns) -> tuple[Bins, RowArray | None]:
    """The bins in which a component acts, points as rows of X, and what multiplies it."""
    if component.slots:
        return _rows_of_sums(component, data), None
    bins = data.bins(tuple(m.column for m in component.margins))
    points = component.full(bins.points, data.width)
    codes, multiplier = bins.codes, None
    by = component.by
    if by is None:
        pass
    elif by.code is None:
        multiplier = data.values(by.column)
    else:
        # rows of other levels share a bin in which the component is zero
        off = points[:1].copy()
        off[0, by.column] = _OFF
        codes = np.empty(len(bins.codes), dtype=code_type(len(points) + 1))
        for at, has in data.rows_at_level((by.column, by.code)):
            codes[at] = np.where(has, bins.codes[at], len(points))
        points = np.concatenate([points, off])
    counts = bins.counts if codes is bins.codes else None
    return Bins(codes, points, bins.exact, counts), multiplier


def _rows_of_sums(component: Component, data: Columns) -> Bins:
    """Distinct rows of a sum over evaluations, whose points are those of bins of all of them."""
    columns, d = [c for slot in component.slots for c in slot], len(component.margins)
    rows, codes = np.unique(data.X[:, columns], axis=0, return_inverse=True)
    values = rows.reshape(len(rows), -1, d + 1)
    there = values[..., -1] != 0.0
    bins = bin_columns(values[there][:, :-1])
    values[there, :-1] = bins.points[bins.codes]
    points = np.zeros((len(rows), data.width))
    points[:, columns] = values.reshape(len(rows), -1)
    return Bins(codes.ravel().astype(code_type(len(rows))), points, bins.exact)
