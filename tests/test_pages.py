"""What the documentation names as evidence is there."""

from __future__ import annotations

import re

import pytest
from test_package import ROOT

PAGES = sorted([*(ROOT / "docs").glob("*.rst"), *(ROOT / "docs").glob("*.md")])
PAGES += sorted(ROOT.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_and_tests_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks|examples)/[\w/]+\.\w+)(?:::(\w+))?", text)
    for path, name in named:
        assert (ROOT / path).exists(), path
        if name:
            assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_every_finding_names_a_test():
    text = (ROOT / "docs" / "findings.rst").read_text(encoding="utf-8")
    sections = re.split(r"\n-{5,}\n", text)[1:]
    assert len(sections) == 5
    assert all("*Shown by* ``tests/" in part and ".. testcode::" in part for part in sections)
