"""Formulas that transform: the same as columns made by hand, and remembered for new rows."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from exported_files import run
from problems import reloaded

import gpflow_gam as gg
from gpflow_gam import factor, linear, s, serving
from gpflow_gam.gam import scorer
from gpflow_gam.gam.frames.encoding import Design
from gpflow_gam.gam.frames.table import Table
from gpflow_gam.gam.terms import Terms, parse_formula
from gpflow_gam.gam.terms.formula import terms_from_json
from gpflow_gam.gam.terms.parametric import Variable
from gpflow_gam.optimizers.binned import bins


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    n = 160
    df = pd.DataFrame({"x": rng.uniform(1, 9, n), "z": rng.uniform(size=n)})
    df["u"] = rng.normal(size=n)
    df["my col"] = rng.uniform(1, 2, n)
    df["g"] = rng.choice(["a", "b", "c"], n)
    f = np.log(df["x"]) + np.sin(6 * df["z"]) + df["u"] * df["g"].map({"a": 1.0, "b": 0.0, "c": -1})
    df["y"] = f + 0.1 * rng.standard_normal(n)
    df["count"] = rng.poisson(np.exp(0.5 * f))
    return df


def by_hand(data):
    """An orthonormal basis of cubic polynomials, and the products of u with each level."""
    Q, R = np.linalg.qr(np.vander(data["x"], 4, increasing=True))
    made = {f"p{i}": Q[:, i] * np.sign(R[i, i]) for i in (1, 2, 3)}
    made |= {f"u{v}": data["u"] * (data["g"] == v) for v in "abc"}
    return data.assign(log_x=np.log(data["x"]), **made)


# --- the same model by two routes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("less", "stated"),
    [
        ("u*g - g", "u + u:g"),
        ("u*z - u", "z + u:z"),
        ("(z + g)^2 - z + s(x, k=5)", "g + z:g + s(x, k=5)"),
        ("u*g - g + g", "u*g"),
        ("g - g + u*g", "u*g"),
        ("u*`my col` - `my col`", "u + u:`my col`"),
        ("u*factor(g) - factor(g)", "u + u:factor(g)"),
    ],
)
def test_what_is_taken_away_of_a_product_is_gone(less, stated, data):
    gams = [gg.GAM(f"y ~ {right}").fit(data, max_iterations=2) for right in (less, stated)]
    tables = [gam.coefficients() for gam in gams]
    assert set(tables[0]["term"]) == set(tables[1]["term"])
    np.testing.assert_allclose(*(gam.predict(data) for gam in gams))


def test_factors_are_differences_beside_a_constant_and_all_levels_without(data):
    """As in R: columns that add up to the constant would each have its uncertainty."""
    gam = gg.GAM("y ~ u*g + s(z)").fit(data)
    result = gam.coefficients().set_index("term")
    expected = ["linear(u)", "linear(g[T.b])", "linear(g[T.c])"]
    expected += ["linear(u:g[T.b])", "linear(u:g[T.c])"]
    assert [name for name in result.index if name.startswith("linear")] == expected
    assert np.all(result.loc[expected, "se"] < 0.3)
    assert result.loc["linear(u:g[T.c])", "estimate"] == pytest.approx(-2.0, abs=0.15)
    with pytest.raises(
        ValueError, match="no factor 'g'.*makes lines of it, levels against the first"
    ):
        gam.coefficients(reference={"g": "a"})
    without = gg.GAM("y ~ u*g - 1").fit(data)
    assert {f"linear(g[{level}])" for level in "abc"} <= set(without.coefficients()["term"])
    # and where a factor takes the constant's place, differences again
    beside = gg.GAM("y ~ factor(g) + u*h - 1").fit(
        data.assign(h=data["g"].shift(7, fill_value="a"))
    )
    assert "linear(h[T.b])" in set(beside.coefficients()["term"])
    assert "linear(h[a])" not in set(beside.coefficients()["term"])


def test_main_effects_and_products_are_coded_together(data):
    """As in R: products have what their factors, written beside them, do not span."""
    rows = data.assign(h=np.where(data["z"] > 0.4, "v", "w"), **{"my col": data["g"]})
    crossed = gg.GAM("y ~ g*h").fit(rows)
    expected = crossed.coefficients()[["estimate", "se"]]
    for formula in (
        "y ~ g + h + g:h",
        "y ~ g:h + g + h",
        "y ~ factor(g) + h + C(g):h",
        "y ~ `my col` + h + `my col`:h",
    ):
        gam = gg.GAM(formula).fit(rows)
        np.testing.assert_allclose(gam.coefficients()[["estimate", "se"]], expected, rtol=1e-6)
    nested = gg.GAM("y ~ h + g:h").fit(rows)
    assert len(nested.names) == 5
    assert nested.coefficients()["se"].max() < 1.5 * expected["se"].max()
    np.testing.assert_allclose(nested.predict(rows), crossed.predict(rows), atol=1e-4)
    slopes = gg.GAM("y ~ u + u:g").fit(rows)
    assert slopes.names == ("linear(u)", "linear(u:g[T.b])", "linear(u:g[T.c])")
    terms = parse_formula("y ~ g + s(x) + factor(h) + g:h").terms
    assert terms == Terms([s("x"), factor("h"), *parse_formula("y ~ g + g:h").terms])


@pytest.mark.parametrize(
    ("formula", "hand"),
    [
        ("log(x) + s(z)", "s(z) + linear(log_x)"),
        ("s(z) + poly(x, 3)", "s(z) + linear(p1) + linear(p2) + linear(p3)"),
        ("s(z) + g:u", "s(z) + linear(ua) + linear(ub) + linear(uc)"),
        ("I(c != 2):z + factor(c):x", "not2:z + x1 + x2 + x9"),
        ("I(year != 2020):z + g:x", "not2020:z + g:x"),
        ("I(b != True):z", "notb:z"),
        ("I(g == 'a'):z + g", "isa:z + g"),
        ("c:x + factor(c):z", "c:x + z1 + z2 + z9"),
        ("x*c + factor(c):z", "x*c + z1 + z2 + z9"),
        ("factor(c)*x + I(c*x*z)", "level*x + cxz"),
    ],
)
def test_each_factor_of_a_product_reads_a_column_its_own_way(formula, hand, data, tmp_path):
    """As in R: code reads values as they are, and factor() makes levels where it stands alone."""
    rng = np.random.default_rng(3)
    rows = by_hand(data).assign(c=rng.choice([1, 2, 9], len(data)), b=data["u"] < 0)
    rows["year"] = pd.Categorical(rng.choice([2019, 2020], len(data)))
    rows = rows.assign(not2=rows["c"] != 2, not2020=rows["year"] != 2020, notb=~rows["b"])
    rows = rows.assign(isa=rows["g"] == "a", cxz=rows["c"] * rows["x"] * rows["z"])
    rows = rows.assign(level=rows["c"].astype(str))
    rows = rows.astype({name: float for name in ("not2", "not2020", "notb", "isa")})
    each = {f"{v}{c}": rows[v] * (rows["c"] == c) for v in "xz" for c in (1, 2, 9)}
    gam, own = gg.GAM(f"y ~ {formula}").fit(rows), gg.GAM(f"y ~ {hand}").fit(rows.assign(**each))
    assert len(gam.names) == len(own.names)
    expected = own.predict(rows.assign(**each), interval=0.9)
    np.testing.assert_allclose(gam.predict(rows, interval=0.9), expected, rtol=1e-6, atol=1e-8)
    again = reloaded(gam, tmp_path / "a.gam")
    np.testing.assert_allclose(again.predict(rows.head(9)), gam.predict(rows)[:9], rtol=1e-9)


def test_transforms_of_new_rows_are_those_of_the_fit(data):
    """Of one row, or of others, a basis, a centre and levels are what they were in the fit."""
    gam = gg.GAM("y ~ poly(x, 3) + center(u) + scale(z) + g:u").fit(data)
    whole, only = gam.predict(data), data["g"] == "b"
    np.testing.assert_allclose(gam.predict(data[only]), whole[only], rtol=1e-9)
    with pytest.raises(ValueError, match="column 'g' has the level 'd'"):
        gam.predict(data.head(2).assign(g="d"))
    for i in (0, 50):
        np.testing.assert_allclose(gam.predict(data.iloc[[i]]), whole[[i]], rtol=1e-9)
    np.testing.assert_allclose(gam.predict(data.tail(40)), whole[-40:], rtol=1e-9)
    assert gam.predict(data.head(0)).shape == (0,)
    blocks = gam.predict([data.head(100), data.tail(60)])
    np.testing.assert_allclose(blocks, whole, rtol=1e-9)


def test_everything_else(data):
    few = data[["x", "z", "g", "count"]].assign(log_e=0.0, w=1)
    gam = gg.GAM("count ~ s(z) + . + offset(log_e)", family="poisson", weights="w").fit(few)
    named = gg.GAM(
        [s("z"), linear("x"), factor("g")], family="poisson", offset="log_e", weights="w"
    )
    named.fit(few, y="count")
    assert gam.fitted.spec.terms == named.terms
    np.testing.assert_allclose(gam.predict(few), named.predict(few))
    without = gg.GAM("count ~ s(z) + . - g - log_e - w", family="poisson").fit(few)
    assert without.fitted.spec.terms == s("z") + linear("x")
    both = gg.GAM({"mean": "y ~ . + s(z) - g", "scale": "x"})
    both.fit(data[["x", "z", "g", "y"]], max_iterations=2)
    assert both.names == ("mean:linear(x)", "mean:s(z)", "scale:linear(x)")


def test_everything_else_is_without_the_response(data):
    few = data[["x", "z", "y"]]
    gam = gg.GAM("~ s(z) + .").fit(few, y=few["y"])
    assert gam.fitted.spec.terms == s("z") + linear("x")
    with pytest.raises(ValueError, match="'.' takes in column 'y', which is the response"):
        gg.GAM("~ s(z) + .").fit(few, y=few["y"].to_numpy())
    gg.GAM("~ s(z) + . - y").fit(few, y=few["y"].to_numpy())


# --- everything that a GAM does ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a^b", "a~b", "factor (a)", "np.log(a)", "a|b/c", "s(a):b", "µg"])
@pytest.mark.parametrize(
    "formula",
    [
        "s({}, k=5) + z",
        "s(log({}), k=5)",
        "u*{} - {}",
        "I({}^2) + g",
        "log({}) + {}:g",
        "(1 + {} | g)",
        "(1 | g/{})",
        "z + offset({})",
    ],
)
def test_names_that_look_like_formulas(name, formula, data):
    """Between backticks anything is a name; a bare micro sign is the letter mu to Python."""
    given, plain = data.rename(columns={"my col": name}), data.rename(columns={"my col": "w"})
    name = name if name.isidentifier() else f"`{name}`"
    gams = [
        gg.GAM("y ~ " + formula.replace("{}", each)).fit(table, max_iterations=1)
        for each, table in ((name, given), ("w", plain))
    ]
    np.testing.assert_array_equal(gams[0].predict(given), gams[1].predict(plain))


def test_files_and_refits(data, tmp_path):
    gam = gg.GAM("y ~ poly(x, 2) + g*u + s(z)").fit(data.head(120))
    again = reloaded(gam, tmp_path / "a.gam")
    pd.testing.assert_frame_equal(
        again.predict(data, interval=0.9), gam.predict(data, interval=0.9), check_exact=True
    )
    assert set(again.terms) == set(gam.terms)
    for one in (gam, again):
        one.refit(data)
    np.testing.assert_allclose(again.predict(data), gam.predict(data), rtol=1e-3)
    alone = gg.GAM("y ~ poly(x, 2) + g*u + s(z)").fit(data)
    np.testing.assert_allclose(gam.predict(data), alone.predict(data), rtol=1e-2, atol=1e-3)
    with pytest.raises(ValueError, match=r"call refit\(data\)"):
        gam.update(data)
    with pytest.raises(ValueError, match="in Python, which no SavedModel holds"):
        serving.export(gam, tmp_path / "served")


def test_a_file_runs_no_code(data):
    design = Design.learn("log(x)", Table(data))
    own = json.loads(json.dumps(design.to_json()))
    assert Design.from_json(own).to_json() == design.to_json()
    for text in (
        "np.load('f')",
        "__import__('os').system('true')",
        "eval('1')",
        "I((lambda: x)())",
        # what stands between backticks in quotes is no name: formulaic runs it
        """log(x) + log("`" + str(open("f", "w")) + "`")""",
        """log(x) + log('`', open('f', 'w'), '`')""",
        """log(x) + I("`" == open("f", "w") == "`")""",
        """log(x) + {"`" + exit() + "`"}""",
        """I(x, "`", x, "`")""",
    ):
        with pytest.raises(ValueError, match="transform|not understood|cannot be read"):
            Design.from_json({**own, "text": text})


@pytest.mark.parametrize("kind", [object, "string", "category"])
def test_columns_that_are_compared_are_filled_in(kind, data):
    """Whatever a type has for what is missing; truth values and whole numbers, too."""
    rows = data.assign(g=data["g"].astype(kind), b=(data["u"] < 0).astype("boolean"))
    rows["n"] = data["x"].round().astype("Int64")
    holes = rows.copy()
    holes.loc[[1, 2], ["g", "b", "n"]] = None
    for term, fill in (("g == 'a'", "g"), ("b == True", "b"), ("n > 4", "n")):
        formula, few = f"y ~ s(z, k=5) + s(x, by={term}, k=5)", {"max_iterations": 2}
        gam = gg.GAM(formula, missing="impute").fit(holes, **few)
        (value,) = (f.value for f in gam.fitted.spec.fills if f.name == fill)
        by_hand = rows.copy()
        by_hand.loc[[1, 2], fill] = value
        own = gg.GAM(formula).fit(by_hand, **few)
        np.testing.assert_allclose(gam.predict(holes), own.predict(by_hand), rtol=1e-6)


def test_parts_and_averages(data):
    gam = gg.GAM("y ~ log(x) + s(z) + factor(g)").fit(data)
    gam.predict(data[["z", "g"]], exclude="linear(log(x))")
    with pytest.raises(ValueError, match="no column 'x'"):
        gam.predict(data[["z", "g"]])
    assert len(gam.effects("linear(log(x))", [0.0, 1.0])) == 2
    gam.avg_comparisons("g", num_samples=64)
    with pytest.raises(ValueError, match=r"column 'x' is what the formula makes log\(x\) of"):
        gam.partial_dependence("x")
    with pytest.raises(ValueError, match="use inputs='data'"):
        gam.sobol()


# --- columns that are computed, and columns whose type decides ------------------------------------


@pytest.fixture(scope="module")
def visits():
    rng = np.random.default_rng(4)
    n = 240
    df = pd.DataFrame({"x": rng.uniform(1, 9, n), "z": rng.normal(size=n)})
    df["days"] = rng.integers(1, 9, n)
    df["site"], df["plot"] = rng.integers(1, 5, n), rng.choice(list("uv"), n)
    df["class"] = rng.choice(["north", "south"], n)
    f = np.log(df["x"]) + (df["class"] == "north")
    df["y"] = f + 0.1 * rng.standard_normal(n)
    df["count"] = rng.poisson(0.3 * np.exp(f) * df["days"])
    df["won"] = rng.binomial(df["days"], 1.0 / (1.0 + np.exp(-df["z"])))
    df["lost"] = df["days"] - df["won"]
    return df


COMPUTED = [
    ("y ~ s(log(x)) + class", "y ~ s(a) + factor(class)", "gaussian"),
    ("y ~ te(log(x), z, k=20) + C(class)", "y ~ te(a, z, k=20) + factor(class)", "gaussian"),
    ("y ~ s(z, by=x > 4) + factor(x > 4)", "y ~ s(z, by=b) + factor(b)", "gaussian"),
    ("count ~ s(x) + offset(log(days))", "count ~ s(x) + offset(c)", "poisson"),
    ("cbind(won, days - won) ~ s(z)", "cbind(won, lost) ~ s(z)", "binomial"),
    ("y ~ x + (1 | site/plot)", "y ~ x + random_effect(site) + random_effect(d)", "gaussian"),
    # powers bind as in R
    ("y ~ linear(x + z^2) + offset(0.1*z^2 - x)", "y ~ e + offset(f)", "gaussian"),
]


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("formula", "plain", "family"), COMPUTED)
def test_computed_columns_are_those_made_by_hand(formula, plain, family, visits, tmp_path):
    made = visits.assign(
        a=np.log(visits["x"]),
        b=visits["x"] > 4,
        c=np.log(visits["days"]),
        d=visits["site"].astype(str) + ":" + visits["plot"],
        e=visits["x"] + visits["z"] ** 2,
        f=0.1 * visits["z"] ** 2 - visits["x"],
    )
    gam = gg.GAM(formula, family=family).fit(visits)
    hand = gg.GAM(plain, family=family).fit(made)
    new = visits.drop(columns=["y", "count", "won", "lost"]).head(9)
    want = hand.predict(made.head(9), se=True)
    np.testing.assert_allclose(gam.predict(new, se=True), want, rtol=1e-9)
    loaded = reloaded(gam, tmp_path / "gam")
    np.testing.assert_array_equal(loaded.predict(new), gam.predict(new))
    loaded.refit(visits)  # a file knows what columns are computed of
    np.testing.assert_allclose(loaded.predict(new), want[0], rtol=1e-3)
    half = [visits.head(120), visits.tail(120)]
    pieces = gg.GAM(formula, family=family).fit(half)
    np.testing.assert_allclose(pieces.predict(new), want[0], rtol=1e-6)


@pytest.mark.slow
def test_exports_compute_columns(visits, tmp_path):
    formula = "count ~ s(log10(x)) + factor(x > 4) + linear(tan(x / 9)) + offset(log(days))"
    gam = gg.GAM(formula, family="poisson").fit(visits)
    columns = {"x": visits["x"].to_numpy(), "days": visits["days"].to_numpy(float)}
    serving.export(gam, tmp_path / "saved")
    result = serving.load(tmp_path / "saved").predict(columns)
    np.testing.assert_allclose(result["response"], gam.predict(visits), rtol=1e-9)
    serving.export(gam, tmp_path / "gam.onnx")
    np.savez(tmp_path / "columns.npz", **columns)
    run([[tmp_path / "gam.onnx", tmp_path / "columns.npz", tmp_path / "out.npz"]])
    result = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(np.ravel(result["response"]), gam.predict(visits), rtol=1e-6)
    levels = gg.GAM("y ~ x + (1 | site:plot)").fit(visits)
    with pytest.raises(ValueError, match="makes site:plot of levels, which no SavedModel holds"):
        serving.export(levels, tmp_path / "levels")


def test_comparisons_are_numbers_in_arithmetic(visits, tmp_path):
    """Of numpy a sum of two is "or", a difference an error, and an exponential of few digits."""
    x, z = visits["x"], visits["z"]
    one, two = 1.0 * (x > 6), 1.0 * (z > 1)
    made = {"z > 0": z > 0, "(x > 4) * z": (x > 4) * z, "(x > 6) + (z > 1)": one + two, "+x": x}
    made["exp(I(x > 6) - (z > 0))"] = np.exp(one - (z > 0))
    gam = gg.GAM("y ~ " + " + ".join(f"linear({name})" for name in made)).fit(visits)
    plain = dict(zip("abcde", made.values()))
    hand = gg.GAM("y ~ " + " + ".join(f"linear({name})" for name in plain))
    want = hand.fit(pd.DataFrame(plain).assign(y=visits["y"])).predict(pd.DataFrame(plain))
    np.testing.assert_allclose(gam.predict(visits), want, rtol=1e-6)
    serving.export(gam, tmp_path / "saved")
    result = serving.load(tmp_path / "saved").predict({"x": x, "z": z})
    np.testing.assert_allclose(result["response"], want, rtol=1e-6)
    signs = gg.GAM("y ~ linear(+x) + linear(-z)").fit(visits)
    serving.export(signs, tmp_path / "m.json")
    found = scorer.predict(scorer.load(tmp_path / "m.json"), {"x": x, "z": z})
    np.testing.assert_allclose(found["response"], signs.predict(visits), rtol=1e-6)


def test_columns_that_are_also_computed_of_are_no_inputs_by_themselves(visits):
    gam = gg.GAM("y ~ s(x) + s(log(x)) + z").fit(visits)
    with pytest.raises(ValueError, match="column 'x' is also what log\\(x\\) is computed of"):
        gam.partial_dependence("x")
    with pytest.raises(ValueError, match="makes \\(log\\(x\\)\\) are functions of others"):
        gam.sobol()
    alone = gg.GAM("y ~ s(log(x)) + z").fit(visits)
    assert set(alone.sobol(num_samples=64)["effect"]) >= {"log(x)", "z"}
    assert len(alone.partial_dependence("log(x)", num_samples=16)) > 1


def test_what_a_computed_column_lacks_is_missing(visits):
    holes = visits.assign(
        x=visits["x"].mask(visits.index < 3), z=visits["z"].mask(visits.index < 2)
    )
    for formula in ("y ~ s(log(x)) + z", "y ~ factor(x > 4) + z", "y ~ poly(x, 2) + log(x) + s(z)"):
        with pytest.raises(ValueError, match="2 in 'z', 3 in 'x'|3 in 'x', 2 in 'z'"):
            gg.GAM(formula).fit(holes)
        dropped = gg.GAM(formula, missing="drop").fit(holes)
        assert dropped.fitted.dropped == 3
        assert list(np.flatnonzero(np.isnan(dropped.predict(holes)))) == [0, 1, 2]
        filled = gg.GAM(formula, missing="impute").fit(holes)
        assert {f.name: f.count for f in filled.fitted.spec.fills} == {"x": 3, "z": 2}
        assert np.isfinite(filled.predict(holes)).all()
    kept = gg.GAM(formula).fit(visits[3:])
    np.testing.assert_allclose(dropped.predict(visits), kept.predict(visits), rtol=1e-6)
    with pytest.raises(
        ValueError, match=r"'log\(z\)' must be finite; got nan in row \d+, where z = -"
    ):
        gg.GAM("y ~ s(log(z))").fit(visits)
    with pytest.raises(ValueError, match=r"log\(plot\) needs numbers, which 'plot' does not hold"):
        gg.GAM("y ~ s(log(plot))").fit(visits)
    with pytest.raises(ValueError, match="no column 'dayz'; did you mean 'days'"):
        gg.GAM("y ~ s(log(dayz))").fit(visits)


@pytest.mark.parametrize("form", ["numbers", "text", "booleans"])
def test_the_type_of_a_column_decides(form, visits, tmp_path):
    """A category of numbers has levels, alone, in products, beside ``.`` and in ``by``."""
    kind = {"numbers": [3, 1, 2], "text": ["3", "1", "2"], "booleans": [True, False, True]}[form]
    levels = pd.Series(kind).reindex(np.arange(len(visits)) % 3).reset_index(drop=True)
    h = levels if form == "booleans" else pd.Categorical(levels, categories=kind)
    data = visits[["x"]].assign(h=h, y=(levels == kind[0]) * 2.0 + 0.1 * visits["z"])
    for formula in ("y ~ h", "y ~ h + s(x)", "y ~ . - x"):
        gam = gg.GAM(formula).fit(data)
        assert gam.names[0] == "factor(h)"
        assert gam.summary().deviance_explained > 0.98
    assert len(gg.GAM("y ~ x*h").fit(data).names) == 2 * len(set(kind)) - 1
    if form == "booleans":
        return  # which are 0 and 1, too
    with pytest.raises(ValueError, match=r"'h' holds (text|categories) .* factor\('h'\)"):
        gg.GAM("y ~ linear(h)").fit(data)
    numbers = data.assign(h=levels.astype(int))
    line = gg.GAM("y ~ s(h)").fit(numbers)
    assert line.names == ("s(h)",)
    with pytest.raises(ValueError, match="'h' holds (text|categories)"):
        line.predict(data)
    numbers.to_parquet(tmp_path / "rows.parquet")
    assert gg.GAM("y ~ h").fit(str(tmp_path / "rows.parquet")).names == ("linear(h)",)
    if form == "numbers":
        return  # a file of them holds integers
    data.to_parquet(tmp_path / "rows.parquet")
    assert gg.GAM("y ~ h").fit(str(tmp_path / "rows.parquet")).names == ("factor(h)",)


def test_numbers_that_are_levels_elsewhere_multiply_with_a_warning(visits):
    with pytest.warns(gg.MissingTermWarning, match=r"write by=factor\('site'\)"):
        gg.GAM("y ~ s(x, by=site) + factor(site)").fit(visits)


def test_parameters_share_bare_columns(visits):
    both = {"mean": "y ~ s(log(x)) + class", "scale": "~ class + z"}
    names = gg.GAM(both).fit(visits).names
    assert names[:2] == ("mean:s(log(x))", "mean:factor(class)")
    assert names[2:] == ("scale:factor(class)", "scale:linear(z)")


def test_rows_are_not_added_to_what_is_computed(visits):
    for formula in ("y ~ s(log(x))", "y ~ z + (1 | site:plot)"):
        with pytest.raises(ValueError, match=r"refit\(data\) with all rows"):
            gg.GAM(formula).fit(visits.head(200)).update(visits.tail(40))


def test_spline_bases_warn_once_a_fit(visits):
    formula = "y ~ s(x, bs='tp') + s(z, bs='cr') + te(x, z, bs='ps', k=9)"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        gam = gg.GAM(formula).fit(visits)
    assert sum(w.category is gg.BasisWarning for w in said) == 1
    plain = gg.GAM("y ~ s(x) + s(z) + te(x, z, k=9)").fit(visits)
    np.testing.assert_array_equal(gam.predict(visits), plain.predict(visits))


def test_times_are_days(visits, tmp_path, monkeypatch):
    n = len(visits)
    days = np.linspace(0.0, 400.0, n)
    when = pd.Timestamp("2021-03-01") + pd.to_timedelta(days, unit="D")
    data = visits.assign(days=days, when=when, y=np.sin(days / 60.0) + 0.1 * visits["z"])
    spell = "bs='cyclic', period=365.25"
    gam = gg.GAM(f"y ~ s(when, {spell}) + when").fit(data)
    hand = gg.GAM(f"y ~ s(days, {spell}) + days").fit(data)
    np.testing.assert_allclose(gam.predict(data), hand.predict(data), atol=2e-4)
    slopes = [g.coefficients().set_index("column")["estimate"] for g in (gam, hand)]
    assert slopes[0]["when"] == pytest.approx(slopes[1]["days"], rel=0.01)  # a day
    utc = data.assign(when=data["when"].dt.tz_localize("UTC"))
    zone = utc.assign(when=utc["when"].dt.tz_convert("Asia/Tokyo"))
    with pytest.raises(
        ValueError, match="holds times with a time zone where .* needs times, as in"
    ):
        gam.predict(zone)  # of which zone were the others?
    zoned = gg.GAM("y ~ s(when)").fit(utc)
    np.testing.assert_array_equal(zoned.predict(zone), zoned.predict(utc))
    for rows in (data, zone):
        more = gg.GAM("y ~ s(when)").fit(rows.head(150))
        more.update(rows.tail(n - 150))
        np.testing.assert_allclose(more.predict(rows), zoned.predict(utc), atol=5e-3)
    alone = gg.GAM("y ~ s(when)").fit(data)
    for one, rows in ((zoned, utc), (alone, data)):
        table = one.effects("s(when)", num_points=5)
        assert table["when"].dtype.kind == "M"
        pd.testing.assert_frame_equal(one.effects("s(when)", table[["when"]]), table)
        at = [rows["when"][3]]
        for found in (
            one.partial_dependence("when", at, num_samples=8),
            one.avg_predictions(rows, at={"when": at}, num_samples=8),
        ):
            expected = one.predict(rows.iloc[[3]]).item()
            assert found["estimate"].item() == pytest.approx(expected, abs=1e-4)
        assert len(one.partial_dependence("when", num_points=3, num_samples=8)) == 3
    with monkeypatch.context() as patch:
        patch.setattr(bins, "KEPT_ROWS", 100)
        coded = gg.GAM("y ~ s(when)").fit(zone)
    np.testing.assert_allclose(coded.predict(utc), zoned.predict(utc), atol=5e-3)
    (ax, *_) = alone.draw().axes
    assert ax.xaxis.get_major_formatter().format_data(ax.get_xlim()[0]).startswith("2021")
    with pytest.warns(gg.ExtrapolationWarning, match="predicted at 2031-03-01T"):
        alone.predict(data.iloc[[0]].assign(when=when[0] + pd.DateOffset(years=10)))
    assert abs(table["when"].iloc[-1] - when[-1]) < pd.Timedelta(seconds=1)
    np.testing.assert_array_equal(reloaded(gam, tmp_path / "gam").predict(data), gam.predict(data))
    with pytest.raises(ValueError, match="'when' holds numbers where .* needs times"):
        gam.predict(data.assign(when=days))
    pieces = gg.GAM(f"y ~ s(when, {spell}) + when").fit([data.head(99), data.tail(n - 99)])
    np.testing.assert_allclose(pieces.predict(data), gam.predict(data), rtol=1e-6)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (44306, r"in row 50 a value of type int \(44306\)"),
        ("2021-04-20", r"in row 50 a value of type str \('2021-04-20'\)"),
        (True, "in row 50 a value of type bool"),
        (pd.Timedelta(1, "D"), "in row 50 spans of time"),
        (pd.Timestamp("2021-04-20T00Z"), "in row 50 times with a time zone"),
    ],
)
def test_dates_have_nothing_else_among_them(other, message):
    """As columns of sheets do that were typed by hand, in which a number is a day, too."""
    n = 100
    days = pd.date_range("2021-03-01", periods=n)
    y = np.random.default_rng(0).standard_normal(n)
    data = pd.DataFrame({"t": days.astype(object), "x": np.arange(n), "y": y})
    odd = data.assign(t=[*days[:50], other, *days[51:]])
    message = f"'t' holds times, and {message}.*by pandas.to_datetime"
    gam = gg.GAM("y ~ s(t)").fit(data)
    turned = odd.iloc[50::-1]
    for call in (
        lambda: gg.GAM("y ~ s(t)").fit(odd),
        lambda: gam.predict(odd),
        lambda: gg.GAM("y ~ s(t)").fit([odd.iloc[:60], odd.iloc[60:]]),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match=message.replace("row 50", "row 0")):
        gam.predict(turned)  # of which it is the first
    for model in (gg.GAM("y ~ lag(x, 0, 3, time=t)"), gg.GAM("y ~ s(x)", ar1="t")):
        with pytest.raises(ValueError, match=r"must hold numbers or times|'t' holds times, and"):
            model.fit(odd)
    assert len(gam.predict(data.iloc[:0])) == 0
    assert gam.predict(data.assign(t=days.date)) == pytest.approx(gam.predict(data))


# --- formulas ------------------------------------------------------------------------------------


def test_formulas_are_read_and_print_as_they_are_written():
    terms = parse_formula("y ~ s(x) + log(z) + a*b - a:b + linear(w) + .").terms
    assert repr(terms) == "s('x') + linear('w') + . + log(z) + a*b - a:b"
    assert terms_from_json(terms.to_json()) == terms
    assert parse_formula(repr(terms)).terms == terms
    assert terms[-1].columns == ("z", "a", "b")
    assert parse_formula("y ~ x + z").terms == Terms([Variable("x"), Variable("z")])
    assert parse_formula("0 + 1").terms == Terms([Variable(0)])  # of a matrix without names


def test_data_that_a_formula_cannot_be_of(data):
    for formula, table, message in (
        ("y ~ log(u) + s(z)", data, "log\\(u\\) is nan in row 0, where u = -|log\\(u\\) is"),
        ("y ~ log(x)", data.assign(x=0.0), "log\\(x\\) is -inf in row 0, where x = 0"),
        ("y ~ log(x)", data.assign(**{"log(x)": 1.0}), "data has a column 'log\\(x\\)'"),
        ("y ~ log(g)", data, "log\\(g\\)"),
        ("y ~ I(b*x)", data.assign(b=data["u"] < 0), r"levels \('b'\) are compared: to compute, m"),
        ("y ~ log(nope)", data, "no column 'nope'"),
        ("y ~ log(y)", data, "'y' is also in a term"),
        ("y ~ log(x)", [data.head(80), data.tail(80)], "needs a table in memory"),
        ({"mean": "y ~ log(x)", "scale": "z"}, data, "not transformed in terms of one parameter"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.GAM(formula).fit(table)
