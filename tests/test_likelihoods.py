"""Likelihoods against scipy, dense quadrature, and their own tails; weights and supports."""

import gpflow
import numpy as np
import problems
import pytest
import scipy.stats as st
import tensorflow as tf
from response_cases import (
    CASES,
    EVERY,
    INCREMENTS,
    LATENT,
    Case,
    Labels,
    each,
    every,
    hazards,
    svgp,
    weighted,
)
from scipy.special import expit, log_ndtr, logsumexp

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import likelihoods as lk
from gpflow_gam.likelihoods import (
    Bernoulli,
    Binomial,
    CensoredGaussian,
    LogNormal,
    NegativeBinomial,
    Weibull,
    Weighted,
    ZeroInflated,
)
from gpflow_gam.likelihoods.expectations import constant_predictor, expectations
from gpflow_gam.likelihoods.predictive import predictive_log_density
from gpflow_gam.likelihoods.times import EXACT, RIGHT

# --- densities ---------------------------------------------------------------------------------


@every
def test_log_density_is_scipys(case: Case, rng):
    Y, F = case.data(rng)
    expected = case.logp(Y[:, 0], F)
    for likelihood in (case.likelihood(), weighted(case.likelihood())):
        got = case.family.log_density(likelihood, Y, F)
        assert got.shape == (40,)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)
    several = np.stack([F, F + 0.3])
    got = case.family.log_density(case.likelihood(), Y, several)
    np.testing.assert_allclose(got[1], case.logp(Y[:, 0], F + 0.3), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("likelihood", "y", "mean", "sd"),
    [
        (gpflow.likelihoods.Poisson(), [1000.0], [np.log(1000.0)], [0.3]),
        (gpflow.likelihoods.Poisson(), [1000.0], [0.0], [1.0]),
        (gpflow.likelihoods.Poisson(), [3.0], [0.0], [100.0]),  # some rates overflow
        (gpflow.likelihoods.StudentT(scale=0.1), [4.0], [0.0], [1.0]),
        (NegativeBinomial(0.01), [200.0], [3.0], [2.0]),
        (Binomial(), [250.0, 500.0], [0.0], [1.0]),
        (Bernoulli(), [1.0], [-1.0], [6.0]),
        (lk.StudentT(unit=0.5, varying=True), [2.0], [0.0, -3.0], [1.0, 0.3]),
        (lk.MeanGamma(varying=True), [3.0], [0.5, -4.0], [0.8, 0.3]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, gpflow.Module) else None,
)
def test_densities_narrower_than_the_predictor_are_integrated(likelihood, y, mean, sd):
    z = np.linspace(-12.0, 12.0, 20_001)[:, None]
    if len(mean) == 2:
        u = np.linspace(-8.0, 8.0, 61)
        z = np.stack(np.broadcast_arrays(z, u), axis=-1).reshape(-1, 2)
    F = np.array(mean) + np.array(sd) * z
    logs = likelihood.log_prob(np.zeros((len(F), 1)), F, np.repeat([y], len(F), axis=0))
    logs = np.where(np.isnan(logs), -np.inf, logs)
    logs = logs - 0.5 * np.sum(z**2 + np.log(2.0 * np.pi), axis=1)
    step = 24.0 / 20_000 * (1.0 if len(mean) == 1 else 16.0 / 60)
    moments = np.array([mean]), np.square([sd])
    X, Y = np.zeros((1, 1)), tf.constant([y], tf.float64)
    for var in (moments[1], np.diag(moments[1][0])[None]):
        got = predictive_log_density(likelihood, X, moments[0], var, Y)
        np.testing.assert_allclose(got, [logsumexp(logs) + np.log(step)], rtol=1e-4)
    for lost in (moments[0] * np.nan, moments[1]), (moments[0], moments[1] * np.nan):
        assert np.isnan(predictive_log_density(likelihood, X, *lost, Y)).all()


@every
def test_moments_are_scipys(case: Case, rng):
    F = case.predictors(rng, 5, 4)
    likelihood, reference = weighted(case.likelihood()), case.reference(F)
    mean = case.family.mean(likelihood, F)
    X = np.zeros((5, 4, 1))
    if isinstance(reference, Labels):
        np.testing.assert_allclose(mean, reference.p, rtol=1e-7, atol=1e-12)
    else:
        np.testing.assert_allclose(mean, reference.mean() / (case.trials or 1), rtol=1e-9)
    if case.trials is None and not isinstance(case.family, fam.Categorical):
        moments = likelihood.conditional_mean(X, F), likelihood.conditional_variance(X, F)
        for result, known in zip(moments, (reference.mean(), reference.var())):
            np.testing.assert_allclose(result[..., 0], known, rtol=1e-9)


@every
def test_deviance_is_twice_the_gap_to_the_best_first_predictor(case: Case, rng):
    """Which is looked for among many, nearer and nearer."""
    Y, F = case.data(rng, 12)
    y, best = Y[:, 0], 0.0
    if case.levels is None and case.family.name != "bernoulli":  # whose best has probability one
        positive = case.between is not None and case.between[0] > 0.0
        link = getattr(case.family, "link", "")
        if positive or case.trials is not None or (link == "log" and not case.discrete):
            inner = (y > 0.1) & (y < (case.trials or np.inf))  # where the best is no limit
            Y, F, y = Y[inner], F[inner], y[inner]
        low, high = np.outer((-5.0, 6.0) if positive else (-14.0, 14.0), np.ones(len(y)))
        for _ in range(5):
            line = np.linspace(low, high, 81)
            each = np.repeat(F[None], 81, axis=0)
            each[..., 0] = np.exp(line) if positive else line
            logs = case.logp(y, each)
            top = line[np.nanargmax(logs, axis=0), np.arange(len(y))]
            low, high = top - (line[1] - line[0]), top + (line[1] - line[0])
        best = np.nanmax(logs, axis=0)
    own = case.family.deviance(case.likelihood(), Y, F)
    np.testing.assert_allclose(own, 2.0 * (best - case.logp(y, F)), atol=2e-5)


@every
def test_cdf_is_scipys(case: Case, rng):
    Y, F = case.data(rng)
    result = case.family.cdf(weighted(case.likelihood()), Y, F)
    if isinstance(case.family, fam.Categorical):
        assert result is None
        return
    lower, upper = result
    reference = case.reference(F)
    np.testing.assert_allclose(upper, reference.cdf(Y[:, 0]), rtol=1e-9, atol=1e-12)
    atoms = case.discrete | ((case.family.name == "tweedie") & (Y[:, 0] == 0.0))
    below = np.where(atoms, reference.cdf(Y[:, 0] - 1.0), upper)
    np.testing.assert_allclose(lower, below, rtol=1e-9, atol=1e-12)


@every
def test_draws_have_the_moments_and_uniform_residuals(case: Case, rng):
    n = 20_000
    F = np.tile(case.predictors(rng, 1), (n, 1))
    likelihood = weighted(case.likelihood())
    trials = None if case.trials is None else np.full(n, case.trials)
    y = case.family.sample(likelihood, F, rng, trials)
    assert y.shape == (n,)
    reference = case.reference(F[:1])
    mean, var = float(reference.mean()[0]), float(reference.var()[0])
    assert np.mean(y) == pytest.approx(mean, abs=4.5 * np.sqrt(var / n))
    assert np.var(y) == pytest.approx(var, rel=0.12)
    if isinstance(case.family, fam.Categorical):
        return
    F = case.predictors(rng, n)
    y = case.family.sample(likelihood, F, rng, trials)
    lower, upper = case.family.cdf(likelihood, case.Y(y), F)
    assert st.kstest(rng.uniform(lower, upper), "uniform").pvalue > 1e-3
    lower, upper = case.family.cdf(likelihood, case.Y(y), F + 0.2 * (-1.0) ** np.arange(case.L))
    assert st.kstest(rng.uniform(lower, upper), "uniform").pvalue < 1e-3


# --- expectations under a Gaussian -------------------------------------------------------------


def nodes(L: int) -> tuple[np.ndarray, np.ndarray]:
    """A product rule [Q, L] for independent standard normals, and its weights."""
    x = np.linspace(-6.5, 6.5, (2001, 201, 41)[L - 1])
    grid = np.stack(np.meshgrid(*[x] * L, indexing="ij"), -1).reshape(-1, L)
    w = np.exp(-0.5 * np.sum(grid**2, axis=1))
    return grid, w / np.sum(w)


@every
def test_expectations_against_dense_quadrature(case: Case, rng):
    Y, mean = case.data(rng, 8)
    var = rng.uniform(*case.variance, mean.shape)
    z, w = nodes(case.L)
    F = mean + np.sqrt(var) * z[:, None, :]
    logp, reference = case.logp(Y[:, 0], F), case.reference(F)
    likelihood, X = case.likelihood(), np.zeros((8, 1))
    fixed = isinstance(case.family, fam.Categorical)
    tolerance = dict(rtol=0.02, atol=0.01) if fixed else dict(rtol=case.rtol, atol=1e-6)
    observed = Y.astype(np.int32) if fixed else Y
    got = likelihood.variational_expectations(X, mean, var, observed)
    np.testing.assert_allclose(got, w @ logp, **tolerance)
    got = likelihood.predict_log_density(X, mean, var, observed)
    np.testing.assert_allclose(got, np.log(w @ np.exp(logp)), **tolerance)
    m, v = (np.asarray(a) for a in likelihood.predict_mean_and_var(X, mean, var))
    if fixed:
        p = np.einsum("q,qnc->nc", w, reference.p)
        np.testing.assert_allclose(m, p, **tolerance)
        return
    n = case.trials or 1
    expected = w @ reference.mean() / n
    np.testing.assert_allclose(m[:, 0], expected, **tolerance)
    if n == 1 and case.spread:
        square = w @ (reference.var() + reference.mean() ** 2)
        np.testing.assert_allclose(v[:, 0], square - expected**2, rtol=2e-4)
    elif n > 1:  # of one trial
        np.testing.assert_allclose(v[:, 0], expected * (1 - expected), **tolerance)
        np.testing.assert_allclose((m[:, 1], v[:, 1]), np.array([[1.0], [0.0]]) * np.ones(8))


@pytest.mark.parametrize(
    ("likelihood", "Y", "mean", "var", "rtol"),
    [
        (*hazards(), np.linspace(-1.0, 1.0, 6), np.full(6, 0.3), (1e-9, 1e-5)),
        (lk.Quantile(0.7, 0.5), [[0.5], [0.0]], [0.3, 2.0], [0.05, 0.02], (1e-4, 1e-4)),
    ],
    ids=["cox", "quantile"],
)
def test_expectations_of_no_distribution_are_dense_quadratures(likelihood, Y, mean, var, rtol):
    z = np.linspace(-9.0, 9.0, 4001)[:, None]
    w = st.norm.pdf(z[:, 0]) / st.norm.pdf(z).sum()
    F = (mean + np.sqrt(var) * z)[..., None]
    logs = likelihood.log_prob(np.zeros(F.shape), F, Y + np.zeros((len(z), 1, 1))).numpy()
    X, moments = np.zeros((len(Y), 1)), (np.reshape(a, (-1, 1)) for a in (mean, var))
    given = X, *moments, np.asarray(Y)
    got = likelihood.variational_expectations(*given)
    np.testing.assert_allclose(got, w @ logs, rtol=rtol[0])
    got = likelihood.predict_log_density(*given)
    np.testing.assert_allclose(got, np.log(w @ np.exp(logs)), rtol=rtol[1])


@each
def test_single_precision(case: Case, rng):
    Y, mean = case.data(rng, 8)
    var = np.full(mean.shape, 0.3)
    X, Y = np.ones((8, 1)), Y.astype(int) if isinstance(case.family, fam.Categorical) else Y
    double = case.likelihood().variational_expectations(X, mean, var, Y)
    gpflow.config.set_default_float(np.float32)
    X, mean, var = (a.astype(np.float32) for a in (X, mean, var))
    Y = Y.astype(np.float32) if Y.dtype == np.float64 else Y
    single = weighted(case.likelihood()).variational_expectations(X, mean, var, Y)
    assert single.dtype == tf.float32
    np.testing.assert_allclose(single, double, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("classes", [3, 100])
def test_fixed_softmax_is_gpflows_average_over_its_nodes(classes: int, rng):
    """Value, gradient and second derivatives: those are written out here, automatic there."""
    likelihood = lk.FixedSoftmax(classes)
    labels = tf.constant(rng.integers(0, classes, (5, 1)))
    mean = tf.constant(3.0 * rng.standard_normal((5, classes)))
    var = tf.constant(rng.uniform(0.1, 4.0, (5, classes)))
    along = tf.constant(rng.standard_normal((2, 5, classes)))

    def derivatives(nodes: tf.Tensor | None) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch([mean, var])
            with tf.GradientTape() as inner:
                inner.watch([mean, var])
                value = likelihood._variational_expectations(
                    tf.zeros([5, 1]), mean, var, labels, epsilon=nodes
                )
            first = inner.gradient(value, [mean, var])
            directional = tf.reduce_sum(along * first)
        return [value, *first, *outer.gradient(directional, [mean, var])]

    for ours, theirs in zip(derivatives(None), derivatives(tf.constant(likelihood._epsilon))):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


# --- far from the data -------------------------------------------------------------------------


@pytest.mark.parametrize("far", [-400.0, -40.0, 40.0, 400.0])
@pytest.mark.parametrize("family", ["bernoulli", "ordinal", "beta"])
@pytest.mark.parametrize("link", LATENT)
def test_tails_are_finite_with_finite_gradients(family: str, link: str, far: float):
    names = f"{family}_{link}", f"{family}-{link}", f"{family}-{link}-1", family
    likelihood = next(EVERY[name] for name in names if name in EVERY).likelihood()
    observed = np.array([[0.2], [0.9]]) if family == "beta" else np.array([[0.0], [1.0]])
    far = np.clip(far, -60.0, 60.0) if link == "cloglog" else far  # whose log is an exponential
    F = tf.constant([[far], [far]], dtype=tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([F, *likelihood.trainable_variables])
        value = likelihood.log_prob(np.zeros((2, 1)), F, observed)
    assert np.all(np.isfinite(value))
    for gradient in tape.gradient(value, [F, *likelihood.trainable_variables]):
        assert gradient is None or np.all(np.isfinite(gradient))


def test_ordered_keeps_its_digits_in_the_tails():
    likelihood = lk.Ordered(4, INCREMENTS)
    F = np.array([[12.0], [-12.0], [30.0]])
    got = likelihood.log_prob(np.zeros((3, 1)), F, np.ones((3, 1)))
    # log(Phi(b) - Phi(a)) = log Phi(b) + log(1 - Phi(a) / Phi(b)), in whichever tail is small
    edges = [(-12.0, -11.6), (-12.4, -12.0), (-30.0, -29.6)]
    expected = [log_ndtr(b) + np.log1p(-np.exp(log_ndtr(a) - log_ndtr(b))) for a, b in edges]
    np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_two_ordered_classes_are_probit(rng):
    likelihood, F = lk.Ordered(2), rng.standard_normal((9, 1))
    assert not likelihood.trainable_variables
    got = likelihood.log_prob(np.zeros((9, 1)), F, np.ones((9, 1)))
    np.testing.assert_allclose(got, log_ndtr(F[:, 0]), rtol=1e-12)


# --- weights -----------------------------------------------------------------------------------


def elbo_and_gradients(
    model: gg.models.AdditiveSVGP, data: tuple[np.ndarray, np.ndarray]
) -> tuple[float, list[np.ndarray]]:
    with tf.GradientTape() as tape:
        value = model.elbo(data)
    return float(value), [np.asarray(g) for g in tape.gradient(value, model.trainable_variables)]


@pytest.mark.parametrize("name", ["poisson", "beta", "heteroskedastic", "binomial_logit"])
def test_weights_are_frequencies(name: str, rng):
    case = CASES[name]
    X = rng.uniform(size=(20, 1))
    Y, _ = case.data(rng, 20)
    w = np.array([0.0, 1.0, 2.0, 3.0] * 5)
    again = np.repeat(np.arange(20), w.astype(int))
    plain, heavy = svgp(case.likelihood()), svgp(lk.Weighted(case.likelihood(), 1))
    for model in (plain, heavy):
        problems.randomise(model.variational, np.random.default_rng(5))
    value, gradients = elbo_and_gradients(plain, (X[again], Y[again]))
    got, weighted_gradients = elbo_and_gradients(heavy, (np.column_stack([X, w]), Y))
    assert got == pytest.approx(value, rel=1e-10)
    assert len(gradients) == len(weighted_gradients)  # those of the base are tracked
    for a, b in zip(weighted_gradients, gradients):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


def test_a_row_of_weight_zero_adds_nothing_even_where_its_density_overflows():
    likelihood = lk.Weighted(gpflow.likelihoods.Poisson(), 0)
    X = np.array([[0.0], [2.0]])
    F, Y = tf.constant([[1e4], [0.5]], dtype=tf.float64), np.array([[3.0], [3.0]])
    var = tf.constant([[1e4], [0.1]], dtype=tf.float64)
    for method, args in (
        ("log_prob", (F,)),
        ("variational_expectations", (F, var)),
        ("predict_log_density", (F, var)),
    ):
        with tf.GradientTape() as tape:
            tape.watch(args)
            value = getattr(likelihood, method)(X, *args, Y)
        alone = getattr(likelihood.base, method)(X[1:], *(a[1:] for a in args), Y[1:])
        np.testing.assert_allclose(value, [0.0, 2.0 * float(alone[0])])
        for gradient in tape.gradient(value, args):
            assert float(gradient[0, 0]) == 0.0
            assert np.isfinite(gradient[1, 0])
            assert gradient[1, 0] != 0.0


def test_the_null_model_of_a_weighted_likelihood_stays_behind_its_link():
    """Labels that are all equal have their best predictor at infinity."""
    X, Y, zero = np.ones((9, 1)), np.zeros((9, 1)), np.zeros((9, 1))
    for likelihood in (gpflow.likelihoods.Poisson(), lk.NegativeBinomial(), lk.Bernoulli()):
        c = [constant_predictor(lik, X, Y, zero, 1) for lik in (likelihood, weighted(likelihood))]
        assert -30.0 <= float(c[0][0, 0]) < -8.0
        np.testing.assert_allclose(*c)
    # behind a logarithm the bound goes along with the level of Y
    likelihood, few = gpflow.likelihoods.Exponential(), np.full((9, 1), 1e-20)
    c = constant_predictor(weighted(likelihood), X, few, zero, 1)
    assert float(c[0, 0]) == pytest.approx(np.log(1e-20), rel=1e-5)


def test_weighted_says_what_is_wrong():
    X, Y = np.column_stack([np.linspace(0, 1, 5), [1.0, 1.0, -1.0, 1.0, 1.0]]), np.zeros((5, 1))
    base = gpflow.likelihoods.Poisson()
    with pytest.raises(
        ValueError, match=r"weights that are not negative; got -1 in row 2, col.* 1"
    ):
        svgp(lk.Weighted(base, 1)).elbo((X, Y))
    with pytest.raises(ValueError, match="X has 2 columns, but the weights are in column 5"):
        svgp(lk.Weighted(base, 5)).elbo((X, Y))
    with pytest.raises(ValueError, match="Y must be whole counts, not negative under Poisson"):
        svgp(lk.Weighted(base, 0)).elbo((X, Y - 0.5))


@pytest.mark.parametrize(
    ("likelihood", "row", "message"),
    [
        (lk.Binomial(), [3.0, 2.0], "whole successes from 0 to the trials"),
        (lk.Binomial(), [0.0, 0.0], "whole trials from 1"),
        (lk.Binomial(), [1.0], r"Y must be \[N, 2\], successes and trials"),
        (lk.NegativeBinomial(), [0.5], "whole counts, not negative"),
        (lk.Ordered(3), [3.0], "whole labels 0 to 2"),
        (lk.Weighted(lk.FixedSoftmax(3), 0), [3.0], "whole labels 0 to 2"),
        (lk.Bernoulli(), [0.5], "0 or 1"),
        (lk.MeanGamma(), [0.0], "positive"),
        (lk.LogitBeta(), [1.0], "strictly between 0 and 1"),
        (gpflow.likelihoods.Poisson(), [-1.0], "whole counts"),
        (gpflow.likelihoods.Bernoulli(), [2.0], "0 or 1"),
        (gpflow.likelihoods.Softmax(3), [3.0], "whole labels 0 to 2"),
        (gpflow.likelihoods.MultiClass(3), [-1.0], "whole labels 0 to 2"),
        (gpflow.likelihoods.Gamma(), [0.0], "positive"),
        (gpflow.likelihoods.Exponential(), [-0.1], "not negative"),
        (gpflow.likelihoods.Beta(), [1.0], "strictly between 0 and 1"),
        (gpflow.likelihoods.Gaussian(), [np.nan], "finite"),
    ],
)
def test_impossible_observations_are_refused(likelihood, row, message):
    model, data = svgp(likelihood), (np.full((1, 1), 0.5), np.array([row]))
    with pytest.raises(ValueError, match=message):
        model.elbo(data)
    if isinstance(likelihood, gpflow.likelihoods.Poisson):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            tf.function(model.elbo)(data)


def test_names_of_attributes_say_nothing_of_a_users_likelihood():
    class Counts(gpflow.likelihoods.Poisson):
        def __init__(self):
            super().__init__()
            self.num_classes, self.base = 3, gpflow.likelihoods.Bernoulli()

    data = np.full((1, 1), 0.5), np.array([[7.0]])
    expected = svgp(gpflow.likelihoods.Poisson()).elbo(data)
    np.testing.assert_allclose(svgp(Counts()).elbo(data), expected)


# --- what likelihoods say at rows whose predictor is normal --------------------------------------

N = 60


def _general(likelihood):
    """Of a class of its own that takes the general way, by TensorFlow."""
    likelihood.__class__ = type("General", (type(likelihood),), {"row_terms": None})
    return likelihood


def _known(rng):
    t = np.exp(rng.standard_normal((N, 1)))
    return np.hstack([t, np.ones((N, 1)), np.full((N, 1), EXACT)])


ZEROS = [name for name, case in EVERY.items() if isinstance(case.likelihood(), ZeroInflated)]
COUNTS = ["poisson", "negative_binomial", "bernoulli_logit", "binomial_logit"]
LOCATED = ["censored_gaussian", "lognormal", "weibull"]
SUMMED = {
    name: (EVERY[name].likelihood, lambda rng, case=EVERY[name]: case.data(rng, N)[0])
    for name in (*COUNTS, "gamma", "student_t", "heteroskedastic", *LOCATED, *ZEROS)
}
"""The likelihood, and how responses are drawn."""
KNOWN = {
    "tobit, known": (lambda: CensoredGaussian(0.7), _known),
    "lognormal, known": (lambda: LogNormal(2.0, floor=0.3), _known),
    "weibull, known": (lambda: Weibull(1.3, floor=0.3), _known),
}
SUMMED |= KNOWN | {
    "exposed": (lambda: gpflow.likelihoods.Poisson(binsize=2.5), SUMMED["poisson"][1]),
    "nearly poisson": (lambda: NegativeBinomial(1e-3), SUMMED["poisson"][1]),
    "cox": (lambda: hazards()[0], lambda rng: np.tile(hazards()[1], (N // 6, 1))),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("case", SUMMED)
def test_expectations_without_tensorflow_are_those_with_it(case, weighted, rng, monkeypatch):
    monkeypatch.setattr("gpflow_gam.likelihoods.expectations._ROWS", N // 2 - 1)  # by blocks
    make, draw = SUMMED[case]
    shape = (N, make().latent_dim or 1)
    mean, var = 2.0 * rng.standard_normal(shape), rng.uniform(1e-8, 3.0, shape)
    Y, X = draw(rng), rng.integers(0, 3, (N, 1)) * 0.5
    results = []
    for likelihood in (make(), _general(make())):
        if weighted:
            likelihood = Weighted(likelihood, 0)
        results.append(expectations(likelihood, X, mean, var, Y, likelihood.trainable_variables))
    result, wanted = results
    assert result.total == pytest.approx(wanted.total, rel=1e-12)
    np.testing.assert_allclose(result.slope, wanted.slope, rtol=1e-10, atol=1e-12)
    # through a square root that differences of nodes go into
    np.testing.assert_allclose(result.precision, wanted.precision, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(result.own_slope, wanted.own_slope, rtol=1e-9)
    # there by differences
    np.testing.assert_allclose(result.own_curvature, wanted.own_curvature, rtol=1e-4)
    np.testing.assert_allclose(result.across, wanted.across, rtol=1e-3, atol=1e-4)


def test_a_users_own_density_has_no_terms_of_another():
    class Laplace(lk.StudentT):
        def _log_density(self, f, g, y):
            return -tf.abs(y - f) / g - tf.math.log(2.0 * g)

    Y, mean = np.array([[0.0], [5.0]]), np.zeros((2, 1))
    result = expectations(Laplace(), Y, mean, np.full_like(mean, 1e-12), Y, [])
    assert result.total == pytest.approx(st.laplace(0.0, 1.0).logpdf(Y).sum(), abs=1e-5)


@pytest.mark.parametrize("var", [0.0, 1e-24])
@pytest.mark.parametrize("case", [*ZEROS, "bernoulli_logit"])
def test_known_predictors_have_second_derivatives_for_precisions(case, var, rng):
    make, draw = SUMMED[case]
    likelihood, L = make(), 2 if case in ZEROS else 1
    mean, Y, X, step = rng.standard_normal((N, L)), draw(rng), np.ones((N, 1)), 1e-5
    result = expectations(likelihood, X, mean, np.full_like(mean, var), Y, [])
    assert result.total == pytest.approx(float(np.sum(likelihood.log_prob(X, mean, Y))), rel=1e-12)
    if L == 1:
        p = expit(mean)
        np.testing.assert_allclose(result.slope, Y - p, rtol=1e-12)
        np.testing.assert_allclose(result.precision, p * (1.0 - p), rtol=1e-12)
    for i in range(L):
        moved = step * np.eye(L)[i]
        up, down = (
            expectations(likelihood, X, mean + sign * moved, 0.0 * mean, Y, []).slope[:, i]
            for sign in (1.0, -1.0)
        )
        bend = (up - down) / (2.0 * step)
        np.testing.assert_allclose(result.precision[:, i], -bend, rtol=1e-6, atol=1e-7)


def test_rows_that_do_not_count_may_overflow():
    X, Y = np.array([[0.0], [1.0]]), np.ones((2, 1))
    mean = np.array([[1e3], [0.0]])
    for base in (gpflow.likelihoods.Poisson(), NegativeBinomial()):
        result = expectations(Weighted(base, 0), X, mean, 0.1 * np.ones((2, 1)), Y, [])
        assert np.isfinite(result.total)
        assert result.slope[0, 0] == 0.0
        assert result.precision[0, 0] == 0.0


@pytest.mark.parametrize("case", [*COUNTS, "exposed"])
def test_responses_that_cannot_be_are_an_error(case, rng):
    make, draw = SUMMED[case]
    Y = draw(rng)
    Y[3, 0] = 20.5
    with pytest.raises(ValueError, match="20.5|counts|trials|0 and 1|0 or 1"):
        expectations(make(), np.ones((N, 1)), 0.0 * Y[:, :1], Y[:, :1], Y, [])


@pytest.mark.parametrize("case", KNOWN)
def test_one_censored_row_is_no_density(case, rng):
    make, draw = KNOWN[case]
    Y = draw(rng)
    Y[3, 2] = RIGHT
    given = np.ones((N, 1)), 0.0 * Y[:, :1], Y[:, :1], Y, []
    result, wanted = (expectations(k, *given) for k in (make(), _general(make())))
    exact = expectations(make(), *given[:3], draw(rng), [])
    assert result.total == wanted.total
    assert result.slope[3, 0] != exact.slope[3, 0]
