"""Keras layers: the ELBO, kinds of networks, and what heads return."""

from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from head_cases import (
    LABELS,
    F,
    N,
    Subclassed,
    X,
    Y,
    additive,
    compiled,
    moved_model,
    network,
    numbers,
    scramble,
    small,
    unchanged,
)

import gpflow_gam as gg
from gpflow_gam.kernels import ZeroMean
from gpflow_gam.layers import AdditiveGP, IterNCGP


@pytest.fixture(scope="module")
def trained() -> tuple[keras.Model, AdditiveGP]:
    return moved_model()


# --- the ELBO ----------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_the_kl_counts_once(times: int) -> None:
    head = additive(normalization=None)
    inputs = keras.Input((3,))
    outputs = [head(inputs) for _ in range(times)]
    total = keras.Model(inputs, outputs)
    total(X)
    want = float(head.model.prior_kl() - head.model.log_prior_density()) / N
    assert len(total.losses) == 1
    np.testing.assert_allclose(float(total.losses[0]), want, rtol=1e-6)
    total(X)  # a second pass starts anew
    assert len(total.losses) == 1


def test_penalties_of_a_step_are_equal() -> None:
    """However often they are asked for after the loss has moved q, until the next call."""
    head = additive(normalization=None)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, head(inputs))
    before = float(head.penalty())
    head.loss(Y, model(X, training=True))
    assert [float(model.losses[0]), float(model.losses[0]), float(head.penalty())] == [before] * 3
    model(X)
    assert float(model.losses[0]) > before


@pytest.mark.slow
def test_validation_split_and_keras_callbacks(tmp_path: Path) -> None:
    head = small(name="watched", num_data=60)
    model = compiled(network(head), head, metrics=[head.metric("nlpd"), head.metric("mse")])
    where = tmp_path / "best.keras"
    history = model.fit(
        X,
        Y,
        validation_split=1.0 / 3.0,
        epochs=4,
        batch_size=30,
        verbose=0,
        callbacks=[
            keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(where, save_best_only=True),
            keras.callbacks.TensorBoard(tmp_path / "logs"),
            keras.callbacks.ReduceLROnPlateau(patience=1),
            gg.layers.DrawComponents(head, tmp_path / "figures", every=2),
        ],
    ).history
    assert {"val_loss", "val_nlpd", "val_mean_squared_error"} <= set(history)
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == [
        "epoch_0002.png",
        "epoch_0004.png",
    ]
    best = keras.models.load_model(where)
    assert best.evaluate(X[60:], Y[60:], verbose=0, return_dict=True)["loss"] == pytest.approx(
        min(history["val_loss"]), rel=1e-5
    )
    mean, var = (a[:, 0] for a in np.moveaxis(model.predict(X[60:], verbose=0), -1, 0))
    noise = float(head.likelihood.variance.numpy())
    want = 0.5 * np.log(2 * np.pi * (var + noise)) + 0.5 * (Y[60:] - mean) ** 2 / (var + noise)
    got = model.evaluate(X[60:], Y[60:], verbose=0, return_dict=True)
    assert got["nlpd"] == pytest.approx(want.mean(), rel=1e-5)
    assert got["mean_squared_error"] == pytest.approx(np.mean((Y[60:] - mean) ** 2), rel=1e-5)


# --- kinds of models, dtypes, compilation --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float16", "sequential", "subclassed", "float32", "jit"])
def test_kinds_of_models_learn(kind: str) -> None:
    keras.utils.set_random_seed(1)
    if kind == "float16":
        keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        head = additive(dtype="float32" if kind == "float32" else None)
        model = {
            "sequential": lambda: keras.Sequential([keras.layers.Dense(3), head]),
            "subclassed": lambda: Subclassed(head),
        }.get(kind, lambda: network(head))()
        compiled(model, head, 0.05, jit_compile=kind == "jit")
        losses = model.fit(X, Y, epochs=12, batch_size=45, verbose=0).history["loss"]
        assert losses[-1] < losses[0] - 0.1
        moments = model.predict(X, verbose=0)
        assert np.all(np.isfinite(moments))
        assert np.all(moments[..., 1] > 0.0)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def test_scaling_follows_training_only() -> None:
    head = additive()
    shifted = 50.0 + 7.0 * X
    head(shifted)
    head(shifted, training=False)
    assert float(head.scaling.count) == 0.0
    for rows in (shifted[: N - 7], shifted[N - 7 :]):
        head(rows, training=True)
    used = list(head.structure.features)
    np.testing.assert_allclose(head.scaling.location, shifted.mean(axis=0)[used], rtol=1e-10)
    np.testing.assert_allclose(head.scaling.variance, shifted.var(axis=0)[used], rtol=1e-10)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_features_are_scaled_whatever_their_unit(unit: float) -> None:
    adapted, running = additive(), additive()
    adapted.adapt(unit * X)
    running(unit * X, training=True)
    expected = (X - X.mean(axis=0)) / X.std(axis=0)
    for head in (adapted, running):
        used = expected[:, list(head.structure.features)]
        np.testing.assert_allclose(head.scaled(unit * X), used, atol=1e-9)


def test_a_feature_that_does_not_vary_has_no_spread_until_it_does() -> None:
    constant = X.copy()
    constant[:, 0] = 1e6 + 0.1  # whose mean is rounded
    adapted, running = additive(), additive()
    adapted.adapt(constant)
    running(constant, training=True)
    place = list(adapted.structure.features).index(0)
    moved = constant + np.eye(1, X.shape[1]) / 2.0
    for head in (adapted, running):
        np.testing.assert_allclose(head.scaled(moved)[:, place], 0.5, atol=1e-6)
    running(constant + X, training=True)
    np.testing.assert_allclose(running.scaling.variance[place], X[:, 0].var() / 2.0, rtol=0.2)


# --- what it returns -----------------------------------------------------------------------------


def test_outputs_fit_together(trained: tuple[keras.Model, AdditiveGP]) -> None:
    _, head = trained
    moments, parts = (head(X, output=o).numpy() for o in ("moments", "components"))
    assert moments.shape == (N, 1, 2)
    assert parts.shape == (N, 4, 1, 2)
    assert np.all(np.asarray(head.model.mean_function.constant) != 0.0)
    np.testing.assert_allclose(parts[..., 0].sum(axis=1), moments[..., 0], rtol=1e-10)
    mean, var = head.model.predict_f(head.scaled(X))
    np.testing.assert_allclose(moments[..., 0], mean, rtol=1e-10)
    np.testing.assert_allclose(moments[..., 1], var, rtol=1e-10)
    response, interval = (head(X, output=o).numpy() for o in ("response", "interval"))
    np.testing.assert_allclose(response, mean[:, 0], rtol=1e-10)
    half = 1.959963984540054 * np.sqrt(var[:, 0])
    np.testing.assert_allclose(interval[:, 1], mean[:, 0] - half, rtol=1e-8)
    np.testing.assert_allclose(interval[:, 2], mean[:, 0] + half, rtol=1e-8)


@pytest.mark.parametrize(
    ("likelihood", "classes", "shape"),
    [
        ("softmax", 3, (3,)),
        ("ordinal", 3, (3,)),
        ("bernoulli", None, ()),
        ("poisson", None, ()),
        (gpflow.likelihoods.MultiClass(3), None, (3,)),
        (gpflow.likelihoods.Bernoulli(), None, ()),
    ],
)
def test_response_shapes_agree_with_what_is_promised(
    likelihood: Any, classes: int | None, shape: tuple[int, ...]
) -> None:
    head = additive(likelihood=likelihood, num_classes=classes)
    scramble(head)
    for output in ("moments", "components", "response", "interval"):
        promised = head.compute_output_spec(keras.KerasTensor((None, 3)), output=output).shape
        value = head(X, output=output).numpy()
        assert value.shape[1:] == promised[1:], output
        if output == "response":
            assert value.shape == (N, *shape)
            if shape:
                np.testing.assert_allclose(value.sum(axis=1), 1.0, rtol=1e-8)


def test_components_have_zero_mean_under_their_measure() -> None:
    head = additive(gg.s(0) + gg.te(1, 2))
    skewed = np.exp(X)
    head.adapt(skewed)
    for kernel in head.kernel.submodules:
        if isinstance(kernel, ZeroMean):
            points, weights = kernel.measure.nodes()
            full = np.zeros((points.shape[0], 3))
            full[:, list(kernel.active_dims)] = points
            np.testing.assert_allclose(kernel(X[:5], full) @ weights[:, None], 0.0, atol=1e-10)
    # nodes stand for the data: their weighted mean is the scaled features'
    points, weights = head.kernel["s(0)"].kernels[1].measure.nodes()
    np.testing.assert_allclose(np.dot(weights, points[:, 0]), 0.0, atol=1e-10)


def test_adapt_starts_from_the_data() -> None:
    raw = np.column_stack([1e4 + 30.0 * X[:, 0], X[:, 1], X[:, 2]])
    head = additive(likelihood="poisson")
    counts = np.random.default_rng(0).poisson(40.0, N)
    head.adapt(raw, counts)
    np.testing.assert_allclose(head.scaled(raw).numpy().mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(head.scaled(raw).numpy().std(axis=0), 1.0, rtol=1e-9)
    constant = float(head.model.mean_function.constant[0])
    assert constant == pytest.approx(np.log(counts.mean()), abs=1e-6)
    Z = np.sort(np.array(head.model.inducing_variable["s(0)"])[:, 0])
    scaled = head.scaled(raw).numpy()[:, 0]
    np.testing.assert_allclose(Z, np.quantile(scaled, np.linspace(0, 1, 6)), atol=1e-12)


ONE_SCALE = ["gaussian", "bernoulli", "softmax", "ordinal", "poisson", "student_t", "gamma"]


@pytest.mark.parametrize("likelihood", [*ONE_SCALE, "heteroskedastic", "negative_binomial"])
def test_single_precision_starts_from_the_data_too(likelihood: str) -> None:
    y = {"softmax": LABELS, "ordinal": LABELS, "gamma": np.exp(F), "bernoulli": F > 0.0}.get(
        likelihood, np.round(np.exp(F)) if likelihood in ("poisson", "negative_binomial") else Y
    )
    options = {"num_classes": 3} if likelihood in ("softmax", "ordinal") else {}
    heads = [small(likelihood=likelihood, dtype=d, **options) for d in ("float32", "float64")]
    for head in heads:
        head.adapt(X, y)
    single, double = (h.model.mean_function.constant.numpy() for h in heads)
    np.testing.assert_allclose(single, double, atol=1e-3)
    if likelihood == "bernoulli":
        fits = [IterNCGP(gg.s(0), likelihood, dtype=d) for d in ("float32", "float64")]
        for newton in fits:
            newton.fit(X, y, hyperparameters=False, progress=False)
        np.testing.assert_allclose(fits[0](X), fits[1](X), atol=1e-3)


def test_levels_and_multipliers() -> None:
    codes = np.arange(N) % 4
    data = np.column_stack([X[:, 0], codes, X[:, 2]])
    head = additive(gg.s(0, by=2) + gg.factor(1) + gg.linear(2), num_levels={1: 4})
    head.adapt(data + np.array([0.0, 0.0, 4.0]))
    parts = head(data, output="components").numpy()
    assert parts.shape == (N, 4, 1, 2)
    # a varying coefficient is nothing where its multiplier is zero, wherever its data are
    still = data.copy()
    still[:, 2] = 0.0
    np.testing.assert_allclose(head(still, output="components")[:, 1], 0.0, atol=1e-12)
    curve = head.effects("factor(1)")
    assert list(curve[1]) == [0, 1, 2, 3]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="codes 0 to 3"):
        head(np.column_stack([X[:, 0], codes + 1.0, X[:, 2]]))


def test_curves_are_in_the_features_unit(trained: tuple[keras.Model, AdditiveGP]) -> None:
    _, head = trained
    grid = np.linspace(-2.0, 2.0, 7)
    curve = head.effects("s(0)", grid)
    data = np.zeros((7, 3))
    data[:, 0] = grid
    parts = head(data, output="components").numpy()[:, head.names.index("s(0)"), 0]
    np.testing.assert_allclose(curve["estimate"], parts[:, 0])
    np.testing.assert_allclose(curve["se"], np.sqrt(parts[:, 1]))
    surface = head.effects("te(1,2)")
    data = np.zeros((900, 3))
    data[:, 1:] = surface[[1, 2]]
    parts = head(data, output="components").numpy()[:, head.names.index("te(1,2)"), 0]
    np.testing.assert_allclose(surface["estimate"], parts[:, 0])
    every = head.effects()
    assert list(dict.fromkeys(every["term"])) == list(head.names[1:])
    some = every[every["term"] == "s(0)"].reset_index(drop=True)
    pd.testing.assert_frame_equal(some[head.effects("s(0)").columns], head.effects("s(0)"))
    with pytest.raises(ValueError, match=r"no effect 's\(9\)'"):
        head.effects("s(9)")
    with pytest.raises(ValueError, match=r"grid of te\(1,2\) must be \[n, 2\]"):
        head.effects("te(1,2)", grid)


def test_a_summary_has_the_features_unit() -> None:
    """What a head says of a feature in other units is the same, its lengthscale apart."""
    tables = []
    for unit in (1.0, 1000.0):
        head = additive(gg.s(0) + gg.te(1, 2), normalization="adapt")
        data = X * [unit, 1.0, 1.0]
        head.adapt(data, Y)
        head.loss(Y, head(data, training=True))
        tables.append(head.summary().set_index("term"))
    small, large = tables
    np.testing.assert_allclose(large[["sd", "se"]], small[["sd", "se"]], rtol=1e-6)
    lengths = [table.loc["s(0)", "lengthscale"][0] for table in tables]
    np.testing.assert_allclose(lengths[1], unit * lengths[0])
    assert large.loc["te(1,2)", "lengthscale"] == pytest.approx(small.loc["te(1,2)", "lengthscale"])
    both = additive(gg.s(0, 1), normalization=None, distance_aware=True).summary()
    assert both["lengthscale"][0] == pytest.approx([0.5 * np.sqrt(2.0)] * 2)
    terms = gg.s(0, bs="cyclic", period=24) + gg.s(1, 2, bs="sos") + gg.s(3, 4, bs="fs")
    head = additive(terms, num_levels={4: 5})
    hours, globe, curves = head.summary()["lengthscale"]
    assert globe == ()
    assert len(curves) == 1  # levels have none
    path = "kernel.components['s(0)'].base.base_kernel.lengthscales"
    assert hours == pytest.approx([24.0 / np.pi * head.parameters[path].numpy()])
    # q knows more than its prior, and what was there to find was found
    assert np.all(small["se"] < small["prior_sd"])
    assert small.loc["s(0)", "sd"] > small.loc["s(0)", "se"]


@pytest.mark.slow
def test_effects_of_several_predictors_and_levels() -> None:
    codes = np.arange(N) % 3
    data = np.column_stack([X[:, :2], codes])
    head = additive(
        gg.s(0, by=gg.factor(2)) + gg.factor(2), "softmax", num_classes=3, num_levels={2: 3}
    )
    head.adapt(data, codes)
    head.loss(codes, head(data, training=True))
    table = head.effects("s(0):2=1", [0.5])
    rows = np.array([[0.5, 0.0, 1.0]])
    parts = head(rows, output="components").numpy()[0, head.names.index("s(0):2=1")]
    assert list(table["predictor"]) == list(head.specification.names)
    np.testing.assert_allclose(table["estimate"], parts[:, 0])
    figure = head.draw()
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == list(head.names[1:])
    assert len(head.draw("factor(2)").axes) == 1


# --- natural gradients ---------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("likelihood", "make"),
    [
        ("gaussian", lambda rng: rng.normal(300.0, 77.0, 200)),  # of any level and spread
        ("gaussian", lambda rng: rng.normal(0.4, 1.5, 200)),
        ("poisson", lambda rng: rng.poisson(60.0, 200)),
        ("negative_binomial", lambda rng: rng.negative_binomial(2, 0.05, 200)),
        ("bernoulli", lambda rng: rng.uniform(size=200) < 0.03),
        ("gamma", lambda rng: rng.gamma(3.0, 40.0, 200)),
        ("beta", lambda rng: rng.beta(2.0, 9.0, 200)),
        ("student_t", lambda rng: rng.standard_t(4, 200)),
        ("softmax", lambda rng: rng.choice(3, 200, p=[0.8, 0.15, 0.05])),
        ("ordinal", lambda rng: rng.choice(3, 200, p=[0.8, 0.15, 0.05])),
        ("heteroskedastic", lambda rng: rng.normal(0.4, 1.5, 200)),
    ],
)
def test_training_starts_at_the_null_model(likelihood: str, make: Any) -> None:
    """Without one step of an optimizer, and within .05 of the best constant predictor's density."""
    rng = np.random.default_rng(3)
    y = make(rng).astype(float)
    options = {"num_classes": 3} if likelihood in ("softmax", "ordinal") else {}
    head = AdditiveGP(gg.s(0) + gg.s(1), likelihood, num_data=200, num_inducing=6, **options)
    features = rng.normal(size=(200, 2))
    first = head.loss(y, head(features, training=True))
    null = gg.GAM("y ~ 1", likelihood).fit(pd.DataFrame({"y": y}), progress=False)
    want = float(np.mean(null.log_density(pd.DataFrame({"y": y}))))
    assert float(first) < (2e-4 if likelihood == "gaussian" else 0.05) - want


@pytest.mark.parametrize("first", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 32))])
@pytest.mark.parametrize(
    "likelihood", ["gaussian", "student_t", "heteroskedastic", "gamma", "negative_binomial"]
)
def test_a_first_batch_that_says_little_is_no_certainty(likelihood: str, first: int) -> None:
    """One row, two that are close by chance, or equal ones have no spread; all rows have."""
    rng = np.random.default_rng(5)
    y = rng.gamma(3.0, 1.0 / 3.0, 200) if likelihood == "gamma" else rng.normal(0.4, 1.0, 200)
    if likelihood == "negative_binomial":
        y = rng.negative_binomial(2, 0.2, 200).astype(float)
    head = AdditiveGP(gg.s(0), likelihood, num_data=200, num_inducing=4)
    few = np.full(first, np.median(y)) + (0.05 * (first == 2) * np.arange(first))
    few = np.round(few) if likelihood == "negative_binomial" else few
    head.loss(few, head(np.zeros((first, 1)), training=True))
    constant = np.array(head.model.mean_function.constant, float)
    moments = np.stack([np.tile(constant, (200, 1)), np.full((200, len(constant)), 1e-6)], axis=-1)
    null = gg.GAM("y ~ 1", likelihood).fit(pd.DataFrame({"y": y}), progress=False)
    want = -float(np.mean(null.log_density(pd.DataFrame({"y": y}))))
    assert float(np.mean(head.negative_expected_log_likelihood(y, moments))) < want + 1.5


def test_rows_that_do_not_count_are_no_start() -> None:
    head = small()
    for weight in (0.0, 1.0):
        head.loss(10.0 + Y, head(X, training=True), np.full(N, weight))
    np.testing.assert_allclose(head.model.mean_function.constant, [10.0 + Y.mean()], atol=0.01)


@pytest.mark.slow
def test_counts_at_outlying_features_do_not_stall_adam() -> None:
    """A gradient of thousands in the first batches would hold its steps back for epochs."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1000, 3))
    x[:, 0] *= np.where(rng.uniform(size=1000) < 0.02, 6.0, 1.0)
    y = rng.poisson(np.exp(1.0 + np.sin(2.0 * x[:, 1]) + np.tanh(x[:, 0])))
    keras.utils.set_random_seed(3)
    head = AdditiveGP(gg.s(0) + gg.s(1), "poisson", num_data=1000, num_inducing=10)
    dense = [keras.layers.Dense(16, "relu"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((3,)), *dense, head])
    model.compile("adam", loss=head.loss, metrics=[head.metric("nlpd")])
    history = model.fit(x, y, epochs=6, verbose=0).history
    assert history["nlpd"][-1] < 2.45  # 2.75 without limits


def test_a_second_fit_is_as_the_first_or_changes_nothing() -> None:
    head, fresh = (IterNCGP(gg.s(0) + gg.s(1)) for _ in range(2))
    options = {"hyperparameters": False, "progress": False}
    head.fit(X, Y, **options)
    for one in (head, fresh):
        one.fit(5.0 + 2.0 * X[:60], Y[60:30:-1].repeat(2), **options)
    np.testing.assert_allclose(head(X), fresh(X), atol=1e-8)
    room = "has room for a posterior of .*'num_rows': 90.*new layer"
    with unchanged(head), pytest.raises(ValueError, match=room):
        head.fit(np.vstack([X, X]), np.tile(Y, 2), **options)
    with unchanged(head), pytest.raises(ValueError, match="max_sweeps"):
        head.fit(100.0 * X, -Y, max_sweeps=-1, **options)


def test_a_fit_leaves_alone_what_is_frozen() -> None:
    head = IterNCGP(gg.s(0) + gg.linear(1))
    head.parameters["likelihood.variance"].assign(0.04)
    head.frozen = ("likelihood", "kernel.components['linear(1)']")
    again = IterNCGP.from_config(head.get_config())
    assert again.frozen == head.frozen
    before = {path: np.array(p) for path, p in head.parameters.items()}
    head.fit(X, Y, progress=False, max_rounds=1)
    moved = {path for path, p in head.parameters.items() if np.any(p.numpy() != before[path])}
    assert "mean_function.constant" in moved
    assert any(path.startswith("kernel.components['s(0)']") for path in moved)
    assert not [p for p in moved if p.startswith(head.frozen) and p.endswith("variance")]


def test_iterncgp_is_not_trained_whatever_its_model_is() -> None:
    """Its hyperparameters would move under a posterior that stays."""
    head = IterNCGP(gg.s(0), normalization=None)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, head(keras.layers.Dense(3)(inputs)))
    model.trainable = False
    model.trainable = True
    assert len(model.trainable_weights) == 2
    assert head.trainable_weights == []
    assert not any(p.trainable for p in head.parameters.values())


def test_a_posterior_at_features_that_are_all_zero() -> None:
    head = IterNCGP(gg.s(0), normalization=None)
    head.fit(np.zeros_like(X), Y, hyperparameters=False, progress=False)
    assert np.all(np.isfinite(head(X)))


def test_a_clone_without_weights_has_no_posterior() -> None:
    head = IterNCGP(gg.s(0), normalization=None)
    head.fit(X, Y, hyperparameters=False, progress=False)
    model = keras.Sequential([keras.Input((3,)), head])
    clone = keras.models.clone_model(model)
    with pytest.raises(tf.errors.InvalidArgumentError, match="has no posterior yet: call fit"):
        clone.predict(X, verbose=0)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone.predict(X, verbose=0), model.predict(X, verbose=0))


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_data": None}, ValueError, "num_data must be the number of training rows"),
        (
            {"likelihood": "heteroskedastic", "scale": 1e6},
            ValueError,
            "scale must be 1 for .*Divide",
        ),
        ({"likelihood": "softmax"}, ValueError, "num_classes must be at least 2"),
        ({"terms": gg.s("x")}, TypeError, "features by index"),
        ({"terms": gg.s(0) + gg.factor(1)}, ValueError, r"num_levels=\{1: K\}"),
        ({"terms": gg.s(0) + gg.factor(0), "num_levels": {0: 3}}, ValueError, "column twice"),
        ({"terms": gg.s(0, bs="cyclic")}, ValueError, "needs period"),
        ({"dtype": "float16"}, ValueError, "dtype must be 'float32' or 'float64'"),
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
    with pytest.raises(ValueError, match=r"takes features \[..., F\]"):
        head(keras.Input(()))
    with pytest.raises(ValueError, match="must be finite"):
        additive().adapt(np.where(X > 2.0, np.nan, X))
    with pytest.raises(ValueError, match=r"standard deviation of 25 where scale=1"):
        additive().adapt(X, 25.0 * (Y - Y.mean()) / Y.std())


@pytest.mark.parametrize("learnt", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_bad_row_stops_a_fit_and_not_the_next(learnt: bool) -> None:
    """In a graph, which may assign before an assertion fails: the first batch and a later one."""
    coded = np.column_stack([X[:, :2], LABELS])
    terms = gg.s(0) + (gg.s(2) if learnt else gg.factor(2))
    head = small(terms, likelihood="poisson", num_levels=None if learnt else {2: 3})
    inputs = keras.Input((3,))
    model = keras.Model(inputs, head(keras.layers.Dense(3)(inputs) if learnt else inputs))
    compiled(model, head)
    counts = LABELS.astype(float)
    bad = [("y must be", 0, None, np.nan), ("y must be", 0, None, -1.0)]
    bad += [(r"(?s)must be finite.*so is\D*0", 5, 0, v) for v in (np.nan, np.inf)]
    bad += [] if learnt else [("must hold codes 0 to 2", 5, 2, 7.0)]
    bad += [("sample_weight must be", 5, 3, np.nan), ("sample_weight must be", 5, 3, -1.0)]
    options = {"epochs": 1, "batch_size": N, "verbose": 0}
    for _ in range(2):
        for message, row, column, value in bad:
            rows, y = np.column_stack([coded, np.ones(N)]), counts.copy()
            if column is None:
                y[row] = value
            else:
                rows[row, column] = value
            before = numbers(head)
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                model.fit(rows[:, :3], y, sample_weight=rows[:, 3], **options)
            for path, variable in numbers(head).items():
                assert np.all(np.isfinite(variable)), path
                if "scaling" not in path and "reference" not in path:  # as q is at other features
                    np.testing.assert_allclose(variable, before[path], atol=1e-10, err_msg=path)
        assert np.isfinite(model.fit(coded, counts, **options).history["loss"]).all()
        assert all(np.all(np.isfinite(v)) for v in model.get_weights())


@pytest.mark.parametrize(
    ("likelihood", "classes", "labels"), [("softmax", 3, LABELS + 1), ("poisson", None, LABELS - 1)]
)
def test_impossible_labels(likelihood: str, classes: int | None, labels: Any) -> None:
    head = small(likelihood=likelihood, num_classes=classes)
    with pytest.raises(ValueError, match="y must be"):
        head.loss(labels, head(X))
    if likelihood == "softmax":  # whose kernels would read past the end of an array
        model = compiled(network(head), head)
        with pytest.raises(tf.errors.InvalidArgumentError, match="y must be"):
            model.fit(X, labels, epochs=1, verbose=0)


@pytest.mark.slow
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
