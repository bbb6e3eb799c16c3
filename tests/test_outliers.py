"""Rows that are far from all others, for families that are there for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.gam.families.encoding import Sample


def test_where_most_rows_are_equal_their_width_is_the_standard_deviation() -> None:
    y = np.where(np.arange(100) < 70, 3.0, np.arange(100.0))[:, None]
    assert Sample(y).robust[1] == pytest.approx(np.std(y))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "model", [s("x"), {"location": s("x"), "scale": linear("x")}], ids=["location", "scale"]
)
def test_student_t_ignores_an_outlier(model: Any) -> None:
    """The truth is known; the fit was to the outlier, whose deviations its units were."""
    rng = np.random.default_rng(9)
    x = np.linspace(0.0, 1.0, 100)
    f = np.sin(6.0 * x)
    y = f + 0.1 * rng.standard_normal(100)
    y[30] += 1e6
    gam = gg.GAM(model, "student_t").fit({"x": x, "y": y}, "y")
    assert np.sqrt(np.mean(np.square(gam.predict({"x": x}) - f))) < 0.05


@pytest.mark.slow
def test_a_file_without_data_knows_the_width(tmp_path: Path) -> None:
    """What is learnt is kept above a bound that is a share of it."""
    rng = np.random.default_rng(9)
    x = np.linspace(0.0, 1.0, 100)
    data = {"x": x, "y": np.sin(6.0 * x) + 0.1 * rng.standard_normal(100)}
    data["y"][30] += 1e6
    gam = gg.GAM(s("x"), "student_t").fit(data, "y")
    gam.save(tmp_path / "a.gam", data=False)
    loaded = gg.GAM.load(tmp_path / "a.gam")
    np.testing.assert_array_equal(loaded.log_density(data), gam.log_density(data))
    assert loaded.fitted.likelihood.scale.numpy() == gam.fitted.likelihood.scale.numpy()
