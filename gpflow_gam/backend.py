"""Keras must compute with TensorFlow, as GPflow does."""

from __future__ import annotations

_OTHERS = ("jax", "jaxlib", "torch", "openvino")
"""Modules that Keras imports for its other backends."""


def require_tensorflow() -> None:
    """Raise ImportError if Keras has another backend, whose variables no GPflow graph knows."""
    try:
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
