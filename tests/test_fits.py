"""GAMs fitted from sums over rows: bins against rows, parts against wholes, and people's habits."""

import dataclasses
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from problems import reloaded
from response_cases import responses
from threadpoolctl import threadpool_info, threadpool_limits

import gpflow_gam as gg
from gpflow_gam import factor, s
from gpflow_gam.gam.fits.fit import Attempt, fit_refined
from gpflow_gam.optimizers import FitResult, TimeBudget
from gpflow_gam.optimizers import fits as optimizers_rows
from gpflow_gam.optimizers.binned import evidence, rounds
from gpflow_gam.optimizers.binned.bins import HeldColumns
from gpflow_gam.optimizers.binned.evidence import identity
from gpflow_gam.optimizers.binned.rounds import Rounds
from gpflow_gam.threads import one_blas_thread

TERMS = s("x", k=10) + s("z", k=10) + factor("g")


def table(number: int, family: str = "poisson", seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=number), np.exp(0.3 * rng.normal(size=number))
    g = rng.choice(list("abc"), number)
    eta = np.sin(5.0 * x) + 0.4 * np.log(z) + 0.5 * (g == "a")
    y = responses(eta, seed)[family]
    return pd.DataFrame({"x": x, "z": z, "g": g, "eta": eta, "y": y})


def link(gam: gg.GAM, data: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    mean, var = gam.fitted.predict_link(gam.fitted.encode(data))
    return mean, np.sqrt(var)


def scalars(gam: gg.GAM) -> np.ndarray:
    """Hyperparameters that are one number, variances as standard deviations."""
    result = []
    for name, p in gpflow.utilities.parameter_dict(gam.model).items():
        if p.trainable and p.shape.rank == 0:
            result.append(np.sqrt(p.numpy()) if name.endswith("variance") else p.numpy())
    return np.array(result)


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[] if name in ("gaussian", "poisson") else pytest.mark.slow)
        for name in responses()
    ],
)
def test_bins_give_the_fit_of_the_rows(family, monkeypatch):
    data = table(5000, family)
    # how large an effect is a priori, one of them says little of: searches have to come to an end
    binned = gg.GAM(TERMS, family=family).fit(data, y="y", tolerance=1e-7)
    assert not binned.fitted.solution.rows.components[1].bins.exact
    monkeypatch.setattr(
        "gpflow_gam.gam.fits.data.HeldColumns", lambda X, *_: HeldColumns(X, number=None)
    )
    exact = gg.GAM(TERMS, family=family).fit(data, y="y", tolerance=1e-7)
    assert all(c.bins.exact for c in exact.fitted.solution.rows.components)
    assert exact.fitted.result.discretisation == 0.0
    (mean, sd), (other, _) = link(exact, data), link(binned, data)
    assert np.max(np.abs(mean - other) / sd) < 0.1
    # a standard deviation that has vanished beside the predictor's, which is about 1, has no digits
    np.testing.assert_allclose(scalars(binned), scalars(exact), rtol=0.02, atol=1e-3)


@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
@pytest.mark.parametrize(
    "family",
    ["gaussian", "student_t", "weibull", "tweedie", "negative_binomial", "poisson", "categorical"],
)
def test_fits_are_in_double_precision_whatever_the_default(family, tmp_path):
    data = table(60, family)

    def predicted() -> np.ndarray:
        gam = gg.GAM(s("x", k=5), family).fit(data, "y", max_iterations=2)
        density = reloaded(gam, tmp_path / "gam", overwrite=True).log_density(data)
        drawn = gam.sample(data, 1, "observation")[0]
        return np.column_stack([gam.predict(data), drawn, density])

    expected = predicted()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        np.testing.assert_array_equal(predicted(), expected)


@pytest.mark.filterwarnings("ignore::gpflow_gam.ConvergenceWarning")
def test_fits_in_threads_leave_the_default_as_it_was():
    """Also where the second begins before the first ends, and ends after it."""
    begun, second, ended = (threading.Event() for _ in range(3))

    def fitted(mine: threading.Event, other: threading.Event) -> None:
        def wait(_: object) -> None:
            mine.set()
            other.wait(1.0)  # in vain where the second waits for the first

        gg.GAM(s("x", k=5)).fit(table(60, "gaussian"), "y", max_iterations=2, callback=wait)

    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        pair = (begun, second), (second, ended)
        first, last = (threading.Thread(target=fitted, args=events) for events in pair)
        first.start()
        begun.wait(20.0)
        last.start()
        first.join()
        ended.set()
        last.join()
        assert gpflow.config.default_float() == np.float32


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("formula", ["y ~ x", "y ~ s(x)", "y ~ x + factor(g)"])
def test_a_response_without_noise_is_met(formula, unit):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=30), "g": rng.choice(list("ab"), 30)})
    data["y"] = unit * (2.0 * data["x"] + 1.0)
    gam = gg.GAM(formula).fit(data)
    assert gam.fitted.result.converged
    np.testing.assert_allclose(gam.predict(data), data["y"], atol=1e-5 * unit)
    assert 0.0 < float(gam.model.likelihood.variance.numpy()) < 1e-6 * unit**2
    assert np.all(np.isfinite(gam.effects("s(x)" if "s(x)" in gam.names else "linear(x)")["se"]))


def test_little_noise_is_met_with_finer_bins():
    data = table(5000)
    data["y"] = data["eta"] + 0.02 * np.random.default_rng(1).normal(size=5000)
    gam = gg.GAM(TERMS).fit(data, y="y")
    assert gam.fitted.solution.rows.components[1].bins.number > 500
    assert gam.fitted.result.discretisation < 1e-3
    assert float(np.sqrt(gam.model.likelihood.variance.numpy())) == pytest.approx(0.02, rel=0.05)


def narrow(number: int, family: str) -> pd.DataFrame:
    """Curves that are rougher than expected, of which rows say much."""
    rng = np.random.default_rng(0)
    x, z = rng.uniform(size=(2, number))
    eta = np.sin(6.0 * x) + 2.0 * np.exp(-np.square((x - 0.3) / 0.05)) + z
    y = rng.poisson(np.exp(5.0 + eta)) if family == "poisson" else eta + rng.normal(size=number) / 9
    return pd.DataFrame({"x": x, "z": z, "y": y})


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("family", "terms"),
    [
        ("poisson", "s(x) + s(z, k=8)"),
        ("gaussian", "s(x, bs='se') + s(z, k=8)"),
        ("gaussian", "te(x, z)"),
    ],
)
def test_rough_curves_are_those_of_a_node_at_every_value(monkeypatch, family, terms):
    """Counts of hundreds had been fitted some hundred nats below the best, and said converged."""
    data = narrow(400, family)
    gam = gg.GAM(terms, family=family).fit(data, y="y")
    assert gam.fitted.result.converged
    assert gam.fitted.spec.refined
    assert gam.fitted.result.interpolation < 1e-3
    monkeypatch.setattr(evidence, "_nodes", lambda kernel, points, *_: identity(len(points)))
    every = gg.GAM(terms, family=family).fit(data, y="y")
    assert every.fitted.result.interpolation == 0.0
    assert not every.fitted.spec.refined
    assert gam.fitted.result.elbo == pytest.approx(every.fitted.result.elbo, abs=0.05)
    (mean, sd), (other, _) = link(gam, data), link(every, data)
    assert np.max(np.abs(mean - other) / sd) < 0.05


@pytest.mark.slow
def test_fine_nodes_are_kept_in_files_and_where_a_fit_goes_on(tmp_path):
    data = narrow(300, "poisson")
    gam = gg.GAM("s(x, bs='se') + s(z, k=8)", family="poisson").fit(data, y="y")
    effects, number = gam.effects("s(x)"), gam.fitted.result.num_iterations
    for keep in (True, False):
        loaded = reloaded(gam, tmp_path / str(keep), data=keep)
        assert loaded.fitted.spec.refined == gam.fitted.spec.refined == ("s(x)",)
        assert loaded.fitted.result.interpolation == gam.fitted.result.interpolation
        assert loaded.fitted.result.interpolation_by == gam.fitted.result.interpolation_by
        assert loaded.fitted.result.interpolation_shift == gam.fitted.result.interpolation_shift
        pd.testing.assert_frame_equal(loaded.effects("s(x)"), effects)
    elbo = gam.fitted.result.elbo
    again = gam.refit().fitted.result
    assert again.elbo == pytest.approx(elbo, abs=0.05)
    assert again.num_iterations < number


def jagged(number: int) -> pd.DataFrame:
    """A skewed column of 150 values as of distances of flights, each with a mean of its own."""
    rng = np.random.default_rng(0)
    distances = np.append(np.sort(np.round(90.0 + np.exp(rng.normal(6.5, 0.7, size=149)))), 5000.0)
    share = rng.gamma(0.5, size=150)
    place = rng.choice(150, number, p=share / share.sum())
    y = rng.normal(size=150)[place] * 3.0 + 10.0 * rng.normal(size=number)
    return pd.DataFrame({"distance": distances[place], "y": y})


def test_many_rows_of_a_rough_curve_are_fitted_without_a_false_alarm(monkeypatch):
    """Nodes had lost some nats of many rows, and the fit was said not to have converged."""
    data, curve = jagged(50_000), s("distance", bs="se")
    with warnings.catch_warnings(action="error"):
        gam = gg.GAM(curve).fit(data, y="y")
    assert gam.fitted.spec.refined == ("s(distance)",)
    result = gam.fitted.result
    assert result.converged
    assert result.interpolation_shift < 1e-3
    # without a node at every value estimates do move, and it is said by how much at most
    monkeypatch.setattr(evidence, "_ALL_VALUES", {1: 0})
    with pytest.warns(gg.ConvergenceWarning, match="^effects are rougher .* of its standard err"):
        coarse = gg.GAM(curve).fit(data, y="y")
    values, exact = coarse.effects("s(distance)"), gam.effects("s(distance)")
    moved = np.max(np.abs(values["estimate"] - exact["estimate"]) / exact["se"])
    assert 0.5 < moved < coarse.fitted.result.interpolation_shift < 5.0 * moved


def test_few_values_of_a_column_are_all_nodes():
    """Hours, ages, temperatures in degrees: however rough the curve is, nothing is approximated."""
    x = np.arange(3000) % 60 / 60.0
    data = pd.DataFrame({"x": x, "z": np.sin(np.arange(3000.0))})
    rate = np.exp(5.0 + 2.0 * np.exp(-0.5 * np.square((x - 0.5) / 0.02)))
    data["y"] = np.random.default_rng(0).poisson(rate)
    gam = gg.GAM("s(x, k=60) + s(z)", family="poisson").fit(data, y="y")
    assert gam.fitted.result.interpolation_by["s(x)"] == 0.0
    assert "s(x)" not in gam.fitted.spec.refined
    assert np.max(np.abs(gam.predict(data) / rate - 1.0)) < 0.1


def test_smooth_curves_need_no_fine_nodes():
    gam = gg.GAM(TERMS, family="poisson").fit(table(400), y="y")
    assert not gam.fitted.spec.refined
    assert 0.0 < gam.fitted.result.interpolation < 1e-2


def test_a_fit_that_begins_on_a_part_ends_where_the_whole_does(monkeypatch):
    data = table(9000)
    whole = gg.GAM(TERMS, family="poisson").fit(data, y="y")
    monkeypatch.setattr(optimizers_rows, "MANY_ROWS", 5000)
    monkeypatch.setattr(optimizers_rows, "START_ROWS", 3000)
    part = gg.GAM(TERMS, family="poisson").fit(data, y="y")
    # with a second part, and steps whose gain is known before a pass shows it
    monkeypatch.setattr(optimizers_rows, "START_ROWS", 1000)
    monkeypatch.setattr(optimizers_rows, "_STAGES", 5000)
    monkeypatch.setattr(rounds, "MANY_ROWS", 5000)
    staged = gg.GAM(TERMS, family="poisson").fit(data, y="y")
    assert "another pass over the rows would gain" in staged.fitted.result.message
    assert staged.fitted.result.num_iterations < part.fitted.result.num_iterations
    solution = whole.fitted.solution
    errors = np.sqrt(
        np.diag(np.linalg.inv(solution.rounds.hessian(solution.data, solution.optimum)))
    )
    for other in (part, staged):
        assert other.fitted.result.converged
        assert other.fitted.result.elbo == pytest.approx(whole.fitted.result.elbo, abs=0.05)
        (mean, sd), (same, _) = link(whole, data), link(other, data)
        assert np.max(np.abs(mean - same) / sd) < 0.05
        away = (other.fitted.solution.optimum - solution.optimum) / errors
        assert np.max(np.abs(away)) < 0.05


def test_what_is_open_in_a_sparse_tail_is_counted(monkeypatch):
    """Few points of a long tail, far from inducing inputs, once stood for by one near them."""
    data = table(5000, "gaussian")
    data["z"] = data["z"] ** (0.7 / 0.3)
    monkeypatch.setattr(
        "gpflow_gam.gam.fits.data.HeldColumns", lambda X, *_: HeldColumns(X, number=None)
    )
    gam = gg.GAM(TERMS).fit(data, y="y")
    objective = gam.model.maximum_log_likelihood_objective() + gam.model.log_prior_density()
    assert gam.fitted.result.elbo == pytest.approx(float(objective), abs=1.0)


@pytest.mark.slow
def test_cutpoints_and_predictor_settle_together():
    """Improved in turn, what is left would only halve from round to round."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=600), "z": rng.uniform(size=600)})
    latent = np.sin(6.0 * data["x"]) * 2.0 + data["z"] + rng.normal(size=600)
    data["y"] = np.digitize(latent, [-1.0, 0.0, 1.0, 2.0])
    result = gg.GAM(s("x") + s("z"), family="ordinal").fit(data, "y").fitted.result
    assert result.converged
    assert result.num_iterations <= 10


def test_many_smooths_of_nothing_take_few_iterations():
    """Their variances go to zero, each at its own pace."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1000, 12))
    data = pd.DataFrame(X, columns=[f"x{i}" for i in range(12)])
    data["y"] = np.sin(6.0 * X[:, 0]) + rng.normal(size=1000)
    terms = s("x0", k=8)
    for i in range(1, 12):
        terms = terms + s(f"x{i}", k=8)
    result = gg.GAM(terms).fit(data, "y").fitted.result
    assert result.converged
    assert result.num_iterations <= 40


@pytest.mark.parametrize("family", ["poisson", "negative_binomial", "weibull", "student_t"])
def test_large_effects_take_few_rounds(family):
    """Means of rows differ by factors of thousands: their average would be a start far away."""
    rng = np.random.default_rng(1)
    df = pd.DataFrame({"x": rng.uniform(size=600), "z": rng.uniform(size=600)})
    mean = np.exp(4.0 * np.sin(5.0 * df["x"]) + 6.0 * df["z"])
    df["y"] = {
        "poisson": rng.poisson(mean),
        "negative_binomial": rng.negative_binomial(1.2, 1.2 / (1.2 + mean)),
        "weibull": mean * rng.weibull(1.5, 600),
        "student_t": np.log(mean) + 0.1 * rng.standard_t(3.0, 600),
    }[family]
    result = gg.GAM(s("x") + s("z"), family).fit(df, "y").fitted.result
    assert result.converged
    # from it 19, 11, 9 and 17
    assert result.num_iterations <= {"weibull": 12, "student_t": 12}.get(family, 8)


def test_threads_that_overlap_leave_linear_algebra_its_threads():
    """The first to begin is the first to end."""
    begun, over = threading.Event(), threading.Event()

    def counts():
        return {part["num_threads"] for part in threadpool_info() if part["user_api"] == "blas"}

    def second():
        with one_blas_thread():
            begun.set()
            over.wait(60.0)

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=second)
        with one_blas_thread():
            thread.start()
            assert begun.wait(60.0)
        assert counts() == {1}
        over.set()
        thread.join()
        assert counts() == {2}


@pytest.mark.usefixtures("remembering")
def test_the_order_in_which_threads_come_to_their_end_changes_no_bit(monkeypatch):
    rng = np.random.default_rng(7)
    df = pd.DataFrame({name: rng.uniform(size=3000).round(2) for name in "abcd"})
    monkeypatch.setattr("gpflow_gam.optimizers.binned.passes.LOOKUP", 0.0)  # tables of pairs
    df["y"] = rng.poisson(np.exp(np.sin(6.0 * df["a"])))
    terms = s("a", k=6) + s("b", k=6) + s("c", k=6) + s("d", k=6)

    def result():
        gam = gg.GAM(terms, "negative_binomial").fit(df, "y", max_iterations=3)
        return gam.predict(df, se=True, unconditional=False), gam.fitted.result.elbo

    def last_first(function, items, *_):
        with one_blas_thread():
            for item in reversed(list(items)):
                function(item)

    (mean, se), elbo = result()
    for module in ("optimizers.binned.passes", "gam.fits.reading"):
        monkeypatch.setattr(f"gpflow_gam.{module}.each", last_first)
    (again, se_again), elbo_again = result()
    np.testing.assert_array_equal(again, mean)
    np.testing.assert_array_equal(se_again, se)
    assert elbo_again == elbo


@pytest.mark.slow
def test_a_step_that_leads_astray_in_one_part_is_no_convergence(monkeypatch):
    df = table(150)
    df["y"] = np.random.default_rng(3).negative_binomial(2.0, 1.0 / (1.0 + df["y"] + 0.5))

    # alpha stays where it begins, or is sent where it never should go
    monkeypatch.setattr(Rounds, "_newton", lambda self, seen, settled: np.zeros(1))
    improved = Rounds._improved

    def fitted(step):
        def target(self, seen, *options):
            result = improved(self, seen, *options)
            return dataclasses.replace(result, phi=result.phi + step)

        monkeypatch.setattr(Rounds, "_improved", target)
        return gg.GAM(TERMS, "negative_binomial").fit(df, "y").fitted.result

    held, astray = fitted(0.0), fitted(-1e5)
    assert held.converged
    assert astray.elbo > held.elbo - 0.02


# --- when a fit is made anew to finer sums over rows ---------------------------------------------

FINER = {"usual": 0.1, 1024: 0.01, None: 0.0}
COARSE = {"usual": 0.1, 1024: 0.1, 2048: 0.1, None: 0.1}
ANEW = [("usual", (), None), (1024, ("curve",), None), (2048, ("curve",), "model 2")]


@pytest.mark.parametrize(
    ("lost", "bins", "options", "asked"),
    [
        # nodes are refined from the start, with bins, and bins go on; 0.04 is next to nothing
        ((5.0, 0.04, 0.04), FINER, {}, [*ANEW[:2], (None, ("curve",), "model 2")]),
        # what comes to lose is refined next: a better fit is a rougher one
        ((5.0, 0.04, 3.0), {"usual": 0.0}, {}, [*ANEW[:1], ("usual", ("curve",), None),
                                                ("usual", ("curve", "surface"), None)]),
        ((5.0, 5.0, 5.0), FINER, {"ended": True}, ANEW[:1]),
        # what time does not do for is not begun, where each fit lasts ten seconds
        ((0.5, 0.0, 0.0), COARSE, {"seconds": 15.0}, ANEW[:1]),
        ((0.5, 0.0, 0.0), COARSE, {"seconds": 25.0}, ANEW[:2]),
        ((0.5, 0.0, 0.0), COARSE, {"seconds": 35.0}, ANEW),
    ],
    ids=["nodes and bins", "later", "ended", "15 s", "25 s", "35 s"],
)  # fmt: skip
def test_fits_are_made_anew_as_long_as_it_helps(lost, bins, options, asked):
    """By what curves lose to usual nodes, and a hundredth of that to fine ones."""
    curve, *surface = lost
    seen, ended, now = [], options.get("ended", False), ["usual"]

    def fit(fine: tuple[str, ...], model: Any) -> Attempt:
        parts = {"curve": curve, "surface": surface[min(len(seen), 1)]}
        parts = {k: v / 100.0 if k in fine else v for k, v in parts.items()}
        seen.append((now[0], fine, model))
        result = FitResult(
            not ended, "", 0.0, 1, 10.0, "", np.zeros(0), discretisation=bins[now[0]],
            interpolation=sum(parts.values()), interpolation_by=parts,
            interpolation_shift=sum(parts.values()) ** 0.5, ended=ended,
        )  # fmt: skip
        return Attempt(SimpleNamespace(refined=fine), f"model {len(seen)}", result, None)

    budget = TimeBudget(options.get("seconds"), lambda: 10.0 * len(seen))
    numbers = [n for n in bins if n != "usual"]
    done = fit_refined(fit, lambda n: now.__setitem__(0, n), (), numbers, budget)
    assert seen == asked
    assert done.model == f"model {len(asked)}"
    assert done.result.converged or options
