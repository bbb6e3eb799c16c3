"""Keras heads of curves for levels, areas, the globe, adaptive and anisotropic functions."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.base import AnyNDArray
from problems import violation

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te, ti
from gpflow_gam.layers import AdditiveGP, IterNCGP

N, LEVELS = 80, 4
RING = {i: [(i - 1) % LEVELS, (i + 1) % LEVELS] for i in range(LEVELS)}
TERMS = {
    "isotropic": s(0, 4, isotropic=False, k=60),
    "ad": s(0, bs="ad", k=30),
    "fs": s(0, 1, bs="fs", k=12),
    "sz": s(0, k=12) + s(0, 1, bs="sz", k=12),
    "mrf": s(1, bs="mrf", neighbours=RING),
    "sos": s(2, 3, bs="sos", k=70),
    "varying": s(0, 1, bs="fs", by=4, k=12),
    "all": s(*range(5), k=N),
}


def features() -> AnyNDArray:
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.5, 1.5, (2, N))
    levels = np.arange(N) % LEVELS
    latitude = np.rad2deg(np.arcsin(rng.uniform(-1.0, 1.0, N)))
    return np.column_stack([x, levels, latitude, rng.uniform(-180.0, 180.0, N), z])


X = features()
Y = (
    np.sin(2.0 * X[:, 0]) * (X[:, 1] - 1.5)
    + np.sin(np.deg2rad(X[:, 2]))
    + 0.1 * np.cos(9.0 * X[:, 4])
)
Y = (Y - Y.mean()) / Y.std()


def head_of(kind: str, **options: Any) -> AdditiveGP:
    levels = {1: LEVELS} if kind in ("fs", "sz", "varying") else None
    return AdditiveGP(TERMS[kind], "gaussian", num_data=N, num_levels=levels, **options)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", TERMS)
def test_posterior_is_that_of_an_exact_gaussian_process(kind: str) -> None:
    """A first batch of all Gaussian data gives the optimal q."""
    head = head_of(kind, dtype="float64", normalization="adapt")
    head.adapt(X, Y)
    head.loss(Y[:, None], head(tf.constant(X), training=True))
    scaled = head.scaled(tf.constant(X))
    K = np.asarray(head.kernel(scaled))
    assert np.linalg.matrix_rank(K) >= LEVELS - 1
    noise = float(np.asarray(head.likelihood.variance))
    known = float(np.asarray(head.model.mean_function(scaled))[0, 0])
    gain = np.linalg.solve(K + noise * np.eye(N), K).T
    moments = np.asarray(head(tf.constant(X)))[:, 0]
    np.testing.assert_allclose(moments[:, 0], known + gain @ (Y - known), atol=0.01)
    np.testing.assert_allclose(moments[:, 1], np.diag(K - gain @ K), atol=0.01)


@pytest.mark.parametrize("kind", ["ad", "varying", "mrf", "sos"])
def test_configurations_rebuild_them(kind: str) -> None:
    head = head_of(kind)
    again = AdditiveGP.from_config(head.get_config())
    assert again.names == head.names
    shapes = [[tuple(w.shape) for w in own.weights] for own in (again, head)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("kind", ["fs", "sz", "mrf"])
def test_levels_without_data_keep_a_place(kind: str) -> None:
    head = head_of(kind, dtype="float64")
    seen = X[:, 1] < LEVELS - 1
    head.adapt(X[seen], Y[seen])
    result = np.asarray(head(tf.constant(X)))
    assert np.all(np.isfinite(result))
    K = np.asarray(head.kernel[head.names[-1]](head.scaled(tf.constant(X))))
    assert np.all(np.diag(K)[~seen] > 0.1)


def test_curves_of_levels_average_to_zero_over_the_data() -> None:
    head = head_of("fs", dtype="float64")
    seen = (X[:, 1] < 2) | (np.arange(N) % 3 == 0)  # some levels have more rows than others
    head.adapt(X[seen], Y[seen])
    K = np.asarray(head.kernel["s(0,1)"](head.scaled(tf.constant(X[seen]))))
    assert abs(K.mean()) < 1e-3 * np.mean(np.diag(K))


def test_a_globe_has_no_seam_and_no_other_degrees() -> None:
    head = head_of("sos", dtype="float64")
    head.adapt(X, Y)
    west, east = X[:5].copy(), X[:5].copy()
    west[:, 3], east[:, 3] = -180.0, 180.0
    np.testing.assert_allclose(head(tf.constant(west)), head(tf.constant(east)), rtol=1e-8)
    np.testing.assert_array_equal(head.scaled(tf.constant(X)), X[:, 2:4])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be degrees from -90 to 90; got"):
        head.scaled(tf.constant(X + 100.0))


@pytest.mark.parametrize(
    ("term", "levels", "message"),
    [
        (s(0, bs="rw"), None, "bs='matern12' is as rough"),
        (s(0, bs="iou"), None, "bs='matern52' is as smooth"),
        (s(0, 1, bs="fs"), None, "feature 1 is read as levels; pass num_levels"),
        (s(1, bs="mrf", neighbours={"a": ["b"], "b": ["a"]}), None, "areas of a layer are codes"),
        (s(1, bs="mrf", neighbours=RING), {1: 5}, "feature 1 has 5 levels; s.* has 4"),
        (s(0, 1, bs="sos") + s(0), None, "read as a latitude and as a number"),
        (s(0, by=1) + factor(1), {1: LEVELS}, "read as a multiplier and as a level"),
    ],
)
def test_terms_that_a_layer_does_not_take(term: Any, levels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdditiveGP(term, num_data=N, num_levels=levels)


def test_a_head_takes_all_other_kinds_at_once() -> None:
    bs = ("se", "matern12", "matern32", "matern52", "linear")
    kernels = [s(5 + i, bs=name) for i, name in enumerate(bs)]
    others = [s(0, by=factor(1)), s(10, bs="cyclic", period=2.0), te(0, 4), ti(5, 4), linear(0)]
    terms = [*kernels, *others, factor(1), random_effect(11)]
    levels = {1: LEVELS, 11: LEVELS}
    head = AdditiveGP(terms, num_data=N, num_inducing=6, num_levels=levels)
    data = np.column_stack([X, *[X[:, 0]] * 6, X[:, 1]])
    head.adapt(data)
    result = head(data).numpy()
    assert np.all(np.isfinite(result))
    assert np.all(result[..., 1] > 0.0)


# --- inside XLA, which drops assertions: what should have failed is NaN --------------------------

FEW = 12
DRAWS = np.random.default_rng(3)
POINTS = np.column_stack([DRAWS.normal(size=FEW), np.arange(FEW) % 3])
CODES = POINTS[:, 1]


def compiled(head: AdditiveGP, **options: Any) -> Any:
    return tf.function(lambda x: head(x, **options), jit_compile=True, autograph=False)


def factors(**options: Any) -> AdditiveGP:
    terms = gg.s(0) + gg.factor(1)
    options = {"num_data": FEW, "num_inducing": 4, "num_levels": {1: 3}, **options}
    return AdditiveGP(terms, **options)


@pytest.fixture(scope="module")
def fixed() -> AdditiveGP:
    return factors(normalization=None)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["moments", "components", "response", "interval"])
def test_unknown_levels(fixed: AdditiveGP, output: str) -> None:
    head = fixed
    strange = POINTS.copy()
    strange[[1, 4, 7, 8], 1] = 3.0, -1.0, 0.5, np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match="codes 0 to 2"):
        head(strange, output=output)
    result = np.asarray(compiled(head, output=output)(tf.constant(strange)))
    bad = np.isin(np.arange(FEW), [1, 4, 7, 8])
    assert np.all(np.isnan(result[bad]))
    want = head(POINTS, output=output).numpy()[~bad]
    np.testing.assert_allclose(result[~bad], want, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_before_adapt() -> None:
    head = AdditiveGP(gg.s(0), num_data=FEW, num_inducing=4, normalization="adapt")
    run = compiled(head)
    assert np.all(np.isnan(run(tf.constant(POINTS))))
    head.adapt(POINTS)
    assert np.all(np.isfinite(run(tf.constant(POINTS))))


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("bad", ["labels", "levels", "more rows than num_data"])
def test_natural_gradients_of_bad_batches(bad: str, before: bool) -> None:
    """Where nothing can be asserted the loss says so, as the first batch and later; q stays."""
    head = factors(likelihood="softmax", num_classes=3, normalization=None)
    rows, labels = POINTS, CODES
    if bad == "labels":
        labels = labels + 1.0
    elif bad == "levels":
        rows = np.where(rows == 2.0, 3.0, rows)
    else:
        rows, labels = np.concatenate([rows, rows]), np.concatenate([labels, labels])

    @tf.function(jit_compile=True, autograph=False)
    def step(features: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return head.loss(y, head(features, training=True))

    shift = head.parameters["variational.site_shift"]
    if before:
        assert np.isfinite(step(tf.constant(POINTS), tf.constant(CODES)))
    held = shift.numpy()
    assert np.isnan(step(tf.constant(rows), tf.constant(labels)))
    np.testing.assert_allclose(shift.numpy(), held, atol=1e-10)
    assert np.isfinite(step(tf.constant(POINTS), tf.constant(CODES)))


# --- heads whose components have a shape ---------------------------------------------------------

MANY = 300
DRAWN = np.random.default_rng(2)
PAIRS = DRAWN.uniform(-1.0, 1.0, size=(MANY, 2))


def truth(x: Any) -> Any:
    """Flat at first."""
    return 2.0 * np.maximum(x[:, 0], 0.0) + np.sin(3.0 * x[:, 1])


FLAT = truth(PAIRS) + 0.5 * DRAWN.normal(size=MANY)
GRID = np.linspace(-1.5, 1.5, 301)[:, None] * [1.0, 0.0]
"""Beyond the data, too."""


@pytest.fixture(scope="module")
def shaped_model() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), dtype="float64")
    shaped = AdditiveGP(
        gg.s(0, shape="increasing", k=16) + gg.s(1),
        num_data=MANY,
        num_inducing=10,
        normalization="adapt",
        name="shaped",
    )
    shaped.adapt(PAIRS, FLAT)
    shaped.parameters["likelihood.variance"].assign(0.25)
    shaped.loss(FLAT, shaped(PAIRS, training=True))  # there at once, as the response is normal
    return keras.Model(inputs, shaped(inputs))


@pytest.fixture(scope="module")
def shaped(shaped_model: keras.Model) -> AdditiveGP:
    return shaped_model.get_layer("shaped")


@pytest.mark.slow
def test_a_trained_head_has_its_shape(shaped: AdditiveGP) -> None:
    free, X_ = shaped.model.posterior(), shaped.scaled(GRID)
    unheld = free.predict_f(X_)[0].numpy()[:, 0]
    assert violation(unheld) > 1e-4  # it was there to be violated
    total, components = shaped(GRID).numpy(), shaped(GRID, output="components").numpy()
    assert violation(total[:, 0, 0]) < 1e-10
    assert violation(components[:, 1, 0, 0]) < 1e-10
    assert violation(shaped.effects("s(0)")["estimate"]) < 1e-10
    sums = components[..., 0].sum(axis=1)[:, 0]
    np.testing.assert_allclose(np.diff(sums), np.diff(total[:, 0, 0]), atol=1e-8)
    draws = shaped.posterior().sample_components(X_, 2000, seed=1).numpy()[..., 1]
    # errors are those of draws around the estimate
    measured = np.sqrt(np.mean(np.square(draws - components[:, 1, 0, 0]), axis=0))
    inner = np.abs(GRID[:, 0]) < 0.9
    np.testing.assert_allclose(measured[inner], np.sqrt(components[inner, 1, 0, 1]), rtol=0.1)
    # no worse than what it was before it was projected
    new = DRAWN.uniform(-1.0, 1.0, size=(500, 2))
    held = shaped(new).numpy()[:, 0, 0]
    unheld = free.predict_f(shaped.scaled(new))[0].numpy()[:, 0]
    errors = [np.sqrt(np.mean(np.square(f - truth(new)))) for f in (held, unheld)]
    noise = np.sqrt(shaped(new).numpy()[:, 0, 1].mean())
    assert errors[0] < errors[1] + 0.2 * noise
    assert errors[0] < 1.5 * noise
    assert shaped.shape_p()["s(0)"][0] > 0.05


@pytest.mark.slow
def test_graphs_follow_the_weights(shaped: AdditiveGP) -> None:
    """What numpy computed for one q is no answer for the next."""
    run = tf.function(lambda x: shaped(x), autograph=False)
    shift = shaped.parameters["variational.site_shift"]
    before = shift.numpy()
    first = run(GRID).numpy()
    np.testing.assert_allclose(first, shaped(GRID), atol=1e-9)
    shift.assign(-before)
    second = run(GRID).numpy()
    np.testing.assert_allclose(second, shaped(GRID), atol=1e-9)
    assert np.ptp(second[:, 0, 0]) < 1e-9  # a decreasing function is nearest to a constant
    assert shaped.shape_p()["s(0)"][0] < 0.01
    shift.assign(before)
    np.testing.assert_array_equal(run(GRID), first)


@pytest.mark.slow
def test_files_have_the_same_numbers(
    shaped_model: keras.Model, shaped: AdditiveGP, tmp_path: Path
) -> None:
    shaped_model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(GRID), shaped_model(GRID))
    draws = [h.posterior().sample_f(GRID, 3, seed=4) for h in (loaded.get_layer("shaped"), shaped)]
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
        (gg.s(0, shape="increasing"), "increasing", {"likelihood": "softmax", "num_classes": 3}),
    ],
)
def test_heads_have_shapes(terms: Any, shape: str, options: Any) -> None:
    rng = np.random.default_rng(0)
    head = AdditiveGP(terms, num_data=MANY, **{"num_inducing": 8, **options})
    head.adapt(np.column_stack([3.0 + 2.0 * PAIRS, np.arange(MANY) % 3]))
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
