"""Parts of predictions and AIC beside mgcv's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rscript

import gpflow_gam as gg

pytestmark = [pytest.mark.slow, rscript.needed]


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
    """What R prints of the data ``d``, whose ``new`` rows are the first ten."""
    data.to_csv(folder / "d.csv", index=False)
    start = 'suppressMessages(library(mgcv)); d <- read.csv("d.csv", stringsAsFactors = TRUE);'
    return rscript.printed(f"{start} new <- d[1:10, ]; {code}", folder)


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
