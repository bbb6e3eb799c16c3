"""A file with the state of a fit, from which the same fit goes on."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

from ... import archive
from ...errors import CheckpointWarning, warn_caller
from ...version import __version__
from .passes import Rows

FILE = "fit.state"
"""Its name in the folder."""
FORMAT = 1
"""Raised when older code could no longer read the files."""
_KIND = "gpflow_gam.optimizers.Checkpoint"
_SHARE = 0.05
"""Of the time of a fit that may go into writing."""

Sketch = Mapping[str, tuple[AnyNDArray, float]]
"""Sums that tell data and models apart, by what they are of, and up to which share they agree."""


@dataclasses.dataclass(frozen=True)
class Record:
    """Where a stage of a fit stands."""

    numbers: Mapping[str, Any]  # as JSON can hold them
    arrays: Mapping[str, AnyNDArray]  # by name


class Checkpoint:
    """
    A file that a fit writes its state to, and from which the same call goes on.

    It is replaced as a whole: a process that dies while it writes leaves the one from before. That
    of a fit which has ended stays, and the same call again ends at once. Where it cannot be
    written any more, a :class:`~gpflow_gam.errors.CheckpointWarning` says so, and the fit goes on.

    :param folder: of the file; made where there is none.
    :param save_every: seconds between two states, at least; they are also further apart than
        twenty times what writing takes. The last state is always written, also where Ctrl-C or a
        time budget ends the fit.
    :raises TypeError: ``folder`` is no path.
    :raises ValueError: ``save_every`` is negative.
    """

    def __init__(self, folder: str | os.PathLike[str], save_every: float = 60.0) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be the path of a folder; got {folder!r}.")
        if not save_every >= 0.0:
            raise ValueError(f"save_every must be seconds, not negative; got {save_every!r}.")
        self.folder = Path(folder)
        self.save_every = save_every
        self._stages: dict[str, Record] | None = None
        self._sketches: dict[str, dict[str, Any]] = {}
        self._fits = 0
        self._now: tuple[str, Callable[[], Record]] | None = None
        self._next = 0.0

    @classmethod
    def of(cls, value: str | os.PathLike[str] | Checkpoint | None) -> Checkpoint | None:
        """
        The checkpoint for one call of a fit.

        :param value: the path of a folder, or a checkpoint whose settings are taken.
        """
        if value is None:
            return None
        if isinstance(value, Checkpoint):
            return cls(value.folder, value.save_every)
        return cls(value)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    @property
    def path(self) -> Path:
        """Of the file."""
        return self.folder / FILE

    def begin(self) -> str:
        """A name for the next of the fits that follow each other in one call."""
        self._fits += 1
        return f"fit {self._fits}"

    def stage(self, name: str, sketch: Sketch) -> Record | None:
        """
        What is known of a stage that begins.

        :param name: the same in each start of the same fit.
        :param sketch: of what the stage is computed from.
        :return: where an earlier start left it; None where it has not been begun.
        :raises ValueError: the file is damaged, or is of another fit.
        :raises OSError: the file cannot be read or written.
        """
        if self._stages is None:
            self._stages = self._read()
        found = self._stages.get(name)
        if found is not None:
            self._check(self._sketches[name], sketch)
        self._sketches[name] = {
            what: {"sums": sums.tolist(), "tolerance": tolerance}
            for what, (sums, tolerance) in sketch.items()
        }
        if found is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write()  # so that a folder that cannot be written to is told at once
        self._next = time.monotonic() + self.save_every
        return found

    def knows(self, name: str) -> bool:
        """
        Whether an earlier start came as far as to this stage.

        :param name: of the stage.
        """
        if self._stages is None:
            self._stages = self._read()
        return name in self._stages

    def note(self, name: str, record: Callable[[], Record]) -> None:
        """
        Where a stage stands now, which is written where it is time.

        :param name: of the stage.
        :param record: makes what is written; what it reads must not change.
        """
        self._now = name, record
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write what was noted last."""
        if self._now is None or self._stages is None:
            return
        (name, record), self._now = self._now, None
        self._stages[name] = record()
        begun = time.monotonic()
        try:
            self._write()
        except OSError as error:
            warn_caller(
                f"checkpoint: {self.path} could not be written ({error}); the fit goes on, and "
                "what the file held before stays.",
                CheckpointWarning,
            )
        now = time.monotonic()
        self._next = now + max(self.save_every, (now - begun) / _SHARE)

    def _write(self) -> None:
        assert self._stages is not None
        header = {
            "kind": _KIND,
            "format": FORMAT,
            "version": __version__,
            "stages": {name: dict(r.numbers) for name, r in self._stages.items()},
            "sketches": self._sketches,
        }
        arrays = {
            f"{name}: {what}": array
            for name, r in self._stages.items()
            for what, array in r.arrays.items()
        }
        archive.write(self.path, header, arrays, overwrite=True, compressed=False)

    def _read(self) -> dict[str, Record]:
        if not self.path.exists():
            return {}
        try:
            header, arrays = archive.read(self.path, _KIND, FORMAT, "checkpoint")
            self._sketches = header["sketches"]
            found: dict[str, dict[str, AnyNDArray]] = {name: {} for name in header["stages"]}
            for key, array in arrays.items():
                name, _, what = key.partition(": ")
                found[name][what] = array
            return {name: Record(header["stages"][name], found[name]) for name in found}
        except (KeyError, AttributeError, TypeError) as error:
            raise ValueError(
                f"checkpoint: {self.path} is damaged ({error!r}); remove it to start anew."
            ) from error
        except ValueError as error:
            raise ValueError(f"checkpoint: {error} Remove it to start anew.") from error

    def _check(self, there: Mapping[str, Any], here: Sketch) -> None:
        """
        :raises ValueError: they are not of the same data and model.
        """
        for what in dict.fromkeys([*here, *there]):
            same = what in here and what in there
            if same:
                sums, tolerance = here[what]
                known = np.asarray(there[what]["sums"], dtype=np.float64)
                same = known.shape == sums.shape and bool(
                    np.all(np.abs(known - sums) <= tolerance * np.maximum(sums[..., -1:], 1e-300))
                )
            if not same:
                raise ValueError(
                    f"checkpoint: {self.path} was written by another fit: {what} differ. Go on "
                    "with the data and the model that it was written with, or pass another folder."
                )


_DATA = 1e-9
"""Up to which share of a column's sizes sums over rows are equal on other machines."""
_MODEL = 1e-6
"""The same of what is learnt from data before the fit: where k-means ends, or a null model."""
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def sketch_of(rows: Rows, start: AnyNDArray) -> Sketch:
    """
    Of the rows, the components and where a fit starts.

    Each column is known by its sum, a sum with a weight that differs from row to row, and the sum
    of its absolute values, to which rounding is compared.
    """
    columns = {"responses": rows.Y, "offsets": rows.mean, "inputs or weights": rows.X}
    found = {
        what: (_summed(values[at] for at in rows.blocks()), _DATA)
        for what, values in columns.items()
    }
    for i, c in enumerate(rows.components):
        codes = c.bins.codes
        found[f"values of component {i}"] = _summed(codes[at] for at in rows.blocks()), _DATA
        if c.multiplier is not None:
            by = c.multiplier
            found[f"multipliers of component {i}"] = _summed(by[at] for at in rows.blocks()), _DATA
        found[f"inducing inputs of component {i}"] = _summed([c.inducing]), _MODEL
    found["parameters at the start"] = _summed([start]), _MODEL
    return found


def _summed(blocks: Iterable[AnyNDArray]) -> AnyNDArray:
    """Sums over rows [N, ...] in blocks, [columns, 3]."""
    total, seen = np.zeros(()), 0
    for block in blocks:
        values = np.nan_to_num(np.asarray(block, np.float64)).reshape(len(block), -1)
        weights = np.modf(_GOLDEN * np.arange(seen, seen + len(values)))[0]
        sums = [values.sum(axis=0), weights @ values, np.abs(values).sum(axis=0)]
        total = total + np.stack(sums, axis=-1)
        seen += len(values)
    return total
