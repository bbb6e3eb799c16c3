"""Predictions from some of the terms: what stays, its joint variance, and the columns it needs."""

import numpy as np
import pandas as pd
import problems
import pytest
from problems import reloaded

import gpflow_gam as gg
from gpflow_gam import factor, linear, s, ti
from gpflow_gam.gam.effects.posterior import joint_moments
from gpflow_gam.gam.terms import parse_formula
from gpflow_gam.gam.terms.formula import terms_from_json

QUICK = {"max_iterations": 12}
TERMS = s("x", k=8) + linear("z") + factor("g")


DATA = problems.table()


@pytest.fixture(scope="module")
def poisson():
    return gg.GAM(TERMS, family="poisson", offset="log_e").fit(DATA, y="count")


@pytest.fixture(scope="module")
def softmax():
    return gg.GAM(s("x") + linear("z", shrink=True), family="categorical").fit(DATA, y="kind")


@pytest.mark.parametrize("unconditional", [False, True])
@pytest.mark.parametrize("which", ["poisson", "softmax"])
def test_the_variance_of_some_terms_is_that_of_their_sum(request, which, unconditional):
    gam = request.getfixturevalue(which)
    few = DATA.head(6)
    names = ["intercept", "s(x)", "linear(z)"]
    _, se = gam.predict(
        few, type="link", se=True, terms=["s(x)", "linear(z)"], unconditional=unconditional
    )
    blocks = ([(name, gam.fitted.X[[row]]) for name in names] for row in range(6))
    expected = [joint_moments(gam.fitted, b, unconditional)[1].sum(axis=(1, 2)) for b in blocks]
    result = np.square(se).reshape(6, -1)
    # averaged over hyperparameters predictions have deviations within a few percent of the draws'
    np.testing.assert_allclose(result, expected, rtol=0.06 if unconditional else 1e-5)
    apart = gam.predict(few, type="terms", se=True, unconditional=unconditional)[1][names]
    apart = np.square(apart.to_numpy()).reshape(6, len(names), -1).sum(axis=1)
    assert np.max(np.abs(result / apart - 1.0)) > 0.05


def test_parts_make_the_whole(poisson):
    whole = poisson.predict(DATA, type="link")
    one = poisson.predict(DATA, type="link", terms="s(x)")
    rest = poisson.predict(DATA, type="link", exclude=s("x"), intercept=False)
    np.testing.assert_allclose(one + rest, whole + DATA["log_e"], atol=1e-9)
    every = poisson.predict(DATA, type="link", terms=["s(x)", "linear(z)", "factor(g)"])
    np.testing.assert_allclose(every, whole, atol=1e-9)
    none = poisson.predict(DATA, type="link", terms=[], intercept=False, se=True)
    np.testing.assert_allclose(none[0], DATA["log_e"], atol=1e-12)
    np.testing.assert_array_equal(none[1], 0.0)
    effects = poisson.predict(DATA, type="terms", intercept=False).sum(axis=1)
    np.testing.assert_allclose(
        poisson.predict(DATA, type="link", intercept=False), effects, atol=1e-9
    )


def check_sums(gam, data, rtol=1e-9, **options):
    """Columns of terms add up to the link, for each predictor."""
    parts = gam.predict(data, type="terms", **options)
    whole = gam.predict(data, type="link", **options)
    for i, name in enumerate(gam.fitted.spec.predictor_names):
        own, link = parts, whole
        if gam.fitted.num_predictors > 1:
            own, link = parts.xs(name, axis=1, level=1), whole[:, i]
        np.testing.assert_allclose(own.sum(axis=1), link, rtol=rtol, atol=rtol)
    return parts


SUMS = {
    "gaussian": ("gaussian", TERMS, "y", None),
    "poisson": ("poisson", TERMS, "count", "log_e"),
    "no intercept": ("gaussian", s("x", k=6) + linear("z") - 1, "y", "log_e"),
    "two parameters": ("gaussian", {"mean": TERMS - 1, "scale": linear("z")}, "y", None),
    "heteroskedastic": ("heteroskedastic", TERMS, "far", None),
    "categorical": ("categorical", s("x", k=5) + factor("g"), "kind", None),
    "classes in order": (gg.families.Ordinal(("u", "v", "w")), TERMS, "kind", None),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("case", list(SUMS))
def test_terms_add_up_to_the_link(case, tmp_path):
    family, terms, y, offset = SUMS[case]
    rows = DATA.assign(far=50.0 * DATA["y"])
    gam = gg.GAM(terms, family=family, offset=offset).fit(rows, y=y, **QUICK)
    whole = check_sums(gam, rows)
    assert ("offset" in whole.columns.get_level_values(0)) == (offset is not None)
    for options in ({"terms": "s(x)"}, {"exclude": "s(x)"}, {"intercept": False}):
        check_sums(gam, rows, **options)
    again = reloaded(gam, tmp_path / "gam")
    pd.testing.assert_frame_equal(check_sums(again, rows), whole)


def test_the_intercept_among_terms_is_that_of_the_summary(poisson):
    frame = poisson.predict(DATA.head(3), type="terms", interval=0.95)
    (row,) = poisson.coefficients().query("term == 'intercept'").to_dict("records")
    for what in ("estimate", "se", "lower", "upper"):
        np.testing.assert_allclose(frame["intercept"][what], row[what], rtol=1e-4)
    np.testing.assert_array_equal(frame["offset"]["estimate"], DATA["log_e"].head(3))
    for end in ("lower", "upper"):
        np.testing.assert_array_equal(frame["offset"][end], DATA["log_e"].head(3))
    np.testing.assert_array_equal(frame["offset"]["se"], 0.0)
    # effects, a column each
    x = DATA["x"].head(3)
    np.testing.assert_allclose(frame["s(x)"]["estimate"], poisson.effects("s(x)", x)["estimate"])


@pytest.mark.parametrize("engine", ["variational", "iterncgp"])
def test_all_terms_are_the_prediction(engine):
    gam = gg.GAM(TERMS, family="poisson", engine=engine)
    more = {"hyperparameters": False} if engine == "iterncgp" else {}
    gam.fit(DATA, y="count", **QUICK, **more)
    options = {"interval": 0.9, "unconditional": False}
    pd.testing.assert_frame_equal(
        gam.predict(DATA, terms=list(gam.names), **options), gam.predict(DATA, **options), rtol=1e-5
    )
    check_sums(gam, DATA, rtol=1e-5)
    narrow, wide = (gam.predict(DATA, exclude=e, **options)["se"] for e in (["linear(z)"], []))
    assert (narrow != wide).all()


def test_columns_of_what_is_excluded_need_not_be_there(poisson):
    few = DATA[["x", "log_e"]]
    whole = poisson.predict(DATA, exclude=["linear(z)", "factor(g)"], interval=0.9)
    part = poisson.predict(few, exclude=["linear(z)", "factor(g)"], interval=0.9)
    pd.testing.assert_frame_equal(part, whole)
    blocks = poisson.predict([few.head(50), few.tail(70)], terms="s(x)", interval=0.9)
    pd.testing.assert_frame_equal(blocks, whole)
    with pytest.raises(ValueError, match="no column 'z'"):
        poisson.predict(few, exclude="factor(g)")
    # nor need their values
    holes = DATA.assign(z=np.nan)
    np.testing.assert_allclose(poisson.predict(holes, terms="s(x)"), whole["estimate"], rtol=1e-6)
    dropping = gg.GAM(s("x", k=5) + linear("z"), missing="drop").fit(DATA, y="y", **QUICK)
    assert np.isfinite(dropping.predict(holes, exclude="linear(z)")).all()
    assert np.isnan(dropping.predict(holes, exclude="s(x)")).all()


@pytest.mark.parametrize("type_", ["response", "link", "terms", "observation", "class"])
def test_every_type_takes_a_part(softmax, poisson, type_):
    gam = poisson if type_ == "observation" else softmax
    result = gam.predict(DATA.head(9)[["z", "log_e"]], type=type_, terms="linear(z)")
    assert len(result) == 9
    if type_ == "response":
        np.testing.assert_allclose(result.sum(axis=1), 1.0, atol=1e-9)
    if type_ == "terms":
        assert set(result.columns.get_level_values(0)) == {"intercept", "linear(z)"}


def test_levels_of_a_term_go_together():
    gam = gg.GAM(s("x", by="g", k=5) + factor("g") + ti("x", "z", k=6)).fit(DATA, y="y", **QUICK)
    both = gam.predict(DATA, type="terms", terms="s(x):g", intercept=False)
    assert list(both.columns) == ["s(x):g=a", "s(x):g=b", "s(x):g=c"]
    np.testing.assert_array_equal(
        gam.predict(DATA, exclude=s("x", by="g")),
        gam.predict(DATA, exclude=["s(x):g=a", "s(x):g=b", "s(x):g=c"]),
    )


def test_draws_of_a_part_have_its_moments(poisson):
    few = DATA.head(4)
    draws = poisson.sample(few[["z", "log_e"]], 8000, "link", terms="linear(z)")
    mean, se = poisson.predict(few, type="link", se=True, terms="linear(z)", unconditional=False)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=4 * se.max() / np.sqrt(8000))
    np.testing.assert_allclose(draws.std(axis=0), se, rtol=0.04)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"exclude": "s(w)"}, ValueError, "exclude: there is no effect 's\\(w\\)'"),
        ({"exclude": "x"}, ValueError, "Did you mean 's\\(x\\)'"),
        ({"terms": "intercept"}, ValueError, "terms: the intercept is no term"),
        ({"exclude": "(Intercept)"}, ValueError, "intercept=False leaves it out"),
        ({"terms": 3}, TypeError, "terms must name terms"),
        ({"intercept": "no"}, TypeError, "intercept must be True or False"),
    ],
)
def test_bad_terms_are_refused(poisson, arguments, error, message):
    with pytest.raises(error, match=message):
        poisson.predict(DATA, **arguments)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("family", "terms", "asked"),
    [
        (
            "gaussian",
            "s(x, by=size) + s(x, by=g, bs='iou') + s(z, bs='ou') + te(x, z, k=4) + g",
            ({"type": "terms", "se": True}, {"type": "terms"}, {"type": "link"}),
        ),
        (
            "poisson",
            "s(x, k=8) + s(z, k=8) + s(x, by=size, k=8) + s(z, by=g, k=8) + te(x, z, k=3) + g",
            (
                {"type": "link", "se": True, "exclude": "te(x, z, k=3)"},
                {"se": True, "unconditional": False},
            ),
        ),
    ],
)
def test_many_rows_have_what_few_have(family, terms, asked):
    """
    Splines that effects of one column are read off at many rows are those effects.

    Covariances between splined components count, and rows beyond the data are exact.
    """
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.uniform(size=(150, 3)), columns=["x", "z", "size"])
    data["x"] = 0.5 * (data.x + data.z)  # so that smooths of x and z know of each other
    data["g"] = rng.choice(list("ab"), 150)
    f = np.sin(6 * data.x) * data["size"]
    data["y"] = f + 0.3 * rng.normal(size=150) if family == "gaussian" else rng.poisson(np.exp(f))
    gam = gg.GAM(f"y ~ {terms}", family).fit(data)
    new = pd.DataFrame(rng.uniform(-0.01, 1.01, (17_000, 3)), columns=["x", "z", "size"])
    new["g"] = rng.choice(list("ab"), len(new))
    for ask in asked:
        whole, *few = (gam.predict(rows, **ask) for rows in (new, new[:8500], new[8500:]))
        if "se" in ask:
            whole, *few = (np.column_stack(pair) for pair in (whole, *few))
        atol = 1e-6 * np.ptp(data.y)
        np.testing.assert_allclose(whole, np.concatenate(few), rtol=2e-6, atol=atol)


# --- GAMs without an intercept -------------------------------------------------------------------

LEVELS = {"a": -3.0, "b": 0.0, "c": 2.0}
WITH = s("x", k=8) + factor("g")


@pytest.fixture(scope="module")
def lines():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(2.0, 4.0, 200), "g": rng.choice(list("abc"), 200)})
    table["z"] = rng.uniform(5.0, 10.0, 200)
    table["y"] = 50.0 + np.sin(3.0 * table["x"]) + table["g"].map(LEVELS)
    table["y"] += 0.3 * rng.normal(size=200)
    table["line"] = 2.0 * table["x"] - 0.5 * table["z"] + 0.1 * rng.normal(size=200)
    return table


@pytest.fixture(scope="module")
def pair(lines):
    """The same model with an intercept and with levels' own means."""
    return gg.GAM(WITH).fit(lines, "y"), gg.GAM(WITH - 1).fit(lines, "y")


@pytest.mark.parametrize(
    ("formula", "gone"),
    [
        ("y ~ s(x) - 1", True),
        ("y ~ -1 + s(x)", True),
        ("y ~ 0 + s(x)", True),
        ("0 + x", True),
        ("y ~ 0 + log(x)", True),
        ("y ~ s(x) - 1 + 1", False),  # the last one counts, as in R
        ("y ~ s(x) + 1", False),
        ("0 + 1", False),  # of a matrix without names
    ],
)
def test_what_formulas_say(formula, gone):
    assert parse_formula(formula).terms.without == (("",) if gone else ())


def test_terms_as_values():
    terms = WITH - 1
    assert terms == gg.GAM(WITH, intercept=False).terms
    assert terms == gg.GAM([s("x", k=8) - 1, factor("g")]).terms
    assert terms != WITH
    assert len({terms, WITH, WITH - 1}) == 2
    assert parse_formula(repr(terms)).terms == terms == terms_from_json(terms.to_json())
    apart = gg.GAM({"mean": "y ~ s(x) - 1", "scale": "~ s(z)"}).terms
    assert apart.without == ("mean",)
    assert repr(apart) == "{'mean': s('x') - 1, 'scale': s('z')}"
    assert terms_from_json(apart.to_json()) == apart
    for wrong in (2, True, s("x")):
        with pytest.raises(TypeError, match="- 1 takes the intercept away, and nothing else"):
            WITH - wrong
    with pytest.raises(TypeError, match="intercept must be True or False; got 0"):
        gg.GAM(WITH, intercept=0)


@pytest.mark.slow
def test_levels_have_their_own_means(lines, pair):
    """As ``gam(y ~ s(x) + g - 1)`` of mgcv: another way to write the model with an intercept."""
    whole, own = pair
    assert own.fitted.spec.names == ("s(x)", "factor(g)")
    np.testing.assert_allclose(own.predict(lines), whole.predict(lines), atol=1e-3)
    numbers = whole.coefficients().set_index("term")["estimate"]
    expected = numbers["intercept"] + numbers["factor(g)"].to_numpy()
    result = own.coefficients()
    assert list(result["level"]) == list("abc")
    np.testing.assert_allclose(result["estimate"], expected, atol=1e-3)
    # their errors are those of means: beside a smooth that takes little, sigma over root n
    sd = np.sqrt(own.fitted.likelihood.variance.numpy() / lines["g"].value_counts()[list("abc")])
    np.testing.assert_allclose(result["se"], sd, rtol=0.05)
    assert abs(own.summary().edf - whole.summary().edf) < 0.05
    assert own.summary().deviance_explained == pytest.approx(whole.summary().deviance_explained)
    np.testing.assert_allclose(own.sobol()["estimate"], whole.sobol()["estimate"], atol=2e-3)
    both = [gam.differences("factor(g)")["estimate"] for gam in pair]
    np.testing.assert_allclose(*both, atol=1e-3)


def test_terms_sum_to_the_predictor(lines, pair):
    _, own = pair
    parts = own.predict(lines, type="terms")
    effect = own.effects("factor(g)")
    result = own.coefficients()
    np.testing.assert_allclose(effect["estimate"], result["estimate"], rtol=1e-9)
    np.testing.assert_allclose(effect["se"], result["se"], rtol=1e-6)
    np.testing.assert_allclose(
        own.predict(lines, terms="s(x)"), parts["s(x)"], rtol=1e-6, atol=1e-9
    )
    smooth = own.predict(lines, exclude="factor(g)", interval=0.9)["estimate"]
    np.testing.assert_allclose(smooth, parts["s(x)"], rtol=1e-6, atol=1e-9)
    means = own.predict(lines, terms="factor(g)")
    np.testing.assert_allclose(means, parts["factor(g)"], rtol=1e-9)
    draws = own.sample(lines[:3], 4, terms="factor(g)", type="link")
    assert np.all(np.abs(draws - means[:3]) < 0.5)
    np.testing.assert_array_equal(own.predict(lines, intercept=False), own.predict(lines))


def test_more_rows(lines, pair):
    _, own = pair
    more = gg.GAM(WITH - 1).fit(lines[:150], "y").update(lines[150:])
    assert more.fitted.spec.names == own.fitted.spec.names
    np.testing.assert_allclose(more.predict(lines), own.predict(lines), atol=1e-2)


def test_lines_are_zero_at_zero(lines, tmp_path):
    """As ``lm(line ~ x + z - 1)`` of R."""
    gam = gg.GAM("line ~ x + z - 1").fit(lines)
    slopes, *_ = np.linalg.lstsq(lines[["x", "z"]], lines["line"], rcond=None)
    result = gam.coefficients()
    np.testing.assert_allclose(result["estimate"], slopes, rtol=2e-3)
    C = np.linalg.inv(lines[["x", "z"]].T @ lines[["x", "z"]])
    residuals = lines["line"] - lines[["x", "z"]] @ slopes
    errors = np.sqrt(np.diag(C) * np.sum(residuals**2) / 198)
    np.testing.assert_allclose(result["se"], errors, rtol=0.05)
    loaded = reloaded(gam, tmp_path / "gam")
    assert loaded.fitted.spec.null_offset == gam.fitted.spec.null_offset > 0.0
    np.testing.assert_array_equal(loaded.predict(lines), gam.predict(lines))
    with pytest.warns(gg.ExtrapolationWarning):
        assert gam.predict({"x": [0.0], "z": [0.0]})[0] == pytest.approx(0.0, abs=1e-12)


def test_smooths_alone_are_zero_on_average(lines):
    gam = gg.GAM(s("x", k=8), intercept=False).fit(lines.assign(y=lines["y"] - 49.0), "y")
    assert gam.predict(lines, type="link").mean() == pytest.approx(0.0, abs=0.02)
    assert gam.coefficients().empty
    assert "coefficient" not in str(gam.summary())


def test_one_of_several_parameters(lines, pair):
    own = gg.GAM({"mean": WITH - 1, "scale": linear("z")}).fit(lines, "y", max_iterations=30)
    assert own.fitted.spec.names == ("intercept", "mean:s(x)", "mean:factor(g)", "scale:linear(z)")
    result = own.coefficients().query("predictor == 'mean'")
    assert list(result["term"]) == ["mean:factor(g)"] * 3
    np.testing.assert_allclose(result["estimate"], pair[1].coefficients()["estimate"], atol=0.05)
    with_scale, without = (own.predict(lines[:2], type="link", intercept=i) for i in (True, False))
    np.testing.assert_allclose(with_scale[:, 0], without[:, 0])  # the means are the factor's
    assert np.all(np.abs(with_scale[:, 1] - without[:, 1]) > 0.5)
    parts = own.predict(lines[:2], type="terms")
    assert ("intercept", "mean") not in parts


def test_counts_through_zero(lines):
    """Against Newton's method for a rate without a constant, ``glm(n ~ x - 1, poisson)`` of R."""
    rng = np.random.default_rng(1)
    n, x = rng.poisson(np.exp(0.8 * lines["x"])), lines["x"].to_numpy()
    slope = 0.5
    for _ in range(50):
        mean = np.exp(slope * x)
        slope += np.sum(x * (n - mean)) / np.sum(x**2 * mean)
    gam = gg.GAM("n ~ x - 1", family="poisson").fit(lines.assign(n=n))
    assert gam.coefficients()["estimate"].item() == pytest.approx(slope, rel=1e-3)


def test_what_cannot_be_without(lines):
    for terms, family, message in (
        ("g ~ s(x) - 1", "ordinal", "'ordinal' has a constant in its cutpoints"),
        ("Surv(x, z) ~ s(y) - 1", "cox", "'cox' has a constant in its baseline hazard"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.GAM(terms, family=family)
    for terms, message in (
        ("y ~ 0", "neither terms nor an intercept"),
        ({"mean": "y ~ s(x)", "scale": "~ s(z) - 1"}, "'scale' is a logarithm .* leave its inter"),
    ):
        with pytest.raises(ValueError, match=message):
            gg.GAM(terms).fit(lines)
    with pytest.raises(ValueError, match="a layer has an intercept always"):
        gg.layers.AdditiveGP(s(0) - 1, num_data=10)
