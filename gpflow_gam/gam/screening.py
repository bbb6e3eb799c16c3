"""Interactions that a GAM of main effects lacks, found without fitting them one by one."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from check_shapes import check_shapes
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Likelihood
from scipy.linalg import cholesky, solve_triangular

from ..errors import check_count
from ..kernels.correlation import in_double_precision
from ..likelihoods.expectations import expectations
from . import GAM
from .components.kernels import INTERACTION_LENGTHSCALE, interaction_margin
from .components.plan import NUM_INDUCING, Margin
from .families import Family
from .fits import FittedGAM
from .fits.reading import same_values, with_response
from .frames.table import Table
from .terms import Surv, Terms, factor, linear, s, ti
from .terms.base import Column, Term, as_column, as_columns
from .terms.smooth import DEFAULT, Interaction

__all__ = ["anova", "screen_interactions"]


MAX_RANK = 64
"""Features of an interaction: more than a product of smooth kernels has that are of any size."""
_NEGLIGIBLE = 1e-5  # prior variance, against the whole, of features that are left out
_GRID = np.logspace(-3.0, 7.0, 41)
"""Variances that are tried, against the one at which the prior is worth as much as the data."""
_REFINEMENTS = 3
_UNNOTICED = 1e-12  # share of an observation's precision that main effects may take up unnoticed
_FAR = 3.0  # standard deviations that a row is away at most, where log p is not concave
_FORMS = ("smooth", "own", "line", "levels", "means")
"""Components that are the main effect of a column."""


@dataclasses.dataclass(frozen=True)
class Features:
    """Functions b_r whose products add up to a kernel: ``k(x, x') = sum_r b_r(x) b_r(x')``."""

    values: AnyNDArray  # b_r(x_n), [N, R]
    sizes: AnyNDArray  # E[b_r(x)^2], [R], the largest first

    def leading(self, max_rank: int) -> Features:
        """Those of most prior variance, without the negligible ones."""
        order = np.argsort(-self.sizes, kind="stable")[:max_rank]
        order = order[self.sizes[order] > _NEGLIGIBLE * self.sizes.sum()]
        return Features(self.values[:, order], self.sizes[order])


@in_double_precision()
def margin_features(margin: Margin, x: AnyNDArray) -> Features:
    """The leading eigenfunctions of a column's part in an interaction at ``x`` [N]."""
    # Nystroem's method on the nodes that stand for the column's distribution (Rasmussen & Williams
    # 2006, section 4.3.2), exact for levels.
    nodes = np.array(margin.nodes)[:, None]
    root = np.sqrt(np.array(margin.weights))
    kernel = interaction_margin(margin, column=0, start=INTERACTION_LENGTHSCALE[0])
    K = kernel(np.concatenate([nodes, x[:, None]]), nodes).numpy()
    among, across = K[: len(nodes)], K[len(nodes) :]
    sizes, vectors = np.linalg.eigh(root[:, None] * among * root)
    sizes, vectors = sizes[::-1][:MAX_RANK], vectors[:, ::-1][:, :MAX_RANK]
    kept = sizes > _NEGLIGIBLE * sizes.sum()
    sizes, vectors = sizes[kept], vectors[:, kept]
    return Features(across @ (root[:, None] * vectors / np.sqrt(sizes)), sizes)


def product(parts: tuple[Features, ...], max_rank: int = MAX_RANK) -> Features:
    """The leading features of a product of kernels, on columns taken as independent."""
    features = parts[0]
    for part in parts[1:]:
        sizes = np.outer(features.sizes, part.sizes).ravel()
        values = features.values[:, :, None] * part.values[:, None, :]
        features = Features(values.reshape(len(values), -1), sizes).leading(max_rank)
    return features


@check_shapes("scores: [R]", "curvatures: [R]")
def evidence_gain(scores: AnyNDArray, curvatures: AnyNDArray) -> tuple[float, float]:
    """Gain in log evidence by a component whose variance is optimised, and that variance."""
    # Beside a Gaussian model of precision P = (K + W^-1)^-1 a component of covariance v B B' adds
    #     sum_r [v c_r^2 / (1 + v lambda_r) - log(1 + v lambda_r)] / 2
    # (Rasmussen & Williams 2006, eq. 2.30, and the matrix determinant lemma), where B'P B = Q
    # diag(lambda) Q' and c = Q'B'alpha, alpha = P (y - m): its slope at v = 0 is the score test's
    # statistic.
    largest = float(np.max(curvatures, initial=0.0))
    if largest <= 0.0:
        return 0.0, 0.0
    grid = _GRID / largest
    for _ in range(1 + _REFINEMENTS):
        shrinkage = 1.0 + grid[:, None] * curvatures
        terms = grid[:, None] * scores**2 / shrinkage - np.log(shrinkage)
        gains = 0.5 * np.sum(terms, axis=1)
        best = int(np.argmax(gains))
        gain, variance = float(gains[best]), float(grid[best])
        if gain <= 0.0:
            return 0.0, 0.0
        ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        grid = np.append(np.geomspace(*ends, 16), variance)
        grid.sort()
    return gain, variance


@dataclasses.dataclass(frozen=True)
class Predictor:
    """One predictor's part of :class:`Expansion`: ``P = R (I - E E') R``."""

    root: AnyNDArray  # R, square roots of the observations' precisions W, [N]
    alpha: AnyNDArray  # the gradient of the log-likelihood, [N]
    basis: AnyNDArray  # E, [N, R]

    def residual(self, B: AnyNDArray) -> AnyNDArray:
        """(I - E E') R B, [N, R]."""
        C = self.root[:, None] * B
        return C - self.basis @ (self.basis.T @ C)

    def precision(self, B: AnyNDArray) -> AnyNDArray:
        """B'P B, [R, R]."""
        C = self.root[:, None] * B
        shared = self.basis.T @ C
        inner: AnyNDArray = C.T @ C - shared.T @ shared
        return inner

    def extended(self, B: AnyNDArray, variance: float) -> Predictor:
        """A copy with a component of covariance ``variance B B'`` beside it."""
        inner = self.precision(B)
        inner[np.diag_indices_from(inner)] += 1.0 / variance
        L = cholesky(inner, lower=True)
        new = solve_triangular(L, self.residual(B).T, lower=True).T
        shift = new @ solve_triangular(L, B.T @ self.alpha, lower=True)
        alpha = self.alpha - self.root * shift
        return Predictor(self.root, alpha, np.hstack([self.basis, new]))


class Expansion(NamedTuple):
    """A Gaussian model of some rows given all others, beside which components are scored."""

    # With pseudo-observations of precisions W, P = (K + W^-1)^-1 is the precision of the rows under
    # the components so far, and alpha = P (pseudo-observations less their expectation). Predictors
    # are taken as independent a posteriori, as the fit's own sites are.

    predictors: tuple[Predictor, ...]

    def project(self, B: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
        """Scores and curvatures [K] of a component with features B [N, R]: see `evidence_gain`."""
        parts = [(p, *np.linalg.eigh(p.precision(B))) for p in self.predictors]
        scores = np.concatenate([Q.T @ (B.T @ p.alpha) for p, _, Q in parts])
        return scores, np.concatenate([np.maximum(sizes, 0.0) for _, sizes, _ in parts])

    def extended(self, B: AnyNDArray, variance: float) -> Expansion:
        """The model with one component more, the components before and W left as they are."""
        return Expansion(tuple(p.extended(B, variance) for p in self.predictors))


def expand(fit: FittedGAM, rows: AnyNDArray) -> Expansion:
    """The Gaussian model of rows [n] at a fit's posterior, at its hyperparameters."""
    # Observations count as pseudo-observations whose precision and location are those of the
    # expected log-likelihood's second and first derivatives (Opper & Archambeau 2009; Khan & Lin
    # 2017); for Gaussian data they are the observations themselves, and nothing is approximated but
    # what inducing inputs approximate. The main effects are informed by all rows. What is returned
    # is of rows given the others: a gain in its evidence is the gain in log p(y[rows] | y[others])
    # by a component that acts on rows alone.
    moments = fit.moments
    gradient, weight = _sites(fit)
    phi = moments.all_features(fit.X[rows])[0]
    enters = np.repeat(moments.entering(), moments.inducing_variable.sizes, axis=0) > 0.0
    predictors = []
    for precision, g, w, own in zip(_precisions(fit, weight), gradient.T, weight.T, enters.T):
        root = np.sqrt(w[rows])
        factor_of_all = cholesky(precision[np.ix_(own, own)], lower=True)
        half = solve_triangular(factor_of_all, phi[own] * root, lower=True).T
        predictors.append(Predictor(root, g[rows], _leading(half)))
    return Expansion(tuple(predictors))


def _precisions(fit: FittedGAM, weight: AnyNDArray) -> AnyNDArray:
    """The posterior's precision [L, P, P], were each component in each predictor."""
    size = sum(len(c.inducing) for c in fit.spec.components)
    precisions = np.tile(np.eye(size), (fit.num_predictors, 1, 1))
    if not fit.data.complete and fit.solution is not None:
        precisions += fit.solution.q.precision  # of rows that are not here, too
    else:
        moments = fit.moments
        for X, w in zip(fit.blocks(fit.X), fit.blocks(weight)):
            phi = moments.all_features(X)[0]
            for precision, own in zip(precisions, w.T):
                precision += (phi * own) @ phi.T
    return precisions


def _sites(fit: FittedGAM) -> tuple[AnyNDArray, AnyNDArray]:
    """Gradients and precisions of all rows, [N, L] each, weights included."""
    parts = [
        expectations(fit.likelihood, X, *fit.predict_link(X), Y, ())
        for X, Y in zip(fit.blocks(fit.X), fit.blocks(fit.Y))
    ]
    gradients = np.concatenate([part.slope for part in parts])
    precisions = np.concatenate([part.precision for part in parts])
    # where log p is not concave precisions may be next to 0 or below, and gains have no bound
    open_ = precisions.min(axis=0) < -_NEGLIGIBLE * precisions.max(axis=0)
    precisions = np.maximum(precisions, np.where(open_, np.square(gradients / _FAR), 0.0))
    return fit.weights[:, None] * gradients, fit.weights[:, None] * precisions


def _leading(A: AnyNDArray) -> AnyNDArray:
    """E of fewer columns than A [N, P] has, with E E' = A A' but for what is negligible."""
    N, P = A.shape
    sizes, vectors = np.linalg.eigh(A @ A.T if N < P else A.T @ A)
    kept = sizes > _UNNOTICED
    return vectors[:, kept] * np.sqrt(sizes[kept]) if N < P else A @ vectors[:, kept]


Columns = tuple[int, ...]


@dataclasses.dataclass
class Candidate:
    """An interaction and the log evidence that it adds, in nats."""

    columns: Columns  # in ascending order
    gain: float
    variance: float  # the kernel's, at that gain
    partial_gain: float = math.nan  # beside those chosen before as well, where it was computed
    chosen: bool = False


def choose(
    expansion: Expansion,
    candidates: Sequence[Candidate],
    features: Callable[[Columns], AnyNDArray],
    limit: int,
    threshold: float,
) -> Expansion:
    """Choose the candidate that gains most, then the one that gains most beside it, and so on."""
    # Gains shrink as similar candidates are chosen, so that an earlier gain is a bound and only the
    # candidate on top is scored again (Minoux 1978): a heuristic where candidates help each other.
    queue = [(-c.gain, i) for i, c in enumerate(candidates) if c.gain > threshold]
    heapq.heapify(queue)
    while queue and limit > 0:
        _, index = heapq.heappop(queue)
        candidate = candidates[index]
        B = features(candidate.columns)
        candidate.partial_gain, variance = evidence_gain(*expansion.project(B))
        if queue and threshold < candidate.partial_gain < -queue[0][0]:
            heapq.heappush(queue, (-candidate.partial_gain, index))
        elif candidate.partial_gain > threshold:
            candidate.chosen = True
            limit -= 1
            expansion = expansion.extended(B, variance)
    return expansion


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column that has a main effect, and the period of that."""

    name: Column
    margin: Margin
    period: float | None


def screen_interactions(
    gam: GAM,
    depth: int = 2,
    *,
    max_interactions: int | None = None,
    min_gain: float | None = None,
    max_rows: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """
    Score the interactions that a fitted GAM lacks, and choose among them.

    A candidate's score is the log evidence that it would add to the GAM as fitted, its own variance
    optimised, everything else held (``evidence_gain``): exact for Gaussian data but for the
    candidate's kernel being cut to 64 features, and in the Gaussian approximation of the fit for
    others. It costs no fit. Several predictors share the variance, as they do in the model.

    The best are chosen one by one, each beside those chosen before, while they gain more than
    ``1 + log(number of candidates)`` nats (or ``min_gain``). If the truth is additive, the
    probability of a gain t is about half of a chi-squared variable's on one degree of freedom to
    exceed 2t (Self & Liang 1987), so that less than one in ten screens chooses an interaction that
    is not there. That holds where the main effects' model is right otherwise: where interactions
    are very strong fit the GAM of those chosen, and screen it again, as ``anova(rounds=2)`` does.

    Beyond pairs, candidates are the chosen interactions (and those in the GAM) with one column
    more: an interaction none of whose parts stands out is missed (weak heredity: Chipman 1996).
    Screening pairs by what they add to main effects follows Lou, Caruana, Gehrke & Hooker (2013).

    :param gam: fitted; its main effects say which columns there are and of which kind. Columns of
        numbers that it reads as levels are scored as levels, but ``ti`` goes by a column's type:
        make them categories.
    :param depth: the most columns of an interaction.
    :param max_interactions: how many to choose at most, in all; twice the number of columns by
        default.
    :param min_gain: the least log evidence [nats]; by default a guard against interactions that are
        not there. 0 takes all that add evidence, and leaves shrinkage to their prior: better
        predictions where interactions are many.
    :param max_rows: rows that are scored, drawn at random beyond that: scores then are of those
        rows given all others, and smaller than those of all rows.
    :param seed: of those draws.
    :return: a row a candidate, the highest gain first: ``term``; ``gain`` [nats], beside what the
        GAM has and the interactions of fewer columns that are chosen; ``variance`` of its kernel at
        that gain, in the square of the predictor's unit, or of the response's standard deviation
        where the scale has terms; ``partial_gain`` [nats], beside those of as many columns chosen
        before as well, NaN where it was not worth looking; ``chosen``.
    :raises ValueError: a GAM that is not fitted, fewer than two columns, numbers out of range;
        names the argument.
    """
    fit = gam.fitted
    known = _columns(fit)
    check_count("depth", depth, 1)
    if depth > len(known):
        raise ValueError(
            f"depth={depth} is more than the {len(known)} column(s) that have a main effect."
        )
    check_count("max_rows", max_rows, 2)
    check_gain(min_gain)
    limit = 2 * len(known) if max_interactions is None else max_interactions
    check_count("max_interactions", limit, 0)

    rows = np.flatnonzero(fit.weights > 0.0)  # others say nothing
    if len(rows) > max_rows:
        rows = np.sort(np.random.default_rng(seed).choice(rows, max_rows, replace=False))
    parts = [margin_features(c.margin, fit.X[rows, c.margin.column]) for c in known]

    def features(places: Columns) -> AnyNDArray:
        return product(tuple(parts[i] for i in places)).values

    expansion = expand(fit, rows)
    present = _present(fit, known)
    parents: list[Columns] = [(i,) for i in range(len(known))]
    scored: list[Candidate] = []
    for order in range(2, depth + 1):
        candidates = [
            Candidate(places, *evidence_gain(*expansion.project(features(places))))
            for places in sorted(
                {(*sorted((*p, i)),) for p in parents for i in range(len(known)) if i not in p}
            )
            if places not in present
        ]
        guard = 1.0 + math.log(max(len(candidates), 1))
        threshold = guard if min_gain is None else min_gain
        expansion = choose(expansion, candidates, features, limit, threshold)
        parents = [c.columns for c in candidates if c.chosen]
        parents += [places for places in present if len(places) == order]
        scored += candidates
    best = sorted((c for c in scored if c.chosen), key=lambda c: c.partial_gain, reverse=True)
    for candidate in best[limit:]:
        candidate.chosen = False
    scored.sort(key=lambda c: c.gain, reverse=True)
    terms = pd.Series([_term([known[i] for i in c.columns]) for c in scored], dtype=object)
    kinds = {"gain": float, "variance": float, "partial_gain": float, "chosen": bool}
    columns = {name: np.array([getattr(c, name) for c in scored], t) for name, t in kinds.items()}
    return pd.DataFrame({"term": terms, **columns})


def check_gain(min_gain: float | None) -> None:
    """Raises ValueError unless ``min_gain`` is None or at least 0."""
    if min_gain is not None and not min_gain >= 0.0:
        raise ValueError(f"min_gain must be a number of nats from 0 on; got {min_gain!r}.")


def _columns(fit: FittedGAM) -> list[_Column]:
    """The columns that have a main effect, in the order of the terms."""
    keys = list(fit.spec.encoder.columns)
    columns: dict[Column, _Column] = {}
    for component in fit.spec.effects:
        if component.form in _FORMS and component.by is None and len(component.margins) == 1:
            margin = component.margins[0]
            name = keys[margin.column][0]
            period = getattr(fit.spec.term(component.term), "period", None)
            columns.setdefault(name, _Column(name, margin, period))
    return list(columns.values())


def _present(fit: FittedGAM, known: Sequence[_Column]) -> set[Columns]:
    """The sets of columns whose interaction the GAM has, whatever it is written as."""
    keys = list(fit.spec.encoder.columns)
    places = {c.name: i for i, c in enumerate(known)}
    sets = set()
    for component in fit.spec.effects:
        names = {keys[column][0] for column in component.columns}
        if len(names) > 1 and names <= set(places):
            sets.add(tuple(sorted(places[n] for n in names)))
    return sets


def _term(columns: Sequence[_Column]) -> Interaction:
    # a column of levels is one whatever kind is asked for
    given = {c.name: c.margin.kind for c in columns}
    kinds = {name: None if kind in ("levels", DEFAULT) else kind for name, kind in given.items()}
    bs, periods = tuple(kinds.values()), tuple(c.period for c in columns)
    period = periods if any(p is not None for p in periods) else None
    return ti(*kinds, bs=bs[0] if len(set(bs)) == 1 else bs, period=period)


# --- terms proposed from columns ------------------------------------------------------------------


MAX_TERMS = 500  # most terms that are proposed without data
MAX_INDUCING = 600
"""Inducing inputs that main effects have together, and interactions, where there are many."""
_LEAST_INDUCING = 8


def anova(
    columns: Iterable[Column] | None = None,
    depth: int = 2,
    *,
    bs: str | None = None,
    k: int | None = None,
    data: Any = None,
    y: Any = None,
    family: str | Family | Likelihood = "gaussian",
    offset: Column | Iterable[Column] | None = None,
    weights: Column | None = None,
    trials: Column | None = None,
    missing: str = "error",
    max_interactions: int | None = None,
    min_gain: float | None = None,
    rounds: int = 1,
    seed: int = 0,
    **options: Any,
) -> Terms:
    """
    Propose the terms of a functional ANOVA: main effects, and interactions up to a depth.

    Without ``data`` these are a main effect of every column and ``ti`` of every set of 2 to
    ``depth`` columns. With ``data`` and ``y`` a GAM of the main effects is fitted, all pairs are
    scored beside it, and those that stand out are proposed, the best first; see
    :func:`gpflow_gam.gam.screening.screen_interactions`, which also shows the scores. Sets of three
    and more extend the pairs that were chosen, so that no number of columns is too large to try.

    With ``data`` a column of text, categories or truth values becomes ``factor``, one of two
    numbers ``linear``; all others are ``s``. ``family``, ``offset``, ``weights``, ``trials`` and
    ``missing`` are those of :class:`gpflow_gam.GAM`; ``max_interactions``, of a round, and
    ``min_gain`` those of :func:`gpflow_gam.gam.screening.screen_interactions`.

    :param columns: their names, or indices; with ``data`` None takes all that vary, but the
        response, offsets, weights and trials.
    :param depth: the most columns of a term; 1 for main effects alone.
    :param bs: the kind of kernel, as in :func:`~gpflow_gam.s`.
    :param k: inducing inputs of a main effect. By default as in :func:`~gpflow_gam.s`, but beyond
        25 columns as many as make 600 in all, and at least 8. Interactions have as
        many as in :func:`~gpflow_gam.ti`, beyond 16 of them by the same rule.
    :param data: as in :meth:`gpflow_gam.GAM.fit`.
    :param y: the response: a column's name, or N values.
    :param rounds: screens at most: after the first, the GAM is fitted with what was chosen and the
        others are scored beside it, until none stands out. With large interactions in, the noise is
        smaller and smaller ones are found.
    :param seed: of everything random.
    :param options: of :meth:`gpflow_gam.GAM.fit`, for the GAMs that are screened: ``progress``,
        ``max_seconds``, ...
    :return: main effects in the order of the columns, then interactions, round by round.
    :raises TypeError, ValueError: naming the argument or the column.
    """
    first = [*columns] if isinstance(columns, (list, tuple)) else [columns]
    if any(isinstance(value, GAM) for value in (*first, depth)):
        raise TypeError(
            "columns must be names of columns; got a GAM: anova proposes terms. To compare fitted "
            "GAMs call gpflow_gam.compare(m0, m1), which is by how well they predict rows that are "
            "left out."
        )
    check_count("max_interactions", max_interactions, 0)  # before anything is fitted
    check_count("k", k)
    check_count("rounds", rounds)
    check_gain(min_gain)
    read: dict[str, Any] = {"offset": offset, "weights": weights, "trials": trials}
    screened: dict[str, Any] = {"max_interactions": max_interactions, "min_gain": min_gain}
    if data is None:
        unused = {"y": y, **read, **screened, "rounds": None if rounds == 1 else rounds}
        for argument, value in {**unused, **options}.items():
            if value is not None:
                raise ValueError(f"{argument} is of use with data only; pass data= as well.")
        return _every_term(_checked_columns(columns), depth, bs, k)
    if y is None:
        raise ValueError("y is missing: with data, name the response's column or pass its values.")
    table, response = with_response(Table(data), y, None)
    counted = table.counted([name for name in (weights, trials) if name is not None])
    roles = [*response.columns] if isinstance(response, Surv) else [response]
    if as_column(y) is None and not isinstance(response, Surv):  # values, which may be a column's
        roles += [n for n in table.names if same_values(table, n, response)]
    for argument, other in read.items():
        roles += [] if other is None else as_columns(argument, other)
    names = _that_vary(counted, columns, {table.name(n) for n in roles})
    _check_depth(depth, names)
    terms = _main_effects(counted, names, bs, k)
    chosen: list[Term] = []
    for _ in range(rounds if depth > 1 else 0):
        gam = GAM(terms + Terms(chosen), family, **read, missing=missing, seed=seed)
        gam.fit(table, response, **options)
        scores = screen_interactions(gam, depth, **screened, seed=seed)
        more = list(scores["term"][scores["chosen"]])
        if not more:
            break
        size = _shared(None, len(chosen) + len(more), NUM_INDUCING[2])
        chosen = [dataclasses.replace(term, k=size) for term in chosen + more]
    return terms + Terms(chosen)


def _checked_columns(columns: Any) -> list[Column]:
    """The columns that an argument names."""
    if columns is None:
        raise ValueError("columns is missing: name them, or pass data= and y=.")
    if as_column(columns) is not None:
        raise TypeError(f"columns must be a list of names; got {columns!r}; write [{columns!r}].")
    names = as_columns("columns", columns)
    if not names:
        raise ValueError("columns is empty; name at least one.")
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ValueError(f"columns: {twice[0]!r} is there twice; leave one out.")
    return names


def _check_depth(depth: int, names: Sequence[Column]) -> None:
    check_count("depth", depth, 1)
    if depth > len(names):
        raise ValueError(f"depth={depth} is more than there are columns, {len(names)}.")


def _every_term(names: Sequence[Column], depth: int, bs: str | None, k: int | None) -> Terms:
    """All terms up to a depth, where they are not too many."""
    _check_depth(depth, names)
    number = sum(math.comb(len(names), order) for order in range(1, depth + 1))
    if number > MAX_TERMS:
        raise ValueError(
            f"{len(names)} columns have {number} terms up to depth={depth}; pass data= and y=, for "
            "those that stand out, or a smaller depth."
        )
    size = _shared(k, len(names), NUM_INDUCING[1])
    main = [s(c, bs=bs, k=size) for c in names]
    size = _shared(None, number - len(names), NUM_INDUCING[2])
    sets = [c for d in range(2, depth + 1) for c in itertools.combinations(names, d)]
    return Terms([*main, *(ti(*each, bs=bs, k=size) for each in sets)])


def _main_effects(table: Table, names: Sequence[Column], bs: str | None, k: int | None) -> Terms:
    """A main effect of every column, as its values ask for."""
    size = _shared(k, len(names), NUM_INDUCING[1])
    terms: list[Term] = []
    for name in names:
        if table.is_levels(name):
            terms.append(factor(name))
        elif _distinct(table, name) == 2:
            terms.append(linear(name))  # of two values nothing else can be learnt
        else:
            terms.append(s(name, bs=bs, k=size))
    return Terms(terms)


def _shared(asked: int | None, number: int, usual: int) -> int | None:
    """Inducing inputs of each of ``number`` components; None for the usual number."""
    if asked is not None or number * usual <= MAX_INDUCING:
        return asked
    return max(MAX_INDUCING // number, _LEAST_INDUCING)


def _that_vary(table: Table, columns: Any, roles: set[Any]) -> list[Column]:
    """The columns that are asked for, once each is there and varies, or all that do."""
    if columns is None:
        return [n for n in table.names if n not in roles and _distinct(table, n) > 1]
    names = _checked_columns(columns)
    for name in names:
        if table.name(name) in roles:
            raise ValueError(f"columns: {name!r} is the response, an offset, weights or trials.")
    constant = [n for n in names if _distinct(table, n) < 2]
    if constant:
        raise ValueError(
            f"columns: {', '.join(map(repr, constant))} hold(s) a single value, which has no "
            "effect; leave it out."
        )
    return names


def _distinct(table: Table, name: Column) -> int:
    return int(pd.Series(table.values(name)).nunique())
