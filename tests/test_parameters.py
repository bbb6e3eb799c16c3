"""Terms for each parameter of the response's distribution."""

import pickle

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.utilities import parameter_dict
from problems import reloaded
from response_cases import DENSITY
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import linear, s
from gpflow_gam.gam.families import Custom
from gpflow_gam.gam.families import family as family_of
from gpflow_gam.optimizers.binned import bins
from gpflow_gam.optimizers.binned import passes as rows_module
from gpflow_gam.priors import SD, Edf, Lengthscale

N = 600


def _frame(name: str) -> pd.DataFrame:
    """Data whose two predictors are functions of a column each."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(-1.0, 1.0, N), rng.uniform(size=N)
    f = np.sin(3.0 * x) + (1.5 if name == "negative_binomial" else 0.0)
    mean = {"beta": expit, "gamma": np.exp, "negative_binomial": np.exp}.get(name, np.positive)
    y = DENSITY[name](mean(f), np.exp(1.2 * z - 2.0)).rvs(random_state=rng)
    return pd.DataFrame({"x": x, "z": z, "y": y.astype(float)})


FIRST = {"student_t": "location"}
FAMILIES = ["gaussian", "student_t", "gamma", "negative_binomial", "beta"]


@pytest.fixture(scope="module", params=FAMILIES)
def fitted(request: pytest.FixtureRequest) -> tuple[str, gg.GAM]:
    name = request.param
    terms = {FIRST.get(name, "mean"): s("x", k=10), "scale": s("z", k=6)}
    return name, gg.GAM(terms, family=name).fit(_frame(name), y="y")


@pytest.mark.slow_but_first
def test_answers_are_of_the_own_predictor(fitted, tmp_path):
    name, gam = fitted
    first = FIRST.get(name, "mean")
    names = gam.fitted.spec.predictor_names
    table = gam.effects("scale:s(z)", [0.2, 0.8])
    assert "predictor" not in table
    rows = pd.DataFrame({"x": [0.0, 0.0], "z": [0.2, 0.8]})
    link = np.asarray(gam.predict(rows, type="link"))
    assert link[0, 0] == link[1, 0]
    np.testing.assert_allclose(np.diff(table["estimate"]), np.diff(link[:, 1]), rtol=1e-6)
    terms = gam.predict(rows, type="terms")
    assert list(terms.columns) == [
        ("intercept", names[0]),
        ("intercept", names[1]),
        (f"{first}:s(x)", names[0]),
        ("scale:s(z)", names[1]),
    ]
    frame = gam.summary().to_frame()
    assert list(frame.index) == [(f"{first}:s(x)", names[0]), ("scale:s(z)", names[1])]
    assert list(gam.coefficients()["predictor"]) == list(names)
    indices = gam.sobol(num_samples=50, bootstrap=False, unconditional=False)
    pairs = set(map(tuple, indices[["predictor", "effect"]].to_numpy()))
    assert pairs == {(names[0], "x"), (names[1], "z")}
    np.testing.assert_allclose(indices["estimate"], 1.0, atol=1e-4)
    assert (gam.concurvity() < 0.1).all(axis=None)
    path = tmp_path / "gam"
    for copy in (reloaded(gam, path), pickle.loads(pickle.dumps(gam))):
        assert copy.terms == gam.terms
        np.testing.assert_array_equal(copy.predict(rows, type="link"), link)


def test_same_terms_for_both_have_hyperparameters_of_their_own() -> None:
    """One smooth for both predictors has one lengthscale; terms by parameter have two."""
    rng = np.random.default_rng(2)
    x = rng.uniform(size=800)
    y = np.sin(12.0 * x) + np.exp(-1.0 + 0.8 * x) * rng.normal(size=800)
    frame = pd.DataFrame({"x": x, "y": y})
    curve = s("x", bs="se")
    both = gg.GAM({"mean": curve, "scale": curve}).fit(frame, y="y")
    one = gg.GAM(curve, family="heteroskedastic").fit(frame, y="y")
    lengths = both.summary().to_frame()["lengthscale"].map(lambda v: v[0]).to_numpy()
    assert lengths[1] > 2.0 * lengths[0]
    assert both.fitted.result.elbo > one.fitted.result.elbo + 1.0


def test_one_pass_route_is_that_of_any_model() -> None:
    """The bound from sums over rows is that of the GPflow model at all rows."""
    frame = _frame("gamma")[:300]
    gam = gg.GAM({"mean": s("x", k=8), "scale": s("z", k=5)}, family="gamma").fit(frame, y="y")
    model, data = gam.model, (gam.fitted.X, gam.fitted.Y)
    before = float(model.elbo(data))
    prior = float(model.log_prior_density())
    assert before + prior == pytest.approx(gam.fitted.result.elbo, abs=1e-3)


def test_formulas() -> None:
    gam = gg.GAM({"mean": "y ~ s(x) + z", "scale": "~ s(z)"})
    assert repr(gam.terms) == "{'mean': s('x') + z, 'scale': s('z')}"
    assert gam.family.name == "heteroskedastic"
    assert gg.GAM({"mean": "y ~ s(x)"}).family.name == "gaussian"
    assert gg.GAM({"mean": s("x"), "scale": None}).family.name == "heteroskedastic"
    assert family_of("gamma").to_json() == {"name": "gamma", "link": "log", "varying": False}
    shown = gg.GAM({"mu": s("x"), "sigma": s("z")}, family="gamma").terms
    assert shown.parameters == ("mean", "scale")


# --- a noise of its own --------------------------------------------------------------------------

SIZE = 250.0


def make(unit=1.0, n=400):
    rng = np.random.default_rng(3)
    x, z = rng.uniform(size=(2, n))
    mean, log_sd = SIZE * (2.0 + np.sin(6.0 * x) + z), np.log(60.0) + 1.5 * (z - 0.5)
    return pd.DataFrame(
        {"x": x, "z": z, "y": unit * (mean + np.exp(log_sd) * rng.standard_normal(n))}
    )


def noisy_fit(unit=1.0):
    return gg.GAM(s("x", k=8) + linear("z"), family="heteroskedastic").fit(make(unit), y="y")


@pytest.fixture(scope="module")
def gam():
    return noisy_fit()


def by_predictor(frame):
    return [part.reset_index(drop=True) for _, part in frame.groupby("predictor", sort=False)]


def test_the_mean_is_in_the_responses_unit_and_the_scale_its_logarithm(gam):
    data = make()
    link = gam.predict(data, "link", interval=0.95)
    response = gam.predict(data, interval=0.95)
    np.testing.assert_allclose(link["mean"], response, rtol=0.02, atol=2.0)  # drawn
    truth = np.log(60.0) + 1.5 * (data["z"] - 0.5)
    assert np.max(np.abs(link["log scale"]["estimate"] - truth)) < 0.4
    mean, log_sd = by_predictor(gam.effects("linear(z)", [0.0, 1.0]))
    assert np.diff(mean["estimate"])[0] == pytest.approx(SIZE, rel=0.1)
    assert np.diff(log_sd["estimate"])[0] == pytest.approx(1.5, abs=0.4)
    slopes, _ = by_predictor(gam.derivatives("linear(z)", [0.5]))
    assert slopes["estimate"][0] == pytest.approx(np.diff(mean["estimate"])[0])
    draws = gam.sample(data.head(3), 2000, "link", seed=1)
    np.testing.assert_allclose(draws.mean(axis=0), gam.predict(data.head(3), "link"), rtol=0.01)
    terms, errors = gam.predict(data, "terms", se=True, unconditional=False)
    effect = gam.effects("s(x)", data["x"][:5], unconditional=False)
    np.testing.assert_allclose(terms["s(x)", "mean"][:5], by_predictor(effect)[0]["estimate"])
    np.testing.assert_allclose(errors["s(x)", "mean"][:5], by_predictor(effect)[0]["se"], rtol=1e-5)


@pytest.mark.slow
def test_what_is_explained_is_of_residuals_over_the_fitted_variance(gam, monkeypatch):
    data = make()
    link = gam.predict(data, "link")
    precision = np.exp(-2.0 * link[:, 1])
    own = np.sum(precision * (data["y"] - link[:, 0]) ** 2)
    null = np.sum(precision * (data["y"] - data["y"].mean()) ** 2)
    explained = gam.summary().deviance_explained
    assert explained == pytest.approx(1.0 - own / null, rel=1e-4)
    assert explained > 0.8
    monkeypatch.setattr(bins, "KEPT_ROWS", 300)
    monkeypatch.setattr(rows_module, "BLOCK", 150)
    blocks = noisy_fit()
    assert not blocks.fitted.data.complete
    assert blocks.summary().deviance_explained == pytest.approx(explained, abs=1e-3)


def test_each_parameter_has_a_panel_and_an_axis_of_its_own(gam):
    figure = gam.draw()
    labels = [ax.get_ylabel() for ax in figure.axes]
    assert labels == ["partial effect on mean of y", "partial effect on log sd of y"] * 2
    titles = [ax.get_title().split(" [edf ")[0] for ax in figure.axes]
    assert titles[:2] == ["s(x), mean", "s(x), log scale"]
    figure = gam.draw("s(x)", fun=np.exp, reference={"x": 0.5})
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "partial effect on mean of y, transformed, against x = 0.5",
        "ratio of sd of y, against x = 0.5",
    ]


def test_axes_of_counts_with_zeros_of_their_own():
    rng = np.random.default_rng(0)
    data = {"x": rng.uniform(size=80), "y": rng.poisson(2.0, 80) * rng.integers(0, 2, 80)}
    gam = gg.GAM({"mean": "x", "zero": "x"}, "zero_inflated_poisson").fit(data, "y")

    def labels(**options):
        return [ax.get_ylabel() for ax in gam.draw(**options).axes]

    zero = "partial effect on logit P(zero) of y"
    assert labels() == ["partial effect on log mean count of y", zero]
    assert labels(fun=np.exp) == ["ratio of mean count of y", f"{zero}, transformed"]


def test_predictors_of_a_users_likelihood_are_no_two_of_a_kind():
    two = gpflow.likelihoods.HeteroskedasticTFPConditional()
    assert Custom(two).axes("y") == ("predictor 0", "predictor 1")
    assert Custom(gpflow.likelihoods.Softmax(3)).axes("y") == ()
    assert Custom(gpflow.likelihoods.Poisson()).axes("y") == ()


# --- priors that users state for a term, and hyperparameters that terms share --------------------

RNG = np.random.default_rng(0)
ROWS = 200
DATA = pd.DataFrame({"x": RNG.uniform(0, 10, ROWS), "z": RNG.normal(size=ROWS)})
DATA["g"] = RNG.choice(list("abcde"), ROWS)
DATA["y"] = 2.0 * np.sin(DATA.x) + 0.3 * DATA.z + RNG.normal(size=ROWS)
DATA["n"] = RNG.poisson(np.exp(0.5 * np.sin(DATA.x)))


def of_terms(terms, response="y", family="gaussian", **options):
    return gg.GAM(terms, family).fit(DATA, response, **options)


def free(gam, name):
    """The learnt parameters of a component's kernel, by their paths."""
    kernel = gam.fitted.model.kernel[name]
    return {path: p for path, p in parameter_dict(kernel).items() if p.prior is not None}


@pytest.mark.parametrize(
    ("term", "family"),
    [
        (gg.s("x", k=8, prior=SD(0.4, 0.1)), "gaussian"),
        (gg.te("x", "z", k=12, prior=SD(0.4, 0.1)), "gaussian"),
        (gg.s("x", k=8, by="z", prior=SD(0.4, 0.1)), "heteroskedastic"),
        (gg.random_effect("g", prior=SD(0.4, 0.1)), "gaussian"),
    ],
    ids=["s", "te", "by", "random effect"],
)
def test_sd_has_the_stated_tail(term, family):
    """Variances drawn from their priors, and mean squares at the usual lengthscale."""
    terms = term if family == "gaussian" else {"mean": term, "sd": None}
    gam = gg.GAM(terms, family).fit(DATA, "y")
    (component,) = gam.fitted.spec.effects
    kernel = gam.fitted.model.kernel[component.name]
    X = np.zeros((ROWS, gam.fitted.spec.encoder.width))
    if component.form == "random":
        X[:, 0] = np.arange(ROWS) % 5
    else:
        for margin, name in zip(component.margins, term.columns):
            X[:, margin.column] = DATA[name]
        if component.by is not None:
            X[:, component.by.column] = 1.0
    for path, p in parameter_dict(kernel).items():
        if path.endswith("lengthscales"):
            p.assign(np.exp(p.prior.loc - p.prior.scale**2))
    total, rng = np.zeros(100_000), np.random.default_rng(1)
    for part in getattr(kernel, "kernels", [kernel]):
        (variance,) = [
            p
            for path, p in parameter_dict(part).items()
            if path.endswith(".variance") and p.prior is not None
        ]
        square = np.mean(part(X, full_cov=False)) / variance.numpy()
        total += square * variance.prior.quantile(rng.random(len(total))).numpy()
    unit = np.broadcast_to(gam.fitted.units[0], gam.fitted.num_predictors)[0]
    assert np.mean(unit * np.sqrt(total) > 0.4) == pytest.approx(0.1, abs=0.01)


def test_edf_is_that_of_the_term_by_itself():
    """At the median variance, half of the response's variance being noise, by the ridge formula."""
    gam = of_terms(gg.s("x", k=8, prior=Edf(4.0)))
    lengthscales, variance = (p for path, p in free(gam, "s(x)").items() if "[1]" in path)
    deviation = gam.fitted.model.kernel["s(x)"].kernels[1]
    prior = lengthscales.prior
    lengthscales.assign(np.exp(prior.loc - prior.scale**2))
    variance.assign(variance.prior.quantile(0.5))
    K = np.asarray(deviation(DATA[["x"]].to_numpy()))
    noise = 0.5 * np.var(DATA.y)
    assert 1.0 + np.trace(np.linalg.solve(K + noise * np.eye(ROWS), K)) == pytest.approx(
        4.0, abs=0.05
    )


def test_edf_draws_the_fit_towards_it():
    """Rough data, and priors for next to a line, the default, and many degrees of freedom."""
    priors = (Edf(1.1), None, Edf(9.0))
    edf = [of_terms(gg.s("x", prior=p), "n", "poisson").summary().edf for p in priors]
    assert edf == sorted(edf)
    assert edf[2] > edf[0] + 0.5


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_priors_follow_the_units_of_columns(unit):
    edf, medians = [], []
    for u in (1.0, unit):
        terms = gg.s("x", k=8, prior=(SD(0.5 * u), Lengthscale(2.0 * u, 9.0 * u)))
        terms = terms + gg.s("z", k=8, prior=Edf(3.0))
        gam = gg.GAM(terms).fit(DATA.assign(x=u * DATA.x, y=u * DATA.y), "y")
        edf.append(gam.summary().table.edf)
        medians.append([float(p.prior.quantile(0.5)) for p in free(gam, "s(z)").values()])
    np.testing.assert_allclose(edf[0], edf[1], atol=1e-3)
    # variances of the line and of the deviation from it, and between them a lengthscale of z
    np.testing.assert_allclose(medians[1], medians[0] * np.array([unit**2, 1.0, unit**2]))


def test_lengthscale_is_in_the_columns_unit():
    gam = of_terms(gg.s("x", k=8, prior=Lengthscale(1.0, 4.0, p=0.2)))
    (prior,) = (p.prior for path, p in free(gam, "s(x)").items() if "lengthscale" in path)
    assert np.asarray(prior.cdf([1.0, 4.0])) == pytest.approx([0.1, 0.9])


def test_lengthscale_of_a_cycle_is_in_the_columns_unit():
    """Close by, a periodic kernel is a squared exponential one of that lengthscale."""
    terms = gg.s("x", k=8, bs="cyclic", period=24.0, prior=Lengthscale(2.9, 3.1))
    kernel = of_terms(terms).fitted.model.kernel["s(x)"].base
    kernel.base_kernel.lengthscales.assign(kernel.base_kernel.lengthscales.prior.quantile(0.5))
    kernel.base_kernel.variance.assign(1.0)
    near = SquaredExponential(lengthscales=np.sqrt(2.9 * 3.1))
    X = np.array([[0.0], [0.3]])
    assert np.asarray(kernel(X)) == pytest.approx(np.asarray(near(X)), abs=1e-4)


def test_draws_from_the_prior_have_its_law():
    """P(|effect| > t) of a random effect, by the integral over its standard deviation."""
    gam = of_terms(gg.random_effect("g", prior=SD(0.3, 0.05)))
    draws = gam.prior_effects("random_effect(g)", num_samples=300)
    scale = 0.3**2 * 0.05 / 0.95  # of the log-logistic variance
    exact = quad(lambda z: 2.0 * norm.pdf(z) / (1.0 + (0.3 / z) ** 2 / scale), 0.0, np.inf)[0]
    shares = np.mean(np.abs(draws) > 0.3, axis=1)
    assert np.mean(shares) == pytest.approx(exact, abs=4.0 * np.std(shares) / np.sqrt(300))
    again = gam.prior_effects("random_effect(g)", num_samples=300)
    np.testing.assert_array_equal(draws, again)


def test_formulas_files_and_repr_hold_priors_and_ids(tmp_path):
    formula = (
        "y ~ s(x, k=8, prior=(Edf(median=3), gg.priors.Lengthscale(1, 5)))"
        " + s(z, k=8, prior=SD(upper=.5), id='a') + random_effect(g, prior=SD(upper=1))"
    )
    gam = gg.GAM(formula).fit(DATA)
    terms = gam.fitted.spec.terms
    assert eval(repr(terms), {**vars(gg), **vars(gg.priors)}) == terms
    loaded = reloaded(gam, tmp_path / "a.gam")
    assert loaded.fitted.spec.terms == terms
    np.testing.assert_array_equal(loaded.predict(DATA), gam.predict(DATA))
    for name in ("s(x)", "random_effect(g)"):  # draws need the priors themselves
        before, after = (g.prior_effects(name, num_samples=2) for g in (gam, loaded))
        np.testing.assert_allclose(before, after)


@pytest.mark.parametrize(("response", "family"), [("y", "gaussian"), ("n", "poisson")])
def test_terms_of_one_id_share_their_hyperparameters_at_the_optimum(response, family):
    gam = of_terms(gg.s("x", by="g", k=8, id="one") + gg.s("z", k=8), response, family)
    kernel = gam.fitted.model.kernel
    first, *others = ([id(p) for p in free(gam, f"s(x):g={g}").values()] for g in "abcde")
    assert len(first) == 3
    assert all(other == first for other in others)
    assert not set(first) & {id(p) for p in free(gam, "s(z)").values()}
    # of the whole objective as GPflow has it
    model = gam.fitted.users_model
    if family == "gaussian":
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        own = {id(p): p.unconstrained_variable for p in model.kernel.trainable_parameters}
        slopes = tape.gradient(loss, list(own.values()))
        assert max(np.abs(slopes)) < 0.05
    deviations = [kernel[f"s(x):g={g}"].kernels[0].kernels[0] for g in "ab"]
    assert deviations[0].variance is deviations[1].variance


X, Z, LOG = s("x"), s("z"), gg.families.Gaussian("log")
KINDS = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": ["a", "b", "c"]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gg.GAM({"mean": X, "shape": Z}, "gamma"), "'shape' that could have terms; it has"),
        (lambda: gg.GAM({"mean": X, "scale": Z}, "poisson"), "'poisson' has no parameter 'scale'"),
        (lambda: gg.GAM({"mean": X, "mu": Z}, "gamma"), "name one parameter twice"),
        (lambda: gg.GAM({"mean": "y ~ x", "scale": "q ~ z"}), "two responses, 'y' and 'q'"),
        (lambda: gg.GAM({}), "the mapping is empty"),
        (lambda: gg.GAM({"mean": 3}), "terms['mean'] must be terms"),
        (lambda: gg.GAM({"d": X}, "categorical").fit(KINDS, "y"), "d:s(x); there are a, b, c"),
        (lambda: gg.GAM({"mean": "~ x", "scale": "~ offset(e)"}), "offset() is of the first param"),
        (lambda: gg.GAM("y ~ s(x) + offset(z)", "heteroskedastic"), "the scale; subtract it from"),
        (
            lambda: gg.GAM({"location": X, "scale": Z}, "weibull", offset="e"),
            "the scale; divide the",
        ),
        (
            lambda: gg.GAM({"mean": X, "scale": Z}, LOG, offset="e"),
            "for the scale; leave one of the",
        ),
        (lambda: SD(-1.0), "SD(): upper must be a positive number; got -1.0"),
        (lambda: SD(1.0, 1.5), "p must be less than 1; got 1.5"),
        (lambda: Lengthscale(2.0, 1.0), "lower must be less than upper; got 2.0 and 1.0"),
        (lambda: gg.s("x", prior=(SD(1.0), Edf(3.0))), "prior has two of the variance"),
        (lambda: gg.s("x", prior="narrow"), "prior must be one of SD(...), Edf(...)"),
        (lambda: gg.GAM("y ~ s(x, prior=Sd(1))"), "prior must be one of SD, Edf, Lengthscale"),
        (lambda: gg.s("x", bs="re", id="a"), "s(): bs='re' takes no id; leave id='a' out"),
        (
            lambda: of_terms(gg.s("x", edf=3), criterion="ncv"),
            "smoothness that edf= of s(x) states",
        ),
        (lambda: gg.s("x", edf=-1), "edf must be a positive number"),
        (lambda: gg.s("x", edf=3, shape="increasing"), "without prior, id and shape"),
        (lambda: of_terms(gg.s("x", k=8, edf=12)), "s(x): edf=12 cannot be"),
        (lambda: of_terms(gg.s("x", k=8, prior=Edf(400.0))), "s(x): Edf(median=400) cannot be"),
        (lambda: of_terms(gg.s("x", k=8, prior=Edf(0.5))), "s(x): Edf(median=0.5) cannot be"),
        (lambda: of_terms(gg.random_effect("g", prior=Edf(2.0))), "state SD() instead"),
        (lambda: of_terms(gg.te("x", "z", prior=Lengthscale(1.0, 2.0))), "te(x,z): Lengthscale()"),
        (
            lambda: of_terms(gg.s("x", id="a") + gg.s("z", id="a", bs="matern32")),
            "id='a' of s(z): terms with one id must be of one kind",
        ),
        (lambda: gg.layers.AdditiveGP(gg.s(0, prior=SD(1.0)), num_data=9), "leave prior, id and"),
    ],
)
def test_errors_name_what_is_wrong(make, message):
    with pytest.raises((TypeError, ValueError)) as error:
        make()
    assert message in str(error.value)


def test_edf_is_that_of_the_smoother_matrix():
    """Of two curves, by the dense traces of what takes responses to each of them."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"x": np.repeat(np.arange(10.0), 6), "z": np.tile(np.arange(12.0), 5)})
    data["y"] = np.sin(data.x) + 0.1 * data.z + 0.3 * rng.normal(size=60)
    gam = gg.GAM(gg.s("x", edf=4.0) + gg.s("z", edf=1.5)).fit(data, "y")
    X, kernel = data[["x", "z"]].to_numpy(), gam.fitted.model.kernel
    parts = {name: np.asarray(kernel[name](X)) for name in gam.names}
    noise = float(gam.fitted.likelihood.variance.numpy())
    A = np.linalg.inv(sum(parts.values()) + noise * np.eye(60))
    assert np.trace(parts["s(x)"] @ A) == pytest.approx(4.0, abs=0.01)
    assert np.trace(parts["s(z)"] @ A) == pytest.approx(1.5, abs=0.01)
    again = gam.refit(data.assign(y=np.random.default_rng(2).normal(size=60)), "y")
    assert list(again.summary().table.edf) == pytest.approx([4.0, 1.5], abs=0.01)


def test_edf_of_several_predictors():
    gam = gg.GAM({"mean": gg.s("x", k=8, edf=5), "sd": gg.s("z", k=8, edf=2)}, "heteroskedastic")
    table = gam.fit(DATA, "y").summary().table
    assert list(table.edf) == pytest.approx([5.0, 2.0], abs=0.01)
