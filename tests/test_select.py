"""Smooths that vanish where they are not there (``select=True``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import s, te
from gpflow_gam.gam.terms import terms_from_json
from gpflow_gam.layers import AdditiveGP

NAMES = ["wave", "line", "a", "b", "c", "d"]


def made(seed: int = 0, n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """A wave, a line, and four columns that do not matter."""
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.uniform(size=(n, 6)), columns=NAMES)
    f = np.sin(6.0 * data["wave"]) + 1.5 * data["line"]
    return data.assign(y=f + 0.6 * rng.normal(size=n)), np.asarray(f)


@pytest.fixture(scope="module")
def fits() -> dict[bool, gg.GAM]:
    data, _ = made()
    terms = [s(name) for name in NAMES]
    return {which: gg.GAM(terms, select=which).fit(data, "y") for which in (False, True)}


@pytest.mark.slow
def test_what_is_not_there_vanishes_and_what_is_there_stays(fits: dict[bool, gg.GAM]) -> None:
    data, f = made()
    edf = {which: gam.summary().table["edf"] for which, gam in fits.items()}
    absent = [f"s({name})" for name in NAMES[2:]]
    assert edf[True][absent].sum() < 0.5 * edf[False][absent].sum()
    assert edf[True][absent].median() < 0.1 < edf[False][absent].median()
    error = {
        which: np.sqrt(np.mean(np.square(gam.predict(data) - f))) for which, gam in fits.items()
    }
    assert error[True] < error[False]
    for name in ("s(wave)", "s(line)"):
        assert edf[True][name] == pytest.approx(edf[False][name], rel=0.25)
        own = {which: gam.effects(name)["estimate"] for which, gam in fits.items()}
        np.testing.assert_allclose(own[True], own[False], atol=0.1)


def test_bands_of_what_has_vanished_say_how_large_it_may_be(fits: dict[bool, gg.GAM]) -> None:
    band, known = (fits[True].effects("s(a)", unconditional=u) for u in (True, False))
    assert np.all(band["lower"] < 0.0)
    assert np.all(band["upper"] > 0.0)
    assert np.median(band["se"]) > 2.0 * np.median(known["se"])


def test_files_and_refits_hold_to_it(fits: dict[bool, gg.GAM], tmp_path: Path) -> None:
    data, _ = made()
    gam = fits[True]
    for rows in (True, False):
        gam.save(tmp_path / f"{rows}", data=rows)
        loaded = gg.GAM.load(tmp_path / f"{rows}")
        assert loaded.terms == gam.terms
        assert loaded.terms.select
        np.testing.assert_array_equal(loaded.predict(data), gam.predict(data))
    again = gg.GAM.load(tmp_path / "True").refit(data)
    np.testing.assert_allclose(again.predict(data), gam.predict(data), atol=0.02)


@pytest.mark.slow
def test_a_term_may_be_selected_by_itself(tmp_path: Path) -> None:
    """``bs="ts"`` has the priors of ``select=True`` for one term, in files as well."""
    data, _ = made()
    terms = [s(name, bs="cs" if name == "a" else "se", k=8) for name in NAMES]
    gam = gg.GAM(terms).fit(data, "y")
    every = gg.GAM([s(n, k=8) for n in NAMES], select=True).fit(data, "y")
    none = gg.GAM([s(n, k=8) for n in NAMES]).fit(data, "y")

    def modes(fitted: gg.GAM, name: str) -> list[float]:
        priors = [p.prior for p in fitted.model.kernel[f"s({name})"].parameters]
        return [float(prior.log_prob(1.0)) for prior in priors if prior is not None]

    gam.save(tmp_path / "gam")
    for one in (gam, gg.GAM.load(tmp_path / "gam")):
        for name in NAMES:
            assert modes(one, name) == modes(every if name == "a" else none, name)
        np.testing.assert_array_equal(one.predict(data), gam.predict(data))


def test_terms_know_whether_they_are_selected() -> None:
    terms = s("x") + te("x", "z")
    chosen = gg.GAM(terms, select=True).terms
    assert chosen.select
    assert not terms.select
    assert chosen != terms
    assert hash(chosen) != hash(terms)
    assert list(chosen) == list(terms)
    for kept in (chosen + s("w"), s("w") + chosen, chosen - 1, gg.GAM([chosen, s("w")]).terms):
        assert kept.select
    assert terms_from_json(chosen.to_json()) == chosen
    assert terms_from_json(terms.to_json()) == terms
    assert gg.GAM("y ~ s(x) + s(z)", select=True).terms.select
    with pytest.raises(TypeError, match="select must be True or False; got 'yes'"):
        gg.GAM(terms, select="yes")


def test_heads_hold_to_it() -> None:
    terms = s(0) + te(0, 1)
    heads = {
        which: AdditiveGP(terms.selected() if which else terms, num_data=500, num_inducing=4)
        for which in (False, True)
    }
    assert heads[True].specification.terms.select
    again = AdditiveGP.from_config(heads[True].get_config())
    modes = {}
    for which, head in {**heads, "again": again}.items():
        kernel = head.kernel["s(0)"]
        modes[which] = [
            float(p.prior.log_prob(1.0)) for p in kernel.parameters if p.prior is not None
        ]
    assert modes["again"] == modes[True] != modes[False]
