"""examples/wide_deep.py on few rows, as test_distribute runs it on one worker and on two."""

from __future__ import annotations

import settings  # noqa: F401
import transforms  # noqa: F401

# isort: split
import importlib.util
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

EXAMPLE = Path(__file__).parent.parent / "examples" / "wide_deep.py"


def fit(strategy: tf.distribute.Strategy | None = None) -> dict[str, np.ndarray]:
    """Two epochs of two steps; predictions, the last of what was reported, and an effect."""
    spec = importlib.util.spec_from_file_location("wide_deep", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    columns = [column[:700] for column in example.load()]
    train, held_out = ([c[part] for c in columns] for part in (slice(0, 512), slice(512, 700)))
    result, head = example.distributed(train, held_out, epochs=2, strategy=strategy)
    moments = result.model(held_out[:2])
    return {
        "history": result.history,
        **result.epochs,
        "moments": np.asarray(moments),
        "response": np.asarray(head.response(moments)),
    }


if __name__ == "__main__":
    keras.config.set_floatx("float64")
    np.savez(sys.argv[1], **fit(tf.distribute.MultiWorkerMirroredStrategy()))
