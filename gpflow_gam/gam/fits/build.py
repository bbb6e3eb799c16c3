"""From a specification to a GPflow model."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray, Parameter
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy

from ...bijectors import exponential
from ...likelihoods import Weighted
from ...models import AdditiveSGPR, AdditiveSVGP, IterNCGP
from ...storage import RowArray
from ...variational import (
    BlockPrecision,
    CoupledCovariance,
    CoupledPrecision,
    MeanField,
    OptimalPrecision,
    VariationalFamily,
)
from ..components import build_inducing, build_kernel
from ..families import Described, Family
from .mean import OffsetMean
from .specification import Specification

Model = AdditiveSGPR | AdditiveSVGP | IterNCGP

ENGINES = ("variational", "iterncgp")
"""How the posterior is found."""

MAX_SITES = 5000
"""
Inducing values up to which q is kept dense, as sites: six minutes and five gigabytes at 4200.

Blocks are far behind in the same time, in more memory, wherever both were measured.
"""
VARIATIONAL: dict[str, type[VariationalFamily]] = {
    "sites": OptimalPrecision,
    "block": BlockPrecision,
    "mean_field": MeanField,
    "covariance": CoupledCovariance,
    "precision": CoupledPrecision,
}
"""What ``variational`` may be called."""


def choose_variational(
    family: Family,
    size: int,
    asked: str | None,
    engine: str = "variational",
    shaped: str = "",
) -> str:
    """
    The family of q(U): collapsed for Gaussian data, sites up to 5000 values, block precision.

    The other engine has none, and its name stands here.

    :param family: the response's.
    :param size: P, the inducing values in all.
    :param asked: the user's choice.
    :param engine: of :data:`ENGINES`.
    :param shaped: a term that has a shape; empty where none has.
    :raises ValueError: an unknown choice, or one that knows no shapes.
    """
    if shaped:
        _check_shapes(asked, engine, shaped)
    if engine == "iterncgp":
        if asked is not None:
            raise ValueError(
                f"variational={asked!r} is of engine='variational'; leave one of the two out."
            )
        return engine
    if asked is not None:
        known = ("exact", *VARIATIONAL)
        if asked not in known:
            raise ValueError(f"variational must be one of {', '.join(known)}; got {asked!r}.")
        if asked == "exact" and not family.conjugate:
            raise ValueError("variational='exact' is for family='gaussian'; use 'sites'.")
        return asked
    if family.conjugate:
        return "exact"
    if shaped and size > MAX_SITES:
        raise ValueError(
            f"{shaped} has a shape, for which q is kept dense: {size} inducing values are more "
            f"than {MAX_SITES}; give terms a smaller k, or leave shape out."
        )
    return "sites" if size <= MAX_SITES else "block"


def _check_shapes(asked: str | None, engine: str, shaped: str) -> None:
    """
    Check that a term with a shape is fitted in a way that holds to it.

    :raises ValueError: it is not.
    """
    if engine == "iterncgp":
        raise ValueError(
            f"{shaped} has a shape, which engine='iterncgp' does not hold to; leave engine out."
        )
    if asked not in (None, "exact", "sites"):
        raise ValueError(
            f"{shaped} has a shape, which variational={asked!r} does not hold to; leave "
            "variational out."
        )


def build_model(
    spec: Specification,
    X: AnyNDArray,
    Y: RowArray | Described,
    number: int | None = None,
    weights: RowArray | None = None,
) -> Model:
    """
    The model, its parameters where they start.

    :param spec: what settles a fit but its numbers.
    :param X: [N, D].
    :param Y: [N, K], or what families ask of it where the model holds no data.
    :param number: N, where X is not all rows. The model then holds no data: that of Gaussian data
        is an :class:`~gpflow_gam.models.AdditiveSVGP`, too, whose q is the optimal one.
    :param weights: how often the rows of Y count, [N], where X is not all rows.
    :raises ValueError: a response that the family cannot have produced.
    """
    if spec.weights is not None and number is None:
        weights = X[:, spec.place(spec.weights)]
    predictors = spec.family.num_predictors(spec.levels)
    own = _copied(spec.own_kernels)
    kernel = build_kernel(
        spec.components,
        spec.scale,
        own,
        predictors,
        spec.priors,
        spec.away,
    )
    inducing = build_inducing(spec.components, kernel, spec.encoder.width)
    mean = OffsetMean(np.array(spec.constant), [spec.place(c) for c in spec.offset])
    likelihood = spec.family.likelihood(Y, spec.levels, weights)
    exact = spec.variational == "exact"
    if exact and number is None:
        model = AdditiveSGPR((X, Y), kernel, inducing, mean_function=mean, weights=weights)
        model.likelihood.variance = _noise(spec)
        return model
    if exact:
        likelihood.variance = _noise(spec)
    if spec.weights is not None:
        likelihood = Weighted(likelihood, spec.place(spec.weights))
    if spec.variational == "iterncgp":
        if kernel.members is not None:
            raise ValueError(
                "engine='iterncgp' has the same terms for all parameters; leave engine out, or "
                "give the terms once."
            )
        return IterNCGP((X, Y), kernel, likelihood, mean_function=mean, solver="newton")
    return AdditiveSVGP(
        kernel,
        likelihood,
        inducing,
        variational=OptimalPrecision() if exact else VARIATIONAL[spec.variational](),
        mean_function=mean,
        num_data=len(X) if number is None else number,
        num_latent_gps=predictors,
    )


def _noise(spec: Specification) -> Parameter:
    """A noise variance in logarithms, as a response may be in any unit; at the start half of it."""
    return Parameter(0.5 * spec.scale**2, transform=exponential())


def _copied(kernels: dict[str, Kernel]) -> dict[str, Kernel]:
    """Copies: a term is a value, and fitting one GAM must not change another."""
    return {label: deepcopy(kernel) for label, kernel in kernels.items()}
