"""Random GAMs on nasty data: finite and sane, or one of our errors."""

from __future__ import annotations

import pytest

hypothesis = pytest.importorskip("hypothesis")  # of the test extra

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from nasty import Case, cases, judged  # noqa: E402

QUIET = {
    "database": None,
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


@settings(max_examples=18, phases=[Phase.explicit, Phase.generate], **QUIET)
@given(cases())
def test_random_gams_are_sane_or_refused(case: Case) -> None:
    outcome = judged(case)
    assert outcome.good, f"{outcome.kind}: {outcome.text}"
