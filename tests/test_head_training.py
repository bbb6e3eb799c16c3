"""What moves in a head that trains, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.cluster import KMeans

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, SpectralBound

N = 40
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, 2)).astype("float32")
Y = np.sin(2.0 * X[:, 0])


def build(**options: Any) -> tuple[keras.Model, AdditiveGP]:
    options = {"num_data": N, "num_inducing": 5, **options}
    head = AdditiveGP(gg.s(0) + gg.s(1), **options)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, head(keras.layers.Dense(2, name="dense")(inputs)))
    model.compile(keras.optimizers.SGD(0.01), loss=head.loss)
    model.optimizer.build(model.trainable_variables)  # else a step is traced twice
    return model, head


def numbers(head: AdditiveGP) -> dict[str, np.ndarray]:
    return {path: np.array(v) for path, v in head._state().items()}


# --- q by natural gradients ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_only_training_moves_q() -> None:
    model, head = build()
    before = numbers(head)
    model.evaluate(X, Y, batch_size=N, verbose=0)
    head.loss(Y, head(X))
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    model.fit(X, Y, batch_size=N, verbose=0)
    assert (
        np.max(np.abs(numbers(head)["variational.site_shift"] - before["variational.site_shift"]))
        > 1e-2
    )
    one = numbers(head)["variational.site_shift"]
    head.loss(Y, head(X, training=True))  # in a loop of one's own
    assert np.max(np.abs(numbers(head)["variational.site_shift"] - one)) > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_natural_gradients_are_of_the_features_of_the_same_pass() -> None:
    """What dropout left out of the pass whose loss is differentiated is out of the step, too."""
    keras.utils.set_random_seed(3)
    head, other = (
        AdditiveGP(gg.s(0) + gg.s(1), num_data=N, num_inducing=5, normalization=None)
        for _ in range(2)
    )
    dropped = keras.layers.Dropout(0.5)(X, training=True)
    head.loss(Y, head(dropped, training=True))
    other.loss(Y, other(X, training=True))
    moments = np.array(head(X))
    keras.utils.set_random_seed(3)
    inputs = keras.Input((2,))
    fresh = AdditiveGP(gg.s(0) + gg.s(1), num_data=N, num_inducing=5, normalization=None)
    model = keras.Model(inputs, fresh(keras.layers.Dropout(0.5)(inputs)))
    fresh.loss(Y, model(X, training=True))
    np.testing.assert_allclose(np.array(fresh(X)), moments, atol=1e-9)
    assert np.max(np.abs(np.array(other(X)) - moments)) > 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_weights_of_rows_count_in_q() -> None:
    """Rows of weight zero are none, and all the same weight for each is that of the data."""

    def after(rows: int, weight: Any) -> np.ndarray:
        keras.utils.set_random_seed(0)
        model, head = build(num_data=rows, normalization=None)
        model.fit(X[:rows], Y[:rows], sample_weight=weight, batch_size=rows, verbose=0)
        return numbers(head)["variational.site_shift"]

    plain = after(N // 2, None)
    np.testing.assert_allclose(after(N // 2, np.ones(N // 2)), plain, atol=1e-9)
    # the mean of a batch counts all its rows: half of them at weight two are those alone
    both = np.where(np.arange(N) < N // 2, 2.0, 0.0)
    halved = after(N, both)
    assert np.max(np.abs(halved - plain)) > 1e-6  # of twice as many rows


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_batches_of_an_epoch_add_up_to_the_data() -> None:
    """The first batches count alike: an epoch at fixed hyperparameters is the batch of all rows."""
    heads = []
    for size in (N, N // 4):
        head = AdditiveGP(gg.s(0) + gg.s(1), num_data=N, num_inducing=5, normalization=None)
        head.adapt(X, Y)
        for i in range(0, N, size):
            head.loss(Y[i : i + size], head(X[i : i + size], training=True))
        heads.append(head)
    np.testing.assert_allclose(heads[1](X), heads[0](X), atol=1e-8)


# --- frozen heads --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["head", "model"])
def test_a_frozen_head_stays_as_it_is(where: str) -> None:
    model, head = build()
    head(X, training=True)
    before, outputs = numbers(head), np.array(head(X))
    (head if where == "head" else model).trainable = False
    head(3.0 + 10.0 * X, training=True)
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    np.testing.assert_array_equal(head(X), outputs)
    head.trainable = True
    head(3.0 + 10.0 * X, training=True)
    assert np.max(np.abs(np.array(head(X)) - outputs)) > 1e-3


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("way", ["trainable", "frozen"])
def test_natural_gradients_leave_what_is_frozen(way: str) -> None:
    model, head = build(normalization=None)
    if way == "trainable":
        head.trainable = False
    else:
        head.frozen = ("inducing_variable", "kernel", "likelihood", "mean_function", "variational")
    model.compile(keras.optimizers.SGD(0.1), loss=head.loss)
    model.optimizer.build(model.trainable_variables)
    before, dense = numbers(head), np.array(model.get_layer("dense").kernel)
    head.parameters["variational.site_shift"].assign(before["variational.site_shift"] + 0.3)
    before = numbers(head)
    model.fit(X, Y, batch_size=N, verbose=0)
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)
    assert np.max(np.abs(np.array(model.get_layer("dense").kernel) - dense)) > 1e-4


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
        options = {"num_data": rows, "num_inducing": 5, "normalization": None, **extra}
        head = AdditiveGP(gg.s(0) + gg.s(1), "bernoulli", **options)
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


@pytest.mark.slow
@pytest.mark.usefixtures("eagerly")
def test_inducing_inputs_at_all_rows_are_exact_regression(
    features: np.ndarray, rng: np.random.Generator
) -> None:
    y = np.sin(features[:, 0]) + 0.1 * rng.normal(size=ROWS)
    kernel = gpflow.kernels.Matern52(lengthscales=2.0)
    terms = gg.s(*range(5), k=ROWS, kernel=kernel)
    head = AdditiveGP(terms, num_data=ROWS, normalization="adapt")
    head.adapt(features, y)
    for _ in range(2):
        head.loss(y, head(features, training=True))
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    np.testing.assert_allclose(head.scaled(features), scaled, rtol=1e-6)
    gp = head.model
    exact = gpflow.models.GPR(
        (scaled, y[:, None]),
        gpflow.kernels.Matern52(lengthscales=2.0) + gp.kernel.components["intercept"],
        mean_function=gpflow.functions.Constant(float(gp.mean_function.constant[0])),
    )
    exact.likelihood.variance.assign(gp.likelihood.variance)
    new = features[:20] + 0.3
    mean, variance = exact.predict_f((new - features.mean(axis=0)) / features.std(axis=0))
    moments = head(new).numpy()
    np.testing.assert_allclose(moments[:, 0, 0], mean[:, 0], atol=1e-4)
    np.testing.assert_allclose(moments[:, 0, 1], variance[:, 0], atol=1e-4)


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
