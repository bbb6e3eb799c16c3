"""GAMs in files: one archive of JSON and arrays, exact, versioned and written atomically."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ..models import IterNCGP
from ..newton.solvers import ActionPosteriorState
from ..optimizers import FitResult
from ..version import __version__
from . import families
from .components import Component
from .fits import FittedGAM, Specification, build_model
from .fits.whole import Whole
from .frames import Encoder, Fill
from .terms import terms_from_json

FORMAT = 1
"""Raised when older code could no longer read the files."""
_KIND = "gpflow_gam.GAM"


def save(fit: FittedGAM, options: dict[str, Any], path: Path, overwrite: bool) -> None:
    """
    Write ``fit``.

    :param options: of the GAM, as JSON.
    :raises FileExistsError: ``path`` is there and may not be replaced.
    :raises ValueError: a family that no file can hold.
    """
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} is there already; pass overwrite=True to replace it.")
    spec = fit.spec
    header = {
        "kind": _KIND,
        "format": FORMAT,
        "version": __version__,
        "options": options,
        "terms": spec.terms.to_json(),
        "family": spec.family.to_json(),
        "response": spec.response,
        "levels": None if spec.levels is None else list(spec.levels),
        "encoder": spec.encoder.to_json(),
        "components": [c.to_json() for c in spec.components],
        "scale": spec.scale,
        "constant": list(spec.constant),
        "offset": list(spec.offset),
        "weights": spec.weights,
        "trials": spec.trials,
        "variational": spec.variational,
        "fills": [dataclasses.asdict(fill) for fill in spec.fills],
        "dropped": fit.dropped,
        "result": {
            name: getattr(fit.result, name)
            for name in ("converged", "message", "elbo", "num_iterations", "seconds", "method")
        },
    }
    arrays = {"X": fit.X, "Y": fit.Y, "history": fit.result.history}
    if fit.whole is not None:
        header["whole"], own = fit.whole.to_arrays()
        arrays |= own
    arrays |= {f"variable {name}": v.numpy() for name, v in _variables(fit.model).items()}
    if isinstance(fit.model, IterNCGP):
        state = fit.model.state
        arrays |= {f"state {f.name}": getattr(state, f.name) for f in dataclasses.fields(state)}
    text = json.dumps(header, indent=1, allow_nan=True)
    # beside the target, so that the last step is a rename within one file system
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("gam.json", text)
                for i, array in enumerate(arrays.values()):
                    archive.writestr(f"{i}.npy", _bytes(array))
                archive.writestr("arrays.json", json.dumps(list(arrays)))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: Path, kernels: Mapping[str, Kernel]) -> tuple[FittedGAM, dict[str, Any]]:
    """
    Read what :func:`save` wrote.

    :return: the fit, and the options of the GAM.
    :raises FileNotFoundError: nothing there.
    :raises ValueError: a damaged or newer file, or another kind of file.
    """
    header, arrays = _read(path)
    spec = Specification(
        terms=terms_from_json(header["terms"], kernels),
        family=families.from_json(header["family"]),
        response=header["response"],
        levels=None if header["levels"] is None else tuple(header["levels"]),
        encoder=Encoder.from_json(header["encoder"]),
        components=tuple(Component.from_json(c) for c in header["components"]),
        scale=header["scale"],
        constant=tuple(header["constant"]),
        offset=tuple(header["offset"]),
        weights=header["weights"],
        trials=header["trials"],
        variational=header["variational"],
        fills=tuple(Fill(**fill) for fill in header["fills"]),
    )
    X, Y = arrays["X"], arrays["Y"]
    whole = Whole.from_arrays(header["whole"], arrays) if "whole" in header else None
    if whole is None:
        model = build_model(spec, X, Y)
    else:
        model = build_model(spec, X, whole.Y, whole.number)
    for name, variable in _variables(model).items():
        key = f"variable {name}"
        if key not in arrays:
            raise ValueError(f"{path} is damaged: it lacks the parameter {name}.")
        if arrays[key].shape != tuple(variable.shape):
            raise ValueError(
                f"{path} does not fit: {name} is {arrays[key].shape} there, {variable.shape} here; "
                "was it saved with another kernel?"
            )
        variable.assign(arrays[key])
    if isinstance(model, IterNCGP):
        names = [f.name for f in dataclasses.fields(ActionPosteriorState)]
        missing = [name for name in names if f"state {name}" not in arrays]
        if missing:
            raise ValueError(f"{path} is damaged: it lacks the posterior's {missing[0]}.")
        state = {name: tf.constant(arrays[f"state {name}"]) for name in names}
        model.accept(ActionPosteriorState(**state))
    result = FitResult(**header["result"], history=arrays["history"])
    fit = FittedGAM(spec, model, X, Y, result, header["dropped"], whole=whole)
    return fit, header["options"]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("gam.json"))
            if not isinstance(header, dict) or header.get("kind") != _KIND:
                raise KeyError("kind")
            if header["format"] > FORMAT:
                raise _Newer(
                    f"{path} was written by gpflow_gam {header['version']} in format "
                    f"{header['format']}; this version reads up to {FORMAT}. Upgrade gpflow_gam."
                )
            names = json.loads(archive.read("arrays.json"))
            arrays = {
                name: np.load(io.BytesIO(archive.read(f"{i}.npy")), allow_pickle=False)
                for i, name in enumerate(names)
            }
    except _Newer as error:
        raise ValueError(str(error)) from None
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged, or is no saved GAM ({error}).") from error
    return header, arrays


class _Newer(Exception):
    """A file of a later format."""


def _bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def _variables(model: tf.Module) -> dict[str, tf.Variable]:
    """Every variable by its path: unconstrained values, which no transform rounds."""
    from gpflow.utilities import parameter_dict

    return {
        path: p.unconstrained_variable if hasattr(p, "unconstrained_variable") else p
        for path, p in parameter_dict(model).items()
    }
