"""Keras must compute with TensorFlow, as GPflow does."""

from __future__ import annotations

_OTHERS = ("jax", "jaxlib", "torch", "openvino")
"""What Keras imports for its other backends."""


def require_tensorflow() -> None:
    """
    Look at Keras's backend while there is something to be said about it.

    With another one layers and optimisers are made of variables that GPflow's graphs do not know,
    and fail far from here, or not at all.

    :raises ImportError: it is not TensorFlow.
    """
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
