"""Tables of GAMs: what every program that reads them says is what the GAM says."""

import functools
import io
import itertools
import json
import operator
import os
import pickle
import re
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from programs import output, python
from scipy.optimize import isotonic_regression
from test_export_formats import CASES, responses
from test_export_formats import rows as rows_of_kinds

import gpflow_gam as gg
from gpflow_gam import factor, linear, random_effect, s, te, ti
from gpflow_gam.gam import scorer

pytestmark = pytest.mark.filterwarnings(
    "ignore::gpflow_gam.ExtrapolationWarning",
    "ignore::gpflow_gam.ConvergenceWarning",
    "ignore::gpflow_gam.HeavyTailWarning",
)
NO_TABLE = ("lognormal", "weibull", "hurdle", "zero inflated")  # of a response of two predictors


def table(number: int, seed: int, beyond: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.uniform(-2.0 - beyond, 3.0 + beyond, number),
            "z": rng.normal(size=number),
            "hour of day": rng.uniform(-24.0 * (beyond > 0.0), 24.0, number),
            "g": rng.choice(["a", "b", "it's"], number),
            "site": rng.choice([f"r{i}" for i in range(9 + 3 * (beyond > 0.0))], number),
            "wet": rng.uniform(size=number) < 0.4,
            "size": rng.uniform(0.5, 2.0, number),
        }
    ).assign(log_size=lambda d: np.log(d["size"]))


HOUR = gg.s("hour of day", bs="cc", period=24, k=6)
TERMS = s("x", k=8) + HOUR + factor("g") + random_effect("site") + s("x", by="g", k=5)
TERMS = TERMS + linear("z") + s("z", by="size", k=4) + factor("wet")


@pytest.fixture(scope="module")
def gam() -> gg.GAM:
    data, rng = table(400, 0), np.random.default_rng(1)
    eta = np.sin(2.0 * data["x"]) + 0.4 * (data["g"] == "b") - 0.5 * data["wet"] + data["log_size"]
    eta += 0.5 * np.cos(data["hour of day"] / 12.0 * np.pi)
    terms = TERMS + ti("x", "z", k=4)
    return gg.GAM(terms, family="poisson", offset="log_size").fit(
        data.assign(y=rng.poisson(np.exp(eta))), "y"
    )


@pytest.fixture(scope="module")
def new() -> pd.DataFrame:
    return table(10_000, 5, beyond=3.0)


@pytest.fixture(scope="module")
def folder(gam: gg.GAM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables")
    gg.serving.export(gam, path / "m.json")
    return path


@pytest.fixture(scope="module")
def wanted(gam: gg.GAM, new: pd.DataFrame) -> np.ndarray:
    return gam.predict(new, "link")


def near(found: Any, wanted: np.ndarray, share: float = 1e-3) -> None:
    """Of interpolation errors of a dozen tables, each of 1e-4 of its range or 1e-3 beyond data."""
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=share * np.ptp(wanted))


# --- frames --------------------------------------------------------------------------------------


def test_frames_show_standard_errors_of_effects(gam: gg.GAM) -> None:
    frame = gam.tables(level=0.8)["s(x)"]
    known = gam.effects("s(x)", {"x": frame["x"]}, level=0.8)
    for column in ("estimate", "se", "lower", "upper"):
        np.testing.assert_allclose(frame[column], known[column], rtol=1e-8, atol=1e-10)
    assert frame["rows"].sum() == 400


def test_relativities_are_of_a_base_level(gam: gg.GAM) -> None:
    frame = gam.tables(scale="response", base={"g": "b"}, error=0.01)["factor(g)"].set_index("g")
    link = gam.tables(base={"g": "b"}, error=0.01)["factor(g)"].set_index("g")
    plain = gam.tables(error=0.01)["factor(g)"].set_index("g")
    assert frame.loc["b", ["estimate", "lower", "upper"]].tolist() == [1.0, 1.0, 1.0]
    assert "se" not in frame
    np.testing.assert_allclose(frame["lower"], np.exp(link["lower"]))
    np.testing.assert_allclose(link["estimate"], plain["estimate"] - plain["estimate"]["b"])
    draws = gam.sample_effects("factor(g)", ["a", "b", "it's"], num_samples=20_000)
    sd = np.std(draws - draws[:, [1]], axis=0)
    np.testing.assert_allclose(link["se"], sd, rtol=0.05)


def test_straight_lines_are_as_close_as_stated(gam: gg.GAM) -> None:
    for error in (1e-2, 1e-3):
        frame = gam.tables(error=error)["s(x)"]
        middles = 0.5 * (frame["x"].to_numpy()[1:] + frame["x"].to_numpy()[:-1])
        true = gam.effects("s(x)", {"x": middles})["estimate"]
        off = np.abs(np.interp(middles, frame["x"], frame["estimate"]) - true).max()
        assert off <= error * np.ptp(frame["estimate"])
    assert len(gam.tables(error=1e-2)["s(x)"]) < len(gam.tables(error=1e-3)["s(x)"]) / 2


@pytest.mark.parametrize("name", ["s(x)", "s(x):g=a", "s(hour of day)"])
def test_bins_have_averages_over_their_rows(gam: gg.GAM, name: str) -> None:
    column = "hour of day" if "hour" in name else "x"
    breaks = [0, 6, 12, 18, 24] if "hour" in name else [-1.5, 0.0, 2.5, np.inf]
    data = table(400, 0)
    data = data[data["g"] == "a"] if "=a" in name else data
    frame = gam.tables(bins={column: breaks})[name]
    assert frame[column].tolist() == list(pd.IntervalIndex.from_breaks(breaks, closed="left"))
    cell = pd.cut(data[column], breaks, right=False)  # of x, some rows are in none
    effect = gam.predict(data, "terms")[name]
    known = effect.groupby(cell, observed=False)
    np.testing.assert_allclose(frame["estimate"], known.mean(), rtol=1e-8, atol=1e-10)
    off = (effect - known.transform("mean")).abs().groupby(cell, observed=False).max()
    np.testing.assert_allclose(frame["error"], off, rtol=1e-8)
    assert frame["rows"].tolist() == known.size().tolist()
    draws = pd.DataFrame(gam.sample_effects(name, data[column], 4000).T, index=data.index)
    means = draws.groupby(cell, observed=False).mean()
    np.testing.assert_allclose(frame["se"], means.std(axis=1), rtol=0.06)
    # relativities are to the bin of the base level
    based = gam.tables(bins={column: breaks}, base={column: 1.0}, scale="response")[name]
    k = int(np.argmax(frame[column].array.contains(1.0)))
    wanted = np.exp(frame["estimate"] - frame["estimate"][k])
    np.testing.assert_allclose(based["estimate"], wanted)
    np.testing.assert_allclose(based["error"], np.exp(frame["error"]))
    assert based.loc[k, ["lower", "upper"]].tolist() == pytest.approx([1.0, 1.0])
    gap = means.sub(means.iloc[k]).std(axis=1)
    half = np.log(based["upper"] / based["lower"]) / 2.0 / 1.959964
    np.testing.assert_allclose(half, gap, rtol=0.06, atol=1e-9)


def test_bins_of_surfaces_and_where_there_are_no_rows(gam: gg.GAM) -> None:
    data, x, z = table(400, 0), [-2.0, 0.0, 3.0], [-3.0, 0.0, 3.0]
    terms, acting = gam.predict(data, "terms"), data["z"].abs() < 3.0
    cells = [pd.cut(data[c], b, right=False) for c, b in (("x", x), ("z", z))]
    frame = gam.tables(bins={"x": x, "z": z})["ti(x,z)"]
    known = terms["ti(x,z)"][acting].groupby(cells, observed=False)
    np.testing.assert_allclose(frame["estimate"], known.mean(), rtol=1e-8, atol=1e-10)
    assert frame["rows"].tolist() == known.size().tolist()
    # beside knots an average is of the rows that are nearest to a knot, moved onto it
    frame = gam.tables(bins={"x": x}, knots={"z": z})["ti(x,z)"]
    near = data[(data["x"] >= 0.0) & (data["z"] >= 1.5)].assign(z=3.0)
    wanted = gam.effects("ti(x,z)", near[["x", "z"]])["estimate"].mean()
    row = frame[(frame["z"] == 3.0) & (frame["x"] == pd.Interval(0.0, 3.0, closed="left"))]
    assert row["estimate"].item() == pytest.approx(wanted, rel=1e-8)
    frame = gam.tables(bins={"x": [0.0, 4.0, 5.0]})["s(x)"]
    even = gam.effects("s(x)", {"x": np.linspace(4.0, 5.0, 101)})["estimate"].mean()
    assert frame["rows"][1] == 0
    assert frame["estimate"][1] == pytest.approx(even, abs=0.01 * frame["se"][1])


# --- files ---------------------------------------------------------------------------------------

ALONE = """
import json, sys
for name in ("tensorflow", "gpflow", "keras", "pandas", "scipy", "gpflow_gam"):
    sys.modules[name] = None
import gpflow_gam_scorer as scorer
data = json.load(open(sys.argv[1]))
answer = scorer.predict(scorer.load(sys.argv[2]), data)
terms = {k: v.tolist() for k, v in answer.pop("terms").items()}
print(json.dumps({k: v.tolist() for k, v in answer.items()} | {"terms": terms}))
"""


BROWSER = shutil.which("chromium")


@pytest.fixture(scope="module")
def answer(folder: Path, new: pd.DataFrame) -> dict[str, Any]:
    """Of the scorer, in a process that can import none of what made the file."""
    (folder / "rows.json").write_text(json.dumps(new.to_dict("list")))
    return json.loads(python(ALONE, "rows.json", "m.json", cwd=folder))


def test_scorer_says_what_the_gam_says(
    gam: gg.GAM, answer: dict[str, Any], new: pd.DataFrame, wanted: np.ndarray
) -> None:
    near(answer["predictor"], wanted)
    _, se = gam.predict(new, "link", se=True, unconditional=False)
    np.testing.assert_allclose(answer["se"], se, rtol=0.01)
    known = gam.predict(new, interval=0.95, unconditional=False)
    columns = {"response": "estimate", "lower": "lower", "upper": "upper"}
    for name, column in columns.items():
        np.testing.assert_allclose(answer[name], known[column], rtol=0.02)
    terms = gam.predict(new, "terms")
    for name, values in answer["terms"].items():
        if name != "intercept":
            near(values, terms[name].to_numpy(), 1e-3 * np.ptp(wanted) / np.ptp(terms[name]))


def by_javascript(folder: Path, new: pd.DataFrame) -> list[dict[str, Any]]:
    (folder / "rows_js.json").write_text(json.dumps(new.to_dict("records")))
    program = """
    const fs = require("fs"), { predict } = require("./gpflow_gam_scorer.js");
    const read = (path) => JSON.parse(fs.readFileSync(path)), model = read("m.json");
    console.log(JSON.stringify(read("rows_js.json").map((row) => predict(model, row))));
    """
    return json.loads(output("node", "-e", program, cwd=folder))


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the scorer in JavaScript")
def test_javascript(folder: Path, answer: dict[str, Any], new: pd.DataFrame) -> None:
    rows = by_javascript(folder, new)
    for name in ("predictor", "se", "median", "response", "lower", "upper"):
        np.testing.assert_allclose([row[name] for row in rows], answer[name], rtol=1e-7)


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the scorer in JavaScript")
def test_javascript_takes_any_name_of_a_column_and_truth_values_for_numbers(tmp_path: Path) -> None:
    rng, names = np.random.default_rng(0), ["__proto__", "constructor"]
    data = pd.DataFrame(rng.uniform(size=(60, 2)), columns=names).assign(wet=np.arange(60) % 2 > 0)
    gam = gg.GAM(s("__proto__", k=4) + linear("constructor") + linear("wet"))
    gam.fit(data, data.sum(axis=1).to_numpy() + 0.1 * rng.normal(size=60), max_iterations=3)
    gg.serving.export(gam, tmp_path / "m.json")
    new = pd.concat([data.head(5), data.head(5).assign(wet=~data["wet"])])
    rows, wanted = by_javascript(tmp_path, new), gam.predict(new, "link")
    found = np.array([row["predictor"] for row in rows])
    near(found, wanted)
    np.testing.assert_allclose(found[:5] - found[5:], wanted[:5] - wanted[5:], rtol=1e-9)
    assert set(rows[0]["terms"]) > {"s(__proto__)", "linear(constructor)"}
    if BROWSER is not None:
        gg.serving.export(gam, tmp_path / "m.html")
        now = shown(opened(tmp_path / "m.html", {**data.iloc[0], "wet": 0})).split()[0]
        assert float(now) == pytest.approx(gam.predict(data.head(1))[0], rel=0.01)


def opened(page: Path, values: dict[str, Any]) -> str:
    """The document of a page that a browser has opened at these values."""
    link = f"{page.as_uri()}#{urllib.parse.urlencode(values)}"
    return output(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", link)


def shown(document: str) -> str:
    """The prediction in it."""
    found = re.search(r'id="now">([^<]*)<', document)
    assert found is not None
    return found[1]


@pytest.mark.skipif(BROWSER is None, reason="chromium opens the page")
def test_pages_show_the_prediction_at_the_values_set(gam: gg.GAM, tmp_path: Path) -> None:
    gg.serving.export(gam, tmp_path / "m.html", level=0.8)
    values = {"x": 0.5, "z": -0.25, "hour of day": 7.0, "g": "it's", "site": "r3", "wet": True}
    values |= {"size": 1.5, "log_size": np.log(1.5)}
    page = opened(tmp_path / "m.html", values | {"wet": "true"})
    now = shown(page)
    found = [float(v) for v in re.findall(r"(?<![%.\d])\d+\.\d+(?!%)", now)]
    wanted = gam.predict(pd.DataFrame([values]), interval=0.8, unconditional=False).iloc[0]
    np.testing.assert_allclose(found, wanted[["estimate", "lower", "upper"]], rtol=0.02)
    assert "80% interval" in now
    counts = {"<svg": 6, "<polygon": 3, 'type="range"': 3, 'type="number"': 2}  # levels have bars
    assert {text: page.count(text) for text in counts} == counts
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # it needs no network


@pytest.mark.skipif(BROWSER is None, reason="chromium opens the page")
@pytest.mark.parametrize("day", ["2024-05-01", "19844", "soon"])
def test_pages_are_opened_at_dates(day: str, tmp_path: Path) -> None:
    data = pd.DataFrame({"day": pd.date_range("2024-03-02", "2024-06-30")})  # May 1 is the middle
    data["y"] = 3.0 + np.sin(np.arange(len(data)) / 20.0)
    gam = gg.GAM("y ~ s(day, k=9)").fit(data)
    gg.serving.export(gam, tmp_path / "m.html")
    now = shown(opened(tmp_path / "m.html", {"day": day})).split()[0]
    wanted = gam.predict({"day": [pd.Timestamp("2024-05-01")]})[0]
    assert float(now) == pytest.approx(wanted, rel=0.01)


@pytest.mark.skipif(BROWSER is None, reason="chromium opens the page")
def test_pages_of_edited_tables_and_of_names_that_are_markup(tmp_path: Path) -> None:
    name, rng = "</script><b>x", np.random.default_rng(0)
    data = pd.DataFrame({name: rng.uniform(size=100)}).assign(y=rng.normal(size=100))
    gam = gg.GAM(s(name, k=5)).fit(data, "y")
    edited = gam.edit(f"s({name})", monotone="increasing", reason="known")
    gg.serving.export(edited, tmp_path / "m.html")
    page = opened(tmp_path / "m.html", {name: 0.5})
    # a number alone, without an interval
    assert float(shown(page)) == pytest.approx(edited.predict({name: [0.5]})[0], rel=0.01)
    assert "&lt;/script&gt;&lt;b&gt;x" in page
    assert page.count("<polyline") == 1


@pytest.mark.parametrize("link", ["logit", "cloglog"])
def test_far_away_probabilities_are_quiet_and_small_ones_exact(link: str, tmp_path: Path) -> None:
    data = pd.DataFrame({"x": np.linspace(-2.0, 2.0, 60)})
    data["y"] = data["x"] + np.sin(99.0 * data["x"]) > 0.0
    gam = gg.GAM(linear("x"), gg.families.Bernoulli(link)).fit(data, "y")
    gg.serving.export(gam, tmp_path / "m.json")
    with np.errstate(over="raise"):
        answer = scorer.predict(scorer.load(tmp_path / "m.json"), {"x": [-4000.0, -40.0, 4000.0]})
    assert answer["predictor"][1] < -35.0
    want = [0.0, np.exp(answer["predictor"][1]), 1.0]
    np.testing.assert_allclose(answer["median"], want, rtol=1e-12, atol=1e-300)


# --- databases and spreadsheets ------------------------------------------------------------------


class Exported(NamedTuple):
    """Files of a GAM, rows of data, and what the scorer says of them."""

    gam: gg.GAM
    folder: Path
    rows: pd.DataFrame
    answer: dict[str, Any]

    def check(self, found: pd.DataFrame, atol: float = 1e-9) -> None:
        """Compare the columns that a program has computed, rows in any order."""
        found = found.sort_values("row")
        for name, known in (("predictor", "predictor"), ("response", "median")):
            columns = found[[c for c in found if str(c).startswith(name)]].to_numpy(dtype=float)
            wanted = self.answer[known].reshape(columns.shape)
            np.testing.assert_allclose(columns, wanted, rtol=1e-9, atol=atol)


Program = Callable[[Exported], pd.DataFrame]


def written(folder: Path, gam: gg.GAM, new: pd.DataFrame) -> Exported:
    folder.mkdir(exist_ok=True)
    for kind in ("json", "sql"):
        gg.serving.export(gam, folder / f"m.{kind}")
    dates = new.select_dtypes("datetime")
    days = {c: (dates[c] - pd.Timestamp(0)) / pd.Timedelta(days=1) for c in dates}
    text = new.assign(**days).to_json(orient="split", double_precision=15)
    (folder / "rows.json").write_text(text)
    rows = pd.DataFrame(**json.loads(text))  # as programs read them
    answer = scorer.predict(scorer.load(folder / "m.json"), rows)
    link = np.asarray(gam.predict(new, "link"))
    near(answer["predictor"].reshape(link.shape), link, 2e-3)
    return Exported(gam, folder, rows.assign(row=range(len(rows))), answer)


@pytest.fixture(scope="module")
def various(gam: gg.GAM, tmp_path_factory: pytest.TempPathFactory) -> list[Exported]:
    """All kinds of columns and terms; the ends of ranges, and rows beyond; responses of 0 and 1."""
    data, new, rng = table(200, 0), table(10_000, 5, beyond=3.0), np.random.default_rng(1)
    ends = data["x"].agg(["min", "max"]).tolist()
    new.loc[:3, "x"] = [*ends, *np.nextafter(ends, [-9.0, 9.0])]
    new.loc[:3, "hour of day"] = [0.0, 24.0, -24.0, 48.0]
    for frame in (data, new):
        frame["days"] = rng.uniform(1.0, 90.0, len(frame))
        frame["rank"] = rng.integers(0, 3, len(frame))
        frame.loc[::7, "rank"] = None  # which is filled in
        frame.loc[1::7, "z"] = np.nan
        frame["far"] = 1.0 * frame["x"]
        frame["date"] = pd.Timestamp("2024-02-01") + pd.to_timedelta(10.0 * frame["x"], "D")
    new.loc[:1, "far"] = [-4000.0, 4000.0]
    data["count"] = rng.poisson(np.exp(0.5 * np.sin(data["x"])))
    data["cost"] = np.exp(np.sin(data["x"]) + 0.1 * rng.normal(size=200))
    data["kind"] = rng.choice(["u", "v", "w"], 200)
    data["sure"] = data["far"] + rng.normal(size=200) > 0.0
    days = "count ~ s(log(days), k=5) + te(x, log(days), k=3) + offset(log(size))"
    filled = (
        "cost ~ s(x, rank, bs='fs', k=4) + factor(wet) + s(x, by=wet, k=4) + s(z, k=5) + s(date)"
    )
    classes = gg.GAM(
        "kind ~ s(x, k=4) + te(x, z, k=3) + factor(wet)", "categorical", missing="drop"
    )
    models = {
        # as far as tables of surfaces go
        "days": (gg.GAM(days, "poisson"), new.assign(x=new["x"].clip(-3.2, 4.2))),
        "filled": (gg.GAM(filled, "gamma", missing="impute"), new),
        "classes": (classes, new.dropna()),
        "sure": (gg.GAM("sure ~ linear(far) + factor(g)", gg.families.Bernoulli("cloglog")), new),
    }
    folder = tmp_path_factory.mktemp("various")
    result = [written(folder / "counts", gam, table(10_000, 6, beyond=3.0))]
    for name, (model, rows) in models.items():
        fit = model.fit(data, max_iterations=5)
        result.append(written(folder / name, fit, rows))
    return result


SQLITE = """
import json, sqlite3
rows, sql = json.load(open("rows.json")), open("m.sql").read()
connection = sqlite3.connect(":memory:")
connection.row_factory = sqlite3.Row
names = ", ".join(f'"{name}"' for name in ["row", *rows["columns"]])
connection.execute(f"CREATE TABLE data ({names})")
places = ", ".join("?" for _ in range(1 + len(rows["columns"])))
content = [(i, *row) for i, row in enumerate(rows["data"])]
connection.executemany(f"INSERT INTO data VALUES ({places})", content)
print(json.dumps([dict(r) for r in connection.execute(sql)]))
"""


def by_sqlite(case: Exported) -> pd.DataFrame:
    # in a process of its own: TensorFlow brings an SQLite without exp, which takes its place
    return pd.DataFrame(json.loads(python(SQLITE, cwd=case.folder)))


def by_duckdb(case: Exported) -> pd.DataFrame:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("data", case.rows)
        return connection.execute((case.folder / "m.sql").read_text()).df()


@pytest.fixture(scope="module")
def by_postgres() -> Iterator[Program]:
    """A server of its own, which listens on a socket in its folder alone."""
    programs = Path(shutil.which("postgres") or "").resolve().parent
    if shutil.which("psql") is None or not (programs / "initdb").exists():
        pytest.skip("PostgreSQL scores the rows")
    user = {"user": "nobody"} if os.geteuid() == 0 else {}  # it does not run as root
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if user:
        shutil.chown(folder, user["user"])

    def run(*command: Any) -> None:
        quiet = subprocess.DEVNULL  # a pipe would stay open as long as the server
        subprocess.run(
            command, cwd=folder, check=True, stdout=quiet, stderr=quiet, timeout=60, **user
        )

    def ask(case: Exported) -> pd.DataFrame:
        kinds = {"i": "bigint", "f": "double precision", "b": "boolean"}
        columns = [f'"{c}" {kinds.get(case.rows[c].dtype.kind, "text")}' for c in case.rows]
        script = f"""
            DROP TABLE IF EXISTS data CASCADE;
            CREATE TABLE data ({", ".join(columns)});
            COPY data FROM STDIN WITH (FORMAT csv);
        """
        script += case.rows.to_csv(index=False, header=False) + "\\.\nCREATE VIEW scores AS\n"
        script += (case.folder / "m.sql").read_text() + "SELECT * FROM scores;"
        command = ["psql", "-h", folder, "-U", "postgres", "-Xq", "--csv", "-v", "ON_ERROR_STOP=1"]
        return pd.read_csv(io.StringIO(output(*command, input=script)))

    data = folder / "data"
    options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
    run(programs / "initdb", "-D", data, *options)
    run(programs / "pg_ctl", "-D", data, "-w", "-o", f"-h '' -k {folder} -c jit=off", "start")
    yield ask
    run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(folder)


@pytest.mark.parametrize("program", [by_sqlite, by_duckdb])
def test_databases(program: Program, various: list[Exported]) -> None:
    for case in various:
        case.check(program(case))


def test_postgresql(by_postgres: Program, various: list[Exported]) -> None:
    for case in various:
        case.check(by_postgres(case))


@pytest.mark.parametrize(
    ("of", "most"), [(gg.families.Bernoulli("probit"), 1), (gg.families.Ordinal((0, 1, 2)), 2)]
)
def test_responses_that_databases_have_no_function_for(
    of: Any, most: int, by_postgres: Program, tmp_path: Path
) -> None:
    """At ten thousand rows, which are not compared with each of four thousand pieces."""
    data, rng = table(300, 3).assign(shift=0.0), np.random.default_rng(0)
    y = np.digitize(np.sin(data["x"]) + rng.normal(size=300), [-0.5, 0.5][-most:])
    gam = gg.GAM(s("x", k=5) + factor("g"), of, offset="shift").fit(data, y, max_iterations=3)
    far = np.array([-1e3, -38.0, -9.0, -6.0, 0.0, 6.0, 9.0, 38.0, 1e3])
    new = data.sample(10_000, replace=True, random_state=0, ignore_index=True)
    case = written(tmp_path, gam, new.assign(shift=np.resize(far, 10_000)))
    for program in (by_sqlite, by_duckdb, by_postgres):
        case.check(program(case), atol=1e-6 if most == 1 else 1e-9)


OF_A_SCHEMA = ("main.rows", '"main"."of.may"', '"gam_t1"', "odd name")


def test_tables_are_scored_again_and_of_any_name(tmp_path: Path) -> None:
    names = ["x", "predictor", "Response", "low", "high", "knot", "t1", "d", "level"]
    data = pd.DataFrame(np.random.default_rng(0).uniform(size=(80, len(names))), columns=names)
    data["y"] = np.arange(80) % 2
    gam = gg.GAM("y ~ x + low + predictor", "bernoulli").fit(data, max_iterations=5)
    case, known = written(tmp_path, gam, data.head(9)), ["row", "predictor", "response"]
    rows = case.rows  # DuckDB finds it by its name
    assert len(rows) == 9
    case.check(by_sqlite(case)[known])
    case.check(by_duckdb(case)[known])
    duckdb = pytest.importorskip("duckdb")
    for name in ("t1", "Scored", "gam_t1", "d", *OF_A_SCHEMA):
        gg.serving.export(case.gam, tmp_path / "m.sql", table=name, overwrite=True)
        quoted = name if '"' in name else ".".join(f'"{part}"' for part in name.split("."))
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM rows")
            case.check(connection.execute((tmp_path / "m.sql").read_text()).df()[known])


def test_what_is_no_number_is_null_and_levels_keep_all_digits(
    by_postgres: Program, tmp_path: Path
) -> None:
    rng, doses = np.random.default_rng(0), np.arange(0.0, 0.75, 0.1)  # .30000000000000004
    data = pd.DataFrame(rng.uniform(size=(90, 3)), columns=["x", "shift", "times"])
    data["g"], data["dose"] = rng.choice([*"abc"], 90), rng.choice(doses, 90)
    data["y"] = data["x"] * (data["g"] == "a") + data["dose"] + 0.1 * rng.normal(size=90)
    terms = s("x", by="g", k=4) + random_effect("g") + s("x", by="times", k=4) + factor("dose")
    gam = gg.GAM(terms, offset="shift").fit(data, "y", max_iterations=3)
    for kind in ("json", "sql"):
        gg.serving.export(gam, tmp_path / f"m.{kind}")
    rows = data.iloc[:8].assign(dose=doses, g=[*"abca", "new", *"ca", "new"])
    strange = [("shift", np.nan), ("shift", np.inf), ("times", np.nan), ("times", -np.inf)]
    for row, (name, value) in enumerate([*strange, ("x", np.nan), ("dose", 9.9)]):
        rows.loc[row, name] = value
    answer = scorer.predict(scorer.load(tmp_path / "m.json"), rows[6:])
    content = {"columns": [*rows], "data": rows.astype(object).where(rows.notna(), None).to_numpy()}
    (tmp_path / "rows.json").write_text(json.dumps(content, default=np.ndarray.tolist))
    text = rows.astype({name: str for name in ("x", "shift", "times")})  # NaN and not NULL
    case = Exported(gam, tmp_path, text.assign(row=range(8)), answer)
    for program in (by_sqlite, by_duckdb, by_postgres):
        found = program(case).sort_values("row")
        assert found[["predictor", "response"]][:6].isna().all(axis=None)
        case.check(found[6:])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice computes the sheets")
def test_excel(various: list[Exported], tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    for case in various:
        gg.serving.export(case.gam, case.folder / "m.xlsx")
        book = openpyxl.load_workbook(case.folder / "m.xlsx")
        columns, sheet = scorer.load(case.folder / "m.json")["columns"], book["score"]
        rows = case.rows.head(60)
        for j, name in enumerate(columns, start=1):
            given = rows[name] if name in rows else np.log(rows[name[4:-1]])
            if columns[name]["time"]:
                given = pd.Timestamp(0) + pd.to_timedelta(given, "D")
            for i, value in enumerate(given.astype(object), start=2):
                sheet.cell(i, j, None if pd.isna(value) else value)
        sheet.cell(102, 1, 0.5)  # the other columns are blank
        book.save(tmp_path / f"{case.folder.name}.xlsx")
    command = ["soffice", f"-env:UserInstallation=file://{tmp_path}/office", "--headless"]
    command += ["--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", tmp_path / "computed"]
    command += [tmp_path / f"{case.folder.name}.xlsx" for case in various]
    output(*command)
    for case in various:
        path = tmp_path / "computed" / f"{case.folder.name}.xlsx"
        whole = pd.read_excel(path, "score", keep_default_na=False)
        found = whole.loc[:, [str(c).startswith(("predictor", "response")) for c in whole]]
        first = {name: case.answer[name][:60] for name in ("predictor", "median")}
        case._replace(answer=first).check(found.head(60).assign(row=range(60)))
        filled = case.folder.name == "filled"  # the others have an error there
        assert found.iloc[100].isna().all() != filled
        assert set(found.iloc[60:100].to_numpy().ravel()) == {""}
        assert len(found) == 101


@pytest.mark.parametrize(
    ("levels", "message"),
    [("ab?", "the level '\\?'"), ("abA", "capitals"), ("ab\x01", "x01'"), ("ab\r", "r', which")],
)
def test_levels_that_excel_mixes_up_are_refused(levels: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    data = pd.DataFrame({"g": list(levels) * 10, "y": np.arange(30.0)})
    gam = gg.GAM(factor("g")).fit(data, "y", max_iterations=1)
    with pytest.raises(ValueError, match=message):
        gg.serving.export(gam, tmp_path / "m.xlsx")


def test_sheets_hold_names_of_any_characters(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    name, rng = "two\r\nlines\x01", np.random.default_rng(0)
    data = pd.DataFrame({name: rng.uniform(size=60)})
    gam = gg.GAM(s(name, k=4)).fit(data, rng.normal(size=60), max_iterations=1)
    gg.serving.export(gam, tmp_path / "m.xlsx")
    book = openpyxl.load_workbook(tmp_path / "m.xlsx")
    assert [cell.value for cell in book["score"][1]][:2] == ["two lines ", "s(two lines )"]
    (sheet,) = set(book.sheetnames) - {"score"}
    assert f"INDEX('{sheet}'!" in book["score"]["B2"].value


@pytest.mark.parametrize("kind", ["times", "dates", "text"])
def test_sheets_look_levels_up(kind: str, tmp_path: Path) -> None:
    """No formula names a date, which Excel would take for a difference."""
    openpyxl = pytest.importorskip("openpyxl")
    rng = np.random.default_rng(0)
    day = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-05"] * 30))
    levels = {"times": day, "dates": day.dt.date, "text": day.astype(str)}[kind]
    data = pd.DataFrame({"day": levels, "x": rng.uniform(size=60)})
    data["y"] = data["x"] * (day == day[0]) + 0.1 * rng.normal(size=60)
    holes = data.assign(day=data["day"].astype(object).where(data.index % 7 > 0, None))
    curves, row = s("x", by=factor("day"), k=4), {}
    for name, terms, given, missing in (
        ("error", curves + factor("day"), data, "error"),
        ("new", curves + random_effect("day"), data, "error"),
        ("fill", curves + factor("day"), holes, "impute"),
    ):
        gam = gg.GAM(terms, missing=missing).fit(given, "y", max_iterations=1)
        gg.serving.export(gam, tmp_path / f"{name}.xlsx")
        book = openpyxl.load_workbook(tmp_path / f"{name}.xlsx")
        at = {cell.value: cell.column_letter for cell in book["score"][1]}
        own = at["day"] + "2"
        curve = next(c for c in at if str(c).startswith("s(x)") and "-05" in c)
        row[name] = book["score"][at[curve] + "2"].value.replace(f"${own}", "?")
    assert re.search(r"IF\(MATCH\(\?,'s\(x\)[^,]*\$3,0\)=2,INDEX\(", row["error"])
    assert re.search(r"IF\(IFERROR\(MATCH\(\?,'s\(x\)[^,]*\$3,0\),0\)=2,INDEX\(", row["new"])
    known = ['"2024-01-01"', '"2024-01-05"'] if kind == "text" else ["45292", "45296"]
    assert re.search(rf"MATCH\(IF\(ISBLANK\(\?\),({'|'.join(known)}),\?\),'s", row["fill"])


def test_whole_numbers_that_programs_round_are_refused(tmp_path: Path) -> None:
    """Two identifiers would be one level."""
    ids = [1234567890123456789, 1234567890123456790] * 15
    data = pd.DataFrame({"id": ids, "y": np.tile([1.0, 2.0], 15)})
    gam = gg.GAM(factor("id")).fit(data, "y", max_iterations=1)
    for name in ("m.xlsx", "m.html"):
        with pytest.raises(ValueError, match=r"'id' has the level 123\d*, which .* look up"):
            gg.serving.export(gam, tmp_path / name)
    case = written(tmp_path, gam, data.head(2))
    case.check(by_sqlite(case))
    if shutil.which("node") is not None:
        program = """
        const { predict } = require("./gpflow_gam_scorer.js");
        const model = JSON.parse(fs.readFileSync("m.json"));
        try { console.log(predict(model, { id: model.columns.id.levels[0] })); }
        catch (error) { console.log(error.message); }
        """
        assert "which JavaScript rounds" in output("node", "-e", program, cwd=tmp_path)


@pytest.mark.slow
def test_pmml(gam: gg.GAM, new: pd.DataFrame, tmp_path: Path) -> None:
    pypmml = pytest.importorskip("pypmml")
    with pytest.raises(ValueError, match=r"ti\(x,z\).*several columns"):
        gg.serving.export(gam, tmp_path / "m.pmml")
    assert not list(tmp_path.iterdir())
    data = table(200, 3).assign(y=lambda d: np.exp(np.sin(d["x"]) + 0.2 * d["wet"]))
    other = gg.GAM(TERMS, family="gamma", offset="log_size").fit(data, "y", max_iterations=3)
    gg.serving.export(other, tmp_path / "m.pmml")
    answer = pypmml.Model.load(str(tmp_path / "m.pmml")).predict(new)
    near(np.log(answer["predicted_y"].astype(float)), other.predict(new, "link"))


@pytest.mark.parametrize(
    ("formula", "family", "title", "field"),
    [
        ("Surv(time, died) ~ x", "cox", "Relative hazard", "relative_hazard"),
        ("time ~ x", gg.families.Quantile(tau=0.9), "Quantile of time", "time"),
        ("time ~ x", "gamma", "Expected time", "time"),
    ],
)
def test_files_name_what_they_answer(
    formula: str, family: Any, title: str, field: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(0.1, 1.0, (80, 2)), columns=["x", "time"]).assign(died=True)
    gam = gg.GAM(formula, family).fit(data, max_iterations=2)
    gg.serving.export(gam, tmp_path / "m.pmml")
    (target,) = re.findall(r'name="(\w+)" usageType="target"', (tmp_path / "m.pmml").read_text())
    assert target == field
    if BROWSER is not None:
        gg.serving.export(gam, tmp_path / "m.html")
        assert f"<h1>{title}</h1>" in opened(tmp_path / "m.html", {})


def test_pmml_fields_have_names_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = ["term1", "term1_alone", "Term2", "y"]
    data = pd.DataFrame(rng.uniform(size=(60, 4)), columns=names)
    data["g"] = rng.choice([*"ab"], 60)
    terms = s("term1", by="g", k=4) + random_effect("g") + linear("term1_alone") + linear("y")
    gam = gg.GAM(terms, offset="Term2").fit(data, rng.normal(size=60), max_iterations=1)
    gg.serving.export(gam, tmp_path / "m.pmml")
    root = ElementTree.parse(tmp_path / "m.pmml").getroot()
    fields = [e for e in root.iter() if e.tag.endswith(("DataField", "DerivedField"))]
    found = [field.get("name") for field in fields]
    assert len(set(found)) == len(found)
    assert {*names, "g"} < set(found)


# --- all kinds -----------------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("case", [name for name in CASES if name not in NO_TABLE])
def test_kinds(case: str, tmp_path: Path) -> None:
    terms, family, response = CASES[case]
    data, new = rows_of_kinds(), rows_of_kinds(10_000, 7)
    gam = gg.GAM(terms, family).fit(data, responses()[response], max_iterations=8)
    gg.serving.export(gam, tmp_path / "m.json")
    answer = scorer.predict(scorer.load(tmp_path / "m.json"), new)
    link, se = gam.predict(new, "link", se=True, unconditional=False)
    link, se = np.reshape(link, (len(new), -1)), np.reshape(se, (len(new), -1))
    size = np.ptp(link, axis=0) + se.max(axis=0)  # of a function that vanished, its errors
    off = np.abs(answer["predictor"].reshape(link.shape) - link) / size
    assert off.max() < 1e-3
    ends = data.select_dtypes("float").agg(["min", "max"])
    within = (new[ends.columns] >= ends.loc["min"]) & (new[ends.columns] <= ends.loc["max"])
    within = within.all(axis=1).to_numpy()
    assert np.max(np.abs(answer["se"].reshape(se.shape) / se - 1.0)[within]) < 0.02
    draws = link.shape[1] > 1  # of which the GAM's own estimate is the average
    expected = gam.predict(new, unconditional=False)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(answer["response"], expected, atol=(0.05 if draws else 2e-3) * scale)


def columns_of_every_density(case: str) -> tuple[gg.GAM, dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    x, z, noise = rng.uniform(0.0, 10.0, 400), rng.normal(size=400), 0.1 * rng.normal(size=400)
    if case == "skewed":
        x = np.exp(1.5 * rng.normal(size=400) + 2.0)
        return gg.GAM(s("x", k=20)), {"x": x}, np.sin(2.0 * np.log(x)) + noise
    if case == "clusters":
        x = np.concatenate([z[:199], 100.0 + z[200:399], [-300.0, 1000.0]])
        return gg.GAM(s("x", k=40)), {"x": x}, np.sin(3.0 * x) + noise
    if case == "iterncgp":
        gam = gg.GAM(s("x", k=8) + linear("z"), engine="iterncgp")
        return gam, {"x": x[:200], "z": z[:200]}, (np.sin(x) + z + noise)[:200]
    if case == "confounded":  # each is known far less than the sum of both is
        terms = s("x") + linear("z") + s("x", "z", k=25)
        return gg.GAM(terms), {"x": x, "z": z}, np.sin(x) + z + noise
    if case == "many":
        wide = {f"x{i}": rng.uniform(size=400) for i in range(8)}
        terms = sum((s(name, k=8) for name in list(wide)[1:]), s("x0", k=8))
        return gg.GAM(terms), wide, sum(np.sin(6.0 * v) for v in wide.values()) + noise
    return gg.GAM(s("x", bs=case, k=20)), {"x": x}, np.sin(3.0 * x) + noise


@pytest.mark.parametrize(
    "case",
    [
        *("skewed", "clusters", "confounded", "many", "ou", "rw", "matern12"),
        pytest.param("iterncgp", marks=pytest.mark.slow),
    ],
)
def test_standard_errors_hold_at_the_data(case: str, tmp_path: Path) -> None:
    gam, data, y = columns_of_every_density(case)
    gam.fit(data, y, max_iterations=15)
    gg.serving.export(gam, tmp_path / "m.json")
    model = scorer.load(tmp_path / "m.json")
    _, se = gam.predict(data, "link", se=True, unconditional=False)
    off = np.max(np.abs(scorer.predict(model, data)["se"] / se - 1.0))
    assert off < 0.005
    assert model["checked"]["se"] == pytest.approx(off, rel=1e-5)


def test_standard_errors_that_tables_do_not_hold_are_warned_of(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(400, 2)), columns=["x", "z"])
    y = np.sin(6.0 * data["x"]) * np.cos(4.0 * data["z"]) + 0.1 * rng.normal(size=400)
    gam = gg.GAM(te("x", "z", k=8)).fit(data, y, max_iterations=15)  # too few inducing inputs
    with pytest.warns(gg.ResolutionWarning, match="standard errors .* off by up to"):
        gg.serving.export(gam, tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["checked"]["se"] > 0.01


@pytest.mark.parametrize("case", NO_TABLE)
def test_responses_of_two_predictors_are_refused(case: str, tmp_path: Path) -> None:
    terms, family, response = CASES[case]
    data = responses()[response]
    gam = gg.GAM(terms, family).fit(rows_of_kinds(), data, max_iterations=2)
    (frame,) = (f for name, f in gam.tables(error=0.01).items() if name == gam.names[0])
    known = gam.effects(gam.names[0], frame.filter(list(rows_of_kinds())))
    np.testing.assert_allclose(frame["estimate"], known["estimate"], rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="depends on 2 predictors at once"):
        gg.serving.export(gam, tmp_path / "m.json")


def test_columns_of_every_kind(various: list[Exported], tmp_path: Path) -> None:
    gam, folder, data, _ = various[2]  # which fills in what is missing
    data = data.head(120).assign(date=lambda d: pd.Timestamp(0) + pd.to_timedelta(d["date"], "D"))
    model, wanted = scorer.load(folder / "m.json"), gam.predict(data, "link")
    near(scorer.predict(model, data)["predictor"], wanted)
    near(scorer.predict(model, data.convert_dtypes())["predictor"], wanted)
    listed = data.to_dict("list") | {"date": data["date"].to_numpy(), "z": [None] * 120}
    near(scorer.predict(model, listed)["predictor"], gam.predict(data.assign(z=np.nan), "link"))
    matrix, y = data[["rank", "x"]].fillna(0.5).to_numpy(), data["z"].fillna(0.5).to_numpy()
    of_matrix = gg.GAM(s(1, k=6) + linear(0)).fit(matrix, y)
    gg.serving.export(of_matrix, tmp_path / "n.json")
    columns = {"0": matrix[:, 0], "1": matrix[:, 1]}
    answer = scorer.predict(scorer.load(tmp_path / "n.json"), columns)
    near(answer["predictor"], of_matrix.predict(matrix, "link"))
    edited = of_matrix.edit("s(1)", cap=(-9.0, 9.0), reason="none")
    near(edited.predict(matrix), of_matrix.predict(matrix))


@pytest.mark.parametrize("kind", ["times", "zoned", "dates", "spans"])
def test_tables_and_edits_of_times(kind: str, tmp_path: Path) -> None:
    rng, N = np.random.default_rng(0), 120
    day = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 9, N), unit="D"))
    zoned = day.dt.tz_localize("UTC")
    when = {"times": day, "zoned": zoned, "dates": day.dt.date, "spans": day - day[0]}[kind]
    data = pd.DataFrame({"when": when, "visit": when, "x": rng.normal(size=N)})
    data["y"] = data["x"] + np.cos(day.dt.day) + 0.1 * rng.normal(size=N)
    terms, early = s("when", k=5) + random_effect("visit") + linear("x"), day < "2024-01-09"
    gam = gg.GAM(terms).fit(data[early], "y")
    frame = gam.tables(base={"when": when[0]}, error=0.01)["s(when)"]
    known = gam.effects("s(when)", frame[["when"]], reference={"when": when[0]})
    np.testing.assert_allclose(frame["estimate"], known["estimate"], atol=1e-9)
    edited = pickle.loads(pickle.dumps(gam.edit("s(when)", cap=(-9.0, 9.0), reason="none")))
    near(edited.predict(data), gam.predict(data))  # and the 9th is a new level
    for name in ("m.json", "m.sql", "folder"):
        with pytest.raises(ValueError, match="'visit' has levels of type .* make them text"):
            gg.serving.export(gam, tmp_path / name)
    if kind in ("times", "dates"):  # which a spreadsheet has
        gg.serving.export(gam, tmp_path / "m.xlsx")
        sheets = pd.read_excel(tmp_path / "m.xlsx", sheet_name=None)
        assert any(
            pd.Timestamp("2024-01-03") in list(v) for f in sheets.values() for _, v in f.items()
        )


@pytest.mark.parametrize(
    "family",
    [
        gg.families.Poisson("identity"),
        gg.families.Gaussian("inverse"),
        gg.families.Tweedie("identity"),
        gg.families.Gamma("inverse"),
        gg.families.Tweedie("sqrt"),
        gg.families.Gamma("identity"),
    ],
    ids=lambda f: f"{f.name} {f.link}",
)
def test_links_of_positive_means_hold_in_any_unit(family: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=300), "o": 0.0})
    mean = 1e3 * (3.0 + np.sin(6.0 * data["x"]))
    y = rng.poisson(mean) if family.name == "poisson" else rng.gamma(9.0, mean / 9.0)
    gam = gg.GAM(s("x", k=6), family, offset="o").fit(data, y, max_iterations=4)
    far = np.linspace(-3.0, 3.0, 7) * np.ptp(gam.predict(data, "link"))  # where the mean is bent
    new = pd.concat([data.head(20), pd.DataFrame({"x": 0.5, "o": far})], ignore_index=True)
    case = written(tmp_path, gam, new)
    known, sizes = np.asarray(gam.predict(new, unconditional=False)), gam.predict(data)
    off = np.abs(case.answer["response"] - known)
    assert np.max(off[:20]) < 2e-3 * np.ptp(sizes)
    assert np.max(off / known) < 0.02
    case.check(by_sqlite(case))
    case.check(by_duckdb(case))
    assert json.loads((tmp_path / "m.json").read_text())["checked"]["response"] < 2e-3
    edited = gam.edit("s(x)", cap=(-1e9, 1e9), reason="none")
    np.testing.assert_allclose(edited.predict(new), case.answer["median"])
    if shutil.which("node") is not None:
        found = by_javascript(tmp_path, new)
        for name in ("median", "response"):
            np.testing.assert_allclose([r[name] for r in found], case.answer[name], rtol=1e-7)


# --- what is refused -----------------------------------------------------------------------------


def test_bad_rows_are_named(folder: Path, new: pd.DataFrame) -> None:
    model, rows = scorer.load(folder / "m.json"), new.head(4)
    for change, message in (
        ({"g": ["a", "b", "?", "a"]}, r"'g' has the level '\?'"),
        ({"x": [0.0, np.nan, 0.0, 0.0]}, "'x' has no value in row 1"),
        ({"x": pd.array([0.0, None, 0.0, 0.0], "Float64")}, "'x' has no value in row 1"),
        ({"x": [0.0, np.inf, 0.0, 0.0]}, "'x' must be finite"),
        ({"x": pd.Timestamp("2024-01-01T00Z")}, "'x' must hold numbers, or times as"),
    ):
        with pytest.raises(ValueError, match=message):
            scorer.predict(model, rows.assign(**change))
    with pytest.raises(ValueError, match=r"level must be a probability .* got 1\.5"):
        scorer.predict(model, rows, level=1.5)
    with pytest.raises(ValueError, match="column 'z' has 1 rows where others have 4"):
        scorer.predict(model, {**rows.to_dict("list"), "z": [0.0]})
    with pytest.raises(ValueError, match="no column 'x'"):
        scorer.predict(model, rows.drop(columns="x"))
    assert len(scorer.predict(model, new.head(0))["predictor"]) == 0


def test_files_are_as_the_schema_says(gam: gg.GAM, folder: Path, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parent.parent / "docs" / "tables.schema.json").read_text())
    assert schema["title"].endswith(f"version {scorer.VERSION}")
    gg.serving.export(gam.edit("s(x)", cap=(-1.0, 1.0), reason="a test"), tmp_path / "e.json")
    for path in (folder / "m.json", tmp_path / "e.json"):
        document = json.loads(path.read_text())
        jsonschema.Draft202012Validator(schema).validate(document)
        assert set(document) <= set(schema["properties"])
        assert {key for term in document["terms"] for key in term} == set(
            schema["properties"]["terms"]["items"]["properties"]
        )


def test_files_say_what_fit_they_are_of(gam: gg.GAM, folder: Path, tmp_path: Path) -> None:
    model = scorer.load(folder / "m.json")
    about = {**model["fit"]}
    assert abs(pd.Timestamp(about.pop("date")) - pd.Timestamp.now("UTC")) < pd.Timedelta("1h")
    explained = gam.summary().deviance_explained
    assert about == {
        "rows": 400,
        "terms": repr(gam.terms),
        "converged": gam.summary().converged,
        "deviance_explained": pytest.approx(explained, rel=1e-12),
    }
    # as files were before, and as a program writes what it has read
    del model["fit"]
    (tmp_path / "m.json").write_text(json.dumps(model, default=np.ndarray.tolist))
    again, rows = scorer.load(tmp_path / "m.json"), table(20, 3)
    found, wanted = (scorer.predict(m, rows) for m in (again, scorer.load(folder / "m.json")))
    for name in ("predictor", "se", "response", "lower"):
        np.testing.assert_array_equal(found[name], wanted[name])


RANGE = "columns.x.range"
NO_NUMBERS = [None, "a", [], {}, float("nan"), float("inf"), 1e308]
BROKEN = [
    *(
        (path, value)
        for path in ("constant.0", "offset.factor", "T.values.0.0", "T.axes.0.knots.0")
        for value in NO_NUMBERS
    ),
    *(("rank", value) for value in (*NO_NUMBERS, -1, 10**9, 2)),
    *((path, None) for path in ("columns", "constant", "offset", "link", "terms", "terms.0")),
    *((f"columns.x.{key}", "a") for key in ("range", "fill", "levels")),
    *(("columns.g.levels", value) for value in (None, ["a"], [["a"], "b", "c"], [])),
    *(("columns.x.expression", tree) for tree in (["log"], ["+", 1.0, 2.0, 3.0], "a", {}, [[]])),
    *((f"link.{key}", value) for key, value in (("name", "tan"), ("unit", "a"), ("unit", 0.0))),
    *(("offset.columns", value) for value in (None, ["nothing"], [[]])),
    *((f"T.{key}", "a") for key in ("by", "axes", "root_axes", "roots", "left")),
    *((f"T.{key}", None) for key in ("axes", "root_axes", "roots", "left", "axes.0.column")),
    *((f"T.{key}", []) for key in ("axes", "values", "roots", "left", "name", "axes.0.knots")),
    *((f"T.axes.0.{key}", value) for key, value in (("size", 3), ("period", "a"), ("period", 9.0))),
    *(("T.by", {"column": "g", "code": code}) for code in ("a", None, -1, 3, [])),
    ("T.values.0", []),
    ("T.values.0", [0.0, 1.0]),
    ("T.axes.0.knots.1", -1e9),
    ("T.roots.0.0.0", float("nan")),
    ("T.left.0.0", "a"),
    ("terms", []),
    ("columns.x.expression", ["log", ["system", {"column": "x"}]]),
]


@pytest.mark.parametrize(("path", "value"), BROKEN)
def test_broken_files_are_refused(path: str, value: Any, folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "m.json").read_text())
    place = next(i for i, term in enumerate(document["terms"]) if term["name"] == "s(x)")
    path = path.replace("T.", f"terms.{place}.")
    *keys, last = (int(k) if re.fullmatch(r"-?\d+", k) else k for k in path.split("."))
    functools.reduce(operator.getitem, keys, document)[last] = value
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="broken tables"):
        scorer.load(tmp_path / "m.json")


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the scorer in JavaScript")
def test_javascript_refuses_broken_tables(folder: Path, new: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "row.json").write_text(json.dumps(new.head(1).to_dict("records")[0]))
    shutil.copy(folder / "gpflow_gam_scorer.js", tmp_path)
    document = json.loads((folder / "m.json").read_text())
    place = next(i for i, term in enumerate(document["terms"]) if term["name"] == "s(x)")
    other = [("format", "others"), ("version", 9), ("version", None)]
    broken = [(p, v) for p, v in BROKEN if v is None or v == v]
    broken = [(p, v) for p, v in broken if v != float("inf") and p not in (RANGE, "T.name")]
    changes = [("gpflow_gam", "same"), *other, *broken]
    changes = [(path.replace("T.", f"terms.{place}."), value) for path, value in changes]
    (tmp_path / "changes.json").write_text(json.dumps(changes))
    (tmp_path / "m.json").write_text(json.dumps(document))
    program = """
    const fs = require("fs"), { predict } = require("./gpflow_gam_scorer.js");
    const row = JSON.parse(fs.readFileSync("row.json")), text = fs.readFileSync("m.json");
    console.log(JSON.stringify(JSON.parse(fs.readFileSync("changes.json")).map(([path, value]) => {
      const model = JSON.parse(text), keys = path.split("."), last = keys.pop();
      keys.reduce((at, key) => at[key], model)[last] = value;
      try { return String(predict(model, row).response); } catch (error) { return error.message; }
    })));
    """
    first, *found = json.loads(output("node", "-e", program, cwd=tmp_path))
    assert float(first) > 0.0
    for change, message in zip(changes[1:], found, strict=True):
        assert re.search("no tables of|this reads 2|broken tables", message), (change, message)


@pytest.mark.parametrize(
    "content", ["[]", "{}", "{", '{"format": "gpflow_gam tables", "version": 9}']
)
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(ValueError, match=r"holds no tables|this reads 2|Expecting"):
        scorer.load(tmp_path / "m.json")


def test_bad_arguments(gam: gg.GAM, folder: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"error": 0.0}, "error must be"),
        ({"scale": "odds"}, "scale must be"),
        ({"base": {"q": 1}}, "base: no table is of column 'q'"),
        ({"knots": {"q": [1.0, 2.0]}}, "knots: no term reads column 'q'"),
        ({"knots": {"g": [1.0, 2.0]}}, "no term reads column 'g' as numbers"),
        ({"knots": {"x": ["a", "b"]}}, "must be numbers"),
        ({"base": {"g": "zz"}}, "'g' must be one of the levels"),
        ({"base": {"x": "a"}}, "'x' must be a finite number"),
        ({"knots": {"x": [2.0, 1.0]}}, "must be two or more, and increase"),
        ({"knots": {"x": [2.0, np.inf]}}, "knots: those of 'x' must be finite"),
        ({"bins": {"g": [1.0, 2.0]}}, "bins: no term reads column 'g' as numbers"),
        ({"bins": {"x": [1.0, np.nan]}}, "bins: those of 'x' must be two or more, and increase"),
        ({"bins": {"x": [0, 1]}, "knots": {"x": [0, 1]}}, "bins: 'x' has knots already"),
        ({"bins": {"x": [0, 1]}, "base": {"x": 1.0}}, "base: 1.0 is in none of the bins of 'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            gam.tables(**options)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gg.serving.export(gam, folder / "m.json")
    (tmp_path / "gpflow_gam_scorer.py").write_text("mine = True")
    with pytest.raises(FileExistsError, match="not the scorer"):
        gg.serving.export(gam, tmp_path / "m.json")
    assert [p.name for p in tmp_path.iterdir()] == ["gpflow_gam_scorer.py"]


def test_terms_without_tables_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(60, 4)), columns=[*"abcy"])
    wide = gg.GAM(te("a", "b", "c", k=3)).fit(data, "y", max_iterations=1)
    with pytest.raises(ValueError, match=r"te\(a,b,c\) is a function of 3 columns"):
        wide.tables()
    computed = gg.GAM("y ~ s(a % 2, k=4)").fit(data, max_iterations=1)
    with pytest.raises(ValueError, match="a % 2, which other programs have no functions for"):
        gg.serving.export(computed, tmp_path / "m.sql")
    with pytest.raises(TypeError, match="only a GAM is its tables"):
        gg.serving.export(wide.model, tmp_path / "m.json")


# --- tables changed by hand ----------------------------------------------------------------------


Claims = tuple[gg.GAM, pd.DataFrame]


@pytest.fixture(scope="module")
def claims() -> Claims:
    data, rng = table(300, 8), np.random.default_rng(2)
    rate = np.exp(0.3 * np.sin(2.0 * data["x"]) + 0.2 * data["x"] + 0.4 * (data["g"] == "b"))
    data["y"] = rng.poisson(rate * data["size"])
    terms = s("x", k=8) + factor("g")
    return gg.GAM(terms, family="poisson", offset="log_size").fit(data, "y"), data


def test_edits_change_one_table_and_say_what_they_cost(claims: Claims, tmp_path: Path) -> None:
    gam, data = claims
    before = gam.predict(data, "terms")
    first = gam.edit("s(x)", monotone="increasing", reason="filed so")
    model = first.edit("factor(g)", values={"b": 0.5}, reason="market")
    terms = model.predict(data, "terms")
    ordered = terms["s(x)"].to_numpy()[np.argsort(data["x"])]
    assert np.all(np.diff(ordered) >= -1e-12)
    assert np.any(np.diff(before["s(x)"].to_numpy()[np.argsort(data["x"])]) < 0.0)
    assert set(terms["factor(g)"][data["g"] == "b"]) == {0.5}
    others = data["g"] != "b"
    np.testing.assert_allclose(terms["factor(g)"][others], before["factor(g)"][others])
    # the record, by hand: deviances of Poisson counts
    mu = np.exp(first.predict(data, "link"))
    y = data["y"].to_numpy()
    deviance = 2.0 * np.sum(np.where(y > 0, y * np.log(np.maximum(y, 1) / mu), 0.0) - (y - mu))
    edits = model.edits
    assert edits["term"].tolist() == ["s(x)", "factor(g)"]
    assert edits["reason"].tolist() == ["filed so", "market"]
    assert edits["deviance"][0][1] == pytest.approx(deviance, rel=1e-9)
    assert edits["deviance"][0][1] > edits["deviance"][0][0]
    assert edits["mean"][1] == pytest.approx([mu.mean(), model.predict(data).mean()], rel=1e-9)
    # the file has both, and no errors
    gg.serving.export(model, tmp_path / "m.json")
    held = scorer.load(tmp_path / "m.json")
    assert [e["reason"] for e in held["edits"]] == ["filed so", "market"]
    answer = scorer.predict(held, data)
    assert "se" not in answer
    np.testing.assert_array_equal(answer["median"], model.predict(data))
    assert len(first.edits) == 1
    np.testing.assert_array_equal(gam.predict(data, "terms"), before)


def test_values_and_caps(claims: Claims) -> None:
    gam, data = claims
    at = {"x": [0.123], "g": ["a"], "log_size": [0.0]}
    edited = gam.edit("s(x)", values={0.123: 1.5}, reason="one value")
    assert edited.predict(at, "terms")["s(x)"].tolist() == [1.5]
    kept = pickle.loads(pickle.dumps(edited))
    np.testing.assert_array_equal(kept.predict(data), edited.predict(data))
    with pytest.raises(ValueError, match="rows of the data"):
        kept.edit("s(x)", monotone="increasing", reason="without data")
    capped = edited.edit("s(x)", cap=(-0.1, 0.2), reason="at most 22 % more")
    effect = capped.predict(data, "terms")["s(x)"]
    assert [effect.min(), effect.max()] == pytest.approx([-0.1, 0.2], abs=1e-12)


def test_grids_have_values_and_caps(gam: gg.GAM) -> None:
    data, name = table(400, 0), "ti(x,z)"
    before = gam.predict(data, "terms")[name]
    low, high = before.quantile([0.2, 0.7])
    after = gam.edit(name, cap=(low, high), reason="small").predict(data, "terms")[name]
    # a cap is of knots, between which lines are straight
    np.testing.assert_allclose(after, before.clip(low, high), atol=0.02 * np.ptp(before))
    assert [after.min(), after.max()] == pytest.approx([low, high], abs=1e-12)
    edited = gam.edit(name, values={(0.123, 0.456): 1.5, (-1.0, 0.456): 2.0}, reason="two places")
    at = data.head(2).assign(x=[0.123, -1.0], z=0.456)
    assert edited.predict(at, "terms")[name].tolist() == pytest.approx([1.5, 2.0])
    far = data[data["z"] < -0.5]  # which no piece about the two places reaches
    plain = gam.edit(name, cap=(-9.0, 9.0), reason="none")
    np.testing.assert_allclose(
        edited.predict(far, "terms")[name], plain.predict(far, "terms")[name], atol=1e-12
    )
    frame = edited.tables()[name].set_index(["x", "z"])["estimate"]
    assert frame[0.123, 0.456] == 1.5
    assert set(edited.tables()) == set(gam.tables(error=0.1))


def test_levels_and_times_of_edited_tables() -> None:
    rng, N = np.random.default_rng(0), 90
    day = pd.Series(pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 9, N), unit="D"))
    data = pd.DataFrame({"day": day, "g": rng.choice([*"ab"], N), "y": rng.normal(size=N)})
    gam = gg.GAM("y ~ s(day, g, bs='fs', k=4) + s(g, bs='re')").fit(data, max_iterations=3)
    name, when = "s(day,g)", pd.Timestamp("2024-01-03")
    days = (when - pd.Timestamp(0)) / pd.Timedelta(days=1)
    edited = gam.edit(name, values={(days, "b"): 4.0}, reason="one day of one level")
    frame = edited.tables()[name]
    row = frame[(frame["day"] == when) & (frame["g"] == "b")]
    assert row["estimate"].tolist() == [4.0]
    rows = pd.DataFrame({"day": [when, when], "g": ["b", "a"]})
    found = edited.predict(rows, "terms")[name]
    assert found[0] == pytest.approx(4.0)
    assert found[1] == pytest.approx(gam.predict(rows, "terms")[name][1], abs=1e-3)
    assert edited.tables()["random_effect(g)"]["g"].tolist()[:2] == ["a", "b"]


def test_edits_to_bins_are_in_every_file(gam: gg.GAM, claims: Claims, tmp_path: Path) -> None:
    model, data = claims
    breaks = [-2.0, 0.0, 1.5, np.inf]
    edited = model.edit("s(x)", bins=breaks, reason="what the engine takes")
    wanted = model.tables(bins={"x": breaks})["s(x)"]["estimate"]
    at = data.head(6).assign(x=[-9.0, -0.001, 0.0, 1.49, 1.5, 9.0])
    found = edited.predict(at, "terms")["s(x)"]
    near(found, wanted[[0, 0, 1, 1, 2, 2]])
    assert found.round(12).nunique() == 3
    assert edited.edits["change"][0] == {"bins": [-2.0, 0.0, 1.5, None]}
    before, after = edited.edits["deviance"][0]
    assert after > before
    (tmp_path / "rows.json").write_text(at.to_json(orient="split", double_precision=15))
    for kind in ("json", "sql"):
        gg.serving.export(edited, tmp_path / f"m.{kind}")
    answer = scorer.predict(scorer.load(tmp_path / "m.json"), at)
    np.testing.assert_array_equal(answer["predictor"], edited.predict(at, "link"))
    rows = by_sqlite(Exported(model, tmp_path, at, {})).sort_values("row")
    np.testing.assert_allclose(rows["response"], edited.predict(at), rtol=1e-9)
    # of a period
    name, column = "s(hour of day)", "hour of day"
    whole = gam.edit(name, bins=[6.0, 18.0, 30.0], reason="day and night")
    known = gam.tables(bins={column: [6.0, 18.0, 30.0]})[name]["estimate"]
    hours = table(4, 0).assign(**{column: [6.0, 17.0, 19.0, 5.0]})
    np.testing.assert_allclose(whole.predict(hours, "terms")[name], known[[0, 0, 1, 1]], atol=1e-3)
    of_size = gam.edit("s(z):size", bins=[-9.0, 0.0, 9.0], reason="two").tables()["s(z):size"]
    known = gam.tables(bins={"z": [-9.0, 0.0, 9.0]})["s(z):size"]["estimate"]
    np.testing.assert_allclose(of_size["estimate"], np.repeat(known, 2), atol=1e-3)
    with pytest.raises(ValueError, match="bins: those of a period must cover it once, 24"):
        gam.edit(name, bins=[0.0, 12.0], reason="half a day")


def test_edited_tables_refuse_what_the_fit_alone_has(claims: Claims, tmp_path: Path) -> None:
    gam, data = claims
    edited, rows = gam.edit("s(x)", cap=(-9.0, 9.0), reason="none"), data[data["x"] > 0.0]
    for options in ({"error": 0.01}, {"knots": {"x": [0.0, 1.0]}}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} is no option of m.json"):
            gg.serving.export(edited, tmp_path / "m.json", **options)
    with pytest.raises(TypeError, match="no interval of edits: bands were the fit's"):
        edited.predict(data, interval=0.95)
    assert edited.predict(rows, "terms").index.equals(rows.index)


def test_the_ends_of_a_period_are_one_knot(gam: gg.GAM) -> None:
    name, column, given = "s(hour of day)", "hour of day", [0.0, 6.0, 12.0, 18.0, 24.0]
    assert gam.tables(knots={column: given})[name][column].tolist() == given
    first = gam.tables(error=0.01)[name][column][0]
    edited = gam.edit(name, values={first: 2.0, first - 1.0: 1.5}, reason="two values")
    rows = table(4, 0).assign(**{column: first + np.array([-1.0, 0.0, 23.0, 24.0])})
    np.testing.assert_allclose(edited.predict(rows, "terms")[name], [1.5, 2.0, 1.5, 2.0])


@pytest.mark.parametrize("case", ["weights", "level", "number"])
def test_monotone_tables_are_nearest_over_the_rows_that_count(case: str) -> None:
    data = table(300, 8)
    rng, by = np.random.default_rng(3), {"weights": None, "level": "g", "number": "z"}[case]
    slope = data["z"] if case == "number" else 1.0
    data["y"] = slope * np.sin(2.0 * data["x"]) + 0.1 * rng.normal(size=len(data))
    data["w"] = np.where(data["x"] > 1.5, 20.0, 1.0) if case == "weights" else 1.0
    gam = gg.GAM(s("x", by=by, k=8), weights="w").fit(data, "y")
    counted = {"weights": data["w"], "level": data["g"] == "a", "number": data["z"] ** 2}[case]
    name = {"weights": "s(x)", "level": "s(x):g=a", "number": "s(x):z"}[case]
    before, after = (
        next(t for t in gam.edit(name, reason="filed so", **change).document["terms"] if t["axes"])
        for change in ({"cap": (-99.0, 99.0)}, {"monotone": "increasing"})
    )
    knots = np.array(before["axes"][0]["knots"])
    near = np.abs(data["x"].to_numpy()[:, None] - knots).argmin(axis=1)
    mass = np.bincount(near, counted, len(knots))
    want = isotonic_regression(np.ravel(before["values"]), weights=mass + 1e-6).x
    there = mass > 0.1
    np.testing.assert_allclose(np.ravel(after["values"])[there], want[there], atol=1e-3)


@pytest.mark.parametrize(
    ("term", "change", "message"),
    [
        ("s(q)", {"cap": (0.0, 1.0)}, r"no table 's\(q\)'; the tables are s\(x\), factor\(g\)"),
        ("s(x)", {}, "give one of monotone, values, cap and bins"),
        ("s(x)", {"cap": (1.0, 0.0)}, "cap must be"),
        ("s(x)", {"cap": 0.5}, "cap must be"),
        ("s(x)", {"values": {"a": 1.0}}, "no finite number"),
        ("factor(g)", {"values": {"a": "much"}}, "no finite number"),
        ("s(x)", {"monotone": "up"}, "monotone must be"),
        ("s(x)", {"values": {9e9: 1.0}}, "no place between the knots"),
        ("s(x)", {"values": {0.0: np.nan}}, "no finite number"),
        ("s(x)", {"cap": (0.0, 1.0), "reason": " "}, "reason must say why"),
        ("factor(g)", {"monotone": "increasing"}, "no function of a number"),
        ("factor(g)", {"values": {"z": 1.0}}, "'z' is none of the levels"),
        ("factor(g)", {"bins": [0.0, 1.0]}, r"bins: factor\(g\) is no function of a number"),
        ("s(x)", {"bins": [1.0, 0.0]}, "bins: those of 'x' must be two or more, and increase"),
        ("s(x)", {"values": {(0.0, 1.0): 1.0}}, "no finite number at a place"),
    ],
)
def test_bad_edits(claims: Claims, term: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claims[0].edit(term, **{"reason": "to try", **change})


# --- charts of pricing ---------------------------------------------------------------------------


def test_lift_charts_show_actual_and_expected(claims: Claims) -> None:
    gam, data = claims
    flat = gg.GAM(factor("g"), family="poisson", offset="log_size").fit(data, "y")
    figure = gam.draw_lift(data, other=flat, groups=5)
    means, lorenz, double = figure.axes
    lines = {line.get_gid(): line.get_ydata() for line in means.lines if line.get_gid()}
    expected, exposure = gam.predict(data), data["size"].to_numpy()
    # by hand: groups of a fifth of the exposure in the order of rates
    order = np.argsort(expected / exposure)
    before = np.cumsum(exposure[order]) - exposure[order] / 2.0
    group = np.floor(5.0 * before / exposure.sum()).astype(int)
    for name, values in (("actual", data["y"].to_numpy()), ("expected", expected)):
        rates = [
            sum(values[order][group == k]) / sum(exposure[order][group == k]) for k in range(5)
        ]
        np.testing.assert_allclose(lines[name], rates)
    curves = {line.get_gid(): line for line in lorenz.lines if line.get_gid()}
    gini = {}
    for name, curve in curves.items():
        x, y = curve.get_data()
        gini[name] = 1.0 - np.sum(np.diff(x) * (y[1:] + y[:-1]))
        assert curve.get_label().endswith(f"Gini {gini[name]:.3f}")
    assert gini["lorenz this model"] > gini["lorenz the other"] > 0.0
    assert {line.get_gid() for line in double.lines} == {"actual", "this model", "the other"}
    shares = gam.draw_lift(data, other=flat.predict(data), groups=5).axes[2].lines
    for one, two in zip(double.lines, shares):
        np.testing.assert_allclose(one.get_ydata(), two.get_ydata())


def test_lift_charts_weigh_the_other_model_as_this_one(claims: Claims) -> None:
    """Expected responses are per row, whatever the weights that the other was fitted with."""
    _, data = claims
    data = data.assign(w=1.0 + np.arange(len(data)) % 7.0, rate=1.0 + data["y"])
    plain, weighted = (
        gg.GAM("rate ~ s(x, k=6)", "gamma", weights=w).fit(data) for w in (None, "w")
    )
    for one, two in ((plain, weighted), (weighted, plain)):
        for by_model, by_value in zip(
            one.draw_lift(data, other=two, groups=4).axes,
            one.draw_lift(data, other=two.predict(data), groups=4).axes,
        ):
            for line, other in zip(by_model.lines, by_value.lines):
                np.testing.assert_allclose(line.get_xydata(), other.get_xydata())


@pytest.mark.parametrize("family", ["binomial", "quasibinomial"])
def test_lift_charts_of_shares_have_trials_as_exposure(family: str) -> None:
    """As of a row a trial."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=60), "n": rng.integers(1, 9, 60)})
    data["k"] = rng.binomial(data["n"], data["x"])
    data["p"] = data["k"] / data["n"]
    trials = data.loc[data.index.repeat(data["n"])]
    trials["hit"] = trials.groupby(level=0).cumcount() < trials["k"]
    rows = (
        (gg.GAM("hit ~ linear(x)", "bernoulli"), trials),
        (gg.GAM("p ~ linear(x)", family, weights="n"), data),
        (gg.GAM("cbind(k, n - k) ~ linear(x)", family), data),
        (gg.GAM("p ~ linear(x)", "quasibinomial"), trials),
    )
    figures = [gam.fit(own).draw_lift(own, groups=5) for gam, own in rows]
    lines = [[line.get_xydata() for ax in figure.axes for line in ax.lines] for figure in figures]
    for line, *others in zip(*lines):
        for other in others:
            np.testing.assert_allclose(line, other, rtol=0.01)  # dispersions differ
    with pytest.raises(ValueError, match="rows of weight zero"):
        rows[1][0].draw_lift(data.assign(n=0))


def test_lift_charts_do_not_depend_on_the_order_of_rows(claims: Claims) -> None:
    """Rows of one score are in one group, and a step of the Lorenz curve."""
    _, data = claims
    data = data.assign(rate=data["y"] / data["size"]).sort_values("rate")
    for formula, number in (("y ~ g", data["g"].nunique()), ("y ~ 1", 1)):
        gam = gg.GAM(formula, family="poisson", offset="log_size").fit(data)
        lines = [
            [line.get_xydata() for ax in gam.draw_lift(rows, groups=8).axes for line in ax.lines]
            for rows in (data, data[::-1])
        ]
        for one, two in zip(*lines):
            np.testing.assert_allclose(one, two)
        assert len(lines[0][0]) == number
        assert len(lines[0][2]) == number + 1
    assert gam.draw_lift(data).axes[1].get_legend().get_texts()[0].get_text().endswith("Gini 0.000")


def test_lift_charts_by_a_column(claims: Claims) -> None:
    gam, data = claims
    data = data.assign(kind=["b", "a", None] * (len(data) // 3))
    expected = gam.predict(data)
    ax = gam.draw_lift(data, by="kind").axes[-1]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b", "missing"]
    lines = {line.get_gid(): line.get_ydata() for line in ax.lines if line.get_gid()}
    for name, values in (("actual", data["y"].to_numpy()), ("expected", expected)):
        rates = [sum(values[i::3]) / sum(data["size"][i::3]) for i in (1, 0, 2)]
        np.testing.assert_allclose(lines[name], rates)
    groups = gam.draw_lift(data, by="x", groups=4).axes[-1]
    ends = [tuple(map(float, t.get_text().split(" to "))) for t in groups.get_xticklabels()]
    assert len(ends) == 4
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ends))
    # an order that is not the alphabet's; and days, of which each is in one group
    order = ["<25", "25-60", ">60"]
    data["age"] = pd.Categorical(order * 100, order)
    data["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(300) // 10, "D")
    ages, days = (
        [t.get_text() for t in gam.draw_lift(data, by=by).axes[-1].get_xticklabels()]
        for by in ("age", "day")
    )
    assert ages == order
    ends = [end for label in days for end in label.split(" to ")]
    assert len(days) == 10
    assert ends == sorted(set(ends))
    with pytest.raises(ValueError, match="no column 'q'"):
        gam.draw_lift(data, by="q")


def test_lift_charts_refuse_what_has_no_order(claims: Claims) -> None:
    gam, data = claims
    for options, message in (
        ({"groups": 1}, "groups must be"),
        ({"other": [1.0, 2.0]}, r"300 positive expected responses; got shape \(2,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            gam.draw_lift(data, **options)
    classes = gg.GAM("g ~ linear(x)", "categorical").fit(data, max_iterations=1)
    with pytest.raises(ValueError, match="'categorical' is no amount or share"):
        classes.draw_lift(data)
    other = gg.GAM(s("x", k=4)).fit(data.assign(y=data["y"] - 9.0), "y", max_iterations=1)
    with pytest.raises(ValueError, match="must not be negative"):
        other.draw_lift(data.assign(y=data["y"] - 9.0))
