"""Every line on the right of the tables for those who come from elsewhere does run."""

from __future__ import annotations

import re
import textwrap
import warnings

import matplotlib
import pytest
from test_package import ROOT

matplotlib.use("Agg")

TEXT = (ROOT / "docs" / "migration.rst").read_text(encoding="utf-8")
FIT = re.compile(r"\.(fit|update|avg_\w+|partial_dependence|sobol)\(")


def blocks() -> list[str]:
    """The page's code that is no table."""
    result = re.findall(r"\.\. testcode::\n\n((?:    .*\n|\n)+)", TEXT)
    return [textwrap.dedent(block) for block in result]


def rows() -> list[tuple[str, str]]:
    """Left and right of each row, but for the tables' heads."""
    result = re.findall(r"^    \* - (.+)\n      - (.+)$", TEXT, flags=re.MULTILINE)
    return [(left, right) for left, right in result if right != "here"]


def snippets() -> list[str]:
    """What stands between the last pair of double backquotes on the right."""
    return list(dict.fromkeys(re.findall(r"``(.+?)``", right)[-1] for _, right in rows()))


FITTED = [code for code in snippets() if FIT.search(code)]
QUICK = [code for code in snippets() if code not in FITTED]


@pytest.fixture(scope="module")
def names():
    """What the page's own code defines."""
    result: dict[str, object] = {}
    for block in blocks():
        exec(block, result)
    return result


def run(code: str, names: dict[str, object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small data, by design
        assert eval(code, names) is not None or ".save(" in code or "export(" in code


def test_all_rows_are_found():
    assert len(blocks()) == 2
    assert len(rows()) == TEXT.count("\n    * - ") - TEXT.count(":header-rows: 1")
    assert all("``" in right for _, right in rows())
    assert {"mgcv", "gratia", "pyGAM", "interpret", "GPflow"} <= set(
        re.findall(r"^    \* - (\w+)\n      - here$", TEXT, flags=re.MULTILINE)
    )


def test_terms_and_what_asks_a_fit(names):
    for code in QUICK:
        run(code, names)


@pytest.mark.slow
@pytest.mark.parametrize("code", FITTED)
def test_fits(code, names):
    run(code, names)
