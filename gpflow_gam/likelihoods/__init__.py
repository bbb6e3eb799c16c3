"""Likelihoods that GPflow lacks, and the parts of one beyond GPflow's interface."""

from .base import Quasi, Weighted
from .binary import Bernoulli, Binomial
from .censored import Censored, CensoredGaussian, Cox, LogNormal, Weibull
from .classes import FixedSoftmax, Ordered
from .continuous import Heteroskedastic, LogitBeta, MeanGamma, Quantile, StudentT, Tweedie
from .counts import Hurdle, NegativeBinomial, ZeroInflated
from .linked import MeanLink
from .predictive import conditional_distribution

__all__ = [
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
