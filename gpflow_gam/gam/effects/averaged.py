"""The posterior averaged over uncertain hyperparameters, cheap enough for rows of any number."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from gpflow.base import AnyNDArray
from scipy.linalg import cho_factor, cho_solve

from ...optimizers.laplace import HyperparameterDraw
from ...posteriors.inducing import InducingMoments
from ...threads import each, one_blas_thread
from ..components import Component
from ..fits import FittedGAM
from .posterior import between_moments, fitted_draw, hyperparameter_draws, inducing_moments

_SCALED = ("constant", "line", "levels", "random")
"""Forms of components whose kernels differ between draws by their variance alone."""
_RIDGE = 1e-8
"""Against the largest feature: what inducing inputs see less of than this is left as it is."""
_ROWS = 8192
"""Whose features are held at once, by each thread: they stay in its core's cache."""
_LOST, _TRIED, _CHECKED = 0.1, 0.005, 50
"""Mean relative errors of variances: most, and that others are tried for; rows that are checked."""
_SPREAD = 10.0
"""Sum of the weights of inducing inputs at a point, in absolute value: more is extrapolation."""


class Averaged:
    """
    The posterior over inducing values V at the fitted hyperparameters, with two covariances.

    At a draw of the hyperparameters a component has other features. Its values at the inducing
    inputs, carried over to the features of the fit, are what the draw says of V; the covariance
    is the mean of theirs plus that of their means around the fitted one, as
    :func:`~gpflow_gam.gam.effects.joint_moments` has it for a component at points. Points between
    inducing inputs are then read off at the fitted hyperparameters, which is as cheap as one
    posterior. Standard errors are then within about 1 % of what the draws themselves give, and
    mostly within 5 % for functions of several columns. Where that would not do every draw is asked
    itself: outside a column's data and in empty corners of several columns' data, and of single
    functions of several columns. Where a fitted variance has vanished, its features cannot carry
    what the draws have: the features of the draw with the largest prior variance are taken if they
    carry more. If neither do, every draw is asked at every row.
    """

    def __init__(self, fit: FittedGAM, draws: list[HyperparameterDraw]) -> None:
        self._components, self._draws = fit.spec.components, draws
        self._moments, between = inducing_moments(fit), between_moments(fit)
        self._between = None if between is None else between.covariance
        self._names = list(fit.spec.names)
        every = [self._moments, *(draw.moments for draw in draws)]
        fitted = [self._moments] * len(self._components)
        largest = [
            every[int(np.argmax([np.sum(np.square(m.roots[c])) for m in every]))]
            for c in range(len(self._components))
        ]
        if fit.data.available:  # where columns go together as they do in the data
            X = fit.X[fit.even_rows(_CHECKED)]
        else:
            X = self._typical_rows(fit.spec.encoder.width)
        self._lost = False
        with one_blas_thread():
            lost = self._carry_by(fitted, X)
            if lost > _TRIED:
                before = lost
                lost = self._carry_by(largest, X)
                if lost > before:
                    lost = self._carry_by(fitted, X)
        self._lost = lost > _LOST

    def _carry_by(self, carriers: list[InducingMoments], X: AnyNDArray) -> float:
        """Take components' features of these moments; the mean relative error of variances at X."""
        self._carriers = carriers
        self._solvers = [
            None if component.form in _SCALED else _projection(moments.roots[c])
            for c, (component, moments) in enumerate(zip(self._components, carriers))
        ]
        self._covariance, self._ratios = self._average()
        mean, _, approximate = self.link(X)
        drawn = self._drawn(self._names, X, mean)
        away = np.abs(approximate - drawn) / np.maximum(drawn, np.finfo(float).tiny)
        return float(np.mean(away))

    def link(
        self, X: AnyNDArray, names: Sequence[str] | None = None, between: bool = False
    ) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
        """
        Mean of the sum of components at rows, and its variances, [N, L] each.

        The first variance is at the fitted hyperparameters, the second the averaged one.
        """
        own = self._names if names is None else list(names)
        chosen = [self._names.index(name) for name in own]
        where = np.concatenate([np.r_[self._moments.block(name)] for name in own])
        covariances = [self._moments.covariance, self._covariance]
        if names is not None:  # all of them are not copied
            covariances = [S[:, where[:, None], where] for S in covariances]
        enters, centre = self._moments.entering(own), self._moments.mean[where]
        mean, known, uncertain = np.empty((3, len(X), centre.shape[1]))
        asked = np.zeros(len(X), dtype=bool)
        added = self._between if between else None
        if added is not None and names is not None:
            added = added[:, where[:, None], where]
        beside = np.zeros_like(uncertain)

        def evaluate(rows: slice) -> None:
            features, opens, own_phi = self._features(X[rows], chosen)
            phi = np.concatenate(own_phi)
            if added is not None:
                beside[rows] = _squares(phi, added)
            mean[rows] = phi.T @ centre
            known[rows] = _squares(phi, covariances[0]) + opens[0].T @ enters
            uncertain[rows] = _squares(np.concatenate(features), covariances[1])
            uncertain[rows] += opens[1].T @ (self._ratios[chosen][:, None] * enters)
            for c, own_features in zip(chosen, features):
                asked[rows] |= self._lost | self._beyond(c, X[rows], own_features)

        each(evaluate, _parts(len(X)))
        places = np.flatnonzero(asked)

        def ask(rows: slice) -> None:
            at = places[rows]
            uncertain[at] = self._drawn(own, X[at], mean[at])

        each(ask, _parts(len(places)))
        return mean, known, uncertain + beside

    def components(self, X: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean and averaged variance of every component at rows, [N, C, L] each."""
        count = len(self._names)
        mean, variance = np.empty((2, len(X), count, self._moments.mean.shape[1]))
        asked = np.zeros((len(X), count), dtype=bool)
        beside = np.zeros_like(variance)

        def evaluate(rows: slice) -> None:
            features, opens, own_phi = self._features(X[rows], range(count))
            for c, (phi, fitted_phi, left) in enumerate(zip(features, own_phi, opens[1])):
                own, component = self._moments.block(self._names[c]), self._components[c]
                mean[rows, c] = fitted_phi.T @ self._moments.mean[own]
                inner = _squares(phi, self._covariance[:, own, own])
                if self._between is not None:
                    beside[rows, c] = _squares(fitted_phi, self._between[:, own, own])
                enters = self._moments.entering([component.name])
                variance[rows, c] = inner + self._ratios[c] * left[:, None] * enters
                always = self._lost or len(component.margins) > 1
                asked[rows, c] = self._beyond(c, X[rows], phi) | always

        each(evaluate, _parts(len(X)))
        places = [np.flatnonzero(asked[:, c]) for c in range(count)]

        def ask(task: tuple[int, slice]) -> None:
            c, rows = task
            at = places[c][rows]
            variance[at, c] = self._drawn([self._names[c]], X[at], mean[at, c])

        # rows from all over at once: every draw has its price, however few they are
        each(ask, [(c, rows) for c in range(count) for rows in _parts(len(places[c]))])
        return mean, variance + beside

    def _features(
        self, X: AnyNDArray, which: Sequence[int]
    ) -> tuple[list[AnyNDArray], AnyNDArray, list[AnyNDArray]]:
        """
        Features [M_c, N] of components that carry draws; residual variances; features of the fit.

        Residual variances are [2, C, N], at the fit's features and at those that carry.
        """
        carried: list[AnyNDArray] = []
        fitted: list[AnyNDArray] = []
        residual = np.empty((2, len(which), len(X)))
        for i, c in enumerate(which):
            for j, moments in enumerate((self._moments, self._carriers[c])):
                if j and moments is self._moments:
                    residual[1, i] = residual[0, i]
                else:
                    name = self._names[c]
                    phi, prior = moments.features_and_prior(name, moments.tangents(name, X))
                    residual[j, i] = prior - np.sum(np.square(phi), axis=0)
                (carried if j else fitted).append(phi)
        return carried, np.maximum(residual, 0.0), fitted

    def _beyond(self, c: int, X: AnyNDArray, phi: AnyNDArray) -> AnyNDArray:
        """Rows at which a component is not settled by its inducing values, [N]."""
        component, solve = self._components[c], self._solvers[c]
        found = _outside(component, X)
        if solve is not None and len(component.margins) > 1:
            found |= np.sum(np.abs(solve.T @ phi), axis=0) > _SPREAD
        return found

    def _drawn(self, names: list[str], X: AnyNDArray, mean: AnyNDArray) -> AnyNDArray:
        """The averaged variance [N, L] of a sum of components by every draw itself."""
        tangents = [self._moments.tangents(name, X) for name in names]
        where = np.concatenate([np.r_[self._moments.block(name)] for name in names])
        total = np.zeros_like(mean)
        for draw in self._draws:
            moments = draw.moments
            at = tangents
            if not draw.shares_kernel:
                at = [moments.tangents(name, X) for name in names]
            found = [moments.features_and_prior(n, t) for n, t in zip(names, at)]
            phi = np.concatenate([phi for phi, _ in found])
            left = [prior - np.sum(np.square(own), axis=0) for own, prior in found]
            inner = _squares(phi, moments.covariance[:, where[:, None], where])
            away = phi.T @ moments.mean[where] - mean
            open_ = np.maximum(left, 0.0).T @ moments.entering(names)
            total += inner + open_ + np.square(away)
        return total / len(self._draws)

    def _typical_rows(self, width: int) -> AnyNDArray:
        """Rows of X, of nodes of each component, where the draws check the approximation."""
        X = np.zeros((_CHECKED, width))
        for c, component in enumerate(self._components):
            margins = component.margins
            nodes = [(node,) for node in margins[0].nodes] if len(margins) == 1 else component.nodes
            points = np.array(nodes or component.inducing)
            if component.form != "constant" and points.size:
                # in an order of its own, so that columns are not in step
                which = np.random.default_rng(c).integers(len(points), size=_CHECKED)
                columns = list(component.columns)
                X[:, columns] = component.full(points[which], width)[:, columns]
        return X

    def _average(self) -> tuple[AnyNDArray, AnyNDArray]:
        """
        The covariance of V, [L, P, P], and how prior variances compare with the fitted ones, [C].
        """
        count = len(self._draws)
        blocks = [self._moments.block(name) for name in self._names]
        covariance, ratios = np.zeros_like(self._moments.covariance), np.zeros(len(blocks))

        def carry(moments: InducingMoments) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
            """Mean and covariance of V for the features that carry, and ratios of variances."""
            mean, spread = moments.mean.copy(), moments.covariance.copy()
            sizes = np.ones(len(blocks))
            for c, (own, solve) in enumerate(zip(blocks, self._solvers)):
                root, carrier = moments.roots[c], self._carriers[c].roots[c]
                sizes[c] = float(np.sum(np.square(root))) / float(np.sum(np.square(carrier)))
                if solve is None:
                    mean[own] *= np.sqrt(sizes[c])
                    spread[:, own, :] *= np.sqrt(sizes[c])
                    spread[:, :, own] *= np.sqrt(sizes[c])
                    continue
                # what the inducing inputs hardly see stays as it is
                A = np.eye(len(root)) + solve @ (root - carrier)
                mean[own] = A @ mean[own]
                spread[:, own, :] = A @ spread[:, own, :]
                spread[:, :, own] = spread[:, :, own] @ A.T
            return mean, spread, sizes

        centre = carry(self._moments)[0]
        for draw in self._draws:
            mean, spread, sizes = carry(draw.moments)
            ratios += sizes / count
            away = (mean - centre).T
            covariance += (spread + away[:, :, None] * away[:, None, :]) / count
        return covariance, ratios


_AVERAGED: weakref.WeakKeyDictionary[FittedGAM, Averaged | None] = weakref.WeakKeyDictionary()


def averaged(fit: FittedGAM) -> Averaged | None:
    """
    The averaged posterior, kept as long as the fit.

    None where nothing is known of other hyperparameters: see :func:`hyperparameter_draws`.
    """
    if fit not in _AVERAGED:
        draws = hyperparameter_draws(fit)
        if not draws and between_moments(fit) is not None:  # nothing is learnt of the kernels
            draws = [fitted_draw(fit)]
        _AVERAGED[fit] = Averaged(fit, draws) if draws else None
    return _AVERAGED[fit]


def _parts(number: int) -> list[slice]:
    """Rows in parts."""
    return [slice(start, start + _ROWS) for start in range(0, number, _ROWS)]


def _projection(root: AnyNDArray) -> AnyNDArray:
    """What takes values at inducing inputs to the V that has them, nearly, [M, M]."""
    gram = root.T @ root
    gram[np.diag_indices_from(gram)] += _RIDGE * float(np.max(np.diag(gram)))
    found: AnyNDArray = cho_solve(cho_factor(gram, lower=True), root.T)
    return found


def _outside(component: Component, X: AnyNDArray) -> AnyNDArray:
    """Rows at which a smooth function is asked for beyond its data, [N]."""
    found = np.zeros(len(X), dtype=bool)
    if component.form in _SCALED:
        return found
    for margin in component.margins:
        if margin.kind not in ("levels", "cyclic"):
            values, (low, high) = X[:, margin.column], margin.ends
            found |= (values < low) | (values > high)
    by = component.by
    return found if by is None or by.code is None else found & (X[:, by.column] == by.code)


def _squares(phi: AnyNDArray, covariance: AnyNDArray) -> AnyNDArray:
    """``phi_n' S phi_n``, [N, L], of features [P, N]."""
    return np.stack([np.sum((S @ phi) * phi, axis=0) for S in covariance], axis=1)
