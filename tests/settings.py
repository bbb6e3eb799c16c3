"""How TensorFlow runs in tests and the scripts that they start: import it before TensorFlow."""

import functools
import gc
import os
import sys
import typing

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("MPLBACKEND", "Agg")

# The models here are small: the suite's time goes into tracing, optimizing and compiling graphs
# that run once or twice, and into threads that wait for one another. So each process has one thread
# (those that tests start inherit it), XLA compiles without optimization, and Grappler is off.
# GPFLOW_GAM_TEST_DEFAULTS=1 runs the suite as TensorFlow comes.
if not os.environ.get("GPFLOW_GAM_TEST_DEFAULTS"):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

    import tensorflow as tf
    from check_shapes.config import set_rewrite_docstrings
    from tensorflow.python.framework import ops

    set_rewrite_docstrings(None)  # parsing GPflow's is a fifth of what it takes to import it
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    if sys.version_info < (3, 12):
        # TensorFlow asks of every nested value whether it follows a protocol, and Python 3.11 lists
        # what a protocol has anew each time (4 % of a run); from 3.12 it remembers, as here.
        typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)

    # An operation is made without a note of the Python stack, which takes a tenth of tracing (and
    # which some messages show: see them with GPFLOW_GAM_TEST_DEFAULTS=1).
    ops._create_c_op.__wrapped__.__defaults__ = (None, False)

    # Tracing makes many objects that stay; to look among them for garbage took a twentieth.
    gc.set_threshold(20_000, 20, 20)
