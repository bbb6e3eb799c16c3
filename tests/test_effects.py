"""Effects, slopes, differences and summaries, against closed forms and loops."""

import dataclasses
import sys

import gpflow
import numpy as np
import pandas as pd
import problems
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import chi2, f, norm

import gpflow_gam as gg
from gpflow_gam import effects, factor, linear, random_effect, s, ti
from gpflow_gam.gam.effects import posterior
from gpflow_gam.gam.effects.posterior import critical_values, joint_moments, max_deviations
from gpflow_gam.gam.frames.table import Table
from gpflow_gam.gam.summaries.summary import exceedance, variance_shares

QUICK = {"max_iterations": 15}


@pytest.fixture(scope="module")
def data():
    noise = np.random.default_rng(5).uniform(size=150)
    return problems.table(150, 5).assign(noise=noise)


@pytest.fixture(scope="module")
def gam(data):
    terms = s("x", k=10) + linear("z") + factor("g") + s("noise", k=6) + ti("x", "z", k=8)
    return gg.GAM(terms, family="poisson").fit(data, y="count", **QUICK)


@pytest.fixture(scope="module")
def by_level(data):
    return gg.GAM(s("x", bs="se", by="g", k=8)).fit(data, y="y", **QUICK)


# --- moments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["s(x)", "linear(z)", "factor(g)", "ti(x,z)"])
def test_effects_are_the_posteriors_components(gam, data, name):
    index = gam.posterior.names.index(name)
    mean, cov = gam.posterior.predict_components(gam.fitted.X[:20], full_cov=True)
    columns = {c: data[c].head(20) for c in ("x", "z", "g")}
    table = effects.effect(gam.fitted, name, columns, unconditional=False)
    np.testing.assert_allclose(table.estimate[:, 0], mean.numpy()[:, index], atol=1e-9)
    np.testing.assert_allclose(table.covariance[0], cov.numpy()[index], atol=1e-7)


def test_limits_of_effects(gam):
    frame = gam.effects("s(x)", level=0.9)
    half = norm.ppf(0.95) * frame["se"]
    np.testing.assert_allclose(frame["upper"] - frame["estimate"], half)
    ratio = (frame["upper_simultaneous"] - frame["estimate"]) / frame["se"]
    assert np.ptp(ratio) < 1e-9
    assert ratio[0] > norm.ppf(0.95)


def test_simultaneous_limits_hold_whole_draws():
    """For independent values the critical value is known: P(max |z| < c) = (2 Phi(c) - 1)^n."""
    _, c = critical_values(np.diag([1.0, 4.0, 9.0, 0.25, 1.0]), 0.95, seed=0)
    assert c == pytest.approx(norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 5)), abs=0.06)
    pointwise, c = critical_values(np.ones((7, 7)), 0.95, seed=0)
    assert c == pytest.approx(pointwise, abs=0.08)
    assert len(max_deviations(np.zeros((3, 3)), seed=0)) == 0
    grid = np.linspace(0.0, 1.0, 100)
    S = 2.0 * np.exp(-12.0 * np.square(grid[:, None] - grid)) + 0.1  # whose points are alike
    rounded = S * (1.0 + 1e-15 * np.random.default_rng(0).standard_normal(S.shape))
    np.testing.assert_allclose(max_deviations(rounded, 0), max_deviations(S, 0), rtol=1e-5)


def test_several_predictors_have_effects_each(data):
    gam = gg.GAM(s("x", k=6), family="categorical").fit(data, y="kind", **QUICK)
    frame = gam.effects("s(x)", [0.2, 0.5])
    assert list(frame["predictor"]) == ["u", "u", "v", "v", "w", "w"]
    mean, _ = gam.posterior.predict_components(np.array([[0.2], [0.5]]))
    np.testing.assert_allclose(frame["estimate"], mean.numpy()[:, 1].T.ravel(), atol=1e-9)
    assert gam.sample_effects("s(x)", [0.2, 0.5], 7).shape == (7, 2, 3)
    assert len(gam.summary().table) == 3


def test_draws_of_effects_have_their_moments(gam):
    grid = np.linspace(0.1, 0.9, 5)
    table = effects.effect(gam.fitted, "s(x)", grid)
    draws = gam.sample_effects("s(x)", grid, 100_000)
    np.testing.assert_allclose(draws.mean(axis=0), table.estimate[:, 0], atol=0.01)
    np.testing.assert_allclose(np.cov(draws.T), table.covariance[0], atol=0.02 * table.se.max())


@pytest.mark.slow
def test_draws_of_different_effects_and_priors_are_not_those_of_one(data):
    """Of two terms and one seed."""
    gam = gg.GAM(s("x", k=8) + s("noise", k=8)).fit(data, y="y", **QUICK)
    grid = np.linspace(0.0, 1.0, 5)
    for draw in (gam.sample_effects, gam.prior_effects):
        one, other = (draw(name, grid, 100)[:, 0] for name in ("s(x)", "s(noise)"))
        assert abs(np.corrcoef(np.argsort(np.argsort([one, other], axis=1)))[0, 1]) < 0.35
        np.testing.assert_array_equal(one, draw("s(x)", grid, 100)[:, 0])


# --- uncertain hyperparameters -------------------------------------------------------------------


def test_uncertain_variance_of_a_slope_against_quadrature(data):
    """E[var | v] + E[(mean | v - estimate)^2] of the slope, log v split normal."""
    gam = gg.GAM(linear("z", shrink=True)).fit(data.head(40), y="y")
    model = gam.model
    # the same model read again, its noise held
    gpflow.set_trainable(model.likelihood, False)
    gam._fit = dataclasses.replace(gam.fitted, _solution=None)
    z = data["z"].head(40).to_numpy()
    z = z - z.mean()
    y = data["y"].head(40).to_numpy()
    noise = model.likelihood.variance.numpy()
    prior = model.kernel["linear(z)"].variance.prior
    best = np.log(model.kernel["linear(z)"].variance.numpy())
    precision = z @ z / noise

    def objective(u):
        """log N(y; 0, noise + v z z') + log p(v), up to constants."""
        a = 1.0 + np.exp(u) * precision
        fit = np.exp(u) * (z @ y) ** 2 / (noise**2 * a)
        return -0.5 * np.log(a) + 0.5 * fit + prior.log_prob(np.exp(u)).numpy() + 0.5 * u

    centre = minimize_scalar(lambda u: -objective(u), (best, best + 1.0)).x
    up, down = (2.0 / np.sqrt(2.0 * (objective(centre) - objective(centre + t))) for t in (2, -2))
    nodes = np.linspace(-5.0, 5.0, 2001)
    weights = np.exp(-0.5 * nodes**2)
    v = np.exp(centre + nodes * np.where(nodes > 0.0, up, down))
    mean, var = z @ y / noise / (precision + 1 / v), 1 / (precision + 1 / v)
    at_best = z @ y / noise / (precision + np.exp(-best))
    expected = weights @ (var + (mean - at_best) ** 2) / weights.sum()
    table = effects.effect(gam.fitted, "linear(z)", [z[0] + data["z"].head(40).mean()])
    assert table.covariance[0, 0, 0] == pytest.approx(z[0] ** 2 * expected, rel=0.03)
    assert table.estimate[0, 0] == pytest.approx(z[0] * at_best, rel=1e-3)


def test_uncertain_hyperparameters_widen_bands_and_leave_the_model_alone(gam):
    before = {k: v.numpy() for k, v in gpflow.utilities.parameter_dict(gam.model).items()}
    wide, narrow = (gam.effects("s(x)", unconditional=u) for u in (True, False))
    np.testing.assert_array_equal(wide["estimate"], narrow["estimate"])
    assert np.mean(wide["se"] / narrow["se"]) > 1.01
    after = gpflow.utilities.parameter_dict(gam.model)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name].numpy(), value)


# --- slopes and differences ----------------------------------------------------------------------


def test_density_averaged_over_hyperparameters(by_level, data):
    """A loop over the draws, with the covariances of the components between them."""
    fit = by_level.fitted
    draws = posterior.hyperparameter_draws(fit)
    rows = data.iloc[::17]
    X, Y = fit.encode(Table(rows)), rows[["y"]].to_numpy()
    densities = []
    for draw in draws:
        blocks = [(c.name, X) for c in fit.spec.components]
        moments = draw.moments
        parts = moments.joint_parts(blocks, [moments.tangents(*block) for block in blocks])
        mean, covariance = parts.mean, parts.inner + moments.residual_covariance(blocks)
        C, N = len(blocks), len(X)
        total = mean.reshape(C, N).sum(axis=0) + fit.model.mean_function(X).numpy()[:, 0]
        var = np.einsum("cndn->n", covariance[0].reshape(C, N, C, N))
        noise = float(draw.likelihood.variance.numpy())
        densities.append(norm.logpdf(Y[:, 0], total, np.sqrt(var + noise)))
    assert np.std([d.likelihood.variance.numpy() for d in draws]) > 0.0
    expected = np.log(np.mean(np.exp(densities), axis=0))
    averaged = by_level.log_density(rows, unconditional=True)
    np.testing.assert_allclose(averaged, expected, atol=1e-8)
    assert np.max(np.abs(averaged - by_level.log_density(rows))) > 1e-4


def test_slope_of_a_line_is_its_coefficient(gam):
    slopes = gam.derivatives("linear(z)", [-1.0, 0.0, 2.0])
    unit = effects.effect(gam.fitted, "linear(z)", [0.0, 1.0])
    contrast = np.array([-1.0, 1.0])
    np.testing.assert_allclose(slopes["estimate"], contrast @ unit.estimate[:, 0], rtol=1e-6)
    sd = np.sqrt(contrast @ unit.covariance[0] @ contrast)
    np.testing.assert_allclose(slopes["se"], sd, rtol=1e-4)


def test_slopes_of_an_effect_of_two_columns(gam):
    at = {"x": np.array([0.2, 0.5, 0.7]), "z": np.array([0.3, -0.4, 0.8])}
    for name in "xz":
        slopes = gam.derivatives("ti(x,z)", at, column=name)
        low, high = (dict(at, **{name: at[name] + h}) for h in (-1e-4, 1e-4))
        ends = [
            effects.effect(gam.fitted, "ti(x,z)", where).estimate[:, 0] for where in (low, high)
        ]
        expected = (ends[1] - ends[0]) / 2e-4
        np.testing.assert_allclose(slopes["estimate"], expected, rtol=1e-3, atol=1e-6)
    with pytest.raises(ValueError, match="column must be one of 'x', 'z'.*got None"):
        gam.derivatives("ti(x,z)", at)


def test_differences_between_levels(gam):
    levels = effects.effect(gam.fitted, "factor(g)")
    frame = gam.differences("factor(g)")
    assert list(zip(frame["level_1"], frame["level_2"])) == [("a", "b"), ("a", "c"), ("b", "c")]
    for (_, row), (i, j) in zip(frame.iterrows(), [(0, 1), (0, 2), (1, 2)]):
        assert row["estimate"] == pytest.approx(levels.estimate[i, 0] - levels.estimate[j, 0])
        S = levels.covariance[0]
        assert row["se"] == pytest.approx(np.sqrt(S[i, i] + S[j, j] - 2 * S[i, j]))


def test_differences_between_curves_use_the_coupling(by_level):
    grid = np.array([0.2, 0.6])
    frame = by_level.differences("s(x):g", grid=grid)
    first = frame[(frame["level_1"] == "a") & (frame["level_2"] == "c")]
    a, c = (by_level.effects(f"s(x):g={k}", grid) for k in "ac")
    np.testing.assert_allclose(first["estimate_centred"], a["estimate"] - c["estimate"])
    spec, width = by_level.fitted.spec, by_level.fitted.X.shape[1]
    names = [f"s(x):g={k}" for k in "ac"]
    blocks = [(n, spec.component(n).full(grid[:, None], width)) for n in names]
    _, (covariance,) = joint_moments(by_level.fitted, blocks)
    A = np.hstack([np.eye(2), -np.eye(2)])
    np.testing.assert_allclose(first["se"] ** 2, np.diag(A @ covariance @ A.T), rtol=1e-6)
    apart = np.square(a["se"].to_numpy()) + np.square(c["se"].to_numpy())
    assert np.max(np.abs(first["se"] ** 2 / apart - 1.0)) > 5e-3


def test_differences_with_the_means_of_levels(data):
    """Those of predictions, which have both; each route has its own covariances."""
    gam = gg.GAM(s("x", by="g", k=8) + factor("g") + linear("z")).fit(data, y="y", **QUICK)
    result = gam.differences("s(x):g", grid=[0.2, 0.7], group_means=True)
    alone = gam.differences("s(x):g", grid=[0.2, 0.7])
    assert "estimate" not in alone
    means = gam.differences("factor(g)").set_index(["level_1", "level_2"])["estimate"]
    apart = result["estimate"] - alone["estimate_centred"]
    np.testing.assert_allclose(apart, [v for v in means for _ in range(2)], rtol=1e-9)
    rows = [
        pd.DataFrame({"x": result["x"], "z": 0.3, "g": result[level]})
        for level in ("level_1", "level_2")
    ]
    one, other = (gam.predict(at, "link") for at in rows)
    np.testing.assert_allclose(result["estimate"], one - other, rtol=1e-9)
    first = gam.avg_comparisons(
        {"g": ("b", "a")}, data=rows[0].head(1), scale="link", num_samples=20_000
    )
    assert result["se"].iloc[0] == pytest.approx(first["se"].item(), rel=0.05)
    rates = gam.differences("s(x):g", grid=[0.2], fun=np.exp)
    assert {"se", "estimate"}.isdisjoint(rates)
    np.testing.assert_allclose(rates["estimate_centred"], np.exp(alone["estimate_centred"][::2]))


def test_levels_that_differ_are_those_of_the_data(data):
    """Of curves and of means: numbers, no text."""
    data = data.assign(site=data["g"].map({"a": 1, "b": 2, "c": 10}))
    terms = s("x", by=factor("site"), k=5) + factor("site")
    gam = gg.GAM(terms).fit(data, y="y", **QUICK)
    means = gam.differences("factor(site)")[["level_1", "level_2"]]
    pd.testing.assert_frame_equal(
        gam.differences("s(x):site", grid=[0.2])[["level_1", "level_2"]], means
    )
    assert means.to_numpy().tolist() == [[1, 2], [1, 10], [2, 10]]


def test_curves_that_have_their_means_or_lack_them(data, by_level, monkeypatch):
    for terms, named in (
        (s("x", "g", bs="fs", k=5), "estimate"),
        (s("x", k=5) + s("x", "g", bs="sz", k=5), "estimate"),
        (s("x", "g", bs="fs", k=5) + gg.random_effect("g"), "estimate_centred"),
    ):
        gam = gg.GAM(terms).fit(data, y="y", **QUICK)
        assert named in gam.differences("s(x,g)", grid=[0.5])
        result = gam.differences("s(x,g)", grid=[0.5], group_means=True)
        one, other = (
            gam.predict(pd.DataFrame({"x": 0.5, "g": result[level]}), "link")
            for level in ("level_1", "level_2")
        )
        np.testing.assert_allclose(result["estimate"], one - other, rtol=1e-6, atol=1e-9)
        with monkeypatch.context() as few:  # points of one or two levels at a time
            few.setattr(sys.modules["gpflow_gam.gam.effects.effect"], "_TOGETHER", 2)
            in_blocks = gam.differences("s(x,g)", grid=[0.5], group_means=True)
        pd.testing.assert_frame_equal(in_blocks, result, rtol=1e-9)
    with pytest.raises(ValueError, match=r"group_means=True: no term has .* add factor\('g'\)"):
        by_level.differences("s(x):g", group_means=True)
    with pytest.raises(ValueError, match="has no levels to compare"):
        by_level.differences("s(x):g=a")


def test_all_effects_are_one_table(gam):
    result = gam.effects(num_points=4, level=0.9)
    assert next(iter(result)) == "term"
    assert list(result["term"].unique()) == list(gam.names)
    for name, own in result.groupby("term"):
        alone = gam.effects(name, num_points=4, level=0.9)
        own = own[list(alone)].reset_index(drop=True)
        pd.testing.assert_frame_equal(own, alone, check_dtype=False)
    grid = pd.DataFrame({"x": [0.1, 0.2], "z": 0.0, "g": "a", "noise": 0.5})
    assert len(gam.effects(grid=grid, fun=np.exp)) == 2 * len(gam.names)
    assert "estimate" in gam.effects(scale="response", num_points=3)
    with pytest.raises(ValueError, match="grid must be a dict or DataFrame of columns"):
        gam.effects(grid=[0.1, 0.2])


def test_columns_that_are_called_as_numbers_are(data):
    names = {"x": "upper", "g": "class"}
    data = data.assign(kind=np.where(data["y"] > np.median(data["y"]), "a", "b")).iloc[:90]
    data["kind"] = data["kind"].where(data["z"] < 0.5, "c")
    terms = (s("x", k=5) + factor("g"), s("upper", k=5) + factor("class"))
    one, other = (
        gg.GAM(t, family="categorical").fit(d, "kind", **QUICK)
        for t, d in zip(terms, (data, data.rename(columns=names)))
    )
    for name, column in names.items():
        known = one.partial_dependence(name, num_samples=8)
        found = other.partial_dependence(column, num_samples=8)
        assert [f"{column} (column)", "class", "estimate"] == list(found)[:3]
        found.columns = list(known)
        pd.testing.assert_frame_equal(found, known)


@pytest.fixture(scope="module")
def several(data):
    terms = s("x", k=6) + factor("g") + ti("x", "z", k=6) + s("noise", by="z", k=4)
    rows = data.assign(h=[f"h{i % 7}" for i in range(len(data))])
    return gg.GAM(terms + s("h", bs="re")).fit(rows, y="y", max_iterations=2), rows


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("s(h, bs='re')", "random_effect(h)"),
        ('s("h", bs = "re")', "random_effect(h)"),
        ("s(h)", "random_effect(h)"),
        ("s( x , k = 10 )", "s(x)"),
        ("linear(x)", "s(x)"),
        ("ti(z, x, k=8)", "ti(x,z)"),
        ("te(x,z)", "ti(x,z)"),
        ("s(noise, by=z)", "s(noise):z"),
        ("s(noise, k=4):z", "s(noise):z"),
        ("s(noise): z", "s(noise):z"),
        ("factor(g)", "factor(g)"),
    ],
)
def test_effects_are_asked_for_as_they_are_typed(typed, name, several):
    gam, rows = several
    assert gam.fitted.spec.component(typed).name == name
    pd.testing.assert_frame_equal(gam.effects(typed, num_points=3), gam.effects(name, num_points=3))
    np.testing.assert_array_equal(
        gam.predict(rows, exclude=typed), gam.predict(rows, exclude=[name])
    )
    assert gam.draw(typed).axes[0].get_title() == gam.draw(name).axes[0].get_title()
    gg.plotting.partial_residuals(gam.fitted, typed)
    gam.sample_effects(typed, num_samples=2)
    if "h" in typed:
        table = gam.coefficients({typed: "h1"})
        pd.testing.assert_frame_equal(table, gam.coefficients({"h": "h1"}))
        assert len(gam.differences(typed)) == 21


def test_a_name_that_could_be_several_is_an_error(data):
    gam = gg.GAM(s("x", by="g", k=4) + factor("g") + linear("x")).fit(data, y="y", **QUICK)
    assert gam.fitted.spec.component("s(x, k=9)").name == "linear(x)"
    called = [c.name for c in gam.fitted.spec.called("s(x, by=g, k=3)")]
    assert called == [f"s(x):g={level}" for level in "abc"]
    assert gam.fitted.spec.component("s(x, k=4):g = b").name == "s(x):g=b"
    both = gg.GAM(factor("g") + gg.random_effect("g")).fit(data, y="y", **QUICK)
    with pytest.raises(ValueError, match="no effect 's\\(g\\)'; there are factor"):
        both.effects("s(g)")
    assert both.fitted.spec.component("s(g, bs='re')").name == "random_effect(g)"
    apart = gg.GAM({"mean": s("x", k=4) + linear("z"), "scale": linear("z")})
    apart.fit(data, y="y", max_iterations=2)
    assert apart.fitted.spec.component("s(x, k=9)").name == "mean:s(x)"
    assert apart.fitted.spec.component("scale:s(z)").name == "scale:linear(z)"
    with pytest.raises(ValueError, match="Did you mean 'mean:linear"):
        apart.effects("linear(z)")
    for wrong in ("s(q, bs='re')", "s(x", "x", "s(x, k=0)", "log(x)"):
        with pytest.raises(ValueError, match="there is no effect"):
            both.effects(wrong)


def test_what_has_no_slope_or_difference(gam, by_level):
    with pytest.raises(ValueError, match="not a function of one numeric column"):
        gam.derivatives("factor(g)")
    with pytest.raises(ValueError, match="several effects, one a level"):
        by_level.effects("s(x):g")
    with pytest.raises(ValueError, match="the columns 'x', 'z'"):
        gam.effects("ti(x,z)", [0.1])
    with pytest.raises(ValueError, match="level must be a probability"):
        gam.effects("s(x)", level=95)


# --- numbers of the summary ----------------------------------------------------------------------


def test_shares_add_up_and_find_the_large_ones(gam, by_level, data):
    shares = variance_shares(gam.fitted)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    table = gam.summary().table
    np.testing.assert_allclose(table["share"].sum(), 1.0)
    assert table["share"].idxmax() == "s(x)"
    # of effects that are known well they are those of the estimates
    parts = by_level.predict(data, "terms").drop(columns="intercept")
    plug_in = parts.var(ddof=0) / parts.var(ddof=0).sum()
    np.testing.assert_allclose(by_level.summary().table["share"], plug_in, atol=0.02)
    assert np.all(table["share_lower"] <= table["share_upper"])


def test_p_values_of_lines_and_levels_are_those_of_f_tests():
    """Also of the first factor without an intercept, whose levels' means are tested together."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"z": rng.normal(size=60), "g": rng.choice(list("abc"), 60)})
    data["z"] -= data["z"].mean()  # where the means of levels are
    data["y"] = 0.2 * data["z"] + 0.3 * (data["g"] == "a") + rng.normal(size=60)
    levels = [data["g"] == level for level in "abc"]

    def rss(*columns):
        X = np.stack([np.asarray(c, dtype=float) for c in columns], axis=1)
        return float(np.linalg.lstsq(X, data["y"], rcond=None)[1][0])

    def test(without, number):
        whole = rss(data["z"], *levels)
        return f.sf((without - whole) / number / (whole / 56), number, 56)

    for formula, number, without in (
        ("y ~ z + g", 2, rss(data["z"], np.ones(60))),
        ("y ~ z + g - 1", 3, rss(data["z"])),
    ):
        gam = gg.GAM(formula).fit(data)
        p = gam.anova()["p"]
        assert p["linear(z)"] == pytest.approx(test(rss(*levels), 1), rel=0.03)
        assert p["factor(g)"] == pytest.approx(test(without, number), rel=0.05)
        np.testing.assert_array_equal(p, gam.summary().table["p"])
    both = gg.anova_test(gg.GAM("y ~ 1").fit(data), gg.GAM("y ~ z + g").fit(data))
    assert both["p"].item() == pytest.approx(test(rss(np.ones(60)), 3), rel=0.05)
    assert both["ref_df"].item() == pytest.approx(3.0, abs=0.01)
    assert both.index[0] == "linear(z), factor(g)"


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_random_effects_that_few_rows_settle_are_significant(family):
    """Of many groups of a few rows each no band excludes zero; all of them together are there."""
    rng = np.random.default_rng(2)
    g = np.repeat(np.arange(60), 4)
    eta = 0.6 * rng.normal(size=60)[g]
    data = pd.DataFrame({"g": g.astype(str), "x": rng.uniform(size=240)})
    data["y"] = eta + rng.normal(size=240) if family == "gaussian" else rng.poisson(np.exp(eta))
    terms = s("x", k=6) + random_effect("g")
    p = gg.GAM(terms, family).fit(data, "y").summary().table["p"]
    assert p["random_effect(g)"] < 0.002
    data["y"] = rng.normal(size=240) if family == "gaussian" else rng.poisson(1.0, 240)
    p = gg.GAM(terms, family).fit(data, "y").summary().table["p"]
    assert p["random_effect(g)"] > 0.05


@pytest.mark.parametrize("name", ["s(x)", "s(noise)", "linear(z)"])
def test_p_values_are_uniform_where_an_effect_is_absent(gam, name):
    """At given hyperparameters, whatever they are."""
    fit = gam.fitted
    S = fit.free_moments.covariance[0][fit.free_moments.block(name), fit.free_moments.block(name)]
    values = np.linalg.eigvalsh(S)
    rng = np.random.default_rng(0)
    # m = S h, where h ~ N(0, S^-1 - I)
    draws = rng.normal(size=(1500, len(S))) * np.sqrt(np.maximum(values - values**2, 0.0))
    result = np.array([exceedance(q, 1.0 - values) for q in np.sum(draws**2 / values, axis=1)])
    for level in (0.01, 0.05, 0.2, 0.5):
        assert np.mean(result < level) == pytest.approx(level, abs=0.025)


def test_nested_models_are_compared_in_what_one_has_beyond():
    rng = np.random.default_rng(4)
    data = pd.DataFrame(rng.uniform(size=(120, 2)), columns=["x", "z"])
    data["y"] = np.sin(6.0 * data["x"]) + data["z"] + 0.4 * rng.normal(size=120)
    line, curves, x_line = (
        gg.GAM(f"y ~ {terms}").fit(data) for terms in ("s(x) + z", "s(x) + s(z)", "x + s(z)")
    )
    straight, bent = (
        gg.anova_test(a, curves).loc[name] for a, name in zip((line, x_line), ("s(z)", "s(x)"))
    )
    assert straight["p"] > 0.05
    assert bent["p"] < 1e-12
    # what is tested is all but the line
    whole = curves.anova().loc["s(x)"]
    assert bent["ref_df"] == pytest.approx(whole["ref_df"] - 1.0, abs=0.05)
    # the line's removal by least squares in whitened values, in a loop
    fit = curves.fitted
    moments, block = fit.free_moments, fit.free_moments.block("s(x)")
    S, m = moments.covariance[0][block, block], moments.mean[block, 0]
    phi = moments.features("s(x)", fit.X)
    x = fit.X[:, 0] - fit.X[:, 0].mean()
    u = np.linalg.lstsq(phi.T, x, rcond=1e-5)[0]
    precision = np.linalg.inv(S)
    away = m - u * (u @ precision @ m) / (u @ precision @ u)
    assert bent["statistic"] == pytest.approx(away @ precision @ away, rel=1e-4)
    with pytest.raises(ValueError, match=r"a is not nested in b: s\(x\) is no part of s\(z\)"):
        gg.anova_test(gg.GAM("y ~ s(x)").fit(data), gg.GAM("y ~ s(z)").fit(data))
    with pytest.raises(ValueError, match="b has no function that a lacks"):
        gg.anova_test(curves, line)
    with pytest.raises(ValueError, match="family"):
        gg.anova_test(gg.GAM("y ~ z", "student_t").fit(data), curves)
    with pytest.raises(ValueError, match="anova_test: .* 120 and 119 rows"):
        gg.anova_test(line, gg.GAM("y ~ s(x) + s(z)").fit(data[1:]))
    with pytest.raises(TypeError, match="anova_test takes fitted GAMs; got str"):
        gg.anova_test(line, "y ~ x")


def test_nested_models_are_compared_predictor_by_predictor():
    """Predictors are independent a posteriori: statistics of several are the sums of theirs."""
    rng = np.random.default_rng(4)
    data = pd.DataFrame(rng.uniform(size=(150, 2)), columns=["x", "z"])
    data["y"] = np.sin(4.0 * data["x"]) + np.exp(data["z"] - 2.0) * rng.normal(size=150)

    def fit(mean, scale):
        return gg.GAM({"mean": mean, "scale": scale}).fit(data, "y")

    small, line, large = (
        fit(linear("z"), linear("z")),
        fit(linear("z") + linear("x"), linear("z")),
        fit(linear("z") + s("x"), linear("z") + s("x")),
    )
    whole = large.anova()[["ref_df", "statistic"]].droplevel("predictor")
    both = gg.anova_test(small, large)[["ref_df", "statistic"]]
    parts = whole.loc[["mean:s(x)", "scale:s(x)"]]
    np.testing.assert_allclose(both.iloc[0], parts.sum(), rtol=1e-6)
    bent = gg.anova_test(line, large)[["ref_df", "statistic"]]
    straight = gg.anova_test(fit(linear("z") + linear("x"), linear("z") + s("x")), large)
    expected = straight[["ref_df", "statistic"]].iloc[0] + whole.loc["scale:s(x)"]
    np.testing.assert_allclose(bent.iloc[0], expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"not nested in b: mean:linear\(x\) is no part of scale"):
        gg.anova_test(line, fit(linear("z"), linear("z") + s("x")))


def test_weighted_chi_squares_have_their_tails():
    """Of scipy's distributions where weights are equal, and of a convolution."""
    for q in (0.01, 1.0, 12.0, 300.0):
        assert exceedance(q, np.ones(1)) == pytest.approx(chi2.sf(q, 1), rel=1e-10)
        assert exceedance(3.0 * q, np.full(7, 3.0)) == pytest.approx(chi2.sf(q, 7), rel=1e-10)
        exact = f.sf(q / 4, 4, 30)
        assert exceedance(q, np.ones(4), 30.0) == pytest.approx(exact, rel=1e-10)
    for q in (1e-6, 0.01, 1.0, 300.0):  # whose integrand falls off slowly
        for dof in (1.0, 1.5):
            assert exceedance(q, np.ones(1), dof) == pytest.approx(f.sf(q, 1, dof), rel=1e-8)
    for q in (0.3, 3.0, 30.0):  # given the second

        def given(x, q=q):
            return norm.pdf(x) * (chi2.sf((q - 0.2 * x**2) / 0.9, 1) if 0.2 * x**2 < q else 1.0)

        end = np.sqrt(q / 0.2)
        exact = 2.0 * (quad(given, 0.0, end)[0] + norm.sf(end))
        assert exceedance(q, np.array([0.9, 0.2])) == pytest.approx(exact, rel=1e-6)


def test_p_values_of_few_counts_are_those_at_the_mode():
    """Three yes and no a group: q's mean lies further out, and would reject too often."""
    rng = np.random.default_rng(1)
    g = np.arange(90) % 30
    data = pd.DataFrame(
        {"g": g.astype(str), "y": rng.uniform(size=90) < expit(1.6 * rng.normal(size=30)[g])}
    )
    gam = gg.GAM("y ~ (1 | g)", "bernoulli").fit(data)
    sd = np.sqrt(gam.variance_components()["variance"].iloc[0])
    Z = np.column_stack([sd * (g[:, None] == np.arange(30)), np.ones(90)])
    prior = np.append(np.ones(30), 0.0)
    v = np.zeros(31)
    for _ in range(50):
        mean = expit(Z @ v)
        H = (Z.T * mean * (1.0 - mean)) @ Z + np.diag(prior)
        v = v + np.linalg.solve(H, Z.T @ (data["y"] - mean) - prior * v)
    S = np.linalg.inv(H)[:30, :30]
    statistic = v[:30] @ np.linalg.solve(S, v[:30])
    draws = rng.chisquare(1.0, (200_000, 30)) @ (1.0 - np.linalg.eigvalsh(S))
    (p,) = gam.summary().table["p"]
    assert p == pytest.approx(np.mean(draws > statistic), rel=0.05)


def test_deviance_explained_against_a_loop(gam, data):
    y = data["count"].to_numpy()
    mean = np.exp(gam.predict(data, type="link"))
    null = y.mean()
    own = least = 0.0
    for value, m in zip(y, mean):
        own += 2 * ((value * np.log(value / m) if value else 0.0) - value + m)
        least += 2 * ((value * np.log(value / null) if value else 0.0) - value + null)
    assert gam.summary().deviance_explained == pytest.approx(1 - own / least, abs=1e-6)
