"""The posterior of a row from the other rows: sites of some rows divided out."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.linalg import cholesky, lapack, solve_triangular

from ...kernels.shapes import Values
from ...statistics.expectations import expectations, mean_curvature
from .components import features_at_bins, times
from .evidence import GaussianPosterior
from .passes import Rows

_ENTRIES = 2**21
"""Numbers of a kind that a batch of folds holds at a time."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """
    Some folds, padded to equal numbers of rows.

    :param out: rows left out, [F, k].
    :param left: which of these are rows, and no padding, [F, k].
    :param predicted: rows predicted, [F, m].
    :param asked: which of these are rows, [F, m].
    """

    out: AnyNDArray
    left: AnyNDArray
    predicted: AnyNDArray
    asked: AnyNDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """
    Folds: rows that are left out together, and the rows that are predicted without them.

    Every row is predicted in one fold, and is left out there itself (Wood 2024).

    :param out: rows left out, one array a fold.
    :param predicted: rows predicted, one array a fold.
    :param number: N.
    """

    out: tuple[AnyNDArray, ...]
    predicted: tuple[AnyNDArray, ...]
    number: int

    def __len__(self) -> int:
        """The number of folds."""
        return len(self.out)

    @classmethod
    def of_labels(cls, labels: Any) -> Neighbourhoods:
        """
        Groups of rows, each left out and predicted as a whole.

        :param labels: one a row, [N].
        :raises ValueError: labels are missing, or all the same.
        """
        codes, levels = pd.factorize(pd.Series(labels), use_na_sentinel=True)
        missing = int(np.count_nonzero(codes < 0))
        if missing:
            raise ValueError(
                f"groups lack a label in {missing} of {len(codes)} rows; give these rows one, or "
                "leave them out of the fit."
            )
        if len(levels) < 2:
            raise ValueError(
                "groups has one label for all rows: without its group nothing is left to predict "
                "a row from; give at least two."
            )
        order = np.argsort(codes, kind="stable")
        parts = tuple(np.split(order, np.cumsum(np.bincount(codes))[:-1]))
        return cls(parts, parts, len(codes))

    @classmethod
    def of_lists(cls, lists: Sequence[Any], kept: AnyNDArray | None = None) -> Neighbourhoods:
        """
        A neighbourhood for each row, which is left out where the row is predicted.

        :param lists: indices of rows, one array a row; a row is its own neighbour whether its list
            has it or not.
        :param kept: which of the rows there are, ascending, [n]; all by default.
        :raises ValueError: indices that are none.
        """
        number = len(lists)
        place = np.full(number, -1)
        rows = np.arange(number) if kept is None else kept
        place[rows] = np.arange(len(rows))
        out = []
        for n in rows:
            own = np.asarray(lists[n])
            if own.ndim != 1 or (own.size and own.dtype.kind not in "iu"):
                raise ValueError(
                    f"groups: the neighbourhood of row {n} must be indices of rows; got "
                    f"{own.dtype} of shape {own.shape}."
                )
            own = own.astype(np.int64)
            if own.size and not (own.min() >= 0 and own.max() < number):
                raise ValueError(
                    f"groups: the neighbourhood of row {n} has indices {own.min()} to {own.max()}; "
                    f"rows are counted from 0 to {number - 1}."
                )
            found = place[np.union1d(own, [n])]
            out.append(found[found >= 0])
        if all(len(one) == len(rows) for one in out):
            raise ValueError(
                "groups: every neighbourhood has all rows, so that nothing is left to predict "
                "from; give smaller ones."
            )
        return cls(tuple(out), tuple(np.arange(len(rows))[:, None]), len(rows))

    @classmethod
    def of(cls, groups: Any, number: int, kept: AnyNDArray | None = None) -> Neighbourhoods:
        """
        From what users give.

        :param groups: labels, one a row, or indices of rows, an array (or list, range) a row.
        :param number: of rows that there were when ``groups`` was made.
        :param kept: which of these there are now, ascending, [n]; all by default.
        :raises ValueError: not one a row, or as :meth:`of_labels` and :meth:`of_lists`.
        :raises TypeError: nothing of the kind.
        """
        if isinstance(groups, (dict, set)) or not hasattr(groups, "__len__"):
            raise TypeError(
                "groups must be a column, one label a row, or an array of row indices for each "
                f"row; got {type(groups).__name__}."
            )
        if isinstance(groups, np.ndarray) and groups.ndim > 1:
            raise ValueError(f"groups must have one label a row; got shape {groups.shape}.")
        if len(groups) != number:
            raise ValueError(
                f"groups must have one entry for each of {number} rows; got {len(groups)}."
            )
        if _are_lists(groups):
            return cls.of_lists(list(groups), kept)
        labels = pd.Series(_listed(groups))
        return cls.of_labels(labels if kept is None else labels.iloc[kept])

    @classmethod
    def of_rows(cls, number: int) -> Neighbourhoods:
        """
        Every row by itself.

        :param number: N, how many rows there are.
        """
        parts = tuple(np.arange(number)[:, None])
        return cls(parts, parts, number)

    def batches(self, width: int) -> Iterator[Batch]:
        """
        All folds, those of like size together.

        :param width: P, of what is held of each row.
        """
        sizes = np.array([len(o) + len(p) for o, p in zip(self.out, self.predicted)])
        order = np.argsort(sizes, kind="stable")
        start = 0
        while start < len(order):
            # sizes ascend: the last one of a batch is its largest
            stop = start + 1
            while stop < len(order):
                if (stop + 1 - start) * int(sizes[order[stop]]) * width > _ENTRIES:
                    break
                stop += 1
            which = order[start:stop]
            out, left = _padded([self.out[i] for i in which])
            predicted, asked = _padded([self.predicted[i] for i in which])
            yield Batch(out, left, predicted, asked)
            start = stop

    @property
    def digest(self) -> str:
        """The same for the same folds."""
        found = hashlib.blake2b(digest_size=16)
        for part in (*self.out, *self.predicted):
            found.update(np.int64(len(part)).tobytes())
            found.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
        return found.hexdigest()


def _padded(parts: Sequence[AnyNDArray]) -> tuple[AnyNDArray, AnyNDArray]:
    """Arrays of indices as one, [F, k], and which of its entries are theirs."""
    most = max(len(part) for part in parts)
    indices = np.zeros((len(parts), most), dtype=np.int64)
    has = np.zeros((len(parts), most), dtype=bool)
    for row, own, part in zip(indices, has, parts):
        row[: len(part)] = part
        own[: len(part)] = True
    return indices, has


def _are_lists(groups: Any) -> bool:
    """Whether there is a list of rows for each row, rather than a label; a Series has labels."""
    kind = getattr(getattr(groups, "dtype", None), "kind", "O")
    if isinstance(groups, pd.Series) or kind != "O":
        return False
    return all(isinstance(g, (np.ndarray, list, tuple, range)) for g in groups)


def _listed(labels: Any) -> Any:
    """Labels as a Series takes them: tuples stay labels."""
    if isinstance(labels, (list, tuple)):
        held = np.empty(len(labels), dtype=object)
        held[:] = labels
        return held
    return labels if isinstance(labels, pd.Categorical) else np.asarray(labels)


MAX_SIZE = 6000
"""Inducing values times predictors beyond which predictors are taken to answer by themselves."""

_ENTRIES_OF_STEP = 2**22
"""Numbers that are held at a time."""


class CoupledMeans:
    r"""
    Means without rows, by one Newton step of all predictors together.

    The means maximise the bound at given covariances: :math:`\mu = \sum_n g_n \otimes \phi_n`, with
    ``g_n`` the slopes of row n's expectation in the means of its L predictors. These change with
    the means of *all* of them, by the curvature :math:`C_n`, which a site a predictor leaves out:
    without rows A the step is :math:`-(H - \sum_A C_n \otimes \phi_n \phi_n')^{-1} \sum_A g_n
    \otimes \phi_n`, with :math:`H = I + \sum_n C_n \otimes \phi_n \phi_n'`. With one predictor that
    is what dividing out its site gives.

    :param enters: which features enter which predictor, 1 or 0, [P, L].
    :param slopes: g_n, [N, L].
    :param curvature: C_n, [N, L, L].
    """

    def __init__(self, enters: AnyNDArray, slopes: AnyNDArray, curvature: AnyNDArray) -> None:
        self._slopes, self._curvature = slopes, curvature
        self._enters = enters
        self._P, self._L = P, L = enters.shape
        self._H = np.zeros((L, P, L, P))
        self._root: AnyNDArray | None = None

    def add(self, which: AnyNDArray, phi: AnyNDArray) -> None:
        """
        Rows' part of H.

        :param which: rows by number, [n].
        :param phi: features, [P, n].
        """
        C = self._curvature[which]
        own = [phi * enters[:, None] for enters in self._enters.T]
        for i in range(self._L):
            for j in range(i, self._L):
                part = (own[i] * C[:, i, j]) @ own[j].T
                self._H[i, :, j, :] += part
                if i != j:
                    self._H[j, :, i, :] += part.T

    def factorise(self) -> bool:
        """Once all rows are there: whether H has a factor, as it has where the bound is highest."""
        size = self._L * self._P
        H = self._H.reshape(size, size)
        try:
            self._root = cholesky(H + np.eye(size), lower=True)
        except np.linalg.LinAlgError:
            return False
        return True

    def beyond(self) -> AnyNDArray:
        """
        What predictors that answer together add to the covariance of each by itself, [L, P, P].

        The diagonal blocks of H^-1, which is how means respond to a slight pull (linear response;
        Giordano, Broderick & Jordan 2018), less what they were if the others stayed where they are.
        """
        P, L = self._P, self._L
        whole, _ = lapack.dpotri(self._root, lower=1)  # of which the lower triangle is there
        found = np.zeros((L, P, P))
        for i in range(L):
            at = slice(i * P, (i + 1) * P)
            together = np.tril(whole[at, at])
            together += np.tril(together, -1).T
            found[i] = together - np.linalg.inv(self._H[i, :, i, :] + np.eye(P))
        return 0.5 * (found + np.swapaxes(found, 1, 2))

    def one_by_one(self, which: AnyNDArray, phi: AnyNDArray, mean: AnyNDArray) -> AnyNDArray:
        """
        Means of rows, each without itself, [n, L]; NaN where there are none.

        :param which: rows by number, [n].
        :param phi: features, [P, n].
        :param mean: with all rows, [n, L].
        """
        G = np.empty((len(which), self._L, self._L))
        step = max(1, _ENTRIES_OF_STEP // (self._L**2 * self._P))
        for start in range(0, len(which), step):
            T = self._whitened(phi[:, start : start + step])
            G[start : start + step] = np.einsum("ipn,jpn->nij", T, T, optimize=True)
        g, C = self._slopes[which], self._curvature[which]
        pull = np.einsum("nij,nj->ni", G, g)
        A = np.eye(self._L) - np.einsum("nij,njk->nik", G, C)
        good = np.linalg.slogdet(A)[0] > 0.0
        A[~good] = np.eye(self._L)
        moved = mean - np.linalg.solve(A, pull[..., None])[..., 0]
        moved[~good] = np.nan
        found: AnyNDArray = moved
        return found

    def without(
        self, out: AnyNDArray, phi_out: AnyNDArray, phi: AnyNDArray, mean: AnyNDArray
    ) -> AnyNDArray:
        """
        Means of rows without some rows, [m, L]; NaN where there are none.

        :param out: rows left out by number, [k].
        :param phi_out: their features, [P, k].
        :param phi: of the rows predicted, [P, m].
        :param mean: of these with all rows, [m, L].
        """
        L, k = self._L, len(out)
        T, S = self._whitened(phi), self._whitened(phi_out)
        g, C = self._slopes[out], self._curvature[out]
        pull = np.einsum("ipn,ni->p", S, g, optimize=True)  # sum of g (x) phi, whitened
        lever = np.einsum("nij,jpn->inp", C, S, optimize=True).reshape(L * k, -1)
        own = S.transpose(0, 2, 1).reshape(L * k, -1)
        short = k <= self._P
        # (I - U V)^-1 = I + U (I - V U)^-1 V
        A = np.eye(L * k) - lever @ own.T if short else np.eye(L * self._P) - own.T @ lever
        if np.linalg.slogdet(A)[0] <= 0.0:
            return np.full_like(mean, np.nan)
        if short:
            step = pull + own.T @ np.linalg.solve(A, lever @ pull)
        else:
            step = np.linalg.solve(A, pull)
        found: AnyNDArray = mean - np.einsum("ipn,p->ni", T, step, optimize=True)
        return found

    def _whitened(self, phi: AnyNDArray) -> AnyNDArray:
        """Features of each predictor, in which H is one, [L, L P, n]."""
        found = []
        for i in range(self._L):
            whole = np.zeros((self._L * self._P, phi.shape[1]))
            whole[i * self._P : (i + 1) * self._P] = phi * self._enters[:, i, None]
            found.append(solve_triangular(self._root, whole, lower=True))
        return np.stack(found)


_TOGETHER = 2**13
"""Rows whose features are held at a time."""


@dataclasses.dataclass(frozen=True)
class Sites:
    """
    What each row says of its predictor, as a normal density of it.

    :param weight: precisions w_n, [N, L].
    :param shift: products of precision and mean, m(x) left out, [N, L].
    :param curvature: of several predictors, how the slopes of each row's expectation change with
        the means of all of them, [N, L, L], of which sites of single predictors know the diagonal.
    """

    weight: AnyNDArray
    shift: AnyNDArray
    curvature: AnyNDArray | None = None


class Cavity(NamedTuple):
    """The predictor of some rows without the sites that were divided out, m(x) left out."""

    mean: AnyNDArray
    """[n, L]."""

    var: AnyNDArray
    """[n, L]."""

    posterior: AnyNDArray
    """The mean with all sites, [n, L]."""

    untrusted: AnyNDArray
    """Rows of which dividing out left no variance, [n]; mean and variance are the prior's."""


def sites_of(
    rows: Rows,
    likelihood: Likelihood,
    values: Values,
    q: GaussianPosterior,
    signed: bool = True,
) -> tuple[Sites, GaussianPosterior]:
    """
    The sites of all rows at q, and the posterior that they give.

    The latter is q where the fit has converged. To divide a site that is not negative out of it is
    possible where no other is: what is left has the other rows' sites, whatever q had.

    :param rows: of the data.
    :param likelihood: with weights.
    :param values: of the kernels' parameters.
    :param q: over whitened inducing values.
    :param signed: whether negative weights count, or are taken as 0.
    :raises NotPositiveDefinite: they give no posterior, as negative weights may where q is not
        their fixed point.
    """
    shape = rows.number, rows.num_outputs
    weight, shift, curvature = np.zeros(shape), np.zeros(shape), []
    for at, mean, var in rows.marginals(values, q):
        given = likelihood, rows.X[at], mean + rows.mean[at], var, rows.Y[at]
        found = expectations(*given, ())
        weight[at] = found.precision if signed else np.maximum(found.precision, 0.0)
        shift[at] = found.slope + weight[at] * mean
        if rows.num_outputs > 1:
            curvature.append(mean_curvature(*given))
    whole = np.concatenate(curvature) if curvature else None
    return Sites(weight, shift, whole), rows.posterior(values, q.roots, weight, shift)


class RowPosterior:
    """
    The predictor at rows by way of a normal V: ``phi_n' V`` plus what V leaves open.

    :param features: gives ``phi`` [P, n] of rows by number, and the open variance [n, L].
    :param mean: of V, [P, L].
    :param covariance: of V, [L, P, P].
    :param enters: which of V enter which output, 1 or 0, [P, L].
    """

    def __init__(
        self,
        features: Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]],
        mean: AnyNDArray,
        covariance: AnyNDArray,
        enters: AnyNDArray,
    ) -> None:
        self.features, self.enters = features, enters
        self._moments = mean, covariance
        self._roots = [_root(S) for S in covariance]
        # V = R (R^-1 mean + e), e standard normal
        self._u = [np.linalg.lstsq(R, m, rcond=None)[0] for R, m in zip(self._roots, mean.T)]

    @classmethod
    def of_rows(cls, rows: Rows, values: Values, q: GaussianPosterior) -> RowPosterior:
        """
        Of rows in bins.

        :param rows: of the fit.
        :param values: of the kernels' parameters.
        :param q: with the factors of the prior there.
        """
        found = features_at_bins(rows.components, values, q.roots)
        opens = [prior - np.sum(np.square(phi), axis=0) for phi, prior in found]
        L = q.mean.shape[1]
        entering = np.array(
            [np.isin(np.arange(L), c.outputs_of(L)) for c in rows.components], float
        )

        def features(which: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            parts, left = [], np.zeros((len(which), len(entering[0])))
            for (phi, _), own, component, where in zip(found, opens, rows.components, entering):
                code = component.bins.codes[which]
                m = None if component.multiplier is None else component.multiplier[which]
                parts.append(times(phi[:, code], m))
                left += times(own[code], m, m)[:, None] * where
            return np.concatenate(parts), np.maximum(left, 0.0)

        enters = np.repeat(entering, [len(root) for root in q.roots], axis=0)
        return cls(features, q.mean, q.covariance, enters)

    def one_by_one(self, sites: Sites) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """
        Every row without its own site.

        :param sites: of all rows.
        :return: blocks of rows by number, and what is left of each.
        """
        number, L = sites.weight.shape
        coupled = self._coupled(sites)
        for start in range(0, number, _TOGETHER):
            which = np.arange(start, min(start + _TOGETHER, number))
            phi, left = self.features(which)
            mean, var, posterior = (np.zeros((len(which), L)) for _ in range(3))
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                z = root.T @ self.of(i, phi)
                w, s = sites.weight[which, i], sites.shift[which, i]
                h, a = np.sum(np.square(z), axis=0), z.T @ u
                rest = 1.0 - w * h
                with np.errstate(divide="ignore", invalid="ignore"):
                    mean[:, i], var[:, i] = (a - h * s) / rest, h / rest
                posterior[:, i] = a
            if coupled is not None:
                _moved(mean, coupled.one_by_one(which, phi, posterior))
            yield which, self.trusted(mean, var, posterior, phi, left)

    def by_neighbourhood(
        self, sites: Sites, neighbourhoods: Neighbourhoods
    ) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """
        Every row without the sites of its neighbourhood.

        :param sites: of all rows.
        :param neighbourhoods: rows that are left out together, and those predicted then.
        :return: blocks of rows by number, and what is left of each.
        """
        L = sites.weight.shape[1]
        coupled = self._coupled(sites)
        for batch in neighbourhoods.batches(len(self._roots[0])):
            union = np.unique(np.concatenate([batch.out[batch.left], batch.predicted[batch.asked]]))
            phi, left = self.features(union)
            # what only fills up may be no row of theirs
            out = np.where(batch.left, np.searchsorted(union, batch.out), 0)
            asked = np.where(batch.asked, np.searchsorted(union, batch.predicted), 0)
            which, at = batch.predicted[batch.asked], asked[batch.asked]
            mean, var, posterior = (np.zeros((len(which), L)) for _ in range(3))
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                z = self.of(i, phi).T @ root
                w = np.where(batch.left, sites.weight[batch.out, i], 0.0)
                s = np.where(batch.left, sites.shift[batch.out, i], 0.0)
                root = np.sqrt(np.abs(w))
                found = divided_out(z[asked], z[out], u, root, s, signs_of(w))
                mean[:, i], var[:, i] = (part.numpy()[batch.asked] for part in found)
                posterior[:, i] = z[at] @ u
            if coupled is not None:
                ends = np.cumsum(batch.asked.sum(axis=1))
                for f, stop in enumerate(ends):
                    own = slice(stop - int(batch.asked[f].sum()), stop)
                    gone = batch.out[f][batch.left[f]]
                    phi_out = phi[:, out[f][batch.left[f]]]
                    moved = coupled.without(gone, phi_out, phi[:, at[own]], posterior[own])
                    _moved(mean[own], moved)
            yield which, self.trusted(mean, var, posterior, phi[:, at], left[at])

    def moments(self, output: int) -> tuple[AnyNDArray, AnyNDArray]:
        """
        Mean [P] and covariance [P, P] of V for an output.

        :param output: which of the L.
        """
        mean, covariance = self._moments
        return mean[:, output], covariance[output]

    def without(
        self, output: int, phi: AnyNDArray, weight: AnyNDArray, shift: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray] | None:
        """
        Mean and covariance of V with some rows' sites divided out; None where that is no Gaussian.

        :param output: of the predictor.
        :param phi: features of the rows, [P, k].
        :param weight: of their sites, [k].
        :param shift: the same.
        """
        root, u = self._roots[output], self._u[output]
        z = root.T @ self.of(output, phi)
        try:
            factor = np.linalg.cholesky(np.eye(len(z)) - (z * weight) @ z.T)
        except np.linalg.LinAlgError:
            return None
        half = np.linalg.solve(factor, root.T)  # [P, P], half'half the covariance
        return half.T @ np.linalg.solve(factor, u - z @ shift), half.T @ half

    def of(self, output: int, phi: AnyNDArray) -> AnyNDArray:
        """
        Features as they are of one output, [P, n].

        :param output: which of the L.
        :param phi: features of all components, [P, n].
        """
        enters = self.enters[:, output]
        return phi if np.all(enters) else phi * enters[:, None]

    def trusted(
        self,
        mean: AnyNDArray,
        var: AnyNDArray,
        posterior: AnyNDArray,
        phi: AnyNDArray,
        left: AnyNDArray,
    ) -> Cavity:
        """
        Cavities whose variance is one; of the others the prior's moments, V being N(0, I).

        :param mean: of what is left, [n, L].
        :param var: the same.
        :param posterior: the mean with all sites, [n, L].
        :param phi: the rows' features, [P, n].
        :param left: the variance that V leaves open, [n, L].
        """
        bad = ~np.all((var >= 0.0) & np.isfinite(var) & np.isfinite(mean), axis=1)
        mean[bad], var[bad] = 0.0, np.square(phi[:, bad]).T @ self.enters
        return Cavity(mean, var + left, posterior, bad)

    def _coupled(self, sites: Sites) -> CoupledMeans | None:
        """The means of several predictors; None of one, or of too many."""
        P = len(self._roots[0])
        if sites.curvature is None or P * len(self._roots) > MAX_SIZE:
            return None
        number = len(sites.weight)
        means = np.zeros_like(sites.weight)
        parts = [np.arange(i, min(i + _TOGETHER, number)) for i in range(0, number, _TOGETHER)]
        for which in parts:
            phi, _ = self.features(which)
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                means[which, i] = (root.T @ self.of(i, phi)).T @ u
        found = CoupledMeans(self.enters, sites.shift - sites.weight * means, sites.curvature)
        for which in parts:
            found.add(which, self.features(which)[0])
        return found if found.factorise() else None


def signs_of(weight: AnyNDArray) -> AnyNDArray | None:
    """
    Signs of sites' precisions, 1 or -1, the shape of ``weight``; None where none is negative.

    :param weight: w_n, of any shape.
    """
    return np.where(weight < 0.0, -1.0, 1.0) if np.any(weight < 0.0) else None


def divided_out(
    predicted: tf.Tensor,
    out: tf.Tensor,
    u: tf.Tensor,
    root_weight: tf.Tensor,
    shift: tf.Tensor,
    sign: AnyNDArray | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """
    Mean and variance [F, m] of ``z'e`` for e ~ N(u, I) with the sites of some z'e divided out.

    What is left of e has precision ``I - sum_k w_k z_k z_k'`` and mean times precision
    ``u - sum_k s_k z_k``. NaN where that is no precision.

    :param predicted: z of the rows predicted, [F, m, P].
    :param out: z of the rows left out, [F, k, P].
    :param u: [P].
    :param root_weight: square roots of the w_k, signs left out, [F, k].
    :param shift: s_k, [F, k].
    :param sign: of the w_k, 1 or -1, [F, k]; None where none is negative.
    """
    predicted, out, u, r, s = (
        tf.convert_to_tensor(a) for a in (predicted, out, u, root_weight, shift)
    )
    P, k = int(out.shape[2]), int(out.shape[1])
    half = r[..., None] * out  # [F, k, P]
    shifted = u - tf.linalg.matvec(out, s, transpose_a=True)  # [F, P]
    if k > P:
        signed = half if sign is None else half * tf.constant(sign[..., None], half.dtype)
        A = tf.eye(P, dtype=out.dtype) - tf.matmul(signed, half, transpose_a=True)
        root = tf.linalg.cholesky(A)
        T = tf.linalg.triangular_solve(root, tf.linalg.matrix_transpose(predicted))
        e = tf.linalg.triangular_solve(root, shifted[..., None])
        mean = tf.matmul(T, e, transpose_a=True)[..., 0]
        return mean, tf.reduce_sum(tf.square(T), axis=1)
    ends = tf.concat([predicted, shifted[:, None, :]], axis=1)  # [F, m + 1, P]
    mean, var = tf.linalg.matvec(predicted, shifted), tf.reduce_sum(tf.square(predicted), axis=2)
    positive = half if sign is None else half * tf.constant(sign[..., None] > 0.0, half.dtype)
    eye, across = tf.eye(k, dtype=out.dtype), tf.matmul(positive, ends, transpose_b=True)
    A = eye - tf.matmul(positive, positive, transpose_b=True)
    if sign is not None:
        # (I + A'A)^-1 = I - A' (I + A A')^-1 A: without negative weights there is more precision,
        # so that these go first
        negative = half - positive
        root = tf.linalg.cholesky(eye + tf.matmul(negative, negative, transpose_b=True))
        T = tf.linalg.triangular_solve(root, tf.matmul(negative, ends, transpose_b=True))
        R = tf.linalg.triangular_solve(root, tf.matmul(negative, positive, transpose_b=True))
        mean -= tf.reduce_sum(T[..., :-1] * T[..., -1:], axis=1)
        var -= tf.reduce_sum(tf.square(T[..., :-1]), axis=1)
        across -= tf.matmul(R, T, transpose_a=True)
        A += tf.matmul(R, R, transpose_a=True)
    # (I - A'A)^-1 = I + A' (I - A A')^-1 A
    B = tf.linalg.triangular_solve(tf.linalg.cholesky(A), across)  # [F, k, m + 1]
    mean += tf.reduce_sum(B[..., :-1] * B[..., -1:], axis=1)
    return mean, var + tf.reduce_sum(tf.square(B[..., :-1]), axis=1)


def _moved(mean: AnyNDArray, to: AnyNDArray) -> None:
    """Means as they are known better, where they are."""
    good = np.all(np.isfinite(to), axis=1)
    mean[good] = to[good]


def marginal_cavities(mean: AnyNDArray, var: AnyNDArray, sites: Sites, prior: AnyNDArray) -> Cavity:
    """
    Every row without its own site, where the predictor's marginals are all that is known.

    :param mean: m(x) left out, [N, L].
    :param var: [N, L].
    :param sites: of the rows.
    :param prior: variances, [N, L].
    """
    rest = 1.0 - sites.weight * var
    with np.errstate(divide="ignore", invalid="ignore"):
        found, spread = (mean - var * sites.shift) / rest, var / rest
    bad = ~np.all((spread >= 0.0) & np.isfinite(spread) & np.isfinite(found), axis=1)
    found[bad], spread[bad] = 0.0, prior[bad]
    return Cavity(found, spread, mean, bad)


def _root(covariance: AnyNDArray) -> AnyNDArray:
    """R with R R' a covariance beside which the prior's is I."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        root: AnyNDArray = vectors * np.sqrt(np.maximum(values, 1e-14))
        return root


_MAX_BETWEEN = 3000
"""Inducing values times predictors beyond which predictors are left apart."""
_ROWS = 20_000
"""Rows that stand for all, where there are more."""
_NOTHING = 1e-9
"""Curvature, against the largest, which rounding leaves."""


def between_predictors(
    rows: Rows, likelihood: Likelihood, values: Values, q: GaussianPosterior
) -> AnyNDArray | None:
    r"""
    What is to be added to the covariance of each predictor's inducing values, [L, P, P].

    q has the predictors of a likelihood independent, as a site each leaves them: the variance of
    each is that with the others known, which is too little where they can stand in for each other,
    as logits of classes can. How the means of all of them respond to a slight pull says what it is
    with the others unknown: :math:`H^{-1}`, :math:`H = I + \sum_n C_n \otimes \phi_n \phi_n'` and
    C_n row n's curvature in the means of its predictors (linear response; Giordano, Broderick &
    Jordan 2018). It is never less.

    Where only differences of predictors matter, as under a softmax, of components that enter all of
    them the data leave open what all have in common: that is no news of the effect, which is told
    against the other predictors', and nothing is added to these components.

    :param rows: of the fit; of rows that several processes share nothing is asked.
    :param likelihood: at its parameters.
    :param values: of the kernels' parameters.
    :param q: over whitened inducing values.
    :return: None where there is nothing to add, or no telling: of one predictor, of classes with
        the same terms, of rows that are not here, of too many inducing values.
    """
    L = q.mean.shape[1]
    if L == 1 or type(rows) is not Rows or L * len(q.mean) > _MAX_BETWEEN:
        return None
    some = rows.known(_ROWS)
    parts = [
        mean_curvature(likelihood, some.X[at], mean + some.mean[at], var, some.Y[at])
        for at, mean, var in some.marginals(values, q)
    ]
    curvature = np.concatenate(parts) * (rows.number / some.number)
    least = _NOTHING * np.max(np.abs(curvature))
    if not np.max(np.abs(curvature * (1.0 - np.eye(L)))) > least:
        return None
    posterior = RowPosterior.of_rows(some, values, q)
    differences_alone = np.max(np.abs(curvature.sum(axis=2))) <= least
    shared = np.all(posterior.enters, axis=1) & differences_alone
    if np.all(shared):
        return None
    means = CoupledMeans(posterior.enters, np.zeros((some.number, L)), curvature)
    for start in range(0, some.number, _TOGETHER):
        which = np.arange(start, min(start + _TOGETHER, some.number))
        means.add(which, posterior.features(which)[0])
    if not means.factorise():
        return None
    found = means.beyond()
    found[:, shared] = 0.0
    found[:, :, shared] = 0.0
    return found
