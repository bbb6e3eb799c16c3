"""Weights filed by name: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np


def load_state(layer: str, state: Mapping[str, keras.Variable], store: Any) -> None:
    """
    Assign what a store holds; nothing is changed unless everything fits.

    By name, not by place: Keras files trainable weights first, so that changed flags would swap
    weights of one shape without a word.

    :param layer: the layer's name, for messages.
    :param state: its variables by path.
    :param store: what Keras read, by path.
    :raises ValueError: a path is missing or unknown, or a shape differs.
    """
    there = {str(key) for key in store.keys()}  # noqa: SIM118  no mapping in older Keras
    missing, strange = sorted(set(state) - there), sorted(there - set(state))
    if missing or strange:
        first = f"it lacks {missing[0]}" if missing else f"it holds {strange[0]}"
        raise ValueError(
            f"the file does not fit {layer}: {first} ({len(missing)} missing, {len(strange)} "
            "unknown); was it saved with other terms?"
        )
    values = {path: np.asarray(store[path]) for path in state}
    for path, variable in state.items():
        if values[path].shape != tuple(variable.shape):
            raise ValueError(
                f"the file does not fit {layer}: {path} is {values[path].shape} there, "
                f"{tuple(variable.shape)} here; was it saved with other terms?"
            )
    for path, variable in state.items():
        variable.assign(values[path])
