"""
Docstrings of the public names: parameters, shapes, what is returned, errors.

Public is what has an example in the reference, and those of its methods that the guides or the
examples name; nothing is asked of other names. No test sees whether what a docstring says is so,
nor errors of functions that are called. Overrides inherit what the method that they override says.
"""

import ast
import dataclasses
import importlib
import inspect
import itertools
import operator
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_package import ROOT

import gpflow_gam as gg

VERBS = {
    "add", "ask", "assign", "begin", "build", "check", "create", "draw", "end", "fit", "give", "go",
    "learn", "load", "make", "maximise", "minimise", "move", "pass", "plan", "predict", "prepare",
    "propose", "put", "raise", "read", "register", "run", "save", "say", "score", "screen", "set",
    "show", "take", "train", "turn", "undo", "warn", "write",
}  # fmt: skip
"""What a summary begins with that says what is done. Others say what is returned."""

ON_PAGES = {
    name: inherited != ""
    for page in (ROOT / "docs/reference").glob("*.rst")
    for name, inherited in re.findall(
        r"automodule:: (\S+)\n *(:inherited-members:)?", page.read_text(encoding="utf-8")
    )
}
"""Packages and modules that the reference shows, and whether with inherited methods."""
MADE_ELSEWHERE = re.compile(r"\b([Ss]ee :(func|class):|as :meth:`\S+` gives it)")
"""In the docstring of a class that is made by what this names, which describes parameters."""
REFERENCE = (ROOT / "docs/reference/examples.txt").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^(\S+)\n(?= {4})", REFERENCE, re.M)
"""Names of the reference, each with an example."""
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.rst"), *(ROOT / "examples").rglob("*.py")]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SHOWN = set(re.findall(r"\w+", TEXT))
"""Words of the guides, the README and the examples."""
USED_METHODS = set(re.findall(r"[.`~](\w+)", TEXT + REFERENCE))
"""What is named there, or in examples of the reference, as an attribute or in backticks."""
MODULES = sorted(Path(gg.__file__).parent.rglob("*.py"))
modules = pkgutil.walk_packages(gg.__path__, "gpflow_gam.")
PACKAGES = [gg, *(importlib.import_module(m.name) for m in modules if m.ispkg)]


def ours(value: Any) -> bool:
    return (getattr(value, "__module__", "") or "").startswith("gpflow_gam")


def function_of(member: Any) -> Any:
    """What a method, a property or a function was defined as, without its decorators."""
    member = getattr(member, "fget", member)
    member = getattr(member, "func", member)  # of a cached property
    return inspect.unwrap(getattr(member, "__func__", member))


class Documented(NamedTuple):
    """A function, a method or a constructor, and the docstring that describes its parameters."""

    name: str
    doc: str
    function: Any


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def public_names() -> dict[int, tuple[str, Any]]:
    """Classes and functions that have an example, and errors."""
    result = {}
    for name in [*EXAMPLES, *(f"errors.{n}" for n in dir(gg.errors))]:
        of, value = (operator.attrgetter(n)(gg) for n in (name.rpartition(".")[0], name))
        kind = inspect.isclass(value) or inspect.isfunction(value)
        public = name in EXAMPLES or is_error(value)
        if ours(value) and kind and public and inspect.ismodule(of):
            result[id(value)] = f"gpflow_gam.{name}", value
    return result


def public_methods(cls: type, inherited: bool) -> Iterator[tuple[str, Any]]:
    """Methods and properties that the pages name, but those that override others."""
    for place, own in enumerate(cls.__mro__ if inherited else [cls]):
        for name, member in vars(own).items() if ours(own) else ():
            override = any(name in vars(base) for base in cls.__mro__[place + 1 :])
            f = function_of(member)
            if inspect.isfunction(f) and name in USED_METHODS and not override:
                yield name, f


PUBLIC = public_names()
NAMES = PUBLIC.values()
CLASSES = [(name, cls) for name, cls in NAMES if inspect.isclass(cls)]
FUNCTIONS = [
    Documented(name, inspect.getdoc(f) or "", function_of(f))
    for name, f in NAMES
    if inspect.isfunction(f)
]
METHODS = [
    *{
        f: Documented(f"{n}.{m}", f.__doc__ or "", f)
        for n, c in CLASSES
        for m, f in public_methods(c, ON_PAGES[n.rpartition(".")[0]])
    }.values()
]
CONSTRUCTORS = [
    Documented(name, cls.__doc__ or "", function_of(vars(cls)[method]))
    for name, cls in CLASSES
    for method in ("__init__", "__post_init__")
    if method in vars(cls) and not MADE_ELSEWHERE.search(cls.__doc__ or "")
]
EVERY = [*FUNCTIONS, *METHODS, *CONSTRUCTORS]


def parameters(f: Any) -> list[inspect.Parameter]:
    """Those with a name of their own that callers use."""
    result = inspect.signature(f).parameters.values()
    return [p for p in result if p.name not in ("self", "cls", "_") and p.kind is not p.VAR_KEYWORD]


def described(name: str, doc: str) -> bool:
    return re.search(rf":param {name}: *\S|``{name}\b", doc) is not None


def attribute_docstrings(cls: type) -> set[str]:
    """Attributes of a class's body under which stands what they are."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    return {
        field.target.id
        for field, text in itertools.pairwise(node.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def test_public_names_have_a_page_of_reference():
    lacking = {name for name, _ in NAMES if name.rpartition(".")[0] not in ON_PAGES}
    assert not lacking, lacking


USED = re.compile(r"\b(?:gg|gpflow_gam)\.([\w.]*\w)|from gpflow_gam\.([\w.]+) import ([\w, ]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_names_that_a_page_uses_are_public(page):
    """A class or function of ours that stands there has an example in the reference."""
    internal = set()
    for chain, module, imported in USED.findall(page.read_text(encoding="utf-8")):
        names = [f"{module}.{name}" for name in re.findall(r"\w+", imported)]
        for name in names or [chain]:
            values = itertools.accumulate(
                name.split("."), lambda v, n: getattr(v, n, None), initial=gg
            )
            called = next((v for v in values if inspect.isclass(v) or inspect.isfunction(v)), None)
            if ours(called) and not is_error(called) and id(called) not in PUBLIC:
                internal.add(name)
    assert not internal


@pytest.mark.parametrize("one", [*FUNCTIONS, *METHODS], ids=lambda one: one.name)
def test_functions_describe_what_they_take_and_give(one):
    f, doc = one.function, one.doc
    assert doc, f"{one.name} has no docstring"
    every = inspect.signature(f)
    given = [p for p in parameters(f) if p.kind is not p.VAR_POSITIONAL]
    lacking = [p.name for p in given if not described(p.name, doc)]
    assert not lacking, f"no :param for {', '.join(lacking)}"
    hands_on = any(p.kind is p.VAR_KEYWORD for p in every.parameters.values())
    unknown = set(re.findall(r":param (\w+):", doc)) - set(every.parameters)
    assert hands_on or not unknown, f":param for {', '.join(unknown)}, which it does not take"
    bare = [p.name for p in given if p.annotation is p.empty]
    assert not bare, f"no annotation of {', '.join(bare)}"
    returned = every.return_annotation
    assert returned is not inspect.Signature.empty, "no annotation of what it returns"
    itself = f.__qualname__.split(".")[0]  # as of fit()
    if returned not in (None, "None", itself) and doc.split()[0].lower() in VERBS:
        assert ":return:" in doc, "does not say what is returned; add :return:"


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=[name for name, _ in CLASSES])
def test_classes_describe_what_they_are_made_of(name, cls):
    doc = inspect.cleandoc(cls.__doc__ or "")
    assert doc, f"{name} has no docstring"
    assert not doc.startswith(f"{cls.__name__}("), f"{name} has the docstring of its fields only"
    given = parameters(cls.__init__) if "__init__" in vars(cls) else []
    if dataclasses.is_dataclass(cls):
        own = inspect.get_annotations(cls)
        given = [p for p in parameters(cls) if p.name in own and not p.name.startswith("_")]
    bare = [p.name for p in given if p.annotation is p.empty]
    assert not bare, f"no annotation of {', '.join(bare)}"
    if MADE_ELSEWHERE.search(doc):
        return
    told = attribute_docstrings(cls)
    named = [p.name for p in given if p.kind is not p.VAR_POSITIONAL]
    lacking = [n for n in named if n not in told and not described(n, doc)]
    assert not lacking, f"no :param for {', '.join(lacking)}"


def test_values_say_what_they_are():
    """Names in ``__all__`` of what is no class, function or module; what they are stands below."""
    kinds = (inspect.isclass, inspect.isfunction, inspect.ismodule)
    public = {
        name
        for module in PACKAGES
        for name in module.__all__
        if name in SHOWN and not any(kind(getattr(module, name)) for kind in kinds)
    }
    told = {}
    for path in MODULES:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, text in itertools.pairwise([*body, None]):
            match node:
                case ast.Assign(targets=[ast.Name(id=n)]) | ast.AnnAssign(target=ast.Name(id=n)):
                    said = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                    told[n] = told.get(n, True) and said
    assert public <= set(told)
    assert not [name for name in public if not told[name]]


ARRAYS = re.compile(r"(TensorType|AnyNDArray|tf\.Tensor)( \| None)?|Sequence\[tf\.Tensor\]")
SHAPED = re.compile(r"\[[^\]]*\]|\b(scalar|shape|shapes|as|same|a number|trainable|fixed)\b")


def test_arrays_have_shapes():
    lacking = []
    for one in EVERY:
        parts = re.split(
            r"^:(param \w+|return|raises [^:]+):", inspect.cleandoc(one.doc), flags=re.M
        )
        told = {k.removeprefix("param "): text for k, text in zip(parts[1::2], parts[2::2])}
        for p in inspect.signature(one.function).parameters.values():
            array = p.name in told and ARRAYS.fullmatch(str(p.annotation))
            if array and not SHAPED.search(told[p.name]):
                lacking.append(f"{one.name}: no shape of {p.name}")
        returned = ARRAYS.fullmatch(str(inspect.signature(one.function).return_annotation))
        if returned and not re.search(r"\[|\b(scalar|shape)\b", one.doc):
            lacking.append(f"{one.name}: no shape of what it returns")
    assert not lacking, "\n".join(lacking)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but in those that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from own_nodes(child)


def raised(f: Any) -> set[str]:
    """The errors that a function raises by name."""
    if f.__code__.co_filename == "<string>":  # a dataclass's constructor
        return set()
    nodes = own_nodes(ast.parse(textwrap.dedent(inspect.getsource(f))).body[0])
    thrown = (n.exc for n in nodes if isinstance(n, ast.Raise))
    names = {e.func.id for e in thrown if isinstance(e, ast.Call) and isinstance(e.func, ast.Name)}
    return {n for n in names if n.endswith("Error")} - {"NotImplementedError", "AssertionError"}


def test_errors_are_described():
    lacking = []
    for one in EVERY:
        told = set(re.findall(r"\w+", " ".join(re.findall(r":raises ([^:]+):", one.doc))))
        lacking += [f"{one.name}: no :raises {e}" for e in raised(one.function) - told]
    assert not lacking, "\n".join(lacking)


def test_formulas_have_a_source():
    year, lacking = re.compile(r"\b(18|19|20)\d\d\b"), []
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        whole = ast.get_docstring(tree) or ""
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                doc = ast.get_docstring(node) or ""
                if "math::" in doc and not year.search(doc + whole):
                    lacking.append(f"{path}: {getattr(node, 'name', 'the module')}")
    assert not lacking, "\n".join(lacking)
