"""What likelihoods say at rows whose predictor is normal."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_gam.likelihoods import Weighted
from gpflow_gam.statistics.expectations import expectations


@pytest.mark.parametrize("size", [1.0, 2.5])
def test_counts_in_closed_form_are_those_of_gpflow(size, rng):
    mean, var = rng.standard_normal((50, 1)), rng.uniform(0.0, 2.0, (50, 1))
    Y, X = rng.poisson(3.0, (50, 1)).astype(float), np.ones((50, 1))
    likelihood = gpflow.likelihoods.Poisson(binsize=size)
    found = expectations(likelihood, X, mean, var, Y, ())
    # beside weights of one the general way is taken
    wanted = expectations(Weighted(likelihood, 0), X, mean, var, Y, ())
    assert found.total == pytest.approx(wanted.total, rel=1e-12)
    np.testing.assert_allclose(found.slope, wanted.slope, rtol=1e-12)
    np.testing.assert_allclose(found.precision, wanted.precision, rtol=1e-12)
    with pytest.raises(ValueError, match="whole counts"):
        expectations(likelihood, X, mean, var, Y + 0.5, ())
