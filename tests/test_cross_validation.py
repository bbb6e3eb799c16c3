"""Smoothness chosen by predicting rows without their neighbourhoods."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, linear, s
from gpflow_gam.optimizers.binned.cavities import Neighbourhoods, RowPosterior, sites_of
from gpflow_gam.optimizers.binned.cross_validation import LeftOutDensity


def table(n: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=n), rng.uniform(-1.0, 1.0, n)
    g = rng.choice(list("abc"), n)
    f = np.sin(5.0 * x) + 0.6 * z * x + (g == "a")
    mean = np.exp(f) * rng.gamma(2.0, 0.5, n)
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "g": g,
            "w": np.maximum(rng.integers(0, 4, n), 1),
            "o": 0.3 * rng.normal(size=n),
            "y": f + 0.4 * rng.normal(size=n),
            "count": rng.poisson(mean),
            "class": rng.choice(list("uv"), n),
            "heavy": f + 0.4 * rng.standard_t(1.5, n),
        }
    )


def windows(n: int, reach: int) -> list[range]:
    return [range(max(0, i - reach), min(n, i + reach + 1)) for i in range(n)]


TERMS = s("x", k=5) + factor("g") + s("x", by="z", k=4)


@pytest.mark.parametrize(
    ("family", "y", "groups"),
    [
        ("gaussian", "y", 2),
        ("negative_binomial", "count", 15),
        ("student_t", "heavy", 2),
        ("student_t", "heavy", 15),
        ("by parameter", "y", 15),
    ],
)
def test_the_criterion_is_loos_density_and_its_gradient_agrees_with_differences(family, y, groups):
    """With weights and multipliers; folds of more rows than inducing values, and of fewer."""
    data = table()
    if family == "by parameter":
        gam = gg.GAM({"mean": TERMS, "scale": linear("z")}, weights="w").fit(data, y)
    else:
        gam = gg.GAM(TERMS, family, offset="o", weights="w").fit(data, y)
    own = np.random.default_rng(0).integers(0, groups, 60)
    folds = Neighbourhoods.of_labels(own)
    fit, solution = gam.fitted, gam.fitted.solution
    sites = None
    if solution.bound is None:
        sites, _ = sites_of(solution.rows, fit.model.likelihood, solution.values, solution.q)
        assert family != "student_t" or np.any(sites.weight < 0.0)
    target = LeftOutDensity(fit.model, solution.rounds, folds, sites)
    if gam.fitted.num_predictors == 1:  # loo knows better how several go together
        assert target.density(solution.optimum) == pytest.approx(gam.loo(own).elpd, abs=1e-7)
    x = solution.optimum + 0.1
    for some in (target, target.some(1)):
        slope = some.loss(x)[1]
        for way in np.random.default_rng(1).normal(size=(2, len(x))):
            step = 1e-5 * way
            difference = (some.loss(x + step)[0] - some.loss(x - step)[0]) / 2e-5
            assert slope @ way == pytest.approx(difference, abs=2e-5, rel=1e-5)


def autocorrelated(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A wave in time with autocorrelated noise."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 1.0, n)
    e = np.zeros(n)
    for i, z in enumerate(rng.normal(size=n)):
        e[i] = 0.8 * e[i - 1] + 0.6 * z if i else z
    f = np.sin(2.0 * np.pi * t) + t
    return pd.DataFrame({"t": t, "y": f + 0.5 * e}), f


@pytest.mark.slow
def test_autocorrelated_noise_is_not_taken_for_a_function():
    """The ELBO's optimum follows the noise; predictions without neighbours do not."""
    data, truth = autocorrelated(100, 0)
    near = windows(100, 9)
    elbo = gg.GAM(s("t", k=20)).fit(data, "y")
    ncv = gg.GAM(s("t", k=20)).fit(data, "y", criterion="ncv", groups=near, tolerance=0.1)
    assert ncv.fitted.result.converged
    assert elbo.summary().edf > 10.0
    assert ncv.summary().edf < 7.0
    assert ncv.loo(near).elpd > elbo.loo(near).elpd + 10.0
    (worse, narrow), (better, wide) = (g.predict(data, "link", se=True) for g in (elbo, ncv))
    np.testing.assert_allclose(ncv.sample(data, 2000, "link").std(axis=0), wide, rtol=0.1)
    assert np.mean((better - truth) ** 2) < 0.64 * np.mean((worse - truth) ** 2)
    covered = [np.mean(np.abs(m - truth) < 2.0 * se) for m, se in ((worse, narrow), (better, wide))]
    assert covered[1] > 0.9
    assert covered[0] < 0.6
    # the criterion's gradient is zero
    solution = ncv.fitted.solution
    slope = LeftOutDensity(ncv.fitted.model, solution.rounds, Neighbourhoods.of(near, 100)).loss(
        solution.optimum
    )[1]
    assert np.abs(slope).max() < 0.5


@pytest.mark.parametrize(("family", "y"), [("gaussian", "y"), ("poisson", "count")])
@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning", "ignore::UserWarning")
def test_standard_errors_allow_for_the_mean_product_of_neighbours_residuals(family, y):
    data, near = table(), windows(60, 3)
    terms = s("x", k=5) + linear("z")
    gam = gg.GAM(terms, family).fit(data, y, criterion="ncv", groups=near, max_iterations=1)
    solution, likelihood = gam.fitted.solution, gam.fitted.model.likelihood
    rows, S = solution.rows, solution.q.covariance[0]
    if solution.bound is None:
        sites, _ = sites_of(rows, likelihood, solution.values, solution.q)
        w, shift = sites.weight[:, 0], sites.shift[:, 0]
    else:
        noise = likelihood.variance.numpy()
        w, shift = np.full(60, 1.0 / noise), (rows.Y - rows.mean)[:, 0] / noise
    phi = RowPosterior.of_rows(rows, solution.values, solution.q).features(np.arange(60))[0]
    residual = np.zeros(60)
    for n, out in enumerate(near):
        kept = np.setdiff1d(np.arange(60), out)
        precision = np.eye(len(phi)) + (phi[:, kept] * w[kept]) @ phi[:, kept].T
        left_out = phi[:, n] @ np.linalg.solve(precision, phi[:, kept] @ shift[kept])
        residual[n] = (shift[n] - w[n] * left_out) / np.sqrt(w[n])
    pairs = [(n, m) for n in range(60) for m in near[n] if m != n]
    covariance = max(np.mean([residual[n] * residual[m] for n, m in pairs]), 0.0)
    G = np.mean(residual**2) * (phi * w) @ phi.T
    for n, m in pairs:
        G = G + covariance * np.sqrt(w[n] * w[m]) * np.outer(phi[:, n], phi[:, m])
    values, vectors = np.linalg.eigh(G)
    G = (vectors * np.maximum(values, 0.0)) @ vectors.T
    expected = S @ (np.eye(len(S)) + G) @ S - S  # of sites that have nearly converged
    np.testing.assert_allclose(solution.between[0], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_a_saved_fit_has_the_same_bands(tmp_path):
    data, _ = autocorrelated(80, 1)
    gam = gg.GAM(s("t", k=6))
    gam.fit(data, "y", criterion="ncv", groups=windows(80, 4), max_iterations=2)
    assert gam.fitted.solution.hessian is not None
    gam.save(tmp_path / "one.gam")
    loaded = gg.GAM.load(tmp_path / "one.gam")
    pd.testing.assert_frame_equal(loaded.effects("s(t)"), gam.effects("s(t)"))


@pytest.mark.parametrize(
    ("gam", "fit", "words"),
    [
        ({}, {"criterion": "gcv"}, "criterion must be 'elbo' or 'ncv'; got 'gcv'"),
        ({}, {"groups": "g"}, "the ELBO leaves no rows out; add criterion='ncv'"),
        ({}, {"criterion": "ncv", "groups": np.zeros(9)}, "each of 60 rows; got 9"),
        ({"engine": "iterncgp"}, {"criterion": "ncv"}, "a fit with engine='iterncgp' does not"),
        ({}, {"criterion": "ncv", "checkpoint": "x"}, "a fit with criterion='ncv' writes none"),
    ],
)
def test_bad_combinations_of_arguments_are_refused(gam, fit, words):
    with pytest.raises(ValueError, match=words):
        gg.GAM(s("x", k=5), **gam).fit(table(), "y", **fit)


@pytest.mark.parametrize("options", [{"callback": lambda _: "enough"}, {"max_seconds": 1e-9}])
def test_an_end_before_rows_are_left_out_ends_the_fit(options):
    data, _ = autocorrelated(80, 1)
    with pytest.warns(gg.ConvergenceWarning, match="before rows were left out: smoothness is the"):
        gam = gg.GAM(s("t", k=10)).fit(data, "y", criterion="ncv", groups=windows(80, 4), **options)
    result = gam.fitted.result
    assert not result.converged
    assert result.ended
    assert result.num_iterations <= 1
    assert np.all(np.isfinite(gam.predict(data)))


def test_draws_of_quantities_have_the_standard_errors_of_predictions():
    """Of noise that lasts, with all that standard errors allow for beyond the posterior's own."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=300)
    for i in range(1, 300):
        noise[i] = 0.7 * noise[i - 1] + np.sqrt(0.51) * noise[i]
    data = pd.DataFrame({"t": np.arange(300.0), "y": np.sin(np.arange(300) / 40) + 0.5 * noise})
    gam = gg.GAM(s("t", k=20)).fit(data, "y", criterion="ncv", groups=np.arange(300) // 15)
    new = data.iloc[[40, 150, 260]]
    wanted, known = (gam.predict(new, se=True, unconditional=u)[1] for u in (True, False))
    assert np.all(wanted > 1.3 * known)
    drawn = gam.hypotheses(dict(enumerate(np.eye(3))), new, num_samples=4000)["se"]
    np.testing.assert_allclose(drawn, wanted, rtol=0.05)
    given = gam.hypotheses(dict(enumerate(np.eye(3))), new, unconditional=False)["se"]
    np.testing.assert_allclose(given, known, rtol=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_labels_and_neighbours_follow_rows_that_are_dropped():
    data = table(30).assign(site=np.arange(30) // 5)
    data.loc[[3, 20, 21], "x"] = np.nan
    near = windows(30, 2)
    kept = data.drop([3, 20, 21])
    number = {old: new for new, old in enumerate(kept.index)}
    left = [[number[i] for i in near[n] if i in number] for n in kept.index]

    def fit(rows, groups):
        gam = gg.GAM(s("x", k=5), missing="drop")
        gam.fit(rows, "y", criterion="ncv", groups=groups, max_iterations=3)
        return gam.fitted.solution.optimum

    np.testing.assert_allclose(fit(data, near), fit(kept, left), atol=1e-10)
    for groups in ("site", data["site"]):
        np.testing.assert_allclose(fit(data, groups), fit(kept, "site"), atol=1e-10)
