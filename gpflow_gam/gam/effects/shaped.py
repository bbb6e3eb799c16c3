"""Draws of components that have a shape."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

from ...threads import one_blas_thread
from ..components import Component
from ..fits import FittedGAM
from .hyperparameters import hyperparameter_draws
from .joint import inducing_moments


def shaped_draws(
    fit: FittedGAM, component: Component, X: AnyNDArray, num_samples: int, seed: int
) -> AnyNDArray:
    """
    Joint posterior draws of a component, each with its shape, [S, n, L], in the response's unit.

    They are spread over draws of the hyperparameters, in a random order.

    :param X: rows at which the component is itself, [n, D].
    """
    rng = np.random.default_rng(seed)
    fitted = inducing_moments(fit)
    tangents = fitted.tangents(component.name, X)
    members = [d.moments for d in hyperparameter_draws(fit)] or [fitted]
    numbers = np.bincount(np.arange(num_samples) % len(members), minlength=len(members))
    found = []
    with one_blas_thread():
        for moments, number in zip(members, numbers):
            if number:
                V = moments.sample(int(number), int(rng.integers(2**31)))
                phi, _ = moments.features_and_prior(component.name, tangents)
                own = V[:, moments.block(component.name)]
                found.append(np.einsum("mn,sml->snl", phi, own, optimize=True))
    draws = np.concatenate(found)[rng.permutation(num_samples)]
    factor: AnyNDArray = np.asarray(fit.units[0])
    whole: AnyNDArray = factor * draws
    return whole
