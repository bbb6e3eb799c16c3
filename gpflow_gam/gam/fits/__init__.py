"""Fitting GAMs to named columns, and predicting from them."""

from .bare import BareGAM, bare, from_bare
from .build import ENGINES, VARIATIONAL, build_model
from .fitted import FittedGAM
from .fitting import Roles, checked_response, fit_gam
from .part import Chosen, Part, known_part, part_of
from .ranges import warn_if_far
from .resolving import as_written
from .sharing import Communication, SharedFit, fit_share
from .specification import Specification
from .streaming import fit_source, with_trials
from .updating import fit_again, fit_more

__all__ = [
    "ENGINES",
    "VARIATIONAL",
    "BareGAM",
    "Chosen",
    "Communication",
    "FittedGAM",
    "Part",
    "Roles",
    "SharedFit",
    "Specification",
    "as_written",
    "bare",
    "build_model",
    "checked_response",
    "fit_again",
    "fit_gam",
    "fit_more",
    "fit_share",
    "fit_source",
    "from_bare",
    "known_part",
    "part_of",
    "warn_if_far",
    "with_trials",
]
