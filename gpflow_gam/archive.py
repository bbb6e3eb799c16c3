"""One file of JSON and arrays: checked when it is read, and written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

Arrays = Mapping[str, Any]
_HEADER, _NAMES, _SUMS = "gam.json", "arrays.json", "checksums.json"


def writable(path: str | Path, overwrite: bool) -> Path:
    """Where a file is written that a user asks for, links followed, once nothing is against it."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "a device, not a file"
        raise ValueError(f"path: {path} is {kind}; pass the path of a file.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already; pass overwrite=True to replace it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: there is no folder {target.parent}; make it first.")
    return target


def write(
    path: Path, header: Mapping[str, Any], arrays: Arrays, overwrite: bool, compressed: bool = True
) -> None:
    """Write an archive; links are followed, and a file that is replaced keeps its mode."""
    target = writable(path, overwrite)
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with replacing(target) as stream, zipfile.ZipFile(stream, "w", method) as out:
        sums = {}

        def put(name: str, content: bytes) -> None:
            out.writestr(name, content)
            sums[name] = hashlib.sha256(content).hexdigest()

        put(_HEADER, json.dumps(header, indent=1, allow_nan=True).encode())
        for i, array in enumerate(arrays.values()):
            put(f"{i}.npy", _bytes(array))
        put(_NAMES, json.dumps(list(arrays)).encode())
        out.writestr(_SUMS, json.dumps(sums))


def read(
    path: Path, kind: str, latest: int, called: str = "saved GAM", content: bytes | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and arrays of an archive; ValueError of a damaged one, or of another kind."""
    if content is None and not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        with zipfile.ZipFile(path if content is None else io.BytesIO(content)) as archive:
            header = json.loads(archive.read(_HEADER))
            if header["kind"] != kind:
                raise ValueError(f"it holds a {header['kind']}")
            arrays = _arrays(archive) if header["format"] <= latest else None
    except Exception as error:  # readers of damaged files raise all kinds
        why = str(error) or type(error).__name__
        raise ValueError(f"{path} is damaged, or is no {called} ({why}).") from error
    if arrays is None:
        raise ValueError(
            f"{path} was written by gpflow_gam {header['version']} in format {header['format']}; "
            f"this version reads up to {latest}. Upgrade gpflow_gam."
        )
    return header, arrays


def _arrays(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The arrays of an archive in which nothing is another than what was written."""
    sums = json.loads(archive.read(_SUMS))

    def checked(name: str) -> bytes:
        part = archive.read(name)
        if hashlib.sha256(part).hexdigest() != sums[name]:
            raise ValueError(f"{name} is not what was written")
        return part

    checked(_HEADER)
    return {
        name: np.load(io.BytesIO(checked(f"{i}.npy")), allow_pickle=False)
        for i, name in enumerate(json.loads(checked(_NAMES)))
    }


def _bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


@contextlib.contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Where to make a folder, which takes the place of ``target`` where all went well."""
    # beside the target, so that the last step is a rename within one file system
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        new, old = Path(folder) / "new", Path(folder) / "old"
        yield new
        if target.exists():
            os.rename(target, old)
        try:
            os.rename(new, target)
        except BaseException:
            if old.exists():
                os.rename(old, target)
            raise


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A stream to a file beside ``target``, which takes its place where all went well."""
    # in the same file system, and with the mode of new files, which tempfile does not give
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.saving")
    try:
        with open(temporary, "x+b") as stream:
            yield stream
            stream.flush()
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
