"""Tables from whatever holds them, in one piece or in blocks, and what is read from them."""

import datetime
import decimal
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from test_streams import Anew

import gpflow_gam as gg
from gpflow_gam.gam.families import Categorical, Gamma, Gaussian, Poisson
from gpflow_gam.gam.fits.reading import with_response
from gpflow_gam.gam.frames.blocks import blocks_of
from gpflow_gam.gam.frames.encoding import (
    Fill,
    LevelColumn,
    NumericColumn,
    filled,
    learn_fills,
    learn_levels,
)
from gpflow_gam.gam.frames.table import Table, concatenated, plain
from gpflow_gam.gam.terms.base import Expression

N = 40


# --- distinct values, against loops over rows ---------------------------------------------------


def objects(*values: object) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


COLUMNS = {
    "ints": np.array([3, 1, 2, 1, 3]),
    "small ints": np.array([3, 1, 2, 1, 3], dtype=np.uint8),
    "whole floats": np.array([1.0, 0.0, -0.0, 2.0, 1.0]),
    "fractions": np.array([0.5, 1.0, 0.5, -1.5, 0.0]),
    "halves": np.array([0.5, 1.0, 0.5, -1.5, 0.0], dtype=np.float16),
    "single": np.array([0.1, 1.0, 0.1, 2.5, 0.0], dtype=np.float32),
    "bools": np.array([True, False, True, True, False]),
    "str array": np.array(["b", "a", "long", "a", "b"]),
    "strings": objects("b", "a", "long", "a", "b"),
    "pandas strings": pd.Series(["b", "a", "long", "a", "b"], dtype="string"),
    "bools and strings": objects(True, "yes", False, "a", True),
    "mixed": objects(1, "y", 1.0, np.int64(2), "x"),
    "mixed numbers": objects(1, 1.0, True, np.float32(0.1), 0.1),
    "decimal point": objects(2.0, np.float64(2), 2, 3.5, np.str_("q")),
    "categories": pd.Categorical(["b", "a", "b", "c", "a"], categories=["c", "q", "b", "a"]),
    "series of categories": pd.Series([2.0, 1.0, 2.0, 1.0, 2.0]).astype("category"),
    "dates": np.array(["2020-01-02", "2020-01-01", "2020-01-02"] * 2, dtype="datetime64[D]")[:5],
    "nanoseconds": np.array(["2020-01-02", "2020-01-01"] * 3, dtype="datetime64[ns]")[:5],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_levels_and_codes_are_those_of_a_loop(name):
    table = Table({"g": COLUMNS[name]})
    values = table.values("g")
    seen = {plain(v) for v in values}
    own = table.levels("g")
    if own is None:
        expected = tuple(sorted(seen, key=lambda v: (isinstance(v, str), v)))
    else:
        expected = tuple(plain(v) for v in own if plain(v) in seen)
    column = learn_levels(table, "g")
    assert column.levels == expected
    assert [type(v) for v in column.levels] == [type(v) for v in expected]
    loop = [expected.index(plain(v)) for v in values]
    codes = column.encode(table)
    assert codes.dtype == np.float64
    np.testing.assert_array_equal(codes, loop)
    # levels of which some are new, in the order of their first rows
    known = expected[1:]
    new = dict.fromkeys(plain(v) for v in values if plain(v) not in known)
    places = {level: i for i, level in enumerate([*known, *new])}
    np.testing.assert_array_equal(
        LevelColumn("g", known, "prior").encode(table), [places[plain(v)] for v in values]
    )
    row = next(i for i, v in enumerate(values) if plain(v) not in known)
    with pytest.raises(ValueError, match=rf"'g' has the level .* in row {row}, never seen"):
        LevelColumn("g", known).encode(table)


def test_numbers_are_one_level_in_every_type():
    column = learn_levels(Table({"g": np.array([1, 2, 0])}), "g")
    for other in ([1.0, 2.0, 0.0], [True, 2, False], objects(1.0, np.int8(2), False)):
        np.testing.assert_array_equal(column.encode(Table({"g": np.array(other)})), [1, 2, 0])
    with pytest.raises(ValueError, match="has the level '1' in row 0"):
        column.encode(Table({"g": np.array(["1", "2", "0"])}))
    truth = pd.DataFrame({"g": ["a", "b", "a"], "t": [True, True, False]})
    both = learn_levels(Table(truth), Expression.crossed(["g", "t"]), "prior")
    assert both.levels == ("a:False", "a:True", "b:True")
    for kind in (bool, int, float):
        np.testing.assert_array_equal(both.encode(Table(truth.astype({"t": kind}))), [1, 2, 0])


def test_fractions_are_one_level_in_every_type():
    dose = np.array([0.1, 1.0, 0.25, 0.1])
    column = learn_levels(Table({"g": dose}), "g", "prior")
    single = learn_levels(Table({"g": dose.astype(np.float32)}), "g", "prior")
    assert single.levels == column.levels == (0.1, 0.25, 1)
    exact = [decimal.Decimal(v) for v in ("0.10", "1.00", "0.25", "0.1")]
    kept = LevelColumn("g", tuple(map(float, np.float32([0.1, 0.25, 1]))), "prior")
    for other in (dose, dose.astype(np.float32), exact):
        for one in (column, single, kept):
            np.testing.assert_array_equal(one.encode(Table({"g": other})), [0, 2, 1, 0])


DAY = pd.Timestamp("2020-03-01")


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ([1, 2], [[1.0, 2.0], ["1.0", "2.00"], [decimal.Decimal("1.00"), 2], ["1", "2"]]),
        ([0.1, 2], [np.float32([0.1, 2]), [decimal.Decimal("0.10"), decimal.Decimal(2)]]),
        (
            [DAY, DAY + pd.Timedelta(days=1)],
            [[DAY.date(), DAY.date() + datetime.timedelta(1)], ["2020-03-01", "2020-03-02"]],
        ),
        (
            [DAY.tz_localize("UTC"), DAY.tz_localize("Asia/Tokyo")],
            [
                [DAY.tz_localize("UTC").tz_convert("Asia/Tokyo"), DAY.tz_localize("Asia/Tokyo")],
                ["2020-03-01 00:00:00+00:00", "2020-03-01 00:00:00+09:00"],
            ],
        ),
    ],
    ids=["numbers", "fractions", "dates", "zones"],
)
def test_crossed_levels_are_the_same_in_every_type(own, others):
    """They are joined as text, in which one value has many forms."""
    crossed = Expression.crossed(["a", "g"])
    tables = [Table({"a": ["u", "v"], "g": objects(*values)}) for values in [own, *others]]
    for one in tables:
        column = learn_levels(one, crossed, "prior")
        for other in tables:
            np.testing.assert_array_equal(column.encode(other), [0, 1])


def test_text_that_numbers_could_be_is_crossed_as_it_is_written():
    """Versions and doses kept as text; a value that is a level's in another type finds it."""
    crossed = Expression.crossed(["v", "g"])
    table = Table({"v": ["1", "1.0", "2.00", "True"], "g": ["a"] * 4})
    column = learn_levels(table, crossed, "prior")
    np.testing.assert_array_equal(np.sort(column.encode(table)), [0, 1, 2, 3])
    assert column.shown(column.encode(Table({"v": [2], "g": ["a"]}))).tolist() == ["2.00:a"]


@pytest.mark.parametrize("level", [1.0 / 4096.0, 2.0**-20, 0.1, float(np.float32(1 / 3))])
def test_levels_are_called_what_they_are(level):
    """A fraction that single precision holds exactly is not its shorter text."""
    (got,) = learn_levels(Table({"x": [level, level]}), "x", "prior").levels
    assert got == (level if level != np.float32(1 / 3) else 0.33333334)


def test_levels_that_hold_colons_are_crossed_as_others():
    rows = {"a": ["1:2", "1", "'1", "1:2", "1"], "b": ["3", "2:3", "2':3", "3", "2"]}
    got = Table(rows).values(Expression.crossed(["a", "b"]))
    assert got.tolist() == ["'1:2':3", "1:'2:3'", '"\'1":"2\':3"', "'1:2':3", "1:2"]


@pytest.mark.parametrize(
    ("own", "other", "message"),
    [
        ((1, 2, 10), ["2", "1"], r"holds text \('2'\), where its levels in the fit were numbers"),
        (("1", "2"), [2, 1], r"holds numbers \(2\), where its levels in the fit were text"),
        ((pd.Timestamp(2020, 1, 1),), ["2020-01-01"], r"holds text .* in the fit were times"),
        ((datetime.date(2020, 1, 1),), [pd.Timestamp(2020, 1, 1)], r"holds times .* were dates"),
        ((pd.Timestamp(2020, 1, 1),), [datetime.date(2020, 1, 1)], r"holds dates .* were times"),
        ((pd.Timestamp(2020, 1, 1),), [pd.Timestamp("2020-01-01T00Z")], "times with a time zone"),
    ],
)
def test_levels_of_another_kind_are_not_new_ones(own, other, message):
    """As codes are that one file holds as numbers and another as text."""
    column = LevelColumn("g", own, unseen="prior")
    with pytest.raises(ValueError, match=message):
        column.encode(Table({"g": objects(*other)}))
    both = Table({"g": objects(*other, own[0])})  # a kind of its own beside levels that are known
    new = [len(own) + i for i in range(len(other))]
    np.testing.assert_array_equal(column.encode(both), [*new, 0])


def test_a_level_is_not_there_as_a_number_and_as_text():
    with pytest.raises(ValueError, match=r"holds 1 as a number and as text \('1'\)"):
        learn_levels(Table({"g": objects(1, 2, "1", 2)}), "g")
    assert learn_levels(Table({"g": objects(1, 2, "other")}), "g").levels == (1, 2, "other")


def test_what_numpy_masks_is_missing():
    """Below a mask there may be any value."""
    x = np.ma.array([7, 1, 2], mask=[True, False, False])
    for table in (Table({"0": x}), Table(x[:, None])):
        np.testing.assert_array_equal(table.missing(0), [True, False, False])
        np.testing.assert_array_equal(table.values(0)[1:], [1, 2])
    truth = Table({"b": np.ma.array([True, False], mask=[False, True])})
    assert list(truth.missing("b")) == [False, True]
    assert truth.is_levels("b")


@pytest.mark.parametrize("make", [pd.Categorical, pd.Series])
def test_a_response_is_read_as_a_column_is(make):
    """Categories have their order, which says of which label a probability is."""
    labels = pd.Categorical(["no", "yes", "no"], categories=["yes", "no"])
    table, name = with_response({"x": [1, 2, 3]}, make(labels), None)
    assert name == "y"
    assert table.levels("y") == ("yes", "no")
    masked, _ = with_response({"x": [1, 2]}, np.ma.array([3, 4], mask=[False, True]), None)
    assert list(masked.missing("y")) == [False, True]


def test_a_response_in_the_order_of_other_labels_is_not_taken_as_it_stands():
    """Pandas puts columns together by labels, and a fit by places: the two must be the same."""
    data = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]})
    turned = data.iloc[::-1]
    message = "in place 0 data has the row labelled 2, and y that of 0"
    for rows in (turned, {"x": turned["x"]}):
        with pytest.raises(ValueError, match=message):
            with_response(rows, data["y"] + 1.0, None)
    with pytest.raises(ValueError, match="column 'y' has the rows of column 'x' in another order"):
        Table({"x": turned["x"], "z": [7, 8, 9], "y": data["y"]})
    for y in (data["y"].loc[turned.index], data["y"].to_numpy()[::-1], data["y"][::-1].to_list()):
        table, name = with_response(turned, y, None)
        np.testing.assert_array_equal(table.values(name), [6.0, 5.0, 4.0])
    # labels that are others, there twice, or of several parts tell no order
    for index in ([7, 8, 9], [0, 0, 1], pd.MultiIndex.from_product([["a"], [0, 1, 2]])):
        table, name = with_response(turned, data["y"].set_axis(index) + 1.0, None)
        np.testing.assert_array_equal(table.values(name), [5.0, 6.0, 7.0])


def test_errors_count_the_rows_that_were_given():
    """Those that are left out among them: rows of weight zero, and incomplete ones."""
    data = pd.DataFrame(
        {"x": [0.1, 0.2, np.inf, 0.4], "g": ["a", "b", "c", "a"], "w": [0, 1, 1, 1]}
    )
    table = filled(Table(data).counted(["w"]), [Fill("x", 0.5, 0)]).rows(
        np.array([False, True, True])
    )
    for reader in (NumericColumn("x", "s(x)"), LevelColumn("g", ("a", "b"))):
        with pytest.raises(ValueError, match="in row 2"):
            reader.encode(table)


def test_values_of_a_column_are_that_column():
    data = pd.DataFrame({"x": [1.0, 2.0], "y": [4.0, np.nan]})
    assert with_response(data, data["y"], None)[1] == "y"
    assert with_response(data, data["y"].shift(-1), None)[1] == "y_"


@pytest.mark.parametrize("hole", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("make", [objects, lambda *values: [*values]], ids=["array", "list"])
def test_missing_values_are_no_level_and_are_found(make, hole):
    table = Table({"g": make("b", hole, "a", "b", hole)})
    np.testing.assert_array_equal(table.missing("g"), [False, True, False, False, True])
    assert learn_levels(table, "g").levels == ("a", "b")
    (fill,) = learn_fills(table, ["g"])
    assert (fill.value, fill.count) == ("b", 2)
    assert list(filled(table, [fill]).values("g")) == ["b", "b", "a", "b", "b"]
    with pytest.raises(ValueError, match="given in every row, .* in row 1 \\(2 such values\\)"):
        Categorical().encode(table.values("g"))
    with pytest.raises(ValueError, match="in row 1, never seen in the fit"):
        LevelColumn("g", ("a", "b")).encode(table)
    rows = with_response({"x": [1, 2]}, make("b", hole), None)[0]
    assert rows.missing("y").tolist() == [False, True]
    truth = Table({"w": make(True, hole)})
    assert truth.is_levels("w")
    assert truth.missing("w").tolist() == [False, True]
    numbers = objects(1, 2.5, "three", "four")
    with pytest.raises(ValueError, match=r"must be numbers.*'three' in row 2 \(2 such values\)"):
        Poisson().encode(numbers)


def test_decimals_are_numbers_wherever_they_stand():
    """As databases have them: response, offset and weights are read as covariates are."""
    rng = np.random.default_rng(0)
    plain_numbers = pd.DataFrame(rng.uniform(1.0, 2.0, (40, 4)).round(3), columns=list("xyow"))
    exact = plain_numbers.map(lambda v: decimal.Decimal(str(v)))
    gams = [gg.GAM("y ~ x + offset(o)", weights="w").fit(d) for d in (plain_numbers, exact)]
    np.testing.assert_array_equal(gams[1].predict(exact), gams[0].predict(plain_numbers))


@pytest.mark.parametrize("make", [np.asarray, list], ids=["numpy", "objects"])
@pytest.mark.parametrize("family", [Gaussian(), Gamma(), Poisson()], ids=lambda f: f.name)
def test_spans_of_time_are_no_numbers(family, make):
    """Of which numpy makes counts of nanoseconds, or of whatever an array is in."""
    y = np.array([3, 5], dtype="timedelta64[D]").astype("timedelta64[ns]")
    with pytest.raises(ValueError, match="y holds spans of time.*divide it by the unit"):
        family.encode(np.array([*make(y)], dtype=None if make is np.asarray else object))
    with pytest.raises(ValueError, match="y holds times, for family"):
        family.encode(np.datetime64("2020-01-01", "ns") + y)


def test_categories_that_do_not_occur():
    g = pd.Categorical(["b", None, "a", "b"], categories=["z", "b", "a"])
    table = Table({"g": g})
    assert learn_levels(table, "g").levels == ("b", "a")
    np.testing.assert_array_equal(table.missing("g"), [False, True, False, False])
    rest = table.rows(~table.missing("g"))
    # "z" is none of the fit's levels, and in no row
    np.testing.assert_array_equal(LevelColumn("g", ("a", "b")).encode(rest), [1, 0, 1])
    (fill,) = learn_fills(table, ["g"])
    assert fill.value == "b"
    many = pd.Categorical.from_codes(np.arange(128) % 127, categories=[str(i) for i in range(127)])
    assert learn_fills(Table({"g": many}), ["g"])[0].value == "0"


def test_the_most_frequent_level_and_among_equals_the_first():
    for values in (["b", "a", "b", "a", "c"], [2, 1, 2, 1, 3], pd.Categorical(list("babac"))):
        (fill,) = learn_fills(Table({"g": values}), ["g"], ["g"])
        assert fill.value == pd.Series(values).mode().iloc[0]


# --- Arrow and polars ---------------------------------------------------------------------------


def reference() -> dict[str, list]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(N).tolist()
    gaps = [None if i % 7 == 3 else v for i, v in enumerate(x)]
    counts = rng.integers(0, 5, N).tolist()
    text = [f"t{i}" for i in rng.integers(0, 3, N)]
    return {
        "x": x,
        "gaps": gaps,
        "counts": counts,
        "int gaps": [None if i % 5 == 1 else v for i, v in enumerate(counts)],
        "text": text,
        "text gaps": [None if i % 6 == 2 else v for i, v in enumerate(text)],
        "truth": [v > 2 for v in counts],
        "truth gaps": [None if i % 4 == 2 else v > 2 for i, v in enumerate(counts)],
        "group": ["low" if v < 0 else "high" for v in x],
        "group gaps": [None if i % 8 == 1 else "low" if v < 0 else "high" for i, v in enumerate(x)],
        "day": [datetime.date(2020, 1, 1 + v) for v in counts],
    }


GROUPS = ["low", "unused", "high"]


def arrow_table():
    data = reference()
    table = pa.table({name: data[name] for name in data if not name.startswith("group")})
    for name in ("group", "group gaps"):
        codes = [None if v is None else GROUPS.index(v) for v in data[name]]
        column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(GROUPS))
        table = table.append_column(name, column)
    return table


def polars_frame():
    enum = pl.Enum(GROUPS)
    return pl.DataFrame(reference(), schema_overrides={"group": enum, "group gaps": enum})


def in_chunks(table):
    return pa.concat_tables([table.slice(0, 13), table.slice(13, 9), table.slice(22)])


SOURCES = {
    "arrow": arrow_table,
    "arrow batch": lambda: arrow_table().combine_chunks().to_batches()[0],
    "arrow chunks": lambda: in_chunks(arrow_table()),
    "polars": polars_frame,
    "dict of arrow": lambda: dict(zip(arrow_table().column_names, arrow_table().columns)),
    "dict of polars": lambda: {c.name: c for c in polars_frame().get_columns()},
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_foreign_tables_are_read_as_pandas_ones(make):
    data = reference()
    frame = pd.DataFrame(data)
    for name in ("group", "group gaps"):
        frame[name] = pd.Categorical(frame[name], categories=GROUPS)
    expected, table = Table(frame), Table(make())
    assert set(table.names) == set(data)
    assert table.num_rows == N
    for part, other in [
        (table, expected),
        (table.part(5, 20), expected.part(5, 20)),
        (table.rows(np.arange(N) % 3 == 0), expected.rows(np.arange(N) % 3 == 0)),
    ]:
        assert part.num_rows == other.num_rows
        for name in data:
            holes = other.missing(name)
            np.testing.assert_array_equal(part.missing(name), holes, err_msg=name)
            assert part is not table or holes.any() == ("gaps" in name)
            assert part.levels(name) == other.levels(name)
            assert part.is_levels(name) == name.startswith(("text", "truth", "group"))
            a, b = part.rows(~holes), other.rows(~holes)
            if name == "day":
                with pytest.raises(ValueError, match="holds times"):
                    NumericColumn(name, "s").encode(a)
                continue
            levels = learn_levels(b, name) if name not in ("x", "gaps") else None
            if levels is not None:
                assert learn_levels(a, name).levels == levels.levels
                np.testing.assert_array_equal(levels.encode(a), levels.encode(b))
            if not name.startswith(("text", "group")):
                number = NumericColumn(name, "s")
                np.testing.assert_array_equal(number.encode(a), number.encode(b))


def test_times_keep_their_zone():
    day = pd.Series(pd.date_range("2021-03-26", periods=4, tz="Europe/Paris"))
    tables = [Table({"t": c}) for c in (day, pl.Series(day), pa.array(day), day.astype(object))]
    reader = NumericColumn("t", "s", time="times with a time zone")
    expected = day.map(pd.Timestamp.timestamp) / 86_400
    for table in tables:
        np.testing.assert_allclose(reader.encode(table), expected, rtol=1e-15)
        assert learn_levels(table, "t").levels == tuple(day)


def test_columns_that_are_not_asked_for_are_not_converted():
    x = np.arange(1000.0)
    table = Table(pa.table({"x": x, "bad": pa.array([[1]] * 1000)}))
    assert np.shares_memory(table.values("x"), x)
    assert np.shares_memory(table.part(10, 20).values("x"), x)
    assert table.part(10, 20).values("x")[0] == 10.0


def test_arrow_types_of_their_own():
    number = decimal.Decimal("1.25")
    table = Table(
        pa.table(
            {
                "money": pa.array([number, None]),
                "nothing": pa.nulls(2),
                "all gone": pa.array([None, None], pa.string()),
                "twice": pa.DictionaryArray.from_arrays([0, 2], ["a", "b", "a"]),
            }
        )
    )
    assert NumericColumn("money", "s").encode(table.part(0, 1)) == [1.25]
    assert table.missing("nothing").all()
    assert table.is_levels("all gone")
    assert learn_levels(table, "twice").levels == ("a",)
    with pytest.raises(ValueError, match=r"the column\(s\) \['x'\] twice"):
        Table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]))


@pytest.mark.parametrize("kind", ["int64", "uint64"])
@pytest.mark.parametrize("make", [pa.table, pl.DataFrame, pd.DataFrame])
def test_large_codes_with_gaps_stay_apart(make, kind):
    """Which floats cannot tell: identifiers of 64 bits are of that size."""
    ids = [2**60 + 3 * i for i in range(7)]
    ids += [2**64 - 1 - i for i in range(3)] * (kind == "uint64")
    arrow = pa.array([*ids, None], kind)
    own = {pl.DataFrame: pl.Series(arrow), pa.table: arrow}
    own[pd.DataFrame] = pd.Series([*ids, None], dtype=kind.replace("int", "Int").replace("u", "U"))
    table = Table(make({"id": own[make]}))
    assert table.missing("id").tolist() == [False] * len(ids) + [True]
    column = learn_levels(table, "id")
    assert column.levels == tuple(sorted(ids))
    there = table.rows(~table.missing("id"))
    assert column.encode(there).tolist() == [sorted(ids).index(i) for i in ids]
    np.testing.assert_array_equal(NumericColumn("id", "s").encode(there), np.array(ids, float))
    both = concatenated([table, there])
    assert learn_levels(both, "id").levels == column.levels
    assert both.counted(["id"]).num_rows == both.num_rows
    floats = Table({"id": np.array([1.0, np.nan])})
    assert learn_levels(concatenated([floats, there]), "id").levels == (1, *column.levels)


def test_polars_categories_are_the_columns_own():
    pl.Series(["zebra", "b", "other"], dtype=pl.Categorical)  # numbered along with those below
    table = Table(pl.DataFrame({"g": pl.Series(["b", None, "a", "b"], dtype=pl.Categorical)}))
    assert table.levels("g") == ("a", "b")
    assert list(table.part(1, 4).values("g"))[1:] == ["a", "b"]
    assert table.part(2, 3).levels("g") == ("a", "b")
    np.testing.assert_array_equal(table.missing("g"), [False, True, False, False])
    with pytest.raises(TypeError, match=r"a LazyFrame, a query: pass data\.collect\(\)"):
        Table(pl.DataFrame({"g": [1]}).lazy())
    duckdb = pytest.importorskip("duckdb")
    with pytest.raises(TypeError, match=r"a query: pass data\.df\(\)"):
        Table(duckdb.sql("SELECT 1 AS g"))


# --- blocks -------------------------------------------------------------------------------------


def frame_of(size: int, seed: int = 0, groups: str = "abc") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.standard_normal(size),
            "n": rng.integers(0, 9, size),
            "t": rng.choice(["p", "q"], size),
            "g": pd.Categorical(rng.choice(list(groups), size), categories=list(groups)),
        }
    )


def together(blocks, name: str) -> np.ndarray:
    return np.concatenate([block.values(name) for block in blocks])


def test_blocks_of_parquet(tmp_path):
    first, second = frame_of(30, 1, "ba"), frame_of(20, 2, "cb")
    pq.write_table(pa.Table.from_pandas(first), tmp_path / "0.parquet", row_group_size=12)
    pq.write_table(pa.Table.from_pandas(second), tmp_path / "1.parquet")
    whole = pd.concat([first, second], ignore_index=True)
    for source in (tmp_path, str(tmp_path)):
        blocks = blocks_of(source, ["x", "g", "t"], 7)
        for _ in range(2):
            np.testing.assert_array_equal(together(blocks, "x"), whole["x"])
            np.testing.assert_array_equal(together(blocks, "g"), whole["g"].astype(object))
            assert concatenated(list(blocks)).levels("g") == ("b", "a", "c")
        assert max(b.num_rows for b in blocks) == 7
        assert all(b.names == ["x", "g", "t"] for b in blocks)
    assert {*next(iter(blocks_of(tmp_path, None, 7))).names} == {"x", "n", "t", "g"}
    with pytest.raises(ValueError, match="data has no column 'grp'; "):
        blocks_of(tmp_path, ["grp"], 7)


def test_parquet_without_pyarrow_and_paths_of_other_things(tmp_path, monkeypatch):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow.dataset", None)
        with pytest.raises(ImportError, match=r"pip install 'gpflow_gam\[parquet\]'"):
            blocks_of("data.parquet", ["x"], 10)
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        blocks_of(tmp_path / "none.parquet", ["x"], 10)
    (tmp_path / "data.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="is not Parquet"):
        blocks_of(tmp_path / "data.csv", ["x"], 10)


def test_blocks_of_tables_one_after_the_other():
    first, second = frame_of(12, 1, "ab"), frame_of(9, 2, "cb")
    for source in ([first, second], Anew([first, second])):
        blocks = blocks_of(source, ["x", "g"], 10)
        for _ in range(2):
            assert [b.num_rows for b in blocks] == [10, 2, 9]
            np.testing.assert_array_equal(together(blocks, "x"), [*first["x"], *second["x"]])
            assert list(together(blocks, "g")) == [*first["g"], *second["g"]]
            assert concatenated(list(blocks)).levels("g") == ("a", "b", "c")
    matrices = [np.ones((3, 2)), np.zeros((2, 2))]
    np.testing.assert_array_equal(together(blocks_of(matrices, None, 9), 1), [1, 1, 1, 0, 0])
    gone = second.assign(g=pd.Series([None] * 9), t=np.nan)
    for order in ([first, gone], [gone, first]):
        assert concatenated(list(blocks_of(order, None, 10))).levels("g") == ("a", "b")


def test_blocks_that_cannot_be():
    first, second = frame_of(12), frame_of(9)
    with pytest.raises(TypeError, match="source must be a table, the path .*; got int"):
        blocks_of(3, ["x"], 10)
    plain_text = second.assign(g=second["g"].astype(str))
    for order in ([first, plain_text], [plain_text, first]):
        with pytest.raises(ValueError, match="'g' holds .* in block 0 and .* in block 1"):
            list(blocks_of(order, ["g"], 10))
