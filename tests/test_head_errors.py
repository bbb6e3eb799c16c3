"""Keras heads: bad input is told what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from head_cases import LABELS, X, Y, additive, compiled, network, small

import gpflow_gam as gg


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_data": None}, ValueError, "num_data must be the number of training rows"),
        ({"likelihood": "softmax"}, ValueError, "num_classes must be at least 2"),
        ({"terms": gg.s("x")}, TypeError, "features by index"),
        ({"terms": gg.s(0) + gg.factor(1)}, ValueError, r"num_levels=\{1: K\}"),
        ({"terms": gg.s(0) + gg.factor(0), "num_levels": {0: 3}}, ValueError, "column twice"),
        ({"terms": gg.s(0, bs="cyclic")}, ValueError, "needs period"),
        ({"dtype": "float16"}, ValueError, "dtype must be 'float64' or 'float32'"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        additive(**options)


def test_bad_features() -> None:
    head = additive(gg.s(0) + gg.te(1, 4))
    with pytest.raises(ValueError, match=r"te\(1,4\) reads feature 4, but .* 3 feature"):
        head(keras.Input((3,)))
    with pytest.raises(ValueError, match=r"s\(0\):7 reads feature 7"):
        additive(gg.s(0, by=7))(keras.Input((3,)))
    with pytest.raises(ValueError, match="flatten or pool"):
        head(keras.Input((3, 3, 1)))
    with pytest.raises(ValueError, match="must be finite"):
        additive().adapt(np.where(X > 2.0, np.nan, X))
    with pytest.raises(ValueError, match=r"standard deviation of 25 where scale=1"):
        additive().adapt(X, 25.0 * (Y - Y.mean()) / Y.std())


@pytest.mark.parametrize(
    ("likelihood", "classes", "labels"),
    [("softmax", 3, LABELS + 1), ("poisson", None, LABELS - 1)],
)
def test_impossible_labels(likelihood: str, classes: int | None, labels: Any) -> None:
    head = small(likelihood=likelihood, num_classes=classes)
    with pytest.raises(ValueError, match="y must be"):
        head.loss(labels, head(X))
    if likelihood == "softmax":  # whose kernels would read past the end of an array
        model = compiled(network(head), head)
        with pytest.raises(tf.errors.InvalidArgumentError, match="y must be"):
            model.fit(X, labels, epochs=1, verbose=0)


def test_a_batch_larger_than_num_data() -> None:
    head = small(num_data=20)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_data=20 .* smaller"):
        compiled(network(head), head).fit(X, Y, batch_size=30, verbose=0)


def test_own_objects_cannot_be_saved(tmp_path: Path) -> None:
    head = additive(likelihood=gpflow.likelihoods.StudentT())
    assert np.all(np.isfinite(head(X)))
    with pytest.raises(ValueError, match="cannot be saved"):
        network(head).save(tmp_path / "net.keras")
    own = additive(gg.s(0, kernel=gpflow.kernels.Matern32()))
    with pytest.raises(ValueError, match="kernel of your own"):
        own.get_config()
