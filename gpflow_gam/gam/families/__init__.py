"""Families: distributions of a GAM's response, by name and from JSON."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from gpflow.likelihoods import Likelihood

from .base import FAMILIES, Family, Levels
from .continuous import (
    CensoredGaussian,
    Cox,
    Gamma,
    Gaussian,
    Heteroskedastic,
    LogNormal,
    Quantile,
    StudentT,
    Survival,
    Tweedie,
    Weibull,
)
from .custom import Custom
from .discrete import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    HurdleNegativeBinomial,
    HurdlePoisson,
    NegativeBinomial,
    Ordinal,
    Poisson,
    QuasiBinomial,
    QuasiPoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "CensoredGaussian",
    "Cox",
    "Custom",
    "Family",
    "Gamma",
    "Gaussian",
    "Heteroskedastic",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "Levels",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Quantile",
    "QuasiBinomial",
    "QuasiPoisson",
    "StudentT",
    "Survival",
    "Tweedie",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "family",
    "from_json",
]


_ALIASES = {"nb": "negative_binomial", "softmax": "categorical"}


def family(spec: Family | str | Likelihood) -> Family:
    """
    The family that ``spec`` means.

    :param spec: a family, the name of one ("poisson"), or any GPflow likelihood.
    :raises ValueError: an unknown name, with the nearest one.
    :raises TypeError: anything else.
    """
    if isinstance(spec, Family):
        return spec
    if isinstance(spec, Likelihood):
        return Custom(spec)
    if not isinstance(spec, str):
        raise TypeError(
            "family must be a name, a gpflow_gam family or a gpflow likelihood; got "
            f"{type(spec).__name__}."
        )
    return _class(spec)()


def from_json(data: Mapping[str, Any]) -> Family:
    """Read a family that :meth:`Family.to_json` wrote; raises ValueError if it is unknown."""
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise ValueError(f"family must be a mapping with a 'name'; got {data!r}.")
    cls = _class(data["name"])
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "name"}
    known = [f.name for f in dataclasses.fields(cls)]
    for option in options:
        if option not in known:
            raise ValueError(
                f"family {cls.name!r} has no option {option!r}; it has "
                f"{', '.join(map(repr, known)) or 'none'}."
            )
    return cls(**options)


def _class(name: str) -> type[Family]:
    key = name.strip().lower().replace("-", "_").replace(" ", "_")
    key = _ALIASES.get(key, key)
    if key in FAMILIES:
        return FAMILIES[key]
    near = difflib.get_close_matches(key, [*FAMILIES, *_ALIASES], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"family {name!r} is unknown; there are {', '.join(FAMILIES)}.{hint}")
