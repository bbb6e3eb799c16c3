"""Recipes for data larger than memory: each kind of file trains the same network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import recipes
import tensorflow as tf

N = 300
KINDS = np.array(recipes.LEVELS)


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.uniform(18.0, 80.0, N).astype(np.float32)
    kind = rng.integers(3, size=N)
    rate = np.exp(0.5 * np.cos(age / 12.0) + np.array([0.0, 0.7, -0.4])[kind])
    return pd.DataFrame({"age": age, "kind": KINDS[kind], "claims": rng.poisson(rate)})


@pytest.fixture(scope="module")
def rows(
    data: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tf.data.Dataset]:
    folder = tmp_path_factory.mktemp("files")
    data.to_csv(folder / "claims.csv", index=False, float_format="%.9g")
    data.to_parquet(folder / "claims.parquet", row_group_size=70)
    result = {"csv": recipes.from_csv(folder / "claims.csv")}
    result["parquet"] = recipes.from_parquet(folder / "claims.parquet")
    recipes.write_records(result["csv"], folder / "claims.tfrecord")
    result["records"] = recipes.from_records(folder / "claims.tfrecord")
    return result


@pytest.mark.parametrize("kind", ["csv", "parquet", "records"])
def test_files_give_the_rows(kind, rows, data):
    inputs, response = next(iter(rows[kind].batch(2 * N)))
    np.testing.assert_array_equal(inputs["age"][:, 0], data["age"])
    np.testing.assert_array_equal(KINDS[inputs["kind"].numpy()[:, 0].astype(int)], data["kind"])
    np.testing.assert_array_equal(response, data["claims"])
    spec = rows[kind].element_spec
    assert spec == rows["csv"].element_spec


@pytest.mark.slow
def test_training_from_files_is_that_from_memory(rows, data):
    columns = {
        "age": data[["age"]].to_numpy(),
        "kind": pd.Index(recipes.LEVELS).get_indexer(data["kind"])[:, None].astype(np.float32),
    }
    memory = tf.data.Dataset.from_tensor_slices((columns, data["claims"].astype(np.float32)))
    weights = [recipes.train(r, N, epochs=1).get_weights() for r in (memory, rows["parquet"])]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(tf.errors.FailedPreconditionError, match="elements"):
        recipes.train(rows["csv"], N + 50, epochs=1)


@pytest.mark.slow
def test_a_fit_goes_on_where_it_stopped(rows: dict[str, tf.data.Dataset], tmp_path: Path) -> None:
    """Two steps and two more are four; CSV files are found again where they were."""
    whole = recipes.resume(rows["csv"], N, 4, tmp_path / "whole")
    recipes.resume(rows["csv"], N, 2, tmp_path / "parts")
    result = recipes.resume(rows["csv"], N, 4, tmp_path / "parts")
    assert result.resumed_from == 2
    np.testing.assert_array_equal(result.history, whole.history)
