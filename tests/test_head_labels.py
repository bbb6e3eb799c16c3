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
@pytest.mark.parametrize("jit_compile", [False, True])
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


@pytest.mark.slow_but_first
@pytest.mark.parametrize("jit_compile", [False, True])
def test_other_widths_fail_where_the_rank_is_not_known(jit_compile: bool) -> None:
    """After [N] Keras traces y of any rank, of which [1, 2] could be two rows."""
    model, head = build("bernoulli")
    model.compile(loss=head.loss, metrics=[head.metric("accuracy")], jit_compile=jit_compile)
    y = (CODES > 1).astype(float)
    one_hot = np.stack([1.0 - y, y], axis=1)
    model.evaluate(X, y, batch_size=20, verbose=0)
    message = "reshape" if jit_compile else r"y must be \[N, 1\] for N rows.*argmax"
    for number in (N, 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            model.evaluate(X[:number], one_hot[:number], batch_size=20, verbose=0)
    with pytest.raises(ValueError, match=r"y must be \[N, 1\] for N rows.*; got 3 rows for 1"):
        head.loss(y[:3], head(X[:1]))


# --- features with any leading dimensions: sequences, images, masks ------------------------------

DRAWN = np.random.default_rng(0)
SEQUENCES = DRAWN.normal(size=(60, 5, 2))
Y = np.sin(2.0 * SEQUENCES[..., 0]) + SEQUENCES[..., 1] + 0.2 * DRAWN.normal(size=(60, 5))
WEIGHT = DRAWN.uniform(0.5, 1.5, size=Y.shape)


def built(shape: tuple[int, ...], num_data: int = 300, masked: bool = False) -> Any:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((*shape, 2), dtype="float64")
    head = gg.layers.AdditiveGP(gg.s(0) + gg.s(1), num_data=num_data, num_inducing=8)
    x = keras.layers.Masking(dtype="float64")(inputs) if masked else inputs
    model = keras.Model(inputs, head(keras.layers.Dense(2, dtype="float64")(x)))
    metrics = [head.metric("nlpd"), head.metric("mse")]
    model.compile("adam", loss=head.loss, weighted_metrics=metrics)
    return model, head


@pytest.mark.slow
def test_rows_are_rows_whatever_their_dimensions() -> None:
    """A sequence of five steps is five rows: the same batches train the same model."""
    results = []
    for leading in ((300,), (60, 5, 1)):
        model, head = built(leading[1:])
        batch = 50 * leading[0] // 300
        history = model.fit(
            SEQUENCES.reshape(*leading, 2),
            Y.reshape(leading),
            sample_weight=WEIGHT.reshape(leading),
            batch_size=batch,
            epochs=2,
            shuffle=False,
            verbose=0,
        ).history
        moments = model.predict(SEQUENCES.reshape(*leading, 2), verbose=0)
        assert moments.shape == (*leading, 1, 2)
        response = head(moments[..., 0, :], output="response")
        assert response.shape == leading
        assert head(moments[..., 0, :], output="interval").shape == (*leading, 3)
        results.append((history, moments.reshape(300, 2), np.ravel(response)))
    (history, *rows), (other, *places) = results
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-5)
    for got, want in zip(places, rows):
        np.testing.assert_allclose(got, want, atol=1e-10)


@pytest.mark.slow
def test_masked_steps_are_not_there() -> None:
    """Training, loss and metrics are those of the other steps alone, whatever stands in these."""
    mask = DRAWN.uniform(size=Y.shape) < 0.7
    mask[:, 0] = True
    number = int(mask.sum())
    padded, y = np.where(mask[..., None], SEQUENCES, 0.0), np.where(mask, Y, np.nan)
    model, head = built((5,), number, masked=True)
    history = model.fit(padded, y, batch_size=60, epochs=4, shuffle=False, verbose=0).history
    flat, other = built((), number)
    want = flat.fit(
        SEQUENCES[mask], Y[mask], batch_size=1000, epochs=4, shuffle=False, verbose=0
    ).history
    for name, values in want.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    np.testing.assert_allclose(head(SEQUENCES[:, 0]), other(SEQUENCES[:, 0]), atol=1e-8)
    evaluated = model.evaluate(padded, y, batch_size=60, verbose=0, return_dict=True)
    whole = flat.evaluate(SEQUENCES[mask], Y[mask], batch_size=1000, verbose=0, return_dict=True)
    for name, value in whole.items():
        np.testing.assert_allclose(evaluated[name], value, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [5, None])
def test_a_layer_before_the_loss_is_an_error(steps: int | None) -> None:
    """The head would learn nothing of what it sees."""
    inputs = keras.Input((steps, 2), dtype="float64")
    head = gg.layers.AdditiveGP(gg.s(0) + gg.s(1), num_data=300, num_inducing=8)
    model = keras.Model(inputs, keras.layers.TimeDistributed(head)(inputs))
    model.compile("adam", loss=head.loss)
    with pytest.raises(ValueError, match="needs? no TimeDistributed|must be given what the layer"):
        model.fit(SEQUENCES, Y, verbose=0)
    assert model.evaluate(SEQUENCES, Y, verbose=0) > 0.0


@pytest.mark.slow
def test_gradient_descent_moves_hyperparameters_as_gpflow_would() -> None:
    """Whatever the coordinates that Adam's steps are right in."""
    model, head = built(())
    rows, y = tf.constant(SEQUENCES.reshape(300, 2)), tf.constant(Y.ravel())
    data = tf.data.Dataset.from_tensors((rows, y))  # in double precision, which arrays lose
    model.fit(data, epochs=3, verbose=0)
    head.frozen = ("inducing_variable", "variational", "mean_function")
    head.normalization = None  # so that a step changes nothing else
    model.compile(keras.optimizers.SGD(0.1), loss=head.loss)
    gp = head.model
    variance, scaled = gp.likelihood.variance, head.scaled(model.layers[1](rows))
    start, values = 3.0 * variance.numpy(), []
    for factor in (1e-4, -1e-4, 0.0):
        variance.assign(start * np.exp(factor))
        elbo = gp.elbo((scaled, y[:, None])) + gp.log_prior_density()
        values.append(-float(elbo) / 300)
    model.fit(data, epochs=1, verbose=0)
    slope = (values[0] - values[1]) / 2e-4
    np.testing.assert_allclose(np.log(variance.numpy() / start), -0.1 * slope, rtol=1e-5)
