"""Columns that a formula makes of others, remembered: ``poly`` of new rows is that of the fit."""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..terms import Column
from ..terms.parametric import levels_of, parsed, variables_of
from . import labels
from .encoding import LevelColumn, NumericColumn, is_levels, learn_levels, level_to_json
from .table import Table

_FUNCTIONS = {
    name: getattr(np, name) for name in ("log1p", "expm1", "sqrt", "sin", "cos", "tan", "abs")
}
"""Beside those that formulaic has."""


@dataclasses.dataclass(frozen=True)
class Design:
    """The columns of a parametric formula."""

    text: str
    columns: tuple[NumericColumn | LevelColumn, ...]
    names: tuple[str, ...]
    state: dict[str, Any]
    constant: bool = False

    @classmethod
    def learn(cls, text: str, table: Table, constant: bool = True) -> Design:
        """From the data of a fit."""
        stated = levels_of(text)
        readers = tuple(
            learn_levels(table, name)
            if name in stated or is_levels(table, name)
            else NumericColumn(name, text)
            for name in variables_of(text)
        )
        state: dict[str, Any] = {}
        matrix = _matrix(text, readers, table, state, constant)
        if not len(matrix.columns):
            raise ValueError(f"formula {text!r} makes no columns.")
        return cls(text, readers, tuple(map(str, matrix.columns)), state, constant)

    @property
    def variables(self) -> tuple[Column, ...]:
        """The columns that it reads."""
        return tuple(reader.name for reader in self.columns)

    @functools.cached_property
    def made(self) -> tuple[str, ...]:
        """The columns that it makes beside those that it reads."""
        return tuple(name for name in self.names if name not in self.variables)

    def extended(self, table: Table) -> Table:
        """A table with the columns that the formula makes."""
        holes = {name: int(table.missing(name).sum()) for name in self.variables}
        if any(holes.values()):
            raise ValueError(
                "new data has missing values: "
                + ", ".join(f"{count} in {name!r}" for name, count in holes.items() if count)
                + "; fill them in or leave those rows out."
            )
        taken = next((name for name in self.made if name in table), None)
        if taken is not None:
            raise ValueError(
                f"data has a column {taken!r}, which the formula makes as well; rename it."
            )
        if table.num_rows == 0:
            values: dict[str, AnyNDArray] = {name: np.zeros(0) for name in self.names}
        else:
            state = copy.deepcopy(self.state)
            matrix = _matrix(self.text, self.columns, table, state, self.constant)
            values = {str(name): matrix[name].to_numpy(np.float64) for name in matrix.columns}
        if tuple(values) != self.names:
            raise ValueError(
                f"formula {self.text!r} makes other columns ({', '.join(values)}) than in the fit "
                f"({', '.join(self.names)})."
            )
        for name in self.made:
            bad = ~np.isfinite(values[name])
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                own = ", ".join(f"{v} = {table.values(v)[row]!s}" for v in self.variables)
                raise ValueError(f"{name} is {values[name][row]} in row {row}, where {own}.")
        whole = Table({**table.columns(), **{name: values[name] for name in self.made}})
        whole.origin = table.origin
        return whole

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        readers = []
        for reader in self.columns:
            own: dict[str, Any] = {"name": reader.name}
            if isinstance(reader, LevelColumn):
                own["levels"] = [level_to_json(v, reader.name) for v in reader.levels]
            readers.append(own)
        return {
            "text": self.text,
            "columns": readers,
            "names": list(self.names),
            "state": _plain(self.state),
            "constant": self.constant,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Design:
        """Read a design that :meth:`to_json` wrote."""
        text = value["text"]
        variables_of(text)  # which lets no other code pass
        readers: list[NumericColumn | LevelColumn] = []
        for own in value["columns"]:
            if "levels" in own:
                levels = tuple(labels.from_json(v) for v in own["levels"])
                readers.append(LevelColumn(own["name"], levels))
            else:
                readers.append(NumericColumn(own["name"], text))
        names, state = tuple(value["names"]), _restored(value["state"])
        return cls(text, tuple(readers), names, state, value.get("constant", False))


def _matrix(
    text: str,
    readers: tuple[NumericColumn | LevelColumn, ...],
    table: Table,
    state: dict[str, Any],
    constant: bool,
) -> pd.DataFrame:
    """The columns, and in ``state`` what transforms have learnt where they knew nothing."""
    import formulaic
    from formulaic.errors import FormulaicError

    frame: dict[str, Any] = {}
    for reader in readers:
        values = reader.encode(table)
        if isinstance(reader, LevelColumn):
            named = np.array([str(level) for level in reader.levels], dtype=object)
            frame[str(reader.name)] = pd.Categorical(named[values.astype(int)], categories=named)
        else:
            frame[str(reader.name)] = values
    spec = formulaic.ModelSpec(
        formula=parsed(text, constant),
        materializer="pandas",
        output="pandas",
        na_action="ignore",
        transform_state=state,
    )
    try:
        with np.errstate(all="ignore"):  # what is not finite is named with its row
            result = spec.get_model_matrix(pd.DataFrame(frame), context=_FUNCTIONS)
    except FormulaicError as error:
        raise ValueError(f"formula {text!r}: {error}") from None
    state.update(result.model_spec.transform_state)
    made = pd.DataFrame(result)
    return made.drop(columns="Intercept") if constant else made


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {"dict": [[_plain(k), _plain(v)] for k, v in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, (np.floating, np.integer, np.bool_)):
        return value.item()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise ValueError(f"a transform's state of type {type(value).__name__} cannot be saved.")


def _restored(value: Any) -> Any:
    if isinstance(value, dict) and "dict" in value:
        return {_restored(k): _restored(v) for k, v in value["dict"]}
    if isinstance(value, dict) and "array" in value:
        return np.array(value["array"])
    return value
