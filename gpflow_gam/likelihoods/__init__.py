"""Likelihoods that GPflow lacks, and what models ask of one beyond GPflow's interface."""

from .bernoulli import Bernoulli
from .binomial import Binomial
from .censored import Censored, CensoredGaussian, LogNormal, Weibull
from .censored_scale import (
    LocationScaleCensored,
    LocationScaleCensoredGaussian,
    LocationScaleLogNormal,
    LocationScaleWeibull,
)
from .conditional import conditional_distribution
from .cox import Cox
from .fixed_softmax import FixedSoftmax
from .heteroskedastic import Heteroskedastic
from .linked import Linked, LinkedLocationScale
from .location_scale import (
    LocationScale,
    LocationScaleBeta,
    LocationScaleGamma,
    LocationScaleNegativeBinomial,
    LocationScaleStudentT,
)
from .logit_beta import LogitBeta
from .mean_gamma import MeanGamma
from .mean_link import MeanLink
from .negative_binomial import NegativeBinomial
from .ordered import Ordered
from .quadrature import GaussHermite
from .quantile import LocationScaleQuantile, Quantile
from .quasi import Quasi
from .response import (
    ResponseSummary,
    conditional_response,
    expected_response,
    response_interval,
    summarised_response,
)
from .sites import constant_predictor, expectation_gradients
from .support import (
    checked_data,
    checked_inputs,
    checked_observations,
    possible_observations,
    register_support,
)
from .tweedie import Tweedie
from .two_predictors import TwoPredictors
from .weighted import Weighted, unwrapped
from .width import check_width, num_labels, observation_width
from .zero_altered import Hurdle, ZeroInflated

__all__ = [
    "Bernoulli",
    "Binomial",
    "Censored",
    "CensoredGaussian",
    "Cox",
    "FixedSoftmax",
    "GaussHermite",
    "Heteroskedastic",
    "Hurdle",
    "Linked",
    "LinkedLocationScale",
    "LocationScale",
    "LocationScaleBeta",
    "LocationScaleCensored",
    "LocationScaleCensoredGaussian",
    "LocationScaleGamma",
    "LocationScaleLogNormal",
    "LocationScaleNegativeBinomial",
    "LocationScaleQuantile",
    "LocationScaleStudentT",
    "LocationScaleWeibull",
    "LogNormal",
    "LogitBeta",
    "MeanGamma",
    "MeanLink",
    "NegativeBinomial",
    "Ordered",
    "Quantile",
    "Quasi",
    "ResponseSummary",
    "Tweedie",
    "TwoPredictors",
    "Weibull",
    "Weighted",
    "ZeroInflated",
    "check_width",
    "checked_data",
    "checked_inputs",
    "checked_observations",
    "conditional_distribution",
    "conditional_response",
    "constant_predictor",
    "expectation_gradients",
    "expected_response",
    "num_labels",
    "observation_width",
    "possible_observations",
    "register_support",
    "response_interval",
    "summarised_response",
    "unwrapped",
]
