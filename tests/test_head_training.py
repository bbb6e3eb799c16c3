"""What a head takes for a response, and what moves in it as it trains."""

from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from head_cases import additive, compiled, network, unchanged
from sklearn.cluster import KMeans

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, IterNCGP, SpectralBound
from gpflow_gam.layers.losses import ExpectedLogLikelihood

N = 60
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2)).astype("float32")
Y = np.sin(2.0 * X[:, 0])
CODES = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
ONE_HOT = keras.utils.to_categorical(CODES, 3)


def plain(likelihood: Any = "gaussian", **options: Any) -> AdditiveGP:
    known = {"num_data": N, "num_inducing": 5, "normalization": None}
    return additive(None, likelihood, **{**known, **options})


def build(likelihood: Any = "gaussian", **options: Any) -> tuple[keras.Model, AdditiveGP]:
    head = plain(likelihood, **{"normalization": "running", **options})
    return compiled(network(head, width=2), head, 0.01, keras.optimizers.SGD), head


# --- labels: codes or one-hot, and nothing of another width -------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("likelihood", "dtype"),
    [
        ("softmax", "float32"),
        ("softmax", None),
        ("ordinal", None),
        (gpflow.likelihoods.Softmax(3), None),
    ],
)
def test_one_hot_labels_are_codes(likelihood: Any, dtype: str | None) -> None:
    options = {"num_classes": 3} if isinstance(likelihood, str) else {}
    head = plain(likelihood, dtype=dtype, **options)
    moments = head(X)
    names = ["accuracy", "sparse_categorical_crossentropy", "categorical_crossentropy", "nlpd"]
    names += ["mse", "auc"]
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
    model_of = keras.Model(inputs, head(inputs))
    model_of.compile(loss=head.loss, metrics=[head.metric("nlpd")])
    result = model_of.evaluate(X, CODES, verbose=0, return_dict=True)
    assert result["nlpd"] == pytest.approx(-observed.mean(), abs=1e-5)
    model_of.save(tmp_path / "net.keras")
    again = keras.models.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(again(X), moments)
    other = again.get_layer("newton")
    np.testing.assert_allclose(other(X, output="response"), p, atol=1e-7)
    gg.serving.export(model_of, tmp_path / "served")
    served = gg.serving.load(tmp_path / "served").predict(X)
    np.testing.assert_allclose(served["response"], p, atol=1e-7)
    other = IterNCGP(terms, "softmax", sizes=head.get_config()["sizes"], **options)
    saved = tf.train.Checkpoint(head).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(other).read(saved).assert_existing_objects_matched()
    np.testing.assert_array_equal(other(X), moments)
    with pytest.raises(ValueError, match="new layer"):
        head.fit(np.tile(X, (2, 1)), np.tile(CODES, 2), hyperparameters=False, progress=False)
    learner = IterNCGP(terms, "softmax", **options)
    assert learner.fit(X[:60], CODES[:60], progress=False, max_rounds=1).elbo is not None
    path = "kernel.components['s(0)'].kernels[1].base.variance"
    assert learner.parameters[path].numpy() != head.parameters[path].numpy()


def test_metrics_of_other_responses_are_refused() -> None:
    counts, classes = np.column_stack([CODES, CODES + 1]), keras.metrics.MeanIoU(2)
    cases = ("gaussian", CODES, "accuracy"), ("binomial", counts, "mae")
    for likelihood, y, name in (*cases, ("bernoulli", CODES // 2, classes)):
        head = additive(gg.s(0), likelihood)
        metric = head.metric(name)
        for rows in (2, len(X)):
            with pytest.raises(ValueError, match="metric: .* is not for .* predicts one number"):
                metric.update_state(y[:rows], head(X[:rows]))


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("make", "likelihood", "one_hot"),
    [
        (lambda: keras.metrics.MeanIoU(3), "softmax", False),
        (lambda: keras.metrics.MeanIoU(3, sparse_y_pred=False), "softmax", False),
        (lambda: keras.metrics.OneHotMeanIoU(3), "softmax", True),
        (lambda: keras.metrics.OneHotIoU(3, [2], dtype="float32"), "softmax", True),
        (lambda: keras.metrics.BinaryIoU([1], threshold=0.5), "bernoulli", False),
    ],
)
def test_intersections_over_unions_are_those_of_keras(
    make: Any, likelihood: str, one_hot: bool, rng: np.random.Generator
) -> None:
    """Whose own numbers are whole, which probabilities are not."""
    classes = 3 if likelihood == "softmax" else None
    head, plain = additive(None, likelihood, num_classes=classes), make()
    y = CODES if classes else CODES // 2
    moments = np.exp(rng.normal(size=(N, head.num_predictors, 2)))
    moments[..., 0] -= 2.0
    p = head.response(moments)
    codes = getattr(plain, "sparse_y_pred", False) and classes
    plain.update_state(np.eye(3)[y] if one_hot else y, np.argmax(p, axis=-1) if codes else p)
    assert 0.0 < float(plain.result()) < 1.0
    metric = head.metric(make())
    for labels in (y, np.eye(3)[y]) if classes else (y,):
        metric.reset_state()
        metric.update_state(labels, moments)
        assert float(metric.result()) == float(plain.result())


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
EACH = np.sin(2.0 * SEQUENCES[..., 0]) + SEQUENCES[..., 1] + 0.2 * DRAWN.normal(size=(60, 5))
WEIGHT = DRAWN.uniform(0.5, 1.5, size=EACH.shape)


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
            EACH.reshape(leading),
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


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("number", [5, 8])
def test_weights_of_sequences_are_those_of_all_their_steps(number: int) -> None:
    """In a batch of as many sequences as steps, too."""
    model, head = built((5,))
    rows, y, weight = SEQUENCES[:number], EACH[:number], WEIGHT[:number, 0]
    head.frozen = ("inducing_variable", "variational", "mean_function")
    for training in (True, False):
        moments = model(rows, training=training)
        nll = head.negative_expected_log_likelihood(y, moments).numpy()
        want = np.mean(weight[:, None] * nll)
        np.testing.assert_allclose(head.loss(y, moments, weight), want)
    options = {"sample_weight": weight, "batch_size": number, "verbose": 0}
    evaluated = model.evaluate(rows, y, **options)[0]
    np.testing.assert_allclose(evaluated, want + head.penalty(), rtol=1e-5)


@pytest.mark.slow
def test_masked_steps_are_not_there() -> None:
    """Training, loss and metrics are those of the other steps alone, whatever stands in these."""
    mask = DRAWN.uniform(size=EACH.shape) < 0.7
    mask[:, 0] = True
    number = int(mask.sum())
    padded, y = np.where(mask[..., None], SEQUENCES, 0.0), np.where(mask, EACH, np.nan)
    model, head = built((5,), number, masked=True)
    history = model.fit(padded, y, batch_size=60, epochs=4, shuffle=False, verbose=0).history
    flat, other = built((), number)
    want = flat.fit(
        SEQUENCES[mask], EACH[mask], batch_size=1000, epochs=4, shuffle=False, verbose=0
    ).history
    for name, values in want.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-5)
    np.testing.assert_allclose(head(SEQUENCES[:, 0]), other(SEQUENCES[:, 0]), atol=1e-8)
    evaluated = model.evaluate(padded, y, batch_size=60, verbose=0, return_dict=True)
    whole = flat.evaluate(SEQUENCES[mask], EACH[mask], batch_size=1000, verbose=0, return_dict=True)
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
        model.fit(SEQUENCES, EACH, verbose=0)
    assert model.evaluate(SEQUENCES, EACH, verbose=0) > 0.0


@pytest.mark.slow
def test_gradient_descent_moves_hyperparameters_as_gpflow_would() -> None:
    """Whatever the coordinates that Adam's steps are right in."""
    model, head = built(())
    rows, y = tf.constant(SEQUENCES.reshape(300, 2)), tf.constant(EACH.ravel())
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


# --- q by natural gradients ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_natural_gradients_are_of_the_features_of_the_same_pass() -> None:
    """What dropout left out of the pass whose loss is differentiated is out of the step, too."""
    keras.utils.set_random_seed(3)
    head, other, fresh = (plain() for _ in range(3))
    dropped = keras.layers.Dropout(0.5)(X, training=True)
    head.loss(Y, head(dropped, training=True))
    other.loss(Y, other(X, training=True))
    moments = np.array(head(X))
    keras.utils.set_random_seed(3)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, fresh(keras.layers.Dropout(0.5)(inputs)))
    fresh.loss(Y, model(X, training=True))
    np.testing.assert_allclose(np.array(fresh(X)), moments, atol=1e-9)
    assert np.max(np.abs(np.array(other(X)) - moments)) > 0.1


@pytest.mark.usefixtures("eagerly")
def test_weights_of_rows_count_in_q() -> None:
    def after(
        weight: Any, rows: Any = slice(None), by: str = "sum_over_batch_size", **options: Any
    ) -> np.ndarray:
        head = plain(**options)
        ExpectedLogLikelihood(head, reduction=by)(Y[rows], head(X[rows], training=True), weight)
        return np.array(head(X))

    twice, weights = np.tile(np.arange(N // 2), 2), np.linspace(0.1, 1.9, N)
    held = {"frozen": ("inducing_variable", "likelihood")}  # which starts from how many rows count
    want = after(None, twice, **held)
    np.testing.assert_allclose(after(np.ones(N), twice, **held), want, atol=1e-9)
    np.testing.assert_allclose(after(np.repeat([2.0, 0.0], N // 2), **held), want, atol=1e-9)
    mean = after(10.0 * weights, by="mean_with_sample_weight")
    np.testing.assert_allclose(mean, after(weights), rtol=1e-6)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("batch", [N // 4, N - 1])
def test_batches_of_an_epoch_add_up_to_the_data(batch: int) -> None:
    """Rows of them count alike: an epoch at fixed hyperparameters is the batch of all rows."""
    heads = []
    for size in (N, batch):
        head = plain()
        head.adapt(X, Y)
        for i in range(0, N, size):
            head.loss(Y[i : i + size], head(X[i : i + size], training=True))
        heads.append(head)
    np.testing.assert_allclose(heads[1](X), heads[0](X), atol=1e-8)


@pytest.mark.usefixtures("eagerly")
def test_calls_of_one_step_add_up_to_the_data() -> None:
    """Each with a loss, asked after both: as one call on all rows. Metrics learn nothing."""
    one, two = plain("poisson"), plain("poisson")
    counts = np.round(np.exp(1.0 + Y))
    frozen = ("inducing_variable", "kernel", "mean_function")
    for head in (one, two):
        head.model.mean_function.constant.assign([1.0])
        head.frozen = frozen
    one.loss(counts, one(X, training=True))
    inputs = [keras.Input((2,)), keras.Input((2,))]
    model = keras.Model(inputs, [two(x) for x in inputs])
    losses = [two.loss, two.loss]
    model.compile(keras.optimizers.SGD(0.01), loss=losses, metrics=[[two.loss], [two.loss]])
    half = N // 2
    rows, y = (X[:half], X[half:]), (counts[:half], counts[half:])
    model.fit(rows, y, batch_size=half, verbose=0)
    np.testing.assert_allclose(two(X), one(X), atol=1e-8)


# --- frozen heads --------------------------------------------------------------------------------


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("way", ["head", "model", "frozen"])
def test_a_frozen_head_stays_as_it_is(way: str) -> None:
    model, head = build(normalization=None if way == "frozen" else "running")
    head.loss(Y, head(X, training=True))
    outputs, dense = np.array(head(X)), np.array(model.get_layer("dense").kernel)
    if way == "frozen":
        head.frozen = ("inducing_variable", "kernel", "likelihood", "mean_function", "variational")
    else:
        (head if way == "head" else model).trainable = False
    model.compile(keras.optimizers.SGD(0.1), loss=head.loss)
    with unchanged(head):
        head(3.0 + 10.0 * X, training=True)
        model.fit(X, Y, batch_size=N, verbose=0)
    moved = np.max(np.abs(np.array(model.get_layer("dense").kernel) - dense))
    assert moved == 0.0 if way == "model" else moved > 1e-4
    head.trainable, head.frozen = True, ()
    head.loss(Y, head(3.0 + 10.0 * X, training=True))
    assert np.max(np.abs(np.array(head(X)) - outputs)) > 1e-3


@pytest.mark.usefixtures("eagerly")
def test_what_is_frozen_later_stays_where_training_left_it() -> None:
    model, head = build(normalization=None)
    model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.5), loss=head.loss)
    start = {path: np.array(p) for path, p in head.parameters.items()}
    model.fit(X, Y, batch_size=N, epochs=2, verbose=0)
    values = {path: np.array(p) for path, p in head.parameters.items()}
    head.frozen = ("inducing_variable", "kernel.components['s(0)']")
    for path, p in head.parameters.items():
        np.testing.assert_allclose(p, values[path], rtol=1e-12, err_msg=path)
    model.fit(X, Y, batch_size=N, epochs=2, verbose=0)
    for name in ("s(0)", "s(1)"):
        path = f"kernel.components['{name}'].kernels[1].base.lengthscales"
        assert abs(values[path] / start[path] - 1.0) > 1e-3
        moved = abs(np.array(head.parameters[path]) / values[path] - 1.0)
        assert moved < 1e-12 if name == "s(0)" else moved > 1e-3


# --- a tempered KL --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_a_tempered_loss_is_that_with_another_kl() -> None:
    """Priors of hyperparameters, which a false number of rows would weaken too, stay."""

    def evaluated(**options: Any) -> tuple[float, AdditiveGP]:
        keras.utils.set_random_seed(0)
        model, head = build(**options)
        q_mu = head.parameters["variational.site_shift"]
        q_mu.assign(np.linspace(-1.0, 1.0, q_mu.shape.num_elements()).reshape(q_mu.shape))
        return model.evaluate(X, Y, batch_size=N, verbose=0), head

    plain, head = evaluated()
    assert head.kl_weight == 1.0
    assert evaluated(kl_weight=1)[0] == plain
    for weight in (0.05, 3.0):
        tempered, other = evaluated(kl_weight=weight)
        kl = float(head.model.prior_kl())
        assert kl > 1.0
        assert tempered == pytest.approx(plain + (weight - 1.0) * kl / N, rel=1e-5)
        prior = float(head.model.log_prior_density())
        assert abs(prior) > 0.1
        assert float(other.penalty()) == pytest.approx((weight * kl - prior) / N, rel=1e-6)
    doubled = evaluated(kl_weight=0.5, loss_weight=2.0)[1]
    assert float(doubled.penalty()) == pytest.approx(2.0 * (0.5 * kl - prior) / N, rel=1e-6)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("weight", [1.0, 0.2])
def test_tempered_natural_gradients_are_those_of_rows_that_count_more(weight: float) -> None:
    """In the first batch, of all rows, whatever the likelihood: its sites are ``1 / weight``."""
    features, y = X.astype(float), np.array(Y > 0.0, dtype=float)
    both = []
    for rows, extra in ((N, {"kl_weight": weight}), (round(N / weight), {})):
        head = plain("bernoulli", num_data=rows, **extra)
        head.loss(y, head(features, training=True))
        both.append(head(features).numpy())
    np.testing.assert_allclose(both[0], both[1], rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("eagerly")
def test_a_heads_weight_is_that_of_its_kl_too() -> None:
    def compiled(weight: float, **options: Any) -> tuple[keras.Model, AdditiveGP]:
        keras.utils.set_random_seed(0)
        head = AdditiveGP(
            gg.s(0), num_data=N, num_inducing=4, loss_weight=weight, normalization=None
        )
        inputs = keras.Input((2,))
        model = keras.Model(inputs, [head(inputs), keras.layers.Dense(1)(inputs)])
        model.compile(keras.optimizers.SGD(0.1), loss=[head.loss, "mse"], **options)
        return model, head

    model, head = compiled(0.25)
    elbo = float(head.model.elbo((X.astype(float), Y[:, None].astype(float))))
    other = float(np.mean(np.square(model.layers[-1](X)[:, 0] - Y)))
    want = -0.25 * (elbo + float(head.model.log_prior_density())) / N + other
    total = model.evaluate(X, [Y, Y], batch_size=N, verbose=0, return_dict=True)["loss"]
    assert total == pytest.approx(want, rel=1e-5)
    assert AdditiveGP.from_config(head.get_config()).loss_weight == 0.25
    with pytest.raises(ValueError, match="loss_weight must be positive and finite; got 0"):
        build(loss_weight=0.0)


@pytest.mark.usefixtures("eagerly")
def test_where_q_alone_learns_its_kl_counts() -> None:
    model, head = build(normalization=None)
    head.frozen = ("inducing_variable", "kernel", "likelihood")
    head.parameters["likelihood.variance"].assign(0.3)
    head(X, training=True)
    model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.5), loss=head.loss)
    before = np.array(head.likelihood.variance)
    model.fit(X, Y, batch_size=N, epochs=2, verbose=0)
    scaled = head.scaled(model.get_layer("dense")(X))
    objective = head.model.elbo((scaled, Y[:, None].astype(float))) + head.model.log_prior_density()
    for batch in (N, 30):  # of which Keras averages the KL with the rest
        loss = model.evaluate(X, Y, batch_size=batch, verbose=0)
        assert loss == pytest.approx(-float(objective) / N, rel=1e-5)
    np.testing.assert_array_equal(head.likelihood.variance, before)


# --- which head a loss reads ---------------------------------------------------------------------


def test_a_loss_finds_the_head_whose_output_it_is_given() -> None:
    """Heads of one name are common: a model and what was saved of it."""
    one, two = (
        AdditiveGP(gg.s(0), num_data=N, num_inducing=4, name="gp", dtype=dtype)
        for dtype in ("float32", "float64")
    )
    one.likelihood.variance.assign(0.3)
    for head in (one, two):
        again = keras.losses.deserialize(keras.losses.serialize(head.loss))
        assert again.dtype == head.compute_dtype
        np.testing.assert_array_equal(again(Y, head(X)), head.loss(Y, head(X)))
        metric = head.metric("nlpd")
        revived = keras.metrics.deserialize(keras.metrics.serialize(metric))
        for m in (metric, revived):
            m.update_state(Y, head(X))
        assert float(revived.result()) == float(metric.result())
    with pytest.raises(ValueError, match="layer 'gp' is given the output of another one, 'gp'"):
        one.loss(Y, two(X))
    with pytest.raises(ValueError, match="of another one"):
        one.metric("mse").update_state(Y, two(X))
    fresh = keras.losses.deserialize(keras.losses.serialize(one.loss))
    with pytest.raises(ValueError, match="layer 'gp' is from a file"):
        fresh(Y, np.array(one(X)))


@pytest.mark.parametrize(("loss", "eagerly"), [(None, False), ("mse", False), (None, True)])
def test_a_head_is_not_trained_by_another_loss(loss: str | None, eagerly: bool) -> None:
    """It would learn its prior, or its variance as another response."""
    model = keras.Sequential([AdditiveGP(gg.s(0), num_data=N, num_inducing=4, name="gp")])
    model.compile("adam", loss, run_eagerly=eagerly)
    with pytest.raises(ValueError, match="gp learns in head.loss, and this training step has"):
        model.fit(X, Y, verbose=0)
    model.compile("adam", model.layers[0].loss, run_eagerly=eagerly)
    assert np.isfinite(model.fit(X, Y, verbose=0).history["loss"]).all()
    held = AdditiveGP(gg.s(0), num_data=N, num_inducing=4, frozen=("variational",))
    model = keras.Sequential([held, keras.layers.Reshape((2,))])
    model.compile("adam", "mse")  # q is not to learn
    model.fit(X, np.repeat(np.reshape(Y, [-1, 1]), 2, axis=1), verbose=0)


@pytest.mark.usefixtures("eagerly")
def test_a_training_call_without_a_step_is_none() -> None:
    """As for the spread of dropout."""
    model, head = build(normalization=None)
    with unchanged(head):
        want = model.evaluate(X, Y, verbose=0)
        head.loss(Y, head(X))
    model(X, training=True)
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(want)


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_model_whose_call_knows_of_no_training_is_an_error(eagerly: bool) -> None:
    """Keras tells it nothing, and the head would learn nothing."""

    class Untold(keras.Model):
        def __init__(self, head: AdditiveGP) -> None:
            super().__init__()
            self.dense, self.head = keras.layers.Dense(2), head

        def call(self, x: tf.Tensor) -> tf.Tensor:
            return self.head(self.dense(x))

    head = AdditiveGP(gg.s(0), num_data=N, num_inducing=4, name="gp")
    model = Untold(head)
    model.compile("adam", head.loss, run_eagerly=eagerly)
    before = model.evaluate(X, Y, verbose=0)
    with pytest.raises(ValueError, match=r"gp is trained.*def call\(self, x, training=None\)"):
        model.fit(X, Y, verbose=0)
    assert model.evaluate(X, Y, verbose=0) == before
    assert model.predict(X, verbose=0).shape == (N, 1, 2)
    with tf.GradientTape() as tape:  # of what is no training
        loss = head.loss(Y, model(X))
    assert tape.gradient(loss, model.dense.kernel) is not None
    head.trainable = False
    model.compile("adam", head.loss, run_eagerly=eagerly)
    model.fit(X, Y, verbose=0)


# --- layers that do not stretch distances --------------------------------------------------------


def largest(kernel: np.ndarray) -> float:
    return float(np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), 2))


@pytest.mark.parametrize("shape", [(7, 5), (5, 7), (3, 3, 2, 4)], ids=["tall", "wide", "conv"])
def test_a_kernel_is_scaled_to_the_bound(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    kernel = rng.normal(size=shape)
    held = np.asarray(SpectralBound(0.6)(kernel))
    np.testing.assert_allclose(held, kernel * 0.6 / largest(kernel), rtol=1e-12)
    np.testing.assert_array_equal(SpectralBound(0.6)(0.9 * held), 0.9 * held)  # within: as it is
    np.testing.assert_array_equal(SpectralBound(0.6)(np.zeros(shape)), 0.0)


def test_trained_residual_blocks_keep_distances(rng: np.random.Generator, tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    layer = keras.layers.Dense(4, activation="relu", kernel_constraint=SpectralBound(0.8))
    block = keras.Model(inputs, inputs + layer(inputs))
    X = rng.normal(size=(64, 4)).astype("float32")
    block.compile(keras.optimizers.Adam(0.1), loss="mse")
    block.fit(X, 5.0 * X[:, ::-1], epochs=20, batch_size=16, verbose=0)
    assert largest(np.asarray(layer.kernel)) == pytest.approx(0.8, rel=1e-5), "training pulls at it"
    before = np.linalg.norm(X[:, None] - X, axis=-1)
    after = block.predict(X, verbose=0)
    after = np.linalg.norm(after[:, None] - after, axis=-1)
    apart = before > 0.0
    assert np.all(after[apart] <= 1.8 * before[apart] * (1.0 + 1e-5))
    assert np.all(after[apart] >= 0.2 * before[apart] * (1.0 - 1e-5))
    block.save(tmp_path / "block.keras")
    again = keras.models.load_model(tmp_path / "block.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), block.predict(X, verbose=0))
    assert again.layers[1].kernel_constraint.bound == 0.8


# --- smooths of all features ---------------------------------------------------------------------

ROWS = 60


@pytest.fixture
def features(rng: np.random.Generator) -> np.ndarray:
    return 3.0 + rng.normal(size=(ROWS, 5)) * [1.0, 1.0, 2.0, 0.5, 1.0]


def rows_of_classes(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters in six dimensions, and which one."""
    labels = np.arange(number) % 3
    return 3.0 * np.eye(3, 6)[labels] + 0.5 * rng.normal(size=(number, 6)), labels


@pytest.mark.parametrize(("aware", "more"), [(False, 1.0), (True, 6.0)])
def test_the_first_step_does_not_overshoot(aware: bool, more: float) -> None:
    """
    Where the curvature of a logarithm of noise is that of small residuals, and next to none.

    A row of which nothing is known loses 3.7 (1 + r^2) where the logarithm has a variance of 1.
    """
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 32, 6)), rng.normal(size=(2, 32))
    y = np.sin(2.0 * x[..., 0]) + np.exp(0.5 * x[..., 2]) * noise
    head = AdditiveGP(
        gg.s(*range(6)), "heteroskedastic", num_data=1000, num_inducing=20, distance_aware=aware
    )
    null, second = (np.mean(head.loss(r, head(f, training=True))) for f, r in zip(x, y))
    assert second < null + more


@pytest.mark.slow
def test_a_distance_aware_head_is_unsure_away_from_its_data(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    keras.utils.set_random_seed(0)
    (x, labels), (near, truth) = (rows_of_classes(rng, n) for n in (240, 60))
    head = AdditiveGP(gg.s(*range(8)), "softmax", num_classes=3, num_data=240, distance_aware=True)
    inputs = keras.Input((6,))
    model = keras.Model(inputs, head(keras.layers.Dense(8, activation="relu")(inputs)))
    model.compile(keras.optimizers.Adam(0.003), loss=head.loss)
    model.fit(x, labels, epochs=15, verbose=0)
    model.save(tmp_path / "aware.keras")
    model = keras.models.load_model(tmp_path / "aware.keras")
    sure = model.predict(near, verbose=0)
    away = model.predict(4.0 - near, verbose=0)
    assert np.mean(sure[..., 0].argmax(axis=1) == truth) > 0.95
    assert np.median(sure[..., 1]) < 5.0
    assert np.median(away[..., 1]) > 9.9  # the prior, and what is not known of the intercept


@pytest.mark.slow
def test_inducing_inputs_of_many_features_follow_these(rng: np.random.Generator) -> None:
    x = rows_of_classes(rng, 210)[0][:, :3]
    x[::7] = np.nan  # rows that a mask leaves out
    head = AdditiveGP(gg.s(0, 1, 2, k=30) + gg.s(0), num_data=210)
    Z, curve = (head.model.inducing_variable.components[name] for name in ("s(0,1,2)", "s(0)"))
    before = np.array(curve)

    learn = tf.function(lambda rows: head(rows, training=True))

    def check(share: float) -> None:
        for _ in range(150):
            learn(x)
        rows = np.asarray(head.scaling(x[~np.isnan(x[:, 0])]))
        best = KMeans(30, n_init=3, random_state=0).fit(rows).cluster_centers_
        to, least = (np.linalg.norm(rows[:, None] - c, axis=-1) for c in (np.array(Z), best))
        assert to.min(axis=0).max() < 0.6, "one is away from all rows"
        assert np.mean(to.min(axis=1) ** 2) < share * np.mean(least.min(axis=1) ** 2)

    check(1.3)  # of the squares that k-means leaves
    x[:, 0] *= -2.0  # a network goes on to learn
    check(2.2)
    np.testing.assert_array_equal(curve, before)
    head.frozen = ("inducing_variable", "variational")
    before = np.array(Z)
    head(x, training=True)
    np.testing.assert_array_equal(Z, before)


def test_distance_awareness_needs_a_smooth_of_several_features() -> None:
    with pytest.raises(ValueError, match=r"distance_aware=True needs a smooth of all features"):
        AdditiveGP(gg.s(0) + gg.te(0, 1), num_data=ROWS, distance_aware=True)
    head = AdditiveGP(gg.s(0, 1, 2), num_data=ROWS, distance_aware=True)
    for show in (head.effects, head.draw):
        with pytest.raises(ValueError, match=r"no effect of one or two features.*s\(0,1,2\)"):
            show()


def test_a_kernel_of_ones_own_keeps_its_measure(features: np.ndarray) -> None:
    measure = gg.measures.Gaussian(0.5, 2.0)
    own = gg.kernels.ZeroMean(gpflow.kernels.SquaredExponential(active_dims=[0]), measure)
    head = AdditiveGP(gg.s(0, kernel=own) + gg.s(1), num_data=ROWS)
    head.adapt(features, features[:, 1])
    assert own.measure is measure
    assert np.all(np.isfinite(head(features)))
