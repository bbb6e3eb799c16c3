"""Fits beside each other, and averages of them, by their leave-one-out predictive densities."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray
from scipy.optimize import minimize
from scipy.stats import norm
from tabulate import tabulate

from ..errors import check_choice, check_count, check_level
from .effects.effect import NUMBERS, beside
from .effects.posterior import equal_tailed
from .fits.fitted import fit_of
from .fits.prediction import PredictionType, framed
from .fits.reading import in_memory
from .leave_one_out import LeaveOneOut, check_same, leave_one_out, observed_of, total
from .summaries.summary import as_html_columns, free_moments, joint_test

__all__ = ["Comparison", "LeaveOneOut", "Stack", "anova_test", "compare", "leave_one_out", "stack"]


_LONG = 32  # characters of a label
_NOTE = (
    "elpd: log predictive density of {left_out}, and its difference from the\n"
    "best one's with the difference's standard error over rows. Fits whose difference is within\n"
    "two of these, or smaller than 4, predict equally well. edf: effective degrees of freedom.\n"
    "aic: -2 log p(y | mean) + 2 (edf + parameters). untrusted: rows whose density is uncertain."
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """
    Fits beside each other, the best first.

    :param table: a row a fit: ``elpd``, ``se``, ``difference`` to the best elpd (never positive),
        ``difference_se``, ``edf``, ``aic``, ``untrusted`` rows.
    :param left_out: what was left out at a time, in words.
    """

    table: pd.DataFrame
    left_out: str

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()

    def _labels(self) -> tuple[list[str], list[str]]:
        """Labels of rows, and what they stand for where names are long."""
        names = [str(name) for name in self.table.index]
        if max(map(len, names)) <= _LONG:
            return names, []
        labels = [f"fit {i}" for i in range(1, len(names) + 1)]
        return labels, [f"{label}: {name}" for label, name in zip(labels, names)]

    def _rows(self) -> list[list[str]]:
        formats: dict[Any, str] = {"edf": ".1f", "untrusted": ",.0f"}
        return [
            [label, *(format(value, formats.get(name, ".2f")) for name, value in row.items())]
            for label, (_, row) in zip(self._labels()[0], self.table.iterrows())
        ]

    def _note(self) -> str:
        return _NOTE.format(left_out=self.left_out)

    def __str__(self) -> str:
        text: str = tabulate(self._rows(), ["", *self.table], disable_numparse=True)
        return "\n".join([text, "", *self._labels()[1], self._note()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        said = "".join(f"{html.escape(line)}<br>" for line in self._labels()[1])
        return f"{as_html_columns(self._rows(), ['', *self.table])}<p>{said}{self._note()}</p>"


def compare(*fits: Any, groups: Any = None) -> Comparison:
    """
    Compare fits to the same rows by how well they predict rows that are left out.

    Differences are taken row by row, so that what is hard for both does not count (Vehtari, Gelman
    & Gabry 2017). AIC, of the form that R's mgcv has, is for orientation.

    :param fits: fitted GAMs, what their ``loo`` gave, or one mapping of names to these; without
        names they are named by their terms. Long names stand below the printed table.
    :param groups: rows that are left out together, as :meth:`gpflow_gam.GAM.loo` takes them, for
        those that are fits.
    :return: a table, the best first; prints as text, and as HTML in notebooks.
    :raises ValueError: fewer than two; or responses, rows, weights or what is left out differ; or
        one has densities and the other probabilities.
    :raises TypeError: what is no fit.
    """
    names, models = _named("compare", fits)
    for model in models:
        if not isinstance(model, LeaveOneOut) and not callable(getattr(model, "loo", None)):
            raise TypeError(
                "compare takes fitted GAMs or what their loo() gave, or a mapping of names to "
                f"these; got {type(model).__name__}."
            )
    result = [m if isinstance(m, LeaveOneOut) else m.loo(groups) for m in models]
    names = names or _by_terms([(one.terms, one.family) for one in result])
    check_same(names, [fit.observed for fit in result])
    best, rows = max(result, key=lambda fit: fit.elpd), []
    for fit in result:
        difference, se = (0.0, 0.0)
        if fit is not best:
            difference, se = total(fit.pointwise - best.pointwise, fit.weights)
        rows.append([fit.elpd, fit.se, difference, se, fit.edf, fit.aic, fit.untrusted])
    columns = ["elpd", "se", "difference", "difference_se", "edf", "aic", "untrusted"]
    table = pd.DataFrame(rows, index=pd.Index(names, name="fit"), columns=columns)
    return Comparison(table.sort_values("elpd", ascending=False), best.left_out)


def _named(call: str, fits: tuple[Any, ...]) -> tuple[list[str], list[Any]]:
    """The names, if they have any, and the fits of a call."""
    if len(fits) == 1 and isinstance(fits[0], Mapping):
        names, models = [str(name) for name in fits[0]], list(fits[0].values())
    else:
        names, models = [], list(fits)
    if len(models) < 2:
        raise ValueError(f"{call} needs at least two fits; got {len(models)}.")
    return names, models


def _by_terms(fits: list[tuple[str, str]]) -> list[str]:
    """Names by terms, with families where these differ, and counted where that is not enough."""
    families = len({family for _, family in fits}) > 1
    names = [f"{terms}, {family}" if families else terms for terms, family in fits]
    if len(set(names)) == len(names):
        return names
    return [f"{i}: {name}" for i, name in enumerate(names, 1)]


# --- nested fits ----------------------------------------------------------------------------------


_NESTED = 0.95
"""Share of a term's prior variance that terms with all of its functions explain, at least."""
_TEST_ROWS, _RCOND = 2000, 1e-5  # rows where functions are compared, and how exactly


def anova_test(a: Any, b: Any) -> pd.DataFrame:
    """
    Test of nested GAMs: the hypothesis that ``b`` needs no more than the terms of ``a``.

    As ``anova(a, b)`` of R's mgcv, for which deviances are compared; here it is the test of
    :meth:`gpflow_gam.GAM.anova`, of all that ``b`` has beyond ``a`` together. A term of ``a`` may
    stand in ``b`` as another one with more functions: a line as a smooth (is it straight?), a curve
    as a surface, one curve as one for each level.

    :param a: a fitted GAM, the smaller one.
    :param b: a fitted GAM of the same rows and family, with all functions that ``a`` has.
    :return: one row, the terms that ``b`` alone has: ``ref_df``, the statistic's expectation where
        ``a`` is true; ``statistic``; ``p``.
    :raises ValueError: ``a`` is not nested in ``b``; families, rows, responses or weights differ.
    :raises TypeError: what is no fitted GAM.
    """
    small, large = fit_of(a, "anova_test"), fit_of(b, "anova_test")
    families = [repr(fit.spec.family) for fit in (small, large)]
    if families[0] != families[1]:
        raise ValueError(f"anova_test: a has family {families[0]}, and b has {families[1]}.")
    names = [repr(fit.spec.terms) for fit in (small, large)]
    check_same(names, [observed_of(small), observed_of(large)], "anova_test")
    known = set(small.spec.effect_names)
    tested = [c for c in large.spec.effects if c.name not in known]
    gone = [c for c in small.spec.effects if c.name not in large.spec.effect_names]
    beyond, rows, number = ", ".join(c.name for c in tested), large.some_rows(_TEST_ROWS), 0
    bases: list[AnyNDArray | None] = []
    for i in range(large.num_predictors):
        lost, more = (
            [c for c in some if i in c.predictors_of(large.num_predictors)]
            for some in (gone, tested)
        )
        number, basis = number + sum(len(c.inducing) for c in more), None
        if lost and tested:
            null, spanned = (
                free_moments(fit).all_features(fit.X[rows], names=[c.name for c in some])[0].T
                for fit, some in ((small, lost), (large, more))
            )
            values = np.linalg.lstsq(spanned, null, rcond=_RCOND)[0]
            left = null - spanned @ values
            if np.sum(np.square(left)) > (1.0 - _NESTED) * np.sum(np.square(null)):
                raise ValueError(
                    "anova_test: a is not nested in b: "
                    f"{', '.join(c.name for c in lost)} is no part of {beyond}."
                )
            U, sizes, _ = np.linalg.svd(values, full_matrices=False)
            basis = U[:, sizes > _RCOND * sizes[0]]
            number -= basis.shape[1]
        bases.append(basis)
    if not number:
        raise ValueError(
            f"anova_test: b has no function that a lacks; a is {names[0]}, b {names[1]}."
        )
    test = joint_test(large, tested, bases)
    return pd.DataFrame([test], index=pd.Index([beyond], name="effects"))


# --- mixtures of fits -----------------------------------------------------------------------------

_Z = np.linspace(-5.0, 5.0, 401)[:, None]  # values that stand for a normal prediction
_DRAWN, _JOINTLY = 2000, 200  # draws of others, and rows that are drawn together
_SORTED = 10**7  # values that are sorted in one go


def stack(
    *gams: Any, scores: Mapping[str, Sequence[float]] | Sequence[Sequence[float]] | None = None
) -> Stack:
    """
    Average fits of the same rows: a mixture of their predictions.

    Its weights are those with which rows that are left out would have been predicted best (Yao,
    Vehtari, Simpson & Gelman 2018). Terms, kernels, priors and families may differ. Fits that
    predict alike share a weight, so that one is no probability of a model.

    :param gams: fitted GAMs, or one mapping of names to these; without names they are named by
        their terms.
    :param scores: for predictions beyond the data, of which rows among others tell nothing: log
        densities [M] of the same rows by fits without them, by name or in the order of the fits,
        as ``log_density`` of :func:`backtest`.
    :raises ValueError: as :func:`compare`; scores that are not finite, or not those of each fit.
    :raises TypeError: what is no GAM.
    """
    names, models = _named("stack", gams)
    fits = [fit_of(model, "stack") for model in models]
    names = names or _by_terms([(repr(fit.spec.terms), fit.spec.family.name) for fit in fits])
    check_same(names, [observed_of(fit) for fit in fits], "stack")
    if scores is None:
        left_out = [model.loo() for model in models]
        counts = left_out[0].weights > 0.0
        share = left_out[0].weights[counts] / left_out[0].weights.sum()
        logs = np.stack([one.pointwise[counts] for one in left_out], axis=1)
    else:
        logs = _scores(names, scores)
        share = np.full(len(logs), 1.0 / len(logs))
    densities = np.exp(logs - logs.max(axis=1, keepdims=True))

    def loss(w: AnyNDArray) -> tuple[float, AnyNDArray]:
        mixed = densities @ w
        return -float(share @ np.log(mixed)), -(share / mixed) @ densities

    start = np.full(len(models), 1.0 / len(models))
    whole = {"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like}
    bounds, precise = [(1e-12, 1.0)] * len(start), {"ftol": 1e-12, "maxiter": 500}
    found = minimize(
        loss, start, jac=True, method="SLSQP", bounds=bounds, constraints=whole, options=precise
    )
    weights = np.where(found.x > 1e-6, found.x, 0.0)
    return Stack(dict(zip(names, models)), weights / weights.sum())


def _scores(names: list[str], scores: Any) -> AnyNDArray:
    """Log densities [M, K] of the same rows by each fit."""
    each = [scores.get(name) for name in names] if isinstance(scores, Mapping) else list(scores)
    logs = [np.asarray(one, dtype=float) for one in each]
    shapes = [one.shape for one in logs]
    if len(logs) != len(names) or len(set(shapes)) > 1 or logs[0].ndim != 1 or not logs[0].size:
        raise ValueError(
            f"scores: of each of the fits {names}, log densities [M] of the same rows; got shapes "
            f"{shapes}."
        )
    if not all(np.all(np.isfinite(one)) for one in logs):
        raise ValueError("scores: they must be finite; leave out rows that a fit cannot score.")
    return np.stack(logs, axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Stack:
    """
    A mixture of fitted GAMs, as :func:`stack` makes it.

    :param gams: the fits, by name.
    :param weights: of each, [K]; they sum to one.
    """

    gams: Mapping[str, Any]
    weights: AnyNDArray

    def __repr__(self) -> str:
        shares = ", ".join(f"{n!r}: {w:.3f}" for n, w in zip(self.gams, self.weights))
        return f"Stack({{{shares}}})"

    @property
    def _used(self) -> list[tuple[float, Any]]:
        return [(w, gam) for w, gam in zip(self.weights, self.gams.values()) if w > 0.0]

    def _check_link(self, asked: str) -> None:
        """Raises ValueError, naming two fits, unless predictors of all are of one kind."""
        names = [name for name, w in zip(self.gams, self.weights) if w > 0.0]
        specs = [gam.fitted.spec for _, gam in self._used]
        kinds = [(spec.predictor_names, spec.family.link_name) for spec in specs]
        for name, spec, kind in zip(names, specs, kinds):
            if kind != kinds[0]:
                raise ValueError(
                    f"{asked}: the predictors of {names[0]!r} (family {specs[0].family.name!r}, "
                    f"link {kinds[0][1]!r}) and {name!r} ({spec.family.name!r}, {kind[1]!r}) are "
                    "not of one kind and have no average; take type='response', or a fit by itself."
                )

    def predict(
        self,
        data: Any,
        type: PredictionType = "response",
        *,
        interval: float | None = None,
        seed: int = 0,
    ) -> Any:
        """
        Predict at new rows: the mean of the mixture.

        :param data: N rows, with the columns of all fits.
        :param type: ``"response"``, ``"link"`` or ``"observation"``, as of
            :meth:`gpflow_gam.GAM.predict`.
        :param interval: a probability; adds an equal-tailed interval of the mixture, which allows
            for uncertain hyperparameters of each fit; of observations, of classes and where a fit
            has several predictors by draws.
        :param seed: of those draws.
        :return: [N], or [N, K] of classes; with ``interval`` a DataFrame with columns
            ``estimate``, ``lower`` and ``upper``, under each class.
        :raises ValueError: naming the argument or column; also ``"link"`` of fits whose links
            differ.
        """
        kinds = ("response", "link", "observation")
        check_choice("type", type, kinds)
        if type == "link":
            self._check_link("type='link'")
        means = [w * np.asarray(gam.predict(data, type)) for w, gam in self._used]
        mean = np.sum(means, axis=0)
        if interval is None:
            return mean
        check_level(interval, "interval")
        table, number = in_memory(data), max(len(mean), 1)
        several = any(gam.fitted.num_predictors > 1 for _, gam in self._used)
        if type == "observation" or several or mean.ndim == 2:
            rows = (table.part(i, i + _JOINTLY) for i in range(0, number, _JOINTLY))
            draws = (self.sample(part, _DRAWN, type, seed=seed) for part in rows)
            ends = [equal_tailed(drawn, interval) for drawn in draws]
        else:
            used = [gam.fitted for _, gam in self._used]
            links = np.array([gam.predict(table, "link", se=True) for _, gam in self._used])
            step = max(1, _SORTED // (len(used) * len(_Z)))
            ends = []
            for i in range(0, number, step):
                f = links[:, :1, i : i + step] + links[:, 1:, i : i + step] * _Z
                if type == "response":
                    each = zip(used, f[..., None])
                    f = np.array([fit.spec.family.mean(fit.likelihood, v) for fit, v in each])
                ends.append(self._ends(f, interval))
        low, high = np.concatenate(ends, axis=1)
        parts = {"estimate": mean, "lower": low, "upper": high}
        index = data.index if isinstance(data, pd.DataFrame) else None
        spec = self._used[0][1].fitted.spec
        return framed(parts, spec.predictor_names if type == "link" else spec.levels, index)

    def sample(
        self,
        data: Any,
        num_samples: int = 100,
        type: PredictionType = "response",
        *,
        seed: int = 0,
    ) -> AnyNDArray:
        """
        Joint draws of the mixture at N rows, in random order.

        :param data: N rows.
        :param num_samples: S; of each fit as many as its weight says, rounded.
        :param type: as of :meth:`gpflow_gam.GAM.sample`.
        :param seed: makes draws reproducible.
        :return: [S, N], or [S, N, K].
        :raises ValueError: as :meth:`gpflow_gam.GAM.sample`.
        """
        check_count("num_samples", num_samples)
        if type == "link":
            self._check_link("type='link'")
        used = self._used
        ends = np.round(np.cumsum([w for w, _ in used]) * num_samples).astype(int)
        numbers = np.diff(ends, prepend=0)
        drawn = [
            gam.sample(data, int(n), type, seed=seed + k)
            for k, ((_, gam), n) in enumerate(zip(used, numbers))
            if n
        ]
        return np.random.default_rng(seed).permutation(np.concatenate(drawn), axis=0)

    def log_density(self, data: Any) -> AnyNDArray:
        """
        Log predictive density of each row's response under the mixture, [N].

        :param data: N rows with the response.
        :raises ValueError: as :meth:`gpflow_gam.GAM.log_density`.
        """
        logs = [np.log(w) + gam.log_density(data) for w, gam in self._used]
        return np.asarray(np.logaddexp.reduce(logs, axis=0))

    def effects(self, term: str, grid: Any = None, *, level: float = 0.95) -> pd.DataFrame:
        """
        An effect of the mixture; it is zero in fits that do not have it.

        :param term: the effect's name.
        :param grid: as of :meth:`gpflow_gam.GAM.effects`, by default that of the first fit that has
            the effect.
        :param level: probability of the credible interval at each point.
        :return: the grid's columns, ``estimate``, ``se``, ``lower`` and ``upper``, on the scale of
            the predictor.
        :raises ValueError: an effect that no fit has; or fits of several predictors, or of several
            links.
        """
        check_level(level)
        having = [g for _, g in self._used if term in g.fitted.spec.effect_names]
        if not having:
            known = dict.fromkeys(n for _, g in self._used for n in g.fitted.spec.effect_names)
            raise ValueError(f"term: no fit has {term!r}; they have {', '.join(known)}.")
        if any(g.fitted.num_predictors > 1 for g in self.gams.values()):
            raise ValueError("effects of a stack are of one predictor; ask the fits by themselves.")
        self._check_link("effects")
        frame, numbers = having[0].effects(term, grid, level=level), ["estimate", "se"]
        places = frame.loc[:, :"estimate"].drop(columns="estimate")
        # columns as the data call them
        names = dict(zip(beside(dict.fromkeys(NUMBERS), NUMBERS), NUMBERS))
        given = places.rename(columns=names)
        absent = np.zeros((len(frame), 2))
        parts = np.stack(
            [
                gam.effects(term, given)[numbers].to_numpy() if gam in having else absent
                for _, gam in self._used
            ]
        )
        w, mean, sd = np.array([w for w, _ in self._used]), parts[..., 0], parts[..., 1]
        estimate = w @ mean
        se = np.sqrt(w @ (np.square(sd) + np.square(mean - estimate)))
        lower, upper = self._ends(mean[:, None] + sd[:, None] * _Z, level)
        return places.assign(estimate=estimate, se=se, lower=lower, upper=upper)

    def _ends(self, values: AnyNDArray, level: float) -> AnyNDArray:
        """Equal-tailed intervals [2, n] of mixtures, of values [K, J, n] at ``_Z`` of each fit."""
        tails, density = (0.5 - 0.5 * level, 0.5 + 0.5 * level), norm.pdf(_Z[:, 0])
        share = np.outer([w for w, _ in self._used], density / density.sum()).ravel()
        whole = np.concatenate(values)
        order = np.argsort(whole, axis=0)
        whole, share = np.take_along_axis(whole, order, axis=0), share[order]
        below = np.cumsum(share, axis=0) - 0.5 * share
        return np.array([[np.interp(p, b, v) for b, v in zip(below.T, whole.T)] for p in tails])
