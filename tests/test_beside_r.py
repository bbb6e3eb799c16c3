"""Lines beside those of R's packages; parts of predictions, AIC and p-values beside mgcv's."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import Surv, linear
from gpflow_gam import families as fam

needs_r = pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R")
pytestmark = [pytest.mark.slow, needs_r]


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng, n = np.random.default_rng(5), 600
    table = pd.DataFrame({"x": rng.uniform(1.0, 9.0, n), "z": rng.uniform(size=n)})
    table["u"] = table["z"] + rng.normal(size=n)
    table["g"] = rng.choice(["a", "b", "c"], n)
    f = np.log(table["x"]) + np.sin(6.0 * table["z"])
    f += table["u"] * table["g"].map({"a": 1.0, "b": 0.2, "c": -1.0})
    table["y"] = f + 0.4 * rng.standard_normal(n)
    table["count"] = rng.poisson(np.exp(0.5 * f))
    table["yes"] = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f))).astype(int)
    return table


def answers(code: str, data: pd.DataFrame, folder: Path) -> np.ndarray:
    """
    The numbers that R prints of the data ``d``, whose ``new`` rows are the first ten; skips where
    it lacks a package.
    """
    data.to_csv(folder / "d.csv", index=False)
    start = 'suppressMessages(library(mgcv)); d <- read.csv("d.csv", stringsAsFactors = TRUE);'
    command = ["Rscript", "-e", f"{start} new <- d[1:10, ]; {code}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if "there is no package" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[0])
    assert done.returncode == 0, done.stderr
    return np.array(done.stdout.split(), dtype=float)


def test_parts_of_predictions_are_those_of_mgcv(data, tmp_path):
    """``exclude=`` and ``terms=`` of its ``predict``; both centre smooths over the data."""
    code = (
        'm <- gam(count ~ s(x) + s(z), poisson, d, method = "REML");'
        'p <- predict(m, new, exclude = "s(z)", se.fit = TRUE);'
        'q <- predict(m, new, type = "terms", terms = "s(z)", se.fit = TRUE);'
        "cat(p$fit, p$se.fit, q$fit, q$se.fit)"
    )
    fit, se, term, term_se = answers(code, data, tmp_path).reshape(4, 10)
    gam = gg.GAM("count ~ s(x) + s(z)", family="poisson").fit(data)
    new = data.head(10)
    estimate, error = gam.predict(new, "link", exclude="s(z)", se=True)
    assert np.max(np.abs(estimate - fit) / se) < 1.0
    np.testing.assert_allclose(error, se, rtol=0.35)
    alone, error = gam.predict(new, "link", terms="s(z)", intercept=False, se=True)
    assert np.max(np.abs(alone - term) / term_se) < 1.0
    np.testing.assert_allclose(error, term_se, rtol=0.35)


def test_aic_is_about_that_of_mgcv(data, tmp_path):
    """Of two models the difference counts; mgcv's degrees of freedom are for smoothing, too."""
    code = "".join(
        f'for (f in c({y} ~ s(x), {y} ~ s(x) + s(z))) cat(AIC(gam(f, {family}, d, method = "REML"))'
        ', "");'
        for y, family in (("y", "gaussian"), ("count", "poisson"), ("yes", "binomial"))
    )
    theirs = answers(code, data, tmp_path).reshape(3, 2)
    for (y, family), known in zip(
        (("y", "gaussian"), ("count", "poisson"), ("yes", "bernoulli")), theirs
    ):
        fits = [
            gg.GAM(f"{y} ~ {terms}", family=family).fit(data) for terms in ("s(x)", "s(x) + s(z)")
        ]
        result = gg.compare(dict(zip(("one", "two"), fits))).to_frame().loc[["one", "two"], "aic"]
        np.testing.assert_allclose(result, known, atol=6.0)
        assert np.diff(result)[0] == pytest.approx(np.diff(known)[0], abs=3.0)


def test_p_values_are_about_those_of_mgcv(data, tmp_path):
    """Of effects too small to be certain: within a factor of 1.6, but for what is far out."""
    small = data.head(150).assign(h=np.arange(150) % 3, b=np.arange(150) % 12)
    small["y"] = 0.25 * small["y"] + np.random.default_rng(0).normal(size=150)
    small["g"] = small["h"].map(dict(enumerate("abc")))
    small["b"] = "b" + small["b"].astype(str)
    code = (
        'm <- gam(y ~ s(x) + s(z) + u + g + s(b, bs = "re"), data = d, method = "REML");'
        "a <- anova(m); cat(a$pTerms.table[, 3], a$s.table[, 4])"
    )
    u, g, x, z, b = answers(code, small, tmp_path)
    p = gg.GAM("y ~ s(x) + s(z) + u + g + (1 | b)").fit(small).anova()["p"]
    print(p, (x, z, u, g, b))
    ratio = np.log(p.to_numpy() / np.maximum([x, z, u, g, b], 1e-9))
    assert np.all(np.abs(ratio) < np.log(1.6))


def test_totals_are_those_of_mgcv(data, tmp_path):
    """Sums of predictions with a column set, and their standard errors by the delta method."""
    code = (
        'm <- gam(count ~ s(x) + s(z), data = d, family = poisson, method = "REML");'
        "for (v in c(2, 5)) { n <- d; n$x <- v; X <- predict(m, n, type = 'lpmatrix');"
        "mu <- c(exp(X %*% coef(m))); J <- colSums(mu * X);"
        "cat(sum(mu), sqrt(c(J %*% vcov(m, unconditional = TRUE) %*% J)), '') }"
    )
    total, se = answers(code, data, tmp_path).reshape(2, 2).T
    gam = gg.GAM("count ~ s(x) + s(z)", family="poisson").fit(data)
    result = gam.avg_predictions(data, at={"x": [2.0, 5.0]}, total=True)
    assert np.all(np.abs(result["estimate"] - total) < 0.75 * se)
    np.testing.assert_allclose(result["se"], se, rtol=0.25)


LINES = {
    'glm(count ~ z, poisson("identity"), d, start = c(4, 0))': ("count", fam.Poisson("identity")),
    'glm(count ~ z, poisson("sqrt"), d)': ("count", fam.Poisson("sqrt")),
    "glm(many ~ z, quasipoisson, d)": ("many", fam.QuasiPoisson()),
    'glm(share ~ z, quasibinomial("cloglog"), d)': ("share", fam.QuasiBinomial("cloglog")),
    'glm(part ~ z, Gamma("inverse"), d)': ("part", fam.Gamma("inverse")),
    'glm(part ~ z, Gamma("identity"), d)': ("part", fam.Gamma("identity")),
    'glm(part ~ z, gaussian("log"), d, start = c(0, 0))': ("part", fam.Gaussian("log")),
    'glm(rare ~ z, binomial("log"), d, start = c(-1, 0))': ("rare", fam.Bernoulli("log")),
    'polr(factor(level) ~ z, d, method = "probit", Hess = TRUE)': (
        "level",
        fam.Ordinal(link="probit"),
    ),
    'gam(share ~ z, betar(link = "cloglog"), d, method = "REML")': ("share", fam.Beta("cloglog")),
    'pscl::zeroinfl(none ~ 1 | z, d, link = "probit")': ("none", fam.ZeroInflatedPoisson("probit")),
    "coxph(Surv(time, event) ~ z, d)": (Surv("time", "event"), "cox"),
    'survreg(Surv(time, event) ~ z, d, dist = "weibull")': (Surv("time", "event"), "weibull"),
    'survreg(Surv(low, high, type = "interval2") ~ z, d, dist = "lognormal")': (
        Surv("low", "high", type="interval"),
        "lognormal",
    ),
}


@pytest.mark.parametrize("model", LINES)
def test_lines_are_those_of_other_packages(model, tmp_path):
    """Slopes to a fraction of their errors, which R has by what data would say on average."""
    rng, n = np.random.default_rng(0), 600
    z = rng.uniform(size=n)
    table = pd.DataFrame({"z": z, "count": rng.poisson(3.0 + 4.0 * z)})
    table["many"] = rng.negative_binomial((3.0 + 4.0 * z) / 2.0, 1.0 / 3.0)
    table["share"] = rng.beta(1.0 + 2.0 * z, 3.0 - 2.0 * z)
    table["part"] = rng.gamma(4.0, 1.0 / (0.4 + 0.8 * z) / 4.0)
    table["rare"] = (rng.uniform(size=n) < np.exp(-1.5 + 0.9 * z)).astype(int)
    table["level"] = np.digitize(1.2 * z + rng.normal(size=n), [-0.5, 0.5, 1.5])
    table["none"] = np.where(rng.uniform(size=n) < 0.15 + 0.5 * z, 0, rng.poisson(5.0, n))
    time, end = rng.exponential(np.exp(z)), rng.uniform(0.5, 4.0, n)
    table = table.assign(time=np.minimum(time, end), event=1 * (time <= end))
    table["low"] = np.floor(2.0 * time) / 2.0 + 0.05
    table["high"] = table["low"] + 0.5
    y, family = LINES[model]
    code = f"library(survival); library(MASS); m <- {model}; n <- length(coef(m));"
    known, error = answers(f"{code} cat(coef(m)[n], sqrt(vcov(m)[n, n]))", table, tmp_path)
    zeros = model.startswith("pscl")
    terms = {"zero": linear("z")} if zeros else linear("z")
    gam = gg.GAM(terms, family=family).fit(table, y)
    slope = gam.coefficients().iloc[-1]
    assert abs(slope["estimate"] - known) < 0.25 * error
    assert slope["se"] == pytest.approx(error, rel=0.06)


def test_strata_are_those_of_survfit(tmp_path):
    """Curves of groups with hazards that cross, and mean times up to one, beside Kaplan-Meier's."""
    rng, n = np.random.default_rng(1), 400
    late = rng.uniform(size=n) < 0.5  # at risk late, or early
    time = rng.weibull(np.where(late, 3.0, 0.8)) * 2.0
    end = rng.uniform(1.0, 4.0, n)
    table = pd.DataFrame({"time": np.minimum(time, end), "event": 1 * (time <= end), "late": late})
    code = (
        "library(survival); f <- survfit(Surv(time, event) ~ late, d);"
        "s <- summary(f, times = c(.5, 1, 2)); r <- summary(f, rmean = 2)$table;"
        'cat(s$surv, r[, "rmean"], s$std.err, r[, "se(rmean)"])'
    )
    known, error = answers(code, table, tmp_path).reshape(2, 8)
    parts = Surv("time", "event").split(table, cuts=np.arange(0.2, 4.0, 0.2))
    gam = gg.GAM("Surv(start, time, event) ~ late + s(start, by=late)", family="cox").fit(parts)
    groups = {"late": [False, True]}
    found = pd.concat([gam.survival(groups, [0.5, 1.0, 2.0]), gam.restricted_mean(groups, 2.0)])
    np.testing.assert_allclose(found["estimate"], known, atol=0.03)
    se = (found["upper"] - found["lower"]) / 3.92
    np.testing.assert_allclose(se, error, rtol=0.2)
