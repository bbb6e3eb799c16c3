"""Keras must compute with TensorFlow, as GPflow does; TensorFlow is silent where it is asked to."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_OTHERS = ("jax", "jaxlib", "torch", "openvino")
"""Modules that Keras imports for its other backends."""


def require_tensorflow() -> None:
    """Raise ImportError if Keras has another backend, whose variables no GPflow graph knows."""
    try:
        with _without_notes():
            import keras

        backend = keras.config.backend()
    except ModuleNotFoundError as error:  # Keras looks for a backend that is not installed
        if error.name not in _OTHERS:
            raise
        backend = error.name
    if backend != "tensorflow":
        raise ImportError(
            f"gpflow_gam needs Keras's TensorFlow backend; Keras is set to {backend!r}. Set the "
            "environment variable KERAS_BACKEND=tensorflow, or that in ~/.keras/keras.json, before "
            "Keras is first imported."
        )


_NOTE = re.compile(
    rb"^(WARNING: All log messages before absl::InitializeLog\(\) |I\d{4} |"
    rb"\d{4}-\d\d-\d\d \S+ I |To enable the following instructions: ).*\n",
    re.MULTILINE,
)
"""Lines of TensorFlow's that are information."""


@contextmanager
def _without_notes() -> Iterator[None]:
    """Leave out notes that TensorFlow writes before it reads TF_CPP_MIN_LOG_LEVEL."""
    level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0")
    if level not in ("1", "2", "3") or "tensorflow" in sys.modules:
        yield
        return
    try:
        stderr = os.dup(2)
    except OSError:  # there is none
        yield
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            said.seek(0)
            with open(2, "wb", closefd=False) as file:
                file.write(_NOTE.sub(b"", said.read()))
