"""What moves in a head that trains, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, NaturalGradientModel, SpectralBound

N = 40
RNG = np.random.default_rng(2)
X = RNG.normal(size=(N, 2)).astype("float32")
Y = np.sin(2.0 * X[:, 0])


def build(kind: type[keras.Model] = keras.Model, **options: Any) -> tuple[keras.Model, AdditiveGP]:
    options = {"num_data": N, "num_inducing": 5, **options}
    head = AdditiveGP(gg.s(0) + gg.s(1), **options)
    inputs = keras.Input((2,))
    model = kind(inputs, head(keras.layers.Dense(2, name="dense")(inputs)))
    model.compile(keras.optimizers.SGD(0.01), loss=head.loss)
    model.optimizer.build(model.trainable_variables)  # else a step is traced twice
    return model, head


def numbers(head: AdditiveGP) -> dict[str, np.ndarray]:
    return {path: np.array(v) for path, v in head._state().items()}


# --- q by natural gradients ----------------------------------------------------------------------


@pytest.mark.usefixtures("eagerly")
def test_sites_need_natural_gradients() -> None:
    model, head = build(variational="sites")
    with pytest.raises(ValueError, match="variational='sites'.*NaturalGradientModel.*'block'"):
        model.fit(X, Y, verbose=0)
    assert np.isfinite(model.evaluate(X, Y, batch_size=N, verbose=0))
    with pytest.raises(ValueError, match=r"stepping\(\), and natural_gradient_step"):
        head(X, training=True)
    with head.stepping():  # a loop of one's own
        head(X, training=True)
    before = numbers(head)["variational.site_shift"]
    head.natural_gradient_step(X, Y)
    assert np.max(np.abs(numbers(head)["variational.site_shift"] - before)) > 1e-3


@pytest.mark.usefixtures("eagerly")
def test_natural_gradients_are_of_the_features_of_the_same_pass() -> None:
    """What dropout left out of the pass whose loss is differentiated is out of the step, too."""
    keras.utils.set_random_seed(3)
    head = AdditiveGP(gg.s(0) + gg.s(1), num_data=N, num_inducing=5, variational="sites")
    head.adapt(X)
    seen: list[np.ndarray] = []

    class Spy(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            seen.append(np.array(inputs))
            return inputs

        def compute_output_spec(self, inputs: Any) -> Any:
            return keras.KerasTensor(inputs.shape, inputs.dtype)

    inputs = keras.Input((2,))
    model = NaturalGradientModel(inputs, head(Spy()(keras.layers.Dropout(0.5)(inputs))))
    model.compile(keras.optimizers.SGD(0.0), loss=head.loss)
    model.optimizer.build(model.trainable_variables)
    stepped: list[np.ndarray] = []
    head.natural_gradient_step = lambda features, y: stepped.append(np.array(features))
    seen.clear()
    model.fit(X, Y, batch_size=N, verbose=0)
    assert len(seen) == len(stepped) == 1
    assert (seen[0] == 0.0).mean() > 0.3
    np.testing.assert_array_equal(stepped[0], seen[0])


@pytest.mark.parametrize("kind", [keras.Model, NaturalGradientModel])
def test_sites_are_not_distributed(kind: type[keras.Model]) -> None:
    with pytest.raises(ValueError, match=r"variational='sites'.*'block'"):
        gg.distribute.fit(
            lambda: build(kind, variational="sites")[0], (X, Y), batch_size=20, num_steps=1
        )


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
    model, head = build(NaturalGradientModel, variational="sites", normalization=None)
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


# --- a tempered KL --------------------------------------------------------------------------------


@pytest.mark.usefixtures("eagerly")
def test_a_tempered_loss_is_that_with_another_kl() -> None:
    """Priors of hyperparameters, which a false number of rows would weaken too, stay."""

    def evaluated(**options: Any) -> tuple[float, AdditiveGP]:
        keras.utils.set_random_seed(0)
        model, head = build(**options)
        q_mu = head.parameters["variational.q_mu"]
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


@pytest.mark.parametrize("weight", [1.0, 0.2])
def test_tempered_natural_gradients_are_those_of_rows_that_count_more(weight: float) -> None:
    """With one step of size 1, whatever the likelihood: the data's sites are ``1 / weight``."""
    features, y = X.astype(float), np.array(Y > 0.0, dtype=float)
    options = {"likelihood": "bernoulli", "variational": "sites", "rho": 1.0, "num_inducing": 5}
    both = []
    for rows, extra in ((N, {"kl_weight": weight}), (round(N / weight), {})):
        head = AdditiveGP(gg.s(0) + gg.s(1), num_data=rows, normalization=None, **options, **extra)
        head.natural_gradient_step(features, y)
        both.append(head(features).numpy())
    np.testing.assert_allclose(both[0], both[1], rtol=1e-9, atol=1e-12)


# --- beside other losses, under other optimisers, in other threads --------------------------------


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
    with pytest.raises(ValueError, match="loss_weight must be a positive number; got 0"):
        build(loss_weight=0.0)


def test_weight_decay_can_leave_a_head_alone() -> None:
    """A prior is what shrinks its parameters, and towards something else than raw zeros."""
    model, head = build()
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(head.weights)
    before, dense = numbers(head), np.array(model.get_layer("dense").kernel)
    weights = model.trainable_weights
    optimizer.apply([tf.zeros_like(v.value) for v in weights], weights)
    assert np.max(np.abs(np.array(model.get_layer("dense").kernel) - dense)) > 1e-3
    for path, value in numbers(head).items():
        np.testing.assert_array_equal(value, before[path], err_msg=path)


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
    with pytest.raises(ValueError, match="there are 2 layers 'gp'"):
        fresh(Y, np.array(one(X)))


def test_a_kl_weight_is_kept(tmp_path: Path) -> None:
    model, head = build(kl_weight=np.float32(0.25), name="tempered")
    assert AdditiveGP.from_config(head.get_config()).kl_weight == 0.25
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.get_layer("tempered").kl_weight == 0.25
    with pytest.raises(AttributeError):
        head.kl_weight = 1.0


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
