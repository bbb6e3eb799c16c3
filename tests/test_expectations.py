"""What likelihoods say at rows whose predictor is normal."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_gam.likelihoods import (
    Bernoulli,
    Binomial,
    CensoredGaussian,
    Hurdle,
    LogNormal,
    NegativeBinomial,
    Weibull,
    Weighted,
    ZeroInflated,
)
from gpflow_gam.likelihoods.continuous import EXACT, RIGHT
from gpflow_gam.likelihoods.expectations import expectations

N = 60


def _general(kind):
    """A class of its own that takes the general way, by TensorFlow."""
    return type(f"_{kind.__name__}", (kind,), {"row_terms": None})


def _counts(rng):
    return rng.poisson(3.0, (N, 1)).astype(float)


CASES = {
    "poisson": (gpflow.likelihoods.Poisson, {}, _counts),
    "exposed": (gpflow.likelihoods.Poisson, {"binsize": 2.5}, _counts),
    "bernoulli": (Bernoulli, {}, lambda rng: rng.integers(0, 2, (N, 1)) * 1.0),
    "binomial": (
        Binomial,
        {},
        lambda rng: np.stack([rng.integers(0, 4, N), rng.integers(3, 9, N)], axis=1) * 1.0,
    ),
    "negative binomial": (NegativeBinomial, {"alpha": 0.3}, _counts),
    "nearly poisson": (NegativeBinomial, {"alpha": 1e-3}, _counts),
}
"""The class, its arguments and how responses are drawn."""


def _positive(rng):
    return np.exp(rng.standard_normal((N, 1)))


def _known(rng):
    return np.hstack([_positive(rng), np.ones((N, 1)), np.full((N, 1), EXACT)])


LOCATED = {
    "tobit, known": (CensoredGaussian, {"scale": 0.7}, _known),
    "lognormal": (LogNormal, {"scale": 0.6}, _positive),
    "lognormal, known": (LogNormal, {"scale": 2.0, "floor": 0.3}, _known),
    "weibull": (Weibull, {"scale": 0.8}, _positive),
    "weibull, known": (Weibull, {"scale": 1.3, "floor": 0.3}, _known),
}
"""The same of a location and a scaled error."""


def _with_zeros(rng):
    return _counts(rng) * rng.integers(0, 2, (N, 1))


ZEROS = {
    "inflated poisson": (ZeroInflated, {}, _with_zeros),
    "inflated negative binomial": (ZeroInflated, {"alpha": 0.4}, _with_zeros),
    "hurdle poisson": (Hurdle, {}, _with_zeros),
    "probit zeros": (ZeroInflated, {"alpha": 2.0, "link": "probit"}, _with_zeros),
    "cloglog zeros": (ZeroInflated, {"link": "cloglog"}, _with_zeros),
    "cauchit zeros": (Hurdle, {"link": "cauchit"}, _with_zeros),
    "log zeros": (ZeroInflated, {"alpha": 0.2, "link": "log"}, _with_zeros),
    "hurdle negative binomial": (Hurdle, {"alpha": 1.5}, _with_zeros),
}
"""The same of counts whose zeros have a predictor of their own."""


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("case", [*CASES, *LOCATED, *ZEROS])
def test_expectations_without_tensorflow_are_those_with_it(case, weighted, rng):
    known, arguments, draw = (CASES | LOCATED | ZEROS)[case]
    shape = (N, 2 if case in ZEROS else 1)
    mean, var = 2.0 * rng.standard_normal(shape), rng.uniform(1e-8, 3.0, shape)
    Y, X = draw(rng), rng.integers(0, 3, (N, 1)) * 0.5
    results = []
    for kind in (known, _general(known)):
        likelihood = kind(**arguments)
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


@pytest.mark.parametrize("var", [0.0, 1e-24])
def test_a_predictor_that_is_known_has_the_second_derivative_for_a_precision(var, rng):
    mean, Y = rng.standard_normal((N, 1)), rng.integers(0, 2, (N, 1)) * 1.0
    result = expectations(Bernoulli(), np.ones((N, 1)), mean, np.full_like(mean, var), Y, [])
    p = 1.0 / (1.0 + np.exp(-mean))
    np.testing.assert_allclose(result.slope, Y - p, rtol=1e-12)
    np.testing.assert_allclose(result.precision, p * (1.0 - p), rtol=1e-12)


@pytest.mark.parametrize("var", [0.0, 1e-24])
@pytest.mark.parametrize("case", ZEROS)
def test_known_predictors_of_zeros_have_second_derivatives_for_precisions(case, var, rng):
    kind, arguments, draw = ZEROS[case]
    mean, Y, X, step = rng.standard_normal((N, 2)), draw(rng), np.ones((N, 1)), 1e-5
    likelihood = kind(**arguments)
    result = expectations(likelihood, X, mean, np.full_like(mean, var), Y, [])
    assert result.total == pytest.approx(float(np.sum(likelihood.log_prob(X, mean, Y))), rel=1e-12)
    for i in (0, 1):
        moved = step * np.eye(2)[i]
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


@pytest.mark.parametrize("case", CASES)
def test_responses_that_cannot_be_are_an_error(case, rng):
    kind, arguments, draw = CASES[case]
    Y = draw(rng)
    Y[3, 0] = 20.5
    with pytest.raises(ValueError, match="20.5|counts|trials|0 and 1|0 or 1"):
        expectations(kind(**arguments), np.ones((N, 1)), 0.0 * Y[:, :1], Y[:, :1], Y, [])


@pytest.mark.parametrize("case", ["tobit, known", "lognormal, known", "weibull, known"])
def test_one_censored_row_is_no_density(case, rng):
    kind, arguments, draw = LOCATED[case]
    Y = draw(rng)
    Y[3, 2] = RIGHT
    given = np.ones((N, 1)), 0.0 * Y[:, :1], Y[:, :1], Y, []
    result, wanted = (expectations(k(**arguments), *given) for k in (kind, _general(kind)))
    exact = expectations(kind(**arguments), *given[:3], draw(rng), [])
    assert result.total == wanted.total
    assert result.slope[3, 0] != exact.slope[3, 0]
