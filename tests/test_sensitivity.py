"""Functional ANOVA and Sobol indices: closed forms, other routes, known truths."""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from gpflow.kernels import Constant, Matern52, Product, SquaredExponential

import gpflow_gam as gg
from gpflow_gam import factor, s, ti
from gpflow_gam.gam.plotting import draw_cumulative_sobol, draw_sobol
from gpflow_gam.inducing_variables import AdditiveInducingVariables
from gpflow_gam.kernels import AdditiveKernel, Warped, ZeroMean
from gpflow_gam.kernels.additive import OffsetMean
from gpflow_gam.measures import Discrete, Empirical, Gaussian, Uniform
from gpflow_gam.posteriors.inducing import InducingMoments
from gpflow_gam.sensitivity import FunctionalANOVA, anova, functional_anova, grid
from gpflow_gam.sensitivity.anova import pick_freeze
from gpflow_gam.sensitivity.grid import ProductGrid, draw_covariances

UNIFORM = Uniform(0.0, 1.0)


def truth(X: np.ndarray) -> np.ndarray:
    """On [0, 1]^3, x2 of two levels: variances 1/12 of the squared slopes, and a product's."""
    centred = X - [0.5, 0.5, 0.5]
    return 2.0 * centred[:, 0] + centred[:, 1] + 12.0 * centred[:, 0] * centred[:, 1]


SHARES = {"x0": 4 / 12, "x1": 1 / 12, "x0:x1": 144 / 144}
INDICES = {name: v / sum(SHARES.values()) for name, v in SHARES.items()}


def observations(number: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(number, 3))
    X[:, 2] = X[:, 2] > 0.5
    return X, (truth(X) + 0.1 * rng.standard_normal(number))[:, None]


def anova_kernel() -> AdditiveKernel:
    def part(column: int) -> ZeroMean:
        base = SquaredExponential(1.0, 0.8, active_dims=[column])
        return ZeroMean(base, Discrete([0.0, 1.0]) if column == 2 else UNIFORM)

    return AdditiveKernel(
        {
            "constant": Constant(),
            "x0": part(0),
            "x1": part(1),
            "x2": part(2),
            "x0:x1": Product([part(0), part(1)]),
        }
    )


def whole_kernel() -> AdditiveKernel:
    """The same functions in components that are no ANOVA terms."""
    return AdditiveKernel(
        {
            "both": SquaredExponential(4.0, [0.8, 0.8], active_dims=[0, 1]),
            "x1": SquaredExponential(1.0, 0.8, active_dims=[1]),
            "x2": SquaredExponential(1.0, 0.8, active_dims=[2]),
        }
    )


def inputs(kernel: AdditiveKernel) -> AdditiveInducingVariables:
    line = np.linspace(0.0, 1.0, 10)
    grids = {0: np.zeros((1, 0)), 1: line[:, None]}
    grids[2] = np.stack(np.meshgrid(line[::2], line[::2]), -1).reshape(-1, 2)
    return AdditiveInducingVariables(
        {
            n: grids[len(c)] if n != "x2" else [[0.0], [1.0]]
            for n, c in zip(kernel.names, kernel.columns)
        }
    )


def sgpr(kernel: AdditiveKernel) -> gg.models.AdditiveSGPR:
    return gg.models.AdditiveSGPR(observations(), kernel, inputs(kernel), noise_variance=0.01)


@pytest.fixture(scope="module")
def model() -> gg.models.AdditiveSGPR:
    return sgpr(anova_kernel())


def indexed(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    return table[table["kind"] == kind].set_index("effect")


def test_effects_of_any_component_have_zero_mean_and_add_up():
    """A function of two columns and one of one, taken apart and put together again."""
    model = sgpr(whole_kernel())
    measures = {0: UNIFORM, 1: Gaussian(0.5, 0.2), 2: Discrete([0.0, 1.0], [0.3, 0.7])}
    anova = functional_anova(model, measures)
    x, w = measures[1].nodes()
    points = np.full((len(x), 3), 0.3)
    points[:, 1] = x[:, 0]
    for columns in ((1,), (0, 1)):
        assert np.ptp(anova.effect(columns, points)[0]) > 0.1
        assert anova.effect(columns, points)[0][:, 0] @ w == pytest.approx(0.0, abs=1e-12)
    # whatever is left of the sum over all effects is a constant
    X, _ = observations(20, seed=4)
    effects = [(0,), (1,), (2,), (0, 1)]
    total = sum(anova.effect(columns, X)[0] for columns in effects)
    left = model.predict_f(X)[0].numpy() - total
    np.testing.assert_allclose(left, left[0, 0], atol=1e-9)


NINE = Uniform(0.0, 1.0, num_nodes=9)
TOGETHER = np.repeat(observations(80)[0][:, :1], 2, axis=1) + np.array([0.0, 0.01])


@pytest.mark.parametrize(
    ("base", "measure", "columns"),
    [
        (SquaredExponential(4.0, 0.5, active_dims=[0]), None, 0),
        (SquaredExponential(1.0, 0.5, active_dims=[0]), Gaussian(0.2, 0.1), (0,)),
        (SquaredExponential(1.0, [0.3, 0.3], active_dims=[0, 1]), None, np.int64(0)),
        (SquaredExponential(1.0, [0.3, 0.3], active_dims=[0, 1]), Empirical(TOGETHER), (1,)),
        (SquaredExponential(1.0, [0.3, 0.3], active_dims=[0, 1]), Empirical(TOGETHER), (0, 1)),
    ],
)
@pytest.mark.parametrize("sparse", [True, False])
def test_moments_of_effects_are_those_of_all_nodes_together(base, measure, columns, sparse):
    """A C A', with A an average over nodes taken from values, where data lie on a diagonal."""
    kernel = AdditiveKernel({"f": base if measure is None else ZeroMean(base, measure)})
    rng = np.random.default_rng(0)
    data = TOGETHER, np.sin(4.0 * TOGETHER[:, :1]) + 0.1 * rng.standard_normal((80, 1))
    if sparse:
        inducing = gg.inducing_variables.select(TOGETHER, kernel, 20)
        model = gg.models.AdditiveSGPR(data, kernel, inducing, noise_variance=0.01)
    else:
        likelihood = gpflow.likelihoods.Gaussian(0.01)
        model = gg.models.IterNCGP(data, kernel, likelihood, solver="newton")
        assert gg.optimizers.fit(model, hyperparameters=False).converged
    x, w = (np.asarray(a) for a in NINE.nodes())
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    average = np.tile(w, (9, 1))
    A, subset = np.eye(1), np.atleast_1d(columns)
    for column in (0, 1):
        A = np.kron(A, np.eye(9) - average if column in subset else average)
    mean, covariance = model.posterior().predict_components(grid, full_cov=True)
    own, variance = functional_anova(model, {0: NINE, 1: NINE}).effect(columns, grid)
    np.testing.assert_allclose(own[:, 0], A @ mean.numpy()[:, 0], atol=1e-4)
    dense = np.diag(A @ covariance.numpy()[0] @ A.T)
    np.testing.assert_allclose(np.sqrt(variance[:, 0]), np.sqrt(dense), rtol=5e-3)


# --- indices -------------------------------------------------------------------------------------


def test_variances_are_those_of_drawn_functions(model):
    """Quadratic forms against functions drawn on the grid by the posterior's own sampler."""
    anova = functional_anova(model)
    draws = anova.variances(num_samples=4000)
    assert draws.subsets == ((0,), (1,), (2,), (0, 1))
    nodes, weights = UNIFORM.nodes()
    X = np.zeros((len(nodes), 3))
    X[:, 0] = nodes[:, 0]
    c = model.kernel.names.index("x0")
    f = model.posterior().sample_components(X, 4000, seed=1).numpy()[:, :, c]
    other = f**2 @ weights - (f @ weights) ** 2
    own = draws.variances[:, 0, 0]
    for q in (0.05, 0.5, 0.95):
        assert np.quantile(own, q) == pytest.approx(np.quantile(other, q), rel=0.03)


@pytest.mark.slow
def test_uncertain_hyperparameters_do_not_depend_on_units(rng):
    X = rng.uniform(size=(40, 2))
    y = (np.sin(5.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.5 * rng.normal(size=40))[:, None]
    tables = []
    for unit in (1.0, 1000.0):
        kernel = AdditiveKernel(
            {
                name: SquaredExponential(unit**2, 0.4 * unit, active_dims=[d])
                for d, name in enumerate("ab")
            }
        )
        lines = AdditiveInducingVariables({n: unit * np.linspace(0, 1, 8)[:, None] for n in "ab"})
        data = unit * X, unit * y
        model = gg.models.AdditiveSGPR(data, kernel, lines, noise_variance=0.3 * unit**2)
        gg.optimizers.fit(model, tolerance=1e-8)
        anova = functional_anova(model, unit * X, unconditional=True)
        tables.append(anova.sobol()[["lower", "upper"]].to_numpy())
    np.testing.assert_allclose(tables[1], tables[0], atol=0.01)


@pytest.mark.parametrize("make", [anova_kernel, whole_kernel])
def test_known_indices_are_inside_their_intervals(make):
    measures = {0: UNIFORM, 1: UNIFORM, 2: Discrete([0.0, 1.0])}
    # ten intervals at once, at hyperparameters that are given rather than learnt
    table = functional_anova(sgpr(make()), measures).sobol(level=0.995)
    assert set(table["kind"]) == {"first", "interaction", "total", "shapley"}
    first, total = indexed(table, "first"), indexed(table, "total")
    for name in ("x0", "x1"):
        assert first.loc[name, "lower"] < INDICES[name] < first.loc[name, "upper"]
        whole = INDICES[name] + INDICES["x0:x1"]
        assert total.loc[name, "lower"] < whole < total.loc[name, "upper"]
        half = INDICES[name] + 0.5 * INDICES["x0:x1"]
        shapley = indexed(table, "shapley").loc[name]
        assert shapley["lower"] < half < shapley["upper"]
    pair = indexed(table, "interaction").loc["x0:x1"]
    assert pair["lower"] < INDICES["x0:x1"] < pair["upper"]
    assert first.loc["x2", "lower"] == 0.0  # it has no effect
    assert first.loc["x2", "upper"] < 0.01
    parts = table[table["kind"].isin(["first", "interaction"])]
    assert parts["estimate"].sum() == pytest.approx(1.0, abs=1e-12)
    assert indexed(table, "shapley")["estimate"].sum() == pytest.approx(1.0, abs=1e-12)


def test_indices_of_levels_do_not_depend_on_the_unit(rng):
    """Var[f] of two levels is p (1 - p) (f_1 - f_0)^2, whatever the kernel's variance."""
    X = np.column_stack([rng.integers(0, 2, size=60), rng.uniform(size=60)]).astype(float)
    Y = (2.0 * X[:, 0] + X[:, 1] + 0.05 * rng.standard_normal(60))[:, None]
    p = X[:, 0].mean()
    result = []
    for unit in (1.0, 10.0):
        kernel = AdditiveKernel(
            {
                "level": ZeroMean(gg.kernels.Factor(unit**2, [0]), Empirical(X[:, 0])),
                "line": ZeroMean(SquaredExponential(unit**2, 1.0, active_dims=[1]), UNIFORM),
            }
        )
        inducing = AdditiveInducingVariables([[[0.0]], np.linspace(0, 1, 8)[:, None]])
        fit = gg.models.AdditiveSGPR(
            (X, unit * (Y - Y.mean())), kernel, inducing, noise_variance=0.01 * unit**2
        )
        anova = functional_anova(fit, names=["level", "line"])
        result.append(anova.sobol())
        f = fit.predict_components(np.array([[0.0, 0.5], [1.0, 0.5]]))[0].numpy()[:, 0]
        variance = indexed(result[-1], "first").loc["level", "variance"]
        assert variance == pytest.approx(p * (1 - p) * (f[1] - f[0]) ** 2, rel=2e-3)
    np.testing.assert_allclose(result[1]["estimate"], result[0]["estimate"], rtol=1e-4)


@pytest.mark.parametrize("on_columns", [False, True])
def test_indices_of_many_levels_are_those_of_their_shares(on_columns):
    """A measure of levels is never thinned, however it is given: there is none between two."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.permutation(np.arange(600) % 150), rng.uniform(size=600)])
    effects = rng.standard_normal(150)
    Y = (effects[X[:, 0].astype(int)] + X[:, 1])[:, None]
    level = gg.kernels.Factor(active_dims=[0])
    if on_columns:
        level = gg.kernels.OnColumns(level, [0])
    both = Product([level, SquaredExponential(1.0, 1.0, active_dims=[1])])
    kernel = AdditiveKernel({"g": level, "g:x": both})
    codes = np.arange(150.0)[:, None]
    line = np.linspace(0.0, 1.0, 3)
    pairs = np.stack(np.meshgrid(codes, line), -1).reshape(-1, 2)
    inducing = AdditiveInducingVariables([codes, pairs])
    model = gg.models.AdditiveSGPR((X, Y), kernel, inducing, noise_variance=1e-3)
    expected = [np.var(effects) / (np.var(effects) + 1 / 12), 1 / 12 / (np.var(effects) + 1 / 12)]
    for measures in (X, {0: Empirical(X[:, 0]), 1: UNIFORM}):
        first = indexed(functional_anova(model, measures).sobol(num_samples=8), "first")
        np.testing.assert_allclose(first["estimate"], expected, atol=0.01)


def test_what_joint_functions_are_left_to_be_is_decomposed_as_they_are():
    """Three inducing inputs on a diagonal, as of columns that go together: draws of the whole."""
    kernel = AdditiveKernel({"f": SquaredExponential(1.0, [0.5, 0.9], active_dims=[0, 1])})
    Z = np.array([[0.0, 0.0], [0.4, 0.4], [1.0, 1.0]])
    moments = InducingMoments(
        kernel, AdditiveInducingVariables([Z]), np.array([[1.0], [-2.0], [0.5]]), np.eye(3)[None]
    )
    x, w = np.linspace(0.0, 1.0, 6), np.array([0.3, 0.1, 0.1, 0.1, 0.1, 0.3])
    measures = {0: Discrete(x, w), 1: Discrete(x, w)}
    grid = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    phi = moments.features("f", grid)
    root = np.linalg.cholesky(kernel(grid).numpy() - phi.T @ phi + 1e-9 * np.eye(36))
    rng = np.random.default_rng(0)
    V = rng.standard_normal((4000, 3)) + moments.mean[:, 0]
    f = (V @ phi + rng.standard_normal((4000, 36)) @ root.T).reshape(-1, 6, 6)

    def shares(f):
        """The first index of the first column, and both total ones."""
        mean = np.einsum("sij,i,j->s", f, w, w)
        whole = np.einsum("sij,i,j->s", f**2, w, w) - mean**2
        own = [np.square(np.einsum(e, f, w)) @ w - mean**2 for e in ("sij,j->si", "sij,i->sj")]
        return np.mean([own[0] / whole, 1.0 - own[1] / whole, 1.0 - own[0] / whole], axis=1)

    anova = FunctionalANOVA(moments, ProductGrid(measures, [(0, 1)]))
    table = anova.sobol(num_samples=4000).set_index(["kind", "effect"])["estimate"]
    result = [table["first", "x0"], table["total", "x0"], table["total", "x1"]]
    np.testing.assert_allclose(result, shares(f), atol=0.01)
    _, _, past, total = pick_freeze([(moments, np.exp)], [measures], 1024, 300, seed=5)
    ratios = past["total"][:, :, 0] / total
    np.testing.assert_allclose(ratios.mean(axis=0), shares(np.exp(f))[1:], atol=0.03)
    assert np.all(
        np.abs(shares(np.exp(f))[1:] - shares(np.exp((V @ phi).reshape(f.shape)))[1:]) > 0.03
    )


# --- other scales, dependent inputs --------------------------------------------------------------


def test_pairs_of_many_inputs_are_those_of_components(model, monkeypatch):
    """Past the link all inputs interact."""
    measures = {0: UNIFORM, 1: UNIFORM, 2: Discrete([0.0, 1.0])}
    call = [(InducingMoments.of(model.posterior()), np.exp)], [measures], 256, 3, 5
    _, pairs, every, _ = pick_freeze(*call)
    assert pairs == ((0, 1), (0, 2), (1, 2))
    monkeypatch.setattr(anova, "ALL_PAIRS", 2)
    _, pairs, few, _ = pick_freeze(*call)
    assert pairs == ((0, 1),)
    np.testing.assert_allclose(few["interaction"][:, 0], every["interaction"][:, 0])


def test_covariances_over_data_against_drawn_components(model):
    X, _ = observations(60, seed=8)
    X[:, 1] = X[:, 0]  # as dependent as can be
    weights = np.arange(1.0, 61.0)
    moments = InducingMoments.of(model.posterior())
    names = model.kernel.names[1:]
    variances, covariances = draw_covariances([moments], X, weights, names, 4000, seed=0)
    f = model.posterior().sample_components(X, 4000, seed=1).numpy()[:, :, 1:]
    w = weights / weights.sum()
    centred = f - np.einsum("n,snc->sc", w, f)[:, None]
    rho = centred.sum(axis=2)
    other = np.einsum("n,snc,sn->sc", w, centred, rho)
    # the sampler's jitter of 1e-6 is all that differs
    np.testing.assert_allclose(covariances[..., 0].mean(axis=0), other.mean(axis=0), atol=5e-3)
    spread = covariances[..., 0].std(axis=0)
    np.testing.assert_allclose(spread, other.std(axis=0), rtol=0.1, atol=1e-4)
    own = np.einsum("n,snc,snc->sc", w, centred, centred)
    np.testing.assert_allclose(variances[..., 0].mean(axis=0), own.mean(axis=0), atol=5e-3)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_bad_input_is_refused(model):
    plain, pair = sgpr(whole_kernel()), Discrete([[0.0, 1.0], [1.0, 0.0]])
    for call, message in (
        (lambda: functional_anova(model, {0: UNIFORM}), "column 1 has no measure"),
        (lambda: functional_anova(model).sobol(level=95), "between 0 and 1; got 95"),
        (lambda: functional_anova(model).effect((0, 2), plain.data[0]), r"of columns \[0, 2\]"),
        (lambda: functional_anova(plain, UNIFORM), "must map the place of each column to its"),
        (lambda: functional_anova(model, names="abc"), "names must be one a column, at least 3"),
        (
            lambda: functional_anova(model.posterior(), unconditional=True),
            "unconditional=True needs an AdditiveSGPR",
        ),
        (
            lambda: functional_anova(plain, {0: pair, 1: UNIFORM, 2: UNIFORM}),
            "on 2 columns; independent inputs",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="posterior must be an additive model"):
        functional_anova(3)
    from_data = functional_anova(plain, observations()[0]).sobol()  # each column by itself
    assert set(from_data["effect"]) == {"x0", "x1", "x2", "x0:x1"}


def test_what_is_no_component_of_all_outputs_is_refused(rng):
    X, y = observations(30)
    kernel = AdditiveKernel([SquaredExponential(1.0, 0.8, active_dims=[0])])
    lines = gpflow.functions.Linear(np.array([[5.0], [0.0], [0.0]]))
    for mean in (lines, OffsetMean(np.zeros(1), [2])):
        model = gg.models.AdditiveSGPR((X, y), kernel, inputs(kernel), mean_function=mean)
        with pytest.raises(ValueError, match="mean function, .*, that may read columns"):
            functional_anova(model, {0: UNIFORM})
    constant = gpflow.functions.Constant(3.0)
    model = gg.models.AdditiveSGPR((X, y), kernel, inputs(kernel), mean_function=constant)
    assert set(functional_anova(model, {0: UNIFORM}).sobol(num_samples=8)["effect"]) == {"x0"}
    kernels = [gpflow.utilities.deepcopy(kernel) for _ in range(3)]
    each, classes = gpflow.kernels.SeparateIndependent(kernels), gpflow.likelihoods.Softmax(3)
    model = gg.models.IterNCGP((X, rng.integers(0, 3, (30, 1))), each, classes)
    gg.optimizers.fit(model, hyperparameters=False)
    with pytest.raises(ValueError, match="outputs with kernels of their own"):
        functional_anova(model, {0: UNIFORM})


@pytest.mark.parametrize("engine", ["sparse", "iterncgp"])
def test_indices_of_models_in_single_precision(engine):
    """As of double precision, of kernels in closed form and of others."""
    tables = []
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
            X, y = (a.astype(dtype) for a in observations(60))
            kernel = AdditiveKernel(
                {
                    "constant": Constant(),
                    "curve": SquaredExponential(1.0, 0.8, active_dims=[0]),
                    "line": gpflow.kernels.Linear(active_dims=[1]),
                    "noise": gpflow.kernels.White(1e-3, active_dims=[2]),
                }
            )
            if engine == "sparse":
                model = gg.models.AdditiveSGPR((X, y), kernel, inputs(kernel), noise_variance=0.1)
            else:
                likelihood = gpflow.likelihoods.Gaussian(0.1)
                model = gg.models.IterNCGP((X, y), kernel, likelihood)
                gg.optimizers.fit(model, hyperparameters=False)
            measures = {0: UNIFORM, 1: UNIFORM, 2: Discrete([0.0, 1.0])}
            tables.append(functional_anova(model, measures).sobol(num_samples=200))
    np.testing.assert_allclose(tables[1]["estimate"], tables[0]["estimate"], atol=1e-3)


def test_quick_functions_are_read_off_where_they_turn(rng):
    """At 32 fixed points half of the waves had been missed, and the prior taken for them."""
    X = np.linspace(0.0, 1.0, 200)[:, None]
    Y = np.sin(60.0 * X) + 0.01 * rng.standard_normal(X.shape)
    kernel = AdditiveKernel({"f": SquaredExponential(1.0, 0.03, active_dims=[0])})
    model = gg.models.IterNCGP((X, Y), kernel, gpflow.likelihoods.Gaussian(1e-4))
    gg.optimizers.fit(model, hyperparameters=False)
    of = functional_anova(model, {0: UNIFORM})
    exact = 0.5 - np.sin(120.0) / 240.0 - ((1.0 - np.cos(60.0)) / 60.0) ** 2
    np.testing.assert_allclose(of.sobol()["variance"], exact, atol=0.005)
    mean, var = (np.asarray(t) for t in model.predict_f(X))
    own = of.effect(0, X)
    np.testing.assert_allclose(own[0], mean - mean.mean(), atol=0.02)
    np.testing.assert_allclose(own[1], var, atol=0.01)


def test_warped_kernels_of_any_base(rng):
    """One without a form in numpy had ended in a KeyError."""
    X, Y = observations(40)
    base = gpflow.kernels.RationalQuadratic(lengthscales=0.4, active_dims=[0])
    kernel = AdditiveKernel({"f": Warped(base, [0.0, 0.5, 1.0], [1.0, 2.0, 0.5])})
    inducing = AdditiveInducingVariables([np.linspace(0.0, 1.0, 12)[:, None]])
    model = gg.models.AdditiveSGPR((X, Y), kernel, inducing, 0.1)
    nodes = np.linspace(0.0, 1.0, 400)[:, None]
    mean = np.asarray(model.predict_f(nodes)[0])
    own, _ = functional_anova(model, {0: UNIFORM}).effect(0, nodes)
    np.testing.assert_allclose(own, mean - mean.mean(), atol=1e-2)


@pytest.mark.slow
def test_draws_of_hyperparameters_leave_inducing_inputs_where_they_are():
    tables = []
    for trainable in (False, True):
        model = sgpr(AdditiveKernel([SquaredExponential(1.0, 0.8, active_dims=[0])]))
        gpflow.set_trainable(model.inducing_variable, trainable)
        anova = functional_anova(model, {0: UNIFORM}, unconditional=True)
        tables.append(anova.sobol(num_samples=64))
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.parametrize("sparse", [True, False])
def test_columns_are_a_set_in_whatever_order_kernels_read_them(sparse):
    X, y = observations(40)
    tables = []
    for first in (1, -1):
        base = SquaredExponential(1.0, [0.8, 0.4][::first], active_dims=[0, 1][::first])
        kernel = AdditiveKernel([base, SquaredExponential(1.0, 0.3, active_dims=[0, 1])])
        if sparse:
            inducing = AdditiveInducingVariables([X[:20, :2][:, ::first], X[20:, :2]])
            model = gg.models.AdditiveSGPR((X, y), kernel, inducing, noise_variance=0.01)
        else:
            model = gg.models.IterNCGP((X, y), kernel, gpflow.likelihoods.Gaussian(0.01))
            gg.optimizers.fit(model, hyperparameters=False)
        tables.append(functional_anova(model, {0: UNIFORM, 1: UNIFORM}).sobol(num_samples=50))
    assert list(tables[1]["effect"]) == list(tables[0]["effect"])
    np.testing.assert_allclose(tables[1]["variance"], tables[0]["variance"], rtol=1e-3)


def test_different_measures_of_one_column_have_to_be_chosen_between():
    kernel = AdditiveKernel(
        {
            "a": ZeroMean(SquaredExponential(1.0, 0.8, active_dims=[0]), UNIFORM),
            "b": ZeroMean(Matern52(1.0, 0.8, active_dims=[0]), Uniform(-1.0, 1.0)),
        }
    )
    X, Y = observations(20)
    line = np.linspace(0.1, 0.9, 4)[:, None]
    fit = gg.models.AdditiveSGPR((X, Y), kernel, AdditiveInducingVariables([line, line]))
    with pytest.raises(ValueError, match=r"Uniform\(0.0, 1.0\) and Uniform\(-1.0, 1.0\)"):
        functional_anova(fit)
    table = functional_anova(fit, {0: UNIFORM}).sobol()
    assert indexed(table, "first").loc["x0", "estimate"] == pytest.approx(1.0)


def test_no_variance_no_index():
    X, Y = observations(20)
    for kernel in (
        AdditiveKernel({"constant": Constant()}),
        AdditiveKernel({"f": ZeroMean(SquaredExponential(active_dims=[0]), Discrete([0.3]))}),
    ):
        width = 0 if "constant" in kernel.names else 1
        inducing = AdditiveInducingVariables([np.full((1, width), 0.3)])
        fit = gg.models.AdditiveSGPR((X[:, :1] * 0 + 0.3, Y), kernel, inducing)
        with pytest.raises(ValueError, match="Sobol indices are undefined: the predictor has zero"):
            functional_anova(fit).sobol()


def test_gauss_rules_average_polynomials_as_all_points_do(rng):
    points, weights = rng.normal(3.0, 0.2, 60), rng.dirichlet(np.ones(60))
    nodes, shares = grid.gauss_rule(points, weights, 6)
    powers = np.arange(12)[:, None]
    z, at = (points - 3.0) / 0.2, (nodes - 3.0) / 0.2
    np.testing.assert_allclose(at**powers @ shares, z**powers @ weights, rtol=1e-9, atol=1e-9)
    assert np.all(shares > 0.0)


def test_more_points_than_a_grid_has_are_a_rule_of_few(rng):
    x = rng.normal(size=20_000)
    nodes, weights = ProductGrid({0: Empirical(x)}, [(0,)]).margins[0]
    assert len(nodes) <= 200
    for f in (lambda x: np.sin(7.0 * x), lambda x: np.exp(-np.square(x / 0.2))):
        assert weights @ f(nodes) == pytest.approx(np.mean(f(x)), abs=1e-9)


def test_few_nodes_of_three_columns_do_as_all(monkeypatch, rng):
    data = pd.DataFrame(rng.normal(size=(32, 3)), columns=list("abc"))
    data["y"] = np.sin(2.0 * data.a) * (1.0 + data.b * data.c) + data.b + 0.1 * rng.normal(size=32)
    gam = gg.GAM("y ~ s(a, b, c) + s(a, k=8)").fit(data)
    few = functional_anova(gam.posterior, gam.fitted.X).variances(2)
    monkeypatch.setattr(grid, "NUM_POINTS", 120_000)
    every = functional_anova(gam.posterior, gam.fitted.X).variances(2)
    assert few.subsets == every.subsets
    np.testing.assert_allclose(few.sizes, every.sizes, rtol=1e-3, atol=1e-5 * every.sizes.sum())


# --- Sobol indices of GAMs on tables, and their pictures -----------------------------------------


def table(n: int = 160) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"x": rng.uniform(size=n), "z": rng.uniform(size=n)})
    data["g"] = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    rho = np.sin(6.0 * data["x"]) + 8.0 * (data["x"] - 0.5) * (data["z"] - 0.5)
    data["count"] = rng.poisson(np.exp(rho + 1.0 + 0.7 * (data["g"] == "b")))
    return data


@pytest.fixture(scope="module")
def gam() -> gg.GAM:
    terms = s("x", k=7) + s("z", k=5) + ti("x", "z", k=12) + factor("g")
    return gg.GAM(terms, family="poisson").fit(table(), y="count", max_iterations=40)


def test_indices_of_a_gam_are_those_of_its_model(gam):
    """The components are centred under the columns' own distributions in the data."""
    own = gam.sobol(unconditional=False, bootstrap=False, seed=4)
    names = {gam.fitted.spec.encoder.index(c, k): c for c, k in gam.fitted.spec.encoder.columns}
    # the factor's measure is on levels, the others' are nodes: as in the kernels
    other = functional_anova(gam.model, names=names).sobol(seed=4)
    assert list(own["effect"]) == list(other["effect"])
    np.testing.assert_allclose(own["estimate"], other["estimate"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(own["upper"], other["upper"], rtol=1e-6, atol=1e-9)
    snapshot = functional_anova(gam.posterior, names=names).sobol(seed=4)
    np.testing.assert_allclose(snapshot["estimate"], other["estimate"], rtol=1e-9, atol=1e-12)
    first = own[own["kind"] == "first"].set_index("effect")["estimate"]
    assert first.idxmax() == "x"
    pair = own[own["kind"] == "interaction"].set_index("effect").loc["x:z"]
    assert pair["lower"] > 0.1


def test_inputs_of_a_sum_interact_past_a_link():
    """Of exp(x + z + g) variances are products: those of means are beside what is left."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=400), "z": rng.uniform(size=400)})
    data["g"] = np.where(np.arange(400) % 2, "a", "b")
    data["count"] = rng.poisson(np.exp(2.0 * data["x"] + 2.0 * data["z"] + (data["g"] == "a")))
    gam = gg.GAM(gg.linear("x") + gg.linear("z") + factor("g"), "poisson").fit(data, y="count")
    uniform = {"x": UNIFORM, "z": UNIFORM}
    table = gam.sobol(scale="response", measures=uniform, unconditional=False, num_samples=32)
    size = (np.exp(4.0) - 1.0) / 4.0 / ((np.exp(2.0) - 1.0) / 2.0) ** 2 - 1.0
    level, both = np.tanh(0.5) ** 2, (1.0 + size) ** 2
    found = {kind: indexed(table, kind)["estimate"] for kind in set(table["kind"])}
    assert set(found) == {"first", "interaction", "total"}
    own = [found["interaction"]["x:z"], found["first"]["g"], found["total"]["g"]]
    expected = np.array([size**2, level, level * both]) / (both * (1.0 + level) - 1.0)
    np.testing.assert_allclose(own, expected, atol=0.03)


def test_intervals_of_monte_carlo_allow_for_its_error(rng):
    """Where noise is small, which one set of rows for all draws had left out."""
    data = pd.DataFrame(rng.uniform(-np.pi, np.pi, (150, 2)), columns=["a", "b"])
    data["y"] = np.sin(data.a) + np.sin(data.b) ** 2 + 0.3 * data.a * data.b
    gam = gg.GAM("y ~ s(a) + s(b) + ti(a, b)").fit(data)
    measures = {name: Uniform(-np.pi, np.pi) for name in "ab"}
    options = {"measures": measures, "num_samples": 64, "num_points": 256}
    exact, noisy = (gam.sobol(scale=scale, **options) for scale in ("link", "response"))
    both = noisy.merge(exact, on=["kind", "effect"], suffixes=("", "_exact"))
    assert len(both) == 5
    assert both["estimate_exact"].between(both["lower"], both["upper"]).all()
    np.testing.assert_allclose(both["estimate"], both["estimate_exact"], atol=0.02)


def test_shares_over_the_data(gam):
    result = gam.sobol(inputs="data", unconditional=False)
    parts = {kind: t.set_index("effect")["estimate"] for kind, t in result.groupby("kind")}
    assert list(parts["share"].index) == list(gam.names)
    assert parts["share"].sum() == pytest.approx(1.0, abs=1e-9)
    pd.testing.assert_series_equal(
        parts["structural"] + parts["correlative"], parts["share"], check_names=False
    )
    contributions = gam.predict(table(), type="terms").iloc[:, 1:]
    plug_in = contributions.cov().sum() / contributions.cov().to_numpy().sum()
    np.testing.assert_allclose(parts["share"], plug_in[list(gam.names)], atol=0.05)


@pytest.mark.parametrize("inputs", ["independent", "data"])
def test_a_predictor_that_is_constant_has_no_indices(inputs):
    data = table()
    data["y"] = data["count"] * (np.random.default_rng(0).uniform(size=len(data)) < 0.7)
    gam = gg.GAM(s("x", k=5) + s("z", k=4), family="zero_inflated_poisson").fit(data, y="y")
    result = gam.sobol(unconditional=False, inputs=inputs)
    assert set(result["predictor"]) == {"mean"}
    parts = result[result["kind"].isin(["first", "interaction", "share"])]
    assert parts["estimate"].sum() == pytest.approx(1.0)
    # given the posterior's mean, the variances are those of effects over the rows
    effects = gam.predict(data, "terms")
    first = result[result["kind"] == {"independent": "first", "data": "structural"}[inputs]]
    for name in "xz":
        effect = np.reshape(np.asarray(effects[f"s({name})"]), (len(data), -1))[:, 0]
        own = first[first["effect"].isin([name, f"s({name})"])]["variance"].item()
        assert 0.8 * effect.var() < own < 1.4 * effect.var() + 0.02


def test_bad_arguments_are_named(gam):
    for arguments, message in (
        ({"scale": "log"}, "scale must be 'link' or 'response'; got 'log'"),
        ({"inputs": "both"}, "inputs must be 'independent' or 'data'"),
        ({"inputs": "data", "scale": "response"}, "needs inputs='independent'"),
        ({"level": 1.0}, "level must be a probability"),
        ({"measures": {"w": UNIFORM}}, "no term reads a column 'w'; there are g, x, z"),
        ({"measures": {"g": UNIFORM}}, "column 'g' holds levels"),
        ({"measures": {"x": "uniform"}}, "column 'x' needs a measure of one column"),
        ({"measures": {"x": UNIFORM}, "inputs": "data"}, "measures describe independent inputs"),
        ({"num_samples": 1.5}, "num_samples must be a whole number"),
        ({"scale": "response", "num_points": 1000}, "num_points must be a power of two"),
    ):
        with pytest.raises(ValueError, match=message):
            gam.sobol(unconditional=False, **arguments)


def test_a_column_read_in_two_ways_is_no_independent_input():
    data = table()
    data["g"] = data["g"].map({"a": 0, "b": 1, "c": 2})
    twice = gg.GAM(s("x", k=4) + s("g", k=3) + factor("g"), family="gaussian")
    twice.fit(data, y="count", max_iterations=3)
    with pytest.raises(ValueError, match="'g' is read both as numbers and as levels"):
        twice.sobol(unconditional=False)
    assert len(twice.sobol(inputs="data", unconditional=False)) == 9


# --- what is known of the inputs' distribution ---------------------------------------------------


@pytest.fixture(scope="module")
def lines() -> gg.GAM:
    """Two slopes of one, known all but exactly, on columns of which 300 values are known."""
    data = sample_of_lines(np.random.default_rng(0))
    return gg.GAM(gg.linear("a") + gg.linear("b")).fit(data, y="y")


def sample_of_lines(rng: np.random.Generator, between: float = 0.0) -> pd.DataFrame:
    a, noise = rng.uniform(size=(2, 300))
    data = pd.DataFrame({"a": a, "b": between * a + (1.0 - between) * noise})
    data["y"] = data["a"] + data["b"] + 1e-3 * rng.standard_normal(300)
    return data


def first_of_a(result: pd.DataFrame) -> pd.Series:
    return result[(result["kind"] == "first") & (result["effect"] == "a")].iloc[0]


def test_measures_that_are_given_are_those_of_the_columns(lines):
    """Var[a] / (Var[a] + Var[b]) with a uniform on (0, 1) and b on (0, 2)."""
    measures = {"a": UNIFORM, "b": gg.measures.Uniform(0.0, 2.0)}
    for scale in ("link", "response"):
        row = first_of_a(lines.sobol(measures=measures, scale=scale, unconditional=False))
        assert row["estimate"] == pytest.approx(0.2, abs=2e-3)
        assert row["upper"] - row["lower"] < 0.01


APART = 0.25 * np.sqrt(2.0 * (1.8 - 1.0) / 300)
"""Sd of the share 1/2 by the delta method: of log Var each column has (kurtosis - 1) / N."""


# of 256 draws of the columns' distribution, and of 32, where the width itself varies by 17 %
@pytest.mark.parametrize(("scale", "within"), [("link", 0.25), ("response", 0.4)])
def test_intervals_allow_for_the_columns_being_a_sample(lines, scale, within):
    known = first_of_a(lines.sobol(unconditional=False, bootstrap=False, scale=scale))
    row = first_of_a(lines.sobol(unconditional=False, scale=scale))
    assert row["upper"] - row["lower"] == pytest.approx(2.0 * 1.96 * APART, rel=within)
    assert row["lower"] < 0.5 < row["upper"]
    assert known["upper"] - known["lower"] < 0.2 * APART


def test_shares_over_data_allow_for_the_rows_being_a_sample(lines):
    """What two columns have in common by chance is not known either."""
    known, result = (
        lines.sobol(inputs="data", unconditional=False, bootstrap=b).set_index(["kind", "effect"])
        for b in (False, True)
    )
    both = np.hypot(APART, 0.5 / np.sqrt(300))  # d(Va / Vrho) has -dCov / (2 Va) beside
    for kind, sd in (("share", APART), ("structural", both)):
        row, alone = (t.loc[(kind, "linear(a)")] for t in (result, known))
        assert row["upper"] - row["lower"] == pytest.approx(2.0 * 1.96 * sd, rel=0.25)
        assert alone["upper"] - alone["lower"] < 0.2 * sd


def test_columns_are_uncertain_together():
    """Of columns that are nearly the same one, rows vary the variances in proportion."""
    data = sample_of_lines(np.random.default_rng(1), between=0.97)
    gam = gg.GAM(gg.linear("a") + gg.linear("b")).fit(data, y="y")
    fixed = {c: gam.fitted.encode(data)[:, i] for i, c in enumerate("ab")}
    assert np.corrcoef(fixed["a"], fixed["b"])[0, 1] > 0.99
    row = first_of_a(gam.sobol(unconditional=False))
    known = first_of_a(gam.sobol(unconditional=False, bootstrap=False))
    own = known["upper"] - known["lower"]
    assert row["upper"] - row["lower"] < own + 0.3 * 2.0 * 1.96 * APART


@pytest.mark.slow
def test_bars_are_the_indices(gam):
    result = gam.sobol(unconditional=False)
    figure = draw_sobol(result)
    (ax,) = figure.axes
    total = result[result["kind"] == "total"].sort_values("estimate", ascending=False)
    bars = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(bars[3:6], total["estimate"])
    assert [t.get_text() for t in ax.get_yticklabels()] == [*total["effect"], "x:z"]
    assert bars[-1] == pytest.approx(result.set_index("effect").loc["x:z", "estimate"])
    lower, upper = ax.collections[1].get_segments()[0][:, 0]
    assert (lower, upper) == pytest.approx(tuple(total.iloc[0][["lower", "upper"]]))
    figure = draw_cumulative_sobol(result)
    heights = figure.axes[0].lines[0].get_ydata()
    assert heights[0] == 0.0
    assert heights[-1] == pytest.approx(1.0)
    assert np.all(np.diff(heights, 2) <= 1e-12)  # the greatest first
    _, ax = plt.subplots()
    assert draw_sobol(gam.sobol(inputs="data", unconditional=False), ax=ax) is ax.figure
    plt.close("all")
    with pytest.raises(ValueError, match="no first-order indices"):
        draw_cumulative_sobol(gam.sobol(inputs="data", unconditional=False))
    with pytest.raises(ValueError, match="table must be"):
        draw_sobol(result[["effect"]])
