"""What the documentation says of data larger than memory, as test_pages runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import tensorflow as tf

import gpflow_gam as gg

LEVELS = ["car", "bus", "van"]


def network(num_data: int) -> tuple[keras.Model, keras.Model, gg.layers.AdditiveGP]:
    """The model, that of the head's features, and the head."""
    age, kind = keras.Input((1,), name="age"), keras.Input((1,), name="kind")
    features = keras.layers.Concatenate()([age, kind])
    head = gg.layers.AdditiveGP(
        gg.s(0) + gg.factor(1),
        "poisson",
        num_data=num_data,
        num_levels={1: len(LEVELS)},
        num_inducing=8,
        normalization="adapt",
        name="head",
    )
    inputs = {"age": age, "kind": kind}
    model = keras.Model(inputs, head(features))
    model.compile(keras.optimizers.Adam(0.05), loss=head.loss)
    return model, keras.Model(inputs, features), head


def train(rows: tf.data.Dataset, num_data: int, epochs: int) -> keras.Model:
    """From a dataset of rows (inputs, response)."""
    model, features, head = network(num_data)
    inputs, response = next(iter(rows.batch(1000)))  # a sample
    head.adapt(features.predict_on_batch(inputs), response)
    counted = rows.apply(tf.data.experimental.assert_cardinality(num_data))
    batches = counted.shuffle(10_000, seed=0).batch(50).prefetch(2)
    model.fit(batches, epochs=epochs, verbose=0)
    return model


def from_csv(path: Path) -> tf.data.Dataset:
    """Rows of a file with columns age, kind and claims."""
    kinds = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(LEVELS, np.arange(len(LEVELS), dtype=np.float32)), -1.0
    )

    def row(age: tf.Tensor, kind: tf.Tensor, claims: tf.Tensor) -> tuple[dict, tf.Tensor]:
        return {"age": age[None], "kind": kinds.lookup(kind)[None]}, claims

    lines = tf.data.experimental.CsvDataset(
        str(path), [tf.float32, tf.string, tf.float32], header=True
    )
    return lines.map(row)


def from_parquet(path: Path) -> tf.data.Dataset:
    """Rows of the same as Parquet, a row group at a time."""

    def groups() -> Iterator[tuple[dict, np.ndarray]]:
        with pq.ParquetFile(path) as file:
            for i in range(file.num_row_groups):
                table = file.read_row_group(i, columns=["age", "kind", "claims"]).to_pandas()
                # -1 of another: an error in fit
                codes = pd.Index(LEVELS).get_indexer(table["kind"])
                columns = {"age": table[["age"]].to_numpy(np.float32)}
                columns["kind"] = codes[:, None].astype(np.float32)
                yield columns, table["claims"].to_numpy(np.float32)

    column = tf.TensorSpec((None, 1), tf.float32)
    spec = {"age": column, "kind": column}, tf.TensorSpec((None,), tf.float32)
    return tf.data.Dataset.from_generator(groups, output_signature=spec).unbatch()


def write_records(rows: tf.data.Dataset, path: Path) -> None:
    """A dataset of rows as TFRecord."""

    def numbers(value: np.ndarray) -> tf.train.Feature:
        return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value)))

    with tf.io.TFRecordWriter(str(path)) as file:
        for inputs, claims in rows.as_numpy_iterator():
            features = {name: numbers(value) for name, value in {**inputs, "y": claims}.items()}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            file.write(example.SerializeToString())


def from_records(path: Path) -> tf.data.Dataset:
    """Rows of a TFRecord file, or of several in a list."""
    spec = {name: tf.io.FixedLenFeature((1,), tf.float32) for name in ("age", "kind")}
    spec["y"] = tf.io.FixedLenFeature((), tf.float32)

    def parse(record: tf.Tensor) -> tuple[dict, tf.Tensor]:
        columns = tf.io.parse_single_example(record, spec)
        return {name: columns[name] for name in ("age", "kind")}, columns["y"]

    return tf.data.TFRecordDataset(str(path)).map(parse)


def write(model: keras.Model, path: Path) -> None:
    """The network for other programs: ``gg.serving.load(path).predict(columns)``."""
    gg.serving.export(model, path)


def resume(
    rows: tf.data.Dataset, num_data: int, num_steps: int, folder: Path
) -> gg.distribute.DistributedFit:
    """Go on from the checkpoint in the folder, if there is one."""
    sample, response = next(iter(rows.batch(1000)))

    def build() -> keras.Model:
        model, features, head = network(num_data)
        head.adapt(features(sample).numpy(), response)
        return model

    def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        own = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        size = 50 // context.num_replicas_in_sync
        return own.shuffle(10_000, seed=0).batch(size, drop_remainder=True)

    return gg.distribute.fit(
        build,
        batches,
        batch_size=50,
        num_steps=num_steps,
        checkpoint=folder,
        save_every=1000,
    )
