"""The expected response and its limits, against closed forms, other quadrature and loops."""

import gpflow
import numpy as np
import pandas as pd
import problems
import pytest
import tensorflow as tf
from response_cases import CASES, Case, each, weighted
from scipy.integrate import trapezoid
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import accuracy_score, log_loss, mean_pinball_loss

import gpflow_gam as gg
from gpflow_gam import factor, linear, metrics, s
from gpflow_gam import likelihoods as lk
from gpflow_gam.gam import scorer
from gpflow_gam.gam.effects.posterior import critical_values, joint_moments, simultaneous_bands
from gpflow_gam.likelihoods.predictive import summarised_response

ONE_COLUMN = ["gaussian", "negative_binomial", "beta", "weibull", "bernoulli_probit"]


def predictors(rng: np.random.Generator, L: int, n: int = 20) -> tuple[np.ndarray, ...]:
    return np.zeros((n, 1)), rng.standard_normal((n, L)), rng.uniform(0.01, 2.0, (n, L))


@each
def test_moments_and_limits_are_those_of_draws(case: Case, rng):
    """Of several predictors by a thousand draws of its own, within an eighth of a deviation."""
    X, mean, var = predictors(rng, case.L)
    likelihood, var = case.likelihood(), 0.2 * var
    got = summarised_response(weighted(likelihood), X, mean, var, 0.8)
    F = mean + np.sqrt(var) * rng.standard_normal((20_000, *mean.shape))
    values = case.family.mean(likelihood, F)
    sd = values.std(axis=0)
    known = values.mean(axis=0), sd, *np.quantile(values, [0.1, 0.9], axis=0)
    for a, b in zip(got, known):
        assert np.all(np.abs(a - b) <= 0.125 * sd)
    alone = summarised_response(likelihood, X, mean, var)
    np.testing.assert_array_equal(alone.mean, got.mean)
    assert alone.lower is None


@pytest.mark.parametrize("name", ONE_COLUMN)
def test_dense_integral(name, rng):
    case = CASES[name]
    X, mean, var = predictors(rng, 1)
    z = np.linspace(-12.0, 12.0, 20_001)
    values = case.family.mean(case.likelihood(), (mean + np.sqrt(var) * z)[..., None])
    expected = trapezoid(values * norm.pdf(z), z, axis=1)
    got = summarised_response(case.likelihood(), X, mean, var).mean
    np.testing.assert_allclose(got, expected, rtol=1e-7)


def test_ordered_classes_are_integrated(rng):
    """And limits are quantiles; what is drawn was up to .01 off, and log densities are not."""
    case = CASES["ordinal"]
    likelihood = case.likelihood()
    X, mean, var = predictors(rng, 1)
    z = np.linspace(-12.0, 12.0, 20_001)
    values = case.family.mean(likelihood, (mean + np.sqrt(var) * z)[..., None])
    got = summarised_response(likelihood, X, mean, var, 0.9)
    expected = trapezoid(values * norm.pdf(z)[:, None], z, axis=1)
    np.testing.assert_allclose(got.mean, expected, atol=1e-7)
    squares = trapezoid(np.square(values) * norm.pdf(z)[:, None], z, axis=1)
    np.testing.assert_allclose(got.sd, np.sqrt(squares - expected**2), atol=1e-6)
    for k in range(expected.shape[1]):
        labels = np.full((20, 1), float(k))
        density = likelihood.predict_log_density(X, mean, var, labels)
        np.testing.assert_allclose(np.exp(density), got.mean[:, k], atol=1e-6)
    even = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    many = case.family.mean(likelihood, (mean + np.sqrt(var) * even)[..., None])
    low, high = np.quantile(many, [0.05, 0.95], axis=1)
    np.testing.assert_allclose(got.lower, low, atol=3e-3)  # of a thousand quantiles
    np.testing.assert_allclose(got.upper, high, atol=3e-3)


def test_closed_forms(rng):
    X, mean, var = predictors(rng, 1)
    m, v = mean[:, 0], var[:, 0]
    got = summarised_response(gpflow.likelihoods.Gaussian(), X, mean, var, 0.9)
    z = norm.ppf(0.95) * np.sqrt(v)
    for a, b in zip(got, (m, np.sqrt(v), m - z, m + z)):
        np.testing.assert_allclose(a, b, atol=1e-12)
    lower, upper = summarised_response(lk.Bernoulli("logit"), X, mean, var, 0.95)[2:]
    np.testing.assert_allclose(lower, expit(m - norm.ppf(0.975) * np.sqrt(v)))
    np.testing.assert_allclose(upper, expit(m + norm.ppf(0.975) * np.sqrt(v)))


def test_decreasing_link_keeps_limits_in_order(rng):
    X, mean, var = predictors(rng, 1)
    falling = gpflow.likelihoods.Poisson(invlink=lambda f: tf.exp(-f))
    lower, upper = summarised_response(falling, X, mean, var, 0.95)[2:]
    np.testing.assert_allclose(upper, np.exp(-mean + norm.ppf(0.975) * np.sqrt(var))[:, 0])
    assert np.all(lower < upper)


def test_gpflow_ordinal_and_robust_max_give_probabilities(rng):
    edges = np.array([0.0, 0.4, 1.7])
    X, mean, var = predictors(rng, 1)
    theirs = summarised_response(gpflow.likelihoods.Ordinal(edges), X, mean, var).mean
    ours = summarised_response(lk.Ordered(4, np.diff(edges)), X, mean, var).mean
    np.testing.assert_allclose(theirs, ours, atol=1e-2)  # GPflow's probit is squeezed elsewhere
    X, mean, var = predictors(rng, 3)
    robust = gpflow.likelihoods.MultiClass(3)
    got = summarised_response(robust, X, mean, 1e-12 * var).mean.numpy()
    np.testing.assert_allclose(got, robust.conditional_mean(X, mean), atol=1e-12)
    assert got.shape == (20, 3)


def test_outputs_observed_one_by_one_are_integrated_not_drawn(rng):
    X, mean, var = predictors(rng, 2)
    got = summarised_response(gpflow.likelihoods.Poisson(), X, mean, var).mean
    np.testing.assert_allclose(got, np.exp(mean + 0.5 * var), rtol=1e-10)


@pytest.mark.parametrize("name", ["poisson", "ordinal", "categorical", "heteroskedastic"])
def test_any_batch_size_in_a_graph(name, rng, monkeypatch):
    """Blocks of rows, the last of them padded; rows do not depend on each other."""
    case = CASES[name]
    likelihood = case.likelihood()
    monkeypatch.setattr("gpflow_gam.likelihoods.predictive._ENTRIES", 12_000)
    spec = [tf.TensorSpec([None, 1], tf.float64)] + [tf.TensorSpec([None, case.L], tf.float64)] * 2
    compiled = tf.function(
        lambda X, m, v: summarised_response(likelihood, X, m, v, 0.9), spec, autograph=False
    )
    X, mean, var = predictors(rng, case.L, 31)
    whole = summarised_response(likelihood, X, mean, var, 0.9)
    for number in (0, 1, 4, 31):
        got = compiled(X[:number], mean[:number], var[:number])
        for a, b in zip(got, whole):
            np.testing.assert_allclose(a, b[:number], rtol=1e-12, atol=1e-14)


def test_users_own_conditional_response(rng):
    class Halved(gpflow.likelihoods.Gaussian):
        def conditional_response(self, X, F):
            return 0.5 * F[..., 0]

    X, mean, var = predictors(rng, 1)
    got = summarised_response(Halved(), X, mean, var).mean
    np.testing.assert_allclose(got, 0.5 * mean[:, 0], atol=1e-12)


def test_class_probabilities_depend_on_neither_names_nor_seeds(rng, tmp_path):
    """And are those of tables, and of the model, whose nodes are fewer."""
    data = {"x": rng.uniform(size=200), "y": rng.choice(list("abc"), 200, p=[0.6, 0.3, 0.1])}
    new = {"x": np.linspace(-0.2, 1.2, 30)}
    gam, other = (gg.GAM(gg.s("x", k=6), "categorical", seed=seed) for seed in (0, 7))
    known = np.asarray(gam.fit(data, "y").predict(new))
    np.testing.assert_array_equal(other.fit(data, "y").predict(new), known)
    renamed = {"a": "b", "b": "c", "c": "a"}
    again = data | {"y": [renamed[y] for y in data["y"]]}
    turned = np.asarray(other.fit(again, "y").predict(new))[:, [1, 2, 0]]
    np.testing.assert_allclose(turned, known, atol=2e-3)
    X = gam.fitted.encode(new)
    mean, var = gam.fitted.predict_link(X)
    F = mean + np.sqrt(var) * rng.standard_normal((100_000, *mean.shape))
    F = np.exp(F - F.max(axis=-1, keepdims=True))
    expected = np.mean(F / F.sum(axis=-1, keepdims=True), axis=0)
    np.testing.assert_allclose(known, expected, atol=2.5e-3)  # of draws, whose error is .0009
    np.testing.assert_allclose(gam.model.predict_y(X)[0], expected, atol=5e-3)
    gg.serving.export(gam, tmp_path / "m.json")
    answer = scorer.predict(scorer.load(tmp_path / "m.json"), new)
    np.testing.assert_allclose(answer["response"], known, atol=2.5e-3)


def test_classes_of_a_users_likelihood_have_names(rng):
    """``interval=`` of such a GAM found no names to write above its columns."""
    data = {"x": rng.uniform(size=60)}
    gam = gg.GAM(gg.s("x", k=5), family=lk.FixedSoftmax(3))
    gam.fit(data, rng.integers(0, 3, 60), max_iterations=3)
    frame = gam.predict(data, interval=0.9)
    np.testing.assert_allclose(sum(frame[k, "estimate"] for k in range(3)), 1.0, atol=1e-12)
    assert gam.sample(data, 2).shape == (2, 60, 3)


# --- effects on the response ---------------------------------------------------------------------

QUICK = {"max_iterations": 12}
GRID = np.linspace(0.05, 0.95, 12)
SUMMARY = ["estimate", "se", "lower", "upper"]


@pytest.fixture(scope="module")
def data():
    df = problems.table(150, 7)
    kind = pd.Categorical(df["kind"], ["u", "v", "w"], ordered=True)
    return df.assign(y=8.0 * df["y"], kind=kind)


FAMILIES = {
    "poisson": ("count", "log_e"),
    "gaussian": ("y", None),
    "categorical": ("kind", None),
    "ordinal": ("kind", None),
    "heteroskedastic": ("y", None),
}


def fitted(data, family):
    y, offset = FAMILIES[family]
    terms = s("x") + linear("z") + factor("g")
    return gg.GAM(terms, family=family, offset=offset).fit(data, y=y, **QUICK)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", list(FAMILIES))
def test_it_is_the_prediction_from_that_term_alone(data, family):
    """Two routes: with offsets at their mean, in any unit, with several predictors or classes."""
    gam = fitted(data, family)
    rows = pd.DataFrame({"x": GRID, "log_e": data["log_e"].mean()})
    result = gam.effects("s(x)", GRID, scale="response", level=0.9, unconditional=False)
    expected = gam.predict(rows, terms="s(x)", interval=0.9, unconditional=False)
    if family in ("categorical", "ordinal"):
        assert list(result["class"].unique()) == ["u", "v", "w"]
        for label, own in result.groupby("class"):
            np.testing.assert_allclose(own[SUMMARY], expected[label][SUMMARY], rtol=1e-4)
    else:
        np.testing.assert_allclose(result[SUMMARY], expected[SUMMARY], rtol=1e-4)
    np.testing.assert_array_equal(result["x"], np.tile(GRID, len(result) // len(GRID)))
    assert (result["lower_simultaneous"] <= result["lower"]).all()
    assert (result["upper_simultaneous"] >= result["upper"]).all()


def test_limits_behind_a_log_link_are_images_and_hold_the_intercept(data):
    gam = fitted(data, "poisson")
    rho, sd = gam.predict(data, "link", se=True, unconditional=False)
    np.testing.assert_allclose(gam.predict(data), np.exp(rho + 0.5 * sd**2), rtol=1e-9)
    result = gam.effects("s(x)", GRID, scale="response")
    X = np.zeros((len(GRID), gam.fitted.X.shape[1]))
    X[:, 0] = GRID
    _, cov = joint_moments(gam.fitted, [("s(x)", X), ("intercept", X[:1])])
    A = np.hstack([np.eye(len(GRID)), np.ones((len(GRID), 1))])
    sd = np.sqrt(np.diag(A @ cov[0] @ A.T))
    pointwise, simultaneous = critical_values(A @ cov[0] @ A.T, 0.95, gam.seed)
    ratio = np.log(result["upper"] / result["lower"])
    np.testing.assert_allclose(ratio, 2 * pointwise * sd, rtol=1e-4)
    ratio = np.log(result["upper_simultaneous"] / result["lower_simultaneous"])
    np.testing.assert_allclose(ratio, 2 * simultaneous * sd, rtol=0.1)  # of draws
    with pytest.raises(ValueError, match="added to an intercept, which this GAM does not have"):
        gg.GAM("count ~ s(x) + g - 1", "poisson").fit(data, **QUICK).effects(
            "s(x)", scale="response"
        )


def test_simultaneous_limits_by_ranks():
    """Of independent normals the level is known, and functions of draws have those of limits."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((20_000, 5)) * np.array([1.0, 2.0, 0.1, 1.0, 3.0])
    lower, upper = simultaneous_bands(draws, 0.9)
    z = norm.ppf(0.5 + 0.5 * 0.9 ** (1 / 5))
    np.testing.assert_allclose(upper, z * np.array([1.0, 2.0, 0.1, 1.0, 3.0]), rtol=0.03)
    inside = np.all((draws >= lower) & (draws <= upper), axis=1).mean()
    assert inside == pytest.approx(0.9, abs=2e-3)
    for end, other in zip(simultaneous_bands(np.exp(draws), 0.9), (lower, upper)):
        np.testing.assert_allclose(end, np.exp(other))
    # what does not vary does not widen what does
    still = np.concatenate([draws[:, :1], np.zeros((20_000, 30))], axis=1)
    assert simultaneous_bands(still, 0.9)[1][0] == pytest.approx(norm.ppf(0.95), rel=0.03)
    both = simultaneous_bands(np.stack([draws, -draws], axis=-1), 0.9)
    np.testing.assert_allclose(both[1][:, 1], -both[0][:, 0])


def test_bad_arguments_are_named(data):
    gam = gg.GAM(s("x", k=5)).fit(data, y="y", **QUICK)
    with pytest.raises(ValueError, match="scale must be 'link' or 'response'; got 'log'"):
        gam.effects("s(x)", scale="log")
    with pytest.raises(ValueError, match="fun takes effects through a function"):
        gam.effects("s(x)", scale="response", fun=np.exp)


# --- metrics, by hand, in closed form and as scikit-learn has them -------------------------------

LABELS = np.array([0, 1, 2, 1])
P = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6], [0.05, 0.95, 0.0]])


def test_values_by_hand():
    assert metrics.accuracy(LABELS, P) == 0.75
    assert metrics.nlpd(LABELS, P) == pytest.approx(-np.log([0.7, 0.4, 0.6, 0.95]).mean())
    # bins (.6, .7], (.4, .5], (.5, .6], (.9, 1]: gaps .3, .5, .4, .05, a quarter each
    assert metrics.ece(LABELS, P) == pytest.approx((0.3 + 0.5 + 0.4 + 0.05) / 4)
    # two bins: (0, .5] holds the wrong one, (.5, 1] the three others
    assert metrics.ece(LABELS, P, num_bins=2) == pytest.approx(0.25 * 0.5 + 0.75 * 0.25)


def test_crps_of_draws_is_that_of_the_distribution(rng):
    """In closed form of the normal distribution; and of few draws without bias, by loops."""
    y = np.array([-2.0, 0.1, 1.5])
    closed = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
    draws = rng.normal(size=(200_000, 3))
    np.testing.assert_allclose(metrics.crps(y, draws), closed, atol=0.01)
    few = draws[:4]
    pairs = [np.abs(few[i] - few[j]) for i in range(4) for j in range(4) if i != j]
    by_hand = np.abs(few - y).mean(axis=0) - 0.5 * np.mean(pairs, axis=0)
    np.testing.assert_allclose(metrics.crps(y, few), by_hand)
    # twice the pinball loss, over all quantiles
    levels = (np.arange(2000) + 0.5) / 2000
    losses = [metrics.pinball(y, np.full(3, norm.ppf(p)), p) for p in levels]
    np.testing.assert_allclose(2.0 * np.mean(losses, axis=0), closed, atol=1e-3)
    with pytest.raises(ValueError, match=r"draws \[S, N\], S at least 2; got \(3,\) and \(1, 3\)"):
        metrics.crps(y, draws[:1])


def test_scores_are_scikit_learns(rng):
    p, labels = rng.dirichlet(np.ones(4), 200), rng.integers(0, 4, 200)
    assert metrics.accuracy(labels, p) == accuracy_score(labels, p.argmax(axis=1))
    assert metrics.nlpd(labels[:, None], p) == pytest.approx(log_loss(labels, p, labels=range(4)))
    y, q = rng.normal(size=(2, 50))
    for level in (0.1, 0.5, 0.95):
        expected = mean_pinball_loss(y, q, alpha=level)
        assert metrics.pinball(y, q, level).mean() == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"must be \[N\]; got \(3,\) and \(1,\)"):
        metrics.pinball([1, 2, 3], [1], 0.3)
    with pytest.raises(ValueError, match="level must be a probability between 0 and 1; got 1.7"):
        metrics.pinball(y, q, 1.7)


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([0, 1], np.ones((3, 2)) / 2, "labels must be .N. and probabilities .N, C.; got"),
        ([0, 3], np.eye(2), "labels must be whole, 0 to 1; got 0 to 3"),
        ([0, 0.5], np.eye(2), "labels must be whole"),
        (["a", "b"], np.eye(2), "labels must be whole class numbers; got 'a'"),
        ([0, 1], np.ones((2, 2)), "sum to 1 in each row"),
        ([0, 1], [[np.nan, 1], [0, 1]], "between 0 and 1"),
        ([], np.zeros((0, 2)), "labels is empty"),
    ],
)
def test_labels_and_probabilities_that_are_none(labels, probabilities, message):
    with pytest.raises(ValueError, match=message):
        metrics.accuracy(labels, probabilities)
    with pytest.raises(ValueError, match="num_bins must be a whole number of at least 1"):
        metrics.ece(LABELS, P, num_bins=0)
