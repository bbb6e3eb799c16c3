"""Shared data and models."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import gpflow
import numpy as np
import problems
import pytest


@pytest.fixture(autouse=True)
def _defaults() -> None:
    """Every test starts from GPflow's defaults, whatever the one before did."""
    gpflow.config.set_default_float(np.float64)
    gpflow.config.set_default_jitter(1e-6)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20180)


@pytest.fixture
def problem() -> problems.Problem:
    return problems.mixed()
