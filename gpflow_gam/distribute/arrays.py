"""Arrays and datasets as Keras's ``fit`` takes them: inputs, responses and sample weights."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

Share = tuple[Any, ...]
"""X and Y, and sample weights where there are any; X and Y may be dicts, lists or tuples."""


def named(share: Share) -> dict[str, Any]:
    """What a share is made of, under names for messages: ``X['wide']``."""
    found = {}
    for name, part in zip(("X", "Y", "sample_weight"), share):
        for path, leaf in keras.tree.flatten_with_path(part):
            found[name + "".join(f"[{key!r}]" for key in path)] = leaf
    return found


def arrays_of(data: Sequence[Any], name: str = "data") -> Share:
    """
    Numpy's arrays in the structure of ``data``.

    :param data: X and Y, and perhaps sample weights or None.
    :param name: of the argument, for messages.
    :raises ValueError: they are not arrays of rows, or of unequal numbers, or bad weights.
    """
    data = tuple(data)
    if len(data) == 3 and data[2] is None:
        data = data[:2]
    if len(data) not in (2, 3):
        raise ValueError(
            f"{name}, where no sample_weight comes third, must be a pair (X, Y); got "
            f"{len(data)} entries."
        )
    arrays = tuple(_array(part) for part in data)
    rows = {}
    for part_name, part in named(arrays).items():
        if part.ndim == 0 or part.dtype == object:
            raise ValueError(
                f"{name}: {part_name} must be an array of rows; got shape {part.shape} of dtype "
                f"{part.dtype}."
            )
        rows[part_name] = len(part)
    if not rows:
        raise ValueError(f"{name}: X and Y hold no array.")
    if len(set(rows.values())) > 1:
        sizes = ", ".join(
            f"{part_name} has {number}" + (" rows" if i == 0 else "")
            for i, (part_name, number) in enumerate(rows.items())
        )
        raise ValueError(f"{name}: {sizes}; they must be equal.")
    for part_name, part in named(arrays).items():
        if part_name.startswith("sample_weight") and not np.all(np.isfinite(part) & (part >= 0)):
            bad = int(np.flatnonzero(~(np.isfinite(part) & (part >= 0)))[0])
            raise ValueError(
                f"{name}: {part_name} must be finite and not negative; entry {bad} is not."
            )
    return arrays


def _array(part: Any) -> Any:
    """An array, or several as Keras takes them: in a dict, a list or a tuple."""
    if isinstance(part, Mapping):
        return {key: _array(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)) and part and all(hasattr(v, "shape") for v in part):
        return tuple(np.asarray(value) for value in part)
    return np.asarray(part)


def number_of_rows(arrays: Share) -> int:
    """N of arrays [N, ...]."""
    return len(tf.nest.flatten(arrays)[0])


def check_pairs(dataset: tf.data.Dataset, name: str = "data") -> None:
    """
    :raises ValueError: a dataset of something else than pairs or triples of dense tensors.
    """
    spec = dataset.element_spec
    dense = all(isinstance(s, tf.TensorSpec) for s in tf.nest.flatten(spec))
    if not (isinstance(spec, tuple) and len(spec) in (2, 3) and dense):
        raise ValueError(
            f"{name} must be a dataset of pairs (X, Y) of tensors, or of (X, Y, sample_weight); it "
            f"gives {spec}."
        )


def rows_of(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """
    A dataset of rows as it is; one of batches, whose first dimensions ``batch`` leaves unknown,
    taken apart.
    """
    shapes = [s.shape for s in tf.nest.flatten(dataset.element_spec)]
    if any(shape.rank is None or shape.rank == 0 for shape in shapes):
        return dataset
    return dataset.unbatch() if all(shape[0] is None for shape in shapes) else dataset


def checksum(arrays: Share) -> int:
    """Tells other numbers from these."""
    found = 0
    for part in tf.nest.flatten(arrays):
        part = part.astype(bytes) if part.dtype == object else part  # strings of a dataset
        found = zlib.crc32(np.ascontiguousarray(part).data, found)
    return found
