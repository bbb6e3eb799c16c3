"""GAMs as JSON and arrays: exact and versioned, in files and in pickles."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import parameter_dict, set_trainable

from .. import archive
from ..bijectors import by_path
from ..kernels import AdditiveKernel
from ..models import AdditiveSGPR, IterNCGP
from ..newton.problem import ActionPosteriorState
from ..optimizers import FitResult, assign_posterior
from ..optimizers.binned.evidence import Places
from ..version import __version__
from . import families
from .components.kernels import LogNormal, VariancePriors
from .components.plan import Component
from .families import Cox, Custom, Family
from .families.encoding import Described
from .fits import FittedGAM, Specification
from .fits.data import CodedData, Data, Discrepancies, HeldData, MissingData, MissingRows
from .fits.fit import build_model
from .fits.fitted import Parts, solution_from_parts, solution_to_parts
from .fits.specification import Request
from .frames.encoding import Design, Encoder, Fill, level_to_json, value_from_json
from .terms import Surv, Terms
from .terms.base import column_from_json, column_to_json
from .terms.formula import terms_from_json

FORMAT = 1  # raised when older code could no longer read the files
_KIND = "gpflow_gam.GAM"
_RESULT = (
    "converged", "message", "elbo", "num_iterations", "seconds", "method", "sweeps",
    "discretisation", "interpolation", "interpolation_by", "interpolation_shift", "ended",
)  # fmt: skip


_NAMES = {"null_offset": "away", "information": "null_information", "refined": "fine"}
"""What files call fields of a specification by other names."""
_OPTIONAL = ("ar1", "design", *_NAMES)  # left out if they are empty
_FIELDS = (
    "encoder", "components", "scale", "constant", "offset", "weights", "trials", "variational",
    "fills", *_OPTIONAL,
)  # fmt: skip
_READERS: dict[str, Callable[[Any], Any]] = {
    "encoder": Encoder.from_json,
    "components": Component.from_json,
    "fills": Fill.from_json,
    "design": Design.from_json,
}


def _to_json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    return [*map(_to_json, value)] if isinstance(value, tuple) else column_to_json(value)


def _from_json(field: str, value: Any) -> Any:
    read = _READERS.get(field, column_from_json)
    several = isinstance(value, list) and field != "encoder"
    return tuple(map(read, value)) if several else read(value)


def save(fit: FittedGAM, options: dict[str, Any], path: Path, overwrite: bool, data: bool) -> None:
    """Write ``fit``."""
    header, arrays = parts(fit, data)
    header |= {
        "kind": _KIND,
        "format": FORMAT,
        "version": __version__,
        "options": options,
        "terms": fit.spec.terms.to_json(),
        "family": _family_to_json(fit.spec.family),
    }
    archive.write(path, header, arrays, overwrite)


def _family_to_json(family: Family) -> dict[str, Any]:
    """A family as JSON; of a user's likelihood its class's name, as no file holds its code."""
    if isinstance(family, Custom):
        return {"name": family.name, "likelihood": family.class_name}
    return family.to_json()


def _family_from_json(data: Any, likelihood: Likelihood | None) -> Family:
    """The family of a file; a likelihood of the user's has to be passed, made as it was."""
    stated = data.get("likelihood") if isinstance(data, Mapping) else None
    if stated is None:
        if likelihood is not None:
            raise ValueError(
                f"likelihood: the file is of family {data['name']!r}, which needs none; leave the "
                "argument out."
            )
        return families.from_json(data)
    if likelihood is None:
        raise ValueError(
            f"likelihood: the GAM was fitted with {stated}, and no file holds code; pass "
            f"likelihood={str(stated).rsplit('.', 1)[-1]}(...), made as it was then. Its "
            "parameters are in the file."
        )
    family = Custom(likelihood)
    if family.class_name != stated:
        raise ValueError(
            f"likelihood must be the {stated} that the GAM was fitted with; got "
            f"{family.class_name}."
        )
    return family


def load(
    path: Path, kernels: Mapping[str, Kernel], likelihood: Likelihood | None = None
) -> tuple[FittedGAM, dict[str, Any]]:
    """Read what :func:`save` wrote."""
    header, arrays = archive.read(path, _KIND, FORMAT)
    with _lacking(path):
        options = dict(header["options"])
        family = _family_from_json(header["family"], likelihood)
        terms = terms_from_json(header["terms"], kernels)
    return from_parts(header, arrays, terms, family, str(path)), options


def parts(fit: FittedGAM, data: bool) -> Parts:
    """A fit but for its terms and family."""
    spec = fit.spec
    if data and not fit.data.available:
        raise ValueError(
            "this GAM has no data: it was loaded from a file without; pass data=False."
        )
    header: dict[str, Any] = {
        "response": spec.response if spec.censoring is None else spec.censoring.to_json(),
        "levels": spec.levels and [level_to_json(level, spec.response) for level in spec.levels],
        "priors": spec.priors.to_json(),
        "dropped": fit.dropped,
        "result": {name: getattr(fit.result, name) for name in _RESULT},
    }
    for field in _FIELDS:
        value = getattr(spec, field)
        empty = value is None if field == "ar1" else not value  # a column may be called 0
        if field not in _OPTIONAL or not empty:
            header[_NAMES.get(field, field)] = _to_json(value)
    arrays: dict[str, Any] = {"history": fit.result.history}
    own: dict[str, Any] = {"X": fit.X, "Y": fit.Y} if data else {}
    if not data:
        header["bare"], own = _without_data(fit)
    elif isinstance(fit.data, CodedData):
        header["whole"], rest = fit.data.to_arrays()
        own |= rest
    arrays |= own
    if fit.solution is not None:
        assert not isinstance(fit.model, IterNCGP)
        header["solution"], own = solution_to_parts(fit.solution, fit.model, alone=not data)
        arrays |= own
    header["held"], held = [], _held(fit.model)
    for path, variable in by_path(fit.model).items():
        name = path
        if not data and spec.weights is not None and isinstance(fit.model, AdditiveSGPR):
            # as the model without data has it, whose likelihood knows the weights
            name = path.replace(".likelihood.", ".likelihood.base.", 1)
        arrays[f"variable {name}"] = variable.numpy()
        if path in held:
            header["held"].append(name)
    if fit.users_copy is not None:
        known = {path: v.numpy() for path, v in by_path(fit.model).items()}
        users = {path: v.numpy() for path, v in by_path(fit.users_copy).items()}
        moved = [k for k in known if k in users and np.any(known[k] != users[k])]
        if moved or held != _held(fit.users_copy):
            header["user's"] = {"held": sorted(_held(fit.users_copy)), "moved": moved}
            arrays |= {f"user's {path}": users[path] for path in moved}
    if isinstance(fit.model, IterNCGP):
        state = fit.model.state
        arrays |= {
            f"state {f.name}": np.asarray(getattr(state, f.name)) for f in dataclasses.fields(state)
        }
    return header, arrays


def from_parts(
    header: dict[str, Any], arrays: dict[str, Any], terms: Terms, family: Family, where: str
) -> FittedGAM:
    """Read a fit that :func:`parts` gave."""
    with _lacking(where):
        levels, response = header["levels"], header["response"]
        response = Surv(**response) if isinstance(response, dict) else response
        names = {f: _NAMES.get(f, f) for f in _FIELDS}
        fields = {
            field: _from_json(field, header[name])
            for field, name in names.items()
            if name in header or field not in _OPTIONAL
        }
        spec = Specification(
            **(vars(Request.of(response, family, terms=terms)) | fields),
            levels=levels and tuple(map(value_from_json, levels)),
            priors=_priors(header, terms.select),
        )
        result = FitResult(**header["result"], history=arrays["history"])
        data = _data_from_parts(spec, header, arrays)
        stored = (header["solution"], arrays) if "solution" in header else None
        dropped = header["dropped"]
    model = build_model(spec, data)
    gone = isinstance(data, MissingData)
    # of Gaussian data q is no variable, but a function of sums
    _assign(model, arrays, where, ".variational" if gone and spec.variational == "exact" else None)
    for path, parameter in parameter_dict(model).items():
        if path in header.get("held", ()):
            set_trainable(parameter, False)
    if isinstance(model, IterNCGP):
        with _lacking(where):
            known = (f.name for f in dataclasses.fields(ActionPosteriorState))
            state = {name: tf.constant(arrays[f"state {name}"]) for name in known}
        model.accept(ActionPosteriorState(**state))
    solution = None
    if gone and stored is not None:
        with _lacking(where):
            assert not isinstance(model, IterNCGP)
            places = _places(spec, model.kernel, header["bare"]["nodes"], arrays)
            solution = solution_from_parts(stored, model, MissingRows(places))
            if spec.variational == "exact":
                assign_posterior(model, solution.q)
    fit = FittedGAM(spec, model, data, result, dropped, solution, None if gone else stored)
    if "user's" in header:
        with _lacking(where):
            variables, changed = by_path(fit.users_model), header["user's"]
            for path in changed["moved"]:
                variables[path].assign(arrays[f"user's {path}"])
            for path, parameter in parameter_dict(fit.users_model).items():
                if path.startswith(_PARTS):
                    set_trainable(parameter, path not in changed["held"])
    return fit


def _data_from_parts(spec: Specification, header: dict[str, Any], arrays: dict[str, Any]) -> Data:
    if "whole" in header:
        return CodedData.from_arrays(header["whole"], arrays)
    if "bare" not in header:
        return HeldData.of(arrays["X"], arrays["Y"], spec.encoder, spec.weights)
    bare = header["bare"]
    given: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in bare["response"].items()
    }
    deviances = bare["deviances"] and tuple(bare["deviances"])
    return MissingData(
        bare["count"],
        offset=np.array(bare["offset"]),
        discrepancies=Discrepancies(deviances, None),
        starts=arrays.get("starts"),
        response=Described(**given),
    )


def _without_data(fit: FittedGAM) -> Parts:
    """Numbers that predictions and effects need in place of the data."""
    if isinstance(fit.model, IterNCGP):
        raise ValueError(
            "data=False: the posterior of engine='iterncgp' is a function of the training rows; "
            "leave the argument out, or fit with engine='variational'."
        )
    described = fit.data.response or Described.of(fit.data.responses, fit.spec.levels)
    header = {
        "count": fit.number,
        "offset": fit.mean_offset().tolist(),
        "deviances": fit.deviance(),
        "response": dataclasses.asdict(described),
    }
    arrays = {}
    if isinstance(fit.spec.family, Cox) and (starts := fit.starts()) is not None:
        arrays["starts"] = starts
    if fit.solution is not None:
        places = [c.places for c in fit.solution.rows.components]
        header["nodes"] = [p.nodes for p in places]
        arrays |= {f"places {i}": p.points for i, p in enumerate(places)}
    return header, arrays


def _places(
    spec: Specification, kernel: AdditiveKernel, nodes: list[int], arrays: dict[str, Any]
) -> list[tuple[Kernel, Places]]:
    """Points at which the evidence evaluates components, as :func:`_without_data` gave them."""
    places = []
    for i, (component, number) in enumerate(zip(spec.components, nodes)):
        points = arrays[f"places {i}"]
        Z = np.array(component.inducing).reshape(len(component.inducing), -1)
        full, k = component.full(Z, spec.encoder.width), kernel[component.name]
        places.append((k, Places.of(k, full, points[:number], points[number:])))
    return places


def _priors(header: Mapping[str, Any], select: bool) -> VariancePriors:
    """The variance priors that a fit had: hyperparameters are drawn with them."""
    known = header.get("priors")
    if known is not None:
        return VariancePriors.from_json(known)
    # files of 0.1.0 have log-normal priors, by the information of their data
    least = 1.0 / max(header["information"], 1e-300)
    mode = min(0.01 * least, 1e-3) if select else min(3.0 * least, 0.1)
    trend = LogNormal(12.0 * mode, 10.0, 2.0) if select else LogNormal(0.03, 3.0, 2.0)
    smooth, other = LogNormal(mode, 10.0 if select else 3.0, 2.0), LogNormal(2.0, 1.0, 2.0)
    return VariancePriors(trend, smooth, trend, smooth, other, other)


@contextlib.contextmanager
def _lacking(where: object) -> Iterator[None]:
    """Says of a file that it lacks something, where something is looked up in what it holds."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        what = error.args[0] if error.args else type(error).__name__
        raise ValueError(f"{where} is damaged: it lacks {what}.") from error


def _assign(
    model: tf.Module, arrays: Mapping[str, Any], where: str, skipped: str | None = None
) -> None:
    for name, variable in by_path(model).items():
        if skipped is not None and name.startswith(skipped):
            continue
        key = f"variable {name}"
        if key not in arrays:
            raise ValueError(f"{where} is damaged: it lacks the parameter {name}.")
        if arrays[key].shape != tuple(variable.shape):
            raise ValueError(
                f"{where} does not fit: {name} is {arrays[key].shape} there, {variable.shape} "
                "here; was it saved with another kernel?"
            )
        variable.assign(arrays[key])


_PARTS = (".kernel", ".likelihood")


def _held(model: tf.Module) -> set[str]:
    """Paths of the parameters of kernel and likelihood that are not learnt."""
    every = parameter_dict(model).items()
    return {path for path, p in every if path.startswith(_PARTS) and not p.trainable}
