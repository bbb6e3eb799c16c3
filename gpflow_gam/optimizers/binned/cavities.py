"""The posterior of a row from the other rows: sites of some rows divided out."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.linalg import cholesky, lapack, solve_triangular

from ...kernels.correlation import Values
from ...likelihoods.expectations import mean_curvature
from ...posteriors.inducing import covariance_root
from ...storage import ALONE, Communicator, blocks
from .evidence import GaussianPosterior, features_at_bins, slices, times
from .passes import Rows

_ENTRIES = 2**21  # number of entries of the largest array of a batch of folds


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some folds, padded to equal numbers of rows."""

    out: AnyNDArray  # rows left out, [F, k]
    is_out: AnyNDArray  # whether these are rows, and no padding, [F, k]
    predicted: AnyNDArray  # rows predicted, [F, m]
    is_predicted: AnyNDArray  # whether these are rows, [F, m]
    number: int  # of rows, N

    @functools.cached_property
    def sums(self) -> Any:
        """A sparse matrix [N, F k] that adds up what folds have for the rows they leave out."""
        places, columns = np.ravel(self.out), np.arange(self.out.size)
        values = np.ravel(self.is_out).astype(np.float64)
        return scipy.sparse.csr_matrix((values, (places, columns)), (self.number, len(columns)))


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Folds: rows left out together, and rows predicted without them, each row once (Wood 2024)."""

    out: tuple[AnyNDArray, ...]  # rows left out, one array a fold
    predicted: tuple[AnyNDArray, ...]  # rows predicted, one array a fold
    number: int  # of rows, N

    def __len__(self) -> int:
        return len(self.out)

    @classmethod
    def of_labels(cls, labels: Any) -> Neighbourhoods:
        """Folds that are groups of rows with the same label [N]."""
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
        """A fold for each row, from lists of its neighbours; only ``kept`` rows [n] are there."""
        number = len(lists)
        place = np.full(number, -1)
        rows = np.arange(number) if kept is None else kept
        place[rows] = np.arange(len(rows))
        out = []
        for n in rows:
            near = np.asarray(lists[n])
            whole = near.ndim == 1 and (near.dtype.kind in "iu" or not near.size)
            if not (whole and np.all((near >= 0) & (near < number))):
                raise ValueError(
                    f"groups: the neighbourhood of row {n} must be indices of rows, which count "
                    f"from 0 to {number - 1}; got {near}."
                )
            near = near.astype(np.int64)
            places = place[np.union1d(near, [n])]
            out.append(places[places >= 0])
        if all(len(rest) == len(rows) for rest in out):
            raise ValueError(
                "groups: every neighbourhood has all rows, so that nothing is left to predict "
                "from; give smaller ones."
            )
        return cls(tuple(out), tuple(np.arange(len(rows))[:, None]), len(rows))

    @classmethod
    def of(cls, groups: Any, number: int, kept: AnyNDArray | None = None) -> Neighbourhoods:
        """Folds from users' labels or lists, one a row, once they are checked."""
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
        plain = isinstance(groups, (list, tuple, pd.Categorical))
        labels = pd.Series(groups if plain else np.asarray(groups))
        return cls.of_labels(labels if kept is None else labels.iloc[kept])

    @classmethod
    def of_rows(cls, number: int) -> Neighbourhoods:
        parts = tuple(np.arange(number)[:, None])
        return cls(parts, parts, number)

    @property
    def members(self) -> tuple[Any, Any]:
        """Sparse matrices [F, N] that add up rows left out of each fold, and rows predicted."""
        matrices = []
        for parts in (self.out, self.predicted):
            columns, ends = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
            shape = len(parts), self.number
            matrices.append(scipy.sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape))
        return matrices[0], matrices[1]

    def some(self, which: AnyNDArray) -> Neighbourhoods:
        out, predicted = (tuple(part[i] for i in which) for part in (self.out, self.predicted))
        return Neighbourhoods(out, predicted, self.number)

    def batches(self, width: int) -> Iterator[Batch]:
        """All folds, sorted by size; ``width`` is the number of features of a row."""
        sizes = np.array([len(o) + len(p) for o, p in zip(self.out, self.predicted)])
        order = np.argsort(sizes, kind="stable")
        start = 0
        while start < len(order):
            # sizes ascend: the last fold of a batch is the largest
            stop = start + 1
            while stop < len(order):
                if (stop + 1 - start) * int(sizes[order[stop]]) * width > _ENTRIES:
                    break
                stop += 1
            which = order[start:stop]
            out, predicted = ([part[i] for i in which] for part in (self.out, self.predicted))
            yield Batch(*_padded(out), *_padded(predicted), self.number)
            start = stop

    @property
    def digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for part in (*self.out, *self.predicted):
            digest.update(np.int64(len(part)).tobytes())
            digest.update(np.ascontiguousarray(part, dtype=np.int64).tobytes())
        return digest.hexdigest()


def _padded(parts: Sequence[AnyNDArray]) -> tuple[AnyNDArray, AnyNDArray]:
    """Arrays of indices as one, [F, k], and whether its entries are theirs."""
    most = max(len(part) for part in parts)
    indices = np.zeros((len(parts), most), dtype=np.int64)
    mask = np.zeros((len(parts), most), dtype=bool)
    for row, flags, part in zip(indices, mask, parts):
        row[: len(part)] = part
        flags[: len(part)] = True
    return indices, mask


def _are_lists(groups: Any) -> bool:
    """True if each row has a list of rows rather than a label, as tuples and Series are."""
    kind = getattr(getattr(groups, "dtype", None), "kind", "O")
    if isinstance(groups, pd.Series) or kind != "O":
        return False
    return all(isinstance(g, (np.ndarray, list, range)) for g in groups)


MAX_SIZE = 6000  # most inducing values times predictors for which predictors are coupled
_ENTRIES_OF_STEP = 2**22  # number of entries of an array of whitened features


class CoupledMeans:
    """Means of several predictors without some rows, by one Newton step of all predictors."""

    # At given covariances the means are mu = sum_n g_n x phi_n (x: Kronecker's product), g_n [N, L]
    # being slopes of row n's expectation, with curvature C_n [N, L, L] in all means. With
    # H = I + sum_n C_n x phi_n phi_n' the step without rows A is
    # -(H - sum_A C_n x phi_n phi_n')^-1 sum_A g_n x phi_n.
    # enters [P, L] says which features enter a predictor.
    def __init__(self, enters: AnyNDArray, slopes: AnyNDArray, curvature: AnyNDArray) -> None:
        self._slopes, self._curvature = slopes, curvature
        self._enters = enters
        self._P, self._L = P, L = enters.shape
        self._H = np.zeros((L, P, L, P))
        self._root: AnyNDArray | None = None

    def add(self, which: AnyNDArray, phi: AnyNDArray) -> None:
        """Add rows with features ``phi`` [P, n] to H."""
        C = self._curvature[which]
        features = [phi * enters[:, None] for enters in self._enters.T]
        for i in range(self._L):
            for j in range(i, self._L):
                part = (features[i] * C[:, i, j]) @ features[j].T
                self._H[i, :, j, :] += part
                if i != j:
                    self._H[j, :, i, :] += part.T

    def factorise(self, communicator: Communicator = ALONE) -> bool:
        """Factorise H, after all rows; whether it is positive definite, as at the optimum."""
        size = self._L * self._P
        (self._H,) = communicator.total([self._H])
        H = self._H.reshape(size, size)
        try:
            self._root = cholesky(H + np.eye(size), lower=True)
        except np.linalg.LinAlgError:
            return False
        return True

    def excess_covariance(self) -> AnyNDArray:
        """Blocks of H^-1 (Giordano et al. 2018) less inverses of H's blocks, [L, P, P]."""
        P, L = self._P, self._L
        whole, _ = lapack.dpotri(self._root, lower=1)  # a lower triangle
        excess = np.zeros((L, P, P))
        for i in range(L):
            at = slice(i * P, (i + 1) * P)
            together = np.tril(whole[at, at])
            together += np.tril(together, -1).T
            excess[i] = together - np.linalg.inv(self._H[i, :, i, :] + np.eye(P))
        return 0.5 * (excess + np.swapaxes(excess, 1, 2))

    def one_by_one(self, which: AnyNDArray, phi: AnyNDArray, mean: AnyNDArray) -> AnyNDArray:
        """Means [n, L] of rows with features ``phi`` [P, n], each without itself, or NaN."""
        G = np.empty((len(which), self._L, self._L))
        step = max(1, _ENTRIES_OF_STEP // (self._L**2 * self._P))
        for at in blocks(len(which), step):
            T = self._whitened(phi[:, at])
            G[at] = np.einsum("ipn,jpn->nij", T, T, optimize=True)
        g, C = self._slopes[which], self._curvature[which]
        pull = np.einsum("nij,nj->ni", G, g)
        A = np.eye(self._L) - np.einsum("nij,njk->nik", G, C)
        good = np.linalg.slogdet(A)[0] > 0.0
        A[~good] = np.eye(self._L)
        without: AnyNDArray = mean - np.linalg.solve(A, pull[..., None])[..., 0]
        without[~good] = np.nan
        return without

    def without(
        self, out: AnyNDArray, phi_out: AnyNDArray, phi: AnyNDArray, mean: AnyNDArray
    ) -> AnyNDArray:
        """Means [m, L] of rows with features ``phi`` [P, m] without rows ``out``, or NaN."""
        L, k = self._L, len(out)
        T, S = self._whitened(phi), self._whitened(phi_out)
        g, C = self._slopes[out], self._curvature[out]
        pull = np.einsum("ipn,ni->p", S, g, optimize=True)  # sum of g (x) phi, whitened
        lever = np.einsum("nij,jpn->inp", C, S, optimize=True).reshape(L * k, -1)
        U = S.transpose(0, 2, 1).reshape(L * k, -1)
        few = k <= self._P  # (I - U V)^-1 = I + U (I - V U)^-1 V
        A = np.eye(L * k) - lever @ U.T if few else np.eye(L * self._P) - U.T @ lever
        if np.linalg.slogdet(A)[0] <= 0.0:
            return np.full_like(mean, np.nan)
        step = np.linalg.solve(A, lever @ pull if few else pull)
        step = pull + U.T @ step if few else step
        return mean - np.einsum("ipn,p->ni", T, step, optimize=True)

    def _whitened(self, phi: AnyNDArray) -> AnyNDArray:
        """Features of each predictor in coordinates in which H is one, [L, L P, n]."""
        whitened = []
        for i in range(self._L):
            whole = np.zeros((self._L * self._P, phi.shape[1]))
            whole[i * self._P : (i + 1) * self._P] = phi * self._enters[:, i, None]
            whitened.append(solve_triangular(self._root, whole, lower=True))
        return np.stack(whitened)


_BLOCK = 2**13  # number of rows whose features are in memory at a time


@dataclasses.dataclass(frozen=True)
class Sites:
    """Normal densities that stand for the likelihood of each row."""

    weight: AnyNDArray  # precisions w_n, [N, L]
    shift: AnyNDArray  # products of precision and mean, m(x) left out, [N, L]
    curvature: AnyNDArray | None = None  # of several predictors, in all their means, [N, L, L]


class Cavity(NamedTuple):
    """The predictor of some rows without some sites, m(x) left out."""

    mean: AnyNDArray  # [n, L]
    var: AnyNDArray  # [n, L]
    posterior: AnyNDArray  # the mean with all sites, [n, L]
    untrusted: AnyNDArray  # rows without a valid variance, which have the prior's moments, [n]


def sites_of(
    rows: Rows, likelihood: Likelihood, values: Values, q: GaussianPosterior, signed: bool = True
) -> tuple[Sites, GaussianPosterior]:
    """Sites of all rows at q, and their posterior, q at the optimum: see :meth:`Rows.sites`."""
    shape = rows.number, rows.num_outputs
    weight, shift, curvature = np.zeros(shape), np.zeros(shape), []
    for at, mean, var in rows.marginals(values, q):
        _, weight[at], shift[at] = rows.sites(likelihood, at, mean, var, signed)
        if rows.num_outputs > 1:
            F = mean + rows.mean[at]
            curvature.append(mean_curvature(likelihood, rows.X[at], F, var, rows.Y[at]))
    sites = Sites(weight, shift, np.concatenate(curvature) if curvature else None)
    return sites, rows.posterior(values, q.roots, weight, shift)


class RowPosterior:
    """The predictor at rows, ``phi_n' V`` plus a residual; V: mean [P, L], covariance [L, P, P]."""

    def __init__(
        self,
        features: Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]],
        mean: AnyNDArray,
        covariance: AnyNDArray,
        enters: AnyNDArray,
    ) -> None:
        self.features, self.enters = features, enters
        self._moments = mean, covariance
        self._roots = [covariance_root(S) for S in covariance]
        # V = R (R^-1 mean + e), e standard normal
        self._u = [np.linalg.lstsq(R, m, rcond=None)[0] for R, m in zip(self._roots, mean.T)]

    @classmethod
    def of_rows(cls, rows: Rows, values: Values, q: GaussianPosterior) -> RowPosterior:
        """The predictor at rows in bins."""
        at_bins = features_at_bins(rows.components, values, q.roots)
        residuals = [prior - np.sum(np.square(phi), axis=0) for phi, prior in at_bins]
        L = q.mean.shape[1]
        entered = np.array([np.isin(np.arange(L), c.outputs_of(L)) for c in rows.components], float)

        def features(which: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
            parts, residual = [], np.zeros((len(which), L))
            for (phi, _), var, component, outputs in zip(
                at_bins, residuals, rows.components, entered
            ):
                code = component.bins.codes[which]
                m = None if component.multiplier is None else component.multiplier[which]
                parts.append(times(phi[:, code], m))
                residual += times(var[code], m, m)[:, None] * outputs
            return np.concatenate(parts), np.maximum(residual, 0.0)

        enters = np.repeat(entered, [len(root) for root in q.roots], axis=0)
        return cls(features, q.mean, q.covariance, enters)

    def one_by_one(self, sites: Sites) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """Blocks of rows by number, and the cavity of each without its own site."""
        number, L = sites.weight.shape
        coupled = self._coupled(sites)
        for at in blocks(number, _BLOCK):
            which = np.r_[at]
            phi, residual = self.features(which)
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
                _replace(mean, coupled.one_by_one(which, phi, posterior))
            yield which, self.trusted(mean, var, posterior, phi, residual)

    def by_neighbourhood(
        self, sites: Sites, neighbourhoods: Neighbourhoods
    ) -> Iterator[tuple[AnyNDArray, Cavity]]:
        """Blocks of rows by number, and the cavity of each without the sites of its fold."""
        L, signed = sites.weight.shape[1], bool(np.any(sites.weight < 0.0))
        coupled = self._coupled(sites)
        for batch in neighbourhoods.batches(len(self._roots[0])):
            which = batch.predicted[batch.is_predicted]
            union = np.unique(np.concatenate([batch.out[batch.is_out], which]))
            phi, residual = self.features(union)
            # places in the union; padding may be none of its rows
            out = np.where(batch.is_out, np.searchsorted(union, batch.out), 0)
            predicted = np.where(batch.is_predicted, np.searchsorted(union, batch.predicted), 0)
            at = predicted[batch.is_predicted]
            mean, var, posterior = (np.zeros((len(which), L)) for _ in range(3))
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                z = self.of(i, phi).T @ root
                w = np.where(batch.is_out, sites.weight[batch.out, i], 0.0)
                s = np.where(batch.is_out, sites.shift[batch.out, i], 0.0)
                z_p, chosen = z[predicted], batch.is_predicted
                spread, center = divided_out(z_p, z[out], u, w, s, signed)
                mean[:, i] = np.einsum("fmp,fp->fm", z_p, center)[chosen]
                var[:, i] = np.einsum("fmp,fpm->fm", z_p, spread)[chosen]
                posterior[:, i] = z[at] @ u
            if coupled is not None:
                sizes = batch.is_predicted.sum(axis=1).tolist()
                for f, fold in enumerate(slices(sizes)):
                    left_out = batch.out[f][batch.is_out[f]]
                    phi_out = phi[:, out[f][batch.is_out[f]]]
                    moved = coupled.without(left_out, phi_out, phi[:, at[fold]], posterior[fold])
                    _replace(mean[fold], moved)
            yield which, self.trusted(mean, var, posterior, phi[:, at], residual[at])

    def moments(self, output: int) -> tuple[AnyNDArray, AnyNDArray]:
        """Mean [P] and covariance [P, P] of V for one predictor."""
        mean, covariance = self._moments
        return mean[:, output], covariance[output]

    def without(
        self, output: int, phi: AnyNDArray, weight: AnyNDArray, shift: AnyNDArray
    ) -> tuple[AnyNDArray, AnyNDArray] | None:
        """Mean and covariance of V without sites of rows with features ``phi`` [P, k], or None."""
        root, u = self._roots[output], self._u[output]
        z = root.T @ self.of(output, phi)
        try:
            factor = np.linalg.cholesky(np.eye(len(z)) - (z * weight) @ z.T)
        except np.linalg.LinAlgError:
            return None
        half = np.linalg.solve(factor, root.T)  # [P, P]; the covariance is half' half
        return half.T @ np.linalg.solve(factor, u - z @ shift), half.T @ half

    def of(self, output: int, phi: AnyNDArray) -> AnyNDArray:
        """Features [P, n] of one predictor."""
        enters = self.enters[:, output]
        return phi if np.all(enters) else phi * enters[:, None]

    def trusted(
        self,
        mean: AnyNDArray,
        var: AnyNDArray,
        posterior: AnyNDArray,
        phi: AnyNDArray,
        residual: AnyNDArray,
    ) -> Cavity:
        """Moments [n, L] without sites; the prior's where these are not valid."""
        bad = ~np.all((var >= 0.0) & np.isfinite(var) & np.isfinite(mean), axis=1)
        mean[bad], var[bad] = 0.0, np.square(phi[:, bad]).T @ self.enters
        return Cavity(mean, var + residual, posterior, bad)

    def _coupled(self, sites: Sites) -> CoupledMeans | None:
        """Coupled means of several predictors; None of one, or of too many."""
        P = len(self._roots[0])
        if sites.curvature is None or P * len(self._roots) > MAX_SIZE:
            return None
        number = len(sites.weight)
        means = np.zeros_like(sites.weight)
        parts = [np.r_[at] for at in blocks(number, _BLOCK)]
        for which in parts:
            phi, _ = self.features(which)
            for i, (root, u) in enumerate(zip(self._roots, self._u)):
                means[which, i] = (root.T @ self.of(i, phi)).T @ u
        coupled = CoupledMeans(self.enters, sites.shift - sites.weight * means, sites.curvature)
        for which in parts:
            coupled.add(which, self.features(which)[0])
        return coupled if coupled.factorise() else None


def divided_out(
    predicted: AnyNDArray,
    out: AnyNDArray,
    u: AnyNDArray,
    weight: AnyNDArray,
    shift: AnyNDArray,
    signed: bool,
) -> tuple[AnyNDArray, AnyNDArray]:
    """Covariance C times z of rows, [F, P, m], and mean [F, P] of e ~ N(u, I) without sites."""
    # C^-1 = I - sum_k w_k z_k z_k', and C^-1 times the mean is u - sum_k s_k z_k. Where weights of
    # any rows are negative, signed, nothing may be left: NaN. Shapes: z of rows predicted [F, m, P]
    # and left out [F, k, P], weights and shifts [F, k].
    half, turned = weight[..., None] * out, out.swapaxes(1, 2)
    shifted = u - np.matmul(shift[:, None, :], out)
    ends = np.concatenate([predicted, shifted], axis=1).swapaxes(1, 2)  # [F, P, m + 1]
    if out.shape[1] <= out.shape[2] and not signed:
        # (I - Z'W Z)^-1 = I + Z' (I - W Z Z')^-1 W Z
        A = np.eye(out.shape[1]) - np.matmul(half, turned)
        ends = ends + np.matmul(turned, np.linalg.solve(A, np.matmul(half, ends)))
    else:
        precision = np.eye(out.shape[2]) - np.matmul(turned, half)
        if signed:
            precision[~(np.linalg.eigvalsh(precision)[:, 0] > 0.0)] = np.nan
        ends = np.linalg.solve(precision, ends)
    return ends[..., :-1], ends[..., -1]


def _replace(mean: AnyNDArray, better: AnyNDArray) -> None:
    """Replace rows of means by those rows of ``better`` that are finite."""
    good = np.all(np.isfinite(better), axis=1)
    mean[good] = better[good]


def marginal_cavities(mean: AnyNDArray, var: AnyNDArray, sites: Sites, prior: AnyNDArray) -> Cavity:
    """Cavities of rows without their own sites, from marginals and prior variances [N, L] alone."""
    rest = 1.0 - sites.weight * var
    with np.errstate(divide="ignore", invalid="ignore"):
        center, spread = (mean - var * sites.shift) / rest, var / rest
    bad = ~np.all((spread >= 0.0) & np.isfinite(spread) & np.isfinite(center), axis=1)
    center[bad], spread[bad] = 0.0, prior[bad]
    return Cavity(center, spread, mean, bad)


_MAX_BETWEEN = 3000  # most inducing values times predictors whose covariances are computed
_ROWS = 20_000  # number of rows that stand for all
_NOTHING = 1e-9  # curvature relative to the largest that may be rounding


def between_predictors(
    rows: Rows, likelihood: Likelihood, values: Values, q: GaussianPosterior
) -> AnyNDArray | None:
    """Covariance of each predictor's inducing values beyond that of q, [L, P, P], or None."""
    # In q predictors are independent: the variance of each is that with the others known, which is
    # too small where they can replace each other, as logits of classes can. With the others unknown
    # it is the linear response of all means (Giordano, Broderick & Jordan 2018). Where only
    # differences of predictors matter, as under a softmax, nothing is added to components that
    # enter all of them.
    L, communicator = q.mean.shape[1], rows.communicator
    if L == 1 or not communicator.open or L * len(q.mean) > _MAX_BETWEEN:
        return None
    some = rows.known(_ROWS)
    parts = [
        mean_curvature(likelihood, some.X[at], mean + some.mean[at], var, some.Y[at])
        for at, mean, var in some.marginals(values, q)
    ]
    curvature = np.concatenate([np.zeros((0, L, L)), *parts]) * (rows.number / some.number)
    parts = [curvature, curvature * (1.0 - np.eye(L)), curvature.sum(axis=2)]
    sizes = [np.max(np.abs(part), initial=0.0) for part in parts]
    largest, coupling, common = np.max(communicator.gathered(sizes), axis=0)
    if not coupling > _NOTHING * largest:
        return None
    posterior = RowPosterior.of_rows(some, values, q)
    differences_alone = common <= _NOTHING * largest
    shared = np.all(posterior.enters, axis=1) & differences_alone
    if np.all(shared):
        return None
    means = CoupledMeans(posterior.enters, np.zeros((len(curvature), L)), curvature)
    for at in blocks(len(curvature), _BLOCK):
        means.add(np.r_[at], posterior.features(np.r_[at])[0])
    if not means.factorise(communicator):
        return None
    excess = means.excess_covariance()
    excess[:, shared] = 0.0
    excess[:, :, shared] = 0.0
    return excess
