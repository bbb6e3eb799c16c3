"""TensorFlow does not survive a fork."""

from __future__ import annotations

import os
import sys

from .errors import ForkedProcessError

_orphaned = False
"""Whether this process was forked from one in which TensorFlow was at work."""


def _forked() -> None:
    global _orphaned
    # asked without importing anything, which a fork may have left locked
    module = sys.modules.get("tensorflow.python.eager.context")
    context = None if module is None else getattr(module, "_context", None)
    _orphaned = _orphaned or bool(getattr(context, "_initialized", False))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def check_process() -> None:
    """
    Where the threads that TensorFlow computes with are not, it waits for them for ever.

    :raises ForkedProcessError: this process was forked after TensorFlow had begun to compute.
    """
    if _orphaned:
        raise ForkedProcessError(
            "this process was forked after TensorFlow had begun to compute in its parent, and "
            "would wait for ever for threads that are there. Start processes instead: "
            "multiprocessing.get_context('spawn'), or joblib's default; or fork before the first "
            "fit or prediction."
        )
