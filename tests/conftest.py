"""Shared data and models."""

from __future__ import annotations

import functools
import os
import sys
import typing
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# The models here are small: the suite's time goes into tracing, optimizing and compiling graphs that
# run once or twice, and into threads that wait for one another. So each worker has one thread (the
# processes that tests start inherit it), XLA compiles without optimization, and Grappler is off.
# GPFLOW_GAM_TEST_DEFAULTS=1 runs the suite as TensorFlow comes.
AS_IT_COMES = bool(os.environ.get("GPFLOW_GAM_TEST_DEFAULTS"))
if not AS_IT_COMES:
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow_probability.python.bijectors import Bijector

if not AS_IT_COMES:
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if sys.version_info < (3, 12):
        # TensorFlow asks of every nested value whether it follows a protocol, and Python 3.11 lists
        # what the protocol has anew each time (4 % of a run); from 3.12 it remembers, as here.
        typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)


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
