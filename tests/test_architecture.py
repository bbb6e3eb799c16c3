"""Which rooms of the package may see which."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from size import AT_MOST, ROOT, total

PACKAGE = Path(__file__).parent.parent / "gpflow_gam"

ORDER = [
    "version", "backend", "bijectors", "errors", "archive",
    "threads", "storage", "measures", "priors",
    "metrics", "kernels",
    "inducing_variables", "likelihoods", "covariances", "variational",
    "newton.curvatures", "newton",
    "posteriors", "models", "optimizers.minimizers", "optimizers", "sensitivity",
    "gam.terms", "gam.frames", "gam.families", "gam.components", "gam.fits", "gam.effects",
    "gam.summaries", "gam.leave_one_out", "gam.comparison", "gam.plotting", "gam", "gam.screening",
    "layers", "serving", "distribute", "datasets", "sklearn", "",
]  # fmt: skip
"""Each room imports only from those before it; "" is the package's face."""

MAY_SEE_THE_GAM = {"gam", "layers", "serving", "distribute", "sklearn", ""}
BUILD_FROM_TERMS = {"gam.terms", "gam.families", "gam.frames", "gam.components", "gam.fits"}
"""A layer is a GAM's terms on features: it takes what they become, not the GAM."""


def name_of(file: Path) -> str:
    """A module's name inside the package; that of the package itself is empty."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All of them, also inside functions, but for what only type checkers read."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.stmt):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from statements(child)


def imports() -> dict[str, set[str]]:
    """The modules of the package that each of its modules imports."""
    files = {name_of(file): file for file in PACKAGE.rglob("*.py")}
    result: dict[str, set[str]] = {name: set() for name in files}
    for name, file in files.items():
        home = [*name.split("."), ""] if file.stem == "__init__" and name else name.split(".")
        for node in statements(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.level == 0:
                continue
            base = [*home[: len(home) - node.level], *(node.module or "").split(".")]
            target = ".".join(part for part in base if part)
            for alias in node.names:
                inner = f"{target}.{alias.name}".lstrip(".")
                result[name].add(inner if inner in files else target)
    return result


def room(module: str) -> str:
    """The longest entry of :data:`ORDER` that ``module`` is in."""
    inside = [r for r in ORDER if module == r or module.startswith(f"{r}.")]
    assert inside or not module, f"{module} is in no room; add it to ORDER"
    return max(inside, key=len, default="")


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    if not PACKAGE.exists():
        pytest.skip("the sources are not beside the tests")
    return imports()


def test_rooms_import_only_from_those_before_them(graph):
    for module, targets in graph.items():
        for target in targets:
            here, there = ORDER.index(room(module)), ORDER.index(room(target))
            assert there <= here, f"{module or 'the face'} imports {target}"


def test_the_gam_is_seen_only_where_it_is_used(graph):
    for module, targets in graph.items():
        top = module.split(".")[0]
        for target in targets:
            if target.split(".")[0] != "gam" or top == "gam":
                continue
            assert top in MAY_SEE_THE_GAM, f"{module} imports {target}"
            assert top != "layers" or room(target) in BUILD_FROM_TERMS, f"{module} imports {target}"


def test_no_module_imports_itself_by_way_of_others(graph):
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("folder", AT_MOST)
def test_lines_and_files_stay_few(folder):
    """``tox -e size`` says where they are."""
    lines, files = total(ROOT / folder)
    most_lines, most_files = AT_MOST[folder]
    assert lines <= most_lines
    assert files <= most_files
