"""Shared data and models."""

from __future__ import annotations

from collections.abc import Iterator

import settings  # noqa: F401

# isort: split
import gc

import exported_files
import gpflow
import keras
import numpy as np
import problems
import pytest
import tensorflow as tf
import transforms
from tensorflow.python.framework import ops
from tensorflow_probability.python.bijectors import Bijector
from tensorflow_probability.python.internal.cache_util import BijectorCache


def pytest_collection_finish() -> None:
    """What was imported stays: to look for garbage in it is for nothing."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _graphs_end() -> Iterator[None]:
    """
    What would keep every graph of the whole run in memory.

    TensorFlow registers a custom gradient for each time that it is traced, TFP remembers what its
    transforms were called with: both hold tensors of the graph, and through them all of it.
    """
    yield
    Bijector._cache.storage.clear()
    known = ops.gradient_registry._registry
    for name in [n for n in known if n.startswith("CustomGradient-")]:
        del known[name]


def _as_gpflow_comes() -> None:
    gpflow.config.set_default_float(np.float64)
    gpflow.config.set_default_jitter(1e-6)


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    """
    Every test starts from GPflow's defaults and leaves them: fixtures of the next module are made
    before its first test starts.
    """
    _as_gpflow_comes()
    yield
    _as_gpflow_comes()


@pytest.fixture
def eagerly() -> Iterator[None]:
    """
    No function is traced: for tests that take so few steps that tracing is most of their time, of
    what others test traced.
    """
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def runtime() -> None:
    """What runs exported files."""
    if not exported_files.is_there():
        pytest.skip("onnxruntime and ai-edge-litert are not installed; they run what is exported")


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """TFP's transforms remember, as they do for users: for tests of what threads share."""
    for name, method in transforms.REMEMBERING.items():
        monkeypatch.setattr(BijectorCache, name, method)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20180)


@pytest.fixture
def problem() -> problems.Problem:
    return problems.mixed()


@pytest.fixture(scope="module")
def keras_in_double() -> Iterator[None]:
    """
    Keras computes in double precision.

    The first layer of a process takes the policy of all later ones from the type of that moment.
    """
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)
