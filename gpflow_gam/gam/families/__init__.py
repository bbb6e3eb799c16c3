"""Response families: the distribution of y given the predictor."""

from ..terms.base import Level
from .base import Family, Levels, Response
from .binary import Bernoulli
from .binomial import Binomial
from .categorical import Categorical
from .censoring import check_events
from .counts import NegativeBinomial, Poisson
from .cox import Cox
from .custom import Custom
from .encoding import Described, moments
from .gaussian import Gaussian
from .heteroskedastic import Heteroskedastic
from .ordinal import Ordinal
from .positive import Gamma
from .proportion import Beta
from .quantile import Quantile
from .quasi import QuasiBinomial, QuasiPoisson
from .registry import FAMILIES, family, from_json
from .student_t import StudentT
from .survival import CensoredGaussian, LogNormal, Survival, Weibull
from .tweedie import Tweedie
from .zero_altered import (
    HurdleNegativeBinomial,
    HurdlePoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "CensoredGaussian",
    "Cox",
    "Custom",
    "Described",
    "Family",
    "Gamma",
    "Gaussian",
    "Heteroskedastic",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "Level",
    "Levels",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Quantile",
    "QuasiBinomial",
    "QuasiPoisson",
    "Response",
    "StudentT",
    "Survival",
    "Tweedie",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "check_events",
    "family",
    "from_json",
    "moments",
]
