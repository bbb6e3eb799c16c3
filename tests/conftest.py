"""Shared data and models."""

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests marked ``slow_but_first`` the further cases are slow."""
    seen = set()
    for item in items:
        if item.get_closest_marker("slow_but_first"):
            name = item.nodeid.split("[")[0]
            if name in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(name)


def pytest_collection_finish() -> None:
    """What was imported stays: to look for garbage in it is for nothing."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _graphs_end() -> Iterator[None]:
    """Let go of graphs that custom gradients and TFP's transforms would hold for the whole run."""
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
    """Tests, and the fixtures of the next module, start from GPflow's defaults."""
    _as_gpflow_comes()
    yield
    _as_gpflow_comes()
    gc.collect(1)  # a few graphs at a time: what many of them hold took a minute to end at once


@pytest.fixture
def eagerly() -> Iterator[None]:
    """No function is traced: for few steps, of which tracing is most of the time."""
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
    """Keras in double precision: a process's first layer sets the policy of later ones."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)
