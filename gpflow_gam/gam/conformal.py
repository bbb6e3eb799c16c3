"""Conformal prediction intervals: split conformal, and jackknife+ from one fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from gpflow.base import AnyNDArray

from ..errors import check_level
from ..likelihoods.predictive import predictive_moments
from ..models import IterNCGP
from ..threads import one_blas_thread
from .fits import FittedGAM
from .fits.fitted import encoded, fit_of
from .fits.reading import in_memory
from .leave_one_out import row_posterior, rows_of

__all__ = ["Conformal", "conformal"]

_PAIRS = 10**5  # new rows times rows of the fit that are predicted at a time


def conformal(gam: Any, calibration: Any = None) -> Conformal:
    r"""
    Prediction intervals that hold new responses whether or not the family is right.

    Rows are scored by how far the response is from its prediction, in the standard deviations
    :math:`\sigma` that the fit predicts: so intervals are wider where the fit says that responses
    vary more.

    - *Split conformal*, with ``calibration=`` rows that the fit has not seen. Of rows that are
      exchangeable with these an interval of probability p holds at least a share p, in any number
      of rows, whatever the fit is like (Vovk, Gammerman & Shafer 2005; Lei et al. 2018).
    - *Jackknife+*, without: each row of the fit is scored by the posterior without it, as by
      :meth:`gpflow_gam.GAM.loo`, and the interval is of quantiles of :math:`\mu_{-n}(x) \pm
      \sigma_{-n}(x) s_n` over the rows (Barber, Candès, Ramdas & Tibshirani 2021). Of a fit
      that is made anew without each row it holds at least 1 - 2 (1 - p), and in practice about p.
      Here hyperparameters, inducing inputs and the sites of the other rows are held as they were
      fitted with all rows, so that this bound is not proven: where it is needed, split.

    :param gam: a fitted :class:`~gpflow_gam.GAM` of responses that are numbers. For jackknife+
        it has one predictor, terms without shapes, no weights, and holds its rows.
    :param calibration: rows with the response; None for jackknife+.
    :raises ValueError: what there are no such intervals of; rows that cannot be left out.
    :raises TypeError: no GAM.
    """
    fit = fit_of(gam, "conformal")
    spec = fit.spec
    if spec.levels is not None or spec.censoring is not None or spec.trials is not None:
        raise ValueError("conformal: the response must be a number; got classes, trials or Surv.")
    if calibration is not None:
        table = in_memory(calibration)
        X = encoded(fit, table)
        Y = spec.encoded(table, None).Y
        mean, sd = _summarised(fit, X, *fit.predictive(X))
        return Conformal(fit, np.abs(spec.family.observed(Y) - mean) / sd)
    known = {
        "several predictors": fit.num_predictors > 1,
        "engine='iterncgp'": isinstance(fit.model, IterNCGP),
        "terms with a shape": fit.shaped is not None,
        "weights": spec.weights is not None,
        "rows in several processes": fit.data.shared,
    }
    for what, there in known.items():
        if there:
            raise ValueError(f"conformal: the fit has {what}; pass calibration= rows.")
    with one_blas_thread():
        return _left_out(fit)


def _left_out(fit: FittedGAM) -> Conformal:
    """Scores of rows, each without itself, and what turns the posterior into that without it."""
    posterior, sites = row_posterior(fit)
    m, S = posterior.moments(0)
    features, scores, shift, gain = [], [], [], []
    for which, cavity in posterior.one_by_one(sites):
        if cavity.untrusted.any():
            raise ValueError(
                f"conformal: {int(cavity.untrusted.sum())} rows cannot be left out of the fit; "
                "pass calibration= rows."
            )
        X, Y, known = rows_of(fit, which)
        mean, sd = _summarised(fit, X, cavity.mean + known, cavity.var)
        scores.append(np.abs(fit.spec.family.observed(Y) - mean) / sd)
        phi, _ = posterior.features(which)
        w, s = sites.weight[which, 0], sites.shift[which, 0]
        moved = S @ phi
        rest = 1.0 - w * np.sum(phi * moved, axis=0)
        shift.append((w * (phi.T @ m) - s) / rest)
        gain.append(w / rest)
        features.append(moved)
    parts = np.concatenate(features, axis=1), np.concatenate(shift), np.concatenate(gain)
    return Conformal(fit, np.concatenate(scores), parts)


@dataclasses.dataclass(frozen=True, eq=False)
class Conformal:
    """
    Conformal intervals of a fit, as :func:`conformal` makes them.

    :param fit: the fit.
    :param scores: of the rows, in predicted standard deviations, [n].
    """

    fit: FittedGAM
    scores: AnyNDArray
    # of jackknife+: without a row n, the mean of the predictor at x is larger by c_n(x) shift_n,
    # and its variance by c_n(x)^2 gain_n, c_n(x) = phi(x)' S phi_n being their covariance, as
    # (S^-1 - w phi_n phi_n')^-1 (S^-1 m - s phi_n) is by Sherman & Morrison (1950). Here are
    # S phi_n [P, n], shift [n] and gain [n].
    _without: tuple[AnyNDArray, AnyNDArray, AnyNDArray] | None = None

    def __repr__(self) -> str:
        kind = "split" if self._without is None else "jackknife+"
        return f"Conformal({kind}, {len(self.scores)} rows)"

    def predict(self, data: Any, *, interval: float = 0.9) -> pd.DataFrame:
        """
        Intervals of new responses.

        :param data: N rows, complete.
        :param interval: the probability p of each.
        :return: ``estimate``, the expected response, ``lower`` and ``upper``; with the index of
            data of pandas. Of positive responses the lower end may be below zero.
        :raises ValueError: naming the argument or column; or too few rows for the probability.
        """
        check_level(interval, "interval")
        number = len(self.scores)
        rank = int(np.ceil(interval * (number + 1) - 1e-9))  # 1e-9: rounding of .9 times 10
        if rank > number:
            needed = int(np.ceil(interval / (1.0 - interval) - 1e-9))
            raise ValueError(
                f"interval={interval:g} needs at least {needed} rows; there are {number}."
            )
        X = encoded(self.fit, in_memory(data))
        mean, var = self.fit.predictive(X)
        estimate, sd = _summarised(self.fit, X, mean, var)
        if self._without is None:
            half = np.sort(self.scores)[rank - 1] * sd
            lower, upper = estimate - half, estimate + half
        else:
            step = max(1, _PAIRS // number)
            blocks = [slice(i, i + step) for i in range(0, max(len(X), 1), step)]
            parts = [self._jackknife(X[at], mean[at], var[at], rank) for at in blocks]
            lower, upper = (np.concatenate(ends) for ends in zip(*parts))
        index = data.index if isinstance(data, pd.DataFrame) else None
        return pd.DataFrame({"estimate": estimate, "lower": lower, "upper": upper}, index=index)

    def _jackknife(
        self, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray, rank: int
    ) -> tuple[AnyNDArray, AnyNDArray]:
        assert self._without is not None
        moved, shift, gain = self._without
        number = len(shift)
        c = self.fit.moments.all_features(X)[0].T @ moved  # [N, n]
        means, variances = mean + c * shift, np.maximum(var + np.square(c) * gain, 0.0)
        flat = np.repeat(X, number, axis=0), means.reshape(-1, 1), variances.reshape(-1, 1)
        estimate, sd = (v.reshape(c.shape) for v in _summarised(self.fit, *flat))
        half = self.scores * sd
        lower = np.partition(estimate - half, number - rank, axis=1)[:, number - rank]
        upper = np.partition(estimate + half, rank - 1, axis=1)[:, rank - 1]
        return lower, upper


def _summarised(
    fit: FittedGAM, X: AnyNDArray, mean: AnyNDArray, var: AnyNDArray
) -> tuple[AnyNDArray, AnyNDArray]:
    """Mean and standard deviation of new responses, [N]."""
    moments = predictive_moments(fit.likelihood, X, mean, var)
    expected, variance = (np.asarray(v)[:, 0] for v in moments)
    if not np.all(np.isfinite(variance)):
        raise ValueError(
            f"conformal: responses of family {fit.spec.family.name!r} have no finite variance here."
        )
    return expected, np.sqrt(variance)
