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

FILE = "fit.state"  # name of the file in the folder
FORMAT = 1  # version of the file format; code reads no newer one
_KIND = "gpflow_gam.optimizers.Checkpoint"
_SHARE = 0.05  # largest share of a fit's time for writing

Fingerprint = Mapping[str, tuple[AnyNDArray, float]]  # sums by name, and tolerances


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The state of a stage of a fit."""

    numbers: Mapping[str, Any]  # and other JSON
    arrays: dict[str, AnyNDArray]


class Checkpoint:
    """
    A file with the state of a fit, from which the same call goes on.

    The file is replaced as a whole, so that a process which dies while it writes leaves the one
    before. It stays after the fit, and the same call again ends at once. If it cannot be written, a
    :class:`~gpflow_gam.errors.CheckpointWarning` says so, and the fit goes on.

    :param folder: of the file; created if it does not exist.
    :param save_every: least number of seconds between two states, which are also further apart than
        twenty times what writing takes. The last state is always written, also if Ctrl-C or a time
        budget ends the fit.
    :raises TypeError: ``folder`` is no path.
    :raises ValueError: ``save_every`` is negative.
    """

    def __init__(self, folder: str | os.PathLike[str], save_every: float = 60.0) -> None:
        if not save_every >= 0.0:
            raise ValueError(f"save_every must be seconds, not negative; got {save_every!r}.")
        self.folder = Path(folder)
        self.save_every = save_every
        self._model = ""
        self._stages: dict[str, Snapshot] | None = None
        self._fingerprints: dict[str, dict[str, Any]] = {}
        self._fits = 0
        self._now: tuple[str, Callable[[], Snapshot]] | None = None
        self._next = 0.0

    @classmethod
    def of(cls, value: str | os.PathLike[str] | Checkpoint, model: str) -> Checkpoint:
        """The checkpoint for one call of a fit of a model, in words; settings are copied."""
        given = value if isinstance(value, Checkpoint) else cls(value)
        result = cls(given.folder, given.save_every)
        result._model = model
        return result

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.folder / FILE

    def begin(self) -> str:
        """A name for the next fit of one call."""
        self._fits += 1
        return f"fit {self._fits}"

    def stage(self, name: str, fingerprint: Fingerprint) -> Snapshot | None:
        """Begin a stage: the state that an earlier run left of it; None if it had not begun."""
        if self._stages is None:
            self._stages = self._read()
        words = np.frombuffer(self._model.encode(), np.uint8)
        fingerprint = {**fingerprint, "terms or family": (_summed([words]), _DATA)}
        snapshot = self._stages.get(name)
        if snapshot is not None:
            self._check(self._fingerprints[name], fingerprint)
        self._fingerprints[name] = {
            what: {"sums": sums.tolist(), "tolerance": tolerance}
            for what, (sums, tolerance) in fingerprint.items()
        }
        if snapshot is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write()  # fails at once in a folder that cannot be written to
        self._next = time.monotonic() + self.save_every
        return snapshot

    def knows(self, name: str) -> bool:
        """True if an earlier run had begun the stage."""
        if self._stages is None:
            self._stages = self._read()
        return name in self._stages

    def record(self, name: str, make: Callable[[], Snapshot]) -> None:
        """Take the present state of a stage, which is made and written when it is time."""
        self._now = name, make
        if time.monotonic() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write the state that was recorded last."""
        if self._now is None or self._stages is None:
            return
        (name, make), self._now = self._now, None
        self._stages[name] = make()
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
            "stages": {name: dict(s.numbers) for name, s in self._stages.items()},
            "fingerprints": self._fingerprints,
        }
        arrays = {
            f"{name}: {what}": array
            for name, s in self._stages.items()
            for what, array in s.arrays.items()
        }
        archive.write(self.path, header, arrays, overwrite=True, compressed=False)

    def _read(self) -> dict[str, Snapshot]:
        if not self.path.exists():
            return {}
        try:
            header, arrays = archive.read(self.path, _KIND, FORMAT, "checkpoint")
            self._fingerprints = header["fingerprints"]
            stages = {name: Snapshot(numbers, {}) for name, numbers in header["stages"].items()}
            for key, array in arrays.items():
                name, _, what = key.partition(": ")
                stages[name].arrays[what] = array
            return stages
        except (KeyError, AttributeError, TypeError) as error:
            raise ValueError(
                f"checkpoint: {self.path} is damaged ({error!r}); remove it to start anew."
            ) from error
        except ValueError as error:
            raise ValueError(f"checkpoint: {error} Remove it to start anew.") from error

    def _check(self, there: Mapping[str, Any], here: Fingerprint) -> None:
        """Raise ValueError if fingerprints differ."""
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


_DATA = 1e-9  # tolerance of sums on other machines, relative to a column's absolute values
_MODEL = 1e-6  # the same of what is learnt before the fit, by k-means or a null model
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def fingerprint(rows: Rows, start: AnyNDArray) -> Fingerprint:
    """Sums that identify the rows, the components and the start of a fit."""
    columns = {"responses": rows.Y, "offsets": rows.mean, "inputs or weights": rows.X}
    sums = {
        what: (_summed(values[at] for at in rows.blocks()), _DATA)
        for what, values in columns.items()
    }
    for i, c in enumerate(rows.components):
        codes = c.bins.codes
        sums[f"values of component {i}"] = _summed(codes[at] for at in rows.blocks()), _DATA
        if c.multiplier is not None:
            by = c.multiplier
            sums[f"multipliers of component {i}"] = _summed(by[at] for at in rows.blocks()), _DATA
        sums[f"inducing inputs of component {i}"] = _summed([c.inducing]), _MODEL
    sums["parameters at the start"] = _summed([start]), _MODEL
    return sums


def _summed(blocks: Iterable[AnyNDArray]) -> AnyNDArray:
    """Sums over rows [N, ...] in blocks, [columns, 3]."""
    total, start = np.zeros(()), 0
    for block in blocks:
        values = np.nan_to_num(np.asarray(block, np.float64))
        values = values.reshape(len(values), int(np.prod(values.shape[1:])))  # of no rows, too
        weights = np.modf(_GOLDEN * np.arange(start, start + len(values)))[0]
        sums = [values.sum(axis=0), weights @ values, np.abs(values).sum(axis=0)]
        total = total + np.stack(sums, axis=-1)
        start += len(values)
    return total
