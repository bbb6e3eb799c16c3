"""Terms as values, and formulas."""

import json

import gpflow
import numpy as np
import pytest

import gpflow_gam as gg
from gpflow_gam import factor, lag, linear, random_effect, s, te, ti
from gpflow_gam.gam.terms import Terms, parse_formula
from gpflow_gam.gam.terms.formula import terms_from_json
from gpflow_gam.gam.terms.parametric import Variable

EVERY = (
    s("hr", bs="cyclic", period=24)
    + s("temp", k=30)
    + s(3, bs="matern32")
    + s("u", "v")
    + s("x", by="z")
    + s("w", by=factor("code"))
    + te("hum", "windspeed", k=49)
    + te("hr", "temp", bs=("cyclic", "se"), period=24)
    + ti("hum", "temp", by="day")
    + linear("age")
    + factor("weather", unseen="prior")
    + random_effect("site", by="age")
    + s("lat", "lon", bs="sos")
    + s("t", bs="ou")
    + s("t", bs="rw")
    + s("age", bs="iou")
    + s("t", bs="ad")
    + s("a", "b", isotropic=False)
    + s("x", "g", bs="fs", k=6, unseen="prior")
    + s("x", "h", bs="sz", by="z")
    + s("y", shape="convex")
    + te("x", "z", shape=("increasing", None))
)
AREAS = s("area", bs="mrf", neighbours={"a": ["b"], "b": ["a"]}, by="z")


def test_terms_are_values():
    again = sum(list(EVERY), Terms())
    assert again == EVERY
    assert hash(again) == hash(EVERY)
    assert s("x") == s("x") != s("x", k=5)
    assert {s("x"): 1}[s("x")] == 1
    assert s("x") + (s("y") + s("z")) == (s("x") + s("y")) + s("z")
    assert sum([s("x"), s("y")], start=Terms()) == s("x") + s("y")


@pytest.mark.parametrize(
    "make",
    [
        lambda: [s("x"), s("z"), linear("w")],
        lambda: (s(c) if c != "w" else linear(c) for c in "xzw"),
        lambda: [s("x") + s("z"), linear("w")],
        lambda: {s("x"): 0, s("z"): 0, linear("w"): 0}.keys(),
        lambda: sum([s("x"), s("z"), linear("w")]),
        lambda: sum(s(c) if c != "w" else linear(c) for c in "xzw"),
        lambda: "s(x) + s(z) + linear(w)",
    ],
    ids=["list", "generator", "nested", "view", "sum", "sum of a generator", "formula"],
)
def test_lists_of_terms_are_their_sum(make):
    assert gg.GAM(make()).terms == s("x") + s("z") + linear("w")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["x"], TypeError, "'x' is text, no term: write s\\('x'\\)"),
        ([s("x"), 1], TypeError, "terms are added to terms; got 1. The intercept is there"),
        ([s("x"), s("x")], ValueError, "there twice"),
        ([s("x"), s("z") + s("x")], ValueError, "there twice"),
        ([], ValueError, "terms is empty"),
        (3, TypeError, "a list of terms, or a formula .* got int"),
    ],
)
def test_lists_that_are_no_terms(given, error, message):
    with pytest.raises(error, match=message):
        gg.GAM(given)


@pytest.mark.parametrize("term", [*EVERY, AREAS], ids=str)
def test_terms_read_back_from_what_they_print_and_from_json(term):
    assert term == AREAS or parse_formula(repr(term)).terms == Terms([term])
    assert terms_from_json(Terms([term]).to_json()) == Terms([term])


def test_numbers_of_numpys_are_those_of_python():
    def terms(whole, real):
        smooth = s("x", k=whole(9), edf=real(4)) + s("u", prior=gg.priors.SD(real(2)))
        period = whole(24), None
        smooth += s("h", bs="cc", period=whole(24)) + te("h", "z", bs=("cc", None), period=period)
        return smooth + lag("y", whole(0), whole(3), time="t", step=whole(2))

    ours = terms(np.int64, np.float32)
    assert repr(ours) == repr(terms(int, float))
    assert terms_from_json(json.loads(json.dumps(ours.to_json()))) == ours


def test_formula_and_objects_are_the_same():
    formula = parse_formula(
        "bikers ~ 1 + s(hr, bs='cyclic', period=24) + te(hum, windspeed) + factor(weathersit) + "
        "age + s(temp, by=day) + offset(log_exposure)"
    )
    assert formula.response == "bikers"
    assert formula.offset == ("log_exposure",)
    assert formula.terms == (
        s("hr", bs="cyclic", period=24)
        + te("hum", "windspeed")
        + factor("weathersit")
        + Terms([Variable("age")])
        + s("temp", by="day")
    )
    assert parse_formula("'the response' ~ s('a column')").response == "the response"
    assert parse_formula("s(x)").response is None


def test_what_users_of_r_type():
    """Each is the term, or the terms, that it means there."""

    def terms(text):
        return list(parse_formula(f"y ~ {text}").terms)

    assert terms("s(log(x))") == [s("log(x)")]
    assert terms("te(x / z, `a b`^2)") == [te("x / z", "`a b` ** 2")]
    assert terms("s(x + z^2) + linear(2*x^-1)") == [s("x + z ** 2"), linear("2 * x ** (-1)")]
    assert terms("C(g) + t2(x, z)") == [factor("g"), te("x", "z")]
    assert terms("te(x, z, k=c(5, 8), bs=c('cr', 'cc'))") == [te("x", "z", bs=("cr", "cc"), k=40)]
    assert terms("s(x, k=-1)") == [s("x")]
    assert terms("s(x, bs='cc')") == [s("x", bs="cyclic")]
    assert terms("(1 | g)") == terms("s(g, bs='re')") == [random_effect("g")]
    assert terms("(x | g)") == [random_effect("g"), random_effect("g", by="x")]
    assert terms("(0 + x || g)") == terms("(x - 1 | g)") == [random_effect("g", by="x")]
    nested = [random_effect("site"), random_effect("site", "plot")]
    assert terms("(1 | site/plot)") == nested
    assert terms("(1 | site:plot)") == nested[1:]
    assert nested[1].label == "random_effect(site:plot)"
    (term,) = terms("factor(g != 'a:b')")
    assert term.column.variables == ("g",)
    (term,) = terms("factor(x > 0.5)")
    assert term == factor("x > 0.5")
    assert term.column.variables == ("x",)
    assert terms("as.factor(g) + te(np.log(x), t.1)") == [factor("g"), te("log(x)", "t.1")]
    assert terms("I(x^2) + np.log(z)")[0].text == "I(x**2) + log(z)"
    assert terms("class + s(is)") == [Variable("class"), s("is")]  # words of Python's
    counted = parse_formula("cbind(k, n - k) ~ x")
    assert (counted.response, counted.trials) == ("k", "n")
    others = parse_formula("cbind(k, missed) ~ x").trials
    assert set(others.variables) == {"k", "missed"}
    offset = parse_formula("y ~ x + offset(log(days))").offset
    assert offset == ("log(days)",)
    assert offset[0].variables == ("days",)


def test_labels():
    labels = [term.label for term in s("x", by="g") + te("a", "b") + random_effect("g")]
    assert labels == ["s(x):g", "te(a,b)", "random_effect(g)"]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ s(x", "cannot be read"),
        ("y ~", "empty side"),
        ("y ~ ss(x)", "did you mean s"),
        ("y ~ s(lag(x))", "lag\\(\\) is no function that a term can be of; there are log"),
        ("y ~ s(scale(x))", "write the column itself"),
        ("y ~ s(x[0])", "is no column and no arithmetic"),
        ("y ~ s(log(2))", "reads no column"),
        ("y ~ factor(0 < x < 1)", "more than one comparison; make that column"),
        ("y ~ s(__import__('os').system('true'))", "is no column and no arithmetic"),
        ("cbind(k) ~ x", "successes and failures, as cbind"),
        ("y ~ x - (1 | g)", r"- \(1 \| g\) takes nothing away"),
        ("y ~ s(x) - z", "- z takes nothing away"),
        ("k / n ~ x", r"cbind\(k, n - k\)"),
        ("y ~ s(x, kk=3)", "unexpected keyword argument 'kk'"),
        ("y ~ s(x, k=open)", "k must be a number"),
        ("y ~ s(x) + s(x)", "there twice; leave one out\\.$"),
        ("y ~ s(x) + s(x, bs='cc', period=7)", "there twice; leave one out, or .* copy of its"),
        ("y ~ __import__('os').system('true')", "is no term"),
        ("log(y) ~ s(x)", "the response is a column, not 'log\\(y\\)'. A family"),
        ("y / n ~ s(x)", "the response is a column, not 'y / n'"),
        ("y ~ s(x):z", "cannot be read near"),
        ("y ~ s(x) * z", "terms are joined by \\+"),
        ("y ~ x**2", "write I\\(x\\*\\*2\\) or poly\\(x, 2\\)"),
        ("y ~ x^2", "write I\\(x\\*\\*2\\)"),
        ("y ~ s(x) - a:b", "takes nothing away"),
        ("y ~ lead(x)", "lead\\(\\) is no term"),
        ("y ~ log(x) * bs(z)", "for a smooth curve write s\\(\\)"),
        ("y ~ a * C(g, 2)", "C\\(\\) takes a column"),
        ("y ~ log(x.values)", "between backticks"),
        ("y ~ a:", "cannot be read"),
        ("y ~ I(open('f'))", "open\\(\\) is no transform"),
        ("y ~ log(2)", "reads no column"),
        ("y ~ Intercept*z", "'Intercept' is what the constant is called there"),
        ("y ~ `1`*z", "'1' is what the constant is called there; rename the column"),
        ("y ~ log(x) + log:z", "'log' is the name of a column and of a function there"),
    ],
)
def test_bad_formulas(formula, message):
    with pytest.raises(ValueError, match=message):
        gg.GAM(formula)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: te("x"), "for one column write s\\('x'\\)"),
        (lambda: s(), "no column"),
        (lambda: s("x", "x"), "twice"),
        (lambda: s("x", k=0), "k, the number of inducing inputs"),
        (lambda: te("x", "z", k=(5, 0)), "at least 1; got 0"),
        (lambda: te("x", "z", k=(5, 6, 7)), "one for each of 2 columns"),
        (lambda: s("x", bs="nonsense"), "bs must be one of"),
        (lambda: s("x", "z", bs=("se", "matern32")), "bs must be one of"),
        (lambda: s("x", period=3), "needs bs='cyclic'"),
        (lambda: s("x", bs="cyclic", period=-1), "positive number"),
        (lambda: s("x", by="x"), "also what it is a function of"),
        (lambda: te("x", "z", bs=("se",)), "one value or one a column"),
        (lambda: factor("g", unseen="guess"), "unseen must be 'error' or 'prior'"),
        (lambda: s(-1), "count from 0"),
        (lambda: s("x", bs="se", kernel=gpflow.kernels.RBF()), "of your own.*leave it or bs out"),
        (lambda: s("g", "x", bs="re"), r"takes one column.*random_effect\('g', by=...\)"),
        (lambda: random_effect("g", "g"), "names a column twice"),
        (lambda: s("x", shape="up"), "must be 'increasing', 'decreasing', 'convex', 'concave'"),
        (lambda: s("x", shape="convex", bs="cc"), "shape is not for bs='cyclic'"),
        (lambda: s("x", shape="convex", k=3), "at least 4 splines"),
        (lambda: s("x", "z", shape="convex"), r"te\(..., shape=\('convex', None\)\)"),
        (lambda: te("x", "z", shape="convex"), "must say for each of"),
        (lambda: te("x", "z", shape=("convex", "convex")), "along one column"),
    ],
)
def test_bad_terms(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_things_that_are_no_terms():
    for make in (
        lambda: s(1.5),
        lambda: s("x", kernel="se"),
        lambda: s("x", by=s("z")),
        lambda: Terms(["s(x)"]),
    ):
        with pytest.raises(TypeError):
            make()


def test_own_kernels_have_to_be_given_again():
    kernel = gpflow.kernels.Matern32()
    terms = Terms([s("x", kernel=kernel)])
    with pytest.raises(ValueError, match="kernel of your own \\(Matern32\\)"):
        terms_from_json(terms.to_json())
    assert terms_from_json(terms.to_json(), {"s(x)": kernel}) == terms
