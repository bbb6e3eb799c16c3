"""What distributed training reports once an epoch, against Keras's own ``fit``."""

from __future__ import annotations

from typing import Any

import distributed_fit as script
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg

fit = gg.distribute.fit
TRAINING, VALIDATION, OPTIONS = script.TRAINING, script.VALIDATION, script.REPORTING


# Keras adds up metrics in it
pytestmark = pytest.mark.usefixtures("keras_in_double")


def rows() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(TRAINING)


def assert_equal(result: Any, expected: Any) -> None:
    assert list(result) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(result[name], values, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.fixture(scope="module")
def of_keras() -> tuple[dict[str, list[float]], list[np.ndarray]]:
    model = script.reporting()
    history = model.fit(rows().batch(24), epochs=2, validation_data=VALIDATION, verbose=0).history
    return history, model.get_weights()


@pytest.fixture(scope="module")
def reported() -> gg.distribute.DistributedFit:
    return fit(script.reporting, rows(), **OPTIONS)


@pytest.mark.slow
def test_reports_are_those_of_keras(of_keras, reported):
    """Outputs with a loss each; weights; regularisation; a last validation batch of fewer rows."""
    history, weights = of_keras
    assert {"mean_rmse", "side_mse", "side_loss", "val_mean_mae", "val_loss"} <= set(history)
    assert sorted(reported.epochs) == sorted(history)
    # where batches differ in size Keras weighs those of an output's loss by what it has traced
    for name in {*history} - {"val_mean_loss", "val_side_loss"}:
        np.testing.assert_allclose(reported.epochs[name], history[name], rtol=1e-10, err_msg=name)
    assert len(reported.history) == 12  # two epochs of five, and two steps
    options = {**OPTIONS, "num_steps": 10, "steps_per_epoch": 5}  # not known of batches
    again = fit(script.reporting, rows().batch(7), **options)
    for a, b in zip(again.model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_resumed_fit_reports_what_the_whole_one_does(reported, tmp_path):
    """Also of the epoch in whose middle it was interrupted."""
    options = {**OPTIONS, "checkpoint": tmp_path, "save_every": 4}
    seen = {}

    def callback(progress: gg.distribute.StepProgress) -> bool:
        if progress.epoch:
            seen[progress.step] = float(progress.epoch["val_loss"])
        return progress.step == 8

    first = fit(script.reporting, rows(), **options, callback=callback)
    assert len(first.history) == 8
    assert len(first.epochs["loss"]) == 1
    result = fit(script.reporting, rows(), **options)
    assert result.resumed_from == 8
    assert_equal(result.epochs, reported.epochs)
    assert seen == {5: pytest.approx(reported.epochs["val_loss"][0], rel=1e-10)}
    for changed, message in (
        ({"validation_data": TRAINING}, "its validation_data were others"),
        ({"steps_per_epoch": 4}, "steps_per_epoch was 5, now it is 4"),
        ({"validation_data": None}, "its validation_data were others"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(script.reporting, rows(), **{**options, **changed})


def test_the_steps_of_an_epoch() -> None:
    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
        return model

    data = tf.data.Dataset.from_tensor_slices((script.X, script.Y))
    unknown = data.filter(lambda x, y: True)
    with pytest.raises(ValueError, match="how many rows they have: pass steps_per_epoch="):
        fit(build, unknown, batch_size=40, num_steps=2)
    result = fit(build, unknown, batch_size=40, num_steps=5, steps_per_epoch=2)
    np.testing.assert_allclose(result.epochs["loss"], result.history[:4].reshape(2, 2).mean(1))
    assert result.epochs["mae"].shape == (2,)
    # nothing to report but the loss
    one = fit(script.network, (script.X, script.Y), batch_size=80, num_steps=4)
    np.testing.assert_allclose(one.epochs["loss"], one.history.reshape(2, 2).mean(1))


def bad(data: tuple[Any, ...]) -> tuple[Any, ...]:
    return data[0], {**data[1], "mean": data[1]["mean"][:-1]}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (
            {"validation_data": bad(VALIDATION)},
            ValueError,
            r"validation_data: .*Y\['mean'\] has 79",
        ),
        ({"validation_data": rows().repeat()}, ValueError, "without an end"),
        ({"validation_data": rows().filter(lambda *_: False)}, ValueError, "holds no rows"),
    ],
)
def test_errors(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fit(script.reporting, rows(), **{**OPTIONS, **changed})


def test_validation_of_a_model_of_gpflow() -> None:
    options = {"batch_size": 40, "num_steps": 1, "validation_data": (script.X, script.Y)}
    with pytest.raises(ValueError, match="validation_data are of a keras.Model"):
        fit(script.svgp, (script.X, script.Y), **options)
