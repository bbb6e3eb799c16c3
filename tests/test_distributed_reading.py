"""Where a resumed fit goes on reading: at the place where the last one stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed_fit as script
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg

fit = gg.distribute.fit
OPTIONS: dict[str, Any] = {"batch_size": 20, "save_every": 6}


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((script.X.shape[1],)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The rows, in four files of 50."""
    folder = tmp_path_factory.mktemp("files")
    paths = [str(folder / f"{i}.tfrecord") for i in range(4)]
    for path, rows in zip(paths, np.split(np.hstack([script.X, script.Y]), 4)):
        with tf.io.TFRecordWriter(path) as file:
            for row in rows:
                file.write(row.tobytes())
    return paths


def stream(paths: list[str]) -> tf.data.Dataset:
    """Rows of files, mixed as one would, in another order each time they are read."""

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row = tf.ensure_shape(tf.io.decode_raw(record, tf.float64), (script.X.shape[1] + 1,))
        return row[:-1], row[-1:]

    tf.random.set_seed(0)  # the order depends on it too
    records = tf.data.Dataset.from_tensor_slices(paths).flat_map(tf.data.TFRecordDataset)
    return records.map(parse).shuffle(10, seed=1)


def resumed(build_data: Any, folder: Path, num_steps: int, between: Any = lambda: None) -> Any:
    """A fit that ends after six steps, and the one that goes on from there."""
    fit(network, build_data(), num_steps=6, checkpoint=folder, **OPTIONS)
    between()
    result = fit(network, build_data(), num_steps=num_steps, checkpoint=folder, **OPTIONS)
    assert result.resumed_from == 6
    return result


def per_replica(paths: list[str]) -> Any:
    return lambda context: stream(paths).batch(20, drop_remainder=True)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", ["rows", "function"])
def test_what_was_read_is_not_read_again(kind: str, files: list[str], tmp_path: Path) -> None:
    """The second file is gone by then: six steps are 120 rows, two files and some."""
    copies = []
    for path in files:
        copies.append(str(tmp_path / Path(path).name))
        Path(copies[-1]).write_bytes(Path(path).read_bytes())
    data = stream if kind == "rows" else per_replica
    whole = fit(network, data(files), num_steps=10, **OPTIONS)
    result = resumed(
        lambda: data(copies), tmp_path / "state", 10, between=lambda: Path(copies[1]).unlink()
    )
    np.testing.assert_array_equal(result.history, whole.history)
    with pytest.raises(tf.errors.NotFoundError):  # where the place is unknown it is read again
        list(data(copies) if kind == "rows" else data(copies)(None))


@pytest.mark.slow
def test_what_python_makes_is_read_up_to_the_place(tmp_path: Path) -> None:
    reads = []

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        reads.append(0)
        for row in zip(script.X, script.Y):
            reads[-1] += 1
            yield row

    spec = tuple(tf.TensorSpec(v.shape[1:], tf.float64) for v in (script.X, script.Y))
    data = lambda: tf.data.Dataset.from_generator(generate, output_signature=spec)
    whole = fit(network, data(), num_steps=8, **OPTIONS)
    result = resumed(data, tmp_path, 8)
    np.testing.assert_array_equal(result.history, whole.history)
    assert reads[-1] >= 160  # from the first row on
