"""Rows that lack a value, in a GAM that drops them: NaN where others have an answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, linear, s

HOLES = [2, 5, 6]


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(size=80), "g": rng.choice(list("ab"), 80)})
    frame["log_n"] = rng.normal(size=80)
    frame["y"] = np.sin(5.0 * frame["x"]) + 0.1 * rng.normal(size=80)
    frame["label"] = np.where(frame["y"] > 0.2, "high", "low")
    frame["unused"] = np.nan
    return frame


@pytest.fixture(scope="module")
def holes(data) -> pd.DataFrame:
    frame = data.copy()
    frame.loc[2, "x"] = np.nan
    frame.loc[5, "g"] = None
    frame.loc[6, "log_n"] = np.nan
    return frame


@pytest.fixture(scope="module")
def gam(holes) -> gg.GAM:
    terms = s("x", k=6) + factor("g")
    return gg.GAM(terms, offset="log_n", missing="drop").fit(holes, y="y")


ANSWERS = {
    "response": lambda gam, rows: gam.predict(rows),
    "se": lambda gam, rows: gam.predict(rows, "link", se=True),
    "interval": lambda gam, rows: gam.predict(rows, interval=0.9),
    "terms": lambda gam, rows: gam.predict(rows, "terms"),
    "observation": lambda gam, rows: gam.predict(rows, "observation"),
    "sample": lambda gam, rows: gam.sample(rows, 3).T,
    "density": lambda gam, rows: gam.log_density(rows),
    "averaged": lambda gam, rows: gam.log_density(rows, unconditional=True),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_incomplete_rows_are_nan_and_the_others_as_without_them(gam, holes, answer):
    whole, alone = answer(gam, holes), answer(gam, holes.drop(index=HOLES))
    for all_rows, complete in zip(
        *((t if isinstance(t, tuple) else (t,)) for t in (whole, alone)), strict=True
    ):
        values = np.asarray(all_rows)
        assert len(values) == len(holes)
        assert np.isnan(values[HOLES]).all()
        np.testing.assert_array_equal(np.delete(values, HOLES, axis=0), np.asarray(complete))
        if isinstance(all_rows, pd.DataFrame):
            assert list(all_rows.index) == list(range(len(holes)))


def test_a_missing_response_has_no_density_and_a_prediction(gam, holes):
    rows = holes.assign(y=holes["y"].where(holes.index != 7))
    assert np.flatnonzero(np.isnan(gam.log_density(rows))).tolist() == [*HOLES, 7]
    assert np.flatnonzero(np.isnan(gam.predict(rows))).tolist() == HOLES


def test_blocks_and_tables_of_holes_only(gam, holes):
    pieces = [holes.iloc[:20], holes.iloc[20:]]
    np.testing.assert_array_equal(gam.predict(pieces), gam.predict(holes))
    assert np.isnan(gam.predict(holes.loc[HOLES])).all()
    assert gam.predict(holes.loc[HOLES], "terms").shape == (3, 4)  # the offset, too


def test_no_class_where_a_value_is_missing(holes):
    gam = gg.GAM(linear("x"), family="bernoulli", missing="drop").fit(holes, y="label")
    classes = gam.predict(holes, "class")
    assert classes[2] is None
    assert set(np.delete(classes, 2)) == {"high", "low"}
