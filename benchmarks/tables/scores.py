"""What a prediction is worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import nbinom, norm, poisson

HALF = float(norm.ppf(0.95))


@dataclass(frozen=True)
class Prediction:
    """
    Of one fold's test rows.

    :param mean: of responses, or the probability of a one, [n].
    :param seconds: to choose, fit and predict.
    :param log_density: of the responses, [n], where the method has one of its own.
    :param sd: of normal responses, [n].
    :param size: of negative binomial ones; Poisson without.
    :param lower: of 90 % intervals of responses, [n]; of ``sd`` where there are none.
    :param upper: [n].
    """

    mean: np.ndarray
    seconds: float
    log_density: np.ndarray | None = None
    sd: np.ndarray | None = None
    size: float | None = None
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None


def scored(result: Prediction, y: np.ndarray, family: str) -> dict[str, float]:
    """
    Error, log score (minus the mean log density), coverage of 90 % intervals, seconds.

    The error is the RMSE, of binary responses the share that the likelier one misses.
    """
    mean = result.mean
    if family == "bernoulli":
        mean = np.clip(mean, 1e-6, 1.0 - 1e-6)
        error = float(np.mean((mean > 0.5) != (y > 0.5)))
    else:
        error = float(np.sqrt(np.mean((mean - y) ** 2)))
    density = result.log_density
    if density is None and family == "bernoulli":
        density = np.where(y > 0.5, np.log(mean), np.log1p(-mean))
    elif density is None and family == "count":
        mean = np.maximum(mean, 1e-6)
        if result.size is None:
            density = poisson.logpmf(y, mean)
        else:
            density = nbinom.logpmf(y, result.size, result.size / (result.size + mean))
    elif density is None:
        assert result.sd is not None
        density = norm.logpdf(y, mean, result.sd)
    scores = {"error": error, "log score": -float(np.mean(density)), "seconds": result.seconds}
    if family == "gaussian":
        lower, upper = result.lower, result.upper
        if lower is None or upper is None:
            assert result.sd is not None
            lower, upper = mean - HALF * result.sd, mean + HALF * result.sd
        scores["coverage of 90 %"] = float(np.mean((lower <= y) & (y <= upper)))
    return scores
