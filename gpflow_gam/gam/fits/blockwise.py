"""Predictions at rows of any number, a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ...optimizers.laplace import HyperparameterDraw
from ..frames import Table, blocks_of, concatenated, in_blocks, recut
from ..terms import Column, variables_of
from . import prediction
from .fitted import BLOCK, FittedGAM
from .fitting import checked_response
from .incomplete import at_complete_rows
from .part import Part
from .stating import complete_columns, response_columns
from .surveying import located
from .survival import survival as curves

_MANY = 8 * BLOCK
"""Rows at a time where nothing is drawn."""
Averaged = Callable[[FittedGAM, AnyNDArray, AnyNDArray], AnyNDArray]


def predict_source(
    fit: FittedGAM,
    data: Any,
    type: prediction.PredictionType,
    *,
    interval: float | None = None,
    se: bool = False,
    seed: int = 0,
    drop: bool = False,
    uncertain: prediction.Uncertain | None = None,
    part: Part | None = None,
) -> Any:
    """
    :func:`prediction.predict` of a table or of a source of blocks: the same rows give the same.

    :param part: of the predictor; None for all of it.
    :param drop: whether rows that lack a value are NaN rather than an error.
    :raises ValueError: as that function, or a source without rows.
    """
    # draws of new responses go on from block to block
    rng: Any = np.random.default_rng(seed) if type == "observation" else seed
    columns = _columns(fit, type, part)
    parts = []
    # what few rows of a block need is dear, and so shared by many
    step = _MANY if type in ("terms", "link") else BLOCK
    for start, table in _blocks(data, columns, step):
        with located(start, table.num_rows):
            answer = partial(
                prediction.predict,
                fit,
                type=type,
                interval=interval,
                se=se,
                seed=rng,
                uncertain=uncertain,
                part=part,
            )
            parts.append(_answered(fit, table, columns, answer, drop))
    return _labelled(_joined(parts), data)


def sample(
    fit: FittedGAM,
    data: Any,
    num_samples: int,
    type: prediction.PredictionType,
    seed: int,
    drop: bool = False,
    part: Part | None = None,
) -> AnyNDArray:
    """
    :func:`prediction.sample` of rows in whatever they come in.

    :param part: of the predictor; None for all of it.
    :param drop: whether rows that lack a value are NaN rather than an error.
    :raises ValueError: as that function.
    """
    columns = _columns(fit, type, part)
    draw = partial(prediction.sample, fit, num_samples=num_samples, type=type, seed=seed, part=part)
    found: AnyNDArray = _answered(fit, in_memory(data), columns, draw, drop, axis=1)
    return found


def log_density(
    fit: FittedGAM, data: Any, averaged: Averaged | None = None, drop: bool = False
) -> AnyNDArray:
    """
    Log predictive density of each row's response, [N].

    :param averaged: takes the fit, X and Y, where hyperparameters are not taken as known.
    :param drop: whether rows that lack a value are NaN rather than an error.
    :raises ValueError: as :func:`prediction.log_density`.
    """
    spec, parts = fit.spec, []
    columns = variables_of([*spec.inputs, *response_columns(spec)])
    needed = variables_of([*spec.inputs, *complete_columns(spec)])

    def density(table: Table) -> AnyNDArray:
        if averaged is None:
            return prediction.log_density(fit, table)
        return averaged(fit, fit.encode(table), checked_response(fit, table))

    for start, table in _blocks(data, columns):
        with located(start, table.num_rows):
            parts.append(_answered(fit, table, needed, density, drop))
    return np.concatenate(parts)


def survival(
    fit: FittedGAM,
    data: Any,
    times: Any,
    level: float,
    draws: Sequence[HyperparameterDraw] = (),
) -> pd.DataFrame:
    """
    :func:`.survival.survival` of a table or of a source of blocks; rows are counted from the first.

    :raises ValueError: as that function.
    """
    parts = []
    for start, table in _blocks(data, _columns(fit, "response", None)):
        with located(start, table.num_rows):
            found = curves(fit, table, times, level, draws)
            found["row"] += start
            parts.append(found)
    whole: pd.DataFrame = _joined(parts)
    return whole


def in_memory(data: Any) -> Table:
    """Data as one table, whatever they come in."""
    if not in_blocks(data):
        return Table(data)
    return concatenated(_some(list(blocks_of(data, None, BLOCK))))


def _columns(fit: FittedGAM, type: str, part: Part | None) -> list[Column]:
    """The columns that a prediction reads."""
    spec = fit.spec
    found = spec.inputs if part is None else spec.inputs_of(part.names)
    trials = spec.trials if type == "observation" else None
    return found if trials is None else variables_of([*found, trials])


def _answered(
    fit: FittedGAM,
    table: Table,
    columns: list[Column],
    answer: Callable[[Table], Any],
    drop: bool,
    axis: int = 0,
) -> Any:
    if not drop:
        return answer(table)
    return at_complete_rows(fit.spec, table, columns, answer, axis)


def _blocks(data: Any, columns: list[Column], step: int = BLOCK) -> Iterator[tuple[int, Table]]:
    """Blocks of equal numbers of rows, each with the number of its first."""
    if in_blocks(data):
        start, names = 0, list(dict.fromkeys(columns))
        # the place of a named column is known among all of them only
        named = bool(names) and all(isinstance(name, str) for name in names)
        for table in recut(iter(blocks_of(data, names if named else None, BLOCK)), step):
            yield start, table
            start += table.num_rows
        if start == 0:
            raise ValueError("data has no rows; there is nothing to predict.")
        return
    table = Table(data)
    for start in range(0, max(table.num_rows, 1), step):
        whole = table.num_rows <= step
        yield start, table if whole else table.part(start, start + step)


def _some(tables: list[Table]) -> list[Table]:
    if not tables:
        raise ValueError("data has no rows.")
    return tables


def _labelled(found: Any, data: Any) -> Any:
    """Frames with the labels of the rows of pandas' data, by which pandas puts columns together."""
    index = getattr(data, "index", None)
    if not isinstance(index, pd.Index):
        return found
    if isinstance(found, tuple):
        return tuple(_labelled(part, data) for part in found)
    return found.set_axis(index) if isinstance(found, pd.DataFrame) else found


def _joined(parts: list[Any]) -> Any:
    """Arrays, frames or tuples of them, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        return tuple(_joined(list(part)) for part in zip(*parts))
    if isinstance(parts[0], pd.DataFrame):
        return pd.concat(parts, ignore_index=True)
    return np.concatenate(parts)
