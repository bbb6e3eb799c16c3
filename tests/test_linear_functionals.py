"""Terms that are weighted sums of evaluations: lags, curves, columns of arrays."""

import itertools

import gpflow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.integrate import trapezoid
from test_kernels import compare

import gpflow_gam as gg
from gpflow_gam import lag, s, te
from gpflow_gam.gam.frames.table import Table
from gpflow_gam.gam.terms.base import Lags
from gpflow_gam.kernels import CentredLinear, Summed, ZeroMean
from gpflow_gam.kernels.fixed_inputs import fixed_input_kernel
from gpflow_gam.measures import Discrete

LAST = 4
LAGS = np.arange(LAST + 1)


def surface(value, lags):
    return 0.2 * value**2 * np.exp(-lags / 2.0)


@pytest.fixture(scope="module")
def series():
    draws = np.random.default_rng(0)
    x = np.sin(np.arange(260) / 9.0) + 0.5 * draws.normal(size=260)
    histories = np.full((260, LAST + 1), np.nan)
    for i, k in itertools.product(range(260), LAGS):
        if i >= k:
            histories[i, k] = x[i - k]
    truth = surface(histories, LAGS).sum(axis=1)
    y = truth + 0.1 * draws.normal(size=260)
    y[np.isnan(y)] = 0.0
    frame = pd.DataFrame({"x": x, "y": y, "day": pd.date_range("2001-01-01", periods=260)})
    return frame, histories, truth


@pytest.fixture(scope="module")
def fitted(series):
    return gg.GAM("y ~ lag(x, 0, 4)", missing="drop").fit(series[0])


# --- the covariance ------------------------------------------------------------------------------


def _looped(base, A, B, slots):
    """Sums over evaluations of both rows, in loops."""
    result = np.zeros((len(A), len(B)))
    for one, other in itertools.product(slots, slots):
        *p, w = one
        *q, v = other
        result += A[:, [w]] * base(A[:, p], B[:, q]).numpy() * B[:, v]
    return result


@pytest.mark.parametrize("few", [False, True])
def test_matrices_are_sums_over_evaluations(few):
    draws = np.random.default_rng(1)
    slots = [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(3)]
    X = draws.uniform(size=(6, 9))
    X[2, 5] = 0.0
    if few:  # so that all pairs of points are fewer than those of rows
        X[:, :] = np.where(np.arange(9) % 3 == 2, X, np.round(X[0]))
    rbf = gpflow.kernels.SquaredExponential(lengthscales=[0.4, 2.0], active_dims=[0, 1])
    centred = ZeroMean(rbf, Discrete(draws.uniform(size=(5, 2))))
    base = gpflow.kernels.Sum([CentredLinear(0.2, active_dims=[0]), centred])
    kernel = Summed(base, slots)
    Z = kernel.single(draws.uniform(size=(4, 2)), 9)
    K, Kzx = (_looped(base, Z, A, slots) for A in (Z, X))
    diagonal = np.diag(_looped(base, X, X, slots))
    for found, known in (
        (kernel(Z), K),
        (kernel(Z, X), Kzx),
        (kernel(X, Z), Kzx.T),
        (kernel(X, full_cov=False), diagonal),
    ):
        np.testing.assert_allclose(found.numpy(), known, atol=1e-12)
    compare(fixed_input_kernel(kernel, Z, X), kernel, (Z, X), draws)


# --- lags of tables ------------------------------------------------------------------------------


def test_lags_of_groups_and_times_are_those_of_a_loop():
    draws = np.random.default_rng(2)
    rows = [(g, d) for g in "ab" for d in range(12) if (g, d) not in (("a", 5), ("b", 7))]
    rows = [rows[i] for i in draws.permutation(len(rows))]
    x = draws.normal(size=len(rows))
    known = dict(zip(rows, x))
    table = Table(
        {
            "x": x,
            "g": [g for g, _ in rows],
            "t": pd.Timestamp("2000-02-25") + pd.to_timedelta([d for _, d in rows], unit="D"),
        }
    )
    lags = Lags.of("x", 1, 3, "g", "t", None)
    expected = [[known.get((g, d - by), np.nan) for by in (1, 2, 3)] for g, d in rows]
    np.testing.assert_array_equal(table.array(lags), expected)
    np.testing.assert_array_equal(table.missing(lags), np.isnan(expected).any(axis=1))
    days = pd.Series(table.values("t"))
    for times in (days.dt.tz_localize("UTC"), days - days[0]):
        np.testing.assert_array_equal(table.beside({"t": times}).array(lags), expected)
    spring = (days + pd.Timedelta(days=25)).dt.tz_localize("Europe/Paris")  # whose clocks change
    for zoned in (spring, spring.dt.tz_convert("UTC"), spring.astype(object)):
        np.testing.assert_array_equal(table.beside({"t": zoned}).array(lags), expected)
    with pytest.raises(ValueError, match="no whole number of steps of 0 days 12:00:00"):
        table.beside({"t": spring}).array(Lags.of("x", 1, 3, "g", "t", "12h"))
    # rows of a part keep what is in others
    keep = np.arange(len(rows)) % 3 == 0
    part = table.rows(keep)
    np.testing.assert_array_equal(part.array(lags), np.array(expected)[keep])
    np.testing.assert_array_equal(table.part(4, 9).array(lags), expected[4:9])
    np.testing.assert_array_equal(table.only(["x", lags]).part(4, 9).array(lags), expected[4:9])


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        ({"t": [0, 1, 1, 3]}, {"time": "t"}, "rows 1 and 2 are of the same time 't'; name their"),
        ({"t": [0.0, 1.0, 2.5, 3.0]}, {"time": "t"}, "'t' in row 2 is no whole number of steps"),
        ({"t": [0, 1, 2, 3]}, {"time": "t", "step": "h"}, "step must be positive, in the unit"),
        ({}, {"step": 2.0}, "step=2.0 is between times; name their column"),
    ],
)
def test_times_that_say_no_lags(column, options, message):
    data = {"x": [0.1, 0.4, 0.2, 0.9], "y": [1.0, 2.0, 0.0, 1.0], **column}
    with pytest.raises(ValueError, match=message):
        gg.GAM(lag("x", 0, 1, **options), missing="drop").fit(data, "y")


@pytest.mark.slow
def test_rows_without_lags_are_missing(series):
    frame, histories, _ = series
    with pytest.raises(ValueError, match=r"4 in 'lag\(x, 0, 4\)' \(4 of 260 rows\)"):
        gg.GAM(lag("x", 0, 4)).fit(frame, "y")
    with pytest.raises(ValueError, match="missing='impute' fills in no arrays and lags"):
        gg.GAM(lag("x", 0, 4), missing="impute").fit(frame, "y")
    # rows of weight zero, and those that are dropped, are lags of others all the same
    weights = np.where(np.arange(260) % 7 == 3, 0.0, 1.0)
    frame = frame.assign(w=weights, y=frame["y"].where(np.arange(260) % 5 > 0))
    gone = gg.GAM(lag("x", 0, 4), weights="w", missing="drop").fit(frame, "y")
    stay = (weights > 0.0) & frame["y"].notna() & ~np.isnan(histories).any(axis=1)
    own = gg.GAM(lag("x", 0, 4)).fit({"x": histories[stay], "y": frame["y"][stay]}, "y")
    np.testing.assert_allclose(gone.predict(frame)[stay], own.predict({"x": histories[stay]}))


def test_new_rows_need_their_lags(series, fitted):
    frame, histories, _ = series
    whole = fitted.predict(frame)
    assert np.isnan(whole[:4]).all()
    assert np.isfinite(whole[4:]).all()
    np.testing.assert_allclose(fitted.predict({"x": histories[4:]}), whole[4:])
    arrays = pd.DataFrame({"x": list(histories[4:])})
    np.testing.assert_allclose(fitted.predict(arrays), whole[4:])
    strict = gg.GAM(lag("x", 0, 4)).fit({"x": histories[4:], "y": frame["y"][4:]}, "y")
    with pytest.raises(ValueError, match=r"4 in 'lag\(x, 0, 4\)'.*Lags are in earlier rows"):
        strict.predict(frame)
    with pytest.raises(ValueError, match=r"'x' holds 3 values a row, where lag\(x, 0, 4\) has 5"):
        strict.predict({"x": histories[4:, :3]})


# --- fits ----------------------------------------------------------------------------------------


def test_one_evaluation_is_an_ordinary_smooth():
    draws = np.random.default_rng(3)
    V, T = draws.uniform(size=(90, 2)), draws.uniform(size=(90, 2))
    one = np.tile([1.0, 0.0], (90, 1))
    y = np.sin(6.0 * V[:, 0]) + T[:, 0] + 0.1 * draws.normal(size=90)
    plain = {"v": V[:, 0], "t": T[:, 0]}
    for own, sums in ((s("v", k=8), s("V", k=8, by="W")), (te("v", "t"), te("V", "T", by="W"))):
        known = gg.GAM(own).fit({**plain, "y": y}, "y")
        found = gg.GAM(sums).fit({"V": V, "T": T, "W": one, "y": y}, "y")
        np.testing.assert_allclose(
            found.predict({"V": V, "T": T, "W": one}), known.predict(plain), atol=2e-4
        )
        np.testing.assert_allclose(found.fitted.result.elbo, known.fitted.result.elbo, atol=1e-2)


def test_lags_find_the_surface_and_its_sums(series, fitted):
    points = pd.DataFrame(itertools.product([-1.0, 0.0, 1.0], [0, 2, 4]), columns=["x", "lag"])
    found = fitted.effects("lag(x)", points, reference={"x": 0.0})
    truth = surface(points["x"], points["lag"])
    assert np.all(found["se"][points["x"] == 0.0] < 1e-7)  # the root of a variance of rounding
    inside = (found["lower_simultaneous"] - 1e-9 <= truth) & (
        truth <= found["upper_simultaneous"] + 1e-9
    )
    assert inside.all()
    total = fitted.effects("lag(x)", {"x": [-1.0, 1.0]}, reference={"x": 0.0})
    known = surface(1.0, LAGS).sum()
    assert np.all((total["lower"] < known) & (known < total["upper"]))
    assert np.all(total["se"] < 0.1 * known)
    draws = fitted.sample_effects("lag(x)", {"x": [-1.0, 1.0]}, 4000, reference={"x": 0.0})
    np.testing.assert_allclose(draws.mean(axis=0), total["estimate"], atol=0.01)
    np.testing.assert_allclose(draws.std(axis=0), total["se"], rtol=0.1)
    own = fitted.effects("lag(x)", {"x": series[1][9:11]}, reference={"x": 0.0})
    known = [surface(series[1][i], LAGS).sum() for i in (9, 10)]
    assert np.all((own["lower"] < known) & (known < own["upper"]))
    # the mean over rows where the value is the same at all lags
    ratio = fitted.avg_comparisons({"x": (0.0, 1.0)})
    np.testing.assert_allclose(ratio["estimate"], total["estimate"][1], rtol=1e-6)
    with pytest.raises(ValueError, match=r"reference must map columns of lag\(x\), 'x', 'lag'"):
        fitted.effects("lag(x)", reference={"z": 0.0})


@pytest.mark.slow
def test_what_is_read_of_a_fit(tmp_path, series, fitted):
    assert "lag(x)" in str(fitted.summary())
    parts = fitted.variance_components()
    assert list(parts["part"][:3]) == ["straight in x", "straight in lag", "deviation"]
    figure = fitted.draw()
    assert len(figure.axes) >= 2
    fitted.save(tmp_path / "lags.gam")
    again = gg.GAM.load(tmp_path / "lags.gam")
    np.testing.assert_array_equal(again.predict(series[0]), fitted.predict(series[0]))
    assert repr(again.terms) == repr(fitted.terms)
    assert again.terms == fitted.terms
    assert fitted.sample(series[0].iloc[:30], 3).shape == (3, 30)
    for asked, message in (
        (fitted.tables, "is a sum over lags or arrays, which no table holds"),
        (lambda: gg.serving.export(fitted, tmp_path / "model"), "which no SavedModel holds"),
        (lambda: fitted.update(series[0]), "nothing is kept; call refit"),
        (lambda: fitted.sobol(), "is a sum over lags or arrays"),
        (lambda: fitted.derivatives("lag(x)"), "not a function of one numeric column"),
    ):
        with pytest.raises(ValueError, match=message):
            asked()


def test_curves_multiply_a_function_of_their_places(tmp_path):
    draws = np.random.default_rng(4)
    at = np.array([0.0, 0.05, 0.15, 0.3, 0.4, 0.5, 0.65, 0.7, 0.8, 0.9, 0.95, 1.0])
    curves = draws.normal(size=(150, 4)) @ np.cos(np.pi * np.outer(np.arange(4), at))
    beta = np.exp(-0.5 * np.square((at - 0.5) / 0.15))
    widths = [trapezoid(np.eye(12)[i], at) for i in range(12)]
    truth = curves @ (widths * beta)
    y = 2.0 + truth + 0.05 * draws.normal(size=150)
    model = gg.GAM(s("curve", at=at)).fit({"curve": curves, "y": y}, "y")
    found = model.effects("s(curve)", at)
    assert list(found.columns[:2]) == ["at", "estimate"]
    assert np.all(np.abs(found["estimate"] - beta) < found["upper"] - found["lower"])
    np.testing.assert_allclose(model.predict({"curve": curves}), 2.0 + truth, atol=0.06)
    # of a curve, the integral
    whole = model.effects("s(curve)", {"curve": curves[:2]})
    sums = curves[:2] @ (widths * found["estimate"].to_numpy())
    np.testing.assert_allclose(whole["estimate"], sums, atol=1e-8)
    # curves that are moved, and constant ones
    rise = (model.predict({"curve": curves + 1.0}) - model.predict({"curve": curves})).mean()
    for name in ("avg_slopes", "avg_comparisons"):
        moved = getattr(model, name)("curve", num_samples=8)
        assert moved["estimate"].item() == pytest.approx(rise, rel=1e-6), name
    level = model.partial_dependence("curve", num_points=3, num_samples=8)
    assert level["curve"].iloc[-1] == pytest.approx(curves.max())
    constant = {"curve": np.outer(level["curve"], np.ones(12))}
    np.testing.assert_allclose(level["estimate"], model.predict(constant))
    model.save(tmp_path / "curves.gam")
    again = gg.GAM.load(tmp_path / "curves.gam")
    np.testing.assert_array_equal(
        again.predict({"curve": curves}), model.predict({"curve": curves})
    )
    assert len(model.draw().axes) == 1


ARRAYS = {
    "dict": dict,
    "rows": lambda rows: pd.DataFrame({k: list(v) for k, v in rows.items()}),
    "arrow": lambda rows: pa.table({k: list(v) for k, v in rows.items()}),
    "polars lists": lambda rows: pl.DataFrame({k: v.tolist() for k, v in rows.items()}),
    "polars arrays": pl.DataFrame,
}


@pytest.mark.parametrize("formula", ["s(C, at=(0,1,2,3), k=4)", "te(C, L, k=9)", "s(L, by=C, k=4)"])
def test_arrays_are_the_same_in_every_table(formula):
    """Where rows are left out, too: for what they lack, and of weight zero."""
    rng = np.random.default_rng(0)
    C, L = rng.normal(size=(60, 4)), np.tile(np.arange(4.0), (60, 1))
    rows = {"C": C, "L": L, "y": C @ [1.0, 0.5, 0.2, 0.0] + 0.1 * rng.normal(size=60)}
    rows["w"] = np.where(np.arange(60) == 5, 0.0, 1.0)
    holes = rows | {"C": np.where(rows["w"][:, None] == 0.0, np.nan, C)}
    model = gg.GAM(f"y ~ {formula}", weights="w").fit(rows, max_iterations=3)
    whole, few = model.predict(rows), {"max_iterations": 3}
    for make in ARRAYS.values():
        counted = gg.GAM(f"y ~ {formula}", weights="w").fit(make(holes), **few)
        dropped = gg.GAM(f"y ~ {formula}", missing="drop").fit(make(holes), **few)
        for gam in (counted, dropped):
            np.testing.assert_allclose(gam.predict(make(rows)), whole, rtol=1e-6)
    with pytest.raises(ValueError, match="is a sum over arrays, which needs all rows in memory"):
        gg.GAM(f"y ~ {formula}").fit([rows, rows])


def test_columns_of_the_data_may_be_called_as_parts_of_a_sum_are(series):
    """As of columns of other names: ``lag`` and ``weight`` are what effects call their own."""
    frame = series[0].assign(weight=np.cos(np.arange(260) / 5.0), lag=np.arange(260) % 7)
    frame["y"] += frame["weight"]
    other = {"weight": "mass", "lag": "day of week"}
    model, renamed = (
        gg.GAM(lag("x", 0, 4) + s(name) + s(by), missing="drop").fit(data, "y")
        for data, name, by in (
            (frame, "weight", "lag"),
            (frame.rename(columns=other), *other.values()),
        )
    )
    slopes, known = (gam.avg_slopes(num_samples=8) for gam in (model, renamed))
    assert list(slopes["column"]) == ["x", "weight", "lag"]
    np.testing.assert_allclose(slopes["estimate"], known["estimate"], rtol=1e-6)
    curve = model.partial_dependence("weight", [-1.0, 1.0], num_samples=8)
    expected = [np.nanmean(model.predict(frame.assign(weight=v))) for v in (-1.0, 1.0)]
    np.testing.assert_allclose(curve["estimate"], expected)
    one, two = (gam.loo(groups=c) for gam, c in ((model, "lag"), (renamed, "day of week")))
    np.testing.assert_allclose(one.pointwise, two.pointwise, rtol=1e-6)


def test_arrays_that_no_term_can_sum_over():
    draws = np.random.default_rng(5)
    V = draws.normal(size=(20, 3))
    data = {"V": V, "U": V[:, :2], "g": np.repeat(["a", "b"], 10), "y": V[:, 0]}
    for term, message in (
        (te("V", "U"), "'U' holds 2 value.s. a row, where te.V,U. needs 3"),
        (te("V", "g"), "is summed over arrays, which takes neither levels"),
        (s("V", by="g"), "is summed over arrays, which takes neither levels"),
        (s("V", shape="increasing"), "is summed over arrays, which takes neither levels, shapes"),
        (s("V", at=[0.0, 1.0]), "'V' holds 3 value.s. a row, where s.V. needs 2"),
        (s("y", at=[0.0, 1.0]), "'y' holds 1 value.s. a row"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.GAM(term).fit({**data, "z": data["y"]}, "z")
    for call, message in (
        (lambda: s("V", at=[0.0, 0.0]), "at must be the increasing places"),
        (lambda: s("V", "U", at=[0.0, 1.0]), "at= is of one column that holds curves"),
        (lambda: lag("x", 3), "lag.. needs the first and the last lag"),
        (lambda: s("V", bs="fs", at=[0.0, 1.0]), "bs='fs' takes no at"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="needs a table in memory"):
        gg.GAM(lag("x", 0, 2)).fit([{"x": V[:, 0], "y": V[:, 1]}], "y")
