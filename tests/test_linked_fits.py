"""Links of outliers and of amounts that may be zero: known truths, files, and R's mgcv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rscript

import gpflow_gam as gg
from gpflow_gam import families as fam
from gpflow_gam import linear, s

QUIET = {"progress": False}


def amounts(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of variance ``mean^1.5``: Poisson numbers of gamma amounts."""
    number = rng.poisson(2.0 * np.sqrt(mean))
    shape = np.maximum(number, 1).astype(float)
    return np.where(number > 0, rng.gamma(shape, 0.5 * np.sqrt(mean)), 0.0)


def drawn(family: fam.Family, x: np.ndarray, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Data, and the predictor of each row."""
    rng = np.random.default_rng(seed)
    f = 1.5 + np.sin(6.0 * x)
    mean = {"log": np.exp, "identity": lambda f: f, "sqrt": np.square}.get(
        family.link, lambda f: 1.0 / f
    )(f)
    if isinstance(family, fam.Tweedie):
        y = amounts(mean, rng)
    else:
        y = mean + 0.1 * rng.standard_t(4.0, len(x))
    return pd.DataFrame({"x": x, "y": y}), f


@pytest.mark.parametrize(
    "family",
    [
        fam.StudentT(link="inverse"),
        pytest.param(fam.Tweedie("identity"), marks=pytest.mark.slow),
        fam.Tweedie("sqrt"),
    ],
    ids=lambda f: f"{f.name}-{f.link}",
)
def test_fits_find_the_curve_and_files_hold_it(family: fam.Family, tmp_path: Path) -> None:
    data, f = drawn(family, np.random.default_rng(1).uniform(size=600))
    gam = gg.GAM(s("x"), family).fit(data, "y", **QUIET)
    assert gam.fitted.result.converged
    result = gam.predict(data, "link", interval=0.95)
    away = result["estimate"] - f
    assert np.sqrt(np.mean(np.square(away))) < 0.3 * np.std(f)
    assert np.mean(np.abs(away) < 3.0 * result["se"]) > 0.95
    mean = np.asarray(gam.predict(data))
    assert np.all(mean > 0.0)
    for rows in (True, False):
        gam.save(tmp_path / str(rows), data=rows)
        loaded = gg.GAM.load(tmp_path / str(rows))
        assert loaded.family == family
        np.testing.assert_array_equal(loaded.predict(data), mean)
    draws = gam.sample(data.head(5), 4000, "response", seed=3)
    np.testing.assert_allclose(draws.mean(axis=0), mean[:5], rtol=0.05)


@pytest.mark.parametrize(("link", "out"), [("log", 1e3), ("inverse", -1e5)])
def test_rows_far_away_are_nothing_to_a_link_of_student_t(
    link: str, out: float, tmp_path: Path
) -> None:
    """Nor to where the link gives way, which is about the place of most rows."""
    family = fam.StudentT(link=link)
    data, f = drawn(family, np.linspace(0.02, 0.98, 200))
    data.loc[60:66, "y"] += out
    gam = gg.GAM(s("x"), family).fit(data, "y", **QUIET)
    assert np.sqrt(np.mean(np.square(gam.predict(data, "link") - f))) < 0.2 * np.std(f)
    gam.save(tmp_path / "gam", data=False)
    loaded = gg.GAM.load(tmp_path / "gam")
    np.testing.assert_array_equal(loaded.predict(data, "link"), gam.predict(data, "link"))


R = """
suppressMessages(library(mgcv)); d <- read.csv("d.csv")
models <- list(
  gam(a ~ x, family = tw(link = "identity"), data = d),
  gam(a ~ x, family = tw(link = "sqrt"), data = d),
  gam(a ~ x, family = tw(link = "inverse"), data = d),
  gam(t ~ x, family = scat(theta = c(4, 0.3), link = "log"), data = d),
  gam(t ~ x, family = scat(theta = c(4, 0.3), link = "inverse"), data = d))
for (m in models) {
  p <- predict(m, data.frame(x = c(0.1, 0.9)), se.fit = TRUE)
  cat(p$fit, p$se.fit, "\\n")
}
"""


@pytest.mark.slow
@rscript.needed
def test_straight_lines_are_those_of_mgcv(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=1500)
    data = pd.DataFrame({"x": x, "a": amounts(1.0 + 2.0 * x, rng)})
    data["t"] = 1.0 + 2.0 * x + 0.3 * rng.standard_t(4.0, 1500)
    data.to_csv(tmp_path / "d.csv", index=False)
    answers = rscript.printed(R, tmp_path).reshape(5, 2, 2)
    cases = [
        ("a", fam.Tweedie("identity")),
        ("a", fam.Tweedie("sqrt")),
        ("a", fam.Tweedie("inverse")),
        ("t", fam.StudentT(link="log")),
        ("t", fam.StudentT(link="inverse")),
    ]
    for (y, family), (link, se) in zip(cases, answers):
        gam = gg.GAM(linear("x"), family=family).fit(data, y, **QUIET)
        result, own = gam.predict(pd.DataFrame({"x": [0.1, 0.9]}), "link", se=True)
        assert np.max(np.abs(result - link) / se) < 0.25, family
        if y == "t":  # theirs are at the true scale, ours at the one that is learnt
            own *= 0.3 / gam.summary().parameters["scale"]
        np.testing.assert_allclose(own, se, rtol=0.05, err_msg=str(family))
