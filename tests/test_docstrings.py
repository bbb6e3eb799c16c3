"""Every public name says what it is, what it takes and what it gives."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpflow_gam as gg

VERBS = {
    "add", "ask", "assign", "begin", "build", "check", "create", "draw", "end", "fit", "give", "go",
    "learn", "load", "make", "maximise", "minimise", "move", "pass", "plan", "predict", "prepare",
    "propose", "put", "raise", "read", "register", "run", "save", "say", "score", "screen", "set",
    "show", "take", "train", "turn", "undo", "warn", "write",
}  # fmt: skip
"""What a summary begins with that says what is done. Others say what is returned."""


def public_names() -> Iterator[tuple[str, Any]]:
    """Classes and functions of ours in ``__all__`` of the package and of all packages in it."""
    found = pkgutil.walk_packages(gg.__path__, "gpflow_gam.")
    packages = [gg, *(importlib.import_module(m.name) for m in found if m.ispkg)]
    for package in packages:
        for name in package.__all__:
            value = getattr(package, name)
            ours = (getattr(value, "__module__", "") or "").startswith("gpflow_gam")
            if ours and (inspect.isclass(value) or inspect.isfunction(value)):
                yield f"{package.__name__}.{name}", value


NAMES = {id(value): (name, value) for name, value in public_names()}.values()
FUNCTIONS = [(name, f) for name, f in NAMES if inspect.isfunction(f)]
CLASSES = [(name, cls) for name, cls in NAMES if inspect.isclass(cls)]


def parameters(f: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those with a name of their own that callers use."""
    found = inspect.signature(f).parameters.values()
    return [p for p in found if p.name not in ("self", "_") and p.kind is not p.VAR_KEYWORD]


def described(name: str, doc: str) -> bool:
    return re.search(rf":param {name}: *\S", doc) is not None


def attribute_docstrings(cls: type) -> set[str]:
    """Attributes of a class's body under which stands what they are."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    return {
        field.target.id
        for field, text in zip(node.body, node.body[1:])
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def constructor(cls: type) -> list[inspect.Parameter]:
    """Parameters of a class's own constructor; none where it inherits it."""
    if dataclasses.is_dataclass(cls):
        own = inspect.get_annotations(cls)
        return [p for p in parameters(cls) if p.name in own and not p.name.startswith("_")]
    return parameters(cls.__init__) if "__init__" in vars(cls) else []


@pytest.mark.parametrize(("name", "f"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_functions_describe_what_they_take_and_give(name, f):
    doc = inspect.getdoc(f)
    assert doc, f"{name} has no docstring"
    given = parameters(f)
    lacking = [p.name for p in given if p.name != "args" and not described(p.name, doc)]
    assert not lacking, f"{name}: no :param for {', '.join(lacking)}"
    every = inspect.signature(f).parameters
    hands_on = any(p.kind is p.VAR_KEYWORD for p in every.values())
    unknown = set() if hands_on else set(re.findall(r":param (\w+):", doc)) - set(every)
    assert not unknown, f"{name}: :param for {', '.join(unknown)}, which it does not take"
    bare = [p.name for p in given if p.annotation is p.empty]
    assert not bare, f"{name}: no annotation of {', '.join(bare)}"
    returned = inspect.signature(f).return_annotation
    assert returned is not inspect.Signature.empty, f"{name}: no annotation of what it returns"
    first = doc.split()[0].lower()
    if returned not in (None, "None") and first in VERBS:
        assert ":return:" in doc, f"{name}: {first!r} does not say what is returned; add :return:"


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=[name for name, _ in CLASSES])
def test_classes_describe_what_they_are_made_of(name, cls):
    doc = inspect.cleandoc(cls.__doc__ or "")
    assert doc, f"{name} has no docstring"
    assert not doc.startswith(f"{cls.__name__}("), f"{name} has the docstring of its fields only"
    given = constructor(cls)
    bare = [p.name for p in given if p.annotation is p.empty]
    assert not bare, f"{name}: no annotation of {', '.join(bare)}"
    if re.search(r"\b[Ss]ee :(func|class):", doc):  # which is called in its place, and says it
        return
    told = attribute_docstrings(cls)
    lacking = [
        p.name
        for p in given
        if p.kind is not p.VAR_POSITIONAL
        and not (described(p.name, doc) or p.name in told or re.search(rf"``{p.name}\b", doc))
    ]
    assert not lacking, f"{name}: no :param for {', '.join(lacking)}"
