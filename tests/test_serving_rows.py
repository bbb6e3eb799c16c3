"""Requests with rows that a served model cannot take, and requests that are too large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import gpflow_gam as gg

N = 60
RNG = np.random.default_rng(6)
DATA = {
    "x": RNG.uniform(size=N),
    "text": RNG.choice(["a", "b"], N),
    "whole": RNG.integers(3, 6, N),
    "site": RNG.choice(["p", "q"], N),
}


@pytest.fixture(scope="module")
def gam() -> gg.GAM:
    terms = gg.s("x", k=5) + gg.factor("text") + gg.factor("whole") + gg.random_effect("site")
    y = RNG.poisson(np.exp(DATA["x"] + (DATA["text"] == "a")))
    return gg.GAM(terms, family="poisson").fit(DATA, y, max_iterations=4)


@pytest.fixture(scope="module")
def served(gam: gg.GAM, tmp_path_factory: Any) -> gg.serving.Served:
    path = tmp_path_factory.mktemp("served") / "m"
    gg.serving.export(gam, path, invalid="nan", max_rows=10)
    return gg.serving.load(path)


GOOD = {k: v[:6] for k, v in DATA.items()}
BAD = {
    "x": np.array([0.1, np.nan, 0.3, np.inf, 0.5, 0.6]),
    "text": np.array(["zz", *DATA["text"][1:6]]),
    "whole": np.array([*DATA["whole"][:4], 99, DATA["whole"][5]]),
    "site": np.array([*DATA["site"][:5], "new"]),
}


@pytest.mark.slow
def test_bad_rows_are_nan_and_others_are_not(served: gg.serving.Served) -> None:
    assert served.description["invalid"] == "nan"
    bad = [0, 1, 3, 4]
    mixed = {k: np.where(np.isin(np.arange(6), bad), BAD[k], GOOD[k]) for k in BAD}
    good = served.predict(GOOD)
    for call in (served.predict, served.predict_components):
        whole = call(GOOD)
        for name, value in call(mixed).items():
            if name == "names":
                continue
            assert np.all(np.isnan(value[bad]))
            np.testing.assert_allclose(value[[2, 5]], whole[name][[2, 5]], rtol=1e-12)
    for value in served.sample(mixed, 3, 1).values():
        assert np.all(np.isnan(value[:, bad]))
        assert np.all(np.isfinite(value[:, [2, 5]]))
    # a new level where the term takes them is no bad row
    assert np.isfinite(served.predict(BAD)["mean"]).tolist() == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    gone = {**GOOD, "text": [None, *GOOD["text"][1:]]}
    assert np.isnan(served.predict(gone)["lower"]).tolist() == [True] + 5 * [False]
    assert np.all(np.isfinite(good["mean"]))
    single = {
        k: tf.cast(v, tf.float32) if v.dtype == tf.float64 else v
        for k, v in served.arguments(mixed).items()
    }
    response = served.signatures["predict_float32"](**single)["response"].numpy()
    assert np.isnan(response).tolist() == [i in bad for i in range(6)]


def test_draws_have_a_limit_of_rows(gam: gg.GAM, served: gg.serving.Served, tmp_path: Path) -> None:
    assert served.sample({k: v[:10] for k, v in DATA.items()})["response"].shape == (1, 10)
    eleven = {k: v[:11] for k, v in DATA.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match="may have 10 rows.*max_rows.*11"):
        served.sample(eleven)
    assert served.predict(eleven)["mean"].shape == (11,)
    for options, message in (
        ({"max_rows": 0}, "max_rows must be a whole number of at least 1"),
        ({"invalid": "drop"}, "invalid must be 'error' or 'nan'; got 'drop'"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.serving.export(gam, tmp_path / "m", **options)
