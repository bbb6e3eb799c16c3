"""The paper's rank M is not enough, and a block base with a low rank is: the benchmark's table."""

from __future__ import annotations

import pytest
from test_package import script

families = script("benchmarks/families.py")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("correlation", families.CORRELATIONS)
def test_how_far_each_family_is_from_the_exact_posterior(correlation):
    model = families.make_model(5000, correlation)

    def kl(name: str) -> float:
        return families.best_of_family(families.FAMILIES[name](), model, 300)[1]

    assert kl("mean field") > 20.0
    assert kl("precision, R = 16 (= M)") > 300.0
    assert kl("precision, R = 32") < 3.0
    assert kl("block precision, R = 8") < 0.1
