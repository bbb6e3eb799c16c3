"""Averages over rows of the expected response, also where columns are set, with joint draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood

from ...kernels.fixed_inputs import FixedInputKernel
from ...likelihoods.predictive import expected_response
from ...posteriors import InducingMoments
from ...threads import one_blas_thread
from ..fits import FittedGAM
from .hyperparameters import hyperparameter_draws
from .joint import inducing_moments
from .response import with_outputs


@dataclasses.dataclass(frozen=True)
class Averages:
    """
    Averages of K quantities over B groups of rows, in G settings of columns.

    :param estimate: [G, B, K].
    :param draws: from their joint posterior, [S, G, B, K].
    """

    estimate: AnyNDArray
    draws: AnyNDArray


@dataclasses.dataclass(frozen=True)
class _Places:
    """
    Where a component is needed.

    :param name: of the component.
    :param X: different rows [U, D], as far as the component reads them.
    :param index: which of them each row is, [N], or in each setting, [G, N].
    """

    name: str
    X: AnyNDArray
    index: AnyNDArray


def averages(
    fit: FittedGAM,
    settings: Sequence[AnyNDArray],
    weights: AnyNDArray,
    *,
    scale: str = "response",
    unconditional: bool = True,
    num_samples: int = 1000,
    seed: int = 0,
) -> Averages:
    """
    Averages of the expected response, or of the predictor.

    Estimates are at the fitted hyperparameters: means over rows of what is predicted. Draws are of
    whole functions, one for all rows and settings, at draws of the hyperparameters, so that sums
    and differences of averages have the uncertainty that they have.

    :param settings: the same rows of X [N, D] in each setting.
    :param weights: of rows in the groups, [B, N]; each group's are divided by their sum.
    :param scale: ``"response"`` or ``"link"``, in the response's unit.
    :param unconditional: whether draws allow for uncertain hyperparameters.
    :param num_samples: S, at least; about as many at each draw of the hyperparameters.
    :param seed: of the draws.
    """
    shares = scipy.sparse.csr_matrix(weights / weights.sum(axis=1, keepdims=True))
    known = [np.asarray(fit.model.mean_function(X)) for X in settings]

    def averaged(values: AnyNDArray) -> AnyNDArray:
        """[..., N, K] -> [..., B, K]."""
        rows = np.moveaxis(values, -2, 0)
        flat = shares @ rows.reshape(len(rows), -1)
        return np.moveaxis(flat.reshape(len(flat), *rows.shape[1:]), 0, -2)

    places = [_places(fit, name, settings) for name in fit.spec.names]
    with one_blas_thread():
        predictors = _predictors(fit, places, settings)
        estimate = np.stack(
            [
                averaged(_estimated(fit, X, mean + shift, var, scale, seed))
                for X, shift, (mean, var) in zip(settings, known, predictors)
            ]
        )
        members = list(_members(fit, places, unconditional))
        pivots = [inducing_moments(fit).residual_pivots(p.name, p.X) for p in places]
        each = -(-num_samples // len(members))
        seeds = np.random.SeedSequence(seed).generate_state(len(members))
        draws = []
        for (moments, likelihood, tangents), own in zip(members, seeds):
            values = _component_draws(moments, places, tangents, pivots, each, int(own))
            still = sum((v[:, p.index] for v, p in zip(values, places) if p.index.ndim == 1), 0.0)
            moving = [(v, p.index) for v, p in zip(values, places) if p.index.ndim == 2]
            found = []
            for g, shift in enumerate(known):
                F = still + sum((v[:, index[g]] for v, index in moving), 0.0) + shift
                found.append(averaged(_quantities(fit, likelihood, F, scale)))
            draws.append(np.stack(found, axis=1))
    return Averages(estimate, np.concatenate(draws))


def _predictors(
    fit: FittedGAM, places: Sequence[_Places], settings: Sequence[AnyNDArray]
) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
    """
    Mean and variance of the predictor in each setting, [N, L] each, or covariances [N, L, L] where
    predictors are correlated; m(x) is left out.
    """
    moments = inducing_moments(fit)
    parts = []
    for place in places:
        phi, prior = moments.features_and_prior(place.name, moments.tangents(place.name, place.X))
        parts.append((phi, np.maximum(prior - np.sum(np.square(phi), axis=0), 0.0)))
    enters = moments.entering([place.name for place in places])
    for g in range(len(settings)):
        index = [p.index if p.index.ndim == 1 else p.index[g] for p in places]
        phi = np.concatenate([own[:, at] for (own, _), at in zip(parts, index)])
        left = np.stack([open_[at] for (_, open_), at in zip(parts, index)], axis=1) @ enters
        inner = [np.sum((S @ phi) * phi, axis=0) for S in moments.covariance]
        var = np.stack(inner, axis=1) + left
        if moments.shared is not None:
            var = with_outputs(var, phi.T @ moments.shared)
        yield phi.T @ moments.mean, var


def _estimated(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, scale: str, seed: int
) -> AnyNDArray:
    """What is predicted of rows whose predictors are N(mean, var), [N, K]."""
    if scale == "link":
        factor, shift = fit.units
        return np.asarray(shift + factor * mean)
    counted = fit.predictive_share * var
    found = np.asarray(expected_response(fit.likelihood, X, mean, counted, seed=seed))
    return found if found.ndim == 2 else found[:, None]


def _quantities(fit: FittedGAM, likelihood: Likelihood, F: AnyNDArray, scale: str) -> AnyNDArray:
    """Of predictors [s, N, L] in the model's unit, [s, N, K]."""
    if scale == "link":
        factor, shift = fit.units
        return np.asarray(shift + factor * F)
    found = np.asarray(fit.spec.family.mean(likelihood, F))
    return found if found.ndim == 3 else found[..., None]


def _places(fit: FittedGAM, name: str, settings: Sequence[AnyNDArray]) -> _Places:
    columns = list(fit.spec.component(name).columns)
    own = [X[:, columns] for X in settings]
    fixed = all(np.array_equal(own[0], other) for other in own[1:])
    points, index = np.unique(own[0] if fixed else np.concatenate(own), axis=0, return_inverse=True)
    X = np.zeros((len(points), settings[0].shape[1]))
    X[:, columns] = points
    index = index.reshape(-1)
    return _Places(name, X, index if fixed else index.reshape(len(settings), -1))


def _members(
    fit: FittedGAM, places: Sequence[_Places], unconditional: bool
) -> Iterator[tuple[InducingMoments, Likelihood, Sequence[FixedInputKernel]]]:
    """Posteriors over which draws are spread, with their kernels' matrices at the places."""
    fitted = inducing_moments(fit)
    tangents = [fitted.tangents(p.name, p.X) for p in places]
    draws = hyperparameter_draws(fit) if unconditional else []
    if not draws:
        yield fitted, fit.likelihood, tangents
    for draw in draws:
        own = tangents
        if not draw.shares_kernel:
            own = draw.tangents([(p.name, p.X) for p in places])
        yield draw.moments, draw.likelihood, own


def _component_draws(
    moments: InducingMoments,
    places: Sequence[_Places],
    tangents: Sequence[FixedInputKernel],
    pivots: Sequence[Sequence[int]],
    number: int,
    seed: int,
) -> list[AnyNDArray]:
    """Joint draws of the components at their places, [s, U, L] each."""
    V = moments.sample(number, seed)
    rng = np.random.default_rng([seed, 1])
    found = []
    for place, at, few in zip(places, tangents, pivots):
        phi, prior = moments.features_and_prior(place.name, at)
        own = V[:, moments.block(place.name)]
        values = np.einsum("mu,sml->sul", phi, own, optimize=True)
        root, rest = moments.residual_factor(place.name, place.X, phi, prior, few)
        enters = moments.entering([place.name])[0]
        if root.shape[1]:
            z = enters * rng.standard_normal((number, root.shape[1], own.shape[2]))
            values = values + np.einsum("ur,srl->sul", root, z, optimize=True)
        if rest.any():
            noise = enters * rng.standard_normal(values.shape)
            values = values + np.sqrt(rest)[:, None] * noise
        found.append(values)
    return found
