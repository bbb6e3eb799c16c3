"""The state of a fit in one file, written atomically, exact and known by names."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray

FILE = "state.npz"
"""Its name in the folder."""
FORMAT = 1
"""Raised when older code could no longer read the files."""

Config = dict[str, Any]


@dataclass(frozen=True)
class State:
    """Everything that a fit goes on from."""

    config: Config
    """What must not change from start to start."""

    step: int
    """Steps done."""

    history: list[float]
    """Their losses."""

    arrays: Mapping[str, AnyNDArray]
    """Values of all variables of model and optimiser, by name."""

    epochs: Mapping[str, list[AnyNDArray]] = field(default_factory=dict)
    """Reports of the epochs that have ended, by name."""

    totals: list[AnyNDArray] = field(default_factory=list)
    """What metrics have added up in the epoch that has not."""

    places: list[bytes] = field(default_factory=list)
    """Where each worker goes on reading; one for all where they read the same."""


def pack(state: State) -> bytes:
    """The file's content."""
    header = {
        "format": FORMAT,
        "config": state.config,
        "names": list(state.arrays),
        "epochs": list(state.epochs),
        "totals": len(state.totals),
        "places": len(state.places),
    }
    arrays = {f"array {i}": value for i, value in enumerate(state.arrays.values())}
    arrays |= {f"epoch {i}": np.stack(value) for i, value in enumerate(state.epochs.values())}
    arrays |= {f"total {i}": value for i, value in enumerate(state.totals)}
    arrays |= {f"place {i}": np.frombuffer(p, np.uint8) for i, p in enumerate(state.places)}
    stream = io.BytesIO()
    np.savez(
        stream,
        header=np.frombuffer(json.dumps(header).encode(), np.uint8),
        step=np.array(state.step),
        history=np.array(state.history, dtype=np.float64),
        **arrays,
    )
    return stream.getvalue()


def unpack(content: bytes, folder: Path) -> State:
    """
    Undo :func:`pack`.

    :param folder: for messages.
    :raises ValueError: a damaged file, or one of a newer version.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            if header["format"] > FORMAT:
                raise _Newer
            return State(
                header["config"],
                int(archive["step"]),
                archive["history"].tolist(),
                {name: archive[f"array {i}"] for i, name in enumerate(header["names"])},
                {n: list(archive[f"epoch {i}"]) for i, n in enumerate(header.get("epochs", []))},
                [archive[f"total {i}"] for i in range(header.get("totals", 0))],
                [archive[f"place {i}"].tobytes() for i in range(header.get("places", 0))],
            )
    except _Newer:
        raise ValueError(
            f"checkpoint: {folder / FILE} was written by a newer gpflow_gam; upgrade it."
        ) from None
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"checkpoint: {folder / FILE} is damaged or no checkpoint ({error}); remove it to "
            "start anew."
        ) from error


def write(content: bytes, folder: Path) -> None:
    """Replace the file, in one move: a process that dies on the way leaves the old one."""
    part = folder / f"{FILE}.part"
    with open(part, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, folder / FILE)


def read(folder: Path) -> bytes:
    """The file's content; nothing where there is none yet."""
    try:
        return (folder / FILE).read_bytes()
    except FileNotFoundError:
        return b""


def check(saved: State, config: Config, shapes: Mapping[str, tuple[int, ...]], at: Path) -> None:
    """
    :param saved: state.
    :param config: of this fit.
    :param shapes: of its variables.
    :param at: folder, for messages.
    :raises ValueError: they are of another fit.
    """
    for name, here in config.items():
        there = saved.config.get(name)
        if there != here:
            raise ValueError(
                f"checkpoint: {at / FILE} was written by another fit: {_differs(name, there, here)}"
                ". Go on with what it was written with, or pass another folder."
            )
    for name, shape in shapes.items():
        found = saved.arrays[name].shape if name in saved.arrays else None
        if found != shape:
            raise ValueError(
                f"checkpoint: {at / FILE} was written by another fit: {name} has shape {found} "
                f"there, {shape} here. Build the model as it was, or pass another folder."
            )


def _differs(name: str, there: Any, here: Any) -> str:
    if name in ("data", "validation_data"):
        return f"its {name} were others"
    if name == "trained":
        only = sorted(set(there or ()) ^ set(here)) or ["their order"]
        return f"the trained parameters differ in {', '.join(only[:3])}"
    return f"{name} was {there}, now it is {here}"


class _Newer(Exception):
    """A file of a later format."""
