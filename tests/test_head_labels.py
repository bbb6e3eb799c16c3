"""What heads take for a response: codes or one-hot, and nothing of another width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, IterNCGP

N = 60
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2)).astype("float32")
CODES = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
ONE_HOT = keras.utils.to_categorical(CODES, 3)


def build(likelihood: Any, **options: Any) -> tuple[keras.Model, AdditiveGP]:
    head = AdditiveGP(gg.s(0) + gg.s(1), likelihood, num_data=N, num_inducing=5, **options)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, head(inputs))
    classes = options.get("num_classes") is not None
    names = ["accuracy", "nlpd", *(["categorical_accuracy"] if classes else [])]
    model.compile(
        keras.optimizers.Adam(0.05), loss=head.loss, metrics=[head.metric(m) for m in names]
    )
    model.optimizer.build(model.trainable_variables)  # else a step is traced twice
    return model, head


@pytest.mark.slow_but_first
@pytest.mark.parametrize("likelihood", ["softmax", "ordinal", gpflow.likelihoods.Softmax(3)])
def test_one_hot_labels_are_codes(likelihood: Any) -> None:
    classes = 3 if isinstance(likelihood, str) else None
    head = AdditiveGP(gg.s(0), likelihood, num_classes=classes, num_data=N, num_inducing=5)
    moments = head(X)
    names = ["accuracy", "sparse_categorical_crossentropy", "categorical_crossentropy", "nlpd"]
    result = []
    for y in (CODES, CODES[:, None], ONE_HOT):
        np.testing.assert_array_equal(head.response_matrix(y), CODES[:, None])
        metrics = [head.metric(name) for name in names]
        for metric in metrics:
            tf.random.set_seed(0)  # GPflow's softmax draws
            metric.update_state(y, moments)
        result.append([float(m.result()) for m in metrics])
    np.testing.assert_allclose(result[1:], [result[0]] * 2, rtol=1e-6)
    np.testing.assert_allclose(result[0][1], result[0][2], rtol=1e-6)  # two names of one number
    tf.random.set_seed(0)
    want = float(head.loss(CODES, moments))
    tf.random.set_seed(0)
    assert float(head.loss(ONE_HOT, moments)) == want


@pytest.mark.slow
def test_classes_of_iterncgp_are_those_of_the_model(tmp_path: Path) -> None:
    """By the covariance between classes, in a call, its moments, losses, metrics and files."""
    terms, options = gg.s(0) + gg.linear(1), {"num_classes": 3, "name": "newton"}
    head = IterNCGP(terms, "softmax", **options)
    with pytest.raises(ValueError, match="has no posterior yet"):
        head.posterior()
    head.fit(X[:60], CODES[:60], hyperparameters=False, progress=False)
    model = gg.models.IterNCGP(
        (head.scaled(X[:60]), CODES[:60, None].astype(float)),
        head.kernel,
        gg.likelihoods.FixedSoftmax(3),
        mean_function=head._gp.mean_function,
        solver="newton",
    )
    gg.optimizers.fit(model, hyperparameters=False, progress=False)
    assert float(head.predictive_share) == model.predictive_share()
    p = model.predict_y(head.scaled(X))[0].numpy()
    moments = head(X)
    np.testing.assert_allclose(head(X, output="response"), p, atol=1e-7)
    np.testing.assert_allclose(head.response(moments), p, atol=1e-7)
    np.testing.assert_allclose(head(X, output="interval")[..., 0], p, atol=1e-7)
    mean, cov = model.predict_f(head.scaled(X), full_output_cov=True)
    np.testing.assert_allclose(moments[..., 0], mean, atol=1e-7)
    np.testing.assert_allclose(moments[..., 1], tf.linalg.diag_part(cov), atol=1e-6)
    np.testing.assert_allclose(moments[..., 2:], cov, atol=1e-6)
    observed = np.log(p[np.arange(len(p)), CODES])
    np.testing.assert_allclose(head.predict_log_density(CODES, moments), observed, atol=1e-6)
    root = np.linalg.cholesky(moments[..., 2:])
    z = np.random.default_rng(0).standard_normal((4000, len(p), 3, 1))
    logs = tf.nn.log_softmax(moments[..., 0] + (root @ z)[..., 0]).numpy().mean(axis=0)
    expected = -logs[np.arange(len(p)), CODES]
    np.testing.assert_allclose(
        head.negative_expected_log_likelihood(CODES, moments), expected, atol=0.1
    )

    inputs = keras.Input(X.shape[1:], dtype="float64")
    network = keras.Model(inputs, head(inputs))
    network.compile(loss=head.loss, metrics=[head.metric("nlpd")])
    result = network.evaluate(X, CODES, verbose=0, return_dict=True)
    assert result["nlpd"] == pytest.approx(-observed.mean(), abs=1e-5)
    network.save(tmp_path / "net.keras")
    again = keras.models.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(again(X), moments)
    other = again.get_layer("newton")
    np.testing.assert_allclose(other(X, output="response"), p, atol=1e-7)
    gg.serving.export(network, tmp_path / "served")
    served = gg.serving.load(tmp_path / "served").predict(X)
    np.testing.assert_allclose(served["response"], p, atol=1e-7)
    other = IterNCGP(terms, "softmax", sizes=head.get_config()["sizes"], **options)
    saved = tf.train.Checkpoint(head).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(other).read(saved).assert_existing_objects_matched()
    np.testing.assert_array_equal(other(X), moments)
    with pytest.raises(ValueError, match="needs a new layer"):
        head.fit(X[:50], CODES[:50], hyperparameters=False, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_soft_labels_are_no_labels(jit_compile: bool) -> None:
    model, head = build("softmax", num_classes=3)
    soft = 0.9 * ONE_HOT + 0.1 / 3.0
    with pytest.raises(ValueError, match="y of 3 columns must be one-hot.*in row 0"):
        head.loss(soft, head(X))
    model.compile(loss=head.loss, jit_compile=jit_compile)
    if jit_compile:  # where no assertion fails
        options = {"batch_size": N, "verbose": 0, "return_dict": True}
        assert np.isnan(model.evaluate(X, soft, **options)["loss"])
        assert np.isfinite(model.evaluate(X, ONE_HOT, **options)["loss"])
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be one-hot"):
            model.evaluate(X, soft, batch_size=N, verbose=0)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("likelihood", "width", "message"),
    [
        ("gaussian", 2, r"y must be \[N, 1\] under Gaussian.*got \[N, 2\]"),
        ("binomial", 1, r"y must be \[N, 2\], successes and trials"),
        ("softmax", 2, r"y must be \[N, 1\] under FixedSoftmax"),
    ],
)
def test_other_widths_fail_as_they_are_traced(likelihood: str, width: int, message: str) -> None:
    model, head = build(likelihood, num_classes=3 if likelihood == "softmax" else None)
    y = np.tile(np.arange(N)[:, None] % 2, (1, width)).astype("float32")
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, verbose=0)
    with pytest.raises(ValueError, match=message):
        head.metric("mse").update_state(y, head(X))
    with pytest.raises(ValueError, match=message):
        head.adapt(X, y)
    with pytest.raises(ValueError, match=r"y must be \[N\] or \[N, K\]; got shape \(60, 1, 1\)"):
        head.loss(y[:, :1, None], head(X))
