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
    # then without the constant, which is the intercept's, and without offsets
    terms, old = np.array(result.pop("terms")), np.array(want.pop("terms"))
    np.testing.assert_allclose(terms[:, 1:-1], old[:, 1:], rtol=1e-6, atol=1e-9)
    (constant,) = gam.fitted.spec.constant
    np.testing.assert_allclose(terms[:, 0] - constant, old[:, 0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(terms.sum(axis=1), gam.predict(rows(), "link"), rtol=1e-9)
    for what, values in want.items():
        np.testing.assert_allclose(result[what], values, rtol=1e-6, atol=1e-9, err_msg=what)
