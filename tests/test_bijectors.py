"""Transforms without memory are TFP's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow_probability as tfp

from gpflow_gam import bijectors


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (bijectors.exponential(), tfp.bijectors.Exp()),
        (bijectors.softplus(), tfp.bijectors.Softplus()),
        (bijectors.identity(), tfp.bijectors.Identity()),
    ],
    ids=lambda b: type(b).__name__,
)
def test_values_are_theirs(ours, theirs):
    y = np.array([1e-12, 1e-3, 0.7, 10.0, 24.0, 50.0, 400.0])
    np.testing.assert_allclose(ours.inverse(y), theirs.inverse(y), rtol=1e-13)
    np.testing.assert_allclose(ours.forward(ours.inverse(y)), y, rtol=1e-13)
    x = np.array([-50.0, -1.0, 0.0, 3.0, 50.0])
    np.testing.assert_allclose(ours.forward(x), theirs.forward(x), rtol=1e-13)
