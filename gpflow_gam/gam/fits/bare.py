"""Fitted GAMs without their data: what predictions and effects need, and nothing a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from ...models import AdditiveSVGP, IterNCGP
from ...optimizers import Solution, assign_posterior
from ...optimizers.binned.evidence import Evidence, Places
from ..families import Described
from .build import build_model
from .fitted import FittedGAM
from .specification import Specification
from .sums import Parts, solution_from_parts

_GONE = (
    "this GAM was loaded from a file without its data (save(data=False)), and what was asked for "
    "needs them; load a file that holds them, or fit again."
)


class LeftOut:
    """Stands where data would be; whatever is asked of it is an error that says so."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(_GONE)

    __len__ = __iter__ = __getitem__ = __array__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for
            raise AttributeError(name)
        raise ValueError(_GONE)

    def __reduce__(self) -> Any:
        return LeftOut, ()


@dataclasses.dataclass(frozen=True)
class SummedComponent:
    """
    A component of rows that are left out.

    :param kernel: of the component.
    :param places: where the evidence evaluates it.
    """

    kernel: Kernel
    places: Places


class SummedRows(LeftOut):
    """
    Rows of which sums are left.

    :param components: in the kernel's order.
    """

    def __init__(self, components: list[SummedComponent]) -> None:
        self.components = components

    def evidence(self, jitter: float) -> Evidence:
        """The evidence of pseudo-data at these components."""
        return Evidence([c.places for c in self.components], jitter)


@dataclasses.dataclass(frozen=True, eq=False)
class BareGAM(FittedGAM):
    """
    A fitted GAM without its data.

    :param count: how many rows the fit was to.
    :param offset: the known part of the predictor, offsets at their mean, [L].
    :param deviances: the deviance at the posterior mean and the null model's.
    :param described: what families ask of a response.
    """

    count: int = 0
    offset: AnyNDArray = dataclasses.field(default_factory=lambda: np.zeros(0))
    deviances: tuple[float, float] | None = None
    described: Described | None = None

    @property
    def number(self) -> int:
        return self.count

    @property
    def has_data(self) -> bool:
        return False

    def mean_offset(self) -> AnyNDArray:
        return self.offset

    def deviance(self) -> tuple[float, float] | None:
        return self.deviances


def bare(fit: FittedGAM) -> tuple[dict[str, Any], dict[str, AnyNDArray]]:
    """
    What there is to a fit but its data, as JSON can hold it, and arrays.

    :param fit: a fitted GAM.
    :raises ValueError: the engine predicts by way of the data.
    """
    if isinstance(fit.model, IterNCGP):
        raise ValueError(
            "data=False: the posterior of engine='iterncgp' is a function of the training rows; "
            "leave the argument out, or fit with engine='variational'."
        )
    if isinstance(fit, BareGAM):
        described = fit.described
    else:
        described = Described.of(fit.Y if fit.whole is None else fit.whole.Y, fit.spec.levels)
    assert described is not None
    header = {
        "count": fit.number,
        "offset": fit.mean_offset().tolist(),
        "deviances": fit.deviance(),
        "response": dataclasses.asdict(described),
    }
    if fit.solution is None:
        return header, {}
    places = [c.places for c in fit.solution.rows.components]
    header["nodes"] = [p.nodes for p in places]
    return header, {f"places {i}": p.points for i, p in enumerate(places)}


def from_bare(
    spec: Specification,
    header: dict[str, Any],
    arrays: dict[str, AnyNDArray],
    stored: Parts | None,
    assign: Callable[[AdditiveSVGP], None],
    **known: Any,
) -> BareGAM:
    """
    What :func:`bare` gave.

    :param spec: what settles a fit but its numbers.
    :param header: what JSON held.
    :param arrays: by name.
    :param stored: the solution.
    :param assign: gives the model the values of its variables.
    :param known: other fields of the fit.
    """
    response = header["response"]
    described = Described(
        tuple(response["moments"]),
        tuple(response["counts"]),
        response.get("width"),
        response.get("centre"),
    )
    model = build_model(spec, np.zeros((0, spec.encoder.width)), described, header["count"])
    assert isinstance(model, AdditiveSVGP)
    assign(model)
    solution: Solution | None = None
    if "nodes" in header:
        parts = []
        for i, component in enumerate(spec.components):
            kernel, points = model.kernel[component.name], arrays[f"places {i}"]
            nodes = header["nodes"][i]
            Z = np.array(component.inducing).reshape(len(component.inducing), -1)
            full = component.full(Z, spec.encoder.width)
            places = Places.of(kernel, full, points[:nodes], points[nodes:])
            parts.append(SummedComponent(kernel, places))
        assert stored is not None
        solution = solution_from_parts(stored, model, SummedRows(parts))  # type: ignore[arg-type]
        if spec.variational == "exact":
            assign_posterior(model, solution.q)
    deviances = header["deviances"]
    return BareGAM(
        spec,
        model,
        LeftOut(),  # type: ignore[arg-type]
        LeftOut(),  # type: ignore[arg-type]
        _solution=solution,
        count=header["count"],
        offset=np.array(header["offset"]),
        deviances=None if deviances is None else tuple(deviances),
        described=described,
        **known,
    )
