"""Files of earlier releases are read, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from golden.make import FOLDER, answers

import gpflow_gam as gg

FILES = sorted(FOLDER.glob("*.gam"))


def test_every_release_has_a_file():
    assert any(gg.__version__ in file.name for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_answers_as_when_it_was_written(file: Path):
    want = json.loads((file.parent / f"{file.stem}.json").read_text("utf-8"))
    found = answers(gg.GAM.load(file))
    assert found.pop("names") == want.pop("names")
    for what, values in want.items():
        np.testing.assert_allclose(found[what], values, rtol=1e-6, atol=1e-9, err_msg=what)
