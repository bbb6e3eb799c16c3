"""The state of a fit in one file, written atomically, exact and known by names."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
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


def pack(state: State) -> bytes:
    """The file's content."""
    header = {"format": FORMAT, "config": state.config, "names": list(state.arrays)}
    arrays = {f"array {i}": value for i, value in enumerate(state.arrays.values())}
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
    if name == "data":
        return "its data were others"
    if name == "trained":
        only = sorted(set(there or ()) ^ set(here)) or ["their order"]
        return f"the trained parameters differ in {', '.join(only[:3])}"
    return f"{name} was {there}, now it is {here}"


class _Newer(Exception):
    """A file of a later format."""
