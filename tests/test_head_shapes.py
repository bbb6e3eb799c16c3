"""Heads whose components have a shape: in networks, graphs, files and exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg
from gpflow_gam.layers import AdditiveGP, IterNCGP

N = 300
RNG = np.random.default_rng(2)
X = RNG.uniform(-1.0, 1.0, size=(N, 2))
SIGNS = {"increasing": (1, 1), "decreasing": (1, -1), "convex": (2, 1), "concave": (2, -1)}


def truth(x: Any) -> Any:
    """Flat at first."""
    return 2.0 * np.maximum(x[:, 0], 0.0) + np.sin(3.0 * x[:, 1])


Y = truth(X) + 0.5 * RNG.normal(size=N)
GRID = np.linspace(-1.5, 1.5, 301)[:, None] * [1.0, 0.0]
"""Beyond the data, too."""


def violation(values: Any, shape: str = "increasing") -> float:
    """How much curves [..., n] on an even grid go against a shape, against their range."""
    order, sign = SIGNS[shape]
    down = np.maximum(-sign * np.diff(np.asarray(values, dtype=float), order, axis=-1), 0.0)
    return float(down.max() / np.ptp(values))


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), dtype="float64")
    head = AdditiveGP(
        gg.s(0, shape="increasing", k=16) + gg.s(1),
        num_data=N,
        num_inducing=10,
        normalization="adapt",
        name="shaped",
    )
    head.adapt(X, Y)
    head.parameters["likelihood.variance"].assign(0.25)
    head.loss(Y, head(X, training=True))  # there at once, as the response is normal
    return keras.Model(inputs, head(inputs))


@pytest.fixture(scope="module")
def head(model: keras.Model) -> AdditiveGP:
    return model.get_layer("shaped")


@pytest.mark.slow
def test_a_trained_head_has_its_shape(head: AdditiveGP) -> None:
    free, X_ = head.model.posterior(), head.scaled(GRID)
    unheld = free.predict_f(X_)[0].numpy()[:, 0]
    assert violation(unheld) > 1e-4  # it was there to be violated
    total, components = head(GRID).numpy(), head(GRID, output="components").numpy()
    assert violation(total[:, 0, 0]) < 1e-10
    assert violation(components[:, 1, 0, 0]) < 1e-10
    assert violation(head.effects("s(0)")["estimate"]) < 1e-10
    sums = components[..., 0].sum(axis=1)[:, 0]
    np.testing.assert_allclose(np.diff(sums), np.diff(total[:, 0, 0]), atol=1e-8)
    posterior = head.posterior()
    draws = posterior.sample_components(X_, 2000, seed=1).numpy()[..., 1]
    assert violation(draws) < 1e-9
    assert violation(posterior.sample_f(X_, 500, seed=1).numpy()[..., 0]) < 1e-9
    # errors are those of draws around the estimate
    measured = np.sqrt(np.mean(np.square(draws - components[:, 1, 0, 0]), axis=0))
    inner = np.abs(GRID[:, 0]) < 0.9
    np.testing.assert_allclose(measured[inner], np.sqrt(components[inner, 1, 0, 1]), rtol=0.1)
    # no worse than what it was before it was projected
    new = RNG.uniform(-1.0, 1.0, size=(500, 2))
    held = head(new).numpy()[:, 0, 0]
    unheld = free.predict_f(head.scaled(new))[0].numpy()[:, 0]
    errors = [np.sqrt(np.mean(np.square(f - truth(new)))) for f in (held, unheld)]
    noise = np.sqrt(head(new).numpy()[:, 0, 1].mean())
    assert errors[0] < errors[1] + 0.2 * noise
    assert errors[0] < 1.5 * noise
    assert head.shape_p()["s(0)"][0] > 0.05


@pytest.mark.slow
def test_graphs_follow_the_weights(head: AdditiveGP) -> None:
    """What numpy computed for one q is no answer for the next."""
    run = tf.function(lambda x: head(x), autograph=False)
    shift = head.parameters["variational.site_shift"]
    before = shift.numpy()
    first = run(GRID).numpy()
    np.testing.assert_allclose(first, head(GRID), atol=1e-9)
    shift.assign(-before)
    second = run(GRID).numpy()
    np.testing.assert_allclose(second, head(GRID), atol=1e-9)
    assert np.ptp(second[:, 0, 0]) < 1e-9  # a decreasing function is nearest to a constant
    assert head.shape_p()["s(0)"][0] < 0.01
    shift.assign(before)
    np.testing.assert_array_equal(run(GRID), first)


@pytest.mark.slow
def test_files_have_the_same_numbers(model: keras.Model, head: AdditiveGP, tmp_path: Path) -> None:
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(GRID), model(GRID))
    draws = [h.posterior().sample_f(GRID, 3, seed=4) for h in (loaded.get_layer("shaped"), head)]
    np.testing.assert_array_equal(*draws)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("terms", "shape", "options"),
    [
        (gg.s(0, shape="convex") + gg.s(1), "convex", {}),
        (gg.s(0, shape="decreasing", bs="matern32"), "decreasing", {"dtype": "float32"}),
        (gg.s(0, shape="concave", by=gg.factor(2)), "concave", {"num_levels": {2: 3}}),
        (gg.s(0, shape="concave", by=2), "concave", {}),
        (gg.te(0, 1, shape=("increasing", None), k=25), "increasing", {}),
        (
            gg.s(0, shape="increasing"),
            "increasing",
            {"likelihood": "softmax", "num_classes": 3},
        ),
    ],
)
def test_heads_have_shapes(terms: Any, shape: str, options: Any) -> None:
    rng = np.random.default_rng(0)
    head = AdditiveGP(terms, num_data=N, **{"num_inducing": 8, **options})
    head.adapt(np.column_stack([3.0 + 2.0 * X, np.arange(N) % 3]))
    q = head.parameters["variational.site_shift"]
    q.assign(rng.normal(size=q.shape))
    grid = np.column_stack([np.linspace(-1.0, 7.0, 201), np.full(201, 3.4), np.ones(201)])
    single = head.compute_dtype == "float32"
    mean = head(grid).numpy()[..., 0]
    draws = head.posterior().sample_f(head.scaled(grid), 40, seed=0).numpy()
    for k in range(head.num_predictors):
        assert violation(mean[:, k], shape) < (1e-6 if single else 1e-9)
        assert violation(draws[..., k], shape) < (1e-6 if single else 1e-9)


def test_what_holds_to_no_shape_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = gg.s(0, shape="convex")
    with pytest.raises(ValueError, match=r"s\(0\) has a shape, which IterNCGP does not hold to"):
        IterNCGP(terms)
    assert not AdditiveGP(terms, num_data=10).supports_jit
    assert AdditiveGP(gg.s(0), num_data=10, num_inducing=4).supports_jit
    monkeypatch.setattr("gpflow_gam.layers.additive_gp.MAX_SITES", 20)
    with pytest.raises(ValueError, match=r"s\(0\) has a shape.*25 inducing values.*than 20"):
        AdditiveGP(terms, num_data=10)
