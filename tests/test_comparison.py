"""Rows left out of a fit by dividing out, beside fits without them; and fits compared."""

import numpy as np
import pandas as pd
import problems
import pytest
import tensorflow as tf
from response_cases import responses
from scipy.special import expit
from scipy.stats import norm

import gpflow_gam as gg
from gpflow_gam import factor, linear, s
from gpflow_gam.gam.leave_one_out import total
from gpflow_gam.likelihoods.base import checked_observations, unwrapped
from gpflow_gam.likelihoods.expectations import expectations
from gpflow_gam.optimizers.binned import bins, cavities, cross_validation
from gpflow_gam.optimizers.binned.cavities import Neighbourhoods, RowPosterior, sites_of
from gpflow_gam.optimizers.binned.cross_validation import LeftOutDensity

N = 36


def table(n: int = N, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=n), rng.uniform(-1.0, 1.0, n)
    g = rng.choice(list("abc"), n)
    f = np.sin(5.0 * x) + 0.6 * z + (g == "a")
    own = {"x": x, "z": z, "g": g, "w": np.maximum(rng.integers(0, 4, n), 1)}
    own |= {"o": 0.3 * rng.normal(size=n), "trials": rng.integers(3, 9, n)}
    own |= {"binomial": rng.binomial(own["trials"], expit(f))}
    return pd.DataFrame(
        own | {"heavy": f + 0.4 * rng.standard_t(1.5, n)} | responses(f - 0.5, seed + 1)
    )


def fitted(family: str, data: pd.DataFrame, terms=None, **options) -> gg.GAM:
    if family == "binomial":
        options["trials"] = "trials"
    terms = s("x", k=8) + linear("z") if terms is None else terms
    return gg.GAM(terms, family, **options).fit(data, family)


def every_node() -> gg.terms.Terms:
    """As rough as the other engine, which has no nodes, can make it."""
    return s("x", k=N) + linear("z")


def refit(gam: gg.GAM, keep: np.ndarray, asked: np.ndarray, frozen=False, share=0.7, steps=25):
    """Log densities at ``asked`` of the rows ``keep``, whose sites converge or are frozen."""
    fit = gam.fitted
    moments = fit.moments
    features, left = moments.all_features(fit.X)
    enters = np.repeat(moments.entering(), [len(root) for root in moments.roots], axis=0)
    left = left.T @ moments.entering()
    own = [features * e[:, None] for e in enters.T]
    known = np.asarray(fit.model.mean_function(fit.X))
    likelihood, Y = fit.model.likelihood, fit.Y
    if isinstance(fit.model, gg.models.AdditiveSGPR) and fit.spec.weights is not None:
        likelihood = gg.likelihoods.Weighted(likelihood, fit.spec.place(fit.spec.weights))

    def moments_of(mean, S):
        m = np.stack([phi.T @ mean[:, i] for i, phi in enumerate(own)], axis=1)
        var = np.stack([np.sum(phi * (C @ phi), axis=0) for phi, C in zip(own, S)], axis=1)
        return m, var + left

    def sites(mean, S):
        m, var = moments_of(mean, S)
        result = expectations(likelihood, fit.X, m + known, var, Y, ())
        return result.precision, result.slope + result.precision * m

    def posterior(w, shift, rows):
        S, mean = [], []
        for i, phi in enumerate(own):
            part = phi[:, rows]
            S.append(np.linalg.inv(np.eye(len(phi)) + (part * w[rows, i]) @ part.T))
            mean.append(S[-1] @ part @ shift[rows, i])
        return np.stack(mean, axis=1), S

    mean, S = moments.mean, moments.covariance
    if frozen:
        w, shift = sites(mean, S)
        mean, S = posterior(w, shift, keep)
    else:
        w, shift = sites(mean, S)
        for _ in range(steps):
            mean, S = posterior(w, shift, keep)
            new = sites(mean, S)
            away = np.abs(new[1] - shift).max()
            w, shift = w + share * (new[0] - w), shift + share * (new[1] - shift)
            if away < 1e-3 * share:
                break
    m, var = moments_of(mean, S)
    density = unwrapped(likelihood).predict_log_density(
        fit.X[asked],
        (m + known)[asked],
        var[asked],
        checked_observations(tf.constant(Y[asked]), likelihood),
    )
    return np.asarray(density)


def without(n: int, rows: np.ndarray) -> np.ndarray:
    return np.setdiff1d(np.arange(n), rows)


@pytest.fixture
def sites_stay(monkeypatch):
    """Rows are divided out, however far they move, and the others' sites stay as they are."""
    monkeypatch.setattr("gpflow_gam.gam.leave_one_out._FAR", np.inf)


# --- against fits without the row ---------------------------------------------------------------


def test_gaussian_data_by_the_closed_form_of_an_exact_gp():
    """``y - [K^-1 y] / [K^-1]`` and ``1 / [K^-1]`` (Rasmussen & Williams 2006, 5.10 to 5.12)."""
    data = table(25)
    gam = fitted("gaussian", data, s("x", k=25))
    fit = gam.fitted
    K = np.asarray(fit.model.kernel(fit.X)) + np.eye(25) * float(fit.likelihood.variance.numpy())
    y = fit.Y[:, 0] - np.asarray(fit.model.mean_function(fit.X))[:, 0]
    inverse = np.linalg.inv(K)
    mean, var = y - inverse @ y / np.diag(inverse), 1.0 / np.diag(inverse)
    expected = norm.logpdf(y, mean, np.sqrt(var))
    np.testing.assert_allclose(gam.loo().pointwise, expected, atol=2e-4)


def test_gaussian_data_with_weights_offset_and_curves_by_level_are_those_of_fits_without():
    data = table()
    terms = s("x", by=factor("g"), k=6) + factor("g") + s("z", by="x", k=5)
    gam = fitted("gaussian", data, terms, weights="w", offset="o")
    result = gam.loo()
    expected = [refit(gam, without(N, n), np.array([n]))[0] for n in range(N)]
    np.testing.assert_allclose(result.pointwise, expected, atol=1e-7)
    w = data["w"].to_numpy()
    assert result.elpd == pytest.approx(w @ result.pointwise)
    assert result.untrusted == 0


FAMILIES = {
    # how far the other rows' sites would move, in nats of one row at most and of all of them
    "poisson": (0.03, 0.1),
    "negative_binomial": (0.06, 0.1),
    "bernoulli": (0.02, 0.1),
    "binomial": (0.02, 0.1),
    "gamma": (0.07, 0.1),
    "beta": (0.08, 0.1),
    "student_t": (0.05, 0.2),
    "categorical": (0.05, 0.1),
    "ordinal": (0.02, 0.1),
    "heteroskedastic": (0.2, 0.2),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_divides_out_its_site_and_is_close_to_a_fit_without(family, request):
    gam = fitted(family, table())
    result = gam.loo().pointwise
    rows = np.arange(0, N, 5)
    if gam.fitted.num_predictors == 1:
        request.getfixturevalue("sites_stay")
        frozen = [refit(gam, without(N, n), np.array([n]), frozen=True)[0] for n in rows]
        np.testing.assert_allclose(gam.loo().pointwise[rows], frozen, atol=1e-6)
    expected = np.array([refit(gam, without(N, n), np.array([n]))[0] for n in rows])
    one, every = FAMILIES[family]
    assert np.abs(result[rows] - expected).max() < one
    assert abs(np.sum(result[rows] - expected)) < every


@pytest.mark.parametrize(
    "zero",
    [None, pytest.param(factor("g"), marks=pytest.mark.slow)],
    ids=["poisson", "hurdle_poisson"],
)
@pytest.mark.parametrize("groups", [False, True])
def test_sites_of_the_others_follow_where_a_row_settles_its_level_alone(zero, groups):
    """As the only events of a level: without them next to nothing is expected there."""
    data = problems.table(120, 3)
    rows = np.flatnonzero(data["g"] == "c")[:2]
    data["count"] = np.where(data["g"] == "c", 0, data["count"])
    data.loc[rows[: 1 + groups], "count"] = 2
    mean = s("x", k=6) + factor("g")
    family = "poisson" if zero is None else "hurdle_poisson"
    terms = mean if zero is None else {"mean": mean, "zero": zero}
    gam = gg.GAM(terms, family).fit(data, "count")
    labels = np.arange(120) // 2 * 2
    labels[rows] = 500
    result, out = gam.loo(labels if groups else None), rows[: 1 + groups]
    assert result.untrusted == 0
    expected = refit(gam, without(120, out), out, share=0.1, steps=1000)
    np.testing.assert_allclose(result.pointwise[out], expected, atol=0.02)


@pytest.mark.parametrize("variational", [None, pytest.param("block", marks=pytest.mark.slow)])
@pytest.mark.parametrize("largest", [cavities.MAX_SIZE, 0], ids=["together", "apart"])
def test_terms_for_each_parameter(variational, largest, monkeypatch):
    """Of which each has features of its own; of many predictors' means each moves for itself."""
    monkeypatch.setattr(cavities, "MAX_SIZE", largest)
    data = table()
    gam = gg.GAM({"mean": s("x", k=5) + linear("z"), "scale": linear("z")}, variational=variational)
    gam.fit(data, "heteroskedastic")
    rows = np.arange(0, N, 5)
    expected = np.array([refit(gam, without(N, n), np.array([n]))[0] for n in rows])
    result = gam.loo().pointwise
    assert np.median(np.abs(result[rows] - expected)) < 0.02
    assert np.abs(result[rows] - expected).max() < 0.25
    np.testing.assert_allclose(gam.loo(np.arange(N)).pointwise, result, atol=1e-8)


# --- rows left out together ---------------------------------------------------------------------


@pytest.mark.usefixtures("sites_stay")
@pytest.mark.parametrize("family", ["gaussian", "poisson", "student_t"])
@pytest.mark.parametrize("groups", [4, 18, 2])
def test_groups_are_left_out_jointly(family, groups):
    """Of fewer rows than inducing values, and of more; of heavy tails some weights are negative."""
    data = table()
    data["student_t"] = data["heavy"]
    labels = np.random.default_rng(groups).integers(0, groups, N)
    gam = fitted(family, data, weights="w" if family == "poisson" else None)
    result = gam.loo(labels)
    assert result.untrusted == 0
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        expected = refit(gam, without(N, own), own, frozen=True)
        np.testing.assert_allclose(result.pointwise[own], expected, atol=1e-6)
    if family == "student_t":
        of = gam.fitted.solution
        sites, _ = sites_of(of.rows, gam.fitted.likelihood, of.values, of.q)
        assert np.any(sites.weight < 0.0)


def test_neighbourhoods_of_each_row_are_left_out_jointly():
    gam = fitted("gaussian", table())
    near = [range(max(0, n - 2), min(N, n + 4)) for n in range(N)]
    near[5], near[9] = [], np.array([1, 30])  # a row is among its own neighbours
    result = gam.loo(near).pointwise
    for n in range(N):
        out = np.union1d(np.array(near[n], dtype=int), [n])
        expected = refit(gam, without(N, out), np.array([n]))
        np.testing.assert_allclose(result[n], expected[0], atol=1e-7)


def test_tuples_are_labels():
    """Of sites and years; they were read as neighbours without a word."""
    gam, pairs = fitted("gaussian", table()), [(n % 5, n % 2) for n in range(N)]
    names = np.array([f"{site} {year}" for site, year in pairs])
    np.testing.assert_array_equal(gam.loo(pairs).pointwise, gam.loo(names).pointwise)


def test_batches_of_folds_hold_every_fold_once(monkeypatch):
    gam = fitted("gaussian", table())
    labels = np.random.default_rng(0).integers(0, 9, N)
    expected = gam.loo(labels).pointwise
    monkeypatch.setattr("gpflow_gam.optimizers.binned.cavities._ENTRIES", 50)
    monkeypatch.setattr("gpflow_gam.optimizers.binned.cavities._BLOCK", 5)
    np.testing.assert_allclose(gam.loo(labels).pointwise, expected, atol=1e-10)
    folds = Neighbourhoods.of_labels(labels)
    assert sum(len(batch.out) for batch in folds.batches(10)) == len(folds) == 9


@pytest.mark.parametrize(
    ("groups", "error", "words"),
    [
        ("site", ValueError, "the fit holds no column 'site'.*groups=data\\['site'\\]"),
        (np.zeros(N), ValueError, "one label for all rows"),
        (np.arange(N - 1), ValueError, "one entry for each of 36 rows; got 35"),
        (np.zeros((N, 2)), ValueError, r"one label a row; got shape \(36, 2\)"),
        ([None, *range(N - 1)], ValueError, "lack a label in 1 of 36 rows"),
        ([[0, 99]] * N, ValueError, r"count from 0 to 35; got \[ 0 99\]"),
        ([[0.5]] * N, ValueError, r"must be indices of rows.*got \[0.5\]"),
        ([range(N)] * N, ValueError, "every neighbourhood has all rows"),
        ({1, 2}, TypeError, "one label a row, or an array of row indices"),
        (True, TypeError, "one label a row, or an array of row indices"),
    ],
)
def test_groups_that_are_none(gaussian, groups, error, words):
    with pytest.raises(error, match=words):
        gaussian.loo(groups)


@pytest.fixture(scope="module")
def gaussian():
    return fitted("gaussian", table())


@pytest.mark.parametrize("why", ["missing", "weight"])
def test_labels_of_rows_that_were_dropped(why):
    data = table().assign(u=1.0)
    data.loc[[3, 8], "x" if why == "missing" else "u"] = np.nan if why == "missing" else 0.0
    gam = gg.GAM(s("x", k=6), weights="u", missing="drop").fit(data, "gaussian")
    with pytest.raises(ValueError, match=r"34 rows that were fitted; got 36. Rows .* left out"):
        gam.loo(data["g"])
    gam.loo(data["g"].drop([3, 8]))


# --- other fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_rows_in_codes_are_left_out_as_those_of_a_table_are(monkeypatch, family):
    data = table(600)
    options = {"weights": "w", "offset": "o"}
    inside = fitted(family, data, **options)
    monkeypatch.setattr(bins, "KEPT_ROWS", 150)
    coded = fitted(family, data, **options)
    assert not coded.fitted.data.complete
    one, other = inside.loo(), coded.loo()
    np.testing.assert_allclose(other.pointwise, one.pointwise, atol=0.02)
    assert other.elpd == pytest.approx(one.elpd, abs=0.1)
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=0.1)
    labels = data["g"]
    assert coded.loo(labels).elpd == pytest.approx(inside.loo(labels).elpd, abs=0.2)
    gg.compare(one, other)  # the same responses and weights


@pytest.fixture(scope="module")
def newton():
    """By the other engine, with weights."""
    return fitted("poisson", table(), every_node(), engine="iterncgp", weights="w")


@pytest.mark.slow
@pytest.mark.usefixtures("sites_stay")  # as they do in the other engine
def test_laplaces_posterior_of_the_other_engine(newton, monkeypatch):
    result = newton.loo()
    assert result.untrusted == 0
    expected = fitted("poisson", table(), every_node(), weights="w").loo()
    assert result.elpd == pytest.approx(expected.elpd, abs=0.5)
    with pytest.raises(ValueError, match="engine='iterncgp' leaves out single rows only"):
        newton.loo(table()["g"])
    monkeypatch.setattr(type(newton.fitted), "num_predictors", 3)
    with pytest.raises(ValueError, match="rows of one predictor only.*has 3"):
        newton.loo()


@pytest.mark.slow
def test_rows_that_cannot_be_left_out_are_warned_of_and_counted(newton, monkeypatch):
    """As of a posterior that was not computed to its end, which is wider than any row allows."""
    gam = newton
    predict = type(gam.fitted).predict_link
    monkeypatch.setattr(
        type(gam.fitted),
        "predict_link",
        lambda fit, X: (predict(fit, X)[0], 4 * predict(fit, X)[1]),
    )
    with pytest.warns(gg.LeaveOneOutWarning, match=r"of 36 rows could not be left out") as said:
        result = gam.loo()
    assert len(said) == 1
    assert said[0].filename == __file__
    F, var = gam.fitted.predict_link(gam.fitted.X)
    assert result.untrusted == np.sum(table()["w"] * (np.exp(F) * var)[:, 0] >= 1.0)
    assert 0 < result.untrusted < N
    assert np.all(np.isfinite(result.pointwise))
    assert f"{result.untrusted} rows" in str(result)


def test_a_gam_without_its_data_and_one_that_was_loaded(tmp_path):
    gam = fitted("poisson", table())
    gam.save(tmp_path / "whole.gam")
    gam.save(tmp_path / "bare.gam", data=False)
    loaded = gg.GAM.load(tmp_path / "whole.gam").loo()
    np.testing.assert_allclose(loaded.pointwise, gam.loo().pointwise, atol=1e-10)
    with pytest.raises(ValueError, match="without its data"):
        gg.GAM.load(tmp_path / "bare.gam").loo()
    with pytest.raises(ValueError, match="residual_tests: .* without its data"):
        gg.GAM.load(tmp_path / "bare.gam").residual_tests()


# --- comparing ----------------------------------------------------------------------------------


def test_standard_errors_are_those_of_sums_over_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    assert total(x, np.ones(50)) == pytest.approx((x.sum(), np.sqrt(50 * x.var(ddof=1))))
    w = rng.integers(0, 4, 50)  # a weight of two is the row twice
    assert total(x, w.astype(float)) == pytest.approx(total(np.repeat(x, w), np.ones(w.sum())))


def test_fits_beside_each_other():
    data = table(120)
    good, bad = fitted("gaussian", data), fitted("gaussian", data, s("x", k=8))
    result = gg.compare({"without z": bad, "with z": good.loo()})
    frame = result.to_frame()
    assert list(frame.index) == ["with z", "without z"]
    away = bad.loo().pointwise - good.loo().pointwise
    assert frame.loc["without z", "difference"] == pytest.approx(away.sum())
    assert frame.loc["without z", "difference_se"] == pytest.approx(np.sqrt(120 * away.var(ddof=1)))
    assert frame.loc["with z", "difference"] == frame.loc["with z", "difference_se"] == 0.0
    assert frame.loc["with z", "edf"] == pytest.approx(good.summary().edf)
    for text in (str(result), result._repr_html_()):
        for part in ("with z", "one row at a time", *frame.columns):
            assert part in text
    assert list(gg.compare(good, bad).table.index) == ["s('x', k=8) + linear('z')", "s('x', k=8)"]
    assert list(gg.compare(good, good).table.index) == [
        "1: s('x', k=8) + linear('z')",
        "2: s('x', k=8) + linear('z')",
    ]


def test_aic_of_straight_lines_is_about_that_of_a_linear_model():
    """Where the prior says little: ``N log(2 pi rss / N) + N + 2 (3 + 1)``."""
    data = table(400)
    gam = fitted("gaussian", data, linear("x") + linear("z"))
    A = np.stack([np.ones(400), data["x"], data["z"]], axis=1)
    y = data["gaussian"].to_numpy()
    rss = np.sum((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2)
    aic = 400 * np.log(2 * np.pi * rss / 400) + 400 + 2 * 4
    result = gam.loo()
    assert result.aic == pytest.approx(aic, abs=0.2)
    assert result.elpd == pytest.approx(-0.5 * aic, abs=1.0)


def test_what_cannot_be_compared(gaussian):
    data, terms = table(), s("x", k=6)
    counts, normal = fitted("poisson", data, terms), gg.GAM(terms).fit(data, "poisson")
    heavy, some = fitted("student_t", data), fitted("gaussian", data.iloc[:30])
    counted = fitted("gaussian", data, weights="w")
    shuffled = fitted("gaussian", data.sample(frac=1.0, random_state=0))
    for fits, error, words in (
        ([gaussian, heavy], ValueError, r"different responses \('gaussian' and 'student_t'\)"),
        ([gaussian, some], ValueError, "36 and 30 rows"),
        ([{"p": counts, "g": normal}], ValueError, "the family of 'g' has densities"),
        ([gaussian, counted], ValueError, "different weights"),
        ([gaussian.loo(), gaussian.loo(data["g"])], ValueError, "left out together"),
        ([gaussian], ValueError, "at least two fits; got 1"),
        ([gaussian, "other"], TypeError, "got str"),
        ([gaussian, gg.GAM(s("x"))], ValueError, "not fitted yet"),
        ([gaussian, shuffled], ValueError, "rows in another order"),
    ):
        with pytest.raises(error, match=words):
            gg.compare(*fits)


# --- mixtures of fits -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stacked():
    """A jump and a slope: a smooth says one, a line the other, and neither both."""
    rng = np.random.default_rng(8)
    data = pd.DataFrame({"x": rng.uniform(size=150), "z": rng.uniform(size=150)})
    data["y"] = np.sin(6.0 * data["x"]) + data["z"] + 0.5 * rng.normal(size=150)
    gams = {
        "x": gg.GAM("y ~ s(x, k=10)").fit(data),
        "z": gg.GAM("y ~ s(z, k=10)").fit(data),
        "line": gg.GAM("y ~ x + z").fit(data),
    }
    return data, gams, gg.stack(gams)


def test_weights_predict_left_out_rows_best(stacked):
    _, gams, stack = stacked
    p = np.exp(np.stack([gam.loo().pointwise for gam in gams.values()], axis=1))
    # no weight can be moved to a fit that would gain by it (Karush, Kuhn and Tucker)
    gain = np.mean(p / (p @ stack.weights)[:, None], axis=0)
    assert np.all(gain < 1.0 + 1e-4)
    np.testing.assert_allclose(gain[stack.weights > 0.0], 1.0, atol=1e-4)
    assert stack.weights.sum() == pytest.approx(1.0)
    assert np.sum(stack.weights > 0.05) == 2
    alone = [gam.loo().elpd for gam in gams.values()]
    assert np.sum(np.log(p @ stack.weights)) > max(alone) + 0.1


@pytest.mark.parametrize("type", ["response", "observation"])
def test_no_rows_have_no_predictions(stacked, type):
    data, _, stack = stacked
    assert stack.predict(data[:0], type, interval=0.9).shape == (0, 3)


def test_scores_weigh_fits_for_what_lies_beyond():
    """Of a parabola, whose left-out rows both predict: the fit that goes on along its slope."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": np.sort(rng.uniform(size=120))})
    data["y"] = 4.0 * data["x"] ** 2 + 0.2 * rng.normal(size=120)
    gams = {n: gg.GAM(f"y ~ s(x, bs={n!r}, k=10)").fit(data) for n in ("matern52", "iou")}
    scores = {}
    for name, gam in gams.items():
        forecasts = gg.backtest(gam, data, time="x", horizon=0.2, origins=2, num_samples=2)
        scores[name] = forecasts["log_density"]
    stack = gg.stack(gams, scores=scores)
    assert stack.weights[1] > 0.9
    p = np.exp(np.stack(list(scores.values()), axis=1))
    gain = np.mean(p / (p @ stack.weights)[:, None], axis=0)
    assert np.all(gain < 1.0 + 1e-4)  # no weight can be moved
    np.testing.assert_array_equal(
        gg.stack(*gams.values(), scores=list(scores.values())).weights, stack.weights
    )
    for wrong in ({"iou": scores["iou"]}, [scores["iou"]], [scores["iou"], scores["iou"][1:]]):
        with pytest.raises(ValueError, match="scores: of each of the fits .*'iou'.* got shapes"):
            gg.stack(gams, scores=wrong)
    with pytest.raises(ValueError, match="scores: they must be finite"):
        gg.stack(gams, scores=[np.full(3, np.nan), np.zeros(3)])


def test_predictions_are_of_the_mixture(stacked):
    data, gams, stack = stacked
    new, w = data.head(5), stack.weights
    means, errors = (np.stack(v) for v in zip(*(g.predict(new, se=True) for g in gams.values())))
    np.testing.assert_allclose(stack.predict(new), w @ means, rtol=1e-12)
    logs = np.stack([gam.log_density(new) for gam in gams.values()])
    np.testing.assert_allclose(stack.log_density(new), np.log(w @ np.exp(logs)), rtol=1e-9)
    ends = stack.predict(new, interval=0.8)
    for column, p in (("lower", 0.1), ("upper", 0.9)):
        below = w @ norm.cdf((ends[column].to_numpy() - means) / errors)
        np.testing.assert_allclose(below, p, atol=2e-3)
    draws = stack.sample(new, 1000, "observation", seed=3)
    np.testing.assert_array_equal(draws, stack.sample(new, 1000, "observation", seed=3))
    assert draws.shape == (1000, 5)


def test_intervals_of_classes_are_quantiles_of_the_mixtures_draws():
    rng = np.random.default_rng(5)
    data = pd.DataFrame({"x": rng.uniform(size=150), "z": rng.uniform(size=150)})
    data["y"] = np.where(data["x"] + 0.3 * rng.standard_normal(150) > 0.5, "hi", "lo")
    data.loc[rng.uniform(size=150) < 0.3, "y"] = "mid"
    gams = [gg.GAM(s(c, k=6), "categorical").fit(data, "y") for c in "xz"]
    stack = gg.comparison.Stack({"x": gams[0], "z": gams[1]}, np.array([0.6, 0.4]))
    new = data.tail(4)
    frame, draws = stack.predict(new, interval=0.8), stack.sample(new, 20_000, seed=1)
    assert frame.columns.equals(
        gams[0].predict(new, interval=0.8).drop(columns="se", level=1).columns
    )
    assert frame.index.equals(new.index)
    for k, name in enumerate(["hi", "lo", "mid"]):
        np.testing.assert_allclose(frame[name]["estimate"], draws[..., k].mean(axis=0), atol=0.02)
        ends = np.quantile(draws[..., k], [0.1, 0.9], axis=0)
        np.testing.assert_allclose(frame[name][["lower", "upper"]].T, ends, atol=0.02)


def test_an_effect_is_zero_where_a_fit_lacks_it(stacked):
    _, gams, stack = stacked
    grid = {"x": np.linspace(0.1, 0.9, 5)}
    got, own = stack.effects("s(x)", grid), gams["x"].effects("s(x)", grid)
    w = stack.weights[0]
    np.testing.assert_allclose(got["estimate"], w * own["estimate"], rtol=1e-9)
    square = w * (own["se"] ** 2 + own["estimate"] ** 2) - got["estimate"] ** 2
    np.testing.assert_allclose(got["se"] ** 2, square, rtol=1e-9)
    for column, p in (("lower", 0.025), ("upper", 0.975)):
        below = w * norm.cdf((got[column] - own["estimate"]) / own["se"])
        below, at = below + (1.0 - w) * (got[column] > 1e-9), np.abs(got[column]) < 1e-9
        assert np.all((np.abs(below - p) < 1e-4) | at)
    with pytest.raises(ValueError, match=r"no fit has 's\(q\)'"):
        stack.effects("s(q)")


def test_effects_of_a_column_that_is_called_as_one_of_the_table():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=60), "y": rng.normal(size=60)})
    tables = []
    for rows in (data, data.rename(columns={"x": "se"})):
        name = rows.columns[0]
        fits = [gg.GAM(terms).fit(rows, "y") for terms in (s(name, k=5), linear(name))]
        tables.append(
            gg.comparison.Stack(dict(zip("ab", fits)), np.ones(2) / 2).effects(f"s({name})")
        )
    assert list(tables[1].columns[:2]) == ["se (column)", "estimate"]
    np.testing.assert_array_equal(tables[1], tables[0])


def test_what_cannot_be_averaged_is_said(stacked):
    data, gams, stack = stacked
    other = gg.GAM("y ~ x").fit(data.head(100))
    with pytest.raises(ValueError, match="stack: 'a' and 'b' were fitted to 150 and 100 rows"):
        gg.stack({"a": gams["line"], "b": other})
    with pytest.raises(TypeError, match="stack takes fitted GAMs; got LeaveOneOut"):
        gg.stack(gams["line"].loo(), gams["x"])
    with pytest.raises(ValueError, match="type must be 'response', 'link' or 'observation'"):
        stack.predict(data, "terms")


def test_predictors_of_several_kinds_have_no_average_and_responses_do(stacked):
    data, gams, _ = stacked
    data = data.assign(up=np.exp(data["y"]))
    terms = {"mean": s("x", k=5), "scale": linear("z")}
    two, other = (
        gg.GAM(terms | {"mean": m}, "heteroskedastic") for m in (s("x", k=5), linear("z"))
    )
    two, other = two.fit(data, "y"), other.fit(data, "y")
    mixed = gg.comparison.Stack({"one": gams["x"], "two": two}, np.array([0.5, 0.5]))
    both = gg.comparison.Stack({"two": two, "other": other}, np.array([0.5, 0.5]))
    new = data.head(3)
    for stack, fits in ((mixed, (gams["x"], two)), (both, (two, other))):
        means, sds = zip(*(g.predict(new, se=True) for g in fits))
        got = stack.predict(new, interval=0.8)
        for column, p in (("lower", 0.1), ("upper", 0.9)):
            below = norm.cdf((got[column].to_numpy() - means) / np.array(sds)).mean(axis=0)
            np.testing.assert_allclose(below, p, atol=0.03)
    links = np.mean([g.predict(new, "link") for g in (two, other)], axis=0)
    got = both.predict(new, "link", interval=0.8).xs("estimate", axis=1, level=1)
    np.testing.assert_allclose(got, links)
    gamma = gg.GAM("up ~ s(x, k=5)", "gamma").fit(data)
    normal = gg.GAM("up ~ s(x, k=5)").fit(data)
    logs = gg.comparison.Stack({"normal": normal, "gamma": gamma}, np.array([0.5, 0.5]))
    for ask in (
        lambda: mixed.predict(new, "link"),
        lambda: logs.sample(new, 3, "link"),
        lambda: logs.effects("s(x)"),
    ):
        with pytest.raises(ValueError, match="are not of one kind and have no average"):
            ask()


def test_long_names_stand_below_the_table(stacked):
    a, b = stacked[1]["x"], stacked[1]["line"]
    long = "s(x) + s(z) & more than fits a narrow column"
    text, page = str(gg.compare({"short": a, long: b})), gg.compare({"short": a, long: b})
    assert max(map(len, text.splitlines())) < 100
    assert [line for line in text.splitlines() if line.endswith(f": {long}")]
    assert "&amp; more" in page._repr_html_()
    assert long in page.to_frame().index


# --- smoothness chosen by predicting rows without their neighbourhoods ---------------------------


def windows(n: int, reach: int) -> list[range]:
    return [range(max(0, i - reach), min(n, i + reach + 1)) for i in range(n)]


TERMS = s("x", k=5) + factor("g") + s("x", by="z", k=4)


@pytest.mark.usefixtures("sites_stay")
@pytest.mark.parametrize(
    ("family", "y", "groups"),
    [
        ("gaussian", "gaussian", 2),
        ("negative_binomial", "negative_binomial", 15),
        ("student_t", "heavy", 2),
        ("student_t", "heavy", 15),
        ("by parameter", "gaussian", 15),
        ("categorical", "categorical", 15),
    ],
)
def test_the_criterion_is_loos_density_and_its_gradient_agrees_with_differences(family, y, groups):
    """With weights and multipliers; folds of more rows than inducing values, and of fewer."""
    data = table(60)
    if family == "by parameter":
        gam = gg.GAM({"mean": TERMS, "scale": linear("z")}, weights="w").fit(data, y)
    else:
        gam = gg.GAM(TERMS, family, offset="o", weights="w").fit(data, y)
    own = np.random.default_rng(0).integers(0, groups, 60)
    folds = Neighbourhoods.of_labels(own)
    fit, solution = gam.fitted, gam.fitted.solution
    sites = None
    if solution.bound is None:
        sites, _ = sites_of(solution.rows, fit.model.likelihood, solution.values, solution.q)
        assert family != "student_t" or np.any(sites.weight < 0.0)
    target = LeftOutDensity(fit.model, solution.rounds, folds, sites)
    if gam.fitted.num_predictors == 1:  # loo knows better how several go together
        assert target.density(solution.optimum) == pytest.approx(gam.loo(own).elpd, abs=1e-7)
    x = solution.optimum + 0.1
    for some in (target, target.some(1)):
        slope = some.loss(x)[1]
        for way in np.random.default_rng(1).normal(size=(2, len(x))):
            step = 1e-5 * way
            difference = (some.loss(x + step)[0] - some.loss(x - step)[0]) / 2e-5
            assert slope @ way == pytest.approx(difference, abs=2e-5, rel=1e-5)


def autocorrelated(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A wave in time with autocorrelated noise."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 1.0, n)
    e = problems.autocorrelated(rng, n, 0.8)
    f = np.sin(2.0 * np.pi * t) + t
    return pd.DataFrame({"t": t, "y": f + 0.5 * e}), f


@pytest.mark.slow
def test_autocorrelated_noise_is_not_taken_for_a_function():
    """The ELBO's optimum follows the noise; predictions without neighbours do not."""
    data, truth = autocorrelated(100, 0)
    near = windows(100, 9)
    elbo = gg.GAM(s("t", k=20)).fit(data, "y")
    ncv = gg.GAM(s("t", k=20)).fit(data, "y", criterion="ncv", groups=near, tolerance=0.1)
    assert ncv.fitted.result.converged
    assert elbo.summary().edf > 10.0
    assert ncv.summary().edf < 7.0
    assert ncv.loo(near).elpd > elbo.loo(near).elpd + 10.0
    (worse, narrow), (better, wide) = (g.predict(data, "link", se=True) for g in (elbo, ncv))
    np.testing.assert_allclose(ncv.sample(data, 2000, "link").std(axis=0), wide, rtol=0.1)
    assert np.mean((better - truth) ** 2) < 0.64 * np.mean((worse - truth) ** 2)
    covered = [np.mean(np.abs(m - truth) < 2.0 * se) for m, se in ((worse, narrow), (better, wide))]
    assert covered[1] > 0.9
    assert covered[0] < 0.6
    # the criterion's gradient is zero
    solution = ncv.fitted.solution
    slope = LeftOutDensity(ncv.fitted.model, solution.rounds, Neighbourhoods.of(near, 100)).loss(
        solution.optimum
    )[1]
    assert np.abs(slope).max() < 0.5


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning", "ignore::UserWarning")
def test_standard_errors_allow_for_the_mean_product_of_neighbours_residuals(family):
    data, near = table(60), windows(60, 3)
    terms = s("x", k=5) + linear("z")
    gam = gg.GAM(terms, family).fit(data, family, criterion="ncv", groups=near, max_iterations=1)
    solution, likelihood = gam.fitted.solution, gam.fitted.model.likelihood
    rows, S = solution.rows, solution.q.covariance[0]
    if solution.bound is None:
        sites, _ = sites_of(rows, likelihood, solution.values, solution.q)
        w, shift = sites.weight[:, 0], sites.shift[:, 0]
    else:
        noise = likelihood.variance.numpy()
        w, shift = np.full(60, 1.0 / noise), (rows.Y - rows.mean)[:, 0] / noise
    phi = RowPosterior.of_rows(rows, solution.values, solution.q).features(np.arange(60))[0]
    residual = np.zeros(60)
    for n, out in enumerate(near):
        kept = np.setdiff1d(np.arange(60), out)
        precision = np.eye(len(phi)) + (phi[:, kept] * w[kept]) @ phi[:, kept].T
        left_out = phi[:, n] @ np.linalg.solve(precision, phi[:, kept] @ shift[kept])
        residual[n] = (shift[n] - w[n] * left_out) / np.sqrt(w[n])
    pairs = [(n, m) for n in range(60) for m in near[n] if m != n]
    covariance = max(np.mean([residual[n] * residual[m] for n, m in pairs]), 0.0)
    G = np.mean(residual**2) * (phi * w) @ phi.T
    for n, m in pairs:
        G = G + covariance * np.sqrt(w[n] * w[m]) * np.outer(phi[:, n], phi[:, m])
    values, vectors = np.linalg.eigh(G)
    G = (vectors * np.maximum(values, 0.0)) @ vectors.T
    expected = S @ (np.eye(len(S)) + G) @ S - S  # of sites that have nearly converged
    np.testing.assert_allclose(solution.between[0], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_neighbours_residuals_are_those_of_the_likelihood_found(monkeypatch):
    seen, beyond = [], cross_validation._beyond

    def watched(solution, likelihood, *rest):
        seen.extend(p.numpy() for p in likelihood.trainable_parameters)
        return beyond(solution, likelihood, *rest)

    monkeypatch.setattr(cross_validation, "_beyond", watched)
    gam = gg.GAM(s("x", k=5), "negative_binomial")
    gam.fit(table(60), "poisson", criterion="ncv", groups=windows(60, 3), max_iterations=2)
    found = [p.numpy() for p in gam.fitted.model.likelihood.trainable_parameters]
    np.testing.assert_allclose(seen, found, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_a_saved_fit_has_the_same_bands(tmp_path):
    data, _ = autocorrelated(80, 1)
    gam = gg.GAM(s("t", k=6))
    gam.fit(data, "y", criterion="ncv", groups=windows(80, 4), max_iterations=2)
    assert gam.fitted.solution.hessian is not None
    gam.save(tmp_path / "one.gam")
    loaded = gg.GAM.load(tmp_path / "one.gam")
    pd.testing.assert_frame_equal(loaded.effects("s(t)"), gam.effects("s(t)"))


@pytest.mark.parametrize(
    ("gam", "fit", "words"),
    [
        ({}, {"criterion": "gcv"}, "criterion must be 'elbo' or 'ncv'; got 'gcv'"),
        ({}, {"groups": "g"}, "the ELBO leaves no rows out; add criterion='ncv'"),
        ({}, {"criterion": "ncv", "groups": np.zeros(9)}, "each of 60 rows; got 9"),
        ({"engine": "iterncgp"}, {"criterion": "ncv"}, "a fit with engine='iterncgp' does not"),
        ({}, {"criterion": "ncv", "checkpoint": "x"}, "a fit with criterion='ncv' writes none"),
    ],
)
def test_bad_combinations_of_arguments_are_refused(gam, fit, words):
    with pytest.raises(ValueError, match=words):
        gg.GAM(s("x", k=5), **gam).fit(table(60), "gaussian", **fit)


@pytest.mark.parametrize("options", [{"callback": lambda _: "enough"}, {"max_seconds": 1e-9}])
def test_an_end_before_rows_are_left_out_ends_the_fit(options):
    data, _ = autocorrelated(80, 1)
    with pytest.warns(gg.ConvergenceWarning, match="before rows were left out: smoothness is the"):
        gam = gg.GAM(s("t", k=10)).fit(data, "y", criterion="ncv", groups=windows(80, 4), **options)
    result = gam.fitted.result
    assert not result.converged
    assert result.ended
    assert result.num_iterations <= 1
    assert np.all(np.isfinite(gam.predict(data)))


def test_draws_of_quantities_have_the_standard_errors_of_predictions():
    """Of noise that lasts, with all that standard errors allow for beyond the posterior's own."""
    noise = problems.autocorrelated(np.random.default_rng(0), 300, 0.7)
    data = pd.DataFrame({"t": np.arange(300.0), "y": np.sin(np.arange(300) / 40) + 0.5 * noise})
    gam = gg.GAM(s("t", k=20)).fit(data, "y", criterion="ncv", groups=np.arange(300) // 15)
    new = data.iloc[[40, 150, 260]]
    wanted, known = (gam.predict(new, se=True, unconditional=u)[1] for u in (True, False))
    assert np.all(wanted > 1.3 * known)
    drawn = gam.hypotheses(dict(enumerate(np.eye(3))), new, num_samples=4000)["se"]
    np.testing.assert_allclose(drawn, wanted, rtol=0.05)
    given = gam.hypotheses(dict(enumerate(np.eye(3))), new, unconditional=False)["se"]
    np.testing.assert_allclose(given, known, rtol=0.1)


@pytest.mark.parametrize("given", [dict, pd.DataFrame])
def test_labels_of_rows_in_another_order_are_refused(given):
    """As a response is: they were taken by place."""
    data, turned = given({"x": table(30)["x"], "y": table(30)["gaussian"]}), table(30)["g"][::-1]
    with pytest.raises(ValueError, match="groups has the rows of data in another order"):
        gg.GAM(s("x", k=5)).fit(data, "y", criterion="ncv", groups=turned)
    with pytest.raises(ValueError, match="y has the rows of data in another order"):
        gg.GAM(s("x", k=5)).fit(data, turned)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_labels_and_neighbours_follow_rows_that_are_dropped():
    data = table(30).assign(site=np.arange(30) // 5)
    data.loc[[3, 20, 21], "x"] = np.nan
    near = windows(30, 2)
    kept = data.drop([3, 20, 21])
    number = {old: new for new, old in enumerate(kept.index)}
    left = [[number[i] for i in near[n] if i in number] for n in kept.index]

    def fit(rows, groups):
        gam = gg.GAM(s("x", k=5), missing="drop")
        gam.fit(rows, "gaussian", criterion="ncv", groups=groups, max_iterations=3)
        return gam.fitted.solution.optimum

    np.testing.assert_allclose(fit(data, near), fit(kept, left), atol=1e-10)
    for groups in ("site", data["site"]):
        np.testing.assert_allclose(fit(data, groups), fit(kept, "site"), atol=1e-10)
