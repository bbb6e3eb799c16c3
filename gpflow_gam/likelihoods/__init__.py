"""Likelihoods that GPflow lacks, and the parts of one beyond GPflow's interface."""

from .base import Quasi, Weighted
from .continuous import (
    Autoregressive,
    Heteroskedastic,
    LogitBeta,
    MeanGamma,
    Quantile,
    StudentT,
    Tweedie,
)
from .discrete import (
    Bernoulli,
    Binomial,
    FixedSoftmax,
    Hurdle,
    NegativeBinomial,
    Ordered,
    ZeroInflated,
)
from .linked import MeanLink
from .predictive import conditional_distribution
from .times import Censored, CensoredGaussian, Cox, LogNormal, Weibull

__all__ = [
    "Autoregressive",
    "Bernoulli",
    "Binomial",
    "Censored",
    "CensoredGaussian",
    "Cox",
    "FixedSoftmax",
    "Heteroskedastic",
    "Hurdle",
    "LogNormal",
    "LogitBeta",
    "MeanGamma",
    "MeanLink",
    "NegativeBinomial",
    "Ordered",
    "Quantile",
    "Quasi",
    "StudentT",
    "Tweedie",
    "Weibull",
    "Weighted",
    "ZeroInflated",
    "conditional_distribution",
]
