"""A head's numbers taken from data, its sizes unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from gpflow.models import GPModel

from ..gam.components import Component, build_kernel
from ..kernels import AdditiveKernel
from ..likelihoods import constant_predictor
from ..measures import Discrete, Nodes
from .specification import HeadSpecification, centred
from .structure import Structure

_IN_UNITS = ("gaussian", "student_t", "heteroskedastic")
"""Families whose predictor has the response's unit."""


def adapted_components(structure: Structure, X: AnyNDArray) -> list[Component]:
    """
    The structure's components with nodes and inducing inputs from data.

    :param X: scaled features, [N, D].
    """
    planned = {c.name: c for c in structure.plan(X)}
    found = []
    for component in structure.components:  # a level that does not occur keeps what it has
        new = planned.get(component.name, component)
        if component.shape:  # splines are the kernel's, and their places with them
            margins = tuple(
                dataclasses.replace(m, breaks=own.breaks)
                for m, own in zip(new.margins, component.margins)
            )
            new = dataclasses.replace(new, margins=margins, inducing=component.inducing)
        found.append(new if new.inducing else component)
    return found


def adapt_measures(
    kernel: AdditiveKernel, components: Sequence[Component], scale: float, own: Mapping[str, Kernel]
) -> None:
    """
    Centre a kernel's components under the measures of others of the same structure.

    :param kernel: as :meth:`HeadSpecification.build_kernel` makes it.
    :param components: from :func:`adapted_components`.
    :param scale: the predictor's natural size.
    :param own: the user's kernels by the labels of their terms, which are left as they are.
    """
    fresh = build_kernel(components, scale, own)
    for part, new in zip(centred(kernel), centred(fresh), strict=True):
        measure, held = new.measure, part.measure
        assert isinstance(measure, Discrete)
        assert isinstance(held, Nodes)
        room = int(held.points.shape[0])
        if len(measure.points) > room:
            masses = measure.probabilities[:room]
            measure = Discrete(measure.points[:room], masses / masses.sum())
        held.assign(measure)


def adapt_response(spec: HeadSpecification, model: GPModel, X: AnyNDArray, Y: AnyNDArray) -> None:
    """
    Start the predictor's constant and the likelihood's parameters from responses.

    :param spec: says what the response is.
    :param model: whose parameters are set.
    :param X: scaled features, [N, D].
    :param Y: [N, K].
    :raises ValueError: a response whose spread is far from ``scale``.
    """
    if spec.family.name in _IN_UNITS:
        spread = float(np.std(Y))
        if not 0.1 * spec.scale < spread < 10.0 * spec.scale:
            raise ValueError(
                f"y has a standard deviation of {spread:.3g} where scale={spec.scale:g} was said; "
                "pass scale of y's size to the layer, or standardise y."
            )
    likelihood = model.likelihood
    start = gpflow.utilities.parameter_dict(spec.build_likelihood(Y.astype(np.float64)))
    for path, parameter in gpflow.utilities.parameter_dict(likelihood).items():
        parameter.assign(start[path])
    offset = np.zeros((len(X), spec.num_predictors))
    constant = constant_predictor(
        likelihood, tf.constant(X), tf.constant(Y), offset, spec.num_predictors
    )
    model.mean_function.constant.assign(np.asarray(constant)[0])
