"""Files of earlier releases are read, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from golden.make import FOLDER, answers, rows

import gpflow_gam as gg

FILES = sorted(FOLDER.glob("*.gam"))


def test_every_release_has_a_file():
    assert any(gg.__version__ in file.name for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_answers_as_when_it_was_written(file: Path):
    want = json.loads((file.parent / f"{file.stem}.json").read_text("utf-8"))
    gam = gg.GAM.load(file)
    result = answers(gam)
    assert result.pop("names") == want.pop("names")
    terms, old = np.array(result.pop("terms")), np.array(want.pop("terms"))
    np.testing.assert_allclose(terms.sum(axis=1), gam.predict(rows(), "link"), rtol=1e-9)
    if file.stem == "gam-0.1.0":  # without the constant, which is the intercept's, and offsets
        (constant,) = gam.fitted.spec.constant
        terms = np.column_stack([terms[:, 0] - constant, terms[:, 1:-1]])
    np.testing.assert_allclose(terms, old, rtol=1e-6, atol=1e-9)
    for what, values in want.items():
        np.testing.assert_allclose(result[what], values, rtol=1e-6, atol=1e-9, err_msg=what)
