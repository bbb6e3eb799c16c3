"""Sums over rows by bins, against loops over rows and the models' own routes."""

import dataclasses
import warnings

import gpflow
import numpy as np
import problems
import pytest
import tensorflow as tf
from gpflow.kernels import Matern52, Product

import gpflow_gam as gg
from gpflow_gam import factor, linear, s, te
from gpflow_gam.gam.components.kernels import build_kernel
from gpflow_gam.gam.components.plan import learn_encoder, plan_columns
from gpflow_gam.gam.fits.data import row_components
from gpflow_gam.gam.frames.table import Table
from gpflow_gam.kernels import Indicator
from gpflow_gam.kernels.correlation import parameters_of
from gpflow_gam.kernels.fixed_inputs import fixed_input_kernel
from gpflow_gam.optimizers.binned import passes
from gpflow_gam.optimizers.binned.bins import Bins, HeldColumns, bin_columns
from gpflow_gam.optimizers.binned.evidence import (
    Evidence,
    EvidenceEvaluation,
    Places,
    PseudoData,
    identity,
    row_component,
)
from gpflow_gam.optimizers.binned.passes import Rows
from gpflow_gam.optimizers.binned.rounds import Rounds
from gpflow_gam.optimizers.binned.solution import CollapsedBound, present_posterior
from gpflow_gam.optimizers.sites import sweep
from gpflow_gam.threads import each


@pytest.mark.parametrize(("shift", "skew"), [(0.0, 1.5), (1e9, 0.0)])
def test_bins_stand_for_their_rows(shift, skew, rng):
    values = shift + (np.exp(skew * rng.normal(size=20_000)) if skew else rng.normal(size=20_000))
    result = bin_columns(values[:, None])
    assert not result.exact
    assert 100 < result.number <= 256
    assert 512 < bin_columns(values[:8000, None]).number <= 1024
    for g in (0, result.number // 2, result.number - 1):
        inside = values[result.codes == g]
        np.testing.assert_allclose(result.points[g, 0] - shift, np.mean(inside - shift), atol=5e-7)
    # even steps of the range bound the width everywhere, quantiles where there are many rows
    width = np.abs(result.points[result.codes, 0] - values)
    assert width.max() <= np.ptp(values) / 127
    low, high = np.quantile(values, [0.05, 0.95])
    middle = (values > low) & (values < high)
    assert np.median(width[middle]) < 0.01 * (high - low)
    np.testing.assert_allclose(result.mass(), np.bincount(result.codes))


# --- rows ----------------------------------------------------------------------------------------

TERMS = (
    s("x", k=8, bs="matern52")
    + s("z", k=8, by=factor("g"))
    + s("x", k=6, by="w")
    + te("x", "z", k=9)
    + te("z", "g", k=7)
    + factor("g", shrink=True)
    + linear("w", shrink=True)
)
LIKELIHOODS = {
    "poisson": gpflow.likelihoods.Poisson,
    "bernoulli": gpflow.likelihoods.Bernoulli,
    "softmax": lambda: gg.likelihoods.FixedSoftmax(3),
    "negative binomial": lambda: gg.likelihoods.NegativeBinomial(0.7),
}


def prepared(number: int = 150):
    """Components, their kernel, and X of a GAM with terms of every form."""
    table = Table(problems.table(number, 0))
    encoder = learn_encoder(TERMS, [], table)
    X = encoder.encode(table)
    components = tuple(plan_columns(TERMS, table, encoder, HeldColumns(X)))
    Y = np.asarray(table.values("count"), dtype=float)[:, None]
    return components, build_kernel(components, TERMS, 1.0), X, Y


def a_model(components, kernel, width: int, likelihood, rng) -> gg.models.AdditiveSVGP:
    """With sites that are not those of any data."""
    model = gg.models.AdditiveSVGP(
        kernel,
        likelihood,
        gg.gam.components.kernels.build_inducing(components, kernel, width),
        variational=gg.variational.OptimalPrecision(),
    )
    P, L = model.variational.site_shift.shape
    root = 0.5 * rng.standard_normal((L, P, P))
    cholesky = model.blocks.cholesky()
    model.variational.assign_sites(
        cholesky, tf.constant(root @ root.transpose(0, 2, 1)), rng.standard_normal((P, L))
    )
    return model


def observations(name: str, Y: np.ndarray) -> np.ndarray:
    return {"bernoulli": np.minimum(Y, 1.0), "softmax": np.minimum(Y, 2.0)}.get(name, Y)


def values_of(kernel):
    result = {id(p): p.numpy() for p in parameters_of(kernel)}
    return lambda p: result[id(p)]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["softmax", "negative binomial"])
def test_a_pass_agrees_with_the_dense_computation(name, rng, monkeypatch):
    components, kernel, X, Y = prepared()
    Y = observations(name, Y)
    model = a_model(components, kernel, X.shape[1], LIKELIHOODS[name](), rng)
    L = model.num_latent_gps
    rows = Rows(row_components(components, kernel, HeldColumns(X)), X, Y, np.zeros((len(X), L)))
    cholesky = model.blocks.cholesky()
    q = model.variational.whitened(cholesky)
    labels = gg.likelihoods.base.checked_observations(tf.constant(Y), model.likelihood)
    exact = sweep(model, (tf.constant(X), labels), cholesky, q)
    back = np.argsort(model.blocks.layout.order)
    Lambda = exact.sums.precision.numpy()[:, back][:, :, back]
    ours = present_posterior(model)
    monkeypatch.setattr(passes, "_LOOKED_UP", 64)  # parts of the rows, each on a thread
    # rows gathered, looked up in passes, in tables too large to hold, in some tables at a time
    routes = ((1e30, 2**21, 2**27), (1e-30, 2**21, 2**27), (1e-30, 100, 2**27), (1e-30, 2**21, 1))
    for flops, limit, held in routes:
        monkeypatch.setattr(passes, "_HELD", held)
        monkeypatch.setattr(passes, "FLOPS", flops)
        monkeypatch.setattr(passes, "LOOKUP", 1.0 / flops)
        monkeypatch.setattr(passes, "MAX_TABLE", limit)
        seen = rows.sweep(model.likelihood, values_of(kernel), ours)
        assert seen.expected == pytest.approx(float(exact.expected), rel=1e-9)
        result = Evidence([c.places for c in rows.components], 1e-6).posterior(
            seen.data, values_of(kernel)
        )
        # nodes stand for the bins of smooths: to 1e-3 of what is there
        np.testing.assert_allclose(result.precision, Lambda, atol=2e-3 * np.abs(Lambda).max())
        np.testing.assert_allclose(
            result.shift, exact.sums.shift.numpy()[back], atol=2e-3 * np.abs(result.shift).max()
        )


# --- the evidence --------------------------------------------------------------------------------


def exact_nodes(rows: Rows) -> Rows:
    """Every point is a node and a point of open variance: nothing is approximated."""
    parts = []
    for c in rows.components:
        points = c.bins.points
        places, every = Places.of(c.kernel, c.inducing, points, points), np.arange(len(points))
        interpolation = identity(len(points))
        parts.append(
            dataclasses.replace(c, interpolation=interpolation, residual_bins=every, places=places)
        )
    return Rows(parts, rows.X, rows.Y, rows.mean)


@pytest.mark.slow
def test_the_bound_and_its_gradient_are_those_of_sgpr():
    components, kernel, X, Y = prepared(120)
    inducing = gg.gam.components.kernels.build_inducing(components, kernel, X.shape[1])
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 120)
    model = gg.models.AdditiveSGPR((X, Y), kernel, inducing, 0.7, weights=weights)
    rows = Rows(row_components(components, kernel, HeldColumns(X)), X, Y, np.zeros((120, 1)))
    bound = CollapsedBound(model, exact_nodes(rows))
    u = bound.rounds.coordinates()
    loss, gradient = bound.loss(u)
    with tf.GradientTape() as tape:
        expected = model.training_loss()
    assert loss == pytest.approx(float(expected), rel=1e-7)
    variables = [p.unconstrained_variable for p in bound.kernel.parameters]
    variables.append(model.likelihood.variance.unconstrained_variable)
    slopes = tape.gradient(expected, variables)
    flat = np.concatenate([np.ravel(g) for g in slopes])
    np.testing.assert_allclose(gradient, flat, rtol=1e-4, atol=1e-4)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["bernoulli", "negative binomial"])
def test_at_converged_sites_the_evidence_has_the_gradient_of_the_elbo(name):
    """The fixed point that needs no rows."""
    components, kernel, X, Y = prepared(150)
    Y = observations(name, Y)
    likelihood = LIKELIHOODS[name]()
    gpflow.set_trainable(likelihood, False)
    columns = HeldColumns(X)
    rows = exact_nodes(Rows(row_components(components, kernel, columns), X, Y, np.zeros((150, 1))))
    rounds = Rounds(kernel, likelihood, rows, None)
    begin = rounds.start(np.zeros(1)).point

    def converged(state):
        seen, before = rounds.evaluate(state), -np.inf
        for _ in range(25):
            if abs(seen.elbo - before) < 1e-10:
                break
            before = seen.elbo
            seen = rounds.evaluate(dataclasses.replace(state, data=seen.sweep.data))
        return seen

    seen = converged(begin)
    assert not seen.sweep.negative  # which would count as zero, and the gradient be another
    at = dataclasses.replace(begin, data=seen.sweep.data)
    _, gradient = rounds.loss(seen.sweep.data)(begin.u)
    h = 1e-3
    for i in (0, 1, len(begin.u) - 1):
        e = h * np.eye(len(begin.u))[i]
        up, down = (converged(dataclasses.replace(at, u=begin.u + d)).elbo for d in (e, -e))
        slope = (up - down) / (2 * h)
        assert -gradient[i] == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("first", [True, False])
def test_residual_variance_of_a_smooth_of_one_level(first):
    """Bins of other levels, where the component is zero, stand for none of the level's own."""
    column, by = (1, 0) if first else (0, 1)
    values = np.random.default_rng(0).lognormal(sigma=1.0, size=400)
    points = np.zeros((401, 2))
    points[:400, column], points[:400, by] = np.sort(values), 2.0
    points[400] = points[390]
    points[400, by] = -1.0
    codes = np.repeat(np.arange(401), np.r_[np.arange(400) % 7, 5000])
    kernel = Product([Matern52(2.0, 0.5, active_dims=[column]), Indicator(2.0, active_dims=[by])])
    Z = points[:400:25]
    c = row_component(kernel, Z, Bins(codes, points, True), (column,))
    mass = c.bins.mass()
    values_of = lambda p: p.numpy()
    K, Kzx, diagonal = fixed_input_kernel(kernel, Z, points).matrices(values_of)
    exact = float(mass @ (diagonal - np.sum(Kzx * np.linalg.solve(K, Kzx), axis=0)))
    evidence = Evidence([c.places], 1e-12)
    shape = 1, c.places.nodes, c.places.nodes
    masses = (np.bincount(c.residual_bins, mass)[None],)
    data = PseudoData(np.zeros(shape), np.zeros(shape[1:][::-1])[:, :1], masses)
    assert c.num_residual < 150
    value = EvidenceEvaluation(evidence, data, values_of).value
    assert -2.0 * value == pytest.approx(exact, rel=0.01)


def test_variances_from_single_precision_are_those_from_double(rng, monkeypatch):
    components, kernel, X, Y = prepared()
    q = present_posterior(a_model(components, kernel, X.shape[1], LIKELIHOODS["poisson"](), rng))
    rows = Rows(row_components(components, kernel, HeldColumns(X)), X, Y, np.zeros((len(X), 1)))
    monkeypatch.setattr(passes, "LOOKUP", -1.0)  # tables, not gathers, whatever the ranks
    moments = []
    for block in (len(X), len(X) - 1):
        monkeypatch.setattr(passes, "BLOCK", block)
        parts = [part[1:] for part in rows.marginals(values_of(kernel), q)]
        moments.append([np.concatenate(part) for part in zip(*parts)])
    np.testing.assert_array_equal(moments[0][0], moments[1][0])
    np.testing.assert_allclose(moments[0][1], moments[1][1], rtol=1e-5)
    assert np.any(moments[0][1] != moments[1][1])


def test_threads_have_the_callers_floating_point_errors():
    def overflow(_: int) -> None:
        np.float64(1e300) * np.float64(1e300)

    with warnings.catch_warnings(action="error"):
        with np.errstate(over="ignore"):
            each(overflow, range(4))
        with pytest.raises(RuntimeWarning, match="overflow"):
            each(overflow, range(4))


STEP = 1e-5


FRAME = problems.table(90)


DERIVED = {
    "gaussian": (s("x", k=8) + te("x", "z", k=9) + factor("g"), "gaussian", "y"),
    "counts": (s("x", k=8) + te("x", "z", k=9) + factor("g"), "poisson", "count"),
    # one wiggliness of several components
    "shared": (s("x", "g", bs="sz", k=6) + s("z", k=6), "poisson", "count"),
    # outputs of their own
    "classes": ({"v": s("x", k=6) + s("z", k=6), "w": s("z", k=6)}, "categorical", "kind"),
}


@pytest.mark.parametrize("case", DERIVED)
def test_second_derivatives_are_the_differences_of_first_ones(case):
    terms, family, response = DERIVED[case]
    gam = gg.GAM(terms, family).fit(FRAME, response, max_iterations=2)
    solution = gam.fitted.solution
    # away from the optimum, where no first derivative vanishes
    if solution.bound is not None:
        at = solution.optimum + 0.1
        gradient, result = lambda u: solution.bound.loss(u)[1], solution.bound.hessian(at)
    else:
        rounds = solution.rounds
        at = solution.optimum[: len(rounds.hyperparameters)] + 0.1
        loss = rounds.loss(solution.data)
        gradient, result = lambda u: loss(u)[1], rounds.hessian(solution.data, at)
    wanted = np.stack(
        [(gradient(at + e) - gradient(at - e)) / (2 * STEP) for e in STEP * np.eye(len(at))]
    )
    size = np.max(np.abs(wanted))
    np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=2e-4 * size)
