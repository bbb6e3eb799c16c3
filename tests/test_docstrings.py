"""
Docstrings of the public names: parameters, shapes, what is returned, errors.

Public is what a guide, the README or an example shows. Of everything else a test asks nothing: one
plain line, or none where the name says it. What no test here sees: whether what a docstring says is
so; errors of functions that it calls and that are no checkers by name (``check...``,
``checked...``); overrides, which inherit what the method that they override says; and formulas that
are not displayed.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

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
    name
    for page in (ROOT / "docs" / "reference").glob("*.rst")
    for name in re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8"))
}
"""Packages and modules that the reference shows."""

SHOWN = {
    word
    for page in [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.rst"),
        *(ROOT / "examples").rglob("*.py"),
    ]
    for word in re.findall(r"\w+", page.read_text(encoding="utf-8"))
}
"""Words of the guides, the README and the examples."""

MODULES = sorted(Path(gg.__file__).parent.rglob("*.py"))


def packages() -> list[Any]:
    result = pkgutil.walk_packages(gg.__path__, "gpflow_gam.")
    return [gg, *(importlib.import_module(m.name) for m in result if m.ispkg)]


def public_names() -> Iterator[tuple[str, Any]]:
    """
    Classes and functions of ours in ``__all__`` of the package and of all packages in it, and in
    modules that the reference shows: those that a guide, the README or an example names.
    """
    modules = [importlib.import_module(name) for name in sorted(ON_PAGES)]
    for module in dict.fromkeys([*packages(), *modules]):
        own = [
            n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
        ]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            ours = (getattr(value, "__module__", "") or "").startswith("gpflow_gam")
            public = ours and name in SHOWN
            if public and (inspect.isclass(value) or inspect.isfunction(value)):
                yield f"{module.__name__}.{name}", value


NAMES = {id(value): (name, value) for name, value in public_names()}.values()
FUNCTIONS = [(name, f) for name, f in NAMES if inspect.isfunction(f)]
CLASSES = [(name, cls) for name, cls in NAMES if inspect.isclass(cls)]


def function_of(member: Any) -> Any:
    """What a method, a property or a function was defined as, without its decorators."""
    member = getattr(member, "fget", member)
    member = getattr(member, "func", member)  # of a cached property
    return inspect.unwrap(getattr(member, "__func__", member))


def public_methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class and of bases of ours, but those that override others."""
    for place, own in enumerate(cls.__mro__):
        if not own.__module__.startswith("gpflow_gam"):
            continue
        for name, member in vars(own).items():
            inherited = any(name in vars(base) for base in cls.__mro__[place + 1 :])
            f = function_of(member)
            if inspect.isfunction(f) and not name.startswith("_") and not inherited:
                yield name, f


EVERY_METHOD = {
    f: (f"{name}.{m}", cls, f) for name, cls in CLASSES for m, f in public_methods(cls)
}.values()
METHODS = [(name, cls, f) for name, cls, f in EVERY_METHOD if f.__doc__]


def parameters(f: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those with a name of their own that callers use."""
    result = inspect.signature(f).parameters.values()
    return [p for p in result if p.name not in ("self", "_") and p.kind is not p.VAR_KEYWORD]


def fields(doc: str) -> dict[str, str]:
    """The texts of ``:param x:``, by x, and of ``:return:`` and ``:raises E:`` as they stand."""
    parts = re.split(r"^:(param \w+|return|raises [^:]+):", inspect.cleandoc(doc), flags=re.M)
    return {k.removeprefix("param "): text for k, text in zip(parts[1::2], parts[2::2])}


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


def test_every_package_has_a_page_of_reference():
    lacking = {p.__name__ for p in packages()} - ON_PAGES - {"gpflow_gam"}
    assert not lacking, lacking


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


def undocumented(methods: Iterable[tuple[str, Any, Any]]) -> list[str]:
    return [name for name, _, f in methods if not f.__doc__]


def test_methods_have_docstrings():
    assert not undocumented(EVERY_METHOD)


def test_a_method_without_docstring_is_found():
    """Overrides are told from what is new; properties and class methods count."""

    class Own(gg.kernels.Factor):
        __module__ = "gpflow_gam.own"

        def K(self, X: Any, X2: Any = None) -> Any:
            return X

        def new(self) -> None: ...

        @property
        def size(self) -> int:
            return 1

        @classmethod
        def of(cls) -> None: ...

        def told(self) -> None:
            """It is."""

        def _private(self) -> None: ...

    result = [(name, Own, f) for name, f in public_methods(Own)]
    assert undocumented(result) == ["new", "size", "of"]


def values() -> set[tuple[str, str]]:
    """Names in ``__all__``, by package, of what is no class, function or module."""
    return {
        (module.__name__, name)
        for module in packages()
        for name in module.__all__
        if name in SHOWN
        and not (
            inspect.isclass(getattr(module, name))
            or inspect.isfunction(getattr(module, name))
            or inspect.ismodule(getattr(module, name))
        )
    }


def assigned() -> Iterator[tuple[str, Path, bool]]:
    """Names that modules of ours assign, where, and whether what they are stands below."""
    for path in MODULES:
        nodes = [*ast.parse(path.read_text(encoding="utf-8")).body, None]
        for node, text in itertools.pairwise(nodes):
            told = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    yield name, path, told


def test_values_say_what_they_are():
    public = {name for _, name in values()}
    result = [(name, path, told) for name, path, told in assigned() if name in public]
    assert {name for name, _, _ in result} == public
    lacking = [f"{path}: {name}" for name, path, told in result if not told]
    assert not lacking, "\n".join(lacking)


def test_methods_describe_what_they_take():
    lacking = []
    for name, _, f in METHODS:
        every = inspect.signature(f).parameters
        given = [
            p.name for p in parameters(f) if p.name != "cls" and p.kind is not p.VAR_POSITIONAL
        ]
        bare = [p for p in given if not described(p, f.__doc__) and f"``{p}``" not in f.__doc__]
        hands_on = any(p.kind is p.VAR_KEYWORD for p in every.values())
        unknown = (
            [] if hands_on else sorted(set(re.findall(r":param (\w+):", f.__doc__)) - set(every))
        )
        lacking += [f"{name}: no :param for {p}" for p in bare]
        lacking += [f"{name}: :param for {p}, which it does not take" for p in unknown]
        returned = inspect.signature(f).return_annotation
        does = f.__doc__.split()[0].lower() in VERBS and returned not in (None, "None")
        own = f.__qualname__.split(".")[0]  # itself, as of fit()
        if does and returned != own and ":return:" not in f.__doc__:
            lacking.append(f"{name}: does not say what is returned; add :return:")
    assert not lacking, "\n".join(lacking)


ARRAYS = re.compile(r"(TensorType|AnyNDArray|tf\.Tensor)( \| None)?|Sequence\[tf\.Tensor\]")
SHAPED = re.compile(r"\[[^\]]*\]|\b(scalar|shape|shapes|as|same|a number|trainable|fixed)\b")


def documented() -> Iterator[tuple[str, str, Any]]:
    """Docstrings, and the functions whose parameters they describe."""
    for name, f in FUNCTIONS:
        yield name, inspect.getdoc(f) or "", f
    for name, _, f in METHODS:
        yield name, f.__doc__, f
    for name, cls in CLASSES:
        if "__init__" in vars(cls):
            yield name, cls.__doc__ or "", cls.__init__


def test_arrays_have_shapes():
    lacking = []
    for name, doc, f in documented():
        told = fields(doc)
        for p in inspect.signature(f).parameters.values():
            array = p.name in told and ARRAYS.fullmatch(str(p.annotation))
            if array and not SHAPED.search(told[p.name]):
                lacking.append(f"{name}: no shape of {p.name}")
        returned = ARRAYS.fullmatch(str(inspect.signature(f).return_annotation))
        if returned and not re.search(r"\[|\b(scalar|shape)\b", doc):
            lacking.append(f"{name}: no shape of what it returns")
    assert not lacking, "\n".join(lacking)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, but in those that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from own_nodes(child)


@functools.cache
def body(f: Any) -> list[ast.AST]:
    if f.__code__.co_filename == "<string>":  # a dataclass's constructor
        return []
    return list(own_nodes(ast.parse(textwrap.dedent(inspect.getsource(f))).body[0]))


def raised(f: Any) -> set[str]:
    """The errors that a function raises by name."""
    thrown = (n.exc for n in body(f) if isinstance(n, ast.Raise) and n.exc is not None)
    names = (e.func.id for e in thrown if isinstance(e, ast.Call) and isinstance(e.func, ast.Name))
    return {n for n in names if n.endswith("Error")} - {"NotImplementedError", "AssertionError"}


def checkers(f: Any, cls: type | None = None) -> Iterator[Any]:
    """Functions and methods of ours that a function calls, and that are called checkers."""
    for node in body(f):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                result = f.__globals__.get(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name)):
                result = inspect.getattr_static(cls, name, None)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                result = getattr(f.__globals__.get(module), name, None)
            case _:
                continue
        result = function_of(result)
        ours = (getattr(result, "__module__", "") or "").startswith("gpflow_gam")
        if inspect.isfunction(result) and ours and re.match("_?check", name):
            yield result


def raising() -> Iterator[tuple[str, str, Any, type | None]]:
    """Docstrings, and the functions whose errors they describe."""
    for name, f in FUNCTIONS:
        yield name, inspect.getdoc(f) or "", function_of(f), None
    for name, cls, f in METHODS:
        yield name, f.__doc__, f, cls
    for name, cls in CLASSES:
        told = re.search(r"\b[Ss]ee :(func|class):", cls.__doc__ or "")
        for method in ("__init__", "__post_init__"):
            if method in vars(cls) and not told:
                yield name, cls.__doc__ or "", function_of(vars(cls)[method]), cls


def test_errors_are_described():
    lacking = []
    for name, doc, f, cls in raising():
        told = set(re.findall(r"\w+", " ".join(re.findall(r":raises ([^:]+):", doc))))
        lacking += [f"{name}: no :raises {e}" for e in sorted(raised(f) - told)]
        for checker in checkers(f, cls):
            unsaid = sorted(raised(checker) - told)
            lacking += [f"{name}: no :raises {e}, of {checker.__name__}()" for e in unsaid]
    assert not lacking, "\n".join(lacking)


def test_formulas_have_a_source():
    year, lacking = re.compile(r"\b(18|19|20)\d\d\b"), []
    for path in MODULES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        whole = ast.get_docstring(tree) or ""
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                doc = ast.get_docstring(node) or ""
                if "math::" in doc and not year.search(doc) and not year.search(whole):
                    lacking.append(f"{path}: {getattr(node, 'name', 'the module')}")
    assert not lacking, "\n".join(lacking)
